"""Linear networks of depth L as parametrisations of a linear predictor, w ↦ β(w).

A network with layers w = (w_1, …, w_L) sends x to ⟨M_{L−1}(w_{L−1}) ⋯ M_1(w_1) x, w_L⟩ = ⟨x, β(w)⟩. Each hidden layer
M_k is linear in its parameters, the last layer is a vector, so that β is linear in every w_k and homogeneous of degree
L in w. What distinguishes the architectures is the shape of M_k: dense, diagonal, or convolution over a group.

The conventions for groups are (h∗w)(u) = Σ_v h(uv⁻¹) w(v) and f̂(ρ) = Σ_u f(u)ρ(u), for which (h∗w)^ = ĥ ŵ and
β̂ = ŵ_L ŵ_{L−1}^* ⋯ ŵ_1^*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_float, check_instance, check_int, check_tensor
from lib.symmetry.groups import Cyclic, FiniteGroup


class Layer(ABC):
    """A hidden layer: a matrix M(w) that is linear in its parameters w.

    The bilinear form ⟨b, M(w)a⟩ has three partial maps, one for each argument that is left free.

    Attributes
    ----------
    inputs, outputs, size : int
        Lengths of a, of b and of w.
    fan_in : int
        How many inputs every output depends on.
    """

    inputs: int
    outputs: int
    size: int
    fan_in: int

    @abstractmethod
    def matrix(self, w: Tensor) -> Tensor:
        """Return M(w), shapes ``(..., size) -> (..., outputs, inputs)``."""

    @abstractmethod
    def forward(self, a: Tensor) -> Tensor:
        """Return the matrix of w ↦ M(w)a, shapes ``(..., inputs) -> (..., outputs, size)``."""

    @abstractmethod
    def backward(self, b: Tensor) -> Tensor:
        """Return the matrix of w ↦ M(w)ᵀb, shapes ``(..., outputs) -> (..., inputs, size)``."""


class Dense(Layer):
    """A full matrix, stored row by row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs = check_int("inputs", inputs), check_int("outputs", outputs)
        self.size, self.fan_in = inputs * outputs, inputs

    def matrix(self, w: Tensor) -> Tensor:
        """Return the rows of w as a matrix."""
        return _check("w", w, self.size).unflatten(-1, (self.outputs, self.inputs))

    def forward(self, a: Tensor) -> Tensor:
        """Return 1 ⊗ aᵀ."""
        one = torch.eye(self.outputs, dtype=a.dtype, device=a.device)
        return torch.einsum("ij,...k->...ijk", one, a).flatten(-2)

    def backward(self, b: Tensor) -> Tensor:
        """Return bᵀ ⊗ 1."""
        one = torch.eye(self.inputs, dtype=b.dtype, device=b.device)
        return torch.einsum("ij,...k->...ikj", one, b).flatten(-2)


class Diagonal(Layer):
    """A diagonal matrix."""

    def __init__(self, inputs: int) -> None:
        self.inputs = self.outputs = self.size = check_int("inputs", inputs)
        self.fan_in = 1

    def matrix(self, w: Tensor) -> Tensor:
        """Return diag(w)."""
        return torch.diag_embed(_check("w", w, self.size))

    forward = backward = matrix


class Convolution(Layer):
    """Right convolution by w on functions on a finite group, a ↦ a∗w with (a∗w)(u) = Σ_v a(uv⁻¹) w(v).

    It commutes with the left translations of the group. Kept as an index table, for groups of order up to 2048.
    """

    def __init__(self, group: FiniteGroup) -> None:
        check_instance("group", group, FiniteGroup)
        self.inputs = self.outputs = self.size = self.fan_in = group.order
        inverse = group.index(group.inverse(group.elements()))
        product = group.cayley_table()
        self._product = product.flatten()  # [u, v] ↦ uv
        self._left = product[inverse].mT.flatten()  # [u, t] ↦ t⁻¹u
        self._right = product[:, inverse].flatten()  # [u, v] ↦ uv⁻¹

    def matrix(self, w: Tensor) -> Tensor:
        """Return the matrix with entries w(t⁻¹u) in row u and column t."""
        return self._gather(w, self._left)

    def forward(self, a: Tensor) -> Tensor:
        """Return the matrix with entries a(uv⁻¹) in row u and column v."""
        return self._gather(a, self._right)

    def backward(self, b: Tensor) -> Tensor:
        """Return the matrix with entries b(tv) in row t and column v."""
        return self._gather(b, self._product)

    def _gather(self, values: Tensor, index: Tensor) -> Tensor:
        _check("w", values, self.size)
        return values.index_select(-1, index.to(values.device)).unflatten(-1, (self.size, self.size))


class LinearNetwork:
    """A chain of hidden layers and a final vector, x ↦ ⟨M_{L−1}(w_{L−1}) ⋯ M_1(w_1) x, w_L⟩ = ⟨x, β(w)⟩.

    The parameters of all layers form one vector w = (w_1, …, w_L).

    Parameters
    ----------
    name
        Name for messages and tables.
    inputs
        Length d of x and β.
    hidden
        The layers M_1, …, M_{L−1}; the outputs of each are the inputs of the next. The last layer has the size of
        what comes out of them.

    Attributes
    ----------
    depth : int
        L, which is also the degree of homogeneity, β(rw) = r^L β(w).
    size : int
        Number of parameters.
    sizes : tuple of int
        Number of parameters of every layer.

    Raises
    ------
    ValueError
        The layers do not fit together.
    """

    def __init__(self, name: str, inputs: int, hidden: Sequence[Layer] = ()) -> None:
        self.name, self.inputs = name, check_int("inputs", inputs)
        self.hidden = tuple(check_instance("hidden", hidden, Sequence))
        width = self.inputs
        for place, layer in enumerate(self.hidden, 1):
            if check_instance("hidden", layer, Layer).inputs != width:
                raise ValueError(f"hidden layer {place} must take {width} inputs, got one with {layer.inputs}")
            width = layer.outputs
        self.sizes = (*(layer.size for layer in self.hidden), width)
        self.depth, self.size = len(self.sizes), sum(self.sizes)

    def __repr__(self) -> str:
        """Return name and depth."""
        return f"{self.name}, depth {self.depth}"

    def predictor(self, w: Tensor) -> Tensor:
        """Return β(w) = M_1(w_1)ᵀ ⋯ M_{L−1}(w_{L−1})ᵀ w_L, shapes ``(..., size) -> (..., inputs)``."""
        parts = self._split(w)
        return _backward(self._matrices(parts), parts[-1])[0]

    def vjp(self, w: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return β(w) and its vector-Jacobian product.

        The product sends v to the gradient of w ↦ ⟨v, β(w)⟩, shapes ``(..., inputs) -> (..., size)``.
        """
        parts = self._split(w)
        matrices = self._matrices(parts)
        back = _backward(matrices, parts[-1])

        def product(v: Tensor) -> Tensor:
            _check("v", v, self.inputs)
            ahead = _forward(matrices, v.expand(*w.shape[:-1], -1))
            slopes = [(m.forward(a).mT @ b[..., None])[..., 0] for m, a, b in zip(self.hidden, ahead, back[1:])]
            return torch.cat([*slopes, ahead[-1]], dim=-1)

        return back[0], product

    def jacobian(self, w: Tensor) -> Tensor:
        """Return ∂β/∂w, shapes ``(..., size) -> (..., inputs, size)``."""
        parts = self._split(w)
        matrices = self._matrices(parts)
        blocks, product = [], torch.eye(self.inputs, dtype=w.dtype, device=w.device)
        for layer, matrix, b in zip(self.hidden, matrices, _backward(matrices, parts[-1])[1:]):
            blocks.append(product @ layer.backward(b))
            product = product @ matrix.mT
        return torch.cat([*blocks, product.expand(*w.shape[:-1], -1, -1)], dim=-1)

    def hessian(self, w: Tensor, v: Tensor) -> Tensor:
        """Return the Hessian of w ↦ ⟨v, β(w)⟩, shapes ``(..., size), (..., inputs) -> (..., size, size)``."""
        _check("v", v, self.inputs)
        parts = self._split(w)
        matrices = self._matrices(parts)
        back, ahead = _backward(matrices, parts[-1]), _forward(matrices, v.expand(*w.shape[:-1], -1))
        result = w.new_zeros(*w.shape, self.size)
        starts = [sum(self.sizes[:k]) for k in range(self.depth + 1)]
        for j, first in enumerate(self.hidden):
            columns = slice(starts[j], starts[j + 1])
            moved = first.forward(ahead[j])  # how the input of the next layer depends on w_j
            for k in range(j + 1, self.depth):
                rows = slice(starts[k], starts[k + 1])
                last = k == self.depth - 1
                block = moved if last else self.hidden[k].backward(back[k + 1]).mT @ moved
                result[..., rows, columns], result[..., columns, rows] = block, block.mT
                moved = moved if last else matrices[k] @ moved
        return result

    def start(
        self, runs: int, generator: torch.Generator, scale: float = 1.0, device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return independent Gaussian parameters, shape ``(runs, size)``, float64.

        The variance of a layer's entries is scale² divided by the number of inputs every output depends on, so that
        layers keep the mean square of their input at ``scale`` = 1.
        """
        check_int("runs", runs)
        check_float("scale", scale, minimum=1e-12)
        check_instance("generator", generator, torch.Generator)
        w = torch.randn(runs, self.size, generator=generator, dtype=torch.float64, device=generator.device)
        fans = w.new_tensor([*(layer.fan_in for layer in self.hidden), self.sizes[-1]])
        sizes = torch.tensor(self.sizes, device=w.device)
        return (scale * w / fans.sqrt().repeat_interleave(sizes)).to(device)

    def _split(self, w: Tensor) -> tuple[Tensor, ...]:
        return _check("w", w, self.size).split(self.sizes, dim=-1)

    def _matrices(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return [layer.matrix(part) for layer, part in zip(self.hidden, parts)]


def _check(name: str, value: Any, length: int) -> Tensor:
    """Return ``value`` if it holds vectors of the right length; cheap, since it is called at every step."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.shape[-1] == length:
        return value
    return check_tensor(name, value, (length,), inexact=True, real=True)


def _backward(matrices: Sequence[Tensor], last: Tensor) -> list[Tensor]:
    """Return b_0 = β, …, b_{L−1} = w_L with b_{k−1} = M_kᵀ b_k."""
    back = [last]
    for matrix in reversed(matrices):
        back.append((matrix.mT @ back[-1][..., None])[..., 0])
    return back[::-1]


def _forward(matrices: Sequence[Tensor], first: Tensor) -> list[Tensor]:
    """Return a_0, …, a_{L−1} with a_k = M_k a_{k−1}."""
    ahead = [first]
    for matrix in matrices:
        ahead.append((matrix @ ahead[-1][..., None])[..., 0])
    return ahead


def fully_connected(inputs: int, depth: int, width: int = 4) -> LinearNetwork:
    """Return β = W_1ᵀ ⋯ W_{L−1}ᵀ w_L with dense layers of the given width.

    >>> net = fully_connected(inputs=3, depth=2)
    >>> w = torch.ones(sum(net.sizes))
    >>> net.predictor(w)
    tensor([4., 4., 4.])
    """
    widths = [inputs] + [check_int("width", width)] * (check_int("depth", depth) - 1)
    return LinearNetwork("fully connected", inputs, [Dense(a, b) for a, b in pairwise(widths)])


def diagonal(inputs: int, depth: int) -> LinearNetwork:
    """Return β = w_1 ⊙ ⋯ ⊙ w_L, the product taken entry by entry."""
    return LinearNetwork("diagonal", inputs, [Diagonal(inputs)] * (check_int("depth", depth) - 1))


def group_convolution(group: FiniteGroup, depth: int) -> LinearNetwork:
    """Return the network of depth L over a group, β̂ = ŵ_L ŵ_{L−1}^* ⋯ ŵ_1^*; filters are functions on the group."""
    layer = Convolution(group)
    return LinearNetwork(f"convolution over {group}", group.order, [layer] * (check_int("depth", depth) - 1))


def circular_convolution(inputs: int, depth: int) -> LinearNetwork:
    """Return the full-width circular convolutional network: the group network over the cyclic group."""
    return group_convolution(Cyclic(inputs), depth)
