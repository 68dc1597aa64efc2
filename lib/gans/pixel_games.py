"""Games between players that draw and judge small images: many training sets and seeds as one batch of matrix products.

The pairings are those of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs"); the players are the
multilayer perceptrons of :mod:`lib.gans.pixel_players`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, check_tensor
from lib.gans.layers import Network
from lib.gans.objectives import NAMES, Objective, objective
from lib.gans.pixel_players import (
    DISCRIMINATORS,
    GENERATORS,
    Discriminator,
    Generator,
    Turns,
    discriminator_ties,
    free_parameters,
    generator_ties,
)


@dataclass(frozen=True, eq=False)
class TrainingSets:
    """One training set per run, padded to one length.

    Attributes
    ----------
    images : Tensor
        Shape ``(runs, n, p)``, values in [−1, 1]; the players get their dtype and device from them.
    labels : Tensor
        Classes, shape ``(runs, n)``, int64; all zero for images without classes.
    counts : Tensor
        How many of the n images belong to each set (the first ones), shape ``(runs,)``.
    classes : int
        Number of classes; the players are told the class if there are at least two.
    """

    images: Tensor
    labels: Tensor
    counts: Tensor
    classes: int = 1

    def __post_init__(self) -> None:
        check_tensor("images", self.images, (None, None, None), inexact=True)
        runs, n, _ = self.images.shape
        if self.labels.shape != (runs, n) or self.labels.dtype != torch.int64:
            raise ValueError(f"labels must be int64 of shape ({runs}, {n}), got {tuple(self.labels.shape)}")
        if not 0 <= int(self.labels.min()) <= int(self.labels.max()) < check_int("classes", self.classes):
            raise ValueError(f"labels must be between 0 and classes − 1 = {self.classes - 1}")
        if self.counts.shape != (runs,) or not bool(((self.counts >= 1) & (self.counts <= n)).all()):
            raise ValueError(f"counts must be {runs} numbers between 1 and {n}, got {self.counts.tolist()}")

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


@dataclass(frozen=True)
class Game:
    """A pairing and how it is trained.

    Attributes
    ----------
    generator, discriminator : str
        Kinds of the players, see :class:`lib.gans.pixel_players.Generator` and
        :class:`lib.gans.pixel_players.Discriminator`.
    width : int
        Hidden units per layer of g₀ and γ₀.
    latent, batch, iterations : int
        Dimension of z, images per step, and steps.
    rate, penalty, decay : float
        Rate of Adam for both players, weight of the objective's gradient penalty, and weight of the past in the running
        average of the generator's parameters, which is what draws the samples in the end.
    objective : str
        One of ``lib.gans.objectives.NAMES``.
    augmented : bool
        Whether every training image is moved by a random element each time it is used.
    """

    generator: str = "plain"
    discriminator: str = "plain"
    width: int = 48
    latent: int = 16
    batch: int = 32
    iterations: int = 300
    rate: float = 6e-3
    penalty: float = 1.0
    decay: float = 0.99
    objective: str = "relativistic"
    augmented: bool = False

    def __post_init__(self) -> None:
        check_choice("generator", self.generator, GENERATORS)
        check_choice("discriminator", self.discriminator, DISCRIMINATORS)
        check_choice("objective", self.objective, NAMES)
        for name in ("width", "latent", "batch", "iterations"):
            check_int(name, getattr(self, name))
        check_float("rate", self.rate, minimum=1e-8)
        check_float("penalty", self.penalty, minimum=0.0)
        check_float("decay", self.decay, minimum=0.0, maximum=1.0)

    def parameters(self, turns: Turns, classes: int) -> int:
        """Return the number of free parameters of both players together."""
        drawing = generator_ties(self.generator, turns, self.latent, self.width, classes)
        return free_parameters(drawing) + free_parameters(discriminator_ties(turns, self.width, classes))

    def rules(self) -> Objective:
        """Return the objective with this game's weight of the penalty."""
        return replace(objective(self.objective), penalty_weight=self.penalty)


@dataclass(frozen=True, eq=False)
class Played:
    """What a game leaves behind.

    Attributes
    ----------
    generator : lib.gans.pixel_players.Generator
        With the running average of its parameters.
    latest : lib.gans.pixel_players.Generator
        With the parameters of the last step.
    discriminator : lib.gans.pixel_players.Discriminator
        As of the last step.
    """

    generator: Generator
    latest: Generator
    discriminator: Discriminator


def play(game: Game, turns: Turns, sets: TrainingSets, seed: int = 0) -> Played:
    """Train both players on every training set at once, one step of Adam each in turn.

    Initial weights, batches and noise depend on ``seed`` and on the shapes only: pairings of one width differ in their
    players and in nothing else, but for the incomplete generator, whose weights have other shapes. Group elements come
    from a random source of their own.

    Parameters
    ----------
    game
        The pairing and its training.
    turns
        The group on images; the images of the sets must have its dimension.
    sets
        One training set per run.
    seed
        Seed of everything random in training.

    Raises
    ------
    ValueError
        Images of another dimension.
    FloatingPointError
        The weights of a run are no longer finite.
    """
    if sets.images.shape[-1] != turns.dim:
        raise ValueError(f"sets must hold images of {turns.dim} values, got {sets.images.shape[-1]}")
    rng, coins = (torch.Generator().manual_seed(2 * check_int("seed", seed, minimum=0) + k) for k in range(2))
    drawing, judging = _players(game, turns, sets, rng)
    optimisers = [
        torch.optim.Adam(p.network.parameters, game.rate, betas=(0.0, 0.9), fused=True) for p in (drawing, judging)
    ]
    average = [p.detach().clone() for p in drawing.network.parameters]
    rules = game.rules()
    for step in range(game.iterations):
        _step(game, rules, (drawing, judging), optimisers, sets, rng, coins)
        past = min(game.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(average, [p.detach() for p in drawing.network.parameters], 1 - past)
    _check_finite([*average, *judging.network.parameters])
    return Played(replace(drawing, network=drawing.network.with_parameters(average)), drawing, judging)


def _players(game: Game, turns: Turns, sets: TrainingSets, rng: torch.Generator) -> tuple[Generator, Discriminator]:
    """Return players at their initial weights; the discriminator's are drawn first, alike in all pairings."""
    ties = discriminator_ties(turns, game.width, sets.classes)
    judge = _network(ties, sets, rng)
    ties = generator_ties(game.generator, turns, game.latent, game.width, sets.classes)
    return (
        Generator(game.generator, turns, _network(ties, sets, rng), sets.classes),
        Discriminator(game.discriminator, turns, judge, sets.classes),
    )


def _network(ties: list, sets: TrainingSets, rng: torch.Generator) -> Network:
    return Network(ties, sets.runs, rng, sets.images.dtype).to(sets.images.device)


def _step(
    game: Game,
    rules: Objective,
    players: tuple[Generator, Discriminator],
    optimisers: list[torch.optim.Optimizer],
    sets: TrainingSets,
    rng: torch.Generator,
    coins: torch.Generator,
) -> None:
    """Let the discriminator make one step, then the generator; losses are summed over the runs."""
    drawing, judging = players
    for player, optimiser in zip((judging, drawing), reversed(optimisers), strict=True):
        real, labels = sets.batch(game.batch, rng)
        if game.augmented:
            real = drawing.turns.each(real, _elements(drawing.turns, labels, coins))
        noise = drawing.draw(labels, rng, coins)
        if player is judging:
            with torch.no_grad():
                fake = drawing(*noise, labels)
            loss = rules.discriminator_loss(lambda x, y=labels: judging(x, y), real, fake, rng)
        else:
            with torch.no_grad():
                scores = judging(real, labels) if rules.relative else None
            loss = rules.generator_loss(scores, judging(drawing(*noise, labels), labels))
        parameters = player.network.parameters
        for p, slope in zip(parameters, torch.autograd.grad(loss.sum(), parameters), strict=True):
            p.grad = slope
        optimiser.step()


def _elements(turns: Turns, labels: Tensor, coins: torch.Generator) -> Tensor:
    return torch.randint(turns.group.order, tuple(labels.shape), generator=coins, device=coins.device).to(labels.device)


def _check_finite(tensors: Sequence[Tensor]) -> None:
    for p in tensors:
        if not bool(torch.isfinite(p).all()):
            bad = (~torch.isfinite(p.detach()).flatten(1).all(1)).nonzero().flatten().tolist()
            raise FloatingPointError(f"training diverged: weights of runs {bad} are not finite; lower rate")
