"""A small call of every public function of the rooms that takes tensors, for the tests of where things are computed.

An entry is a function of tensors; what it calls on the way is covered too, which :mod:`tests.test_devices` measures.
Objects that take no tensors (groups, representations, settings) are made once, outside the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

_GENERATOR = torch.Generator().manual_seed(0)


@dataclass(frozen=True)
class Call:
    """One entry.

    ``double``, ``cpu`` and ``plain`` hold reasons: why results are of double precision for single inputs, why they lie
    on the CPU wherever the inputs are, and why the stand-in for a second device cannot follow.

    ``powers`` is the highest power of the inputs in a result, as of the layers of a network; ``joint`` says that the
    inputs are data of one unit, which makes sense of them together only; ``kept`` are inputs that are settings;
    ``draws`` says that random numbers are drawn in the precision of the inputs, and
    ``samples`` are inputs ``(..., n, d)`` whose order means nothing to any result.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    double: str = ""
    cpu: str = ""
    plain: str = ""
    powers: int = 1
    joint: bool = False
    kept: tuple[int, ...] = ()
    draws: bool = False
    samples: tuple[int, ...] = ()


CALLS: list[Call] = []


def call(*inputs: Tensor, **how: Any) -> Callable[[Callable], Callable]:
    """Enter a function into the catalogue, with the tensors that it is called with, and the fields of :class:`Call`."""

    def enter(function: Callable) -> Callable:
        room = function.__module__.rpartition(".")[2]
        CALLS.append(Call(f"{room}.{function.__name__}", function, inputs, **how))
        return function

    return enter


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return Gaussian numbers, the same in every session."""
    return torch.randn(shape, dtype=dtype, generator=_GENERATOR)


def law(*shape: int) -> Tensor:
    """Return probability vectors along the last axis."""
    return normal(*shape).softmax(-1)


def numbers(high: int, *shape: int) -> Tensor:
    """Return integers from 0 to ``high − 1``."""
    return torch.randint(high, shape, generator=_GENERATOR)


def leaves(value: Any) -> list[Any]:
    """Return tensors and numbers of a result in order: of sequences, dictionaries, data classes and modules too."""
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    if is_dataclass(value):
        return leaves([getattr(value, field.name) for field in fields(value)])
    if isinstance(value, dict):
        return leaves(list(value.values()))
    if isinstance(value, Iterable) and not isinstance(value, (Tensor, str)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, (Tensor, int, float)) else []


from tests.calls import gans, images, reader, symmetry, training, transport  # noqa: E402, F401
