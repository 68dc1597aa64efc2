"""Units of shallow networks: functions of an input and a parameter that respect a group on inputs, outputs, parameters.

The three actions are orthogonal, and the unit has to respect all of them at once, σ_*(ρ_X(g)x, M_g z) =
ρ_Y(g) σ_*(x, z) (Maass, Fontbona 2024). :mod:`lib.mean_field.particles` makes networks of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance, check_tensor
from lib.symmetry.derived import Hom
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation

_TOLERANCE = 1e-9
_PROBES = 64
Pull = Callable[[Tensor], Tensor]


class Unit:
    """A unit σ_* : X × Z → Y, jointly equivariant for three orthogonal representations of one finite group.

    One that is not is refused: the message states the largest |σ_*(ρ_X(g)x, M_g z) − ρ_Y(g)σ_*(x, z)| over 64 Gaussian
    pairs and the generators g.

    ``function(x, z)`` returns σ_*(x, z), shape ``(..., dim Y)``, for x of shape ``(..., dim X)`` and z of shape
    ``(..., dim Z)``; batch axes broadcast; it is differentiable in z. Inputs, outputs and parameters are the real
    representations on X, Y and Z, ``on_inputs``, ``on_outputs`` and ``on_parameters`` the matrices of all elements,
    ``(|G|, dim, dim)``; ``fixed`` is the projection P onto E^G, the parameters that G leaves fixed, ``(dim Z, dim Z)``.
    """

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        inputs: Representation,
        outputs: Representation,
        parameters: Representation,
        name: str = "unit",
    ) -> None:
        self.function, self.name = function, name
        self.inputs, self.outputs, self.parameters = inputs, outputs, parameters
        for place, value in (("inputs", inputs), ("outputs", outputs), ("parameters", parameters)):
            if not isinstance(check_instance(place, value, Representation).group, FiniteGroup) or value.is_complex:
                raise TypeError(f"{place} must be a real representation of a finite group, got {value}")
            if value.group != inputs.group:
                raise ValueError(f"{place} must be a representation of {inputs.group} like the inputs, got {value}")
            if not value.is_unitary:
                raise ValueError(f"{place} must be an orthogonal representation, {value.name} is not")
        self.group = inputs.group
        elements = self.group.elements()
        self.on_inputs, self.on_outputs, self.on_parameters = (
            r.matrix(elements) for r in (inputs, outputs, parameters)
        )
        self.fixed = self.on_parameters.mean(0)
        self._check_equivariance()

    def __repr__(self) -> str:
        """Return name, dimensions and group."""
        dims = f"R^{self.inputs.dim} × R^{self.parameters.dim} → R^{self.outputs.dim}"
        return f"{self.name}: {dims} under {self.group}"

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """Return σ_*(x, z), shape ``(..., dim Y)``; batch axes broadcast."""
        return self.function(x, z)

    def network(self, x: Tensor, particles: Tensor) -> Tensor:
        """Return Φ_ν(x) = (1/N) Σ_i σ_*(x, θ_i), shapes ``(B, dim X), (..., N, dim Z) -> (..., B, dim Y)``."""
        z = particles.reshape(1, math.prod(particles.shape[:-2]), *particles.shape[-2:])
        return self.linearise(x[None], z)[0].reshape(*particles.shape[:-2], len(x), self.outputs.dim)

    def linearise(self, x: Tensor, z: Tensor) -> tuple[Tensor, Pull]:
        """Return the outputs Φ_ν(x_b) and the map r ↦ Σ_b ∇_zσ_*(x_b, θ_i)ᵀ r_b, to be called at most once.

        R networks see the same inputs: x has shape ``(S, B, dim X)``, z ``(S, R, N, dim Z)``, outputs and r
        ``(S, R, B, dim Y)``.
        """
        leaf = z.detach().requires_grad_(True)
        with torch.enable_grad():
            values = self.function(x[:, None, None], leaf[..., None, :])
        mean = values.detach().mean(2)
        return mean, lambda r: torch.autograd.grad(values, leaf, r[:, :, None].expand_as(values))[0]

    def to(self, like: Tensor) -> Unit:
        """Return the unit with its matrices in the dtype and on the device of ``like``."""
        moved = copy.copy(self)
        for name in ("fixed", "on_inputs", "on_outputs", "on_parameters"):
            setattr(moved, name, getattr(self, name).to(like))
        return moved

    def _check_equivariance(self) -> None:
        generator = torch.Generator().manual_seed(0)
        x, z = (
            torch.randn(_PROBES, r.dim, generator=generator, dtype=torch.float64, device="cpu")
            for r in (self.inputs, self.parameters)
        )
        plain = check_tensor("function(x, z)", self.function(x, z), (_PROBES, self.outputs.dim), inexact=True)
        index = self.group.index(self.group.generators())
        rho_x, rho_y, m = (t[index] for t in (self.on_inputs, self.on_outputs, self.on_parameters))
        moved = self.function(x @ rho_x.mT, z @ m.mT)
        defect = float((moved - plain @ rho_y.mT).abs().max()) if len(index) else 0.0
        if not defect <= _TOLERANCE:
            raise ValueError(
                f"function must be jointly equivariant under {self.group}, but |σ(ρ(g)x, M_g z) − ρ(g)σ(x, z)| "
                f"reaches {defect:.2g} (allowed {_TOLERANCE:g}) for {self.name}"
            )


_aten = torch.ops.aten
# Functions R → R that act on every coordinate: s = σ(h), which may overwrite h, and r · σ'(h) of r, h and s, with r
# broadcast, which may overwrite the others.
ACTIVATIONS = {
    "sigmoid": (torch.sigmoid_, lambda r, h, s: _aten.sigmoid_backward.grad_input(r, s, grad_input=s)),
    "tanh": (torch.tanh_, lambda r, h, s: _aten.tanh_backward.grad_input(r, s, grad_input=s)),
    "relu": (torch.relu_, lambda r, h, s: s.sign_().mul_(r)),
    "cos": (torch.cos, lambda r, h, s: h.sin_().neg_().mul_(r)),
    "identity": (lambda h: h, lambda r, h, s: r.expand_as(s)),
}


class Layer(Unit):
    """The unit σ_*(x, z) = σ(z x) with z a matrix X → Y and σ acting on coordinates; M_g z = ρ_Y(g) z ρ_X(g)⁻¹.

    Gradients are in closed form: one matrix product, σ, and one matrix product back. Parameters are matrices read row
    by row, dim Z = dim Y · dim X. The activation σ, one of ``ACTIVATIONS``, has to commute with ρ_Y, as any σ does with
    permutations and an odd σ with signs.
    """

    def __init__(self, inputs: Representation, outputs: Representation, activation: str = "sigmoid") -> None:
        self.activate, self.pull = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]
        super().__init__(self._evaluate, inputs, outputs, Hom(inputs, outputs), f"{activation}(z·x)")

    def _evaluate(self, x: Tensor, z: Tensor) -> Tensor:
        matrix = z.unflatten(-1, (self.outputs.dim, self.inputs.dim))
        return self.activate((matrix @ x[..., None])[..., 0])

    def linearise(self, x: Tensor, z: Tensor) -> tuple[Tensor, Pull]:
        """Return the outputs and the transposed derivative in closed form; see :meth:`Unit.linearise`."""
        rows = z.unflatten(-1, (self.outputs.dim, -1))
        h = torch.bmm(rows.flatten(1, 3), x.mT)  # (S, R N dim Y, B)
        s = self.activate(h)
        shape = (*rows.shape[:-1], x.shape[1])
        mean = s.view(shape).mean(2).mT

        def pull(r: Tensor) -> Tensor:
            g = self.pull(r.mT.contiguous()[:, :, None], h.view(shape), s.view(shape))
            return torch.bmm(x.mT, g.reshape(h.shape).mT).mT.reshape(z.shape)  # rows of g stay whole: faster

        return mean, pull
