"""Ensembles of convolutional networks: against plain loops and definitions, the action, training, metrics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy, layer_norm, linear

from lib.checks import generator_of
from lib.ensembles import metrics
from lib.ensembles.metrics import orbit_logits
from lib.ensembles.training import (
    SUPPORTS,
    Members,
    Network,
    draw_members,
    fuse_pooling,
    loss_gradient,
    train,
    train_ensemble,
)


def images(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels(n: int) -> Tensor:
    return torch.randint(10, (n,), generator=torch.Generator().manual_seed(1))


def choose(members: Members, i: int) -> Members:
    return tuple(p[i] for p in members)


def plain_outputs(network: Network, member: Members, x: Tensor) -> Tensor:
    """One network by ordinary layers, written down again."""
    mask = torch.tensor(SUPPORTS[network.support]).to(x)
    h = x[:, None]
    for bank, pooled in zip(member[:3], (True, True, False), strict=True):
        h = conv2d(h, bank * mask, padding=1)
        h = torch.tanh(avg_pool2d(h, 2) if pooled else h)
    return linear(layer_norm(h, h.shape[1:]).flatten(1), member[3].flatten(1), member[4])


# --- networks ---


@pytest.mark.parametrize("size", [8, 28])
@pytest.mark.parametrize("support", SUPPORTS)
def test_members_side_by_side_equal_a_plain_loop(support: str, size: int) -> None:
    network = Network(size, 5, 10, support)
    members, x = draw_members(network, 3, dtype=torch.float64), images(3, 4, size, size)
    fast = network.outputs(members, x)
    for i in range(3):
        assert (fast[i] - plain_outputs(network, choose(members, i), x[i])).abs().max() < 1e-12
    assert torch.allclose(network.outputs(members, x[:1])[2], plain_outputs(network, choose(members, 2), x[0]))


@given(st.integers(0, 1000))
def test_fused_filter_is_convolution_then_pooling(seed: int) -> None:
    w, x = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(seed)).double(), images(1, 1, 12, 12)
    expected = avg_pool2d(conv2d(x, w, padding=1), 2)
    assert torch.allclose(conv2d(x, fuse_pooling(w), stride=2, padding=1), expected, atol=1e-13)


@pytest.mark.parametrize("support", SUPPORTS)
def test_turned_members_see_turned_images(support: str) -> None:
    """Filters and head turn with the image; a skewed support cuts off what turns out of it."""
    network = Network(8, 4, 10, support)
    members, x = draw_members(network, 2, dtype=torch.float64), images(2, 3, 8, 8)
    for k in range(1, 4):
        turned = (*(p.rot90(k, (-2, -1)) for p in members[:4]), members[4])
        gap = (network.outputs(turned, x.rot90(k, (-2, -1))) - network.outputs(members, x)).abs().max()
        assert gap > 0.1 if support == "skewed" else gap < 1e-12


def test_laws_of_the_filters() -> None:
    network = Network(8, 3)
    members = draw_members(network, 400, dtype=torch.float64)
    error = 4 / math.sqrt(400 * 9)
    bank, shifted = members[1], draw_members(network, 400, tilt=(-1.0, 0.0, 1.0), dtype=torch.float64)[1]
    assert (bank.mean((0, 1, 2)) - bank.rot90(1, (-2, -1)).mean((0, 1, 2))).abs().max() < 2 * error
    assert torch.allclose(shifted - bank, torch.tensor([-1.0, 0, 1]).double() * network.mask)


def test_members_depend_on_their_number_only() -> None:
    network = Network(8, 3)
    whole, part = draw_members(network, 5, seed=2), draw_members(network, 2, seed=2, first=3)
    assert all(torch.equal(p[3:], q) for p, q in zip(whole, part, strict=True))
    assert not torch.equal(whole[0], draw_members(network, 5, seed=3)[0])
    assert len({generator_of(a, b).initial_seed() for a in range(20) for b in range(20)}) == 400


@pytest.mark.parametrize("head", ["unit", "small"])
def test_size_of_the_head(head: str) -> None:
    network = Network(8, 8)
    weights = draw_members(network, 50, head=head)[3]
    expected = 1.0 if head == "unit" else 1 / math.sqrt(8 * 4)
    assert abs(float(weights.std()) / expected - 1) < 0.03


# --- training ---


def data(rotations: int = 4, n: int = 20) -> tuple[Tensor, Tensor]:
    x = images(n, 8, 8)
    return torch.stack([x.rot90(k, (-2, -1)) for k in range(rotations)]), labels(n)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_gradients_equal_those_of_a_plain_loop(dtype: torch.dtype, bound: float) -> None:
    network = Network(8, 6)
    members, x, y = draw_members(network, 4, dtype=dtype), images(4, 7, 8, 8, dtype=dtype), labels(7)
    ours = loss_gradient(network, members, x, y)
    for i in range(4):
        leaves = tuple(p[i].clone().requires_grad_() for p in members)
        plain = torch.autograd.grad(cross_entropy(plain_outputs(network, leaves, x[i]), y), leaves)
        for p, q in zip(ours, plain, strict=True):
            assert (p[i] - q).norm() <= bound * q.norm()


@pytest.mark.parametrize("shared", [False, True])
def test_training_equals_a_loop_over_members(shared: bool) -> None:
    network, (table, y) = Network(8, 4), data()
    ours = train_ensemble(network, table, y, 3, block=2, epochs=2, batch=8, rate=0.05, seed=3, shared=shared)
    for i in range(3):
        member = choose(draw_members(network, 3, 3, dtype=torch.float64), i)
        for epoch in (1, 2):
            order = torch.randperm(20, generator=generator_of(3, epoch))
            turns = torch.randint(4, (20,), generator=generator_of(3, 0 if shared else i, epoch))
            for which in order.split(8):
                leaves = tuple(p.clone().requires_grad_() for p in member)
                x = torch.stack([table[turns[j], j] for j in which])
                loss = cross_entropy(plain_outputs(network, leaves, x), y[which])
                steps = torch.autograd.grad(loss, leaves)
                member = tuple(p.detach() - 0.05 * g for p, g in zip(leaves, steps, strict=True))
        for p, q in zip(ours, member, strict=True):
            assert (p[i] - q).abs().max() < 1e-12


def test_filters_stay_on_their_support() -> None:
    network = Network(8, 3, 10, "skewed")
    trained = train_ensemble(network, *data(), 2, epochs=2, rate=0.1)
    start = draw_members(network, 2, dtype=torch.float64)
    for bank, before in zip(trained[:3], start[:3], strict=True):
        assert bool((bank[..., network.mask == 0] == 0).all())
        assert not torch.equal(bank, before)


def test_blocks_do_not_matter() -> None:
    network, (table, y) = Network(8, 3), data()
    one = train_ensemble(network, table, y, 6, block=6, epochs=2)
    for block in (1, 4):
        other = train_ensemble(network, table, y, 6, block=block, epochs=2)
        assert all(torch.allclose(p, q, atol=1e-13) for p, q in zip(one, other, strict=True))
    again = train(network, draw_members(network, 6, dtype=torch.float64), table, y, epochs=2)
    assert all(torch.equal(p, q) for p, q in zip(one, again, strict=True))
    none = train_ensemble(network, table, y, 2, epochs=0)
    assert all(torch.equal(p, q[:2]) for p, q in zip(none, draw_members(network, 2, dtype=torch.float64), strict=True))


def test_logits_along_orbits() -> None:
    network, (table, _) = Network(8, 3), data()
    members = draw_members(network, 5, dtype=torch.float64)
    values = orbit_logits(network, members, table, part=2)
    assert values.shape == (5, 4, 20, 10)
    assert torch.allclose(values[1, 2], network.outputs(members, table[2][None])[1])


# --- metrics ---


def logits(m: int = 24) -> Tensor:
    return torch.randn(m, 4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_metrics_agree_with_their_definitions() -> None:
    f = logits(1)[0]
    p = softmax(f.numpy(), axis=-1)
    kl, same, squares = [], [], []
    for i in range(6):
        for g in range(4):
            squares.append(float((f[g, i] - f[:, i].mean(0)).square().sum()))
            if g:
                kl.append(0.5 * (rel_entr(p[g, i], p[0, i]).sum() + rel_entr(p[0, i], p[g, i]).sum()))
                same.append(int(f[g, i].argmax()) == int(f[0, i].argmax()))
    assert math.isclose(metrics.squared_residual(f), np.mean(squares))
    assert math.isclose(metrics.divergence(f), np.mean(kl))
    assert math.isclose(metrics.agreement(f), np.mean(same))


def test_invariant_logits_are_perfect() -> None:
    f = logits(1)[:, :1].expand(-1, 4, -1, -1)
    assert metrics.squared_residual(f).max() < 1e-28
    assert metrics.divergence(f).max() < 1e-14
    assert metrics.agreement(f).min() == 1


def test_divergence_is_half_a_quadratic_form_where_logits_are_close() -> None:
    f = logits(1)[0]
    mean = f.mean(0, keepdim=True)
    small = [float(metrics.divergence(mean + s * (f - mean))) for s in (1e-2, 1e-3)]
    assert abs(small[0] / small[1] / 100 - 1) < 0.02


# --- bad input ---


def test_networks_refuse_what_does_not_fit() -> None:
    for size in (6, 10, 14, 30):
        with pytest.raises(ValueError, match="multiple of 4"):
            Network(size)
    with pytest.raises(ValueError, match="support"):
        Network(support="cross")
    with pytest.raises(ValueError, match="head"):
        draw_members(Network(), 2, head="large")


def test_data_have_to_match() -> None:
    network, (table, y) = Network(8, 3), data()
    for wrong in (table[:, :5], table / 0):
        with pytest.raises(ValueError, match="table must"):
            train_ensemble(network, wrong, y, 1)
    members = draw_members(network, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="x must have shape"):
        network.outputs(members, images(1, 3, 12, 12))
    with pytest.raises(ValueError, match="members and x must not be empty"):
        network.outputs(members, images(1, 0, 8, 8))
