"""Chapter *GANs on images*: one training of convolutional players on rotated digits, MNIST or tissue, and its scores.

A case is written ``PAIRING@GROUP+AUGMENTATION``; the group is p4 and the augmentation none where they are left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from lib.checks import check_choice, check_float, check_instance, check_int
from lib.gans.image_players import Discriminator, Generator, matched_channels, parameters
from lib.gans.planar_convolution import GROUPS, act_on_images
from lib.gans.settings import PAIRINGS, Settings, build_players
from lib.gans.state import generate
from lib.gans.training import Trained, train
from lib.images.features import (
    FeatureClassifier,
    FeatureSettings,
    digit_classifier,
    mnist_classifier,
    tissue_classifier,
)
from lib.images.metrics import ImageScores, score_images
from lib.images.sets import LabelledImages, digit_images, mnist_images, rotate_images, tissue_images
from lib.training.ensembles import generator_of

ROTATIONS = {"digits": "turns", "mnist": "any", "histology": "none"}
MATCHES = ("parameters", "width")
CASES = (*PAIRINGS, "equivariant/invariant@p8", "plain/plain+p4")
TURNED = {"digits": ("p4", "p8"), "mnist": ("p4", "p8"), "histology": ("p4", "p4m")}


@dataclass(frozen=True)
class Case:
    """One pairing with its group, and the augmentation of its training images."""

    pairing: str
    group: str = "p4"
    augmentation: str = "none"

    def __post_init__(self) -> None:
        Settings(pairing=self.pairing, group=self.group, augmentation=self.augmentation)

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case written ``PAIRING@GROUP+AUGMENTATION``."""
        head, _, augmentation = text.partition("+")
        pairing, _, group = head.partition("@")
        return cls(pairing, group or "p4", augmentation or "none")

    def __str__(self) -> str:
        group = "" if self.group == "p4" else f"@{self.group}"
        return f"{self.pairing}{group}{'' if self.augmentation == 'none' else f'+{self.augmentation}'}"


@dataclass(frozen=True)
class Plan:
    """What is trained on what.

    Attributes
    ----------
    data : str
        A key of ``ROTATIONS``.
    size : int
        Pixels per side: 8 for digits; 14 or 28 for MNIST; any size of a player for histology.
    rotations : str
        How every image is turned once and for all: "none"; "turns", by a random quarter turn, an exactly C4-invariant
        law; "any", by any angle as in the source, a law that is C4-invariant and, but for interpolation, C8-invariant.
        "": as in ``ROTATIONS``.
    cases : tuple of str
        See :class:`Case`.
    shares : tuple of float
        Parts of the training images, in (0, 1].
    seeds, first_seed : int
        How many, and from which on. A seed draws images, angles, weights and noise; it is the same for all cases.
    match : str
        Symmetric players have as many "parameters" as the plain ones, or the same total "width".
    training : lib.gans.settings.Settings
        Everything else; ``generator_channels`` and ``discriminator_channels`` are those of plain players.
    """

    data: str = "mnist"
    size: int = 14
    rotations: str = ""
    cases: tuple[str, ...] = CASES
    shares: tuple[float, ...] = (0.01,)
    seeds: int = 3
    first_seed: int = 0
    match: str = "parameters"
    training: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        check_choice("data", self.data, ROTATIONS)
        check_int("size", self.size, minimum=8, maximum=64)
        if self.data == "digits" and self.size != 8:
            raise ValueError(f"size must be 8 for digits, got {self.size}")
        if self.data == "mnist" and self.size not in (14, 28):
            raise ValueError(f"size must be 14 or 28 for mnist, got {self.size}")
        check_choice("rotations", self.rotations, ("", "none", "turns", "any"))
        if not self.cases or not self.shares:
            raise ValueError(f"cases and shares must not be empty, got {self.cases} and {self.shares}")
        check_instance("cases", self.cases, (tuple, list))
        check_instance("shares", self.shares, (tuple, list))
        check_instance("training", self.training, Settings)
        for case in self.cases:
            Case.parse(case)
        for share in self.shares:
            if not 0 < check_float("shares", share) <= 1:
                raise ValueError(f"shares must be in (0, 1], got {share}")
        check_int("seeds", self.seeds)
        check_int("first_seed", self.first_seed, minimum=0)
        check_choice("match", self.match, MATCHES)

    @property
    def turned(self) -> str:
        """How the images are turned."""
        return self.rotations or ROTATIONS[self.data]

    @property
    def name(self) -> str:
        """Name of the files of results."""
        return f"{self.data}_{self.size}_{self.match}"

    @property
    def colours(self) -> int:
        """Channels of the images."""
        return 3 if self.data == "histology" else 1

    def settings(self, case: Case, seed: int) -> Settings:
        """Return the settings of one training."""
        common = {"size": self.size, "colours": self.colours, "classes": self.training.classes}
        kinds = PAIRINGS[case.pairing]
        channels = [self.training.generator_channels, self.training.discriminator_channels]
        for i, player in enumerate((Generator, Discriminator)):
            if kinds[i] != "plain" and self.match == "parameters":
                extra = {"latent": self.training.latent} if player is Generator else {}
                channels[i] = matched_channels(player, channels[i], case.group, **common, **extra)
        names = {"generator_channels": channels[0], "discriminator_channels": channels[1]}
        return replace(self.training, **asdict(case), seed=seed, **names)


# --- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pictures:
    """Images to train on and held-out ones to compare with, in [−1, 1]; classes, zeros where there are none."""

    images: Tensor
    labels: Tensor
    real: Tensor
    real_labels: Tensor


def pictures(plan: Plan, share: float, seed: int) -> Pictures:
    """Return the training images of one seed and the held-out images, which are the same for all seeds.

    Parameters
    ----------
    plan
        Names the data.
    share
        Part of the training images that is drawn.
    seed
        Of the draw, and of the angles.
    """
    part, held_out = _sets(plan)
    rng = generator_of(seed, 10)
    chosen = torch.randperm(len(part.images), generator=rng)[: max(1, round(share * len(part.images)))]
    images = _turned(plan, part.images[chosen], rng)
    real = _turned(plan, held_out.images, generator_of(0, 11))
    labels = (part.classes[chosen], held_out.classes)
    if plan.training.classes == 1:
        labels = tuple(torch.zeros_like(y) for y in labels)
    return Pictures(images, labels[0], real, labels[1])


def _sets(plan: Plan) -> tuple[LabelledImages, LabelledImages]:
    if plan.data == "digits":
        return digit_images()
    return mnist_images(28) if plan.data == "mnist" else tissue_images(plan.size)


def _turned(plan: Plan, images: Tensor, rng: torch.Generator) -> Tensor:
    """Turn every image once, MNIST at its full resolution, and shrink it to the size of the plan."""
    images = images.float()
    if plan.turned != "none":
        angle = torch.rand(len(images), generator=rng)
        degrees = 90.0 * (4 * angle).floor() if plan.turned == "turns" else 360 * angle
        images = rotate_images(images, degrees)
    return avg_pool2d(images, images.shape[-1] // plan.size).clamp(-1, 1)


def classifier(plan: Plan) -> FeatureClassifier:
    """Return the fixed classifier in whose features images are compared, trained once per process."""
    if plan.data == "digits":
        return digit_classifier(FeatureSettings(angles=_angles(plan)))
    if plan.data == "mnist":
        return mnist_classifier(plan.size, FeatureSettings(angles=_angles(plan), epochs=12))
    return tissue_classifier(plan.size)


def _angles(plan: Plan) -> str:
    return "any" if plan.turned == "any" else "grid"


# --- one piece -------------------------------------------------------------------------------------------------------


def run_piece(
    plan: Plan,
    case: Case,
    share: float,
    seed: int,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    progress: bool = False,
) -> tuple[dict[str, Any], Tensor]:
    """Train one case on one share of the data with one seed, and score it.

    As many images are generated as there are held-out ones, with their classes. ``turned`` holds the scores of the same
    images after each was moved by a random element of a group, a control for plain generators; ``untrained`` those of
    the generator before training.

    Parameters
    ----------
    plan, case, share, seed
        What is trained on what.
    device, checkpoint, progress
        As for :func:`lib.gans.training.train`.

    Returns
    -------
    tuple
        Numbers, ready for JSON; the last grid of samples, uint8 ``(samples, c, size, size)``.
    """
    data = pictures(plan, share, seed)
    settings = plan.settings(case, seed)
    trained = train(settings, data.images, data.labels, device, checkpoint, progress)
    judge = classifier(plan)
    start = build_players(settings, plan.size, plan.colours)[0].eval().to(device)
    fake, untrained = (generate(g, data.real_labels, generator_of(seed, 12)) for g in (trained.generator, start))
    content = {"case": str(case), **asdict(case), "share": share, "images": len(data.images), "seed": seed}
    content |= {name: getattr(trained, name) for name in ("status", "message", "iterations", "seconds")}
    content |= {
        "generator": _size_of(settings.generator_channels, trained.latest),
        "discriminator": _size_of(settings.discriminator_channels, trained.discriminator),
        "scores": _numbers(score_images(judge, data.real, fake)),
        "untrained": _numbers(score_images(judge, data.real, untrained)),
        "residuals": residuals(trained, case.group, data),
        "curves": _thinned(trained),
    }
    if trained.generator.kind == "plain":
        copies = {group: moved(group, fake, generator_of(seed, 13)) for group in TURNED[plan.data]}
        content["turned"] = {group: _numbers(score_images(judge, data.real, x)) for group, x in copies.items()}
    return content, trained.samples[max(trained.samples)]


def real_scores(plan: Plan) -> dict[str, Any]:
    """Return the scores of real images of the training part, at most as many as held-out ones: the floor."""
    data = pictures(plan, 1.0, 0)
    count = min(len(data.images), len(data.real))
    return _numbers(score_images(classifier(plan), data.real[:count], data.images[:count])) | {"images": count}


def _size_of(channels: int, player: torch.nn.Module) -> dict[str, int]:
    return {"channels": channels, "parameters": parameters(player)}


def moved(group: str, images: Tensor, rng: torch.Generator) -> Tensor:
    """Return every image moved by a random element of a group of ``lib.gans.planar_convolution.GROUPS``."""
    elements = GROUPS[group].elements()
    return act_on_images(group, elements[torch.randint(len(elements), (len(images),), generator=rng)], images)


def _numbers(scores: ImageScores) -> dict[str, Any]:
    spreads = {"classes": scores.classes, "orientations": scores.orientations}
    return {
        "frechet": float(scores.frechet),
        "coverage": float(scores.coverage),
        **{f"share_of_{name}": spread.shares.tolist() for name, spread in spreads.items()},
        **{f"entropy_of_{name}": float(spread.entropy) for name, spread in spreads.items()},
    }


@torch.no_grad()
def residuals(trained: Trained, group: str, data: Pictures, count: int = 64) -> dict[str, float]:
    """Return how far the trained players are from equivariant and invariant under a group.

    Of the generator, the largest |g(z, τσ) − ρ(τ) g(z, σ)| over pixels, noise and τ, where a plain generator takes no
    notice of τ; of the discriminator, the largest |γ(ρ(τ)x) − γ(x)| over images and τ, divided by the largest |γ(x)|.
    For p8 the names with ``eighths`` hold the odd τ, whose action on pixels interpolates, and the others the even ones.
    """
    device = next(trained.generator.parameters()).device
    x, labels = data.real[:count].to(device), data.real_labels[:count].to(device)
    player, judge = trained.generator, trained.discriminator
    noise = player.draw(labels, generator_of(0, 14))
    fake, scores = player(noise), judge(x, labels)
    found: dict[str, list[float]] = {}
    for k, element in enumerate(GROUPS[group].elements().to(device)):
        answer = player(player.turn(noise, element)) if player.group == group else fake
        suffix = "_eighths" if group == "p8" and k % 2 else ""
        shift = (judge(act_on_images(group, element, x).clamp(-1, 1), labels) - scores).abs().max()
        gap = (answer - act_on_images(group, element, fake)).abs().max()
        found.setdefault(f"generator{suffix}", []).append(float(gap))
        found.setdefault(f"discriminator{suffix}", []).append(float(shift / scores.abs().max()))
    return {name: max(values) for name, values in found.items()}


def _thinned(trained: Trained, points: int = 40) -> dict[str, list[float]]:
    """Return the history as means over at most ``points`` stretches."""
    parts = {name: values.tensor_split(min(points, max(1, len(values)))) for name, values in trained.history.items()}
    return {name: [round(float(p.mean()), 5) for p in split if len(p)] for name, split in parts.items()}
