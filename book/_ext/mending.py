"""Mend what docutils and Sphinx write so that a screen reader, or a reader without scripts, would be misled."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sphinx.application import Sphinx

_SIGNATURE = re.compile(r"<dl>\n((?:<dd>.*?</dd>\n)+)</dl>", re.DOTALL)


def mended(html: str) -> str:
    """Return the body of a page with two mistakes mended.

    The lines of a long signature are a list of definitions without terms: they become plain lines. The bibliography is
    a list whose members say that they are entries of a bibliography, and not of a list: it ceases to call itself one.
    """
    html = _SIGNATURE.sub(_plain_lines, html)
    return html.replace('<div role="list" class="citation-list">', '<div class="citation-list">')


def notice(pathto: Callable[[str], str], root: str) -> str:
    """Return what a page says where no script runs, with a way to all chapters (the menu needs one)."""
    return (
        '<noscript><p class="no-script">Without JavaScript formulas are shown as TeX, figures do not move, menu and '
        f'search are closed. All chapters are listed on the <a href="{pathto(root)}">opening page</a>.</p></noscript>'
    )


def _plain_lines(match: re.Match[str]) -> str:
    return match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")


def mend(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend a page before it is written."""
    if "body" in context:
        said = notice(context["pathto"], app.config.root_doc)
        context["body"] = said + mended(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
