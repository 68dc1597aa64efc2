"""What the page *GANs and objectives* defines: closed forms twice, trained values, games, and controls that fail."""

from __future__ import annotations

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from lib.gans.mixtures import Mixture, gaussian_kernel, mmd_loss
from lib.gans.objectives import NAMES, objective
from lib.gans.plane_players import group_matrices
from lib.symmetry.groups import Dihedral
from lib.symmetry.own_groups import named
from tests.chapters import load

LEVELS = (torch.arange(300_000, dtype=torch.float64) + 0.5) / 300_000


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("gans_and_objectives", seed=11, seeds=2)


@pytest.fixture(scope="module")
def pairs(page: SimpleNamespace) -> list[SimpleNamespace]:
    tilted = [page.tilted_uniform(a) for a in (0.3, 1.0, 1.6, 2.0)]
    return [page.shifted_gaussians(0.7), *tilted, page.two_bumps()]


def test_ratios_are_densities(pairs: list[SimpleNamespace]) -> None:
    for pair in pairs:
        x, y = (q(LEVELS) for q in pair.quantiles)
        for function in (torch.ones_like, torch.sin, torch.square):
            assert float((pair.ratio(y) * function(y)).mean()) == pytest.approx(float(function(x).mean()), abs=2e-4)


def test_closed_forms_agree_with_quadrature(pairs: list[SimpleNamespace]) -> None:
    for pair in pairs:
        x, y = (q(LEVELS) for q in pair.quantiles)
        r, s = pair.ratio(x), pair.ratio(y)
        direct = {
            "kl": r.log().mean(),
            "jsd": (2 / (1 + 1 / r)).log().mean() + (2 / (1 + s)).log().mean(),
            "wasserstein": (x - y).abs().mean(),
        }
        for name in direct.keys() & pair.closed.keys():
            assert pair.closed[name] == pytest.approx(float(direct[name]), rel=2e-5), (pair.name, name)


def test_regularised_closed_form_agrees_with_a_convex_program(pairs: list[SimpleNamespace]) -> None:
    u = (torch.arange(402, dtype=torch.float64) + 0.5) / 402
    for pair in pairs[1:]:
        x = pair.quantiles[1](u)
        ratio, gaps = pair.ratio(x).numpy(), np.diff(x.numpy())
        gamma = cp.Variable(len(x))
        value = ratio @ gamma / len(x) - cp.sum_squares(cp.pos(gamma)) / (2 * len(x)) - 0.5
        program = cp.Problem(cp.Maximize(value), [cp.abs(cp.diff(gamma)) <= gaps])
        assert pair.closed["alpha"] == pytest.approx(program.solve(solver=cp.CLARABEL), rel=1e-3)


def test_relativistic_closed_form_agrees_with_ascent_over_all_functions(page: SimpleNamespace) -> None:
    pair, rule = page.two_bumps(), objective("relativistic")
    x = pair.quantiles[1]((torch.arange(30, dtype=torch.float64) + 0.5) / 30)
    counts = (2 * pair.ratio(x)).long()  # how often a point of P counts under Q: 1 on the left, 4 on the right

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        g = torch.from_numpy(flat).requires_grad_(True)
        value = -rule.value(g.repeat_interleave(counts), g)
        slope = torch.autograd.grad(value, g)[0]
        return float(value.detach()), slope.numpy()

    best = minimize(loss, np.random.default_rng(0).normal(size=30), jac=True, method="BFGS", options={"gtol": 1e-8})
    assert pair.closed["relativistic"] == pytest.approx(-float(best.fun), rel=1e-6)


def test_gaussian_closed_forms_agree_with_sums_over_quantiles(page: SimpleNamespace) -> None:
    z = torch.special.ndtri((torch.arange(700, dtype=torch.float64) + 0.5) / 700)
    x, y = 0.8 + 1.5 * z, z

    def kernel(u: Tensor, v: Tensor) -> float:
        square = (u[:, None] - v).square()
        return float(torch.stack([(square / (-2 * h * h)).exp().mean() for h in (0.4, 1.7)]).mean())

    mmd = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
    assert page.gaussian_mmd(0.8, 1.5, (0.4, 1.7)) == pytest.approx(mmd, rel=5e-3)
    z = z[::4]
    x, y, uniform = 0.8 + 1.5 * z, z, np.full(len(z), 1 / len(z))

    def cost(u: Tensor, v: Tensor) -> float:
        c = (u[:, None] - v).square().numpy()
        plan = ot.sinkhorn(uniform, uniform, c, 2.0, method="sinkhorn_log", stopThr=1e-9)
        return float((plan * c).sum() + 2.0 * (plan * np.log(plan * len(z) ** 2 + 1e-300)).sum())

    expected = cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2
    assert page.gaussian_sinkhorn(0.8, 1.5, 2.0) == pytest.approx(expected, rel=2e-2)
    assert page.gaussian_sinkhorn(0.8, 1.0, 2.0) == pytest.approx(0.64, rel=1e-12)  # equal widths: ε drops out
    assert page.gaussian_sinkhorn(1.0, 2.0, 1e-9) == pytest.approx(2, rel=1e-6)  # W2² = 1 + (2 − 1)²
    assert page.gaussian_sinkhorn(1.0, 2.0, 1e6) == pytest.approx(1, rel=1e-3)  # the means alone


def test_sinkhorn_agrees_with_pot(page: SimpleNamespace) -> None:
    x, y, eps = normal(7, 2), normal(9, 2, seed=1) + 1, 3.0

    def cost(u: Tensor, v: Tensor) -> float:
        c = torch.cdist(u, v).square().numpy()
        a, b = np.full(len(u), 1 / len(u)), np.full(len(v), 1 / len(v))
        plan = ot.sinkhorn(a, b, c, eps, method="sinkhorn_log", stopThr=1e-10, numItermax=20_000)
        return float((plan * c).sum() + eps * (plan * np.log(plan / np.outer(a, b))).sum())

    expected = cost(x, y) - cost(x, x) / 2 - cost(y, y) / 2
    assert float(page.sinkhorn_loss(x, y, eps, iterations=500)) == pytest.approx(expected, rel=1e-7)
    assert float(page.sinkhorn_loss(x, x, eps, iterations=200)) == pytest.approx(0, abs=1e-12)


def test_sinkhorn_gradient_is_that_of_its_value(page: SimpleNamespace) -> None:
    x = normal(1, 4, 2).requires_grad_(True)
    y = normal(1, 5, 2, seed=1) + 1
    assert torch.autograd.gradcheck(lambda z: page.sinkhorn_loss(z, y, 3.0, iterations=100), (x,))


def test_sinkhorn_runs_from_transport_to_the_distance_of_means(page: SimpleNamespace) -> None:
    x, y = normal(20, 2), normal(20, 2, seed=1) + 1
    uniform = np.full(20, 0.05)
    transport = ot.emd2(uniform, uniform, torch.cdist(x, y).square().numpy())
    assert float(page.sinkhorn_loss(x, y, 0.01, iterations=3000)) == pytest.approx(float(transport), rel=0.02)
    means = float((x.mean(0) - y.mean(0)).square().sum())
    assert float(page.sinkhorn_loss(x, y, 1e4, 50)) == pytest.approx(means, rel=1e-2)


# --- trained discriminators ---


@pytest.mark.parametrize("name", ["jsd", "kl", "alpha", "relativistic"])
def test_trained_values_are_near_and_never_much_above(page: SimpleNamespace, name: str) -> None:
    some = [pair for pair in (page.tilted_uniform(1.5), page.two_bumps()) if name in pair.closed]
    value, networks = page.trained(objective(name), some)
    closed = torch.tensor([pair.closed[name] for pair in some])[:, None]
    assert value.shape == (len(some), 2)
    assert float((value / closed - 1).abs().max()) < 0.05
    assert bool((value <= 1.01 * closed).all())  # a γ never beats the supremum
    x = torch.linspace(0, 1, 7).expand(2 * len(some), -1)[..., None]
    assert networks(x).shape == (2 * len(some), 7, 1)


def test_w1_is_reached_with_the_one_sided_penalty_and_overshot_with_the_two_sided(page: SimpleNamespace) -> None:
    gaussians = [page.shifted_gaussians()]
    exact, _, _ = page.errors(page.with_penalty("wasserstein", "one_sided", 2.0), gaussians)
    assert float(exact.max()) < 0.05
    two_sided = objective("wasserstein")
    _, D = page.trained(two_sided, gaussians)
    u = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    x, y = (q(u).float().expand(2, -1)[..., None] for q in gaussians[0].quantiles)
    value = two_sided.value(D(x)[..., 0], D(y)[..., 0])
    right = value[value > 0]  # a γ that started with slope −1 keeps it
    assert right.numel() > 0
    assert torch.allclose(right, torch.full_like(right, 1 + 1 / 20), atol=0.02)


def test_controls_miss_and_could_have_hit(page: SimpleNamespace) -> None:
    steep, gentle = page.tilted_uniform(1.8), page.tilted_uniform(0.6)
    free = page.with_penalty("alpha", None, 0.0)
    assert float(page.errors(free, [steep])[0].min()) > 0.05
    value, _ = page.trained(free, [steep])
    assert float(value.mean()) == pytest.approx(1.8**2 / 24, rel=0.03)  # the α-divergence itself
    assert float(page.errors(free, [gentle])[0].max()) < 0.05  # the constraint does not bind here
    kl = objective("kl")
    assert float(page.errors(kl, [steep], width=0, rate=0.1)[0].min()) > 0.05
    affine = page.errors(kl, [page.shifted_gaussians()], width=0, rate=0.1)[0]
    assert float(affine.max()) < 0.05  # here the best γ is affine


# --- games ---


def test_symmetric_players_train(page: SimpleNamespace) -> None:
    space = vars(page)["played"].__globals__
    space |= {"width": 16, "rate": 8e-3, "steps": 80}
    law = Mixture(group=Dihedral(2))
    times, frames = page.played(law, "relativistic")
    misled = page.played(Mixture(group=Dihedral(2), radius=9.0), "relativistic")[1]
    truth = law.reference((2, 150), torch.Generator().manual_seed(0), torch.float64)
    right, wrong = page.distances(frames, truth), page.distances(misled, truth)
    kernel = gaussian_kernel((0.5, 1.0, 2.0, 4.0))
    alone = page.distances(page.descended(law, lambda x, y: mmd_loss(x, y, kernel), times), truth)
    assert times == [0, 20, 40, 60, 80]
    assert right.shape == alone.shape == (5, 2)
    assert bool((right[-1] < 0.8 * right[0]).all())
    assert bool((alone[-1] < 0.8 * alone[0]).all())
    assert bool((wrong[-1] > right[-1]).all())
    again = page.played(law, "relativistic")[1]
    assert torch.equal(again, frames)


def test_forms_and_exercises(page: SimpleNamespace) -> None:
    assert page.penalties(lambda x: 2 * x[..., 0], "one_sided") == pytest.approx([3, 0])
    assert page.penalties(lambda x: x[..., 0], "two_sided") == pytest.approx([0, 1])
    assert page.penalties(lambda x: x.abs()[..., 0], "two_sided") == pytest.approx([0, 0])
    rule = page.chi_square()
    y = torch.linspace(-4, 3, 71, dtype=torch.float64)
    t = torch.linspace(0, 6, 6001, dtype=torch.float64)
    assert torch.allclose(rule.fake(y), (y[:, None] * t - (t - 1) ** 2).amax(1), atol=1e-5)
    assert set(NAMES) == {name for pair in (page.two_bumps(),) for name in pair.closed}


def test_parameters_are_checked() -> None:
    for change in ({"group": "S4"}, {"seeds": 1}, {"steps": 10}, {"device": "abacus"}):
        with pytest.raises(ValueError, match=next(iter(change))):
            load("gans_and_objectives", **change)


@pytest.mark.parametrize("name", ["C2", "C3", "D2", "D4"])
def test_an_invariant_function_is_flat_at_the_origin(page: SimpleNamespace, name: str) -> None:
    turns = group_matrices(Mixture(group=named(name)).representation).double()
    slope = torch.tensor([0.3, -2.0], dtype=torch.float64)
    assert float(page.slope_at_origin(lambda x: torch.sinh(x @ slope), turns).abs().max()) < 1e-12
    assert page.slope_at_origin(lambda x: torch.sinh(x @ slope), turns[:1]).tolist() == pytest.approx([0.3, -2.0])


# --- two metrics without a network ---


def test_orbits_are_moved_by_the_group() -> None:
    page = load("gans_and_objectives", group="D3")
    points, moved = page.orbits(page.G, 3, 7)
    M = page.planar(page.G).matrix(page.G.elements())
    for h in range(page.G.order):
        torch.testing.assert_close(points @ M[h].mT, points[moved[h]])


@pytest.mark.parametrize("kind", ["total variation", "Dudley"])
def test_metrics_are_metrics_with_known_values(kind: str) -> None:
    """Two points at distance d: 2 for the total variation, 2d/(2 + d) for the Dudley metric; and the axioms."""
    page = load("gans_and_objectives")
    for d in (0.1, 1.0, 7.0):
        space = np.array([[0.0, 0.0], [d, 0.0]])
        found = page.metric(kind, np.array([1.0, 0.0]), np.array([0.0, 1.0]), space)
        assert found == pytest.approx(2.0 if kind == "total variation" else 2 * d / (2 + d))
    g = np.random.default_rng(3)
    space, (p, q, r) = g.normal(size=(6, 2)), g.dirichlet(np.ones(6), 3)
    pq, qp, pr, rq = (page.metric(kind, a, b, space) for a, b in ((p, q), (q, p), (p, r), (r, q)))
    assert pq == pytest.approx(qp)
    assert pq <= pr + rq + 1e-9
    assert page.metric(kind, p, p, space) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", ["total variation", "Dudley"])
@pytest.mark.parametrize("group", ["C5", "D3"])
def test_two_metrics_obey_both_theorems(kind: str, group: str) -> None:
    """X1 at other groups and seeds; a sheared plane breaks them for the metric that knows distances."""
    page = load("gans_and_objectives", group=group)
    found = page.two_theorems(kind, page.G, 77)
    assert max(found["theorem"], found["collapse"]) < 1e-9
    assert found["neither"] > 1e-3
    sheared = page.two_theorems(kind, page.G, 77, 0.7)
    assert (sheared["theorem"] > 1e-3) == (kind == "Dudley")
