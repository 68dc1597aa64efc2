"""The numbers behind a figure: a file for each, and a link to it at the end of the caption."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from figures_and_panels import tables_behind_figures

FOLDER = "_figures"


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
    for name in app.env.found_docs:
        path = Path(app.env.doc2path(name))
        if path.suffix == ".ipynb":
            for label, text in tables_behind_figures(json.loads(path.read_text(encoding="utf-8"))).items():
                (folder / f"{label}.csv").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role and the files."""
    app.add_role("figuredata", FigureData())
    app.connect("build-finished", write_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
