"""The checks of user input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lib.checks import (
    check_choice,
    check_float,
    check_instance,
    check_int,
    check_probabilities,
    check_tensor,
    holds,
    seeded,
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)], ids=repr)
def test_integers(value: object) -> None:
    assert check_int("n", value) == 3
    assert type(check_int("n", value)) is int


@pytest.mark.parametrize(
    "value", [3.0, "3", None, True, 3j, math.nan, [3], np.float64(3), torch.tensor(3.0), np.arange(2)], ids=repr
)
def test_no_integers(value: object) -> None:
    with pytest.raises(TypeError, match=r"n must be an integer, got .* of type"):
        check_int("n", value)


def test_seeds(as_user: None) -> None:
    assert torch.equal(torch.rand(3, generator=seeded(4)), torch.rand(3, generator=torch.Generator().manual_seed(4)))
    for wrong, error in ((-1, ValueError), (None, TypeError), (1.0, TypeError)):
        with pytest.raises(error, match="seed must be"):
            seeded(wrong)


def test_ranges_of_integers() -> None:
    assert check_int("n", 0, minimum=0) == 0
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        check_int("n", 0)
    with pytest.raises(ValueError, match="n must be between 2 and 4, got 5"):
        check_int("n", 5, 2, 4)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), torch.tensor(1.0)], ids=repr)
def test_numbers(value: object) -> None:
    assert check_float("a", value) == 1.0


@pytest.mark.parametrize(
    "value", ["1", None, 1j, True, [1.0], torch.ones(3), np.ones(3), np.complex64(1), np.True_], ids=repr
)
def test_no_numbers(value: object) -> None:
    with pytest.raises(TypeError, match="a must be a real number, got"):
        check_float("a", value)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 2.5, -0.1, 10**400], ids=lambda value: repr(value)[:5]
)
def test_ranges_of_numbers(value: float) -> None:
    with pytest.raises(ValueError, match=r"a must be a finite number in \[0.0, 2.0\], got"):
        check_float("a", value, 0.0, 2.0)


def test_choices() -> None:
    assert check_choice("route", "sum", iter(["sum", "orbits"])) == "sum"
    with pytest.raises(ValueError, match=r"route must be one of \['sum', 'orbits'\], got 'both'"):
        check_choice("route", "both", ["sum", "orbits"])


def test_kinds() -> None:
    assert check_instance("rng", 3, (int, float)) == 3
    with pytest.raises(TypeError, match="rng must be a Generator, got 3 of type int"):
        check_instance("rng", 3, torch.Generator)
    with pytest.raises(TypeError, match="sizes must be a tuple or list, got 'abc' of type str"):
        check_instance("sizes", "abc", (tuple, list))


def test_real_tensors() -> None:
    assert check_tensor("x", torch.ones(2), real=True) is not None
    with pytest.raises(TypeError, match=r"x must be real, got torch\.complex64"):
        check_tensor("x", torch.ones(2) + 0j, real=True)


def test_tensors() -> None:
    x = torch.zeros(5, 2, 3)
    for shape in [None, (), (3,), (2, 3), (None, 3), (5, 2, None)]:
        assert check_tensor("x", x, shape) is x
    for shape in [(2,), (3, 3), (1, 5, 2, 3), (None, 2)]:
        with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., .*\), got \(5, 2, 3\)"):
            check_tensor("x", x, shape)
    with pytest.raises(TypeError, match=r"x must be a torch\.Tensor, got ndarray"):
        check_tensor("x", np.zeros(3))


@pytest.mark.parametrize("value", [math.nan, math.inf, complex(0, math.nan)])
def test_finite_tensors(value: complex) -> None:
    with pytest.raises(ValueError, match=r"x must be finite, got NaN or infinite entries in shape \(2,\)"):
        check_tensor("x", torch.tensor([1, value]))


def test_inexact_tensors() -> None:
    assert check_tensor("x", torch.tensor([1])).dtype == torch.int64
    with pytest.raises(TypeError, match=r"x must be of a floating-point or complex dtype, got torch\.int64"):
        check_tensor("x", torch.tensor([1]), inexact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities(dtype: torch.dtype) -> None:
    several = torch.rand(5, 1000, dtype=dtype).softmax(-1)
    p = several[0]
    assert check_probabilities("p", p, 1000) is p
    with pytest.raises(ValueError, match=r"p must have shape \(1000,\), got \(5, 1000\)"):
        check_probabilities("p", several, 1000)
    for wrong, got in ((1.002 * p, r"a sum of 1\.00"), (p - 0.01, "smallest entry of -"), (0 * p, "0")):
        with pytest.raises(ValueError, match=f"p must hold nonnegative probabilities with sum 1, got .*{got}"):
            check_probabilities("p", wrong, 1000)
    with pytest.raises(ValueError, match=r"p must hold nonnegative probabilities .* a sum of 0"):
        check_probabilities("p", p[:0], 0)


def test_conditions() -> None:
    """Values are read where they can be, and taken for granted inside a vectorised map."""
    assert holds(torch.tensor([True, True]))
    assert not holds(torch.tensor([True, False]))
    bad = torch.tensor([[1.0], [math.nan]])
    assert torch.func.vmap(lambda row: check_tensor("x", row))(bad).shape == (2, 1)
    with pytest.raises(RuntimeError, match="meta"):
        holds(torch.ones(2, device="meta"))


def test_half_precision_is_no_probability() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match="p must be of single or double precision"):
            check_probabilities("p", torch.full((4,), 0.25, dtype=dtype), 4)
    with pytest.raises(ValueError, match=r"a sum of 1\.000000002"):
        check_probabilities("p", torch.tensor([0.5, 0.5 + 2e-9], dtype=torch.float64), 2)
