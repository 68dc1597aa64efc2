"""Chapter *Sample complexity*: Wasserstein-1 under a group. Settings in, typed results out, no plotting.

MMD is in :mod:`lib.experiments.symmetric_mmd`, regularised divergences in
:mod:`lib.experiments.symmetric_regularised`, real images in :mod:`lib.experiments.symmetric_images`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lib.actions import natural, planar
from lib.checks import check_choice, check_int, seeded
from lib.device import default_device
from lib.divergences import invariant_program, transport, w1_batch
from lib.groups import Cyclic, Dihedral, Symmetric
from lib.quotient import (
    Isometries,
    isometry_defect,
    lattice,
    linear,
    moduli,
    pairs_in_space,
    phase,
    quotient_cost,
    radial,
    turns,
)
from lib.rates import Rate, bootstrap_slope, corrected_rate

SCALES = ("default", "paper")
FIT_TO = TEST_FROM = 64  # the law is fitted to smaller samples and tested on larger ones
Sampler = Callable[[int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Settings:
    """Size of the chapter's experiments.

    Attributes
    ----------
    scale : str
        ``"default"`` for under a minute, ``"paper"`` for the large grid.
    seeds : int
        Independent seeds; the replicates are shared out among them.
    """

    scale: str = "default"
    seeds: int = 4

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_int("seeds", self.seeds, minimum=2, maximum=100)

    def replicates(self, quotient_dim: int) -> dict[int, int]:
        """Return replicates per sample size of the Wasserstein experiments, over all seeds.

        Quotients of dimension one need no solver, and noise is largest where the largest scales count most, q = 1, 2.
        """
        many = {16: 6000, 32: 5000, 64: 4000, 128: 2000, 256: 500, 512: 60}
        if quotient_dim == 1:
            plan = dict.fromkeys((16, 32, 64, 128, 256, 512), 4000)
        else:
            plan = many if quotient_dim == 2 else {n: (2 * count) // 5 for n, count in many.items()}
        if self.scale == "paper":
            large = dict.fromkeys((1024, 2048), 4000) if quotient_dim == 1 else {1024: 200, 2048: 40}
            plan = {n: 10 * count for n, count in plan.items()} | large
        return {n: math.ceil(count / self.seeds) * self.seeds for n, count in plan.items()}

    @property
    def factor(self) -> int:
        """By how much the other experiments grow at the paper's scale."""
        return 10 if self.scale == "paper" else 1


# --- S1: three values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreeValues:
    """One number by three routes: transport on the quotient, on symmetrised clouds, and over invariant potentials."""

    case: str
    quotient: float
    clouds: float
    potentials: float

    @property
    def gap(self) -> float:
        """Largest difference, relative to the transport between the clouds."""
        values = (self.quotient, self.clouds, self.potentials)
        return (max(values) - min(values)) / self.clouds


def isometric_cases() -> dict[str, Isometries]:
    """Return rotation, reflection, permutation and translation groups."""
    return {
        "rotations of the plane, C5": turns(5),
        "rotations and reflections, D4": linear(planar(Dihedral(4))),
        "permutations of coordinates, S3": linear(natural(Symmetric(3))),
        "translations of the torus": lattice(2, 2),
    }


def three_values(case: str, action: Isometries, seed: int, n: int = 6, m: int = 5) -> ThreeValues:
    """Return the three values for two Gaussian samples (modulo one on the torus)."""
    generator = seeded(seed)
    x, y = (torch.randn(k, action.dim, dtype=torch.float64, generator=generator) for k in (n, m))
    return _three(case, x, y + 0.3, action.images, action.plain_distance, quotient_cost(x, y + 0.3, action))


def broken_values(case: str, seed: int, n: int = 6, m: int = 5) -> ThreeValues:
    """Return the three values where the action is ``"sheared"`` or the set of maps is ``"no group"``.

    ``"sheared"``: quarter turns conjugated by a shear, a group but not of isometries. ``"no group"``: the identity and
    one quarter turn, isometries but not a group.
    """
    g = planar(Cyclic(4)).matrix(Cyclic(4).elements())
    if check_choice("case", case, ("sheared", "no group")) == "sheared":
        shear = torch.tensor([[1.0, 0.8], [0.0, 1.0]], dtype=torch.float64)
        g = shear @ g @ torch.linalg.inv(shear)
    else:
        g = g[:2]

    def images(x: Tensor) -> Tensor:
        return torch.einsum("gij,nj->gni", g, x)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")

    generator = seeded(seed)
    x, y = (torch.randn(k, 2, dtype=torch.float64, generator=generator) for k in (n, m))
    return _three(case, x, y + 0.3, images, distance, distance(x, images(y + 0.3)).amin(0))


def shear_defect() -> float:
    """Return |MᵀM − 1| of the sheared quarter turn of :func:`broken_values`."""
    shear = torch.tensor([[1.0, 0.8], [0.0, 1.0]], dtype=torch.float64)
    quarter = planar(Cyclic(4)).matrix(torch.tensor([1]))
    return isometry_defect(shear @ quarter @ torch.linalg.inv(shear))


def _three(case: str, x: Tensor, y: Tensor, images: Callable, distance: Callable, cost: Tensor) -> ThreeValues:
    """Compare the routes; a potential takes one value on all images of a point and is 1-Lipschitz between images."""
    masses = [np.full(len(s), 1 / len(s)) for s in (x, y)]
    clouds = [images(s).flatten(0, 1) for s in (x, y)]
    spread = [np.full(len(s), 1 / len(s)) for s in clouds]
    points = torch.cat([x, y])
    every = images(points)
    pairs = distance(every.flatten(0, 1), every.flatten(0, 1))
    size = len(every)
    limits = pairs.reshape(size, len(points), size, len(points)).permute(0, 2, 1, 3).flatten(0, 1)
    gain = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    values = (transport(cost, *masses), transport(distance(*clouds), *spread), invariant_program(limits, gain))
    return ThreeValues(case, *values)


# --- S2 and S6: rates ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convergence:
    """Errors of the Wasserstein-1 estimate for equal laws against the sample size, and their rate."""

    name: str
    errors: dict[int, np.ndarray]
    rate: Rate


def uniform_torus(dim: int) -> Sampler:
    """Return the sampler of uniform points of the flat torus."""
    check_int("dim", dim)
    return lambda r, n, g: torch.rand(r, n, dim, dtype=torch.float64, generator=g)


def uniform_balls(dim: int, count: int = 1) -> Sampler:
    """Return the sampler of ``count`` independent uniform points of the unit ball of R^dim, one after the other."""
    check_int("dim", dim)
    check_int("count", count)

    def draw(r: int, n: int, g: torch.Generator) -> Tensor:
        x = torch.randn(r, n, count, dim, dtype=torch.float64, generator=g)
        radius = torch.rand(r, n, count, 1, dtype=torch.float64, generator=g) ** (1 / dim)
        return (radius * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)).flatten(2)

    return draw


def uniform_moduli(r: int, n: int, g: torch.Generator) -> Tensor:
    """Return points of C^2 with independent uniform moduli in [0, 1] and uniform phases, as rows of four numbers."""
    modulus, angle = torch.rand(2, r, n, 2, dtype=torch.float64, generator=g)
    angle = 2 * math.pi * angle
    return torch.cat([modulus * angle.cos(), modulus * angle.sin()], -1)


def finite_cases() -> dict[str, tuple[Isometries, Sampler]]:
    """Return translations of the torus by halves, in dimensions one to four."""
    return {f"d = {d}": (lattice(2, d), uniform_torus(d)) for d in (1, 2, 3, 4)}


def infinite_cases() -> dict[str, tuple[Isometries, Sampler]]:
    """Return the five Lie groups of the register with an invariant law each."""
    return {
        "SO(2) on the plane": (radial(2), uniform_balls(2)),
        "SO(3) on space": (radial(3), uniform_balls(3)),
        "$T^2$ on $C^2$": (moduli(2), uniform_moduli),
        "U(1) on $C^2$": (phase(2), uniform_balls(4)),
        "SO(3) on pairs": (pairs_in_space(), uniform_balls(3, 2)),
    }


def transport_errors(
    action: Isometries, sampler: Sampler, replicates: dict[int, int], seeds: int
) -> dict[int, np.ndarray]:
    """Return ``W^Σ(Q_n, P_n)`` for equal laws, whose true distance is zero: size → replicates."""
    errors = {}
    for n, count in replicates.items():
        parts = []
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(10_000 * seed + n)
            share = math.ceil(count / seeds)
            x, y = sampler(share, n, generator), sampler(share, n, generator)
            parts.append(_distances(x, y, action))
        errors[n] = np.concatenate(parts)
    return errors


def _distances(x: Tensor, y: Tensor, action: Isometries) -> np.ndarray:
    """Return Wasserstein-1 distances of replicates; the costs are computed on the GPU where there is one."""
    device = default_device()
    return w1_batch(x.to(device), y.to(device), action).cpu().numpy()


def convergence(name: str, action: Isometries, sampler: Sampler, settings: Settings) -> Convergence:
    """Measure errors against n and the corrected rate for one group."""
    errors = transport_errors(action, sampler, settings.replicates(action.quotient_dim), settings.seeds)
    return convergence_of(name, errors, action.quotient_dim)


def convergence_of(name: str, errors: dict[int, np.ndarray], q: int) -> Convergence:
    """Return the rate of measured errors under the law of dimension q; means over batches of replicates do as well."""
    return Convergence(name, errors, corrected_rate(errors, q, FIT_TO, TEST_FROM))


def convergences(cases: dict[str, tuple[Isometries, Sampler]], settings: Settings) -> list[Convergence]:
    """Return :func:`convergence` for every case, two at a time (the solvers run side by side)."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda name: convergence(name, *cases[name], settings), cases))


def wrong_rate(result: Convergence, q: int) -> Rate:
    """Return the rate of the same errors under the law of another dimension q: a control."""
    return corrected_rate(result.errors, q, FIT_TO, TEST_FROM)


# --- the gain in |Σ| -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """Errors at one sample size against the order of the group."""

    name: str
    errors: dict[int, np.ndarray]
    theory: float
    slope: float
    interval: tuple[float, float]


SIDES = {1: (1, 4, 16, 64, 256), 2: (1, 2, 4, 8, 16), 3: (1, 2, 3, 4, 6), 4: (1, 2, 3, 4)}


def lattice_gain(dim: int, settings: Settings, n: int = 64) -> Gain:
    """Measure the error under translations of the torus of orders up to 256, each with samples of its own."""
    count = (8000 if dim == 1 else 160) * settings.factor
    return gain_of(dim, {side**dim: lattice_errors(dim, side, count, n) for side in SIDES[dim]})


def lattice_errors(dim: int, side: int, count: int, n: int) -> np.ndarray:
    """Return ``W^Σ(Q_n, P_n)`` of uniform samples of the torus under its translations by 1/side, ``count`` times."""
    generator = torch.Generator().manual_seed(77 * side + dim)
    x, y = (torch.rand(count, n, dim, dtype=torch.float64, generator=generator) for _ in range(2))
    return _distances(x, y, lattice(side, dim))


def gain_of(dim: int, errors: dict[int, np.ndarray]) -> Gain:
    """Return the slope in the order of the group, with its bootstrap interval."""
    value, low, high = bootstrap_slope(errors)
    return Gain(f"d = {dim}", errors, -1 / dim, value, (low, high))


@dataclass(frozen=True)
class DiscGain:
    """Errors under rotations of the disc against their number, and those that all rotations leave."""

    errors: dict[int, np.ndarray]
    all_rotations: np.ndarray

    @property
    def floor(self) -> float:
        """Mean error that all rotations leave."""
        return float(self.all_rotations.mean())

    @property
    def slope(self) -> float:
        """Slope over all orders."""
        return bootstrap_slope(self.errors)[0]

    @property
    def late_slope(self) -> float:
        """Slope from 32 rotations on."""
        return bootstrap_slope({order: values for order, values in self.errors.items() if order >= 32})[0]


TURNS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def disc_gain(settings: Settings, n: int = 64, orders: tuple[int, ...] = TURNS, count: int | None = None) -> DiscGain:
    """Measure the error under C_L for uniform points of the disc, the same samples for every L.

    ``count`` replicates; by default a hundred, or a thousand at the paper's scale.
    """
    generator = torch.Generator().manual_seed(5)
    x, y = (uniform_balls(2)(count or 100 * settings.factor, n, generator) for _ in range(2))
    errors = {order: _distances(x, y, turns(order)) for order in orders}
    return DiscGain(errors, _distances(x, y, radial(2)))


@dataclass(frozen=True)
class DifferentLaws:
    """Errors ``|W(Q, P) − W^Σ(Q_n, P_n)|`` for two different invariant laws, with and without the group."""

    distance: float
    plain: dict[int, np.ndarray]
    grouped: dict[int, np.ndarray]
    equal_laws: dict[int, np.ndarray]


def different_laws(settings: Settings, k: int = 4) -> DifferentLaws:
    """Measure the error for P uniform on the torus and Q on stripes, both invariant under translations by 1/k.

    In every cell of side 1/k, Q has its first coordinate in the left half. The distance is that of the two laws of the
    first coordinate modulo 1/k, ``1/8k``: no transport may be cheaper, and moving along the axis costs no more.
    """
    distance = 1 / (8 * k)
    sizes = {16: 200, 32: 120, 64: 80, 128: 40, 256: 16, 512: 6}
    plain, grouped, equal = {}, {}, {}
    for n, count in sizes.items():
        generator = torch.Generator().manual_seed(900 + n)
        x, y, z = torch.rand(3, count * settings.factor, n, 2, dtype=torch.float64, generator=generator)
        cell = torch.floor(x[..., 0] * k)
        x = torch.stack([(cell + (x[..., 0] * k - cell) / 2) / k, x[..., 1]], -1)
        for target, group in ((plain, lattice(1, 2)), (grouped, lattice(k, 2))):
            target[n] = np.abs(_distances(x, y, group) - distance)
        equal[n] = _distances(z, y, lattice(k, 2))
    return DifferentLaws(distance, plain, grouped, equal)
