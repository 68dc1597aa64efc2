"""The output folder of a sweep: one record and one executed notebook per point, written whole or not at all."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib import __version__
from lib.sweep.plain import SweepError, one_line
from lib.sweep.specification import Point, Sweep

LIB = Path(__file__).resolve().parents[1]
_OURS = re.compile(r"[0-9a-f]{20}\.(json|ipynb)")  # files of the folder that a point has, and what it leaves if killed
_LEFT = re.compile(r"\..*\.[0-9a-f]{32}\.(tmp|ipynb)")
_FIELDS = {"key", "state", "parameters", "repeat", "numbers", "seconds", "attempts", "device", "error", "versions"}
_FIELDS |= {"notebook"}  # the SHA-256 of what the point executed


class Store:
    """A folder with the records of a sweep's points.

    ``points/KEY.json`` is a point's record and ``points/KEY.ipynb`` its executed notebook. Both are written under
    another name and renamed, the record last: a point with a record is complete, whatever was killed meanwhile. The
    record holds the notebook's SHA-256.

    Parameters
    ----------
    folder
        The folder; :meth:`prepare` makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.points = self.folder / "points"

    def prepare(self) -> None:
        """Make the folder if need be, and see that it can be written to.

        Raises
        ------
        SweepError
            It cannot.
        """
        try:
            self.points.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise self._problem(error) from None
        self.replace(".probe", b"what a full disk refuses").unlink(missing_ok=True)

    def lock(self) -> FileLock:
        """Return a lock held by the process that runs the sweep, freed by the system when that process ends.

        Raises
        ------
        SweepError
            Another process holds it, or the folder cannot be written to.
        """
        self.prepare()
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise SweepError(f"output: another sweep is running in {self.folder}") from None
        except (OSError, NotImplementedError) as error:  # no permission, or a file system without locks
            reason = getattr(error, "strerror", None) or one_line(error)
            raise SweepError(f"output: cannot lock {lock.lock_file}: {reason}") from None
        return lock

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the record of a point, ``None`` if there is none.

        A finished point whose notebook is missing or is not the one that was written with the record has failed.
        """
        try:
            record = json.loads((self.points / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(record, dict) and record.keys() >= _FIELDS and record["key"] == key
        if not whole:
            return None
        if record["state"] == "finished" and _digest(self.points / f"{key}.ipynb") != record["notebook"]:
            error = "its notebook is missing, damaged or changed since it ran"
            record |= {"state": "failed", "numbers": {}, "error": error}
        return record

    def write(self, record: dict[str, Any], notebook: Path | None) -> dict[str, Any]:
        """Store the record of a point, after its notebook if there is one; return it with the notebook's digest.

        Raises
        ------
        SweepError
            The folder cannot be written to.
        """
        target = self.points / f"{record['key']}.ipynb"
        record = record | {"notebook": None if notebook is None else _digest(notebook)}
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        with self._file(self.points / f"{record['key']}.json", text.encode()):
            if notebook is None:
                target.unlink(missing_ok=True)
            else:
                _publish(notebook, target)
        return record

    def temporary(self, key: str, suffix: str = ".tmp") -> Path:
        """Return a name in the folder that nobody else uses."""
        return self.points / f".{key}.{uuid.uuid4().hex}{suffix}"

    def replace(self, name: str, content: bytes) -> Path:
        """Write a file of the folder, whole or not at all; return its path.

        Raises
        ------
        SweepError
            The folder cannot be written to.
        """
        with self._file(self.folder / name, content):
            return self.folder / name

    @contextmanager
    def _file(self, target: Path, content: bytes) -> Iterator[None]:
        """Write a file under another name, and give it its own name at the end; or leave nothing."""
        temporary = self.temporary(target.stem)
        try:
            temporary.write_bytes(content)
            yield
            _publish(temporary, target)
        except OSError as error:
            raise self._problem(error) from None
        finally:
            temporary.unlink(missing_ok=True)

    def _problem(self, error: Exception) -> SweepError:
        reason = getattr(error, "strerror", None) or one_line(error)
        return SweepError(f"output: cannot write to {self.folder}: {reason} (--output names another folder)")

    def sweep_up(self) -> int:
        """Remove what killed processes left behind; return the number of files."""
        return self._remove(path for path in self.points.iterdir() if _LEFT.fullmatch(path.name))

    def forget(self, keep: set[str]) -> int:
        """Remove the records and notebooks of all points but those to keep; return the number of files."""
        ours = (path for path in self.points.iterdir() if _OURS.fullmatch(path.name))
        return self._remove(path for path in ours if path.stem not in keep)

    def _remove(self, paths: Iterable[Path]) -> int:
        found = list(paths)
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)


def _publish(temporary: Path, target: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def point_keys(sweep: Sweep, code: str | None = None) -> dict[str, Point]:
    """Return the points of a sweep by their keys.

    The key is a SHA-256 of the point's parameters and repeat, of the notebook's code, of the code of every module of
    ``lib`` that the notebook imports, directly or not, and of the package's version. Change any of them and the point
    is another one. ``code`` is :func:`code_digest` of the notebook, if it is known.
    """
    code = code or code_digest(sweep.notebook)
    keys = {}
    for point in sweep.points:
        content = [__version__, code, sorted(point.parameters.items()), point.repeat]
        text = json.dumps(content, sort_keys=True)
        keys[hashlib.sha256(text.encode()).hexdigest()[:20]] = point
    return keys


def code_digest(notebook: Path) -> str:
    """Return a SHA-256 of a notebook's code cells and of all modules of ``lib`` that they lead to.

    Raises
    ------
    SweepError
        The notebook cannot be read, or a code cell is not Python.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError) as error:
        raise SweepError(f"notebook: cannot read {notebook.name}: {one_line(error)}") from None
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    digest = hashlib.sha256("\0".join(sources).encode())
    code = "\n".join(TransformerManager().transform_cell(source) for source in sources)
    for path in sorted(_modules(_parse(code, notebook))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _parse(code: str, where: Path) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise SweepError(f"notebook: {where.name} has a cell that is not Python: {error.msg}") from None


def _modules(tree: ast.Module) -> set[Path]:
    """Return the files of all modules of lib that a program imports, directly or not."""
    found: set[Path] = set()
    waiting = _imports(tree)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting |= _imports(_parse(path.read_text(encoding="utf-8"), path)) - found
    return found


def _imports(tree: ast.Module) -> set[Path]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    paths = [LIB.parent.joinpath(*name.split(".")) for name in names if name.split(".")[0] == "lib"]
    files = {path.with_suffix(".py") for path in paths} | {path / "__init__.py" for path in paths}
    return {file for file in files if file.is_file()}
