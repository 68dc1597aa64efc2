"""Training with a penalty and noise as the descent of one convex functional, for units with few parameters.

Wide networks trained by noisy gradient descent follow, in the limit, the Wasserstein gradient flow of

    F(μ) = ½ E |Φ_μ(X) − Y|² + ½ τ ∫ z² dμ + β ∫ μ log μ,        Φ_μ(x) = ∫ σ(x, z) dμ(z),

which is convex in μ (Maass, Fontbona 2024; Mei, Montanari, Nguyen 2018). Here z has one coordinate or few, so that a
law is a vector of masses on a grid: the minimum, and on a line the flow, can be computed to the last digits, without
particles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lib.checks import check_probabilities, check_tensor

_TINY = 1e-300  # masses below this count as this much, where a logarithm is taken


@dataclass(frozen=True, eq=False)
class FreeEnergy:
    """F(p) = ½ Σ_k w_k (Σ_i p_i σ(x_k, z_i) − y_k)² + ½ τ Σ_i p_i z_i² + β Σ_i p_i log(p_i / h) on a grid of cells.

    A law is a tensor ``(..., n)`` of nonnegative masses with sum one, one for each cell; its density is p / h.
    """

    unit: Callable[[Tensor, Tensor], Tensor]  #: σ: tensors x, z that broadcast to the unit's outputs
    x: Tensor  #: data, shape ``(K,)``
    y: Tensor  #: what belongs to them, shape ``(K,)``
    weights: Tensor  #: their probabilities, shape ``(K,)``
    grid: Tensor  #: centres of cells of one size, shape ``(n,)``, or ``(n, d)`` for a product of d lines
    penalty: float  #: τ, at least zero
    temperature: float  #: β, at least zero; a minimum needs it positive

    def __post_init__(self) -> None:
        check_tensor("y", self.y, (len(self.x),))
        check_probabilities("weights", self.weights, len(self.x))
        check_tensor("unit(x, z)", self.features, (len(self.x), len(self.grid)))

    @cached_property
    def width(self) -> float:
        """Width h of a cell; its area or volume where there are several coordinates."""
        lines = [line.unique() for line in self.grid.view(len(self.grid), -1).mT]
        return math.prod(float(line[-1] - line[0]) / (len(line) - 1) for line in lines)

    @cached_property
    def squares(self) -> Tensor:
        """|z_i|² of the cells, shape ``(n,)``."""
        return self.grid.view(len(self.grid), -1).square().sum(-1)

    @cached_property
    def features(self) -> Tensor:
        """σ(x_k, z_i), shape ``(K, n)``."""
        return self.unit(self.x[:, None], self.grid[None, :])

    def residual(self, p: Tensor) -> Tensor:
        """Return r_k = Φ_p(x_k) − y_k, shape ``(..., K)``: all that the data see of a law."""
        return p @ self.features.mT - self.y

    def potential(self, residual: Tensor) -> Tensor:
        """Return Σ_k w_k r_k σ(x_k, ·) + ½ τ z² on the grid, shape ``(..., n)``; plus β log p it is δF/δp."""
        return (self.weights * residual) @ self.features + 0.5 * self.penalty * self.squares

    def energy(self, p: Tensor) -> Tensor:
        """Return F(p), shape ``(...)``."""
        risk = 0.5 * (self.weights * self.residual(p) ** 2).sum(-1)
        return risk + 0.5 * self.penalty * p @ self.squares + self.temperature * self.entropy(p)

    def entropy(self, p: Tensor) -> Tensor:
        """Return Σ p_i log(p_i / h), which approximates ∫ μ log μ."""
        return torch.special.xlogy(p, p / self.width).sum(-1)

    def change(self, p: Tensor, q: Tensor) -> Tensor:
        """Return F(q) − F(p) from small quantities only, so that its sign is right when both are almost equal.

        F is quadratic plus entropy, so that for two laws, and ξ = δF/δq, exactly

            F(q) − F(p) = ⟨ξ, q − p⟩ − ½ Σ_k w_k (r_k(q) − r_k(p))² − β Σ_i (p_i log(p_i / q_i) − p_i + q_i).

        The last two terms are never positive. A difference of two values of :meth:`energy` is lost in rounding errors
        as soon as it falls below 1e-16; this one keeps its leading digits down to about 1e-28.
        """
        residual, d = self.residual(q), q - p
        slope = self.potential(residual) + self.temperature * q.clamp_min(_TINY).log()
        slope = slope - (q * slope).sum(-1, keepdim=True)  # a constant does not count: both laws have mass one
        square = 0.5 * (self.weights * (d @ self.features.mT) ** 2).sum(-1)
        return (slope * d).sum(-1) - square - self.temperature * _relative_entropy(p, q)

    def cloud_residual(self, points: Tensor) -> Tensor:
        """Return r_k = (1/N) Σ_j σ(x_k, z_j) − y_k of clouds ``(..., N)``, shape ``(..., K)``."""
        return self.unit(self.x[:, None], points[..., None, :]).mean(-1) - self.y

    def gibbs(self, residual: Tensor) -> Tensor:
        """Return the law proportional to exp(−potential/β), shape ``(..., n)``."""
        return torch.softmax(-self.potential(residual) / self.temperature, -1)

    def lower_bound(self, residual: Tensor) -> Tensor:
        """Return a number that F is at least at *every* law on the grid, for any r: the convex dual of F.

        ``−Σ w_k (½ r_k² + r_k y_k) − β log Σ_i h exp(−potential_i / β)``, because ``½s² ≥ rs − ½r²`` and because the
        minimum of a linear functional plus entropy is a log-sum-exp. Equality at the minimiser, with its residual.
        """
        beta = self.temperature
        free = -beta * (torch.logsumexp(-self.potential(residual) / beta, -1) + math.log(self.width))
        return free - (self.weights * (0.5 * residual**2 + residual * self.y)).sum(-1)

    def minimiser(self, iterations: int = 100) -> Tensor:
        """Return the law p = gibbs(residual(p)), the only minimum of F, shape ``(n,)``.

        The dual is strictly concave in the K numbers r; Newton's method with backtracking maximises it. ArithmeticError
        says that it did not converge.
        """
        w, r, best = self.weights, torch.zeros_like(self.y), math.inf
        for _ in range(iterations):
            p = self.gibbs(r)
            miss = self.residual(p) - r
            size = float(miss.detach().abs().max())
            if size < 1e-15 or (size < 1e-12 and size >= best):  # as exact as rounding allows
                return p
            best = min(best, size)
            centred = self.features - (self.features @ p)[:, None]
            covariance = (centred * p) @ centred.mT
            one = torch.eye(len(r), dtype=r.dtype, device=r.device)
            direction = torch.linalg.solve(one + covariance * w / self.temperature, miss)
            r = r + self._backtrack(r, direction) * direction
        raise ArithmeticError(f"no Gibbs fixed point within {iterations} iterations; penalty or temperature too small")

    def _backtrack(self, r: Tensor, direction: Tensor) -> float:
        """Return the first of 1, 1/2, 1/4, … that does not lower the dual, up to rounding."""
        here, size = float(self.lower_bound(r).detach()), 1.0
        while float(self.lower_bound(r + size * direction).detach()) < here - 1e-15 and size > 1e-6:
            size /= 2
        return size


def _relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """Return Σ p log(p/q) − p + q ≥ 0 without cancellation where p and q are close."""
    p, q = p.clamp_min(_TINY), q.clamp_min(_TINY)
    excess = (p - q) / q
    near = excess.abs() < 0.5
    small = torch.where(near, excess, 0.0)
    close = q * ((1 + small) * torch.log1p(small) - small)
    return torch.where(near, close, p * (p.log() - q.log()) - p + q).sum(-1)
