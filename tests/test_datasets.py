"""The generated data against their stated laws; the MNIST loader against everything that can go wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import math
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
    block_graphs,
    cache_directory,
    mnist_test,
    polygon_coverage,
    simple_shapes,
)

# --- graphs ----------------------------------------------------------------------------------------------------------


def test_graphs_are_simple_and_labels_true() -> None:
    x, y = block_graphs(200, 10, seed=3)
    a = x.reshape(-1, 10, 10)
    assert torch.equal(a, a.mT)
    assert float(a.diagonal(dim1=-2, dim2=-1).abs().max()) == 0.0
    assert set(a.unique().tolist()) == {0.0, 1.0}
    for graph, label in zip(a, y, strict=True):
        laplacian = graph.sum(-1).diag() - graph
        assert int((torch.linalg.eigvalsh(laplacian) < 1e-9).sum() == 1) == int(label)


def connection_probability(nodes: int, within: float, across: float) -> float:
    """Sum over the component of one fixed node (after Gilbert 1959); f(a, b): blocks of a ≥ 1 and b nodes joined."""
    p, q, half, f = 1 - within, 1 - across, nodes // 2, {}
    for a, b in itertools.product(range(1, half + 1), range(half + 1)):
        smaller = [(i, j) for i in range(1, a + 1) for j in range(b + 1) if (i, j) != (a, b)]
        f[a, b] = 1.0 - sum(
            math.comb(a - 1, i - 1)
            * math.comb(b, j)
            * f[i, j]
            * p ** (i * (a - i) + j * (b - j))
            * q ** (i * (b - j) + j * (a - i))
            for i, j in smaller
        )
    return f[half, half]


@pytest.mark.parametrize(("nodes", "within", "across"), [(10, 0.5, 0.05), (6, 0.5, 0.2)])
def test_graphs_follow_the_stated_law(nodes: int, within: float, across: float) -> None:
    """Edge density and share of connected graphs, each against its exact value within four standard errors."""
    count, half = 20_000, nodes // 2
    x, y = block_graphs(count, nodes, within, across, seed=1)
    pairs = nodes * (nodes - 1) / 2
    p = connection_probability(nodes, within, across)
    assert abs(float(y.double().mean()) - p) < 4 * math.sqrt(p * (1 - p) / count)
    inside = half * (half - 1)
    density = (inside * within + half**2 * across) / pairs
    variance = (inside * within * (1 - within) + half**2 * across * (1 - across)) / pairs**2
    assert abs(float(x.sum((1, 2)).mean()) / 2 / pairs - density) < 4 * math.sqrt(variance / count)


def test_blocks_are_hidden() -> None:
    """Every pair of nodes is joined equally often: the halves are drawn at random."""
    x, _ = block_graphs(20_000, 6, 0.9, 0.1, seed=0)
    a = x.reshape(-1, 6, 6).mean(0)[torch.triu(torch.ones(6, 6), 1).bool()]
    p = 0.4 * 0.9 + 0.6 * 0.1
    assert float((a - p).abs().max()) < 4.5 * math.sqrt(p * (1 - p) / 20_000)


def test_seeds_repeat_and_differ() -> None:
    for make in (block_graphs, lambda n, seed=0: simple_shapes(n, 8, seed)):
        assert torch.equal(make(5, seed=1)[0], make(5, seed=1)[0])
        assert not torch.equal(make(5, seed=1)[0], make(5, seed=2)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"count": 3, "nodes": 7}, "nodes must be even"),
        ({"count": 3, "within": 1.5}, "within must be"),
        ({"count": 3, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_graphs_refuse(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block_graphs(**arguments)


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_coverage_of_a_polygon_is_its_area() -> None:
    square = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], dtype=torch.float64)
    image = polygon_coverage(square, 8, 4)
    assert float(image.mean()) == 0.25
    assert torch.equal(image[2:6, 2:6], torch.ones(4, 4).double())
    angle = 2 * math.pi * torch.arange(5).double() / 5
    pentagon = 0.7 * torch.stack([angle.cos(), angle.sin()], -1)
    area = 0.7**2 * 2.5 * math.sin(2 * math.pi / 5) / 4
    assert abs(float(polygon_coverage(pentagon, 14, 32).mean()) - area) < 1e-3


def test_coverage_refuses_what_is_no_polygon() -> None:
    square = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    for corners, size, error, message in (
        (square * math.nan, 8, ValueError, "corners must be finite"),
        (square[:, :1], 8, ValueError, "corners must have shape"),
        (square.long(), 8, TypeError, "corners must be of a floating-point"),
        (square, 0, ValueError, "size must be at least 1"),
    ):
        with pytest.raises(error, match=message):
            polygon_coverage(corners, size)


def test_coverage_knows_up_and_right() -> None:
    """Row 0 is the top, column 0 the left."""
    corner = torch.tensor([[0.5, 0.5], [1.0, 0.5], [1.0, 1.0], [0.5, 1.0]], dtype=torch.float64)
    image = polygon_coverage(corner, 4, 2)
    assert float(image[0, 3]) == 1.0
    assert float(image.sum()) == 1.0


def test_shapes_follow_the_stated_law() -> None:
    count = 3000
    x, masks = simple_shapes(count, 14, seed=2)
    present = masks.sum(-1) > 0
    assert bool((present.sum(-1) == 1).all()), "exactly one mask is not empty"
    assert torch.equal(masks.sum(1), (x[:, 0] > 0.5).double())
    share = float(present[:, 1].double().mean())
    assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(count)
    assert 0.0 <= float(x.min()) <= float(x.max()) <= 1.0
    # Shapes wholly on the canvas have the area of their radius: uniform on [.7, .8].
    image = x.reshape(-1, 14, 14)
    edge = image[:, 0].sum(-1) + image[:, -1].sum(-1) + image[:, :, 0].sum(-1) + image[:, :, -1].sum(-1)
    for corners, chosen in ((3, present[:, 0]), (5, present[:, 1])):
        whole = image[chosen & (edge == 0)].mean((1, 2)) * 4
        radius = (whole / (corners / 2 * math.sin(2 * math.pi / corners))).sqrt()
        assert float(radius.min()) > 0.69
        assert float(radius.max()) < 0.81


def test_all_triangles_point_right() -> None:
    """The third moment of every whole triangle along x is positive: the law is not invariant under rotations."""
    x, masks = simple_shapes(500, 14)
    image = x.reshape(-1, 14, 14)[masks[:, 0].sum(-1) > 0]
    edge = image[:, 0].sum(-1) + image[:, -1].sum(-1) + image[:, :, 0].sum(-1) + image[:, :, -1].sum(-1)
    profile = image[edge == 0].sum(1)
    place = torch.arange(14).double()
    centred = place - (profile @ place / profile.sum(-1))[:, None]
    assert len(profile) > 20
    assert float((profile * centred**3).sum(-1).min()) > 0


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
    with pytest.raises(ValueError, match="size must divide 28"):
        mnist_test(13)


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


@pytest.mark.parametrize("content", [gzip.compress(b"short"), gzip.compress(b"short")[:-9], b"<html>busy</html>"])
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
