"""The bounds: what fine-tuning and joint training keep, and that nothing else can keep as much."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from dacr.data.session_table import read_session
from dacr.errors import UserError
from dacr.methods import known_methods, make_method, parts_of
from dacr.methods.joint import NO_LIMIT
from tests.learning import CPU, small_params, small_session
from tests.tiny_pipeline import run, tiny_params

OTHERS = sorted(set(known_methods()) - {"joint"})


def test_joint_keeps_every_image_of_every_session(tmp_path: Path) -> None:
    params = tiny_params("method=joint", "split=ncd")
    run(tmp_path, params)
    seen: set[int] = set()
    for key in params.schedule.sessions:
        table = read_session(tmp_path / f"data/split/session-{key}.csv")
        seen |= set(table.loc[table["part"] == "train", "id"])
        memory = pd.read_csv(tmp_path / f"runs/{key}/state/memory.csv")
        assert memory["id"].is_unique
        assert set(memory["id"]) == seen
        assert not set(memory["id"]) & set(table.loc[table["part"] == "test", "id"])
    assert len(seen) == 40  # the whole training set


def test_fine_tuning_keeps_none(tmp_path: Path) -> None:
    params = tiny_params("method=finetune", "split=ncd")
    run(tmp_path, params)
    for key in params.schedule.sessions:
        assert pd.read_csv(tmp_path / f"runs/{key}/state/memory.csv").empty


def test_joint_trains_a_new_network_in_every_session() -> None:
    """Whatever the network of session t−1 was, session t begins with the same random weights."""

    def begun(disturbance: float) -> dict[str, torch.Tensor]:
        method = make_method(small_params("method=joint"), CPU)
        method.begin(small_session(1, [], [0, 1], []))
        with torch.no_grad():
            for parameter in method.parameters():
                parameter.add_(disturbance)
        method.begin(small_session(2, [0, 1], [1, 2], [0, 1]))
        return {name: tensor.clone() for name, tensor in method.state_dict().items()}

    plain, disturbed = begun(0.0), begun(1.0)
    assert plain.keys() == disturbed.keys()
    assert all(torch.equal(plain[name], disturbed[name]) for name in plain)
    assert plain["classifier.head.weight"].shape[0] == 3


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_method_can_declare_that_it_breaks_the_protocol(name: str) -> None:
    params = small_params(f"method={name}", "memory.size=20", "+options.protocol=broken")
    with pytest.raises(UserError, match="unknown parameter 'protocol'"):
        parts_of(name).options(params)


def test_joint_must_declare_it() -> None:
    with pytest.raises(UserError, match="options of joint: parameter 'protocol' is missing"):
        make_method(small_params("method=joint", "~options.protocol"), CPU)


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("joint", 500, f"memory.size must be {NO_LIMIT}, which is no limit .it is 500"),
        ("joint", 0, f"memory.size must be {NO_LIMIT}"),
        ("finetune", 1, "memory.size must be 0 .it is 1"),
    ],
)
def test_a_memory_of_another_size_is_refused(name: str, size: int, words: str) -> None:
    params = small_params(f"method={name}")
    other = params.model_copy(update={"memory": params.memory.model_copy(update={"size": size})})
    with pytest.raises(UserError, match=words):
        make_method(other, CPU)
