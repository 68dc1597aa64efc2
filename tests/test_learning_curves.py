"""Differences over seeds, and equivalent factors of curves with known shifts."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lib.transport.learning_curves import (
    Curve,
    bootstrap,
    equivalent_factor,
    paired_interval,
)
from tests.chapters import load

page = load("what_a_symmetry_saves")
factor_by_level, median_gap = page.factor_by_level, page.median_gap
SIZES = torch.tensor([10, 30, 100, 300, 1000])


def power_law(factor: float, slope: float = 0.5, noise: float = 0.0, seeds: int = 8, seed: int = 0) -> Curve:
    rng = torch.Generator().manual_seed(seed)
    wiggle = (noise * torch.randn(len(SIZES), seeds, generator=rng, dtype=torch.float64)).exp()
    return Curve(SIZES, (factor * SIZES.double()[:, None]) ** -slope * wiggle)


@given(st.floats(1.2, 30.0), st.floats(0.2, 2.0))
def test_factor_of_shifted_power_laws(factor: float, slope: float) -> None:
    saving = equivalent_factor(power_law(1.0, slope), power_law(factor, slope), resamples=10)
    assert saving.covered
    assert all(math.isclose(v, factor, rel_tol=1e-9) for v in (saving.value, saving.low, saving.high))
    back = equivalent_factor(power_law(factor, slope), power_law(1.0, slope), resamples=10)
    assert math.isclose(back.value * saving.value, 1, rel_tol=1e-9)


def test_one_common_level_is_covered() -> None:
    """The worst of the smart scores is the best of the plain ones: the factor there is the largest possible."""
    amounts = torch.tensor([10.0, 20.0])
    plain, smart = (Curve(amounts, torch.tensor([[b, b], [a, a]], dtype=torch.float64)) for a, b in ((2, 4), (1, 2)))
    saving = equivalent_factor(plain, smart, resamples=10)
    assert saving.covered
    assert saving.value == pytest.approx(2)
    assert equivalent_factor(smart, plain, resamples=10).value == pytest.approx(1 / 2)


def test_interval_covers_the_factor() -> None:
    inside = 0
    for seed in range(40):
        plain, smart = power_law(1.0, noise=0.15, seed=2 * seed), power_law(4.0, noise=0.15, seed=2 * seed + 1)
        saving = equivalent_factor(plain, smart, resamples=2000)
        assert saving.low <= saving.value <= saving.high
        inside += saving.low <= 4 <= saving.high
    assert inside >= 35


def test_interval_of_a_mean_is_as_long_as_students() -> None:
    x = torch.randn(8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ours, students = bootstrap(lambda draws: x[draws].mean(-1), 8, 20000), paired_interval(x, torch.zeros(8))
    assert math.isclose(ours.value, students.value)
    assert math.isclose(ours.high - ours.low, students.high - students.low, rel_tol=0.1)
    plain = x[torch.randint(8, (20000, 8), generator=torch.Generator().manual_seed(0))].mean(-1)
    short = plain.quantile(0.975) - plain.quantile(0.025)
    assert float(short) < 0.85 * (students.high - students.low)


def test_nothing_is_extrapolated() -> None:
    smart = power_law(1e3, 1.0)
    saving = equivalent_factor(power_law(1.0, 1.0), smart, resamples=10)
    assert not saving.covered
    assert math.isclose(saving.value, 100)  # at least 1000 / 10
    assert math.isclose(equivalent_factor(smart, power_law(1.0, 1.0), resamples=10).value, 0.01)
    flat = Curve(SIZES, torch.full((5, 8), 7.0))  # never as good as the first point of the other curve
    for saving in (equivalent_factor(power_law(1.0), flat), equivalent_factor(power_law(1.0, noise=0.1), flat)):
        assert not saving.covered
        assert all(math.isclose(v, 0.01) for v in (saving.low, saving.value, saving.high))
    assert all(map(math.isnan, factor_by_level(power_law(1.0, 1.0), smart, [0.1, 1e-4])))


def test_a_curve_that_rises_again_counts_at_its_best() -> None:
    scores = torch.tensor([4.0, 2.0, 3.0, 1.0, 5.0])[:, None].expand(-1, 3)
    curve = Curve(SIZES, scores)
    best = curve.best(torch.arange(3)[None])
    assert best.tolist() == [[4.0, 2.0, 2.0, 1.0, 1.0]]
    reached = curve.reach(best, torch.tensor([[4.0, 2.0, math.sqrt(2.0), 1.0]], dtype=torch.float64)).exp()
    expected = torch.tensor([[10.0, 30.0, math.sqrt(100 * 300.0), 300.0]], dtype=torch.float64)
    torch.testing.assert_close(reached, expected)


def test_factor_by_level() -> None:
    scores = power_law(1.0, 1.0).scores
    bent = Curve(SIZES, torch.where(SIZES[:, None] > 100, scores / 3, scores))  # saves threefold at the end only
    levels = [float(scores[1, 0]), float(scores[4, 0]), 10.0]
    found = factor_by_level(Curve(SIZES, scores), bent, levels)
    assert math.isclose(found[0], 1.0)
    assert 2.9 < found[1] < 4
    assert math.isnan(found[2])


def test_paired_interval_is_students() -> None:
    a, b = torch.randn(2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    interval = paired_interval(a + 5, b)
    d = (a + 5 - b).numpy()
    half = stats.t.ppf(0.975, 8) * d.std(ddof=1) / 3
    assert math.isclose(interval.value, d.mean())
    assert math.isclose(interval.high - interval.value, half)
    assert math.isclose(interval.value - interval.low, half)
    # pairing removes what the seeds have in common
    common = 100 * torch.arange(9, dtype=torch.float64)
    shifted = paired_interval(a + 5 + common, b + common)
    assert math.isclose(shifted.low, interval.low, abs_tol=1e-9)


def test_median_gap() -> None:
    a = torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])
    assert median_gap(a + 2, a).value == 2
    assert median_gap(a + 2, a).low == 2
    assert median_gap(a, a + 2).high == -2
    wide = median_gap(a, a.flip(0))
    assert wide.value == 0
    assert wide.low < 0 < wide.high
    assert median_gap(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])).value == 1.5


def test_curves_rise_from_above_zero() -> None:
    for amounts, scores in ((SIZES.flip(0), torch.ones(5, 2)), (SIZES, torch.zeros(5, 2)), (SIZES, torch.ones(5, 0))):
        with pytest.raises(ValueError, match="amounts must be positive and increase, scores be positive"):
            Curve(amounts, scores)
