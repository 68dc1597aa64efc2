"""One small point of every shipped specification: every parameter of its notebook at the lowest value allowed.

Those of the chapters cost most, for a chapter's lowest values are those at which its claims still hold.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from lib.page.parameters import read_limits
from lib.sweep import Store, load_specification
from lib.sweep.notebook import BOOK
from lib.sweep.specification import Point
from lib.sweep.worker import Task, execute_point, read_results

NOTEBOOKS = sorted({load_specification(path).notebook for path in (BOOK.parent / "sweeps").rglob("*.yml")})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.relative_to(BOOK).with_suffix("").as_posix())
def test_the_smallest_point_ends(notebook: Path, tmp_path: Path) -> None:
    """It records what the stored notebook records; a claim that needs more than the least may fail, but must say so."""
    limits = read_limits(notebook)
    assert limits
    smallest = {name: limit[0] for name, limit in limits.items() if limit}
    store = Store(tmp_path)
    store.prepare()
    record = execute_point(Task("smallest", Point(smallest), notebook, tmp_path))
    assert record["state"] == "finished", record["error"]
    stored = {name for name in read_results(nbformat.read(notebook, 4)) if name.endswith(".holds")}
    assert stored <= record["numbers"].keys()
