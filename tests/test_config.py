"""Parameters: a wrong name, type, range or combination is one line that names it."""

from pathlib import Path

import pytest
import yaml

from dacr import config
from dacr.config import load_params
from dacr.data.splits import check_schedule
from dacr.errors import UserError
from dacr.runtime.compose import compose

METHODS = sorted(file.stem for file in Path("conf/method").glob("*.yaml"))
BENCHMARKS = sorted(file.stem for file in Path("conf/benchmark").glob("*.yaml"))


@pytest.fixture
def composed(tmp_path):
    """A function that composes parameters, changes some by hand, and gives the file."""

    def make(*overrides, **changes):
        path = tmp_path / "params.yaml"
        compose(list(overrides), path)
        content = yaml.safe_load(path.read_text())
        for dotted, value in changes.items():
            *sections, name = dotted.split("__")
            section = content
            for part in sections:
                section = section[part]
            section[name] = value
        path.write_text(yaml.safe_dump(content))
        return path

    return make


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


def test_the_committed_parameters_are_what_conf_composes(tmp_path):
    path = tmp_path / "params.yaml"
    compose([], path)
    assert path.read_text() == Path("params.yaml").read_text()


def test_a_checkpoint_is_named_by_the_parameters_that_dvc_watches():
    """Otherwise a changed parameter could meet a stale checkpoint, or DVC miss the change."""
    from dacr.sessions.learn import LEARN_PARAMS

    stages = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]
    assert set(LEARN_PARAMS) == set(stages["learn"]["do"]["params"])
