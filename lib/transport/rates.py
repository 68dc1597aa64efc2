"""Rates of convergence: slopes in log–log plots, their first correction, and bootstrap intervals.

In dimension q the expected Wasserstein-1 distance of two samples of n points of one law follows

    ``n E[W]² ≈ a g_q(n) + b``,    ``g_1 = 1/n``, ``g_2 = log n``, ``g_q = n^{1 − 2/q}`` for q ≥ 3,

since a scale ℓ contributes about ``ℓ² / (n ℓ^q)`` to the square, summed over the scales from ``n^{−1/q}`` to one. The
law is fitted to small samples and then has to predict large ones; a wrong q fails to.

A domain with a boundary adds a term. The cells at scale ℓ that meet it are ``ℓ^{1−q}`` of ``ℓ^{−q}``, and contribute
otherwise than those inside, which changes the scale's ``ℓ^{2−q}`` by a multiple of ``ℓ^{3−q}``:

    ``n E[W]² ≈ a g_q(n) + b + c h_q(n)``,    ``h_2 = n^{−1/2}``, ``h_3 = log n``, ``h_q = n^{1 − 3/q}`` for q ≥ 4.

Three constants are too many for small samples, so that this law needs ``a`` from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lib.checks import check_float, check_instance, check_int

MINIMUM = 2  # replicates per size, for a standard error


@dataclass(frozen=True)
class Rate:
    """A slope and how far it is from theory after correction.

    Attributes
    ----------
    quotient_dim : int
        q.
    raw : float
        Least-squares slope of log error against log n, all sizes.
    theory : float
        ``−1/max(q, 2)``.
    a, b, c : float
        Coefficients of the law, fitted to the small sizes; c = 0 without a boundary term, and a given with one.
    defect : float
        Slope, over the large sizes, of the logarithm of measured over predicted error.
    interval : tuple of float
        95 % bootstrap interval of the defect.
    """

    quotient_dim: int
    raw: float
    theory: float
    a: float
    b: float
    defect: float
    interval: tuple[float, float]
    c: float = 0.0

    @property
    def corrected(self) -> float:
        """The corrected slope, ``theory + defect``."""
        return self.theory + self.defect

    def predict(self, n: np.ndarray) -> np.ndarray:
        """Return the error that the law predicts for samples of n points."""
        square = self.a * growth(n, self.quotient_dim) + self.b
        if self.c:
            square = square + self.c * boundary_growth(n, self.quotient_dim)
        return np.sqrt(np.maximum(square, 1e-300) / n)


def growth(n: np.ndarray, q: int) -> np.ndarray:
    """Return ``g_q(n)``: 1/n, log n or n^{1 − 2/q}."""
    n = np.asarray(n, dtype=float)
    return {1: 1 / n, 2: np.log(n)}.get(check_int("q", q), n ** (1 - 2 / q))


def boundary_growth(n: np.ndarray, q: int) -> np.ndarray:
    """Return ``h_q(n)`` for q ≥ 2: n^{−1/2}, log n or n^{1 − 3/q}."""
    n = np.asarray(n, dtype=float)
    return np.log(n) if check_int("q", q, minimum=2) == 3 else n ** (1 - 3 / q)


def slope(x: np.ndarray, y: np.ndarray, error: np.ndarray | None = None) -> float:
    """Return the slope of log y against log x by least squares, weighted by relative standard errors of y."""
    weight = None if error is None else 1 / error
    return float(np.polyfit(np.log(x), np.log(y), 1, w=weight)[0])


def corrected_rate(
    errors: Mapping[int, np.ndarray],
    q: int,
    fit_to: int,
    test_from: int,
    resamples: int = 200,
    seed: int = 0,
    leading: float | None = None,
) -> Rate:
    """Fit the law to sizes up to ``fit_to`` and measure how its prediction drifts on sizes from ``test_from`` on.

    Parameters
    ----------
    errors
        For every sample size n the measured errors of independent replicates.
    q
        Dimension of the quotient.
    fit_to, test_from
        The two ranges; at least two sizes in each.
    resamples, seed
        Bootstrap resamples of the replicates, and the seed of their draw.
    leading
        The coefficient a, if it is known from elsewhere; b and the boundary's c are then fitted, with q ≥ 2.

    Raises
    ------
    ValueError
        A size with fewer than two replicates or with values that are not finite and positive; a range with fewer than
        two sizes.
    """
    check_int("resamples", resamples)
    check_int("seed", seed, minimum=0)
    fit_to, test_from = check_float("fit_to", fit_to), check_float("test_from", test_from)
    sizes = np.array(sorted(check_instance("errors", errors, Mapping)), dtype=float)
    samples = [np.asarray(errors[int(n)], dtype=float) for n in sizes]
    for n, values in zip(sizes, samples, strict=True):
        if len(values) < MINIMUM or not np.isfinite(values).all() or values.mean() <= 0:
            raise ValueError(f"errors[{n:.0f}] must be at least {MINIMUM} finite replicates with positive mean")
    small, large = sizes <= fit_to, sizes >= test_from
    if min(small.sum(), large.sum()) < 2:
        raise ValueError(f"fit_to and test_from must leave two sizes each, got {fit_to}, {test_from} for {sizes}")
    mean = np.array([v.mean() for v in samples])
    relative = np.array([v.std(ddof=1) / np.sqrt(len(v)) for v in samples]) / mean
    if leading is not None:
        check_float("leading", leading, minimum=0.0)
    law, defect = _defect(sizes, mean, relative, q, small, large, leading)
    rng = np.random.default_rng(seed)
    draws = [np.array([rng.choice(v, len(v)).mean() for _ in range(resamples)]) for v in samples]
    spread = [_defect(sizes, np.array(m), relative, q, small, large, leading)[1] for m in zip(*draws, strict=True)]
    low, high = np.quantile(spread, [0.025, 0.975])
    a, b, c = law
    return Rate(q, slope(sizes, mean), -1 / max(q, 2), a, b, defect, (float(low), float(high)), c)


def _defect(
    n: np.ndarray,
    mean: np.ndarray,
    relative: np.ndarray,
    q: int,
    small: np.ndarray,
    large: np.ndarray,
    leading: float | None,
) -> tuple[tuple[float, float, float], float]:
    """Return the fitted a, b, c, and the slope of measured over predicted errors on the large sizes."""
    square, weight = n * mean**2, 1 / (2 * relative * n * mean**2)
    other = growth(n, q) if leading is None else boundary_growth(n, q)
    known = 0.0 if leading is None else leading * growth(n, q)
    design = np.stack([other, np.ones_like(n)], 1)
    rest = (square - known) * weight
    (first, b), *_ = np.linalg.lstsq(design[small] * weight[small, None], rest[small], rcond=None)
    predicted = np.maximum(known + design @ (first, b), 1e-300)
    law = (float(first), float(b), 0.0) if leading is None else (leading, float(b), float(first))
    return law, slope(n[large], np.sqrt(square / predicted)[large], relative[large])


def adjusted(values: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """Return values with the same expected mean and less noise, by regression on control variates.

    ``v − C β`` with β of least squares, the residuals widened by ``√((r − 1)/(r − 1 − k))`` for the k coefficients, so
    that their spread gives an honest standard error. The mean is biased by the order of 1/r.

    Parameters
    ----------
    values
        Independent replicates, shape ``(r,)``.
    controls
        Variables of expectation zero, observed in the same replicates, shape ``(r, k)`` with ``k ≤ r / 8``.

    Raises
    ------
    ValueError
        Shapes that do not fit, or too many variables for the replicates.
    """
    values, controls = np.asarray(values, dtype=float), np.asarray(controls, dtype=float)
    if values.ndim != 1 or controls.ndim != 2 or len(values) != len(controls):
        raise ValueError(f"controls must have shape ({values.size}, k), got {controls.shape}")
    r, k = controls.shape
    if 8 * k > r:
        raise ValueError(f"controls must be at most one for eight replicates, got {k} for {r}")
    design = np.concatenate([np.ones((r, 1)), controls], 1)
    found, *_ = np.linalg.lstsq(design, values, rcond=None)
    return found[0] + (values - design @ found) * np.sqrt((r - 1) / (r - 1 - k))


def bootstrap_slope(errors: Mapping[float, np.ndarray], resamples: int = 200, seed: int = 0) -> tuple[float, ...]:
    """Return slope, lower and upper end of its 95 % bootstrap interval, for log mean error against log of the keys."""
    check_int("resamples", resamples)
    check_int("seed", seed, minimum=0)
    keys = np.array(sorted(check_instance("errors", errors, Mapping)), dtype=float)
    samples = [np.asarray(errors[k], dtype=float) for k in sorted(errors)]
    rng = np.random.default_rng(seed)
    value = slope(keys, np.array([v.mean() for v in samples]))
    draws = [slope(keys, np.array([rng.choice(v, len(v)).mean() for v in samples])) for _ in range(resamples)]
    return value, *map(float, np.quantile(draws, [0.025, 0.975]))


@dataclass(frozen=True)
class SliceLaw:
    """The error under L rotations of the disc, whose quotient is a slice as long as the radius and about 1/L wide.

    ``n E[W]² ≈ a + (b + c log(n/L))/L``: scales above 1/L see a line, and contribute as in dimension one; the
    ``log(n/L)/2`` scales between 1/L and the spacing ``(nL)^{−1/2}`` see a plane, and contribute 1/L each.

    Attributes
    ----------
    a, b, c : float
        The coefficients; a is what all rotations leave.
    """

    a: float
    b: float
    c: float

    def predict(self, n: int, order: np.ndarray) -> np.ndarray:
        """Return the error for samples of n points under ``order`` rotations."""
        return np.sqrt((self.a + (self.b + self.c * np.log(n / order)) / order) / n)


def slice_law(errors: Mapping[int, np.ndarray], n: int, smallest: int = 2) -> SliceLaw:
    """Fit the law of slices to errors at one sample size.

    Parameters
    ----------
    errors
        For every number of rotations the measured errors of independent replicates.
    n
        Sample size.
    smallest
        Fewest rotations to fit to: without any, the disc is no slice.
    """
    check_int("n", n)
    check_int("smallest", smallest)
    check_instance("errors", errors, Mapping)
    order = np.array(sorted(k for k in errors if k >= smallest), dtype=float)
    if len(order) < 3:
        raise ValueError(f"errors must be of three numbers of rotations from {smallest} on, got {sorted(errors)}")
    samples = [np.asarray(errors[int(k)], dtype=float) for k in order]
    mean = np.array([v.mean() for v in samples])
    weight = 1 / (2 * n * mean * np.array([v.std(ddof=1) / np.sqrt(len(v)) for v in samples]))
    design = np.stack([np.ones_like(order), 1 / order, np.log(n / order) / order], 1)
    (a, b, c), *_ = np.linalg.lstsq(design * weight[:, None], n * mean**2 * weight, rcond=None)
    return SliceLaw(float(a), float(b), float(c))
