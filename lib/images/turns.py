"""A group that moves small square images: quarter turns and mirrors exactly, eighth turns by interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lib.images.sets import rotate_images
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup

GROUPS = (Cyclic(4), Dihedral(4), Cyclic(8))


@dataclass(frozen=True)
class Turns:
    """A group that moves square images, given as rows of ``channels · size²`` values in [−1, 1], channel by channel.

    ``Cyclic(4)`` and ``Dihedral(4)`` permute pixels and are exact. ``Cyclic(8)`` turns by 45° with linear interpolation
    (−1 outside) and by quarter turns exactly; it is not quite a group: two eighth turns miss a quarter turn. Element k
    of ``Cyclic(8)`` turns by k · 45°; the others are numbered as in :mod:`lib.symmetry.groups`.
    """

    group: FiniteGroup  #: one of ``GROUPS``
    size: int = 8  #: side in pixels
    channels: int = 1  #: number of colours

    @property
    def dim(self) -> int:
        """Number p of values of an image."""
        return self.channels * self.size**2

    @cached_property
    def sources(self) -> Tensor:
        """Where the value of each pixel comes from, for all exact elements: ``(R_g x)[i] = x[sources[g, i]]``."""
        exact = Cyclic(4) if self.group == Cyclic(8) else self.group
        one = pixels(exact, self.size).permutation(exact.inverse(exact.elements()))
        return torch.cat([one + c * self.size**2 for c in range(self.channels)], dim=-1)

    @cached_property
    def between(self) -> Tensor | None:
        """The matrix of the turn by 45° on one channel, shape ``(size², size²)``; ``None`` for the exact groups."""
        if self.group != Cyclic(8):
            return None
        basis = torch.eye(self.size**2, dtype=torch.float64, device="cpu").unflatten(-1, (self.size, self.size))
        turned = rotate_images(basis, torch.full((len(basis),), 45.0, device="cpu"), 0.0)
        return turned.flatten(-2).mT.contiguous()

    def all(self, images: Tensor) -> Tensor:
        """Return every image moved by every element, shape ``(..., |G|, p)`` from ``(..., p)``."""
        parts = self._fine(images)[..., None, :]
        sources = self.sources.to(images.device).expand(*parts.shape[:-2], -1, -1)
        moved = parts.expand(sources.shape).gather(-1, sources)  # faster than index_select
        return moved.transpose(-3, -2).flatten(-3, -2)  # from (..., fine, exact, p)

    def each(self, images: Tensor, which: Tensor) -> Tensor:
        """Return every image moved by an element of its own, given by its number; shape ``(..., p)``."""
        parts = self._fine(images)
        fine = parts.shape[-2]
        chosen = parts.take_along_dim((which % fine)[..., None, None], dim=-2)[..., 0, :] if fine > 1 else images
        return chosen.gather(-1, self.sources.to(images.device)[which // fine])

    def _fine(self, images: Tensor) -> Tensor:
        """Return the images turned by the elements below a quarter turn, shape ``(..., 1 or 2, p)``."""
        if self.between is None:
            return images[..., None, :]
        square = (images + 1).unflatten(-1, (self.channels, self.size**2))
        turned = (square @ self.between.mT.to(images)).flatten(-2) - 1
        return torch.stack([images, turned], dim=-2)
