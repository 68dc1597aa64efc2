"""Growing subspaces: gradients against independent routes, the theorem on overshooting, the rules, bad input."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import natural, pixels, planar, regular, trivial
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.representations import Hom, Representation
from lib.training.discovery import (
    ERF,
    KAPPA,
    LOGISTIC,
    Discovery,
    Growth,
    Response,
    coherence,
    discover,
    escaped,
    hermite_nodes,
    outputs,
    population_velocity,
    train_inside,
    velocity,
)
from lib.training.mean_field import Layer, intrinsic_derivative

ACTIONS = [natural(Symmetric(2)), natural(Symmetric(3)), pixels(Dihedral(4), 2), regular(Cyclic(4)), planar(Cyclic(4))]


def gauss(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def clock(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- velocities ---


@pytest.mark.parametrize("response", [LOGISTIC, ERF])
def test_slopes_are_derivatives(response: Response) -> None:
    u = torch.linspace(-4, 4, 41, dtype=torch.float64)
    exact = torch.func.vmap(torch.func.grad(response.value))(u)
    assert torch.allclose(response.slope(u, response.value(u)), exact, atol=1e-14)
    assert torch.allclose(ERF.slope(u[20:21], u[20:21]), torch.tensor(0.5).double())  # the slope of tanh(u/2)


@pytest.mark.parametrize("response", [LOGISTIC, ERF])
def test_velocity_is_minus_n_times_the_gradient(response: Response) -> None:
    z, x, y, w = gauss(2, 5, 6), gauss(7, 3, seed=1), gauss(2, 7, 2, seed=2), gauss(7, seed=3).softmax(0)

    def risk(z: Tensor) -> Tensor:
        return (0.5 * (outputs(z, x, response) - y).square().sum(-1) * w).sum()

    assert torch.allclose(velocity(z, x, y, response, w), -5 * torch.func.grad(risk)(z))
    by_hand = torch.stack([response.value(z[0, i].view(2, 3) @ x[4]) for i in range(5)]).mean(0)
    assert torch.allclose(outputs(z, x, response)[0, 4], by_hand)
    own = velocity(z, torch.stack([x, x]), y, response)
    assert torch.allclose(own, velocity(z, x, y, response))


def test_velocity_agrees_with_the_mean_field_library() -> None:
    one = Cyclic(1)
    unit = Layer(trivial(one, 3), trivial(one, 2), "sigmoid")
    z, x, y = gauss(2, 5, 6), gauss(7, 3, seed=1), gauss(2, 7, 2, seed=2)
    assert torch.allclose(velocity(z, x, y), -intrinsic_derivative(unit, "vanilla", z, x, y))


def test_population_velocity_is_the_limit_of_quadratures() -> None:
    z, teacher = 0.5 * gauss(2, 4, 4), 0.5 * gauss(2, 3, 4, seed=1)
    exact = population_velocity(z, teacher, 2, scale=1.0)
    errors = []
    for nodes in (10, 20, 40):
        x, w = hermite_nodes(2, nodes, 1.0)
        errors.append(float((velocity(z, x, outputs(teacher, x, ERF), ERF, w) - exact).abs().max()))
    assert errors[-1] < 1e-12 < errors[0]


def test_population_velocity_is_the_gradient_of_the_arcsine_formula() -> None:
    z, teacher, p, s = 0.5 * gauss(1, 3, 4), gauss(1, 2, 4, seed=1), 2, 3.0

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        c = (KAPPA * s) ** 2
        aa, bb = 1 + c * a.square().sum(-1), 1 + c * b.square().sum(-1)
        return 2 / math.pi * torch.asin(c * (a[:, None] * b).sum(-1) / (aa[:, None] * bb).sqrt())

    def risk(z: Tensor) -> Tensor:
        rows, targets = z[0].unflatten(-1, (2, p)), teacher[0].unflatten(-1, (2, p))
        return sum(0.5 * kernel(a, a).mean() - kernel(a, b).mean() for a, b in zip(rows.unbind(1), targets.unbind(1)))

    assert torch.allclose(population_velocity(z, teacher, p, s), -3 * torch.func.grad(risk)(z))


def test_nothing_moves_when_the_student_is_the_teacher() -> None:
    z = gauss(2, 5, 9)
    assert population_velocity(z, z, 3, 4.0).abs().max() < 1e-15


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_hermite_nodes(dimension: int) -> None:
    x, w = hermite_nodes(dimension, 6, 4.0)
    assert torch.allclose(w.sum(), torch.tensor(1.0).double())
    assert torch.allclose((w[:, None] * x**2).sum(0), torch.full((dimension,), 16.0).double())
    assert torch.allclose((w[:, None] * x**4).sum(0), torch.full((dimension,), 3 * 4.0**4).double())
    image = {tuple(row) for row in x.flip(-1).tolist()}
    assert image == {tuple(row) for row in x.tolist()}  # exactly invariant
    assert {tuple(row) for row in (-x).tolist()} == image


# --- growth ---


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ACTIONS), st.integers(0, 10**6), st.sampled_from(["mean", "leading"]), st.integers(1, 6))
def test_growth_never_overshoots(action: Representation, seed: int, rule: str, count: int) -> None:
    """Theorem: with an invariant risk the found space lies in E^G, whatever the sizes."""
    Q = projection(Hom(action, action)).matrix()
    teacher = gauss(2, count, action.dim**2, seed=seed) @ Q
    exact = partial(population_velocity, teacher=teacher, inputs=action.dim, scale=4.0)
    growth = Growth(particles=3, steps=8, rate=0.4, rule=rule, threshold=1e-6)
    found = discover(exact, torch.zeros(2, 0, action.dim**2, dtype=torch.float64), growth, clock(seed))
    assert ((found.basis @ Q - found.basis).norm(dim=-1) < 1e-7).all()
    gram = found.basis @ found.basis.mT
    kept = (torch.arange(action.dim**2) < found.dimensions[:, None]).double()
    assert torch.allclose(gram, torch.diag_embed(kept), atol=1e-10)


def test_growth_overshoots_without_symmetry() -> None:
    action = ACTIONS[0]
    Q = projection(Hom(action, action)).matrix()
    exact = partial(population_velocity, teacher=gauss(2, 5, 4), inputs=2, scale=4.0)
    found = discover(exact, torch.zeros(2, 0, 4, dtype=torch.float64), Growth(), clock())
    assert (found.dimensions == 4).all()
    assert (found.angles(Q) > 1.57).all()


def test_the_rules_add_what_they_say() -> None:
    """A velocity that is switched on once moves every particle by a known vector."""
    push = torch.tensor([[3.0, 0, 0, 1], [-3.0, 0, 0, 1]], dtype=torch.float64)[None]
    growth = Growth(particles=2, rate=1.0, steps=1, decay=0.0, temperature=0.0)
    ends = {}
    for rule in ("mean", "leading"):
        left = [push]
        still = partial(lambda z, left: left.pop() if left else torch.zeros_like(z), left=left)
        found = discover(still, torch.zeros(1, 0, 4, dtype=torch.float64), replace(growth, rule=rule), clock())
        assert found.dimensions.tolist() == [1]
        assert torch.allclose(found.escapes[:, 0], torch.tensor([10.0, 0.0], dtype=torch.float64))
        ends[rule] = found.basis[0, 0].abs()
    assert torch.allclose(ends["mean"], torch.tensor([0, 0, 0, 1.0]).double())
    assert torch.allclose(ends["leading"], torch.tensor([1.0, 0, 0, 0]).double())


def test_seeds_do_not_mix() -> None:
    teachers = torch.stack([gauss(5, 4), torch.zeros(5, 4, dtype=torch.float64)])
    exact = partial(population_velocity, teacher=teachers, inputs=2, scale=4.0)
    found = discover(exact, torch.zeros(2, 0, 4, dtype=torch.float64), Growth(), clock())
    assert found.dimensions.tolist() == [4, 0]
    assert found.escapes[0, 1] == 0
    assert found.escapes[1:, 1].isnan().all()


def test_training_starts_inside_and_noise_stays_inside() -> None:
    P = torch.diag(torch.tensor([1.0, 1, 0, 0])).double()[None]
    growth = Growth(particles=4000, spread=0.5, steps=10, rate=0.1, temperature=0.2, decay=0.0)
    z = train_inside(torch.zeros_like, P, growth, clock())
    assert escaped(z, P).max() == 0
    variance = 0.25 + 10 * 2 * 0.1 * 0.2
    assert torch.allclose(z[..., :2].var(1), torch.full((1, 2), variance).double(), rtol=0.1)


def test_distance_is_optimal_transport() -> None:
    import ot

    z, P = gauss(1, 12, 4), torch.diag(torch.tensor([1.0, 0, 1, 0])).double()
    plan = ot.emd2([], [], ot.dist(z[0].numpy(), (z[0] @ P).numpy()))
    assert abs(float(escaped(z, P)[0]) - plan) < 1e-12


def test_coherence() -> None:
    P = torch.zeros(4, 4, dtype=torch.float64)
    alike = gauss(1, 1, 4).expand(1, 6, 4)
    assert torch.allclose(coherence(alike, P), torch.ones(1).double())
    assert coherence(torch.cat([alike, -alike], 1), P).max() < 1e-30


def test_angles() -> None:
    basis = torch.zeros(2, 4, 4, dtype=torch.float64)
    basis[0, 0, 0] = 1
    basis[1, 0, :2] = torch.tensor([math.cos(1e-9), math.sin(1e-9)])
    found = Discovery(basis, torch.tensor([1, 1]), torch.zeros(1, 2).double())
    target = torch.diag(torch.tensor([1.0, 0, 0, 0])).double()
    assert torch.allclose(found.angles(target), torch.tensor([0, 1e-9]).double(), rtol=1e-6, atol=0)
    assert (found.angles(torch.eye(4).double()) > 1.57).all()


@pytest.mark.parametrize("rule", ["mean", "leading"])
def test_the_threshold_decides_only_where_growth_ends(rule: str) -> None:
    teacher = gauss(4, 5, 4, seed=2)
    exact = partial(population_velocity, teacher=teacher, inputs=2, scale=4.0)
    zero = torch.zeros(4, 0, 4, dtype=torch.float64)
    endless = discover(exact, zero, Growth(rule=rule, threshold=0.0), clock())
    ends = set()
    for threshold in (1e-3, 3e-2, 0.3, 10.0):
        again = discover(exact, zero, Growth(rule=rule, threshold=threshold), clock())
        found = endless.stopped(threshold)
        assert torch.equal(found.dimensions, again.dimensions)
        assert torch.allclose(found.basis, again.basis, atol=1e-12)
        assert torch.allclose(found.escapes[: len(again.escapes)], again.escapes, equal_nan=True)
        ends.update(found.dimensions.tolist())
    assert len(ends) > 2
    with pytest.raises(ValueError, match="threshold must be at least"):
        again.stopped(1e-9)


# --- bad input ---


def start(rows: int = 0) -> Tensor:
    return torch.eye(4, dtype=torch.float64)[:rows].expand(2, rows, 4)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"velocity": 3}, TypeError, "velocity must be a function"),
        ({"velocity": lambda z: z[:, :1]}, ValueError, "velocity must have shape"),
        ({"velocity": lambda z: 1e200 * (1 + z * z)}, ArithmeticError, "too large"),
        ({"basis": torch.zeros(2, 4).double()}, ValueError, "basis must be real, of shape"),
        ({"basis": torch.zeros(2, 5, 4).double()}, ValueError, "basis must be real, of shape"),
        ({"basis": 2 * start(2)}, ValueError, "orthonormal rows"),
        ({"basis": start(2).long()}, TypeError, "basis must be of a floating-point"),
        ({"basis": start(2) + 0j}, ValueError, "basis must be real"),
        ({"basis": torch.zeros(2, 0, 0).double()}, ValueError, "basis must be real, of shape"),
        ({"velocity": lambda z: [z]}, TypeError, "value of velocity must be a Tensor"),
        ({"growth": None}, TypeError, "growth must be a Growth"),
        ({"generator": 3}, TypeError, "generator must be a Generator"),
        ({"basis": torch.full((2, 1, 4), math.nan).double()}, ValueError, "finite"),
    ],
)
def test_bad_discoveries(change: dict, error: type, message: str) -> None:
    arguments = {"velocity": torch.zeros_like, "basis": start(), "growth": Growth(), "generator": clock()}
    with pytest.raises(error, match=message):
        discover(**(arguments | change))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"particles": 0}, ValueError, "particles must be at least 1"),
        ({"steps": 1.5}, TypeError, "steps must be an integer"),
        ({"rate": 0.0}, ValueError, "rate"),
        ({"temperature": -1e-9}, ValueError, "temperature"),
        ({"decay": float("nan")}, ValueError, "decay"),
        ({"threshold": -1.0}, ValueError, "threshold"),
        ({"rule": "median"}, ValueError, r"rule must be one of \['mean', 'leading'\]"),
    ],
)
def test_bad_settings(change: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        replace(Growth(), **change)


def test_bad_nodes_and_targets() -> None:
    with pytest.raises(ValueError, match="dimension must be between 1 and 4"):
        hermite_nodes(5, 10, 1.0)
    with pytest.raises(ValueError, match="scale"):
        hermite_nodes(2, 10, 0.0)
    found = discover(torch.zeros_like, start(1), Growth(steps=1), clock())
    assert found.dimensions.tolist() == [1, 1]
    with pytest.raises(ValueError, match="target must have shape"):
        found.angles(torch.eye(3).double())


Z, X, Y, NAN = gauss(2, 5, 4), gauss(7, 2), gauss(2, 7, 2), math.nan


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: outputs([Z], X, ERF), TypeError, "particles must be a Tensor"),
        (lambda: outputs(Z[0], X, ERF), ValueError, "particles must have shape"),
        (lambda: outputs(Z, gauss(7, 3), ERF), ValueError, "x must hold points of a length that divides 4"),
        (lambda: outputs(Z, gauss(3, 7, 2), ERF), ValueError, "x must have shape"),
        (lambda: outputs(Z, X, "erf"), TypeError, "response must be a Response"),
        (lambda: velocity(Z, X[:0], Y[:, :0]), ValueError, "x must hold points"),
        (lambda: velocity(Z, X, Y[..., :1]), ValueError, r"y must have shape \(2, 7, 2\), got \(2, 7, 1\)"),
        (lambda: velocity(Z, X, gauss(3, 7, 2)), ValueError, "y must have shape"),
        (lambda: velocity(Z, X, Y, ERF, torch.ones(3)), ValueError, "weights must have shape"),
        (lambda: population_velocity(Z, Z, 3, 1.0), ValueError, "inputs must divide the length 4"),
        (lambda: population_velocity(Z, Z, 2, -1.0), ValueError, "scale"),
        (lambda: population_velocity(Z, gauss(3, 5, 4), 2, 1.0), ValueError, "teacher must have shape"),
        (lambda: population_velocity(Z, NAN * Z, 2, 1.0), ValueError, "teacher must be finite"),
        (lambda: train_inside(torch.zeros_like, 2 * torch.eye(4)[None], Growth(), clock()), ValueError, "projections"),
        (lambda: train_inside(torch.zeros_like, torch.eye(4), Growth(), clock()), ValueError, "P must have shape"),
        (lambda: escaped(Z, torch.eye(3)), ValueError, "P must have shape"),
        (lambda: coherence(Z[0], torch.eye(4)), ValueError, "z must have shape"),
    ],
)
def test_shapes_that_do_not_fit(call: Callable[[], object], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
