"""``start``: the state before the first session, from which the chain of sessions begins."""

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.runtime.portable import training_params

    params = training_params()
    import torch

    from dacr.methods import make_method
    from dacr.sessions.start import start

    # Random weights are drawn on the CPU on every machine, so that all of them start alike.
    start(make_method(params, torch.device("cpu")))


if __name__ == "__main__":
    run_stage(main, "start")
