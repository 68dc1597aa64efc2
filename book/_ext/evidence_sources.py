"""What stands behind a panel beside its function and test: stored numbers and the runs that made them, and its bound.

Which stored tables a claim rests on is read from the notebook's code: a name depends on a table if what is assigned to
it calls ``stored`` or uses a name that does.
"""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from lib.page.ledger import BoundDates, bound_dates

_CLAIM = re.compile(r"\b[A-Z]+\d+\b")


def tables_by_claim(cells: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the tables (``CHAPTER/RUN``, perhaps with ``*``) on which the numbers of each claim of a page rest."""
    texts: dict[str, str] = {}  # constants, as in stored(f"{CHAPTER}/rates")
    known: dict[str, set[str]] = {}  # the tables on which a name depends
    found: dict[str, set[str]] = {}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("%"):
            continue
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
                texts |= {getattr(target, "id", ""): str(statement.value.value) for target in statement.targets}
            tables = set(_stored(statement, texts))
            for name in _names(statement, ast.Load):
                tables |= known.get(name, set())
            for name in _assigned(statement):
                known[name] = tables  # with its own old ones, where the statement uses it too
            for claim in _settled(statement):
                found.setdefault(claim, set()).update(tables)
    return found


def sources(notebook: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return, for every claim of a page, the scale of its numbers, their runs and the day of its bound."""
    dates, runs = _dates(root / "book" / "claims.yml"), _runs(root / "data" / "results")
    notes = {}
    for claim, tables in tables_by_claim(notebook["cells"]).items():
        used = sorted({run for name, run in runs.items() if any(fnmatch.fnmatch(name, table) for table in tables)})
        links = ", ".join(f"{{doc}}`/{run}`" for run in used)
        scale = f"full, with numbers stored by {links}" if used else "the page's own, computed above"
        since = max((day, commit) for (name, _), (commit, day) in dates.items() if name == claim) if dates else None
        bound = f" Bound: unchanged since {since[0]} ({{commit}}`{since[1]}`)." if since else ""
        bound = " Bound: since when cannot be said, the history is not here." if dates is None else bound
        notes[claim] = f"Scale: {scale}.{bound}"
    return notes


@cache
def _dates(register: Path) -> BoundDates | None:
    return bound_dates(register)


@cache
def _runs(results: Path) -> dict[str, str]:
    """Return the run of every stored table."""
    found = {}
    for path in results.glob("*/*.parquet"):
        facts = json.loads(pq.read_schema(path).metadata[b"PANDAS_ATTRS"])
        run = yaml.load(facts["specification"], yaml.CSafeLoader)["notebook"]
        if run.startswith("runs/"):  # not a chapter at other seeds
            found[path.relative_to(results).with_suffix("").as_posix()] = run
    return found


def _stored(statement: ast.stmt, texts: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "stored" and node.args:
            name = node.args[0]
            parts = name.values if isinstance(name, ast.JoinedStr) else [name]
            yield "".join(_text(part, texts) for part in parts)


def _text(part: ast.expr, texts: Mapping[str, str]) -> str:
    part = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(part, ast.Constant):
        return str(part.value)
    return texts.get(getattr(part, "id", ""), "*")


def _names(statement: ast.stmt, context: type) -> set[str]:
    """Return the names that a statement uses (``Load``) or binds (``Store``), without those of an inner scope."""
    nodes = list(ast.walk(statement))
    scopes: list[ast.AST] = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    scopes += statement.body if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
    inside = (node for scope in scopes for node in ast.walk(scope) if isinstance(node, ast.Name))
    local = {node.id for node in inside if isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    if context is ast.Load:  # bound by the loop, whatever it was before
        targets = (node.target for node in nodes if isinstance(node, ast.For))
        local |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)} - local


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, and those of which it sets an item or calls a method."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    parts = [n.value for n in ast.walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    calls = [n.value.func for n in ast.walk(statement) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    parts += [function.value for function in calls if isinstance(function, ast.Attribute)]
    return _names(statement, ast.Store) | {part.id for part in parts if isinstance(part, ast.Name)}


def _settled(statement: ast.stmt) -> Iterator[str]:
    """Yield the claims that a statement settles; in a loop, those that it names."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "settle" and node.args:
            texts = [part.value for part in ast.walk(statement) if isinstance(part, ast.Constant)]
            first = node.args[0]
            yield from [first.value] if isinstance(first, ast.Constant) else _CLAIM.findall(" ".join(map(str, texts)))
