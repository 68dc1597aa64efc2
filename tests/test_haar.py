"""Haar projections: orthogonality, agreement of the routes, dimensions, against independent oracles."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.augmentation.sampling_laws import haar
from lib.symmetry.actions import (
    motions,
    natural,
    pixels,
    planar,
    regular,
    rotations,
    row_shifts,
    translations,
    trivial,
    vectors,
)
from lib.symmetry.derived import Hom, Restriction
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.haar import (
    Composition,
    HaarSum,
    NullSpace,
    OrbitMean,
    Projection,
    constraints,
    invariant_dimension,
    projection,
)
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import Representation
from tests.catalogue import LEAVES, RECIPES, Recipe, build, elements, frobenius_21, phase, random_vectors, spinor


def endomorphisms(V: Representation) -> Hom:
    return Hom(V, V)


def routes(V: Representation) -> dict[str, Projection]:
    """Return every route that a representation admits, grids and quadratures apart."""
    names = ["nullspace"]
    if isinstance(V.group, FiniteGroup):
        names.append("sum")
    if V.is_permutation:
        names.append("orbits")
    if hasattr(V.group, "complement"):
        names.append("composition")
    return {name: projection(V, name) for name in names}


def dense_average(V: Representation) -> Tensor:
    """Return the mean of all dense matrices: the definition, spelled out."""
    return torch.stack([V.matrix(g) for g in V.group.elements()]).mean(0)


def rotation_rule(degree: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights on SO(3), exact for tensors of the given degree: grids in α and γ, Gauss in cos β."""
    count = degree + 1
    angle = 2 * math.pi * np.arange(count) / count
    cosine, gauss = np.polynomial.legendre.leggauss(count)
    alpha, beta, gamma = (t.ravel() for t in np.meshgrid(angle, np.arccos(cosine), angle, indexing="ij"))
    weight = np.broadcast_to(gauss[None, :, None] / 2 / count**2, (count,) * 3).ravel()
    x = SpecialOrthogonal(3).lie_algebra()
    turns = [
        torch.linalg.matrix_exp(torch.from_numpy(t)[:, None, None] * x[i])
        for t, i in ((alpha, 0), (beta, 1), (gamma, 0))
    ]
    return turns[0] @ turns[1] @ turns[2], torch.from_numpy(weight)


@given(RECIPES, st.integers(0, 99))
def test_routes_agree(recipe: Recipe, seed: int) -> None:
    V = build(recipe, 36)
    A = random_vectors(V, 2, seed=seed)
    results = [P(A) for P in routes(V).values()] if V.is_unitary else []
    assert all(torch.allclose(results[0], other, rtol=0, atol=1e-11) for other in results)


@given(RECIPES)
def test_orthogonal_projections(recipe: Recipe) -> None:
    V = build(recipe, 36)
    W = V if V.is_unitary else trivial(V.group)
    for P in routes(W).values():
        matrix, rho = P.matrix(), W.matrix(elements(W.group, 3))
        assert torch.allclose(matrix @ matrix, matrix, rtol=0, atol=1e-12)
        assert torch.allclose(matrix.mH, matrix, rtol=0, atol=1e-12)
        for product in (rho @ matrix, matrix @ rho):
            assert torch.allclose(product, matrix.to(product).expand_as(product), rtol=0, atol=1e-11)


@given(RECIPES)
def test_ranks_and_bases(recipe: Recipe) -> None:
    V = build(recipe, 36)
    W = V if V.is_unitary else trivial(V.group)
    null = scipy.linalg.null_space(constraints(W).numpy(), rcond=1e-9, lapack_driver="gesvd")
    for P in routes(W).values():
        basis = P.basis()
        assert P.rank == len(basis) == null.shape[1] == invariant_dimension(W)
        assert torch.allclose(basis.conj() @ basis.mT, torch.eye(P.rank, dtype=basis.dtype), rtol=0, atol=1e-12)
        assert torch.allclose(P.matrix(), torch.from_numpy(null @ null.conj().T), rtol=0, atol=1e-11)
        moved = W.apply(W.group.unsqueeze(elements(W.group, 3)), basis.unflatten(-1, W.shape).to(P.matrix().dtype))
        assert torch.allclose(
            moved.flatten(2) if len(W.shape) > 1 else moved, basis.to(moved).expand(3, -1, -1), rtol=0, atol=1e-11
        )


@pytest.mark.parametrize(
    "V",
    [
        endomorphisms(natural(Symmetric(4))),
        endomorphisms(spinor(Quaternion(8))),
        endomorphisms(pixels(Dihedral(4), 3)),
        endomorphisms(regular(frobenius_21())),
        Hom(planar(Cyclic(6)), phase(Cyclic(6), 1)),
    ],
    ids=repr,
)
def test_against_the_dense_average(V: Representation) -> None:
    expected = dense_average(V)
    for P in routes(V).values():
        assert torch.allclose(P.matrix(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_rotations_against_a_quadrature(power: int) -> None:
    V = vectors(SpecialOrthogonal(3))
    W = V
    for _ in range(power):
        W = W * V
    nodes, weights = rotation_rule(power + 1)
    A = random_vectors(W)
    assert torch.allclose(HaarSum(W, nodes, weights)(A), NullSpace(W)(A), rtol=0, atol=1e-11)


@pytest.mark.parametrize("k", [1, 2])
def test_tori_against_a_quadrature(k: int) -> None:
    W = endomorphisms(vectors(Torus(k)) * vectors(Torus(k)))
    A = random_vectors(W)
    assert torch.allclose(HaarSum(W, *W.group.class_quadrature(4))(A), NullSpace(W)(A), rtol=0, atol=1e-11)


def test_unitary_group_against_samples() -> None:
    W = endomorphisms(vectors(Unitary(2)) * vectors(Unitary(2)))
    A = random_vectors(W)
    sampled = HaarSum(W, elements(W.group, 40_000))(A)
    assert torch.linalg.vector_norm(sampled - NullSpace(W)(A)) < 0.03 * torch.linalg.vector_norm(A)
    assert torch.linalg.vector_norm(sampled - A) > 0.5 * torch.linalg.vector_norm(A)


@pytest.mark.parametrize(
    ("V", "maps", "functionals"),
    [
        *[(natural(Symmetric(n)) * natural(Symmetric(n)), 15, 2) for n in (4, 5, 6, 10)],
        (natural(Symmetric(3)) * natural(Symmetric(3)), 14, 2),
        (natural(Alternating(6)) * natural(Alternating(6)), 15, 2),
        *[(pixels(translations(n), n), n**2, 1) for n in (2, 3, 4)],
        *[(pixels(Cyclic(4), n), n**4 // 4, n**2 // 4) for n in (2, 4, 6)],
        *[(row_shifts(n), n**3, n) for n in (2, 3, 4)],
        *[(pixels(motions(n), n), n**2 // 4 + 2, 1) for n in (2, 4, 6)],
    ],
    ids=repr,
)
def test_dimensions(V: Representation, maps: int, functionals: int) -> None:
    """H3, by characters and by orbits."""
    for H, expected in [(endomorphisms(V), maps), (Hom(V, trivial(V.group)), functionals)]:
        assert OrbitMean(H).rank == expected
        assert invariant_dimension(H) == expected


@pytest.mark.parametrize("n", [3, 4, 20])
def test_three_tensors_by_characters(n: int) -> None:
    """Maps T2 → T1 are invariants of T3: the 5 partitions of a set of three; T3 → T3 the 203 of six."""
    V = natural(Symmetric(n))
    assert invariant_dimension(Hom(V * V, V)) == 5
    assert invariant_dimension(endomorphisms(V * V * V)) == {3: 122, 4: 187, 20: 203}[n]


def test_composition_needs_a_normal_subgroup() -> None:
    """Two transpositions generate S3, but neither subgroup normalises the other: the composition is no projection."""
    V, C2 = natural(Symmetric(3)), Cyclic(2)
    swaps = torch.tensor([[[0, 1, 2], [1, 0, 2]], [[0, 1, 2], [0, 2, 1]]])
    first, second = (projection(Restriction(V, C2, lambda h, s=s: s[h[..., 0]])).matrix() for s in swaps)
    composed = first @ second
    assert float((composed - projection(V).matrix()).abs().max()) > 0.2
    assert float((composed @ composed - composed).abs().max()) > 0.1
    assert torch.allclose(torch.linalg.matrix_power(composed, 60), projection(V).matrix(), atol=1e-12)


@pytest.mark.parametrize("group", [Dihedral(5), frobenius_21(), motions(2), translations(3)], ids=str)
def test_composition_of_semidirect_products(group: FiniteGroup) -> None:
    H = endomorphisms(regular(group))
    A = random_vectors(H)
    assert isinstance(projection(H, "composition"), Composition)
    assert torch.allclose(projection(H, "composition")(A), projection(H, "orbits")(A), rtol=0, atol=1e-12)


@given(st.sampled_from([row[0] for row in LEAVES if row[0].is_unitary]))
def test_dtypes_batches_derivatives(V: Representation) -> None:
    for P in routes(V).values():
        x = random_vectors(V, 3, 2)
        single = P(x.to(torch.complex64 if V.is_complex else torch.float32))
        assert single.dtype.to_real() == torch.float32
        assert torch.allclose(single.to(x), P(x), rtol=0, atol=1e-5)
        assert torch.allclose(P(x)[1, 1], P(x[1, 1]), rtol=0, atol=1e-13)
        assert torch.allclose(torch.func.vmap(P)(x), P(x), rtol=0, atol=1e-13)
        assert P(x[:0]).shape == (0, 2, *V.shape)
        assert torch.autograd.gradcheck(P, (x[0].clone().requires_grad_(True),))


def test_reduced_coordinates() -> None:
    P = OrbitMean(endomorphisms(natural(Symmetric(4)) * natural(Symmetric(4))))
    coordinates = random_vectors(trivial(Symmetric(4), 15), 3)
    assert torch.allclose(P.coordinates(P.embed(coordinates)), coordinates, rtol=0, atol=1e-13)
    A = random_vectors(P.representation, 3).flatten(1)
    assert torch.allclose(P.embed(P.coordinates(A)), P(A.unflatten(-1, (16, 16))).flatten(1), rtol=0, atol=1e-13)
    assert P.sizes.tolist() == P.basis().bool().sum(1).tolist()


def test_large_groups_by_orbits() -> None:
    """The sum over S_10 has 3 628 800 terms; 2000 random ones come near what the orbits give."""
    H = endomorphisms(natural(Symmetric(10)) * natural(Symmetric(10)))
    A = random_vectors(H)
    exact, sampled = OrbitMean(H)(A), HaarSum(H, elements(H.group, 2000))(A)
    assert torch.linalg.vector_norm(sampled - exact) < 0.05 * torch.linalg.vector_norm(A)


@pytest.mark.parametrize("size", [28, 256])
def test_single_precision_on_large_orbits(size: int) -> None:
    """A plain float32 sum over the orbit loses 8e-6 of a constant image at 28², 6e-4 at 256²."""
    V = pixels(translations(size), size)
    x = torch.full((V.dim,), 0.1)
    assert OrbitMean(V)(x).dtype == torch.float32
    assert torch.allclose(OrbitMean(V)(x), x, rtol=1e-7, atol=0)
    assert torch.allclose(OrbitMean(V)(x + 0j), x + 0j, rtol=1e-7, atol=0)
    if size == 28:
        for average in (HaarSum(V), partial(haar(V.group).average, V)):
            assert average(x).dtype == torch.float32
            assert torch.allclose(average(x), x, rtol=1e-7, atol=0)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    H = endomorphisms(natural(Symmetric(4)))
    A = random_vectors(H)
    whole = HaarSum(H)(A)
    monkeypatch.setattr("lib.symmetry.haar.CHUNK", 5)
    assert torch.allclose(HaarSum(H)(A), whole, rtol=0, atol=1e-14)


def test_zero_equations() -> None:
    """SO(1) has neither generators nor a Lie algebra: everything is invariant."""
    V = vectors(SpecialOrthogonal(1)) + trivial(SpecialOrthogonal(1), 2)
    assert NullSpace(V).rank == invariant_dimension(V) == 3


@pytest.mark.parametrize("frequencies", [[9], [9, 10], list(range(11)), [0, 7, 40, 1000]])
def test_characters_of_any_degree(frequencies: list[int]) -> None:
    """A grid of as many angles as a frequency takes it for the constant; two neighbouring grids did for 9 and 10."""
    V = rotations(Torus(1), torch.tensor(frequencies)[:, None])
    assert NullSpace(V).rank == invariant_dimension(V) == 2 * frequencies.count(0)
    product = vectors(SpecialOrthogonal(2)) * vectors(SpecialOrthogonal(2))
    for _ in range(3):
        product = product * vectors(SpecialOrthogonal(2))
    assert invariant_dimension(product * product.dual()) == math.comb(10, 5)


@pytest.mark.parametrize("order", [257, 6_300_000, 10**9])
def test_small_turns_leave_no_vector_alone(order: int) -> None:
    V = planar(Cyclic(order))
    assert NullSpace(V).rank == 0
    assert NullSpace(V * V).rank == 2


def test_averages_that_are_no_projections() -> None:
    V = planar(Cyclic(5))
    partial = HaarSum(V, V.group.elements()[:2])
    for number in (lambda: partial.rank, partial.basis):
        with pytest.raises(ArithmeticError, match="no orthogonal projection"):
            number()
    oblique = HaarSum(LEAVES[8][0])
    assert torch.allclose(oblique.matrix() @ oblique.matrix(), oblique.matrix())
    with pytest.raises(ArithmeticError, match="no orthogonal projection"):
        oblique.basis()


def test_improper_rotations() -> None:
    """det is invariant under SO(2) but not under O(2)."""
    for group, dimension in [(Orthogonal(2), 1), (SpecialOrthogonal(2), 2)]:
        V = vectors(group)
        assert NullSpace(V * V).rank == invariant_dimension(V * V) == dimension
