"""Evidence for the book's claims: a measured number, the bound it must meet, and a control that must fail.

``book/claims.yml`` says what is to be shown. :func:`settle` compares measurements with it, shows a small panel in a
notebook and stores the record there; the ledger page of the book is made from these records and from nothing else.
"""

from __future__ import annotations

import math
import os
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from lib.page.claims import SIGNS, Check, Claim, load_claims, load_finished_chapters

MIME_TYPE = "application/vnd.symmetry-book.evidence+json"
_TEST_ID = re.compile(r"tests/[\w/]+\.py::\w+(::\w+)*(\[.*\])?")


__all__ = [
    "MIME_TYPE",
    "ClaimFailed",
    "Evidence",
    "Outcome",
    "as_values",
    "evaluate",
    "is_strict",
    "load_claims",
    "load_finished_chapters",
    "panel_html",
    "record_holds",
    "round_number",
    "settle",
    "show",
]


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


@dataclass(frozen=True)
class Evidence:
    """All checks of one claim with what is needed to repeat them."""

    claim: Claim
    outcomes: dict[str, Outcome]
    seeds: int | list[int]
    seconds: float | None
    device: str
    dtype: str
    function: str
    test: str

    @property
    def holds(self) -> bool:
        """Whether every measurement meets its bound and every control misses it."""
        return all(o.measured_holds and o.control_fails for o in self.outcomes.values())

    def record(self) -> dict[str, Any]:
        """Return the JSON record that a notebook stores; floats keep three significant digits."""
        outcomes = self.outcomes
        return {
            "id": self.claim.id,
            "holds": self.holds,
            "measured": {name: _summary(o.check, o.measured, o.worst) for name, o in outcomes.items()},
            "bound": {name: o.check.bound for name, o in outcomes.items()},
            "relation": {name: o.check.relation for name, o in outcomes.items()},
            "control": {name: _summary(o.check, o.control, o.best_control) for name, o in outcomes.items()},
            "seeds": self.seeds,
            "seconds": None if self.seconds is None else round_number(self.seconds),
            "device": self.device,
            "dtype": self.dtype,
            "function": self.function,
            "test": self.test,
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
        return "\n".join(_report_line(o) for o in self.outcomes.values())

    def html(self) -> str:
        """Return the panel shown under a theorem, made from :meth:`record` alone."""
        return panel_html(self.claim, self.record())


def record_holds(claim: Claim, content: Mapping[str, Any]) -> bool:
    """Whether a stored record settles its claim: its numbers, compared with the register's present checks and bounds.

    The flag ``holds`` of the record has to agree, but is not believed.
    """
    bounds = {name: check.bound for name, check in claim.checks.items()}
    relations = {name: check.relation for name, check in claim.checks.items()}
    if content.get("bound") != bounds or content.get("relation") != relations or content.get("holds") is not True:
        return False
    measured, control = content.get("measured", {}), content.get("control", {})
    if not measured.keys() == control.keys() == bounds.keys():
        return False
    met = all(check.holds(float(measured[name]["worst"])) for name, check in claim.checks.items())
    broken = [(check, float(control[name]["worst"])) for name, check in claim.checks.items()]
    return met and not any(math.isnan(value) or check.holds(value) for check, value in broken)


def panel_html(claim: Claim, content: Mapping[str, Any]) -> str:
    """Return the panel of a record (neutral colours: it inherits the page's theme)."""
    rows = "".join(_html_row(check, content) for check in claim.checks.values())
    state, word = ("settled", "settled") if content["holds"] else ("failed", "not settled")
    head = "".join(f"<th style='{_CELL}'>{h}</th>" for h in ("check", "measured (worst)", "bound", "broken control"))
    return (
        f"<div class='evidence evidence-{state}' style='border-left:3px solid currentColor;padding:.3em .8em;"
        "margin:.5em 0;overflow-x:auto'>"
        f"<div class='evidence-title'><strong>{escape(claim.id)} {word}</strong>"
        f" &middot; {escape(claim.title)}</div><table class='evidence-table' style='border-collapse:collapse'>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<div class='evidence-foot' style='font-size:.85em'>{escape(_run(content))}"
        f"<span class='evidence-where'>; {escape(content['function'])}; {escape(content['test'])}</span></div></div>"
    )


def _run(content: Mapping[str, Any]) -> str:
    number = content["seeds"] if isinstance(content["seeds"], int) else len(content["seeds"])
    time = "" if content["seconds"] is None else f", {content['seconds']:.2g} s"
    return f"{number} seed{'' if number == 1 else 's'}, {content['dtype']} on {content['device']}{time}"


_CELL = "text-align:left;padding:.15em .8em .15em 0"


def evaluate(
    claim_id: str,
    measured: Mapping[str, Any],
    control: Mapping[str, Any],
    *,
    seeds: int | Iterable[int],
    function: Callable[..., Any] | str,
    test: str,
    seconds: float | None = None,
    device: Any = "cpu",
    dtype: Any = "float64",
    claims: Mapping[str, Claim] | None = None,
) -> Evidence:
    """Compare measurements and controls with a claim's bounds.

    Parameters
    ----------
    claim_id
        The claim's id in the register.
    measured, control
        For every check of the claim a number, or several (one per seed or case). The *worst* measured value has to
        meet the bound; *every* control value, taken where the symmetry is broken, has to miss it.
    seeds
        The number of seeds, or the seeds.
    function
        The function that computes the number, or its dotted name.
    test
        The pytest node behind it, as ``"tests/test_haar.py::test_projection"``.
    seconds, device, dtype
        How long the measurement took, and on what.
    claims
        The register; by default the book's.

    Raises
    ------
    ValueError
        An unknown claim; a check that is missing, unknown, empty or not real.
    """
    register = load_claims() if claims is None else claims
    if claim_id not in register:
        raise ValueError(f"claim_id must be one of {sorted(register)}, got {claim_id!r}")
    claim = register[claim_id]
    if not claim.checks:
        raise ValueError(f"claim {claim_id} has no checks in the register, so nothing can settle it")
    measured_values = _match(claim, "measured", measured)
    control_values = _match(claim, "control", control)
    outcomes = {n: Outcome(c, measured_values[n], control_values[n]) for n, c in claim.checks.items()}
    device_name, dtype_name = str(device), str(dtype).removeprefix("torch.")
    return Evidence(claim, outcomes, _seeds(seeds), seconds, device_name, dtype_name, _dotted(function), _test_id(test))


def settle(
    claim_id: str,
    measured: Mapping[str, Any],
    control: Mapping[str, Any],
    *,
    seeds: int | Iterable[int],
    function: Callable[..., Any] | str,
    test: str,
    seconds: float | None = None,
    device: Any = "cpu",
    dtype: Any = "float64",
    claims: Mapping[str, Claim] | None = None,
) -> None:
    """Show whether a claim holds: in a notebook, display a panel and store the record.

    The arguments are those of :func:`evaluate`. A claim that does not hold shows a red panel, is recorded as such, and
    the notebook goes on: breaking claims is what a reader is invited to do, and a sweep maps where they hold.

    Raises
    ------
    ClaimFailed
        A bound is missed, or a control meets it or is NaN; only where :func:`is_strict` says so.
    ValueError
        As in :func:`evaluate`.
    """
    evidence = evaluate(
        claim_id,
        measured,
        control,
        seeds=seeds,
        function=function,
        test=test,
        seconds=seconds,
        device=device,
        dtype=dtype,
        claims=claims,
    )
    if not evidence.holds and is_strict():
        raise ClaimFailed(f"{evidence.text()}\n{evidence.report()}")
    show({"text/plain": evidence.text(), "text/html": evidence.html(), MIME_TYPE: evidence.record()})


def is_strict() -> bool:
    """Whether a claim that does not hold raises.

    It does outside of notebooks, and where ``SYMMETRY_STRICT=1``, as in the tests and where the stored outputs of the
    book are made. In JupyterLab and in sweeps it does not.
    """
    from IPython import get_ipython

    return os.environ.get("SYMMETRY_STRICT") == "1" or get_ipython() is None


def show(bundle: dict[str, Any]) -> None:
    """Display representations by MIME type; outside a notebook nothing happens."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        display(bundle, raw=True)


def _match(claim: Claim, side: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{side} must map check names to numbers, got {type(given).__name__}")
    for names, problem in ((set(claim.checks) - set(given), "lacks"), (set(given) - set(claim.checks), "has unknown")):
        if names:
            raise ValueError(
                f"{side} of claim {claim.id} {problem} {sorted(names)}; the checks are {list(claim.checks)}"
            )
    return {name: as_values(f"{side}[{name!r}] of claim {claim.id}", given[name]) for name in claim.checks}


def as_values(where: str, given: Any) -> np.ndarray:
    """Return real numbers as a float64 array of one dimension; ``where`` names them in the error otherwise."""
    if hasattr(given, "detach"):  # a torch tensor, on any device
        given = given.detach().cpu().numpy()
    elif isinstance(given, Iterable) and not isinstance(given, (str, np.ndarray)):
        given = [v.item() if hasattr(v, "item") else v for v in given]
    array = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{where} must be real numbers, got {array.dtype} values")
    if array.size == 0:
        raise ValueError(f"{where} is empty: at least one number is needed")
    return array.astype(float).ravel()


def _summary(check: Check, values: np.ndarray, worst: float) -> dict[str, Any]:
    """Return worst, median and spread (largest minus smallest) of the values."""
    spread = float(values.max() - values.min()) if np.isfinite(values).all() else math.nan
    return {
        "worst": round_number(worst, check.holds),
        "median": round_number(float(np.median(values))),
        "spread": round_number(spread),
        "count": int(values.size),
    }


def round_number(value: float, verdict: Callable[[float], bool] = bool) -> float | int | str:
    """Round to three significant digits, or not at all if that would change a verdict on the value.

    Whole numbers stay whole; infinities and NaN become text (JSON has none).
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    short = float(f"{value:.3g}")
    return short if verdict(short) == verdict(value) else value


def _report_line(outcome: Outcome) -> str:
    check = outcome.check
    met = "meets" if outcome.measured_holds else "MISSES"
    broken = "fails, as it must" if outcome.control_fails else "PASSES, so the check shows nothing"
    broken = "was not computed, so it shows nothing" if np.isnan(outcome.control).any() else broken
    return (
        f"  {check.name}: measured (worst of {outcome.measured.size}) {outcome.worst:.6g} {met} "
        f"{check.relation} {check.bound:g}; control (closest) {outcome.best_control:.6g} {broken}"
    )


def _html_row(check: Check, content: Mapping[str, Any]) -> str:
    measured, control = (float(content[side][check.name]["worst"]) for side in ("measured", "control"))
    bound = f"{SIGNS[check.relation]} {check.bound:g}"
    cells = (escape(check.label), f"{measured:.3g}", bound, f"{control:.3g}")
    return "<tr>" + "".join(f"<td style='{_CELL}'>{cell}</td>" for cell in cells) + "</tr>"


def _seeds(seeds: int | Iterable[int]) -> int | list[int]:
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        several = [int(seed) for seed in seeds]
        if not several:
            raise ValueError("seeds must not be empty")
        return several
    from lib.checks import check_int  # only here: it needs torch, which the workers of a sweep can do without

    return check_int("seeds", seeds)


def _dotted(function: Callable[..., Any] | str) -> str:
    name = f"{function.__module__}.{function.__qualname__}" if callable(function) else str(function)
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        raise ValueError(f"function must be importable by its dotted name, got {name!r}") from None
    return name


def _test_id(test: str) -> str:
    if not isinstance(test, str) or not _TEST_ID.fullmatch(test):
        raise ValueError(f"test must be a pytest node such as 'tests/test_haar.py::test_x', got {test!r}")
    return test
