"""Chapter *Architecture discovery*: claim M9, when growth stops early, what noise does, and controls that must fail."""

import math
from dataclasses import replace

import pytest
import torch

from lib.experiments import architecture_discovery as chapter
from lib.symmetry.haar import projection
from lib.symmetry.representations import Hom
from lib.training.discovery import (
    ERF,
    LOGISTIC,
    Growth,
    coherence,
    escaped,
    hermite_nodes,
    outputs,
    population_velocity,
    velocity,
)

ACTIONS = chapter.actions()
SMALL = [name for name, action in ACTIONS.items() if action.dim <= 4]
QUICK = Growth(rate=1.0, steps=100)


# --- M9 ---


@pytest.mark.parametrize("kind", ["SI", "WI"])
@pytest.mark.parametrize("rule", ["mean", "leading"])
@pytest.mark.parametrize("name", SMALL)
def test_exact_gradients_find_the_fixed_parameters(name: str, rule: str, kind: str) -> None:
    action = ACTIONS[name]
    run = chapter.grow(action, chapter.draw_teachers(action, kind, 5, seed=3), Growth(rule=rule))
    assert run.wrong == 0
    assert run.angles.max() < 1e-8
    assert run.last_escape < 1e-20 < 1e-10 < run.smallest_escape


@pytest.mark.parametrize(
    ("name", "dimension"),
    list(zip(ACTIONS, [2, 2, 4, 3, 2, 6, 8], strict=True)),
)
def test_dimensions_from_characters(name: str, dimension: int) -> None:
    run = chapter.grow(ACTIONS[name], chapter.draw_teachers(ACTIONS[name], "SI", 1), Growth(steps=1))
    assert run.dimension == dimension == round(float(projection(Hom(*[ACTIONS[name]] * 2)).matrix().trace()))


@pytest.mark.parametrize("rule", ["mean", "leading"])
def test_the_source_setting(rule: str) -> None:
    for kind in ("SI", "WI"):
        run = chapter.source_exact(kind, replace(QUICK, rule=rule), 2, nodes=10)
        assert run.wrong == 0
        assert run.angles.max() < 1e-8
    free = chapter.source_exact("free", replace(QUICK, rule=rule), 2, nodes=10)
    assert free.wrong == 2
    assert free.angles.min() > 1.57


def test_large_spaces_with_the_leading_rule() -> None:
    action = ACTIONS["D4 on R^8"]
    run = chapter.grow(action, chapter.draw_teachers(action, "SI", 2), Growth())
    assert run.wrong == 0
    assert run.angles.max() < 1e-8


def test_the_quadrature_of_the_source_setting() -> None:
    """Twenty nodes are good to a few thousandths, and the line of round one is where the first round leads."""
    teacher = chapter.source_teacher("SI")[None]
    z = 0.25 * torch.randn(1, 20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    coarse, fine = (
        velocity(z, x, outputs(teacher, x, LOGISTIC), LOGISTIC, w)
        for x, w in (hermite_nodes(2, nodes, chapter.SCALE) for nodes in (20, 120))
    )
    assert 1e-4 < (coarse - fine).norm() / fine.norm() < 3e-3
    _, end = chapter.source_round(0, Growth(rate=1.0, steps=1000))
    P, _ = chapter.source_round(1, Growth(steps=1))
    assert escaped(end, P) < 1e-5 * end.square().sum(-1).mean()


# --- controls ---


def test_a_sample_finds_nothing_and_its_images_everything() -> None:
    sampled, doubled = (chapter.source_sample("SI", QUICK, 2, 60, images) for images in (False, True))
    assert sampled.wrong == 2
    assert doubled.wrong == 0
    assert doubled.angles.max() < 1e-8


def test_the_error_is_proportional_to_the_part_without_symmetry() -> None:
    action = ACTIONS["C4 on R^4"]
    none, small, large = chapter.perturbed(action, [0.0, 1e-10, 1e-9], Growth(), 3)
    assert none.angles.max() < 1e-11
    assert torch.allclose(large.angles / small.angles, torch.full((3,), 10.0).double(), rtol=0.05)
    assert chapter.perturbed(action, [1e-2], Growth(), 3)[0].wrong == 3


def test_another_group_is_told_apart() -> None:
    action, larger = ACTIONS["C4 on R^4"], ACTIONS["D4 on R^4"]
    run = chapter.grow(action, chapter.draw_teachers(action, "SI", 2), Growth())
    assert (run.discovery.angles(projection(Hom(larger, larger)).matrix()) > 1.57).all()


# --- when it stops early ---


def test_growth_ends_in_the_span_of_few_units() -> None:
    action = ACTIONS["C4 on R^4"]
    teachers = chapter.draw_teachers(action, "SI", 3, units=2)
    run = chapter.grow(action, teachers, Growth())
    assert (run.discovery.dimensions == 2).all()
    inside = teachers @ run.discovery.projection
    assert torch.allclose(inside, teachers, atol=1e-8)


def test_growth_finds_the_larger_symmetry_of_the_data() -> None:
    action, larger = ACTIONS["C4 on R^4"], ACTIONS["D4 on R^4"]
    run = chapter.grow(action, chapter.draw_teachers(larger, "SI", 3), Growth())
    assert run.wrong == 3
    assert run.discovery.angles(projection(Hom(larger, larger)).matrix()).max() < 1e-8


def test_balanced_teachers_are_not_felt_at_zero_but_beside_it() -> None:
    action = ACTIONS["C4 on R^4"]
    teachers = chapter.balanced_teachers(action, 4)
    Q = projection(Hom(action, action)).matrix()
    assert torch.allclose(teachers @ Q, teachers)
    assert torch.linalg.matrix_rank(teachers).tolist() == [4] * 4  # they span E^G
    at_zero = population_velocity(torch.zeros(4, 1, 16).double(), teachers, 4, chapter.SCALE)
    assert at_zero.abs().max() < 1e-14
    stuck = chapter.grow(action, teachers, Growth())
    assert (stuck.discovery.dimensions == 0).all()
    assert math.isnan(stuck.smallest_escape)
    basis = chapter.identity_and_ones(4)
    assert torch.allclose(basis @ basis.T, torch.eye(2).double())
    assert torch.allclose(basis @ Q, basis)
    freed = chapter.grow(action, teachers, Growth(), basis)
    assert freed.wrong == 0
    assert freed.angles.max() < 1e-8


def test_stuck_means_no_linear_part_given_what_is_known() -> None:
    """Theorem: the velocity out of F is E f σ'(u·X) X_⊥, here by plain sampling, whatever the other particles are."""
    action = ACTIONS["S3 on R^3"]
    teacher = chapter.draw_teachers(action, "SI", 1)
    line = chapter.identity_and_ones(3)[:1]
    clouds = torch.stack([torch.tensor([[0.7], [-1.0]]) * line, torch.tensor([[0.7], [3.0]]) * line]).double()
    v = population_velocity(clouds, teacher.expand(2, -1, -1), 3, chapter.SCALE)[:, 0]
    rest = v - v @ line.T @ line
    assert torch.allclose(rest[0], rest[1], atol=1e-14)
    x = chapter.SCALE * torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = 0.7 * x[:, 0] / 3**0.5
    terms = outputs(teacher, x, ERF)[0, :, :1] * ERF.slope(u, ERF.value(u))[:, None] * x[:, 1:]
    error = terms.std(0) / len(x) ** 0.5
    assert ((terms.mean(0) - rest[0, 1:3]).abs() < 5 * error).all()
    assert (rest[0, 1:3].abs() > 20 * error).all()


def test_mirrored_teachers_are_stuck() -> None:
    action = ACTIONS["S3 on R^3"]
    F, units = chapter.identity_and_ones(3)[:1], chapter.draw_teachers(action, "SI", 3)
    mirrored = torch.cat([units, 2 * units @ F.T @ F - units], 1)
    run = chapter.grow(action, mirrored, Growth())
    assert run.discovery.angles(F.T @ F).max() < 1e-8


# --- noise ---


def test_residuals_cancel_in_the_mean() -> None:
    P, z = chapter.source_round(1, Growth(rate=1.0, steps=600))
    assert escaped(z, P) > 1e-3
    assert coherence(z, P) < 0.05
    P, z = chapter.source_round(0, Growth(rate=1.0, steps=50))
    assert torch.allclose(coherence(z, P), torch.ones(1).double())
    P, z = chapter.source_round(2, Growth(rate=1.0, steps=50))
    assert escaped(z, P) < 1e-25


def test_the_floor_falls_with_the_batch() -> None:
    growth = Growth(rate=1.0, steps=200)
    floors = [escaped(*chapter.source_round(2, growth, batch, 20)[::-1]).mean() for batch in (5, 40)]
    assert 4 < floors[0] / floors[1] < 16


def test_noise_defeats_the_mean_rule_first() -> None:
    noisy = Growth(rate=1.0, steps=1000, threshold=1e-3)
    teachers = chapter.source_teacher("SI").expand(10, -1, -1)
    action = ACTIONS["C2 on R^2"]
    mean, leading = (
        chapter.success(chapter.grow_stochastic(action, teachers, replace(noisy, rule=rule), 20))
        for rule in ("mean", "leading")
    )
    assert mean[0] <= 2
    assert leading[0] >= mean[0] + 2


def test_a_tilt_is_felt_as_its_square() -> None:
    action = ACTIONS["S3 on R^3"]
    teachers = chapter.draw_teachers(action, "SI", 4)
    small, large, none = chapter.tilted_escapes(action, teachers, [1e-3, 1e-2, 0.0], Growth(rate=0.25, steps=100))
    assert torch.allclose(large / small, torch.full((4,), 100.0).double(), rtol=0.05)
    assert none.max() < 1e-20
    with pytest.raises(ValueError, match="angles"):
        chapter.tilted_escapes(action, teachers, [-1.0], QUICK)


def test_the_leading_rule_on_larger_groups_depends_on_the_threshold() -> None:
    action = ACTIONS["S3 on R^3"]
    endless = Growth(rate=0.25, steps=200, threshold=0.0)
    teachers = chapter.draw_teachers(action, "SI", 10)
    mean, leading = (
        chapter.grow_stochastic(action, teachers, replace(endless, rule=rule), 20, ERF) for rule in ("mean", "leading")
    )
    assert chapter.success(leading.stopped(1e-2))[0] >= 2 + chapter.success(leading.stopped(1e-3))[0]
    assert max(chapter.success(mean.stopped(t))[0] for t in (1e-3, 1e-2, 1e-1)) <= 1
    assert leading.wrong == 10  # without a threshold everything is filled


def test_as_many_fresh_points_do_not_do_what_images_do() -> None:
    action = ACTIONS["C4 on R^4"]
    growth, teachers = Growth(rate=0.25, steps=60), chapter.draw_teachers(action, "SI", 2)
    fresh = chapter.grow_stochastic(action, teachers, growth, 40, ERF)
    assert (fresh.discovery.dimensions == 16).all()


def test_images_of_every_batch_restore_everything() -> None:
    action = ACTIONS["C4 on R^4"]
    teachers = chapter.draw_teachers(action, "SI", 3)
    growth = Growth(rate=0.25, steps=100)
    with_images = chapter.grow_stochastic(action, teachers, growth, 10, ERF, with_images=True)
    assert with_images.wrong == 0
    assert with_images.angles.max() < 1e-8
    assert chapter.grow_stochastic(action, teachers, growth, 10, ERF).wrong == 3


def test_success_rates_have_exact_intervals() -> None:
    action = ACTIONS["C2 on R^2"]
    run = chapter.grow(action, chapter.draw_teachers(action, "SI", 10), Growth())
    good, total, low, high = chapter.success(run)
    assert (good, total, high) == (10, 10, 1.0)
    assert abs(low - 0.025**0.1) < 1e-9  # Clopper–Pearson with no failure
    assert chapter.success(run, tolerance=0.0)[0] == 0


def test_the_source_teachers() -> None:
    Q = projection(Hom(*[ACTIONS["C2 on R^2"]] * 2)).matrix()
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    defects = {}
    for kind in chapter.KINDS:
        teacher = chapter.source_teacher(kind)
        y, moved = (outputs(teacher[None], v, LOGISTIC)[0] for v in (x, x.flip(-1)))
        defects[kind] = float((y.flip(-1) - moved).abs().max())
    assert defects["SI"] < 1e-14
    assert defects["WI"] < 1e-14
    assert defects["free"] > 1e-2
    inside = {kind: (chapter.source_teacher(kind) @ Q - chapter.source_teacher(kind)).norm() for kind in ("SI", "WI")}
    assert inside["SI"] < 1e-14 < 0.1 < inside["WI"]


def test_seeds_reach_every_draw() -> None:
    action, short = ACTIONS["S3 on R^3"], Growth(rate=1.0, steps=5, threshold=0.0)

    def tiny(seed: int):
        teachers = chapter.draw_teachers(action, "SI", 2, seed=seed)
        yield teachers
        yield chapter.balanced_teachers(action, 2, seed=seed)
        yield chapter.grow(action, teachers, short, seed=seed).discovery.escapes
        yield chapter.perturbed(action, [0.1], short, 2, seed)[0].discovery.escapes
        yield chapter.source_exact("SI", short, 2, 4, seed).discovery.escapes
        yield chapter.source_sample("SI", short, 2, 10, True, seed).discovery.escapes
        yield chapter.grow_stochastic(action, teachers, short, 4, ERF, seed=seed).discovery.escapes
        yield chapter.tilted_escapes(action, teachers, [0.1], short, seed)
        yield chapter.source_round(1, short, seed=seed)[1]
        yield chapter.source_round(2, short, 4, seed=seed)[1]

    for one, same, other in zip(tiny(1), tiny(1), tiny(2), strict=True):
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


# --- bad input ---


def test_bad_input() -> None:
    action = ACTIONS["C2 on R^2"]
    for change, error in (({"seeds": 0}, ValueError), ({"nodes": 3}, ValueError), ({"repeats": 1.5}, TypeError)):
        with pytest.raises(error, match=next(iter(change))):
            chapter.Settings(**change)
    with pytest.raises(ValueError, match="kind must be one of"):
        chapter.draw_teachers(action, "invariant", 2)
    with pytest.raises(ValueError, match="kind must be one of"):
        chapter.source_teacher("none")
    with pytest.raises(ValueError, match="units"):
        chapter.balanced_teachers(action, 2, units=1)
    with pytest.raises(ValueError, match="inside must be one of"):
        chapter.source_round(3, QUICK)
    with pytest.raises(ValueError, match="points"):
        chapter.source_sample("SI", QUICK, 1, 0, True)
    with pytest.raises(ValueError, match="d must be at least 2"):
        chapter.identity_and_ones(1)
    with pytest.raises(ValueError, match="sizes"):
        chapter.perturbed(action, [-1.0], QUICK, 1)
    with pytest.raises(ValueError, match="batch"):
        chapter.minibatches(chapter.source_teacher("SI")[None], 2, 0)
