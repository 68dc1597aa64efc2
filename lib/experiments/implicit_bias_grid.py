"""Chapter *Implicit bias in Fourier space*: a grid of B1 to B4 and B6, and its stored results.

From the command line, part by part, each about a minute on one core::

    python -m lib.experiments.implicit_bias_grid --part groups --out data/results/implicit_bias
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from lib.checks import check_choice, check_int
from lib.experiments.architecture_bias import FLOW as COARSE
from lib.experiments.architecture_bias import ORDERS, compare_architectures, order_violations
from lib.experiments.implicit_bias import (
    FLOW,
    GROUPS,
    IDENTIFIABLE,
    LARGE,
    SCALE,
    BiasRun,
    MarginRun,
    circular_bias,
    diagonal_bias,
    digit_margins,
    group_bias,
)
from lib.page.command_line import clear_errors
from lib.page.stored import circumstances, open_folder, write_whole

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "implicit_bias"
PAIRS = ((0, 1), (1, 5), (2, 7), (3, 8), (4, 9))
POINTS = (8, 16, 24)  # of B6
_LOOKS = ("ranks", "cyclic_ranks", "supports")


def run_part(part: str, seeds: int, depths: Sequence[int], folder: str | Path) -> Path:
    """Run one part of the grid, and store a table with its provenance.

    Parameters
    ----------
    part
        One of ``PARTS``, for B1, B2 with B3, B4 twice, and B6.
    seeds
        Number of seeds.
    depths
        Numbers of layers of the networks.
    folder
        Where ``<part>.json`` goes.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        An unknown part, or fewer than one seed or layer.
    """
    check_choice("part", part, PARTS)
    check_int("seeds", seeds)
    for depth in depths:
        check_int("depths", depth)
    folder, began = open_folder(folder), time.process_time()
    rows = PARTS[part](seeds, depths)
    settings = {"seeds": seeds, "depths": list(depths), "scale": SCALE, "identifiable": IDENTIFIABLE}
    settings["integration"] = asdict(COARSE if part == "architectures" else FLOW)
    content = {"settings": settings} | circumstances() | {"seconds": time.process_time() - began} | rows
    target = folder / f"{part}.json"
    write_whole(target, json.dumps(content, indent=1).encode())
    return target


def _margins(seeds: int, depths: Sequence[int]) -> dict[str, Any]:
    return {"rows": [_margin_row(run) for seed in range(seeds) for run in digit_margins(PAIRS, depths, seed)]}


def _classical(seeds: int, depths: Sequence[int]) -> dict[str, Any]:
    return _biases(f(depth, s) for f in (diagonal_bias, circular_bias) for depth in depths for s in range(seeds))


def _groups(seeds: int, depths: Sequence[int]) -> dict[str, Any]:
    return _biases(group_bias(n, depth, s) for n in GROUPS if n != LARGE for depth in depths for s in range(seeds))


def _large_group(seeds: int, depths: Sequence[int]) -> dict[str, Any]:
    return _biases(group_bias(LARGE, depth, s) for depth in depths for s in range(seeds))


def _biases(runs: Iterable[BiasRun]) -> dict[str, Any]:
    runs = list(runs)
    return {"summary": summarise(runs), "rows": [_bias_row(run) for run in runs]}


def _architectures(seeds: int, depths: Sequence[int]) -> dict[str, Any]:
    rows = []
    for depth, order, points in product(depths, ORDERS, POINTS):
        found = compare_architectures(seeds, points, depth=depth, order=order)
        numbers = {key: {k: v.tolist() for k, v in getattr(found, key).items()} for key in _LOOKS}
        key = {"depth": depth, "order": order, "points": points}
        rows.append(key | {"violations": order_violations(found.ranks)} | numbers)
    return {"rows": rows}


PARTS = {
    "margins": _margins,
    "classical": _classical,
    "groups": _groups,
    "large_group": _large_group,
    "architectures": _architectures,
}


def load_part(part: str, folder: str | Path = RESULTS) -> dict[str, Any]:
    """Return a stored part of the grid.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / f"{check_choice('part', part, PARTS)}.json"
    if not path.is_file():
        raise ValueError(f"no stored result {path.name}; make it with python -m {__name__} --part {part} --out FOLDER")
    return json.loads(path.read_text(encoding="utf-8"))


def summarise(runs: Iterable[BiasRun]) -> dict[str, Any]:
    """Return, by name, the numbers of runs, the largest residual, and how often and how clearly controls failed."""
    table: dict[str, Any] = {}
    for run in runs:
        row = table.setdefault(run.name, {"runs": 0, "residual": 0.0, "ratio": float("inf"), "identifiable": {}})
        row["runs"] += 1
        row["residual"] = max(row["residual"], run.residual)
        row["ratio"] = min(row["ratio"], *run.ratios.values())
        for key, control in run.controls.items():
            row["identifiable"][key] = row["identifiable"].get(key, 0) + control.identifiable
    return table


def _margin_row(run: MarginRun) -> dict[str, Any]:
    keys = ("pair", "depth", "seed", "points", "support", "one_minus_cosine", "at_handover", "diagonal")
    return {key: getattr(run, key) for key in keys} | {"efolds": run.trained.efolds}


def _bias_row(run: BiasRun) -> dict[str, Any]:
    keys = ("name", "depth", "seed", "points", "residual", "form_a", "form_p", "at_handover", "gap", "seconds")
    ends = ("slackness", "stationarity", "temperature", "efolds", "converged")
    return (
        {key: getattr(run, key) for key in keys}
        | {key: getattr(run.trained, key) for key in ends}
        | {"random": min(run.random), "controls": {key: asdict(c) for key, c in run.controls.items()}}
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part of the grid from the command line."""
    parser = argparse.ArgumentParser(prog="implicit_bias_grid", description=(main.__doc__ or "").strip())
    parser.add_argument("--part", required=True, choices=PARTS)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--out", required=True, type=Path, help="folder for the table")
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        torch.set_num_threads(1)
        print(run_part(given.part, given.seeds, given.depths, given.out))


if __name__ == "__main__":
    main()
