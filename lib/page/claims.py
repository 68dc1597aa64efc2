"""The register of claims, ``book/claims.yml``: what the book promises to show, and the bound each number must meet."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import ConfigDict, StrictBool, StringConstraints, TypeAdapter

from lib import ROOT

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}
SIGNS = {"<=": "≤", "<": "&lt;", ">=": "≥", ">": "&gt;", "==": "="}  # as HTML and Markdown show them
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_TEST = re.compile(r"tests/[\w/]+\.py::\w+(::\w+)*(\[.*\])?")


@dataclass(frozen=True)
class Check:
    """One comparison of a claim: a number, a relation and a bound.

    The label says what the number is; a formula in it stands between dollars. ``tight`` says why the number cannot keep
    half of the bound free, where it does not.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    relation: Literal["<=", "<", ">=", ">", "=="]
    bound: float
    label: str
    tight: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.bound) or self.label.count("$") % 2:
            raise ValueError("the bound must be finite, and formulas between dollars")

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

    def __post_init__(self) -> None:
        if not _TEST.fullmatch(self.test):
            raise ValueError("test must be a node like tests/test_x.py::test_y")

    @property
    def to_rounding(self) -> bool:
        """Whether this is an identity, which holds up to rounding errors, and not an effect that was measured."""
        checks = self.checks.values()
        small = all(c.relation in ("<=", "==") and c.bound <= 1e-6 for c in checks)
        return small and any(c.bound > 0 for c in checks)  # zero alone bounds a count


@dataclass(frozen=True)
class Register:
    """The content of ``book/claims.yml``."""

    claims: dict[str, Claim]  #: by their ids
    finished_chapters: list[str]  #: all of whose claims must be settled
    sections: dict[str, str] = field(default_factory=dict)  #: headings by the letters of their claims


_REGISTER = TypeAdapter(Register)


def load_register(path: str | Path | None = None) -> Register:
    """Read a register, by default the book's own; ValueError names the field of a row that is not as it must be."""
    file = Path(path) if path is not None else ROOT / "book" / "claims.yml"
    if not file.is_file():
        raise ValueError(f"no register of claims at {file.name}: the package has to be run from the book's checkout")
    return _read(file.read_text(encoding="utf-8"))


def load_claims(path: str | Path | None = None) -> dict[str, Claim]:
    """Return the claims of a register, by default the book's own, by their ids."""
    return load_register(path).claims


@lru_cache(maxsize=8)
def _read(text: str) -> Register:
    """Read a text once, however often its register is asked for: a build asks hundreds of times."""
    content = yaml.load(text, yaml.CSafeLoader)
    rows = {}
    for row in content["claims"]:
        if row["id"] in rows:
            raise ValueError(f"claim {row['id']}: the id occurs twice")
        checks = {name: {"name": name} | check for name, check in (row.get("checks") or {}).items()}
        rows[row["id"]] = row | {"checks": checks}
    return _REGISTER.validate_python(content | {"claims": rows})
