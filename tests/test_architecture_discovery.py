"""Chapter *Architecture discovery*: the functions on its page, at other groups and seeds, and where they must fail."""

from __future__ import annotations

from functools import cache, partial
from types import SimpleNamespace

import pytest
import torch

from lib.mean_field.discovery import ERF, Growth, grow, network, pull, train_inside
from lib.symmetry.actions import natural, pixels, planar, regular
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.own_groups import named
from tests.chapters import load

ACTIONS = {
    "S2": natural(Symmetric(2)),
    "S3": natural(Symmetric(3)),
    "C4": pixels(Cyclic(4), 2),
    "D4": pixels(Dihedral(4), 2),
    "plane": planar(Cyclic(4)),
    "Q8": regular(named("Q8")),
}


@cache
def page(seed: int = 3) -> SimpleNamespace:
    return load("architecture_discovery", seed=seed, seeds=3)


def fixed(name: str) -> torch.Tensor:
    return projection(Hom(ACTIONS[name], ACTIONS[name])).matrix()


@pytest.mark.parametrize("kind", ["SI", "WI"])
@pytest.mark.parametrize("name", ACTIONS)
def test_exact_gradients_find_the_fixed_parameters(name: str, kind: str) -> None:
    action = ACTIONS[name]
    run = page().discover(action, page().exact(page().teachers(action, kind)))
    assert run.wrong == 0
    assert run.angles.max() < 5e-9
    went_on, ended_at = page().gap(run)
    assert ended_at < 1e-20 < 1e-10 < went_on


def test_teachers_are_as_equivariant_as_they_say() -> None:
    action, x = ACTIONS["C4"], torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    defect = {}
    for kind in ("SI", "WI", "free"):
        units = page().teachers(action, kind)
        moved = network(units, x @ action.matrix(action.group.generators()[0]).mT, ERF)
        defect[kind] = (moved - network(units, x, ERF) @ action.matrix(action.group.generators()[0]).mT).abs().max()
    assert max(defect["SI"], defect["WI"]) < 1e-14
    assert defect["free"] > 0.05
    strongly = page().teachers(action, "SI")
    assert torch.allclose(strongly @ fixed("C4"), strongly)
    assert strongly.norm(dim=-1).min() >= 0.3
    assert not torch.equal(page(4).teachers(action), strongly)


def test_the_swap_teachers_and_their_quadrature() -> None:
    swap = ACTIONS["S2"].matrix(torch.tensor([1, 0]))
    for count in (9, 20):
        x, w = page().gauss_hermite(count)
        assert torch.allclose((w[:, None] * x**2).sum(0), torch.full((2,), 16.0).double())
        assert torch.allclose((w[:, None] * x**4).sum(0), torch.full((2,), 3 * 4.0**4).double())
        assert {tuple(row) for row in x.flip(-1).tolist()} == {tuple(row) for row in x.tolist()}  # exactly
        for kind, small in (("SI", True), ("WI", True), ("free", False)):
            y = network(page().swap_teacher(kind)[None], x)
            defect = (network(page().swap_teacher(kind)[None], x @ swap) - y @ swap).abs().max()
            assert (defect < 1e-14) == small


def test_growth_by_hand_stops_at_the_plane_and_nowhere_without_symmetry() -> None:
    x, w = page().gauss_hermite(10)
    for kind, rule, dimension in (("SI", "mean", 2), ("WI", "leading", 2), ("free", "leading", 4)):
        y = network(page().swap_teacher(kind)[None], x)[0]
        loss = partial(page().risk, x=x, y=y, w=w)
        found = page().grow_by_hand(loss, 4, 100, 1.0, torch.Generator().manual_seed(0), rule)
        assert len(found) == dimension
        assert dimension == 4 or torch.allclose(found @ fixed("S2"), found, atol=1e-8)


def test_the_arcsine_formula_has_the_gradient_of_lib() -> None:
    z, t = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(1)).double()
    for s in (0.3, 4.0):
        slope = torch.func.grad(partial(page().population_risk, s=s))(z.view(3, 3, 3), t.view(3, 3, 3))
        assert torch.allclose(page().population_pull(z[None], t[None], s)[0], -3 * slope.flatten(1))
    assert abs(page().population_risk(t.view(3, 3, 3), t.view(3, 3, 3))) < 1e-15


def test_growth_ends_in_the_span_of_few_units() -> None:
    units = page().teachers(ACTIONS["C4"], units=2)
    run = page().discover(ACTIONS["C4"], page().exact(units))
    assert run.ends.tolist() == [2] * 3
    assert torch.allclose(units @ run.P, units, atol=1e-8)


def test_growth_finds_the_larger_symmetry_of_the_data() -> None:
    run = page().discover(ACTIONS["C4"], page().exact(page().teachers(ACTIONS["D4"])))
    assert run.wrong == 3
    assert torch.linalg.matrix_norm(run.P - fixed("D4"), ord=2).max() < 1e-8


def test_balanced_teachers_are_not_felt_at_zero_but_beside_it() -> None:
    units = page().balanced(ACTIONS["C4"])
    assert torch.allclose(units @ fixed("C4"), units)
    assert torch.linalg.matrix_rank(units).tolist() == [4] * 3  # they span E^G
    assert page().exact(units)(torch.zeros(3, 1, 16).double()).abs().max() < 1e-14
    assert page().discover(ACTIONS["C4"], page().exact(units)).ends.tolist() == [0] * 3
    start = page().first_two(4)
    assert torch.allclose(start @ start.T, torch.eye(2).double())
    assert torch.allclose(start @ fixed("D4"), start)
    freed = page().discover(ACTIONS["C4"], page().exact(units), start=start)
    assert freed.wrong == 0
    assert freed.angles.max() < 1e-8


def test_stuck_means_no_linear_part_given_what_is_known() -> None:
    """Theorem: the velocity out of F is E f σ'(u·X) X_⊥, here by plain sampling, whatever the other particles are."""
    teacher, line = page().teachers(ACTIONS["S3"])[:1], page().first_two(3)[:1]
    clouds = torch.stack([torch.tensor([[0.7], [-1.0]]) * line, torch.tensor([[0.7], [3.0]]) * line]).double()
    v = page().population_pull(clouds, teacher.expand(2, -1, -1), 4.0)[:, 0]
    rest = v - v @ line.T @ line
    assert torch.allclose(rest[0], rest[1], atol=1e-14)
    x = 4.0 * torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = 0.7 * x[:, 0] / 3**0.5
    terms = network(teacher, x, ERF)[0, :, :1] * ERF.slope(u, ERF.value(u))[:, None] * x[:, 1:]
    error = terms.std(0) / len(x) ** 0.5
    assert ((terms.mean(0) - rest[0, 1:3]).abs() < 5 * error).all()
    assert (rest[0, 1:3].abs() > 20 * error).all()


def test_a_sample_finds_nothing_and_its_images_everything() -> None:
    teacher, quick = page().swap_teacher()[None], Growth(rate=1.0, steps=100)
    sample = page().gauss(60, 2, stream=3)[0] * 4
    for x, right in ((sample, 0), (torch.cat([sample, sample.flip(-1)]), 3)):
        run = page().discover(ACTIONS["S2"], partial(pull, x=x, y=network(teacher, x)), quick)
        assert 3 - run.wrong == right
        assert right == 0 or run.angles.max() < 1e-8


def test_images_of_every_batch_restore_everything() -> None:
    action, brief = ACTIONS["S3"], Growth(rate=0.25, steps=100)
    units, maps = page().teachers(action), action.matrix(action.group.elements())
    images = page().discover(action, page().batches(units, 10, maps=maps), brief)
    assert images.wrong == 0
    assert images.angles.max() < 1e-8
    fresh = page().discover(action, page().batches(units, 60), brief)
    assert fresh.wrong == 3
    partial_images = page().discover(action, page().batches(units, 10, maps=maps[1:]), brief)
    assert partial_images.wrong == 3  # one map is missing


def test_a_tilt_is_felt_as_its_square() -> None:
    action, brief = ACTIONS["C4"], Growth(rate=0.25, steps=200)
    far = []
    for alpha in (0.0, 0.01, 0.02):
        P = page().tilted(action, alpha, torch.Generator().manual_seed(1))
        angle = torch.linalg.matrix_norm(P - fixed("C4"), ord=2).asin()
        assert torch.allclose(angle, torch.full((3,), alpha).double(), atol=1e-9)
        z = train_inside(page().exact(page().teachers(action)), P, brief, torch.Generator().manual_seed(2))
        far.append(page().leave(z, P)[0])
    assert far[0].max() < 1e-25
    assert ((far[2] / far[1] > 3.8) & (far[2] / far[1] < 4.2)).all()


def test_escape_is_optimal_transport_and_coherence_a_share() -> None:
    import ot

    z, P = page().gauss(12, 4, stream=1)[:1], torch.diag(torch.tensor([1.0, 0, 1, 0])).double()
    far, _ = page().leave(z, P)
    plan = ot.emd2([], [], ot.dist(z[0].numpy(), (z[0] @ P).numpy()))
    assert abs(float(far[0]) - plan) < 1e-12
    alike = z[:, :1].expand(1, 6, 4)
    assert torch.allclose(page().leave(alike, P)[1], torch.ones(1).double())
    assert page().leave(torch.cat([alike, -alike], 1), P)[1].max() < 1e-30


def test_verdicts_see_small_angles_and_wrong_dimensions() -> None:
    frame = torch.eye(4).double().expand(2, 4, 4).clone()
    frame[:, 0] = torch.tensor([1.0, 0, 0, 1]).double() / 2**0.5
    frame[:, 1] = torch.tensor([0, 1.0, 1, 0]).double() / 2**0.5
    frame[1, 1] += 1e-9 * torch.tensor([0, 1.0, -1, 0]).double() / 2**0.5
    for last, angles in ((2, [0.0, 1e-9]), (1, [torch.pi / 2] * 2)):
        escapes = torch.ones(4, 2).double()
        escapes[last] = 0
        run = page().verdict(ACTIONS["S2"], frame, escapes, 1e-10)
        assert run.ends.tolist() == [last] * 2
        assert torch.allclose(run.angles, torch.tensor(angles).double(), rtol=1e-6, atol=1e-15)
        assert run.wrong == (0 if last == 2 else 2)


def test_success_rates_have_exact_intervals() -> None:
    low, high = page().exact_interval(0, 144)
    assert low == 0
    assert high == pytest.approx(1 - 0.025 ** (1 / 144))


def test_noise_defeats_the_mean_rule_first() -> None:
    units = page().swap_teacher()[None].expand(12, -1, -1)
    noisy = lambda: page().batches(units, 40, sigma=page().LOGISTIC)  # noqa: E731
    good = {
        rule: page().successes(ACTIONS["S2"], noisy(), Growth(rate=1.0, steps=600, rule=rule), [1e-3], 12)[0]
        for rule in ("mean", "leading")
    }
    assert good["leading"] > good["mean"] + 3


def test_growth_of_lib_is_growth_by_hand() -> None:
    x, w = page().gauss_hermite(10)
    y = network(page().swap_teacher("WI")[None], x)
    loss = partial(page().risk, x=x, y=y[0], w=w)
    for rule in ("mean", "leading"):
        hand = page().grow_by_hand(loss, 4, 60, 1.0, torch.Generator().manual_seed(5), rule)
        growth, start = Growth(rule=rule, rate=1.0, steps=60), torch.zeros(1, 0, 4).double()
        frame, _ = grow(partial(pull, x=x, y=y, weights=w), start, growth, torch.Generator().manual_seed(5))
        assert torch.allclose(frame[0, : len(hand)].abs(), hand.abs(), atol=1e-8)
