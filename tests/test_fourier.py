"""The Fourier transform on groups: definitions, theorems, norms against dense oracles, derivatives, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import motions
from lib.symmetry.fourier import GroupFourier, effective_rank, fourier_rank, schatten_norm, spectrum
from lib.symmetry.generated import frobenius, quaternions_on_plane
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric

GROUPS = [
    Cyclic(1),
    Cyclic(7),
    DirectProduct(Cyclic(2), Cyclic(6)),
    Dihedral(5),
    Symmetric(4),
    Alternating(4),
    Quaternion(8),
    frobenius(7, 3),
    motions(3, Dihedral(4)),
    DirectProduct(Symmetric(3), Cyclic(2)),
]
TRANSFORMS = {group.name: GroupFourier(group) for group in GROUPS}


def convolution_matrices(group: FiniteGroup, f: Tensor) -> Tensor:
    """Return the matrices f(uv⁻¹) of w ↦ f∗w."""
    u = group.elements()
    return f[..., group.index(group.multiply(u[:, None], group.inverse(u)))]


def random_functions(group: FiniteGroup, *batch: int, seed: int = 0, complex_: bool = False) -> Tensor:
    dtype = torch.complex128 if complex_ else torch.float64
    return torch.randn(*batch, group.order, dtype=dtype, generator=torch.Generator().manual_seed(seed))


by_group = pytest.mark.parametrize("fourier", TRANSFORMS.values(), ids=TRANSFORMS)


@by_group
def test_definition_and_inverse(fourier: GroupFourier) -> None:
    f = random_functions(fourier.group, 2, 3, complex_=True)
    rho = fourier.irreducibles.matrices(fourier.group.elements())
    blocks = fourier.forward(f)
    for block, r in zip(blocks, rho, strict=True):
        assert torch.allclose(block, torch.einsum("abu,unij->abnij", f, r), atol=1e-12)
    assert torch.allclose(fourier.inverse(blocks), f, atol=1e-13)


@by_group
def test_every_set_of_blocks_is_a_transform(fourier: GroupFourier) -> None:
    generator = torch.Generator().manual_seed(1)
    blocks = [
        torch.randn(2, n, d, d, dtype=torch.complex128, generator=generator)
        for n, d in zip(fourier.counts, fourier.dims, strict=True)
    ]
    for again, block in zip(fourier.forward(fourier.inverse(blocks)), blocks, strict=True):
        assert torch.allclose(again, block, atol=1e-12)


@by_group
def test_convolution_theorem(fourier: GroupFourier) -> None:
    h, w = random_functions(fourier.group, 2)
    summed = convolution_matrices(fourier.group, h) @ w
    assert torch.allclose(fourier.convolve(h, w), summed, atol=1e-12)
    assert not fourier.convolve(h, w).is_complex()
    products = [a @ b for a, b in zip(fourier.forward(h), fourier.forward(w), strict=True)]
    for a, b in zip(fourier.forward(summed), products, strict=True):
        assert torch.allclose(a, b, atol=1e-11)


@by_group
def test_translations_multiply(fourier: GroupFourier) -> None:
    """f(g⁻¹u) has the coefficients ρ(g)f̂(ρ)."""
    group = fourier.group
    f, g = random_functions(group), group.sample(1, torch.Generator().manual_seed(2))[0]
    moved = f[group.index(group.multiply(group.inverse(g), group.elements()))]
    rho = fourier.irreducibles.matrices(g)
    for a, r, b in zip(fourier.forward(moved), rho, fourier.forward(f), strict=True):
        assert torch.allclose(a, r @ b, atol=1e-12)


@by_group
def test_spectrum_is_that_of_the_convolution_matrix(fourier: GroupFourier) -> None:
    f = random_functions(fourier.group)
    values, weights = spectrum(fourier.forward(f))
    assert float(weights.sum()) == fourier.order
    repeated = values.repeat_interleave(weights.long()).sort(descending=True).values
    dense = torch.linalg.svdvals(convolution_matrices(fourier.group, f))
    assert torch.allclose(repeated, dense, atol=1e-12)


@by_group
def test_plancherel(fourier: GroupFourier) -> None:
    f = random_functions(fourier.group, 4)
    norm = schatten_norm(fourier.forward(f), 2.0)
    assert torch.allclose(norm, math.sqrt(fourier.order) * f.norm(dim=-1), rtol=1e-12)


@by_group
def test_fast_transform_keeps_to_float32(fourier: GroupFourier) -> None:
    f = random_functions(fourier.group).float()
    blocks = fourier.forward(f)
    assert {block.dtype for block in blocks} == {torch.complex64}
    assert torch.allclose(fourier.inverse(blocks).real, f, atol=1e-5)


@given(st.integers(0, 5), st.floats(0.3, 4.0))
def test_schatten_norm_against_the_dense_matrix(place: int, p: float) -> None:
    fourier = list(TRANSFORMS.values())[place]
    f = random_functions(fourier.group, seed=place)
    dense = np.linalg.svd(convolution_matrices(fourier.group, f).numpy(), compute_uv=False)
    assert float(schatten_norm(fourier.forward(f), p)) == pytest.approx(float((dense**p).sum() ** (1 / p)), rel=1e-9)


def test_ranks_of_special_functions() -> None:
    """Constants have rank 1; a point mass has full rank; a subgroup of index k has rank k, all of one size."""
    group = Symmetric(4)
    fourier, g = TRANSFORMS["S4"], group.elements()
    constant = torch.ones(24, dtype=torch.float64)
    point = torch.eye(24, dtype=torch.float64)[5]
    stabiliser = (g[:, 0] == 0).double()  # index 4
    blocks = fourier.forward(torch.stack([constant, point, stabiliser]))
    assert fourier_rank(blocks).tolist() == [1, 24, 4]
    assert effective_rank(blocks).tolist() == pytest.approx([1, 24, 4])


@by_group
def test_effective_rank_is_below_the_rank(fourier: GroupFourier) -> None:
    f = random_functions(fourier.group, 5)
    blocks = fourier.forward(f)
    assert bool((effective_rank(blocks) <= fourier_rank(blocks) + 1e-9).all())
    values, weights = spectrum(blocks)
    repeated = values.repeat_interleave(weights.long(), dim=-1)
    oracle = torch.distributions.Categorical(probs=repeated).entropy().exp()
    assert torch.allclose(effective_rank(blocks), oracle, rtol=1e-6)


@pytest.mark.parametrize("p", [0.5, 2 / 3, 1.0])
def test_gradient_of_the_schatten_norm(p: float) -> None:
    fourier = TRANSFORMS["F21"]
    f = random_functions(fourier.group).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: schatten_norm(fourier.forward(x), p), f)
    assert torch.autograd.gradcheck(lambda x: fourier.convolve(x, x), f)


def test_order_6272() -> None:
    """Against the definition on a few elements, and back; the dense transform would have 39 million entries."""
    group = motions(28, Dihedral(4))
    fourier = GroupFourier(group)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randperm(group.order, generator=generator)[:20]
    f = torch.zeros(group.order, dtype=torch.float64)
    f[numbers] = torch.randn(20, dtype=torch.float64, generator=generator)
    f.requires_grad_()
    blocks = fourier.forward(f)
    for block, rho in zip(blocks, fourier.irreducibles.matrices(group.element(numbers)), strict=True):
        assert torch.allclose(block, torch.tensordot(f[numbers].to(rho), rho, dims=1), atol=1e-12)
    assert torch.allclose(fourier.inverse(blocks).real, f, atol=1e-13)
    schatten_norm(blocks, 1.0).backward()
    assert bool(torch.isfinite(f.grad).all())


def test_weights_matter() -> None:
    """Without the weight d_ρ the 2-norm is not Plancherel's, on a nonabelian group; on an abelian one it is."""
    for name, same in (("S4", False), ("C7", True)):
        fourier = TRANSFORMS[name]
        f = random_functions(fourier.group)
        values, _ = spectrum(fourier.forward(f))
        unweighted = float(values.square().sum().sqrt())
        assert math.isclose(unweighted, math.sqrt(fourier.order) * float(f.norm()), rel_tol=1e-9) == same


def test_mixed_order_of_factors_is_noticed() -> None:
    """(h∗w)^ = ĥŵ and not ŵĥ: the order tells on a nonabelian group."""
    fourier = GroupFourier(quaternions_on_plane())
    h, w = random_functions(fourier.group, 2)
    swapped = fourier.inverse([b @ a for a, b in zip(fourier.forward(h), fourier.forward(w), strict=True)]).real
    assert float((fourier.convolve(h, w) - swapped).abs().max()) > 0.1


@pytest.mark.parametrize(
    "wrong", [torch.zeros(9), torch.zeros(10).long(), torch.full((10,), math.nan), torch.zeros(0, 10)], ids=str
)
def test_what_is_no_function_on_the_group_is_refused(wrong: Tensor) -> None:
    with pytest.raises((TypeError, ValueError), match=r"f must"):
        TRANSFORMS["D5"].forward(wrong)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rank_of_a_constant_is_one_in_any_precision(n: int, dtype: torch.dtype) -> None:
    fourier = GroupFourier(Symmetric(n))
    assert int(fourier_rank(fourier.forward(torch.ones(fourier.order, dtype=dtype)))) == 1


def test_powers_stay_within_the_range_of_the_dtype() -> None:
    """The only nonzero coefficient of the constant on S3 is 6."""
    blocks = GroupFourier(Symmetric(3)).forward(torch.ones(6))
    for p in (2.0, 50.0, 1000.0):
        assert float(schatten_norm(blocks, p)) == pytest.approx(6, rel=1e-5)
        assert float(schatten_norm([1e30 * b for b in blocks], p)) == pytest.approx(6e30, rel=1e-4)
