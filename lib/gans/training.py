"""Training of two players on images: settings in, players out.

The game is that of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs"); see
:mod:`lib.gans.settings` for what can be set. On one machine, with one number of threads, a training depends on its
settings and data only, to the last bit.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from lib.checks import check_choice, check_instance, check_int, check_tensor
from lib.device import usable_device
from lib.gans.image_players import Discriminator, Generator
from lib.gans.planar_convolution import GROUPS, act_on_images
from lib.gans.settings import Settings, build_players, check_data
from lib.training.ensembles import generator_of


class Divergence(ArithmeticError):
    """A training left the finite numbers, or its discriminator stayed saturated."""


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes
    ----------
    settings : lib.gans.settings.Settings
        Its settings.
    generator : lib.gans.image_players.Generator
        With averaged weights, in evaluation mode: the one to sample from.
    latest : lib.gans.image_players.Generator
        With the weights after the last step; not finite, perhaps, after a divergence.
    discriminator : lib.gans.image_players.Discriminator
        After the last step.
    history : dict of str to Tensor
        ``discriminator_loss``, ``generator_loss`` and ``margin`` (least real score minus largest generated score of a
        batch) at every iteration, float64.
    problem : str
        Why it diverged; empty if it did not.
    """

    settings: Settings
    generator: Generator
    latest: Generator
    discriminator: Discriminator
    history: dict[str, Tensor]
    problem: str = ""


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

    Returns
    -------
    Trained
        Players and history; a divergence is a problem, not an error.

    Raises
    ------
    TypeError, ValueError
        Bad input.
    """
    x, y = check_data(settings, images, labels)
    place = usable_device("device", device)
    game, problem = _Game(settings, x.to(place), y.to(place)), ""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        try:
            for _ in range(settings.iterations):
                game.step()
        except Divergence as error:
            problem = str(error)
    rows = torch.tensor(game.history, dtype=torch.float64, device="cpu").reshape(-1, 3)
    history = dict(zip(("discriminator_loss", "generator_loss", "margin"), rows.unbind(-1), strict=True))
    return Trained(settings, game.average, game.generator, game.discriminator, history, problem)


class _Game:
    """Both players, their optimisers, and all sources of random numbers."""

    def __init__(self, settings: Settings, images: Tensor, labels: Tensor) -> None:
        s = self.settings = settings
        self.images, self.labels, device = images, labels, images.device
        generator, discriminator = build_players(s, images.shape[-1], images.shape[1])
        self.generator, self.discriminator = generator.to(device), discriminator.to(device)
        self.average = copy.deepcopy(self.generator).eval().requires_grad_(False)
        betas = (s.first_beta, s.second_beta)
        self.generator_adam = torch.optim.Adam(self.generator.parameters(), s.generator_rate, betas)
        self.discriminator_adam = torch.optim.Adam(self.discriminator.parameters(), s.discriminator_rate, betas)
        self.rng = generator_of(s.seed, 2)
        self.penalty_rng = generator_of(s.seed, 3)
        self.history: list[list[float]] = []

    def step(self) -> None:
        """Do one iteration: some steps of the discriminator, one of the generator, and its average."""
        for _ in range(self.settings.discriminator_steps):
            loss = self._discriminator_step()
        self.history.append([loss, *self._generator_step()])
        self._average()
        last = self.history[-self.settings.window :]
        if len(last) == self.settings.window and min(margin for _, _, margin in last) > self.settings.saturation:
            raise Divergence(
                f"the discriminator was saturated for {len(last)} iterations in a row: every real score above "
                f"every generated one by more than {self.settings.saturation:g}"
            )

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return real images, drawn with replacement and moved as the augmentation says, and their classes."""
        s = self.settings
        which = torch.randint(len(self.images), (s.batch,), generator=self.rng, device="cpu").to(self.images.device)
        x, y = self.images[which], self.labels[which]
        return x if s.augmentation == "none" else move_images(s.augmentation, x, self.rng), y

    def _discriminator_step(self) -> float:
        real, labels = self._batch()
        with torch.no_grad():
            fake = self.generator(self.generator.draw(labels, self.rng))
        self._sound("a generated image", fake.sum())
        self.discriminator_adam.zero_grad()
        loss = self.settings.game.discriminator_loss(
            lambda x: self.discriminator(x, labels), real, fake, self.penalty_rng, event_dims=3
        )
        self._sound("the discriminator's loss", loss)
        loss.backward()
        self.discriminator_adam.step()
        self._sound("a weight of the discriminator", _norm(self.discriminator))
        return float(loss.detach())

    def _generator_step(self) -> tuple[float, float]:
        """Return the generator's loss, and the margin between real and generated scores."""
        real, labels = self._batch()
        self.discriminator.requires_grad_(False)
        with torch.no_grad():
            real_scores = self.discriminator(real, labels)
        fake_scores = self.discriminator(self.generator(self.generator.draw(labels, self.rng)), labels)
        self.generator_adam.zero_grad()
        loss = self.settings.game.generator_loss(real_scores, fake_scores)
        self._sound("the generator's loss", loss)
        loss.backward()
        self.generator_adam.step()
        self.discriminator.requires_grad_(True)
        self._sound("a weight of the generator", _norm(self.generator))
        return float(loss.detach()), float(real_scores.min() - fake_scores.detach().max())

    def _sound(self, what: str, value: Tensor) -> None:
        if not math.isfinite(float(value.detach())):
            raise Divergence(f"{what} was not finite in iteration {len(self.history) + 1}")

    @torch.no_grad()
    def _average(self) -> None:
        """Move the averaged weights and running statistics towards the generator's; integers are copied."""
        decay = min(self.settings.ema_decay, (1 + len(self.history)) / (10 + len(self.history)))
        latest = self.generator.state_dict()
        for name, value in self.average.state_dict().items():
            if value.is_floating_point():
                value.lerp_(latest[name], 1 - decay)
            else:
                value.copy_(latest[name])


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


def _norm(player: torch.nn.Module) -> Tensor:
    return get_total_norm([p.detach() for p in player.parameters()])
