"""Edit a notebook before it is parsed: captioned figures, and links under the panels of evidence."""

from __future__ import annotations

import copy
from typing import Any

MIME_TYPE = "application/vnd.symmetry-book.evidence+json"


def prepare_notebook(notebook: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the notebook as the book shows it, and messages about figures that cannot be shown well.

    A figure and a panel each get a cell of their own, because MyST-NB's figure options hold for a whole cell.
    """
    messages: list[str] = []
    anchored: set[str] = set()
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(notebook["cells"], start=1):
        cells += _split(cell, number, messages, anchored) if cell["cell_type"] == "code" else [cell]
    return notebook | {"cells": cells}, messages


def _split(cell: dict[str, Any], number: int, messages: list[str], anchored: set[str]) -> list[dict[str, Any]]:
    cells = [cell | {"outputs": []}]
    fresh = True  # whether the last cell may take another output as it is
    for output in cell["outputs"]:
        data = output.get("data", {})
        image = next((kind for kind in data if kind.startswith("image/")), None)
        if output.get("metadata", {}).get("symmetry", {}).get("role") == "caption":
            continue
        if image is None and MIME_TYPE not in data:
            if not fresh:
                cells.append(_continuation(cell, len(cells)))
            cells[-1]["outputs"].append(output)
            fresh = True
            continue
        if not fresh or cells[-1]["outputs"]:
            cells.append(_continuation(cell, len(cells)))
        fresh = False
        if image is not None:
            _add_figure(cells[-1], output, image, number, messages)
        else:
            _add_panel(cells, output, anchored)
    return cells


def _continuation(cell: dict[str, Any], place: int) -> dict[str, Any]:
    """Return a cell that shows outputs only (an empty source would drop it)."""
    metadata = copy.deepcopy(cell["metadata"])
    tags = [tag for tag in metadata.get("tags", []) if tag not in ("hide-input", "remove-input")]
    metadata["tags"] = [*tags, "remove-input"]
    return cell | {
        "id": f"{cell.get('id', 'cell')}-{place}",
        "source": "# (outputs)",
        "metadata": metadata,
        "outputs": [],
    }


def _add_figure(cell: dict[str, Any], output: dict[str, Any], kind: str, number: int, messages: list[str]) -> None:
    texts = output.get("metadata", {}).get(kind, {})
    cell["outputs"] = [output]
    missing = [name for name in ("alt", "caption", "label") if not str(texts.get(name, "")).strip()]
    if missing:
        messages.append(f"cell {number} shows an image without {' and '.join(missing)}: use lib.page.figures.show")
        return
    figure = {"caption": texts["caption"], "name": texts["label"]}
    own = {"image": {"alt": texts["alt"]}, "figure": figure}
    cell["metadata"] = cell["metadata"] | {"mystnb": cell["metadata"].get("mystnb", {}) | own}


def _add_panel(cells: list[dict[str, Any]], output: dict[str, Any], anchored: set[str]) -> None:
    """Add a panel, with an anchor at a claim's first one, and the links to ledger, function and test below it."""
    record = output["data"][MIME_TYPE]
    html = "".join(output["data"].get("text/html", ""))
    if record["id"] not in anchored:
        anchored.add(record["id"])
        html = html.replace("<div ", f"<div id='evidence-{record['id'].lower()}' ", 1)
    cells[-1]["outputs"] = [output | {"data": {"text/html": html, "text/plain": output["data"]["text/plain"]}}]
    links = f"Ledger: {{claim}}`{record['id']}`. Function: {{py:obj}}`{record['function']}`. "
    links += f"Test: {{test}}`{record['test']}`."
    source = f"```{{div}} evidence-links\n{links}\n```\n"
    cells.append(
        {"cell_type": "markdown", "id": f"links-{len(anchored)}-{len(cells)}", "metadata": {}, "source": source}
    )
