"""What the page *The Gibbs law and its flow* defines: the endpoint, its certificate, particles at rest and moving."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import ot
import pandas as pd
import pytest
import torch
from scipy.stats import t as student
from torch import Tensor

from lib.mean_field.particles import intrinsic_derivative
from lib.mean_field.units import Layer
from lib.symmetry.actions import sign
from lib.symmetry.groups import Symmetric
from tests.chapters import load


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("gibbs_law_and_its_flow", seed=7)


# --- M8 and the flow ---


@pytest.fixture(scope="module", params=[(0.05, 0.02), (0.01, 0.005)])
def energy(page: SimpleNamespace, request: pytest.FixtureRequest) -> object:
    return page.free_energy(*request.param)


def test_the_fixed_point_is_the_minimiser(page: SimpleNamespace) -> None:
    for pair in ((0.05, 0.02), (0.2, 0.3), (0.03, 0.01)):
        F = page.free_energy(*pair)
        torch.testing.assert_close(page.gibbs_law(F), F.minimiser(), atol=1e-11, rtol=0)


def test_flows_meet_at_the_gibbs_law(page: SimpleNamespace, energy: object) -> None:
    found, paths = page.ends_of(energy, energy, 1000)
    assert found["increase"] < 0
    assert found["distance"] < 1e-11
    assert found["gap"] < 1e-14
    for path in paths:
        assert (path.laws[-1] - energy.minimiser()).abs().sum() < 1e-11
        assert 0 <= float(energy.energy(path.laws).diff().max()) < 1e-15  # what a plain difference would show


def test_the_flow_of_the_risk_alone_has_many_ends(page: SimpleNamespace, energy: object) -> None:
    risk = page.free_energy(0.0, 0.0)
    found, paths = page.ends_of(energy, risk, 200)
    assert found["increase"] > 1e-5
    assert found["distance"] > 0.1
    assert max(float(risk.energy(path.laws[-1])) for path in paths) < 1e-6


def test_walks_are_noisy_descent(page: SimpleNamespace, energy: object) -> None:
    """Without noise, descent with the library's derivative; alone, a particle knows nothing of the others."""
    line = Layer(sign(Symmetric(2)), sign(Symmetric(2)), "tanh")
    z = randn(1, 3, 20)
    end = z[..., None]
    for _ in range(50):
        pull = intrinsic_derivative(line, "vanilla", end, energy.x[:, None], energy.y[:, None], energy.weights)
        end = end - 0.1 * (pull + energy.penalty * end)
    end = end[..., 0]
    torch.testing.assert_close(page.walk(energy, z, 0, 0.1, 50, heat=0.0), end, atol=1e-12, rtol=0)
    alone = page.walk(energy, z, 0, 0.1, 50, heat=0.0, together=False)
    torch.testing.assert_close(alone[:, :5], page.walk(energy, z[:, :5], 0, 0.1, 50, heat=0.0, together=False))
    assert (alone - end).abs().max() > 0.05
    still = page.walk(energy, 0 * z, 3, 0.1, 1) / (2 * 0.1 * energy.temperature) ** 0.5  # the origin feels no penalty
    assert 0.6 < float((still - still.mean()).std()) < 1.4


def test_particles_rest_at_the_floor(page: SimpleNamespace, energy: object) -> None:
    clouds, trained, cold, floor, rest = page.at_rest(energy, 77)
    assert clouds.shape == (16, 400)
    assert page.interval_miss(trained, floor).max() == 0
    assert page.interval_miss(cold, floor).min() > 0.1
    one, two, all_ = (e.flatten().square() for e in (trained, floor[rest], floor))
    spread = math.sqrt(float(one.var()) / len(one) + float(two.var()) / len(two))
    assert abs(float(one.mean() - two.mean())) < 4 * spread
    assert float(all_.mean() - two.mean()) > 4 * math.sqrt(float(all_.var()) / len(all_))
    assert len(two) > 50


def test_the_resting_law_is_the_exponential_of_the_potential(page: SimpleNamespace, energy: object) -> None:
    """N(risk + penalty)/β is −Σ log μ* plus the exponent of the rejection, up to a constant, for every cloud."""
    F, z = energy, randn(0, 7, 30)
    total = 0.5 * (F.weights * F.cloud_residual(z) ** 2).sum(-1) + 0.5 * F.penalty * (z**2).mean(-1)
    best = F.residual(F.minimiser())
    alone = (F.weights * best) @ torch.tanh(F.x[:, None] * z[:, None]) + 0.5 * F.penalty * z**2
    log_density = (30 * total - alone.sum(-1)) / F.temperature
    exponent = 30 / (2 * F.temperature) * (F.weights * (F.cloud_residual(z) - best) ** 2).sum(-1)
    assert torch.allclose(log_density - exponent, (log_density - exponent).mean(), atol=1e-9)
    near = page.quantiles(F, F.minimiser(), torch.rand(4000, 30, generator=torch.Generator().manual_seed(1)).double())
    chance = torch.exp(-30 / (2 * F.temperature) * (F.weights * (F.cloud_residual(near) - best) ** 2).sum(-1))
    assert float(page.accepted(F, near, 4).double().mean()) == pytest.approx(float(chance.mean()), abs=0.04)


def test_distance_to_a_law_on_the_grid(page: SimpleNamespace, energy: object) -> None:
    p = torch.softmax(-((energy.grid - 0.5) ** 2), 0)
    fine = page.quantiles(energy, p, (torch.arange(60_000, dtype=torch.float64) + 0.5) / 60_000)
    assert float(fine.mean()) == pytest.approx(float(p @ energy.grid), abs=1e-6)
    z = randn(0, 3, 40)
    exact = [math.sqrt(ot.emd2_1d(cloud.numpy(), fine.numpy())) for cloud in z]
    assert page.w2_to_law(energy, z, p, parts=64).tolist() == pytest.approx(exact, abs=5e-4)


def test_particles_follow_the_flow_on_their_way(page: SimpleNamespace) -> None:
    """Their distance to the law of the flow is that of independent samples; cut apart, they go elsewhere."""
    F = page.free_energy(0.01, 0.005)
    laws = page.laws_on_the_way(F, [1, 10])
    errors = {way: {n: page.chase(F, n, 5, laws, way, clouds=8) for n in (50, 800)} for way in (True, False)}
    u = torch.rand(100, 800, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    floor = torch.stack([page.w2_to_law(F, page.quantiles(F, p, u), p).mean() for p in laws.values()])
    ratio = errors[True][800].mean(0) / floor
    assert 0.6 < float(ratio.min()) <= float(ratio.max()) < 1.5
    assert float((errors[True][800].mean(0) / errors[True][50].mean(0)).max()) < 0.5
    assert float(errors[False][800].mean(0)[-1] / floor[-1]) > 4
    assert float((errors[False][800].mean(0) / errors[False][50].mean(0))[-1]) > 0.75


def test_the_path_is_fine_enough(page: SimpleNamespace) -> None:
    """Half the step moves the mean of the law at time 10 by about 0.001, far less than the clouds can see."""
    F = page.free_energy(0.05, 0.02)
    paths = [page.flow(F, page.sides(F)[1], h, 1.0, 0.0, round(10 / h)) for h in (0.02, 0.01)]
    means = [float(path.laws[-1] @ F.grid) for path in paths]
    assert abs(means[0] - means[1]) < 2e-3


# --- two dimensions ---


def test_a_plane_of_units_that_ignore_one_parameter_is_a_line(page: SimpleNamespace) -> None:
    """The Gibbs law is then a product: that of the line, and a Gaussian."""
    F = page.plane(0.1, 0.1, 24)
    line = page.FreeEnergy(
        lambda x, z: torch.tanh(x * z), F.x, F.y, F.weights, F.grid.view(24, 24, 2)[:, 0, 0], 0.1, 0.1
    )
    flat = page.FreeEnergy(lambda x, z: torch.tanh(x * z[..., 0]), F.x, F.y, F.weights, F.grid, 0.1, 0.1)
    one, two = line.minimiser(), flat.minimiser()
    other = torch.softmax(-(line.grid**2) / 2, 0)
    torch.testing.assert_close(two.view(24, 24), one[:, None] * other, atol=1e-13, rtol=0)
    torch.testing.assert_close(page.gibbs_law(line), one, atol=1e-10, rtol=0)
    alone = line.energy(one) + 0.05 * other @ line.grid**2 + 0.1 * line.entropy(other)
    assert float(flat.energy(two)) == pytest.approx(float(alone), abs=1e-12)


def test_a_step_keeps_the_mass_and_rests_at_the_gibbs_law(page: SimpleNamespace) -> None:
    F = page.plane(0.05, 0.05, 20)
    p = torch.softmax(randn(1, 400), 0)
    for duration in (0.01, 1.0, 50.0):
        q = page.plane_step(F, p, duration)
        assert float(q.sum()) == pytest.approx(1, abs=1e-12)
        assert q.min() > 0
        best = F.minimiser()
        assert (page.plane_step(F, best, duration) - best).abs().max() < 1e-14
    slope = (page.plane_step(F, p, 1e-7) - p) / 1e-7
    down = (F.potential(F.residual(p)) + F.temperature * p.log()) @ slope
    assert float(down) < 0


def test_five_flows_meet_in_the_plane(page: SimpleNamespace) -> None:
    """Another temperature and grid; without noise the ends differ."""
    F = page.plane(0.06, 0.08, 24)
    best, paths = F.minimiser(), page.five_flows(F)
    assert max(float((laws[-1] - best).abs().sum()) for laws in paths) < 1e-11
    assert max(float(F.change(laws[:-1], laws[1:]).max()) for laws in paths) < 1e-20
    square = best.view(24, 24)
    assert (square - square.flip(0)).abs().max() < 1e-14
    still = torch.stack([laws[-1] for laws in page.five_flows(page.plane(0.0, 0.0, 24), 60)])
    assert page.pairs(still).min() > 0.1


def test_a_walk_in_the_plane_is_noisy_descent(page: SimpleNamespace) -> None:
    F, z = page.plane(0.05, 0.05), randn(2, 3, 15, 2)
    leaf = z.clone().requires_grad_()
    hidden = torch.tanh(leaf[..., :1] * F.x + leaf[..., 1:]).mean(-2)
    risk = 0.5 * (F.weights * (hidden - F.y) ** 2).sum() + 0.5 * F.penalty * leaf.square().sum() / 15
    (slope,) = torch.autograd.grad(risk, leaf)
    torch.testing.assert_close(page.walk_in_plane(F, z, 0, 1, heat=0.0), z - 0.2 * 15 * slope)
    kicks = page.walk_in_plane(F, torch.zeros(4000, 1, 2).double(), 1, 1) - page.walk_in_plane(
        F, torch.zeros(4000, 1, 2).double(), 1, 1, heat=0.0
    )
    assert float(kicks.std()) == pytest.approx((2 * 0.2 * 0.05) ** 0.5, rel=0.03)


def test_particles_rest_in_the_plane(page: SimpleNamespace) -> None:
    F = page.plane(0.05, 0.05)
    points = page.drawn(F, F.minimiser(), (40, 500), torch.Generator().manual_seed(1))
    assert points.mean((0, 1)).tolist() == pytest.approx((F.minimiser() @ F.grid).tolist(), abs=0.03)
    warm, rested, cold = page.at_rest_in_plane(F, 55, clouds=4, N=150)
    assert warm.shape == (5, 4, 150, 2)
    assert 0.7 < rested.min() <= rested.max() < 1.3
    assert cold.min() > 2


# --- slopes and exercises ---


def test_slopes_are_least_squares_with_students_interval(page: SimpleNamespace) -> None:
    noise = randn(3, 4, 6).numpy()
    rows = pd.concat({n: pd.Series(n**-0.4 * np.exp(0.2 * e)) for n, e in zip((10, 20, 40, 80), noise, strict=True)})
    value, low, high = page.slope(rows, level=0.95)
    x = np.log(np.repeat([10.0, 20, 40, 80], 6))
    fitted, cov = np.polyfit(x, np.log(rows.to_numpy()), 1, cov=True)
    assert value == pytest.approx(fitted[0], rel=1e-9)
    assert high - low == pytest.approx(2 * student.ppf(0.975, 22) * cov[0, 0] ** 0.5, rel=1e-6)


def test_a_curve_that_levels_off_does_not_fall(page: SimpleNamespace) -> None:
    rows = pd.concat({n: pd.Series([1 / n, 2 / n, 9 / n]) for n in (5, 20, 80)})
    assert page.fall(rows) == pytest.approx(1 / 16)
    assert page.fall(rows * 0 + 1) == 1


def test_the_lower_bound_encloses_the_minimum(page: SimpleNamespace, energy: object) -> None:
    gaps = [page.enclosure(energy, steps) for steps in (0, 100, 1000)]
    assert gaps[0] > gaps[1] > gaps[2] >= -1e-15
    p = page.gibbs_law(energy, 100)
    assert float(energy.lower_bound(energy.residual(p))) <= float(energy.energy(energy.minimiser())) + 1e-14


def test_bad_parameters() -> None:
    for name, value, message in (("clouds", 2, "clouds must be between 8"), ("seed", -1, "seed must be")):
        with pytest.raises(ValueError, match=message):
            load("gibbs_law_and_its_flow", **{name: value})
