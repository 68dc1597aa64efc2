"""Leave out of the built book what no reader needs, so that a first visit loads half as much."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
