"""Free energies on a grid, their minimiser, and their flow: closed forms and other routes."""

import math
from decimal import Decimal, localcontext

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.chapters import load

page = load("gibbs_law_and_its_flow")
FreeEnergy, flow, step = page.FreeEnergy, page.flow, page.step
seeds = st.integers(0, 2**31)


def cells(count: int, reach: float) -> Tensor:
    width = 2 * reach / count
    return (torch.arange(count, dtype=torch.float64) + 0.5) * width - reach


def random_functional(seed: int, temperature: float = 0.1, count: int = 40, points: int = 4) -> FreeEnergy:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, points, generator=generator, dtype=torch.float64)
    w = torch.rand(points, generator=generator, dtype=torch.float64) + 0.1
    unit = torch.tanh if seed % 2 else torch.cos
    return FreeEnergy(lambda a, z: unit(a * z), x, y, w / w.sum(), cells(count, 3.0), 0.2, temperature)


def random_law(seed: int, count: int = 40, batch: tuple[int, ...] = ()) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(3 * torch.randn(*batch, count, generator=generator, dtype=torch.float64), -1)


def linear_unit(penalty: float, temperature: float, x: float = 1.5, y: float = 2.0, count: int = 300) -> FreeEnergy:
    one = torch.ones(1, dtype=torch.float64)
    return FreeEnergy(lambda a, z: a * z, x * one, y * one, one, cells(count, 6.0), penalty, temperature)


# --- the functional ---


def test_energy_agrees_with_a_loop() -> None:
    F, p = random_functional(1), random_law(2)
    h = float(F.grid[1] - F.grid[0])
    total = 0.0
    for k in range(4):
        out = sum(float(p[i]) * math.tanh(float(F.x[k] * F.grid[i])) for i in range(40))
        total += 0.5 * float(F.weights[k]) * (out - float(F.y[k])) ** 2
    for i in range(40):
        total += float(p[i]) * (0.1 * float(F.grid[i]) ** 2 + 0.1 * math.log(float(p[i]) / h))
    assert float(F.energy(p)) == pytest.approx(total, rel=1e-13)


@given(seeds)
def test_potential_is_the_first_variation(seed: int) -> None:
    F, p = random_functional(seed), random_law(seed + 1).requires_grad_(True)
    (slope,) = torch.autograd.grad(F.energy(p), p)
    expected = F.potential(F.residual(p)) + F.temperature * (1 + (p / F.width).log())
    assert torch.allclose(slope, expected, atol=1e-12)


@given(seeds)
def test_change_is_the_difference(seed: int) -> None:
    F, laws = random_functional(seed), random_law(seed + 1, batch=(2,))
    assert float(F.change(laws[0], laws[1])) == pytest.approx(float(F.energy(laws[1]) - F.energy(laws[0])), abs=1e-13)


def exact_energy(F: FreeEnergy, p: Tensor) -> Decimal:
    """Return F in sixty digits; the law is normalised in them, too."""
    masses = [Decimal(float(v)) for v in p]
    masses = [m / sum(masses) for m in masses]
    h, total = Decimal(F.width), Decimal(0)
    for w, y, row in zip(F.weights.tolist(), F.y.tolist(), F.features.tolist(), strict=True):
        out = sum(m * Decimal(s) for m, s in zip(masses, row, strict=True))
        total += Decimal(w) * (out - Decimal(y)) ** 2 / 2
    for m, z in zip(masses, F.grid.tolist(), strict=True):
        total += m * (Decimal(F.penalty) * Decimal(z) ** 2 / 2 + Decimal(F.temperature) * (m / h).ln())
    return total


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-11])
def test_change_is_right_far_below_rounding(size: float) -> None:
    """Near the minimum F changes by far less than the spacing of doubles; sixty-digit arithmetic is the judge."""
    F = random_functional(3)
    p = F.minimiser()
    q = p * (1 + size * torch.cos(F.grid))
    q = q / q.sum()
    with localcontext() as context:
        context.prec = 60
        exact = float(exact_energy(F, q) - exact_energy(F, p))
    assert exact > 0
    assert float(F.change(p, q)) == pytest.approx(exact, rel=1e-2, abs=0)
    if size < 1e-8:
        assert float(F.energy(q) - F.energy(p)) != pytest.approx(exact, rel=0.5, abs=0)


@given(seeds)
def test_no_law_beats_the_lower_bound(seed: int) -> None:
    F, p = random_functional(seed), random_law(seed + 1, batch=(20,))
    r = torch.randn(20, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert float(F.energy(p).min()) > float(F.lower_bound(r).max())
    best = F.minimiser()
    assert float(F.energy(best) - F.lower_bound(F.residual(best))) == pytest.approx(0, abs=1e-14)


@given(seeds)
def test_minimiser_is_the_gibbs_fixed_point(seed: int) -> None:
    F = random_functional(seed, 0.02)
    p = F.minimiser()
    assert torch.allclose(F.gibbs(F.residual(p)), p, atol=1e-14)
    assert bool((F.change(p, random_law(seed, batch=(10,))) > 0).all())


def test_minimiser_agrees_with_a_cone_program() -> None:
    F = random_functional(5)
    p = cp.Variable(40)
    risk = cp.sum_squares(cp.multiply(F.weights.sqrt().numpy(), F.features.numpy() @ p - F.y.numpy())) / 2
    entropy = -cp.sum(cp.entr(p)) - math.log(F.width)
    cp.Problem(cp.Minimize(risk + 0.1 * p @ (F.grid**2).numpy() + 0.1 * entropy), [cp.sum(p) == 1]).solve(cp.CLARABEL)
    assert np.abs(p.value - F.minimiser().numpy()).max() < 1e-4


def test_linear_units_have_a_normal_gibbs_law() -> None:
    """Units xz: V is quadratic, with mean xy/(x² + τ) and variance β/τ."""
    F = linear_unit(0.5, 0.1)
    p = F.minimiser()
    mean = float(p @ F.grid)
    assert mean == pytest.approx(3.0 / 2.75, abs=1e-10)
    assert float(p @ (F.grid - mean) ** 2) == pytest.approx(0.2, abs=1e-10)


# --- the flow ---


@given(seeds, st.floats(-4, 3), st.sampled_from([0.0, 0.003, 0.1, 2.0]))
def test_steps_keep_mass_and_lower_the_energy(seed: int, exponent: float, temperature: float) -> None:
    """Of any length; without noise the fluxes have corners, and steps may not be as long."""
    F, p = random_functional(seed, temperature), random_law(seed + 1)
    q = step(F, p, 10 ** (exponent if temperature else min(exponent, 0.0)))
    assert float(q.min()) >= 0
    assert float(q.sum()) == pytest.approx(1, abs=1e-11)
    assert float(F.change(p, q)) < 0


@pytest.mark.parametrize("temperature", [0.0, 0.05])
def test_step_solves_the_implicit_equations(temperature: float) -> None:
    """Fluxes cell by cell, with the potential of the *new* law."""
    F, p, duration = random_functional(7, temperature), random_law(8), 0.3
    q = step(F, p, duration)
    v, h = F.potential(F.residual(q)), F.width
    change = torch.zeros_like(q)
    for i in range(39):
        d = float(v[i + 1] - v[i])
        right, left = ((max(-s, 0.0) if temperature == 0 else s / math.expm1(s / temperature)) for s in (d, -d))
        flux = (right * float(q[i]) - left * float(q[i + 1])) / h**2
        change[i] -= duration * flux
        change[i + 1] += duration * flux
    assert torch.allclose(q - p, change, atol=1e-13)


def test_gibbs_law_rests_and_nothing_else_does() -> None:
    F = random_functional(9)
    p = F.minimiser()
    assert torch.allclose(step(F, p, 10.0), p, atol=1e-14)
    assert float((step(F, random_law(3), 10.0) - random_law(3)).abs().max()) > 1e-3


def test_flow_of_penalty_and_noise_is_ornstein_uhlenbeck() -> None:
    """Without data the mean is m e^{−τt} and the variance β/τ + (v − β/τ) e^{−2τt}."""
    one = torch.ones(1, dtype=torch.float64)
    F = FreeEnergy(lambda a, z: 0 * a * z, one, 0 * one, one, cells(400, 5.0), 1.0, 0.3)
    start = torch.softmax(-((F.grid - 1.5) ** 2) / (2 * 0.25), 0)
    path = flow(F, start, first=1e-3, growth=1.0, steps=1000)
    t, p = float(path.times[-1]), path.laws[-1]
    assert t == pytest.approx(1)
    mean = float(p @ F.grid)
    assert mean == pytest.approx(1.5 * math.exp(-1), abs=2e-3)
    assert float(p @ (F.grid - mean) ** 2) == pytest.approx(0.3 - 0.05 * math.exp(-2), abs=2e-3)


def test_flow_without_noise_is_transport() -> None:
    """β = 0 and no data: every point moves as z e^{−τt}; upwind fluxes are of first order."""
    one = torch.ones(1, dtype=torch.float64)
    F = FreeEnergy(lambda a, z: 0 * a * z, one, 0 * one, one, cells(800, 3.0), 1.0, 0.0)
    start = torch.softmax(-((F.grid - 1.5) ** 2) / (2 * 0.04), 0)
    path = flow(F, start, first=1e-3, growth=1.0, steps=500)
    assert float(path.laws[-1] @ F.grid) == pytest.approx(1.5 * math.exp(-0.5), abs=5e-3)
    with pytest.raises(ArithmeticError, match="temperature too small"):
        F.minimiser()


def test_flow_records_what_happened() -> None:
    F = random_functional(11)
    path = flow(F, random_law(12), first=0.1, growth=1.2)
    assert len(path.times) == len(path.laws) == len(path.changes) + 1
    assert path.times.tolist()[:3] == pytest.approx([0, 0.1, 0.22])
    assert float((path.laws[-1] - path.laws[-2]).abs().sum()) < 2e-12
    assert torch.allclose(path.laws[-1], F.minimiser(), atol=1e-12)
    assert len(flow(F, random_law(12), steps=3).times) == 4


# --- bad input ---


def test_solvers_say_that_they_fail() -> None:
    F, p = random_functional(0), random_law(0)
    with pytest.raises(ArithmeticError, match="did not converge"):
        step(F, p, 1.0, iterations=1)
    with pytest.raises(ArithmeticError, match="no Gibbs fixed point"):
        F.minimiser(iterations=1)
