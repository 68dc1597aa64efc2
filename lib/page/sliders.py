"""A figure that a reader moves: drawn for some values of a parameter, one at a time, with no kernel and no network.

Knows no mathematics.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure
from PIL import Image

from lib.page.figures import PIXELS_PER_INCH, png, smallest_text
from lib.page.movies import Movie, assembled

_DPI, _COLOURS = 120, 256
_PAUSE = 900  # milliseconds that a frame stands when it plays


def slider(
    figures: Sequence[Figure],
    values: Sequence[float | str],
    *,
    symbol: str,
    label: str,
    caption: str,
    alt: str,
    start: int = 0,
) -> Movie:
    """Return figures of one size as a movie: a slider chooses one, a button plays them; without a script ``start``.

    There is one figure, which is closed, for each number or name that the slider chooses from, drawn on the same axes,
    so that only what depends on the value moves. Texts are plain, and as for :func:`lib.page.movies.point_movie`.

    >>> texts = {"label": "movie-empty", "caption": "Nothing.", "alt": "Two figures with nothing in them."}
    >>> slider([Figure(figsize=(3, 2)), Figure(figsize=(3, 2))], [1, 2], symbol="k", **texts).label
    'movie-empty'
    """
    sizes = {tuple(map(float, fig.get_size_inches())) for fig in figures}
    said = [value if isinstance(value, str) else float(f"{value:.4g}") for value in values]
    width, height = (round(side * PIXELS_PER_INCH) for side in sizes.pop())
    data = {"times": said, "frames": [], "symbol": symbol, "pause": _PAUSE, "width": width}
    shown = [f"{symbol} = {value}" if isinstance(value, str) else f"{symbol} = {value:g}" for value in said]
    pictures = [
        f'<img{" hidden" if place != start else ""} width="{width}" height="{height}" '
        f'alt="{escape(f"{text}: {alt}")}" src="data:image/webp;base64,{_webp(fig)}"/>'
        for place, (fig, text) in enumerate(zip(figures, shown, strict=True))
    ]
    data["points"] = min(map(smallest_text, figures))
    return assembled(label, caption, alt, pictures, data, start)


def _webp(fig: Figure) -> str:
    """Return the figure as a picture of few colours without losses, a third of a PNG, and close it."""
    small = io.BytesIO()
    with Image.open(io.BytesIO(png(fig, _DPI, tight=False))) as image:
        image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).convert("RGB").save(
            small, "webp", lossless=True
        )
    return base64.b64encode(small.getvalue()).decode()
