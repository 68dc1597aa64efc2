"""Players of small adversarial games in the plane: perceptrons with or without a group's symmetry, many at once.

A *plain* player knows nothing; an *equivariant* generator and an *invariant* discriminator are built from tied layers;
an *averaged* discriminator is a plain one, averaged over the group; an *incomplete* generator has one free layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.gans.game import matched_size
from lib.gans.layers import Players, Weights, filters, size, untied
from lib.gans.objectives import Scores
from lib.symmetry.actions import regular, trivial
from lib.symmetry.derived import multiple
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant", "averaged")


def averaged(base: Scores, representation: Representation) -> Scores:
    """Return functions averaged over the group, ``S_Σγ = (1/|Σ|) Σ_σ γ(σ·)``: invariant, with all parameters of γ.

    Shapes ``(runs, n, dim) -> (runs, n, k)``, as of γ.
    """
    matrices = group_matrices(representation)

    def mean(x: Tensor) -> Tensor:
        images = x[:, None] @ matrices.to(x).mT  # (runs, |G|, n, dim)
        return base(images.flatten(1, 2)).unflatten(1, images.shape[1:3]).mean(1)

    return mean


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
) -> Players:
    """Return generators from noise of dimension 2 |G| into the space of a representation, with two hidden layers.

    ``plain``: no constraint. ``equivariant``: every layer intertwines, hidden layers are multiples of the regular
    representation; Gaussian noise is invariant, hence so is the law that comes out (Birrell et al. 2022, Theorem 2).
    ``incomplete``: the same behind one unconstrained first layer: equivariant in most layers, not as a whole.

    The representation is by orthogonal matrices; the width, that of hidden layers, is a multiple of |G| unless plain.
    """
    return Players(_generator_layers(kind, representation, width), runs, rng, dtype)


def make_discriminator(
    kind: str,
    representation: Representation,
    runs: int,
    rng: torch.Generator,
    width: int = 32,
    dtype: torch.dtype = torch.float32,
) -> Players:
    """Return networks from the space of a representation to one number; outputs have shape ``(runs, n, 1)``.

    ``plain``: no constraint. ``invariant``: hidden layers are multiples of the regular representation, the output is
    trivial. ``averaged``: a plain network, to be :func:`averaged`: invariant, with as many parameters and as wide as
    the plain one. The other arguments as in :func:`make_generator`.
    """
    one = trivial(representation.group)
    return Players(_layers(representation, one, width, [kind == "invariant"] * 3), runs, rng, dtype)


def _generator_layers(kind: str, representation: Representation, width: int) -> list[tuple[Weights, Weights]]:
    constrained = [kind == "equivariant", kind != "plain", kind != "plain"]
    return _layers(noise_representation(representation.group), representation, width, constrained)


def _layers(
    inputs: Representation, outputs: Representation, width: int, constrained: Sequence[bool]
) -> list[tuple[Weights, Weights]]:
    """Return the weights and biases of three layers; a constrained one before the last ends in the regular copies."""
    group, matrices = outputs.group, group_matrices(outputs)
    if width % group.order and any(constrained):
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
            zero = Weights(outputs.dim, 1, 0, lambda free: free.new_zeros(len(free), outputs.dim, 1))
            bias = untied(outputs.dim, 1) if bool((matrices == matrices[:1]).all()) else zero
            layers.append((filters(matrices, copies, back=True), bias))
    return layers


def group_matrices(representation: Representation) -> Tensor:
    """Return the orthogonal matrices ρ(σ) of all elements, ``(|G|, dim, dim)``; 0 or ±1 up to rounding is exact."""
    matrices = representation.matrix(representation.group.elements())
    gap = matrices @ matrices.mT - torch.eye(representation.dim, dtype=matrices.dtype, device=matrices.device)
    if float(gap.abs().max()) > 1e-9:
        raise ValueError(f"representation must be orthogonal, got {representation.name}")
    rounded = matrices.round()
    return torch.where((matrices - rounded).abs() < 1e-12, rounded, matrices)


def matched_width(kind: str, representation: Representation, width: int) -> int:
    """Return the multiple of |G| at which generators of a kind have most nearly the parameters of plain ones."""
    if kind == "plain":
        return width
    wanted = size(_generator_layers("plain", representation, width))
    return matched_size(
        lambda w: size(_generator_layers(kind, representation, w)), representation.group.order, wanted, width
    )
