"""Players of games on small images: multilayer perceptrons that know how a group moves the pixels.

Images are rows of p values in [−1, 1]; independent runs are a leading axis of images and weights.

The equivariant generator is ``g(z, σ) = R_σ g₀(z)`` with Gaussian z and uniform σ: on such noise every equivariant
generator has this form, with g₀ = g(·, 1). The invariant discriminator is ``γ(x) = (1/|Σ|) Σ_σ γ₀(R_σ x)``. They have
as many parameters as g₀ and γ₀. (Birrell, Katsoulakis, Rey-Bellet, Zhu 2022, "Structure-preserving GANs".)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lib.checks import check_choice, check_instance, check_int
from lib.gans.layers import Free, Network, Weights
from lib.gans.plane_players import multiple
from lib.images.turns import Turns
from lib.symmetry.actions import pixels, regular, trivial
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.representations import Representation

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant")


@dataclass(frozen=True, eq=False)
class Generator:
    """Generators of images, one per run.

    Attributes
    ----------
    kind : str
        ``plain``; ``equivariant``: R_σ g₀(z); ``incomplete``: equivariant layers behind an unconstrained first one, and
        no σ, so that the layers respect the group and the law need not.
    turns : Turns
        The group on images.
    network : lib.gans.layers.Network
        g₀: noise, then the class as a unit vector, to images.
    classes : int
        Number of classes; the network is told the class if there are at least two.
    """

    kind: str
    turns: Turns
    network: Network
    classes: int

    @property
    def latent(self) -> int:
        """Dimension of z."""
        return self.network.inputs - told(self.classes)

    def draw(self, labels: Tensor, rng: torch.Generator, coins: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return noise ``(runs, n, latent)`` and numbers of uniform group elements ``(runs, n)`` for given classes.

        Only the equivariant generator uses the elements. They have a random source of their own, ``coins``, so that
        generators of all kinds can be given the same noise.
        """
        like = self.network.parameters[0]
        z = torch.randn(*labels.shape, self.latent, generator=rng, dtype=like.dtype, device=rng.device)
        which = torch.randint(self.turns.group.order, tuple(labels.shape), generator=coins, device=coins.device)
        return z.to(like.device), which.to(like.device)

    def __call__(self, z: Tensor, which: Tensor, labels: Tensor) -> Tensor:
        """Return images, shape ``(runs, n, p)``."""
        images = torch.tanh(self.network(tell(z, labels, self.classes)))
        return self.turns.each(images, which) if self.kind == "equivariant" else images

    def sample(self, labels: Tensor, seed: int) -> Tensor:
        """Return images of given classes, one row of labels for all runs or one per run; shape ``(runs, n, p)``."""
        labels = labels.expand(self.network.runs, -1)
        rng, coins = (torch.Generator().manual_seed(2 * seed + k) for k in range(2))
        with torch.no_grad():
            return self(*self.draw(labels, rng, coins), labels)


@dataclass(frozen=True, eq=False)
class Discriminator:
    """Discriminators of images, one per run: γ₀, or its average over the group.

    Attributes
    ----------
    kind : str
        ``plain`` or ``invariant``.
    turns : Turns
        The group on images.
    network : lib.gans.layers.Network
        γ₀: image, then the class as a unit vector, to a score.
    classes : int
        Number of classes.
    """

    kind: str
    turns: Turns
    network: Network
    classes: int

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return scores ``(runs, n)`` of images ``(runs, n, p)``."""
        if self.kind == "plain":
            return self.network(tell(images, labels, self.classes))[..., 0]
        order = self.turns.group.order
        moved = tell(self.turns.all(images).flatten(1, 2), labels.repeat_interleave(order, 1), self.classes)
        return self.network(moved)[..., 0].unflatten(1, (-1, order)).mean(-1)


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
        if self.count == 0:
            return free.new_zeros(len(free), self.outputs, self.inputs)
        entries = free.index_select(-1, self.index.to(free.device)) * self.sign.to(free)
        return entries.unflatten(-1, (self.outputs, self.inputs))

    def to(self, device: torch.device | str) -> Tie:
        """Return the tie with its tables on a device."""
        return replace(self, index=self.index.to(device), sign=self.sign.to(device))


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
    if float((matrices - rounded).abs().max()) > 1e-12 or not bool((rounded.abs().sum(-2) == 1).all()):
        raise ValueError(f"representations must permute coordinates up to sign, but {r.name} does not")
    return rounded.abs().argmax(-2), rounded.sum(-2)


def told(classes: int) -> int:
    """Return how many inputs the class takes: none if there is one class only."""
    return classes if check_int("classes", classes) > 1 else 0


def tell(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return x with the class appended to each row as a unit vector, or x if there is one class only."""
    return torch.cat([x, one_hot(labels, classes).to(x)], dim=-1) if classes > 1 else x


def generator_ties(kind: str, turns: Turns, latent: int, width: int, classes: int) -> list[tuple[Weights, Weights]]:
    """Return the ties of a generator's layers, two hidden layers.

    The incomplete generator has as many regular channels as fit the number of parameters of a plain one.

    Raises
    ------
    ValueError
        The incomplete kind with a group that does not permute pixels.
    """
    check_choice("kind", kind, GENERATORS)
    inputs = latent + told(classes)
    if kind != "incomplete":
        return _untied([inputs, width, width, turns.dim])
    if turns.between is not None:
        raise ValueError(f"group must permute pixels for the incomplete generator, got {turns.group}")
    channels = _channels(inputs, width, turns)
    hidden = multiple(regular(turns.group), channels)
    image = multiple(pixels(turns.group, turns.size), turns.channels)
    one = trivial(turns.group)
    first = (Free(hidden.dim, inputs), Free(hidden.dim, 1))
    return [first, (tied(hidden, hidden), tied(one, hidden)), (tied(hidden, image), tied(one, image))]


def discriminator_ties(turns: Turns, width: int, classes: int) -> list[tuple[Weights, Weights]]:
    """Return the ties of γ₀'s layers, two hidden layers."""
    return _untied([turns.dim + told(classes), width, width, 1])


def free_parameters(ties: list[tuple[Weights, Weights]]) -> int:
    """Return the number of free parameters of a network."""
    return sum(matrix.count + bias.count for matrix, bias in ties)


def _untied(sizes: list[int]) -> list[tuple[Weights, Weights]]:
    return [(Free(b, a), Free(b, 1)) for a, b in pairwise(sizes)]


def _channels(inputs: int, width: int, turns: Turns) -> int:
    """Return the largest number of regular channels that needs no more parameters than a plain generator (or 1)."""
    order = turns.group.order
    orbits = len(torch.unique(turns.sources.amin(0)))
    allowed = (inputs + 1 + width + 1) * width + (width + 1) * turns.dim

    def used(m: int) -> int:
        return (inputs + 1) * order * m + (order * m + 1) * m + m * turns.dim + orbits

    return max([m for m in range(1, width + 1) if used(m) <= allowed], default=1)
