"""Tissue patches: disjoint regions, shrinking that commutes with D4."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lib.images.histology import (
    block_mean,
    cut_patches,
    tissue_image,
    tissue_patches,
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
