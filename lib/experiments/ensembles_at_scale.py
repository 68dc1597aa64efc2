"""Chapter *Ensembles*: larger ensembles on the MNIST test images, resumable, and their stored results.

From the command line, case by case; checkpoints go to the cache directory of :mod:`lib.images.datasets`::

    python -m lib.experiments.ensembles_at_scale --case plus --members 128 --out data/results/ensembles
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance, check_int
from lib.device import default_device
from lib.experiments.ensembles import CASES, Case
from lib.images.datasets import cache_directory, mnist_test
from lib.page.command_line import clear_errors
from lib.page.stored import circumstances, open_folder, write_whole
from lib.training import ensemble_metrics as metrics
from lib.training.ensemble_training import Course, Plan, run_key, train_ensemble
from lib.training.ensembles import Network, orbit_logits, rotate_images

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "ensembles"


def mnist_course(case: Case, images: int, test: int) -> tuple[Course, Tensor, Tensor]:
    """Return training data of a case, the moved test images ``(|G|, n, 28, 28)``, and their classes.

    The first ``images`` of the 10 000 MNIST test images train, as in the source; the last ``test`` are held out.
    """
    check_int("images", images)
    check_int("test", test)
    x, y = mnist_test(28)
    x = x.float().unflatten(-1, (28, 28))[:, 0]
    if images + test > len(x):
        raise ValueError(f"images + test must be at most {len(x)}, got {images} + {test}")
    course = Course(rotate_images(x[:images], case.rotations).to(default_device()), y[:images].to(default_device()))
    return course, rotate_images(x[-test:], case.group).to(default_device()), y[-test:]


def run_case(
    name: str,
    members: int,
    plan: Plan,
    images: int,
    test: int,
    folder: str | Path,
    checkpoints: str | Path | None = None,
    block: int = 16,
    workers: int = 1,
) -> Path:
    """Train one case on MNIST images, and store metrics against the number of members with their provenance.

    Parameters
    ----------
    name
        One of ``CASES``.
    members
        Members of the ensemble.
    plan
        Epochs, batch, rate and seed; law, head and stream are those of the case.
    images, test
        Images for training, and for the metrics.
    folder
        Where ``<name>.json`` goes.
    checkpoints
        Where checkpoints go; a killed run that is started again continues. By default in the cache directory.
    block, workers
        Members at once, blocks at once.

    Returns
    -------
    Path
        The file.
    """
    case = CASES[check_choice("name", name, CASES)]
    for what, count in (("members", members), ("block", block), ("workers", workers)):
        check_int(what, count)
    check_instance("plan", plan, Plan)
    folder = open_folder(folder)
    course, table, labels = mnist_course(case, images, test)
    network = Network(size=28, support=case.support)
    plan = Plan(plan.epochs, plan.batch, plan.rate, plan.seed + case.seed, case.law, case.head, case.stream)
    key = run_key(network, plan, course)
    store = Path(checkpoints) if checkpoints is not None else cache_directory() / "ensembles"
    began = time.perf_counter()
    trained = train_ensemble(network, plan, course, members, block, folder=store / key, workers=workers)
    seconds = time.perf_counter() - began
    logits = orbit_logits(network, trained, table, part=8).double().cpu()
    content = {
        "case": name,
        "members": members,
        "network": asdict(network),
        "plan": asdict(plan),
        "images": images,
        "test": test,
        "rotations": case.rotations,
        "key": key,
        "seconds_of_this_call": seconds,
    }
    return _store(content | circumstances(default_device()) | table_of_metrics(logits, labels), folder, name)


def table_of_metrics(logits: Tensor, labels: Tensor, resamples: int = 30) -> dict[str, Any]:
    """Return every metric against the number of members, and of the whole ensemble with bootstraps over members.

    Parameters
    ----------
    logits
        Shape ``(m, |G|, n, classes)``.
    labels
        Classes, shape ``(n,)``.
    resamples
        Bootstrap samples.
    """
    kinds = {
        "residual": metrics.residual,
        "agreement": metrics.agreement,
        "divergence": metrics.divergence,
        "accuracy": lambda f: metrics.accuracy(f, labels),
    }
    sizes = [2**k for k in range(len(logits).bit_length())]
    squared, variance = metrics.expected_residual(logits)
    return {
        "sizes": sizes,
        "curves": {k: [float(f(metrics.block_means(logits, size)).mean()) for size in sizes] for k, f in kinds.items()},
        "whole": {k: float(f(logits.mean(0))) for k, f in kinds.items()},
        "bootstraps": {k: metrics.bootstrap(logits, f, resamples).tolist() for k, f in kinds.items()},
        "expected_squared_residual": squared,
        "variance_of_one_member": variance,
    }


def load_case(name: str, folder: str | Path = RESULTS) -> dict[str, Any]:
    """Return the stored result of a case.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / f"{_slug(check_choice('name', name, CASES))}.json"
    if not path.is_file():
        raise ValueError(
            f"no stored result {path.name}; make it with python -m {__name__} --case '{name}' --out FOLDER"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def _slug(name: str) -> str:
    return name.replace(" ", "_")


def _store(content: dict[str, Any], folder: Path, name: str) -> Path:
    target = folder / f"{_slug(name)}.json"
    write_whole(target, json.dumps(content, indent=1).encode())
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    """Train one case on MNIST images from the command line."""
    parser = argparse.ArgumentParser(prog="ensembles_at_scale", description=(main.__doc__ or "").strip())
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--members", type=int, default=128)
    parser.add_argument("--images", type=int, default=9000)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--block", type=int, default=16, help="members trained at once")
    parser.add_argument("--workers", type=int, default=1, help="blocks at once, a thread each")
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints")
    parser.add_argument("--out", required=True, type=Path, help="folder for the table")
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        torch.set_num_threads(1)
        plan = Plan(epochs=given.epochs, rate=given.rate)
        where = (given.out, given.checkpoints, given.block, given.workers)
        print(run_case(given.case, given.members, plan, given.images, given.test, *where))


if __name__ == "__main__":
    main()
