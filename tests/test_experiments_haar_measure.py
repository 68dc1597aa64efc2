"""Chapter *Groups and Haar measure*: its measurements, and the controls that must fail."""

import numpy as np
import pytest
import scipy.stats
import torch

from lib.experiments import groups_and_haar_measure as chapter
from lib.experiments import haar_samplers as samplers
from lib.images.bundled import digits
from lib.symmetry.actions import natural, pixels, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.lie import SpecialOrthogonal


@pytest.mark.parametrize("V", samplers.examples(), ids=str)
def test_haar_samplers_are_accepted(V):
    check = samplers.check_haar(V, 20_000, [0, 1])
    assert max(check.deviations) < 4
    assert min(check.p_values.values()) > 0.001
    assert {"left translates", "right translates"} < set(check.p_values)


@pytest.mark.parametrize(("V", "sampler"), samplers.flawed_samplers(), ids=["QR, U(2)", "QR, O(3)", "Euler", "axis"])
def test_flawed_samplers_fail(V, sampler):
    check = samplers.check_haar(V, 20_000, [0, 1], sampler)
    assert min(check.deviations) > 4
    assert min(check.p_values.values()) < 0.001


@pytest.mark.parametrize(("V", "sampler"), samplers.subtle_samplers(), ids=["even", "rotations", "curve"])
def test_samplers_of_a_part_fool_moments_but_not_laws(V, sampler):
    check = samplers.check_haar(V, 20_000, [0, 1], sampler)
    assert max(check.deviations) < 4
    assert min(check.p_values.values()) < 0.001


def test_translates_alone_reject_euler_angles():
    V, sampler = samplers.flawed_samplers()[2]
    generator = torch.Generator().manual_seed(0)
    p_values = samplers.law_p_values(V, sampler(200_000, generator), generator)
    assert max(p_values["left translates"], p_values["right translates"]) < 0.001


def test_flawed_samplers_are_in_the_group():
    for V, sampler in samplers.flawed_samplers() + samplers.subtle_samplers():
        V.group.check("g", sampler(100, torch.Generator().manual_seed(0)))


def test_one_wrong_entry_is_seen():
    V = natural(Symmetric(4))
    g = V.group.sample(20_000, torch.Generator().manual_seed(0))
    assert samplers.moment_deviation(V, g) < 4
    skewed = torch.cat([g, V.group.identity().expand(400, 4)])
    assert samplers.moment_deviation(V, skewed) > 4


def test_rotation_angle_inverts_the_exponential():
    angles = torch.linspace(0.01, 3.1, 50, dtype=torch.float64)
    g = torch.linalg.matrix_exp(angles[:, None, None] * SpecialOrthogonal(3).lie_algebra()[1])
    torch.testing.assert_close(samplers.rotation_angle(g), angles)


def test_eigen_angles_refuse_reflections():
    with pytest.raises(ValueError, match="g must have determinant 1"):
        samplers.eigen_angles(torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))[None].double(), torch.Generator())


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_angle_laws_are_distribution_functions_of_sampled_angles(n):
    group = SpecialOrthogonal(n)
    law = samplers.angle_law(group)
    values = law(np.linspace(0, np.pi, 300))
    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values[-1] == pytest.approx(1)
    assert (np.diff(values) > -1e-12).all()
    generator = torch.Generator().manual_seed(n)
    angles = samplers.eigen_angles(group.sample(20_000, generator), generator)
    assert scipy.stats.kstest(angles.numpy(), law).pvalue > 0.001


def test_moment_deviations_are_bounded_by_standard_scores():
    """Two-sided p-values of the deviations are at least uniform: not below t more often than a share of t."""
    for V in (planar(Cyclic(5)), natural(Symmetric(4))):
        scores = [
            samplers.moment_deviation(V, V.group.sample(2000, torch.Generator().manual_seed(s))) for s in range(200)
        ]
        p = 2 * scipy.stats.norm.sf(scores)
        for level in (0.01, 0.05, 0.2):
            assert (p < level).mean() < level + 4 * np.sqrt(level / 200)
        assert np.quantile(scores, 0.95) > 1  # and not hidden by the correction


def test_adjusted_scores_have_the_corrected_p_value():
    for score in (1.0, 3.0, 8.0):
        p = 2 * scipy.stats.norm.sf(samplers.adjust_score(score, 46))
        assert p == pytest.approx(min(1.0, 46 * 2 * scipy.stats.norm.sf(score)))
    assert samplers.adjust_score(5.0, 1) == pytest.approx(5.0)
    assert 499.9 < samplers.adjust_score(500.0, 1000) < 500  # where p itself underflows
    with pytest.raises(ValueError, match="tests must be at least 1, got 0"):
        samplers.adjust_score(1.0, 0)


def test_false_alarms_are_as_rare_as_promised():
    """Family-wise rates over 40 seeds; the bounds are exceeded with probability below 1e-3 if the tests are right."""
    smallest = samplers.false_alarms(2000, range(5000, 5040))
    assert (smallest < 0.001).sum() <= 1
    assert (smallest < 0.05).sum() <= 7
    assert (smallest < 0.2).sum() <= 17
    assert (smallest < 1).any()  # the correction does not hide everything


def test_check_haar_needs_a_seed():
    with pytest.raises(ValueError, match="seeds must be one or more integers, got none"):
        samplers.check_haar(planar(Cyclic(5)), 1000, [])


def test_averaging():
    V, points = pixels(Dihedral(4), 8), digits().test_x[:50]
    w = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def f(x):
        return torch.tanh(x @ w).prod(-1) + x @ w[:, 0]

    check = chapter.check_averaging(f, V, points)
    assert max(check.adjointness, check.projection) < 1e-12
    images = V.apply(V.group.elements()[:, None], points).flatten(0, 1)
    assert chapter.contraction_excess(f, V, images) <= 1e-12
    broken = chapter.check_averaging(f, V, points, V.group.elements()[:3])
    assert min(broken.adjointness, broken.projection) > 1e-3


def test_averaging_expands_where_the_law_is_not_invariant():
    V, points = pixels(Dihedral(4), 8), digits().test_x[:20]
    blind = chapter.blind_functional(points)
    assert blind(points).abs().max() < 1e-12
    assert chapter.contraction_excess(blind, V, points) > 0.01


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
    before, after = chapter.restoration_residuals(Dihedral(4), steps=10)
    assert after <= 1e-6 < 0.1 < before
