"""How claims fare at other seeds and groups: the stored sweeps of whole chapters over these parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lib.page.claims import RELATIONS, Check, Claim, load_claims
from lib.page.figures import show, style
from lib.page.results import FOLDER, stored

if TYPE_CHECKING:
    import pandas as pd
_PREFIX = "expect: "
_RIM = 1e3  # of the figure: ratios beyond it, and all that has none, stand on its edge


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


def seeds_figure(chapter: str, folder: Path = FOLDER) -> None:
    """Show every check of a chapter's claims at the seeds of its stored sweep, each value as a multiple of its bound.

    A row per check, on a logarithmic axis where 1 is the bound: measured values must stand left of it, controls right,
    whatever the relation. A check whose bound is zero has no ratio: it shows on the edge whether it held. The sweep is
    ``CHAPTER/seeds.parquet`` in a folder of results.

    Examples
    --------
    ``seeds_figure("groups_and_haar_measure")``
    """
    import matplotlib.pyplot as plt  # here, as in figures

    frame = stored(f"{chapter}/seeds", folder=folder)
    checks = {f"{c.id}.{check.name}": check for c in load_claims().values() for check in c.checks.values()}
    rows = [name for name in checks if f"{name}.control" in frame][::-1]
    if not rows:
        raise ValueError(f"chapter must have claims of the register in its sweep over seeds, got {chapter!r}")
    jitter = np.linspace(-0.2, 0.2, len(frame)) if len(frame) > 1 else np.zeros(1)
    with style():
        fig, ax = plt.subplots(figsize=(6.4, 0.8 + 0.27 * len(rows)))
        for column, colour, label in (("", "C0", "measured"), (".control", "C1", "broken control")):
            ratios = [[_share(checks[row], v) for v in frame[row + column].to_numpy(float)] for row in rows]
            x, y = np.clip(ratios, 1 / _RIM, _RIM), np.arange(len(rows))[:, None] + jitter
            ax.plot(x.ravel(), y.ravel(), "o", color=colour, markersize=3.5, label=label, clip_on=False)
        ax.axvline(1, color="gray", linewidth=1)
        ax.set(xscale="log", xlim=(1 / _RIM, _RIM), yticks=range(len(rows)), yticklabels=rows)
        ax.set_xlabel("multiple of the bound (left of 1: met)")
        fig.legend(loc="outside upper center", ncols=2, fontsize=9)
    held = list(held_expectations(frame).values())
    show(
        fig,
        label=f"fig-seeds-{chapter.replace('_', '-')}",
        caption=f"""The page at {len(frame)} other seeds: the worst value of every check and the control nearest to
        passing, as multiples of the bound; what is beyond the frame, or has a bound of zero, stands on its edge. Of
        {len(held)} further expectations {held.count(len(frame))} held at every seed. Made at
        commit {frame.attrs["commit"][:7]} on {frame.attrs["date"]}.""",
        alt="""One row of dots per check on a logarithmic axis. Dots of measured values stand left of a line at one,
        dots of broken controls right of it.""",
    )


def _share(check: Check, value: float) -> float:
    """Return the ratio of a value and its bound that is at most one where the check holds; 0 or inf without one."""
    lower = check.relation in (">", ">=")
    if check.relation == "==" or not value * check.bound > 0:
        return 0.0 if check.holds(value) else np.inf
    return value / check.bound if lower == (check.bound < 0) else check.bound / value


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
