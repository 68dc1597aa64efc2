"""Chapter *Haar projections*: its measurements, and the controls that must fail."""

import dataclasses

import numpy as np
import pytest
import torch

from lib.experiments import haar_projections as chapter
from lib.experiments import networks_under_groups as networks
from lib.symmetry.actions import natural, sign, vectors
from lib.symmetry.groups import Symmetric
from lib.symmetry.haar import OrbitMean, projection
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal
from lib.symmetry.representations import Hom, MatrixRepresentation
from lib.training.risks import SmallNetwork

EXAMPLES = chapter.examples()
NETWORKS = networks.example_networks()


@pytest.mark.parametrize("name", EXAMPLES)
def test_projection_defects(name):
    defects = chapter.projection_defects(EXAMPLES[name], seed=7)
    assert max(dataclasses.astuple(defects)) < 1e-12


def test_projection_defects_see_each_fault():
    V, oblique = chapter.oblique_average()
    tilted = chapter.projection_defects(V, pi=oblique)
    assert tilted.idempotent < 1e-12
    assert tilted.self_adjoint == pytest.approx(0.5)
    with pytest.raises(ValueError, match="must be unitary"):
        projection(V)
    W = natural(Symmetric(4))
    half = chapter.projection_defects(W, pi=torch.eye(4).double() / 2)
    assert half.idempotent == pytest.approx(0.25)
    assert half.range > 0.1


@pytest.mark.parametrize("grid", [4, 6, 10])
def test_dimensions(grid):
    for row in chapter.dimension_table(grid):
        assert row.stated == row.characters == row.rank
    assert min(chapter.wrong_dimensions(grid).values()) > 0


def test_motions_are_counted_by_burnside():
    for n in (4, 6, 8, 12):
        burnside = (n**2 + 2 * 2 + 4) // 4
        assert chapter._stated_motions(n) == burnside


@pytest.mark.parametrize("name", EXAMPLES)
def test_routes_agree(name):
    found = chapter.routes(name, EXAMPLES[name])
    assert len(found) >= 2
    assert max(chapter.route_disagreement(found, EXAMPLES[name], seed=5).values()) < 1e-10
    assert min(chapter.wrong_routes(seed=5)) > 1e-3


def test_five_routes_meet_on_one_example():
    assert len(chapter.routes("images, shifts and turns", EXAMPLES["images, shifts and turns"])) == 5


def test_orbit_work():
    small, large = (OrbitMean(chapter.young_subgroup(k)) for k in (3, 10))
    generators = [p.representation.permutation(p.representation.group.generators()) for p in (small, large)]
    assert generators[0].numel() == generators[1].numel() == 2 * 10**4
    assert large.representation.group.order == 3_628_800
    assert large.rank == 15 < small.rank


@pytest.mark.parametrize("name", NETWORKS)
def test_layer_identity(name):
    holds = networks.layer_identity(NETWORKS[name], seed=3)
    assert max(holds.layers, holds.augmented_risk) < 1e-12
    uneven = SmallNetwork(NETWORKS[name].spaces, networks.uneven_tanh)
    fails = networks.layer_identity(uneven, seed=3)
    assert min(fails.layers, fails.augmented_risk) > 1e-6


@pytest.mark.parametrize("name", NETWORKS)
def test_projected_layers_make_an_equivariant_network(name):
    net, generator = NETWORKS[name], torch.Generator().manual_seed(0)
    A = projection(net.layers)(networks.random_layers(net, generator))
    x = torch.randn(4, net.spaces[0].dim, generator=generator, dtype=torch.float64)
    group = net.layers.group
    g = group.unsqueeze(group.sample(6, generator))
    left = net(A, net.spaces[0].apply(g, x))
    torch.testing.assert_close(left, net.spaces[-1].apply(g, net(A, x)).expand_as(left))


@pytest.mark.parametrize("network", networks.hessian_networks(), ids=lambda n: n.layers.group.name)
def test_hessians_split(network):
    check = networks.hessian_check(network, seed=4)
    assert max(check.off_diagonal_block, check.projection) < 1e-12
    assert min(check.nominal_block, check.nominal_difference) > 1e-3


def test_biases():
    for V, W in networks.affine_examples():
        assert networks.affine_defect(V, W, seed=0) < 1e-12
    V = natural(Symmetric(5))
    assert networks.affine_defect(V, V * V, 0, sign(V.group)) > 1e-3


def test_rotations_of_space_have_no_equivariant_bias():
    assert projection(vectors(SpecialOrthogonal(3))).rank == 0


def test_linear_digits_is_invariant_after_projection():
    result = networks.linear_digits(seed=1)
    assert len(set(result.projected)) == len(set(result.trained_inside)) == 1
    assert result.free[0] > 0.9 > result.trained_inside[0] > result.projected[0]


def test_the_true_symmetry_helps_and_the_false_one_costs():
    errors = networks.denoising_errors([40, 5000], seed=11)
    free, right, wrong = errors.values()
    assert right[0] < 0.8 * free[0]
    assert wrong[1] > 1.1 * free[1]
    np.testing.assert_allclose(right[1], free[1], rtol=0.03)


def test_random_walk_is_lazy_enough_for_the_determinant():
    O3 = Orthogonal(3)
    determinant = MatrixRepresentation(O3, 1, lambda g: torch.linalg.det(g)[..., None, None], "det")
    for seed in range(100):
        assert chapter.RandomWalk(determinant, elements=1, seed=seed).matrix().abs().max() < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_wrong_averages_show_their_faults(seed):
    wrong = chapter.wrong_averages(seed)
    assert wrong["three turns"].commutes > 0.1
    assert wrong["three turns"].idempotent > 0.1
    assert wrong["a subgroup"].idempotent == wrong["a subgroup"].self_adjoint == 0
    assert min(wrong["a subgroup"].commutes, wrong["a subgroup"].range) > 0.1
    assert wrong["shears"].idempotent == 0
    assert wrong["shears"].self_adjoint > 0.1


def test_random_walk_is_independent_of_its_seed():
    H = EXAMPLES["tensors, O(3)"]
    A = torch.randn(H.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(chapter.RandomWalk(H, seed=1)(A), chapter.RandomWalk(H, seed=2)(A))
    assert isinstance(H, Hom)
