"""The register of claims, ``book/claims.yml``: what the book promises to show, and the bound each number must meet."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import (
    ConfigDict,
    StrictBool,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from lib import ROOT

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}
SIGNS = {"<=": "≤", "<": "&lt;", ">=": "≥", ">": "&gt;", "==": "="}  # as HTML and Markdown show them
_TEST = re.compile(r"tests/[\w/]+\.py::\w+(::\w+)*(\[.*\])?")
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


@dataclass(frozen=True)
class Check:
    """One comparison of a claim: a number, a relation and a bound.

    ``label`` says what the number is; a formula in it stands between dollars.
    ``tight`` says why the number cannot keep half of the bound free, where it does not.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    relation: Literal["<=", "<", ">=", ">", "=="]
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

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: _Text
    source: _Text
    title: _Text
    statement: _Text
    evidence: _Text
    chapter: _Text
    test: _Text
    beyond_sources: StrictBool = False
    checks: dict[str, Check] = field(default_factory=dict)


_ROW = TypeAdapter(Claim)


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
    return _claims(_text(path))


def load_finished_chapters(path: str | Path | None = None) -> list[str]:
    """Return the names of the chapters all of whose claims must be settled."""
    return list(_read_register(path)["finished_chapters"])


def load_sections(path: str | Path | None = None) -> dict[str, str]:
    """Return the headings of the register's sections by the letters of their claims (empty if it has none)."""
    return dict(_read_register(path).get("sections") or {})


def _read_register(path: str | Path | None) -> dict[str, Any]:
    return _yaml(_text(path))


def _text(path: str | Path | None) -> str:
    file = Path(path) if path is not None else ROOT / "book" / "claims.yml"
    if not file.is_file():
        raise ValueError(f"no register of claims at {file.name}: the package has to be run from the book's checkout")
    return file.read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def _yaml(text: str) -> Any:
    """Read a text once, however often its register is asked for: a build asks hundreds of times."""
    content = yaml.load(text, yaml.CSafeLoader)
    for key in ("finished_chapters", "claims"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise ValueError(f"the register must have a list under the key {key!r}")
    return content


@lru_cache(maxsize=8)
def _claims(text: str) -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    for place, row in enumerate(_yaml(text)["claims"]):
        name = row.get("id", f"number {place}") if isinstance(row, dict) else f"number {place}"
        try:
            checks = {key: {"name": key} | check for key, check in (row.get("checks") or {}).items()}
            claim = _ROW.validate_python(row | {"checks": checks})
        except (AttributeError, TypeError):
            raise ValueError(f"claim {name} must be a mapping of fields, and so must each of its checks") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"claim {name}: {' '.join(map(str, first['loc']))}: {first['msg']}") from None
        if not _TEST.fullmatch(claim.test):
            raise ValueError(f"claim {name}: test must be a node like tests/test_x.py::test_y, got {claim.test!r}")
        for check in claim.checks.values():
            if not math.isfinite(check.bound) or check.label.count("$") % 2:
                raise ValueError(f"claim {name}: {check.name}: the bound must be finite, and formulas between dollars")
        if claim.id in found:
            raise ValueError(f"claim {claim.id}: the id occurs twice")
        found[claim.id] = claim
    return found
