"""Compact Lie groups as groups of matrices, with Haar samplers and quadrature of class functions.

Every sampler is exact: Gaussian matrices are turned into orthonormal ones by a QR factorisation whose phases are made
unique, which is what makes the result invariant (Mezzadri 2007; Stewart 1980).
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from lib.checks import check_int, check_tensor
from lib.symmetry.abstract import ENUMERATION_LIMIT, Group


class CompactLieGroup(Group):
    """A compact Lie group, of ``lie_dimension`` as a manifold, with elements in ``float64`` or ``complex128``."""

    lie_dimension: int
    is_finite = False
    dtype: torch.dtype = torch.float64

    @abstractmethod
    def lie_algebra(self) -> Tensor:
        """Return a basis of the Lie algebra, shape ``(lie_dimension, *element_shape)``."""

    @abstractmethod
    def exp(self, x: Tensor) -> Tensor:
        """Return the group element ``exp(x)`` of a Lie algebra element ``x``."""

    def generators(self) -> Tensor:
        """Return no generators: the group is connected, its Lie algebra suffices."""
        return torch.zeros(0, *self.element_shape, dtype=self.dtype, device="cpu")

    @abstractmethod
    def class_quadrature(self, degree: int) -> tuple[Tensor, Tensor]:
        """Return elements of maximal tori and weights that integrate class functions by Weyl's formula.

        Exact for characters of representations that occur in tensor powers V^⊗p ⊗ (V*)^⊗q with p + q ≤ degree,
        where V is the defining representation (on a torus: for weights of size at most ``degree``).

        A ``ValueError`` says that the grid of angles would have more than ``ENUMERATION_LIMIT`` matrix entries.
        """


class _MatrixGroup(CompactLieGroup):
    """Matrix groups: product, inverse and exponential are those of matrices."""

    n: int

    def identity(self) -> Tensor:
        """Return the unit matrix."""
        return torch.eye(self.n, dtype=self.dtype, device="cpu")

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the matrix product."""
        return a @ b

    def inverse(self, a: Tensor) -> Tensor:
        """Return the conjugate transpose."""
        return a.mH

    def contains(self, a: Tensor) -> Tensor:
        """Return which matrices are unitary, to half the digits of their dtype."""
        defect = (a.mH @ a - torch.eye(self.n, dtype=a.dtype, device=a.device)).abs().amax((-2, -1))
        return defect < torch.finfo(a.dtype).eps ** 0.5

    def exp(self, x: Tensor) -> Tensor:
        """Return the matrix exponential."""
        return torch.linalg.matrix_exp(check_tensor("x", x, (self.n, self.n), inexact=True))

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return ``count`` Haar-distributed matrices of O(n) or U(n)."""
        device = generator.device if generator is not None else "cpu"
        gaussian = torch.randn(count, self.n, self.n, dtype=self.dtype, generator=generator, device=device)
        q, r = torch.linalg.qr(gaussian)
        phase = torch.diagonal(r, dim1=-2, dim2=-1)
        return q * (phase / phase.abs())[..., None, :]


class Orthogonal(_MatrixGroup):
    """The orthogonal group O(n): real n×n matrices with orthonormal columns."""

    def __init__(self, n: int) -> None:
        self.n = check_int("n", n)
        self.name, self.element_shape, self.lie_dimension = f"O({n})", (n, n), n * (n - 1) // 2

    def lie_algebra(self) -> Tensor:
        """Return the antisymmetric matrices ``E_ij − E_ji`` for i < j."""
        row, column = torch.triu_indices(self.n, self.n, offset=1, device="cpu")
        basis = torch.zeros(self.lie_dimension, self.n, self.n, dtype=self.dtype, device="cpu")
        k = torch.arange(self.lie_dimension, device="cpu")
        basis[k, row, column], basis[k, column, row] = 1.0, -1.0
        return basis

    def generators(self) -> Tensor:
        """Return the reflection of the first coordinate, which leads from SO(n) to the rest of O(n)."""
        reflection = torch.eye(self.n, dtype=self.dtype, device="cpu")
        reflection[0, 0] = -1.0
        return reflection[None]

    def class_quadrature(self, degree: int) -> tuple[Tensor, Tensor]:
        """Return the average of the quadratures of the two components of O(n)."""
        g, w = _orthogonal_torus(self.n, degree, determinant=1)
        h, v = _orthogonal_torus(self.n, degree, determinant=-1)
        return torch.cat([g, h]), torch.cat([w, v]) / 2


class SpecialOrthogonal(Orthogonal):
    """The rotation group SO(n): orthogonal matrices of determinant one."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.name = f"SO({n})"

    def generators(self) -> Tensor:
        """Return no generators: SO(n) is connected."""
        return CompactLieGroup.generators(self)

    def contains(self, a: Tensor) -> Tensor:
        """Return which matrices are orthogonal with positive determinant."""
        return super().contains(a) & (torch.linalg.det(a.double()) > 0)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return Haar-distributed rotations: orthogonal ones, the first column negated where the determinant is −1."""
        g = super().sample(count, generator)
        sign = torch.linalg.det(g)[:, None]
        return torch.cat([g[..., :1] * sign[..., None], g[..., 1:]], dim=-1)

    def class_quadrature(self, degree: int) -> tuple[Tensor, Tensor]:
        """Return rotations by a grid of angles in ⌊n/2⌋ planes, with Weyl's density."""
        return _orthogonal_torus(self.n, degree, determinant=1)


class Unitary(_MatrixGroup):
    """The unitary group U(n)."""

    dtype = torch.complex128

    def __init__(self, n: int) -> None:
        self.n = check_int("n", n)
        self.name, self.element_shape, self.lie_dimension = f"U({n})", (n, n), n * n

    def lie_algebra(self) -> Tensor:
        """Return the antihermitian matrices ``E_ij − E_ji``, ``i(E_ij + E_ji)`` for i < j and ``i E_jj``."""
        real = Orthogonal(self.n).lie_algebra().to(self.dtype)
        diagonal = torch.diag_embed(torch.eye(self.n, dtype=self.dtype, device="cpu"))
        return torch.cat([real, 1j * real.abs().to(self.dtype), 1j * diagonal])

    def class_quadrature(self, degree: int) -> tuple[Tensor, Tensor]:
        """Return diagonal matrices on a grid of angles with density ``Π_{j<k} |z_j − z_k|² / n!``."""
        angles = _angle_grid(self.n, degree + self.n, self.n**2)
        z = torch.polar(torch.ones_like(angles), angles)
        weight = _vandermonde((z[:, :, None] - z[:, None, :]).abs() ** 2) / math.factorial(self.n)
        return torch.diag_embed(z), weight / len(z)


class Torus(CompactLieGroup):
    """The torus T^k: k angles modulo 2π."""

    def __init__(self, k: int) -> None:
        self.k = self.lie_dimension = check_int("k", k)
        self.name, self.element_shape = f"T{k}", (k,)

    def identity(self) -> Tensor:
        """Return the zero angles."""
        return torch.zeros(self.k, dtype=self.dtype, device="cpu")

    def contains(self, a: Tensor) -> Tensor:
        """Return that all lists of angles are elements."""
        return torch.ones(a.shape[:-1], dtype=torch.bool, device=a.device)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sum of the angles modulo 2π."""
        return torch.remainder(a + b, 2 * math.pi)

    def inverse(self, a: Tensor) -> Tensor:
        """Return the negative angles modulo 2π."""
        return torch.remainder(-a, 2 * math.pi)

    def lie_algebra(self) -> Tensor:
        """Return the unit vectors."""
        return torch.eye(self.k, dtype=self.dtype, device="cpu")

    def exp(self, x: Tensor) -> Tensor:
        """Return the angles ``x`` modulo 2π."""
        return torch.remainder(x, 2 * math.pi)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return uniform angles, shape ``(count, k)``."""
        device = generator.device if generator is not None else "cpu"
        return 2 * math.pi * torch.rand(count, self.k, dtype=self.dtype, generator=generator, device=device)

    def class_quadrature(self, degree: int) -> tuple[Tensor, Tensor]:
        """Return the uniform grid with ``degree + 1`` angles in each direction."""
        grid = _angle_grid(self.k, degree + 1, self.k)
        return grid, torch.full_like(grid[:, 0], 1.0 / len(grid))


def _angle_grid(k: int, points: int, entries: int) -> Tensor:
    """Return equidistant angles in k directions, ``(points**k, k)``; each becomes an element of so many entries."""
    if points**k * entries > ENUMERATION_LIMIT:
        wanted = f"{points}^{k} nodes of {entries} entries"
        raise ValueError(f"degree or dimension too large for a quadrature: {wanted}, allowed are {ENUMERATION_LIMIT}")
    angles = 2 * math.pi * torch.arange(points, dtype=torch.float64, device="cpu") / points
    return torch.cartesian_prod(*[angles] * k).reshape(points**k, k) if k else angles.new_zeros(1, 0)


def _vandermonde(difference: Tensor) -> Tensor:
    """Return ``Π_{j<k} difference[:, j, k]``."""
    j, k = torch.triu_indices(difference.shape[-1], difference.shape[-1], offset=1, device="cpu")
    return difference[:, j, k].prod(-1)


def _orthogonal_torus(n: int, degree: int, determinant: int) -> tuple[Tensor, Tensor]:
    """Quadrature of class functions on one component of O(n), from Weyl's densities (Meckes 2019, Theorem 3.5).

    Rotations by angles θ in planes, and fixed eigenvalues: none or +1 on SO(n), (+1, −1) or −1 on the other component.
    The density is ``Π_{j<k} (2cos θ_j − 2cos θ_k)²`` times ``Π_j (1 − e·cos θ_j)`` for one fixed eigenvalue e, or
    ``Π_j sin² θ_j`` for the pair (+1, −1).
    """
    fixed = [1.0] * (n % 2) if determinant == 1 else [1.0, -1.0][n % 2 :]
    planes = (n - len(fixed)) // 2
    theta = _angle_grid(planes, degree + n + 1, n * n)
    cosine, sine = theta.cos(), theta.sin()
    weight = _vandermonde((2 * cosine[:, :, None] - 2 * cosine[:, None, :]) ** 2)
    if len(fixed) == 1:
        weight = weight * (1 - fixed[0] * cosine).prod(-1)
    elif len(fixed) == 2:
        weight = weight * (sine**2).prod(-1)
    g = theta.new_zeros(len(theta), n, n)
    for p in range(planes):
        i = slice(2 * p, 2 * p + 2)
        g[:, i, i] = torch.stack([cosine[:, p], -sine[:, p], sine[:, p], cosine[:, p]], -1).reshape(-1, 2, 2)
    for place, value in enumerate(fixed, start=2 * planes):
        g[:, place, place] = value
    return g, weight / weight.sum()
