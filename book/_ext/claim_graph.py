"""What rests on what: definitions, theorems and claims, read from the chapters themselves.

A statement rests on those that it or its proof refers to by ``{prf:ref}``. A claim rests on the statements between the
panel before and its own (or, if there is none, on the last one), and on those that the text between them refers to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes as docutils_nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lib.page.claims import load_claims

MIME_TYPE = "application/vnd.symmetry-book.evidence+json"
_DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{prf:(\w+)\}([^\n]*)\n(.*?)^\1[`:]*\s*$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"^:label: (\S+)$", re.MULTILINE)
_REFERENCE = re.compile(r"\{prf:ref\}`(?:[^`<]*<)?([\w-]+)>?`")
_WIDTH, _HEIGHT, _GAP, _LETTERS = 204, 26, 34, 28


@dataclass
class Node:
    """A statement or a claim: where it stands, and the labels of what it rests on."""

    name: str
    kind: str
    title: str
    chapter: str
    rests_on: list[str] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Return where it stands on the page."""
        return f"evidence-{self.name.lower()}" if self.kind == "claim" else self.name

    @property
    def text(self) -> str:
        """Return what the map shows."""
        title = re.sub(r"[$\\{}]|mathbb|mathcal", "", self.title)
        return f"{self.name} {title}" if self.kind == "claim" else title or self.kind


def read_graph(notebooks: Iterable[Path], titles: Mapping[str, str]) -> dict[str, Node]:
    """Return all statements and claims of the chapters, in their order; ``titles`` names the claims."""
    nodes: dict[str, Node] = {}
    for path in notebooks:
        _read_chapter(path, titles, nodes)
    for node in nodes.values():
        kept = [name for name in dict.fromkeys(node.rests_on) if name in nodes and name != node.name]
        node.rests_on = kept
    return nodes


def _read_chapter(path: Path, titles: Mapping[str, str], nodes: dict[str, Node]) -> None:
    last: Node | None = None
    fresh: list[str] = []  # the statements since the last panel
    since: list[str] = []  # what the text since then refers to
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            since += _REFERENCE.findall(_DIRECTIVE.sub("", text))
            for _, kind, title, body in _DIRECTIVE.findall(text):
                label = _LABEL.search(body)
                if kind == "proof" and last is not None:
                    last.rests_on += _REFERENCE.findall(body)
                elif label:
                    last = Node(label[1], kind, title.strip(), path.stem, _REFERENCE.findall(body))
                    nodes[last.name] = last
                    fresh.append(last.name)
        for output in cell.get("outputs", []):
            record = output.get("data", {}).get(MIME_TYPE)
            if record and record["id"] not in nodes:
                below = fresh or ([last.name] if last else [])
                nodes[record["id"]] = Node(record["id"], "claim", titles[record["id"]], path.stem, below + since)
                fresh, since = [], []


def used_by(nodes: Mapping[str, Node]) -> dict[str, list[Node]]:
    """Return, for every statement, what rests on it."""
    found: dict[str, list[Node]] = {}
    for node in nodes.values():
        for name in node.rests_on:
            found.setdefault(name, []).append(node)
    return found


def chapter_map(chapter: str, nodes: Mapping[str, Node]) -> str:
    """Return a picture of one chapter: from left to right what rests on what is further left, claims last."""
    own = {name: node for name, node in nodes.items() if node.chapter == chapter}
    foreign = [name for node in own.values() for name in node.rests_on if name not in own]
    shown = {name: nodes[name] for name in dict.fromkeys(foreign)} | own
    column = _columns(shown, own)
    places: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for name in shown:
        row = filled.get(column[name], 0)
        filled[column[name]] = row + 1
        places[name] = (column[name] * (_WIDTH + _GAP), row * (_HEIGHT + 8))
    width = (max(column.values()) + 1) * (_WIDTH + _GAP) - _GAP
    height = max(filled.values()) * (_HEIGHT + 8)
    lines = [_line(places[low], places[name]) for name, node in own.items() for low in node.rests_on]
    boxes = [_box(node, places[name], name in own) for name, node in shown.items()]
    return (
        f'<div class="claim-map"><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="What rests on what in the chapter">{"".join(lines + boxes)}</svg></div>'
    )


def _columns(shown: Mapping[str, Node], own: Collection[str]) -> dict[str, int]:
    column: dict[str, int] = {}

    def place(name: str, above: tuple[str, ...] = ()) -> int:
        if name not in column:
            lower = [n for n in shown[name].rests_on if n in shown and n not in above] if name in own else []
            column[name] = 1 + max((place(n, (*above, name)) for n in lower), default=-1)
        return column[name]

    for name in shown:
        place(name)
    last = max((column[name] for name, node in shown.items() if node.kind == "claim"), default=0)
    return {name: last if shown[name].kind == "claim" else min(k, max(last, k)) for name, k in column.items()}


def _line(low: tuple[int, int], high: tuple[int, int]) -> str:
    x, y = low[0] + _WIDTH, low[1] + _HEIGHT // 2
    u, v = high[0], high[1] + _HEIGHT // 2
    if u <= x:  # one column: a bow on its right side
        return f'<path d="M{x} {y} C{x + 30} {y} {x + 30} {v} {x} {v}"/>'
    middle = (x + u) // 2
    return f'<path d="M{x} {y} C{middle} {y} {middle} {v} {u} {v}"/>'


def _box(node: Node, place: tuple[int, int], own: bool) -> str:
    x, y = place
    text = node.text if len(node.text) <= _LETTERS else node.text[: _LETTERS - 1].rstrip() + "…"
    kind = f"map-{node.kind}" + ("" if own else " map-foreign")
    return (
        f'<a class="reference internal" href="{node.chapter}.html#{node.anchor}"><g class="{kind}">'
        f"<title>{escape(node.kind)}: {escape(node.text)}</title>"
        f'<rect x="{x + 0.5}" y="{y + 0.5}" width="{_WIDTH - 1}" height="{_HEIGHT}" rx="4"/>'
        f'<text x="{x + 8}" y="{y + 18}">{escape(text)}</text></g></a>'
    )


@cache
def _graph(book: Path, chapters: tuple[str, ...]) -> dict[str, Node]:
    titles = {name: claim.title for name, claim in load_claims(book / "claims.yml").items()}
    return read_graph([book / f"{name}.ipynb" for name in chapters if (book / f"{name}.ipynb").is_file()], titles)


def _of_book(env: Any) -> dict[str, Node]:
    chapters = [name for name in env.toctree_includes.get(env.config.root_doc, []) if "/" not in name]
    return _graph(Path(env.srcdir), tuple(chapters or sorted(env.found_docs)))


class Map(SphinxDirective):
    """``{map}``: a picture per chapter of what rests on what."""

    def run(self) -> list[docutils_nodes.Node]:
        """Return a place for the pictures; they are drawn when all chapters have been read."""
        for name in self.env.found_docs:
            if (path := Path(self.env.doc2path(name))).suffix == ".ipynb":
                self.env.note_dependency(str(path))
        return [docutils_nodes.container(classes=["claim-maps"])]


def add_links(app: Sphinx, doctree: docutils_nodes.document, docname: str) -> None:
    """Draw the maps, and say under every statement what rests on it."""
    nodes = _of_book(app.env)
    for holder in doctree.findall(lambda node: "claim-maps" in getattr(node, "attributes", {}).get("classes", ())):
        for chapter in dict.fromkeys(node.chapter for node in nodes.values()):
            title = app.env.titles[chapter].astext() if chapter in app.env.titles else chapter
            picture = chapter_map(chapter, nodes)
            holder += docutils_nodes.raw("", f"<p><strong>{escape(title)}</strong></p>{picture}", format="html")
    users = used_by(nodes)
    for statement in list(doctree.findall(lambda node: getattr(node, "attributes", {}).get("label") in users)):
        if statement["label"] not in statement.get("ids", ()):
            continue
        found, line = users[statement["label"]], docutils_nodes.paragraph()
        for place, user in enumerate(found):
            address = app.builder.get_relative_uri(docname, user.chapter) + f"#{user.anchor}"
            line += docutils_nodes.Text(", " if place else "")
            line += docutils_nodes.reference("", user.text, internal=True, refuri=address)
        opening = f'<details class="used-by"><summary>Used by {len(found)}</summary>'
        folded = [docutils_nodes.raw("", html, format="html") for html in (opening, "</details>")]
        folded.insert(1, line)
        at = statement.parent.index(statement) + 1
        statement.parent[at:at] = folded


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the links."""
    app.add_directive("map", Map)
    app.connect("doctree-resolved", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
