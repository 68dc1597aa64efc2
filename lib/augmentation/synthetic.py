"""Generated data: random graphs and simple shapes (Nordenfors, Ohlsson, Flinth 2023, D.1 and D.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lib.checks import seeded


def block_graphs(
    count: int, nodes: int = 10, within: float = 0.5, across: float = 0.05, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return graphs of the stochastic block model with two hidden blocks, and whether each is connected (ibid., D.1).

    The n nodes, an even number, are divided at random into two halves. An edge is present with probability ``within``
    inside a half and ``across`` between them, independently. Adjacency matrices have shape ``(count, 1, n²)``, float64;
    labels 0 or 1 ``(count,)``, int64.
    """
    generator = seeded(seed)
    block = torch.rand(count, nodes, generator=generator, device="cpu").argsort(-1) < nodes // 2
    same = block[:, :, None] == block[:, None, :]
    threshold = torch.where(same, within, across)
    draw = torch.rand(count, nodes, nodes, generator=generator, dtype=torch.float64, device="cpu")
    upper = torch.triu(draw < threshold, 1)
    adjacency = upper | upper.mT
    return adjacency.to(torch.float64).reshape(count, 1, -1), connected(adjacency).long()


def connected(adjacency: Tensor) -> Tensor:
    """Return whether graphs given by boolean matrices ``(..., n, n)`` are connected, by doubling paths."""
    n = adjacency.shape[-1]
    reached = adjacency | torch.eye(n, dtype=torch.bool, device=adjacency.device)
    for _ in range(n.bit_length()):
        reached = reached.double() @ reached.double() > 0
    return reached.flatten(-2).all(-1)


def polygon_coverage(corners: Tensor, size: int, oversampling: int = 8) -> Tensor:
    """Return how much of every pixel of the square [−1, 1]² a convex polygon covers, shape ``(..., size, size)``.

    Corners come in counter-clockwise order, shape ``(..., corners, 2)``; row 0 of the image is y = 1. The coverage is
    the share of ``oversampling²`` points inside.
    """
    fine = size * oversampling
    line = (torch.arange(fine, dtype=corners.dtype, device=corners.device) + 0.5) * (2 / fine) - 1
    x, y = line[None, :], -line[:, None]
    inside = torch.ones(*corners.shape[:-2], fine, fine, dtype=torch.bool, device=corners.device)
    for a, b in zip(corners.unbind(-2), corners.roll(-1, -2).unbind(-2), strict=True):
        (ax, ay), (bx, by) = a[..., None, None].unbind(-3), b[..., None, None].unbind(-3)
        inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0
    blocks = inside.unflatten(-1, (size, oversampling)).unflatten(-3, (size, oversampling))
    return blocks.to(corners.dtype).mean((-1, -3))


def simple_shapes(count: int, size: int = 14, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images of one triangle or pentagon each, and the two masks (ibid., D.3).

    With equal probability an equilateral triangle or a regular pentagon, first corner to the right, of radius uniform
    in [.7, .8] about a centre uniform in [−.5, .5]², drawn on the canvas [−1, 1]², white on black. The masks mark
    pixels that are more than half covered; the mask of the absent shape is zero. Images ``(count, 1, size²)`` have
    values in [0, 1]; masks have shape ``(count, 2, size²)``, triangle first; both are float64.
    """
    generator = seeded(seed)
    draw = torch.rand(count, 4, generator=generator, dtype=torch.float64, device="cpu")
    pentagon, radius, centre = draw[:, 0] < 0.5, 0.7 + 0.1 * draw[:, 1], draw[:, 2:] - 0.5
    coverage = draw.new_zeros(count, size, size)
    for corners, chosen in ((3, ~pentagon), (5, pentagon)):
        angle = 2 * math.pi * torch.arange(corners, dtype=torch.float64, device="cpu") / corners
        unit = torch.stack([angle.cos(), angle.sin()], -1)
        coverage[chosen] = polygon_coverage(radius[chosen, None, None] * unit + centre[chosen, None], size)
    mask = (coverage > 0.5).flatten(1)
    masks = torch.stack([mask & ~pentagon[:, None], mask & pentagon[:, None]], 1)
    return coverage.flatten(1)[:, None], masks.to(torch.float64)
