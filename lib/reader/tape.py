"""What a model computes on its way, and what a group does to each of these tensors.

A tape records every call of a torch function, also in functional code of ``forward``. For a tensor and the one that the
moved input leads to, the actions that could explain the second from the first are tried in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from lib.reader.moves import Group, move

EXACT = 1e-8  # largest error in float64 that counts as none, relative to the spread of what is compared
_CHANNELS = 1024  # of which the order is sought
_ROWS = 512  # of the Gram matrix


class Fit(NamedTuple):
    """The action that explains a tensor best: its name, error, and for each element the order of channels, if any."""

    name: str = "none"
    error: float = math.inf
    orders: tuple[Tensor, ...] = ()


@dataclass
class Step:
    """One recorded tensor: what made it, where, from what."""

    op: str
    place: str  #: path of the innermost module, ``forward`` for the model's own code
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Tensor  #: float64, of finite numbers
    parents: list[int]  #: numbers of the recorded tensors among the arguments
    loose: list[tuple[int, ...]]  #: shapes of those that are not recorded: parameters
    fit: Fit = field(default_factory=Fit)

    @property
    def lost(self) -> bool:
        """Whether no action explains what this tensor becomes."""
        return self.fit.error > EXACT


class Tape(TorchFunctionMode):
    """Every call of a torch function; of code that cannot be seen (TorchScript) the outputs of modules."""

    def __init__(self, model: Callable, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.others: list[Tape] = []  #: those of the moved inputs, see :func:`compare`
        self._numbers: dict[int, int] = {}
        self._kept: list[Tensor] = []  # or an id would be used twice
        self._path = [""]
        for k, x in enumerate(inputs):
            self._note(f"input {k}", (), {}, x)
        hooks = []
        for name, module in model.named_modules() if isinstance(model, nn.Module) else ():
            hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self._path.append(name)))
            hooks.append(module.register_forward_hook(self._leave))
        try:
            with torch.no_grad(), self:
                self.output = model(*inputs)
        finally:
            for hook in hooks:
                hook.remove()
        self.last = self._numbers.get(id(self.output), len(self.steps) - 1)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out, name = func(*args, **kwargs), getattr(func, "__name__", str(func))
        if "empty" not in name:  # whatever lies in memory
            self._note(name.strip("_"), args, kwargs, args[0] if name == "__setitem__" else out)
        return out

    def _leave(self, module: nn.Module, args: Any, out: Any) -> None:
        for o in tree_leaves(out):
            if isinstance(o, Tensor) and id(o) not in self._numbers:
                self._note("module", args, {}, o)
        self._path.pop()

    def _note(self, op: str, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        parents = [self._numbers[id(t)] for t in given if id(t) in self._numbers]
        loose = [tuple(t.shape) for t in given if id(t) not in self._numbers and t.ndim]
        for o in tree_leaves(out):
            if not isinstance(o, Tensor) or not o.ndim or torch._C._functorch.is_functorch_wrapped_tensor(o):
                continue
            seen = torch.view_as_real(o) if o.is_complex() else o
            seen = seen.detach().to(torch.float64, copy=True).nan_to_num(0.0, 1e9, -1e9)  # masks hold −∞
            self._numbers[id(o)] = len(self.steps)
            self._kept.append(o)
            self.steps.append(Step(op, self._path[-1] or "forward", args, kwargs, seen, parents, loose))


def gap(a: Tensor, b: Tensor) -> float:
    """Return ‖a − b‖ over the spread of b about its mean over the samples (or over ‖b‖, where all are alike)."""
    if a.shape != b.shape:
        return math.inf
    spread = (b - b.mean(0, True)).norm() if b.ndim > 1 and len(b) > 1 else b.norm()
    found = float((a - b).norm() / spread.clamp(min=1e-9 * float(b.norm()) + 1e-30))
    return found if found == found else math.inf


def explain(group: Group, action: Any, old: Tensor, new: list[Tensor]) -> Fit:
    """Return the one action that explains all moved tensors, one for each element, best.

    Channels may change places, in an order of their own for every element: so regular fields move, whatever their
    layout. They may also be mixed by an orthogonal matrix, which is so if and only if all inner products agree.
    """
    best = Fit()
    for found in _fits(group, action, old, new):
        best = min(best, found, key=lambda fit: fit.error)
        if best.error <= EXACT:
            break
    return best


def _fits(group: Group, action: Any, old: Tensor, new: list[Tensor]) -> Iterator[Fit]:
    known = []
    for name, axis, images in _candidates(group, action, old):
        if all(m is not None and m.shape == n.shape for m, n in zip(images, new, strict=True)):
            known.append((name, axis, images))
            yield Fit(name, max(map(gap, new, images)))
    for attempt in (_ordered, _mixed):
        for name, axis, images in known:
            if group.kind != "own" and old.ndim > 1 and 1 < old.shape[axis] <= _CHANNELS:
                yield attempt(name, axis, images, new)


def _candidates(group: Group, action: Any, x: Tensor) -> Iterator[tuple[str, int, list[Tensor | None]]]:
    """Yield names of actions, the axis of channels, and the tensor moved by every element."""
    kind, channel = group.kind, min(1, x.ndim - 1)

    def every(act: Any, y: Tensor = x) -> list[Tensor | None]:
        return [move(act, g, y) for g in group.elements]

    if kind == "own":
        yield "still", -1, every("still")
        try:
            yield "as the input", channel, every(action)
        except Exception:  # the reader's function does not act on such a tensor
            return
    elif kind in ("pixels", "shift"):
        yield "still", channel, every("still")
        if x.ndim > 2:
            yield kind, channel, every(kind)
        for first in (0, 1) if x.ndim == 3 else ():  # tokens (n, T, c), perhaps with one in front
            side = math.isqrt(max(x.shape[1] - first, 0))
            if side > 1 and side * side == x.shape[1] - first:
                moved = every(kind, x[:, first:].mT.unflatten(-1, (side, side)))
                joined = [m if m is None else torch.cat([x[:, :first], m.flatten(-2).mT], 1) for m in moved]
                yield "tokens", -1, joined
    else:
        yield "still", -1, every("still")
        axes = [a for a in range(x.ndim) if x.shape[a] == group.size]
        for a in axes:
            yield f"{kind} {a}", -1 if a != x.ndim - 1 else 0, every(f"{kind} {a}")
        if len(axes) > 1:
            yield f"{kind} {axes[-2]} {axes[-1]}", 0, every(f"{kind} {axes[-2]} {axes[-1]}")
        if kind == "rotate" and x.ndim > 1 and x.shape[-1] % group.size == 0 and x.shape[-1] > group.size:
            for name, shape, axis in (("c×d", (-1, group.size), -1), ("d×c", (group.size, -1), -2)):
                moved = every(f"rotate {axis}", x.unflatten(-1, shape))
                yield f"rotate, {name}", 0, [m.flatten(-2) for m in moved]


def _ordered(name: str, axis: int, images: list[Tensor], new: list[Tensor]) -> Fit:
    """Fit with the channels of each image in the order that brings them nearest."""
    orders, errors = [], []
    for image, n in zip(images, new, strict=True):
        rows = [t.movedim(axis, 0).flatten(1) for t in (n, image)]
        order = torch.from_numpy(linear_sum_assignment(torch.cdist(*rows).cpu().numpy())[1]).to(image.device)
        orders.append(order)
        errors.append(gap(n, image.index_select(axis, order)))
    return Fit(f"{name}, channels change places", max(errors), tuple(orders))


def _mixed(name: str, axis: int, images: list[Tensor], new: list[Tensor]) -> Fit:
    """Fit with the channels mixed by an orthogonal matrix; only with many more places than channels."""
    errors = []
    for image, n in zip(images, new, strict=True):
        rows = [t.movedim(axis, -1).flatten(0, -2) for t in (n, image)]
        count, c = rows[0].shape
        if count < 2 * c + 2 or 2 * c + 2 > _ROWS:
            return Fit()
        some = torch.linspace(0, count - 1, min(count, _ROWS), device="cpu").long()
        a, b = (r[some.to(r.device)] @ r[some.to(r.device)].mT for r in rows)
        errors.append(float((a - b).norm() / b.norm().clamp(min=1e-30)))
    return Fit(f"{name}, channels are mixed", max(errors))


def compare(model: Callable, inputs: tuple[Tensor, ...], group: Group, actions: list[Any]) -> Tape:
    """Return the tape of the inputs, each step with the fit of what the moved inputs lead to.

    A ``LookupError`` names the first step at which the moved input takes another path.
    """
    tape, action = Tape(model, inputs), next(a for a in actions if a != "still")
    for g in group.elements:
        other = Tape(model, tuple(move(a, g, x) for a, x in zip(actions, inputs, strict=True)))
        tape.others.append(other)
        same = [a.op == b.op and a.out.shape == b.out.shape for a, b in zip(tape.steps, other.steps, strict=False)]
        if not all(same):
            raise LookupError(tape.steps[max(0, same.index(False) - 1)])
        if len(tape.steps) != len(other.steps):
            raise LookupError(tape.steps[-1])
    for k, step in enumerate(tape.steps):
        inside = _inside(step) if group.kind == "shift" else ...
        step.fit = explain(group, action, step.out[inside], [other.steps[k].out[inside] for other in tape.others])
    return tape


def _inside(step: Step) -> Any:
    """Return where a circular pad shows its input: what it adds is a copy, and grids of other sizes do not shift."""
    named = dict(zip(("input", "pad", "mode"), step.args, strict=False)) | step.kwargs
    if step.op != "pad" or named.get("mode") != "circular":
        return ...
    left, right, above, below = named["pad"]
    return ..., slice(above, step.out.shape[-2] - below), slice(left, step.out.shape[-1] - right)


def culprits(tape: Tape) -> list[Step]:
    """Return the lost steps that feed the output through lost steps only and whose own inputs were in order."""
    seen, todo = set(), [tape.last]
    while todo:
        if (k := todo.pop()) not in seen and tape.steps[k].lost:
            seen.add(k)
            todo += tape.steps[k].parents
    return [tape.steps[k] for k in sorted(seen) if not any(tape.steps[p].lost for p in tape.steps[k].parents)]
