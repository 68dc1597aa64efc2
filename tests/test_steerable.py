"""Steerable networks: equivariance, what of them matters, derivatives, refusals."""

import pytest
import torch

from lib.implicit_bias.gradient_flow import Integration, train
from lib.implicit_bias.linear_networks import LinearNetwork, fully_connected
from lib.implicit_bias.steerable import SteerableLayer
from lib.symmetry.actions import natural, pixels, planar, regular, trivial, vectors
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import invariant_dimension, projection
from lib.symmetry.lie import SpecialOrthogonal
from lib.symmetry.representations import MatrixRepresentation, Representation
from tests.chapters import load

page = load("margins_and_augmentation")
Reduction, steerable_network = page.Reduction, page.steerable_network


def slanted(a: float) -> MatrixRepresentation:
    flip = torch.tensor([[1.0, a], [0.0, -1.0]], dtype=torch.float64)
    both = torch.stack([torch.eye(2, dtype=torch.float64), flip])
    return MatrixRepresentation(Cyclic(2), 2, lambda g: both[g[..., 0]], "slanted", unitary=False)


SPACES: dict[str, list[Representation]] = {
    "C4 on images": [pixels(Cyclic(4), 3), regular(Cyclic(4)), trivial(Cyclic(4), 2)],
    "D4 on images": [pixels(Dihedral(4), 3), planar(Dihedral(4)) + regular(Dihedral(4))],
    "S4 on nodes": [natural(Symmetric(4)), natural(Symmetric(4)) + natural(Symmetric(4))],
    "SO(3)": [vectors(SpecialOrthogonal(3)) + trivial(SpecialOrthogonal(3))] * 2,
}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", SPACES)
def test_layers_are_equivariant_and_isometric(name: str) -> None:
    source, target = SPACES[name][:2]
    layer = SteerableLayer(source, target)
    assert layer.size == invariant_dimension(Hom(source, target))
    w = random(3, layer.size)
    A = layer.matrix(w)
    for h in source.group.sample(5, torch.Generator().manual_seed(1)):
        assert torch.allclose(target.matrix(h) @ A, A @ source.matrix(h), atol=1e-10)
    assert torch.allclose(A.square().sum((1, 2)), w.square().sum(1))  # orthonormal: lengths agree


@pytest.mark.parametrize("name", SPACES)
def test_partial_maps_of_a_layer(name: str) -> None:
    layer = SteerableLayer(*SPACES[name][:2])
    w, a, b = random(layer.size), random(layer.inputs, seed=1), random(layer.outputs, seed=2)
    value = b @ layer.matrix(w) @ a
    assert torch.allclose(b @ layer.forward(a) @ w, value)
    assert torch.allclose(a @ layer.backward(b) @ w, value)
    batch = random(2, 3, layer.inputs, seed=3)
    assert layer.forward(batch).shape == (2, 3, layer.outputs, layer.size)
    assert torch.allclose(layer.forward(batch)[1, 2], layer.forward(batch[1, 2]))


@pytest.mark.parametrize("name", SPACES)
def test_networks_are_invariant(name: str) -> None:
    spaces = SPACES[name]
    network = steerable_network(spaces)
    assert network.depth == len(spaces) + 1
    beta = network.predictor(network.start(4, torch.Generator().manual_seed(0)))
    assert torch.allclose(projection(spaces[0])(beta), beta, atol=1e-10)
    assert float(beta.norm()) > 1e-3


@pytest.mark.parametrize("name", SPACES)
def test_only_the_invariant_parts_matter(name: str) -> None:
    """The network is the fully connected one of the multiplicities of the trivial representation, isometrically."""
    spaces = [*SPACES[name], trivial(SPACES[name][0].group, 2)]
    network = steerable_network(spaces[:-1])
    frames = [projection(V).basis() for V in spaces]
    w = network.start(1, torch.Generator().manual_seed(0))[0]
    parts = w.split(network.sizes)
    small = [Q @ layer.matrix(part) @ P.mT for layer, part, P, Q in zip(network.hidden, parts, frames, frames[1:])]
    c = parts[-1] @ frames[-1].mT
    for C in reversed(small):
        c = c @ C
    assert torch.allclose(c @ frames[0], network.predictor(w), atol=1e-12)
    v = random(network.inputs, seed=4)
    slopes = network.vjp(w)[1](v).split(network.sizes)
    for layer, slope, P, Q in zip(network.hidden, slopes, frames, frames[1:]):
        A = layer.matrix(slope)
        assert torch.allclose(Q.mT @ Q @ A @ P.mT @ P, A, atol=1e-12)  # no gradient outside the invariant blocks
        assert torch.allclose((Q @ A @ P.mT).square().sum(), slope.square().sum())


@pytest.mark.parametrize("name", SPACES)
def test_reduction_computes_the_same(name: str) -> None:
    """With the frames it splits the weights isometrically into those that matter and the rest."""
    network = steerable_network(SPACES[name])
    core = Reduction(network)
    w, x = network.start(3, torch.Generator().manual_seed(0)), random(5, network.inputs)
    small = core.network.predictor(core.parameters(w)) @ core.frames[0]
    assert torch.allclose(small, network.predictor(w), atol=1e-12)
    assert torch.allclose(core.network.predictor(core.parameters(w)) @ (x @ core.frames[0].mT).mT, small @ x.mT)
    squares = core.parameters(w).square().sum(-1) + core.rest(w).square().sum(-1)
    assert torch.allclose(squares, w.square().sum(-1))
    assert [layer.outputs for layer in core.network.hidden] == [len(B) for B in core.frames[1:]]


def side_by_side(network: LinearNetwork, seed: int) -> tuple[float, float]:
    """Train a network and its reduction from the same numbers; return how far they part, and how far the rest moves."""
    core, x = Reduction(network), random(3, network.inputs, seed=seed)
    y = torch.sign(x @ core.frames[0].mT @ random(len(core.frames[0]), seed=seed + 1))
    w, how = network.start(1, torch.Generator().manual_seed(seed))[0], Integration(cap=1e3, efolds=0.0, accuracy=1e-8)
    runs = (network, x, w), (core.network, x @ core.frames[0].mT, core.parameters(w))
    large, small = (train(net, points, y, start, how) for net, points, start in runs)
    end, other = (run.log_norm[-1].exp() * run.parameters for run in (large, small))
    parted = (core.parameters(end) - other).norm() / other.norm()
    return float(parted), float((core.rest(end) - core.rest(w)).norm())


@pytest.mark.parametrize("name", ["C4 on images", "S4 on nodes"])
def test_a_network_and_its_reduction_never_part(name: str) -> None:
    parted, drift = side_by_side(steerable_network(SPACES[name]), 0)
    assert parted < 1e-6
    assert drift < 1e-6


def test_a_basis_of_other_lengths_parts_from_the_reduction() -> None:
    V, W = SPACES["C4 on images"][0], trivial(Cyclic(4), 2)
    basis = SteerableLayer(V, W).basis
    lengths = torch.linspace(0.5, 2, len(basis), dtype=torch.float64)[:, None, None]
    assert side_by_side(LinearNetwork("scaled", V.dim, [SteerableLayer(V, W, lengths * basis)]), 0)[0] > 0.01


def test_trivial_group_gives_a_fully_connected_network() -> None:
    one = Cyclic(1)
    network, dense = steerable_network([trivial(one, 5), trivial(one, 3)], 4), fully_connected(5, 3, 3)
    assert network.sizes[0] == dense.sizes[0]
    w, v = random(network.size), random(5, seed=1)
    layers = [layer.matrix(part) for layer, part in zip(network.hidden, w.split(network.sizes))]
    assert torch.allclose(w.split(network.sizes)[-1] @ layers[1] @ layers[0], network.predictor(w))
    assert torch.allclose(network.vjp(w)[1](v), torch.func.grad(lambda u: v @ network.predictor(u))(w))
    assert torch.allclose(network.hessian(w, v), torch.func.hessian(lambda u: v @ network.predictor(u))(w))


def test_a_layer_from_an_action_that_is_not_unitary() -> None:
    V = slanted(1.0)
    layer = SteerableLayer(V, trivial(V.group, 2))
    beta = LinearNetwork("slanted", 2, [layer]).predictor(random(layer.size + 2))
    assert torch.allclose(beta[1], beta[0] / 2)  # ⟨sx, β⟩ = ⟨x, β⟩ means β_2 = a β_1 / 2


def test_given_bases() -> None:
    V = pixels(Cyclic(4), 2)
    ones = torch.ones(1, 1, 4, dtype=torch.float64)
    assert SteerableLayer(V, trivial(V.group), ones).size == 1
    with pytest.raises(ValueError, match="equivariant maps"):
        SteerableLayer(V, trivial(V.group), torch.eye(4, dtype=torch.float64)[:1, None])
    with pytest.raises(ValueError, match="basis"):
        SteerableLayer(V, trivial(V.group), ones[..., :3])
    with pytest.raises(TypeError, match="basis must be real"):
        SteerableLayer(V, trivial(V.group), ones * (1 + 0j))
    for dependent in (ones[:0], 0 * ones, torch.cat([ones, 2 * ones])):
        with pytest.raises(ValueError, match="linearly independent"):
            SteerableLayer(V, trivial(V.group), dependent)


@pytest.mark.usefixtures("as_user")
def test_unitarity_is_measured_and_demanded() -> None:
    assert steerable_network([pixels(Dihedral(4), 3)]).depth == 2
    one = trivial(SpecialOrthogonal(3))
    assert SteerableLayer(vectors(SpecialOrthogonal(3)) + one, vectors(SpecialOrthogonal(3))).size == 1
    with pytest.raises(ValueError, match=r"max .* = 5.0e-01"):  # ρρᵀ has the entry −a off the diagonal, 1 + a² on it
        steerable_network([slanted(0.5)])
    with pytest.raises(ValueError, match=r"spaces\[0\] must be unitary here, slanted has max .* = 4.0e\+00"):
        steerable_network([slanted(2.0)])
    with pytest.raises(ValueError, match="target must be unitary"):
        SteerableLayer(slanted(2.0), slanted(2.0))


def test_refused_spaces() -> None:
    with pytest.raises(ValueError, match="one group"):
        steerable_network([regular(Cyclic(4)), regular(Cyclic(3))])
    with pytest.raises(ValueError, match="has none"):
        steerable_network([planar(Cyclic(3))])
