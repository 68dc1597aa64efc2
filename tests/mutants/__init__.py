"""Plausible wrong implementations, one or more for every claim: its checks have to notice them.

A :class:`Mutant` changes a piece of text on a claim's page, or a name of ``lib``. :func:`measure` executes those cells
of the page which the claim's ``settle`` cell needs, with the change, and returns what the panel would have said.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

from lib.page.claims import load_claims
from lib.page.evidence import Evidence, evaluate
from lib.page.notebooks import BOOK
from lib.page.results import stored
from tests.mutants.cells import Names


@dataclass(frozen=True)
class Mutant:
    """One wrong implementation.

    ``page`` maps pieces of the page's code, each of which has to stand there exactly once, to what replaces them;
    ``lib`` maps dotted names (``"lib.room.module.name"``, also of a class's attribute) to a function that makes the
    wrong object from the right one. ``checks`` are those of the claim that have to miss their bound; ``parameters`` are
    those of the page, where they are not the default ones (also smaller ones than a reader may take); ``slow`` says
    that it takes more than some seconds. ``run`` maps pieces of the code of the run ``runs/of_run``: it is executed
    with ``run_parameters``, and the page reads what it records instead of the stored table.
    """

    claim: str
    what: str
    checks: tuple[str, ...]
    page: Mapping[str, str] = field(default_factory=dict)
    lib: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False
    of_run: str = ""
    run: Mapping[str, str] = field(default_factory=dict)
    run_parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.claim}: {self.what}"


@cache
def _cells(chapter: str) -> tuple[tuple[str, bool], ...]:
    """Return the code of a chapter's cells, and which is the cell of its parameters."""
    cells = json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    return tuple(("".join(c["source"]), "parameters" in c["metadata"].get("tags", ())) for c in code)


@cache
def needed_cells(chapter: str, claim: str) -> tuple[int, ...]:
    """Return the numbers of the cells that the panel of a claim rests on, the panel's own at the end."""
    cells = _cells(chapter)
    last = next(n for n, (source, _) in enumerate(cells) if "settle(" in source and f'"{claim}"' in source)
    names = [Names(source) for source, _ in cells[: last + 1]]
    late: set[str] = set()  # what functions take that are defined above it
    while True:
        kept, wanted = [last], names[last].takes | late
        for number in reversed(range(last)):
            if names[number].sets & wanted or names[number].changes & wanted or cells[number][1]:
                kept.append(number)
                wanted = (wanted - (names[number].sets - names[number].changes)) | names[number].takes
        wanted &= {name for number in range(last) for name in names[number].sets}
        if wanted <= late:
            return tuple(sorted(kept))
        late |= wanted


class _Settled(Exception):
    """The panel was reached."""


def measure(mutant: Mutant) -> Evidence:
    """Return the evidence for a claim, as its page computes it with a mutant's change."""
    claim = load_claims()[mutant.claim]
    cells = _cells(claim.chapter)
    numbers = needed_cells(claim.chapter, mutant.claim)
    sources = _changed({number: cells[number][0] for number in numbers}, mutant.page)
    tables = _recorded(mutant) if mutant.of_run else {}
    found: list[Evidence] = []

    def settle(name: str, *, of: Any, seeds: Any = None, tables: Any = (), **checks: tuple[Any, Any]) -> None:
        if name == mutant.claim:
            found.append(evaluate(name, checks, of=_named(of), seeds=seeds))
            raise _Settled

    def read(name: str, table: str = "", **folder: Any) -> Any:
        return tables[table] if name.endswith(f"/{mutant.of_run}") and tables else stored(name, table, **folder)

    with ExitStack() as stack:
        for name, wrong in mutant.lib.items():
            stack.enter_context(_replaced(name, wrong))
        stack.enter_context(patch("lib.page.evidence.settle", settle))
        stack.enter_context(patch("lib.page.results.stored", read))
        stack.enter_context(patch("lib.page.parameters.check_parameters", lambda *_, **__: None))
        stack.enter_context(patch("lib.page.expectations.expect", lambda *_: None))
        with suppress(_Settled):
            _execute(claim.chapter, sources, mutant.parameters)
    return found[0]


def names_of(mutant: Mutant) -> tuple[set[str], set[str]]:
    """Return the names that the cells behind a panel use, with a mutant's change, and those that they define."""
    chapter = load_claims()[mutant.claim].chapter
    sources = {number: _cells(chapter)[number][0] for number in needed_cells(chapter, mutant.claim)}
    names = [Names(source) for source in _changed(sources, mutant.page).values()]
    return set().union(*(n.takes for n in names)), set().union(*(n.sets for n in names))


def _changed(sources: dict[int, str], pieces: Mapping[str, str]) -> dict[int, str]:
    """Return the code of cells with pieces replaced, each of which has to stand there exactly once."""
    for old, new in pieces.items():
        places = [number for number in sources if old in sources[number]]
        assert sum(source.count(old) for source in sources.values()) == 1, f"{old!r} stands in cells {places}"
        sources[places[0]] = sources[places[0]].replace(old, new)
    return sources


def _execute(notebook: str, sources: Mapping[int, str], parameters: Mapping[str, Any]) -> None:
    """Execute cells of a notebook in a namespace of their own, some parameters set after their cell."""
    space: dict[str, Any] = {"__name__": notebook, "display": lambda *_: None}  # as in IPython
    for number, source in sources.items():
        exec(compile(source, f"{notebook}, code cell {number + 1}", "exec", dont_inherit=True), space)
        if _cells(notebook)[number][1]:
            space |= parameters


def _recorded(mutant: Mutant) -> dict[str, Any]:
    """Return the tables that a mutant's run records, with its parameters beside them as in a stored table."""
    name, tables = f"runs/{mutant.of_run}", {}
    sources = {number: source for number, (source, _) in enumerate(_cells(name))}
    with patch("lib.page.results.record", tables.__setitem__), ExitStack() as stack:
        for place, wrong in mutant.lib.items():
            stack.enter_context(_replaced(place, wrong))
        _execute(name, _changed(sources, mutant.run), mutant.run_parameters)
    for table in tables.values():
        table["seed"] = 0
        table.attrs = {"commit": "mutated", "date": ""}
    return tables


def _replaced(name: str, wrong: Callable[[Any], Any]) -> Any:
    """Return a context in which a name of ``lib``, also one of a class, means what ``wrong`` makes of it."""
    owner, _, attribute = name.rpartition(".")
    try:
        thing: Any = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, part = owner.rpartition(".")
        thing = getattr(importlib.import_module(module), part)
    return patch.object(thing, attribute, wrong(getattr(thing, attribute)))


def _named(of: Any) -> Any:
    """Return ``of`` with the page's own functions by name: they belong to no module here."""
    parts = of if isinstance(of, tuple) else (of,)
    return tuple("lib.page.evidence.evaluate" if hasattr(p, "__qualname__") else p for p in parts)


def mutants() -> Iterator[Mutant]:
    """Yield all mutants in the order of the register."""
    for section in "HGSBAEMNOXTU":
        yield from importlib.import_module(f"tests.mutants.{section.lower()}").MUTANTS
