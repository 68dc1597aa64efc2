"""The numbers behind a figure as a table: what its lines, points, bars and small images show."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

LARGEST = 60_000  # characters; a figure of more numbers goes without
_LONGEST = 200  # points of one line; of a longer one every second, third, … is kept


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
