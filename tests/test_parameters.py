"""The parameters of notebooks: limits that a kernel and a plan read alike, and no misspelt name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from lib.page.parameters import BadParameter, check_parameters, check_value, independent_seeds, read_limits

KINDS = {"seeds": int, "rate": float, "scale": str, "device": str, "sizes": list[int]}
LIMITS = {"seeds": (1, 100), "rate": (1e-3, None), "scale": ["default", "paper"], "device": None, "sizes": None}
GOOD = {"seeds": 3, "rate": 0.5, "scale": "default", "device": "", "sizes": [3]}
CELL = "seeds: int = 3\nrate: float = 0.5\nscale: str = 'default'\ndevice: str = ''\nsizes: list[int] = [3]"
CHECK = "check_parameters(globals(), …)"


def kernel(*history: str, **values: Any) -> dict[str, Any]:
    """A kernel's namespace when the cell that checks is running."""
    of_ipython = {
        "In": ["", "import torch", *history, CHECK],
        "Out": {},
        "__name__": "__main__",
        "_": 3,
        "torch": pytest,
    }
    return of_ipython | {"COLOURS": ("k",), "__annotations__": dict(KINDS)} | GOOD | values


@pytest.mark.parametrize("change", [{}, {"rate": 1}, {"seeds": 100}, {"scale": "paper"}])
def test_good_parameters(change: dict[str, Any]) -> None:
    check_parameters(kernel(CELL, **change), **LIMITS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, r"seeds must be between 1 and 100 of type int, got 0"),
        ({"seeds": 2.0}, r"seeds must be .* of type int, got 2.0"),
        ({"seeds": True}, r"seeds must be"),
        ({"rate": 0}, r"rate must be at least 0.001 of type float, got 0"),
        ({"rate": float("nan")}, r"rate must be"),
        ({"rate": float("inf")}, r"rate must be"),
        ({"rate": "fast"}, r"rate must be"),
        ({"scale": "huge"}, r"scale must be one of \['default', 'paper'\] of type str, got 'huge'"),
        ({"sizes": "345"}, r"sizes must be a value of type list, got '345'"),
        ({"device": None}, r"device must be a value of type str, got None"),
    ],
)
def test_bad_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_parameters(kernel(CELL, **change), **LIMITS)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([CELL, "# Parameters\nsedes = 5\n"], r"no parameter 'sedes'; did you mean 'seeds'\?"),
        ([CELL, "# Parameters\nqqq = 5\n"], r"no parameter 'qqq'; there are \['seeds', 'rate'"),
        ([CELL + "\nqqq = 5"], r"no parameter 'qqq'"),
    ],
)
def test_a_misspelt_name(cells: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_parameters(kernel(*cells), **LIMITS)


def test_what_an_earlier_run_left_is_no_parameter() -> None:
    """A second run of all cells, and a run of the checking cell alone, after others."""
    check_parameters(kernel(CELL, independent=[0], repetitions=3), **LIMITS)
    check_parameters(kernel("starts = 3", "widths = [3]", independent=[0]), **LIMITS)
    check_parameters(kernel("%matplotlib inline", CELL, "# Parameters\nseeds = 5\n"), **LIMITS)


def test_after_a_refusal_nothing_can_run_on() -> None:
    space = kernel(CELL)
    check_parameters(space, **LIMITS)
    space |= {"G": "C3", "measure": lambda: 0, "seeds": 0}  # what the cells below made, and another parameter
    with pytest.raises(BadParameter):
        check_parameters(space, **LIMITS)
    assert {n for n in space if not n.startswith("_")} == {"In", "Out", "torch", "COLOURS"}
    space |= GOOD  # the parameters' cell again
    space["__annotations__"] |= KINDS
    check_parameters(space, **LIMITS)


def test_a_misspelt_annotation_is_forgotten() -> None:
    space = kernel(CELL.replace("seeds", "sedes"), sedes=3)
    space["__annotations__"]["sedes"] = int
    with pytest.raises(BadParameter, match="did you mean 'seeds'"):
        check_parameters(space, **LIMITS)
    space |= GOOD
    space["__annotations__"] |= KINDS
    check_parameters(space, **LIMITS)


def test_a_limit_needs_a_parameter() -> None:
    with pytest.raises(TypeError, match="limits must be given"):
        check_parameters(kernel(CELL), **LIMITS, more=None)


def notebook(folder: Path, call: str) -> Path:
    cells = [nbformat.v4.new_code_cell("seeds: int = 3", metadata={"tags": ["parameters"]})]
    path = folder / "n.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_code_cell(call)]), path)
    return path


def test_limits_are_read_without_running(tmp_path: Path) -> None:
    found = read_limits(notebook(tmp_path, "check_parameters(globals(), seeds=(1, None), scale=['a'])\n1 / 0"))
    assert found == {"seeds": (1, None), "scale": ["a"]}
    check_value("seeds", 5, found["seeds"], "int")
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        check_value("seeds", 0, found["seeds"], "int")
    assert read_limits(notebook(tmp_path, "1")) == {}
    with pytest.raises(ValueError, match="must be literals"):
        read_limits(notebook(tmp_path, "check_parameters(globals(), seeds=(1, most))"))


def test_seeds_of_different_chapter_seeds_are_disjoint() -> None:
    drawn = [independent_seeds(seed, 1000) for seed in range(4)]
    assert len(set().union(*drawn)) == 4000
    assert independent_seeds(0, 4) == [0, 1, 2, 3]
    for seed, count in ((0, 0), (0, 1001), (-1, 3)):
        with pytest.raises(ValueError, match="must"):
            independent_seeds(seed, count)
