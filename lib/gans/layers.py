"""Batches of multilayer perceptrons whose weights are filled from free numbers, tied by a finite group or not.

Runs are a leading axis of every weight, so that all runs of a game are one batch of matrix products. Hidden layers are
copies of the regular representation. A matrix W from a representation ρ into such copies is equivariant exactly when
its rows are all images of free filters, ``W[(c, g)] = ρ(g) w_c``; out of copies, when its columns are. :func:`filters`
expands them; :func:`tied` does it for matrices between any two representations by permutations.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lib.symmetry.representations import Representation

_SLOPE = 0.1  # of the leaky rectifier


@dataclass(frozen=True, eq=False)
class Weights:
    """A matrix that is filled from free numbers, as :func:`untied`, :func:`filters` and :func:`tied` say."""

    outputs: int  #: number of rows
    inputs: int  #: number of columns
    count: int  #: how many free numbers there are
    expand: Callable[[Tensor], Tensor]  #: of free numbers ``(runs, count)`` to matrices on their device


def untied(outputs: int, inputs: int) -> Weights:
    """Return a matrix without constraints."""
    return Weights(outputs, inputs, outputs * inputs, lambda free: free.unflatten(-1, (outputs, inputs)))


def filters(matrices: Tensor, copies: int, back: bool = False) -> Weights:
    """Return an equivariant matrix from a representation into copies of the regular one, or with ``back`` out of them.

    The matrices are ρ(g) of all elements, orthogonal, shape ``(|G|, d, d)``. There is a filter for each copy;
    coordinate ``c·|G| + g`` of the regular side belongs to filter c and element g.
    """
    order, dim, _ = matrices.shape
    there = cache(matrices.to)

    def expand(free: Tensor) -> Tensor:
        each = free.unflatten(-1, (copies, -1))
        rows = torch.einsum("gij,rcj->rcgi", there(free.device, free.dtype), each).flatten(1, 2)
        return rows.mT if back else rows

    sides = (copies * order, dim)
    return Weights(*(sides[::-1] if back else sides), copies * dim, expand)


def tied(source: Representation, target: Representation) -> Weights:
    """Return an equivariant matrix between two representations by permutations: one number for every orbit of pairs."""
    rows, columns = (r.permutation(r.group.elements()) for r in (target, source))
    pairs = rows[:, :, None] * source.dim + columns[:, None, :]  # where an element takes entry (i, j)
    index = pairs.amin(0).unique(return_inverse=True)[1]  # which of the free numbers each entry shows
    there = cache(index.flatten().to)

    def expand(free: Tensor) -> Tensor:
        return free.index_select(-1, there(free.device)).unflatten(-1, index.shape)

    return Weights(target.dim, source.dim, int(index.max()) + 1, expand)


class Players:
    """A batch of multilayer perceptrons ``x ↦ W_L σ(… σ(W_1 x + b_1) …) + b_L``, σ the leaky rectifier.

    Free weights start as independent Gaussians of variance 2/inputs (1/inputs in the last layer), so that the entries
    of tied and untied matrices start with the same law; first biases are Gaussian, to break the symmetry x ↦ −x
    of the first layer's law, the others zero.

    Ties are those of matrix and bias for each layer. ``parameters`` are the free numbers of all runs, leaves of shape
    ``(runs, count)``, two per layer.
    """

    def __init__(
        self,
        ties: Sequence[tuple[Weights, Weights]],
        runs: int,
        rng: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.ties, self.runs = list(ties), runs
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
        return size(self.ties)

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Return matrices and biases, shapes ``(runs, outputs, inputs)`` and ``(runs, outputs, 1)``, of each layer."""
        free = iter(self.parameters)
        return [(matrix.expand(next(free)), bias.expand(next(free))) for matrix, bias in self.ties]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs for inputs of shape ``(runs, n, inputs)``, shape ``(runs, n, outputs)``."""
        return _perceptron(self.layers(), x)

    def with_parameters(self, parameters: Sequence[Tensor]) -> Players:
        """Return the same network with other parameters, for averages and for derivatives."""
        other = copy.copy(self)
        other.parameters = list(parameters)
        return other

    def to(self, device: torch.device | str) -> Players:
        """Return the same network on a device; its parameters are leaves again."""
        return self.with_parameters([p.detach().to(device).requires_grad_(True) for p in self.parameters])


def side_by_side(networks: Sequence[Players], x: Tensor) -> Tensor:
    """Return the outputs of several batches of one shape, evaluated as one batch: ties differ, matrices do not.

    Runs are counted through all networks; shapes as for one.
    """
    every = zip(*[network.layers() for network in networks], strict=True)
    return _perceptron([tuple(map(torch.cat, zip(*place, strict=True))) for place in every], x)


def _perceptron(layers: Sequence[tuple[Tensor, ...]], x: Tensor) -> Tensor:
    for place, (matrix, bias) in enumerate(layers):
        x = torch.baddbmm(bias.mT, x, matrix.mT)
        if place < len(layers) - 1:
            x = leaky_relu(x, _SLOPE)
    return x


def size(ties: Sequence[tuple[Weights, Weights]]) -> int:
    """Return the number of free parameters of one network."""
    return sum(matrix.count + bias.count for matrix, bias in ties)
