"""Any representation with any classifier; who asks a teacher, and how often; one reading each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from dacr import config
from dacr.errors import UserError
from dacr.experiments.plan import composed
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session
from dacr.learning.training import Phase, Trainer
from dacr.methods import known_methods, make_method, parts_of
from dacr.methods.der import BalancedLinear, Expandable, WarmUpOptions
from dacr.methods.eeil import GroupDistilled
from dacr.methods.geodl import Geodesic
from dacr.methods.icarl import NearestMean
from dacr.methods.parts import departures
from dacr.methods.parts.classifier import Classifier, DistilledClassifier
from dacr.methods.parts.departures import Ours, reading_of
from dacr.methods.parts.method import Method, Parts
from dacr.methods.parts.mixture import VmfMixture
from dacr.methods.parts.reading import Reading
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.second_stage import TwoStage
from dacr.methods.ucir import CosineWithMargin, LessForget
from dacr.model.backbones import Backbone
from dacr.runtime.progress import TrainingProgress
from dacr.sessions.state import load_model, save_model
from tests.learning import CPU, small_params, small_session
from tests.teaching import disturb, logits_of, whole_batch

REPRESENTATIONS = [Representation, LessForget, Geodesic, Expandable]
CLASSIFIERS = [
    Classifier,
    NearestMean,
    GroupDistilled,
    CosineWithMargin,
    BalancedLinear,
    VmfMixture,
    Ours,
]
AUGMENTED = "augmentation.name=crop_flip_jitter"
ROOM = "memory.size=20"  # iCaRL's classifier needs an exemplar of each class


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def three_sessions() -> list[Session]:
    """New classes; a new and an old one; old ones alone, in a new domain."""
    return [
        small_session(1, [], [0, 1], [], each=8),
        small_session(2, [0, 1], [1, 2], [0, 1], domain=1, each=8),
        small_session(3, [0, 1, 2], [0, 1, 2], [0, 1, 2], domain=2, each=8),
    ]


def fit(method: Method, session: Session, phase: Phase) -> list[dict[str, float]]:
    with Checkpoint(f"{phase.name} {session.index}") as checkpoint:
        return Trainer(method, session, checkpoint, TrainingProgress(1, 1)).fit(phase)


def learn(method: Method, session: Session) -> dict[str, set[str]]:
    """One session from begin to memory; the terms of the loss by phase."""
    method.begin(session)
    terms = {}
    for phase in method.phases(session):
        terms[phase.name] = fit(method, session, phase)[-1].keys() - {"epoch"}
    method.eval()
    features = method.session_features(session)
    method.consolidate(session, features)
    method.exemplars(session, features)
    return terms


# -- composition ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("representation", "classifier"),
    list(product(REPRESENTATIONS, CLASSIFIERS)),
    ids=lambda part: part.__name__,
)
def test_every_representation_learns_with_every_classifier(
    tmp_path: Path, representation: type[Representation], classifier: type[Classifier]
) -> None:
    """Three sessions are learned, each from the files of the one before, and answered for."""
    second_stage = issubclass(classifier, TwoStage)
    options = ["+options.second_stage_epochs=1"] if second_stage else []
    params = small_params(
        "method=replay",
        "~options.prior",
        ROOM,
        "train.epochs=1",
        "memory.strategy=bilevel",
        *options,
    )
    parts = Parts(representation, classifier)
    for session in three_sessions():
        method = parts.make(params, CPU)
        if session.index > 1:
            load_model(method, tmp_path / str(session.index - 1))
        terms = learn(method, session)
        if session.index > 1:
            protects = {LessForget: "less_forget", Geodesic: "geodesic", Expandable: "auxiliary"}
            expected = {protects[representation]} if representation in protects else set()
            assert expected <= terms["train"]
            assert ("distillation" in terms["train"]) == issubclass(
                classifier, VmfMixture | NearestMean | GroupDistilled
            )
            assert ("second stage" in terms) == second_stage
        folder = tmp_path / str(session.index)
        save_model(method, folder)
        images = session.data.images(torch.arange(len(session.data)))
        with torch.no_grad():
            features = method.features_of(images)
            answer = method.answer(features)
        assert method.classifier.scores(features).shape == (len(images), session.n_seen)
        assert features.shape[1] == method.features.dim
        assert int(answer.rows.max()) < session.n_seen
        assert (answer.confidence > 0).all()
        assert (answer.confidence <= 1 + 1e-6).all()
        loaded = parts.make(params, CPU)
        load_model(loaded, folder)
        loaded.eval()
        with torch.no_grad():
            again = loaded.answer(loaded.features_of(images))
        assert all(torch.equal(a, b) for a, b in zip(answer, again, strict=True))


def test_every_file_is_a_method_and_every_other_name_is_one_line() -> None:
    files = {file.stem for file in Path("conf/method").glob("*.yaml")}
    fair = {f"{host}_fair" for host in ("der", "geodl", "ucir")}  # methods with other options
    assert set(known_methods()) == files - fair
    for name in known_methods():
        assert isinstance(parts_of(name), Parts)
    for name in ("parts", "ours", "__init__", "parts.mixture"):
        with pytest.raises(UserError, match=rf"^unknown method '{name}'; known are der, [\w, ]+$"):
            parts_of(name)


@pytest.mark.parametrize("host", ["ucir", "geodl", "der"])
def test_with_ours_is_the_hosts_representation_and_the_mixture_classifier(host: str) -> None:
    assert parts_of(f"{host}_dacr") == Parts(parts_of(host).representation, Ours)


def test_mixtures_on_a_plain_representation_get_the_teacher_that_they_need() -> None:
    """It is the network of the session before, in every session anew."""
    method = Parts(Representation, Ours).make(small_params("method=replay", "~options.prior"), CPU)
    for session in three_sessions():
        with torch.no_grad():
            before = method.features.eval()(whole_batch(session, method).images)
        method.begin(session)
        method.start_epoch(session, 0)
        disturb(method, seed=session.index)
        batch = whole_batch(session, method)
        method.train()
        assert ("distillation" in method.losses(batch)) == (session.index > 1)
        if session.index > 1:
            assert method.representation.old is not None
            torch.testing.assert_close(method.representation.old(batch), before)


@pytest.mark.parametrize("classifier", [Classifier, CosineWithMargin, BalancedLinear])
def test_a_classifier_that_needs_no_teacher_gets_none(classifier: type[Classifier]) -> None:
    method = Parts(Representation, classifier).make(
        small_params("method=replay", "~options.prior"), CPU
    )
    for session in three_sessions():
        method.begin(session)
        assert method.representation.old is None


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("classifier", [NearestMean, GroupDistilled])
def test_the_teacher_of_logits_is_the_network_of_the_session_before(
    representation: type[Representation], classifier: type[Classifier]
) -> None:
    """Also on a representation that has grown by an extractor since."""
    method = Parts(representation, classifier).make(
        small_params("method=replay", "~options.prior", ROOM), CPU
    )
    for session in three_sessions():
        batch = whole_batch(session, method)
        before = logits_of(method, batch)
        method.begin(session)
        disturb(method, seed=session.index)
        assert isinstance(method.classifier, DistilledClassifier)
        teacher = method.classifier.old_logits
        if session.index > 1:
            assert teacher is not None
            torch.testing.assert_close(teacher(batch).double(), before)


@pytest.mark.parametrize("name", known_methods())
def test_teachers_are_neither_trained_nor_stored(name: str, tmp_path: Path) -> None:
    method = make_method(small_params(f"method={name}", ROOM), CPU)
    for session in three_sessions()[:2]:
        method.begin(session)
    groups = method.parameter_groups()
    trained = [id(p) for group in groups for p in group["params"]]
    own = [*method.features.newest.parameters(), *method.head.parameters()]
    extra = (
        method.representation.auxiliary
        if isinstance(method.representation, Expandable)
        else torch.nn.Module()
    )
    assert Counter(trained) == Counter(id(p) for p in [*own, *extra.parameters()])
    save_model(method, tmp_path)
    extractors = len(list((tmp_path / "extractors").iterdir()))
    assert extractors == (2 if isinstance(method.representation, Expandable) else 1)
    lasting = method.classifier.lasting()
    assert all(key.startswith("head.") or "." not in key for key in lasting)
    assert {k for k in lasting if k.startswith("head.")} == {
        f"head.{key}" for key in method.head.state_dict()
    }


# -- teachers -------------------------------------------------------------------------------


@contextmanager
def counted_passes() -> Iterator[Counter[int]]:
    """How many batches went through each extractor, by its identity."""
    passes: Counter[int] = Counter()
    original = Backbone.feature_map

    def feature_map(self: Backbone, x: Tensor) -> Tensor:
        passes[id(self)] += 1
        return original(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backbone, "feature_map", feature_map)
        yield passes


def in_third_session(name: str, *overrides: str) -> tuple[Method, Session]:
    method = make_method(small_params(f"method={name}", ROOM, *overrides), CPU)
    for session in three_sessions():
        method.begin(session)
    return method, session


@pytest.mark.parametrize("augmented", [True, False], ids=["augmented", "plain"])
@pytest.mark.parametrize(
    ("name", "teachers"),
    [
        ("replay", 0),
        ("icarl", 1),
        ("eeil", 1),
        ("ucir", 1),
        ("geodl", 1),
        ("ucir_dacr", 1),
        ("geodl_dacr", 1),
        ("der", 2),
        ("der_dacr", 2),
    ],
)
def test_a_step_asks_every_frozen_network_once(name: str, teachers: int, augmented: bool) -> None:
    """… and not at all where images are the same in every epoch: its answers are kept."""
    kind = [AUGMENTED] if augmented else []
    method, session = in_third_session(name, "loss.lambda=0", "train.epochs=2", *kind)
    steps = 2 * -(-len(session.data) // 8)
    with counted_passes() as passes:
        fit(method, session, next(iter(method.phases(session))))
    assert passes.pop(id(method.features.newest)) == steps
    assert sorted(passes.values()) == ([steps] * teachers if augmented else [])


@pytest.mark.parametrize("augmented", [True, False], ids=["augmented", "plain"])
def test_the_expectation_step_of_der_runs_the_newest_extractor_alone(augmented: bool) -> None:
    """The frozen ones saw the session when it began, each of them once."""
    kind = [AUGMENTED] if augmented else []
    method = make_method(
        small_params("method=der_dacr", "loss.lambda=0.5", "loss.lambda_epochs=1", *kind), CPU
    )
    first, second, third = three_sessions()
    method.begin(first)
    method.begin(second)
    with counted_passes() as passes:
        method.begin(third)
    frozen = [id(extractor) for extractor in method.features.extractors[:-1]]
    assert len(frozen) == 2
    assert passes == Counter([*frozen, id(method.features.newest)])
    for epoch in (1, 2):
        with counted_passes() as passes:
            method.start_epoch(third, epoch)
        assert passes == Counter([id(method.features.newest)])
        with torch.no_grad():
            for parameter in method.features.newest.parameters():
                parameter.add_(0.01)
        features = method.session_features(third)
        whole = method.setting.over_session(third, method.features)
        torch.testing.assert_close(features, method.classifier.view(whole))


# -- the paper as printed, and each departure -------------------------------------------------

PRINTED = {
    "mixture.normalisation": "whole",
    "mixture.initialisation": "mean_perturbed",
    "mixture.prior": "uniform",
    "mixture.candidates": "all",
    "reduction.merged_mean": "features",
    "mixture.inference": "nearest_component",
}
CHOICES = {
    "mixture.normalisation": ("head", departures.HEADS),
    "mixture.initialisation": ("start", departures.STARTS),
    "mixture.prior": ("log_prior", departures.PRIORS),
    "mixture.candidates": ("candidates", departures.CANDIDATES),
    "reduction.merged_mean": ("merged_mean", departures.MERGED_MEANS),
    "mixture.inference": ("scores", departures.SCORES),
}


def overrides(settings: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def test_the_printed_settings_choose_the_printed_functions() -> None:
    reading = reading_of(small_params("method=ucir_dacr", *overrides(PRINTED)))
    for field in fields(Reading):
        assert getattr(reading, field.name) is getattr(Reading(), field.name), field.name


@pytest.mark.parametrize("name", CHOICES)
def test_each_setting_chooses_one_function_and_no_other(name: str) -> None:
    field, functions = CHOICES[name]
    section, key = name.split(".")
    annotation = {"mixture": config.Mixture, "reduction": config.Reduction}[section]
    assert set(functions) == set(get_args(annotation.model_fields[key].annotation))
    assert len(set(functions.values())) == len(functions)
    for value, function in functions.items():
        params = small_params("method=ucir_dacr", *overrides({**PRINTED, name: value}))
        reading = reading_of(params)
        assert getattr(reading, field) is function
        for other in fields(Reading):
            if other.name != field:
                assert getattr(reading, other.name) is getattr(Reading(), other.name)


def test_every_reading_is_a_choice() -> None:
    assert {field for field, _ in CHOICES.values()} == {field.name for field in fields(Reading)}


def test_ours_with_the_printed_settings_is_the_mixture_as_printed() -> None:
    params = small_params("method=ucir_dacr", "loss.lambda_epochs=1", *overrides(PRINTED))
    states = []
    for classifier in (VmfMixture, Ours):
        method = Parts(LessForget, classifier).make(params, CPU)
        for session in three_sessions()[:2]:
            learn(method, session)
        states.append(method.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


# -- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("replay", "temperature"),
        ("ucir", "auxiliary"),
        ("ucir_dacr", "margin"),
        ("geodl_dacr", "nearest"),
        ("der_dacr", "second_stage_epochs"),
        ("der", "lambda_base"),
        ("icarl", "group"),
        ("meta_dr", "form"),
    ],
)
def test_an_option_of_another_part_is_one_line_that_names_it(name: str, option: str) -> None:
    params = small_params(f"method={name}", ROOM, f"+options.{option}=1")
    with pytest.raises(UserError) as told:
        make_method(params, CPU)
    assert str(told.value) == (
        f"params.yaml: options of {name}: unknown parameter {option!r}; "
        "remove it or correct its name"
    )


def test_a_value_out_of_range_is_one_line_that_names_the_option() -> None:
    params = small_params("method=der", "options.auxiliary=-1")
    with pytest.raises(
        UserError, match=r"^params.yaml: options of der: auxiliary: .*\(it is -1\)$"
    ):
        make_method(params, CPU)


def test_options_are_those_of_the_representation_and_of_the_classifier() -> None:
    names = set(type(parts_of("der").options(small_params("method=der"))).model_fields)
    assert names == {
        *Expandable.Options.model_fields,
        *BalancedLinear.Options.model_fields,
        *WarmUpOptions.model_fields,
    }
    params = small_params("method=der", "options.auxiliary=0.5", "options.temperature=2.0")
    options = make_method(params, CPU).options
    assert (options.auxiliary, options.temperature) == (0.5, 2.0)


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_geodl_takes_ucirs_classifier_and_can_leave_out_its_margin(weight: float) -> None:
    assert parts_of("geodl").classifier is parts_of("ucir").classifier
    method, session = in_third_session("geodl", f"options.margin_weight={weight}")
    assert ("margin" in method.losses(whole_batch(session, method))) == bool(weight)


@pytest.mark.parametrize("name", ["geodl", "geodl_dacr"])
def test_the_published_geodesic_loss_is_the_default(name: str) -> None:
    """On a CPU with a smaller weight, which is a fact of the benchmark."""
    for benchmark, weight in (("icifar20", 10.0), ("idigits_mini", 2.0)):
        own = composed(benchmark, "nc", name)["options"]
        assert (own["variant"], own["lambda_base"]) == ("distance", weight)
    options = parts_of(name).options(small_params("method=replay", "~options.prior"))
    assert (options.variant, options.lambda_base) == ("distance", 10.0)


@pytest.mark.parametrize("host", ["der", "ucir", "geodl"])
def test_a_fair_host_is_the_host_with_the_prior_and_without_a_second_stage(host: str) -> None:
    own, fair = small_params(f"method={host}"), small_params(f"method={host}_fair")
    changed = {"prior": "empirical", "second_stage_epochs": 0}
    changed |= {} if host == "der" else {"scale": 10.0}
    assert fair == own.model_copy(update={"options": own.options | changed})
    assert fair.method == host
