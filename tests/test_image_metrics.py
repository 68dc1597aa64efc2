"""Fréchet distance, coverage and spread against closed forms and independent oracles, and what they must see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from lib.images.features import digit_classifier
from lib.images.metrics import (
    Moments,
    coverage,
    frechet_bias,
    frechet_distance,
    frechet_floor,
    gaussian_frechet,
    moments,
    score_images,
    spread,
)
from lib.images.sets import digit_images, rotate_images


def gen(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=gen(seed), dtype=torch.float64)


def covariances(count: int, d: int, rank: int, seed: int) -> Tensor:
    a = normal(count, d, rank, seed=seed)
    return a @ a.mT / rank


# --- Fréchet distance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [8, 6])
def test_frechet_agrees_with_scipy(rank: int) -> None:
    """The textbook formula with ``scipy.linalg.sqrtm``, for batches, regular and (nearly) singular covariances."""
    a = Moments(normal(5, 6), covariances(5, 6, rank, 1))
    b = Moments(normal(5, 6, seed=2), covariances(5, 6, rank, 3))
    for i, value in enumerate(gaussian_frechet(a, b)):
        c, d = a.covariance[i].numpy(), b.covariance[i].numpy()
        root = sqrtm(sqrtm(c) @ d @ sqrtm(c)).real
        expected = float((a.mean[i] - b.mean[i]).square().sum()) + np.trace(c + d - 2 * root)
        assert float(value) == pytest.approx(expected, rel=1e-8)


@given(st.integers(0, 10_000))
def test_frechet_of_commuting_covariances(seed: int) -> None:
    """With common eigenvectors it is ``|m − m'|² + Σ (√λ − √λ')²``, for zero eigenvalues as well."""
    basis = torch.linalg.qr(normal(5, 5, seed=seed)).Q
    values = normal(2, 5, seed=seed + 1).clamp_min(0)
    a, b = (Moments(m, (basis * v) @ basis.mT) for m, v in zip(normal(2, 5, seed=seed + 2), values, strict=True))
    roots = values.sqrt()
    expected = (a.mean - b.mean).square().sum() + (roots[0] - roots[1]).square().sum()
    assert torch.allclose(gaussian_frechet(a, b), expected, rtol=1e-6, atol=1e-7)


@given(st.integers(0, 10_000))
def test_frechet_is_a_squared_metric_and_knows_rigid_motions(seed: int) -> None:
    """Symmetry, zero on equal laws, triangle inequality of roots, |shift|² for a shift, invariance under isometries."""
    a, b, c = (Moments(normal(4, seed=seed + i), covariances(1, 4, 5, seed + i + 50)[0]) for i in range(3))
    assert torch.allclose(gaussian_frechet(a, b), gaussian_frechet(b, a))
    assert float(gaussian_frechet(a, a)) < 1e-12
    ab, bc, ac = (gaussian_frechet(x, y).sqrt() for x, y in ((a, b), (b, c), (a, c)))
    assert float(ac) <= float(ab + bc) + 1e-9
    shift = normal(4, seed=seed + 9)
    assert torch.allclose(gaussian_frechet(a, Moments(a.mean + shift, a.covariance)), shift @ shift)
    q = torch.linalg.qr(normal(4, 4, seed=seed)).Q
    moved = [Moments(q @ m.mean, q @ m.covariance @ q.mT) for m in (a, b)]
    assert torch.allclose(gaussian_frechet(*moved), gaussian_frechet(a, b))


def test_frechet_of_samples_is_batched_in_float64() -> None:
    x, y = normal(50, 3).float(), normal(4, 2, 40, 3, seed=1).float()
    values = frechet_distance(x, y)
    assert (values.shape, values.dtype) == ((4, 2), torch.float64)
    assert torch.allclose(values[3, 1], frechet_distance(x, y[3, 1]))
    law = moments(x)
    assert np.allclose(law.covariance.numpy(), np.cov(x.double().numpy().T))


def test_bias_at_finite_size() -> None:
    """Pairs of samples of one Gaussian law: the mean distance is the closed form, 1/n, and not zero."""
    covariance = torch.tensor([2.0, 1.0, 0.5, 0.1, 0.0], dtype=torch.float64).diag()
    law = Moments(torch.zeros(5, dtype=torch.float64), covariance)
    for size in (100, 400):
        x, y = (normal(400, size, 5, seed=s) @ covariance.sqrt() for s in (0, 1))
        values = frechet_distance(x, y)
        standard_error, expected = float(values.std()) / 20, float(frechet_bias(law, size))
        assert abs(float(values.mean()) - expected) < 4 * standard_error + 5 / size * expected  # the next order, 1/n²
        assert expected > 20 * standard_error
    isotropic = Moments(torch.zeros(7), torch.eye(7, dtype=torch.float64))
    assert float(frechet_bias(isotropic, 10)) == pytest.approx((2 * 7 + (49 + 7) / 2) / 10)


def test_floor_uses_disjoint_samples() -> None:
    """The floor is the bias for Gaussian features; half the points twice each would give a smaller one."""
    x = normal(1200, 6)
    floor = frechet_floor(x, 100, 200, gen(0))
    assert floor.shape == (200,)
    assert float(floor.mean()) == pytest.approx(float(frechet_bias(moments(x), 100)), rel=0.1)
    assert torch.equal(frechet_floor(x, 100, 200, gen(0)), floor)
    halves = frechet_floor(x[:4], 2, 50, gen(0))  # three ways to halve four points
    assert len({round(float(v), 9) for v in halves}) == 3


# --- coverage --------------------------------------------------------------------------------------------------------


def test_coverage_agrees_with_a_library() -> None:
    real, fake = normal(60, 3).numpy(), normal(45, 3, seed=1).numpy() + 0.5
    radius = NearestNeighbors(n_neighbors=5).fit(real).kneighbors(real)[0][:, -1]  # itself and four others
    nearest = NearestNeighbors(n_neighbors=1).fit(fake).kneighbors(real)[0][:, 0]
    value = coverage(torch.from_numpy(real), torch.from_numpy(fake), 4)
    assert float(value) == pytest.approx(float((nearest <= radius).mean()))


def test_coverage_sees_what_is_left_out_and_does_not_reward_repetition() -> None:
    real = torch.cat([normal(50, 2), normal(50, 2, seed=1) + 20])
    assert float(coverage(real, normal(100, 2, seed=2))) < 0.55
    assert float(coverage(real, real)) == 1.0
    assert float(coverage(real, real[:1].expand(100, 2))) < 0.15
    assert coverage(real, torch.stack([real, real + 100])).tolist() == [1.0, 0.0]


# --- labels and all scores -------------------------------------------------------------------------------------------


def test_spread_of_labels() -> None:
    labels = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1], [2, 2, 2, 2]])
    result = spread(labels, 4)
    assert result.entropy.tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert result.smallest.tolist() == [0.25, 0.0, 0.0]
    assert result.shares[1].tolist() == [0.5, 0.5, 0.0, 0.0]


def test_scores_of_digits() -> None:
    """Two runs at once: held-out digits in all orientations, and upright ones without threes and fours."""
    classifier, (_, test) = digit_classifier(), digit_images()
    order = torch.randperm(597, generator=gen(0))
    n = 240
    real, other = (
        rotate_images(test.images[i], 90.0 * torch.randint(4, (n,), generator=gen(1)))
        for i in (order[:n], order[n : 2 * n])
    )
    few = test.images[(test.classes != 3) & (test.classes != 4)][:n]
    good, bad = ([float(v[i]) for v in _numbers(classifier, real, torch.stack([other, few]))] for i in range(2))
    assert good[0] < 0.06 < 0.5 < bad[0]
    assert good[1] > 0.9 > 0.6 > bad[1]
    assert good[2] > 0.97 > bad[2]
    assert good[3] > 0.97 > 0.4 > bad[3]
    assert good[4] > 0.15
    assert bad[4] < 0.05


def _numbers(classifier: object, real: Tensor, fake: Tensor) -> list[Tensor]:
    scores = score_images(classifier, real, fake)
    classes, orientations = scores.classes, scores.orientations
    return [scores.frechet, scores.coverage, classes.entropy, orientations.entropy, orientations.smallest]


# --- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input() -> None:
    x = normal(6, 2)
    for call, error, message in (
        (lambda: moments(x[:1]), ValueError, r"features must have shape \(\.\.\., n, d\) with n ≥ 2"),
        (lambda: moments(x.long()), TypeError, "features must be of a floating-point"),
        (lambda: moments(x * math.nan), ValueError, "features must be finite"),
        (lambda: moments([1.0]), TypeError, "features must be a torch.Tensor"),
        (lambda: frechet_distance(x, normal(6, 3)), ValueError, "x and y must have one dimension, got 2 and 3"),
        (lambda: frechet_floor(x, 4, 1, gen(0)), ValueError, "size must be between 2 and 3, got 4"),
        (lambda: frechet_floor(x, 2, 0, gen(0)), ValueError, "repeats must be at least 1"),
        (lambda: frechet_floor(x[None], 2, 1, gen(0)), ValueError, r"features must have shape \(n, d\)"),
        (lambda: frechet_bias(moments(x), 1), ValueError, "size must be at least 2"),
        (lambda: frechet_floor(x, 2, 1, 0), TypeError, "generator must be a Generator"),
        (lambda: moments(x + 0j), TypeError, "features must be real"),
        (lambda: frechet_bias(x, 4), TypeError, "law must be a Moments"),
        (lambda: rotate_images(x[None, None] + 0j, torch.ones(1)), TypeError, "images must be real"),
        (lambda: rotate_images(x[None, None], torch.ones(1)), ValueError, "images and degrees must have shapes"),
        (lambda: rotate_images(torch.zeros(1, 1, 6, 6), torch.ones(1), math.nan), ValueError, "background must be"),
        (lambda: coverage(x[:5], x), ValueError, "real must have shape .* n ≥ 6"),
        (lambda: coverage(x, x[:0]), ValueError, "fake must have shape"),
        (lambda: coverage(x, normal(6, 3)), ValueError, "real and fake must have one dimension"),
        (lambda: coverage(x, x, 0), ValueError, "neighbours must be at least 1"),
        (lambda: spread(torch.tensor([0, 4]), 4), ValueError, "labels must be numbers 0 … 3"),
        (lambda: spread(torch.tensor([0.0]), 4), ValueError, "labels must be numbers 0 … 3, int64, got torch.float32"),
        (lambda: spread(torch.tensor([0]), 1), ValueError, "count must be at least 2"),
    ):
        with pytest.raises(error, match=message):
            call()
