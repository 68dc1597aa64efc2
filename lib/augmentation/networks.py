"""Multilayer perceptrons x ↦ σ_L(A_L … σ_1(A_1 x)) whose layers can be projected onto the equivariant ones.

Hidden spaces are c channels of one representation V (Nordenfors, Ohlsson, Flinth 2023, §3). A *run* is one set of
layers; many are held at once, and every tensor has the runs as first axis.

- Layer A_i, dense: ``(runs, out channels, dim W, in channels, dim V)``, as a matrix without copying.
- Layer A_i ∈ E, reduced: ``(runs, out channels, in channels, rank)``, one number per orbit of index pairs.
- Features: ``(runs, samples, channels, dim V)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, layer_norm, leaky_relu

from lib.symmetry.actions import motions, natural, pixels, row_shifts, translations, trivial
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Group, Symmetric
from lib.symmetry.haar import OrbitMean
from lib.symmetry.representations import Representation

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"leaky": lambda x: leaky_relu(x, 0.01), "tanh": torch.tanh, "none": lambda x: x}


@dataclass(frozen=True)
class Space:
    """The space R^channels ⊗ V on which the group acts through V."""

    channels: int  #: how often V stands in it
    representation: Representation  #: V

    @property
    def size(self) -> int:
        """Dimension of the space."""
        return self.channels * self.representation.dim


@dataclass(frozen=True)
class Architecture:
    """What a network is made of.

    An activation is a key of ``ACTIVATIONS`` or a function of features ``(..., channels, dim V)``. The loss is
    ``"binary"`` (sigmoid, cross-entropy), ``"classes"`` (softmax, cross-entropy), or ``"masks"`` (sigmoid at every
    pixel of every channel; cross-entropy, mean over pixels, sum over channels).
    """

    spaces: tuple[Space, ...]  #: input, hidden and output space; all of one group, acting by permutations
    activations: tuple[str | Activation, ...]  #: one per layer
    normalized: tuple[bool, ...]  #: whether normalisation over the channels, at each coordinate, follows the activation
    scales: tuple[float, ...]  #: standard deviations of the Gaussian matrices that are projected onto E at the start
    loss: str  #: ``"binary"``, ``"classes"`` or ``"masks"``
    centre: float = 0.5  #: subtracted from every input

    @property
    def group(self) -> Group:
        """The group that acts."""
        return self.spaces[0].representation.group


class LayerSpace:
    """The linear maps R^in ⊗ V → R^out ⊗ W and the equivariant ones among them; ``mean`` projects one block V → W."""

    def __init__(self, source: Space, target: Space) -> None:
        self.source, self.target = source, target
        self.mean = OrbitMean(Hom(source.representation, target.representation))
        self.rank, self.entries = self.mean.rank, source.size * target.size
        self.dim = source.channels * target.channels * self.rank
        labels = self.mean.labels.reshape(target.representation.dim, source.representation.dim)
        representative = torch.zeros(self.rank, dtype=torch.int64, device="cpu")
        representative[labels.flatten()] = torch.arange(labels.numel(), device="cpu")
        self._representative = representative

    def shape(self, runs: int) -> tuple[int, ...]:
        """Return the shape of the dense layers of so many runs."""
        s, t = self.source, self.target
        return runs, t.channels, t.representation.dim, s.channels, s.representation.dim

    def coordinates(self, maps: Tensor) -> Tensor:
        """Return the orbit means of dense layers: the reduced coordinates of Π A."""
        return self.mean.coordinates(self._blocks(maps))

    def embed(self, coordinates: Tensor) -> Tensor:
        """Return the dense layers with given reduced coordinates."""
        t, s = self.target, self.source
        blocks = self.mean.embed(coordinates).unflatten(-1, (t.representation.dim, s.representation.dim))
        return blocks.transpose(2, 3).contiguous()

    def off(self, maps: Tensor) -> Tensor:
        """Return ‖(1 − Π) A‖ per run; exactly 0 for layers with equal entries along every orbit.

        Far from E it is the root of ‖A‖² − ‖ΠA‖². Where that would cancel, one entry of every orbit is subtracted
        before the means are taken, so that nothing is lost near E.
        """
        blocks = self._blocks(maps)
        total = blocks.flatten(1).square().sum(1, dtype=torch.float64)
        inside = self.reduced_norm(self.mean.coordinates(blocks).double()).square()
        if bool((total - inside > 1e-4 * total).all()):
            return (total - inside).sqrt().to(maps)
        rest = blocks - self.mean.embed(blocks[..., self._representative.to(maps.device)])
        return (rest - self.mean.embed(self.mean.coordinates(rest))).flatten(1).norm(dim=1)

    def reduced_norm(self, coordinates: Tensor) -> Tensor:
        """Return ‖A‖ per run from the reduced coordinates of A ∈ E."""
        square = (coordinates.square() * self.mean.sizes.to(coordinates)).flatten(1).sum(1)
        return torch.where(square > 0, torch.where(square > 0, square, 1).sqrt(), 0)  # slope 0 at 0

    def apply(self, maps: Tensor, x: Tensor) -> Tensor:
        """Return A x for features x of shape ``(runs or 1, samples, channels, dim V)``."""
        matrix = maps.reshape(len(maps), self.target.size, self.source.size)
        return torch.matmul(x.flatten(2), matrix.mT).unflatten(
            -1, (self.target.channels, self.target.representation.dim)
        )

    def _blocks(self, maps: Tensor) -> Tensor:
        return maps.transpose(2, 3).flatten(-2)


class Network:
    """All networks of one architecture: their starts, their values and losses, their projections."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.layers = [LayerSpace(a, b) for a, b in pairwise(architecture.spaces)]
        self._activations = [a if callable(a) else ACTIVATIONS[a] for a in architecture.activations]

    @property
    def dimension(self) -> int:
        """Number of entries of all layers, dim L."""
        return sum(layer.entries for layer in self.layers)

    @property
    def equivariant_dimension(self) -> int:
        """Dimension of the space E of equivariant layers."""
        return sum(layer.dim for layer in self.layers)

    def start(
        self,
        runs: int,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        first_run: int = 0,
        device: torch.device | str = "cpu",
    ) -> list[Tensor]:
        """Return reduced coordinates of Gaussian matrices projected onto E, one independent set per run.

        A Gaussian matrix with entries of variance s² has orbit means of variance s² / |orbit|, drawn here directly.
        Runs are numbered from ``first_run``; run r depends on ``seed`` and r only.
        """
        stream = 1_000_003 * seed + first_run
        generators = [torch.Generator().manual_seed(stream + run) for run in range(runs)]
        start = []
        for layer, scale in zip(self.layers, self.architecture.scales, strict=True):
            shape = (layer.target.channels, layer.source.channels, layer.rank)
            draws = [torch.randn(shape, generator=g, dtype=torch.float64, device="cpu") for g in generators]
            start.append((torch.stack(draws) * (scale / layer.mean.sizes.to(torch.float64).sqrt())).to(device, dtype))
        return start

    def embed(self, coordinates: Sequence[Tensor]) -> list[Tensor]:
        """Return dense layers from reduced coordinates."""
        return [layer.embed(c) for layer, c in zip(self.layers, coordinates, strict=True)]

    def coordinates(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return the reduced coordinates of the projections of dense layers onto E."""
        return [layer.coordinates(m) for layer, m in zip(self.layers, maps, strict=True)]

    def project(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Return Π A, layer by layer."""
        return self.embed(self.coordinates(maps))

    def off(self, maps: Sequence[Tensor]) -> Tensor:
        """Return ‖(1 − Π) A_i‖ for every run and layer, shape ``(runs, layers)``."""
        return torch.stack([layer.off(m) for layer, m in zip(self.layers, maps, strict=True)], dim=1)

    def __call__(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the outputs before the final sigmoid or softmax, shape ``(runs, samples, channels, dim W)``.

        Parameters are dense layers, or reduced coordinates (told apart by their number of axes), one tensor per layer;
        inputs have the shape ``(runs or 1, samples, channels, dim V)``.
        """
        if any(len(p) != len(parameters[0]) for p in parameters) or len(x) not in (1, len(parameters[0])):
            raise ValueError(f"x must hold 1 or {len(parameters[0])} runs like the parameters, got {len(x)}")
        h = x - self.architecture.centre
        for i, (layer, p) in enumerate(zip(self.layers, parameters, strict=True)):
            h = self._activations[i](layer.apply(p if p.ndim == 5 else layer.embed(p), h))
            if self.architecture.normalized[i]:
                h = layer_norm(h.transpose(-1, -2), (h.shape[-2],)).transpose(-1, -2)
        return h

    def losses(self, parameters: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of every run and sample, shape ``(runs, samples)``.

        Targets are ``(runs or 1, samples)`` for ``"binary"`` and ``"classes"``, else of the outputs' shape.
        """
        out = self(parameters, x)
        y = y.expand(len(out), *y.shape[1:])
        if self.architecture.loss == "classes":
            loss = cross_entropy(out.flatten(2).flatten(0, 1), y.flatten(0, 1), reduction="none")
            return loss.unflatten(0, y.shape[:2])
        if self.architecture.loss == "binary":
            return binary_cross_entropy_with_logits(out.flatten(2)[..., 0], y.to(out.dtype), reduction="none")
        return binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="none").mean(-1).sum(-1)


def graph_network(nodes: int = 10, channels: int = 32, pooled: int = 64, hidden: int = 32) -> Network:
    """Return the network for permuted graphs: R^{n×n} → channels·R^{n×n} → pooled → hidden → 1 (ibid., D.1)."""
    group = Symmetric(nodes)
    pair, one = natural(group) * natural(group), trivial(group)
    spaces = tuple(Space(c, r) for c, r in ((1, pair), (channels, pair), (pooled, one), (hidden, one), (1, one)))
    scales = (1 / (nodes * channels**0.5), nodes / pooled**0.5, nodes / pooled, nodes / hidden)
    activations = ("leaky", "leaky", "leaky", "none")
    return Network(Architecture(spaces, activations, (False, True, False, False), scales, "binary"))


IMAGE_GROUPS = ("rotations", "row shifts", "translations", "motions")


def image_representation(group: str, size: int) -> Representation:
    """Return the action of one of ``IMAGE_GROUPS`` on size × size images."""
    if group == "row shifts":
        return row_shifts(size)
    groups = {"rotations": Cyclic(4), "translations": translations(size), "motions": motions(size)}
    return pixels(groups[group], size)


def classifier_network(group: str = "translations", size: int = 14, channels: int = 32, classes: int = 10) -> Network:
    """Return the network for images: R^{n×n} → c·R^{n×n} → c·R^{n×n} → c → classes (ibid., D.2 and E.2)."""
    V = image_representation(group, size)
    one = trivial(V.group)
    spaces = tuple(Space(c, r) for c, r in ((1, V), (channels, V), (channels, V), (channels, one), (classes, one)))
    scales = (1 / size, 1 / (size * channels**0.5), size / channels**0.5, size / channels)
    activations = ("leaky", "leaky", "leaky", "none")
    return Network(Architecture(spaces, activations, (False, False, True, False), scales, "classes"))


def mask_network(size: int = 14, channels: Sequence[int] = (32, 32, 16), masks: int = 2) -> Network:
    """Return the network that segments images equivariantly under quarter turns (ibid., D.3)."""
    V = image_representation("rotations", size)
    spaces = tuple(Space(c, V) for c in (1, *channels, masks))
    scales = tuple(1 / (size * a.channels**0.5) for a in spaces[:-1])
    depth = len(spaces) - 1
    normalized = (False,) * (depth - 1) + (True,)
    return Network(Architecture(spaces, ("leaky",) * depth, normalized, scales, "masks"))
