"""Chapter *What symmetric models see and make*: what its page defines, at other seeds and on other groups."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("what_symmetric_models_see", group="D5", seed=60, seeds=2)


# --- section 2 ---


def test_windows_are_those_of_a_torus(page: SimpleNamespace) -> None:
    y = torch.arange(20.0).double().view(1, 4, 5)
    for w in (1, 2, 3, 4):
        found = page.windows(y, w).view(4, 5, w, w)
        for row, column in ((0, 0), (2, 4), (3, 1)):
            shifted = y[0].roll((w // 2 - row, w // 2 - column), (0, 1))
            torch.testing.assert_close(found[row, column], shifted[:w, :w])


def test_the_best_local_denoiser(page: SimpleNamespace) -> None:
    """O5 at other seeds: the formula by hand, the identity, its control, and Pythagoras for a network of any kind."""
    x = page.pictures(61, 2)
    y = x[:1] + 0.5 * page.normal(page.generator(61, 1), 1, 10, 10)
    fast = page.best(page.windows(y, 3), page.windows(x, 3), 0.5).view(10, 10)
    assert float(fast[3, 9]) == pytest.approx(float(page.by_hand(y[0], x, 3, 0.5, 3, 9)))
    for sigma in (0.2, 1.0):
        for phi in (torch.sin, torch.relu, lambda u: u**2):
            assert page.single_pixel(x, sigma, phi) < 1e-12
            assert page.single_pixel(x, sigma, phi, wrong=1.5) > 0.01
    net = page.begin(page.generator(61, 2), 1, (9, 5, 1))
    cross, local, whole = page.compared(page.generator(61, 3), net, page.pictures(61, 10), 0.4)
    assert abs(cross) < 6
    assert min(local, whole) > 0


def test_denoisers_commute_with_shifts_and_large_windows_see_everything(page: SimpleNamespace) -> None:
    x = page.pictures(62, 6)
    y = x[:2] + 0.3 * page.normal(page.generator(62, 1), 2, 10, 10)
    eyes = {w: page.painter(x, w, [0.3]) for w in (3, 10)}
    for eye in eyes.values():
        torch.testing.assert_close(eye(y.roll((2, 3), (1, 2)), 0), eye(y, 0).roll((2, 3), (1, 2)))
    torch.testing.assert_close(eyes[10](y, 0), page.whole_eye(y, x, 0.3))
    assert (eyes[3](y, 0) - eyes[10](y, 0)).abs().max() > 0.05


def test_who_sees_everything_repeats(page: SimpleNamespace) -> None:
    levels = np.geomspace(2, 0.05, 10).tolist()
    x, start = page.pictures(63, 5), 2 * page.normal(page.generator(63, 1), 3, 10, 10)
    copies = page.paint(lambda y, k: page.whole_eye(y, x, levels[k]), start, levels)[-1]
    assert page.novelty(copies, x).max() < 1e-6
    assert page.novelty(page.paint(page.painter(x, 3, levels), start, levels)[-1], x).median() > 0.2
    assert page.novelty(x.roll((1, 4), (1, 2)), x).max() < 1e-6


def test_training_approaches_the_formula(page: SimpleNamespace) -> None:
    x = page.pictures(64, 10)
    examples, sigma = page.windows(x, 3)[None], torch.full((1, 1, 1), 0.4).double()
    off = [
        page.compared(page.generator(64, 2), page.train(page.generator(64, 1), examples, sigma, steps), x, 0.4)[1]
        for steps in (5, 200)
    ]
    assert off[1] < off[0] / 2


# --- section 3 ---


@pytest.mark.parametrize("group", ["C6", "Q8", "D5"])
def test_orbits_under_noise(group: str) -> None:
    """O11 on other groups: twins share pairs and power, not triples, and the constants and exponents are right."""
    own = load("what_symmetric_models_see", group=group, seed=65, seeds=2)
    x = own.signal(own.generator(66, 1))
    z, other = own.twin(x, own.generator(66, 2)), own.signal(own.generator(66, 3))
    assert x.square().sum() == pytest.approx(own.G.order)
    torch.testing.assert_close(own.pair(x), own.pair(z))
    torch.testing.assert_close(own.pair(x), x @ own.right(x))
    assert all(torch.allclose(a, b) for a, b in zip(own.power(x), own.power(z), strict=True))
    for v in own.orbit(x):
        torch.testing.assert_close(own.triple(v), own.triple(x))
    assert (own.triple(x) - own.triple(z)).abs().max() > 1e-2
    assert abs(own.leading(x, z, 2, 1.0)) < 1e-10 < own.leading(x, other, 2, 1.0)
    for d, v in ((1, other), (2, other), (3, z)):
        n = [own.enough(x, v, d, sigma, own.generator(67, d)) for sigma in (24.0, 48.0)]
        assert math.log2(n[1] / n[0]) == pytest.approx(2 * d, abs=0.2)
        assert n[1] * own.leading(x, v, d, 48.0) / 4 == pytest.approx(1, abs=0.2)
        assert n[1] > own.least(x, v, d, 48.0)


def test_the_gap_of_laws_is_that_of_moments(page: SimpleNamespace) -> None:
    """The least number of views at strong noise is 2·0.68² over the first term of the series."""
    x = page.signal(page.generator(68, 1))
    z = page.twin(x, page.generator(68, 2))
    assert page.least(x, z, 3, 200.0) * page.leading(x, z, 3, 200.0) == pytest.approx(2 * 0.68**2, rel=1e-2)


def test_means_of_the_statistic_differ_by_what_the_theorem_says(page: SimpleNamespace) -> None:
    x, z = (page.signal(page.generator(69, k)) for k in (1, 2))
    for d in (1, 2):
        t = [page.score(page.views(v, d, 2.0, page.generator(69, 3), 40_000), x, z, d, 2.0) for v in (x, z)]
        error = (t[0].var() + t[1].var()) ** 0.5 / 200
        assert abs(float(t[0].mean() - t[1].mean()) - page.leading(x, z, d, 2.0)) < 5 * float(error)


# --- section 4 ---


def test_a_lie_algebra_from_samples(page: SimpleNamespace) -> None:
    """O9 at another seed: the number of points, the angle, and a function without a symmetry."""
    for f, basis in page.cases(70).values():
        d, k = basis.shape[-1], len(basis)
        x = page.normal(page.generator(70, 1), d * d, d)
        slope = page.slopes(f, x)
        rows = page.equations(slope, x)
        row = page.equation(slope[2], x[2])
        torch.testing.assert_close(rows[2], row / row.norm())
        assert (rows @ basis.flatten(1).mT).abs().max() < 1e-10
        for m in (1, d * d - k - 1, d * d - k, d * d):
            assert len(page.solutions(rows[:m])) == max(k, d * d - m)
        assert page.sines(page.solutions(rows), basis).max() < 1e-10
        found, expected = page.leaning(f, basis, 1e-5, 71, runs=100)
        assert found == pytest.approx(expected, rel=0.3)
    x = page.normal(page.generator(72, 1), 20, 3)
    for f, left in ((page.cubic, 1), (lambda x: page.length(x) + 0.1 * page.cubic(x), 0)):
        assert len(page.solutions(page.equations(page.slopes(f, x), x))) == left  # x₂x₃² can be scaled
    square = page.equations(page.slopes(lambda x: x.pow(4).sum(-1), x), x)
    assert len(page.solutions(square)) == 0  # the symmetries of a cube are discrete


def test_a_model_learns_the_symmetry_of_its_values(page: SimpleNamespace) -> None:
    so3 = page.SpecialOrthogonal(3).lie_algebra()
    for delta, good in ((0.0, True), (0.2, False)):
        model = page.learn(lambda x, delta=delta: page.soft(x, delta), 73)
        x = page.normal(page.generator(73, 1), 100, 3)
        angle = page.sines(page.solutions(page.equations(page.slopes(model, x), x), 3), so3).max()
        assert (float(angle) < 0.1) == good


# --- section 5 ---


def test_sums_collide(page: SimpleNamespace) -> None:
    """O12 at another seed: all directions within the ball, none for tanh, and some beyond it."""
    layers = page.layers_of(page.generator(74, 1), (2, 24, 24, 8))
    c, r = page.roomy(layers, page.generator(74, 2))
    v = r * page.directions(50)
    none = page.sums(layers, torch.relu, c, 0 * v)
    for share, same in ((0.5, True), (0.99, True), (3.0, False)):
        gap = (page.sums(layers, torch.relu, c, share * v) - none).norm(dim=1)
        assert (float(gap.max()) < 1e-12 * float(none.norm())) == same
    smooth = [page.sums(layers, torch.tanh, c, share * v) for share in (0.0, 0.01, 0.02)]
    gaps = [float((s - smooth[0])[0].norm()) for s in smooth[1:]]
    assert math.log2(gaps[1] / gaps[0]) == pytest.approx(2, abs=0.05)
    second = page.curvature(layers, c, 0.01 * v[0])
    torch.testing.assert_close((smooth[1] - smooth[0])[0], second, rtol=0.02, atol=1e-9)


def test_answers_do_not_depend_on_the_order(page: SimpleNamespace) -> None:
    P, loss = page.teach(torch.tanh, 75, 2, steps=30)
    a, b = page.normal(page.generator(75, 1), 2, 2, 5, 2)
    torch.testing.assert_close(page.answer(P, torch.tanh, a, b), page.answer(P, torch.tanh, b, a))
    assert loss > 0
