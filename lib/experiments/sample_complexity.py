"""Chapter *Sample complexity*: Wasserstein-1 under a group. Settings in, typed results out, no plotting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import beta
from torch import Tensor

from lib.checks import check_choice, check_int, seeded
from lib.device import default_device
from lib.page.parameters import independent_seeds
from lib.symmetry.actions import natural, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.transport.divergences import invariant_program, transport, w1_batch
from lib.transport.quotient import (
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
from lib.transport.rates import Rate, adjusted, bootstrap_slope, corrected_rate

SCALES = ("default", "paper")
FIT_TO = TEST_FROM = 64  # the law is fitted to smaller samples and tested on larger ones
SEEDS = (0, 1, 2, 3)
Sampler = Callable[[int, int, torch.Generator], Tensor]


def independent_draws(
    draw: Callable[[int, torch.Generator], tuple[Tensor, ...]], count: int, seeds: Sequence[int], stream: int
) -> tuple[Tensor, ...]:
    """Return ``count`` replicates, rounded up to a multiple of the number of seeds, of which each seed draws its share.

    Parameters
    ----------
    draw
        From a number of replicates and a generator to tensors whose first axis are the replicates.
    count
        Replicates.
    seeds
        Seeds of the generators.
    stream
        A number below 10 000 that tells experiments with the same seeds apart.
    """
    share = math.ceil(check_int("count", count) / len(seeds))
    drawn = [draw(share, seeded(10_000 * seed + stream)) for seed in seeds]
    return tuple(torch.cat(parts) for parts in zip(*drawn, strict=True))


@dataclass(frozen=True)
class Settings:
    """Size of the chapter's experiments.

    Attributes
    ----------
    scale : str
        ``"default"`` for under a minute, ``"paper"`` for the large grid.
    seed : int
        First of the independent seeds.
    seeds : int
        Independent seeds; the replicates of every experiment are shared out among them.
    """

    scale: str = "default"
    seed: int = 0
    seeds: int = 4

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_int("seed", self.seed, minimum=0)
        check_int("seeds", self.seeds, minimum=2, maximum=20)

    @property
    def independent(self) -> list[int]:
        """The seeds."""
        return independent_seeds(self.seed, self.seeds)

    def replicates(self, quotient_dim: int) -> dict[int, int]:
        """Return replicates per sample size of the Wasserstein experiments, over all seeds.

        Quotients of dimension one need no solver, and noise is largest where the largest scales count most, q = 1, 2.
        """
        if quotient_dim == 1:
            plan = dict.fromkeys((16, 32, 64, 128, 256, 512), 8000)
        elif quotient_dim == 2:
            plan = {16: 3000, 32: 2500, 64: 2000, 128: 1000, 256: 400, 512: 60}
        else:
            plan = {16: 2400, 32: 2000, 64: 1600, 128: 800, 256: 240, 512: 40}
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


def sample_pairs(sampler: Sampler, count: int, n: int, seeds: Sequence[int], stream: int) -> tuple[Tensor, Tensor]:
    """Return two independent samples of n points, ``count`` times, see :func:`independent_draws`."""
    x, y = independent_draws(lambda share, g: (sampler(share, n, g), sampler(share, n, g)), count, seeds, stream)
    return x, y


LANDMARKS, CONTROLS = 64, 20


def control_variates(
    action: Isometries, sampler: Sampler, generator: torch.Generator
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return variables of expectation zero that follow the large-scale part of ``W^Σ(Q_n, P_n)`` for equal laws.

    For any function φ, ``E (mean of φ over x − mean of φ over y)² = 2 Var φ / n`` exactly. The φ are the leading
    principal components of the distances to some orbits, so that they do not change along orbits.

    Parameters
    ----------
    action, sampler
        The group, and the law.
    generator
        For the orbits, and for the points from which the variances are computed.

    Returns
    -------
    Callable
        From samples x and y, shapes ``(r, n, dim)``, to ``n/2 · difference²/variance − 1``, shape ``(r, CONTROLS)``.
    """
    landmarks = sampler(1, LANDMARKS, generator)[0]
    points = torch.cat([action.distance(sampler(1, 10_000, generator)[0], landmarks) for _ in range(10)])
    variance, components = torch.linalg.eigh(torch.cov(points.T))
    chart = (components / variance.clamp_min(1e-300).sqrt()).flip(-1)[:, :CONTROLS]

    def means(x: Tensor) -> Tensor:
        return torch.cat([action.distance(part, landmarks).mean(-2) for part in x.split(max(1, 2**12 // x.shape[1]))])

    return lambda x, y: x.shape[1] / 2 * ((means(x) - means(y)) @ chart).square() - 1


def transport_errors(
    action: Isometries, sampler: Sampler, replicates: Mapping[int, int], seeds: Sequence[int] = SEEDS
) -> dict[int, np.ndarray]:
    """Return ``W^Σ(Q_n, P_n)`` for equal laws, whose true distance is zero: size → replicates.

    Noise is reduced by :func:`control_variates`: means are those of the distances, single values are not.
    """
    controls, errors = control_variates(action, sampler, seeded(10_000 * seeds[0])), {}
    for n, count in replicates.items():
        x, y = sample_pairs(sampler, count, n, seeds, stream=n)
        values = controls(x, y)[:, : len(x) // 8].numpy()
        errors[n] = adjusted(_distances(x, y, action), values)
    return errors


def _distances(x: Tensor, y: Tensor, action: Isometries) -> np.ndarray:
    """Return Wasserstein-1 distances of replicates; the costs are computed on the GPU where there is one."""
    device = default_device()
    return w1_batch(x.to(device), y.to(device), action).cpu().numpy()


def convergence(
    name: str, action: Isometries, sampler: Sampler, settings: Settings, leading: float | None = None
) -> Convergence:
    """Measure errors against n and the corrected rate for one group; ``leading`` as in :func:`convergence_of`."""
    plan = settings.replicates(action.quotient_dim)
    return convergence_of(name, transport_errors(action, sampler, plan, settings.independent), action, leading)


def convergence_of(
    name: str, errors: dict[int, np.ndarray], action: Isometries, leading: float | None = None
) -> Convergence:
    """Return the rate of measured errors under the law of the quotient; means over batches of replicates do as well.

    Where the quotient has a boundary, ``leading`` is the law's first constant, see :func:`leading_terms`.
    """
    return Convergence(name, errors, corrected_rate(errors, action.quotient_dim, FIT_TO, TEST_FROM, leading=leading))


def convergences(
    cases: dict[str, tuple[Isometries, Sampler]], settings: Settings, leading: Mapping[str, float] | None = None
) -> list[Convergence]:
    """Return :func:`convergence` for every case, two at a time (the solvers run side by side)."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        known = leading or {}
        return list(pool.map(lambda name: convergence(name, *cases[name], settings, known.get(name)), cases))


def quotient_spread() -> dict[str, float]:
    """Return ``∫ f^{1−1/q} = E f^{−1/q}`` for the infinite groups with q ≥ 2, f the density of the law on the quotient.

    f is the volume of an orbit times the density on the space. For T² the quotient is the unit square with f = 1. For
    U(1) on the unit ball of C² an orbit is a circle of length 2πr. For SO(3) and two points u, v of the unit ball of
    R^3 its volume is ``8π² √det(|u|² + |v|² − uuᵀ − vvᵀ) = 8π² rs sin θ √(r² + s²)``, with r and s the lengths and θ
    the angle.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    r, w = (nodes + 1) / 2, weights / 2 * 3 * ((nodes + 1) / 2) ** (5 / 3)
    pairs = w @ (r[:, None] ** 2 + r**2) ** (-1 / 6) @ w
    angle = beta(5 / 6, 1 / 2) / 2  # E (sin θ)^{−1/3}
    space = (8 * math.pi**2 / (4 * math.pi / 3) ** 2) ** (-1 / 3)
    return {
        "$T^2$ on $C^2$": 1.0,
        "U(1) on $C^2$": 3 / 11 * (16 * math.pi) ** (1 / 3),
        "SO(3) on pairs": float(space * angle * pairs),
    }


def leading_terms(torus: Sequence[Convergence]) -> dict[str, float]:
    """Return the coefficient a of the infinite groups with q ≥ 2 from that of the torus of the same dimension.

    The leading term is a sum over small cells, which know nothing of the whole space: ``√a`` is a constant of the
    dimension times :func:`quotient_spread`, which is 1/2 for the torus of side 1/2.

    Parameters
    ----------
    torus
        Results of :func:`finite_cases`, q = 2 and q = 3 among them.
    """
    a = {c.rate.quotient_dim: 4 * c.rate.a for c in torus}
    cases = infinite_cases()
    return {name: a[cases[name][0].quotient_dim] * spread**2 for name, spread in quotient_spread().items()}


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
    count, seeds = (8000 if dim == 1 else 400) * settings.factor, settings.independent
    return gain_of(dim, {side**dim: lattice_errors(dim, side, count, n, seeds) for side in SIDES[dim]})


def lattice_errors(dim: int, side: int, count: int, n: int, seeds: Sequence[int] = SEEDS) -> np.ndarray:
    """Return ``W^Σ(Q_n, P_n)`` of uniform samples of the torus under its translations by 1/side, ``count`` times."""
    pairs = sample_pairs(uniform_torus(dim), count, n, seeds, stream=3000 + 10 * side + dim)
    return _distances(*pairs, lattice(side, dim))


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
    x, y = sample_pairs(uniform_balls(2), count or 100 * settings.factor, n, settings.independent, stream=6000 + n)
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
        x, y, z = independent_draws(
            lambda share, g, n=n: tuple(torch.rand(3, share, n, 2, dtype=torch.float64, generator=g)),
            count * settings.factor,
            settings.independent,
            stream=7000 + n,
        )
        cell = torch.floor(x[..., 0] * k)
        x = torch.stack([(cell + (x[..., 0] * k - cell) / 2) / k, x[..., 1]], -1)
        for target, group in ((plain, lattice(1, 2)), (grouped, lattice(k, 2))):
            target[n] = np.abs(_distances(x, y, group) - distance)
        equal[n] = _distances(z, y, lattice(k, 2))
    return DifferentLaws(distance, plain, grouped, equal)
