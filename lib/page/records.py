"""Stored records of evidence: whether one settles its claim, and the panel that is made from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from lib.page.claims import SIGNS, Check, Claim

_CELL = "text-align:left;padding:.15em .8em .15em 0"
# Where the book's style sheet is absent (JupyterLab, Colab, exported notebooks); legible on white and on black.
_COLOURS = {"settled": "#0f8766", "failed": "#d1492e"}


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
    """Return the panel of a record, with the colours of its state; what misses its bound is marked."""
    rows = "".join(_html_row(check, content) for check in claim.checks.values())
    state, word = ("settled", "settled") if content["holds"] else ("failed", "not settled")
    head = "".join(f"<th style='{_CELL}'>{h}</th>" for h in ("check", "measured (worst)", "bound", "broken control"))
    return (
        f"<div class='evidence evidence-{state}' style='border-left:3px solid {_COLOURS[state]};padding:.3em .8em;"
        "margin:.5em 0;overflow-x:auto'>"
        f"<div class='evidence-title'><strong style='color:{_COLOURS[state]}'>{escape(claim.id)} {word}</strong>"
        f" &middot; {escape(claim.title)}</div><table class='evidence-table' style='border-collapse:collapse'>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<div class='evidence-foot' style='font-size:.85em'>{escape(facts(content))}"
        f"<span class='evidence-where'>; {escape(content['function'])}; {escape(claim.test)}</span></div></div>"
    )


def label_html(label: str) -> str:
    r"""Return a check's label as HTML, what stands between dollars as a formula that MathJax typesets.

    >>> print(label_html("largest entry of $A - B$, R & C"))
    largest entry of <span class="math notranslate nohighlight">\(A - B\)</span>, R &amp; C
    """
    parts = escape(label).split("$")
    parts[1::2] = [f'<span class="math notranslate nohighlight">\\({part}\\)</span>' for part in parts[1::2]]
    return "".join(parts)


def facts(content: Mapping[str, Any]) -> str:
    """Return what a record says of its measurement: how many seeds or values, what precision, where."""
    number, what = content["seeds"], "seed"
    if number is None:
        number, what = max(side["count"] for side in content["measured"].values()), "value"
    elif not isinstance(number, int):
        number = len(number)
    return f"{number} {what}{'' if number == 1 else 's'}, {content['dtype']} on {content['device']}"


def as_values(where: str, given: Any) -> np.ndarray:
    """Return real numbers as a float64 array of one dimension; ``where`` names them in the error otherwise."""
    if isinstance(given, Mapping) or hasattr(given, "columns"):  # iterated, these give their keys
        raise ValueError(f"{where} must be real numbers, got a {type(given).__name__}: hand over its values")
    if hasattr(given, "detach"):  # a torch tensor, on any device
        given = given.detach().cpu().numpy()
    elif isinstance(given, Iterable) and not isinstance(given, (str, np.ndarray)):
        given = [v.item() if hasattr(v, "item") else v for v in given]
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(f"{where} must have one length in every row") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{where} must be real numbers, got {array.dtype} values")
    if array.size == 0:
        raise ValueError(f"{where} is empty: at least one number is needed")
    return array.astype(float).ravel()


def summary(check: Check, values: np.ndarray, worst: float) -> dict[str, Any]:
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


def _html_row(check: Check, content: Mapping[str, Any]) -> str:
    measured, control = (float(content[side][check.name]["worst"]) for side in ("measured", "control"))
    wrong = (not check.holds(measured), math.isnan(control) or check.holds(control))
    marked = f"<span style='color:{_COLOURS['failed']};font-weight:bold'>✗ "
    worst, closest = (
        f"{marked}{value:.3g}</span>" if bad else f"{value:.3g}"
        for value, bad in zip((measured, control), wrong, strict=True)
    )
    cells = (label_html(check.label), worst, f"{SIGNS[check.relation]} {check.bound:g}", closest)
    return "<tr>" + "".join(f"<td style='{_CELL}'>{cell}</td>" for cell in cells) + "</tr>"
