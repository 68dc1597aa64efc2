"""Whatever a function makes, it makes on the device and in the precision of its inputs: every public one is called."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.calls import CALLS, Call, leaves
from tests.standin import PLACE, away, elsewhere, home

ROOMS = (
    "symmetry",
    "transport",
    "reader",
    "images",
    "augmentation",
    "ensembles",
    "implicit_bias",
    "gans",
    "mean_field",
)
SHARE = 0.1  # of the functions or calls that may be excepted
# Names of functions that are not called, with the reason.
EXCEPTIONS = dict.fromkeys(
    [f"lib.symmetry.representations.Representation.{name}" for name in ("matrix", "permutation")],
    "every kind of representation has its own",
)
every = pytest.mark.parametrize("entry", CALLS, ids=lambda entry: entry.name)
ABSENT = pytest.param(None, marks=pytest.mark.skip(reason="this machine has no CUDA device"), id="no CUDA")


def run(entry: Call, *inputs: Tensor) -> list[Any]:
    return leaves(entry.function(*inputs))


@cache
def plainly(name: str) -> list[Any]:
    """Return what a call gives on the CPU."""
    return next(run(entry, *entry.inputs) for entry in CALLS if entry.name == name)


def assert_same(got: list[Any], expected: list[Any], tolerance: float = 0.0, single: float | None = None) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        a, b = (t.detach().cpu() if isinstance(t, Tensor) else torch.tensor(t) for t in (a, b))
        allowed = single if single is not None and b.dtype in (torch.float32, torch.complex64) else tolerance
        torch.testing.assert_close(a, b, rtol=allowed, atol=allowed, equal_nan=True)


def public_functions() -> Iterator[tuple[str, FunctionType]]:
    """Yield the public functions and methods of the rooms that have a tensor among their parameters."""
    for room in ROOMS:
        for found in pkgutil.iter_modules(importlib.import_module(f"lib.{room}").__path__, f"lib.{room}."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if name.startswith("_") or getattr(value, "__module__", None) != found.name:
                    continue
                members = vars(value).items() if inspect.isclass(value) else [("", value)]
                for part, member in members:
                    function = inspect.unwrap(getattr(member, "__func__", member))
                    named = not part.startswith("_") or part in ("__init__", "__call__")
                    named &= part != "__init__" or not is_dataclass(value)
                    abstract = getattr(member, "__isabstractmethod__", False)
                    if isinstance(function, FunctionType) and named and not abstract and takes_tensors(function):
                        yield f"{found.name}.{name}.{part}".rstrip("."), function


def takes_tensors(function: FunctionType) -> bool:
    """Whether a parameter is a tensor, or holds some; a function of tensors does not count."""
    kinds = (re.sub(r"Callable\[.*\]", "", str(v)) for n, v in function.__annotations__.items() if n != "return")
    return any(name in kind for kind in kinds for name in ("Tensor", "Members"))


def called_codes() -> set[CodeType]:
    """Return the code of everything that the catalogue calls."""
    codes: set[CodeType] = set()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    try:
        for entry in CALLS:
            run(entry, *entry.inputs)
    finally:
        sys.setprofile(None)
    return codes


def test_every_public_function_that_takes_tensors_is_called() -> None:
    functions, called = dict(public_functions()), called_codes()
    missing = {name for name, function in functions.items() if function.__code__ not in called}
    assert not missing - set(EXCEPTIONS), f"enter calls in tests/calls for {sorted(missing - set(EXCEPTIONS))}"
    assert set(EXCEPTIONS) <= missing, f"no longer exceptions: {sorted(set(EXCEPTIONS) - missing)}"
    assert len(EXCEPTIONS) <= SHARE * len(functions)


def test_few_calls_are_kept_from_the_stand_in() -> None:
    assert sum(bool(entry.plain) for entry in CALLS) <= SHARE * len(CALLS)
    assert len({entry.name for entry in CALLS}) == len(CALLS)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.cat([x, torch.zeros(2)]),
        lambda x: torch.zeros(3)[x > 0],
        lambda x: x * torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x.numpy(),
        lambda x: x + torch.arange(3).to(torch.float64),
        lambda x: torch.randn(3, generator=torch.Generator(), device=x.device),
        lambda x: x.long()[None, :] @ x.long()[:, None],
        lambda x: torch.einsum("ij,jk->ik", x.long()[None, :], x.long()[:, None]),
    ],
)
def test_the_stand_in_is_as_strict_as_a_device(mistake: Callable[[Tensor], Tensor]) -> None:
    with elsewhere(), pytest.raises((RuntimeError, TypeError), match=r"mixes devices|generator|numpy|integer"):
        mistake(away(torch.full((3,), 2.0, device="cpu")))


def test_the_stand_in_computes() -> None:
    values = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    with elsewhere():
        x = away(values).requires_grad_(True)
        y = torch.linalg.inv(x) @ torch.eye(2, dtype=x.dtype, device=x.device) + x.new_tensor([1.0, 2.0])
        y.sum().backward()
        assert y.device == x.grad.device == PLACE
        assert float(y[0, 1].detach()) == y.detach().cpu().numpy()[0, 1] == y.tolist()[0][1]
    leaf = values.clone().requires_grad_(True)
    torch.linalg.inv(leaf).sum().backward()
    torch.testing.assert_close(home(x.grad), leaf.grad)


@pytest.mark.parametrize("mistake", [lambda x: x + torch.ones(3), lambda x: torch.eye(3) @ x])
def test_a_missing_device_collides(mistake: Callable[[Tensor], Tensor]) -> None:
    with torch.device("meta"), pytest.raises(RuntimeError, match="device"):
        mistake(torch.ones(3, device="cpu"))


@every
def test_nothing_is_made_without_a_device(entry: Call) -> None:
    expected = plainly(entry.name)
    with torch.device("meta"):
        got = run(entry, *entry.inputs)
    assert_same(got, expected)


@every
def test_nothing_is_left_behind_on_the_cpu(entry: Call) -> None:
    if entry.plain:
        pytest.skip(entry.plain)
    expected = plainly(entry.name)
    with elsewhere():
        got = run(entry, *map(away, entry.inputs))
        left = [tuple(t.shape) for t in got if isinstance(t, Tensor) and t.ndim and t.device != PLACE]
    assert entry.cpu or not left, f"results of shapes {left} are on the CPU"
    assert_same([home(t) for t in got], expected, 1e-12)


@every
def test_single_precision_stays_single(entry: Call) -> None:
    narrow = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    got = run(entry, *(t.to(narrow.get(t.dtype, t.dtype)) for t in entry.inputs))
    wide = [tuple(t.shape) for t in got if isinstance(t, Tensor) and t.dtype in narrow]
    assert entry.double or not wide, f"results of shapes {wide} are in double precision"


@pytest.mark.parametrize(
    "entry", CALLS if torch.cuda.is_available() else [ABSENT], ids=lambda entry: getattr(entry, "name", "")
)
def test_cuda_agrees_with_the_cpu(entry: Call) -> None:
    expected = plainly(entry.name)
    got = run(entry, *(t.cuda() for t in entry.inputs))
    assert entry.cpu or all(t.is_cuda for t in got if isinstance(t, Tensor))
    assert_same(got, expected, 1e-6, single=1e-3)
