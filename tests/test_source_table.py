"""The page that says how each source stands."""

from __future__ import annotations

import sys

import pytest
import yaml
from pydantic import ValidationError

from lib import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import source_table

REGISTER = ROOT / "book" / "claims.yml"
RESULTS = ROOT / "data" / "results"
SOURCES = source_table.read_sources(REGISTER)


def test_every_claim_of_a_source_has_a_row() -> None:
    assert source_table.problems(SOURCES, REGISTER) == []
    assert [source.key for source in SOURCES] == ["SPG", "SC", "IB1", "IB2", "MF", "ENS", "DYN"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"claims": ["G99"], "how": "stated"}, "SPG: there is no claim G99"),
        ({"claims": ["G1"], "how": "stated"}, "SPG: no row names G7"),
        ({"claims": [], "how": "stated"}, "if and only if it is not missing"),
        ({"claims": ["G1"], "how": "missing"}, "if and only if it is not missing"),
        ({"claims": ["G1"], "how": "smaller"}, "how much smaller"),
    ],
)
def test_problems_are_named(row: dict, message: str) -> None:
    item = source_table.Item(what="a theorem", **row)
    source = source_table.Source(key="SPG", title="GANs", paper="birrell2022structure", rows=[item])
    assert any(message in problem for problem in source_table.problems([source], REGISTER))


def test_a_price_is_computed_from_stored_seconds() -> None:
    import pandas as pd

    price = next(row.price for row in SOURCES[0].rows if row.price).model_copy()
    frame = pd.read_parquet(RESULTS / f"{price.table}.parquet")
    hours = price.times * frame.loc[frame["size"] == 28, "seconds"].sum() / 3600
    assert f"about {round(hours)} hours" in price.text(RESULTS)
    price.where = {"size": 99}
    with pytest.raises(ValueError, match="no row"):
        price.text(RESULTS)


def test_every_row_is_in_the_table() -> None:
    for source in SOURCES:
        text = source_table.source_markdown(source, RESULTS)
        assert all(row.what[1:] in text for row in source.rows)
        assert text.count("\n|") == len(source.rows) + 2
        assert f"{{cite:t}}`{source.paper}`" in text


def test_a_misspelt_field_is_refused(tmp_path) -> None:
    content = yaml.safe_load(REGISTER.read_text())
    content["sources"][0]["rows"][0]["hwo"] = "stated"
    (tmp_path / "claims.yml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValidationError, match="hwo"):
        source_table.read_sources(tmp_path / "claims.yml")
