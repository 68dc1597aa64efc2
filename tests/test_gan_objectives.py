"""Objectives of adversarial games: conjugates, suprema on finite laws, penalties, kernels and transport, all twice."""

import itertools
import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from lib.gans.mixtures import gaussian_kernel, mmd_loss
from lib.gans.objectives import (
    NAMES,
    gradient_penalty,
    objective,
)
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic

INVARIANT = 1e-12


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def law(points: int, seed: int, total: int = 24) -> Tensor:
    """Return a law with masses in 1/24, so that a list of points with equal masses represents it exactly."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(1 + rng.multinomial(total - points, np.full(points, 1 / points)))


def repeated(scores: Tensor, counts: Tensor) -> Tensor:
    return scores.repeat_interleave(counts, -1)


def supremum(name: str, q: Tensor, p: Tensor) -> float:
    """Return the supremum of H over all functions on finitely many points, by quasi-Newton ascent."""
    rule = objective(name)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        g = torch.from_numpy(flat).requires_grad_(True)
        value = -rule.value(repeated(g, q), repeated(g, p))
        slope = torch.autograd.grad(value, g)[0]
        return float(value.detach()), slope.numpy()

    best = minimize(loss, np.full(len(q), 0.1), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    return -float(best.fun)


# --- the values ---


@pytest.mark.parametrize("seed", range(3))
def test_suprema_are_the_divergences(seed: int) -> None:
    q, p = law(5, seed), law(5, seed + 10)
    a, b = q / q.sum(), p / p.sum()
    m = (a + b) / 2
    expected = {
        "kl": (a * (a / b).log()).sum(),
        "jsd": (a * (a / m).log()).sum() + (b * (b / m).log()).sum(),
        "alpha": ((a / b).square() * b).sum() / 2 - 0.5,  # without the constraint: the α-divergence of order 2
    }
    for name, value in expected.items():
        assert supremum(name, q, p) == pytest.approx(float(value), rel=1e-6), name


@pytest.mark.parametrize("name", NAMES)
def test_no_function_tells_a_law_from_itself(name: str) -> None:
    q = law(4, 3)
    if name != "wasserstein":
        assert supremum(name, q, q) == pytest.approx(0, abs=1e-9)
    rule = objective(name)
    g = normal(50, 4, seed=1)
    assert float(rule.value(repeated(g, q), repeated(g, q)).max()) <= 1e-12


def test_the_relativistic_supremum_is_explicit_for_two_points() -> None:
    # masses 1/3 and 2/3, exchanged: w³ − 3w − 4 = 0
    w = float(np.real(np.roots([1, 0, -3, -4])[np.argmin(np.abs(np.imag(np.roots([1, 0, -3, -4]))))]))
    closed = math.log(4) + 2 * (2 / 3 * math.log(w * w / (1 + w * w)) - math.log(1 + w) / 3)
    assert supremum("relativistic", torch.tensor([1, 2]), torch.tensor([2, 1])) == pytest.approx(closed, rel=1e-8)


@given(st.sampled_from(NAMES), st.integers(0, 10_000), st.floats(0, 1))
def test_values_are_concave_in_the_discriminator(name: str, seed: int, share: float) -> None:
    rule = objective(name)
    real, fake = normal(2, 6, seed=seed), normal(2, 9, seed=seed + 1)
    mixed = rule.value(share * real[0] + (1 - share) * real[1], share * fake[0] + (1 - share) * fake[1])
    ends = rule.value(real, fake)
    assert float(mixed) >= float(share * ends[0] + (1 - share) * ends[1]) - 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_averaging_over_the_group_never_lowers_the_value(name: str) -> None:
    """The step of Theorem 1: on invariant laws H(S_Σ γ) ≥ H(γ); on laws that are not invariant it may fall."""
    orbits, order = 3, 4
    gamma = normal(200, orbits, order, seed=2)
    average = gamma.mean(-1, keepdim=True).expand_as(gamma)
    rule = objective(name)
    q, p = (law(orbits, s)[:, None].expand(orbits, order).flatten() for s in (4, 5))
    h, h_average = (rule.value(repeated(g.flatten(1), q), repeated(g.flatten(1), p)) for g in (gamma, average))
    assert bool((h_average >= h - INVARIANT).all())
    q, p = torch.tensor([9, 1, 1, 1]).repeat(orbits), torch.tensor([1, 1, 1, 9]).repeat(orbits)
    h, h_average = (rule.value(repeated(g.flatten(1), q), repeated(g.flatten(1), p)) for g in (gamma, average))
    assert not bool((h_average >= h - INVARIANT).all())


@pytest.mark.parametrize("name", NAMES)
def test_values_treat_runs_apart_and_follow_a_loop(name: str) -> None:
    rule, real, fake = objective(name), normal(2, 3, 5), normal(2, 3, 7, seed=1)
    values, losses = rule.value(real, fake), rule.generator_loss(real, fake)
    assert values.shape == losses.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        r, f = real[i, j].tolist(), fake[i, j].tolist()
        m, k = (sum(f) / 7, sum(r) / 5) if name == "relativistic" else (0, 0)
        a = {"jsd": lambda y: -math.log1p(math.exp(-y)), "relativistic": lambda y: -math.log1p(math.exp(-y))}
        b = {
            "jsd": lambda y: math.log1p(math.exp(y)),
            "relativistic": lambda y: math.log1p(math.exp(y)),
            "kl": lambda y: math.exp(y - 1),
            "alpha": lambda y: max(y, 0) ** 2 / 2 + 0.5,
        }
        first, second = a.get(name, lambda y: y), b.get(name, lambda y: y)
        value = sum(first(y - m) for y in r) / 5 - sum(second(y - k) for y in f) / 7 + rule.constant
        assert float(values[i, j]) == pytest.approx(value, rel=1e-12)
        assert torch.allclose(rule.value(real[i, j], fake[i, j]), values[i, j], rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_is_told_to_raise_its_scores(name: str) -> None:
    rule, real = objective(name), normal(2, 30)
    fake = normal(2, 30, seed=1).abs().requires_grad_(True)
    slope = torch.autograd.grad(rule.generator_loss(real, fake).sum(), fake)[0]
    assert bool((slope < 0).all())
    if not rule.relative:
        assert torch.equal(rule.generator_loss(None, fake), rule.generator_loss(real, fake))
    loss = replace(rule, non_saturating=False).generator_loss(real, fake).sum()  # the zero-sum game: the slope is H's
    slopes = [torch.autograd.grad(value, fake)[0] for value in (loss, rule.value(real, fake).sum())]
    assert torch.allclose(*slopes)
    assert rule.non_saturating or torch.equal(slope, slopes[0])


def test_alpha_conjugate_is_the_legendre_transform() -> None:
    t = torch.linspace(0, 60, 600_001, dtype=torch.float64)
    for y in (-1.0, 0.0, 0.4, 1.5):
        best = float((y * t - (t**2 - 1) / 2).max())
        assert float(objective("alpha").fake(torch.tensor(y, dtype=torch.float64))) == pytest.approx(best, rel=1e-6)


def test_the_absorbed_constant_does_not_matter() -> None:
    """sup over γ of E_Q γ − inf_ν (ν + E_P f*(γ − ν)) is that without ν when Γ contains the constants."""
    q, p = (np.asarray(law(6, s) / 24) for s in (1, 2))
    x = np.sort(np.random.default_rng(0).normal(size=6))
    values = []
    for free in (0.0, 1.0):
        gamma, shift = cp.Variable(6), cp.Variable()
        inner = gamma - free * shift
        value = q @ gamma - free * shift - p @ (cp.square(cp.pos(inner)) + 1) / 2
        problem = cp.Problem(cp.Maximize(value), [cp.abs(cp.diff(gamma)) <= 0.3 * np.diff(x)])
        values.append(problem.solve(solver=cp.CLARABEL))
    assert values[0] == pytest.approx(values[1], abs=1e-7)
    assert values[0] > 1e-3


# --- penalties ---


def affine(slope: Tensor) -> object:
    return lambda x: x @ slope + 0.7


def test_penalties_of_affine_functions() -> None:
    slope = torch.tensor([0.6, 1.3, 0.2], dtype=torch.float64)
    square = float(slope.square().sum())
    x, y = normal(2, 4, 5, 3), normal(2, 4, 5, 3, seed=1)
    rng = torch.Generator().manual_seed(0)
    for kind, value in (("two_sided", (square**0.5 - 1) ** 2), ("one_sided", square - 1), ("real", square / 2)):
        assert torch.allclose(gradient_penalty(affine(slope), x, y, kind, rng)[1], torch.full((2, 4), value).double())
    assert torch.all(gradient_penalty(affine(slope / 2), x, y, "one_sided", rng)[1] == 0)
    assert torch.allclose(
        gradient_penalty(affine(slope / square**0.5), x, y, "two_sided", rng)[1], torch.zeros(2, 4).double()
    )


def test_penalties_look_where_they_should() -> None:
    x, y = normal(3, 200, 2) - 20, normal(3, 200, 2, seed=1) + 20

    def bend(points: Tensor) -> Tensor:  # steep between the two clouds only
        return 5 * torch.tanh(points.sum(-1))

    rng = torch.Generator().manual_seed(0)
    assert float(gradient_penalty(bend, x, y, "real")[1].detach().max()) < 1e-6
    assert float(gradient_penalty(bend, x, y, "one_sided", rng)[1].detach().min()) > 0.1
    one, two = (torch.Generator().manual_seed(3) for _ in range(2))
    again = [gradient_penalty(bend, x, y, "one_sided", g)[1] for g in (one, two)]
    assert torch.equal(*again)


def test_penalties_of_images_agree_with_those_of_flat_vectors() -> None:
    x, weight = normal(6, 2, 3, 3), normal(18, seed=2)

    def flat(points: Tensor) -> Tensor:
        return torch.tanh(points @ weight)

    image = gradient_penalty(lambda z: flat(z.flatten(-3)), x, x, "real")[1]
    assert image.shape == ()
    assert torch.allclose(image, gradient_penalty(flat, x.flatten(1), x.flatten(1), "real")[1])


def test_penalties_reach_the_parameters_and_not_the_points() -> None:
    slope = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    x = normal(4, 2).requires_grad_(True)
    penalty = gradient_penalty(affine(slope), x, normal(4, 2, seed=1), "one_sided")[1]
    assert torch.allclose(torch.autograd.grad(penalty, slope, retain_graph=True)[0], 2 * slope)
    assert torch.autograd.grad(penalty, x, allow_unused=True)[0] is None
    flat = torch.zeros(2, dtype=torch.float64, requires_grad=True)  # no slope at all: the norm has a kink there
    loss = gradient_penalty(affine(flat), normal(4, 2), normal(4, 2), "two_sided")[1]
    assert bool(torch.isfinite(torch.autograd.grad(loss, flat)[0]).all())


def test_discriminator_loss_is_minus_value_plus_penalty() -> None:
    slope = torch.tensor([0.9, 1.3], dtype=torch.float64)
    x, y = normal(3, 8, 2), normal(3, 8, 2, seed=1).requires_grad_(True)
    for name in NAMES:
        rule = objective(name)
        loss = rule.discriminator_loss(affine(slope), x, y, torch.Generator().manual_seed(0))
        expected = -rule.value(affine(slope)(x), affine(slope)(y))
        if rule.penalty is not None:
            square = float(slope.square().sum())
            value = {"two_sided": (square**0.5 - 1) ** 2, "one_sided": square - 1, "real": square / 2}
            expected = expected + rule.penalty_weight * value[rule.penalty]
        assert torch.allclose(loss, expected)
        reached = torch.autograd.grad(loss.sum(), y, allow_unused=True) if loss.requires_grad else (None,)
        assert reached == (None,)  # nothing flows to the generator


def test_a_penalty_at_real_points_shares_their_scores() -> None:
    calls = []

    def counted(x: Tensor) -> Tensor:
        calls.append(x)
        return x.square().sum(-1)

    for name, evaluations in (("jsd", 2), ("relativistic", 2), ("wasserstein", 3)):
        calls.clear()
        objective(name).discriminator_loss(counted, normal(4, 2), normal(4, 2, seed=1), None)
        assert len(calls) == evaluations


@pytest.mark.parametrize(("kind", "slope"), [("two_sided", 1 + 1 / 20), ("one_sided", 1.0)])
def test_the_one_sided_penalty_is_exact_and_the_two_sided_is_not(kind: str, slope: float) -> None:
    """Two point masses at distance 1, affine γ: the best slope of H − 10 · penalty."""
    rule = replace(objective("wasserstein"), penalty=kind)
    slopes = torch.linspace(0, 2, 2001, dtype=torch.float64)
    x, y = torch.ones(1, 1).double(), torch.zeros(1, 1).double()
    x, y = x.expand(len(slopes), 1, 1), y.expand(len(slopes), 1, 1)  # one run for each slope
    losses = rule.discriminator_loss(lambda z: z[..., 0] * slopes[:, None], x, y, None).detach()
    assert float(slopes[losses.argmin()]) == pytest.approx(slope, abs=1e-3)


# --- losses without a discriminator ---


def test_mmd_follows_the_double_sum_and_the_best_function_of_the_ball() -> None:
    x, y = normal(2, 5, 3), normal(2, 6, 3, seed=1) + 1
    loss = mmd_loss(x, y, gaussian_kernel((0.5, 2.0)))

    def k(u: Tensor, v: Tensor) -> float:
        return sum(math.exp(-float((u - v).square().sum()) / (2 * s * s)) for s in (0.5, 2.0)) / 2

    for r in range(2):
        first = np.mean([k(u, v) for u, v in itertools.permutations(x[r], 2)])
        second = np.mean([k(u, v) for u, v in itertools.permutations(y[r], 2)])
        cross = np.mean([k(u, v) for u, v in itertools.product(x[r], y[r])])
        assert float(loss[r]) == pytest.approx(first + second - 2 * cross, rel=1e-12)


def test_mmd_is_unbiased_and_may_be_negative() -> None:
    same = mmd_loss(normal(4000, 8, 1), normal(4000, 8, 1, seed=1), gaussian_kernel((0.5, 1.0, 2.0)))
    error = float(same.mean() / (same.std() / 4000**0.5))
    assert abs(error) < 4
    assert float(same.min()) < 0


def test_averaged_kernel_sees_orbits_only() -> None:
    action = planar(Cyclic(4))
    turns = action.matrix(action.group.elements())
    x, y = normal(3, 10, 2), normal(3, 10, 2, seed=1) + 1
    turned = torch.einsum("nij,rnj->rni", turns[torch.arange(10) % 4], y)
    kernel = gaussian_kernel((1.0,))

    def averaged(u: Tensor, v: Tensor) -> Tensor:
        return torch.stack([kernel(u, v @ t.mT) for t in turns]).mean(0)

    assert torch.allclose(mmd_loss(x, y, averaged), mmd_loss(x, turned, averaged))
    assert not torch.allclose(mmd_loss(x, y, kernel), mmd_loss(x, turned, kernel), rtol=0.05)


# --- bad input ---


def test_bad_input_is_named() -> None:
    x = normal(4, 2)
    with pytest.raises(ValueError, match="name must be one of"):
        objective("hinge")
    with pytest.raises(ValueError, match="kind must be one of"):
        gradient_penalty(affine(normal(2)), x, x, "three_sided")[1]
    with pytest.raises(ValueError, match="real must be finite"):
        gradient_penalty(affine(normal(2)), x / 0, x, "real")[1]
