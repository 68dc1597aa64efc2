"""Ensembles of convolutional networks: against plain loops and definitions, the action, training, metrics."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import affine_transform
from scipy.special import rel_entr, softmax
from scipy.stats import t as student
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy, layer_norm, linear

from lib.training import ensemble_metrics as metrics
from lib.training import ensemble_training as training
from lib.training import ensembles
from lib.training.ensemble_training import Course, Plan, loss_gradient, train_ensemble, train_epoch
from lib.training.ensembles import (
    SUPPORTS,
    Members,
    Network,
    choose,
    draw_members,
    fuse_pooling,
    generator_of,
    orbit_logits,
    rotate_images,
)


def images(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels(n: int) -> Tensor:
    return torch.randint(10, (n,), generator=torch.Generator().manual_seed(1))


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
def test_fused_equals_unfused_equals_a_plain_loop(support: str, size: int) -> None:
    network = Network(size, 5, 10, support)
    members, x = draw_members(network, 3, dtype=torch.float64), images(3, 4, size, size)
    fused = network.outputs(members, x)
    assert (fused - network.unfused_outputs(members, x)).abs().max() < 1e-12
    for i in range(3):
        assert (fused[i] - plain_outputs(network, choose(members, i), x[i])).abs().max() < 1e-12
    assert torch.allclose(network.outputs(members, x[:1])[2], plain_outputs(network, choose(members, 2), x[0]))


@given(st.integers(0, 1000))
def test_fused_filter_is_convolution_then_pooling(seed: int) -> None:
    w, x = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(seed)).double(), images(1, 1, 12, 12)
    expected = avg_pool2d(conv2d(x, w, padding=1), 2)
    assert torch.allclose(conv2d(x, fuse_pooling(w), stride=2, padding=1), expected, atol=1e-13)


@pytest.mark.parametrize("support", ["full", "plus"])
def test_turned_members_see_turned_images(support: str) -> None:
    network = Network(8, 4, 10, support)
    members, x = draw_members(network, 2, dtype=torch.float64), images(2, 3, 8, 8)
    for k in range(4):
        moved = network.outputs(network.turn(members, k), x.rot90(k, (-2, -1)))
        assert (moved - network.outputs(members, x)).abs().max() < 1e-12
    for p, q in zip(network.turn(network.turn(members, 1), 3), members, strict=True):
        assert torch.equal(p, q)


def test_turned_members_of_a_skewed_support_do_not() -> None:
    network = Network(8, 4, 10, "skewed")
    assert not network.invariant
    members, x = draw_members(network, 2, dtype=torch.float64), images(2, 3, 8, 8)
    moved = network.outputs(network.turn(members, 1), x.rot90(1, (-2, -1)))
    assert (moved - network.outputs(members, x)).abs().max() > 0.1


def test_turns_are_orthogonal_and_keep_the_symmetric_law() -> None:
    network = Network(8, 3)
    members = draw_members(network, 400, dtype=torch.float64)
    for p, q in zip(members, network.turn(members, 1), strict=True):
        assert torch.isclose(p.norm(), q.norm())
    error = 4 / math.sqrt(400 * 9)
    bank, shifted = members[1], draw_members(network, 400, law="asymmetric", dtype=torch.float64)[1]
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


# --- rotations of images ---


def test_quarter_turns_inside_sixteen_rotations() -> None:
    x = images(3, 8, 8)
    table = rotate_images(x, 16)
    assert torch.equal(table[0], x)
    for k in range(4):
        assert torch.equal(table[4 * k], x.rot90(k, (-2, -1)))
    assert torch.allclose(table.roll(-4, 0), table.rot90(1, (-2, -1)))
    assert torch.equal(rotate_images(x, 4)[1], x.rot90(1, (-2, -1)))
    assert torch.equal(rotate_images(x, 1)[0], x)
    assert torch.equal(rotate_images(x, 2)[1], x.rot90(2, (-2, -1)))


def test_interpolated_rotation_agrees_with_scipy() -> None:
    """Counter-clockwise about the centre, linear interpolation; SciPy as an independent route."""
    x = torch.zeros(12, 12, dtype=torch.float64)
    x[3:9, 3:9] = images(6, 6)
    angle = 2 * math.pi / 16
    c, s = math.cos(angle), math.sin(angle)
    backward = np.array([[c, s], [-s, c]])
    centre = np.array([5.5, 5.5])
    expected = affine_transform(x.numpy(), backward, centre - backward @ centre, order=1)
    assert np.abs(rotate_images(x, 16)[1].numpy() - expected).max() < 1e-6


# --- training ---


def course(dtype: torch.dtype = torch.float64, rotations: int = 4, n: int = 20) -> Course:
    return Course(rotate_images(images(n, 8, 8, dtype=dtype), rotations), labels(n))


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


@pytest.mark.parametrize("stream", training.STREAMS)
def test_training_equals_a_loop_over_members(stream: str) -> None:
    network, plan, data = Network(8, 4), Plan(2, 8, 0.05, 3, stream=stream), course()
    ours = train_ensemble(network, plan, data, 3, block=2)
    for i in range(3):
        member = choose(draw_members(network, 3, 3, dtype=torch.float64), i)
        for epoch in (1, 2):
            order = torch.randperm(20, generator=generator_of(3, epoch))
            who = i if stream == "own" else 0
            turns = torch.randint(4, (20,), generator=generator_of(3, who, epoch))
            for which in order.split(8):
                leaves = tuple(p.clone().requires_grad_() for p in member)
                x = torch.stack([data.table[turns[j], j] for j in which])
                loss = cross_entropy(plain_outputs(network, leaves, x), data.labels[which])
                steps = torch.autograd.grad(loss, leaves)
                member = tuple(p.detach() - 0.05 * g for p, g in zip(leaves, steps, strict=True))
        for p, q in zip(ours, member, strict=True):
            assert (p[i] - q).abs().max() < 1e-12


def test_filters_stay_on_their_support() -> None:
    network = Network(8, 3, 10, "skewed")
    trained = train_ensemble(network, Plan(2, rate=0.1), course(), 2)
    start = draw_members(network, 2, dtype=torch.float64)
    for bank, before in zip(trained[:3], start[:3], strict=True):
        assert bool((bank[..., network.mask == 0] == 0).all())
        assert not torch.equal(bank, before)


def test_blocks_and_workers_do_not_matter() -> None:
    network, plan, data = Network(8, 3), Plan(2), course()
    one = train_ensemble(network, plan, data, 6, block=6)
    for block, workers in ((1, 1), (4, 1), (2, 2)):
        other = train_ensemble(network, plan, data, 6, block=block, workers=workers)
        assert all(torch.allclose(p, q, atol=1e-13) for p, q in zip(one, other, strict=True))


# --- metrics ---


def logits(m: int = 24, drift: float = 0.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(m, 4, 6, 5, generator=generator, dtype=torch.float64)
    return noise + drift * torch.randn(4, 6, 5, generator=generator, dtype=torch.float64)


def test_metrics_agree_with_their_definitions() -> None:
    f, y = logits(1)[0], labels(6) % 5
    p = softmax(f.numpy(), axis=-1)
    n, kl, same, right, squares = 6, [], [], [], []
    for i in range(n):
        for g in range(4):
            squares.append(float((f[g, i] - f[:, i].mean(0)).square().sum()))
            right.append(int(f[g, i].argmax()) == int(y[i]))
            if g:
                kl.append(0.5 * (rel_entr(p[g, i], p[0, i]).sum() + rel_entr(p[0, i], p[g, i]).sum()))
                same.append(int(f[g, i].argmax()) == int(f[0, i].argmax()))
    assert math.isclose(metrics.squared_residual(f), np.mean(squares))
    assert math.isclose(metrics.residual(f), math.sqrt(np.mean(squares)))
    assert math.isclose(metrics.divergence(f), np.mean(kl))
    assert math.isclose(metrics.agreement(f), np.mean(same))
    assert math.isclose(metrics.accuracy(f, y), np.mean(right))


def test_invariant_logits_are_perfect() -> None:
    f = logits(1)[:, :1].expand(-1, 4, -1, -1)
    assert metrics.residual(f).max() < 1e-14
    assert metrics.divergence(f).max() < 1e-14
    assert metrics.agreement(f).min() == 1


def test_squared_residual_is_unbiased_in_the_number_of_members() -> None:
    """E squared_residual = B² + V/M, against the law the logits are drawn from."""
    drift = metrics.squared_residual(logits(40_000, 0.3).mean(0))
    f = logits(40_000, 0.3)
    curve = metrics.curves(f, [1, 4, 16], 5, metrics.squared_residual).mean(0)
    single = 5 * 3 / 4  # five classes, three of four directions leave the invariants
    for value, size in zip(curve, (1, 4, 16), strict=True):
        assert abs(float(value) - float(drift) - single / size) < 0.02
    squared, variance = metrics.expected_residual(f[:2000])
    assert abs(squared - float(drift)) < 0.02
    assert abs(variance - single) < 0.1


def test_slopes_of_known_curves() -> None:
    sizes = [1, 2, 4, 8]
    line = torch.tensor([3.0 * m**-0.7 for m in sizes])
    assert math.isclose(metrics.slope(line, sizes), -0.7, rel_tol=1e-6)
    same = metrics.slope_interval(line.expand(5, -1), sizes)
    assert math.isclose(same[0], -0.7, rel_tol=1e-6)
    assert math.isclose(same[1], -0.7, rel_tol=1e-6)
    assert metrics.interval_miss((-0.6, -0.4), -0.5) == 0
    assert math.isclose(metrics.interval_miss((-0.4, -0.3), -0.5), 0.1)
    assert math.isclose(metrics.interval_miss((-0.8, -0.6), -0.5), 0.1)


def test_slope_interval_covers_the_truth_as_often_as_it_says() -> None:
    sizes, hits, hits_with_drift = [1, 2, 4, 8], 0, 0
    for seed in range(200):
        curve = metrics.curves(logits(96, seed=seed), sizes, 12, metrics.squared_residual)
        low, high = metrics.slope_interval(curve, sizes)
        hits += low <= -1 <= high
        drifted = metrics.curves(logits(96, 1.0, seed), sizes, 12, metrics.squared_residual)
        low, high = metrics.slope_interval(drifted, sizes)
        hits_with_drift += low <= -1 <= high
    assert 180 <= hits <= 199
    assert hits_with_drift == 0


def test_divergence_is_half_a_quadratic_form_where_logits_are_close() -> None:
    f = logits(1)[0]
    mean = f.mean(0, keepdim=True)
    small = [float(metrics.divergence(mean + s * (f - mean))) for s in (1e-2, 1e-3)]
    assert abs(small[0] / small[1] / 100 - 1) < 0.02


def test_separation_tells_a_drift_from_none() -> None:
    whole, again, drifted = logits(64, seed=1), logits(64, seed=2), logits(64, 0.5, seed=3)
    assert metrics.separation(drifted, whole, level=0.999) > 0
    assert metrics.separation(again, whole) <= 0
    boots = metrics.bootstrap(whole, metrics.squared_residual, 400)
    expected = float(metrics.squared_residual(whole.mean(0))) + 5 * 3 / 4 / 64
    assert abs(float(boots.mean()) / expected - 1) < 0.15


def test_separation_finds_nothing_more_often_than_it_says() -> None:
    """One-sided error 2.5 %; the bootstrap exaggerates the spread of a residual without offset, so rather less."""
    found = sum(metrics.separation(logits(32, seed=2 * s), logits(32, seed=2 * s + 1), 50) > 0 for s in range(200))
    assert found <= 10


def test_offset_is_that_of_unbiased_estimates() -> None:
    f = logits(40, 0.4)
    squared, variance = metrics.expected_residual(f)
    low, high = metrics.offset_interval(f)
    assert math.isclose((low + high) / 2, squared / variance)
    assert math.isclose(low, metrics.offset_interval(7 * f)[0])
    without = [metrics.expected_residual(torch.cat([f[:i], f[i + 1 :]])) for i in range(40)]
    error = np.std([b / v for b, v in without]) * math.sqrt(39)  # the definition of the jackknife
    assert math.isclose((high - low) / 2, error * student.ppf(0.975, 39))


def test_offset_interval_contains_the_offset_as_often_as_it_says() -> None:
    """Also where there is none: then the jackknife exaggerates the error (of a degenerate statistic) by about √2."""
    missed = {0.0: 0, 0.3: 0}
    for drift in missed:
        for seed in range(200):
            noise = torch.Generator().manual_seed(500 + seed)
            shift = drift * torch.randn(4, 6, 5, generator=noise, dtype=torch.float64)
            truth = float(metrics.squared_residual(shift)) / (5 * 3 / 4)
            low, high = metrics.offset_interval(logits(32, seed=seed) + shift)
            missed[drift] += not low <= truth <= high
    assert missed[0.0] <= 10
    assert 1 <= missed[0.3] <= 22


# --- bad input ---


def test_networks_refuse_what_does_not_fit() -> None:
    for size in (6, 10, 14, 30):
        with pytest.raises(ValueError, match="multiple of 4"):
            Network(size)
    with pytest.raises(ValueError, match="support"):
        Network(support="cross")
    with pytest.raises(ValueError, match="named control"):
        Network(support="skewed").require_invariant()
    Network(support="full").require_invariant()
    with pytest.raises(TypeError, match="channels"):
        Network(channels=2.5)
    with pytest.raises(ValueError, match="law"):
        draw_members(Network(), 2, law="odd")
    with pytest.raises(ValueError, match="head"):
        draw_members(Network(), 2, head="large")
    with pytest.raises(ValueError, match="shape"):
        Network().outputs(draw_members(Network(), 2), images(1, 3, 12, 12, dtype=torch.float32))


def test_members_and_images_have_to_match() -> None:
    members = draw_members(Network(), 3)
    for shape in ((2, 5, 8, 8), (5, 8, 8)):
        with pytest.raises(ValueError, match="1 or 3"):
            Network().outputs(members, images(*shape, dtype=torch.float32))
    with pytest.raises(TypeError, match="labels"):
        Course(images(1, 4, 8, 8), torch.zeros(4))


@pytest.mark.parametrize("order", [3, 6, 10])
def test_rotations_refuse_groups_that_do_not_fit(order: int) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        rotate_images(images(2, 8, 8), order)


def test_rotations_refuse_other_images() -> None:
    with pytest.raises(ValueError, match="square"):
        rotate_images(images(2, 8, 6), 4)
    with pytest.raises(TypeError, match="floating"):
        rotate_images(torch.zeros(2, 8, 8, dtype=torch.int64), 4)
    with pytest.raises(ValueError, match="finite"):
        rotate_images(torch.full((8, 8), math.nan), 4)


def test_training_refuses_more_members_than_fit() -> None:
    network, plan = Network(8, 4), Plan(1)
    budget = 5 * training.member_bytes(network, plan, torch.float64) + 10
    assert training.check_memory(network, plan, 5, budget, images(1)) == 5
    with pytest.raises(ValueError, match="at most 5 for 1 block"):
        train_ensemble(network, plan, course(), 6, block=6, memory=budget)
    assert len(train_ensemble(network, plan, course(), 6, block=5, memory=budget)[0]) == 6
    with pytest.raises(ValueError, match="at most 2 for 2 block"):
        train_ensemble(network, plan, course(), 6, block=3, workers=2, memory=budget)


def test_training_refuses_data_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="size 12"):
        train_ensemble(Network(12), Plan(1), course(), 1)
    with pytest.raises(ValueError, match="table"):
        Course(images(4, 5, 8, 8), labels(6))
    with pytest.raises(ValueError, match="table"):
        Course(images(1, 4, 5, 8, 8), labels(5))
    with pytest.raises(ValueError, match="stream"):
        Plan(stream="none")
    with pytest.raises(ValueError, match="rate"):
        Plan(rate=math.nan)
    with pytest.raises(TypeError, match="epochs"):
        Plan(epochs=1.5)


def test_metrics_refuse_what_does_not_fit() -> None:
    f = logits(8)
    with pytest.raises(ValueError, match="sizes"):
        metrics.curves(f, [1, 8], 2, metrics.residual)
    with pytest.raises(ValueError, match="groups"):
        metrics.curves(f, [1], 9, metrics.residual)
    with pytest.raises(ValueError, match="groups"):
        metrics.slope_interval(torch.ones(2, 3), [1, 2, 4])
    with pytest.raises(ValueError, match="at least two"):
        metrics.slope(torch.ones(1), [1])
    with pytest.raises(ValueError, match="resamples"):
        metrics.separation(f, f, resamples=10)
    with pytest.raises(ValueError, match="members"):
        metrics.expected_residual(f[:1])
    with pytest.raises(ValueError, match="members"):
        metrics.offset_interval(f[:2])
    with pytest.raises(ValueError, match="shape"):
        metrics.bootstrap(f[0], metrics.residual)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: metrics.residual(f / 0), ValueError, "logits must be finite"),
        (lambda f: metrics.agreement(f[:0]), ValueError, "logits must not be empty"),
        (lambda f: metrics.divergence(f.long()), TypeError, "logits must be of a floating-point"),
        (lambda f: metrics.accuracy(f, torch.tensor(0)), ValueError, "labels must have shape"),
        (lambda f: metrics.accuracy(f, torch.full((f.shape[-2],), 99)), ValueError, "labels must be .* classes from 0"),
        (lambda f: metrics.curves(f, [], 2, metrics.residual), ValueError, "sizes must hold at least one"),
        (lambda f: metrics.curves(f, [1], 2, "residual"), TypeError, "metric must be a function"),
        (lambda f: metrics.slope(torch.ones(2), [0, 1]), ValueError, "sizes must be at least 1"),
        (lambda f: metrics.bootstrap(f, metrics.residual, seed=None), TypeError, "seed must be an integer"),
        (lambda f: metrics.offset_interval(f, 1.0), ValueError, "level must be a finite number in"),
    ],
)
def test_metrics_refuse_other_kinds(call: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(logits(8))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda n, m: n.outputs(m[:4], images(1, 5, 8, 8)), ValueError, "members must have shapes"),
        (lambda n, m: n.outputs((*m[:4], m[4][:1]), images(1, 5, 8, 8)), ValueError, "with one m"),
        (
            lambda n, m: n.outputs(m, images(1, 5, 8, 8).float()),
            TypeError,
            "x must be of the members' dtype",
        ),
        (lambda n, m: n.turn(m, 1.0), TypeError, "k must be an integer"),
        (lambda n, m: orbit_logits(n, m, images(5, 8, 8)), ValueError, "table must have shape"),
        (lambda n, m: draw_members("net", 2), TypeError, "network must be a Network"),
        (lambda n, m: draw_members(n, 2, dtype=torch.int64), ValueError, "dtype must be a real floating-point"),
        (lambda n, m: ensembles.join([]), ValueError, "parts must hold at least one"),
        (lambda n, m: loss_gradient(n, m, images(1, 5, 8, 8), labels(4)), ValueError, "one class for each image"),
        (lambda n, m: Course(images(4, 2, 8, 8), torch.tensor([0, -1])), ValueError, "labels must be classes from 0"),
        (lambda n, m: Plan(law="odd"), ValueError, "law must be one of"),
        (lambda n, m: training.member_bytes(n, None), TypeError, "plan must be a Plan"),
    ],
)
def test_ensembles_refuse_other_kinds(call: Callable, error: type[Exception], message: str) -> None:
    network = Network(8, 2)
    with pytest.raises(error, match=message):
        call(network, draw_members(network, 3, dtype=torch.float64))


def test_one_epoch_is_what_the_ensemble_does() -> None:
    network, plan, data = Network(8, 3), Plan(1), course()
    start = draw_members(network, 2, dtype=torch.float64)
    stepped = train_epoch(network, start, data, plan, 1)
    assert all(torch.equal(p, q) for p, q in zip(stepped, train_ensemble(network, plan, data, 2), strict=True))
    values = orbit_logits(network, stepped, data.table, part=1)
    assert torch.allclose(values[1, 2], network.outputs(stepped, data.table[2][None])[1])
