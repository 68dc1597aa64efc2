"""Pages of the built book, printed by Chromium as one PDF with title page, contents, bookmarks, and links inside it."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lib import __version__

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from pypdf import PageObject

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
_FLAGS += ("--disable-component-update", "--disable-sync")
# Waits for formulas and pictures, returns title and sections, and adds links that nobody sees: Chromium remembers where
# the places are to which a page itself links, and no others.
_READY = """async anchors => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  document.querySelectorAll('img').forEach(image => { image.loading = 'eager'; });
  await Promise.all([...document.images].map(image => image.decode()));
  const said = node => node.className === 'headerlink' ? '' : node.textContent;
  const words = heading => [...heading.childNodes].map(said).join('').trim();
  const sections = [...document.querySelectorAll('article section > h2')].map(h => [h.parentElement.id, words(h)]);
  for (const anchor of [...anchors, ...sections.map(section => section[0])]) {
    const link = document.body.appendChild(document.createElement('a'));
    link.href = `#${encodeURIComponent(anchor)}`;
    link.hidden = true;
  }
  return [words(document.querySelector('article h1')), sections];
}"""
_STYLE = "footer.bd-footer-content, .viewcode-link { display: none !important; }"
_NUMBERS = """html { counter-reset: page %d; }
@page { @top-left { content: %s; font: 8pt sans-serif; } }
@page { @bottom-right { content: counter(page); font: 8pt sans-serif; } }"""
_FRONT = """.paths { display: none; }
.title { break-after: page; padding-top: 60mm; text-align: center; }
.title img { width: 30mm; }
.line { display: flex; justify-content: space-between; margin: 0; }"""


class CannotPrint(RuntimeError):
    """Something is missing; the message says in one line what."""


def find_chromium() -> str | None:
    """Return the path of Chromium or Chrome, the one that has no window first; None where there is none."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium without a window; CannotPrint says that it is not installed, or what failed."""
    from playwright.sync_api import Error, sync_playwright

    path = find_chromium()
    if path is None:
        raise CannotPrint("Chromium is not installed, and it prints the PDF (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
            yield browser
            browser.close()
        except Error as error:
            raise CannotPrint(f"Chromium says: {str(error).splitlines()[0]}") from None


def check_built(html: Path, parts: list[tuple[str, list[str]]]) -> None:
    """Raise CannotPrint unless the pages of all parts have been built."""
    for name in [name for _, pages in parts for name in pages]:
        if not (html / f"{name}.html").is_file():
            raise CannotPrint(f"the book has to be built first (make book): there is no {html / name}.html")


def print_book(browser: Browser, html: Path, parts: list[tuple[str, list[str]]], target: Path) -> None:
    """Print pages of the built book, which lies in a folder, as one PDF.

    A part has a caption, or an empty one, and the names of its pages. From the first page comes the title page.
    """
    names = [name for _, pages in parts for name in pages]
    page = browser.new_page(color_scheme="light")
    page.set_default_timeout(0)  # a slow machine may take its time
    printer = _Printer(page, html, names)
    for name in names:
        printer.print(name)
        print(f"printed {name}, up to page {len(printer.writer.pages)}", flush=True)
    front = printer.print_front(parts)
    page.close()
    printer.relink()
    for caption, pages in parts:
        part = printer.bookmark(caption, pages[0], "", None) if caption else None
        for name in pages:
            chapter = printer.bookmark(printer.titles[name], name, "", part)
            for anchor, title in printer.sections[name]:
                printer.bookmark(title, name, anchor, chapter)
    printer.writer.set_page_label(0, front - 1, style="/r")
    printer.writer.set_page_label(front, len(printer.writer.pages) - 1, style="/D")
    printer.writer.add_metadata({"/Title": printer.titles[names[0]]})
    printer.writer.compress_identical_objects()
    printer.writer.write(target)


class _Printer:
    """Prints one page after the other into one PDF, and knows where in it everything is."""

    def __init__(self, page: Page, html: Path, names: list[str]) -> None:
        from pypdf import PdfWriter

        self.page, self.html, self.writer = page, html, PdfWriter()
        self.titles: dict[str, str] = {}
        self.sections: dict[str, list[tuple[str, str]]] = {}
        self.starts: dict[str, int] = {}
        self.sheets: list[tuple[str, PageObject]] = []
        self.places: dict[tuple[str, str], tuple[PageObject, float | None]] = {}
        self.anchors: dict[str, set[str]] = {name: set() for name in names}
        for name in names:
            text = (html / f"{name}.html").read_text(encoding="utf-8")
            for path, anchor in re.findall(r'href="([\w./-]*)#([^"]+)"', text):
                other = normpath(join(dirname(name), path)).removesuffix(".html") if path else name
                self.anchors.get(other, set()).add(unquote(anchor))

    def print(self, name: str) -> None:
        """Print a page of the book after those that have been printed."""
        before = len(self.writer.pages)
        self.page.goto((self.html / f"{name}.html").as_uri())
        self.titles[name], self.sections[name] = self.page.evaluate(_READY, sorted(self.anchors[name]))
        running = json.dumps(self.titles[name], ensure_ascii=False) if before else "none"
        self.page.add_style_tag(content=_STYLE + _NUMBERS % (before, running))
        self.starts[name] = before + 1
        self._add(name, before)

    def print_front(self, parts: list[tuple[str, list[str]]]) -> int:
        """Print title page and contents in front of everything, and return the number of their pages."""
        root = parts[0][1][0]
        self.page.goto((self.html / f"{root}.html").as_uri())
        text = f'<section class="title"><img src="_static/logo.svg" alt=""><h1>{escape(self.titles[root])}</h1>'
        text += self.page.locator(".hero-words").inner_html() + f"<p>Version {__version__}</p>"
        text += f"<p>{self.page.locator('p:has(> a[rel=license])').first.inner_html()}</p></section><h2>Contents</h2>"
        for caption, names in parts:
            text += f"<h3>{escape(caption)}</h3>" if caption else ""
            for name in names:
                link = f'<a href="{name}.html">{escape(self.titles[name])}</a>'
                text += f'<p class="line">{link} <span>{self.starts[name]}</span></p>'
        self.page.evaluate("text => { document.querySelector('article').innerHTML = text; }", text)
        self.page.evaluate(_READY, [])
        self.page.add_style_tag(content=_STYLE + _FRONT)
        return self._add("", 0)

    def _add(self, name: str, position: int) -> int:
        """Print what is open, put it there, and remember where its anchors are; return the number of its pages."""
        from pypdf import PdfReader

        reader = PdfReader(io.BytesIO(self.page.pdf(format="A4", print_background=True)))
        sheets = [self.writer.insert_page(sheet, position + number) for number, sheet in enumerate(reader.pages)]
        self.sheets += [(name, sheet) for sheet in sheets]
        self.places[name, ""] = (sheets[0], None)
        for anchor, place in reader.named_destinations.items():
            sheet = sheets[reader.get_destination_page_number(place)]
            self.places[name, unquote(anchor.removeprefix("/"))] = (sheet, place.top)
        return len(sheets)

    def bookmark(self, title: str, name: str, anchor: str, parent: Any) -> Any:
        """Add an entry to the outline and return it, for a page of the book or a place on it."""
        from pypdf.generic import Fit

        sheet, top = self.places[name, anchor]
        return self.writer.add_outline_item(title=title, page_number=sheet, parent=parent, fit=Fit.xyz(0, top))

    def relink(self) -> None:
        """Let every link into the book lead to its place in the PDF.

        What the PDF has not (the sources of the tests) is linked where the book is published, if it is, or not at all.
        """
        from pypdf.generic import ArrayObject, Destination, Fit, NameObject, TextStringObject

        here = self.html.as_uri() + "/"
        head = (self.html / f"{next(iter(self.titles))}.html").read_text(encoding="utf-8")
        online = re.search(r'<link rel="canonical" href="(https?://[^"]+/)', head)
        for name, sheet in self.sheets:
            kept = ArrayObject()
            for reference in sheet.get("/Annots", ()):
                link = reference.get_object()
                own = f"{here}{name}.html#{link.get('/Dest', '/').removeprefix('/')}"
                address = link["/A"]["/URI"] if "/A" in link else own
                path, _, anchor = address.removeprefix(here).partition("#")
                other = path.removesuffix(".html")
                if address.startswith(here) and (other, "") in self.places:
                    place, top = self.places.get((other, unquote(anchor)), self.places[other, ""])
                    link.pop("/A", None)
                    target = Destination("", place.indirect_reference, Fit.xyz(0, top))
                    link[NameObject("/Dest")] = target.dest_array
                elif address.startswith(here) and online:
                    link["/A"][NameObject("/URI")] = TextStringObject(online[1] + address.removeprefix(here))
                elif address.startswith("file:"):
                    continue
                kept.append(reference)
            sheet[NameObject("/Annots")] = kept
