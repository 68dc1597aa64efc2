"""Movies of point clouds: complete in themselves, usable by keyboard and without a script, and small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from lib.page.movies import LARGEST, Movie, Panel, point_movie

TEXTS = {
    "label": "movie-test",
    "caption": "What <to> see & hear",
    "alt": "Two clouds of points that drift to the right.",
    "axes": ("x", "y"),
}


def movie(frames: int = 5, points: int = 3, **change: object) -> Movie:
    drift = np.linspace(-1, 1, frames)[:, None, None] * np.array([1.0, 0.5])
    cloud = drift + 0.1 * np.arange(points)[:, None]
    panels = [Panel("left <b>", cloud, [[0.0, 1.0]], [((-1, -1), (1, 1))]), Panel("right", -cloud)]
    given = {"panels": panels, "times": np.linspace(0, 2, frames), "limits": (-2, 2)} | TEXTS | change
    return point_movie(given.pop("panels"), given.pop("times"), **given)


class Parts(HTMLParser):
    """All tags with their attributes; complains of tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "input":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_is_complete_and_closed() -> None:
    html = movie().html
    parts = Parts()
    parts.feed(html)
    assert parts.open == []
    names = [tag for tag, _ in parts.tags]
    assert names.count("circle") == 2 * 3 + 1  # the points and one in the legend
    assert names.count("svg") == 2 * 2 + 3
    assert not re.search(r"https?://|src=|@import|url\(", html)
    assert "What &lt;to&gt; see &amp; hear" in html
    assert "left &lt;b&gt;" in html


def test_a_second_colour() -> None:
    cloud = np.zeros((2, 3, 2))
    panels = [Panel("one", cloud, [[0.0, 1.0]]), Panel("other", cloud, [[0.0, 1.0]], second=True)]
    keys = (("point", "such points"), ("second", "others"), ("mark", "crosses"))
    html = movie(panels=panels, times=[0, 1], legend=keys).html
    parts = Parts()
    parts.feed(html)
    assert parts.open == []
    groups = [a["style"] for tag, a in parts.tags if tag == "g"]
    point, mark = "--movie-point:var(--movie-mark)", "--movie-mark:currentColor"
    assert groups == [mark, point, mark, point, mark]  # both pictures, then the legend
    assert "<g" not in movie().html


def test_says_what_it_shows() -> None:
    parts = Parts()
    parts.feed(movie().html)
    pictures = [a for tag, a in parts.tags if tag == "svg" and a.get("role") == "img"]
    assert [TEXTS["alt"] in a["aria-label"] for a in pictures] == [True, True]
    for tag in ("button", "input"):
        assert all(a.get("aria-label") for t, a in parts.tags if t == tag)
    bundle = movie()._repr_mimebundle_()
    assert bundle["text/plain"] == "[movie-test]"
    assert bundle["text/html"] == movie().html  # the same at every call


def test_stores_the_frames() -> None:
    """A position comes back to a thousandth of the width; up is a smaller y in SVG."""
    html = movie(frames=5, points=1).html
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html)[1])
    assert data["times"] == [0, 0.5, 1, 1.5, 2]
    left = np.array(data["frames"][0], dtype=float)
    seen = np.stack([left[:, 0] / 1000 * 4 - 2, 2 - left[:, 1] / 1000 * 4], 1)
    expected = np.linspace(-1, 1, 5)[:, None] * np.array([1.0, 0.5])
    assert np.abs(seen - expected).max() <= 0.002 + 1e-9


def test_without_a_script_the_first_frame_stands() -> None:
    html = movie(frames=5, points=1).html
    assert '<circle class="point" cx="250" cy="625" r="11"/>' in html
    assert "<output>t = 0</output>" in html


def test_may_rest_at_the_last_frame() -> None:
    html = movie(frames=5, points=1, start=-1).html
    assert '<circle class="point" cx="750" cy="375" r="11"/>' in html
    assert 'max="4" value="4"' in html
    assert "<output>t = 2</output>" in html


@pytest.fixture
def page(tmp_path: Path, browser: Browser) -> Iterator[Page]:
    path = tmp_path / "movie.html"
    body = movie().html
    path.write_text(f'<!doctype html><html data-theme="dark"><meta charset="utf-8"><body>{body}</body></html>')
    page = browser.new_page(viewport={"width": 390, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert problems == []


def test_moves_in_a_browser(page: Page) -> None:
    dot = page.locator("#movie-test .pictures circle").first
    assert dot.get_attribute("cx") == "250"
    page.locator("#movie-test input").focus()
    page.keyboard.press("End")
    assert dot.get_attribute("cx") == "750"
    page.keyboard.press("Home")
    assert dot.get_attribute("cx") == "250"
    assert page.locator("#movie-test output").inner_text() == "t = 0"
    page.keyboard.press("ArrowRight")
    assert page.locator("#movie-test input").get_attribute("aria-valuetext") == "t = 0.5"
    page.locator("#movie-test button").press("Enter")
    assert page.locator("#movie-test button").get_attribute("aria-label") == "Pause"
    page.wait_for_function("document.querySelector('#movie-test button').ariaLabel === 'Play'")
    assert dot.get_attribute("cx") == "750"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_on_paper_stand_three_frames(page: Page) -> None:
    seen = "() => [...document.querySelectorAll('#movie-test .pictures')].filter(p => p.checkVisibility()).map(p => "
    seen += "[p.dataset.when ?? '', p.querySelector('circle').getAttribute('cx')])"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(seen) == [["t = 0", "250"], ["t = 1", "500"], ["t = 2", "750"]]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(seen) == [["", "250"]]


def test_follows_the_theme(page: Page) -> None:
    colour = "getComputedStyle(document.querySelector('#movie-test .point')).fill"
    dark = page.evaluate(colour)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert page.evaluate(colour) != dark


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limits": (1, 1)}, "panels must have"),
        ({"panels": []}, "one frame for each of 5"),
        ({"times": [0.0, 1.0]}, "one frame for each of 2"),
        ({"panels": [Panel("p", np.full((5, 1, 2), np.nan))]}, "must be finite"),
        ({"times": [0.0, 1.0, 2.0, 3.0, float("nan")]}, "must be finite"),
        ({"frames": 300, "points": 700}, f"below {LARGEST} characters"),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        movie(**change)
