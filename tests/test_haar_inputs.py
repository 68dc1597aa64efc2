"""What the Haar projections refuse: every message names the argument, what came and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable

import jaxtyping
import pytest
import torch

from lib.symmetry.actions import natural, planar, vectors
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import (
    HaarSum,
    OrbitMean,
    projection,
)
from lib.symmetry.lie import SpecialOrthogonal, Torus
from tests.catalogue import phase, shear

PLANE, SPACE, NODES = planar(Dihedral(4)), vectors(SpecialOrthogonal(3)), natural(Symmetric(4))
D4 = Dihedral(4).elements()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: projection("foo"), TypeError, "representation must be a Representation, got 'foo' of type str"),
        (lambda: projection(PLANE, "fast"), ValueError, r"route must be one of \['auto', 'sum', .*\], got 'fast'"),
        (lambda: projection(shear(Cyclic(2))), ValueError, "representation must be unitary .*shear is not"),
        (lambda: Hom(NODES, PLANE), ValueError, r"source and target must be .* got \['S4', 'D4'\]"),
        (lambda: projection(SPACE, "sum"), TypeError, r"elements must be given, SO\(3\) is not finite"),
        (lambda: HaarSum(PLANE, torch.tensor([[4, 0]])), ValueError, "elements must hold elements of D4"),
        (lambda: HaarSum(SPACE, torch.ones(2, 3, 3)), ValueError, r"elements must hold elements of SO\(3\)"),
        (lambda: HaarSum(PLANE, D4[:1], torch.ones(2)), ValueError, r"weights must have shape \(..., 1\)"),
        (lambda: HaarSum(PLANE, D4[:2], torch.tensor([1.5, -0.5])), ValueError, "weights must hold .* entry of -0.5"),
    ],
)
@pytest.mark.usefixtures("as_user")
def test_constructions(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


PROJECTIONS = [projection(PLANE, route) for route in ("sum", "composition", "nullspace")]


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([1.0, 2.0], TypeError, "x must be a torch.Tensor, got list"),
        (torch.ones(3), ValueError, r"x must have shape \(..., 2\), got \(3,\)"),
        (torch.tensor(1.0), ValueError, r"x must have shape \(..., 2\), got \(\)"),
        (torch.zeros(0), ValueError, r"x must have shape \(..., 2\), got \(0,\)"),
        (torch.tensor([1, 2]), TypeError, "x must be of a floating-point or complex dtype, got torch.int64"),
        (torch.tensor([True, False]), TypeError, "x must be of a floating-point or complex dtype, got torch.bool"),
        (torch.tensor([1.0, math.nan]), ValueError, "x must be finite"),
        (torch.tensor([math.inf, 0.0]), ValueError, "x must be finite"),
    ],
)
@pytest.mark.parametrize("P", PROJECTIONS, ids=lambda P: type(P).__name__)
@pytest.mark.usefixtures("as_user")
def test_arguments(P: Callable, x: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        P(x)


@pytest.mark.usefixtures("as_user")
def test_other_arguments() -> None:
    with pytest.raises(TypeError, match=r"x must be complex for the complex representation χ1, got torch\.float32"):
        projection(phase(Cyclic(6), 1))(torch.ones(1))
    P = OrbitMean(Hom(NODES, NODES))
    with pytest.raises(ValueError, match=r"x must have shape \(..., 4, 4\), got \(16,\)"):
        P(torch.ones(16))


def test_real_maps_accept_complex_vectors() -> None:
    x = torch.tensor([1.0 + 1j, 2.0])
    assert all(torch.allclose(P(x), torch.zeros(2, dtype=x.dtype), atol=1e-7) for P in PROJECTIONS)


def test_signatures_are_checked_in_tests() -> None:
    """Without the fixture ``as_user`` the import hook of conftest.py is at work."""
    with pytest.raises(jaxtyping.TypeCheckError):
        Torus("1")
