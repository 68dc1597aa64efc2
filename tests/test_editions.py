"""Two made-up pages as a PDF, and what the command says when something is missing.

The editions of the book itself are looked at where it is built, in tests/test_book.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from lib.page.editions import contents, pack
from lib.page.printing import CannotPrint, print_book

ROOT = Path(__file__).parent.parent
OPENING = """<!doctype html><head>{head}<style>@page {{ margin: 15mm }}</style></head><body>
<article><h1>A book<a class="headerlink" href="#">#</a></h1><div class="hero-words"><p>It has words.</p></div>
<section id="part"><h2>A part<a class="headerlink" href="#part">#</a></h2><a href="two.html#deep">inside</a>
<a href="_tests/test.html">outside</a> <a href="https://example.org/">elsewhere</a></section></article>
<footer class="bd-footer-content"><p>Under a <a rel="license" href="https://example.org/licence">licence</a></p></footer>"""
SECOND = """<!doctype html><head><style>@page { margin: 15mm }</style></head><body>
<article><h1>Two &amp; more</h1><a href="intro.html#part">back</a>
<div id="deep" style="break-before: page">Down here.</div></article></body>"""


def editions(*words: object, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lib.page.editions", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PATH": path})


@pytest.mark.parametrize("published", ["", "https://example.org/book/"])
def test_a_book_of_two_pages(browser: Browser, tmp_path: Path, published: str) -> None:
    head = f'<link rel="canonical" href="{published}intro.html">' if published else ""
    (tmp_path / "intro.html").write_text(OPENING.format(head=head))
    (tmp_path / "two.html").write_text(SECOND)
    (tmp_path / "_static").mkdir()
    shutil.copy(ROOT / "book" / "_static" / "logo.svg", tmp_path / "_static")
    print_book(browser, tmp_path, [("", ["intro"]), ("The rest", ["two"])], tmp_path / "book.pdf")
    pdf = PdfReader(tmp_path / "book.pdf")
    texts = [page.extract_text() for page in pdf.pages]
    assert pdf.page_labels == ["i", "ii", "1", "2", "3"]
    assert "It has words." in texts[0]
    assert "Under a licence" in texts[0]
    assert "Two & more 2" in texts[1]
    assert "Under a licence" not in texts[2]
    assert texts[4].split("\n") == ["Two & more", "3", "Down here."]
    first, rest, chapter = pdf.outline[0], pdf.outline[2], pdf.outline[3][0]
    assert [pdf.get_destination_page_number(item) for item in (first, pdf.outline[1][0], rest, chapter)] == [2, 2, 3, 3]
    assert (first.title, pdf.outline[1][0].title, rest.title, chapter.title) == (
        "A book",
        "A part",
        "The rest",
        "Two & more",
    )
    numbers = {page.indirect_reference.idnum: number for number, page in enumerate(pdf.pages)}
    links = [[a.get_object() for a in page.get("/Annots", ())] for page in pdf.pages]
    assert [numbers[link["/Dest"][0].idnum] for link in links[1] + links[3]] == [2, 3, 2]
    inside = [link for link in links[2] if "/Dest" in link]
    assert numbers[inside[-1]["/Dest"][0].idnum] == 4
    outside = [f"{published}_tests/test.html"] if published else []
    assert [link["/A"]["/URI"] for link in links[2] if link not in inside] == [*outside, "https://example.org/"]


def test_without_a_built_book(tmp_path: Path) -> None:
    result = editions("--html", tmp_path / "none", "-o", tmp_path / "editions")
    missing = tmp_path / "none" / "intro.html"
    said = f"No edition was made: the book has to be built first (make book): there is no {missing}\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", said)
    assert not (tmp_path / "editions").exists()


def test_without_chromium(tmp_path: Path) -> None:
    for _, names in contents():
        for name in names:
            (tmp_path / f"{name}.html").parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.html").touch()
    result = editions("--html", tmp_path, "-o", tmp_path / "editions", path=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("No edition was made: Chromium is not installed")
    assert result.stderr.count("\n") == 1


def test_without_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(CannotPrint, match="made from a git checkout"):
        pack(tmp_path, tmp_path / "book.zip", root=tmp_path)
    assert not (tmp_path / "book.zip").exists()
