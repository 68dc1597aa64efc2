"""Chapter *Sample complexity*: maximum mean discrepancy under rotations, its sharp law, and the calculator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.special import i0e
from torch import Tensor

from lib.checks import check_float, check_int, seeded
from lib.device import default_device
from lib.experiments.sample_complexity import SEEDS, independent_draws, sample_pairs
from lib.transport.kernels import KernelReach, check_bandwidth, kernel_reach, mmd_squared, orbit_kernel
from lib.transport.quotient import Isometries, check_action, turns

WIDTHS = {"2π/24": 2 * math.pi / 24, "2π/96": 2 * math.pi / 96, "2π/384": 2 * math.pi / 384}
ORDERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
INNER, OUTER = 0.5, 1.5
"""Radii of the ring on which the laws of this module live; its middle is the unit circle."""


def ring(replicates: int, n: int, generator: torch.Generator, inner: float = INNER, outer: float = OUTER) -> Tensor:
    """Return points with a uniform angle and a radius uniform between ``inner`` and ``outer``: (replicates, n, 2)."""
    check_float("outer", outer, minimum=check_float("inner", inner, minimum=0.0))
    u, v = torch.rand(2, replicates, n, dtype=torch.float64, generator=generator)
    r, theta = inner + (outer - inner) * u, 2 * math.pi * v
    return torch.stack([r * theta.cos(), r * theta.sin()], -1)


def ring_reach(order: int | float, s: float, inner: float = INNER, outer: float = OUTER) -> KernelReach:
    """Return a_{Σ,k} and the mean kernel of the ring by Gauss–Legendre quadrature over the radii.

    ``E k^Σ(x, x) = E (1/L) Σ_j exp(−2r² sin²(πj/L)/s²)`` and ``E k(x, x′) = E exp(−(r − ρ)²/2s²) exp(−z) I_0(z)`` with
    ``z = rρ/s²``.
    """
    check_bandwidth(s)
    r, w, mean = _ring_mean(s, inner, outer)
    if math.isinf(order):
        return KernelReach(order, float(w @ i0e(r**2 / s**2)), mean)
    angles = np.pi * np.arange(1, check_int("order", order)) / order
    a = w @ np.exp(-2 * (r[:, None] * np.sin(angles) / s) ** 2).mean(1) if order > 1 else 0.0
    return KernelReach(order, float(a), mean)


@cache
def _ring_mean(s: float, inner: float, outer: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return radii, weights, and the mean kernel of two independent points of the ring."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    r, w = (inner + outer + (outer - inner) * nodes) / 2, weights / 2
    pair = np.exp((r[:, None] - r) ** 2 / (-2 * s**2)) * i0e(r[:, None] * r / s**2)
    return r, w, float(w @ pair @ w)


@dataclass(frozen=True)
class Panel:
    """Root-mean-square MMD between two samples of one law against the number of turns, for one kernel width.

    Attributes
    ----------
    width : float
        s.
    orders : list of int
        |Σ|.
    ratio, ratio_error : numpy.ndarray
        Measured root-mean-square ratio to |Σ| = 1, and its standard error.
    law, constant : numpy.ndarray
        The closed form of the ratio, and C_{Σ,k}.
    limit : float
        The closed form for all rotations, |Σ| = ∞.
    """

    width: float
    orders: list[int]
    ratio: np.ndarray
    ratio_error: np.ndarray
    law: np.ndarray
    constant: np.ndarray
    limit: float

    @property
    def excess(self) -> float:
        """Largest measured ratio over C_{Σ,k}, minus one (|Σ| > 1)."""
        return float((self.ratio / self.constant)[1:].max() - 1)

    @property
    def excess_without_reach(self) -> float:
        """The same against 1/√|Σ|, that is with a = 0: what a kernel without reach would promise."""
        return float((self.ratio * np.sqrt(self.orders))[1:].max() - 1)

    @property
    def deviation(self) -> float:
        """Largest distance of a measured ratio from the law, in standard errors (|Σ| > 1)."""
        return float((np.abs(self.ratio - self.law) / np.maximum(self.ratio_error, 1e-300))[1:].max())

    @property
    def onset(self) -> int:
        """Smallest order from which on the law is within 5 % of its limit."""
        return next(order for order, value in zip(self.orders, self.law) if value <= 1.05 * self.limit)

    def plateau_factor(self, width: float | None = None) -> float:
        """Return the factor between onset · width and π, at least one; ``width`` defaults to the kernel's own."""
        product = self.onset * (self.width if width is None else width) / math.pi
        return max(product, 1 / product)


def measure_panel(width: float, replicates: int, n: int = 64, seeds: Sequence[int] = SEEDS) -> Panel:
    """Measure one panel: ``replicates`` pairs of samples of n points from the ring, the same for every order."""
    return panel_of(width, panel_squares(width, replicates, n, seeds))


def measure_panels(replicates: int, n: int = 64, seeds: Sequence[int] = SEEDS) -> dict[str, Panel]:
    """Return :func:`measure_panel` for the three kernel widths, two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        panels = pool.map(lambda width: measure_panel(width, replicates, n, seeds), WIDTHS.values())
        return dict(zip(WIDTHS, panels, strict=True))


def panel_squares(width: float, replicates: int, n: int = 64, seeds: Sequence[int] = SEEDS) -> np.ndarray:
    """Return squared MMDs of pairs of samples of the ring, shape ``(orders, replicates)``."""
    check_int("replicates", replicates, minimum=8)
    x, y = (p.to(default_device()) for p in sample_pairs(ring, replicates, n, seeds, stream=4000))
    return torch.stack([mmd_squared(x, y, turns(order), width) for order in ORDERS]).cpu().numpy()


def panel_of(width: float, square: np.ndarray) -> Panel:
    """Return the panel of squared MMDs, shape ``(orders, replicates)``; means over batches of replicates do as well."""
    mean = square.mean(1)
    ratio = np.sqrt(mean / mean[0])
    # Delta method for the ratio of two means of the same replicates.
    deviation = (square / mean[:, None] - square[0] / mean[0]).std(1, ddof=1) / math.sqrt(square.shape[1])
    reaches = [ring_reach(order, width) for order in ORDERS]
    law, constant = np.array([r.ratio for r in reaches]), np.array([r.constant for r in reaches])
    limit = ring_reach(math.inf, width).ratio
    return Panel(width, list(ORDERS), ratio, ratio * deviation / 2, law, constant, limit)


@dataclass(frozen=True)
class LawCheck:
    """Mean squared MMD at one setting: measured, its relative standard error, and the closed form."""

    width: float
    order: int
    n: int
    m: int
    replicates: int
    measured: float
    standard_error: float
    closed_form: float
    without_group: float

    @property
    def relative_error(self) -> float:
        """Relative error of the root mean square against the closed form."""
        return abs(math.sqrt(self.measured / self.closed_form) - 1)


def check_law(
    width: float, order: int, replicates: int, n: int = 64, m: int = 64, seeds: Sequence[int] = SEEDS
) -> LawCheck:
    """Measure ``E MMD² = (1/n + 1/m)(E k^Σ(x,x) − E k^Σ(x,x′))`` on the ring; errors are of the root mean square."""
    pairs = independent_draws(lambda share, g: (ring(share, n, g), ring(share, m, g)), replicates, seeds, stream=6000)
    square = mmd_squared(*(p.to(default_device()) for p in pairs), turns(order), width).cpu().numpy()
    reach, alone = ring_reach(order, width), ring_reach(1, width)
    scale = 1 / n + 1 / m
    error = square.std(ddof=1) / math.sqrt(len(square)) / square.mean() / 2
    closed, plain = (scale * (r.constant**2 - r.mean) for r in (reach, alone))
    return LawCheck(width, order, n, m, len(square), float(square.mean()), float(error), closed, plain)


def check_laws(plan: Sequence[tuple[float, int, int, int, int]], seeds: Sequence[int] = SEEDS) -> list[LawCheck]:
    """Return :func:`check_law` for every row ``(width, order, replicates, n, m)``, two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda row: check_law(*row, seeds), plan))


@dataclass(frozen=True)
class DifferentRings:
    """Root-mean-square errors of the MMD estimate for two different rings, without and with a group."""

    sizes: list[int]
    plain: np.ndarray
    grouped: np.ndarray
    constant: float
    true_value: float

    @property
    def ratio(self) -> np.ndarray:
        """Error with the group over error without."""
        return self.grouped / self.plain


def different_rings(
    width: float, order: int, replicates: int = 160, shift: float = 0.3, seeds: Sequence[int] = SEEDS
) -> DifferentRings:
    """Measure ``|MMD(Q, P) − MMD^Σ(Q_n, P_n)|`` where Q is the ring and P the ring moved outwards by ``shift``."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    r, w = INNER + (OUTER - INNER) * (nodes + 1) / 2, weights / 2
    both, mass = np.concatenate([r, r + shift]), np.concatenate([w, -w])
    pair = np.exp((both[:, None] - both) ** 2 / (-2 * width**2)) * i0e(both[:, None] * both / width**2)
    true = math.sqrt(mass @ pair @ mass)
    sizes, errors = [16, 64, 256, 512], {1: [], order: []}
    for n in sizes:
        count = max(12, min(replicates, replicates * 128 // n))
        x, y = independent_draws(
            lambda share, g, n=n: (ring(share, n, g), ring(share, n, g, INNER + shift, OUTER + shift)),
            count,
            seeds,
            stream=7000 + n,
        )
        for group in errors:
            value = mmd_squared(x, y, turns(group), width).sqrt() - true
            errors[group].append(float(value.square().mean().sqrt()))
    constant = ring_reach(order, width, INNER, OUTER).constant
    return DifferentRings(sizes, np.array(errors[1]), np.array(errors[order]), constant, true)


# --- the calculator --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplesSaved:
    """How many samples without the group one sample with it is worth.

    Attributes
    ----------
    order : int or float
        |Σ|.
    bandwidth : float
        The kernel's width.
    mmd : float
        Factor for MMD, ``1/ratio²`` of the sharp law; the same at every sample size.
    interval : tuple of float
        95 % bootstrap interval of ``mmd`` over the points given.
    transport : float
        Factor for Wasserstein-1 in the limit of small cells: |Σ| where the quotient keeps the dimension d ≥ 2,
        |Σ|² for uniform laws on a line or circle (other laws there have factors of their own), infinite for a Lie
        group (there the exponent changes).
    reach : KernelReach
        a_{Σ,k}, C_{Σ,k} and the mean kernel.
    """

    order: int | float
    bandwidth: float
    mmd: float
    interval: tuple[float, float]
    transport: float
    reach: KernelReach


def samples_saved(
    x: Tensor, action: Isometries, bandwidth: float | None = None, resamples: int = 200, seed: int = 0
) -> SamplesSaved:
    """Predict, from some points of a law, the gain of a group: the chapter's calculator.

    Parameters
    ----------
    x
        Points of the invariant law, shape ``(n, dim)``, n ≥ 10; a few hundred suffice.
    action
        The group.
    bandwidth
        Width of the Gaussian kernel; by default the median distance between the points.
    resamples, seed
        Bootstrap resamples of the points, and the seed of their draw.

    Raises
    ------
    TypeError, ValueError
        Points that do not fit the group, fewer than ten of them, a bandwidth that is not positive.
    """
    check_action(action).check_points("x", x)
    if x.ndim != 2 or len(x) < 10:
        raise ValueError(f"x must have shape (n, {action.dim}) with n ≥ 10, got {tuple(x.shape)}")
    check_int("resamples", resamples, minimum=10)
    if bandwidth is None:
        distances = action.plain_distance(x, x)
        bandwidth = float(distances[distances > 0].median()) if bool((distances > 0).any()) else 0.0
    reach = kernel_reach(x, action, bandwidth)
    kernel = orbit_kernel(x, x, action, bandwidth)
    generator, factors, n = seeded(seed), [], len(x)
    diagonal = kernel.diagonal()
    for _ in range(resamples):
        # Multinomial weights; a pair of copies of one point is no pair of independent points, so it is left out.
        w = torch.bincount(torch.randint(n, (n,), generator=generator), minlength=n).to(kernel)
        own, total = float(w @ diagonal) / n, float(w @ kernel @ w - w**2 @ diagonal)
        mean = total / float(n**2 - (w**2).sum())
        factors.append((1 - mean) / max(own - mean, 1e-300))
    low, high = np.quantile(factors, [0.025, 0.975])
    transport = math.inf if math.isinf(action.order) else float(action.order) ** (2 if action.quotient_dim == 1 else 1)
    return SamplesSaved(action.order, float(bandwidth), reach.factor, (float(low), float(high)), transport, reach)
