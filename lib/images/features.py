"""A small classifier whose inner features measure how far two sets of images are apart; trained here, from a seed.

It names the class *and* the orientation of an image. A classifier of rotated images that only names the class learns to
forget the orientation, and in features that are invariant a generator that knows a single orientation looks perfect.
The second question keeps the orientation in the features, so a set with missing orientations is far from the full one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from lib.checks import seeded
from lib.images.sets import LabelledImages, check_images, image_set, rotate_images
from lib.progress import progress

EPOCHS = {"digits": 40, "mnist": 12, "histology": 25}  # passes through the training part of a set
_FEATURES, _WIDTHS, _BATCH, _RATE = 32, (24, 48), 64, 3e-3
_CHUNK = 512  # images per pass


class FeatureNetwork(nn.Module):
    """Two convolutions with ReLU and maximum pooling, a dense layer (the features), ReLU, a layer for all labels."""

    def __init__(self, channels: int, size: int, classes: int, orientations: int, seed: int = 0) -> None:
        super().__init__()
        first, second = _WIDTHS
        with torch.device("cpu"):  # where the weights are drawn
            self.first = nn.Conv2d(channels, first, 3, padding=1)
            self.second = nn.Conv2d(first, second, 3, padding=1)
            self.dense = nn.Linear(second * (size // 4) ** 2, _FEATURES)
            self.head = nn.Linear(_FEATURES, classes + orientations)
        self.classes, self.orientations = classes, orientations
        generator = torch.Generator().manual_seed(seed)
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
    """A trained classifier, whose features are ``(z − centre) / scale``.

    They are centred, with total variance one over the training images in all orientations: distances between sets are
    in units of the spread of real images.
    """

    network: FeatureNetwork  #: in float32
    shape: tuple[int, int]  #: channels and size of its images
    centre: Tensor
    scale: Tensor

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images ``(..., n, c, size, size)``, shape ``(..., n, d)``, float64."""
        raw = self._run(self.network.features, images).double()
        return (raw - self.centre.to(raw.device)) / self.scale.to(raw.device)

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return most likely classes and orientations ``(..., n)``, int64, of images ``(..., n, c, size, size)``."""
        best = self._run(lambda x: torch.stack([s.argmax(-1) for s in self.network(x)], -1), images)
        return best[..., 0], best[..., 1]

    def _run(self, function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        check_images("images", images, self.shape)
        flat = images.flatten(0, -4).float()
        with torch.no_grad():
            self.network.to(flat.device)
            result = torch.cat([function(part) for part in flat.split(_CHUNK)])
        return result.unflatten(0, images.shape[:-3])


def train_classifier(
    train: LabelledImages, epochs: int, angles: str = "grid", orientations: int = 4, seed: int = 0
) -> FeatureClassifier:
    """Return a classifier of classes and orientations, trained with cross-entropy on turned images.

    Every image is turned anew in every pass; turning by the k-th orientation adds k to its orientation. The same seed
    gives the same weights on the same machine. Angles are ``"grid"``, turns by multiples of 360/m degrees only, m being
    the number of orientations, or ``"any"``, labelled by the nearest of them.
    """
    check_images("train", train.images)
    shape, count = (train.images.shape[1], train.images.shape[2]), len(train.images)
    classes = int(train.classes.max()) + 1
    network = FeatureNetwork(*shape, classes, orientations, seed).to(train.images.device)
    generator = seeded(seed + 1)
    optimiser = torch.optim.Adam(network.parameters(), _RATE, fused=True)
    steps = epochs * len(range(0, count, _BATCH))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps)
    for _ in progress(range(epochs)):
        for chosen in torch.randperm(count, generator=generator, device="cpu").split(_BATCH):
            images, targets = _oriented(train, chosen, angles, orientations, generator)
            loss = sum(functional.cross_entropy(s, t) for s, t in zip(network(images), targets, strict=True))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    network.requires_grad_(False).eval()
    every = torch.arange(count, device="cpu")
    features = network.features(_oriented(train, every, angles, orientations, seeded(seed + 2))[0]).double()
    scale = features.var(0, correction=0).sum().sqrt()
    return FeatureClassifier(network, shape, features.mean(0), torch.where(scale > 0, scale, 1.0))


def _oriented(
    data: LabelledImages, chosen: Tensor, angles: str, m: int, generator: torch.Generator
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return chosen images, each in a random orientation, with their two labels."""
    device = data.images.device
    chosen = chosen.to(device)
    if angles == "grid":
        k = torch.randint(m, (len(chosen),), generator=generator, device="cpu")
        degrees = k * (360 / m)
    else:
        degrees = 360 * torch.rand(len(chosen), generator=generator, device="cpu")
        k = (degrees * (m / 360)).round().long()
    start = 0 if data.orientations is None else data.orientations[chosen]
    images = rotate_images(data.images[chosen].float(), degrees.to(device))
    return images, (data.classes[chosen], (start + k.to(device)) % m)


@cache
def judge_of(data: str, size: int = 8, angles: str = "grid", orientations: int = 4) -> FeatureClassifier:
    """Return the classifier in whose features images of a set are compared, trained once per process.

    Arguments as for :func:`lib.images.sets.image_set` and :func:`train_classifier`; tissue has four orientations on the
    grid.
    """
    if data == "histology" and (angles, orientations) != ("grid", 4):
        raise ValueError(f"angles must be 'grid' with four orientations for histology, got {angles!r}, {orientations}")
    return train_classifier(image_set(data, size)[0], EPOCHS[data], angles, orientations)
