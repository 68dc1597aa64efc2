"""Gradient descent on the logarithm of a classification loss, in steps that aim at a fixed decrease.

On separable data the loss falls for ever and the direction of a predictor converges like the inverse of log 1/loss, so
that the loss, and not the number of steps, is the clock by which different architectures can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def log_exponential_loss(margins: Tensor) -> Tensor:
    """Return log R for R = mean_n exp(−margin_n), shapes ``(..., n) -> (...)``.

    R < 1/n only if every margin is positive.
    """
    return torch.logsumexp(-margins, -1) - math.log(margins.shape[-1])


def descend(
    weights: Sequence[Tensor],
    log_loss: Callable[[], Tensor],
    marks: Tensor,
    observe: Callable[[], Tensor],
    drop: float = 0.3,
    stuck: str = "raise",
    patience: float = 50.0,
) -> Tensor:
    """Descend on log R; return what is observed where it first falls to each of −marks, ``(runs, marks, ...)``.

    Each run takes steps −h∇log R with h = s·drop/‖∇log R‖², at most a twentieth of the length of its weights. To first
    order log R falls by s·drop. Where it falls by less than half of what was aimed at, s shrinks by 0.7; where it does
    not, s grows by 1.05 up to 1. That keeps the descent from oscillating, and its result from depending on rounding.

    The weights, leaf tensors that require gradients, first axis runs, are changed in place; ``log_loss()`` returns
    log R, shape ``(runs,)``, and ``observe()`` what to keep, shape ``(runs, ...)``, at the current weights. The marks
    are ascending values of −log R; −∞ stands for the start. A run that takes more than ``patience`` times the number of
    steps aimed at is stuck, as where a ReLU network dies on the way: ``"raise"`` an ArithmeticError, or ``"nan"``,
    which leaves NaN at the marks that it misses.
    """
    runs = len(weights[0])
    missing = torch.ones(runs, len(marks), dtype=torch.bool, device=weights[0].device)
    share, aimed, last = weights[0].detach().new_ones(runs), None, None
    begin = observe().detach()[:, None]
    seen = begin.new_zeros(runs, len(marks), *begin.shape[2:])
    axes = (..., *[None] * (begin.ndim - 2))  # to broadcast (runs, marks) against what is observed
    for _ in range(round(patience * (max(float(marks[-1]), 0.0) / drop + 1))):
        value = log_loss()
        now = value.detach()
        if last is not None:
            share = torch.where(last - now >= aimed / 2, (1.05 * share).clamp(max=1), 0.7 * share)
        passed = missing & (-now[:, None] >= marks)
        if bool(passed.any()):
            seen = torch.where(passed[axes], observe().detach()[:, None], seen)
            missing &= ~passed
        if not bool(missing.any()):
            return seen
        aimed, last = _step(weights, torch.autograd.grad(value.sum(), weights), share * drop), now
    if stuck == "nan":
        return seen.masked_fill(missing[axes], torch.nan)
    late, goal = int(missing.any(1).sum()), math.exp(-float(marks[-1]))
    raise ArithmeticError(f"{late} of {runs} runs did not reach loss {goal:.0e}; the classes may not be separable")


@torch.no_grad()
def _step(weights: Sequence[Tensor], slopes: Sequence[Tensor], drop: Tensor) -> Tensor:
    """Move the weights and return by how much log R falls to first order."""
    squares, lengths = (sum(a.flatten(1).square().sum(-1) for a in part) for part in (slopes, weights))
    squares = squares.clamp_min(torch.finfo(squares.dtype).tiny)  # a run without any gradient stays where it is
    h = torch.minimum(drop / squares, 0.05 * (lengths / squares).sqrt())
    for a, slope in zip(weights, slopes, strict=True):
        a.addcmul_(h.reshape(-1, *[1] * (a.ndim - 1)), slope, value=-1)
    return h * squares
