"""The representations that the book uses: on labels, pixels, graph nodes, vectors in R^n and angles.

Each function returns a :class:`~lib.symmetry.representations.Representation`; its group is the ``group`` attribute.
Images are ``size × size`` arrays flattened row by row, pixel (i, j) being row i and column j.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import check_int, holds
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, FiniteGroup, Group, PermutationGroup, SemidirectProduct
from lib.symmetry.lie import CompactLieGroup, Torus
from lib.symmetry.representations import MatrixRepresentation, PermutationRepresentation, Representation


def trivial(group: Group, dim: int = 1) -> PermutationRepresentation:
    """Return the trivial representation ρ(g) = 1 on R^dim.

    >>> from lib.symmetry.groups import Cyclic
    >>> trivial(Cyclic(3), 2).matrix(torch.tensor([1])).int()
    tensor([[1, 0],
            [0, 1]], dtype=torch.int32)
    """

    def images(g: Tensor) -> Tensor:
        batch = g.shape[: g.ndim - len(group.element_shape)]
        return torch.arange(dim, device=g.device).expand(*batch, dim)

    return PermutationRepresentation(group, dim, images, "1" if dim == 1 else f"1^{dim}")


def regular(group: FiniteGroup) -> PermutationRepresentation:
    """Return the left regular representation on functions on the group: ρ(g) e_h = e_gh.

    >>> from lib.symmetry.groups import Dihedral
    >>> regular(Dihedral(4)).dim
    8
    """
    elements = group.elements()
    return PermutationRepresentation(
        group, group.order, lambda g: group.index(group.multiply(g[..., None, :], elements.to(g.device))), f"R[{group}]"
    )


def natural(group: PermutationGroup) -> PermutationRepresentation:
    """Return the representation of a group of permutations on R^n by permuting coordinates (the nodes of a graph).

    >>> from lib.symmetry.groups import Symmetric
    >>> natural(Symmetric(3)).matrix(torch.tensor([1, 2, 0])).int()
    tensor([[0, 0, 1],
            [1, 0, 0],
            [0, 1, 0]], dtype=torch.int32)
    """
    n = group.n
    return PermutationRepresentation(group, n, lambda g: g, f"R^{n}")


def on_points(
    group: FiniteGroup, points: Tensor, move: Callable[[Tensor, Tensor], Tensor], name: str
) -> PermutationRepresentation:
    """Return the representation on functions on a finite set of points induced by an action on the points.

    Points are rows of nonnegative integers (``int64``), shape ``(dim, p)``, all different. ``move(g, points)`` returns
    them moved, shape ``(..., dim, p)`` for g of shape ``(..., 1, k)``; where to none of them is a ``ValueError``.
    """
    if not points.numel() or int(points.min()) < 0:
        raise ValueError(f"points must be nonnegative, of shape (dim, p) with dim ≥ 1, got shape {tuple(points.shape)}")
    dim, base = len(points), int(points.max()) + 1
    check_int("points.max() ** p", base ** points.shape[1], maximum=2**62)
    powers = base ** torch.arange(points.shape[1], device=points.device)
    order = (points * powers).sum(-1).argsort()
    sorted_codes = (points * powers).sum(-1)[order]

    def images(g: Tensor) -> Tensor:
        moved = move(group.unsqueeze(g), points.to(g.device))
        codes = (moved * powers.to(g.device)).sum(-1)
        place = torch.searchsorted(sorted_codes.to(g.device), codes).clamp(max=dim - 1)
        if not holds((moved >= 0) & (moved < base)) or not holds(sorted_codes.to(g.device)[place] == codes):
            raise ValueError(f"move must map the points to themselves; {group} moves one of them out of the set")
        return order.to(g.device)[place]

    return PermutationRepresentation(group, dim, images, name)


def translations(size: int, dimension: int = 2) -> FiniteGroup:
    """Return the group of cyclic translations Z_size^dimension (dimension 1 or 2).

    >>> translations(28).order, translations(28, dimension=1).order
    (784, 28)
    """
    shift = Cyclic(size)
    return shift if dimension == 1 else DirectProduct(shift, shift)


def motions(size: int, point_group: FiniteGroup | None = None) -> SemidirectProduct:
    """Return the translations of the size × size torus, extended by quarter rotations or by all of D_4.

    The point group is ``Cyclic(4)`` (default) or ``Dihedral(4)``.

    >>> from lib.symmetry.groups import Dihedral
    >>> motions(28, Dihedral(4)).order  # 28 · 28 · 8
    6272
    """
    H = Cyclic(4) if point_group is None else point_group
    matrices = _point_matrices(H)
    N = translations(size)

    def action(h: Tensor, n: Tensor) -> Tensor:
        return (matrices.to(h.device)[H.index(h)] * n[..., None, :]).sum(-1) % size  # CUDA has no integer products

    return SemidirectProduct(N, H, action, f"({N})⋊{H}")


def pixels(group: FiniteGroup, size: int) -> PermutationRepresentation:
    """Return the action of a group on size × size images.

    ``Cyclic(4)`` turns the image by quarter turns about its centre, counter-clockwise as shown (row 0 on top);
    ``Dihedral(4)`` also reflects (rows reversed); ``translations(size)`` shifts cyclically; ``motions(size, …)`` does
    both. For translations within the rows use :func:`row_shifts`. A subgroup, as the half turns or a single flip, acts
    through :class:`~lib.symmetry.derived.Restriction`. For other groups a ``ValueError`` says how to make an action.

    >>> from lib.symmetry.derived import Restriction
    >>> from lib.symmetry.groups import Cyclic
    >>> half_turns = Restriction(pixels(Cyclic(4), 8), Cyclic(2), lambda h: 2 * h)
    """
    grid = torch.cartesian_prod(*[torch.arange(size, device="cpu")] * 2)
    if group == translations(size):
        return on_points(group, grid, lambda g, x: (x + g) % size, f"R^{size}×{size}")
    if group in (Cyclic(4), Dihedral(4)):
        matrices = _point_matrices(group)

        def turn(g: Tensor, x: Tensor) -> Tensor:
            centred = 2 * x - (size - 1)
            return ((matrices.to(g.device)[group.index(g)] * centred[..., None, :]).sum(-1) + size - 1) // 2

        return on_points(group, grid, turn, f"R^{size}×{size}")
    if group in (motions(size, Cyclic(4)), motions(size, Dihedral(4))):
        about_centre = pixels(group.complement, size)

        def move(g: Tensor, x: Tensor) -> Tensor:
            shift, h = group.parts(g)
            turned = about_centre.permutation(h.squeeze(-2))
            return (grid.to(g.device)[turned] + shift) % size

        return on_points(group, grid, move, f"R^{size}×{size}")
    allowed = f"Cyclic(4), Dihedral(4), translations({size}) or motions({size}, …)"
    way = "a subgroup acts through Restriction(pixels(…), subgroup, embed), other groups through on_points"
    raise ValueError(f"group must be {allowed}, got {group}; {way}")


def row_shifts(size: int) -> PermutationRepresentation:
    """Return Z_size acting on size × size images by cyclic shifts within the rows (1-D translations).

    >>> image = torch.tensor([[1, 2], [3, 4]]).flatten()
    >>> row_shifts(2).apply(torch.tensor([1]), image).reshape(2, 2)
    tensor([[2, 1],
            [4, 3]])
    """
    group = Cyclic(size)
    grid = torch.cartesian_prod(*[torch.arange(size, device="cpu")] * 2)
    return on_points(group, grid, lambda g, x: (x + torch.cat([0 * g, g], -1)) % size, f"R^{size}×{size}")


def planar(group: FiniteGroup) -> MatrixRepresentation:
    """Return C_n or D_n acting on the plane: generator r turns by 2π/n, s reflects the second coordinate.

    >>> from lib.symmetry.groups import Cyclic
    >>> planar(Cyclic(4)).matrix(torch.tensor([1])).round().int()  # a quarter turn
    tensor([[ 0, -1],
            [ 1,  0]], dtype=torch.int32)
    """

    def matrices(g: Tensor) -> Tensor:
        angle = 2 * torch.pi * g[..., 0].to(torch.float64) / group.n
        cosine, sine = angle.cos(), angle.sin()
        flip = 1.0 - 2.0 * g[..., 1] if isinstance(group, Dihedral) else torch.ones_like(angle)
        return torch.stack([cosine, -flip * sine, sine, flip * cosine], -1).unflatten(-1, (2, 2))

    return MatrixRepresentation(group, 2, matrices, "R^2")


def sign(group: PermutationGroup) -> MatrixRepresentation:
    """Return the sign representation of a group of permutations: the determinant of the permutation matrix."""
    defining_matrices = natural(group).matrix
    return MatrixRepresentation(group, 1, lambda g: torch.linalg.det(defining_matrices(g))[..., None, None], "sgn")


def vectors(group: CompactLieGroup) -> Representation:
    """Return the defining representation of a compact matrix group on R^n or C^n; on R^{2k}, by planes, for a torus."""
    if isinstance(group, Torus):
        return rotations(group, torch.eye(group.k, dtype=torch.int64, device="cpu"))
    return MatrixRepresentation(group, group.n, lambda g: g, f"{'C' if group.dtype.is_complex else 'R'}^{group.n}")


def rotations(group: Torus, weights: Tensor) -> MatrixRepresentation:
    """Return the real representation of a torus that turns plane p by the angle ``weights[p] · angles``.

    Weights are integers, shape ``(planes, k)``, for the torus T^k.
    """
    planes = len(weights)

    def matrices(g: Tensor) -> Tensor:
        angle = g @ weights.to(g).mT
        blocks = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).unflatten(-1, (2, 2))
        out = torch.zeros(*angle.shape[:-1], planes, 2, planes, 2, dtype=g.dtype, device=g.device)
        p = torch.arange(planes, device=g.device)
        out = out.movedim((-4, -2), (0, 1)).index_put((p, p), blocks.movedim(-3, 0)).movedim((0, 1), (-4, -2))
        return out.flatten(-2).flatten(-3, -2)

    return MatrixRepresentation(group, 2 * planes, matrices, f"R^{2 * planes}")


def _point_matrices(group: FiniteGroup) -> Tensor:
    """Return the integer 2 × 2 matrices of C_4 or D_4 on (row, column) coordinates, by element number."""
    turn, flip = torch.tensor([[[0, -1], [1, 0]], [[-1, 0], [0, 1]]], device="cpu")
    powers = torch.stack([torch.linalg.matrix_power(turn.double(), k).long() for k in range(4)])
    return powers if group == Cyclic(4) else torch.stack([powers, powers @ flip], 1).flatten(0, 1)
