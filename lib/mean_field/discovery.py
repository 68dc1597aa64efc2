"""Growing a subspace by the directions in which trained particles leave it (Maass, Fontbona 2024, heuristic).

A network is the mean of units σ(z x) with z ∈ R^{d×d} and σ acting on coordinates; it learns from inputs X ~ N(0, s²·1)
and the outputs of a teacher of the same form. Particles start in a subspace E_j of Z = R^{d×d}; if training takes them
out of it, a direction in which they left is added. Nothing here knows a group.

Particles are flat matrices, shape ``(runs, N, d²)``; runs are a batch and never mix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.progress import progress

KAPPA = math.sqrt(math.pi / 8)  # erf(κu/√2) has the slope of tanh(u/2) at zero


class Nonlinearity(NamedTuple):
    """A function σ that acts on tensors entry by entry, and its derivative ``slope(u, σ(u))``."""

    value: Callable[[Tensor], Tensor]  #: σ
    slope: Callable[[Tensor, Tensor], Tensor]  #: of u and σ(u)


LOGISTIC = Nonlinearity(torch.sigmoid, lambda u, value: value * (1 - value))
ERF = Nonlinearity(
    lambda u: torch.erf(u * (KAPPA / math.sqrt(2))),
    lambda u, value: (KAPPA * math.sqrt(2 / math.pi)) * torch.exp(-0.5 * (KAPPA * u).square()),
)


@dataclass(frozen=True)
class Growth:
    """Settings of the heuristic.

    ``rule`` says what is added to E_j: ``"mean"``, the mean of z − Pz over the particles (the rule of Maass and
    Fontbona); ``"leading"``, the leading eigenvector of the mean of (z − Pz)(z − Pz)ᵀ.
    """

    particles: int = 20  #: N, units of the network that is trained
    spread: float = 0.25  #: standard deviation of the particles at the start of a round, in every direction of E_j
    rate: float = 0.2  #: step of a unit
    steps: int = 100  #: per round
    threshold: float = 1e-10  #: growth ends when W₂²(ν, P_#ν) is at most this; ν: trained law, P: projection onto E_j
    rule: str = "leading"  #: ``"mean"`` or ``"leading"``
    decay: float = 1e-4  #: τ of noisy gradient descent
    temperature: float = 1e-6  #: β, of noise in E_j


def network(z: Tensor, x: Tensor, sigma: Nonlinearity = LOGISTIC) -> Tensor:
    """Return Φ(x) = (1/N) Σ_i σ(z_i x), shape ``(runs, B, d)``, for x of shape ``(B, d)`` or ``(runs, B, d)``."""
    return sigma.value(_inner(z, x)).mean(1).mT


def pull(z: Tensor, x: Tensor, y: Tensor, sigma: Nonlinearity = LOGISTIC, weights: Tensor | None = None) -> Tensor:
    """Return −N ∂R/∂z_i for R = Σ_b w_b ½‖Φ(x_b) − y_b‖², shape ``(runs, N, d²)``.

    Inputs x have shape ``(B, d)`` or ``(runs, B, d)``, targets y ``(runs, B, d)`` or ``(1, B, d)``, weights w ``(B,)``;
    1/B each if not given.
    """
    check_tensor("y", y, x.shape[-2:])
    h = _inner(z, x)  # (runs, N, d, B)
    value = sigma.value(h)
    residual = (y.mT - value.mean(1)) * (1 / x.shape[-2] if weights is None else weights)  # (runs, d, B)
    pulled = residual[:, None] * sigma.slope(h, value)
    return (pulled.flatten(1, 2) @ x).reshape(z.shape)


def train_inside(field: Callable[[Tensor], Tensor], P: Tensor, growth: Growth, generator: torch.Generator) -> Tensor:
    """Return the particles after one round that starts in the ranges of P, shape ``(runs, N, d²)``.

    Starts are N(0, spread²·P) for orthogonal projections P onto E_j, shape ``(runs, d², d²)``; a step is
    z ← z + rate (V(z) − τz) + √(2·rate·β) N(0, P). The field V goes from particles to the same shape; fresh data at
    every call make it stochastic. Particles that become infinite or NaN, at too large a rate, raise ArithmeticError.
    """
    shape = (len(P), growth.particles, P.shape[-1])

    def gauss(size: float) -> Tensor:
        draw = torch.randn(shape, generator=generator, dtype=P.dtype, device=generator.device)
        return size * draw.to(P.device) @ P

    z, noise = gauss(growth.spread), math.sqrt(2 * growth.rate * growth.temperature)
    for _ in progress(range(growth.steps)):
        z = z + growth.rate * (field(z) - growth.decay * z)
        z = z + gauss(noise) if noise else z
    if not torch.isfinite(z).all():
        raise ArithmeticError(f"particles became infinite or NaN; rate {growth.rate} is too large")
    return z


def grow(
    field: Callable[[Tensor], Tensor], basis: Tensor, growth: Growth, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Grow subspaces E_0 ⊂ E_1 ⊂ … of R^D, one chain per run, until no run escapes beyond the threshold.

    A run that has come to its end goes on beside the others: :func:`ended` says where each threshold stops it.

    The field is V as in :func:`train_inside`; the orthonormal rows of the basis, ``(runs, k, D)``, span E_0 (k = 0
    starts from {0}). Returned are orthonormal rows, of which the first j span the subspace of dimension j, shape
    ``(runs, D, D)``, zero where growth has ended; and the escapes W₂²(ν, P_#ν) = E‖z − Pz‖² from dimension
    j = 0, 1, …, shape ``(rounds, runs)``, infinite for j < k.

    >>> toward = torch.tensor([3.0, 4.0, 0.0]).double() / 5
    >>> frame, escapes = grow(lambda z: toward - z, torch.zeros(1, 0, 3).double(), Growth(), torch.Generator())
    >>> ended(escapes, 1e-10).tolist(), [round(float(v), 6) for v in frame[0, 0].abs()]
    ([1], [0.6, 0.8, 0.0])
    """
    runs, k, D = check_tensor("basis", basis, inexact=True).shape
    frame = torch.cat([basis, basis.new_zeros(runs, D - k, D)], 1)
    escapes = [basis.new_full((runs,), math.inf)] * k
    while not escapes or (escapes[-1] > growth.threshold).any():
        if k == D:  # nothing can leave the whole space
            escapes.append(basis.new_zeros(runs))
            break
        P = frame.mT @ frame
        z = train_inside(field, P, growth, generator)
        left = z - z @ P  # (runs, N, D)
        escapes.append(left.square().sum(-1).mean(-1))
        v = left.mean(1) if growth.rule == "mean" else torch.linalg.svd(left, full_matrices=False).Vh[:, 0]
        v = v - (v[:, None] @ P)[:, 0]
        if (escapes[-1] > growth.threshold).any():
            frame[:, k] = torch.nn.functional.normalize(v, dim=-1, eps=torch.finfo(v.dtype).tiny)
            k += 1
    return frame, torch.stack(escapes)


def ended(escapes: Tensor, threshold: float) -> Tensor:
    """Return the dimensions at which a threshold ends growth, shape ``(runs,)``.

    The threshold decides where growth ends, not where it goes: it may be larger than that of the run, but not smaller.
    """
    stay = escapes <= threshold
    if not stay.any(0).all():
        raise ValueError(f"threshold must be at least {float(escapes.amin(0).max()):.1e}, got {threshold}")
    return stay.int().argmax(0)


def _inner(z: Tensor, x: Tensor) -> Tensor:
    """Return z_i x_b, shape ``(runs, N, d, B)``."""
    d = x.shape[-1]
    return (z.unflatten(-1, (d, d)).flatten(1, 2) @ x.mT).unflatten(1, (-1, d))
