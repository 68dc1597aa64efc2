"""Linear networks: derivatives, the convolution theorem, equivariance of the layers, and bad input."""

import pytest
import torch
from catalogue import frobenius_21
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.implicit_bias.linear_networks import (
    Convolution,
    Dense,
    LinearNetwork,
    circular_convolution,
    diagonal,
    fully_connected,
    group_convolution,
)
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric

GROUPS = {
    str(g): g
    for g in (
        Cyclic(1),
        Cyclic(7),
        Dihedral(4),
        Symmetric(3),
        Quaternion(8),
        frobenius_21(),
        DirectProduct(Cyclic(2), Symmetric(3)),
    )
}
NETWORKS = [
    fully_connected(5, 1),
    fully_connected(5, 2, 3),
    fully_connected(4, 4, 2),
    diagonal(6, 3),
    circular_convolution(7, 3),
    group_convolution(Symmetric(3), 2),
    group_convolution(Dihedral(4), 4),
    LinearNetwork("mixed", 6, [Convolution(Symmetric(3)), Dense(6, 3), Dense(3, 2)]),
]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_derivatives_agree_with_automatic_differentiation(network: LinearNetwork) -> None:
    w, v = draw(2, network.size), draw(2, network.inputs, seed=1)

    def product(w: Tensor, v: Tensor) -> Tensor:
        return (network.predictor(w) * v).sum()

    beta, vjp = network.vjp(w)
    assert torch.equal(beta, network.predictor(w))
    vmap, func = torch.func.vmap, torch.func
    assert torch.allclose(vjp(v), vmap(func.grad(product))(w, v), atol=1e-12)
    assert torch.allclose(network.jacobian(w), vmap(func.jacrev(network.predictor))(w), atol=1e-12)
    assert torch.allclose(network.hessian(w, v), vmap(func.hessian(product))(w, v), atol=1e-12)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_predictors_are_homogeneous_and_linear_in_every_layer(network: LinearNetwork) -> None:
    w = draw(network.size)
    beta, L = network.predictor(w), network.depth
    assert torch.allclose(network.predictor(1.7 * w), 1.7**L * beta)
    assert torch.allclose(network.jacobian(w) @ w, L * beta)  # Euler
    for k, size in enumerate(network.sizes):
        start = sum(network.sizes[:k])
        moved, other = w.clone(), w.clone()
        moved[start : start + size] = draw(size, seed=2)
        other[start : start + size] += moved[start : start + size]
        assert torch.allclose(network.predictor(other), beta + network.predictor(moved))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_predictor_is_the_network_as_one_vector(network: LinearNetwork) -> None:
    w, x = draw(network.size), draw(3, network.inputs, seed=1)
    parts, out = w.split(network.sizes), x
    for layer, part in zip(network.hidden, parts):
        out = out @ layer.matrix(part).mT
    assert torch.allclose(out @ parts[-1], x @ network.predictor(w))


@given(st.sampled_from(sorted(GROUPS)), st.integers(1, 4), st.integers(0, 100))
def test_convolution_theorem(name: str, depth: int, seed: int) -> None:
    group = GROUPS[name]
    network, fourier = group_convolution(group, depth), GroupFourier(group)
    w = draw(depth, group.order, seed=seed)
    blocks = fourier.forward(w[-1])
    for part in reversed(w[:-1]):
        blocks = [b @ c.mH for b, c in zip(blocks, fourier.forward(part))]
    found = fourier.forward(network.predictor(w.flatten()))
    assert all(torch.allclose(b, c, atol=1e-10) for b, c in zip(blocks, found))


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_layers_convolve_and_commute_with_left_translations(name: str) -> None:
    group, (a, w) = GROUPS[name], draw(2, GROUPS[name].order)
    layer, g = Convolution(group), group.elements()
    quotient = group.index(group.multiply(g[:, None], group.inverse(g)[None]))
    out = layer.matrix(w) @ a
    assert torch.allclose(out, a[quotient] @ w)
    assert torch.allclose(layer.forward(a) @ w, out)
    assert torch.allclose(layer.backward(a) @ w, layer.matrix(w).mT @ a)
    for t in group.generators():
        moved = group.index(group.multiply(t, g))
        assert torch.allclose(layer.matrix(w) @ a[moved], out[moved])


def test_convolution_over_another_group_does_not_commute() -> None:
    group: FiniteGroup = Dihedral(4)
    a, w = draw(2, 8)
    plain, t = Convolution(Cyclic(8)).matrix(w), group.generators()[1]
    moved = group.index(group.multiply(t, group.elements()))
    assert float((plain @ a[moved] - (plain @ a)[moved]).abs().max()) > 0.1


def test_closed_forms_of_the_classical_networks() -> None:
    w = draw(3, 5)
    assert torch.allclose(diagonal(5, 3).predictor(w.flatten()), w.prod(0))
    transform = torch.fft.fft(w)
    wanted = torch.fft.ifft(transform[2] * transform[1].conj() * transform[0].conj()).real
    assert torch.allclose(circular_convolution(5, 3).predictor(w.flatten()), wanted)
    dense, (a, b, c) = fully_connected(4, 3, 2), (draw(2, 4), draw(2, 2, seed=1), draw(2, seed=2))
    w = torch.cat([a.flatten(), b.flatten(), c])
    assert torch.allclose(dense.predictor(w), a.mT @ b.mT @ c)
    assert torch.equal(fully_connected(4, 1).predictor(c.repeat(2)), c.repeat(2))


@pytest.mark.parametrize("network", NETWORKS[1:], ids=str)
def test_starts_keep_the_size_of_inputs(network: LinearNetwork) -> None:
    w = network.start(20000, torch.Generator().manual_seed(0), scale=1.0)
    x = torch.ones(network.inputs, dtype=torch.float64)
    for layer, part in zip(network.hidden, w.split(network.sizes, dim=-1)):
        out = layer.matrix(part) @ torch.ones(layer.inputs, dtype=torch.float64)
        assert float(out.square().mean()) == pytest.approx(1, rel=0.1)
    assert float((network.predictor(w) @ x).square().mean()) == pytest.approx(1, rel=0.4)
    assert torch.allclose(network.start(3, torch.Generator().manual_seed(0), 0.1), 0.1 * network.start(
        3, torch.Generator().manual_seed(0)))  # fmt: skip


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="up to 2048"):
        group_convolution(Symmetric(7), 2)
