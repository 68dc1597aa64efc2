"""Small players: layers of filters against the Haar projection, whole networks, stacks, widths, bad input."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.gans.layers import filters, side_by_side
from lib.gans.plane_players import (
    DISCRIMINATORS,
    GENERATORS,
    averaged,
    group_matrices,
    make_discriminator,
    make_generator,
    matched_width,
    noise_representation,
)
from lib.symmetry.actions import natural, planar, regular, trivial
from lib.symmetry.derived import Hom, multiple
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.representations import MatrixRepresentation, Representation

C4, D4 = Cyclic(4), Dihedral(4)


def planes(count: int, group: FiniteGroup = C4) -> Representation:
    """Return a group of the plane that moves so many coordinate planes alike."""
    return multiple(planar(group), count)


SPACES = [
    *(planar(group) for group in (Cyclic(2), C4, Cyclic(8), Dihedral(3), D4)),
    planes(3),
    planes(2, Dihedral(2)),
    natural(Symmetric(3)),
    regular(Cyclic(5)),
    trivial(C4),
]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_filters_span_exactly_the_equivariant_maps(space: Representation) -> None:
    copies = multiple(regular(space.group), 3)
    for back, pair in ((False, Hom(space, copies)), (True, Hom(copies, space))):
        layer = filters(group_matrices(space), 3, back)
        basis = layer.expand(torch.eye(layer.count, dtype=torch.float64))
        haar = projection(pair)
        assert basis.shape == (layer.count, layer.outputs, layer.inputs)
        assert layer.count == haar.rank == int(torch.linalg.matrix_rank(basis.flatten(1)))
        assert torch.allclose(haar(basis), basis, atol=1e-12)


def test_regular_blocks_are_circulant() -> None:
    matrix = filters(group_matrices(regular(C4)), 1).expand(torch.arange(4.0)[None])[0]
    assert all(torch.equal(matrix[(i + 1) % 4].roll(-1), matrix[i]) for i in range(4))


def test_only_orthogonal_matrices_make_layers() -> None:
    sheared = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    bent = MatrixRepresentation(
        C4, 2, lambda g: sheared @ planar(C4).matrix(g) @ sheared.inverse(), "bent", unitary=False
    )
    with pytest.raises(ValueError, match="representation must be orthogonal"):
        group_matrices(bent)
    assert set(group_matrices(planes(2)).flatten().tolist()) == {0.0, 1.0, -1.0}  # exact, in spite of cos and sin


def broken_by(function: Callable, points: Tensor, source: Representation, target: Representation) -> float:
    """max |g(σz) − σ g(z)| over the group, points and runs."""
    moves = [(source.matrix(g).to(points), target.matrix(g).to(points)) for g in source.group.elements()]
    out = function(points)
    return max(float((function(points @ a.mT) - out @ b.mT).detach().abs().max()) for a, b in moves)


def residual(kind: str, action: Representation, dtype: torch.dtype, seed: int = 0) -> float:
    width = 4 * action.group.order
    network = make_generator(kind, action, 3, rng(seed), width=width, dtype=dtype)
    noise = torch.randn(3, 40, network.inputs, generator=rng(1), dtype=dtype)
    return broken_by(network, noise, noise_representation(action.group), action)


@pytest.mark.parametrize(
    "action", [planes(1), planes(6), planar(D4), planar(Cyclic(8)), planes(2, Dihedral(3))], ids=str
)
def test_only_the_equivariant_generator_is_equivariant(action: Representation) -> None:
    assert residual("equivariant", action, torch.float64) < 1e-13
    assert residual("equivariant", action, torch.float32) < 1e-5
    assert residual("incomplete", action, torch.float64) > 0.1
    assert residual("plain", action, torch.float64) > 0.1


@given(st.integers(0, 1000), st.sampled_from([planes(1), planes(3), planar(Cyclic(8)), planar(D4)]))
def test_discriminators(seed: int, action: Representation) -> None:
    points = torch.randn(2, 30, action.dim, generator=rng(seed), dtype=torch.float64)
    found = {}
    for kind in DISCRIMINATORS:
        network = make_discriminator(kind, action, 2, rng(seed), dtype=torch.float64)
        function = averaged(network, action) if kind == "averaged" else network
        found[kind] = broken_by(function, points, action, trivial(action.group))
    assert found["invariant"] < 1e-12
    assert found["averaged"] < 1e-12
    assert found["plain"] > 0.01


def test_averaging_is_the_mean_over_the_group_and_a_projection() -> None:
    action = planes(2)
    network = make_discriminator("plain", action, 2, rng(), dtype=torch.float64)
    points = torch.randn(2, 5, 4, generator=rng(), dtype=torch.float64)
    mean = averaged(network, action)
    by_hand = torch.stack([network(points @ m.mT) for m in group_matrices(action)]).mean(0)
    assert torch.allclose(mean(points), by_hand)
    assert torch.allclose(averaged(mean, action)(points), mean(points))


def test_a_network_is_a_perceptron_run_by_run() -> None:
    network = make_generator("equivariant", planes(1), 3, rng(), dtype=torch.float64)
    noise = torch.randn(3, 6, network.inputs, generator=rng(), dtype=torch.float64)
    out = network(noise)
    for run in range(3):
        x = noise[run]
        for place, (matrix, bias) in enumerate(network.layers()):
            x = x @ matrix[run].mT + bias[run, :, 0]
            x = torch.where(x > 0, x, 0.1 * x) if place < 2 else x
        assert torch.allclose(out[run], x)
    grads = torch.autograd.grad(out[1].sum(), network.parameters[0])[0]
    assert float(grads[[0, 2]].abs().max()) == 0  # runs do not see one another


def test_networks_side_by_side() -> None:
    networks = [make_generator(kind, planes(1), 2, rng(), dtype=torch.float64) for kind in GENERATORS]
    noise = torch.randn(6, 7, networks[0].inputs, generator=rng(), dtype=torch.float64)
    apart = torch.cat([network(part) for network, part in zip(networks, noise.split(2), strict=True)])
    assert torch.allclose(side_by_side(networks, noise), apart)


def test_entries_of_tied_and_untied_matrices_start_alike() -> None:
    for kind in GENERATORS:
        network = make_generator(kind, planes(6), 200, rng(), dtype=torch.float64)
        for (matrix, _), inputs, gain in zip(network.layers(), (8, 32, 32), (2, 2, 1), strict=True):
            assert float(matrix.detach().var()) == pytest.approx(gain / inputs, rel=0.1)


@pytest.mark.parametrize("kind", GENERATORS)
def test_matched_width(kind: str) -> None:
    action = planes(1)
    width = matched_width(kind, action, 32)
    plain = make_generator("plain", action, 1, rng(), 32).per_run
    ours = make_generator(kind, action, 1, rng(), width).per_run
    assert plain == 8 * 32 + 32 + 32 * 32 + 32 + 2 * 32 + 2
    assert abs(ours / plain - 1) < 0.1
    assert (width > 32) == (kind != "plain")


@pytest.mark.parametrize("kind", ["equivariant", "incomplete"])
@pytest.mark.parametrize("width", [1, 8])
def test_matched_width_of_a_large_group_is_the_nearest(kind: str, width: int) -> None:
    action = planes(1, Cyclic(24))
    wanted = make_generator("plain", action, 1, rng(), width).per_run
    gaps = {w: abs(make_generator(kind, action, 1, rng(), w).per_run - wanted) for w in range(24, 240, 24)}
    assert matched_width(kind, action, width) == min(gaps, key=gaps.get)


def test_tied_layers_need_a_width_that_the_group_divides() -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        make_generator("equivariant", planes(1), 2, rng(), width=30)
    assert make_generator("plain", planes(1), 2, rng(), width=30).per_run > 0
