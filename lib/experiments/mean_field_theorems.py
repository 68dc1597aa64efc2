"""Chapter *Mean-field dynamics*: symmetric training rewritten for laws of units (M2).

Every risk is computed twice: by moving the data, as training does, and by moving the law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_int, seeded
from lib.symmetry.actions import natural, pixels, planar, sign, trivial
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.representations import DirectSum, Hom, MatrixRepresentation, Representation, TensorProduct
from lib.symmetry.symmetrization import symmetrize_function
from lib.training.mean_field import Layer, Unit, project, symmetrise

Loss = Callable[[Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "half square": lambda r: 0.5 * r.square().sum(-1),
    "pseudo-Huber": lambda r: (1 + r.square().sum(-1)).sqrt() - 1,
}


@dataclass(frozen=True, eq=False)
class Case:
    """A unit, and for the control an action on its parameters that moves laws without belonging to the unit.

    Attributes
    ----------
    unit : Unit
        Jointly equivariant for the action ``unit.parameters``.
    wrong : Representation
        Another action of the same group on the same space.
    """

    unit: Unit
    wrong: Representation


def cases() -> dict[str, Case]:
    """Return the source's unit and others; the wrong actions move one factor only, or change signs as well."""
    c2, s3, d4, c4 = natural(Symmetric(2)), natural(Symmetric(3)), planar(Dihedral(4)), pixels(Cyclic(4), 2)
    still, flip = trivial(c4.group, 4), sign(s3.group)
    determinant = MatrixRepresentation(d4.group, 1, lambda g: torch.linalg.det(d4.matrix(g))[..., None, None], "det")

    def neuron(x: Tensor, z: Tensor) -> Tensor:
        w, a, b = z.split([4, 4, 1], -1)
        return w * torch.tanh((a * x).sum(-1, keepdim=True) + b)

    def bump(x: Tensor, z: Tensor) -> Tensor:
        return torch.exp(-0.5 * (x - z).square().sum(-1, keepdim=True))

    found = {
        "C2, sigmoid(zx) on pairs": Case(Layer(c2, c2, "sigmoid"), Hom(trivial(c2.group, 2), c2)),
        "S3, sigmoid(zx) on triples": Case(Layer(s3, s3, "sigmoid"), Hom(trivial(s3.group, 3), s3)),
        "D4, tanh(zx) on the plane": Case(Layer(d4, d4, "tanh"), TensorProduct(Hom(d4, d4), determinant)),
    }
    b = trivial(c4.group)
    turned = Unit(neuron, c4, c4, DirectSum(c4, c4, b), "neuron")
    found["C4, w tanh(a·x + b) on images"] = Case(turned, DirectSum(c4, still, b))
    found["S3, bumps, invariant"] = Case(Unit(bump, s3, trivial(s3.group), s3, "bump"), DirectSum(flip, flip, flip))
    return found


def randn(generator: torch.Generator, *shape: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --- M2: Propositions 1 and 2 ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identities:
    """Largest difference of the two sides of each identity, over networks, losses and group elements.

    Attributes
    ----------
    averaged_model : float
        Q_G Φ_μ and Φ_{μ^G}.
    augmented, averaged, equivariant : float
        R^DA(μ) and the mean of R(M_g# μ); R^FA(μ) and R(μ^G); R^EA(μ), by tied weights, and R(μ^{E^G}).
    agreement : float
        R^DA(μ^G), R^FA(μ^G) and R(μ^G): on weakly invariant laws all are one.
    """

    averaged_model: float
    augmented: float
    averaged: float
    equivariant: float
    agreement: float

    @property
    def errors(self) -> list[float]:
        """All differences."""
        return [self.averaged_model, self.augmented, self.averaged, self.equivariant, self.agreement]


def check_identities(
    unit: Unit, seed: int = 0, action: Representation | None = None, particles: int = 6, points: int = 12
) -> Identities:
    """Compute both sides of Propositions 1 and 2 for random laws and random, not equivariant data.

    Left sides move the *data* (or tie weights by the equations of E^G); right sides move the *laws*.

    Parameters
    ----------
    unit
        The unit.
    seed
        Of laws and data.
    action
        How laws are moved: by default the action that belongs to the unit. Any other is the control.
    particles, points
        Sizes of three laws and of the data.
    """
    generator = seeded(seed)
    action = unit.parameters if action is None else action
    check_int("particles", particles)
    z = randn(generator, 3, particles, unit.parameters.dim)
    x, y = randn(generator, check_int("points", points), unit.inputs.dim), randn(generator, points, unit.outputs.dim)
    spread, tied = symmetrise(z, action), project(z, action)
    basis = projection(unit.parameters, "nullspace").basis()
    architecture = (z @ basis.mT) @ basis
    moved = torch.einsum("gij,lnj->glni", action.matrix(unit.group.elements()), z)
    worst = [_gap(_averaged_model(unit, z, x), unit.network(x, spread)), 0.0, 0.0, 0.0, 0.0]
    for loss in LOSSES.values():
        free = mean_loss(unit, spread, x, y, loss)
        pairs = (
            (augmented_loss(unit, z, x, y, loss), mean_loss(unit, moved, x, y, loss).mean(0)),
            (averaged_loss(unit, z, x, y, loss), free),
            (mean_loss(unit, architecture, x, y, loss), mean_loss(unit, tied, x, y, loss)),
            (torch.stack([f(unit, spread, x, y, loss) for f in (augmented_loss, averaged_loss)]), free),
        )
        worst[1:] = [max(w, _gap(*pair)) for w, pair in zip(worst[1:], pairs, strict=True)]
    return Identities(*worst)


def mean_loss(unit: Unit, z: Tensor, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """Return R(μ) = E ℓ(Φ_μ(X) − Y) for laws z of equal weights, shape ``(...)``."""
    return loss(unit.network(x, z) - y).mean(-1)


def augmented_loss(unit: Unit, z: Tensor, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """Return R^DA(μ): the mean of R over data moved by all group elements."""
    moved = [mean_loss(unit, z, x @ a.mT, y @ b.mT, loss) for a, b in zip(unit.on_inputs, unit.on_outputs, strict=True)]
    return torch.stack(moved).mean(0)


def averaged_loss(unit: Unit, z: Tensor, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """Return R^FA(μ): the risk of the averaged model Q_G Φ_μ."""
    return loss(_averaged_model(unit, z, x) - y).mean(-1)


def _averaged_model(unit: Unit, z: Tensor, x: Tensor) -> Tensor:
    """Return Q_G Φ_μ(x) for several laws by averaging functions, shape ``(laws, B, dim Y)``."""

    def model(law: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda p: unit.network(p.flatten(0, -2), law).unflatten(0, p.shape[:-1])

    return torch.stack([symmetrize_function(model(law), unit.inputs, unit.outputs)(x) for law in z])


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
