"""Figures with a slider: complete in themselves, usable by keyboard and without a script."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import Browser

from lib.page.figures import COLOURS, style
from lib.page.movies import Movie
from lib.page.sliders import slider

TEXTS = {
    "symbol": "k <",
    "label": "movie-sines",
    "caption": "More & more waves",
    "alt": "A sine curve with more and more waves.",
}


def drawn(waves: float, **size: Any) -> Figure:
    with style():
        fig, ax = plt.subplots(**size)
        ax.plot(np.sin(waves * np.linspace(0, 6, 100)))
        ax.set_title("waves", fontsize=8)
    return fig


def sines(*values: float | str) -> Movie:
    return slider([drawn(k, figsize=(4, 2)) for k in range(len(values))], values, **TEXTS)


def test_holds_a_picture_per_value() -> None:
    movie = sines(0.5, "two", 3)
    pictures = re.findall(r'<img( hidden)? width="384" height="192" alt="([^"]*)" src="([^"]*)"/>', movie.html)
    assert [hidden for hidden, _, _ in pictures] == ["", " hidden", " hidden"]
    assert [alt for _, alt, _ in pictures] == [
        f"k &lt; = {value}: A sine curve with more and more waves." for value in ("0.5", "two", "3")
    ]
    decoded = [base64.b64decode(source.removeprefix("data:image/webp;base64,")) for _, _, source in pictures]
    assert all(picture[8:12] == b"WEBP" for picture in decoded)
    assert len(set(decoded)) == 3
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', movie.html)[1])
    assert (data["times"], data["width"], data["points"]) == ([0.5, "two", 3], 384, 8)
    assert sines(0.5, "two", 3) == movie
    rests = slider([drawn(k, figsize=(4, 2)) for k in range(3)], [0.5, "two", 3], **TEXTS, start=1).html
    assert re.findall(r"<img( hidden)? width", rests) == [" hidden", "", " hidden"]
    assert 'value="1"' in rests
    assert "k &lt; = two</output>" in rests


def test_named_colours_are_those_of_the_book() -> None:
    """A colour called C4 gets its meaning when it is drawn, which is after the style has ended."""
    figures = [drawn(1, figsize=(3, 2)) for _ in range(2)]
    for fig in figures:
        fig.axes[0].axhline(0, color="C4", linewidth=300)
    picture = re.findall(r'webp;base64,([^"]*)"', slider(figures, [1, 2], **TEXTS).html)[1]
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        _, colour = max(image.convert("RGB").getcolors(10_000))
    assert np.abs(np.array(colour) / 255 - to_rgb(COLOURS[4])).max() < 0.01


def test_moves_in_a_browser(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "slider.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{sines(1, 2, 3).html}</body>')
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(path.as_uri())
    shown = "() => [...document.querySelectorAll('img')].map(i => i.checkVisibility())"
    assert page.evaluate(shown) == [True, False, False]
    page.locator("input").focus()
    page.keyboard.press("End")
    assert page.evaluate(shown) == [False, False, True]
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(shown) == [True, True, True]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.locator("input").press("Home")
    assert page.evaluate(shown) == [True, False, False]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(shown) == [False, True, False]
    assert page.locator("output").inner_text() == "k < = 2"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.locator("button").press("Enter")
    page.wait_for_function("document.querySelector('button').ariaLabel === 'Play'")
    assert page.evaluate(shown) == [False, False, True]
    page.close()
