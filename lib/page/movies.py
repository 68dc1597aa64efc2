"""Clouds of points that move: an animation to scrub through by hand, with no kernel and no network.

:func:`point_movie` writes one self-contained piece of HTML: the pictures are SVG, the frames are stored in it as whole
numbers, and a few lines of script move the points. It rests at one frame, usually the first, which stays as a still
picture where no script runs; on paper stand the first, the middle and the last one. Colours follow the light and the
dark theme of the page. Knows no mathematics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

_UNITS = 1000  # the side of a panel in the numbers of the SVG
LARGEST = 1_500_000  # characters of one movie
SECOND = "--movie-point:var(--movie-mark)"  # points in the colour that crosses have elsewhere
DARK = "--movie-mark:currentColor"
_DATA = '<script type="application/json">'


@dataclass(frozen=True)
class Panel:
    """One picture of a movie."""

    title: str  #: stands above the picture
    frames: Any  #: positions of the moving points, an array of shape ``(frames, points, 2)``
    marks: Any = ()  #: points that stay where they are, an array of shape ``(marks, 2)``, drawn as crosses
    lines: Sequence[tuple[tuple[float, float], tuple[float, float]]] = ()  #: segments that stay where they are
    second: bool = False  #: are its points of the second colour? Then all crosses of the movie are as dark as the text


@dataclass(frozen=True)
class Movie:
    """An animation; the last expression of a notebook cell shows it."""

    label: str  #: its name, and the id of its HTML element
    html: str  #: self-contained

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": f"[{self.label}]"}


def point_movie(
    panels: Sequence[Panel],
    times: Sequence[float] | np.ndarray,
    *,
    limits: tuple[float, float],
    label: str,
    caption: str,
    alt: str,
    axes: tuple[str, str],
    legend: Sequence[Sequence[str]] = (("point", "moving points"), ("mark", "fixed points"), ("line", "line")),
    symbol: str = "t",
    start: int = 0,
) -> Movie:
    """Return an animation of point clouds side by side, with a button to play and a slider for the time.

    All panels have a frame for every time. Both axes, which have names in plain text, run from ``limits[0]`` to
    ``limits[1]``; points outside are not seen. The label is ``movie-`` and small letters, digits and dashes, unique in
    the book; the caption says what to see, ``alt`` what a reader cannot see, in at least 20 characters. The legend has
    pairs of a kind (``point``, ``second``, ``mark`` or ``line``) and its name; the symbol stands before the equals sign
    beside the slider. Before it is played, the movie rests at frame ``start``; -1 is the last one.
    """
    low, high = limits
    moving = [np.asarray(panel.frames, dtype=float) for panel in panels]
    if not moving or not len(times) or not low < high or any(len(m) != len(times) for m in moving):
        got = [len(m) for m in moving]
        raise ValueError(f"panels must have one frame for each of {len(times)} ≥ 1 times, got {got} frames")
    if not all(np.isfinite(values).all() for values in (times, *moving)):
        raise ValueError("times and frames must be finite, got NaN or infinite entries")
    fixed = [{"title": p.title, "marks": _scaled(p.marks, limits), "lines": _scaled(p.lines, limits)} for p in panels]
    if any(p.second for p in panels):
        fixed = [kept | {"second": p.second} for kept, p in zip(fixed, panels, strict=True)]
    data = {"times": [round(float(t), 3) for t in times], "symbol": symbol, "pause": 90}
    data |= {"limits": limits, "axes": axes, "legend": legend, "panels": fixed}
    data["frames"] = [_scaled(m, limits).reshape(len(m), -1) for m in moving]
    data = json.loads(_stored(data))
    start = range(len(times))[start]
    drawn = zip(data["panels"], data["frames"], strict=True)
    pictures = [_picture(panel, frames[start], data["limits"], data["axes"], alt) for panel, frames in drawn]
    return assembled(label, caption, alt, pictures, data, start)


def _scaled(points: Any, limits: tuple[float, float]) -> np.ndarray:
    """Return whole SVG coordinates of points (..., 2); the vertical axis of SVG points down."""
    low, high = limits
    unit = (np.asarray(points, dtype=float) - low) / (high - low) * _UNITS
    unit = (unit * [1, -1] + [0, _UNITS]) if unit.size else unit
    return np.rint(unit.clip(-_UNITS, 2 * _UNITS)).astype(int)


def _picture(panel: Mapping[str, Any], frame: list[int], limits: Sequence[float], axes: Sequence[str], alt: str) -> str:
    """Return one panel as SVG, showing one frame, whose numbers are x0, y0, x1, y1 and so on."""
    low, high = limits
    lines = "".join(f'<line class="line" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>' for (a, b), (c, d) in panel["lines"])
    crosses = "".join(f'<path class="mark" d="M{x - 18} {y - 18}l36 36m0 -36l-36 36"/>' for x, y in panel["marks"])
    points = zip(frame[::2], frame[1::2], strict=True)
    dots = "".join(f'<circle class="point" cx="{x}" cy="{y}" r="11"/>' for x, y in points)
    if "second" in panel:  # a movie in two colours
        dots, crosses = _coloured(dots, SECOND if panel["second"] else ""), _coloured(crosses, DARK)
    ticks = "".join(
        f'<text x="{at}" y="1050" text-anchor="middle">{value:g}</text>'
        f'<text x="-18" y="{_UNITS - at + 14}" text-anchor="end">{value:g}</text>'
        for at, value in ((0, low), (_UNITS // 2, (low + high) / 2), (_UNITS, high))
    )
    names = (
        f'<text x="500" y="1110" text-anchor="middle">{escape(axes[0])}</text>'
        f'<text transform="translate(-95 500) rotate(-90)" text-anchor="middle">{escape(axes[1])}</text>'
    )
    title = escape(panel["title"])
    return (
        f'<svg viewBox="-140 -80 1180 1210" role="img" aria-label="{title}: {escape(alt)}">'
        f'<text class="title" x="500" y="-28" text-anchor="middle">{title}</text>'
        f'<rect class="frame" width="{_UNITS}" height="{_UNITS}"/>{ticks}{names}'
        f'<svg width="{_UNITS}" height="{_UNITS}" viewBox="0 0 {_UNITS} {_UNITS}">{lines}{dots}{crosses}</svg></svg>'
    )


def _coloured(marks: str, how: str) -> str:
    """Return SVG elements in a group of their own colour, or as they are."""
    return f'<g style="{how}">{marks}</g>' if how and marks else marks


def assembled(label: str, caption: str, alt: str, pictures: list[str], data: dict[str, Any], start: int = 0) -> Movie:
    """Return pictures of frame ``start`` with button, slider, legend, caption and all of ``data``."""
    last = len(data["times"]) - 1
    dot, cross = '<circle class="point" cx="9" cy="9" r="5"/>', '<path class="mark" d="M3 3l12 12m0 -12l-12 12"/>'
    two = any("second" in panel for panel in data.get("panels", ()))
    shapes = {
        "point": dot,
        "second": _coloured(dot, SECOND),
        "mark": _coloured(cross, DARK if two else ""),
        "line": '<line class="line" x1="0" y1="9" x2="18" y2="9"/>',
    }
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 18 18" aria-hidden="true">{shapes[kind]}</svg> {escape(name)}</span>'
        for kind, name in data.get("legend", ())
    )
    html = (
        f'<figure class="movie" id="{label}" role="group" aria-label="{escape(alt)}"><style>{_part("css")}</style>'
        f'<div class="pictures">{"".join(pictures)}</div><div class="legend">{keys}</div>'
        f'<div class="controls"><button type="button" aria-label="Play">&#9654;</button>'
        f'<input type="range" min="0" max="{last}" value="{start}" step="1" aria-label="Frame of the animation"/>'
        f"<output>{escape(data['symbol'])} = {_said(data['times'][start])}</output></div>"
        f"<figcaption>{escape(caption)}</figcaption>"
        f"{_DATA}{_stored(data)}</script>"
        f"<script>{_part('js').replace('LABEL', label)}</script></figure>"
    )
    if len(html) > LARGEST:
        raise ValueError(f"the movie must stay below {LARGEST} characters, got {len(html)}: use fewer frames or points")
    return Movie(label, html)


@cache
def _part(suffix: str) -> str:
    text = Path(__file__).with_name(f"movie.{suffix}").read_text(encoding="utf-8").strip()
    return text.replace("\n", "") if suffix == "css" else text


def _said(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:g}"


def _stored(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), default=np.ndarray.tolist).replace("<", "\\u003c")
