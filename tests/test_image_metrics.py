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

from lib.images.features import judge_of
from lib.images.metrics import Moments, coverage, gaussian_frechet, moments, rarest
from lib.images.sets import image_set, rotate_images


def gen(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def frechet_distance(x: Tensor, y: Tensor) -> Tensor:
    return gaussian_frechet(moments(x), moments(y))


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


def test_the_rarest_label() -> None:
    labels = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1], [2, 2, 2, 2], [0, 1, 2, 2]])
    assert rarest(labels, 4).tolist() == [1, 0, 0, 0]
    assert rarest(labels, 4)[0] == rarest(torch.arange(10).repeat(3), 10)
    assert float(rarest(labels[3], 3)) == 0.75


def test_scores_of_digits() -> None:
    """Two runs at once: held-out digits in all orientations, and upright ones without threes and fours."""
    classifier, (_, test) = judge_of("digits"), image_set("digits")
    order = torch.randperm(597, generator=gen(0))
    n = 240
    real, other = (
        rotate_images(test.images[i], 90.0 * torch.randint(4, (n,), generator=gen(1)))
        for i in (order[:n], order[n : 2 * n])
    )
    few = test.images[(test.classes != 3) & (test.classes != 4)][:n]
    x, y = classifier.features(real), classifier.features(torch.stack([other, few]))
    classes, orientations = classifier.predict(torch.stack([other, few]))
    far, near = frechet_distance(x, y).tolist(), coverage(x, y).tolist()
    assert far[0] < 0.06 < 0.5 < far[1]
    assert near[0] > 0.9 > 0.6 > near[1]
    turns, kinds = rarest(orientations, 4).tolist(), rarest(classes, 10).tolist()
    assert turns[0] > 0.6 > 0.2 > turns[1]
    assert kinds[0] > 0.4 > 0.2 > kinds[1]


# --- bad input -------------------------------------------------------------------------------------------------------


def test_bad_features() -> None:
    x = normal(6, 2)
    for call, message in (
        (lambda: moments(x[:1]), r"features must have shape \(\.\.\., n, d\) with n ≥ 2"),
        (lambda: moments(x * math.nan), "features must be finite"),
        (lambda: coverage(x[:5], x), "real must have shape .* n ≥ 6"),
        (lambda: coverage(x, x[:0]), "fake must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
