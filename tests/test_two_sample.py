"""Permutation tests: exact level, power, statistics against independent definitions."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare, permutation_test
from sklearn.metrics.pairwise import rbf_kernel

from lib.symmetry.actions import pixels, planar
from lib.symmetry.groups import Cyclic, Dihedral
from lib.transport.two_sample import (
    invariance_test,
    outside_interval,
    pooled_kernel,
    random_move,
    signs,
    two_sample_test,
)

DOUBLE = torch.float64
RUNS = 1500
TURNS = random_move(planar(Cyclic(4)))


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=DOUBLE)


def rejections_fit(rejections, runs, level, coverage=0.999):
    low, high = binom.interval(coverage, runs, level)
    return low <= rejections <= high


# --- statistics ---


def statistic_by_loops(x, y, kernel):
    """Return the mean kernel within x, plus within y, minus twice the mean between them."""

    def mean(a, b):
        return sum(kernel(s, t) for s, t in itertools.product(a, b)) / (len(a) * len(b))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def test_mmd_statistic_is_the_mean_over_bandwidths():
    x, y = normal(7, 2), normal(5, 2, seed=1) + 0.5
    result = two_sample_test(x, y, rng(), permutations=1)
    pooled = torch.cat([x, y]).numpy()
    distances = np.linalg.norm(pooled[:, None] - pooled, axis=-1)[np.triu_indices(12, 1)]
    median = np.sort(distances)[(len(distances) - 1) // 2]
    widths = [scale * median for scale in (0.25, 0.5, 1.0, 2.0)]
    kernel = np.mean([rbf_kernel(pooled, gamma=1 / (2 * s**2)) for s in widths], axis=0)
    expected = statistic_by_loops(range(7), range(7, 12), lambda i, j: kernel[i, j])
    assert float(result.statistic) == pytest.approx(float(expected), rel=1e-10)


def test_p_value_is_the_share_of_a_plain_loop():
    x, y = normal(6, 3), normal(4, 3, seed=1) + 0.8
    result = two_sample_test(x, y, rng(5), permutations=60)
    kernel = pooled_kernel(torch.cat([x, y]))
    larger = 0
    for w in signs(1, 6, 4, 60, rng(5))[0]:
        chosen, rest = (w > 0).nonzero()[:, 0].tolist(), (w < 0).nonzero()[:, 0].tolist()
        assert len(chosen) == 6
        assert len(rest) == 4
        larger += statistic_by_loops(chosen, rest, lambda i, j: kernel[i, j]) >= result.statistic - 1e-12
    assert float(result.p_value) == pytest.approx((1 + int(larger)) / 61)


def test_p_value_approaches_that_of_all_permutations():
    x, y = normal(5, 1), normal(4, 1, seed=1) + 0.9
    kernel = pooled_kernel(torch.cat([x, y])).numpy()

    def statistic(a, b):
        inside = kernel[np.ix_(a, a)].mean() + kernel[np.ix_(b, b)].mean()
        return inside - 2 * kernel[np.ix_(a, b)].mean()

    numbers = np.arange(5), np.arange(5, 9)
    every = permutation_test(numbers, statistic, alternative="greater", n_resamples=np.inf, vectorized=False)
    ours = two_sample_test(x, y, rng(), permutations=20_000)
    assert float(ours.p_value) == pytest.approx(every.pvalue, abs=4 * (every.pvalue / 20_000) ** 0.5)


def test_splits_are_uniform():
    drawn = signs(1, 2, 2, 6000, rng())[0] > 0
    counts = torch.bincount((drawn.long() * torch.tensor([8, 4, 2, 1])).sum(-1), minlength=16)
    assert chisquare(counts[counts > 0].numpy()).pvalue > 1e-3
    assert int((counts > 0).sum()) == 6


# --- level ---


@pytest.mark.parametrize("tails", ["light", "heavy"])
def test_level_is_exact(tails):
    x, y = normal(2, RUNS, 12, 2)
    if tails == "heavy":  # a Cauchy law has no mean
        x, y = (sample / normal(2, RUNS, 12, 1, seed=1)[k].abs() for k, sample in enumerate((x, y)))
    p_value = two_sample_test(x, y, rng(7), 19).p_value
    counts = torch.bincount((p_value * 20).round().long() - 1, minlength=20)
    assert chisquare(counts.numpy()).pvalue > 1e-3
    assert rejections_fit(int(counts[0]), RUNS, 0.05)


def test_unequal_sizes_keep_the_level():
    result = two_sample_test(normal(RUNS, 5, 2), normal(RUNS, 14, 2, seed=1), rng(), 19)
    assert rejections_fit(int(result.rejected().sum()), RUNS, 0.05)


def test_a_point_far_away_does_not_reject_equal_laws():
    """In single precision the square of its distance overflows."""
    x, y = normal(2, RUNS, 10, 2).float()
    x[:, 0] *= 1e20
    result = two_sample_test(x, y, rng(), 19)
    assert bool(result.statistic.isfinite().all())
    assert int(result.rejected().sum()) <= binom.ppf(0.999, RUNS, 0.05)
    for scale in (1e-200, 1.0, 1e180):
        again = two_sample_test(scale * x.double(), scale * y.double(), rng(), 19)
        assert torch.equal(again.p_value, result.p_value)
    far = 1e-100 * x.double()
    far[:, 0] = 1e300
    with pytest.raises(ValueError, match="points must have coordinates below 1e300 times"):
        two_sample_test(far, 1e-100 * y.double(), rng(), 19)


def test_ties_make_the_test_cautious():
    coins = torch.randint(2, (2, RUNS, 6, 1), generator=rng()).double()
    rejections = int(two_sample_test(*coins, rng(), 19).rejected().sum())
    assert 0 < rejections <= binom.ppf(0.999, RUNS, 0.05)
    alike = torch.full((3, 8, 2), 0.1, dtype=DOUBLE)
    assert two_sample_test(alike, alike, rng(), 99).p_value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("group", [Cyclic(2), Cyclic(5), Dihedral(4)], ids=repr)
@pytest.mark.parametrize("identity", [False, True])
def test_invariant_laws_are_rejected_at_the_level(group, identity):
    move = random_move(planar(group), identity)
    rejections = int(invariance_test(normal(RUNS, 21, 2), move, rng(), 19).rejected().sum())
    assert rejections_fit(rejections, RUNS, 0.05)


def test_testing_points_against_themselves_spoils_the_level():
    x = normal(RUNS, 12, 2)
    turned = random_move(planar(Cyclic(2)))(x, rng(1))
    assert int(two_sample_test(x, turned, rng(), 19).rejected().sum()) > 0.1 * RUNS


# --- power ---


def test_power_grows_with_the_difference():
    x, y = normal(60, 60, 2), normal(60, 60, 2, seed=1)
    shift = torch.tensor([1.0, 0.0], dtype=DOUBLE)
    caught = [int(two_sample_test(x, y + s * shift, rng(), 199).rejected().sum()) for s in (0.2, 0.5, 1.0)]
    assert caught[0] < caught[1] < caught[2]
    assert caught[2] >= 58


def test_a_law_without_symmetry_is_caught():
    collapsed = 0.3 * normal(20, 60, 2) + torch.tensor([1.0, 0.0], dtype=DOUBLE)
    assert bool(invariance_test(collapsed, TURNS, rng(), 99).rejected().all())
    sector = 0.3 * normal(20, 400, 2) + torch.tensor([1.0, 0.0], dtype=DOUBLE)
    kept = torch.rand(20, 400, 1, generator=rng(), dtype=DOUBLE) < 0.35  # 51 % in one sector, 16 % in each other one
    mixture = torch.where(kept, sector, random_move(planar(Cyclic(4)), identity=True)(sector, rng(2)))
    assert bool(invariance_test(mixture, TURNS, rng()).rejected().all())


def test_a_smaller_symmetry_is_told_from_a_larger_one():
    ellipse = normal(20, 200, 2) * torch.tensor([3.0, 1.0], dtype=DOUBLE)
    assert int(invariance_test(ellipse, random_move(planar(Cyclic(2))), rng()).rejected().sum()) <= 4
    assert int(invariance_test(ellipse, TURNS, rng()).rejected().sum()) == 20


def test_flattened_images():
    group = Dihedral(4)
    noise = torch.rand(30, 80, 64, generator=rng())
    assert noise.dtype == torch.float32
    move = random_move(pixels(group, 8))
    assert int(invariance_test(noise, move, rng(), 99).rejected().sum()) <= 5
    lit = noise + torch.linspace(0, 1, 8).repeat(8)
    assert bool(invariance_test(lit, move, rng(), 99).rejected().all())


# --- moves ---


def test_moves_are_uniform_over_the_elements():
    x = torch.tensor([1.0, 0.2], dtype=DOUBLE).expand(8000, 2)
    images = planar(Dihedral(4)).apply(Dihedral(4).unsqueeze(Dihedral(4).elements()), x[:1])[:, 0]
    for identity in (False, True):
        moved = random_move(planar(Dihedral(4)), identity)(x, rng())
        nearest = torch.cdist(moved, images, compute_mode="donot_use_mm_for_euclid_dist")
        assert float(nearest.amin(-1).max()) < 1e-12
        counts = torch.bincount(nearest.argmin(-1), minlength=8)
        still = int(counts[Dihedral(4).index(Dihedral(4).identity())])
        assert (still > 0) == identity
        assert chisquare(counts[counts > 0].numpy()).pvalue > 1e-3


def test_runs_and_seeds():
    x, y = normal(2, 3, 8, 2), normal(2, 3, 9, 2, seed=1)
    one, other = (two_sample_test(x, y, rng(4), 49) for _ in range(2))
    assert one.p_value.shape == one.statistic.shape == (2, 3)
    assert torch.equal(one.p_value, other.p_value)
    alone = two_sample_test(x[1, 2], y[1, 2], rng(4), 49)
    torch.testing.assert_close(alone.statistic, one.statistic[1, 2])
    assert alone.p_value.shape == ()


# --- intervals ---


@pytest.mark.parametrize(("trials", "low", "high"), [(20, 0, 3), (24, 0, 4), (100, 1, 10), (1000, 37, 64)])
def test_rejections_outside_the_interval(trials, low, high):
    inside = sum(binom.pmf(k, trials, 0.05) for k in range(low, high + 1))
    assert inside >= 0.95
    assert [outside_interval(k, trials) for k in (low, high, high + 1, high + 2)] == [0, 0, 1, 2]
    if low:
        assert outside_interval(low - 1, trials) == 1
