"""Units, clouds and noisy descent: identities, an independent derivative, exact symmetry, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.mean_field.descent import TRAININGS, Descent, TeacherData, streams, train
from lib.mean_field.particles import (
    SCHEMES,
    intrinsic_derivative,
    project,
    risk,
    symmetrise,
)
from lib.mean_field.units import ACTIVATIONS, Layer, Unit
from lib.symmetry.actions import natural, pixels, planar, regular, trivial
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.representations import MatrixRepresentation, TensorProduct
from tests.oracles import FixedData

SWAP = natural(Symmetric(2))
SIGN = MatrixRepresentation(Cyclic(2), 1, lambda g: (1.0 - 2.0 * g.double())[..., None], "sign")
SPACES = {
    "S2": SWAP,
    "S3": natural(Symmetric(3)),
    "C4": regular(Cyclic(4)),
    "images": pixels(Cyclic(4), 2),
    "D3": regular(Dihedral(3)),
}


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_layer(space: object, activation: str = "tanh") -> Unit:
    """W·σ(A x + b) with W: Y → Y diagonal in the hidden space, z = (w, A, b)."""
    n, f = space.dim, ACTIVATIONS[activation][0]

    def function(x: Tensor, z: Tensor) -> Tensor:
        w, a, b = z[..., :n], z[..., n : n + n * n].unflatten(-1, (n, n)), z[..., n + n * n :]
        return w * f((a @ x[..., None])[..., 0] + b)

    return Unit(function, space, space, space + TensorProduct(space, space) + space, "w·tanh(Ax + b)")


def units() -> list[Unit]:
    plane = planar(Dihedral(3))
    return [
        Layer(SWAP, SWAP, "sigmoid"),
        Layer(SPACES["images"], SPACES["images"], "relu"),
        Layer(SIGN, SIGN, "tanh"),
        Layer(SIGN, trivial(Cyclic(2)), "cos"),
        Layer(plane, plane, "identity"),
        two_layer(SPACES["S3"]),
    ]


@pytest.mark.parametrize("unit", units(), ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_derivative_is_that_of_the_risk(unit: Unit, scheme: str) -> None:
    """D_μR is N times the gradient of the risk; autograd through a risk written from its definition is the oracle."""
    z, x, y = randn(3, 4, unit.parameters.dim), randn(6, unit.inputs.dim, seed=1), randn(3, 6, unit.outputs.dim, seed=2)
    w = torch.rand(6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    w = w / w.sum()
    leaf = z.clone().requires_grad_(True)
    value = defined_risk(unit, scheme, leaf, x, y, w)
    assert torch.allclose(risk(unit, scheme, z, x, y, w), value.detach(), atol=1e-13)
    (slope,) = torch.autograd.grad(value.sum(), leaf)
    assert torch.allclose(intrinsic_derivative(unit, scheme, z, x, y, w), 4 * slope, atol=1e-12)


def defined_risk(unit: Unit, scheme: str, z: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """The risk of a scheme by its definition, element by element of the group."""

    def model(x: Tensor, z: Tensor) -> Tensor:
        return unit.function(x[:, None], z[..., None, :, :]).mean(-2)

    def loss(prediction: Tensor, y: Tensor) -> Tensor:
        return 0.5 * ((prediction - y).square().sum(-1) * w).sum(-1)

    g = unit.group.elements()
    rho_x, rho_y = unit.inputs.matrix(g), unit.outputs.matrix(g)
    if scheme == "vanilla":
        return loss(model(x, z), y)
    if scheme == "EA":
        fixed = unit.parameters.matrix(g).mean(0)
        return loss(model(x, z @ fixed.mT), y)
    moved = [(model(x @ a.mT, z), b) for a, b in zip(rho_x, rho_y, strict=True)]
    if scheme == "DA":
        return sum(loss(p, y @ b.mT) for p, b in moved) / len(moved)
    return loss(sum(p @ b for p, b in moved) / len(moved), y)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_closed_form_equals_autograd(activation: str) -> None:
    space = SPACES["S3"]
    fast = Layer(space, space, activation)
    slow = Unit(fast.function, space, space, Hom(space, space))
    z, x, y = randn(5, 9), randn(7, 3, seed=1), randn(7, 3, seed=2)
    for scheme in SCHEMES:
        one, two = (intrinsic_derivative(u, scheme, z, x, y) for u in (fast, slow))
        assert torch.allclose(one, two, atol=1e-14)


def test_seeds_share_no_stream() -> None:
    numbers = [int(g.initial_seed()) for seed in range(4) for g in streams(seed)]
    assert len(set(numbers)) == 12
    assert [g.initial_seed() for g in streams(2)] == numbers[6:9]


@given(name=st.sampled_from(sorted(SPACES)), seed=st.integers(0, 100), count=st.integers(1, 5))
def test_symmetrised_and_projected_laws(name: str, seed: int, count: int) -> None:
    unit = Layer(SPACES[name], SPACES[name])
    z, x = randn(count, unit.parameters.dim, seed=seed), randn(4, unit.inputs.dim, seed=seed + 1)
    images = symmetrise(z, unit.parameters)
    assert images.shape == (unit.group.order * count, unit.parameters.dim)
    for g in unit.group.generators():
        moved = unit.parameters.matrix(g)
        again = images @ moved.mT
        gaps = torch.cdist(again, images, compute_mode="donot_use_mm_for_euclid_dist")
        assert gaps.amin(1).max() < 1e-12  # the same set of points
        assert torch.allclose(project(z, unit.parameters) @ moved.mT, project(z, unit.parameters), atol=1e-13)
        rho_x, rho_y = unit.inputs.matrix(g), unit.outputs.matrix(g)
        symmetric = unit.network(x, images) @ rho_y.mT - unit.network(x @ rho_x.mT, images)
        assert symmetric.abs().max() < 1e-12
    assert torch.allclose(images.mean(0), project(z, unit.parameters).mean(0), atol=1e-13)


def test_network_is_the_mean_of_its_units() -> None:
    unit = two_layer(SPACES["S3"])
    z, x = randn(2, 3, 5, unit.parameters.dim), randn(4, 3)
    expected = torch.stack([unit(x, z[..., i, None, :].expand(2, 3, 4, -1)) for i in range(5)]).mean(0)
    assert torch.allclose(unit.network(x, z), expected, atol=1e-14)


@pytest.mark.parametrize(
    ("inputs", "outputs", "activation"),
    [(SIGN, SIGN, "sigmoid"), (SIGN, SIGN, "cos"), (planar(Dihedral(3)), planar(Dihedral(3)), "tanh")],
)
def test_units_that_are_not_jointly_equivariant_are_refused(inputs: object, outputs: object, activation: str) -> None:
    with pytest.raises(ValueError, match=r"jointly equivariant under .* reaches \d.*allowed 1e-09"):
        Layer(inputs, outputs, activation)


def test_the_stated_defect_is_the_measured_one() -> None:
    """For f(x, z) = z x + δ and the sign on X, Y and a trivial Z the defect is |−zx + δ + zx + δ| = 2δ."""
    trivially = trivial(Cyclic(2))
    Unit(lambda x, z: z * x, SIGN, SIGN, trivially)
    with pytest.raises(ValueError, match=r"reaches 0\.25 "):
        Unit(lambda x, z: z * x + 0.125, SIGN, SIGN, trivially)


@pytest.mark.usefixtures("as_user")
def test_wrong_actions_are_refused() -> None:
    function = Layer(SWAP, SWAP)._evaluate
    with pytest.raises(TypeError, match="inputs must be a Representation, got 3"):
        Unit(function, 3, SWAP, Hom(SWAP, SWAP))
    with pytest.raises(ValueError, match="outputs must be a representation of S2 like the inputs, got"):
        Unit(function, SWAP, SIGN, Hom(SWAP, SWAP))
    with pytest.raises(TypeError, match="not callable"):
        Unit(None, SWAP, SWAP, Hom(SWAP, SWAP))
    with pytest.raises(ValueError, match=r"function\(x, z\) must have shape \(\.\.\., 64, 2\)"):
        Unit(lambda x, z: x[..., :1], SWAP, SWAP, Hom(SWAP, SWAP))
    with pytest.raises(ValueError, match="activation must be one of"):
        Layer(SWAP, SWAP, "softmax")
    skew = MatrixRepresentation(
        Cyclic(2), 2, lambda g: torch.tensor([[[1.0, 0], [0, 1]], [[1, 1], [0, -1]]]).double()[g[..., 0]], "skew", False
    )
    with pytest.raises(ValueError, match="must be an orthogonal representation"):
        Layer(skew, skew)


def start_and_data(count: int = 6, unit: Unit | None = None) -> tuple[Unit, Tensor, TeacherData]:
    unit = unit or Layer(SWAP, SWAP)
    start = 0.3 * randn(3, 2, count, unit.parameters.dim)
    return (
        unit,
        start,
        TeacherData(unit, [randn(3, unit.parameters.dim, seed=5), randn(4, unit.parameters.dim, seed=6)]),
    )


def test_one_step_is_the_formula() -> None:
    unit, start, _ = start_and_data()
    x, y = randn(5, 2, seed=1), randn(2, 5, 2, seed=2)
    descent = Descent(rate=2.0, time=1 / 6, decay=0.1, temperature=0.0)
    for scheme in SCHEMES:
        end = train(unit, scheme, start, FixedData(x, y), descent, [0, 1, 2]).end
        force = intrinsic_derivative(unit, scheme, start, x, y)
        assert torch.allclose(end, start - 2 / 6 * (force + 0.1 * start), atol=1e-13)


def test_batching_changes_nothing() -> None:
    """A seed's result does not depend on the seeds trained beside it, nor a network's on the other networks."""
    unit, start, data = start_and_data()
    descent = Descent(time=3.0)
    whole = train(unit, "FA", start, data, descent, [4, 5, 6])
    alone = train(unit, "FA", start[1:2], data, descent, [5])
    assert torch.allclose(whole.end[1:2], alone.end, atol=1e-10)
    single = TeacherData(unit, data.teachers[1:])
    assert torch.allclose(train(unit, "FA", start[:, 1:], single, descent, [4, 5, 6]).end, whole.end[:, 1:], atol=1e-10)
    other = train(unit, "FA", start[1:2], data, descent, [7])
    assert (other.end - alone.end).abs().max() > 1e-3


def test_noise_has_the_temperature() -> None:
    """Without force, the variance grows by 2 β rate per unit of time."""
    unit = Layer(SWAP, SWAP)
    x, y = torch.zeros(1, 2).double(), torch.full((1, 1, 2), 0.5).double()  # sigmoid(0) = ½: no force
    start = torch.zeros(1, 1, 400, 4).double()
    descent = Descent(rate=3.0, time=0.5, decay=0.0, temperature=0.2)
    end = train(unit, "vanilla", start, FixedData(x, y), descent, [0]).end
    assert abs(end.square().mean() / (2 * 0.2 * 3.0 * 0.5) - 1) < 5 * (2 / 1600) ** 0.5
    fixed = train(unit, "vanilla", start, FixedData(x, y), descent, [0], projected=[True]).end
    assert torch.allclose(fixed, end @ unit.fixed, atol=1e-12)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scheme", ["DA", "FA"])
def test_unions_of_orbits_and_fixed_particles_stay(name: str, scheme: str) -> None:
    """Exact group means keep both symmetries at finite N, with noise; sampled elements and no augmentation do not."""
    unit = Layer(SPACES[name], SPACES[name])
    d, order = unit.parameters.dim, unit.group.order
    data = TeacherData(unit, [randn(3, d, seed=5)], scale=1.0, batch=8)
    seeds, base = randn(1, 1, 2, d), slice(0, 2)
    descent = Descent(rate=2.0, time=4.0, temperature=1e-3)
    ends = {
        kind: train(unit, kind, symmetrise(seeds, unit.parameters), data, descent, [0], noise="images").end
        for kind in (scheme, "DA-sampled", "vanilla")
    }
    gap = {k: (symmetrise(end[..., base, :], unit.parameters) - end).abs().max() for k, end in ends.items()}
    assert gap[scheme] < 1e-11
    assert min(gap["DA-sampled"], gap["vanilla"]) > 1e-4
    assert ends[scheme].shape[2] == 2 * order
    fixed = project(seeds, unit.parameters)
    stays = train(unit, scheme, fixed, data, descent, [0], projected=[True]).end
    leaves = train(unit, "vanilla", fixed, data, descent, [0], projected=[True]).end
    assert (project(stays, unit.parameters) - stays).abs().max() < 1e-12
    assert (project(leaves, unit.parameters) - leaves).abs().max() > 1e-4


def test_sampled_augmentation_has_the_mean_of_exact_augmentation() -> None:
    unit, start, _ = start_and_data()
    x, y = randn(5, 2, seed=1), randn(2, 5, 2, seed=2)
    descent = Descent(rate=6.0, time=1 / 6, decay=0.0, temperature=0.0)
    many = start[:1].expand(3000, -1, -1, -1)
    sampled = train(unit, "DA-sampled", many, FixedData(x, y), descent, range(3000)).end
    exact = train(unit, "DA", start[:1], FixedData(x, y), descent, [0]).end
    error = sampled.std(0) / 3000**0.5
    assert ((sampled.mean(0) - exact[0]).abs() / error).max() < 5
    assert error.max() > 1e-5


def test_snapshots_lie_on_the_way() -> None:
    unit, start, data = start_and_data()
    way = train(unit, "DA", start, data, Descent(time=4.0), [0, 1, 2], frames=4)
    assert way.times.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(way.particles[0], start)
    shorter = train(unit, "DA", start, data, Descent(time=2.0), [0, 1, 2])
    assert torch.allclose(way.particles[2], shorter.end, atol=1e-12)


def test_single_precision_follows_double() -> None:
    unit, start, data = start_and_data()
    assert train(unit, "EA", start.float(), data, Descent(time=0.5), [0, 1, 2]).end.dtype == torch.float32


@pytest.mark.filterwarnings("ignore")
def test_diverging_runs_are_refused() -> None:
    _, start, _ = start_and_data()
    linear = Layer(SWAP, SWAP, "identity")
    wild = TeacherData(linear, [randn(3, 4), randn(3, 4)])
    with pytest.raises(ArithmeticError, match="diverged"):
        train(linear, "vanilla", start, wild, Descent(rate=1e6, time=20.0), [0, 1, 2])


def test_all_trainings_run() -> None:
    unit, start, data = start_and_data()
    ends = {scheme: train(unit, scheme, start, data, Descent(time=1.0), [0, 1, 2]).end for scheme in TRAININGS}
    assert len({round(float(end.sum()), 9) for end in ends.values()}) == len(TRAININGS)
