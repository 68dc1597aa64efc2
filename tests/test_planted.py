"""What the report says it would have seen, the classifier's scale and the level of all subgroups, on known truth.

The cases were written, and committed, before any of them was run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.stats import binom, norm

from lib.reader.report import symmetry_report
from lib.reader.scale import told_apart

Rng = np.random.Generator
RUNS = 10


def blobs(rng: Rng, n: int, side: int = 12) -> np.ndarray:
    """Two round spots anywhere in each picture."""
    grid = np.arange(side) - (side - 1) / 2
    at = rng.normal(0, 2, (2, 2, n, 1, 1))
    spots = [np.exp(-((grid[None, None] - x) ** 2 + (grid[None, :, None] - y) ** 2) / 4) for x, y in at]
    return sum(spots) + 0.1 * rng.normal(size=(n, side, side))


def fields(rng: Rng, n: int, side: int = 16) -> np.ndarray:
    return np.stack([gaussian_filter(v, 1.5, mode="wrap") for v in rng.normal(size=(n, side, side))])


def ramp(side: int) -> np.ndarray:
    t = np.linspace(-1, 1, side)
    return (2 * t + t[:, None]) / 3


def spread(x: np.ndarray) -> float:
    return float(np.diff(np.quantile(x, [0.159, 0.841]))[0]) / 2


def smear(x: np.ndarray, share: float) -> np.ndarray:
    return (1 - share) * x[:, 1:-1, 1:-1] + share * (x[:, 1:-1, :-2] + x[:, 1:-1, 2:]) / 2


TILT = ("tilt", lambda x, t: x + t * spread(x) * ramp(x.shape[-1]))
SHIFT = ("shift", lambda x, d: x[:, round(2 * d) :, round(2 * d) :])
TEXTURE = ("texture", smear)
COLUMN = ("shift", lambda x, t: x + t * spread(x) * np.eye(x.shape[1])[0])
TREND = ("tilt", lambda x, t: x + t * spread(x) * np.linspace(-1, 1, x.shape[1]))
WIDER = ("stretch", lambda x, t: x * (1 + t * np.eye(x.shape[1])[0]))
CLOUD = ("shift", lambda x, t: x + t * spread(x) * np.array([np.cos(0.4), np.sin(0.4), 0]))
LONGER = ("stretch", lambda x, t: x * np.array([1, 1 + t, 1]))  # another direction: the law is round
# Name: a symmetric law, how many samples, group, action; and an asymmetry, planted by code of its own.
CASES: dict[str, tuple[Callable[[Rng, int], Any], int, str, str, tuple[str, Callable]]] = {
    "spots, D4, tilt": (blobs, 200, "D4", "pixels", TILT),
    "spots, C4, shift": (blobs, 200, "C4", "pixels", SHIFT),
    "fields, D4, texture": (fields, 150, "D4", "pixels", TEXTURE),
    "fields, C4, tilt": (fields, 150, "C4", "pixels", TILT),
    "columns, S4, shift": (lambda r, n: r.normal(size=(n, 4)), 250, "S4", "permute 1", COLUMN),
    "columns, S4, trend": (lambda r, n: r.exponential(size=(n, 4)), 250, "S4", "permute 1", TREND),
    "columns, C5, wider": (lambda r, n: r.normal(size=(n, 5)), 250, "C5", "permute 1", WIDER),
    "tails, S9, shift": (lambda r, n: r.standard_t(2, size=(n, 9)), 250, "S9", "permute 1", COLUMN),
    "clouds, SO3, shift": (lambda r, n: r.normal(size=(n, 6, 3)), 120, "SO3", "rotate -1", CLOUD),
    "clouds, O3, longer": (lambda r, n: r.normal(size=(n, 6, 3)), 120, "O3", "rotate -1", LONGER),
}


@pytest.mark.parametrize("name", CASES)
def test_what_would_have_been_seen_is_seen_in_other_samples(name: str) -> None:
    """Of ten fresh samples with an asymmetry of the size named at least half show it; of a quarter of it, not all."""
    law, n, group, action, (kind, plant) = CASES[name]
    planted = symmetry_report(law(np.random.default_rng(900), n), group, action, seed=900).planted.set_index("kind")
    size = float(planted.loc[kind, "smallest"])
    assert size == size

    def seen(size: float, seed: int) -> bool:
        x = plant(law(np.random.default_rng(seed), n), size)
        return symmetry_report(x, group, action, trials=0, draws=99, seed=seed).verdict == "asymmetric"

    assert sum(seen(size, 910 + k) for k in range(RUNS)) >= 0.5 * RUNS
    if kind != "shift" or action != "pixels":  # of pictures the smallest shift is half a pixel
        assert sum(seen(size / 4, 950 + k) for k in range(RUNS)) <= 0.8 * RUNS


def test_kinds_that_are_none_are_left_out() -> None:
    rng = np.random.default_rng(1)
    for x, group, action, wanted in (
        (fields(rng, 40), "C2", "pixels", ["tilt", "shift"]),
        (fields(rng, 40), "Z", "shift", ["tilt"]),
        (rng.normal(size=(60, 2)), "C2", "rotate", ["shift"]),
        (rng.normal(size=(60, 2)), [1], lambda g, t: -t, []),
    ):
        assert list(symmetry_report(x, group, action, draws=19, trials=2).planted["kind"]) == wanted


def right(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[:, 2:4, 9:11] += 6  # a mark that says where up is
    return x


# Name: a law, group, action, and the accuracy of the best classifier.
TELLING: dict[str, tuple[Callable[[Rng], Any], Any, Any, float]] = {
    "normal, one to the right": (
        lambda r: r.normal(size=(1500, 2)) + [1, 0],
        "C2",
        "rotate",
        0.5 + (2 * norm.cdf(1) - 1) / 4,
    ),
    "normal, far to the right": (lambda r: r.normal(size=(1500, 2)) + [4, 0], "C2", "rotate", 0.75),
    "two columns of three, one in large units": (
        lambda r: np.c_[r.normal(size=(1500, 2)) + [2, 0], 1000 * r.normal(size=1500)],
        [1],
        lambda g, t: t[:, [1, 0, 2]],
        0.5 + (2 * norm.cdf(sqrt(2)) - 1) / 4,
    ),
    "marked pictures": (lambda r: right(0.1 * blobs(r, 900)), "C4", "pixels", 0.875),
    "marked pictures, mirrors too": (lambda r: right(0.1 * blobs(r, 900)), "D4", "pixels", 0.9375),
    "spots": (lambda r: blobs(r, 900), "D4", "pixels", 0.5),
    "round points": (lambda r: r.normal(size=(900, 3)), "SO3", "rotate", 0.5),
    "points on one side": (lambda r: 0.1 * r.normal(size=(900, 3)) + [1, 0, 0], "SO3", "rotate", 0.99),
}


@pytest.mark.parametrize("name", TELLING)
def test_the_classifier_is_near_the_best_and_not_above(name: str) -> None:
    law, group, action, best = TELLING[name]
    score = told_apart(law(np.random.default_rng(700)), group, action, seed=700)
    noise = 4 * sqrt(0.25 / score.of)
    assert best - 0.05 - noise < score.accuracy < best + noise
    assert symmetry_report(law(np.random.default_rng(700)), group, action, seed=700, trials=0).score == score


def lying(rng: Rng, n: int) -> np.ndarray:
    """Spots that are longer from left to right: mirrors and half turns keep the law."""
    return np.stack([gaussian_filter(v, (0.5, 1.5)) for v in rng.normal(size=(n, 8, 8))])


def test_true_subgroups_are_rejected_together_as_often_as_the_level_says() -> None:
    """Laws that some subgroups keep and others do not, 100 data sets: any true subgroup is rejected in 5 %."""
    wrong = seen = 0
    for k in range(100):
        rng = np.random.default_rng(5000 + k)
        if k % 2:
            x, group, action = lying(rng, 30), "D4", "pixels"
            true = {
                "turn by 180°",
                "mirror",
                "mirror and turn by 180°",
                "turn by 180°, mirror, mirror and turn by 180°",
            }
        else:
            x, group, action = rng.normal(size=(40, 3)) + [1, 0, 0], "S3", "permute 1"
            true = {"(0, 2, 1)"}
        found = symmetry_report(x, group, action, draws=99, trials=0, seed=k).subgroups.set_index("subgroup")
        assert true <= set(found.index)
        wrong += bool((found.loc[list(true), "verdict"] == "asymmetric").any())
        seen += found.loc["all", "verdict"] == "asymmetric"
    assert wrong <= binom.ppf(0.999, 100, 0.05)
    assert seen >= 75  # or there would be little to reject below
