"""What the page *Mean-field optima* defines: both sides of identities, infima by another solver, prices, views."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize
from torch import Tensor

from lib.mean_field.particles import project, risk, symmetrise
from lib.mean_field.units import Layer
from lib.symmetry.actions import natural, regular
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, Symmetric
from lib.symmetry.own_groups import named
from tests.chapters import load

UNITS = range(6)
GROUPS = ("C3", "S3", "D4", "Q8")


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("mean_field_optima", seed=11)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit_of(page: SimpleNamespace, number: int, group: str = "C3") -> tuple[object, Tensor]:
    unit, other = list(page.cases(named(group)).values())[number]
    return unit, other.matrix(unit.group.elements())


# --- M2 ---


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("number", UNITS)
def test_both_sides_agree(page: SimpleNamespace, group: str, number: int) -> None:
    unit, wrong = unit_of(page, number, group)
    for seed in range(3):
        assert page.identity_errors(unit, unit.on_parameters, seed).max() < 1e-13
        assert page.identity_errors(unit, wrong, seed)[:3].min() > 1e-6


@pytest.mark.parametrize("number", UNITS)
def test_wrong_actions_are_actions_of_the_group(page: SimpleNamespace, number: int) -> None:
    unit, wrong = unit_of(page, number, "S3")
    elements = unit.group.elements()
    table = unit.group.index(unit.group.multiply(elements[:, None], elements[None]))
    assert torch.allclose(wrong[table], wrong[:, None] @ wrong[None], atol=1e-12)
    assert not torch.allclose(wrong, unit.on_parameters)


@pytest.mark.parametrize("number", UNITS)
def test_plain_risks_agree_with_the_library(page: SimpleNamespace, number: int) -> None:
    unit, _ = unit_of(page, number, "D3")
    dims = [r.dim for r in (unit.parameters, unit.inputs, unit.outputs)]
    z, x, y = randn(1, 3, 5, dims[0]), randn(2, 7, dims[1]), randn(3, 7, dims[2])
    plain = {"vanilla": page.free, "DA": page.augmented, "FA": page.averaged, "EA": page.tied}
    for name, function in plain.items():
        torch.testing.assert_close(function(unit, z, x, y, page.half_square), risk(unit, name, z, x, y))
    M = unit.on_parameters
    torch.testing.assert_close(page.symmetrised(M, z), symmetrise(z, unit.parameters))
    torch.testing.assert_close(page.projected(M, z), project(z, unit.parameters))
    basis = page.fixed_basis(M)
    torch.testing.assert_close(basis.mT @ basis, M.mean(0), atol=1e-12, rtol=0)
    for loss in (page.half_square, page.huber):  # Jensen's inequality
        gap = page.augmented(unit, z, x, y, loss) - page.averaged(unit, z, x, y, loss)
        assert gap.min() > -1e-14


def test_exercises(page: SimpleNamespace) -> None:
    triples = Layer(natural(Symmetric(3)), natural(Symmetric(3)))
    for seed in range(20, 25):
        lost, kept = page.two_gaps(triples, seed, page.favourite)
        assert lost > 1e-5
        assert kept < 1e-13
        assert max(page.two_gaps(triples, seed, page.half_square)) < 1e-13
        strong, weak = page.told_apart(triples, seed)
        assert strong < 1e-14
        assert weak > 1e-5


# --- M3 ---


@pytest.mark.parametrize("number", UNITS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_three_infima_are_one(page: SimpleNamespace, number: int, symmetric: bool) -> None:
    unit, _ = unit_of(page, number)
    found = page.infima(unit, page.problem(unit, 5, symmetric=symmetric))
    for name in ("augmented", "averaged", "corollary"):
        assert float(found[name]) == pytest.approx(float(found["weak"]), abs=1e-8)
    assert found["free"] <= found["weak"] + 1e-9 <= found["strong"] + 2e-9
    if page.simply_transitive(unit):
        assert found["strong"] == pytest.approx(found["weak"], abs=1e-8)


@pytest.mark.parametrize("number", UNITS)
def test_each_assumption_is_needed(page: SimpleNamespace, number: int) -> None:
    unit, _ = unit_of(page, number)
    whole = page.infima(unit, page.problem(unit, 3))
    opened = page.infima(unit, page.problem(unit, 3, whole=False))
    assert opened["averaged"] == pytest.approx(whole["weak"], abs=1e-8)
    assert opened["weak"] == pytest.approx(whole["strong"], abs=1e-8)
    uneven = page.infima(unit, page.problem(unit, 3, even=False))
    assert uneven["augmented"] == pytest.approx(uneven["weak"], abs=1e-8)  # the theorem asks nothing of the data
    assert abs(float(uneven["corollary"]) - uneven["weak"]) > 1e-6


def test_least_agrees_with_another_solver(page: SimpleNamespace) -> None:
    for seed in range(5):
        features, y, w = randn(seed, 6, 4, 2), randn(seed + 100, 6, 2), randn(seed + 200, 6).abs() + 0.1
        value, p, gap = page.least(features, y, w)

        def objective(q: list[float], f: Tensor = features, y: Tensor = y, w: Tensor = w) -> float:
            return float(
                w @ (torch.einsum("m,bmc->bc", torch.as_tensor(q, dtype=torch.float64), f) - y).square().sum(-1)
            )

        one = {"type": "eq", "fun": lambda q: sum(q) - 1}
        other = minimize(objective, [0.25] * 4, bounds=[(0, 1)] * 4, constraints=one, tol=1e-12)
        assert value == pytest.approx(objective(p.tolist()), rel=1e-9)
        assert value == pytest.approx(other.fun, abs=1e-6)
        assert -1e-12 <= gap < 1e-7
    segment = torch.tensor([[[0.0], [1.0]]]).double()  # features 0 and 1: a target inside, and one outside
    for target, best, mass in ((0.3, 0.0, 0.3), (2.0, 1.0, 1.0)):
        value, p, _ = page.least(segment, torch.tensor([[target]]).double(), torch.ones(1).double())
        assert value == pytest.approx(best, abs=1e-8)
        assert float(p[1]) == pytest.approx(mass, abs=1e-4)


@pytest.mark.parametrize("number", UNITS)
def test_averaged_targets_are_equivariant(page: SimpleNamespace, number: int) -> None:
    unit, _ = unit_of(page, number, "S3")
    f = randn(8, 6 * unit.group.order, unit.outputs.dim)
    blocks = page.average_targets(unit, f).unflatten(0, (unit.group.order, 6))
    identity = int(unit.group.index(unit.group.identity()))
    assert torch.allclose(blocks, blocks[identity] @ unit.on_outputs.mT, atol=1e-13)
    again = page.average_targets(unit, blocks.flatten(0, 1))
    assert torch.allclose(again, blocks.flatten(0, 1), atol=1e-13)


# --- M4 ---


def test_strong_invariance_has_a_price(page: SimpleNamespace) -> None:
    for omega in (0.3, 1.0, 2.0):
        strong, weak, formula = page.price_of_layers(omega)
        exact, _ = quad(lambda x, w=omega: math.exp(-x * x / 2) * (1 - math.cos(w * x)) ** 2, -12, 12, epsabs=1e-13)
        assert strong == pytest.approx(formula, abs=1e-12)
        assert strong == pytest.approx(exact / math.sqrt(2 * math.pi), abs=1e-11)
        assert weak < 1e-28
    strong, _, formula = page.price_of_layers(1.0, acts=False)
    assert strong < 1e-9
    assert formula > 0.3


@pytest.mark.parametrize("group", ["C2", "C5", "S3", "Q8"])
@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_simply_transitive_outputs_cost_nothing(page: SimpleNamespace, group: str, activation: str) -> None:
    rep = regular(named(group))
    unit = Layer(rep, rep, activation)
    z, x = randn(1, 6, unit.parameters.dim), randn(2, 9, unit.inputs.dim)
    twin = page.twin(unit, symmetrise(z, unit.parameters))
    assert page.simply_transitive(unit)
    assert torch.allclose(twin @ unit.on_parameters.mT, twin.expand(len(unit.on_parameters), -1, -1), atol=1e-13)
    assert torch.allclose(page.network(unit, twin, x), page.network(unit, symmetrise(z, unit.parameters), x))
    assert max(page.twin_differences(unit, 3)) < 1e-12


def test_other_actions_and_other_laws_have_no_twin(page: SimpleNamespace) -> None:
    for group in (Symmetric(3), Alternating(4)):
        unit = Layer(natural(group), natural(group))
        assert not page.simply_transitive(unit)
        assert min(page.twin_differences(unit, 1)[:4]) > 1e-6
    pairs = Layer(natural(Symmetric(2)), natural(Symmetric(2)))
    assert page.twin(pairs, torch.tensor([[1.0, 2.0, 3.0, 4.0]]).double()).tolist() == [[1, 2, 2, 1]]
    assert min(page.twin_differences(pairs, 1, invariant=False)[:4]) > 1e-6


# --- X7 ---


@pytest.mark.parametrize("group", [Cyclic(2), Cyclic(4), Dihedral(4)])
def test_universal_fixed_units_cost_nothing(page: SimpleNamespace, group: object) -> None:
    """Of a plane that the group turns: fixed channels and orbits of neurons close the gap, fixed neurons do not."""
    left = page.gaps_of(group, 77, [8, 64, 192])
    assert left[:, [0, 2]].diff(dim=0).max() < 0
    assert left[-1, [0, 2]].max() < 2e-3
    mean, square = math.exp(-2) * math.cos(1), (1 + math.exp(-8) * math.cos(2)) / 2
    assert left[:, 1].tolist() == pytest.approx([1 - mean**2 / square] * 3, abs=1e-9)


def test_a_group_that_leaves_the_plane_as_it_is_has_universal_neurons(page: SimpleNamespace) -> None:
    left = page.gaps_of(Cyclic(1), 5, [192])[0]
    assert left[1] == pytest.approx(float(left[0]), rel=1e-6)
    assert left[1] < 2e-3


def test_shares_are_those_of_least_squares(page: SimpleNamespace) -> None:
    H, f, w = randn(1, 30, 4), randn(2, 30), torch.rand(30, generator=torch.Generator().manual_seed(3)).double()
    best = np.linalg.solve((H.T * w @ H).numpy(), (H.T * w @ f).numpy())
    rest = float(w @ (H @ torch.tensor(best) - f).square()) / float(w @ f.square())
    assert page.share_left(H, f, w) == pytest.approx(rest, rel=1e-9)
    assert page.share_left(torch.cat([H, f[:, None]], 1), f, w) < 1e-25


# --- M10 ---


@pytest.fixture(scope="module", params=["C4", "D4", "S3"])
def data(page: SimpleNamespace, request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y, A = page.labelled(named(request.param), 4)
    moved = torch.einsum("gij,nj->gni", A, x)
    return A, moved[:, :12], y[:12], moved[:, 12:40]


def test_data_and_unit(page: SimpleNamespace) -> None:
    x, y, A = page.labelled(Cyclic(4), 0)
    moved = torch.einsum("gij,nj->gni", A, x)
    assert torch.equal(x.unflatten(-1, (8, 8)).rot90(1, (-2, -1)).flatten(-2), moved[1])
    for found in (y, page.labelled(Dihedral(4), 0)[1], page.labelled(Symmetric(3), 0)[1]):
        assert set(found.tolist()) == {-1.0, 1.0}
    z = page.start(A, 5, [7])
    by_hand = torch.stack([u[-1] * torch.tanh(moved @ u[:-1]) for u in z[0, 0]]).mean(0)
    assert torch.allclose(page.outputs(z, moved)[0, 0], by_hand)
    every = page.outputs(z, moved)[0]  # (members, |G|, n): member g at the input moved by g
    for g in range(1, 4):
        assert torch.allclose(every[g, g], every[0, 0])


def test_the_views_agree(page: SimpleNamespace, data: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    A, x, y, probe = data
    z = page.start(A, 3, [20, 21])
    views = page.five_views(z, x, y, probe, 0.1, 30)
    for members in page.FAMILIES.values():
        assert page.disagreement(views, members).max() < 1e-12
    assert page.disagreement(views, list(views)).amax(0).min() > 1e-4  # together and apart are different trainings
    for name, view in views.items():
        defect = (view - view.mean(2, keepdim=True)).abs().amax((1, 2, 3))
        assert defect.max() < 1e-12 if name in ("particles", "ensemble", "ensemble apart") else defect.min() > 1e-3
    stray = z.clone()
    stray[:, -1] = page.start(A, 3, [30, 31])[:, 0]
    mask = torch.ones(x.shape[-1]).double()
    mask[: len(mask) // 4] = 0.0
    broken = [
        page.five_views(z, x[: len(x) // 2], y, probe, 0.1, 30),
        page.five_views(z, x * mask, y, probe * mask, 0.1, 30),
        page.five_views(stray, x, y, probe, 0.1, 30),
        page.five_views(z, x, y, probe, 0.1, 30, alone=1.01),
    ]
    for some in broken:
        for members in page.FAMILIES.values():
            assert page.disagreement(some, members).amax(0).min() > 1e-6


def test_a_step_is_the_mean_field_velocity(page: SimpleNamespace, data: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """One step of a unit is −h E (f − y) ∇σ(x, z), however many units share the work."""
    A, moved, y, probe = data
    z = page.start(A, 3, [5])[:, :1]
    u, x = z[0, 0], moved.flatten(0, 1)
    residual = (page.outputs(z, moved)[0, 0] - y).flatten()
    hidden = torch.tanh(u[:, :-1] @ x.mT)
    slope_c = (residual * hidden).mean(-1, keepdim=True)
    slope_a = (residual * u[:, -1:] * (1 - hidden.square())) @ x / len(x)
    stepped = (u - 0.3 * torch.cat([slope_a, slope_c], -1))[None, None]
    seen = page.train("apart", z, moved, y, probe, 0.3, 1)
    assert torch.allclose(seen[1], page.outputs(stepped, probe)[:, 0])


def test_the_gap_closes_with_the_width(page: SimpleNamespace) -> None:
    x, y, A = page.labelled(Cyclic(4), 0)
    moved = torch.einsum("gij,nj->gni", A, x)
    parts = moved[:, :12], y[:12], moved[:, 12:40]
    gaps = [page.distance_of_families(A, m, range(40, 48), parts, 0.1, 30).square().mean().sqrt() for m in (2, 8, 32)]
    slope = np.polyfit(np.log([2, 8, 32]), np.log(gaps), 1)[0]
    assert -1.6 < slope < -0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [({"group": "S5"}, "group must be one of"), ({"seeds": 1}, "seeds must be"), ({"rate": -1.0}, "rate must be")],
)
def test_bad_parameters(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("mean_field_optima", **change)
