"""Chapter *Structure-preserving GANs*: tests of the laws that generators make, before and after training (G2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_int
from lib.gans.mixtures import squash
from lib.gans.plane_games import Game
from lib.gans.plane_players import equivariance_residual, noise_representation
from lib.symmetry.actions import trivial
from lib.transport.two_sample import invariance_test, random_move


@dataclass(frozen=True, eq=False)
class LawTest:
    """Is the generated law invariant? One residual and one test for each run.

    Attributes
    ----------
    residual : Tensor
        Equivariance residual of the generator in float32, shape ``(runs,)``.
    p_value : Tensor
        Of the permutation test of generated points against turned generated points, shape ``(runs,)``.
    """

    residual: Tensor
    p_value: Tensor

    def rejections(self, level: float = 0.05) -> int:
        """Return how many runs are rejected."""
        return int((self.p_value <= level).sum())


def law_test(game: Game, trained: bool, count: int = 800, permutations: int = 499, seed: int = 0) -> LawTest:
    """Return residual and test of a game's generators, before or after training.

    Half of the points stay, the other half are turned, each by an element drawn from those that are not neutral; the
    halves are independent, so the test is exact whatever the generator.

    Parameters
    ----------
    game
        The game.
    trained
        Whether to look at the generators after training.
    count
        Generated points of each run, both halves together.
    permutations
        Of the test.
    seed
        Source of noise, turns and permutations, others before training than after it.
    """
    rng = torch.Generator().manual_seed(2 * check_int("seed", seed, minimum=0) + trained)
    action = game.target.representation
    network = game.generator if trained else game.untrained
    source = noise_representation(action.group, game.settings.copies)
    noise = torch.randn(network.runs, 256, network.inputs, generator=rng)
    points = game.draw(count, rng, trained).double()
    if game.settings.squashed:
        points = squash(points)
    result = invariance_test(points, random_move(action), rng, permutations)
    return LawTest(equivariance_residual(network, noise, source, action), result.p_value)


def discriminator_residual(game: Game) -> Tensor:
    """Return how far a game's discriminators are from invariance at the training points, shape ``(runs,)``."""
    points = squash(game.data) if game.settings.squashed else game.data
    action = game.target.representation
    return equivariance_residual(game.discriminator, points, action, trivial(action.group))
