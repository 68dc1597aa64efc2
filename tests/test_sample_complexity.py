"""What the page *Sample complexity of divergences* defines: other seeds, other groups, and controls that fail."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import ot
import pytest
import torch
from scipy.stats import binom

from lib.page.results import stored
from lib.symmetry.actions import planar
from lib.symmetry.own_groups import named
from lib.transport.divergences import w1_batch
from lib.transport.quotient import lattice, linear, moduli, pairs_in_space, phase, radial, turns
from tests.chapters import load
from tests.oracles import w1_invariant_program, w1_symmetrised

SIZES = [16, 32, 64, 128, 256, 512]


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("sample_complexity", seed=11)


def relative_gap(values: tuple[float, ...]) -> float:
    return (max(values) - min(values)) / values[1]


@pytest.mark.parametrize("name", ["C1", "C3", "C8", "D1", "D4", "D7"])
def test_matrices_are_the_group_of_the_library(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    ours, theirs = page.matrices(name), planar(group).matrix(group.elements())
    assert ours.shape == theirs.shape
    nearest = torch.cdist(ours.flatten(1), theirs.flatten(1)).min(1)
    assert nearest.values.max() < 1e-7
    assert sorted(nearest.indices.tolist()) == list(range(len(ours)))


def test_three_routes(page: SimpleNamespace) -> None:
    for name, seed in itertools.product(("C3", "C8", "D4", "D5"), (20, 21)):
        matrices = page.matrices(name)
        x, y = page.samples(seed, 7, 4, 2)
        routes = page.three_routes(x, y, lambda p, m=matrices: page.images(m, p), torch.cdist)
        action = linear(planar(named(name)))
        oracles = (w1_symmetrised(x, y, action), w1_invariant_program(x, y, action))
        assert relative_gap(routes + oracles) < 1e-8
    quarter = page.matrices("C4")
    for seed in range(20, 30):
        x, y = page.samples(seed, 7, 4, 2)
        assert page.gap_of_shear(0.0, seed) < 1e-8
        assert page.gap_of_shear(0.8, seed) > 1e-2
        missing = page.three_routes(x, y, lambda p: page.images(quarter[:-1], p), torch.cdist)
        assert relative_gap(missing) > 1e-2


def test_the_picture_shows_the_transport_of_the_library(page: SimpleNamespace) -> None:
    x, y = page.samples(20, 6, 6, 2)
    for name in ("C1", "C5", "D3"):
        ends, length = page.nearest_partners(x, y, page.matrices(name))
        action = linear(planar(named(name)))
        assert length == pytest.approx(float(w1_batch(x[None], y[None], action)))
        assert length == pytest.approx(float((x - ends).norm(dim=-1).mean()))
        partners = action.distance(ends, y).argmin(1)  # each end is an image of its own point
        assert sorted(partners.tolist()) == list(range(6))


def test_distances_on_circles_and_tori(page: SimpleNamespace) -> None:
    x, y = torch.rand(2, 6, 30, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    circles = [page.circle_w1(a.numpy(), b.numpy(), 0.25) for a, b in zip(x[..., 0], y[..., 0])]
    assert circles == pytest.approx(w1_batch(x, y, lattice(4, 1)).tolist())
    few = x[0, :7]
    cost = page.torus_distance(few, y[0], 1.0)
    assert page.circle_w1(few[:, 0].numpy(), y[0, :, 0].numpy(), 1.0) == pytest.approx(ot.emd2([], [], cost.numpy()))
    u, v = torch.rand(2, 5, 20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    by_hand = [float(page.assignment_w1(a, b, 1 / 3)) for a, b in zip(u, v)]
    assert by_hand == pytest.approx(w1_batch(u, v, lattice(3, 3)).tolist())


def test_torus_scales_exactly() -> None:
    x, y = torch.rand(2, 4, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(w1_batch(x / 3, y / 3, lattice(3, 2)), w1_batch(x, y, lattice(1, 2)) / 3)


def test_seeds_share_out_the_pairs_and_reach_them() -> None:
    chapters = [load("sample_complexity", seed=s, seeds=3) for s in (5, 5, 6)]
    first, again, other = (c.pairs(c.uniform(2), 10, 3, stream=1) for c in chapters)
    assert first.shape == (2, 12, 3, 2)
    assert torch.equal(first, again)
    assert not np.intersect1d(first, other).size
    alone = chapters[0].uniform(2)(4, 3, torch.Generator().manual_seed(10_000 * 5001 + 1))
    assert torch.equal(first[0, 4:8], alone)


def test_control_variates_keep_the_mean() -> None:
    """On a line the expected distance is known: the integral of E|F − G|, with binomial counts below every point."""
    page = load("sample_complexity", seed=3, seeds=3)
    draw = page.balls(2)
    controls = page.known_means(radial(2), draw)
    r, w = np.polynomial.legendre.leggauss(200)
    below = ((r + 1) / 2) ** 2
    for n in (16, 40):
        x, y = page.pairs(draw, 4000, n, stream=n)
        plain = w1_batch(x, y, radial(2)).numpy()
        values = page.less_noisy(plain, controls(x, y).numpy())
        counts = binom.pmf(np.arange(n + 1)[:, None], n, below)
        gap = np.abs(np.arange(n + 1)[:, None] - np.arange(n + 1))
        exact = w / 2 @ np.einsum("ip,ij,jp->p", counts, gap, counts) / n
        assert abs(values.mean() - exact) < 4 * values.std() / math.sqrt(len(values))
        assert abs(plain.mean() - exact) < 4 * plain.std() / math.sqrt(len(plain))
        assert values.var() < 0.2 * plain.var()


def test_less_noisy_values_are_no_surer_than_they_may_be(page: SimpleNamespace) -> None:
    """Controls that have nothing to do with the values leave mean and standard error as they are."""
    rng = np.random.default_rng(0)
    values, controls = rng.exponential(size=(200, 80)), rng.standard_normal((200, 80, 10))
    found = np.array([page.less_noisy(v, c) for v, c in zip(values, controls)])
    assert found.std(1, ddof=1).mean() == pytest.approx(values.std(1, ddof=1).mean(), rel=0.03)
    spread = found.mean(1).std()
    assert spread == pytest.approx(values.mean(1).std() * math.sqrt(1 + 10 / 69), rel=0.2)
    assert page.less_noisy(values[0], np.empty((80, 0))) == pytest.approx(values[0])


def test_the_bootstrap_knows_standard_errors(page: SimpleNamespace) -> None:
    errors = {16: np.random.default_rng(1).exponential(size=400), 32: np.ones(5)}
    means = page.resampled_means(errors, times=2000)
    assert means.shape == (2, 2001)
    assert means[:, 0] == pytest.approx([errors[16].mean(), 1.0])
    assert means[0].std() == pytest.approx(errors[16].std() / 20, rel=0.1)
    assert means[1] == pytest.approx(1.0)


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_a_drift_finds_its_own_law_and_no_other(page: SimpleNamespace, q: int) -> None:
    rng, n = np.random.default_rng(0), np.array(SIZES, dtype=float)
    a, b = {1: (0.5, 1.0), 2: (0.2, 0.2)}.get(q, (0.5, -0.2))
    mean = np.sqrt((a * page.growth(n, q) + b) / n)
    errors = {k: m * (1 + 1e-4 * rng.standard_normal(50)) for k, m in zip(SIZES, mean)}
    delta, predicted, fitted = page.drift(errors, q)
    assert abs(delta[0]) < 1e-3
    assert np.quantile(delta[1:], 0.025) <= delta[0] <= np.quantile(delta[1:], 0.975)
    assert predicted == pytest.approx(mean, rel=1e-2)
    assert fitted == pytest.approx(a, rel=0.05)
    row = page.rate(errors, q)
    assert row["corrected"] == pytest.approx(-1 / max(q, 2), abs=1e-3)
    assert row["low"] <= row["corrected"] <= row["high"]
    if q > 1:
        assert abs(page.drift(errors, q % 4 + 2)[0][0]) > 0.02


@pytest.mark.parametrize("q", [2, 3, 4])
def test_a_boundary_has_a_term_of_its_own(page: SimpleNamespace, q: int) -> None:
    n = np.array(SIZES, dtype=float)
    mean = np.sqrt((0.5 * page.growth(n, q) + 0.3 * page.edge(n, q) - 0.1) / n)
    errors = {k: m * (1 + np.linspace(-1e-4, 1e-4, 20)) for k, m in zip(SIZES, mean)}
    delta, predicted, a = page.drift(errors, q, 0.5)
    assert a == 0.5
    assert abs(delta[0]) < 1e-4
    assert predicted == pytest.approx(mean, rel=1e-3)
    assert abs(page.drift(errors, q)[0][0]) > 2e-3


def test_rates() -> None:
    page = load("sample_complexity", seed=7, seeds=2, group="D3", replicates=600)
    errors = page.mean_errors(lattice(2, 3), page.uniform(3))
    assert list(errors) == SIZES
    assert abs(page.drift(errors, 3)[0][0]) < 0.02
    assert abs(page.drift(errors, 2)[0][0]) > 0.03
    gain = page.gain(page.torus_gain(1), -1.0)
    assert gain["slope"] == pytest.approx(-1, abs=0.02)
    assert gain["low"] <= gain["slope"] <= gain["high"]


def test_orbit_volumes(page: SimpleNamespace) -> None:
    """The integrals of the quotient's density against the volumes of sampled orbits, from the action's differential."""
    g = torch.Generator().manual_seed(0)
    u, v = page.balls(3, 2)(1, 200_000, g)[0].unflatten(-1, (2, 3)).unbind(1)
    eye = torch.eye(3, dtype=torch.float64)
    moved = torch.cat([torch.linalg.cross(eye.expand(len(u), 3, 3), p[:, None]) for p in (u, v)], -1)
    volume = 8 * math.pi**2 * torch.linalg.det(moved @ moved.mT).sqrt()
    density = volume / (4 * math.pi / 3) ** 2
    assert page.spread_of_pairs() == pytest.approx(float((density ** (-1 / 3)).mean()), rel=3e-3)
    radius = torch.linalg.vector_norm(page.balls(4)(1, 200_000, g)[0], dim=-1)
    density = 2 * math.pi * radius / (math.pi**2 / 2)
    assert page.spread_of_phase() == pytest.approx(float((density ** (-1 / 3)).mean()), rel=3e-3)


@pytest.mark.parametrize("seeds", [4])
def test_infinite_groups(seeds: int) -> None:
    page = load("sample_complexity", seed=seeds, seeds=seeds, replicates=600)
    tables = stored("sample_complexity/rates", "errors")
    for q, space, spread, action, draw in (
        (2, "torus 2", 1.0, moduli(2), page.moduli),
        (3, "torus 3", page.spread_of_phase(), phase(2), page.balls(4)),
        (3, "torus 3", page.spread_of_pairs(), pairs_in_space(), page.balls(3, 2)),
    ):
        torus = {n: v.to_numpy() for n, v in tables[tables["space"] == space].groupby("n")["error"]}
        a = page.drift(torus, q)[2] * (2 * spread) ** 2
        errors = page.mean_errors(action, draw)
        assert abs(page.drift(errors, q, a)[0][0]) < 0.02 < abs(page.drift(errors, action.dim)[0][0])
        assert abs((spread / page.spread_by_neighbours(action, draw)) ** 2 - 1) < 0.1


def test_samplers_of_infinite_groups(page: SimpleNamespace) -> None:
    for action, draw in (
        (radial(2), page.balls(2)),
        (radial(3), page.balls(3)),
        (moduli(2), page.moduli),
        (phase(2), page.balls(4)),
        (pairs_in_space(), page.balls(3, 2)),
    ):
        x = draw(2, 3, torch.Generator().manual_seed(0))
        assert x.shape == (2, 3, action.dim)
        assert (w1_batch(x, x, action).abs() < 1e-7).all()
    radius = page.balls(3)(1, 20_000, torch.Generator().manual_seed(0)).norm(dim=-1)
    assert float((radius**3).mean()) == pytest.approx(0.5, abs=0.01)  # uniform volume
    assert radius.max() <= 1


def test_the_nearest_phase_comes_close_from_above(page: SimpleNamespace) -> None:
    x, y = page.balls(4)(2, 6, torch.Generator().manual_seed(4))
    exact = phase(2).distance(x, y)
    coarse, fine = (page.nearest_phase(x, y, k) - exact for k in (50, 5000))
    assert fine.min() > -1e-9
    assert fine.max() < 1e-3 < coarse.max()


def test_rotations_of_the_disc_saturate(page: SimpleNamespace) -> None:
    x, y = page.balls(2)(6, 40, torch.Generator().manual_seed(0)).chunk(2)
    floor = w1_batch(x, y, radial(2))
    for order in (1, 8, 64):
        value = w1_batch(x, y, turns(order))
        assert (floor <= value + 1e-12).all()
        assert (value <= floor + math.pi / order).all()


def test_slices_of_the_disc(page: SimpleNamespace) -> None:
    """The law is found again, and, fitted to small samples, it predicts larger ones; a plain power law does not."""
    rng, orders = np.random.default_rng(0), np.array([1.0, 2, 4, 8, 16, 32])
    known = page.slice_law((0.14, 0.7, 0.4), 64, orders)
    errors = {k: v * (1 + 1e-4 * rng.standard_normal(30)) for k, v in zip(orders, known)}
    assert page.slices(errors, 64) == pytest.approx((0.14, 0.7, 0.4), rel=0.02)
    orders, small, large = (2, 4, 8, 16, 32, 64), {}, {}
    for errors, n, count in ((small, 32, 400), (large, 128, 80)):
        x, y = page.pairs(page.balls(2), count, n, stream=n)
        errors |= {k: w1_batch(x, y, turns(k)).numpy() for k in orders}
    mean = np.array([v.mean() for v in large.values()])
    assert mean == pytest.approx(page.slice_law(page.slices(small, 32), 128, np.array(orders)), rel=0.06)
    assert mean[-1] > 1.5 * mean[0] * 32**-0.5


def test_different_laws_have_the_stated_distance(page: SimpleNamespace) -> None:
    u = torch.rand(1, 4000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pushed = page.stripes(u)
    assert torch.equal(pushed[..., 1], u[..., 1])
    assert ((pushed[..., 0] % 0.25) <= 0.125 + 1e-12).all()
    even = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    points = torch.stack([even, even], -1)
    distance = w1_batch(points[None, :, :1], page.stripes(points)[None, :, :1], lattice(4, 1))
    assert float(distance) == pytest.approx(1 / 32, rel=1e-3)


def test_exercises(page: SimpleNamespace) -> None:
    u, v = page.samples(30, 4, 5, 4)
    permutations = torch.eye(4, dtype=torch.float64)[torch.tensor(list(itertools.permutations(range(4))))]
    assert torch.allclose(page.sorted_cost(u, v), torch.cdist(u, page.images(permutations, v)).amin(0))
    gaps = [page.gap_of_shear(t, 31) for t in (1e-4, 1e-3, 1e-2)]
    assert gaps[2] / gaps[1] == pytest.approx(gaps[1] / gaps[0], rel=0.2)
    g = torch.Generator().manual_seed(32)
    x, y = torch.rand(2, 20, 30, 2, dtype=torch.float64, generator=g)
    floor = np.mean([page.circle_w1(a, b, 1.0) for a, b in zip(x[..., 1].numpy(), y[..., 1].numpy())])
    errors = [page.stripe_error(L, x, y) for L in (1, 8, 256)]
    assert errors[0] > errors[1] > errors[2] > floor
    assert errors[2] == pytest.approx(floor, rel=0.01)
    x, y = 2 * torch.rand(2, 4000, 40, dtype=torch.float64, generator=g) - 1
    assert page.mirror_factor(x, y) == pytest.approx(4, rel=0.08)
    assert page.mirror_factor(x.abs(), y.abs()) == pytest.approx(1)


def test_the_stored_results_keep_to_the_bounds(page: SimpleNamespace) -> None:
    tables = stored("sample_complexity/rates", "errors")
    errors: dict[str, dict[int, np.ndarray]] = {}
    for (space, n), rows in tables.groupby(["space", "n"], sort=False):
        errors.setdefault(space, {})[n] = rows["error"].to_numpy()
    spreads = {"T² on C²": (2, 1.0), "U(1) on C²": (3, page.spread_of_phase())}
    spreads["SO(3) on pairs"] = (3, page.spread_of_pairs())
    for space, values in errors.items():
        assert list(values) == SIZES
        q, spread = spreads.get(space, (int(space[-1]) if "torus" in space else 1, 0.0))
        a = page.drift(errors[f"torus {q}"], q)[2] * (2 * spread) ** 2 if spread else None
        delta = page.drift(values, q, a)[0]
        assert np.abs(np.quantile(delta[1:], [0.025, 0.975])).max() < 0.01
        if spread:  # without its boundary's term the law drifts
            assert page.drift(values, q)[0][0] < -0.004
    discs = {}
    for (space, n), rows in stored("sample_complexity/gains", "errors").groupby(["space", "n"]):
        by_order = {k: v.to_numpy() for k, v in rows.groupby("order")["error"]}
        if space == "disc":
            discs[n] = {k: v for k, v in by_order.items() if k < math.inf}
        else:
            found = page.gain(by_order, -1 / int(space[-1]))
            assert max(abs(found[end] - found["theory"]) for end in ("low", "high")) < 0.02
    law = page.slices(discs[64], 64)
    for n, values in discs.items():
        mean = np.array([v.mean() for v in values.values()])[1:]
        assert mean == pytest.approx(page.slice_law(law, n, np.array(list(values))[1:]), rel=0.04)


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "E8", "seeds": 1, "seed": -1, "replicates": 10, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load("sample_complexity", **{name: value})
