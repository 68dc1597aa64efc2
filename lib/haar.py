"""Haar projections: averaging over a group, by whichever route the representation's structure allows.

The projection onto the invariants of a unitary representation is Π x = ∫ ρ(g) x dμ(g) (Nordenfors, Ohlsson, Flinth
2023, Lemma 2); applied to :class:`~lib.representations.Hom` it projects a linear map onto the equivariant ones. Routes:

========================  =============================================  ==============================
route                     needs                                          cost
========================  =============================================  ==============================
:class:`HaarSum`          a list of group elements (or a quadrature)     |G| × dim
:class:`OrbitMean`        a permutation representation                   generators × dim
:class:`FourierDiagonal`  cyclic translations on both sides              dim × log dim
:class:`Composition`      a semidirect product                           both factors'
:class:`NullSpace`        generators, Lie algebra                        dim³, once
========================  =============================================  ==============================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from lib.checks import check_choice, check_tensor
from lib.groups import FiniteGroup, SemidirectProduct
from lib.lie import CompactLieGroup
from lib.representations import Hom, Representation, Restriction


class Projection(ABC):
    """The orthogonal projection Π onto the invariants of a representation.

    Calling it maps ``(..., *representation.shape)`` to the same shape; it is linear, batched, differentiable, and works
    in the dtype and on the device of its argument.
    """

    def __init__(self, representation: Representation) -> None:
        if not isinstance(representation, Representation):
            raise TypeError(f"representation must be a Representation, got {type(representation).__name__}")
        self.representation = representation

    def __call__(self, x: Tensor) -> Tensor:
        """Return Π x.

        Raises
        ------
        TypeError, ValueError
            x is no tensor, has the wrong last axes, is not finite, or is real where ρ is complex.
        """
        V = self.representation
        check_tensor("x", x, V.shape)
        if V.is_complex and not x.is_complex():
            raise TypeError(f"x must be complex for the complex representation {V.name}, got {x.dtype}")
        return self._project(x.reshape(*x.shape[: x.ndim - len(V.shape)], V.dim)).reshape(x.shape)

    @abstractmethod
    def _project(self, x: Tensor) -> Tensor:
        """Return Π x for x of shape ``(..., dim)``."""

    def matrix(self) -> Tensor:
        """Return Π as a dense matrix, shape ``(dim, dim)``."""
        dtype = torch.complex128 if self.representation.is_complex else torch.float64
        return self._project(torch.eye(self.representation.dim, dtype=dtype)).mT

    @property
    def rank(self) -> int:
        """Dimension of the space of invariants: the trace of Π."""
        return round(float(torch.trace(self.matrix()).real))

    def basis(self) -> Tensor:
        """Return an orthonormal basis of the invariants, shape ``(rank, dim)``."""
        values, vectors = torch.linalg.eigh(self.matrix())
        return vectors[:, values > 0.5].mT


class HaarSum(Projection):
    """Π as a plain weighted sum of ρ(g) over group elements.

    Parameters
    ----------
    representation
        Any representation.
    elements, weights
        Nodes and weights; by default all elements of a finite group with weight 1/|G|. With other elements the result
        is the average over those, which need not be a projection.
    chunk
        Elements used at a time.
    """

    def __init__(
        self,
        representation: Representation,
        elements: Tensor | None = None,
        weights: Tensor | None = None,
        chunk: int = 4096,
    ) -> None:
        super().__init__(representation)
        if elements is None and not isinstance(representation.group, FiniteGroup):
            raise TypeError(f"elements must be given, {representation.group} is not finite")
        if elements is not None:
            weights = _uniform(len(elements)) if weights is None else weights
            check_tensor("weights", weights, (len(elements),))
        self.elements, self.weights, self.chunk = elements, weights, chunk

    def _nodes(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.elements is not None:
            yield from zip(self.elements.split(self.chunk), self.weights.split(self.chunk), strict=True)
            return
        group = self.representation.group
        for g in group.chunks(self.chunk):
            yield g, _uniform(len(g)) * (len(g) / group.order)

    def _project(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for g, w in self._nodes():
            moved = self.representation._apply(self.representation.group.unsqueeze(g, x.ndim - 1), x)
            total = total + torch.tensordot(w.to(x), moved, dims=1)
        return total


class OrbitMean(Projection):
    """Π for a permutation representation: every entry becomes the mean over its orbit.

    The orbits are the connected components of the graph i → π_s(i) over the generators s, so the cost does not depend
    on the order of the group.

    Attributes
    ----------
    labels : Tensor
        Number of the orbit of every coordinate, shape ``(dim,)``.
    sizes : Tensor
        Number of coordinates in every orbit.
    """

    def __init__(self, representation: Representation) -> None:
        super().__init__(representation)
        if not representation.is_permutation:
            raise TypeError(f"representation must be by permutations for orbits, {representation.name} is not")
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
        total = x.new_zeros(*x.shape[:-1], self.rank).index_add(-1, self.labels.to(x.device), x)
        return total / self.sizes.to(x)

    def embed(self, coordinates: Tensor) -> Tensor:
        """Return the flat invariant vectors with the given orbit values, shape ``(..., dim)``."""
        return coordinates[..., self.labels.to(coordinates.device)]

    def _project(self, x: Tensor) -> Tensor:
        return self.embed(self.coordinates(x))

    def basis(self) -> Tensor:
        """Return the normalised orbit indicators, shape ``(rank, dim)``."""
        indicator = torch.nn.functional.one_hot(self.labels, self.rank).mT.to(torch.float64)
        return indicator / self.sizes.to(torch.float64).sqrt()[:, None]


class FourierDiagonal(Projection):
    """Π on linear maps between functions on a grid on which translations act cyclically along some axes.

    A map is equivariant exactly when the Fourier transform along these axes makes it diagonal in the frequencies
    (Nordenfors, Ohlsson, Flinth 2023, Propositions 4 and 6); Π therefore transforms, deletes all entries with unequal
    frequencies, and transforms back.

    Parameters
    ----------
    representation
        ``Hom`` of two functions spaces on one grid.
    grid
        Shape of the grid, ``prod(grid)`` being both dimensions.
    axes
        The grid axes along which the group translates.
    """

    def __init__(self, representation: Hom, grid: Sequence[int], axes: Sequence[int]) -> None:
        super().__init__(representation)
        if representation.shape != (int(np.prod(grid)),) * 2:
            raise ValueError(f"grid {tuple(grid)} must have {representation.shape} entries on both sides")
        order = int(np.prod([grid[a] for a in axes]))
        if not isinstance(representation.group, FiniteGroup) or representation.group.order != order:
            raise ValueError(f"group must be the translations of order {order} along axes {tuple(axes)} of {tuple(grid)}")
        self.grid, self.axes = tuple(grid), tuple(axes)

    def _project(self, x: Tensor) -> Tensor:
        p, batch = len(self.grid), x.ndim - 1
        out_axes = [batch + a for a in self.axes]
        in_axes = [batch + p + a for a in self.axes]
        hat = torch.fft.fftn(x.unflatten(-1, (*self.grid, *self.grid)), dim=out_axes, norm="ortho")
        hat = torch.fft.ifftn(hat, dim=in_axes, norm="ortho")
        for a in self.axes:
            shape = [1] * (2 * p)
            shape[a] = shape[p + a] = self.grid[a]
            hat = hat * torch.eye(self.grid[a], device=x.device).reshape(shape)
        back = torch.fft.fftn(torch.fft.ifftn(hat, dim=out_axes, norm="ortho"), dim=in_axes, norm="ortho").flatten(batch)
        return back if x.is_complex() else back.real


class Composition(Projection):
    """Π for N ⋊ H as Π_N ∘ Π_H (Nordenfors, Ohlsson, Flinth 2023, Proposition 7).

    Parameters
    ----------
    representation
        A representation of a :class:`~lib.groups.SemidirectProduct`.
    """

    def __init__(self, representation: Representation) -> None:
        super().__init__(representation)
        group = representation.group
        if not isinstance(group, SemidirectProduct):
            raise TypeError(f"group must be a SemidirectProduct for a composition, got {group}")
        N, H = group.normal, group.complement
        self.normal = projection(Restriction(representation, N, lambda n: group.join(n, H.identity().to(n.device))))
        self.complement = projection(Restriction(representation, H, lambda h: group.join(N.identity().to(h.device), h)))

    def _project(self, x: Tensor) -> Tensor:
        return self.normal._project(self.complement._project(x))


class NullSpace(Projection):
    """Π from the equations ρ(s)x = x for generators s and dρ(X)x = 0 for a basis X of the Lie algebra.

    Works for every finite and every compact Lie group, by a singular value decomposition of the stacked equations.
    """

    def __init__(self, representation: Representation, tolerance: float = 1e-9) -> None:
        super().__init__(representation)
        singular, vectors = torch.linalg.svd(constraints(representation), full_matrices=True)[1:]
        scale = max(1.0, float(singular.max()))
        kept = torch.ones(representation.dim, dtype=torch.bool)
        kept[: len(singular)] = singular < tolerance * scale
        self.vectors = vectors[kept].conj()

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


ROUTES = ("auto", "sum", "orbits", "composition", "nullspace")


def projection(representation: Representation, route: str = "auto") -> Projection:
    """Return the projection onto the invariants of a representation.

    Parameters
    ----------
    representation
        A unitary representation; use :class:`~lib.representations.Hom` to project linear maps.
    route
        ``"sum"``, ``"orbits"``, ``"composition"``, ``"nullspace"``, or ``"auto"``: orbits for permutations, else the sum
        for finite groups of order up to 256, else the null space.

    Raises
    ------
    ValueError
        The representation is not unitary (the average is then no orthogonal projection), or ``route`` is unknown.
    TypeError
        The route does not fit the representation.
    """
    check_choice("route", route, ROUTES)
    if isinstance(representation, Representation) and not representation.is_unitary:
        raise ValueError(f"representation must be unitary for an orthogonal projection, {representation.name} is not")
    if route == "auto":
        group = getattr(representation, "group", None)
        if getattr(representation, "is_permutation", False):
            route = "orbits"
        else:
            route = "sum" if isinstance(group, FiniteGroup) and group.order <= 256 else "nullspace"
    routes = {"sum": HaarSum, "orbits": OrbitMean, "composition": Composition, "nullspace": NullSpace}
    return routes[route](representation)


def constraints(representation: Representation) -> Tensor:
    """Return the stacked matrices ρ(s) − 1 and dρ(X), shape ``(m, dim)``, whose common kernel are the invariants."""
    group = representation.group
    blocks = [representation.matrix(group.generators()) - torch.eye(representation.dim)]
    if isinstance(group, CompactLieGroup) and group.lie_dimension:
        blocks.append(representation.derivative(group.lie_algebra()))
    return torch.cat(blocks).flatten(0, 1)


def invariant_dimension(representation: Representation, degree: int = 8) -> int:
    """Return the dimension of the invariants, ∫ χ(g) dμ(g) (Serre 1977, §2.3); for ``Hom(V, W)`` that is ⟨χ_W, χ_V⟩.

    Parameters
    ----------
    representation
        Any representation.
    degree
        For compact Lie groups, the number of tensor factors in the representation (see ``class_quadrature``).

    Raises
    ------
    ArithmeticError
        The average is not an integer to 1e-6: the character is no character, or ``degree`` is too small.
    """
    elements, weights = representation.group.class_quadrature(degree)
    value = complex((representation.character(elements) * weights).sum())
    if abs(value - round(value.real)) > 1e-6:
        raise ArithmeticError(f"the average of the character of {representation.name} is {value:.6g}, not an integer")
    return round(value.real)


def symmetrize_function(
    f: Callable[[Tensor], Tensor],
    source: Representation,
    target: Representation | None = None,
    elements: Tensor | None = None,
    weights: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """Return S_Σ f, the function x ↦ ∫ ρ_target(g)⁻¹ f(ρ_source(g) x) dμ(g) (Birrell et al. 2022, §3; feature averaging).

    Parameters
    ----------
    f
        Maps ``(..., dim source)`` to ``(..., dim target)``, or to ``(...)`` when ``target`` is ``None``.
    source, target
        How the group acts on inputs and outputs; ``None`` leaves the output alone.
    elements, weights
        Nodes and weights for the Haar measure; by default all elements of a finite group.
    """
    group = source.group
    if elements is None and not isinstance(group, FiniteGroup):
        raise TypeError(f"elements must be given, {group} is not finite")
    if target is not None and target.group != group:
        raise ValueError(f"source and target must be representations of one group, got {group} and {target.group}")
    g = group.elements() if elements is None else elements
    w = _uniform(len(g)) if weights is None else weights

    def averaged(x: Tensor) -> Tensor:
        h = group.unsqueeze(g.to(x.device), x.ndim - 1)
        values = f(source.apply(h, x))
        if target is not None:
            values = target.apply(group.inverse(h), values)
        return torch.tensordot(w.to(values), values, dims=1)

    return averaged


def symmetrize_measure(
    points: Tensor, representation: Representation, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return S^Σ P for a weighted empirical measure P: every point spread evenly over its images.

    Parameters
    ----------
    points
        Support of P, shape ``(n, dim)``.
    representation
        A representation of a finite group on the points' space.
    weights
        Masses, shape ``(n,)``; default 1/n each.

    Returns
    -------
    tuple of Tensor
        Points ``(|G|·n, dim)`` and weights ``(|G|·n,)``.
    """
    group = representation.group
    if not isinstance(group, FiniteGroup):
        raise TypeError(f"representation must be of a finite group, got {group}")
    check_tensor("points", points, (None, representation.dim))
    mass = _uniform(len(points)).to(points) if weights is None else weights
    check_tensor("weights", mass, (len(points),))
    images = representation.apply(group.unsqueeze(group.elements()), points)
    return images.flatten(0, 1), mass.repeat(group.order) / group.order


def _uniform(count: int) -> Tensor:
    return torch.full((count,), 1.0 / count, dtype=torch.float64)
