"""What the page *Groups and Haar measure* defines: other groups, other seeds, closed forms, and controls that fail."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from lib.symmetry.actions import natural, pixels, regular, trivial, vectors
from lib.symmetry.haar import NullSpace
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Unitary
from lib.symmetry.own_groups import named
from lib.symmetry.representations import Representation
from tests.chapters import load
from tests.oracles import feature_average, symmetrize_measure


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("groups_and_haar_measure", seed=11, group="C5")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("group", "order"), [("C1", 1), ("E8", 0), ("S6", 720), ("D100", 200)])
def test_groups_that_the_page_cannot_take(group: str, order: int) -> None:
    with pytest.raises(ValueError, match=f"got {order}" if order else "name must be like"):
        load("groups_and_haar_measure", group=group)


@pytest.mark.parametrize("name", ["C6", "D5", "Q8", "A4", "C7:C3", "C2xD3"])
def test_tables_by_hand_are_those_of_the_library(page: SimpleNamespace, name: str) -> None:
    G = named(name)
    left_multiplications = [tuple(p) for p in regular(G).permutation(G.elements()).tolist()]
    table = page.cayley_table(left_multiplications, page.compose)
    assert torch.equal(table, G.cayley_table())
    assert all(page.axioms(table).values())
    assert len(page.generate(*(left_multiplications[i] for i in G.index(G.generators())))) == G.order


def test_axioms_fail_one_by_one(page: SimpleNamespace) -> None:
    left_zero = torch.arange(3)[:, None].expand(3, 3)  # ab = a
    assert page.axioms(left_zero) == {"associative": True, "neutral": False, "inverses": False}
    maximum = page.cayley_table(range(4), max)
    assert page.axioms(maximum) == {"associative": True, "neutral": True, "inverses": False}
    loop = torch.tensor([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]])
    assert page.axioms(loop) == {"associative": False, "neutral": True, "inverses": True}
    with pytest.raises(KeyError):  # not closed
        page.cayley_table([0, 1], lambda a, b: a + b)


def test_samplers_by_hand_are_those_of_the_library(page: SimpleNamespace) -> None:
    for n, seed in itertools.product((1, 2, 5), (3, 4)):
        torch.testing.assert_close(page.orthogonal(n, 9, seeded(seed)), Orthogonal(n).sample(9, seeded(seed)))
        rotations = page.random_rotations(n, 9, seeded(seed))
        torch.testing.assert_close(rotations, SpecialOrthogonal(n).sample(9, seeded(seed)))
        complex_ones = page.orthogonal(n, 9, seeded(seed), torch.complex128)
        torch.testing.assert_close(complex_ones, Unitary(n).sample(9, seeded(seed)))


def test_moments_of_two_moves_are_those_of_the_group(page: SimpleNamespace) -> None:
    moves = torch.matrix_exp(SpecialOrthogonal(3).lie_algebra()[1:])
    V = vectors(SpecialOrthogonal(3))
    cubes = torch.stack([torch.kron(h, torch.kron(h, h)) for h in moves])
    torch.testing.assert_close(page.onto_fixed(cubes), NullSpace(V * V * V).matrix())
    assert page.onto_fixed(cubes).trace() == pytest.approx(1)  # the determinant
    half = torch.stack([torch.kron(h, h) for h in moves[:1]])  # one axis fixes more
    assert page.onto_fixed(half).trace() == pytest.approx(3)


def functions(page: SimpleNamespace, V: Representation) -> list:
    """A random network and a polynomial, both without any symmetry."""
    theta = page.perceptron(V.dim, 3, 7, torch.float64)
    w = torch.randn(V.dim, 2, dtype=torch.float64, generator=seeded(1))
    return [partial(page.forward, theta), lambda x: (x @ w) ** 3 + x[..., :1]]


@pytest.mark.parametrize("V", [pixels(named("D4"), 4), regular(named("C7:C3")), natural(named("S4"))], ids=str)
def test_averaging(page: SimpleNamespace, V: Representation) -> None:
    points = torch.randn(10, V.dim, dtype=torch.float64, generator=seeded(3))
    for f in functions(page, V):
        averaged = page.average(f, V, V.group.elements())
        torch.testing.assert_close(averaged(points), feature_average(f, V)(points))
        everywhere, mass = symmetrize_measure(points, V)
        ours = page.spread(points, V)
        assert torch.equal(ours, everywhere)
        assert mass.unique().numel() == 1
        for defect in page.averaging_defects(f, V, points):
            assert defect.max() < 1e-12
        assert page.growth(f, V, ours).max() <= 1e-12
        broken = page.averaging_defects(f, V, points, V.group.elements()[:-1])
        assert min(float(defect.max()) for defect in broken) > 1e-4


def test_averaging_expands_where_the_law_is_not_invariant(page: SimpleNamespace) -> None:
    points = page.digits_of(3, torch.float64)[2][:20]
    turned = page.quarter_turned(points[0], 1)
    blind = page.blind_functional(points, turned)
    assert blind(points).abs().max() < 1e-12
    assert page.growth(blind, pixels(named("D4"), 8), points) > 0.01


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_gaussian_adjointness(page: SimpleNamespace, order: int) -> None:
    assert page.two_integrals(order) < 1e-12


def test_feature_averaging(page: SimpleNamespace) -> None:
    x, y, test, _ = page.digits_of(4)
    V, logits = pixels(named("C4"), 8), trivial(named("C4"), 10)
    theta = page.perceptron(64, 10, 4)
    page.descend(page.forward, theta, x, y, steps=20)
    f, g = partial(page.forward, theta), V.group.elements()
    averaged = page.feature_average(f, V, logits)
    assert page.residual(averaged, V, logits, test, g) <= 1e-6 < 0.1 < page.residual(f, V, logits, test, g)
    assert page.residual(page.feature_average(f, V, logits, g[1:]), V, logits, test, g) > 0.1
    torch.testing.assert_close(averaged(test), page.averaged_forward(theta, test), rtol=1e-5, atol=1e-5)
    assert len(set(page.accuracies(page.averaged_forward, theta, 4))) == 1
    for k in range(4):
        turned = V.apply(torch.tensor([k]), test)
        assert torch.equal(page.quarter_turned(test, k), turned)


@pytest.mark.parametrize("name", ["D4", "C7:C3", "S4"])
def test_feature_averaging_of_maps_between_signals(page: SimpleNamespace, name: str) -> None:
    V = regular(named(name))
    x = torch.randn(20, V.dim, generator=seeded(0))
    f = partial(page.forward, page.perceptron(V.dim, V.dim, 2))
    averaged = page.feature_average(f, V, V)
    torch.testing.assert_close(averaged(x), feature_average(f, V, V)(x), rtol=1e-5, atol=1e-5)
    elements = V.group.elements()
    assert page.residual(averaged, V, V, x, elements) <= 1e-6 < 0.1 < page.residual(f, V, V, x, elements)


def test_exercises(page: SimpleNamespace) -> None:
    assert [page.mean_power(5, k) for k in (1, 2, 3, 4, 5)] == [1, 2, 5, 15, 52]  # Bell's numbers
    assert page.orders(named("Q8").cayley_table()) == {1: 1, 2: 1, 4: 6}
    assert page.orders(named("C6").cayley_table()) == {1: 1, 2: 1, 3: 2, 6: 2}


def test_the_missing_line_moves_the_mean(page: SimpleNamespace) -> None:
    for seed in range(3):
        fair, raw = (draw(3, 20_000, seeded(seed)).mean(0).abs() for draw in (page.orthogonal, page.raw_qr))
        assert fair.max() < 0.03
        assert raw.diagonal().min() > 0.4


def test_the_symmetries_of_a_cube_have_the_moments_of_all_up_to_order_three(page: SimpleNamespace) -> None:
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    shuffles = torch.tensor(page.generate((1, 2, 0), (1, 0, 2)))
    assert len(shuffles) == 6
    cube = (signs[:, None, :, None] * torch.eye(3, dtype=torch.float64)[shuffles]).flatten(0, 1)
    V = vectors(Orthogonal(3))
    for order, W in enumerate((V, V * V, V * V * V, V * V * V * V), start=1):
        gap = float((W.matrix(cube).mean(0) - NullSpace(W).matrix()).abs().max())
        assert gap < 1e-12 if order <= 3 else gap > 0.1
