"""Parameters: a wrong name, type, range or combination is one line that names it."""

import re
from pathlib import Path

import pytest
import yaml
from dvc.utils.serialize import dumps_yaml

from dacr import config
from dacr.config import load_params
from dacr.data.splits import check_schedule
from dacr.errors import UserError
from dacr.runtime.compose import compose
from tests import learning

METHODS = sorted(file.stem for file in Path("conf/method").glob("*.yaml"))
BENCHMARKS = sorted(file.stem for file in Path("conf/benchmark").glob("*.yaml"))


@pytest.fixture
def composed(tmp_path):
    """A function that composes parameters, changes some by hand, and gives the file."""

    def make(*overrides, **changes):
        path = tmp_path / "params.yaml"
        compose(list(overrides), path)
        if changes:
            content = yaml.safe_load(path.read_text())
            for dotted, value in changes.items():
                *sections, name = dotted.split("__")
                section = content
                for part in sections:
                    section = section[part]
                section[name] = value
            path.write_text(dumps_yaml(content))
        return path

    return make


@pytest.mark.parametrize(
    "overrides",
    [
        ["benchmark=idigits_mini"],
        ["split=vil", "benchmark=icifar20", "facts.vil_groups=2", "train.lr=1e-30"],
        ["split=ncd", "method=der_dacr", "data.class_names=[no,on]", "reading=printed"],
        ["method=replay", "split=nd", "~options.prior", "+options.own={a: 1, b: null}", "seed=7"],
    ],
)
def test_the_parameters_of_tests_are_those_that_hydra_composes(overrides, tmp_path):
    compose(overrides, tmp_path / "params.yaml")
    assert learning.composed(overrides) == config.parse_yaml((tmp_path / "params.yaml").read_text())


def message(path):
    with pytest.raises(UserError) as error:
        load_params(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("split", ["nc", "nd", "ncd", "vil", "uil", "blurry", "repeat"])
def test_every_benchmark_composes_with_every_split(composed, benchmark, split):
    path = composed(f"benchmark={benchmark}", f"split={split}")
    params = load_params(path)
    check_schedule(params.schedule, params.data)
    assert params.model_dump(mode="json", by_alias=True) == yaml.safe_load(path.read_text())
    domains = len(params.data.domains)
    expected = {
        "nc": params.facts.nc_sessions,
        "nd": domains,
        "ncd": 10,
        "vil": (10 if benchmark == "cifar100" else 5) * domains,
        "uil": 10,
        "blurry": params.facts.nc_sessions,
        "repeat": 10,
    }[split]
    assert len(params.schedule.sessions) == expected
    assert params.schedule.last == f"{expected:02d}"


def test_an_override_of_a_rule_changes_the_chain_of_sessions(composed):
    params = load_params(composed("split=vil", "schedule.class_groups=2"))
    assert len(params.schedule.sessions) == 2 * 4
    params = load_params(composed("split=uil", "facts.mixed_sessions=7"))
    assert params.schedule.last == "07"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_composes_and_its_options_are_its_own(composed, method):
    from dacr.methods import parts_of

    params = load_params(composed(f"method={method}"))
    options = parts_of(params.method).options(params)
    assert options.model_dump(by_alias=True, mode="json") == params.options, (
        "the YAML names every option"
    )


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("method", METHODS)
def test_reading_the_parameters_changes_and_adds_nothing(composed, benchmark, method):
    """So no edit of dacr/config.py changes a result: DVC compares the values themselves."""
    path = composed(f"benchmark={benchmark}", f"method={method}")
    read = load_params(path).model_dump(mode="json", by_alias=True)
    assert read == yaml.safe_load(path.read_text())


def test_parameters_are_values_and_compute_nothing():
    sections = [own for own in vars(config).values() if isinstance(own, type)]
    for section in (own for own in sections if own.__module__ == config.__name__):
        own = [name for name in vars(section) if not name.startswith(("_", "model_"))]
        assert not own, section


def test_the_paper_values_are_composed_for_the_papers_benchmarks(composed):
    digits = load_params(composed("benchmark=idigits", "reading=printed"))
    assert (digits.train.epochs, digits.train.lr, digits.train.batch_size) == (70, 0.1, 128)
    assert (digits.train.milestones, digits.memory.size) == ([48, 63], 500)
    assert (digits.loss.lambda_, digits.loss.beta, digits.loss.eta) == (0.1, 1.0, 0.1)
    assert (digits.mixture.components, digits.reduction.delta) == (30, 0.7)
    assert digits.loss.lambda_epochs == 10
    net = load_params(composed("benchmark=idomainnet", "reading=printed"))
    assert (net.train.epochs, net.train.batch_size, net.memory.size) == (200, 256, 2000)
    assert net.train.milestones == [80, 120]
    assert net.loss.lambda_epochs == 10


@pytest.mark.parametrize(
    ("benchmark", "expected"),
    [("icifar20", (10, 30, 5.0)), ("idomainnet", (20, 30, 1.0)), ("idigits", (0, 30, 5.0))],
)
def test_der_has_the_values_of_its_authors(composed, benchmark, expected):
    params = load_params(composed(f"benchmark={benchmark}", "method=der"))
    names = ("warmup_epochs", "second_stage_epochs", "temperature")
    assert tuple(params.options[name] for name in names) == expected
    last = params.train.milestones[-1]
    assert params.options["warmup_epochs"] + last < params.train.epochs, "it reaches all milestones"


def test_unknown_choice_names_the_known_ones(tmp_path):
    for group in ("benchmark", "split", "method"):
        with pytest.raises(UserError, match=f"{group}/nothing.*Available options"):
            compose([f"{group}=nothing"], tmp_path / "params.yaml")


def test_unknown_parameter_is_refused_when_composing_and_when_reading(composed, tmp_path):
    with pytest.raises(UserError, match=r"trian\.lr"):
        compose(["trian.lr=1"], tmp_path / "other.yaml")
    assert "unknown parameter 'train.learning_rate'" in message(composed(train__learning_rate=1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train__lr": -1}, "train.lr"),
        ({"train__lr": "fast"}, "train.lr"),
        ({"train__epochs": 0}, "train.epochs"),
        ({"train__epochs": 1.5}, "train.epochs"),
        ({"memory__strategy": "clever"}, "memory.strategy"),
        ({"mixture__kappa": None}, "mixture.kappa"),
        ({"loss__lambda": "x"}, "loss.lambda"),
        ({"data__validation": 1.0}, "data.validation"),
        ({"data__sources": []}, "data.sources"),
        (
            {"schedule__rule": "random"},
            "input should be 'nc', 'nd', 'ncd', 'vil', 'uil', 'blurry', 'repeat' or 'table'",
        ),
        ({"schedule__domain_order": "sorted"}, "input should be 'listed' or 'shuffled'"),
    ],
)
def test_wrong_type_or_range_names_the_parameter(composed, change, said):
    assert said in message(composed(**change))


NUMBERS = [
    "train__lr", "train__weight_decay", "train__momentum", "train__gamma", "mixture__kappa",
    "mixture__perturbation", "reduction__delta", "loss__lambda", "loss__lambda_epochs",
    "loss__beta", "loss__eta", "data__validation", "facts__lambda_base",
    "facts__second_stage_temperature", "options__auxiliary",
]  # fmt: skip


def test_a_number_that_overflows_is_refused_by_name(composed):
    path = composed()
    whole = yaml.safe_load(path.read_text())
    for value in (float("inf"), float("-inf"), float("nan"), 1e300):
        changes = [(*name.split("__"), value) for name in NUMBERS]
        changes += [("augmentation", key, [1.0, value, 1.0]) for key in ("mean", "std")]
        for section, key, own in changes:
            path.write_text(dumps_yaml(whole | {section: whole[section] | {key: own}}))
            place = ".1" if section == "augmentation" else ""
            assert f"{section}.{key}{place}: " in message(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"augmentation__std": [0.5, 0.0, 0.5]}, "augmentation.std.1"),
        ({"augmentation__std": [0.5, -1.0, 0.5]}, "augmentation.std.1"),
        ({"train__threads": 100_000}, "train.threads: input should be less than or equal to 1024"),
        ({"mixture__components": 10**6}, "mixture.components"),
        ({"train__epochs": 2**70}, "train.epochs"),
        ({"memory__size": 10**30}, "memory.size"),
    ],
)
def test_what_cannot_work_is_refused(composed, change, said):
    assert said in message(composed(**change))


def test_parameters_that_hold_themselves_are_one_line(composed):
    path = composed()
    text = path.read_text().replace("options:\n  auxiliary: 1.0\n", "options: &a {auxiliary: *a}\n")
    assert "*a" in text
    path.write_text(text)
    assert "nested too deeply" in message(path)


def test_sections_of_different_choices_do_not_mix(composed):
    assert "split 'nc'" in message(composed("split=nd", split="nc"))
    assert "benchmark 'icifar20'" in message(composed(benchmark="icifar20"))
    assert "schedule.last" in message(composed(schedule__last="09"))


def test_missing_or_broken_file(tmp_path):
    assert "missing" in message(tmp_path / "nowhere.yaml")
    broken = tmp_path / "params.yaml"
    for content in ("a: [1", "just text", "", "\x00"):
        broken.write_text(content)
        assert "make params" in message(broken)


SCALARS = [
    "010", "08", "0o10", "0b11", "0x1F", "1_000", "1:30", "190:20:30.15", "on", "yes", "no", "y",
    "True", "tRUE", "null", "~", "1e5", "1E5", "1e-05", "1.e5", "1.", ".5", "+.5", "-0", "1,2",
    "2001-01-01", "'010'", '"on"', "!!str 010", "!!int '010'", "!!float 1", "[a, on]", "",
]  # fmt: skip
DOCUMENTS = [
    *(f"x: {scalar}" for scalar in SCALARS),
    "x: {<<: &a {b: 1}, c: 2}", "on: 1\nyes: 2", "1: a\n'1': b", "- a", "text", "",
]  # fmt: skip


@pytest.mark.parametrize("text", DOCUMENTS)
def test_parameters_have_the_values_that_dvc_compares(tmp_path, text):
    from dvc.utils.serialize import load_yaml

    from dacr.experiments.reading import parse_yaml as of_an_experiment

    file = tmp_path / "params.yaml"
    file.write_text(text)
    expected = load_yaml(str(file))
    assert repr(config.parse_yaml(text) or {}) == repr(expected)
    if isinstance(expected, dict):
        assert repr(of_an_experiment(text.encode(), "params.yaml", "x")) == repr(expected)


def test_octal_numbers_small_numbers_and_words_are_read_as_dvc_does(composed):
    path = composed(train__lr=1e-5, data__class_names=["no", "on", *"23456789"])
    text = path.read_text().replace("epochs: 12", "epochs: 012")
    assert "lr: 1e-05\n" in text
    assert "- no\n" in text
    path.write_text(text)
    params = load_params(path)
    assert (params.train.epochs, params.train.lr) == (12, 1e-5)
    assert params.data.class_names == ["no", "on", *"23456789"]


AMBIGUOUS = [
    ("epochs: 12", "epochs: 12\n  epochs: 13", 'found duplicate key "epochs"'),
    ("seed: 1993", "seed: 1:30", "seed: input should be a valid integer"),
    ("seed: 1993", "seed: '1993'", "seed: input should be a valid integer"),
    ("epochs: 12", "epochs: 12.0", "train.epochs: input should be a valid integer"),
    ("epochs: 12", "epochs: yes", "train.epochs: input should be a valid integer"),
    ("epochs: 12", "epochs: true", "train.epochs: input should be a valid integer"),
    ("lr: 0.05", "lr: '0.05'", "train.lr: input should be a valid number"),
    ("compile: false", "compile: off", "train.compile: input should be a valid boolean"),
    ("compile: false", "compile: 0", "train.compile: input should be a valid boolean"),
]


def test_a_value_that_two_readers_would_read_differently_is_refused(composed):
    path = composed()
    text = path.read_text()
    for before, after, said in AMBIGUOUS:
        changed = re.sub(rf"^( *){before}$", rf"\g<1>{after}", text, count=1, flags=re.MULTILINE)
        assert changed != text
        path.write_text(changed)
        assert said in message(path)


def test_the_files_of_conf_read_the_same_in_either_yaml():
    """Hydra reads them as YAML 1.1, DVC and the stages read what it composes as 1.2."""
    for file in Path("conf").rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        assert config.parse_yaml(text) == yaml.safe_load(text), file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a: " + "9" * 5000, "too many digits"),
        ("a: !!python/object:os.system ls", "line 1"),
        ("a: 2001-99-99", "month"),
        ("a: =", "line 1"),
        ("{[a]: {b: c}}: d", "make params"),
        ("!!float ", "make params"),
        ("%YAML 9.9\n---\na: 1", "make params"),
    ],
)
def test_a_hostile_document_is_one_line(tmp_path, text, said):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    assert said in message(file)
    assert len(message(file)) < 400


def test_an_override_that_is_no_parameter_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"cannot compose .*4300 digits") as error:
        compose(["train.epochs=" + "9" * 5000], tmp_path / "params.yaml")
    assert len(str(error.value)) < 400


def test_the_committed_parameters_are_what_conf_composes(tmp_path):
    path = tmp_path / "params.yaml"
    compose([], path)
    assert path.read_text() == Path("params.yaml").read_text()


def test_notes_and_checkpoints_name_the_parameters_that_dvc_watches():
    """Otherwise a changed parameter could meet a stale checkpoint, or DVC miss the change."""
    from dacr.runtime.made import PARAMETERS

    stages = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]
    assert {stage: set(stages[stage]["do"]["params"]) for stage in PARAMETERS} == {
        stage: set(names) for stage, names in PARAMETERS.items()
    }
