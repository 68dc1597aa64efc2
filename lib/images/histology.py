"""Tissue: patches of the image bundled with scikit-image, and readers of the two public sets LYSTO and ANHIR.

Stained tissue on a slide has no upright direction, so the law of its patches should be invariant under the turns and
mirrors of the square; :mod:`lib.invariance` tests it. Images have shape ``(n, 3, size, size)`` and values in [−1, 1].

Nothing here needs the network unless LYSTO is asked for. We found no checksum of the two public sets that we could
verify, so none is written down: the reader gives the one that the publisher shows (Zenodo lists an MD5 beside every
file), or one taken when the files were downloaded, and nothing is read before the file agrees with it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, check_tensor, seeded
from lib.datasets import DataUnavailable, cache_directory

SIDE = 512  # of the bundled image
LYSTO_ADDRESS = "https://zenodo.org/records/3513571/files/"
LYSTO_PARTS = {"training": "training.h5", "test": "test.h5"}
LYSTO_ORGANS = ("breast", "colon", "prostate")
LYSTO_SIDE = 299
ANHIR_ADDRESS = "https://anhir.grand-challenge.org"
ALGORITHMS = {"md5": 32, "sha256": 64}  # hexadecimal digits
_BLOCK = 2**20
Opener = Callable[[str], AbstractContextManager[BinaryIO]]


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


@dataclass(frozen=True)
class LabelledPatches:
    """Patches with a class each.

    Attributes
    ----------
    images : Tensor
        Shape ``(n, 3, size, size)``, float32, values in [−1, 1].
    classes : Tensor
        Numbers of the classes, shape ``(n,)``, int64.
    names : tuple of str
        Names of the classes.
    """

    images: Tensor
    classes: Tensor
    names: tuple[str, ...]


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


# --- public sets -----------------------------------------------------------------------------------------------------


def lysto(
    checksum: str,
    size: int = 64,
    part: str = "training",
    count: int | None = None,
    directory: str | Path | None = None,
    opener: Opener | None = None,
) -> LabelledPatches:
    """Return images of LYSTO (Ciompi et al. 2019, Zenodo record 3513571): tissue of three organs, 299 × 299 pixels.

    The file is looked for in ``lysto`` under the cache directory and downloaded when it is missing (several gigabytes).
    The images are shrunk by averaging over windows that a turn or a mirror permutes, so shrinking commutes with D4.

    Parameters
    ----------
    checksum
        ``"md5:…"`` as the record's page shows it for the file, or ``"sha256:…"``.
    size
        Pixels per side, at most 299.
    part
        ``"training"`` or ``"test"``.
    count
        Only the first so many images.
    directory
        By default :func:`lib.datasets.cache_directory`.
    opener
        Opens an address for reading; by default over the network.

    Raises
    ------
    DataUnavailable
        The file cannot be fetched, does not have the checksum, or does not hold what LYSTO holds.
    ModuleNotFoundError
        h5py is not installed.
    """
    check_int("size", size, minimum=2, maximum=LYSTO_SIDE)
    name = LYSTO_PARTS[check_choice("part", part, LYSTO_PARTS)]
    if count is not None:
        check_int("count", count)
    _parts_of(checksum)
    h5py = _h5py()
    path = _folder(directory) / "lysto" / name
    if not path.is_file():
        download(f"{LYSTO_ADDRESS}{name}", path, checksum, opener)
    verify(path, checksum)
    with h5py.File(path, "r") as file:
        missing = {"x", "organ"} - set(file)
        if missing or file["x"].shape[1:] != (LYSTO_SIDE, LYSTO_SIDE, 3) or len(file["organ"]) != len(file["x"]):
            raise DataUnavailable(f"{name} does not hold images x of {LYSTO_SIDE} × {LYSTO_SIDE} × 3 and organs")
        total = len(file["x"]) if count is None else min(count, len(file["x"]))
        organs = [_organ(value) for value in file["organ"][:total]]
        images = [_shrunk(file["x"][i : min(i + 256, total)], size) for i in range(0, total, 256)]
    return LabelledPatches(torch.cat(images), torch.tensor(organs), LYSTO_ORGANS)


def anhir(
    folder: str | Path,
    checksums: Mapping[str, str],
    stains: Sequence[str],
    size: int = 64,
    shrink: int = 2,
    brightest: float = 0.6,
) -> LabelledPatches:
    """Return patches of the slides of ANHIR (Borovec et al. 2020), in disjoint squares, with the stain as class.

    The slides are handed out to registered users at anhir.grand-challenge.org, so nothing is downloaded: put the images
    of one tissue into a folder. Squares that are almost empty glass are left out.

    Parameters
    ----------
    folder
        Where the images are (JPEG or PNG).
    checksums
        For every file to be read, its name in the folder and ``"sha256:…"`` or ``"md5:…"``, taken after the download.
    stains
        Names of stains; every file name must contain exactly one.
    size
        Pixels per side of a patch.
    shrink
        Side of the squares of pixels that are averaged to one.
    brightest
        Squares with a larger mean, on the scale [−1, 1], are glass.

    Raises
    ------
    DataUnavailable
        A file is missing, does not have its checksum, is no colour image, or nothing but glass is left.
    """
    from skimage.io import imread

    check_int("size", size, minimum=2)
    check_int("shrink", shrink)
    check_float("brightest", brightest, -1.0, 1.0)
    if not checksums or not stains:
        raise ValueError("checksums and stains must name at least one file and one stain")
    images, classes = [], []
    for name, checksum in checksums.items():
        found = [i for i, stain in enumerate(stains) if stain in name]
        if len(found) != 1:
            raise ValueError(f"the name {name!r} must contain exactly one of the stains {list(stains)}")
        verify(Path(folder) / name, checksum)
        slide = imread(Path(folder) / name)
        if slide.ndim != 3 or slide.shape[2] < 3 or slide.dtype != np.uint8 or min(slide.shape[:2]) < size * shrink:
            raise DataUnavailable(f"{name} is no 8-bit colour image of at least {size * shrink} pixels per side")
        colours = torch.from_numpy(np.ascontiguousarray(slide[..., :3])).permute(2, 0, 1)
        patches = cut_patches(block_mean(colours, shrink), size).flatten(0, 1)
        tissue = patches[patches.mean((1, 2, 3)) <= brightest]
        images.append(tissue)
        classes.append(torch.full((len(tissue),), found[0]))
    if not sum(len(part) for part in images):
        raise DataUnavailable(f"no square is darker than {brightest}: nothing but glass in {sorted(checksums)}")
    return LabelledPatches(torch.cat(images).contiguous(), torch.cat(classes), tuple(stains))


def verify(path: Path, checksum: str) -> None:
    """Raise :class:`lib.datasets.DataUnavailable` unless a file exists and has a checksum ``"md5:…"``, ``"sha256:…"``.

    Raises
    ------
    DataUnavailable
        The file is missing, cannot be read, or is another one.
    TypeError, ValueError
        ``checksum`` is not of that form.
    """
    algorithm, wanted = _parts_of(checksum)
    digest = hashlib.new(algorithm)
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise DataUnavailable(f"{path.name} cannot be read in {path.parent} ({error.strerror})") from None
    if digest.hexdigest() != wanted:
        raise DataUnavailable(
            f"{path.name} does not have the {algorithm} checksum {wanted[:12]}…: truncated, altered or another file"
        )


def download(address: str, path: Path, checksum: str, opener: Opener | None = None) -> None:
    """Fetch a large file piece by piece, verify it, and move it into place whole; on failure leave nothing behind.

    Raises
    ------
    DataUnavailable
        It cannot be fetched or stored, or does not have the checksum.
    TypeError, ValueError
        ``checksum`` is not of the form ``"md5:…"`` or ``"sha256:…"``.
    """
    _parts_of(checksum)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream, (opener or _open)(address) as answer:
            while block := answer.read(_BLOCK):
                stream.write(block)
        verify(Path(temporary), checksum)
        os.replace(temporary, path)
    except (OSError, DataUnavailable) as error:
        reason = f"{error}".replace(Path(temporary or path).name, "the download")
        raise DataUnavailable(
            f"{path.name} is not in {path.parent} and could not be fetched from {address} ({reason}). Download it by "
            "hand and put it there"
        ) from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _open(address: str) -> AbstractContextManager[BinaryIO]:
    return urllib.request.urlopen(
        urllib.request.Request(address, headers={"User-Agent": "symmetry-measured"}), timeout=60
    )


def _parts_of(checksum: str) -> tuple[str, str]:
    """Return algorithm and digits of a checksum."""
    if not isinstance(checksum, str):
        raise TypeError(f"checksum must be a string such as 'md5:…', got {checksum!r} of {type(checksum).__name__}")
    algorithm, _, digits = checksum.strip().lower().partition(":")
    if len(digits) != ALGORITHMS.get(algorithm, -1) or set(digits) - set("0123456789abcdef"):
        raise ValueError(
            f"checksum must be 'md5:' and 32 or 'sha256:' and 64 hexadecimal digits, got {checksum!r}; use the one "
            f"that the publisher shows (for LYSTO beside the file at {LYSTO_ADDRESS.removesuffix('/files/')})"
        )
    return algorithm, digits


def _folder(directory: str | Path | None) -> Path:
    return Path(directory) if directory is not None else cache_directory()


def _h5py() -> ModuleType:
    try:
        return importlib.import_module("h5py")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "LYSTO is stored in HDF5 and needs the package h5py, which the book does not install: pip install h5py"
        ) from None


def _organ(value: bytes | str) -> int:
    """Return the number of the organ in a label such as ``b"colon_3"``."""
    name = (value.decode() if isinstance(value, bytes) else str(value)).split("_")[0]
    if name not in LYSTO_ORGANS:
        raise DataUnavailable(f"LYSTO names the organ {name!r}, expected one of {LYSTO_ORGANS}: another file")
    return LYSTO_ORGANS.index(name)


def _shrunk(images: np.ndarray, size: int) -> Tensor:
    """Return 8-bit images ``(n, h, w, 3)`` averaged to ``(n, 3, size, size)`` in [−1, 1]."""
    colours = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return torch.nn.functional.interpolate(colours, size=(size, size), mode="area")
