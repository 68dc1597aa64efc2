"""First-order optimality: closed forms, convex programs as oracles, norms by another route, controls, bad input."""

import cvxpy
import numpy as np
import pytest
import torch
from catalogue import frobenius_21
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.implicit_bias.linear_networks import Convolution
from lib.implicit_bias.margins import max_margin
from lib.implicit_bias.optimality import (
    Norm,
    coordinates,
    duality_gap,
    form_a,
    form_p,
    frequencies,
    irreducibles,
    separation,
)
from lib.symmetry.groups import Cyclic, Dihedral, Quaternion, Symmetric

GROUPS = {str(g): g for g in (Cyclic(7), Dihedral(4), Symmetric(3), Quaternion(8), frobenius_21())}
BASES = {"coordinates": coordinates(8), "frequencies": frequencies(8)} | {
    name: irreducibles(g) for name, g in GROUPS.items()
}


def data(points: int, inputs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, inputs, generator=generator, dtype=torch.float64)
    return x, torch.where(torch.rand(points, generator=generator) < 0.5, 1.0, -1.0).double()


@given(st.sampled_from(sorted(GROUPS)), st.floats(0.3, 4), st.integers(0, 100))
def test_schatten_norm_is_that_of_the_convolution_matrix(name: str, p: float, seed: int) -> None:
    """Every block occurs d_ρ times in the matrix h ↦ β∗h, so no irreducible representation is needed to check it."""
    (beta,), _ = data(1, GROUPS[name].order, seed)
    values = torch.linalg.svdvals(Convolution(GROUPS[name]).forward(beta))
    assert float(Norm(BASES[name], p)(beta)) == pytest.approx(float((values**p).sum() ** (1 / p)), rel=1e-6)


@given(st.sampled_from(sorted(BASES)), st.integers(0, 100))
def test_blocks_carry_the_inner_product(name: str, seed: int) -> None:
    basis = BASES[name]
    (v, w), _ = data(2, basis.length, seed)
    pairs = zip(basis.transform(v), basis.transform(w))
    total = sum(b.shape[-1] * (b.conj() * c).sum().real for b, c in pairs) / basis.order
    assert float(total) == pytest.approx(float(v @ w), abs=1e-9)
    assert float(Norm(basis, 2.0)(v)) == pytest.approx(basis.order**0.5 * float(v.norm()))


@given(st.sampled_from(sorted(BASES)), st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.sampled_from([1.0, 0.0, 0.5]))
def test_dual_norms_bound_the_inner_product(name: str, p: float, weight: float) -> None:
    norm = Norm(BASES[name], p, weight)
    v, w = data(2, norm.basis.length)[0]
    assert float(v @ w) <= float(norm.dual(v) * norm(w)) * (1 + 1e-12)
    if p > 1:  # the bound is attained at the gradient of the norm
        at = w.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(norm(at), at)
        assert float(norm.dual(slope)) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("name", sorted(BASES))
def test_euclidean_solution_is_optimal_for_exponent_two_only(name: str) -> None:
    basis = BASES[name]
    x, y = data(4, basis.length)
    best = max_margin(x, y)
    norm = Norm(basis, 2.0)
    assert form_a(norm, best.vector, x, y)[0] < 1e-9
    assert form_p(norm, best.vector, x, y, best.multipliers) < 1e-9
    assert abs(duality_gap(norm, best.vector, x, y, best.multipliers)) < 1e-9
    for p in (1.0, 2 / 3):
        assert form_a(Norm(basis, p), best.vector, x, y)[0] > 0.05
        assert form_p(Norm(basis, p), best.vector, x, y, best.multipliers) > 0.05


@pytest.mark.parametrize("name", ["coordinates", "S3", "D4", "F21"])
def test_convex_programs_are_recognised(name: str) -> None:
    """Smallest ℓ1 or nuclear norm by a general solver, which gives the multipliers as well."""
    basis = BASES[name]
    x, y = data(4, basis.length, seed=3)
    z, beta = (x * y[:, None]).numpy(), cvxpy.Variable(basis.length)
    if name == "coordinates":
        size = cvxpy.norm1(beta)
    else:
        matrices = Convolution(GROUPS[name]).forward(torch.eye(basis.length, dtype=torch.float64)).numpy()
        size = cvxpy.normNuc(sum(beta[k] * matrices[k] for k in range(basis.length)))
    conditions = [z @ beta >= 1]
    problem = cvxpy.Problem(cvxpy.Minimize(size), conditions)
    if name == "coordinates":
        problem.solve(solver=cvxpy.CLARABEL)
    else:
        problem.solve(solver=cvxpy.SCS, eps=1e-9, max_iters=50_000)
    found, alpha = torch.from_numpy(beta.value), torch.from_numpy(np.maximum(conditions[0].dual_value, 0))
    norm = Norm(basis, 1.0)
    assert float(norm(found)) == pytest.approx(problem.value, rel=1e-5)
    assert form_a(norm, found, x, y)[0] < 1e-4
    assert form_p(norm, found, x, y, alpha) < 1e-4
    assert abs(duality_gap(norm, found, x, y, alpha)) < 1e-5
    for b in feasible(x, y, 5):
        assert form_a(norm, b, x, y, tolerance=1e9)[0] > 0.01
        assert duality_gap(norm, b, x, y, alpha) > 0.01


@given(st.sampled_from([2 / 3, 0.5, 1.5]), st.sets(st.integers(0, 5), min_size=1))
def test_one_point_has_a_stationary_predictor_on_every_support(p: float, support: set[int]) -> None:
    x = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)[None]
    mask = torch.zeros(6, dtype=torch.float64)
    mask[list(support)] = 1
    beta = mask * x[0] ** (1 / (p - 1))
    norm, y = Norm(coordinates(6), p), torch.ones(1).double()
    residual, alpha = form_a(norm, beta, x, y)
    assert residual < 1e-12
    assert form_p(norm, beta, x, y, alpha) < 1e-7
    other = Norm(coordinates(6), 1.0)
    assert (form_a(other, beta, x, y)[0] > 0.05) == (len(support) > 1)


def feasible(x: Tensor, y: Tensor, count: int) -> Tensor:
    """Return predictors with smallest margin one, near that of the largest margin."""
    best = max_margin(x, y)
    rays = torch.randn(count, x.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reach = best.margin / x.norm(dim=-1).max()  # nowhere farther does a point cross the hyperplane
    beta = best.direction + 0.9 * reach * rays / rays.norm(dim=-1, keepdim=True)
    return beta / (beta @ (x * y[:, None]).mT).amin(-1, keepdim=True)


def test_duality_gap_tells_a_saddle_from_a_minimum() -> None:
    x, y = torch.tensor([[2.0, 1.0, 1.0]]).double(), torch.ones(1).double()
    norm, alpha = Norm(coordinates(3), 1.0), torch.ones(1).double()
    minimum, saddle = torch.tensor([1.0, 0, 0]).double(), torch.tensor([0, 1.0, 1.0]).double()
    for beta in (minimum, saddle):
        assert form_a(norm, beta, x, y)[0] < 1e-12
    assert duality_gap(norm, minimum, x, y, alpha) == pytest.approx(0, abs=1e-12)
    assert duality_gap(norm, saddle, x, y, alpha) == pytest.approx(0.5)


def test_wrong_norms_are_seen_where_and_only_where_they_can_be() -> None:
    beta = torch.tensor([1.0, 4.0, 0.0]).double()
    norms = [Norm(coordinates(3), p) for p in (1.0, 0.5)]
    a, b = norms[0].target(beta), norms[1].target(beta)
    cosine = (1 + 4**1.5) / (17**0.5 * 5**0.5)
    assert torch.allclose(a, torch.tensor([1.0, 4.0, 0.0]).double().repeat(2))
    assert torch.allclose(b, torch.tensor([1.0, 2.0, 0.0]).double().repeat(2))
    assert separation(*norms, beta) == pytest.approx((1 - cosine**2) ** 0.5)
    assert separation(*norms, beta.sign()) < 1e-12
    cyclic, symmetric = irreducibles(Cyclic(6)), irreducibles(Symmetric(3))
    (f,), _ = data(1, 6)
    assert separation(Norm(cyclic, 1.0), Norm(cyclic, 1.0, 0.0), f) < 1e-12
    assert separation(Norm(symmetric, 1.0), Norm(symmetric, 1.0, 0.0), f) > 0.1


@given(st.sampled_from(sorted(BASES)), st.floats(0.3, 3), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 100))
def test_slope_meets_the_conditions(name: str, p: float, weight: float, seed: int) -> None:
    """ĝβ̂^* and β̂^*ĝ are the right sides; for p ≥ 1 and full rank, g is the gradient of the norm's p-th power over p."""
    norm = Norm(BASES[name], p, weight)
    beta = torch.randn(norm.basis.length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    slope = norm.slope(beta, 0.0)
    assert torch.allclose(norm.image(slope, beta), norm.target(beta), rtol=1e-6, atol=1e-8)
    if p >= 1.5:
        moved = beta.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(norm(moved) ** p / p, moved)
        assert torch.allclose(gradient / norm.basis.order, slope, rtol=1e-6, atol=1e-8)


def test_separation_of_two_bases() -> None:
    """A constant function looks alike to two groups, a random one does not."""
    norms = [Norm(irreducibles(g), 2 / 3) for g in (Symmetric(3), Cyclic(6))]
    (f,), _ = data(1, 6)
    assert separation(*norms, torch.ones(6).double()) < 1e-12
    assert separation(*norms, f) > 0.1
    # in one basis the general definition is the sine between the right sides
    right, other = Norm(norms[0].basis, 1.0), Norm(norms[0].basis, 0.5)
    again = Norm(irreducibles(Symmetric(3)), 0.5)
    assert separation(right, again, f) == pytest.approx(separation(right, other, f), rel=1e-6)


def test_forms_compare() -> None:
    """Form A is never larger than form P with the same support vectors, and drops to zero with enough of them."""
    x, y = data(5, 8)
    norm = Norm(coordinates(8), 1.0)
    for seed, beta in enumerate(feasible(x, y, 5)):
        alpha = torch.rand(5, generator=torch.Generator().manual_seed(seed)).double()
        assert form_a(norm, beta, x, y, tolerance=1e9)[0] <= form_p(norm, beta, x, y, alpha) + 1e-12
    one, sign = torch.eye(4).double(), torch.ones(4).double()
    beta = torch.tensor([1.0, 1.2, 0.9, 1.1]).double()
    assert form_a(norm := Norm(coordinates(4), 0.7), beta, one, sign, tolerance=1e9)[0] < 1e-12
    assert form_a(norm, beta, one, sign)[0] > 0.5
    assert form_p(norm, beta, one, -sign, sign) == 1.0


def test_what_does_not_fit_is_refused(as_user: None) -> None:
    x, y = data(4, 8)
    norm, beta = Norm(coordinates(8), 1.0), max_margin(x, y).vector
    with pytest.raises(ValueError, match="beta must separate the points"):
        form_a(norm, -beta, x, y)
    assert form_p(norm, beta, x, y, torch.ones(4, dtype=torch.int64)) == form_p(norm, beta, x, y, torch.ones(4))
    for kind in (torch.float64, torch.int8):  # labels of another dtype than the points
        assert form_p(norm, beta.float(), x.float(), y.to(kind), torch.ones(4)) < 1
    with pytest.raises(ValueError, match="at least one point"):
        form_a(norm, beta, x[:0], y[:0])
