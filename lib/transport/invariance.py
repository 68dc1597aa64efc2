"""Is a law invariant under a group? A test that moves every point of a sample along its own orbit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import check_tensor, unit_of
from lib.symmetry.representations import Representation
from lib.transport.quotient import euclidean, linear
from lib.transport.two_sample import TwoSampleResult

SCALES = (0.25, 0.5, 1.0)  # widths of the kernels, in units of the median distance of images of different points
_ENTRIES = 2**27  # of the largest array: 1 GiB


def orbit_test(
    points: Tensor, representation: Representation, generator: torch.Generator, draws: int = 499
) -> TwoSampleResult:
    """Test whether independent points have a law that is invariant under a finite group of isometries.

    The statistic compares the sample with its symmetrisation, in the space of a sum of Gaussian kernels whose widths
    are ``SCALES`` times the median of all ``d(x_i, g x_j)``, i ≠ j, which no move of a point changes:
    ``T(x) = (1/n²) Σ_ij [k(x_i, x_j) − (1/|G|) Σ_g k(x_i, g x_j)]``. Under the hypothesis, moving every point by its
    own uniform group element does not change the law of the sample, so the rank of ``T(x)`` among values
    ``T(g_1 x_1, …, g_n x_n)`` is uniform and ``p = (1 + #{T(gx) ≥ T(x)}) / (1 + draws)`` is exact at every level
    (Chiu, Bloem-Reddy 2023; Hemerik, Goeman 2018).

    All that varies inside an orbit is kept and all that varies between orbits cancels; a test that compares one half of
    the sample with the moved other half pays for the difference between the halves. Points that are not independent
    (patches that touch) make this test reject too often, not too rarely: their orientations agree.

    Samples have shape ``(..., n, dim)``, n ≥ 2; leading axes are separate samples. ``draws`` is the number of random
    moves.
    """
    action = linear(representation)
    x = check_tensor("points", points, (None, representation.dim), inexact=True, real=True)
    group, n = representation.group, x.shape[-2]
    if n < 2:
        raise ValueError(f"points must be at least two, got {n}")
    if (entries := group.order * x[..., 0].numel() * n) > _ENTRIES:
        raise ValueError(f"points are too many: {entries} values of the kernel, allowed are {_ENTRIES}")
    kernel = _moved_kernel(x.detach().double(), action.images)
    table = group.cayley_table()[group.index(group.inverse(group.elements()))].to(x.device)
    batch = kernel.shape[1:-2]

    def value(moves: Tensor) -> Tensor:
        relative = table[moves[..., :, None], moves[..., None, :]]
        return kernel.gather(0, relative[None])[0].mean((-2, -1))

    mean = kernel.mean((0, -2, -1))
    start = kernel[group.index(group.identity())].mean((-2, -1))
    above = torch.zeros(batch, device=x.device)
    for _ in range(draws):
        moves = torch.randint(group.order, (*batch, n), generator=generator, device=generator.device).to(x.device)
        above += value(moves) >= start * (1 - 1e-12)
    return TwoSampleResult(start - mean, (1 + above.double()) / (1 + draws))


def _moved_kernel(x: Tensor, images: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``k(x_i, g x_j)`` for every g, shape ``(|G|, ..., n, n)``; moving points leaves the widths as they are."""
    x = x / unit_of(x, (-2, -1))
    x = x - images(x).mean((0, -2))[..., None, :]  # the mean of all images, which no move changes
    distance = euclidean(x, images(x))
    i, j = torch.triu_indices(x.shape[-2], x.shape[-2], 1, device=x.device)
    apart = distance[..., i, j].movedim(0, -1).flatten(-2)  # of x_i and all images of x_j: (..., pairs · |G|)
    median = apart.median(-1).values.clamp_min(torch.finfo(x.dtype).tiny)[..., None, None]
    return sum(torch.exp(-((distance / (s * median)) ** 2) / 2) for s in SCALES) / len(SCALES)
