"""A share of an image set, turned once and for all, and the classifier in whose features images are compared."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lib.checks import generator_of
from lib.gans.planar_convolution import move_images
from lib.images import datasets
from lib.images.features import judge_of
from lib.images.metrics import gaussian_frechet, moments
from lib.images.sets import image_set
from lib.images.turned import turned_images


def quarter_turns(images: Tensor) -> Tensor:
    return torch.stack([torch.rot90(images, k, (-2, -1)) for k in range(4)])


def test_a_share_of_the_digits_is_drawn_and_turned() -> None:
    (images, labels), (real, _) = turned_images("digits", 8, "turns", 0.02, 0)
    (others, _), (still_real, _) = turned_images("digits", 8, "turns", 0.02, 1)
    assert (len(images), len(real)) == (24, 597)
    assert float(images.min()) >= -1
    assert float(images.max()) <= 1
    assert not torch.equal(images, others)
    assert torch.equal(real, still_real)
    (upright, same), _ = turned_images("digits", 8, "none", 0.02, 0)
    assert torch.equal(labels, same)
    found = (quarter_turns(upright) == images).flatten(2).all(-1)
    assert bool(found.any(0).all())
    assert bool((found.sum(1) > 0).all())  # every quarter turn occurs


def test_any_angle_is_more_than_quarter_turns() -> None:
    slanted, upright = (turned_images("digits", 8, how, 0.02)[0][0] for how in ("any", "none"))
    assert float((quarter_turns(upright) - slanted).abs().amax((0, 2, 3, 4)).min()) > 0.1


def _mnist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Write files like those of MNIST, and let them pass for it."""
    rng = np.random.default_rng(0)
    images, labels = np.zeros((10_000, 28, 28), np.uint8), rng.integers(0, 10, 10_000).astype(np.uint8)
    images[:, 6:22, 10:18] = rng.integers(0, 256, (10_000, 1, 1))
    for name, head, values in zip(datasets.CHECKSUMS, (16, 8), (images, labels), strict=True):
        content = bytes(head) + values.tobytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
        monkeypatch.setitem(datasets.CHECKSUMS, name, hashlib.sha256(content).hexdigest())
    monkeypatch.setenv(datasets.VARIABLE, str(folder))
    return torch.from_numpy(images)


def test_mnist_is_turned_before_it_is_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    image_set.cache_clear()
    request.addfinalizer(image_set.cache_clear)
    _mnist(tmp_path, monkeypatch)
    (images, _), (real, _) = turned_images("mnist", 14, "turns", 0.01)
    (upright, _), _ = turned_images("mnist", 14, "none", 0.01)
    assert images.shape == (70, 1, 14, 14)
    assert real.shape == (3000, 1, 14, 14)
    assert bool(((quarter_turns(upright) - images).abs().flatten(2).amax(-1) < 1e-6).any(0).all())
    slanted, full = (turned_images("mnist", n, "any", 0.01)[0][0] for n in (14, 28))
    assert torch.allclose(slanted, full.unflatten(-1, (14, 2)).unflatten(-3, (14, 2)).mean((-1, -3)), atol=1e-6)


def test_tissue_has_colours_and_no_classes() -> None:
    parts = turned_images("histology", 8, share=0.1)
    assert all(images.shape[1:] == (3, 8, 8) and not labels.any() for images, labels in parts)


def test_turning_samples_helps_a_generator_without_orientations() -> None:
    """Upright digits turned at random are nearer to turned digits: what the control of a run can show."""
    upright = turned_images("digits", 8)[0][0][:597]
    real, judge = turned_images("digits", 8, "turns")[1][0], judge_of("digits")
    moved = move_images("p4", upright, generator_of(13))
    before, after = (
        float(gaussian_frechet(*(moments(judge.features(v)) for v in (real, x)))) for x in (upright, moved)
    )
    assert after < before / 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 14}, "size must be 8 for digits"),
        ({"data": "histology", "size": 2}, "size must be at least 4"),
        ({"data": "mnist", "size": 16}, "size must be 14 or 28"),
        ({"seed": -1}, "non-negative"),
    ],
)
def test_bad_input_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        turned_images(**{"data": "digits", "size": 8} | wrong)
