"""A reader's own group: right ones work like the book's, wrong tables are refused with the axiom that fails."""

from __future__ import annotations

import itertools
import math
import time

import pytest
import torch
from torch import Tensor

from lib.symmetry.actions import planar, regular
from lib.symmetry.derived import Hom
from lib.symmetry.generated import frobenius
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, SemidirectProduct, Symmetric
from lib.symmetry.haar import invariant_dimension
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal
from lib.symmetry.own_groups import TableGroup, from_generators, from_permutations, from_table, named
from tests.axioms import assert_group

SMALL = [Cyclic(1), Cyclic(6), Dihedral(4), Quaternion(8), Symmetric(4), frobenius(7, 3), named("C2xC2xC3")]


@pytest.mark.parametrize(
    ("name", "order"),
    [("C4", 4), ("D6", 12), ("S4", 24), ("A5", 60), ("Q8", 8), ("C7:C3", 21), ("C2xD3", 12), ("C2×C2×S3", 24)],
)
def test_names(name: str, order: int) -> None:
    group = named(name)
    assert group.order == order
    assert_group(group)


@pytest.mark.parametrize("name", ["", "C", "c4", "4", "C4x", "E8", "C4 ", "C-3", "C0", "Q7", "C7:C4", "C9:C2", "D4:C2"])
def test_names_of_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=r"must be like|there is no group"):
        named(name)


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_a_table_gives_the_group_back(group: FiniteGroup) -> None:
    again = from_table(group.cayley_table(), str(group))
    assert_group(again)
    assert torch.equal(again.cayley_table(), group.cayley_table())
    assert torch.equal(again.index(again.inverse(again.elements())), group.index(group.inverse(group.elements())))
    assert 2 ** len(again.generators()) <= max(2, group.order)
    # The commutant of the regular representation has the order of the group as its dimension.
    assert invariant_dimension(Hom(regular(again), regular(again))) == group.order


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.tensor([[0, 1], [0, 1]]), "once in each row and column"),
        (torch.tensor([[0, 1], [1, 2]]), "once in each row and column"),
        (torch.tensor([[1, 0, 2], [0, 2, 1], [2, 1, 0]]), "neutral element"),
        (torch.tensor([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]]), "assoc"),
        (torch.zeros(2, 3, dtype=torch.int64), "shape"),
        (torch.zeros(0, 0, dtype=torch.int64), "shape"),
        (Cyclic(600).cayley_table(), "n from 1 to 512, got torch.int64 of shape .600, 600."),
    ],
)
def test_tables_of_no_group(table: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_table(table, "none")


def test_tables_are_whole_numbers() -> None:
    with pytest.raises(ValueError, match="int64"):
        from_table(torch.eye(2), "none")


def test_all_tables_of_order_four() -> None:
    """Of all Latin squares of order 4 with neutral element 0, four are groups: three cyclic, one Klein."""
    rows = list(itertools.permutations(range(4)))
    groups = []
    for rest in itertools.product(rows, repeat=3):
        if [row[0] for row in rest] == [1, 2, 3]:
            try:
                groups.append(from_table(torch.tensor([range(4), *rest]), "four"))
            except ValueError:
                continue
    squares = [sum(int(g.cayley_table()[i, i]) == 0 for i in range(4)) for g in groups]
    assert sorted(squares) == [2, 2, 2, 4]


def test_permutations_and_matrices() -> None:
    group = from_permutations(torch.tensor([[1, 2, 3, 0], [1, 0, 2, 3]]), "all of four")
    assert group.order == 24
    turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]], dtype=torch.float64)
    square = from_generators(turn, "square")
    assert square.group.order == 8
    assert_group(square.group)


@pytest.mark.parametrize("angle", [9e-7, 1e-9, 1e-11])
def test_matrices_come_back_or_are_refused(angle: float) -> None:
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
    with pytest.raises(ValueError, match="matrices must generate elements that differ"):
        from_generators(turn[None], "a tiny turn")
    seven = planar(Cyclic(7)).matrix(torch.tensor([[1]]))
    for known in (seven, (seven * 1e9).round() / 1e9):  # to nine digits, which is enough
        assert from_generators(known, "seven").group.order == 7
    with pytest.raises(ValueError, match="matrices must be unitary"):
        from_generators(seven.float().double(), "rounded")
    with pytest.raises(ValueError, match="r, n ≥ 1"):
        from_generators(torch.zeros(1, 0, 0).double(), "nothing")


def test_a_long_cycle_is_closed_quickly() -> None:
    before = time.process_time()
    assert from_permutations(torch.arange(1, 2001)[None] % 2000, "a cycle").order == 2000
    assert time.process_time() - before < 5  # a copy of all elements for each new one took minutes


def test_groups_are_equal_by_what_they_do() -> None:
    def product(power: int) -> SemidirectProduct:
        return SemidirectProduct(Cyclic(7), Cyclic(3), lambda h, n: power**h * n % 7, "F")

    turn, swap = torch.tensor([[1, 2, 0]]), torch.tensor([[1, 0, 2]])
    assert product(2) == product(2) != product(4)
    assert from_permutations(turn, "G") == from_permutations(turn.clone(), "G") != from_permutations(swap, "G")
    assert from_table(Cyclic(4).cayley_table(), "G") != from_table(named("C2xC2").cayley_table(), "G")
    assert TableGroup(Cyclic(4).cayley_table(), "C4") == Cyclic(4) != TableGroup(Cyclic(4).cayley_table(), "G")
    assert SpecialOrthogonal(3) == SpecialOrthogonal(3) != Orthogonal(3)
    assert DirectProduct(Cyclic(2), Cyclic(3)) == DirectProduct(Cyclic(2), Cyclic(3))
    assert Symmetric(12) == Symmetric(12)
    with pytest.raises(ValueError, match="group"):
        Hom(regular(from_permutations(turn, "G")), regular(from_permutations(swap, "G")))
