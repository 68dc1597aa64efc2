"""Images with labels: digits, MNIST and tissue, turned by any angle, as the chapter on generated images uses them.

Images have shape ``(..., n, c, size, size)`` and values in [−1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from lib.checks import check_int, check_tensor, seeded
from lib.images.bundled import digits
from lib.images.datasets import mnist_test
from lib.images.histology import tissue_patches

DATA = ("digits", "mnist", "histology")
_KINDS = 6  # of tissue


@dataclass(frozen=True)
class LabelledImages:
    """Images ``(n, c, size, size)``, size ≥ 4, with classes ``(n,)``, int64, and with their orientation.

    The latter is the number of the orientation before any turn, ``(n,)``, int64; ``None``: all upright, number 0.
    """

    images: Tensor
    classes: Tensor
    orientations: Tensor | None = None


def check_images(name: str, images: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
    """Return ``images`` if they are one at least, of shape ``(..., n, c, size, size)`` and with values in [−1, 1]."""
    channels, size = shape if shape is not None else (None, None)
    check_tensor(name, images, (None, channels, size, size), inexact=True, real=True)
    if not images.numel() or float(images.detach().abs().max()) > 1.001:
        raise ValueError(f"{name} must be one at least, with values in [-1, 1], got shape {tuple(images.shape)}")
    return images


def rotate_images(images: Tensor, degrees: Tensor, background: float = -1.0) -> Tensor:
    """Return images turned about their centres, counter-clockwise as shown (row 0 on top).

    Multiples of 90° permute the pixels, as :func:`lib.symmetry.actions.pixels` does. Other angles interpolate linearly
    between four pixels, which blurs a little; what comes from outside the image is background. Images have shape
    ``(n, ..., size, size)``, angles ``(n,)``.
    """
    check_tensor("images", images, inexact=True)
    turned, quarter = torch.empty_like(images), degrees / 90 % 4 % 4  # twice: −10⁻⁹ % 4 rounds to 4
    for k in range(4):
        chosen = quarter == k
        turned[chosen] = torch.rot90(images[chosen], k, (-2, -1))
    between = quarter != quarter.round()
    if bool(between.any()):
        turned[between] = _interpolated(images[between], degrees[between], background)
    return turned


def _interpolated(images: Tensor, degrees: Tensor, background: float) -> Tensor:
    """Return images turned by linear interpolation: every pixel is read where the inverse turn takes it."""
    angle = torch.deg2rad(degrees.to(images.dtype))
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrices = torch.stack([cos, -sin, zero, sin, cos, zero], -1).reshape(-1, 2, 3)
    stack = images.flatten(1, -3) if images.ndim > 3 else images[:, None]  # (n, c, size, size)
    grid = functional.affine_grid(matrices, list(stack.shape), align_corners=False)
    return (functional.grid_sample(stack - background, grid, align_corners=False) + background).view_as(images)


@cache
def image_set(data: str, size: int = 8) -> tuple[LabelledImages, LabelledImages]:
    """Return the training part and the held-out part of a set.

    ``"digits"``: the bundled digits of 8 × 8 pixels, 1200 and 597 (:func:`lib.images.bundled.digits`). ``"mnist"``: the
    10 000 test images of MNIST at 14 × 14 or 28 × 28, a fixed random 7000 and 3000. ``"histology"``: patches of tissue
    (:func:`lib.images.histology.tissue_patches`) with labels read off the patches, since there are none from a
    pathologist, and the law of the patches is invariant, so nobody could say how a patch was turned. The class is the
    kind of tissue, one of six clusters by colour, contrast and roughness (k-means on the training part); the
    orientation is the darkest side, which a quarter turn counter-clockwise moves on by one.
    """
    sizes = {"digits": (8,), "mnist": (14, 28)}.get(data)
    if check_int("size", size, minimum=4) not in (sizes or (size,)):
        raise ValueError(f"size must be {' or '.join(map(str, sizes))} for {data}, got {size}")
    if data == "histology":
        return _tissue(size)
    if data == "digits":
        known = digits(torch.float32)
        parts = (known.train_x, known.train_y), (known.test_x, known.test_y)
    else:
        x, y = mnist_test(size)
        order = torch.randperm(len(x), generator=seeded(0), device="cpu")
        parts = [(x[chosen], y[chosen]) for chosen in order.split([7000, 3000])]
    train, test = (LabelledImages((2 * x - 1).float().reshape(-1, 1, size, size), y) for x, y in parts)
    return train, test


def _tissue(size: int) -> tuple[LabelledImages, LabelledImages]:
    from sklearn.cluster import KMeans

    parts = tissue_patches(size)
    looks = [_appearance(part) for part in parts]
    centre, scale = looks[0].mean(0), looks[0].std(0)
    looks = [((look - centre) / scale).numpy() for look in looks]
    clusters = KMeans(_KINDS, n_init=4, random_state=0).fit(looks[0])
    kinds = [torch.from_numpy(clusters.predict(look)).long() for look in looks]
    train, test = (LabelledImages(x, y, darkest_side(x)) for x, y in zip(parts, kinds, strict=True))
    return train, test


def _appearance(images: Tensor) -> Tensor:
    """Return mean, log of (1 + contrast) and roughness of every channel, invariant under D4, shape ``(..., 3c)``."""
    x = images.double()
    rough = x.diff(dim=-1).abs().mean((-2, -1)) + x.diff(dim=-2).abs().mean((-2, -1))
    return torch.cat([x.mean((-2, -1)), x.std((-2, -1)).log1p(), rough], -1)


def darkest_side(images: Tensor) -> Tensor:
    """Return which half of images ``(..., c, size, size)`` is darkest: 0 top, 1 left, 2 bottom, 3 right."""
    half = images.shape[-1] // 2
    grey = images.mean(-3)
    rows, columns = grey.mean(-1), grey.mean(-2)
    sides = (rows[..., :half], columns[..., :half], rows[..., -half:], columns[..., -half:])
    return torch.stack([side.mean(-1) for side in sides], -1).argmin(-1)
