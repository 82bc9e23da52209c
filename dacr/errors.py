"""The one kind of error that a user can cause and can mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A wrong input. The message is one line: what is wrong, and what to do about it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def naming(subject: object) -> Iterator[None]:
    """Turn an error of the file system into a UserError that begins with the subject."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{subject}: {(error.strerror or str(error)).lower()}") from None
