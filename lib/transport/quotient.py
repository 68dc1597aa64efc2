"""Distances between orbits: groups of isometries seen through the quotient space they leave behind.

Distances ``min_σ ‖x − σy‖`` have a closed form where one exists. Points are rows of tensors ``(..., n, dim)``; leading
axes are independent replicates.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_tensor, unit_of
from lib.symmetry.representations import Representation

CHUNK = 2**25  # entries of the largest intermediate array


@dataclass(frozen=True)
class Isometries:
    """A group acting by isometries on R^dim or on the flat torus R^dim / Z^dim."""

    name: str  #: for messages and tables
    order: int | float  #: number of elements, ``math.inf`` for a Lie group
    dim: int  #: of the space
    quotient_dim: int  #: of its quotient by the group
    formula: Callable[[Tensor, Tensor], Tensor]  #: :meth:`distance` for points of about unit size
    images: Callable[[Tensor], Tensor] | None = None  #: ``(..., n, dim) -> (order, ..., n, dim)``, of finite groups
    line: Callable[[Tensor], Tensor] | None = None  #: isometry of the quotient onto a piece of the line, if it is one
    circle: float | None = None  #: circumference where the quotient is a circle (of the first coordinate)
    turns: int | float | None = None  #: for rotations of the plane their number, ``math.inf`` for all of SO(2)
    periodic: bool = False  #: whether the space is the flat torus with coordinates modulo one

    def __repr__(self) -> str:
        """Return the name."""
        return self.name

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``min_σ ‖x_i − σ y_j‖``, the distance between the orbits of x_i and y_j.

        Points have shapes ``(..., n, dim)`` and ``(..., m, dim)``, distances ``(..., n, m)``.

        >>> no_group(2).distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        tensor([[1.4142]])
        """
        x, y, unit = self.scaled(x, y)
        return unit * self.formula(x, y)

    def plain_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances of the points themselves, shape ``(..., n, m)``."""
        x, y, unit = self.scaled(x, y)
        return unit * (_torus_distance(x, y, 1.0) if self.periodic else euclidean(x, y))

    def scaled(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return points divided by the power of two near the largest coordinate, and this unit; by 1 on a torus."""
        self.check(x, y)
        unit = unit_of(torch.cat([x.flatten(), y.flatten()]))
        unit = torch.ones_like(unit) if self.periodic else unit
        return x / unit, y / unit, unit

    def check(self, x: Tensor, y: Tensor) -> None:
        """Raise unless x and y hold points of the space, finite, in single or double precision."""
        for name, points in (("x", x), ("y", y)):
            if not check_tensor(name, points, (None, self.dim), inexact=True, real=True).numel():
                raise ValueError(f"{name} must hold at least one point, got shape {tuple(points.shape)}")


def no_group(dim: int) -> Isometries:
    """Return the group of one element on R^dim; on the flat torus it is ``lattice(1, dim)``.

    >>> no_group(2).distance(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    line = (lambda x: x[..., 0]) if dim == 1 else None
    return Isometries(f"nothing on R^{dim}", 1, dim, dim, euclidean, lambda x: x[None], line)


def lattice(k: int, dim: int) -> Isometries:
    """Return the k^dim translations of the flat torus by multiples of 1/k; the quotient is a torus of side 1/k.

    >>> lattice(2, 1).distance(torch.tensor([[0.25]]), torch.tensor([[0.75]]))  # half of the circle apart
    tensor([[0.]])
    """

    def images(x: Tensor) -> Tensor:
        step = torch.arange(k, dtype=x.dtype, device=x.device) / k
        shifts = torch.cartesian_prod(*[step] * dim).reshape(k**dim, *[1] * (x.ndim - 1), dim)
        return torch.remainder(x + shifts, 1.0)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        return _torus_distance(x, y, 1 / k)

    name, circle = f"translations by 1/{k} of the torus T^{dim}", 1 / k if dim == 1 else None
    return Isometries(name, k**dim, dim, dim, formula, images, circle=circle, periodic=True)


def turns(order: int) -> Isometries:
    """Return the rotations of the plane by multiples of 2π/order; the quotient is a cone.

    The nearest image is the one whose angle differs least, so the cost does not depend on the order:
    ``(r − ρ)² + 4rρ sin²(δ/2)`` with δ the difference of angles, reduced to ``|δ| ≤ π/order``.

    >>> x, y = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    >>> turns(4).distance(x, y).round(decimals=6)  # a quarter turn apart
    tensor([[0.]], dtype=torch.float64)
    """
    step = 2 * math.pi / order

    def formula(x: Tensor, y: Tensor) -> Tensor:
        (r, theta), (rho, phi) = polar(x), polar(y)
        delta = theta[..., :, None] - phi[..., None, :]
        delta = delta - step * torch.round(delta / step)
        r, rho = r[..., :, None], rho[..., None, :]
        return _root((r - rho) ** 2 + 4 * r * rho * torch.sin(delta / 2) ** 2)

    def images(x: Tensor) -> Tensor:
        angle = step * torch.arange(order, dtype=x.dtype, device=x.device)
        g = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).reshape(order, 2, 2)
        return torch.einsum("gij,...j->g...i", g, x)

    return Isometries(f"C{order} on R^2", order, 2, 2, formula, images, turns=order)


def polar(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return radius and angle of points of the plane, shape ``(..., 2)``; both have slope zero at the origin."""
    return _hypot(x[..., 0], x[..., 1]), torch.atan2(x[..., 1], torch.where(x.any(-1), x[..., 0], 1))


def linear(representation: Representation) -> Isometries:
    """Return a finite group acting by a real orthogonal representation (permutations, matrices, images).

    The distance runs through all images, in blocks that fit in memory.

    >>> from lib.symmetry.actions import natural
    >>> from lib.symmetry.groups import Symmetric
    >>> x, y = torch.tensor([[1.0, 2.0, 3.0]]).double(), torch.tensor([[3.0, 1.0, 2.0]]).double()
    >>> linear(natural(Symmetric(3))).distance(x, y)
    tensor([[0.]], dtype=torch.float64)
    """
    if not representation.group.is_finite or representation.is_complex:
        raise TypeError(f"representation must be real, of a finite group, got {representation!r}")
    if not representation.is_unitary:
        raise ValueError(f"representation must act by isometries, {representation!r} does not")
    g = representation.group.elements()

    def images(x: Tensor) -> Tensor:
        h = g.to(x.device).reshape(len(g), *[1] * (x.ndim - 1), *g.shape[1:])
        return representation.apply(h, x)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        size = max(1, CHUNK // (x[..., 0].numel() * y.shape[-2]))
        return functools.reduce(torch.minimum, (euclidean(x, block).amin(0) for block in images(y).split(size)))

    name, dim = f"{representation.group} on {representation.name}", representation.dim
    return Isometries(name, len(g), dim, dim, formula, images)


def radial(dim: int) -> Isometries:
    """Return SO(dim) acting on R^dim, dim ≥ 2: orbits are spheres, their distance is ``||x| − |y||``."""

    def line(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, dim=-1)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        return (line(x)[..., :, None] - line(y)[..., None, :]).abs()

    every = math.inf if dim == 2 else None
    return Isometries(f"SO({dim}) on R^{dim}", math.inf, dim, 1, formula, line=line, turns=every)


def phase(count: int) -> Isometries:
    """Return U(1) multiplying vectors of C^count by a phase; rows are real parts, then imaginary parts.

    The best phase is that of the inner product ⟨y, x⟩, and the squared distance ``|x|² + |y|² − 2|⟨x, y⟩|``. It is
    computed as ``(|x| − |y|)² + 2 Σ_{a<b} |x_a y_b − x_b y_a|² / (|x||y| + |⟨x, y⟩|)``, the same by Lagrange's identity
    and exact also for close points. The quotient has dimension ``2·count − 1``.
    """

    def formula(x: Tensor, y: Tensor) -> Tensor:
        (u, v), (a, b) = ((p[..., :count], p[..., count:]) for p in (x, y))
        inner = _hypot(u @ a.mT + v @ b.mT, v @ a.mT - u @ b.mT)
        r, rho = torch.linalg.vector_norm(x, dim=-1)[..., :, None], torch.linalg.vector_norm(y, dim=-1)[..., None, :]
        size = (r * rho + inner).clamp_min(torch.finfo(x.dtype).tiny).sqrt()  # zero only where the minors are
        square, sign = (r - rho) ** 2, x.new_tensor([1.0, -1.0])
        for i, j in itertools.combinations(range(count), 2):
            s, t = u[..., [i, j]], v[..., [i, j]]
            c, d = ((sign * p[..., [j, i]]).mT for p in (a, b))
            square = square + 2 * (((s @ c - t @ d) / size) ** 2 + ((s @ d + t @ c) / size) ** 2)
        return _root(square)

    return Isometries(f"U(1) on C^{count}", math.inf, 2 * count, 2 * count - 1, formula)


def pairs_in_space() -> Isometries:
    """Return SO(3) acting on pairs of points of R^3 (rows of six numbers), with a quotient of dimension three.

    A rotation brings the first point p onto an axis and the second, q, into the plane, to ``(p·q, |p × q|)/|p|``; what
    is left is the angle between two such pairs, seen as vectors of C^2: :func:`phase`. That is the orthogonal
    Procrustes problem, and unlike its value ``tr G + tr H − 2 ‖XYᵀ‖_*`` exact also for close points.
    """
    in_plane = phase(2).formula

    def flat(p: Tensor) -> Tensor:
        first, second = p[..., :3], p[..., 3:]
        a, size = (t.norm(dim=-1) for t in (first, second))
        axis = first / torch.where(a > 0, a, 1)[..., None]
        b = torch.where(a > 0, (axis * second).sum(-1), size)
        c = torch.linalg.vector_norm(torch.linalg.cross(axis, second), dim=-1)
        return torch.stack([a, b, torch.zeros_like(a), c], -1)

    return Isometries("SO(3) on pairs of points", math.inf, 6, 3, lambda x, y: in_plane(flat(x), flat(y)))


def moduli(count: int) -> Isometries:
    """Return the torus T^count turning each coordinate of C^count; orbits are told apart by the moduli."""

    def chart(x: Tensor) -> Tensor:
        return _hypot(x[..., :count], x[..., count:])

    def formula(x: Tensor, y: Tensor) -> Tensor:
        return euclidean(chart(x), chart(y))

    line = (lambda x: chart(x)[..., 0]) if count == 1 else None
    return Isometries(f"T^{count} on C^{count}", math.inf, 2 * count, count, formula, line=line)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Return pairwise distances from differences, not from inner products: exact also for close points."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _root(x: Tensor) -> Tensor:  # with slope zero at zero, where distances have none
    return torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), 0)


def _hypot(a: Tensor, b: Tensor) -> Tensor:  # with slope zero at the origin
    away = (a != 0) | (b != 0)
    return torch.where(away, torch.hypot(torch.where(away, a, 1), b), 0)


def _torus_distance(x: Tensor, y: Tensor, period: float) -> Tensor:
    """Return pairwise distances modulo a period; points are reduced first, so that no difference has to be."""
    x, y = torch.remainder(x, period), torch.remainder(y, period)
    square = torch.zeros((), dtype=x.dtype, device=x.device)
    for axis in range(x.shape[-1]):
        step = (x[..., :, None, axis] - y[..., None, :, axis]).abs()
        square = torch.minimum(step, period - step).square() + square
    return _root(square)
