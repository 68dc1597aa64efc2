"""Settings of a game between two players on images, and the players they describe; :mod:`lib.gans.training` plays it.

Players come from :mod:`lib.gans.image_players`, objectives from :mod:`lib.gans.objectives`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_instance, check_int, check_tensor
from lib.gans.image_players import Discriminator, Generator, matched_channels
from lib.gans.objectives import NAMES, Objective, objective
from lib.gans.planar_convolution import GROUPS
from lib.training.ensembles import generator_of

PAIRINGS = {
    "plain/plain": ("plain", "plain"),
    "plain/invariant": ("plain", "invariant"),
    "equivariant/plain": ("equivariant", "plain"),
    "incomplete/invariant": ("incomplete", "invariant"),
    "equivariant/invariant": ("equivariant", "invariant"),
}


@dataclass(frozen=True)
class Settings:
    """One game and its training; the defaults are the source's for rotated digits, but for length and averaging.

    Attributes
    ----------
    pairing : str
        Generator and discriminator, one of ``PAIRINGS``.
    group : str
        Symmetry of the players that have one, a key of ``lib.gans.planar_convolution.GROUPS``.
    objective : str
        One of ``lib.gans.objectives.NAMES``.
    penalty_weight : float or None
        Weight of the gradient penalty; None: the objective's own.
    latent, classes : int
        Size of the latent vector; number of classes, 1 without.
    generator_channels, discriminator_channels : int
        Total channels of hidden layers, see :mod:`lib.gans.image_players`.
    batch, iterations, discriminator_steps : int
        Images per step, steps of the generator, steps of the discriminator before each.
    generator_rate, discriminator_rate, first_beta, second_beta : float
        Adam.
    ema_decay : float
        Decay a of the generator's average, v ← a_t v + (1 − a_t) w, with a_t = min(a, (1 + t)/(10 + t)).
    augmentation : str
        Every training image is moved by a random element of this group whenever it is used; "none" by default.
    seed : int
        Of everything random.
    window : int
        The run counts as diverged after this many iterations in a row with a saturated discriminator,
    saturation : float
        that is, with every real score of a batch above every generated one by more than this.
    """

    pairing: str = "equivariant/invariant"
    group: str = "p4"
    objective: str = "relativistic"
    penalty_weight: float | None = None
    latent: int = 64
    classes: int = 10
    generator_channels: int = 64
    discriminator_channels: int = 64
    batch: int = 64
    iterations: int = 2000
    discriminator_steps: int = 2
    generator_rate: float = 1e-4
    discriminator_rate: float = 4e-4
    first_beta: float = 0.0
    second_beta: float = 0.9
    ema_decay: float = 0.999
    augmentation: str = "none"
    seed: int = 0
    window: int = 500
    saturation: float = 20.0

    def __post_init__(self) -> None:
        check_choice("pairing", self.pairing, PAIRINGS)
        check_choice("objective", self.objective, NAMES)
        for name in ("group", "augmentation"):
            check_choice(name, getattr(self, name), GROUPS)
        if self.group == "none" and self.pairing != "plain/plain":
            raise ValueError(f"group must not be 'none' for the pairing {self.pairing!r}")
        counts = "latent classes generator_channels discriminator_channels discriminator_steps window"
        for name in counts.split():
            check_int(name, getattr(self, name))
        check_int("batch", self.batch, minimum=2)
        for name in ("iterations", "seed"):
            check_int(name, getattr(self, name), minimum=0)
        for name in ("generator_rate", "discriminator_rate", "saturation"):
            check_float(name, getattr(self, name), minimum=0.0)
        for name in ("first_beta", "second_beta", "ema_decay"):
            check_float(name, getattr(self, name), minimum=0.0, maximum=1 - 1e-9)
        if self.penalty_weight is not None:
            check_float("penalty_weight", self.penalty_weight, minimum=0.0)

    @property
    def game(self) -> Objective:
        """The objective, with the weight of the penalty that is asked for."""
        game = objective(self.objective)
        return game if self.penalty_weight is None else replace(game, penalty_weight=float(self.penalty_weight))


def build_players(settings: Settings, size: int, colours: int) -> tuple[Generator, Discriminator]:
    """Return both players before training; they depend on the settings only.

    Parameters
    ----------
    settings
        Pairing, group, channels, latent, classes, seed.
    size, colours
        Of the images.
    """
    check_instance("settings", settings, Settings)
    kind, judge = PAIRINGS[settings.pairing]
    common = {"size": size, "colours": colours, "classes": settings.classes}
    generator = Generator(
        channels=settings.generator_channels,
        group="none" if kind == "plain" else settings.group,
        kind=kind,
        latent=settings.latent,
        rng=generator_of(settings.seed, 0),
        **common,
    )
    discriminator = Discriminator(
        channels=settings.discriminator_channels,
        group="none" if judge == "plain" else settings.group,
        rng=generator_of(settings.seed, 1),
        **common,
    )
    return generator, discriminator


def match_parameters(settings: Settings, size: int, colours: int) -> Settings:
    """Return settings in which symmetric players have as many parameters as the plain ones of so many channels.

    Parameters
    ----------
    settings
        ``generator_channels`` and ``discriminator_channels`` are those of plain players.
    size, colours
        Of the images.
    """
    kind, judge = PAIRINGS[check_instance("settings", settings, Settings).pairing]
    common = {"size": size, "colours": colours, "classes": settings.classes}
    channels = {}
    if kind != "plain":
        wide = matched_channels(
            Generator, settings.generator_channels, settings.group, latent=settings.latent, **common
        )
        channels["generator_channels"] = wide
    if judge != "plain":
        wide = matched_channels(Discriminator, settings.discriminator_channels, settings.group, **common)
        channels["discriminator_channels"] = wide
    return replace(settings, **channels)


def check_data(settings: Settings, images: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return training images as float32 and their classes, zeros for ``None``.

    Raises
    ------
    TypeError, ValueError
        Images that are not square or leave [−1, 1]; labels that do not fit the images or the number of classes.
    """
    check_instance("settings", settings, Settings)
    if check_tensor("images", images, (None, None, None, None), inexact=True, real=True).requires_grad:
        raise ValueError("images must not require gradients: pass images.detach()")
    n, colours, height, width = images.shape[-4:]
    if images.ndim != 4 or height != width or not n or not colours:
        raise ValueError(f"images must have shape (n, c, h, h) with n and c at least 1, got {tuple(images.shape)}")
    if float(images.abs().max()) > 1:
        raise ValueError(f"images must have values in [-1, 1], got some of size {float(images.abs().max()):g}")
    if labels is None:
        if settings.classes != 1:
            raise ValueError(f"labels must be given for {settings.classes} classes, got None")
        return images.float(), torch.zeros(n, dtype=torch.int64, device=images.device)
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        raise TypeError(f"labels must be a torch.Tensor of dtype torch.int64, got {type(labels).__name__}")
    if labels.shape != (n,) or int(labels.min()) < 0 or int(labels.max()) >= settings.classes:
        raise ValueError(
            f"labels must have shape ({n},) and values in 0..{settings.classes - 1}, got shape {tuple(labels.shape)}"
        )
    return images.float(), labels
