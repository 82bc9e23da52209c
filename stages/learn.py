"""``learn@t``: expansion and training on D_t ∪ M_t, starting from session t−1."""

from dacr.stage import run_stage, session_argument


def main() -> None:
    from dacr.config import load_params
    from dacr.portable import fix_instructions

    params = load_params()
    fix_instructions(params.train.portable)
    from dacr.learning.learn import learn

    learn(params, session_argument(params))


if __name__ == "__main__":
    run_stage(main)
