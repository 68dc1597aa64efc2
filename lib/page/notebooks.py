"""Execute the book's notebooks and store their outputs, so that the same code gives the same file.

``python -m lib.page.notebooks execute`` refreshes all chapters and runs, ``python -m lib.page.notebooks execute
NAME...`` some; ``tidy`` in place of ``execute`` mends the metadata of cells and runs nothing.
A notebook is replaced only after all its cells have run without error, without a warning and without naming a path of
the machine.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lib import ROOT

BOOK = ROOT / "book"
# The instructions that every x86-64 processor of the last ten years has, in the order that MKL keeps on all of them:
# trained numbers amplify the last bit, and with these they come out alike on processors of other makers. It takes 10 %
# more processor time than the fastest instructions at hand where there is AVX-512, and about twice as much elsewhere.
REPRODUCIBLE = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
# What every kernel of the project runs with, here and under nbval (conftest.py): nothing random, no progress bars, one
# thread, for sums in one order, and, where the C library is glibc, memory that stays with the process: fetching it
# anew for arrays of some megabytes that come and go in every step is up to a third of the time.
KERNEL_ENVIRONMENT = REPRODUCIBLE | {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "PYTHONHASHSEED": "0",
    "TQDM_DISABLE": "1",
    "SOURCE_DATE_EPOCH": "0",
    "PYTHONPATH": str(BOOK.parent),
}
# Where outputs are made or compared, a claim or an expectation that does not hold is an error.
STRICT = {"SYMMETRY_STRICT": "1"}
# A kernel cannot send half of a surrogate pair, and an error whose text has one would be lost.
_WHOLE_CHARACTERS = """
def _(content, pack=get_ipython().kernel.session.pack):
    try:
        return pack(content)
    except UnicodeEncodeError:
        from json import dumps
        return dumps(content, default=str, ensure_ascii=False).encode("utf-8", "replace")
get_ipython().kernel.session.pack = _
del _
"""
_KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
_CELL_METADATA = ("tags", "mystnb")
_FOLDED = {"hide-input", "remove-input", "hide-cell", "remove-cell"}


class NotebookFailed(RuntimeError):
    """A notebook could not be executed, or its outputs may not be stored."""


def find_notebooks(names: list[str], book: Path = BOOK) -> list[Path]:
    """Return the paths of the named notebooks of the book (``"ensembles"``, ``"runs/NAME"``), of all without a name."""
    paths = [*sorted(book.glob("*.ipynb")), *sorted(book.glob("runs/*.ipynb"))]
    known = {path.relative_to(book).with_suffix("").as_posix(): path for path in paths}
    wanted = [name.removeprefix("book/").removesuffix(".ipynb") for name in names] or list(known)
    for name in wanted:
        if name not in known:
            raise ValueError(f"name must be one of {list(known)}, got {name!r}")
    return [known[name] for name in wanted]


def execute(path: Path, timeout: int = 600) -> bool:
    """Run one notebook, with so many seconds per cell, and store its outputs; return whether the file changed.

    A notebook that cannot be read, or of which a cell fails, takes too long, writes to stderr or shows a path of this
    machine, raises :class:`NotebookFailed` and stays as it is.
    """
    stored_text, stored = _read(path)
    notebook = _run(path, copy.deepcopy(stored), timeout)
    for number, (cell, old) in enumerate(zip(notebook.cells, stored.cells, strict=True), start=1):
        _tidy_cell(cell, number)
        if cell.cell_type == "code":
            _refuse(path, number, cell.outputs)
            fresh, stored_ones = ([o | {"execution_count": None} for o in each.outputs] for each in (cell, old))
            if fresh == stored_ones:
                cell.outputs = old.outputs
    notebook.metadata = {"kernelspec": _KERNELSPEC, "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return _replace(path, notebook, stored_text)


def tidy(path: Path) -> bool:
    """Give a notebook's cells their ids and metadata, without running it; return whether the file changed."""
    stored_text, notebook = _read(path)
    for number, cell in enumerate(notebook.cells, start=1):
        _tidy_cell(cell, number)
    return _replace(path, notebook, stored_text)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.page.notebooks", description="The stored outputs of the book.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("execute", help="run notebooks and store their outputs")
    command.add_argument("--timeout", type=int, default=600, metavar="S", help="seconds per cell (default: 600)")
    without = commands.add_parser("tidy", help="give cells their ids, and fold them in JupyterLab as in the book")
    for each in (command, without):
        each.add_argument("names", nargs="*", metavar="NAME", help="as haar_projections or runs/norms (default: all)")
    options = parser.parse_args(arguments)
    try:
        paths = find_notebooks(options.names)
    except ValueError as error:
        parser.error(str(error))
    failures = 0
    for path in paths:
        try:
            changed = tidy(path) if options.command == "tidy" else execute(path, options.timeout)
            print(f"{path.name}: {'updated' if changed else 'unchanged'}", flush=True)
        except NotebookFailed as error:
            failures += 1
            print(f"{path.name}: not stored: {error}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print(f"\n{path.name}: not stored: interrupted", file=sys.stderr, flush=True)
            return 130
    return 1 if failures else 0


def _read(path: Path) -> tuple[str, Any]:
    import nbformat

    try:
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise NotebookFailed(f"it is not a readable notebook ({_first_line(error)})") from None
    return text, notebook


def _run(path: Path, notebook: Any, timeout: int) -> Any:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    os.environ.update(KERNEL_ENVIRONMENT | STRICT)
    client = NotebookClient(
        notebook,
        kernel_manager_class=own_kernel_manager(),
        timeout=timeout,
        startup_timeout=300,  # on a machine with much else to do, one minute was too short
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        return client.execute()
    except CellExecutionError as error:
        raise NotebookFailed(f"{_where(notebook)} raised {error.ename}: {_first_line(error.evalue)}") from None
    except CellTimeoutError:
        raise NotebookFailed(f"{_where(notebook)} took more than {timeout} s") from None
    except DeadKernelError:
        raise NotebookFailed(f"the kernel died in {_where(notebook)}") from None
    except AssertionError:  # Ctrl-C: nbclient has stopped the kernel, and stumbles when it stops it again
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise KeyboardInterrupt from None


def own_kernel_manager(terminal: Any = subprocess.DEVNULL) -> type:
    """Return a kernel manager that starts kernels of the running interpreter, whatever the machine has installed.

    What cells write reaches the notebook by messages. What the process itself has to say, when it cannot start or when
    it dies, goes to ``terminal``, a file.
    """
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class OwnKernelManager(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(**get_kernel_dict([f"--IPKernelApp.exec_lines={_WHOLE_CHARACTERS}"]))

        async def _async_pre_start_kernel(self, **options: Any) -> Any:
            return await super()._async_pre_start_kernel(**{"stderr": terminal} | options)

    return OwnKernelManager


def _where(notebook: Any) -> str:
    """Return the place where an execution stopped: the last cell that began."""
    begun = [n for n, c in enumerate(notebook.cells, start=1) if c.cell_type == "code" and c.execution_count]
    failed = [n for n in begun if any(o.output_type == "error" for o in notebook.cells[n - 1].outputs)]
    return f"cell {(failed or begun or [1])[-1]}"


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _tidy_cell(cell: Any, number: int) -> None:
    cell.id = f"cell-{number:03d}"
    kept = {key: cell.metadata[key] for key in _CELL_METADATA if key in cell.metadata}
    folded = _FOLDED.intersection(kept.get("tags", ()))  # in the book by the tag, in JupyterLab by what follows
    cell.metadata = kept | ({"jupyter": {"source_hidden": True}} if folded else {})


def _refuse(path: Path, number: int, outputs: list[Any]) -> None:
    """Raise if outputs hold what must not be stored."""
    if any(output.get("name") == "stderr" for output in outputs):
        text = "".join(output.get("text", "") for output in outputs if output.get("name") == "stderr")
        raise NotebookFailed(f"cell {number} wrote to stderr: {_first_line(text)}")
    text = json.dumps(outputs)
    places = {str(path.parent.parent), str(ROOT), str(Path.home()), sys.prefix, tempfile.gettempdir()} - {os.sep}
    for place in (*(f"{place}{os.sep}" for place in places), "site-packages" + os.sep, "/ipykernel_"):
        if place in text:
            raise NotebookFailed(f"cell {number} shows a path of this machine ({place})")


def _replace(path: Path, notebook: Any, stored_text: str) -> bool:
    """Write a notebook whole or not at all, if it is another one; return whether it is."""
    import nbformat

    text = nbformat.writes(notebook).rstrip() + "\n"
    if text == stored_text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(path.stat().st_mode)
    temporary.replace(path)
    return True


if __name__ == "__main__":
    sys.exit(main())
