"""The floor plan: rooms that stand on one another, short modules, and docstrings that say what is inside."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIB = ROOT / "lib"
# A room of the core imports from itself and from those before it, a topic from the core and itself. What a page shows
# and the sweeps know no mathematics.
CORE = ("checks", "device", "progress", "symmetry", "transport", "reader", "images")
TOPICS = ("augmentation", "ensembles", "implicit_bias", "gans", "mean_field")
ABOVE = {"page": {"checks", "device", "page", "progress"}, "sweep": {"device", "page", "sweep"}}
LONGEST = 350
MODULES = sorted(LIB.rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(LIB).with_suffix("").as_posix()


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {full.split(".")[1] for full in found if full.startswith("lib.")} - {"ROOT", "__version__"}


@pytest.mark.parametrize("path", [path for path in MODULES if name(path) != "__init__"], ids=name)
def test_arrows_point_down(path: Path) -> None:
    room = name(path).split("/")[0]
    below = {*CORE, room} if room in TOPICS else set(CORE[: CORE.index(room) + 1]) if room in CORE else ABOVE[room]
    assert imported_rooms(path) <= below


def test_every_room_says_what_is_inside() -> None:
    """A room's docstring names each of its modules, and no other."""
    for folder in (path for path in LIB.iterdir() if (path / "__init__.py").is_file()):
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        inside = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
        named = set(re.findall(r"``(\w+)``", text))
        assert named == inside, f"lib.{folder.name}: {sorted(named ^ inside)}"


def test_modules_are_short() -> None:
    long = {name(path) for path in MODULES if len(path.read_text().splitlines()) > LONGEST}
    assert not long, f"longer than {LONGEST} lines: {sorted(long)}"
