"""``learn@t``: expansion and training on D_t ∪ M_t, starting from session t−1."""

from dacr.runtime.stage import run_stage, session_argument


def main() -> None:
    from dacr.runtime.portable import training_params

    params = training_params()
    from dacr.sessions.learn import learn

    learn(params, session_argument(params))


if __name__ == "__main__":
    run_stage(main, "learn")
