"""Evidence for the book's claims: a measured number, the bound it must meet, and a control that must fail.

``book/claims.yml`` says what is to be shown. :func:`settle` compares measurements with it, shows a small panel in a
notebook and stores the record there; the ledger page of the book is made from these records and from nothing else.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.page.claims import Check, Claim, load_claims
from lib.page.records import as_values, panel_html, summary

MIME_TYPE = "application/vnd.symmetry-book.evidence+json"


class ClaimFailed(AssertionError):
    """A claim's bound was missed, or its broken-symmetry control met the bound."""


@dataclass(frozen=True)
class Outcome:
    """The values of one check, measured and control."""

    check: Check
    measured: np.ndarray
    control: np.ndarray

    @property
    def worst(self) -> float:
        """The measured value that is farthest from meeting the bound (NaN if any value is NaN)."""
        return self.check.extreme(self.measured, hardest=True)

    @property
    def best_control(self) -> float:
        """The control value that comes closest to meeting the bound."""
        return self.check.extreme(self.control, hardest=False)

    @property
    def measured_holds(self) -> bool:
        """Whether every measured value meets the bound."""
        return all(self.check.holds(v) for v in self.measured)

    @property
    def control_fails(self) -> bool:
        """Whether every control value was computed and misses the bound."""
        return not (np.isnan(self.control).any() or any(self.check.holds(v) for v in self.control))

    def report(self) -> str:
        """Return the numbers in one line."""
        met = f"{'meets' if self.measured_holds else 'MISSES'} {self.check.relation} {self.check.bound:g}"
        broken = "fails, as it must" if self.control_fails else "PASSES, so the check shows nothing"
        broken = "was not computed, so it shows nothing" if np.isnan(self.control).any() else broken
        measured = f"  {self.check.name}: measured (worst of {self.measured.size}) {self.worst:.6g} {met}"
        return f"{measured}; control (closest) {self.best_control:.6g} {broken}"


@dataclass(frozen=True)
class Evidence:
    """All checks of one claim with what is needed to repeat them."""

    claim: Claim
    outcomes: dict[str, Outcome]
    seeds: int | list[int] | None
    device: str
    dtype: str
    function: str
    tables: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every measurement meets its bound and every control misses it."""
        return all(o.measured_holds and o.control_fails for o in self.outcomes.values())

    def content(self) -> dict[str, Any]:
        """Return the JSON record that a notebook stores; floats keep three significant digits."""
        outcomes = self.outcomes
        return {
            "id": self.claim.id,
            "holds": self.holds,
            "measured": {name: summary(o.check, o.measured, o.worst) for name, o in outcomes.items()},
            "bound": {name: o.check.bound for name, o in outcomes.items()},
            "relation": {name: o.check.relation for name, o in outcomes.items()},
            "control": {name: summary(o.check, o.control, o.best_control) for name, o in outcomes.items()},
            "seeds": self.seeds,
            "device": self.device,
            "dtype": self.dtype,
            "function": self.function,
            "tables": list(self.tables),
        }

    def text(self) -> str:
        """Return one line without raw numbers, the same on every machine where the claim holds."""
        if self.holds:
            one = len(self.outcomes) == 1
            ending = "holds; the broken control fails" if one else "hold; the broken controls fail"
            return f"{self.claim.id} settled: {', '.join(self.outcomes)} {ending}"
        bad = [name for name, o in self.outcomes.items() if not (o.measured_holds and o.control_fails)]
        return f"{self.claim.id} not settled: see {', '.join(bad)}"

    def report(self) -> str:
        """Return the numbers of every check, one line each."""
        return "\n".join(outcome.report() for outcome in self.outcomes.values())


def evaluate(
    claim_id: str,
    checks: Mapping[str, tuple[Any, Any]],
    *,
    of: Any,
    seeds: int | Iterable[int] | None = None,
    tables: Iterable[str] = (),
    claims: Mapping[str, Claim] | None = None,
) -> Evidence:
    """Compare measurements and controls with a claim's bounds; arguments as in :func:`settle`."""
    register = load_claims() if claims is None else claims
    if claim_id not in register:
        raise ValueError(f"claim_id must be one of {sorted(register)}, got {claim_id!r}")
    claim = register[claim_id]
    if not claim.checks or checks.keys() != claim.checks.keys():
        raise ValueError(f"claim {claim_id} must be given its checks {list(claim.checks)}, got {list(checks)}")
    outcomes = {}
    for name, check in claim.checks.items():
        if not isinstance(pair := checks[name], tuple) or len(pair) != 2:
            raise ValueError(f"{name} must be a pair (measured, control), got {type(pair).__name__}")
        sides = (f"{side}[{name!r}] of claim {claim_id}" for side in ("measured", "control"))
        outcomes[name] = Outcome(check, *map(as_values, sides, pair))
    measured = [pair[0] for pair in checks.values()]
    parts = of if isinstance(of, tuple) else (of,)
    places = [place for thing in [p for p in parts if not _is_function(p)] or measured for place in _places(thing)]
    dtype, device = (_names(names) for names in zip(*places, strict=True)) if places else ("", "")
    if seeds is None:
        number = _pandas_seeds(measured)
    else:
        number = [int(seed) for seed in seeds] if isinstance(seeds, Iterable) else int(seeds)
    return Evidence(claim, outcomes, number, device or "cpu", dtype or "float64", _function(parts), tuple(tables))


def settle(
    claim_id: str,
    *,
    of: Any,
    seeds: int | Iterable[int] | None = None,
    tables: Iterable[str] = (),
    claims: Mapping[str, Claim] | None = None,
    **checks: tuple[Any, Any],
) -> None:
    """Show whether a claim holds: in a notebook, display a panel and store the record.

    A claim that does not hold shows a red panel, is recorded as such, and the notebook goes on: breaking claims is what
    a reader is invited to do, and a sweep maps where they hold. Only where :func:`is_strict` says so it raises
    :class:`ClaimFailed`. The test stands in the register.

    As in ``settle("H3", dimension_gap=(gaps, wrong_group), of=(fixed_space, basis))``: for every check of the claim a
    pair of what was measured and of the broken control, each a number, or several (one per seed or case). The *worst*
    measured value has to meet the bound; *every* control value, taken where the symmetry is broken, has to miss it.

    ``of`` is what the numbers were computed by, and from: a function, or a tuple of it with tensors or modules, whose
    dtype and device are recorded; without these, those of the measured values. ``seeds`` is the number of seeds, or the
    seeds; by default the distinct values of ``seed`` in the index of pandas objects among the measured values.
    ``tables`` are the stored ones (``CHAPTER/RUN``) that some of the numbers come from, ``claims`` the register.
    """
    evidence = evaluate(claim_id, checks, of=of, seeds=seeds, tables=tables, claims=claims)
    if not evidence.holds and is_strict():
        raise ClaimFailed(f"{evidence.text()}\n{evidence.report()}")
    record = evidence.content()
    display_data({"text/plain": evidence.text(), "text/html": panel_html(evidence.claim, record), MIME_TYPE: record})


def is_strict() -> bool:
    """Whether a claim that does not hold raises.

    It does outside of notebooks, and where ``SYMMETRY_STRICT=1``, as in the tests and where the stored outputs of the
    book are made. In JupyterLab and in sweeps it does not.
    """
    from IPython import get_ipython

    return os.environ.get("SYMMETRY_STRICT") == "1" or get_ipython() is None


def display_data(bundle: dict[str, Any]) -> None:
    """Display representations by MIME type; outside a notebook nothing happens."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        display(bundle, raw=True)


def _is_function(part: Any) -> bool:
    """Whether a part of ``of`` computes (a function or a class); a module with parameters is what was computed from."""
    return isinstance(part, str) or (callable(part) and not hasattr(part, "parameters"))


def _function(parts: Iterable[Any]) -> str:
    """Return the dotted name of the first function, or ``#name`` for one that the notebook itself defines."""
    part = next((part for part in parts if _is_function(part)), None)
    if part is None:
        raise ValueError("of must name the function that computes the number, alone or in a tuple with tensors")
    name = part if isinstance(part, str) else f"{part.__module__}.{part.__qualname__}"
    if name.startswith("__main__."):
        return f"#{name.removeprefix('__main__.')}"
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        raise ValueError(f"of must name a function that can be imported, got {name!r}") from None
    return name


def _places(thing: Any) -> list[tuple[str, str]]:
    """Return dtype and device of a tensor, an array, a module, or each member of a list, tuple or mapping of them."""
    if callable(getattr(thing, "parameters", None)):
        return [place for parameter in thing.parameters() for place in _places(parameter)]
    if isinstance(thing, Mapping):
        return [place for part in thing.values() for place in _places(part)]
    if isinstance(thing, (list, tuple)):
        return [place for part in thing for place in _places(part)]
    if hasattr(thing, "dtypes") and hasattr(thing, "to_numpy"):  # pandas: what was computed came to the CPU
        return [(str(kind), "cpu") for kind in np.atleast_1d(np.asarray(thing.dtypes, dtype=object))]
    if hasattr(thing, "dtype"):
        return [(str(thing.dtype).removeprefix("torch."), str(getattr(thing, "device", "cpu")))]
    return []


def _names(found: Iterable[str]) -> str:
    """Return the distinct names that were found (of dtypes: only those of real numbers)."""
    return ", ".join(sorted({name for name in found if not name.startswith(("int", "bool", "object"))}))


def _pandas_seeds(values: Iterable[Any]) -> int | None:
    """Return how many different seeds the index of pandas objects names."""
    found: set[Any] = set()
    for value in values:
        if "seed" in getattr(getattr(value, "index", None), "names", ()):
            found |= set(value.index.get_level_values("seed"))
    return len(found) or None
