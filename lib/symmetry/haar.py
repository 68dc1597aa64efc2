"""Haar projections: averaging over a group, by whichever route the representation's structure allows.

The projection onto the invariants of a unitary representation is Π x = ∫ ρ(g) x dμ(g) (Nordenfors, Ohlsson, Flinth
2023, Lemma 2); applied to :class:`~lib.symmetry.derived.Hom` it projects a linear map onto the equivariant
ones. Routes:

====================  ==========================================  ================
route                 needs                                       cost
====================  ==========================================  ================
:class:`HaarSum`      a list of group elements (or a quadrature)  |G| × dim
:class:`OrbitMean`    a permutation representation                generators × dim
:class:`Composition`  a semidirect product                        both factors'
:class:`NullSpace`    generators, Lie algebra                     dim³, once
====================  ==========================================  ================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from lib.checks import check_choice, check_instance, check_probabilities
from lib.symmetry.derived import Restriction
from lib.symmetry.lie import CompactLieGroup
from lib.symmetry.representations import DirectSum, Representation, TensorProduct

CHUNK = 4096  # group elements used at a time, fewer where their images would exceed 2²⁴ entries


class Projection(ABC):
    """The orthogonal projection Π onto the invariants of a representation.

    Calling it maps ``(..., *representation.shape)`` to the same shape; it is linear, batched, differentiable, and works
    in the dtype and on the device of its argument.
    """

    def __init__(self, representation: Representation) -> None:
        self.representation = representation

    def __call__(self, x: Tensor) -> Tensor:
        """Return Π x."""
        V = self.representation
        V.check_vectors("x", x)
        return self._project(x.reshape(*x.shape[: x.ndim - len(V.shape)], V.dim)).reshape(x.shape)

    @abstractmethod
    def _project(self, x: Tensor) -> Tensor:
        """Return Π x for x of shape ``(..., dim)``."""

    def matrix(self) -> Tensor:
        """Return Π as a dense matrix, shape ``(dim, dim)``."""
        dtype = torch.complex128 if self.representation.is_complex else torch.float64
        return self._project(torch.eye(self.representation.dim, dtype=dtype, device="cpu")).mT

    @property
    def rank(self) -> int:
        """Dimension of the space of invariants."""
        return len(self.basis())

    def basis(self) -> Tensor:
        """Return an orthonormal basis of the invariants, shape ``(rank, dim)``.

        An ``ArithmeticError`` says that Π is no orthogonal projection (to 1e-6): the elements averaged over are no
        group, or have wrong weights, or ρ is not unitary.
        """
        matrix = self.matrix()
        defect = max(float((matrix @ matrix - matrix).abs().max()), float((matrix - matrix.mH).abs().max()))
        if not defect <= 1e-6:
            name = self.representation.name
            raise ArithmeticError(f"the average of {name} is no orthogonal projection, the defect is {defect:.1e}")
        values, vectors = torch.linalg.eigh(matrix)
        return vectors[:, values > 0.5].mT


class HaarSum(Projection):
    """Π as a plain weighted sum of ρ(g) over group elements.

    ``elements`` and ``weights`` are nodes and probabilities; by default all elements of a finite group with weight
    1/|G|. With other elements the result is the average over those, which need not be a projection.
    """

    def __init__(
        self, representation: Representation, elements: Tensor | None = None, weights: Tensor | None = None
    ) -> None:
        super().__init__(representation)
        group = representation.group
        if elements is None and not group.is_finite:
            raise TypeError(f"elements must be given, {group} is not finite")
        if elements is not None:
            group.check("elements", elements)
            count = len(elements)
            weights = uniform(count) if weights is None else check_probabilities("weights", weights, count)
        self.elements, self.weights = elements, weights

    def _project(self, x: Tensor) -> Tensor:
        V, group, dtype, x = self.representation, self.representation.group, x.dtype, x.to(wide(x))
        total = torch.zeros_like(x)
        entries = x.numel() if V.is_permutation else max(x.numel(), x.shape[-1] ** 2)
        size = max(1, min(CHUNK, 2**24 // max(entries, 1)))
        if self.elements is None:
            nodes = ((g, uniform(len(g)) * (len(g) / group.order)) for g in group.chunks(size))
        else:
            nodes = zip(self.elements.split(size), self.weights.split(size), strict=True)
        for g, w in nodes:
            moved = V._apply(group.unsqueeze(g, x.ndim - 1), x)
            total = total + torch.tensordot(w.to(total), moved, dims=1)
        return total.to(dtype)


class OrbitMean(Projection):
    """Π for a permutation representation: every entry becomes the mean over its orbit.

    The orbits are the connected components of the graph i → π_s(i) over the generators s, so the cost does not depend
    on the order of the group. ``labels`` is the number of the orbit of every coordinate, ``sizes`` how many it has.
    """

    def __init__(self, representation: Representation) -> None:
        super().__init__(representation)
        images = representation.permutation(representation.group.generators()).numpy()
        rows = np.broadcast_to(np.arange(representation.dim), images.shape).ravel()
        graph = coo_array((np.ones(rows.size, dtype=np.int8), (rows, images.ravel())), shape=(representation.dim,) * 2)
        count, labels = connected_components(graph, directed=False)
        self.labels = torch.from_numpy(labels.astype(np.int64))
        self.sizes = torch.bincount(self.labels, minlength=count)

    @property
    def rank(self) -> int:
        """Number of orbits."""
        return len(self.sizes)

    def coordinates(self, x: Tensor) -> Tensor:
        """Return the orbit means of flat vectors, shape ``(..., rank)``: reduced coordinates of the invariants."""
        sums = x.new_zeros(*x.shape[:-1], self.rank, dtype=wide(x))
        sums = sums.index_add(-1, self.labels.to(x.device), x.to(sums))
        return (sums / self.sizes.to(x.device)).to(x)

    def embed(self, coordinates: Tensor) -> Tensor:
        """Return the flat invariant vectors with the given orbit values, shape ``(..., dim)``."""
        return coordinates[..., self.labels.to(coordinates.device)]

    def _project(self, x: Tensor) -> Tensor:
        return self.embed(self.coordinates(x))

    def basis(self) -> Tensor:
        """Return the normalised orbit indicators, shape ``(rank, dim)``."""
        basis = torch.zeros(self.rank, len(self.labels), dtype=torch.float64, device="cpu")
        basis[self.labels, torch.arange(len(self.labels), device="cpu")] = self.sizes.double().rsqrt()[self.labels]
        return basis


class Composition(Projection):
    """Π for a semidirect product N ⋊ H as Π_N ∘ Π_H (Nordenfors, Ohlsson, Flinth 2023, Proposition 7)."""

    def __init__(self, representation: Representation) -> None:
        super().__init__(representation)
        group = representation.group
        N, H = group.normal, group.complement
        self.normal = projection(Restriction(representation, N, lambda n: group.join(n, H.identity().to(n.device))))
        self.complement = projection(Restriction(representation, H, lambda h: group.join(N.identity().to(h.device), h)))

    def _project(self, x: Tensor) -> Tensor:
        return self.normal._project(self.complement._project(x))


class NullSpace(Projection):
    """Π of a unitary representation from ρ(s)x = x for generators s and dρ(X)x = 0 for a basis X of the Lie algebra.

    Works for every finite and every compact Lie group. The solutions are the eigenvectors of C*C with eigenvalue zero,
    where C stacks the equations; a singular value decomposition of C itself can fail to converge, since permutations
    give it many equal singular values. C*C has half of the digits only, so that eigenvectors near a solution go through
    C once more; a singular value of C that is below 1e-10 of the largest, if that exceeds one, counts as zero.
    """

    def __init__(self, representation: Representation) -> None:
        super().__init__(representation)
        equations = constraints(representation)
        squares, vectors = torch.linalg.eigh(equations.mH @ equations)
        scale = max(1.0, float(squares.max()) ** 0.5)
        near = vectors[:, squares < (1e-4 * scale) ** 2]
        values, turned = torch.linalg.eigh((equations @ near).mH @ (equations @ near))
        self.vectors = (near @ turned[:, values < (1e-10 * scale) ** 2]).mT

    @property
    def rank(self) -> int:
        """Number of independent solutions of the equations."""
        return len(self.vectors)

    def basis(self) -> Tensor:
        """Return the orthonormal solutions, shape ``(rank, dim)``."""
        return self.vectors

    def _project(self, x: Tensor) -> Tensor:
        q = self.vectors.to(x)
        return (x @ q.mH) @ q


ROUTES = {"sum": HaarSum, "orbits": OrbitMean, "composition": Composition, "nullspace": NullSpace}


def projection(representation: Representation, route: str = "auto") -> Projection:
    """Return the projection onto the invariants of a unitary representation; of ``Hom(V, W)`` it projects linear maps.

    The route is ``"sum"``, ``"orbits"``, ``"composition"``, ``"nullspace"``, or ``"auto"``: orbits for permutations,
    else the sum for finite groups of order up to 256, else the null space.

    >>> from lib.symmetry import actions, groups
    >>> P = projection(actions.natural(groups.Symmetric(3)))
    >>> P(torch.tensor([1.0, 2.0, 6.0]).double())
    tensor([3., 3., 3.], dtype=torch.float64)
    """
    check_choice("route", route, ("auto", *ROUTES))
    if not check_instance("representation", representation, Representation).is_unitary:
        raise ValueError(f"representation must be unitary for an orthogonal projection, {representation.name} is not")
    if route == "auto":
        group = representation.group
        route = "sum" if group.is_finite and group.order <= 256 else "nullspace"
        route = "orbits" if representation.is_permutation else route
    return ROUTES[route](representation)


def constraints(representation: Representation) -> Tensor:
    """Return the stacked matrices ρ(s) − 1 and dρ(X), shape ``(m, dim)``, whose common kernel are the invariants."""
    group = representation.group
    blocks = [representation.matrix(group.generators()) - torch.eye(representation.dim, device="cpu")]
    if isinstance(group, CompactLieGroup) and group.lie_dimension:
        blocks.append(representation.derivative(group.lie_algebra()))
    return torch.cat(blocks).flatten(0, 1)


def invariant_dimension(representation: Representation) -> int:
    """Return the dimension of the invariants, ∫ χ(g) dμ(g) (Serre 1977, §2.3); for ``Hom(V, W)`` that is ⟨χ_W, χ_V⟩.

    For compact Lie groups by a quadrature that is exact up to the largest weight, which the derivative tells. An
    ``ArithmeticError`` says that the average is not an integer to 1e-6: the character is no character.

    >>> from lib.symmetry import actions, groups
    >>> invariant_dimension(actions.natural(groups.Symmetric(10)))  # the constant vectors
    1
    """
    group = representation.group
    elements, weights = group.class_quadrature(0 if group.is_finite else _largest_weight(representation))
    value = complex((representation.character(elements) * weights).sum())
    if abs(value - round(value.real)) > 1e-6:
        raise ArithmeticError(f"the average of the character of {representation.name} is {value}, not an integer")
    return round(value.real)


def _largest_weight(representation: Representation) -> int:
    """Return a bound of the weights of a representation of a compact Lie group: eigenvalues of dρ(X) for a basis X."""
    if isinstance(representation, DirectSum):
        return max(map(_largest_weight, representation.summands))
    if isinstance(representation, TensorProduct):
        return _largest_weight(representation.first) + _largest_weight(representation.second)
    group = representation.group
    algebra = group.lie_algebra()
    slopes = representation.derivative(algebra)  # (lie_dimension, dim, dim)
    if not slopes.isfinite().all():  # a matrix by Euler's angles, say, which are singular at the identity
        part = torch.linspace(0.3, 0.9, len(algebra), dtype=algebra.dtype)
        at = group.exp(torch.tensordot(part, algebra, 1))
        ends = (representation.matrix(group.multiply(at, group.exp(t * algebra))) for t in (1e-4, -1e-4))
        slopes = torch.linalg.solve(representation.matrix(at), next(ends) - next(ends)) / 2e-4
    return math.ceil(float(torch.linalg.eigvals(slopes).abs().amax()) - 1e-6) if len(slopes) else 0


def wide(x: Tensor) -> torch.dtype:
    """Return the double-precision dtype for sums of x: a float32 sum over an orbit of 1024² pixels is 1 % off."""
    return torch.promote_types(x.dtype, torch.float64)


def uniform(count: int) -> Tensor:
    """Return ``count`` equal weights with sum 1, float64."""
    return torch.full((count,), 1.0 / count, dtype=torch.float64, device="cpu")
