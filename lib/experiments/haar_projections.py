"""Chapter *Haar projections*: the projection onto equivariant maps, five ways (claims H2, H3, H4, H6, H7, H8, H10)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from lib.checks import check_int, seeded
from lib.symmetry.actions import motions, natural, pixels, planar, regular, row_shifts, translations, trivial, vectors
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.haar import (
    Composition,
    FourierDiagonal,
    HaarSum,
    NullSpace,
    OrbitMean,
    Projection,
    invariant_dimension,
    projection,
)
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import Hom, MatrixRepresentation, Representation, Restriction


def examples() -> dict[str, Hom]:
    """Return the spaces of linear maps on which the projections are examined, by name."""
    nodes, shifts, turns, both = (
        natural(Symmetric(4)),
        pixels(translations(4), 4),
        pixels(Cyclic(4), 4),
        pixels(motions(4), 4),
    )
    everything, rows = pixels(motions(4, Dihedral(4)), 4), row_shifts(4)
    five, plane, quaternion = natural(Alternating(5)), planar(Dihedral(5)), regular(Quaternion(8))
    space, reflected = vectors(SpecialOrthogonal(3)), vectors(Orthogonal(3))
    phase, angles = vectors(Unitary(2)), vectors(Torus(2))
    return {
        "graphs, S4": Hom(nodes * nodes, nodes * nodes),
        "five points, A5": Hom(five, five + trivial(five.group)),
        "quaternions, Q8": Hom(quaternion, quaternion),
        "pentagon, D5": Hom(plane * plane, plane + trivial(plane.group)),
        "images, quarter turns": Hom(turns, turns),
        "images, shifts": Hom(shifts, shifts),
        "images, row shifts": Hom(rows, rows),
        "images, shifts and turns": Hom(both, both),
        "images, shifts and D4": Hom(everything, everything),
        "vectors, SO(3)": Hom(space * space, space),
        "tensors, O(3)": Hom(reflected * reflected, reflected * reflected),
        "tensors, U(2)": Hom(phase * phase, phase * phase),
        "angles, T2": Hom(angles, angles),
    }


@dataclass(frozen=True)
class ProjectionDefects:
    """Largest entries of ΠΠ − Π, Π* − Π, ρ(g)Π − Π and Πρ(g) − Π, and Π − (projection onto solutions of ρ(g)x = x)."""

    idempotent: float
    self_adjoint: float
    commutes: float
    range: float


def average(representation: Representation, seed: int = 0) -> Tensor:
    """Return Π as the matrix of an average: the sum over a finite group, a :class:`RandomWalk` on a Lie group."""
    finite = representation.group.is_finite
    return (HaarSum(representation) if finite else RandomWalk(representation, seed=seed)).matrix()


def projection_defects(
    representation: Representation, seed: int = 0, pi: Tensor | None = None, draws: int = 4
) -> ProjectionDefects:
    """Measure how far Π is from being the orthogonal projection onto the invariants.

    The range is compared with the null space that SciPy finds for the equations ρ(g)x = x, where g runs over generators
    of a finite group and over three random elements of a Lie group (and the reflection for O(n)): almost surely they
    generate a dense subgroup, so neither averaging nor the Lie algebra is involved.

    Parameters
    ----------
    representation
        The representation.
    seed
        Seed of the random elements.
    pi
        The matrix Π to examine; by default the :func:`average`.
    draws
        Random elements for ρ(g)Π = Π = Πρ(g), beside the generators.
    """
    group, generator = representation.group, seeded(seed)
    pi = average(representation, seed) if pi is None else pi
    nodes = group.generators()
    rho = representation.matrix(torch.cat([nodes, group.sample(draws, generator)]))
    if not group.is_finite:
        nodes = torch.cat([nodes, group.sample(3, generator)])
    equations = (representation.matrix(nodes) - torch.eye(representation.dim)).flatten(0, 1)
    q = torch.from_numpy(scipy.linalg.null_space(equations.numpy(), rcond=1e-9)).to(pi)
    fixed = torch.cat([rho @ pi - pi, pi @ rho - pi])
    return ProjectionDefects(*(float(d.abs().max()) for d in (pi @ pi - pi, pi.mH - pi, fixed, pi - q @ q.mH)))


def wrong_averages(seed: int = 0) -> dict[str, ProjectionDefects]:
    """Return the defects of three averages that are not the projection: the controls of claim H2.

    Over three of the four quarter turns (not idempotent, not self-adjoint); over the subgroup {1, s} of D_4 (an
    orthogonal projection, but onto too large a space, which D_4 does not fix); and over C_2 acting by shears (oblique).
    """
    turns, square = pixels(Cyclic(4), 4), planar(Dihedral(4))
    three = HaarSum(turns, elements=torch.tensor([[0], [1], [2]])).matrix()
    part = HaarSum(square, elements=torch.tensor([[0, 0], [0, 1]])).matrix()
    sheared, oblique = oblique_average()
    cases = {"three turns": (turns, three), "a subgroup": (square, part), "shears": (sheared, oblique)}
    return {name: projection_defects(V, seed, pi) for name, (V, pi) in cases.items()}


def oblique_average() -> tuple[Representation, Tensor]:
    """Return a *non-unitary* representation of C_2 and its group average: a projection that is not orthogonal.

    The matrix s = [[1, a], [0, −1]] has s² = 1 for every a; for a ≠ 0 its average with the unit matrix is oblique.
    """
    s = torch.tensor([[1.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    powers = torch.stack([torch.eye(2, dtype=torch.float64), s])
    V = MatrixRepresentation(Cyclic(2), 2, lambda g: powers[g[..., 0]], "sheared", unitary=False)
    return V, HaarSum(V).matrix()


@dataclass(frozen=True)
class DimensionRow:
    """One row of the table of dimensions: stated value, character average, rank of Π, and the number of all weights."""

    space: str
    stated: int
    characters: int
    rank: int
    total: int


def dimension_table(grid: int) -> list[DimensionRow]:
    """Return the dimensions of E that the register lists (claim H3), each computed by characters and as a rank.

    Parameters
    ----------
    grid
        Side n of the images, even.
    """
    n, rows = grid, []
    graphs = {k: natural(Symmetric(k)) * natural(Symmetric(k)) for k in (4, 5, 6, 10)}
    rows += [(f"graphs → graphs, S{k}", 15, T, T) for k, T in graphs.items()]
    rows += [(f"graphs → R, S{k}", 2, T, trivial(T.group)) for k, T in graphs.items()]
    shifts, turns, lines, both = pixels(translations(n), n), pixels(Cyclic(4), n), row_shifts(n), pixels(motions(n), n)
    rows += [("images, shifts", n**2, shifts, shifts), ("images → R, shifts", 1, shifts, trivial(shifts.group))]
    rows += [("images, quarter turns", n**4 // 4, turns, turns)]
    rows += [("images, row shifts", n**3, lines, lines), ("images → R, row shifts", n, lines, trivial(lines.group))]
    rows += [("images, shifts and turns", _stated_motions(n), both, both)]
    rows += [("images → R, shifts and turns", 1, both, trivial(both.group))]
    return [_dimension_row(name, stated, Hom(V, W)) for name, stated, V, W in rows]


def _stated_motions(n: int) -> int:
    """Return the number of orbits of quarter turns on Z_n², n even: (n² − 4)/4 of four, two fixed points, a pair."""
    return (n**2 - 4) // 4 + 3


def _dimension_row(name: str, stated: int, space: Hom) -> DimensionRow:
    return DimensionRow(name, stated, invariant_dimension(space), projection(space).rank, space.dim)


def wrong_dimensions(grid: int) -> dict[str, int]:
    """Return |computed − stated| where the group or the formula is a wrong one: the controls of claim H3.

    Half turns for quarter turns, row shifts for shifts, shifts alone for shifts and turns, cyclic for all permutations
    of four nodes, and the source's rounded n²/4 for shifts and turns.
    """
    n = grid
    turns, both = pixels(Cyclic(4), n), pixels(motions(n), n)
    half = Restriction(turns, Cyclic(2), lambda h: 2 * h)
    nodes = Restriction(natural(Symmetric(4)), Cyclic(4), lambda k: (torch.arange(4) + k) % 4)
    spaces = {"half turns": (half, n**4 // 4), "row shifts": (row_shifts(n), n**2)}
    spaces |= {"shifts alone": (pixels(translations(n), n), _stated_motions(n)), "cyclic nodes": (nodes * nodes, 15)}
    found = {name: abs(invariant_dimension(Hom(V, V)) - stated) for name, (V, stated) in spaces.items()}
    return found | {"rounded formula": abs(invariant_dimension(Hom(both, both)) - n**2 // 4)}


def routes(name: str, space: Hom, seed: int = 0) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return every route to Π that fits one of the :func:`examples`, by name.

    Finite groups: group sum, orbits (permutations), Fourier (shifts), composition (semidirect products), null space.
    Lie groups: null space of the Lie algebra, and a random walk with this seed in place of the sum.
    """
    group = space.group
    found: dict[str, Callable[[Tensor], Tensor]] = {"null space": NullSpace(space)}
    if isinstance(group, FiniteGroup):
        found["sum"] = HaarSum(space)
    else:
        found["random walk"] = RandomWalk(space, seed=seed)
    if space.is_permutation:
        found["orbits"] = OrbitMean(space)
    if name.startswith("images, shifts and"):
        found["composition"] = Composition(space)
        turned, shifted = pixels(group.complement, 4), pixels(translations(4), 4)
        first, then = HaarSum(Hom(turned, turned)), FourierDiagonal(Hom(shifted, shifted), (4, 4), (0, 1))
        found["Fourier after sum"] = lambda A: then(first(A))
    elif name in ("images, shifts", "images, row shifts"):
        found["Fourier"] = FourierDiagonal(space, (4, 4), (0, 1) if name == "images, shifts" else (1,))
    return found


def route_disagreement(
    routes_: dict[str, Callable[[Tensor], Tensor]], space: Hom, seed: int
) -> dict[tuple[str, str], float]:
    """Return the largest entry of Π_i A − Π_j A for every pair of routes and a random A with normal entries."""
    dtype = torch.complex128 if space.is_complex else torch.float64
    A = torch.randn(space.shape, dtype=dtype, generator=seeded(seed))
    results = {name: route(A) for name, route in routes_.items()}
    pairs = itertools.combinations(results, 2)
    return {(i, j): float((results[i] - results[j]).abs().max()) for i, j in pairs}


def wrong_routes(seed: int = 0) -> list[float]:
    """Return disagreements of three mistaken shortcuts with the true projection: the controls of claim H4.

    Fourier along both axes for a group that shifts along one; the sum over quarter turns without the half turn; and the
    product Π_H Π_K for two subgroups H = ⟨(0 1)⟩ and K = ⟨(1 2)⟩ of S_3 that do not normalise each other.
    """
    generator = seeded(seed)
    rows, shifts, turns = row_shifts(4), pixels(translations(4), 4), pixels(Cyclic(4), 4)
    A = torch.randn(16, 16, dtype=torch.float64, generator=generator)
    both_axes = FourierDiagonal(Hom(shifts, shifts), (4, 4), (0, 1))
    three_turns = HaarSum(Hom(turns, turns), elements=torch.tensor([[0], [1], [3]]))
    V = natural(Symmetric(3))
    x = torch.randn(3, dtype=torch.float64, generator=generator)
    swaps = [HaarSum(V, elements=torch.tensor([[0, 1, 2], swap])) for swap in ([1, 0, 2], [0, 2, 1])]
    mistakes = (
        both_axes(A) - projection(Hom(rows, rows))(A),
        three_turns(A) - projection(Hom(turns, turns))(A),
        swaps[0](swaps[1](x)) - projection(V)(x),
    )
    return [float(m.abs().max()) for m in mistakes]


class RandomWalk(Projection):
    """Π as the limit of a lazy symmetric random walk on the group.

    With m elements (the group's discrete generators and random ones) let T = ½ + (1/4m) Σ (ρ(g_j) + ρ(g_j)⁻¹). T is
    self-adjoint with eigenvalues in [0, 1]; the eigenvalue 1 belongs to the vectors that every g_j fixes. Almost surely
    the g_j generate a dense subgroup, so these are the invariants and T^k → Π geometrically: the law of the walk
    converges to the Haar measure (Kawada, Itô 1940). Staying put with probability ½ excludes the eigenvalue −1.

    Parameters
    ----------
    representation
        A unitary representation.
    elements
        Number m of random elements.
    squarings
        T is raised to the power 2**squarings.
    seed
        Seed of the elements.
    """

    def __init__(self, representation: Representation, elements: int = 6, squarings: int = 9, seed: int = 0) -> None:
        super().__init__(representation)
        group = representation.group
        g = torch.cat([group.generators(), group.sample(elements, seeded(seed))])
        rho = representation.matrix(g)
        self._power = torch.eye(representation.dim) / 2 + (rho + rho.mH).mean(0) / 4
        for _ in range(squarings):
            self._power = self._power @ self._power

    def _project(self, x: Tensor) -> Tensor:
        return x @ self._power.to(x).mT


@dataclass(frozen=True)
class CostLaw:
    """Seconds of both routes for the subgroups S_k of S_10 acting on the same 10⁴ entries, and fitted exponents.

    Attributes
    ----------
    orders : list of int
        |S_k| = k!.
    orbit_seconds, sum_seconds : list of float
        Best of several repetitions; the sum only for the first few groups.
    orbit_exponent, sum_exponent : float
        Least-squares slopes of log seconds against log order.
    entries : list of int
        n⁴, the number of entries of a map between graphs on n nodes.
    entry_seconds : list of float
        Seconds of the orbit route for S_n on these.
    entry_exponent : float
        Slope of log seconds against log entries.
    """

    orders: list[int]
    orbit_seconds: list[float]
    sum_seconds: list[float]
    orbit_exponent: float
    sum_exponent: float
    entries: list[int]
    entry_seconds: list[float]
    entry_exponent: float


def young_subgroup(k: int, n: int = 10) -> Hom:
    """Return graph-to-graph maps on n nodes, with S_k permuting the first k nodes only."""
    group = Symmetric(k)
    rest = torch.arange(k, n)
    nodes = Restriction(natural(Symmetric(n)), group, lambda g: torch.cat([g, rest.expand(*g.shape[:-1], -1)], -1))
    return Hom(nodes * nodes, nodes * nodes)


def cost_law(largest_sum: int = 6, repeats: int = 15) -> CostLaw:
    """Time the orbit route against the sum, in the order of the group at fixed size and in the size for S_n.

    Parameters
    ----------
    largest_sum
        Largest k for which the sum over k! elements is timed.
    repeats
        Repetitions, of which the fastest counts.
    """
    check_int("largest_sum", largest_sum, minimum=3, maximum=8)
    A = torch.arange(1e4, dtype=torch.float64).reshape(100, 100)
    spaces = [young_subgroup(k) for k in range(2, 11)]
    orbit = [_fastest(lambda space=space: OrbitMean(space)(A), repeats) for space in spaces]
    naive = [_fastest(lambda space=space: HaarSum(space)(A), 2) for space in spaces[: largest_sum - 1]]
    orders = [space.group.order for space in spaces]
    sizes = (8, 10, 13, 16, 20)
    graphs = [natural(Symmetric(n)) * natural(Symmetric(n)) for n in sizes]
    entry_seconds = [_fastest(lambda T=T: OrbitMean(Hom(T, T)), 7) for T in graphs]
    entries = [n**4 for n in sizes]
    return CostLaw(
        orders,
        orbit,
        naive,
        _slope(orders, orbit),
        _slope(orders[: len(naive)], naive),
        entries,
        entry_seconds,
        _slope(entries, entry_seconds),
    )


def _fastest(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


def _slope(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
