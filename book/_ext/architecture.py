"""The architecture page: which room of the package stands on which, read from the imports when the book is built."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_WIDTH, _HEIGHT, _GAP, _RISE = 150, 48, 26, 44
Imports = dict[str, set[str]]


def modules(package: Path) -> Imports:
    """Return, for every module of a package (as ``room.module``), the modules of the same package that it imports."""
    paths = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    known = {name for name in paths if not name.endswith("__init__")}
    return {name: _imported(paths[name], package.name, known) - {name} for name in sorted(known)}


def _imported(path: Path, package: str, known: set[str]) -> set[str]:
    full = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            full |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix(f"{package}.") for name in full} & known


def rooms(imports: Mapping[str, set[str]]) -> Imports:
    """Return, for every room, the other rooms that its modules import from; a module in no room is one by itself."""
    found: Imports = {}
    for name, others in imports.items():
        room = name.split(".")[0]
        found.setdefault(room, set()).update(other.split(".")[0] for other in others)
    return {room: others - {room} for room, others in found.items()}


def levels(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of every room: 0 if it stands on none, else one more than the highest it stands on."""
    found: dict[str, int] = {}
    for room in TopologicalSorter(graph).static_order():
        found[room] = 1 + max((found[other] for other in graph[room]), default=-1)
    return found


def direct(graph: Mapping[str, set[str]]) -> Imports:
    """Return the arrows that do not follow from others: no room between the two."""
    return {room: {o for o in below if not any(o in graph[other] for other in below)} for room, below in graph.items()}


def picture(graph: Mapping[str, set[str]], counts: Mapping[str, int], pages: Mapping[str, str]) -> str:
    """Return the rooms as SVG, the lowest at the bottom; ``pages`` has the address of each room's API."""
    floor = levels(graph)
    rows = [[room for room in graph if floor[room] == level] for level in range(max(floor.values()) + 1)]
    width = max(map(len, rows)) * (_WIDTH + _GAP) - _GAP
    height = len(rows) * (_HEIGHT + _RISE) - _RISE
    places = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (_WIDTH + _GAP) + _GAP) / 2
        for number, room in enumerate(row):
            places[room] = (left + number * (_WIDTH + _GAP), height - level * (_HEIGHT + _RISE) - _HEIGHT)
    lines = [_line(places[room], places[other]) for room, below in direct(graph).items() for other in sorted(below)]
    boxes = [_box(room, places[room], counts[room], pages.get(room)) for room in graph]
    return (
        f'<div class="claim-map"><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="Rooms of the package; each stands on those below it">{"".join(lines + boxes)}</svg></div>'
    )


def _line(high: tuple[float, float], low: tuple[float, float]) -> str:
    x, y, u, v = high[0] + _WIDTH / 2, high[1] + _HEIGHT, low[0] + _WIDTH / 2, low[1]
    return f'<path d="M{x} {y} C{x} {y + _RISE / 2} {u} {v - _RISE / 2} {u} {v}"/>'


def _box(room: str, place: tuple[float, float], count: int, page: str | None) -> str:
    x, y = place
    size = f"{count} modules" if count > 1 else "one module"
    box = (
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="4"/>'
        f'<text x="{x + 10}" y="{y + 20}">lib.{escape(room)}</text><text x="{x + 10}" y="{y + 38}">{size}</text>'
    )
    return f'<a class="reference internal" href="{page}">{box}</a>' if page else box


class Architecture(SphinxDirective):
    """``{architecture}``: the picture of the rooms, and for each room its modules with what they import."""

    def run(self) -> list[nodes.Node]:
        """Return the picture and the table."""
        package = Path(self.env.srcdir).parent / "lib"
        for path in package.rglob("*.py"):
            self.env.note_dependency(str(path))
        imports = modules(package)
        graph = rooms(imports)
        counts = {room: sum(name.split(".")[0] == room for name in imports) for room in graph}
        drawing = picture(graph, counts, _pages(Path(self.env.srcdir)))
        return [nodes.raw("", drawing, format="html"), nodes.raw("", _table(imports), format="html")]


def _pages(book: Path) -> dict[str, str]:
    """Return the address of every room's section of the API."""
    found = {}
    for path in sorted(book.glob("api*.md")):
        for room in re.findall(r"\{api\} lib\.(\w+)", path.read_text(encoding="utf-8")):
            found[room] = f"{path.stem}.html"
    return found


def _table(imports: Mapping[str, set[str]]) -> str:
    rows = []
    for name, below in imports.items():
        names = ", ".join(f"<code>{escape(other)}</code>" for other in sorted(below))
        rows.append(f"<tr><td><code>lib.{escape(name)}</code></td><td>{names}</td></tr>")
    head = "<thead><tr><th>module</th><th>imports</th></tr></thead>"
    table = f'<table class="table">{head}<tbody>{"".join(rows)}</tbody></table>'
    folded = f'<div class="module-table" tabindex="0">{table}</div>'
    return f"<details><summary>All {len(imports)} modules, and what each imports</summary>{folded}</details>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("architecture", Architecture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
