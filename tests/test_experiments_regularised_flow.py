"""M8: two starts, one endpoint; particles at rest; and what happens without penalty or noise."""

import math
from dataclasses import replace
from functools import cache

import ot
import pytest
import torch

from lib.experiments import regularised_flow as regular
from lib.experiments.regularised_flow import PAIRS, Settings
from lib.training.finite_volumes import flow

SETTINGS = Settings()


@cache
def ends(pair: tuple[float, float]) -> regular.Ends:
    return regular.follow(SETTINGS, *pair)


@cache
def particles(pair: tuple[float, float]) -> regular.Particles:
    return regular.train_particles(SETTINGS, ends(pair).functional)


@pytest.mark.parametrize("pair", PAIRS)
def test_flows_meet_at_the_gibbs_law(pair: tuple[float, float]) -> None:
    found = ends(pair)
    assert found.increase < 0
    assert found.distance < 1e-11
    assert found.gap < 1e-14
    for path in found.paths:
        assert regular.total_variation(path.laws[-1], found.minimiser) < 1e-11
        assert float(path.laws.min()) > 0


@pytest.mark.parametrize("pair", PAIRS)
def test_rounded_energies_cannot_show_the_last_decreases(pair: tuple[float, float]) -> None:
    """The difference of two values of F is lost in rounding; the exact change is not."""
    found = ends(pair)
    rounded = torch.cat([found.functional.energy(path.laws).diff() for path in found.paths])
    assert 0 <= float(rounded.max()) < 1e-15


@pytest.mark.parametrize("pair", PAIRS)
def test_flow_of_the_risk_alone_has_many_ends(pair: tuple[float, float]) -> None:
    loose = regular.follow(SETTINGS, *pair, regularised=False)
    assert loose.increase > 1e-5
    assert loose.distance > 0.1
    assert loose.gap > 1e-3
    risk = regular.functional(SETTINGS, 0.0, 0.0)
    assert max(float(risk.energy(path.laws[-1])) for path in loose.paths) < 1e-6


def test_grid_does_not_matter() -> None:
    """Sums over cells of smooth, fast decaying functions are exact to all digits."""
    values = []
    for cells, reach in ((400, 7.0), (800, 7.0), (600, 10.0)):
        F = regular.functional(replace(SETTINGS, cells=cells, reach=reach), *PAIRS[1])
        values.append(float(F.energy(F.minimiser())))
    assert values == pytest.approx([values[0]] * 3, abs=1e-12)


@pytest.mark.parametrize("pair", PAIRS)
def test_particles_are_at_the_floor(pair: tuple[float, float]) -> None:
    assert particles(pair).interval_miss() == [0, 0]


@pytest.mark.parametrize("pair", PAIRS)
def test_particles_without_noise_are_not(pair: tuple[float, float]) -> None:
    cold = regular.train_particles(SETTINGS, ends(pair).functional, noise=0.0, replicates=200)
    assert min(cold.interval_miss()) > 0.1


@pytest.mark.parametrize("pair", PAIRS)
def test_particles_have_their_resting_law(pair: tuple[float, float]) -> None:
    """Rejection gives the same mean error as training; independent draws have a larger one."""
    found = particles(pair)
    trained, rest, drawn = (e.flatten() ** 2 for e in (found.errors, found.floor[found.accepted], found.floor))
    spread = math.sqrt(float(trained.var()) / len(trained) + float(rest.var()) / len(rest))
    assert abs(float(trained.mean() - rest.mean())) < 4 * spread
    assert float(drawn.mean() - rest.mean()) > 4 * math.sqrt(float(drawn.var()) / len(drawn))
    assert len(rest) > 50


@pytest.mark.parametrize("pair", PAIRS)
def test_particles_have_the_least_free_energy(pair: tuple[float, float]) -> None:
    F, clouds = ends(pair).functional, particles(pair).clouds
    excess = F.cloud_energy(clouds).flatten() - F.energy(ends(pair).minimiser)
    assert abs(float(excess.mean())) < 5 * float(excess.std()) / math.sqrt(excess.numel())


def test_particles_follow_the_flow_on_their_way() -> None:
    """Their distance to the law of the flow is that of independent samples; cut apart, they go elsewhere."""
    few = replace(SETTINGS, clouds=6)
    together, alone = (regular.chase(few, *PAIRS[1], sizes=(50, 400), together=k) for k in (True, False))
    ratio = [together.errors[n].mean(0) / together.floors[n].mean(0) for n in (50, 400)]
    assert min(float(r.min()) for r in ratio) > 0.6
    assert max(float(r.max()) for r in ratio) < 1.5
    assert float((together.errors[400].mean(0) / together.errors[50].mean(0)).max()) < 0.6
    assert float(alone.errors[400].mean(0)[-1] / together.floors[400].mean(0)[-1]) > 2.5
    assert float((alone.errors[400].mean(0) / alone.errors[50].mean(0))[-1]) > 0.8


def test_the_path_is_fine_enough() -> None:
    """Half the step moves the mean of the law at time 10 by about 0.001, far less than clouds of 800 can see."""
    F = regular.functional(SETTINGS, *PAIRS[0])
    means = []
    for h in (0.02, 0.01):
        laws = flow(
            F, regular.starts(SETTINGS, F.grid)[1], first=h, growth=1.0, tolerance=0.0, steps=round(10 / h)
        ).laws
        means.append(float(laws[-1] @ F.grid))
    assert abs(means[0] - means[1]) < 2e-3


def test_resting_law_is_the_exponential_of_the_potential() -> None:
    """N(risk + penalty)/β is −Σ log μ* plus the exponent of the rejection, up to a constant, for every cloud."""
    F = ends(PAIRS[0]).functional
    z = torch.randn(7, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = 0.5 * (F.weights * F.cloud_residual(z) ** 2).sum(-1) + 0.5 * F.penalty * (z**2).mean(-1)
    best = F.residual(F.minimiser())
    alone = (F.weights * best) @ torch.tanh(F.x[:, None] * z[:, None]) + 0.5 * F.penalty * z**2
    log_density = 30 * total / F.temperature - alone.sum(-1) / F.temperature
    exponent = regular.resting_exponent(F, z)
    assert torch.allclose(log_density - exponent, (log_density - exponent).mean(), atol=1e-9)
    assert float(exponent.max() - exponent.min()) > 1


def test_distance_to_a_law_on_the_grid() -> None:
    grid = torch.linspace(-2.95, 2.95, 60, dtype=torch.float64)
    p = torch.softmax(-((grid - 0.5) ** 2), 0)
    levels = (torch.arange(60_000, dtype=torch.float64) + 0.5) / 60_000
    fine = regular.quantile(p, grid, levels)
    assert float(fine.mean()) == pytest.approx(float(p @ grid), abs=1e-6)
    z = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = [math.sqrt(ot.emd2_1d(cloud.numpy(), fine.numpy())) for cloud in z]
    assert regular.w2_to_grid(z, p, grid, parts=64).tolist() == pytest.approx(exact, abs=1e-4)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="nodes must be even"):
        Settings(nodes=15)
    with pytest.raises(ValueError, match="cells"):
        Settings(cells=10)
    with pytest.raises(ValueError, match="units"):
        Settings(units=1)
    with pytest.raises(ValueError, match="duration"):
        Settings(duration=0.1)
    with pytest.raises(ValueError, match="centre"):
        Settings(centre=20.0)
    with pytest.raises(TypeError, match="rate"):
        Settings(rate="fast")
    with pytest.raises(ValueError, match="temperature"):
        regular.follow(SETTINGS, 0.1, -0.1)
    with pytest.raises(ValueError, match="noise"):
        regular.train_particles(SETTINGS, ends(PAIRS[0]).functional, noise=-1.0)
    with pytest.raises(ValueError, match="times must be multiples"):
        regular.chase(SETTINGS, *PAIRS[0], times=(0.123,))
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        regular.chase(SETTINGS, *PAIRS[0], sizes=(0,), times=(0.1,))
    with pytest.raises(ValueError, match="replicates must be at least 1"):
        regular.train_particles(SETTINGS, ends(PAIRS[0]).functional, replicates=0)
    with pytest.raises(ValueError, match="level"):
        particles(PAIRS[0]).interval(2.0)
    with pytest.raises(ValueError, match="number of points must be at least 1"):
        regular.w2_to_grid(torch.zeros(0).double(), ends(PAIRS[0]).minimiser, ends(PAIRS[0]).functional.grid)
