"""What all games share: a step against a loss, running averages, kinds of players, and sizes of equal weight."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from lib.checks import check_choice


def step_against(loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    """Take a step against losses of several runs, which are summed and so do not touch each other."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for p, slope in zip(parameters, torch.autograd.grad(loss.sum(), parameters), strict=True):
        p.grad = slope
    optimiser.step()


@torch.no_grad()
def follow(mean: Iterable[Tensor], now: Iterable[Tensor], decay: float) -> None:
    """Move running averages in place, ``mean ← decay · mean + (1 − decay) · now``; integers stay as they are."""
    real = [(a, b) for a, b in zip(mean, now, strict=True) if a.is_floating_point()]
    torch._foreach_lerp_(*map(list, zip(*real, strict=True)), 1 - decay)


def kinds_of(pairing: str, generators: Sequence[str], discriminators: Sequence[str]) -> tuple[str, str]:
    """Return the kinds of the players of a pairing, ``"generator/discriminator"``, each one of those given."""
    generator, _, discriminator = pairing.partition("/")
    check_choice("generator", generator, generators)
    return generator, check_choice("discriminator", discriminator, discriminators)


def matched_size(count: Callable[[int], int], order: int, wanted: int, most: int) -> int:
    """Return the multiple of an order, up to about ``most`` of it, where a growing count is nearest to ``wanted``."""
    above = 1 + bisect_left(range(1, most + 1), wanted, key=lambda copies: count(copies * order))
    near = [copies * order for copies in (above - 1, above) if copies]
    return min(near, key=lambda size: abs(count(size) - wanted))
