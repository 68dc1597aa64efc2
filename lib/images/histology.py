"""Tissue: patches of the image bundled with scikit-image.

Stained tissue on a slide has no upright direction, so the law of its patches should be invariant under the turns and
mirrors of the square; :mod:`lib.transport.invariance` tests it. Images have shape ``(n, 3, size, size)`` and values in
[−1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from lib.checks import check_choice, check_int, check_tensor, seeded

SIDE = 512  # of the bundled image


@dataclass(frozen=True)
class Patches:
    """Patches from disjoint regions of one image.

    Attributes
    ----------
    train, evaluation : Tensor
        Shapes ``(n, 3, size, size)`` and ``(m, 3, size, size)``, float32, values in [−1, 1].
    """

    train: Tensor
    evaluation: Tensor


@cache
def tissue_image(shrink: int = 1) -> Tensor:
    """Return the stained colonic tissue bundled with scikit-image (van der Walt et al. 2014).

    Parameters
    ----------
    shrink
        Side of the squares of pixels that are averaged to one, a power of two up to 32.

    Returns
    -------
    Tensor
        Shape ``(3, 512 // shrink, 512 // shrink)``, float32, values in [−1, 1].
    """
    from skimage import data

    check_choice("shrink", shrink, [2**i for i in range(6)])
    image = torch.from_numpy(data.immunohistochemistry()).permute(2, 0, 1)
    return block_mean(image, shrink)


def block_mean(image: Tensor, shrink: int) -> Tensor:
    """Return an 8-bit image ``(..., h, w)``, its squares of shrink² pixels averaged, as float32 in [−1, 1]."""
    check_tensor("image", image, (None, None), real=True)
    check_int("shrink", shrink, maximum=min(image.shape[-2:]))
    h, w = (side // shrink * shrink for side in image.shape[-2:])
    blocks = image[..., :h, :w].double().unflatten(-1, (-1, shrink)).unflatten(-3, (-1, shrink))
    return (blocks.mean((-3, -1)) / 127.5 - 1).float()


def cut_patches(image: Tensor, size: int, spacing: int = 1) -> Tensor:
    """Return the patches on a grid that do not overlap, from the upper left corner on.

    Parameters
    ----------
    image
        Shape ``(c, h, w)``.
    size
        Side of a patch.
    spacing
        Every ``spacing``-th patch is kept in both directions: neighbours are ``(spacing − 1) · size`` pixels apart.

    Returns
    -------
    Tensor
        Shape ``(rows, columns, c, size, size)``.
    """
    check_tensor("image", image, (None, None, None))
    if image.ndim != 3:
        raise ValueError(f"image must have shape (channels, height, width), got {tuple(image.shape)}")
    check_int("size", size, minimum=2, maximum=min(image.shape[1:]))
    step = size * check_int("spacing", spacing)
    return image.unfold(1, size, step).unfold(2, size, step).permute(1, 2, 0, 3, 4)


def tissue_patches(size: int = 8, shrink: int = 1, blocks: int = 8, spacing: int = 1, seed: int = 0) -> Patches:
    """Return patches of the bundled tissue for training and for evaluation, from disjoint regions.

    The image is divided into ``blocks × blocks`` squares; a random half of them is for training. No patch reaches into
    two squares, so no pixel is on both sides. It is one image of one piece of tissue all the same: the evaluation says
    how well a generator learnt *this* tissue, not tissue at large. The patches come in random order, so that the first
    half of them is not the upper half of the image.

    Parameters
    ----------
    size
        Side of a patch in pixels; divides the side ``512 / (shrink · blocks)`` of a square.
    shrink
        As in :func:`tissue_image`.
    blocks
        Squares per side, at least 2.
    spacing
        Every ``spacing``-th patch is kept in both directions. Patches that touch share cells and fibres and are not
        independent; a test of their law needs some distance.
    seed
        Seed of the choice of squares and of the order.

    Raises
    ------
    TypeError, ValueError
        Sizes that do not divide each other.
    """
    check_int("blocks", blocks, minimum=2, maximum=SIDE)
    image = tissue_image(shrink)
    if image.shape[-1] % (blocks * check_int("size", size, minimum=2)):
        raise ValueError(f"blocks · size must divide the side {image.shape[-1]}, got {blocks} · {size}")
    patches = cut_patches(image, size, spacing)
    side = image.shape[-1] // blocks
    square = torch.arange(patches.shape[0]) * size * spacing // side
    generator = seeded(seed)
    chosen = (torch.randperm(blocks**2, generator=generator) < blocks**2 // 2).reshape(blocks, blocks)
    train = chosen[square[:, None], square[None]]
    parts = [part[torch.randperm(len(part), generator=generator)] for part in (patches[train], patches[~train])]
    return Patches(*parts)
