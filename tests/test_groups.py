"""Finite groups: axioms, numbering, generators, classes, sampling, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy.combinatorics import Permutation
from sympy.combinatorics.named_groups import AlternatingGroup, SymmetricGroup

from lib.symmetry.actions import motions, translations
from lib.symmetry.groups import (
    Alternating,
    Cyclic,
    Dihedral,
    DirectProduct,
    FiniteGroup,
    Quaternion,
    SemidirectProduct,
    Symmetric,
)
from tests.axioms import assert_group, check_group
from tests.catalogue import frobenius_21

SMALL = [
    *[Cyclic(n) for n in (1, 2, 5, 12)],
    *[Dihedral(n) for n in (1, 2, 3, 6)],
    *[Symmetric(n) for n in (1, 2, 3, 4, 5)],
    *[Alternating(n) for n in (3, 4, 5)],
    *[Quaternion(n) for n in (4, 8, 12)],
    DirectProduct(Cyclic(2), Cyclic(3)),
    DirectProduct(Symmetric(3), Quaternion(8)),
    DirectProduct(DirectProduct(Cyclic(2), Cyclic(2)), Dihedral(3)),
    frobenius_21(),
    translations(3),
    motions(3),
    motions(2, Dihedral(4)),
]
LARGE = [
    Cyclic(2**62),
    Dihedral(10**9),
    Quaternion(4 * 10**9),
    Symmetric(10),
    Symmetric(20),
    Alternating(10),
    Alternating(20),
    DirectProduct(Symmetric(12), Alternating(9)),
    motions(28, Dihedral(4)),
]


def class_labels(group: FiniteGroup) -> torch.Tensor:
    """Return the smallest number among the conjugates of every element, by brute force."""
    g = group.elements()
    conjugates = group.multiply(group.multiply(g[:, None], g[None]), group.inverse(g)[:, None])
    return group.index(conjugates).min(0).values


@pytest.mark.parametrize("group", [*SMALL, *LARGE], ids=str)
def test_axioms(group: FiniteGroup) -> None:
    assert set(check_group(group).values()) == {0.0}
    assert_group(group)


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_numbering_is_a_bijection(group: FiniteGroup) -> None:
    elements = group.elements()
    assert elements.shape == (group.order, *group.element_shape)
    assert torch.equal(group.index(elements), torch.arange(group.order))
    assert len(elements.unique(dim=0)) == group.order
    assert torch.equal(torch.cat(list(group.chunks(3))), elements)


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_cayley_table_is_a_latin_square(group: FiniteGroup) -> None:
    table = group.cayley_table()
    line = torch.arange(group.order)
    assert torch.equal(table.sort(0).values, line[:, None].expand_as(table))
    assert torch.equal(table.sort(1).values, line.expand_as(table))


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_generators_generate(group: FiniteGroup) -> None:
    reached = group.identity()[None]
    for _ in range(group.order):
        reached = torch.cat([reached, group.multiply(group.generators()[:, None], reached).flatten(0, 1)]).unique(dim=0)
    assert len(reached) == group.order


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_quadrature_integrates_class_functions(group: FiniteGroup) -> None:
    labels = class_labels(group)
    values = torch.randn(group.order, dtype=torch.float64, generator=torch.Generator().manual_seed(1))[labels]
    nodes, weights = group.class_quadrature()
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-14)
    assert float((weights * values[group.index(nodes)]).sum()) == pytest.approx(float(values.mean()), abs=1e-13)


@pytest.mark.parametrize("n", [3, 7, 12, 20])
def test_class_sizes_of_large_permutation_groups(n: int) -> None:
    """The number of fixed points has mean 1 and mean square 2 under a 2-transitive group."""
    for group in (Symmetric(n), Alternating(max(n, 4))):
        nodes, weights = group.class_quadrature()
        fixed = (nodes == torch.arange(group.n)).sum(-1).double()
        assert torch.stack([weights.sum(), weights @ fixed, weights @ fixed**2]).tolist() == pytest.approx([1, 1, 2])


@pytest.mark.parametrize(
    ("group", "nilpotency"),
    [(Cyclic(6), 1.0), (Symmetric(3), 0.5), (Quaternion(8), 0.625), (frobenius_21(), 5 / 21), (Alternating(4), 1 / 3)],
    ids=str,
)
def test_commuting_probability(group: FiniteGroup, nilpotency: float) -> None:
    """The share of commuting pairs is the number of classes over the order; known for these groups."""
    table = group.cayley_table()
    assert float((table == table.T).double().mean()) == pytest.approx(nilpotency)
    assert len(class_labels(group).unique()) == pytest.approx(nilpotency * group.order)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 10])
def test_sympy_orders(n: int) -> None:
    assert Symmetric(n).order == SymmetricGroup(n).order()
    assert Alternating(n + 2).order == AlternatingGroup(n + 2).order()


@given(st.integers(1, 12), st.data())
def test_sympy_products(n: int, data: st.DataObject) -> None:
    a, b = (data.draw(st.permutations(range(n))) for _ in range(2))
    group, (x, y) = Symmetric(n), (torch.tensor(a), torch.tensor(b))
    assert group.multiply(x, y).tolist() == (Permutation(b) * Permutation(a)).array_form  # SymPy composes left to right
    assert group.inverse(x).tolist() == (~Permutation(a)).array_form
    assert int(group.index(x)) == Permutation(a).rank()


@given(st.sampled_from(LARGE), st.data())
def test_large_groups(group: FiniteGroup, data: st.DataObject) -> None:
    index = torch.tensor([data.draw(st.integers(0, group.order - 1)) for _ in range(3)])
    a, b, c = group.element(index)
    assert torch.equal(group.index(group.element(index)), index)
    assert torch.equal(group.multiply(a, group.multiply(b, c)), group.multiply(group.multiply(a, b), c))
    assert torch.equal(group.inverse(group.multiply(a, b)), group.multiply(group.inverse(b), group.inverse(a)))
    assert torch.equal(group.multiply(a, group.inverse(a)), group.identity())


@given(st.sampled_from(SMALL), st.integers(0, 3), st.integers(1, 3))
def test_leading_axes_broadcast(group: FiniteGroup, seed: int, length: int) -> None:
    g = group.sample(2 * length, torch.Generator().manual_seed(seed))
    a, b = g[:length, None], g[length:]
    products = group.multiply(a, b)
    assert products.shape == (length, length, *group.element_shape)
    rows = [torch.stack([group.multiply(a[i, 0], b[j]) for j in range(length)]) for i in range(length)]
    assert torch.equal(products, torch.stack(rows))


@pytest.mark.parametrize("group", [g for g in SMALL if 3 < g.order <= 60], ids=str)
def test_sampling_is_uniform_and_seeded(group: FiniteGroup) -> None:
    g = group.sample(20_000, torch.Generator().manual_seed(3))
    counts = torch.bincount(group.index(g), minlength=group.order)
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert torch.equal(g[:5], group.sample(20_000, torch.Generator().manual_seed(3))[:5])


def test_equal_names_are_equal_groups() -> None:
    assert Cyclic(4) == Cyclic(4)
    assert len({Cyclic(4), Cyclic(4), Dihedral(4)}) == 2
    assert repr(DirectProduct(Cyclic(2), Dihedral(3))) == "C2×D3"


def test_dihedral_relations() -> None:
    group = Dihedral(7)
    r, s = group.generators()
    assert torch.equal(group.multiply(group.multiply(s, r), s), group.inverse(r))
    assert not torch.equal(group.multiply(s, r), group.multiply(r, s))


def test_quaternion_relations() -> None:
    group = Quaternion(8)
    i, j = group.generators()
    minus = group.multiply(i, i)
    assert torch.equal(minus, group.multiply(j, j))
    assert torch.equal(group.multiply(j, i), group.multiply(minus, group.multiply(i, j)))


@pytest.mark.parametrize("make", [Cyclic, Dihedral, Symmetric, Alternating, Quaternion], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (10**30, ValueError),
        (2.0, TypeError),
        (True, TypeError),
        (math.nan, TypeError),
        ("5", TypeError),
        (None, TypeError),
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_user")
def test_bad_orders(make: Callable[[object], FiniteGroup], value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"(n|order) must be .*got"):
        make(value)


@pytest.mark.usefixtures("as_user")
def test_numpy_integers_are_integers() -> None:
    assert Cyclic(np.int64(5)).order == 5


@pytest.mark.usefixtures("as_user")
def test_bad_products() -> None:
    with pytest.raises(ValueError, match="order must be between"):
        DirectProduct(Symmetric(20), Symmetric(20))
    with pytest.raises(ValueError, match="multiple of 4"):
        Quaternion(6)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda h, n: (n + h) % 7, "automorphisms"),  # a translation fixes no neutral element
        (lambda h, n: 2**h * n % 7, "homomorphism"),  # doubling has order 3, not 2
        (lambda h, n: 0 * (h + n), "automorphisms"),  # constant: an endomorphism, and multiplicative in h
    ],
    ids=["translation", "wrong order", "constant"],
)
def test_actions_that_give_no_group(action: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemidirectProduct(Cyclic(7), Cyclic(2), action, "?")


def test_too_large_to_list() -> None:
    with pytest.raises(ValueError, match="S20 is too large to list"):
        Symmetric(20).elements()
    with pytest.raises(ValueError, match="orders up to 2048"):
        Symmetric(7).cayley_table()


@pytest.mark.parametrize(
    ("group", "value", "error", "message"),
    [
        (Cyclic(4), [1], TypeError, "g must be a torch.Tensor"),
        (Cyclic(4), torch.tensor([4]), ValueError, "g must hold elements of C4"),
        (Cyclic(4), torch.tensor([-1]), ValueError, "g must hold elements of C4"),
        (Cyclic(4), torch.tensor([1.0]), TypeError, "torch.int64, got torch.float32"),
        (Cyclic(4), torch.tensor([True]), TypeError, "torch.int64, got torch.bool"),
        (Cyclic(4), torch.tensor(1), ValueError, r"shape \(..., 1\)"),
        (Symmetric(3), torch.tensor([0, 0, 1]), ValueError, "g must hold elements of S3"),
        (Symmetric(3), torch.tensor([5, 6, 7]), ValueError, "g must hold elements of S3"),
        (Symmetric(3), torch.tensor([0, 1]), ValueError, r"shape \(..., 3\)"),
        (Alternating(3), torch.tensor([1, 0, 2]), ValueError, "g must hold elements of A3"),
        (Dihedral(4), torch.tensor([1, 2]), ValueError, "g must hold elements of D4"),
        (Quaternion(8), torch.tensor([4, 0]), ValueError, "g must hold elements of Q8"),
        (translations(3), torch.tensor([-1, 3]), ValueError, "g must hold elements of C3×C3"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_elements_of_no_group(group: FiniteGroup, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        group.check("g", value)
