"""Chapter *Your model*: what its page defines, at other seeds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lib.reader.audit import audit
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("your_model", seed=7, seeds=2)


@pytest.mark.parametrize("seed", [50_000, 50_001])
def test_faults_are_found_at_other_seeds(page: SimpleNamespace, seed: int) -> None:
    rows = page.judged(seed, True)
    assert len(rows) == 10
    assert rows["right"].all(), [r.summary() for r in rows["report"][~rows["right"]]]
    assert rows["alarm"].all()
    assert rows["by hand"].mean() < 0.95


@pytest.mark.parametrize("seed", [50_000, 50_001])
def test_mended_networks_are_sound_at_other_seeds(page: SimpleNamespace, seed: int) -> None:
    rows = page.judged(seed, False)
    assert not rows["alarm"].any(), [r.summary() for r in rows["report"][rows["alarm"]]]


def test_by_hand_and_by_the_audit_modules_have_the_same_errors(page: SimpleNamespace) -> None:
    torch.manual_seed(3)
    net, x = page.planar(torch.nn.AvgPool2d(1, stride=2)).double(), torch.randn(5, 1, 8, 8, dtype=torch.float64)
    by_hand = page.profile(net, x, "C4", "pixels")
    said = audit(net, "C4", "pixels", "still", x)
    assert next(name for name, error in by_hand if error > 1e-8) == said.place == "2"


def test_a_file_with_a_model(page: SimpleNamespace, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import torch\n\ndef build():\n    return torch.nn.Identity(), torch.rand(3, 1, 4, 4)\n")
    model, inputs = page.built(str(file))
    assert audit(model, "C4", "pixels", "pixels", inputs).sound
    file.write_text("x = 1\n")
    with pytest.raises(ValueError, match="must have a function build"):
        page.built(str(file))
    with pytest.raises(ValueError, match="must be a Python file"):
        page.built(str(tmp_path / "none.py"))


def test_chance(page: SimpleNamespace) -> None:
    """The mean square of the distance of normal maps is 1 − dim E/dim."""
    torch.manual_seed(4)
    squares = [page.distance_by_hand(torch.randn(3, 16), 4) ** 2 for _ in range(3000)]
    assert sum(squares) / 3000 == pytest.approx(3 / 4, abs=0.005)
