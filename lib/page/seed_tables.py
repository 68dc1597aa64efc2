"""How claims fare at other seeds and groups: the stored sweeps of whole chapters over these parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from IPython.display import Markdown

from lib.page.claims import RELATIONS, Check, Claim, load_claims
from lib.page.results import FOLDER, stored

if TYPE_CHECKING:
    import pandas as pd
_PREFIX = "expect: "


@dataclass(frozen=True)
class OtherSeeds:
    """One claim at other seeds."""

    held: int  #: at how many seeds it held
    count: int  #: how many were run
    worst: dict[str, float]  #: for each check the measured value that is hardest on the bound, over all seeds
    control: dict[str, float]  #: for each check the control value that is nearest to meeting it

    def room(self, check: Check) -> bool:
        """Whether the worst value keeps half of the bound free (twice the bound for a lower one).

        A bound of zero or below and an equality have no such half: there it is enough to hold.
        """
        worst, bound = self.worst[check.name], check.bound
        if bound <= 0 or check.relation == "==":
            return check.holds(worst)
        return worst <= bound / 2 if check.relation in ("<", "<=") else worst >= 2 * bound


def read_seed_tables(results: Path, name: str = "seeds") -> dict[str, pd.DataFrame]:
    """Return the stored sweeps of whole chapters, ``CHAPTER/NAME.parquet`` in a folder of results, by chapter.

    The ``attrs`` of a table say how it was made.
    """
    import pandas as pd  # here, so that a notebook's first import stays quick

    return {path.parent.name: pd.read_parquet(path) for path in sorted(results.glob(f"*/{name}.parquet"))}


def held_expectations(table: pd.DataFrame) -> dict[str, int]:
    """Return at how many seeds of a sweep each expectation of the chapter held."""
    names = [name for name in table if name.startswith(_PREFIX)]
    return {name.removeprefix(_PREFIX): int((table[name] == 1).sum()) for name in names}


def read_other_seeds(results: Path, claims: dict[str, Claim], name: str = "seeds") -> dict[str, OtherSeeds]:
    """Return how each claim of the register fared in the stored sweeps of a name; one that was not run is left out.

    The numbers are compared with the bounds of the register as it is now.
    """
    found = {}
    for table in read_seed_tables(results, name).values():
        for claim in claims.values():
            if f"{claim.id}.holds" in table and all(f"{claim.id}.{check}.control" in table for check in claim.checks):
                found[claim.id] = _compare(claim, table)
    return found


def held_elsewhere(chapter: str, folder: Path = FOLDER) -> Markdown:
    """Return a line that says how often all that a chapter claims and expects held in its stored sweep over seeds.

    The sweep is ``CHAPTER/seeds.parquet`` in a folder of results; the book's page *At other seeds* shows every value.

    >>> held_elsewhere("ensembles").data.split(":")[0]
    '**At 10 other seeds**'
    """
    frame = stored(f"{chapter}/seeds", folder=folder)
    found = [_compare(c, frame) for c in load_claims().values() if f"{c.id}.holds" in frame]
    held, kept = sum(other.held == other.count for other in found), held_expectations(frame)
    further = "further expectations" if found else "expectations"
    parts = [f"{held} of {len(found)} claims"] * bool(found)
    parts += [f"{[*kept.values()].count(len(frame))} of {len(kept)} {further}"] * bool(kept)
    missed = "; ".join(f"{name}, held at {times}" for name, times in kept.items() if times < len(frame))
    line = f"**At {len(frame)} other seeds**: {' and '.join(parts)} held every time"
    return Markdown(f"{line} (not always: {missed})." if missed else f"{line}.")


def _compare(claim: Claim, table: pd.DataFrame) -> OtherSeeds:
    held = np.ones(len(table), dtype=bool)
    worst, control = {}, {}
    for name, check in claim.checks.items():
        measured = table[f"{claim.id}.{name}"].to_numpy(float)
        broken = table[f"{claim.id}.{name}.control"].to_numpy(float)
        meets = RELATIONS[check.relation]
        held &= meets(measured, check.bound) & ~np.isnan(measured) & ~np.isnan(broken) & ~meets(broken, check.bound)
        worst[name], control[name] = check.extreme(measured, hardest=True), check.extreme(broken, hardest=False)
    return OtherSeeds(int(held.sum()), len(table), worst, control)
