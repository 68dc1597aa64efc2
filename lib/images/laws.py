"""Laws of small images for games of generators: turned digits, tissue, samples to train on, scores of what is drawn.

Images are rows of p values in [−1, 1]; independent runs are a leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor

from lib.checks import check_int, seeded
from lib.images.features import FeatureClassifier, judge_of
from lib.images.metrics import Moments, coverage, gaussian_frechet, moments, rarest
from lib.images.sets import darkest_side, image_set
from lib.images.turns import Turns
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup


@dataclass(frozen=True, eq=False)
class TrainingSets:
    """One training set per run, padded to one length.

    Images have shape ``(runs, n, p)`` and values in [−1, 1]; the players get their dtype and device from them. Labels
    are classes, ``(runs, n)``, int64; all zero for images without classes. ``counts`` says how many of the n images
    belong to each set (the first ones), ``(runs,)``. The players are told the class if there are at least two.
    """

    images: Tensor
    labels: Tensor
    counts: Tensor
    classes: int = 1

    @property
    def runs(self) -> int:
        """Number of training sets."""
        return len(self.images)

    def batch(self, size: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images ``(runs, size, p)`` and labels ``(runs, size)``, drawn with replacement from every set."""
        share = torch.rand(self.runs, size, generator=rng, dtype=torch.float64, device=rng.device)
        which = (share.to(self.images.device) * self.counts[:, None]).long()
        rows = torch.arange(self.runs, device=which.device)[:, None]
        return self.images[rows, which], self.labels[rows, which]


def pad_sets(sets: Sequence[tuple[Tensor, Tensor]], classes: int = 1) -> TrainingSets:
    """Return training sets of different lengths as one batch, from pairs of images ``(n, p)`` and labels ``(n,)``."""
    counts = torch.tensor([len(images) for images, _ in sets], device="cpu")
    columns = [torch.nn.utils.rnn.pad_sequence(list(c), batch_first=True) for c in zip(*sets, strict=True)]
    return TrainingSets(columns[0], columns[1], counts.to(columns[0].device), classes)


@dataclass(frozen=True, eq=False)
class ImageLaw:
    """A law of images to be learnt from a sample."""

    name: str
    turns: Turns  #: the group that smart players know
    moves: Turns  #: the group that makes the law from the images
    elements: Tensor  #: numbers of its elements that do, equally likely: the neutral one if images stay as they are
    images: Tensor  #: for training, not yet moved, shape ``(n, p)``
    labels: Tensor  #: their classes
    real: Tensor  #: held-out images, not yet moved, shape ``(m, p)``
    classes: int  #: how many the players are told
    classifier: FeatureClassifier  #: its features and labels make the scores

    def to(self, device: torch.device | str) -> ImageLaw:
        """Return the law with its images on a device."""
        names = ("elements", "images", "labels", "real")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def moved(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """Return every image ``(..., p)`` moved by a random one of the law's elements, drawn on ``rng``'s device."""
        which = torch.randint(len(self.elements), images.shape[:-1], generator=rng, device=rng.device)
        return self.moves.each(images, self.elements[which.to(images.device)])

    def sets(self, sizes: Sequence[int], seeds: Sequence[int]) -> TrainingSets:
        """Return training sets of all sizes and seeds, size by size; every image is moved once and for all.

        The sets of one seed are nested. Sets of different seeds share images, and the largest may hold the same ones. A
        size below one image per class, or above the number of images, is a ``ValueError``.
        """
        for size in sizes:
            check_int("sizes", size, minimum=self.classes, maximum=len(self.images))
        rows = []
        for rng in map(seeded, seeds):
            images = self.moved(self.images, rng)
            order = torch.randperm(len(images), generator=rng, device="cpu").to(images.device)
            rows.append((images[order], self.labels[order]))
        return pad_sets([(x[:size], y[:size]) for size in sizes for x, y in rows], self.classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images ``(..., n, p)``, shape ``(..., n, d)``."""
        return self.classifier.features(self._square(images))

    @cached_property
    def truth(self) -> Moments:
        """Moments of the features of the held-out images, each moved by every one of the law's elements."""
        return moments(self.features(self.moves.all(self.real)[:, self.elements].flatten(0, 1)))

    def scores(self, drawn: Tensor, seed: int = 0) -> dict[str, Tensor]:
        """Return scores of images ``(runs, n, p)``, n ≥ 6, each of shape ``(runs,)``; NaN where a run is not finite.

        ``frechet``: squared Fréchet distance to the held-out law in the classifier's features. ``turned``: the same for
        the same images, each moved by a random element of the players' group. ``coverage``: share of held-out images
        with a generated one nearby. ``rarest_class``, ``rarest_orientation``: share of the rarest label, as the
        classifier sees it, times the number of labels, so that 1 is even.

        >>> law = digit_law("upright")
        >>> float(law.scores(law.images[None, :597])["frechet"]) < 0.02
        True
        """
        sound = torch.isfinite(drawn).flatten(1).all(1)
        drawn, rng = drawn.where(sound[:, None, None], 0), seeded(seed)
        which = torch.randint(self.turns.group.order, drawn.shape[:-1], generator=rng, device=rng.device)
        near = self.moved(self.real[: drawn.shape[1]], rng)
        features = self.features(drawn)
        turned = self.features(self.turns.each(drawn, which.to(drawn.device)))
        classes, orientations = self.classifier.predict(self._square(drawn))
        found = {
            "frechet": gaussian_frechet(moments(features), self.truth),
            "turned": gaussian_frechet(moments(turned), self.truth),
            "coverage": coverage(self.features(near), features),
            "rarest_class": rarest(classes, self.classifier.network.classes),
            "rarest_orientation": rarest(orientations, self.classifier.network.orientations),
        }
        return {name: values.where(sound, torch.nan) for name, values in found.items()}

    def _square(self, images: Tensor) -> Tensor:
        return images.unflatten(-1, (self.turns.channels, self.turns.size, self.turns.size))


@cache
def digit_law(name: str = "turned", group: FiniteGroup | None = None) -> ImageLaw:
    """Return the bundled digits of 8 × 8 pixels, 1200 for training and 597 held out, as one of three laws.

    ``turned`` is by a random element of the group, ``eighths`` by a random multiple of 45°, interpolated; ``upright``
    is as they are, a law without the symmetry. The group is what smart players know: ``Cyclic(4)`` (default) or
    ``Dihedral(4)``, for eighths ``Cyclic(4)`` or ``Cyclic(8)``.
    """
    turns = Turns(Cyclic(4) if group is None else group)
    moves = Turns(Cyclic(8)) if name == "eighths" else turns
    train, test = image_set("digits")
    return ImageLaw(
        name=name,
        turns=turns,
        moves=moves,
        elements=torch.arange(1 if name == "upright" else moves.group.order, device="cpu"),
        images=train.images.flatten(1),
        labels=train.classes,
        real=test.images.flatten(1),
        classes=10,
        classifier=judge_of("digits", orientations=8 if name == "eighths" else 4),
    )


@cache
def tissue_law(name: str = "as cut") -> ImageLaw:
    """Return 2048 + 2048 patches of stained tissue, 8 × 8 pixels in colour, from disjoint regions; players may know D4.

    They are ``as cut``, or ``darkest side up``: every patch turned until its darkest side is on top, a law without the
    symmetry.
    """
    turns = Turns(Dihedral(4), 8, 3)
    data, real = (darkest_up(x.images) if name != "as cut" else x.images for x in image_set("histology"))
    return ImageLaw(
        name=name,
        turns=turns,
        moves=turns,
        elements=turns.group.index(turns.group.identity())[None],
        images=data.flatten(1),
        labels=torch.zeros(len(data), dtype=torch.int64, device=data.device),
        real=real.flatten(1),
        classes=1,
        classifier=judge_of("histology"),
    )


def darkest_up(images: Tensor) -> Tensor:
    """Return images ``(n, c, size, size)``, each turned by quarters until its darkest side is on top."""
    side = darkest_side(images)  # a quarter turn moves it on by one
    turned = torch.stack([images.rot90(k, (-2, -1)) for k in range(4)])
    return turned[-side % 4, torch.arange(len(images), device=images.device)]
