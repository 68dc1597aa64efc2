"""Chapter *Margins and augmentation*, second part: the conditions of the equivalence broken on purpose (B11).

For networks that are not linear see :mod:`~lib.experiments.margin_neurons`.

Each function returns the directions that two trainings end in and the angle that theory predicts between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lib.checks import check_float, check_int, seeded
from lib.experiments.margins_and_augmentation import augment, digit_pair, draw
from lib.symmetry.actions import pixels, regular, trivial
from lib.symmetry.groups import Cyclic, FiniteGroup
from lib.symmetry.haar import NullSpace, OrbitMean, projection
from lib.symmetry.representations import DirectSum, Hom, MatrixRepresentation, Representation
from lib.training.gradient_flow import Integration, Trained, train
from lib.training.linear_networks import LinearNetwork, fully_connected
from lib.training.margins import angle, invariant_max_margin, max_margin
from lib.training.steerable import SteerableLayer, steerable_network

HOW = Integration(cap=1e5)


@dataclass(frozen=True)
class Gap:
    """The angle between two trained classifiers, and the predicted one.

    Attributes
    ----------
    first, second : Tensor
        The two directions; for networks that are not linear, coordinates of the two functions in an orthonormal basis.
    predicted : float
        The angle that theory gives, in radians.
    """

    first: Tensor
    second: Tensor
    predicted: float

    @property
    def measured(self) -> float:
        """The angle between the two directions, in radians."""
        return float(angle(self.first, self.second))

    @property
    def error(self) -> float:
        """Relative difference of measured and predicted angle."""
        return abs(self.measured / self.predicted - 1)


def partial_augmentation(shifts: list[int], seed: int = 0, tilt: float = 0.0) -> Gap:
    """Train on one point of R^4, e_0 with label 1, and on some of its cyclic shifts.

    The steerable network ends at (1, 1, 1, 1)/2, the fully connected one at the normalised sum of the k shifted points
    that it saw: the angle is arccos √(k/4).

    Parameters
    ----------
    shifts
        Different elements of C_4 = {0, 1, 2, 3}, among them 0.
    seed
        Seed of the starts.
    tilt
        Train on e_0 + tilt · e_1 instead: the control, since the prediction stays that for e_0.
    """
    if sorted({*shifts, 0}) != sorted(shifts) or not {*shifts} <= {0, 1, 2, 3}:
        raise ValueError(f"shifts must be different elements of 0 … 3 and hold 0, got {shifts}")
    V = regular(Cyclic(4))
    x, y = torch.tensor([[1.0, tilt, 0.0, 0.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    moved = augment(x, y, V, torch.tensor(shifts)[:, None])
    steerable, dense = _both(steerable_network([V]), (x, y), fully_connected(4, 2, 2), moved, seed)
    return Gap(steerable.direction, dense.direction, math.acos(math.sqrt(len(shifts) / 4)))


def partial_augmentation_of_digits(group: FiniteGroup, elements: Tensor, seed: int = 0) -> Gap:
    """Train on 24 images of the digits 0 and 8, the fully connected network on the images under some group elements.

    Parameters
    ----------
    group
        ``Cyclic(4)`` or ``Dihedral(4)``.
    elements
        The group elements that the fully connected network sees; the prediction is the angle of two largest margins.
    seed
        Seed of training set and starts.
    """
    V = pixels(group, 8)
    x, y = draw(*digit_pair(0, 8), 24, seeded(seed))
    moved = augment(x, y, V, elements)
    steerable, dense = _both(steerable_network([V]), (x, y), fully_connected(64, 2, 2), moved, seed)
    predicted = angle(invariant_max_margin(x, y, V).vector, max_margin(*moved).vector)
    return Gap(steerable.direction, dense.direction, float(predicted))


def shear(a: float) -> MatrixRepresentation:
    """Return C_2 acting on the plane by s = [[1, a], [0, −1]], a reflection along a slanted line; unitary if a = 0."""
    flip = torch.tensor([[1.0, check_float("a", a)], [0.0, -1.0]], dtype=torch.float64)
    both = torch.stack([torch.eye(2, dtype=torch.float64), flip])
    return MatrixRepresentation(Cyclic(2), 2, lambda g: both[g[..., 0]], f"shear {a:g}", unitary=a == 0)


def not_unitary(a: float, seed: int = 0, tilt: float = 0.0) -> Gap:
    """Train on the point (1, 0), which s = [[1, a], [0, −1]] leaves alone, with label 1.

    Invariance ⟨sx, β⟩ = ⟨x, β⟩ leaves β ∝ (1, a/2); augmentation adds nothing, and the fully connected network ends at
    (1, 0): the angle is arctan(a/2).

    Parameters
    ----------
    a
        The slant.
    seed
        Seed of the starts.
    tilt
        Train on (1, tilt) instead, a point that s moves: the control, since the prediction stays that for (1, 0).
    """
    V = shear(a)
    x, y = torch.tensor([[1.0, tilt]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    network = LinearNetwork("steerable, not unitary", 2, [SteerableLayer(V, trivial(V.group, 2))])
    moved = augment(x, y, V, V.group.elements())
    steerable, dense = _both(network, (x, y), fully_connected(2, 2, 2), moved, seed)
    return Gap(steerable.direction, dense.direction, math.atan(a / 2))


@dataclass(frozen=True)
class Oblique:
    """A trained network without unitarity, and two classifiers that unitarity would make equal; see :func:`oblique`.

    Attributes
    ----------
    trained : Tensor
        Where training ends.
    invariant, averaged : Tensor
        The invariant classifier of largest margin on the data, and the classifier of largest margin on orbit averages.
    """

    trained: Tensor
    invariant: Tensor
    averaged: Tensor


def oblique(hidden: int = 0, seed: int = 0) -> Oblique:
    """Train a steerable network on R^6, three slanted reflections side by side: the invariants have three dimensions.

    Parameters
    ----------
    hidden
        Copies of the regular representation in a hidden space; none for 0.
    seed
        Seed of six random points, of the invariant vector that labels them, and of the start.
    """
    V = shear(1.0) + shear(2.0) + shear(0.5)
    generator = seeded(seed)
    x = torch.randn(6, V.dim, generator=generator, dtype=torch.float64)
    basis = NullSpace(V.dual()).basis()
    y = torch.sign(x @ (torch.randn(len(basis), generator=generator, dtype=torch.float64) @ basis))
    inner = [DirectSum(*[regular(V.group)] * hidden)] if check_int("hidden", hidden, minimum=0) else []
    spaces = [V, *inner, trivial(V.group, 2)]
    network = LinearNetwork("steerable, not unitary", V.dim, [SteerableLayer(a, b) for a, b in pairwise(spaces)])
    end = train(network, x, y, network.start(1, generator)[0], HOW)
    mean = V.apply(V.group.elements()[:, None], x).mean(0)
    return Oblique(end.direction, invariant_max_margin(x, y, V).direction, max_margin(mean, y).direction)


def tied_layer(representation: Representation, outputs: int = 2) -> SteerableLayer:
    """Return the layer V → 1^outputs whose basis are the indicators of orbits: plain weight sharing.

    The indicator of an orbit O has the length √|O|, so the basis is orthogonal but not orthonormal unless all orbits
    have the same size.
    """
    maps = Hom(representation, trivial(representation.group, outputs))
    return SteerableLayer(maps.source, maps.target, (OrbitMean(maps).basis() > 0).double().unflatten(-1, maps.shape))


def weight_sharing(seed: int = 0, tilt: float = 0.0) -> Gap:
    """Train on a constant image of 3 × 3 pixels with label 1, under quarter turns, with two bases of the same layer.

    The orbits are the corners, the edges and the centre, of sizes n = 4, 4, 1. The orthonormal basis leads to the
    constant β, weight sharing to β = n on each orbit: cos = Σ n² / √(9 Σ n³) = 33/(3√129).

    Parameters
    ----------
    seed
        Seed of the starts.
    tilt
        Brighten the corner pixels by this: the control, since the prediction stays that for a constant image.
    """
    V = pixels(Cyclic(4), 3)
    x, y = torch.ones(1, 9, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    x[:, [0, 2, 6, 8]] += tilt
    tied = LinearNetwork("weight sharing", 9, [tied_layer(V)])
    first, second = _both(steerable_network([V]), (x, y), tied, (x, y), seed)
    return Gap(first.direction, second.direction, math.acos(33 / (3 * math.sqrt(129))))


def weight_sharing_on_digits(group: FiniteGroup, seed: int = 0) -> Gap:
    """Train on 24 images of the digits 0 and 8 with orthonormal and with tied weights; predict by two largest margins.

    In tied weights β = Σ c_O 1_O the flow sees the points (⟨1_O, x⟩)_O, and its β is the image of their largest margin.

    Parameters
    ----------
    group
        ``Dihedral(4)``, whose orbits of pixels have the sizes 4 and 8, or ``Cyclic(4)``: then all have four pixels and
        the prediction is zero.
    seed
        Seed of training set and starts.
    """
    V = pixels(group, 8)
    x, y = draw(*digit_pair(0, 8), 24, seeded(seed))
    indicators = (projection(V).basis() > 0).double()
    tied = LinearNetwork("weight sharing", 64, [tied_layer(V)])
    first, second = _both(steerable_network([V]), (x, y), tied, (x, y), seed)
    other = max_margin(x @ indicators.mT, y).vector @ indicators
    return Gap(first.direction, second.direction, float(angle(invariant_max_margin(x, y, V).vector, other)))


def _both(
    first: LinearNetwork, data: tuple[Tensor, Tensor], second: LinearNetwork, others: tuple[Tensor, Tensor], seed: int
) -> list[Trained]:
    """Train two networks from random starts."""
    generator = seeded(seed)
    runs = ((first, data), (second, others))
    return [train(net, x, y, net.start(1, generator)[0], HOW) for net, (x, y) in runs]
