"""The notebook of a sweep: where it is, which typed parameters it has, and how papermill is told about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from lib import ROOT
from lib.page.parameters import unknown
from lib.sweep.plain import SweepError, one_line

BOOK = ROOT / "book"
TYPES = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}


def find_notebook(name: str, folder: Path) -> Path:
    """Return the path of a chapter (``NAME``) or a run (``runs/NAME``), or of a notebook relative to ``folder``.

    Raises
    ------
    SweepError
        There is no such notebook.
    """
    pages = [*sorted(BOOK.glob("*.ipynb")), *sorted(BOOK.glob("runs/*.ipynb"))]
    known = {path.relative_to(BOOK).with_suffix("").as_posix(): path for path in pages}
    path = known.get(name) or (folder / name)
    try:
        found = path.suffix == ".ipynb" and path.is_file()
    except OSError:  # a name that is too long, a folder that may not be read
        found = False
    if not found:
        raise SweepError(f"notebook: {unknown('.ipynb file, chapter or run', name, known)}")
    return path.resolve()


def read_parameters(notebook: Path) -> dict[str, TypeAdapter | None]:
    """Return the parameters of a notebook's ``parameters`` cell with validators of their types.

    A parameter without a type, or with one that YAML or papermill cannot hold, has ``None``.

    Raises
    ------
    SweepError
        The notebook cannot be read.
    """
    with quick_import():
        from papermill import inspect_notebook

    try:
        found = inspect_notebook(braces(notebook))
    except Exception as error:  # papermill raises whatever its reader does
        raise SweepError(f"notebook: cannot read {notebook.name}: {one_line(error)}") from None
    return {name: _adapter(entry["inferred_type_name"]) for name, entry in found.items()}


def _adapter(annotation: str) -> TypeAdapter | None:
    try:
        kind = eval(annotation, {"__builtins__": {}}, TYPES | {"Literal": Literal})
        return None if kind is None else TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))
    except Exception:  # whatever stands there, it is no type made of these
        return None


def braces(path: Path) -> str:
    """Return a path for papermill, which reads what stands in braces as a parameter."""
    return str(path).replace("{", "{{").replace("}", "}}")


@contextmanager
def quick_import() -> Iterator[None]:
    """Import papermill in less time: without a grammar of addresses that jsonschema takes a second to build.

    Nothing here has such an address to check.
    """
    grammar = "rfc3987_syntax"
    known = grammar in sys.modules
    if not known:
        sys.modules[grammar] = None  # type: ignore[assignment]  # as if it were not installed, which is allowed
    try:
        yield
    finally:
        if not known:
            del sys.modules[grammar]
