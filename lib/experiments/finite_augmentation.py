"""Chapter *Stability of augmentation*, third part: what a finite number of random group elements per step does (A9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from lib.checks import check_float, check_int, seeded
from lib.experiments.growth_near_symmetry import regression
from lib.training.risks import Risks, descend, gradient, hessian


@dataclass(frozen=True)
class Regime:
    """Problems and training for the drift by sampling; small h·steps is the linear regime.

    Attributes
    ----------
    problems, points, nodes : int
        Data sets, points in each, and the n of S_n.
    rate : float
        Step h.
    steps : int
        Number of steps.
    seed : int
        First of the seeds of the data sets; weights and draws have the two after the third.
    """

    problems: int = 4
    points: int = 10
    nodes: int = 4
    rate: float = 0.01
    steps: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("problems", "points", "steps"):
            check_int(name, getattr(self, name))
        check_int("nodes", self.nodes, minimum=2, maximum=5)
        check_float("rate", self.rate, minimum=1e-6)
        check_int("seed", self.seed, minimum=0)

    def start(self) -> tuple[Risks, Tensor]:
        """Return the risks and random equivariant weights, shape ``(problems, 1, dim L)``."""
        risks = regression(self.problems, self.points, self.nodes, self.seed)
        shape = (self.problems, 1, risks.network.layers.dim)
        return risks, risks.project(torch.randn(shape, generator=seeded(self.seed + 2), dtype=torch.float64))


@dataclass(frozen=True)
class Drift:
    """Distances from E after training with m random group elements per step; see :func:`measure_drift`.

    Attributes
    ----------
    sizes : list of int
        The numbers m.
    distances : Tensor
        ‖A_{E^⊥}‖ at the end, shape ``(problems, sizes, runs)``.
    """

    sizes: list[int]
    distances: Tensor

    @property
    def typical(self) -> Tensor:
        """Root mean square over the runs, shape ``(problems, sizes)``."""
        return self.distances.square().mean(-1).sqrt()

    def slope(self) -> float:
        """Return the slope of log drift against log m, all problems pooled."""
        return float((self._weights() * self.distances.square().mean(-1).log()).sum())

    def slope_interval(self, level: float = 0.999) -> tuple[float, float]:
        """Return an interval of the slope that covers it with probability ``level``.

        The slope is a sum of weighted logarithms of means over the runs, which are independent for different problems
        and sizes; so its variance is the sum of weight² · Var d² / (runs · (mean d²)²).
        """
        square = self.distances.square()
        variance = (self._weights().square() * square.var(-1) / square.mean(-1).square()).sum() / square.shape[-1]
        half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(float(variance))
        return self.slope() - half, self.slope() + half

    def _weights(self) -> Tensor:
        """Return the weights of the logarithms in the slope, shape ``(sizes,)``."""
        x = torch.tensor(self.sizes, dtype=torch.float64).log()
        x = x - x.mean()
        return 0.5 * x / x.square().sum() / len(self.distances)


def interval_miss(interval: tuple[float, float], value: float = -0.5) -> float:
    """Return the distance from a value to an interval, zero inside."""
    return max(interval[0] - value, value - interval[1], 0.0)


def measure_drift(
    regime: Regime, sizes: list[int], runs: int, replacement: bool = True, identity: float = 1.0
) -> Drift:
    """Train with a few random group elements per step, from random equivariant weights.

    Parameters
    ----------
    regime
        Problems and training.
    sizes
        Numbers m of elements per step; every step draws afresh, one draw for the whole data set.
    runs
        Independent repetitions for each problem and m.
    replacement
        Draw independently (``True``), or m different elements (``False``, m at most |G|).
    identity
        Weight of the neutral element relative to the others; other than 1 is not Haar: the control.
    """
    risks, start = regime.start()
    group, generator = risks.group, seeded(regime.seed + 3)
    if not replacement and max(sizes) > group.order:
        raise ValueError(f"sizes must be at most {group.order} when drawn without replacement, got {sizes}")
    chances = torch.ones(group.order, dtype=torch.float64)
    chances[group.index(group.identity())] = check_float("identity", identity, minimum=0.0)
    a = start.expand(-1, len(sizes) * check_int("runs", runs), -1)
    for _ in range(regime.steps):
        drawn = [_draw(chances, m, regime.problems * runs, replacement, generator) for m in sizes]
        weights = torch.cat([w.unflatten(0, (regime.problems, runs)) for w in drawn], dim=1)
        a = a - regime.rate * gradient(lambda b, w=weights: risks.augmented(b, w), a)
    return Drift(list(sizes), risks.outside(a).norm(dim=-1).unflatten(-1, (len(sizes), runs)))


def _draw(chances: Tensor, m: int, rows: int, replacement: bool, generator: torch.Generator) -> Tensor:
    """Return ``rows`` random weightings of the group elements, m draws of weight 1/m each, shape ``(rows, |G|)``."""
    which = torch.multinomial(chances.expand(rows, -1), m, replacement, generator=generator)
    share = torch.full(which.shape, 1.0 / m, dtype=torch.float64)
    return torch.zeros(rows, len(chances), dtype=torch.float64).scatter_add_(1, which, share)


def predicted_drift(regime: Regime) -> Tensor:
    """Return the root mean square drift for one independent element per step (m = 1), shape ``(problems,)``.

    In the linear regime C ← J C J + h² Σ with J = 1 − h ∇²R^aug on E^⊥ and Σ the covariance of ρ(g)(1 − Π)∇R over the
    group, both along equivariant training; the drift is √(tr C), and √(tr C / m) for m elements.
    """
    risks, a = regime.start()
    layers, one = risks.network.layers, torch.eye(risks.network.layers.dim)
    off, rho = one - risks.project_matrix, layers.matrix(risks.group.elements())
    c = torch.zeros(regime.problems, layers.dim, layers.dim, dtype=torch.float64)
    for _ in range(regime.steps):
        moved = torch.einsum("gij,pj->pgi", rho, risks.outside(gradient(risks.nominal, a))[:, 0])
        j = off @ (one - regime.rate * hessian(risks.augmented, a)[:, 0])
        c = j @ c @ j.mT + regime.rate**2 * moved.mT @ moved / len(rho)
        a = a - regime.rate * gradient(risks.equivariant, a)
    return c.diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()


def nominal_drift(regime: Regime) -> Tensor:
    """Return ‖A_{E^⊥}‖ after nominal training in the setting of :func:`measure_drift`, shape ``(problems,)``."""
    risks, start = regime.start()
    end, _ = descend(risks.nominal, start, regime.rate, regime.steps, lambda a: a[..., 0])
    return risks.outside(end).norm(dim=-1)[:, 0]


def one_step_share(regime: Regime, weights: Tensor) -> Tensor:
    """Return the mean over given weightings of ‖A_{E^⊥}‖² after one step, divided by that of a nominal step.

    If the weightings are *all* outcomes of a sampling scheme, equally likely, the mean is an exact expectation.

    Parameters
    ----------
    regime
        Problems; one step does not depend on the rate.
    weights
        Weights of the group elements, shape ``(outcomes, |G|)``.

    Returns
    -------
    Tensor
        One share per problem.
    """
    risks, a = regime.start()
    slope = gradient(lambda b: risks.augmented(b, weights), a.expand(-1, len(weights), -1))
    plain = risks.outside(gradient(risks.nominal, a))[:, 0].square().sum(-1)
    return risks.outside(slope).square().sum(-1).mean(-1) / plain


def finite_population_factor(order: int, m: int) -> float:
    """Return √((N − m)/(m(N − 1))), the drift of m different elements of a group of order N relative to one element."""
    check_int("m", m, maximum=check_int("order", order, minimum=2))
    return math.sqrt((order - m) / (m * (order - 1)))
