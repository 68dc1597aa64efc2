"""Games of convolutional players on images: settings in, players out.

The game is that of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs"). Players come from
:mod:`lib.gans.image_players`, objectives from :mod:`lib.gans.objectives`, the loop from :mod:`lib.gans.game`. On one
machine, with one number of threads, a training depends on its settings and data only, to the last bit.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_instance, check_int, check_tensor
from lib.device import usable_device
from lib.gans.game import Hand, compete, follow
from lib.gans.image_players import Discriminator, Generator, matched_channels
from lib.gans.objectives import NAMES, Objective, objective
from lib.gans.planar_convolution import GROUPS, act_on_images
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

    def __post_init__(self) -> None:
        check_choice("pairing", self.pairing, PAIRINGS)
        check_choice("objective", self.objective, NAMES)
        for name in ("group", "augmentation"):
            check_choice(name, getattr(self, name), GROUPS)
        if self.group == "none" and self.pairing != "plain/plain":
            raise ValueError(f"group must not be 'none' for the pairing {self.pairing!r}")
        for name in ["latent", "classes", "generator_channels", "discriminator_channels", "discriminator_steps"]:
            check_int(name, getattr(self, name))
        check_int("batch", self.batch, minimum=2)
        for name in ("iterations", "seed"):
            check_int(name, getattr(self, name), minimum=0)
        for name in ("generator_rate", "discriminator_rate"):
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


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training leaves.

    Attributes
    ----------
    generator : lib.gans.image_players.Generator
        With averaged weights, in evaluation mode: the one to sample from.
    latest : lib.gans.image_players.Generator
        With the weights after the last step.
    discriminator : lib.gans.image_players.Discriminator
        After the last step.
    losses : Tensor
        Of discriminator and generator at every iteration, shape ``(iterations, 2)``.
    diverged : bool
        Whether a loss or a weight is not finite.
    """

    generator: Generator
    latest: Generator
    discriminator: Discriminator
    losses: Tensor
    diverged: bool


def train(settings: Settings, images: Tensor, labels: Tensor | None, device: torch.device | str = "cpu") -> Trained:
    """Train two players on images.

    Parameters
    ----------
    settings
        The game.
    images
        Training images with values in [−1, 1], float32, shape ``(n, c, h, h)``.
    labels
        Classes, int64, shape ``(n,)``; None if there is only one. Generated batches get the classes of real ones.
    device
        Where to train.

    Raises
    ------
    TypeError, ValueError
        Bad input.
    """
    s, place = settings, usable_device("device", device)
    x, y = (part.to(place) for part in check_data(s, images, labels))
    generator, discriminator = (p.to(place) for p in build_players(s, x.shape[-1], x.shape[1]))
    average = copy.deepcopy(generator).eval().requires_grad_(False)
    rng, penalty_rng = generator_of(s.seed, 2), generator_of(s.seed, 3)

    def deal(_: bool) -> Hand:
        which = torch.randint(len(x), (s.batch,), generator=rng, device="cpu").to(place)
        real, classes = x[which], y[which]
        if s.augmentation != "none":
            real = move_images(s.augmentation, real, rng)
        noise = generator.draw(classes, rng)
        return Hand(real, lambda: generator(noise), lambda z: discriminator(z, classes))

    def after(step: int) -> None:
        decay = min(s.ema_decay, (2 + step) / (11 + step))
        follow(*(list(p.state_dict().values()) for p in (average, generator)), decay)

    betas, rates = (s.first_beta, s.second_beta), (s.generator_rate, s.discriminator_rate)
    adam = [torch.optim.Adam(p.parameters(), r, betas) for p, r in zip((generator, discriminator), rates, strict=True)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        losses = compete(deal, s.game, adam, s.iterations, penalty_rng, after, s.discriminator_steps, event_dims=3)
    weights = [p.detach().flatten() for player in (generator, discriminator) for p in player.parameters()]
    finite = bool(torch.isfinite(losses).all()) and all(bool(torch.isfinite(w).all()) for w in weights)
    return Trained(average, generator, discriminator, losses.cpu(), not finite)


def generate(generator: Generator, labels: Tensor, rng: torch.Generator, batch: int = 256) -> Tensor:
    """Return generated images of given classes, shape ``(n, c, h, h)`` with values in [−1, 1], on the CPU.

    Parameters
    ----------
    generator
        A player in evaluation mode.
    labels
        Classes, shape ``(n,)``.
    rng
        Source of the noise.
    batch
        Images at once.
    """
    check_int("batch", batch)
    check_instance("generator", generator, Generator)
    if check_tensor("labels", labels, (None,)).ndim != 1 or not len(labels):
        raise ValueError(f"labels must have shape (n,) with n ≥ 1, got {tuple(labels.shape)}")
    device = next(generator.parameters()).device
    with torch.no_grad():
        return torch.cat([generator(generator.draw(part.to(device), rng)).cpu() for part in labels.split(batch)])


def move_images(group: str, images: Tensor, rng: torch.Generator) -> Tensor:
    """Return every image moved by a random element of a group of ``lib.gans.planar_convolution.GROUPS``."""
    elements = GROUPS[check_choice("group", group, GROUPS)].sample(len(images), rng)
    return act_on_images(group, elements.to(images.device), images)


@torch.no_grad()
def residuals(
    generator: Generator, discriminator: Discriminator, group: str, images: Tensor, labels: Tensor
) -> dict[str, float]:
    """Return how far two players are from equivariant and invariant under a group.

    Of the generator, the largest |g(z, τσ) − ρ(τ) g(z, σ)| over pixels, noise and τ, where a plain generator takes no
    notice of τ; of the discriminator, the largest |γ(ρ(τ)x) − γ(x)| over images and τ, divided by the largest |γ(x)|.
    For p8 the names with ``eighths`` hold the odd τ, whose action on pixels interpolates, and the others the even ones.

    Parameters
    ----------
    generator, discriminator
        The players, in evaluation mode.
    group
        A key of ``lib.gans.planar_convolution.GROUPS``.
    images, labels
        Real images ``(n, c, h, h)`` and their classes ``(n,)``.
    """
    device = next(generator.parameters()).device
    x, y = images.to(device), labels.to(device)
    noise = generator.draw(y, generator_of(0, 14))
    fake, scores = generator(noise), discriminator(x, y)
    found: dict[str, list[float]] = {}
    for k, element in enumerate(GROUPS[check_choice("group", group, GROUPS)].elements().to(device)):
        answer = generator(generator.turn(noise, element)) if generator.group == group else fake
        suffix = "_eighths" if group == "p8" and k % 2 else ""
        shift = (discriminator(act_on_images(group, element, x).clamp(-1, 1), y) - scores).abs().max()
        gap = (answer - act_on_images(group, element, fake)).abs().max()
        found.setdefault(f"generator{suffix}", []).append(float(gap))
        found.setdefault(f"discriminator{suffix}", []).append(float(shift / scores.abs().max()))
    return {name: max(values) for name, values in found.items()}
