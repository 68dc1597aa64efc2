"""The ledger: rows from stored evidence only, and a build that fails when a finished chapter breaks its promise."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import symmetry
from external_names import external_page
from figures_and_panels import function_link, prepare_notebook
from ledger_page import as_data, claim_markdown, escape, label_markdown, overview_markdown, seeds_markdown
from lib.page import ledger
from lib.page.claims import Check, load_claims, load_register
from lib.page.evidence import MIME_TYPE, evaluate
from lib.page.expectations import MIME_TYPE as EXPECTATION
from lib.page.expectations import expectation_html
from lib.page.ledger import (
    bound_dates,
    collect,
    count_line,
    expectation_problems,
    last_commit,
    problems,
    read_records,
)
from lib.page.records import panel_html
from lib.page.seed_tables import OtherSeeds, read_other_seeds, read_seed_tables
from symmetry import CommitLink, link_back

ROOT = Path(__file__).parent.parent
REGISTER = """
finished_chapters: []
sections: {T: Toys}
claims:
  - id: T1
    source: a paper
    title: A toy
    statement: "small $x$ is small"
    evidence: residuals
    beyond_sources: true
    chapter: ideas
    test: tests/test_ledger.py::test_states
    checks: {small: {relation: "<=", bound: 1.0e-6, label: "size |x| of $x_1$"}}
  - {id: T2, source: s, title: Another, statement: u, evidence: e, chapter: later, test: 'tests/t.py::y', checks: {}}
"""
CONFIGURATION = """
project, extensions, html_theme = "toy", ["myst_nb", "sphinx_design", "symmetry"], "basic"
nb_execution_mode, myst_enable_extensions = "off", ["dollarmath", "colon_fence"]
numfig, exclude_patterns, include_patterns = True, ["_build"], ["*.md", "*.ipynb"]
"""


def evidence_output(tmp_path: Path, measured: float = 1e-9) -> dict[str, Any]:
    evidence = evaluate(
        "T1",
        {"small": ([measured, 1e-10], 0.5)},
        seeds=2,
        of=evaluate,
        claims=load_claims(register(tmp_path)),
    )
    record = evidence.content()
    data = {"text/plain": evidence.text(), "text/html": panel_html(evidence.claim, record), MIME_TYPE: record}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def image_output(**texts: str | int) -> dict[str, Any]:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
    return {"output_type": "display_data", "metadata": {"image/png": texts}, "data": {"image/png": pixel}}


def caption_output() -> dict[str, Any]:
    metadata = {"symmetry": {"role": "caption"}}
    return {"output_type": "display_data", "metadata": metadata, "data": {"text/markdown": "**Figure.** A dot."}}


def register(folder: Path, text: str = REGISTER) -> Path:
    path = folder / "claims.yml"
    path.write_text(text)
    return path


def notebook(folder: Path, *outputs: dict[str, Any], name: str = "ideas") -> Path:
    code = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1, "source": "x = 1"}
    cells = [{"cell_type": "markdown", "id": "b", "metadata": {}, "source": "# Ideas"}, code | {"outputs": [*outputs]}]
    metadata = {"language_info": {"name": "python"}}
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def rows(tmp_path: Path, *outputs: dict[str, Any]) -> list[ledger.Row]:
    return collect([notebook(tmp_path, *outputs)], load_claims(register(tmp_path)))


def test_a_bar_in_a_formula_does_not_end_a_cell_of_a_table() -> None:
    assert label_markdown(r"$|a|$, $\|b\|$, a|b") == r"$\vert a\vert $, $\Vert b\Vert $, a\|b"


def test_states(tmp_path: Path) -> None:
    good, bad = evidence_output(tmp_path), evidence_output(tmp_path, measured=1.0)
    assert [row.state for row in rows(tmp_path)] == ["open", "open"]
    assert [row.state for row in rows(tmp_path, good)] == ["settled", "open"]
    assert [row.state for row in rows(tmp_path, good, bad)] == ["failed", "open"]
    assert count_line(rows(tmp_path, good)) == "2 claims: 1 settled, 1 open, 0 failed"


@pytest.mark.parametrize(("old", "new"), [("1.0e-6", "1.0e-8"), ('"<="', '"<"'), ("{small:", "{tiny:")])
def test_evidence_for_an_older_bound_does_not_count(tmp_path: Path, old: str, new: str) -> None:
    path = notebook(tmp_path, evidence_output(tmp_path))
    changed = load_claims(register(tmp_path, REGISTER.replace(old, new)))
    assert collect([path], changed)[0].state == "failed"


def test_forged_evidence_is_found(tmp_path: Path) -> None:
    """A number or a control is changed in the file: the flag of the record is not believed."""
    good = evidence_output(tmp_path)
    assert problems(rows(tmp_path, good), ["ideas"]) == []
    for side, value in (("measured", 1.1e-6), ("control", 1e-7)):
        forged = copy.deepcopy(good)
        forged["data"][MIME_TYPE][side]["small"]["worst"] = value
        assert problems(rows(tmp_path, forged), []) == ["claim T1 is failed: refresh its chapter"]


def expectation_output(**changes: Any) -> dict[str, Any]:
    content = {"what": "a half", "relation": "<", "bound": [1.0], "worst": [0.5], "count": 1, "holds": True} | changes
    data = {"text/plain": "as expected: a half", "text/html": expectation_html(content), EXPECTATION: content}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def test_forged_expectations_are_found(tmp_path: Path) -> None:
    assert expectation_problems(notebook(tmp_path, expectation_output())) == []
    for changes in ({"holds": False}, {"worst": [2.0]}, {"bound": [0.25]}):
        path = notebook(tmp_path, expectation_output(**changes))
        assert expectation_problems(path) == ["ideas: what is expected does not hold: a half"]


def seed_table(folder: Path, **columns: list) -> None:
    frame = pd.DataFrame({"seed": [1, 2, 3], "T1.holds": [1.0, 1.0, 0.0]} | columns)
    frame.attrs = {"commit": "0123456789" * 4, "date": "2026-01-01", "seconds": 360}
    (folder / "ideas").mkdir()
    for name in ("seeds", "groups"):
        frame.to_parquet(folder / "ideas" / f"{name}.parquet")


def test_other_seeds(tmp_path: Path) -> None:
    """A claim held where its numbers meet the register's bound and its control misses it, whatever the table says."""
    columns = {"T1.small": [1e-9, 2e-6, 3e-7], "T1.small.control": [0.5, 0.5, 1e-7], "expect: a half": [1.0, 0.0, 1.0]}
    seed_table(tmp_path, **columns)
    claims = load_claims(register(tmp_path))
    found = collect([notebook(tmp_path, evidence_output(tmp_path))], claims, tmp_path)[0]
    assert (found.others.held, found.others.count) == (1, 3)
    assert found.others.worst == {"small": 2e-6}
    assert found.others.control == {"small": 1e-7}
    assert not found.others.room(claims["T1"].checks["small"])
    assert "held at 1 of 3; worst value (bound; control): 2e-06 (≤ 1e-06; control 1e-07)" in claim_markdown(found, ())
    page = seeds_markdown([found], read_seed_tables(tmp_path), {"ideas"})
    assert "| {doc}`ideas` | 3 | 0 of 1 | 0 of 1 | 0 of 1 | 0.10 | `0123456`, 2026-01-01 |" in page
    assert "{claim}`T1` held at 1 of 3" in page
    assert "ideas: *a half* held at 2 of 3" in page
    assert collect([], claims, tmp_path / "empty")[0].others is None
    assert read_other_seeds(tmp_path, claims, "groups") == {"T1": found.others}


@pytest.mark.parametrize(
    ("relation", "bound", "enough", "short"),
    [("<=", 1.0, 0.5, 0.6), ("<", -1.0, -1.5, -0.5), (">", 0.5, 1.0, 0.9), ("==", 3, 3, 2), ("<=", 0, 0, 1e-300)],
)
def test_room(relation: str, bound: float, enough: float, short: float) -> None:
    check = Check("x", relation, bound, "x")
    others = [OtherSeeds(1, 1, {"x": value}, {"x": 0.0}) for value in (enough, short)]
    assert [o.room(check) for o in others] == [True, False]


def test_since_when_a_bound_stands(tmp_path: Path) -> None:
    """A bound is as old as the oldest version of the register from which on it never changed."""
    assert bound_dates(register(tmp_path)) is None
    versions = [REGISTER.replace("1.0e-6", "1.0e-6" if k in (0, 2, 3) else "1.0e-5") for k in range(4)]
    versions[3] = versions[3].replace("A toy", "Another title")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for day, text in enumerate(versions, start=1):
        register(tmp_path, text)
        subprocess.run(["git", "add", "claims.yml"], cwd=tmp_path, check=True)
        when = {"GIT_AUTHOR_DATE": f"2026-01-0{day}T12:00:00", "GIT_COMMITTER_DATE": f"2026-01-0{day}T12:00:00"}
        command = ["git", *identity, "commit", "-qm", "x"]
        subprocess.run(command, cwd=tmp_path, check=True, env=os.environ | when)
    ((commit, date),) = bound_dates(tmp_path / "claims.yml").values()
    assert date == "2026-01-03"
    row = rows(tmp_path, evidence_output(tmp_path))[0]
    card = claim_markdown(row, (), bound_dates(tmp_path / "claims.yml"))
    assert f"*Bound unchanged since* 2026-01-03 (commit {{commit}}`{commit}`)." in card
    register(tmp_path, REGISTER.replace("1.0e-6", "2.0e-6"))  # changed and not committed yet
    assert bound_dates(tmp_path / "claims.yml") == {}


def test_a_shallow_clone_does_not_say_since_when(tmp_path: Path) -> None:
    """There every line is as old as the newest commit."""
    root = tmp_path / "full"
    root.mkdir()
    register(root)
    path = notebook(root, evidence_output(root))
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "y"], cwd=root, check=True)
    for name, options in (("whole", []), ("shallow", ["--depth", "1"])):
        subprocess.run(["git", "clone", "-q", *options, f"file://{root}", name], cwd=tmp_path, check=True)
    whole, shallow = (tmp_path / name / path.name for name in ("whole", "shallow"))
    assert last_commit(whole) is not None
    assert len(bound_dates(whole.with_name("claims.yml"))) == 1
    assert last_commit(shallow) is None
    assert bound_dates(shallow.with_name("claims.yml")) is None
    row = rows(tmp_path / "full", evidence_output(root))[0]
    assert "cannot be said: the history is not here" in claim_markdown(row, (), None)
    assert "history" not in claim_markdown(row, (), bound_dates(whole.with_name("claims.yml")))


def test_unknown_claims_are_refused(tmp_path: Path) -> None:
    output = evidence_output(tmp_path)
    output["data"][MIME_TYPE]["id"] = "T9"
    with pytest.raises(ValueError, match=r"ideas.ipynb holds evidence for 'T9'"):
        rows(tmp_path, output)


def test_finished_chapters(tmp_path: Path) -> None:
    good, bad = rows(tmp_path, evidence_output(tmp_path)), rows(tmp_path, evidence_output(tmp_path, measured=1.0))
    assert problems(good, []) == problems(good, ["ideas"]) == []
    assert problems(good, ["later"]) == ["claim T2 is open, but its chapter later is listed as finished"]
    assert problems(bad, []) == ["claim T1 is failed: refresh its chapter"]
    assert problems(good, ["never"]) == ["finished chapter never has no claims"]


def test_records_have_provenance(tmp_path: Path) -> None:
    path = notebook(tmp_path, evidence_output(tmp_path))
    assert read_records(path)[0].commit is None
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    record = read_records(path)[0]
    assert record.chapter == "ideas"
    assert record.commit
    assert head.stdout.startswith(record.commit)


def test_markdown(tmp_path: Path) -> None:
    found = rows(tmp_path, evidence_output(tmp_path))
    card = claim_markdown(found[0], {"ideas"})
    for piece in (
        "**T1** A toy · **settled** ★",
        "small $x$ is small",
        "{doc}`ideas`",
        r"size \|x\| of $x_1$",
        "≤ 1e-06",
        "0.5",
    ):
        assert piece in card
    assert "2 seeds, float64 on cpu; {evidence}`T1 ideas`; {py:obj}`lib.page.evidence.evaluate`;" in card
    assert "not written yet" in claim_markdown(found[1], {"ideas"})
    assert "| 2: {claim}`T1` {claim}`T2` | 1 | 1 | 0 |" in overview_markdown(found, {})
    assert "{ref}`T. Toys <claims-t>`" in overview_markdown(found, {"T": "Toys"})
    assert escape("Π* − |G|_n") == r"Π\* − \|G\|\_n"


def test_figures_and_panels_get_their_own_cells(tmp_path: Path) -> None:
    dot = {"alt": "One black dot in the middle.", "caption": "A dot.", "label": "fig-dot"}
    stream = {"output_type": "stream", "name": "stdout", "text": "hello"}
    second = image_output(**dot | {"label": "fig-dot-2"})
    outputs = [stream, image_output(**dot), caption_output(), second, caption_output(), evidence_output(tmp_path)]
    content = json.loads(notebook(tmp_path, *outputs, stream).read_text())
    cells = prepare_notebook(content, load_claims(tmp_path / "claims.yml"))[0]["cells"][1:]
    kinds = [[next(iter(o.get("data", o))) for o in c["outputs"]] for c in cells if c["cell_type"] == "code"]
    assert kinds == [["output_type"], ["image/png"], ["image/png"], ["text/html"], ["output_type"]]
    assert cells[1]["metadata"]["mystnb"]["figure"] == {"caption": "A dot.", "name": "fig-dot"}
    assert cells[1]["metadata"]["mystnb"]["image"] == {"alt": dot["alt"]}
    assert ["remove-input" in c["metadata"].get("tags", []) for c in cells[:3]] == [False, True, True]
    assert "id='evidence-t1'" in cells[3]["outputs"][0]["data"]["text/html"]
    assert "{claim}`T1`" in cells[4]["source"]
    content["cells"][1]["outputs"][5]["data"]["text/html"] = "forged"
    again = prepare_notebook(content, load_claims(tmp_path / "claims.yml"))[0]["cells"][1:]
    assert again[3]["outputs"] == cells[3]["outputs"]  # a panel is that of its record
    content["cells"][1]["outputs"][5] = evidence_output(tmp_path)
    assert content == json.loads((tmp_path / "ideas.ipynb").read_text())


def test_tables_are_numbered_and_definitions_have_anchors(tmp_path: Path) -> None:
    texts = {"role": "table", "label": "tab-gains", "caption": "Gains."}
    markdown = {"text/markdown": "| a |\n| --- |\n| 1 |", "text/plain": "a"}
    shown = {"output_type": "display_data", "metadata": {"symmetry": texts}, "data": markdown}
    content = json.loads(notebook(tmp_path, shown, evidence_output(tmp_path), shown).read_text())
    content["cells"][1]["metadata"]["tags"] = ["define"]
    content["cells"][1]["source"] = "def gain(x):\n    return x\n\nclass Law: pass\n"
    cells = prepare_notebook(content, load_claims(tmp_path / "claims.yml"))[0]["cells"][1:]
    assert cells[0]["source"] == '<span id="def-gain"></span><span id="def-Law"></span>'
    assert cells[2]["source"] == "~~~~{table} Gains.\n:name: tab-gains\n\n| a |\n| --- |\n| 1 |\n~~~~\n"
    assert "evidence-t1" in cells[3]["outputs"][0]["data"]["text/html"]
    assert [c["cell_type"] for c in cells] == ["markdown", "code", "markdown", "code", "markdown", "markdown"]
    assert function_link("#gain", "ideas") == "{definition}`gain ideas`"
    content["cells"][1]["metadata"]["tags"] = ["hide-cell"]  # a table of a hidden cell unfolds
    again = prepare_notebook(content, load_claims(tmp_path / "claims.yml"))[0]["cells"][1:]
    assert again[1]["source"] == f"::::{{dropdown}} The numbers, in a table\n{cells[2]['source']}::::\n"


@pytest.mark.parametrize("home", [None, "https://github.com/a/b"])
def test_commits_lead_to_where_they_can_be_read(home: str | None) -> None:
    config = SimpleNamespace(html_theme_options={"repository_url": home} if home else {})
    settings = SimpleNamespace(env=SimpleNamespace(config=config))
    role = CommitLink()
    role.text, role.inliner = "1a2b3c4", SimpleNamespace(document=SimpleNamespace(settings=settings))
    ((node,), messages) = role.run()
    assert (node.astext(), messages) == ("1a2b3c4", [])
    assert node.get("refuri") == (f"{home}/commit/1a2b3c4" if home else None)


def test_every_panel_of_the_book_says_its_scale_and_leads_to_its_runs() -> None:
    """And the tables that a claim names are read on its page."""
    notes, book = {}, ROOT / "book"
    for path in sorted(book.glob("*.ipynb")):
        code = "".join("".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code")
        for record in read_records(path):
            notes[record.content["id"]] = symmetry._note(book, record.content)
            assert all(name.partition("/")[2] in code for name in record.content["tables"])
    assert notes.keys() == load_claims().keys()
    assert all(note.startswith("Scale: ") for note in notes.values())
    assert "{doc}`/runs/digit_margins`" in notes["B1"]
    assert "{doc}" not in notes["H1"]
    assert sum("{doc}" in note for note in notes.values()) >= 10


def test_the_day_of_a_bound_is_that_of_its_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = {("H1", "a"): ("abc", "2026-01-01"), ("H1", "b"): ("def", "2026-03-01"), ("H2", "c"): ("0", "2026-09-09")}
    monkeypatch.setattr(symmetry, "_dates", lambda register: dates)
    note = "Scale: the page's own, computed above."
    assert symmetry._note(ROOT / "book", {"id": "H1"}) == note + " Bound: unchanged since 2026-03-01 ({commit}`def`)."
    monkeypatch.setattr(symmetry, "_dates", lambda register: {})
    assert symmetry._note(ROOT / "book", {"id": "H1"}) == note
    monkeypatch.setattr(symmetry, "_dates", lambda register: None)  # as in an archive or a shallow clone
    assert symmetry._note(ROOT / "book", {"id": "H1"}).endswith("the history is not here.")


def test_the_ledger_for_machines(tmp_path: Path) -> None:
    """It is JSON, complete, and cites each claim at its own address."""
    citation = {
        "title": "A book",
        "version": "2",
        "date-released": "2026-01-02",
        "authors": [{"name": "A"}, {"name": "B"}],
    }
    data = as_data(rows(tmp_path, evidence_output(tmp_path)), citation, "https://example.org/")
    first, second = json.loads(json.dumps(data))["claims"]
    assert (first["id"], first["state"], second["state"]) == ("T1", "settled", "open")
    assert first["checks"]["small"]["bound"] == 1e-6
    assert first["records"][0]["measured"]["small"]["worst"] == 1e-9
    assert (
        first["citation"]
        == "A and B, A book, version 2 (2026-01-02), claim T1: https://example.org/ledger.html#claim-t1"
    )


def build(folder: Path) -> subprocess.CompletedProcess:
    book = folder / "book"
    for part in ("book", "tests"):
        (folder / part).mkdir()
    for path in (folder / "claims.yml", *folder.glob("*.ipynb")):
        shutil.copy(path, book)
    (folder / "tests" / "test_ledger.py").write_text("def test_states() -> None:\n    assert 1 < 2\n")
    (book / "conf.py").write_text(CONFIGURATION)
    (book / "index.md").write_text("# Toy\n\n```{toctree}\nideas\nledger\n```\n")
    (book / "ledger.md").write_text("# Ledger\n\nSee {claim}`T1`.\n\n```{ledger}\n```\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "book", "_build"]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'book' / '_ext'}", "PATH": str(Path(shutil.which("git")).parent)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=environment)


def test_the_build_accepts_a_good_book(tmp_path: Path) -> None:
    register(tmp_path, REGISTER.replace("finished_chapters: []", "finished_chapters: [ideas]"))
    dot = {"alt": "One black dot in the middle.", "caption": "A dot.", "label": "fig-dot"}
    evidence = evidence_output(tmp_path)
    register(tmp_path, REGISTER.replace("finished_chapters: []", "finished_chapters: [ideas]"))
    drawn = image_output(**dot, width=384)
    drawn["data"]["text/csv"] = "panel,x,y\n1,0,0\n"
    notebook(tmp_path, drawn, caption_output(), evidence)
    result = build(tmp_path)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "_build" / "ideas.html").read_text()
    assert 'style="width: 384px;"' in page
    assert 'href="_figures/fig-dot.csv"' in page
    assert (tmp_path / "_build" / "_figures" / "fig-dot.csv").read_text() == "panel,x,y\n1,0,0\n"
    assert f'alt="{dot["alt"]}"' in page
    assert 'href="ledger.html#claim-t1"' in page
    assert "Figure." not in page
    assert 'href="_tests/test_ledger.html#test_states"' in page
    source = (tmp_path / "_build" / "_tests" / "test_ledger.html").read_text()
    assert '<span id="test_states"></span>' in source
    assert re.sub("<.*?>", "", source).count("assert 1 &lt; 2") == 1
    assert 'href="ideas.html#evidence-t1"' in (tmp_path / "_build" / "ledger.html").read_text()


@pytest.mark.parametrize(
    ("finished", "measured", "messages"),
    [
        ("ideas", None, ["claim T1 is open, but its chapter ideas is listed as finished"]),
        ("", 1.0, ["claim T1 is failed", "cell 2 shows an image without alt"]),
    ],
)
def test_the_build_refuses(tmp_path: Path, finished: str, measured: float | None, messages: list[str]) -> None:
    nameless = image_output(alt="", caption="c", label="fig-x")
    outputs = [] if measured is None else [evidence_output(tmp_path, measured), nameless]
    register(tmp_path, REGISTER.replace("finished_chapters: []", f"finished_chapters: [{finished}]"))
    notebook(tmp_path, *outputs)
    result = build(tmp_path)
    assert result.returncode != 0
    assert [message for message in messages if message not in result.stderr] == []


def test_the_book_keeps_its_promises() -> None:
    found = collect(sorted((ROOT / "book").glob("*.ipynb")), load_claims())
    assert problems(found, load_register().finished_chapters) == []
    assert [text for path in (ROOT / "book").glob("*.ipynb") for text in expectation_problems(path)] == []


def test_every_cited_test_exists() -> None:
    """The function behind a number is looked up by ``settle``, its test here."""
    for claim in load_claims().values():
        file, *names = claim.test.split("[")[0].split("::")
        text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        assert f"def {names[-1]}(" in text, f"claim {claim.id} cites {claim.test}, which does not exist"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("int", "library/functions.html#int"),
        ("None", "library/constants.html#None"),
        ("ValueError", "library/exceptions.html#ValueError"),
        ("fractions.Fraction", "library/fractions.html#fractions.Fraction"),
        ("torch._C.Generator", "stable/generated/torch.Generator.html"),
        ("Tensor", "stable/tensors.html#torch.Tensor"),
        ("numpy.ndarray", "reference/generated/numpy.ndarray.html"),
    ],
)
def test_external_names(name: str, page: str) -> None:
    assert str(external_page(name)).endswith(page)


@pytest.mark.parametrize("name", ["integer", "torch.Tensro", "fractions.Frac", "lib.nothing", "", "os."])
def test_unknown_external_names(name: str) -> None:
    assert external_page(name) is None


def test_the_readme_states_the_count_of_the_ledger() -> None:
    rows = collect(sorted(ledger.BOOK.glob("*.ipynb")), load_claims())
    assert count_line(rows) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_functions_link_back_to_their_claims() -> None:
    lines: list[str] = ["What it does."]
    app = type("App", (), {"srcdir": str(ledger.BOOK)})()
    link_back(app, "function", "lib.symmetry.haar.invariant_dimension", None, None, lines)
    assert lines[-2] == "Evidence for :claim:`H3`."
    untouched = ["Nothing to add."]
    link_back(app, "function", "lib.symmetry.haar.projection", None, None, untouched)
    assert untouched == ["Nothing to add."]
