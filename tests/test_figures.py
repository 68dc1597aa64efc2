"""Figures: the style stays inside its block, and no figure goes without caption and alternative text."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from PIL import Image

from lib.page.figures import (
    COLOURS,
    LARGEST,
    PIXELS_PER_INCH,
    figure_data,
    image_grid,
    in_few_colours,
    png,
    show,
    smallest_text,
    style,
    table,
)
from lib.page.notebooks import find_notebooks
from tests.figures import ALIKE, emptiness, figure_problems, read_png, shrunk, similarity

TEXTS = {"label": "fig-line-1", "caption": "A line.\n It rises.", "alt": "A straight line that rises to the right."}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict, dict]]:
    calls: list[tuple[dict, dict]] = []

    def record(data: dict, metadata: dict, raw: bool) -> None:
        calls.append((data, metadata))

    monkeypatch.setattr("IPython.display.display", record)
    return calls


def draw() -> Any:
    fig, ax = plt.subplots()
    ax.plot([0, 1])
    return fig


def test_style_is_local() -> None:
    before = dict(matplotlib.rcParams)
    with style(font_size=7):
        assert matplotlib.rcParams["font.size"] == 7
        assert matplotlib.rcParams["axes.facecolor"] == "white"
    assert dict(matplotlib.rcParams) == before


def test_show(shown: list) -> None:
    fig = draw()
    assert show(fig, **TEXTS) is None
    (image, image_metadata), (caption, caption_metadata) = shown
    assert base64.b64decode(image["image/png"]).startswith(b"\x89PNG")
    size = {"width": image_metadata["image/png"]["width"], "points": 10.0}
    assert image_metadata["image/png"] == TEXTS | {"caption": "A line. It rises."} | size
    assert size["width"] == pytest.approx(matplotlib.rcParams["figure.figsize"][0] * 96, rel=0.15)
    assert image["text/csv"] == "panel,kind,series,x,y\n1,line,1,0,0\n1,line,1,1,1\n"
    assert caption["text/markdown"] == "**Figure.** A line. It rises."
    assert caption_metadata == {"symmetry": {"role": "caption"}}
    assert fig.number not in plt.get_fignums()


def test_the_same_figure_gives_the_same_bytes(shown: list) -> None:
    show(draw(), **TEXTS)
    show(draw(), **TEXTS)
    assert shown[0] == shown[2]


def test_the_smallest_text_is_found() -> None:
    """Ticks count, what is not seen does not."""
    with style(xtick_labelsize=7):
        fig, (ax, other) = plt.subplots(1, 2)
        ax.plot([0, 1])
        ax.text(0, 0, "unseen", fontsize=3, visible=False)
        other.text(0.5, 0.5, "ticks unseen", fontsize=8)
        other.set_axis_off()
    png(fig)
    assert smallest_text(fig) == 7
    ax.set_axis_off()
    assert smallest_text(fig) == 8
    other.texts[0].remove()
    assert smallest_text(fig) == 99


def test_the_numbers_behind_a_figure() -> None:
    fig, (left, right) = plt.subplots(1, 2)
    left.set_title("two\n kinds")
    left.plot([1, 2], [3, np.nan], label="rising, then gone")
    left.scatter([5], [6])
    left.axhline(1)
    left.plot([], [], label="only in the legend")
    right.bar([0, 1], [2, 3], label="heights")
    right.imshow(np.eye(3))
    assert figure_data(fig).splitlines() == [
        "panel,kind,series,x,y",
        'two kinds,line,"rising, then gone",1,3',
        "two kinds,points,3,5,6",
        "2,bars,heights,0,2",
        "2,bars,heights,1,3",
    ]
    for _ in range(40):
        left.plot(np.random.default_rng(0).normal(size=1000))
    assert figure_data(fig) == ""
    assert LARGEST < 1e5
    right.clear()
    left.clear()
    assert figure_data(fig) == ""


# On a desktop a figure is as wide as it is drawn, at most the column of text; on a phone it is as wide as that.
COLUMN, PHONE = 672, 342


def test_the_text_of_every_figure_can_be_read() -> None:
    """Its smallest text has 9 pixels on a desktop and 6.5 on a phone."""
    small = {}
    for path in sorted((Path(__file__).parent.parent / "book").glob("*.ipynb")):
        for label, texts in sizes_of_figures(json.loads(path.read_text(encoding="utf-8"))).items():
            for least, room in ((9, COLUMN), (6.5, PHONE)):
                size = texts.get("points", 0)  # a notebook that was executed before the sizes were stored fails
                pixels = size * PIXELS_PER_INCH / 72 * min(1, room / texts.get("width", room))
                if round(pixels, 1) < least:
                    small[f"{path.stem} {label} at {room}"] = f"{pixels:.1f} px"
    assert small == {}


def sizes_of_figures(notebook: dict[str, Any]) -> dict[str, dict[str, float]]:
    found = {}
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
        html = "".join(output.get("data", {}).get("text/html", ""))
        if "image/png" in output.get("data", {}):
            texts = output["metadata"]["image/png"]
            found[texts["label"]] = texts
        elif (movie := re.search(r'<figure class="movie" id="([^"]*)"', html)) and "<img" in html:
            found[movie[1]] = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html)[1])
    return found


def test_a_plot_has_a_palette_and_a_photograph_has_not() -> None:
    """A picture in few colours is smaller and looks the same; one that would not is left alone."""
    with style():
        fig, ax = plt.subplots()
        ax.plot([0, 1, 3])
    plot, noise = png(fig), io.BytesIO()
    small = in_few_colours(plot)
    assert len(small) < 0.5 * len(plot)
    before, after = (shrunk(read_png(base64.b64encode(p).decode())) for p in (plot, small))
    assert similarity(before, after) > 0.999
    Image.fromarray(np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)).save(noise, "png")
    assert in_few_colours(noise.getvalue()) == noise.getvalue()


def texts_of(notebook: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the kind and the texts of every figure, table and film of a page."""
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
        metadata, html = output.get("metadata", {}), "".join(output.get("data", {}).get("text/html", ""))
        if "image/png" in output.get("data", {}):
            yield "fig", metadata["image/png"]
        if metadata.get("symmetry", {}).get("role") == "table":
            yield "tab", metadata["symmetry"]
        if film := re.search(r'<figure class="movie" id="([^"]*)" role="group" aria-label="([^"]*)"', html):
            caption = re.search(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
            yield "movie", {"label": film[1], "alt": film[2], "caption": caption[1]}


@pytest.mark.parametrize("path", find_notebooks([]), ids=lambda path: path.stem)
def test_texts_are_mandatory(path: Path) -> None:
    for kind, texts in texts_of(json.loads(path.read_text(encoding="utf-8"))):
        assert re.fullmatch(rf"{kind}-[a-z0-9-]+", texts["label"])
        assert texts["caption"].strip()
        assert kind == "tab" or len(texts["alt"].strip()) >= 20, texts["label"]


def test_table(shown: list) -> None:
    frame = pd.DataFrame({"group": ["C4", "D4"], "gain": [3.98765, float("nan")], "order": [4, 8]})
    texts = {"label": "tab-gains", "caption": "Gains\n by group."}
    table(frame, **texts)
    table(frame.set_index("group"), **texts, formats={"gain": "{:.1f}"})
    (first, metadata), (second, _) = shown
    assert first["text/markdown"].splitlines() == [
        "| group | gain | order |",
        "| --- | ---: | ---: |",
        "| C4 | 3.99 | 4 |",
        "| D4 |  | 8 |",
    ]
    assert second["text/markdown"].splitlines()[2] == "| C4 | 4.0 | 4 |"
    assert first["text/html"].startswith("<table><caption>Gains by group.</caption><thead><tr><th>group</th>")
    assert metadata["symmetry"] == {"role": "table", "label": "tab-gains", "caption": "Gains by group."}


@pytest.mark.parametrize("images", [np.zeros((3, 4, 4)), torch.zeros(3, 4, 4), [np.zeros((2, 2, 3))] * 3])
def test_image_grid(images: Any) -> None:
    fig = image_grid(images, ["a", "b", "c"], columns=2, limits=(0, 1))
    assert [ax.get_title() for ax in fig.axes] == ["a", "b", "c", ""]


def test_named_colours_mean_the_same_after_the_style_has_ended() -> None:
    """A colour called C0 gets its meaning when it is drawn, which is after the ``with`` block."""
    with style():
        fig, ax = plt.subplots()
        ax.set_axis_off()
        ax.axhspan(0, 1, color="C0")
    pixels = imread(io.BytesIO(png(fig)))[..., :3].reshape(-1, 3)
    assert (np.abs(pixels - to_rgb(COLOURS[0])).max(1) < 0.01).mean() > 0.5


def png_output(curve: Any, **overrides: Any) -> dict[str, Any]:
    with style(**overrides):
        fig, ax = plt.subplots()
        ax.plot(curve)
        ax.set_title("A curve")
    return {"output_type": "display_data", "data": {"image/png": base64.b64encode(png(fig)).decode()}}


def test_stored_figures_are_compared_with_fresh_ones() -> None:
    """The guard of the stored outputs: noise of another machine passes; another curve, shape or a blank does not."""
    t = np.linspace(0, 6, 200)
    rising, other = png_output(t**2), png_output(30 + 5 * np.sin(9 * t))
    noisy = png_output(t**2 * (1 + 1e-3 * np.sin(50 * t)))
    pixel = image_output_of(np.ones((1, 1, 3)))
    blank = image_output_of(np.ones((400, 700, 3)))
    assert figure_problems([rising], [noisy]) == []
    assert "shows something else" in figure_problems([other], [rising])[0]
    assert figure_problems([other], [rising], shape_only=True) == []
    assert "another shape" in figure_problems([png_output(t**2, figure_figsize=(3, 3.6))], [rising])[0]
    assert "has 1 × 1 pixels" in figure_problems([pixel], [rising])[0]
    assert "is blank" in figure_problems([blank], [rising])[0]
    assert "is blank" in figure_problems([blank], [rising], shape_only=True)[0]
    assert figure_problems([], [rising]) == ["0 figures are stored, 1 are drawn"]


def image_output_of(pixels: np.ndarray) -> dict[str, Any]:
    buffer = io.BytesIO()
    plt.imsave(buffer, pixels)
    return {"output_type": "display_data", "data": {"image/png": base64.b64encode(buffer.getvalue()).decode()}}


def test_no_stored_figure_is_empty_and_no_two_are_alike() -> None:
    """No figure is blank, and a figure cannot be swapped for another unseen.

    Left out are the seeds of the chapters, which one function draws from stored tables.
    """
    figures = {}
    for path in sorted((Path(__file__).parent.parent / "book").rglob("*.ipynb")):
        if "_build" in path.parts:
            continue
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if "image/png" in output.get("data", {}):
                    label = output["metadata"]["image/png"]["label"]
                    figures[label] = read_png("".join(output["data"]["image/png"]))
    assert {label: problem for label, pixels in figures.items() if (problem := emptiness(pixels))} == {}
    own = [label for label in sorted(figures) if not label.startswith("fig-other-seeds-")]
    some = [shrunk(figures[label]) for label in own[::4]]
    alike = [similarity(a, b) for i, a in enumerate(some) for b in some[:i]]
    assert max(alike) < ALIKE
