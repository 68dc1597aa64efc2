"""Refreshing stored outputs: stable, complete or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from lib import ROOT
from lib.page import notebooks
from lib.page.notebooks import NotebookFailed, execute, find_notebooks, main, tidy

SOURCE = """import os
print(os.environ["PYTHONHASHSEED"])"""


def write(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_markdown_cell("# A title")] + [nbformat.v4.new_code_cell(s) for s in sources]
    cells[-1].metadata = {"tags": ["parameters"], "collapsed": False}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"widgets": {}}), path)
    return path


def test_execution_is_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in notebooks.KERNEL_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    path = write(tmp_path / "ideas.ipynb", "x = 3\nprint(x)", SOURCE)
    assert execute(path, timeout=60)
    first = path.read_text()
    assert not execute(path, timeout=60)
    assert path.read_text() == first
    content = json.loads(first)
    assert content["metadata"].keys() == {"kernelspec", "language_info"}
    assert [c["id"] for c in content["cells"]] == ["cell-001", "cell-002", "cell-003"]
    assert [c["execution_count"] for c in content["cells"][1:]] == [1, 2]
    assert content["cells"][2]["metadata"] == {"tags": ["parameters"]}
    assert content["cells"][1]["outputs"][0]["text"] == ["3\n"] or content["cells"][1]["outputs"][0]["text"] == "3\n"
    assert [p.name for p in tmp_path.iterdir()] == ["ideas.ipynb"]


def test_cells_are_folded_without_running(tmp_path: Path) -> None:
    path = write(tmp_path / "ideas.ipynb", "1 / 0", "2 / 0")
    content = json.loads(path.read_text())
    content["cells"][1]["metadata"] = {"tags": ["hide-input"], "editable": True}
    content["cells"][2]["metadata"] = {"tags": ["define"], "jupyter": {"source_hidden": True}}
    path.write_text(json.dumps(content))
    assert tidy(path)
    assert not tidy(path)
    _, folded, shown = json.loads(path.read_text())["cells"]
    assert folded["metadata"] == {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}
    assert (shown["metadata"], shown["id"]) == ({"tags": ["define"]}, "cell-003")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "cell 2 raised ZeroDivisionError: division by zero"),
        ("import sys; print('careful', file=sys.stderr)", "cell 2 wrote to stderr: careful"),
        ("import os; print(os.getcwd() + '/x')", "cell 2 shows a path of this machine"),
        ("import time; time.sleep(30)", "cell 2 took more than 2 s"),
    ],
)
def test_failures_leave_the_file(tmp_path: Path, source: str, message: str) -> None:
    folder = tmp_path / "book"
    folder.mkdir()
    path = write(folder / "bad.ipynb", source)
    before = path.read_bytes()
    with pytest.raises(NotebookFailed, match=message):
        execute(path, timeout=2 if "sleep" in source else 60)
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_text("{}")
    with pytest.raises(NotebookFailed, match="not a readable notebook"):
        execute(path)


def test_names(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    path, run = write(tmp_path / "ideas.ipynb", "1"), write(tmp_path / "runs" / "ideas.ipynb", "2")
    assert find_notebooks([], tmp_path) == [path, run]
    assert find_notebooks(["runs/ideas", "book/ideas.ipynb"], tmp_path) == [run, path]
    with pytest.raises(ValueError, match=r"\['ideas', 'runs/ideas'\], got 'idea'"):
        find_notebooks(["idea"], tmp_path)


def test_main_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    good, bad = write(tmp_path / "good.ipynb", "1"), tmp_path / "bad.ipynb"
    bad.write_text("nothing")
    monkeypatch.setattr(notebooks, "find_notebooks", lambda names: [bad, good])
    assert main(["execute"]) == 1
    out, err = capsys.readouterr()
    assert "good.ipynb: updated" in out
    assert "bad.ipynb: not stored: it is not a readable notebook" in err


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["execute", "--help"], 0), (["execute", "no"], 2)])
def test_command_line(arguments: list[str], status: int) -> None:
    command = [sys.executable, "-m", "lib.page.notebooks", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, env=os.environ)
    assert result.returncode == status
    assert "usage: python -m lib.page.notebooks" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, sign: signal.Signals) -> None:
    """One line and no traceback, the kernel is gone, and the notebook is as it was."""
    started = tmp_path / "started"
    wait = f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(120)"
    path = write(tmp_path / "ideas.ipynb", wait)
    before = path.read_text()
    command = (
        f"import sys; from lib.page import notebooks as n; from pathlib import Path; "
        f"n.find_notebooks = lambda names: [Path({str(path)!r})]; sys.exit(n.main(['execute']))"
    )
    driver = subprocess.Popen([sys.executable, "-c", command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (started.is_file() and started.read_text()):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(sign)
    said = driver.communicate(timeout=60)[1]
    assert driver.returncode == 130
    assert said.strip() == "ideas.ipynb: not stored: interrupted"
    assert path.read_text() == before
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
