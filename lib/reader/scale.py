"""How far is a law from symmetric? A classifier tells data from other data that were moved at random.

A sample of a law P, or of its average over the group, is shown with equal chances. The best classifier is right with
probability ½ + ½ TV(P, P̄), which is ½ if and only if P is invariant and at most ½ + ½(1 − 1/|G|). After Lopez-Paz and
Oquab (2017, "Revisiting classifier two-sample tests") and Lawrence et al. (2025, arXiv 2510.01349).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

from lib.checks import check_int, generator_of
from lib.reader.door import Samples, samples
from lib.reader.moves import Action

LEAST = 60  # samples


@dataclass(frozen=True)
class Score:
    """How many guesses were right, of how many, and ½ + ½(1 − 1/|G|), the accuracy that no classifier exceeds.

    The number of right guesses is binomial, whatever the classifier.
    """

    right: int
    of: int
    ceiling: float

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return self.right / self.of

    def interval(self, level: float = 0.999) -> tuple[float, float]:
        """Return Clopper and Pearson's exact confidence interval of the classifier's accuracy."""
        found = binomtest(self.right, self.of).proportion_ci(level, "exact")
        return float(found.low), float(found.high)

    def p_value(self, at: float = 0.5, side: str = "two-sided") -> float:
        """Return the exact p-value of the accuracy ``at`` against ``"two-sided"``, ``"greater"`` or ``"less"``."""
        return float(binomtest(self.right, self.of, at, side).pvalue)


def told_apart(
    data: Any,
    group: str | Sequence[Any],
    action: Action,
    target: Any = None,
    action_target: Action = "still",
    *,
    seed: int = 0,
) -> Score:
    """Return how well samples are told from other samples that were moved at random.

    A coin decides for each sample by itself whether it is moved, by a uniformly random element; so no sample is on both
    sides. Kernel ridge regression learns the coins of a third of the samples and guesses those of the others. The
    arguments are those of :func:`lib.reader.report.symmetry_report`; ``seed`` is that of the order, coins and moves.

    >>> x = np.random.default_rng(0).normal(size=(600, 2)) + [3, 0]  # far to the right
    >>> score = told_apart(x, "C2", "rotate")
    >>> score.ceiling, score.accuracy > 0.65
    (0.75, True)
    """
    rng = generator_of(check_int("seed", seed, minimum=0), 23)
    return classified(samples(data, group, action, target, action_target, rng, LEAST), seed)


def classified(s: Samples, seed: int) -> Score:
    """Return the score of samples that have come in."""
    rng, K = np.random.default_rng(seed), len(s.images) - s.drawn
    order = torch.from_numpy(rng.permutation(s.n))
    coin, which = torch.from_numpy(rng.integers([[2], [K]], size=(2, s.n)))
    chosen = torch.where(coin == 1, which + s.drawn, 0)
    shown = [_scaled(s.images[:, order], s.x.ndim == 2 and s.group.kind != "rotate")]
    if s.classes is not None:
        shown.append(s.classes[order].expand(len(s.images), -1, -1))
    if s.moved is not None:
        shown.append(_scaled(s.moved[:, order].flatten(2), True))
    piles = torch.cat([part[chosen, torch.arange(s.n, device="cpu")] for part in shown], 1)
    part = s.n // 3
    guess = _guess(piles[:part], coin[:part], piles[part:])
    return Score(int((guess == coin[part:]).sum()), s.n - part, 1 - (0 if s.drawn else 0.5 / K))


def _scaled(images: Tensor, by_column: bool) -> Tensor:
    """Return images (K, n, …) as rows (K, n, p) about zero: in one unit, or every column in its spread over all."""
    rows = images.flatten(2) - images.flatten(2).mean((0, 1))
    rows = rows / rows.abs().max().clamp(min=1e-300)
    if by_column:
        return rows / rows.square().mean((0, 1)).sqrt().clamp(min=1e-12) / rows.shape[2] ** 0.5
    return rows / rows[0].sub(rows[0].mean(0)).square().sum(1).mean().sqrt().clamp(min=1e-300)


def _guess(x: Tensor, coin: Tensor, z: Tensor) -> Tensor:
    """Guess the coins of z, (m, p), from those of x by ridge regression with a Gaussian kernel."""
    square = torch.cdist(x, x).square()  # (n, n)
    width = square.mean().clamp(min=1e-300) / 2
    K = (-square / width).exp() + 1e-3 * len(x) * torch.eye(len(x), dtype=x.dtype, device="cpu")
    weights = torch.linalg.solve(K, 2.0 * coin.to(x) - 1)
    return ((-torch.cdist(z, x).square() / width).exp() @ weights > 0).long()
