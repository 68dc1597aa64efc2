"""Chapter *Sample complexity*: how many plain samples one symmetrised sample is worth, on real images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_choice, check_int, seeded
from lib.device import default_device
from lib.experiments.sample_complexity import SEEDS
from lib.experiments.symmetric_mmd import SamplesSaved, samples_saved
from lib.images.bundled import digits, histology_patches
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.transport.divergences import transport, w1_batch
from lib.transport.quotient import linear, no_group

IMAGES = ("digits", "histology")
GROUPS = ("C4", "D4")
SMALL = (25, 50, 100)
LARGE = {"digits": (25, 50, 100, 200, 400, 800), "histology": (25, 50, 100, 200, 400)}
REPLICATES = {"digits": 8, "histology": 240}  # the brightness of tissue varies much, and with it the error


@cache
def image_law(name: str, seed: int = 0) -> Tensor:
    """Return real images of 8 × 8 pixels as rows of 64 grey values.

    ``"digits"``: all 1797, each turned and mirrored by a random element of D4, so that their law is invariant.
    ``"histology"``: 4096 patches of tissue as they are; tissue has no upright direction.
    """
    if check_choice("name", name, IMAGES) == "histology":
        return histology_patches(8, 8)
    return turned(upright_digits(), seed)


def upright_digits() -> Tensor:
    """Return all digits as they were written, ``(1797, 64)``."""
    data = digits()
    return torch.cat([data.train_x, data.test_x])


def turned(images: Tensor, seed: int) -> Tensor:
    """Return every image moved by its own random element of D4."""
    group = Dihedral(4)
    return pixels(group, 8).apply(group.sample(len(images), seeded(seed)), images)


def image_group(name: str) -> FiniteGroup:
    """Return ``Cyclic(4)`` or ``Dihedral(4)`` by its name."""
    return {"C4": Cyclic(4), "D4": Dihedral(4)}[check_choice("name", name, GROUPS)]


@dataclass(frozen=True)
class ErrorCurves:
    """Wasserstein-1 distance between disjoint samples of n images, with and without the group.

    Attributes
    ----------
    images, group : str
        Names.
    order : int
        |Σ|.
    plain, grouped : dict
        Size → values over replicates.
    """

    images: str
    group: str
    order: int
    plain: dict[int, np.ndarray]
    grouped: dict[int, np.ndarray]

    def factors(self, n: int, resamples: int = 400) -> tuple[float, float, float]:
        """Return the equivalent-sample factor at size n and its 95 % bootstrap interval."""
        rng = np.random.default_rng(n)
        means = {k: v.mean() for k, v in self.plain.items()}
        value = equivalent_size(means, self.grouped[n].mean()) / n
        draws = []
        for _ in range(resamples):
            plain = {k: rng.choice(v, len(v)).mean() for k, v in self.plain.items()}
            draws.append(equivalent_size(plain, rng.choice(self.grouped[n], len(self.grouped[n])).mean()) / n)
        low, high = np.quantile(draws, [0.025, 0.975])
        return value, float(low), float(high)


def equivalent_size(curve: dict[int, float], error: float) -> float:
    """Return the sample size at which a falling error curve takes the value ``error``.

    The curve is interpolated, and continued by its last piece, linearly in log–log coordinates.
    """
    n = np.log(np.array(sorted(curve), dtype=float))
    e = np.log(np.array([curve[k] for k in sorted(curve)]))
    target = np.log(error)
    k = int(np.clip(np.searchsorted(-e, -target) - 1, 0, len(n) - 2))
    return float(np.exp(n[k] + (target - e[k]) * (n[k + 1] - n[k]) / (e[k + 1] - e[k])))


def error_curves(
    name: str, groups: tuple[str, ...] = GROUPS, replicates: int | None = None, seeds: Sequence[int] = SEEDS
) -> list[ErrorCurves]:
    """Measure the error curves on one kind of images; samples are drawn without replacement and do not overlap."""
    check_choice("name", name, IMAGES)
    count = check_int("replicates", REPLICATES[name] if replicates is None else replicates, minimum=2)
    plain, *grouped = (
        {n: image_distances(name, group, n, r, seeds) for n, r in plan(name, group, count).items()}
        for group in (None, *groups)
    )
    pairs = zip(groups, grouped, strict=True)
    return [ErrorCurves(name, group, image_group(group).order, plain, errors) for group, errors in pairs]


def plan(name: str, group: str | None, count: int) -> dict[int, int]:
    """Return sample sizes and replicates: up to large samples without a group, twice as many of small ones with it."""
    check_int("count", count)
    if group is None:
        check_choice("name", name, LARGE)
        return {n: count if n < 400 else -(-count // 4) for n in LARGE[name]}
    return dict.fromkeys(SMALL, 2 * count)


def image_distances(name: str, group: str | None, n: int, count: int, seeds: Sequence[int] = SEEDS) -> np.ndarray:
    """Return Wasserstein-1 distances of ``count`` pairs of disjoint samples of n images, under a group or none.

    The pairs, rounded up to a multiple of the number of seeds, are shared out among the seeds, each with its own turns.
    """
    action = no_group(64) if group is None else linear(pixels(image_group(group), 8))
    found = []
    for seed in seeds:
        law, generator = image_law(name, seed), seeded(10_000 * seed + 5000 * (group is not None) + n)
        rows = torch.stack(
            [torch.randperm(len(law), generator=generator)[: 2 * n] for _ in range(-(-count // len(seeds)))]
        )
        x, y = (law[r].to(default_device()) for r in (rows[:, :n], rows[:, n:]))
        found.append(w1_batch(x, y, action).cpu().numpy())
    return np.concatenate(found)


def false_symmetry(
    group: str = "D4", replicates: int = 8, target: int = 400, seeds: Sequence[int] = SEEDS
) -> dict[int, float]:
    """Return the equivalent-sample factor of symmetrising *upright* digits, whose law is not invariant: a control.

    The error of an estimate is its Wasserstein-1 distance to ``target`` other upright digits. The estimate is the
    sample, or the sample spread over its orbits.
    """
    law, representation = upright_digits(), pixels(image_group(group), 8)
    elements = representation.group.elements()
    plain, spread = {}, {}
    for n in (5, 10, *SMALL):
        generators = [seeded(10_000 * seed + 9000 + n) for seed in seeds]
        one, other = [], []
        for k in range(replicates):
            generator = generators[k % len(generators)]
            rows = torch.randperm(len(law), generator=generator)[: n + target]
            sample, rest = law[rows[:n]], law[rows[n:]]
            one.append(_cloud_distance(sample, rest))
            if n in SMALL:
                other.append(_cloud_distance(representation.apply(elements[:, None], sample).flatten(0, 1), rest))
        plain[n] = float(np.mean(one))
        if n in SMALL:
            spread[n] = float(np.mean(other))
    return {n: equivalent_size(plain, spread[n]) / n for n in SMALL}


def _cloud_distance(x: Tensor, y: Tensor) -> float:
    return transport(torch.cdist(x, y), *(np.full(len(s), 1 / len(s)) for s in (x, y)))


def predicted(name: str, group: str, bandwidth: float | None = None, count: int = 800, seed: int = 0) -> SamplesSaved:
    """Return what the calculator predicts for ``count`` of the images."""
    law = image_law(name, seed)
    rows = torch.randperm(len(law), generator=seeded(seed))[:count]
    return samples_saved(law[rows], linear(pixels(image_group(group), 8)), bandwidth)
