"""Wasserstein gradient flow of a free energy on a one-dimensional grid, by finite volumes that keep its structure.

Masses stay nonnegative and sum to one, the resting laws are exactly the Gibbs laws of the grid, and the free energy
decreases in every step, however long: properties of the scheme, not of its limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import solve_banded
from torch import Tensor

from lib.mean_field.free_energy import FreeEnergy


class Path(NamedTuple):
    """A computed flow."""

    times: Tensor  #: from zero, shape ``(T,)``
    laws: Tensor  #: at these times, shape ``(T, n)``
    changes: Tensor  #: F(p_{t+1}) − F(p_t), shape ``(T − 1,)``


def flow(
    functional: FreeEnergy,
    start: Tensor,
    first: float = 0.01,
    growth: float = 1.05,
    tolerance: float = 1e-12,
    steps: int = 1000,
) -> Path:
    """Follow the Wasserstein gradient flow of F, ∂_t μ = div(μ ∇ δF/δμ), on the grid, with no flux at its ends.

    It starts from a law of shape ``(n,)``; the time steps begin with length ``first`` and grow by the factor
    ``growth``. The flow ends when a step moves less than the share ``tolerance`` of the mass, or after so many steps.
    """
    laws, times, h = [start], [0.0], first
    for _ in range(steps):
        laws.append(step(functional, laws[-1], h))
        times.append(times[-1] + h)
        h *= growth
        if 0.5 * float((laws[-1] - laws[-2]).abs().sum()) < tolerance:
            break
    path = torch.stack(laws)
    at = torch.tensor(times, dtype=torch.float64, device=path.device)
    return Path(at, path, functional.change(path[:-1], path[1:]))


def step(functional: FreeEnergy, p: Tensor, duration: float, iterations: int = 60) -> Tensor:
    """Take one implicit step of the finite-volume flow with Scharfetter–Gummel fluxes; F never increases.

    Mass passes from cell i to cell i + 1 at the rate ``J = (b(d) q_i − b(−d) q_{i+1}) / h²`` with d the difference of
    the potentials and ``b(d) = d / (exp(d/β) − 1)``. J has the sign of −(ξ_{i+1} − ξ_i), ξ = δF/δq at the *new* law q,
    so that F(q) − F(p) ≤ ⟨ξ, q − p⟩ ≤ 0 by convexity, for steps of any length. Masses stay positive (the matrix
    is an M-matrix) and their sum stays one.

    The law enters the potential through K residuals only; Newton's method solves for these.

    Masses have shape ``(n,)``; β = 0 gives upwind fluxes. The linear systems are solved on the CPU. A step that is too
    long for Newton's method raises ArithmeticError.
    """
    rate, r = duration / functional.width**2, functional.residual(p)
    now = _Trial(functional, p, rate, r)
    for _ in range(iterations):
        if now.size < 1e-15:
            return torch.from_numpy(now.q).to(p)
        direction, length = now.newton(), 1.0
        following = _Trial(functional, p, rate, r + direction)
        while following.size > now.size > 1e-13 and length > 1e-3:
            length /= 2
            following = _Trial(functional, p, rate, r + length * direction)
        if following.size >= now.size and now.size < 1e-13:  # as exact as rounding allows
            return torch.from_numpy(now.q).to(p)
        r, now = r + length * direction, following
    raise ArithmeticError(f"the implicit step of duration {duration:.3g} did not converge")


class _Trial:
    """The law q after an implicit step in which the potential has residual r, and what r lacks to be that of q."""

    def __init__(self, functional: FreeEnergy, p: Tensor, rate: float, r: Tensor) -> None:
        self.functional, self.rate = functional, rate
        self.d = functional.potential(r).diff().cpu().numpy()
        self.matrix = _transport_matrix(self.d, functional.temperature, rate)
        self.q = solve_banded((1, 1), self.matrix, p.cpu().numpy())
        self.miss = functional.features @ torch.from_numpy(self.q).to(r) - functional.y - r
        self.size = float(self.miss.abs().max())

    def newton(self) -> Tensor:
        """Return the Newton step for r."""
        F = self.functional
        slopes = F.weights.cpu().numpy()[:, None] * np.diff(F.features.cpu().numpy())
        flux = self.rate * _flux_slope(self.d, self.q, F.temperature) * slopes
        response = solve_banded((1, 1), self.matrix, np.diff(-flux, prepend=0, append=0).T)
        response = torch.from_numpy(response).to(self.miss)
        one = torch.eye(len(F.x), dtype=self.miss.dtype, device=self.miss.device)
        return torch.linalg.solve(one - F.features @ response, self.miss)


def _bernoulli(d: np.ndarray, temperature: float) -> np.ndarray:
    """Return d / (exp(d/β) − 1); max(−d, 0) for β = 0."""
    if temperature == 0:
        return np.maximum(-d, 0.0)
    x = d / temperature
    small = np.abs(x) < 1e-8
    safe = np.where(small, 1.0, np.clip(x, -700, 700))
    return temperature * np.where(small, 1 - x / 2, np.where(small, 1.0, x) / np.expm1(safe))


def _transport_matrix(d: np.ndarray, temperature: float, rate: float) -> np.ndarray:
    """Return 1 + rate·(outflow − inflow) in the banded form of SciPy, shape ``(3, n)``."""
    right, left = rate * _bernoulli(d, temperature), rate * _bernoulli(-d, temperature)
    matrix = np.zeros((3, len(d) + 1))
    matrix[1] = 1.0
    matrix[1, :-1] += right
    matrix[1, 1:] += left
    matrix[0, 1:] = -left
    matrix[2, :-1] = -right
    return matrix


def _flux_slope(d: np.ndarray, q: np.ndarray, temperature: float) -> np.ndarray:
    """Return the derivative of b(d) q_i − b(−d) q_{i+1} by d, with b′(−d) = −1 − b′(d)."""
    if temperature == 0:
        slope = np.where(d < 0, -1.0, 0.0)
    else:
        x = np.clip(d / temperature, -700, 700)
        small = np.abs(x) < 1e-4
        safe = np.where(small, 1.0, x)
        grown = np.expm1(safe)
        slope = np.where(small, -0.5 + x / 6, (1 - safe - safe / grown) / grown)
    return slope * q[:-1] - (1 + slope) * q[1:]
