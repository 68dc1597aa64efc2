"""How good generated images are: Fréchet distance, coverage, and which classes and orientations occur.

All of it is computed from features or labels, batched over leading axes, which are independent runs. No score here is
invariant by construction: a generator that never draws one orientation must lose. That is why the Fréchet distance uses
the features of :mod:`lib.images.features`, which know the orientation, and is not taken on the quotient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.transport.quotient import euclidean


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
    Of two finite samples of one law the value is not zero but of order d · tr C / n: compare generators at equal
    numbers of images only (Heusel 2017), in few features. Leading axes broadcast.
    """
    traces = sum(m.covariance.diagonal(dim1=-2, dim2=-1).sum(-1) for m in (a, b))
    overlap = torch.linalg.svdvals(_matrix_root(a.covariance) @ _matrix_root(b.covariance)).sum(-1)
    return ((a.mean - b.mean).square().sum(-1) + traces - 2 * overlap).clamp_min(0)


def _matrix_root(covariance: Tensor) -> Tensor:
    """Return the symmetric root of positive semidefinite matrices ``(..., d, d)``."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.mT


def coverage(real: Tensor, fake: Tensor, neighbours: int = 5) -> Tensor:
    """Return the share of real points that have a generated one nearby (Naeem et al. 2020).

    Nearby means: no farther than the k-th nearest *other* real point, k being the ``neighbours``. For two samples of
    one law the expectation does not depend on the law. Features have shapes ``(..., n, d)`` with n > k and
    ``(..., m, d)``; leading axes broadcast.
    """
    x, y = _check_features("real", real, neighbours + 1), _check_features("fake", fake, 1)
    radius = euclidean(x, x).kthvalue(neighbours + 1, dim=-1).values
    return (euclidean(x, y).amin(-1) <= radius).double().mean(-1)


def rarest(labels: Tensor, count: int) -> Tensor:
    """Return the share of the rarest of the labels 0 … count − 1, int64, times count, so that 1 is even."""
    return torch.nn.functional.one_hot(labels, count).double().mean(-2).amin(-1) * count


def _check_features(name: str, x: Tensor, least: int) -> Tensor:
    check_tensor(name, x, (None, None), inexact=True, real=True)
    if x.shape[-2] < least or not x.shape[-1]:
        raise ValueError(f"{name} must have shape (..., n, d) with n ≥ {least}, got {tuple(x.shape)}")
    return x.detach().double()  # scores judge, nothing descends along them
