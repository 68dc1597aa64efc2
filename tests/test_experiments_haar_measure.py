"""Chapter *Groups and Haar measure*: its measurements, and the controls that must fail."""

import numpy as np
import pytest
import scipy.stats
import torch

from lib.actions import natural, pixels, planar, vectors
from lib.data import digits
from lib.experiments import groups_and_haar_measure as chapter
from lib.groups import Cyclic, Dihedral, Symmetric
from lib.lie import Orthogonal, SpecialOrthogonal, Unitary

SETTINGS = chapter.Settings(samples=20_000, seeds=2)


@pytest.mark.parametrize("V", [planar(Dihedral(4)), natural(Symmetric(4)), vectors(SpecialOrthogonal(4))], ids=str)
def test_haar_samplers_are_accepted(V):
    check = chapter.check_haar(V, SETTINGS)
    assert max(check.deviations) < 4
    assert min(check.p_values.values(), default=1.0) > 0.001


@pytest.mark.parametrize(
    ("group", "sampler"),
    [
        (Unitary(2), chapter.raw_qr(Unitary(2))),
        (Orthogonal(3), chapter.raw_qr(Orthogonal(3))),
        (SpecialOrthogonal(3), chapter.uniform_euler),
        (SpecialOrthogonal(3), chapter.uniform_axis_and_angle),
    ],
    ids=["raw QR, U(2)", "raw QR, O(3)", "Euler", "axis and angle"],
)
def test_flawed_samplers_fail(group, sampler):
    check = chapter.check_haar(vectors(group), SETTINGS, sampler)
    assert min(check.deviations) > 4
    assert max(check.p_values.values()) < 0.001


def test_flawed_samplers_are_in_the_group():
    for sampler in (chapter.uniform_euler, chapter.uniform_axis_and_angle):
        g = sampler(100, torch.Generator().manual_seed(0))
        torch.testing.assert_close(g @ g.mT, torch.eye(3, dtype=g.dtype).expand_as(g))
        torch.testing.assert_close(torch.linalg.det(g), torch.ones(100, dtype=g.dtype))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_angle_laws_are_distribution_functions_of_sampled_angles(n):
    group = SpecialOrthogonal(n)
    law = chapter.angle_law(group)
    values = law(np.linspace(0, np.pi, 300))
    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values[-1] == pytest.approx(1)
    assert (np.diff(values) > -1e-12).all()
    angles = chapter.eigen_angles(group.sample(20_000, torch.Generator().manual_seed(n)))
    assert scipy.stats.kstest(angles.numpy(), law).pvalue > 0.001


def test_moment_deviation_is_a_standard_score():
    V = planar(Cyclic(5))
    scores = [chapter.moment_deviation(V, V.group.sample(2000, torch.Generator().manual_seed(s))) for s in range(60)]
    assert 0.7 < np.sqrt(np.mean(np.square(scores))) < 1.8


def test_averaging():
    V, points = pixels(Dihedral(4), 8), digits().test_x[:50]
    w = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check = chapter.check_averaging(lambda x: torch.tanh(x @ w).prod(-1) + (x @ w[:, 0]), V, points)
    assert check.adjointness < 1e-12
    assert check.projection < 1e-12
    assert check.contraction_excess <= 1e-12


def test_partial_averaging_breaks_all_three_properties():
    V, points = pixels(Dihedral(4), 8), digits().test_x[:20]
    check = chapter.check_averaging(chapter.blind_functional(points), V, points, part=V.group.elements()[:3])
    assert min(check.adjointness, check.projection, check.contraction_excess) > 1e-3


def test_blind_functional_needs_room():
    with pytest.raises(ValueError, match="points must be fewer than their dimension 64, got 64"):
        chapter.blind_functional(digits().test_x[:64])


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_gaussian_adjointness(order):
    assert chapter.gaussian_adjointness(order) < 1e-12


def test_feature_averaging():
    trained = chapter.train_classifier(Cyclic(4), steps=20)
    assert trained.averaged_residual <= 1e-6 < 0.1 < trained.residual
    assert len(set(trained.averaged_accuracy)) == 1
    double = chapter.train_classifier(Cyclic(4), steps=5, dtype=torch.float64)
    assert double.averaged_residual < 1e-13


def test_settings_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match="samples must be at least 1000, got 10"):
        chapter.Settings(samples=10)
    with pytest.raises(TypeError, match="seeds must be an integer"):
        chapter.Settings(seeds=2.5)
