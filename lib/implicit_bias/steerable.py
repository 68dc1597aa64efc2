"""Linear steerable networks: every layer is an equivariant map, written in a basis of Hom_G.

A steerable network sends V_0 through spaces V_1, …, V_{L−2} and copies of the trivial representation to R, each layer
W_k = Σ_j w_kj Ψ_j in a basis Ψ_j of the equivariant maps. Its predictor x ↦ ⟨x, β(w)⟩ is invariant. With orthonormal
bases gradient flow on the coefficients w is gradient flow on the maps W_k (Chen, Zhu 2023). Only their blocks on
invariant vectors matter: :class:`Reduction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.implicit_bias.linear_networks import Dense, LinearNetwork
from lib.symmetry.actions import trivial
from lib.symmetry.derived import Hom
from lib.symmetry.haar import NullSpace, projection
from lib.symmetry.representations import Representation


def unitarity_defect(representation: Representation) -> float:
    """Return the largest entry of |ρ(s)ρ(s)* − 1| over the generators s; zero exactly when ρ is unitary.

    For a compact Lie group the generators are those of the component group and the exponentials of a basis of the Lie
    algebra.
    """
    group = representation.group
    elements = group.generators()
    if not group.is_finite:
        elements = torch.cat([elements, group.exp(group.lie_algebra())])
    a = representation.matrix(elements)
    return float((a @ a.mH - torch.eye(representation.dim, dtype=a.dtype, device="cpu")).abs().max())


def _require_unitary(name: str, representation: Representation) -> None:
    if (defect := unitarity_defect(representation)) > 1e-8:
        raise ValueError(f"{name} must be unitary here, {representation.name} has max |ρ(g)ρ(g)* − 1| = {defect:.1e}")


class SteerableLayer:
    """An equivariant linear map V → W, stored as coefficients in a basis of Hom_G(V, W).

    Parameters
    ----------
    source, target
        Real representations of one group on V and W. The target must be unitary.
    basis
        Equivariant maps Ψ_j, shape ``(size, dim W, dim V)``; by default an orthonormal basis of all of Hom_G(V, W).

    Raises
    ------
    ValueError
        They have no equivariant map but zero, or the target is not unitary; the basis is linearly dependent, or a map
        in it is not equivariant (to 1e-8, relative).
    """

    def __init__(self, source: Representation, target: Representation, basis: Tensor | None = None) -> None:
        _require_unitary("target", target)
        maps = Hom(source, target)
        if basis is None:
            flat = (projection(maps) if maps.is_unitary else NullSpace(maps)).basis()
            basis = flat.unflatten(-1, maps.shape)
        else:
            _check_equivariant(maps, basis)
        if not len(basis):
            raise ValueError(f"source and target must have an equivariant map but zero, {maps.name} has none")
        self.basis, self.source, self.target = basis, source, target
        self.inputs, self.outputs, self.size = source.dim, target.dim, len(basis)
        self.fan_in = max(1, round(self.size / target.dim))

    def matrix(self, w: Tensor) -> Tensor:
        """Return Σ_j w_j Ψ_j."""
        return torch.tensordot(w, self.basis.to(w), dims=1)

    def forward(self, a: Tensor) -> Tensor:
        """Return the matrix with columns Ψ_j a."""
        return torch.einsum("joi,...i->...oj", self.basis.to(a), a)

    def backward(self, b: Tensor) -> Tensor:
        """Return the matrix with columns Ψ_jᵀ b."""
        return torch.einsum("joi,...o->...ij", self.basis.to(b), b)


def steerable_network(spaces: Sequence[Representation], outputs: int = 2) -> LinearNetwork:
    """Return the steerable network V_0 → V_1 → … → 1^outputs → R in orthonormal bases, of depth ``len(spaces) + 1``.

    Parameters
    ----------
    spaces
        The input V_0 and the hidden spaces. All of them have to be unitary: only then do orbit averages, invariant
        margins and augmentation agree. To study other inputs, build a network from :class:`SteerableLayer`.
    outputs
        Number of invariant features before the last layer.
    """
    for number, space in enumerate(spaces):
        _require_unitary(f"spaces[{number}]", space)
    chain = [*spaces, trivial(spaces[0].group, outputs)]
    layers = [SteerableLayer(source, target) for source, target in pairwise(chain)]
    return LinearNetwork(f"steerable over {spaces[0].group}", spaces[0].dim, layers)


class Reduction:
    """The fully connected network on invariants that a steerable network amounts to (Chen, Zhu 2023).

    With orthonormal bases B_k of the invariant vectors of V_k (rows; B_0 of the invariant functionals ⟨·, β⟩ on V_0)
    the network computes ⟨C_{L−1} ⋯ C_1 B_0x, c_L⟩ with C_k = B_k W_k B_{k−1}ᵀ, c_L = B_{L−1} w_L.

    Parameters
    ----------
    network
        A network whose hidden layers are :class:`SteerableLayer`.

    Attributes
    ----------
    network : LinearNetwork
        The fully connected network with the layers C_k, on points B_0x.
    frames : list of Tensor
        B_0, …, B_{L−1}; B_k has the shape ``(m_k, dim V_k)``.
    """

    def __init__(self, network: LinearNetwork) -> None:
        self._large = network
        first = NullSpace(network.hidden[0].source.dual()).basis()
        self.frames = [first, *(projection(layer.target).basis() for layer in network.hidden)]
        layers = [Dense(len(P), len(Q)) for P, Q in pairwise(self.frames)]
        self.network = LinearNetwork("fully connected on invariants", len(first), layers)

    def parameters(self, w: Tensor) -> Tensor:
        """Return the entries of all C_k and c_L, shapes ``(..., size) -> (..., network.size)``."""
        return torch.cat([block.flatten(-2) for _, block in self._blocks(w)], dim=-1)

    def rest(self, w: Tensor) -> Tensor:
        """Return the entries of all W_k − B_kᵀ C_k B_{k−1}, one vector: what the network computes does not use them."""
        pairs = zip(self._blocks(w), pairwise(self._frames(w)))
        parts = [W - Q.mT @ C @ P for (W, C), (P, Q) in pairs]
        return torch.cat([part.flatten(-2) for part in parts], dim=-1)

    def _blocks(self, w: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (W_k, C_k) for every layer, the last vector as a matrix with one row."""
        *parts, last = w.split(self._large.sizes, dim=-1)
        maps, frames = [layer.matrix(part) for layer, part in zip(self._large.hidden, parts)], self._frames(w)
        blocks = [(W, Q @ W @ P.mT) for W, (P, Q) in zip(maps, pairwise(frames))]
        return [*blocks, (last[..., None, :], (last @ frames[-1].mT)[..., None, :])]

    def _frames(self, w: Tensor) -> list[Tensor]:
        return [frame.to(w) for frame in self.frames]


def _check_equivariant(maps: Hom, basis: Tensor) -> None:
    check_tensor("basis", basis, maps.shape, inexact=True, real=True)
    if not len(basis) or int(torch.linalg.matrix_rank(basis.flatten(1))) < len(basis):
        raise ValueError(f"basis must consist of linearly independent maps, at least one, got {len(basis)} others")
    group = maps.group
    moved = maps.apply(group.unsqueeze(group.generators()), basis.to(torch.float64))
    gap, size = (float(t.detach().abs().max()) for t in (moved - basis, basis))
    defect = gap / max(size, 1e-300)
    if defect > 1e-8:
        raise ValueError(f"basis must consist of equivariant maps, one changes by {defect:.1e} under a generator")
