"""Timings of transport and kernels under a group, the quotient against the symmetrised cloud in one run.

``python benchmarks/bench_divergences.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick`` leaves
out the symmetrised cloud of full size, which takes ten seconds and three gigabytes.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.transport.divergences import w1
from lib.transport.kernels import mmd_squared
from lib.transport.quotient import no_group, turns
from lib.transport.ring import ring


def timed(work: Callable[[], float], repeats: int = 1) -> tuple[float, float]:
    """Return the least processor time of ``work`` and its last value."""
    times = []
    for _ in range(repeats):
        start = time.process_time()  # what other programs on the machine take is not counted
        value = work()
        times.append(time.process_time() - start)
    return min(times), value


def transport(quick: bool) -> list[Row]:
    """Compare the two routes to W1 of points of the plane under C16."""
    rows = []
    for n in (25, 50, 100) if quick else (25, 50, 100, 200, 500):
        x, y = torch.randn(2, n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        fast, value = timed(lambda x=x, y=y: w1(x, y, turns(16)), 7)
        slow, other = timed(lambda x=x, y=y: w1(*(turns(16).images(p).flatten(0, 1) for p in (x, y)), no_group(2)))
        gap, asked = abs(value - other) / value, n == 500
        name = f"W1, {n} + {n} points, 16 turns"
        rows += [
            Row("transport", f"{name}: quotient", 1e3 * fast, "ms", series="quotient", size=n),
            Row("transport", f"  … cloud of {16 * n} points", 1e3 * slow, "ms", series="symmetrised cloud", size=n),
            Row("transport", "  … ratio", slow / fast, "×", *(("≥ 100 ×", slow / fast >= 100) if asked else ())),
            Row("transport", "  … relative difference of the values", gap, "", "≤ 1e-8", gap <= 1e-8),
        ]
    return rows


def kernels(quick: bool) -> list[Row]:
    """Time the panel of MMDs, and harmonics against images."""
    generator = torch.Generator().manual_seed(0)
    x, y = ring(100, 200, generator), ring(100, 200, generator)

    def panel() -> float:
        return sum(float(mmd_squared(x, y, turns(256), 2 * math.pi / steps).mean()) for steps in (24, 96, 384))

    took, _ = timed(panel)
    rows = [Row("kernels", "MMD, 256 turns, n = 200, 100 replicates, 3 widths", took, "s", "≤ 10 s", took <= 10)]
    one, other = x[:1], y[:1]

    def by_images() -> float:
        clouds = [turns(256).images(p[0]).flatten(0, 1) for p in (one, other)]
        first = [p[0] for p in (one, other)]
        s, total = 2 * math.pi / 96, 0.0
        for i, j, sign in ((0, 0, 1), (0, 1, -2), (1, 1, 1)):
            total += sign * float(torch.exp(torch.cdist(first[i], clouds[j]) ** 2 / (-2 * s**2)).mean())
        return total

    slow, expected = timed(by_images, 3)
    fast, value = timed(lambda: float(mmd_squared(one, other, turns(256), 2 * math.pi / 96)), 5)
    gap = abs(value - expected)
    rows.append(Row("kernels", "one replicate: ratio of all images to harmonics", slow / fast, "×"))
    rows.append(Row("kernels", "  … difference of the values", gap, "", "≤ 1e-10", gap <= 1e-10))
    return rows


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few seconds")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = f"{platform.machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}"
    rows = (row for part in (transport, kernels) for row in part(arguments.quick))
    return report("Divergences under a group", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
