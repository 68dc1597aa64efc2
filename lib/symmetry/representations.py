"""Representations of finite and compact Lie groups that keep their structure.

A permutation representation is an index array, a tensor product is a pair of factors; a dense matrix is built only when
:meth:`Representation.matrix` is asked for one. Vectors have the representation's ``shape`` as their last axes
(``(dim,)``, or ``(dim W, dim V)`` for linear maps V → W); all axes in front are batch axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_int, check_tensor
from lib.symmetry.groups import FiniteGroup, Group


class Representation:
    """A linear representation ρ of a ``group`` on R^dim or C^dim, by vectors of a ``shape``.

    ``is_permutation``, ``is_unitary`` and ``is_complex`` say whether every ρ(g) permutes the coordinates, is unitary,
    has complex entries.
    """

    is_permutation = False
    is_unitary = True
    is_complex = False

    def __init__(self, group: Group, dim: int, name: str) -> None:
        self.group, self.dim, self.name = group, check_int("dim", dim), name
        self.shape: tuple[int, ...] = (dim,)

    def __repr__(self) -> str:
        """Return name, dimension and group."""
        return f"{self.name} (dimension {self.dim}) of {self.group}"

    def matrix(self, g: Tensor) -> Tensor:
        """Return the dense matrices ρ(g), shape ``(..., dim, dim)``, in float64 or complex128."""
        raise NotImplementedError(f"{type(self).__name__} must define matrix")

    def permutation(self, g: Tensor) -> Tensor:
        """Return π with ρ(g) e_i = e_π(i), shape ``(..., dim)``; only where ``is_permutation``."""
        raise TypeError(f"permutation needs a permutation representation, {self.name} is none")

    def character(self, g: Tensor) -> Tensor:
        """Return χ(g) = tr ρ(g), shape ``(...)``."""
        return torch.diagonal(self.matrix(g), dim1=-2, dim2=-1).sum(-1)

    def derivative(self, x: Tensor) -> Tensor:
        """Return dρ(x) = d/dt ρ(exp tx) at t = 0 for Lie algebra elements x, shape ``(..., dim, dim)``."""
        group, zero = self.group, torch.zeros((), dtype=torch.float64, device=x.device)
        return torch.func.jvp(lambda t: self.matrix(group.exp(t * x)), (zero,), (torch.ones_like(zero),))[1]

    def check_vectors(self, name: str, x: Any, inexact: bool = True) -> Tensor:
        """Return x if it holds vectors, shape ``(..., *shape)``; raise as :meth:`apply` does otherwise."""
        check_tensor(name, x, self.shape, inexact)
        if self.is_complex and not x.is_complex():
            raise TypeError(f"{name} must be complex for the complex representation {self.name}, got {x.dtype}")
        return x

    def apply(self, g: Tensor, x: Tensor) -> Tensor:
        """Return ρ(g)x for vectors x, shape ``(..., *shape)``; the batch axes of g and x broadcast.

        Complex ρ refuse real x, and only permutations take integers; x is finite.
        """
        self.group.check("g", g)
        self.check_vectors("x", x, inexact=not self.is_permutation)
        flat = x.reshape(*x.shape[: x.ndim - len(self.shape)], self.dim)
        out = self._apply(g, flat)
        return out.reshape(*out.shape[:-1], *self.shape)

    def _apply(self, g: Tensor, x: Tensor) -> Tensor:
        """Return ρ(g)x for vectors ``(..., dim)``, unchecked."""
        return (self.matrix(g).to(x) @ x[..., None])[..., 0]

    def dual(self) -> Representation:
        """Return the dual representation g ↦ ρ(g⁻¹)ᵀ."""
        return self if self.is_permutation else _Dual(self)

    def __add__(self, other: Representation) -> DirectSum:
        """Return the direct sum."""
        return DirectSum(self, other)

    def __mul__(self, other: Representation) -> TensorProduct:
        """Return the tensor product."""
        return TensorProduct(self, other)


class PermutationRepresentation(Representation):
    """A group that permutes the coordinates: ``images(g)`` returns π, shape ``(..., dim)``, with ρ(g) e_i = e_π(i).

    They are tried on the elements of ``_test_pairs``: a ``ValueError`` says that π_g π_h differs from π_gh.
    """

    is_permutation = True

    def __init__(self, group: Group, dim: int, images: Callable[[Tensor], Tensor], name: str) -> None:
        super().__init__(group, dim, name)
        self._images = images
        g, h = _test_pairs(group, dim)
        p, q, pq = images(g), images(h), images(group.multiply(g, h))
        every = torch.arange(dim, device=p.device).expand(len(g), dim)
        if p.dtype != torch.int64 or p.shape != every.shape or not torch.equal(p.sort(-1).values, every):
            wanted = f"permutations of {dim} indices, torch.int64 of shape {tuple(every.shape)}"
            raise ValueError(f"images must return {wanted}, got {p.dtype} of {tuple(p.shape)} or other entries")
        if not torch.equal(torch.gather(p, -1, q), pq):
            raise ValueError(f"images must be a homomorphism of {group}: π_g π_h differs from π_gh")

    def permutation(self, g: Tensor) -> Tensor:
        """Return π."""
        return self._images(g)

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return torch.nn.functional.one_hot(self.permutation(g), self.dim).mT.to(torch.float64)

    def _apply(self, g: Tensor, x: Tensor) -> Tensor:
        source = self.permutation(self.group.inverse(g)).to(x.device)
        batch = torch.broadcast_shapes(source.shape[:-1], x.shape[:-1])
        return torch.gather(x.expand(*batch, -1), -1, source.expand(*batch, -1))

    def character(self, g: Tensor) -> Tensor:
        """Return χ(g)."""
        return (self.permutation(g) == torch.arange(self.dim, device=g.device)).sum(-1).to(torch.float64)


class MatrixRepresentation(Representation):
    """A representation given by a function: ``matrices(g)`` returns ρ(g), shape ``(..., dim, dim)``.

    ``unitary=False`` admits matrices that are not unitary, for which averages over the group are *not* orthogonal
    projections. A ``ValueError`` says that ρ(1) ≠ 1, ρ(g)ρ(h) ≠ ρ(gh), or that ρ is not unitary (tolerance 1e-8, on
    the elements of ``_test_pairs``).

    >>> from lib.symmetry.groups import Cyclic
    >>> signs = MatrixRepresentation(Cyclic(2), 1, lambda g: (1.0 - 2.0 * g.double())[..., None], "sign")
    >>> signs.matrix(Cyclic(2).elements()).flatten().tolist()
    [1.0, -1.0]
    """

    def __init__(
        self, group: Group, dim: int, matrices: Callable[[Tensor], Tensor], name: str, unitary: bool = True
    ) -> None:
        super().__init__(group, dim, name)
        self._matrices, self.is_unitary = matrices, unitary
        g, h = _test_pairs(group, dim)
        g = torch.cat([group.identity()[None], g])
        a, b, ab = matrices(g), matrices(h), matrices(group.multiply(g[1:], h))
        wanted, got = (len(g), dim, dim), f"{a.dtype} of shape {tuple(a.shape)}"
        if a.dtype not in (torch.float64, torch.complex128) or a.shape != wanted:
            raise ValueError(f"matrices(g) must be torch.float64 or torch.complex128 of shape {wanted}, got {got}")
        unit = torch.eye(dim, dtype=a.dtype, device=a.device)
        defect = max(float(gap.detach().abs().max()) for gap in (a[1:] @ b - ab, a[0] - unit))
        if not defect <= 1e-8:
            raise ValueError(f"matrices must be a homomorphism of {group}: max |ρ(g)ρ(h) − ρ(gh)| = {defect:.1e}")
        defect = float((a @ a.mH - unit).detach().abs().max())
        if unitary and defect > 1e-8:
            got = f"max |ρ(g)ρ(g)* − 1| = {defect:.1e}"
            raise ValueError(f"matrices must be unitary: {got}; pass unitary=False to allow others")
        self.is_complex = a.is_complex()

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return self._matrices(g)


class _Dual(Representation):
    """The dual g ↦ ρ(g⁻¹)ᵀ; for unitary ρ that is the complex conjugate."""

    def __init__(self, base: Representation) -> None:
        super().__init__(base.group, base.dim, f"{base.name}*")
        self.base, self.shape, self.is_unitary, self.is_complex = base, base.shape, base.is_unitary, base.is_complex

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return self.base.matrix(self.group.inverse(g)).mT

    def derivative(self, x: Tensor) -> Tensor:
        """Return dρ(x)."""
        return -self.base.derivative(x).mT

    def dual(self) -> Representation:
        return self.base


class DirectSum(Representation):
    """The direct sum V ⊕ W: blocks one after the other.

    >>> from lib.symmetry.actions import natural, trivial
    >>> from lib.symmetry.groups import Symmetric
    >>> V = DirectSum(natural(Symmetric(3)), trivial(Symmetric(3)))
    >>> V.dim, V.is_permutation
    (4, True)
    """

    def __init__(self, *summands: Representation) -> None:
        group = _common_group("summands", summands)
        super().__init__(group, sum(s.dim for s in summands), "⊕".join(s.name for s in summands))
        self.summands, self._sizes = summands, [s.dim for s in summands]
        self.is_permutation, self.is_unitary, self.is_complex = _flags(summands)

    def permutation(self, g: Tensor) -> Tensor:
        """Return π."""
        starts = itertools.accumulate(self._sizes, initial=0)
        return torch.cat([s.permutation(g) + start for s, start in zip(self.summands, starts, strict=False)], dim=-1)

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return self._block_diagonal([s.matrix(g) for s in self.summands])

    def derivative(self, x: Tensor) -> Tensor:
        """Return dρ(x)."""
        return self._block_diagonal([s.derivative(x) for s in self.summands])

    def _block_diagonal(self, blocks: list[Tensor]) -> Tensor:
        ends = itertools.accumulate(self._sizes)
        pads = [(end - size, self.dim - end) for end, size in zip(ends, self._sizes, strict=True)]
        return sum(torch.nn.functional.pad(block, pad * 2) for block, pad in zip(blocks, pads, strict=True))

    def _apply(self, g: Tensor, x: Tensor) -> Tensor:
        parts = x.split(self._sizes, dim=-1)
        return torch.cat([s._apply(g, part) for s, part in zip(self.summands, parts, strict=True)], dim=-1)

    def character(self, g: Tensor) -> Tensor:
        """Return χ(g)."""
        return sum(s.character(g) for s in self.summands)

    def dual(self) -> Representation:
        """Return the direct sum of the duals."""
        return DirectSum(*[s.dual() for s in self.summands])


class TensorProduct(Representation):
    """The tensor product V ⊗ W with basis e_i ⊗ f_j in row-major order (i first).

    A factor of several axes keeps them: vectors of ``Hom(V, W) * pixels(G, k)`` are kernels of shape
    ``(dim W, dim V, k²)``.
    """

    def __init__(self, first: Representation, second: Representation) -> None:
        group = _common_group("factors", (first, second))
        super().__init__(group, first.dim * second.dim, f"{first.name}⊗{second.name}")
        self.first, self.second = first, second
        if len(first.shape) + len(second.shape) > 2:
            self.shape = (*first.shape, *second.shape)
        self.is_permutation, self.is_unitary, self.is_complex = _flags((first, second))

    def permutation(self, g: Tensor) -> Tensor:
        """Return π."""
        p, q = self.first.permutation(g), self.second.permutation(g)
        return (p[..., :, None] * self.second.dim + q[..., None, :]).flatten(-2)

    def matrix(self, g: Tensor) -> Tensor:
        """Return ρ(g)."""
        return _kronecker(self.first.matrix(g), self.second.matrix(g))

    def derivative(self, x: Tensor) -> Tensor:
        """Return dρ(x)."""
        a, b = self.first.derivative(x), self.second.derivative(x)
        one, other = (torch.eye(t.shape[-1], dtype=t.dtype, device=t.device) for t in (a, b))
        return _kronecker(a, other) + _kronecker(one, b)

    def _apply(self, g: Tensor, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (self.first.dim, self.second.dim))
        h = self.group.unsqueeze(g)
        x = self.second._apply(h, x)
        return self.first._apply(h, x.mT).mT.flatten(-2)

    def character(self, g: Tensor) -> Tensor:
        """Return χ(g)."""
        return self.first.character(g) * self.second.character(g)

    def dual(self) -> Representation:
        """Return the tensor product of the duals."""
        dual = TensorProduct(self.first.dual(), self.second.dual())
        dual.shape = self.shape
        return dual


def _common_group(name: str, parts: tuple[Representation, ...]) -> Group:
    if len({part.group for part in parts}) != 1:
        raise ValueError(f"{name} must be representations of one group, got {[str(p.group) for p in parts]}")
    return parts[0].group


def _flags(parts: tuple[Representation, ...]) -> tuple[bool, bool, bool]:
    every = (all(p.is_permutation for p in parts), all(p.is_unitary for p in parts))
    return *every, any(p.is_complex for p in parts)


def _test_pairs(group: Group, dim: int) -> tuple[Tensor, Tensor]:
    """Pairs on which a new representation is tested.

    Where it is cheap, all pairs of a generator and an element, which proves the homomorphism of a finite group; else
    generators and 16 random elements, in two orders.
    """
    s = group.generators()
    if isinstance(group, FiniteGroup) and group.order * len(s) * dim**2 <= 2**20:
        return s.repeat_interleave(group.order, 0), group.elements().repeat(len(s), *[1] * len(group.element_shape))
    g = torch.cat([s, group.sample(16, torch.Generator().manual_seed(0))])
    return g, g.flip(0)


def _kronecker(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.promote_types(a.dtype, b.dtype)
    product = a.to(dtype)[..., :, None, :, None] * b.to(dtype)[..., None, :, None, :]
    return product.flatten(-2).flatten(-3, -2)
