"""Orbit distances, transport, kernels and regularised divergences under groups, against independent oracles."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ive
from sklearn.metrics.pairwise import rbf_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lib.symmetry.actions import natural, pixels, planar, vectors
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.lie import SpecialOrthogonal, Unitary
from lib.symmetry.representations import MatrixRepresentation, Representation
from lib.transport import quotient
from lib.transport.divergences import (
    KINDS,
    regularised_batch,
    transport,
    w1,
    w1_batch,
)
from lib.transport.kernels import kernel_reach, mmd_squared, orbit_kernel
from lib.transport.quotient import (
    Isometries,
    lattice,
    linear,
    moduli,
    no_group,
    pairs_in_space,
    phase,
    radial,
    turns,
)
from lib.transport.turned_kernel import TurnedKernel, chebyshev_terms
from tests.oracles import w1_invariant_program, w1_symmetrised

FINITE = {
    "turns": turns(5),
    "dihedral": linear(planar(Dihedral(4))),
    "permutations": linear(natural(Symmetric(3))),
    "images": linear(pixels(Dihedral(4), 3)),
    "torus": lattice(2, 2),
    "trivial": no_group(3),
}


INFINITE = {
    "radial": radial(2),
    "phase": phase(3),
    "pairs": pairs_in_space(),
    "moduli": moduli(2),
}
EVERY = FINITE | INFINITE


def points(action, *sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, action.dim, dtype=torch.float64, generator=generator) for n in sizes]


@pytest.mark.parametrize("action", FINITE.values(), ids=FINITE)
def test_distance_is_the_least_over_all_images(action):
    x, y = points(action, 6, 7)
    images = action.images(y)
    assert len(images) == action.order
    expected = torch.stack([action.plain_distance(x, image) for image in images]).amin(0)
    torch.testing.assert_close(action.distance(x, y), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("action", FINITE.values(), ids=FINITE)
def test_three_values_agree(action):
    x, y = points(action, 5, 4, seed=1)
    value = w1(x, y, action)
    assert w1_symmetrised(x, y, action) == pytest.approx(value, rel=1e-10)
    assert w1_invariant_program(x, y, action) == pytest.approx(value, rel=1e-8)


def group_of(name, count):
    generator = torch.Generator().manual_seed(3)
    if name == "U(1)":
        u = Unitary(1).sample(count, generator)[:, 0, 0]
        blocks = torch.stack([u.real, -u.imag, u.imag, u.real], -1).reshape(-1, 2, 2)
        return torch.stack([torch.kron(b, torch.eye(2, dtype=torch.float64)) for b in blocks])
    if name == "pairs":
        g = SpecialOrthogonal(3).sample(count, generator)
        return torch.stack([torch.kron(torch.eye(2, dtype=torch.float64), b) for b in g])
    return SpecialOrthogonal(int(name[-1])).sample(count, generator)


@pytest.mark.parametrize(
    ("action", "name"), [(radial(2), "2"), (radial(3), "3"), (phase(2), "U(1)"), (pairs_in_space(), "pairs")], ids=str
)
def test_closed_forms_of_lie_groups_bound_sampled_elements(action, name):
    x, y = points(action, 4, 5)
    g = group_of(name, 20_000)
    sampled = torch.cdist(x, torch.einsum("gij,mj->gmi", g, y)).amin(0)
    exact = action.distance(x, y)
    assert (exact <= sampled + 1e-9).all()
    assert (sampled - exact).max() < 0.35
    assert (sampled - exact).mean() < 0.06
    # Invariance, and zero on the orbit itself.
    moved = torch.einsum("gij,gj->gi", g[: len(y)], y)
    torch.testing.assert_close(action.distance(x, moved), exact, atol=1e-7, rtol=1e-9)
    assert action.distance(y, moved).diagonal().max() < 1e-14
    assert action.distance(y.float(), moved.float()).diagonal().max() < 3e-6


def test_pairs_agree_with_procrustes():
    x, y = points(pairs_in_space(), 3, 3)
    for a in range(3):
        for b in range(3):
            X, Y = x[a].reshape(2, 3).T, y[b].reshape(2, 3).T
            nuclear = torch.linalg.svdvals(X @ Y.T).sum()
            expected = (X.square().sum() + Y.square().sum() - 2 * nuclear).sqrt()
            assert float(pairs_in_space().distance(x, y)[a, b]) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_phases_agree_with_the_formula_and_close_points_with_the_orbit(count):
    x, y = points(phase(count), 5, 6)
    z, w = (torch.complex(p[:, :count], p[:, count:]) for p in (x, y))
    square = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (z @ w.mH).abs()
    torch.testing.assert_close(phase(count).distance(x, y), square.sqrt(), atol=1e-12, rtol=1e-9)
    # A step of 1e-9 across the orbit: the formula above would lose it in rounding, 1e-8.
    step = 1e-9 * (z / torch.linalg.vector_norm(z, dim=1, keepdim=True))
    near = (z + step) * torch.polar(torch.ones(5, 1).double(), torch.linspace(0, 6, 5).double()[:, None])
    moved = torch.cat([near.real, near.imag], -1)
    assert phase(count).distance(x, moved).diagonal() == pytest.approx(np.full(5, 1e-9), rel=1e-5)
    nothing = torch.zeros(1, 2 * count, dtype=torch.float64)
    assert float(phase(count).distance(nothing, nothing)) == 0


@pytest.mark.parametrize("action", [turns(5), lattice(2, 3), phase(2), linear(pixels(Dihedral(4), 3))], ids=str)
def test_costs_are_differentiable(action):
    x, y = (p.requires_grad_() for p in points(action, 3, 4))
    assert torch.autograd.gradcheck(lambda a, b: action.distance(a, b), (x, y))


def test_moduli_are_the_best_phases():
    x, y = points(moduli(2), 3, 4)
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    best = torch.zeros(3, 4, dtype=torch.float64)
    for c in range(2):
        z, w = (torch.complex(p[:, c], p[:, 2 + c]) for p in (x, y))
        turned = w[None] * torch.polar(torch.ones_like(angles), angles)[:, None]
        best += (z[:, None, None] - turned[None]).abs().square().amin(1)
    assert (moduli(2).distance(x, y) - best.sqrt()).abs().max() < 1e-2


@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 1000))
def test_orbit_distance_is_an_invariant_metric(order, dim, seed):
    action = turns(order) if dim == 2 else lattice(order, dim)
    x, y, z = (p[0] for p in points(action, 1, 1, 1, seed=seed))
    d = action.distance(torch.stack([x, y, z]), torch.stack([x, y, z]))
    assert torch.allclose(d, d.T, atol=1e-12)
    assert d[0, 2] <= d[0, 1] + d[1, 2] + 1e-12
    image = action.images(y[None])[seed % action.order]
    assert torch.allclose(action.distance(x[None], image), d[0:1, 1:2], atol=1e-9)


@pytest.mark.parametrize("action", [turns(4), lattice(3, 1), lattice(2, 3), radial(2), phase(2)], ids=str)
def test_batches_agree_with_the_simplex(action):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 3, 12, action.dim, dtype=torch.float64, generator=generator)
    expected = [w1(a, b, action) for a, b in zip(x, y, strict=True)]
    assert w1_batch(x, y, action).tolist() == pytest.approx(expected, rel=1e-10)


def test_the_circle_agrees_with_pot():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 4, 9, 1, dtype=torch.float64, generator=generator)
    expected = [ot.wasserstein_circle(a.numpy(), b.numpy(), p=1)[0] for a, b in zip(x, y, strict=True)]
    assert w1_batch(x, y, lattice(1, 1)).tolist() == pytest.approx(expected, rel=1e-6)


def test_masses():
    x, y = points(no_group(1), 2, 1)
    a = torch.tensor([0.25, 0.75], dtype=torch.float64)
    expected = float((a * (x - y).abs()[:, 0]).sum())
    assert w1(x, y, no_group(1), a) == pytest.approx(expected)
    assert transport(torch.ones(2, 2), np.array([0.5, 0.5]), np.array([0.5, 0.5])) == pytest.approx(1)


@pytest.mark.parametrize("action", FINITE.values(), ids=FINITE)
def test_orbit_kernel_is_the_mean_over_images(action):
    x, y = points(action, 5, 6)
    distances = torch.stack([action.plain_distance(x, image) for image in action.images(y)])
    expected = torch.exp(distances**2 / (-2 * 0.7**2)).mean(0)
    torch.testing.assert_close(orbit_kernel(x, y, action, 0.7), expected, atol=1e-13, rtol=1e-10)


@pytest.mark.parametrize("s", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("order", [1, 3, 16, 64, 300])
def test_harmonics_agree_with_all_images(order, s):
    generator = torch.Generator().manual_seed(order)
    x, y = torch.rand(2, 15, 2, dtype=torch.float64, generator=generator) - 0.3
    action = turns(order)
    direct = torch.exp(torch.cdist(x, action.images(y)) ** 2 / (-2 * s**2)).mean(0)
    assert (orbit_kernel(x, y, action, s) - direct).abs().max() < 1e-12


def test_all_rotations_are_the_limit_of_many():
    x, y = points(turns(1), 6, 6)
    difference = orbit_kernel(x, y, radial(2), 0.5) - orbit_kernel(x, y, turns(500), 0.5)
    assert difference.abs().max() < 1e-13


@pytest.mark.parametrize("action", [no_group(2), turns(1), turns(7), linear(planar(Dihedral(3)))], ids=str)
def test_mmd_against_kernel_matrices(action):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 8, 2, dtype=torch.float64, generator=generator)
    y = torch.randn(3, 5, 2, dtype=torch.float64, generator=generator)
    for k, value in enumerate(mmd_squared(x, y, action, 0.8).tolist()):
        clouds = [action.images(p).flatten(0, 1).numpy() for p in (x[k], y[k])]
        xx, xy, yy = (
            rbf_kernel(clouds[i], clouds[j], gamma=1 / (2 * 0.8**2)).mean() for i, j in ((0, 0), (0, 1), (1, 1))
        )
        assert value == pytest.approx(xx - 2 * xy + yy, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("s", [0.05, 0.26])
@pytest.mark.parametrize("order", [16, 64, 300, math.inf])
def test_moments_agree_with_pairs(order, s):
    """Thousands of pairs of points go through moments of the harmonics, few pairs through the kernel of each."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(60, n, 2, dtype=torch.float64, generator=generator) for n in (30, 20))
    action = radial(2) if math.isinf(order) else turns(order)
    w = torch.tensor([1 / 30] * 30 + [-1 / 20] * 20, dtype=torch.float64)
    for k, value in enumerate(mmd_squared(x, y, action, s)[:3].tolist()):
        both = torch.cat([x[k], y[k]])
        assert value == pytest.approx(float(w @ orbit_kernel(both, both, action, s) @ w), rel=1e-10)


def test_kernel_reach():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    reach = kernel_reach(x, turns(2), 1.0)
    assert reach.a == pytest.approx(float(torch.exp(-2 * x.square().sum(1)).mean()))
    assert reach.constant**2 == pytest.approx((1 + reach.a) / 2)
    assert 0 < reach.ratio <= reach.constant
    assert reach.factor == pytest.approx(reach.ratio**-2)
    assert kernel_reach(x, no_group(2), 1.0).ratio == 1.0
    assert kernel_reach(x, radial(2), 1.0).constant ** 2 == pytest.approx(kernel_reach(x, radial(2), 1.0).a)


def regularised_divergence(x, y, *how):
    return float(regularised_batch(x[None], y[None], *how))


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_divergences_by_a_dense_program(kind):
    import cvxpy as cp

    x, y = points(turns(3), 7, 6, seed=5)
    cost = turns(3).distance(torch.cat([x, y]), torch.cat([x, y])).numpy()
    gamma, ones = cp.Variable((13, 1)), np.ones((1, 13))
    if kind == "alpha2":
        penalty = (cp.sum_squares(cp.pos(gamma[7:])) / 6 + 1) / 2
    else:
        penalty = cp.log_sum_exp(gamma[7:]) - math.log(6)
    problem = cp.Problem(cp.Maximize(cp.sum(gamma[:7]) / 7 - penalty), [gamma @ ones - (gamma @ ones).T <= cost])
    problem.solve(solver=cp.CLARABEL)
    assert regularised_divergence(x, y, turns(3), kind) == pytest.approx(problem.value, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_divergences_lie_between_zero_and_transport(kind):
    x, y = points(turns(3), 12, 12, seed=6)
    distance = w1(x, y, turns(3))
    values = [regularised_divergence(x, y, turns(3), kind, L) / L for L in (0.01, 1.0, 5.0)]
    assert 0 <= values[2] < values[1] < values[0] <= distance * (1 + 1e-7)
    assert values[0] == pytest.approx(distance, rel=2e-2)
    assert regularised_divergence(x, x, turns(3), kind) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_divergences_at_every_scale(kind):
    """L·W1 − D is of second order in the scale, so that D ≤ L·W1 is easily lost in rounding."""
    x, y = points(turns(3), 8, 8, seed=6)
    y = y + 0.5
    distance, last = w1(x, y, turns(3)), 0.0
    for scale in (1e-12, 1e-100):  # the solvers know no scale either
        for exact in (w1, w1_invariant_program):
            assert exact(scale * x, scale * y, turns(3)) / scale == pytest.approx(distance, rel=1e-12)
    if kind == "kl":
        with pytest.raises(ValueError, match="times the largest distance must be at most 500 for kl"):
            regularised_divergence(1e4 * x, 1e4 * y, turns(3), kind)
    for scale in (*((1e4, 1e2) if kind == "alpha2" else ()), 10.0, 1.0, 1e-2, 1e-4, 1e-8, 1e-12, 1e-100):
        value = regularised_divergence(scale * x, scale * y, turns(3), kind) / scale
        assert last - 1e-9 <= value <= distance * (1 + 1e-12)
        assert regularised_divergence(x, y, turns(3), kind, scale) / scale == pytest.approx(value, rel=1e-6)
        last = value
    assert last == pytest.approx(distance, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_replicates_of_regularised_divergences_do_not_interact(kind, monkeypatch):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(5, 9, 2, dtype=torch.float64, generator=generator)
    y = 1.5 * torch.randn(5, 7, 2, dtype=torch.float64, generator=generator)
    x[0] += 20  # one replicate at another scale than the others
    monkeypatch.setattr("lib.transport.divergences._POTENTIALS", 50)  # three replicates in one program, then two
    alone = [regularised_divergence(a, b, turns(4), kind, 0.7) for a, b in zip(x, y, strict=True)]
    assert regularised_batch(x, y, turns(4), kind, 0.7).tolist() == pytest.approx(alone, rel=1e-6)


def test_a_separate_cluster_does_not_run_away():
    x, y = points(no_group(2), 10, 10)
    value = regularised_divergence(x + 50, y, no_group(2), "kl", 0.1)
    assert 0 < value <= 0.1 * w1(x + 50, y, no_group(2)) * (1 + 1e-9)


class OneDevice(TorchFunctionMode):
    """Fails where tensors of two devices meet in one operation other than a move, as a GPU would."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        devices = {t.device for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.ndim}
        assert len(devices) <= 1 or func is torch.Tensor.to, (func, devices)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def without_values(monkeypatch):
    """Switch off the checks that look at values, of which tensors on the device ``meta`` have none."""
    monkeypatch.setattr(Isometries, "check", lambda self, x, y: None)
    monkeypatch.setattr(Representation, "check_vectors", lambda self, name, x, inexact=True: x)
    monkeypatch.setattr("lib.symmetry.groups.FiniteGroup.check", lambda self, name, g: g)
    monkeypatch.setattr("lib.symmetry.actions.holds", lambda condition: True)


def turned_by_images(order, s, r, rho, delta):
    angle = delta[:, None] - 2 * math.pi * torch.arange(order, dtype=torch.float64) / order
    exponent = (r - rho)[:, None] ** 2 + 4 * (r * rho)[:, None] * torch.sin(angle / 2) ** 2
    return torch.exp(-exponent / (2 * s**2)).mean(1)


@pytest.mark.parametrize("smallest", [0.0, 0.5, 1.5])
@pytest.mark.parametrize(
    ("order", "s"),
    [(8, 1.0), (8, 1e-3), (64, 0.1), (200, 1e-2), (1000, 1e-3), (1000, 1e-4), (3000, 1e-5), (math.inf, 1e-4)],
)
def test_turned_kernels_at_every_bandwidth(order, s, smallest):
    generator = torch.Generator().manual_seed(0)
    r, rho, delta = torch.rand(3, 300, dtype=torch.float64, generator=generator)
    r = smallest + (1.5 - smallest) * r
    rho = (r + s * (2 * rho - 1)).clamp(smallest, 1.5)
    count = 100_000 if order == math.inf else order
    delta = 2 * math.pi * (delta * count).round() / count + 2 * s * delta  # near some image
    kernel = TurnedKernel(order, s, smallest, 1.5)
    exact = turned_by_images(count, s, r, rho, delta)
    torch.testing.assert_close(kernel(r, rho, delta), exact, atol=1e-13, rtol=0)
    single = kernel(*(t.float() for t in (r, rho, delta)))  # rounding r to single precision moves it by 1e-7 / s widths
    torch.testing.assert_close(single.double(), exact, atol=1e-6 + 1e-6 / s, rtol=0)


def test_turned_kernels_need_few_terms():
    """Bounds in advance, and no term beyond what is negligible: neither images, nor harmonics, nor polynomials."""
    assert TurnedKernel(1000, 1e-4, 0.5, 1.5).images == 1
    series = TurnedKernel(1000, 1e-4, 0.0, 1.5).series
    assert len(series) < 9 * 1.5e4 / 1000
    assert sum(map(len, series)) < 6000
    assert all(abs(c[-1]) > 1e-17 for c in series)
    assert [len(c) for c in TurnedKernel(64, 0.1, 0.5, 1.5).series] == pytest.approx([27], abs=2)
    assert TurnedKernel(math.inf, 1e-4, 0.0, 1.5).series == []
    for low, high in ((0, 1), (0, 15), (5, 15), (0, 200), (150, 200)):
        count = chebyshev_terms(low, high)
        x = np.linspace(low, high, 1000)
        for p in (1, 8, 30):
            fit = np.polynomial.Chebyshev.interpolate(lambda v, p=p: ive(p, v**2), count - 1, (low, high))
            assert np.abs(fit(x) - ive(p, x**2)).max() < 1e-13
        tail = ive(np.arange(int(9 * high) + 12, int(10 * high) + 40), high**2)
        assert tail.max() < 1e-17


def test_mixed_devices_are_noticed():
    with pytest.raises(AssertionError, match="matmul"), OneDevice():
        torch.matmul(torch.ones(2, 2), torch.ones(2, 2, device="meta"))


@pytest.mark.usefixtures("without_values")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("action", EVERY.values(), ids=EVERY)
def test_costs_stay_on_their_device(action, dtype, monkeypatch):
    monkeypatch.setattr(quotient, "CHUNK", 64)  # several blocks
    x, y = (torch.empty(2, n, action.dim, device="meta", dtype=dtype) for n in (5, 4))
    with OneDevice():
        cost = action.distance(x, y)
        others = [f(x) for f in (action.images, action.line) if f is not None] + [action.plain_distance(x, y)]
    assert cost.shape == (2, 5, 4)
    assert all(t.device.type == "meta" and t.dtype == dtype for t in [cost, *others])


@pytest.mark.parametrize("order", [3, 64, math.inf])
def test_kernels_stay_on_their_device(order):
    kernel = TurnedKernel(order, 0.1, 0.5, 1.5)
    r = torch.empty(4, 6, device="meta", dtype=torch.float32)
    with OneDevice():
        values = [kernel(r, r, r)]
        if not kernel.by_images:
            values.append(kernel.quadratic_form(r, r, r[0]))
    assert all(v.device.type == "meta" and v.dtype == torch.float32 for v in values)


@pytest.mark.parametrize("action", EVERY.values(), ids=EVERY)
def test_single_precision(action, monkeypatch):
    monkeypatch.setattr(quotient, "CHUNK", 64)
    x, y = points(action, 6, 7)
    cost = action.distance(x.float(), y.float())
    assert cost.dtype == torch.float32
    torch.testing.assert_close(cost.double(), action.distance(x, y), atol=2e-6, rtol=1e-6)
    assert action.distance(x.float(), x.float()).diagonal().max() < 1e-6
    assert w1(x.float(), x.float(), action) < 1e-6
    if not action.periodic:
        for scale in (1e-30, 1e-12, 1e12, 1e30):  # powers would leave the range of float32
            scaled = action.distance(scale * x.float(), scale * y.float()).double() / scale
            torch.testing.assert_close(scaled, action.distance(x, y), atol=2e-6, rtol=1e-6)


def test_collinear_and_vanishing_pairs():
    """One point of a pair at zero, or both on a line: the first column of R vanishes, or the last row."""
    x, y = points(pairs_in_space(), 6, 6, seed=2)
    x[0, :3] = x[1, 3:] = x[2] = 0
    x[3, 3:] = -2 * x[3, :3]
    x[4, :3] *= 1e-30
    for a in range(6):
        X, Y = x[a].reshape(2, 3).T, y[a].reshape(2, 3).T
        expected = (X.square().sum() + Y.square().sum() - 2 * torch.linalg.svdvals(X @ Y.T).sum()).sqrt()
        assert float(pairs_in_space().distance(x, y)[a, a]) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("action", EVERY.values(), ids=EVERY)
def test_cuda_gives_the_same(action, monkeypatch):
    monkeypatch.setattr(quotient, "CHUNK", 64)
    x, y = (p.reshape(2, 8, action.dim) for p in points(action, 16, 16))
    there = [p.cuda() for p in (x, y)]
    cost = action.distance(*there)
    assert cost.is_cuda
    torch.testing.assert_close(cost.cpu(), action.distance(x, y), atol=1e-7, rtol=1e-9)
    assert w1_batch(*there, action).cpu().tolist() == pytest.approx(w1_batch(x, y, action).tolist(), rel=1e-9)
    one, other = (p[0] for p in there)
    assert w1(one, other, action) == pytest.approx(w1(x[0], y[0], action), rel=1e-9)
    assert regularised_divergence(one, other, action) == pytest.approx(
        regularised_divergence(x[0], y[0], action), abs=1e-6
    )
    if action.images is not None:
        assert w1_invariant_program(one, other, action) == pytest.approx(w1(x[0], y[0], action), rel=1e-8)
    if action.images is not None or action.turns is not None:
        expected = mmd_squared(x, y, action, 0.7)
        torch.testing.assert_close(mmd_squared(*there, action, 0.7).cpu(), expected, atol=1e-12, rtol=1e-9)


class TestBadInput:
    x = torch.zeros(3, 2, dtype=torch.float64)

    @pytest.mark.parametrize("wrong", [x[:0], x * math.nan, x + 0j, x.half(), x[:, :1]], ids=str)
    def test_points(self, wrong):
        for bad in ((self.x, wrong), (wrong, self.x)):
            for function in (w1, lambda *how: orbit_kernel(*how, 1.0)):
                with pytest.raises((TypeError, ValueError), match=r"[xy] must"):
                    function(*bad, turns(2))

    def test_what_is_no_group_of_isometries(self):
        shear = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
        plane = planar(Cyclic(4))
        sheared = MatrixRepresentation(
            Cyclic(4), 2, lambda g: shear @ plane.matrix(g) @ torch.linalg.inv(shear), "sheared", unitary=False
        )
        with pytest.raises(ValueError, match=r"must act by isometries, sheared .* does not"):
            linear(sheared)
        with pytest.raises(TypeError, match="must be real, of a finite group"):
            linear(vectors(SpecialOrthogonal(2)))

    def test_masses(self):
        with pytest.raises(ValueError, match="masses must hold nonnegative probabilities with sum 1"):
            w1(self.x, self.x, turns(2), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("far", [1e10, 1e13, 1e60])
def test_an_outlier_that_both_samples_have_costs_nothing(far):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 20, 3, generator=generator, dtype=torch.float64)
    outlier = torch.full((1, 3), far, dtype=torch.float64)
    x, y = torch.cat([x, outlier]), torch.cat([y, outlier])
    a = torch.full((21,), 1 / 21, dtype=torch.float64)
    a[:2] += torch.tensor([1e-3, -1e-3])
    plain, near = no_group(3), torch.full((1, 3), 10.0, dtype=torch.float64)
    close = torch.cat([x[:-1], near]), torch.cat([y[:-1], near])
    assert w1(x, y, plain) == pytest.approx(float(w1_batch(x[None], y[None], plain)), rel=1e-12)
    assert w1(x, y, plain, a, a) == pytest.approx(w1(*close, plain, a, a), rel=1e-9)


@pytest.mark.parametrize("action", EVERY.values(), ids=EVERY)
def test_slopes_at_coincident_points_are_finite(action):
    (x,) = points(action, 3)
    x = torch.cat([x, x, torch.zeros_like(x)]).requires_grad_(True)
    action.distance(x, x).sum().backward()
    assert bool(x.grad.isfinite().all())
