"""Chapter *Ensembles*: many small networks trained with augmentation, and how symmetric their mean is (E1 to E3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lib.checks import check_float, check_int, check_tensor
from lib.images.bundled import digits, histology_patches
from lib.training import ensemble_metrics as metrics
from lib.training.ensemble_training import Course, Plan, train_ensemble, train_epoch
from lib.training.ensembles import Network, draw_members, join, orbit_logits, rotate_images

INPUTS = ("digits", "tissue", "noise")


@dataclass(frozen=True)
class Settings:
    """Data and training of the digits experiments.

    Attributes
    ----------
    members : int
        Size of the main ensemble and of the skewed one; the others have half as many.
    images, test : int
        Training images of digits, and inputs of every kind at which symmetry is measured.
    epochs, rate : int, float
        Passes over the data, and step.
    seed : int
        Seed of starts, rotations and order, and of the inputs that are noise.
    """

    members: int = 256
    images: int = 384
    test: int = 100
    epochs: int = 6
    rate: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if check_int("members", self.members, minimum=64, maximum=100_000) % 32:
            raise ValueError(f"members must be a multiple of 32, so that it divides into groups, got {self.members}")
        check_int("images", self.images, maximum=1200)
        check_int("test", self.test, maximum=500)
        check_int("epochs", self.epochs)
        check_float("rate", self.rate, minimum=0.0)
        check_int("seed", self.seed, minimum=0)


@dataclass(frozen=True)
class Case:
    """One ensemble: architecture, initial law, and augmentation.

    Attributes
    ----------
    support, law, head, stream : str
        See :class:`lib.training.ensembles.Network` and :class:`lib.training.ensemble_training.Plan`.
    rotations : int
        Rotations of the images that training uses: 4, 16, or 1 for none.
    seed : int
        Added to the seed of the settings.
    whole : bool
        Whether the ensemble has all members of the settings, or half of them.
    """

    support: str = "plus"
    law: str = "symmetric"
    head: str = "small"
    stream: str = "own"
    rotations: int = 4
    seed: int = 0
    whole: bool = False

    @property
    def group(self) -> int:
        """Order of the rotation group under which symmetry is measured."""
        return max(4, self.rotations)


CASES = {
    "plus": Case(whole=True),
    "plus again": Case(seed=1),
    "full": Case(support="full"),
    "skewed": Case(support="skewed", whole=True),
    "asymmetric": Case(law="asymmetric"),
    "unit head": Case(head="unit"),
    "one stream": Case(stream="shared"),
    "no augmentation": Case(rotations=1),
    "sixteen": Case(rotations=16),
}


@dataclass(frozen=True)
class Ensemble:
    """A trained ensemble, seen through its logits.

    Attributes
    ----------
    logits : dict of str to Tensor
        For every kind of input, logits of all members at all rotations, ``(m, |G|, n, 10)``, float64.
    labels : Tensor
        Classes of the digits.
    """

    logits: dict[str, Tensor]
    labels: Tensor

    def mean(self, inputs: str = "digits") -> Tensor:
        """Return the mean logits, shape ``(|G|, n, 10)``."""
        return self.logits[inputs].mean(0)

    def summary(self, inputs: str = "digits") -> dict[str, float]:
        """Return the metrics of the whole ensemble, with those of a typical member beside them."""
        each, mean = self.logits[inputs], self.mean(inputs)
        table = {
            name: (float(metric(each).mean()), float(metric(mean)))
            for name, metric in (
                ("residual", metrics.residual),
                ("agreement", metrics.agreement),
                ("divergence", metrics.divergence),
            )
        }
        if inputs == "digits":
            right = partial(metrics.accuracy, labels=self.labels)
            table["accuracy"] = (float(right(each).mean()), float(right(mean)))
        return {
            f"{who} {name}": v for name, pair in table.items() for who, v in zip(("member", "mean"), pair, strict=True)
        }

    def residual_left(self, inputs: str = "digits") -> float:
        """Return the squared residual of the mean over the mean squared residual of the members."""
        return float(metrics.squared_residual(self.mean(inputs)) / metrics.squared_residual(self.logits[inputs]).mean())


def split_rotations(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Split logits at 16 rotations into two parts whose squared residuals add up to theirs.

    Quarter turns permute the turned copies of an image, ``g → g + 4``, so the 16 copies form four orbits of C_4.

    Parameters
    ----------
    logits
        Shape ``(…, 16, n, classes)``.

    Returns
    -------
    tuple of Tensor
        Logits within the orbits of quarter turns, each as an image of its own, shape ``(…, 4, 4·n, classes)``; and the
        means over these orbits, shape ``(…, 4, n, classes)``.
    """
    orbits = check_tensor("logits", logits, (16, None, None), inexact=True).unflatten(-3, (4, 4))
    return orbits.flatten(-3, -2), orbits.mean(-4)


def held_out_inputs(settings: Settings) -> tuple[dict[str, Tensor], Tensor]:
    """Return inputs ``(n, 8, 8)`` of every kind in [0, 1], and the classes of the digits.

    Digits that were not trained on; patches of stained tissue; independent uniform pixels.
    """
    data, n = digits(), settings.test
    patches = histology_patches(8, 16)
    tissue = patches[:: len(patches) // n][:n]
    noise = torch.rand(n, 64, generator=torch.Generator().manual_seed(settings.seed), dtype=torch.float64)
    inputs = {"digits": data.test_x[:n], "tissue": tissue, "noise": noise}
    return {name: x.unflatten(1, (8, 8)) for name, x in inputs.items()}, data.test_y[:n]


def train_case(settings: Settings, case: Case, epochs: int | None = None, workers: int = 2) -> Ensemble:
    """Train one ensemble on digits, and evaluate it at all rotations of all inputs.

    Parameters
    ----------
    settings, case
        Data, training; architecture, law and augmentation.
    epochs
        Passes over the data; by default those of the settings, 0 for the untrained ensemble.
    workers
        Blocks of members at a time, each in a thread.
    """
    data = digits(torch.float32)
    x = data.train_x[: settings.images].unflatten(1, (8, 8))
    course = Course(rotate_images(x, case.rotations), data.train_y[: settings.images])
    network = Network(support=case.support)
    passes = settings.epochs if epochs is None else epochs
    seed = settings.seed + case.seed
    plan = Plan(passes, 32, settings.rate, seed, case.law, case.head, case.stream)
    count = settings.members if case.whole else settings.members // 2
    members = train_ensemble(network, plan, course, count, block=32, workers=workers)
    inputs, labels = held_out_inputs(settings)
    tables = {name: rotate_images(x, case.group).float() for name, x in inputs.items()}
    return Ensemble({k: orbit_logits(network, members, t).double() for k, t in tables.items()}, labels)


@dataclass(frozen=True)
class Slopes:
    """Residual and KL divergence against the number of members, with the intervals of their slopes.

    Attributes
    ----------
    sizes : list of int
        Numbers of members M.
    residual, divergence : Tensor
        Root mean square residual and mean divergence in every group of members, shape ``(groups, len(sizes))``.
    small : list of int
        The sizes whose squared residual is at most 1/2; the slope of the divergence is fitted to them.
    residual_interval, divergence_interval : tuple of float
        Confidence intervals of the slopes of the means over the groups.
    """

    sizes: list[int]
    residual: Tensor
    divergence: Tensor
    small: list[int]
    residual_interval: tuple[float, float]
    divergence_interval: tuple[float, float]

    @property
    def misses(self) -> tuple[float, float]:
        """Distances from −1/2 to the interval of the residual's slope, and from −1 to that of the divergence's."""
        return (
            metrics.interval_miss(self.residual_interval, -0.5),
            metrics.interval_miss(self.divergence_interval, -1.0),
        )


def measure_slopes(logits: Tensor, largest: int = 16, level: float = 0.99) -> Slopes:
    """Return how residual and divergence fall with the number of members M = 1, 2, 4, …, largest.

    The divergence is quadratic in the residual only where that is small, so its slope is fitted to those M at which the
    squared residual is at most 1/2, or to the last three if there are fewer.

    Parameters
    ----------
    logits
        Shape ``(m, |G|, n, classes)``; the members are divided into ``m // largest`` independent groups, at least 3.
    largest
        Largest M, a power of two, at least 4.
    level
        Coverage of each of the two intervals.
    """
    groups = check_int("groups", len(logits) // check_int("largest", largest, minimum=4), minimum=3)
    sizes = [2**k for k in range(largest.bit_length())]
    squares = metrics.curves(logits, sizes, groups, metrics.squared_residual)
    kl = metrics.curves(logits, sizes, groups, metrics.divergence)
    start = min(int((squares.mean(0) > 0.5).sum()), len(sizes) - 3)
    low, high = metrics.slope_interval(squares, sizes, level)
    curved = metrics.slope_interval(kl[:, start:], sizes[start:], level)
    return Slopes(sizes, squares.sqrt(), kl, sizes[start:], (low / 2, high / 2), curved)


def follow_one_start(settings: Settings, copies: int = 8, start: int = 0) -> Ensemble:
    """Train copies of *one* start without augmentation, apart only in the order of images: no ensemble (a control).

    The copies agree about upright digits and about their asymmetry, so nothing cancels in the mean.

    Parameters
    ----------
    settings
        Data and training.
    copies
        Number of copies.
    start
        Number of the member that is copied.
    """
    data = digits(torch.float32)
    x = data.train_x[: settings.images].unflatten(1, (8, 8))
    course, network, parts = Course(rotate_images(x, 1), data.train_y[: settings.images]), Network(), []
    for copy in range(check_int("copies", copies, minimum=2)):
        members = draw_members(network, 1, settings.seed, first=start)
        plan = Plan(rate=settings.rate, seed=settings.seed + 100 + copy)
        for epoch in range(1, settings.epochs + 1):
            members = train_epoch(network, members, course, plan, epoch)
        parts.append(members)
    inputs, labels = held_out_inputs(settings)
    logits = {k: orbit_logits(network, join(parts), rotate_images(x, 4).float()).double() for k, x in inputs.items()}
    return Ensemble(logits, labels)
