"""Timings of ``python -m lib.sweep``: what a point costs beyond the notebook's own time.

``python benchmarks/bench_sweep.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick`` runs fewer
points. The notebook does nothing but note when it begins and ends; one worker executes one point after the other.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import nbformat
import pandas as pd
from rows import Row, report

ROOT = Path(__file__).resolve().parent.parent
PARAMETERS = "n: int = 0\n"
BODY = "import time\nfrom lib.page.results import record\nrecord('begin', time.time())"
END = "record('end', time.time())"


def write_sweep(folder: Path, points: int, cells: int) -> Path:
    """Write a notebook with so many empty cells and a specification that runs it at so many points."""
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})]
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in (BODY, *["n"] * cells, END)]
    nbformat.write(notebook, folder / "empty.ipynb")
    path = folder / "empty.yml"
    path.write_text(f"notebook: empty.ipynb\ngrid: {{n: {list(range(points))}}}\n", encoding="utf-8")
    return path


def measure(points: int, cells: int) -> list[Row]:
    """Run a sweep in a process of its own; time a point from the end of one notebook to the end of the next."""
    section = f"A notebook that does nothing, in {cells + 3} cells, {points} points, one worker"
    with tempfile.TemporaryDirectory() as name:
        path, output = write_sweep(Path(name), points, cells), Path(name) / "out"
        command = [sys.executable, "-m", "lib.sweep", "run", str(path), "-o", str(output), "--workers", "1", "--quiet"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        start, clock = time.time(), time.perf_counter()
        subprocess.run(command, check=True, env=environment, capture_output=True)
        total = time.perf_counter() - clock
        clock = time.perf_counter()
        subprocess.run(command, check=True, env=environment, capture_output=True)
        again = time.perf_counter() - clock
        table = pd.read_parquet(output / "table.parquet").sort_values("end")
    own = table["end"] - table["begin"]
    beyond = (table["end"].diff() - own).iloc[1:]
    least = min(beyond)
    return [
        Row(section, "from the command to the first notebook's end (once)", table["end"].iloc[0] - start, "s"),
        Row(section, "each further point beyond the notebook's own time, least", least, "s", "< 1.5 s", least < 1.5),
        Row(section, "each further point beyond the notebook's own time, median", median(beyond), "s"),
        Row(section, "the notebook's own time, median", median(own), "s"),
        Row(section, "the whole sweep", total, "s"),
        Row(section, "the same command when all points are finished", again, "s"),
    ]


def main() -> int:
    """Run everything; the exit status says whether the bar was kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer points")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} CPU(s), load {os.getloadavg()[0]:.1f}"
    sizes = (0,) if arguments.quick else (0, 60)
    rows = (row for cells in sizes for row in measure(4 if arguments.quick else 10, cells))
    return report("Sweeps", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
