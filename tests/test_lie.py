"""Compact Lie groups: membership, Haar measure by moments and eigen-angles, Weyl quadrature, Lie algebras."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from lib.symmetry.actions import vectors
from lib.symmetry.haar import NullSpace, invariant_dimension
from lib.symmetry.lie import CompactLieGroup, Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import Representation
from tests.axioms import assert_group, check_group

MATRIX = [*[make(n) for make in (Orthogonal, SpecialOrthogonal, Unitary) for n in (1, 2, 3, 4, 5)]]
GROUPS = [*MATRIX, *[Torus(k) for k in (1, 2, 3)]]
COUNT = 100_000


def raw_qr(group: CompactLieGroup, count: int, generator: torch.Generator) -> Tensor:
    """Return the Q of a QR factorisation with the phases left as LAPACK chooses them: *not* Haar."""
    return torch.linalg.qr(torch.randn(count, group.n, group.n, dtype=group.dtype, generator=generator))[0]


def moment_deviations(rho: Tensor, V: Representation) -> list[float]:
    """Return |E ρ − Π| and |E ρ⊗ρ − Π| in standard errors (Frobenius norm), Π by linear algebra from the generators."""
    n, d = len(rho), V.dim
    second = (rho.reshape(n, -1).mT @ rho.reshape(n, -1) / n).reshape(d, d, d, d).transpose(1, 2).reshape(d * d, d * d)
    squares = (rho.abs().square().reshape(n, -1).mT @ rho.abs().square().reshape(n, -1)).sum() / n
    deviations = []
    for mean, square, exact in [
        (rho.mean(0), rho.abs().square().sum() / n, NullSpace(V).matrix()),
        (second, squares, NullSpace(V * V).matrix()),
    ]:
        error = float(torch.linalg.vector_norm(mean - exact))
        deviations.append(error / math.sqrt(float(square - mean.abs().square().sum()) / n))
    return deviations


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_axioms(group: CompactLieGroup) -> None:
    assert max(check_group(group, samples=64).values()) < 1e-13
    assert_group(group, samples=64)


@pytest.mark.parametrize("group", MATRIX, ids=str)
def test_samples_lie_in_the_group(group: CompactLieGroup) -> None:
    g = group.sample(500, torch.Generator().manual_seed(0))
    assert g.dtype == group.dtype
    assert float((g.mH @ g - torch.eye(group.n)).abs().max()) < 1e-13
    determinant = torch.linalg.det(g)
    expected = torch.ones_like(determinant) if isinstance(group, SpecialOrthogonal) else determinant / determinant.abs()
    assert torch.allclose(determinant, expected, rtol=0, atol=1e-13)
    if type(group) is Orthogonal:
        assert 200 < int((determinant > 0).sum()) < 300


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_lie_algebra(group: CompactLieGroup) -> None:
    x = group.lie_algebra()
    assert x.shape == (group.lie_dimension, *group.element_shape)
    assert bool(group.contains(group.exp(1.7 * x)).all())
    real = torch.view_as_real(x.flatten(1).to(torch.complex128)).flatten(1)
    assert group.lie_dimension == 0 or torch.linalg.matrix_rank(real) == group.lie_dimension
    coefficients = torch.randn(20, group.lie_dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.tensordot(coefficients.to(x.dtype), x, dims=1)
    one = group.multiply(group.exp(y), group.exp(-y))
    assert float((one - group.identity()).abs().remainder(2 * math.pi - 1e-9).max()) < 1e-9


@pytest.mark.parametrize("group", [SpecialOrthogonal(4), Unitary(3)], ids=str)
def test_lie_algebra_is_closed_under_brackets(group: CompactLieGroup) -> None:
    x = group.lie_algebra()
    brackets = (x[:, None] @ x - x @ x[:, None]).flatten(0, 1)
    both = torch.cat([torch.view_as_real(t.flatten(1).to(torch.complex128)).flatten(1) for t in (x, brackets)])
    assert torch.linalg.matrix_rank(both) == group.lie_dimension


@pytest.mark.parametrize(
    "group",
    [
        Orthogonal(2),
        Orthogonal(3),
        SpecialOrthogonal(2),
        SpecialOrthogonal(3),
        Torus(2),
        SpecialOrthogonal(4),
        Unitary(1),
        Unitary(2),
        Unitary(3),
    ],
    ids=str,
)
def test_moments_and_invariance(group: CompactLieGroup) -> None:
    generator = torch.Generator().manual_seed(11)
    g, h, V = group.sample(COUNT, generator), group.sample(1, generator), vectors(group)
    for translate in (g, group.multiply(h, g), group.multiply(g, h)):
        assert max(moment_deviations(V.matrix(translate), V)) < 4


@pytest.mark.parametrize("group", [Orthogonal(3), Unitary(2)], ids=str)
def test_raw_qr_is_rejected(group: CompactLieGroup) -> None:
    g = raw_qr(group, COUNT, torch.Generator().manual_seed(0))
    assert bool(group.contains(g).all())
    assert max(moment_deviations(g, vectors(group))) > 40


def angle_density(group: CompactLieGroup, theta: np.ndarray) -> np.ndarray:
    """Return the one-point density of the nontrivial eigen-angles: on [0, π] for SO(n), on [0, 2π] for U(n)."""
    if isinstance(group, Unitary):
        return np.full_like(theta, 1 / (2 * math.pi))
    m, odd = divmod(group.n, 2)
    k = np.arange(1, m + 1)[:, None]
    waves = 2 * np.sin((k - 0.5) * theta) ** 2 if odd else np.where(k == 1, 1.0, 2 * np.cos((k - 1) * theta) ** 2)
    return waves.sum(0) / (m * math.pi)


def eigen_angles(g: Tensor) -> np.ndarray:
    """Return one random nontrivial eigen-angle per matrix."""
    angles = np.angle(np.linalg.eigvals(g.numpy())) % (2 * math.pi)
    if not g.is_complex():
        angles = np.sort(np.minimum(angles, 2 * math.pi - angles), axis=1)[:, g.shape[-1] % 2 :: 2]
    return angles[np.arange(len(g)), np.random.default_rng(5).integers(angles.shape[1], size=len(g))]


def angle_p_value(group: CompactLieGroup, g: Tensor) -> float:
    grid = np.linspace(0, 2 * math.pi if g.is_complex() else math.pi, 20_001)
    density = angle_density(group, grid)
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    assert cumulative[-1] == pytest.approx(1.0, abs=1e-7)
    return scipy.stats.kstest(eigen_angles(g), lambda t: np.interp(t, grid, cumulative)).pvalue


@pytest.mark.parametrize(
    "group", [*[SpecialOrthogonal(n) for n in (2, 3, 4, 5, 6)], *[Unitary(n) for n in (1, 2, 4)]], ids=str
)
def test_eigen_angles(group: CompactLieGroup) -> None:
    assert angle_p_value(group, group.sample(20_000, torch.Generator().manual_seed(2))) > 1e-3


def test_raw_qr_has_other_eigen_angles() -> None:
    g = raw_qr(Unitary(2), 20_000, torch.Generator().manual_seed(2))
    assert angle_p_value(Unitary(2), g) < 1e-12


@pytest.mark.parametrize(
    ("group", "law"),
    [
        (Orthogonal(3), lambda count, seed: scipy.stats.ortho_group(3).rvs(count, random_state=seed)),
        (SpecialOrthogonal(4), lambda count, seed: scipy.stats.special_ortho_group(4).rvs(count, random_state=seed)),
        (SpecialOrthogonal(3), lambda count, seed: Rotation.random(count, seed).as_matrix()),
        (Unitary(3), lambda count, seed: scipy.stats.unitary_group(3).rvs(count, random_state=seed)),
    ],
    ids=["O(3)", "SO(4)", "SO(3) Rotation", "U(3)"],
)
def test_scipy_samplers(group: CompactLieGroup, law: Callable[[int, np.random.Generator], np.ndarray]) -> None:
    ours = group.sample(10_000, torch.Generator().manual_seed(4)).numpy()
    theirs = law(10_000, np.random.default_rng(4))
    for statistic in (
        lambda g: np.trace(g, axis1=1, axis2=2).real,
        lambda g: g[:, 0, -1].real,
        lambda g: np.linalg.det(g[:, :-1, :-1]).real,
        lambda g: np.trace(g @ g, axis1=1, axis2=2).real,
    ):
        assert scipy.stats.ks_2samp(statistic(ours), statistic(theirs)).pvalue > 1e-3


@pytest.mark.parametrize(
    "group",
    [make(n) for make in (Orthogonal, SpecialOrthogonal, Unitary) for n in (1, 2, 3, 4)] + [Torus(1), Torus(2)],
    ids=str,
)
def test_quadrature_against_null_spaces(group: CompactLieGroup) -> None:
    """dim (V^⊗p)^G by Weyl's formula equals the number of solutions of the invariance equations."""
    V = vectors(group)
    powers = [V, V * V, V * V.dual(), V * V * V, V * V.dual() * V, V * V * V * V, V * V.dual() * V * V.dual()]
    for W in [W for W in powers if W.dim <= 81]:
        assert invariant_dimension(W) == NullSpace(W).rank


def test_classical_invariants() -> None:
    """First main theorems: pairings for O(n), permutations for U(n), one determinant more for SO(n)."""
    V, W, U = vectors(Orthogonal(4)), vectors(SpecialOrthogonal(4)), vectors(Unitary(4))
    assert invariant_dimension(V * V * V * V) == 3
    assert invariant_dimension(W * W * W * W) == 4
    assert invariant_dimension(U * U * U * U.dual() * U.dual() * U.dual()) == 6
    assert invariant_dimension(U * U) == 0


@pytest.mark.parametrize("group", [Orthogonal(2), Orthogonal(3), SpecialOrthogonal(5), Unitary(3), Torus(2)], ids=str)
def test_quadrature_against_monte_carlo(group: CompactLieGroup) -> None:
    V = vectors(group)
    nodes, weights = group.class_quadrature(6)
    assert bool(group.contains(nodes).all())
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(weights.min()) >= 0
    samples = V.character(group.sample(40_000, torch.Generator().manual_seed(9)))
    for power in (1, 2, 4):
        values = samples.abs() ** power if power > 1 else samples.real
        node_values = V.character(nodes).abs() ** power if power > 1 else V.character(nodes).real
        error = float(values.std()) / math.sqrt(len(values))
        assert abs(float(values.mean() - weights @ node_values)) < 4 * error


def test_samples_are_seeded_and_batched() -> None:
    for group in GROUPS:
        first, second = (group.sample(3, torch.Generator().manual_seed(1)) for _ in range(2))
        assert torch.equal(first, second)
        assert group.sample(0).shape == (0, *group.element_shape)
        assert group.multiply(first[:, None], first).shape == (3, 3, *group.element_shape)


@pytest.mark.parametrize("make", [Orthogonal, SpecialOrthogonal, Unitary, Torus], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (3.0, TypeError), (True, TypeError), (math.nan, TypeError), (None, TypeError)],
    ids=str,
)
@pytest.mark.usefixtures("as_user")
def test_bad_dimensions(make: Callable[[object], CompactLieGroup], value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"[nk] must be .*got"):
        make(value)


@pytest.mark.parametrize("group", [Orthogonal(20), Unitary(12), Torus(30)], ids=str)
def test_too_large_quadratures(group: CompactLieGroup) -> None:
    with pytest.raises(ValueError, match="too large for a quadrature"):
        group.class_quadrature(8)


@pytest.mark.parametrize(
    ("group", "value", "error"),
    [
        (Orthogonal(2), torch.ones(2, 2), ValueError),
        (SpecialOrthogonal(2), torch.diag(torch.tensor([1.0, -1.0])), ValueError),
        (SpecialOrthogonal(3), torch.eye(2), ValueError),
        (SpecialOrthogonal(2), torch.full((2, 2), math.nan), ValueError),
        (SpecialOrthogonal(2), torch.eye(2, dtype=torch.int64), TypeError),
        (SpecialOrthogonal(2), torch.eye(2, dtype=torch.complex128), TypeError),
        (Unitary(2), torch.eye(2), TypeError),
        (Unitary(1), torch.tensor([[2j]]), ValueError),
        (Torus(2), torch.zeros(3), ValueError),
        (Torus(1), torch.tensor([math.inf]), ValueError),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_elements_of_no_group(group: CompactLieGroup, value: Tensor, error: type[Exception]) -> None:
    with pytest.raises(error, match="g must"):
        group.check("g", value)
    assert bool(group.contains(group.sample(5).to(torch.complex64 if group.dtype.is_complex else torch.float32)).all())
