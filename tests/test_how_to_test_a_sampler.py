"""What the page *How to test a sampler* defines: other groups, other seeds, closed forms, and controls that fail."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch

from lib.symmetry.actions import natural, planar, regular, vectors
from lib.symmetry.haar import NullSpace
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.own_groups import named
from lib.symmetry.representations import Representation
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("how_to_test_a_sampler", seed=11, group="C5")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def spaces() -> list[Representation]:
    finite = [planar(named("C5")), planar(named("D4")), natural(named("S4")), regular(named("Q8"))]
    lie = [SpecialOrthogonal(2), SpecialOrthogonal(3), SpecialOrthogonal(4), Orthogonal(3), Orthogonal(4), Torus(2)]
    return finite + [vectors(U) for U in (*lie, Unitary(1), Unitary(2), Unitary(3))]


FLAWED = {
    "QR, U(2)": (vectors(Unitary(2)), lambda p: lambda n, g: p.raw_qr(2, n, g, torch.complex128)),
    "QR, O(3)": (vectors(Orthogonal(3)), lambda p: lambda n, g: p.raw_qr(3, n, g)),
    "Euler": (vectors(SpecialOrthogonal(3)), lambda p: p.uniform_euler),
    "axis": (vectors(SpecialOrthogonal(3)), lambda p: p.axis_and_angle),
}
PARTS = {
    "even": (natural(named("S4")), lambda p: p.even_permutations),
    "rotations": (vectors(Orthogonal(3)), lambda p: SpecialOrthogonal(3).sample),
    "curve": (vectors(Torus(2)), lambda p: p.winding_curve),
}


def test_samplers_are_in_the_group(page: SimpleNamespace) -> None:
    space = SpecialOrthogonal(3)
    for draw in (page.quaternion_rotations, page.uniform_euler, page.axis_and_angle, page.mended):
        space.check("g", draw(200, seeded(1)))
    for V, draw in (FLAWED | PARTS).values():
        V.group.check("g", draw(page)(100, seeded(0)))


def test_turns_are_exponentials(page: SimpleNamespace) -> None:
    angles = torch.linspace(0.01, 3.1, 50, dtype=torch.float64)
    for axis, generator in zip(torch.eye(3, dtype=torch.float64), SpecialOrthogonal(3).lie_algebra().flip(0)):
        g = page.turn(axis.expand(50, 3), angles)
        exact = torch.linalg.matrix_exp(angles[:, None, None] * generator)
        sign = 1 if torch.allclose(g, exact) else -1  # the basis E_ij − E_ji turns one way or the other
        torch.testing.assert_close(g, torch.linalg.matrix_exp(sign * angles[:, None, None] * generator))
        torch.testing.assert_close(page.rotation_angle(g), angles)
        torch.testing.assert_close((g @ axis), axis.expand(50, 3))


def test_sample_moments_are_means(page: SimpleNamespace) -> None:
    for V in (vectors(Unitary(2)), natural(named("S4")), vectors(Torus(2))):
        g = V.group.sample(300, seeded(2))
        for W, mean, square in page.moments(V, g):
            torch.testing.assert_close(mean, W.matrix(g).mean(0))
            torch.testing.assert_close(square, (W.matrix(g).abs() ** 2).mean(0))


@pytest.mark.parametrize("V", spaces(), ids=str)
def test_haar_samplers_are_accepted(page: SimpleNamespace, V: Representation) -> None:
    for seed in (0, 1):
        p, score = page.examine(V, V.group.sample, 20_000, seed)
        assert score < 4
        assert min(p.values()) * len(p) > 0.001 / 13
        assert {"left", "right", "moments"} < set(p)


@pytest.mark.parametrize("name", FLAWED)
def test_flawed_samplers_fail(page: SimpleNamespace, name: str) -> None:
    V, draw = FLAWED[name]
    for seed in (0, 1):
        p, score = page.examine(V, draw(page), 20_000, seed)
        assert score > 4
        assert min(q for test, q in p.items() if test != "moments") < 1e-6


@pytest.mark.parametrize("name", PARTS)
def test_samplers_of_a_part_fool_moments_but_not_laws(page: SimpleNamespace, name: str) -> None:
    V, draw = PARTS[name]
    for seed in (0, 1):
        p, score = page.examine(V, draw(page), 20_000, seed)
        assert score < 4
        assert min(p.values()) < 1e-6


@pytest.mark.parametrize("group", ["C2", "C7:C3", "S5", "D60"])
def test_one_missing_element_is_noticed(group: str) -> None:
    page = load("how_to_test_a_sampler", group=group)
    V = page.faithful(page.G)
    p, _ = page.examine(V, page.all_but_one, 100_000, 5)
    assert p["frequencies"] < 1e-9
    p, _ = page.examine(V, page.G.sample, 100_000, 5)
    assert min(p.values()) > 1e-4


def test_translates_alone_reject_euler_angles(page: SimpleNamespace) -> None:
    generator = seeded(0)
    g = page.uniform_euler(200_000, generator)
    assert min(page.translates(vectors(SpecialOrthogonal(3)), g, generator)) < 0.001


def test_one_wrong_entry_is_seen(page: SimpleNamespace) -> None:
    V = natural(named("S4"))
    g = V.group.sample(20_000, seeded(0))
    assert page.moment_score(V, g) < 4
    assert page.moment_score(V, torch.cat([g, V.group.identity().expand(400, 4)])) > 4


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_angle_laws_are_distribution_functions_of_sampled_angles(page: SimpleNamespace, n: int) -> None:
    group = SpecialOrthogonal(n)
    law = page.angle_law(group)
    values = law(np.linspace(0, np.pi, 300))
    assert values[0] == pytest.approx(0, abs=1e-12)
    assert values[-1] == pytest.approx(1)
    assert (np.diff(values) > -1e-12).all()
    angles = page.eigen_angles(group.sample(20_000, seeded(n)), seeded(n))
    assert scipy.stats.kstest(angles.numpy(), law).pvalue > 0.001


def test_moment_scores_are_bounded_by_standard_scores(page: SimpleNamespace) -> None:
    """Two-sided p-values of the scores are at least uniform: not below t more often than a share of t."""
    for V in (planar(named("C5")), natural(named("S4")), vectors(Unitary(2))):
        scores = [page.moment_score(V, V.group.sample(800, seeded(s))) for s in range(200)]
        p = 2 * scipy.stats.norm.sf(scores)
        for level in (0.01, 0.05, 0.2):
            assert (p < level).mean() < level + 4 * np.sqrt(level / 200)
        assert np.quantile(scores, 0.95) > 0.5  # and not hidden by the correction


def test_corrected_scores_have_the_corrected_p_value(page: SimpleNamespace) -> None:
    for score in (1.0, 3.0, 8.0):
        p = 2 * scipy.stats.norm.sf(page.corrected(score, 46))
        assert p == pytest.approx(min(1.0, 46 * 2 * scipy.stats.norm.sf(score)))
    assert page.corrected(5.0, 1) == pytest.approx(5.0)
    assert 499.9 < page.corrected(500.0, 1000) < 500  # where p itself underflows


def test_false_alarms_are_as_rare_as_promised(page: SimpleNamespace) -> None:
    """Family-wise rates over 40 seeds; the bounds are exceeded with probability below 1e-3 if the tests are right."""
    fair = {str(V): (V, V.group.sample) for V in spaces()}
    runs = page.examine_all(fair, 800, range(5000, 5040)).groupby("seed")["p"]
    smallest = runs.min() * runs.size()
    assert (smallest < 0.001).sum() <= 1
    assert (smallest < 0.05).sum() <= 7
    assert (smallest < 0.2).sum() <= 17
    assert (smallest < 1).any()  # the correction does not hide everything


def test_exercises(page: SimpleNamespace) -> None:
    angles = page.rotation_angle(page.mended(20_000, seeded(3))).numpy()
    assert scipy.stats.kstest(angles, lambda t: (t - np.sin(t)) / math.pi).pvalue > 0.001
    counts = torch.bincount(page.G.index(page.too_often(100_000, seeded(0), excess=1.0)), minlength=page.G.order)
    shares = counts / counts.sum()
    assert shares.max() / shares.min() == pytest.approx(2, rel=0.1)


def test_the_fourth_moment_of_an_orthogonal_matrix(page: SimpleNamespace) -> None:
    V = vectors(Orthogonal(4))
    exact = NullSpace(V * V * V * V).matrix()[0, 0]  # of products of four entries: the first is g_11 to the fourth
    assert page.fourth_moment(4)[0] == pytest.approx(float(exact))
    entries = Orthogonal(4).sample(200_000, seeded(5))[:, 0, 0] ** 4
    assert float(entries.var()) == pytest.approx(page.fourth_moment(4)[1], rel=0.05)
    assert page.draws_needed(3) == pytest.approx(64)
