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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lib.mean_field.particles import SCHEMES, _derivative
from lib.mean_field.units import Unit
from lib.progress import progress

TRAININGS = (*SCHEMES, "DA-sampled")
_CACHE = 2**21  # bytes of activations that one step handles at a time
_BLOCK = 64  # steps whose data and noise are drawn together


@dataclass(frozen=True)
class Descent:
    """Settings of noisy SGD."""

    rate: float = 50.0  #: α, the step in the time of the flow: s = α/N
    time: float = 20.0  #: T; the number of steps is the integer nearest to N·T
    decay: float = 1e-4  #: τ, weight of the penalty ½‖z‖²
    temperature: float = 1e-6  #: β; 0 switches the noise off


class TeacherData:
    """Inputs N(0, scale²·1) and the outputs of one teacher per network; a fresh batch of points per step.

    Every teacher is a tensor of particles of the unit, shape ``(M, dim Z)``; M may differ. Networks are trained on it,
    or on any other object that has ``batch``, ``draw`` and ``targets``.
    """

    def __init__(self, unit: Unit, teachers: Sequence[Tensor], scale: float = 4.0, batch: int = 20) -> None:
        self.unit, self.teachers, self.scale, self.batch = unit, list(teachers), scale, batch

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


class Trajectory(NamedTuple):
    """Networks at several times, the last of which is the end of training."""

    times: Tensor  #: in [0, T], shape ``(frames,)``
    particles: Tensor  #: shape ``(frames, seeds, networks, N, dim Z)``

    @property
    def end(self) -> Tensor:
        """The trained networks, shape ``(seeds, networks, N, dim Z)``."""
        return self.particles[-1]


def streams(seed: int) -> tuple[torch.Generator, torch.Generator, torch.Generator]:
    """Return the streams from which :func:`train` draws the data, the group elements and the noise of a seed."""
    data, elements, noise = (torch.Generator().manual_seed(3 * seed + k) for k in range(3))
    return data, elements, noise


def train(
    unit: Unit,
    scheme: str,
    start: Tensor,
    data: Any,
    descent: Descent,
    seeds: Sequence[int],
    *,
    projected: Sequence[bool] | None = None,
    noise: str = "plain",
    frames: int = 0,
) -> Trajectory:
    """Train seeds × networks at once by noisy SGD, in the dtype and on the device of the start.

    The scheme is one of ``TRAININGS``: ``vanilla``, ``DA`` (exact mean over the group), ``FA``, ``EA``, or
    ``DA-sampled`` (one uniform element per data point and step). The start holds particles, shape
    ``(seeds, networks, N, dim Z)``; a seed's data and noise depend on nothing else (noise on N and dim Z), and
    ``projected`` says for each network whether its noise is. ``"plain"`` noise is independent for every particle; with
    ``"images"``, for particles laid out as by :func:`~lib.mean_field.particles.symmetrise`, images of one get images of
    its noise. So many frames are kept at equal distances before the end, the start among them.

    An ``ArithmeticError`` says that the particles grow beyond all bounds: the rate is too large.
    """
    if not len(seeds) == len(start) > 0:
        raise ValueError(f"seeds must be {len(start)} ≥ 1 numbers, one for each of start, got {list(seeds)}")
    _, networks, number, _ = start.shape
    steps = round(number * descent.time)
    kept = [round(k * steps / frames) for k in range(frames)]
    images = unit.group.order if scheme in ("DA", "FA") else 1
    one = networks * number * unit.outputs.dim * data.batch * images * start.element_size()
    size = max(1, _CACHE // one) if start.device.type == "cpu" else len(seeds)
    share = start.new_tensor([float(p) for p in projected or [False] * networks])[:, None, None]
    parts = []
    for z, some in zip(start.split(size), (seeds[a : a + size] for a in range(0, len(seeds), size)), strict=True):
        drawn = list(zip(*map(streams, some), strict=True))  # data, elements, noise: one stream per seed
        parts.append(_train(unit.to(start), scheme, z, data, descent, drawn, share, noise, steps, kept))
    times = torch.tensor([*kept, steps], dtype=torch.float64, device=start.device) / number
    way = torch.cat(parts, dim=1)
    if not bool(torch.isfinite(way[-1]).all()):
        raise ArithmeticError(f"training with rate {descent.rate:g} diverged: particles are infinite or NaN")
    return Trajectory(times, way)


def _train(
    unit: Unit,
    scheme: str,
    start: Tensor,
    data: Any,
    descent: Descent,
    streams: Sequence[Sequence[torch.Generator]],
    share: Tensor,
    noise: str,
    steps: int,
    kept: list[int],
) -> Tensor:
    """Return the snapshots of seeds that are trained together, at the steps ``kept`` and at the end."""
    z, snapshots, step = start.clone(), [], descent.rate / start.shape[2]
    derivative = "vanilla" if scheme == "DA-sampled" else scheme
    for begin in progress(range(0, steps, _BLOCK)):
        length = min(_BLOCK, steps - begin)
        x = torch.stack([data.draw(g, length, z) for g in streams[0]], dim=1)  # (length, S, B, dim X)
        y = data.targets(x)  # (length, S, R, B, dim Y)
        if scheme == "DA-sampled":
            order, shape = unit.group.order, (length, x.shape[2])
            drawn = [torch.randint(order, shape, generator=g, device=g.device) for g in streams[1]]
            g = torch.stack(drawn, dim=1).to(z.device)
            x, y = (unit.on_inputs[g] @ x[..., None])[..., 0], (unit.on_outputs[g][:, :, None] @ y[..., None])[..., 0]
        kicks = _kicks(unit, descent, noise, streams[2], length, z) if descent.temperature else None
        for k in range(length):
            snapshots += [z.clone() for s in kept if s == begin + k]
            move = _derivative(unit, derivative, z, x[k], y[k])
            z.mul_(1 - step * descent.decay).add_(move, alpha=-step)
            if kicks is not None:
                z.addcmul_(kicks[0][k, :, None], 1 - share)
                z.addcmul_(kicks[1][k, :, None], share)
    snapshots += [z for s in kept if s == steps]
    return torch.stack([*snapshots, z])


def _kicks(
    unit: Unit, descent: Descent, noise: str, streams: Sequence[torch.Generator], length: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return noise and projected noise, each of shape ``(length, S, N, dim Z)``."""
    number, order = like.shape[2], unit.group.order if noise == "images" else 1
    shape = (length, number // order, like.shape[3])
    kicks = [torch.randn(shape, generator=g, dtype=like.dtype, device=g.device) for g in streams]
    xi = torch.stack(kicks, dim=1).to(like.device)
    if noise == "images":
        xi = torch.einsum("gij,lsnj->lsgni", unit.on_parameters, xi).flatten(2, 3)
    xi *= (2 * descent.rate / number * descent.temperature) ** 0.5
    return xi, xi @ unit.fixed.mT
