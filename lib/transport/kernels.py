"""Maximum mean discrepancy under a group: the Gaussian kernel averaged over orbits, and what it saves.

Any finite group is summed over its images; the rotations of the plane have :mod:`lib.transport.turned_kernel`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_float
from lib.transport.quotient import CHUNK, Isometries, polar
from lib.transport.turned_kernel import BLOCK, LARGEST_ROOT, TurnedKernel


def orbit_kernel(x: Tensor, y: Tensor, action: Isometries, bandwidth: float) -> Tensor:
    """Return ``k^Σ(x_i, y_j) = (1/|Σ|) Σ_σ exp(−‖x_i − σ y_j‖² / 2s²)``, all images included.

    Points have shapes ``(..., n, dim)`` and ``(..., m, dim)``, the result ``(..., n, m)``. The group is finite, or
    ``radial(2)``: all rotations of the plane. The bandwidth is s > 0.
    """
    action.check(x, y)
    check_float("bandwidth", bandwidth, minimum=1e-300)
    if action.turns is not None:
        (r, theta), (rho, phi) = polar(x), polar(y)
        radii = [float(f(t.detach())) for f in (torch.min, torch.max) for t in (r, rho)]
        average = TurnedKernel(action.turns, bandwidth, min(radii), max(radii))
        r, rho = torch.broadcast_tensors(r[..., :, None], rho[..., None, :])
        return average(r, rho, theta[..., :, None] - phi[..., None, :])
    total, size = 0.0, max(1, CHUNK // (x[..., 0].numel() * y.shape[-2]))
    for block in action.images(y).split(size):
        total = total + torch.exp(action.plain_distance(x, block) ** 2 / (-2 * bandwidth**2)).sum(0)
    return total / action.order


def mmd_squared(x: Tensor, y: Tensor, action: Isometries, bandwidth: float) -> Tensor:
    """Return the squared MMD of replicates of two samples under a group (Gretton et al. 2012, the biased estimate).

    ``‖(1/n) Σ k^Σ(x_i, ·) − (1/m) Σ k^Σ(y_j, ·)‖²`` in the space of k, the square of the supremum over invariant
    functions in its unit ball (Chen et al. 2023).

    Samples have shapes ``(replicates, n, dim)`` and ``(replicates, m, dim)``; the result, ``(replicates,)``, is ≥ 0.
    Group and bandwidth are as in :func:`orbit_kernel`.

    >>> from lib.transport.quotient import turns
    >>> x = torch.randn(2, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> mmd_squared(x, -x, turns(2), 1.0).abs() < 1e-12  # half turns do not see a half turn
    tensor([True, True])
    """
    action.check(x, y)
    n, m = x.shape[1], y.shape[1]
    points = torch.cat([x, y], 1)
    w = torch.cat([x.new_full((n,), 1 / n), x.new_full((m,), -1 / m)])
    if action.turns is None:
        blocks = points.split(max(1, CHUNK // (4 * len(w) ** 2)))
        return torch.cat([torch.einsum("rij,i,j->r", orbit_kernel(b, b, action, bandwidth), w, w) for b in blocks])
    return _mmd_of_turns(points, w, action.turns, bandwidth)


def _mmd_of_turns(points: Tensor, w: Tensor, order: int | float, s: float) -> Tensor:
    """Return ``Σ w_i w_j k^Σ`` from moments, or from the diagonal and the pairs i < j where those are fewer."""
    i, j = torch.triu_indices(len(w), len(w), offset=1, device=w.device)
    pair = 2 * w[i] * w[j]
    radius, angle = polar(points)
    average = TurnedKernel(order, s, *(float(r) for r in radius.detach().aminmax()))
    if average.degree**2 < len(points) * len(i) and order**2 > average.reach and average.high <= LARGEST_ROOT:
        return average.quadratic_form(radius, angle, w)
    values = []
    for r, theta in zip(*(t.split(max(1, BLOCK // max(1, len(i)))) for t in (radius, angle)), strict=True):
        off = average(r[:, i], r[:, j], theta[:, i] - theta[:, j]) @ pair
        values.append(off + average(r, r, torch.zeros_like(r)) @ w**2)
    return torch.cat(values).clamp_min(0)


@dataclass(frozen=True)
class KernelReach:
    """How far a kernel reaches across the orbits of a group, and what that leaves of the gain."""

    order: int | float  #: |Σ|
    a: float  #: a_{Σ,k}: mean of ``k(x, σx)`` over points and elements σ ≠ e
    mean: float  #: ``E k(x, x′)`` for independent points of the invariant law

    @property
    def constant(self) -> float:
        """``C = sqrt(a + (1 − a)/|Σ|)`` of Chen et al. 2023; ``C² = E k^Σ(x, x)``."""
        return math.sqrt(self.a + (1 - self.a) / self.order)

    @property
    def ratio(self) -> float:
        """Root-mean-square MMD with the group over that without, equal laws: ``sqrt((C² − mean)/(1 − mean))``."""
        return math.sqrt(max(self.constant**2 - self.mean, 0.0) / (1 - self.mean))

    @property
    def factor(self) -> float:
        """How many plain samples one sample is worth, ``1/ratio²``."""
        return math.inf if self.ratio == 0 else self.ratio**-2


def kernel_reach(x: Tensor, action: Isometries, bandwidth: float) -> KernelReach:
    """Return unbiased estimates of a_{Σ,k} and of the mean kernel from points of a law, shape ``(n, dim)``, n ≥ 2.

    Points are of the invariant law, or one per orbit (both give the same); the rest is as in :func:`orbit_kernel`.
    """
    kernel = orbit_kernel(x.detach(), x.detach(), action, bandwidth)
    diagonal, n = float(kernel.diagonal().mean()), len(x)
    share = 1 / action.order  # of the neutral element; 0 for a Lie group
    a = (diagonal - share) / (1 - share) if share < 1 else 0.0
    return KernelReach(action.order, a, float((kernel.sum() - kernel.diagonal().sum()) / (n * (n - 1))))
