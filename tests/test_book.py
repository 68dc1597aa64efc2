"""The rendered book, looked at in a browser: what a reader sees without a network."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

import capsules
from lib.page.claims import load_claims
from lib.page.editions import NAME, contents, pack
from lib.page.ledger import collect, count_line
from lib.page.printing import print_book
from lib.page.records import panel_html
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
    raw: text.match(/\\\\[(\\[)\\]]|\\$[^$]{0,80}\\$/g) || [],
  };
}"""
NAMELESS = "() => [...document.images].filter(i => !i.alt.trim()).map(i => i.src)"
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"
BACKGROUND = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
REACHED = """() => [...document.querySelectorAll('pre')].every(
  box => !box.checkVisibility() || box.scrollWidth <= box.clientWidth || box.tabIndex === 0)"""
# Of a figure in the dark: it stands on white, or light and dark have changed places.
CARDS = """() => [...document.querySelectorAll('.cell_output img')].map(i => getComputedStyle(i))
  .map(style => style.filter.startsWith('invert(1)') ? 'inverted' : style.backgroundColor)"""


# What a browser fetches for one page, compressed as servers do, in bytes.
HEAVIEST, OPENING = 2.5e6, 1.5e6
EDITION = [("", ["intro"]), ("Choosing", ["which_should_i_use"]), ("Reference", ["open_questions", "runs/rates"])]


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
def test_page(site: str, pages: Path, browser: Browser, place: int, name: str) -> None:
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
            assert theme == "light" or set(seen.page.evaluate(CARDS)) <= {"rgb(255, 255, 255)", "inverted"}
        seen.page.wait_for_function(REACHED)
        assert seen.errors == seen.outside == seen.missing == []
        assert weight(pages, seen.loaded) < HEAVIEST
        assert violations(seen.page) == []


@cache
def compressed(path: Path) -> int:
    content = path.read_bytes()
    return min(len(content), len(gzip.compress(content)))


def weight(pages: Path, loaded: set[str]) -> int:
    return sum(compressed(pages / unquote(path).lstrip("/")) for path in loaded)


def test_the_first_visit_is_light(site: str, pages: Path, browser: Browser) -> None:
    with visit(browser, f"{site}/intro.html") as seen:
        seen.page.wait_for_load_state("networkidle")
        assert any("mathjax" in path for path in seen.loaded)  # it did load what is heavy
        assert 0.5e6 < weight(pages, seen.loaded) < OPENING


def test_the_ledger_is_no_endless_roll(site: str, browser: Browser) -> None:
    """On a phone, no section of it is longer than some ten screens, since numbers are folded and open with a click."""
    heights = "() => [...document.querySelectorAll('article section section')].map(s => s.scrollHeight)"
    with visit(browser, f"{site}/ledger.html", width=390) as seen:
        sections = seen.page.evaluate(heights)
        assert len(sections) > 5
        assert max(sections) < 8000
        numbers = seen.page.locator(".claim details").first
        assert not numbers.locator("table").is_visible()
        numbers.locator("summary").click()
        assert numbers.locator("table").is_visible()


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
        sizes = "[...document.querySelectorAll('span.math')].map(box => parseFloat(box.style.fontSize || 100))"
        assert 73 <= min(seen.page.evaluate(sizes)) < 100  # what is a little too wide shrinks
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
            visible = seen.page.evaluate(shown)
            seen.page.locator("#movie-falling-map input").focus()
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
    """Chapters first, on a phone too; its words are marked on the page it leads to, where the first one is shown."""
    with visit(browser, f"{site}/search.html?q=Haar", width=390) as seen:
        seen.page.locator("#search-results li a", has_text="Haar").first.wait_for()  # results come one after the other
        seen.page.wait_for_function("document.querySelector('#search-results').innerText.includes('Haar measure')")
        seen.page.wait_for_function("document.querySelector('#search-results').innerText.includes('API: symmetry')")
        found = seen.page.locator("#search-results li a").evaluate_all("links => links.map(a => a.pathname)")
        assert sorted(found, key=lambda path: "/api" in path) == found
        assert seen.page.evaluate(OVERFLOW) <= 0
        box = seen.page.locator(".bd-search-container form.bd-search input")
        covered = "i => i.previousElementSibling.getBoundingClientRect().right - i.getBoundingClientRect().left"
        assert box.evaluate(covered) < float(box.evaluate("i => parseFloat(getComputedStyle(i).paddingLeft)"))
        seen.page.locator("#search-results li a", has_text="Haar projections").first.click()
        seen.page.locator("article span.highlighted", has_text="Haar").first.wait_for()
        assert seen.errors == seen.outside == []


def test_a_formula_is_copied_as_tex(site: str, browser: Browser) -> None:
    copied = """p => {
      const range = document.createRange(), data = new DataTransfer();
      range.selectNodeContents(p);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      p.dispatchEvent(new ClipboardEvent('copy', { clipboardData: data, bubbles: true }));
      return data.getData('text/plain');
    }"""
    with visit(browser, f"{site}/structure_preserving_gans.html") as seen:
        seen.page.locator("mjx-container").first.wait_for()
        text = seen.page.locator(".definition p, .proof p", has_text="is an objective of scores").last.evaluate(copied)
        assert text.strip().startswith("$H$ is an")


def test_without_scripts_there_is_a_way_through_the_chapters(site: str, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/runs/rates.html")
    page.locator("p.no-script a").click()
    linked = page.locator("article a").evaluate_all("links => links.map(a => a.pathname)")
    assert {
        f"/{name}.html" for name in toc_pages() if (ROOT / "book" / f"{name}.ipynb").is_file() and "/" not in name
    } <= (set(linked))
    context.close()


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
        assert seen.page.evaluate(step) == shown == "turn = 90°"
        seen.page.locator("#movie-hero button").click()
        seen.page.wait_for_function("document.querySelector('#movie-hero button').ariaLabel === 'Pause'")


def test_the_opening_page_shows_what_is_stored(pages: Path) -> None:
    """Its count is the ledger's, its panel the chapter's, its cards stand in the order of the contents."""
    text = (pages / "intro.html").read_text()
    rows = collect(sorted((ROOT / "book").glob("*.ipynb")), load_claims())
    assert f"<strong>{count_line(rows)}</strong>" in text
    shown = re.search(r"^```\{panel\} (\w+)$", (ROOT / "book" / "intro.md").read_text(), re.M)[1]
    row = next(row for row in rows if row.claim.id == shown)
    assert panel_html(row.claim, row.records[0].content) in text
    cards = re.findall(r'sd-stretched-link[^"]* reference internal" href="(\w+)\.html', text)
    assert cards == [name for name in toc_pages() if name in cards]
    assert len(cards) == text.count("_images/thumbnail-") > 20


def test_every_page_says_its_licence_and_what_it_is(pages: Path) -> None:
    for name in toc_pages():
        text = (pages / f"{name}.html").read_text()
        assert 'rel="license"' in text, name
        assert name == "genindex" or re.search(r'<meta property="og:title" content="[^"]+">', text), name
        assert name == "genindex" or '<meta property="og:site_name" content="Symmetry, Measured">' in text, name


def test_what_rests_on_what_is_drawn_and_said(pages: Path) -> None:
    picture, chapter = (pages / "map.html").read_text(), (pages / "haar_projections.html").read_text()
    assert picture.count("<svg") >= len({claim.chapter for claim in load_claims().values()})
    assert re.search(r'class="used-by"><summary>Used by \d+</summary>\s*<p>.*?href="#evidence-h2"', chapter)
    assert re.search(
        r'class="used-by"><summary>Used by \d+</summary>\s*<p>.*?href="stability_of_augmentation.html#evidence-a3"',
        chapter,
    )


def test_every_module_has_its_api_section(pages: Path) -> None:
    text = "".join(path.read_text() for path in pages.glob("api*.html"))
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "lib").rglob("[a-z]*.py")]
    assert [path for path in paths if f'id="module-{".".join(path.parts)}"' not in text] == []


def test_the_reference_is_folded_and_opens_where_a_link_leads(site: str, browser: Browser) -> None:
    name = "lib.augmentation.networks.Network.off"
    shown = "name => document.getElementById(name).checkVisibility()"
    with visit(browser, f"{site}/api_augmentation.html") as seen:
        boxes = seen.page.locator("details.api-more")
        assert boxes.count() > 15
        assert seen.page.locator("details.api-more[open]").count() == 0
        assert seen.page.locator("dl.py > dd > p").first.is_visible()
        assert not seen.page.evaluate(shown, name)
        assert seen.page.evaluate("() => document.querySelector('article').scrollHeight") < 35_000
        seen.page.evaluate("name => { location.hash = name; }", name)
        seen.page.wait_for_function(shown, arg=name)
        assert seen.page.locator("details.api-more[open]").count() == 1


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


def folded_code(name: str) -> str:
    """A line of the first cell of a notebook that is folded on its page."""
    cells = json.loads((ROOT / "book" / f"{name}.ipynb").read_text())["cells"]
    folded = next(cell for cell in cells if "hide-input" in cell["metadata"].get("tags", []))
    return max("".join(folded["source"]).splitlines()[:8], key=len)


def squeezed(text: str) -> str:
    """Without spaces and line breaks, which a PDF places anew; ligatures as letters."""
    return re.sub(r"\s", "", text).replace("ﬁ", "fi").replace("ﬂ", "fl").replace("ﬀ", "ff")


def test_a_printed_page_is_all_of_its_content(site: str, browser: Browser) -> None:
    """Folded code and solutions are on paper, in light colours; what asks for a click is not; then all is as before."""
    state = """() => [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor,
      document.querySelectorAll('.bd-article details:not([open])').length]"""
    with visit(browser, f"{site}/which_should_i_use.html", theme="dark") as seen:
        before = seen.page.evaluate(state)
        seen.page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = ({state})(); }})")
        pdf = PdfReader(io.BytesIO(seen.page.pdf(format="A4")))
        assert seen.page.evaluate("window.printed") == ["light", "rgb(255, 255, 255)", 0]
        assert seen.page.evaluate(state) == before
        assert before[0] == "dark"
        assert before[2] > 3
        solutions = [box.text_content() for box in seen.page.locator(".solution.toggle p:not(summary p)").all()]
    text = squeezed("".join(page.extract_text() for page in pdf.pages))
    assert squeezed(folded_code("which_should_i_use")) in text
    assert [piece for s in solutions for piece in [squeezed(s)[:25]] if "\\" not in piece and piece not in text] == []
    assert [
        piece for piece in ("Showcodecellsource", "Hidecodecellsource", "Ctrl+K", "Clicktoshow") if piece in text
    ] == []


@pytest.fixture(scope="session")
def edition(pages: Path, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> PdfReader:
    path = tmp_path_factory.mktemp("edition") / "few.pdf"
    print_book(browser, pages, EDITION, path)
    return PdfReader(path)


def test_the_pdf_has_what_the_pages_have(edition: PdfReader) -> None:
    texts = [page.extract_text() for page in edition.pages]
    starts = [(item.title, edition.get_destination_page_number(item)) for item in flat(edition.outline)]
    titles = [title for title, _ in starts]
    wanted = ["Symmetry, Measured", "Choosing", "Which should I use?", "Reference", "Open questions"]
    assert [title for title in titles if title in wanted] == wanted
    assert starts == sorted(starts, key=lambda start: start[1])
    for title, number in starts:
        assert title in ("Choosing", "Reference") or squeezed(title) in squeezed(texts[number])
    text = "".join(texts)
    assert squeezed(folded_code("which_should_i_use")) in squeezed(text)
    assert [piece for piece in ("\\mathbb", "\\(", "Math Processing Error", "Show the code") if piece in text] == []
    assert edition.page_labels[0] == "i"
    first = edition.page_labels.index("1")
    for page, words, label in list(zip(edition.pages, texts, edition.page_labels))[first:]:
        assert label in words.splitlines()[:2]
        assert len(words.strip()) > 60 or list(page.images)


def test_the_links_of_the_pdf_stay_in_it(edition: PdfReader) -> None:
    numbers = {page.indirect_reference.idnum: number for number, page in enumerate(edition.pages)}
    targets = set()
    for page in edition.pages:
        for reference in page.get("/Annots", ()):
            link = reference.get_object()
            if "/Dest" in link:
                targets.add(numbers[link["/Dest"][0].idnum])
            else:
                assert link["/A"]["/URI"].startswith("https://")
    chapters = {edition.get_destination_page_number(item) for item in edition.outline if not isinstance(item, list)}
    assert chapters & targets
    assert len(targets) > 5


def flat(outline: list) -> list:
    return [entry for item in outline for entry in (flat(item) if isinstance(item, list) else [item])]


def test_the_zip_reads_and_runs_without_a_network(pages: Path, browser: Browser, tmp_path: Path) -> None:
    pack(pages, tmp_path / "book.zip")
    with zipfile.ZipFile(tmp_path / "book.zip") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.namelist()}
        archive.extractall(tmp_path)
    assert names >= {f"html/{name}.html" for name in toc_pages()}
    assert names >= {"README.md", "Makefile", "constraints.txt", "lib/page/editions.py", "book/haar_projections.ipynb"}
    assert any(name.startswith("data/results/") for name in names)
    assert [name for name in names if re.search(r"__pycache__|_build|\.git/|checkpoint|\.map$", name)] == []
    folder = tmp_path / NAME
    context = browser.new_context(offline=True)
    context.set_default_timeout(0)
    page = context.new_page()
    problems: list[str] = []
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((folder / "html" / "haar_projections.html").as_uri())
    page.evaluate("() => MathJax.startup.promise")
    assert page.evaluate(MATHS)["plain"] == problems == []
    context.close()
    command = [sys.executable, "-m", "lib.page.notebooks", "execute", "runs/rates"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_editions_hold_the_whole_book() -> None:
    assert [name for _, names in contents() for name in names] == toc_pages()


CAPSULES = capsules.read_capsules(ROOT / "book")
ATTEMPTS = [code for c in CAPSULES.values() for code in (c.source, *(variant.source for variant in c.variants))]
SAYS = """async source => {
  let printed = '';
  const said = await bookCapsules.run(source, text => { printed += text; });
  return { rows: said.rows, printed, error: said.error, line: said.line };
}"""
FIREFOX = """<!DOCTYPE html><meta charset="utf-8"><article></article><script src="_static/capsules.js"></script><script>
  const says = %s;
  (async () => {
    const all = [];
    for (const source of %s) all.push(await says(source));
    await fetch('/said', { method: 'POST', body: JSON.stringify(all) });
  })();</script>"""
LOADED = "() => performance.getEntriesByType('resource').filter(entry => /capsule-python/.test(entry.name)).length"


def said_here(source: str) -> dict:
    return vars(capsules.run(source))


@pytest.mark.parametrize("served", [False, True], ids=["disk", "server"])
def test_every_attempt_says_in_the_page_what_it_says_here(
    site: str, pages: Path, browser: Browser, served: bool
) -> None:
    """From a disk, without a network, and from a server; and nothing is fetched before somebody opens a capsule."""
    context = browser.new_context(offline=not served)
    page = context.new_page()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"{site}/break_it.html" if served else (pages / "break_it.html").as_uri())
    page.wait_for_load_state("load")
    assert [url for url in fetched if "capsule-python" in url] == []
    page.locator("#capsule-adjoint summary").click()
    page.wait_for_function("document.querySelector('script[src*=capsule-python]')")
    assert [page.evaluate(SAYS, code) for code in ATTEMPTS] == [said_here(code) for code in ATTEMPTS]
    assert all(url.startswith((site if served else "file:", "data:", "blob:", "about:")) for url in fetched)
    context.close()


def test_a_theorem_is_broken_and_the_link_shows_it(pages: Path, browser: Browser) -> None:
    """Under a chapter's theorem, from a server below a sub-path; the link runs nothing by itself."""
    with serve(pages.parent) as site, visit(browser, f"{site}/html/haar_projections.html", width=390) as seen:
        box = seen.page.locator("#capsule-projection")
        assert not box.locator("pre").first.is_visible()
        with_script = {path.stem for path in pages.glob("*.html") if "capsules.js" in path.read_text()}
        assert with_script == {"break_it", "intro"} | set(capsules.chapters_of_capsules(ROOT / "book").values())
        assert seen.page.evaluate(LOADED) == 0
        box.locator("summary").click()
        box.get_by_role("button", name="Run", exact=True).click()
        box.locator("[data-holds=true]").wait_for()
        assert box.locator("caption").inner_text() == "The book's own capsule"
        box.get_by_role("button", name="published experiment").click()
        box.locator("[data-holds=false]").wait_for()
        assert "3 of 3 lines fail: largest entry of PP − P" in seen.page.locator("#capsule-news").text_content()
        panel, editor = box.locator(".capsule-panel"), box.locator("textarea")
        assert panel.bounding_box()["y"] < editor.bounding_box()["y"]
        assert seen.page.evaluate(OVERFLOW) <= 0
        box.get_by_role("button", name="Link").click()
        box.locator("input").wait_for()
        link = box.locator("input").input_value()
        assert seen.errors == seen.outside == seen.missing == []
        variant = next(v for v in CAPSULES["projection"].variants if "published" in v.why)
        assert link.startswith(f"{site}/html/break_it.html#try=projection.")
        for address in (link, f"{site}/html/break_it.html#try=projection.{capsules.pack(variant.source)}"):
            seen.page.goto("about:blank")
            seen.page.goto(address)
            box = seen.page.locator("#capsule-projection")
            box.locator("textarea").wait_for()
            seen.page.wait_for_function("document.querySelector('#capsule-news')")
            assert box.locator("textarea").input_value() == variant.source
            assert "has not run" in box.locator(".capsule-state").inner_text()
            assert box.locator(".capsule-panel tr").count() == 0
            assert seen.page.evaluate(LOADED) == 0


def test_a_capsule_is_at_hand_for_everybody(site: str, browser: Browser) -> None:
    """Keyboard, one live region, the failing line, Stop, the mark of edited code, axe-core, and paper."""
    with visit(browser, f"{site}/break_it.html", theme="dark") as seen:
        page = seen.page
        box = page.locator("#capsule-loss_splits")
        box.locator("summary").press("Enter")
        editor, panel = box.locator("textarea"), box.locator(".capsule-panel")
        editor.press("Control+Enter")
        box.locator("[data-holds=true]").wait_for()
        editor.fill("x = 1\n\ny = x / 0\n")
        assert panel.inner_text() == ""
        editor.press("Control+Enter")
        box.locator(".capsule-error").wait_for()
        assert panel.inner_text() == "Line 3: ZeroDivisionError: division by zero"
        assert editor.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == "y = x / 0"
        editor.press("Tab")
        assert page.evaluate("document.activeElement.tagName") != "TEXTAREA"
        editor.fill("print('caught')\nwhile True:\n    pass\n")
        editor.press("Control+Enter")
        box.get_by_role("button", name="Stop").click()
        box.locator(".capsule-error", has_text="Stopped.").wait_for()
        editor.fill(CAPSULES["loss_splits"].source.replace("y = [2, 2", "y = [3, 2"))
        editor.press("Control+Enter")
        box.locator("[data-holds=false]").wait_for()
        assert "not the book's" in box.locator("caption").inner_text()
        assert "capsule-edited" in box.get_attribute("class")
        assert page.locator("[role=status], [aria-live]").count() == 1
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
            assert violations(page) == []
        printed = squeezed("".join(sheet.extract_text() for sheet in PdfReader(io.BytesIO(page.pdf())).pages))
        assert squeezed("y = [3, 2, 2, -1, -1, -1]") in printed
        assert squeezed("Edited: not the book's code, and not the book's panel") in printed
        assert "RunStopReset" not in printed


def test_own_data_goes_into_the_capsule(site: str, browser: Browser) -> None:
    with visit(browser, f"{site}/break_it.html", width=390) as seen:
        form = seen.page.locator(".capsule-own")
        claim = form.get_by_label("Claim")
        kinds = [text.split(":")[0] for text in claim.locator("option").all_text_contents()]
        assert set(kinds) == {"table", "permutations", "signal"}
        claim.select_option(index=kinds.index("table"))
        form.locator("textarea").fill("e a\na")
        form.get_by_role("button", name="Run").click()
        assert "as many rows as columns" in form.locator(".capsule-state").inner_text()
        form.locator("textarea").fill("e a b\na b b\nb e a")
        form.get_by_role("button", name="Run").click()
        box = seen.page.locator("#capsule-group_table")
        box.locator("[data-holds=false]").wait_for()
        assert 'table = "e a b / a b b / b e a"' in box.locator("textarea").input_value()
        assert "is not" in box.locator(".capsule-out").inner_text()
        assert "not the book's" in box.locator("caption").inner_text()
        assert seen.errors == seen.outside == []


def test_code_in_a_capsule_reaches_neither_page_nor_network(site: str, browser: Browser) -> None:
    spy = f"""from browser import self as world
print(hasattr(world, "frames"), hasattr(world, "parent"), hasattr(world, "localStorage"))
world.fetch("{site}/ledger.json?stolen")
panel = [("a", 1, "==", 1)]
"""
    with visit(browser, f"{site}/break_it.html") as seen:
        answered: list[str] = []
        seen.page.on("response", lambda answer: answered.append(answer.url))
        said = seen.page.evaluate(SAYS, spy)
        assert (said["printed"], said["error"]) == ("False False False\n", "")
        seen.page.wait_for_timeout(300)
        assert [url for url in answered if "stolen" in url] == []
        seen.page.evaluate("url => fetch(url)", f"{site}/ledger.json?stolen")  # the page itself may
        assert [url for url in answered if "stolen" in url] != []
        frame = seen.page.locator("iframe[title=Python]")
        assert frame.get_attribute("sandbox") == "allow-scripts"
        assert frame.evaluate("frame => frame.contentDocument") is None


def test_without_scripts_a_capsule_can_be_read(site: str, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/break_it.html")
    page.locator("#capsule-floor summary").click()
    assert "panel = [" in page.locator("#capsule-floor pre").inner_text()
    context.close()


def test_firefox_says_the_same(pages: Path, tmp_path: Path) -> None:
    """Debian's Firefox, without a driver: a page runs all attempts and sends what they say."""
    program = shutil.which("firefox-esr")
    if program is None:
        pytest.skip("Firefox is not installed (Debian: apt-get install firefox-esr)")
    said, done = [], threading.Event()

    class Listener(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self.path != "/all.html":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((FIREFOX % (SAYS, json.dumps(ATTEMPTS))).encode())

        def do_POST(self) -> None:
            said.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Listener, directory=pages)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/all.html"
        command = [program, "--headless", "--no-remote", "--profile", str(tmp_path), address]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        arrived = done.wait(180)
        process.terminate()
        process.wait()
        server.shutdown()
    assert arrived
    assert said == [said_here(code) for code in ATTEMPTS]


def test_every_claim_has_a_badge_and_a_citation(pages: Path) -> None:
    ledger = json.loads((pages / "ledger.json").read_text())
    text = (pages / "ledger.html").read_text()
    for claim in ledger["claims"]:
        assert f"{claim['id']}: {claim['state']}" in (pages / "badges" / f"{claim['id']}.svg").read_text()
        assert f'href="badges/{claim["id"]}.svg"' in text
        assert f"({ledger['date']}), claim {claim['id']}" in claim["citation"]
    assert 'id="who-reran-it"' in text
