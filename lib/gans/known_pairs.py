"""Pairs of laws on the line between which divergences are known: what a trained discriminator can be measured against.

Each pair gives its quantile functions, from which it is sampled exactly and integrated without sampling error, the
density ratio dQ/dP, and every divergence of :mod:`lib.gans.objectives` that has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_float, check_instance, check_int


@dataclass(frozen=True, eq=False)
class Pair:
    """Two laws Q (data) and P (generated) on the line.

    Attributes
    ----------
    name : str
        What the pair is called.
    quantiles : tuple of callable
        Inverse distribution functions of Q and of P, from (0, 1) to the line.
    ratio : callable
        The density dQ/dP at points of the line where P lives.
    closed : dict
        Suprema over γ that are known in closed form, by the name of the objective; ``jsd`` is 2 JSD(Q, P), ``alpha`` is
        the (f₂, Lip₁)-divergence.
    """

    name: str
    quantiles: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
    ratio: Callable[[Tensor], Tensor]
    closed: dict[str, float]

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return independent points of Q and of P, both of the given shape, float64."""
        check_instance("generator", generator, torch.Generator)
        for size in check_instance("shape", shape, Sequence):
            check_int("shape", size)
        uniform = torch.rand(2, *shape, generator=generator, dtype=torch.float64, device=generator.device)
        first, second = uniform.clamp(1e-12, 1 - 1e-12)
        return self.quantiles[0](first), self.quantiles[1](second)

    def nodes(self, count: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Return the quantiles at (i + 1/2)/count of Q and of P: equal masses, no sampling error; ``(count,)``."""
        level = (torch.arange(check_int("count", count), dtype=torch.float64, device=device) + 0.5) / count
        return self.quantiles[0](level), self.quantiles[1](level)


def shifted_gaussians(shift: float = 1.0) -> Pair:
    """Return Q = N(δ, 1) and P = N(0, 1): KL = δ²/2 and W1 = δ, both with a linear γ.

    dQ/dP is not bounded, and the other suprema are integrals without a closed form.

    Raises
    ------
    ValueError
        δ is not positive.
    """
    d = check_float("shift", shift, minimum=1e-3)
    return Pair(
        f"Gaussians, {d:g} apart",
        (lambda u: torch.special.ndtri(u) + d, torch.special.ndtri),
        lambda x: (d * x - d * d / 2).exp(),
        {"kl": d * d / 2, "wasserstein": d},
    )


def tilted_uniform(tilt: float = 1.8) -> Pair:
    """Return P uniform on (0, 1) and Q with density ``1 + a(x − 1/2)`` for a slope a in (0, 2].

    The ratio r = dQ/dP is uniform on (1 − a/2, 1 + a/2) under P, which gives KL and JSD. Q is stochastically larger, so
    W1 is the difference of the means, a/12. For γ ≥ 0, E_Q γ − E_P (γ² + 1)/2 = −‖γ − r‖²/2 + constant in L²(P), and
    the 1-Lipschitz function nearest to a line of slope a is the line of slope c = min(a, 1) through the same mean.
    Hence the Lipschitz-regularised divergence is (ca − c²/2)/12; the constraint binds exactly for a > 1.

    Raises
    ------
    ValueError
        a is not in (0, 2].
    """
    a = check_float("tilt", tilt, minimum=1e-3, maximum=2.0)
    low, high, slope = 1 - a / 2, 1 + a / 2, min(a, 1.0)

    def x_log_x(x: float) -> float:
        return x * x / 2 * math.log(x) - x * x / 4 if x > 0 else 0.0  # the integral of x log x

    kl = (x_log_x(high) - x_log_x(low)) / a
    middle = 4 * (x_log_x((1 + high) / 2) - x_log_x((1 + low) / 2)) / a
    closed = {"kl": kl, "jsd": kl - middle, "wasserstein": a / 12, "alpha": (slope * a - slope**2 / 2) / 12}
    return Pair(
        f"uniform, tilted by {a:g}",
        (lambda u: 2 * u / (low + (low * low + 2 * a * u).sqrt()), lambda u: u),
        lambda x: 1 + a * (x - 0.5),
        closed,
    )


def two_bumps() -> Pair:
    """Return two uniform bumps on (−2, −1) and (1, 2) with masses 1/3 and 2/3 under Q, and exchanged under P.

    dQ/dP is 1/2 on the left and 2 on the right. The best γ is constant on each bump, so every supremum is one over a
    single number t, the height of the step. The gap is wide enough for a 1-Lipschitz step of height 3/2, so that
    the constraint does not bind in ``alpha``; a third of the mass moves by 3 in W1. For the relativistic average, with
    masses q > p, the condition is q²/p² = (1 + e^{qt})/(1 + e^{−pt}); for q = 2/3 it becomes w³ − 3w − 4 = 0 with
    w = e^{t/3}, whose root is w = (2 + √3)^{1/3} + (2 − √3)^{1/3}.
    """
    p, q = 1 / 3, 2 / 3
    w = (2 + math.sqrt(3)) ** (1 / 3) + (2 - math.sqrt(3)) ** (1 / 3)
    closed = {
        "kl": (q - p) * math.log(2),
        "jsd": 2 * (p * math.log(2 * p) + q * math.log(2 * q)),
        "wasserstein": 1.0,
        "alpha": 0.25,
        "relativistic": math.log(4) + 2 * (q * math.log(w * w / (1 + w * w)) - p * math.log(1 + w)),
    }

    def quantile(left: float) -> Callable[[Tensor], Tensor]:
        return lambda u: torch.where(u < left, u / left - 2, (u - left) / (1 - left) + 1)

    return Pair("two bumps", (quantile(p), quantile(q)), lambda x: torch.where(x < 0, 0.5, 2.0).to(x), closed)


def gaussian_mmd(shift: float, scale: float, bandwidths: Sequence[float]) -> float:
    """Return MMD² of N(δ, s²) and N(0, 1) on the line, for the mean of Gaussian kernels of several bandwidths.

    E k(x, y) = h/√(h² + v) · exp(−m²/2(h² + v)) for bandwidth h, when x − y has mean m and variance v.
    """
    check_float("shift", shift)
    s = check_float("scale", scale, minimum=1e-6)

    def mean(h: float, m: float, v: float) -> float:
        return h / math.sqrt(h * h + v) * math.exp(-m * m / (2 * (h * h + v)))

    if not check_instance("bandwidths", bandwidths, Sequence):
        raise ValueError("bandwidths must not be empty")
    sizes = [check_float("bandwidths", h, minimum=1e-6) for h in bandwidths]
    terms = [mean(h, 0, 2 * s * s) + mean(h, 0, 2) - 2 * mean(h, shift, 1 + s * s) for h in sizes]
    return sum(terms) / len(terms)


def gaussian_sinkhorn(shift: float, scale: float, epsilon: float) -> float:
    """Return the Sinkhorn divergence of N(δ, s²) and N(0, 1) for the cost (x − y)² (Janati et al. 2020, Theorem 1).

    With v = ε/2 and D = √(4a²b² + v²), the entropic cost of N(m, a²) and N(0, b²) is
    m² + a² + b² − D + v (1 − log 2v) + v log(D + v). The debiased value tends to W2² = δ² + (s − 1)² as ε → 0.
    """
    check_float("shift", shift)
    s = check_float("scale", scale, minimum=1e-6)
    v = check_float("epsilon", epsilon, minimum=1e-12) / 2

    def cost(m: float, a: float, b: float) -> float:
        root = math.sqrt(4 * a * a * b * b + v * v)
        return m * m + a * a + b * b - root + v * (1 - math.log(2 * v)) + v * math.log(root + v)

    return cost(shift, s, 1) - cost(0, s, s) / 2 - cost(0, 1, 1) / 2
