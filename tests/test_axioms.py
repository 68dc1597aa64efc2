"""The testers tested: a broken group, representation or map must be caught by the number that measures it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lib.symmetry.actions import natural, planar, vectors
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup, Group, Symmetric
from lib.symmetry.lie import SpecialOrthogonal
from lib.symmetry.representations import Representation
from tests.axioms import (
    assert_equivariant,
    assert_group,
    assert_representation,
    check_group,
    check_representation,
    equivariance_error,
)


class Subtraction(Cyclic):
    """Residues under subtraction: not associative, zero is neutral on the right only."""

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return (a - b) % self.n


class Unreduced(Cyclic):
    """Residues that are never reduced modulo n: not closed."""

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class NoInverse(Symmetric):
    """Permutations whose inverse is claimed to be themselves."""

    def inverse(self, a: Tensor) -> Tensor:
        return a


class BadNumbers(Dihedral):
    """A numbering that is off by one."""

    def index(self, a: Tensor) -> Tensor:
        return (super().index(a) + 1) % self.order


class Drifting(SpecialOrthogonal):
    """Rotations whose product is stretched by one part in 10⁵."""

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return (1 + 1e-5) * a @ b


@pytest.mark.parametrize(
    ("group", "caught"),
    [
        (Subtraction(5), {"associativity", "identity", "inverse"}),
        (Subtraction(50), {"associativity", "identity", "inverse"}),
        (Unreduced(7), {"closure", "inverse"}),
        (NoInverse(4), {"inverse"}),
        (NoInverse(9), {"inverse"}),
        (BadNumbers(5), {"numbering", "closure"}),
        (Drifting(3), {"closure", "identity", "inverse"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_groups(group: Group, caught: set[str]) -> None:
    defects = check_group(group)
    assert {name for name, defect in defects.items() if defect > 1e-6} == caught
    with pytest.raises(AssertionError, match=rf"misses the tolerance 1\.0e-10 in .*'{min(caught)}'"):
        assert_group(group)
    if isinstance(group, FiniteGroup):
        assert set(defects.values()) <= {0.0, 1.0}


def break_method(V: Representation, method: str, factor: float) -> Representation:
    """Return V with one method's result multiplied, as a slip of the pen would."""
    correct = getattr(V, method)
    setattr(V, method, lambda *arguments: correct(*arguments) * factor)
    return V


@pytest.mark.parametrize(
    ("method", "caught"),
    [
        ("matrix", {"homomorphism", "identity", "apply", "character", "unitarity", "derivative"}),
        ("_apply", {"apply", "dual"}),
        ("character", {"character"}),
        ("derivative", {"derivative"}),
    ],
)
def test_broken_representations(method: str, caught: set[str]) -> None:
    V = break_method(vectors(SpecialOrthogonal(3)) * vectors(SpecialOrthogonal(3)), method, 1.001)
    defects = check_representation(V)
    assert {name for name, defect in defects.items() if defect > 1e-6} == caught
    with pytest.raises(AssertionError, match="misses the tolerance"):
        assert_representation(V)


def test_broken_permutations() -> None:
    V = natural(Symmetric(4))
    images = V._images
    V._images = lambda g: images(g).flip(-1)
    assert check_representation(V)["homomorphism"] == 1.0


def test_measured_equivariance() -> None:
    V = planar(Cyclic(8))
    g, x = V.group.elements(), torch.randn(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert equivariance_error(lambda y: y * y.square().sum(-1, keepdim=True), V, V, x, g) < 1e-14
    assert equivariance_error(lambda y: y + 1e-3, V, V, x, g) == pytest.approx(2e-3, rel=0.5)
    assert_equivariant(lambda y: y.square().sum(-1), V, None, x, g)
    assert_equivariant(torch.zeros_like, V, V, x, g)
    with pytest.raises(AssertionError, match=r"the map from R\^2 .* misses the tolerance .*'equivariance'"):
        assert_equivariant(torch.tanh, V, V, x, g)
