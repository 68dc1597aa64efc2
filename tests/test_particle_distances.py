"""Distances of clouds: closed forms, independent solvers, and bounds that hold."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from lib.mean_field.units import Layer
from lib.symmetry.actions import natural
from lib.symmetry.groups import Symmetric
from lib.transport.particle_distances import projection_rmd2, rmd2, squared_w2


def cloud(n: int, d: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(n=st.integers(1, 5), seed=st.integers(0, 50))
def test_equal_sizes_against_all_assignments(n: int, seed: int) -> None:
    a, b = cloud(n, seed=seed), cloud(n, seed=seed + 100)
    best = min(float((a - b[list(order)]).square().sum(-1).mean()) for order in itertools.permutations(range(n)))
    assert squared_w2(a, b) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 4), (3, 5), (6, 4)])
def test_unequal_sizes_against_a_linear_program(n: int, m: int) -> None:
    a, b = cloud(n), cloud(m, seed=1)
    cost = torch.cdist(a, b).square().flatten().numpy()
    rows = torch.kron(torch.eye(n), torch.ones(1, m))
    columns = torch.kron(torch.ones(1, n), torch.eye(m))
    masses = torch.cat([torch.full((n,), 1 / n), torch.full((m,), 1 / m)]).double()
    solved = linprog(cost, A_eq=torch.cat([rows, columns]).numpy(), b_eq=masses.numpy())
    assert float(squared_w2(a, b)) == pytest.approx(solved.fun, abs=1e-7)


def test_on_the_line_sorting_is_optimal() -> None:
    a, b = cloud(50, 1), 2 * cloud(50, 1, seed=1) + 3
    assert float(squared_w2(a, b)) == pytest.approx(float((a.sort(0)[0] - b.sort(0)[0]).square().mean()), abs=1e-12)


def test_a_shift_costs_its_square() -> None:
    a, shift = cloud(30), torch.tensor([1.0, -2, 0.5]).double()
    assert float(squared_w2(a, a + shift)) == pytest.approx(float(shift.square().sum()), abs=1e-12)


def test_batch_axes_broadcast() -> None:
    a, b = torch.stack([cloud(6, seed=s) for s in range(6)]).view(3, 2, 6, 3), cloud(12, seed=9)
    values = squared_w2(a, b)
    assert values.shape == (3, 2)
    assert values[2, 1] == squared_w2(a[2, 1], b)
    assert rmd2(a, b)[1, 0] == rmd2(a[1, 0], b)


@given(seed=st.integers(0, 50), scale=st.floats(0.01, 100))
def test_rmd_is_relative(seed: int, scale: float) -> None:
    a, b = cloud(7, seed=seed), cloud(7, seed=seed + 1)
    value = float(rmd2(a, b))
    assert 0 <= value <= 1
    assert float(rmd2(scale * a, scale * b)) == pytest.approx(value, rel=1e-9)
    assert float(rmd2(a, b)) == pytest.approx(float(rmd2(b, a)), rel=1e-12)
    assert float(rmd2(a, a)) == 0.0


def test_rmd_at_its_ends() -> None:
    zero = torch.zeros(3, 2).double()
    assert float(rmd2(zero, zero)) == 0.0
    one = torch.tensor([[1.0, 0.0]]).double()
    assert float(rmd2(one, -one)) == pytest.approx(1.0)
    assert float(rmd2(one, zero)) == pytest.approx(0.5)


def test_the_projection_is_the_nearest_law() -> None:
    """The closed form is the optimal transport, and no other law on the subspace is nearer."""
    unit = Layer(natural(Symmetric(2)), natural(Symmetric(2)))
    z = cloud(40, 4)
    closed = projection_rmd2(z, unit.fixed)
    assert float(closed) == pytest.approx(float(rmd2(z, z @ unit.fixed)), abs=1e-12)
    other = cloud(40, 4, seed=3) @ unit.fixed
    assert squared_w2(z, other) > squared_w2(z, z @ unit.fixed)
    assert float(projection_rmd2(z @ unit.fixed, unit.fixed)) < 1e-30
    assert projection_rmd2(z.expand(2, 5, -1, -1), unit.fixed).shape == (2, 5)
    mean = torch.full((3, 3), 1 / 3)  # misses P = P² by 3e-8
    assert torch.allclose(projection_rmd2(cloud(5).float(), mean), projection_rmd2(cloud(5), mean), rtol=1e-5)
