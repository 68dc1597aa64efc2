"""Chapter *Structure-preserving GANs*, exact games: theorem, collapse, controls that must fail, and both figures."""

import dataclasses

import numpy as np
import pytest
import torch

from lib.experiments import discrete_games as chapter
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic
from lib.transport.discrete_divergences import FAMILIES, wasserstein, wasserstein_invariant
from lib.transport.quotient import isometry_defect

SETTINGS = chapter.Settings(seeds=2)
BROKEN = [name for name in chapter.SETTINGS if name != "isometric"]
GAMES = (chapter.check_theorem, chapter.check_collapse)


@pytest.mark.parametrize("game", GAMES)
def test_both_suprema_agree(game):
    played = game(SETTINGS)
    assert {(one.group, one.family) for one in played} == {(g, f) for g in chapter.groups() for f in FAMILIES}
    assert all(one.everything.shape == (2,) and bool((one.everything > 0.01).all()) for one in played)
    assert chapter.largest_gap(played) <= 1e-6


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("setting", BROKEN)
def test_broken_symmetry_separates_them(game, setting):
    played = game(SETTINGS, setting)
    assert len(played) == 3 * len(FAMILIES)
    assert chapter.smallest_gap(played) > 1e-3
    assert all(bool((one.invariant < one.everything).all()) for one in played)


def test_each_control_breaks_one_thing():
    rng = np.random.default_rng(0)
    for name, representation in chapter.groups().items():
        assert chapter.make_space(representation, "isometric", SETTINGS, rng).isometry_defect() < 1e-12, name
        if representation.dim > 1:
            g = representation.group.unsqueeze(representation.group.elements())
            assert isometry_defect(chapter.sheared(representation, 0.8).matrix(g.flatten(0, 1))) > 0.5
            space = chapter.make_space(representation, "anisotropic", SETTINGS, rng)
            torch.testing.assert_close(space.points[space.maps], representation.apply(g, space.points))
            assert space.isometry_defect() > 0.5


def test_controls_without_a_break_pass():
    whole = dataclasses.replace(SETTINGS, shear=0.0)
    for setting in BROKEN:
        assert chapter.largest_gap(chapter.check_theorem(whole, setting)) <= 1e-6


def test_one_sector_looks_perfect_to_invariant_discriminators():
    played = chapter.check_sector(SETTINGS)
    assert chapter.largest_gap(played) <= 1e-6
    assert max(float(one.invariant.max()) for one in played) < 1e-8
    assert min(float(one.plain.min()) for one in played) > 0.1


def test_sector_laws_charge_one_point_of_every_orbit():
    rng = np.random.default_rng(0)
    space = chapter.make_space(planar(Cyclic(4)), "isometric", SETTINGS, rng)
    law = chapter.sector_law(space, SETTINGS, rng)
    charged = law > 0
    assert sorted(space.labels[charged].tolist()) == list(range(SETTINGS.starts))
    angles = torch.atan2(space.points[charged, 1], space.points[charged, 0]) - np.arctan2(1, 2)
    assert float(angles.abs().max()) <= np.pi / 4  # one quarter of the plane


def test_the_path_out_of_collapse():
    path = chapter.collapse_path(dataclasses.replace(SETTINGS, seeds=1), 4)
    assert path.plain.shape == path.invariant.shape == (len(FAMILIES), 1, 4)
    assert float(path.invariant.abs().max()) < 1e-8
    straight = path.plain[:, :, :1] * (1 - path.times)
    torch.testing.assert_close(path.plain[:2], straight[:2], rtol=1e-9, atol=1e-12)  # linear for the two metrics
    assert bool((path.plain[2:] <= straight[2:] + 1e-8).all())  # convex for the others
    assert bool((path.plain.diff() < 0).all())


def test_the_shear_sweep():
    sweep = chapter.shear_sweep(dataclasses.replace(SETTINGS, seeds=1), 3)
    assert sweep.ratio.shape == (len(FAMILIES), 1, 3)
    torch.testing.assert_close(sweep.ratio[..., 0], torch.ones(len(FAMILIES), 1).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(sweep.floor[:, 0], torch.ones(1).double())
    assert bool((sweep.ratio[..., 1:] < 0.999).all())
    assert bool((sweep.ratio[0] >= sweep.floor - 1e-9).all())


def test_values_belong_to_the_laws_of_their_seed():
    game = next(one for one in chapter.check_collapse(SETTINGS) if one.group == "D4 on the plane")
    rng = np.random.default_rng([2, 1])
    space = chapter.make_space(chapter.groups()["D4 on the plane"], "isometric", SETTINGS, rng)
    q, p = chapter.random_laws(space.size, SETTINGS, rng)
    even = [space.symmetrise_law(law) for law in (q, p)]
    values = wasserstein(space, *even), wasserstein_invariant(space, q, p), wasserstein(space, q, p)
    for found, value in zip((game.everything, game.invariant, game.plain), values, strict=True):
        torch.testing.assert_close(found[1], value)


def test_gap_is_relative_and_absolute_at_zero():
    one = torch.tensor([2.0, 1e-9, 0.0, 1e-3], dtype=torch.float64)
    other = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert chapter.relative_gap(one, other).tolist() == [0.5, 1e-9, 0.0, 1.0]
    assert torch.equal(chapter.relative_gap(one, other), chapter.relative_gap(other, one))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds must be"),
        ({"starts": 1}, "starts must be"),
        ({"concentration": 0.0}, "concentration must be"),
        ({"lipschitz": float("nan")}, "lipschitz must be"),
        ({"bandwidth": -1.0}, "bandwidth must be"),
        ({"shear": 4.0}, "shear must be"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        chapter.Settings(**change)


def test_bad_choices_are_refused():
    for call in (chapter.check_theorem, chapter.check_collapse):
        with pytest.raises(ValueError, match="setting must be one of"):
            call(SETTINGS, "bent")
    for call in (chapter.collapse_path, chapter.shear_sweep):
        with pytest.raises(ValueError, match="group must be one of"):
            call(SETTINGS, group="C7")
    with pytest.raises(ValueError, match="group must act on at least a plane"):
        chapter.shear_sweep(SETTINGS, group="C2 on the line")
    with pytest.raises(ValueError, match=r"representation\.dim must be at least 2"):
        chapter.sheared(chapter.groups()["C2 on the line"], 0.5)
