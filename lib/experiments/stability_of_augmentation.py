"""Chapter *Stability of augmentation*: Hessians of the three risks, and strict minima that are not shared (A3, A4).

The rest of the chapter is in :mod:`lib.experiments.growth_near_symmetry` (A5, A8) and
:mod:`lib.experiments.finite_augmentation` (A9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_float, check_int, seeded
from lib.symmetry.actions import natural, pixels, planar, translations, trivial
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.training.forms import HALF, Form, StrictMinimum, classify, exact_derivatives, violated_implications
from lib.training.risks import Risks, SmallNetwork, descend, hessian


@dataclass(frozen=True)
class Settings:
    """Settings of the chapter.

    Attributes
    ----------
    problems : int
        Random data sets that are searched for strict minima on E, at least 5.
    points : int
        Points per data set.
    rate : float
        Step h of gradient descent in the study of growth, at most 0.6.
    runs : int
        Descents per label in the plane, and independent repetitions of every scheme of finite augmentation.
    """

    problems: int = 12
    points: int = 60
    rate: float = 0.5
    runs: int = 120

    def __post_init__(self) -> None:
        check_int("problems", self.problems, minimum=5)
        check_int("points", self.points, minimum=10)
        check_float("rate", self.rate, minimum=0.01, maximum=0.6)
        check_int("runs", self.runs, minimum=10)


# --- Hessians (A3) ---------------------------------------------------------------------------------------------------


def hessian_cases() -> dict[str, SmallNetwork]:
    """Return the small networks whose Hessians are examined, by the name of the group and what it acts on."""
    nodes, turns, square = natural(Symmetric(3)), pixels(Cyclic(4), 3), pixels(Dihedral(4), 3)
    shifts, plane = pixels(translations(3), 3), planar(Dihedral(4))
    return {
        "S3 on nodes": SmallNetwork((nodes, nodes + nodes, nodes)),
        "C4 on images": SmallNetwork((turns, turns, trivial(turns.group))),
        "D4 on images": SmallNetwork((square, square, trivial(square.group))),
        "shifts of images": SmallNetwork((shifts, shifts, trivial(shifts.group))),
        "D4 on the plane": SmallNetwork((plane, plane + plane, plane + plane, plane)),
    }


@dataclass(frozen=True)
class HessianCheck:
    """Hessians of one network against their projection formulas; see :func:`check_hessians`.

    Attributes
    ----------
    dimension, equivariant_dimension : int
        Dimensions of L and of E.
    augmented, equivariant : list of float
        Largest entry of ∇²R^aug − Π_{L⊗L} ∇²R and of ∇²R^eqv − Π ∇²R Π, one per seed.
    coupling : list of float
        Largest entry of Π ∇²R^aug (1 − Π), the block between E and E^⊥.
    nominal, averaged, compressed : Tensor
        The three Hessians of the first seed, shape ``(dim L, dim L)``.
    """

    dimension: int
    equivariant_dimension: int
    augmented: list[float]
    equivariant: list[float]
    coupling: list[float]
    nominal: Tensor
    averaged: Tensor
    compressed: Tensor


def check_hessians(
    network: SmallNetwork,
    seeds: int = 3,
    points: int = 10,
    off: float = 0.0,
    weights: Tensor | None = None,
    seed: int = 0,
) -> HessianCheck:
    """Compare the Hessians of the three risks with the projections of ∇²R, at random points of E.

    R^aug is computed from augmented *data* and differentiated twice automatically; Π_{L⊗L} acts on matrices by its own
    route (orbits of index pairs, or a sum over the group), so the two sides share only the network.

    Parameters
    ----------
    network
        The network; inputs, targets and layers are Gaussian, one data set per seed.
    seeds
        Data sets and parameters.
    points
        Points per data set.
    off
        Distance by which the parameters are moved out of E: the control.
    weights
        Weights of the group elements in R^aug, shape ``(|G|,)``, default Haar; others are a control.
    seed
        Seed of everything that is drawn.
    """
    check_int("seeds", seeds)
    generator = seeded(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(seeds, *shape, generator=generator, dtype=torch.float64)

    layers, (source, *_, target) = network.layers, network.spaces
    risks = Risks(network, draw(points, source.dim), draw(points, target.dim))
    a = draw(layers.dim) / math.sqrt(source.dim)
    outside = torch.nn.functional.normalize(risks.outside(a), dim=-1)
    a = risks.project(a) + off * outside
    nominal, compressed = hessian(risks.nominal, a), hessian(risks.equivariant, a)
    averaged = hessian(lambda b: risks.augmented(b, weights), a)
    pi = risks.project_matrix
    formula = projection(layers * layers)(nominal.flatten(-2)).unflatten(-1, (layers.dim, layers.dim))
    defects = averaged - formula, compressed - pi @ nominal @ pi, pi @ averaged @ (torch.eye(layers.dim) - pi)
    largest = [d.abs().amax((-2, -1)).tolist() for d in defects]
    return HessianCheck(layers.dim, round(float(pi.trace())), *largest, nominal[0], averaged[0], compressed[0])


def uneven_tanh(x: Tensor) -> Tensor:
    """Return tanh with another slope at every coordinate, which no permutation commutes with: a control."""
    return torch.tanh(x * torch.linspace(0.5, 1.5, x.shape[-1], dtype=x.dtype))


# --- Strict minima (A4) ----------------------------------------------------------------------------------------------

PLANE_POINTS = ((1, 1), (2, 0), (1, -1))
# What the theory says of a = (1/2, 1/2) for three labels, and of two bare matrices.
STATED_LABELS = {
    Fraction(1, 2): StrictMinimum(True, True, True),
    Fraction(3, 2): StrictMinimum(False, True, True),
    Fraction(3): StrictMinimum(False, False, True),
}
STATED_FORMS = {
    Form(Fraction(3), Fraction(0), Fraction(-1)): StrictMinimum(False, True, True),
    Form(Fraction(1), Fraction(2), Fraction(1)): StrictMinimum(False, False, True),
}


def plane_risk(a: tuple, label: Any, swapped: Any = HALF) -> Any:
    """Return the augmented risk of the one-neuron network x ↦ (a·x)² on three points of the plane.

    The targets are 1 at (1, 1) and (2, 0), and ``label`` at (1, −1); the loss is half the squared error, and the group
    S_2 swaps the coordinates of x. Fractions give exact values, tensors batches.

    Parameters
    ----------
    a
        The two weights.
    label
        Target at (1, −1).
    swapped
        Weight of the swapped data: 1/2 is the Haar measure, 0 the nominal risk.
    """
    total = 0
    for (x1, x2), y in zip(PLANE_POINTS, (1, 1, label), strict=True):
        plain, moved = (a[0] * x1 + a[1] * x2) ** 2 - y, (a[0] * x2 + a[1] * x1) ** 2 - y
        total = total + (1 - swapped) * plain**2 + swapped * moved**2
    return total / (2 * len(PLANE_POINTS))


@dataclass(frozen=True)
class PlanePoint:
    """Exact facts about the equivariant weights a = (1/2, 1/2) for one label.

    Attributes
    ----------
    stationary : bool
        Whether the gradients of R and R^aug vanish.
    nominal, augmented : Form
        Hessians of the two risks, each differentiated by itself.
    minimum : StrictMinimum
        Signs read off the Hessians of R, of R^aug, and of R^eqv on E.
    """

    stationary: bool
    nominal: Form
    augmented: Form
    minimum: StrictMinimum


def plane_point(label: Fraction, swapped: Fraction = HALF) -> PlanePoint:
    """Return the exact derivatives at a = (1/2, 1/2); ``swapped`` other than 1/2 is augmentation that is not Haar."""
    at = (HALF, HALF)
    slope, nominal = exact_derivatives(lambda a: plane_risk(a, label, Fraction(0)), at)
    slope_aug, augmented = exact_derivatives(lambda a: plane_risk(a, label, swapped), at)
    _, inside = exact_derivatives(lambda a: plane_risk(((a[0] + a[1]) / 2,) * 2, label, Fraction(0)), at)
    minimum = StrictMinimum(nominal.is_positive, augmented.is_positive, inside.on_equivariant > 0)
    return PlanePoint(not any(slope + slope_aug), nominal, augmented, minimum)


def wrong_signs(swapped: Fraction = HALF, size: int = 6) -> int:
    """Return how many stated signs are wrong, in exact arithmetic.

    Counted are: the three signs at each of three labels and of two matrices, a gradient that does not vanish, an
    augmented Hessian that is not the average of the nominal one, and broken implications among all integer matrices.

    Parameters
    ----------
    swapped
        Weight of the swapped data; anything but 1/2 is not Haar: the control.
    size
        Largest entry of the integer matrices.
    """
    wrong = violated_implications(size, swapped)
    for label, stated in STATED_LABELS.items():
        point = plane_point(label, swapped)
        wrong += _differences(point.minimum, stated) + (not point.stationary)
        wrong += point.augmented != point.nominal.averaged()
    return wrong + sum(_differences(classify(form, swapped), stated) for form, stated in STATED_FORMS.items())


def _differences(one: StrictMinimum, other: StrictMinimum) -> int:
    return sum(getattr(one, name) != getattr(other, name) for name in ("nominal", "augmented", "equivariant"))


def plane_descents(label: float, runs: int, swapped: float = 0.5, steps: int = 400, seed: int = 0) -> Tensor:
    """Descend from random points at distance 0.01 of a = (1/2, 1/2), and return the paths, shape (steps + 1, runs, 2).

    Parameters
    ----------
    label
        Target at (1, −1).
    runs
        Number of starting points, in random directions.
    swapped
        Weight of the swapped data, as in :func:`plane_risk`.
    steps
        Steps of gradient descent at rate 0.1.
    seed
        Seed of the directions.
    """
    angle = 2 * math.pi * torch.rand(check_int("runs", runs), generator=seeded(seed), dtype=torch.float64)
    start = 0.5 + 0.01 * torch.stack([angle.cos(), angle.sin()], -1)
    return descend(lambda a: plane_risk(a.unbind(-1), label, swapped), start, 0.1, steps, lambda a: a)[1]


def plane_outcomes(paths: Tensor) -> list[str]:
    """Return for every path whether it ended within 1e-6 of E ("returned"), beyond 0.1 ("escaped"), or "undecided"."""
    distance = (paths[-1, :, 0] - paths[-1, :, 1]).abs() / math.sqrt(2)
    return ["returned" if d < 1e-6 else "escaped" if d > 0.1 else "undecided" for d in distance.tolist()]
