"""Divergences of laws on a finite set under a group that permutes it: all discriminators against the invariant ones.

A law is a probability vector, a discriminator a function on the set, and every supremum is a small program that is
solved to eight digits or more. The two suprema of a theorem are computed by routes that share nothing: the one over all
functions from the primal side (transport plans, Gram matrices), the one over invariant functions from the dual side,
with one unknown per orbit or with the invariance as linear constraints. No route assumes that laws, distances or
kernels are invariant, so that each stays right where the theorem's hypotheses fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from scipy.linalg import null_space
from scipy.sparse import coo_array
from scipy.special import xlog1py
from torch import Tensor

from lib.checks import check_probabilities, unit_of
from lib.transport.divergences import PIVOTS, Kind, dual_values, invariant_program, solve, transport
from lib.transport.finite_spaces import FiniteSpace

Family = Literal["w1", "mmd", "alpha2", "kl"]
FAMILIES = get_args(Family)


def divergence(
    family: Family, space: FiniteSpace, q: Tensor, p: Tensor, lipschitz: float = 1.0, bandwidth: float = 1.0
) -> Tensor:
    """Return ``D^Γ(q‖p)``, the supremum over *all* members of a family of functions.

    The families are ``"w1"`` (:func:`wasserstein`), ``"mmd"`` (:func:`mmd`, which has a bandwidth), ``"kl"`` and
    ``"alpha2"`` (:func:`regularised`, which have a Lipschitz constant).
    """
    if family == "w1":
        return wasserstein(space, q, p)
    return mmd(space, q, p, bandwidth) if family == "mmd" else regularised(space, q, p, family, lipschitz)


def invariant_divergence(
    family: Family, space: FiniteSpace, q: Tensor, p: Tensor, lipschitz: float = 1.0, bandwidth: float = 1.0
) -> Tensor:
    """Return ``D^{Γ^inv}(q‖p)``, the supremum over the *invariant* members of a family; see :func:`divergence`."""
    if family == "w1":
        return wasserstein_invariant(space, q, p)
    if family == "mmd":
        return mmd_invariant(space, q, p, bandwidth)
    return regularised_invariant(space, q, p, family, lipschitz)


def wasserstein(space: FiniteSpace, q: Tensor, p: Tensor) -> Tensor:
    """Return ``sup Σ (q − p)_i γ_i`` over 1-Lipschitz γ, by its dual: the cheapest transport of q to p (POT).

    Laws have one shape ``(..., N)``, the result ``(...)``; the group of the space plays no role here.
    """
    return _each(lambda a, b: transport(space.distances, a, b), space, q, p)


def wasserstein_potential(space: FiniteSpace, q: Tensor, p: Tensor) -> Tensor:
    """Return a 1-Lipschitz γ that reaches the supremum of :func:`wasserstein`, with mean zero; shape ``(N,)``.

    It is a corner of the set of solutions, so it is in general not invariant even where q and p are. From the
    multipliers v of the transport problem, ``γ_i = min_j d_ij − v_j`` over the points j that p charges.
    """
    import ot

    a, b = _laws(space, q, p)
    cost = space.distances.double().cpu().numpy()
    unit = float(unit_of(space.distances))  # as in transport
    multipliers = ot.emd(a[0], b[0], cost / unit, numItermax=PIVOTS, log=True)[1]["v"]
    gamma = unit * (cost / unit - multipliers)[:, b[0] > 0].min(1)
    return torch.from_numpy(gamma - gamma.mean()).to(q)


def wasserstein_invariant(space: FiniteSpace, q: Tensor, p: Tensor) -> Tensor:
    """Return ``sup Σ (q − p)_i γ_i`` over invariant 1-Lipschitz γ, by a linear program (HiGHS).

    One unknown per orbit, and the inequality ``γ(σx) − γ(τy) ≤ d(σx, τy)`` for every pair of orbits and *all* pairs of
    group elements. Arguments as in :func:`wasserstein`.
    """
    limits, sums = _orbit_limits(space), _orbit_sums(space)

    def value(a: np.ndarray, b: np.ndarray) -> float:
        return invariant_program(limits, torch.from_numpy(a - b).to(sums) @ sums)

    return _each(value, space, q, p)


def mmd(space: FiniteSpace, q: Tensor, p: Tensor, bandwidth: float = 1.0) -> Tensor:
    """Return the supremum of ``Σ (q − p)_i γ_i`` over the unit ball of the Gaussian kernel's space of functions.

    It is ``sqrt((q − p)ᵀ K (q − p))`` (Gretton et al. 2012). Arguments as in :func:`wasserstein`.
    """
    kernel = space.kernel(bandwidth).cpu().numpy()
    return _each(lambda a, b: float(np.sqrt(max((a - b) @ kernel @ (a - b), 0.0))), space, q, p)


def mmd_invariant(space: FiniteSpace, q: Tensor, p: Tensor, bandwidth: float = 1.0) -> Tensor:
    """Return the supremum over the *invariant* functions of the same ball, for any kernel on the set.

    Functions are ``γ = Φw`` with ``K = ΦΦᵀ``, their norm is the least ``‖w‖``. With Z an orthonormal basis of all w for
    which γ is invariant, the supremum is ``‖ZᵀΦᵀ(q − p)‖``. Arguments as in :func:`wasserstein`. An ``ArithmeticError``
    says that the kernel is not positive semidefinite: the distances embed into no Euclidean space.
    """
    kernel = space.kernel(bandwidth)
    values, vectors = np.linalg.eigh(kernel.double().cpu().numpy())
    rounding = max(1e-10, 32 * torch.finfo(kernel.dtype).eps)
    if values[0] < -rounding * values[-1]:
        raise ArithmeticError(f"the kernel is not positive semidefinite, its least eigenvalue is {values[0]:.2g}")
    features = vectors * np.sqrt(values.clip(0))
    invariant = null_space((features[space.maps.cpu()] - features).reshape(-1, space.size), rcond=rounding)
    return _each(lambda a, b: float(np.linalg.norm(invariant.T @ (features.T @ (a - b)))), space, q, p)


def regularised(space: FiniteSpace, q: Tensor, p: Tensor, kind: Kind = "alpha2", lipschitz: float = 1.0) -> Tensor:
    """Return the Lipschitz-regularised divergence as the best compromise between moving mass and reweighting it.

    ``min_η D_f(η‖p) + L·W1(q, η)``, the infimal convolution (Birrell et al. 2022, (f, Γ)-divergences), with η the
    second margin of a transport plan. Kinds: ``kl`` with ``f(t) = t log t − t + 1``, ``alpha2`` with
    ``f(t) = (t² − 1)/2``. Every plan gives an upper bound of the supremum of :func:`regularised_invariant` with all
    functions allowed. Solved by Clarabel (cvxpy), all runs in one program.

    Other arguments as in :func:`wasserstein`.
    """
    import cvxpy as cp

    a, b = _laws(space, q, p)
    run, i, j = np.nonzero((a[:, :, None] > 0) & (b[:, None, :] > 0))
    ones, entry = np.ones(len(run)), np.arange(len(run))
    rows, columns = (
        coo_array((ones, (run * space.size + index, entry)), shape=(a.size, len(run))).tocsr() for index in (i, j)
    )
    cost = lipschitz * space.distances.cpu().numpy()[i, j]
    sources, targets = a.ravel() > 0, b.ravel() > 0
    unit = float(min(cost.max(initial=0.0), 1.0)) or 1.0  # λ: below 1, excess is of the size of costs, and is scaled
    mass = b.ravel()[targets]
    plan, excess = cp.Variable(len(run), nonneg=True), cp.Variable(len(mass))  # η = p (1 + λ excess)
    sent, received = rows[sources] @ plan, columns[targets] @ plan
    constraints = [sent == a.ravel()[sources], received == mass + unit * cp.multiply(mass, excess)]
    if unit == 1:
        squares = cp.sum_squares(cp.multiply(mass**-0.5, received)) / 2
        reweighting = cp.sum(cp.kl_div(received, mass)) if kind == "kl" else squares
        solve(cp.Problem(cp.Minimize(reweighting + cost @ plan), constraints[:1]))
        change = (columns[targets] @ plan.value.clip(0) - mass) / mass
    else:
        here = np.zeros(len(mass))
        constraints.append(cp.abs(excess) <= 2)  # at the minimum it is at most e − 1
        for _ in range(30):  # D/λ to second order: for alpha2 all of it; every round gives an upper bound
            slope, bend = (np.log1p(unit * here), unit / (1 + unit * here)) if kind == "kl" else (unit * here, unit)
            bent = cp.sum_squares(cp.multiply(np.sqrt(bend * mass), excess - here)) / 2
            solve(cp.Problem(cp.Minimize((mass * slope) @ excess + bent + (cost / unit) @ plan), constraints))
            gap, here = np.abs(excess.value - here).max(initial=0.0), excess.value
            if unit * gap < 1e-7:
                break
        change = unit * here
    rest = np.zeros(b.size)
    rest[targets] = mass * (change**2 / 2 if kind == "alpha2" else xlog1py(1 + change, change) - change) / unit
    moved = np.bincount(run, cost / unit * plan.value.clip(0), minlength=len(a))
    return _shaped(unit * (moved + rest.reshape(b.shape).sum(-1)), q)


def regularised_invariant(
    space: FiniteSpace, q: Tensor, p: Tensor, kind: Kind = "alpha2", lipschitz: float = 1.0
) -> Tensor:
    """Return ``sup Σ q_i γ_i − Σ p_i f*(γ_i)`` over invariant γ with Lipschitz constant L.

    The variational form with ``f*(s) = exp(s) − 1`` for ``kl`` and ``f*(s) = (max(s, 0)² + 1)/2`` for ``alpha2``. The
    best shift of γ is included, as shifts keep the Lipschitz constant; for ``kl`` it turns the form into that of
    Donsker and Varadhan, ``E_q γ − log E_p exp γ``. One unknown per orbit, and for every pair of orbits the
    tightest inequality. Every invariant γ gives a lower bound. Arguments as in :func:`regularised`.
    """
    a, b = (law @ _orbit_sums(space).cpu().numpy() for law in _laws(space, q, p))
    limits = _orbit_limits(space).amin(0).cpu().numpy()
    for k in range(space.orbits):  # the tightest inequality for every pair: shortest paths
        limits = np.minimum(limits, limits[:, k, None] + limits[k])
    return _shaped(dual_values(lipschitz * np.tile(limits, (len(a), 1, 1)), a, b, kind), q)


def _orbit_limits(space: FiniteSpace) -> Tensor:
    """Return all distances between images of two orbits, shape ``(order², orbits, orbits)``."""
    first = torch.stack([(space.labels == orbit).nonzero()[0, 0] for orbit in range(space.orbits)])
    images = space.maps[:, first]
    return space.distances[images[:, None, :, None], images[None, :, None, :]].flatten(0, 1)


def _orbit_sums(space: FiniteSpace) -> Tensor:
    """Return the matrix that sums masses over orbits, shape ``(N, orbits)``."""
    return torch.nn.functional.one_hot(space.labels, space.orbits).double()


def _each(value: Callable[[np.ndarray, np.ndarray], float], space: FiniteSpace, q: Tensor, p: Tensor) -> Tensor:
    """Return a value for every run."""
    return _shaped(np.array([value(a, b) for a, b in zip(*_laws(space, q, p), strict=True)]), q)


def _shaped(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like).reshape(like.shape[:-1])


def _laws(space: FiniteSpace, q: Tensor, p: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return two laws as arrays ``(runs, N)`` in float64, of sum one to the last digit."""
    for name, law in (("q", q), ("p", p)):
        check_probabilities(name, law, space.size, batched=True)
    first, second = (law.detach().cpu().double().flatten(0, -2).numpy() for law in torch.atleast_2d(q, p))
    return first / first.sum(-1, keepdims=True), second / second.sum(-1, keepdims=True)
