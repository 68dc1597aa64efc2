"""Chapter *Sample complexity*: Lipschitz-regularised divergences beside Wasserstein-1, on the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lib.checks import check_choice
from lib.divergences import KINDS, regularised_batch, w1_batch
from lib.experiments.sample_complexity import SIDES
from lib.quotient import lattice
from lib.rates import slope

LINE = {16: 30, 32: 24, 64: 20, 128: 10}
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
    kind: str, dim: int, side: int, lipschitz: float = 1.0, replicates: dict[int, int] | None = None, seed: int = 0
) -> Comparison:
    """Compute both on the quotient for uniform samples of the torus under the translations by 1/side.

    Parameters
    ----------
    kind, lipschitz
        As in :func:`~lib.divergences.regularised_batch`.
    dim, side
        Dimension of the torus, and the group.
    replicates
        Size → replicates.
    seed
        Seed of the samples.
    """
    check_choice("kind", kind, KINDS)
    divergence, transport = {}, {}
    for n, count in (replicates or {16: 8, 32: 6, 64: 4, 128: 2}).items():
        generator = torch.Generator().manual_seed(8000 + 100 * seed + n)
        divergence[n], transport[n] = _both(kind, dim, side, lipschitz, count, n, generator)
    return Comparison(kind, dim, side, lipschitz, divergence, transport)


def compare_orders(kind: str, dim: int, n: int = 32, replicates: int = 4, seed: int = 0) -> Comparison:
    """Compute both at one sample size for translations of the torus of orders up to 256, each with its own samples.

    The Lipschitz constant is one; the other parameters are those of :func:`compare`.
    """
    check_choice("kind", kind, KINDS)
    divergence, transport = {}, {}
    for side in SIDES[dim]:
        generator = torch.Generator().manual_seed(9000 + 100 * seed + side)
        order = side**dim
        divergence[order], transport[order] = _both(kind, dim, side, 1.0, replicates, n, generator)
    return Comparison(kind, dim, None, 1.0, divergence, transport)


def _both(
    kind: str, dim: int, side: int, lipschitz: float, count: int, n: int, generator: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    x, y = (torch.rand(count, n, dim, dtype=torch.float64, generator=generator) for _ in range(2))
    action = lattice(side, dim)
    return regularised_batch(x, y, action, kind, lipschitz).numpy(), lipschitz * w1_batch(x, y, action).numpy()
