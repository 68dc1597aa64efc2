"""Timings of equivariant convolutions against ordinary ones with as many channels in total, both in one run.

``python benchmarks/bench_planar_convolution.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick``
times fewer pairs. A pair is the two layers one right after the other, forward and backward with the gradients of input
and parameters; the order within a pair alternates, and the median over the pairs of the ratio of times is compared with
the bar. The same for whole players of equal width. Times are the process's own (CPU), which other load disturbs least.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.gans.image_players import Discriminator, Generator
from lib.gans.planar_convolution import GROUPS, PlanarConv2d

SHAPES = ((32, 28, 64), (64, 14, 64), (64, 7, 64), (32, 7, 256))  # batch, size, channels in total
BAR = 1.1


def layer_step(layer: nn.Module, channels: int, batch: int, size: int) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(batch, channels, size, size, generator=generator).requires_grad_(True)
    seen = torch.randn(batch, channels, size, size, generator=generator)

    def step() -> None:
        features.grad = None
        layer.zero_grad()
        layer(features).backward(seen)

    return step


def player_steps(group: str, batch: int, size: int, channels: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a generator's and a discriminator's step at random noise and images."""
    rng = torch.Generator().manual_seed(0)
    settings = {"size": size, "channels": channels, "group": group, "rng": rng}
    generator = Generator(kind="plain" if group == "none" else "equivariant", **settings)
    discriminator = Discriminator(**settings)
    labels = torch.arange(batch) % 10
    noise, images = generator.draw(labels, rng), torch.rand(batch, 1, size, size, generator=rng)

    def generate() -> None:
        generator.zero_grad()
        generator(noise).square().mean().backward()

    def judge() -> None:
        discriminator.zero_grad()
        discriminator(images, labels).mean().backward()

    return generate, judge


def expansion_step(layer: PlanarConv2d) -> Callable[[], None]:
    """Return the work that an equivariant layer adds: expanding its filters, and the gradient's way back."""
    seen = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        layer.zero_grad()
        layer.weight.backward(seen)

    return step


def ratio(step: Callable[[], None], plain: Callable[[], None], budget: float) -> tuple[float, float, float]:
    """Return the median over pairs of time(step) / time(plain), and both median times; ``budget`` seconds in all."""

    def seconds(work: Callable[[], None]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    for _ in range(3):
        once = seconds(step) + seconds(plain)
    times = []
    for k in range(max(15, int(budget / once))):
        pair = [seconds(work) for work in ((step, plain) if k % 2 else (plain, step))]
        times.append(pair if k % 2 else pair[::-1])
    return median(a / b for a, b in times), median(a for a, _ in times), median(b for _, b in times)


def compare_layers(batch: int, size: int, channels: int, budget: float) -> list[Row]:
    section = f"convolution 3 × 3, {channels} channels in total, {size} × {size}, batch {batch}, forward and backward"
    plain = layer_step(nn.Conv2d(channels, channels, 3, padding=1), channels, batch, size)
    rows = []
    for group in ("p4", "p4m", "p8"):
        width = channels // GROUPS[group].order
        layer = PlanarConv2d(width, width, group)
        value, own, other = ratio(layer_step(layer, channels, batch, size), plain, budget)
        bar = (f"≤ {BAR} ×", value <= BAR) if group == "p4" else ()
        what = f"{group}: {1e3 * own:.1f} ms, ordinary: {1e3 * other:.1f} ms; median ratio"
        rows.append(Row(section, what, value, "×", *bar))
        share = ratio(expansion_step(layer), plain, budget / 2)[0]
        rows.append(Row(section, f"{group}: the expansion alone, share of the ordinary layer's time", share, "×"))
    return rows


def compare_players(batch: int, size: int, channels: int, budget: float) -> list[Row]:
    section = f"players, {channels} channels in total, {size} × {size}, batch {batch}, forward and backward"
    plain, rows = player_steps("none", batch, size, channels), []
    for group in ("p4", "p4m", "p8"):
        steps = zip(("generator", "discriminator"), player_steps(group, batch, size, channels), plain, strict=True)
        for name, step, other in steps:
            value, own, theirs = ratio(step, other, budget)
            what = f"{name}, {group}: {1e3 * own:.0f} ms, plain: {1e3 * theirs:.0f} ms; median ratio"
            rows.append(Row(section, what, value, "×"))
    return rows


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, both sides (default 1)")
    parser.add_argument("--quick", action="store_true", help="fewer pairs")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = f"{platform.machine()}, {arguments.threads} thread(s), torch {torch.__version__}"
    budget = 0.5 if arguments.quick else 2.5
    parts = [
        *(partial(compare_layers, *shape, budget) for shape in SHAPES),
        partial(compare_players, 16, 28, 64, budget),
    ]
    return report("Planar convolution", machine, (row for part in parts for row in part()), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
