"""Chapter *Sample complexity*: its experiments at full scale, piece by piece, and their stored results.

From the command line (stop it at any time; started again, it goes on)::

    python -m lib.experiments.sample_complexity_at_scale --out data/results/sample_complexity

Every part gives ``<part>.npz``, arrays named ``case/size/field``, and ``<part>.json``, its provenance. Hundreds of
replicates are stored as means over a hundred equal batches: all that averages and their intervals need.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from lib import __version__
from lib.checks import check_choice, check_float, check_int
from lib.device import default_device
from lib.experiments import sample_complexity as transport
from lib.page.command_line import clear_errors, use_threads
from lib.page.stored import circumstances, write_whole
from lib.transport.quotient import Isometries

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "sample_complexity"
PARTS = ("rates", "gains")
BATCHES = 100

# Sample size → replicates. Rates have theirs in Settings.replicates.
LATTICE = {1: {64: 80_000}, 2: {64: 1600}, 3: {64: 1600}, 4: {64: 1600}}
DISC = {64: 1000, 256: 200, 1024: 40}
Piece = dict[str, np.ndarray]


@dataclass(frozen=True)
class Scale:
    """How much of the full scale is run.

    Attributes
    ----------
    share : float
        Part of the replicates, in (0, 1]; at least eight of each are kept.
    largest : int
        Largest sample size, at least 128.
    """

    share: float = 1.0
    largest: int = 2048

    def __post_init__(self) -> None:
        if not 0 < check_float("share", self.share) <= 1:
            raise ValueError(f"share must be in (0, 1], got {self.share}")
        check_int("largest", self.largest, minimum=128)

    def plan(self, replicates: dict[int, int]) -> dict[int, int]:
        """Return the replicates per sample size that are run."""
        return {n: max(8, round(self.share * r)) for n, r in replicates.items() if n <= self.largest}


@dataclass(frozen=True)
class Task:
    """One piece of a part: what it is called, its sample size, its replicates, and how to compute it."""

    case: str
    size: int
    replicates: int
    work: Callable[[], Piece]


def tasks(part: str, scale: Scale) -> list[Task]:
    """Return the pieces of one part, small samples first."""
    makers = {"rates": _rates, "gains": _gains}
    found = makers[check_choice("part", part, PARTS)]()
    chosen = [(case, n, r, work) for case, plan, work in found for n, r in scale.plan(plan).items()]
    return [Task(case, n, r, partial(work, n, r)) for case, n, r, work in sorted(chosen, key=lambda c: c[1])]


Cases = list[tuple[str, dict[int, int], Callable[[int, int], Piece]]]


def _rates() -> Cases:
    settings = transport.Settings(scale="paper")

    def work(case: tuple, n: int, count: int) -> Piece:
        return {"errors": transport.transport_errors(*case, {n: count}, settings.independent)[n]}

    cases = _rate_cases().items()
    return [(name, settings.replicates(case[0].quotient_dim), partial(work, case)) for name, case in cases]


def _rate_cases() -> dict[str, tuple[Isometries, transport.Sampler]]:
    return transport.finite_cases() | transport.infinite_cases()


def _gains() -> Cases:
    def torus(dim: int, n: int, count: int) -> Piece:
        return {str(side**dim): transport.lattice_errors(dim, side, count, n) for side in transport.SIDES[dim]}

    def disc(n: int, count: int) -> Piece:
        gain = transport.disc_gain(transport.Settings(), n, count=count)
        return {str(order): values for order, values in gain.errors.items()} | {"all": gain.all_rotations}

    return [(f"d = {dim}", plan, partial(torus, dim)) for dim, plan in LATTICE.items()] + [("disc", DISC, disc)]


# --- running ---------------------------------------------------------------------------------------------------------


def run_part(part: str, folder: str | Path, scale: Scale | None = None) -> Path:
    """Compute one part piece by piece and store the result with its provenance.

    Every finished piece is stored at once in ``<folder>/parts``; a call with the same scale goes on from there.

    Parameters
    ----------
    part
        One of ``PARTS``.
    folder
        Where the results go.
    scale
        How much is run; by default everything.

    Returns
    -------
    Path
        The JSON file.
    """
    scale, folder, arrays, seconds = scale or Scale(), Path(folder), {}, 0.0
    todo = tasks(part, scale)
    write_whole(folder / "parts" / ".gitignore", b"*\n")
    for number, task in enumerate(todo, start=1):
        key = hashlib.sha256(f"{part}/{task.case}/{task.size}/{task.replicates}/{__version__}".encode()).hexdigest()
        path = folder / "parts" / f"{part}-{key[:16]}.npz"
        piece = _stored(path) or _compute(path, task)
        seconds += float(piece.pop("seconds"))
        arrays |= {f"{task.case}/{task.size}/{field}": values for field, values in piece.items()}
        print(f"{part} {number}/{len(todo)}: {task.case}, n = {task.size}", flush=True)
    buffer, target = BytesIO(), folder / f"{part}.json"
    np.savez_compressed(buffer, **arrays)
    write_whole(folder / f"{part}.npz", buffer.getvalue())
    plan: dict[str, dict[str, int]] = {}
    for task in todo:
        plan.setdefault(task.case, {})[str(task.size)] = task.replicates
    provenance = _provenance(part, scale) | {"seconds": round(seconds, 1), "replicates": plan}
    write_whole(target, json.dumps(provenance, indent=1, ensure_ascii=False).encode())
    provenance["summary"] = summary(part, folder)
    write_whole(target, json.dumps(provenance, indent=1, ensure_ascii=False).encode())
    return target


def _stored(path: Path) -> Piece | None:
    """Return a stored piece, if there is one."""
    if not path.is_file():
        return None
    with np.load(path) as data:
        return {key: data[key] for key in data.files}


def _compute(path: Path, task: Task) -> Piece:
    """Compute a piece, store it, and return it."""
    start = time.perf_counter()
    piece = {field: _batched(values) for field, values in task.work().items()}
    piece["seconds"] = np.array(time.perf_counter() - start)
    buffer = BytesIO()
    np.savez_compressed(buffer, **piece)
    write_whole(path, buffer.getvalue())
    return piece


def _batched(values: np.ndarray) -> np.ndarray:
    """Return means over a hundred equal batches of the last axis, or the values where that is not possible."""
    if values.shape[-1] % BATCHES:
        return values
    return values.reshape(*values.shape[:-1], BATCHES, -1).mean(-1)


def _provenance(part: str, scale: Scale) -> dict[str, Any]:
    """Return what a reader needs to judge and repeat the run."""
    run = {"experiment": part, "scale": asdict(scale), "dtype": "float64"}
    return run | circumstances(default_device())


# --- reading ---------------------------------------------------------------------------------------------------------


def load(part: str, folder: str | Path = RESULTS) -> tuple[dict[str, dict[int, Piece]], dict[str, Any]]:
    """Return a stored part, ``case → sample size → field → values``, and its provenance.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / f"{check_choice('part', part, PARTS)}.json"
    if not path.is_file():
        raise ValueError(f"no full-scale result {path.name}; make it with python -m {__name__} --parts {part}")
    cases: dict[str, dict[int, Piece]] = {}
    with np.load(path.with_suffix(".npz")) as data:
        for name in data.files:
            case, size, field = name.rsplit("/", 2)
            cases.setdefault(case, {}).setdefault(int(size), {})[field] = data[name]
    return cases, json.loads(path.read_text(encoding="utf-8"))


def rates(folder: str | Path = RESULTS) -> list[transport.Convergence]:
    """Return the stored errors against n with their rates: translations of the torus, then the infinite groups."""
    stored, _ = load("rates", folder)

    def rated(cases: dict[str, tuple], leading: dict[str, float]) -> list[transport.Convergence]:
        return [
            transport.convergence_of(name, _field(stored[name], "errors"), action, leading.get(name))
            for name, (action, _) in cases.items()
        ]

    torus = rated(transport.finite_cases(), {})
    return torus + rated(transport.infinite_cases(), transport.leading_terms(torus))


def gains(folder: str | Path = RESULTS) -> list[transport.Gain]:
    """Return the stored errors against the order of the translations of the torus."""
    stored, _ = load("gains", folder)
    return [transport.gain_of(dim, _by_order(stored[f"d = {dim}"][64])) for dim in LATTICE]


def discs(folder: str | Path = RESULTS) -> dict[int, transport.DiscGain]:
    """Return the stored errors against the number of rotations of the disc, for every sample size."""
    stored, _ = load("gains", folder)
    return {n: transport.DiscGain(_by_order(piece), piece["all"]) for n, piece in stored["disc"].items()}


def _field(sizes: dict[int, Piece], field: str) -> dict[int, np.ndarray]:
    return {n: sizes[n][field] for n in sorted(sizes)}


def _by_order(piece: Piece) -> dict[int, np.ndarray]:
    return {int(order): piece[order] for order in sorted((k for k in piece if k != "all"), key=int)}


def summary(part: str, folder: str | Path = RESULTS) -> dict[str, Any]:
    """Return the numbers of a stored part that the chapter compares with theory."""
    if part == "rates":
        found = {c.name: asdict(c.rate) for c in rates(folder)}
    else:
        found = {
            f"torus, {g.name}": {"slope": g.slope, "interval": g.interval, "theory": g.theory} for g in gains(folder)
        }
        found |= {f"disc, n = {n}": {"floor": d.floor, "late_slope": d.late_slope} for n, d in discs(folder).items()}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chapter's experiments at full scale."""
    parser = argparse.ArgumentParser(prog="sample_complexity_at_scale", description=(main.__doc__ or "").strip())
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", required=True, type=Path, help="folder for results")
    parser.add_argument("--share", type=float, default=1.0, help="part of the replicates (default: all)")
    parser.add_argument("--largest", type=int, default=2048, help="largest sample size (default: 2048)")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        use_threads(given.threads)
        for part in given.parts:
            print(run_part(part, given.out, Scale(given.share, given.largest)))


if __name__ == "__main__":
    main()
