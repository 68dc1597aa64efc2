"""The MNIST loader against everything that can go wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import lib.images.datasets as datasets
from lib.images.datasets import (
    MIRRORS,
    DataUnavailable,
    cache_directory,
    mnist_test,
)

# --- files -----------------------------------------------------------------------------------------------------------

PIXELS = torch.randint(256, (2, 28, 28), generator=torch.Generator().manual_seed(0))
FILES = {
    "t10k-images-idx3-ubyte": bytes(16) + bytes(PIXELS.flatten().tolist()),
    "t10k-labels-idx1-ubyte": bytes(8) + bytes([7, 2]),
}
Fetch = Callable[[str], bytes]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory, two images instead of ten thousand, and a network that must not be asked."""
    for name, content in FILES.items():
        monkeypatch.setitem(datasets.CHECKSUMS, name, hashlib.sha256(content).hexdigest())
    monkeypatch.setenv("SYMMETRY_DATA", str(tmp_path / "data"))

    def refuse(address: str) -> bytes:
        raise AssertionError(f"the network must not be asked for {address}")

    serve(monkeypatch, refuse)
    return tmp_path / "data"


def serve(monkeypatch: pytest.MonkeyPatch, fetch: Fetch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda address, timeout: io.BytesIO(fetch(address)))


def delivered(address: str) -> bytes:
    return gzip.compress(FILES[address.rpartition("/")[2].removesuffix(".gz")])


@pytest.mark.parametrize(("place", "packed"), [("", False), ("", True), ("mnist", True)])
def test_found_files_are_read_and_left_alone(folder: Path, place: str, packed: bool) -> None:
    """Header skipped, blocks averaged, labels in order."""
    (folder / place).mkdir(parents=True)
    for name, content in FILES.items():
        path = folder / place / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    before = sorted(folder.rglob("*"))
    x, y = mnist_test(14)
    assert x.shape == (2, 1, 196)
    assert y.tolist() == [7, 2]
    expected = torch.nn.functional.avg_pool2d(PIXELS.double()[:, None], 2) / 255
    assert torch.allclose(x.reshape(2, 1, 14, 14), expected, atol=1e-7)
    assert sorted(folder.rglob("*")) == before


def test_missing_files_are_fetched_once_from_the_first_mirror_that_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(address: str) -> bytes:
        asked.append(address)
        if address.startswith(MIRRORS[0]):
            raise urllib.error.URLError("no route")
        return delivered(address)

    serve(monkeypatch, fetch)
    first = mnist_test()
    assert asked == [f"{mirror}{name}.gz" for name in FILES for mirror in MIRRORS]
    assert sorted(p.name for p in folder.iterdir()) == [f"{name}.gz" for name in FILES]
    assert all(torch.equal(a, b) for a, b in zip(first, mnist_test(), strict=True))
    assert len(asked) == 4


@pytest.mark.parametrize("broken", [b"x" + FILES["t10k-images-idx3-ubyte"][1:], b""])
def test_altered_files_are_refused(folder: Path, broken: bytes) -> None:
    folder.mkdir()
    (folder / "t10k-images-idx3-ubyte").write_bytes(broken)
    with pytest.raises(DataUnavailable, match=r"t10k-images-idx3-ubyte in the data directory.*altered.*delete it"):
        mnist_test()
    assert (folder / "t10k-images-idx3-ubyte").read_bytes() == broken


def test_broken_archive_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(FILES["t10k-images-idx3-ubyte"])[:-20])
    with pytest.raises(DataUnavailable, match=r"cannot be used.*delete it"):
        mnist_test()


SHORT = gzip.compress(b"short", mtime=0)  # without the time: names of tests must not change while workers collect


@pytest.mark.parametrize("content", [SHORT, SHORT[:-9], b"<html>busy</html>"], ids=["short", "cut off", "a page"])
def test_bad_downloads_leave_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    serve(monkeypatch, lambda address: content)
    with pytest.raises(DataUnavailable, match=r"could not be downloaded.*SYMMETRY_DATA"):
        mnist_test()
    assert not folder.exists()


def test_no_network_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: str) -> bytes:
        raise urllib.error.URLError("Name or service not known")

    serve(monkeypatch, fail)
    with pytest.raises(DataUnavailable, match=r"is not in .* could not be downloaded .*not known.*Connect"):
        mnist_test()


def test_unwritable_cache_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("not a folder")
    serve(monkeypatch, delivered)
    with pytest.raises(DataUnavailable, match=r"stored there.*SYMMETRY_DATA"):
        mnist_test()


def test_a_failed_write_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    serve(monkeypatch, delivered)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DataUnavailable, match="No space left"):
        mnist_test()
    assert list(folder.iterdir()) == []


def test_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMMETRY_DATA", "/some/where")
    assert cache_directory() == Path("/some/where")
    monkeypatch.delenv("SYMMETRY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert cache_directory() == Path("/cache/symmetry-measured")
    monkeypatch.setenv("SYMMETRY_DATA", "  ")
    assert cache_directory().name == "symmetry-measured"


def test_real_mnist_if_it_is_here() -> None:
    """Only where the files are in the data directory already; nothing is downloaded by tests."""
    places = [cache_directory() / sub for sub in ("", "mnist")]
    if not any((place / f"{name}{end}").is_file() for place in places for name in FILES for end in ("", ".gz")):
        pytest.skip("MNIST is not in the data directory")
    x, y = mnist_test(14)
    assert x.shape == (10_000, 1, 196)
    assert y.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
