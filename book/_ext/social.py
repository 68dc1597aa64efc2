"""What other sites show of a page to which somebody links: title, first sentences and, where it is known, a picture."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_SHORTEST, _LONGEST = 40, 200


def description(doctree: nodes.document) -> str:
    """Return a page's first paragraph that says something, cut between words."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) >= _SHORTEST and not any(paragraph.findall(nodes.math)):
            return text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0] + " …"
    return ""


def tags(title: str, site: str, text: str, address: str, picture: str) -> str:
    """Return the elements for the head of a page; those without a value are left out."""
    properties = {"og:type": "article", "og:site_name": site, "og:title": title, "og:description": text}
    properties |= {"og:url": address, "og:image": picture}
    lines = [f'<meta name="description" content="{escape(text)}">'] if text else []
    lines += [f'<meta property="{name}" content="{escape(value)}">' for name, value in properties.items() if value]
    return "\n".join([*lines, '<meta name="twitter:card" content="summary">']) + "\n"


def add_tags(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Add the elements to every page of the book; the picture is that of the page's card on the opening page."""
    if doctree is None:
        return
    base = app.config.html_baseurl.rstrip("/")
    picture = f"_images/thumbnail-{pagename}.webp"
    has_picture = base and (Path(app.outdir) / picture).is_file()
    title = app.env.titles[pagename].astext()
    address = f"{base}/{pagename}.html" if base else ""
    shown = tags(title, app.config.project, description(doctree), address, f"{base}/{picture}" if has_picture else "")
    context["metatags"] = context.get("metatags", "") + shown


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
