"""Other seeds: the line under every chapter, and the figures in which a value left of 1 is a check that holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.page.claims import Check, load_claims
from lib.page.seed_tables import held_elsewhere
from tests.chapters import load


@pytest.fixture(scope="module")
def multiple() -> Callable[[Check, float], float]:
    return load("other_seeds").multiple


@pytest.mark.parametrize("relation", ["<=", "<", ">", ">=", "=="])
@pytest.mark.parametrize("bound", [2.0, -0.5, 0.0])
def test_multiples_are_below_one_exactly_where_a_check_holds(multiple: Callable, relation: str, bound: float) -> None:
    check = Check("x", relation, bound, "x")
    for value in (-3.0, -0.6, -0.1, 0.0, 1e-9, 1.0, 2.5, np.inf, -np.inf):
        assert (multiple(check, value) < 1) == check.holds(value)
    assert multiple(check, np.nan) == np.inf


def test_a_multiple_is_the_ratio_to_the_bound(multiple: Callable) -> None:
    assert multiple(Check("x", "<=", 4.0, "x"), 1.0) == 0.25
    assert multiple(Check("x", ">", 0.001, "x"), 0.01) == pytest.approx(0.1)
    assert multiple(Check("x", "<", -0.1, "x"), -0.4) == pytest.approx(0.25)


def test_the_line_counts_what_held_every_time(tmp_path: Path) -> None:
    bound = load_claims()["H9"].checks["residual_after"].bound
    frame = pd.DataFrame({f"H9.{name}": [0.0, 0.0] for name in load_claims()["H9"].checks})
    frame[[f"{name}.control" for name in frame]] = 1e9
    frame["H9.holds"] = 1
    frame[["expect: a half", "expect: a third"]] = [[1.0, 1.0], [0.0, 1.0]]
    (tmp_path / "ideas").mkdir()
    for worst, claims in ((bound / 5, "1 of 1 claims"), (3 * bound, "0 of 1 claims")):
        frame["H9.residual_after"] = [bound / 5, worst]
        frame.to_parquet(tmp_path / "ideas" / "seeds.parquet")
        line = f"**At 2 other seeds**: {claims} and 1 of 2 further expectations held every time"
        assert held_elsewhere("ideas", tmp_path).data == f"{line} (not always: a half, held at 1)."
    frame[["expect: a half"]].to_parquet(tmp_path / "ideas" / "seeds.parquet")
    only = "**At 2 other seeds**: 0 of 1 expectations held every time (not always: a half, held at 1)."
    assert held_elsewhere("ideas", tmp_path).data == only
