"""Tissue: patches of the image bundled with scikit-image.

Stained tissue on a slide has no upright direction, so the law of its patches should be invariant under the turns and
mirrors of the square; :mod:`lib.transport.invariance` tests it. Values are float32, in [−1, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lib.checks import seeded

_BLOCKS = 8  # squares per side of the image, each for training or for evaluation


class Patches(NamedTuple):
    """Patches from disjoint regions of one image, shapes ``(n, 3, size, size)``, float32, values in [−1, 1]."""

    train: Tensor
    evaluation: Tensor


def tissue_image() -> Tensor:
    """Return the stained colonic tissue bundled with scikit-image (van der Walt et al. 2014), ``(3, 512, 512)``."""
    from skimage import data

    image = torch.from_numpy(data.immunohistochemistry()).permute(2, 0, 1)
    return (image.double() / 127.5 - 1).float()


def cut_patches(image: Tensor, size: int, spacing: int = 1) -> Tensor:
    """Return patches ``(rows, columns, c, size, size)`` of an image ``(c, h, w)`` that do not overlap.

    Every ``spacing``-th patch is kept in both directions: neighbours are ``(spacing − 1) · size`` pixels apart.
    """
    step = size * spacing
    return image.unfold(1, size, step).unfold(2, size, step).permute(1, 2, 0, 3, 4)


def tissue_patches(size: int = 8, spacing: int = 1) -> Patches:
    """Return patches of the bundled tissue for training and for evaluation, from disjoint regions.

    The image is divided into 8 × 8 squares; a random half of them is for training. No patch reaches into two squares,
    so no pixel is on both sides. It is one image of one piece of tissue all the same: the evaluation says how well a
    generator learnt *this* tissue, not tissue at large. The patches come in random order, so that the first half of
    them is not the upper half of the image. ``size`` divides the side 64 of a square; ``spacing`` is as in
    :func:`cut_patches`: patches that touch share cells and fibres and are not independent.
    """
    image = tissue_image()
    side = image.shape[-1] // _BLOCKS
    patches, generator = cut_patches(image, size, spacing), seeded(0)
    square = torch.arange(patches.shape[0], device="cpu") * size * spacing // side
    chosen = (torch.randperm(_BLOCKS**2, generator=generator, device="cpu") < _BLOCKS**2 // 2).reshape(_BLOCKS, _BLOCKS)
    train = chosen[square[:, None], square[None]]
    both = patches[train], patches[~train]
    parts = [part[torch.randperm(len(part), generator=generator, device="cpu")] for part in both]
    return Patches(*parts)
