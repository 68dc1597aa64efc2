"""Sweeps that run: records, failures, limits, resumption after any kill, the table, the plot and the command line."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from click.testing import CliRunner

from lib.page import results
from lib.page.evidence import MIME_TYPE as EVIDENCE
from lib.sweep import Store, SweepError, collect, load_specification, plot, run
from lib.sweep.__main__ import main
from lib.sweep.notebook import BOOK
from lib.sweep.store import code_digest, point_keys
from lib.sweep.table import plan, store_result, write_table
from lib.sweep.worker import Task, _prepare, execute_point, read_results

ROOT = BOOK.parent
PARAMETERS = "n: int = 1\nrate: float = 0.5\nmode: str = 'ok'\nseed: int = 0\nplace: str = ''\n"
BODY = """
import os, time
from lib.page.results import record
if mode == "raise":
    raise RuntimeError("no good: n = %d" % n)
if mode == "sleep":
    time.sleep(60)
if mode == "wait":
    while not os.path.exists(place):
        time.sleep(0.05)
    place = ""
if mode == "die":
    os.kill(os.getpid(), 9)
if mode == "kill" and not os.path.exists(place):
    if place:
        open(place, "w").close()
    os.kill(os.getppid(), 9)
if mode == "memory":
    bytes(10**15)
if mode == "once":
    if not os.path.exists(place):
        open(place, "w").close()
        raise RuntimeError("the first time fails")
if place:
    with open(place, "a") as file:
        file.write("x")
record("square", n * n + seed / 10)
record("root", n ** 0.5)
"""
NUMBERS = ["square", "root"]


def make_notebook(path: Path, body: str = BODY) -> Path:
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    parameters = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [parameters, nbformat.v4.new_code_cell(body)]
    nbformat.write(notebook, path)
    return path


def make_specification(folder: Path, **fields: Any) -> Path:
    if not (folder / "small.ipynb").exists():
        make_notebook(folder / "small.ipynb")
    path = folder / "spec.yml"
    path.write_text(yaml.safe_dump({"notebook": "small.ipynb"} | fields, sort_keys=False))
    return path


def execute(sweep: Any, store: Store) -> list[dict[str, Any]]:
    """Run all points of a sweep in this process, without Dask."""
    spec = sweep.specification
    tasks = [Task(k, p, sweep.notebook, store.folder, spec.limit, spec.retries) for k, p in point_keys(sweep).items()]
    store.prepare()
    return [execute_point(task) for task in tasks]


def same(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what has to be equal in two tables of one sweep: all but times and attempts."""
    return table.drop(columns=["seconds", "attempts"]).replace({np.nan: None}).to_dict("records")


class TestOnePoint:
    @pytest.mark.parametrize(
        ("mode", "error"),
        [
            ("raise", "cell 2: RuntimeError: no good: n = 1"),
            ("memory", "cell 2: MemoryError"),
            ("die", "the kernel died"),
            ("sleep", "took more than 1.5 s"),
        ],
    )
    def test_failures_are_recorded_with_their_notebook(self, tmp_path: Path, mode: str, error: str) -> None:
        limit = 1.5 if mode == "sleep" else 60.0
        sweep = load_specification(make_specification(tmp_path, parameters={"mode": mode}, limit=limit))
        store = Store(tmp_path / "out")
        (record,) = execute(sweep, store)
        assert record["state"] == "failed"
        assert error in record["error"].replace("cell 3", "cell 2")
        assert record["numbers"] == {}
        assert store.read(record["key"]) == record
        with (store.points / f"{record['key']}.ipynb").open() as file:
            assert nbformat.read(file, 4).cells[-1].source == BODY
        assert sorted(p.suffix for p in store.points.iterdir()) == [".ipynb", ".json"]

    def test_retries(self, tmp_path: Path) -> None:
        parameters = {"mode": "once", "place": str(tmp_path / "mark")}
        specification = make_specification(tmp_path, parameters=parameters, retries=2)
        (record,) = execute(load_specification(specification), Store(tmp_path / "out"))
        assert (record["state"], record["attempts"]) == ("finished", 2)

    @pytest.mark.parametrize(("deaths", "state"), [(2, "finished"), (3, "failed")])
    def test_a_kernel_that_dies_before_its_first_word(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, state: str
    ) -> None:
        """Its ports were taken by another program: no cell has run, and the point begins again, but not for ever."""
        import papermill

        left, execute_notebook = [None] * deaths, papermill.execute_notebook

        def dies(*arguments: Any, **options: Any) -> Any:
            if left:
                left.pop()
                raise RuntimeError("Kernel died before replying to kernel_info")
            return execute_notebook(*arguments, **options)

        monkeypatch.setattr(papermill, "execute_notebook", dies)
        (record,) = execute(load_specification(make_specification(tmp_path)), Store(tmp_path / "out"))
        assert (record["state"], record["attempts"], left) == (state, 1, [])

    def test_a_finished_point_is_never_run_again_and_a_failed_one_is(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        sweep = load_specification(make_specification(tmp_path, parameters={"mode": "once", "place": str(mark)}))
        store = Store(tmp_path / "out")
        assert execute(sweep, store)[0]["state"] == "failed"
        first = execute(sweep, store)
        assert first[0]["state"] == "finished"
        assert execute(sweep, store) == first
        assert mark.read_text() == "x"

    def test_code_that_changes_while_the_point_runs(self, tmp_path: Path) -> None:
        sweep, store = load_specification(make_specification(tmp_path)), Store(tmp_path / "out")
        ((key, point),) = point_keys(sweep).items()
        store.prepare()
        with pytest.raises(SweepError, match=r"^notebook: .* has changed since the sweep began"):
            execute_point(Task(key, point, sweep.notebook, store.folder, code="another digest"))
        assert not any(store.points.iterdir())
        again = execute_point(Task(key, point, sweep.notebook, store.folder, code=code_digest(sweep.notebook)))
        assert again["state"] == "finished"

    def test_braces_in_a_path(self, tmp_path: Path) -> None:
        folder = tmp_path / "{n}"
        folder.mkdir()
        (record,) = execute(load_specification(make_specification(folder)), Store(folder / "{out}"))
        assert record["state"] == "finished", record["error"]

    def test_numbers_of_a_chapter(self) -> None:
        numbers = read_results(nbformat.read(BOOK / "stability_of_augmentation.ipynb", 4))
        assert numbers["A3.holds"] == 1
        assert numbers["A3.hessian_difference"] < 1e-8 < numbers["A3.hessian_difference.control"]

    def test_numbers_that_are_not_finite_are_kept(self) -> None:
        data = {results.MIME_TYPE: {"name": "x", "value": "inf"}}
        evidence = {"id": "A1", "holds": True, "measured": {"c": {"worst": "nan", "median": 1}}}
        evidence["control"] = {"c": {"worst": 2}}
        outputs = [{"data": data}, {"data": {EVIDENCE: evidence}}, {"name": "stdout"}]
        numbers = read_results({"cells": [{"cell_type": "code", "outputs": outputs}]})
        assert numbers == {"x": "inf", "A1.c": "nan", "A1.holds": 1, "A1.c.median": 1, "A1.c.control": 2}

    def test_nan_and_infinity_are_seen_in_the_table_and_in_the_plot(self, tmp_path: Path) -> None:
        body = "from lib.page.results import record\nrecord('a', [float('nan'), float('inf'), 7][n])\nrecord('b', n)"
        make_notebook(tmp_path / "small.ipynb", body)
        sweep = load_specification(make_specification(tmp_path, grid={"n": [0, 1, 2]}))
        store = Store(tmp_path / "out")
        assert {record["state"] for record in execute(sweep, store)} == {"finished"}
        table = collect(sweep, store)
        assert table["not_finite"].tolist()[:2] == ["a=nan", "a=inf"]
        assert table["a"].tolist()[1:] == [np.inf, 7]
        write_table(table, store)
        assert pd.read_csv(store.folder / "table.csv")["not_finite"].count() == 2
        (ax,) = plot(sweep, table, "n", "a").axes
        assert ax.get_ylabel() == "a (2 not finite)"
        assert ax.lines[0].get_xydata().tolist() == [[2, 7]]
        assert plot(sweep, table, "n", "b").axes[0].get_ylabel() == "b"

    def test_a_name_recorded_twice(self, tmp_path: Path) -> None:
        body = "from lib.page.results import record\nfor k in range(2):\n    record('a', k)"
        make_notebook(tmp_path / "small.ipynb", body)
        (record,) = execute(load_specification(make_specification(tmp_path)), Store(tmp_path / "out"))
        assert record["state"] == "failed"
        assert record["error"] == "ValueError: the notebook records 'a' twice; a column has one number per point"
        evidence = {"id": "A1", "holds": True, "measured": {}, "control": {}}
        outputs = [{"data": {EVIDENCE: evidence}}] * 2
        with pytest.raises(ValueError, match=r"records 'A1\.holds' twice"):
            read_results({"cells": [{"cell_type": "code", "outputs": outputs}]})


class TestStored:
    BODY = """
import numpy as np, pandas as pd, torch
from lib.page.results import record
record("half", 0.5)
record("cube", torch.arange(12, dtype=torch.float64).reshape(2, 3, 2) * n + 0.1)
record("flags", np.array([True, False]))
record("table", pd.DataFrame({"size": [1, 2, 3], "name": ["a", "b", "ü"], "error": [0.1, np.nan, np.inf]}))
"""

    def test_what_is_recorded_is_read_back(self, tmp_path: Path) -> None:
        """Numbers, arrays and tables come back exactly, over all points, with the provenance of the run."""
        make_notebook(tmp_path / "small.ipynb", self.BODY)
        path = make_specification(tmp_path, grid={"n": [1, 2]})
        sweep, store = load_specification(path), Store(tmp_path / "out")
        with pytest.raises(SweepError, match="2 of 2 points have not finished"):
            store_result(sweep, store, path, tmp_path / "results" / "small" / "run.parquet")
        assert {record["state"] for record in execute(sweep, store)} == {"finished"}
        store_result(sweep, store, path, tmp_path / "results" / "small" / "run.parquet")
        table = results.stored("small/run", folder=tmp_path / "results")
        assert table["n"].tolist() == [1, 2]
        assert table["half"].tolist() == [0.5, 0.5]
        for n, cube in zip(table["n"], table["cube"], strict=True):
            assert np.array_equal(cube, np.arange(12).reshape(2, 3, 2) * n + 0.1)
        assert table["flags"][0].tolist() == [True, False]
        rows = results.stored("small/run", "table", tmp_path / "results")
        assert list(rows) == ["n", "half", "size", "name", "error"]
        assert rows["n"].tolist() == [1, 1, 1, 2, 2, 2]
        assert rows["size"].tolist() == [1, 2, 3] * 2
        assert rows["name"].tolist() == ["a", "b", "ü"] * 2
        assert np.array_equal(rows["error"], [0.1, np.nan, np.inf] * 2, equal_nan=True)
        assert rows.attrs == table.attrs
        with pytest.raises(ValueError, match=r"table must be one of \['table'\], got 'tabel'"):
            results.stored("small/run", "tabel", tmp_path / "results")
        attrs = table.attrs
        assert {"commit", "date", "specification", "device", "versions", "points", "seconds"} <= attrs.keys()
        assert attrs["specification"] == path.read_text()
        assert attrs["points"] == 2
        assert not {"key", "state", "error", "repeat"} & set(table.columns)
        assert "cube" not in pd.read_csv(write_table(collect(sweep, store), store)[1])

    def test_a_table_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"name must be one of \[\], got 'small/run'"):
            results.stored("small/run", folder=tmp_path)


class TestRecord:
    @pytest.mark.parametrize("value", [2, 0.5, np.float64(0.5), torch.tensor(0.5), float("inf")])
    def test_accepts_one_real_number(self, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: list[dict] = []
        monkeypatch.setattr(results, "show", shown.append)
        results.record("x_1", value)
        assert float(shown[0][results.MIME_TYPE]["value"]) == float(value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("X", 1),
            ("", 1),
            ("a.b", 1),
            (3, 1),
            ("x", "1"),
            ("x", None),
            ("x", 1j),
            ("x", [[1], [2, 3]]),
            ("x", ["a", 1]),
            ("x", pd.DataFrame()),
        ],
    )
    def test_refuses_the_rest(self, name: Any, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^(name|value)"):
            results.record(name, value)


class TestKeys:
    def test_every_ingredient_changes_the_key(self, tmp_path: Path) -> None:
        def keys(**fields: Any) -> list[str]:
            return list(point_keys(load_specification(make_specification(tmp_path, **fields))))

        base = keys(grid={"n": [1, 2]}, repeats=2)
        assert len(set(base)) == 4
        assert set(keys(grid={"n": [2, 1]}, repeats=2)) == set(base)
        assert set(keys(grid={"n": [1, 2]})) < set(base)
        assert not set(keys(grid={"n": [1, 2]}, parameters={"rate": 0.1})) & set(base)
        make_notebook(tmp_path / "small.ipynb", BODY + "\n# another line")
        assert not set(keys(grid={"n": [1, 2]})) & set(base)

    def test_prose_and_outputs_do_not_change_the_digest(self, tmp_path: Path) -> None:
        path = make_notebook(tmp_path / "a.ipynb")
        before = code_digest(path)
        notebook = nbformat.read(path, 4)
        notebook.cells.append(nbformat.v4.new_markdown_cell("words"))
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="out")]
        nbformat.write(notebook, path)
        assert code_digest(path) == before

    def test_the_digest_follows_imports(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "lib"
        (package / "inner").mkdir(parents=True)
        for name in ("__init__", "a", "b", "c", "inner/__init__", "inner/d"):
            (package / f"{name}.py").write_text("")
        (package / "a.py").write_text("from lib import b\n")
        (package / "b.py").write_text("def f():\n    import lib.inner.d\n")
        monkeypatch.setattr("lib.sweep.store.LIB", package)
        path = make_notebook(tmp_path / "x.ipynb", "%matplotlib inline\nfrom lib.a import something")
        before = code_digest(path)
        (package / "c.py").write_text("x = 1")
        assert code_digest(path) == before
        for name in ("a", "b", "inner/d"):
            with (package / f"{name}.py").open("a") as file:
                file.write("x = 1\n")
            assert code_digest(path) != before
            before = code_digest(path)

    def test_a_cell_that_is_not_python(self, tmp_path: Path) -> None:
        with pytest.raises(SweepError, match="has a cell that is not Python"):
            code_digest(make_notebook(tmp_path / "x.ipynb", "this is not"))


class TestStore:
    @pytest.mark.parametrize("content", ["", "{", "[]", '{"key": "other"}', "null"])
    def test_what_is_not_a_whole_record_is_no_record(self, tmp_path: Path, content: str) -> None:
        store = Store(tmp_path)
        store.prepare()
        (store.points / "k.json").write_text(content)
        assert store.read("k") is None

    @pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
    def test_a_finished_point_without_its_notebook_runs_again(self, tmp_path: Path, damage: str) -> None:
        sweep, store = load_specification(make_specification(tmp_path)), Store(tmp_path / "out")
        (record,) = execute(sweep, store)
        path = store.points / f"{record['key']}.ipynb"
        content = path.read_text()
        if damage == "missing":
            path.unlink()
        else:
            path.write_text(content[:-100] if damage == "truncated" else content.replace("no good", "so good"))
        (row,) = collect(sweep, store).to_dict("records")
        assert (row["state"], row["error"]) == ("failed", "its notebook is missing, damaged or changed since it ran")
        assert "square" not in row
        assert execute(sweep, store)[0]["state"] == "finished"
        assert collect(sweep, store)["square"].tolist() == [1]
        nbformat.read(path, 4)

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(SweepError, match="output: cannot write"):
            Store(tmp_path / "file" / "out").prepare()
        assert Store(tmp_path / "file" / "out").read("k") is None

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = Store(tmp_path)
        store.prepare()
        record = dict.fromkeys(["state", "parameters", "repeat", "numbers", "seconds", "attempts", "device", "error"])
        record |= {"key": "k", "versions": {}}
        stored = store.write(record, None)
        temporary = store.temporary

        def full(*arguments: str) -> Path:
            path = temporary(*arguments)
            path.symlink_to("/dev/full")
            return path

        monkeypatch.setattr(store, "temporary", full)
        for write in (store.prepare, lambda: store.write(record | {"device": "x"}, None)):
            with pytest.raises(SweepError, match=r"^output: cannot write to .*: No space left on device \(--output"):
                write()
        assert store.read("k") == stored
        assert [path.name for path in store.points.iterdir()] == ["k.json"]

    def test_one_driver_at_a_time(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        with store.lock(), pytest.raises(SweepError, match="another sweep is running"):
            store.lock()
        store.lock().release()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Store]:
    """A sweep of twelve points, all but two of which finish."""
    folder = tmp_path_factory.mktemp("finished")
    fields = {"grid": {"n": [1, 2, 4], "mode": ["ok", "raise"]}, "seeds": {"seed": [0, 1]}, "title": "twelve"}
    sweep, store = load_specification(make_specification(folder, **fields)), Store(folder / "out")
    execute(sweep, store)
    return sweep, store


class TestTable:
    def test_one_row_per_point(self, finished: tuple[Any, Store]) -> None:
        sweep, store = finished
        table = collect(sweep, store)
        expected = list(itertools.product([1, 2, 4], ["ok", "raise"], [0, 1]))
        assert list(table[["n", "mode", "seed"]].itertuples(index=False, name=None)) == expected
        good = table[table["mode"] == "ok"]
        assert (good["square"] == good["n"] ** 2 + good["seed"] / 10).all()
        assert (table["state"] == np.where(table["mode"] == "ok", "finished", "failed")).all()
        assert {"seconds", "device", "error", "version.torch", "version.lib"} < set(table.columns)
        assert plan(sweep, store)["failed"] == 6

    def test_both_files_hold_the_same(self, finished: tuple[Any, Store], tmp_path: Path) -> None:
        sweep, store = finished
        result = CliRunner().invoke(main, ["collect", str(sweep.notebook.parent / "spec.yml"), "-o", str(store.folder)])
        assert result.exit_code == 0, result.output
        csv, parquet = pd.read_csv(store.folder / "table.csv"), pd.read_parquet(store.folder / "table.parquet")
        pd.testing.assert_frame_equal(csv[["n", "seed", *NUMBERS]], parquet[["n", "seed", *NUMBERS]])

    def test_plot_shows_mean_and_band(self, finished: tuple[Any, Store]) -> None:
        sweep, store = finished
        table = collect(sweep, store)
        (ax,) = plot(sweep, table, "n", "square", where={"mode": "ok"}, log="x").axes
        assert np.allclose(ax.lines[0].get_xydata(), [[1, 1.05], [2, 4.05], [4, 16.05]])
        band = ax.collections[0].get_paths()[0].vertices
        assert np.isclose(band[:, 1].min(), 1)
        assert np.isclose(band[:, 1].max(), 16.1)
        (ax,) = plot(sweep, table, "n", "root", by="seed").axes
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["seed = 0", "seed = 1"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"x": "m", "y": "root"}, "x: there is no column of numbers"),
            ({"x": "n", "y": "mode"}, "y: there is no column of numbers"),
            ({"x": "n", "y": "root", "by": "m"}, "by: "),
            ({"x": "seed", "y": "root"}, "where: n varies too"),
            ({"x": "n", "y": "root", "where": {"n": 3}}, "where: no point has n=3"),
            ({"x": "n", "y": "root", "where": {"m": 3}}, "where: there is no column"),
            ({"x": "n", "y": "root", "where": {"mode": None}}, "where: no point has mode=None; it takes"),
            ({"x": "n", "y": "root", "where": {"n": [1, 2]}}, "where: no point has n="),
            ({"x": "n", "y": "root", "log": "z"}, "log: must be"),
        ],
    )
    def test_a_plot_that_cannot_be(self, finished: tuple[Any, Store], options: dict, message: str) -> None:
        sweep, store = finished
        with pytest.raises(SweepError, match=message):
            plot(sweep, collect(sweep, store), **options)

    def test_points_that_differ_in_what_they_record(self, tmp_path: Path) -> None:
        points = [{"mode": "ok", "n": 2}, {"rate": 0.1}, {"rate": 0.2}, {"rate": 0.3}]
        sweep, store = load_specification(make_specification(tmp_path, points=points)), Store(tmp_path / "out")
        store.prepare()
        words = {"dtype": "text", "shape": [1], "data": ["a"]}
        results = [{"square": 4.0, "n": 9.0}, {"square": 1.0, "state": 5.0, "version.x": 7.0}, {"other": 3.0}]
        for (key, point), numbers in zip(point_keys(sweep).items(), [*results, {"words": words}], strict=True):
            record = {"key": key, "parameters": point.parameters, "repeat": 0, "state": "finished", "error": None}
            store.write(
                record | {"numbers": numbers, "seconds": 1.0, "attempts": 1, "device": "", "versions": {"x": "2"}}, None
            )
        table = collect(sweep, store)
        assert table["square"].tolist()[:2] == [4, 1]
        assert table["other"].count() == 1
        assert (table["recorded.n"][0], table["recorded.state"][1], table["recorded.version.x"][1]) == (9, 5, 7)
        assert set(table["version.x"]) == {"2"}
        assert table["n"].count() == 1
        write_table(table, store)
        plot(sweep, table, "rate", "square")
        with pytest.raises(SweepError, match="y: no point that is left has n, other"):
            plot(sweep, table, "n", "other")
        for options in ({"by": "words"}, {"where": {"words": "a"}}):  # a list is no value of a line or a choice
            with pytest.raises(SweepError, match="there is no column"):
                plot(sweep, table, "rate", "square", **options)

    def test_no_point_yet(self, finished: tuple[Any, Store], tmp_path: Path) -> None:
        sweep, _ = finished
        empty = Store(tmp_path / "none")
        table = collect(sweep, empty)
        assert table.empty
        assert {"key", "state", "n", "mode", "seed", "seconds"} <= set(table.columns)
        with pytest.raises(SweepError, match="no point has finished"):
            plot(sweep, table, "n", "root")
        assert not (tmp_path / "none").exists()


class TestCommands:
    def invoke(self, *arguments: Any, status: int = 0) -> str:
        result = CliRunner().invoke(main, [str(a) for a in arguments])
        assert result.exit_code == status, result.output
        return result.output

    def test_plan_and_status(self, finished: tuple[Any, Store], tmp_path: Path) -> None:
        sweep, store = finished
        spec = sweep.notebook.parent / "spec.yml"
        fresh = self.invoke("plan", spec, "-o", tmp_path / "new")
        assert "12 points: 0 finished, 0 failed, 12 waiting; time unknown" in fresh
        assert "and 2 more" in fresh
        assert not (tmp_path / "new").exists()
        assert "6 finished, 6 failed, 0 waiting; about" in self.invoke("plan", spec, "-o", store.folder)
        listed = self.invoke("status", spec, "-o", store.folder)
        assert "failed: n=2, mode=raise, seed=1: cell" in listed

    def test_list(self, finished: tuple[Any, Store], tmp_path: Path) -> None:
        sweep, _ = finished
        (sweep.notebook.parent / "bad.yml").write_text("notebook: 3")
        listed = self.invoke("list", sweep.notebook.parent)
        assert "spec.yml: 12 points of small: twelve" in listed
        assert "bad.yml: not valid: notebook:" in listed

    def test_plot_writes_a_picture(self, finished: tuple[Any, Store], tmp_path: Path) -> None:
        sweep, store = finished
        common = [sweep.notebook.parent / "spec.yml", "-o", store.folder, "--x", "n", "--y", "root"]
        self.invoke("plot", *common, "--where", "mode=ok", "--to", tmp_path / "p.svg")
        assert (tmp_path / "p.svg").read_text().lstrip().startswith("<?xml")
        assert "to: cannot write" in self.invoke("plot", *common, "--to", tmp_path / "no" / "p.png", status=2)
        assert "where: the value of mode is not YAML" in self.invoke("plot", *common, "--where", "mode=[", status=2)
        self.invoke("plot", *common, "--where", "mode=ok", "--to", tmp_path / "no_ending")
        assert (tmp_path / "no_ending.png").exists()
        assert "where: must be NAME=VALUE" in self.invoke("plot", *common, "--where", "mode", status=2)

    def test_clean_removes_what_no_present_point_needs(self, tmp_path: Path) -> None:
        sweep = load_specification(make_specification(tmp_path, grid={"n": [1, 2]}))
        store = Store(tmp_path / "out")
        execute(sweep, store)
        spec = make_specification(tmp_path, grid={"n": [2, 3]})
        store.temporary("left").write_text("")
        (store.points / "mine.json").write_text("not a record: it stays")
        assert "removed 3 files" in self.invoke("clean", spec, "-o", store.folder)
        assert plan(load_specification(spec), store)["finished"] == 1
        self.invoke("clean", spec, "-o", store.folder, "--all", status=1)
        assert "removed 2 files" in self.invoke("clean", spec, "-o", store.folder, "--all", "--yes")
        assert [path.name for path in store.points.iterdir()] == ["mine.json"]

    @pytest.mark.parametrize("command", ["run", "plan", "status", "collect", "clean"])
    def test_bad_input_is_one_line_and_status_2(self, tmp_path: Path, command: str) -> None:
        output = self.invoke(command, tmp_path / "none.yml", status=2)
        assert output.startswith("error: specification: ")
        assert output.count("\n") == 1

    def test_unwritable_output(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        spec = make_specification(tmp_path)
        assert "error: output: " in self.invoke("run", spec, "-o", tmp_path / "file" / "x", status=2)
        assert "error: output: " in self.invoke("run", spec, "-o", tmp_path / "file", status=2)
        (tmp_path / "locked" / ".lock").mkdir(parents=True)
        assert "error: output: cannot lock" in self.invoke("run", spec, "-o", tmp_path / "locked", status=2)

    @pytest.mark.parametrize(
        ("name", "problem", "reason"),
        [
            ("socket.create_connection", OSError(101, "Network is unreachable"), "[Errno 101] Network is unreachable"),
            ("distributed.LocalCluster", RuntimeError("no\nroom"), "no room"),
        ],
    )
    def test_a_machine_on_which_no_worker_can_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: Exception, reason: str
    ) -> None:
        """Without loopback (``unshare -n``), or without any place for temporary files."""

        def fails(*arguments: Any, **options: Any) -> None:
            raise problem

        monkeypatch.setattr(name, fails)
        output = self.invoke("run", make_specification(tmp_path), "-o", tmp_path / "out", status=2)
        assert output == f"error: workers: cannot start on this machine (127.0.0.1): {reason}\n"

    def test_a_scheduler_that_does_not_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lib.sweep.driver._ANSWER", 1)
        spec = make_specification(tmp_path)
        for address in ("tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1:9"):
            output = self.invoke("run", spec, "-o", tmp_path / "out", "--scheduler", address, status=2)
            assert "error: scheduler: no answer from" in output


def heed_interrupts() -> None:
    """Undo what a shell does to a program in the background, whose children would not heed Ctrl-C either."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """A Python module that runs in a process of its own, with what it writes in a file."""

    def __init__(self, log: Path, *arguments: Any, module: str = "lib.sweep") -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.log = log
        with log.open("w") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "preexec_fn": heed_interrupts}
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **streams)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and all that was written."""
        status = self.process.wait(timeout=240)
        return status, self.log.read_text()

    def workers(self) -> list[int]:
        """Return the Dask workers among the processes it started."""
        return [pid for pid in descendants(self.process.pid) if b"spawn_main" in command_line(pid)]


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


def begun(store: Store) -> bool:
    """Return whether a notebook has left a first trace."""
    return any(store.points.glob(".*.ipynb"))


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the worker processes in /proc")


@needs_proc
def test_twelve_kills_leave_the_same_table(finished: tuple[Any, Store], tmp_path: Path) -> None:
    """Three times a worker or a kernel of a running sweep and then its driver die by SIGKILL, and so on to twelve."""
    sweep, reference = finished
    expected = same(collect(sweep, reference))
    source, store, killed = random.Random(7), Store(tmp_path / "out"), 0
    command = ["run", sweep.notebook.parent / "spec.yml", "-o", store.folder, "--workers", 2, "--quiet"]
    while killed < 12:
        driver, start = Program(tmp_path / "log", *command), time.monotonic()
        wait_for(lambda d=driver: d.workers() or not d.running)
        pause = (time.monotonic() - start) / 2  # longer where all takes longer
        if source.random() < 0.7:
            wait_for(lambda d=driver: begun(store) or not d.running)
        for _ in range(3):
            time.sleep(source.uniform(0, pause))
            if victims := descendants(driver.process.pid):
                os.kill(source.choice(victims), signal.SIGKILL)
                killed += 1
        time.sleep(source.uniform(0, pause))
        killed += driver.running
        driver.kill()
        for path in store.points.glob("[!.]*.json"):
            assert json.loads(path.read_text())["key"] == path.stem
        records = sorted(store.points.glob("[!.]*"))
        for path in source.sample(records, min(6, len(records))):
            path.unlink(missing_ok=True)  # so that the sweep is not over too soon
    status, output = Program(tmp_path / "log", *command).finish()
    assert status == 1, output  # the points that raise are recorded as failed
    assert "12 points" in output
    assert same(collect(sweep, store)) == expected
    assert same(pd.read_parquet(store.folder / "table.parquet")) == expected
    assert not any(store.points.glob(".*"))


@needs_proc
def test_a_killed_worker_takes_no_point_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One point kills its worker the first time and is taken up by another; one kills them all and is given up."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "1")  # three by default
    # Dask keeps points from waiting at a worker only if there are more than two for each of its workers.
    points = [{"mode": "kill"}, {"mode": "kill", "place": str(tmp_path / "mark")}, *({"n": n} for n in range(3, 7))]
    spec = make_specification(tmp_path, points=points)
    store = Store(tmp_path / "out")
    status, output = Program(tmp_path / "log", "run", spec, "-o", store.folder, "--workers", 2, "--quiet").finish()
    assert status == 1, output
    assert "failed: mode=kill: its worker died again and again" in output
    assert "6 points: 5 finished now, 0 before, 1 failed, 0 left" in output
    assert collect(load_specification(spec), store)["state"].tolist() == ["failed"] + 5 * ["finished"]


@needs_proc
def test_interrupt_is_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    spec = make_specification(tmp_path, grid={"n": [1, 2]}, parameters={"mode": "sleep"})
    store = Store(tmp_path / "out")
    driver = Program(tmp_path / "log", "run", spec, "-o", store.folder, "--workers", 2, "--quiet")
    wait_for(lambda: begun(store) or not driver.running)
    family = descendants(driver.process.pid)
    os.killpg(driver.process.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
    status, output = driver.finish()
    assert status == 130, output
    assert output.splitlines()[1:] == ["", "interrupted; what is finished is kept; the same command goes on from there"]
    wait_for(lambda: not any(b"python" in command_line(pid) for pid in family))


def test_two_drivers_on_one_folder(tmp_path: Path) -> None:
    place = tmp_path / "go"
    spec = make_specification(tmp_path, grid={"n": [1, 2]}, parameters={"mode": "wait", "place": str(place)})
    store = Store(tmp_path / "out")
    command = ["run", spec, "-o", store.folder, "--workers", 1, "--quiet"]
    first = Program(tmp_path / "log1", *command)
    wait_for(lambda: begun(store) or not first.running)
    status, output = Program(tmp_path / "log2", *command).finish()
    assert status == 2
    assert output.startswith("error: output: another sweep is running")
    place.touch()
    status, output = first.finish()
    assert status == 0, output
    assert (collect(load_specification(spec), store)["square"] == [1, 4]).all()


@needs_proc
def test_a_notebook_that_changes_while_the_sweep_runs(tmp_path: Path) -> None:
    place = tmp_path / "go"
    spec = make_specification(tmp_path, grid={"n": [1, 2, 3]}, parameters={"mode": "wait", "place": str(place)})
    store = Store(tmp_path / "out")
    command = ["run", spec, "-o", store.folder, "--workers", 1, "--quiet"]
    driver = Program(tmp_path / "log", *command)
    wait_for(lambda: begun(store) or not driver.running)
    make_notebook(tmp_path / "small.ipynb", BODY.replace("n * n", "n + n"))
    place.touch()
    status, output = driver.finish()
    assert status == 2
    assert output.splitlines()[1:] == [
        "error: notebook: it or a module that it imports has changed since the sweep began; "
        "what had finished is kept, and the same command begins anew with the present code"
    ]
    assert not any(store.points.glob("*.json"))
    assert not any(store.points.glob(".*"))


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
    line = (
        f"error: output: cannot write to {folder}/sweep-results/spec: Permission denied (--output names another folder)"
    )
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", line + "\n")
    done = subprocess.run([*command, "-o", tmp_path / "mine"], **options)
    assert done.returncode == 0, done.stderr
    (tmp_path / "mine" / ".lock").chmod(0o444)  # the lock of another user
    locked = subprocess.run([*command, "-o", tmp_path / "mine"], **options)
    assert locked.stderr == f"error: output: cannot lock {tmp_path}/mine/.lock: Permission denied\n"


def test_workers_joined_to_a_running_scheduler(tmp_path: Path) -> None:
    """Two workers and a scheduler started by themselves on the loopback interface; at last the scheduler dies."""
    place = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", place]
    programs = [Program(tmp_path / "log", "scheduler", *options, module="dask")]
    try:
        wait_for(lambda: place.exists() and place.read_text().strip().endswith("}"))
        address = json.loads(place.read_text())["address"]
        local = ["--nthreads", "1", "--no-dashboard", "--local-directory", tmp_path / "scratch", "--host", "127.0.0.1"]
        for name in ("left", "right"):
            programs.append(Program(tmp_path / name, "worker", address, *local, "--name", name, module="dask"))
        sweep = load_specification(make_specification(tmp_path, grid={"n": [1, 2, 3, 4]}))
        store = Store(tmp_path / "out")
        lines: list[str] = []
        outcome = run(sweep, store, scheduler=address, report=lines.append)
        assert (outcome.points, outcome.now, outcome.failures) == (4, 4, [])
        assert lines[0].startswith("dashboard: ")
        assert (collect(sweep, store)["square"] == [1, 4, 9, 16]).all()
        spec = make_specification(tmp_path, grid={"n": [1, 2, 3]}, parameters={"mode": "sleep"})
        driver = Program(tmp_path / "driver", "run", spec, "-o", store.folder, "--scheduler", address, "--quiet")
        wait_for(lambda: begun(store) or not driver.running)
        programs.pop(0).kill()
        status, output = driver.finish()
        assert status == 2
        lost = "error: scheduler: lost; what is finished is kept, and the same command goes on from there"
        assert output.splitlines()[1:] == [lost]
        assert len(list(store.points.glob("[!.]*.json"))) == 4  # no point is blamed for it
    finally:
        for program in reversed(programs):
            program.kill()


class TestDevices:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"gpus": 3}, "gpus: 3 processes need as many GPUs, got 2 of 2"),
            ({"gpus": 1, "workers": 2}, "gpus: 2 processes need as many GPUs, got 1 of 2"),
            ({"gpus": -1}, "gpus: must be an integer of at least 0"),
            ({"workers": 0}, "workers: must be an integer of at least 1"),
            ({"first": 1.5}, "first: must be an integer of at least 1"),
            ({"gpus": 1, "scheduler": "tcp://127.0.0.1:9"}, "gpus: is for this machine"),
            ({"workers": 1, "scheduler": "tcp://127.0.0.1:9"}, "workers: is for this machine"),
        ],
    )
    def test_bad_numbers(self, tmp_path: Path, options: dict, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(SweepError, match=message):
            run(load_specification(make_specification(tmp_path)), Store(tmp_path / "out"), **options)

    @pytest.mark.parametrize(
        ("gpu", "before", "after"),
        [(True, None, "cuda:3"), (True, "cpu", "cuda:3"), (False, None, "cpu"), (False, "cuda:1", "cuda:1")]
        + [(None, None, None), (None, "cuda:1", "cuda:1")],
    )
    def test_one_process_per_device(
        self, gpu: bool | None, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SYMMETRY_DEVICE", before or "")
        if before is None:
            monkeypatch.delenv("SYMMETRY_DEVICE")
        monkeypatch.setattr("distributed.get_worker", lambda: type("Worker", (), {"name": 3}))
        _prepare(Task("key", None, Path(), Path(), gpu=gpu))
        assert os.environ.get("SYMMETRY_DEVICE") == after
        monkeypatch.setenv("SYMMETRY_DEVICE", "")
