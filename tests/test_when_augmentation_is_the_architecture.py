"""The chapter on limited layers: what it defines on its page, at other groups, seeds and supports."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lib.augmentation.risks import gradient
from tests.chapters import load

CHAPTER = "when_augmentation_is_the_architecture"
GROUPS = ("C4", "D2", "D4")
page = load(CHAPTER, seed=3, seeds=2, members=512)


@pytest.mark.parametrize("group", GROUPS)
def test_moves_are_a_group_of_isometries_that_fixes_the_corner(group: str) -> None:
    to = page.moves(group)
    assert len(to) == {"C4": 4, "D2": 4, "D4": 8}[group]
    assert {tuple(p.tolist()) for p in to} == {tuple(a[b].tolist()) for a in to for b in to}
    assert (to[:, 0] == 0).all()
    for p in to:  # the cell p − q goes where its difference goes
        assert torch.equal(p[page.STEP], page.STEP[p][:, p])


@pytest.mark.parametrize("group", GROUPS)
def test_networks_turn_with_their_filters(group: str) -> None:
    to, g = page.moves(group), torch.Generator().manual_seed(0)
    theta = torch.randn(3, 2, 2, 16, dtype=torch.float64, generator=g)
    x = torch.randn(1, 5, 16, dtype=torch.float64, generator=g)
    eye = torch.eye(16, dtype=torch.float64)
    for p in to:
        moved = page.network(theta[..., p], eye, x[..., p])
        assert torch.allclose(moved, page.network(theta, eye, x)[..., p])


def test_the_written_convolution_is_a_circular_one() -> None:
    g = torch.Generator().manual_seed(1)
    theta, x = (torch.randn(1, *s, dtype=torch.float64, generator=g) for s in ((2, 1, 16), (3, 16)))
    fourier = [torch.fft.fft2(v.unflatten(-1, (4, 4))) for v in (theta[0, :, 0], x[0])]
    hidden = torch.fft.ifft2(fourier[0][0] * fourier[1]).real.tanh()
    out = torch.fft.ifft2(fourier[0][1] * torch.fft.fft2(hidden)).real
    assert torch.allclose(page.network(theta, torch.eye(16, dtype=torch.float64), x)[0], out.flatten(1))


@pytest.mark.parametrize("group", GROUPS)
def test_commutators_of_all_small_supports(group: str) -> None:
    to, eye = page.moves(group), torch.eye(16, dtype=torch.float64)
    mean, rng = page.averaging(to), np.random.default_rng(0)
    assert torch.allclose(mean @ mean, mean)
    for size in range(1, 16):
        S = rng.choice(16, size, replace=False).tolist()
        assert page.commutator(eye[:, S], mean) == pytest.approx(page.closed_form(S, to), abs=1e-12)
        repaired = page.nearest_compatible(S, to)
        assert page.closed_form(repaired, to) == 0
        assert not repaired or page.commutator(eye[:, repaired], mean) < 1e-12


@pytest.mark.parametrize("group", GROUPS)
def test_three_hypotheses(group: str) -> None:
    to, bases = page.moves(group), page.architectures()
    mean, eye = page.averaging(to), torch.eye(16, dtype=torch.float64)
    scaled = bases["3 × 3"] * torch.linspace(0.5, 1.5, 9, dtype=torch.float64)
    for name, B in (*bases.items(), ("scaled", scaled)):
        compatible = page.commutator(torch.linalg.qr(B)[0], mean) < 1e-12
        assert compatible == (name not in ("skewed", "2 × 2"))
        a, found, formula, plain = page.routes(B, 21, to, mean, eye)
        assert page.filters(a, B).norm() > 0.1
        drift = page.led_out(B, 21, to, mean, steps=30)
        if compatible:
            assert found.norm() < 1e-13
        else:
            assert found.norm() > 1e-3
            assert (found - formula).norm() < 1e-10 * found.norm()
            assert (found - plain).norm() > 0.1 * found.norm()
        assert drift < 1e-13 if compatible and name != "scaled" else drift > 0.01
        if name != "scaled":
            assert (page.cross_block(B, 21, to, mean) < 1e-12) == compatible


def test_a_penalty_shrinks_the_offset_and_keeps_it() -> None:
    to, B = page.moves("C4"), page.architectures()["2 × 2"]
    mean, eye = page.averaging(to), torch.eye(16, dtype=torch.float64)
    a = page.routes(B, 22, to, mean, eye)[0]
    far = page.offsets(B, a, 22, to, eye - mean, [100.0, 1000.0])
    assert far[0] / far[1] == pytest.approx(10, rel=0.05)
    plus = page.architectures()["plus"]
    a = page.routes(plus, 22, to, mean, eye)[0]
    assert max(page.offsets(plus, a, 22, to, eye - mean, [10.0])) < 1e-12


def test_stationary_points_have_no_slope() -> None:
    x, y, *_ = page.problem(5, page.moves("C4"))
    B = page.architectures()["plus"]
    start = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f = page.on(B, x, y)
    assert gradient(f, page.stationary(f, start)).norm() < 1e-12


def test_ensembles_of_invariant_layers_become_equivariant() -> None:
    to, bases = page.moves("D4"), page.architectures()
    few, many = (page.ensemble_residual(bases["plus"], 23, to, count) for count in (64, 1024))
    assert many < 0.6 * few
    assert page.ensemble_residual(bases["one slope"], 23, to, 1024) > 3 * many


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "C8", "seeds": 1, "seed": -1, "members": 3, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})


# --- N10 ---


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_kernels_are_means_over_random_units() -> None:
    x, z, w, n = normal(3, 5), normal(4, 5, seed=1), normal(400_000, 5, seed=2), 400_000
    units = torch.relu(x @ w.T) @ torch.relu(w @ z.T) / n
    slopes = (x @ w.T > 0).double() @ (w @ z.T > 0).double() / n * (x @ z.T)
    assert torch.allclose(page.arc_cosine(x, z), 2 * units, rtol=0.02, atol=0.02)
    assert torch.allclose(page.tangent(x, z), 2 * units + 2 * slopes, rtol=0.02, atol=0.04)
    assert torch.allclose(page.arc_cosine(x, x).diagonal(), x.square().sum(1))


def test_flow_solves_its_equation() -> None:
    x, y, new = page.zeros_and_ones(4)
    K, K_new, n = page.tangent(x, x), page.tangent(new, x), len(x)
    step = 1e-4
    before, f, after = page.flow(K, K, y, [2 - step, 2.0, 2 + step])
    assert torch.allclose((after - before) / (2 * step), -K @ (f - y) / n, atol=1e-6)
    a, b = page.flow(K, K_new, y, [2 - step, 2 + step])
    assert torch.allclose((b - a) / (2 * step), -K_new @ (f - y) / n, atol=1e-6)
    assert torch.allclose(page.flow(K, K, y, [1e9])[0], y, atol=1e-6)


@pytest.mark.parametrize("group", GROUPS)
def test_augmentation_averages_the_kernel(group: str) -> None:
    g, times = page.turned_pixels(group), [0.3, 5.0, 200.0]
    assert {tuple(p.tolist()) for p in g} == {tuple(a[b].tolist()) for a in g for b in g}
    assert len(g) == len(page.moves(group))
    first, second = page.two_flows(7, g, times)
    assert torch.allclose(first, second, rtol=0, atol=1e-10)
    assert second.abs().max() > 0.5
    some = g[[k for k in range(len(g)) if k != 2]]
    first, second = page.two_flows(7, some, [5.0])
    assert (first - second).abs().max() > 0.03
    first, second = page.two_flows(7, g, [5.0], page.weighted, twice=True)
    assert (first - second).abs().max() > 0.03
    first, second = page.two_flows(7, g, [5.0], twice=True)  # averaging twice does no harm where once is enough
    assert torch.allclose(first, second, rtol=0, atol=1e-10)


def test_narrow_networks_approach_the_averaged_kernel() -> None:
    g = page.turned_pixels("C4")
    to_average, to_plain, asymmetry = np.sqrt(np.mean([page.narrow_networks(s, g, [64, 4096]) for s in range(8)], 0)).T
    assert 5 < to_average[0] / to_average[1] < 13  # eight times, up to chance
    assert 5 < asymmetry[0] / asymmetry[1] < 13
    assert to_plain[0] / to_plain[1] < 2
    X, Z, y, wide, plain = page.small_sample(2, g)
    assert (len(X), len(Z), len(y)) == (24, 48, 24)
    assert plain.shape == (12, 4)
    assert wide.shape == (12, 1)


# --- N11 ---


def test_jacobian_of_students() -> None:
    w, x = normal(2, 2, 6, 3), normal(5, 3, seed=1)
    expected = torch.func.jacrev(lambda v: page.student(v[None], x)[0])(w[1]).flatten(2).flatten(1).reshape(15, 36)
    assert torch.allclose(page.jacobian(w, x)[1], expected)


def test_renamings_find_what_was_hidden() -> None:
    g = torch.Generator().manual_seed(5)
    w = page.triples(normal(2, 2, 3, seed=3))  # two triples
    order = torch.randperm(6, generator=g)
    sign = torch.where(torch.rand(6, generator=g) < 0.5, -1.0, 1.0).double()
    hidden = w[:, order] * sign[:, None]
    x = normal(7, 3, seed=4)
    assert torch.allclose(page.student(hidden[None], x), page.student(w[None], x))
    error, lengths = page.renaming(hidden)
    assert error < 1e-12
    assert lengths == (3, 3)
    assert page.by_name(w[None], "regular") < 1e-12
    assert page.by_name(hidden[None], "regular") > 0.1
    assert page.asymmetry(hidden[None], x) < 1e-12
    still = page.starts("trivial", 1, g, noise=0)[0]
    assert page.renaming(still) == (pytest.approx(0, abs=1e-12), (1,) * 6)
    assert page.renaming(normal(2, 6, 3, seed=9))[0] > 0.3


@pytest.mark.parametrize(
    ("order", "lengths"), [([0, 1, 2], (1, 1, 1)), ([1, 2, 0, 4, 3], (2, 3)), ([5, 0, 1, 2, 3, 4], (6,))]
)
def test_cycles(order: list[int], lengths: tuple[int, ...]) -> None:
    assert page.cycles(order) == lengths


def test_escape_by_renaming() -> None:
    """At another teacher, with a noise a hundred times smaller: the start at trivial units is a saddle."""
    g = torch.Generator().manual_seed(21)
    x = (normal(12, 3, seed=6) @ page.TURNS.mT).flatten(0, 1)
    y = page.student(page.triples(normal(2, 2, 3, seed=8))[None], x)[0]
    first = torch.cat([page.starts(kind, 6, g, noise=1e-5) for kind in ("trivial", "regular")])
    ends, error = page.polish(page.descend(first, x, y), x, y)
    fits = error < 1e-16
    assert fits[:6].sum() >= 2
    for w in ends[:6][fits[:6]]:
        assert page.renaming(w)[0] < 1e-5
        assert page.renaming(w)[1] == (3, 3)
        assert page.by_name(w[None], "trivial") > 0.05
    assert (page.by_name(ends[6:][fits[6:]], "regular") < 1e-5).float().mean() > 0.5
    tied = page.starts("trivial", 3, g, noise=0)
    gradient_of = torch.func.grad(lambda w: (page.student(w, x) - y).square().sum())(tied)
    assert (gradient_of - gradient_of.mean(-1, keepdim=True)).abs().max() < 1e-9  # descent knows no way out
