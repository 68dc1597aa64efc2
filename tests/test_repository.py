"""The repository as a whole: one list of packages, quiet imports, tidy notebooks, complete API pages."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import statistics
import subprocess
import symtable
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from lib.page.notebooks import find_notebooks
from tests.browser import toc_pages

ROOT = Path(__file__).parent.parent
NOTEBOOKS = find_notebooks([])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Optional packages that are only ever compared with, in benchmarks.
OPTIONAL = {"emlp"}


def modules() -> list[str]:
    paths = sorted((ROOT / "lib").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name for name in names if not name.endswith("__init__")]


def environment(python: str, system: str) -> dict[str, str]:
    """What the markers of requirements see there."""
    os_name, platform_system, machine = {
        "linux": ("posix", "Linux", "x86_64"),
        "darwin": ("posix", "Darwin", "arm64"),
        "win32": ("nt", "Windows", "AMD64"),
    }[system]
    return default_environment() | {
        "python_full_version": python,
        "implementation_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": system,
        "os_name": os_name,
        "platform_system": platform_system,
        "platform_machine": machine,
    }


def pins(where: dict[str, str] | None = None) -> dict[str, str]:
    """The pins that apply there (without an argument: here); no package has two."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    parsed = [Requirement(line) for line in lines]
    applicable = [pin for pin in parsed if pin.marker is None or pin.marker.evaluate(where)]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in applicable)
    numbers = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in applicable}
    assert len(numbers) == len(applicable)
    return numbers


def requirements(*extras: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for lines in lists for line in lines]


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.11.7", "3.12.0", "3.12.1", "3.13.0", "3.13.9"])
def test_the_pins_fit_every_python_and_system(python: str, system: str) -> None:
    """From requirement to requirement, by the metadata of what is installed here; `make resolve` asks the index."""
    where = environment(python, system)
    pinned = pins(where)
    waiting = requirements("book", "sweep", "test")
    seen = set()
    while waiting:
        requirement = waiting.pop()
        number = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(number), f"{requirement} against the pin {number}"
        try:
            package = distribution(requirement.name)
        except PackageNotFoundError:  # it is for another system
            continue
        key = (requirement.name, frozenset(requirement.extras))
        if key in seen or package.version.split("+")[0] != number:
            continue
        seen.add(key)
        pythons = package.metadata.get("Requires-Python", "")
        assert SpecifierSet(pythons).contains(python), f"{requirement.name} {number} needs Python {pythons}"
        extras = [where | {"extra": extra} for extra in ("", *requirement.extras)]
        children = [Requirement(line) for line in package.requires or []]
        waiting += [c for c in children if c.marker is None or any(c.marker.evaluate(extra) for extra in extras)]
    assert len(seen) > 100


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


def test_the_wheel_holds_every_module(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "lib", source / "lib")
    for name in ("pyproject.toml", "README.md", *PROJECT["license-files"]):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*build, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (wheel.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert {name for name in names if name.endswith(".py")} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "lib").rglob("*.py")
    }
    assert f"\nRequires-Python: {PROJECT['requires-python']}\n" in metadata
    assert all(f"\nRequires-Dist: {line}\n" in metadata for line in PROJECT["dependencies"])


class TestSetUp:
    """The Makefile's set-up of the environment, in a folder of its own; nothing is downloaded."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, tmp_path)
        return tmp_path

    def make(self, folder: Path, *words: str) -> subprocess.CompletedProcess:
        inherited = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHON", "TORCH"}
        variables = {name: value for name, value in os.environ.items() if name not in inherited}
        variables["PATH"] = f"{folder}:{variables['PATH']}"
        return subprocess.run(["make", *words], cwd=folder, env=variables, capture_output=True, text=True)

    def test_choices_are_passed_on_and_remembered(self, folder: Path) -> None:
        assert "--torch-backend" not in self.make(folder, "-n", "book").stdout
        assert "--torch-backend=cpu" in self.make(folder, "-n", "book", "TORCH=cpu").stdout
        stamp = folder / ".venv" / ".installed"
        stamp.parent.mkdir()
        stamp.write_text("python3 cpu\n")
        for words in (["book"], ["book", "TORCH=cpu"], ["book", "PYTHON=python3", "TORCH=cpu"]):
            assert "pip install" not in self.make(folder, "-n", *words).stdout
        other = self.make(folder, "-n", "book", "PYTHON=python3.12").stdout
        assert "python3.12 -m venv --clear" in other
        assert "--torch-backend=cpu" in other
        other = self.make(folder, "-n", "book", "TORCH=").stdout
        assert "python3 -m venv --clear" in other
        assert "--torch-backend" not in other
        os.utime(stamp, (0, 0))  # the pins are newer: brought up to date in place, with the choices made
        refreshed = self.make(folder, "-n", "book").stdout
        assert "--torch-backend=cpu" in refreshed
        assert "--clear" not in refreshed
        stamp.write_text("")  # as older set-ups left it
        assert "--clear" not in self.make(folder, "-n", "book").stdout

    def test_a_half_finished_one_is_not_taken_for_finished(self, folder: Path) -> None:
        (folder / "uv").write_text("#!/bin/sh\necho 'no network' >&2; exit 2\n")
        (folder / "uv").chmod(0o755)
        result = self.make(folder, "book", f"PYTHON={sys.executable}")
        assert result.returncode
        assert "no network\nThe packages are not installed; the reason stands above." in result.stderr
        assert not (folder / ".venv" / ".installed").exists()

    def test_an_old_python_is_refused(self, folder: Path) -> None:
        (folder / "python3.8").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.18 || exit 1\n')
        (folder / "python3.8").chmod(0o755)
        result = self.make(folder, "book", "PYTHON=python3.8")
        assert result.returncode
        assert "Python 3.11 or newer is needed, and 'python3.8' is not: Python 3.8.18." in result.stderr
        assert not (folder / ".venv").exists()


def test_versions_agree() -> None:
    import lib

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == lib.__version__
    assert f"## {lib.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_is_quiet() -> None:
    """No module prints, seeds a generator, styles matplotlib, chooses its backend or opens a connection."""
    code = f"""
import random, socket, sys, warnings
# What Python says while it compiles a package of somebody else's is not ours to mend.
warnings.filterwarnings("ignore", category=SyntaxWarning, module=".*site-packages")
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


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("bench_*.py")), ids=lambda path: path.stem)
def test_the_benchmarks_find_what_they_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else runs them but `make bench`: what moves in the package must not leave them behind."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    assert callable(runpy.run_path(str(path))["main"])


def test_every_chapter_of_the_contents_exists() -> None:
    names = set(toc_pages())
    pages = {path.relative_to(ROOT / "book").with_suffix("").as_posix(): path for path in (ROOT / "book").rglob("*.*")}
    assert names <= pages.keys()
    assert {name for name, path in pages.items() if path in NOTEBOOKS} <= names
    assert all(re.fullmatch(r"(runs/)?[a-z][a-z0-9_]*", name) for name in names)


def names_read(table: symtable.SymbolTable) -> set[str]:
    """The names of the notebook that a piece of code reads, in functions too."""
    found = {name.get_name() for name in table.get_symbols() if name.is_referenced()}
    for inner in table.get_children():
        free = {name.get_name() for name in inner.get_symbols() if name.is_global()}
        found |= names_read(inner) & free
    return found


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

    def test_has_no_table_without_rows(self, path: Path) -> None:
        """A sentence in the place of the first row becomes a cell of the table."""
        cells = json.loads(path.read_text())["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        assert not re.findall(r"^\|[-:|\s]+\|\n(?!\|).*", text, re.MULTILINE)

    def test_is_folded_in_jupyterlab_as_in_the_book(self, cells: list[dict]) -> None:
        """`python -m lib.page.notebooks tidy` does it."""
        for cell in cells:
            folded = {"hide-input", "remove-input", "hide-cell", "remove-cell"}.intersection(
                cell["metadata"].get("tags", ())
            )
            assert cell["metadata"].get("jupyter", {}) == ({"source_hidden": True} if folded else {}), cell["id"]

    def test_computes_in_open_cells(self, cells: list[dict]) -> None:
        """A folded cell that draws checks nothing, and no other cell needs what it computes."""
        drawn: set[str] = set()
        for cell in cells:
            source = "".join(cell["source"])
            if source.startswith("%"):
                continue
            table = symtable.symtable(source, cell["id"], "exec")
            bound = {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
            assert not names_read(table) & (drawn - bound), cell["id"]
            drawn -= bound
            draws = {"show", "slider", "movie"} & names_read(table)
            if draws and "hide-input" in cell["metadata"].get("tags", ()) and not draws & bound:
                assert not {"expect", "settle"} & names_read(table), cell["id"]
                drawn |= bound

    def test_seeds_fit_in_32_bits(self, cells: list[dict]) -> None:
        """Torch keeps the lower 32 on the CPU: of a power above, and a small number, only the number remains."""
        seeded = re.findall(r"manual_seed\((.*)\)", "".join("".join(cell["source"]) for cell in cells))
        assert not [seed for seed in seeded if re.search(r"2 ?\*\* ?(3[3-9]|[4-9]\d)", seed)]

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
