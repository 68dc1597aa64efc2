"""Finite metric spaces with a group that permutes the points, by isometries or not; laws and functions on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_probabilities, check_tensor
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation
from lib.transport.quotient import euclidean
from lib.transport.turned_kernel import check_bandwidth


@dataclass(frozen=True, eq=False)
class FiniteSpace:
    """A finite metric space, with a group of bijections that need *not* be isometries.

    Attributes
    ----------
    points : Tensor
        The points, shape ``(N, dim)``.
    maps : Tensor
        ``maps[σ, i]`` is the index of σ·point_i, shape ``(order, N)``, ``int64``; the rows form a group.
    distances : Tensor
        The metric, shape ``(N, N)``.

    Raises
    ------
    TypeError, ValueError
        Shapes that do not fit; rows of ``maps`` that are no permutations or no group; distances that are no metric.
    """

    points: Tensor
    maps: Tensor
    distances: Tensor

    def __post_init__(self) -> None:
        size = len(check_tensor("points", self.points, (None, None), inexact=True))
        if self.points.ndim != 2 or not size:
            raise ValueError(f"points must have shape (N, dim) with N ≥ 1, got {tuple(self.points.shape)}")
        if check_tensor("maps", self.maps, (None, size)).dtype != torch.int64:
            raise TypeError(f"maps must be of dtype torch.int64, got {self.maps.dtype}")
        every = torch.arange(size, device=self.maps.device)
        if self.maps.ndim != 2 or not torch.equal(self.maps.sort(-1).values, every.expand_as(self.maps)):
            raise ValueError(f"maps must hold permutations of {size} indices, shape (order, {size})")
        rows = {tuple(row) for row in self.maps.tolist()}
        if not rows or {tuple(row) for row in self.maps[:, self.maps].flatten(0, 1).tolist()} != rows:
            raise ValueError("maps must form a group, got a set that is not closed under composition")
        _check_metric(self.distances, size)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def order(self) -> int:
        """Number of group elements."""
        return len(self.maps)

    @cached_property
    def labels(self) -> Tensor:
        """Number of the orbit of every point, shape ``(N,)``."""
        return self.maps.amin(0).unique(return_inverse=True)[1]

    @property
    def orbits(self) -> int:
        """Number of orbits."""
        return int(self.labels.max()) + 1

    def symmetrise_law(self, law: Tensor) -> Tensor:
        """Return S^Σ of a law, the mean of its pushforwards ``(σ_#q)_j = q_{σ⁻¹j}``; shape ``(..., N)``."""
        return self.check_law("law", law)[..., self.maps.argsort(-1)].mean(-2)

    def symmetrise_function(self, function: Tensor) -> Tensor:
        """Return S_Σ of a function, ``i ↦ mean_σ function(σi)``; shape ``(..., N)``."""
        check_tensor("function", function, (self.size,), inexact=True)
        return function[..., self.maps].mean(-2)

    def check_law(self, name: str, law: Any) -> Tensor:
        """Return ``law`` if it holds probability vectors on the points, shape ``(..., N)``; raise otherwise."""
        return check_probabilities(name, law, self.size, batched=True)

    def isometry_defect(self) -> float:
        """Return the largest ``|d(σx, σy) − d(x, y)|``: zero exactly when the group acts by isometries."""
        moved = self.distances[self.maps[:, :, None], self.maps[:, None, :]]
        return float((moved - self.distances).detach().abs().max())

    def distortion(self) -> float:
        """Return ``mean_σ max d(σx, σy) / d(x, y)``, by how much symmetrisation may raise a Lipschitz constant."""
        moved = self.distances[self.maps[:, :, None], self.maps[:, None, :]]
        off = ~torch.eye(self.size, dtype=torch.bool, device=self.distances.device)
        return float((moved[:, off] / self.distances[off]).detach().amax(-1).mean()) if self.size > 1 else 1.0

    def kernel(self, bandwidth: float = 1.0) -> Tensor:
        """Return the Gaussian kernel ``exp(−d(x, y)² / 2s²)``, shape ``(N, N)``; invariant where the distance is."""
        return torch.exp(-self.distances.square() / (2 * check_bandwidth(bandwidth) ** 2))


def orbit_closure(representation: Representation, starts: Tensor, metric: Tensor | None = None) -> FiniteSpace:
    """Return all images of some points under a finite group, with the distances ``‖M(x − y)‖``.

    Parameters
    ----------
    representation
        How the group acts on R^dim; it need not be orthogonal.
    starts
        Points, shape ``(m, dim)``. Images that coincide, up to rounding, count once.
    metric
        The matrix M, shape ``(dim, dim)``, invertible; ``None`` for the Euclidean distance.

    Raises
    ------
    TypeError, ValueError
        No real representation of a finite group; points or a matrix that do not fit; a singular matrix.
    """
    if not isinstance(representation, Representation) or not isinstance(representation.group, FiniteGroup):
        raise TypeError(f"representation must be a Representation of a finite group, got {representation!r}")
    representation.check_vectors("starts", starts)
    if starts.ndim != 2 or starts.is_complex() or not len(starts):
        raise ValueError(f"starts must be real, of shape (m, {representation.dim}), got {tuple(starts.shape)}")
    elements = representation.group.unsqueeze(representation.group.elements())
    images = representation.apply(elements, starts).flatten(0, 1)
    points = images[_nearest(images, images) == torch.arange(len(images), device=images.device)]
    maps = torch.stack([_nearest(moved, points) for moved in representation.apply(elements, points)])
    seen = points
    if metric is not None:
        check_tensor("metric", metric, (representation.dim, representation.dim), inexact=True, real=True)
        if metric.ndim != 2 or torch.linalg.matrix_rank(metric) < representation.dim:
            raise ValueError("metric must be one invertible matrix")
        seen = points @ metric.to(points).mT
    return FiniteSpace(points, maps, euclidean(seen, seen))


def _check_metric(distances: Tensor, size: int) -> None:
    """Raise unless distances are positive off the diagonal, symmetric, and obey the triangle inequality."""
    check_tensor("distances", distances, (size, size), inexact=True, real=True)
    slack = max(1e-9, 32 * torch.finfo(distances.dtype).eps) * float(distances.detach().abs().max())
    off = ~torch.eye(size, dtype=torch.bool, device=distances.device)
    detour = (distances[:, :, None] + distances[None]).amin(1)
    fits = (
        distances.ndim == 2
        and bool((distances[off] > 0).all())
        and float(distances.detach().diagonal().abs().max()) <= slack
    )
    if (
        not fits
        or float((distances - distances.mT).detach().abs().max()) > slack
        or bool((distances > detour + slack).any())
    ):
        raise ValueError(f"distances must be one metric on {size} points, shape ({size}, {size})")


def _nearest(x: Tensor, points: Tensor) -> Tensor:
    """Return for every x the first of the points that coincides with it."""
    close = euclidean(x, points) <= 256 * torch.finfo(points.dtype).eps * float(points.detach().abs().max())
    if not bool(close.any(-1).all()):
        raise ArithmeticError("the images of a point are not among the points: they are too ill-conditioned")
    return close.int().argmax(-1)
