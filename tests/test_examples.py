"""The examples in docstrings: they run, they print what they say, and what most pages use has one."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.page.notebooks import find_notebooks
from tests.browser import ROOT

MODULES = sorted((ROOT / "lib").rglob("[a-z]*.py"))


def documented(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield name, docstring and line of everything with an example; read from the source, for wrappers hide it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ">>>" in (text := ast.get_docstring(node) or ""):
            yield node.name, text, node.lineno


EXAMPLES = [(path, *example) for path in MODULES for example in documented(path)]


@pytest.mark.parametrize(("path", "name", "text", "line"), EXAMPLES, ids=[f"{e[0].stem}.{e[1]}" for e in EXAMPLES])
def test_an_example_prints_what_it_says(path: Path, name: str, text: str, line: int) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    example = doctest.DocTestParser().get_doctest(text, dict(vars(module)), name, str(path), line)
    assert example.examples
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert not said, "".join(said)


def test_what_many_pages_import_has_an_example() -> None:
    pages: Counter[tuple[str, str]] = Counter()
    for path in find_notebooks([]):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        trees = [ast.parse(source) for source in sources if not source.startswith("%")]
        nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        pages.update({(node.module or "", alias.name) for node in nodes for alias in node.names})
    rooms = (
        "lib.device",
        "lib.symmetry",
        "lib.transport",
        "lib.implicit_bias.linear_networks",
        "lib.implicit_bias.margins",
    )
    asked = {key for key, count in pages.items() if count >= 5 and key[0].startswith(rooms)}
    found = {(".".join(path.relative_to(ROOT).with_suffix("").parts), name) for path, name, *_ in EXAMPLES}
    assert len(asked) > 10
    assert asked - found == set()
