"""The figure of ten other seeds: a value stands left of 1 exactly where its check holds."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

from lib.page import seed_tables
from lib.page.claims import Check, load_claims
from lib.page.seed_tables import _share, seeds_figure


@pytest.mark.parametrize("relation", ["<=", "<", ">", ">=", "=="])
@pytest.mark.parametrize("bound", [2.0, -0.5, 0.0])
def test_shares_are_below_one_exactly_where_a_check_holds(relation: str, bound: float) -> None:
    check = Check("x", relation, bound, "x")
    for value in (-3.0, -0.6, -0.1, 0.0, 1e-9, 1.0, 2.5, np.inf, -np.inf):
        assert (_share(check, value) < 1) == check.holds(value)
    assert _share(check, np.nan) == np.inf


def test_a_share_is_the_ratio_to_the_bound() -> None:
    assert _share(Check("x", "<=", 4.0, "x"), 1.0) == 0.25
    assert _share(Check("x", ">", 0.001, "x"), 0.01) == pytest.approx(0.1)
    assert _share(Check("x", "<", -0.1, "x"), -0.4) == pytest.approx(0.25)


def test_the_figure_shows_every_check_at_every_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list = []
    monkeypatch.setattr(seed_tables, "show", lambda fig, **texts: shown.append((fig, texts)))
    bound = load_claims()["H9"].checks["residual_after"].bound
    frame = pd.DataFrame({"H9.residual_after": [bound / 5, 3 * bound], "H9.residual_after.control": [1.0, 0.0]})
    frame[["expect: a half", "expect: a third"]] = [[1.0, 1.0], [0.0, 1.0]]
    frame.attrs = {"commit": "0123456789", "date": "2026-01-01"}
    (tmp_path / "two_ideas").mkdir()
    frame.to_parquet(tmp_path / "two_ideas" / "seeds.parquet")
    with matplotlib.rc_context():
        seeds_figure("two_ideas", tmp_path)
    ((fig, texts),) = shown
    measured, control = (line.get_xdata() for line in fig.axes[0].lines[:2])
    assert list(measured) == pytest.approx([0.2, 3.0])
    assert list(control) == [1e3, 1e-3]
    assert texts["label"] == "fig-seeds-two-ideas"
    assert "Of 2 further expectations 1 held" in " ".join(texts["caption"].split())
    frame[["expect: a half"]].to_parquet(tmp_path / "two_ideas" / "seeds.parquet")
    with pytest.raises(ValueError, match="chapter must have claims of the register"):
        seeds_figure("two_ideas", tmp_path)
