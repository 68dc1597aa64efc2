"""Chapter *Structure-preserving GANs*: symmetric players trained by every objective of the family (G7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_choice, check_int
from lib.gans.mixtures import Mixture, gaussian_mixture
from lib.gans.objectives import NAMES, gaussian_kernel, mmd_loss, sinkhorn_loss
from lib.gans.plane_games import Pairing, play
from lib.gans.plane_games import Settings as GameSettings
from lib.gans.plane_players import make_generator
from lib.transport.divergences import transport

LOSSES = {  # without a discriminator; the scales are those of a square of radius 3
    "mmd": lambda x, y: mmd_loss(x, y, gaussian_kernel((0.5, 1.0, 2.0, 4.0))),
    "sinkhorn": lambda x, y: sinkhorn_loss(x, y, epsilon=0.5, iterations=5),
}
ALL = (*NAMES, *LOSSES)
AVERAGE = 0.97  # decay of the running mean of the generators' weights: games this short need a short memory


@dataclass(frozen=True)
class Settings:
    """How the symmetric players are trained; the target is the mixture of four Gaussians.

    Attributes
    ----------
    seeds, samples, iterations, batch, width : int
        Runs, training points of each, steps, points in a step, and hidden coordinates of both players.
    generator_rate, discriminator_rate : float
        Step sizes of Adam.
    frames : int
        Times at which the distance to the target is measured, the first before training.
    truth : int
        Points of the true law that the generated points are compared with.
    seed : int
        Source of all randomness.
    """

    seeds: int = 3
    samples: int = 200
    iterations: int = 300
    batch: int = 50
    width: int = 16
    generator_rate: float = 8e-3
    discriminator_rate: float = 1.6e-2
    frames: int = 5
    truth: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("seeds", "samples", "iterations", "width", "truth"):
            check_int(name, getattr(self, name))
        self.game("jsd")  # checks the others

    def game(self, name: str, climbs: bool = False) -> GameSettings:
        """Return the settings of one game; with ``climbs`` the generator goes up on its loss instead of down."""
        return GameSettings(
            seeds=self.seeds,
            samples=(self.samples,),
            iterations=self.iterations,
            batch=self.batch,
            generator_width=self.width,
            discriminator_width=self.width,
            generator_rate=self.generator_rate,
            discriminator_rate=self.discriminator_rate,
            objective=name,
            average=AVERAGE,
            climbs=climbs,
            frames=self.frames,
            seed=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Curves:
    """Distances to the target while training.

    Attributes
    ----------
    times : list of int
        Steps of the generator.
    distances : dict
        Wasserstein-1 distance of 150 generated points to points of the true law, by objective, shape
        ``(frames, seeds)``.
    floor : Tensor
        The same distance for 150 points of the true law itself, shape ``(seeds,)``.
    """

    times: list[int]
    distances: dict[str, Tensor]
    floor: Tensor

    @property
    def gains(self) -> dict[str, Tensor]:
        """Relative drop of the distance from the first frame to the last, by objective, shape ``(seeds,)``."""
        return {name: 1 - curve[-1] / curve[0] for name, curve in self.distances.items()}


def train_objectives(settings: Settings, names: Sequence[str] = ALL, climbs: bool = False) -> Curves:
    """Train an equivariant generator, against an invariant discriminator where there is one, by every objective.

    Parameters
    ----------
    settings
        How to train.
    names
        Which objectives, out of ``ALL``.
    climbs
        Whether the generator goes up on its loss: the control. A trained discriminator then tells it where the data
        are, and it goes the other way. (A frozen random one is no control: it may pull the right way by chance.)
        ``mmd`` and ``sinkhorn`` have no discriminator.

    Raises
    ------
    ValueError
        An unknown objective, or one without a discriminator where the generator is to climb.
    """
    for name in names:
        check_choice("names", name, NAMES if climbs else ALL)
    target, rng = gaussian_mixture(), torch.Generator().manual_seed(1000 + settings.seed)
    truth = target.sample((settings.seeds, settings.truth), rng)
    floor = _distances(target.sample((settings.seeds, 150), rng), truth)
    times, curves = [], {}
    for name in names:
        times, frames = _frames(settings, target, name, climbs)
        curves[name] = torch.stack([_distances(points, truth) for points in frames])
    return Curves(times, curves, floor)


def _frames(settings: Settings, target: Mixture, name: str, climbs: bool) -> tuple[list[int], Tensor]:
    if name in LOSSES:
        return _descend(settings, target, LOSSES[name])
    [game] = play(settings.game(name, climbs), [Pairing("equivariant", "invariant")], target)
    return game.times, game.snapshots


def _descend(settings: Settings, target: Mixture, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[list[int], Tensor]:
    """Minimise a loss between two samples; generators and data start as in :func:`lib.gans.plane_games.play`."""
    rng, data_rng = (torch.Generator().manual_seed(3 * settings.seed + k) for k in range(2))
    g = make_generator("equivariant", target.representation, settings.seeds, rng, width=settings.width)
    data = target.sample((settings.seeds, settings.samples), data_rng)
    optimiser = torch.optim.Adam(g.parameters, settings.generator_rate, (0.5, 0.9), fused=True)
    picture = torch.randn(settings.seeds, 150, g.inputs, generator=rng)
    times = torch.linspace(0, settings.iterations, settings.frames).round().long().unique().tolist()
    frames = [g(picture).detach()]
    for step in range(1, settings.iterations + 1):
        chosen = torch.randperm(settings.samples, generator=rng)[: settings.batch]
        fake = g(torch.randn(settings.seeds, settings.batch, g.inputs, generator=rng))
        optimiser.zero_grad()
        loss(data[:, chosen], fake).sum().backward()
        optimiser.step()
        frames += [g(picture).detach()] * times.count(step)
    return times, torch.stack(frames)


def _distances(points: Tensor, truth: Tensor) -> Tensor:
    """Return W1 of clouds ``(runs, n, 2)`` and ``(runs, m, 2)``, shape ``(runs,)``."""
    masses = [np.full(cloud.shape[1], 1 / cloud.shape[1]) for cloud in (points, truth)]
    costs = torch.cdist(points.double(), truth.double())
    return torch.tensor([transport(cost, *masses) for cost in costs], dtype=torch.float64)
