"""Work that is counted before anything runs, beside real calls of extractors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dacr.experiments.work import Images, Passes, images_of, passes_of, scales, work_of
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.memory import select_memory
from dacr.learning.session import Session
from dacr.learning.training import Trainer, balanced
from dacr.methods import known_methods, parts_of
from dacr.methods.der import Expandable
from dacr.methods.eeil import GroupDistilled
from dacr.methods.geodl import Geodesic
from dacr.methods.icarl import NearestMean
from dacr.methods.parts.departures import Ours
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.second_stage import TwoStage
from dacr.methods.ucir import CosineWithMargin, LessForget
from dacr.model.backbones import Backbone
from dacr.model.flops import activation_bytes, forward_flops, weight_bytes
from dacr.runtime.progress import TrainingProgress
from dacr.sessions.state import load_model, save_model
from tests.learning import CPU, pictures, small_params, small_session

TEST = 7
ROOM = "memory.size=20"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


@contextmanager
def real_passes() -> Iterator[Counter[str]]:
    """How many images went through extractors, with and without gradient."""
    seen: Counter[str] = Counter()
    original = Backbone.feature_map

    def feature_map(self: Backbone, x: Tensor) -> Tensor:
        features = original(self, x)
        seen["trained" if features.requires_grad else "frozen"] += len(x)
        return features

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backbone, "feature_map", feature_map)
        yield seen


def three_sessions() -> list[Session]:
    return [
        small_session(1, [], [0, 1], [], each=8),
        small_session(2, [0, 1], [1, 2], [0, 1], domain=1, each=8),
        small_session(3, [0, 1, 2], [0, 1, 2], [0, 1, 2], domain=2, each=8),
    ]


def run(parts: Parts, session: Session, before: Path, after: Path, params: object) -> None:
    """As the stages do it: learn from the files of session t−1, consolidate from its own."""
    method = parts.make(params, CPU)  # type: ignore[arg-type]
    if session.index > 1:
        load_model(method, before)
    method.begin(session)
    with Checkpoint(f"work {session.index}") as checkpoint:
        trainer = Trainer(method, session, checkpoint, TrainingProgress(1, 1))
        for phase in method.phases(session):
            trainer.fit(phase)
    save_model(method, after)
    method = parts.make(params, CPU)  # type: ignore[arg-type]
    load_model(method, after)
    features = method.session_features(session)
    method.consolidate(session, features)
    method.exemplars(session, features)
    method.eval()
    with torch.no_grad():
        method.features_of(torch.from_numpy(pictures([0] * TEST, [0] * TEST)))
    save_model(method, after)


def compare(parts: Parts, tmp_path: Path, *overrides: str) -> None:
    params = small_params(ROOM, *overrides)
    for session in three_sessions():
        with real_passes() as seen:
            folders = tmp_path / str(session.index - 1), tmp_path / str(session.index)
            run(parts, session, *folders, params)
        labels = session.data.labels
        scale = Scale(
            index=session.index,
            images=len(labels),
            balanced=len(balanced(labels, torch.Generator())),
            test=TEST,
            params=params,
            options=parts.options(params),
            augmented=params.augmentation.name != "none",
        )
        assert passes_of(parts, scale) == Passes(seen["trained"], seen["frozen"]), session.index


AUGMENTATIONS = {
    "none": ["augmentation.name=none"],
    "fresh": ["augmentation.name=crop_flip_jitter"],
    "views": ["augmentation.name=crop_flip_jitter", "augmentation.views=3"],
}


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("name", known_methods())
def test_counted_passes_are_those_of_a_real_run(
    name: str, augmentation: str, tmp_path: Path
) -> None:
    options = ["options.second_stage_epochs=2"] if name == "eeil" else []
    compare(parts_of(name), tmp_path, f"method={name}", *AUGMENTATIONS[augmentation], *options)


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss.lambda=0",),
        ("loss.lambda_epochs=0",),
        ("train.epochs=3", "loss.lambda_epochs=1"),
        ("augmentation.name=crop_flip_jitter", "loss.lambda=0"),
    ],
)
def test_the_expectation_step_counts_where_lambda_is_positive(
    overrides: tuple[str, ...], tmp_path: Path
) -> None:
    compare(parts_of("der_dacr"), tmp_path, "method=der_dacr", *overrides)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_a_warm_up_is_part_of_the_epochs(augmentation: str, tmp_path: Path) -> None:
    options = "options.warmup_epochs=1", *AUGMENTATIONS[augmentation]
    compare(parts_of("der"), tmp_path, "method=der", *options)


@pytest.mark.parametrize("name", ["der", "eeil", "ucir"])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_no_second_stage_costs_nothing(name: str, augmentation: str, tmp_path: Path) -> None:
    none = "options.second_stage_epochs=0", *AUGMENTATIONS[augmentation]
    compare(parts_of(name), tmp_path, f"method={name}", *none)


@pytest.mark.parametrize(
    ("representation", "classifier", "augmentation"),
    [
        (*both, own)
        for both, own in product(
            [
                (Representation, Ours),
                (LessForget, NearestMean),
                (Geodesic, GroupDistilled),
                (Expandable, CosineWithMargin),
                (Expandable, NearestMean),
            ],
            AUGMENTATIONS,
        )
    ],
)
def test_parts_that_no_method_joins_add_up_too(
    representation: type[Representation],
    classifier: type,
    augmentation: str,
    tmp_path: Path,
) -> None:
    second = ["+options.second_stage_epochs=1"] if issubclass(classifier, TwoStage) else []
    options = "method=replay", "~options.prior", *AUGMENTATIONS[augmentation], *second
    compare(Parts(representation, classifier), tmp_path, *options)


# -- sessions and images ----------------------------------------------------------------------


def test_sessions_have_the_images_and_the_memory_that_they_will_have() -> None:
    """Class 9 has fewer images than places in the memory."""
    params = small_params("method=replay", "split=ncd", "memory.size=45")
    pairs = {(c, z): 2 if c == 9 else 6 for c in range(10) for z in range(4)}
    found = list(scales(params, Images(pairs, dict.fromkeys(pairs, 3))))
    assert len(found) == 10
    assert [own.test for own in found] == [12 * t for t in range(1, 11)]
    from dacr.data.splits import make_schedule

    schedule = make_schedule(params.schedule, [str(c) for c in range(10)], params.data.domains)
    memory = torch.empty(0, dtype=torch.long)
    for own in found:
        old = len(memory)
        rows = schedule[schedule["session"] == own.index]
        brought = zip(rows["class"].tolist(), rows["domain"].tolist(), strict=True)
        labels = torch.cat([memory, *(torch.full((pairs[p],), p[0]) for p in brought)])
        assert own.images == len(labels)
        assert own.balanced == len(balanced(labels, torch.Generator()))
        seen, compact = labels.unique(return_inverse=True)
        chosen = select_memory(
            params.memory, compact, torch.arange(len(labels)) < old, len(seen),
            features=torch.zeros(len(labels), 2), components=None, generator=torch.Generator(),
        )  # fmt: skip
        memory = labels[chosen]


@pytest.mark.parametrize(
    ("benchmark", "train", "test"),
    [("icifar20", 50000, 10000), ("idigits", 218257, 55585), ("idomainnet", 132673, None)],
)
def test_the_papers_benchmarks_have_their_published_sizes(
    benchmark: str, train: int, test: int | None
) -> None:
    from dacr.experiments.plan import Experiment, parameters_of

    data = parameters_of(Experiment(benchmark, "nd", "der", 1, ())).data
    images = images_of(data, [])
    assert len(images.train) == data.classes * len(data.domains)
    assert sum(images.train.values()) == pytest.approx(train, rel=2e-3)
    if test:
        assert sum(images.test.values()) == pytest.approx(test, rel=2e-3)
    if benchmark == "idomainnet":  # quickdraw has more than clipart, as in the whole of DomainNet
        assert images.train[0, 3] > 3 * images.train[0, 0]


# -- networks ---------------------------------------------------------------------------------


def test_flops_follow_from_passes() -> None:
    params = small_params("method=replay", "train.epochs=2", "memory.size=0")
    pairs = {(c, z): 5 for c in range(10) for z in range(4)}
    work = work_of(params, Images(pairs, dict.fromkeys(pairs, 1)))
    passes = 3 * 2 * 200 + 200 + (10 + 20 + 30 + 40)
    assert work.flops == passes * forward_flops("tiny", 8)
    assert work.disk == 5 * weight_bytes("tiny")


def test_activations_are_what_autograd_keeps() -> None:
    """The inputs of all convolutions and batch norms; ReLUs work in place."""
    kept = activation_bytes("resnet18_32", 32)
    assert kept == pytest.approx(4.7e6, rel=0.02)
    assert activation_bytes("resnet18_32", 64) == pytest.approx(4 * kept, rel=0.01)
    assert weight_bytes("resnet18_32") == pytest.approx(44.8e6, rel=0.01)
