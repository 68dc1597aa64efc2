"""Chapter *Mean-field dynamics*: the source's grid of trainings and its distances (claims M1, M5, M6, M7).

One call trains seeds × teachers × initial laws for every scheme and one number of particles N; :func:`measure` turns
the trained clouds into a table of distances, and :func:`slopes` gives their slopes in N. The controls break one
assumption each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import linregress
from scipy.stats import t as student
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, check_tensor, seeded
from lib.experiments.mean_field_source import (
    NETWORKS,
    TEACHERS,
    gaussian,
    orbit_starts,
    source_unit,
    starts,
    stream,
    teacher,
)
from lib.training.mean_field import project, symmetrise
from lib.training.mean_field_descent import TRAININGS, Descent, TeacherData, train
from lib.transport.particle_distances import projection_rmd2, rmd2, sample_floor, squared_w2

PAIRS = (("DA", "FA"), ("vanilla", "DA"), ("DA", "EA"))
Ends = dict[str, Tensor]
Table = dict[int, dict[str, Tensor]]
Plan = Mapping[int, Sequence[int]]  # N -> seeds


def train_networks(
    count: int,
    seeds: Sequence[int],
    schemes: Sequence[str] = TRAININGS,
    descent: Descent | None = None,
    dtype: torch.dtype = torch.float64,
    workers: int = 2,
) -> Ends:
    """Train the source's six networks (teachers × initial laws) for all seeds by every scheme.

    Runs from a strongly invariant law have projected noise.

    Parameters
    ----------
    count
        N.
    seeds
        Seeds; each has its own students, data and noise, the same for all schemes.
    schemes
        Some of ``TRAININGS``.
    descent
        Settings of SGD; default the source's.
    dtype
        Type of the computation.
    workers
        Schemes trained at the same time.

    Returns
    -------
    dict of str to Tensor
        For every scheme the trained particles, shape ``(seeds, 6, N, 4)``, networks in the order of ``NETWORKS``.
    """
    unit, start = source_unit(), starts(check_int("count", count), seeds).to(dtype)
    data = TeacherData(unit, [teacher(kind) for _, kind in NETWORKS])
    projected = [law == "SI" for law, _ in NETWORKS]
    for scheme in schemes:
        check_choice("schemes", scheme, TRAININGS)

    def one(scheme: str) -> Tensor:
        return train(unit, scheme, start, data, descent or Descent(), seeds, projected=projected).end

    with ThreadPoolExecutor(check_int("workers", workers)) as pool:
        return dict(zip(schemes, pool.map(one, schemes), strict=True))


def measure(ends: Ends) -> dict[str, Tensor]:
    """Return the distances of one grid, a row per seed (or pair of seeds) and a column per teacher.

    ``weak/<scheme>``: RMD² to the symmetrised law, from a weakly invariant start. ``strong/<scheme>``: RMD² to the
    projected law, from a strongly invariant start. ``<law>/<a>-<b>``: RMD² between two schemes, from a start of that
    law. ``independent/<law>/<scheme>``: W2 between the runs of seeds 0 and 1, 2 and 3, and so on.
    """
    unit, half, table = source_unit(), len(TEACHERS), {}
    if not ends or min(map(len, ends.values())) < 2:
        raise ValueError("ends must hold at least one scheme and two seeds, for a distance between independent runs")
    for scheme, end in ends.items():
        free, fixed = end[:, :half], end[:, half:]
        table[f"weak/{scheme}"] = rmd2(free, symmetrise(free, unit.parameters))
        table[f"strong/{scheme}"] = projection_rmd2(fixed, unit.fixed)
        paired = end[: len(end) // 2 * 2]
        for law, part in (("WI", paired[:, :half]), ("SI", paired[:, half:])):
            table[f"independent/{law}/{scheme}"] = squared_w2(part[0::2], part[1::2]).sqrt()
    for a, b in PAIRS:
        if a in ends and b in ends:
            table[f"WI/{a}-{b}"] = rmd2(ends[a][:, :half], ends[b][:, :half])
            table[f"SI/{a}-{b}"] = rmd2(ends[a][:, half:], ends[b][:, half:])
    return table


def symmetry_floor(sizes: Sequence[int], repeats: int = 20, seed: int = 1) -> Tensor:
    """Return RMD² between N independent particles of the initial law and their symmetrisation, (sizes, repeats)."""
    parameters = source_unit().parameters
    return sample_floor(gaussian, sizes, repeats, seeded(seed), lambda points: symmetrise(points, parameters))


def pooled_floor(cloud: Tensor, sizes: Sequence[int], repeats: int = 20, seed: int = 2) -> Tensor:
    """Return W2 between two independent samples of N from a trained law, represented by a large cloud.

    Parameters
    ----------
    cloud
        Trained particles, shape ``(n, d)``, n at least twice the largest N.
    sizes
        The N.
    repeats, seed
        Repetitions for each N, and the seed of the draws.

    Returns
    -------
    Tensor
        Shape ``(sizes, repeats)``.
    """
    generator = seeded(seed)
    check_tensor("cloud", cloud, (None, None), inexact=True)
    for size in _check_sizes(sizes):
        check_int("sizes", size)
    if len(cloud) < 2 * max(sizes):
        raise ValueError(f"cloud must hold at least {2 * max(sizes)} particles, got {len(cloud)}")
    rows = []
    for size in sizes:
        picks = [torch.randperm(len(cloud), generator=generator)[: 2 * size] for _ in range(repeats)]
        clouds = cloud[torch.stack(picks)].unflatten(1, (2, size))
        rows.append(squared_w2(clouds[:, 0], clouds[:, 1]).sqrt())
    return torch.stack(rows)


def trained_symmetry_floor(cloud: Tensor, sizes: Sequence[int], repeats: int = 20, seed: int = 4) -> Tensor:
    """Return RMD² between N independent draws from a symmetrised trained law and their symmetrisation.

    The law is that of a large cloud and its images, so that it is weakly invariant; arguments and result as for
    :func:`pooled_floor`.
    """
    parameters = source_unit().parameters
    law = symmetrise(cloud, parameters)
    if len(law) < max(_check_sizes(sizes)):
        raise ValueError(f"cloud must hold at least {max(sizes)} particles with its images, got {len(law)}")

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return law[torch.randperm(len(law), generator=generator)[:count]]

    return sample_floor(draw, sizes, repeats, seeded(seed), lambda points: symmetrise(points, parameters))


def output_spread(clouds: Tensor, points: int = 200, seed: int = 5) -> float:
    """Return the standard deviation of Φ_ν(x) over clouds ``(R, N, 4)``: root mean square over x ~ N(0, 16·1)."""
    check_tensor("clouds", clouds, (None, 4), inexact=True)
    if clouds.ndim != 3 or len(clouds) < 2:
        raise ValueError(f"clouds must have shape (R, N, 4) with R ≥ 2, got {tuple(clouds.shape)}")
    x = 4 * torch.randn(check_int("points", points), 2, generator=seeded(seed)).to(clouds)
    return float(source_unit().network(x, clouds).var(0).mean().sqrt())


def causes(count: int, seeds: Sequence[int], batches: Sequence[int] = (20, 80)) -> dict[str, Tensor]:
    """Return RMD² between schemes for two starts and several batches, teacher ``WI``: why the schemes differ.

    Parameters
    ----------
    count
        N, even.
    seeds
        Seeds.
    batches
        Points per step.

    Returns
    -------
    dict of str to Tensor
        Keys ``<start>/<a>-<b>/<batch>``, one value per seed. Starts: ``sample``, independent units; ``orbits``, a union
        of orbits with images of the noise, for the first batch only.
    """
    unit, table = source_unit(), {}
    begin = {"sample": (starts(count, seeds)[:, :1], "plain"), "orbits": (orbit_starts(count, seeds)[:, :1], "images")}
    for batch in batches:
        data = TeacherData(unit, [teacher("WI")], batch=batch)
        for name, (start, noise) in begin.items():
            if name == "orbits" and batch != batches[0]:
                continue
            kinds = ("vanilla", "DA", "FA")
            ends = {k: train(unit, k, start, data, Descent(), seeds, noise=noise).end[:, 0] for k in kinds}
            for a, b in PAIRS[:2]:
                table[f"{name}/{a}-{b}/{batch}"] = rmd2(ends[a], ends[b])
    return table


@dataclass(frozen=True)
class Slope:
    """Slope of log distance against log N with its interval."""

    value: float
    low: float
    high: float


def slopes(table: Mapping[int, Mapping[str, Tensor]], key: str, level: float = 0.95, first: int = 20) -> list[Slope]:
    """Return one slope per column of ``table[N][key]``: a line through the logarithms of all runs, from N = first on.

    The interval is Student's, which takes the runs for independent, also at different N. Where a curve is no straight
    line its bend counts as scatter and makes the interval longer.

    Raises
    ------
    ValueError
        Fewer than two N, an unknown key, or a distance that is not positive.
    """
    table = {n: row for n, row in table.items() if n >= first}
    if len(table) < 2:
        raise ValueError(f"table must hold two numbers of particles of at least {first}, got {list(table)}")
    for n, row in table.items():
        if not bool((row[check_choice("key", key, row)] > 0).all()):
            raise ValueError(f"table[{n}][{key!r}] must be positive, got {float(row[key].min()):g}")
    check_float("level", level, minimum=0.0, maximum=1.0)
    x = np.log([n for n, row in table.items() for _ in row[key]])
    lines = [linregress(x, y) for y in torch.cat([row[key] for row in table.values()]).log().mT.numpy()]
    reach = student.ppf((1 + level) / 2, len(x) - 2)
    return [Slope(*(float(line.slope + sign * reach * line.stderr) for sign in (0, -1, 1))) for line in lines]


def fall(table: Mapping[int, Mapping[str, Tensor]], key: str, first: int = 20) -> list[float]:
    """Return, column by column, the median at the largest N over the median at N = ``first``.

    A slope can be negative although a curve has levelled off, if it fell at its beginning; this leaves the beginning
    out. A distance that falls like N^{-a} gives ``(largest/first)^{-a}``; one that has levelled off gives about one.
    """
    check_choice("first", first, table)
    ends = [table[n][check_choice("key", key, table[n])].quantile(0.5, dim=0) for n in (max(table), first)]
    return (ends[0] / ends[1]).tolist()


def mean_interval(values: Tensor, level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the geometric mean of distances; numbers below 1e-300 count as 1e-300."""
    if check_tensor("values", values, (None,), inexact=True).ndim != 1 or len(values) < 2:
        raise ValueError(f"values must be one row of at least two numbers, got shape {tuple(values.shape)}")
    reach = student.ppf((1 + check_float("level", level, minimum=0.0, maximum=1.0)) / 2, len(values) - 1)
    logs = values.double().clamp_min(1e-300).log()
    middle, half = float(logs.mean()), float(reach * logs.std() / len(logs) ** 0.5)
    return math.exp(middle - half), math.exp(middle + half)


def exact_runs(
    count: int, seeds: Sequence[int], scheme: str, noise: str = "images", temperature: float = 1e-6
) -> Tensor:
    """Return RMD² to the symmetrised law after training from a union of orbits, shape ``(seeds, teachers)``.

    With exact group means (``DA``, ``FA``) and noise that is switched off (temperature 0) or moved along with the
    images (``noise="images"``) the union of orbits stays one, whatever the teacher; with ``noise="plain"``, with
    ``"DA-sampled"`` or with ``"vanilla"`` it does not.
    """
    unit = source_unit()
    data = TeacherData(unit, [teacher(kind) for kind in TEACHERS])
    descent = Descent(temperature=temperature)
    end = train(unit, scheme, orbit_starts(count, seeds), data, descent, seeds, noise=noise).end
    return rmd2(end, symmetrise(end, unit.parameters))


def skew_teacher() -> Tensor:
    """Return 1.5 (1 − P) applied to the arbitrary teacher: particles without any part in E^G."""
    particles = teacher("arbitrary")
    return 1.5 * (particles - project(particles, source_unit().parameters))


def lopsided_control(plan: Plan) -> Table:
    """Return distances between DA and FA from a start that is *not* weakly invariant: their flows differ.

    Students N((1, 0, 0, −1), 1/400), teacher :func:`skew_teacher`. Keys, with one column: ``WI/DA-FA``, RMD² from one
    start; ``independent/DA-FA``, W2 between independent runs.
    """
    unit, table = source_unit(), {}
    data, centre = TeacherData(unit, [skew_teacher()]), torch.tensor([1.0, 0.0, 0.0, -1.0], dtype=torch.float64)
    for size, seeds in plan.items():
        start = 0.2 * starts(size, seeds)[:, :1] + centre
        ends = [train(unit, scheme, start, data, Descent(), seeds).end for scheme in ("DA", "FA")]
        half = len(seeds) // 2
        table[size] = {"WI/DA-FA": rmd2(*ends)}
        table[size]["independent/DA-FA"] = squared_w2(ends[0][:half], ends[1][-half:]).sqrt()
    return table


def heavy_control(plan: Plan) -> Table:
    """Return W2 between independent runs from a start *without second moments*, key ``independent/WI/vanilla``.

    Every Gaussian particle is divided by an independent uniform number, so that E‖z‖ is infinite; arbitrary teacher.
    """
    unit, table = source_unit(), {}
    data = TeacherData(unit, [teacher("arbitrary")])
    for size, seeds in plan.items():
        draws = [stream(3, s) for s in seeds]
        scale = torch.stack([torch.rand(1, size, 1, generator=g, dtype=torch.float64) for g in draws])
        end = train(unit, "vanilla", starts(size, seeds)[:, :1] / scale, data, Descent(), seeds).end
        end = end[: len(end) // 2 * 2]
        table[size] = {"independent/WI/vanilla": squared_w2(end[0::2], end[1::2]).sqrt()}
    return table


def _check_sizes(sizes: Sequence[int]) -> Sequence[int]:
    if not len(sizes):
        raise ValueError("sizes must hold at least one number of particles, got none")
    return sizes
