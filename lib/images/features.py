"""A small classifier whose inner features measure how far two sets of images are apart; trained here, from a seed.

It names the class *and* the orientation of an image. A classifier of rotated images that only names the class learns to
forget the orientation, and in features that are invariant a generator that knows a single orientation looks perfect.
The second question keeps the orientation in the features, so a set with missing orientations is far from the full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from lib.checks import check_choice, check_float, check_instance, check_int
from lib.images.sets import LabelledImages, check_images, digit_images, mnist_images, rotate_images, tissue_images

ANGLES = ("grid", "any")
_CHUNK = 512  # images per pass


@dataclass(frozen=True)
class FeatureSettings:
    """How a feature classifier is built and trained.

    Attributes
    ----------
    orientations : int
        Number m of orientations; images are turned by multiples of 360/m degrees, or labelled by the nearest one.
    angles : str
        ``"grid"``: only those multiples; ``"any"``: uniform angles.
    features : int
        Dimension of the features.
    widths : tuple of int
        Channels of the two convolutions.
    epochs, batch : int
        Passes through the data and images per step.
    rate : float
        Largest step of Adam, reached after 30 % of the training and then lowered to nothing.
    seed : int
        Seed of weights, order and turns.
    """

    orientations: int = 4
    angles: str = "grid"
    features: int = 32
    widths: tuple[int, int] = (24, 48)
    epochs: int = 40
    batch: int = 64
    rate: float = 3e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("orientations", "features", "epochs", "batch"):
            check_int(name, getattr(self, name))
        check_int("seed", self.seed, minimum=0)
        check_choice("angles", self.angles, ANGLES)
        check_float("rate", self.rate, minimum=1e-8)
        if len(check_instance("widths", self.widths, Sequence)) != 2:
            raise ValueError(f"widths must be two numbers of channels, got {self.widths}")
        for width in self.widths:
            check_int("widths", width)


@dataclass(frozen=True)
class Predictions:
    """Classes and orientations that the classifier sees, both of shape ``(..., n)``, int64."""

    classes: Tensor
    orientations: Tensor


class FeatureNetwork(nn.Module):
    """Two convolutions with ReLU and maximum pooling, a dense layer (the features), ReLU, and one layer for all labels.

    Parameters
    ----------
    channels, size
        Of the images.
    classes
        Number of classes.
    settings
        Widths, dimension and seed.
    """

    def __init__(self, channels: int, size: int, classes: int, settings: FeatureSettings) -> None:
        super().__init__()
        check_int("channels", channels)
        check_int("size", size, minimum=4)
        check_int("classes", classes)
        first, second = check_instance("settings", settings, FeatureSettings).widths
        with torch.device("cpu"):  # where the weights are drawn
            self.first = nn.Conv2d(channels, first, 3, padding=1)
            self.second = nn.Conv2d(first, second, 3, padding=1)
            self.dense = nn.Linear(second * (size // 4) ** 2, settings.features)
            self.head = nn.Linear(settings.features, classes + settings.orientations)
        self.classes = classes
        generator = torch.Generator().manual_seed(settings.seed)
        for layer in (self.first, self.second, self.dense, self.head):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(layer.bias)
        self.to(memory_format=torch.channels_last)  # small convolutions are several times faster

    def features(self, images: Tensor) -> Tensor:
        """Return features ``(n, d)``, before the last ReLU, of images ``(n, c, size, size)``."""
        x = images.contiguous(memory_format=torch.channels_last)
        x = functional.max_pool2d(functional.relu(self.first(x)), 2)
        return self.dense(functional.max_pool2d(functional.relu(self.second(x)), 2).flatten(1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of the classes and of the orientations."""
        scores = self.head(functional.relu(self.features(images)))
        return scores[:, : self.classes], scores[:, self.classes :]


@dataclass(frozen=True)
class FeatureClassifier:
    """A trained classifier.

    Attributes
    ----------
    network : FeatureNetwork
        The network, in float32.
    shape : tuple of int
        Channels and size of its images.
    classes, orientations : int
        Numbers of labels.
    centre, scale : Tensor
        The features are ``(z − centre) / scale``: centred, with total variance one over the training images in all
        orientations. Distances between sets are then in units of the spread of real images.
    class_accuracy, orientation_accuracy : float
        On held-out images in all orientations.
    """

    network: FeatureNetwork
    shape: tuple[int, int]
    classes: int
    orientations: int
    centre: Tensor
    scale: Tensor
    class_accuracy: float
    orientation_accuracy: float

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images ``(..., n, c, size, size)``, shape ``(..., n, d)``, float64."""
        raw = self._run(self.network.features, images).double()
        return (raw - self.centre.to(raw.device)) / self.scale.to(raw.device)

    __call__ = features

    def predict(self, images: Tensor) -> Predictions:
        """Return the most likely class and orientation of images ``(..., n, c, size, size)``."""
        best = self._run(lambda x: torch.stack([s.argmax(-1) for s in self.network(x)], -1), images)
        return Predictions(best[..., 0], best[..., 1])

    def _run(self, function: nn.Module, images: Tensor) -> Tensor:
        check_images("images", images, self.shape)
        flat = images.flatten(0, -4).float()
        with torch.no_grad():
            self.network.to(flat.device)
            result = torch.cat([function(part) for part in flat.split(_CHUNK)])
        return result.unflatten(0, images.shape[:-3])


def train_classifier(train: LabelledImages, test: LabelledImages, settings: FeatureSettings) -> FeatureClassifier:
    """Return a classifier of classes and orientations, trained with cross-entropy on turned images.

    Every image is turned anew in every pass; turning by the k-th orientation adds k to its orientation. The same seed
    gives the same weights on the same machine.

    Parameters
    ----------
    train, test
        Images to learn from, and to state the accuracy on.
    settings
        See :class:`FeatureSettings`.
    """
    if train.images.shape[1:] != test.images.shape[1:]:
        raise ValueError(f"train and test must hold images of one shape, got {train.images.shape, test.images.shape}")
    shape, count = (train.images.shape[1], train.images.shape[2]), len(train.images)
    classes = int(torch.cat([train.classes, test.classes]).max()) + 1
    network = FeatureNetwork(*shape, classes, settings).to(train.images.device)
    generator = torch.Generator().manual_seed(settings.seed + 1)
    steps = settings.epochs * len(range(0, count, settings.batch))
    optimiser = torch.optim.Adam(network.parameters(), settings.rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps)
    for _ in range(settings.epochs):
        for chosen in torch.randperm(count, generator=generator, device="cpu").split(settings.batch):
            images, targets = _turned(train, chosen, settings, generator)
            loss = sum(functional.cross_entropy(s, t) for s, t in zip(network(images), targets, strict=True))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    network.requires_grad_(False).eval()
    return _described(network, shape, classes, train, test, settings)


def _described(
    network: FeatureNetwork,
    shape: tuple[int, int],
    classes: int,
    train: LabelledImages,
    test: LabelledImages,
    settings: FeatureSettings,
) -> FeatureClassifier:
    """Return the trained network with the scale of its features and its accuracy, over several turns of every image."""
    generator = torch.Generator().manual_seed(settings.seed + 2)
    turns = max(4, settings.orientations)
    with torch.no_grad():
        images = _turned(train, torch.arange(len(train.images), device="cpu"), settings, generator)[0]
        features = network.features(images).double()
        right = torch.zeros(2, dtype=torch.float64, device=features.device)
        for _ in range(turns):
            images, targets = _turned(test, torch.arange(len(test.images), device="cpu"), settings, generator)
            for i, (scores, target) in enumerate(zip(network(images), targets, strict=True)):
                right[i] += (scores.argmax(-1) == target).double().mean() / turns
    scale = features.var(0, correction=0).sum().sqrt()
    return FeatureClassifier(
        network, shape, classes, settings.orientations, features.mean(0), scale, float(right[0]), float(right[1])
    )


def _turned(
    data: LabelledImages, chosen: Tensor, settings: FeatureSettings, generator: torch.Generator
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return chosen images, each in a random orientation, with their two labels."""
    m, device = settings.orientations, data.images.device
    chosen = chosen.to(device)
    if settings.angles == "grid":
        k = torch.randint(m, (len(chosen),), generator=generator, device="cpu")
        degrees = k * (360 / m)
    else:
        degrees = 360 * torch.rand(len(chosen), generator=generator, device="cpu")
        k = (degrees * (m / 360)).round().long()
    degrees, k = degrees.to(device), k.to(device)
    start = 0 if data.orientations is None else data.orientations[chosen]
    images = rotate_images(data.images[chosen].float(), degrees)
    return images, (data.classes[chosen], (start + k) % m)


@cache
def digit_classifier(settings: FeatureSettings | None = None) -> FeatureClassifier:
    """Return the classifier of the bundled digits, trained once per process."""
    return train_classifier(*digit_images(), settings or FeatureSettings())


@cache
def mnist_classifier(
    size: int = 14, settings: FeatureSettings | None = None, directory: str | Path | None = None
) -> FeatureClassifier:
    """Return the classifier of MNIST images of ``size`` pixels per side, trained once per process."""
    return train_classifier(*mnist_images(size, directory), settings or FeatureSettings(epochs=30))


@cache
def tissue_classifier(size: int = 8, shrink: int = 1, settings: FeatureSettings | None = None) -> FeatureClassifier:
    """Return the classifier of kinds and darkest sides of tissue patches, trained once per process."""
    settings = settings or FeatureSettings(epochs=25)
    if settings.angles != "grid" or settings.orientations != 4:
        raise ValueError(f"settings must have four orientations on the grid, got {settings}")
    return train_classifier(*tissue_images(size, shrink), settings)
