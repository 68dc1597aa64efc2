"""The Gaussian kernel of the plane averaged over turns, as a sum of few harmonics or of few images.

Averaging over the rotations of the plane is a convolution over the angle. It keeps the Fourier coefficients of the
kernel whose frequency is a multiple of the number of turns and deletes all others, so that a large group is *cheaper*
than a small one: a handful of harmonics instead of |Σ| kernel matrices, and no image is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from scipy.fft import dct
from scipy.special import ive
from torch import Tensor

from lib.checks import check_float

BLOCK = 2**17  # pairs per block: small enough to stay in the cache
LARGEST_ROOT = 2.0**15  # SciPy's Bessel functions of higher order end at z = 2³⁰
_NEGLIGIBLE = 1e-17  # harmonics below this size cannot be seen in float64


class TurnedKernel:
    """The Gaussian kernel of points (r, θ) and (ρ, θ − δ) of the plane, averaged over the turns by 2π/order.

    With ``z = rρ/s²`` the kernel is ``exp(−(r − ρ)²/2s²) Σ_p κ_p(z) cos(pδ)``, where ``κ_p(z) = exp(−z) I_p(z)``;
    averaging keeps the p that are multiples of the order. For p > 0, Chebyshev polynomials in √z carry κ_p from nodes
    to every pair. Where fewer images than harmonics are near, the images are summed instead.

    Both sums and the polynomials are cut where the rest is below 1e-17. Harmonics: ``κ_p(z) < 1e-17`` for
    p ≥ 9√z + 12. Images: one at an angle α from the nearest has the factor ``exp(−2z sin²(α/2))``, below 1e-17 where
    ``√z sin(α/2) > 4.43``. Polynomials: :func:`chebyshev_terms`; they are wrong for radii below ``smallest`` or above
    ``largest``. The order is the number of turns, or ``math.inf``.
    """

    def __init__(self, order: int | float, bandwidth: float, smallest: float, largest: float) -> None:
        self.order, self.s = order, bandwidth
        self.low = smallest / bandwidth
        self.high = max(largest / bandwidth, 1.001 * self.low + 0.01)  # apart, also after rounding to float32
        check_float("largest / bandwidth", self.high, maximum=1e15)
        self.reach = int(9 * self.high) + 12
        self.images = order
        if order < math.inf and self.low > 4.43:
            self.images = min(order, 2 * math.ceil(order * math.asin(4.43 / self.low) / math.pi - 0.5) + 1)
        few = self.images <= 1 + 4 * self.reach / order or self.high > LARGEST_ROOT
        self.by_images = order <= self.reach and few

    @cached_property
    def series(self) -> list[list[float]]:
        """Chebyshev coefficients of κ_p in √z for p = order, 2·order, … up to ``reach``, without negligible ends."""
        if self.order > self.reach:
            return []
        count, kept = chebyshev_terms(self.low, self.high), []
        nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        z = (self.low + (self.high - self.low) * (nodes + 1) / 2) ** 2
        for p in range(self.order, self.reach + 1, self.order):
            fit = dct(ive(p, z)) / count
            fit[0] /= 2
            kept.append(np.trim_zeros(np.where(np.abs(fit) > _NEGLIGIBLE, fit, 0.0), "b").tolist())
        while kept and not kept[-1]:
            kept.pop()
        return kept

    def __call__(self, r: Tensor, rho: Tensor, delta: Tensor) -> Tensor:
        """Return the averaged kernel, shape of the arguments."""
        if self.by_images:
            return self._sum_images(r, rho, delta)
        terms = self.harmonics(r, rho)
        total = next(terms)
        if not self.series:
            return total
        cosine = torch.cos(delta * self.order)
        before, now = torch.ones_like(cosine), cosine
        for harmonic in terms:
            total += harmonic * now
            before, now = now, 2 * cosine * now - before
        return total

    def harmonics(self, r: Tensor, rho: Tensor) -> Iterator[Tensor]:
        """Yield the coefficients ``F_p(r, ρ)`` of ``cos pδ`` for the multiples p ≥ 0 of the order."""
        radial, z = torch.exp((r - rho) ** 2 / (-2 * self.s**2)), r * rho / self.s**2
        yield radial * torch.special.i0e(z)
        if self.series:
            t = (2 / (self.high - self.low)) * (z.sqrt() - self.low) - 1
        for coefficients in self.series:
            yield 2 * radial * _chebyshev(coefficients, t)

    @property
    def degree(self) -> int:
        """Number of Chebyshev polynomials of one radius that leave less than 1e-15 of the kernel."""
        return int(9 * (self.high - self.low) / 2) + 24

    def quadratic_form(self, r: Tensor, theta: Tensor, w: Tensor) -> Tensor:
        """Return ``Σ_ij w_i w_j k^Σ`` of replicates of points ``(replicates, n)`` with weights ``(n,)``.

        Each harmonic ``F_p(r, ρ)`` is a polynomial ``T(r)ᵀ A_p T(ρ)`` in Chebyshev polynomials T of either radius, so
        the sum is ``Σ_p c_pᴴ A_p c_p`` with the moments ``c_p = Σ_i w_i T(r_i) exp(ipθ_i)``: work for every point
        instead of every pair.
        """
        size, scale = self.degree, 2 / (self.high - self.low)
        nodes = np.cos(np.pi * (np.arange(size) + 0.5) / size)
        fit = 2 / size * np.cos(np.arange(size)[:, None] * np.arccos(nodes))
        fit[0] /= 2
        fit, grid = (torch.from_numpy(t).to(r) for t in (fit, self.s * (self.low + (nodes + 1) / scale)))
        first, *rest = (fit @ f @ fit.mT for f in self.harmonics(grid[:, None], grid))
        coupling = torch.stack([first, *rest, *rest])  # a cosine and a sine for every frequency but zero
        frequency, values = self.order * torch.arange(1, len(rest) + 1, device=r.device).to(r), []
        for some, angle in zip(*(t.split(max(1, 4 * BLOCK // (len(w) * size))) for t in (r, theta)), strict=True):
            phase = frequency[:, None] * angle[:, None]
            wave = torch.cat([torch.ones_like(angle)[:, None], phase.cos(), phase.sin()], 1) * w
            moments = (wave @ _polynomials(scale * (some / self.s - self.low) - 1, size)).transpose(0, 1)
            values.append((moments @ coupling * moments).sum((0, 2)))
        return torch.cat(values).clamp_min(0)

    def _sum_images(self, r: Tensor, rho: Tensor, delta: Tensor) -> Tensor:
        """Return the sum over the nearest images, ``‖x − σy‖² = (r − ρ)² + 4rρ sin²((δ − α)/2)``."""
        step = 2 * math.pi / self.order
        half, root = (delta - step * torch.round(delta / step)) / 2, torch.sqrt(2 * r * rho) / self.s
        along, across, base = root * torch.sin(half), root * torch.cos(half), (r - rho) ** 2 / (-2 * self.s**2)
        total = torch.zeros_like(base)
        for k in range(-(self.images // 2), self.images - self.images // 2):
            chord = (along * math.cos(k * step / 2)).sub_(across, alpha=math.sin(k * step / 2))
            total += torch.addcmul(base, chord, chord, value=-1).exp_()
        return total / self.order


def chebyshev_terms(low: float, high: float) -> int:
    """Return how many Chebyshev nodes on [low, high] interpolate every κ_p(x²) with an error below 1e-17.

    By its integral over the angle, ``|κ_p(x²)| ≤ max(1, exp(2(v² − u²)))`` at x = u + iv. With M the maximum over the
    Bernstein ellipse of parameter ϱ > 1, n nodes leave at most ``4M ϱ^{1−n} / (ϱ − 1)`` (Trefethen 2013, Theorem 8.2);
    the best ϱ of a grid is taken. About 30 √(high − low) terms for low = 0, 40 where high ≤ 3 low.
    """
    half, centre = (high - low) / 2, (high + low) / 2
    excess = np.geomspace(1e-6, 100, 400)
    major, minor = ((1 + excess + sign / (1 + excess)) / 2 for sign in (1, -1))
    t = np.clip(-major * centre / (half * (major**2 + minor**2)), -1, 1)  # where v² − u² is largest
    growth = 2 * np.maximum((half * minor) ** 2 * (1 - t**2) - (centre + half * major * t) ** 2, 0)
    return 1 + math.ceil(((growth + np.log(4 / excess / _NEGLIGIBLE)) / np.log1p(excess)).min())


def _polynomials(t: Tensor, count: int) -> Tensor:
    """Return ``T_0(t), …, T_{count−1}(t)`` along a new last axis."""
    terms, double = [torch.ones_like(t), t], 2 * t
    while len(terms) < count:
        terms.append(torch.mul(double, terms[-1]).sub_(terms[-2]))
    return torch.stack(terms, -2).mT


def _chebyshev(coefficients: list[float], t: Tensor) -> Tensor:
    """Return ``Σ c_k T_k(t)`` by Clenshaw's recurrence."""
    above, here, double = torch.zeros_like(t), torch.zeros_like(t), 2 * t
    for c in coefficients[:0:-1]:
        above, here = here, torch.mul(double, here).sub_(above).add_(c)
    return torch.mul(t, here).sub_(above).add_(coefficients[0] if coefficients else 0.0)
