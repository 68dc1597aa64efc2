"""Specifications of sweeps: what they expand to, what makes a point new, and that bad ones are answered by one line."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from lib.page.notebooks import find_notebooks
from lib.page.parameters import check_parameters, read_limits
from lib.sweep import Sweep, SweepError, load_specification
from lib.sweep.points import ask_page
from lib.sweep.specification import BOOK, read_parameters

SPECIFICATIONS = sorted((BOOK.parent / "sweeps").rglob("*.yml"))
PARAMETERS = """
n: int = 1
rate: float = 0.5
mode: str = "ok"
sizes: list[int] = [1]
flag: bool = True
pair: tuple[int, int] = (1, 2)
kind: Literal["a", "b", 3] = "a"
most: int | None = None
either: "int | str" = 1
old: typing.Optional[float] = None
options: dict = {}
count = 3
name, other = "x", "y"
share = 0.5
later = None
place = os.getcwd()
"""
LIMITS = "check_parameters(globals(), n=(1, 5), rate=(0.1, None), mode=['ok', 'slow'], sizes=None)"


def write_notebook(path: Path, *sources: str, **metadata: Any) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("specification")
    write_notebook(place / "small.ipynb", PARAMETERS)
    write_notebook(place / "limited.ipynb", PARAMETERS, LIMITS)
    write_notebook(place / "odd.ipynb", PARAMETERS, LIMITS.replace("(1, 5)", "(1, most)"))
    write_notebook(place / "julia.ipynb", "n = 1", kernelspec={"name": "j", "language": "julia", "display_name": "J"})
    write_notebook(place / "other.ipynb", "n = 1", "this is not")
    (place / "broken.ipynb").write_text("{")
    return place


def load(folder: Path, content: Any) -> Sweep:
    path = folder / "spec.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return load_specification(path)


def points(folder: Path, line: str) -> list[dict[str, Any]]:
    return list(load(folder, f"notebook: small.ipynb\n{line}").points.values())


def test_every_combination_appears_once_in_a_fixed_order(folder: Path) -> None:
    line = "parameters: {flag: false}\ngrid: {n: [1, 2]}\npoints: [{mode: a}, {mode: b}]\nseeds: {count: [7, 8]}"
    expected = [{"flag": False, "n": n, "mode": m, "count": c} for n, m, c in itertools.product([1, 2], "ab", [7, 8])]
    assert points(folder, line) == expected
    assert load(folder, f"notebook: small.ipynb\n{line}").swept == ["n", "mode", "count"]
    assert points(folder, "") == [{}]


def test_words_are_those_of_yaml_1_2(folder: Path) -> None:
    words = "yes, No, =, 0b11, 1_000, 1:30, 2020-01-01, 1.2.3, Infinity, <<"
    assert [p["mode"] for p in points(folder, f"grid: {{mode: [{words}]}}")] == words.split(", ")
    assert [p["n"] for p in points(folder, "grid: {n: [010, 0o10, 0x11, +5]}")] == [10, 8, 17, 5]
    assert [p["rate"] for p in points(folder, "grid: {rate: [1e-3, 2E+2, .5e1, 1]}")] == [0.001, 200, 5, 1]
    assert points(folder, "parameters: {flag: TRUE}\nlimit: ~") == [{"flag": True}]


def test_types_are_read_from_the_cell(folder: Path) -> None:
    lines = "kind: [a, 3], most: [null, 4], either: [1, one], old: [null, 1], options: [{a: [1]}]"
    taken = points(folder, f"grid: {{{lines}, count: [4], share: [1], later: [x], place: [here]}}")
    assert len(taken) == 16
    assert taken[-1] == {"kind": 3, "most": 4, "either": "one", "old": 1.0, "options": {"a": [1]}} | {
        "count": 4,
        "share": 1.0,
        "later": "x",
        "place": "here",
    }
    assert type(taken[0]["share"]) is type(taken[-1]["old"]) is float
    check_parameters({"__annotations__": {"most": int | None}, "most": None}, most=None)


GOOD = "notebook: small.ipynb\n"
BAD = [
    ("notebook: ", "grid: {n: [1]}"),
    ("notebook: there is no .* did you mean 'haar_projections'", "notebook: haar_projection"),
    ("notebook: ", "notebook: 3"),
    ("notebook: cannot read broken", "notebook: broken.ipynb"),
    ("notebook: julia.ipynb is in julia; a sweep runs Python", "notebook: julia.ipynb"),
    ("notebook: other.ipynb is not Python", "notebook: other.ipynb"),
    ("notebook: odd.ipynb: the limits of parameters must be literals", "notebook: odd.ipynb"),
    ("notebook: ", {"notebook": "x" * 5000 + ".ipynb"}),
    ("notebok: there is no field 'notebok'; did you mean 'notebook'", "notebok: small.ipynb"),
    ("depends: there is no ", GOOD + "depends: [nothing.csv]"),
    ("grid: ", GOOD + "grid:"),
    ("grid: ", GOOD + "grid: {}"),
    ("grid: names must be texts", GOOD + "grid: {1: [2]}"),
    ("grid.n: ", GOOD + "grid: {n: 3}"),
    ("grid.n: ", GOOD + "grid: {n: []}"),
    ("grid.n: ", GOOD + "grid: {n: [1, two]}"),
    ("grid.n: ", GOOD + "grid: {n: [1.0]}"),
    ("grid.n: ", GOOD + "grid: {n: [true]}"),
    ("grid.n.0: integers must fit", GOOD + f"grid: {{n: [{2**63}]}}"),
    ("grid.a b: there is no parameter", {"notebook": "small.ipynb", "grid": {"a\nb": [1]}}),
    ("grid.size: there is no parameter 'size'; did you mean 'sizes'", GOOD + "grid: {size: [[1]]}"),
    ("grid.name: there is no parameter", GOOD + "grid: {name: [x]}"),
    ("grid.pair: its type is none of .* write one, as in pair: list", GOOD + "grid: {pair: [[1, 2]]}"),
    ("grid.count: ", GOOD + "grid: {count: [0.5]}"),
    ("grid.kind: ", GOOD + "grid: {kind: [c]}"),
    ("grid.most: ", GOOD + "grid: {most: [x]}"),
    ("grid.flag: ", GOOD + "grid: {flag: [yes]}"),
    ("grid.sizes: ", GOOD + "grid: {sizes: [[a]]}"),
    ("grid.rate.0: numbers must be finite", GOOD + "grid: {rate: [.nan]}"),
    ("grid.sizes.0.1: numbers must be finite", GOOD + "grid: {sizes: [[1, .nan]]}"),
    ("parameters.options.a: numbers must be finite", GOOD + "parameters: {options: {a: .inf}}"),
    ("parameters.mode: must be a text that UTF-8", GOOD + 'parameters: {mode: "\\ud800"}'),
    ("grid.mode.0: must be a text, a number", GOOD + "grid: {mode: [!!binary aGVsbG8=]}"),
    ("specification: .*: RecursionError|specification: .*recursion", GOOD + "grid: {sizes: &s [[*s]]}"),
    ("specification: ", GOOD + "grid: {sizes: [" + "[" * 3000 + "]" * 3000 + "]}"),
    ("specification: .*n is given twice", GOOD + "grid: {n: [1], n: [2]}"),
    ("specification: ", "x: !!python/object/apply:os.system [ls]"),
    ("specification: ", "notebook: [unclosed"),
    ("specification: ", "- a list"),
    ("specification: ", ""),
    ("points: 'n=1' occurs twice", GOOD + "points: [{n: 1}, {n: 1}]"),
    ("points: 'rate=1.0' occurs twice", GOOD + "grid: {rate: [1, 1.0]}"),
    ("points.1.m: ", GOOD + "points: [{n: 1}, {m: 1}]"),
    ("points.0.n: the parameter is given in grid already", GOOD + "points: [{n: 1}]\ngrid: {n: [1]}"),
    ("seeds: ", GOOD + "seeds: {n: [1], count: [1]}"),
    ("seeds.n.0: ", GOOD + "seeds: {n: [a]}"),
    ("limit: ", GOOD + "limit: 0"),
    ("limit: numbers must be finite", GOOD + "limit: .inf"),
    ("retries: ", GOOD + "retries: -1"),
    (
        "grid: 1002001 points are more",
        {"notebook": "small.ipynb"} | {"grid": {key: [*range(1001)] for key in ["n", "count"]}},
    ),
    ("parameters: n must be between 1 and 5, got 6", "notebook: limited.ipynb\nparameters: {n: 6}"),
    ("points.1: n must be between", "notebook: limited.ipynb\npoints: [{n: 1}, {n: 7}]"),
    ("grid: rate must be at least 0.1", "notebook: limited.ipynb\ngrid: {rate: [0.05]}"),
    ("grid: mode must be one of", "notebook: limited.ipynb\ngrid: {mode: [ok, fast]}"),
]


@pytest.mark.parametrize(("message", "content"), BAD)
def test_bad_specifications_name_the_field_in_one_line(folder: Path, message: str, content: Any) -> None:
    with pytest.raises(SweepError, match=f"^{message}") as caught:
        load(folder, content)
    assert "\n" not in str(caught.value)


def test_aliases_that_would_fill_the_memory(folder: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(SweepError, match="too many values"):
        load(folder, "\n".join(lines))


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "bytes.yml").write_bytes(b"\xff\xfe\xff")
    for name in ("none.yml", "bytes.yml"):
        with pytest.raises(SweepError, match=r"^specification: cannot read"):
            load_specification(tmp_path / name)


def append(path: Path, text: str = "x = 1\n") -> None:
    with path.open("a") as file:
        file.write(text)


def change_cell(path: Path, kind: str) -> None:
    notebook = nbformat.read(path, 4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("words") if kind == "prose" else nbformat.v4.new_code_cell("2"))
    nbformat.write(notebook, path)


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (lambda f: append(f / "direct.py"), True),
        (lambda f: append(f / "inner" / "far.py"), True),  # relative imports, inside of a function
        (lambda f: append(f / "inner" / "__init__.py"), True),
        (lambda f: append(f / "loose" / "module.py"), True),  # of a folder without __init__.py
        (lambda f: append(f / "table.csv", "3"), True),
        (lambda f: append(f / "pictures" / "deep" / "one.txt", "3"), True),
        (lambda f: (f / "pictures" / "two.txt").write_text(""), True),
        (lambda f: change_cell(f / "own.ipynb", "code"), True),
        (lambda f: change_cell(f / "own.ipynb", "prose"), False),
        (lambda f: append(f / "stranger.py"), False),
        (lambda f: append(f / "spec.yml", "limit: 5\nretries: 2\n"), False),
        (lambda f: os.utime(f / "table.csv", (0, 0)), False),
    ],
)
def test_what_makes_a_point_new(tmp_path: Path, change: Callable[[Path], Any], new: bool) -> None:
    sources = "%matplotlib inline\nimport direct, numpy\nfrom loose import module", "from lib.device import VARIABLE"
    write_notebook(tmp_path / "own.ipynb", "n = 1", *sources)
    modules = {
        "direct": "import inner.near\n",
        "stranger": "",
        "inner/__init__": "",
        "inner/far": "",
        "loose/module": "",
    }
    modules["inner/near"] = "def later():\n    from . import far\n    from ..above import nothing\n"
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for name in ("table.csv", "pictures/deep/one.txt"):
        (tmp_path / name).write_text("2")
    (tmp_path / "spec.yml").write_text("notebook: own.ipynb\ndepends: [table.csv, pictures]\ngrid: {n: [1, 2]}\n")
    before = load_specification(tmp_path / "spec.yml")
    assert {"direct", "inner.near", "loose.module", "lib", "lib.device", "pictures/deep/one.txt"} < set(before.files)
    assert len(before.points) == 2
    change(tmp_path)
    after = load_specification(tmp_path / "spec.yml").points.keys()
    assert (not after & before.points.keys()) if new else (after == before.points.keys())


@pytest.mark.parametrize("path", SPECIFICATIONS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_point_of_a_shipped_specification_passes_its_notebook(path: Path) -> None:
    """The cell after the parameters, which checks them and makes the settings, takes every value."""
    sweep = load_specification(path)
    assert sweep.specification.title
    cells = [cell for cell in nbformat.read(sweep.notebook, 4).cells if cell.cell_type == "code"]
    after = 1 + next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
    assert set(read_limits(sweep.notebook)) == set(read_parameters(sweep.notebook))
    begin: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells[:after]:
        exec(compile(cell.source, path.name, "exec", dont_inherit=True), begin)
    settings = compile(cells[after].source, path.name, "exec", dont_inherit=True)
    seen: set[tuple[str, str]] = set()
    for point in sweep.points.values():
        values = {(name, str(value)) for name, value in point.items()}
        if values - seen:  # with all combinations some sweeps take half a minute
            exec(settings, begin | point)
        seen |= values


def test_a_group_that_the_page_cannot_take(tmp_path: Path) -> None:
    """Its limits are open, and the cell that checks them refuses more than they say."""
    text = "notebook: haar_projections\ngrid: {group: [%s]}\nparameters: {device: 'cuda:7'}"
    ask_page(load(tmp_path, text % "C4, D4"))
    for group, message in (("S6", "group must have 2 to 32 elements, got S6"), ("X4", "name must be like 'C4'")):
        with pytest.raises(SweepError, match=f"^points: {message}"):
            ask_page(load(tmp_path, text % f"C4, {group}"))


def test_every_page_with_parameters_has_a_specification() -> None:
    swept = {load_specification(path).notebook for path in SPECIFICATIONS}
    assert {path for path in find_notebooks([]) if read_parameters(path)} <= swept


def test_the_command_line_does_without_torch() -> None:
    code = (
        "import sys, lib.sweep.__main__\nassert not {'torch', 'papermill', 'pandas', 'distributed'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=BOOK.parent)


def test_a_notebook_without_a_kernel_or_with_a_name_that_is_not_here(tmp_path: Path) -> None:
    content = json.loads(write_notebook(tmp_path / "own.ipynb", "n = 1").read_text())
    for metadata in ({}, {"kernelspec": {"name": "gone", "display_name": "G"}}):
        (tmp_path / "own.ipynb").write_text(json.dumps(content | {"metadata": metadata}))
        assert load(tmp_path, "notebook: own.ipynb\ngrid: {n: [1, 2]}").points
