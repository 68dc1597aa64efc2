"""Copies of the notebooks for Google Colab, which knows neither this repository nor MyST Markdown.

``python book/_ext/colab.py FOLDER`` writes them into a folder, for the repository on GitHub that is the checkout's
origin, at its present commit; the workflow that publishes the book puts them on the branch ``colab``, to which the
book's button leads. As in JupyterLab's copies (:mod:`lab`), citations and references are words and links; theorems,
exercises and boxes are plain Markdown besides. The second cell fetches the book, and does nothing anywhere else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from string import Template
from typing import Any

import lab
from lib import ROOT

BRANCH = "colab"
OPENS = "https://colab.research.google.com"
_GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:)([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_OPENING = re.compile(r"(:{3,})\{(?:prf:)?([\w-]+)\}[ ]*(.*)")
_OPTION = re.compile(r":[\w-]+:")
_NUMBERED = re.compile(r"\$\$ \(([\w-]+)\)$", re.MULTILINE)
_INSTALL = """\
# On Colab: fetch the book and what it needs, in a minute or two. Anywhere else this cell does nothing.
import os, subprocess, sys

def _fetch(book, address, commit, packages):
    os.makedirs(book, exist_ok=True)
    for command in ("init -q", f"fetch -q --depth 1 {address} {commit}", "checkout -q -f FETCH_HEAD"):
        subprocess.run(["git", "-C", book, *command.split()], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *packages], check=True)
    os.chdir(f"{book}/book$FOLDER")
    sys.path.insert(0, book)

if "google.colab" in sys.modules and "/content/$NAME" not in sys.path:
    _fetch("/content/$NAME", "https://github.com/$REPOSITORY", "$COMMIT", "$PACKAGES".split())"""


def repository(folder: Path) -> str:
    """Return ``"owner/name"`` of the GitHub repository that is a checkout's origin; ``""`` if it is another or none."""
    match = _GITHUB.fullmatch(_git(folder, "remote", "get-url", "origin"))
    return match[1] if match else ""


def published(repository: str) -> str:
    """Return where GitHub's Pages put the book of a repository ``"owner/name"``."""
    owner, _, name = repository.partition("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def address(repository: str, page: str) -> str:
    """Return where Colab opens a page."""
    return f"{OPENS}/github/{repository}/blob/{BRANCH}/{page}.ipynb"


class ColabBook(lab.Book):
    """What the chapters refer to, with whole addresses: notebooks open in Colab, other pages in the published book."""

    repository: str

    def link(self, words: str, page: str, source: str, hover: str = "") -> str:
        """Return a link from one page to another."""
        if page == source:
            return words
        notebook = self.copied.get(page, "").endswith(".ipynb")
        return (
            f"[{words}]({address(self.repository, page) if notebook else f'{published(self.repository)}{page}.html'})"
        )


def plain(text: str, numbers: dict[str, int]) -> str:
    """Return Markdown without directives: theorems begin with bold words, boxes are quoted, proofs unfold.

    Parameters
    ----------
    text
        Markdown whose roles are words, but for references to equations.
    numbers
        The numbers of the equations of the page so far; those of the text are added.
    """
    for label in _NUMBERED.findall(text):
        numbers[label] = len(numbers) + 1
    text = _NUMBERED.sub(lambda match: rf"\tag{{{numbers[match[1]]}}} $$", text)
    text = re.sub(r"\{eq\}`([\w-]+)`", lambda match: f"({numbers.get(match[1], '…')})", text)
    open_boxes: list[tuple[str, str, str, list[str]]] = []  # fence, kind, title and lines so far
    lines: list[str] = []
    for line in text.split("\n"):
        if match := _OPENING.fullmatch(line):
            open_boxes.append((*match.groups(), lines))
            lines = []
        elif open_boxes and line.rstrip() == open_boxes[-1][0]:
            _, kind, title, outer = open_boxes.pop()
            lines = [*outer, *_box(kind, title, "\n".join(lines).strip()).split("\n")]
        elif not (open_boxes and not lines and _OPTION.match(line)):
            lines.append(line)
    return "\n".join(lines)


def _box(kind: str, title: str, body: str) -> str:
    if kind == "dropdown":
        return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>\n"
    if kind == "admonition":
        return "\n".join(f"> {line}".rstrip() for line in f"**{title}**\n\n{body}".split("\n"))
    if kind == "proof":
        return f"*Proof.* {body} ∎"
    return f"**{kind.capitalize()}{f' ({title})' if title else ''}.** {body}"


def install_cell(repository: str, commit: str, page: str) -> dict[str, Any]:
    """Return the cell that fetches a commit of the book on Colab, whose own IPython has to stay as it is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["sweep"]]
    source = Template(_INSTALL).substitute(
        NAME=repository.partition("/")[2],
        REPOSITORY=repository,
        COMMIT=commit,
        PACKAGES=" ".join(package for package in wanted if not package.startswith("ipython")),
        FOLDER="".join(f"/{part}" for part in page.split("/")[:-1]),
    )
    empty = {"cell_type": "code", "execution_count": None, "id": "fetch-the-book", "metadata": {}, "outputs": []}
    return empty | {"source": source}


def write_copies(book: Path, folder: Path, repository: str, commit: str) -> int:
    """Write the copies of all notebooks into a folder and return how many there are."""
    content = lab.read_book(book)
    content = ColabBook(content.titles, content.claims, content.entries, content.targets)
    content.repository = repository
    pages = [page for page, file in content.copied.items() if file.endswith(".ipynb")]
    for page in pages:
        notebook = json.loads((book / f"{page}.ipynb").read_text(encoding="utf-8"))
        notebook, numbers = lab.copy_of(notebook, page, content), {}
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = plain("".join(cell["source"]), numbers)
            for output in cell.get("outputs", ()):
                if caption := output.get("data", {}).get("text/markdown"):
                    output["data"]["text/markdown"] = plain("".join(caption), numbers)
        notebook["cells"].insert(1, install_cell(repository, commit, page))
        target = folder / f"{page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return len(pages)


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    found, commit = repository(ROOT), _git(ROOT, "rev-parse", "HEAD")
    if len(arguments) != 1:
        print("usage: python book/_ext/colab.py FOLDER", file=sys.stderr)
    elif not (found and commit):
        print(f"{ROOT} is no checkout whose origin is on GitHub, where Colab would find the book", file=sys.stderr)
    else:
        print(f"{write_copies(ROOT / 'book', Path(arguments[0]), found, commit)} notebooks in {arguments[0]}")
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
