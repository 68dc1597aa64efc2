"""Linear steerable networks: every layer is an equivariant map, written in a basis of Hom_G.

A steerable network sends V_0 through spaces V_1, …, V_{L−2} and copies of the trivial representation to R, each layer
W_k = Σ_j w_kj Ψ_j in a basis Ψ_j of the equivariant maps. Its predictor x ↦ ⟨x, β(w)⟩ is invariant. With orthonormal
bases gradient flow on the coefficients w is gradient flow on the maps W_k (Chen, Zhu 2023). Only their blocks on
invariant vectors matter.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lib.checks import check_tensor
from lib.symmetry.derived import Hom
from lib.symmetry.haar import NullSpace, projection
from lib.symmetry.representations import Representation


def require_unitary(name: str, representation: Representation) -> None:
    """Measure max |ρ(s)ρ(s)* − 1| over generators s; of a Lie group also exponentials of a basis of its algebra."""
    group = representation.group
    elements = group.generators()
    if not group.is_finite:
        elements = torch.cat([elements, group.exp(group.lie_algebra())])
    a = representation.matrix(elements)
    defect = float((a @ a.mH - torch.eye(representation.dim, dtype=a.dtype, device="cpu")).abs().max())
    if defect > 1e-8:
        raise ValueError(f"{name} must be unitary here, {representation.name} has max |ρ(g)ρ(g)* − 1| = {defect:.1e}")


class SteerableLayer:
    """An equivariant linear map V → W, stored as coefficients in a basis of Hom_G(V, W).

    Source and target are real representations of one group, the target a unitary one. The basis, linearly independent
    maps Ψ_j of shape ``(size, dim W, dim V)``, is equivariant to 1e-8; by default orthonormal, of all of Hom_G(V, W).
    """

    def __init__(self, source: Representation, target: Representation, basis: Tensor | None = None) -> None:
        require_unitary("target", target)
        maps = Hom(source, target)
        if basis is None:
            flat = (projection(maps) if maps.is_unitary else NullSpace(maps)).basis()
            basis = flat.unflatten(-1, maps.shape)
        else:
            check_tensor("basis", basis, maps.shape, inexact=True, real=True)
            if not len(basis) or int(torch.linalg.matrix_rank(basis.flatten(1))) < len(basis):
                raise ValueError(f"basis must be linearly independent maps, at least one, got {len(basis)} others")
            moved = maps.apply(maps.group.unsqueeze(maps.group.generators()), basis.to(torch.float64))
            defect = float(((moved - basis).abs().max() / basis.abs().max()).detach())
            if defect > 1e-8:
                raise ValueError(f"basis must be equivariant maps, one changes by {defect:.1e} under a generator")
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
