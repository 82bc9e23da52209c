"""``start``: the state before the first session, from which the chain of sessions begins."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.runtime.portable import training_params

    params = training_params()
    import torch

    from dacr.methods import make_method
    from dacr.sessions.state import write_start

    # Random weights are drawn on the CPU on every machine, so that all of them start alike.
    write_start(make_method(params, torch.device("cpu")), Path("runs/00"))


if __name__ == "__main__":
    run_stage(main, "start")
