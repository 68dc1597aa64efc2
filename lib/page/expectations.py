"""Expectations: what a chapter says about its numbers beside the claims, checked where it is said.

An ``assert`` that depends on chance stops a reader who changes a seed. :func:`expect` states the same as a sentence, a
number, a relation and a bound; it raises where the book is built and tested, and elsewhere says what did not come out
and goes on.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from lib.page.claims import RELATIONS
from lib.page.evidence import ClaimFailed, display_data, is_strict
from lib.page.records import as_values, round_number

MIME_TYPE = "application/vnd.symmetry-book.expectation+json"
_WORST = {"<": np.max, "<=": np.max, ">": np.min, ">=": np.min}


def expect(what: str, measured: Any, relation: str, bound: float | tuple[float, float]) -> None:
    """Show that numbers are what the text says, or raise; for a reader, show that they are not and go on.

    What is expected is one sentence, unique in its notebook: ``"training lowers the rank, end over start"``. Every
    measured number has to meet the bound, by ``"<"``, ``"<="``, ``">"``, ``">="``, ``"=="``, or ``"within"`` a pair,
    whose ends count as inside. One that misses it raises where :func:`lib.page.evidence.is_strict` says so.

    >>> expect("half of the draws are even", 0.49, "within", (0.45, 0.55))
    """
    ends = as_values("bound", bound)
    content = _record(what, as_values("measured", measured), relation, ends.tolist())
    if not content["holds"] and is_strict():
        raise ClaimFailed(f"not as expected: {_line(content)}")
    sign = "as expected" if content["holds"] else "NOT as expected"
    display_data({"text/plain": f"{sign}: {what}", "text/html": expectation_html(content), MIME_TYPE: content})


def expectation_holds(content: dict[str, Any]) -> bool:
    """Whether the numbers of a record meet its bound, as it says itself."""
    return content["holds"] is True and _meets(content["worst"], content["relation"], content["bound"])


def expectation_html(content: dict[str, Any]) -> str:
    """Return the line of a record that a page shows."""
    if content["holds"]:
        return f"<div class='expectation expectation-met'>✓ {escape(_line(content))}</div>"
    style = "color:#d1492e;font-weight:bold"  # legible on white and on black, where the book's style sheet is absent
    return (
        f"<div class='expectation expectation-missed' style='{style}'>✗ not as expected: {escape(_line(content))}</div>"
    )


def _record(what: str, values: np.ndarray, relation: str, bound: list[float]) -> dict[str, Any]:
    """Return the record: the values nearest to missing the bound (both ends for ``==`` and ``within``)."""
    worst = [_WORST[relation](values)] if relation in _WORST else sorted({values.min(), values.max()})
    holds = _meets(values, relation, bound)
    numbers = [round_number(v, lambda x: _meets([x], relation, bound)) for v in worst]
    record = {"what": what, "relation": relation, "bound": bound, "worst": numbers}
    return record | {"count": int(values.size), "holds": holds}


def _meets(values: Any, relation: str, bound: list[float]) -> bool:
    values = np.asarray(values, dtype=float)
    if relation == "within":
        return bool(((values >= bound[0]) & (values <= bound[1])).all())
    return bool(RELATIONS[relation](values, bound[0]).all()) and not np.isnan(values).any()


def _line(content: dict[str, Any]) -> str:
    sign = {"<=": "≤", ">=": "≥", "==": "=", "within": "in"}.get(content["relation"], content["relation"])
    bound = "{:g}".format(*content["bound"]) if len(content["bound"]) == 1 else "[{:g}, {:g}]".format(*content["bound"])
    shown = " … ".join(f"{float(v):.3g}" for v in content["worst"])
    several = f" (the worst of {content['count']})" if content["count"] > 1 and len(content["worst"]) == 1 else ""
    return f"{content['what']}: {shown}{several} {sign} {bound}"
