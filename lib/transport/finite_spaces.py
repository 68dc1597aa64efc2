"""Finite metric spaces with a group that permutes the points, by isometries or not; laws and functions on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lib.symmetry.representations import Representation
from lib.transport.quotient import no_group


@dataclass(frozen=True, eq=False)
class FiniteSpace:
    """A finite metric space, with a group of bijections that need *not* be isometries."""

    points: Tensor  #: shape ``(N, dim)``
    maps: Tensor  #: index of σ·point_i, shape ``(order, N)``, ``int64``; the rows form a group
    distances: Tensor  #: the metric, shape ``(N, N)``

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
        return law[..., self.maps.argsort(-1)].mean(-2)

    def symmetrise_function(self, function: Tensor) -> Tensor:
        """Return S_Σ of a function, ``i ↦ mean_σ function(σi)``; shape ``(..., N)``."""
        return function[..., self.maps].mean(-2)

    def isometry_defect(self) -> float:
        """Return the largest ``|d(σx, σy) − d(x, y)|``: zero exactly when the group acts by isometries."""
        return float((self._moved() - self.distances).detach().abs().max())

    def distortion(self) -> float:
        """Return ``mean_σ max d(σx, σy) / d(x, y)``, by how much symmetrisation may raise a Lipschitz constant."""
        off = ~torch.eye(self.size, dtype=torch.bool, device=self.distances.device)
        return float((self._moved()[:, off] / self.distances[off]).detach().amax(-1).mean()) if self.size > 1 else 1.0

    def _moved(self) -> Tensor:
        """Return all ``d(σx, σy)``, shape ``(order, N, N)``."""
        return self.distances[self.maps[:, :, None], self.maps[:, None, :]]

    def kernel(self, bandwidth: float = 1.0) -> Tensor:
        """Return the Gaussian kernel ``exp(−d(x, y)² / 2s²)``, shape ``(N, N)``; invariant where the distance is."""
        return torch.exp(-self.distances.square() / (2 * bandwidth**2))


def orbit_closure(representation: Representation, starts: Tensor, metric: Tensor | None = None) -> FiniteSpace:
    """Return all images of some points under a finite group, with the distances ``‖M(x − y)‖``.

    The representation need not be orthogonal. Points have shape ``(m, dim)``; images that coincide, up to rounding,
    count once. The metric M is invertible, shape ``(dim, dim)``; ``None`` for the Euclidean distance.
    """
    elements = representation.group.unsqueeze(representation.group.elements())
    images = representation.apply(elements, starts).flatten(0, 1)
    points = images[_nearest(images, images) == torch.arange(len(images), device=images.device)]
    maps = torch.stack([_nearest(moved, points) for moved in representation.apply(elements, points)])
    seen = points if metric is None else points @ metric.to(points).mT
    return FiniteSpace(points, maps, no_group(seen.shape[-1]).distance(seen, seen))


def _nearest(x: Tensor, points: Tensor) -> Tensor:
    """Return for every x the first of the points that coincides with it."""
    distance = no_group(points.shape[-1]).distance(x, points)
    close = distance <= 256 * torch.finfo(points.dtype).eps * float(points.detach().abs().max())
    if not bool(close.any(-1).all()):
        raise ArithmeticError("the images of a point are not among the points: they are too ill-conditioned")
    return close.int().argmax(-1)
