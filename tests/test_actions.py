"""The book's actions: what they do to pixels, nodes, planes and angles, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lib.symmetry.actions import (
    motions,
    natural,
    on_points,
    pixels,
    planar,
    regular,
    rotations,
    row_shifts,
    sign,
    translations,
    trivial,
    vectors,
)
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, Group, Quaternion, Symmetric
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import Representation
from tests.axioms import assert_representation
from tests.catalogue import elements

SIZES = (1, 2, 3, 4, 5, 8)


def image(size: int) -> torch.Tensor:
    return torch.arange(size * size, dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_quarter_turns_are_those_of_numpy(size: int, turns: int) -> None:
    expected = np.rot90(image(size).reshape(size, size).numpy(), turns).ravel()
    for V, g in [(pixels(Cyclic(4), size), [turns]), (pixels(Dihedral(4), size), [turns, 0])]:
        assert V.apply(torch.tensor(g), image(size)).tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_reflection_reverses_the_rows(size: int) -> None:
    expected = np.flipud(image(size).reshape(size, size).numpy()).ravel()
    assert pixels(Dihedral(4), size).apply(torch.tensor([0, 1]), image(size)).tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_translations_are_those_of_numpy(size: int) -> None:
    square = image(size).reshape(size, size).numpy()
    shift = torch.tensor([1 % size, 2 % size])
    moved = pixels(translations(size), size).apply(shift, image(size))
    assert moved.tolist() == np.roll(square, (1, 2), (0, 1)).ravel().tolist()
    rows = row_shifts(size).apply(shift[:1], image(size))
    assert rows.tolist() == np.roll(square, 1, 1).ravel().tolist()


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("point_group", [Cyclic(4), Dihedral(4)], ids=str)
def test_motions_turn_then_shift(size: int, point_group: Group) -> None:
    group = motions(size, point_group)
    V, turn, shift = (pixels(G, size) for G in (group, point_group, translations(size)))
    g = elements(group, 10)
    n, h = group.parts(g)
    expected = shift.apply(n, turn.apply(h, image(size).expand(10, -1)))
    assert torch.equal(V.apply(g, image(size)), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_all_pixel_actions(size: int) -> None:
    for group in (Cyclic(4), Dihedral(4), translations(size), motions(size), motions(size, Dihedral(4))):
        assert_representation(pixels(group, size))


def test_regular_representation_is_left_multiplication() -> None:
    group = Quaternion(8)
    assert torch.equal(regular(group).permutation(group.elements()), group.cayley_table())


def test_natural_representation_moves_nodes() -> None:
    V = natural(Symmetric(4))
    assert V.apply(torch.tensor([1, 2, 3, 0]), torch.tensor([10.0, 20, 30, 40])).tolist() == [40, 10, 20, 30]
    assert natural(Alternating(4)).group == Alternating(4)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_signs(n: int) -> None:
    group = Symmetric(n)
    g = elements(group, 50)
    inversions = torch.triu((g[:, :, None] > g[:, None, :]).long(), diagonal=1).sum((1, 2))
    assert torch.equal(sign(group).matrix(g)[:, 0, 0], 1.0 - 2.0 * (inversions % 2))


@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(7), Dihedral(1), Dihedral(6)], ids=str)
def test_planes(group: Group) -> None:
    V = planar(group)
    assert_representation(V)
    assert torch.linalg.det(V.matrix(group.generators())[0]) == pytest.approx(1.0)
    angle = 2 * math.pi / group.n
    assert V.matrix(group.generators())[0, :, 0].tolist() == pytest.approx([math.cos(angle), math.sin(angle)])


@pytest.mark.parametrize("group", [Orthogonal(3), SpecialOrthogonal(1), Unitary(2), Torus(2)], ids=str)
def test_defining_representations(group: Group) -> None:
    assert_representation(vectors(group))
    assert_representation(trivial(group, 3))


def test_rotations_by_weights() -> None:
    group = Torus(2)
    V = rotations(group, torch.tensor([[2, 0], [1, -1], [0, 0]]))
    angles = torch.tensor([0.3, 0.5], dtype=torch.float64)
    expected = 2 * (math.cos(0.6) + math.cos(-0.2) + 1)
    assert float(V.character(angles)) == pytest.approx(expected)
    assert_representation(V)
    assert V.matrix(elements(group, 4)[:, None]).shape == (4, 1, 6, 6)


def test_induced_actions_on_points() -> None:
    """S4 on the six edges of the complete graph: unordered pairs, coded by their smaller and larger end."""
    group = Symmetric(4)
    edges = torch.combinations(torch.arange(4))

    def move(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.gather(g.expand(*g.shape[:-2], len(x), 4), -1, x.expand(*g.shape[:-2], -1, -1)).sort(-1).values

    V = on_points(group, edges, move, "edges")
    assert_representation(V)
    assert float((V.character(group.elements()) ** 2).mean()) == 3.0  # orbits of pairs: equal, touching, disjoint


GRID = torch.cartesian_prod(torch.arange(3), torch.arange(3))
C3 = Cyclic(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: regular(Symmetric(12)), "S12 is too large to list"),
        (lambda: pixels(C3, 4), r"group must be Cyclic\(4\), .*got C3"),
        (lambda: pixels(translations(3), 4), r"group must be .*translations\(4\).*got C3×C3"),
        (lambda: on_points(C3, GRID - 1, lambda g, x: x, "V"), "points must be nonnegative"),
        (lambda: on_points(C3, GRID[:0], lambda g, x: x, "V"), "points must be nonnegative, .* dim ≥ 1"),
        (lambda: on_points(C3, GRID * 2**40, lambda g, x: x, "V"), r"points.max\(\) \*\* p must be"),
        (lambda: on_points(C3, GRID * 0, lambda g, x: x + 0 * g, "V"), "images must return permutations"),
        (lambda: on_points(C3, GRID, lambda g, x: x + g, "V"), "move must map the points to themselves"),
        (lambda: on_points(C3, GRID, lambda g, x: x - torch.cat([3 * g, -g], -1), "V"), "move must map"),
        (lambda: on_points(C3, GRID, lambda g, x: 0 * (x + g), "V"), "images must return permutations"),
    ],
)
def test_refused(make: Callable[[], Representation], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
