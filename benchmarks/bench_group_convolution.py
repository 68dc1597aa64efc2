"""Timings of group convolution on A ⋊ H: FFT over A and sum over cosets against unfolding, both in one run.

``python benchmarks/bench_group_convolution.py`` prints a table; ``--json PATH`` also writes the numbers. Unfolding, the
published arrangement, gathers the |G| × |G| matrix of every function; for a batch of 32 at order 6272 that takes ten
gigabytes and a quarter of a minute; ``--quick`` leaves that out, and with it the bars. Each route runs in a process of
its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.symmetry.actions import motions
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import Dihedral, SemidirectProduct


def group(size: int) -> SemidirectProduct:
    return motions(size, Dihedral(4))


def unfolding(size: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return convolution by the table of u v⁻¹, made beforehand."""
    G = group(size)
    inverses = G.inverse(G.elements())
    table = torch.cat([G.index(G.multiply(part[:, None], inverses)) for part in G.chunks(256)])
    return lambda h, w: h[:, table] @ w


QUICK = 2  # functions in a batch, where sizes are compared
ROUTES = {"unfolding": unfolding, "FFT and cosets": lambda size: GroupConvolution(group(size))}


def peak_bytes() -> int:
    """Return the peak of the process's memory so far; where the system tells it, without what the parent had."""
    status = Path("/proc/self/status")
    if status.is_file():
        return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(route: str, size: int, batch: int, repeats: int, threads: int) -> tuple[float, float, Tensor]:
    """Return the least seconds of forward and backward, the peak above the idle process in bytes, and a gradient."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    order = group(size).order
    h, seen = (torch.randn(batch, order, generator=generator) for _ in range(2))
    w = torch.randn(order, generator=generator)
    (torch.fft.fft(h[0]).abs().sum() + (h @ w).sum()).item()  # libraries are loaded before memory is counted
    idle, times = peak_bytes(), []
    convolve = ROUTES[route](size)
    for _ in range(repeats):
        a, b = h.clone().requires_grad_(True), w.clone().requires_grad_(True)
        start = time.process_time()  # what other programs on the machine take is not counted
        (convolve(a, b) * seen).sum().backward()
        times.append(time.process_time() - start)
    return min(times), peak_bytes() - idle, torch.cat([a.grad.flatten(), b.grad])


def compare(size: int, batch: int, threads: int, bars: bool) -> list[Row]:
    section = f"order {group(size).order}, batch {batch}, forward and backward, float32"
    results = {}
    for route, repeats in (("unfolding", 1 if size > 16 else 3), ("FFT and cosets", 20)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results[route] = pool.apply(measure, (route, size, batch, repeats, threads))
    (slow, much, expected), (fast, little, value) = results.values()
    gap = float((value - expected).norm() / expected.norm())
    order, small = group(size).order, batch == QUICK
    rows = [
        Row(section, f"{route}: time", 1e3 * result[0], "ms", series=route if small else "", size=order)
        for route, result in results.items()
    ]
    rows += [Row(section, f"{route}: peak memory", result[1] / 2**20, "MiB") for route, result in results.items()]
    share = little / much
    return [
        *rows,
        Row(section, "ratio of times", slow / fast, "×", *(("≥ 500 ×", slow / fast >= 500) if bars else ())),
        Row(section, "share of the memory", share, "", *(("≤ 1/20", share <= 1 / 20) if bars else ())),
        Row(section, "relative difference of the gradients", gap, "", "≤ 1e-5", gap <= 1e-5),
    ]


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, both sides (default 1)")
    parser.add_argument("--quick", action="store_true", help="only batches of 2, not the one of 32 at order 6272")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {arguments.threads} thread(s), torch {torch.__version__}"
    sizes = [(size, QUICK, False) for size in (4, 8, 16, 28)] + ([] if arguments.quick else [(28, 32, True)])
    rows = (row for size, batch, bars in sizes for row in compare(size, batch, arguments.threads, bars))
    return report("Group convolution", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
