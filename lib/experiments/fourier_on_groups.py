"""Chapter *Implicit bias in Fourier space*, first part: irreducible representations and what holds for them (B13)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_int, seeded
from lib.symmetry.actions import motions, translations
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.generated import frobenius, quaternions_on_plane
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.irreps import eigenspaces, subspace_character

Census = dict[int, int]  # dimension -> number of irreducible representations


@dataclass(frozen=True)
class Settings:
    """Sizes of the chapter's experiments.

    Attributes
    ----------
    seeds : int
        Repetitions of the comparison of architectures on functions on D_32.
    starts : int
        Starts of every network in the tests of optimality.
    seed : int
        Number of the independent set of all repetitions.
    """

    seeds: int = 10
    starts: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("seed", self.seed, minimum=0)
        for name in ("seeds", "starts"):
            check_int(name, getattr(self, name), maximum=1000)


def dihedral_census(n: int) -> Census:
    """Return the census of D_n, of order 2n: four of dimension one if n is even, two if n is odd; the rest are planes.

    (D_1 and D_2 are abelian.)
    """
    check_int("n", n)
    ones = 4 if n % 2 == 0 else 2
    planes = (2 * n - ones) // 4
    return {1: ones, 2: planes} if planes else {1: ones}


def catalogue() -> dict[str, tuple[FiniteGroup, Census]]:
    """Return all groups of the chapter, with how many irreducible representations of each dimension are known to exist.

    The name D60 stands for order 60 in some texts and for order 120 in others; both are here.
    """
    cases: list[tuple[FiniteGroup, Census]] = [
        *[(Cyclic(n), {1: n}) for n in (12, 16, 24, 28, 64)],
        (DirectProduct(Cyclic(3), Cyclic(3)), {1: 9}),
        (Symmetric(3), {1: 2, 2: 1}),
        (Symmetric(4), {1: 2, 2: 1, 3: 2}),
        (Alternating(4), {1: 3, 3: 1}),
        (Alternating(5), {1: 1, 3: 2, 4: 1, 5: 1}),
        (Quaternion(8), {1: 4, 2: 1}),
        (frobenius(7, 3), {1: 3, 3: 2}),
        (quaternions_on_plane(), {1: 4, 2: 1, 8: 3}),
        *[(Dihedral(n), dihedral_census(n)) for n in (6, 7, 30, 32, 60)],
        (motions(8, Dihedral(4)), {1: 8, 2: 6, 4: 18, 8: 3}),
        (DirectProduct(translations(8), Dihedral(4)), {1: 256, 2: 64}),
        (motions(28, Dihedral(4)), {1: 8, 2: 6, 4: 78, 8: 78}),
        (DirectProduct(translations(28), Dihedral(4)), {1: 3136, 2: 784}),
    ]
    return {group.name: (group, census) for group, census in cases}


def unbraided() -> dict[str, tuple[FiniteGroup, FiniteGroup]]:
    """Return semidirect products, each with the direct product of its factors, whose elements have the same numbers."""
    groups = [frobenius(7, 3), Dihedral(7), quaternions_on_plane(), motions(28, Dihedral(4))]
    return {G.name: (G, DirectProduct(G.normal, G.complement)) for G in groups}


def census_defect(fourier: GroupFourier, stated: Census) -> int:
    """Return the largest |number found − number stated| of irreducible representations of one dimension."""
    found = dict(zip(fourier.dims, fourier.counts, strict=True))
    return max(abs(found.get(d, 0) - stated.get(d, 0)) for d in found | stated)


def class_count(group: FiniteGroup) -> int:
    """Return the number of conjugacy classes, by conjugating all elements with generators until labels settle."""
    g, s = group.elements(), group.generators()[:, None]
    images = group.index(group.multiply(group.multiply(s, g), group.inverse(s)))
    labels = torch.arange(group.order)
    while True:
        smaller = labels
        for image in images:
            smaller = torch.minimum(smaller, smaller[image])
            smaller = smaller.scatter_reduce(0, image, smaller, "amin")
        if torch.equal(smaller, labels):
            return len(labels.unique())
        labels = smaller


@dataclass(frozen=True)
class Identities:
    """Largest relative deviations from the identities of Fourier analysis; see :func:`check_identities`.

    Attributes
    ----------
    homomorphism, unitarity : float
        ρ(s)ρ(g) = ρ(sg) for generators s, and ρ(g)ρ(g)* = 1.
    completeness : float
        |Σ d_ρ² − |G|| / |G|.
    schur : float
        Schur orthogonality of the matrix coefficients.
    transform : float
        The fast transform and its inverse against their definitions.
    convolution, plancherel : float
        (h∗w)^(ρ) = ĥ(ρ)ŵ(ρ), and Σ f ḡ = (1/|G|) Σ d_ρ tr(f̂(ρ)ĝ(ρ)*).
    """

    homomorphism: float
    unitarity: float
    completeness: float
    schur: float
    transform: float
    convolution: float
    plancherel: float

    @property
    def worst(self) -> float:
        """The largest of them."""
        return max(vars(self).values())


def check_identities(group: FiniteGroup, fourier: GroupFourier | None = None, seed: int = 0) -> Identities:
    """Measure the identities of Fourier analysis for a complete set of irreducible representations.

    What concerns single elements is measured on all of them, or on 256 random ones of a larger group: unitarity,
    homomorphism (with every generator), and that the fast transform and its inverse agree with their definitions there.
    The rest is measured on random functions and blocks: Schur orthogonality, which says that the inverse followed by
    the transform is the identity on blocks B, Plancherel's identity, and the convolution theorem for an h with at most
    64 nonzero values, convolved by summation.

    Parameters
    ----------
    group
        The group whose products count.
    fourier
        The transform to be examined, by default the group's own; the control hands over that of another group whose
        elements have the same numbers.
    seed
        Seed of the random functions and elements.
    """
    fourier = GroupFourier(group) if fourier is None else fourier
    if fourier.order != group.order:
        raise ValueError(f"fourier must belong to a group of order {group.order}, got order {fourier.order}")
    generator = seeded(seed)
    f, w = torch.randn(2, group.order, dtype=torch.float64, generator=generator)
    random_blocks = [
        torch.randn(n, d, d, dtype=torch.complex128, generator=generator)
        for n, d in zip(fourier.counts, fourier.dims, strict=True)
    ]
    numbers = torch.randperm(group.order, generator=generator)[:256]
    rho = _numbered_matrices(fourier, numbers)
    return Identities(
        homomorphism=_homomorphism_defect(group, fourier, numbers, rho),
        unitarity=max(float((r @ r.mH - torch.eye(r.shape[-1])).abs().max()) for r in rho),
        completeness=abs(sum(n * d**2 for n, d in zip(fourier.counts, fourier.dims, strict=True)) / group.order - 1),
        schur=_relative(fourier.forward(fourier.inverse(random_blocks)), random_blocks),
        transform=_definition_defect(fourier, f, random_blocks, numbers, rho),
        convolution=_convolution_defect(group, fourier, f, w, numbers[:64]),
        plancherel=_plancherel_defect(fourier, f, w),
    )


def _numbered_matrices(fourier: GroupFourier, numbers: Tensor) -> tuple[Tensor, ...]:
    """Return the matrices of the elements with these numbers, in the group that the transform belongs to."""
    return fourier.irreducibles.matrices(fourier.group.element(numbers))


def _definition_defect(
    fourier: GroupFourier, f: Tensor, blocks: list[Tensor], numbers: Tensor, rho: tuple[Tensor, ...]
) -> float:
    """Compare the fast maps with Σ_u f(u)ρ(u) for f supported on the given elements, and with the inverse at them."""
    part = torch.zeros_like(f).index_put((numbers,), f[numbers])
    summed = [torch.tensordot(f[numbers].to(r), r, dims=1) for r in rho]
    traces = [
        d * torch.einsum("nij,unij->u", block, r.conj()) for d, block, r in zip(fourier.dims, blocks, rho, strict=True)
    ]
    values = torch.stack(traces).sum(0) / fourier.order
    return max(_relative(fourier.forward(part), summed), _relative([fourier.inverse(blocks)[numbers]], [values]))


def _plancherel_defect(fourier: GroupFourier, f: Tensor, w: Tensor) -> float:
    blocks = zip(fourier.dims, fourier.forward(f), fourier.forward(w), strict=True)
    inner = sum(d * (a * b.conj()).sum() for d, a, b in blocks) / fourier.order
    return float(abs(inner - f @ w) / (f.norm() * w.norm()))


def _homomorphism_defect(group: FiniteGroup, fourier: GroupFourier, numbers: Tensor, rho: tuple[Tensor, ...]) -> float:
    """Return max |ρ(s)ρ(g) − ρ(sg)| over generators s and the given elements g."""
    g, defect = group.element(numbers), 0.0
    for s in group.generators():
        product = _numbered_matrices(fourier, group.index(group.multiply(s, g)))
        parts = zip(_numbered_matrices(fourier, group.index(s)), rho, product, strict=True)
        defect = max(defect, *(float((a @ b - c).abs().max()) for a, b, c in parts))
    return defect


def _convolution_defect(group: FiniteGroup, fourier: GroupFourier, f: Tensor, w: Tensor, support: Tensor) -> float:
    """Compare (h∗w)(u) = Σ_x h(x) w(x⁻¹u), summed over the support of h, with the product of coefficients."""
    h = torch.zeros_like(f).index_put((support,), f[support])
    x, u = group.element(support)[:, None], group.elements()
    summed = f[support] @ w[group.index(group.multiply(group.inverse(x), u))]
    product = [a @ b for a, b in zip(fourier.forward(h), fourier.forward(w), strict=True)]
    return _relative(fourier.forward(summed), product)


def _relative(found: list[Tensor] | tuple[Tensor, ...], wanted: list[Tensor] | tuple[Tensor, ...]) -> float:
    """Return the largest difference over the largest entry."""
    difference = max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))
    return difference / max(float(b.abs().max()) for b in wanted)


def shortcut_defect(group: FiniteGroup, seed: int = 0) -> float:
    """Return max |⟨χ, χ⟩ − 1| over the eigenspaces of right convolution by a random *real* element.

    Zero where all irreducible representations are real, as for dihedral and symmetric groups; where there are complex
    or quaternionic ones, two copies stay together.
    """
    if not isinstance(group, FiniteGroup):
        raise TypeError(f"group must be a FiniteGroup, got {group!r} of type {type(group).__name__}")
    table = group.cayley_table()
    c = torch.randn(group.order, dtype=torch.float64, generator=seeded(seed))
    norms = [subspace_character(table, b).square().sum() / group.order for b in eigenspaces(table, c)]
    return max(abs(float(x) - 1) for x in norms)
