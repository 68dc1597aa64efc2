"""Chapter *Implicit bias in Fourier space*, second part: Meshulam's uncertainty principle in exact arithmetic (B5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_choice, check_int, check_tensor
from lib.symmetry.fourier import GroupFourier, fourier_rank, spectrum
from lib.symmetry.generated import frobenius
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric

PRIME = 2**31 - 1


def arena(functions: int = 700) -> list[tuple[FiniteGroup, int]]:
    """Return groups on which the principle is put to the test, each with a number of functions of every kind.

    The larger the group, the fewer: ``functions`` for orders up to 12, half of it up to 24, a fifteenth for A_5.
    """
    check_int("functions", functions, minimum=150)
    small = [Symmetric(3), Quaternion(8), DirectProduct(Cyclic(3), Cyclic(3)), Dihedral(6), Alternating(4)]
    middle = [frobenius(7, 3), Symmetric(4), Cyclic(24)]
    return [(G, functions) for G in small] + [(G, functions // 2) for G in middle] + [(Alternating(5), functions // 15)]


def random_subgroups(group: FiniteGroup, draws: int, generator: torch.Generator) -> list[Tensor]:
    """Return different subgroups, as sorted numbers of elements: those that one or two random elements generate."""
    table = group.cayley_table()
    found = {}
    for pair in torch.randint(group.order, (check_int("draws", draws), 2), generator=generator):
        for picked in (pair[:1], pair):
            members = torch.unique(picked)
            while True:
                larger = torch.unique(torch.cat([members, table[members[:, None], members].flatten()]))
                if len(larger) == len(members):
                    break
                members = larger
            found[tuple(members.tolist())] = members
    return list(found.values())


def rank_modulo(matrices: Tensor, prime: int = PRIME) -> Tensor:
    """Return the ranks of integer matrices over the field of a prime number of elements, by exact elimination.

    The rank over the rational numbers is at least as large, and larger only if the prime divides all minors of that
    size.

    Parameters
    ----------
    matrices
        ``int64``, shape ``(B, n, m)``.
    prime
        At most 2³¹ − 1, so that products fit 64 bits.

    Raises
    ------
    TypeError, ValueError
        The matrices are not ``int64`` or have another shape, or the modulus is no prime.
    """
    if check_tensor("matrices", matrices, (None, None, None)).dtype != torch.int64 or matrices.ndim != 3:
        raise TypeError(f"matrices must be int64 of shape (B, n, m), got {matrices.dtype}, {tuple(matrices.shape)}")
    check_int("prime", prime, minimum=2, maximum=PRIME)
    if bool((prime % torch.arange(2, math.isqrt(prime) + 1) == 0).any()):
        raise ValueError(f"prime must be a prime number, got {prime}")
    rest, row = matrices % prime, torch.arange(len(matrices))
    used = torch.zeros(rest.shape[:2], dtype=torch.bool)
    while rest.shape[2]:
        candidates = (rest[:, :, 0] != 0) & ~used
        has, pivot = candidates.any(1), candidates.int().argmax(1)
        line = rest[row, pivot]
        factor = rest[:, :, 0] * _inverse_modulo(line[:, 0], prime)[:, None] % prime
        used[row, pivot] |= has
        factor = factor.masked_fill(used | ~has[:, None], 0)
        rest = (rest[:, :, 1:] - factor[:, :, None] * line[:, None, 1:]) % prime
    return used.sum(1)


def _inverse_modulo(x: Tensor, prime: int) -> Tensor:
    """Return x^(prime − 2), the inverse of x modulo the prime, 0 for x = 0."""
    out, power, exponent = torch.ones_like(x), x, prime - 2
    while exponent:
        if exponent % 2:
            out = out * power % prime
        power, exponent = power * power % prime, exponent // 2
    return out


@dataclass(frozen=True)
class Uncertainty:
    """Supports and ranks of integer functions on a group; see :func:`measure_uncertainty`.

    Attributes
    ----------
    order : int
        |G|.
    support, rank : Tensor
        |supp f|, and the rank of the matrix f(uv⁻¹) modulo a large prime: an exact lower bound of its rank; shape
        ``(functions,)``.
    different_rows : Tensor
        How many different rows that matrix has: an exact upper bound of the rank.
    floating_rank, blocks_rank : Tensor
        Σ d_ρ rank f̂(ρ) and Σ rank f̂(ρ) from singular values in floating point.
    """

    order: int
    support: Tensor
    rank: Tensor
    different_rows: Tensor
    floating_rank: Tensor
    blocks_rank: Tensor

    @property
    def surplus(self) -> Tensor:
        """|supp f| · rank − |G|: at most the true value, since ranks modulo a prime can only be too small."""
        return self.support * self.rank - self.order

    @property
    def defect(self) -> Tensor:
        """Distance of |supp f| · rank from |G|, whichever of the two exact bounds of the rank is farther off."""
        upper = self.support * self.different_rows - self.order
        return torch.maximum(self.surplus.abs(), upper.abs())

    @property
    def unweighted_surplus(self) -> Tensor:
        """The same without the weights d_ρ: the control."""
        return self.support * self.blocks_rank - self.order


def convolution_matrices(group: FiniteGroup, f: Tensor) -> Tensor:
    """Return the matrices f(uv⁻¹) of w ↦ f∗w, shape ``(..., |G|, |G|)``."""
    check_tensor("f", f, (group.order,))
    u = group.elements()
    return f[..., group.index(group.multiply(u[:, None], group.inverse(u)))]


def measure_uncertainty(group: FiniteGroup, f: Tensor, chunk: int = 256) -> Uncertainty:
    """Measure support and Fourier rank of integer functions, exactly and in floating point.

    Parameters
    ----------
    group
        The group.
    f
        Nonzero functions, ``int64`` of shape ``(functions, |G|)``.
    chunk
        Functions treated at a time.
    """
    check_tensor("f", f, (group.order,))
    if f.dtype != torch.int64:
        raise TypeError(f"f must be of dtype torch.int64 for an exact rank, got {f.dtype}")
    check_int("chunk", chunk)
    if f.ndim != 2 or not len(f) or bool((f == 0).all(-1).any()):
        raise ValueError(f"f must hold nonzero functions, shape (functions, {group.order}), got {tuple(f.shape)}")
    ranks, rows = [], []
    for part in f.split(chunk):
        matrices = convolution_matrices(group, part)
        ranks.append(rank_modulo(matrices))
        equal = (matrices[:, :, None] == matrices[:, None]).all(-1)
        rows.append((~equal.tril(-1).any(-1)).sum(-1))
    blocks = GroupFourier(group).forward(f.double())
    values, _ = spectrum(blocks)
    positive = values > 1e-9 * values.amax(-1, keepdim=True)
    # a block of dimension d has rank (number of its positive singular values), each listed with weight d
    return Uncertainty(
        group.order,
        (f != 0).sum(-1),
        torch.cat(ranks),
        torch.cat(rows),
        fourier_rank(blocks, 1e-9),
        positive.sum(-1),
    )


def draw_functions(group: FiniteGroup, kind: str, count: int, generator: torch.Generator) -> Tensor:
    """Return random nonzero integer functions of one kind, ``int64`` of shape ``(at most count, |G|)``.

    Parameters
    ----------
    group
        The group, small enough for a multiplication table.
    kind
        ``"sparse"``: few random values. ``"low-rank"``: a∗1_H∗b for sparse a, b and a subgroup H, of rank at most
        |G|/|H|. ``"coset"``: a multiple of the indicator of a left or right coset. ``"scattered"``: the indicator of
        a set that has the size of a proper nontrivial subgroup and is no coset: the control.
    count
        How many to draw. Zero functions are left out, and so are cosets among the scattered sets.
    generator
        Source of randomness.
    """
    check_choice("kind", kind, ["sparse", "low-rank", "coset", "scattered"])
    check_int("count", count)
    subgroups = random_subgroups(group, 40, generator)
    picked = torch.randint(len(subgroups), (count,), generator=generator).tolist()
    indicators = torch.stack([torch.zeros(group.order, dtype=torch.int64).index_fill(0, H, 1) for H in subgroups])
    if kind == "sparse":
        f = _sparse(group, count, generator)
    elif kind == "low-rank":
        a, b = (convolution_matrices(group, _sparse(group, count, generator, 3)) for _ in range(2))
        f = (a @ (convolution_matrices(group, indicators[picked]) @ b))[:, :, group.index(group.identity())]
    elif kind == "coset":
        f = _translates(group, indicators[picked], generator) * torch.randint(1, 10, (count, 1), generator=generator)
    else:
        proper = [H for H in subgroups if 1 < len(H) < group.order]
        if not proper:
            raise ValueError(f"group must have a proper nontrivial subgroup for scattered sets, got {group}")
        sizes = torch.tensor([len(H) for H in proper])[torch.randint(len(proper), (count,), generator=generator)]
        places = torch.rand(count, group.order, generator=generator).argsort(-1).argsort(-1)
        f = (places < sizes[:, None]).long()
        f = f[~_is_coset(group, f)]
    return f[(f != 0).any(-1)]


def _sparse(group: FiniteGroup, count: int, generator: torch.Generator, largest: int | None = None) -> Tensor:
    """Return functions with 1 … largest nonzero values between −9 and 9."""
    largest = group.order if largest is None else largest
    sizes = torch.randint(1, largest + 1, (count, 1), generator=generator)
    places = torch.rand(count, group.order, generator=generator).argsort(-1).argsort(-1)
    values = torch.randint(1, 10, (count, group.order), generator=generator)
    signs = 2 * torch.randint(2, (count, group.order), generator=generator) - 1
    return (places < sizes) * values * signs


def _translates(group: FiniteGroup, f: Tensor, generator: torch.Generator) -> Tensor:
    """Return random translates, every other one from the left, the rest from the right."""
    u, g = group.elements(), group.sample(len(f), generator)[:, None]
    left = (torch.arange(len(f)) % 2 == 0)[:, None]
    return f.gather(-1, torch.where(left, group.index(group.multiply(g, u)), group.index(group.multiply(u, g))))


def _is_coset(group: FiniteGroup, f: Tensor) -> Tensor:
    """Return which indicators are those of cosets: of gH, where g⁻¹·set is a subgroup for a member g of the set.

    A right coset Hg = g(g⁻¹Hg) is a left coset of another subgroup.
    """
    u = group.elements()
    first = group.inverse(group.element(f.argmax(-1)))[:, None]
    shifted = torch.zeros_like(f).scatter(1, group.index(group.multiply(first, u)), f)
    matrices = convolution_matrices(group, shifted)  # 1_H(uv⁻¹); a subgroup iff 1_H∗1_H = |H| 1_H
    return ((matrices @ shifted[..., None])[..., 0] == shifted.sum(-1, keepdim=True) * shifted).all(-1)
