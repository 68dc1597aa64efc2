"""The classifier that tells data from other data, moved at random: level, ceiling, labels, copies, and its door."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from lib.reader.scale import Score, told_apart


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_a_symmetric_law_is_found_out_as_often_as_chance_has_it() -> None:
    p = [told_apart(normal(150, 3, seed=s), [1], lambda g, v: -v, seed=s).p_value() for s in range(300)]
    assert binom.cdf(sum(v <= 0.05 for v in p), 300, 0.05) < 1 - 1e-3
    assert 0.4 < np.mean(p) < 0.65  # p-values of a discrete law lean to one


def test_disjoint_orbits_reach_the_ceiling() -> None:
    x = normal(900, 8, 8) * 0.01
    x[:, 0, 3] += 5  # a mark that says where up is
    score = told_apart(x, "C4", "pixels")
    assert score.ceiling == 0.875
    assert abs(score.accuracy - 0.875) < 4 * math.sqrt(0.875 * 0.125 / score.of)
    assert score.p_value(score.ceiling, "greater") > 1e-3
    assert score.p_value() < 1e-10


def test_a_sample_is_never_on_both_sides() -> None:
    """Copies would be told apart from themselves below chance; here nothing is below it."""
    x = normal(300, 4)
    assert np.mean([told_apart(x, [1], lambda g, v: -v, seed=s).accuracy for s in range(40)]) > 0.48


def test_score() -> None:
    score = Score(80, 100, 0.75)
    low, high = score.interval(0.95)
    assert binom.sf(79, 100, low) == pytest.approx(0.025, rel=1e-6)
    assert binom.cdf(80, 100, high) == pytest.approx(0.025, rel=1e-6)
    assert score.p_value(0.75, "greater") == pytest.approx(binom.sf(79, 100, 0.75), rel=1e-9)
    assert told_apart(normal(99, 2), "C2", "rotate") == told_apart(normal(99, 2), "C2", "rotate")


def test_labels_are_tested_with_the_samples() -> None:
    rng = np.random.default_rng(4)
    label = rng.integers(2, size=600)
    x = rng.standard_normal((600, 2)) + 4 * (2 * label[:, None] - 1)  # symmetric under −1, with its label not
    assert told_apart(x, "C2", "rotate").p_value() > 1e-3
    assert told_apart(x, "C2", "rotate", label).accuracy > 0.65
    names = np.where(label > 0, "up", "down")
    assert told_apart(x, "C2", "rotate", names) == told_apart(x, "C2", "rotate", label)
    assert told_apart(x, "C2", "rotate", x.sum(1)).accuracy > 0.65  # numbers, which do not move
    assert told_apart(x, "C2", "rotate", x[:, :1], lambda g, v: -v if g is not None else v).p_value() > 1e-3


def test_copies_are_left_out() -> None:
    """Four copies of each sample: those that were not moved give away where the others come from."""
    four = np.concatenate([normal(200, 3)] * 4)
    scores = [told_apart(four, [1], lambda g, v: -v, seed=s) for s in range(30)]
    assert {score.of for score in scores} == {134}
    assert np.mean([score.accuracy for score in scores]) < 0.53


def test_neither_unit_nor_origin_matters() -> None:
    x = normal(300, 3) + [1, 0, 0]
    score = told_apart(x, "S3", "permute 1")
    for scale in (2.0**-990, 2.0**-560, 2.0**560, 2.0**990):
        assert told_apart(scale * x, "S3", "permute 1") == score
    assert told_apart(x + 1e6, "S3", "permute 1").right == pytest.approx(score.right, abs=1)
    pictures = normal(200, 5, 5)
    assert told_apart(1e6 * pictures, "D4", "pixels") == told_apart(pictures, "D4", "pixels")


def test_tensors_and_integers_come_in() -> None:
    x = np.random.default_rng(1).integers(17, size=(200, 8, 8)) / 16
    whole = (16 * x).astype(int)
    assert told_apart(torch.tensor(x), "C4", "pixels") == told_apart(x, "C4", "pixels")
    assert told_apart(whole, "C4", "pixels") == told_apart(16 * x, "C4", "pixels")


@pytest.mark.parametrize(
    ("group", "action", "message"),
    [
        ([1, 2], lambda g, v: np.roll(v, g, 1) if isinstance(v, np.ndarray) else v.roll(g, 1), "must form a group"),
        ([0], lambda g, v: v, "must differ"),
        ([1, 1], lambda g, v: -v, "must differ"),
        ([1], lambda g, v: 0 * v, "be undone"),
        ([1], lambda g, v: v + 0.01, "must form a group"),
    ],
)
def test_moves_that_are_no_group_are_refused(group: list, action: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        told_apart(normal(80, 4), group, action)


def test_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 60 different samples, got 50 and 150 copies"):
        told_apart(np.repeat(normal(50, 3), 4, 0), "S3", "permute 1")
