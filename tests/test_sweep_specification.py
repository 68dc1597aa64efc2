"""Specifications of sweeps: what they expand to, and that every bad one is answered by one line naming the field."""

from __future__ import annotations

import copy
import itertools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from lib.page.notebooks import find_notebooks
from lib.page.parameters import read_limits
from lib.sweep import SweepError, load_specification
from lib.sweep.driver import default_folder
from lib.sweep.notebook import BOOK, read_parameters
from lib.sweep.specification import Distribution

SPECIFICATIONS = sorted((BOOK.parent / "sweeps").rglob("*.yml"))
PARAMETERS = (
    "n: int = 1\nrate: float = 0.5\nmode: str = 'ok'\nsizes: list[int] = [1]\nflag: bool = True\n"
    "pair: tuple[int, int] = (1, 2)\nseconds: float = 1.0\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("specification")
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})]
    nbformat.write(notebook, place / "small.ipynb")
    untyped = copy.deepcopy(notebook)
    untyped.cells[0].source = "n = 1\n"
    nbformat.write(untyped, place / "untyped.ipynb")
    untagged = copy.deepcopy(notebook)
    untagged.cells[0].metadata = {}
    nbformat.write(untagged, place / "bare.ipynb")
    notebook.metadata = {}
    nbformat.write(notebook, place / "nokernel.ipynb")
    (place / "broken.ipynb").write_text("{")
    return place


def load(folder: Path, content: Any) -> Any:
    path = folder / "spec.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return load_specification(path)


GOOD: dict[str, Any] = {
    "notebook": "small.ipynb",
    "title": "all fields",
    "parameters": {"flag": False},
    "grid": {"n": [1, 2, 3]},
    "points": [{"mode": "a"}, {"mode": "b"}],
    "random": {"count": 4, "seed": 1, "draw": {"rate": {"log_uniform": [0.001, 1.0]}}},
    "repeats": 2,
    "limit": 10.5,
    "retries": 1,
}


def test_every_combination_appears_once_in_a_fixed_order(folder: Path) -> None:
    sweep = load(folder, GOOD)
    assert len(sweep.points) == 3 * 2 * 4 * 2
    rates = [p.parameters["rate"] for p in sweep.points[:8:2]]
    assert len(set(rates)) == 4
    assert all(0.001 <= r <= 1 for r in rates)
    expected = [
        ({"flag": False, "n": n, "mode": mode, "rate": rate}, repeat)
        for n, mode, rate, repeat in itertools.product([1, 2, 3], "ab", rates, [0, 1])
    ]
    assert [(p.parameters, p.repeat) for p in sweep.points] == expected
    assert load(folder, GOOD).points == sweep.points
    assert sweep.swept == ["n", "mode", "rate"]


def test_a_number_with_an_exponent_is_a_number(folder: Path) -> None:
    sweep = load(folder, "notebook: small.ipynb\ngrid: {rate: [1e-3, 2E+2, .5e1, 1]}")
    assert [p.parameters["rate"] for p in sweep.points] == [0.001, 200.0, 5.0, 1.0]
    assert all(isinstance(p.parameters["rate"], float) for p in sweep.points)


@pytest.mark.parametrize(
    "word",
    ["010", "-017", "08", "0o10", "0b11", "1_000", "1_0.5", "1:30", "-1:30.5", "yes", "No", "ON", "off", "2020-01-01"],
)
def test_words_that_yaml_1_1_and_1_2_read_differently(folder: Path, word: str) -> None:
    for line in (f"grid: {{n: [1, {word}]}}", f"parameters: {{mode: {word}}}", f"title: {word}"):
        with pytest.raises(SweepError, match=r"^\S+: \S+ \(not quoted\) means different things in YAML 1\.1 and 1\.2"):
            load(folder, f"notebook: small.ipynb\n{line}")
    with pytest.raises(SweepError, match=r"names must be texts, got \S+ \(not quoted\)"):
        load(folder, f"notebook: small.ipynb\ngrid: {{{word}: [1]}}")
    (point,) = load(folder, f"notebook: small.ipynb\nparameters: {{mode: '{word}'}}").points
    assert point.parameters == {"mode": word}


def test_words_that_mean_what_they_say(folder: Path) -> None:
    sweep = load(
        folder, "notebook: small.ipynb\ngrid: {mode: [y, =, 0.1:30, 1.2.3, 1e3x, Infinity, x:y], n: [0x10, +5, 0]}"
    )
    assert [p.parameters["mode"] for p in sweep.points[::3]] == ["y", "=", "0.1:30", "1.2.3", "1e3x", "Infinity", "x:y"]
    assert [p.parameters["n"] for p in sweep.points[:3]] == [16, 5, 0]
    (point,) = load(folder, "notebook: small.ipynb\nparameters: {flag: TRUE}\nlimit: ~").points
    assert point.parameters == {"flag": True}


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        ("notebok: small.ipynb", "notebok: there is no field 'notebok'; did you mean 'notebook'?"),
        ("notebook: small.ipynb\nrepeat: 2", "repeat: there is no field 'repeat'; did you mean 'repeats'?"),
        ("notebook: haar_projection", "notebook: .* did you mean 'haar_projections'?"),
        (
            "notebook: small.ipynb\ngrid: {size: [[1]]}",
            "grid.size: there is no parameter 'size'; did you mean 'sizes'?",
        ),
        ("notebook: small.ipynb\nrandom: {cont: 1, draw: {n: {choice: [1]}}}", "random.cont: .* mean 'count'?"),
        (
            "notebook: small.ipynb\nrandom: {count: 1, draw: {n: {loguniform: [1, 2]}}}",
            "random.draw.n.loguniform: .* mean 'log_uniform'?",
        ),
    ],
)
def test_a_misspelt_name_and_the_one_that_was_meant(folder: Path, content: str, meant: str) -> None:
    with pytest.raises(SweepError, match=meant.replace("?", "\\?")):
        load(folder, content)


LIMITS = "check_parameters(globals(), n=(1, 5), rate=(0.1, None), mode=['ok', 'slow'], sizes=None)"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("parameters: {n: 6}", "parameters: n must be between 1 and 5, got 6"),
        ("grid: {n: [5, 1, 0]}", "grid: n must be between 1 and 5, got 0"),
        ("seeds: {n: [1, 9]}", "seeds: n must be between 1 and 5, got 9"),
        ("points: [{n: 1}, {n: 7}]", "points.1: n must be between 1 and 5, got 7"),
        ("grid: {rate: [0.05]}", "grid: rate must be at least 0.1, got 0.05"),
        ("grid: {mode: [ok, fast]}", r"grid: mode must be one of \['ok', 'slow'\], got 'fast'"),
        ("random: {count: 1, draw: {n: {integers: [1, 60]}}}", "random.draw: n must be between 1 and 5, got 60"),
        ("random: {count: 1, draw: {rate: {log_uniform: [0.01, 1.0]}}}", "random.draw: rate must be at least 0.1"),
    ],
)
def test_the_limits_of_the_notebook(folder: Path, line: str, message: str) -> None:
    notebook = nbformat.read(folder / "small.ipynb", 4)
    notebook.cells.append(nbformat.v4.new_code_cell(LIMITS))
    nbformat.write(notebook, folder / "limited.ipynb")
    assert load(folder, "notebook: limited.ipynb\ngrid: {n: [1, 5], rate: [0.1, 9], mode: [ok, slow]}").points
    with pytest.raises(SweepError, match=f"^{message}"):
        load(folder, f"notebook: limited.ipynb\n{line}")


def test_limits_that_cannot_be_read(folder: Path) -> None:
    notebook = nbformat.read(folder / "small.ipynb", 4)
    notebook.cells.append(nbformat.v4.new_code_cell("check_parameters(globals(), n=(1, most))"))
    nbformat.write(notebook, folder / "limits.ipynb")
    with pytest.raises(SweepError, match=r"^notebook: limits\.ipynb: the limits of parameters must be literals"):
        load(folder, "notebook: limits.ipynb")


def test_aliases_that_would_fill_the_memory(folder: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(SweepError, match="too many values"):
        load(folder, "\n".join(lines))


def test_seeds_are_an_axis(folder: Path) -> None:
    sweep = load(folder, {"notebook": "small.ipynb", "grid": {"rate": [1, 2.5]}, "seeds": {"n": [5, 6]}})
    assert [p.parameters for p in sweep.points] == [{"rate": r, "n": n} for r in (1, 2.5) for n in (5, 6)]


def test_a_bare_notebook_is_one_point(folder: Path) -> None:
    (point,) = load(folder, {"notebook": "small.ipynb"}).points
    assert point.parameters == {}
    assert point.label == "the notebook as it is"


@pytest.mark.parametrize(
    ("law", "inside"),
    [
        ({"uniform": [-1.0, 2.0]}, lambda v: -1 <= v <= 2),
        ({"log_uniform": [0.01, 1.0]}, lambda v: 0.01 <= v <= 1),
        ({"integers": [3, 5]}, lambda v: v in (3, 4, 5)),
        ({"choice": ["a", "b"]}, lambda v: v in ("a", "b")),
    ],
)
def test_laws_stay_within_their_ends_and_reach_both_halves(law: dict, inside: Any) -> None:
    source = random.Random(0)
    values = [Distribution.model_validate(law).draw(source) for _ in range(400)]
    assert all(inside(v) for v in values)
    assert len(set(values)) >= 2
    if "log_uniform" in law:
        below = sum(v < 0.1 for v in values)
        assert 150 < below < 250  # half of the draws lie in the lower decade


NEGATIVE = {"count": 1, "draw": {"rate": {"log_uniform": [-1, 1]}}}
BAD: list[tuple[str, Any]] = [
    ("notebook", {"grid": {"n": [1]}}),
    ("notebook", {"notebook": "nowhere"}),
    ("notebook", {"notebook": 3}),
    ("notebook", {"notebook": "spec.yml"}),
    ("notebook", {"notebook": "broken.ipynb"}),
    ("grid.n", {"notebook": "untyped.ipynb", "grid": {"n": [1]}}),
    ("notebook", {"notebook": "nokernel.ipynb"}),
    ("notebook", {"notebook": "x" * 5000 + ".ipynb"}),
    ("notebook", {"notebook": "a\0b.ipynb"}),
    ("notebook", {"notebook": "."}),
    ("grid.n", {"notebook": "bare.ipynb", "grid": {"n": [1]}}),
    ("grid", "notebook: small.ipynb\ngrid:"),
    ("grid", {"notebook": "small.ipynb", "grid": {}}),
    ("points", {"notebook": "small.ipynb", "points": []}),
    ("points", {"notebook": "small.ipynb", "points": [{}, {}]}),
    ("seeds", {"notebook": "small.ipynb", "seeds": {}}),
    ("grid: names", "notebook: small.ipynb\ngrid: {1: [2]}"),
    ("grid.a b", {"notebook": "small.ipynb", "grid": {"a\nb": [1]}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": [1.0]}}),
    ("grid.n.0", {"notebook": "small.ipynb", "grid": {"n": [2**63]}}),
    ("grid.pair", {"notebook": "small.ipynb", "grid": {"pair": [[1, 2]]}}),
    ("grid.seconds", {"notebook": "small.ipynb", "grid": {"seconds": [1.0]}}),
    ("grid.mode.0", "notebook: small.ipynb\ngrid: {mode: [2020-01-01]}"),
    ("grid.mode.0", "notebook: small.ipynb\ngrid: {mode: [!!binary aGVsbG8=]}"),
    ("grid.sizes: nested", "notebook: small.ipynb\ngrid: {sizes: &s [[*s]]}"),
    ("grid.sizes: nested", "notebook: small.ipynb\ngrid: {sizes: [" + "[" * 30 + "]" * 30 + "]}"),
    ("specification", "notebook: small.ipynb\ngrid: {sizes: [" + "[" * 3000 + "]" * 3000 + "]}"),
    ("specification", "x: !!python/object/apply:os.system [ls]"),
    ("specification", "notebook: small.ipynb\ngrid: {n: [1], n: [2]}"),
    ("specification", "notebook: small.ipynb\ngrid: {n: [1" + "0" * 5000 + "]}"),
    ("specification", "notebook: small.ipynb\n---\nnotebook: small.ipynb"),
    ("specification", "- a list"),
    ("specification", "notebook: [unclosed"),
    ("specification", "just text"),
    ("specification", ""),
    ("specification", "\t: :"),
    ("gird", {"notebook": "small.ipynb", "gird": {"n": [1]}}),
    ("grid.m", {"notebook": "small.ipynb", "grid": {"m": [1]}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": []}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": 3}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": [1, "two"]}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": [1.5]}}),
    ("grid.n", {"notebook": "small.ipynb", "grid": {"n": [True]}}),
    ("grid.mode", {"notebook": "small.ipynb", "grid": {"mode": [1]}}),
    ("grid.flag", {"notebook": "small.ipynb", "grid": {"flag": ["yes"]}}),
    ("grid.sizes", {"notebook": "small.ipynb", "grid": {"sizes": [1]}}),
    ("grid.sizes", {"notebook": "small.ipynb", "grid": {"sizes": [["a"]]}}),
    ("grid.rate", "notebook: small.ipynb\ngrid: {rate: [.nan]}"),
    ("grid.rate", "notebook: small.ipynb\ngrid: {rate: [.inf]}"),
    ("points", {"notebook": "small.ipynb", "grid": {"n": [1, 1]}}),
    ("points", {"notebook": "small.ipynb", "grid": {"rate": [1, 1.0]}}),
    ("points", {"notebook": "small.ipynb", "points": [{"n": 1}, {"n": 1}]}),
    ("points.1.m", {"notebook": "small.ipynb", "points": [{"n": 1}, {"m": 1}]}),
    ("points.0", {"notebook": "small.ipynb", "points": [3]}),
    ("points.0.n", {"notebook": "small.ipynb", "points": [{"n": 1}], "grid": {"n": [1]}}),
    ("grid.n", {"notebook": "small.ipynb", "parameters": {"n": 1}, "grid": {"n": [1]}}),
    ("seeds.n", {"notebook": "small.ipynb", "grid": {"n": [1]}, "seeds": {"n": [1]}}),
    ("seeds", {"notebook": "small.ipynb", "seeds": {"n": [1], "rate": [1]}}),
    ("seeds.n", {"notebook": "small.ipynb", "seeds": {"n": []}}),
    ("seeds.n.0", {"notebook": "small.ipynb", "seeds": {"n": ["a"]}}),
    ("repeats", {"notebook": "small.ipynb", "repeats": 0}),
    ("repeats", {"notebook": "small.ipynb", "repeats": 1.5}),
    ("limit", {"notebook": "small.ipynb", "limit": 0}),
    ("limit", {"notebook": "small.ipynb", "limit": 1e300}),
    ("limit", {"notebook": "small.ipynb", "limit": "long"}),
    ("limit", "notebook: small.ipynb\nlimit: .inf"),
    ("retries", {"notebook": "small.ipynb", "retries": -1}),
    ("random.count", {"notebook": "small.ipynb", "random": {"count": 0, "draw": {"n": {"choice": [1]}}}}),
    ("random.draw", {"notebook": "small.ipynb", "random": {"count": 1}}),
    ("random.draw", {"notebook": "small.ipynb", "random": {"count": 1, "draw": {}}}),
    ("random.draw.n", {"notebook": "small.ipynb", "random": {"count": 1, "draw": {"n": {}}}}),
    ("random.draw.n", {"notebook": "small.ipynb", "random": {"count": 1, "draw": {"n": {"uniform": [0.0, 1.0]}}}}),
    ("random.draw.n", {"notebook": "small.ipynb", "random": {"count": 1, "draw": {"n": {"integers": [2, 1]}}}}),
    ("random.draw.n", {"notebook": "small.ipynb", "random": {"count": 1, "draw": {"n": {"choice": [1, "a"]}}}}),
    (
        "random.draw.rate",
        {"notebook": "small.ipynb", "random": {"count": 1, "draw": {"rate": {"log_uniform": [-1, 1]}}}},
    ),
    ("random.draw.rate", "notebook: small.ipynb\nrandom: {count: 1, draw: {rate: {uniform: [-1e308, 1e308]}}}"),
    ("grid", {"notebook": "small.ipynb", "grid": {"n": list(range(1001))}, "repeats": 1000}),
    ("grid", {"notebook": "small.ipynb", "random": {"count": 10**12, "draw": {"n": {"choice": [1]}}}}),
]


@pytest.mark.parametrize(("field", "content"), BAD)
def test_bad_specifications_name_the_field_in_one_line(folder: Path, field: str, content: Any) -> None:
    with pytest.raises(SweepError) as caught:
        load(folder, content)
    message = str(caught.value)
    assert message.startswith(field)
    assert "\n" not in message


def damage(content: dict[str, Any], source: random.Random) -> Any:
    """Return a good specification with one thing wrong in a random place."""
    content = copy.deepcopy(content)
    wrong_values = [None, [], {}, -1, "wörd", 1.5, [None], {"x": 1}, [[1]], float("nan"), float("inf"), 10**40, True]
    place = source.choice(["field", "parameter", "value", "missing", "type"])
    if place == "field":
        content[source.choice(["Grid", "seed", "", "notebok", "griḋ"])] = source.choice([1, {}, []])
    elif place == "parameter":
        content["grid"] = {source.choice(["N", "epochs", "n ", "rate.", "1"]): [1]}
    elif place == "value":
        content["grid"] = {"n": [1, source.choice([None, "1", 1.5, [1], {"a": 1}, float("nan"), True])]}
    elif place == "missing":
        del content["notebook"]
    else:
        name = source.choice(list(content))
        good = {"title": ["wörd"], "flag": [], "parameters": [{}], "limit": [1.5]}
        good["random"] = [None]
        content[name] = source.choice([v for v in wrong_values if v not in good.get(name, [])])
        if name == "limit" and content[name] is None:
            content[name] = "soon"
    return content


def test_two_hundred_generated_bad_specifications(folder: Path) -> None:
    source = random.Random(2026)
    for _ in range(200):
        content = damage(GOOD, source)
        with pytest.raises(SweepError) as caught:
            load(folder, content)
        assert "\n" not in str(caught.value)
        assert ":" in str(caught.value)


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="specification: cannot read"):
        load_specification(tmp_path / "none.yml")
    (tmp_path / "bytes.yml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SweepError, match="specification: "):
        load_specification(tmp_path / "bytes.yml")


@pytest.mark.parametrize("path", SPECIFICATIONS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_point_of_a_shipped_specification_passes_its_notebook(path: Path) -> None:
    """The cell after the parameters, which checks them and makes the chapter's settings, runs for every point."""
    sweep = load_specification(path)
    assert sweep.specification.title
    cells = [cell for cell in nbformat.read(sweep.notebook, 4).cells if cell.cell_type == "code"]
    after = 1 + next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
    assert set(read_limits(sweep.notebook)) == set(read_parameters(sweep.notebook))
    begin: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells[:after]:
        exec(compile(cell.source, path.name, "exec", dont_inherit=True), begin)
    settings = compile(cells[after].source, path.name, "exec", dont_inherit=True)
    for point in sweep.points:
        exec(settings, begin | point.parameters)


def test_no_two_shipped_specifications_share_a_folder_for_their_records() -> None:
    folders = [default_folder(load_specification(path)) for path in SPECIFICATIONS]
    assert len(set(folders)) == len(SPECIFICATIONS)
    assert Path.cwd() / "sweep-results" / "mmd_against_order" in folders
    assert Path.cwd() / "sweep-results" / "seeds" / "gans_on_images" in folders


def test_every_page_with_parameters_has_a_specification() -> None:
    swept = {load_specification(path).notebook for path in SPECIFICATIONS}
    pages = {path for path in find_notebooks([]) if read_parameters(path)}
    assert pages <= swept


def test_papermill_is_imported_without_its_slowest_part() -> None:
    code = (
        "import sys\nfrom lib.sweep.notebook import quick_import\nwith quick_import():\n    import papermill\n"
        "assert 'torch' not in sys.modules and 'rfc3987_syntax' not in sys.modules\nimport lib.sweep.worker\n"
        "import lib.sweep.__main__\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=BOOK.parent)
