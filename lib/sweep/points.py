"""The points of a sweep: each is a notebook executed by papermill, kept whole or not at all; Dask hands them out."""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EDQUOT, EFBIG, ENOSPC
from functools import cache, partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib import __version__
from lib.page.notebooks import KERNEL_ENVIRONMENT, own_kernel_manager
from lib.page.results import read_results
from lib.sweep.specification import Sweep, SweepError, code_digest, label, one_line, read_cells

_ANSWER = 10  # seconds that a scheduler has to answer
_KEPT = "what had finished is kept, and the same command goes on from there"
_CHANGED = f"notebook: it, a module that it imports or a file it depends on changed while the sweep ran; {_KEPT}"


class Store:
    """The folder of a specification: ``KEY.ipynb`` is a point that has finished, ``KEY.failed.ipynb`` one that failed.

    The executed notebook is the record: its metadata say when and where it ran and how it ended, its outputs hold the
    numbers. It is written under another name, ``KEY.running-….ipynb``, and renamed at the end.
    """

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self.folder = Path(os.path.abspath(folder))
        content = hashlib.sha256(sweep.specification.model_dump_json().encode()).hexdigest()
        self._mark = {"specification": str(sweep.path), "content": content}
        try:
            mark = json.loads((self.folder / "sweep.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if not self._mark.items() & mark.items():  # neither the same file, edited, nor the same content elsewhere
            raise SweepError(f"output: {folder} belongs to {mark['specification']} (--output names another folder)")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder, and hold it against other drivers; the system frees it when this process ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = FileLock(self.folder / ".lock").acquire(timeout=0.5)
        except Timeout:
            raise SweepError(f"output: another sweep is running in {self.folder}") from None
        except (OSError, NotImplementedError) as error:  # no permission, or a file system without locks
            raise unwritable(self.folder, error) from None
        with held:
            self.write(".gitignore", b"*\n")
            self.write("sweep.json", json.dumps(self._mark).encode())
            for path in [*self.folder.glob("*.running-*.ipynb"), *self.folder.glob(".*.tmp")]:
                path.unlink(missing_ok=True)
            yield

    def running(self) -> dict[str, Path]:
        """Return the notebooks that are being executed, with what they have put out so far, by their keys."""
        found = {path.name.split(".")[0]: path for path in sorted(self.folder.glob("*.running-*.ipynb"))}
        try:
            if found:
                FileLock(self.folder / ".lock").acquire(timeout=0).lock.release()
            return {}  # no driver holds the folder
        except (OSError, Timeout):
            return found

    def read(self, key: str) -> dict[str, Any] | None:
        """Return what the notebook of a point says of its run, with its numbers; ``None`` if there is no whole one."""
        for path in (self.folder / f"{key}.ipynb", self.folder / f"{key}.failed.ipynb"):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                record, times = content["metadata"]["sweep"], content["metadata"].get("papermill", {})
                if record.pop("digest") == _digest(content):
                    seconds = times.get("duration") and round(times["duration"], 3)
                    record |= {"seconds": seconds, "started": times.get("start_time"), "path": path}
                    numbers = {} if record["error"] else read_results(content)
                    return record | {"numbers": {name: numbers[name] for name in record.pop("names")}}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
        return None

    def keep(self, key: str, notebook: Path, record: dict[str, Any]) -> dict[str, Any] | None:
        """Give a notebook its record and its name; return the record as it is read back."""
        try:
            content = json.loads(notebook.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it never began
            content = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        content["metadata"]["sweep"] = record | {"key": key}
        content["metadata"]["sweep"]["digest"] = _digest(content)
        name, other = (f"{key}.failed.ipynb", f"{key}.ipynb")[:: 1 if record["error"] else -1]
        self.write(name, json.dumps(content, indent=1).encode())
        (self.folder / other).unlink(missing_ok=True)
        return self.read(key)

    def write(self, name: str | Path, content: bytes) -> None:
        """Write a file, of the folder or elsewhere, whole or not at all."""
        target = self.folder / name
        temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise unwritable(target.parent, error) from None
        finally:
            temporary.unlink(missing_ok=True)


def unwritable(folder: Path, error: Exception) -> SweepError:
    """Return what cannot be written, in one line."""
    reason = getattr(error, "strerror", None) or one_line(error)
    return SweepError(f"output: cannot write to {folder}: {reason} (--output names another folder)")


def _digest(notebook: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(notebook, sort_keys=True).encode()).hexdigest()


def execute_point(
    key: str, parameters: dict[str, Any], sweep: Sweep, folder: Path, gpu: bool | None = None, commit: str = "unknown"
) -> dict[str, Any] | None:
    """Execute a point that has not finished yet, and return its record; an error is part of the record.

    ``gpu`` says whether each worker has a GPU of its own, or only the CPU; ``None`` leaves that to its environment. A
    ``SweepError`` says that the code is not what the key stands for, or that the folder cannot be written to.
    """
    store, attempts, starts = Store(folder, sweep), 0, 0
    if (record := store.read(key)) is not None and not record["error"]:
        return record
    # A claim that does not hold at a point is what the sweep wants to know, not a reason to stop.
    # Nor is the last digit compared: MKL adds in an order up to four times as fast as that of stored outputs.
    os.environ.update(KERNEL_ENVIRONMENT | {"MKL_CBWR": "AVX2", "SYMMETRY_STRICT": "0"})
    if gpu is not None:
        _end_quietly()
    if gpu:
        from distributed import get_worker

        os.environ["SYMMETRY_DEVICE"] = f"cuda:{get_worker().name}"
    elif gpu is False:
        os.environ.setdefault("SYMMETRY_DEVICE", "cpu")
    place = _device(str(parameters.get("device") or os.environ.get("SYMMETRY_DEVICE", "")))
    about = {"device": place, "host": platform.node(), "commit": commit, "packages": _packages()}
    output = folder / f"{key}.running-{uuid.uuid4().hex[:8]}.ipynb"
    try:
        while True:
            ended = _attempt(sweep, parameters, output)
            if (error := ended["error"] or "").startswith("RuntimeError: Kernel d") and (starts := starts + 1) < 3:
                continue  # died or silent before its first word: its port was taken, or the machine stood still
            attempts += 1
            if not error or attempts > sweep.specification.retries:
                break
        if code_digest(sweep.notebook, sweep.files) != sweep.code:
            raise SweepError(_CHANGED)
        return store.keep(key, output, ended | {"attempts": attempts} | about)
    except OSError as problem:  # the disk is full
        raise unwritable(folder, problem) from None
    finally:
        output.unlink(missing_ok=True)


@cache
def _end_quietly() -> None:
    """Have this worker's process end without a word: Python says it when a loop that talks to a kernel still runs."""
    atexit.register(os.dup2, os.open(os.devnull, os.O_WRONLY), 2)


@cache
def _device(name: str) -> str:
    if name == "cpu":  # known without torch, which takes its time to import
        return f"cpu ({platform.machine()})"
    from lib.device import default_device, describe_device

    try:
        return describe_device(default_device(name))
    except ValueError:  # the notebook will say so, or means something else by it
        return name


@cache
def _packages() -> dict[str, str]:
    found = sorted((package.metadata["Name"], package.version.split("+")[0]) for package in distributions())
    return dict(found) | {"python": platform.python_version(), "lib": __version__}


def _attempt(sweep: Sweep, parameters: dict[str, Any], output: Path) -> dict[str, Any]:
    """Execute the notebook once; return its error, what the kernel told the terminal, and the names it recorded."""
    sys.modules.setdefault("rfc3987_syntax", None)  # a grammar that jsonschema can do without, and builds for a second
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # the record tells what happened
    limit = sweep.specification.limit
    end = time.monotonic() + (limit or 0)
    output.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+") as terminal:
        try:
            content = papermill.execute_notebook(
                *(str(path).replace("{", "{{").replace("}", "}}") for path in (sweep.notebook, output)),
                parameters,
                kernel_name="python3",  # by the name alone: it is the interpreter of this process
                language="python",
                cwd=str(sweep.notebook.parent),
                progress_bar=False,
                kernel_manager_class=own_kernel_manager(terminal),
                timeout_func=limit and (lambda cell: max(0.01, end - time.monotonic())),
            )
            names = list(read_results(content))  # a file has them in another order
            ended = [c.execution_count for c in content.cells if c.metadata.get("papermill", {}).get("exception")]
            if not ended:
                return {"error": None, "terminal": "", "names": names}
            error = f"cell {ended[0]}: SystemExit: the notebook ended before its last line"
        except papermill.PapermillExecutionError as problem:
            error = f"cell {problem.exec_count}: {problem.ename}{problem.evalue and ': '}{problem.evalue}"
        except CellTimeoutError:
            error = f"took more than {limit:g} s"
        except DeadKernelError:
            error = "the kernel died, as it does when memory runs out"
        except Exception as problem:  # whatever it is, it belongs to the record
            if getattr(problem, "errno", None) in (ENOSPC, EDQUOT, EFBIG):
                raise
            error = f"{type(problem).__name__}: {problem}"
        terminal.seek(0)
        said = terminal.read()[-4000:].strip()
    last = f": {said.splitlines()[-1]}" if said and "kernel" in error.lower() else ""
    error = one_line(error + last)[:300].encode("utf-8", "backslashreplace").decode()
    return {"error": error, "terminal": said, "names": []}


def run_points(
    client: Any, keys: list[str], sweep: Sweep, store: Store, gpu: bool | None, report: Callable[[str], None]
) -> Iterator[bool]:
    """Yield as each point ends whether it finished; a point that keeps killing its worker has failed."""
    from distributed import KilledWorker, as_completed

    names, points = {f"point-{key}": key for key in keys}, [sweep.points[key] for key in keys]
    about = {"sweep": replace(sweep, points={}), "folder": store.folder, "gpu": gpu, "commit": commit_of(sweep)}
    for future in as_completed(client.map(execute_point, keys, points, key=list(names), pure=False, **about)):
        key = names[future.key]
        if future.status in ("cancelled", "lost"):
            raise SweepError(f"scheduler: lost; {_KEPT}")
        record = future.result() if future.status == "finished" else store.read(key)
        if record is None or (record["error"] and future.status != "finished"):  # or its worker died just after
            if isinstance(problem := future.exception(), SweepError):  # the disk is full, or the code has changed
                raise problem
            error = f"{type(problem).__name__}: {one_line(problem)}"
            error = "its worker died again and again" if isinstance(problem, KilledWorker) else error
            log = next(store.folder.glob(f"{key}.running-*.ipynb"), store.folder / "none")
            record = store.keep(key, log, {"error": error, "commit": about["commit"], "packages": {}, "names": []})
        if record["error"]:
            report(f"failed: {label(sweep.points[key])}: {record['error']}")
        yield not record["error"]


@contextmanager
def cluster(scheduler: str | None, workers: int | None, gpus: int) -> Iterator[Any]:
    """Connect to a scheduler, or start a local cluster of single-threaded processes for the time being."""
    import dask
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    for name in ["distributed", "bokeh", "tornado", *logging.root.manager.loggerDict]:  # the records say what matters
        if name.split(".")[0] in ("distributed", "bokeh", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=_ANSWER)
        except (OSError, ValueError, TypeError) as error:
            raise SweepError(f"scheduler: no answer from {scheduler!r}: {one_line(error)}") from None
        with client:
            if any(threads > 1 for threads in client.nthreads().values()):
                raise SweepError("scheduler: its workers must have one thread each (dask worker --nthreads 1)")
            yield client
        return
    options = {"processes": True, "memory_limit": None, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    interrupts = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for this thread alone
    with dask.config.set({"distributed.scheduler.worker-saturation": 1.0}):  # no point waits at a worker that may die
        try:
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), _ANSWER).close()  # without loopback Dask waits 30 s
            number = workers or gpus or CPU_COUNT
            local = LocalCluster(n_workers=number, threads_per_worker=1, host="127.0.0.1", **options)
        except (OSError, RuntimeError) as error:
            raise SweepError(f"workers: cannot start on this machine (127.0.0.1): {one_line(error)}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, interrupts)
        with local, Client(local) as client:
            yield client


def commit_of(sweep: Sweep) -> str:
    """Return the commit that is checked out where a sweep's code is kept, and whether the code differs from it.

    A repository that merely encloses a file, without keeping it, does not count.
    """
    roots: dict[Path | None, list[Path]] = {}
    for file in (sweep.notebook, *sweep.files.values()):
        roots.setdefault(next((f for f in file.parents if (f / ".git").exists()), None), []).append(file)
    found = []
    for root, files in roots.items():
        git = partial(subprocess.run, cwd=root, capture_output=True, text=True)
        if root and shutil.which("git") and git(["git", "ls-files", "--", *files]).stdout:
            changed = git(["git", "status", "--porcelain", "--ignored", "--", *files]).stdout
            commit = git(["git", "rev-parse", "HEAD"]).stdout.strip()
            found.append(f"{commit}{' with changes' if changed else ''}")
    return f"{', '.join(found)}{'' if len(found) == len(roots) else ' and files outside'}" if found else "unknown"


def ask_page(sweep: Sweep) -> None:
    """Run the cell that checks the parameters at every point, where it refuses more than its limits say."""
    sources = [source for _, source in read_cells(sweep.notebook)]
    place = next((k for k, source in enumerate(sources) if "check_parameters(" in source and "raise " in source), 0)
    here: dict[str, Any] = {"__name__": "__main__"}
    try:
        for source in sources[:place]:
            exec(compile(source, sweep.notebook.name, "exec", dont_inherit=True), here)
        for point in sweep.points.values() if place else ():
            own = {name: value for name, value in point.items() if name != "device"}  # it need not be on this machine
            exec(compile(sources[place], sweep.notebook.name, "exec", dont_inherit=True), here | own)
    except Exception as error:
        raise SweepError(f"points: {one_line(error)}") from None
