"""Distances between orbits: groups of isometries seen through the quotient space they leave behind.

An :class:`Isometries` knows the distance ``min_σ ‖x − σy‖`` between the orbits of two points, in closed form where one
exists, and, for a finite group, the images of a point. Points are rows of tensors ``(..., n, dim)``; leading axes are
independent replicates.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_callable, check_instance, check_int, check_tensor, holds
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation

CHUNK = 2**25  # entries of the largest intermediate array


@dataclass(frozen=True)
class Isometries:
    """A group acting by isometries on R^dim or on the flat torus R^dim / Z^dim.

    Attributes
    ----------
    name : str
        Name for messages and tables.
    order : int or float
        Number of elements, ``math.inf`` for a Lie group.
    dim, quotient_dim : int
        Dimension of the space and of its quotient by the group.
    periodic : bool
        Whether the space is the flat torus with coordinates modulo one, instead of R^dim.
    distance : callable
        Distance between orbits, ``(..., n, dim), (..., m, dim) -> (..., n, m)``.
    images : callable or None
        All images of points, ``(..., n, dim) -> (order, ..., n, dim)``; ``None`` for infinite groups.
    line : callable or None
        Where the quotient is a piece of the line, the isometry onto it, ``(..., dim) -> (...)``.
    circle : float or None
        Where the quotient is a circle (of the first coordinate), its circumference.
    turns : int or float or None
        For rotations of the plane, their number, ``math.inf`` for all of SO(2).
    """

    name: str
    order: int | float
    dim: int
    quotient_dim: int
    periodic: bool
    distance: Callable[[Tensor, Tensor], Tensor]
    images: Callable[[Tensor], Tensor] | None = None
    line: Callable[[Tensor], Tensor] | None = None
    circle: float | None = None
    turns: int | float | None = None

    def __repr__(self) -> str:
        """Return the name."""
        return self.name

    def plain_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distances of the points themselves, shape ``(..., n, m)``."""
        check_pair(x, y)
        return _torus_distance(x, y, 1.0) if self.periodic else euclidean(x, y)

    def check_points(self, name: str, x: Any) -> Tensor:
        """Return ``x`` if it holds points of the space, shape ``(..., n, dim)`` with n ≥ 1.

        Raises
        ------
        TypeError
            ``x`` is no real floating-point tensor.
        ValueError
            ``x`` is empty, has another dimension, NaN or infinite entries, or is so small or large that squares of
            distances would leave the dtype's range: beyond about 1e±15 in float32, 1e±123 in float64.
        """
        check_tensor(name, x, (None, self.dim), inexact=True)
        if x.is_complex():
            raise TypeError(f"{name} must be real (complex vectors as real parts, then imaginary parts), got {x.dtype}")
        if not x.numel():
            raise ValueError(f"{name} must hold at least one point, got shape {tuple(x.shape)}")
        largest, kind = x.detach().abs().max(), torch.finfo(x.dtype)
        low, high = kind.tiny**0.4, kind.max**0.4
        if not self.periodic and not holds((largest == 0) | ((low < largest) & (largest < high))):
            wanted = f"a largest coordinate between {low:.0e} and {high:.0e} in {x.dtype}"
            raise ValueError(f"{name} must have {wanted}, got {float(largest):.1e}; rescale the points")
        return x


def quotient_cost(x: Tensor, y: Tensor, action: Isometries) -> Tensor:
    """Return ``min_σ ‖x_i − σ y_j‖``, the distance between the orbits of x_i and y_j.

    Parameters
    ----------
    x, y
        Points, shapes ``(..., n, dim)`` and ``(..., m, dim)``, on any device.
    action
        The group.

    Returns
    -------
    Tensor
        Shape ``(..., n, m)``.

    Raises
    ------
    TypeError, ValueError
        As :meth:`Isometries.check_points`; ``action`` is no :class:`Isometries`.
    """
    check_action(action)
    check_pair(action.check_points("x", x), action.check_points("y", y))
    return action.distance(x, y)


def check_pair(x: Tensor, y: Tensor) -> None:
    """Raise unless two sets of points are of one dtype, float32 or float64, and lie on one device."""
    if x.dtype not in (torch.float32, torch.float64) or (x.dtype, x.device) != (y.dtype, y.device):
        got = f"{x.dtype} on {x.device} and {y.dtype} on {y.device}"
        raise TypeError(f"x and y must both be float32 or both float64, on one device, got {got}")


def check_action(action: Any) -> Isometries:
    """Return ``action`` if it is an :class:`Isometries`; raise ``TypeError`` otherwise."""
    if not isinstance(action, Isometries):
        raise TypeError(f"action must be Isometries (see lib.transport.quotient.linear), got {type(action).__name__}")
    return action


def no_group(dim: int, periodic: bool = False) -> Isometries:
    """Return the group of one element on R^dim, or on the flat torus.

    >>> quotient_cost(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), no_group(2))
    tensor([[1.4142]])
    """
    check_int("dim", dim)
    if periodic:
        return lattice(1, dim)
    line = (lambda x: x[..., 0]) if dim == 1 else None
    return Isometries(f"nothing on R^{dim}", 1, dim, dim, False, euclidean, lambda x: x[None], line)


def lattice(k: int, dim: int) -> Isometries:
    """Return the k^dim translations of the flat torus by multiples of 1/k; the quotient is a torus of side 1/k.

    >>> quotient_cost(torch.tensor([[0.25]]), torch.tensor([[0.75]]), lattice(2, 1))  # half of the circle apart
    tensor([[0.]])
    """
    check_int("k", k)
    check_int("dim", dim)

    def images(x: Tensor) -> Tensor:
        step = torch.arange(k, dtype=x.dtype, device=x.device) / k
        shifts = torch.cartesian_prod(*[step] * dim).reshape(k**dim, *[1] * (x.ndim - 1), dim)
        return torch.remainder(x + shifts, 1.0)

    name, circle = f"translations by 1/{k} of the torus T^{dim}", 1 / k if dim == 1 else None
    return Isometries(name, k**dim, dim, dim, True, lambda x, y: _torus_distance(x, y, 1 / k), images, None, circle)


def turns(order: int) -> Isometries:
    """Return the rotations of the plane by multiples of 2π/order; the quotient is a cone.

    The nearest image is the one whose angle differs least, so the cost does not depend on the order:
    ``(r − ρ)² + 4rρ sin²(δ/2)`` with δ the difference of angles, reduced to ``|δ| ≤ π/order``.

    >>> x, y = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    >>> quotient_cost(x, y, turns(4)).round(decimals=6)  # a quarter turn apart
    tensor([[0.]], dtype=torch.float64)
    """
    check_int("order", order)
    step = 2 * math.pi / order

    def distance(x: Tensor, y: Tensor) -> Tensor:
        (r, theta), (rho, phi) = polar(x), polar(y)
        delta = theta[..., :, None] - phi[..., None, :]
        delta = delta - step * torch.round(delta / step)
        r, rho = r[..., :, None], rho[..., None, :]
        return _root((r - rho) ** 2 + 4 * r * rho * torch.sin(delta / 2) ** 2)

    def images(x: Tensor) -> Tensor:
        angle = step * torch.arange(order, dtype=x.dtype, device=x.device)
        g = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).reshape(order, 2, 2)
        return torch.einsum("gij,...j->g...i", g, x)

    return Isometries(f"C{order} on R^2", order, 2, 2, False, distance, images, turns=order)


def polar(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return radius and angle of points of the plane, shape ``(..., 2)``; both have slope zero at the origin."""
    if not check_instance("x", x, Tensor).is_floating_point() or x.shape[-1:] != (2,):
        raise ValueError(f"x must hold real points of the plane, shape (..., 2), got {x.dtype} of {tuple(x.shape)}")
    return _hypot(x[..., 0], x[..., 1]), torch.atan2(x[..., 1], torch.where(x.any(-1), x[..., 0], 1))


def linear(representation: Representation) -> Isometries:
    """Return a finite group acting by a real orthogonal representation (permutations, matrices, images).

    Raises
    ------
    TypeError
        ``representation`` is none, complex, or of an infinite group.
    ValueError
        It does not act by isometries; the message says by how much ρ(g)ᵀρ(g) misses the identity.

    Examples
    --------
    >>> from lib.symmetry.actions import natural
    >>> from lib.symmetry.groups import Symmetric
    >>> x, y = torch.tensor([[1.0, 2.0, 3.0]]).double(), torch.tensor([[3.0, 1.0, 2.0]]).double()
    >>> quotient_cost(x, y, linear(natural(Symmetric(3))))
    tensor([[0.]], dtype=torch.float64)
    """
    if not isinstance(representation, Representation) or not isinstance(representation.group, FiniteGroup):
        raise TypeError(f"representation must be a Representation of a finite group, got {representation!r}")
    if representation.is_complex:
        raise TypeError(f"representation must be real, got the complex {representation!r}")
    g = representation.group.elements()
    if not representation.is_permutation:
        defect = isometry_defect(representation.matrix(representation.group.generators()))
        if defect > 1e-9:
            raise ValueError(
                f"representation must act by isometries: |ρᵀρ − 1| is {defect:.2g} for {representation.name}"
            )

    def images(x: Tensor) -> Tensor:
        h = g.to(x.device).reshape(len(g), *[1] * (x.ndim - 1), *g.shape[1:])
        return representation.apply(h, x)

    name, dim = f"{representation.group} on {representation.name}", representation.dim
    return Isometries(name, len(g), dim, dim, False, nearest_image(images), images)


def nearest_image(images: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function ``min_σ ‖x − σy‖`` that runs through all images of y, in blocks that fit in memory."""
    check_callable("images", images)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        size = max(1, CHUNK // max(1, x[..., 0].numel() * y.shape[-2]))
        return functools.reduce(torch.minimum, (euclidean(x, block).amin(0) for block in images(y).split(size)))

    return distance


def isometry_defect(matrices: Tensor) -> float:
    """Return the largest entry of ``|MᵀM − 1|`` over matrices, shape ``(..., d, d)``."""
    check_tensor("matrices", matrices, (None, None), inexact=True)
    if not matrices.numel():
        raise ValueError(f"matrices must not be empty, got shape {tuple(matrices.shape)}")
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return float((matrices.mH @ matrices - identity).detach().abs().max())


def radial(dim: int) -> Isometries:
    """Return SO(dim) acting on R^dim, dim ≥ 2: orbits are spheres, their distance is ``||x| − |y||``."""
    check_int("dim", dim, minimum=2)

    def line(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x, dim=-1)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return (line(x)[..., :, None] - line(y)[..., None, :]).abs()

    every = math.inf if dim == 2 else None
    return Isometries(f"SO({dim}) on R^{dim}", math.inf, dim, 1, False, distance, None, line, turns=every)


def phase(count: int) -> Isometries:
    """Return U(1) multiplying vectors of C^count by a phase; rows are real parts, then imaginary parts.

    The best phase is that of the inner product ⟨y, x⟩, and the squared distance ``|x|² + |y|² − 2|⟨x, y⟩|``. It is
    computed as ``(|x| − |y|)² + 2 Σ_{a<b} |x_a y_b − x_b y_a|² / (|x||y| + |⟨x, y⟩|)``, the same by Lagrange's identity
    and exact also for close points. The quotient has dimension ``2·count − 1``.
    """
    check_int("count", count)

    def distance(x: Tensor, y: Tensor) -> Tensor:
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

    return Isometries(f"U(1) on C^{count}", math.inf, 2 * count, 2 * count - 1, False, distance)


def pairs_in_space() -> Isometries:
    """Return SO(3) acting on pairs of points of R^3 (rows of six numbers), with a quotient of dimension three.

    A rotation brings the first point p onto an axis and the second, q, into the plane, to ``(p·q, |p × q|)/|p|``; what
    is left is the angle between two such pairs, seen as vectors of C^2: :func:`phase`. That is the orthogonal
    Procrustes problem, and unlike its value ``tr G + tr H − 2 ‖XYᵀ‖_*`` exact also for close points.
    """
    in_plane = phase(2).distance

    def flat(p: Tensor) -> Tensor:
        first, second = p[..., :3], p[..., 3:]
        a, size = (t.norm(dim=-1) for t in (first, second))
        axis = first / torch.where(a > 0, a, 1)[..., None]
        b = torch.where(a > 0, (axis * second).sum(-1), size)
        c = torch.linalg.vector_norm(torch.linalg.cross(axis, second), dim=-1)
        return torch.stack([a, b, torch.zeros_like(a), c], -1)

    return Isometries("SO(3) on pairs of points", math.inf, 6, 3, False, lambda x, y: in_plane(flat(x), flat(y)))


def moduli(count: int) -> Isometries:
    """Return the torus T^count turning each coordinate of C^count; orbits are told apart by the moduli."""
    check_int("count", count)

    def chart(x: Tensor) -> Tensor:
        return _hypot(x[..., :count], x[..., count:])

    name, line = f"T^{count} on C^{count}", (lambda x: chart(x)[..., 0]) if count == 1 else None
    return Isometries(name, math.inf, 2 * count, count, False, lambda x, y: euclidean(chart(x), chart(y)), None, line)


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
