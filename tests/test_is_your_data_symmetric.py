"""The chapter that puts symmetries on trial: its test, its regression and its kernels, against independent routes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import binom
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

from lib.symmetry.fourier import GroupFourier
from lib.symmetry.groups import Dihedral
from tests.chapters import load

CHAPTER = "is_your_data_symmetric"
GROUPS = ("C8", "C4", "D2", "D4")
ORDERS = {"mirror": 2, "C2": 2, "C4": 4, "D2": 4, "D4": 8, "C8": 8}
page = load(CHAPTER, seed=11, seeds=2, pairs=200, draws=500)


def gram(name: str, kernel, seed: int = 3, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = page.orbits(page.digit_pairs(seed, count), page.maps(page.moves_of(name)))
    return kernel(x, x), y


@pytest.mark.parametrize("name", ORDERS)
def test_moves_are_groups_of_permutations(name: str) -> None:
    to = page.maps(page.moves_of(name))
    known = {tuple(p.tolist()) for p in to}
    assert len(known) == len(to) == ORDERS[name]
    assert {tuple(a[b].tolist()) for a in to for b in to} == known
    x = page.pictures(5)[0][:3]
    for p, move in zip(to, page.moves_of(name), strict=True):
        assert np.array_equal(x.reshape(3, 64)[:, p], move(x).reshape(3, 64))


def test_right_guesses_are_binomial_and_below_the_ceiling() -> None:
    """Under a symmetric law the count is binomial at one half; a law with disjoint images attains the ceiling."""
    flip = [lambda v: v, lambda v: -v]
    counts = []
    for s in range(300):
        x = np.random.default_rng(s).standard_normal((60, 2))
        score = page.score_of(x, flip, s)
        assert score.of == 40
        counts.append(score.right)
    tail = binom.cdf(np.arange(41), 40, 0.5)
    found = np.searchsorted(np.sort(counts), np.arange(41), side="right") / len(counts)
    assert np.abs(found - tail).max() < 1.95 / math.sqrt(300)  # Kolmogorov and Smirnov at 0.001
    sided = np.abs(np.random.default_rng(1).standard_normal((2000, 2))) + 1
    score = page.score_of(sided, flip, 0)
    assert score.ceiling == 0.75
    assert abs(score.accuracy - 0.75) < 0.06
    assert score.p_value(score.ceiling, "greater") > 1e-3
    turns = [lambda v, k=k: v @ np.linalg.matrix_power([[0, -1], [1, 0]], k) for k in range(4)]
    score = page.score_of(sided, turns, 0)
    assert abs(score.accuracy - 0.875) < 0.05


def test_scores_have_exact_intervals() -> None:
    score = page.Score(70, 100, 0.75)
    low, high = score.interval(0.95)
    assert binom.sf(69, 100, low) == pytest.approx(0.025)
    assert binom.cdf(70, 100, high) == pytest.approx(0.025)
    assert score.accuracy == 0.7
    assert score.p_value() == pytest.approx(2 * binom.sf(69, 100, 0.5))
    assert page.departure(score) == pytest.approx(4)
    assert page.family([score, page.Score(50, 100, 0.75)], 0.5) == pytest.approx(2 * score.p_value())
    assert page.family([score], side="greater") == pytest.approx(binom.sf(69, 100, 0.75))


def test_a_library_classifier_says_the_same() -> None:
    x, moves = page.pictures(21)[0], page.moves_of("C4")
    rng = np.random.default_rng(21)
    coin, which = rng.integers([[2], [4]], size=(2, len(x)))
    piles = np.stack([m(x) for m in moves])[which * coin, np.arange(len(x))].reshape(len(x), 64)
    theirs = np.mean(SVC(C=5).fit(piles[:898], coin[:898]).predict(piles[898:]) == coin[898:])
    assert page.score_of(x, moves, 21).accuracy == pytest.approx(theirs, abs=0.05)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 3), Fraction(9, 10), Fraction(1)])
def test_floors(delta: Fraction) -> None:
    plain, even = (page.floor(page.POWERS[k], delta) for k in ("plain", "invariant"))
    assert even == Fraction(1, 192)
    assert plain == even * 64 * (1 - delta**2) / (64 - 63 * delta**2)
    assert page.by_quadrature((0, 1, 2), float(delta)) == pytest.approx(float(plain), abs=1e-14)
    assert page.floor((0, 2, 4), delta) < even  # more even functions help
    G = page.gram_of(float(delta))
    u, w = np.polynomial.legendre.leggauss(10)
    u, w = (u + 1) / 2, w / 2
    share = (1 + float(delta)) / 2
    f = np.stack([[np.ones(10), t, t * t, abs(t)] for t in (u, -u)])
    exact = np.einsum("sin,sjn,sn->ij", f, f, np.stack([share * w, (1 - share) * w]))
    assert np.allclose(G, exact)


@pytest.mark.parametrize("delta", [1.0, 0.3])
def test_risks_are_those_of_an_independent_solver(delta: float) -> None:
    found = page.risks(40, delta, 9, 20)
    g = torch.Generator().manual_seed(90_000 + 40)
    u, sign = torch.rand(2, 20, 40, dtype=torch.float64, generator=g)
    noise = torch.randn(20, 40, dtype=torch.float64, generator=g)
    t = torch.where(sign < (1 + delta) / 2, u, -u).numpy()
    grid, w = np.polynomial.legendre.leggauss(10)
    grid, w = (grid + 1) / 2, w / 2
    for k, powers in enumerate(page.POWERS.values()):
        for run in range(20):
            c = np.linalg.lstsq(t[run][:, None] ** powers, abs(t[run]) + 0.5 * noise[run].numpy(), rcond=None)[0]
            risk = [(w * ((v[:, None] ** powers) @ c - grid) ** 2).sum() for v in (grid, -grid)]
            risk = (1 + delta) / 2 * risk[0] + (1 - delta) / 2 * risk[1]
            assert float(found[k, run]) == pytest.approx(risk)


def test_the_crossover() -> None:
    assert page.crossover(0.75) == pytest.approx(192 * page.NOISE**2)
    for accuracy in (0.6, 0.7):
        delta = Fraction(accuracy).limit_denominator(100) * 4 - 2
        gain = page.floor((0, 2), delta) - page.floor((0, 1, 2), delta)
        assert page.crossover(accuracy) == pytest.approx(page.NOISE**2 / float(gain))


@pytest.mark.parametrize("group", GROUPS)
def test_value_at_an_unseen_pose(group: str) -> None:
    """Against a library's Gaussian process, the Fourier transform of the group, and blocks of any size."""
    K, y = gram(group, page.gaussian(0.05))
    m, formula = len(y) // 2, page.predicted(K)
    x, _ = page.orbits(page.digit_pairs(3, 40), page.maps(page.moves_of(group)))
    for k in range(3):
        model = GaussianProcessRegressor(RBF(math.sqrt(10)), alpha=1e-12, optimizer=None).fit(x[k, 1:], y[1:])
        assert model.predict(x[k, :1])[0] == pytest.approx(float(formula[k]), abs=1e-6)
    for kernel in (page.gaussian(0.02), page.tangent):
        K, y = gram(group, kernel)
        assert torch.allclose(page.interpolated(K, y, [0])[:, 0], page.predicted(K), atol=1e-11)
        for count in range(1, m):
            block = page.predicted_block(K, count)
            assert torch.allclose(page.interpolated(K, y, list(range(count))), block, atol=1e-10)
        assert torch.allclose(page.predicted_block(K, 1)[:, 0], page.predicted(K), atol=1e-11)
        if group in ("C4", "C8"):
            assert torch.allclose(page.by_frequency(K), page.predicted(K), atol=1e-11)


def test_harmonic_means_over_irreducible_representations() -> None:
    """For a group that does not commute the mean of 1/eigenvalues is a sum of d tr over its representations."""
    G = Dihedral(4)
    fourier = GroupFourier(G)
    g = torch.Generator().manual_seed(0)
    f = torch.rand(8, dtype=torch.float64, generator=g)
    a = G.elements()
    quotient = G.index(G.multiply(a[:, None], G.inverse(a)[None]))
    S = f[quotient] + f[quotient].mT + 20 * torch.eye(8, dtype=torch.float64)
    first = S[:, 0]  # S is convolution with its first column
    blocks = fourier.forward(first)
    total = sum(
        d * torch.linalg.inv(b).diagonal(dim1=-2, dim2=-1).sum() for d, b in zip(fourier.dims, blocks, strict=True)
    )
    assert float(total.real) / 8 == pytest.approx(float((1 / torch.linalg.eigvalsh(S)).mean()))


def test_zero_padding_breaks_the_formula_and_averaging_settles_it() -> None:
    pair, y = page.digit_pairs(8, 60), gram("C8", page.tangent)[1]
    x = page.padded(pair)
    assert torch.equal(x[:, 4], pair[0])
    K = page.tangent(x, x)
    assert float((page.interpolated(K, y, [0])[:, 0] - page.by_frequency(K)).abs().median()) > 0.02
    for group in GROUPS:
        to = page.maps(page.moves_of(group))
        x, y = page.orbits(pair, to)
        K = page.averaged(page.gaussian(0.1), to)(x, x)
        assert torch.allclose(K, K.mT)
        m = len(to)
        assert torch.allclose(K[:, 0, :m], K[:, :1, 0].expand(-1, m))


@pytest.mark.parametrize("group", GROUPS)
def test_teachers_and_competitors(group: str) -> None:
    K, y = gram(group, page.gaussian(0.1))
    m = len(y) // 2
    at_a, at_hb, w = page.without_each(K, y)
    for h in range(m):
        both = page.interpolated(K, y, [0, m + h])
        assert torch.allclose(both, torch.stack([at_a[:, h], at_hb[:, h]], 1), atol=1e-10)
    change = page.interpolated(K, y, [0]) - at_a
    assert torch.allclose(change, -w * (1 + at_hb), atol=1e-10)
    near = K[:, :1, m:].argmax(2)
    assert float((w.gather(1, near) > 0).double().mean()) > 0.9  # the nearest is nearly always a competitor


@pytest.mark.parametrize("group", ["C4", "D4"])
def test_the_nearest_pose_competes_in_other_groups(group: str) -> None:
    space = load(CHAPTER, group=group, pairs=300)
    space.withheld.__globals__["actions"] = {group: space.maps(space.moves_of(group))}
    base, ranked, _, _ = space.withheld(group, space.gaussian(0.1), 77)
    assert ranked[0] - base > 0.2 * (1 - base)
    assert ranked[-1] - base < 0.05


def test_the_tangent_kernel_is_that_of_wide_networks() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(5, 7, dtype=torch.float64, generator=g)
    A = torch.randn(200_000, 7, dtype=torch.float64, generator=g)
    b = torch.randn(200_000, dtype=torch.float64, generator=g)
    h = x @ A.T
    on = (h > 0) * b
    K = 2 * (torch.relu(h) @ torch.relu(h).T + (on @ on.T) * (x @ x.T)) / len(b)
    assert torch.allclose(page.tangent(x, x), K, rtol=0.03)
    assert torch.allclose(page.tangent(x, x).diagonal(), 2 * x.square().sum(1))


def test_wide_networks_follow_the_formula() -> None:
    x, y = page.orbits(page.digit_pairs(13, 8), page.maps(page.moves_of("C4")))
    theory = page.predicted(page.tangent(x, x))
    gaps = [float((page.trained(x, y, 1, width=w, steps=200) - theory).abs().mean()) for w in (64, 2048)]
    assert gaps[1] < 0.5 * gaps[0]
    assert gaps[1] < 0.1


def test_digits_that_nobody_turned() -> None:
    x, y, turned = page.without_six_and_nine(3)
    assert not set(y.tolist()) & {6, 9}
    assert x.shape == turned.shape
    kernel = page.gaussian(0.1)
    found = page.errors(3, page.averaged(kernel, page.maps(page.moves_of("C4"))), (50, 200))
    assert [row[:2] for row in found] == [(3, 50), (3, 200)]
    assert all(upright == turned for *_, upright, turned in found)
    assert found[1][2] < min(0.1, found[0][2])
    assert page.errors(3, kernel, (200,))[0][3] > 0.4
    model = KernelRidge(alpha=1e-3, kernel="rbf", gamma=0.1).fit(x[:200], np.eye(10)[y[:200]])
    wrong = np.mean(model.predict(x[-600:]).argmax(1) != y[-600:].numpy())
    assert page.errors(3, kernel, (200,))[0][2] == pytest.approx(wrong)


def test_copies_before_the_split_are_below_a_half() -> None:
    moves = page.moves_of("mirror")
    x = page.moved(page.pictures(6)[0], moves, 7)
    assert page.copied_first(x, moves, 6) < 0.48
    assert page.score_of(x, moves, 6).p_value() > 1e-3


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "C5", "seeds": 1, "seed": -1, "draws": 3, "pairs": 5, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})
