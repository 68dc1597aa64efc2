"""A line of a benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table; ``bar`` is what was promised, if anything, and ``holds`` whether it was kept."""

    section: str
    what: str
    value: float
    unit: str
    bar: str = ""
    holds: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "kept", False: "MISSED"}[self.holds]
        return f"{self.what:<78} {self.value:>12.4g} {self.unit:<8} {self.bar:>10} {verdict}"
