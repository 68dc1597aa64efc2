"""Chapter *Kernels, divergences, images*: the functions on its page, at other groups and seeds."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from lib.images.bundled import histology_patches
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic, Dihedral
from lib.transport.divergences import regularised_batch, w1
from lib.transport.kernels import kernel_reach, mmd_squared, orbit_kernel
from lib.transport.quotient import lattice, linear, no_group, radial, turns
from lib.transport.ring import ring, ring_reach
from tests.chapters import load

WIDTH = 2 * math.pi / 24
GROUPS = {"C3": Cyclic(3), "C8": Cyclic(8), "D1": Dihedral(1), "D4": Dihedral(4)}


@pytest.mark.parametrize("name", GROUPS)
def test_the_averaged_kernel(name):
    page, G = load("kernels_and_divergences", group=name, seed=3), GROUPS[name]
    torch.testing.assert_close(
        sorted(page.G.flatten(1).tolist()), sorted(planar(G).matrix(G.elements()).flatten(1).tolist())
    )
    x, y = page.ring(2, 9, torch.Generator().manual_seed(1))
    k, action = partial(page.gauss, s=WIDTH), linear(planar(G))
    torch.testing.assert_close(page.averaged(k, page.G)(x, y), orbit_kernel(x, y, action, WIDTH))
    fast = mmd_squared(x[None], y[None], action, WIDTH)[0]
    for route in page.two_routes(x, y, k, page.G):
        torch.testing.assert_close(route, fast)
    averaged, clouds = page.two_routes(x, y, k, page.G[1:])  # the identity is missing
    assert len(page.G) == 2 or abs(averaged - clouds) > 1e-3


@pytest.mark.parametrize("order", [1, 4, 32, math.inf])
def test_ring_reach_against_a_sample(order):
    action = radial(2) if math.isinf(order) else (no_group(2) if order == 1 else turns(order))
    x = ring(1, 1200, torch.Generator().manual_seed(0))[0]
    sampled, exact = kernel_reach(x, action, 0.26), ring_reach(order, 0.26)
    assert sampled.a == pytest.approx(exact.a, abs=0.01)
    assert sampled.mean == pytest.approx(exact.mean, abs=0.005)
    page = load("kernels_and_divergences")
    name = "SO(2)" if math.isinf(order) else f"C{order}"
    assert page.diagonal(name, 0.26) == pytest.approx(exact.constant**2, abs=1e-12)
    assert page.mean_kernel(0.26) == pytest.approx(exact.mean, abs=1e-12)
    assert torch.equal(page.ring(1, 1200, torch.Generator().manual_seed(0))[0], x)


@pytest.mark.parametrize("name", ["D1", "D3"])
def test_mirrors_on_the_ring(name):
    page = load("kernels_and_divergences")
    x = page.ring(1, 20_000, torch.Generator().manual_seed(0))
    own = orbit_kernel(x.movedim(1, 0), x.movedim(1, 0), linear(planar(Dihedral(int(name[1:])))), WIDTH)
    assert page.diagonal(name, WIDTH) == pytest.approx(float(own.mean()), abs=0.005)


def test_sharp_law():
    page = load("kernels_and_divergences", seed=11)
    for name, n, m, count in (("C1", 32, 16, 400), ("C64", 32, 16, 3000), ("D3", 16, 16, 2000)):
        square = page.squares(name, WIDTH, count, n, m)
        law = (1 / n + 1 / m) * (page.diagonal(name, WIDTH) - page.mean_kernel(WIDTH))
        error = float(page.standard_error(square))
        assert error < 0.03
        assert abs(math.sqrt(square.mean() / law) - 1) < 4 * error


def test_by_frequencies():
    page = load("kernels_and_divergences")
    kernel = np.random.default_rng(0).standard_normal(60)
    for order in (1, 2, 5, 60):
        assert page.by_frequencies(kernel, order) == pytest.approx(page.by_images(kernel, order))


@pytest.mark.parametrize("seed", [2, 9])
def test_panels(seed):
    page = load("kernels_and_divergences", seed=seed)
    x, y = page.pairs(120, lambda count, g: page.ring(count, 64, g))
    square, orders = page.all_orders(x, y, WIDTH), np.array(page.orders)
    assert page.excess(square, page.constants(WIDTH)) < 0.05 < page.excess(square, orders**-0.5)
    assert page.miss(square, page.sharp_ratios(WIDTH)) < 0.12 < page.miss(square, orders**-0.5)
    twice = [page.turns(1), *(page.turns(2 * order) for order in page.orders[1:])]
    doubled = torch.stack([page.mmd_squared(x, y, action, WIDTH) for action in twice], 1)
    assert page.miss(torch.cat([doubled, square[:, -1:]], 1), page.sharp_ratios(WIDTH)) > 0.12
    assert 0.5 < page.onset(square) * WIDTH / math.pi < 2 < math.pi / page.onset(square) / (WIDTH / 4)
    low, high = page.interval(lambda v: page.onset(v["all"]), {"all": square}, times=50)
    assert low < page.onset(square) < high


def test_the_onset_of_a_known_curve():
    page = load("kernels_and_divergences")
    ratio = np.array([max(0.1, order**-0.5) for order in page.orders] + [0.1])
    assert page.onset(torch.from_numpy(ratio[None] ** 2)) == pytest.approx((1.05 * 0.1) ** -2, rel=1e-6)


@pytest.mark.parametrize("kind", ["alpha2", "kl"])
@pytest.mark.parametrize("name", ["C3", "D4"])
def test_regularised(name, kind):
    page, action = load("kernels_and_divergences", group=name), linear(planar(GROUPS[name]))
    x, y = (page.ring(1, n, torch.Generator().manual_seed(n))[0] for n in (7, 5))
    y = y + 0.3
    cost = page.between_orbits(x, y, page.G)
    torch.testing.assert_close(cost, action.distance(torch.cat([x, y]), torch.cat([x, y])))
    fast = float(regularised_batch(x[None], y[None], action, kind, 3.0))
    for way in (page.dual, page.primal):
        assert way(cost.numpy(), 7, kind, 3.0) == pytest.approx(fast, rel=1e-6)
    above, below = page.third(cost.numpy(), 7, 3.0)
    assert above == pytest.approx(below, rel=1e-6)
    assert 0 < above <= 3 * w1(x, y, action)


def test_the_group_divides_the_lipschitz_constant():
    x, y = torch.rand(2, 3, 12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with_group = regularised_batch(x / 3, y / 3, lattice(3, 2), "alpha2", 6.0)
    torch.testing.assert_close(with_group, regularised_batch(x, y, lattice(1, 2), "alpha2", 2.0), rtol=1e-6, atol=1e-9)


def test_slopes_of_divergence_and_transport():
    page = load("kernels_and_divergences", seed=5)
    known = {n: np.array([[2 * n**-0.6, n**-0.5]] * 3) for n in (16, 32, 64)}
    assert page.slopes(known) == pytest.approx([-0.6, -0.5])
    assert page.slope_gap(known) == pytest.approx(-0.1)
    assert page.interval(page.slope_gap, known) == pytest.approx([-0.1, -0.1])
    assert page.closeness(known) == pytest.approx(2 * 64**-0.1)
    plane = page.compare("kl", 2, 2, 1.0, {16: 8, 32: 4, 64: 4})
    line = page.compare("alpha2", 1, 2, 16.0, {16: 24, 32: 16, 64: 12})
    assert abs(page.slope_gap(plane)) < 0.02 < abs(page.slope_gap(line))
    for values in (plane, line):
        assert all((v[:, 0] <= v[:, 1] + 1e-9).all() for v in values.values())


def test_real_images():
    page = load("kernels_and_divergences", seed=7)
    sizes = {25: 16, 50: 16, 100: 12, 200: 8}
    plain = page.image_errors("digits", no_group(64), sizes)
    grouped = page.image_errors("digits", linear(page.squares8["C4"]), {25: 16})[25]
    values = plain | {"grouped": grouped}
    low, high = page.interval(page.factor_at(25), values)
    assert 1 < low < page.factor_at(25)(values) < high
    wrong = page.spreading_upright((1, 5, 25), 2, others=100)
    assert wrong[25][1] > wrong[25][0]


def test_disjoint_samples_of_images():
    page = load("kernels_and_divergences")
    law = torch.arange(30.0, dtype=torch.float64)[:, None]
    x, y = page.disjoint(law, 15, 4, torch.Generator().manual_seed(0))
    assert x.shape == y.shape == (4, 15, 1)
    assert torch.equal(torch.cat([x, y], 1).sort(1).values, law.expand(4, 30, 1))
    turned = page.images("digits", 3)
    assert torch.equal(turned.sort(-1).values, page.upright.sort(-1).values)
    assert not torch.equal(turned, page.images("digits", 4))


def test_histology_patches():
    patches = histology_patches(8, 8)
    assert patches.shape == (4096, 64)
    assert 0 <= patches.min() < patches.max() <= 1
    assert torch.equal(histology_patches(8, 4)[2], patches[1])


def test_equivalent_size_interpolates_and_continues():
    page = load("kernels_and_divergences")
    curve = {n: n**-0.5 for n in (10, 20, 80)}
    for n in (5, 10, 33, 80, 200):
        assert page.equivalent_size(curve, n**-0.5) == pytest.approx(n)


def test_calculator():
    page = load("kernels_and_divergences", seed=2)
    x = torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    value, low, high = page.calculator(x, turns(4), 0.3)
    assert 1 < low < value < min(high, 4)
    assert value == pytest.approx(kernel_reach(x, turns(4), 0.3).factor)
    assert page.calculator(x, no_group(2), 0.3)[0] == pytest.approx(1)
    with pytest.raises(ValueError, match=r"bandwidth must be a finite number in .*, got 0"):
        page.calculator(x, turns(4), 0.0)
    with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., any, 2\)"):
        page.calculator(x[:, :1], turns(4), 0.3)


def test_seeds_reach_every_draw():
    def tiny(seed):
        page = load("kernels_and_divergences", seed=seed, seeds=2)
        yield page.squares("C4", 0.2, 4, 8, 8)
        yield page.compare("kl", 2, 1, 1.0, {8: 4})[8]
        yield page.image_errors("histology", no_group(64), {5: 4})[5]
        yield page.spreading_upright((5,), 2, others=20)[5]
        yield page.calculator(page.ring(1, 30, torch.Generator().manual_seed(0))[0], turns(3), 0.4)[1:]

    for one, same, other in zip(tiny(0), tiny(0), tiny(1)):
        assert np.array_equal(one, same)
        assert not np.intersect1d(one, other).size


def test_exercises():
    page = load("kernels_and_divergences")
    assert page.enough(0.1) == 27
    x = page.ring(1, 400, torch.Generator().manual_seed(0))[0]
    k = partial(page.gauss, s=WIDTH)
    expected = kernel_reach(x, turns(8), WIDTH).ratio
    assert page.predicted(x, k, page.G) == pytest.approx(expected)
