"""A law of the plane on which kernels are understood: the ring, uniform in the angle and in the radius."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from scipy.special import i0e
from torch import Tensor

from lib.transport.kernels import KernelReach

INNER, OUTER = 0.5, 1.5
"""Radii of the ring; its middle is the unit circle."""


def ring(replicates: int, n: int, generator: torch.Generator, shift: float = 0.0) -> Tensor:
    """Return samples ``(replicates, n, 2)`` with a uniform angle and a radius uniform in [0.5, 1.5], plus ``shift``."""
    u, v = torch.rand(2, replicates, n, dtype=torch.float64, generator=generator, device=generator.device)
    r, theta = INNER + shift + (OUTER - INNER) * u, 2 * math.pi * v
    return torch.stack([r * theta.cos(), r * theta.sin()], -1)


def ring_reach(order: int | float, bandwidth: float) -> KernelReach:
    """Return a_{Σ,k} and the mean of the Gaussian kernel of width s on the ring, for ``order`` turns (inf: all).

    ``E k^Σ(x, x) = E (1/L) Σ_j exp(−2r² sin²(πj/L)/s²)`` and ``E k(x, x′) = E exp(−(r − ρ)²/2s²) exp(−z) I_0(z)`` with
    ``z = rρ/s²``, by Gauss–Legendre quadrature over the radii.

    >>> round(ring_reach(8, 0.26).factor, 2)
    11.47
    """
    r, w, mean = _ring_mean(bandwidth)
    if order == math.inf:
        return KernelReach(order, float(w @ i0e(r**2 / bandwidth**2)), mean)
    angles = np.pi * np.arange(1, order) / order
    a = w @ np.exp(-2 * (r[:, None] * np.sin(angles) / bandwidth) ** 2).mean(1) if order > 1 else 0.0
    return KernelReach(order, float(a), mean)


@cache
def _ring_mean(s: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return radii, weights, and the mean kernel of two independent points of the ring."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    r, w = (INNER + OUTER + (OUTER - INNER) * nodes) / 2, weights / 2
    pair = np.exp((r[:, None] - r) ** 2 / (-2 * s**2)) * i0e(r[:, None] * r / s**2)
    return r, w, float(w @ pair @ w)
