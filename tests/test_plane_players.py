"""Small players: tied layers against the Haar projection, symmetry of whole networks, stacks, widths, bad input."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.gans.mixtures import planes
from lib.gans.plane_players import (
    DISCRIMINATORS,
    GENERATORS,
    Averaged,
    Network,
    Stack,
    equivariance_residual,
    group_matrices,
    make_discriminator,
    make_generator,
    matched_width,
    multiple,
    noise_representation,
    tied,
    untied,
)
from lib.symmetry.actions import natural, planar, regular, trivial
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.representations import Hom, Representation

C4, D4 = Cyclic(4), Dihedral(4)
SPACES = {
    "C4": [regular(C4), planes(1), planes(2), trivial(C4, 2), multiple(regular(C4), 2)],
    "D4": [regular(D4), planar(D4), trivial(D4), multiple(planar(D4), 2)],
    "S3": [natural(Symmetric(3)), regular(Symmetric(3)), trivial(Symmetric(3))],
}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("group", SPACES)
def test_ties_span_exactly_the_equivariant_maps(group: str) -> None:
    for source in SPACES[group]:
        for target in SPACES[group]:
            tie = tied(source, target)
            basis = tie.expand(torch.eye(tie.count, dtype=torch.float64))
            haar = projection(Hom(source, target))
            assert tie.count == haar.rank
            assert tie.count == 0 or torch.allclose(haar(basis), basis, atol=1e-12)
            assert tie.count == 0 or int(torch.linalg.matrix_rank(basis.flatten(1))) == tie.count


def test_regular_blocks_are_circulant() -> None:
    matrix = tied(regular(C4), regular(C4)).expand(torch.arange(4.0)[None])[0]
    assert all(torch.equal(matrix[(i + 1) % 4].roll(-1), matrix[i]) for i in range(4))


def test_nothing_is_equivariant_from_the_plane_to_numbers() -> None:
    tie = tied(planes(1), trivial(C4))
    assert tie.count == 0
    assert torch.equal(tie.expand(torch.zeros(3, 0)), torch.zeros(3, 1, 2))


def test_ties_refuse_what_is_no_signed_permutation() -> None:
    with pytest.raises(ValueError, match="permute"):
        tied(planar(Cyclic(3)), regular(Cyclic(3)))
    with pytest.raises(ValueError, match="one finite group"):
        tied(regular(C4), regular(D4))


def residual(kind: str, action: Representation, dtype: torch.dtype, seed: int = 0) -> float:
    network = make_generator(kind, action, 3, rng(seed), dtype=dtype)
    noise = torch.randn(3, 40, network.inputs, generator=rng(1), dtype=dtype)
    return float(equivariance_residual(network, noise, noise_representation(action.group, 2), action).max())


@pytest.mark.parametrize("action", [planes(1), planes(6), planar(D4)], ids=str)
def test_only_the_equivariant_generator_is_equivariant(action: Representation) -> None:
    assert residual("equivariant", action, torch.float64) < 1e-13
    assert residual("equivariant", action, torch.float32) < 1e-5
    assert residual("incomplete", action, torch.float64) > 0.1
    assert residual("plain", action, torch.float64) > 0.1


@given(st.integers(0, 1000), st.sampled_from([planes(1), planes(3)]))
def test_discriminators(seed: int, action: Representation) -> None:
    points = torch.randn(2, 30, action.dim, generator=rng(seed), dtype=torch.float64)
    found = {}
    for kind in DISCRIMINATORS:
        network = make_discriminator(kind, action, 2, rng(seed), dtype=torch.float64)
        function = Averaged(network, action) if kind == "averaged" else network
        found[kind] = float(equivariance_residual(function, points, action, trivial(action.group)).max())
    assert found["invariant"] < 1e-12
    assert found["averaged"] < 1e-12
    assert found["plain"] > 0.01


def test_averaging_is_the_mean_over_the_group_and_a_projection() -> None:
    action = planes(2)
    network = make_discriminator("plain", action, 2, rng(), dtype=torch.float64)
    points = torch.randn(2, 5, 4, generator=rng(), dtype=torch.float64)
    averaged = Averaged(network, action)
    by_hand = torch.stack([network(points @ m.mT) for m in group_matrices(action)]).mean(0)
    assert torch.allclose(averaged(points), by_hand)
    assert torch.allclose(Averaged(averaged, action)(points), averaged(points))


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


def test_a_stack_is_its_networks_side_by_side() -> None:
    networks = [make_generator(kind, planes(1), 2, rng(), dtype=torch.float64) for kind in GENERATORS]
    noise = torch.randn(6, 7, networks[0].inputs, generator=rng(), dtype=torch.float64)
    apart = torch.cat([network(part) for network, part in zip(networks, noise.split(2), strict=True)])
    assert torch.allclose(Stack(networks)(noise), apart)
    assert sum(p.shape[1] for p in Stack(networks).parameters) == sum(n.per_run for n in networks)


def test_entries_of_tied_and_untied_matrices_start_alike() -> None:
    for kind in GENERATORS:
        network = make_generator(kind, planes(6), 200, rng(), dtype=torch.float64)
        for (matrix, _), inputs, gain in zip(network.layers(), (8, 32, 32), (2, 2, 1), strict=True):
            assert float(matrix.detach().var()) == pytest.approx(gain / inputs, rel=0.1)


@pytest.mark.parametrize("kind", GENERATORS)
def test_matched_width(kind: str) -> None:
    action = planes(1)
    width = matched_width(kind, action, 2, 32, 2)
    plain = make_generator("plain", action, 1, rng(), 2, 32).per_run
    ours = make_generator(kind, action, 1, rng(), 2, width).per_run
    assert plain == 8 * 32 + 32 + 32 * 32 + 32 + 2 * 32 + 2
    assert abs(ours / plain - 1) < 0.1
    assert (width > 32) == (kind != "plain")


def test_bad_input() -> None:
    action = planes(1)
    with pytest.raises(ValueError, match="kind"):
        make_generator("smart", action, 2, rng())
    with pytest.raises(ValueError, match="kind"):
        make_discriminator("equivariant", action, 2, rng())
    with pytest.raises(ValueError, match="multiple of 4"):
        make_generator("equivariant", action, 2, rng(), width=30)
    assert make_generator("plain", action, 2, rng(), width=30).per_run > 0
    for name, value in (("copies", 0), ("depth", 0), ("runs", 0)):
        with pytest.raises(ValueError, match=name):
            make_generator(**({"kind": "plain", "representation": action, "runs": 2, "rng": rng()} | {name: value}))
    with pytest.raises(ValueError, match="runs"):
        Network([(untied(2, 2), untied(2, 1))], 0, rng())
    with pytest.raises(TypeError, match="representation must be a Representation"):
        make_generator("plain", action.group, 2, rng())
    with pytest.raises(TypeError, match="rng must be a Generator"):
        make_discriminator("plain", action, 2, 0)
    with pytest.raises(ValueError, match="dtype must be a real floating-point"):
        make_discriminator("plain", action, 2, rng(), dtype=torch.int64)
    with pytest.raises(ValueError, match="source and target must be of one group"):
        equivariance_residual(lambda x: x, torch.ones(2, 3, 2), action, planar(Cyclic(8)))
    with pytest.raises(ValueError, match="outputs must be at least 1"):
        untied(0, 2)
    with pytest.raises(ValueError, match="points"):
        equivariance_residual(lambda x: x, torch.zeros(2, 3, 5), action, action)
