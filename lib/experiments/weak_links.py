"""Chapter *Structure-preserving GANs*: every pairing of players on symmetric mixtures (claims G3, G4).

:func:`contest` plays all pairings on one law and scores them; a :class:`Scores` compares two pairings seed by seed.
:mod:`lib.experiments.weak_links_laws` tests the laws of the generators (G2), and
:mod:`lib.experiments.weak_links_mechanism` explains the pairing that ties. Run as a module, this one plays a larger
grid and keeps it in files, piece by piece: ``python -m lib.experiments.weak_links --out data/results/gans``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student_t
from torch import Tensor

from lib.checks import check_choice, check_float, check_int
from lib.gans.mixtures import Mixture, gaussian_mixture, squash, student_mixture
from lib.gans.objectives import gaussian_kernel, mmd_loss
from lib.gans.plane_games import MATCHED, Game, Pairing, Settings, play
from lib.page.command_line import clear_errors
from lib.page.stored import circumstances, open_folder, write_whole
from lib.transport.divergences import w1
from lib.transport.quotient import linear, no_group
from lib.transport.two_sample import random_move

SMART = Pairing("equivariant", "averaged")
PLAIN = Pairing("plain", "plain")
WEAK = (PLAIN, Pairing("plain", "averaged"), Pairing("incomplete", "averaged"))
PAIRINGS = (*WEAK, Pairing("equivariant", "plain"), SMART)
TURNED = "plain/plain, samples turned"
BANDWIDTHS = (1.0, 2.0, 4.0)  # of the bounded kernel; the square has radius 3
SKEWED = (0.7, 0.1, 0.1, 0.1)  # chances of the pieces in a law without the symmetry
EVERY = tuple(Pairing(g, d) for g in ("plain", "equivariant", "incomplete") for d in ("plain", "averaged", "invariant"))


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval (Student's t over the seeds)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Scores:
    """What the runs of several pairings have come to; all fields can be stored as JSON.

    Attributes
    ----------
    distance : str
        The score that measures quality: ``"w1"``, or ``"mmd"`` where W1 is infinite.
    samples : list of int
        Numbers of training points.
    values : dict of str to dict of str to Tensor
        For each pairing and each score, shape ``(samples, seeds)``. ``w1`` and ``w1_invariant``: Wasserstein-1 distance
        to the true law and its quotient by the turns, for heavy tails of squashed points; ``mmd``: root of the squared
        MMD with a sum of bounded kernels, on points as they are, heavy tails only; ``smallest_share``: share of points
        in the emptiest sector.
    floor : dict of str to Tensor
        The same scores for independent samples of the true law, shape ``(seeds,)``.
    diverged : dict of str to Tensor
        Whether a run diverged, shape ``(samples, seeds)``.
    parameters : dict of str to list of int
        Free parameters of generator and discriminator.
    """

    distance: str
    samples: list[int]
    values: dict[str, dict[str, Tensor]]
    floor: dict[str, Tensor]
    diverged: dict[str, Tensor]
    parameters: dict[str, list[int]]

    def gap(self, weak: str | Pairing, size: int, strong: str | Pairing = SMART) -> Interval:
        """Return the distance of one pairing minus that of another, paired by seed, at one number of points."""
        row = self.samples.index(check_choice("size", size, self.samples))
        a, b = (self.values[check_choice("pairing", str(p), self.values)][self.distance][row] for p in (weak, strong))
        return interval(a - b)

    def weak_link_gap(self, weak: Sequence[Pairing] = WEAK) -> float:
        """Return the smallest lower end of :meth:`gap` over weak pairings and numbers of training points."""
        return min(self.gap(pairing, size).low for pairing in weak for size in self.samples)

    def collapsed(self, pairing: str | Pairing, ratio: float = 3.0, empty: float = 0.05) -> Tensor:
        """Return which runs collapsed: a sector nearly empty, and W1 far larger than its quotient by the turns.

        Parameters
        ----------
        pairing
            The pairing.
        ratio
            How many times larger.
        empty
            Share of points below which a sector counts as empty; a fair share is 1/4.

        Returns
        -------
        Tensor
            Booleans, shape ``(samples, seeds)``.
        """
        score = self.values[check_choice("pairing", str(pairing), self.values)]
        check_float("ratio", ratio, minimum=1.0)
        check_float("empty", empty, minimum=0.0, maximum=0.25)
        return (score["smallest_share"] <= empty) & (score["w1"] >= ratio * score["w1_invariant"])


def interval(differences: Tensor, level: float = 0.95) -> Interval:
    """Return mean and interval ``mean ± t · s/√n`` of one number per seed; without end where one is not finite."""
    n = len(differences)
    check_int("the number of seeds", n, minimum=2)
    if not bool(torch.isfinite(differences).all()):
        return Interval(float("nan"), float("-inf"), float("inf"))
    mean = float(differences.mean())
    half = float(student_t.ppf((1 + level) / 2, n - 1) * differences.std() / n**0.5)
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True, eq=False)
class Contest:
    """Games and what they came to.

    Attributes
    ----------
    games : dict of str to Game
        The games by the names of their pairings.
    scores : Scores
        Their scores.
    """

    games: dict[str, Game]
    scores: Scores


def contest(settings: Settings, target: Mixture, pairings: Sequence[Pairing] = PAIRINGS, points: int = 400) -> Contest:
    """Play pairings on one law and score what they generate.

    Every run is compared with the same reference points of the true law, seed by seed. Where plain plays against
    plain, its points turned by random elements afterwards are scored too, under the name ``TURNED``.

    Parameters
    ----------
    settings
        How to play; heavy tails need ``squashed``.
    target
        The law.
    pairings
        The pairings.
    points
        Generated points of each run, and points of the reference.
    """
    check_int("points", points, minimum=4)
    games = {str(g.pairing): g for g in play(settings, pairings, target)}
    rng = torch.Generator().manual_seed(3 * settings.seed + 10**6)
    truth, fresh = (draw((settings.seeds, points), rng, torch.float64) for draw in (target.reference, target.sample))
    every = truth.repeat(len(settings.samples), 1, 1)
    values = {}
    for name, game in games.items():
        drawn = game.draw(points, torch.Generator().manual_seed(3 * settings.seed + 10**6 + 1)).double()
        values[name] = _score(drawn, every, target)
        if game.pairing == PLAIN:
            values[TURNED] = _score(random_move(target.representation, identity=True)(drawn, rng), every, target)
    shape = (len(settings.samples), settings.seeds)
    scores = Scores(
        distance="mmd" if _is_heavy(target) else "w1",
        samples=list(settings.samples),
        values={name: {k: v.reshape(shape) for k, v in score.items()} for name, score in values.items()},
        floor=_score(fresh, truth, target),
        diverged={name: game.diverged.reshape(shape) for name, game in games.items()},
        parameters={name: [g.generator.per_run, g.judge.per_run] for name, g in games.items()},
    )
    return Contest(games, scores)


def _is_heavy(target: Mixture) -> bool:
    return target.freedom is not None and target.freedom <= 1


def _score(drawn: Tensor, truth: Tensor, target: Mixture) -> dict[str, Tensor]:
    """Return the scores of points ``(runs, n, dim)`` against reference points, each of shape ``(runs,)``.

    A run whose points are not finite gets the score NaN and an empty sector.
    """
    names = ("w1", "w1_invariant", *(("mmd",) if _is_heavy(target) else ()))
    scores = {name: drawn.new_full((len(drawn),), float("nan")) for name in names}
    scores["smallest_share"] = drawn.new_zeros(len(drawn))
    good = torch.isfinite(drawn).all(-1).all(-1)
    if not bool(good.any()):
        return scores
    x, y = drawn[good], truth[good]
    seen = [squash(x), squash(y)] if _is_heavy(target) else [x, y]
    for name, action in (("w1", no_group(target.dim)), ("w1_invariant", linear(target.representation))):
        scores[name][good] = x.new_tensor([w1(ours, true, action) for ours, true in zip(*seen, strict=True)])
    if _is_heavy(target):
        scores["mmd"][good] = mmd_loss(x, y, gaussian_kernel(BANDWIDTHS)).clamp_min(0).sqrt()
    scores["smallest_share"][good] = target.shares(x).amin(-1)
    return scores


@dataclass(frozen=True)
class Piece:
    """One part of the stored grid: which law with which weights, how it is played, how many points are scored."""

    law: str
    weights: tuple[float, ...]
    settings: Settings
    points: int = 500

    @property
    def target(self) -> Mixture:
        """The law."""
        return {"gaussian": gaussian_mixture, "student": student_mixture}[self.law](weights=self.weights)


def grid(settings: Settings, points: int = 500) -> dict[str, Piece]:
    """Return the pieces of the larger grid: two laws × two matchings, a law without symmetry, and raw heavy tails.

    Parameters
    ----------
    settings
        Seeds, numbers of training points, iterations and all else that the pieces share.
    points
        Generated points of each run that are scored.
    """
    fair, skewed = (0.25,) * 4, SKEWED
    pieces = {}
    for law in ("gaussian", "student"):
        ready = replace(settings, squashed=law == "student")
        for matched in MATCHED:
            pieces[f"{law}_{matched}"] = Piece(law, fair, replace(ready, matched=matched), points)
        pieces[f"{law}_skewed"] = Piece(law, skewed, ready, points)
    pieces["student_raw"] = Piece("student", fair, replace(settings, squashed=False), points)
    return pieces


def run_piece(piece: Piece, path: Path) -> Path:
    """Play one piece and store its scores as JSON, with settings and provenance; a finished piece is kept.

    Raises
    ------
    ValueError
        The file holds a piece played with other settings.
    """
    played = json.loads(json.dumps(asdict(piece)))
    if path.exists():
        if json.loads(path.read_text())["piece"] != played:
            raise ValueError(f"path must be new or hold the same piece, but {path.name} was played with other settings")
        return path
    open_folder(path.parent)
    begun = time.process_time()
    pairings = (*EVERY, Pairing("plain", "plain", turned_data=True))
    scores = contest(piece.settings, piece.target, pairings, piece.points).scores
    record = {"piece": played, "scores": _listed(asdict(scores)), "cpu_seconds": round(time.process_time() - begun)}
    text = json.dumps(record | {"circumstances": circumstances()}, indent=1)
    write_whole(path, text.encode())
    return path


def load(path: str | Path) -> Scores:
    """Return the scores that :func:`run_piece` has stored."""
    stored = json.loads(Path(path).read_text())["scores"]
    tensors = {
        name: {key: torch.tensor(value, dtype=torch.float64) for key, value in row.items()}
        for name, row in stored["values"].items()
    }
    floor = {name: torch.tensor(value, dtype=torch.float64) for name, value in stored["floor"].items()}
    diverged = {name: torch.tensor(value) for name, value in stored["diverged"].items()}
    return Scores(stored["distance"], stored["samples"], tensors, floor, diverged, stored["parameters"])


def _listed(value: Any) -> Any:
    """Return nested dictionaries with tensors turned into lists, six digits each."""
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in value.items()}
    if isinstance(value, Tensor):
        return value.tolist() if value.dtype == torch.bool else value.double().mul(1e6).round().div(1e6).tolist()
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the larger grid from the command line, piece by piece; finished pieces are skipped."""
    parser = argparse.ArgumentParser(prog="weak_links", description=(main.__doc__ or "").strip())
    parser.add_argument("--out", required=True, type=Path, help="folder for the scores")
    parser.add_argument("--pieces", nargs="*", help="names of pieces, default all")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--samples", type=int, nargs="+", default=[200, 100, 50])
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--objective", default=Settings.objective)
    parser.add_argument("--points", type=int, default=500, help="generated points that are scored")
    given = parser.parse_args(arguments)
    with clear_errors(parser):
        torch.set_num_threads(1)
        batch = min(Settings.batch, *given.samples)
        common = Settings(given.seeds, tuple(given.samples), given.iterations, batch, objective=given.objective)
        pieces = grid(common, given.points)
        for name in given.pieces or pieces:
            run_piece(pieces[check_choice("pieces", name, pieces)], given.out / f"weak_links_{name}.json")


if __name__ == "__main__":
    main()
