"""M2, M3, M4: both sides of every identity, the infima by other routes, and the price of strong invariance."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from torch import Tensor

from lib.experiments import mean_field_optima as optima
from lib.experiments import mean_field_theorems as identities
from lib.symmetry.actions import natural, pixels, planar, regular, trivial
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, Symmetric
from lib.training.mean_field import Layer, project, risk, symmetrise

CASES = identities.cases()
SQUARE = identities.LOSSES["half square"]
names = pytest.mark.parametrize("name", CASES)
seeds = st.integers(0, 2**31)


def problem(name: str, seed: int, laws: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    unit, generator = CASES[name].unit, torch.Generator().manual_seed(seed)
    z = identities.randn(generator, laws, 5, unit.parameters.dim)
    return z, identities.randn(generator, 7, unit.inputs.dim), identities.randn(generator, 7, unit.outputs.dim)


# --- M2 ---


@names
def test_both_sides_agree(name: str) -> None:
    for seed in range(3):
        assert max(identities.check_identities(CASES[name].unit, seed).errors) < 1e-12


@names
def test_laws_moved_by_another_action_do_not_agree(name: str) -> None:
    for seed in range(3):
        assert min(identities.check_identities(CASES[name].unit, seed, CASES[name].wrong).errors) > 1e-4


@names
def test_wrong_actions_are_actions_of_the_group(name: str) -> None:
    group, wrong = CASES[name].unit.group, CASES[name].wrong
    g, h = group.elements()[:, None], group.elements()[None]
    product = wrong.matrix(group.multiply(g, h))
    assert torch.allclose(wrong.matrix(group.elements())[:, None] @ wrong.matrix(group.elements()), product)
    assert not torch.allclose(wrong.matrix(group.elements()), CASES[name].unit.on_parameters)


@names
def test_risks_agree_with_the_training_code(name: str) -> None:
    unit, (z, x, y) = CASES[name].unit, problem(name, 4)
    assert torch.allclose(identities.mean_loss(unit, z, x, y, SQUARE), risk(unit, "vanilla", z, x, y))
    assert torch.allclose(identities.augmented_loss(unit, z, x, y, SQUARE), risk(unit, "DA", z, x, y))
    assert torch.allclose(identities.averaged_loss(unit, z, x, y, SQUARE), risk(unit, "FA", z, x, y))
    tied = identities.mean_loss(unit, project(z, unit.parameters), x, y, SQUARE)
    assert torch.allclose(tied, risk(unit, "EA", z, x, y))


@given(st.sampled_from(list(CASES)), seeds, st.sampled_from(list(identities.LOSSES)))
def test_symmetric_risks_are_invariant_and_ordered(name: str, seed: int, loss_name: str) -> None:
    """No group element changes R^DA or R^FA; by Jensen's inequality the second is never the larger."""
    unit, (z, x, y), loss = CASES[name].unit, problem(name, seed), identities.LOSSES[loss_name]
    g = seed % unit.group.order
    moved = z @ unit.on_parameters[g].mT
    for symmetric in (identities.augmented_loss, identities.averaged_loss):
        assert torch.allclose(symmetric(unit, moved, x, y, loss), symmetric(unit, z, x, y, loss), rtol=1e-12)
    augmented, averaged = (f(unit, z, x, y, loss) for f in (identities.augmented_loss, identities.averaged_loss))
    assert bool((averaged <= augmented + 1e-14).all())


def test_a_loss_that_prefers_one_output_breaks_the_identity() -> None:
    """Q_G Φ_μ = Φ_{μ^G} needs no loss; the identity for R^DA needs an invariant one."""
    unit = CASES["C2, sigmoid(zx) on pairs"].unit
    z, x, y = problem("C2, sigmoid(zx) on pairs", 1)

    def uneven(r: Tensor) -> Tensor:
        return (r.square() * torch.tensor([1.0, 3.0]).double()).sum(-1)

    moved = torch.stack([identities.mean_loss(unit, z @ m.mT, x, y, uneven) for m in unit.on_parameters]).mean(0)
    assert float((identities.augmented_loss(unit, z, x, y, uneven) - moved).abs().min()) > 1e-4
    free = identities.mean_loss(unit, symmetrise(z, unit.parameters), x, y, uneven)
    assert torch.allclose(identities.averaged_loss(unit, z, x, y, uneven), free, rtol=1e-13)


# --- M3 ---


@names
@pytest.mark.parametrize("equivariant", [False, True])
def test_three_infima_are_one(name: str, equivariant: bool) -> None:
    found = optima.smallest_risks(optima.random_problem(CASES[name].unit, 5, equivariant=equivariant))
    assert max(found.differences) < 1e-9
    assert found.uncertainty < 1e-9
    assert found.free <= found.weakly_invariant + 1e-9 <= found.strongly_invariant + 2e-9
    if equivariant:
        assert found.free == pytest.approx(found.weakly_invariant, abs=1e-9)
    else:
        assert found.free < found.weakly_invariant - 1e-3


@names
def test_each_assumption_is_needed(name: str) -> None:
    for seed in range(3):
        opened = optima.smallest_risks(optima.random_problem(CASES[name].unit, seed, closed=False))
        assert max(opened.differences[:2]) > 1e-5
        uneven = optima.smallest_risks(optima.random_problem(CASES[name].unit, seed, invariant=False))
        assert max(uneven.differences[:2]) < 1e-9  # Theorem 2 asks nothing of the data
        assert uneven.differences[2] > 1e-5


@given(seeds)
def test_least_squares_agrees_with_another_solver(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features, y = identities.randn(generator, 6, 4, 2), identities.randn(generator, 6, 2)
    weights = torch.rand(6, generator=generator, dtype=torch.float64) + 0.1
    value, p, gap = optima.least_squares(features, y, weights)

    def objective(q: list[float]) -> float:
        model = torch.einsum("m,bmc->bc", torch.as_tensor(q, dtype=torch.float64), features)
        return float(weights @ (model - y).square().sum(-1))

    other = minimize(
        objective, [0.25] * 4, bounds=[(0, 1)] * 4, constraints={"type": "eq", "fun": lambda q: sum(q) - 1}, tol=1e-12
    )
    assert value == pytest.approx(objective(p.tolist()), rel=1e-9)
    assert value == pytest.approx(other.fun, abs=1e-6)
    assert 0 <= gap < 1e-8
    laws = torch.softmax(2 * identities.randn(generator, 50, 4), -1)
    assert min(objective(q.tolist()) for q in laws) >= value - gap


def test_certificate_is_honest() -> None:
    """On a segment the minimum is known: features 0 and 1, target 0.3; target 2 lies outside."""
    features = torch.tensor([[[0.0], [1.0]]], dtype=torch.float64)
    for target, best, mass in ((0.3, 0.0, 0.3), (2.0, 1.0, 1.0)):
        value, p, _ = optima.least_squares(features, torch.tensor([[target]]).double(), torch.ones(1).double())
        assert value == pytest.approx(best, abs=1e-8)
        assert float(p[1]) == pytest.approx(mass, abs=1e-4)


@names
def test_averaged_targets_are_equivariant(name: str) -> None:
    unit = CASES[name].unit
    found = optima.random_problem(unit, 3)
    order, k = unit.group.order, len(found.x) // unit.group.order
    blocks = found.averaged_mean.unflatten(0, (order, k))
    base = blocks[unit.group.index(unit.group.identity())]
    assert torch.allclose(blocks, base @ unit.on_outputs.mT, atol=1e-14)
    back = torch.einsum("gba,gkb->ka", unit.on_outputs, found.mean.unflatten(0, (order, k))) / order
    assert torch.allclose(base, back, atol=1e-14)


# --- M4 ---


def test_strong_invariance_has_a_price() -> None:
    for frequency in (1.0, 0.3, 2.0):
        found = optima.price_of_strong_invariance(frequency=frequency)
        exact, _ = quad(lambda x, w=frequency: math.exp(-x * x / 2) * (1 - math.cos(w * x)) ** 2, -12, 12, epsabs=1e-13)
        exact /= math.sqrt(2 * math.pi)
        assert found.strong == pytest.approx(found.formula, abs=1e-12)
        assert found.strong == pytest.approx(exact, abs=1e-11)
        assert found.weak < 1e-28
    assert optima.price_of_strong_invariance().formula == (1 + math.exp(-2)) / 2 - 2 * math.exp(-0.5) + 1


def test_without_a_group_there_is_no_price() -> None:
    found = optima.price_of_strong_invariance(flips=False)
    assert found.strong < 1e-10
    assert abs(found.strong - found.formula) > 0.3


REGULAR = {
    "the source's C2": natural(Symmetric(2)),
    "rotations of three": natural(Alternating(3)),
    "C5 on itself": regular(Cyclic(5)),
    "C4 on images": pixels(Cyclic(4), 2),
    "S3 on itself": regular(Symmetric(3)),
}


@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_simply_transitive_outputs_cost_nothing(name: str, activation: str) -> None:
    unit = Layer(REGULAR[name], REGULAR[name], activation)
    z = identities.randn(torch.Generator().manual_seed(1), 6, unit.parameters.dim)
    twin = optima.strong_twin(unit, symmetrise(z, unit.parameters))
    assert torch.allclose(twin @ unit.on_parameters.mT, twin.expand(unit.group.order, -1, -1), atol=1e-13)
    x = identities.randn(torch.Generator().manual_seed(2), 9, unit.inputs.dim)
    assert torch.allclose(unit.network(x, twin), unit.network(x, symmetrise(z, unit.parameters)), atol=1e-12)
    assert max(optima.twin_difference(unit, seed) for seed in range(3)) < 1e-12


def test_the_source_s_twin_is_a_circulant() -> None:
    unit = Layer(natural(Symmetric(2)), natural(Symmetric(2)))
    z = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    assert optima.strong_twin(unit, z).tolist() == [[1, 2, 2, 1]]


@pytest.mark.parametrize("equivariant", [False, True])
def test_twins_close_the_gap_of_the_source_s_setting(equivariant: bool) -> None:
    unit = CASES["C2, sigmoid(zx) on pairs"].unit
    gaps = []
    for twins in (False, True):
        found = optima.smallest_risks(optima.random_problem(unit, 1, equivariant=equivariant, twins=twins))
        gaps.append(found.strongly_invariant - found.weakly_invariant)
    assert gaps[0] > 1e-5
    assert abs(gaps[1]) < 1e-9


def test_a_price_can_belong_to_the_grid() -> None:
    bumps, images = (CASES[name].unit for name in ("S3, bumps, invariant", "C4, w tanh(a·x + b) on images"))
    ratio = {}
    for unit, seed in ((bumps, 2), (images, 0)):
        for fixed in (0, 30):
            problem = optima.random_problem(unit, seed, equivariant=True, fixed=fixed)
            added = problem.grid[len(problem.grid) - fixed :]
            assert torch.allclose(added @ unit.fixed.mT, added, atol=1e-13)
            found = optima.smallest_risks(problem)
            assert max(found.differences) < 1e-6
            ratio[unit.name, fixed] = found.strongly_invariant / found.weakly_invariant
    assert ratio["bump", 0] > 1.5
    assert ratio["bump", 30] < 1.01
    assert ratio["neuron", 30] > 1.2  # units with equal weights see the sum of the pixels only


def test_other_actions_and_other_laws_have_no_twin() -> None:
    for group in (Symmetric(3), Alternating(4)):
        unit = Layer(natural(group), natural(group))
        assert min(optima.twin_difference(unit, seed) for seed in range(3)) > 1e-4
    pairs = Layer(natural(Symmetric(2)), natural(Symmetric(2)))
    assert min(optima.twin_difference(pairs, seed, invariant=False) for seed in range(3)) > 1e-4


def test_two_inputs_that_strong_invariance_cannot_tell_apart() -> None:
    unit = Layer(natural(Symmetric(3)), natural(Symmetric(3)))
    x = torch.tensor([[0.0, 2.0, 0.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    z = identities.randn(torch.Generator().manual_seed(0), 1, 9)
    weak, strong = (unit.network(x, f(z, unit.parameters))[:, 0].diff() for f in (symmetrise, project))
    assert float(strong.abs()) < 1e-15
    assert float(weak.abs()) > 1e-2


# --- bad input ---


def test_arguments_are_checked() -> None:
    unit = CASES["C2, sigmoid(zx) on pairs"].unit
    with pytest.raises(ValueError, match="particles"):
        identities.check_identities(unit, particles=0)
    with pytest.raises(ValueError, match="points"):
        identities.check_identities(unit, points=0)
    with pytest.raises(ValueError, match="inputs"):
        optima.random_problem(unit, inputs=0)
    with pytest.raises(ValueError, match="fixed"):
        optima.random_problem(unit, fixed=-1)
    with pytest.raises(TypeError, match="particles"):
        optima.random_problem(unit, particles=2.5)
    with pytest.raises(ValueError, match="frequency"):
        optima.price_of_strong_invariance(frequency=-1.0)
    with pytest.raises(ValueError, match="count"):
        optima.normal_nodes(0)
    with pytest.raises(ValueError, match="features"):
        optima.least_squares(torch.zeros(3, 2, 1).double(), torch.zeros(4, 1).double(), torch.ones(4).double())
    plane = planar(Dihedral(4))
    with pytest.raises(TypeError, match="permutes"):
        optima.strong_twin(Layer(plane, plane, "tanh"), torch.zeros(1, 4).double())
    with pytest.raises(TypeError, match="Layer"):
        optima.strong_twin(CASES["S3, bumps, invariant"].unit, torch.zeros(1, 3).double())
    still = Layer(natural(Symmetric(2)), trivial(Symmetric(2), 2))
    with pytest.raises(ValueError, match="transitively"):
        optima.strong_twin(still, torch.zeros(1, 4).double())
