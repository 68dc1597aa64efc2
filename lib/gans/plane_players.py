"""Players of small adversarial games in the plane: perceptrons with or without a group's symmetry, many at once.

A *plain* player knows nothing; an *equivariant* generator and an *invariant* discriminator are built from tied layers;
an *averaged* discriminator is a plain one, averaged over the group; an *incomplete* generator has one free layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance, check_int
from lib.gans.game import matched_size
from lib.gans.layers import Network, Weights, filters, untied, zero
from lib.gans.objectives import Scores
from lib.symmetry.actions import regular, trivial
from lib.symmetry.derived import multiple
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant", "averaged")


class Averaged:
    """Functions averaged over the group, ``S_Σγ = (1/|Σ|) Σ_σ γ(σ·)``: invariant, with all parameters of γ.

    Attributes
    ----------
    base : callable
        The function γ, ``(runs, n, dim) -> (runs, n, k)``.
    """

    def __init__(self, base: Scores, representation: Representation) -> None:
        self.base, self.matrices = base, group_matrices(representation)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the averaged outputs, shape ``(runs, n, k)``."""
        images = x[:, None] @ self.matrices.to(x).mT  # (runs, |G|, n, dim)
        return self.base(images.flatten(1, 2)).unflatten(1, images.shape[1:3]).mean(1)


def noise_representation(group: FiniteGroup, copies: int = 2) -> Representation:
    """Return how the group acts on the noise, ``copies`` of the regular representation: N(0, 1) is invariant."""
    return multiple(regular(group), copies)


def make_generator(
    kind: str,
    representation: Representation,
    runs: int,
    rng: torch.Generator,
    width: int = 32,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return generators from noise of dimension 2 |G| into the space of a representation, with two hidden layers.

    ``plain``: no constraint. ``equivariant``: every layer intertwines, hidden layers are multiples of the regular
    representation; Gaussian noise is invariant, hence so is the law that comes out (Birrell et al. 2022, Theorem 2).
    ``incomplete``: the same behind one unconstrained first layer: equivariant in most layers, not as a whole.

    Parameters
    ----------
    kind
        One of ``GENERATORS``.
    representation
        How the group acts on the outputs, by orthogonal matrices.
    runs
        Number of generators.
    rng
        Source of the initial weights.
    width
        Hidden coordinates per layer, a multiple of |G| unless plain.
    dtype
        Type of the weights.
    """
    check_choice("kind", kind, GENERATORS)
    check_instance("representation", representation, Representation)
    constrained = [kind == "equivariant", kind != "plain", kind != "plain"]
    noise = noise_representation(representation.group)
    return Network(_layers(noise, representation, width, constrained), runs, rng, dtype)


def make_discriminator(
    kind: str,
    representation: Representation,
    runs: int,
    rng: torch.Generator,
    width: int = 32,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return networks from the space of a representation to one number; outputs have shape ``(runs, n, 1)``.

    ``plain``: no constraint. ``invariant``: hidden layers are multiples of the regular representation, the output is
    trivial. ``averaged``: a plain network, to be wrapped in :class:`Averaged`: invariant, with as many parameters and
    as wide as the plain one. The other arguments as in :func:`make_generator`.
    """
    check_choice("kind", kind, DISCRIMINATORS)
    check_instance("representation", representation, Representation)
    one = trivial(representation.group)
    return Network(_layers(representation, one, width, [kind == "invariant"] * 3), runs, rng, dtype)


def _layers(
    inputs: Representation, outputs: Representation, width: int, constrained: Sequence[bool]
) -> list[tuple[Weights, Weights]]:
    """Return the weights and biases of three layers; a constrained one before the last ends in the regular copies."""
    group, matrices = outputs.group, group_matrices(outputs)
    if check_int("width", width) % group.order and any(constrained):
        raise ValueError(f"width must be a multiple of {group.order} for layers tied by {group}, got {width}")
    copies = width // group.order
    sizes = (inputs.dim, width, width, outputs.dim)
    layers: list[tuple[Weights, Weights]] = []
    for place, is_tied in enumerate(constrained):
        if not is_tied:
            layers.append((untied(sizes[place + 1], sizes[place]), untied(sizes[place + 1], 1)))
        elif place < 2:
            source = multiple(regular(group), copies) if place else inputs
            bias = filters(group_matrices(trivial(group)), copies)
            layers.append((filters(group_matrices(source), copies), bias))
        else:  # no vector but zero is fixed by the group, unless it acts trivially
            fixed = untied(outputs.dim, 1) if bool((matrices == matrices[:1]).all()) else zero(outputs.dim)
            layers.append((filters(matrices, copies, back=True), fixed))
    return layers


def group_matrices(representation: Representation) -> Tensor:
    """Return the matrices ρ(σ) of all elements, shape ``(|G|, dim, dim)``; what is 0 or ±1 up to rounding is exact.

    Raises
    ------
    ValueError
        The matrices are not orthogonal.
    """
    check_instance("representation", representation, Representation)
    group = check_instance("representation's group", representation.group, FiniteGroup)
    matrices = representation.matrix(group.elements())
    gap = matrices @ matrices.mT - torch.eye(representation.dim, dtype=matrices.dtype, device=matrices.device)
    if float(gap.abs().max()) > 1e-9:
        raise ValueError(f"representation must be orthogonal, got {representation.name}")
    rounded = matrices.round()
    return torch.where((matrices - rounded).abs() < 1e-12, rounded, matrices)


def matched_width(kind: str, representation: Representation, width: int) -> int:
    """Return the width of generators of a kind with about as many free parameters as plain ones of a given width.

    The multiple of |G| whose number of parameters comes nearest.
    """

    def size(kind: str, width: int) -> int:
        return make_generator(kind, representation, 1, torch.Generator(), width).per_run

    if check_choice("kind", kind, GENERATORS) == "plain":
        return width
    return matched_size(lambda w: size(kind, w), representation.group.order, size("plain", width), width)
