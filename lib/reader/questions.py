"""The questions that an audit asks, one after the other.

First come the questions that make the others meaningless: is the model deterministic, does it write into its input, is
the action exact? Then the error in the model's precision and in float64, which tells rounding from structure, and with
other parameters, which tells construction from luck. A tape of every torch call then finds the first step that no
action explains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from lib.reader.causes import cause, mend
from lib.reader.moves import Action, Group, move, words
from lib.reader.tape import EXACT, Step, Tape, compare, culprits, gap

SINGLE = 1e-4  # largest relative error in float32 that counts as rounding


@dataclass(frozen=True)
class Audit:
    """What was found; errors are for the worst element.

    The verdict is ``"equivariant"``, ``"not equivariant"``, ``"only for these parameters"``, ``"up to rounding"``
    (exact in float64, not in the model's precision), or ``"cannot be judged"``.
    """

    verdict: str
    error: float = math.nan  #: ‖model(g·x) − g·model(x)‖ over the spread of the outputs, in the model's precision
    error64: float = math.nan  #: the same in float64
    place: str = ""  #: module where the symmetry is lost first; ``forward`` is the model's own code
    op: str = ""  #: operation there
    word: str = ""  #: the cause in a word, or several, joined by " + "
    text: str = ""  #: what was seen
    mend: str = ""  #: what mends it
    also: tuple[str, ...] = ()  #: further places where it is lost, independently of the first
    elements: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)  #: the error of every element
    layers: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)  #: every recorded tensor

    @property
    def sound(self) -> bool:
        """Whether nothing is to be mended."""
        return self.verdict == "equivariant"

    def summary(self) -> str:
        """Return the report in words."""
        lines = [f"{self.verdict.upper()}: error {self.error:.1e}, in float64 {self.error64:.1e}"]
        if self.place or self.text:
            at = f" at {self.place}" + f" ({self.op})" * bool(self.op) if self.place else ""
            lines.append(f"cause{at}: {self.text}")
        lines += [f"mend: {self.mend}"] * bool(self.mend) + [f"also lost at {', '.join(self.also)}"] * bool(self.also)
        return "\n".join(lines)


def tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return parameters and buffers by their names."""
    return [*model.named_parameters(), *model.named_buffers()]


def _closed(verdict: str, word: str, text: str, step: Step | None = None, place: str = "", **rest: Any) -> Audit:
    where = {"place": place} if step is None else {"place": step.place, "op": step.op}
    return Audit(verdict, word=word, text=text, mend=mend(word), **where | rest)


def _parting(one: Tape, other: Tape, tolerance: float) -> Step:
    """Return the first step at which two tapes part, or the last."""
    pairs = zip(one.steps, other.steps, strict=False)
    parted = (a for a, b in pairs if (gap(a.out, b.out) > tolerance if tolerance else not torch.equal(a.out, b.out)))
    return next(parted, one.steps[-1])


@dataclass
class Questions:
    """A model and what is asked of it, one question after the other."""

    model: Any
    group: Group
    acts: list[Action]
    out: Action
    xs: tuple[Tensor, ...]

    def report(self) -> Audit:
        """Ask them all."""
        first = self._first_call()
        for question in (self._writes, self._random, self._inexact, self._mates):
            if trouble := question(first):
                return trouble
        table = self._errors(self.xs, self.acts, self.out)
        single = max(table)
        if float((first - first[:1]).abs().max()) == 0:
            text = "the output does not depend on the input"
            return _closed("cannot be judged", "nothing to test", text, error=single)
        narrow = Tape(self.model, self.xs)
        wide = self._in_double()
        double = self._errors(wide, self.acts, self.out)
        elements = pd.DataFrame({"element": self.group.names, "error": table, "error in float64": double})
        common = {"error": single, "error64": max(double), "elements": elements}
        if max(double) >= 1e-5:
            if other := self._other_question(wide):
                word, text, place = other
                return _closed("not equivariant", word, text, place=place, **common)
            return self._where("not equivariant", "", wide, common)
        full = Tape(self.model, wide)
        if max(double) <= EXACT:
            self._shake()
            if (shaken := max(self._errors(wide, self.acts, self.out))) > EXACT:
                told = f"with other parameters the error is {shaken:.2g}; "
                return self._where("only for these parameters", told, wide, common)
        if single >= SINGLE:
            step = _parting(narrow, full, 1e-5)
            text = "rounding, the first large one is here (differences of large numbers? autocast?)"
            return _closed("up to rounding", "precision", text, step, **common)
        if max(double) <= EXACT:
            return Audit("equivariant", **common)
        text = "exact only to single precision, also in float64: a basis or a table was computed in float32"
        return _closed("equivariant", "float32 constants", text, **common)

    def _call(self, *xs: Tensor | None) -> Any:
        with torch.no_grad():
            return self.model(*xs)

    def _errors(self, xs: tuple[Tensor, ...], acts: list[Action], out: Action) -> list[float]:
        """Return the error of every element."""
        y, found = self._call(*xs), []
        for g in self.group.elements:
            moved = self._call(*(move(a, g, x) for a, x in zip(acts, xs, strict=True)))
            if (wanted := move(out, g, y)) is None:
                shape = tuple(y.shape)
                raise ValueError(f"the output of shape {shape} cannot be shifted by whole pixels: choose action_out")
            found.append(gap(moved.double(), wanted.double()))
        return found

    def _first_call(self) -> Tensor:
        """Return the output; refuse a model that cannot be audited."""
        self.before = [x.clone() for x in self.xs]
        try:
            y = self._call(*self.xs)
        except Exception as error:  # a reader's own code raises what it likes
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise ValueError(f"the model does not take these inputs ({why}); try it on the CPU first") from None
        if not isinstance(y, Tensor):
            got = type(y).__name__
            raise ValueError(f"the model must return one tensor, got a {got}: audit lambda *x: model(*x)[0]")
        if y.ndim == 0:
            raise ValueError("the model must return an output for each sample, got one number")
        if not bool(y.isfinite().all()):
            raise ValueError("the model's output must be finite on these inputs")
        try:
            if words(self.out)[0] in ("pixels", "shift") and y.ndim < 3:
                raise IndexError("it has no rows and columns")
            move(self.out, self.group.elements[0], y)
        except (RuntimeError, IndexError, AttributeError, TypeError) as error:
            shape = tuple(y.shape)
            raise ValueError(f"action_out {self.out!r} does not act on the output of shape {shape}: {error}") from None
        return y

    def _writes(self, first: Tensor) -> Audit | None:
        if all(torch.equal(x, b) for x, b in zip(self.xs, self.before, strict=True)):
            return None
        for x, b in zip(self.xs, self.before, strict=True):
            x.data.copy_(b)
        return _closed("cannot be judged", "writes its input", "the model changes its input in place", place="forward")

    def _random(self, first: Tensor) -> Audit | None:
        """Compare two runs, and in evaluation mode two more."""
        one, two = Tape(self.model, self.xs), Tape(self.model, self.xs)
        if torch.equal(one.output, two.output):
            return None
        step = _parting(one, two, 0)
        if isinstance(self.model, nn.Module) and self.model.training:
            self.model.eval()
            if torch.equal(self._call(*self.xs), self._call(*self.xs)):
                text = "two calls with one input differ in training mode, and agree after model.eval()"
                return _closed("cannot be judged", "training mode", text, step)
        text = f"two calls with one input differ: {step.op} draws at random"
        return _closed("cannot be judged", "random", text, step)

    def _mates(self, first: Tensor) -> Audit | None:
        """Ask whether a sample's output depends on the batch, in training mode only (batch norm)."""
        modules = isinstance(self.model, nn.Module) and self.model.training
        if not modules or any(len(x) != len(first) for x in self.xs):
            return None

        def alone() -> float:
            half = len(first) // 2
            return gap(self._call(*(x[:half] for x in self.xs)).double(), self._call(*self.xs)[:half].double())

        try:
            in_training = alone()
            self.model.eval()
            depends = in_training > SINGLE > alone()
        except (RuntimeError, ValueError, IndexError):  # half of the samples may be too few
            depends = False
        self.model.train()
        if not depends:
            return None
        norm = next((n for n, m in self.model.named_modules() if "BatchNorm" in type(m).__name__), "")
        text = "in training mode a sample's output depends on the others of its batch: batch norm"
        return _closed("cannot be judged", "training mode", text, place=norm, op="batch_norm")

    def _inexact(self, first: Tensor) -> Audit | None:
        """Ask of a reader's own action whether what it does can be undone by one of the elements."""
        for action, x in zip(self.acts, self.xs, strict=True):
            for g in self.group.elements if callable(action) else ():
                moved = move(action, g, x)
                if moved is None or moved.shape != x.shape:
                    raise ValueError(f"your action must return tensors of the shape {tuple(x.shape)} that it is given")
                back = min(gap(move(action, h, moved), x) for h in self.group.elements)
                if back > SINGLE and abs(float(moved.norm() / x.norm()) - 1) > 1e-3:
                    text = f"no element takes the moved input back, by {back:.2g} (interpolation? an inverse left out?)"
                    return _closed("cannot be judged", "inexact action", text, place="action")
        return None

    def _in_double(self) -> tuple[Tensor, ...]:
        """Cast model and inputs to float64, if the model can."""
        wide = tuple(x.double() if x.is_floating_point() else x for x in self.xs)
        if isinstance(self.model, nn.Module):
            self.model.double()
        torch.set_default_dtype(torch.float64)
        try:
            self._call(*wide)
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise ValueError(f"the model does not run in float64 ({why}): register its tensors as buffers") from None
        return wide

    def _shake(self, size: float = 0.3) -> None:
        """Change all parameters that are trained, and running statistics, at random."""
        if not isinstance(self.model, nn.Module):
            return
        rng, modes = torch.Generator().manual_seed(0), [(m, m.training) for m in self.model.modules()]
        self.model.train()  # filters that are kept for evaluation are built anew
        with torch.no_grad():
            for name, p in tensors(self.model):
                if p.is_floating_point() and (p.requires_grad or "running" in name):
                    noise = size * torch.randn(p.shape, generator=rng, dtype=p.dtype, device="cpu")
                    p += noise.abs() if "var" in name else noise
        self.model.eval()
        for m, training in modes:
            m.training = training

    def _other_question(self, xs: tuple[Tensor, ...]) -> tuple[str, str, str] | None:
        """Return what holds in place of what was asked: another action on the output, or on an input that was still."""
        kind, out = self.group.kind, "output action"
        if kind == "own":
            return None
        others = [kind] if kind in ("pixels", "shift") else [f"{kind} {a}" for a in (-1, -2, 1)]

        def inverse(g: Any, y: Tensor) -> Tensor | None:
            if kind == "pixels":
                return move(self.out, g if g[1] else ((-g[0]) % 4, 0), y)
            back = tuple(-s for s in g) if kind == "shift" else g.mT if kind == "rotate" else g.argsort()
            return move(self.out, back, y)

        tries: list[tuple[str, str, str, list[Action], Action]] = []
        if isinstance(self.out, str) and self.out != "still":
            text = "the output moves by the inverse (a transpose in the test?)"
            tries.append((out, text, "output", self.acts, inverse))
        for o in ["still", *others]:
            tries += [(out, f"the output moves by {o!r}", "output", self.acts, o)] * (o != self.out)
        for k in (k for k, a in enumerate(self.acts) if a == "still"):
            for o in others:
                also = f"it is equivariant if input {k} moves too, by {o!r}"
                tries.append(("input still", also, f"input {k}", [*self.acts[:k], o, *self.acts[k + 1 :]], self.out))
        for *found, acts, action in tries:
            try:
                if max(self._errors(xs, acts, action)) <= EXACT:
                    return tuple(found)
            except (RuntimeError, IndexError, AttributeError, ValueError):  # no such axis
                continue
        return None

    def _where(self, verdict: str, prefix: str, xs: tuple[Tensor, ...], common: dict[str, Any]) -> Audit:
        """Find the first step that is lost, and its cause."""
        action = next(a for a in self.acts if a != "still")
        try:
            tape = compare(self.model, xs, self.group, self.acts)
        except LookupError as error:
            (step,) = error.args
            text = prefix + f"after {step.op} the moved input takes another path through the code"
            return _closed(verdict, "other path", text, step, **common)
        rows = [(s.place, s.op, tuple(s.out.shape), s.fit.error, s.fit.name) for s in tape.steps]
        common["layers"] = pd.DataFrame(rows, columns=["module", "operation", "shape", "error", "moves as"])
        if not (lost := culprits(tape)):
            text = prefix + f"every step fits an action; the output moves as: {tape.steps[tape.last].fit.name}"
            return _closed(verdict, "output action", text, place="output", **common)
        word, text = cause(lost[0], tape, self.group, action)
        also = tuple(dict.fromkeys(f"{s.place} ({s.op})" for s in lost[1:]))
        return _closed(verdict, word, prefix + text, lost[0], also=also, **common)
