"""The generated data against their stated laws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from lib.augmentation.synthetic import block_graphs, connected, polygon_coverage, simple_shapes

# --- graphs ----------------------------------------------------------------------------------------------------------


def test_graphs_are_simple_and_labels_true() -> None:
    x, y = block_graphs(200, 10, seed=3)
    a = x.reshape(-1, 10, 10)
    assert torch.equal(a, a.mT)
    assert float(a.diagonal(dim1=-2, dim2=-1).abs().max()) == 0.0
    assert set(a.unique().tolist()) == {0.0, 1.0}
    for graph, label in zip(a, y, strict=True):
        laplacian = graph.sum(-1).diag() - graph
        assert int((torch.linalg.eigvalsh(laplacian) < 1e-9).sum() == 1) == int(label)


def test_long_graphs_are_connected_too() -> None:
    """A clique with a tail: the numbers of walks between its nodes overflow before one reaches the tail's end."""
    a = torch.zeros(400, 400, dtype=torch.bool)
    a[:100, :100] = True
    a.diagonal(1)[99:] = True
    a = (a | a.mT).fill_diagonal_(False)
    apart = a.clone()
    apart[398:, :398], apart[:398, 398:] = False, False
    assert connected(torch.stack([a, apart])).tolist() == [True, False]
    assert bool(connected(torch.zeros(1, 1, dtype=torch.bool)))


def connection_probability(nodes: int, within: float, across: float) -> float:
    """Sum over the component of one fixed node (after Gilbert 1959); f(a, b): blocks of a ≥ 1 and b nodes joined."""
    p, q, half, f = 1 - within, 1 - across, nodes // 2, {}
    for a, b in itertools.product(range(1, half + 1), range(half + 1)):
        smaller = [(i, j) for i in range(1, a + 1) for j in range(b + 1) if (i, j) != (a, b)]
        f[a, b] = 1.0 - sum(
            math.comb(a - 1, i - 1)
            * math.comb(b, j)
            * f[i, j]
            * p ** (i * (a - i) + j * (b - j))
            * q ** (i * (b - j) + j * (a - i))
            for i, j in smaller
        )
    return f[half, half]


@pytest.mark.parametrize(("nodes", "within", "across"), [(10, 0.5, 0.05), (6, 0.5, 0.2)])
def test_graphs_follow_the_stated_law(nodes: int, within: float, across: float) -> None:
    """Edge density and share of connected graphs, each against its exact value within four standard errors."""
    count, half = 20_000, nodes // 2
    x, y = block_graphs(count, nodes, within, across, seed=1)
    pairs = nodes * (nodes - 1) / 2
    p = connection_probability(nodes, within, across)
    assert abs(float(y.double().mean()) - p) < 4 * math.sqrt(p * (1 - p) / count)
    inside = half * (half - 1)
    density = (inside * within + half**2 * across) / pairs
    variance = (inside * within * (1 - within) + half**2 * across * (1 - across)) / pairs**2
    assert abs(float(x.sum((1, 2)).mean()) / 2 / pairs - density) < 4 * math.sqrt(variance / count)


def test_blocks_are_hidden() -> None:
    """Every pair of nodes is joined equally often: the halves are drawn at random."""
    x, _ = block_graphs(20_000, 6, 0.9, 0.1, seed=0)
    a = x.reshape(-1, 6, 6).mean(0)[torch.triu(torch.ones(6, 6), 1).bool()]
    p = 0.4 * 0.9 + 0.6 * 0.1
    assert float((a - p).abs().max()) < 4.5 * math.sqrt(p * (1 - p) / 20_000)


def test_seeds_repeat_and_differ() -> None:
    for make in (block_graphs, lambda n, seed=0: simple_shapes(n, 8, seed)):
        assert torch.equal(make(5, seed=1)[0], make(5, seed=1)[0])
        assert not torch.equal(make(5, seed=1)[0], make(5, seed=2)[0])


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_coverage_of_a_polygon_is_its_area() -> None:
    square = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], dtype=torch.float64)
    image = polygon_coverage(square, 8, 4)
    assert float(image.mean()) == 0.25
    assert torch.equal(image[2:6, 2:6], torch.ones(4, 4).double())
    angle = 2 * math.pi * torch.arange(5).double() / 5
    pentagon = 0.7 * torch.stack([angle.cos(), angle.sin()], -1)
    area = 0.7**2 * 2.5 * math.sin(2 * math.pi / 5) / 4
    assert abs(float(polygon_coverage(pentagon, 14, 32).mean()) - area) < 1e-3


def test_coverage_knows_up_and_right() -> None:
    """Row 0 is the top, column 0 the left."""
    corner = torch.tensor([[0.5, 0.5], [1.0, 0.5], [1.0, 1.0], [0.5, 1.0]], dtype=torch.float64)
    image = polygon_coverage(corner, 4, 2)
    assert float(image[0, 3]) == 1.0
    assert float(image.sum()) == 1.0


def test_shapes_follow_the_stated_law() -> None:
    count = 3000
    x, masks = simple_shapes(count, 14, seed=2)
    present = masks.sum(-1) > 0
    assert bool((present.sum(-1) == 1).all()), "exactly one mask is not empty"
    assert torch.equal(masks.sum(1), (x[:, 0] > 0.5).double())
    share = float(present[:, 1].double().mean())
    assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(count)
    assert 0.0 <= float(x.min()) <= float(x.max()) <= 1.0
    # Shapes wholly on the canvas have the area of their radius: uniform on [.7, .8].
    image = x.reshape(-1, 14, 14)
    edge = image[:, 0].sum(-1) + image[:, -1].sum(-1) + image[:, :, 0].sum(-1) + image[:, :, -1].sum(-1)
    for corners, chosen in ((3, present[:, 0]), (5, present[:, 1])):
        whole = image[chosen & (edge == 0)].mean((1, 2)) * 4
        radius = (whole / (corners / 2 * math.sin(2 * math.pi / corners))).sqrt()
        assert float(radius.min()) > 0.69
        assert float(radius.max()) < 0.81


def test_all_triangles_point_right() -> None:
    """The third moment of every whole triangle along x is positive: the law is not invariant under rotations."""
    x, masks = simple_shapes(500, 14)
    image = x.reshape(-1, 14, 14)[masks[:, 0].sum(-1) > 0]
    edge = image[:, 0].sum(-1) + image[:, -1].sum(-1) + image[:, :, 0].sum(-1) + image[:, :, -1].sum(-1)
    profile = image[edge == 0].sum(1)
    place = torch.arange(14).double()
    centred = place - (profile @ place / profile.sum(-1))[:, None]
    assert len(profile) > 20
    assert float((profile * centred**3).sum(-1).min()) > 0
