"""Irreducible representations and generated groups: closed forms, oracles, what must fail, bad input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import motions, planar, sign, translations
from lib.symmetry.generated import GeneratedGroup, frobenius, quaternions_on_plane
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.irreps import Irreducibles, decompose_regular, eigenspaces
from lib.symmetry.own_groups import from_generators
from tests.axioms import check_group
from tests.catalogue import frobenius_21, spinor

SMALL = [
    Cyclic(1),
    Cyclic(9),
    Dihedral(1),
    Dihedral(2),
    Dihedral(5),
    Dihedral(6),
    Symmetric(4),
    Alternating(4),
    Quaternion(12),
    frobenius(7, 3),
    frobenius(11, 5),
    translations(3),
    DirectProduct(Cyclic(4), Cyclic(6)),
    DirectProduct(Symmetric(3), Quaternion(8)),
    motions(2),
    motions(3, Dihedral(4)),
    motions(4, Dihedral(4)),
]
PAULI = torch.tensor([[[1j, 0], [0, -1j]], [[0, -1], [1, 0]]], dtype=torch.complex128)


def characters(group: FiniteGroup) -> Tensor:
    """Return all irreducible characters, shape ``(irreps, |G|)``."""
    rho = Irreducibles(group).matrices(group.elements())
    return torch.cat([r.diagonal(dim1=-2, dim2=-1).sum(-1) for r in rho], dim=-1).T


def class_count(group: FiniteGroup) -> int:
    """Return the number of conjugacy classes, which is that of commuting pairs over the order."""
    table = group.cayley_table()
    return int((table == table.T).sum()) // group.order


def rotation(angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[[c, -s], [s, c]]], dtype=torch.float64)


# --- completeness ---


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_unitary_homomorphisms(group: FiniteGroup) -> None:
    g, s = group.elements(), group.generators()
    irreps = Irreducibles(group)
    parts = zip(
        irreps.matrices(s[:, None]), irreps.matrices(g), irreps.matrices(group.multiply(s[:, None], g)), strict=True
    )
    for left, right, product in parts:
        assert torch.allclose(left @ right, product, atol=1e-13)
        assert torch.allclose(right @ right.mH, torch.eye(right.shape[-1]).to(right), atol=1e-13)


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_character_table(group: FiniteGroup) -> None:
    """Rows are orthonormal, there is one per conjugacy class, and the trivial one comes first."""
    chi = characters(group)
    assert torch.allclose(chi @ chi.mH / group.order, torch.eye(len(chi)).to(chi), atol=1e-12)
    assert len(chi) == class_count(group)
    assert torch.allclose(chi[0], torch.ones_like(chi[0]))
    assert sum(d * d * n for d, n in zip(Irreducibles(group).dims, Irreducibles(group).counts, strict=True)) == len(
        group.elements()
    )


@pytest.mark.parametrize("group", SMALL, ids=str)
def test_matrix_coefficients_are_an_orthogonal_basis(group: FiniteGroup) -> None:
    rho = Irreducibles(group).matrices(group.elements())
    columns = torch.cat([r.flatten(1) * math.sqrt(r.shape[-1] / group.order) for r in rho], dim=1)
    assert columns.shape == (group.order, group.order)
    assert torch.allclose(columns.mH @ columns, torch.eye(group.order).to(columns), atol=1e-12)


def test_cyclic_groups_have_their_roots_of_unity() -> None:
    n = 12
    k = torch.arange(n, dtype=torch.float64)
    wanted = torch.exp(2j * torch.pi * k[:, None] * k / n)
    assert torch.allclose(characters(Cyclic(n)), wanted, atol=1e-14)


@given(st.integers(1, 40))
def test_census_of_dihedral_groups(n: int) -> None:
    ones = 4 if n % 2 == 0 else 2
    planes = (2 * n - ones) // 4
    found = Irreducibles(Dihedral(n))
    assert dict(zip(found.dims, found.counts, strict=True)) == ({1: ones, 2: planes} if planes else {1: ones})


def test_golden_ratio_in_the_characters_of_the_icosahedron() -> None:
    chi = characters(Alternating(5))
    planes = chi[1:3].real
    values = torch.unique((planes * 1e6).round() / 1e6)
    wanted = torch.tensor([-1.0, 0.0, 3.0, (1 + 5**0.5) / 2, (1 - 5**0.5) / 2], dtype=torch.float64)
    assert torch.allclose(values, wanted.sort().values, atol=1e-5)


def test_known_representations_are_found() -> None:
    """The plane of D_7, the sign of S_4 and the spinors of Q_8 are each equivalent to exactly one."""
    for known in (planar(Dihedral(7)), sign(Symmetric(4)), spinor(Quaternion(8))):
        chi = characters(known.group)
        products = (chi.conj() @ known.character(known.group.elements()).to(chi)).abs() / known.group.order
        assert sorted(products.round(decimals=10).tolist()) == [0.0] * (len(chi) - 1) + [1.0]


def test_frobenius_schur_indicators() -> None:
    """Their weighted sum counts the square roots of the identity; complex and quaternionic types do occur."""
    types = set()
    for group in (Quaternion(8), frobenius_21(), Symmetric(4), quaternions_on_plane()):
        g = group.elements()
        squares = group.index(group.multiply(g, g))
        chi = characters(group)
        indicator = chi[:, squares].mean(-1)
        assert torch.allclose(indicator, indicator.real.round().to(chi), atol=1e-12)
        roots = int((squares == group.index(group.identity())).sum())
        degrees = chi[:, group.index(group.identity())]
        assert float((indicator * degrees).sum().real) == pytest.approx(roots)
        types |= set(indicator.real.round().int().tolist())
    assert types == {1, 0, -1}


def test_little_groups_agree_with_the_regular_representation() -> None:
    """Two methods, one character table, up to the order of its rows."""
    for group in (Dihedral(6), frobenius_21(), motions(3, Dihedral(4)), quaternions_on_plane()):
        stacks = decompose_regular(group.cayley_table(), torch.Generator().manual_seed(5))
        other = torch.cat([r.diagonal(dim1=-2, dim2=-1).sum(-1) for r in stacks])
        chi = characters(group)
        overlap = (chi.conj() @ other.T).abs() / group.order
        assert torch.allclose(overlap.sum(0), torch.ones(len(chi)).double(), atol=1e-10)
        assert torch.allclose(overlap.max(0).values, torch.ones(len(chi)).double(), atol=1e-10)


def test_order_6272() -> None:
    """The semidirect product has 170 irreducible representations; the direct one 3136 + 784."""
    group = motions(28, Dihedral(4))
    irreps = Irreducibles(group)
    assert (irreps.dims, irreps.counts) == ((1, 2, 4, 8), (8, 6, 78, 78))
    direct = Irreducibles(DirectProduct(translations(28), Dihedral(4)))
    assert (direct.dims, direct.counts) == ((1, 2), (3136, 784))


def test_one_representation_on_its_own() -> None:
    group = quaternions_on_plane()
    rho = Irreducibles(group).representation(8, 2)
    assert rho.dim == 8
    assert rho.group == group
    chi = rho.character(group.elements())
    assert float((chi * chi.conj()).mean().real) == pytest.approx(1.0)


# --- the control ---


@pytest.mark.parametrize(
    ("group", "together"),
    [(Symmetric(4), 1), (Dihedral(7), 1), (Cyclic(5), 2), (frobenius_21(), 2), (Alternating(4), 2), (Quaternion(8), 4)],
    ids=str,
)
def test_a_real_element_separates_real_types_only(group: FiniteGroup, together: int) -> None:
    """⟨χ, χ⟩ of the worst eigenspace is 1 for real types, 2 for complex and 4 for quaternionic ones."""
    table = group.cayley_table()
    c = torch.randn(group.order, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u = torch.arange(group.order)
    traces = [(b @ b.mT)[u, table].sum(-1) for b in eigenspaces(table, c)]  # χ(g) = Σ_u P(u, gu)
    norms = [float(chi.square().mean()) for chi in traces]
    assert max(norms) == pytest.approx(together)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_eigenspaces_are_whole_in_either_precision(dtype: torch.dtype) -> None:
    """A representation of dimension d comes d times in the regular one, each time as one eigenspace of dimension d."""
    c = torch.randn(24, dtype=dtype, generator=torch.Generator().manual_seed(0))
    sizes = sorted(basis.shape[1] for basis in eigenspaces(Symmetric(4).cayley_table(), c))
    assert sizes == [1] * 2 + [2] * 2 + [3] * 6


def test_no_group_no_decomposition() -> None:
    """A Latin square with a neutral element, but without associativity, is refused."""
    loop = torch.tensor([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]])
    with pytest.raises(RuntimeError, match="order 5"):
        decompose_regular(loop, torch.Generator().manual_seed(0))


# --- generated groups ---


def test_permutations_generate() -> None:
    swap, cycle = torch.tensor([1, 0, 2, 3, 4]), torch.tensor([1, 2, 3, 4, 0])
    group = GeneratedGroup(torch.stack([swap, cycle]), "S5 by generators")
    assert group.order == 120
    assert set(check_group(group).values()) == {0.0}
    assert torch.equal(group.index(group.elements()), torch.arange(120))
    assert torch.equal(group.element(torch.tensor(0)), group.identity())
    assert torch.equal(group.generators(), torch.stack([swap, cycle]))
    irreps = Irreducibles(group)
    assert dict(zip(irreps.dims, irreps.counts, strict=True)) == {1: 2, 4: 2, 5: 2, 6: 1}


def test_outsiders_are_recognised() -> None:
    group = GeneratedGroup(torch.tensor([[1, 2, 0, 3]]), "turns of three")
    assert group.contains(torch.tensor([[2, 0, 1, 3], [1, 0, 2, 3]])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("matrices", "order"),
    [(PAULI, 8), (rotation(2 * math.pi / 7), 7), (torch.eye(3, dtype=torch.float64)[None], 1)],
)
def test_matrices_generate(matrices: Tensor, order: int) -> None:
    rho = from_generators(matrices, f"generated of order {order}")
    assert rho.group.order == order
    assert torch.allclose(rho.matrix(rho.group.generators()), matrices, atol=1e-12)
    g = rho.group.elements()
    assert torch.allclose(rho.matrix(g) @ rho.matrix(rho.group.inverse(g)), torch.eye(rho.dim).to(matrices), atol=1e-12)


def test_icosahedron_from_two_rotations() -> None:
    golden = (1 + 5**0.5) / 2
    a = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    rows = [[1, -golden, 1 / golden], [golden, 1 / golden, -1], [1 / golden, 1, golden]]
    b = torch.tensor(rows, dtype=torch.float64) / 2
    rho = from_generators(torch.stack([a, b]), "icosahedral")
    assert rho.group.order == 60
    assert Irreducibles(rho.group).counts == Irreducibles(Alternating(5)).counts


def test_named_products() -> None:
    assert frobenius(7, 3) == frobenius_21()
    assert torch.equal(frobenius(7, 3).cayley_table(), frobenius_21().cayley_table())
    group = quaternions_on_plane()
    assert group.order == 200
    assert set(check_group(group).values()) == {0.0}


# --- bad input ---


def test_groups_that_do_not_close() -> None:
    with pytest.raises(ValueError, match="S6 must have at most limit = 100 elements, got"):
        GeneratedGroup(torch.stack([torch.tensor([1, 0, 2, 3, 4, 5]), torch.arange(6).roll(-1)]), "S6", limit=100)
    with pytest.raises(ValueError, match=r"matrices .* limit = 500 elements, got an orbit of 501"):
        from_generators(rotation(1.0), "irrational", limit=500)


@pytest.mark.parametrize(
    ("permutations", "words"),
    [
        (torch.tensor([[0, 0, 1]]), "every number from 0 to 2"),
        (torch.tensor([0, 1]), "shape"),
        (torch.zeros(0, 3, dtype=torch.int64), "r, n ≥ 1"),
        (torch.tensor([[1.0, 0.0]]), "int64"),
    ],
)
def test_bad_permutations(permutations: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GeneratedGroup(permutations, "bad")


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        (torch.tensor([[[1.0, 1.0], [0.0, 1.0]]], dtype=torch.float64), "unitary"),
        (torch.eye(2)[None], "float64 or complex128"),
        (torch.eye(2, dtype=torch.float64), "shape"),
        (torch.full((1, 2, 2), math.nan, dtype=torch.float64), "unitary, got .* nan"),
    ],
)
def test_bad_matrices(matrices: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_generators(matrices, "bad")


@pytest.mark.parametrize(("p", "q", "words"), [(9, 2, "prime"), (7, 4, "divide"), (7, 1, "at least|between")])
def test_bad_frobenius(p: int, q: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        frobenius(p, q)


def test_bad_groups() -> None:
    with pytest.raises(ValueError, match=r"order at most 1024, got S7 with \|H\| = 5040"):
        Irreducibles(Symmetric(7))
