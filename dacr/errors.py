"""The one kind of error that a user can cause and can mend."""


class UserError(Exception):
    """A wrong input. The message is one line: what is wrong, and what to do about it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
