"""Adversarial games between batches of small players: all runs of a pairing are trained at once.

Two pairings played with the same settings see the same training data, the same batches and the same noise, run by run,
so that their results are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lib.checks import check_int
from lib.gans.game import follow, kinds_of, step_against
from lib.gans.layers import Players, side_by_side
from lib.gans.mixtures import Mixture, squash, unsquash
from lib.gans.objectives import objective
from lib.gans.plane_players import (
    DISCRIMINATORS,
    GENERATORS,
    averaged,
    group_matrices,
    make_discriminator,
    make_generator,
    matched_width,
)
from lib.progress import progress
from lib.symmetry.representations import Representation

TURNED = " on turned data"  # ends the name of a pairing whose training points are turned at every use: augmentation
_FRAME = 150  # points of one picture
_BETAS = (0.5, 0.9)  # of Adam: little memory, as usual in games


@dataclass(frozen=True)
class Settings:
    """How a game is played.

    All numbers of training points are played at once, ``runs = len(samples) · seeds``, sizes first; smaller data sets
    are the beginnings of larger ones. The running mean of the generator's weights is what is scored. Matched, tied
    generators are widened until they have about as many free parameters as the plain one (plain and averaged
    discriminators agree anyway). Squashed, the game is played on ``squash(x)``, and the generated points are
    ``unsquash`` of what the generator says.
    """

    seeds: int = 8  #: repetitions; each has players and data of its own
    samples: tuple[int, ...] = (200,)  #: numbers of training points
    iterations: int = 600  #: steps of the generator
    batch: int = 50  #: points in a step, at most the smallest number of training points
    width: int = 32  #: hidden coordinates per layer
    matched: bool = False  #: whether players have equal numbers of parameters, not widths
    rate: float = 4e-3  #: learning rate of the generator's Adam, half of that of the discriminator's
    steps: int = 1  #: of the discriminator before each step of the generator
    objective: str = "relativistic"  #: a name of :mod:`lib.gans.objectives`
    average: float = 0.99  #: decay of the running mean
    squashed: bool = False  #: whether lengths are played in logarithms
    frames: int = 2  #: snapshots of generated points, the first before training; at most one more than iterations
    seed: int = 0  #: source of all randomness

    def __post_init__(self) -> None:
        check_int("batch", self.batch, 2, min(self.samples))

    @property
    def runs(self) -> int:
        """Number of games of one pairing."""
        return len(self.samples) * self.seeds


class Game(NamedTuple):
    """The runs of one pairing, played to the end."""

    settings: Settings  #: how they were played
    target: Mixture  #: on which law
    untrained: Players  #: generators before training
    generator: Players  #: with the running mean of their weights after it
    last: Players  #: as the last step left them
    judge: Players  #: networks of the discriminators as the last step left them
    data: Tensor  #: training points, shape ``(runs, max(samples), dim)``; a run uses its first ``samples`` rows
    times: list[int]  #: iterations at which snapshots were taken
    snapshots: Tensor  #: points of the averaged generators from the same noise, ``(frames, runs, points, dim)``
    diverged: Tensor  #: whether a loss became infinite or NaN, shape ``(runs,)``

    def draw(self, count: int, rng: torch.Generator, trained: bool = True) -> Tensor:
        """Return generated points of every run, shape ``(runs, count, dim)``, before or after training."""
        network = self.generator if trained else self.untrained
        shape = network.runs, count, network.inputs
        noise = torch.randn(shape, generator=rng, device=rng.device).to(network.parameters[0].device)
        with torch.no_grad():
            points = network(noise)
        return unsquash(points) if self.settings.squashed else points


def play(
    settings: Settings, pairings: Sequence[str], target: Mixture, device: torch.device | str = "cpu"
) -> dict[str, Game]:
    """Train all runs of several pairings; those whose discriminators are evaluated alike are one batch.

    Pairings see the same training points, batches and noise, run by run, also in separate calls with equal settings. A
    diverged run (a loss that is not finite) keeps its place and is named in ``diverged``; others are not touched by it.

    A pairing ``"generator/discriminator"`` names kinds of :mod:`lib.gans.plane_players`; with ``TURNED`` at the end,
    every training point, drawn from the target, is turned by a random element whenever it is used. All random numbers
    are drawn on the CPU.
    """
    batches: dict[tuple[bool, int], list[str]] = {}
    for pairing in pairings:
        generator, discriminator = _kinds(pairing)
        wide = matched_width(generator, target.representation, settings.width) if settings.matched else settings.width
        batches.setdefault((discriminator == "averaged", wide), []).append(pairing)
    games: dict[str, Game] = {}
    for (is_averaged, width), group in batches.items():
        games |= zip(group, _play(settings, group, target, is_averaged, width, device), strict=True)
    return {pairing: games[pairing] for pairing in pairings}


def _play(
    settings: Settings, pairings: list[str], target: Mixture, is_averaged: bool, width: int, device: torch.device | str
) -> list[Game]:
    action, rule = target.representation, objective(settings.objective)
    both = [[p.to(device) for p in players(settings, pairing, action, width)] for pairing in pairings]
    drawing, judging = (list(side) for side in zip(*both, strict=True))
    untrained, mean = ([_frozen(network) for network in drawing] for _ in range(2))
    batches = Batches(settings, pairings, target, drawing[0].inputs, device)
    g, d, average = (partial(side_by_side, networks) for networks in (drawing, judging, mean))
    d = averaged(d, action) if is_averaged else d
    weights = [[p for network in networks for p in network.parameters if p.numel()] for networks in (drawing, judging)]
    averages = [p for network in mean for p in network.parameters if p.numel()]
    rates = settings.rate, 2 * settings.rate
    adam = [torch.optim.Adam(p, rate, _BETAS, fused=True) for p, rate in zip(weights, rates, strict=True)]
    times = torch.linspace(0, settings.iterations, settings.frames, device="cpu").round().long().unique().tolist()
    frames, diverged = [average(batches.picture)], torch.tensor(False, device="cpu")

    def score(points: Tensor) -> Tensor:
        return d(points)[..., 0]

    for step in progress(range(1, settings.iterations + 1)):
        for _ in range(settings.steps):
            noise, real = batches.draw(), batches.real()
            with torch.no_grad():
                fake = g(noise)
            judged = rule.discriminator_loss(score, real, fake, batches.penalty_rng)
            step_against(judged, adam[1])
        with torch.no_grad():
            seen = score(batches.real()) if rule.relative else None
        loss = rule.generator_loss(seen, score(g(batches.draw())))
        step_against(loss, adam[0])
        diverged = diverged | ~(judged.isfinite() & loss.isfinite())
        follow(averages, weights[0], settings.average)
        if step in times:
            frames.append(average(batches.picture))
    each = len(pairings), settings.runs
    snapshots = torch.stack(frames).unflatten(1, each)
    snapshots = (unsquash(snapshots) if settings.squashed else snapshots).unbind(1)
    ends = [[_frozen(network) for network in networks] for networks in (drawing, judging)]
    parts = zip(untrained, mean, *ends, snapshots, diverged.unflatten(0, each), strict=True)
    return [Game(settings, target, *nets, batches.data, times, seen, lost) for *nets, seen, lost in parts]


def players(settings: Settings, pairing: str, action: Representation, width: int) -> tuple[Players, Players]:
    """Return generators and discriminators before training, one of each per run; generators are so wide."""
    rng = torch.Generator().manual_seed(3 * settings.seed)
    common, (generator, discriminator) = (action, settings.runs, rng), _kinds(pairing)
    return make_generator(generator, *common, width), make_discriminator(discriminator, *common, settings.width)


def _kinds(pairing: str) -> tuple[str, str]:
    return kinds_of(pairing.removesuffix(TURNED), GENERATORS, DISCRIMINATORS)


def _frozen(network: Players) -> Players:
    return network.with_parameters([p.detach().clone() for p in network.parameters])


class Batches:
    """Training points and noise of so many coordinates, drawn in the same order whatever the players are."""

    def __init__(
        self,
        settings: Settings,
        pairings: Sequence[str],
        target: Mixture,
        noise: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.size, self.noise, self.pairings, self.device = settings.batch, noise, len(pairings), device
        shape = (settings.seeds, max(settings.samples))
        data = target.sample(shape, torch.Generator().manual_seed(3 * settings.seed + 1))
        self.data = data.repeat(len(settings.samples), 1, 1).to(device)
        self.seen = squash(self.data) if settings.squashed else self.data
        self.rng = torch.Generator().manual_seed(3 * settings.seed + 2)
        self.penalty_rng = torch.Generator().manual_seed(3 * settings.seed + 2)
        sizes = torch.tensor(settings.samples, device="cpu").repeat_interleave(settings.seeds)
        self.outside = torch.arange(shape[1], device="cpu") >= sizes[:, None]
        self.turns = group_matrices(target.representation).to(self.data)
        self.turned = torch.tensor([p.endswith(TURNED) for p in pairings], device=device)
        self.picture = self.draw(_FRAME)

    def real(self) -> Tensor:
        """Return a batch of training points without repetition, shape ``(pairings · runs, batch, dim)``."""
        runs, count, _ = self.seen.shape
        order = torch.rand(runs, count, generator=self.rng, device="cpu").masked_fill_(self.outside, 2.0)
        index = order.topk(self.size, largest=False).indices.to(self.device)
        points = self.seen[torch.arange(runs, device=index.device)[:, None], index].expand(self.pairings, -1, -1, -1)
        which = torch.randint(len(self.turns), index.shape, generator=self.rng, device="cpu").to(self.device)
        if bool(self.turned.any()):
            elements = which * self.turned[:, None, None]  # element 0 is the neutral one
            points = (self.turns[elements] @ points[..., None])[..., 0]
        return points.flatten(0, 1)

    def draw(self, count: int | None = None) -> Tensor:
        """Return a batch of noise, or so many of it, shape ``(pairings · runs, batch, noise)``."""
        noise = torch.randn(len(self.seen), count or self.size, self.noise, generator=self.rng, device="cpu")
        return noise.to(self.device).repeat(self.pairings, 1, 1)
