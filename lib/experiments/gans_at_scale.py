"""Chapter *GANs on images*: convolutional players on rotated digits, MNIST and tissue, piece by piece, with controls.

From the command line (stop it at any time; started again, it goes on)::

    python -m lib.experiments.gans_at_scale --data mnist --size 14 --shares .01 --seeds 3 --out data/results/gans

Every call gives ``<name>.json``, scores and provenance, and ``<name>.npz``, small grids of generated images. A case is
written ``PAIRING@GROUP+AUGMENTATION``, see :mod:`lib.experiments.gan_pieces`. A piece with a plain generator is also
scored after its samples have been turned at random: a control.
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
from lib.device import default_device, usable_device
from lib.experiments.gan_pieces import CASES, MATCHES, ROTATIONS, Case, Plan, classifier, real_scores, run_piece
from lib.gans.objectives import NAMES
from lib.gans.settings import Settings, build_players
from lib.page.command_line import clear_errors, use_threads
from lib.page.stored import circumstances, open_folder, write_whole

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "gans"


def run_grid(
    plan: Plan,
    folder: str | Path,
    checkpoints: str | Path | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
    name: str = "",
) -> Path:
    """Run every case, share and seed of a plan and store the table with its provenance.

    Every finished piece is stored at once in ``<folder>/parts``, and unfinished ones have their checkpoints, so that a
    call that was killed goes on where it stopped. Pieces of earlier calls with other cases or seeds are used again.

    Parameters
    ----------
    plan
        What to run.
    folder
        Where the results go.
    checkpoints
        Where checkpoints go, and stay; by default in ``<folder>/parts``, until their piece is finished.
    device
        Where to train.
    progress
        Whether to show the time left on standard error.
    name
        Of the files; by default data, size and what is matched, as ``"mnist_14_parameters"``.

    Returns
    -------
    Path
        The JSON file.

    Raises
    ------
    ValueError
        Sizes or channels that do not fit a player.
    """
    usable_device("device", device)
    for case in map(Case.parse, plan.cases):  # what does not fit is refused before any work
        build_players(plan.settings(case, 0), plan.size, plan.colours)
    if checkpoints is not None:
        open_folder(checkpoints)
    folder, pieces, grids = Path(folder), [], {}
    write_whole(folder / "parts" / ".gitignore", b"*\n")
    for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
        for share in plan.shares:
            for case in map(Case.parse, plan.cases):
                kept = None if checkpoints is None else Path(checkpoints)
                piece, grid = _piece(plan, case, share, seed, folder / "parts", kept, device, progress)
                pieces.append(piece)
                grids[f"{case}/{share:g}/{seed}"] = grid
    buffer, judge = BytesIO(), classifier(plan)
    np.savez_compressed(buffer, **grids)
    write_whole(folder / f"{name or plan.name}.npz", buffer.getvalue())
    content = {
        "plan": asdict(plan) | {"rotations": plan.turned},
        **circumstances(device),
        "seconds": sum(piece["seconds"] for piece in pieces),
        "classifier": {"class_accuracy": judge.class_accuracy, "orientation_accuracy": judge.orientation_accuracy},
        "real": real_scores(plan),
        "pieces": pieces,
    }
    target = folder / f"{name or plan.name}.json"
    write_whole(target, json.dumps(content, indent=1).encode())
    return target


def _piece(
    plan: Plan,
    case: Case,
    share: float,
    seed: int,
    parts: Path,
    checkpoints: Path | None,
    device: torch.device | str,
    progress: bool,
) -> tuple[dict[str, Any], np.ndarray]:
    """Return a piece from its file, or compute and store it."""
    own = replace(plan, cases=(str(case),), shares=(share,), seeds=1, first_seed=seed, rotations=plan.turned)
    key = hashlib.sha256(json.dumps([asdict(own), __version__], sort_keys=True).encode()).hexdigest()[:16]
    path = parts / f"{plan.name}-{key}.json"
    if not path.is_file():
        checkpoint = (checkpoints or parts) / f"{plan.name}-{key}.pt"
        content, grid = run_piece(plan, case, share, seed, device, checkpoint, progress)
        write_whole(path, json.dumps(content | {"grid": grid.tolist()}).encode())
        if checkpoints is None:
            checkpoint.unlink(missing_ok=True)
    piece = json.loads(path.read_text(encoding="utf-8"))
    return piece, np.array(piece.pop("grid"), dtype=np.uint8)


def load(name: str, folder: str | Path = RESULTS) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a stored table, and grids of generated images by ``case/share/seed``.

    Parameters
    ----------
    name
        As for :func:`run_grid`.
    folder
        Where it is.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"no stored result {path.name}; make it with python -m {__name__} --name {name} --out FOLDER")
    with np.load(path.with_suffix(".npz")) as data:
        grids = {key: data[key] for key in data.files}
    return json.loads(path.read_text(encoding="utf-8")), grids


def frechet_of(table: dict[str, Any], case: str, turned: str | None = None) -> torch.Tensor:
    """Return the Fréchet distances of one case of a stored table, shape ``(shares, seeds)``.

    Parameters
    ----------
    table
        As :func:`load` returns it.
    case
        As written in the table, for example ``"plain/plain"``.
    turned
        Of the same samples after each has been moved by a random element of this group, stored for plain generators.

    Raises
    ------
    ValueError
        The table does not have these scores.
    """
    found = [p for p in table["pieces"] if p["case"] == case]
    if not found:
        raise ValueError(f"case must be one of {sorted({p['case'] for p in table['pieces']})}, got {case!r}")
    if turned is not None and any(turned not in p.get("turned", {}) for p in found):
        raise ValueError(f"turned must be None or a group stored for {case!r}, got {turned!r}")
    seeds, shares = sorted({p["seed"] for p in found}), table["plan"]["shares"]
    scores = torch.empty(len(shares), len(seeds), dtype=torch.float64)
    for p in found:
        chosen = p["scores"] if turned is None else p["turned"][turned]
        scores[shares.index(p["share"]), seeds.index(p["seed"])] = chosen["frechet"]
    return scores


def main(arguments: Sequence[str] | None = None) -> None:
    """Train pairs of convolutional players on images from the command line."""
    parser = argparse.ArgumentParser(prog="gans_at_scale", description=(main.__doc__ or "").strip())
    parser.add_argument("--data", choices=ROTATIONS, default="mnist")
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--rotations", choices=("none", "turns", "any"), default="")
    parser.add_argument("--pairings", nargs="+", default=list(CASES), help="PAIRING@GROUP+AUGMENTATION")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--match", choices=MATCHES, default="parameters")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--channels", type=int, default=64, help="of plain players")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--objective", choices=NAMES, default="relativistic")
    parser.add_argument("--penalty", type=float, help="weight of the gradient penalty; default: the objective's own")
    parser.add_argument("--rates", nargs=2, type=float, default=[1e-4, 4e-4], help="of generator and discriminator")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--device", default=str(default_device()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--name", default="", help="of the files; default DATA_SIZE_MATCH")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        plan = _plan(given)
        use_threads(given.threads)
        print(run_grid(plan, given.out, given.checkpoints, given.device, not given.quiet, given.name))


def _plan(given: argparse.Namespace) -> Plan:
    training = Settings(
        objective=given.objective,
        penalty_weight=given.penalty,
        classes=1 if given.data == "histology" else 10,
        generator_channels=given.channels,
        discriminator_channels=given.channels,
        batch=given.batch,
        iterations=given.iterations,
        generator_rate=given.rates[0],
        discriminator_rate=given.rates[1],
        ema_decay=given.ema,
    )
    grid = (tuple(given.pairings), tuple(given.shares), given.seeds, given.first_seed, given.match)
    return Plan(given.data, given.size, given.rotations, *grid, training)


if __name__ == "__main__":
    main()
