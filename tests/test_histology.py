"""Tissue patches: disjoint regions, shrinking that commutes with D4; loaders of LYSTO and ANHIR on small made files."""

from __future__ import annotations

import hashlib
import io
import sys
import types
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.io import imsave
from torch import Tensor

from lib.datasets import DataUnavailable
from lib.images.histology import (
    LYSTO_ORGANS,
    anhir,
    block_mean,
    cut_patches,
    download,
    lysto,
    tissue_image,
    tissue_patches,
    verify,
)

# --- the bundled image -----------------------------------------------------------------------------------------------


def test_patches_cover_the_image_once() -> None:
    parts = tissue_patches(8)
    assert parts.train.shape == parts.evaluation.shape == (2048, 3, 8, 8)
    assert parts.train.dtype == torch.float32
    total = torch.cat([parts.train, parts.evaluation])
    assert float(total.min()) >= -1
    assert float(total.max()) <= 1
    every = cut_patches(tissue_image(), 8).flatten(0, 1)
    assert torch.equal(total.double().sum((1, 2, 3)).sort().values, every.double().sum((1, 2, 3)).sort().values)


def test_regions_are_disjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """With numbers of pixels in place of colours: no pixel on both sides, and every patch within one square."""
    numbers = torch.arange(512.0 * 512).reshape(1, 512, 512).expand(3, -1, -1)
    monkeypatch.setattr("lib.images.histology.tissue_image", lambda shrink: numbers)
    parts = tissue_patches(16, blocks=4, seed=3)
    sides = [set(part[:, 0].flatten().long().tolist()) for part in (parts.train, parts.evaluation)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) == len(sides[1]) == 512 * 512 // 2
    for part in (parts.train, parts.evaluation):
        square = (part[:, 0].long() // 512 // 128) * 4 + part[:, 0].long() % 512 // 128
        assert torch.equal(square.amin((1, 2)), square.amax((1, 2)))
        assert not torch.equal(part[:, 0, 0, 0].sort().values, part[:, 0, 0, 0])  # not in raster order
    assert not torch.equal(tissue_patches(16, blocks=4, seed=4).train, parts.train)
    assert torch.equal(tissue_patches(16, blocks=4, seed=3).train, parts.train)


def test_spaced_patches_keep_their_distance() -> None:
    corners = cut_patches(torch.arange(64.0 * 64).reshape(1, 64, 64), 4, 3)[..., 0, 0, 0].long()
    assert torch.equal(corners // 64, (12 * torch.arange(6))[:, None].expand(6, 6))
    assert torch.equal(corners % 64, (12 * torch.arange(6))[None].expand(6, 6))
    near, far = tissue_patches(8), tissue_patches(8, spacing=4)
    assert len(far.train) + len(far.evaluation) == 256
    known = {tuple(p.flatten().tolist()) for p in near.train}
    assert all(tuple(p.flatten().tolist()) in known for p in far.train)


def test_shrinking_averages_and_commutes_with_the_square() -> None:
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8))
    small = block_mean(image, 2)
    assert float(small[1, 2, 3]) == pytest.approx(float(image[1, 4:6, 6:8].double().mean()) / 127.5 - 1, abs=1e-6)
    for move in (lambda x: torch.rot90(x, 1, (-2, -1)), lambda x: x.flip(-2)):
        assert torch.equal(block_mean(move(image), 2), move(small))
    assert tissue_image(4).shape == (3, 128, 128)
    assert torch.allclose(tissue_image(4).mean(), tissue_image().mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 7}, r"blocks · size must divide the side 512, got 8 · 7"),
        ({"size": 16, "shrink": 8}, "blocks · size must divide the side 64"),
        ({"size": 1}, "size must be at least 2"),
        ({"blocks": 1}, "blocks must be between 2"),
        ({"shrink": 3}, "shrink must be one of"),
        ({"spacing": 0}, "spacing must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_patches(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tissue_patches(**arguments)


def test_bad_images_to_cut() -> None:
    with pytest.raises(ValueError, match=r"image must have shape \(channels, height, width\)"):
        cut_patches(torch.zeros(2, 3, 8, 8), 4)
    with pytest.raises(ValueError, match="size must be between 2 and 8"):
        cut_patches(torch.zeros(3, 8, 8), 9)


# --- checksums and downloads -----------------------------------------------------------------------------------------

CONTENT = bytes(range(256)) * 9
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
SHA = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def test_checksums(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    for checksum in (MD5, SHA, SHA.upper()):
        verify(path, checksum)
    for changed in (CONTENT[:-1], b"x" + CONTENT[1:]):
        path.write_bytes(changed)
        for checksum in (MD5, SHA):
            with pytest.raises(DataUnavailable, match=r"file does not have the (md5|sha256) checksum .*truncated"):
                verify(path, checksum)
    with pytest.raises(DataUnavailable, match=r"absent cannot be read in .* \(No such file"):
        verify(tmp_path / "absent", MD5)


@pytest.mark.parametrize("checksum", ["", "md5:", "md5:12", "sha256:" + "0" * 32, "crc:" + "0" * 32, "md5:" + "g" * 32])
def test_what_is_no_checksum_is_refused(tmp_path: Path, checksum: str) -> None:
    with pytest.raises(ValueError, match="checksum must be 'md5:' and 32 or 'sha256:' and 64 hexadecimal digits"):
        download("http://x/file", tmp_path / "file", checksum)
    with pytest.raises(TypeError, match="checksum must be a string"):
        verify(tmp_path / "file", None)


def test_downloads_are_verified_before_they_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    asked = []

    def deliver(address: str) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(CONTENT)

    download("http://x/file", path, MD5, deliver)
    assert path.read_bytes() == CONTENT
    assert asked == ["http://x/file"]
    path.unlink()

    def fail(address: str) -> io.BytesIO:
        raise urllib.error.URLError("no route")

    for opener, reason in (
        (fail, "no route"),
        (lambda address: io.BytesIO(CONTENT[:-1]), "the download does not have"),
    ):
        with pytest.raises(DataUnavailable, match=f"file is not in .* could not be fetched .*{reason}.*by hand"):
            download("http://x/file", path, MD5, opener)
        assert list(path.parent.iterdir()) == []


# --- LYSTO -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the package h5py: a file is read as NumPy's archive, by the same calls."""

    class File(dict):
        def __init__(self, path: Path, mode: str) -> None:
            assert mode == "r"
            super().__init__(np.load(path))

        def __enter__(self) -> File:
            return self

        def __exit__(self, *error: object) -> None:
            self.clear()

    module = types.ModuleType("h5py")
    module.File = File
    monkeypatch.setitem(sys.modules, "h5py", module)


def made_lysto(folder: Path, **changes: np.ndarray) -> str:
    """Write five images and return their checksum."""
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.integers(0, 256, (5, 299, 299, 3), dtype=np.uint8),
        "y": np.arange(5),
        "organ": np.array([b"colon_1", b"breast_2", b"prostate_1", b"colon_2", b"breast_1"]),
    } | changes
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in arrays.items() if value is not None})
    path = folder / "lysto" / "training.h5"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    return f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}"


@pytest.mark.usefixtures("h5py")
def test_lysto_is_read_shrunk_and_labelled(tmp_path: Path) -> None:
    checksum = made_lysto(tmp_path)
    data = lysto(checksum, 64, directory=tmp_path)
    assert data.images.shape == (5, 3, 64, 64)
    assert [data.names[i] for i in data.classes] == ["colon", "breast", "prostate", "colon", "breast"]
    assert data.names == LYSTO_ORGANS
    raw = np.load(tmp_path / "lysto" / "training.h5")["x"]
    assert float(data.images.mean()) == pytest.approx(raw.mean() / 127.5 - 1, abs=0.01)
    whole = lysto(checksum, 299, count=2, directory=tmp_path)
    assert torch.equal(whole.images, torch.from_numpy(raw[:2]).permute(0, 3, 1, 2).float() / 127.5 - 1)


@pytest.mark.usefixtures("h5py")
def test_shrinking_lysto_commutes_with_the_square(tmp_path: Path) -> None:
    """299 is no multiple of 64, so the windows overlap, but symmetrically."""
    small = lysto(made_lysto(tmp_path), directory=tmp_path).images
    raw = np.load(tmp_path / "lysto" / "training.h5")["x"]
    moves: tuple[tuple, ...] = (
        (lambda x: np.rot90(x, 1, (1, 2)), lambda x: torch.rot90(x, 1, (-2, -1))),
        (lambda x: x[:, ::-1], lambda x: x.flip(-2)),
    )
    for before, after in moves:
        moved = lysto(made_lysto(tmp_path, x=before(raw)), directory=tmp_path).images
        assert torch.allclose(moved, after(small), atol=1e-5)


@pytest.mark.usefixtures("h5py")
def test_lysto_is_fetched_once(tmp_path: Path) -> None:
    checksum = made_lysto(tmp_path)
    path = tmp_path / "lysto" / "training.h5"
    content = path.read_bytes()
    path.unlink()
    asked = []

    def deliver(address: str) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(content)

    for _ in range(2):
        assert len(lysto(checksum, 16, directory=tmp_path, opener=deliver).images) == 5
    assert asked == ["https://zenodo.org/records/3513571/files/training.h5"]


@pytest.mark.usefixtures("h5py")
def test_another_file_is_refused(tmp_path: Path) -> None:
    checksum = made_lysto(tmp_path)
    with pytest.raises(DataUnavailable, match=r"training\.h5 does not have the md5 checksum"):
        lysto("md5:" + "0" * 32, directory=tmp_path)
    for changes, message in (
        ({"organ": None}, "does not hold images x"),
        ({"x": np.zeros((5, 32, 32, 3), np.uint8)}, "does not hold images x of 299"),
        ({"organ": np.array([b"colon_1"])}, "does not hold images x"),
        ({"organ": np.array([b"heart_1"] * 5)}, "LYSTO names the organ 'heart'"),
    ):
        changed = made_lysto(tmp_path, **changes)
        with pytest.raises(DataUnavailable, match=message):
            lysto(changed, directory=tmp_path)
    for arguments, message in (
        ({"size": 300}, "size must be between 2 and 299"),
        ({"part": "all"}, "part must be one of"),
        ({"count": 0}, "count must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            lysto(checksum, directory=tmp_path, **arguments)


def test_without_h5py_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match="pip install h5py"):
        lysto(MD5, directory=tmp_path)


# --- ANHIR -----------------------------------------------------------------------------------------------------------

STAINS = ("CD31", "-He-")


def made_slide(path: Path, seed: int) -> Tensor:
    """Write a slide of 64 × 96 pixels, tissue on the left, glass on the right two thirds; return its pixels."""
    pixels = np.full((64, 96, 3), 250, np.uint8)
    pixels[:, :32] = np.random.default_rng(seed).integers(0, 200, (64, 32, 3), dtype=np.uint8)
    imsave(path, pixels, check_contrast=False)
    return torch.from_numpy(pixels)


def checksum_of(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_anhir_leaves_out_the_glass(tmp_path: Path) -> None:
    names = ("29-CD31-3-les1.png", "29-He-les1.png")
    slides = [made_slide(tmp_path / name, i) for i, name in enumerate(names)]
    checksums = {name: checksum_of(tmp_path / name) for name in names}
    data = anhir(tmp_path, checksums, STAINS, size=8, shrink=2)
    assert data.images.shape == (2 * 8, 3, 8, 8)
    assert data.classes.tolist() == [0] * 8 + [1] * 8
    assert data.names == STAINS
    corner = slides[0][:16, :16].permute(2, 0, 1)
    assert torch.equal(data.images[0], block_mean(corner, 2))
    assert len(anhir(tmp_path, checksums, STAINS, size=8, shrink=2, brightest=1.0).images) == 2 * 24


def test_what_is_not_anhir_is_refused(tmp_path: Path) -> None:
    name = "29-He-les1.png"
    made_slide(tmp_path / name, 0)
    good = {name: checksum_of(tmp_path / name)}
    with pytest.raises(DataUnavailable, match="does not have the sha256 checksum"):
        anhir(tmp_path, {name: "sha256:" + "0" * 64}, STAINS)
    with pytest.raises(DataUnavailable, match=r"9-He-1\.png cannot be read"):
        anhir(tmp_path, {"9-He-1.png": SHA}, STAINS)
    with pytest.raises(DataUnavailable, match="no 8-bit colour image of at least 128 pixels"):
        anhir(tmp_path, good, STAINS)
    with pytest.raises(DataUnavailable, match="nothing but glass"):
        anhir(tmp_path, good, STAINS, size=8, brightest=-1.0)
    for stains in (("CD31",), ("-He-", "les")):
        with pytest.raises(ValueError, match="must contain exactly one of the stains"):
            anhir(tmp_path, good, stains)
    with pytest.raises(ValueError, match="at least one file and one stain"):
        anhir(tmp_path, {}, STAINS)
    imsave(tmp_path / "grey-He-.png", np.zeros((64, 64), np.uint8), check_contrast=False)
    with pytest.raises(DataUnavailable, match="no 8-bit colour image"):
        anhir(tmp_path, {"grey-He-.png": checksum_of(tmp_path / "grey-He-.png")}, STAINS, size=8)
