"""Data that comes with the installed libraries: scikit-learn's digits, scikit-image's photographs and tissue.

Nothing here touches the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")


@dataclass(frozen=True)
class Digits:
    """Handwritten digits as rows of 64 grey values in [0, 1], split into a training and a test part."""

    train_x: Tensor  #: images, shape ``(n, 64)``
    train_y: Tensor  #: labels 0 … 9, shape ``(n,)``
    test_x: Tensor  #: shape ``(m, 64)``
    test_y: Tensor  #: shape ``(m,)``


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Return all pictures (1797, 64) from 0 to 16 and their labels, unpacked once."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def digits(dtype: torch.dtype = torch.float64, train: int = 1200, seed: int = 0) -> Digits:
    """Return the 1797 digits of 8 × 8 pixels bundled with scikit-learn (Alpaydin, Kaynak 1998), split at random.

    ``train`` of them, at most 1796, are for training, the rest for testing; ``seed`` is that of the split.
    """
    x, y = _digits()
    order = np.random.default_rng(seed).permutation(len(x))
    images = torch.from_numpy(x[order] / 16.0).to(dtype)
    labels = torch.from_numpy(y[order].astype(np.int64))
    return Digits(images[:train], labels[:train], images[train:], labels[train:])


def photograph(name: str = "chelsea", size: int = 128) -> Tensor:
    """Return a colour photograph bundled with scikit-image, its central square shrunk to ``(size, size, 3)``, float64.

    The name is one of ``PHOTOGRAPHS``: an astronaut, the cat Chelsea, a cup of coffee, a rocket. The size is at most
    300, values are in [0, 1].
    """
    from skimage import data
    from skimage.transform import resize

    image = getattr(data, name)()
    side = min(image.shape[:2])
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    square = image[top : top + side, left : left + side, :3] / 255.0
    return torch.from_numpy(np.ascontiguousarray(resize(square, (size, size), anti_aliasing=True)))


def histology_patches(size: int = 8, stride: int = 8) -> Tensor:
    """Return grey patches of the colonic tissue bundled with scikit-image, as rows ``(count, size²)`` in [0, 1].

    The image has 512 × 512 pixels; ``stride`` is the step from one patch to the next.
    """
    from skimage import data

    image = torch.from_numpy(data.immunohistochemistry() / 255.0)
    grey = image @ torch.tensor([0.2125, 0.7154, 0.0721], dtype=torch.float64, device="cpu")
    return grey.unfold(0, size, stride).unfold(1, size, stride).reshape(-1, size * size).contiguous()
