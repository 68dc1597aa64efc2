"""Tissue patches: disjoint regions, distances, bad input."""

from __future__ import annotations

import pytest
import torch
from skimage.data import immunohistochemistry

from lib.images.histology import cut_patches, tissue_image, tissue_patches

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
    monkeypatch.setattr("lib.images.histology.tissue_image", lambda: numbers)
    parts = tissue_patches(16)
    sides = [set(part[:, 0].flatten().long().tolist()) for part in parts]
    assert not sides[0] & sides[1]
    assert len(sides[0]) == len(sides[1]) == 512 * 512 // 2
    for part in parts:
        square = (part[:, 0].long() // 512 // 64) * 8 + part[:, 0].long() % 512 // 64
        assert torch.equal(square.amin((1, 2)), square.amax((1, 2)))
        assert not torch.equal(part[:, 0, 0, 0].sort().values, part[:, 0, 0, 0])  # not in raster order
    assert torch.equal(tissue_patches(16).train, parts.train)


def test_spaced_patches_keep_their_distance() -> None:
    corners = cut_patches(torch.arange(64.0 * 64).reshape(1, 64, 64), 4, 3)[..., 0, 0, 0].long()
    assert torch.equal(corners // 64, (12 * torch.arange(6))[:, None].expand(6, 6))
    assert torch.equal(corners % 64, (12 * torch.arange(6))[None].expand(6, 6))
    near, far = tissue_patches(8), tissue_patches(8, spacing=4)
    assert len(far.train) + len(far.evaluation) == 256
    known = {tuple(p.flatten().tolist()) for p in near.train}
    assert all(tuple(p.flatten().tolist()) in known for p in far.train)


def test_the_image_is_the_library_s() -> None:
    image = tissue_image()
    assert image.shape == (3, 512, 512)
    assert torch.equal(
        (image * 127.5 + 127.5).round().byte().permute(1, 2, 0), torch.from_numpy(immunohistochemistry())
    )
