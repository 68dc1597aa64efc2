"""Players of small adversarial games in the plane: perceptrons with or without a group's symmetry, many at once.

A *plain* player knows nothing; an *equivariant* generator and an *invariant* discriminator are built from tied layers;
an *averaged* discriminator is a plain one, averaged over the group; an *incomplete* generator has one free layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lib.checks import check_callable, check_choice, check_instance, check_int, check_tensor
from lib.gans.layers import Filters, Free, Network, Weights
from lib.symmetry.actions import regular, trivial
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import DirectSum, Representation

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant", "averaged")
Discriminator = Callable[[Tensor], Tensor]
_TOLERANCE = 1e-12


def multiple(r: Representation, copies: int) -> Representation:
    """Return the direct sum of ``copies`` copies of a representation."""
    return r if check_int("copies", copies) == 1 else DirectSum(*[r] * copies)


class Averaged:
    """Functions averaged over the group, ``S_Σγ = (1/|Σ|) Σ_σ γ(σ·)``: invariant, with all parameters of γ.

    Attributes
    ----------
    base : callable
        The function γ, ``(runs, n, dim) -> (runs, n, k)``.
    """

    def __init__(self, base: Discriminator, representation: Representation) -> None:
        self.base, self.matrices = base, group_matrices(representation)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the averaged outputs, shape ``(runs, n, k)``."""
        images = x[:, None] @ self.matrices.to(x).mT  # (runs, |G|, n, dim)
        return self.base(images.flatten(1, 2)).unflatten(1, images.shape[1:3]).mean(1)


def noise_representation(group: FiniteGroup, copies: int) -> Representation:
    """Return how the group acts on the noise, ``copies`` of the regular representation: N(0, 1) is invariant."""
    return multiple(regular(group), copies)


def make_generator(
    kind: str,
    representation: Representation,
    runs: int,
    rng: torch.Generator,
    copies: int = 2,
    width: int = 32,
    depth: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return generators from noise of dimension ``copies · |G|`` into the space of a representation.

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
    copies
        Copies of the regular representation in the noise.
    width, depth
        Hidden coordinates per layer, a multiple of |G| unless plain, and hidden layers.
    dtype
        Type of the weights.
    """
    check_choice("kind", kind, GENERATORS)
    check_instance("representation", representation, Representation)
    noise = noise_representation(representation.group, copies)
    constrained = [kind != "plain"] * (check_int("depth", depth) + 1)
    constrained[0] &= kind != "incomplete"
    return Network(_layers(noise, representation, width, constrained), runs, rng, dtype)


def make_discriminator(
    kind: str,
    representation: Representation,
    runs: int,
    rng: torch.Generator,
    width: int = 32,
    depth: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """Return networks from the space of a representation to one number; outputs have shape ``(runs, n, 1)``.

    ``plain``: no constraint. ``invariant``: hidden layers are multiples of the regular representation, the output is
    trivial. ``averaged``: a plain network, to be wrapped in :class:`Averaged`: invariant, with as many parameters and
    as wide as the plain one.
    """
    check_choice("kind", kind, DISCRIMINATORS)
    check_instance("representation", representation, Representation)
    constrained = [kind == "invariant"] * (check_int("depth", depth) + 1)
    return Network(_layers(representation, trivial(representation.group), width, constrained), runs, rng, dtype)


def _layers(
    inputs: Representation, outputs: Representation, width: int, constrained: Sequence[bool]
) -> list[tuple[Weights, Weights]]:
    """Return the weights and biases of all layers; a constrained layer before the last ends in the regular copies."""
    check_int("depth", len(constrained) - 1)
    group = check_instance("representation's group", outputs.group, FiniteGroup)
    if check_int("width", width) % group.order and any(constrained):
        raise ValueError(f"width must be a multiple of {group.order} for layers tied by {group}, got {width}")
    one, hidden = trivial(group), multiple(regular(group), width // group.order) if any(constrained) else None
    layers: list[tuple[Weights, Weights]] = []
    for place, is_tied in enumerate(constrained):
        source, last = inputs if place == 0 else hidden, place == len(constrained) - 1
        if not is_tied:
            size = outputs.dim if last else width
            layers.append((Free(size, inputs.dim if place == 0 else width), Free(size, 1)))
        elif last:  # no vector but zero is fixed by the group, unless it acts trivially
            fixed = Free(outputs.dim, 1, zero=not _acts_trivially(outputs))
            layers.append((Filters(group_matrices(outputs), width // group.order, back=True), fixed))
        else:
            copies = width // group.order
            layers.append((Filters(group_matrices(source), copies), Filters(group_matrices(one), copies)))
    return layers


def _acts_trivially(representation: Representation) -> bool:
    matrices = group_matrices(representation)
    return bool((matrices == matrices[:1]).all())


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
    return torch.where((matrices - rounded).abs() < _TOLERANCE, rounded, matrices)


def equivariance_residual(
    function: Discriminator, points: Tensor, source: Representation, target: Representation
) -> Tensor:
    """Return ``max |g(σz) − σg(z)|`` over the group, the points and the coordinates, divided by the RMS of g(z).

    Parameters
    ----------
    function
        Generators g, ``(runs, n, dim) -> (runs, n, k)``; or discriminators, with a trivial target.
    points
        Noise, shape ``(runs, n, dim)``.
    source, target
        How the group acts before and after g.

    Returns
    -------
    Tensor
        Shape ``(runs,)``.
    """
    check_callable("function", function)
    check_instance("source", source, Representation)
    if check_instance("target", target, Representation).group != source.group:
        raise ValueError(f"source and target must be of one group, got {source.group} and {target.group}")
    if not check_tensor("points", points, (None, None, source.dim), inexact=True, real=True).numel():
        raise ValueError(f"points must not be empty, got shape {tuple(points.shape)}")
    with torch.no_grad():
        out = function(points)
        gaps = [
            (function(points @ before.mT) - out @ after.mT).abs().amax((1, 2))
            for before, after in zip(group_matrices(source).to(points), group_matrices(target).to(out), strict=True)
        ]
    return torch.stack(gaps).amax(0) / out.square().mean((1, 2)).sqrt()


def matched_width(kind: str, representation: Representation, copies: int, width: int, depth: int) -> int:
    """Return the width of generators of a kind with about as many free parameters as plain ones of a given width.

    The multiple of |G| whose number of parameters comes nearest; the other arguments as in :func:`make_generator`.
    """
    check_instance("representation", representation, Representation)
    for name, value in (("copies", copies), ("width", width), ("depth", depth)):
        check_int(name, value)
    order = check_instance("representation's group", representation.group, FiniteGroup).order
    rng = torch.Generator().manual_seed(0)

    def size(kind: str, width: int) -> int:
        return make_generator(kind, representation, 1, rng, copies, width, depth).per_run

    if check_choice("kind", kind, GENERATORS) == "plain":
        return width
    wanted = size("plain", width)
    return min(range(order, 4 * width + 1, order), key=lambda w: abs(size(kind, w) - wanted))
