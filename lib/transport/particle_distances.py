"""How far apart two clouds of particles are: Wasserstein-2 and its scale-free form.

Clouds are tensors of shape ``(..., n, d)`` with equal masses 1/n; see :func:`lib.transport.divergences.transport`.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from lib.checks import unit_of
from lib.transport.divergences import transport


def squared_w2(a: Tensor, b: Tensor) -> Tensor:
    """Return W2²(μ, ν) = min over couplings of E‖x − y‖², exactly; float64, solved on the CPU.

    Clouds have shapes ``(..., n, d)`` and ``(..., m, d)``; batch axes broadcast.
    """
    a, b, unit = _scaled(a, b)
    return unit**2 * _squared_w2(a, b)


def rmd2(a: Tensor, b: Tensor) -> Tensor:
    """Return RMD²(μ, ν) = W2²(μ, ν) / (2 E‖x‖² + 2 E‖y‖²) ∈ [0, 1] (Maass, Fontbona 2024); 0 for two clouds at 0."""
    a, b, _ = _scaled(a, b)
    return _relative(_squared_w2(a, b), a, b)


def projection_rmd2(particles: Tensor, projector: Tensor) -> Tensor:
    """Return RMD²(μ, P_# μ) for an orthogonal projection P, in closed form, shape ``(...)``.

    W2²(μ, P_# μ) = E‖z − Pz‖²: no coupling does better than sending every particle to the nearest point of P's range.
    """
    particles = particles.double() / unit_of(particles, (-2, -1))
    image = particles @ projector.to(particles).mT
    return _relative((particles - image).square().sum(-1).mean(-1), particles, image)


def _relative(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    scale = sum(2 * t.square().sum(-1).mean(-1) for t in (a, b))
    return torch.where(scale > 0, w / torch.where(scale > 0, scale, 1), 0.0)


def _squared_w2(a: Tensor, b: Tensor) -> Tensor:
    """Return W2² of clouds with the same batch axes."""
    x, y = (t.detach().cpu().double().reshape(-1, *t.shape[-2:]).numpy() for t in (a, b))
    masses = [np.full(t.shape[1], 1 / t.shape[1]) for t in (x, y)]
    costs = (torch.from_numpy(cdist(one, other, "sqeuclidean")) for one, other in zip(x, y, strict=True))
    values = [transport(cost, *masses) for cost in costs]
    return torch.tensor(values, dtype=torch.float64, device=a.device).reshape(a.shape[:-2])


def _scaled(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return pairs of clouds, expanded to common batch axes and each divided by its unit, and the units."""
    shape = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (t.double().expand(*shape, -1, -1) for t in (a, b))
    unit = torch.maximum(*(unit_of(t, (-2, -1)) * t.any(-1, True).any(-2, True) for t in (a, b)))
    unit = torch.where(unit > 0, unit, 1)
    return a / unit, b / unit, unit[..., 0, 0]
