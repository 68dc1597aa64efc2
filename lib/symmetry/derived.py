"""Representations made of others: copies, linear maps between two of them, the restriction of one to a subgroup."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.symmetry.groups import Group
from lib.symmetry.representations import DirectSum, Representation, TensorProduct, _common_group, _flags, _test_pairs


def multiple(r: Representation, copies: int) -> Representation:
    """Return the direct sum of so many copies of a representation."""
    return r if copies == 1 else DirectSum(*[r] * copies)


class Hom(TensorProduct):
    """The space of linear maps A : V → W with the action ρ_W(g) A ρ_V(g)⁻¹, that is W ⊗ V*.

    Its vectors are matrices of shape ``(dim W, dim V)``. Its invariants are the equivariant maps
    (Nordenfors, Ohlsson, Flinth 2023, Lemma 1).

    >>> from lib.symmetry.actions import natural
    >>> from lib.symmetry.groups import Symmetric
    >>> from lib.symmetry.haar import invariant_dimension
    >>> V = natural(Symmetric(4))
    >>> Hom(V, V).shape, invariant_dimension(Hom(V, V))  # a I + b 11ᵀ
    ((4, 4), 2)
    """

    def __init__(self, source: Representation, target: Representation) -> None:
        _common_group("source and target", (source, target))
        super().__init__(target, source.dual())
        self.source, self.target = source, target
        self.name, self.shape = f"Hom({source.name}, {target.name})", (target.dim, source.dim)


class Restriction(Representation):
    """A representation of a group, restricted to a subgroup given by its embedding.

    ``embed(h)`` must be a homomorphism into the large group, or a ``ValueError`` says so.

    >>> from lib.symmetry.actions import planar
    >>> from lib.symmetry.groups import Cyclic
    >>> half_turns = Restriction(planar(Cyclic(4)), Cyclic(2), lambda h: 2 * h)
    >>> half_turns.matrix(torch.tensor([1])).round().int()
    tensor([[-1,  0],
            [ 0, -1]], dtype=torch.int32)
    """

    def __init__(self, base: Representation, subgroup: Group, embed: Callable[[Tensor], Tensor]) -> None:
        group = _common_group("base", (base,))
        super().__init__(subgroup, base.dim, f"{base.name}|{subgroup}")
        self.base, self.embed, self.shape = base, embed, base.shape
        self.is_permutation, self.is_unitary, self.is_complex = _flags((base,))
        g, h = _test_pairs(subgroup, 1)
        a, b, ab = (group.check("embed(g)", embed(k)) for k in (g, h, subgroup.multiply(g, h)))
        product = group.multiply(a, b)
        if not group.is_finite:  # compared by their action, since angles are known modulo 2π only
            product, ab = base.matrix(product), base.matrix(ab)
        if not torch.allclose(product, ab, rtol=0, atol=1e-8):
            raise ValueError(f"embed must be a homomorphism of {subgroup} into {group}: embed(gh) ≠ embed(g) embed(h)")

    def permutation(self, g: Tensor) -> Tensor:
        """Return π."""
        return self.base.permutation(self.embed(g))

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return self.base.matrix(self.embed(g))

    def _apply(self, g: Tensor, x: Tensor) -> Tensor:
        return self.base._apply(self.embed(g), x)

    def character(self, g: Tensor) -> Tensor:
        """Return χ(g)."""
        return self.base.character(self.embed(g))
