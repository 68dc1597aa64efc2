"""Gradient descent on the nominal, the equivariant and the augmented risk, for many runs at once.

The augmented risk of a sampling law ν on the group is R^ν(A) = ∫ E ℓ(Φ_A(gx), gy) dν(g), with ν = Haar measure in
Nordenfors, Ohlsson, Flinth 2023, eq. (5). Gradients are those of the whole data set, accumulated over parts of any
size. Augmentation is either exact (the integral over ν) or sampled as there: in every epoch, several passes over the
data, one element of ν for every mini-batch and pass, independently for every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lib.augmentation.networks import Network
from lib.augmentation.sampling_laws import Law
from lib.checks import check_tensor
from lib.progress import progress


@dataclass(frozen=True)
class Task:
    """A network and the data that it is fitted to."""

    network: Network  #: the architecture
    inputs: Tensor  #: shape ``(samples, channels, dim V)``
    targets: Tensor  #: labels ``(samples,)``, or masks in [0, 1], ``(samples, channels, dim W)``
    batch: int  #: samples that share one group element in sampled augmentation; divides the number of samples

    def __post_init__(self) -> None:
        count = len(check_tensor("inputs", self.inputs, inexact=True, real=True))
        if not count or count % self.batch:
            raise ValueError(f"batch must divide the number of samples {count} ≥ 1, got {self.batch}")
        if self.network.architecture.loss != "classes" and bool(((self.targets < 0) | (self.targets > 1)).any()):
            raise ValueError(f"targets must lie in [0, 1], got {self.targets.min()} to {self.targets.max()}")

    @property
    def batches(self) -> int:
        """Number of mini-batches."""
        return len(self.inputs) // self.batch

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Task:
        """Return the task with inputs of another type, on another device."""
        return replace(self, inputs=self.inputs.to(device, dtype), targets=self.targets.to(device))


@dataclass(frozen=True)
class Strategy:
    """How a gradient is formed."""

    kind: str  #: ``"nominal"``, ``"equivariant"`` (every gradient is projected onto E) or ``"augmented"``
    law: Law | None = None  #: the sampling law ν of ``"augmented"``
    passes: int | None = None  #: per epoch, with freshly drawn elements; ``None`` integrates over ν exactly


NOMINAL, EQUIVARIANT = Strategy("nominal"), Strategy("equivariant")


def augmented(law: Law, passes: int | None = None) -> Strategy:
    """Return augmentation by ν: sampled in so many passes per epoch, or exact."""
    return Strategy("augmented", law, passes)


View = tuple[Tensor, Tensor, Tensor]  # inputs, targets, weights (runs or 1, samples): the risk is Σ weight · loss


def views(task: Task, strategy: Strategy, generators: Sequence[torch.Generator], part: int) -> Iterator[View]:
    """Yield inputs, targets and weights of one epoch, about ``part`` samples per run at a time; first axis: runs.

    One generator per run: what a run sees does not depend on the other runs. Where ν has no more elements than there
    are passes, a batch is used once per *element* and weighted by how often it was drawn, which gives the same
    gradient.
    """
    count = len(task.inputs)
    if strategy.law is None:
        yield from _parts(task.inputs[None], task.targets[None], task.inputs.new_full((1, count), 1 / count), part)
    elif strategy.passes is None:
        elements, weights = strategy.law.listed()
        shares = weights.to(task.inputs)[None, :, None].expand(1, -1, count) / count
        yield from _weighted(task, elements, shares, part)
    elif strategy.law.support is not None and strategy.law.support <= strategy.passes:
        yield from _counted(task, strategy, generators, part)
    else:
        yield from _drawn(task, strategy, generators, part)


def transformed(task: Task, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return ρ_X(g) x and ρ_Y(g) y for all data and elements g ``(m, *element_shape)``; m is the first axis of both."""
    spaces = task.network.architecture.spaces
    inverse = spaces[0].representation.group.inverse(g)
    source = spaces[0].representation.permutation(inverse).to(task.inputs.device)
    x = task.inputs[..., source].movedim(-2, 0)
    if task.targets.ndim == 1:
        return x, task.targets.expand(len(g), -1)
    return x, task.targets[..., spaces[-1].representation.permutation(inverse).to(source.device)].movedim(-2, 0)


def _parts(x: Tensor, y: Tensor, weights: Tensor, part: int) -> Iterator[View]:
    yield from zip(x.split(part, 1), y.split(part, 1), weights.split(part, 1), strict=True)


def _weighted(task: Task, elements: Tensor, shares: Tensor, part: int) -> Iterator[View]:
    """Yield the data under every element, with weights ``shares`` of shape ``(runs or 1, elements, samples)``."""
    step = max(1, part // len(task.inputs))
    for first in range(0, len(elements), step):
        take = slice(first, first + step)
        x, y = transformed(task, elements[take])
        yield from _parts(x.flatten(0, 1)[None], y.flatten(0, 1)[None], shares[:, take].flatten(1), part)


def _counted(task: Task, strategy: Strategy, generators: Sequence[torch.Generator], part: int) -> Iterator[View]:
    elements, weights = strategy.law.listed()
    draws = [
        torch.multinomial(weights.to(g.device).expand(task.batches, -1), strategy.passes, True, generator=g)
        for g in generators
    ]
    counts = torch.nn.functional.one_hot(torch.stack(draws), len(elements)).sum(2)
    share = counts.to(task.inputs) / (strategy.passes * len(task.inputs))
    kept = counts.sum((0, 1)) > 0
    shares = share.repeat_interleave(task.batch, 1).transpose(1, 2)[:, kept]
    yield from _weighted(task, elements[kept], shares, part)


def _drawn(task: Task, strategy: Strategy, generators: Sequence[torch.Generator], part: int) -> Iterator[View]:
    law, (count, _channels, _dim) = strategy.law, task.inputs.shape
    total = strategy.passes * task.batches
    g = torch.stack([law.group.inverse(law.sample(total, generator)) for generator in generators])
    spaces = task.network.architecture.spaces
    source = spaces[0].representation.permutation(g).to(task.inputs.device)
    masks = task.targets.ndim > 1
    out_source = spaces[-1].representation.permutation(g).to(task.inputs.device) if masks else source
    step = max(1, part // task.batch)
    weights = task.inputs.new_full((1, step * task.batch), 1 / (strategy.passes * count))
    for first in range(0, total, step):
        take = torch.arange(first, min(first + step, total), device=source.device)
        where = (take % task.batches)[:, None] * task.batch + torch.arange(task.batch, device=source.device)
        x = _gather(task.inputs[where], source[:, take])
        y = _gather(task.targets[where], out_source[:, take]) if masks else task.targets[where].flatten()[None]
        yield x, y, weights[:, : x.shape[1]]


def _gather(values: Tensor, source: Tensor) -> Tensor:
    """Return values ``(k, batch, c, dim)`` read at ``source`` ``(runs, k, dim)``, shape ``(runs, k·batch, c, dim)``."""
    shape = (len(source), *values.shape)
    index = source[:, :, None, None].expand(shape)
    return torch.gather(values.expand(shape), -1, index).flatten(1, 2)


def run_generators(runs: Sequence[int], seed: int) -> list[torch.Generator]:
    """Return one generator per run number; the streams depend on seed and run number only."""
    return [torch.Generator().manual_seed(7_000_003 * seed + run) for run in runs]


def gradient(task: Task, parameters: Sequence[Tensor], pieces: Iterable[View]) -> tuple[Tensor, list[Tensor]]:
    """Return the risk of every run, shape ``(runs,)``, and its gradient in the parameters, accumulated over the views.

    ``parameters`` are dense layers, or reduced coordinates: then the gradient is that of θ ↦ R(A(θ)), orbit sums of ∇R.
    """
    leaves = [p.detach().contiguous().requires_grad_(True) for p in parameters]
    risk = leaves[0].new_zeros(len(leaves[0]))
    for x, y, weights in pieces:
        losses = (task.network.losses(leaves, x, y) * weights).sum(1)
        losses.sum().backward()
        risk += losses.detach()
    return risk, [leaf.grad for leaf in leaves]


def forecast(
    task: Task, start: Sequence[Tensor], law: Law, batches: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the gradients at the start say of the drift: bias, noise, and the slope of nominal drift, per run.

    To first order in the step h, T steps of P passes with elements from ν and K mini-batches b have the mean square
    drift (h T slope)² (bias² + noise²/(P T)), with slope = ‖(1 − Π)∇R‖, bias = ‖(Π_ν − Π)∇R‖ / slope and
    noise² = Σ_b (‖(1 − Π)∇R_b‖² − ‖(Π_ν − Π)∇R_b‖²) / (K slope)². The bias of Haar measure is 0. The noise can be
    estimated from so many evenly spaced mini-batches instead of all.
    """
    network = task.network
    maps = network.embed(start)
    whole = gradient(task, maps, views(task, NOMINAL, [], 512))[1]
    count = task.batches if batches is None else min(batches, task.batches)
    squares = 0.0
    for b in torch.linspace(0, task.batches - 1, count, device="cpu").long().tolist():
        part = slice(b * task.batch, (b + 1) * task.batch)
        batch = Task(network, task.inputs[part], task.targets[part], 1)
        piece = gradient(task, maps, views(batch, NOMINAL, [], 512))[1]
        squares = squares + network.off(piece).square().sum(1) - _biased(network, law, piece).square()
    slope, noise = network.off(whole).norm(dim=1), (squares / count / task.batches).clamp(min=0).sqrt()
    if not bool((slope > 0).all()):
        raise ArithmeticError("the gradient of a run has no part outside of E: there is no drift to forecast")
    return (_biased(network, law, whole) / slope).double(), (noise / slope).double(), slope.double()


def _biased(network: Network, law: Law, grads: Sequence[Tensor]) -> Tensor:
    """Return ‖(Π_ν − Π) ∇‖ per run for a gradient given as dense layers."""
    if law.name == "Haar":
        return grads[0].new_zeros(len(grads[0]))
    moved = []
    for layer, g in zip(network.layers, grads, strict=True):
        blocks = law.average(layer.mean.representation, g.transpose(2, 3))
        moved.append(layer.off(blocks.transpose(2, 3).contiguous()))
    return torch.stack(moved).norm(dim=0)


class History(NamedTuple):
    """What was recorded of every layer after every step: shape ``(epochs + 1, runs, layers)``, float64, on the CPU."""

    moved: Tensor  #: ‖A_i − A_i⁰‖
    off: Tensor  #: ‖(A_i)_{E^⊥}‖

    @property
    def distance(self) -> Tensor:
        """‖A − A⁰‖ over all layers, shape ``(epochs + 1, runs)``."""
        return self.moved.norm(dim=-1)

    @property
    def drift(self) -> Tensor:
        """‖A_{E^⊥}‖ over all layers, shape ``(epochs + 1, runs)``."""
        return self.off.norm(dim=-1)


def train(
    task: Task,
    start: Sequence[Tensor],
    strategy: Strategy,
    epochs: int,
    rate: float,
    seed: int = 0,
    first_run: int = 0,
    runs_at_once: int | None = None,
    part: int = 512,
) -> History:
    """Take full-batch gradient steps from a start in E and record the distances after each.

    What is stored of a run is its displacement A − A⁰ (and A⁰ ∈ E in reduced coordinates), so that small distances
    are not lost in rounding A itself, in float32 too.

    The start, reduced coordinates of A⁰ as from ``Network.start``, fixes dtype and device. Each run, numbered from
    ``first_run`` on, draws from a stream of its own. The result does not depend, beyond rounding, on how many runs are
    trained together (by default as many as keep the working set near 64 MiB), nor on the part of the samples per run
    that goes through the network at once.
    """
    if not (runs := len(start[0])):
        raise ValueError("start must hold at least one run, got none")
    if runs_at_once is None:
        widest = max(space.size for space in task.network.architecture.spaces)
        floats = 3 * task.network.dimension + 2 * widest * min(part, len(task.inputs))
        runs_at_once = max(1, 16 * 2**20 // floats)
    pieces = []
    for first in range(0, runs, runs_at_once):
        chunk = [s[first : first + runs_at_once] for s in start]
        generators = run_generators(range(first_run + first, first_run + first + len(chunk[0])), seed)
        pieces.append(_train_chunk(task, chunk, strategy, epochs, rate, generators, part))
    return History(*(torch.cat(parts, dim=1).double().cpu() for parts in zip(*pieces, strict=True)))


def _train_chunk(
    task: Task,
    start: Sequence[Tensor],
    strategy: Strategy,
    epochs: int,
    rate: float,
    generators: Sequence[torch.Generator],
    part: int,
) -> tuple[Tensor, Tensor]:
    network = task.network
    displacement = [torch.zeros_like(a) for a in network.embed(start)]
    moved = [displacement[0].new_zeros(len(start[0]), len(start))]
    off = moved[:]
    for _ in progress(range(epochs)):
        layers = [a.add_(d) for a, d in zip(network.embed(start), displacement, strict=True)]
        slope = gradient(task, layers, views(task, strategy, generators, part))[1]
        for d, g in zip(displacement, network.project(slope) if strategy.kind == "equivariant" else slope, strict=True):
            d.sub_(g, alpha=rate)
        moved.append(torch.stack([d.flatten(1).norm(dim=1) for d in displacement], dim=1))
        off.append(network.off(displacement))
    return torch.stack(moved), torch.stack(off)
