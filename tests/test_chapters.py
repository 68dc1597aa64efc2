"""Chapters that define what they measure on the page: their functions can be loaded and say what they do."""

from __future__ import annotations

import json
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
    with pytest.raises(ValueError, match="did you mean 'seed'"):
        load("kernels_and_divergences", seedz=3)
