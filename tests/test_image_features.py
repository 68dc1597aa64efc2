"""Turned images against the exact action, the classifiers' accuracy and determinism, and features that see turns."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform
from torch import Tensor

from lib.images.features import FeatureClassifier, judge_of, train_classifier
from lib.images.metrics import gaussian_frechet, moments
from lib.images.sets import (
    LabelledImages,
    _appearance,
    check_images,
    darkest_side,
    image_set,
    rotate_images,
)
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic


def gen(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quarter_turned(images: Tensor, count: int = 4, seed: int = 0) -> Tensor:
    """Return images turned by a random one of the first ``count`` quarter turns."""
    return rotate_images(images, 90.0 * torch.randint(count, (len(images),), generator=gen(seed)))


def distance(x: Tensor, y: Tensor) -> float:
    return float(gaussian_frechet(moments(x), moments(y)))


def floor(features: Tensor, size: int) -> float:
    """Largest distance of twenty pairs of disjoint samples of real features."""
    orders = [torch.randperm(len(features), generator=gen(k)) for k in range(20)]
    return max(distance(features[o[:size]], features[o[size : 2 * size]]) for o in orders)


def accuracy(classifier: FeatureClassifier, data: LabelledImages, turns: int = 4) -> tuple[float, float]:
    """Shares of classes and orientations that are named rightly, over all quarter turns."""
    start = 0 if data.orientations is None else data.orientations
    right = []
    for k in range(turns):
        classes, orientations = classifier.predict(torch.rot90(data.images, k, (-2, -1)))
        right.append([(classes == data.classes).double().mean(), (orientations == (start + k) % 4).double().mean()])
    return tuple(torch.tensor(right).mean(0).tolist())


# --- turning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 5])
def test_quarter_turns_are_the_action_on_pixels(size: int) -> None:
    x = torch.randn(4, 2, size, size, generator=gen(0))
    k = torch.tensor([0, 1, 2, 3])
    expected = pixels(Cyclic(4), size).apply(k[:, None, None].expand(4, 2, 1), x.flatten(2)).reshape(x.shape)
    for degrees in (90.0 * k, 90 * k - 360, 90 * k + 720.0, 90.0 * k - 1e-7 * (k == 0)):
        assert torch.equal(rotate_images(x, degrees), expected)


def test_turns_in_between_go_the_same_way_round() -> None:
    """A smooth bump at angle 0 (right) goes to the angle it is turned by.

    Linear interpolation errs by at most h²/8 · (|f_xx| + |f_yy|), here 2 · h²/8 · 4/0.08 with h = 2/33.
    """
    size = 33
    line = torch.linspace(-1, 1, size, dtype=torch.float64) * (size - 1) / size
    x, y = line[None, :], -line[:, None]

    def bump(angle: Tensor) -> Tensor:
        cx, cy = 0.4 * angle.cos()[:, None, None, None], 0.4 * angle.sin()[:, None, None, None]
        return 2 * torch.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.08) - 1

    degrees = torch.tensor([30.0, 45.0, 89.999, 135.0, -60.0, 300.0], dtype=torch.float64)
    start = bump(torch.zeros(6, dtype=torch.float64))
    assert (
        float((rotate_images(start, degrees) - bump(torch.deg2rad(degrees))).abs().max())
        < 2 * (2 / 33) ** 2 / 8 * 4 / 0.08
    )
    assert float((rotate_images(start, -degrees) - bump(torch.deg2rad(degrees))).abs().max()) > 0.5


def test_interpolated_turns_agree_with_scipy() -> None:
    """Counter-clockwise about the centre, linear interpolation; SciPy as an independent route."""
    x = torch.zeros(2, 12, 12, dtype=torch.float64)
    x[:, 3:9, 3:9] = torch.randn(2, 6, 6, generator=gen(0), dtype=torch.float64)
    degrees, centre = torch.tensor([22.5, 200.0], dtype=torch.float64), np.array([5.5, 5.5])
    for image, turned, angle in zip(x, rotate_images(x, degrees, 0.0), torch.deg2rad(degrees), strict=True):
        c, s = math.cos(angle), math.sin(angle)
        backward = np.array([[c, s], [-s, c]])
        expected = affine_transform(image.numpy(), backward, centre - backward @ centre, order=1)
        assert np.abs(turned.numpy() - expected).max() < 1e-6


def test_what_comes_from_outside_is_background() -> None:
    x = torch.ones(1, 1, 8, 8)
    turned = rotate_images(x, torch.tensor([45.0]), background=-0.5)
    assert float(turned[0, 0, 0, 0]) == pytest.approx(-0.5)
    assert float(turned[0, 0, 3, 3]) == pytest.approx(1.0)


def test_darkest_side_turns_with_the_image() -> None:
    x = torch.rand(50, 3, 7, 7, generator=gen(0)) * 2 - 1
    side = darkest_side(x)
    assert set(side.tolist()) == {0, 1, 2, 3}
    for k in range(4):
        assert torch.equal(darkest_side(torch.rot90(x, k, (-2, -1))), (side + k) % 4)
        assert torch.allclose(_appearance(torch.rot90(x, k, (-2, -1))), _appearance(x))
    dark_left = torch.ones(1, 1, 4, 4)
    dark_left[..., :2] = -1
    assert darkest_side(dark_left).tolist() == [1]


# --- the classifiers -------------------------------------------------------------------------------------------------


def test_digits_are_named_and_their_orientation_too() -> None:
    train, test = image_set("digits")
    assert (len(train.images), len(test.images)) == (1200, 597)
    assert min(accuracy(judge_of("digits"), test)) > 0.9


def test_shuffled_labels_cannot_be_learnt() -> None:
    """With labels at random the accuracy on other images is chance."""
    train, test = image_set("digits")
    order = torch.randperm(len(train.classes), generator=gen(0))
    wrong = train_classifier(dataclasses.replace(train, classes=train.classes[order]), 8)
    right = train_classifier(train, 8)
    assert accuracy(wrong, test)[0] < 0.2
    assert accuracy(right, test)[0] > 0.6
    assert accuracy(wrong, test)[1] > 0.5


def test_the_seed_decides() -> None:
    train, test = image_set("digits")
    a, b, c = (train_classifier(train, 1, seed=s) for s in (0, 0, 1))
    assert torch.equal(a.features(test.images), b.features(test.images))
    assert not torch.equal(a.features(test.images), c.features(test.images))


def test_features_are_batched_and_scaled() -> None:
    classifier, (train, _) = judge_of("digits"), image_set("digits")
    x = train.images[:24]
    features = classifier.features(x)
    assert (features.shape, features.dtype) == ((24, 32), torch.float64)
    assert torch.allclose(classifier.features(x.reshape(2, 3, 4, 1, 8, 8)).reshape(24, 32), features, atol=1e-5)
    assert classifier.predict(x.reshape(2, 12, 1, 8, 8))[0].shape == (2, 12)
    turned = classifier.features(quarter_turned(train.images, seed=9))
    assert float(turned.var(0).sum()) == pytest.approx(1.0, abs=0.03)
    assert float(turned.mean(0).norm()) < 0.05


def test_a_missing_orientation_is_seen_and_invariant_features_would_be_blind() -> None:
    """Halves of the held-out digits, one turned by all quarter turns: the other with fewer of them is far away.

    Averaged over the group, the same features give the same distance whichever orientations are there.
    """
    classifier, (_, test) = judge_of("digits"), image_set("digits")
    order = torch.randperm(597, generator=gen(1))
    real, other = quarter_turned(test.images[order[:298]]), test.images[order[298:596]]
    least = floor(classifier.features(quarter_turned(test.images)), 298)

    def averaged(x: Tensor) -> Tensor:
        return torch.stack([classifier.features(torch.rot90(x, k, (-2, -1))) for k in range(4)]).mean(0)

    plain, blind = {}, {}
    for count in (1, 3, 4):
        fake = quarter_turned(other, count, seed=3)
        plain[count] = distance(classifier.features(real), classifier.features(fake))
        blind[count] = distance(averaged(real), averaged(fake))
    assert plain[1] > 10 * least
    assert plain[1] > plain[3] > least > plain[4]
    assert blind[1] == pytest.approx(blind[4], rel=1e-4)


def test_eight_orientations() -> None:
    train, test = image_set("digits")
    classifier = train_classifier(train, 12, "any", orientations=8)
    angle = 360 * torch.rand(len(test.images), generator=gen(4))
    classes, orientations = classifier.predict(rotate_images(test.images, angle))
    assert float((orientations == (angle / 45).round().long() % 8).double().mean()) > 0.5  # chance is 1/8
    assert float((classes == test.classes).double().mean()) > 0.6


def test_tissue_is_named_by_its_own_looks() -> None:
    classifier = judge_of("histology")
    assert classifier.shape == (3, 8)
    assert min(accuracy(classifier, image_set("histology")[1])) > 0.75
    _, test = image_set("histology")
    n = 600
    real, other = test.images[:n], test.images[n : 2 * n]
    features = classifier.features(test.images)
    least = floor(features, n)
    posed = rotate_images(other, -90.0 * darkest_side(other))  # every patch with its dark side on top
    blurred = torch.nn.functional.avg_pool2d(other, 3, 1, 1, count_include_pad=False)
    noisy = (other + 0.15 * torch.randn(other.shape, generator=gen(1))).clamp(-1, 1)
    grey = other.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    for worse in (posed, blurred, noisy, grey):
        assert distance(classifier.features(real), classifier.features(worse)) > 1.5 * least
    same = quarter_turned(other)
    assert distance(classifier.features(real), classifier.features(same)) < 1.5 * least


def test_mnist_by_the_same_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """With digits in place of the files, which are not here: split without loss, sizes, accuracy."""

    def small(size: int) -> tuple[Tensor, Tensor]:
        train, _ = image_set("digits")
        x = torch.nn.functional.interpolate((train.images + 1) / 2, size=(size, size))
        copies = -(-10_000 // len(x))
        return x.repeat(copies, 1, 1, 1)[:10_000].reshape(10_000, 1, -1).double(), train.classes.repeat(copies)[:10_000]

    monkeypatch.setattr("lib.images.sets.mnist_test", small)
    train, test = image_set.__wrapped__("mnist", 14)
    assert train.images.shape == (7000, 1, 14, 14)
    assert test.images.shape == (3000, 1, 14, 14)
    assert float(train.images.min()) == -1.0
    assert float(torch.cat([train.images, test.images]).sum()) == pytest.approx(
        float(2 * small(14)[0].sum() - 10_000 * 196), rel=1e-4
    )
    assert accuracy(train_classifier(train, 1), test)[0] > 0.5


# --- bad input -------------------------------------------------------------------------------------------------------


def test_bad_images() -> None:
    x = torch.zeros(4, 1, 8, 8)
    for images, error in ((x[0, 0], ValueError), (x[:0], ValueError), (x.long(), TypeError), (x + 2, ValueError)):
        with pytest.raises(error, match="images must"):
            check_images("images", images)
    with pytest.raises(ValueError, match=r"images must have shape \(\.\.\., any, 1, 8, 8\)"):
        judge_of("digits").features(torch.zeros(4, 3, 8, 8))
    with pytest.raises(ValueError, match="four orientations for histology"):
        judge_of("histology", orientations=8)
