"""The parameters of a notebook: which values they may take, and none that the notebook does not have.

The cell after the one tagged ``parameters`` calls :func:`check_parameters` with the limits, as literals: a kernel
checks them before any work is done, and ``python -m lib.sweep plan`` reads them without running anything. After a
refusal nothing is left on which a later cell could run: not the parameters, not what an earlier run computed.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, get_origin

Limit = tuple[float, float | None] | list[Any] | None
_KINDS = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}
_OF_THE_KERNEL = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open"})
_IMPORTED = "_names_before_the_parameters"  # in a notebook's namespace: what stood there when they were first checked


class BadParameter(ValueError):
    """A parameter that the notebook refuses; a notebook shows the message alone, without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [str(self)]


def check_parameters(namespace: dict[str, Any], **limits: Limit) -> None:
    """Refuse a parameter that is out of its limits, has another type, or is none of the notebook.

    Names are compared with those of the ``parameters`` cell and of the cell that papermill puts after it, as IPython
    remembers them; what else the namespace, ``globals()`` of the notebook, holds does not matter. A refusal takes the
    parameters out of it, and whatever the first check did not find there. Every parameter, which is annotated, has a
    pair (lowest, highest), where a highest of ``None`` means no limit; a list of the values that are allowed; or
    ``None`` if all are.

    >>> check_parameters({"__annotations__": {"seeds": int}, "seeds": 3}, seeds=(1, 100))
    """
    kinds = namespace.get("__annotations__", {})
    imported = namespace.setdefault(_IMPORTED, frozenset(namespace) - set(kinds))
    try:
        for name in (*kinds, *_assigned(namespace.get("In", ()), set(limits))):
            if name not in limits:
                raise ValueError(unknown("parameter", name, limits))
        if missing := set(limits) - set(kinds):
            raise TypeError(f"limits must be given for the parameters {list(kinds)}, got one for {sorted(missing)}")
        for name, kind in kinds.items():
            check_value(name, namespace[name], limits[name], kind)
    except (TypeError, ValueError) as error:
        kinds.clear()  # the parameters' cell will write them anew
        for name in [n for n in namespace if n not in imported and not n.startswith("_") and n not in _OF_THE_KERNEL]:
            del namespace[name]
        raise error if isinstance(error, TypeError) else BadParameter(str(error)) from None


def _assigned(history: Sequence[str], parameters: set[str]) -> Iterator[str]:
    """Yield the names that the parameters' cell and one injected after it assign, from a kernel's last inputs."""
    for source in reversed(history[-3:-1]):  # the last one is the cell that checks
        try:
            targets = [
                target
                for node in ast.parse(source).body
                if isinstance(node, (ast.Assign, ast.AnnAssign))
                for target in getattr(node, "targets", None) or [node.target]
            ]
        except SyntaxError:  # a magic command
            return
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        annotates = parameters <= set(names)
        if annotates or source.startswith("# Parameters"):  # so papermill begins its cell
            yield from names
        if annotates or not source.startswith("# Parameters"):
            return


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is none of the known ones, with the nearest of them."""
    near = difflib.get_close_matches(name, known := list(known), 1)
    return f"there is no {kind} {name[:80]!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {known}")


def check_value(name: str, value: Any, limit: Limit, kind: Any = None) -> None:
    """Raise ``ValueError`` unless a parameter's value has its type, or the name of one, and lies within its limits."""
    kind = _KINDS.get(kind.partition("[")[0]) if isinstance(kind, str) else get_origin(kind) or kind
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = not isinstance(kind, type) or kind is UnionType or (number if kind is float else type(value) is kind)
    if isinstance(limit, tuple):
        low, high = limit
        allowed = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        inside = number and low <= value <= (float("inf") if high is None else high) and value < float("inf")
    else:
        allowed = f"one of {limit}" if limit else "a value"
        inside = limit is None or value in limit
    if not (fits and inside):
        of = f" of type {kind.__name__}" if isinstance(kind, type) else ""
        raise ValueError(f"{name} must be {allowed}{of}, got {value!r}")


def read_limits(notebook: Path) -> dict[str, Limit]:
    """Return the limits, literals, that a notebook gives to :func:`check_parameters`, if it does; nothing is run."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for node in (node for text in sources if "check_parameters(" in text for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check_parameters":
            try:
                return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
            except ValueError:
                raise ValueError(f"{notebook.name}: the limits of parameters must be literals") from None
    return {}


def independent_seeds(seed: int, count: int) -> list[int]:
    """Return ``count`` seeds of a chapter whose parameter is ``seed``; two chapters' seeds never share one.

    Seed 0 gives 0, 1, 2, …, seed 1 gives 1000, 1001, …

    >>> independent_seeds(2, 3)
    [2000, 2001, 2002]
    """
    check_value("count", count, (1, 1000))
    check_value("seed", seed, (0, None))
    return [1000 * seed + k for k in range(count)]
