"""The questions that an audit asks, one after the other.

First come those that make the others meaningless: is the model deterministic, does it write into its input, is the
action exact? Then the error in the model's precision and in float64, which tells rounding from structure, and with
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

from lib.reader.causes import Cause, cause
from lib.reader.moves import Action, Group, move, words
from lib.reader.tape import EXACT, Step, Tape, compare, culprits, gap

SINGLE = 1e-4  # largest relative error in float32 that counts as rounding


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes
    ----------
    verdict : str
        ``"equivariant"``, ``"not equivariant"``, ``"only for these parameters"``, ``"up to rounding"`` (exact in
        float64, not in the model's precision), or ``"cannot be judged"``.
    place, op : str
        Module and operation where the symmetry is lost first; ``forward`` is the model's own code.
    word, text, mend : str
        The cause in a word (or several, joined by " + "), what was seen, and what mends it.
    error, error64 : float
        ‖model(g·x) − g·model(x)‖ over the spread of the outputs, for the worst element, in the model's precision and in
        float64.
    also : tuple
        Further places where it is lost, independently of the first.
    """

    verdict: str
    error: float = math.nan
    error64: float = math.nan
    place: str = ""
    op: str = ""
    word: str = ""
    text: str = ""
    mend: str = ""
    also: tuple[str, ...] = ()
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


@dataclass
class Questions:
    """A model and what is asked of it."""

    model: Any
    group: Group
    acts: list[Action]
    out: Action
    xs: tuple[Tensor, ...]

    def report(self) -> Audit:
        """Ask one question after the other."""
        first = self._first_call()
        for question in (self._writes, self._random, self._inexact, self._mates):
            if trouble := question(first):
                return trouble
        table = self._errors(self.xs, self.acts, self.out)
        single = max(table)
        if float((first - first[:1]).abs().max()) == 0:
            text = "the output does not depend on the input"
            return self._closed("cannot be judged", "nothing to test", text, error=single)
        narrow = Tape(self.model, self.xs)
        wide = self._in_double()
        double = self._errors(wide, self.acts, self.out)
        elements = pd.DataFrame({"element": self.group.names, "error": table, "error in float64": double})
        common = {"error": single, "error64": max(double), "elements": elements}
        if EXACT < max(double) < 1e-5:
            if single >= SINGLE:
                return self._rounded(narrow, Tape(self.model, wide), common)
            text = "exact only to single precision, also in float64: a basis or a table was computed in float32"
            return self._closed("equivariant", "float32 constants", text, **common)
        if max(double) <= EXACT:
            full = Tape(self.model, wide)
            self._shake()
            if (shaken := max(self._errors(wide, self.acts, self.out))) <= EXACT:
                return Audit("equivariant", **common) if single < SINGLE else self._rounded(narrow, full, common)
            told = f"with other parameters the error is {shaken:.2g}; "
            return self._where("only for these parameters", told, wide, common)
        if other := self._other_question(wide):
            return self._closed("not equivariant", *other, **common)
        return self._where("not equivariant", "", wide, common)

    def _rounded(self, narrow: Tape, full: Tape, common: dict[str, Any]) -> Audit:
        """Find the first step at which the model's precision and float64 part."""
        pairs = zip(narrow.steps, full.steps, strict=False)
        step = next((a for a, b in pairs if gap(a.out, b.out) > 1e-5), narrow.steps[-1])
        text = "rounding, the first large one is here (differences of large numbers? autocast?)"
        return self._closed("up to rounding", "precision", text, step.place, step.op, **common)

    def _closed(self, verdict: str, word: str, text: str, place: str = "", op: str = "", **rest: Any) -> Audit:
        return Audit(verdict, place=place, op=op, word=word, text=text, mend=Cause(word, "").mend, **rest)

    def _call(self, *xs: Tensor | None) -> Any:
        with torch.no_grad():
            return self.model(*xs)

    def _errors(self, xs: tuple[Tensor, ...], acts: list[Action], out: Action) -> list[float]:
        """Return the error of every element."""
        y, found = self._call(*xs), []
        for g in self.group.elements:
            moved = self._call(*(move(a, g, x) for a, x in zip(acts, xs, strict=True)))
            wanted = move(out, g, y)
            if wanted is None:
                raise ValueError(
                    f"the output of shape {tuple(y.shape)} cannot be shifted by whole pixels: choose action_out"
                )
            found.append(gap(moved.double(), wanted.double()))
        return found

    def _first_call(self) -> Tensor:
        self.before = [x.clone() for x in self.xs]
        try:
            y = self._call(*self.xs)
        except Exception as error:  # a reader's own code raises what it likes
            reason = str(error).splitlines()[0] if str(error) else ""
            raise ValueError(
                f"the model does not take these inputs ({type(error).__name__}: {reason}); try it on the CPU first"
            ) from None
        if not isinstance(y, Tensor):
            raise ValueError(
                f"the model must return one tensor, got a {type(y).__name__}: audit lambda *x: model(*x)[0]"
            )
        if y.ndim == 0:
            raise ValueError("the model must return an output for each sample, got one number")
        if not bool(y.isfinite().all()):
            raise ValueError("the model's output must be finite on these inputs")
        try:
            if words(self.out)[0] in ("pixels", "shift") and y.ndim < 3:
                raise IndexError("it has no rows and columns")
            move(self.out, self.group.elements[0], y)
        except (RuntimeError, IndexError, AttributeError, TypeError) as error:
            raise ValueError(
                f"action_out {self.out!r} does not act on the output of shape {tuple(y.shape)}: {error}"
            ) from None
        return y

    def _writes(self, first: Tensor) -> Audit | None:
        if all(torch.equal(x, b) for x, b in zip(self.xs, self.before, strict=True)):
            return None
        for x, b in zip(self.xs, self.before, strict=True):
            x.data.copy_(b)
        return self._closed("cannot be judged", "writes its input", "the model changes its input in place", "forward")

    def _random(self, first: Tensor) -> Audit | None:
        """Compare two runs, and in evaluation mode two more."""
        one, two = Tape(self.model, self.xs), Tape(self.model, self.xs)
        if torch.equal(one.output, two.output):
            return None
        pairs = zip(one.steps, two.steps, strict=False)
        step = next((a for a, b in pairs if a.out.shape != b.out.shape or not torch.equal(a.out, b.out)), one.steps[-1])
        if isinstance(self.model, nn.Module) and self.model.training:
            self.model.eval()
            if torch.equal(self._call(*self.xs), self._call(*self.xs)):
                text = "two calls with one input differ in training mode, and agree after model.eval()"
                return self._closed("cannot be judged", "training mode", text, step.place, step.op)
        text = f"two calls with one input differ: {step.op} draws at random"
        return self._closed("cannot be judged", "random", text, step.place, step.op)

    def _mates(self, first: Tensor) -> Audit | None:
        """Ask whether a sample's output depends on the batch, in training mode only (batch norm)."""
        if not (isinstance(self.model, nn.Module) and self.model.training) or any(
            len(x) != len(first) for x in self.xs
        ):
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
        return self._closed("cannot be judged", "training mode", text, norm, "batch_norm")

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
                    return self._closed("cannot be judged", "inexact action", text, "action")
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
            raise ValueError(
                f"the model does not run in float64 ({str(error).splitlines()[0]}): register its tensors as buffers"
            ) from None
        return wide

    def _shake(self, size: float = 0.3) -> None:
        """Change all parameters that are trained, and running statistics, at random."""
        if not isinstance(self.model, nn.Module):
            return
        rng, modes = torch.Generator().manual_seed(0), [(m, m.training) for m in self.model.modules()]
        self.model.train()  # filters that are kept for evaluation are built anew
        with torch.no_grad():
            for name, p in [*self.model.named_parameters(), *self.model.named_buffers()]:
                if p.is_floating_point() and (p.requires_grad or "running" in name):
                    noise = size * torch.randn(p.shape, generator=rng, dtype=p.dtype, device="cpu")
                    p += noise.abs() if "var" in name else noise
        self.model.eval()
        for m, training in modes:
            m.training = training

    def _other_question(self, xs: tuple[Tensor, ...]) -> tuple[str, str, str] | None:
        """Return what holds in place of what was asked: another action on the output, or on an input that was still."""
        kind = self.group.kind
        if kind == "own":
            return None
        others = [kind] if kind in ("pixels", "shift") else [f"{kind} {a}" for a in (-1, -2, 1)]

        def inverse(g: Any, y: Tensor) -> Tensor | None:
            if kind == "pixels":
                return move(self.out, g if g[1] else ((-g[0]) % 4, 0), y)
            back = tuple(-s for s in g) if kind == "shift" else g.mT if kind == "rotate" else g.argsort()
            return move(self.out, back, y)

        text, out = "the output moves by ", "output action"
        tries: list[tuple[str, str, str, list[Action], Action]] = []
        if isinstance(self.out, str) and self.out != "still":
            tries.append((out, text + "the inverse (a transpose in the test?)", "output", self.acts, inverse))
        tries += [(out, f"{text}{o!r}", "output", self.acts, o) for o in ["still", *others] if o != self.out]
        for k, a in enumerate(self.acts):
            for o in others if a == "still" else ():
                also = f"it is equivariant if input {k} moves too, by {o!r}"
                tries.append(("input still", also, f"input {k}", [*self.acts[:k], o, *self.acts[k + 1 :]], self.out))
        for word, text, place, acts, action in tries:
            try:
                if max(self._errors(xs, acts, action)) <= EXACT:
                    return word, text, place
            except (RuntimeError, IndexError, AttributeError, ValueError):  # no such axis
                continue
        return None

    def _where(self, verdict: str, prefix: str, xs: tuple[Tensor, ...], common: dict[str, Any]) -> Audit:
        """Find the first step that is lost, and its cause."""
        action = next(a for a in self.acts if a != "still")
        try:
            tape = compare(self.model, xs, self.group, self.acts)
        except LookupError as error:
            step = error.args[1]
            text = prefix + f"after {step.op} the moved input takes another path through the code"
            return self._closed(verdict, "other path", text, step.place, step.op, **common)
        rows = [(s.place, s.op, tuple(s.out.shape), s.fit.error, s.fit.name) for s in tape.steps]
        layers = pd.DataFrame(rows, columns=["module", "operation", "shape", "error", "moves as"])
        lost: list[Step] = culprits(tape)
        if not lost:
            text = prefix + f"every step fits an action; the output moves as: {tape.steps[tape.last].fit.name}"
            return self._closed(verdict, "output action", text, "output", layers=layers, **common)
        why = cause(lost[0], tape, self.group, action)
        also = tuple(dict.fromkeys(f"{s.place} ({s.op})" for s in lost[1:]))
        rest = {"mend": why.mend, "also": also, "layers": layers} | common
        return Audit(verdict, place=lost[0].place, op=lost[0].op, word=why.word, text=prefix + why.text, **rest)
