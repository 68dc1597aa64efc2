"""The classifier that tells data from other data, moved at random: level, power, ceiling, and its door."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
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


def test_labels_that_move_are_seen_with_labels_only() -> None:
    x = normal(900, 2)
    label = (x[:, 0] > 0).astype(int)
    assert symmetry_test(x, HALF).p_value() > 1e-3
    assert symmetry_test(x, HALF, labels=label).p_value(side="greater") < 1e-6


def test_score() -> None:
    score = Score(80, 100, 0.75)
    low, high = score.interval(0.95)
    assert binom.sf(79, 100, low) == pytest.approx(0.025, rel=1e-6)
    assert binom.cdf(80, 100, high) == pytest.approx(0.025, rel=1e-6)
    assert score.p_value(0.75, "greater") == pytest.approx(binom.sf(79, 100, 0.75), rel=1e-9)
    assert symmetry_test(normal(99, 2), HALF) == symmetry_test(normal(99, 2), HALF), "one seed, one answer"


X = normal(90, 4, 4)
HOLE = X.copy()
HOLE[17, 1, 1] = math.nan
PAD = partial(np.pad, pad_width=((0, 0), (0, 0), (1, 0)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:12], QUARTER), "x must hold at least 60 samples"),
        ((HOLE, QUARTER), "x must be finite, but sample 17"),
        ((X.astype(str), QUARTER), "x must hold real numbers"),
        ((X[:, :, :3], QUARTER), r"moves\[1\] does not act on samples of shape \(4, 3\)"),
        ((X, QUARTER[:2]), "moves must form a group"),
        ((X, [QUARTER[0], lambda v: PAD(v)[:, :, :-1]]), "moves must form a group"),
        ((X, [*QUARTER, QUARTER[0]]), r"moves must differ, but moves\[0\] and moves\[4\]"),
        ((X, QUARTER[:1]), "moves must be two functions or more"),
        ((X, [QUARTER[0], 3]), "moves must be two functions or more"),
        ((X, QUARTER, np.zeros(90)), "labels must be of two classes or more"),
        ((X, QUARTER, np.zeros(9)), "labels must be one for each of 90 samples"),
        ((X, QUARTER, None, -1), "seed must be at least 0"),
    ],
)
def test_the_door(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        symmetry_test(*arguments)
