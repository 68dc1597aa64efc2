"""Wasserstein-1 and Lipschitz-regularised divergences under a group of isometries, computed on the quotient.

The supremum over invariant potentials depends on two samples only through the distances between their orbits, so every
problem here has the size of the samples, never that of the symmetrised clouds. The clouds, and a linear program over
invariant potentials, are kept as independent oracles for small samples.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from lib.checks import check_probabilities
from lib.transport.quotient import Isometries

if TYPE_CHECKING:
    import cvxpy

Kind = Literal["alpha2", "kl"]
KINDS = get_args(Kind)
# How often the simplex of POT may pivot; its own limit of 1e5 stops early on a thousand points.
PIVOTS = 10_000_000
_BLOCK = 2**16  # entries of cost matrices computed together: few enough to stay in the cache
_POTENTIALS = 2**10  # unknowns of one convex program
_COARSE = 1e-6  # of the largest cost: plans that are cheaper than this are computed again
_ACCURACY = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
_SUFFICIENT = dict.fromkeys(("reduced_tol_gap_abs", "reduced_tol_gap_rel", "reduced_tol_feas"), 1e-8)
_EXPONENT = 500  # exp overflows from 709 on


def w1(x: Tensor, y: Tensor, action: Isometries, a: Tensor | None = None, b: Tensor | None = None) -> float:
    """Return the Wasserstein-1 distance under a group, ``min_π Σ π_ij min_σ ‖x_i − σ y_j‖``.

    It is the supremum of ``E γ(x) − E γ(y)`` over invariant 1-Lipschitz γ, and the distance of the symmetrised samples
    (Birrell et al. 2022, Theorem 4.1; Chen et al. 2023). Solved by the network simplex of POT (Flamary et al. 2021).

    Samples have shapes ``(n, dim)`` and ``(m, dim)``, their masses a and b ``(n,)`` and ``(m,)``, by default equal.
    """
    cost = action.distance(x.detach(), y.detach())
    return transport(cost, _masses(a, len(x)), _masses(b, len(y)))


def transport(cost: Tensor, a: np.ndarray, b: np.ndarray) -> float:
    """Return the least cost ``Σ π_ij cost_ij`` of a plan π with margins a and b.

    Equal masses are assigned. Otherwise by the network simplex, which takes differences of costs below 1e-15 of the
    largest for zero: where a plan costs less than a millionth of that, the problem is solved again with all costs cut
    at a million times its value. Every value is that of a plan at its true cost.
    """
    import ot

    unit = float(cost.abs().max()) or 1.0
    matrix = cost.double().cpu().numpy() / unit
    if len(a) == len(b) and np.ptp(a) == np.ptp(b) == 0:
        return unit * float(matrix[linear_sum_assignment(matrix)].mean())
    best, cut, dust = np.inf, 1.0, 4 * np.finfo(float).eps * np.minimum(a[:, None], b)
    while True:
        plan = ot.emd(a, b, np.minimum(matrix, cut) / cut, numItermax=PIVOTS)
        value = float((matrix * np.where(plan > dust, plan, 0)).sum())
        if not 0 < value < min(best, _COARSE * cut):
            return unit * min(best, value)
        best, cut = value, value / _COARSE


def w1_batch(x: Tensor, y: Tensor, action: Isometries) -> Tensor:
    """Return :func:`w1` for independent replicates of two samples of one size, shape ``(replicates,)``.

    With equal masses some best plan is a permutation, so each replicate is an assignment problem (SciPy; costs are
    computed where the samples are, assignments on the CPU). Quotients of dimension one need no solver at all: on a line
    sort both samples, on a circle take the median of the difference of the distribution functions away (Rabin, Delon,
    Gousseau 2011).

    Samples have one shape ``(replicates, n, dim)``; the values have no slopes.

    >>> from lib.transport.quotient import no_group, turns
    >>> x, y = torch.tensor([[[1.0, 0.0]]]).double(), torch.tensor([[[0.0, 1.0]]]).double()
    >>> w1_batch(x, y, no_group(2)), w1_batch(x, y, turns(4)).round(decimals=6)
    (tensor([1.4142], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    x, y, unit = action.scaled(x.detach(), y.detach())
    if action.line is not None:
        return unit * (action.line(x).sort(-1).values - action.line(y).sort(-1).values).abs().mean(-1)
    if action.circle is not None:
        return _circle_distance(x[..., 0], y[..., 0], action.circle)
    values, size = [], max(1, _BLOCK // x.shape[1] ** 2)
    for one, other in zip(x.split(size), y.split(size), strict=True):
        for cost in action.distance(one, other).cpu().numpy():
            values.append(cost[linear_sum_assignment(cost)].mean())
    return unit * torch.tensor(np.array(values), dtype=x.dtype, device=x.device)


def _circle_distance(x: Tensor, y: Tensor, length: float) -> Tensor:
    """Return W1 on a circle, ``∫ |F − G − c|`` with c the median of F − G under arc length; shapes ``(r, n)``."""
    points = torch.remainder(torch.cat([x, y], -1), length)
    order = points.argsort(-1)
    sign = torch.cat([torch.ones_like(x), -torch.ones_like(y)], -1) / x.shape[-1]
    height = sign.gather(-1, order).cumsum(-1)
    points = points.gather(-1, order)
    arc = torch.cat([points[..., 1:], points[..., :1] + length], -1) - points
    rank = height.argsort(-1)
    half = (arc.gather(-1, rank).cumsum(-1) < length / 2).sum(-1, keepdim=True)
    median = height.gather(-1, rank.gather(-1, half.clamp_max(points.shape[-1] - 1)))
    return ((height - median).abs() * arc).sum(-1)


def regularised_batch(
    x: Tensor, y: Tensor, action: Isometries, kind: Kind = "alpha2", lipschitz: float = 1.0
) -> Tensor:
    """Return the Lipschitz-regularised divergence under a group for replicates of two samples, many in one program.

    Convex duals on the quotient: ``alpha2``, ``sup E γ(x) − E (γ(y)₊² + 1)/2``, is the α-divergence with α = 2,
    generated by ``f(t) = (t² − 1)/2``; ``kl`` is ``sup E γ(x) − log E exp γ(y)``. Both over invariant γ with Lipschitz
    constant L > 0 (Birrell et al. 2022). Neither exceeds L times :func:`w1`. Samples of Q and P have shapes
    ``(replicates, n, dim)`` and ``(replicates, m, dim)``; the values have no slopes.
    """
    points, values = torch.cat([x.detach(), y.detach()], 1), []
    first = np.arange(points.shape[1]) < x.shape[1]
    masses = first / x.shape[1], ~first / y.shape[1]
    for some in points.split(max(1, _POTENTIALS // points.shape[1])):
        cost = lipschitz * action.distance(some, some).cpu().numpy()
        values.append(dual_values(cost, *(np.tile(mass, (len(some), 1)) for mass in masses), kind))
    return torch.tensor(np.concatenate(values), dtype=x.dtype, device=x.device)


def dual_values(cost: np.ndarray, q: np.ndarray, p: np.ndarray, kind: Kind) -> np.ndarray:
    """Maximise the dual over potentials with ``γ_i − γ_j ≤ cost_ij``, adding inequalities where they are violated.

    Small costs are scaled: with λ the largest cost, or 1 if that is smaller, and γ = λη (``kl``) or 1 + λη (``alpha2``)
    the value is λ times the maximum of ``E η(x) − log(E exp λη(y))/λ`` or ``E η(x) − E [((1 + λη)₊² − 1)/2λ](y)`` under
    ``η_i − η_j ≤ cost_ij/λ``, whose limit for λ → 0 is W1. Nothing cancels, however small the costs are.

    Costs are the distances between the orbits of all points, shape ``(replicates, N, N)``, and q and p their masses,
    ``(replicates, N)``. For ``kl`` with costs of some hundreds sixty rounds may not suffice, which is an
    ``ArithmeticError``.
    """
    largest = cost.max((1, 2), keepdims=True)
    if kind == "kl" and not largest.max() <= _EXPONENT:
        got = f"at most {_EXPONENT} for kl, whose potentials are exponents, got {largest.max():.3g}"
        raise ValueError(f"lipschitz times the largest distance must be {got}")
    unit = np.where(largest > 0, np.minimum(largest, 1.0), 1.0)
    cost, rounding = cost / unit, np.maximum(largest, 1.0)
    active = np.stack([_first_inequalities(c) for c in cost])
    eta, diagonal = np.zeros(cost.shape[:2]), np.arange(cost.shape[1])
    for _ in range(60):
        before, eta = eta, _solve_round(cost, active, q, p, kind, eta, unit[..., 0])
        slack = (eta[:, :, None] - eta[:, None, :] - cost) / rounding
        settled = kind == "alpha2" or np.abs(unit[..., 0] * (eta - before)).max() < 1e-6
        if slack.max() < 1e-8 and settled:
            eta = (eta[:, None, :] + cost).min(-1)  # exactly feasible: the value is a lower bound
            return unit[:, 0, 0] * _dual_objective(eta, q, p, kind, unit[..., 0]).clip(0)
        active |= slack > -1e-9
        active[:, diagonal, diagonal] = False
    raise ArithmeticError("the dual of the regularised divergence did not settle within 60 rounds")


def _first_inequalities(cost: np.ndarray) -> np.ndarray:
    """Return the pairs of every point and its six nearest and those of a tree, shape ``(N, N)``, truth values.

    A tree joins all points: without it a cluster of points of Q alone could rise without limit.
    """
    active = minimum_spanning_tree(cost + 1e-300).toarray() > 0
    near = np.argsort(cost + np.diag(np.full(len(cost), np.inf)), axis=1)[:, :6]
    np.put_along_axis(active, near[:, : len(cost) - 1], True, axis=1)
    return active | active.T


def _dual_objective(eta: np.ndarray, q: np.ndarray, p: np.ndarray, kind: str, unit: np.ndarray) -> np.ndarray:
    """Return the objectives of scaled potentials; ``unit`` is λ, shape ``(replicates, 1)``."""
    gain = (q * eta).sum(1)
    if kind == "alpha2":
        positive = np.maximum(eta, -1 / unit)
        return gain - (p * (positive + unit * positive**2 / 2)).sum(1)
    top = np.where(p > 0, eta, -np.inf).max(1, keepdims=True)
    growth = np.expm1(unit * np.minimum(eta - top, 0))
    return gain - top[:, 0] - np.log1p((p * growth).sum(1)) / unit[:, 0]


def _solve_round(
    cost: np.ndarray, active: np.ndarray, q: np.ndarray, p: np.ndarray, kind: str, eta: np.ndarray, unit: np.ndarray
) -> np.ndarray:
    """Return the best scaled potentials for some of the inequalities; for KL, those of the expansion at ``eta``.

    ``log E exp γ = min_c E exp(γ − c) + c − 1``, and γ is free up to a shift, so that c = 0 may be taken. Its expansion
    to second order is Newton's method: each round is a quadratic program, which Clarabel solves more reliably than one
    with exponential cones. Replicates do not interact: one program with the sum of their duals solves all of them.
    """
    import cvxpy as cp

    place = np.arange(eta.size).reshape(eta.shape)
    replicate, i, j = np.nonzero(active)
    rows = np.tile(np.arange(len(i)), 2)
    entries = np.concatenate([np.ones(len(i)), -np.ones(len(i))])
    columns = np.concatenate([place[replicate, i], place[replicate, j]])
    matrix = coo_array((entries, (rows, columns)), shape=(len(i), eta.size)).tocsr()
    potential, charged = cp.Variable(eta.size), p > 0
    mass, weight = p[charged] / p.max(), np.broadcast_to(unit, p.shape)[charged]  # the solver prefers order one
    gain, rest = (q / p.max()).ravel() @ potential, potential[place[charged]]
    constraints = [matrix @ potential <= cost[active]]
    if kind == "alpha2":
        positive = cp.Variable(rest.size)
        constraints += [positive >= rest, positive >= -np.minimum(1 / weight, 2)]  # |η| ≤ 1 at the maximum for λ < 1
        objective = gain - mass @ positive - cp.sum_squares(cp.multiply(np.sqrt(weight * mass), positive)) / 2
    else:
        here = eta[charged]
        growth, step = mass * np.exp(weight * here), rest - here
        objective = gain - growth @ step - cp.sum_squares(cp.multiply(np.sqrt(weight * growth), step)) / 2
    solve(cp.Problem(cp.Maximize(objective), constraints))
    return potential.value.reshape(eta.shape)


def solve(problem: cvxpy.Problem) -> None:
    """Solve to ``_ACCURACY``, or at least to ``_SUFFICIENT``, of which the solver would warn."""
    import cvxpy

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        try:
            problem.solve(solver="CLARABEL", **_ACCURACY, **_SUFFICIENT)
        except cvxpy.SolverError as error:
            raise ArithmeticError(f"the convex program was not solved: {error}") from None
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise ArithmeticError(f"the convex program was not solved: {problem.status}")


def _masses(given: Tensor | None, count: int) -> np.ndarray:
    """Return masses as an array, equal ones where none are given."""
    if given is None:
        return np.full(count, 1.0 / count)
    masses = check_probabilities("masses", given, count).detach().cpu().double().numpy()
    return masses / masses.sum()  # the solvers want equal sums to the last digit
