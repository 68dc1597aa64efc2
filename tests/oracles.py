"""Slow and plain versions of what lib computes fast, to compare with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from lib.mean_field.descent import TeacherData
from lib.symmetry.representations import Representation
from lib.transport.divergences import transport
from lib.transport.quotient import Isometries


def symmetrize_measure(points: Tensor, action: Representation, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return points ``(|G|·n, dim)`` and weights of S^Σ P, every point of P spread evenly over its images."""
    group = action.group
    mass = points.new_full((len(points),), 1 / len(points), dtype=torch.float64) if weights is None else weights
    images = action.apply(group.unsqueeze(group.elements()), points)
    return images.flatten(0, 1), mass.repeat(group.order) / group.order


def feature_average(
    f: Callable[[Tensor], Tensor], source: Representation, target: Representation | None = None
) -> Callable[[Tensor], Tensor]:
    """Return ``x ↦ (1/|G|) Σ_g ρ_target(g)⁻¹ f(ρ_source(g) x)``, without a target ``(1/|G|) Σ_g f(ρ_source(g) x)``."""

    def averaged(x: Tensor) -> Tensor:
        values = [(g, f(source.apply(g, x))) for g in source.group.elements()]
        back = [y if target is None else target.apply(source.group.inverse(g), y) for g, y in values]
        return torch.stack(back).double().mean(0).to(back[0])

    return averaged


def w1_symmetrised(x: Tensor, y: Tensor, action: Isometries) -> float:
    """Return the Wasserstein-1 distance of the symmetrised samples, |Σ|² times the work of ``w1``."""
    clouds = [action.images(sample).flatten(0, 1) for sample in (x, y)]
    return transport(action.plain_distance(*clouds), *(np.full(len(cloud), 1 / len(cloud)) for cloud in clouds))


def w1_invariant_program(x: Tensor, y: Tensor, action: Isometries) -> float:
    """Return the supremum of ``E γ(x) − E γ(y)`` over invariant 1-Lipschitz γ by a linear program.

    One unknown per point (γ is constant on its orbit) and one inequality ``γ_i − γ_j ≤ ‖p_i − σ p_j‖`` for every pair
    of points and *every* group element; no minimum over the group is taken.
    """
    points = torch.cat([x, y])
    gain = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    limits = action.plain_distance(points, action.images(points)).double().numpy()  # (|Σ|, N, N)
    i, j = np.nonzero(~np.eye(len(points), dtype=bool))
    differences = np.tile(np.eye(len(points))[i] - np.eye(len(points))[j], (len(limits), 1))
    unit = float(limits.max()) or 1.0  # tolerances are absolute
    found = linprog(-gain.double().numpy(), differences, limits[:, i, j].ravel() / unit)
    return -unit * float(found.fun)


class FixedData(TeacherData):
    """The same points ``(B, dim X)`` and outputs ``(networks, B, dim Y)`` at every step: full-batch training."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.batch = x, y, len(x)

    def draw(self, generator: torch.Generator, steps: int, like: Tensor) -> Tensor:
        return self.x.to(like).expand(steps, -1, -1)

    def targets(self, x: Tensor) -> Tensor:
        return self.y.to(x).expand(*x.shape[:-2], -1, -1, -1)
