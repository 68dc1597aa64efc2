"""The tests, readable in the book: one page per file, an anchor per test, and links from the panels to them.

``sphinx.ext.viewcode`` does the same for the package. All these pages stand outside the table of contents, which is
therefore drawn once for all of one depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

logger = logging.getLogger(__name__)
_FOLDER = "_tests"
_CONTENTS: dict[tuple[str, int], dict[tuple[tuple[str, Any], ...], str]] = {}  # HTML by depth of the page and options


class TestLink(SphinxRole):
    """``{test}`tests/test_haar.py::test_projection``` links to the source of a test."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link; a test that does not exist is a warning."""
        file, _, name = self.text.split("[")[0].partition("::")
        path = Path(self.env.srcdir).parent / file
        anchor = name.replace("::", ".")
        if not path.is_file() or anchor not in _places(path):
            logger.warning(f"unknown test {self.text!r}", location=self.get_location(), type="symmetry", subtype="test")
            return [nodes.literal("", self.text)], []
        depth = "../" * self.env.docname.count("/")
        link = nodes.reference("", "", internal=True, refuri=f"{depth}{_FOLDER}/{path.stem}.html#{anchor}")
        link += nodes.literal("", f"{path.name}::{name}")
        return [link], []


@cache
def _places(path: Path) -> dict[str, int]:
    """Return the line of every function and class of a file, by its dotted name."""
    return {name: first for name, (_, first, _) in ModuleAnalyzer.for_file(path, path.stem).find_tags().items()}


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for every file with tests."""
    if app.builder.format != "html":
        return
    for path in sorted((Path(app.srcdir).parent / "tests").glob("test_*.py")):
        anchors = {line: name for name, line in _places(path).items()}
        code = highlight(path.read_text(encoding="utf-8"), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
        lines = [
            f'<span id="{escape(anchors[number])}"></span>{line}' if number in anchors else line
            for number, line in enumerate(code.splitlines(), start=1)
        ]
        body = f'<h1>{path.name}</h1><div class="highlight"><pre>' + "\n".join(lines) + "</pre></div>"
        yield f"{_FOLDER}/{path.stem}", {"title": path.name, "body": body, "parents": []}, "page.html"


def share_contents(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give a page of source the sidebar's table of contents that another one of its depth has drawn."""
    if doctree is not None or not page.startswith(("_modules/", f"{_FOLDER}/")):
        return
    draw, drawn = context["toctree"], _CONTENTS.setdefault((app.outdir, page.count("/")), {})

    def toctree(**options: Any) -> str:
        key = tuple(sorted(options.items()))
        if key not in drawn:
            drawn[key] = draw(**options)
        return drawn[key]

    context["toctree"] = toctree


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role and the pages."""
    app.add_role("test", TestLink())
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", share_contents, priority=100)  # before the theme, which draws it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
