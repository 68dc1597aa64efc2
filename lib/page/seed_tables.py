"""How claims fare at other seeds: the stored sweeps of whole chapters over their parameter ``seed``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.page.claims import RELATIONS, Check, Claim

_PREFIX = "expect: "


@dataclass(frozen=True)
class OtherSeeds:
    """One claim at other seeds.

    Attributes
    ----------
    held, count
        At how many seeds it held, and how many were run.
    worst, control
        For each check the measured value that is hardest on the bound, and the control value that is nearest to
        meeting it, over all seeds.
    """

    held: int
    count: int
    worst: dict[str, float]
    control: dict[str, float]

    def room(self, check: Check) -> bool:
        """Whether the worst value keeps half of the bound free (twice the bound for a lower one).

        A bound of zero, a p-value and an equality have no such half: there it is enough to hold.
        """
        worst, bound = self.worst[check.name], check.bound
        if bound <= 0 or check.relation == "==":
            return check.holds(worst)
        return worst <= bound / 2 if check.relation in ("<", "<=") else worst >= 2 * bound


@dataclass(frozen=True)
class SeedTable:
    """The sweep of one chapter over other seeds: its table, and from ``attrs`` how it was made."""

    chapter: str
    table: Any

    @property
    def provenance(self) -> dict[str, Any]:
        """Commit, date, device, versions and seconds of the sweep."""
        return self.table.attrs

    @property
    def expectations(self) -> dict[str, int]:
        """At how many seeds each expectation of the chapter held."""
        names = [name for name in self.table.columns if name.startswith(_PREFIX)]
        return {name.removeprefix(_PREFIX): int((self.table[name] == 1).sum()) for name in names}


def read_seed_tables(results: Path) -> list[SeedTable]:
    """Return the stored sweeps over seeds, ``CHAPTER/seeds.parquet`` in a folder of results, by chapter."""
    import pandas as pd  # here, so that a notebook's first import stays quick

    return [SeedTable(path.parent.name, pd.read_parquet(path)) for path in sorted(results.glob("*/seeds.parquet"))]


def read_other_seeds(results: Path, claims: dict[str, Claim]) -> dict[str, OtherSeeds]:
    """Return how each claim of the register fared in the stored sweeps; a claim that was not run is left out.

    The numbers are compared with the bounds of the register as it is now.
    """
    found = {}
    for chapter in read_seed_tables(results):
        for name in (column.removesuffix(".holds") for column in chapter.table.columns if column.endswith(".holds")):
            if name in claims and all(f"{name}.{check}.control" in chapter.table for check in claims[name].checks):
                found[name] = _compare(claims[name], chapter.table)
    return found


def _compare(claim: Claim, table: Any) -> OtherSeeds:
    held = np.ones(len(table), dtype=bool)
    worst, control = {}, {}
    for name, check in claim.checks.items():
        measured = table[f"{claim.id}.{name}"].to_numpy(float)
        broken = table[f"{claim.id}.{name}.control"].to_numpy(float)
        meets = RELATIONS[check.relation]
        held &= meets(measured, check.bound) & ~np.isnan(measured) & ~np.isnan(broken) & ~meets(broken, check.bound)
        worst[name], control[name] = check.extreme(measured, hardest=True), check.extreme(broken, hardest=False)
    return OtherSeeds(int(held.sum()), len(table), worst, control)
