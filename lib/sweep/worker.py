"""One point of a sweep: execute its notebook with papermill and store what it recorded."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lib import __version__
from lib.page import results
from lib.sweep.notebook import braces, quick_import
from lib.sweep.plain import SweepError, one_line
from lib.sweep.specification import Point
from lib.sweep.store import Store, code_digest

_VERSIONS = ("torch", "numpy")
_STARTS = 3
_CHANGED = (
    "notebook: it or a module that it imports has changed since the sweep began; what had finished is kept, "
    "and the same command begins anew with the present code"
)


@dataclass(frozen=True)
class Task:
    """All that a worker needs to know about a point.

    Attributes
    ----------
    limit
        Seconds allowed from the first cell to the last, or ``None``.
    retries
        How often a failed execution is repeated.
    gpu
        Whether each worker has a GPU of its own, the one with the worker's number; ``False`` means the CPU unless
        ``SYMMETRY_DEVICE`` says otherwise; ``None`` leaves the device to the worker's environment.
    code
        The digest of the code that the key stands for.
    """

    key: str
    point: Point
    notebook: Path
    folder: Path
    limit: float | None = None
    retries: int = 0
    gpu: bool | None = None
    code: str | None = None


def execute_point(task: Task) -> dict[str, Any]:
    """Execute a point that has not been finished yet, and return its record; an error is part of the record.

    Raises
    ------
    SweepError
        The code is no longer what the key stands for, or the folder cannot be written to. No record is left.
    """
    store = Store(task.folder)
    record = store.read(task.key)
    if record is not None and record["state"] == "finished":
        return record
    _prepare(task)
    output = store.temporary(task.key, ".ipynb")
    try:
        for attempt in range(1, task.retries + 2):
            output.unlink(missing_ok=True)
            record = {"key": task.key, "parameters": task.point.parameters, "repeat": task.point.repeat}
            record |= _attempt(task, output) | {"attempts": attempt}
            if task.code is not None and code_digest(task.notebook) != task.code:
                raise SweepError(_CHANGED)
            if record["state"] == "finished":
                break
        return store.write(record, output if output.exists() else None)
    finally:
        output.unlink(missing_ok=True)


def _attempt(task: Task, output: Path) -> dict[str, Any]:
    """Execute the notebook once; return state, error, numbers, seconds, device and versions."""
    with quick_import():
        from papermill.exceptions import PapermillExecutionError

    start = time.monotonic()
    error, numbers = None, {}
    try:
        notebook = _execute(task, output)
        numbers = read_results(notebook)
    except PapermillExecutionError as problem:
        error = f"cell {problem.exec_count}: {problem.ename}: {_line(problem.evalue)}"
    except Exception as problem:  # a dead kernel, a time limit, a full disk: whatever it is, it belongs to the record
        error = _explain(problem, task)
    seconds = round(time.monotonic() - start, 3)
    state = "failed" if error else "finished"
    return {"state": state, "error": error, "numbers": numbers, "seconds": seconds} | _circumstances()


def _execute(task: Task, output: Path) -> Any:
    """Execute the notebook; begin again if the kernel dies before its first word, as it does when a port is lost.

    A kernel's ports are chosen first and bound later, and another program may take one in between.
    """
    with quick_import():
        from papermill import execute_notebook

    from lib.page.notebooks import own_kernel_manager

    deadline, manager = _deadline(task.limit), own_kernel_manager()
    for starts_left in reversed(range(_STARTS)):
        try:
            return execute_notebook(
                braces(task.notebook),
                braces(output),
                task.point.parameters,
                cwd=str(task.notebook.parent),
                progress_bar=False,
                kernel_manager_class=manager,
                timeout_func=deadline,
            )
        except RuntimeError as problem:
            if not starts_left or "kernel_info" not in str(problem):
                raise


def read_results(notebook: Any) -> dict[str, Any]:
    """Return everything that a notebook recorded, as JSON may hold it: numbers (NaN and infinities as texts), arrays.

    For each check of each claim ``ID.check`` is the worst measured value, ``ID.check.median`` the median and
    ``ID.check.control`` the control value closest to the bound; ``ID.holds`` is 1 or 0. ``expect: WHAT`` is 1 or 0
    for an expectation. Results recorded by :func:`lib.page.results.record` have their own names.

    Raises
    ------
    ValueError
        Two results have one name.
    """
    from lib.page.evidence import MIME_TYPE as EVIDENCE
    from lib.page.expectations import MIME_TYPE as EXPECTATION

    outputs = [o for c in notebook["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    numbers: dict[str, Any] = {}
    for data in (output.get("data", {}) for output in outputs):
        if results.MIME_TYPE in data:
            name, value = data[results.MIME_TYPE]["name"], data[results.MIME_TYPE]["value"]
            columns = value["columns"] if isinstance(value, dict) and "columns" in value else {name: value}
            for column, content in columns.items():
                _add(numbers, column, content)
        if EXPECTATION in data:
            name = f"expect: {data[EXPECTATION]['what']}"
            numbers[name] = min(numbers.get(name, 1), int(data[EXPECTATION]["holds"]))
        if EVIDENCE in data:
            evidence = data[EVIDENCE]
            _add(numbers, f"{evidence['id']}.holds", int(evidence["holds"]))
            for check, measured in evidence["measured"].items():
                name = f"{evidence['id']}.{check}"
                _add(numbers, name, measured["worst"])
                _add(numbers, f"{name}.median", measured["median"])
                _add(numbers, f"{name}.control", evidence["control"][check]["worst"])
    return numbers


def _add(numbers: dict[str, Any], name: str, value: Any) -> None:
    if name in numbers:
        raise ValueError(f"the notebook records {name!r} twice; a column has one number per point")
    numbers[name] = value


def _deadline(limit: float | None) -> Any:
    """Return a function of a cell: the seconds left until the limit, which begins now."""
    if limit is None:
        return None
    end = time.monotonic() + limit
    return lambda cell: max(0.01, end - time.monotonic())


def _explain(problem: Exception, task: Task) -> str:
    kind = type(problem).__name__
    if kind == "CellTimeoutError":
        return f"took more than {task.limit:g} s"
    if kind == "DeadKernelError":
        return "the kernel died, as it does when memory runs out"
    return f"{kind}: {_line(problem)}"


def _prepare(task: Task) -> None:
    """Give the kernels of this worker one thread, and one GPU of several; keep the worker quiet."""
    from lib.page.notebooks import KERNEL_ENVIRONMENT

    # A claim that does not hold at a point is what the sweep wants to know, not a reason to stop.
    os.environ.update(KERNEL_ENVIRONMENT | {"SYMMETRY_STRICT": "0"})
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the record tells what happened
    if task.gpu:
        from distributed import get_worker

        os.environ["SYMMETRY_DEVICE"] = f"cuda:{get_worker().name}"
    elif task.gpu is False:
        os.environ.setdefault("SYMMETRY_DEVICE", "cpu")


def _circumstances() -> dict[str, Any]:
    versions = {name: version(name).split("+")[0] for name in _VERSIONS}
    versions |= {"python": platform.python_version(), "lib": __version__}
    return {"device": _device(), "versions": versions}


@cache
def _device() -> str:
    if os.environ.get("SYMMETRY_DEVICE") == "cpu":  # known without torch, which takes its time to import
        return f"cpu ({platform.machine()})"
    from lib.device import default_device, describe_device

    return describe_device(default_device())


def _line(error: object) -> str:
    text = one_line(error)[:300].encode("utf-8", "backslashreplace").decode()
    return json.dumps(text, ensure_ascii=False)[1:-1]
