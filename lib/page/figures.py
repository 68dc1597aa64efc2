"""How every figure and table of the book looks and how it is shown: style, caption, label and alternative text.

Knows no mathematics; tests hold every figure of the book to its caption, label and alternative text. Nothing here
changes matplotlib's state on import; the style holds inside a ``with`` block.
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from scipy.spatial import cKDTree

if TYPE_CHECKING:
    import pandas as pd

DPI = 160
PIXELS_PER_INCH = 96  # of CSS: a figure is shown as wide as it is drawn, so that a point is 4/3 pixels in all of them
# The palette of Okabe and Ito, told apart under all common colour-vision deficiencies.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_CYCLE = cycler(color=COLOURS)
_UNSEEN = 0.25  # of 255: how far colours may move on average
LARGEST = 60_000  # characters; a figure of more numbers goes without
_LONGEST = 200  # points of one line; of a longer one every second, third, … is kept


@contextmanager
def style(**overrides: Any) -> Iterator[None]:
    """Draw in the book's style inside a ``with`` block; the old settings come back at its end.

    Figures made inside by ``plt.subplots`` leave pyplot's list at the end of the block, so that a notebook does not
    show them by itself; hand them to :func:`show`. Further settings of matplotlib have ``_`` for the first ``.``:
    ``style(figure_figsize=(4, 3))``.
    """
    settings = {
        "axes.prop_cycle": _CYCLE,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 11,
        "figure.constrained_layout.use": True,
        "figure.facecolor": "white",
        "axes.facecolor": "white",
        "figure.figsize": (6.4, 3.6),
        "font.size": 10,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "savefig.dpi": DPI,
    }
    import matplotlib.pyplot as plt  # here, so that importing lib chooses no backend

    before = set(plt.get_fignums())
    with matplotlib.rc_context(settings | {key.replace("_", ".", 1): value for key, value in overrides.items()}):
        yield
    for number in set(plt.get_fignums()) - before:
        plt.close(number)


def show(fig: Figure, *, label: str, caption: str, alt: str) -> None:
    """Display a figure with its caption and alternative text, and close it.

    A notebook shows the image and, under it, the caption; the book makes a numbered figure of the pair, to which
    ``{numref}`` can refer by its label: ``fig-`` and small letters, digits and dashes, unique in the book. The caption,
    in Markdown, says what to see; ``alt``, at least 20 characters of plain text, what a reader cannot see.
    """
    from IPython.display import display

    caption, alt = (" ".join(text.split()) for text in (caption, alt))
    picture = in_few_colours(png(fig))
    width = round(int.from_bytes(picture[16:20], "big") * PIXELS_PER_INCH / DPI)
    texts = {"label": label, "caption": caption, "alt": alt, "width": width, "points": smallest_text(fig)}
    image = {"image/png": base64.b64encode(picture).decode(), "text/plain": f"[{label}]"}
    image |= {"text/csv": data} if (data := figure_data(fig)) else {}
    display(image, metadata={"image/png": texts}, raw=True)
    below = {"text/markdown": f"**Figure.** {caption}", "text/plain": f"Figure. {caption}"}
    display(below, metadata={"symmetry": {"role": "caption"}}, raw=True)


def smallest_text(fig: Figure) -> float:
    """Return the size of the smallest visible text of a figure that has been drawn, in points; 99 without text."""
    written = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
    without = [axis for ax in fig.axes if not (ax.axison and ax.get_visible()) for axis in (ax.xaxis, ax.yaxis)]
    hidden = {text for axis in without for text in axis.findobj(Text)}
    return min((float(text.get_fontsize()) for text in written if text not in hidden), default=99.0)


def table(
    frame: pd.DataFrame,
    *,
    label: str,
    caption: str,
    digits: int = 3,
    formats: Mapping[str, str] | None = None,
) -> None:
    """Display a DataFrame as a captioned table; the book numbers it, and ``{numref}`` can refer to its label.

    The index is shown unless it only counts the rows. Text and names of columns may hold Markdown and formulas. The
    label is ``tab-`` and small letters, digits and dashes. Real numbers have so many significant digits (whole numbers
    are shown whole), or the format of their column, as ``{"gain": "{:.2f}"}``.
    """
    from IPython.display import display

    texts = {"label": label, "caption": " ".join(caption.split())}
    counted = frame.index.names == [None] and list(frame.index) == list(range(len(frame)))
    shown = frame if counted else frame.reset_index()
    given = dict(formats or {})
    columns = [[_cell(v, given.get(str(n)), digits) for v in shown[n]] for n in shown.columns]
    right = [all(isinstance(v, (int, float, np.number)) for v in shown[n]) for n in shown.columns]
    head = [str(name) for name in shown.columns]
    rows = list(zip(*columns, strict=True))
    rule = ["---:" if numeric else "---" for numeric in right]
    lines = ["| " + " | ".join(text.replace("|", r"\|") for text in row) + " |" for row in (head, rule, *rows)]
    top, *body = (
        f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
        for tag, row in (("th", head), *(("td", row) for row in rows))
    )
    html = f"<table><caption>{escape(texts['caption'])}</caption><thead>{top}</thead><tbody>{''.join(body)}"
    data = {"text/html": f"{html}</tbody></table>", "text/markdown": "\n".join(lines)}
    data["text/plain"] = "\n".join("\t".join(cells) for cells in (head, *rows))
    display(data, metadata={"symmetry": {"role": "table"} | texts}, raw=True)


def image_grid(
    images: Any,
    titles: Sequence[str],
    *,
    columns: int | None = None,
    size: float = 1.4,
    cmap: str = "gray",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw small images, ``(height, width)`` or ``(height, width, 3)``, in rows, each under its title.

    By default all are in one row; ``size`` is the width of one in inches. Images of one channel have the colour map
    ``cmap``, whose ends are the limits, by default each image's own extremes.
    """
    arrays = [np.asarray(image) for image in images]
    columns = len(arrays) if columns is None else columns
    low, high = limits if limits is not None else (None, None)
    rows = math.ceil(len(arrays) / columns)
    fig = Figure(figsize=(size * columns, (size + 0.3) * rows), layout="constrained", facecolor="white")
    axes = fig.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, array, title in zip(axes, arrays, titles, strict=False):
        ax.imshow(array, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
        ax.set_title(title, fontsize=10)
    return fig


def _cell(value: Any, form: str | None, digits: int) -> str:
    if form is not None:
        return form.format(value)
    if isinstance(value, (float, np.floating)):
        return "" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)


def png(fig: Figure, dpi: int = DPI, *, tight: bool = True) -> bytes:
    """Return a figure as PNG bytes without a date or a version, cut to its contents if tight, and close it."""
    from matplotlib import pyplot

    buffer = io.BytesIO()
    with matplotlib.rc_context({"axes.prop_cycle": _CYCLE}):  # colours named C0, C1, ... get their meaning only here
        box = "tight" if tight else None
        fig.savefig(buffer, format="png", dpi=dpi, facecolor="white", bbox_inches=box, metadata={"Software": None})
    pyplot.close(fig)
    return buffer.getvalue()


def in_few_colours(picture: bytes) -> bytes:
    """Return a PNG with a palette of 256 colours, a third of the size, where nobody sees it; photographs stay.

    The palette holds the 64 most frequent colours as they are, so that lines keep theirs, and a median cut of all.
    """
    with Image.open(io.BytesIO(picture)) as image:
        full = image.convert("RGB")
    pixels, buffer = np.asarray(full).astype(int), io.BytesIO()
    packed, place, count = np.unique(pixels @ [65536, 256, 1], return_inverse=True, return_counts=True)
    colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], 1)
    cut = np.reshape(full.quantize(192, dither=Image.Dither.NONE).getpalette(), (-1, 3))[:192]
    palette = np.concatenate([colours[np.argsort(-count, kind="stable")[:64]], cut])
    moved, nearest = cKDTree(palette).query(colours)
    if (moved * count).sum() / count.sum() > _UNSEEN:
        return picture
    small = Image.fromarray(nearest[place].reshape(pixels.shape[:2]).astype(np.uint8), "P")
    small.putpalette(palette.astype(np.uint8).tobytes())
    small.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def figure_data(fig: Figure) -> str:
    """Return the numbers that a figure shows as CSV, a row per point: panel, kind, series, x and y.

    A panel has its title or its number, a series the name in the legend or a number. Lines, scattered points and bars
    are given in the units of the axes; whatever is drawn in other units (arrows, texts, reference lines) and images are
    left out. The text is empty where nothing remains, and where it would be longer than 60 000 characters.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("panel", "kind", "series", "x", "y"))
    rows = 0
    for number, ax in enumerate(fig.axes, start=1):
        panel = " ".join(ax.get_title().split()) or str(number)
        for place, (kind, name, x, y) in enumerate(_series(ax), start=1):
            points = [(f"{a:.5g}", f"{b:.5g}") for a, b in zip(x, y, strict=True) if np.isfinite((a, b)).all()]
            writer.writerows((panel, kind, name or place, *point) for point in points)
            rows += len(points)
    text = buffer.getvalue()
    return text if rows and len(text) <= LARGEST else ""


def _series(ax: Axes) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Yield kind, name and points of everything on a panel that is drawn in the units of its axes."""
    for line in ax.lines:
        x, y = (_numbers(values) for values in line.get_data(orig=False))
        if line.get_transform() == ax.transData and line.get_visible():
            step = max(1, -(-len(x) // _LONGEST))
            yield "line", _name(line), x[::step], y[::step]
    for points in ax.collections:
        if isinstance(points, PathCollection) and points.get_offset_transform() == ax.transData:
            x, y = np.ma.getdata(points.get_offsets()).T
            yield "points", _name(points), x, y
    for bars in ax.containers:
        if isinstance(bars, BarContainer):
            middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
            yield "bars", _name(bars), _numbers(middles), _numbers([bar.get_y() + bar.get_height() for bar in bars])


def _numbers(values: Iterable[Any]) -> np.ndarray:
    return np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)


def _name(artist: Any) -> str:
    """Return an artist's name in the legend; without one its label begins with an underscore."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else " ".join(label.split())
