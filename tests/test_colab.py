"""Copies for Google Colab: plain Markdown, whole addresses, and a cell that fetches the book there and only there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import colab
import symmetry
from tests.browser import ROOT, toc_pages

OURS = "some.one/a-book"
COMMIT = "0123456789012345678901234567890123456789"


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("colab")
    count = colab.write_copies(ROOT / "book", folder, OURS, COMMIT)
    found = {f.relative_to(folder).with_suffix("").as_posix(): json.loads(f.read_text()) for f in folder.rglob("*.*")}
    assert len(found) == count
    return found


def texts(notebook: dict) -> list[str]:
    outputs = [o["data"] for cell in notebook["cells"] for o in cell.get("outputs", ()) if "data" in o]
    shown = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return ["".join(text) for text in (*shown, *(data.get("text/markdown", "") for data in outputs))]


def test_every_copy_reads_as_plain_markdown(copies: dict[str, dict]) -> None:
    """No role, no directive, no reference without a number; every link has a whole address, and arrives."""
    assert set(copies) == {name for name in toc_pages() if (ROOT / "book" / f"{name}.ipynb").is_file()}
    links = set()
    for name, notebook in copies.items():
        for text in texts(notebook):
            assert not re.search(r"\{[\w:]+\}`|:::|\$\$ \(|\(…\)", text), (name, text)
            assert text.count("<details>") == text.count("</details>"), (name, text)
            links |= set(re.findall(r"\]\(([^)\s]*)", text))
    ours = {link for link in links if OURS in link or "github.io" in link}
    assert all(link.startswith("https://") for link in links)
    pages = {f"https://some.one.github.io/a-book/{name}.html" for name in toc_pages()}
    assert ours <= pages | {colab.address(OURS, name) for name in copies}
    assert colab.address(OURS, "haar_projections") in ours
    assert "https://some.one.github.io/a-book/ledger.html" in ours


def test_code_and_pictures_are_the_books(copies: dict[str, dict]) -> None:
    for name, copy in copies.items():
        book = json.loads((ROOT / "book" / f"{name}.ipynb").read_text())
        fetch, *code = [cell for cell in copy["cells"] if cell["cell_type"] == "code"]
        code = [cell for cell in code if not cell["id"].startswith("capsule-")]  # Markdown in the book
        assert [c["source"] for c in code] == [c["source"] for c in book["cells"] if c["cell_type"] == "code"]
        assert "google.colab" in fetch["source"]
        assert copy["cells"].index(fetch) == 1


def test_boxes_theorems_proofs_and_equations() -> None:
    numbers = {"eq-before": 1}
    text = """See {eq}`eq-before` and {eq}`eq-here`.

$$
x = y
$$ (eq-here)

:::{prf:theorem} Of $x$
:label: thm-x
It is $y$.
:::

::::{dropdown} Proof
:::{prf:proof}
By {eq}`eq-here`.
:::
::::

:::{admonition} Mind
:class: tip
- one

Two.
:::"""
    assert (
        colab.plain(text, numbers)
        == r"""See (1) and (2).

$$
x = y
\tag{2} $$

**Theorem (Of $x$).** It is $y$.

<details><summary>Proof</summary>

*Proof.* By (2). ∎

</details>


> **Mind**
>
> - one
>
> Two."""
    )
    assert numbers == {"eq-before": 1, "eq-here": 2}


def test_the_cell_does_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a command was run"))
    path = list(sys.path)
    exec(colab.install_cell(OURS, COMMIT, "runs/rates")["source"], {})
    assert (Path.cwd(), sys.path, list(tmp_path.iterdir())) == (tmp_path, path, [])


def test_the_cell_fetches_the_commit_on_colab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A repository of this machine in the place of GitHub; what pip is asked for is written down, not installed."""
    origin, place = tmp_path / "origin", tmp_path / "content" / "a-book"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(origin)]
    (origin / "book" / "runs").mkdir(parents=True)
    commits = []
    for word in ("first", "second"):
        (origin / "book" / "runs" / "page").write_text(word)
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", word]):
            subprocess.run([*git, *command], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        commits.append(head.stdout.strip())
    source = colab.install_cell(OURS, commits[0], "runs/rates")["source"]
    source = source.replace(f"https://github.com/{OURS}", origin.as_uri()).replace("/content/a-book", str(place))
    asked, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda c, **k: asked.append(c) if "pip" in c else run(c, **k))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    monkeypatch.chdir(tmp_path)
    exec(source, {})
    assert Path.cwd() == place / "book" / "runs"
    assert sys.path[0] == str(place)
    assert (place / "book" / "runs" / "page").read_text() == "first"
    assert any(package.startswith("torch") for package in asked[0])
    assert not any(package.startswith("ipython") for package in asked[0])  # Colab's own has to stay
    exec(source, {})  # a second time: nothing to do
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        ("https://github.com/some.one/a-book.git", OURS),
        ("git@github.com:some.one/a-book", OURS),
        ("https://gitlab.com/some.one/a-book", ""),
        ("", ""),
    ],
)
def test_the_repository_is_the_checkouts_origin(tmp_path: Path, origin: str, found: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if origin:
        subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", origin], check=True)
    assert colab.repository(tmp_path) == found


def test_the_program_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert colab.main([]) == 2
    assert "usage" in capsys.readouterr().err
    monkeypatch.setattr(colab, "ROOT", tmp_path)
    assert colab.main([str(tmp_path / "copies")]) == 2
    assert "origin is on GitHub" in capsys.readouterr().err
    assert not (tmp_path / "copies").exists()


def test_the_button_leads_to_the_copy() -> None:
    other = {"url": "https://mybinder.org/v2/gh/a/b/main?urlpath=lab/tree/book/x.ipynb"}
    button = {"url": f"{colab.OPENS}/github/{OURS}/blob/main/book/runs/rates.ipynb"}
    context = {"header_buttons": [{"label": "launch-buttons", "buttons": [dict(other), button]}, {"text": "download"}]}
    symmetry.open_copies_in_colab(SimpleNamespace(), "runs/rates", "page.html", context, None)
    assert context["header_buttons"][0]["buttons"] == [other, {"url": colab.address(OURS, "runs/rates")}]
    assert os.sep not in colab.BRANCH
