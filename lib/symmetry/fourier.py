"""The Fourier transform on finite groups, its inverse, and the norms and ranks of Fourier coefficients.

Coefficients are *blocks*: for every dimension d that occurs, in ascending order, one complex tensor of shape
``(..., n_d, d, d)`` that holds the n_d irreducible representations of that dimension. Products, adjoints and singular
values are taken block by block, for all representations of a dimension at once. Everything is differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.irreps import Irreducibles


class GroupFourier:
    """The Fourier transform f̂(ρ) = Σ_u f(u) ρ(u) of functions on a finite group, not normalised, and its inverse.

    On a group A ⋊ H it is a fast Fourier transform over A, a permutation of the values, and a small transform over the
    stabiliser of each character: |G|·(log |A| + |H|) operations instead of |G|² (see
    :class:`lib.symmetry.irreps.Family`).

    Group, seed, ``dims`` and ``counts`` are as in :class:`~lib.symmetry.irreps.Irreducibles`; ``irreducibles`` are the
    representations themselves.

    >>> from lib.symmetry.groups import Symmetric
    >>> F = GroupFourier(Symmetric(3))
    >>> f = torch.arange(6.0).double()
    >>> blocks = F.forward(f)
    >>> [tuple(b.shape) for b in blocks], bool(torch.allclose(F.inverse(blocks).real, f))
    ([(2, 1, 1), (1, 2, 2)], True)
    """

    def __init__(self, group: FiniteGroup, seed: int = 0) -> None:
        self.irreducibles = Irreducibles(group, seed)
        self.group, self.order = group, group.order
        self.dims, self.counts = self.irreducibles.dims, self.irreducibles.counts
        H = self.irreducibles.complement.order
        families = self.irreducibles.families
        self._gather = torch.cat([(F.characters[:, :, None, None] * H + F.source).flatten() for F in families])
        self._scatter = self._gather.argsort()
        self._axes = tuple(range(-len(self.irreducibles.moduli) - 1, -1))

    def forward(self, f: Tensor) -> tuple[Tensor, ...]:
        """Return f̂(ρ) = Σ_u f(u) ρ(u), shape ``(..., n_d, d, d)`` per dimension d.

        The values of f are in the order of ``group.index``, real or complex, shape ``(..., |G|)``.
        """
        if not check_tensor("f", f, (self.order,), inexact=True).numel():
            raise ValueError(f"f must hold at least one function, got shape {tuple(f.shape)}")
        parts = self.irreducibles
        values = f.unflatten(-1, (*parts.moduli, parts.complement.order))
        values = torch.fft.ifftn(values, dim=self._axes, norm="forward").flatten(self._axes[0])
        values = values.index_select(-1, self._gather.to(f.device))
        stacks: dict[int, list[Tensor]] = {d: [] for d in self.dims}
        pieces = values.split([F.characters.numel() * F.place.shape[1] * F.source.shape[2] for F in parts.families], -1)
        for family, piece in zip(parts.families, pieces, strict=True):
            piece = piece.unflatten(-1, (*family.characters.shape, *family.source.shape[1:]))
            for sigma in family.little:
                block = torch.einsum("...kijs,qsab->...kqiajb", piece, sigma.to(values))
                block = block.flatten(-2).flatten(-3, -2).flatten(-4, -3)
                stacks[block.shape[-1]].append(block)
        return tuple(torch.cat(stack, dim=-3) for stack in stacks.values())

    def inverse(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return f(u) = (1/|G|) Σ_ρ d_ρ tr(f̂(ρ) ρ(u)*), complex, shape ``(..., |G|)``; take ``.real`` of real f."""
        parts = self.irreducibles
        rest = dict(zip(self.dims, blocks, strict=True))
        pieces = []
        for family in parts.families:
            (K, m), s = family.characters.shape, family.source.shape[2]
            piece: Tensor | float = 0.0
            for sigma in family.little:
                q, d = len(sigma), m * sigma.shape[-1]
                block, rest[d] = rest[d].tensor_split([K * q], dim=-3)
                block = block.unflatten(-1, (m, -1)).unflatten(-3, (m, -1)).unflatten(-5, (K, q))
                piece = piece + torch.einsum("...kqiajb,qsab->...kijs", block, sigma.conj().to(block)) * (d / m / s)
            pieces.append(piece.flatten(-4))
        values = torch.cat(pieces, dim=-1).index_select(-1, self._scatter.to(blocks[0].device))
        values = values.unflatten(-1, (*parts.moduli, parts.complement.order))
        return torch.fft.fftn(values, dim=self._axes, norm="forward").flatten(self._axes[0])

    def convolve(self, h: Tensor, w: Tensor) -> Tensor:
        """Return (h∗w)(u) = Σ_v h(uv⁻¹) w(v) through the convolution theorem (h∗w)^(ρ) = ĥ(ρ)ŵ(ρ).

        Real if both functions are; batch axes broadcast.
        """
        out = self.inverse([a @ b for a, b in zip(self.forward(h), self.forward(w), strict=True)])
        return out if h.is_complex() or w.is_complex() else out.real


def spectrum(blocks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the singular values of all blocks, shape ``(..., Σ n_d d)``, and their weights d_ρ, shape ``(Σ n_d d,)``.

    Each value counted d_ρ times, they are the singular values of the matrix of the convolution with f.
    """
    values, weights = [], []
    for block in blocks:
        d = block.shape[-1]
        # svdvals of numbers has no derivative worth the name at zero, abs has the right one
        value = block[..., 0].abs() if d == 1 else torch.linalg.svdvals(block)
        values.append(value.flatten(-2))
        weights.append(torch.full(values[-1].shape[-1:], float(d), dtype=value.dtype, device=value.device))
    return torch.cat(values, -1), torch.cat(weights)


@torch.no_grad()
def singular_pieces(fourier: GroupFourier, f: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ‖·‖² of the singular pieces of f̂, the numbers each adds, and its inner product with functions x.

    A piece is the function whose transform is σ_i u_i v_i* at one ρ; all are orthogonal, and f is their sum. A block
    with r pieces takes r(2d − r) numbers, so that piece r + 1 adds 2(d − r) − 1. Shapes ``(|G|,), (n, |G|) ->
    (k,), (k,), (n, k)`` for k = Σ n_d d pieces; real parts, so ρ should be real where pieces are taken one by one.
    """
    parts = []
    for block, values in zip(fourier.forward(f), fourier.forward(x), strict=True):
        u, s, vh = torch.linalg.svd(block)  # (n_d, d, d), (n_d, d), (n_d, d, d)
        d = s.shape[-1]
        inner = torch.einsum("nkij,kir,krj->nkr", values.conj(), u, vh) * s  # (n, n_d, d)
        cost = (2 * (d - torch.arange(d, device=s.device)) - 1).expand(s.shape)
        share = d / fourier.order
        parts.append([part.flatten(-2) for part in (share * s**2, cost, share * inner.real)])
    squares, costs, inners = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return squares, costs, inners


def schatten_norm(blocks: Sequence[Tensor], p: float) -> Tensor:
    """Return ‖f̂‖_p^{(S)} = (Σ_ρ d_ρ Σ_i σ_i(f̂(ρ))^p)^{1/p}, shape ``(...)``.

    A norm for p ≥ 1, a quasi-norm for p < 1, where it is differentiable only if all singular values are positive.
    Lawrence, Georgiev, Dienes, Kiani 2022, section 4.

    >>> from lib.symmetry.groups import Symmetric
    >>> point = torch.eye(6)[0].double()
    >>> schatten_norm(GroupFourier(Symmetric(3)).forward(point), 2.0)  # √(1 + 1 + 2 · 2) = √|G|
    tensor(2.4495, dtype=torch.float64)
    """
    return weighted_norm(*spectrum(blocks), p)


def weighted_norm(values: Tensor, weights: Tensor, p: float) -> Tensor:
    """Return (Σ_i w_i v_i^p)^{1/p} of nonnegative values, shapes ``(..., n), (n,) -> (...)``; slope zero at v = 0.

    The largest value is taken out before powers are formed, so that none of them leaves the range of the dtype.
    """
    largest = values.detach().amax(-1)  # (...)
    total = (weights * (values / torch.where(largest > 0, largest, 1)[..., None]) ** p).sum(-1)
    return largest * torch.where(largest > 0, total, 1) ** (1 / p)


def fourier_rank(blocks: Sequence[Tensor], tolerance: float | None = None) -> Tensor:
    """Return Σ_ρ d_ρ rank f̂(ρ), counting singular values above ``tolerance`` times the largest; ``int64``, ``(...)``.

    This is the rank of the matrix of the convolution with f (Meshulam 1992). By default the tolerance is 1e-10, in
    single precision 1e-5.
    """
    values, weights = spectrum(blocks)
    if tolerance is None:
        tolerance = max(1e-10, 84 * torch.finfo(values.dtype).eps)
    return (weights * (values > tolerance * values.amax(-1, keepdim=True))).sum(-1).round().long()


def effective_rank(blocks: Sequence[Tensor]) -> Tensor:
    """Return the exponential of the entropy of the singular values, shape ``(...)``; 0 for f = 0.

    With each singular value counted d_ρ times and all divided by their sum to give q, it is exp(−Σ q log q), between 1
    and |G| (Roy, Vetterli 2007). It is |G| for a point mass and never exceeds :func:`fourier_rank`.

    >>> from lib.symmetry.groups import Symmetric
    >>> point = torch.eye(6)[0].double()
    >>> effective_rank(GroupFourier(Symmetric(3)).forward(point)).round(decimals=6)
    tensor(6., dtype=torch.float64)
    """
    values, weights = spectrum(blocks)
    largest = values.detach().amax(-1, keepdim=True)
    values = values / torch.where(largest > 0, largest, 1)
    shares = values / torch.where(largest > 0, (weights * values).sum(-1, keepdim=True), 1)
    shares = torch.where(shares > 0, shares, 1)  # whose term is zero too, and has a slope
    return torch.where(largest[..., 0] > 0, (-(weights * torch.xlogy(shares, shares)).sum(-1)).exp(), largest[..., 0])
