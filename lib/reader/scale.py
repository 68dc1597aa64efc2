"""How far is a law from symmetric? A classifier tells data from other data that were moved at random.

A sample of a law P, or of its average over the group, is shown with equal chances. The best classifier is right with
probability ½ + ½ TV(P, P̄), which is ½ if and only if P is invariant and at most ½ + ½(1 − 1/|G|). After Lopez-Paz and
Oquab (2017, "Revisiting classifier two-sample tests") and Lawrence et al. (2025, arXiv 2510.01349).

And what would have been seen? All samples are put in random poses, so that their law is symmetric; then an asymmetry of
known size is planted, and the test is run as on the data. A kind is left out where it is none: what a group moves
anyway, or keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

from lib.checks import check_int, generator_of
from lib.reader.door import Samples, pools, samples
from lib.reader.moves import Action, words

LEAST = 60  # samples
SEEN = 0.8  # share of planted asymmetries that must be found
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
_STEPS = (0.05, 0.1, 0.2, 0.4, 0.8)
_ENTRIES = 4_000_000  # of all images of the samples in which something is planted


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


class Kind(NamedTuple):
    """A kind of asymmetry."""

    name: str
    unit: str  #: what a size means
    sizes: tuple[float, ...]
    plant: Callable[[Tensor, float], Tensor]  #: of samples, (n, …)


def kinds(s: Samples, action: Action) -> Iterator[Kind]:
    """Yield the kinds of asymmetry that make sense for an action."""
    kind, axes = words(action)
    size = float(np.diff(np.quantile(s.x.numpy(), [0.159, 0.841]))[0]) / 2 or float(s.x.std())  # robust, for tails
    if kind in ("pixels", "shift"):
        yield from _of_pictures(s, size)
    elif kind in ("permute", "rotate"):
        yield from _of_entries(s, kind, axes[0], size)


def _of_pictures(s: Samples, size: float) -> Iterator[Kind]:
    h, w = s.x.shape[-2:]
    down, right = (torch.linspace(-1, 1, side, dtype=torch.float64, device="cpu") for side in (h, w))
    ramp = (2 * right + down[:, None]) / 3  # along no mirror

    def smeared(x: Tensor, share: float) -> Tensor:
        quarter = any(g[0] % 2 for g in s.group.elements)  # then rows and columns change places
        a, b = (x[..., 1:-1, :-2], x[..., 1:-1, 2:]) if quarter else (x[..., :-2, :-2], x[..., 2:, 2:])
        return (1 - share) * x[..., 1:-1, 1:-1] + share * (a + b) / 2

    yield Kind("tilt", "of the spread, a ramp of brightness", _STEPS, lambda x, t: x + t * size * ramp)
    if s.group.kind == "pixels":
        cuts = tuple(d / 2 for d in range(1, min(h, w) // 4 + 1))[:5]
        yield Kind("shift", "pixels to a corner", cuts, lambda x, d: x[..., round(2 * d) :, round(2 * d) :])
        if s.group.name != "C2" and min(h, w) > 4:  # a half turn keeps every texture
            yield Kind("texture", "of a pixel from its neighbours on a line", (0.02, *_STEPS), smeared)


def _of_entries(s: Samples, kind: str, axis: int, size: float) -> Iterator[Kind]:
    """Yield shifts, trends and stretches along one axis, of entries that are permuted or of coordinates."""
    count = s.x.shape[axis]
    first = torch.zeros(count, dtype=torch.float64, device="cpu")
    first[0] = 1
    if kind == "rotate" and count > 1:  # a direction that lies on no mirror
        first[:2] = torch.tensor([math.cos(0.4), math.sin(0.4)], device="cpu", dtype=first.dtype)

    def along(x: Tensor, vector: Tensor) -> Tensor:
        return x + (vector if axis == -1 else vector.view(-1, *[1] * (x.ndim - 1 - axis % x.ndim)))

    def stretched(x: Tensor, t: float) -> Tensor:
        y = x.movedim(axis, -1)
        return (y + t * (y @ first)[..., None] * first).movedim(-1, axis)

    what = "one entry" if kind == "permute" else "one direction"
    yield Kind("shift", f"of the spread, {what}", _STEPS, lambda x, t: along(x, t * size * first))
    if kind == "permute":
        trend = torch.linspace(-1, 1, count, dtype=torch.float64, device="cpu")
        yield Kind("tilt", "of the spread, a trend over the entries", _STEPS, lambda x, t: along(x, t * size * trend))
    if not (kind == "rotate" and s.group.name == "C2"):  # which keeps every ellipse
        yield Kind("stretch", f"more spread of {what}", _STEPS, stretched)


def smallest(sizes: tuple[float, ...], seen: Callable[[float], bool], trials: int) -> float:
    """Return the smallest size that is seen in most trials; NaN if none is. A larger one is seen more easily."""
    low, high, enough = 0, len(sizes), math.ceil(SEEN * trials)
    while low < high:
        middle, hits, misses = (low + high) // 2, 0, 0
        while hits < enough and misses <= trials - enough:
            found = seen(sizes[middle])
            hits, misses = hits + found, misses + (not found)
        low, high = (low, middle) if hits >= enough else (middle + 1, high)
    return sizes[low] if low < len(sizes) else math.nan


def with_asymmetry(
    s: Samples, kind: Kind, size: float, actions: tuple[Action, Action], rng: torch.Generator
) -> Samples:
    """Return samples, each moved by an element of its own, in which an asymmetry is planted; as many as work allows."""
    most = max(200, _ENTRIES // s.images[:, 0].numel())
    some = torch.randperm(s.n, generator=rng, device="cpu")[:most]
    pose = torch.randint(int(s.drawn), len(s.images), (len(some),), generator=rng, device="cpu")
    x, y = kind.plant(s.images[pose, some], size), None if s.moved is None else s.moved[pose, some]
    images, moved = pools(s.group, [(x, actions[0]), (y, actions[1])], rng)
    classes = None if s.classes is None else s.classes[some]
    return replace(s, x=x, y=y, classes=classes, images=images, moved=moved)
