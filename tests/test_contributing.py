"""For those who carry on: what the guide names is there, the workflow builds, and questions come with their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from architecture import direct, levels, modules, picture, rooms
from lib.page.claims import load_claims
from lib.page.ledger import read_records
from tests.test_architecture import CORE, MODULES, TOPICS, imported_rooms, name

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_files_that_the_guide_names_exist() -> None:
    named = set(re.findall(r"\b((?:book|lib|tests|sweeps|data)/[\w./]+\w)", GUIDE))
    known = {path for path in named if "NAME" not in path and "CHAPTER" not in path}
    assert len(known) > 15
    assert [path for path in known if not (ROOT / path).exists()] == []
    for path in named - known:  # a name of one's own: there is such a file of somebody else's
        assert any(ROOT.glob(re.sub("NAME|CHAPTER", "*", path))), path


def test_the_targets_and_functions_that_the_guide_names_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", GUIDE)) <= targets
    sources = "\n".join(path.read_text() for path in MODULES)
    for function in ("check_parameters", "settle", "held_elsewhere", "record", "stored", "show"):
        assert f"`{function}" in GUIDE or f".{function}" in GUIDE
        assert f"def {function}(" in sources


def test_the_book_is_published_by_the_command_that_builds_it() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())
    build, deploy = workflow["jobs"]["build"]["steps"], workflow["jobs"]["deploy"]
    assert any(step.get("run", "").startswith("make book") for step in build)
    assert next(step for step in build if "checkout" in step.get("uses", ""))["with"]["fetch-depth"] == 0
    assert build[-1]["with"]["path"] == "book/_build/html"
    assert deploy["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}


def test_forms_and_hooks_say_what_they_must() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert path.stem == "config" or {"name", "description", "body"} <= form.keys()
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff", "ruff-format", "notebooks"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])


def questions() -> list[str]:
    text = (ROOT / "book" / "open_questions.md").read_text()
    return [part for part in re.split(r"\n\n", text) if part.startswith("**")]


@pytest.mark.parametrize("question", questions(), ids=lambda text: text[2:40])
def test_a_question_names_the_number_that_raised_it(question: str) -> None:
    assert re.match(r"\*\*[^*]+\?\*\* ", question)
    numbers = re.findall(r"\{measured\}`(\w+) (\w+)", question)
    assert numbers
    assert "{numref}`fig-" in question
    claims = load_claims()
    for claim, check in numbers:
        records = read_records(ROOT / "book" / f"{claims[claim].chapter}.ipynb")
        assert check in next(record.content for record in records if record.content["id"] == claim)["measured"]


def test_the_picture_is_that_of_the_imports() -> None:
    graph = rooms(modules(ROOT / "lib"))
    for path in MODULES:
        room = name(path).split("/")[0]
        if room != "__init__":
            assert imported_rooms(path) - {room} <= graph[room], path
    floor = levels(graph)
    assert [floor[room] for room in CORE[3:]] == sorted(floor[room] for room in CORE[3:])
    assert not any(graph[room] & {*TOPICS} for room in TOPICS)
    assert all(floor[other] < floor[room] for room, below in graph.items() for other in below)
    drawn = picture(graph, dict.fromkeys(graph, 2), {"symmetry": "api_symmetry.html"})
    assert drawn.count("<rect") == len(graph)
    assert drawn.count("<path") == sum(map(len, direct(graph).values()))
    assert drawn.count("<a ") == 1


def test_a_picture_of_rooms(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    for room in ("low", "high"):
        (package / room).mkdir(parents=True)
    (package / "tool.py").write_text("import os\n")
    (package / "low" / "a.py").write_text("from lib.tool import x\n")
    (package / "high" / "b.py").write_text("from lib.low import a\nimport lib.tool\nfrom lib.high.c import y\n")
    (package / "high" / "c.py").write_text("")
    found = modules(package)
    assert found == {"high.b": {"low.a", "tool", "high.c"}, "high.c": set(), "low.a": {"tool"}, "tool": set()}
    graph = rooms(found)
    assert graph == {"high": {"low", "tool"}, "low": {"tool"}, "tool": set()}
    assert levels(graph) == {"tool": 0, "low": 1, "high": 2}
    assert direct(graph) == {"high": {"low"}, "low": {"tool"}, "tool": set()}
    with pytest.raises(ValueError, match=r"in a cycle.*'a'.*'b'"):
        levels({"a": {"b"}, "b": {"a"}})
