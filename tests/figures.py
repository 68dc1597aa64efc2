"""Figures of notebooks: whether an image shows something, and whether two show the same."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from matplotlib import image
from skimage.metrics import structural_similarity
from skimage.transform import resize

SMALLEST = 120  # pixels
ALIKE = 0.8  # the figures of this book have at most .62 with each other, but for two that show one digit (.80)
_SIDE = 128


def read_png(text: str) -> np.ndarray:
    """Return an image of a notebook in grey, shape (height, width), white = 1."""
    pixels = image.imread(io.BytesIO(base64.b64decode(text)), format="png")
    return pixels if pixels.ndim == 2 else pixels[..., :3].mean(-1)


def emptiness(pixels: np.ndarray) -> str | None:
    """Say what is wrong with an image that shows nothing: too small, or one colour."""
    if min(pixels.shape) < SMALLEST:
        return f"has {pixels.shape[1]} × {pixels.shape[0]} pixels, fewer than {SMALLEST}"
    if (np.abs(pixels - np.median(pixels)) > 0.05).mean() < 0.005:
        return "is blank"
    return None


def shrunk(pixels: np.ndarray) -> np.ndarray:
    """Return an image as a small square."""
    return resize(pixels, (_SIDE, _SIDE), anti_aliasing=True)


def similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Return the structural similarity of two shrunk images, at most 1."""
    return float(structural_similarity(first, second, data_range=1.0))


def figure_problems(stored: list[dict[str, Any]], fresh: list[dict[str, Any]], shape_only: bool = False) -> list[str]:
    """Return a message per stored figure of a cell that shows nothing, or something else than a fresh one.

    A figure of measured seconds, or of single trained networks that amplify rounding (a cell with the tag ``timing`` or
    ``rounding``), has to show something of the same shape only.
    """
    pairs = [[o["data"]["image/png"] for o in side if "image/png" in o.get("data", {})] for side in (stored, fresh)]
    if len(pairs[0]) != len(pairs[1]):
        return [f"{len(pairs[0])} figures are stored, {len(pairs[1])} are drawn"]
    messages = []
    for number, (old, new) in enumerate(zip(*pairs, strict=True), start=1):
        before, now = read_png(old), read_png(new)
        ratio = np.divide(*before.shape) / np.divide(*now.shape)
        if problem := emptiness(before):
            messages.append(f"stored figure {number} {problem}")
        elif not 0.9 < ratio < 1.1:
            messages.append(f"stored figure {number} has another shape: {before.shape} for {now.shape}")
        elif not shape_only and (alike := similarity(shrunk(before), shrunk(now))) < ALIKE:
            messages.append(f"stored figure {number} shows something else: similarity {alike:.2f}, at least {ALIKE}")
    return messages
