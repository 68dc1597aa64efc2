"""The MNIST test images.

They are looked for in the directory that the environment variable ``SYMMETRY_DATA`` names (default:
``symmetry-measured`` in the user's cache directory) and downloaded to it when missing; what is read is compared with
its SHA-256 first.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import torch
from platformdirs import user_cache_path
from torch import Tensor

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


def cache_directory() -> Path:
    """Return the directory for downloaded data: ``SYMMETRY_DATA``, else a folder in the user's cache directory."""
    named = os.environ.get(VARIABLE, "").strip()
    return Path(named).expanduser() if named else user_cache_path("symmetry-measured", appauthor=False, opinion=False)


def mnist_test(size: int = 14) -> tuple[Tensor, Tensor]:
    """Return the 10 000 test images of MNIST (LeCun, Cortes, Burges 1998), shrunk by averaging blocks of pixels.

    Images have shape ``(10000, 1, size²)``, size being a divisor of 28, and values in [0, 1], float64; labels
    ``(10000,)`` are int64. ``DataUnavailable`` says that a file can be neither found nor fetched, or is altered.
    """
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
