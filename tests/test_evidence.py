"""The tester, tested: a wrong number and a control that passes must both raise."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lib import ROOT
from lib.page.claims import load_claims, load_register
from lib.page.evidence import MIME_TYPE, ClaimFailed, Evidence, evaluate, settle
from lib.page.records import record_holds
from lib.page.seed_tables import read_other_seeds

REGISTER = """
finished_chapters: [ideas]
claims:
  - id: T1
    source: "a paper, Lemma 1"
    title: "A toy"
    statement: "small is small"
    evidence: "residuals"
    beyond_sources: false
    chapter: ideas
    test: tests/test_evidence.py::test_holds
    checks:
      small: {relation: "<=", bound: 1e-6, label: "residual"}
      count: {relation: "==", bound: 15, label: "dimension"}
  - {id: T2, source: s, title: t, statement: u, evidence: e, chapter: ideas, test: 'tests/t.py::y', checks: {}}
"""
META = {"seeds": 3, "of": evaluate}


def pairs(measured: dict, control: dict) -> dict[str, tuple]:
    """As settle takes them: for every check what was measured and its control."""
    return {name: (measured[name], control[name]) for name in measured}


def judged(claim_id: str, measured: dict, control: dict, **how: object) -> Evidence:
    return evaluate(claim_id, pairs(measured, control), **how)


GOOD = {"small": [1e-9, 3e-9], "count": 15}
BROKEN = {"small": 0.5, "count": [14, 16]}


@pytest.fixture
def register(tmp_path: Path) -> Path:
    path = tmp_path / "claims.yml"
    path.write_text(REGISTER)
    return path


@pytest.fixture
def claims(register: Path) -> dict:
    return load_claims(register)


def one_check(relation: str, bound: float, tmp_path: Path) -> dict:
    row = "{id: R, source: s, title: t, statement: u, evidence: e, chapter: c, test: 'tests/t.py::y', checks: {x: "
    row += f"{{relation: '{relation}', bound: {bound}, label: x}}}}}}"
    path = tmp_path / "one.yml"
    path.write_text(f"finished_chapters: []\nclaims:\n  - {row}\n")
    return load_claims(path)


def test_register(register: Path, claims: dict) -> None:
    assert list(claims) == ["T1", "T2"]
    assert claims["T1"].checks["small"].bound == 1e-6  # YAML reads this notation as text
    assert not claims["T2"].beyond_sources
    assert load_register(register).finished_chapters == ["ideas"]


def test_holds(claims: dict) -> None:
    assert settle("T1", **pairs(GOOD, BROKEN), claims=claims, **META) is None
    assert judged("T1", GOOD, BROKEN, claims=claims, **META).holds


@pytest.mark.parametrize("wrong", [{"small": [1e-9, 2e-6]}, {"count": 14}, {"small": float("nan")}])
def test_a_wrong_measurement_raises(claims: dict, wrong: dict) -> None:
    with pytest.raises(ClaimFailed, match=r"MISSES"):
        settle("T1", **pairs(GOOD | wrong, BROKEN), claims=claims, **META)


@pytest.mark.parametrize("harmless", [{"small": [0.5, 1e-7]}, {"count": [14, 15]}])
def test_a_control_that_passes_raises(claims: dict, harmless: dict) -> None:
    with pytest.raises(ClaimFailed, match=r"PASSES"):
        settle("T1", **pairs(GOOD, BROKEN | harmless), claims=claims, **META)


def test_failure_shows_the_numbers(claims: dict) -> None:
    with pytest.raises(ClaimFailed, match=r"worst of 2\) 0.25 MISSES <= 1e-06; control \(closest\) 0.5 fails"):
        settle("T1", **pairs(GOOD | {"small": [0.25, 0.1]}, BROKEN), claims=claims, **META)


@pytest.mark.parametrize("side", ["measured", "control"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"small": []}, "empty"),
        ({"small": "much"}, "real numbers"),
        ({"small": 1j}, "real numbers"),
        ({"small": [[1.0], [1.0, 2.0]]}, "one length in every row"),
        ({"small": {4: 1e-9, 8: 1e-9}}, "a dict: hand over its values"),
        ({"small": pd.DataFrame(np.full((2, 3), 1e-9))}, "a DataFrame: hand over its values"),
    ],
)
def test_bad_values(claims: dict, side: str, change: dict, message: str) -> None:
    given = {"measured": dict(GOOD), "control": dict(BROKEN)}
    given[side] |= change
    with pytest.raises(ValueError, match=rf"{side}.*{message}"):
        judged("T1", **given, claims=claims, **META)


def test_a_nan_control_shows_nothing(claims: dict) -> None:
    with pytest.raises(ClaimFailed, match="was not computed"):
        settle("T1", **pairs(GOOD, BROKEN | {"small": [0.5, float("nan")]}), claims=claims, **META)


def test_infinite_control_fails_the_bound(claims: dict) -> None:
    assert judged("T1", GOOD, BROKEN | {"small": float("inf")}, claims=claims, **META).holds


@pytest.mark.parametrize("claim_id", ["T9", "T2", ""])
def test_claims_that_cannot_be_settled(claims: dict, claim_id: str) -> None:
    with pytest.raises(ValueError, match=r"must be one of|must be given its checks \[\]"):
        judged(claim_id, GOOD, BROKEN, claims=claims, **META)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"of": "lib.page.evidence.nothing"}, "function"),
        ({"of": torch.ones(2)}, "of must name the function"),
        ({"of": None}, "of must name the function"),
    ],
)
def test_bad_provenance(claims: dict, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged("T1", GOOD, BROKEN, claims=claims, **(META | change))


@pytest.mark.parametrize(
    ("relation", "inside", "edge_holds", "outside"),
    [("<=", 1, True, 3), ("<", 1, False, 3), (">=", 3, True, 1), (">", 3, False, 1), ("==", 2, True, 3)],
)
def test_every_relation(tmp_path: Path, relation: str, inside: int, edge_holds: bool, outside: int) -> None:
    claims = one_check(relation, 2, tmp_path)
    assert judged("R", {"x": inside}, {"x": outside}, claims=claims, **META).holds
    assert judged("R", {"x": 2}, {"x": outside}, claims=claims, **META).holds == edge_holds
    assert not judged("R", {"x": [inside, outside]}, {"x": outside}, claims=claims, **META).holds
    assert not judged("R", {"x": inside}, {"x": [outside, inside]}, claims=claims, **META).holds
    assert not judged("R", {"x": float("nan")}, {"x": outside}, claims=claims, **META).holds
    record = judged("R", {"x": [inside, outside]}, {"x": [outside, inside]}, claims=claims, **META).content()
    assert record["measured"]["x"]["worst"] == outside
    assert record["control"]["x"]["worst"] == inside


@pytest.mark.parametrize("make", [list, np.array, lambda v: torch.tensor(v, requires_grad=True), tuple])
def test_kinds_of_numbers(claims: dict, make: type) -> None:
    record = judged("T1", GOOD | {"small": make([1e-9, 3.14159e-9])}, BROKEN, claims=claims, **META).content()
    assert record["measured"]["small"] == {"worst": 3.14e-9, "median": 2.07e-9, "spread": 2.14e-9, "count": 2}


def test_record_and_text(claims: dict) -> None:
    meta = META | {"of": (evaluate, torch.ones(1)), "seeds": range(3), "tables": ["ideas/rates"]}
    first = judged("T1", GOOD, BROKEN, claims=claims, **meta)
    second = judged("T1", GOOD | {"small": 5e-10}, BROKEN | {"small": 7.0}, claims=claims, **META)
    assert first.text() == second.text() == "T1 settled: small, count hold; the broken controls fail"
    record = json.loads(json.dumps(first.content(), allow_nan=False))
    expected = {
        "id": "T1",
        "holds": True,
        "tables": ["ideas/rates"],
        "dtype": "float32",
        "device": "cpu",
        "seeds": [0, 1, 2],
    }
    assert expected.items() <= record.items()
    assert record["bound"] == {"small": 1e-6, "count": 15}
    assert record["function"] == "lib.page.evidence.evaluate"
    bad = judged("T1", GOOD | {"small": float("nan")}, BROKEN, claims=claims, **META).content()
    assert json.loads(json.dumps(bad, allow_nan=False))["holds"] is False


def test_display_bundle(claims: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    shown = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    settle("T1", **pairs(GOOD, BROKEN), claims=claims, **META)
    assert set(shown[0]) == {"text/plain", "text/html", MIME_TYPE}
    assert shown[0][MIME_TYPE]["holds"] is True
    assert "class='evidence evidence-settled'" in shown[0]["text/html"]
    assert capsys.readouterr().out == ""


def test_a_reader_sees_a_red_panel_and_goes_on(claims: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    with pytest.raises(ClaimFailed):  # the tests are strict
        settle("T1", **pairs(GOOD | {"count": 14}, BROKEN), claims=claims, **META)
    monkeypatch.setenv("SYMMETRY_STRICT", "0")
    settle("T1", **pairs(GOOD | {"count": 14}, BROKEN), claims=claims, **META)
    settle("T1", **pairs(GOOD, BROKEN | {"count": float("nan")}), claims=claims, **META)
    assert [bundle[MIME_TYPE]["holds"] for bundle in shown] == [False, False]
    assert "evidence-failed" in shown[0]["text/html"]
    assert shown[0]["text/plain"] == "T1 not settled: see count"
    monkeypatch.undo()
    with pytest.raises(ClaimFailed):  # and so is a program: it has no panel to show
        settle("T1", **pairs(GOOD | {"count": 14}, BROKEN), claims=claims, **META)


def test_stored_numbers_are_compared_anew(claims: dict) -> None:
    """The flag of a record is not believed: a number that misses its bound, or a control that meets it, is found."""
    good = judged("T1", GOOD, BROKEN, claims=claims, **META).content()
    assert record_holds(claims["T1"], good)
    for side, check, value in (
        ("measured", "small", 1.01e-6),
        ("measured", "count", 15.000001),
        ("measured", "small", "nan"),
        ("control", "small", 9e-7),
        ("control", "count", "nan"),
    ):
        forged = copy.deepcopy(good)
        forged[side][check]["worst"] = value
        assert not record_holds(claims["T1"], forged)
    for change in ({"holds": False}, {"measured": {}}, {"bound": {"small": 1.0, "count": 15}}):
        assert not record_holds(claims["T1"], good | change)


def test_rounding_never_changes_a_verdict(tmp_path: Path) -> None:
    claims = one_check("<", 4, tmp_path)
    record = judged("R", {"x": 3.9996}, {"x": 4.0004}, claims=claims, **META).content()
    assert record_holds(claims["R"], record)
    assert record["measured"]["x"]["worst"] == 3.9996
    assert record["control"]["x"]["worst"] == 4
    assert not judged("R", {"x": 4.0004}, {"x": 5}, claims=claims, **META).content()["holds"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: T2", "id: T1", "T1: the id occurs twice"),
        ('title: "A toy"', "title: 3", r"claims.T1.title\n  Input should be a valid string"),
        (
            "beyond_sources: false",
            "beyond_sources: maybe",
            r"claims.T1.beyond_sources\n  Input should be a valid boolean",
        ),
        ("bound: 15", "bound: much", r"claims.T1.checks.count.bound\n  Input should be a valid number"),
        ("bound: 15", "bound: .nan", r"claims.T1.checks.count\n  Value error, the bound must be finite"),
        ('"=="', '"~"', r"claims.T1.checks.count.relation\n  Input should be '<='"),
        (', label: "dimension"', "", r"claims.T1.checks.count.label\n  Field required"),
        (
            'label: "dimension"',
            'label: "dimension of $E"',
            r"claims.T1.checks.count\n .* formulas between dollars",
        ),
        ("chapter: ideas\n", "chapter: ideas\n    notes: x\n", r"claims.T1.notes\n"),
        ("finished_chapters: [ideas]", "", "finished_chapters"),
    ],
)
def test_bad_registers(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(REGISTER.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load_claims(path)


def test_missing_register(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no register"):
        load_claims(tmp_path / "none.yml")


def test_pairs_and_what_is_measured(claims: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form: a pair per check; seeds, dtype and device are read from what is given, not typed."""
    shown = []
    monkeypatch.setattr("lib.page.evidence.display_data", shown.append)
    index = pd.MultiIndex.from_product([range(5), ["a", "b"]], names=["seed", "case"])
    residuals = pd.Series(1e-9, index=index)
    x = torch.ones(3, dtype=torch.float32)
    settle("T1", small=(residuals, 0.5), count=(15, [14, 16]), of=(evaluate, x), claims=claims)
    settle("T1", small=(residuals, 0.5), count=(15, [14, 16]), of=evaluate, claims=claims)
    linear = torch.nn.Linear(2, 2)
    settle("T1", small=(torch.full((4,), 1e-9), 0.5), count=(15, 14), of=(linear, evaluate), claims=claims)
    settle("T1", small=(torch.full((4,), 1e-9), 0.5), count=(15, 14), of=evaluate, seeds=4, claims=claims)
    records = [bundle[MIME_TYPE] for bundle in shown]
    assert [record["seeds"] for record in records] == [5, 5, None, 4]
    assert [record["dtype"] for record in records] == ["float32", "float64", "float32", "float32"]
    assert {record["device"] for record in records} == {"cpu"}
    assert all(record["holds"] and record["tables"] == [] for record in records)
    assert "4 values, float32 on cpu" in shown[2]["text/html"]
    meta = {"of": (evaluate, torch.ones(1, device="meta"), np.ones(2, dtype=np.int64)), "claims": claims}
    assert judged("T1", GOOD, BROKEN, **meta).content()["device"] == "cpu, meta"


def test_pairs_are_pairs(claims: dict) -> None:
    with pytest.raises(ValueError, match=r"small must be a pair \(measured, control\), got list"):
        settle("T1", small=[1e-9, 0.5], count=(15, 14), of=evaluate, claims=claims)
    with pytest.raises(ValueError, match=r"checks \['small', 'count'\], got \['small'\]"):
        settle("T1", small=(1e-9, 0.5), of=evaluate, claims=claims)


def test_functions_of_the_page_are_named_as_such(claims: dict) -> None:
    def three_routes() -> None: ...

    three_routes.__module__, three_routes.__qualname__ = "__main__", "three_routes"
    assert judged("T1", GOOD, BROKEN, of=three_routes, claims=claims).content()["function"] == "#three_routes"


def test_a_check_without_room_says_why_and_no_other_does() -> None:
    """Half of the bound is free at ten other seeds, or the register has a reason why it cannot be."""
    claims = load_claims()
    others = read_other_seeds(ROOT / "data" / "results", claims)
    assert set(others) == set(claims)
    checks = [(name, check) for name, claim in claims.items() for check in claim.checks.values()]
    assert [f"{name}.{c.name}" for name, c in checks if others[name].room(c) == bool(c.tight)] == []
