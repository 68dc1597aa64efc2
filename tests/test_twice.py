"""All cells, run again in one kernel with another group, give what a fresh kernel gives."""

from __future__ import annotations

import copy
import os
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from lib.page.notebooks import BOOK, own_kernel_manager
from lib.page.parameters import read_limits

QUICK = ("small_print_of_augmentation",)
CHAPTERS = [path.stem for path in sorted(BOOK.glob("*.ipynb")) if read_limits(path)]


def run(client: NotebookClient, cells: list[Any], values: dict[str, Any]) -> list[Any]:
    """Run all cells as JupyterLab does, some parameters set in their cell; return what may not depend on the past."""
    shown = []
    for number, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        cell, tags = copy.deepcopy(cell), cell.metadata.get("tags", ())
        if "parameters" in tags:
            cell.source += "".join(f"\n{name} = {value!r}" for name, value in values.items())
        client.execute_cell(cell, number)  # which puts it into the client's notebook
        bundles: list[Any] = []
        for output in cell.outputs:
            data = output.get("data", {"text": output.get("text")})
            if output.output_type == "stream" and bundles and set(bundles[-1]) == {"text"}:
                bundles[-1]["text"] += data["text"]  # one print more or less a message is chance
            else:
                bundles.append(data)
        shown.append([] if "timing" in tags else bundles)
    return shown


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in CHAPTERS])
def test_a_second_run_shows_no_number_of_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(os.environ, "SYMMETRY_STRICT")  # a claim may fail at the smallest sizes; a reader goes on too
    path = BOOK / f"{name}.ipynb"
    limits = read_limits(path)
    smallest = {key: limit[0] for key, limit in limits.items() if limit}
    changed = next(key for key in ("group", "seed", *limits) if key in limits and (limits[key] or key == "seed"))
    other = smallest | {changed: limits[changed][-1] if isinstance(limits[changed], list) else 1}
    notebook = nbformat.read(path, as_version=4)

    def kernel() -> NotebookClient:
        resources = {"metadata": {"path": str(BOOK)}}
        return NotebookClient(
            copy.deepcopy(notebook), kernel_manager_class=own_kernel_manager(), timeout=300, resources=resources
        )

    used, fresh = kernel(), kernel()
    with used.setup_kernel():
        first = run(used, notebook.cells, other)
        second = run(used, notebook.cells, smallest)
    with fresh.setup_kernel():
        assert second == run(fresh, notebook.cells, smallest)
    assert first != second
