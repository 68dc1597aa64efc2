"""Leave out of the built book what no reader needs, for a first visit to load half as much; order what is found."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

logger = logging.getLogger(__name__)
# The theme has every icon twice, in a font and as 1.5 MB of script that draws it anew; the pages use the font.
_ICONS = Path("_static", "scripts", "fontawesome.js")


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
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
