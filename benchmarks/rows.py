"""The table of a benchmark: its lines, and how they are printed, stored and judged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table; ``bar`` is what was promised, if anything, and ``holds`` whether it was kept.

    A time that belongs to a curve names it as ``series``, with the ``size`` at which it was taken.
    """

    section: str
    what: str
    value: float
    unit: str
    bar: str = ""
    holds: bool | None = None
    series: str = ""
    size: float = 0.0

    def __str__(self) -> str:
        verdict = {None: "", True: "kept", False: "MISSED"}[self.holds]
        return f"{self.what:<78} {self.value:>12.4g} {self.unit:<8} {self.bar:>10} {verdict}"


def report(title: str, machine: str, rows: Iterable[Row], target: Path | None) -> int:
    """Print rows as they come, under their sections, store them if wanted, and return 1 if a bar was missed, else 0."""
    print(f"{title} on {machine}")
    seen: list[Row] = []
    for row in rows:
        if not seen or row.section != seen[-1].section:
            print(f"\n{row.section}")
        print(row, flush=True)
        seen.append(row)
    if target:
        target.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in seen]}, indent=1) + "\n")
    return int(any(row.holds is False for row in seen))
