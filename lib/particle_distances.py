"""How far apart two clouds of particles are: Wasserstein-2 and its scale-free form.

Clouds are tensors of shape ``(..., n, d)`` with equal masses 1/n. Exact values come from the assignment solver of SciPy
(equal sizes) or the network simplex of POT; for clouds too large for these, Sinkhorn potentials give bounds on both
sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import ot
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from lib.checks import check_callable, check_float, check_int, check_tensor

EXACT_UP_TO = 6000  # particles in the smaller cloud


def squared_w2(a: Tensor, b: Tensor) -> Tensor:
    """Return W2²(μ, ν) = min over couplings of E‖x − y‖², exactly.

    Parameters
    ----------
    a, b
        Clouds, shapes ``(..., n, d)`` and ``(..., m, d)``; batch axes broadcast.

    Returns
    -------
    Tensor
        One value per pair, float64, on the CPU.

    Raises
    ------
    TypeError, ValueError
        No tensors, an empty cloud, other dimensions, batch axes that do not fit.
    """
    pairs, shape = _pairs(a, b)
    return torch.tensor([_exact(x, y) for x, y in pairs], dtype=torch.float64).reshape(shape)


def rmd2(a: Tensor, b: Tensor) -> Tensor:
    """Return RMD²(μ, ν) = W2²(μ, ν) / (2 E‖x‖² + 2 E‖y‖²) ∈ [0, 1] (Maass, Fontbona 2024); 0 for two clouds at 0.

    Arguments and result as for :func:`squared_w2`.
    """
    return _relative(squared_w2(a, b), a, b)


def projection_rmd2(particles: Tensor, projector: Tensor) -> Tensor:
    """Return RMD²(μ, P_# μ) for an orthogonal projection P, in closed form, shape ``(...)``.

    W2²(μ, P_# μ) = E‖z − Pz‖²: no coupling does better than sending every particle to the nearest point of P's range.

    Raises
    ------
    ValueError
        ``projector`` is not an orthogonal projection (tolerance 1e-9).
    """
    d = _cloud("particles", particles)
    p = check_tensor("projector", projector, (d, d), inexact=True, real=True)
    defect = max(float((p - p.mT).abs().max()), float((p @ p - p).abs().max()))
    if not defect <= 1e-9:
        raise ValueError(f"projector must be an orthogonal projection, it misses P = Pᵀ = P² by {defect:.1e}")
    image = particles @ p.to(particles).mT
    gap = (particles - image).square().sum(-1).mean(-1)
    return _relative(gap.double().cpu(), particles, image)


@dataclass(frozen=True)
class Estimate:
    """A value with a guaranteed error.

    Attributes
    ----------
    value : float
        The value.
    error : float
        The true value lies in [value − error, value + error]; 0 where it is exact up to rounding.
    """

    value: float
    error: float


def estimate_rmd2(a: Tensor, b: Tensor, exact_up_to: int = EXACT_UP_TO, regularisation: float = 1e-3) -> Estimate:
    """Return RMD² of one pair: exact up to a size, beyond it the middle of the bounds of :func:`squared_w2_bounds`.

    Parameters
    ----------
    a, b
        Clouds, shapes ``(n, d)`` and ``(m, d)``.
    exact_up_to
        Largest size of the smaller cloud that is solved exactly.
    regularisation
        As for :func:`squared_w2_bounds`.
    """
    check_int("exact_up_to", exact_up_to, minimum=0)
    if _pairs(a, b)[1]:
        raise ValueError(f"estimate_rmd2 takes one pair of clouds, got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if min(a.shape[-2], b.shape[-2]) <= exact_up_to:
        return Estimate(float(rmd2(a, b)), 0.0)
    bounds = torch.tensor(squared_w2_bounds(a, b, regularisation), dtype=torch.float64)
    low, high = _relative(bounds, a[None], b[None]).tolist()
    return Estimate((low + high) / 2, (high - low) / 2)


def squared_w2_bounds(a: Tensor, b: Tensor, regularisation: float = 1e-3, iterations: int = 100) -> tuple[float, float]:
    """Return a lower and an upper bound of W2² of one pair from entropic transport.

    Sinkhorn's potential f, made feasible by g(y) = min_x ‖x − y‖² − f(x), gives the lower bound E f + E g by duality.
    Sinkhorn's plan, rounded to the exact masses (Altschuler, Weed, Rigollet 2017, Algorithm 2), costs the upper bound.

    Parameters
    ----------
    a, b
        Clouds, shapes ``(n, d)`` and ``(m, d)``.
    regularisation
        Weight of the entropy relative to the mean cost; reached from 1 by factors of about 3.
    iterations
        Sinkhorn steps for each weight. However few, the bounds hold.
    """
    check_float("regularisation", regularisation, minimum=1e-6, maximum=1.0)
    check_int("iterations", iterations)
    pairs, shape = _pairs(a, b)
    if shape:
        raise ValueError(f"squared_w2_bounds takes one pair of clouds, got batch axes {tuple(shape)}")
    cost = torch.from_numpy(cdist(*pairs[0], "sqeuclidean"))
    n, m = cost.shape
    f, unit = torch.zeros(n, 1, dtype=torch.float64), float(cost.mean())
    if unit == 0:  # all points of both clouds at one place
        return 0.0, 0.0
    for weight in np.geomspace(1.0, regularisation, 1 + int(np.ceil(-np.log(regularisation) / np.log(3.0)))):
        eps = weight * unit
        for _ in range(iterations):
            g = -eps * torch.logsumexp((f - cost) / eps, 0, keepdim=True) + eps * np.log(n)
            f = -eps * torch.logsumexp((g - cost) / eps, 1, keepdim=True) + eps * np.log(m)
    lower = float(f.mean() + (cost - f).amin(0).mean())
    return lower, float((_round((((f + g - cost) / eps).exp() / (n * m))) * cost).sum())


def sample_floor(
    law: Callable[[int, torch.Generator], Tensor],
    sizes: Sequence[int],
    repeats: int,
    generator: torch.Generator,
    partner: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return RMD² that sampling alone makes: between two independent samples, or a sample and its ``partner``.

    Parameters
    ----------
    law
        ``law(n, generator)`` returns n independent points, shape ``(n, d)``.
    sizes
        Numbers of points.
    repeats
        Repetitions for each size.
    generator
        Source of randomness.
    partner
        What a sample is compared with, for example its symmetrisation; default: another sample.

    Returns
    -------
    Tensor
        Shape ``(sizes, repeats)``.
    """
    check_callable("law", law)
    check_int("repeats", repeats)
    if not len(sizes):
        raise ValueError("sizes must hold at least one number of points, got none")

    def sample(size: int) -> Tensor:
        points = check_tensor("law(n, generator)", law(size, generator), (size, None), inexact=True)
        if points.ndim != 2:
            raise ValueError(f"law(n, generator) must have shape (n, d), got {tuple(points.shape)} for n = {size}")
        return points

    floors = []
    for size in sizes:
        check_int("sizes", size)
        first = [sample(size) for _ in range(repeats)]
        second = [sample(size) if partner is None else partner(points) for points in first]
        floors.append(rmd2(torch.stack(first), torch.stack(second)))
    return torch.stack(floors)


def _exact(x: np.ndarray, y: np.ndarray) -> float:
    cost = cdist(x, y, "sqeuclidean")
    if not np.isfinite(cost).all():
        raise ValueError("a and b must be clouds whose squared distances are finite, got points that are too far apart")
    if len(x) == len(y):
        rows, columns = linear_sum_assignment(cost)
        return float(cost[rows, columns].mean())
    return float(ot.emd2(ot.unif(len(x)), ot.unif(len(y)), cost, numItermax=100_000_000))


def _round(plan: Tensor) -> Tensor:
    """Return a coupling of the uniform measures near a nonnegative matrix."""
    n, m = plan.shape
    plan = plan * (1 / n / plan.sum(1, keepdim=True)).clamp(max=1)
    plan = plan * (1 / m / plan.sum(0, keepdim=True)).clamp(max=1)
    rows, columns = 1 / n - plan.sum(1, keepdim=True), 1 / m - plan.sum(0, keepdim=True)
    missing = rows.sum()
    return plan + rows * columns / missing if missing > 0 else plan


def _relative(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    sizes = [t.double().square().sum(-1).mean(-1).cpu() for t in (a, b)]
    scale = 2 * sizes[0] + 2 * sizes[1]
    return torch.where(scale > 0, w / scale.clamp(min=1e-300), 0.0)


def _cloud(name: str, points: Tensor) -> int:
    """Return the dimension of a cloud; raise if it is none."""
    if check_tensor(name, points, (None, None), inexact=True).is_complex():
        raise TypeError(f"{name} must be real, got {points.dtype}")
    if 0 in points.shape:
        raise ValueError(f"{name} must hold at least one point, got shape {tuple(points.shape)}")
    return points.shape[-1]


def _pairs(a: Tensor, b: Tensor) -> tuple[list[tuple[np.ndarray, np.ndarray]], torch.Size]:
    """Return the pairs of clouds as float64 arrays, and the batch shape."""
    if _cloud("a", a) != _cloud("b", b):
        raise ValueError(f"a and b must be points of one dimension, got {a.shape[-1]} and {b.shape[-1]}")
    try:
        shape = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"a and b must have batch axes that broadcast, got shapes {got}") from None
    x, y = (t.detach().cpu().double().expand(*shape, -1, -1).reshape(-1, *t.shape[-2:]).numpy() for t in (a, b))
    return list(zip(x, y, strict=True)), shape
