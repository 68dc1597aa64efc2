"""First-order optimality of a linear predictor for a margin problem with an ℓ_p, Fourier or Schatten (quasi-)norm.

All these norms are of one kind. A basis splits v into square blocks v̂(ρ) of sizes d_ρ, with the inner product
⟨v, β⟩ = (1/N) Σ_ρ d_ρ Re tr(v̂(ρ)^* β̂(ρ)), and the norm counts the singular values σ of the blocks,

    ‖β‖_p = (Σ_ρ d_ρ Σ_i σ_i(β̂(ρ))^p)^{1/p}.

For coordinates and for frequencies the blocks are numbers and d_ρ = 1. At a stationary point of min ‖β‖_p subject to
y_i⟨x_i, β⟩ ≥ 1 there are multipliers α ≥ 0, zero off the support vectors, such that Ĝ = Σ α_i y_i x̂_i satisfies

    Ĝβ̂^* = c (β̂β̂^*)^{p/2}   and   β̂^*Ĝ = c (β̂^*β̂)^{p/2}   in every block, c > 0,

which needs no decision about the rank of β̂. *Form A* takes the best α, *form P* the multipliers that come with β. These
conditions say nothing about Ĝ outside the range of β̂, which is all there is to say for p < 1. A minimum of the convex
problem p = 1 also needs ‖Ĝ‖ ≤ c in the dual norm: that is what :func:`duality_gap` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import nnls
from torch import Tensor

from lib.checks import check_tensor, unit_of
from lib.symmetry.fourier import GroupFourier, spectrum, weighted_norm
from lib.symmetry.groups import FiniteGroup


@dataclass(frozen=True)
class Basis:
    """A splitting of vectors into square blocks."""

    name: str  #: for tables
    transform: Callable[[Tensor], Sequence[Tensor]]  #: of ``(..., length)`` to blocks by size, ``(..., count, d, d)``
    length: int  #: of the vectors
    order: int  #: the N in ⟨v, β⟩ = (1/N) Σ d_ρ Re tr(v̂(ρ)^* β̂(ρ))


def coordinates(length: int) -> Basis:
    """Return the basis whose blocks are the entries themselves."""
    return Basis("coordinates", lambda v: (v[..., None, None],), length, 1)


def frequencies(length: int) -> Basis:
    """Return the basis of the discrete Fourier transform Σ_u f(u) e^{−2πiku/N}."""
    return Basis("frequencies", lambda v: (torch.fft.fft(v)[..., None, None],), length, length)


def irreducibles(group: FiniteGroup) -> Basis:
    """Return the blocks f̂(ρ) = Σ_u f(u)ρ(u) of the Fourier transform of a finite group."""
    return Basis(f"irreducibles of {group}", GroupFourier(group).forward, group.order, group.order)


@dataclass(frozen=True)
class Norm:
    """The (quasi-)norm (Σ_ρ d_ρ^a Σ_i σ_i(β̂(ρ))^p)^{1/p}."""

    basis: Basis  #: where β̂ comes from
    p: float  #: exponent, positive
    weight: float = 1.0  #: the power a of d_ρ: 1 in the theorem, other values for comparison

    def __call__(self, v: Tensor) -> Tensor:
        """Return the norm, shapes ``(..., length) -> (...)``."""
        values, d = spectrum(self.basis.transform(v))
        return weighted_norm(values, d**self.weight, self.p)

    def dual(self, v: Tensor) -> Tensor:
        """Return sup ⟨v, β⟩ over ‖β‖ ≤ 1, shapes ``(..., length) -> (...)``; for p ≥ 1.

        With 1/p + 1/q = 1 it is (1/N) (Σ_ρ d_ρ Σ_i (d_ρ^{(1−a)/p} σ_i)^q)^{1/q}, a maximum when p = 1.
        """
        values, d = spectrum(self.basis.transform(v))
        values = d ** ((1 - self.weight) / self.p) * values
        if self.p == 1:
            return values.amax(-1) / self.basis.order
        q = self.p / (self.p - 1)
        return weighted_norm(values, d, q) / self.basis.order

    def target(self, beta: Tensor) -> Tensor:
        """Return all d_ρ^{a−1}(β̂β̂^*)^{p/2} and d_ρ^{a−1}(β̂^*β̂)^{p/2} as one real vector, in the metric of the basis."""
        sides = []
        for block in self.basis.transform(beta):
            u, s, vh = torch.linalg.svd(block)
            power = (block.shape[-1] ** (self.weight - 1) * s**self.p).to(u.dtype)[..., None, :]
            sides += [(u * power) @ u.mH, (vh.mH * power) @ vh]
        return _flat(sides)

    def image(self, v: Tensor, beta: Tensor) -> Tensor:
        """Return all v̂β̂^* and β̂^*v̂ as one real vector, in the metric of the basis; batched over v."""
        pairs = zip(self.basis.transform(v), self.basis.transform(beta))
        return _flat([side for x, b in pairs for side in (x @ b.mH, b.mH @ x)])

    def slope(self, beta: Tensor, floor: float = 1e-3) -> Tensor:
        """Return the smallest g with ĝ = d_ρ^{a−1} UΣ^{p−1}V^* where β̂ = UΣV^*, which meets the conditions at β.

        Singular values below ``floor`` times the largest count as zero: training leaves such remainders.
        """
        length, order = self.basis.length, self.basis.order
        units, parts = self.basis.transform(torch.eye(length, dtype=beta.dtype, device=beta.device)), []
        svds = [torch.linalg.svd(block) for block in self.basis.transform(beta)]
        least = floor * max(float(s.detach().max()) for _, s, _ in svds)
        for (u, s, vh), unit in zip(svds, units, strict=True):
            d = s.shape[-1]
            power = torch.where(s > least, d**self.weight * s ** (self.p - 1), 0).to(u.dtype)[..., None, :]
            parts.append(torch.einsum("kcij,cij->k", unit.conj(), (u * power) @ vh).real)
        return torch.stack(parts).sum(0) / order


def form_p(norm: Norm, beta: Tensor, features: Tensor, labels: Tensor, multipliers: Tensor) -> float:
    """Return the residual of the optimality conditions for given multipliers, min over c of ‖cĜβ̂^* − (β̂β̂^*)^{p/2}‖.

    Both conditions are taken together, relative to the right side: a number in [0, 1], the sine of an angle. Predictors
    have shape ``(d,)``, points ``(n, d)``, labels ±1 and multipliers α ≥ 0, not all zero, ``(n,)``; of predictors and
    multipliers the scale does not matter.
    """
    points, beta = _points(beta, features, labels)
    return _sine(norm.image(_multipliers(multipliers, points) @ points, beta), norm.target(beta))


def form_a(norm: Norm, beta: Tensor, features: Tensor, labels: Tensor, tolerance: float = 1e-3) -> tuple[float, Tensor]:
    """Return the residual of the optimality conditions for the best multipliers α ≥ 0, and these, shape ``(n,)``.

    Arguments and residual as for :func:`form_p`. Points with a margin of at most (1 + tolerance) times the smallest
    count as support vectors; when there are enough of them, the residual is 0 for every norm.
    """
    points, beta = _points(beta, features, labels)
    margins = points @ beta
    if not margins.min() > 0:
        raise ValueError(f"beta must separate the points, its smallest margin is {float(margins.min()):.3g}")
    support = margins <= (1 + tolerance) * margins.min()
    target = norm.target(beta / beta.norm())
    columns = norm.image(points[support], beta / beta.norm())
    reduced = torch.linalg.qr(torch.cat([columns, target[None]]).mT).R  # the same distances in few dimensions
    rows = reduced.cpu().numpy()
    found, distance = nnls(rows[:, :-1], rows[:, -1], maxiter=100 * rows.shape[1])
    multipliers = torch.zeros(len(points), dtype=torch.float64, device=points.device)
    multipliers[support] = torch.from_numpy(found).to(multipliers) / unit_of(features.double())
    return distance / float(target.norm()), multipliers


def duality_gap(norm: Norm, beta: Tensor, features: Tensor, labels: Tensor, multipliers: Tensor) -> float:
    """Return 1 − Σα_i · min_i y_i⟨x_i, β⟩ / (‖Σ α_i y_i x_i‖_* ‖β‖), zero exactly at the minimum of a convex problem.

    It is never negative, for any β and α ≥ 0, and bounds how far the norm is above its minimum, relatively. For the
    nuclear norm (two layers) it tells a minimum from a saddle, which satisfies :func:`form_a` as well. Arguments as for
    :func:`form_p`; the exponent must be at least 1.
    """
    points, beta = _points(beta, features, labels)
    alpha = _multipliers(multipliers, points)
    return 1 - float(alpha.sum() * (points @ beta).min() / (norm.dual(alpha @ points) * norm(beta)))


def separation(norm: Norm, other: Norm, beta: Tensor) -> float:
    """Return how well β can tell two norms apart: the residual of one where the conditions of the other are met.

    It depends on β alone. Where it is zero no data can show which norm was minimised: for two exponents where all
    singular values are equal, say, for two groups where β is constant. In one basis it is the sine of the angle between
    the right sides of the two conditions.
    """
    beta = beta / unit_of(beta)
    if norm.basis is other.basis:
        return _sine(norm.target(beta), other.target(beta))
    return _sine(other.image(norm.slope(beta), beta), other.target(beta))


def _points(beta: Tensor, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points y_i x_i and β, both of size one: what is asked of them has no scale."""
    if not len(check_tensor("features", features, (None, len(beta)), inexact=True)):
        raise ValueError("features must hold at least one point")
    points = features * labels.to(features)[:, None]
    return points / unit_of(points), beta / unit_of(beta)


def _multipliers(multipliers: Tensor, points: Tensor) -> Tensor:
    """Return the multipliers in the dtype of the points, the largest of them one."""
    alpha = multipliers.to(points)
    return alpha / alpha.max()


def _flat(blocks: Sequence[Tensor]) -> Tensor:
    """Return stacks of blocks (..., count, d, d) as one real vector (...), each entry times √d."""
    parts = [b.shape[-1] ** 0.5 * (torch.view_as_real(b) if b.is_complex() else b[..., None]) for b in blocks]
    return torch.cat([part.flatten(-4) for part in parts], dim=-1)


def _sine(a: Tensor, b: Tensor) -> float:
    """Return the sine of the angle between two vectors; 1 if the angle is obtuse."""
    a, b = a / unit_of(a), b / unit_of(b)
    a, b = a / a.norm(), b / b.norm()
    return float((b - a * (a @ b)).norm()) if a @ b > 0 else 1.0
