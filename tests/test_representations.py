"""Representations: what all of them promise, over random combinations of all kinds, and what they refuse."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import natural, pixels, planar, regular, trivial, vectors
from lib.symmetry.derived import Hom, Restriction
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import invariant_dimension, projection
from lib.symmetry.lie import SpecialOrthogonal, Torus
from lib.symmetry.representations import (
    DirectSum,
    MatrixRepresentation,
    PermutationRepresentation,
    Representation,
)
from tests.axioms import assert_representation, check_representation
from tests.catalogue import LEAVES, RECIPES, Recipe, build, elements, phase, random_vectors


@pytest.mark.parametrize("V", [V for row in LEAVES for V in row], ids=repr)
def test_leaves(V: Representation) -> None:
    assert_representation(V, 1e-12)


@given(RECIPES, st.integers(0, 1000))
def test_combinations(recipe: Recipe, seed: int) -> None:
    V = build(recipe)
    assert_representation(V, 1e-11, samples=6, seed=seed)
    assert V.matrix(elements(V.group, 2)).dtype == (torch.complex128 if V.is_complex else torch.float64)
    assert V.dual().dim == V.dim


@given(RECIPES, st.integers(0, 1000))
def test_float32(recipe: Recipe, seed: int) -> None:
    V = build(recipe)
    assert check_representation(V, samples=4, seed=seed, dtype=torch.float32)["apply"] < 1e-4
    assert V.apply(elements(V.group, 3), random_vectors(V, 3, dtype=torch.float32)).dtype.itemsize in (4, 8)
    assert V.apply(elements(V.group, 3), random_vectors(V, 3, dtype=torch.float32)).dtype.to_real() == torch.float32


@given(RECIPES, st.integers(0, 1000))
def test_batches_broadcast(recipe: Recipe, seed: int) -> None:
    V = build(recipe, 30)
    g, x = elements(V.group, 3, seed), random_vectors(V, 2, seed=seed)
    together = V.apply(V.group.unsqueeze(g), x)
    assert together.shape == (3, 2, *V.shape)
    for i in range(3):
        assert torch.allclose(together[i], V.apply(g[i], x), rtol=0, atol=1e-12)
        assert torch.allclose(together[i, 1], V.apply(g[i], x[1]), rtol=0, atol=1e-12)
    assert V.character(V.group.unsqueeze(g)).shape == (3, 1)
    assert V.apply(g[:0], x[:0]).shape == (0, *V.shape)


@given(RECIPES)
def test_derivatives_flow_through(recipe: Recipe) -> None:
    V = build(recipe, 30)
    g, x = elements(V.group, 1)[0], random_vectors(V, 2).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda y: V.apply(g, y), (x,))


def test_vectorised_map() -> None:
    V = Hom(natural(Symmetric(4)), natural(Symmetric(4)))
    g, x = elements(V.group, 5), random_vectors(V, 5)
    assert torch.equal(torch.func.vmap(V.apply)(g, x), V.apply(g, x))


@given(st.sampled_from(LEAVES), st.data())
def test_characters_of_combinations(leaves: list[Representation], data: st.DataObject) -> None:
    V, W = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from(leaves))
    g = elements(V.group, 5)
    a, b, back = V.character(g), W.character(g), V.character(V.group.inverse(g))
    for combined, expected in [(V + W, a + b), (V * W, a * b), (V.dual(), back), (Hom(V, W), b * back)]:
        assert torch.allclose(combined.character(g), expected.to(combined.character(g)), rtol=0, atol=1e-12)


@given(st.sampled_from(LEAVES), st.data())
def test_hom_acts_by_conjugation(leaves: list[Representation], data: st.DataObject) -> None:
    V, W = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from(leaves))
    H, g = Hom(V, W), elements(V.group, 4)
    A = random_vectors(H, 4)
    expected = W.matrix(g).to(A) @ A @ V.matrix(V.group.inverse(g)).to(A)
    assert torch.allclose(H.apply(g, A), expected, rtol=0, atol=1e-11)


def test_kernels_keep_their_axes() -> None:
    """Hom ⊗ pixels moves kernels of shape (dim W, dim V, p) as W ⊗ V ⊗ pixels moves their entries."""
    V, P = regular(Cyclic(4)), pixels(Cyclic(4), 3)
    K, flat = Hom(V, V + V) * P, (V + V) * V * P
    assert K.shape == (8, 4, 9)
    g, x = V.group.elements(), torch.randn(5, 1, 8, 4, 9, generator=torch.Generator().manual_seed(0))
    moved = flat.apply(g, x.reshape(5, 1, -1))
    assert torch.equal(K.apply(g, x).flatten(2), moved)
    assert projection(K)(x).shape == x.shape
    with pytest.raises(ValueError, match=r"x must have shape \(..., 8, 4, 9\), got"):
        K.apply(g, x.flatten(2))


def test_duals_keep_their_axes() -> None:
    V = planar(Cyclic(4))
    H = Hom(V, V)
    for W in (H, H * V, Restriction(H, Cyclic(2), lambda h: 2 * h)):
        g, rng = W.group.elements(), torch.Generator().manual_seed(0)
        x, xi = torch.randn(2, 1, *W.shape, dtype=torch.float64, generator=rng)
        assert W.dual().shape == W.dual().dual().shape == W.shape
        pairing = (W.dual().apply(g, xi) * W.apply(g, x)).flatten(1).sum(-1)
        assert torch.allclose(pairing, (xi * x).sum().expand_as(pairing))


def test_permutations_are_kept() -> None:
    V = natural(Symmetric(6))
    kept = [V + V, V * V, V.dual(), Hom(V * V, V + V), DirectSum(V, V, trivial(V.group))]
    assert all(W.is_permutation for W in kept)
    assert not (V + planar_of_s6()).is_permutation
    assert V.apply(torch.tensor([1, 0, 2, 3, 4, 5]), torch.arange(6)).tolist() == [1, 0, 2, 3, 4, 5]


def planar_of_s6() -> Representation:
    return MatrixRepresentation(Symmetric(6), 1, lambda g: torch.ones(*g.shape[:-1], 1, 1, dtype=torch.float64), "one")


def euler_angles(g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return angles with g = R_y(α) R_x(β) R_y(γ), to full accuracy also near the poles."""
    polar = torch.atan2(torch.hypot(g[..., 0, 1], g[..., 2, 1]), g[..., 1, 1])
    first = torch.atan2(g[..., 0, 1], g[..., 2, 1])
    rest = torch.stack([g[..., 0, i] * first.cos() - g[..., 2, i] * first.sin() for i in (2, 0)])
    return first, polar, torch.atan2(rest[0], rest[1])


@pytest.fixture
def default_float64() -> Iterator[None]:
    """Make float64 the default, in which e3nn then computes its generators."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("default_float64")
def test_wigner_matrices_of_e3nn() -> None:
    """The matrices of e3nn are representations of SO(3), and decompose tensor powers as Clebsch and Gordan say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from e3nn import o3
    group = SpecialOrthogonal(3)
    V = vectors(group)
    irreps = [
        MatrixRepresentation(group, 2 * l + 1, lambda g, l=l: o3.wigner_D(l, *euler_angles(g)), f"D{l}")
        for l in range(4)
    ]
    for D in irreps:
        angles = torch.linspace(0.1, 3.0, 7, dtype=torch.float64)
        turn = group.exp(angles[:, None, None] * group.lie_algebra()[0])
        expected = torch.sin((D.dim / 2) * angles) / torch.sin(angles / 2)
        assert torch.allclose(D.character(turn), expected, rtol=0, atol=1e-9)
    table = [[invariant_dimension(Hom(D, W)) for D in irreps] for W in (V, V * V, V * V * V)]
    assert table == [[0, 1, 0, 0], [1, 1, 1, 0], [1, 3, 2, 1]]


def test_restriction_to_a_torus() -> None:
    """SO(3) restricted to its maximal torus: the plane turns, the axis stays."""
    group, torus = SpecialOrthogonal(3), Torus(1)
    V = Restriction(vectors(group), torus, lambda t: group.exp(t[..., None] * group.lie_algebra()[0]))
    assert_representation(V)
    assert [invariant_dimension(W) for W in (V, V * V)] == [1, 3]


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


def broken_images(g: Tensor) -> Tensor:
    """Return π_g⁻¹ instead of π_g: an antihomomorphism."""
    return torch.argsort(g, -1)


def wrong_at_one_element(g: Tensor) -> Tensor:
    """Return a sign that multiplies wrongly at a single element of C50."""
    return (1.0 - 2.0 * (g == 31).double())[..., None]


C2, C4, C50, S3 = Cyclic(2), Cyclic(4), Cyclic(50), Symmetric(3)
ROTATE = planar(C4).matrix


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PermutationRepresentation(S3, 4, lambda g: g, "V"), "images must return permutations of 4"),
        (lambda: PermutationRepresentation(S3, 3, lambda g: 0 * g, "V"), "images must return permutations"),
        (lambda: PermutationRepresentation(S3, 3, lambda g: g[0], "V"), "images must return permutations"),
        (lambda: PermutationRepresentation(S3, 3, broken_images, "V"), "images must be a homomorphism of S3"),
        (lambda: PermutationRepresentation(S3, 3, lambda g: g.double(), "V"), "torch.int64 of .*got torch.float64"),
        (lambda: MatrixRepresentation(C4, 3, ROTATE, "V"), r"matrices\(g\) must be .* of shape \(., 3, 3\), got"),
        (lambda: MatrixRepresentation(C4, 2, lambda g: torch.eye(2).double(), "V"), "of shape"),
        (
            lambda: MatrixRepresentation(C4, 2, lambda g: ROTATE(g).float(), "V"),
            "torch.float64 or .* got torch.float32",
        ),
        (lambda: MatrixRepresentation(C4, 2, lambda g: ROTATE(g) * math.nan, "V"), "homomorphism of C4.* nan"),
        (lambda: MatrixRepresentation(C4, 2, lambda g: 2 * ROTATE(g), "V"), "homomorphism of C4"),
        (lambda: MatrixRepresentation(C4, 2, lambda g: 0 * ROTATE(g), "V", unitary=False), "homomorphism"),
        (lambda: MatrixRepresentation(C50, 1, wrong_at_one_element, "V"), "homomorphism of C50"),
        (lambda: MatrixRepresentation(C2, 2, sheared, "V"), "must be unitary: .*unitary=False"),
        (lambda: Hom(natural(S3), regular(C4)), "source and target must be representations of one group, got"),
        (lambda: natural(S3) + regular(C4), r"summands must be .* of one group, got \['S3', 'C4'\]"),
        (lambda: DirectSum(), "summands must be representations of one group"),
        (lambda: Restriction(natural(S3), C2, lambda h: h), r"embed\(g\) must have shape \(..., 3\)"),
        (lambda: Restriction(natural(S3), C2, lambda h: 0 * h + torch.tensor([0, 0, 1])), r"embed\(g\) must"),
        (lambda: Restriction(natural(S3), C4, lambda h: (torch.arange(3) + h) % 3), "embed must be a homom"),
    ],
)
def test_no_representations(make: Callable[[], Representation], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def sheared(g: Tensor) -> Tensor:
    """Return a reflection along a slanted axis."""
    return torch.stack([torch.eye(2), torch.tensor([[1.0, 1.0], [0.0, -1.0]])]).double()[g[..., 0]]


ROTATION, PHASE, SPACE = planar(Dihedral(4)), phase(Cyclic(6), 1), vectors(SpecialOrthogonal(3))


@pytest.mark.parametrize(
    ("V", "g", "x", "error", "message"),
    [
        (ROTATION, torch.tensor([1, 0]), [1.0, 2.0], TypeError, "x must be a torch.Tensor, got list"),
        (ROTATION, torch.tensor([1, 0]), torch.ones(3), ValueError, r"x must have shape \(..., 2\), got \(3,\)"),
        (ROTATION, torch.tensor([1, 0]), torch.tensor(1.0), ValueError, r"x must have shape \(..., 2\), got \(\)"),
        (ROTATION, torch.tensor([1, 0]), torch.tensor([1, 2]), TypeError, "x must be of a floating.* got torch.int64"),
        (ROTATION, torch.tensor([1, 0]), torch.tensor([1.0, math.nan]), ValueError, "x must be finite, got NaN"),
        (ROTATION, torch.tensor([1, 0]), torch.tensor([1.0, math.inf]), ValueError, "x must be finite, got NaN"),
        (ROTATION, torch.tensor([4, 0]), torch.ones(2), ValueError, "g must hold elements of D4"),
        (ROTATION, torch.tensor([1, 0, 0]), torch.ones(2), ValueError, r"g must have shape \(..., 2\), got \(3,\)"),
        (
            ROTATION,
            torch.tensor([1.0, 0.0]),
            torch.ones(2),
            TypeError,
            "g must hold elements of D4, of dtype torch.int64",
        ),
        (ROTATION, 1, torch.ones(2), TypeError, "g must be a torch.Tensor, got int"),
        (
            PHASE,
            torch.tensor([1]),
            torch.ones(1),
            TypeError,
            "x must be complex for the complex representation χ1, got",
        ),
        (SPACE, torch.ones(3, 3), torch.ones(3), ValueError, r"g must hold elements of SO\(3\)"),
        (Hom(SPACE, SPACE), torch.eye(3), torch.ones(9), ValueError, r"x must have shape \(..., 3, 3\), got \(9,\)"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_no_vectors(V: Representation, g: Tensor, x: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        V.apply(g, x)
