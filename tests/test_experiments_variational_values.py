"""Chapter *Structure-preserving GANs*, the family of objectives: closed forms twice, trained values, controls."""

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from lib.experiments import objective_games as games
from lib.experiments import variational_values as values
from lib.gans.known_pairs import Pair, gaussian_mmd, gaussian_sinkhorn, shifted_gaussians, tilted_uniform, two_bumps
from lib.gans.objectives import NAMES, objective

PAIRS = [shifted_gaussians(0.7), *(tilted_uniform(a) for a in (0.3, 1.0, 1.6, 2.0)), two_bumps()]
QUICK = values.Settings(seeds=2, steps=200, constrained_steps=400, replicates=1500)
SHORT = games.Settings(seeds=2, iterations=80, frames=3, truth=200, samples=100)


LEVELS = (torch.arange(300_000, dtype=torch.float64) + 0.5) / 300_000


def expectation(pair: Pair, law: int, function: Callable[[Tensor], Tensor]) -> float:
    """Return the mean of a function under Q (0) or P (1), by the midpoint rule over the levels."""
    return float(function(pair.quantiles[law](LEVELS)).mean())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_ratio_is_the_density_of_one_law_with_respect_to_the_other(pair: Pair) -> None:
    for function in (torch.ones_like, torch.sin, lambda x: x * x):
        weighted = expectation(pair, 1, lambda x, f=function: pair.ratio(x) * f(x))
        assert weighted == pytest.approx(expectation(pair, 0, function), abs=2e-4)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_closed_forms_agree_with_quadrature(pair: Pair) -> None:
    direct = {
        "kl": expectation(pair, 0, lambda x: pair.ratio(x).log()),
        "jsd": expectation(pair, 0, lambda x: (2 / (1 + 1 / pair.ratio(x))).log())
        + expectation(pair, 1, lambda x: (2 / (1 + pair.ratio(x))).log()),
    }
    direct["wasserstein"] = float((pair.quantiles[0](LEVELS) - pair.quantiles[1](LEVELS)).abs().mean())
    for name in direct.keys() & pair.closed.keys():
        assert pair.closed[name] == pytest.approx(direct[name], rel=2e-5), name


@pytest.mark.parametrize("pair", PAIRS[1:], ids=lambda p: p.name)
def test_regularised_closed_form_agrees_with_a_convex_program(pair: Pair) -> None:
    x = pair.nodes(402)[1]
    ratio, gaps = pair.ratio(x).numpy(), np.diff(x.numpy())
    gamma = cp.Variable(len(x))
    value = ratio @ gamma / len(x) - cp.sum_squares(cp.pos(gamma)) / (2 * len(x)) - 0.5
    program = cp.Problem(cp.Maximize(value), [cp.abs(cp.diff(gamma)) <= gaps])
    assert pair.closed["alpha"] == pytest.approx(program.solve(solver=cp.CLARABEL), rel=1e-3)
    free = float((pair.ratio(x).square().mean() - 1) / 2)  # the α-divergence without a constraint
    binds = pair.name in ("uniform, tilted by 1.6", "uniform, tilted by 2")
    assert (free > 1.05 * pair.closed["alpha"]) == binds


def test_relativistic_closed_form_agrees_with_ascent_over_all_functions() -> None:
    pair, rule = two_bumps(), objective("relativistic")
    x = pair.nodes(30)[1]
    counts = (2 * pair.ratio(x)).long()  # how often a point of P counts under Q: 1 on the left, 4 on the right

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        g = torch.from_numpy(flat).requires_grad_(True)
        value = -rule.value(g.repeat_interleave(counts), g)
        slope = torch.autograd.grad(value, g)[0]
        return float(value.detach()), slope.numpy()

    best = minimize(loss, np.random.default_rng(0).normal(size=30), jac=True, method="BFGS", options={"gtol": 1e-8})
    assert pair.closed["relativistic"] == pytest.approx(-float(best.fun), rel=1e-6)


def test_gaussian_closed_forms_agree_with_sums_over_quantiles() -> None:
    z = shifted_gaussians().nodes(700)[1]
    x, y = 0.8 + 1.5 * z, z

    def kernel(u: Tensor, v: Tensor) -> float:
        square = (u[:, None] - v).square()
        return float(torch.stack([(square / (-2 * h * h)).exp().mean() for h in (0.4, 1.7)]).mean())

    mmd = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
    assert gaussian_mmd(0.8, 1.5, (0.4, 1.7)) == pytest.approx(mmd, rel=5e-3)
    z = z[::4]
    x, y, uniform = 0.8 + 1.5 * z, z, np.full(len(z), 1 / len(z))

    def cost(u: Tensor, v: Tensor) -> float:
        c = (u[:, None] - v).square().numpy()
        plan = ot.sinkhorn(uniform, uniform, c, 2.0, method="sinkhorn_log", stopThr=1e-9)
        return float((plan * c).sum() + 2.0 * (plan * np.log(plan * len(z) ** 2 + 1e-300)).sum())

    expected = cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2
    assert gaussian_sinkhorn(0.8, 1.5, 2.0) == pytest.approx(expected, rel=2e-2)
    assert gaussian_sinkhorn(0.8, 1.0, 2.0) == pytest.approx(0.64, rel=1e-12)  # equal widths: ε drops out


# --- trained discriminators ---


@pytest.fixture(scope="module")
def measured() -> dict[str, values.Values]:
    return values.measure_values(QUICK, ("jsd", "kl", "alpha", "relativistic"))


@pytest.mark.parametrize("name", ["jsd", "kl", "alpha", "relativistic"])
def test_trained_values_are_near_and_never_much_above(measured: dict[str, values.Values], name: str) -> None:
    result = measured[name]
    assert float(result.errors.max()) < 0.05
    assert bool((result.measured <= result.closed[:, None] * 1.01).all())  # a γ never beats the supremum
    assert bool((result.measured <= result.unpenalised).all())
    assert result.score(torch.zeros(7).double()).shape == (len(result.pairs), 2, 7)


def test_w1_is_reached_with_the_one_sided_penalty_and_overshot_with_the_two_sided() -> None:
    settings = values.Settings(seeds=2)
    pairs = [shifted_gaussians(1.0)]
    exact = values.train_values(values.value_rule("wasserstein"), pairs, settings)
    assert float(exact.errors.max()) < 0.05
    usual = values.train_values(objective("wasserstein"), pairs, settings)
    right = usual.unpenalised[usual.unpenalised > 0]  # a γ that started with slope −1 keeps it
    assert right.numel() > 0
    assert torch.allclose(right, torch.full_like(right, 1 + 1 / 20), atol=0.02)


def test_controls_miss_and_could_have_hit() -> None:
    controls = values.control_values(replace(QUICK, steps=300))
    assert min(float(v.errors.min()) for v in controls.values()) > 0.05
    free = replace(objective("alpha"), penalty=None, penalty_weight=0.0)
    gentle = values.train_values(free, [tilted_uniform(0.6)], QUICK)  # the constraint does not bind here
    assert float(gentle.errors.max()) < 0.05
    fast = replace(QUICK, rate=0.1)
    affine = values.train_values(objective("kl"), [shifted_gaussians(1.0)], fast, linear=True)  # the best γ is affine
    assert float(affine.errors.max()) < 0.05
    steep = controls["alpha, no penalty"]
    assert float(steep.measured.mean()) == pytest.approx(1.8**2 / 24, rel=0.03)  # the α-divergence itself


def test_losses_without_a_discriminator_reach_their_closed_forms() -> None:
    for name, (value, closed) in values.two_sample_values(QUICK).items():
        assert value == pytest.approx(closed, rel=0.05), name


# --- games ---


def test_symmetric_players_train_and_a_generator_that_climbs_runs_away() -> None:
    curves = games.train_objectives(SHORT, ("relativistic", "mmd", "sinkhorn"))
    assert curves.times == [0, 40, 80]
    assert min(float(g.min()) for g in curves.gains.values()) > 0.1
    for curve in curves.distances.values():
        assert curve.shape == (3, 2)
        assert bool((curve[-1] > curves.floor * 0.8).all())
    control = games.train_objectives(SHORT, ("relativistic",), climbs=True)
    assert float(control.gains["relativistic"].max()) < 0
    again = games.train_objectives(SHORT, ("mmd",))
    assert torch.equal(again.distances["mmd"], curves.distances["mmd"])


def test_objectives_cover_the_family() -> None:
    assert set(games.ALL) == {*NAMES, "mmd", "sinkhorn"}
    known = {name for pair in values.known_pairs() for name in pair.closed}
    assert known == set(NAMES)


def test_bad_input_is_named() -> None:
    for bad in ({"seeds": 0}, {"batch": 1}, {"rate": -1.0}, {"nodes": 3}, {"steps": 1.5}):
        with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
            values.Settings(**bad)
    for bad in (
        {"samples": 1},
        {"iterations": 0},
        {"batch": 500},
        {"generator_rate": 2.0},
        {"frames": 1},
        {"truth": 0},
    ):
        with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
            games.Settings(**bad)
    with pytest.raises(ValueError, match="pairs must have a closed form"):
        values.train_values(objective("relativistic"), [tilted_uniform()], QUICK)
    with pytest.raises(ValueError, match="names must be one of"):
        games.train_objectives(SHORT, ("mmd",), climbs=True)
    with pytest.raises(ValueError, match="tilt"):
        tilted_uniform(2.5)
    with pytest.raises(ValueError, match="shift"):
        shifted_gaussians(0.0)
    with pytest.raises(ValueError, match="epsilon"):
        gaussian_sinkhorn(1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="count"):
        two_bumps().nodes(0)
