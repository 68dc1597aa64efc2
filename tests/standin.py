"""A stand-in for a second device on machines that have none: tensors that say they are elsewhere, and still compute.

Such a tensor says that it lies on the device ``meta`` and keeps its values on the CPU. Operations between it and a
plain tensor raise, as between CUDA and the CPU, with the same exceptions: numbers (tensors without axes), indices, and
copies from one place to the other. PyTorch's fake tensors would do the same without values; but with gradients they
abort the process where PyTorch was built without CUDA, and whatever reads a value (checks, solvers, loops) stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device("meta")
_COPIES = ("aten::_to_copy", "aten::copy_")
_LAZY = {
    "aten::_conj": lambda x: torch.conj_physical(torch.as_tensor(x)),  # a number is no tensor
    "aten::_neg_view": torch.neg,
}
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::dot")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class Elsewhere(Tensor):
    """A tensor that says it lies on ``PLACE``."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> Elsewhere:
        form = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device=PLACE)
        return Tensor._make_subclass(cls, form)

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.values})"

    def tolist(self) -> list:
        return self.values.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _run(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    """Lets ``_run`` see every operation, also one without a tensor among its arguments."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _run(func, args, kwargs or {})


class _Literals(TorchFunctionMode):
    """Makes tensors of lists and numbers where it is asked to: these are no operations for a dispatch mode."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.unravel_index:  # calls torch.tensor where this mode cannot see it
            found = func(home(args[0]), *args[1:], **kwargs)
            return tuple(map(away, found)) if isinstance(args[0], Elsewhere) else found
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[1], tuple):
            index = tuple(torch.tensor(part) if isinstance(part, list) else part for part in args[1])
            args = (args[0], index, *args[2:])
        if func is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            kwargs = {"dtype": args[0].dtype, "device": PLACE} | kwargs
            func, args = torch.tensor, args[1:]
        asked = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and asked is not None and torch.device(asked) == PLACE:
            return func(*args, **kwargs | {"device": "cpu"}).to(PLACE)
        return func(*args, **kwargs)


@contextmanager
def elsewhere() -> Iterator[None]:
    """While this is active, what is made on ``PLACE`` has values."""
    fused = mock.patch("torch.optim.optimizer._get_fused_kernels_supported_devices", return_value=[PLACE.type])
    with fused, _Literals(), _Operations():
        yield


def away(value: Any) -> Any:
    """Return a tensor as one that lies elsewhere; other values as they are."""
    return Elsewhere(value) if isinstance(value, Tensor) and not isinstance(value, Elsewhere) else value


def home(value: Any) -> Any:
    """Return the values of a tensor that lies elsewhere."""
    return value.values if isinstance(value, Elsewhere) else value


def _run(func: Any, args: tuple, kwargs: dict) -> Any:
    name, asked = func._schema.name, kwargs.get("device")
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    there = [t for t in tensors if isinstance(t, Elsewhere)]
    if any(t.device == PLACE and not isinstance(t, Elsewhere) for t in tensors):
        raise RuntimeError(f"{name} got a tensor without values, made outside `elsewhere`")
    if there and name not in _COPIES:
        here = [t for t in tensors if not isinstance(t, Elsewhere) and t.ndim]
        if name in _INDEXED and isinstance(args[0], Elsewhere):
            here = [t for t in here if t.is_floating_point()]
        if here:
            raise RuntimeError(f"{name} mixes devices: {tuple(here[0].shape)} is on the CPU, the rest elsewhere")
    if there and name in _PRODUCTS and not any(t.is_floating_point() or t.is_complex() for t in tensors):
        raise NotImplementedError(f"{name} of integers: CUDA has no products of integer matrices")
    generator = kwargs.get("generator")
    if generator is not None and asked is not None and torch.device(asked) != generator.device:
        raise RuntimeError(f"{name}: the generator is on {generator.device}, the numbers are asked for on {asked}")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    func = _LAZY.get(name, func)  # marks of a lazy conjugate or negative are not seen from here
    out = func(*tree_map(home, args), **tree_map(home, kwargs))
    if name.endswith("_"):
        if isinstance(out, Tensor) and out.shape != args[0].shape:  # it changed the form, not the values
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)
        return args[0] if isinstance(out, Tensor) else out
    if name == "aten::_to_copy" or not there:
        moves = bool(there) if asked is None else torch.device(asked) == PLACE
    else:
        moves = True
    return tree_map(away, out) if moves else out
