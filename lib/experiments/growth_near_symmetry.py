"""Chapter *Stability of augmentation*, second part: growth near E, escape by rounding, the penalty (A5, A8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lib.checks import check_float, check_int, seeded
from lib.symmetry.actions import natural, trivial
from lib.symmetry.groups import Symmetric
from lib.symmetry.haar import HaarSum, projection
from lib.training.risks import Risk, Risks, SmallNetwork, descend, gradient, hessian, hessian_product


def regression(seeds: int, points: int, nodes: int = 3, first: int = 0) -> Risks:
    """Return the risks of x ↦ b·tanh(Ax) on random invariant regression problems, one data set per run.

    S_n permutes the n inputs; x is Gaussian and the target is 0.7 Σ sin 2x_i + max_i x_i + noise of deviation 0.3. For
    three inputs L has dimension 12 and E dimension 3.

    Parameters
    ----------
    seeds
        Number of data sets, the first axis of everything; a second axis of length one is left for runs.
    points
        Points per data set.
    nodes
        The n of S_n.
    first
        Seed of the first data set.
    """
    V = natural(Symmetric(nodes))
    x, y = [], []
    for seed in range(first, first + check_int("seeds", seeds)):
        generator = seeded(seed)
        x.append(torch.randn(points, nodes, generator=generator, dtype=torch.float64))
        noise = 0.3 * torch.randn(points, generator=generator, dtype=torch.float64)
        y.append(0.7 * torch.sin(2 * x[-1]).sum(-1) + x[-1].amax(-1) + noise)
    return Risks(SmallNetwork((V, V, trivial(V.group))), torch.stack(x)[:, None], torch.stack(y)[:, None, :, None])


@dataclass(frozen=True)
class Minima:
    """Strict minima of R^eqv on E, k of them, each with its data set.

    Attributes
    ----------
    risks : Risks
        The risks of the k data sets.
    problem : list of int
        Numbers of the data sets, from 0.
    parameters : Tensor
        The minima, shape ``(k, 1, dim L)``.
    inside : Tensor
        Eigenvalues of the Hessian on E, ascending, shape ``(k, dim E)``.
    outside : Tensor
        Eigenvalues of ∇²R^aug on E^⊥, ascending, shape ``(k, dim E^⊥)``.
    directions : Tensor
        Their orthonormal eigenvectors as rows, shape ``(k, dim E^⊥, dim L)``.
    """

    risks: Risks
    problem: list[int]
    parameters: Tensor
    inside: Tensor
    outside: Tensor
    directions: Tensor

    def __len__(self) -> int:
        return len(self.problem)

    def select(self, keep: Tensor) -> Minima:
        """Return the minima at which the boolean tensor ``keep`` is true; at least one has to be."""
        if not bool(keep.any()):
            raise ValueError(f"none of the {len(self)} minima qualifies; search more problems")
        old = self.risks
        problem = [p for p, kept in zip(self.problem, keep.tolist(), strict=True) if kept]
        parts = (self.parameters, self.inside, self.outside, self.directions)
        return Minima(Risks(old.network, old.x[keep], old.y[keep]), problem, *(part[keep] for part in parts))

    @property
    def unstable(self) -> Minima:
        """Those with an eigenvalue below −0.03 on E^⊥."""
        return self.select(self.outside[:, 0] < -0.03)


def find_minima(problems: int, points: int, restarts: int = 4, seed: int = 0) -> Minima:
    """Search E for strict minima of R^eqv: gradient descent from random starts, then Newton's method.

    Kept are points whose gradient on E is below 1e-13, whose Hessian on E exceeds 2e-3, and whose eigenvalues on E^⊥
    are all at least 1e-3 in size; repeated finds (equal risk to 1e-6) count once.

    Parameters
    ----------
    problems, points
        Number of data sets, and points in each.
    restarts
        Random starts per problem.
    seed
        First of the seeds of the data sets, and seed of the starts.
    """
    risks = regression(problems, points, first=seed)
    basis = projection(risks.network.layers).basis()

    def risk(c: Tensor) -> Tensor:
        return risks.nominal(c @ basis)

    start = torch.randn(problems, restarts, len(basis), generator=seeded(seed)).double()
    c = descend(risk, start, 0.3, 500, lambda c: c[..., 0])[0]
    for _ in range(12):
        c = c - torch.linalg.solve_ex(hessian(risk, c), gradient(risk, c)[..., None]).result[..., 0]
    slope = gradient(risk, c).norm(dim=-1)
    curvature = torch.linalg.eigvalsh(torch.nan_to_num(hessian(risk, c), 0.0, 0.0, 0.0))[..., 0]
    strict = (slope < 1e-13) & (curvature > 2e-3)
    if not bool(strict.any()):
        raise ValueError(f"no strict minimum found in {problems} problems of {points} points; search more problems")
    found = {}
    for i, j in strict.nonzero().tolist():
        found.setdefault((i, round(float(risk(c)[i, j]), 6)), c[i, j])
    problem = [i for i, _ in sorted(found)]
    parameters = torch.stack([found[key] for key in sorted(found)])[:, None] @ basis
    return _spectra(Risks(risks.network, risks.x[problem], risks.y[problem]), problem, parameters)


def _spectra(risks: Risks, problem: list[int], parameters: Tensor) -> Minima:
    """Complete minima by the spectra of ∇²R^aug on E and on E^⊥."""
    pi = risks.project_matrix
    values, vectors = torch.linalg.eigh(pi)
    inner, outer = vectors[:, values > 0.5], vectors[:, values < 0.5]
    h = hessian(risks.augmented, parameters)[:, 0]
    outside, mixing = torch.linalg.eigh(outer.mT @ h @ outer)
    inside = torch.linalg.eigvalsh(inner.mT @ h @ inner)
    minima = Minima(risks, problem, parameters, inside, outside, (outer @ mixing).mT)
    return minima.select(outside.abs().amin(-1) > 1e-3)


@dataclass(frozen=True)
class Growth:
    """Measured and predicted dynamics of the part outside E near k minima; see :func:`measure_growth`.

    Attributes
    ----------
    predicted, measured : Tensor
        Rates per unit of time along every eigenvector, shape ``(k, dim E^⊥)``.
    distances, forecasts : Tensor
        ‖A_{E^⊥}‖ after every step from a start in a random direction, shape ``(steps + 1, k)``.
    window : Tensor
        Which of these steps count, same shape: from the start until the amplitude leaves its bounds.
    """

    predicted: Tensor
    measured: Tensor
    distances: Tensor
    forecasts: Tensor
    window: Tensor

    @property
    def slope_errors(self) -> list[float]:
        """Largest relative error of a rate, one per minimum."""
        return (self.measured / self.predicted - 1).abs().amax(-1).tolist()

    @property
    def curve_errors(self) -> list[float]:
        """Largest relative error along the curve, one per minimum."""
        error = (self.distances / self.forecasts - 1).abs()
        return error.where(self.window, 0.0).amax(0).tolist()


def measure_growth(
    minima: Minima, rate: float, nominal: bool = False, amplitude: float = 1e-8, seed: int = 0
) -> Growth:
    """Train from points close to minima on E, and compare the part outside E with its forecast from the spectrum.

    One gradient step of length h multiplies the component along an eigenvector with eigenvalue λ by 1 − hλ, so its rate
    per unit of time is log(1 − hλ)/h: growth where λ < 0. Starts: along every eigenvector, and in one random direction
    of E^⊥. A curve counts (for two steps at least) while its forecast exceeds 1e-9 and while the fastest mode has not
    grown more than 30 times, so that neither rounding nor curvature is seen.

    Parameters
    ----------
    minima
        The minima, with spectra.
    rate
        The step h.
    nominal
        Train on R instead of R^aug: the control.
    amplitude
        Initial distance from E.
    seed
        Seed of the random direction.
    """
    factors = 1 - check_float("rate", rate, minimum=0.0) * minima.outside
    steps = min(400, max(20, int(math.log(30) / math.log(float(factors.abs().amax(-1).clamp(min=1.005).min())))))
    share = normalize(torch.randn(factors.shape, generator=seeded(seed), dtype=torch.float64), dim=-1)
    starts = torch.cat([minima.directions, share[:, None] @ minima.directions], 1)
    risks = minima.risks
    _, seen = descend(
        risks.nominal if nominal else risks.augmented,
        minima.parameters + amplitude * starts,
        rate,
        steps,
        lambda a: risks.outside(a).norm(dim=-1),
    )
    time = torch.arange(steps + 1, dtype=torch.float64)[:, None, None]
    powers = amplitude * factors.abs() ** time
    forecast = torch.cat([powers, (powers * share).norm(dim=-1, keepdim=True)], -1)
    inside = (forecast > 1e-9) & (powers.amax(-1, keepdim=True) <= 30 * amplitude)
    inside = inside.cummin(0).values | (time < 2)
    measured = _slopes(rate * time, seen[..., :-1].log(), inside[..., :-1])
    return Growth(factors.abs().log() / rate, measured, seen[..., -1], forecast[..., -1], inside[..., -1])


def _slopes(x: Tensor, y: Tensor, keep: Tensor) -> Tensor:
    """Return least-squares slopes of y against x along the first axis, over the entries to keep."""
    w = keep.to(y) / keep.sum(0)
    centred = x - (w * x).sum(0)
    return (w * centred * y).sum(0) / (w * centred**2).sum(0)


@dataclass(frozen=True)
class Following:
    """Augmented training that starts just outside E, against equivariant training; see :func:`follow_training`.

    Attributes
    ----------
    distances, forecasts : Tensor
        ‖A_{E^⊥}‖ and its forecast after every step, shape ``(steps + 1, k)``.
    amplitudes : list of float
        Initial distances from E at which the part inside is compared.
    shifts : Tensor
        ‖Π A − A^eqv‖ at the end, A^eqv from equivariant training, shape ``(amplitudes, k)``.
    """

    distances: Tensor
    forecasts: Tensor
    amplitudes: list[float]
    shifts: Tensor

    @property
    def curve_errors(self) -> list[float]:
        """Largest relative error of the forecast, one per run, while it has not grown more than 30 times."""
        small = (self.forecasts <= 30 * self.forecasts[0]).cummin(0).values
        return (self.distances / self.forecasts - 1).abs().where(small, 0.0).amax(0).tolist()


def follow_training(problems: int, points: int, rate: float, steps: int = 60, seed: int = 0) -> Following:
    """Check the decoupled equations away from stationary points, along training from random equivariant weights.

    The forecast carries a vector of E^⊥ along by δ ← δ − h ∇²R^aug(A^eqv) δ, where A^eqv is trained equivariantly; the
    measured curve is the part outside E of augmented training. The part inside E differs from A^eqv by terms of second
    order in the distance only, which the shifts at three amplitudes show.

    Parameters
    ----------
    problems, points
        Number of data sets, and points in each.
    rate, steps
        The step h and the number of steps.
    seed
        First of the seeds of the data sets; the next one is that of weights and directions.
    """
    risks, amplitudes = regression(problems, points, first=seed), [1e-8, 1e-3, 3e-3, 1e-2]
    generator = seeded(seed + 1)
    a, delta = torch.randn(2, problems, 1, risks.network.layers.dim, generator=generator, dtype=torch.float64)
    a, delta = risks.project(a), normalize(risks.outside(delta), dim=-1)
    sizes = torch.tensor(amplitudes, dtype=torch.float64)[:, None]
    end, seen = descend(risks.augmented, a + sizes * delta, rate, steps, lambda b: risks.outside(b[:, 0]).norm(dim=-1))
    forecast = [delta]
    for _ in range(steps):
        forecast.append(forecast[-1] - rate * hessian_product(risks.augmented, a, forecast[-1]))
        a = a - rate * gradient(risks.equivariant, a)
    shifts = (risks.project(end) - a).norm(dim=-1)
    return Following(seen, amplitudes[0] * torch.stack(forecast)[:, :, 0].norm(dim=-1), amplitudes[1:], shifts[:, 1:].T)


def rounding_escape(
    minima: Minima, rate: float, steps: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Tensor:
    """Start *on* E and return the distance from E after every step of augmented training, shape ``(steps + 1, k)``.

    The starts are the minima, moved inside E by a Gaussian of deviation 0.3. Nothing is perturbed in E^⊥: what leaves E
    is rounding errors, multiplied by the instability.

    Parameters
    ----------
    minima
        The minima.
    rate, steps
        Step and number of steps.
    dtype
        Precision of the training.
    seed
        Seed of the moves inside E.
    """
    exact, moved = minima.risks, minima.parameters
    risks = Risks(exact.network, exact.x.to(dtype), exact.y.to(dtype))
    moved = moved + 0.3 * torch.randn(moved.shape, generator=seeded(seed), dtype=torch.float64)
    start = risks.project(moved.to(dtype))
    return descend(risks.augmented, start, rate, steps, lambda a: exact.outside(a.double()).norm(dim=-1))[1][..., 0]


@dataclass(frozen=True)
class Escape:
    """Where augmented training ends that starts beside an unstable minimum on E; see :func:`escape`.

    Attributes
    ----------
    parameters : Tensor
        The ends, shape ``(k, 1, dim L)``.
    risk_before, risk_after : Tensor
        R^aug at the minimum and at the end, shape ``(k,)``.
    outside, outside_even : Tensor
        Distances of the ends from E and from the layers equivariant under the even permutations, shape ``(k,)``.
    asymmetry : Tensor
        RMS over x and g of Φ(gx) − mean_g Φ(gx), relative to the RMS of Φ, shape ``(k,)``.
    """

    parameters: Tensor
    risk_before: Tensor
    risk_after: Tensor
    outside: Tensor
    outside_even: Tensor
    asymmetry: Tensor


def escape(minima: Minima, rate: float, steps: int = 6000, amplitude: float = 1e-3, seed: int = 0) -> Escape:
    """Train on the augmented risk from beside the minima, and examine layers and function at the end.

    Parameters
    ----------
    minima
        The minima.
    rate, steps
        Step and number of steps.
    amplitude
        Distance of the start from the minimum, in a random direction of E^⊥.
    seed
        Seed of the directions; the next one is that of the inputs on which the function is examined.
    """
    risks, even = minima.risks, subgroup_projection(minima.risks)
    start = minima.parameters + amplitude * normalize(risks.outside(random_directions(minima, 1, seed)), dim=-1)
    end = descend(risks.augmented, start, rate, steps, lambda a: a[..., 0])[0]
    x = torch.randn(400, risks.x.shape[-1], generator=seeded(seed + 1), dtype=torch.float64)
    moved = risks.network.spaces[0].apply(risks.group.unsqueeze(risks.group.elements()), x)
    values = risks.network(end[:, :, None], moved)[..., 0].flatten(1, 2)
    spread = (values - values.mean(1, keepdim=True)).square().mean((1, 2)) / values.square().mean((1, 2))
    before, after = (risks.augmented(a)[:, 0] for a in (minima.parameters, end))
    distances = (v.norm(dim=-1)[:, 0] for v in (risks.outside(end), end - end @ even))
    return Escape(end, before, after, *distances, spread.sqrt())


# --- The penalty (A8) ------------------------------------------------------------------------------------------------

DISPLACEMENT = 1e-8


def penalised(risks: Risks, penalty: Tensor | float, onto: Tensor | None = None) -> Risk:
    """Return the function A ↦ R^aug(A) + λ‖A − P A‖².

    Parameters
    ----------
    risks
        The risks.
    penalty
        λ, broadcast against the runs.
    onto
        The projection P, shape ``(dim L, dim L)``; by default Π.
    """
    matrix = risks.project_matrix if onto is None else onto
    return lambda a: risks.augmented(a) + penalty * (a - a @ matrix).square().sum(-1)


def subgroup_projection(risks: Risks) -> Tensor:
    """Return the projection onto the layers that are equivariant for the even permutations only."""
    layers, group = risks.network.layers, risks.group
    even = torch.linalg.det(natural(group).matrix(group.elements())) > 0
    return HaarSum(layers, group.elements()[even]).matrix()


def train_penalised(
    minima: Minima, penalty: Tensor, direction: Tensor, rate: float, steps: int, onto: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Train with the penalty from points 1e-8 (``DISPLACEMENT``) away from the minima.

    Parameters
    ----------
    minima
        The minima, k of them.
    penalty
        λ, shape ``(k, runs)``.
    direction
        Directions of the first displacement, shape ``(k, runs, dim L)``; their parts outside E are normalised.
    rate, steps
        Step and number of steps.
    onto
        The projection in the penalty, by default Π.

    Returns
    -------
    tuple of Tensor
        ‖A_{E^⊥}‖, shape ``(steps + 1, k, runs)``, and the last A_{E^⊥}, shape ``(k, runs, dim L)``.
    """
    risks = minima.risks
    start = minima.parameters + DISPLACEMENT * normalize(risks.outside(direction), dim=-1)
    end, seen = descend(penalised(risks, penalty, onto), start, rate, steps, lambda a: risks.outside(a).norm(dim=-1))
    return seen, risks.outside(end)


def random_directions(minima: Minima, runs: int, seed: int = 0) -> Tensor:
    """Return Gaussian vectors of L, shape ``(k, runs, dim L)``."""
    generator = seeded(seed)
    return torch.randn(len(minima), runs, minima.parameters.shape[-1], generator=generator, dtype=torch.float64)


def critical_penalty(
    minima: Minima,
    rate: float,
    onto: Tensor | None = None,
    steps: int = 11,
    halvings: int = 18,
    upper: float = 0.5,
    starts: int = 20,
    seed: int = 0,
) -> list[float]:
    """Find by bisection of training runs the smallest penalty that keeps training at a minimum on E.

    One run does not tell: where its start holds little of the unstable direction it comes closer to E for a long time
    before it leaves. So every penalty is tried from several random starts, more than E^⊥ has dimensions. So close to
    the minimum training is linear: the displacements before and after determine the matrix that maps the ones to the
    others, and the penalty is too small if this matrix has an eigenvalue above 1, that is, if *some* direction grows.
    (The number of steps is odd, so that jumping across E, which too large a penalty brings about, gives eigenvalues
    below −1.) Nothing but trained displacements is used.

    Parameters
    ----------
    minima
        The minima.
    rate, steps
        Step and number of steps of every run, the number odd.
    onto
        The projection in the penalty, by default Π.
    halvings
        Rounds of bisection between 0 and ``upper``.
    upper
        Largest penalty tried; a minimum that is still unstable there has the threshold ``inf``.
    starts, seed
        Number of random starts, at least dim E^⊥, and their seed.

    Raises
    ------
    ValueError
        There are fewer starts than E^⊥ has dimensions, so that a direction could hide, or the steps are even.
    """
    dimension = minima.outside.shape[-1]
    check_int("starts", starts, minimum=dimension)
    if check_int("steps", steps) % 2 == 0:
        raise ValueError(f"steps must be odd, got {steps}")
    low = torch.zeros(len(minima), 1, dtype=torch.float64)
    high = torch.full_like(low, check_float("upper", upper, minimum=0.0))
    direction = random_directions(minima, starts, seed)
    basis = torch.linalg.eigh(minima.risks.project_matrix)[1][:, :dimension]  # of E^⊥: eigenvalue 0 of Π
    before = DISPLACEMENT * normalize(minima.risks.outside(direction), dim=-1) @ basis

    def unstable(penalty: Tensor) -> Tensor:
        after = train_penalised(minima, penalty.expand(-1, starts), direction, rate, steps, onto)[1] @ basis
        moves = torch.linalg.lstsq(before, after).solution
        return torch.linalg.eigvals(moves).real.amax(-1, keepdim=True) > 1

    hopeless = unstable(high)
    for _ in range(check_int("halvings", halvings)):
        middle = (low + high) / 2
        above = unstable(middle)
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return ((low + high) / 2).masked_fill(hopeless, math.inf)[:, 0].tolist()
