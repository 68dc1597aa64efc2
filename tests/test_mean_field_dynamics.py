"""What the page *Mean-field dynamics* writes by hand: the noisy step and the distance of two clouds."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from lib.symmetry.actions import natural, planar
from lib.symmetry.groups import Dihedral, Symmetric
from lib.training.mean_field import Layer, intrinsic_derivative
from lib.transport.particle_distances import squared_w2
from tests.chapters import load


def randn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("group", [Symmetric(3), Dihedral(4)])
def test_a_noisy_step_is_force_decay_and_noise(group: Symmetric | Dihedral) -> None:
    page = load("mean_field_dynamics")
    rep = natural(group) if isinstance(group, Symmetric) else planar(group)
    unit = Layer(rep, rep, "tanh")
    z, kick, x, y = randn(1, 7, rep.dim**2), randn(2, 7, rep.dim**2), randn(3, 9, rep.dim), randn(4, 9, rep.dim)
    moved = page.noisy_step(unit, z, x, y, kick, rate=2.0, decay=0.3, heat=0.1)
    force = intrinsic_derivative(unit, "vanilla", z, x, y) + 0.3 * z
    torch.testing.assert_close(moved, z - 2 / 7 * force + (2 * 2 / 7 * 0.1) ** 0.5 * kick)


def test_plain_distances_are_those_of_an_assignment() -> None:
    page = load("mean_field_dynamics")
    a, b = randn(5, 8, 3), randn(6, 8, 3)
    cost = torch.cdist(a, b).square().numpy()
    best = cost[linear_sum_assignment(cost)].mean()
    assert page.plain_w2(a, b) == pytest.approx(best, rel=1e-9)
    assert page.plain_w2(a, b[:5]) == pytest.approx(float(squared_w2(a, b[:5])), rel=1e-9)
