"""Group convolution on A ⋊ H against the definition, the convolution theorem, and its own laws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lib.symmetry.actions import motions, translations
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.group_convolution import GroupConvolution, cyclic_moduli
from lib.symmetry.groups import (
    Alternating,
    Cyclic,
    Dihedral,
    DirectProduct,
    FiniteGroup,
    Quaternion,
    SemidirectProduct,
    Symmetric,
)
from tests.catalogue import frobenius_21


def broadcast(*parts: Tensor) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*parts), -1)


def sheared() -> SemidirectProduct:
    """(C2×C4) ⋊ C2 by (a, b) ↦ (a, b + 2a): the characters move by another matrix than the elements."""

    def action(h: Tensor, n: Tensor) -> Tensor:
        return broadcast(n[..., 0], (n[..., 1] + 2 * n[..., 0] * h[..., 0]) % 4)

    return SemidirectProduct(DirectProduct(Cyclic(2), Cyclic(4)), Cyclic(2), action, "(C2×C4)⋊C2 sheared")


def folded() -> SemidirectProduct:
    """(C2×C4) ⋊ C2 by (a, b) ↦ (a + b, b): from a factor of order four to one of order two."""

    def action(h: Tensor, n: Tensor) -> Tensor:
        return broadcast((n[..., 0] + n[..., 1] * h[..., 0]) % 2, n[..., 1])

    return SemidirectProduct(DirectProduct(Cyclic(2), Cyclic(4)), Cyclic(2), action, "(C2×C4)⋊C2 folded")


def wreath() -> SemidirectProduct:
    """C3³ ⋊ S3, permuting the factors: a complement that is not abelian, three cyclic factors of odd order."""

    def action(h: Tensor, n: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(h.shape[:-1], n.shape[:-1])
        return torch.gather(n.expand(*shape, 3), -1, torch.argsort(h, -1).expand(*shape, 3))

    cube = DirectProduct(DirectProduct(Cyclic(3), Cyclic(3)), Cyclic(3))
    return SemidirectProduct(cube, Symmetric(3), action, "C3≀S3")


GROUPS = [
    *[Cyclic(1), Cyclic(2), Cyclic(9), translations(4), DirectProduct(Cyclic(3), Cyclic(4))],
    *[Dihedral(1), Dihedral(2), Dihedral(7), Dihedral(8), motions(3), motions(4, Dihedral(4))],
    *[DirectProduct(translations(3), Dihedral(4)), frobenius_21(), sheared(), folded(), wreath()],
]


def by_definition(group: FiniteGroup, h: Tensor, w: Tensor) -> Tensor:
    """Return Σ_v h(uv⁻¹) w(v), term by term."""
    g = group.elements()
    return torch.stack([(h[..., group.index(group.multiply(u, group.inverse(g)))] * w).sum(-1) for u in g], -1)


def functions(group: FiniteGroup, *shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, group.order, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_agrees_with_the_definition(group: FiniteGroup) -> None:
    h, w = functions(group, (2, 1), (3,))
    out = GroupConvolution(group)(h, w)
    assert out.shape == (2, 3, group.order)
    assert torch.allclose(out, by_definition(group, h, w), rtol=0, atol=1e-12)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_both_orders_and_the_adjoint(group: FiniteGroup) -> None:
    convolve = GroupConvolution(group)
    h, w, f = functions(group, (), (), ())
    assert torch.allclose(convolve(w, h), by_definition(group, w, h), rtol=0, atol=1e-12)
    assert torch.allclose(convolve.reflect(convolve(h, w)), convolve(convolve.reflect(w), convolve.reflect(h)))
    assert torch.allclose(convolve(h, w) @ f, h @ convolve.correlate(f, w))
    assert torch.equal(convolve.reflect(convolve.reflect(f)), f)


@pytest.mark.parametrize("group", [Dihedral(8), motions(4, Dihedral(4)), frobenius_21()], ids=str)
def test_agrees_with_the_convolution_theorem(group: FiniteGroup) -> None:
    h, w = functions(group, (2,), ())
    assert torch.allclose(GroupConvolution(group)(h, w), GroupFourier(group).convolve(h, w), rtol=0, atol=1e-11)


def test_full_size_against_the_convolution_theorem() -> None:
    group = motions(28, Dihedral(4))
    h, w = functions(group, (), ())
    out = GroupConvolution(group)(h, w)
    assert torch.allclose(out, GroupFourier(group).convolve(h, w), rtol=0, atol=1e-9)
    wrong = GroupConvolution(DirectProduct(translations(28), Dihedral(4)))(h, w)
    assert float((out - wrong).norm() / out.norm()) > 1  # the product of the same factors is another group


@given(st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_commutes_with_translations(n: int, seed: int) -> None:
    group = Dihedral(n)
    convolve, g = GroupConvolution(group), group.elements()
    h, w = functions(group, (), (), seed=seed)
    k = g[seed % group.order]
    left, right = group.index(group.multiply(group.inverse(k), g)), group.index(group.multiply(g, k))
    assert torch.allclose(convolve(h[left], w), convolve(h, w)[left])
    assert torch.allclose(convolve(h, w[right]), convolve(h, w)[right])


def test_does_not_commute_with_translations_on_the_other_sides() -> None:
    group = Dihedral(7)
    convolve, g = GroupConvolution(group), group.elements()
    h, w = functions(group, (), ())
    k = torch.tensor([1, 1])
    left, right = group.index(group.multiply(group.inverse(k), g)), group.index(group.multiply(g, k))
    assert float((convolve(h[right], w) - convolve(h, w)[right]).norm()) > 1
    assert float((convolve(h, w[left]) - convolve(h, w)[left]).norm()) > 1


@given(st.sampled_from(GROUPS), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_is_an_associative_algebra_with_unit(group: FiniteGroup, seed: int) -> None:
    convolve = GroupConvolution(group)
    h, w, f = functions(group, (), (), (), seed=seed)
    unit = torch.zeros(group.order, dtype=torch.float64)
    unit[group.index(group.identity())] = 1
    assert torch.allclose(convolve(h, unit), h, rtol=0, atol=1e-12)
    assert torch.allclose(convolve(unit, h), h, rtol=0, atol=1e-12)
    assert torch.allclose(convolve(convolve(h, w), f), convolve(h, convolve(w, f)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("group", [Cyclic(5), Dihedral(4), motions(2), folded()], ids=str)
def test_derivatives(group: FiniteGroup) -> None:
    h, w = (f.requires_grad_(True) for f in functions(group, (2,), ()))
    assert torch.autograd.gradcheck(GroupConvolution(group), (h, w))
    assert torch.autograd.gradgradcheck(GroupConvolution(group), (h, w))


def test_keeps_single_precision() -> None:
    group = motions(8, Dihedral(4))
    h, w = functions(group, (3,), ())
    out = GroupConvolution(group)(h.float(), w.float())
    assert out.dtype == torch.float32
    assert torch.allclose(out.double(), GroupConvolution(group)(h, w), rtol=0, atol=1e-4)


def test_memory_and_work_stay_far_below_the_square_of_the_order() -> None:
    """The largest tensor in forward and backward has a small multiple of |G| |H| entries, nowhere |G|²."""
    group, largest = motions(28, Dihedral(4)), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(out):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel())
            return out

    h, w = (f.requires_grad_(True) for f in functions(group, (), ()))
    convolve = GroupConvolution(group)
    with Watch():
        convolve(h, w).square().sum().backward()
    assert largest <= 4 * 8 * group.order


def test_moduli() -> None:
    assert cyclic_moduli(Cyclic(6)) == (6,)
    assert cyclic_moduli(DirectProduct(translations(3), Cyclic(2))) == (3, 3, 2)
    assert cyclic_moduli(Dihedral(3)) is None
    assert cyclic_moduli(DirectProduct(Cyclic(3), Dihedral(3))) is None
    assert cyclic_moduli(Quaternion(8)) is None


def test_refuses_other_groups() -> None:
    for group in (Symmetric(3), Alternating(4), Quaternion(8)):
        with pytest.raises(ValueError, match="product of cyclic groups"):
            GroupConvolution(group)


def test_refuses_other_functions() -> None:
    convolve, (h,) = GroupConvolution(Dihedral(4)), functions(Dihedral(4), ())
    for wrong in (h[:7], h + 0j, h.long(), h / 0, h[None][:0]):
        with pytest.raises((TypeError, ValueError), match=r"w must"):
            convolve(h, wrong)
