"""Convolution of functions on a group A ⋊ H with A abelian: an FFT over A and a sum over the cosets of A.

With u = (a, p), v = (b, q) and r = p q⁻¹ the definition ``(h∗w)(u) = Σ_v h(uv⁻¹) w(v)`` reads

    (h∗w)(a, p) = Σ_r Σ_b h(a − φ_r(b), r) w(b, r⁻¹p),

for every r an ordinary convolution over A. Over the characters χ of A it is a small product of matrices,
``(h∗w)^(χ, p) = Σ_r ĥ(χ, r) ŵ(χ∘φ_r, r⁻¹p)``, so that the cost is |G| log |A| + |G| |H| instead of |G|², and nothing of
size |G|² is ever stored.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.symmetry.groups import Cyclic, DirectProduct, FiniteGroup, SemidirectProduct


def cyclic_moduli(group: FiniteGroup) -> tuple[int, ...] | None:
    """Return (n_1, …, n_k) if the group is built as C_{n_1} × … × C_{n_k}, else ``None``.

    The numbering of such a group is row-major: ``f.reshape(n_1, …, n_k)`` lays a function out on the torus.
    """
    if isinstance(group, Cyclic):
        return (group.n,)
    if isinstance(group, DirectProduct):
        parts = cyclic_moduli(group.normal), cyclic_moduli(group.complement)
        return None if None in parts else parts[0] + parts[1]
    return None


def split(group: FiniteGroup) -> tuple[tuple[int, ...], FiniteGroup] | None:
    """Return the moduli of A and the group H if a group is built as A ⋊ H with A a product of cyclic groups."""
    moduli = cyclic_moduli(group)
    if moduli is not None:
        return moduli, Cyclic(1)
    if isinstance(group, SemidirectProduct) and (moduli := cyclic_moduli(group.normal)) is not None:
        return moduli, group.complement
    return None


class GroupConvolution:
    """Group convolution ``(h∗w)(u) = Σ_v h(uv⁻¹) w(v)`` on G = A ⋊ H, in either order of its arguments.

    The convolution commutes with left translations of h and with right translations of w (Lawrence, Georgiev, Dienes,
    Kiani 2022, section 3). Functions are real tensors whose last axis runs over the group in the order of
    ``group.index``; leading axes are batch axes and broadcast. Everything is differentiable.

    The group is a product of cyclic groups, or a semidirect product with such a group as its normal subgroup.
    """

    def __init__(self, group: FiniteGroup) -> None:
        if (parts := split(group)) is None:
            raise ValueError(f"group must be A ⋊ H with A a product of cyclic groups, got {group}")
        self.group, self._tables, (self._moduli, H) = group, {}, parts
        self._cosets, h = H.order, H.elements()
        partner = H.index(H.multiply(H.inverse(h)[:, None], h))
        self._inverses = group.index(group.inverse(group.elements()))
        kept = torch.arange(math.prod(self._moduli), device="cpu").reshape(self._moduli)
        kept = kept[..., : self._moduli[-1] // 2 + 1]
        frequency = moved_characters(group, self._moduli, H).mT[kept.flatten()]
        self._gather = (frequency[..., None] * self._cosets + partner).contiguous()

    def __call__(self, h: Tensor, w: Tensor) -> Tensor:
        """Return h∗w, shape ``(..., |G|)``."""
        for name, f in (("h", h), ("w", w)):
            if not check_tensor(name, f, (self.group.order,), inexact=True, real=True).numel():
                raise ValueError(f"{name} must hold at least one function, got shape {tuple(f.shape)}")
        axes = tuple(range(-1 - len(self._moduli), -1))
        torus = (*self._moduli, self._cosets)
        over_h = torch.fft.rfftn(h.unflatten(-1, torus), dim=axes).flatten(-1 - len(axes), -2)
        over_w = torch.fft.fftn(w.unflatten(-1, torus), dim=axes).flatten(-1 - len(axes))
        product = _coset_sum(over_h, over_w[..., self._on(h.device)[0]])
        half = (*self._moduli[:-1], self._moduli[-1] // 2 + 1)
        return torch.fft.irfftn(product.unflatten(-2, half), s=self._moduli, dim=axes).flatten(-1 - len(axes))

    def reflect(self, f: Tensor) -> Tensor:
        """Return ``f^∨(u) = f(u⁻¹)``; it reverses products, ``(h∗w)^∨ = w^∨ ∗ h^∨``."""
        return f[..., self._on(f.device)[1]]

    def correlate(self, f: Tensor, w: Tensor) -> Tensor:
        """Return ``f ∗ w^∨``, the adjoint of convolution by w: ``⟨h∗w, f⟩ = ⟨h, f∗w^∨⟩`` for every h."""
        return self(f, self.reflect(w))

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the tables of frequencies and of inverses on a device."""
        if device not in self._tables:
            self._tables[device] = self._gather.to(device), self._inverses.to(device)
        return self._tables[device]


def _coset_sum(h: Tensor, w: Tensor) -> Tensor:
    """Return Σ_r h[…, χ, r] w[…, χ, r, p], written with real numbers: batches of small complex products are slow."""
    rows = torch.view_as_real(h).flatten(-2)
    columns = torch.view_as_real(torch.stack([w, 1j * w], -2)).flatten(-2).flatten(-3, -2)
    product = torch.einsum("...cr,...crp->...cp", rows, columns)
    return torch.view_as_complex(product.unflatten(-1, (-1, 2)).contiguous())


def moved_characters(group: FiniteGroup, moduli: tuple[int, ...], complement: FiniteGroup) -> Tensor:
    """Return the number of the character χ_k∘φ_h of A for every h in H and every number k, shape ``(|H|, |A|)``.

    χ_k(b) = exp(−2πi Σ_j k_j b_j / n_j), hence (χ_k∘φ_h)_j = Σ_i k_i φ_h(e_j)_i n_j / n_i mod n_j, an integer.
    """
    if not isinstance(group, SemidirectProduct) or group.complement is not complement:  # H or A is trivial
        return torch.arange(math.prod(moduli), device="cpu").expand(complement.order, -1)
    n = torch.tensor(moduli, device="cpu")
    units = torch.eye(len(moduli), dtype=torch.int64, device="cpu")
    images = group.action(complement.elements()[:, None], units)  # (|H|, j, i)
    scaled = images * n[:, None] // n
    k = torch.cartesian_prod(*(torch.arange(m, device="cpu") for m in moduli)).reshape(-1, len(moduli))
    moved = torch.einsum("ki,hji->hkj", k, scaled) % n
    strides = torch.tensor([math.prod(moduli[j + 1 :]) for j in range(len(moduli))], device="cpu")
    return (moved * strides).sum(-1)
