"""Calls of lib.symmetry."""

from __future__ import annotations

import torch

from lib.checks import seeded
from lib.symmetry import (
    actions,
    derived,
    fourier,
    generated,
    groups,
    haar,
    irreps,
    lie,
    own_groups,
)
from lib.symmetry import representations as reps
from lib.symmetry.group_convolution import GroupConvolution
from tests.calls import call, law, normal, numbers

D4, C6, S4, A4, Q8 = (
    groups.Dihedral(4),
    groups.Cyclic(6),
    groups.Symmetric(4),
    groups.Alternating(4),
    groups.Quaternion(8),
)
F21 = generated.frobenius(7, 3)
ON_PLANE = generated.quaternions_on_plane()
SO3, O2, U2, T2 = lie.SpecialOrthogonal(3), lie.Orthogonal(2), lie.Unitary(2), lie.Torus(2)
PLANE, PIXELS = actions.planar(D4), actions.pixels(D4, 4)
FINITE = {
    "cyclic": C6,
    "dihedral": D4,
    "symmetric": S4,
    "alternating": A4,
    "quaternion": Q8,
    "frobenius": F21,
    "on_plane": ON_PLANE,
    "motions": actions.motions(2),
    "generated": generated.GeneratedGroup(torch.tensor([[1, 2, 3, 0], [1, 0, 2, 3]]), "generated S4"),
}


def _group_law(group):
    def operations(a, b):
        product = group.multiply(a, b)
        out = [product, group.inverse(a), group.contains(product), group.check("ab", product), group.unsqueeze(a, 2)]
        return [*out, group.index(product), group.element(group.index(product))] if group.is_finite else out

    return operations


for _name, _group in FINITE.items():
    _operations = _group_law(_group)
    _operations.__name__, _operations.__module__ = f"operations_{_name}", __name__
    call(*(_group.sample(5, seeded(k)) for k in range(2)))(_operations)
for _group in (SO3, O2, U2, T2):
    _operations = _group_law(_group)
    _operations.__name__, _operations.__module__ = f"operations_{_group}", __name__
    call(*(_group.sample(5, seeded(k)) for k in range(2)))(_operations)


@call(0.1 * SO3.lie_algebra(), 5 * T2.lie_algebra())
def exponentials(x, angles):
    return SO3.exp(x), T2.exp(angles)


@call(torch.tensor([[1, 2, 3, 0], [1, 0, 2, 3]]))
def generated_group(permutations):
    group = generated.GeneratedGroup(permutations, "S4 again")
    return group.elements().to(permutations.device), group.multiply(permutations[0], permutations[1])


SPINOR = reps.MatrixRepresentation(
    groups.Cyclic(4),
    1,
    lambda g: torch.polar(torch.ones_like(g[..., None].double()), torch.pi / 2 * g[..., None].double()),
    "χ",
)
REPRESENTATIONS = {
    "plane": PLANE,
    "pixels": PIXELS,
    "rows": actions.row_shifts(3),
    "shifts": actions.pixels(actions.translations(3), 3),
    "motions": actions.pixels(actions.motions(2), 2),
    "regular": actions.regular(D4),
    "natural": actions.natural(S4),
    "sign": actions.sign(S4),
    "trivial": actions.trivial(D4, 2),
    "complex": SPINOR,
    "sum": PLANE + PIXELS,
    "product": PLANE * PLANE,
    "maps": derived.Hom(PLANE, PIXELS),
    "dual": PLANE.dual() * PIXELS.dual(),
    "restriction": derived.Restriction(PLANE, groups.Cyclic(4), lambda h: torch.cat([h, torch.zeros_like(h)], -1)),
    "vectors": actions.vectors(SO3),
    "unitary": actions.vectors(U2),
    "torus": actions.rotations(T2, torch.tensor([[1, 0], [1, -2]])),
    "lie_maps": derived.Hom(actions.vectors(O2), actions.vectors(O2)),
}


def _action(V):
    def apply(g, x):
        moved = V.apply(g, x)
        return [moved, V.check_vectors("x", x), *([V.permutation(g)] if V.is_permutation else [])]

    return apply


def _matrices(V):
    def matrices(g):
        return V.matrix(g), V.character(g)

    return matrices


for _name, _V in REPRESENTATIONS.items():
    _apply, _dense = _action(_V), _matrices(_V)
    _apply.__name__, _dense.__name__ = f"apply_{_name}", f"matrices_{_name}"
    _apply.__module__ = _dense.__module__ = __name__
    _g = _V.group.sample(3, seeded(0))
    call(_g, normal(3, *_V.shape, dtype=torch.complex128 if _V.is_complex else torch.float64))(_apply)
    call(_g, double="elements of finite groups are integers, and matrices are made in double precision")(_dense)


@call(SO3.lie_algebra(), plain="forward derivatives crash on tensors that are no plain ones")
def derivative(x):
    V = actions.vectors(SO3)
    return (V * V).derivative(x), (V + V).derivative(x), V.dual().derivative(x)


@call(torch.cartesian_prod(torch.arange(3), torch.arange(3)), torch.tensor([[1, 0], [2, 2]]))
def action_on_points(points, shifts):
    V = actions.on_points(actions.translations(3), points, lambda g, x: (x + g) % 3, "shifts")
    return V.permutation(shifts)


@call(torch.tensor([[1, 0], [1, -2]]), normal(3, 2))
def torus_weights(weights, angles):
    return actions.rotations(T2, weights).matrix(angles)


FOURIER = {group: fourier.GroupFourier(group) for group in (C6, D4, F21, Q8)}


@call(normal(2, 6), normal(2, 8), normal(2, 21), powers=2)
def fourier_transform(*functions):
    out = []
    for f in functions:
        transform = FOURIER[{6: C6, 8: D4, 21: F21}[f.shape[-1]]]
        blocks = transform.forward(f)
        out += [*blocks, transform.inverse(blocks), transform.convolve(f, f)]
        out += [fourier.spectrum(blocks), fourier.schatten_norm(blocks, 1.0), fourier.fourier_rank(blocks)]
        out.append(fourier.effective_rank(blocks))
    return out


@call(normal(8), normal(3, 8), powers=2)
def pieces(f, x):
    squares, costs, inner = fourier.singular_pieces(FOURIER[D4], f, x)
    return squares.sum(), costs, inner.sum(-1)


OVER, CYCLIC = GroupConvolution(D4), GroupConvolution(C6)


@call(normal(2, 8), normal(8), normal(3, 6), normal(6), powers=2)
def convolution(h, w, f, v):
    return OVER(h, w), OVER.reflect(h), OVER.correlate(h, w), CYCLIC(f, v)


TABLE = D4.cayley_table()


@call(TABLE, normal(8, dtype=torch.complex128))
def eigenspaces(table, c):
    return [V @ V.mH for V in irreps.eigenspaces(table.reshape(8, 8), c)]


@call(TABLE, double="a table of integers says nothing about precision")
def regular_decomposed(table):
    return [rho.diagonal(dim1=-2, dim2=-1).sum(-1) for rho in irreps.decompose_regular(table.reshape(8, 8), seeded(0))]


IRREDUCIBLES = irreps.Irreducibles(D4)


@call(D4.elements(), torch.arange(4), double="elements are integers, and matrices are made in double precision")
def irreducible_matrices(g, k):
    V = IRREDUCIBLES.representation(2, 0)
    return IRREDUCIBLES.matrices(g), IRREDUCIBLES.characters(k, k), V.matrix(g)


ROUTES = {
    "sum": haar.HaarSum(PLANE * PLANE),
    "orbits": haar.OrbitMean(PIXELS * PIXELS),
    "composition": haar.Composition(PLANE * PLANE),
    "nullspace": haar.NullSpace(PLANE * PLANE),
}


@call(*(normal(2, *P.representation.shape) for P in ROUTES.values()))
def projections(*vectors):
    return [P(x) for P, x in zip(ROUTES.values(), vectors, strict=True)]


@call(normal(3, 256))
def orbit_coordinates(x):
    P = ROUTES["orbits"]
    return P.coordinates(x), P.embed(P.coordinates(x))


@call(D4.elements(), law(8), normal(3, 4))
def weighted_sum(elements, weights, x):
    return haar.HaarSum(PLANE * PLANE, elements, weights)(x)


@call(numbers(2, 2, 3))
def numbered(index):
    return C6.element(index), S4.index(S4.element(index))


@call(D4.cayley_table(), torch.tensor([[1, 2, 0, 4, 3]]), numbers(8, 5, 1), numbers(8, 5, 1))
def own_groups_of_integers(table, permutations, a, b):
    group, turned = own_groups.from_table(table, "D4 by its table"), own_groups.from_permutations(permutations, "C6")
    out = [group.multiply(a, b), group.inverse(a), group.element(group.index(a)), group.contains(a)]
    return out, turned.multiply(permutations[0], permutations[0])


@call(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]).double(), double="matrices must be in double precision")
def own_group_of_matrices(matrices):
    V = own_groups.from_generators(matrices.double(), "quarter turns")
    return V.matrix(V.group.elements().to(matrices.device))


@call(groups.Cyclic(4).elements())
def permutations_of_others(g):
    rows, pixels = actions.row_shifts(4), actions.pixels(D4, 2)
    turned = derived.Restriction(pixels, groups.Cyclic(4), lambda h: torch.cat([h, 0 * h], -1))
    return (rows * rows).permutation(g), turned.permutation(g)
