"""Games on small images: perceptrons that know how a group moves the pixels, many training sets as one batch.

Images are rows of p values in [−1, 1]; independent runs are a leading axis of images and weights.

The equivariant generator is ``g(z, σ) = R_σ g₀(z)`` with Gaussian z and uniform σ: on such noise every equivariant
generator has this form, with g₀ = g(·, 1). The invariant discriminator is ``γ(x) = (1/|Σ|) Σ_σ γ₀(R_σ x)``. They have
as many parameters as g₀ and γ₀. (Birrell, Katsoulakis, Rey-Bellet, Zhu 2022, "Structure-preserving GANs".)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, takewhile
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lib.gans.game import follow, kinds_of, step_against
from lib.gans.layers import Players, Weights, size, tied, untied
from lib.gans.objectives import objective
from lib.images.laws import TrainingSets
from lib.images.turns import Turns
from lib.progress import progress
from lib.symmetry.actions import pixels, regular, trivial
from lib.symmetry.derived import multiple

GENERATORS = ("plain", "equivariant", "incomplete")
DISCRIMINATORS = ("plain", "invariant")


@dataclass(frozen=True, eq=False)
class Generator:
    """Generators of images, one per run.

    Kinds are ``plain``; ``equivariant``: R_σ g₀(z); ``incomplete``: equivariant layers behind an unconstrained first
    one, and no σ, so that the layers respect the group and the law need not.
    """

    kind: str  #: one of ``GENERATORS``
    turns: Turns  #: the group on images
    network: Players  #: g₀: noise, then the class as a unit vector, to images
    classes: int  #: number of classes; the network is told the class if there are at least two

    def draw(self, labels: Tensor, rng: torch.Generator, coins: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return noise ``(runs, n, latent)`` and numbers of uniform group elements ``(runs, n)`` for given classes.

        Only the equivariant generator uses the elements. They have a random source of their own, ``coins``, so that
        generators of all kinds can be given the same noise.
        """
        like = self.network.parameters[0]
        shape = *labels.shape, self.network.inputs - _told(self.classes)
        z = torch.randn(shape, generator=rng, dtype=like.dtype, device=rng.device)
        which = torch.randint(self.turns.group.order, tuple(labels.shape), generator=coins, device=coins.device)
        return z.to(like.device), which.to(like.device)

    def __call__(self, z: Tensor, which: Tensor, labels: Tensor) -> Tensor:
        """Return images, shape ``(runs, n, p)``."""
        images = torch.tanh(self.network(_tell(z, labels, self.classes)))
        return self.turns.each(images, which) if self.kind == "equivariant" else images

    def sample(self, labels: Tensor, seed: int) -> Tensor:
        """Return images of given classes, one row of labels for all runs or one per run; shape ``(runs, n, p)``."""
        labels = labels.expand(self.network.runs, -1)
        rng, coins = (torch.Generator().manual_seed(2 * seed + k) for k in range(2))
        with torch.no_grad():
            return self(*self.draw(labels, rng, coins), labels)


@dataclass(frozen=True, eq=False)
class Discriminator:
    """Discriminators of images, one per run: γ₀, or its average over the group."""

    kind: str  #: ``plain`` or ``invariant``
    turns: Turns  #: the group on images
    network: Players  #: γ₀: image, then the class as a unit vector, to a score
    classes: int  #: number of classes

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return scores ``(runs, n)`` of images ``(runs, n, p)``."""
        if self.kind == "plain":
            return self.network(_tell(images, labels, self.classes))[..., 0]
        order = self.turns.group.order
        moved = _tell(self.turns.all(images).flatten(1, 2), labels.repeat_interleave(order, 1), self.classes)
        return self.network(moved)[..., 0].unflatten(1, (-1, order)).mean(-1)


@dataclass(frozen=True)
class Game:
    """A pairing and how it is trained.

    The running average of the generator's parameters is what draws the samples in the end.
    """

    pairing: str = "plain/plain"  #: ``"generator/discriminator"``, one of ``GENERATORS`` and of ``DISCRIMINATORS``
    width: int = 48  #: hidden units per layer of g₀ and γ₀
    latent: int = 16  #: dimension of z
    batch: int = 32  #: images per step
    iterations: int = 300  #: steps
    rate: float = 6e-3  #: of Adam, for both players
    penalty: float = 1.0  #: weight of the objective's gradient penalty
    decay: float = 0.99  #: weight of the past in the running average
    objective: str = "relativistic"  #: one of ``lib.gans.objectives.NAMES``
    augmented: bool = False  #: whether every training image is moved by a random element each time it is used

    def __post_init__(self) -> None:
        kinds_of(self.pairing, GENERATORS, DISCRIMINATORS)

    def layers(self, turns: Turns, classes: int) -> tuple[list[tuple[Weights, Weights]], list[tuple[Weights, Weights]]]:
        """Return matrices and biases of the layers of generator and discriminator, two hidden layers each.

        The incomplete generator, for groups that permute pixels, has as many regular channels as fit the number of
        parameters of a plain one.
        """
        told = _told(classes)
        judge = _untied([turns.dim + told, self.width, self.width, 1])
        plain = _untied([self.latent + told, self.width, self.width, turns.dim])
        if not self.pairing.startswith("incomplete"):
            return plain, judge
        if turns.between is not None:
            raise ValueError(f"group must permute pixels for the incomplete generator, got {turns.group}")
        every = (_incomplete(self.latent + told, turns, channels) for channels in range(1, self.width + 1))
        *_, widest = next(every), *takewhile(lambda layers: size(layers) <= size(plain), every)
        return widest, judge

    def parameters(self, turns: Turns, classes: int) -> int:
        """Return the number of free parameters of both players together."""
        return sum(map(size, self.layers(turns, classes)))

    def players(self, turns: Turns, sets: TrainingSets, rng: torch.Generator) -> tuple[Generator, Discriminator]:
        """Return players at their initial weights; the discriminator's are drawn first, alike in all pairings."""
        drawn, judged = self.layers(turns, sets.classes)
        judge, draw = (
            Players(ties, sets.runs, rng, sets.images.dtype).to(sets.images.device) for ties in (judged, drawn)
        )
        kind, kind_of_judge = self.pairing.split("/")
        return Generator(kind, turns, draw, sets.classes), Discriminator(kind_of_judge, turns, judge, sets.classes)


class Played(NamedTuple):
    """What a game leaves behind; the images of a run are what they would be without the other runs."""

    generator: Generator  #: with the running average of its parameters
    latest: Generator  #: with those of the last step
    discriminator: Discriminator  #: as of the last step
    diverged: Tensor  #: whether a loss or a weight of a run became infinite or NaN, shape ``(runs,)``


def play(game: Game, turns: Turns, sets: TrainingSets, seed: int = 0) -> Played:
    """Train both players on every training set at once, one step of Adam each in turn.

    Initial weights, batches and noise depend on ``seed`` and on the shapes only: pairings of one width differ in their
    players and in nothing else, but for the incomplete generator, whose weights have other shapes. Group elements come
    from a random source of their own. There is one training set per run, of images that the group can turn.
    """
    if sets.images.shape[-1] != turns.dim:
        raise ValueError(f"sets must hold images of {turns.dim} values, got {sets.images.shape[-1]}")
    rng, coins = (torch.Generator().manual_seed(2 * seed + k) for k in range(2))
    drawing, judging = game.players(turns, sets, rng)
    weights = drawing.network.parameters
    average = [p.detach().clone() for p in weights]
    rule = replace(objective(game.objective), penalty_weight=game.penalty)
    adam = {p: torch.optim.Adam(p.network.parameters, game.rate, (0.0, 0.9), fused=True) for p in (judging, drawing)}
    diverged = torch.zeros(sets.runs, dtype=torch.bool, device=sets.images.device)
    for step in progress(range(game.iterations)):
        for player in (judging, drawing):
            real, labels = sets.batch(game.batch, rng)
            if game.augmented:
                which = torch.randint(turns.group.order, tuple(labels.shape), generator=coins, device=coins.device)
                real = turns.each(real, which.to(labels.device))
            noise, score = drawing.draw(labels, rng, coins), partial(judging, labels=labels)
            if player is judging:
                with torch.no_grad():
                    fake = drawing(*noise, labels)
                loss = rule.discriminator_loss(score, real, fake, rng)
            else:
                with torch.no_grad():
                    seen = score(real)
                loss = rule.generator_loss(seen, score(drawing(*noise, labels)))
            step_against(loss, adam[player])
            diverged |= ~loss.isfinite()
        follow(average, weights, min(game.decay, (1 + step) / (10 + step)))
    finite = torch.stack([torch.isfinite(p.detach()).all(1) for p in (*average, *judging.network.parameters)])
    averaged = replace(drawing, network=drawing.network.with_parameters(average))
    return Played(averaged, drawing, judging, diverged | ~finite.all(0))


def _told(classes: int) -> int:
    """Return how many inputs the class takes: none if there is one class only."""
    return classes if classes > 1 else 0


def _tell(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return x with the class appended to each row as a unit vector, or x if there is one class only."""
    return torch.cat([x, one_hot(labels, classes).to(x)], dim=-1) if classes > 1 else x


def _untied(sizes: list[int]) -> list[tuple[Weights, Weights]]:
    return [(untied(b, a), untied(b, 1)) for a, b in pairwise(sizes)]


def _incomplete(inputs: int, turns: Turns, channels: int) -> list[tuple[Weights, Weights]]:
    hidden = multiple(regular(turns.group), channels)
    image, one = multiple(pixels(turns.group, turns.size), turns.channels), trivial(turns.group)
    first = (untied(hidden.dim, inputs), untied(hidden.dim, 1))
    return [first, (tied(hidden, hidden), tied(one, hidden)), (tied(hidden, image), tied(one, image))]
