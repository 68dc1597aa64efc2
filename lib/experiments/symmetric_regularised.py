"""Chapter *Sample complexity*: Lipschitz-regularised divergences beside Wasserstein-1, on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.checks import check_choice
from lib.experiments.sample_complexity import SEEDS, SIDES, sample_pairs, uniform_torus
from lib.transport.divergences import KINDS, regularised_batch, w1_batch
from lib.transport.quotient import lattice
from lib.transport.rates import slope

PLAN = {16: 16, 32: 16, 64: 12, 128: 8}
"""Replicates per sample size."""
LINE = {16: 60, 32: 48, 64: 40, 128: 20}
"""Replicates in dimension one, where the potentials are of the size of the domain and noise is large."""


@dataclass(frozen=True)
class Comparison:
    """Regularised divergence D and L·W1 of the same samples of equal laws on the torus.

    Attributes
    ----------
    kind : str
        ``"alpha2"`` or ``"kl"``.
    dim : int
        Dimension of the torus.
    side : int or None
        The group holds the translations by 1/side; ``None`` where it varies.
    lipschitz : float
        L.
    divergence, transport : dict
        Sample size (where the group varies: its order) → values over replicates, of D and of L·W1.
    """

    kind: str
    dim: int
    side: int | None
    lipschitz: float
    divergence: dict[int, np.ndarray]
    transport: dict[int, np.ndarray]

    def slopes(self) -> tuple[float, float]:
        """Return the slopes of D and of L·W1 against the sample size, or the order."""
        sizes = np.array(sorted(self.divergence), dtype=float)
        means = [np.array([v[int(n)].mean() for n in sizes]) for v in (self.divergence, self.transport)]
        return slope(sizes, means[0]), slope(sizes, means[1])

    @property
    def difference(self) -> float:
        """Slope of D minus slope of L·W1."""
        ours, theirs = self.slopes()
        return ours - theirs

    def interval(self, resamples: int = 200) -> tuple[float, float]:
        """Return the 95 % bootstrap interval of the difference; replicates are drawn in pairs."""
        rng, values = np.random.default_rng(0), []
        for _ in range(resamples):
            drawn = {n: rng.integers(len(v), size=len(v)) for n, v in self.divergence.items()}
            one, other = ({n: v[n][drawn[n]] for n in v} for v in (self.divergence, self.transport))
            values.append(Comparison(self.kind, self.dim, self.side, self.lipschitz, one, other).difference)
        low, high = np.quantile(values, [0.025, 0.975])
        return float(low), float(high)


def compare(
    kind: str,
    dim: int,
    side: int,
    lipschitz: float = 1.0,
    replicates: dict[int, int] | None = None,
    seeds: Sequence[int] = SEEDS,
) -> Comparison:
    """Compute both on the quotient for uniform samples of the torus under the translations by 1/side.

    Parameters
    ----------
    kind, lipschitz
        As in :func:`~lib.transport.divergences.regularised_batch`.
    dim, side
        Dimension of the torus, and the group.
    replicates
        Size → replicates.
    seeds
        Independent seeds, among which the replicates are shared out.
    """
    check_choice("kind", kind, KINDS)
    divergence, transport = {}, {}
    for n, count in (replicates or PLAN).items():
        divergence[n], transport[n] = _both(kind, dim, side, lipschitz, count, n, seeds, stream=8000 + n)
    return Comparison(kind, dim, side, lipschitz, divergence, transport)


def compare_orders(kind: str, dim: int, n: int = 32, replicates: int = 4, seeds: Sequence[int] = SEEDS) -> Comparison:
    """Compute both at one sample size for translations of the torus of orders up to 256, each with its own samples.

    The Lipschitz constant is one; the other parameters are those of :func:`compare`.
    """
    check_choice("kind", kind, KINDS)
    divergence, transport = {}, {}
    for side in SIDES[dim]:
        order = side**dim
        divergence[order], transport[order] = _both(kind, dim, side, 1.0, replicates, n, seeds, stream=9000 + side)
    return Comparison(kind, dim, None, 1.0, divergence, transport)


def _both(
    kind: str, dim: int, side: int, lipschitz: float, count: int, n: int, seeds: Sequence[int], stream: int
) -> tuple[np.ndarray, np.ndarray]:
    x, y = sample_pairs(uniform_torus(dim), count, n, seeds, stream)
    action = lattice(side, dim)
    return regularised_batch(x, y, action, kind, lipschitz).numpy(), lipschitz * w1_batch(x, y, action).numpy()
