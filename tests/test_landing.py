"""The opening page: everything on it comes from what the notebooks store, and weighs little."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import yaml
from PIL import Image

from landing import HEAVIEST, bibtex, stored_figure, stored_movie, thumbnail, title_of
from tests.browser import ROOT, toc_pages

BOOK = ROOT / "book"
CARDS = yaml.safe_load(re.search(r"^```\{cards\}\n(.*?)^```", (BOOK / "intro.md").read_text(), re.M | re.S)[1])


def test_every_chapter_has_a_card() -> None:
    chapters = [name for name in toc_pages() if "/" not in name and (BOOK / f"{name}.ipynb").is_file()]
    assert sorted(CARDS) == sorted(chapters)


@pytest.mark.parametrize("name", CARDS)
def test_a_thumbnail_is_small_and_shows_something(name: str) -> None:
    card = CARDS[name]
    picture = thumbnail(stored_figure(BOOK / f"{name}.ipynb", card["figure"]).png, card.get("part", (0, 0, 100, 100)))
    assert len(picture) <= HEAVIEST
    with Image.open(io.BytesIO(picture)) as image:
        pixels = np.asarray(image.convert("L"), dtype=float)
    assert pixels.shape == (300, 480)
    assert (pixels < 200).mean() > 0.005
    assert card["question"].rstrip().endswith(("?", "."))


def test_a_thumbnail_is_the_part_that_was_asked_for() -> None:
    left_red = np.zeros((100, 200, 3), dtype=np.uint8)
    left_red[:, :100, 0], left_red[:, 100:, 2] = 255, 255
    buffer = io.BytesIO()
    Image.fromarray(left_red).save(buffer, "PNG")
    for box, colour in (((0, 0, 50, 100), 0), ((50, 0, 100, 100), 2)):
        with Image.open(io.BytesIO(thumbnail(buffer.getvalue(), box))) as image:
            middle = np.asarray(image.convert("RGB"))[150, 240]
        assert int(middle.argmax()) == colour


def test_what_is_not_stored_is_not_shown() -> None:
    path = BOOK / "structure_preserving_gans.ipynb"
    assert title_of(path) == "Structure-preserving GANs"
    assert 'id="movie-gans"' in stored_movie(path, "movie-gans")
    with pytest.raises(ValueError, match="stores no figure 'fig-none'"):
        stored_figure(path, "fig-none")
    with pytest.raises(ValueError, match="stores no movie 'movie-none'"):
        stored_movie(path, "movie-none")


def test_bibtex_is_the_citation_file() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    entry = bibtex(citation, "2026")
    assert entry.startswith("@software{")
    assert entry.count("{") == entry.count("}")
    assert all(author["name"] in entry for author in citation["authors"])
    assert "version = {" + citation["version"] in entry
    assert "url" not in entry
    assert "url = {https://a.b/c}" in bibtex(citation | {"repository-code": "https://a.b/c"}, "2026")


def test_the_pictures_of_the_page_are_those_of_the_notebooks() -> None:
    """Nothing is drawn for the opening page alone: it names no image file."""
    text = (BOOK / "intro.md").read_text()
    assert not re.search(r"!\[|<img|\{image\}|\{figure\}", text)
