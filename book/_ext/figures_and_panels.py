"""Captioned figures, with the numbers behind them, and links under panels: a notebook is edited before it is parsed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from lib.page.claims import Claim
from lib.page.evidence import MIME_TYPE
from lib.page.expectations import MIME_TYPE as EXPECTATION
from lib.page.expectations import expectation_html
from lib.page.ledger import stored_outputs
from lib.page.records import panel_html

CSV = "text/csv"
FOLDER = "_figures"  # of the tables behind figures
Note = Callable[[Mapping[str, Any]], str]


def prepare_notebook(
    notebook: dict[str, Any], claims: Mapping[str, Claim], note: Note = lambda record: ""
) -> tuple[dict[str, Any], list[str]]:
    """Return the notebook as the book shows it, and messages about figures that cannot be shown well.

    A figure and a panel each get a cell of their own, because MyST-NB's figure options hold for a whole cell. A cell
    that defines functions or classes gets an anchor for each, to which the panels link. Panels and expectations are
    drawn from their records; ``note`` says what else stands behind one.
    """
    messages: list[str] = []
    anchored: set[str] = set()
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        cells += _anchors(cell, number) + _split(cell, number, messages, anchored, claims, note)
    return notebook | {"cells": cells}, messages


def _anchors(cell: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return a cell with an invisible anchor for each thing that this one defines."""
    if "define" not in cell["metadata"].get("tags", []):
        return []
    body = ast.parse("".join(cell["source"])).body
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    source = "".join(f'<span id="def-{name}"></span>' for name in names)
    return [{"cell_type": "markdown", "id": f"anchors-{number}", "metadata": {}, "source": source}] if names else []


def _split(
    cell: dict[str, Any],
    number: int,
    messages: list[str],
    anchored: set[str],
    claims: Mapping[str, Claim],
    note: Note,
) -> list[dict[str, Any]]:
    cells, full = [cell | {"outputs": []}], False  # whether the last cell may not take another output
    for output in cell["outputs"]:
        data, texts = output.get("data", {}), output.get("metadata", {}).get("symmetry", {})
        image = next((kind for kind in data if kind.startswith("image/")), None)
        alone = image is not None or MIME_TYPE in data
        if texts.get("role") == "caption":
            continue
        if texts.get("role") == "table":
            table = _table(texts, "".join(data["text/markdown"]), f"{cell.get('id', 'cell')}-{len(cells)}")
            hidden = "hide-cell" in cell["metadata"].get("tags", [])
            cells.append(_dropdown(table, "The numbers, in a table") if hidden else table)
            full = True
            continue
        if full or (alone and cells[-1].get("outputs")):
            cells.append(_continuation(cell, len(cells)))
        full = alone
        if image is not None:
            _add_figure(cells[-1], output, image, number, messages)
        elif alone:
            _add_panel(cells, output, anchored, claims, note)
        else:
            expected = {"data": {"text/html": expectation_html(data[EXPECTATION])}} if EXPECTATION in data else {}
            cells[-1]["outputs"].append(output | expected)
    return cells


def _continuation(cell: dict[str, Any], place: int) -> dict[str, Any]:
    """Return a cell that shows outputs only (an empty source would drop it)."""
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag not in ("hide-input", "remove-input")]
    metadata = cell["metadata"] | {"tags": [*tags, "remove-input"]}
    name = f"{cell.get('id', 'cell')}-{place}"
    return cell | {"id": name, "source": "# (outputs)", "metadata": metadata, "outputs": []}


def _table(texts: dict[str, str], markdown: str, name: str) -> dict[str, Any]:
    """Return a cell with a numbered table in place of the output of ``lib.page.figures.table``."""
    source = f"~~~~{{table}} {texts['caption']}\n:name: {texts['label']}\n\n{markdown}\n~~~~\n"  # captions may hold `
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def _dropdown(cell: dict[str, Any], title: str) -> dict[str, Any]:
    """Return a Markdown cell that unfolds under its title."""
    return cell | {"source": f"::::{{dropdown}} {title}\n{cell['source']}::::\n"}


def _add_figure(cell: dict[str, Any], output: dict[str, Any], kind: str, number: int, messages: list[str]) -> None:
    texts = output.get("metadata", {}).get(kind, {})
    cell["outputs"] = [output | {"data": {name: shown for name, shown in output["data"].items() if name != CSV}}]
    missing = [name for name in ("alt", "caption", "label") if not str(texts.get(name, "")).strip()]
    if missing:
        messages.append(f"cell {number} shows an image without {' and '.join(missing)}: use lib.page.figures.show")
        return
    link = f" {{figuredata}}`{texts['label']}`" if output["data"].get(CSV) else ""
    figure = {"caption": texts["caption"] + link, "name": texts["label"]}
    image = {"alt": texts["alt"]} | ({"width": f"{texts['width']}px"} if "width" in texts else {})
    own = {"image": image, "figure": figure}
    cell["metadata"] = cell["metadata"] | {"mystnb": cell["metadata"].get("mystnb", {}) | own}


def _add_panel(
    cells: list[dict[str, Any]],
    output: dict[str, Any],
    anchored: set[str],
    claims: Mapping[str, Claim],
    note: Note,
) -> None:
    """Add a panel, with an anchor at a claim's first one, and the links to ledger, function and test below it."""
    record = output["data"][MIME_TYPE]
    claim = claims[record["id"]]
    html = folded_panel(claim, record)
    if record["id"] not in anchored:
        anchored.add(record["id"])
        html = html.replace(" class", f" id='evidence-{record['id'].lower()}' class", 1)
    cells[-1]["outputs"] = [output | {"data": {"text/html": html, "text/plain": output["data"]["text/plain"]}}]
    links = f"Ledger: {{claim}}`{record['id']}`. Function: {function_link(record['function'])}. "
    links += f"Test: {{test}}`{claim.test}`. {note(record)}".rstrip()
    source = f"```{{div}} evidence-links\n{links}\n```\n"
    cells.append(
        {"cell_type": "markdown", "id": f"links-{len(anchored)}-{len(cells)}", "metadata": {}, "source": source}
    )


def folded_panel(claim: Claim, record: Mapping[str, Any]) -> str:
    """Return a panel; that of an identity which holds is one line, and unfolds."""
    html = panel_html(claim, record)
    if not (claim.to_rounding and record["holds"]):
        return html
    largest = max(float(record["measured"][name]["worst"]) for name, check in claim.checks.items() if check.bound)
    line = f"<strong>{claim.id}</strong> holds to rounding, {largest:.0e} at most &middot; {escape(claim.title)}"
    return f"<details class='evidence-folded'><summary>{line}</summary>{html}</details>"


def function_link(name: str, chapter: str = "") -> str:
    """Return a link to a function of the package, or (``#name``) to the cell of a chapter that defines it."""
    return f"{{definition}}`{name[1:]} {chapter}`" if name.startswith("#") else f"{{py:obj}}`{name}`"


class FigureData(SphinxRole):
    """``{figuredata}`fig-race``` links to the CSV file behind a figure."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link."""
        up = "../" * self.env.docname.count("/")
        link = nodes.reference(
            "", "Data", refuri=f"{up}{FOLDER}/{self.text}.csv", internal=True, classes=["figure-data"]
        )
        link["reftitle"] = "the numbers that the figure shows, as CSV"
        return [link], []


def write_tables(app: Sphinx, error: Exception | None) -> None:
    """Write the files beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for path in (path for name in app.env.found_docs if (path := Path(app.env.doc2path(name))).suffix == ".ipynb"):
        for output in (output for output in stored_outputs(path) if CSV in output.get("data", {})):
            label, text = output["metadata"]["image/png"]["label"], "".join(output["data"][CSV])
            (folder / f"{label}.csv").write_text(text, encoding="utf-8")
