"""The repository as a whole: one list of packages, quiet imports, tidy notebooks, complete API pages."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Optional packages that are only ever compared with, in benchmarks.
OPTIONAL = {"emlp"}


def modules() -> list[str]:
    paths = sorted((ROOT / "lib").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name for name in names if not name.endswith("__init__")]


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs), [pair for pair in pairs if len(pair) != 2]
    return {canonicalize_name(name): number for name, number in pairs}


def requirements(*extras: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for lines in lists for line in lines]


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    pinned = pins()
    for requirement in requirements("book", "sweep", "test"):
        number = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(number), f"{requirement} against the pin {number}"


def test_the_pins_are_what_is_installed() -> None:
    """Otherwise the tests speak of another environment than the one that readers get."""
    pinned = pins()
    for requirement in requirements("book", "sweep", "test"):
        assert version(requirement.name).split("+")[0] == pinned[canonicalize_name(requirement.name)]


def test_pins_name_no_place_and_no_platform() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"://| @ |\+cpu|\+cu|--", re.sub(r"^#.*$", "", text, flags=re.MULTILINE))


def test_the_conda_route_installs_the_same() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"] == ["conda-forge"]
    python, pip, packages = environment["dependencies"]
    assert python.startswith("python " + PROJECT["requires-python"])
    assert pip == "pip"
    assert packages == {"pip": ["-c constraints.txt", "-e .[book,sweep,test]"]}
    make = (ROOT / "Makefile").read_text()
    assert "-c constraints.txt -e '.[book,sweep,test]'" in make


def test_versions_agree() -> None:
    import lib

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == lib.__version__
    assert f"## {lib.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_is_quiet() -> None:
    """No module prints, seeds a generator, styles matplotlib, chooses its backend or opens a connection."""
    code = f"""
import random, socket, sys
import matplotlib, numpy, torch
def refuse(*a, **k): raise RuntimeError("a connection on import")
socket.socket.connect = refuse
style = dict(matplotlib.rcParams)
states = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.initial_seed(), torch.get_rng_state().tolist())
dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
import importlib
for name in {modules()!r}: importlib.import_module(name)
assert dict(matplotlib.rcParams) == style, "style"
now = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.initial_seed(), torch.get_rng_state().tolist())
assert now == states, "seed"
assert (torch.get_default_dtype(), torch.get_num_threads()) == (dtype, threads), "torch settings"
"""
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_optional_packages_stay_optional() -> None:
    for path in [*(ROOT / "lib").rglob("*.py"), *(ROOT / "tests").glob("*.py")]:
        imported = set(re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), flags=re.MULTILINE))
        assert not imported & OPTIONAL, path.name


def test_every_chapter_of_the_contents_exists() -> None:
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
    names = [toc["root"]] + [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    stems = {path.stem for path in (ROOT / "book").glob("*.*")}
    assert set(names) <= stems
    assert {path.stem for path in NOTEBOOKS} <= set(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebook:
    """What every stored notebook keeps to."""

    @pytest.fixture
    def cells(self, path: Path) -> list[dict]:
        cells = json.loads(path.read_text())["cells"]
        return [cell for cell in cells if cell["cell_type"] == "code"]

    def test_is_executed_in_order(self, cells: list[dict]) -> None:
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))

    def test_has_no_errors_and_no_warnings(self, cells: list[dict]) -> None:
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]

    def test_shows_no_place_of_a_machine(self, cells: list[dict]) -> None:
        text = json.dumps([cell["outputs"] for cell in cells])
        assert not re.search(r"/(root|tmp|work|home/\w+|Users/\w+)/|site-packages/|/ipykernel_", text)

    def test_has_short_cells(self, cells: list[dict]) -> None:
        lengths = [sum(bool(line.strip()) for line in "".join(cell["source"]).splitlines()) for cell in cells]
        assert max(lengths) <= 40
        assert statistics.median(lengths) <= 14

    def test_is_small(self, path: Path) -> None:
        assert path.stat().st_size < 3e6

    def test_describes_its_figures(self, cells: list[dict]) -> None:
        images = [o for c in cells for o in c["outputs"] if any(k.startswith("image/") for k in o.get("data", {}))]
        assert all(len(o["metadata"].get("image/png", {}).get("alt", "")) >= 20 for o in images)

    def test_has_typed_parameters_first(self, cells: list[dict]) -> None:
        tagged = [number for number, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])]
        assert len(tagged) == 1
        assert tagged[0] <= 2
        lines = [line for line in "".join(cells[tagged[0]]["source"]).splitlines() if re.match(r"\w+.*=", line)]
        assert lines
        assert all(re.match(r"\w+: \w+", line) for line in lines), lines
