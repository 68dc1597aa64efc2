"""Fold the reference pages of the API: of every function and class the signature and the first sentence stay open."""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def fold(app: Sphinx, doctree: nodes.document) -> None:
    """Put what follows the first paragraph of every description into a box; a class goes there with its methods."""
    if not app.env.docname.startswith("api"):
        return
    for description in list(doctree.findall(addnodes.desc)):
        if isinstance(description.parent, addnodes.desc_content):
            continue
        content = description.next_node(addnodes.desc_content)
        first = next((i for i, child in enumerate(content) if isinstance(child, nodes.paragraph)), None)
        if first is None or first + 1 == len(content):
            continue
        name = description.next_node(addnodes.desc_name).astext()
        summary = f"<summary>More<span class='visually-hidden'> on {name}</span></summary>"
        content.insert(first + 1, nodes.raw("", f"<details class='api-more'>{summary}", format="html"))
        content += nodes.raw("", "</details>", format="html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("doctree-read", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
