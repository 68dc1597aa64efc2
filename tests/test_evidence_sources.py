"""What stands behind a panel: the runs of its stored numbers, its scale, and the day of its bound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import evidence_sources
from evidence_sources import sources, tables_by_claim
from lib.page.claims import load_claims
from tests.browser import ROOT

PAGE = """CHAPTER = "ideas"
far = stored(f"{CHAPTER}/rates", "runs")
near = [1, 2]
---
def worst(rows, k=0):
    near = rows.max()
    return near
---
name = far.max()
for name in near:
    small = name + 1
values = [far for far in near]
settle("T1", gap=(small, values), of=worst)
---
settle("T2", gap=(worst(far), near), of=worst)
rows = []
rows.append(far["n"])
for name in ("T3", "T4"):
    settle(name, gap=(rows, near), of=worst)
---
rows = near
every = [stored(f"ideas/{run}") for run in ("a", "b")]
table = {}
table["a"] = every
settle("T5", gap=(rows, near), of=worst)
settle("T6", gap=(table, near), of=worst)
"""


def test_the_tables_on_which_a_claim_rests() -> None:
    cells = [{"cell_type": "code", "source": text} for text in PAGE.split("---\n")]
    assert tables_by_claim(cells) == {
        "T1": set(),
        "T2": {"ideas/rates"},
        "T3": {"ideas/rates"},
        "T4": {"ideas/rates"},
        "T5": set(),
        "T6": {"ideas/*"},
    }


def test_every_panel_of_the_book_says_its_scale_and_leads_to_its_runs() -> None:
    notes = {}
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        notes |= sources(json.loads(path.read_text(encoding="utf-8")), ROOT)
    assert notes.keys() == load_claims().keys()
    assert all(note.startswith("Scale: ") for note in notes.values())
    runs = {claim: re.findall(r"\{doc\}`/([\w/]+)`", note) for claim, note in notes.items()}
    assert runs["B1"] == ["runs/digit_margins"]
    assert runs["H1"] == []
    assert sum(bool(found) for found in runs.values()) >= 10
    assert [run for found in runs.values() for run in found if not (ROOT / "book" / f"{run}.ipynb").is_file()] == []


def test_the_day_of_a_bound_is_that_of_its_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = {("H1", "a"): ("abc", "2026-01-01"), ("H1", "b"): ("def", "2026-03-01"), ("H2", "c"): ("0", "2026-09-09")}
    monkeypatch.setattr(evidence_sources, "_dates", lambda register: dates)
    cell = {"cell_type": "code", "source": 'settle("H1", a=(1, 2), of=print)'}
    note = sources({"cells": [cell]}, ROOT)["H1"]
    assert note == "Scale: the page's own, computed above. Bound: unchanged since 2026-03-01 ({commit}`def`)."
    monkeypatch.setattr(evidence_sources, "_dates", lambda register: {})  # no history, as in an archive
    assert sources({"cells": [cell]}, Path(ROOT))["H1"] == "Scale: the page's own, computed above."
