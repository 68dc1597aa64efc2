"""Gradient flow in log-norm time: against plain integration, conserved quantities, known limits, and bad input."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from lib.implicit_bias.gradient_flow import Integration, Trained, _Field, train
from lib.implicit_bias.linear_networks import LinearNetwork, diagonal, fully_connected, group_convolution
from lib.implicit_bias.margins import NotSeparable, max_margin, one_minus_cosine
from lib.symmetry.groups import Cyclic, Symmetric

ACCURATE = Integration(cap=100.0, efolds=0.0, accuracy=1e-9)


def data(points: int, inputs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, inputs, generator=generator, dtype=torch.float64)
    return x, torch.where(torch.rand(points, generator=generator) < 0.5, 1.0, -1.0).double()


def start(network: LinearNetwork, seed: int = 1) -> Tensor:
    return network.start(1, torch.Generator().manual_seed(seed))[0]


def loss_of(network: LinearNetwork, x: Tensor, y: Tensor, kind: str) -> Callable[[Tensor], Tensor]:
    def loss(w: Tensor) -> Tensor:
        m = y * (x @ network.predictor(w))
        return (torch.exp(-m) if kind == "exponential" else torch.nn.functional.softplus(-m)).sum()

    return loss


NETWORKS = [fully_connected(6, 1), fully_connected(6, 3, 2), diagonal(6, 2), group_convolution(Symmetric(3), 3)]


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_flow_is_gradient_flow(network: LinearNetwork, kind: str) -> None:
    """Another time and other variables, the same curve: dw/dt = −∇ log loss integrated by an explicit method."""
    (x, y), w = data(4, 6), start(network)
    loss = loss_of(network, x, y, kind)
    slope = torch.func.grad(lambda v: loss(v).log())
    end = train(network, x, y, w, Integration(loss=kind, cap=12.0, efolds=0.0, accuracy=1e-8))
    target = float(end.log_norm[-1])

    def reached(_: float, v: np.ndarray) -> float:
        return math.log(torch.from_numpy(v).norm()) - target

    reached.terminal, reached.direction = True, 1

    def field(_: float, v: np.ndarray) -> np.ndarray:
        return -slope(torch.from_numpy(v)).numpy()

    plain = solve_ivp(field, (0, 1e3), w.numpy(), "RK45", rtol=1e-7, atol=1e-9, events=reached)
    assert plain.status == 1
    there = torch.from_numpy(plain.y[:, -1].copy())
    assert torch.allclose(end.parameters * math.exp(target), there, rtol=1e-4, atol=1e-5)
    assert torch.allclose(end.direction, network.predictor(there) / network.predictor(there).norm(), atol=1e-5)


def test_flow_conserves_the_balance_of_the_layers() -> None:
    (x, y), network = data(3, 6), diagonal(6, 3)
    w = start(network)
    end = train(network, x, y, w, ACCURATE)
    first, last = (v.reshape(3, 6).square() for v in (w, end.parameters * end.log_norm[-1].exp()))
    assert torch.allclose(last[0] - last[1], first[0] - first[1], atol=1e-5)
    assert torch.allclose(last[1] - last[2], first[1] - first[2], atol=1e-5)
    assert float(last.sum()) > 3 * float(first.sum())


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_derivative_of_the_field(network: LinearNetwork, kind: str) -> None:
    x, y = data(4, 6)
    field, theta = _Field(network, x * y[:, None], Integration(loss=kind)), start(network)
    theta = theta / theta.norm()
    g, by_theta, by_log = field.derivative(theta, 3.0)
    assert torch.allclose(g, field.gradient(theta, 3.0))
    assert torch.allclose(by_theta, torch.func.jacrev(lambda t: field.gradient(t, 3.0))(theta), atol=1e-10)
    h = 1e-5
    ends = [field.gradient(theta, 3.0 * math.exp(s * network.depth * h)) for s in (1, -1)]
    assert torch.allclose(by_log, (ends[0] - ends[1]) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_fully_connected_networks_find_the_largest_margin(depth: int, kind: str) -> None:
    (x, y), network = data(8, 10), fully_connected(10, depth, 3)
    best = max_margin(x, y)
    end = train(network, x, y, start(network), Integration(loss=kind))
    assert float(one_minus_cosine(end.direction, best.vector)) < 1e-8
    assert end.converged
    assert end.slackness < 1e-4
    assert torch.allclose(end.multipliers, best.multipliers / best.multipliers.sum(), atol=1e-4)
    assert float(end.margins.min()) == pytest.approx(best.margin, rel=1e-4)


@pytest.mark.parametrize("depth", [2, 3])
def test_memory_of_the_start_fades_with_the_norm(depth: int) -> None:
    """What the data do not move stays in the first layer, so that 1 − cos falls like the norm to the power −2."""
    (x, y), network = data(3, 10), fully_connected(10, depth, 3)
    end = train(network, x, y, start(network), Integration(cap=1e6, efolds=0.0))
    misses = one_minus_cosine(end.path, max_margin(x, y).vector).log()
    late = end.log_norm > end.log_norm[-1] - 2
    times, values = end.log_norm[late], misses[late]
    slope = ((times - times.mean()) * values).sum() / (times - times.mean()).square().sum()
    assert float(slope) == pytest.approx(-2, abs=0.1)


@pytest.fixture(scope="module")
def trained() -> tuple[LinearNetwork, Tensor, Tensor, Trained]:
    network, (x, y) = group_convolution(Cyclic(10), 2), data(5, 10)
    return network, x, y, train(network, x, y, start(network), Integration(cap=1e4))


def test_result_describes_itself(trained: tuple[LinearNetwork, Tensor, Tensor, Trained]) -> None:
    network, x, y, end = trained
    theta, h = end.parameters, end.handover
    beta = network.predictor(theta)
    assert torch.allclose(end.direction, beta / beta.norm())
    assert torch.allclose(end.margins, y * (x @ end.direction))
    assert torch.allclose(end.path[-1], end.direction, atol=1e-9)
    assert float(theta.norm()) == pytest.approx(1)
    assert end.temperature == pytest.approx(math.exp(2 * float(end.log_norm[h])))
    weights = torch.softmax(-end.temperature * y * (x @ beta), 0)
    assert torch.allclose(end.multipliers, weights, rtol=1e-3, atol=1e-9)
    assert bool((end.log_norm[h:].diff() > 0).all())
    assert float(end.log_norm[-1] - end.log_norm[h]) == pytest.approx(end.efolds)
    moved = torch.func.grad(lambda t: weights @ (y * (x @ network.predictor(t))))(theta)
    sine = (moved / moved.norm() - theta * (theta @ moved) / moved.norm()).norm()
    assert float(sine) == pytest.approx(end.stationarity, abs=1e-7)
    assert end.converged
    assert end.stationarity < 1e-6


def test_flow_ends_where_the_loss_meets_the_cap(trained: tuple[LinearNetwork, Tensor, Tensor, Trained]) -> None:
    network, x, y, _ = trained
    end = train(network, x, y, start(network), Integration(cap=50.0, efolds=0.0, accuracy=1e-8))
    margins = y * (x @ network.predictor(end.parameters)) * end.temperature
    assert float(margins.min()) == pytest.approx(50, rel=1e-3)
    assert end.efolds == 0
    assert end.handover == len(end.path) - 1
    assert not end.converged


def test_a_saddle_is_left() -> None:
    """With a coordinate that is zero in both layers the flow stays at the norm 1; the smallest ℓ1 norm is 1/3."""
    x, y = torch.tensor([[1.0, 3.0]]).double(), torch.ones(1).double()
    w = torch.tensor([1.0, 0.0, 1.0, 0.0]).double()
    resting = train(diagonal(2, 2), x, y, w, Integration(cap=100.0, efolds=0.0))
    assert resting.stationarity < 1e-12
    assert resting.direction.tolist() == [1, 0]
    assert not resting.converged
    end = train(diagonal(2, 2), x, y, w, Integration(cap=100.0))
    assert end.converged
    assert end.direction.tolist() == pytest.approx([0, 1], abs=1e-6)


def test_freezing_the_temperature_moves_the_end_little(trained: tuple[LinearNetwork, Tensor, Tensor, Trained]) -> None:
    network, x, y, end = trained
    later = train(network, x, y, start(network), Integration(cap=1e5))
    latest = train(network, x, y, start(network), Integration(cap=1e6))
    near, nearer = (float((e.direction - latest.direction).norm()) for e in (end, later))
    assert near < 1e-3
    assert nearer < 0.2 * near


def test_points_without_solution_are_found_with_a_proof() -> None:
    x, y = data(12, 6)
    network = diagonal(6, 2)
    with pytest.raises(NotSeparable, match="not separable") as caught:
        train(network, x, y, start(network))
    alpha = caught.value.certificate.multipliers
    assert float(alpha.min()) >= 0
    assert float(((alpha * y) @ x).norm()) < 1e-9


def test_an_integrator_that_stalls_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.implicit_bias.gradient_flow._EVALUATIONS", 300)
    (x, y), network = data(5, 10), group_convolution(Cyclic(10), 2)
    with pytest.raises(ArithmeticError, match="choose a smaller cap"):
        train(network, x, y, start(network))


def test_what_lsoda_cannot_begin_an_implicit_method_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """LSODA begins with an explicit method; at T = 4e7 it once took 99 000 steps without leaving the start."""
    methods: list[str] = []

    def at_a_loss(*args: Any, **how: Any) -> Any:
        methods.append(args[3])
        done = solve_ivp(*args, **how)
        if methods == ["LSODA", "LSODA"]:  # the beginning of the continuation
            done.status, done.t, done.y = -1, done.t[:1], done.y[:, :1]
        return done

    (x, y), network = data(5, 10), group_convolution(Cyclic(10), 2)
    usual = train(network, x, y, start(network))
    monkeypatch.setattr("lib.implicit_bias.gradient_flow.solve_ivp", at_a_loss)
    end = train(network, x, y, start(network))
    assert methods[:3] == ["LSODA", "LSODA", "BDF"]
    assert end.converged
    assert float(one_minus_cosine(end.direction, usual.direction)) < 1e-12


def test_what_does_not_fit_is_refused(as_user: None) -> None:
    (x, y), network = data(4, 6), diagonal(6, 3)
    w = start(network)
    with pytest.raises(ValueError, match="labels must be 4 numbers 1 or -1"):
        train(network, x, (y + 1) / 2, w)
    with pytest.raises(ValueError, match="features must have shape"):
        train(network, x[:, :5], y, w)
    with pytest.raises(ValueError, match="labels must be"):
        train(network, x, y[:3], w)
    with pytest.raises(ValueError, match="start must have shape"):
        train(network, x, y, w[:-1])
    with pytest.raises(ValueError, match="features must be finite"):
        train(network, x * math.nan, y, w)
    on_saddle = torch.cat([torch.ones(6), torch.zeros(12)]).double()
    with pytest.raises(ArithmeticError, match="a saddle"):
        train(network, x, y, on_saddle)
