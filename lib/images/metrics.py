"""How good generated images are: Fréchet distance, coverage, and which classes and orientations occur.

All of it is computed from features or labels, batched over leading axes, which are independent runs. No score here is
invariant by construction: a generator that never draws one orientation must lose. That is why the Fréchet distance uses
the features of :mod:`lib.images.features`, which know the orientation, and is not taken on the quotient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_instance, check_int, check_tensor
from lib.images.features import FeatureClassifier


@dataclass(frozen=True)
class Moments:
    """Mean ``(..., d)`` and covariance ``(..., d, d)`` of features, float64."""

    mean: Tensor
    covariance: Tensor


def moments(features: Tensor) -> Moments:
    """Return mean and covariance (divided by n − 1) of features ``(..., n, d)``, n ≥ 2."""
    x = _check_features("features", features, 2)
    mean = x.mean(-2)
    centred = x - mean[..., None, :]
    return Moments(mean, centred.mT @ centred / (x.shape[-2] - 1))


def gaussian_frechet(a: Moments, b: Moments) -> Tensor:
    """Return the squared Fréchet distance of two Gaussians (Dowson, Landau 1982), their squared 2-Wasserstein distance.

    ``|m_a − m_b|² + tr(C_a + C_b) − 2 tr (C_a^{1/2} C_b C_a^{1/2})^{1/2}``. The last trace is the sum of the singular
    values of ``C_a^{1/2} C_b^{1/2}``; both roots come from eigenvalues, so nothing fails when a covariance is singular.

    Parameters
    ----------
    a, b
        Moments; leading axes broadcast.

    Returns
    -------
    Tensor
        Shape ``(...)``, never negative.
    """
    check_instance("a", a, Moments)
    check_instance("b", b, Moments)
    traces = sum(m.covariance.diagonal(dim1=-2, dim2=-1).sum(-1) for m in (a, b))
    overlap = torch.linalg.svdvals(_root(a.covariance) @ _root(b.covariance)).sum(-1)
    return ((a.mean - b.mean).square().sum(-1) + traces - 2 * overlap).clamp_min(0)


def _root(covariance: Tensor) -> Tensor:
    """Return the symmetric root of positive semidefinite matrices ``(..., d, d)``."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.mT


def frechet_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared Fréchet distance of two sets of features, as in the Fréchet inception distance (Heusel 2017).

    The value for two finite samples of one law is not zero but of order 1/n, see :func:`frechet_bias`. Compare
    generators only at equal numbers of images, and show :func:`frechet_floor` beside them.

    Parameters
    ----------
    x, y
        Features ``(..., n, d)`` and ``(..., m, d)``; leading axes broadcast.
    """
    a, b = moments(x), moments(y)
    if a.mean.shape[-1] != b.mean.shape[-1]:
        raise ValueError(f"x and y must have one dimension, got {a.mean.shape[-1]} and {b.mean.shape[-1]}")
    return gaussian_frechet(a, b)


def frechet_floor(features: Tensor, size: int, repeats: int, generator: torch.Generator) -> Tensor:
    """Return distances between two disjoint random samples of real features, what a perfect generator would get.

    Parameters
    ----------
    features
        Features of real images, shape ``(n, d)``, n ≥ 2 · size. Features of turned images of one image must not be
        among them, or the two samples are not independent.
    size
        Images in each sample.
    repeats
        Number of pairs of samples; the pairs overlap with each other.
    generator
        Source of the samples.

    Returns
    -------
    Tensor
        Shape ``(repeats,)``.
    """
    x = _check_features("features", features, 4)
    if x.ndim != 2:
        raise ValueError(f"features must have shape (n, d), got {tuple(x.shape)}")
    check_int("size", size, minimum=2, maximum=len(x) // 2)
    check_int("repeats", repeats)
    check_instance("generator", generator, torch.Generator)
    orders = [torch.randperm(len(x), generator=generator, device="cpu")[: 2 * size] for _ in range(repeats)]
    samples = x[torch.stack(orders).to(x.device)]
    return frechet_distance(samples[:, :size], samples[:, size:])


def frechet_bias(law: Moments, size: int) -> Tensor:
    """Return the expected distance of two samples of n points of one Gaussian law, to leading order in 1/n.

    With eigenvalues λ of the covariance, ``(1/n) [2 Σ_i λ_i + Σ_ij (1 + δ_ij) λ_i λ_j / (λ_i + λ_j)]``: the first sum
    is the distance of the means, the second the mean of the second-order term ``½ Σ_ij Δ_ij² / (λ_i + λ_j)`` of the
    distance of covariances that differ by Δ. It grows like d · tr C / n, so features should be few.
    """
    check_instance("law", law, Moments)
    check_int("size", size, minimum=2)
    values = torch.linalg.eigvalsh(law.covariance).clamp_min(0)
    a, b = values[..., :, None], values[..., None, :]
    pairs = a * b / (a + b).clamp_min(torch.finfo(values.dtype).tiny)
    return (2 * values.sum(-1) + pairs.sum((-2, -1)) + values.sum(-1) / 2) / size


def coverage(real: Tensor, fake: Tensor, neighbours: int = 5) -> Tensor:
    """Return the share of real points that have a generated one nearby (Naeem et al. 2020).

    Nearby means: no farther than the k-th nearest *other* real point. For two samples of one law the expectation does
    not depend on the law.

    Parameters
    ----------
    real, fake
        Features ``(..., n, d)``, n > neighbours, and ``(..., m, d)``; leading axes broadcast.
    neighbours
        The number k.

    Returns
    -------
    Tensor
        Shape ``(...)``, values in [0, 1].
    """
    check_int("neighbours", neighbours)
    x, y = _check_features("real", real, neighbours + 1), _check_features("fake", fake, 1)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"real and fake must have one dimension, got {x.shape[-1]} and {y.shape[-1]}")
    exact = "donot_use_mm_for_euclid_dist"
    radius = torch.cdist(x, x, compute_mode=exact).kthvalue(neighbours + 1, dim=-1).values
    nearest = torch.cdist(x, y, compute_mode=exact).amin(-1)
    return (nearest <= radius).double().mean(-1)


@dataclass(frozen=True)
class Spread:
    """How evenly labels occur.

    Attributes
    ----------
    shares : Tensor
        Shares of the labels, shape ``(..., count)``.
    entropy : Tensor
        Entropy divided by log(count), one for even shares, shape ``(...)``.
    smallest : Tensor
        Share of the rarest label, shape ``(...)``.
    """

    shares: Tensor
    entropy: Tensor
    smallest: Tensor


def spread(labels: Tensor, count: int) -> Spread:
    """Return how evenly labels 0 … count − 1 occur, shape of the labels ``(..., n)``, int64."""
    check_int("count", count, minimum=2)
    check_tensor("labels", labels, (None,))
    if labels.dtype != torch.int64 or not labels.numel() or bool(((labels < 0) | (labels >= count)).any()):
        raise ValueError(f"labels must be numbers 0 … {count - 1}, int64, got {labels.dtype} {tuple(labels.shape)}")
    shares = torch.nn.functional.one_hot(labels, count).double().mean(-2)
    entropy = torch.special.entr(shares).sum(-1) / math.log(count)
    return Spread(shares, entropy, shares.amin(-1))


@dataclass(frozen=True)
class ImageScores:
    """Scores of generated images, one per run.

    Attributes
    ----------
    frechet : Tensor
        Squared Fréchet distance to the real images, in units of the spread of the classifier's training images.
    coverage : Tensor
        Share of real images with a generated one nearby.
    classes, orientations : Spread
        What the classifier sees.
    """

    frechet: Tensor
    coverage: Tensor
    classes: Spread
    orientations: Spread


def score_images(classifier: FeatureClassifier, real: Tensor, fake: Tensor, neighbours: int = 5) -> ImageScores:
    """Return all scores of generated images.

    Parameters
    ----------
    classifier
        Its features and labels are used.
    real, fake
        Images ``(..., n, c, size, size)`` and ``(..., m, c, size, size)``; leading axes broadcast. Take n = m.
    neighbours
        For :func:`coverage`.
    """
    x, y = classifier.features(real), classifier.features(fake)
    seen = classifier.predict(fake)
    return ImageScores(
        frechet_distance(x, y),
        coverage(x, y, neighbours),
        spread(seen.classes, classifier.classes),
        spread(seen.orientations, classifier.orientations),
    )


def _check_features(name: str, x: Tensor, least: int) -> Tensor:
    check_tensor(name, x, (None, None), inexact=True, real=True)
    if x.shape[-2] < least or not x.shape[-1]:
        raise ValueError(f"{name} must have shape (..., n, d) with n ≥ {least}, got {tuple(x.shape)}")
    return x.double()
