"""Clouds of points that move: an animation to scrub through by hand, with no kernel and no network.

:func:`point_movie` writes one self-contained piece of HTML: the pictures are SVG, the frames are stored in it as whole
numbers, and a few lines of script move the points. It begins at its first frame, which stays as a still picture where
no script runs; on paper stand the first, the middle and the last one. Colours follow the light and the dark theme of
the page. Knows no mathematics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import count
from typing import Any

import numpy as np

from lib.checks import check_choice, check_float, check_int
from lib.page.figures import check_texts

_UNITS = 1000  # the side of a panel in the numbers of the SVG
LARGEST = 1_500_000  # characters of one movie


@dataclass(frozen=True)
class Panel:
    """One picture of a movie.

    Attributes
    ----------
    title : str
        Stands above the picture.
    frames : Any
        Positions of the moving points, an array of shape ``(frames, points, 2)``.
    marks : Any
        Points that stay where they are, an array of shape ``(marks, 2)``, drawn as crosses.
    lines : Sequence
        Segments ((x, y), (x, y)) that stay where they are.
    """

    title: str
    frames: Any
    marks: Any = field(default_factory=lambda: np.empty((0, 2)))
    lines: Sequence[tuple[tuple[float, float], tuple[float, float]]] = ()


@dataclass(frozen=True)
class Movie:
    """An animation; the last expression of a notebook cell shows it.

    Attributes
    ----------
    label : str
        Its name, and the id of its HTML element.
    html : str
        The self-contained HTML.
    """

    label: str
    html: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": f"[{self.label}]"}


def point_movie(
    panels: Sequence[Panel],
    times: Sequence[float],
    *,
    limits: tuple[float, float],
    label: str,
    caption: str,
    alt: str,
    axes: tuple[str, str],
    legend: Sequence[tuple[str, str]] = (("point", "moving points"), ("mark", "fixed points"), ("line", "line")),
    symbol: str = "t",
) -> Movie:
    """Return an animation of point clouds side by side, with a button to play and a slider for the time.

    Parameters
    ----------
    panels
        The pictures; all have the same number of frames.
    times
        The time of every frame.
    limits
        Both axes run from ``limits[0]`` to ``limits[1]``; points outside are not seen.
    label, caption, alt
        ``movie-`` and small letters, digits and dashes, unique in the book; what to see; what the movie shows, for a
        reader who cannot see it, at least 20 characters.
    axes
        Names of the horizontal and the vertical axis, plain text.
    legend
        Pairs of a kind (``point``, ``mark`` or ``line``) and its name.
    symbol
        What stands before the equals sign beside the slider.

    Raises
    ------
    ValueError
        No panel, no frame, shapes or numbers of frames that do not fit, NaN, empty limits, a label or a text of another
        form, or a movie of more than 1.5 million characters.
    """
    check_texts("movie", {"label": label, "caption": caption, "alt": alt})
    if not (low := check_float("limits", limits[0])) < (high := check_float("limits", limits[1])):
        raise ValueError(f"limits must increase, got {limits}")
    if len(axes) != 2 or not all(isinstance(name, str) for name in axes):
        raise ValueError(f"axes must be two names, got {axes!r}")
    for entry in legend:
        if isinstance(entry, str) or len(entry) != 2:
            raise ValueError(f"legend must hold pairs of a kind and its name, got {entry!r}")
    if not np.isfinite(np.asarray(times, dtype=float)).all():
        raise ValueError("times must be finite, got NaN or infinite entries")
    moving = [_positions(f"panels[{k}].frames", p.frames, 3) for k, p in enumerate(panels)]
    if not moving or not len(times) or any(len(m) != len(times) for m in moving):
        got = [len(m) for m in moving]
        raise ValueError(f"panels must have one frame for each of {len(times)} ≥ 1 times, got {got} frames")
    scaled = [_scaled(m, low, high) for m in moving]
    pictures = [_picture(p, s[0], low, high, axes, alt) for p, s in zip(panels, scaled, strict=True)]
    data = {"times": [round(float(t), 3) for t in times], "frames": [s.reshape(len(s), -1).tolist() for s in scaled]}
    data |= {"symbol": symbol, "pause": 90}
    return assembled(label, caption, alt, pictures, legend, data)


def excerpt(html: str, panels: Sequence[int], *, every: int, label: str, caption: str, alt: str) -> Movie:
    """Return a smaller movie: some panels of a stored one, and of their points the first of every few.

    Parameters
    ----------
    html
        What :func:`point_movie` wrote.
    panels
        Which pictures are kept, counted from 0.
    every
        One point of so many is kept.
    label, caption, alt
        The texts of the smaller movie, as there.

    Raises
    ------
    ValueError
        No movie, no panel or one that is not there, ``every`` below 1, or a text of another form.
    """
    check_texts("movie", {"label": label, "caption": caption, "alt": alt})
    old = re.search(r'<figure class="movie" id="([^"]*)" role="group" aria-label="([^"]*)"', html)
    stored = re.search(r'<script type="application/json">(.*?)</script>', html)
    if not old or not stored:
        raise ValueError(f"html must be that of a movie, got {html[:40]!r}")
    pictures = re.findall(r'<svg viewBox="-140 .*?</svg></svg>', html)
    if not panels or not all(0 <= k < len(pictures) for k in panels):
        raise ValueError(f"panels must name some of the pictures 0 to {len(pictures) - 1}, got {list(panels)}")
    every = check_int("every", every)
    data = json.loads(stored[1])
    frames = len(data["times"])
    clouds = [np.reshape(data["frames"][k], (frames, -1, 2))[:, ::every] for k in panels]
    data["frames"] = [cloud.reshape(frames, -1).tolist() for cloud in clouds]
    kept = "".join(_thinned(pictures[k], every) for k in panels)
    start, end = html.index(pictures[0]), html.rindex(pictures[-1]) + len(pictures[-1])
    small = (html[:start] + kept + html[end:]).replace(stored[1], _stored(data))
    small = small.replace(f'"{old[1]}"', f'"{label}"').replace(old[2], escape(alt))
    told = f"<figcaption>{escape(caption)}</figcaption>"
    return Movie(label, re.sub(r"<figcaption>.*?</figcaption>", lambda _: told, small, flags=re.DOTALL))


def _thinned(picture: str, every: int) -> str:
    """Return a picture without most of its points."""
    number = count()
    return re.sub("<circle .*?/>", lambda dot: "" if next(number) % every else dot[0], picture)


def _positions(name: str, points: Any, axes: int) -> np.ndarray:
    array = np.asarray(points, dtype=float)
    if array.ndim != axes or array.shape[-1] != 2:
        wanted = "(frames, points, 2)" if axes == 3 else "(points, 2)"
        raise ValueError(f"{name} must have shape {wanted}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    return array


def _scaled(points: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return whole SVG coordinates; the vertical axis of SVG points down."""
    unit = (points - low) / (high - low) * _UNITS * [1, -1] + [0, _UNITS]
    return np.rint(unit.clip(-_UNITS, 2 * _UNITS)).astype(int)


def _picture(panel: Panel, first: np.ndarray, low: float, high: float, axes: tuple[str, str], alt: str) -> str:
    """Return one panel as SVG, showing the first frame."""
    if any(len(line) != 2 for line in panel.lines):
        raise ValueError(f"panel.lines must be pairs of points, got {panel.lines!r}")
    marks = _scaled(_positions("panel.marks", panel.marks, 2), low, high)
    lines = "".join(
        f'<line class="line" x1="{a[0]}" y1="{a[1]}" x2="{b[0]}" y2="{b[1]}"/>'
        for a, b in (_scaled(_positions("panel.lines", line, 2), low, high) for line in panel.lines)
    )
    crosses = "".join(f'<path class="mark" d="M{x - 18} {y - 18}l36 36m0 -36l-36 36"/>' for x, y in marks)
    dots = "".join(f'<circle class="point" cx="{x}" cy="{y}" r="11"/>' for x, y in first)
    ticks = "".join(
        f'<text x="{at}" y="1050" text-anchor="middle">{value:g}</text>'
        f'<text x="-18" y="{_UNITS - at + 14}" text-anchor="end">{value:g}</text>'
        for at, value in ((0, low), (_UNITS // 2, (low + high) / 2), (_UNITS, high))
    )
    names = (
        f'<text x="500" y="1110" text-anchor="middle">{escape(axes[0])}</text>'
        f'<text transform="translate(-95 500) rotate(-90)" text-anchor="middle">{escape(axes[1])}</text>'
    )
    return (
        f'<svg viewBox="-140 -80 1180 1210" role="img" aria-label="{escape(panel.title)}: {escape(alt)}">'
        f'<text class="title" x="500" y="-28" text-anchor="middle">{escape(panel.title)}</text>'
        f'<rect class="frame" width="{_UNITS}" height="{_UNITS}"/>{ticks}{names}'
        f'<svg width="{_UNITS}" height="{_UNITS}" viewBox="0 0 {_UNITS} {_UNITS}">{lines}{dots}{crosses}</svg></svg>'
    )


def assembled(
    label: str, caption: str, alt: str, pictures: list[str], legend: Sequence[tuple[str, str]], data: dict[str, Any]
) -> Movie:
    """Return pictures with button, slider, legend and caption; ``data`` holds times, symbol, pause and frames."""
    last = len(data["times"]) - 1
    shapes = {
        "point": '<circle class="point" cx="9" cy="9" r="5"/>',
        "mark": '<path class="mark" d="M3 3l12 12m0 -12l-12 12"/>',
        "line": '<line class="line" x1="0" y1="9" x2="18" y2="9"/>',
    }
    for kind, _ in legend:
        check_choice("the kind of a legend's entry", kind, shapes)
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 18 18" aria-hidden="true">{shapes[kind]}</svg> {escape(name)}</span>'
        for kind, name in legend
    )
    html = (
        f'<figure class="movie" id="{label}" role="group" aria-label="{escape(alt)}"><style>{_STYLE}</style>'
        f'<div class="pictures">{"".join(pictures)}</div><div class="legend">{keys}</div>'
        f'<div class="controls"><button type="button" aria-label="Play">&#9654;</button>'
        f'<input type="range" min="0" max="{last}" value="0" step="1" aria-label="Frame of the animation"/>'
        f"<output>{escape(data['symbol'])} = {_said(data['times'][0])}</output></div>"
        f"<figcaption>{escape(caption)}</figcaption>"
        f'<script type="application/json">{_stored(data)}</script>'
        f"<script>{_SCRIPT.replace('LABEL', label)}</script></figure>"
    )
    if len(html) > LARGEST:
        raise ValueError(f"the movie must stay below {LARGEST} characters, got {len(html)}: use fewer frames or points")
    return Movie(label, html)


def _said(value: float | str) -> str:
    return escape(value) if isinstance(value, str) else f"{value:g}"


def _stored(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


_STYLE = """
.movie{--movie-point:#0072b2;--movie-mark:#d55e00;--movie-line:#007a5a;margin:1em 0;color:inherit}
html[data-theme="dark"] .movie,body[data-jp-theme-light="false"] .movie{--movie-point:#6cc4f5;--movie-mark:#ffb454;
--movie-line:#4fc7a4}
html[data-theme="dark"] .bd-content div.cell_output .text_html.output:has(.movie){background-color:transparent;
color:inherit;padding:0}
.movie .pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,14em),1fr));gap:.6em}
.movie .pictures>svg{width:100%;height:auto;max-height:24em}
.movie .pictures>img{max-width:100%;height:auto;margin:0 auto}.movie .pictures>img[hidden]{display:none}
.movie svg text{fill:currentColor;font-size:40px}.movie svg text.title{font-size:50px}
.movie .frame{fill:none;stroke:currentColor;stroke-opacity:.4;stroke-width:2}
.movie .point{fill:var(--movie-point);fill-opacity:.65}
.movie .mark{fill:none;stroke:var(--movie-mark);stroke-width:9}
.movie .line{stroke:var(--movie-line);stroke-width:5;stroke-dasharray:24 12}
.movie .key{width:1.1em;height:1.1em;vertical-align:-.2em}
.movie .key .mark{stroke-width:2.5}.movie .key .line{stroke-width:2.5;stroke-dasharray:5 3}
.movie .legend{display:flex;flex-wrap:wrap;gap:1.2em;font-size:.9em;margin:.3em 0}
.movie .controls{display:flex;align-items:center;gap:.6em}
.movie .controls input{flex:1;min-width:6em;accent-color:var(--movie-point)}
.movie .controls button{font:inherit;min-width:2.6em;min-height:2.2em;color:inherit;background:transparent;
border:1px solid currentColor;border-radius:4px;cursor:pointer}
.movie .controls output{min-width:5em;font-variant-numeric:tabular-nums}
.movie figcaption{font-size:.92em;margin-top:.4em}
.movie.printed :is(button,input,.pictures:not(.still):has(svg)){display:none}
.movie.printed .pictures>img.still{display:block}
.movie .still::before{content:attr(data-when);grid-column:1/-1;font-size:.9em}
""".replace("\n", "")

# The points are those of the inner <svg> of each picture, in the order of the stored numbers x0, y0, x1, y1, …
_SCRIPT = """
(function () {
  const movie = document.getElementById("LABEL");
  if (!movie || movie.dataset.ready) return;
  movie.dataset.ready = "yes";
  const data = JSON.parse(movie.querySelector('script[type="application/json"]').textContent);
  const clouds = [...movie.querySelectorAll(".pictures > svg > svg")].map(s => [...s.querySelectorAll("circle")]);
  const images = movie.querySelectorAll(".pictures > img");
  const slider = movie.querySelector("input"), button = movie.querySelector("button");
  const output = movie.querySelector("output"), pictures = movie.querySelector(".pictures");
  let timer = null;
  function draw(k) {
    clouds.forEach((cloud, p) => cloud.forEach((dot, i) => {
      dot.setAttribute("cx", data.frames[p][k][2 * i]);
      dot.setAttribute("cy", data.frames[p][k][2 * i + 1]);
    }));
    images.forEach((image, i) => { image.hidden = i !== k; });
    slider.value = k;
    output.textContent = data.symbol + " = " + data.times[k];
    slider.setAttribute("aria-valuetext", output.textContent);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "\\u25B6";
    button.setAttribute("aria-label", "Play");
  }
  slider.addEventListener("input", () => { stop(); draw(Number(slider.value)); });
  // JupyterLab gives the focus to a cell after a click, and the arrow keys too.
  slider.addEventListener("click", () => setTimeout(() => slider.focus()));
  slider.addEventListener("keydown", event => event.stopPropagation());
  const last = data.times.length - 1, printed = [...new Set([0, last >> 1, last])];
  addEventListener("beforeprint", () => {
    const now = Number(slider.value);
    movie.classList.add("printed");
    printed.forEach(k => {
      if (images.length) return images[k].classList.add("still");
      draw(k);
      const still = pictures.cloneNode(true);
      still.classList.add("still");
      still.dataset.when = output.textContent;
      pictures.before(still);
    });
    draw(now);
    if (images.length) output.textContent = data.symbol + " = " + printed.map(k => data.times[k]).join("; ");
    else output.textContent = "";
  });
  addEventListener("afterprint", () => {
    movie.classList.remove("printed");
    movie.querySelectorAll(".pictures.still").forEach(still => still.remove());
    draw(Number(slider.value));
  });
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= data.times.length - 1) draw(0);
    button.textContent = "\\u275A\\u275A";
    button.setAttribute("aria-label", "Pause");
    timer = setInterval(() => {
      const next = Number(slider.value) + 1;
      if (next >= data.times.length) return stop();
      draw(next);
    }, data.pause);
  });
})();
""".strip()
