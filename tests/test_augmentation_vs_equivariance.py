"""The chapter on augmentation: what it defines on its page, at other groups and seeds and on broken inputs."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.augmentation import risks
from lib.augmentation.augmented_descent import NOMINAL, Task, augmented, forecast, train
from lib.augmentation.networks import IMAGE_GROUPS, classifier_network, image_representation
from lib.augmentation.sampling_laws import haar, published
from lib.symmetry.actions import motions, natural, pixels, translations
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Symmetric
from lib.symmetry.haar import OrbitMean
from lib.symmetry.own_groups import named
from tests.chapters import load

CHAPTER = "augmentation_vs_equivariance"


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load(CHAPTER, seed=3, seeds=2, starts=20)


@pytest.fixture(scope="module")
def tiny() -> dict[str, Task]:
    """Digits of 4 × 4 pixels under each of the four groups."""
    data = load(CHAPTER).digit_images(20, 4, 1)
    return {g: Task(classifier_network(g, 4, 3), *data, batch=5) for g in IMAGE_GROUPS}


# --- the network that is written out


@pytest.mark.parametrize("group", ["C3", "D3", "Q8", "C7:C3"])
def test_matrices_of_the_action_are_a_representation(page: SimpleNamespace, group: str) -> None:
    G = named(group)
    rho, g = page.actions(G), G.elements()
    product = G.index(G.multiply(g[:, None], g[None]))
    for V in rho:
        assert torch.equal(V[:, None] @ V[None], V[product])
    layers = page.problem(5, rho)[2]
    assert page.off(layers, rho).max() < 1e-14
    pushed = [A + 0.1 for A in page.problem(6, rho)[2]]
    pushed[0][:, 0, 0] += 1
    assert page.off(pushed, rho).min() > 0.1
    assert page.off(page.project(pushed, rho), rho).max() < 1e-13


@pytest.mark.parametrize("group", ["C5", "D4", "A4"])
def test_the_written_network_is_that_of_lib(page: SimpleNamespace, group: str) -> None:
    G = named(group)
    rho = page.actions(G)
    x, y, start = page.problem(7, rho)
    V = page.DirectSum(page.regular(G), page.regular(G))
    risk = page.small_risks(V, V, page.trivial(G), x=x, y=y)
    away = [A + 0.1 * torch.randn(A.shape, generator=torch.Generator().manual_seed(0)).double() for A in start]
    for layers in (start, away):
        assert torch.allclose(risks.gradient(risk.nominal, page.flat(layers)), page.flat(page.slope(layers, x, y)))
        assert torch.allclose(risk.project(page.flat(layers)), page.flat(page.project(layers, rho)))
        everything = (x @ rho[0].mT).flatten(0, 1), y.repeat(G.order)
        assert torch.allclose(
            risks.gradient(risk.augmented, page.flat(layers)), page.flat(page.slope(layers, *everything))
        )


@pytest.mark.parametrize("group", ["C4", "S3"])
def test_the_whole_group_and_equivariant_layers_end_at_one_network(page: SimpleNamespace, group: str) -> None:
    rho = page.actions(named(group))
    x, y, start = page.problem(8, rho)
    everything = (x @ rho[0].mT).flatten(0, 1), y.repeat(len(rho[0]))
    whole = page.descend(start, lambda: everything, rho)[-1]
    projected = page.descend(start, lambda: (x, y), rho, equivariant=True)[-1]
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(whole, projected, strict=True))
    assert page.off(page.descend(start, lambda: (x, y), rho)[-1], rho).min() > 1e-3


def test_two_terms_of_the_ratio_of_fair_draws() -> None:
    """All sequences of two elements, equally likely: the mean square has no chance, and the second term is exact."""
    page = load(CHAPTER, seed=5, starts=20)
    rho = page.actions(named("C3"))
    x, y, start = page.problem(9, rho)
    V = page.DirectSum(page.regular(named("C3")), page.regular(named("C3")))
    risk = page.small_risks(V, V, page.trivial(named("C3")), x=x, y=y)
    w = risk.outside(page.flat(page.slope(start, x, y)))
    bent = [risks.hessian_product(f, page.flat(start), w) for f in (risk.nominal, risk.augmented)]
    kappa = (w * (bent[0] - bent[1])).sum(-1) / w.square().sum(-1)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    growth = []
    for rate in (1e-4, 2e-4):
        plain = page.off(page.descend(start, lambda: (x, y), rho, False, 2, rate)[-1], rho)
        ends = []
        for pair in pairs:
            images = iter([(x @ rho[0][g].mT, y) for g in pair])
            ends.append(page.off(page.descend(start, lambda it=images: next(it), rho, False, 2, rate)[-1], rho))
        square = torch.stack(ends).square().mean(0) / plain.square()
        growth.append((2 * square - 1) / rate)
    assert torch.allclose(2 * growth[0] - growth[1], kappa, rtol=1e-3, atol=1e-4)


def test_square_ratio_of_unfair_draws(page: SimpleNamespace) -> None:
    rho = page.actions(named("C4"))
    x, y, start = page.problem(10, rho)
    law = torch.tensor([0.4, 0.4, 0.2, 0.0], dtype=torch.float64)
    bias = page.bias_of(law, start, x, y, rho)
    assert torch.allclose(page.measured_bias(law, start, x, y, rho), bias, rtol=1e-6)
    found = page.square_ratio(law, start, x, y, rho, 1e-6, torch.Generator().manual_seed(0), 4, 1000)
    assert torch.allclose(found, bias**2 + (1 - bias**2) / 4, rtol=0.15)


# --- A1, A2


@pytest.mark.parametrize("name", ["perm", "rot", "row shifts", "translations", "motions"])
def test_gradients_agree_on_e(page: SimpleNamespace, name: str) -> None:
    assert page.largest_gap(page.toy(name, 11), 11) < 1e-11
    task = page.toy(name, 11)
    law = haar(task.network.architecture.group)
    maps = task.network.embed(task.network.start(1, 11, torch.float64))
    assert max(float(a.abs().max()) for a in page.three_gradients(task, maps, law)[2]) > 1e-3


@pytest.mark.parametrize("name", ["rot", "row shifts"])
def test_gradients_disagree_without_the_assumptions(page: SimpleNamespace, name: str) -> None:
    task = page.toy(name, 0)
    sampler = "rotations" if name == "rot" else name
    assert page.largest_gap(page.toy(name, 0, activation=page.uneven), 0) > 1e-3
    assert page.largest_gap(task, 0, push=0.1) > 1e-3
    assert page.largest_gap(task, 0, published(sampler, task.network.architecture.group, 8)) > 1e-3


@pytest.mark.parametrize("name", ["perm", "rot", "row shifts"])
def test_flow_stays_in_e(page: SimpleNamespace, name: str) -> None:
    for seed in (0, 7000):
        task = page.toy(name, seed, side=4, count=8)
        law = haar(task.network.architecture.group)
        assert float(page.pushes(task, seed, law, 40, page.RATES[name], 2).max()) < 1e-13
        assert float(page.pushes(task, seed, None, 20, page.RATES[name], 2)[-1].min()) > 1e-3


def test_rounding_may_leave_e_where_the_flow_is_unstable(page: SimpleNamespace) -> None:
    """A start at which 10⁻¹⁷ grows a thousandfold and more, while no step leads out of E by more than rounding."""
    task = page.toy("row shifts", 7000, side=4, count=8)
    law = haar(task.network.architecture.group)
    free = train(task, task.network.start(3, 7000, torch.float64), augmented(law), 60, 0.005).drift
    assert float(free[-1].max()) > 1e3 * float(page.pushes(task, 7000, law, 60, 0.005).max())


@pytest.mark.parametrize("space", ["C4", "Q8", "S3 on three points"])
def test_stationary_points_are_shared(page: SimpleNamespace, space: str) -> None:
    V = natural(Symmetric(3)) if "points" in space else page.regular(named(space))
    for seed in (1, 6, 1002):
        for equivariant, whole, nominal in page.stationary_points(V, seed):
            assert max(float(equivariant.norm()), float(whole.norm())) < 1e-12
            assert float(nominal.norm()) > 1e-2


# --- the laws of the samplers


@pytest.mark.parametrize("side", [4, 6])
def test_executed_samplers_have_the_laws_of_lib(page: SimpleNamespace, side: int) -> None:
    V, H = image_representation("rotations", side), image_representation("row shifts", side)
    for shape, name in (((side, side), "rotations"), ((1, side * side), "flattened rotations")):
        law = page.executed(page.authors_turn, V, shape, 5)
        assert torch.allclose(published(name, V.group, side).listed()[1], law, atol=1e-15)
        assert torch.allclose(page.executed(page.fair_turn, V, shape, 4), torch.full((4,), 0.25).double())
    law = page.executed(page.authors_shift, H, (side, side), side + 1)
    assert torch.allclose(published("row shifts", H.group, side).listed()[1], law, atol=1e-15)
    with pytest.raises(AssertionError):
        page.executed(lambda image, r: image.flip(-1), V, (side, side), 1)  # a mirror is no turn


def test_published_motions_are_a_shift_and_then_a_turn(page: SimpleNamespace) -> None:
    n = 4
    V, image = pixels(motions(n), n), torch.arange(16).double()
    seen: dict[tuple, float] = {}
    for a in range(n + 1):
        for b in range(n + 1):
            for r in range(5):
                moved = page.authors_turn(torch.roll(image.reshape(n, n), (a, b), (0, 1)), r)
                key = tuple(moved.flatten().tolist())
                seen[key] = seen.get(key, 0.0) + 1 / 125
    elements, weights = published("motions", V.group, n).listed()
    ours: dict[tuple, float] = {}
    for g, w in zip(elements, weights.tolist(), strict=True):
        key = tuple(V.apply(g, image).tolist())
        ours[key] = ours.get(key, 0.0) + w
    assert {k: round(v, 12) for k, v in ours.items() if v} == {k: round(v, 12) for k, v in seen.items()}


def test_laws_sample_what_they_list() -> None:
    law = published("motions", motions(4), 4)
    elements, weights = law.listed()
    expected = torch.zeros(law.group.order, dtype=torch.float64).index_add(0, law.group.index(elements), weights)
    drawn = law.group.index(law.sample(40_000, torch.Generator().manual_seed(0))).bincount(minlength=law.group.order)
    error = (expected * (1 - expected) / 40_000).sqrt()
    assert bool(((drawn / 40_000 - expected).abs() <= 4.5 * error + 1e-12).all())


def test_average_over_a_law(page: SimpleNamespace) -> None:
    V = pixels(translations(4), 4)
    H = Hom(V, V)
    x = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(haar(V.group).average(H, x), OrbitMean(H)(x), atol=1e-12)
    law = published("translations", V.group, 4)
    direct = sum(w * H.apply(g, x) for g, w in zip(law.listed()[0], law.listed()[1].tolist(), strict=True))
    assert torch.allclose(law.average(H, x), direct, atol=1e-12)
    assert torch.allclose(page.mixture(V.group, 0.3).average(H, x), 0.7 * OrbitMean(H)(x) + 0.3 * x, atol=1e-12)
    with pytest.raises(ValueError, match="weights must hold nonnegative"):
        page.mixture(V.group, 1.5)


# --- A6, A7


def test_prediction_of_the_bias_is_the_first_exact_step(page: SimpleNamespace, tiny: dict[str, Task]) -> None:
    """One step of the exact average over ν, against the norm of (Π_ν − Π)∇R computed on the layers."""
    for group, task in tiny.items():
        start = task.network.start(3, 0, torch.float64)
        H = task.network.architecture.group
        for law in (published(group, H, 4), page.mixture(H, 0.3)):
            step = [train(task, start, how, 1, 1e-3) for how in (augmented(law), NOMINAL)]
            bias, _, slope = forecast(task, start, law)
            assert torch.allclose(bias, step[0].drift[-1] / step[1].drift[-1], rtol=1e-7)
            assert torch.allclose(1e-3 * slope, step[1].drift[-1], rtol=1e-7)
        assert torch.allclose(bias, torch.full((3,), 0.3, dtype=torch.float64), rtol=1e-6)  # whatever the dimension
        assert float(forecast(task, start, haar(H))[0].max()) == 0
    bias = forecast(tiny["row shifts"], start := tiny["row shifts"].network.start(3, 0, torch.float64),
                    published("row shifts", tiny["row shifts"].network.architecture.group, 4))[0]  # fmt: skip
    assert torch.allclose(bias, torch.full((len(start[0]),), 1 / 5, dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize("kind", ["haar", "published"])
def test_prediction_of_the_noise(tiny: dict[str, Task], kind: str) -> None:
    """The mean square of (1 − Π) of the sampled gradient over many draws, against the formula."""
    task, runs = tiny["rotations"], 2000
    H = task.network.architecture.group
    law = haar(H) if kind == "haar" else published("rotations", H, 4)
    one = task.network.start(1, 0, torch.float64)
    start = [s.expand(runs, *s.shape[1:]) for s in one]
    drift = train(task, start, augmented(law, 2), 1, 1e-6, seed=3, runs_at_once=500).drift[-1]
    square = (drift / train(task, one, NOMINAL, 1, 1e-6).drift[-1]).square()
    bias, noise, _ = forecast(task, one, law)
    assert abs(float(square.mean()) - float(bias**2 + noise**2 / 2)) < 4.5 * float(square.std()) / runs**0.5


def test_panel_orders_the_strategies(page: SimpleNamespace) -> None:
    H = page.task_for("Rot", 0).network.architecture.group
    law = published("flattened rotations", H, 8)
    strategies = {
        "nominal": NOMINAL,
        "equivariant": page.EQUIVARIANT,
        "whole": augmented(haar(H)),
        "fair": augmented(haar(H), 8),
        "authors'": augmented(law, 8),
    }
    drift = {k: page.follow("Rot", how, 4, 3)[1] for k, how in strategies.items()}
    ratio = {k: v[-1] / drift["nominal"][-1] for k, v in drift.items()}
    assert float(drift["equivariant"].max()) == 0.0
    assert float(ratio["whole"].max()) < 1e-4
    assert float(ratio["fair"].max()) < float(ratio["authors'"].min()) < 1
    foretold = page.foretell("Rot", law, 4, passes=8, epochs=3)[0]
    assert float(page.rms(ratio["authors'"] / foretold)) == pytest.approx(1, abs=0.15)


def test_seeds_reach_data_starts_and_sampling() -> None:
    pages = [load(CHAPTER, seed=seed, seeds=2, starts=20) for seed in (0, 1)]
    for how in (NOMINAL, augmented(haar(translations(8)), 2)):
        one, other = (p.follow("Trans", how, 2, 1) for p in pages)
        assert one.shape == (2, 2, 2)
        assert not torch.equal(one, other)
    runs = [task.network.start(1, s)[0] for s, task, _ in pages[0].cases("Trans", 4)]
    assert not torch.equal(*runs)


def test_digits_of_successive_seeds_do_not_overlap_and_wrap_around(page: SimpleNamespace) -> None:
    first, second = (page.digit_images(100, 8, seed)[0] for seed in (0, 1))
    assert torch.equal(torch.cat([first, second]), page.digit_images(200, 8, 0)[0])
    assert torch.equal(page.digit_images(1797, 8, 1)[0], page.digit_images(1797, 8, 0)[0])


def test_exponent_recovers_a_power_law(page: SimpleNamespace) -> None:
    """Drifts that are exactly c/√(passes · epochs) of the nominal one, times noise per start."""
    generator = torch.Generator().manual_seed(0)
    epochs = torch.arange(13.0, dtype=torch.float64)[:, None]
    spread = 1 + 0.1 * torch.randn(1, 8, generator=generator, dtype=torch.float64)
    names = {25: "Haar", 5: "Haar, 5 passes", 1: "Haar, 1 pass"}
    panel = {"nominal": epochs.expand(2, 13, 8)}
    found = page.exponent(panel | {k: ((epochs / p).sqrt() * spread).expand(2, 13, 8) for p, k in names.items()})
    assert found[0] == pytest.approx(-0.5, abs=1e-12)
    assert page.miss(found) < 1e-12
    flat = page.exponent(panel | {k: (0.1 * epochs * spread).expand(2, 13, 8) for k in names.values()})
    assert page.miss(flat) > 0.4
    assert page.miss((0.0, -0.6, -0.55)) == pytest.approx(0.05)


def test_intervals_of_the_exponent_cover_it(page: SimpleNamespace) -> None:
    """Independent draws in three dimensions per pass and epoch, which is how sampling noise behaves."""
    rng, missed = np.random.default_rng(0), 0
    panel = {"nominal": torch.arange(9.0, dtype=torch.float64)[:, None].expand(2, 9, 30)}
    for _ in range(100):
        for passes, name in ((25, "Haar"), (5, "Haar, 5 passes"), (1, "Haar, 1 pass")):
            steps = rng.standard_normal((8, 30, 3)) / math.sqrt(passes)
            path = np.linalg.norm(np.concatenate([np.zeros((1, 30, 3)), steps.cumsum(0)]), axis=-1)
            panel[name] = torch.tensor(path).expand(2, 9, 30)
        missed += page.miss(page.exponent(panel, level=0.95)) > 0
    assert missed <= 13


def test_a_row_of_the_four_groups(page: SimpleNamespace) -> None:
    """Walks with the bias and the noise that the forecast is told have ratio and error as they should."""
    g = torch.Generator().manual_seed(1)
    steps = 0.3 * torch.tensor([1.0, 0, 0]) + 0.5 / math.sqrt(3 * 10) * torch.randn(4, 3000, 3, generator=g)
    far = torch.cat([torch.zeros(1, 3000), steps.cumsum(0).norm(dim=-1)])
    near = torch.arange(5.0)[:, None].expand(5, 3000)
    row = page.compare(far, near, torch.full((3000,), 0.3), torch.full((3000,), 0.5), 10)
    assert row["measured"] == pytest.approx(row["forecast"], rel=0.03)
    assert abs(row["error"]) < 4 * row["s.e."] < 0.04
    wrong = page.compare(far, near, torch.zeros(3000), torch.full((3000,), 0.5), 10)
    assert wrong["error"] > 1


# --- exercises and parameters


@pytest.mark.parametrize("group", ["S3", "C2xC4"])
def test_the_missing_line_of_a_layer(page: SimpleNamespace, group: str) -> None:
    G = named(group)
    kernel = torch.randn(G.order, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P = page.actions(G, rings=1)
    W = page.equivariant_layer(kernel, G)
    assert torch.allclose(P[0] @ W @ P[0].mT, W)
    assert W.unique().numel() == G.order


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "E8", "seeds": 1, "seed": -1, "starts": 3, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})
    assert Cyclic(4).order == len(load(CHAPTER, group="C4").actions(named("C4"))[0])
