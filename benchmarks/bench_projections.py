"""Timings of the Haar projections, both sides of every comparison in one run.

``python benchmarks/bench_projections.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick`` leaves
out what takes more than some seconds, and ``--emlp-python PATH`` names an interpreter that has emlp where this one has
not. See README.md in this directory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.symmetry.actions import natural, pixels, regular, translations
from lib.symmetry.derived import Hom, Restriction
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, Symmetric
from lib.symmetry.haar import HaarSum, NullSpace, OrbitMean, projection
from lib.symmetry.representations import PermutationRepresentation, Representation

# Run by an interpreter that has emlp. Its progress bar fails with recent NumPy versions and is switched off.
EMLP_SCRIPT = """
import json, sys, time
import emlp.reps.representation as representation
from emlp.groups import S
from emlp.reps import T
import jax
class Silent:
    def __init__(self, iterable=None, **kwargs): self.iterable = iterable
    def __iter__(self): return iter(self.iterable)
    def __getattr__(self, name): return lambda *args, **kwargs: None
representation.tqdm = Silent
for n in map(int, sys.argv[1:]):
    start = time.perf_counter()
    basis = (T(2)(S(n)) >> T(2)(S(n))).equivariant_basis()
    row = {"n": n, "seconds": time.perf_counter() - start, "rank": int(basis.shape[1]), "jax": jax.__version__}
    print(json.dumps(row), flush=True)
"""


def seconds(work: Callable[[], object], repeats: int = 15, budget: float = 2.0) -> float:
    """Return the least processor time of ``work`` over up to ``repeats`` runs within a time budget."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < budget:
        start = time.process_time()  # what other programs on the machine take is not counted
        work()
        times.append(time.process_time() - start)
    return min(times)


def exponent(x: list[float], y: list[float]) -> float:
    """Return the slope of log y against log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def pair_maps(V: Representation) -> Hom:
    """Return the linear maps from V ⊗ V to itself."""
    return Hom(V * V, V * V)


def gaussian(V: Representation) -> Tensor:
    """Return a random vector."""
    return torch.randn(V.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def orbit_basis(n: int) -> Tensor:
    """Return the basis of the S_n-equivariant maps between order-two tensors, from scratch."""
    return OrbitMean(pair_maps(natural(Symmetric(n)))).basis()


def bars() -> list[Row]:
    """Time the two promised sizes."""
    P = OrbitMean(pair_maps(natural(Symmetric(10))))
    A = gaussian(P.representation)
    basis, projected = 1e3 * seconds(lambda: orbit_basis(15)), 1e3 * seconds(lambda: P(A), 200)
    name = "orbit route"
    return [
        Row(name, "basis of S_15 maps T2 → T2, 50 625 entries, from scratch", basis, "ms", "≤ 50 ms", basis <= 50),
        Row(name, "one projection, S_10, 10 000 entries", projected, "ms", "≤ 1 ms", projected <= 1),
    ]


def on_ten_points() -> list[PermutationRepresentation | Representation]:
    """Return groups of very different orders acting transitively or not on ten points."""
    D10, halves = Dihedral(10), DirectProduct(Symmetric(5), Symmetric(5))
    five, i = natural(Symmetric(5)), torch.arange(10)
    first, second = (Restriction(five, halves, lambda g, k=k: halves.parts(g)[k]) for k in (0, 1))
    polygon = PermutationRepresentation(D10, 10, lambda g: ((1 - 2 * g[..., 1:]) * i + g[..., :1]) % 10, "polygon")
    return [regular(Cyclic(10)), polygon, first + second, natural(Alternating(10)), natural(Symmetric(10))]


def cost_in_group() -> list[Row]:
    """Compare groups of order 10 to 3 628 800 on the same 10 000 entries."""
    orders, setups, uses, rows = [], [], [], []
    for V in on_ten_points():
        H = pair_maps(V)
        A, P = gaussian(H), OrbitMean(H)
        orders.append(float(V.group.order))
        setups.append(seconds(lambda H=H: OrbitMean(H), 50))
        uses.append(seconds(lambda P=P, A=A: P(A), 200))
        what = f"{V.group} of order {V.group.order}, {len(V.group.generators())} generators: orbits found"
        rows += [
            Row("cost in |G|", what, 1e3 * setups[-1], "ms"),
            Row("cost in |G|", "  … and used", 1e3 * uses[-1], "ms", series="orbits, 10 000 entries", size=orders[-1]),
        ]
    for what, times in (("finding the orbits", setups), ("using them", uses)):
        slope = exponent(orders, times)
        rows.append(Row("cost in |G|", f"exponent in |G|, {what}", slope, "", "≤ 0.1", slope <= 0.1))
    return rows


def naive_sum(quick: bool) -> list[Row]:
    """Compare the sum over all of S_n with the orbits."""
    orders, entries, slow, fast, rows = [], [], [], [], []
    for n in (4, 5, 6) if quick else (4, 5, 6, 7):
        H = pair_maps(natural(Symmetric(n)))
        A, P, total = gaussian(H), OrbitMean(H), HaarSum(H)
        orders.append(float(H.group.order))
        entries.append(float(H.dim))
        slow.append(seconds(lambda total=total, A=A: total(A), 5))
        fast.append(seconds(lambda H=H, A=A: OrbitMean(H)(A), 50))
        gap = float((P(A) - total(A)).abs().max())
        order = orders[-1]
        rows += [
            Row("naive sum", f"S_{n}: sum of {order:.0f} terms", 1e3 * slow[-1], "ms", series="sum", size=order),
            Row("naive sum", "  … orbits, found and used", 1e3 * fast[-1], "ms", series="orbits", size=order),
        ]
        rows.append(Row("naive sum", f"  … ratio (largest difference {gap:.0e})", slow[-1] / fast[-1], "×"))
    for what, times in (("naive sum", slow), ("orbits", fast)):
        slope = exponent(orders, [t / size for t, size in zip(times, entries, strict=True)])
        rows.append(Row("naive sum", f"exponent in |G| of the time per entry, {what}", slope, ""))
    return rows


def cost_in_entries() -> list[Row]:
    """Let the number of entries grow."""
    sizes, setups, uses = [], [], []
    for n in (8, 10, 12, 15, 20, 25):
        H = pair_maps(natural(Symmetric(min(n, 20)))) if n <= 20 else pair_maps(regular(Cyclic(n)))
        A, P = gaussian(H), OrbitMean(H)
        sizes.append(float(H.dim))
        setups.append(seconds(lambda H=H: OrbitMean(H)))
        uses.append(seconds(lambda P=P, A=A: P(A), 50))
    return [
        Row(
            "cost in entries",
            f"exponent from {sizes[0]:.0f} to {sizes[-1]:.0f} entries, {what}",
            exponent(sizes, times),
            "",
        )
        for what, times in (("finding the orbits", setups), ("using them", uses))
    ]


def four_routes() -> list[Row]:
    """Time all routes on the maps between 5 × 5 images that commute with translations, 625 entries."""
    size = 5
    H = Hom(*[pixels(translations(size), size)] * 2)
    makers = {
        "group sum": lambda: HaarSum(H),
        "orbits": lambda: OrbitMean(H),
        "composition": lambda: projection(H, "composition"),
        "null space": lambda: NullSpace(H),
    }
    A, rows = gaussian(H), []
    reference = HaarSum(H)(A)
    for name, make in makers.items():
        P = make()
        gap = float((P(A) - reference).abs().max())
        rows.append(Row("four routes", f"{name}: set-up", 1e3 * seconds(make, 5), "ms"))
        rows.append(
            Row("four routes", f"  … projection (differs by {gap:.0e})", 1e3 * seconds(lambda P=P: P(A), 50), "ms")
        )
    return rows


def dense_null_space(quick: bool) -> list[Row]:
    """Compare with solving the equations of the generators, as emlp does, by a dense factorisation."""
    rows = []
    for n in (3, 4, 5) if quick else (3, 4, 5, 6):
        H = pair_maps(natural(Symmetric(n)))
        dense, orbits = seconds(lambda H=H: NullSpace(H), 3), seconds(lambda n=n: orbit_basis(n), 20)
        what = f"basis of S_{n} maps T2 → T2 by dense equations, {H.dim} unknowns"
        rows += [
            Row("null space", what, 1e3 * dense, "ms", series="dense equations", size=H.dim),
            Row("null space", "  … by orbits, from scratch", 1e3 * orbits, "ms", series="orbits", size=H.dim),
            Row("null space", "  … ratio", dense / orbits, "×"),
        ]
    return rows


def against_emlp(python: str, quick: bool) -> list[Row]:
    """Compare with emlp, run by the given interpreter; an empty list if it is not to be had."""
    if not python:
        return []
    sizes = ["4", "5"] if quick else ["4", "5", "6", "10"]
    done = subprocess.run([python, "-c", EMLP_SCRIPT, *sizes], capture_output=True, text=True, check=False)
    rows = []
    for result in map(json.loads, done.stdout.splitlines()):
        ours = seconds(lambda n=result["n"]: orbit_basis(n), 20)
        ratio, asked = result["seconds"] / ours, result["n"] == 10
        what = f"basis of S_{result['n']} maps T2 → T2, rank {result['rank']}, jax {result['jax']}"
        rows.append(Row("emlp", what, result["seconds"], "s"))
        verdict = ("≥ 1000 ×", ratio >= 1000) if asked else ("", None)
        rows.append(Row("emlp", "  … ratio to the orbit route, from scratch", ratio, "×", *verdict))
    if done.returncode:
        raise RuntimeError(f"emlp failed: {done.stderr.strip().splitlines()[-1]}")
    return rows


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1: the kernels are tiny)")
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few seconds")
    parser.add_argument("--emlp-python", default="", help="interpreter that has emlp (default: this one, if it has it)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    python = arguments.emlp_python or (sys.executable if importlib.util.find_spec("emlp") else "")
    machine = f"{platform.machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}"
    quick = arguments.quick
    parts = [bars, cost_in_group, lambda: naive_sum(quick), cost_in_entries, four_routes]
    parts += [lambda: dense_null_space(quick), lambda: against_emlp(python, quick)]
    title = "Haar projections, best of several runs,"
    missed = report(title, machine, (row for part in parts for row in part()), arguments.json)
    if not python:
        print("\nemlp\nabsent: not compared (pip install 'symmetry-measured[benchmarks]', or --emlp-python)")
    return missed


if __name__ == "__main__":
    sys.exit(main())
