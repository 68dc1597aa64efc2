"""Groups with representations of every kind, and a strategy that combines them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import motions, natural, pixels, planar, regular, rotations, sign, trivial, vectors
from lib.symmetry.derived import Hom, Restriction
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, Group, Quaternion, SemidirectProduct, Symmetric
from lib.symmetry.lie import CompactLieGroup, Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import (
    DirectSum,
    MatrixRepresentation,
    Representation,
    TensorProduct,
)


def frobenius_21() -> SemidirectProduct:
    """Return C7 ⋊ C3, the smallest nonabelian group of odd order: a generator of C3 doubles the residues."""
    return SemidirectProduct(Cyclic(7), Cyclic(3), lambda h, n: 2**h * n % 7, "F21")


def phase(group: Cyclic, frequency: int) -> MatrixRepresentation:
    """Return the one-dimensional complex representation k ↦ exp(2πi·frequency·k/n)."""

    def matrices(g: Tensor) -> Tensor:
        angle = 2 * torch.pi * frequency * g[..., 0].double() / group.n
        return torch.polar(torch.ones_like(angle), angle)[..., None, None]

    return MatrixRepresentation(group, 1, matrices, f"χ{frequency}")


def spinor(group: Quaternion) -> MatrixRepresentation:
    """Return the two-dimensional representation of Q8 by Pauli matrices; it is of quaternionic type."""
    a = torch.tensor([[1j, 0], [0, -1j]], dtype=torch.complex128)
    x = torch.tensor([[0, -1], [1, 0]], dtype=torch.complex128)
    table = torch.stack(
        [torch.linalg.matrix_power(a, k) @ torch.linalg.matrix_power(x, e) for k in range(4) for e in range(2)]
    )
    return MatrixRepresentation(group, 2, lambda g: table[group.index(g)], "spin")


def determinant(group: CompactLieGroup) -> MatrixRepresentation:
    """Return g ↦ det g."""
    return MatrixRepresentation(group, 1, lambda g: torch.linalg.det(g)[..., None, None], "det")


def shear(group: Cyclic) -> MatrixRepresentation:
    """Return C2 acting on the plane by a reflection along a slanted axis: not unitary."""
    reflection = torch.tensor([[1.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    table = torch.stack([torch.eye(2, dtype=torch.float64), reflection])
    return MatrixRepresentation(group, 2, lambda g: table[g[..., 0]], "shear", unitary=False)


def _leaves() -> list[list[Representation]]:
    C6, D4, S4, Q8, SO3, O2, U2, T2 = (
        Cyclic(6),
        Dihedral(4),
        Symmetric(4),
        Quaternion(8),
        SpecialOrthogonal(3),
        Orthogonal(2),
        Unitary(2),
        Torus(2),
    )
    product = DirectProduct(Symmetric(3), Cyclic(2))
    embedded = Restriction(natural(S4), Symmetric(3), lambda h: torch.cat([h, torch.full_like(h[..., :1], 3)], -1))
    first = Restriction(natural(Symmetric(3)), product, lambda g: product.parts(g)[0])
    weights = torch.tensor([[1, 0], [1, -2]])
    return [
        [planar(C6), regular(C6), phase(C6, 1), phase(C6, 2)],
        [planar(D4), regular(D4), pixels(D4, 3), trivial(D4, 2)],
        [natural(S4), sign(S4), trivial(S4)],
        [spinor(Q8), regular(Q8)],
        [embedded, sign(Symmetric(3)), regular(Symmetric(3))],
        [first, regular(product)],
        [regular(frobenius_21())],
        [pixels(motions(2), 2), trivial(motions(2))],
        [shear(Cyclic(2)), regular(Cyclic(2))],
        [vectors(SO3), trivial(SO3, 2)],
        [vectors(O2), determinant(O2), trivial(O2)],
        [vectors(U2), determinant(U2), trivial(U2)],
        [rotations(T2, weights), vectors(T2)],
    ]


LEAVES = _leaves()

Recipe = tuple[int, list[tuple[int, int]]]
RECIPES = st.tuples(st.integers(0, 999), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=3))


def build(recipe: Recipe, largest: int = 48) -> Representation:
    """Return a representation of some group, put together by up to three sums, products, Homs or duals.

    Recipes are drawn, not representations, since Hypothesis wants strategies to leave ``random`` alone, and beartype
    does not.
    """
    row, operations = LEAVES[recipe[0] % len(LEAVES)], recipe[1]
    V = row[recipe[0] // len(LEAVES) % len(row)]
    for operation, place in operations:
        W = row[place % len(row)]
        bigger = [DirectSum, TensorProduct, Hom, lambda V, _: V.dual()][operation](V, W)
        V = bigger if bigger.dim <= largest else V
    return V


def elements(group: Group, count: int, seed: int = 0) -> Tensor:
    """Return random elements for a given seed."""
    return group.sample(count, torch.Generator().manual_seed(seed))


def random_vectors(V: Representation, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return Gaussian vectors of V, complex where V is."""
    dtype = dtype.to_complex() if V.is_complex else dtype
    return torch.randn(*batch, *V.shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))
