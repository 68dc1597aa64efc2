"""Finite groups whose elements are small integer vectors.

An element is an ``int64`` tensor; products are computed from the vectors, never from a Cayley table, so that S_10 with
its 3 628 800 elements costs no more to set up than C_2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lib.checks import check_int
from lib.symmetry.abstract import FiniteGroup
from lib.symmetry.abstract import Group as Group  # imported from here by all who use groups

LARGEST_ORDER = 2**62  # elements are numbered, and added, in 64 bits


class Cyclic(FiniteGroup):
    """The cyclic group C_n: residues modulo n under addition.

    >>> G = Cyclic(4)
    >>> G.order, G.multiply(torch.tensor([3]), torch.tensor([2]))
    (4, tensor([1]))
    """

    def __init__(self, n: int) -> None:
        self.n = self.order = check_int("n", n, maximum=LARGEST_ORDER)
        self.name, self.element_shape = f"C{n}", (1,)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``a + b mod n``."""
        return (a + b) % self.n

    def inverse(self, a: Tensor) -> Tensor:
        """Return ``−a mod n``."""
        return -a % self.n

    def generators(self) -> Tensor:
        """Return the residue 1."""
        return torch.tensor([[1 % self.n]], device="cpu")


class PermutationGroup(FiniteGroup):
    """A group of permutations: an element is the list of images of 0 … n − 1; products compose right to left."""

    n: int

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``(ab)(i) = a(b(i))``."""
        a, b = torch.broadcast_tensors(a, b)
        return torch.gather(a, -1, b)

    def inverse(self, a: Tensor) -> Tensor:
        """Return the inverse permutation."""
        return torch.argsort(a, dim=-1)


class Symmetric(PermutationGroup):
    """The symmetric group S_n of all permutations.

    Elements are numbered by their Lehmer code in the factorial number system, which fits 64 bits for n ≤ 20.

    >>> Symmetric(10).order
    3628800
    >>> Symmetric(3).multiply(torch.tensor([1, 0, 2]), torch.tensor([0, 2, 1]))  # the right one first
    tensor([1, 2, 0])
    """

    def __init__(self, n: int) -> None:
        self.n = check_int("n", n, maximum=20)
        self.order = math.factorial(self.n)
        self.name, self.element_shape = f"S{n}", (self.n,)

    def contains(self, a: Tensor) -> Tensor:
        """Return which vectors list every number from 0 to n − 1 once."""
        return (a.sort(-1).values == torch.arange(self.n, device=a.device)).all(-1)

    def element(self, index: Tensor) -> Tensor:
        """Return the permutation with the given lexicographic rank."""
        images = torch.zeros(*index.shape, self.n, dtype=torch.int64, device=index.device)
        for place in range(self.n - 1, -1, -1):
            digit = index // math.factorial(self.n - 1 - place) % (self.n - place)
            images[..., place + 1 :] += images[..., place + 1 :] >= digit[..., None]
            images[..., place] = digit
        return images

    def index(self, a: Tensor) -> Tensor:
        """Return the lexicographic rank."""
        rank = torch.zeros(a.shape[:-1], dtype=torch.int64, device=a.device)
        for place in range(self.n):
            smaller = (a[..., place + 1 :] < a[..., place, None]).sum(-1)
            rank += smaller * math.factorial(self.n - 1 - place)
        return rank

    def generators(self) -> Tensor:
        """Return the transposition (0 1) and the cycle (0 1 … n − 1)."""
        swap = torch.arange(self.n, device="cpu")
        swap[:2] = swap[:2].flip(0)
        return torch.stack([swap, torch.arange(self.n, device="cpu").roll(-1)])

    def class_quadrature(self, degree: int | None = None) -> tuple[Tensor, Tensor]:
        """Return one permutation per cycle type λ, with the share of S_n that has this type.

        The share is ``1 / Π_k k^{m_k} m_k!`` where ``m_k`` counts the cycles of length k.
        """
        elements, weights = [], []
        for cycle_type in _partitions(self.n, self.n):
            images, start, size = torch.arange(self.n, device="cpu"), 0, 1
            for length in cycle_type:
                images[start : start + length] = images[start : start + length].roll(-1)
                start, size = start + length, size * length
            for length in set(cycle_type):
                size *= math.factorial(cycle_type.count(length))
            elements.append(images)
            weights.append(1.0 / size)
        return torch.stack(elements), torch.tensor(weights, dtype=torch.float64, device="cpu")


class Alternating(Symmetric):
    """The alternating group A_n of even permutations, n ≥ 3."""

    def __init__(self, n: int) -> None:
        super().__init__(check_int("n", n, minimum=3, maximum=20))
        self.order //= 2
        self.name = f"A{n}"

    def contains(self, a: Tensor) -> Tensor:
        """Return which vectors are even permutations."""
        return super().contains(a) & (_parity(a) == 0)

    def element(self, index: Tensor) -> Tensor:
        """Return the even one of the two permutations of rank ``2·index`` and ``2·index + 1``."""
        images = super().element(2 * index)
        odd = _parity(images)[..., None].bool()
        swapped = torch.cat([images[..., :-2], images[..., -2:].flip(-1)], dim=-1)
        return torch.where(odd, swapped, images)

    def index(self, a: Tensor) -> Tensor:
        """Return half the lexicographic rank, rounded down."""
        return super().index(a) // 2

    def generators(self) -> Tensor:
        """Return (0 1 2) and a cycle of odd length, n or n − 1, that moves the remaining points."""
        three = torch.arange(self.n, device="cpu")
        three[:3] = torch.tensor([1, 2, 0], device="cpu")
        cycle, start = torch.arange(self.n, device="cpu"), 1 - self.n % 2
        cycle[start:] = cycle[start:].roll(-1)
        return torch.stack([three, cycle])

    def class_quadrature(self, degree: int | None = None) -> tuple[Tensor, Tensor]:
        """Return two permutations per even cycle type, since such a class of S_n can split into two of A_n.

        The two are conjugate by the odd permutation (0 1), hence one from each half where the class splits.
        """
        elements, weights = super().class_quadrature(degree)
        even = _parity(elements) == 0
        elements, swap = elements[even], super().generators()[0]
        conjugate = self.multiply(self.multiply(swap, elements), swap)
        return torch.cat([elements, conjugate]), weights[even].repeat(2)


class Quaternion(FiniteGroup):
    """The generalised quaternion (dicyclic) group of order 4m: a^{2m} = 1, x² = a^m, x a x⁻¹ = a⁻¹.

    An element ``(k, e)`` stands for ``a^k x^e``. Order 8 is the group {±1, ±i, ±j, ±k} with a = i, x = j.
    """

    def __init__(self, order: int = 8) -> None:
        self.order = check_int("order", order, minimum=4, maximum=LARGEST_ORDER)
        if order % 4:
            raise ValueError(f"order must be a multiple of 4, got {order}")
        self.m = order // 4
        self.name, self.element_shape = f"Q{order}", (2,)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``a^k x^e · a^l x^f = a^{k ± l + m·e·f} x^{e+f}``, minus where e = 1."""
        (k, e), (l, f) = a.unbind(-1), b.unbind(-1)
        k = (k + (1 - 2 * e) * l + self.m * e * f) % (2 * self.m)
        return torch.stack([k, (e + f) % 2], -1)

    def inverse(self, a: Tensor) -> Tensor:
        """Return the inverse: ``a^{−k}``, or ``a^{k+m} x`` for elements with e = 1."""
        k, e = a.unbind(-1)
        return torch.stack([torch.where(e == 1, k + self.m, -k) % (2 * self.m), e], -1)

    def element(self, index: Tensor) -> Tensor:
        """Return ``(index // 2, index mod 2)``."""
        return torch.stack([index // 2, index % 2], -1)

    def index(self, a: Tensor) -> Tensor:
        """Return ``2k + e``."""
        return 2 * a[..., 0] + a[..., 1]

    def generators(self) -> Tensor:
        """Return a and x."""
        return torch.tensor([[1, 0], [0, 1]], device="cpu")


class SemidirectProduct(FiniteGroup):
    """The semidirect product N ⋊ H: pairs with ``(n, h)(n′, h′) = (n · φ_h(n′), h h′)``.

    ``action(h, n)`` returns ``φ_h(n)``, vectorised. A ``ValueError`` says that φ is no homomorphism from H into Aut(N)
    on the elements tried (generators and 64 random ones), or that the order exceeds ``LARGEST_ORDER``.
    """

    def __init__(
        self, normal: FiniteGroup, complement: FiniteGroup, action: Callable[[Tensor, Tensor], Tensor], name: str
    ) -> None:
        self.normal, self.complement, self.action = normal, complement, action
        self.order = check_int("order", normal.order * complement.order, maximum=LARGEST_ORDER)
        self.split = normal.element_shape[0]
        self.element_shape = (self.split + complement.element_shape[0],)
        self.name = name
        generator = torch.Generator().manual_seed(0)
        N, H = normal, complement
        n, m = (torch.cat([N.generators(), N.sample(64, generator)]) for _ in range(2))
        h, k = (torch.cat([H.generators(), H.sample(64, generator)])[:, None] for _ in range(2))
        m, k = m.flip(0), k.flip(0)
        if not torch.equal(action(H.identity(), n), n):
            raise ValueError(f"action must be by automorphisms of {N}: φ_1(n) differs from n")
        if not torch.equal(action(h, N.multiply(n, m)), N.multiply(action(h, n), action(h, m))):
            raise ValueError(f"action must act by automorphisms of {N}: φ_h(nm) differs from φ_h(n)φ_h(m)")
        if not torch.equal(action(H.multiply(h, k), n), action(h, action(k, n))):
            raise ValueError(f"action must be a homomorphism of {H}: φ_hk differs from φ_h φ_k")

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``(n φ_h(n′), h h′)``."""
        (n, h), (m, k) = self.parts(a), self.parts(b)
        return self.join(self.normal.multiply(n, self.action(h, m)), self.complement.multiply(h, k))

    def inverse(self, a: Tensor) -> Tensor:
        """Return ``(φ_{h⁻¹}(n⁻¹), h⁻¹)``."""
        n, h = self.parts(a)
        h = self.complement.inverse(h)
        return self.join(self.action(h, self.normal.inverse(n)), h)

    def parts(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the components in N and in H."""
        return a[..., : self.split], a[..., self.split :]

    def join(self, n: Tensor, h: Tensor) -> Tensor:
        """Return the pair ``(n, h)``; leading axes broadcast."""
        shape = torch.broadcast_shapes(n.shape[:-1], h.shape[:-1])
        return torch.cat([n.expand(*shape, -1), h.expand(*shape, -1)], dim=-1)

    def element(self, index: Tensor) -> Tensor:
        """Return the pair with numbers ``index // |H|`` in N and ``index mod |H|`` in H."""
        size = self.complement.order
        return self.join(self.normal.element(index // size), self.complement.element(index % size))

    def index(self, a: Tensor) -> Tensor:
        """Return the number of the pair."""
        n, h = self.parts(a)
        return self.normal.index(n) * self.complement.order + self.complement.index(h)

    def generators(self) -> Tensor:
        """Return the generators of N and of H."""
        n, h = self.normal.generators(), self.complement.generators()
        return torch.cat([self.join(n, self.complement.identity()), self.join(self.normal.identity(), h)])


class DirectProduct(SemidirectProduct):
    """The direct product of two groups: the semidirect product with trivial action.

    >>> DirectProduct(Cyclic(2), Symmetric(3)).order
    12
    """

    def __init__(self, first: FiniteGroup, second: FiniteGroup) -> None:
        super().__init__(
            first,
            second,
            lambda h, n: n.expand(*torch.broadcast_shapes(h.shape[:-1], n.shape[:-1]), -1),
            f"{first}×{second}",
        )

    def class_quadrature(self, degree: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the pairs of the factors' nodes, with the products of their weights."""
        (n, v), (h, w) = self.normal.class_quadrature(degree), self.complement.class_quadrature(degree)
        return self.join(n[:, None], h).flatten(0, 1), (v[:, None] * w).flatten()


class Dihedral(SemidirectProduct):
    """The dihedral group D_n of order 2n, symmetries of the regular n-gon: C_n ⋊ C_2 acting by inversion.

    An element ``(a, b)`` stands for ``r^a s^b``: first reflect if b = 1, then turn by a steps.

    >>> G = Dihedral(4)
    >>> r, s = G.generators()
    >>> G.order, bool((G.multiply(r, s) == G.multiply(s, r)).all())
    (8, False)
    """

    def __init__(self, n: int) -> None:
        self.n = check_int("n", n)
        super().__init__(Cyclic(n), Cyclic(2), lambda h, a: (1 - 2 * h) * a % n, f"D{n}")


def _parity(images: Tensor) -> Tensor:
    inversions = images[..., :, None] > images[..., None, :]
    return torch.triu(inversions, diagonal=1).sum((-2, -1)) % 2


def _partitions(total: int, largest: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    for part in range(min(total, largest), 0, -1):
        for rest in _partitions(total - part, part):
            yield part, *rest
