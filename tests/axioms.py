"""Measured axioms: how far a group, a representation or a map is from what its definition demands.

Every ``check_…`` returns numbers that are zero for a correct object up to rounding; the ``assert_…`` of the same name
compares them with a tolerance and names those that miss it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import seeded
from lib.symmetry.groups import FiniteGroup, Group
from lib.symmetry.lie import CompactLieGroup, Torus
from lib.symmetry.representations import Representation

EXHAUSTIVE_ORDER = 24


def check_group(group: Group, samples: int = 256, seed: int = 0) -> dict[str, float]:
    """Measure the group axioms, on all triples for orders up to 24, else on random ones: the largest distance found."""
    a, b, c = _triples(group, samples, seed)
    e, ab = group.identity(), group.multiply(a, b)
    left, right = group.multiply(group.inverse(a), a), group.multiply(a, group.inverse(a))
    defects = {
        "closure": max(float((~group.contains(k)).double().max()) for k in (a, ab, group.inverse(a), e[None])),
        "associativity": _distance(group, group.multiply(ab, c), group.multiply(a, group.multiply(b, c))),
        "identity": max(_distance(group, group.multiply(e, a), a), _distance(group, group.multiply(a, e), a)),
        "inverse": max(_distance(group, left, e.expand_as(a)), _distance(group, right, e.expand_as(a))),
    }
    if isinstance(group, FiniteGroup):
        number = group.index(a)
        outside = float(((number < 0) | (number >= group.order)).double().max())
        defects["numbering"] = max(outside, _distance(group, group.element(number), a))
    return defects


def check_representation(
    representation: Representation, samples: int = 16, seed: int = 0, dtype: torch.dtype = torch.float64
) -> dict[str, float]:
    """Measure what a representation promises, on random group elements and on vectors of a real dtype.

    ``homomorphism`` max |ρ(g)ρ(h) − ρ(gh)|, ``identity`` |ρ(1) − 1|, ``apply`` and ``character`` against the dense
    matrices, ``dual`` max |⟨ρ*(g)ξ, ρ(g)x⟩ − ⟨ξ, x⟩|; where they apply, ``unitarity``, ``permutation``, and
    ``derivative`` against central differences (itself accurate to about 1e-8).
    """
    V, generator = representation, seeded(seed)
    g, h = V.group.sample(samples, generator), V.group.sample(samples, generator)
    a, unit = V.matrix(g), torch.eye(V.dim)
    x, xi = (torch.randn(samples, V.dim, dtype=_kind(V, dtype), generator=generator) for _ in range(2))
    image = V.apply(g, x.reshape(-1, *V.shape)).reshape(x.shape)
    paired = (V.dual()._apply(g, xi) * image).sum(-1)
    defects = {
        "homomorphism": _size(a @ V.matrix(h) - V.matrix(V.group.multiply(g, h))),
        "identity": _size(V.matrix(V.group.identity()) - unit),
        "apply": _size(image - (a.to(x) @ x[..., None])[..., 0]),
        "character": _size(V.character(g) - torch.diagonal(a, dim1=-2, dim2=-1).sum(-1)),
        "dual": _size(paired - (xi * x).sum(-1)),
    }
    if V.is_unitary:
        defects["unitarity"] = _size(a @ a.mH - unit)
    if V.is_permutation:
        defects["permutation"] = _size(torch.nn.functional.one_hot(V.permutation(g), V.dim).mT - a)
    if isinstance(V.group, CompactLieGroup) and V.group.lie_dimension:
        defects["derivative"] = _derivative_defect(V)
    return defects


def equivariance_error(
    f: Callable[[Tensor], Tensor], source: Representation, target: Representation | None, x: Tensor, g: Tensor
) -> float:
    """Return max |f(ρ(g)x) − τ(g)f(x)| over all given elements and points, relative to the root mean square of f(x).

    The target ``None`` stands for the trivial action, so that invariance is measured.
    """
    g = source.group.unsqueeze(g)
    values, moved = f(x), f(source.apply(g, x))
    expected = values if target is None else target.apply(g, values)
    gap = float((moved - expected).abs().max())
    return gap / float(values.abs().square().mean().sqrt()) if gap else 0.0


def assert_group(group: Group, tolerance: float = 1e-10, samples: int = 256) -> None:
    """Raise ``AssertionError`` if a number of :func:`check_group` exceeds the tolerance."""
    _assert_small(str(group), check_group(group, samples), tolerance)


def assert_representation(
    representation: Representation, tolerance: float = 1e-10, samples: int = 16, seed: int = 0
) -> None:
    """Raise ``AssertionError`` if a number of :func:`check_representation` exceeds the tolerance (derivative: 1e-6)."""
    defects = check_representation(representation, samples, seed)
    _assert_small(str(representation), {"derivative": defects.pop("derivative", 0.0)}, max(tolerance, 1e-6))
    _assert_small(str(representation), defects, tolerance)


def assert_equivariant(
    f: Callable[[Tensor], Tensor],
    source: Representation,
    target: Representation | None,
    x: Tensor,
    g: Tensor,
    tolerance: float = 1e-10,
) -> None:
    """Raise ``AssertionError`` if :func:`equivariance_error` exceeds the tolerance."""
    _assert_small(f"the map from {source}", {"equivariance": equivariance_error(f, source, target, x, g)}, tolerance)


def _assert_small(what: str, defects: dict[str, float], tolerance: float) -> None:
    missed = {name: defect for name, defect in defects.items() if not defect <= tolerance}
    if missed:
        raise AssertionError(f"{what} misses the tolerance {tolerance:.1e} in {missed}")


def _triples(group: Group, samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(group, FiniteGroup) and group.order <= EXHAUSTIVE_ORDER:
        indices = torch.cartesian_prod(*[torch.arange(group.order)] * 3).reshape(-1, 3)
        return tuple(group.element(column) for column in indices.T)
    generator = torch.Generator().manual_seed(seed)
    return tuple(group.sample(samples, generator) for _ in range(3))


def _distance(group: Group, a: Tensor, b: Tensor) -> float:
    if isinstance(group, Torus):
        return _size(2 * torch.sin((a - b) / 2))
    return float((a != b).any()) if group.is_finite else _size(a - b)


def _derivative_defect(V: Representation) -> float:
    x, step = V.group.lie_algebra(), 1e-5
    difference = V.matrix(V.group.exp(step * x)) - V.matrix(V.group.exp(-step * x))
    return _size(V.derivative(x) - difference / (2 * step))


def _kind(V: Representation, dtype: torch.dtype) -> torch.dtype:
    return dtype.to_complex() if V.is_complex else dtype


def _size(x: Tensor) -> float:
    return float(x.abs().max())
