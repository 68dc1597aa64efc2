"""JupyterLab: copies of the chapters whose citations and references are words, and a page to begin with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from posixpath import dirname, join, normpath

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import Browser, Locator, Page, TimeoutError

import lab
from tests.browser import ROOT, need_chromium, toc_pages, visit

BOOK = ROOT / "book"
FARTHER = """cell => {
  const box = cell.closest('.jp-WindowedPanel-outer') || cell.parentElement;
  box.scrollBy(0, box.clientHeight);
}"""
MOVED = """from lib.page.explore import explore
def twice(n=3):
    print(2 * n)
explore(twice, n=range(9))"""
FILM = """from lib.page.movies import Panel, point_movie
texts = {"label": "movie-test", "caption": "A point.", "alt": "One point that drifts to the right."}
frames = [[[t, t]] for t in range(5)]
point_movie([Panel("a point", frames)], range(5), limits=(0, 4), axes=("x", "y"), **texts)"""
LAST = ".jp-Notebook h2:has-text('Where this goes next')"


@pytest.fixture(scope="module")
def content() -> lab.Book:
    return lab.read_book(BOOK)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copies as they are written, in a folder of their own, with a register of signatures of their own."""
    folder = tmp_path_factory.mktemp("lab") / "reading"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(folder.parent / "jupyter"))
        assert lab.write_copies(BOOK, folder) == []
    return folder


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("see {doc}`haar_projections`", "see [Haar projections](haar_projections.ipynb)"),
        ("see {doc}`the run <runs/rates>`", "see [the run](runs/rates.ipynb)"),
        ("[the run](runs/rates), [once](https://a.b/c)", "[the run](runs/rates.ipynb), [once](https://a.b/c)"),
        ("the {doc}`ledger`", "the The ledger of claims"),
        ("a {term}`group`", "a [group](glossary.md)"),
        ("it {term}`acts <group action>`", "it [acts](glossary.md)"),
        ("by {py:func}`~lib.reader.scale.told_apart`", "by `told_apart`"),
        ("{prf:ref}`lem-layers`", "[Lemma “Turning the input is turning the weights”](haar_projections.ipynb)"),
        ("{prf:ref}`thm-three-faces`", "Theorem “Three faces of symmetric transport”"),
        (
            "({eq}`eq-noise`)",
            "([an equation of “Augmentation versus equivariance”](augmentation_vs_equivariance.ipynb))",
        ),
        ("as {numref}`fig-cost` shows", "as [Figure “Cost of the projection”](haar_projections.ipynb) shows"),
    ],
)
def test_roles_in_words(content: lab.Book, text: str, words: str) -> None:
    assert lab.in_words(text, "sample_complexity", content) == words


def test_citations_in_words(content: lab.Book) -> None:
    text = lab.in_words("{cite:t}`birrell2022structure` {cite}`haar1933massbegriff,stewart1980efficient`", "x", content)
    linked, rest = text.split(") (")
    assert linked == '[Birrell et al. (2022)](https://arxiv.org/abs/2202.01129 "Structure-preserving GANs"'
    assert re.sub(r"\]\([^ ]* \"[^\"]*\"\)", "]", rest) in (
        "[Haar, 1933]; [Stewart, 1980])",
        "Haar, 1933; Stewart, 1980)",
    )


def test_a_page_of_another_folder(content: lab.Book) -> None:
    assert lab.in_words("{doc}`/sweeps`", "runs/rates", content) == "[Sweeps](../sweeps.ipynb)"
    assert lab.in_words("{claim}`H1`", "runs/rates", content).startswith('[H1](../how_to_test_a_sampler.ipynb "')


def test_solutions_unfold(content: lab.Book) -> None:
    start, end = ":::{solution-start} ex-a\n:class: dropdown\n:::\n\n", ":::{solution-end}\n:::\n"
    texts = [
        f"Question.\n{start}Look.",
        "x = 1",
        f"So.\n{end}\nNext question.\n{start}",
        "y = 2",
        f"{end}\nAfter.",
        "z = 3",
    ]
    cells = [
        {"cell_type": kind, "source": text, "metadata": {}} | ({"outputs": []} if kind == "code" else {})
        for text, kind in zip(texts, ("markdown", "code") * 3, strict=True)
    ]
    copy = lab.copy_of({"cells": cells}, "x", content)["cells"]
    assert [cell["source"] for cell in copy if cell["cell_type"] == "markdown"] == [
        "Question.\n::::::{dropdown} Solution\nLook.\n::::::\n\n",
        "::::::{dropdown} Solution, continued\nSo.\n::::::\n\nNext question.\n",
        "After.",
    ]
    hidden = {"jupyter": {"source_hidden": True, "outputs_hidden": True}}
    assert [cell["metadata"] for cell in copy if cell["cell_type"] == "code"] == [hidden, hidden, {}]


def test_every_copy_reads_as_text(copies: Path) -> None:
    """Only what JupyterLab resolves by itself is left of the roles, every link arrives, and every notebook is there."""
    texts = {
        path.relative_to(copies).as_posix(): [
            "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"
        ]
        for path in copies.rglob("*.ipynb")
    }
    assert set(texts) == {f"{name}.ipynb" for name in toc_pages() if (BOOK / f"{name}.ipynb").is_file()}
    texts |= {path.name: [path.read_text()] for path in copies.glob("*.md")}
    for name, parts in texts.items():
        text = re.sub(r"^```[^{\n]*\n.*?^```$", "", "\n\n".join(parts), flags=re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"\{([\w:-]+)\}`", text)) <= {"eq"}, name
        assert "{solution-" not in text
        for target in re.findall(r"\]\(([\w./]+\.(?:ipynb|md))", text):
            assert normpath(join(dirname(name), target)) in texts, f"{name} -> {target}"


def test_the_start_page_has_the_order_of_the_contents(copies: Path) -> None:
    links = re.findall(r"^- \[[^]]+\]\(([\w/]+)\.\w+\)", (copies / "start.md").read_text(), re.MULTILINE)
    assert links == [name for name in toc_pages() if name in links]
    assert len(links) > 40


def test_what_a_reader_changed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    book, folder = tmp_path / "book", tmp_path / "reading"
    book.mkdir()
    (book / "_toc.yml").write_text(
        "root: intro\nparts:\n- {caption: All, chapters: [{file: ideas}, {file: glossary}]}\n"
    )
    for name in ("intro", "glossary", "notation"):
        (book / f"{name}.md").write_text(f"# The {name}\n")
    (book / "claims.yml").write_text("finished_chapters: []\nclaims: []\n")
    (book / "references.bib").write_text("")
    cells = [nbformat.v4.new_markdown_cell("# Ideas\n\n{term}`group`")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), book / "ideas.ipynb")
    monkeypatch.setattr(lab, "ROOT", tmp_path)
    assert lab.write_copies(book, folder) == lab.write_copies(book, folder) == []
    trusted = nbformat.read(folder / "ideas.ipynb", as_version=4)
    with NotebookNotary() as notary:
        assert notary.check_signature(trusted)
    opened = json.loads((folder / "ideas.ipynb").read_text())  # and saved by JupyterLab, in its own way
    opened["cells"][0] |= {
        "source": opened["cells"][0]["source"].splitlines(keepends=True),
        "metadata": {"trusted": True},
    }
    (folder / "ideas.ipynb").write_text(json.dumps(opened))
    assert lab.write_copies(book, folder) == []
    assert "trusted" not in (folder / "ideas.ipynb").read_text()
    changed = (folder / "ideas.ipynb").read_text().replace("Ideas", "My ideas")
    (folder / "ideas.ipynb").write_text(changed)
    assert lab.write_copies(book, folder) == ["ideas.ipynb"]
    assert (folder / "ideas.ipynb").read_text() == changed
    (folder / "ideas.ipynb").unlink()
    assert lab.write_copies(book, folder) == []
    (cell,) = nbformat.read(folder / "ideas.ipynb", as_version=4).cells
    assert cell.source == "# Ideas\n\n[group](glossary.md)"


@pytest.fixture
def jupyterlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a JupyterLab that `make lab` would start, on its own copies."""
    need_chromium()
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name.lower()))
    command = lab.prepare(BOOK, tmp_path / "reading")
    shutil.copy(BOOK / "rates_depth_and_digits.ipynb", tmp_path / "reading" / "as_it_is.ipynb")
    moved = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (MOVED, FILM)])
    moved.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(moved, tmp_path / "reading" / "moved.ipynb")
    options = ["--no-browser", "--allow-root", f"--port={8931 + os.getpid() % 1000}", "--ServerApp.token="]
    server = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    line = next(line for line in server.stderr if "http://127.0.0.1" in line)
    drain = threading.Thread(target=server.stderr.read)
    drain.start()
    yield re.search(r"http://127\.0\.0\.1:\d+", line)[0]
    server.kill()  # its kernels notice; asked politely, it waits for them
    server.wait()
    drain.join()
    server.stderr.close()


def read_through(page: Page) -> set[str]:
    """Scroll a notebook to its end, cell by cell, and return the keys and labels that stand in its text."""
    page.set_default_timeout(240_000)
    page.locator(".jp-Notebook .jp-MarkdownCell h1").first.wait_for()
    keys: set[str] = set()
    while page.locator(LAST).count() == 0:
        keys.update(page.locator("[title$='Not Found']").all_text_contents())
        page.locator(".jp-Notebook .jp-Cell").first.evaluate(FARTHER)
        page.wait_for_timeout(100)
    return keys


def run_cell(page: Page, index: int, output: Locator) -> None:
    """Run a cell by its key until its output is there: JupyterLab, not quite started, may swallow a key or a run.

    Where the machine is busy it may also ask first (which kernel; that a server did not answer): its proposal is taken.
    """
    for _ in range(8):
        with suppress(TimeoutError):
            for proposal in page.locator(".jp-Dialog .jp-mod-accept").all():
                proposal.click(timeout=10_000)
            page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(index).click(timeout=30_000)
            page.keyboard.press("Shift+Enter")
            output.wait_for(timeout=30_000)
            return
    pytest.fail(f"JupyterLab does not run cell {index}")


def test_jupyterlab_shows_them(jupyterlab: str, browser: Browser) -> None:
    """A chapter behind its link on the start page has no key in its text, and its cells and solutions are folded.

    The notebook as it is has keys in its text. Moving a slider of `explore` computes another number. The arrow keys
    move a film after a click on its slider, and not from cell to cell.
    """
    with visit(browser, f"{jupyterlab}/") as seen:
        seen.page.set_default_timeout(240_000)
        seen.page.get_by_role("link", name="Rates, depth and real data").click()
        assert read_through(seen.page) == set()
        assert seen.page.locator(".jp-Notebook .jp-CodeCell .jp-Placeholder").count() > 1
        assert seen.page.locator(".jp-Notebook details", has_text="Solution").count() > 1
        assert seen.outside == []
    with visit(browser, f"{jupyterlab}/lab/tree/reading/as_it_is.ipynb?reset") as seen:
        assert read_through(seen.page) != set()
    with visit(browser, f"{jupyterlab}/lab/tree/reading/moved.ipynb?reset") as seen:
        seen.page.set_default_timeout(240_000)
        seen.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
        run_cell(seen.page, 0, seen.page.locator(".jp-OutputArea-output pre", has_text="6"))
        seen.page.locator(".jp-OutputArea .noUi-handle").press("ArrowRight")
        seen.page.locator(".jp-OutputArea-output pre", has_text="8").wait_for()
        film = seen.page.locator("#movie-test")
        run_cell(seen.page, 1, film)
        film.locator("input").click()
        active = "() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(c => c.matches('.jp-mod-active'))"
        before = seen.page.evaluate(active)
        seen.page.keyboard.press("Home")
        for step in ("t = 1", "t = 2"):
            seen.page.keyboard.press("ArrowRight")
            film.locator("output", has_text=step).wait_for()
        seen.page.keyboard.press("ArrowDown")
        film.locator("output", has_text="t = 1").wait_for()
        assert seen.page.evaluate(active) == before
