"""The whole state of a training of two players: one step of the game, checkpoints; :mod:`lib.gans.training` runs it."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from lib.checks import check_instance, check_int, check_tensor
from lib.gans.image_players import Generator
from lib.gans.planar_convolution import GROUPS, act_on_images
from lib.gans.settings import Settings, build_players
from lib.page.stored import write_whole
from lib.training.ensembles import generator_of

# What a checkpoint may differ in from the run that goes on from it: how long the run is, and how often it is stored.
FREE = ("iterations", "save_every")


class Divergence(ArithmeticError):
    """A training left the finite numbers, or its discriminator stayed saturated."""


@dataclass
class Run:
    """The whole state of a training: what :meth:`store` writes and :meth:`restore` reads."""

    settings: Settings
    images: Tensor
    labels: Tensor
    device: torch.device
    iteration: int = 0
    status: str = "running"
    message: str = ""
    saturated: int = 0
    seconds: float = 0.0
    history: list[list[float]] = field(default_factory=list)
    samples: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s = self.settings
        self.digest = _digest(self.images, self.labels)
        self.images, self.labels = self.images.to(self.device), self.labels.to(self.device)
        generator, discriminator = build_players(s, self.images.shape[-1], self.images.shape[1])
        self.generator, self.discriminator = generator.to(self.device), discriminator.to(self.device)
        self.average = copy.deepcopy(self.generator).eval().requires_grad_(False)
        betas = (s.first_beta, s.second_beta)
        self.generator_adam = torch.optim.Adam(self.generator.parameters(), s.generator_rate, betas)
        self.discriminator_adam = torch.optim.Adam(self.discriminator.parameters(), s.discriminator_rate, betas)
        self.rng = generator_of(s.seed, 2)
        self.penalty_rng = generator_of(s.seed, 3)

    # -- training

    def step(self) -> None:
        """Do one iteration: some steps of the discriminator, one of the generator, and its average."""
        for _ in range(self.settings.discriminator_steps):
            loss = self._discriminator_step()
        self.history.append([loss, *self._generator_step()])
        self.iteration += 1
        self._average()
        self.saturated = self.saturated + 1 if self.history[-1][-1] > self.settings.saturation else 0
        if self.saturated >= self.settings.window:
            raise Divergence(
                f"the discriminator was saturated for {self.saturated} iterations in a row: every real score above "
                f"every generated one by more than {self.settings.saturation:g}"
            )

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return real images, drawn with replacement and moved as the augmentation says, and their classes."""
        n, s = len(self.images), self.settings
        which = torch.randint(n, (s.batch,), generator=self.rng, device="cpu").to(self.device)
        x, y = self.images[which], self.labels[which]
        if s.augmentation != "none":
            group = GROUPS[s.augmentation]
            element = group.elements()[torch.randint(group.order, (s.batch,), generator=self.rng, device="cpu")]
            x = act_on_images(s.augmentation, element.to(self.device), x)
        return x, y

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
            raise Divergence(f"{what} was not finite in iteration {self.iteration + 1}")

    @torch.no_grad()
    def _average(self) -> None:
        """Move the averaged weights and running statistics towards the generator's; integers are copied."""
        decay = min(self.settings.ema_decay, (1 + self.iteration) / (10 + self.iteration))
        latest = self.generator.state_dict()
        for name, value in self.average.state_dict().items():
            if value.is_floating_point():
                value.lerp_(latest[name], 1 - decay)
            else:
                value.copy_(latest[name])

    def sample(self) -> None:
        """Add a grid of samples of the averaged generator."""
        labels = torch.arange(self.settings.samples, device="cpu") % self.settings.classes
        images = generate(self.average, labels, generator_of(self.settings.seed, 4))
        self.samples[self.iteration] = to_uint8(images)

    # -- storing

    @property
    def _parts(self) -> dict[str, Any]:
        names = ("generator", "discriminator", "average", "generator_adam", "discriminator_adam")
        return {name: getattr(self, name) for name in names}

    def store(self, path: Path) -> None:
        """Write a checkpoint whole or not at all."""
        content = {name: part.state_dict() for name, part in self._parts.items()} | {
            "settings": asdict(self.settings),
            "digest": self.digest,
            "device": self.device.type,
            "rng": self.rng.get_state(),
            "penalty_rng": self.penalty_rng.get_state(),
            "history": torch.tensor(self.history, dtype=torch.float64, device="cpu"),
        }
        content |= {name: getattr(self, name) for name in ("iteration", "status", "message", "saturated", "seconds")}
        buffer = BytesIO()
        torch.save(content | {"samples": self.samples}, buffer)
        write_whole(path, buffer.getvalue())

    def restore(self, content: dict[str, Any], path: Path) -> None:
        """Take everything from a checkpoint, after checks that it belongs to this run."""
        self._refuse_others(content, path)
        for name, part in self._parts.items():
            part.load_state_dict(content[name])
        self.rng.set_state(content["rng"])
        self.penalty_rng.set_state(content["penalty_rng"])
        self.history = content["history"].reshape(-1, 3).tolist()
        for name in ("iteration", "status", "message", "saturated", "seconds"):
            setattr(self, name, content[name])
        self.samples = content["samples"]
        if self.status != "diverged":  # the last grid of a shorter run is none of a longer one's
            self.status = "running"
            self.samples = {k: grid for k, grid in self.samples.items() if k % self.settings.sample_every == 0}

    def _refuse_others(self, content: dict[str, Any], path: Path) -> None:
        theirs, ours = content["settings"], asdict(self.settings)
        names = [n for n in ours if n not in FREE and theirs.get(n, "nothing") != ours[n]]
        other = [f"{n} = {theirs.get(n, 'nothing')!r} (here {ours[n]!r})" for n in names]
        if content["digest"] != self.digest:
            other.append("other training images")
        if content["device"] != self.device.type:
            other.append(f"a device of type {content['device']!r} (here {self.device.type!r})")
        if content["iteration"] > self.settings.iterations:
            other.append(f"{content['iteration']} iterations done (here {self.settings.iterations})")
        if other:
            raise ValueError(
                f"checkpoint {path.name} is of another run, with {'; '.join(other)}: give every run a file of its own"
            )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint.

    Raises
    ------
    ValueError
        The file is truncated, or no checkpoint of a training.
    """
    try:
        content = torch.load(BytesIO(path.read_bytes()), map_location="cpu", weights_only=True)
    except Exception as error:
        content, reason = None, type(error).__name__
    else:
        reason = "other content"
    if not isinstance(content, dict) or "settings" not in content or "penalty_rng" not in content:
        raise ValueError(
            f"checkpoint {path.name} cannot be read ({reason}): truncated or no checkpoint of this training; delete it "
            "to start from the beginning"
        )
    return content


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


def to_uint8(images: Tensor) -> Tensor:
    """Return images with values in [−1, 1] as integers from 0 to 255."""
    check_tensor("images", images, inexact=True, real=True)
    return ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def _norm(player: torch.nn.Module) -> Tensor:
    return get_total_norm([p.detach() for p in player.parameters()])


def _digest(images: Tensor, labels: Tensor) -> str:
    digest = hashlib.sha256(repr(tuple(images.shape)).encode())
    for values in (images, labels):
        digest.update(values.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
