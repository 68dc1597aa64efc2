"""All irreducible unitary representations of a finite group, computed without tables.

Write the group as A ⋊ H with A a product of cyclic groups (A is trivial if nothing better is known). The irreducible
representations are induced from characters χ of A and representations σ of the stabiliser of χ in H (the little group;
Serre 1977, section 8.2); those of the stabilisers are found in their regular representations
(:func:`decompose_regular`). Nothing of size |G|² is stored: matrices are induced when asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import seeded
from lib.symmetry.group_convolution import moved_characters, split
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import MatrixRepresentation

DECOMPOSITION_LIMIT = 1024  # order of H, whose regular representation is decomposed
_ATTEMPTS = 5


def eigenspaces(table: Tensor, c: Tensor) -> list[Tensor]:
    """Return the eigenspaces of right convolution by the Hermitian part of a group element c.

    The operator (Rv)(u) = Σ_w c(u⁻¹w) v(w), made Hermitian, commutes with all left translations, so its eigenspaces are
    representations of the group. For a random *complex* c they are irreducible; for a real c those of complex and of
    quaternionic type come out in pairs.

    ``table[i, j]`` is the number of the product of i and j, c a function on the group, shape ``(n,)``; the bases are
    orthonormal, shape ``(n, d)`` each.
    """
    operator = c[table.argsort(-1)]  # row u lists the numbers of u⁻¹w
    values, vectors = torch.linalg.eigh((operator + operator.mH) / 2)
    gap = max(1e-9, 64 * torch.finfo(c.dtype).eps) * float((values[-1] - values[0]).detach())
    sizes = torch.unique_consecutive((values.diff(prepend=values[:1]) > gap).cumsum(0), return_counts=True)[1]
    return list(vectors.split(sizes.tolist(), dim=-1))


def decompose_regular(table: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return all irreducible unitary representations of a small group, by decomposing its regular representation.

    For every dimension d that occurs, in ascending order, these are the matrices, shape ``(n_d, n, d, d)``; sorted by
    character, the trivial representation first. For a table of no group a ``RuntimeError`` says that no random element
    separates them.
    """
    n, left = len(table), table.argsort(-1)
    u = torch.arange(n, device=table.device)
    one = int((table.diagonal() == u).nonzero())
    conjugates = table[left[:, left[:, one]], u[:, None]]  # row u, column g: the number of u⁻¹g⁻¹u
    for _ in range(_ATTEMPTS):
        c = torch.randn(n, dtype=torch.complex128, generator=generator, device=generator.device).to(table.device)
        found: list[tuple[Tensor, Tensor]] = []
        for basis in eigenspaces(table, c):
            # The projection P = VV* commutes with left translations: χ(g) = Σ_u P(u, gu) = Σ_u P(u⁻¹g⁻¹u, 1).
            chi = (basis @ basis[one].conj())[conjugates].sum(0)
            if all(abs(torch.vdot(chi, other)) < n / 2 for other, _ in found):
                found.append((chi, basis))
        irreducible = all(abs(torch.vdot(chi, chi).real - n) < 1e-6 * n for chi, _ in found)
        if irreducible and sum(basis.shape[1] ** 2 for _, basis in found) == n:
            return _matrices_by_dimension(table, found)
    raise RuntimeError(f"no decomposition of the regular representation of order {n} in {_ATTEMPTS} attempts")


def _matrices_by_dimension(table: Tensor, found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """Return V* L(g) V for the eigenspaces V, where (L(g)V)(u) = V(g⁻¹u), stacked by dimension."""
    left, stacks = table.argsort(-1), {}
    found = sorted(found, key=lambda pair: [(-round(z.real, 6), -round(z.imag, 6)) for z in pair[0].tolist()])
    for _, V in found:
        stacks.setdefault(V.shape[1], []).append(torch.einsum("ua,gub->gab", V.conj(), V[left]))
    return tuple(torch.stack(stacks[d]) for d in sorted(stacks))


@dataclass(frozen=True)
class Family:
    """The irreducible representations of A ⋊ H induced from characters with one stabiliser S in H.

    With coset representatives t_i of H/S the matrix of (a, h) has the blocks
    ``ρ(a, h)_ij = (t_i χ)(a) σ(t_i⁻¹ h t_j)``, zero where ``t_i⁻¹ h t_j`` is not in S. Elements are given by number.
    """

    characters: Tensor  # the orbits t_i χ, (K, m)
    little: tuple[Tensor, ...]  # the irreducible representations σ of S by dimension δ, (q, s, δ, δ)
    place: Tensor  # of t_i⁻¹ h t_j in S, or s if it is outside, (|H|, m, m)
    source: Tensor  # the elements t_i s t_j⁻¹ of H, (m, m, s)


class Irreducibles:
    """All irreducible unitary representations of a finite group, up to equivalence.

    Matrices are stacked by dimension: a tensor of shape ``(..., n_d, d, d)`` for each dimension d, in ascending order.
    The trivial representation is the first of those of dimension one.

    The group is abelian, as a product of cyclic groups; or a semidirect (direct, dihedral) product whose normal factor
    is of this kind; or any other group of order at most ``DECOMPOSITION_LIMIT``, which also limits the complement H.
    The seed is that of the random elements that decompose regular representations.

    ``dims`` and ``counts`` are the dimensions d, and the numbers n_d of representations; ``moduli`` the orders of the
    cyclic factors of A, ``(1,)`` if A is trivial; ``families`` the representations, family by family.
    """

    def __init__(self, group: FiniteGroup, seed: int = 0) -> None:
        self.group = group
        self.moduli, self.complement = split(group) or ((1,), group)
        if self.complement.order > DECOMPOSITION_LIMIT:
            wanted = f"A ⋊ H with A a product of cyclic groups and H of order at most {DECOMPOSITION_LIMIT}"
            raise ValueError(f"group must be {wanted}, got {group} with |H| = {self.complement.order}")
        self._table = self.complement.cayley_table()
        self.families = self._find_families(seeded(seed))
        sizes = [
            (len(F.characters) * len(s), F.characters.shape[1] * s.shape[-1]) for F in self.families for s in F.little
        ]
        self.dims = tuple(sorted({d for _, d in sizes}))
        self.counts = tuple(sum(count for count, d in sizes if d == dim) for dim in self.dims)

    def matrices(self, g: Tensor) -> tuple[Tensor, ...]:
        """Return ρ(g) for all ρ, shape ``(..., n_d, d, d)`` per dimension d, for g of shape ``(..., *element_shape)``.

        This takes |G| complex numbers per element: pass few elements of a large group at a time.
        """
        number = self.group.index(g).cpu()
        a, h = number // self.complement.order, number % self.complement.order
        stacks: dict[int, list[Tensor]] = {d: [] for d in self.dims}
        for family in self.families:
            chi = self.characters(family.characters, a)  # (..., K, m)
            for sigma in family.little:
                padded = torch.cat([sigma, torch.zeros_like(sigma[:, :1])], dim=1)
                blocks = padded.transpose(0, 1)[family.place[h]].movedim(-3, -5)  # (..., q, m, m, δ, δ)
                product = chi[..., None, :, None, None, None] * blocks.unsqueeze(-6)
                block = product.transpose(-3, -2).flatten(-2).flatten(-3, -2).flatten(-4, -3)  # (..., K·q, m·δ, m·δ)
                stacks[block.shape[-1]].append(block)
        return tuple(torch.cat(stack, dim=-3).to(g.device) for stack in stacks.values())

    def characters(self, k: Tensor, a: Tensor) -> Tensor:
        """Return χ_k(a) = exp(2πi Σ_j k_j a_j / n_j) for numbers k and a, shape ``(*a.shape, *k.shape)``."""
        period = math.lcm(*self.moduli)
        scale = torch.tensor([period // n for n in self.moduli], device=a.device)
        a, k = self._residues(a).double(), (self._residues(k) * scale).double()  # CUDA has no products of integers
        angle = 2 * torch.pi / period * (torch.tensordot(a, k, dims=([-1], [-1])) % period)
        return torch.polar(torch.ones_like(angle), angle)

    def representation(self, d: int, place: int) -> MatrixRepresentation:
        """Return one irreducible representation: number ``place`` of those of dimension d."""
        position = self.dims.index(d)
        return MatrixRepresentation(
            self.group, d, lambda g: self.matrices(g)[position][..., place, :, :], f"ρ{d}.{place}[{self.group}]"
        )

    def _residues(self, number: Tensor) -> Tensor:
        """Return the residues of the element of A (or of the character) with a number, shape ``(..., r)``."""
        return torch.stack(torch.unravel_index(number, self.moduli), -1)

    def _find_families(self, generator: torch.Generator) -> tuple[Family, ...]:
        """Sort the orbits of H on characters by stabiliser; each orbit starts at its smallest stabiliser.

        H acts by (h·χ)(a) = χ(φ_h⁻¹(a)); row h of ``moved`` lists the numbers of h·χ_k.
        """
        moved = moved_characters(self.group, self.moduli, self.complement)[self._table.argsort(-1)[:, self._one()]]
        fixed = moved == moved[self._one()]
        orbits: dict[tuple[int, ...], list[Tensor]] = {}
        seen = torch.zeros(moved.shape[1], dtype=torch.bool, device="cpu")
        for k in range(moved.shape[1]):
            if not seen[k]:
                seen[moved[:, k]] = True
                stabilisers = {tuple(fixed[:, l].nonzero()[:, 0].tolist()): l for l in moved[:, k].unique().tolist()}
                smallest = min(stabilisers)
                orbits.setdefault(smallest, []).append(moved[:, stabilisers[smallest]])
        pairs = ((torch.tensor(S, device="cpu"), torch.stack(rows)) for S, rows in orbits.items())
        return tuple(self._family(members, rows, generator) for members, rows in pairs)

    def _family(self, members: Tensor, orbits: Tensor, generator: torch.Generator) -> Family:
        """Build the family of a stabiliser S, given its members and ``orbits[k, h]``, the number of h·χ_k."""
        table, left = self._table, self._table.argsort(-1)
        position = torch.full_like(table[0], len(members))
        position[members] = torch.arange(len(members), device="cpu")
        t = table[:, members].amin(-1).unique()  # each left coset tS has one smallest element
        inverse = left[t, self._one()]
        source = table[table[t[:, None, None], members], inverse[None, :, None]]
        h = torch.arange(len(table), device="cpu")[:, None, None]
        place = position[table[left[t[:, None], h], t]]
        little = decompose_regular(position[table[members[:, None], members]], generator)
        return Family(orbits[:, t], little, place, source)

    def _one(self) -> int:
        return int(self.complement.index(self.complement.identity()))
