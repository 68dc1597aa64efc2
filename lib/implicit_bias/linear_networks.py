"""Linear networks of depth L as parametrisations of a linear predictor, w ↦ β(w).

A network with layers w = (w_1, …, w_L) sends x to ⟨M_{L−1}(w_{L−1}) ⋯ M_1(w_1) x, w_L⟩ = ⟨x, β(w)⟩. Each hidden layer
M_k is linear in its parameters, the last layer is a vector, so that β is linear in every w_k and homogeneous of degree
L in w. What distinguishes the architectures is the shape of M_k: dense, diagonal, or convolution over a group.

The conventions for groups are (h∗w)(u) = Σ_v h(uv⁻¹) w(v) and f̂(ρ) = Σ_u f(u)ρ(u), for which (h∗w)^ = ĥ ŵ and
β̂ = ŵ_L ŵ_{L−1}^* ⋯ ŵ_1^*.

A hidden layer is an object with ``inputs``, ``outputs``, ``size`` (the lengths of a, b and w), ``fan_in`` (how many
inputs every output depends on) and the three partial maps of the bilinear form ⟨b, M(w)a⟩, one for each argument that
is left free: ``matrix(w)`` is M(w), shape ``(..., outputs, inputs)``, ``forward(a)`` the matrix of w ↦ M(w)a, shape
``(..., outputs, size)``, and ``backward(b)`` that of w ↦ M(w)ᵀb, shape ``(..., inputs, size)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lib.symmetry.groups import Cyclic, FiniteGroup


class Dense:
    """A full matrix, stored row by row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.inputs, self.outputs, self.fan_in, self.size = inputs, outputs, inputs, inputs * outputs

    def matrix(self, w: Tensor) -> Tensor:
        """Return the rows of w as a matrix."""
        return w.unflatten(-1, (self.outputs, self.inputs))

    def forward(self, a: Tensor) -> Tensor:
        """Return 1 ⊗ aᵀ."""
        one = torch.eye(self.outputs, dtype=a.dtype, device=a.device)
        return torch.einsum("ij,...k->...ijk", one, a).flatten(-2)

    def backward(self, b: Tensor) -> Tensor:
        """Return bᵀ ⊗ 1."""
        one = torch.eye(self.inputs, dtype=b.dtype, device=b.device)
        return torch.einsum("ij,...k->...ikj", one, b).flatten(-2)


class Diagonal:
    """A diagonal matrix."""

    def __init__(self, inputs: int) -> None:
        self.inputs = self.outputs = self.size = inputs
        self.fan_in = 1

    def matrix(self, w: Tensor) -> Tensor:
        """Return diag(w)."""
        return torch.diag_embed(w)

    forward = backward = matrix


class Convolution:
    """Right convolution by w on functions on a finite group, a ↦ a∗w with (a∗w)(u) = Σ_v a(uv⁻¹) w(v).

    It commutes with the left translations of the group. Kept as an index table, for groups of order up to 2048.
    """

    def __init__(self, group: FiniteGroup) -> None:
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
        return values.index_select(-1, index.to(values.device)).unflatten(-1, (self.size, self.size))


class LinearNetwork:
    """A chain of hidden layers and a final vector, x ↦ ⟨M_{L−1}(w_{L−1}) ⋯ M_1(w_1) x, w_L⟩ = ⟨x, β(w)⟩.

    The parameters of all layers form one vector w = (w_1, …, w_L) of length ``size``, with ``sizes`` of the layers; the
    last one has the size of what comes out of M_1, …, M_{L−1}. ``depth`` is L, also the degree of homogeneity,
    β(rw) = r^L β(w); ``inputs`` is the length d of x and β. The name is for tables.
    """

    def __init__(self, name: str, inputs: int, hidden: Sequence[Any] = ()) -> None:
        self.name, self.inputs, self.hidden = name, inputs, tuple(hidden)
        self.sizes = (*(layer.size for layer in self.hidden), self.hidden[-1].outputs if hidden else inputs)
        self.depth, self.size = len(self.sizes), sum(self.sizes)

    def __repr__(self) -> str:
        """Return name and depth."""
        return f"{self.name}, depth {self.depth}"

    def predictor(self, w: Tensor) -> Tensor:
        """Return β(w) = M_1(w_1)ᵀ ⋯ M_{L−1}(w_{L−1})ᵀ w_L, shapes ``(..., size) -> (..., inputs)``."""
        return self._backward(w)[1][0]

    def vjp(self, w: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return β(w), and v ↦ the gradient of w ↦ ⟨v, β(w)⟩, shapes ``(..., inputs) -> (..., size)``."""
        matrices, back = self._backward(w)

        def product(v: Tensor) -> Tensor:
            ahead = _forward(matrices, v.expand(*w.shape[:-1], -1))
            slopes = [(m.forward(a).mT @ b[..., None])[..., 0] for m, a, b in zip(self.hidden, ahead, back[1:])]
            return torch.cat([*slopes, ahead[-1]], dim=-1)

        return back[0], product

    def jacobian(self, w: Tensor) -> Tensor:
        """Return ∂β/∂w, shapes ``(..., size) -> (..., inputs, size)``."""
        matrices, back = self._backward(w)
        blocks, product = [], torch.eye(self.inputs, dtype=w.dtype, device=w.device)
        for layer, matrix, b in zip(self.hidden, matrices, back[1:]):
            blocks.append(product @ layer.backward(b))
            product = product @ matrix.mT
        return torch.cat([*blocks, product.expand(*w.shape[:-1], -1, -1)], dim=-1)

    def hessian(self, w: Tensor, v: Tensor) -> Tensor:
        """Return the Hessian of w ↦ ⟨v, β(w)⟩, shapes ``(..., size), (..., inputs) -> (..., size, size)``."""
        matrices, back = self._backward(w)
        ahead = _forward(matrices, v.expand(*w.shape[:-1], -1))
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
        w = torch.randn(runs, self.size, generator=generator, dtype=torch.float64, device=generator.device)
        fans = w.new_tensor([*(layer.fan_in for layer in self.hidden), self.sizes[-1]])
        sizes = torch.tensor(self.sizes, device=w.device)
        return (scale * w / fans.sqrt().repeat_interleave(sizes)).to(device)

    def _backward(self, w: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the matrices M_k, and b_0 = β, …, b_{L−1} = w_L with b_{k−1} = M_kᵀ b_k."""
        *parts, last = w.split(self.sizes, dim=-1)
        matrices, back = [layer.matrix(part) for layer, part in zip(self.hidden, parts)], [last]
        for matrix in reversed(matrices):
            back.append((matrix.mT @ back[-1][..., None])[..., 0])
        return matrices, back[::-1]


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
    widths = [inputs] + [width] * (depth - 1)
    return LinearNetwork("fully connected", inputs, [Dense(a, b) for a, b in pairwise(widths)])


def diagonal(inputs: int, depth: int) -> LinearNetwork:
    """Return β = w_1 ⊙ ⋯ ⊙ w_L, the product taken entry by entry."""
    return LinearNetwork("diagonal", inputs, [Diagonal(inputs)] * (depth - 1))


def group_convolution(group: FiniteGroup, depth: int) -> LinearNetwork:
    """Return the network of depth L over a group, β̂ = ŵ_L ŵ_{L−1}^* ⋯ ŵ_1^*; filters are functions on the group.

    >>> from lib.symmetry.groups import Cyclic
    >>> net = group_convolution(Cyclic(3), depth=2)
    >>> net.predictor(torch.tensor([1.0, 0.0, 0.0, 1.0, 2.0, 3.0]))  # a first filter that changes nothing
    tensor([1., 2., 3.])
    """
    layer = Convolution(group)
    return LinearNetwork(f"convolution over {group}", group.order, [layer] * (depth - 1))


def circular_convolution(inputs: int, depth: int) -> LinearNetwork:
    """Return the full-width circular convolutional network: the group network over the cyclic group."""
    return group_convolution(Cyclic(inputs), depth)
