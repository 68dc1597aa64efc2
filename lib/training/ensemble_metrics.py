"""How far the mean of an ensemble is from invariance, against the number of members.

All metrics take mean logits f̄(ρ(g)x) of shape ``(…, |G|, n, classes)``, the identity first, and average over the n
images; an *ensemble* is the softmax of mean logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from lib.checks import check_callable, check_float, check_instance, check_int, check_tensor

Metric = Callable[[Tensor], Tensor]


def squared_residual(logits: Tensor) -> Tensor:
    """Return the mean over images and g of ‖f̄(ρ(g)x) − Q_G f̄(x)‖², shape ``(…)``."""
    _check_logits(logits)
    return (logits - logits.mean(-3, keepdim=True)).square().sum(-1).mean((-2, -1))


def residual(logits: Tensor) -> Tensor:
    """Return the square root of :func:`squared_residual`."""
    return squared_residual(logits).sqrt()


def agreement(logits: Tensor) -> Tensor:
    """Return the share of moved images, g ≠ e, that get the class that the image itself gets, shape ``(…)``."""
    best = _check_logits(logits).argmax(-1)
    return (best[..., 1:, :] == best[..., :1, :]).to(logits.dtype).mean((-2, -1))


def divergence(logits: Tensor) -> Tensor:
    """Return ½(KL(p‖q) + KL(q‖p)) of the predictions at x and ρ(g)x, averaged over g ≠ e and images, shape ``(…)``."""
    logp = _check_logits(logits).log_softmax(-1)
    difference = logp[..., 1:, :, :] - logp[..., :1, :, :]
    return 0.5 * (difference * (logp[..., 1:, :, :].exp() - logp[..., :1, :, :].exp())).sum(-1).mean((-2, -1))


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of right predictions over all images and rotations, shape ``(…)``."""
    n, classes = _check_logits(logits).shape[-2:]
    check_tensor("labels", labels, (n,))
    if labels.ndim != 1 or labels.dtype != torch.int64 or bool(((labels < 0) | (labels >= classes)).any()):
        raise ValueError(f"labels must be {n} classes from 0 to {classes - 1}, int64, got {labels.dtype}: {labels}")
    return (logits.argmax(-1) == labels).to(logits.dtype).mean((-2, -1))


def block_means(logits: Tensor, size: int) -> Tensor:
    """Return the mean logits of consecutive members, ``size`` at a time: ``(m // size, |G|, n, classes)``."""
    check_tensor("logits", logits, (None, None, None, None), inexact=True)
    check_int("size", size, maximum=len(logits))
    count = len(logits) // size
    return logits[: count * size].unflatten(0, (count, size)).mean(1)


def curves(logits: Tensor, sizes: Sequence[int], groups: int, metric: Metric) -> Tensor:
    """Return a metric against the number of members, in independent groups of members.

    Members are divided into ``groups`` ensembles that have nothing in common. In each, the metric of an ensemble of M
    members is averaged over disjoint blocks of M. For :func:`squared_residual` this is unbiased:
    ``E = B² + V/M`` with B the distance of the *expected* network from invariance and V the variance of one member.

    Parameters
    ----------
    logits
        Shape ``(m, |G|, n, classes)``.
    sizes
        Numbers M, at most ``m // groups``.
    groups
        Number of groups.
    metric
        One of this module.

    Returns
    -------
    Tensor
        Shape ``(groups, len(sizes))``.
    """
    check_tensor("logits", logits, (None, None, None, None))
    check_callable("metric", metric)
    if not check_instance("sizes", sizes, Sequence):
        raise ValueError("sizes must hold at least one number of members, got none")
    per_group = len(logits) // check_int("groups", groups, maximum=len(logits))
    for size in sizes:
        check_int("sizes", size, maximum=per_group)
    parts = logits[: per_group * groups].unflatten(0, (groups, per_group))
    rows = [torch.stack([metric(block_means(part, size)).mean() for size in sizes]) for part in parts]
    return torch.stack(rows)


def slope(curve: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the least-squares slope of log metric against log M, shape ``(…)`` for curves ``(…, len(sizes))``."""
    check_tensor("curve", curve, (None,), inexact=True, real=True)
    for size in check_instance("sizes", sizes, Sequence):
        check_int("sizes", size)
    if len(sizes) < 2 or curve.shape[-1] != len(sizes):
        raise ValueError(f"curve must have one value for each of at least two sizes, got {tuple(curve.shape)}, {sizes}")
    x = torch.tensor(sizes, dtype=torch.float64, device=curve.device).log()
    x = x - x.mean()
    return (curve.double().log() * x).sum(-1) / x.square().sum()


def slope_interval(curve: Tensor, sizes: Sequence[int], level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the slope of the mean curve: jackknife over the groups, Student's t.

    Parameters
    ----------
    curve
        Shape ``(groups, len(sizes))``, from :func:`curves`; at least three groups.
    sizes
        The numbers of members.
    level
        Coverage.
    """
    groups = check_int("groups", len(check_tensor("curve", curve, (None, None))), minimum=3)
    level = check_float("level", level, 0.5, 1 - 1e-9)
    centre = float(slope(curve.mean(0), sizes))
    without = slope((curve.sum(0) - curve) / (groups - 1), sizes)
    error = float((without - without.mean()).square().sum() * (groups - 1) / groups) ** 0.5
    reach = float(student.ppf((1 + level) / 2, groups - 1)) * error
    return centre - reach, centre + reach


def interval_miss(interval: tuple[float, float], value: float) -> float:
    """Return the distance from a value to an interval, zero inside."""
    return max(interval[0] - value, value - interval[1], 0.0)


def bootstrap(logits: Tensor, metric: Metric, resamples: int = 100, seed: int = 0) -> Tensor:
    """Return a metric of the whole ensemble for members drawn with replacement, shape ``(resamples,)``.

    Each resample gives every member a multiplicity; a squared residual is on average larger by V/M than that of the
    ensemble itself, for any ensemble of M members.
    """
    check_callable("metric", metric)
    check_int("seed", seed, minimum=0)
    m = len(check_tensor("logits", logits, (None, None, None, None), inexact=True))
    check_int("members", m)
    counts = np.random.default_rng(seed).multinomial(m, np.full(m, 1 / m), check_int("resamples", resamples))
    weights = torch.from_numpy(counts / m).to(logits)
    return torch.stack([metric(torch.tensordot(w, logits, 1)) for w in weights])


def _check_logits(logits: Tensor) -> Tensor:
    check_tensor("logits", logits, (None, None, None), inexact=True, real=True)
    if not logits.numel():
        raise ValueError(f"logits must not be empty, got shape {tuple(logits.shape)}")
    return logits


def separation(broken: Tensor, whole: Tensor, resamples: int = 200, level: float = 0.95, seed: int = 0) -> float:
    """Return the lower end of an interval of residual(broken) − residual(whole), members resampled.

    The end lies below the difference by a normal quantile times its bootstrap standard error, which a few hundred
    resamples give at any level; their own quantiles would end at 99.5 %.

    Parameters
    ----------
    broken, whole
        Logits of two ensembles with members of their own, each ``(m, |G|, n, classes)``.
    resamples, level, seed
        Bootstrap samples (at least 30), coverage of the two-sided interval, seed.
    """
    check_int("resamples", resamples, minimum=30)
    level = check_float("level", level, 0.5, 1 - 1e-9)
    spread = bootstrap(broken, residual, resamples, seed) - bootstrap(whole, residual, resamples, seed + 1)
    difference = residual(broken.mean(0)) - residual(whole.mean(0))
    return float(difference - norm.ppf((1 + level) / 2) * spread.std())


def expected_residual(logits: Tensor) -> tuple[float, float]:
    """Return unbiased estimates of (B², V): ``E squared_residual(mean of M members) = B² + V/M``."""
    m = len(check_tensor("logits", logits, (None, None, None, None)))
    check_int("members", m, minimum=2)
    single, whole = float(squared_residual(logits).mean()), float(squared_residual(logits.mean(0)))
    variance = (single - whole) * m / (m - 1)
    return whole - variance / m, variance


def offset_interval(logits: Tensor, level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of B²/V, see :func:`expected_residual`: jackknife over the members, Student's t.

    It contains zero, with this probability, where the *expected* network is invariant; V is the variance of a member.

    Parameters
    ----------
    logits
        Shape ``(m, |G|, n, classes)``, at least three members.
    level
        Coverage.
    """
    m, turns, n, _ = check_tensor("logits", logits, (None, None, None, None), inexact=True, real=True).shape
    check_int("members", m, minimum=3)
    level = check_float("level", level, 0.5, 1 - 1e-9)
    d = (logits - logits.mean(1, keepdim=True)).flatten(1).double() / (turns * n) ** 0.5
    total, own = d.sum(0), d.square().sum(1)

    def ratio(squared_sum: Tensor, squares: Tensor, count: int) -> Tensor:
        """B²/V from ‖Σ d_i‖² and Σ ‖d_i‖² over some members."""
        return (squared_sum - squares) / (count * squares - squared_sum)

    centre = float(ratio(total @ total, own.sum(), m))
    without = ratio(total @ total - 2 * (d @ total) + own, own.sum() - own, m - 1)
    error = float((without - without.mean()).square().sum() * (m - 1) / m) ** 0.5
    reach = float(student.ppf((1 + level) / 2, m - 1)) * error
    return centre - reach, centre + reach
