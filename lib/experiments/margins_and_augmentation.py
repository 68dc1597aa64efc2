"""Chapter *Margins and augmentation*, first part: one classifier, reached by four routes (B9, B10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_instance, check_int, check_tensor, seeded
from lib.images.bundled import digits
from lib.symmetry.actions import pixels, regular
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.symmetry.haar import projection
from lib.symmetry.representations import Representation, Restriction
from lib.training.gradient_flow import Integration, Trained, train
from lib.training.linear_networks import fully_connected
from lib.training.margins import (
    MaxMargin,
    Separability,
    invariant_max_margin,
    max_margin,
    one_minus_cosine,
    separability,
)
from lib.training.steerable import require_unitary, steerable_network

GROUPS = (Cyclic(4), Dihedral(4))
PAIRS = tuple(combinations(range(10), 2))


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison on digits.

    Attributes
    ----------
    pairs : tuple of tuple
        The two digits of every problem.
    images : int
        Training images of a problem, drawn at random from both digits.
    seeds : int
        Training sets and starts per problem.
    cap : float
        Where the flow hands over to the continuation, see :class:`~lib.training.gradient_flow.Integration`.
    """

    pairs: tuple[tuple[int, int], ...] = ((0, 1), (0, 8), (4, 5))
    images: int = 24
    seeds: int = 3
    cap: float = 1e5

    def __post_init__(self) -> None:
        if not len(self.pairs):
            raise ValueError("pairs must hold at least one pair of digits, got none")
        for pair in self.pairs:
            check_choice("pairs", tuple(sorted(pair)), PAIRS)
        check_int("images", self.images, minimum=2, maximum=300)
        check_int("seeds", self.seeds)
        check_float("cap", self.cap, minimum=1e3, maximum=1e9)


def digit_pair(first: int, second: int) -> tuple[Tensor, Tensor]:
    """Return all bundled images of two digits and their labels, 1 for the first and −1 for the second.

    Returns
    -------
    tuple of Tensor
        Images, shape ``(n, 64)``, and labels, shape ``(n,)``.
    """
    check_choice("pair", tuple(sorted((first, second))), PAIRS)
    data = digits()
    x, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    chosen = (y == first) | (y == second)
    return x[chosen], torch.where(y[chosen] == first, 1.0, -1.0).double()


def draw(x: Tensor, y: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return ``count`` different points in random order, with their labels."""
    check_int("count", count, maximum=len(check_instance("x", x, Tensor)))
    check_instance("generator", generator, torch.Generator)
    chosen = torch.randperm(len(x), generator=generator)[:count]
    return x[chosen], y[chosen]


def augment(x: Tensor, y: Tensor, representation: Representation, elements: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points moved by each of the given group elements, and their labels.

    Parameters
    ----------
    x, y
        Points, shape ``(n, d)``, and labels, shape ``(n,)``.
    representation
        How the group acts on points.
    elements
        Group elements, shape ``(m, *element_shape)``.

    Returns
    -------
    tuple of Tensor
        Points, shape ``(m·n, d)``, and labels, shape ``(m·n,)``.
    """
    check_tensor("x", x, (None, representation.dim))
    moved = representation.apply(representation.group.unsqueeze(elements), x)
    return moved.flatten(0, 1), y.repeat(len(elements))


def invariant_separability(group: FiniteGroup) -> dict[tuple[int, int], Separability]:
    """Decide for every pair of digits whether *all* its images can be separated by a group-invariant classifier.

    An invariant β sees of x only the orbit average, so this is separability of the averages.
    """
    project = projection(pixels(group, 8))
    pairs = {pair: digit_pair(*pair) for pair in PAIRS}
    return {pair: separability(project(x), y) for pair, (x, y) in pairs.items()}


def averaged_max_margin(x: Tensor, y: Tensor, representation: Representation) -> MaxMargin:
    """Return the largest-margin classifier of the orbit averages x̄_i = ∫ρ(g)x_i dμ(g), on which no constraint is put.

    Raises
    ------
    NotSeparable
        The averages are not separable; the exception carries the certificate.
    ValueError
        The representation is not unitary (the message says by how much): the solution would not be the invariant
        classifier of largest margin.
    """
    return max_margin(projection(require_unitary("representation", representation))(x), y)


@dataclass(frozen=True)
class Comparison:
    """One training set, the classifier that theory predicts, and what training finds; see :func:`compare`.

    Attributes
    ----------
    averaged, constrained : MaxMargin
        The largest margin on orbit averages, and the largest margin among invariant classifiers on the data.
    steerable, augmented : lib.training.gradient_flow.Trained
        A steerable network trained on the data, and a fully connected one trained on transformed data.
    """

    averaged: MaxMargin
    constrained: MaxMargin
    steerable: Trained
    augmented: Trained

    @property
    def disagreement(self) -> float:
        """‖u − v‖ for the unit vectors of the two exact solutions."""
        return float((self.averaged.direction - self.constrained.direction).norm())

    @property
    def trained_error(self) -> float:
        """1 − cos between the steerable network and the invariant classifier of largest margin."""
        return float(one_minus_cosine(self.steerable.direction, self.constrained.direction))

    @property
    def augmentation_error(self) -> float:
        """1 − cos between the two trained networks."""
        return float(one_minus_cosine(self.augmented.direction, self.steerable.direction))


def compare(
    group: FiniteGroup, pair: Sequence[int], seed: int, settings: Settings | None = None, broken: bool = False
) -> Comparison:
    """Reach the invariant classifier of two digits by two convex programs and two trainings.

    Parameters
    ----------
    group
        ``Cyclic(4)`` or ``Dihedral(4)``, acting on images of 8 × 8 pixels.
    pair
        The two digits.
    seed
        Seed of training set and starts. The networks have depth 2 for even seeds and 3 for odd ones.
    settings
        Sizes.
    broken
        The controls, on the same training set: the averages and the steerable network know the half turn only, and the
        augmented network sees the images and their first quarter turn. The constrained solution stays the right one.

    Raises
    ------
    NotSeparable
        No invariant classifier separates the training set.
    """
    settings = settings or Settings()
    generator = seeded(seed)
    x, y = draw(*digit_pair(*pair), settings.images, generator)
    V = pixels(check_choice("group", group, GROUPS), 8)
    W, elements = (half_turn(V), two_elements(group)) if broken else (V, group.elements())
    deep, how = seed % 2, Integration(cap=settings.cap)
    steerable = steerable_network([W, *[regular(W.group)] * deep])
    dense = fully_connected(V.dim, 2 + deep, 2)
    ends = [
        train(net, *data, net.start(1, generator)[0], how)
        for net, data in ((steerable, (x, y)), (dense, augment(x, y, V, elements)))
    ]
    return Comparison(averaged_max_margin(x, y, W), invariant_max_margin(x, y, V), *ends)


def convergence(depth: int, group: FiniteGroup, pair: Sequence[int], seed: int, images: int = 24) -> tuple[Tensor, ...]:
    """Follow a steerable network of the given depth until the loss is e^{−10⁷}, and on through the continuation.

    Returns
    -------
    tuple of Tensor
        T = ‖w‖^L along the flow, and 1 − cos to the invariant classifier of largest margin there; the same two along
        the continuation.
    """
    generator = seeded(seed)
    x, y = draw(*digit_pair(*pair), images, generator)
    V = pixels(group, 8)
    network = steerable_network([V, *[regular(group)] * (check_int("depth", depth, minimum=2) - 2)])
    end = train(network, x, y, network.start(1, generator)[0], Integration(cap=1e7))
    error = one_minus_cosine(end.path, invariant_max_margin(x, y, V).vector.expand_as(end.path))
    scale, k = (depth * end.log_norm).exp(), end.handover + 1
    return scale[:k], error[:k], scale[k - 1 :], error[k - 1 :]


def half_turn(representation: Representation) -> Restriction:
    """Return the action of the subgroup of order two that turns images by 180°."""
    group = representation.group
    turn = torch.stack([group.identity(), group.multiply(*[group.generators()[0]] * 2)])
    return Restriction(representation, Cyclic(2), lambda h: turn[h[..., 0]])


def two_elements(group: FiniteGroup) -> Tensor:
    """Return the neutral element and the first generator, the quarter turn."""
    return torch.stack([group.identity(), group.generators()[0]])
