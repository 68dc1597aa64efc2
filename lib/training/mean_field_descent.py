"""Noisy stochastic gradient descent of shallow networks: seeds and networks in one batch.

One step moves particle i of a network with N units by

    θ_i ← θ_i − s (D_μR(ν, θ_i) + τ θ_i) + √(2 s β) ξ_i,      s = rate / N,

with R estimated on a fresh batch, the penalty ½‖θ‖² and Gaussian ξ_i; N · time steps approximate the Wasserstein
gradient flow up to rate · time (Maass, Fontbona 2024, equation of noisy SGD). Every seed has its own streams of data
and noise, which all networks of that seed share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_instance, check_int, check_probabilities, check_tensor
from lib.training.mean_field import SCHEMES, _derivative
from lib.training.units import Unit

TRAININGS = (*SCHEMES, "DA-sampled")
NOISES = ("plain", "images")
_CACHE = 2**21  # bytes of activations that one step handles at a time
_BLOCK = 64  # steps whose data and noise are drawn together


@dataclass(frozen=True)
class Descent:
    """Settings of noisy SGD.

    Attributes
    ----------
    rate : float
        α, the step in the time of the flow: s = α/N.
    time : float
        T; the number of steps is the integer nearest to N·T.
    decay : float
        τ, weight of the penalty ½‖z‖².
    temperature : float
        β; 0 switches the noise off.

    Raises
    ------
    ValueError
        A negative temperature, decay, rate or time.
    """

    rate: float = 50.0
    time: float = 20.0
    decay: float = 1e-4
    temperature: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("rate", "time", "decay", "temperature"):
            check_float(name, getattr(self, name), minimum=0.0)

    def steps(self, particles: int) -> int:
        """Return the number of steps of a network with so many particles."""
        return round(particles * self.time)


class TeacherData:
    """Inputs N(0, scale²·1) and the outputs of one teacher per network; a fresh batch per step.

    Parameters
    ----------
    unit
        The unit of teachers and students.
    teachers
        One tensor of particles, shape ``(M, dim Z)``, for every network; M may differ.
    scale
        Standard deviation of every input coordinate.
    batch
        Points per step.

    Raises
    ------
    TypeError, ValueError
        No teacher, a teacher of another shape, a scale that is not positive, a batch below 1.
    """

    def __init__(self, unit: Unit, teachers: Sequence[Tensor], scale: float = 4.0, batch: int = 20) -> None:
        self.unit, self.teachers = check_instance("unit", unit, Unit), list(teachers)
        self.scale, self.batch = check_float("scale", scale, minimum=1e-12), check_int("batch", batch)
        if not self.teachers:
            raise ValueError("teachers must hold at least one teacher, got none")
        for k, teacher in enumerate(self.teachers):
            if unit.check_particles(name := f"teachers[{k}]", teacher).ndim != 2:
                raise ValueError(f"{name} must have shape (M, {unit.parameters.dim}), got {tuple(teacher.shape)}")
        self.weights: Tensor | None = None

    @property
    def networks(self) -> int:
        """How many networks have a teacher."""
        return len(self.teachers)

    def draw(self, generator: torch.Generator, steps: int, like: Tensor) -> Tensor:
        """Return inputs, shape ``(steps, batch, dim X)``, in the dtype and on the device of ``like``."""
        shape = (steps, self.batch, self.unit.inputs.dim)
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device).to(like) * self.scale

    def targets(self, x: Tensor) -> Tensor:
        """Return the teachers' outputs at x ``(..., B, dim X)``, shape ``(..., networks, B, dim Y)``."""
        flat = x.reshape(-1, x.shape[-1])
        seen = {id(t): self.unit.network(flat, t.to(x)) for t in {id(t): t for t in self.teachers}.values()}
        outputs = torch.stack([seen[id(t)] for t in self.teachers])
        return outputs.unflatten(1, x.shape[:-1]).movedim(0, -3)


class FixedData:
    """The same weighted points at every step: full-batch training, or a quadrature of the population risk.

    Parameters
    ----------
    unit
        The unit.
    x, y
        Points, shape ``(B, dim X)``, and their outputs, shape ``(networks, B, dim Y)``.
    weights
        Probabilities, shape ``(B,)``; default 1/B each.

    Raises
    ------
    TypeError, ValueError
        Shapes that do not fit together, no point, or weights that are no probabilities.
    """

    def __init__(self, unit: Unit, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        check_instance("unit", unit, Unit)
        if check_tensor("x", x, (unit.inputs.dim,), inexact=True, real=True).ndim != 2 or not len(x):
            raise ValueError(f"x must have shape (B, {unit.inputs.dim}) with B ≥ 1, got {tuple(x.shape)}")
        if check_tensor("y", y, (None, len(x), unit.outputs.dim), inexact=True, real=True).ndim != 3:
            raise ValueError(f"y must have shape (networks, {len(x)}, {unit.outputs.dim}), got {tuple(y.shape)}")
        if weights is not None:
            check_probabilities("weights", weights, len(x))
        self.unit, self.x, self.y, self.weights, self.batch = unit, x, y, weights, len(x)

    @property
    def networks(self) -> int:
        """How many networks have targets."""
        return len(self.y)

    def draw(self, generator: torch.Generator, steps: int, like: Tensor) -> Tensor:
        """Return the points, shape ``(steps, B, dim X)``; the generator is not used."""
        return self.x.to(like).expand(steps, -1, -1)

    def targets(self, x: Tensor) -> Tensor:
        """Return the outputs, shape ``(..., networks, B, dim Y)``."""
        return self.y.to(x).expand(*x.shape[:-2], -1, -1, -1)


class Trajectory(NamedTuple):
    """Networks at several times, the last of which is the end of training."""

    times: Tensor  # in [0, T], shape (frames,)
    particles: Tensor  # shape (frames, seeds, networks, N, dim Z)

    @property
    def end(self) -> Tensor:
        """The trained networks, shape ``(seeds, networks, N, dim Z)``."""
        return self.particles[-1]


def train(
    unit: Unit,
    scheme: str,
    start: Tensor,
    data: TeacherData | FixedData,
    descent: Descent,
    seeds: Sequence[int],
    *,
    projected: Sequence[bool] | None = None,
    noise: str = "plain",
    frames: int = 0,
) -> Trajectory:
    """Train seeds × networks at once by noisy SGD.

    Parameters
    ----------
    unit
        The unit.
    scheme
        One of ``TRAININGS``: ``vanilla``, ``DA`` (exact mean over the group), ``FA``, ``EA``, or ``DA-sampled`` (one
        uniform element per data point and step).
    start
        Particles, shape ``(seeds, networks, N, dim Z)``; not changed. Its dtype and device are used throughout.
    data
        Where batches come from.
    descent
        Step, time, penalty, temperature.
    seeds
        One per first axis of ``start``; a seed's data and noise depend on nothing else (noise on N and dim Z).
    projected
        For each network, whether its noise is projected; default: none is.
    noise
        ``"plain"``: independent noise for every particle. ``"images"``: for particles laid out as by
        :func:`~lib.training.mean_field.symmetrise`, images of a particle get images of its noise.
    frames
        Snapshots kept at equal distances before the end, the start among them.

    Raises
    ------
    TypeError, ValueError
        An unknown scheme or kind of noise, data for other units, equal seeds, or shapes that do not
        fit; N not divisible by |G| for ``"images"``.
    ArithmeticError
        The particles grow beyond all bounds: the rate is too large.
    """
    count = _check_run(unit, scheme, start, data, descent, seeds, projected, noise)
    steps = descent.steps(start.shape[2])
    kept = [round(k * steps / frames) for k in range(check_int("frames", frames, minimum=0))]
    images = unit.group.order if scheme in ("DA", "FA") else 1
    one = count * start.shape[2] * unit.outputs.dim * data.batch * images * start.element_size()
    size = max(1, _CACHE // one) if start.device.type == "cpu" else len(seeds)
    share = start.new_tensor([float(p) for p in projected or [False] * count])[:, None, None]
    parts = []
    for a in range(0, len(seeds), size):
        run = _Run(unit.to(start), scheme, data, descent, list(seeds[a : a + size]), share, noise)
        parts.append(run.train(start[a : a + size], steps, kept))
    times = torch.tensor([*kept, steps], dtype=torch.float64, device=start.device) / start.shape[2]
    way = torch.cat(parts, dim=1)
    if not bool(torch.isfinite(way[-1]).all()):
        raise ArithmeticError(f"training with rate {descent.rate:g} diverged: particles are infinite or NaN")
    return Trajectory(times, way)


@dataclass(frozen=True)
class _Run:
    """Seeds that are trained together."""

    unit: Unit
    scheme: str
    data: TeacherData | FixedData
    descent: Descent
    seeds: list[int]
    projected: Tensor
    noise: str

    def train(self, start: Tensor, steps: int, kept: list[int]) -> Tensor:
        """Return the snapshots at the steps ``kept`` and at the end."""
        z, snapshots, step = start.clone(), [], self.descent.rate / start.shape[2]
        streams = [[torch.Generator().manual_seed(3 * seed + k) for seed in self.seeds] for k in range(3)]
        scheme = "vanilla" if self.scheme == "DA-sampled" else self.scheme
        w = None if self.data.weights is None else self.data.weights.to(z).expand(len(z), -1)
        for begin in range(0, steps, _BLOCK):
            length = min(_BLOCK, steps - begin)
            x, y = self._batches(streams[0], streams[1], length, z)
            kicks = self._kicks(streams[2], length, z) if self.descent.temperature else None
            for k in range(length):
                snapshots += [z.clone() for s in kept if s == begin + k]
                move = _derivative(self.unit, scheme, z, x[k], y[k], w)
                z.mul_(1 - step * self.descent.decay).add_(move, alpha=-step)
                if kicks is not None:
                    z.addcmul_(kicks[0][k, :, None], 1 - self.projected)
                    z.addcmul_(kicks[1][k, :, None], self.projected)
        snapshots += [z for s in kept if s == steps]
        return torch.stack([*snapshots, z])

    def _batches(
        self, draws: list[torch.Generator], elements: list[torch.Generator], length: int, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return inputs ``(length, S, B, dim X)`` and targets ``(length, S, R, B, dim Y)``, moved if sampled."""
        x = torch.stack([self.data.draw(g, length, like) for g in draws], dim=1)
        y = self.data.targets(x)
        if self.scheme != "DA-sampled":
            return x, y
        shape, order = (length, x.shape[2]), self.unit.group.order
        drawn = [torch.randint(order, shape, generator=e, device=e.device) for e in elements]
        g = torch.stack(drawn, dim=1).to(like.device)
        rho_x, rho_y = self.unit.on_inputs[g], self.unit.on_outputs[g]
        return (rho_x @ x[..., None])[..., 0], (rho_y[:, :, None] @ y[..., None])[..., 0]

    def _kicks(self, streams: list[torch.Generator], length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return noise and projected noise, each of shape ``(length, S, N, dim Z)``."""
        number, order = like.shape[2], self.unit.group.order if self.noise == "images" else 1
        shape = (length, number // order, like.shape[3])
        kicks = [torch.randn(shape, generator=g, dtype=like.dtype, device=g.device) for g in streams]
        xi = torch.stack(kicks, dim=1).to(like.device)
        if self.noise == "images":
            xi = torch.einsum("gij,lsnj->lsgni", self.unit.on_parameters, xi).flatten(2, 3)
        xi *= (2 * self.descent.rate / number * self.descent.temperature) ** 0.5
        return xi, xi @ self.unit.fixed.mT


def _check_run(
    unit: Unit,
    scheme: str,
    start: Tensor,
    data: TeacherData | FixedData,
    descent: Descent,
    seeds: Sequence[int],
    projected: Sequence[bool] | None,
    noise: str,
) -> int:
    """Return the number of networks per seed; raise if something does not fit."""
    check_instance("unit", unit, Unit)
    check_instance("data", data, (TeacherData, FixedData))
    check_instance("descent", descent, Descent)
    if (data.unit.inputs.dim, data.unit.outputs.dim) != (unit.inputs.dim, unit.outputs.dim):
        raise ValueError(f"data must be made for the inputs and outputs of {unit}, got data for {data.unit}")
    check_choice("scheme", scheme, TRAININGS)
    check_choice("noise", noise, NOISES)
    if unit.check_particles("start", start).ndim != 4:
        raise ValueError(f"start must have shape (seeds, networks, N, {unit.parameters.dim}), got {tuple(start.shape)}")
    if len({check_int("seeds", seed, minimum=0) for seed in check_instance("seeds", seeds, Sequence)}) < len(seeds):
        raise ValueError(f"seeds must differ from each other, got {list(seeds)}")
    if not len(seeds) or len(seeds) != len(start):
        raise ValueError(f"seeds must hold one seed for each of the {len(start)} rows of start, got {len(seeds)}")
    if data.networks != start.shape[1]:
        raise ValueError(f"data must serve the {start.shape[1]} networks of start, got {data.networks}")
    if projected is not None and len(projected) != start.shape[1]:
        raise ValueError(
            f"projected must hold one bool for each of the {start.shape[1]} networks, got {len(projected)}"
        )
    if noise == "images" and start.shape[2] % unit.group.order:
        raise ValueError(f"N must be a multiple of {unit.group.order} for noise='images', got {start.shape[2]}")
    return start.shape[1]
