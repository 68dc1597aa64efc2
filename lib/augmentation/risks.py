"""Small networks whose three risks are explicit functions of one parameter vector: nominal, augmented, equivariant.

A network x ↦ A_k σ(A_{k−1} … σ(A_1 x)) keeps all its layers in one flat vector A of the space L = ⊕ Hom(V_{i−1}, V_i),
so that risks have gradients and Hessians that can be written down. The group acts on L; its invariants are the
equivariant layers E. Leading axes are runs: every function takes ``(..., dim L)`` and treats runs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.symmetry.derived import Hom
from lib.symmetry.haar import projection
from lib.symmetry.representations import DirectSum, Representation

Risk = Callable[[Tensor], Tensor]


class SmallNetwork:
    """The network x ↦ A_k σ(A_{k−1} … σ(A_1 x)) without biases (Nordenfors, Ohlsson, Flinth 2023, equation (1)).

    The spaces V_0, …, V_k with k ≥ 1 are representations of one group; ``layers`` is the action on L, whose vectors are
    the flattened layers one after the other. The nonlinearity σ, applied between the layers to arrays
    ``(..., dim V_i)``, has to commute with the hidden representations for the theorems to hold; that is not checked, so
    that a control can break it.
    """

    def __init__(self, spaces: Sequence[Representation], nonlinearity: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        self.spaces, self.nonlinearity = tuple(spaces), nonlinearity
        self.layers = DirectSum(*[Hom(v, w) for v, w in pairwise(self.spaces)])

    def __call__(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Return the outputs ``(..., n, dim V_k)`` for inputs ``(..., n, dim V_0)``; leading axes broadcast."""
        shapes = [hom.shape for hom in self.layers.summands]
        for i, block in enumerate(parameters.split([p * q for p, q in shapes], dim=-1)):
            x = x if i == 0 else self.nonlinearity(x)
            x = x @ block.unflatten(-1, shapes[i]).mT
        return x


class Risks:
    """The risks R, R^aug and R^eqv of a network on one data set, or on one data set per run, for the loss ½‖·‖².

    The group is finite. Inputs ``(..., n, dim V_0)`` and targets ``(..., n, dim V_k)`` may have leading axes, which
    broadcast against the parameters'.
    """

    def __init__(self, network: SmallNetwork, x: Tensor, y: Tensor) -> None:
        source, target = network.spaces[0], network.spaces[-1]
        check_tensor("x", x, (None, source.dim), inexact=True, real=True)
        check_tensor("y", y, (x.shape[-2], target.dim))
        self.network, self.x, self.y, self.group = network, x, y, source.group
        self.project_matrix = projection(network.layers).matrix().to(x)
        self._x, self._y = (
            space.apply(self.group.unsqueeze(self.group.elements(), v.ndim - 1), v).movedim(0, -3).flatten(-3, -2)
            for space, v in ((source, x), (target, y))
        )  # (..., |G| n, dim)

    def project(self, parameters: Tensor) -> Tensor:
        """Return Π A, the equivariant part, shape ``(..., dim L)``."""
        return parameters @ self.project_matrix

    def outside(self, parameters: Tensor) -> Tensor:
        """Return A_{E^⊥} = A − Π A, shape ``(..., dim L)``."""
        return parameters - self.project(parameters)

    def nominal(self, parameters: Tensor) -> Tensor:
        """Return R(A) = mean of ½‖Φ_A(x) − y‖² over the data, shape ``(...)``."""
        return self._losses(parameters, self.x, self.y).mean(-1)

    def equivariant(self, parameters: Tensor) -> Tensor:
        """Return R^eqv(A) = R(Π A), shape ``(...)``."""
        return self.nominal(self.project(parameters))

    def augmented(self, parameters: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return R^aug(A) = Σ_g w_g · mean of ½‖Φ_A(gx) − gy‖², shape ``(...)``, for probabilities w ``(..., |G|)``.

        By default the Haar measure, 1/|G| each.
        """
        losses = self._losses(parameters, self._x, self._y)
        if weights is None:
            return losses.mean(-1)
        return (losses.unflatten(-1, (self.group.order, -1)).mean(-1) * weights).sum(-1)

    def _losses(self, parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (self.network(parameters, x) - y).square().sum(-1)


def gradient(risk: Risk, parameters: Tensor) -> Tensor:
    """Return the gradient of a risk for every run, shape ``(..., dim L)``."""
    with torch.enable_grad():
        leaf = parameters.detach().requires_grad_(True)
        return torch.autograd.grad(risk(leaf).sum(), leaf)[0]


def hessian_product(risk: Risk, parameters: Tensor, direction: Tensor) -> Tensor:
    """Return ∇²R(A) v for every run, shape ``(..., dim L)``, without forming the Hessian."""
    slope = torch.func.grad(lambda a: risk(a).sum())
    return torch.func.jvp(slope, (parameters,), (direction,))[1]


def hessian(risk: Risk, parameters: Tensor) -> Tensor:
    """Return the Hessian of a risk for every run, shape ``(..., dim L, dim L)``, exact up to rounding."""
    basis = torch.eye(parameters.shape[-1], dtype=parameters.dtype, device=parameters.device)
    columns = torch.func.vmap(lambda v: hessian_product(risk, parameters, v.expand_as(parameters)))(basis)
    return columns.movedim(0, -1)
