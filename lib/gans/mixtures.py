"""Mixtures with the symmetry of a group of the plane, there or in a plane of a larger space: what players must learn.

|Σ| copies of one law sit on a circle, one in each sector around the origin; C_n or D_n permutes them (for C4 they are
corners of a square). Equal weights make the mixture invariant, other weights make a law without the symmetry out of the
same pieces. In R^dim the group moves dim/2 coordinate planes at once: that the data are invariant does not tell in
which plane they lie. :func:`score` says how near generated points come to the law, :func:`mmd_loss` is a loss for a
generator alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from lib.checks import check_tensor, unit_of
from lib.symmetry.actions import planar
from lib.symmetry.derived import multiple
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.symmetry.representations import Representation
from lib.transport.divergences import w1
from lib.transport.quotient import linear, no_group

BANDWIDTHS = (1.0, 2.0, 4.0)  # of the bounded kernel of a score; the circle has radius 3


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of |Σ| equal pieces on a circle, ``x = E (R^k c + scale · ξ)`` with k random.

    R turns by 2π/|Σ|, c lies at the angle π/|Σ|, and ξ is a standard Gaussian or a Student vector of the plane,
    ``ξ = √(ν/χ²_ν) · N(0, 1)`` with ν degrees of freedom; at ν ≤ 1 the mean does not exist. (Birrell et al. 2022 have
    ν = 1/2, in a plane of R^12.) The law is invariant when the weights are equal.
    """

    dim: int = 2  #: dimension of the space, even
    radius: float = 3.0  #: distance of the pieces from the origin
    scale: float = 0.4  #: width of the pieces
    freedom: float | None = None  #: ν; ``None`` for the Gaussian
    weights: tuple[float, ...] = ()  #: chances of the pieces, counted anticlockwise; empty for equal ones
    group: FiniteGroup = field(default_factory=lambda: Cyclic(4))  #: Σ, one of C_n and D_n with at least two elements

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise ValueError(f"dim must be even, got {self.dim}")
        if not isinstance(self.group, (Cyclic, Dihedral)) or self.group.order < 2:
            raise ValueError(f"group must be C_n or D_n with at least two elements, got {self.group!r}")
        if not self.weights:
            object.__setattr__(self, "weights", (1 / self.group.order,) * self.group.order)
        if len(self.weights) != self.group.order or abs(sum(self.weights) - 1) > 1e-9:
            raise ValueError(f"weights must be {self.group.order} chances that sum to one, got {self.weights}")

    @cached_property
    def embedding(self) -> Tensor:
        """The isometry E of the plane onto a plane of R^dim that commutes with the group, shape ``(dim, 2)``.

        A unit vector of C^(dim/2), drawn once: it commutes with all turns. For a group with mirrors it is a real one.
        """
        if self.dim == 2:
            return torch.eye(2, dtype=torch.float64, device="cpu")
        rng = torch.Generator().manual_seed(self.dim)
        line = torch.randn(self.dim // 2, 2, generator=rng, dtype=torch.float64, device="cpu")
        line[:, 1] *= isinstance(self.group, Cyclic)
        a, b = (line / line.norm()).unbind(-1)
        return torch.stack([torch.stack([a, -b], -1), torch.stack([b, a], -1)], 1).reshape(self.dim, 2)

    @property
    def representation(self) -> Representation:
        """The action of the group on R^dim: all coordinate planes move alike."""
        return multiple(planar(self.group), self.dim // 2)

    def sample(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return independent points, shape ``(*shape, dim)``."""
        chances = torch.tensor(self.weights, device="cpu").double()
        which = torch.multinomial(chances, math.prod(shape), True, generator=generator)
        return self._points(which, generator).to(dtype).reshape(*shape, self.dim)

    def reference(self, shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return points whose numbers in the pieces are in proportion (up to rounding), else as :meth:`sample`.

        Stratified so, the last axis of ``shape`` represents the law with less chance than independent points do.
        """
        rows, count = math.prod(shape[:-1]), shape[-1]
        places = (torch.arange(count, device="cpu").double() + 0.5) / count
        ends = torch.tensor(self.weights, device="cpu").double().cumsum(0)
        which = torch.bucketize(places, ends).clamp_max(self.group.order - 1)
        return self._points(which.repeat(rows), generator).to(dtype).reshape(*shape, self.dim)

    def _points(self, which: Tensor, generator: torch.Generator) -> Tensor:
        """Return a point of each of the given pieces, shape ``(count, dim)``."""
        count = len(which)
        noise = torch.randn(count, 2, generator=generator, dtype=torch.float64, device=generator.device)
        if self.freedom is not None:
            half = torch.full((count, 1), self.freedom / 2, dtype=torch.float64, device=generator.device)
            noise = noise * torch.sqrt(half / torch._standard_gamma(half, generator=generator))
        angle = (2 * which.double() + 1) * math.pi / self.group.order
        points = self.radius * torch.stack([angle.cos(), angle.sin()], -1) + self.scale * noise
        return points @ self.embedding.mT

    def sector(self, points: Tensor) -> Tensor:
        """Return in which sector of the plane points lie, 0 to |Σ| − 1 anticlockwise, shape ``(...)``."""
        plane = points @ self.embedding.to(points)
        turns = torch.atan2(plane[..., 1], plane[..., 0]) / (2 * math.pi) % 1  # a rounding below 1 may give 1
        return (turns * self.group.order).long() % self.group.order

    def shares(self, points: Tensor) -> Tensor:
        """Return the share of a sample ``(..., n, dim)`` in each sector, shape ``(..., |Σ|)``."""
        return torch.nn.functional.one_hot(self.sector(points), self.group.order).double().mean(-2)


def score(points: Tensor, truth: Tensor, law: Mixture) -> dict[str, Tensor]:
    """Return how near generated points are to points of the true law, float64, one number per run and score.

    ``w1`` and ``w1_invariant``: the Wasserstein-1 distance, and that of orbits; of squashed points where the law has no
    mean. Then also ``mmd``: the root of the squared MMD of a mean of bounded kernels, on points as they are.
    ``smallest_share``: the share of points in the emptiest sector. A run whose points are not finite gets the distance
    NaN and an empty sector. Points and truth have the shapes ``(runs, n, dim)`` and ``(runs, m, dim)``.
    """
    heavy = law.freedom is not None and law.freedom <= 1
    names = ["w1", "w1_invariant"] + ["mmd"] * heavy
    found = {name: points.new_full((len(points),), math.nan, dtype=torch.float64) for name in names}
    found["smallest_share"] = torch.zeros_like(found["w1"])
    good = torch.isfinite(points).all(-1).all(-1)
    if not bool(good.any()):
        return found
    x, y = points[good].double(), truth[good].double()
    seen = (squash(x), squash(y)) if heavy else (x, y)
    for name, action in (("w1", no_group(law.dim)), ("w1_invariant", linear(law.representation))):
        found[name][good] = x.new_tensor([w1(ours, true, action) for ours, true in zip(*seen, strict=True)])
    if heavy:
        found["mmd"][good] = mmd_loss(x, y, gaussian_kernel(BANDWIDTHS)).clamp_min(0).sqrt()
    found["smallest_share"][good] = law.shares(x).amin(-1)
    return found


def gaussian_kernel(bandwidths: Sequence[float]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the kernel ``k(x, y) = mean over s of exp(−‖x − y‖²/2s²)``, a function of two clouds of points."""

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        squares = (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)
        return torch.stack([(squares / (-2 * s * s)).exp() for s in bandwidths]).mean(0)

    return kernel


def mmd_loss(x: Tensor, y: Tensor, kernel: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the unbiased estimate of the squared maximum mean discrepancy (Gretton et al. 2012), one value per run.

    MMD is the supremum of E_Q γ − E_P γ over the unit ball of the kernel's space, which is invariant if the kernel is
    averaged over a group; no discriminator is trained. The estimate may be slightly negative. Clouds ``(..., n, d)``
    and ``(..., m, d)`` have at least two points each; the kernel maps them to the matrix ``(..., n, m)``.
    """
    return _off_diagonal_mean(kernel(x, x)) + _off_diagonal_mean(kernel(y, y)) - 2 * kernel(x, y).mean((-2, -1))


def _off_diagonal_mean(matrix: Tensor) -> Tensor:
    n = matrix.shape[-1]
    return (matrix.sum((-2, -1)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)) / (n * (n - 1))


def squash(x: Tensor) -> Tensor:
    """Return ``x · log(1 + ‖x‖)/‖x‖``, shape ``(..., dim)``: it keeps directions and takes logarithms of lengths.

    A smooth bijection of R^dim that commutes with all orthogonal maps. A length with tail P(‖x‖ > r) ~ r^{-ν} becomes
    one with tail e^{-νr}, which has all moments.
    """
    length = _length(x)
    return x * (torch.log1p(length) / length)


def unsquash(u: Tensor) -> Tensor:
    """Return ``u · (e^{‖u‖} − 1)/‖u‖``, the inverse of :func:`squash`; NaN where a game left the numbers."""
    length = _length(u)
    return u * (torch.expm1(length) / length)


def _length(x: Tensor) -> Tensor:
    """Return the lengths along the last axis, which is kept, at least the smallest normal number."""
    unit = unit_of(check_tensor("x", torch.nan_to_num(x), inexact=True, real=True), -1)
    return (unit * torch.linalg.vector_norm(x / unit, dim=-1, keepdim=True)).clamp_min(torch.finfo(x.dtype).tiny)
