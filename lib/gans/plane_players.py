"""Players of small adversarial games: batches of multilayer perceptrons whose weights are tied by a finite group.

Runs are a leading axis of every weight, so that all runs of a game are one batch of matrix products. A layer between
two representations that permute coordinates up to sign is equivariant exactly when its matrix is constant, up to sign,
on the orbits of pairs of coordinates. :class:`Tie` lists these orbits once; the matrices are gathered from one free
number per orbit. Between multiples of the regular representation of a cyclic group the blocks are circulant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lib.checks import check_callable, check_choice, check_instance, check_int, check_tensor
from lib.symmetry.actions import regular, trivial
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import DirectSum, Representation

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant", "averaged")
Discriminator = Callable[[Tensor], Tensor]
_SLOPE = 0.1  # of the leaky rectifier
_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Tie:
    """Which entries of a matrix share one free number: ``matrix.flatten()[k] = sign[k] · free[index[k]]``.

    Attributes
    ----------
    outputs, inputs : int
        Shape of the matrix.
    index : Tensor
        For each entry, row by row, the free number it shows.
    sign : Tensor
        Its sign, or 0 where the group forces the entry to vanish.
    count : int
        How many free numbers there are.
    """

    outputs: int
    inputs: int
    index: Tensor
    sign: Tensor
    count: int

    def expand(self, free: Tensor) -> Tensor:
        """Return the matrices of free numbers ``(runs, count)``, shape ``(runs, outputs, inputs)``."""
        if self.count == len(self.index):  # nothing is tied
            return free.unflatten(-1, (self.outputs, self.inputs))
        if self.count == 0:
            return free.new_zeros(len(free), self.outputs, self.inputs)
        entries = free.index_select(-1, self.index.to(free.device)) * self.sign.to(free)
        return entries.unflatten(-1, (self.outputs, self.inputs))

    def to(self, device: torch.device | str) -> Tie:
        """Return the tie with its tables on a device."""
        return replace(self, index=self.index.to(device), sign=self.sign.to(device))


def untied(outputs: int, inputs: int) -> Tie:
    """Return the tie of a matrix without constraints."""
    count = check_int("outputs", outputs) * check_int("inputs", inputs)
    return Tie(outputs, inputs, torch.arange(count, device="cpu"), torch.ones(count, device="cpu"), count)


def tied(source: Representation, target: Representation) -> Tie:
    """Return the tie of the equivariant matrices between two representations by signed permutations.

    Each orbit of the group on pairs (i, j) of coordinates carries one free number, or none if some element maps the
    pair to itself with sign −1.

    Raises
    ------
    TypeError
        The group is not finite.
    ValueError
        Two groups, or matrices with entries other than 0 and ±1.
    """
    check_instance("source", source, Representation)
    check_instance("target", target, Representation)
    if not isinstance(source.group, FiniteGroup) or source.group != target.group:
        raise ValueError(f"source and target must be of one finite group, got {source.group} and {target.group}")
    elements = source.group.elements()
    (columns, a), (rows, b) = (_signed_permutation(r, elements) for r in (source, target))
    pairs = (rows[:, :, None] * source.dim + columns[:, None, :]).flatten(1)  # where element g takes entry k
    signs = (b[:, :, None] * a[:, None, :]).flatten(1)
    first = pairs.argmin(0)  # the element that takes entry k to the smallest entry of its orbit
    smallest = pairs.amin(0)
    sign = signs.gather(0, first[None])[0]
    stays = pairs == torch.arange(pairs.shape[1], device=pairs.device)
    dead = (stays & (signs < 0)).any(0)
    kept = torch.unique(smallest[~dead])
    index = torch.searchsorted(kept, smallest).clamp_max(max(len(kept) - 1, 0))
    return Tie(target.dim, source.dim, index, torch.where(dead, 0.0, sign), len(kept))


def _signed_permutation(r: Representation, elements: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each element where every coordinate goes and with which sign, both of shape ``(|G|, dim)``."""
    matrices = r.matrix(elements)
    rounded = matrices.round()
    if float((matrices - rounded).abs().max()) > _TOLERANCE or not bool((rounded.abs().sum(-2) == 1).all()):
        raise ValueError(f"representations must permute coordinates up to sign, but {r.name} does not")
    return rounded.abs().argmax(-2), rounded.sum(-2)


def multiple(r: Representation, copies: int) -> Representation:
    """Return the direct sum of ``copies`` copies of a representation."""
    return r if check_int("copies", copies) == 1 else DirectSum(*[r] * copies)


class Network:
    """A batch of multilayer perceptrons ``x ↦ W_L σ(… σ(W_1 x + b_1) …) + b_L``, σ the leaky rectifier.

    Free weights start as independent Gaussians of variance 2/inputs (1/inputs in the last layer), so that the entries
    of tied and untied matrices start with the same law; first biases are Gaussian, to break the symmetry x ↦ −x
    of the first layer's law, the others zero.

    Parameters
    ----------
    ties
        For each layer the ties of its matrix and of its bias.
    runs
        Number of networks.
    rng
        Source of the initial weights.
    dtype
        Type of the weights.

    Attributes
    ----------
    parameters : list of Tensor
        Free numbers, leaves of shape ``(runs, count)``, two per layer.
    """

    def __init__(
        self,
        ties: Sequence[tuple[Tie, Tie]],
        runs: int,
        rng: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.ties, self.runs = list(ties), check_int("runs", runs)
        check_instance("rng", rng, torch.Generator)
        if not check_instance("dtype", dtype, torch.dtype).is_floating_point:
            raise ValueError(f"dtype must be a real floating-point type, got {dtype}")
        self.parameters: list[Tensor] = []
        for place, (matrix, bias) in enumerate(self.ties):
            gain = 1.0 if place == len(self.ties) - 1 else 2.0
            how = {"generator": rng, "dtype": dtype, "device": rng.device}
            weight = math.sqrt(gain / matrix.inputs) * torch.randn(runs, matrix.count, **how)
            offset = 0.5 * torch.randn(runs, bias.count, **how) * (place == 0)
            self.parameters += [weight.requires_grad_(True), offset.requires_grad_(True)]

    @property
    def inputs(self) -> int:
        """Number of input coordinates."""
        return self.ties[0][0].inputs

    @property
    def per_run(self) -> int:
        """Number of free parameters of one network."""
        return sum(p.shape[1] for p in self.parameters)

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Return matrices and biases, shapes ``(runs, outputs, inputs)`` and ``(runs, outputs, 1)``, of each layer."""
        free = iter(self.parameters)
        return [(matrix.expand(next(free)), bias.expand(next(free))) for matrix, bias in self.ties]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs for inputs of shape ``(runs, n, inputs)``, shape ``(runs, n, outputs)``."""
        return _perceptron(self.layers(), x)

    def with_parameters(self, parameters: Sequence[Tensor]) -> Network:
        """Return the same network with other parameters, for averages and for derivatives."""
        other = object.__new__(Network)
        other.ties, other.runs, other.parameters = self.ties, self.runs, list(parameters)
        return other

    def to(self, device: torch.device | str) -> Network:
        """Return the same network on a device; its parameters are leaves again."""
        moved = self.with_parameters([p.detach().to(device).requires_grad_(True) for p in self.parameters])
        moved.ties = [(matrix.to(device), bias.to(device)) for matrix, bias in self.ties]
        return moved


class Stack:
    """Several batches of networks of one shape, evaluated as one batch: ties differ, matrices do not.

    Attributes
    ----------
    networks : list of Network
        The batches, in their order along the leading axis.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)

    @property
    def parameters(self) -> list[Tensor]:
        """Free numbers of all networks that have any."""
        return [p for network in self.networks for p in network.parameters if p.numel()]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs for inputs of shape ``(runs, n, inputs)``, runs counted through all networks."""
        every = zip(*[network.layers() for network in self.networks], strict=True)
        return _perceptron([tuple(map(torch.cat, zip(*place, strict=True))) for place in every], x)


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


def _perceptron(layers: Sequence[tuple[Tensor, ...]], x: Tensor) -> Tensor:
    for place, (matrix, bias) in enumerate(layers):
        x = torch.baddbmm(bias.mT, x, matrix.mT)
        if place < len(layers) - 1:
            x = leaky_relu(x, _SLOPE)
    return x


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
        How the group acts on the outputs, by signed permutations.
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
    spaces = _spaces(representation, noise_representation(representation.group, copies), kind == "plain", width, depth)
    constrained = [kind != "plain"] * (depth + 1)
    constrained[0] &= kind != "incomplete"
    return Network(_layers([*spaces, representation], constrained), runs, rng, dtype)


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
    spaces = _spaces(representation, representation, kind != "invariant", width, depth)
    layers = _layers([*spaces, trivial(representation.group)], [kind == "invariant"] * (depth + 1))
    return Network(layers, runs, rng, dtype)


def _spaces(acted: Representation, inputs: Representation, plain: bool, width: int, depth: int) -> list[Representation]:
    order = check_instance("representation's group", acted.group, FiniteGroup).order
    if check_int("width", width) % order and not plain:
        raise ValueError(f"width must be a multiple of {order} for layers tied by {acted.group}, got {width}")
    hidden = trivial(acted.group, width) if plain else multiple(regular(acted.group), width // order)
    return [inputs, *[hidden] * check_int("depth", depth)]


def _layers(spaces: Sequence[Representation], constrained: Sequence[bool]) -> list[tuple[Tie, Tie]]:
    layers = []
    for source, target, is_tied in zip(spaces[:-1], spaces[1:], constrained, strict=True):
        bias = tied(trivial(target.group), target) if is_tied else untied(target.dim, 1)
        layers.append((tied(source, target) if is_tied else untied(target.dim, source.dim), bias))
    return layers


def group_matrices(representation: Representation) -> Tensor:
    """Return the signed permutations ρ(σ) of all elements, entries exactly 0 or ±1, shape ``(|G|, dim, dim)``."""
    check_instance("representation", representation, Representation)
    group = check_instance("representation's group", representation.group, FiniteGroup)
    return representation.matrix(group.elements()).round()


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
