"""The chapter on continuity, ties and noise: what it defines on its page, at other groups and seeds."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic
from tests.chapters import load

CHAPTER = "where_exact_symmetry_bites"
ORDERS = (3, 4, 5, 6, 8)
page = load(CHAPTER, seed=11, seeds=4, steps=200, device="cpu")


def turns(k: int) -> torch.Tensor:
    return planar(Cyclic(k)).matrix(Cyclic(k).elements())


@pytest.mark.parametrize("k", ORDERS)
def test_the_jump_has_a_closed_form(k: int) -> None:
    """The frame average jumps by its limit's difference; the others, and stretched clouds, move in proportion."""
    for s in (3, 17):
        z = page.polygon(k)
        f, e = page.smooth(s, k), page.directions(s, z)
        for eps in (1e-3, 1e-6, 1e-9):
            assert page.formula_gaps(s, z, eps) < 5
            assert page.formula_gaps(s, z, eps, lambda z, e: 1j * e) > 10
        jump = (page.limit(f, z, e)[0] - page.limit(f, z, e)[1]).abs()
        assert torch.allclose(page.gaps(page.pca_mean, s, z, 1e-7), jump, atol=1e-5)
        assert jump.max() > 0.01
        for mean in (page.haar_mean, page.weighted_mean, page.invariant_first):
            assert page.gaps(mean, s, z, 1e-6).max() < 1e-5
        assert page.gaps(page.pca_mean, s, page.polygon(k, 0.5), 1e-6).max() < 1e-5


def test_averages_are_invariant_and_the_frame_is_that_of_the_covariance() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4, 5, dtype=torch.complex128, generator=g)
    f, turn = page.smooth(1, 5), np.exp(0.7j)
    for mean in (page.pca_mean, page.haar_mean, page.weighted_mean, page.equal_mean):
        assert torch.allclose(mean(f, turn * z), mean(f, z))
    assert not torch.allclose(f(turn * z), f(z), atol=1e-3)
    for one in z:
        assert torch.allclose(page.by_hand(f, one), page.pca_mean(f, one))


def test_weights_that_do_not_vanish_leave_a_jump() -> None:
    z = page.polygon(3).repeat(2, 1)
    z[:, 0] = torch.tensor([1e-9, 1e-9j])
    f = page.smooth(2, 3)
    jumps = {mean: (mean(f, z)[0] - mean(f, z)[1]).abs().max() for mean in (page.equal_mean, page.weighted_mean)}
    assert jumps[page.weighted_mean] < 1e-7 < 1e-3 < jumps[page.equal_mean]


@pytest.mark.parametrize("name", ["first", "farthest", "centre", "main_axis"])
def test_every_angle_tears_at_every_resolution(name: str) -> None:
    choice = getattr(page, name)
    for s in (5, 23):
        for rows, columns in ((3, 8), (40, 60)):
            z = page.sheet(s, rows=rows, columns=columns)
            assert torch.allclose(z.norm(dim=-1), torch.ones(rows + 1, columns).double())
            assert torch.allclose(choice(z * 1j), choice(z) * 1j)
            rim, middle, tear = page.torn(choice(z).angle())
            assert (round(rim, 9), middle) == (1, 0)
            assert tear >= 2 * math.pi / 3
    tame = page.torn((2 * z.abs().sum(-1) + page.centre(z)).angle())
    assert round(tame[0], 9) == 0
    assert tame[2] < 1


def test_the_step_of_the_theorem_is_the_best_possible() -> None:
    """One vortex in the middle of one triangle: three equal steps of 2π/3 along it."""
    corners = torch.exp(2j * math.pi * torch.arange(3).double() / 3)
    steps = torch.exp(1j * (corners.roll(-1).angle() - corners.angle())).angle()
    assert torch.allclose(steps, torch.full_like(steps, 2 * math.pi / 3))


def test_orders() -> None:
    assert page.half_turn_step(math.pi / 2) == pytest.approx(2 * math.sqrt(2), abs=1e-4)
    assert page.half_turn_step(0.4) < 1e-4
    for s in (2, 9):
        assert page.stretch_of(page.ordered, s, plane=False) <= 1 + 1e-12
        assert page.stretch_of(page.ordered, s, plane=True) > 2
    z = torch.tensor([2 + 0j, 1 + 5j, 1 - 5j]).to(torch.complex128)
    assert torch.equal(page.ordered(z), z[[2, 1, 0]])


def test_a_walk_meets_a_tear_and_level_poses_do_not_turn() -> None:
    path = page.walk(7, page.farthest)
    assert (path[1:] - path[:-1]).norm(dim=-1).max() < 0.2
    xy = page.level(path, page.farthest(path))
    far = xy.norm(dim=-1).argmax(-1)
    assert xy[torch.arange(len(xy)), far, 1].abs().max() < 1e-12
    turned = page.level(1j * path, page.farthest(1j * path))
    assert torch.allclose(xy, turned)
    assert (xy[1:] - xy[:-1]).flatten(1).norm(dim=-1).max() > 0.3


@pytest.mark.parametrize(("k", "h"), [(3, 3), (4, 2), (6, 3), (8, 1), (8, 8)])
def test_rings_and_their_answers(k: int, h: int) -> None:
    x, law = page.answers(page.rings(k, h, 4))
    assert torch.equal(x.roll(k // h, 1), x)
    assert torch.equal((law > 0).sum(-1), torch.full((6,), h))
    assert torch.allclose(law.sum(-1), torch.ones(6).double())
    marked, one = page.answers(x, 0.3)
    assert torch.allclose((marked - x).flatten(1).norm(dim=-1), torch.full((6,), 0.3).double())
    assert torch.equal((marked - x).flatten(1).count_nonzero(-1), torch.ones(6).long())
    assert torch.equal(one.sum(-1), torch.ones(6).double())
    assert (law[one > 0] > 0).all()


@pytest.mark.parametrize(("k", "h"), [(3, 3), (4, 2), (6, 3), (8, 8)])
def test_no_network_beats_the_price_of_a_tie(k: int, h: int) -> None:
    """Random weights of any size: exact lower bounds, equivariance, and what averaging of probabilities can do."""
    x, law = page.answers(page.rings(k, h, 8))
    for scale in (0.1, 1.0, 30.0):
        w = [scale * v.double() for v in page.start((2 * k, 12, 2 * k), [1, 2])]
        both = [v.expand(2, *v.shape) for v in (x, law)]
        logits = page.posed(w, both[0])
        mean = logits.mean(2)
        assert torch.allclose(page.posed(w, both[0].roll(1, -2)).mean(2), mean.roll(1, -1))
        assert page.fixed_gap([v[:1] for v in w], x[None], h) < 1e-12 * max(1, float(mean.abs().max()))
        cost = page.costs(logits, both[1])
        bound = math.log(h) - 1e-9
        assert (cost["plain"] >= 2 * bound).all()
        assert (cost["naive"] >= 2 * bound).all()
        assert (cost["marginalised"] >= bound).all()
        assert (cost["one answer"] >= bound).all()
        assert (cost["best element"] <= cost["naive"] + 1e-12).all()


@pytest.mark.parametrize("k", ORDERS)
def test_perfect_and_blind_networks_attain_the_prices(k: int) -> None:
    for h in (d for d in range(1, k + 1) if k % d == 0):
        x, law = page.answers(page.rings(k, h, 6))
        cost = page.costs(page.posed(page.blind(k), x[None]), law[None])
        assert float(cost["marginalised"]) == pytest.approx(math.log(k))
        assert float(cost["naive"]) > 10
        sure = torch.full((1, 6, k, 2, k), -60.0).double()  # f(x, g) names one of the tied beads: the g-th
        for b, row in enumerate(law):
            tied = row.nonzero()[:, 0]
            for g in range(k):
                sure[0, b, g, 0, tied[g % h]] = sure[0, b, g, 1, (tied[g % h] + 1) % k] = 60
        cost = page.costs(sure, law[None])
        assert float(cost["marginalised"]) == pytest.approx(math.log(h), abs=1e-9)
        assert float(cost["one answer"]) == pytest.approx(math.log(h), abs=1e-9)
        assert float(cost["best element"]) == pytest.approx(0, abs=1e-9)


def test_training_attains_the_prices() -> None:
    cases = [(m, h) for m in page.MODELS for h in (1, 3)]
    x, law = (torch.stack(v) for v in zip(*[page.answers(page.rings(3, h, 5)) for _, h in cases], strict=True))
    _, history = page.fit([m for m, _ in cases], [5] * len(cases), x, law, (0, 200))
    for i, (model, h) in enumerate(cases):
        price = math.log(h) * (1 if model == "marginalised" else 2)
        assert float(history[200][model][i]) == pytest.approx(price, abs=0.01)
        assert float(history[0][model][i]) > price + 0.01 or h == 3


def test_the_floor_of_a_needle_holds_for_any_weights() -> None:
    for k, a, scale in ((3, 0.1, 1.0), (4, 0.02, 4.0), (8, 0.5, 0.3)):
        x, law = page.answers(page.rings(k, k, 3, 1), a)
        w = [scale * v.double() for v in page.start((2 * k, 16, 2 * k), [7])]
        cost = page.costs(page.posed(w, x[None]), law[None])["plain"]
        assert cost >= page.floor(a, page.steepness(w), k) - 1e-12


@pytest.mark.parametrize("k", ORDERS)
def test_exact_fields_and_their_noise(k: int) -> None:
    G = turns(k)
    c, alone = page.law_centres(13, G), page.law_centres(13, G[:1])
    assert page.commutes(13, c, G[1]) < 1e-10
    assert page.commutes(13, alone, G[1]) > 0.1
    ends = page.flow(page.velocity, page.noises(13), c)[-1]
    p = page.p_values(ends, G[1], 13)
    assert p[0] > 0.005
    assert (p[1:] <= 0.05).all()


def test_velocities_are_conditional_means() -> None:
    """Against a Monte Carlo mean of x₁ − z near a point, for round and for oval noise."""
    g = torch.Generator().manual_seed(3)
    c = torch.tensor([[1.0, 0.0], [-0.5, 1.0], [0.3, -1.2]]).double()
    x1 = c[torch.randint(3, (2_000_000,), generator=g)]
    x1 = x1 + 0.3 * torch.randn(len(x1), 2, dtype=torch.float64, generator=g)
    z = torch.randn(len(x1), 2, dtype=torch.float64, generator=g)
    at, t = torch.tensor([[0.4, 0.2]]).double(), 0.6
    for spread in (torch.ones(2).double(), torch.tensor([1.6, 0.5]).double()):
        noise = z * spread
        near = ((1 - t) * noise + t * x1 - at).norm(dim=-1) < 0.05
        mean = (x1 - noise)[near].mean(0)
        assert torch.allclose(page.oval_velocity(at, t, c, spread)[0], mean, atol=0.06)
    assert torch.allclose(page.velocity(at, t, c), page.oval_velocity(at, t, c, torch.ones(2).double()))


def test_an_exact_flow_arrives_at_its_law() -> None:
    c = page.law_centres(2, turns(4))
    ends = page.flow(page.velocity, page.noises(2, 4000)[:1], c)[-1]
    assert float(page.mmd2(ends[:, :2000], c)) == pytest.approx(0, abs=2e-3)
    assert float(page.mmd2(page.noises(2, 2000)[:1], c)) > 0.01


def test_denoisers_of_symmetric_laws_are_equivariant() -> None:
    def shifts(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.unflatten(-1, (8, 8)).roll(j, -1).flatten(-2) for j in range(8)])

    symmetric, upright = page.denoiser_gaps(19, 0.5, shifts, size=60)
    assert symmetric < 1e-12 < 0.1 < upright
    points = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    assert torch.allclose(page.denoise(points, points, 1e-2), points)
    assert torch.allclose(page.denoise(points, points, 1e3), torch.full_like(points, 0.5), atol=1e-5)


def test_mmd_is_unbiased_and_that_of_a_large_sample() -> None:
    G = turns(3)
    x = torch.stack([page.sample(s, 50, G) for s in range(300)])
    values = page.mmd2(x, page.wells(G))
    assert abs(float(values.mean())) < 4 * float(values.std()) / 300**0.5
    far = page.mmd2(x + 1, page.wells(G)).mean()
    big = page.sample(7, 4000, G).double()
    exact = page.mmd_of_laws(x.double().flatten(0, 1)[:4000] + 1, big)
    assert float(far) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("k", [3, 8])
def test_averaged_fields_are_equivariant_and_plain_ones_are_not(k: int) -> None:
    G = turns(k).float()
    w = page.start((3, 16, 16, 2), [4, 5])
    assert page.field_gap(w, G, G, 1).max() < 1e-5
    assert page.field_gap(w, G[:1], G, 1).min() > 1e-2


def test_flow_matching_learns_and_symmetry_helps() -> None:
    """Two seeds of forty points: both models leave the noise behind, the averaged one comes nearer."""
    G, nets = turns(4).float(), [41, 42]
    points = torch.stack([page.sample(s, 40, G) for s in nets])
    counts = torch.tensor([40, 40])
    score = {}
    for name, group in (("plain", G[:1]), ("equivariant", G)):
        w = page.match(points, counts, nets, group)
        made = page.generate(w, group, nets)
        assert torch.equal(made, page.generate(w, group, nets))
        score[name] = float(page.mmd2(made, page.wells(turns(4))).mean())
    start = page.generate(page.start((3, 32, 32, 2), nets), G, nets)
    assert score["equivariant"] < score["plain"] < float(page.mmd2(start, page.wells(turns(4))).mean())


def test_draws_depend_on_their_seed_alone() -> None:
    a, b = page.draws([1, 2], 3, 4), page.draws([2], 3, 4)
    assert torch.equal(a[:, 1], b[:, 0])
    assert ((a[..., 2:] >= 0) & (a[..., 2:] < 1)).all()


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "C2", "seeds": 1, "seed": -1, "steps": 3, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})


def test_definitions_for_another_group() -> None:
    other: SimpleNamespace = load(CHAPTER, group="C5")
    assert other.k == 5
    assert other.independent == list(range(10))
