"""The game: one loop for players in the plane, on pixels and on images, many runs at once or one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance
from lib.gans.objectives import Objective


@dataclass(frozen=True, eq=False)
class Hand:
    """What a player is dealt for one step; random numbers have been drawn.

    Attributes
    ----------
    real : Tensor or None
        Real points, shape ``(..., n, *event)``; a generator needs them if its objective compares with them only.
    make : callable
        Returns as many generated points.
    score : callable
        The discriminator: points to scores ``(..., n)``.
    """

    real: Tensor | None
    make: Callable[[], Tensor]
    score: Callable[[Tensor], Tensor]


def compete(
    deal: Callable[[bool], Hand],
    rule: Objective,
    optimisers: tuple[torch.optim.Optimizer, torch.optim.Optimizer],
    iterations: int,
    penalty_rng: torch.Generator,
    after: Callable[[int], None],
    steps: int = 1,
    event_dims: int = 1,
) -> Tensor:
    """Let the discriminator make some steps and the generator one, again and again; say which runs diverged.

    Parameters
    ----------
    deal
        Called before every step with whether it is the discriminator's.
    rule
        The objective; losses are summed over the runs, so that these do not touch each other.
    optimisers
        The generator's and the discriminator's; they hold the players' parameters.
    iterations
        Steps of the generator. The game ends before if no run is finite any more.
    penalty_rng
        Source of the points at which slopes are penalised.
    after
        Called after every iteration with its number, from 0 on: averages and pictures.
    steps
        Steps of the discriminator before each of the generator.
    event_dims
        Axes of a point: 1 for vectors, 3 for images.

    Returns
    -------
    Tensor
        Whether a loss of a run, the discriminator's last before each of the generator's or that, became infinite or
        NaN; shape ``(...)``.
    """
    diverged = torch.tensor(False, device="cpu")
    for iteration in range(iterations):
        for judging in [True] * steps + [False]:
            hand = deal(judging)
            if judging:
                with torch.no_grad():
                    fake = hand.make()
                loss = judged = rule.discriminator_loss(hand.score, hand.real, fake, penalty_rng, event_dims)
            else:
                with torch.no_grad():
                    seen = hand.score(hand.real) if rule.relative else None
                loss = rule.generator_loss(seen, hand.score(hand.make()))
            _descend(loss.sum(), optimisers[judging])
        lost = ~(judged.isfinite() & loss.isfinite())
        diverged = diverged | lost
        after(iteration)
        if bool(lost.all()):
            break
    return diverged


def _descend(loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for p, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = slope
    optimiser.step()


def kinds_of(pairing: str, generators: Sequence[str], discriminators: Sequence[str]) -> tuple[str, str]:
    """Return the kinds of the players of a pairing, ``"generator/discriminator"``, each one of those given."""
    generator, _, discriminator = check_instance("pairing", pairing, str).partition("/")
    check_choice("generator", generator, generators)
    return generator, check_choice("discriminator", discriminator, discriminators)


def matched_size(count: Callable[[int], int], order: int, wanted: int, most: int) -> int:
    """Return the multiple of an order, up to about ``most`` of it, where a growing count is nearest to ``wanted``."""
    above = 1 + bisect_left(range(1, most + 1), wanted, key=lambda copies: count(copies * order))
    near = [copies * order for copies in (above - 1, above) if copies]
    return min(near, key=lambda size: abs(count(size) - wanted))


@torch.no_grad()
def follow(mean: Sequence[Tensor], now: Sequence[Tensor], decay: float) -> None:
    """Move running averages in place, ``mean ← decay · mean + (1 − decay) · now``; what is not real is copied."""
    pairs = list(zip(mean, now, strict=True))
    real = [(a, b) for a, b in pairs if a.is_floating_point()]
    torch._foreach_lerp_([a for a, _ in real], [b for _, b in real], 1 - decay)
    for a, b in pairs:
        if not a.is_floating_point():
            a.copy_(b)
