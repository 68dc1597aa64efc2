"""Data sets of the chapters on training: random graphs, simple shapes, and the MNIST test images.

Graphs and shapes are generated (Nordenfors, Ohlsson, Flinth 2023, D.1 and D.3). MNIST is looked for in the directory
that the environment variable ``SYMMETRY_DATA`` names (default: ``symmetry-measured`` in the user's cache directory) and
downloaded to it when missing; what is read is compared with its SHA-256 first.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import sys
import tempfile
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_float, check_int, check_tensor, seeded

VARIABLE = "SYMMETRY_DATA"
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


CHECKSUMS = {  # SHA-256 of the uncompressed files
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class DataUnavailable(RuntimeError):
    """Public data could be neither found nor fetched; the message says what to do."""


def block_graphs(
    count: int, nodes: int = 10, within: float = 0.5, across: float = 0.05, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return graphs of the stochastic block model with two hidden blocks, and whether each is connected (ibid., D.1).

    The nodes are divided at random into two halves. An edge is present with probability ``within`` inside a half and
    ``across`` between them, independently.

    Parameters
    ----------
    count
        Number of graphs.
    nodes
        Number of nodes n, even.
    within, across
        Edge probabilities.
    seed
        Seed of the generator.

    Returns
    -------
    tuple of Tensor
        Adjacency matrices, shape ``(count, 1, n²)``, float64; labels 0 or 1, shape ``(count,)``, int64.
    """
    check_int("count", count)
    if check_int("nodes", nodes, minimum=2) % 2:
        raise ValueError(f"nodes must be even for two equal blocks, got {nodes}")
    within, across = check_float("within", within, 0.0, 1.0), check_float("across", across, 0.0, 1.0)
    generator = seeded(seed)
    block = torch.rand(count, nodes, generator=generator).argsort(-1) < nodes // 2
    same = block[:, :, None] == block[:, None, :]
    threshold = torch.where(same, within, across)
    upper = torch.triu(torch.rand(count, nodes, nodes, generator=generator, dtype=torch.float64) < threshold, 1)
    adjacency = upper | upper.mT
    return adjacency.to(torch.float64).reshape(count, 1, -1), connected(adjacency).long()


def connected(adjacency: Tensor) -> Tensor:
    """Return whether graphs given by boolean matrices ``(..., n, n)`` are connected, by exact doubling of paths."""
    n = adjacency.shape[-1]
    reach = (adjacency | torch.eye(n, dtype=torch.bool, device=adjacency.device)).to(torch.float64)
    for _ in range(max(1, math.ceil(math.log2(n)))):
        reach = (reach @ reach > 0).to(torch.float64)
    return (reach > 0).flatten(-2).all(-1)


def polygon_coverage(corners: Tensor, size: int, oversampling: int = 8) -> Tensor:
    """Return how much of every pixel of the square [−1, 1]² a convex polygon covers.

    Parameters
    ----------
    corners
        Corners in counter-clockwise order, shape ``(..., corners, 2)``; row 0 of the image is y = 1.
    size
        Pixels per side.
    oversampling
        Test points per pixel side: the coverage is the share of ``oversampling²`` points inside.

    Returns
    -------
    Tensor
        Shape ``(..., size, size)``.
    """
    check_tensor("corners", corners, (None, 2), inexact=True, real=True)
    fine = check_int("size", size) * check_int("oversampling", oversampling)
    line = (torch.arange(fine, dtype=corners.dtype, device=corners.device) + 0.5) * (2 / fine) - 1
    x, y = line[None, :], -line[:, None]
    inside = torch.ones(*corners.shape[:-2], fine, fine, dtype=torch.bool, device=corners.device)
    for a, b in zip(corners.unbind(-2), corners.roll(-1, -2).unbind(-2), strict=True):
        (ax, ay), (bx, by) = a[..., None, None].unbind(-3), b[..., None, None].unbind(-3)
        inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0
    blocks = inside.unflatten(-1, (size, oversampling)).unflatten(-3, (size, oversampling))
    return blocks.to(corners.dtype).mean((-1, -3))


def simple_shapes(count: int, size: int = 14, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images of one triangle or pentagon each, and the two masks (ibid., D.3).

    With equal probability an equilateral triangle or a regular pentagon, first corner to the right, of radius uniform
    in [.7, .8] about a centre uniform in [−.5, .5]², drawn on the canvas [−1, 1]², white on black. The masks mark
    pixels that are more than half covered; the mask of the absent shape is zero.

    Parameters
    ----------
    count
        Number of images.
    size
        Pixels per side.
    seed
        Seed of the generator.

    Returns
    -------
    tuple of Tensor
        Images ``(count, 1, size²)`` with values in [0, 1]; masks ``(count, 2, size²)``, triangle first. Both float64.
    """
    check_int("count", count)
    check_int("size", size, minimum=2)
    generator = seeded(seed)
    draw = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    pentagon, radius, centre = draw[:, 0] < 0.5, 0.7 + 0.1 * draw[:, 1], draw[:, 2:] - 0.5
    coverage = torch.zeros(count, size, size, dtype=torch.float64)
    for corners, chosen in ((3, ~pentagon), (5, pentagon)):
        angle = 2 * math.pi * torch.arange(corners, dtype=torch.float64) / corners
        unit = torch.stack([angle.cos(), angle.sin()], -1)
        coverage[chosen] = polygon_coverage(radius[chosen, None, None] * unit + centre[chosen, None], size)
    mask = (coverage > 0.5).flatten(1)
    masks = torch.stack([mask & ~pentagon[:, None], mask & pentagon[:, None]], 1)
    return coverage.flatten(1)[:, None], masks.to(torch.float64)


def cache_directory() -> Path:
    """Return the directory for downloaded data: ``SYMMETRY_DATA``, else a folder in the user's cache directory."""
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "symmetry-measured"


def mnist_test(size: int = 14) -> tuple[Tensor, Tensor]:
    """Return the 10 000 test images of MNIST (LeCun, Cortes, Burges 1998), shrunk by averaging blocks of pixels.

    Parameters
    ----------
    size
        Pixels per side; a divisor of 28.

    Returns
    -------
    tuple of Tensor
        Images ``(10000, 1, size²)`` with values in [0, 1], float64; labels ``(10000,)``, int64.

    Raises
    ------
    DataUnavailable
        A file is missing and cannot be fetched or stored, or is truncated or altered.
    """
    if 28 % check_int("size", size, maximum=28):
        raise ValueError(f"size must divide 28, got {size}")
    images, labels = (np.frombuffer(_content(name), np.uint8) for name in CHECKSUMS)
    pixels = torch.from_numpy(images[16:].reshape(-1, 28, 28).copy()) / 255.0
    step = 28 // size
    small = pixels.double().unflatten(2, (size, step)).unflatten(1, (size, step)).mean((2, 4))
    return small.reshape(len(small), 1, -1), torch.from_numpy(labels[8:].astype(np.int64))


def _content(name: str) -> bytes:
    """Return the verified content of a file of the data directory or its subfolder ``mnist``, else from a mirror.

    A file that is found is read, compressed or not, and never replaced; one that is fetched is verified in memory and
    then moved into place whole.
    """
    folder, reasons = cache_directory(), []
    for path in (folder / place / f"{name}{end}" for place in ("", "mnist") for end in ("", ".gz")):
        if path.is_file():
            try:
                return _verified(name, path.read_bytes(), path.suffix == ".gz")
            except (OSError, EOFError, zlib.error) as error:
                what = f"{path.name} in the data directory cannot be used: {error}"
                raise DataUnavailable(f"{what}; delete it and run again to fetch it anew") from None
    for mirror in MIRRORS:
        try:
            with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=30) as answer:
                packed = answer.read()
            content = _verified(name, packed, True)
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as aside:
                (Path(aside) / "part").write_bytes(packed)
                (Path(aside) / "part").replace(folder / f"{name}.gz")
            return content
        except (OSError, EOFError, zlib.error) as error:
            reasons.append(f"{mirror}: {error}")
    raise DataUnavailable(
        f"{name} is not in {folder} and could not be downloaded and stored there ({'; '.join(reasons)}). Connect to "
        f"the network, or put {name}.gz into a directory and name it in the environment variable {VARIABLE}"
    )


def _verified(name: str, raw: bytes, packed: bool) -> bytes:
    content = gzip.decompress(raw) if packed else raw
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise OSError(f"its SHA-256 is not {CHECKSUMS[name][:12]}…, it is truncated, altered or another file")
    return content
