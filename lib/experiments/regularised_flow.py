"""Chapter *Mean-field dynamics*: training with penalty and noise has one endpoint (M8).

Units tanh(zx) with one parameter, X standard normal (the nodes of a Gauss–Hermite rule), and a teacher that is a law
itself, ½ δ_3 + 0.3 δ_{−1} + 0.2 δ_0, so that the risk alone has many minimisers: tanh is odd, and mass spread evenly
over ±a cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_float, check_int, check_tensor, seeded
from lib.page.parameters import independent_seeds
from lib.symmetry.actions import sign
from lib.symmetry.groups import Symmetric
from lib.training.finite_volumes import Path, flow
from lib.training.free_energy import FreeEnergy
from lib.training.mean_field import Layer
from lib.training.mean_field_descent import Descent, FixedData, train

PAIRS = ((0.05, 0.02), (0.01, 0.005))
TEACHER = ((3.0, 0.5), (-1.0, 0.3), (0.0, 0.2))


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes
    ----------
    cells : int
        Cells of the grid on [−reach, reach].
    reach : float
        Half the length of the grid.
    nodes : int
        Nodes of the Gauss–Hermite rule, even; by symmetry the positive half is used.
    centre, spread : float
        The two starts are normal laws with means ±centre and this standard deviation.
    units : int
        Particles N in a cloud.
    clouds : int
        Independent clouds for each start.
    rate : float
        Time step s of the particles.
    duration : float
        How long they are trained.
    """

    cells: int = 400
    reach: float = 7.0
    nodes: int = 16
    centre: float = 2.5
    spread: float = 0.5
    units: int = 1000
    clouds: int = 8
    rate: float = 0.2
    duration: float = 200.0

    def __post_init__(self) -> None:
        check_int("cells", self.cells, minimum=50)
        check_int("nodes", self.nodes, minimum=2, maximum=200)
        if self.nodes % 2:
            raise ValueError(f"nodes must be even, got {self.nodes}")
        check_float("reach", self.reach, minimum=1.0)
        check_float("centre", self.centre, minimum=0.0, maximum=self.reach)
        check_float("spread", self.spread, minimum=0.01)
        check_int("units", self.units, minimum=2)
        check_int("clouds", self.clouds)
        check_float("rate", self.rate, minimum=1e-4, maximum=1.0)
        check_float("duration", self.duration, minimum=self.rate)


def functional(settings: Settings, penalty: float, temperature: float) -> FreeEnergy:
    """Return F for the teacher's data."""
    x, w = np.polynomial.hermite_e.hermegauss(settings.nodes)
    x, w = torch.from_numpy(x[x > 0]), torch.from_numpy(w[x > 0] / w[x > 0].sum())
    y = sum(mass * torch.tanh(z * x) for z, mass in TEACHER)
    width = 2 * settings.reach / settings.cells
    grid = (torch.arange(settings.cells, dtype=torch.float64) + 0.5) * width - settings.reach
    return FreeEnergy(lambda a, z: torch.tanh(a * z), x, y, w, grid, penalty, temperature)


def starts(settings: Settings, grid: Tensor) -> Tensor:
    """Return the two starts on the grid, shape ``(2, n)``: left and right."""
    centres = torch.tensor([[-settings.centre], [settings.centre]], dtype=torch.float64)
    return torch.softmax(-((grid - centres) ** 2) / (2 * settings.spread**2), -1)


# --- flow against fixed point ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ends:
    """Flows from the two starts, measured by one functional F.

    Attributes
    ----------
    functional : FreeEnergy
        F, by which everything is measured.
    minimiser : Tensor
        The Gibbs fixed point, shape ``(n,)``.
    paths : list of Path
        One flow per start.
    """

    functional: FreeEnergy
    minimiser: Tensor
    paths: list[Path]

    @property
    def increase(self) -> float:
        """Largest change of F in a step; negative when F decreases in every step."""
        return max(float(self.functional.change(path.laws[:-1], path.laws[1:]).max()) for path in self.paths)

    @property
    def distance(self) -> float:
        """Total variation distance of the two ends."""
        return total_variation(self.paths[0].laws[-1], self.paths[1].laws[-1])

    @property
    def gap(self) -> float:
        """Largest |F(end) − lower bound|, the bound being one that no law on the grid can beat."""
        F = self.functional
        bound = F.lower_bound(F.residual(self.minimiser))
        return max(float((F.energy(path.laws[-1]) - bound).abs()) for path in self.paths)


def follow(settings: Settings, penalty: float, temperature: float, regularised: bool = True) -> Ends:
    """Follow the flow from both starts and find the fixed point.

    Parameters
    ----------
    settings
        Grid, data, starts.
    penalty, temperature
        τ and β of the functional that measures.
    regularised
        Whether the flow has the penalty and the temperature, too; ``False`` is the control, the flow of the risk
        alone, for 200 steps (to time 3500).
    """
    F = functional(settings, penalty, temperature)
    driving = F if regularised else functional(settings, 0.0, 0.0)
    paths = [flow(driving, start, steps=1000 if regularised else 200) for start in starts(settings, F.grid)]
    return Ends(F, F.minimiser(), paths)


def total_variation(p: Tensor, q: Tensor) -> float:
    """Return ½ Σ |p_i − q_i|."""
    return 0.5 * float((p - q).abs().sum())


# --- particles ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Particles:
    """Clouds of noisy particles after training, and clouds of independent draws of the same size.

    Attributes
    ----------
    clouds : Tensor
        Shape ``(2, clouds, N)``, the first axis being the start.
    errors : Tensor
        W2 of every cloud to the Gibbs law, shape ``(2, clouds)``.
    floor : Tensor
        W2 of independent samples of N points to their own law, shape ``(replicates,)``.
    accepted : Tensor
        Which of these samples rejection keeps as draws of the particles' resting law; see :func:`resting_exponent`.
    """

    clouds: Tensor
    errors: Tensor
    floor: Tensor
    accepted: Tensor

    def interval(self, level: float = 0.99) -> tuple[float, float]:
        """Return the interval that holds the error of an independent sample with this probability."""
        check_float("level", level, minimum=0.0, maximum=1.0)
        ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = self.floor.quantile(ends).tolist()
        return low, high

    def interval_miss(self) -> list[float]:
        """Return, for each start, the distance from the median error to the interval, zero inside."""
        low, high = self.interval()
        return [max(low - m, m - high, 0.0) for m in self.errors.quantile(0.5, dim=-1).tolist()]


def train_particles(
    settings: Settings, F: FreeEnergy, noise: float = 1.0, seed: int = 0, replicates: int = 1000
) -> Particles:
    """Train clouds from the two starts by noisy gradient descent, z ← z − s (V′(z) + τz) + √(2βs) ξ.

    All data are seen in every step, so that only the number of particles and the time step differ from the flow.

    Parameters
    ----------
    settings
        Number and size of the clouds, time step s, duration.
    F
        The functional.
    noise
        Factor on the temperature of the noise; other than 1 is the control.
    seed
        Of the starts and the floor; the noise of the clouds has the seeds 1000·seed, 1000·seed + 1, ….
    replicates
        Independent samples for the floor.
    """
    unit = scalar_unit()
    generator = seeded(seed)
    check_int("replicates", replicates)
    count, shape = 2 * settings.clouds, (2, settings.clouds, settings.units)
    centres = torch.tensor([-settings.centre, settings.centre], dtype=torch.float64)[:, None, None]
    z = centres + settings.spread * torch.randn(shape, generator=generator, dtype=torch.float64)
    rate = settings.rate * settings.units
    descent = Descent(
        rate, settings.duration / rate, F.penalty, F.temperature * check_float("noise", noise, minimum=0.0)
    )
    data = FixedData(unit, F.x[:, None], F.y[None, :, None], F.weights)
    start = z.reshape(count, 1, settings.units, 1)
    end = train(unit, "vanilla", start, data, descent, independent_seeds(seed, count)).end.reshape(shape)
    target = F.minimiser()
    samples = quantile(target, F.grid, torch.rand(replicates, settings.units, generator=generator, dtype=torch.float64))
    chance = torch.exp(-resting_exponent(F, samples))
    accepted = torch.rand(replicates, generator=generator, dtype=torch.float64) < chance
    return Particles(end, w2_to_grid(end, target, F.grid), w2_to_grid(samples, target, F.grid), accepted)


def scalar_unit() -> Layer:
    """Return tanh(zx) on the line, under the change of sign."""
    odd = sign(Symmetric(2))
    return Layer(odd, odd, "tanh")


@dataclass(frozen=True, eq=False)
class Chase:
    """Clouds of particles beside the flow of their limit, at the same times.

    Attributes
    ----------
    times : tuple of float
        Times of the flow.
    errors : dict of int to Tensor
        For every N, W2 of every cloud to the law of the flow, shape ``(clouds, times)``.
    floors : dict of int to Tensor
        The same for independent samples of N points from the law of the flow, shape ``(replicates, times)``.
    """

    times: tuple[float, ...]
    errors: dict[int, Tensor]
    floors: dict[int, Tensor]


def chase(
    settings: Settings,
    penalty: float,
    temperature: float,
    sizes: Sequence[int] = (50, 200, 800),
    times: Sequence[float] = (1.0, 3.0, 10.0),
    together: bool = True,
    replicates: int = 200,
    seed: int = 0,
) -> Chase:
    """Compare clouds of N particles with the Wasserstein gradient flow while both are still on their way.

    Particles take steps of 1/20; the flow, from the right start, implicit steps of 1/50, whose error in the mean of the
    law is about 0.001.

    Parameters
    ----------
    settings
        Grid, data, starts, number of clouds.
    penalty, temperature
        τ and β.
    sizes
        The N.
    times
        Multiples of 1/10.
    together
        Whether particles feel each other through Φ_ν; ``False`` is the control: every particle is a network of its own,
        with the same start, data, penalty and noise.
    replicates
        Independent samples for the floor.
    seed
        Number of the independent set of clouds.
    """
    check_int("seed", seed, minimum=0)
    F, unit, generator = functional(settings, penalty, temperature), scalar_unit(), seeded(1000 * seed + 7)
    for t in times:
        if abs(check_float("times", t, minimum=0.05) * 10 - round(t * 10)) > 1e-9:
            raise ValueError(f"times must be multiples of 0.1, got {t}")
    laws = _laws_on_the_way(settings, penalty, temperature, tuple(times))
    data = FixedData(unit, F.x[:, None], F.y[None, :, None], F.weights)
    errors, floors = {}, {}
    for size in sizes:
        z = torch.randn(settings.clouds, check_int("sizes", size), generator=generator, dtype=torch.float64)
        z = settings.centre + settings.spread * z
        start = z[:, None, :, None] if together else z.reshape(-1, 1, 1, 1)
        rate, frames = 0.05 * start.shape[2], round(20 * max(times))
        descent = Descent(rate, max(times) / rate, F.penalty, F.temperature)
        own = range(10_000 * seed, 10_000 * seed + len(start))
        way = train(unit, "vanilla", start, data, descent, own, frames=frames).particles
        seen = [way[round(20 * t)].reshape(settings.clouds, size) for t in times]
        errors[size] = torch.stack([w2_to_grid(c, p, F.grid) for c, p in zip(seen, laws, strict=True)], 1)
        u = torch.rand(replicates, size, generator=generator, dtype=torch.float64)
        floors[size] = torch.stack([w2_to_grid(quantile(p, F.grid, u), p, F.grid) for p in laws], 1)
    return Chase(tuple(times), errors, floors)


@cache
def _laws_on_the_way(settings: Settings, penalty: float, temperature: float, times: tuple[float, ...]) -> list[Tensor]:
    F = functional(settings, penalty, temperature)
    path = flow(F, starts(settings, F.grid)[1], first=0.02, growth=1.0, tolerance=0.0, steps=round(50 * max(times)))
    return [path.laws[round(50 * t)] for t in times]


def resting_exponent(F: FreeEnergy, clouds: Tensor) -> Tensor:
    """Return ``(N/2β) Σ_k w_k (Φ_k − Φ*_k)²`` for clouds, shape ``(..., N)``; Φ, Φ* are outputs of cloud and Gibbs law.

    Noisy gradient descent of N particles has the resting density ``∏ μ*(z_i) · exp(−exponent)``, for small time steps:
    the potential of all particles is N times risk plus penalty, and this is quadratic in Φ. So independent draws of the
    Gibbs law μ*, accepted with probability exp(−exponent), are clouds at rest.
    """
    miss = F.cloud_residual(clouds) - F.residual(F.minimiser())
    return clouds.shape[-1] / (2 * F.temperature) * (F.weights * miss**2).sum(-1)


def quantile(p: Tensor, grid: Tensor, u: Tensor) -> Tensor:
    """Return the quantiles at levels u of the law with constant density p_i/h in every cell."""
    width = (grid[-1] - grid[0]) / (len(grid) - 1)
    edges = torch.cat([grid - width / 2, grid[-1:] + width / 2])
    reached = torch.cat([p.new_zeros(1), p.cumsum(-1)])
    return torch.from_numpy(np.interp(u.numpy(), reached.numpy() / float(reached[-1]), edges.numpy()))


def w2_to_grid(points: Tensor, p: Tensor, grid: Tensor, parts: int = 16) -> Tensor:
    """Return the Wasserstein-2 distance of clouds to a law on the grid, by sorting: W2² = ∫ (Q_cloud − Q_p)² du.

    Parameters
    ----------
    points
        Shape ``(..., N)``.
    p, grid
        Masses and centres of the cells, shape ``(n,)``.
    parts
        Points of the midpoint rule for each of the N steps of the cloud's quantile function.
    """
    check_tensor("points", points, (None,), inexact=True)
    check_tensor("p", p, (len(check_tensor("grid", grid, (None,), inexact=True)),), inexact=True)
    count = check_int("the number of points", points.shape[-1])
    levels = (torch.arange(count * check_int("parts", parts), dtype=torch.float64) + 0.5) / (count * parts)
    other = quantile(p, grid, levels).reshape(count, parts)
    return ((points.sort(-1).values[..., None] - other) ** 2).mean((-1, -2)).sqrt()
