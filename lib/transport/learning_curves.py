"""Comparing two ways of learning over seeds: differences with intervals, and how much more of something one needs.

A *learning curve* gives a score, smaller is better, for increasing amounts x of something: training samples, free
parameters. The *equivalent factor* at a level q is x_plain(q) / x_smart(q), with x(q) the amount that reaches q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from lib.checks import seeded, unit_of


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval over the seeds."""

    value: float
    low: float
    high: float


def bootstrap(statistic: Callable[[Tensor], Tensor], seeds: int, resamples: int, seed: int = 0) -> Interval:
    """Return a statistic of the seeds with its widened percentile interval.

    Percentile intervals of few values are too short. The tails are therefore ``Φ(−√(n/(n−1)) t)`` with Student's
    two-sided 5 % point t for n − 1 degrees of freedom, so that the interval of a mean has the length of Student's
    (Hesterberg 2015, "What teachers should know about the bootstrap"). Not corrected for skewness; for a
    median of five seeds it is nearly their range.

    The statistic maps numbers of seeds, with repetitions, shape ``(count, seeds)``, to float64 values ``(count,)``;
    ``seed`` is that of the bootstrap.
    """
    draws = torch.randint(seeds, (resamples, seeds), generator=seeded(seed), device="cpu")
    tail = float(norm.cdf(-math.sqrt(seeds / (seeds - 1)) * student.ppf(0.975, seeds - 1)))
    values = statistic(draws)
    low, high = values.quantile(values.new_tensor([tail, 1 - tail])).tolist()
    return Interval(float(statistic(torch.arange(seeds, device="cpu")[None])[0].detach()), low, high)


def paired_interval(a: Tensor, b: Tensor) -> Interval:
    """Return the mean of a − b over the seeds with Student's 95 % interval for paired values, shapes ``(seeds,)``.

    >>> found = paired_interval(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 1.5, 2.6]))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.467, 0.323, 0.61)
    """
    gap = a.detach().double() - b.detach().double()
    unit = unit_of(gap)  # squares of differences may leave the range
    mean, reach = (float(unit * t) for t in ((gap / unit).mean(), (gap / unit).std() * math.sqrt(1 / len(gap))))
    reach *= float(student.ppf(0.975, len(gap) - 1))
    return Interval(mean, mean - reach, mean + reach)


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores ``(k, seeds)``, positive, smaller is better, for positive and increasing amounts ``(k,)``."""

    amounts: Tensor
    scores: Tensor

    def __post_init__(self) -> None:
        steps = self.amounts.diff(prepend=torch.zeros_like(self.amounts[:1]))
        if not self.scores.numel() or (self.scores <= 0).any() or (steps <= 0).any():
            raise ValueError(f"amounts must be positive and increase, scores be positive, got {self}")

    def best(self, draws: Tensor) -> Tensor:
        """Return the best mean score with at most each amount, seeds drawn as ``(count, m)``; shape ``(count, k)``."""
        means = self.scores.double()[:, draws].mean(-1)
        return means.cummin(0).values.T

    def reach(self, best: Tensor, levels: Tensor) -> Tensor:
        """Return log amounts at which rows of falling scores ``(count, k)`` reach levels ``(count, m)``.

        Between the amounts, log score is linear in log amount. Levels outside the scores are moved to the nearest one.
        """
        x, y = self.amounts.double().log(), best.log()
        target = levels.log().clamp(min=y[:, -1:], max=y[:, :1])
        place = (y[:, None, :] > target[..., None]).sum(-1).clamp(1, len(x) - 1)  # the first amount that reaches it
        above, below = y.gather(1, place - 1), y.gather(1, place)
        share = (above - target) / (above - below).clamp_min(1e-300)
        return x[place - 1] + share.clamp(0, 1) * (x[place] - x[place - 1])


@dataclass(frozen=True)
class Saving(Interval):
    """An equivalent factor, averaged (geometrically) over the levels from ``best`` to ``worst`` that both curves cover.

    If none is ``covered``, the value is only a bound: the amounts ran out, on one side.
    """

    best: float
    worst: float
    covered: bool


def equivalent_factor(plain: Curve, smart: Curve, levels: int = 9, resamples: int = 4000, seed: int = 0) -> Saving:
    """Return how many times the amount the plain curve needs to score as well as the smart one.

    Nothing is extrapolated. Where no level is covered by both curves, the factor is replaced by the bound that the data
    give, also within the bootstrap: at least ``max(plain amounts) / min(smart amounts)`` if every smart score is better
    than every plain one, at most ``min(plain amounts) / max(smart amounts)`` if every one is worse.

    The factor may vary much between the levels, and where a curve is flat, it jumps with the
    place at which the curve happens to be lowest; the interval is skewed there.

    The columns of both curves are the same seeds, which are resampled jointly; ``levels`` is the number of levels,
    evenly spaced in the logarithm.
    """
    runs = plain.scores.shape[1]
    x_plain, x_smart = plain.amounts.tolist(), smart.amounts.tolist()

    def log_factor(draws: Tensor) -> Tensor:
        a, b = plain.best(draws), smart.best(draws)
        low, high = torch.maximum(a[:, -1], b[:, -1]), torch.minimum(a[:, 0], b[:, 0])
        grid = torch.linspace(0, 1, levels, dtype=torch.float64, device=a.device)
        at = (low.log()[:, None] * (1 - grid) + high.log()[:, None] * grid).exp()
        inside = (plain.reach(a, at) - smart.reach(b, at)).mean(1)
        most, least = (math.log(x[-1] / y[0]) for x, y in ((x_plain, x_smart), (x_smart, x_plain)))
        bound = torch.where(a[:, -1] > b[:, 0], torch.full_like(low, most), torch.full_like(low, -least))
        return torch.where(low <= high, inside, bound)

    interval = bootstrap(log_factor, runs, resamples, seed)
    a, b = (c.best(torch.arange(runs, device="cpu")[None])[0] for c in (plain, smart))
    best, worst = (float(f(*(v[k].detach() for v in (a, b)))) for f, k in ((torch.maximum, -1), (torch.minimum, 0)))
    value, low, high = (math.exp(v) for v in (interval.value, interval.low, interval.high))
    return Saving(value, low, high, best, worst, best <= worst)
