"""What is done to every HTML page after its content is made: what no reader needs is left out, mistakes are mended.

Reference pages are folded; other sites are told what to show of a page to which somebody links.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

logger = logging.getLogger(__name__)
# The theme has every icon twice, in a font and as 1.5 MB of script that draws it anew; the pages use the font.
_ICONS = Path("_static", "scripts", "fontawesome.js")
_SIGNATURE = re.compile(r"<dl>\n((?:<dd>.*?</dd>\n)+)</dl>", re.DOTALL)
_SHORTEST, _LONGEST = 40, 200


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


def mended(html: str) -> str:
    """Return the body of a page with two mistakes mended.

    The lines of a long signature are a list of definitions without terms: they become plain lines. The bibliography is
    a list whose members say that they are entries of a bibliography, and not of a list: it ceases to call itself one.
    """
    html = _SIGNATURE.sub(
        lambda match: match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>"), html
    )
    return html.replace('<div role="list" class="citation-list">', '<div class="citation-list">')


def notice(pathto: Callable[[str], str], root: str) -> str:
    """Return what a page says where no script runs, with a way to all chapters (the menu needs one)."""
    return (
        '<noscript><p class="no-script">Without JavaScript formulas are shown as TeX, figures do not move, menu and '
        f'search are closed. All chapters are listed on the <a href="{pathto(root)}">opening page</a>.</p></noscript>'
    )


def mend(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend a page before it is written."""
    if "body" in context:
        said = notice(context["pathto"], app.config.root_doc)
        context["body"] = said + mended(context["body"])


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
    site = app.config.html_title
    shown = tags(title, site, description(doctree), address, f"{base}/{picture}" if has_picture else "")
    context["metatags"] = context.get("metatags", "") + shown


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Empty the script with the icons, and remove maps of sources that nobody debugs here."""
    if error or app.builder.format != "html" or app.config.html_theme != "sphinx_book_theme":
        return
    icons = Path(app.outdir) / _ICONS
    if icons.is_file():
        icons.write_text("// The pages take their icons from the font.\n", encoding="utf-8")
    else:
        logger.warning(f"the theme has no {_ICONS} any more: see what it loads instead", type="symmetry")
    for path in Path(app.outdir, "_static").rglob("*.map"):
        path.unlink()


def order_search(app: Sphinx, config: Config) -> None:
    """Let a search name chapters before the reference: Sphinx would look for the script where it was started."""
    script = Path(app.srcdir, "_static", "scorer.js")
    config.html_search_scorer = str(script) if script.is_file() else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the changes."""
    app.connect("config-inited", order_search)
    app.connect("doctree-read", fold)
    app.connect("html-page-context", mend)
    app.connect("html-page-context", add_tags)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
