"""Groups that permutations generate, and two semidirect products that the chapter on Fourier space needs."""

from __future__ import annotations

import torch
from torch import Tensor

from lib.checks import check_int
from lib.symmetry.actions import translations
from lib.symmetry.groups import Cyclic, PermutationGroup, Quaternion, SemidirectProduct

CLOSURE_LIMIT = 4096  # elements of a group given by generators, unless the caller allows more


class GeneratedGroup(PermutationGroup):
    """The group that given permutations generate, numbered in lexicographic order: number 0 is the identity.

    The generators are ``int64`` of shape ``(r, n)``, r ≥ 1. A ``ValueError`` says which is no permutation, or that the
    group has more than ``limit`` elements.

    >>> GeneratedGroup(torch.tensor([[1, 2, 0, 4, 3]]), "turn and swap").order
    6
    """

    def __init__(self, permutations: Tensor, name: str, limit: int = CLOSURE_LIMIT) -> None:
        if permutations.dtype != torch.int64 or permutations.ndim != 2 or not permutations.numel():
            got = f"{permutations.dtype} of shape {tuple(permutations.shape)}"
            raise ValueError(f"permutations must be torch.int64 of shape (r, n) with r, n ≥ 1, got {got}")
        count = permutations.shape[-1]
        if not (permutations.sort(-1).values == torch.arange(count, device=permutations.device)).all():
            raise ValueError(f"permutations must list every number from 0 to {count - 1} once in each row")
        self.n, self.name = count, name
        self.element_shape = (self.n,)
        self._generators = permutations.to("cpu", copy=True)
        self._weights = torch.randint(2**62, (self.n,), generator=torch.Generator().manual_seed(0), device="cpu")
        self._table = self._close(limit)
        self.order = len(self._table)
        self._codes, self._numbers = self._code(self._table).sort()

    def _code(self, a: Tensor) -> Tensor:
        """Return a 64-bit fingerprint, a random linear form modulo 2^64."""
        return (a * self._weights.to(a.device)).sum(-1)

    def _close(self, limit: int) -> Tensor:
        """Return all products of generators, found breadth first, in lexicographic order."""
        found = [frontier := self.identity()[None]]
        codes = set(self._code(frontier).tolist())
        while len(frontier):
            products = torch.cat([frontier[:, s] for s in self._generators])
            first = {code: place for place, code in enumerate(self._code(products).tolist()) if code not in codes}
            frontier = products[list(first.values())]
            found.append(frontier)
            codes.update(first)
            if len(codes) > limit:
                raise ValueError(f"{self.name} must have at most limit = {limit} elements, got {len(codes)} unclosed")
        return torch.cat(found).unique(dim=0)

    def identity(self) -> Tensor:
        """Return ``(0, 1, …, n − 1)``."""
        return torch.arange(self.n, device="cpu")

    def element(self, index: Tensor) -> Tensor:
        """Return the permutations with the given numbers."""
        return self._table.to(index.device)[index]

    def index(self, a: Tensor) -> Tensor:
        """Return the numbers of permutations in the group."""
        place = torch.searchsorted(self._codes.to(a.device), self._code(a)).clamp(max=self.order - 1)
        return self._numbers.to(a.device)[place]

    def generators(self) -> Tensor:
        """Return the generators, as given."""
        return self._generators.clone()


def frobenius(p: int, q: int) -> SemidirectProduct:
    """Return the Frobenius group C_p ⋊ C_q of order pq: a generator of C_q multiplies residues by an m of order q."""
    check_int("p", p, minimum=3, maximum=10_000)
    check_int("q", q, minimum=2, maximum=p - 1)
    if any(p % k == 0 for k in range(2, int(p**0.5) + 1)):
        raise ValueError(f"p must be a prime, got {p}")
    if (p - 1) % q:
        raise ValueError(f"q must divide p - 1 = {p - 1}, got {q}")
    m = next(m for m in range(2, p) if pow(m, q, p) == 1 and all(pow(m, k, p) != 1 for k in range(1, q)))
    powers = torch.tensor([pow(m, k, p) for k in range(q)], device="cpu")
    return SemidirectProduct(Cyclic(p), Cyclic(q), lambda h, n: powers.to(h.device)[h] * n % p, f"F{p * q}")


def quaternions_on_plane() -> SemidirectProduct:
    """Return (C5×C5) ⋊ Q8 of order 200: Q8 acts on the plane over the field of five elements, freely away from 0."""
    one, a, x = torch.tensor([[[1, 0], [0, 1]], [[2, 0], [0, 3]], [[0, -1], [1, 0]]], device="cpu")
    matrices = torch.stack([power @ flip % 5 for power in (one, a, a @ a, a @ a @ a) for flip in (one, x)])
    H, N = Quaternion(8), translations(5)

    def action(h: Tensor, n: Tensor) -> Tensor:
        return (matrices.to(h.device)[H.index(h)] * n[..., None, :]).sum(-1) % 5

    return SemidirectProduct(N, H, action, "(C5×C5)⋊Q8")
