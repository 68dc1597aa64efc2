"""How every figure of the book looks and how it is shown: style, caption, label and alternative text.

Knows no mathematics. Nothing here changes matplotlib's state on import; the style holds inside a ``with`` block.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure

DPI = 160
# The palette of Okabe and Ito, told apart under all common colour-vision deficiencies.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_CYCLE = cycler(color=COLOURS)
_LABEL = re.compile(r"fig-[a-z0-9-]+")
_SHORTEST_ALT = 20


@contextmanager
def style(**overrides: Any) -> Iterator[None]:
    """Draw in the book's style inside a ``with`` block; the old settings come back at its end.

    Figures made inside by ``plt.subplots`` leave pyplot's list at the end of the block, so that a notebook does not
    show them by itself; hand them to :func:`show`.

    Parameters
    ----------
    **overrides
        Further matplotlib settings, with ``_`` for ``.``: ``style(figure_figsize=(4, 3))``.
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
    ``{numref}`` can refer by its label.

    Parameters
    ----------
    fig
        The figure.
    label
        The figure's name, ``fig-`` followed by small letters, digits and dashes; unique in the book.
    caption
        What to see in the figure, in Markdown.
    alt
        What the figure shows, for a reader who cannot see it: at least 20 characters of plain text.

    Raises
    ------
    TypeError
        ``fig`` is not a figure.
    ValueError
        A text is missing or too short, or the label has another form.
    """
    if not isinstance(fig, Figure):
        raise TypeError(f"fig must be a matplotlib Figure, got {type(fig).__name__}")
    texts = {"label": label, "caption": caption, "alt": alt}
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name} must be a non-empty text, got {text!r}")
    if not _LABEL.fullmatch(label):
        raise ValueError(f"label must be 'fig-' followed by small letters, digits and dashes, got {label!r}")
    if len(alt.strip()) < _SHORTEST_ALT:
        raise ValueError(f"alt must describe the figure in at least {_SHORTEST_ALT} characters, got {alt!r}")
    _display(_png(fig), {name: " ".join(text.split()) for name, text in texts.items()})


def image_grid(
    images: Any,
    titles: Sequence[str],
    *,
    columns: int | None = None,
    size: float = 1.4,
    cmap: str = "gray",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw small images in rows, each under its title.

    Parameters
    ----------
    images
        A sequence, array or CPU tensor of images, each of shape ``(height, width)`` or ``(height, width, 3)``.
    titles
        One title per image; may be empty texts.
    columns
        Images per row; by default all in one row.
    size
        Width of one image in inches.
    cmap
        Colour map for images of one channel.
    limits
        The values shown as the map's two ends; by default each image's own extremes.

    Raises
    ------
    ValueError
        No image, another number of titles, or an image of another shape.
    """
    arrays = [np.asarray(image) for image in images]
    if not arrays or len(arrays) != len(titles):
        raise ValueError(f"images and titles must have one length of at least 1, got {len(arrays)} and {len(titles)}")
    for array in arrays:
        if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
            raise ValueError(f"images must have shape (height, width) or (height, width, 3), got {array.shape}")
    columns = len(arrays) if columns is None else columns
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    low, high = limits if limits is not None else (None, None)
    rows = math.ceil(len(arrays) / columns)
    fig = Figure(figsize=(size * columns, (size + 0.3) * rows), layout="constrained", facecolor="white")
    axes = fig.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, array, title in zip(axes, arrays, titles, strict=False):
        ax.imshow(array, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
        ax.set_title(title, fontsize=9)
    return fig


def _png(fig: Figure) -> bytes:
    """Return the figure as PNG bytes without a date or a version, and close it."""
    from matplotlib import pyplot

    buffer = io.BytesIO()
    with matplotlib.rc_context({"axes.prop_cycle": _CYCLE}):  # colours named C0, C1, ... get their meaning only here
        fig.savefig(buffer, format="png", dpi=DPI, facecolor="white", bbox_inches="tight", metadata={"Software": None})
    pyplot.close(fig)
    return buffer.getvalue()


def _display(png: bytes, texts: dict[str, str]) -> None:
    from IPython.display import display

    image = {"image/png": base64.b64encode(png).decode(), "text/plain": f"[{texts['label']}]"}
    display(image, metadata={"image/png": texts}, raw=True)
    caption = {"text/markdown": f"**Figure.** {texts['caption']}", "text/plain": f"Figure. {texts['caption']}"}
    display(caption, metadata={"symmetry": {"role": "caption"}}, raw=True)
