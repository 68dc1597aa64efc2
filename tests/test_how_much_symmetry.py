"""The chapter on half symmetries, approximate averages and orbits: what its page defines, at other groups and seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lib.symmetry.actions import pixels
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.haar import projection
from lib.symmetry.own_groups import named
from tests.chapters import load

CHAPTER = "how_much_symmetry"
page = load(CHAPTER, seed=11, seeds=4)
PAGES = {"C4": page, "D4": load(CHAPTER, group="D4", seed=12, seeds=4)}


@pytest.mark.parametrize("group", ["C4", "D4"])
def test_the_price_of_half_a_symmetry(group: str) -> None:
    """The formula, its minimum, and the estimated share; not for the penalty off another subspace."""
    P = projection(pixels(named(group), 8))
    floor, v = page.sizes(P)
    assert floor + v == pytest.approx(64 / 128)
    for s in (5, 29):
        for delta in (0.0, 0.3, 1.1):
            kept = torch.tensor([0.0, page.best(P, delta), 0.4, 1.0]).double()
            found, expected = page.simulated(P, delta, s, kept), page.formula(P, delta, kept)
            assert torch.allclose(found, expected, rtol=0.05)
            least = page.formula(P, delta, torch.linspace(0, 1, 1001)).min()
            assert expected[1] == pytest.approx(float(least), abs=1e-5)
            estimated, once = page.regrets(P, delta, s)
            assert estimated < 1
            assert delta == 1.1 or once > 1
        assert page.wrong_error(P, 0.0, s) > 0.5
    assert page.best(P, v**0.5) == pytest.approx(0.5)


def test_the_penalty_shrinks_what_is_off_the_invariants() -> None:
    P = projection(pixels(named("C4"), 8))
    off = torch.eye(64).double() - P.matrix()
    w = page.truth(P, 0.7, 3)
    assert float((w - P(w)).norm()) == pytest.approx(0.7)
    x, y = page.values(w, 3, 2)
    assert torch.allclose(x.mT @ x / 128, torch.eye(64).double())
    for lam in (0.0, 2.0, 1e9):
        slow = page.penalised(x, y, off, lam).mT
        assert torch.allclose(slow, page.partly(P, (x.mT @ y / 128).mT, 1 / (1 + lam)), atol=1e-6)
    skewed = x @ torch.diag(torch.linspace(1, 2, 64).double())
    slow = page.penalised(skewed, y, off, 2.0).mT
    assert not torch.allclose(slow, page.partly(P, page.penalised(skewed, y, off, 0.0).mT, 1 / 3), atol=1e-3)
    wrong = page.wrong_part(P, (x.mT @ y / 128).mT, 0.0)
    assert (wrong > 0).all()


@pytest.mark.parametrize("group", ["C4", "D4"])
def test_the_two_kernels_are_parts_of_one(group: str) -> None:
    """The averaged kernel does not change when one picture moves; both together are the kernel of all features."""
    own = PAGES[group]
    x, y = own.turned_digits(4, 0.5, 30)
    assert len(x) == len(y) > 30
    inv, rest = own.two_kernels(x, 4, 30)
    V = pixels(named(group), 8)
    moved = V.apply(V.group.elements()[1], x)
    again, other = own.two_kernels(torch.cat([x[:30], moved[30:]]), 4, 30)
    assert torch.allclose(inv, again)
    assert not torch.allclose(rest[30:], other[30:], atol=1e-3)
    values = torch.linalg.eigvalsh(inv[:30])
    assert values.min() > -1e-9
    error, loss = own.classify(inv + rest, y, 30)
    assert 0 < error < 0.9
    assert loss > 0
    upright, _ = own.turned_digits(4, 0.0, 30)
    assert not torch.equal(upright, x)


def test_leaving_one_out_is_what_it_says() -> None:
    x, y = page.turned_digits(6, 0.2, 20)
    kernel = page.two_kernels(x, 6, 20)[1]
    target, losses = torch.eye(10).double()[y] - 0.1, []
    for i in range(20):
        keep = [j for j in range(20) if j != i]
        K = kernel[keep][:, keep] + 0.01 * torch.eye(19)
        losses.append((target[i] - kernel[i, keep] @ torch.linalg.solve(K, target[keep])).square().mean())
    assert page.classify(kernel, y, 20)[1] == pytest.approx(float(torch.stack(losses).mean()))


def test_what_an_average_costs() -> None:
    """Three routes to the norm, the survey, the logarithm, a subgroup, and the last element."""
    for name in ("S3", "D5", "Q8", "A4", "C7:C3"):
        H = named(name)
        F, some = GroupFourier(H), page.sample(H.order, 5, 7, runs=2)
        slow = [page.by_hand(H, H.element(u)) for u in some]
        assert np.allclose(slow, page.by_blocks(F, some))
        assert np.allclose(slow, [page.by_products(H, u) for u in some])
        assert page.survey_error(H, 3) < 1e-12 < 1e-3 < page.survey_error(H, 3, distinct=True)
        assert page.one_missing(F, 3) < 1e-10
        assert page.one_missing(F, 3, repeat=True) > 0.1
        k = page.enough(H.order)
        assert float(page.by_blocks(F, page.sample(H.order, k, 8))[0]) < 0.5
        assert float(page.by_blocks(F, torch.arange(H.order)[None])[0]) < 1e-12
        one = torch.zeros(1, 3, dtype=torch.int64)
        assert float(page.by_blocks(F, one)[0]) == pytest.approx(1)
    for m in (3, 4):
        H = named("x".join(["C2"] * m))
        some = page.sample(H.order, 6, 9)[0]
        assert float(page.by_signs(m, some)) == pytest.approx(page.by_hand(H, H.element(some)))
        assert float(page.by_signs(m, some[: m - 1])) == 1
    assert page.enough(1000) < page.enough(1000**2) < 2 * page.enough(1000)


def test_fewer_orbits() -> None:
    """Counts, orthonormal candidates, and the law of one over their number."""
    for n in (6, 8):
        size = torch.tensor([int(k).bit_count() for k in range(2**n)])
        for name, (generators, moves, weights) in page.acting(n).items():
            label = page.orbits(n, generators)
            for h in range(n + 1):
                found = len(label[size == h].unique())
                assert page.burnside(moves, weights, h) == pytest.approx(found)
                assert found >= math.comb(n, h) / {"none": 1, "C": n}.get(name, math.inf)
            q, middle = page.candidates(n, label, 5)
            c = page.correlations(q, label)[0]
            assert q.square().mean() == pytest.approx(1)
            assert torch.allclose(c[middle].abs(), torch.full((len(middle),), len(middle) ** -0.5).double())
            assert c.square().sum() == pytest.approx(1)
            plain, pooled = page.questions(n, label, 5)
            everything = page.correlations(pooled, label).square()
            assert torch.allclose(everything.sum(1), torch.ones(len(pooled)).double())
            assert (page.correlations(plain, label).square().sum(1) < 1 + 1e-12).all()
            assert (everything[:, middle].mean(1) <= 1 / len(middle) + 1e-12).all()
            for tau in (0.2, 0.5):
                assert (page.excluded(q, label, middle, tau) < tau**-2).all()
    assert page.without_identity(*page.acting(6)["C"][1:], 3) != pytest.approx(4)


def test_parities_by_hand() -> None:
    """The Walsh transform, and an orbit sum as a function."""
    g = torch.Generator().manual_seed(2)
    q = torch.randn(3, 32, generator=g).double()
    x = 1 - 2 * (torch.arange(32)[:, None] >> torch.arange(5) & 1).double()
    for number in (0, 5, 31):
        places = [i for i in range(5) if number >> i & 1]
        assert torch.allclose(page.walsh(q)[:, number], (q * x[:, places].prod(1)).mean(1))
    ring = page.orbits(5, [torch.arange(5).roll(-1)])
    f = sum(x[:, [i, (i + 1) % 5]].prod(1) for i in range(5)) / 5**0.5
    c = page.correlations(f[None], ring)[0]
    assert float(c[ring[0b00011]]) == pytest.approx(1)
    assert c.square().sum() == pytest.approx(1)


def test_moved_or_turned() -> None:
    """The spectrum by enumeration, the equivalent against draws, its scaling, and augmentation in whole orbits."""
    value, often = page.waves(4, R=40)
    near = value > (1 + 20**2) ** -1.5
    pairs = [(a, b) for a in range(-20, 21) for b in range(-20, 21) if a % 4 == 0 and a * a + b * b < 400]
    assert often[near].sum() == len(pairs)
    assert (value[near] * often[near]).sum() == pytest.approx(sum((1 + a * a + b * b) ** -1.5 for a, b in pairs))
    spectra = {m: page.waves(m) for m in (1, 4, page.CIRCLE)}
    risks = {m: [page.learnt(n, spectra[m]) for n in (1024, 4096, 16384)] for m in spectra}
    assert risks[4][:2] == pytest.approx(risks[1][1:], rel=0.01)
    assert risks[page.CIRCLE][2] < 0.6 * risks[4][2]

    place = np.array([(a, b) for a in range(-24, 25) for b in range(-24, 25)])
    size, j = (1 + (place**2).sum(1)) ** -1.5, np.arange(1, 300)
    rng = np.random.default_rng(3)
    for m in (1, 4, page.CIRCLE):
        keep = place[:, 0] % m == 0
        best = []
        for _ in range(6):
            x = rng.random((700, 2))
            wave = np.exp(2j * np.pi * x @ place[keep].T)
            K = (wave * size[keep] @ wave[:256].conj().T).real
            f = 2**0.5 * np.cos(2 * np.pi * x[:, 1:] * j) @ j**-1.5
            y = f[:256] + 0.5 * rng.standard_normal(256)
            fits = [K[256:] @ np.linalg.solve(K[:256] + lam * np.eye(256), y) for lam in np.geomspace(0.3, 30, 7)]
            best.append([((fit - f[256:]) ** 2).mean() for fit in fits])
        assert np.mean(best, 0).min() == pytest.approx(page.learnt(256, spectra[m]), rel=0.35)

    for own in PAGES.values():
        V = pixels(own.G, 8)
        x = torch.rand(30, 64, generator=torch.Generator().manual_seed(4)).double()
        f, moved = own.layer(x, 5), own.layer(V.apply(own.G.elements()[1], x), 5)
        assert torch.allclose(f.sum(-1), moved.sum(-1))
        assert not torch.allclose(f, moved, atol=1e-3)
        rows = {(kind, n): risk for kind, n, _, risk in own.learn(6)}
        for n in (32, 512):
            assert rows["augmented", n] == pytest.approx(rows["averaged", n], rel=1e-9)
            assert rows["plain", n] > 1.05 * rows["averaged", n]
        assert rows["poses", 1] > rows["poses", 64] > 0.98 * rows["averaged", 64]
