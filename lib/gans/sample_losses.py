"""Two losses between samples that need no discriminator: maximum mean discrepancy and Sinkhorn divergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lib.checks import check_callable, check_float, check_instance, check_int, check_tensor


def squared_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return ‖x_i − y_j‖², shape ``(..., n, m)``, from points ``(..., n, d)`` and ``(..., m, d)``."""
    return (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)


def gaussian_kernel(bandwidths: Sequence[float] = (0.5, 1.0, 2.0)) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the kernel ``k(x, y) = mean over s of exp(−‖x − y‖²/2s²)``, a function of two clouds of points.

    Raises
    ------
    ValueError
        No bandwidth, or one that is not positive.
    """
    sizes = [check_float("bandwidths", s, minimum=1e-12) for s in check_instance("bandwidths", bandwidths, Sequence)]
    if not sizes:
        raise ValueError("bandwidths must not be empty")

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        squares = squared_distance(x, y)
        return torch.stack([(squares / (-2 * s * s)).exp() for s in sizes]).mean(0)

    return kernel


def mmd_loss(x: Tensor, y: Tensor, kernel: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
    """Return the unbiased estimate of the squared maximum mean discrepancy (Gretton et al. 2012), one value per run.

    MMD is the supremum of E_Q γ − E_P γ over the unit ball of the kernel's space, which is invariant if the kernel is
    averaged over a group; no discriminator is trained.

    Parameters
    ----------
    x, y
        Points, shapes ``(..., n, d)`` and ``(..., m, d)`` with at least two points each.
    kernel
        Maps two clouds to the matrix ``(..., n, m)``; default :func:`gaussian_kernel`.

    Returns
    -------
    Tensor
        Shape ``(...)``; may be slightly negative.
    """
    _clouds(x, y, 2)
    k = gaussian_kernel() if kernel is None else check_callable("kernel", kernel)
    return _off_diagonal_mean(k(x, x)) + _off_diagonal_mean(k(y, y)) - 2 * k(x, y).mean((-2, -1))


def sinkhorn_loss(x: Tensor, y: Tensor, epsilon: float, iterations: int = 50) -> Tensor:
    """Return the Sinkhorn divergence OT_ε(x, y) − OT_ε(x, x)/2 − OT_ε(y, y)/2 (Feydy et al. 2019), one value per run.

    OT_ε(x, y) is the minimum of ⟨π, c⟩ + ε KL(π ‖ a ⊗ b) over the couplings π of two clouds with equal masses, for the
    squared distance c, or the supremum of E_x f + E_y g − ε (E exp((f + g − c)/ε) − 1) over two potentials. These are
    found without a graph: at the supremum only c responds to first order (the envelope theorem), so the gradient is
    that of ⟨π, c⟩.

    Parameters
    ----------
    x, y
        Points, shapes ``(..., n, d)`` and ``(..., m, d)``.
    epsilon
        Weight of the entropy, > 0, in units of the cost.
    iterations
        Steps of the potentials.

    Returns
    -------
    Tensor
        Shape ``(...)``.
    """
    _clouds(x, y, 1)
    check_float("epsilon", epsilon, minimum=1e-12)
    check_int("iterations", iterations)
    cross, one, other = (
        _entropic_cost(squared_distance(*pair), epsilon, iterations) for pair in ((x, y), (x, x), (y, y))
    )
    return cross - one / 2 - other / 2


def _entropic_cost(cost: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Return the dual value E f + E g − ε (E exp((f + g − c)/ε) − 1) at potentials found without a graph."""
    with torch.no_grad():
        f, g = cost.new_zeros(cost.shape[:-1]), cost.new_zeros(*cost.shape[:-2], cost.shape[-1])
        for _ in range(iterations):
            f, g = (f + _soft_minimum(cost, g, epsilon)) / 2, (g + _soft_minimum(cost.mT, f, epsilon)) / 2
        f = _soft_minimum(cost, g, epsilon)
    plan = ((f[..., :, None] + g[..., None, :] - cost) / epsilon).exp()
    return f.mean(-1) + g.mean(-1) - epsilon * (plan.mean((-2, -1)) - 1)


def _soft_minimum(cost: Tensor, potential: Tensor, epsilon: float) -> Tensor:
    """Return −ε log mean_j exp((potential_j − cost_ij)/ε)."""
    inner = (potential[..., None, :] - cost) / epsilon
    return -epsilon * (torch.logsumexp(inner, -1) - math.log(cost.shape[-1]))


def _off_diagonal_mean(matrix: Tensor) -> Tensor:
    n = matrix.shape[-1]
    return (matrix.sum((-2, -1)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)) / (n * (n - 1))


def _clouds(x: Tensor, y: Tensor, least: int) -> None:
    for name, cloud in (("x", x), ("y", y)):
        if check_tensor(name, cloud, (None, None), inexact=True, real=True).shape[-2] < least:
            raise ValueError(f"{name} must hold at least {least} points, got shape {tuple(cloud.shape)}")
    if x.shape[-1] != y.shape[-1] or x.shape[:-2] != y.shape[:-2]:
        raise ValueError(f"x and y must differ in the number of points only, got {tuple(x.shape)}, {tuple(y.shape)}")
