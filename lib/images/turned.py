"""A share of an image set, every image turned once and for all."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from lib.checks import generator_of
from lib.images.sets import image_set, rotate_images


def turned_images(
    data: str, size: int, rotations: str = "none", share: float = 1.0, seed: int = 0
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return training images with their classes, and held-out ones, which are the same for all seeds.

    Images are float32 ``(n, c, size, size)`` in [−1, 1], classes ``(n,)``, zeros for histology; ``data`` and ``size``
    are as for :func:`lib.images.sets.image_set`. A ``share`` in (0, 1] of the training images is drawn.

    Rotations, of MNIST at its full resolution: ``"none"``; ``"turns"``, by a random quarter turn, an exactly
    C4-invariant law; ``"any"``, by any angle as in Birrell et al. (2022), a law that is C4-invariant and, but for
    interpolation, C8-invariant.
    """
    image_set(data, size)
    train, held_out = image_set(data, 28 if data == "mnist" else size)
    count, classes = round(share * len(train.images)), 1 if data == "histology" else int(train.classes.max()) + 1
    rng = generator_of(seed, 10)
    chosen = torch.randperm(len(train.images), generator=rng, device="cpu")[:count]
    learnt = _turned(train.images[chosen], size, rotations, rng)
    labels, kinds = (y * (classes > 1) for y in (train.classes[chosen], held_out.classes))
    return (learnt, labels), (_turned(held_out.images, size, rotations, generator_of(0, 11)), kinds)


def _turned(images: Tensor, size: int, rotations: str, rng: torch.Generator) -> Tensor:
    if rotations != "none":
        angle = torch.rand(len(images), generator=rng, device="cpu")
        degrees = 90.0 * (4 * angle).floor() if rotations == "turns" else 360 * angle
        images = rotate_images(images, degrees)
    return avg_pool2d(images, images.shape[-1] // size).clamp(-1, 1)
