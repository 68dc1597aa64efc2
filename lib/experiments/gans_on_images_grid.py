"""Chapter *Generators of images*: a larger grid of games, trained for longer, piece by piece, and its stored results.

From the command line; pieces that are there already are kept, so a killed run goes on where it stopped::

    python -m lib.experiments.gans_on_images_grid --out data/results/gans
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lib.checks import check_choice, check_int
from lib.experiments.gans_on_images import (
    PAIRINGS,
    PLAIN,
    SMART,
    TURNED_DATA,
    Plan,
    Scores,
    digit_task,
    game_of,
    play_one,
    tissue_task,
)
from lib.gans.pixel_games import Game
from lib.page.command_line import clear_errors
from lib.page.stored import circumstances, open_folder, write_whole
from lib.transport.learning_curves import Curve

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "gans"
FILE = "pixel_games.json"
TASKS = {"turned": digit_task, "upright": digit_task, "as cut": tissue_task}
KEPT = ("frechet", "turned", "coverage", "rarest_class", "rarest_orientation")


@dataclass(frozen=True)
class Grid:
    """What is run.

    Attributes
    ----------
    sizes, widths, iterations : tuple of int
        Numbers of training images; hidden units per layer, at the largest size; steps of training.
    seeds, fakes : int
        As in :class:`lib.experiments.gans_on_images.Plan`.
    game : lib.gans.pixel_games.Game
        Everything else; the average of the generator's parameters reaches back a fixed share of the training.
    """

    sizes: tuple[int, ...] = (10, 24, 60, 120, 400, 1200)
    widths: tuple[int, ...] = (6, 12, 24, 48, 96)
    iterations: tuple[int, ...] = (300, 1500)
    seeds: int = 8
    fakes: int = 600
    game: Game = field(default_factory=Game)

    def plan(self, iterations: int, sizes: tuple[int, ...], width: int | None = None) -> Plan:
        """Return the plan of one piece."""
        decay = self.game.decay ** (self.game.iterations / iterations)
        game = replace(self.game, iterations=iterations, decay=decay, width=width or self.game.width)
        return Plan(sizes, self.seeds, game, self.fakes, 1)

    def pieces(self) -> Iterator[tuple[str, str, str, Plan]]:
        """Yield key, law, pairing and plan of every piece, short ones first; the longest training has fewer."""
        for steps in self.iterations:
            short = steps < max(self.iterations)
            for name in (*PAIRINGS, TURNED_DATA) if short else (PLAIN, SMART, TURNED_DATA):
                yield piece_key("turned", name, steps), "turned", name, self.plan(steps, self.sizes)
            for name in (PLAIN, SMART):
                for law in ("upright", "as cut") if short else ():
                    yield piece_key(law, name, steps), law, name, self.plan(steps, self.sizes)
                for width in self.widths:
                    plan = self.plan(steps, self.sizes[-1:], width)
                    yield piece_key("turned", name, steps, width), "turned", name, plan


def piece_key(law: str, name: str, iterations: int, width: int | None = None) -> str:
    """Return the name of a piece of the grid; with a width, of one on the curve against parameters."""
    return f"{law} | {name} | {iterations} steps" + (f" | width {width}" if width else "")


def run_grid(grid: Grid, folder: str | Path, limit: int | None = None) -> Path:
    """Run all pieces that the file does not have yet, and store it after each of them.

    Parameters
    ----------
    grid
        What is run. A file made with other settings is not mixed with these.
    folder
        Where ``pixel_games.json`` goes.
    limit
        Run at most this many pieces.

    Raises
    ------
    ValueError
        The file holds another grid.
    """
    if limit is not None:
        check_int("limit", limit)
    path = open_folder(folder) / FILE
    settings = json.loads(json.dumps(asdict(grid)))
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"settings": settings, "pieces": {}}
    if content["settings"] != settings:
        raise ValueError(f"folder holds a grid with other settings: {path.name}; give another folder")
    missing = [piece for piece in grid.pieces() if piece[0] not in content["pieces"]]
    for key, law, name, plan in missing[:limit]:
        began = time.process_time()
        task = TASKS[law](law)
        _, scores = play_one(task, plan, game_of(name, plan.game, task.turns.group.order))
        seconds = round(time.process_time() - began, 1)
        content["pieces"][key] = _numbers(plan, scores) | {"processor_seconds": seconds}
        write_whole(path, (json.dumps(content | circumstances("cpu"), indent=1) + "\n").encode())
    return path


def _numbers(plan: Plan, scores: Scores) -> dict[str, Any]:
    tables = {name: _rounded(getattr(scores, name)) for name in KEPT}
    return {"sizes": list(plan.sizes), "parameters": scores.parameters} | tables


def _rounded(x: torch.Tensor) -> list[list[float]]:
    """Return the entries with five significant digits."""
    return [[float(f"{v:.5g}") for v in row] for row in x.tolist()]


def load_grid(folder: str | Path = RESULTS) -> dict[str, Any]:
    """Return the stored grid: settings, circumstances, and ``pieces`` by :func:`piece_key`.

    Raises
    ------
    ValueError
        There is none in the folder.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise ValueError(f"folder has no {FILE}; make it with python -m {__name__} --out FOLDER")
    return json.loads(path.read_text(encoding="utf-8"))


def stored_sample_curve(
    grid: dict[str, Any], name: str, iterations: int, law: str = "turned", score: str = "frechet"
) -> Curve:
    """Return a stored score against the number of training images."""
    check_choice("score", score, ("frechet", "turned"))
    piece = grid["pieces"][check_choice("piece", piece_key(law, name, iterations), grid["pieces"])]
    return Curve(torch.tensor(piece["sizes"]), torch.tensor(piece[score], dtype=torch.float64))


def stored_parameter_curve(grid: dict[str, Any], name: str, iterations: int) -> Curve:
    """Return the stored Fréchet distances against the number of parameters, at the largest training size."""
    keys = [piece_key("turned", name, iterations, width) for width in grid["settings"]["widths"]]
    pieces = [grid["pieces"][check_choice("piece", key, grid["pieces"])] for key in keys]
    scores = torch.tensor([piece["frechet"][0] for piece in pieces], dtype=torch.float64)
    return Curve(torch.tensor([piece["parameters"] for piece in pieces]), scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the grid from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--limit", type=int, help="run at most this many pieces")
    parser.add_argument("--seeds", type=int, default=Grid.seeds, help="training sets per size")
    options = parser.parse_args(arguments)
    with clear_errors(parser):
        torch.set_num_threads(1)
        run_grid(Grid(seeds=options.seeds), options.out, options.limit)


if __name__ == "__main__":
    main()
