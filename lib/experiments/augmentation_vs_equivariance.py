"""Chapter *Augmentation versus equivariance*: full-scale runs of its experiments, and their stored results.

The checks of theorems are in :mod:`~lib.experiments.augmentation_theorems`, the experiments on drift in
:mod:`~lib.experiments.augmentation_drift`, tasks and sampling laws in :mod:`~lib.experiments.augmentation_tasks`.

Full scale, from the command line (stop it at any time; started again, it goes on)::

    python -m lib.experiments.augmentation_vs_equivariance --panel perm --scale paper --out data/results/augmentation
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib import __version__
from lib.checks import check_choice, check_int
from lib.device import usable_device
from lib.experiments.augmentation_drift import Drifts, Prediction, group_plan, panel_plan, predict_drift
from lib.experiments.augmentation_tasks import PANELS, SCALES, SIZES, Sizes
from lib.page.command_line import clear_errors, use_threads
from lib.page.stored import circumstances, write_whole
from lib.training.augmented_descent import History, Strategy, Task, train
from lib.training.networks import IMAGE_GROUPS

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "augmentation"
Piece = dict[str, np.ndarray]
_FIELDS = ("moved", "off", "risk")


def run_full_scale(name: str, sizes: Sizes, folder: str | Path, batches: int = 40, device: str = "cpu") -> Path:
    """Run one experiment run by run and strategy by strategy, and store the result with its provenance.

    Every finished piece is stored at once in ``<folder>/parts``; a call with the same sizes goes on from there. The
    result is ``<name>.npz`` (float32 arrays ``<strategy>/moved``, ``/off``, ``/risk`` and ``<strategy>/bias``,
    ``/noise``) and ``<name>.json`` (settings, commit, versions, device, seconds, summary).

    Parameters
    ----------
    name
        One of ``PANELS`` or ``IMAGE_GROUPS``.
    sizes
        Sizes of the experiment.
    folder
        Where the results go.
    batches
        Mini-batches used to predict the noise of sampling.
    device
        Where to compute.

    Returns
    -------
    Path
        The JSON file.
    """
    check_choice("name", name, (*PANELS, *IMAGE_GROUPS))
    check_int("batches", batches)
    usable_device("device", device)
    strategies = (panel_plan if name in PANELS else group_plan)(name, sizes)
    folder, key = Path(folder), _key(name, sizes, batches)
    write_whole(folder / "parts" / ".gitignore", b"*\n")
    pieces: dict[str, list[Piece]] = {strategy: [] for strategy in strategies}
    for run in range(sizes.runs):
        for strategy, plan in strategies.items():
            path = folder / "parts" / f"{name}-{key}-{strategy}-{run:03d}.npz"
            piece = _stored(path) or _compute(path, plan, sizes, run, batches, device)
            pieces[strategy].append(piece)
            print(f"{name} run {run + 1}/{sizes.runs} {strategy}: {piece['seconds'][0]:.1f} s", flush=True)
    return _finish(name, sizes, folder, pieces, batches, device)


def load_drifts(name: str, folder: str | Path) -> tuple[Drifts, dict[str, Any]]:
    """Return a stored full-scale result and its provenance.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"no full-scale result {path.name}; make it with python -m {__name__} --panel {name}")
    provenance = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz")) as data:
        arrays = {key: torch.from_numpy(data[key]).double() for key in data.files}
    kinds = sorted({key.split("/")[0] for key in arrays})
    histories = {k: History(*(arrays[f"{k}/{field}"] for field in _FIELDS), *provenance["seconds"][k]) for k in kinds}
    predictions = {k: Prediction(arrays[f"{k}/bias"], arrays[f"{k}/noise"]) for k in kinds if f"{k}/bias" in arrays}
    sizes = Sizes(**provenance["sizes"])
    return Drifts(name, sizes, histories, predictions, provenance["relative_dimension"]), provenance


def _key(name: str, sizes: Sizes, batches: int) -> str:
    """Hash what a piece depends on; the number of runs is left out, so that runs can be added."""
    content = json.dumps([name, asdict(replace(sizes, runs=2)), batches, __version__], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _stored(path: Path) -> Piece | None:
    """Return a stored piece, if there is one."""
    if not path.is_file():
        return None
    with np.load(path) as data:
        return {key: data[key] for key in data.files}


def _compute(path: Path, plan: tuple[Task, Strategy], sizes: Sizes, run: int, batches: int, device: str) -> Piece:
    """Train one run by one strategy, store what was recorded, and return it."""
    task, strategy = plan[0].to(torch.float32, device), plan[1]
    start = [s.to(device) for s in task.network.start(1, 0, first_run=run)]
    history = train(task, start, strategy, sizes.epochs, sizes.rate, seed=1, first_run=run)
    piece = {field: getattr(history, field).numpy() for field in _FIELDS}
    piece["seconds"] = np.array([history.seconds, history.recording_seconds])
    if strategy.law is not None and strategy.passes is not None:
        prediction = predict_drift(task, start, strategy.law, batches)
        piece |= {"bias": prediction.bias.cpu().numpy(), "noise": prediction.noise.cpu().numpy()}
    buffer = BytesIO()
    np.savez_compressed(buffer, **piece)
    write_whole(path, buffer.getvalue())
    return piece


def _finish(name: str, sizes: Sizes, folder: Path, pieces: dict[str, list[Piece]], batches: int, device: str) -> Path:
    """Join the pieces into one file of arrays and one of provenance with a summary."""
    arrays = {}
    for strategy, parts in pieces.items():
        arrays |= {f"{strategy}/{f}": np.concatenate([p[f] for p in parts], 1).astype(np.float32) for f in _FIELDS}
        arrays |= {f"{strategy}/{f}": np.concatenate([p[f] for p in parts]) for f in ("bias", "noise") if f in parts[0]}
    seconds = {key: [float(s) for s in sum(p["seconds"] for p in parts)] for key, parts in pieces.items()}
    buffer, provenance = BytesIO(), _provenance(name, sizes, device) | {"noise_batches": batches, "seconds": seconds}
    np.savez_compressed(buffer, **arrays)
    write_whole(folder / f"{name}.npz", buffer.getvalue())
    target = folder / f"{name}.json"
    write_whole(target, json.dumps(provenance, indent=1).encode())
    drifts, _ = load_drifts(name, folder)
    provenance["median_ratio_to_nominal"] = {k: float(drifts.ratio(k).median()) for k in drifts.histories}
    provenance["median_predicted_ratio"] = {k: float(drifts.predicted(k).median()) for k in drifts.predictions}
    write_whole(target, json.dumps(provenance, indent=1).encode())
    return target


def _provenance(name: str, sizes: Sizes, device: str) -> dict[str, Any]:
    """Return what a reader needs to judge and repeat the run."""
    plan = (panel_plan if name in PANELS else group_plan)(name, sizes)
    network = plan["nominal"][0].network
    return {
        "experiment": name,
        "sizes": asdict(sizes),
        "scaled_down": _scaled_down(name, sizes),
        "relative_dimension": network.equivariant_dimension / network.dimension,
        "dtype": "float32",
    } | circumstances(device)


def _scaled_down(name: str, sizes: Sizes) -> dict[str, list[float]]:
    """Return which sizes differ from the source's: ours and theirs."""
    paper = asdict(SIZES["groups" if name in IMAGE_GROUPS else name, "paper"])
    return {key: [value, paper[key]] for key, value in asdict(sizes).items() if value != paper[key]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run full-scale experiments from the command line."""
    parser = argparse.ArgumentParser(prog="augmentation_vs_equivariance", description=(main.__doc__ or "").strip())
    parser.add_argument("--panel", required=True, choices=[*PANELS, *IMAGE_GROUPS])
    parser.add_argument("--scale", default="paper", choices=SCALES)
    parser.add_argument("--out", required=True, type=Path, help="folder for results")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--noise-batches", type=int, default=40)
    for name in ("samples", "batch", "side", "channels", "runs", "epochs", "passes"):
        parser.add_argument(f"--{name}", type=int, help="replaces the scale's number")
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        use_threads(given.threads)
        sizes = SIZES["groups" if given.panel in IMAGE_GROUPS else given.panel, given.scale]
        names = ("samples", "batch", "side", "channels", "runs", "epochs", "passes")
        sizes = replace(sizes, **{name: getattr(given, name) for name in names if getattr(given, name) is not None})
        print(run_full_scale(given.panel, sizes, given.out, given.noise_batches, given.device))


if __name__ == "__main__":
    main()
