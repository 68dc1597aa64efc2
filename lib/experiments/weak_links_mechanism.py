"""Why an equivariant generator hardly minds a plain discriminator (the pairing of claim G4 that ties).

Under a fixed discriminator γ the generator's loss is a function L of the law P_g of its points. An equivariant g with
invariant noise has ``σ_# P_g = P_g`` for *all* its parameters θ, hence ``L(P_g) = L(σ_# P_g)``, and θ moves as if γ
were ``γ∘σ``, for every σ: gradients are those of the mean over the group. For losses ``E ψ(γ(g(z)))`` that is the
gradient of the invariant function ``S_Σ[ψ∘γ]``. What γ has learned beyond its symmetric part is invisible to g. It is
not harmless: γ spends capacity and data on it. For the MMD even that costs nothing: the best γ of the plain ball,
symmetrised, is the best γ of the invariant ball up to its length, and the two losses differ by a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import check_int, seeded
from lib.gans.mixtures import squash
from lib.gans.objectives import objective
from lib.gans.plane_games import Game
from lib.gans.plane_players import Averaged, Network, group_matrices, noise_representation

Loss = Callable[[Tensor], Tensor]


def gradient_gap(game: Game, count: int = 64, closed: bool = True, seed: int = 0) -> Tensor:
    """Return ``‖∇L − ∇L^inv‖ / ‖∇L^inv‖`` with ``L^inv = (1/|Σ|) Σ_σ L(σ_# P_g)``: the gradients in θ, in float64.

    L is the generator's loss in the game, under the discriminator and the training points of the game.

    Parameters
    ----------
    game
        The game; telling if its discriminator is plain, since both losses agree for an invariant one.
    count
        Noise vectors.
    closed
        Whether the batch of noise holds all images σz too, as the noise's law does; without, the two gradients still
        agree in expectation but not in the batch.
    seed
        Source of the noise.

    Returns
    -------
    Tensor
        Shape ``(runs,)``: rounding for equivariant generators, order one for others.
    """
    rule, judge = objective(game.settings.objective), _in_double(game)
    matrices = group_matrices(game.target.representation)
    real = judge(_data(game))[..., 0].detach()

    def loss(points: Tensor) -> Tensor:
        return rule.generator_loss(real, judge(points)[..., 0])

    def symmetric(points: Tensor) -> Tensor:
        return torch.stack([loss(points @ m.mT) for m in matrices]).mean(0)

    return _gap(game, loss, symmetric, count, closed, seed)


def _data(game: Game) -> Tensor:
    return (squash(game.data) if game.settings.squashed else game.data).double()


def _in_double(game: Game) -> Loss:
    judge = game.judge.with_parameters([p.double() for p in game.judge.parameters])
    return Averaged(judge, game.target.representation) if game.pairing.is_averaged else judge


def _gap(game: Game, loss: Loss, symmetric: Loss, count: int, closed: bool, seed: int) -> Tensor:
    rng = seeded(seed)
    runs, width = game.generator.runs, game.generator.inputs
    noise = torch.randn(runs, check_int("count", count), width, generator=rng, dtype=torch.float64)
    if closed:
        action = noise_representation(game.target.representation.group, game.settings.copies)
        noise = torch.cat([noise @ m.mT for m in group_matrices(action)], 1)
    ours, theirs = (_gradient(game.generator, noise, each) for each in (loss, symmetric))
    return (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)


def _gradient(generator: Network, noise: Tensor, loss: Loss) -> Tensor:
    """Return the gradient of a loss of the generated points in the free parameters, shape ``(runs, per_run)``."""
    free = [p.detach().double().requires_grad_(True) for p in generator.parameters]
    value = loss(generator.with_parameters(free)(noise)).sum()
    used = [p for p in free if p.numel()]
    return torch.cat(torch.autograd.grad(value, used), -1)


def invisible_share(game: Game, count: int = 500, seed: int = 0) -> Tensor:
    """Return the share of a discriminator's variance that an equivariant generator cannot see, shape ``(runs,)``.

    ``E(γ − S_Σγ)² / Var γ`` under the symmetrised true law, γ as training has left it: 0 for invariant discriminators;
    what a plain one has learned from the accidents of its sample.

    Parameters
    ----------
    game
        The game.
    count
        Points of the law.
    seed
        Their source.
    """
    rng = seeded(seed)
    points = game.target.sample((game.generator.runs, check_int("count", count)), rng)
    points = squash(points) if game.settings.squashed else points
    with torch.no_grad():
        orbits = torch.stack(
            [game.discriminator(points @ m.mT)[..., 0] for m in group_matrices(game.target.representation).to(points)]
        ).double()
    return orbits.var(0, correction=0).mean(-1) / orbits.var((0, 2), correction=0)
