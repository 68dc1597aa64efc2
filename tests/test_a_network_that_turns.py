"""Chapter *A network that turns with the picture*: what its page defines, for both groups and by other routes."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from lib.gans.planar_convolution import PlanarConv2d, act_on_features
from tests.chapters import load


@pytest.fixture(scope="module", params=["C4", "D4"])
def page(request: pytest.FixtureRequest) -> SimpleNamespace:
    return load("a_network_that_turns", group=request.param, seed=5, seeds=2, steps=200)


def product(page: SimpleNamespace, a: int, b: int) -> int:
    g = page.G.elements()
    return int(page.G.index(page.G.multiply(g[a], g[b])))


def test_the_orbit_and_the_maps_carry_actions(page: SimpleNamespace) -> None:
    """ρ(a)ρ(b) = ρ(ab), on pictures and on maps of poses, in the numbering of the group."""
    x = torch.randn(2, 3 * page.G.order, 4, 4)
    for a, b in itertools.product(range(page.G.order), repeat=2):
        assert torch.equal(page.orbit(page.orbit(x)[b])[a], page.orbit(x)[product(page, a, b)])
        assert torch.equal(page.act(a, page.act(b, x)), page.act(product(page, a, b), x))


def test_a_lift_is_a_convolution_with_every_moved_filter(page: SimpleNamespace) -> None:
    layer, x = page.Lift(2, 3, 3).double(), torch.randn(1, 2, 6, 6, dtype=torch.float64)
    out = layer(x).unflatten(1, (3, -1))
    for a, w in enumerate(page.orbit(layer.w)):
        torch.testing.assert_close(out[:, :, a], conv2d(x, w, padding=1))


def test_a_group_convolution_is_its_sum(page: SimpleNamespace) -> None:
    """One value of K F by the formula, with the filter moved by the action on maps of poses."""
    K, n = page.GroupConv(2, 1, 3).double(), page.G.order
    F = torch.randn(1, 2 * n, 5, 5, dtype=torch.float64)
    out = K(F).unflatten(1, (1, n))
    for a in range(n):
        w = page.act(a, K.w)  # (1, 2·|G|, 3, 3)
        torch.testing.assert_close(out[0, 0, a, 2, 2], (w * F[:, :, 1:4, 1:4]).sum())


@torch.no_grad()
def test_lib_has_the_same_layer(page: SimpleNamespace) -> None:
    """The layer of the games on pictures, and its action on maps of poses."""
    group = {4: "p4", 8: "p4m"}[page.G.order]
    F = torch.randn(2, 3 * page.G.order, 8, 8, dtype=torch.float64)
    by_hand, fast = page.GroupConv(3, 2, 3).double(), PlanarConv2d(3, 2, group).double()
    original = fast.parametrizations.weight.original
    original.copy_(by_hand.w.view_as(original))
    fast.parametrizations.bias.original.copy_(by_hand.b.normal_())
    torch.testing.assert_close(by_hand(F), fast(F))
    for a, g in enumerate(page.G.elements()):
        torch.testing.assert_close(page.act(a, F), act_on_features(group, g[None], F))


@torch.no_grad()
@pytest.mark.parametrize("kept", [False, True])
def test_every_layer_turns_with_the_picture(page: SimpleNamespace, kept: bool) -> None:
    torch.manual_seed(7)
    x = torch.randn(3, 1, 12, 12, dtype=torch.float64)
    right = page.Network(3, 5, keep_poses=kept).double()
    found = page.defects(right, x)
    scores = found.pop("scores")
    assert max(found.values()) < 1e-13
    assert (scores < 1e-13) != kept  # a free readout need not be invariant
    assert page.defects(page.Network(3, 5, exchange=False).double(), x)["second"] > 0.1


def test_one_pose_is_a_plain_network(page: SimpleNamespace) -> None:
    torch.manual_seed(8)
    plain, x = page.Network(4, 5, order=1), torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(plain.lift(x), conv2d(x, plain.lift.w, plain.lift.b, padding=2))
    F = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(plain.second(F), conv2d(F, plain.second.w, plain.second.b, padding=1))


def test_training_at_once_is_training_one_by_one(page: SimpleNamespace) -> None:
    """Networks of a stack do not see each other."""
    sets = [page.data(s) for s in (5000, 5001)]
    (x, y), _ = (map(torch.stack, zip(*part, strict=True)) for part in zip(*sets, strict=True))
    plans = [page.drawn(s, 50, True) for s in (5000, 5001)]
    both, _ = page.fit(partial(page.Network, 2, 9), x, y, plans)
    alone, _ = page.fit(partial(page.Network, 2, 9), x[:1], y[:1], plans[:1])
    for name, w in alone.items():
        torch.testing.assert_close(both[name][0], w[0], rtol=0.05, atol=0.02)


def test_the_race_has_the_order_that_the_page_says(page: SimpleNamespace) -> None:
    """At one size and other seeds: group network before plain, with fewer parameters."""
    sets = [page.data(s) for s in (5000, 5001)]
    (x, y), (z, v) = (map(torch.stack, zip(*part, strict=True)) for part in zip(*sets, strict=True))
    found = {}
    for order in (None, 1):
        width = 16 // page.G.order if order is None else 16
        plans = [page.drawn(s, 400, False) for s in (5000, 5001)]
        trained = page.fit(partial(page.Network, width, 9, order=order), x, y, plans)
        found[order] = float(page.errors(trained, z, v).mean())
    assert found[None] < 0.9 * found[1]
    small, large = (page.size(page.Network(w, 9, order)) for w, order in ((16 // page.G.order, None), (16, 1)))
    assert small < large / 3


def test_an_invariant_network_is_wrong_on_half_of_the_pairs(page: SimpleNamespace) -> None:
    """Whatever its weights are; a turn of a letter is the other letter's picture, to the last bit."""
    x, y = page.pairs(5000, 40)
    turned = torch.stack(
        [page.quarter_turns(p)[page.PAIRS[k // 2][1]] for p, k in zip(x[:40], y[:40].tolist(), strict=True)]
    )
    assert torch.equal(turned, x[40:])
    assert torch.equal(y[:40] + 1, y[40:])
    for s in range(3):
        torch.manual_seed(s)
        said = page.Network(2, 8).double()(x.double()).argmax(-1)
        assert torch.equal(said[:40], said[40:])
        assert float((said != y).double().mean()) >= 0.5


@pytest.mark.parametrize("m", [2, 3, 4])
def test_a_stride_turns_where_it_divides(page: SimpleNamespace, m: int) -> None:
    for side in range(5, 18):
        defect = page.stride_defect(side, m, 5)
        assert defect < 1e-13 if (side - 1) % m == 0 else defect > 0.5


@torch.no_grad()
def test_windows_with_a_stride_turn_where_nothing_is_left_over(page: SimpleNamespace) -> None:
    """A strided layer with random filters in every pose, all windows, strides and zeros with p < k."""
    for side, m, k in itertools.product(range(4, 12), (1, 2, 3), range(1, 5)):
        w = torch.randn(2, 1, k, k, dtype=torch.float64)
        W = torch.stack([page.move(a, w) for a in range(page.G.order)], 1).flatten(0, 1)
        x = torch.randn(1, 1, side, side, dtype=torch.float64)
        for p in range(k):
            out = conv2d(x, W, stride=m, padding=p)
            off = [conv2d(page.move(a, x), W, stride=m, padding=p) - page.act(a, out) for a in range(page.G.order)]
            worst = float(max(v.norm() for v in off) / out.norm())
            assert (worst < 1e-12) == ((side + 2 * p - k) % m == 0), (side, m, k, p)


def test_letters_are_pictures_of_the_size_asked_for(page: SimpleNamespace) -> None:
    rng = np.random.default_rng(0)
    drawn = [page.letter(text, 16, rng) for text in "6dnN" for _ in page.FONTS]
    assert len(page.FONTS) > 10
    for picture in drawn:
        assert picture.shape == (16, 16)
        assert 0 <= picture.min() < picture.max() <= 1
