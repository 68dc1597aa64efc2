"""Chapter *Generators of images*: pairings of players on rotated digits and on tissue, and what knowing a group saves.

All players are small multilayer perceptrons (:mod:`lib.gans.pixel_players`), judged by :mod:`lib.images.metrics`.
Claims G5, G6 and G8; the pairings are those of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving
GANs").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance, check_int
from lib.gans.pixel_games import Game, Played, TrainingSets, pad_sets, play
from lib.gans.pixel_players import Generator, Turns
from lib.images.features import FeatureClassifier, FeatureSettings, digit_classifier, tissue_classifier
from lib.images.histology import tissue_patches
from lib.images.metrics import coverage, gaussian_frechet, moments, spread
from lib.images.sets import darkest_side, digit_images
from lib.page.parameters import independent_seeds
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.transport.learning_curves import Curve, Interval, median_gap, paired_interval

PLAIN, SMART = "plain/plain", "equivariant/invariant"
PAIRINGS = (PLAIN, "plain/invariant", "equivariant/plain", "incomplete/invariant", SMART)
TURNED_DATA, EQUAL_WIDTH, EQUAL_WORK = f"{PLAIN}, turned data", f"{SMART}, equal width", f"{PLAIN}, equal work"
CONTROLS = (TURNED_DATA, EQUAL_WIDTH, EQUAL_WORK)
DIGIT_LAWS = ("turned", "eighths", "upright")
TISSUE_LAWS = ("as cut", "darkest side up")
TISSUE_SIZE = 8


@dataclass(frozen=True, eq=False)
class Task:
    """A law of images to be learnt from a sample.

    Attributes
    ----------
    law : str
        Its name.
    turns : Turns
        The group that smart players know.
    moves : Turns
        The group that makes the law from the images,
    elements : Tensor
        and the numbers of its elements that do, each equally likely: the neutral one alone if images stay as they are.
    images, labels : Tensor
        Images for training, not yet moved, shape ``(n, p)``, and their classes.
    real : Tensor
        Held-out images, not yet moved, shape ``(m, p)``.
    classes : int
        Number of classes that the players are told.
    classifier : FeatureClassifier
        Its features and labels make the scores.
    """

    law: str
    turns: Turns
    moves: Turns
    elements: Tensor
    images: Tensor
    labels: Tensor
    real: Tensor
    classes: int
    classifier: FeatureClassifier

    def moved(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """Return every image moved by a random one of the law's elements."""
        which = torch.randint(len(self.elements), images.shape[:-1], generator=rng)
        return self.moves.each(images, self.elements[which])

    def real_features(self) -> Tensor:
        """Return the features of the held-out images, each moved by every one of the law's elements."""
        return self.features(self.moves.all(self.real)[:, self.elements].flatten(0, 1))

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images ``(..., n, p)``, shape ``(..., n, d)``."""
        return self.classifier.features(self._square(images))

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the classes and orientations that the classifier sees, both ``(..., n)``."""
        seen = self.classifier.predict(self._square(images))
        return seen.classes, seen.orientations

    def _square(self, images: Tensor) -> Tensor:
        return images.unflatten(-1, (self.turns.channels, self.turns.size, self.turns.size))


@cache
def digit_task(law: str = "turned", group: FiniteGroup | None = None) -> Task:
    """Return the bundled digits of 8 × 8 pixels, 1200 for training and 597 held out, as one of three laws.

    Parameters
    ----------
    law
        ``turned``: by a random quarter turn; ``eighths``: by a random multiple of 45°, interpolated; ``upright``: as
        they are, a law without the symmetry.
    group
        What smart players know: ``Cyclic(4)`` (default), or ``Cyclic(8)`` for eighths.
    """
    check_choice("law", law, DIGIT_LAWS)
    moves = Turns(Cyclic(8 if law == "eighths" else 4))
    turns = Turns(Cyclic(4) if group is None else group)
    if turns.group not in (Cyclic(4), moves.group):
        raise ValueError(f"group must be Cyclic(4), or Cyclic(8) for eighths, got {group} for {law!r}")
    train, test = digit_images()
    return Task(
        law=law,
        turns=turns,
        moves=moves,
        elements=torch.arange(1 if law == "upright" else moves.group.order),
        images=train.images.flatten(1),
        labels=train.classes,
        real=test.images.flatten(1),
        classes=10,
        classifier=digit_classifier(FeatureSettings(orientations=moves.group.order)),
    )


@cache
def tissue_task(law: str = "as cut") -> Task:
    """Return 2048 + 2048 patches of stained tissue, 8 × 8 pixels in colour, from disjoint regions; players may know D4.

    Parameters
    ----------
    law
        ``as cut``, or ``darkest side up``: every patch turned until its darkest side is on top, a law without the
        symmetry.
    """
    check_choice("law", law, TISSUE_LAWS)
    turns, patches = Turns(Dihedral(4), TISSUE_SIZE, 3), tissue_patches(TISSUE_SIZE)
    data, real = (_darkest_up(x) if law != "as cut" else x for x in (patches.train, patches.evaluation))
    return Task(
        law=law,
        turns=turns,
        moves=turns,
        elements=turns.group.index(turns.group.identity())[None],
        images=data.flatten(1),
        labels=torch.zeros(len(data), dtype=torch.int64),
        real=real.flatten(1),
        classes=1,
        classifier=tissue_classifier(TISSUE_SIZE),
    )


def _darkest_up(images: Tensor) -> Tensor:
    side = darkest_side(images)  # a quarter turn moves it on by one
    turned = torch.stack([images.rot90(k, (-2, -1)) for k in range(4)])
    return turned[-side % 4, torch.arange(len(images))]


@dataclass(frozen=True)
class Plan:
    """Which training sets, how many seeds, and which game.

    Attributes
    ----------
    sizes : tuple of int
        Numbers of training images, increasing.
    seeds, seed : int
        Training sets of each size, each with its own moves, weights and batches, and which of them
        (:func:`~lib.page.parameters.independent_seeds`); the sets of one seed are nested. Sets of different seeds share
        images, and the largest may hold the same ones.
    game : lib.gans.pixel_games.Game
        What all pairings have in common.
    fakes, shown : int
        Generated images to be judged, and to be kept, of every run.
    workers : int
        Pairings trained at once.
    """

    sizes: tuple[int, ...] = (24, 120, 1200)
    seeds: int = 8
    game: Game = field(default_factory=Game)
    fakes: int = 600
    shown: int = 20
    workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_instance("game", self.game, Game)
        for size in check_instance("sizes", self.sizes, (tuple, list)):
            check_int("sizes", size)
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"sizes must be increasing and not empty, got {self.sizes}")
        check_int("seeds", self.seeds, minimum=2)
        check_int("seed", self.seed, minimum=0)
        check_int("fakes", self.fakes, minimum=50)
        check_int("shown", self.shown, maximum=self.fakes)
        check_int("workers", self.workers, maximum=64)


@dataclass(frozen=True, eq=False)
class Scores:
    """How one pairing did; tensors have shape ``(sizes, seeds)``.

    Attributes
    ----------
    game : lib.gans.pixel_games.Game
        The pairing.
    parameters : int
        Free parameters of both players.
    frechet : Tensor
        Fréchet distance to the held-out law in the classifier's features, squared.
    turned : Tensor
        The same for the same samples, each moved by a random element of the group afterwards.
    coverage : Tensor
        Share of held-out images with a generated one nearby.
    rarest_class, rarest_orientation : Tensor
        Share of the rarest class and orientation, as the classifier sees them, times their number: 1 is even.
    samples : Tensor
        Some generated images, shape ``(sizes, seeds, shown, p)``.
    """

    game: Game
    parameters: int
    frechet: Tensor
    turned: Tensor
    coverage: Tensor
    rarest_class: Tensor
    rarest_orientation: Tensor
    samples: Tensor


def game_of(name: str, base: Game, order: int) -> Game:
    """Return the game of one of ``PAIRINGS`` or ``CONTROLS``, for a group of an order.

    Parameters
    ----------
    name
        ``turned data`` moves every training image anew at each use; ``equal width`` divides the width by the order, so
        that the |Σ| copies of γ₀ have as many hidden units together as one plain network (and far fewer parameters; g₀
        is narrowed alike, which is hard on the smart pair);
        ``equal work`` multiplies the width by the root of the order, so that a plain discriminator costs as many
        multiplications as an invariant one (and has more parameters).
    base
        All other settings.
    order
        |Σ|.
    """
    check_choice("name", name, (*PAIRINGS, *CONTROLS))
    pairing = name.partition(",")[0].split("/")
    game = replace(base, generator=pairing[0], discriminator=pairing[1], augmented=name == TURNED_DATA)
    widths = {EQUAL_WIDTH: max(1, base.width // order), EQUAL_WORK: round(base.width * order**0.5)}
    return replace(game, width=widths.get(name, base.width))


def training_sets(task: Task, plan: Plan) -> TrainingSets:
    """Return the training sets of all sizes and seeds, size by size; every image is moved once and for all."""
    if plan.sizes[-1] > len(task.images):
        raise ValueError(f"sizes must be at most {len(task.images)}, got {plan.sizes}")
    sets = []
    for size in plan.sizes:
        for seed in independent_seeds(plan.seed, plan.seeds):
            rng = torch.Generator().manual_seed(seed)
            images = task.moved(task.images, rng)
            chosen = torch.randperm(len(images), generator=rng)[:size]
            sets.append((images[chosen], task.labels[chosen]))
    return pad_sets(sets, task.classes)


def play_one(task: Task, plan: Plan, game: Game) -> tuple[Played, Scores]:
    """Train one pairing on all training sets, and judge it."""
    played = play(game, task.turns, training_sets(task, plan), plan.seed)
    return played, judge(task, plan, game, played.generator)


def judge(task: Task, plan: Plan, game: Game, generator: Generator) -> Scores:
    """Return the scores of generators, one per training set of the plan; classes are drawn in equal shares."""
    shape, rng = (len(plan.sizes), plan.seeds), torch.Generator().manual_seed(2 * plan.seed)
    fakes = generator.sample((torch.arange(plan.fakes) % task.classes)[None], seed=2 * plan.seed + 1)
    moved = task.turns.each(fakes, torch.randint(task.turns.group.order, fakes.shape[:-1], generator=rng))
    features, law = task.features(fakes), moments(task.real_features())
    near = task.features(task.moved(task.real[: plan.fakes], rng))
    counts = (task.classifier.classes, task.classifier.orientations)
    seen = [spread(labels, count) for labels, count in zip(task.predict(fakes), counts, strict=True)]
    return Scores(
        game,
        game.parameters(task.turns, task.classes),
        gaussian_frechet(moments(features), law).view(shape),
        gaussian_frechet(moments(task.features(moved)), law).view(shape),
        coverage(near, features).view(shape),
        *((s.smallest * count).view(shape) for s, count in zip(seen, counts, strict=True)),
        fakes[:, : plan.shown].unflatten(0, shape),
    )


def contest(task: Task, plan: Plan, names: Sequence[str] = PAIRINGS) -> dict[str, Scores]:
    """Return the scores of several pairings and controls (names as for :func:`game_of`) on the same training sets."""
    games = {name: game_of(name, plan.game, task.turns.group.order) for name in names}
    with ThreadPoolExecutor(plan.workers) as pool:
        results = pool.map(lambda game: play_one(task, plan, game)[1], games.values())
        return dict(zip(games, results, strict=True))


def data_distances(task: Task, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return the Fréchet distances of the training sets themselves: as they are, and with all their moved copies.

    No generator takes part: this is what copying the training set would score. Shapes ``(sizes, seeds)``.
    """
    sets, law = training_sets(task, plan), moments(task.real_features())
    rows = []
    for images, count in zip(sets.images, sets.counts.tolist(), strict=True):
        clouds = (images[:count], task.turns.all(images[:count]).flatten(0, 1))
        rows.append(torch.stack([gaussian_frechet(moments(task.features(x)), law) for x in clouds]))
    plain, spread_out = torch.stack(rows).T.unflatten(1, (len(plan.sizes), plan.seeds))
    return plain, spread_out


def ordering_gap(table: Mapping[str, Scores], size: int = 0, worse: str = PLAIN, better: str = SMART) -> Interval:
    """Return the mean over seeds of the difference of two pairings' Fréchet distances, with its paired 95 % interval.

    ``size`` is the place of the training-set size in the plan, 0 the smallest.
    """
    return paired_interval(table[worse].frechet[size], table[better].frechet[size])


def tissue_gap(table: Mapping[str, Scores], size: int = 0) -> Interval:
    """Return the difference of median Fréchet distances, plain minus double-smart, with a 95 % bootstrap interval."""
    return median_gap(table[PLAIN].frechet[size], table[SMART].frechet[size])


def sample_curve(plan: Plan, scores: Scores, turned: bool = False) -> Curve:
    """Return the Fréchet distances of a pairing against the number of training images.

    ``turned``: of the samples moved by random elements afterwards.
    """
    return Curve(torch.tensor(plan.sizes), scores.turned if turned else scores.frechet)


def parameter_curves(
    task: Task, plan: Plan, widths: Sequence[int], names: Sequence[str] = (PLAIN, SMART)
) -> dict[str, Curve]:
    """Return the Fréchet distances of pairings against the number of parameters, at the largest size of the plan.

    Parameters
    ----------
    task, plan
        What is learnt, and how.
    widths
        Hidden units per layer, increasing.
    names
        The pairings.
    """
    largest, order = replace(plan, sizes=plan.sizes[-1:]), task.turns.group.order
    jobs = [(name, game_of(name, replace(plan.game, width=width), order)) for name in names for width in widths]
    with ThreadPoolExecutor(plan.workers) as pool:
        done = list(pool.map(lambda job: play_one(task, largest, job[1])[1], jobs))
    curves = {}
    for name in names:
        mine = [scores for (key, _), scores in zip(jobs, done, strict=True) if key == name]
        amounts = torch.tensor([scores.parameters for scores in mine])
        curves[name] = Curve(amounts, torch.cat([scores.frechet for scores in mine]))
    return curves
