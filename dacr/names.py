"""Names of classes and domains in one Unicode form.

One file system writes ``é`` as a letter, another as ``e`` and an accent: two names that look the
same are the same.
"""

from __future__ import annotations

from unicodedata import normalize


def one_form(name: str) -> str:
    """The name in normalisation form C; a plain one is unchanged."""
    return normalize("NFC", name)
