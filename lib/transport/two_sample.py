"""Permutation tests of whether two samples have one law, and of whether a law is invariant under a group.

The statistic is a quadratic form ``wᵀKw`` in the signs of the two samples, so that one matrix of the pooled sample
serves every permutation. If the laws are equal the pooled points are exchangeable, and the test is exact at its level
for every sample size and dimension, heavy tails and ties included (Gretton et al. 2012; Phipson, Smyth 2010 for the
p-value).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from lib.checks import holds, unit_of
from lib.symmetry.representations import Representation
from lib.transport.quotient import euclidean

WIDEST, KERNELS = 2.0, 4  # widest kernel, relative to the median distance; each of the others is half as wide
Move = Callable[[Tensor, torch.Generator], Tensor]
_CHUNK = 2**21  # entries of the largest intermediate array: more leave the cache
_BLOCK = 64  # rows of the kernel at once
_SMALL = 2**15  # entries of the kernel that are raised to powers at once


@dataclass(frozen=True)
class TwoSampleResult:
    """Outcome of independent tests: statistics, and the p-values that are made of them, both of shape ``(...)``.

    A p-value is ``(1 + #{permutations with a statistic at least as large}) / (1 + permutations)``.
    """

    statistic: Tensor
    p_value: Tensor

    def rejected(self, level: float = 0.05) -> Tensor:
        """Return whether the p-value does not exceed the level, shape ``(...)``."""
        return self.p_value <= level


def two_sample_test(x: Tensor, y: Tensor, generator: torch.Generator, permutations: int = 499) -> TwoSampleResult:
    """Test by the MMD whether two samples have one law, independently for every run.

    Under that hypothesis the p-value is at most α with probability at most α; with probability exactly α where
    (permutations + 1)·α is an integer and ties have probability zero. Every run draws permutations of its own, so that
    the outcomes of independent runs are independent.

    Samples have shapes ``(..., n, dim)`` and ``(..., m, dim)`` with the same leading axes: the runs.
    """
    pooled = torch.cat([x, y], -2)
    pooled = pooled.reshape(math.prod(x.shape[:-2]), *pooled.shape[-2:])
    size = max(1, _CHUNK // (pooled.shape[1] * max(permutations, pooled.shape[1])))
    parts = [_test_runs(some, x.shape[-2], generator, permutations) for some in pooled.split(size)]
    observed, p_value = (torch.cat(part).reshape(x.shape[:-2]) for part in zip(*parts, strict=True))
    return TwoSampleResult(observed, p_value)


def invariance_test(x: Tensor, move: Move, generator: torch.Generator, permutations: int = 499) -> TwoSampleResult:
    """Test whether the law of a sample is invariant: one half of it against the other half, moved.

    The halves are independent, and under invariance they have one law, moved or not, which makes the test exact. The
    *same* points, moved and not, would depend on each other and spoil the level.

    Draws are independent, shape ``(..., n, dim)``, in an order that means nothing; leading axes are runs.
    ``move(points, generator)`` returns the points moved by random group elements; see :func:`random_move`.
    """
    first, second = x.tensor_split([x.shape[-2] // 2], -2)
    return two_sample_test(first, move(second, generator), generator, permutations)


def random_move(representation: Representation, identity: bool = False) -> Move:
    """Return the function that moves every point by a uniformly random element of its own.

    Without the neutral element the moved law differs more from a law without symmetry; ``identity`` lets it take part.
    """
    group = representation.group
    elements = group.elements()
    if not identity:
        elements = elements[(elements != group.identity()).any(-1)]

    def move(points: Tensor, generator: torch.Generator) -> Tensor:
        shape = points.shape[: points.ndim - len(representation.shape)]
        chosen = torch.randint(len(elements), shape, generator=generator, device=generator.device)
        return representation.apply(elements.to(points.device)[chosen], points)

    return move


def pooled_kernel(points: Tensor) -> Tensor:
    """Return the matrix K ``(..., N, N)`` whose quadratic form ``wᵀKw``, w = (1/n, …, −1/m, …), is the statistic.

    The mean of Gaussian kernels ``exp(−d²/2s²)``; their widths s are 2, 1, 1/2 and 1/4 of the median distance of the
    pooled sample, which no permutation changes, so that the test stays exact. Bounded: fit for heavy tails. The scale
    of the points ``(..., N, dim)`` does not matter.
    """
    points = points.detach().double()  # a test has no slope
    points = points / usual_unit(points, points)
    distances = euclidean(points, points)
    i, j = torch.triu_indices(*distances.shape[-2:], offset=1, device=points.device)
    pairs = distances[..., i, j]
    median, mean = _kth_smallest(pairs, (pairs.shape[-1] + 1) // 2)[..., 0], pairs.mean(-1)
    width = torch.where(median > 0, median, torch.where(mean > 0, mean, torch.ones_like(mean)))
    total = distances / (WIDEST * width)[..., None, None]
    for rows in total.flatten(0, -2).split(max(1, _SMALL // max(1, total.shape[-1]))):
        kernel = rows.square_().div_(-2).exp_().clone()
        for _ in range(KERNELS - 1):
            rows += kernel.square_().square_()  # half the width: the fourth power
    return total.div_(KERNELS)


def usual_unit(points: Tensor, others: Tensor) -> Tensor:
    """Return the power of two near the median of the positive distances between two sets of points, ``(..., 1, 1)``.

    In this unit, points at the usual distance keep all digits; those beyond its range are refused.
    """
    some = others[..., :: max(1, others.shape[-2] // 64), :]  # of a power of two nothing depends on but the range
    apart = torch.cdist(points, some, p=torch.inf).flatten(-2)
    unit = unit_of(torch.where(apart > 0, apart, torch.nan).nanmedian(-1, True).values.nan_to_num())[..., None]
    if not holds((points / unit).isfinite()):
        raise ValueError("points must have coordinates below 1e300 times their usual distance")
    return unit


def _kth_smallest(values: Tensor, k: int) -> Tensor:
    """Return the k-th smallest number along the last axis, which is kept; NumPy selects faster on the CPU."""
    if values.device.type != "cpu":
        return values.kthvalue(k, -1, keepdim=True).values
    return torch.from_numpy(np.partition(values.numpy(), k - 1, -1)[..., k - 1 : k])


def signs(runs: int, n: int, m: int, permutations: int, generator: torch.Generator) -> Tensor:
    """Return random vectors w of the statistic for sizes n and m, shape ``(runs, permutations, n + m)``, float64."""
    shape = (runs, permutations, n + m)
    keys = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    first = keys <= _kth_smallest(keys, n)
    return torch.full_like(keys, -1 / m).masked_fill_(first, 1 / n)


def _test_runs(pooled: Tensor, n: int, generator: torch.Generator, permutations: int) -> tuple[Tensor, Tensor]:
    """Return statistics and p-values of some runs; ties count as at least as large, up to rounding."""
    kernel = pooled_kernel(pooled)
    m = pooled.shape[1] - n
    first = torch.cat([kernel.new_full((n,), 1 / n), kernel.new_full((m,), -1 / m)])
    w = signs(len(pooled), n, m, permutations, generator).to(kernel)
    permuted = _forms(w, kernel)
    observed = (kernel @ first) @ first
    rounding = 32 * torch.finfo(kernel.dtype).eps * kernel.abs().amax((-2, -1))
    larger = (permuted >= (observed - rounding)[:, None]).sum(-1)
    return observed.to(pooled.dtype), (1 + larger).double() / (1 + permutations)


def _forms(w: Tensor, kernel: Tensor) -> Tensor:
    """Return ``wᵀKw`` for every w, ``(runs, permutations, N)``, from the upper triangle, block by block."""
    upper, total = 2 * kernel.triu(1) + torch.diag_embed(kernel.diagonal(dim1=-2, dim2=-1)), torch.zeros_like(w[..., 0])
    for first in range(0, w.shape[-1], _BLOCK):
        rows = slice(first, first + _BLOCK)
        total += ((w[..., rows] @ upper[:, rows, first:]) * w[..., first:]).sum(-1)
    return total


def outside_interval(rejections: int, trials: int, level: float = 0.05, coverage: float = 0.95) -> int:
    """Return by how many rejections a test that is exact at its level misses the central binomial interval."""
    low, high = binom.interval(coverage, trials, level)
    return int(max(low - rejections, rejections - high, 0))
