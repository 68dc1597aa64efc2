"""Capsules in this Python: as they are all lines hold, a break turns one red, and what else can be tried does not."""

from __future__ import annotations

import gzip
import importlib.util
import re
import subprocess
import sys
import zlib
from base64 import urlsafe_b64decode
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import capsules
from lib.page.claims import load_claims
from tests.browser import ROOT

BOOK = ROOT / "book"
ALL = capsules.read_capsules(BOOK)
VARIANTS = [(name, variant) for name, capsule in ALL.items() for variant in capsule.variants]


def slim() -> type:
    """The page's own class of fractions."""
    spec = importlib.util.spec_from_file_location("slim", BOOK / "_ext" / "live" / "fractions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Fraction


SLIM = slim()


@pytest.mark.parametrize("name", ALL)
def test_as_it_is_all_lines_hold(name: str) -> None:
    result = capsules.run(ALL[name].source)
    assert result.error == ""
    assert result.printed
    assert [row for row in result.rows if not row[4]] == []


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=[f"{name}-{v.why}" for name, v in VARIANTS])
def test_a_break_turns_a_line_red_and_a_try_does_not(name: str, variant: capsules.Variant) -> None:
    assert variant.source != ALL[name].source
    result = capsules.run(variant.source)
    assert result.error == ""
    red = [row for row in result.rows if not row[4]]
    assert bool(red) == (variant.kind == "break")


@pytest.mark.parametrize("name", ALL)
def test_a_capsule_is_short_plain_and_has_three_breaks(name: str) -> None:
    capsule = ALL[name]
    assert 25 <= sum(bool(line.strip()) for line in capsule.source.splitlines()) <= 45
    assert sum(variant.kind == "break" for variant in capsule.variants) >= 3
    assert capsule.claim in load_claims()
    imported = set(re.findall(r"^(?:from|import) (\w+)", capsule.source, re.MULTILINE))
    assert imported <= {"fractions", "functools", "itertools", "math", "collections"}


def test_there_are_enough_and_every_line_of_every_panel_can_fail() -> None:
    assert len(ALL) >= 14
    never = []
    for name, capsule in ALL.items():
        red = {row[0] for variant in capsule.variants for row in capsules.run(variant.source).rows if not row[4]}
        never += [(name, row[0]) for row in capsules.run(capsule.source).rows if row[0] not in red]
    assert never == NEVER_RED


# Lines that no marked variant turns red: they hold with fewer hypotheses, or say that something else can be seen.
NEVER_RED = [
    ("adjoint", "E_SP f − E_P Sf"),
    ("ensemble_mean", "change of one member under shifts"),
    ("orbits_only", "seen by all, of the collapsed generator"),
    ("ring_mmd", "with the group − plain"),
    ("ties", "k² × probability of two answers, predicted separately"),
    ("two_units", "risk averaged − risk augmented"),
    ("unseen_pose", "value at the unseen pose, where +1 is right"),
]


@pytest.mark.parametrize(
    ("source", "error", "line"),
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero", 2),
        ("def f():\n    return [][2]\n\n\nf()\n", "IndexError: list index out of range", 2),
        ("x = 1\ny = (\n", "SyntaxError: '(' was never closed", 2),
        ("x = 1\n", "NameError: the code makes no panel = [(label, value, relation, bound), ...]", 0),
    ],
)
def test_an_error_is_named_with_its_line(source: str, error: str, line: int) -> None:
    result = capsules.run(source)
    assert (result.error, result.line, result.rows) == (error, line, [])


def test_a_panel_shows_what_the_numbers_are() -> None:
    panel = 'panel = [("a", Fraction(1, 3), "<", 0.5), ("b", Fraction(10**40, 3**80), ">=", 1e3), ("c", 2, ">", 2)]'
    rows = capsules.run(f"from fractions import Fraction\n{panel}\n").rows
    assert rows == [
        ["a", "1/3", "<", "0.5", True],
        ["b", "≈ 67.7", ">=", "1e+03", False],
        ["c", "2", ">", "2", False],
    ]


numbers = st.fractions(min_value=-9, max_value=9, max_denominator=12)


@given(numbers, numbers, st.integers(-3, 3))
def test_the_pages_fractions_are_the_librarys(a: Fraction, b: Fraction, n: int) -> None:
    x, y = SLIM(a.numerator, a.denominator), SLIM(b.numerator, b.denominator)
    pairs = [(x + y, a + b), (x - y, a - b), (x * y, a * b), (n + x, n + a), (n - x, n - a), (x + n, a + n), (-x, -a)]
    pairs += [(abs(x), abs(a)), (x**2, a**2), (SLIM(f"{a}"), a), (SLIM(0.375), Fraction(0.375))]
    if b:
        pairs += [(x / y, a / b), (n / y, n / b), (y**-2, b**-2), (SLIM(x, y), Fraction(a, b))]
    for mine, real in pairs:
        assert (str(mine), bool(mine)) == (str(real), bool(real))
        assert mine.denominator > 1 or hash(mine) == hash(real)
    assert [x < y, x <= y, x == y, x > y, x >= y, x == n] == [a < b, a <= b, a == b, a > b, a >= b, a == n]
    assert [float(x), x + 0.5, 0.5 * x, x < 0.5, round(x, 2)] == [
        float(a),
        a + 0.5,
        0.5 * a,
        a < 0.5,
        round(float(a), 2),
    ]


def test_the_pages_fractions_refuse_what_the_librarys_do() -> None:
    for make in (SLIM, Fraction):
        with pytest.raises(ZeroDivisionError, match=r"Fraction\(1, 0\)"):
            make(1, 0)
        with pytest.raises(TypeError):
            make(1) + "1"
        assert make(1) != "1"


def test_a_link_holds_the_code() -> None:
    for capsule in ALL.values():
        packed = capsules.pack(capsule.source)
        assert re.fullmatch(r"[\w-]+", packed)
        assert zlib.decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), -15).decode() == capsule.source
        assert len(packed) < 2500  # an address that mail and chat leave in one piece


def test_the_interpreter_is_light_and_says_whose_it_is() -> None:
    text = capsules.engine()
    assert len(gzip.compress(text.encode())) < 500_000
    assert text.startswith("/*! Brython 3.15.0")
    assert "Pierre Quentel" in (BOOK / "_static" / "brython-licence.txt").read_text()


def test_every_capsule_stands_under_its_theorem_and_runs_alone() -> None:
    pages = [path.read_text() for path in BOOK.glob("*.ipynb")]
    for name in ALL:
        assert sum(page.count(f"{{capsule}} {name}\\n") for page in pages) == 1, name
    program = [sys.executable, "-I", str(BOOK / "capsules" / "adjoint.py")]
    assert "E_SP f" in subprocess.run(program, capture_output=True, text=True, check=True).stdout


def test_a_badge_says_how_a_claim_stands() -> None:
    assert "H2: settled" in capsules.badge("H2", "settled")
    assert capsules.badge("H2", "settled") != capsules.badge("H2", "failed").replace("failed", "settled")


def test_what_readers_report_has_what_the_pages_show() -> None:
    shown = {"attempts": "claim what who link red", "replications": "claim who date machine commit outcome link"}
    for file, keys in shown.items():
        for row in yaml.safe_load((BOOK / f"{file}.yml").read_text()):
            assert set(row) == set(keys.split())
            assert row["claim"] in load_claims()
    for form in ("broken_theorem", "replication"):
        fields = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text())["body"]
        assert {"id", "attributes"} <= set(fields[0])
    script = Path(BOOK / "_ext" / "live" / "capsules.js").read_text()
    assert "broken_theorem.yml" in script
