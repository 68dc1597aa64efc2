"""Chapter *Structure-preserving GANs*: every pairing of players on symmetric mixtures (claims G3, G4).

:func:`contest` plays all pairings on one law and scores them; a :class:`Scores` compares two pairings seed by seed.
:mod:`lib.experiments.weak_links_laws` tests the laws of the generators (G2), and
:mod:`lib.experiments.weak_links_mechanism` explains the pairing that ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.stats import t as student_t
from torch import Tensor

from lib.checks import check_choice, check_float, check_int
from lib.gans.mixtures import Mixture, squash
from lib.gans.objectives import gaussian_kernel, mmd_loss
from lib.gans.plane_games import Game, Pairing, Settings, play
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
    """What the runs of several pairings have come to.

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
