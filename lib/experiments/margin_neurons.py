"""Chapter *Margins and augmentation*: the equivalence for one hidden layer of neurons, squared or ReLU (B11)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_choice, check_int, seeded
from lib.experiments.margin_caveats import Gap
from lib.experiments.margins_and_augmentation import augment
from lib.symmetry.actions import planar, trivial
from lib.symmetry.groups import Cyclic
from lib.symmetry.representations import Representation
from lib.training.gradient_flow import Integration, Trained, train
from lib.training.linear_networks import LinearNetwork

HOW = Integration(cap=1e4, tolerance=1e-4, efolds=100)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"square": torch.square, "relu": torch.relu}


class Neurons(LinearNetwork):
    """A shallow network x ↦ Σ_j a_j Σ_g σ(⟨ρ(g)v_j, x⟩)/|G|, seen through its values at given points.

    The gradient flow of any homogeneous network depends on nothing else, so ``predictor`` returns the values at the
    points, and the network is trained on the rows of a unit matrix. With the trivial group it is fully connected. The
    parameters are all v_j, then all a_j; both are coefficients in orthonormal bases of equivariant maps.

    Parameters
    ----------
    activation
        ``"square"`` (homogeneous of degree 3) or ``"relu"`` (degree 2).
    points
        The points, shape ``(n, d)``.
    neurons
        Number of v_j.
    representation
        The action on R^d of the group over which a neuron is repeated.
    """

    def __init__(self, activation: str, points: Tensor, neurons: int, representation: Representation) -> None:
        check_choice("activation", activation, ACTIVATIONS)
        self.name, self.activation, self.points = f"{activation} neurons", ACTIVATIONS[activation], points
        self.inputs, (self.neurons, self.width) = len(points), (check_int("neurons", neurons), representation.dim)
        self.depth = 3 if activation == "square" else 2
        self.sizes = (self.neurons * self.width, self.neurons)
        self.size, self.hidden = sum(self.sizes), ()
        self.moves = representation.matrix(representation.group.elements())

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors v_j, shape ``(..., neurons, d)``, and the weights a_j."""
        v, a = w.split(self.sizes, dim=-1)
        return v.unflatten(-1, (self.neurons, self.width)), a

    def values(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the network at points x of shape ``(m, d)``, shape ``(..., m)``."""
        v, a = self.split(w)
        rows = torch.einsum("gij,...kj->...kgi", self.moves, v) / math.sqrt(len(self.moves))
        hidden = self.activation(torch.einsum("...kgi,mi->...mkg", rows, x)).sum(-1)
        return (hidden @ a[..., None])[..., 0] / math.sqrt(len(self.moves))

    def predictor(self, w: Tensor) -> Tensor:
        """Return the values at the network's own points."""
        return self.values(w, self.points)

    def vjp(self, w: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the values and their vector-Jacobian product."""
        values, product = torch.func.vjp(self.predictor, w)
        return values, lambda v: product(v)[0]

    def jacobian(self, w: Tensor) -> Tensor:
        """Return the Jacobian of the values."""
        return torch.func.jacrev(self.predictor)(w)

    def hessian(self, w: Tensor, v: Tensor) -> Tensor:
        """Return the Hessian of w ↦ ⟨v, values⟩."""
        return torch.func.hessian(lambda u: (self.predictor(u) * v).sum())(w)

    def start(self, runs: int, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        """Return Gaussian v_j and a_j = ‖v_j‖: balanced, and every neuron pulls towards label 1."""
        w = scale * torch.randn(runs, self.size, generator=generator, dtype=torch.float64)
        v, _ = self.split(w)
        return torch.cat([w[:, : self.sizes[0]], v.norm(dim=-1)], dim=-1)


@dataclass(frozen=True)
class NeuronPair:
    """A fully connected and a steerable shallow network, trained for one orbit of the plane; see :func:`train_neurons`.

    Attributes
    ----------
    dense, steerable : lib.training.gradient_flow.Trained
        The two ends.
    gap : Gap
        The angle between the two functions in L² of the circle.
    margins : tuple of float
        The smallest value at a training point when ‖w‖ = 1, for the two networks.
    best : tuple of float
        The largest such margin that the two networks can have.
    """

    dense: Trained
    steerable: Trained
    gap: Gap
    margins: tuple[float, float]
    best: tuple[float, float]


def train_neurons(activation: str, count: int = 4, seed: int = 0, turns: int = 4) -> NeuronPair:
    """Train two shallow networks to be positive on ±e_1, ±e_2, the orbit of e_1 under quarter turns.

    The fully connected network sees all four points, the steerable one e_1 only. A start is drawn again until every
    training point has a neuron that is not zero there: a ReLU network without one cannot learn the point.

    *Squares.* The first does best with one neuron at 45°, (x_1 ± x_2)²; the second can express ‖x‖² only. As functions
    on the circle these form the angle arccos √(2/3), and the margins are 1/(3√3) and half of that. *ReLU.* Both reach
    the same largest margin 1/(4√2), but it belongs to more than one function: no angle is predicted (NaN).

    Parameters
    ----------
    activation
        ``"square"`` or ``"relu"``.
    count
        Neurons of the fully connected, filters of the steerable network.
    seed
        Seed of the starts.
    turns
        Order of the cyclic group of the steerable network; with 2 it knows half turns only: the control, since the
        predictions stay those for 4.
    """
    V = planar(Cyclic(4))
    e = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    orbit, _ = augment(e, torch.ones(1), V, V.group.elements())
    dense = Neurons(activation, orbit, count, trivial(Cyclic(1), 2))
    steerable = Neurons(activation, e, count, planar(Cyclic(turns)))
    generator, ends, circle = seeded(seed), [], []
    turn = torch.arange(720, dtype=torch.float64) * (2 * math.pi / 720)
    for net in (dense, steerable):
        one, labels = torch.eye(net.inputs, dtype=torch.float64), torch.ones(net.inputs, dtype=torch.float64)
        start = net.start(1, generator)[0]
        while not bool((net.predictor(start) > 0).all()):
            start = net.start(1, generator)[0]
        ends.append(train(net, one, labels, start, HOW))
        circle.append(net.values(ends[-1].parameters, torch.stack([turn.cos(), turn.sin()], -1)))
    square = activation == "square"
    best = 1 / (3 * math.sqrt(3)) if square else 1 / (4 * math.sqrt(2))
    margins = tuple(float(net.predictor(end.parameters).min()) for net, end in zip((dense, steerable), ends))
    gap = Gap(circle[0], circle[1], math.acos(math.sqrt(2 / 3)) if square else math.nan)
    return NeuronPair(*ends, gap, margins, (best, best / 2 if square else best))
