"""How far apart two clouds of particles are: Wasserstein-2 and its scale-free form.

Clouds are tensors of shape ``(..., n, d)`` with equal masses 1/n. Exact values come from the assignment solver of SciPy
(equal sizes) or the network simplex of POT.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from lib.checks import check_tensor, unit_of
from lib.transport.divergences import transport


def squared_w2(a: Tensor, b: Tensor) -> Tensor:
    """Return W2²(μ, ν) = min over couplings of E‖x − y‖², exactly.

    Parameters
    ----------
    a, b
        Clouds, shapes ``(..., n, d)`` and ``(..., m, d)``; batch axes broadcast.

    Returns
    -------
    Tensor
        One value per pair, float64; solved on the CPU.

    Raises
    ------
    TypeError, ValueError
        No tensors, an empty cloud, other dimensions, batch axes that do not fit.
    """
    a, b, unit = _scaled(a, b)
    values = unit**2 * _squared_w2(a, b)
    if not bool(values.isfinite().all()):
        raise ValueError("a and b must be clouds whose squared distances are finite, got points that are too far apart")
    return values


def rmd2(a: Tensor, b: Tensor) -> Tensor:
    """Return RMD²(μ, ν) = W2²(μ, ν) / (2 E‖x‖² + 2 E‖y‖²) ∈ [0, 1] (Maass, Fontbona 2024); 0 for two clouds at 0.

    Arguments and result as for :func:`squared_w2`.
    """
    a, b, _ = _scaled(a, b)
    return _relative(_squared_w2(a, b), a, b)


def projection_rmd2(particles: Tensor, projector: Tensor) -> Tensor:
    """Return RMD²(μ, P_# μ) for an orthogonal projection P, in closed form, shape ``(...)``.

    W2²(μ, P_# μ) = E‖z − Pz‖²: no coupling does better than sending every particle to the nearest point of P's range.

    Raises
    ------
    ValueError
        ``projector`` is not an orthogonal projection (tolerance 1e-9, in single precision 4e-6).
    """
    d = _cloud("particles", particles)
    p = check_tensor("projector", projector, (d, d), inexact=True, real=True)
    defect = max(float(gap.detach().abs().max()) for gap in (p - p.mT, p @ p - p))
    if not defect <= max(1e-9, 32 * torch.finfo(p.dtype).eps):
        raise ValueError(f"projector must be an orthogonal projection, it misses P = Pᵀ = P² by {defect:.1e}")
    particles = particles / unit_of(particles, (-2, -1))
    image = particles @ p.to(particles).mT
    gap = (particles - image).square().sum(-1).mean(-1)
    return _relative(gap.double(), particles, image)


def _exact(x: np.ndarray, y: np.ndarray) -> float:
    cost = cdist(x, y, "sqeuclidean")
    if len(x) == len(y):
        rows, columns = linear_sum_assignment(cost)
        return float(cost[rows, columns].mean())
    return transport(torch.from_numpy(cost), *(np.full(len(t), 1 / len(t)) for t in (x, y)))


def _relative(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    sizes = [t.double().square().sum(-1).mean(-1) for t in (a, b)]
    scale = 2 * sizes[0] + 2 * sizes[1]
    return torch.where(scale > 0, w / torch.where(scale > 0, scale, 1), 0.0)


def _cloud(name: str, points: Tensor) -> int:
    """Return the dimension of a cloud; raise if it is none."""
    check_tensor(name, points, (None, None), inexact=True, real=True)
    if 0 in points.shape:
        raise ValueError(f"{name} must hold at least one point, got shape {tuple(points.shape)}")
    return points.shape[-1]


def _squared_w2(a: Tensor, b: Tensor) -> Tensor:
    """Return W2² of clouds with the same batch axes."""
    x, y = (t.detach().cpu().double().reshape(-1, *t.shape[-2:]).numpy() for t in (a, b))
    values = [_exact(one, other) for one, other in zip(x, y, strict=True)]
    return torch.tensor(values, dtype=torch.float64, device=a.device).reshape(a.shape[:-2])


def _scaled(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return pairs of clouds, expanded to common batch axes and each divided by its unit, and the units."""
    if _cloud("a", a) != _cloud("b", b):
        raise ValueError(f"a and b must be points of one dimension, got {a.shape[-1]} and {b.shape[-1]}")
    try:
        shape = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"a and b must have batch axes that broadcast, got shapes {got}") from None
    a, b = (t.double().expand(*shape, -1, -1) for t in (a, b))
    unit = torch.maximum(*(unit_of(t, (-2, -1)) * t.any(-1, True).any(-2, True) for t in (a, b)))
    unit = torch.where(unit > 0, unit, 1)
    return a / unit, b / unit, unit[..., 0, 0]
