"""The rendered book, looked at in a browser: what a reader sees without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser

from lib.page.claims import load_claims
from lib.page.ledger import collect, count_line
from tests.browser import ROOT, build_book, serve, toc_pages, visit
from tests.examine import violations

WINDOWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

# In the page: formulas without their typeset form, formulas MathJax could not read, and delimiters left in the text.
MATHS = """() => {
  const formulas = [...document.querySelectorAll('article .math')];
  const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  let text = '';
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest('pre, code, script, style, mjx-container'))
      text += walker.currentNode.data;
  }
  return {
    formulas: formulas.length,
    plain: formulas.filter(f => !f.querySelector('mjx-container')).map(f => f.textContent),
    broken: [...document.querySelectorAll('[data-mml-node="merror"]')].map(e => e.textContent),
    raw: text.match(/\\\\[(\\[)\\]]|\\$\\$/g) || [],
  };
}"""
NAMELESS = "() => [...document.images].filter(i => !i.alt.trim()).map(i => i.src)"
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
REACHED = """() => [...document.querySelectorAll('pre')].every(
  box => !box.checkVisibility() || box.scrollWidth <= box.clientWidth || box.tabIndex === 0)"""
CARDS = "() => [...document.querySelectorAll('.cell_output img')].map(i => getComputedStyle(i).backgroundColor)"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_book(tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="session")
def site(pages: Path) -> Iterator[str]:
    with serve(pages) as address:
        yield address


def test_the_book_builds_without_warnings(pages: Path) -> None:
    assert [name for name in toc_pages() if not (pages / f"{name}.html").is_file()] == []


@pytest.mark.parametrize(("place", "name"), list(enumerate(toc_pages())))
def test_page(site: str, browser: Browser, place: int, name: str) -> None:
    """Every page in every window, one after the other; in the last, one of two by turns, axe-core examines it."""
    windows = WINDOWS if place % 2 else WINDOWS[::-1]
    with visit(browser, f"{site}/{name}.html", *windows[0]) as seen:
        maths = seen.page.evaluate(MATHS)
        assert maths["plain"] == maths["broken"] == maths["raw"] == []
        assert seen.page.evaluate(NAMELESS) == []
        for solution in seen.page.locator(".solution.toggle").all():
            body = solution.locator(".solution-content, section").first
            assert not body.is_visible()
            solution.locator(".toggle-button").first.click()
            body.wait_for(state="visible")
        for width, theme in windows:
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.page.emulate_media(color_scheme=theme)
            seen.page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
            assert seen.page.evaluate(OVERFLOW) <= 0
            red, green, blue = seen.page.evaluate(BACKGROUND)
            assert red + green + blue < 200 if theme == "dark" else red + green + blue > 700
            assert theme == "light" or set(seen.page.evaluate(CARDS)) <= {"rgb(255, 255, 255)"}
        seen.page.wait_for_function(REACHED)
        assert seen.errors == seen.outside == seen.missing == []
        assert violations(seen.page) == []


def test_what_hinders_a_reader_is_found(pages: Path, browser: Browser) -> None:
    """The check above would also pass if it examined nothing: here a page is spoilt."""
    spoilt = """() => document.querySelector('article').insertAdjacentHTML('beforeend', `
      <dl><p>no term</p></dl> <button></button> <p style="color:#ccc;background:#fff">pale</p>
      <pre style="background:#fff"><span class="n" style="color:#ddd">pale</span></pre>`)"""
    with serve(pages) as site, visit(browser, f"{site}/genindex.html") as seen:
        seen.page.evaluate(spoilt)
        found = [violation.rule for violation in violations(seen.page)]
    assert sorted(found) == ["button-name", "color-contrast", "color-contrast", "definition-list"]


def test_wide_formulas_can_be_scrolled_with_the_keyboard(site: str, browser: Browser) -> None:
    with visit(browser, f"{site}/haar_projections.html", width=390) as seen:
        wide = seen.page.locator(".scrolls")
        assert wide.count() > 0
        assert seen.page.evaluate("[...document.querySelectorAll('.scrolls')].every(box => box.tabIndex === 0)")
        assert wide.count() < seen.page.locator("mjx-container").count() / 4
        wide.first.press("ArrowRight")
        seen.page.wait_for_function("document.querySelector('.scrolls').scrollLeft > 0")


def test_a_figure_can_be_enlarged_and_has_its_numbers(site: str, browser: Browser) -> None:
    with visit(browser, f"{site}/augmentation_vs_equivariance.html", width=390) as seen:
        figure = seen.page.locator("figure#fig-race")
        assert figure.locator("a.image-reference img").evaluate("i => i.clientWidth") > 300
        link = figure.locator("a.image-reference").evaluate("a => a.href")
        assert seen.page.request.get(link).headers["content-type"] == "image/png"
        table = figure.locator("a.figure-data").evaluate("a => a.href")
        lines = seen.page.request.get(table).text().splitlines()
        assert lines[0] == "panel,kind,series,x,y"
        assert len(lines) > 100


def test_a_figure_with_a_slider_moves(site: str, browser: Browser) -> None:
    shown = "() => [...document.querySelectorAll('#movie-falling-map img')].map(i => i.checkVisibility())"
    for width in (390, 1280):
        with visit(browser, f"{site}/haar_projections.html", width=width, theme="dark") as seen:
            seen.page.locator("#movie-falling-map input").focus()
            seen.page.keyboard.press("Home")
            visible = seen.page.evaluate(shown)
            assert visible[0]
            assert sum(visible) == 1
            seen.page.keyboard.press("ArrowRight")
            assert seen.page.evaluate(shown)[1]


def test_the_chapters_show_what_they_promise(pages: Path) -> None:
    """The checks above would also pass on empty pages."""
    text = "".join((pages / f"{name}.html").read_text() for name in toc_pages())
    promises = (
        'class="math ',
        "<figure ",
        "class='evidence evidence-settled'",
        'class="solution',
        'class="proof theorem',
    )
    assert [promise for promise in promises if promise not in text] == []


def test_search_finds_haar(site: str, browser: Browser) -> None:
    with visit(browser, f"{site}/search.html?q=Haar") as seen:
        seen.page.locator("#search-results li a", has_text="Haar").first.wait_for()  # results come one after the other
        seen.page.wait_for_function("document.querySelector('#search-results').innerText.includes('Haar measure')")
        assert seen.errors == seen.outside == []


def test_the_theme_switch(site: str, browser: Browser) -> None:
    with visit(browser, f"{site}/ledger.html") as seen:
        backgrounds = set()
        for _ in range(3):
            seen.page.locator("button.theme-switch-button").first.click()
            backgrounds.add(tuple(seen.page.evaluate(BACKGROUND)))
        assert len(backgrounds) == 2


def test_the_opening_page_moves_for_those_who_do_not_mind(site: str, browser: Browser) -> None:
    step = "() => document.querySelector('#movie-hero output').textContent"
    with visit(browser, f"{site}/intro.html") as seen:
        last = seen.page.locator("#movie-hero input").get_attribute("max")
        seen.page.wait_for_function("max => document.querySelector('#movie-hero input').value !== max", arg=last)
        seen.page.locator("#movie-hero button").click()  # stops it for good
        seen.page.emulate_media(reduced_motion="reduce")
        seen.page.reload()
        assert seen.page.locator("#movie-hero button").get_attribute("aria-label") == "Play"
        shown = seen.page.evaluate(step)
        seen.page.wait_for_timeout(300)
        assert seen.page.evaluate(step) == shown == "step = 600"
        seen.page.locator("#movie-hero button").click()
        seen.page.wait_for_function("document.querySelector('#movie-hero button').ariaLabel === 'Pause'")


def test_the_opening_page_shows_what_is_stored(pages: Path) -> None:
    """Its count is the ledger's, its panel the chapter's, its cards stand in the order of the contents."""
    text = (pages / "intro.html").read_text()
    rows = collect(sorted((ROOT / "book").glob("*.ipynb")), load_claims())
    assert f"<strong>{count_line(rows)}</strong>" in text
    (record,) = next(row for row in rows if row.claim.id == "A1").records
    assert record.panel in text
    cards = re.findall(r'sd-stretched-link[^"]* reference internal" href="(\w+)\.html', text)
    assert cards == [name for name in toc_pages() if name in cards]
    assert len(cards) == text.count("_images/thumbnail-") > 20


def test_every_page_says_its_licence_and_what_it_is(pages: Path) -> None:
    for name in toc_pages():
        text = (pages / f"{name}.html").read_text()
        assert 'rel="license"' in text, name
        assert name == "genindex" or re.search(r'<meta property="og:title" content="[^"]+">', text), name


def test_what_rests_on_what_is_drawn_and_said(pages: Path) -> None:
    picture, chapter = (pages / "map.html").read_text(), (pages / "haar_projections.html").read_text()
    assert picture.count("<svg") >= len({claim.chapter for claim in load_claims().values()})
    assert re.search(r'class="used-by">Used by .*?href="#evidence-h2"', chapter)
    assert re.search(r'class="used-by">Used by .*?href="stability_of_augmentation.html#evidence-a3"', chapter)


def test_every_module_has_its_api_section(pages: Path) -> None:
    text = "".join(path.read_text() for path in pages.glob("api*.html"))
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "lib").rglob("[a-z]*.py")]
    assert [path for path in paths if f'id="module-{".".join(path.parts)}"' not in text] == []


def test_links_within_the_book_arrive(pages: Path) -> None:
    """Panels, ledger, theorems and API pages refer to each other by anchors: each of them has to exist."""
    texts = {f"{name}.html": (pages / f"{name}.html").read_text() for name in toc_pages()}
    anchors = {name: set(re.findall(r"""\bid=["']([^"']+)["']""", text)) for name, text in texts.items()}
    lost = []
    for name, text in texts.items():
        for page, anchor in re.findall(r'class="reference internal" href="([\w./-]*)#([^"]+)"', text):
            target = normpath(join(dirname(name), page)) if page else name
            if not target.startswith("_") and unquote(anchor) not in anchors.get(target, set()):
                lost.append(f"{name} -> {page}#{anchor}")
    assert lost == []
    assert re.search(r'href="\w+.html#evidence-h1"', texts["ledger.html"])
