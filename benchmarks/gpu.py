"""All that waits for a GPU, in pieces of a few minutes: ``make gpu``, or ``python -m benchmarks.gpu``.

Each piece is worth something by itself and goes on where it was stopped:

``tests``      every call of the catalogue on the CPU and on the GPU
``chapters``   every chapter at its defaults: the claims that hold, and its seconds beside those on the CPU
``engines``    the five batched engines at the sources' sizes, against one large product of matrices
``drift``, ``rotmnist``, ``tissue``, ``particles``, ``rates_of_clouds``   runs at scale, the sweeps of ``sweeps/gpu``

``--small`` does it all in small, on any machine: two chapters, small engines, every run at its notebook's defaults.
Nothing is installed. Results stay in the output folder; ``summary.json`` there says what has finished.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.rows import Row
from lib import ROOT
from lib.augmentation.augmented_descent import Task, augmented
from lib.augmentation.augmented_descent import train as train_augmented
from lib.augmentation.networks import graph_network
from lib.augmentation.sampling_laws import haar
from lib.augmentation.synthetic import block_graphs
from lib.device import default_device, describe_device
from lib.ensembles.training import Network, train_ensemble
from lib.gans.image_players import players
from lib.gans.objectives import objective
from lib.mean_field.descent import Descent, TeacherData
from lib.mean_field.descent import train as train_particles
from lib.mean_field.units import Layer
from lib.page.claims import load_claims
from lib.sweep.specification import read_parameters
from lib.symmetry.actions import motions, natural
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import Dihedral, Symmetric

NEEDED = ("pytest", "papermill", "ipykernel", "distributed", "pydantic", "jaxtyping", "beartype", "ot", "cvxpy")
RUNS = ("drift", "rotmnist", "tissue", "particles", "rates_of_clouds")
PIECES = ("tests", "chapters", "engines", *RUNS)
Engine = Callable[[torch.device, bool], Callable[[], object]]  # of a device, and whether it is to be small
FEW = ("where_exact_symmetry_bites", "mean_field_optima")  # chapters of the small form, among the shortest
SAYS = 20  # seconds that a sweep has to end after it was asked to


def descent(place: torch.device, small: bool) -> Callable[[], object]:
    """Perm of Nordenfors, Ohlsson and Flinth: 30 starts, a step of 25 augmented passes over 1000 graphs."""
    sizes, count, batch = ((6, 8, 16, 8), 100, 20) if small else ((10, 32, 64, 32), 1000, 200)
    task = Task(graph_network(*sizes), *block_graphs(count, sizes[0], across=0.05), batch).to(torch.float32, place)
    start = [s.to(place) for s in task.network.start(4 if small else 30)]
    how = augmented(haar(task.network.architecture.group), 25)
    return lambda: train_augmented(task, start, how, 1, 1e-5)


def ensemble(place: torch.device, small: bool) -> Callable[[], object]:
    """Members with the plus support on turned images of 28 × 28 pixels, one epoch."""
    size, count, members = (8, 64, 8) if small else (28, 10_000, 128)
    images = torch.rand(count, size, size, generator=torch.Generator().manual_seed(0))
    quarters = torch.stack([images.rot90(k, (-2, -1)) for k in range(4)]).to(place)
    labels = (torch.arange(count) % 10).to(place)
    return lambda: train_ensemble(Network(size=size), quarters, labels, members, epochs=1)


def game(place: torch.device, small: bool) -> Callable[[], object]:
    """Ten rounds of an equivariant generator and an invariant discriminator on images of 28 × 28 pixels."""
    size, channels, batch = (8, 8, 16) if small else (28, 64, 64)
    made = players("equivariant/invariant", "p4", size, 1, 10, channels, matched=False, seed=0)
    G, D = (player.to(place, memory_format=torch.channels_last) for player in made)
    rng, rule = torch.Generator().manual_seed(0), objective("relativistic")
    images, labels = torch.rand(batch, 1, size, size, generator=rng).to(place), (torch.arange(batch) % 10).to(place)

    def step(player: torch.nn.Module) -> None:
        D.requires_grad_(player is D)
        fake = G(G.draw(labels, rng))
        judged = (lambda x: D(x, labels), images, fake)
        loss = rule.discriminator_loss(*judged) if player is D else rule.generator_loss(*map(judged[0], judged[1:]))
        player.zero_grad()
        loss.backward()

    return lambda: [step(player) for _ in range(1 if small else 10) for player in (D, D, G)]


def particles(place: torch.device, small: bool) -> Callable[[], object]:
    """Data augmentation of 5000 particles, six networks, ten starts, 100 steps."""
    count = 20 if small else 5000
    layer = Layer(natural(Symmetric(2)), natural(Symmetric(2)), "sigmoid")
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(10, 6, count, 4, generator=rng).to(place) / 4
    data, steps = TeacherData(layer, [torch.randn(5, 4, generator=rng).double()] * 6), 10 if small else 100
    return lambda: train_particles(layer, "DA", start, data, Descent(time=steps / count), range(10))


def convolution(place: torch.device, small: bool) -> Callable[[], object]:
    """Group convolution on (C28 × C28) ⋊ D4, of order 6272, batch 32, forward and backward."""
    convolve = GroupConvolution(motions(4 if small else 28, Dihedral(4)))
    h, w = (torch.randn(n, 8 * (16 if small else 784)).to(place).requires_grad_(True) for n in (32, 1))
    return lambda: convolve(h, w[0]).square().sum().backward()


ENGINES = (descent, ensemble, game, particles, convolution)


def seconds(work: Callable[[], object], place: torch.device) -> float:
    """Return the least time of three runs, after one to warm up."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        work()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def product_rate(place: torch.device, small: bool) -> float:
    """Return the operations per second of one large product of float32 matrices."""
    n = 512 if small or place.type == "cpu" else 8192
    a = torch.randn(n, n, device=place)
    return 2 * n**3 / seconds(lambda: a @ a, place)


class Operations(TorchDispatchMode):
    """Counts the operations of products of matrices and convolutions; those of Fourier transforms it does not."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation, and add what it costs."""
        result = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.count += formula(*args, **(kwargs or {}), out_val=result)
        return result


def operations(work: Callable[[], object]) -> float:
    """Return the operations of a piece of work, without those of Fourier transforms."""
    with Operations() as counter:
        work()
    return counter.count


def run_engines(place: torch.device, small: bool) -> list[Row]:
    """Time the five engines."""
    peak = product_rate(place, small)
    rows = [Row("engines", "one large product of matrices, float32", peak / 1e12, "Tflop/s")]
    for engine in ENGINES:
        work = engine(place, small)
        spent, counted = seconds(work, place), operations(work)
        what = engine.__doc__.rstrip(".") + (", in small" if small else "")
        rows += [
            Row("engines", what, 1e3 * spent, "ms"),
            Row("engines", "  of the large product's rate", 100 * counted / spent / peak, "%"),
        ]
    return rows


def sweep(specification: Path, folder: Path, workers: int, left: float) -> bool:
    """Run a sweep until it ends or the time is over; what has finished is kept. Return whether all of it has."""
    command = [sys.executable, "-m", "lib.sweep", "run", str(specification), "-o", str(folder)]
    driver = subprocess.Popen([*command, "--workers", str(workers), "--quiet"], cwd=ROOT)
    try:
        return driver.wait(max(1, left)) == 0
    except subprocess.TimeoutExpired:
        driver.send_signal(signal.SIGINT)
        try:
            driver.wait(SAYS)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
        print(f"{specification.stem}: out of time; the same command goes on from there", flush=True)
        return False


def write_specification(path: Path, notebook: str, **fields: object) -> Path:
    """Write a specification of a notebook's points."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"notebook": notebook, **fields}))
    return path


def run_chapters(out: Path, place: torch.device, small: bool, workers: int, end: float) -> list[Row]:
    """Execute every chapter on the device, the shortest first; count its claims and show its seconds."""
    before = {name: median_seconds(name) for name in {claim.chapter for claim in load_claims().values()}}

    def execute(name: str) -> list[Row]:
        path, folder = out / "specifications" / f"{name}.yml", out / "chapters" / name
        write_specification(path, name, parameters={"device": str(place)} if takes_device(name) else {})
        if end < time.monotonic() or not sweep(path, folder, 1, end - time.monotonic()):
            return []
        table = pd.read_parquet(folder / "table.parquet").iloc[0]
        held = [bool(table[c]) for c in table.index if c.endswith(".holds")]
        return [
            Row("chapters", f"{name}: {sum(held)} of {len(held)} claims hold", float(table["seconds"]), "s"),
            Row("chapters", "  at ten other seeds on the CPU, the median", before[name], "s"),
        ]

    with ThreadPoolExecutor(workers) as pool:
        return [row for rows in pool.map(execute, sorted(FEW if small else before, key=before.get)) for row in rows]


def takes_device(chapter: str) -> bool:
    """Return whether a chapter computes anything that a GPU could; tiny kernels stay on the CPU."""
    return "device" in read_parameters(ROOT / "book" / f"{chapter}.ipynb")


def median_seconds(chapter: str) -> float:
    """Return the median seconds of a chapter's stored runs at other seeds."""
    return float(pd.read_parquet(ROOT / "data" / "results" / chapter / "seeds.parquet")["seconds"].median())


def run_scale(name: str, out: Path, place: torch.device, small: bool, workers: int, end: float) -> list[Row]:
    """Run a sweep of ``sweeps/gpu``, several points at a time: one alone does not fill a GPU."""
    specification = ROOT / "sweeps" / "gpu" / f"{name}.yml"
    if small:
        notebook = yaml.safe_load(specification.read_text())["notebook"]
        specification = write_specification(
            out / "specifications" / f"{name}.yml", notebook, parameters={"device": str(place)}
        )
    sweep(specification, out / name, workers, end - time.monotonic())
    points = [path for path in (out / name).glob("*.ipynb") if path.name.count(".") == 1]
    return [Row(name, "points that have finished", len(points), "")]


def run_tests(place: torch.device) -> list[Row]:
    """Run the tests of devices: on CUDA where it is, else on the stand-in."""
    which = "cuda_agrees" if place.type == "cuda" else "stand_in or left_behind"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, "tests/test_devices.py"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return [Row("tests", f"tests of devices, {which}", code, "status", "0", code == 0)]


def main(command: list[str] | None = None) -> int:
    """Run the pieces that were asked for; the exit status says whether all went well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"of {', '.join(PIECES)} (default: all)")
    parser.add_argument("--small", action="store_true", help="everything in small, on any machine")
    parser.add_argument("--out", type=Path, default=ROOT / "sweep-results" / "gpu", help="where results stay")
    parser.add_argument("--minutes", type=float, default=8.0, help="for every piece (default 8)")
    parser.add_argument("--workers", type=int, default=4, help="points at a time (default 4)")
    arguments = parser.parse_args(command)
    if unknown := set(arguments.pieces) - set(PIECES):
        parser.error(f"there is no piece {', '.join(sorted(unknown))}; choose from {', '.join(PIECES)}")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        parser.error(f"these packages are missing: {', '.join(missing)}")
    place, out, small = default_device(), arguments.out.absolute(), arguments.small
    if place.type != "cuda" and not small:
        parser.error(f"the GPU is missing, the device is {describe_device(place)}; --small runs everywhere")
    out.mkdir(parents=True, exist_ok=True)
    summary = out / "summary.json"
    done = json.loads(summary.read_text()) if summary.is_file() else {}
    for piece in arguments.pieces or PIECES:
        print(f"== {piece} on {describe_device(place)}", flush=True)
        end = time.monotonic() + 60 * arguments.minutes
        how = (out, place, small, arguments.workers, end)
        if piece == "tests":
            rows = run_tests(place)
        elif piece == "engines":
            rows = run_engines(place, small)
        else:
            rows = run_chapters(*how) if piece == "chapters" else run_scale(piece, *how)
        done[piece] = {
            "device": describe_device(place),
            "torch": torch.__version__,
            "rows": [vars(row) for row in rows],
        }
        summary.write_text(json.dumps(done, indent=1) + "\n")
        print(*rows, sep="\n", flush=True)
    print(f"finished: {', '.join(done)}; {summary}")
    return int(any(row["holds"] is False for piece in done.values() for row in piece["rows"]))


if __name__ == "__main__":
    sys.exit(main())
