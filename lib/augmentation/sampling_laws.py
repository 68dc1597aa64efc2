"""Probability laws on finite groups, for sampled augmentation: Haar measure and others.

The samplers in the published code of Nordenfors, Ohlsson and Flinth (``usinedepain/eq_aug_dyn``, ``datasets.py``) have
these laws when they are executed: a random shift is uniform on 0 … n, and n acts as 0; a random turn is uniform on
0 … 4, where 0 and 4 do nothing, 1 and 3 are both the turn by 90°, 2 the one by 180°. Images that come flattened have a
row axis of length one: there 1, 2 and 3 all reverse the pixels, which is the turn by 180°.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_probabilities
from lib.symmetry.groups import FiniteGroup, Group
from lib.symmetry.haar import uniform, wide
from lib.symmetry.representations import Representation

LISTING_LIMIT = 4096


@dataclass(frozen=True)
class Law:
    """A probability law on a finite group: the law of a product g_1 g_2 … of independent factors.

    There are no factors for Haar measure on a group too large to list.
    """

    name: str  #: for tables
    group: Group  #: the group
    factors: tuple[tuple[Tensor, Tensor], ...]  #: elements ``(m, *element_shape)`` and probabilities ``(m,)`` of each

    def __post_init__(self) -> None:
        for elements, weights in self.factors:
            self.group.check("elements", elements)
            check_probabilities("weights", weights, len(elements))

    @property
    def support(self) -> int | None:
        """Number of products that can occur, counted with multiplicity; None where they cannot be listed."""
        sizes = [len(elements) for elements, _ in self.factors]
        return math.prod(sizes) if sizes else None

    def listed(self) -> tuple[Tensor, Tensor]:
        """Return all products and their probabilities; ValueError where the group is too large to list."""
        if not self.factors:
            raise ValueError(f"{self.name} on {self.group} cannot be listed; use a number of passes")
        elements, weights = self.factors[0]
        for more, probabilities in self.factors[1:]:
            elements = self.group.multiply(self.group.unsqueeze(elements), more).flatten(0, 1)
            weights = (weights[:, None] * probabilities).flatten()
        return elements, weights

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Return independent elements, shape ``(count, *element_shape)``."""
        if not self.factors:
            return self.group.sample(count, generator)
        g = None
        for elements, weights in self.factors:
            chances = weights.to(generator.device)
            h = elements[torch.multinomial(chances, count, replacement=True, generator=generator).to(elements.device)]
            g = h if g is None else self.group.multiply(g, h)
        return g

    def average(self, representation: Representation, x: Tensor) -> Tensor:
        """Return ∫ ρ(g) x dν(g) for x of shape ``(..., *representation.shape)``, factor by factor (one at least)."""
        for elements, weights in reversed(self.factors):
            total = torch.zeros_like(x, dtype=wide(x))
            for g, w in zip(elements, weights.tolist(), strict=True):
                total = total + w * representation.apply(g, x).to(total)
            x = total.to(x)
        return x


def haar(group: FiniteGroup) -> Law:
    """Return the Haar measure: all elements equally likely."""
    if group.order > LISTING_LIMIT:
        return Law("Haar", group, ())
    return Law("Haar", group, ((group.elements(), uniform(group.order)),))


def published(sampler: str, group: FiniteGroup, side: int) -> Law:
    """Return the law of a published random transformation of images with so many pixels per side, executed.

    Samplers are ``"rotations"``, ``"flattened rotations"``, ``"row shifts"``, ``"translations"`` and ``"motions"``; the
    group is C4, or shifts, or shifts and turns, as from ``image_representation``.

    >>> from lib.symmetry.groups import Cyclic
    >>> published("rotations", Cyclic(4), 8).listed()[1].tolist()
    [0.4, 0.4, 0.2, 0.0]
    """
    kind = sampler.removeprefix("flattened ")
    here = {"dtype": torch.float64, "device": "cpu"}
    turns = torch.tensor([0.4, 0.0, 0.6, 0.0] if sampler != kind else [0.4, 0.4, 0.2, 0.0], **here)
    shifts = torch.full((side,), 1.0 / (side + 1), **here)
    shifts[0] *= 2
    axes = torch.eye(group.identity().shape[-1], dtype=torch.int64, device="cpu")
    factors = tuple((torch.arange(side, device="cpu")[:, None] * axis, shifts) for axis in axes)
    if kind in ("rotations", "motions"):
        factors = ((torch.arange(4, device="cpu")[:, None] * axes[-1], turns), *factors[:-1])
    return Law("published", group, factors)
