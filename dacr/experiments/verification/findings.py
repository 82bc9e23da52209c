"""What a check found, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dacr.runtime.stage import explain


@dataclass
class Report:
    """What was checked, in order: a subject, what was found, and whether that is a fault."""

    lines: list[tuple[str, str, bool]] = field(default_factory=list)

    def add(self, subject: str, faults: list[str], otherwise: str) -> None:
        """One line for each fault; the line ``otherwise`` if there is none."""
        self.lines += [(subject, text, True) for text in faults] or [(subject, otherwise, False)]

    @property
    def ok(self) -> bool:
        return not any(fault for _, _, fault in self.lines)

    def faults_besides(self, subject: str) -> bool:
        return any(fault for own, _, fault in self.lines if own != subject)

    @contextmanager
    def guard(self, subject: str) -> Iterator[None]:
        """Work that fails is a fault: forged files make code fail that is right otherwise."""
        try:
            yield
        except Exception as error:
            reason = explain(error) or f"{type(error).__name__}: {error}"
            self.add(subject, [f"cannot be checked: {' '.join(reason.split())}"], "")
