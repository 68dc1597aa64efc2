"""The classifier that tells data from other data, moved at random: level, power, ceiling, and its door."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from lib.transport.symmetry_test import Score, symmetry_test

HALF = [lambda v: v, lambda v: -v]
QUARTER = [lambda v, k=k: np.rot90(v, k, (1, 2)) for k in range(4)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_a_symmetric_law_is_found_out_as_often_as_chance_has_it() -> None:
    p = [symmetry_test(normal(150, 3, seed=s), HALF, seed=s).p_value() for s in range(300)]
    assert binom.cdf(sum(v <= 0.05 for v in p), 300, 0.05) < 1 - 1e-3
    assert 0.4 < np.mean(p) < 0.65  # p-values of a discrete law lean to one


def test_disjoint_orbits_reach_the_ceiling() -> None:
    x = normal(900, 1, 8, 8) * 0.01
    x = x[:, 0]
    x[:, 0, 3] += 5  # a mark that says where up is
    score = symmetry_test(x, QUARTER)
    assert score.ceiling == 0.875
    assert abs(score.accuracy - 0.875) < 4 * math.sqrt(0.875 * 0.125 / score.of)
    assert score.p_value(score.ceiling, "greater") > 1e-3
    assert score.p_value() < 1e-10


def test_a_sample_is_never_on_both_sides() -> None:
    """Copies would be told apart from themselves below chance; here nothing is below it."""
    x = normal(300, 4)
    assert np.mean([symmetry_test(x, HALF, seed=s).accuracy for s in range(40)]) > 0.48


def test_score() -> None:
    score = Score(80, 100, 0.75)
    low, high = score.interval(0.95)
    assert binom.sf(79, 100, low) == pytest.approx(0.025, rel=1e-6)
    assert binom.cdf(80, 100, high) == pytest.approx(0.025, rel=1e-6)
    assert score.p_value(0.75, "greater") == pytest.approx(binom.sf(79, 100, 0.75), rel=1e-9)
    assert symmetry_test(normal(99, 2), HALF) == symmetry_test(normal(99, 2), HALF), "one seed, one answer"


def test_labels_are_tested_with_the_samples() -> None:
    rng = np.random.default_rng(4)
    label = rng.integers(2, size=600)
    x = rng.standard_normal((600, 2)) + 4 * (2 * label[:, None] - 1)  # symmetric under −1, with its label not
    flip = [lambda v: v, lambda v: -v]
    assert symmetry_test(x, flip).p_value() > 1e-3
    assert symmetry_test(x, flip, label).accuracy > 0.65
    names = np.where(label > 0, "up", "down")
    assert symmetry_test(x, flip, names) == symmetry_test(x, flip, label)


def test_copies_are_left_out() -> None:
    """Four copies of each sample: those that were not moved give away where the others come from."""
    x = normal(200, 3)
    four = np.concatenate([x] * 4)
    assert symmetry_test(x, HALF).copies == 0
    scores = [symmetry_test(four, HALF, seed=s) for s in range(30)]
    assert {(score.copies, score.of) for score in scores} == {(600, 134)}
    assert np.mean([score.accuracy for score in scores]) < 0.53


@pytest.mark.parametrize("spread", [0.0, 1.0, 1000.0])
def test_columns_that_stay_in_large_units_are_told(spread: float) -> None:
    x = normal(1200, 2)
    x[:, 0] += 2  # the mirror of this column moves the law by four standard deviations
    x[:, 1] *= spread
    score = symmetry_test(x, [lambda v: v, lambda v: v * [-1, 1]])
    assert score.moved == pytest.approx(5 / (1 + spread**2), rel=0.1)
    assert score.blind == (score.accuracy < 0.6) == (spread == 1000)


def test_neither_unit_nor_origin_matters() -> None:
    x = normal(300, 3) + [1, 0, 0]
    score = symmetry_test(x, HALF)
    for scale in (2.0**-990, 2.0**-560, 2.0**560, 2.0**990):
        assert symmetry_test(scale * x, HALF) == score
    swap = [lambda v: v, lambda v: v[:, [1, 0, 2]]]
    far = x + [0, 0, 1e8]
    assert symmetry_test(far, swap).right == symmetry_test(x + [0, 0, 8.0], swap).right
    assert symmetry_test(far, swap).copies == 0


@pytest.mark.usefixtures("as_user")
def test_the_door() -> None:
    """One clear error for everything that would give a number without a meaning."""
    x, quarter = normal(1797, 8, 8), QUARTER
    same, hole, endless = quarter[0], x.copy(), x.copy()
    hole[5, 0, 0], endless[7, 1, 1] = math.nan, math.inf
    cases = [
        ((x[:59], quarter), "x must hold at least 60 samples.*got the shape .59, 8, 8."),
        ((x[:, 0, 0], quarter), "x must hold at least 60 samples, each of them an array"),
        ((hole, quarter), "x must be finite, but sample 5 is not"),
        ((endless, quarter), "x must be finite, but sample 7 is not"),
        ((x.astype(str), quarter), "x must hold real numbers"),
        ((x + 1j, quarter), "x must hold real numbers"),
        ((x, [same]), "moves must be two functions or more"),
        ((x, [same, 3]), "moves must be two functions or more"),
        ((x[:, :6], quarter), r"moves\[1\] does not act on samples of shape \(6, 8\): it makes \(8, 6\)"),
        ((x.reshape(-1, 64), quarter), r"moves\[0\] does not act on samples of shape \(64,\)"),
        ((x, [same, lambda v: v / 0 + "a"]), r"moves\[1\] does not act"),
        ((x, quarter[:3]), r"moves must form a group: moves\[1\] and then moves\[2\] is none of them"),
        ((x, quarter[1:]), "moves must form a group"),
        ((x, [same, lambda v: 0 * v]), r"moves must form a group: moves\[1\] has no inverse"),
        ((x, [same, lambda v: v + 0.01]), "is none of them"),
        ((x, [*quarter, quarter[2]]), r"moves\[2\] and moves\[4\] do the same"),
        ((np.ones((60, 4, 4)), quarter), r"moves\[0\] and moves\[1\] do the same"),
        ((x, quarter, np.ones(len(x), dtype=int)), "labels must be of two classes or more, at most 179 .*, got 1"),
        ((x, quarter, np.arange(len(x))), "labels must be of two classes or more, at most 179 .*, got 1797"),
        ((x, quarter, x[:, 0, 0]), "labels must be classes, integers or strings, got float64"),
        ((x, quarter, list(x[:, 0, 0])), "labels must be classes, integers or strings"),
        ((np.repeat(x[:50], 4, 0), quarter), "x must hold at least 60 different samples, got 50 and 150 copies"),
        ((x, quarter, np.ones(3)), "labels must be one label for each of 1797 samples"),
        ((x, quarter, None, -1), "seed must be at least 0"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            symmetry_test(*arguments)
    before = x.copy()
    symmetry_test(x, [same, lambda v: np.negative(v, out=v)])  # moves that work in place
    assert np.array_equal(x, before)


def test_tensors_and_integers_come_in() -> None:
    x = np.random.default_rng(1).integers(17, size=(200, 8, 8)) / 16
    whole = (16 * x).astype(int)
    assert symmetry_test(torch.tensor(x), QUARTER) == symmetry_test(x, QUARTER)
    assert symmetry_test(whole, QUARTER) == symmetry_test(16 * x, QUARTER)
