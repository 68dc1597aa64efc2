"""Numbers follow the data: every call of the catalogue at other scales, origins and precisions, and at its edges.

How a result answers to a factor is measured near 1: each leaf of a result is homogeneous of some degree there, or it is
not. Far away, at factors of 1e±150, a homogeneous leaf must answer in the same way to the precision of its type, or the
call is refused by an error of ours. Likewise for a shift, and for points that coincide, samples in another order,
single and half precision, and empty batches.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lib
from tests.calls import CALLS, Call, leaves

HOME = str(Path(lib.__file__).parent)
SHARE = 0.05  # of the entries that may be excepted
EXCEPTIONS = {  # names of entries, with the reason
    "training.gradient_flow_of_a_network": "the limit does not depend on the size of features, a finite time does",
}
# What asks other libraries, or writes into its own arrays: torch says so, in its own words, when slopes are asked for.
SLOPELESS = {
    "training.optimality_conditions": "nonnegative least squares are SciPy's",
    "training.discovered": "descent by hand, in place",
    "training.particle_descent": "descent by hand, in place",
    "training.finite_volume_flow": "the flow is SciPy's",
    "transport.discrete": "linear programs are SciPy's",
    "transport.invariant_potentials": "linear programs are SciPy's",
}
LEAST = 70  # of the calls, 130 of which 95 take numbers
DEGREES = (0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 4, -4, 1.5)
FAR = {torch.float64: 2.0**498, torch.float32: 2.0**66}  # 1e150, 1e20: of the squares float32's leave the range
NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}
FLOATS = (torch.float64, torch.complex128)
every = pytest.mark.parametrize("entry", [e for e in CALLS if e.name not in EXCEPTIONS], ids=lambda entry: entry.name)


@pytest.fixture(autouse=True)
def _warn_always() -> Iterator[None]:
    """Let torch warn the second time too: a warning is an error here."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


class Refused(Exception):
    """The call ended in a clear error of ours."""


def called(entry: Call, inputs: Sequence[Tensor]) -> list[Any]:
    """Return the leaves of a result; raise :class:`Refused` for an error that lib itself raises, others as they are.

    An error in the catalogue's own lines, before lib is reached, says nothing about lib.
    """
    try:
        return leaves(entry.function(*inputs))
    except Exception as error:
        trace, places = error.__traceback__, []
        while trace is not None:
            places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            trace = trace.tb_next
        name, line = places[-1]
        own = name.startswith(HOME) and "raise" in linecache.getline(name, line)
        if own and isinstance(error, (ValueError, TypeError, ArithmeticError)):
            raise Refused(str(error)) from None
        if not any(place.startswith(HOME) for place, _ in places) and "/tests/" in name:
            raise Refused("in the catalogue") from None
        raise


def outcome(entry: Call, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of a result as tensors, without slopes."""
    found = called(entry, inputs)
    return [(leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)).detach() for leaf in found]


def near(got: Tensor, wanted: Tensor, tolerance: float, floor: float = 0.0) -> bool:
    """Whether two leaves agree, up to a share of the largest entry and a floor; infinities have to agree."""
    if got.shape != wanted.shape:
        return False
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return torch.equal(got, wanted.to(got.dtype))
    kind = torch.complex128 if wanted.is_complex() else torch.float64
    got, wanted = got.to(kind), wanted.to(kind)
    finite = wanted.isfinite()
    if not torch.equal(got.isfinite(), finite) or not torch.equal(got[~finite].isnan(), wanted[~finite].isnan()):
        return False
    size = float(wanted[finite].abs().max()) if bool(finite.any()) else 0.0
    return bool(((got - wanted)[finite].abs() <= tolerance * size + floor).all())


def families(entry: Call) -> list[tuple[int, ...]]:
    """Return which inputs are changed together: all that hold numbers, and each of them alone."""
    which = tuple(k for k, t in enumerate(entry.inputs) if t.dtype in FLOATS and k not in entry.kept)
    alone = [(k,) for k in which] if 1 < len(which) <= 3 and not entry.joint else []
    return [which, *alone] if which else []


def degrees(base: list[Tensor], answers: dict[float, list[Tensor]], tolerance: float) -> list[float | None]:
    """Return the degree of every leaf, ``None`` where it is not homogeneous."""
    found: list[float | None] = []
    for place, leaf in enumerate(base):
        fits = (
            k
            for k in DEGREES
            if (k == 0 or leaf.is_floating_point() or leaf.is_complex())
            and all(near(answer[place], leaf * s**k if k else leaf, tolerance) for s, answer in answers.items())
        )
        found.append(next(fits, None))
    return found


def changed(inputs: Sequence[Tensor], family: tuple[int, ...], change: Callable[[Tensor], Tensor]) -> list[Tensor]:
    return [change(t) if k in family else t for k, t in enumerate(inputs)]


def follows(entry: Call, kind: torch.dtype, family: tuple[int, ...], tolerance: float) -> list[str]:
    """Return what does not answer at factors near the end of a type's range as it does, in double precision, near 1.

    Degrees are measured in double precision: in single, a weight that hardly moves looks as if it never moved.
    """
    narrow = {} if kind == torch.float64 else NARROW
    inputs = [t.to(narrow.get(t.dtype, t.dtype)) for t in entry.inputs]
    far = FAR[kind] ** (1 / entry.powers)
    base = outcome(entry, inputs)
    try:
        answers = {s: outcome(entry, changed(entry.inputs, family, lambda t, s=s: s * t)) for s in (2.0, 0.25)}
    except Refused:  # what has a scale of its own, as the matrices of a group: test_most_calls_can_be_scaled counts
        return []
    found = degrees(outcome(entry, entry.inputs), answers, 1e-7)
    wrong = []
    for s in (far, 1 / far):
        try:
            got = outcome(entry, changed(inputs, family, lambda t, s=s: s * t))
        except Refused:
            continue
        for place, k in enumerate(found):
            leaf = base[place]
            if k is None:
                if (leaf.is_floating_point() or leaf.is_complex()) and bool(
                    got[place].isnan().any() & ~leaf.isnan().any()
                ):
                    wrong.append(f"{place} at {s:.0e}: NaN")
            elif not k or abs(k * math.log(s)) < 0.95 * math.log(torch.finfo(leaf.dtype).max):
                if not near(got[place], leaf * s**k if k else leaf, tolerance):
                    wrong.append(f"{place} at {s:.0e}, degree {k}")
            elif bool(got[place].isnan().any()):
                wrong.append(f"{place} at {s:.0e}: NaN")
    return wrong


@every
def test_scale(entry: Call) -> None:
    assert not [(f, w) for f in families(entry) if (w := follows(entry, torch.float64, f, 1e-7))]


@every
def test_scale_in_single_precision(entry: Call) -> None:
    assert not [(f, w) for f in families(entry)[:1] if (w := follows(entry, torch.float32, f, 1e-3))]


@every
def test_shift(entry: Call) -> None:
    """What a shift by 1 and by 4 leaves alone, one by 2^20 leaves alone."""
    for family in families(entry):
        try:
            base = outcome(entry, entry.inputs)
            answers = {s: outcome(entry, changed(entry.inputs, family, lambda t, s=s: t + s)) for s in (1.0, 4.0)}
            got = outcome(entry, changed(entry.inputs, family, lambda t: t + 2.0**20))
        except Refused:
            continue
        still = [all(near(a[place], leaf, 1e-9) for a in answers.values()) for place, leaf in enumerate(base)]
        assert [p for p, leaf in enumerate(base) if still[p] and not near(got[p], leaf, 1e-6)] == [], family


@pytest.mark.parametrize("entry", [e for e in CALLS if e.samples], ids=lambda entry: entry.name)
def test_order(entry: Call) -> None:
    base = outcome(entry, entry.inputs)
    for k in entry.samples:
        got = outcome(entry, changed(entry.inputs, (k,), lambda t: t.flip(-2)))
        assert all(near(a, b, 1e-9) for a, b in zip(got, base, strict=True))


@every
def test_precision(entry: Call) -> None:
    """Single precision agrees with double, and half precision too where it is taken."""
    base = outcome(entry, entry.inputs)
    for kind, tolerance in ((torch.float32, 1e-3), (torch.float16, 0.1)):
        try:
            got = outcome(
                entry,
                [t.to(kind) if t.dtype == torch.float64 else t.to(NARROW.get(t.dtype, t.dtype)) for t in entry.inputs],
            )
        except Refused:
            assert kind == torch.float16
            continue
        finite = [t[t.isfinite()] for t in base if t.is_floating_point()]
        sizes = [float(t.abs().max()) for t in finite if t.numel()]
        floor = tolerance * max(sizes, default=0.0) / 100  # of what is zero but for rounding
        if not entry.draws:
            assert [p for p, (a, b) in enumerate(zip(got, base, strict=True)) if not near(a, b, tolerance, floor)] == []


def coincident(t: Tensor) -> list[Tensor]:
    """Return a tensor of samples with one of them twice, with all of them alike, and with nothing but zeros."""
    axis = -2 if t.ndim > 1 else -1
    index = torch.arange(t.shape[axis]) if t.ndim else None
    if index is None or len(index) < 2:
        return [t, t, torch.zeros_like(t)]
    return [t.index_select(axis, index.where(index != 1, 0)), t.index_select(axis, 0 * index), torch.zeros_like(t)]


@every
def test_points_that_coincide(entry: Call) -> None:
    """No NaN at points that coincide or vanish, and no slope that is NaN or infinite."""
    usual = [leaf.is_floating_point() and bool(leaf.isnan().any()) for leaf in outcome(entry, entry.inputs)]
    for family in families(entry):
        for which in range(3):
            inputs = changed(entry.inputs, family, lambda t, which=which: coincident(t)[which])
            try:
                got = outcome(entry, inputs)
            except Refused:
                continue
            assert not [
                p for p, a in enumerate(got) if a.is_floating_point() and bool(a.isnan().any()) and not usual[p]
            ]
            if entry.name not in SLOPELESS:
                assert all(bool(slope.isfinite().all()) for slope in slopes(entry, inputs, family))


def slopes(entry: Call, inputs: Sequence[Tensor], family: tuple[int, ...]) -> list[Tensor]:
    """Return the slopes of all leaves that have some; none where lib refuses inputs that ask for slopes."""
    raised = changed(inputs, family, lambda t: t.clone().requires_grad_(True))
    try:
        found = called(entry, raised)
    except Refused:
        return []
    asked, pulled = [raised[k] for k in family], []
    for leaf in (leaf for leaf in found if isinstance(leaf, Tensor) and leaf.grad_fn is not None):
        if leaf.is_floating_point():
            value = leaf[leaf.isfinite()].sum()
            pulled += torch.autograd.grad(value, asked, retain_graph=True, allow_unused=True)
    return [slope for slope in pulled if slope is not None]


def test_slopes_are_there() -> None:
    """The test above asks most of the calls for slopes, and the ones it leaves out have none to give."""
    with_slopes = 0
    for entry in (entry for entry in CALLS if entry.name not in EXCEPTIONS and families(entry)):
        if entry.name in SLOPELESS:
            with pytest.raises((RuntimeError, UserWarning), match=r"grad|differentiation"):
                slopes(entry, entry.inputs, families(entry)[0])
        else:
            with_slopes += bool(slopes(entry, entry.inputs, families(entry)[0]))
    assert with_slopes >= 60
    assert len(SLOPELESS) <= SHARE * len(CALLS)


@every
def test_empty_batches(entry: Call) -> None:
    """No run, no sample: inputs that share their first axis lose it together."""
    for size in {t.shape[0] for t in entry.inputs if t.ndim > 1}:
        try:
            outcome(entry, [t[:0] if t.ndim and t.shape[0] == size else t for t in entry.inputs])
        except Refused:
            continue


def test_most_calls_can_be_scaled() -> None:
    """The tests of scales say nothing of calls that refuse twice their inputs; these are the fewer ones."""
    scaled = 0
    for entry in CALLS:
        for family in families(entry):
            try:
                outcome(entry, changed(entry.inputs, family, lambda t: 2 * t))
            except Refused:
                continue
            scaled += 1
            break
    assert scaled >= LEAST


def test_exceptions_are_few() -> None:
    assert set(EXCEPTIONS) <= {entry.name for entry in CALLS}
    assert len(EXCEPTIONS) <= SHARE * len(CALLS)
