"""A reader's own group: by name, by multiplication table, by permutations or by matrices.

Everything that works for the book's groups works for these: representations, projections, Fourier transforms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import torch
from torch import Tensor

from lib.symmetry.generated import CLOSURE_LIMIT, GeneratedGroup, frobenius
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.representations import MatrixRepresentation

LARGEST_TABLE = 512
_SAME = 1e-6  # largest difference of coordinates of equal vectors
_KINDS: dict[str, Callable[[int], FiniteGroup]] = {
    "C": Cyclic,
    "D": Dihedral,
    "S": Symmetric,
    "A": Alternating,
    "Q": Quaternion,
}
_FACTOR = re.compile(r"([CDSAQ])(\d{1,6})|C(\d{1,5}):C(\d{1,5})")


def named(name: str) -> FiniteGroup:
    """Return a finite group by its name; a ``ValueError`` says that there is none.

    ``"C4"`` is cyclic of order 4, ``"D6"`` dihedral of order 12, ``"S4"`` symmetric, ``"A5"`` alternating, ``"Q8"`` the
    quaternions, ``"C7:C3"`` the Frobenius group of order 21, and ``"C2xD3"`` a direct product of these.

    >>> named("C2xS3").order
    12
    """
    parts = [_FACTOR.fullmatch(part) for part in str(name).replace("×", "x").split("x")]
    if not all(parts):
        raise ValueError(f"name must be like 'C4', 'D6', 'S4', 'A5', 'Q8', 'C7:C3' or 'C2xD3', got {name!r}")
    try:
        factors = [_KINDS[p[1]](int(p[2])) if p[1] else frobenius(int(p[3]), int(p[4])) for p in parts]
    except ValueError as error:
        raise ValueError(f"there is no group {name!r} here: {error}") from None
    return functools.reduce(DirectProduct, factors)


class TableGroup(FiniteGroup):
    """The group with a given multiplication table: entry (i, j) is the number of the product of i and j.

    The table is ``int64`` of shape ``(n, n)``, n ≤ 512; element i is the vector ``(i,)``. If it is none of a group, a
    ``ValueError`` says which axiom fails.

    >>> from_table(torch.tensor([[0, 1], [1, 0]]), "parity").order
    2
    """

    def __init__(self, table: Tensor, name: str) -> None:
        n = len(table)
        if table.dtype != torch.int64 or table.shape != (n, n) or not 1 <= n <= LARGEST_TABLE:
            got = f"{table.dtype} of shape {tuple(table.shape)}"
            raise ValueError(f"table must be torch.int64 of shape (n, n) with n from 1 to {LARGEST_TABLE}, got {got}")
        self.table = table = table.to("cpu", copy=True)
        numbers = torch.arange(n, device="cpu")
        if not (table.sort(1).values == numbers).all() or not (table.sort(0).values == numbers[:, None]).all():
            raise ValueError(
                f"table must have every number 0 … {n - 1} once in each row and column: no division otherwise"
            )
        if not ((table == numbers).all(1) & (table == numbers[:, None]).all(0)).any():
            raise ValueError("table must have a neutral element: a row and a column that change nothing")
        for a in range(len(table)):  # (ab)c = a(bc) for all b and c
            if not torch.equal(table[table[a]], table[a][table]):
                b, c = (table[table[a]] != table[a][table]).nonzero()[0].tolist()
                raise ValueError(f"table must be associative, but ({a}·{b})·{c} differs from {a}·({b}·{c})")
        self.name, self.order, self.element_shape = name, len(table), (1,)
        one = (table == numbers).all(1).nonzero()[0, 0]
        self._inverses = (table == one).nonzero()[:, 1]
        self._generators = self._few_generators(int(one))

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the entries of the table."""
        return self.table.to(a.device)[a[..., 0], b[..., 0]][..., None]

    def inverse(self, a: Tensor) -> Tensor:
        """Return the element whose product with ``a`` is the neutral one."""
        return self._inverses.to(a.device)[a[..., 0]][..., None]

    def generators(self) -> Tensor:
        """Return at most log2(order) generators."""
        return self._generators.clone()

    def _few_generators(self, one: int) -> Tensor:
        """Return elements each of which is the first outside of what those before it generate."""
        found: list[int] = []
        inside = torch.arange(self.order, device="cpu") == one
        while not inside.all():
            found.append(int((~inside).nonzero()[0, 0]))
            count = 0
            while count != (count := int(inside.sum())):  # products with a generator, until nothing new comes
                inside[self.table[inside][:, found].unique()] = True
        return torch.tensor(found or [one], device="cpu")[:, None]


from_table, from_permutations = TableGroup, GeneratedGroup


def from_generators(matrices: Tensor, name: str, limit: int = CLOSURE_LIMIT) -> MatrixRepresentation:
    """Return the finite group that unitary matrices generate, as the representation on R^n or C^n by these matrices.

    The group itself, the attribute ``group`` of the result, permutes the images of the coordinate vectors; faithfully,
    since those span the space.

    The matrices are float64 or complex128 of shape ``(r, n, n)``; images of a vector that are closer than 1e-6 count as
    equal. A ``ValueError`` says that they are not unitary (tolerance 1e-8), that some elements are too close to be told
    apart, or that there are more than ``limit``: an orbit does not close.

    >>> quarter_turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    >>> from_generators(quarter_turn, "quarter turns").group.order
    4
    """
    n, double = matrices.shape[-1], matrices.dtype in (torch.float64, torch.complex128)
    if not double or matrices.ndim != 3 or matrices.shape[1] != n or not matrices.numel():
        got = f"{matrices.dtype} of shape {tuple(matrices.shape)}"
        raise ValueError(f"matrices must be float64 or complex128 of shape (r, n, n) with r, n ≥ 1, got {got}")
    one = torch.eye(n, dtype=matrices.dtype, device=matrices.device)
    defect = float((matrices @ matrices.mH - one).detach().abs().max())
    if not defect <= 1e-8:
        raise ValueError(f"matrices must be unitary, got max |MM* − 1| = {defect:.1e}")
    points = one[:0]
    for vector in one:
        points = _add_orbit(points, vector, matrices, limit)
    moved = torch.einsum("rij,pj->rpi", matrices, points)
    permutations = torch.stack([_distances(m, points).argmin(-1) for m in moved])
    group = GeneratedGroup(permutations, name, limit)
    places = _distances(one, points).argmin(-1)
    name = f"{'C' if one.is_complex() else 'R'}^{n}"
    found = MatrixRepresentation(group, n, lambda g: points.to(g.device)[g[..., places.to(g.device)]].mT, name)
    missed = float((found.matrix(permutations) - matrices).detach().abs().max())
    if missed > 1e-12 + 100 * defect:
        raise ValueError(f"matrices must generate elements that differ by more than {_SAME}, got {missed:.1e}")
    return found


def _add_orbit(points: Tensor, vector: Tensor, matrices: Tensor, limit: int) -> Tensor:
    """Return the points together with the orbit of a vector under the group that the matrices generate."""
    if len(points) and float(_distances(vector[None], points).detach().min()) < _SAME:
        return points
    orbit = frontier = vector[None]
    while len(frontier):
        moved = torch.einsum("rij,pj->rpi", matrices, frontier).flatten(0, 1)
        moved = moved[_distances(moved, orbit).min(-1).values >= _SAME]
        close = _distances(moved, moved) < _SAME
        frontier = moved[~close.tril(-1).any(-1)]  # of several equal images the first
        orbit = torch.cat([orbit, frontier])
        if len(orbit) > limit:
            raise ValueError(f"matrices must generate at most limit = {limit} elements, got an orbit of {len(orbit)}")
    return torch.cat([points, orbit])


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the largest coordinate differences, shape ``(len(x), len(y))``."""
    return (x[:, None] - y[None]).abs().amax(-1)
