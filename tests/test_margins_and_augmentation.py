"""Chapter *Margins and augmentation*: what its page defines, its theorems by other routes, controls that must fail."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from lib.implicit_bias.margins import NotSeparable, angle, invariant_max_margin, max_margin, one_minus_cosine
from lib.symmetry.actions import pixels, planar, regular
from lib.symmetry.groups import Cyclic, Dihedral
from lib.symmetry.haar import projection
from lib.symmetry.own_groups import named
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("margins_and_augmentation", seed=2, seeds=1)


def relative_error(row: dict[str, float]) -> float:
    return abs(row["measured"] / row["predicted"] - 1)


# --- by hand ---


def test_the_program_by_hand_finds_the_largest_margin(page: SimpleNamespace) -> None:
    V = pixels(Cyclic(4), 8)
    x, y = page.drawn(*page.digit_pair(0, 1), 20, 5)
    assert torch.allclose(page.hard_margin(x, y), max_margin(x, y).vector, atol=1e-4)
    fixed = torch.eye(64, dtype=torch.float64) - V.matrix(V.group.generators()[0]).mT
    assert torch.allclose(page.hard_margin(x, y, fixed), invariant_max_margin(x, y, V).vector, atol=1e-4)


def test_turned_images_are_the_orbit(page: SimpleNamespace) -> None:
    V = pixels(Cyclic(4), 8)
    x, y = page.drawn(*page.digit_pair(0, 1), 3, 5)
    by_hand, labels = page.turned(x, y, range(4))
    by_action, same = page.augmented(x, y, V, V.group.elements())
    assert {tuple(p) for p in by_hand.tolist()} == {tuple(p) for p in by_action.tolist()}
    assert torch.equal(labels, same)


@pytest.mark.parametrize("projected", [False, True])
def test_the_loop_descends_along_the_gradient(page: SimpleNamespace, projected: bool) -> None:
    """One step against automatic differentiation of the logarithm of the loss, in W P and in w."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(5, 4, dtype=torch.float64, generator=g), torch.tensor([1.0, 1, -1, -1, 1]).double()
    P = torch.full((4, 4), 0.25, dtype=torch.float64) if projected else torch.eye(4, dtype=torch.float64)
    first, second = page.descend(x, y, P, 2, 7, rate=0.1)
    start = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    W, w = start[:, :-1] @ P / 8, start[:, -1]

    def loss(W: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(-y * (x @ (P @ W.T @ w)), 0)

    by_W, by_w = torch.func.grad(loss, (0, 1))(W, w)
    assert torch.allclose(first, W.T @ w)
    assert torch.allclose(second, (W - 0.1 * by_W).T @ (w - 0.1 * by_w))


# --- B9 and B10 ---

CASES = [("A4", 5)]


@pytest.fixture(scope="module", params=CASES, ids=[name for name, _ in CASES])
def problem(page: SimpleNamespace, request: pytest.FixtureRequest) -> tuple:
    name, s = request.param
    return *page.signals(named(name), 10, s), s


@pytest.fixture(scope="module")
def routes(page: SimpleNamespace, problem: tuple) -> dict[str, float]:
    return page.distances(*page.four_routes(*problem))


def test_steerable_networks_find_the_invariant_margin(routes: dict[str, float]) -> None:
    assert routes["programs"] < 1e-10
    assert routes["violated"] < 1e-10
    assert routes["steerable"] < 1e-6


def test_augmented_networks_find_it_too(routes: dict[str, float]) -> None:
    assert routes["networks"] < 1e-6
    assert routes["flow to flow"] < 1e-2


def test_knowing_a_part_of_the_group_is_not_enough(page: SimpleNamespace, problem: tuple) -> None:
    V, x, y, s = problem
    few = torch.stack([V.group.identity(), V.group.generators()[0]])
    wrong = page.four_routes(V, x, y, s, page.restricted(V), few)
    found = page.distances(*wrong)
    assert found["programs"] > 0.05
    assert found["steerable"] > 1e-3
    assert one_minus_cosine(wrong[3].direction, wrong[1].direction) > 1e-3


@pytest.mark.parametrize(("name", "order"), [("C4", 2), ("D5", 2), ("C7:C3", 3), ("C9", 3)])
def test_restrictions_are_to_subgroups(page: SimpleNamespace, name: str, order: int) -> None:
    part = page.restricted(regular(named(name)))
    assert part.group.order == order
    assert projection(part).rank == named(name).order // order


def test_signals_have_an_invariant_label(page: SimpleNamespace) -> None:
    V, x, y = page.signals(named("D4"), 30, 3)
    average = projection(V)(x)
    assert max_margin(average, y).margin > 0.29
    assert (average.norm(dim=1) < x.norm(dim=1)).all()


def test_convergence_is_slower_in_deeper_networks(page: SimpleNamespace) -> None:
    """1 − cos falls like T^{−2/L}, and the continuation takes it down to the smoothing 1/T."""
    x, y = page.drawn(*page.digit_pair(0, 8), 12, 0)
    for depth in (2, 3):
        scale, error, _, rest = page.convergence(depth, pixels(Cyclic(4), 8), x, y, 0)
        late = scale > 1e4
        slope = np.polyfit(scale[late].log().numpy(), error[late].log().numpy(), 1)[0]
        assert slope == pytest.approx(-2 / depth, abs=0.05)
        assert rest[-1] < 1e-10


def test_how_many_pairs_have_an_invariant_classifier(page: SimpleNamespace) -> None:
    quarter, square = (page.invariantly_separable(pixels(G, 8)) for G in (Cyclic(4), Dihedral(4)))
    assert sum(s.separable for s in quarter.values()) == 28
    assert sum(s.separable for s in square.values()) == 15
    assert all(quarter[pair].separable for pair, s in square.items() if s.separable)  # D4 asks for more than C4
    x, y = page.digit_pair(6, 9)
    mean = torch.stack([torch.rot90(x.unflatten(1, (8, 8)), k, (1, 2)) for k in range(4)]).mean(0).flatten(1)
    alpha = quarter[6, 9].multipliers
    assert ((alpha * y) @ mean).norm() < 1e-10
    assert alpha.sum() == pytest.approx(1)
    with pytest.raises(NotSeparable):
        max_margin(mean, y)
    assert max_margin(x, y).margin > 0.05  # without symmetry the two are separable


# --- B11 ---


def test_part_of_the_group(page: SimpleNamespace) -> None:
    G = named("Q8")
    for k in (1, G.order // 2):
        row = page.part_of_the_group(G, k, 1)
        assert row["predicted"] == pytest.approx(math.acos(math.sqrt(k / G.order)))
        assert relative_error(row) < 1e-5
    assert relative_error(page.part_of_the_group(G, 1, 1, tilt=0.5)) > 0.02


def test_angles_have_their_closed_forms(page: SimpleNamespace) -> None:
    rows = [page.part_of_the_group(Cyclic(4), 2, 3), page.not_unitary(2.0, 3)]
    rows += [page.not_orthonormal(3), page.not_linear(3)]
    expected = [math.pi / 4, math.atan(1), 0.2517, math.acos(math.sqrt(2 / 3))]
    assert np.allclose([row["predicted"] for row in rows], expected, atol=1e-4)
    assert max(map(relative_error, rows)) < 1e-3
    broken = [page.not_unitary(1.0, 3, tilt=0.5), page.not_orthonormal(3, tilt=1.0), page.not_linear(3, turns=2)]
    assert min(map(relative_error, broken)) > 0.05


def test_angles_vanish_when_the_condition_holds(page: SimpleNamespace) -> None:
    rows = [page.part_of_the_group(Dihedral(3), 6, 1), page.not_unitary(0.0, 1)]
    assert max(row["measured"] for row in rows) < 1e-3


def test_angles_on_digits_are_those_of_two_margins(page: SimpleNamespace) -> None:
    C4, D4 = (pixels(G, 8) for G in (Cyclic(4), Dihedral(4)))
    for row in (page.part_on_digits(C4, C4.group.elements()[::2], 1), page.tied_on_digits(D4, 1)):
        assert row["predicted"] > 0.02
        assert relative_error(row) < 0.01


@pytest.mark.parametrize("copies", [0, 2])
def test_without_unitarity_training_finds_the_invariant_margin(page: SimpleNamespace, copies: int) -> None:
    end, limit, other = page.three_reflections(copies, 1)
    assert one_minus_cosine(end, limit) < 1e-8
    assert angle(end, other) > 0.01
    with pytest.raises(ValueError, match="unitary"):
        page.steerable_network([page.slanted(1.0)])


@pytest.mark.parametrize(("kind", "count"), [("square", 2), ("relu", 6)])
def test_neurons_reach_the_largest_margin(page: SimpleNamespace, kind: str, count: int) -> None:
    best = {"square": (1 / 27**0.5, 0.5 / 27**0.5), "relu": (1 / 32**0.5, 1 / 32**0.5)}[kind]
    ends = page.two_layers(kind, 1, count, 4)
    assert np.allclose([float(net.predictor(end.parameters).min()) for net, end in ends], best, rtol=1e-4)


def test_best_margins_by_linear_programming() -> None:
    """Over a fine grid of unit vectors the largest margin of convex combinations of neurons is a linear program."""
    turn = np.arange(400) * 2 * np.pi / 400
    orbit = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    values = np.maximum(orbit @ np.array([np.cos(turn), np.sin(turn)]), 0)  # (4, 400)
    cost = linprog(np.ones(400), A_ub=-values, b_ub=-np.ones(4)).fun  # Σ |a_j|‖v_j‖ = ‖w‖²/2 when balanced
    assert 1 / (2 * cost) == pytest.approx(1 / (4 * math.sqrt(2)), rel=1e-6)
    mean = values.mean(0)[None]  # the invariant network: one constraint
    assert linprog(np.ones(400), A_ub=-mean, b_ub=-np.ones(1)).fun == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize(("kind", "degree"), [("square", 3), ("relu", 2)])
def test_neurons_are_invariant_and_know_their_derivatives(page: SimpleNamespace, kind: str, degree: int) -> None:
    V, g = planar(Cyclic(4)), torch.Generator().manual_seed(0)
    x = torch.randn(5, 2, generator=g, dtype=torch.float64)
    net = page.Neurons(kind, x, 3, V.matrix(V.group.elements()))
    w, q = torch.randn(9, generator=g, dtype=torch.float64), torch.randn(5, generator=g, dtype=torch.float64)
    assert torch.allclose(net.values(w, V.apply(torch.tensor([1]), x)), net.values(w, x))
    assert torch.allclose(net.predictor(2 * w), 2**degree * net.predictor(w))
    step = 1e-6 * torch.eye(9, dtype=torch.float64)
    assert torch.allclose(net.jacobian(w).T, (net.predictor(w + step) - net.predictor(w - step)) / 2e-6, atol=1e-7)
    assert torch.allclose(net.vjp(w)[1](q), torch.func.grad(lambda u: q @ net.predictor(u))(w))
    assert torch.allclose(net.hessian(w, q), torch.func.hessian(lambda u: q @ net.predictor(u))(w))
    v, a = w[:6].reshape(3, 2), w[6:]
    plain = page.Neurons(kind, x, 3, torch.eye(2, dtype=torch.float64)[None])
    assert torch.allclose(plain.predictor(w), page.activation(kind, x @ v.T) @ a)


# --- B12 ---


def test_bounds_are_never_violated(page: SimpleNamespace) -> None:
    for law in (page.signal_law(60.0, 3), page.signal_law(8.0, 3), page.digit_law(pixels(Cyclic(4), 8))):
        found, n = page.errors(law, [8, 32, 128], 3, 3), np.array([8, 32, 128])
        for j, invariant in enumerate((True, False)):
            assert (found[..., j] <= law.bound(n, invariant)[:, None]).all()
        assert (law.bound(n, True) < law.bound(n, False)).all()
        assert found[..., 0].mean() < found[..., 1].mean()


def test_the_bound_by_the_mean_square_is_the_bound_where_all_lengths_are_one(page: SimpleNamespace) -> None:
    points, beta, n = torch.eye(5).double(), torch.full((5,), 0.6).double(), np.array([10, 1000])
    law = page.Law(None, None, beta, 1.0, 0.5, ())
    assert page.by_mean_square(points, beta, n) == pytest.approx(law.bound(n, False), rel=1e-12)
    assert (page.by_mean_square(points / 2, beta, n) < law.bound(n, False)).all()


def test_the_wrong_radius_and_the_wrong_law_are_violated(page: SimpleNamespace) -> None:
    law, clue = page.signal_law(60.0, 4), page.signal_law(0.0, 4, clue=2.0)
    assert (page.errors(law, [192], 4, 2)[..., 1] > law.bound(192, True)).all()
    found = page.errors(clue, [400], 4, 2)
    assert (found[..., 1] > clue.bound(400, False)).all()
    assert (found[..., 0] <= clue.bound(400, True)).all()


@pytest.mark.parametrize("name", ["signals", "C4", "D4"])
def test_laws_are_what_they_say(page: SimpleNamespace, name: str) -> None:
    law = page.signal_law(60.0, 5) if name == "signals" else page.digit_law(pixels(named(name), 8))
    x, y = law.draw(200, torch.Generator().manual_seed(0))
    for points, labels in ((x, y), law.test):
        assert (labels * (points @ law.beta)).min() > 1 - 1e-9
        assert 0.5 * law.radius < points.norm(dim=-1).max() <= law.radius + 1e-9
        assert 0.5 * law.mean_radius < law.average(points).norm(dim=-1).max() <= law.mean_radius + 1e-9
    assert torch.allclose(law.average(law.beta), law.beta)
    assert law.mean_radius < law.radius


def test_where_a_bound_begins(page: SimpleNamespace) -> None:
    law = page.Law(None, None, torch.ones(1), 3.0, 2.0, ())
    n = page.first_useful(law, True)
    assert law.bound(n, True) < 0.5 <= law.bound(n - 1, True)
    assert law.bound(4, True, 0.5) == pytest.approx(2 + math.sqrt(math.log(2) / 8))


def test_bad_parameters_stop_at_the_door() -> None:
    wrong = {"group": "E8", "seeds": 0, "seed": -1, "images": 3, "replicates": 1, "device": "abacus"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load("margins_and_augmentation", **{name: value})
