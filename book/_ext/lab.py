"""Open JupyterLab on copies of the chapters in which citations and references are words and links.

JupyterLab shows theorems, exercises and admonitions (by jupyterlab-myst), but knows neither the bibliography nor any
other page: it leaves keys and labels in the text. ``make lab`` therefore writes copies into ``reading/``, with a start
page in the order of the contents, and trusts them, so that their films can be played. A copy that a reader has changed
is kept. What follows is for the copies only; the book itself is made from the notebooks as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from pybtex.database import Entry, parse_file
from pybtex.richtext import Text

from author_year import names_of
from lib import ROOT
from lib.page.claims import Claim, load_claims
from lib.page.editions import contents
from lib.page.ledger import stored_outputs

_ROLE = re.compile(r"\{(cite|cite:t|claim|doc|eq|numref|prf:ref|py:func|py:mod|ref|term)\}`([^`]+)`")
_LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((/?[\w/]+)\)")  # to a page by its name
_LABELLED = re.compile(
    r"^(?:`{3,}|:{3,})\{(?:prf:)?(\w+)\}[ ]*([^\n]*)\n(?::(?!label)[^\n]*\n)*:label: (\S+)|^\$\$ \(([\w-]+)\)",
    re.MULTILINE,
)
_SOLUTION = re.compile(r":::\{solution-(start|end)\}[^\n]*\n(?::\w+:[^\n]*\n)*:::\s*")
_CAPSULE = re.compile(r"^`{3,}\{capsule\} (\w+)\n`{3,}\n?", re.MULTILINE)
_RUN_CAPSULE = "%%script {__import__('sys').executable}\n# Break this theorem: change a line and run the cell.\n"
_SHOW_PANEL = """
for label, value, sign, bound in panel:
    holds = {"==": value == bound, "<=": value <= bound, ">=": value >= bound, "<": value < bound, ">": value > bound}
    print("holds" if holds[sign] else "FAILS", "|", label, "|", value, sign, bound)"""
_READABLE = ("glossary", "notation")  # pages of text that JupyterLab can show
# JupyterLab asks whether it may fetch news, and opens Markdown as source.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}
_START = """# {title}

Copies of the chapters for reading and trying out: change a number in the cell with the parameters, run all cells (*Run*
and *Run All Cells*), break a claim. `make lab` renews the copies you left as they were and keeps the others; delete
one to get it back as it was. To change the book itself, edit the notebooks in `book/`.
"""


@dataclass
class Book:
    """What the roles of the chapters can refer to."""

    titles: dict[str, str]  # of every page
    claims: dict[str, Claim]
    entries: Mapping[str, Entry]
    targets: dict[str, tuple[str, str]] = field(default_factory=dict)  # label → page, words

    @cached_property
    def copied(self) -> dict[str, str]:
        """The files in the copies' folder by the names of their pages."""
        notebooks = {name: f"{name}.ipynb" for name in self.titles if (ROOT / "book" / f"{name}.ipynb").is_file()}
        return notebooks | {name: f"{name}.md" for name in _READABLE}

    def link(self, words: str, page: str, source: str, hover: str = "") -> str:
        """Return a link from one page to another; only the words, where the other is not among the copies."""
        if page not in self.copied or page == source:
            return words
        hover = hover.replace('"', "'").replace("\\", "")
        return f"[{words}]({relpath(self.copied[page], dirname(source) or '.')}" + (f' "{hover}")' if hover else ")")


def read_book(book: Path) -> Book:
    """Return the titles, claims, literature and labels of a book."""
    names = [name for _, pages in contents(book) for name in pages]
    texts = {name: list(_cells(book, name)) for name in names}
    titles = {name: next(iter(re.findall(r"^# (.+)$", "\n".join(t), re.MULTILINE)), name) for name, t in texts.items()}
    found = Book(titles, load_claims(book / "claims.yml"), parse_file(book / "references.bib").entries)
    for name, parts in texts.items():
        for kind, title, label, equation in _LABELLED.findall("\n\n".join(parts)):
            words = (
                f"{kind.capitalize()} “{title.strip()}”"
                if title.strip()
                else f"{kind.capitalize()} of “{titles[name]}”"
            )
            found.targets[label or equation] = (name, words if label else f"an equation of “{titles[name]}”")
        for label, kind, caption in _captions(book, name):
            found.targets[label] = (name, f"{kind} “{_beginning(caption)}”")
    return found


def in_words(text: str, page: str, book: Book) -> str:
    """Return Markdown with its roles written out, but for the numbers of the page's own equations.

    JupyterLab could number theorems too, but only once their cells have been seen: until then it shows a label.
    """

    def words(match: re.Match) -> str:
        role, content = match.groups()
        title, _, target = content.rstrip(">").rpartition("<")
        title = title.strip()
        if role.startswith("cite"):
            cited = [_citation(book.entries[key.strip()], role == "cite:t") for key in content.split(",")]
            return ", ".join(cited) if role == "cite:t" else f"({'; '.join(cited)})"
        if role == "claim":
            return book.link(target, book.claims[target].chapter, page, book.claims[target].title)
        if role == "doc":
            name = normpath(join(dirname(page), target)).lstrip("/")
            return book.link(title or book.titles[name], name, page)
        if role == "term":
            return book.link(title or target, "glossary", page)
        if role.startswith("py:"):
            return f"`{target.lstrip('~') if role == 'py:mod' else target.rpartition('.')[2]}`"
        place, name = book.targets[target]
        if place == page and role == "eq":
            return match[0]  # JupyterLab numbers equations itself
        return book.link(title or name, place, page)

    def whole(match: re.Match) -> str:
        name = normpath(join(dirname(page), match[2])).lstrip("/")
        return book.link(match[1], name, page) if name in book.titles else match[0]

    return _ROLE.sub(words, _LINK.sub(whole, text))


def copy_of(notebook: dict[str, Any], page: str, book: Book) -> dict[str, Any]:
    """Return a notebook with its text in words and its solutions folded."""
    cells, in_solution = [], False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text, in_solution = _fold_solutions("".join(cell["source"]), in_solution)
            words, *rest = _CAPSULE.split(text)  # a text, the name of a capsule, a text, and so on
            if words.strip():
                cells.append(cell | {"source": in_words(words, page, book)})
            for name, words in zip(rest[::2], rest[1::2], strict=True):
                cells.append(capsule_cell(name))
                if words.strip():
                    cells.append(cell | {"id": f"after-{name}", "source": in_words(words, page, book)})
            continue
        cell = cell | {"outputs": [_caption_in_words(output, page, book) for output in cell["outputs"]]}
        if in_solution:
            hidden = {"source_hidden": True, "outputs_hidden": True}
            cell = cell | {"metadata": cell["metadata"] | {"jupyter": hidden}}
        cells.append(cell)
    return notebook | {"cells": cells}


def capsule_cell(name: str) -> dict[str, Any]:
    """Return the code of a capsule as a cell, which runs in a Python of its own: its names stay out of the chapter."""
    code = (ROOT / "book" / "capsules" / f"{name}.py").read_text(encoding="utf-8")
    empty = {"cell_type": "code", "execution_count": None, "id": f"capsule-{name}", "metadata": {}, "outputs": []}
    return empty | {"source": f"{_RUN_CAPSULE}{code}{_SHOW_PANEL}"}


def write_copies(book: Path, folder: Path) -> list[str]:
    """Write start page and copies, trust the notebooks, and return the files that a reader has changed: they stay."""
    content, kept = read_book(book), []
    known = folder / ".copies.json"
    digests = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else {}
    files = {content.copied[name]: _copied_text(book, name, content) for name in content.copied}
    for name, text in ({"start.md": start_page(book, content)} | files).items():
        path = folder / name
        if path.is_file() and _digest(name, path.read_text(encoding="utf-8")) != digests.get(name):
            kept.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        digests[name] = _digest(name, text)
        trust(path)
    known.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return kept


def start_page(book: Path, content: Book) -> str:
    """Return the page with which JupyterLab opens: all notebooks in the order of the contents."""
    (_, (root,)), *parts = contents(book)
    lines = [_START.format(title=content.titles[root])]
    for caption, names in parts:
        if pages := [name for name in names if name in content.copied]:
            lines += [f"## {caption}", "", *(_line(page, content) for page in pages), ""]
    return "\n".join(lines)


def trust(path: Path) -> None:
    """Sign a notebook, so that JupyterLab runs the scripts of its stored outputs."""
    import nbformat
    from nbformat.sign import NotebookNotary

    if path.suffix == ".ipynb":
        with NotebookNotary() as notary:
            notary.sign(nbformat.v4.reads(path.read_text(encoding="utf-8")))


def prepare(book: Path, folder: Path) -> list[str]:
    """Write copies and settings, trust the notebooks themselves too, and return the command that starts JupyterLab."""
    for name in write_copies(book, folder):
        print(f"{folder.name}/{name} is kept as you changed it (delete it for a fresh copy)", flush=True)
    for path in (*book.glob("*.ipynb"), *book.glob("runs/*.ipynb")):
        trust(path)
    settings = folder / ".settings"
    settings.mkdir(exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps(_SETTINGS, indent=1) + "\n")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.parent}"]
    return [*command, f"--LabApp.default_url=/lab/tree/{folder.name}/start.md", f"--LabApp.app_settings_dir={settings}"]


def _cells(book: Path, name: str) -> Iterator[str]:
    path = book / f"{name}.ipynb"
    if not path.is_file():
        yield (book / f"{name}.md").read_text(encoding="utf-8")
        return
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield "".join(cell["source"])


def _captions(book: Path, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield label, kind and caption of every figure and table of a notebook."""
    path = book / f"{name}.ipynb"
    for output in stored_outputs(path) if path.is_file() else ():
        for texts in output.get("metadata", {}).values():
            if isinstance(texts, dict) and {"label", "caption"} <= texts.keys():
                yield texts["label"], "Table" if texts.get("role") == "table" else "Figure", texts["caption"]


def _beginning(caption: str) -> str:
    """Return the first words of a caption, by which a reader finds it; no formula is cut."""
    words = re.split(r"[.:;,] ", caption.rstrip("."))
    start = words[0]
    return start if start.count("$") % 2 == 0 else caption.partition(". ")[0]


def _citation(entry: Entry, in_sentence: bool) -> str:
    """Return authors and year, as a link to the source, where the entry says where it is, with its title."""
    year = entry.fields.get("year", "n.d.")
    words = f"{names_of(entry)} ({year})" if in_sentence else f"{names_of(entry)}, {year}"
    address = entry.fields.get("url", "")
    if "doi" in entry.fields:
        address = f"https://doi.org/{entry.fields['doi']}"
    elif "eprint" in entry.fields:
        address = f"https://arxiv.org/abs/{entry.fields['eprint']}"
    title = str(Text.from_latex(entry.fields["title"])).replace('"', "'")
    return f'[{words}]({address} "{title}")' if address else words


def _fold_solutions(text: str, inside: bool) -> tuple[str, bool]:
    """Return a cell's text with solutions as boxes that unfold, and whether one is still open after it."""
    title, folded = "Solution, continued", ""
    parts = _SOLUTION.split(text)  # a text, "start" or "end", a text, and so on
    for part, mark in zip(parts[::2], [*parts[1::2], ""], strict=True):
        if not inside:
            folded += part
        elif part.strip():
            folded += f"::::::{{dropdown}} {title}\n{part.strip()}\n::::::\n\n"
        inside, title = mark == "start" if mark else inside, "Solution"
    return folded, inside


def _caption_in_words(output: dict[str, Any], page: str, book: Book) -> dict[str, Any]:
    if output.get("metadata", {}).get("symmetry", {}).get("role") != "caption":
        return output
    text = in_words("".join(output["data"]["text/markdown"]), page, book)
    return output | {"data": output["data"] | {"text/markdown": text}}


def _copied_text(book: Path, name: str, content: Book) -> str:
    path = book / content.copied[name]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return in_words(text, name, content)
    return json.dumps(copy_of(json.loads(text), name, content), indent=1, ensure_ascii=False) + "\n"


def _line(page: str, content: Book) -> str:
    claims = [claim.id for claim in content.claims.values() if claim.chapter == page]
    shown = f" – {', '.join(claims)}" if claims else ""
    return f"- [{content.titles[page]}]({content.copied[page]}){shown}"


def _digest(name: str, text: str) -> str:
    """Return a digest of what a reader can change: of a notebook, code and text, but not how JupyterLab writes it."""
    if name.endswith(".ipynb"):
        with contextlib.suppress(ValueError, KeyError):  # else it is no notebook any more
            cells = json.loads(text)["cells"]
            text = json.dumps([[cell["cell_type"], "".join(cell["source"])] for cell in cells])
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    os.execv(sys.executable, prepare(ROOT / "book", ROOT / "reading") + sys.argv[1:])
