"""Sweeps that run: what they keep, what they survive, the table, the plot and the command line."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.figure
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner

from lib.page import results
from lib.page.evidence import MIME_TYPE as EVIDENCE
from lib.sweep import Store, Sweep, SweepError, load_specification
from lib.sweep.__main__ import _parquet, collect, main
from lib.sweep.points import commit_of, execute_point
from lib.sweep.specification import BOOK

ROOT = BOOK.parent
PARAMETERS = "n: int = 1\nmode: str = 'ok'\nseed: int = 0\nplace: str = ''\ndevice: str = ''\nerror: str = ''\n"
BODY = """
import os, sys, time
from lib.page.results import record
print("begun", flush=True)
if mode == "raise":
    raise RuntimeError("no good: n = %d" % n)
if mode == "surrogate":
    raise RuntimeError("no \\ud800 good")
if mode == "exit":
    sys.exit(0)
if mode == "sleep":
    time.sleep(60)
if mode == "wait":
    while not os.path.exists(place):
        time.sleep(0.05)
if mode == "die":
    os.write(2, b"out of luck")
    os.kill(os.getpid(), 9)
if mode == "kill" and not os.path.exists(place):
    if place:
        open(place, "w").close()
    os.kill(os.getppid(), 9)
if mode == "once" and not os.path.exists(place):
    open(place, "w").close()
    raise RuntimeError("the first time fails")
if mode == "large":
    print("x" * 200_000)
"""
END = "record('square', n * n + seed / 10)\nrecord('root', n ** 0.5)"


def make_notebook(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in (PARAMETERS, *(sources or (BODY, END)))]
    cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)  # without a kernel's name
    return path


def make_specification(folder: Path, *sources: str, **fields: Any) -> Path:
    if sources or not (folder / "small.ipynb").exists():
        make_notebook(folder / "small.ipynb", *sources)
    path = folder / "spec.yml"
    path.write_text(yaml.safe_dump({"notebook": "small.ipynb"} | fields, sort_keys=False))
    return path


def opened(specification: Path, folder: Path) -> tuple[Sweep, Store]:
    sweep = load_specification(specification)
    folder.mkdir(exist_ok=True)
    return sweep, Store(folder, sweep)


def execute(sweep: Sweep, store: Store) -> list[dict[str, Any]]:
    """Run all points of a sweep in this process, without Dask."""
    return [execute_point(key, point, sweep, store.folder) for key, point in sweep.points.items()]


def invoke(*arguments: Any, status: int = 0) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == status, result.output
    return result.output


def refusal(*arguments: Any) -> str:
    output = invoke(*arguments, status=2)
    assert output.count("\n") == 1
    return output


def same(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what has to be equal in two tables of one sweep: all but times and attempts."""
    return table.drop(columns=["seconds", "attempts", "started"]).replace({np.nan: None}).to_dict("records")


class TestOnePoint:
    @pytest.mark.parametrize(
        ("mode", "error"),
        [
            ("surrogate", "cell 3: RuntimeError: no ? good"),
            ("exit", "cell 3: SystemExit: the notebook ended before its last line"),
            ("die", "the kernel died, as it does when memory runs out: out of luck"),
            ("sleep", "took more than 1.5 s"),
        ],
    )
    def test_failures_are_kept_with_their_notebook(self, tmp_path: Path, mode: str, error: str) -> None:
        limit = 1.5 if mode == "sleep" else 60.0
        sweep, store = opened(make_specification(tmp_path, parameters={"mode": mode}, limit=limit), tmp_path / "out")
        (record,) = execute(sweep, store)
        assert (record["error"], record["numbers"]) == (error, {})
        (path,) = store.folder.iterdir()
        assert path.name == f"{record['key']}.failed.ipynb"
        assert nbformat.read(path, 4).cells[-1].source == END
        assert error in invoke("status", sweep.path, "-o", store.folder)

    @pytest.mark.parametrize(("deaths", "good"), [(2, True), (3, False)])
    @pytest.mark.parametrize("end", ["died before replying to kernel_info", "didn't respond in 60 seconds"])
    def test_a_kernel_that_ends_before_its_first_word(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, deaths: int, good: bool
    ) -> None:
        """A port taken, a machine that stood still: no cell has run, and the point begins again, but not for ever."""
        left, ended = [None] * deaths, {"error": None, "terminal": "", "names": []}

        def attempt(sweep: Sweep, parameters: dict[str, Any], output: Path) -> dict[str, Any]:
            early = bool(left) and not left.pop()
            return ended | ({"error": f"RuntimeError: Kernel {end}"} if early else {})

        monkeypatch.setattr("lib.sweep.points._attempt", attempt)
        (record,) = execute(*opened(make_specification(tmp_path), tmp_path / "out"))
        assert (record["error"] is None, record["attempts"], left) == (good, 1, [])

    def test_a_record_says_when_where_and_with_what(self, tmp_path: Path) -> None:
        fields = {
            "grid": {"n": [1]},
            "parameters": {"mode": "once", "place": str(tmp_path / "mark"), "device": "cpu", "error": "mine"},
            "retries": 2,
        }
        sweep, store = opened(make_specification(tmp_path, **fields), tmp_path / "out")
        (first,) = execute(sweep, store)
        assert (first["error"], first["attempts"], first["packages"]["numpy"]) == (None, 2, np.__version__)
        assert first["device"].startswith("cpu")
        assert first["host"] == os.uname().nodename
        assert pd.Timestamp.now(tz="UTC") - pd.Timestamp(first["started"]) < pd.Timedelta(minutes=2)
        assert execute(sweep, store) == [first]  # it is never run again
        (row,) = collect(sweep, store).to_dict("records")
        assert (row["device"], row["run.device"], row["square"]) == ("cpu", first["device"], 1)
        assert (row["error"], row["run.error"]) == ("mine", None)
        output = invoke("run", sweep.path, "-o", store.folder)
        assert output.startswith("1 points: 0 finished now, 1 before, 0 failed, 0 left")
        invoke("plot", sweep.path, "-o", store.folder, "--x", "n", "--y", "square", "--where", "error=mine")

    def test_a_notebook_that_is_not_whole_runs_again(self, tmp_path: Path) -> None:
        sweep, store = opened(make_specification(tmp_path), tmp_path / "out")
        (record,) = execute(sweep, store)
        content = record["path"].read_text()
        assert collect(sweep, store)["square"].tolist() == [1]
        for damaged in (content[:-100], content.replace("begun", "began"), None):
            record["path"].write_text(damaged) if damaged else record["path"].unlink()
            assert collect(sweep, store).empty
        assert execute(sweep, store)[0]["error"] is None
        assert collect(sweep, store)["square"].tolist() == [1]

    def test_a_readers_own_notebook_with_its_modules(self, tmp_path: Path) -> None:
        """In a folder that is no repository, whose name papermill would read as a parameter."""
        folder = tmp_path / "{n}"
        folder.mkdir()
        (folder / "mine.py").write_text("def double(x):\n    return 2 * x\n")
        spec = make_specification(
            folder, "from mine import double\nfrom lib.page.results import record", "record('d', double(n))"
        )
        (record,) = execute(*opened(spec, folder / "{out}"))
        assert record["numbers"] == {"d": 2}, record["error"]
        (folder / "mine.py").write_text("def double(x):\n    return 3 * x\n")
        assert "0 finished" in invoke("plan", spec, "-o", folder / "{out}")
        assert [r["numbers"] for r in execute(*opened(spec, folder / "{out}"))] == [{"d": 3}]


def recorded(*outputs: dict[str, Any]) -> dict[str, Any]:
    return results.read_results({"cells": [{"cell_type": "code", "outputs": [{"data": data} for data in outputs]}]})


class TestResults:
    def test_evidence_and_what_is_not_finite(self) -> None:
        evidence = {"id": "A1", "holds": True, "measured": {"c": {"worst": "nan", "median": 1}}}
        evidence["control"] = {"c": {"worst": 2}}
        numbers = recorded({results.MIME_TYPE: {"name": "x", "value": "inf"}}, {EVIDENCE: evidence}, {})
        assert numbers == {"x": "inf", "A1.c": "nan", "A1.holds": 1, "A1.c.median": 1, "A1.c.control": 2}
        with pytest.raises(ValueError, match=r"records 'A1\.holds' twice"):
            recorded({EVIDENCE: evidence}, {EVIDENCE: evidence})

    @pytest.mark.parametrize("value", [2, 0.5, np.float64(0.5), torch.tensor(0.5), float("inf")])
    def test_accepts_one_real_number(self, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: list[dict] = []
        monkeypatch.setattr(results, "display_data", shown.append)
        results.record("x_1", value)
        assert float(shown[0][results.MIME_TYPE]["value"]) == float(value)

    @pytest.mark.parametrize("name", ["X", "a.b", 3])
    def test_refuses_other_names(self, name: Any) -> None:
        with pytest.raises(ValueError, match=r"^name"):
            results.record(name, 1)

    @pytest.mark.parametrize("value", ["1", 1j, [[1], [2, 3]], pd.DataFrame()])
    def test_refuses_the_rest(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^value"):
            results.record("x", value)


RECORDS = """
import numpy as np, pandas as pd
from lib.page.results import record
record("half", [float("nan"), float("inf"), 0.5][n])
record("cube", np.arange(12.0).reshape(2, 3, 2) * n + 0.1)
record("flags", np.array([True, False]))
record("table", pd.DataFrame({"size": [1, 2, 3], "name": ["a", "b", "ü"], "error": [0.1, np.nan, np.inf]}))
record("state", n)
if n == 2:
    record("only", 7)
"""


class TestTable:
    def test_what_is_recorded_is_read_back(self, tmp_path: Path) -> None:
        """Numbers, arrays and tables come back exactly, over all points, with the provenance of the run."""
        spec = make_specification(tmp_path, RECORDS, grid={"n": [0, 1, 2]})
        (sweep, store), target = opened(spec, tmp_path / "out"), tmp_path / "results" / "small" / "run.parquet"
        command = ["store", spec, "-o", store.folder, "--to", target]
        assert "3 of 3 points have not finished" in refusal(*command)
        execute(sweep, store)
        invoke(*command)
        table = results.stored("small/run", folder=tmp_path / "results")
        assert table["n"].tolist() == [0, 1, 2]
        assert table["not_finite"].tolist()[:2] == ["half=nan", "half=inf"]
        assert table["only"].count() == 1
        for n, cube in zip(table["n"], table["cube"], strict=True):
            assert np.array_equal(cube, np.arange(12).reshape(2, 3, 2) * n + 0.1)
        rows = results.stored("small/run", "table", tmp_path / "results")
        assert rows["name"].tolist() == ["a", "b", "ü"] * 3
        assert np.array_equal(rows["error"], [0.1, np.nan, np.inf] * 3, equal_nan=True)
        assert list(table) == ["n", "half", "cube", "flags", "table.size", "table.name", "table.error"] + [
            "recorded.state",
            "only",
            "not_finite",
            "seconds",
        ]
        assert list(table.attrs) == ["commit", "date", "specification", "device", "versions", "points", "seconds"]
        assert (table.attrs["specification"], table.attrs["points"]) == (spec.read_text(), 3)
        make_notebook(tmp_path / "small.ipynb", RECORDS, "1")
        assert "3 of 3 points have not finished with the present code" in refusal(*command)

    @pytest.mark.parametrize(
        ("values", "kinds"),
        [
            ([1.0, [2.0]], "a list of float here, float there"),
            ([["a"], [2.0]], "a list of float here, a list of str there"),
            ([[True], [2]], "a list of bool here, a list of int there"),
            ([[2**63 + 1], [-1]], "a list of int here, a list of int beyond 2^63 there"),
        ],
    )
    def test_records_of_two_kinds(self, values: list[Any], kinds: str) -> None:
        with pytest.raises(SweepError, match=rf"^record: x is {re.escape(kinds)}; one column holds one kind$"):
            _parquet(pd.DataFrame({"x": values}))

    def test_plot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fields = {"grid": {"n": [1, 2], "mode": ["ok", "raise", "$"]}, "seeds": {"seed": [0, 1]}}
        spec = make_specification(tmp_path, **fields)
        sweep, store = opened(spec, tmp_path / "out")
        frame = pd.DataFrame(sweep.points.values()).assign(square=lambda f: f["n"] ** 2 + f["seed"] / 10)
        last = (frame["n"] == 2) & (frame["seed"] == 1)
        frame["square"] = frame["square"].mask(last, np.inf)
        frame["not_finite"] = np.where(last, "square=inf", "")
        frame["error"] = np.where(frame["mode"] == "raise", "no good", None)
        monkeypatch.setattr("lib.sweep.__main__.collect", lambda sweep, store: frame)
        drawn: list[Any] = []
        savefig = matplotlib.figure.Figure.savefig
        monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda f, *a: (drawn.append(f), savefig(f, *a)))
        common = ["plot", spec, "-o", store.folder, "--y", "square", "--x", "n"]
        invoke(*common, "--where", "mode=ok", "--log", "x", "--to", tmp_path / "p")
        assert (tmp_path / "p.png").exists()
        (ax,) = drawn[-1].axes
        assert np.allclose(ax.lines[0].get_xydata(), [[1, 1.05], [2, 4]])
        assert np.isclose(ax.collections[0].get_paths()[0].vertices[:, 1].max(), 4)
        assert ax.get_ylabel() == "square (1 not finite)"
        invoke(*common, "--by", "mode")  # a dollar begins no formula
        assert [text.get_text() for text in drawn[-1].axes[0].get_legend().get_texts()] == [r"mode = \$", "mode = ok"]
        for options, message in [
            (["--x", "m"], "x: there is no column of numbers"),
            ([], "where: mode varies too; choose one of ['ok', '$']"),
            (["--where", "mode=raise"], "where: no point has mode='raise'; it takes ['ok', '$']"),
            (["--where", "mode"], "where: must be NAME=VALUE"),
        ]:
            assert refusal(*common, *options).startswith(f"error: {message}")

    def test_no_point_yet(self, tmp_path: Path) -> None:
        spec = make_specification(tmp_path, grid={"n": [*range(12)]})
        planned = invoke("plan", spec)
        assert "and 2 more\na point is new if one of these changes: small.ipynb, " in planned
        assert "12 points: 0 finished, 0 failed, 0 running, 12 waiting; time unknown" in planned
        assert "x: there is no column of numbers 'n'" in refusal("plot", spec, "--x", "n", "--y", "root")
        assert not (tmp_path / "sweep-results").exists()


class TestFolders:
    def test_a_folder_belongs_to_a_specification(self, tmp_path: Path) -> None:
        """To its content wherever it lies, and to the same file when it is edited; not to a name."""
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            spec = make_specification(tmp_path / name, grid={"n": [1 if name == "one" else 2]})
        with Store(tmp_path / "out", load_specification(tmp_path / "one" / "spec.yml")).lock():
            pass
        for command in (["run"], ["plan"], ["status"], ["store", "--to", tmp_path / "x"]):
            output = refusal(*command, spec, "-o", tmp_path / "out")
            assert output.startswith(f"error: output: {tmp_path / 'out'} belongs to {tmp_path / 'one' / 'spec.yml'}")
        make_specification(tmp_path / "two", grid={"n": [1]})
        assert "1 waiting" in invoke("status", spec, "-o", tmp_path / "out")
        make_specification(tmp_path / "one", grid={"n": [1, 2, 3]})
        assert "3 waiting" in invoke("status", tmp_path / "one" / "spec.yml", "-o", tmp_path / "out")

    def test_the_commit_is_that_of_the_code(self, tmp_path: Path) -> None:
        def git(*words: str) -> str:
            command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
            return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

        spec = make_specification(tmp_path, "import numpy", "1")
        assert commit_of(load_specification(spec)) == "unknown"
        git("init", "-q")
        git("commit", "-q", "--allow-empty", "-m", "nothing")
        assert commit_of(load_specification(spec)) == "unknown"  # a repository that does not keep the notebook
        git("add", "small.ipynb")
        git("commit", "-q", "-m", "x")
        assert commit_of(load_specification(spec)) == git("rev-parse", "HEAD")
        make_notebook(tmp_path / "small.ipynb", "import lib.device")
        both = commit_of(load_specification(spec)).split(", ")
        assert both[0] == f"{git('rev-parse', 'HEAD')} with changes"
        assert len(both) == 2  # the reader's repository, and the book's
        (tmp_path / "other").mkdir()
        subprocess.run(["mv", ".git", "other"], cwd=tmp_path, check=True)
        assert commit_of(load_specification(spec)) == f"{both[1]} and files outside"

    def test_bad_input_is_one_line_and_status_2(self, tmp_path: Path) -> None:
        spec = make_specification(tmp_path)
        (tmp_path / "file").write_text("")
        assert refusal("plan", tmp_path / "none.yml").startswith("error: specification: ")
        assert refusal("run", spec, "-o", tmp_path / "file" / "x").startswith("error: output: cannot write")
        several = ["--gpus", 1, "--scheduler", "tcp://127.0.0.1:9"]
        assert refusal("run", spec, *several).startswith("error: workers: processes here, GPUs here")

    def test_where_no_worker_can_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without loopback (``unshare -n``), and where no scheduler answers."""
        spec = make_specification(tmp_path)
        monkeypatch.setattr("lib.sweep.points._ANSWER", 1)
        for address in ("tcp://127.0.0.1:9", "nonsense://x"):
            assert refusal("run", spec, "--scheduler", address).startswith("error: scheduler: no answer from")

        def fails(*arguments: Any, **options: Any) -> None:
            raise OSError(101, "Network is unreachable")

        monkeypatch.setattr("socket.create_connection", fails)
        assert refusal("run", spec).startswith("error: workers: cannot start on this machine (127.0.0.1): [Errno 101]")

    @pytest.mark.parametrize(
        ("gpu", "before", "after"),
        [(True, "cpu", "cuda:3"), (False, None, "cpu"), (False, "cuda:1", "cuda:1"), (None, None, None)],
    )
    def test_one_process_per_device(
        self, gpu: bool | None, before: str | None, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SYMMETRY_DEVICE", raising=False)
        if before:
            monkeypatch.setenv("SYMMETRY_DEVICE", before)
        monkeypatch.setattr("distributed.get_worker", lambda: type("Worker", (), {"name": 3}))
        seen: list[str | None] = []

        def see(*arguments: Any) -> dict[str, Any]:
            seen.append(os.environ.get("SYMMETRY_DEVICE"))
            return {"error": None, "terminal": "", "names": []}

        monkeypatch.setattr("lib.sweep.points._attempt", see)
        sweep, store = opened(make_specification(tmp_path), tmp_path / "out")
        execute_point("key", {}, sweep, store.folder, gpu)
        assert seen == [after]


def heed_interrupts() -> None:
    """Undo what a shell does to a program in the background, whose children would not heed Ctrl-C either."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def small_files() -> None:
    """Let no file grow beyond 100 kB, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


class Program:
    """A Python module that runs in a process of its own, with what it writes in a file."""

    def __init__(
        self, log: Path, *arguments: Any, module: str = "lib.sweep", begin: Callable[[], None] = heed_interrupts
    ) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.log = log
        with log.open("w") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "preexec_fn": begin}
            self.process = subprocess.Popen(command, cwd=log.parent, env=environment, start_new_session=True, **streams)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> tuple[int, list[str]]:
        """Wait for the end; return the exit status and what was written after the address of the dashboard."""
        status = self.process.wait(timeout=240)
        return status, [line for line in self.log.read_text().splitlines() if not line.startswith("dashboard: ")]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    """Return the living processes started by a process, directly or not."""
    parents, dead = {}, set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):
            continue
        parents[int(entry.parent.name)] = int(parent)
        if state in "ZX":
            dead.add(int(entry.parent.name))
    found = {pid}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return sorted(found - {pid} - dead)


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def begun(folder: Path) -> bool:
    """Return whether a notebook is being executed."""
    return any(folder.glob("*.running-*.ipynb"))


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the worker processes in /proc")


@needs_proc
def test_kills_leave_the_same_table(tmp_path: Path) -> None:
    """A worker or a kernel of a running sweep and then its driver die by SIGKILL, again and again."""
    fields = {"grid": {"n": [1, 2], "mode": ["ok", "raise"]}, "seeds": {"seed": [0, 1]}}
    spec, folder = make_specification(tmp_path, **fields), tmp_path / "out"
    sweep, reference = opened(spec, tmp_path / "reference")
    execute(sweep, reference)
    expected = same(collect(sweep, reference).assign(commit="unknown"))
    source, killed = random.Random(7), 0
    command = ["run", spec, "-o", folder, "--workers", 2, "--quiet"]
    while killed < 4:
        driver = Program(tmp_path / "log", *command)
        wait_for(lambda d=driver: begun(folder) or not d.running)
        for _ in range(2):
            time.sleep(source.uniform(0, 2))
            if victims := descendants(driver.process.pid):
                os.kill(source.choice(victims), signal.SIGKILL)
                killed += 1
        time.sleep(source.uniform(0, 2))
        killed += driver.running
        driver.kill()
        points = sorted(path for path in folder.glob("*.ipynb") if ".running-" not in path.name)
        for path in points:
            assert json.loads(path.read_text())["metadata"]["sweep"]["key"] == path.name.split(".")[0]
        for path in source.sample(points, min(4, len(points))):
            path.unlink()  # so that the sweep is not over too soon
    status, lines = Program(tmp_path / "log", *command).finish()
    assert status == 1, lines  # the points that raise have failed
    assert any(line.startswith("8 points: ") for line in lines)  # Python may say more of what was killed
    assert same(collect(sweep, Store(folder, sweep)).assign(commit="unknown")) == expected
    assert same(pd.read_parquet(folder / "table.parquet").assign(commit="unknown")) == expected
    assert not begun(folder)


@needs_proc
def test_a_killed_worker_takes_no_point_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One point kills its worker the first time and is taken up by another; one kills them all and is given up."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "1")  # three by default
    # Dask keeps points from waiting at a worker only if there are more than two for each of its workers.
    points = [{"mode": "kill"}, {"mode": "kill", "place": str(tmp_path / "mark")}, *({"n": n} for n in range(3, 7))]
    spec = make_specification(tmp_path, points=points)
    status, lines = Program(tmp_path / "log", "run", spec, "--workers", 2, "--quiet").finish()
    assert status == 1, lines
    assert lines[0] == "failed: mode=kill: its worker died again and again"
    assert lines[1].startswith("6 points: 5 finished now, 0 before, 1 failed, 0 left")
    sweep, store = opened(spec, tmp_path / "sweep-results" / "spec")
    assert collect(sweep, store)["state"].tolist() == ["failed"] + 5 * ["finished"]
    log = store.read(next(iter(sweep.points)))["path"].read_text()
    assert "begun" in log  # what the notebook had put out
    status, lines = Program(tmp_path / "log", "run", spec, "--workers", 1, "--failed", "--quiet").finish()
    assert lines[1].startswith("6 points: 0 finished now, 5 before, 1 failed")


@needs_proc
def test_interrupt_is_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    spec = make_specification(tmp_path, grid={"n": [1, 2]}, parameters={"mode": "sleep"})
    driver = Program(tmp_path / "log", "run", spec, "-o", tmp_path / "out", "--workers", 2, "--quiet")
    wait_for(lambda: begun(tmp_path / "out") or not driver.running)
    family = descendants(driver.process.pid)
    os.killpg(driver.process.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
    status, lines = driver.finish()
    assert status == 130, lines
    assert lines == ["", "interrupted; what is finished is kept; the same command goes on from there"]
    wait_for(lambda: not any(b"python" in command_line(pid) for pid in family))


@needs_proc
def test_while_a_sweep_runs(tmp_path: Path) -> None:
    """Its notebook can be read, a second driver is refused, and a change of the notebook ends it."""
    place, folder = tmp_path / "go", tmp_path / "out"
    spec = make_specification(tmp_path, grid={"n": [1, 2, 3]}, parameters={"mode": "wait", "place": str(place)})
    command = ["run", spec, "-o", folder, "--workers", 1, "--quiet"]
    driver = Program(tmp_path / "log", *command)
    wait_for(lambda: begun(folder) or not driver.running)
    (path,) = folder.glob("*.running-*.ipynb")
    wait_for(lambda: path.read_text().count('"running"') == 1)
    status = invoke("status", spec, "-o", folder)
    assert "3 points: 0 finished, 0 failed, 1 running, 2 waiting" in status
    assert f"running: mode=wait, place={place}, n=1 (notebook so far: {path})" in status
    second = Program(tmp_path / "log2", *command).finish()
    assert second == (2, [f"error: output: another sweep is running in {folder}"])
    make_notebook(tmp_path / "small.ipynb", BODY, END.replace("n * n", "n + n"))
    place.touch()
    status, lines = driver.finish()
    assert status == 2
    assert lines == [
        "error: notebook: it, a module that it imports or a file it depends on changed while the sweep ran; "
        "what had finished is kept, and the same command goes on from there"
    ]
    assert not any(folder.glob("*.ipynb"))


def test_a_full_disk(tmp_path: Path) -> None:
    """What is written whole stays; the rest is one line."""
    spec = make_specification(tmp_path, points=[{"mode": "ok"}, {"mode": "large"}])
    command = ["run", spec, "-o", tmp_path / "out", "--workers", 1, "--quiet"]
    status, lines = Program(tmp_path / "log", *command, begin=small_files).finish()
    line = f"error: output: cannot write to {tmp_path / 'out'}: File too large (--output names another folder)"
    assert (status, lines) == (2, [line])
    assert len(list((tmp_path / "out").glob("*.ipynb"))) == 1
    status, lines = Program(tmp_path / "log", *command).finish()
    assert lines[0].startswith("2 points: 1 finished now, 1 before, 0 failed, 0 left")


def without_privileges() -> list[str]:
    """Return what makes a command of root heed the permissions of files."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to run without that right")
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]


def test_a_folder_and_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    """As in a checkout that belongs to another user."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    spec = make_specification(folder, grid={"n": [3]})
    command = [*without_privileges(), sys.executable, "-m", "lib.sweep", "run", spec, "--workers", "1", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    folder.chmod(0o555)
    refused = subprocess.run(command, **options)
    place = f"{folder}/sweep-results/spec"
    line = f"error: output: cannot write to {place}: Permission denied (--output names another folder)\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", line)
    done = subprocess.run([*command, "-o", tmp_path / "mine"], **options)
    assert done.returncode == 0, done.stderr
    (tmp_path / "mine" / ".lock").chmod(0o444)  # the lock of another user
    locked = subprocess.run([*command, "-o", tmp_path / "mine"], **options)
    assert locked.stderr == line.replace(place, f"{tmp_path}/mine")


def test_workers_joined_to_a_running_scheduler(tmp_path: Path) -> None:
    """Two workers and a scheduler started by themselves on the loopback interface; at last the scheduler dies."""
    place, folder = tmp_path / "scheduler.json", tmp_path / "out"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", place]
    programs = [Program(tmp_path / "log", "scheduler", *options, module="dask")]
    try:
        wait_for(lambda: place.exists() and place.read_text().strip().endswith("}"))
        address = json.loads(place.read_text())["address"]
        local = ["--nthreads", "1", "--no-dashboard", "--local-directory", tmp_path / "scratch", "--host", "127.0.0.1"]
        for name in ("left", "right"):
            programs.append(Program(tmp_path / name, "worker", address, *local, "--name", name, module="dask"))
        common = ["-o", folder, "--scheduler", address, "--quiet"]
        status, lines = Program(
            tmp_path / "d", "run", make_specification(tmp_path, grid={"n": [1, 2, 3, 4]}), *common
        ).finish()
        assert status == 0
        assert lines[-1].startswith("4 points: 4 finished now")
        assert pd.read_parquet(folder / "table.parquet")["square"].tolist() == [1, 4, 9, 16]
        spec = make_specification(tmp_path, grid={"n": [1, 2, 3]}, parameters={"mode": "sleep"})
        driver = Program(tmp_path / "d", "run", spec, *common)
        wait_for(lambda: begun(folder) or not driver.running)
        programs.pop(0).kill()
        status, lines = driver.finish()
        assert status == 2
        kept = "what had finished is kept, and the same command goes on from there"
        assert lines == [f"error: scheduler: lost; {kept}"]
        assert "0 finished, 0 failed, 0 running, 3 waiting" in invoke("status", spec, "-o", folder)
    finally:
        for program in reversed(programs):
            program.kill()
