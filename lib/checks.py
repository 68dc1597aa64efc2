"""Checks of user input: every message names the argument, what came, and what is allowed.

All checks raise before any work is done; ``TypeError`` for the wrong kind of object, ``ValueError`` for a wrong value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


def check_int(name: str, value: Any, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as ``int`` if it is an integer in ``[minimum, maximum]``, of NumPy too, but no Boolean."""
    try:
        number = operator.index(None if isinstance(value, bool) else value)
    except TypeError:  # no integer, or several
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None
    if number < minimum or (maximum is not None and number > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number


def seeded(seed: int) -> torch.Generator:
    """Return a random source on the CPU with this seed, an integer of at least 0."""
    return torch.Generator().manual_seed(check_int("seed", seed, minimum=0))


def generator_of(*numbers: int) -> torch.Generator:
    """Return a generator that depends on these nonnegative integers only.

    It differs for two lists of one length of integers below 2³²; zeros at the end do not count, as in NumPy's seeds.
    """
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)


def check_float(name: str, value: Any, minimum: float = -math.inf, maximum: float = math.inf) -> float:
    """Return ``value`` as ``float`` if it is a finite real number in ``[minimum, maximum]``."""
    try:
        number = float(None if isinstance(value, (bool, str, np.bool_, np.complexfloating)) else value)
    except OverflowError:  # a longer integer
        number = math.inf
    except (TypeError, ValueError, RuntimeError):  # no real number, or several
        raise TypeError(f"{name} must be a real number, got {value!r} of type {type(value).__name__}") from None
    if not math.isfinite(number) or not minimum <= number <= maximum:
        raise ValueError(f"{name} must be a finite number in [{minimum}, {maximum}], got {number}")
    return number


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return ``value`` if it is one of ``choices``; raise ``ValueError`` with the list otherwise."""
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    return value


def check_instance(name: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    """Return ``value`` if it is of ``kind``, or of one of several; raise ``TypeError`` otherwise."""
    if not isinstance(value, kind):
        wanted = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise TypeError(f"{name} must be a {wanted}, got {value!r} of type {type(value).__name__}")
    return value


def holds(condition: torch.Tensor) -> bool:
    """Return whether all entries are true; taken for granted under ``torch.func.vmap``, where values cannot be read."""
    try:
        return bool(condition.all())
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        return True


def unit_of(x: torch.Tensor, dim: int | tuple[int, ...] | None = None) -> torch.Tensor:
    """Return the power of two below the largest absolute value along some axes, which are kept; 1 where all is zero.

    Dividing by it rounds nothing, and powers of what is left stay within the range of the dtype.

    >>> unit_of(torch.tensor([[3.0, -5.0], [0.0, 0.0]]), -1)
    tensor([[4.],
            [1.]])
    """
    axes = tuple(range(x.ndim)) if dim is None else dim
    sizes = x.detach().abs()
    largest = sizes.amax(axes, keepdim=True) if x.numel() else sizes.sum(axes, keepdim=True)
    unit = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)
    return torch.where(largest > 0, unit, 1)


def check_probabilities(name: str, value: Any, count: int) -> torch.Tensor:
    """Return ``value`` if it is a probability vector of length ``count``: nonnegative, of sum one up to rounding.

    Rounding is 1e-9, in single precision 4e-6: a vector may be normalised in its own dtype.
    """
    if check_tensor(name, value, (count,), inexact=True, real=True).ndim != 1:
        raise ValueError(f"{name} must have shape ({count},), got {tuple(value.shape)}")
    total, rounding = value.double().sum(), max(1e-9, 32 * torch.finfo(value.dtype).eps)
    if not holds(value >= 0) or not holds((total - 1).abs() <= rounding):
        got = f"a smallest entry of {min(value.tolist(), default=0):.3g} and a sum of {float(total):.12g}"
        raise ValueError(f"{name} must hold nonnegative probabilities with sum 1, got {got}")
    return value


def check_tensor(
    name: str, value: Any, shape: tuple[int | None, ...] | None = None, inexact: bool = False, real: bool = False
) -> torch.Tensor:
    """Return ``value`` if it is a finite tensor whose *last* axes have the sizes in ``shape``, ``None`` for any size.

    With ``inexact`` anything but single and double precision is refused: integers, booleans, and half precision, in
    which neither linear algebra nor sums keep enough digits; with ``real`` complex numbers are.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    tail = value.shape[value.ndim - len(shape or ()) :]
    if shape is not None and (len(shape) > value.ndim or any(s not in (None, t) for s, t in zip(shape, tail))):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name} must have shape (..., {wanted}), got {tuple(value.shape)}")
    if real and value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")
    if not (number := value.is_floating_point() or value.is_complex()) and inexact:
        raise TypeError(f"{name} must be of a floating-point or complex dtype, got {value.dtype}")
    if inexact and torch.finfo(value.dtype).bits < 32:
        raise TypeError(f"{name} must be of single or double precision, got {value.dtype}")
    if number and not holds(torch.isfinite(value)):
        raise ValueError(f"{name} must be finite, got NaN or infinite entries in shape {tuple(value.shape)}")
    return value
