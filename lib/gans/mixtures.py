"""Mixtures with four-fold symmetry, in the plane or in a plane of a larger space: targets of generative models.

Four copies of one law sit on the corners of a square, one in each sector around the origin; C4 permutes them. Equal
weights make the mixture invariant, other weights make a law without the symmetry out of the same four pieces. In R^dim
the group turns dim/2 coordinate planes at once, so that it leaves every complex line invariant: that the data are
invariant does not tell in which plane they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lib.checks import check_float, check_instance, check_int, check_tensor
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic
from lib.symmetry.representations import DirectSum, Representation

TURNS = 4


def planes(count: int) -> Representation:
    """Return C4 turning each of ``count`` coordinate planes of R^(2 count) by the same quarter turns."""
    plane = planar(Cyclic(TURNS))
    return plane if check_int("count", count) == 1 else DirectSum(*[plane] * count)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of four equal pieces on the corners of a square, ``x = E (R^k c + scale · ξ)`` with k random.

    R is the quarter turn, c = radius · (1, 1)/√2, and ξ is a standard Gaussian or a Student vector of the plane.

    Attributes
    ----------
    dim : int
        Dimension of the space, even.
    radius, scale : float
        Distance of the pieces from the origin, and their width.
    freedom : float or None
        Degrees of freedom of the Student law, ``ξ = √(ν/χ²_ν) · N(0, 1)``; ``None`` for the Gaussian. At ν ≤ 1 the mean
        does not exist.
    weights : tuple of float
        Chances of the four pieces, counted anticlockwise; the law is invariant when they are equal.
    embedding : Tensor
        The isometry E of the plane onto a complex line of R^dim, shape ``(dim, 2)``; it commutes with the turns.

    Raises
    ------
    TypeError, ValueError
        A dimension that is odd, sizes that are not positive, weights that are no probabilities.
    """

    dim: int = 2
    radius: float = 3.0
    scale: float = 0.4
    freedom: float | None = None
    weights: tuple[float, ...] = (0.25,) * TURNS
    embedding: Tensor = field(init=False)

    def __post_init__(self) -> None:
        if check_int("dim", self.dim, minimum=2) % 2:
            raise ValueError(f"dim must be even, got {self.dim}")
        for name in ("radius", "scale"):
            check_float(name, getattr(self, name), minimum=1e-6)
        if self.freedom is not None:
            check_float("freedom", self.freedom, minimum=0.1)
        if (
            len(check_instance("weights", self.weights, Sequence)) != TURNS
            or abs(sum(check_float("weights", w, 0.0) for w in self.weights) - 1) > 1e-9
        ):
            raise ValueError(f"weights must be {TURNS} chances that sum to one, got {self.weights}")
        object.__setattr__(self, "embedding", _complex_line(self.dim))

    @property
    def representation(self) -> Representation:
        """The action of C4 on R^dim: quarter turns of all coordinate planes."""
        return planes(self.dim // 2)

    @property
    def is_invariant(self) -> bool:
        """Whether all pieces are equally likely, so that the law is invariant."""
        return max(self.weights) == min(self.weights)

    def sample(
        self,
        shape: Sequence[int],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Return independent points, shape ``(*shape, dim)``."""
        check_instance("generator", generator, torch.Generator)
        count = math.prod(check_int("shape", size) for size in check_instance("shape", shape, Sequence))
        which = torch.multinomial(torch.tensor(self.weights, device="cpu").double(), count, True, generator=generator)
        return self._points(which, generator).to(device, dtype).reshape(*shape, self.dim)

    def reference(
        self,
        shape: Sequence[int],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Return points whose numbers in the four pieces are in proportion (up to rounding), else as :meth:`sample`.

        Stratified so, the last axis of ``shape`` represents the law with less chance than independent points do.
        """
        rows, count = math.prod(check_int("shape", size) for size in shape[:-1]), check_int("shape", shape[-1])
        places = (torch.arange(count, device="cpu").double() + 0.5) / count
        ends = torch.tensor(self.weights, device="cpu").double().cumsum(0)
        which = torch.bucketize(places, ends).clamp_max(TURNS - 1)
        return self._points(which.repeat(rows), generator).to(device, dtype).reshape(*shape, self.dim)

    def _points(self, which: Tensor, generator: torch.Generator) -> Tensor:
        """Return a point of each of the given pieces, shape ``(count, dim)``."""
        count = len(which)
        noise = torch.randn(count, 2, generator=generator, dtype=torch.float64, device=generator.device)
        if self.freedom is not None:
            half = torch.full((count, 1), self.freedom / 2, dtype=torch.float64, device=generator.device)
            noise = noise * torch.sqrt(half / torch._standard_gamma(half, generator=generator))
        angle = math.pi / 4 + math.pi / 2 * which.double()
        points = self.radius * torch.stack([angle.cos(), angle.sin()], -1) + self.scale * noise
        return points @ self.embedding.mT

    def coordinates(self, points: Tensor) -> Tensor:
        """Return the coordinates of points in the plane of the data, ``Eᵀx``, shape ``(..., 2)``."""
        check_tensor("points", points, (self.dim,), inexact=True, real=True)
        return points @ self.embedding.to(points)

    def sector(self, points: Tensor) -> Tensor:
        """Return in which quarter of the plane points lie, 0 to 3 anticlockwise, shape ``(...)``."""
        plane = self.coordinates(points)
        return torch.where(plane[..., 1] >= 0, (plane[..., 0] < 0).long(), 2 + (plane[..., 0] >= 0).long())

    def shares(self, points: Tensor) -> Tensor:
        """Return the share of a sample ``(..., n, dim)`` in each sector, shape ``(..., 4)``."""
        check_tensor("points", points, (None, self.dim))
        return torch.nn.functional.one_hot(self.sector(points), TURNS).double().mean(-2)


def gaussian_mixture(dim: int = 2, weights: tuple[float, ...] = (0.25,) * TURNS) -> Mixture:
    """Return the mixture of four Gaussians."""
    return Mixture(dim, weights=weights)


def student_mixture(dim: int = 12, freedom: float = 0.5, weights: tuple[float, ...] = (0.25,) * TURNS) -> Mixture:
    """Return the mixture of four Student laws, with 1/2 degree of freedom in a plane of R^12 (Birrell et al. 2022).

    At 1/2 degree of freedom E‖x‖ is infinite, and with it the Wasserstein-1 distance to every sample.
    """
    return Mixture(dim, scale=0.2, freedom=freedom, weights=weights)


def squash(x: Tensor) -> Tensor:
    """Return ``x · log(1 + ‖x‖)/‖x‖``, shape ``(..., dim)``: it keeps directions and takes logarithms of lengths.

    A smooth bijection of R^dim that commutes with all orthogonal maps. A length with tail P(‖x‖ > r) ~ r^{-ν} becomes
    one with tail e^{-νr}, which has all moments.
    """
    check_tensor("x", x, (None,), inexact=True, real=True)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return x * (torch.log1p(length) / length)


def unsquash(u: Tensor) -> Tensor:
    """Return ``u · (e^{‖u‖} − 1)/‖u‖``, the inverse of :func:`squash`."""
    check_tensor("u", u, (None,), inexact=True, real=True)
    length = torch.linalg.vector_norm(u, dim=-1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny)
    return u * (torch.expm1(length) / length)


def _complex_line(dim: int) -> Tensor:
    """Return an isometry of the plane into R^dim that commutes with the turns: a unit vector of C^(dim/2), drawn once.

    In the plane itself it is the identity.
    """
    if dim == 2:
        return torch.eye(2, dtype=torch.float64, device="cpu")
    line = torch.randn(dim // 2, 2, generator=torch.Generator().manual_seed(dim), dtype=torch.float64, device="cpu")
    a, b = (line / line.norm()).unbind(-1)
    return torch.stack([torch.stack([a, -b], -1), torch.stack([b, a], -1)], 1).reshape(dim, 2)
