"""Symmetrization of functions and of measures: adjointness, projection, contraction, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import natural, pixels, planar, regular, trivial, vectors
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Quaternion, Symmetric
from lib.symmetry.lie import SpecialOrthogonal, Torus
from lib.symmetry.representations import Representation
from lib.symmetry.symmetrization import symmetrize_function
from tests.axioms import assert_equivariant, equivariance_error
from tests.catalogue import elements, frobenius_21, phase, random_vectors, spinor
from tests.oracles import symmetrize_measure

CASES = [
    planar(Dihedral(5)),
    pixels(Cyclic(4), 3),
    natural(Symmetric(4)),
    regular(Quaternion(8)),
    regular(frobenius_21()),
    planar(Cyclic(7)) + trivial(Cyclic(7)),
]


def random_network(source: int, target: int | None, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """Return a random network with one hidden layer; scalar-valued without a last axis if ``target`` is ``None``."""
    generator = torch.Generator().manual_seed(seed)
    w1, w2 = (torch.randn(s, dtype=torch.float64, generator=generator) for s in ((source, 16), (16, target or 1)))

    def network(x: Tensor) -> Tensor:
        y = torch.tanh(x @ w1.to(x) + 0.3) @ w2.to(x)
        return y if target else y[..., 0]

    return network


@given(st.sampled_from(CASES), st.integers(0, 99))
def test_adjointness(V: Representation, seed: int) -> None:
    """E_{S^Σ P} f = E_P S_Σ f for a weighted measure P."""
    f, x = random_network(V.dim, None, seed), random_vectors(V, 9, seed=seed)
    weights = torch.softmax(random_vectors(trivial(V.group, 9), seed=seed), 0)
    spread, mass = symmetrize_measure(x, V, weights)
    assert spread.shape == (9 * V.group.order, V.dim)
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(mass @ f(spread)) == pytest.approx(float(weights @ symmetrize_function(f, V)(x)), abs=1e-12)


@given(st.sampled_from(CASES), st.integers(0, 99))
def test_projection_and_contraction(V: Representation, seed: int) -> None:
    f, x = random_network(V.dim, None, seed), random_vectors(V, 9, seed=seed)
    once = symmetrize_function(f, V)
    assert torch.allclose(symmetrize_function(once, V)(x), once(x), rtol=0, atol=1e-13)
    spread, mass = symmetrize_measure(x, V)
    assert float(mass @ once(spread) ** 2) <= float(mass @ f(spread) ** 2) * (1 + 1e-12)
    assert_equivariant(once, V, None, x, V.group.elements(), 1e-11)
    assert equivariance_error(f, V, None, x, V.group.elements()) > 1e-3


@given(st.sampled_from(CASES), st.integers(0, 99))
def test_feature_averages_are_equivariant(V: Representation, seed: int) -> None:
    f, x = random_network(V.dim, V.dim, seed), random_vectors(V, 5, seed=seed)
    averaged = symmetrize_function(f, V, V)
    assert_equivariant(averaged, V, V, x, V.group.elements(), 1e-11)
    assert averaged(x.float()).dtype == torch.float32
    with pytest.raises(AssertionError, match="misses the tolerance"):
        assert_equivariant(f, V, V, x, V.group.elements(), 1e-11)


@pytest.mark.parametrize("V", CASES, ids=repr)
def test_symmetrized_measures_are_invariant(V: Representation) -> None:
    """Moving all points permutes them: the sums of a generic function over the cloud stay."""
    x = random_vectors(V, 4)
    spread, mass = symmetrize_measure(x, V)
    f = random_network(V.dim, None)
    expected = float(mass @ f(spread))
    for g in elements(V.group, 3):
        assert float(mass @ f(V.apply(g, spread))) == pytest.approx(expected, abs=1e-12)
    twice, mass = symmetrize_measure(spread, V, mass)
    assert float(mass @ f(twice)) == pytest.approx(expected, abs=1e-12)


def test_inputs_that_are_matrices() -> None:
    """Functions of linear maps: the determinant and the trace are invariant, a corner entry averages to the mean."""
    V = natural(Symmetric(4))
    H, A = Hom(V, V), random_vectors(Hom(V, V), 3, 2)
    assert torch.allclose(symmetrize_function(torch.linalg.det, H)(A), torch.linalg.det(A), rtol=0, atol=1e-12)
    corner = symmetrize_function(lambda B: B[..., 0, 0], H)
    assert torch.allclose(corner(A), torch.diagonal(A, dim1=-2, dim2=-1).mean(-1), rtol=0, atol=1e-13)
    assert corner(A[0, 0]).shape == ()


def test_sampled_averages_on_a_lie_group() -> None:
    """The average of (u·x)² over rotations is |u|²|x|²/3."""
    V = vectors(SpecialOrthogonal(3))
    u, x = random_vectors(V, seed=1), random_vectors(V, 6)
    sampled = symmetrize_function(lambda y: (y @ u) ** 2, V, elements=elements(V.group, 50_000))
    assert torch.allclose(sampled(x), u.square().sum() * x.square().sum(-1) / 3, rtol=0.03, atol=0)


def test_derivatives_flow_through() -> None:
    V = planar(Dihedral(3))
    averaged = symmetrize_function(random_network(2, 2), V, V)
    assert torch.autograd.gradcheck(averaged, (random_vectors(V, 3).requires_grad_(True),))
    assert torch.allclose(torch.func.vmap(averaged)(random_vectors(V, 3)), averaged(random_vectors(V, 3)), atol=1e-13)


def test_complex_representations() -> None:
    V = spinor(Quaternion(8))
    x = random_vectors(V, 5)
    averaged = symmetrize_function(lambda y: y + y.conj() * y.abs(), V, V)
    assert_equivariant(averaged, V, V, x, V.group.elements())


P5, x5 = planar(Cyclic(5)), torch.ones(3, 2)
T1 = vectors(Torus(1))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: symmetrize_function(None, P5), TypeError, "f must be a function, got None"),
        (lambda: symmetrize_function(len, Cyclic(5)), TypeError, "source must be a Representation, got C5"),
        (lambda: symmetrize_function(len, P5, 5), TypeError, "target must be a Representation, got 5"),
        (lambda: symmetrize_function(len, P5, planar(Cyclic(4))), ValueError, "of one group, got C5 and C4"),
        (lambda: symmetrize_function(len, T1), TypeError, "elements must be given, T1 is not finite"),
        (lambda: symmetrize_function(len, P5, elements=torch.tensor([[5]])), ValueError, "elements must hold elements"),
        (
            lambda: symmetrize_function(len, P5, elements=torch.ones(0, 1).long()),
            ValueError,
            r"elements must have shape",
        ),
        (lambda: symmetrize_function(len, P5, elements=torch.tensor([1])), ValueError, r"elements must have shape \(n"),
        (lambda: symmetrize_function(len, P5, elements=[0, 1]), TypeError, "elements must be a torch.Tensor, got list"),
        (
            lambda: symmetrize_function(len, P5, weights=torch.ones(4)),
            ValueError,
            r"weights must have shape \(..., 5\)",
        ),
        (
            lambda: symmetrize_function(len, P5, weights=torch.full((5,), math.nan)),
            ValueError,
            "weights must be finite",
        ),
        (
            lambda: symmetrize_function(len, P5, weights=torch.ones(5).long()),
            TypeError,
            "weights must be of a floating",
        ),
        (lambda: symmetrize_function(len, P5, weights=torch.ones(2, 5)), ValueError, r"weights must have shape \(5,\)"),
        (lambda: symmetrize_function(len, P5, weights=torch.ones(5)), ValueError, "with sum 1, got .* a sum of 5"),
        (lambda: symmetrize_function(torch.sum, P5)(torch.ones(3)), ValueError, r"x must have shape \(..., 2\)"),
        (lambda: symmetrize_function(torch.sum, P5)([1.0, 2.0]), TypeError, "x must be a torch.Tensor, got list"),
        (lambda: symmetrize_function(lambda y: y.argmax(-1), P5)(x5), TypeError, r"f\(x\) must be of a floating-point"),
        (lambda: symmetrize_function(lambda y: y / 0, P5)(x5), ValueError, r"f\(x\) must be finite"),
        (lambda: symmetrize_function(torch.sum, phase(Cyclic(5), 1))(torch.ones(1)), TypeError, "x must be complex"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
