"""The chapter of prices: what it defines on its page, at other groups and seeds and against independent solvers."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from tests.chapters import load

CHAPTER = "what_a_symmetry_is_worth"
GROUPS = ("C2", "C3", "C4", "C6", "C8", "D2", "D3", "D4", "S3")
POSES = ("C2", "C4", "C8", "D2", "D4")
page = load(CHAPTER, seed=11, seeds=2, draws=500)


@pytest.mark.parametrize("group", GROUPS)
def test_copies_are_permutations_that_form_a_group(group: str) -> None:
    P = page.copies(group)
    assert ((P == 0) | (P == 1)).all()
    assert (P.sum(1) == 1).all()
    known = {tuple(p.argmax(1).tolist()) for p in P}
    assert {tuple((p @ q).argmax(1).tolist()) for p in P for q in P} == known
    assert page.invariants(P).shape == (24, 24 // len(P))


@pytest.mark.parametrize(("group", "n"), [(g, n) for g in ("C2", "D3", "D4") for n in (5, 40)])
def test_fits_are_those_of_an_independent_solver(group: str, n: int) -> None:
    """numpy's lstsq, on the data, on invariant coordinates, and on all images: augmented is invariant."""
    P, g = page.copies(group), torch.Generator().manual_seed(n)
    X, y = torch.rand(n, 24, dtype=torch.float64, generator=g), torch.rand(n, dtype=torch.float64, generator=g)
    plain, averaged, invariant, augmented = page.four_fits(X, y, P)
    solved = np.linalg.lstsq(X.numpy(), y.numpy(), rcond=None)[0]
    assert np.allclose(plain, solved)
    assert np.allclose(averaged, np.mean([p.numpy() @ solved for p in P], 0))
    images = np.concatenate([X.numpy() @ p.numpy().T for p in P])
    assert np.allclose(augmented, np.linalg.lstsq(images, np.tile(y.numpy(), len(P)), rcond=None)[0])
    assert torch.allclose(augmented, invariant, atol=1e-12)
    assert not torch.allclose(page.four_fits(X, y, P[:-1])[3], invariant, atol=1e-3)
    fast = page.three_fits(X[None], y[None, :, None], page.invariants(P))[:, 0, :, 0]
    assert torch.allclose(fast, torch.stack([plain, averaged, invariant]))


@pytest.mark.parametrize(("group", "n", "delta"), [("C3", 10, 0.0), ("S3", 12, 0.5), ("D4", 40, 0.4), ("C2", 48, 0.2)])
def test_price_list(group: str, n: int, delta: float) -> None:
    P = page.copies(group)
    U, even = page.invariants(P), torch.ones(24, dtype=torch.float64)
    mean, error = (v[:, 0] for v in page.measured(n, [delta], even, U, 1000))
    price = page.prices(n, U.shape[1], delta)
    fair = np.array([True, True, abs(n - U.shape[1]) > 5])
    assert (np.abs(mean - price) < 4.5 * error)[fair].all()
    if delta:
        assert abs(mean[1] - page.prices(n, U.shape[1], 0.0)[1]) > 10 * error[1]


def test_random_projections_have_the_moments_of_the_proof() -> None:
    """E RQR = aQ + b tr(Q) I for the projection R onto a random subspace, by simulation."""
    rng, d, n = np.random.default_rng(0), 6, 2
    Q, m = np.diag([1.0, 1, 0, 0, 0, 0]), d - n
    b = m * n / (d * (d + 2) * (d - 1))
    a = m * (m + 2) / (d * (d + 2)) - b
    V = np.linalg.qr(rng.standard_normal((20_000, d, n)))[0]
    R = np.eye(d) - V @ V.transpose(0, 2, 1)
    assert np.allclose((R @ Q @ R).mean(0), a * Q + 2 * b * np.eye(d), atol=0.01)


@pytest.mark.parametrize("group", ["C2", "C3", "D4"])
def test_all_three_prices_meet_on_one_boundary(group: str) -> None:
    e = 24 // len(page.copies(group))
    for n in (30, 77, 400):
        edge = page.largest_error(n, e)
        assert np.allclose(page.prices(n, e, edge), page.prices(n, e, edge)[0])
        assert page.boundary(edge, e) == pytest.approx(n)
        for delta in np.linspace(0, 2 * edge, 9)[[1, 3, 5, 7]]:
            assert sorted(page.prices(n, e, delta))[1] == page.prices(n, e, delta)[1]  # averaged is between
            assert page.prices(n, e, delta).argmin() == (2 if delta < edge else 0)
        assert page.ordinary(page.worth(n, e), 24, 0, 1.0) == pytest.approx(page.ordinary(n, e, 0, 1.0))


@pytest.mark.parametrize("order", [2, 3, 6])
def test_the_kernel_is_its_fourier_series_and_its_average(order: int) -> None:
    x, y = torch.rand(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(order))
    j = np.arange(1, 20_001) * order
    waves = np.cos(2 * np.pi * j * (x[:, None] - y).numpy()[..., None])
    assert np.allclose(page.kernel(x, y, order), 1 + 2 * waves @ (1.0 / j**2), atol=1e-4)
    averaged = sum(page.kernel(x, y + k / order) for k in range(order)) / order
    assert torch.allclose(page.kernel(x, y, order), averaged)
    moved = page.target(x + 1 / order, order, 5)
    assert torch.allclose(moved, page.target(x, order, 5))
    assert not torch.allclose(moved, page.target(x, 1, 5))


def test_ridge_regression_is_that_of_scikit_learn() -> None:
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 3, 20, dtype=torch.float64, generator=g)
    grid = torch.linspace(0, 1, 50, dtype=torch.float64)
    truth = torch.sin(6 * grid)
    found = page.ridge_risk(x, y, grid, truth, [0.01, 0.3], 2)
    for (k, ridge), s in product(enumerate((0.01, 0.3)), range(3)):
        model = KernelRidge(alpha=20 * ridge, kernel="precomputed").fit(page.kernel(x[s], x[s], 2), y[s])
        risk = np.mean((model.predict(page.kernel(grid, x[s], 2)) - truth.numpy()) ** 2)
        assert float(found[k, s]) == pytest.approx(risk)


def test_the_equivalent_is_the_least_over_a_grid() -> None:
    value, count = page.on_circle(1)
    own, n = page.POWERS**-2.0, 100
    best, ridge = page.equivalent(n, (value, count), own)
    risks = {}
    for kappa in np.geomspace(1e-4, 1, 400):
        keep = value / (value + kappa)
        df1, df2 = (count * keep).sum(), (count * keep**2).sum()
        if df1 < n:
            bias = (page.POWERS**-3.0 * (kappa / (own + kappa)) ** 2).sum()
            risks[kappa * (1 - df1 / n)] = (bias + 0.09 * df2 / n) / (1 - df2 / n)
    least = min(risks, key=risks.get)
    assert best == pytest.approx(risks[least], rel=1e-3)
    assert best <= risks[least]
    assert ridge == pytest.approx(least, rel=0.1)
    kappa = 0.01
    closed = math.pi / math.sqrt(kappa) / math.tanh(math.pi / math.sqrt(kappa))
    assert (count * value / (value + kappa)).sum() == pytest.approx(closed - kappa / (1 + kappa), rel=1e-5)


def test_spectra_of_the_torus_count_the_lattice() -> None:
    value, count = page.on_torus(20)
    exact = {}
    for a, b in product(range(-20, 21), repeat=2):
        if a * a + b * b <= 400:
            exact[1 + a * a + b * b] = exact.get(1 + a * a + b * b, 0) + 1
    for v, c in zip(value[:401], count[:401], strict=True):
        assert exact.get(round(v ** (-2 / 3)), 0) == c
    tail = (count * value)[401:].sum()  # ∫ 2πr (1 + r²)^(−3/2) from 20 on
    assert tail == pytest.approx(2 * math.pi / math.sqrt(401), rel=1e-3)


@pytest.mark.parametrize("order", [2, 3, 4, 8])
def test_a_finite_group_multiplies_the_sample(order: int) -> None:
    for n in (64, 4096):
        assert page.factor(n, order, order) == pytest.approx(order, rel=0.01)
    assert page.factor(64, order, 1) == pytest.approx(1, rel=1e-3)
    assert page.mirror_factor(64) < page.mirror_factor(4096) < 2


def test_simulated_risks_agree_and_a_wrong_symmetry_is_not_learnt() -> None:
    few, many = page.best_risk(32, 3, 3, 150), page.best_risk(96, 1, 3, 50)
    assert few[0] == pytest.approx(many[0], rel=0.15)
    assert page.best_risk(32, 1, 3, 20)[0] > 1.4 * few[0]
    k = np.arange(1, 301)
    assert page.best_risk(64, 3, 1, 10)[0] > (k**-3.0)[k % 3 > 0].sum()


@pytest.mark.parametrize("name", POSES)
def test_image_moves_are_groups(name: str) -> None:
    to = page.image_moves(name)
    known = {tuple(p.tolist()) for p in to}
    assert len(known) == len(to) == {"C2": 2, "C4": 4, "C8": 8, "D2": 4, "D4": 8}[name]
    assert {tuple(a[b].tolist()) for a in to for b in to} == known


@pytest.mark.parametrize("name", ["C2", "C8", "D4"])
def test_noise_of_gradients(name: str) -> None:
    """Every choice enumerated, with autograd's gradient of each image by itself as the oracle."""
    to = page.image_moves(name)
    w, x, y = page.problem(17, points=3, hidden=16)
    G = page.gradients(w, x, y, to)
    v = w.clone().requires_grad_()
    (one,) = torch.autograd.grad(page.loss(v, x[1][to[-1]], y[1]), v)
    assert torch.allclose(G[1, -1], one)
    (B, W, gram), m = page.parts(G), len(to)
    everything = (G - G.mean((0, 1))).square().sum(-1).mean()
    assert pytest.approx(float(everything)) == B + W
    for replace, k in ((True, 2), (False, 2), (False, m)):
        ways = product(range(m), repeat=k) if replace else combinations(range(m), k)
        brute = np.mean([float((G[:, c].mean(1) - G.mean((0, 1))).square().sum(-1).mean()) for c in map(list, ways)])
        assert page.noise(gram, k, replace) == pytest.approx(brute, rel=1e-10)
        assert page.predicted(B, W, k, m, replace) == pytest.approx(brute, rel=1e-10)
    assert page.covariance(gram) == pytest.approx(B - W / (m - 1))


def test_fresh_examples_win_if_and_only_if_images_are_positively_correlated() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        (B, W), m = rng.exponential(size=2), int(rng.integers(2, 9))
        for k in range(2, m + 1):
            assert (B + W) / k <= page.predicted(B, W, k, m, True)
            assert ((B + W) / k < page.predicted(B, W, k, m, False)) == (B - W / (m - 1) > 0)


def test_simulated_batches_and_biases() -> None:
    name, _, z, other, bias, upright, *_ = page.simulated("D4", 23)
    assert name == "D4"
    assert z < 4.5 < other
    assert bias < 1e-24 < 1e-3 < upright


def test_the_loss_splits() -> None:
    """For any symmetric law; not for upright digits, a set that is no group, or labels that do not follow."""
    *_, x, y = page.halves(31)
    for name in POSES:
        to, w, labels = page.image_moves(name), page.start(31), y[:, None]
        out, mean = page.on_orbits(w, x, to)
        found = page.split(out, mean, labels)
        assert max(page.gaps_of(found)) < 1e-12
        entropy = torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.expand_as(out).flatten(0, 1))
        assert found[3] == pytest.approx(float(entropy))
        some = page.on_subset(w, x[:50], to[1:])
        assert min(page.gaps_of(page.split(*(v.detach() for v in some), labels[:50]))) > 1e-7
        whole, left, taken = page.absolute(out, mean, torch.zeros_like(out))
        assert left <= whole <= left + taken
    assert page.gaps_of(page.profile_split(31, 0.0))[0] < 1e-12
    assert page.gaps_of(page.profile_split(31, 1.0))[0] > 1e-3


def test_training_upright_leaves_a_symmetry_error() -> None:
    shares = {}
    for mode in ("full", "none"):
        weights, rows = page.train(mode, 37, page.image_moves("C4"), when=(0, 60))
        assert len(weights) == 3
        shares[mode] = rows[-1][5] / rows[-1][3]
    assert shares["none"] > 2 * shares["full"]


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "C5", "seeds": 1, "seed": -1, "draws": 3, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})


def test_pooled_deviations_are_standard_normal() -> None:
    rng = np.random.default_rng(5)
    price, error = np.array([3.0, 0.2, 11.0]), np.array([0.3, 0.001, 0.5])
    found = []
    for _ in range(4000):
        mean = price + error * rng.standard_normal(3)
        found.append(page.pooled(pd.DataFrame({"mean": mean, "price": price, "error": error})))
    assert np.mean(np.square(found)) == pytest.approx(1, abs=0.1)
    one = pd.DataFrame({"mean": [2.0], "price": [1.0], "error": [0.25]})
    assert page.pooled(one) == pytest.approx(4)
    assert page.pooled(one.assign(mean=0.0)) == pytest.approx(4)
