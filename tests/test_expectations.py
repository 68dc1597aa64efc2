"""Expectations: a number that is not what the text says is found, in the tests by an error, elsewhere by a red line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from lib.page.evidence import ClaimFailed
from lib.page.expectations import MIME_TYPE, expect, expectation_holds, expectation_html


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: found.append(bundle))
    return found


CASES = [
    (1, "<", 2, 2),
    ([1, 2], "<=", 2, [1, 2.5]),
    (torch.tensor([3.0, 4.0]), ">", 2, torch.tensor([3.0, 2.0])),
    (np.array([2]), ">=", 2, np.array([1])),
    ([5, 5], "==", 5, [5, 6]),
    ([1, 2], "within", (1, 2), [0.5, 1.5]),
    (0, "within", (-1, 1), math.nan),
    (0, "<", 1, [0, math.nan]),
]


@pytest.mark.parametrize(("good", "relation", "bound", "bad"), CASES)
def test_relations(good: Any, relation: str, bound: Any, bad: Any, shown: list, monkeypatch: Any) -> None:
    expect("good", good, relation, bound)
    with pytest.raises(ClaimFailed, match="not as expected: bad"):
        expect("bad", bad, relation, bound)
    monkeypatch.setenv("SYMMETRY_STRICT", "0")
    expect("bad", bad, relation, bound)
    assert [bundle["text/plain"] for bundle in shown] == ["as expected: good", "NOT as expected: bad"]
    records = [bundle[MIME_TYPE] for bundle in shown]
    assert [record["holds"] for record in records] == [expectation_holds(r) for r in records] == [True, False]
    assert all(expectation_html(r) == bundle["text/html"] for r, bundle in zip(records, shown, strict=True))


def test_the_line_names_the_worst_value(shown: list) -> None:
    expect("falls & falls", [0.1, 0.69999], "<", 0.7)
    assert shown[0][MIME_TYPE]["worst"] == [0.69999]  # rounding would have changed the verdict
    assert "falls &amp; falls: 0.7 (the worst of 2) &lt; 0.7" in shown[0]["text/html"]
    expect("ratio", [0.912, 1.1], "within", (0.5, 2))
    assert "ratio: 0.912 … 1.1 in [0.5, 2]" in shown[1]["text/html"]


@pytest.mark.parametrize(
    ("what", "measured", "relation", "bound", "message"),
    [
        ("x", [], "<", 1, "empty"),
        ("x", "1", "<", 1, "real numbers"),
    ],
)
def test_bad_input(what: str, measured: Any, relation: str, bound: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expect(what, measured, relation, bound)
