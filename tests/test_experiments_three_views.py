"""Claim M10: particle cloud, ensemble and augmentation are one training; what they need, and what breaks them."""

from dataclasses import replace

import pytest
import torch

from lib.experiments import three_views as chapter
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric

SETTINGS = chapter.Settings(points=12, units=3, steps=30, seeds=2)
EVERY = chapter.TOGETHER + chapter.APART


@pytest.fixture(scope="module")
def problem() -> chapter.Problem:
    return chapter.load(SETTINGS)


def worst(views: dict[str, chapter.View], names: tuple[str, ...]) -> torch.Tensor:
    return chapter.disagreement(views, names).amax(0)


def test_data_and_unit(problem: chapter.Problem) -> None:
    assert problem.x.shape == (4, 12, 64)
    assert torch.equal(problem.x[0].unflatten(-1, (8, 8)).rot90(1, (-2, -1)).flatten(-2), problem.x[1])
    assert set(problem.y.tolist()) <= {-1.0, 1.0}
    z = torch.randn(5, 65, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_hand = torch.stack([(u[-1] * torch.tanh(problem.x @ u[:-1])) for u in z]).mean(0)
    assert torch.allclose(problem.outputs(z, problem.x), by_hand)


def test_the_unit_is_jointly_equivariant_and_the_skewed_one_is_not(problem: chapter.Problem) -> None:
    z = torch.randn(5, 65, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = problem.orbit(z)
    assert moved.shape == (4, 5, 65)
    outputs, skewed = (p.outputs(moved, problem.x) for p in (problem, chapter.skewed(problem)))
    for g in range(4):  # σ(ρ(g)x, M_g z) = σ(x, z)
        assert torch.allclose(outputs[g, g], outputs[0, 0])
    assert (skewed[1, 1] - skewed[0, 0]).abs().max() > 0.1


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)])
def test_the_views_agree(group: Cyclic | Dihedral) -> None:
    views = chapter.compare(replace(SETTINGS, group=group))
    assert worst(views, chapter.TOGETHER).max() < 1e-12
    assert worst(views, chapter.APART).max() < 1e-12
    assert worst(views, EVERY).min() > 1e-3  # together and apart are different trainings
    for name in ("particles", "ensemble", "ensemble apart"):
        assert views[name].defect.max() < 1e-12
    for name in ("averaged", "augmented"):
        assert views[name].defect.amin(1).min() > 1e-2
    for view in views.values():
        assert (view.risk[-1] < view.risk[0]).all()
        assert view.symmetrised.shape[:2] == (31, 2)


def test_all_agree_from_a_weakly_invariant_start(problem: chapter.Problem) -> None:
    assert chapter.draw(SETTINGS, problem, "orbits").shape == (2, 4, 4, 65)
    views = chapter.compare(SETTINGS, start="orbits")
    assert worst(views, EVERY).max() < 1e-12


@pytest.mark.parametrize("control", ["partial", "skewed", "incomplete", "speed"])
def test_every_assumption_is_needed(control: str, problem: chapter.Problem) -> None:
    changed = {"partial": chapter.partial, "skewed": chapter.skewed}.get(control)
    views = chapter.compare(
        SETTINGS,
        changed(problem) if changed else None,
        start="incomplete" if control == "incomplete" else "free",
        speed=1.01 if control == "speed" else 1.0,
    )
    for names in (chapter.TOGETHER, chapter.APART):
        assert worst(views, names).min() > 1e-4


def test_members_stay_on_an_orbit(problem: chapter.Problem) -> None:
    """The ensemble's members are images of each other at the end: seen through every member alone, on moved images."""
    members = chapter.draw(SETTINGS, problem)
    ends = [chapter.train(problem, members[:, k : k + 1], "apart", 0.1, 15).symmetrised for k in range(4)]
    for end in ends[1:]:
        assert torch.allclose(end, ends[0], atol=1e-12)


def test_a_step_is_the_mean_field_velocity(problem: chapter.Problem) -> None:
    """One step of a unit is −h E (f − y) ∇σ(x, z), however many units share the work."""
    members = chapter.draw(SETTINGS, problem)[:1, :1]
    h, z, x = 0.3, members[0, 0], problem.x.flatten(0, 1)
    residual = (problem.outputs(z, problem.x) - problem.y).flatten()
    hidden = torch.tanh(z[:, :-1] @ x.T)
    slope_c = (residual * hidden).mean(-1, keepdim=True)
    slope_a = (residual * z[:, -1:] * (1 - hidden.square())) @ x / len(x)
    stepped = (z - h * torch.cat([slope_a, slope_c], -1))[None, None]
    view = chapter.train(problem, members, "mean", h, 1)
    assert torch.allclose(view.symmetrised[1, 0], problem.outputs(stepped, problem.test_x).mean((0, 1, 2)))


def test_the_gap_closes_with_the_width() -> None:
    sizes = [2, 8, 32]
    gaps = chapter.gap(replace(SETTINGS, seeds=8), sizes).square().mean(1).sqrt()
    assert (gaps.diff() < 0).all()
    slope = (gaps[-1] / gaps[0]).log() / torch.tensor(sizes[-1] / sizes[0]).log()
    assert -1.6 < slope < -0.5


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"group": Symmetric(3)}, ValueError, "group must be one of"),
        ({"pair": (3, 3)}, ValueError, "two different digits"),
        ({"pair": (3, 12)}, ValueError, "pair must be between 0 and 9"),
        ({"units": 0}, ValueError, "units"),
        ({"steps": 2.5}, TypeError, "steps"),
        ({"rate": -1.0}, ValueError, "rate"),
    ],
)
def test_bad_settings(change: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        replace(SETTINGS, **change)


def test_bad_calls(problem: chapter.Problem) -> None:
    with pytest.raises(ValueError, match="start must be one of"):
        chapter.draw(SETTINGS, problem, "random")
    with pytest.raises(ValueError, match="loss must be one of"):
        chapter.train(problem, chapter.draw(SETTINGS, problem), "sum", 0.1, 1)
    with pytest.raises(ValueError, match="points"):
        chapter.load(replace(SETTINGS, points=5000))
    with pytest.raises(ValueError, match="speed"):
        chapter.compare(SETTINGS, speed=float("nan"))
    with pytest.raises(ValueError, match="sizes must hold at least one"):
        chapter.gap(SETTINGS, [])
    with pytest.raises(ValueError, match="names must be one of"):
        chapter.disagreement({}, ("particles",))
