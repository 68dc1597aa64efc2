"""The register of claims, ``book/claims.yml``: what the book promises to show, and the bound each number must meet."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lib import ROOT

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}
SIGNS = {"<=": "≤", "<": "&lt;", ">=": "≥", ">": "&gt;", "==": "="}  # as HTML and Markdown show them
_TEXT_FIELDS = ("id", "source", "title", "statement", "evidence", "chapter", "test")
_TEST_ID = re.compile(r"tests/[\w/]+\.py::\w+(::\w+)*(\[.*\])?")


@dataclass(frozen=True)
class Check:
    """One comparison of a claim: a number, a relation and a bound.

    ``label`` says what the number is; a formula in it stands between dollars.
    ``tight`` says why the number cannot keep half of the bound free, where it does not.
    """

    name: str
    relation: str
    bound: float
    label: str
    tight: str = ""

    def holds(self, value: float) -> bool:
        """Whether ``value`` satisfies the relation; NaN never does."""
        return bool(RELATIONS[self.relation](value, self.bound)) and not math.isnan(value)

    def extreme(self, values: np.ndarray, hardest: bool) -> float:
        """Return the value that is hardest (or easiest) on the check; NaN if any value is."""
        if np.isnan(values).any():
            return math.nan
        size = {"<": values, "<=": values, ">": -values, ">=": -values, "==": np.abs(values - self.bound)}
        order = size[self.relation]
        return float(values[np.argmax(order) if hardest else np.argmin(order)])


@dataclass(frozen=True)
class Claim:
    """One row of ``book/claims.yml``."""

    id: str
    source: str
    title: str
    statement: str
    evidence: str
    chapter: str
    test: str
    beyond_sources: bool
    checks: dict[str, Check]


def load_claims(path: str | Path | None = None) -> dict[str, Claim]:
    """Read the register of claims.

    Parameters
    ----------
    path
        A YAML file; by default the book's own ``book/claims.yml``.

    Raises
    ------
    ValueError
        A row lacks a field, has a field of the wrong kind, or repeats an id; the message names row and field.
    """
    rows = _read_register(path)["claims"]
    claims = [_parse_claim(row, place) for place, row in enumerate(rows)]
    seen: dict[str, Claim] = {}
    for claim in claims:
        if claim.id in seen:
            raise ValueError(f"claim {claim.id}: the id occurs twice")
        seen[claim.id] = claim
    return seen


def load_finished_chapters(path: str | Path | None = None) -> list[str]:
    """Return the names of the chapters all of whose claims must be settled."""
    return list(_read_register(path)["finished_chapters"])


def load_sections(path: str | Path | None = None) -> dict[str, str]:
    """Return the headings of the register's sections by the letters of their claims (empty if it has none)."""
    return dict(_read_register(path).get("sections") or {})


def _read_register(path: str | Path | None) -> dict[str, Any]:
    file = Path(path) if path is not None else ROOT / "book" / "claims.yml"
    if not file.is_file():
        raise ValueError(f"no register of claims at {file.name}: the package has to be run from the book's checkout")
    content = _yaml(file.read_text(encoding="utf-8"))
    for key in ("finished_chapters", "claims"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise ValueError(f"{file.name} must have a list under the key {key!r}")
    return content


@lru_cache(maxsize=8)
def _yaml(text: str) -> Any:
    """Read a text once, however often its register is asked for: a build asks hundreds of times."""
    return yaml.load(text, yaml.CSafeLoader)


def _parse_claim(row: Any, place: int) -> Claim:
    if not isinstance(row, dict):
        raise ValueError(f"claim number {place} must be a mapping, got {type(row).__name__}")
    name = row.get("id", f"number {place}")
    for field in _TEXT_FIELDS:
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise ValueError(f"claim {name}: field {field!r} must be a non-empty text, got {row.get(field)!r}")
    if not _TEST_ID.fullmatch(row["test"].strip()):
        raise ValueError(f"claim {name}: field 'test' must be a node like tests/test_x.py::test_y, got {row['test']!r}")
    beyond = row.get("beyond_sources", False)
    if not isinstance(beyond, bool):
        raise ValueError(f"claim {name}: field 'beyond_sources' must be true or false, got {beyond!r}")
    unknown = set(row) - set(_TEXT_FIELDS) - {"beyond_sources", "checks"}
    if unknown:
        raise ValueError(f"claim {name}: unknown field {sorted(map(str, unknown))[0]!r}")
    checks = row.get("checks") or {}
    if not isinstance(checks, dict):
        raise ValueError(f"claim {name}: field 'checks' must be a mapping, got {type(checks).__name__}")
    parsed = {key: _parse_check(name, key, value) for key, value in checks.items()}
    return Claim(**{f: row[f].strip() for f in _TEXT_FIELDS}, beyond_sources=beyond, checks=parsed)


def _parse_check(claim: str, name: Any, row: Any) -> Check:
    where = f"claim {claim}: check {name!r}"
    if not isinstance(row, dict) or set(row) - {"tight"} != {"relation", "bound", "label"}:
        raise ValueError(f"{where} must have the fields relation, bound and label, and tight if need be, got {row!r}")
    if row["relation"] not in RELATIONS:
        raise ValueError(f"{where}: field 'relation' must be one of {list(RELATIONS)}, got {row['relation']!r}")
    try:
        bound = float(row["bound"])  # YAML reads 1e-12 as text
    except (TypeError, ValueError):
        raise ValueError(f"{where}: field 'bound' must be a number, got {row['bound']!r}") from None
    if not math.isfinite(bound) or isinstance(row["bound"], bool):
        raise ValueError(f"{where}: field 'bound' must be a finite number, got {row['bound']!r}")
    label = str(row["label"])
    if label.count("$") % 2:
        raise ValueError(f"{where}: field 'label' must have its formulas between dollars, got an odd number: {label!r}")
    return Check(str(name), row["relation"], bound, label, str(row.get("tight", "")))
