"""Largest margins: optimality, independent solvers, certificates, invariance, refusals."""

import cvxpy
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, LinearSVC
from torch import Tensor

from lib.images.bundled import digits
from lib.implicit_bias.margins import (
    NotSeparable,
    angle,
    invariant_max_margin,
    max_margin,
    one_minus_cosine,
    separability,
)
from lib.symmetry.actions import natural, pixels, planar, rotations
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.lie import Torus
from lib.symmetry.representations import MatrixRepresentation


def shear(a: float) -> MatrixRepresentation:
    """Return C_2 acting on the plane by the reflection [[1, a], [0, −1]], not unitary unless a = 0."""
    flip = torch.tensor([[1.0, a], [0.0, -1.0]], dtype=torch.float64)
    both = torch.stack([torch.eye(2, dtype=torch.float64), flip])
    return MatrixRepresentation(Cyclic(2), 2, lambda g: both[g[..., 0]], f"shear {a}", unitary=a == 0)


def signs() -> MatrixRepresentation:
    """Return D_3 acting on the plane by its two one-dimensional representations, 1 and the sign of a reflection."""
    one = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    return MatrixRepresentation(Dihedral(3), 2, lambda g: torch.diag_embed(one[g[..., 1]]), "1⊕sgn")


def half_turning() -> MatrixRepresentation:
    """Return the circle acting on R^4 by turning the last two coordinates."""
    return rotations(Torus(1), torch.tensor([[0], [1]]))


def cloud(seed: int, n: int = 30, d: int = 6, gap: float = 0.2) -> tuple[Tensor, Tensor]:
    """Return random points, those closer than ``gap`` to a random hyperplane pushed away from it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    w = torch.nn.functional.normalize(torch.randn(d, generator=generator, dtype=torch.float64), dim=0)
    y = torch.where(x @ w > 0, 1.0, -1.0).double()
    return x + gap * y[:, None] * w, y


def digit_pair(first: int, second: int, count: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    data = digits()
    chosen = ((data.train_y == first) | (data.train_y == second)).nonzero()[:, 0]
    chosen = chosen[torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))[:count]]
    return data.train_x[chosen], torch.where(data.train_y[chosen] == first, 1.0, -1.0).double()


# --- the largest margin ---


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 8), st.floats(1e-3, 1e3))
def test_optimality_conditions(seed: int, n: int, d: int, scale: float) -> None:
    x, y = cloud(seed, n, d)
    found = max_margin(scale * x, y)
    z = scale * y[:, None] * x
    assert found.residual < 1e-9
    assert torch.allclose(found.multipliers @ z, found.vector, rtol=0, atol=1e-9 * float(found.vector.norm()))
    assert bool((found.multipliers >= 0).all())
    assert float((z @ found.vector).min()) == pytest.approx(1, abs=1e-9)
    assert set(found.multipliers.nonzero()[:, 0].tolist()) <= set(found.support.tolist())
    assert found.margin == pytest.approx(float((z @ found.direction).min()), rel=1e-9)
    assert float(found.multipliers.sum()) == pytest.approx(float(found.vector.square().sum()), rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gap", [0.02, 0.5])
def test_three_other_solvers_agree(seed: int, gap: float) -> None:
    x, y = cloud(seed, gap=gap)
    found = max_margin(x, y)
    beta = cvxpy.Variable(x.shape[1])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(beta)), [cvxpy.multiply(y.numpy(), x.numpy() @ beta) >= 1])
    problem.solve(solver=cvxpy.CLARABEL)
    assert np.abs(beta.value / found.vector.numpy() - 1).max() < 1e-4
    # A classifier with a bias has bias zero on points that come with their opposites.
    z = (y[:, None] * x).numpy()
    both, signs = np.concatenate([z, -z]), np.repeat([1, -1], len(z))
    support = SVC(kernel="linear", C=1e8, tol=1e-8).fit(both, signs)
    assert one_minus_cosine(torch.tensor(support.coef_[0]), found.vector) < 1e-8
    soft = LinearSVC(C=1e5, fit_intercept=False, tol=1e-8, max_iter=10**6, loss="squared_hinge").fit(x, y)
    assert one_minus_cosine(torch.tensor(soft.coef_[0]), found.vector) < 1e-3  # stops early


def test_closed_forms() -> None:
    one = max_margin(torch.tensor([[3.0, 4.0]]).double(), torch.tensor([-1]))
    assert torch.allclose(one.vector, torch.tensor([-3.0, -4.0]).double() / 25)
    assert one.margin == pytest.approx(5)
    corner = max_margin(torch.eye(4, dtype=torch.float64), torch.ones(4))
    assert torch.allclose(corner.vector, torch.ones(4, dtype=torch.float64))
    assert corner.support.tolist() == [0, 1, 2, 3]
    # The point in the middle is a support vector, with or without a multiplier of its own.
    line = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0], [2.0, 0.0]]).double()
    assert max_margin(line, torch.ones(4)).support.tolist() == [0, 1, 2]


def test_more_dimensions_than_points_and_repeated_points() -> None:
    x, y = cloud(1, n=5, d=20)
    twice = max_margin(x.repeat(2, 1), y.repeat(2))
    assert torch.allclose(twice.vector, max_margin(x, y).vector, atol=1e-12)
    assert twice.residual < 1e-12


def test_float32_and_integer_labels_are_welcome() -> None:
    x, y = cloud(2)
    found = max_margin(x.float(), y.long())
    assert found.vector.dtype == torch.float64
    assert one_minus_cosine(found.vector, max_margin(x, y).vector) < 1e-10


# --- separability ---


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6))
def test_every_answer_comes_with_its_proof(seed: int, n: int, d: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0).double()
    found = separability(x, y)
    z = y[:, None] * x
    if found.separable:
        assert float((z @ found.vector).min()) > 0
        assert float(found.vector.norm()) == pytest.approx(1)
    else:
        assert bool((found.multipliers >= 0).all())
        assert float(found.multipliers.sum()) == pytest.approx(1)
        assert float((found.multipliers @ z).norm()) < 1e-9 * float(z.norm(dim=1).max())


def test_cover_counts_the_separable_labellings() -> None:
    """Of the 2^n labellings of n points in general position 2 Σ_{k<d} C(n−1, k) are separable (Cover 1965)."""
    n, d = 7, 3
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labellings = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * n).double()
    assert sum(separability(x, y).separable for y in labellings) == 2 * (1 + 6 + 15)


def test_the_refusal_carries_its_certificate() -> None:
    x = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]).double()
    with pytest.raises(NotSeparable, match="not separable") as caught:
        max_margin(x, torch.ones(3))
    certificate = caught.value.certificate
    assert not certificate.separable
    assert torch.allclose(certificate.multipliers, torch.tensor([0.5, 0.25, 0.25]).double())
    with pytest.raises(NotSeparable):
        max_margin(torch.tensor([[1.0], [0.0]]).double(), torch.ones(2))


def test_a_margin_near_rounding_is_undecided() -> None:
    x = torch.tensor([[1.0, 1e-6], [-1.0, 1e-6]]).double()
    assert separability(x, torch.ones(2)).separable
    x[:, 1] = 1e-9
    with pytest.raises(ArithmeticError, match="cannot be decided in this precision"):
        separability(x, torch.ones(2))
    x[:, 1] = 1e-13
    found = separability(x, torch.ones(2))  # a combination of length 1e-13 counts as zero, and says so
    assert not found.separable
    assert found.residual < 1e-10


# --- invariant classifiers ---


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
@pytest.mark.parametrize("pair", [(0, 1), (0, 8), (4, 5)])
def test_constrained_and_averaged_solutions_agree(group: Cyclic | Dihedral, pair: tuple[int, int]) -> None:
    x, y = digit_pair(*pair)
    V = pixels(group, 8)
    constrained, averaged = invariant_max_margin(x, y, V), max_margin(projection(V)(x), y)
    assert torch.allclose(constrained.vector, averaged.vector, rtol=0, atol=1e-11 * float(averaged.vector.norm()))
    assert constrained.residual < 1e-11
    moved = V.apply(group.generators(), constrained.vector)
    assert torch.allclose(moved, constrained.vector.expand_as(moved), atol=1e-11)
    assert constrained.margin < max_margin(x, y).margin


def test_other_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    for V in (natural(Symmetric(4)) + natural(Symmetric(4)), planar(Dihedral(3)) + signs() + signs(), half_turning()):
        x = torch.randn(5, V.dim, generator=generator, dtype=torch.float64)
        mean = projection(V)(x)
        y = torch.where(mean @ torch.randn(V.dim, generator=generator, dtype=torch.float64) > 0, 1.0, -1.0)
        found = invariant_max_margin(x, y, V)
        assert torch.allclose(found.vector, max_margin(mean, y).vector, rtol=1e-10, atol=1e-10)


def test_without_unitarity_the_invariant_classifier_is_another() -> None:
    """⟨sx, β⟩ = ⟨x, β⟩ leaves β ∝ (1, a/2); on averages (x₁ + a x₂/2, 0) the largest margin is at (1, 0)."""
    x = torch.tensor([[1.0, 0.3], [-2.0, 0.1]]).double()
    y = torch.tensor([1.0, -1.0]).double()
    for a in (0.0, 0.5, 3.0):
        V = shear(a)
        found = invariant_max_margin(x, y, V)
        assert torch.allclose(found.direction, torch.nn.functional.normalize(torch.tensor([1, a / 2]).double(), dim=0))
        mean = torch.stack([V.apply(g, x) for g in V.group.elements()]).mean(0)
        assert float(angle(max_margin(mean, y).vector, found.vector)) == pytest.approx(np.arctan(a / 2), abs=1e-12)


def test_no_invariant_classifier() -> None:
    x, y = digit_pair(6, 9)
    V = pixels(Cyclic(4), 8)
    assert separability(x, y).separable
    with pytest.raises(NotSeparable) as caught:
        invariant_max_margin(torch.cat([x, V.apply(torch.tensor([2]), x)]), torch.cat([y, -y]), V)
    alpha = caught.value.certificate.multipliers
    mean = projection(V)(torch.cat([x, x]))
    assert float((alpha * torch.cat([y, -y]) @ mean).norm()) < 1e-9


# --- angles ---


@pytest.mark.parametrize("true", [0.0, 1e-12, 1e-5, 0.5, np.pi / 2, 3.0])
def test_angles_are_exact_at_every_size(true: float) -> None:
    a, b = torch.tensor([2.0, 0.0]).double(), 5 * torch.tensor([np.cos(true), np.sin(true)]).double()
    assert float(angle(a, b)) == pytest.approx(true, rel=1e-12, abs=1e-30)
    assert float(one_minus_cosine(a, b)) == pytest.approx(2 * np.sin(true / 2) ** 2, rel=1e-10, abs=1e-30)


# --- bad input ---


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("solve", [separability, max_margin, lambda x, y: invariant_max_margin(x, y, shear(1.0))])
def test_refusals(solve: object) -> None:
    x, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match=r"labels must be 2 numbers 1 or -1, got \[0.0, 1.0\]"):
        solve(x, torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="labels"):
        solve(x, torch.ones(3))
    with pytest.raises(ValueError, match=r"labels must be 2 numbers 1 or -1, got \[1, 255\]"):
        solve(x, torch.tensor([1, 255], dtype=torch.uint8))
    with pytest.raises(ValueError, match="labels"):
        solve(x, torch.ones(1, 2))
    with pytest.raises(ValueError, match="features must be finite"):
        solve(x * float("nan"), y)
    with pytest.raises(ValueError, match="features must have shape"):
        solve(x[None], y)
    with pytest.raises(TypeError, match="features must be real"):
        solve(x * 1j, y)
    with pytest.raises(TypeError, match="features"):
        solve([[1.0, 2.0]], y)
    with pytest.raises(TypeError, match="features"):
        solve(x.long(), y)


@pytest.mark.usefixtures("as_user")
def test_refused_representations() -> None:
    x, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match="of dimension 2"):
        invariant_max_margin(x, y, pixels(Cyclic(4), 2))
    with pytest.raises(TypeError, match="representation must be a Representation"):
        invariant_max_margin(x, y, "C4")
    V = MatrixRepresentation(
        Cyclic(2), 2, lambda g: (1.0 - 2.0 * g[..., None]) * torch.eye(2).to(torch.complex128), "c"
    )
    with pytest.raises((ValueError, TypeError)):
        invariant_max_margin(x, y, V)
    with pytest.raises(NotSeparable):
        invariant_max_margin(x, y, planar(Cyclic(4)))


def test_angles_of_long_vectors_and_of_none() -> None:
    x = torch.eye(2)
    assert torch.allclose(angle(1e20 * x, x.flip(0)), torch.full((2,), np.pi / 2))
    assert torch.allclose(angle(x, 0 * x), torch.full((2,), np.pi / 2))
    assert not separability(0 * x, torch.tensor([1.0, -1.0])).separable


@pytest.mark.parametrize("factor", [1e-11, 1e11, 1e50])
def test_the_length_of_a_point_says_nothing_about_separability(factor: float) -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 0], y = x[:, 0].abs() + 0.5, torch.ones(6, dtype=torch.float64)
    longer = x.clone()
    longer[2] *= factor
    assert separability(longer, y).residual == pytest.approx(separability(x, y).residual, rel=1e-12)
    found = max_margin(longer, y)
    assert found.residual < 1e-12
    assert float((found.multipliers @ longer - found.vector).norm() / found.vector.norm()) < 1e-9
    opposite = torch.stack([x[0], -factor * x[0], x[1]])
    assert not separability(opposite, y[:3]).separable
