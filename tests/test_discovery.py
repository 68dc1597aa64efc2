"""Growing subspaces: gradients against independent routes, the theorem on overshooting, the rules, bad input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lib.mean_field.discovery import (
    ERF,
    LOGISTIC,
    Growth,
    Nonlinearity,
    ended,
    grow,
    network,
    pull,
    train_inside,
)
from lib.mean_field.particles import intrinsic_derivative
from lib.mean_field.units import Layer
from lib.symmetry.actions import natural, pixels, planar, regular, trivial
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.representations import Representation
from tests.chapters import load

population_pull = load("architecture_discovery").population_pull
ACTIONS = [natural(Symmetric(2)), natural(Symmetric(3)), pixels(Dihedral(4), 2), regular(Cyclic(4)), planar(Cyclic(4))]
ZERO = torch.zeros(2, 0, 4, dtype=torch.float64)


def gauss(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def clock(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- velocities ---


@pytest.mark.parametrize("unit", [LOGISTIC, ERF])
def test_slopes_are_derivatives(unit: Nonlinearity) -> None:
    u = torch.linspace(-4, 4, 41, dtype=torch.float64)
    exact = torch.func.vmap(torch.func.grad(unit.value))(u)
    assert torch.allclose(unit.slope(u, unit.value(u)), exact, atol=1e-14)
    assert torch.allclose(ERF.slope(u[20:21], u[20:21]), torch.tensor(0.5).double())  # the slope of tanh(u/2)


@pytest.mark.parametrize("unit", [LOGISTIC, ERF])
def test_pull_is_minus_n_times_the_gradient(unit: Nonlinearity) -> None:
    z, x, y, w = gauss(2, 5, 9), gauss(7, 3, seed=1), gauss(2, 7, 3, seed=2), gauss(7, seed=3).softmax(0)

    def risk(z: Tensor) -> Tensor:
        return (0.5 * (network(z, x, unit) - y).square().sum(-1) * w).sum()

    assert torch.allclose(pull(z, x, y, unit, w), -5 * torch.func.grad(risk)(z))
    by_hand = torch.stack([unit.value(z[0, i].view(3, 3) @ x[4]) for i in range(5)]).mean(0)
    assert torch.allclose(network(z, x, unit)[0, 4], by_hand)
    assert torch.allclose(pull(z, torch.stack([x, x]), y, unit), pull(z, x, y, unit))


def test_pull_agrees_with_the_mean_field_library() -> None:
    one = Cyclic(1)
    unit = Layer(trivial(one, 3), trivial(one, 3), "sigmoid")
    z, x, y = gauss(2, 5, 9), gauss(7, 3, seed=1), gauss(2, 7, 3, seed=2)
    assert torch.allclose(pull(z, x, y), -intrinsic_derivative(unit, "vanilla", z, x, y))


def test_population_pull_is_the_mean_over_samples() -> None:
    z, teacher = 0.5 * gauss(1, 4, 4), 0.5 * gauss(1, 3, 4, seed=1)
    exact = population_pull(z, teacher, 1.0)
    x = gauss(100, 10_000, 2, seed=2)
    parts = torch.cat([pull(z, part, network(teacher, part, ERF), ERF) for part in x])
    error = parts.std(0) / 10
    assert ((parts.mean(0) - exact[0]).abs() < 5 * error).all()
    assert exact.abs().max() > 100 * error.max()


def test_nothing_moves_when_the_student_is_the_teacher() -> None:
    z = gauss(2, 5, 9)
    assert population_pull(z, z, 4.0).abs().max() < 1e-15


# --- growth ---


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ACTIONS), st.integers(0, 10**6), st.sampled_from(["mean", "leading"]), st.integers(1, 6))
def test_growth_never_overshoots(action: Representation, seed: int, rule: str, count: int) -> None:
    """Theorem: with an invariant risk the found space lies in E^G, whatever the sizes."""
    Q = projection(Hom(action, action)).matrix()
    teacher = gauss(2, count, action.dim**2, seed=seed) @ Q
    exact = partial(population_pull, teacher=teacher, scale=4.0)
    growth = Growth(particles=3, steps=8, rate=0.4, rule=rule, threshold=1e-6)
    frame, escapes = grow(exact, torch.zeros(2, 0, action.dim**2, dtype=torch.float64), growth, clock(seed))
    ends = ended(escapes, 1e-6)
    rows = frame * (torch.arange(action.dim**2) < ends[:, None])[..., None]
    assert ((rows @ Q - rows).norm(dim=-1) < 1e-7).all()
    kept = (torch.arange(action.dim**2) < ends[:, None]).double()
    assert torch.allclose(rows @ rows.mT, torch.diag_embed(kept), atol=1e-10)


def test_growth_overshoots_without_symmetry() -> None:
    _, escapes = grow(partial(population_pull, teacher=gauss(2, 5, 4), scale=4.0), ZERO, Growth(), clock())
    assert ended(escapes, 1e-10).tolist() == [4, 4]


def test_the_rules_add_what_they_say() -> None:
    """A velocity that is switched on once moves every particle by a known vector."""
    push = torch.tensor([[3.0, 0, 0, 1], [-3.0, 0, 0, 1]], dtype=torch.float64)[None]
    growth = Growth(particles=2, rate=1.0, steps=1, decay=0.0, temperature=0.0)
    first = {}
    for rule in ("mean", "leading"):
        left = [push]
        still = partial(lambda z, left: left.pop() if left else torch.zeros_like(z), left=left)
        frame, escapes = grow(still, ZERO[:1], replace(growth, rule=rule), clock())
        assert torch.allclose(escapes[:, 0], torch.tensor([10.0, 0.0], dtype=torch.float64))
        assert frame[0, 1:].abs().max() == 0
        first[rule] = frame[0, 0].abs()
    assert torch.allclose(first["mean"], torch.tensor([0, 0, 0, 1.0]).double())
    assert torch.allclose(first["leading"], torch.tensor([1.0, 0, 0, 0]).double())


def test_runs_do_not_mix() -> None:
    teachers = torch.stack([gauss(5, 4), torch.zeros(5, 4, dtype=torch.float64)])
    frame, escapes = grow(partial(population_pull, teacher=teachers, scale=4.0), ZERO, Growth(), clock())
    assert ended(escapes, 1e-10).tolist() == [4, 0]
    assert escapes[0, 1] == 0
    assert frame.isfinite().all()


def test_growth_from_a_known_subspace() -> None:
    known = torch.eye(4, dtype=torch.float64)[:2].expand(2, -1, -1)
    frame, escapes = grow(partial(population_pull, teacher=gauss(2, 5, 4), scale=4.0), known, Growth(), clock())
    assert escapes[:2].isinf().all()
    assert torch.equal(frame[:, :2], known)
    assert torch.allclose(frame @ frame.mT, torch.eye(4).double().expand(2, 4, 4))


def test_training_starts_inside_and_noise_stays_inside() -> None:
    P = torch.diag(torch.tensor([1.0, 1, 0, 0])).double()[None]
    growth = Growth(particles=4000, spread=0.5, steps=10, rate=0.1, temperature=0.2, decay=0.0)
    z = train_inside(torch.zeros_like, P, growth, clock())
    assert (z - z @ P).abs().max() == 0
    variance = 0.25 + 10 * 2 * 0.1 * 0.2
    assert torch.allclose(z[..., :2].var(1), torch.full((1, 2), variance).double(), rtol=0.1)


@pytest.mark.parametrize("rule", ["mean", "leading"])
def test_the_threshold_decides_only_where_growth_ends(rule: str) -> None:
    exact, zero = partial(population_pull, teacher=gauss(4, 5, 4, seed=2), scale=4.0), torch.zeros(4, 0, 4).double()
    frame, endless = grow(exact, zero, Growth(rule=rule, threshold=0.0), clock())
    ends = set()
    for threshold in (1e-3, 3e-2, 0.3, 10.0):
        shorter, escapes = grow(exact, zero, Growth(rule=rule, threshold=threshold), clock())
        rounds = len(escapes)
        assert torch.equal(ended(endless, threshold), ended(escapes, threshold))
        assert torch.allclose(endless[:rounds], escapes)
        assert torch.allclose(frame[:, : rounds - 1], shorter[:, : rounds - 1], atol=1e-12)
        ends.update(ended(escapes, threshold).tolist())
    assert len(ends) > 2
    with pytest.raises(ValueError, match="threshold must be at least"):
        ended(escapes, 1e-9)


@pytest.mark.parametrize("size", [1e-13, 5e-13, 1e-11])
def test_rows_are_unit_vectors_however_small_an_escape(size: float) -> None:
    """Both runs are drawn to e₁, and from there to e₂: the first by 1, the second by hardly more than rounding."""
    force = torch.tensor([1.0, size]).double()

    def field(z: Tensor) -> Tensor:
        along = z.mean(1)[:, 0]
        return torch.stack([torch.ones(2).double(), force * along], -1)[:, None] - z

    growth = Growth(rule="mean", rate=0.05, steps=5, threshold=1e-15, temperature=0.0, decay=0.0)
    axis = torch.tensor([[[1.0, 0.0]]]).double().expand(2, -1, -1)
    frame, _ = grow(field, axis, growth, clock())
    assert torch.allclose(frame @ frame.mT, torch.eye(2).double(), atol=1e-12)


# --- bad input ---


def test_particles_that_run_away_are_refused() -> None:
    with pytest.raises(ArithmeticError, match=r"rate 0.2 is too large"):
        grow(lambda z: 1e200 * (1 + z), ZERO, Growth(steps=3, temperature=0.0), clock())
