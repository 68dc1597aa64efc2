"""Chapter *Mean-field dynamics*: settings, and the grid at large N with stored results.

The setting is in :mod:`~lib.experiments.mean_field_source`, the grid and its controls in
:mod:`~lib.experiments.mean_field_grid`.

Large N, from the command line (stop it at any time; started again, it goes on)::

    python -m lib.experiments.mean_field_dynamics --particles 1000 --out data/results/mean_field
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib import __version__
from lib.checks import check_choice, check_float, check_int
from lib.experiments.mean_field_grid import Ends, Table, measure, train_networks
from lib.page.command_line import clear_errors, use_threads
from lib.page.parameters import independent_seeds
from lib.page.stored import circumstances, write_whole
from lib.training.mean_field_descent import TRAININGS, Descent

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "mean_field"
LARGEST_CLOUD = 4000
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Settings:
    """What the chapter runs live.

    Attributes
    ----------
    largest : int
        Largest number of particles N, at least 20; the others are 5, 10, 20, … doubling.
    seeds : int
        Repetitions, at least 4.
    time : float
        T; training takes N·T steps.
    workers : int
        Trainings at the same time.
    seed : int
        Number of the independent set of repetitions.
    """

    largest: int = 80
    seeds: int = 10
    time: float = 20.0
    workers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("largest", self.largest, minimum=20)
        check_int("seeds", self.seeds, minimum=4)
        check_float("time", self.time, minimum=0.0)
        check_int("workers", self.workers)
        check_int("seed", self.seed, minimum=0)

    @property
    def sizes(self) -> list[int]:
        """The numbers of particles."""
        return [5 * 2**k for k in range((self.largest // 5).bit_length())]

    @property
    def plan(self) -> dict[int, list[int]]:
        """The seeds at every number of particles, none of them twice."""
        seeds = independent_seeds(self.seed, self.seeds * len(self.sizes))
        return {n: seeds[k * self.seeds : (k + 1) * self.seeds] for k, n in enumerate(self.sizes)}

    def run(self) -> tuple[dict[int, Ends], Table]:
        """Train the whole grid; return the trained clouds and their distances, by N."""
        descent = Descent(time=self.time)
        ends = {n: train_networks(n, seeds, descent=descent, workers=self.workers) for n, seeds in self.plan.items()}
        return ends, {n: measure(end) for n, end in ends.items()}


def run_large(
    count: int, seeds: int, folder: str | Path, dtype: str = "float32", schemes: Sequence[str] = TRAININGS
) -> Path:
    """Train the grid at one N seed by seed and scheme by scheme, and store its distances with their provenance.

    Every trained cloud is stored at once in ``<folder>/parts`` (not kept under version control); a call with the same
    settings goes on from there. The result is ``grid-<N>.json``, with the first ``LARGEST_CLOUD`` trained particles of
    the network ``WI``, ``arbitrary`` (one seed after the other) in ``cloud-<N>.npz``.

    Parameters
    ----------
    count
        N.
    seeds
        Repetitions, at least 2: distances between independent runs need pairs.
    folder
        Where the result goes.
    dtype
        ``"float32"`` or ``"float64"``.
    schemes
        Some of ``TRAININGS``.

    Returns
    -------
    Path
        The JSON file.
    """
    check_int("count", count)
    check_int("seeds", seeds, minimum=2)
    kind = DTYPES[check_choice("dtype", dtype, DTYPES)]
    folder = Path(folder)
    write_whole(folder / "parts" / ".gitignore", b"*\n")
    ends, seconds = {scheme: [] for scheme in schemes}, 0.0
    for seed in range(seeds):
        for scheme in schemes:
            path = folder / "parts" / f"{_key(count, dtype)}-{count}-{scheme}-{seed:02d}.npz"
            end, spent = _stored(path) or _compute(path, count, seed, scheme, kind)
            ends[scheme].append(end)
            seconds += spent
            print(f"N = {count}, seed {seed + 1}/{seeds}, {scheme}: {spent:.1f} s", flush=True)
    joined = {scheme: torch.cat(parts) for scheme, parts in ends.items()}
    distances = measure(joined)
    record = _provenance(count, seeds, dtype) | {
        "seconds": round(seconds, 1),
        "distances": {key: [[float(f"{v:.5g}") for v in row] for row in d.tolist()] for key, d in distances.items()},
    }
    clouds = {scheme: end[:, 0].flatten(0, 1)[:LARGEST_CLOUD].float().numpy() for scheme, end in joined.items()}
    _save(folder / f"cloud-{count}.npz", **clouds)
    target = folder / f"grid-{count}.json"
    write_whole(target, (json.dumps(record, indent=1) + "\n").encode())
    return target


def load_large(folder: str | Path = RESULTS) -> tuple[Table, dict[int, dict[str, Any]]]:
    """Return the stored tables by N, and their provenance.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    records = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("grid-*.json")]
    if not records:
        raise ValueError(f"folder must hold results grid-*.json; make them with python -m {__name__} --particles N")
    records.sort(key=lambda record: record["particles"])
    table = {
        record["particles"]: {
            key: torch.tensor(rows, dtype=torch.float64) for key, rows in record.pop("distances").items()
        }
        for record in records
    }
    return table, {record["particles"]: record for record in records}


def load_cloud(count: int, scheme: str, folder: str | Path = RESULTS) -> Tensor:
    """Return stored trained particles of the network ``("WI", "arbitrary")``, shape ``(n, 4)``, float64.

    Raises
    ------
    ValueError
        None are stored.
    """
    path = Path(folder) / f"cloud-{count}.npz"
    if not path.is_file():
        raise ValueError(f"no stored cloud {path.name}; make it with python -m {__name__} --particles {count}")
    with np.load(path) as data:
        return torch.from_numpy(data[check_choice("scheme", scheme, data.files)]).double()


def _key(count: int, dtype: str) -> str:
    """Hash what a trained cloud depends on besides seed and scheme."""
    content = json.dumps([count, dtype, asdict(Descent()), __version__], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _stored(path: Path) -> tuple[Tensor, float] | None:
    if not path.is_file():
        return None
    with np.load(path) as data:
        return torch.from_numpy(data["end"]), float(data["seconds"])


def _compute(path: Path, count: int, seed: int, scheme: str, dtype: torch.dtype) -> tuple[Tensor, float]:
    begin = time.perf_counter()
    end = train_networks(count, [seed], [scheme], dtype=dtype, workers=1)[scheme]
    seconds = time.perf_counter() - begin
    _save(path, end=end.numpy(), seconds=np.array(seconds))
    return end, seconds


def _save(path: Path, **arrays: np.ndarray) -> None:
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue())


def _provenance(count: int, seeds: int, dtype: str) -> dict[str, Any]:
    """Return what a reader needs to judge and repeat the run."""
    run = {"particles": count, "seeds": seeds, "descent": asdict(Descent()), "dtype": dtype}
    return run | circumstances()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the source's grid at large N and store its distances."""
    parser = argparse.ArgumentParser(prog="mean_field_dynamics", description=(main.__doc__ or "").strip())
    parser.add_argument("--particles", type=int, required=True, nargs="+", metavar="N")
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--schemes", nargs="+", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        use_threads(given.threads)
        for count in given.particles:
            print(run_large(count, given.seeds, given.out, given.dtype, given.schemes))


if __name__ == "__main__":
    main()
