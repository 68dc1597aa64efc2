"""The runs: short notebooks, each executed at scale by a sweep, whose stored tables say how they were made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml

from lib.page.evidence import MIME_TYPE as EVIDENCE
from lib.page.notebooks import BOOK, find_notebooks
from lib.page.results import FOLDER
from lib.page.results import MIME_TYPE as RESULT
from run_pages import at_scale

ROOT = BOOK.parent
RUNS = [path for path in find_notebooks([]) if path.parent.name == "runs"]
TABLES = sorted(path for path in FOLDER.glob("*/*.parquet") if path.stem not in ("seeds", "groups"))
AUDITS = {"thirteen_spaces": 350}  # they try all theorems of a page on many cases: the most lines of each
SPECIFICATIONS = {path.read_text(encoding="utf-8") for path in (ROOT / "sweeps").glob("*.yml")}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
class TestRun:
    def test_is_short_and_records(self, path: Path) -> None:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        declared = ("parameters", "check_parameters(", "import ", "from ", "#")  # these lines are not counted
        sources = ["".join([*cell["metadata"].get("tags", []), *cell["source"]]) for cell in cells]
        lines = [line for source in sources if not source.startswith(declared[:2]) for line in source.splitlines()]
        length = sum(bool(line.strip()) and not line.startswith(declared) for line in lines)
        assert 10 <= length <= AUDITS.get(path.stem, 56)
        kinds = {kind for cell in cells for output in cell["outputs"] for kind in output.get("data", {})}
        assert RESULT in kinds
        assert EVIDENCE not in kinds  # a claim is settled by its chapter

    def test_its_page_says_how_to_repeat_it(self, path: Path) -> None:
        text = at_scale(f"runs/{path.stem}", ROOT)
        assert f"notebook: runs/{path.stem}\n" in text


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_stored_table_can_be_repeated(path: Path) -> None:
    """A sweep that is shipped today has the specification with which, or for which, the table was made."""
    attrs = pd.read_parquet(path).attrs
    assert attrs["specification"] in SPECIFICATIONS
    assert yaml.safe_load(attrs["specification"])["notebook"] in {f"runs/{run.stem}" for run in RUNS}
    facts = ("commit", "date", "device", "versions", "points", "seconds")
    assert all(attrs[fact] for fact in facts)


def test_the_page_shows_where_a_table_comes_from(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [1]})
    frame.attrs = {"specification": "notebook: runs/small\n", "commit": "abc", "date": "2026-01-01", "points": 1}
    frame.attrs |= {"device": ["cpu"], "versions": {"torch": ["2.6", "2.7"]}, "seconds": 3, "converted_from": "a.json"}
    for folder in ("sweeps", "data/results/ideas"):
        (tmp_path / folder).mkdir(parents=True)
    frame.to_parquet(tmp_path / "data" / "results" / "ideas" / "small.parquet")
    (tmp_path / "sweeps" / "small.yml").write_text("notebook: runs/small\n")
    text = at_scale("runs/small", tmp_path)
    for part in ("`sweeps/small.yml`", "`data/results/ideas/small.parquet`", "| commit | abc |", "torch 2.6, 2.7"):
        assert part in text
    assert "| converted from | a.json |" in text
    assert at_scale("runs/other", tmp_path) == ""


def test_papermill_runs_a_notebook_from_any_folder(tmp_path: Path) -> None:
    program, output = Path(sys.executable).with_name("papermill"), tmp_path / "out.ipynb"
    command = [program, "--no-progress-bar", ROOT / "book" / "runs" / "rates.ipynb", output]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    cells = nbformat.read(output, as_version=4).cells
    assert all(cell.execution_count for cell in cells if cell.cell_type == "code")


def test_a_parameter_that_is_refused_takes_one_line(tmp_path: Path) -> None:
    program, output = Path(sys.executable).with_name("papermill"), tmp_path / "out.ipynb"
    command = [
        program,
        "--no-progress-bar",
        ROOT / "book" / "runs" / "timings.ipynb",
        output,
        "-p",
        "benchmark",
        "none",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, capture_output=True).returncode
    outputs = [out for cell in nbformat.read(output, as_version=4).cells for out in cell.get("outputs", [])]
    (error,) = (out for out in outputs if out.output_type == "error")
    assert [line.partition(" one of ")[0] for line in error.traceback] == ["benchmark must be"]
