"""Chapter *Structure-preserving GANs*: what trained discriminators say a divergence is, against what it is (G7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from lib.checks import check_float, check_int
from lib.gans.known_pairs import Pair, gaussian_mmd, gaussian_sinkhorn, shifted_gaussians, tilted_uniform, two_bumps
from lib.gans.objectives import (
    NAMES,
    Objective,
    gaussian_kernel,
    gradient_penalty,
    mmd_loss,
    objective,
    sinkhorn_loss,
)
from lib.gans.plane_players import Network, untied

_BETAS = (0.5, 0.9)  # of Adam
BANDWIDTHS = (0.5, 1.0, 2.0)
EPSILON = 0.5
SHIFT, SCALE = 1.0, 2.0  # of the Gaussian whose distance from N(0, 1) is measured without a discriminator


@dataclass(frozen=True)
class Settings:
    """How discriminators on the line are trained and evaluated.

    Attributes
    ----------
    seeds : int
        Values for each pair of laws.
    restarts : int
        Discriminators for each value, of which the best counts: every γ gives a lower bound of the supremum, and about
        one training in a hundred ends early at a slope below 1, where the one-sided penalty has a kink.
    steps, constrained_steps : int
        Steps of Adam, each with fresh samples; the second for objectives whose penalty stands for a constraint.
    batch : int
        Points of each law in a step.
    width : int
        Hidden units in each of two layers.
    rate : float
        First step size; it falls to zero as the square of the time left.
    nodes : int
        Quantiles of each law on which the result is evaluated.
    replicates : int
        Samples of 32 points over which the estimate of MMD is averaged.
    seed : int
        Source of all randomness.
    """

    seeds: int = 3
    restarts: int = 2
    steps: int = 300
    constrained_steps: int = 900
    batch: int = 128
    width: int = 16
    rate: float = 0.01
    nodes: int = 4000
    replicates: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("seeds", "restarts", "steps", "constrained_steps", "width", "replicates"):
            check_int(name, getattr(self, name))
        check_int("batch", self.batch, minimum=2)
        check_int("nodes", self.nodes, minimum=100)
        check_int("seed", self.seed, minimum=0)
        check_float("rate", self.rate, minimum=1e-6, maximum=0.1)


@dataclass(frozen=True, eq=False)
class Values:
    """Values that trained discriminators reach, with the closed forms.

    Attributes
    ----------
    rule : Objective
        What was maximised.
    pairs : tuple of Pair
        The pairs of laws.
    measured : Tensor
        H(γ; Q, P) − weight · penalty at the trained γ, shape ``(pairs, seeds)``.
    unpenalised : Tensor
        H(γ; Q, P) alone, same shape.
    network : lib.gans.plane_players.Network
        The best discriminators, one run for each pair and seed.
    """

    rule: Objective
    pairs: tuple[Pair, ...]
    measured: Tensor
    unpenalised: Tensor
    network: Network

    @property
    def closed(self) -> Tensor:
        """Closed forms, shape ``(pairs,)``."""
        return torch.tensor([pair.closed[self.rule.name] for pair in self.pairs], dtype=torch.float64)

    @property
    def errors(self) -> Tensor:
        """Relative errors, shape ``(pairs, seeds)``."""
        return (self.measured / self.closed[:, None] - 1).abs()

    def score(self, points: Tensor) -> Tensor:
        """Return γ at points of the line ``(n,)`` for every pair and seed, shape ``(pairs, seeds, n)``."""
        inputs = points.to(self.network.parameters[0]).expand(self.measured.numel(), -1)[..., None]
        return self.network(inputs)[..., 0].unflatten(0, self.measured.shape)


def known_pairs() -> tuple[Pair, ...]:
    """Return the pairs of laws of the chapter."""
    return (shifted_gaussians(1.0), *(tilted_uniform(a) for a in (0.6, 1.2, 1.8)), two_bumps())


def value_rule(name: str) -> Objective:
    """Return the objective whose value is measured: that of the games, but W1 with the one-sided penalty of weight 2.

    On the line H(γ) = ∫ γ′ (F_P − F_Q) dx. With the two-sided penalty of weight λ and density ρ of the points on
    segments, the best slope is 1 + |F_P − F_Q|/(2λρ) in size: above 1, with a value above W1; and a γ that starts with
    the wrong slope −1 pays no penalty and is kept there by a barrier of height λ. The one-sided penalty has no such
    barrier, and it is exact: the best slope has size 1 wherever |F_P − F_Q| ≤ 2λρ.
    """
    rule = objective(name)
    return replace(rule, penalty="one_sided", penalty_weight=2.0) if name == "wasserstein" else rule


def train_values(rule: Objective, pairs: Sequence[Pair], settings: Settings, linear: bool = False) -> Values:
    """Train discriminators on fresh samples of each pair and evaluate what they reach without sampling error.

    Parameters
    ----------
    rule
        What to maximise.
    pairs
        Pairs with a closed form for this objective.
    settings
        How to train.
    linear
        Let γ be affine, γ(x) = wx + b: a family Γ that is too small.

    Raises
    ------
    ValueError
        A pair without a closed form for this objective.
    """
    for pair in pairs:
        if rule.name not in pair.closed:
            raise ValueError(f"pairs must have a closed form for {rule.name!r}, but {pair.name!r} has none")
    rng = torch.Generator().manual_seed(settings.seed)
    each = settings.seeds * settings.restarts
    network = _network(len(pairs) * each, [1, 1] if linear else [1, settings.width, settings.width, 1], rng)
    optimiser = torch.optim.Adam(network.parameters, settings.rate, _BETAS, fused=True)
    steps = settings.constrained_steps if rule.penalty in ("one_sided", "two_sided") else settings.steps
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = settings.rate * (1 - step / steps) ** 2
        samples = [pair.sample((each, settings.batch), rng) for pair in pairs]
        real, fake = (torch.cat([s[law] for s in samples])[..., None].float() for law in (0, 1))
        loss = rule.discriminator_loss(lambda x: network(x)[..., 0], real, fake, rng)
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
    return _evaluate(rule, tuple(pairs), network, settings, rng)


def _network(runs: int, sizes: Sequence[int], rng: torch.Generator) -> Network:
    ties = [(untied(b, a), untied(b, 1)) for a, b in pairwise(sizes)]
    return Network(ties, runs, rng)


def _evaluate(
    rule: Objective, pairs: tuple[Pair, ...], network: Network, settings: Settings, rng: torch.Generator
) -> Values:
    """Return the best values on quantiles; points on segments join random pairs of them."""
    shape = (len(pairs), settings.seeds, settings.restarts)
    frozen = network.with_parameters([p.detach() for p in network.parameters])
    nodes = [pair.nodes(settings.nodes) for pair in pairs]
    real, fake = (torch.stack([s[law] for s in nodes]).repeat_interleave(shape[1] * shape[2], 0) for law in (0, 1))
    real, fake = real[..., None].float(), fake[:, torch.randperm(settings.nodes, generator=rng), None].float()
    value = rule.value(frozen(real)[..., 0].double(), frozen(fake)[..., 0].double())
    penalty = torch.zeros_like(value)
    if rule.penalty is not None:
        cost = gradient_penalty(lambda x: frozen(x)[..., 0], real, fake, rule.penalty, rng)
        penalty = rule.penalty_weight * cost.detach().double()
    measured, place = (value - penalty).reshape(shape).max(-1)
    best = (place + settings.restarts * torch.arange(place.numel()).reshape(place.shape)).flatten()
    chosen = frozen.with_parameters([p[best] for p in frozen.parameters])
    return Values(rule, pairs, measured, value[best].reshape(place.shape), chosen)


def measure_values(settings: Settings, names: Sequence[str] = NAMES) -> dict[str, Values]:
    """Return the values of the objectives with a discriminator, on every pair with a closed form."""
    pairs = known_pairs()
    return {n: train_values(value_rule(n), [p for p in pairs if n in p.closed], settings) for n in names}


def control_values(settings: Settings) -> dict[str, Values]:
    """Return values over the wrong family Γ, trained like the right ones; each should miss its closed form.

    Too large: W1 without a penalty is a supremum over all functions, which is infinite; the regularised α-divergence
    without a penalty is the α-divergence itself. Too small: affine discriminators cannot follow the logarithm of a
    ratio that nearly vanishes.
    """
    steep, fast = tilted_uniform(1.8), replace(settings, rate=10 * settings.rate)  # two numbers bear larger steps
    free = {n: replace(objective(n), penalty=None, penalty_weight=0.0) for n in ("wasserstein", "alpha")}
    return {
        "wasserstein, no penalty": train_values(free["wasserstein"], [shifted_gaussians(1.0), two_bumps()], settings),
        "alpha, no penalty": train_values(free["alpha"], [steep], settings),
        "jsd, affine discriminators": train_values(objective("jsd"), [steep], fast, linear=True),
        "kl, affine discriminators": train_values(objective("kl"), [steep], fast, linear=True),
    }


def two_sample_values(settings: Settings) -> dict[str, tuple[float, float]]:
    """Return the measured value and the closed form of the losses without a discriminator, for N(1, 4) and N(0, 1).

    MMD² is the mean of unbiased estimates over small independent samples. The Sinkhorn divergence is biased on small
    samples, so it is computed between 200 quantiles of each law.
    """
    rng = torch.Generator().manual_seed(settings.seed)
    x, y = torch.randn(2, settings.replicates, 32, 1, generator=rng, dtype=torch.float64)
    mmd = float(mmd_loss(SHIFT + SCALE * x, y, gaussian_kernel(BANDWIDTHS)).mean())
    nodes = shifted_gaussians().nodes(200)[1][:, None]
    sinkhorn = float(sinkhorn_loss(SHIFT + SCALE * nodes, nodes, EPSILON, iterations=100))
    return {
        "mmd": (mmd, gaussian_mmd(SHIFT, SCALE, BANDWIDTHS)),
        "sinkhorn": (sinkhorn, gaussian_sinkhorn(SHIFT, SCALE, EPSILON)),
    }
