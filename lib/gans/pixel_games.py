"""Games between players that draw and judge small images: many training sets and seeds as one batch of matrix products.

The pairings are those of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs"); the players are the
multilayer perceptrons of :mod:`lib.gans.pixel_players`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int
from lib.gans.game import Hand, compete, follow
from lib.gans.layers import Network
from lib.gans.objectives import NAMES, Objective, objective
from lib.gans.pixel_players import (
    DISCRIMINATORS,
    GENERATORS,
    Discriminator,
    Generator,
    discriminator_ties,
    free_parameters,
    generator_ties,
)
from lib.images.laws import TrainingSets
from lib.images.turns import Turns


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
    diverged : Tensor
        Whether some weight of a run is no longer finite, shape ``(runs,)``: its images are NaN, those of other runs are
        what they would be without it.
    """

    generator: Generator
    latest: Generator
    discriminator: Discriminator
    diverged: Tensor


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
    """
    if sets.images.shape[-1] != turns.dim:
        raise ValueError(f"sets must hold images of {turns.dim} values, got {sets.images.shape[-1]}")
    rng, coins = (torch.Generator().manual_seed(2 * check_int("seed", seed, minimum=0) + k) for k in range(2))
    drawing, judging = players(game, turns, sets, rng)
    average = [p.detach().clone() for p in drawing.network.parameters]

    def deal(_: bool) -> Hand:
        real, labels = sets.batch(game.batch, rng)
        if game.augmented:
            which = torch.randint(turns.group.order, tuple(labels.shape), generator=coins, device=coins.device)
            real = turns.each(real, which.to(labels.device))
        noise = drawing.draw(labels, rng, coins)
        return Hand(real, lambda: drawing(*noise, labels), lambda x: judging(x, labels))

    def after(step: int) -> None:
        follow(average, drawing.network.parameters, min(game.decay, (1 + step) / (10 + step)))

    optimisers = [torch.optim.Adam(p.network.parameters, game.rate, (0.0, 0.9), fused=True) for p in (drawing, judging)]
    compete(deal, game.rules(), optimisers, game.iterations, rng, after)
    finite = torch.stack([torch.isfinite(p.detach()).all(1) for p in (*average, *judging.network.parameters)])
    averaged = replace(drawing, network=drawing.network.with_parameters(average))
    return Played(averaged, drawing, judging, ~finite.all(0))


def players(game: Game, turns: Turns, sets: TrainingSets, rng: torch.Generator) -> tuple[Generator, Discriminator]:
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
