"""Chapters that define what they measure on the page: their functions can be loaded and say what they do."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import FunctionType

import pytest

from lib.page.notebooks import BOOK
from tests.chapters import load

DEFINING = sorted(path.stem for path in BOOK.glob("*.ipynb") if '"define"' in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DEFINING)
def test_what_a_page_defines_stands_alone_and_is_documented(name: str) -> None:
    space = vars(load(name))
    own = [value for value in space.values() if getattr(value, "__module__", None) == name]
    assert own
    undocumented = [value.__name__ for value in own if isinstance(value, (FunctionType, type)) and not value.__doc__]
    assert undocumented == []


@pytest.mark.parametrize("name", DEFINING)
def test_cells_that_define_functions_say_so(name: str) -> None:
    cells = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if "define" in cell["metadata"].get("tags", ()):
            assert any(line.startswith(("def ", "class ")) for line in cell["source"]), "".join(cell["source"])


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_chapter_ends_with_where_this_goes_next(path: Path) -> None:
    """Two pages or more, each with a sentence; the last cell, so that nothing is overlooked below it."""
    last = json.loads(path.read_text(encoding="utf-8"))["cells"][-1]
    heading, _, *items = "".join(last["source"]).splitlines()
    assert (last["cell_type"], heading) == ("markdown", "## Where this goes next")
    assert len(items) >= 2
    for item in items:
        links = re.findall(r"\{doc\}`([\w/]+)`", item)
        assert links, item
        assert path.stem not in links
        assert item.startswith("- ")
        assert item.endswith(".")


@pytest.mark.parametrize(
    "path",
    sorted({*BOOK.glob("*.ipynb")} - {BOOK / "performance.ipynb", BOOK / "other_seeds.ipynb"}),
    ids=lambda p: p.stem,
)
def test_a_chapter_has_a_figure_that_a_reader_moves(path: Path) -> None:
    """A movie or figures with a slider, together light enough for a phone."""
    outputs = [o for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] for o in cell.get("outputs", [])]
    htmls = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    movies = [html for html in htmls if '<figure class="movie"' in html]
    assert movies
    assert sum(map(len, movies)) < 400_000


def test_parameters_reach_the_page_and_are_checked() -> None:
    chapter = load("kernels_and_divergences", group="D3", seeds=2, seed=4)
    assert chapter.independent == [4000, 4001]
    assert len(chapter.G) == 6
    for name, value, message in (
        ("group", "E8", "group must be one of"),
        ("seeds", 1, "seeds must be"),
        ("replicates", 2.5, "replicates must be"),
        ("device", "abacus", "device must name a device"),
    ):
        with pytest.raises(ValueError, match=message):
            load("kernels_and_divergences", **{name: value})


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.ipynb")), ids=lambda path: path.stem)
def test_sections_are_those_of_the_road_map(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    numbers = [int(n) for n in re.findall(r"^## (\d+)\. ", text, re.M)]
    assert numbers == [*range(1, 1 + len(numbers))]
    for road in re.findall(r"\*\*Road map\.\*\*(.*)", text):
        assert [n for n in numbers if f" {n}. " not in road] == []
        assert f" {1 + len(numbers)}. " not in road


# Calls that draw from PyTorch's global stream, unless they are given a generator.
_DRAWS = {"rand", "randn", "randint", "randperm", "normal_", "uniform_", "Linear", "Conv2d", "PlanarConv2d"}


def _draws_globally(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name in _DRAWS and not any(k.arg in ("generator", "rng", None) for k in node.keywords)


@pytest.mark.parametrize(
    "path", sorted([*BOOK.glob("*.ipynb"), *(BOOK / "runs").glob("*.ipynb")]), ids=lambda p: p.stem
)
def test_what_is_drawn_at_random_has_a_seed(path: Path) -> None:
    """Where the global stream is used at all, a cell that runs before, or the cell itself, has seeded it."""
    seeded = False
    for k, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith("%"):
            continue
        seeded |= "torch.manual_seed(" in source
        drawn = any(map(_draws_globally, ast.walk(ast.parse(source))))
        assert seeded or not drawn or "define" in cell["metadata"].get("tags", []), f"cell {k} draws without a seed"
