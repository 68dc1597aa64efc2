"""Time the grid of the mean-field chapter, all runs in one batch, against one run at a time with autograd."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import Row, report
from lib.mean_field.descent import Descent, TeacherData, train
from lib.mean_field.particles import SCHEMES, project
from lib.mean_field.units import Layer
from lib.symmetry.actions import natural
from lib.symmetry.groups import Symmetric

SEEDS = 10
NETWORKS = 6  # three teachers, two laws of the start
SWAP = Layer(natural(Symmetric(2)), natural(Symmetric(2)), "sigmoid")


def normal(*shape: int) -> Tensor:
    """Return Gaussian numbers, always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


TEACHERS = [normal(5, 4) / 2, normal(10, 4) / 2, project(normal(5, 4) / 2, SWAP.parameters)]


def starts(particles: int) -> Tensor:
    """Return students N(0, 1/16), free and projected, for three teachers each: (seeds, networks, N, 4)."""
    free = normal(SEEDS, 1, particles, 4) / 4
    return torch.cat([free.repeat(1, 3, 1, 1), project(free, SWAP.parameters).repeat(1, 3, 1, 1)], 1)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def whole_grid(particles: int, end: float, dtype: torch.dtype) -> None:
    """Train 4 schemes × 3 teachers × 2 initial laws × 10 seeds."""
    start, data = starts(particles).to(dtype), TeacherData(SWAP, 2 * TEACHERS)
    projected = [False] * 3 + [True] * 3
    for scheme in SCHEMES:
        train(SWAP, scheme, start, data, Descent(time=end), range(SEEDS), projected=projected)


def one_run(scheme: str, start: Tensor, target: Tensor, steps: int) -> Tensor:
    """One network, one step after the other, as one would write it down first: modules, autograd, an optimiser."""
    particles, descent = len(start), Descent()
    z = torch.nn.Parameter(start.view(-1, 2, 2).clone())
    optimiser = torch.optim.SGD([z], lr=descent.rate, weight_decay=descent.decay / particles)
    teacher_weights = target.view(-1, 2, 2)

    def network(weights: Tensor, x: Tensor) -> Tensor:
        return torch.sigmoid(torch.einsum("nij,bj->bni", weights, x)).mean(1)

    def loss(prediction: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (prediction - y).square().sum(1).mean()

    for _ in range(steps):
        x = 4 * torch.randn(20, 2, dtype=start.dtype)
        y = network(teacher_weights, x)
        if scheme == "EA":
            value = loss(network((z + z.flip(1, 2)) / 2, x), y)
        elif scheme == "FA":
            value = loss((network(z, x) + network(z, x.flip(1)).flip(1)) / 2, y)
        else:
            value = loss(network(z, x), y)
        if scheme == "DA":
            value = (value + loss(network(z, x.flip(1)), y.flip(1))) / 2
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        with torch.no_grad():
            z += (2 * descent.rate / particles * descent.temperature) ** 0.5 * torch.randn_like(z)
    return z.detach()


def naive_grid(particles: int, end: float, share: int) -> float:
    """Return the seconds of the whole grid by loops, from one run in ``share`` of its steps per scheme."""
    start, steps = starts(particles)[0, 0], round(particles * end)
    runs = SEEDS * NETWORKS
    part = max(1, steps // share)
    for scheme in SCHEMES:
        one_run(scheme, start, TEACHERS[0], 20)
    spent = [seconds(lambda s=scheme: one_run(s, start, TEACHERS[0], part)) for scheme in SCHEMES]
    return sum(spent) * steps / part * runs


def compare(particles: int, quick: bool, bar: float | None) -> list[Row]:
    """Return the rows for one N; ``quick`` times a tenth of the steps of the batch."""
    section = f"The full grid of 240 runs at N = {particles}, T = 20"
    end, rows = 20.0 / (10 if quick else 1), []
    whole_grid(particles, 0.2, torch.float64)
    steps = 20 * particles * 240
    for dtype in (torch.float64, torch.float32):
        spent = seconds(lambda d=dtype: whole_grid(particles, end, d)) * 20.0 / end
        name = str(dtype).removeprefix("torch.")
        kept = None if bar is None else spent < bar
        limit = "" if bar is None else f"< {bar:g} s"
        rows += [
            Row(section, f"one batch, {name}", spent, "s", limit, kept),
            Row(section, f"one batch, {name}, steps of single runs", steps / spent, "per s"),
        ]
    loops = naive_grid(particles, 20.0, 20 if quick else 5)
    rows += [
        Row(section, "loop over runs and steps with autograd, float64 (extrapolated)", loops, "s"),
        Row(section, "loop, steps of single runs", steps / loops, "per s"),
        Row(section, "float64: ratio of times", loops / rows[0].value, "×"),
    ]
    return rows


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--large", action="store_true", help="also N = 1000 (about ten minutes)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{platform.machine()}, one thread, torch {torch.__version__}"
    sizes = ((20, None), (100, 30.0), *(((1000, 1200.0),) if arguments.large else ()))
    rows = (row for particles, bar in sizes for row in compare(particles, arguments.quick or particles == 1000, bar))
    return report("Mean-field training", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
