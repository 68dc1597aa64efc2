"""Shallow networks as empirical measures of their units, and training under a symmetry.

A network of N units with parameters θ_1 … θ_N is the measure ν = (1/N) Σ δ_{θ_i}; its output is the mean
Φ_ν(x) = ∫ σ_*(x, z) dν(z). Particles are tensors of shape ``(..., N, dim Z)``; all axes in front are batch axes.
:mod:`lib.mean_field.descent` trains such networks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.mean_field.units import Pull, Unit
from lib.symmetry.representations import Representation

SCHEMES = ("vanilla", "DA", "FA", "EA")


def symmetrise(particles: Tensor, representation: Representation) -> Tensor:
    """Return μ^G = ∫ (M_g)_# μ dg: all images of all particles, element by element, shape ``(..., |G|·N, dim)``.

    Also the way to *start* from a union of orbits: the result is weakly invariant.
    """
    matrices = _matrices(particles, representation)
    return torch.einsum("gij,...nj->...gni", matrices, particles).flatten(-3, -2)


def project(particles: Tensor, representation: Representation) -> Tensor:
    """Return μ^{E^G} = P_# μ: every particle projected onto the fixed parameters E^G, same shape."""
    return particles @ _matrices(particles, representation).mean(0).mT


@torch.no_grad()
def intrinsic_derivative(
    unit: Unit, scheme: str, particles: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return D_μR(ν)(θ_i) = N ∂R/∂θ_i, shaped like the particles, for the risk R of a scheme and the loss ½‖ŷ − y‖².

    ``vanilla``: R(ν) = E ½‖Φ_ν(x) − y‖². ``DA``: the mean over *all* g of R on moved data (ρ(g)x, ρ(g)y). ``FA``:
    R of the average Q_GΦ_ν = mean_g ρ(g)⁻¹Φ_ν(ρ(g)·). ``EA``: R(P_#ν). No gradient goes through the derivative.

    Networks are particles of shape ``(..., N, dim Z)``, data x and y ``(B, dim X)`` and ``(..., B, dim Y)``, whose axes
    in front broadcast to those of the particles; weights, shape ``(B,)``, are their probabilities, by default 1/B.
    """
    z, x, y, w = _batch(particles, x, y, weights)
    return _derivative(unit.to(z), scheme, z, x, y, w).view(particles.shape)


def risk(unit: Unit, scheme: str, particles: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the risk of a scheme, shape ``(...)``; arguments and schemes as in :func:`intrinsic_derivative`."""
    z, x, y, w = _batch(particles, x, y, weights)
    _, residual, _ = _residual(unit.to(z), scheme, z, x, y)
    averaged = len(residual[0, 0]) // len(w[0])
    loss = 0.5 * (residual.square() * w.repeat(1, averaged)[..., None]).sum((-2, -1)) / averaged
    return loss.view(particles.shape[:-2])


def _derivative(unit: Unit, scheme: str, z: Tensor, x: Tensor, y: Tensor, w: Tensor | None = None) -> Tensor:
    """Return the derivative for z (S, R, N, dim Z), like the unit's matrices, x (S, B, dim X), y, and w (S, B)."""
    pull, residual, fixed = _residual(unit, scheme, z, x, y)
    if w is None:
        residual = residual / residual.shape[-2]
    else:
        images = residual.shape[-2] // w.shape[-1]
        residual = residual * (w.repeat(1, images)[:, None, :, None] / images)
    gradient = pull(residual)
    return gradient if fixed is None else gradient @ fixed


def _residual(unit: Unit, scheme: str, z: Tensor, x: Tensor, y: Tensor) -> tuple[Pull, Tensor, Tensor | None]:
    """Return the pull, the residuals it takes (one per image of each data point), and P for EA."""
    if scheme in ("vanilla", "EA"):
        fixed = unit.fixed if scheme == "EA" else None
        mean, pull = unit.linearise(x, z if fixed is None else z @ fixed)
        return pull, mean - y, fixed
    rho_x, rho_y = unit.on_inputs, unit.on_outputs
    moved = (x[:, None] @ rho_x.mT).flatten(1, 2)  # (S, |G| B, dim X)
    mean, pull = unit.linearise(moved, z)
    images = mean.unflatten(2, (len(rho_x), -1))  # (S, R, |G|, B, dim Y)
    if scheme == "DA":
        return pull, (images - y[:, :, None] @ rho_y.mT).flatten(2, 3), None
    average = (images @ rho_y).mean(2, keepdim=True)  # mean of ρ(g)⁻¹Φ(ρ(g)x)
    return pull, ((average - y[:, :, None]) @ rho_y.mT).flatten(2, 3), None


def _batch(particles: Tensor, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return particles (1, R, N, dim Z), x (1, B, dim X), y (1, R, B, dim Y) and weights (1, B)."""
    check_tensor("y", y, (len(x), None), inexact=True, real=True)
    weights = x.new_full((len(x),), 1.0 / max(len(x), 1)) if weights is None else weights
    z = particles.reshape(1, -1, *particles.shape[-2:])
    y = y.expand(*particles.shape[:-2], *y.shape[-2:]).reshape(1, -1, *y.shape[-2:])
    return z, x[None], y, weights[None]


def _matrices(particles: Tensor, representation: Representation) -> Tensor:
    """Return the matrices of all elements, like the particles."""
    return representation.matrix(representation.group.elements()).to(particles)
