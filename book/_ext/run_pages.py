"""The end of a run's page: the specifications that execute it at scale, and the stored tables that came of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

_FACTS = {"commit": "commit", "date": "date", "device": "device", "points": "points", "seconds": "seconds in all"}


def at_scale(run: str, root: Path) -> str:
    """Return the section *At scale* of a run (``runs/NAME``) as Markdown; it is empty where no sweep executes the run.

    ``root`` is the repository: specifications are read from its ``sweeps``, tables from its ``data/results``.
    """
    lines = []
    for path in sorted((root / "sweeps").glob("*.yml")):
        text = path.read_text(encoding="utf-8")
        if _notebook(text) == run:
            lines += [f"`sweeps/{path.name}` executes this page once per point:", ""]
            lines += ["```yaml", text.rstrip(), "```", ""]
    for path, facts, notebook in stored_tables(root / "data" / "results"):
        if notebook != run:
            continue
        lines += [f"`{path.relative_to(root)}` is the stored table:", "", "| | |", "|---|---|", *_rows(facts), ""]
    return "\n".join(["## At scale", "", *lines]) if lines else ""


def stored_tables(results: Path) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Yield the path and the provenance of every stored table, and the notebook that made it."""
    for path in sorted(results.glob("*/*.parquet")):
        facts = json.loads(pq.read_schema(path).metadata[b"PANDAS_ATTRS"])
        yield path, facts, _notebook(facts["specification"])


@cache
def _notebook(specification: str) -> str:
    return yaml.load(specification, yaml.CSafeLoader)["notebook"]


def _rows(facts: dict[str, Any]) -> Iterator[str]:
    if "converted_from" in facts:
        yield f"| converted from | {facts['converted_from']} |"
    for key, name in _FACTS.items():
        yield f"| {name} | {_text(facts[key])} |"
    yield f"| versions | {', '.join(f'{name} {_text(number)}' for name, number in facts['versions'].items())} |"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
