"""One small point of every shipped specification: every parameter of its notebook at the lowest value allowed.

Those of the chapters cost most, for a chapter's lowest values are those at which its claims still hold.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from lib.page.parameters import read_limits
from lib.page.results import read_results
from lib.sweep import load_specification
from lib.sweep.points import execute_point
from lib.sweep.specification import BOOK
from tests.kernels import forked

SPECIFICATIONS = sorted((BOOK.parent / "sweeps").rglob("*.yml"))
SWEEPS = {sweep.notebook: sweep for sweep in map(load_specification, SPECIFICATIONS)}


@pytest.mark.parametrize("notebook", sorted(SWEEPS), ids=lambda path: path.relative_to(BOOK).with_suffix("").as_posix())
def test_the_smallest_point_ends(notebook: Path, tmp_path: Path) -> None:
    """It records what the stored notebook records; a claim that needs more than the least may fail, but must say so."""
    limits = read_limits(notebook)
    assert limits
    smallest = {name: limit[0] for name, limit in limits.items() if limit}
    with forked():
        record = execute_point("smallest", smallest, SWEEPS[notebook], tmp_path)
    assert record["error"] is None
    stored = {name for name in read_results(nbformat.read(notebook, 4)) if name.endswith(".holds")}
    assert stored <= record["numbers"].keys()
