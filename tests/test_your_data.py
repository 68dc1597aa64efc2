"""Chapter *Your data*: what its page defines, at other seeds, and the files that it reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("your_data", seed=7, seeds=1)


def test_the_laws_are_seen_at_other_seeds(page: SimpleNamespace) -> None:
    found = pd.concat([page.both(s) for s in (70_000, 70_001)])
    assert len(found) == 16
    assert found["seen"].mean() >= 0.8
    assert found["symmetric"].mean() <= 0.25


def test_by_hand_has_the_level(page: SimpleNamespace) -> None:
    rng = np.random.default_rng(3)
    p = [page.by_hand(rng.random((20, 4, 4)), rng, 19) for _ in range(300)]
    assert 15 <= sum(v <= 0.1 for v in p) <= 48


def test_files_are_read(page: SimpleNamespace, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.random((30, 5, 5)), rng.integers(2, size=30)
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "b.npz", data=x, target=y, other=1 - y)
    frame = pd.DataFrame(x[:, 0], columns=list("abcde")).assign(y=y)
    frame.to_csv(tmp_path / "c.csv", index=False)
    frame.to_parquet(tmp_path / "d.parquet")
    (tmp_path / "folder").mkdir()
    for k in range(3):
        Image.fromarray((255 * x[k]).astype(np.uint8)).save(tmp_path / "folder" / f"{k}.png")
    assert np.array_equal(page.read(tmp_path / "a.npy")[0], x)
    assert np.array_equal(page.read(tmp_path / "b.npz")[1], y)
    assert np.array_equal(page.read(tmp_path / "b.npz", "other")[1], 1 - y)
    for name in ("c.csv", "d.parquet"):
        data, target = page.read(tmp_path / name, "y")
        assert np.allclose(data, x[:, 0])
        assert np.array_equal(target, y)
    assert page.read(tmp_path / "folder")[0].shape == (3, 5, 5)
    colours = rng.integers(256, size=(5, 4, 3), dtype=np.uint8)
    for k in range(2):  # a grey one beside a colour one of the same size
        (tmp_path / "colour").mkdir(exist_ok=True)
        Image.fromarray(colours if k else colours[..., 0]).save(tmp_path / "colour" / f"{k}.PNG")
    found = page.read(tmp_path / "colour")[0]
    assert found.shape == (2, 3, 5, 4)
    assert np.array_equal(found[1], colours.transpose(2, 0, 1))
    Image.fromarray(colours[:3]).save(tmp_path / "colour" / "small.png")
    (tmp_path / "e.txt").touch()
    for name, target, message in (
        ("colour", "", "all of one size"),
        ("e.txt", "", "data must be npy"),
        ("f.npy", "", "there is no file"),
        ("b.npz", "labels", "'labels' is not in"),
        ("c.csv", "labels", "'labels' is not in"),
    ):
        with pytest.raises(ValueError, match=message):
            page.read(tmp_path / name, target)
