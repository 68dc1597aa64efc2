"""Hard-margin classification through the origin: the largest margin, its multipliers, and proofs of separability.

Points x_i with labels y_i = ±1 are separable (by a hyperplane through the origin, there is no bias) when some β has
y_i⟨x_i, β⟩ > 0 for all i; otherwise there are multipliers α ≥ 0, not all zero, with Σ α_i y_i x_i = 0 (Gordan 1873).
Both answers come with their proof. Active sets are found by a solver and the final numbers by linear algebra on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from lib.checks import check_instance, check_tensor, unit_of
from lib.symmetry.haar import NullSpace, constraints
from lib.symmetry.representations import Representation

_ZERO = 1e-10  # a convex combination of the directions y_i x_i/‖x_i‖ this short counts as zero
_EXACT = 1e-9  # how far a constraint or a multiplier may be off before the active set is changed


class Separability(NamedTuple):
    """Whether labelled points are separable through the origin, with a proof; see :func:`separability`.

    The residual is the smallest y_i⟨x_i, v⟩/‖x_i‖, or ‖Σ α_i y_i x_i‖ / Σ α_i ‖x_i‖: the length of a point does not
    matter.
    """

    vector: Tensor | None  #: a unit vector v with y_i⟨x_i, v⟩ > 0 for all i, if there is one
    multipliers: Tensor | None  #: otherwise α ≥ 0 with Σ α_i = 1 and Σ α_i y_i x_i = 0
    residual: float  #: how well the proof holds, relative to the lengths of the points

    @property
    def separable(self) -> bool:
        """Whether a separating vector exists."""
        return self.vector is not None


class NotSeparable(ValueError):
    """The points have no separating vector; ``certificate`` holds the multipliers that prove it."""

    def __init__(self, certificate: Separability) -> None:
        used = int((certificate.multipliers > 0).sum())
        super().__init__(
            f"features and labels must be separable by a hyperplane through the origin, and they are not separable: "
            f"{used} of {len(certificate.multipliers)} points have weights α ≥ 0, Σ α = 1, with "
            f"‖Σ α y x‖ = {certificate.residual:.1e} Σ α ‖x‖ (see the attribute certificate)"
        )
        self.certificate = certificate


class MaxMargin(NamedTuple):
    """The solution of min ½‖β‖² subject to y_i⟨x_i, β⟩ ≥ 1; see :func:`max_margin`.

    The multipliers are α ≥ 0 with β = Σ α_i y_i x_i (up to a combination of the constraint rows if β was constrained).
    They are unique when the support vectors with α > 0 cannot be exchanged for others.
    """

    vector: Tensor  #: β, shape ``(d,)``
    multipliers: Tensor  #: shape ``(n,)``
    margins: Tensor  #: y_i⟨x_i, β⟩, shape ``(n,)``; the smallest is 1
    residual: float  #: largest violation of the optimality conditions, relative

    @property
    def direction(self) -> Tensor:
        """β/‖β‖."""
        return self.vector / self.vector.norm()

    @property
    def margin(self) -> float:
        """The distance 1/‖β‖ of the closest point to the hyperplane."""
        return 1 / float(self.vector.norm())

    @property
    def support(self) -> Tensor:
        """Numbers of the points at that distance, whether their multiplier is positive or zero."""
        return (self.margins < 1 + _EXACT).nonzero()[:, 0]


def separability(features: Tensor, labels: Tensor) -> Separability:
    """Decide whether points can be separated by a hyperplane through the origin, and prove the answer.

    With z_i = y_i x_i/‖x_i‖, nonnegative least squares on min ‖Σ α_i z_i‖² + (1 − Σ α_i)² over α ≥ 0 ends at zero
    exactly when the points are not separable (Lawson, Hanson 1974, chapter 23); otherwise Σ α_i z_i separates. Where
    the angles are too small for this precision, between about 1e-8 and 1e-10, an ArithmeticError says so; below that
    they count as zero. Points x_i have the shape ``(n, d)``, labels y_i, each 1 or −1, ``(n,)``.
    """
    z = _signed(features, labels)
    return _at(_decide(z, _lengths(z)), features)


def max_margin(features: Tensor, labels: Tensor) -> MaxMargin:
    """Return the classifier through the origin with the largest margin, min ½‖β‖² subject to y_i⟨x_i, β⟩ ≥ 1.

    The active set comes from nonnegative least squares (:func:`separability`), β and its multipliers from linear
    equations on it, so that the optimality conditions hold to rounding. Points that no β separates raise
    :class:`NotSeparable`, which carries the certificate.

    >>> x, y = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).double(), torch.tensor([1.0, 1.0]).double()
    >>> found = max_margin(x, y)
    >>> found.vector, found.margins
    (tensor([0.5000, 0.5000], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    z = _signed(features, labels)
    if not (found := _decide(z, lengths := _lengths(z))).separable:
        raise NotSeparable(_at(found, features))
    active = _least_squares(z / lengths[:, None], lengths.min() / lengths) > 0
    return _at(_polish(z, active, np.zeros((0, z.shape[1]))), features)


def invariant_max_margin(features: Tensor, labels: Tensor, representation: Representation) -> MaxMargin:
    """Return the classifier of largest margin among those that the group does not change.

    Solves min ½‖β‖² subject to y_i⟨x_i, β⟩ ≥ 1 and ρ(g)ᵀβ = β, that is ⟨ρ(g)x, β⟩ = ⟨x, β⟩ for all x, as a convex
    program with equality constraints for the generators. An interior point method finds the active set from the points
    as they are; as in :func:`max_margin` the last digits come from linear equations on it. A basis of the invariants
    serves only to decide whether there is a solution; where none separates the points, Σ α_i y_i x_i of the certificate
    is orthogonal to every invariant β. The representation ρ on R^d is real; it need not be unitary.
    """
    import cvxpy

    z = _signed(features, labels)
    if check_instance("representation", representation, Representation).is_complex or representation.dim != z.shape[1]:
        raise ValueError(f"representation must be real, of dimension {z.shape[1]}, got {representation}")
    basis = NullSpace(representation.dual()).basis().numpy()
    if not (found := _decide(z @ basis.T, lengths := _lengths(z))).separable:
        raise NotSeparable(_at(found, features))
    fixed = constraints(representation.dual()).numpy()
    beta = cvxpy.Variable(z.shape[1])
    conditions = [(z / lengths[:, None]) @ beta >= lengths.min() / lengths, fixed @ beta == 0]
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(beta) / 2), conditions).solve(solver=cvxpy.CLARABEL)
    weights = conditions[0].dual_value
    return _at(_polish(z, weights > 1e-6 * weights.max(), fixed), features)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Return the angle between vectors along the last axis, in radians, exact also where it is tiny or near π.

    The vector zero stands at a right angle to all others.
    """
    u, v = (t / unit_of(t, -1) for t in (a, b))
    u, v = (t / torch.where(t.any(-1, keepdim=True), t.norm(dim=-1, keepdim=True), 1) for t in (u, v))
    return 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))


def one_minus_cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 − cos of the angle between vectors along the last axis, exact also where it is tiny.

    >>> one_minus_cosine(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-9])) > 0  # where 1 − cos would be 0
    tensor(True)
    """
    return 2 * torch.sin(angle(a, b) / 2).square()


def _at(result: Any, features: Tensor) -> Any:
    """Return a named tuple with its tensors on the device of the features; the solvers work on the CPU."""
    return type(result)(*(v.to(features.device) if isinstance(v, Tensor) else v for v in result))


def _signed(features: Tensor, labels: Tensor) -> np.ndarray:
    """Return the points y_i x_i as a float64 array."""
    if check_tensor("features", features, (None, None), inexact=True, real=True).ndim != 2 or not features.numel():
        raise ValueError(f"features must have shape (n, d) with n ≥ 1 and d ≥ 1, got {tuple(features.shape)}")
    if labels.shape != features.shape[:1] or not bool((labels.double().abs() == 1).all()):
        got = f"{labels.unique().tolist()[:5]} in shape {tuple(labels.shape)}"
        raise ValueError(f"labels must be {len(features)} numbers 1 or -1, got {got}")
    return (features * labels[:, None]).detach().cpu().to(torch.float64).numpy()


def _lengths(z: np.ndarray) -> np.ndarray:
    """Return the lengths of the rows, 1 for a row of zeros."""
    unit = np.abs(z).max(1, keepdims=True)
    lengths = unit[:, 0] * np.linalg.norm(z / np.where(unit > 0, unit, 1), axis=1)
    return np.where(lengths > 0, lengths, 1)


def _least_squares(z: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return α ≥ 0 that minimises ‖Σ α_i z_i‖² + (1 − Σ α_i least_i)²."""
    columns = np.vstack([z.T, least])
    return nnls(columns, np.eye(len(columns))[-1], maxiter=100 * max(columns.shape))[0]


def _decide(z: np.ndarray, lengths: np.ndarray) -> Separability:
    """Return the certificate for rows z_i, each divided by a length."""
    z = z / lengths[:, None]
    weights = _least_squares(z, np.ones(len(z)))
    mean = weights @ z / weights.sum()
    length = float(np.linalg.norm(mean))
    if length <= _ZERO:
        shares = weights * (lengths.min() / lengths)
        return Separability(None, torch.from_numpy(shares / shares.sum()), length)
    smallest = float((z @ mean).min()) / length
    if smallest <= 0:
        raise ArithmeticError(
            f"separability cannot be decided in this precision: a mean of the points has length {length:.1e} "
            f"and the best vector a margin of {smallest:.1e}, relative to the points' lengths"
        )
    return Separability(torch.from_numpy(mean / length), None, smallest)


def _polish(z: np.ndarray, active: np.ndarray, fixed: np.ndarray) -> MaxMargin:
    """Return the shortest β with z_i·β = 1 on the active set and ``fixed @ β = 0``, correcting the set where needed."""
    lengths = _lengths(z)
    scale = lengths.min()
    least, z = scale / lengths, z / lengths[:, None]
    for _ in range(10 * sum(z.shape)):
        rows = np.vstack([z[active], fixed])
        beta = np.linalg.lstsq(rows, np.r_[least[active], np.zeros(len(fixed))], rcond=1e-12)[0]
        alpha = np.zeros(len(z))
        shares = np.linalg.lstsq(rows.T, beta, rcond=1e-12)[0]
        alpha[active] = shares[: active.sum()]
        margins = z @ beta
        if alpha.min() < -_EXACT * alpha.max():
            active = active & (np.arange(len(z)) != alpha.argmin())
        elif (margins - least).min() < -_EXACT:
            active = active | (np.arange(len(z)) == (margins - least).argmin())
        else:
            break
    else:
        raise ArithmeticError("no active set meets the optimality conditions of the largest margin")
    slack = float(np.abs(alpha @ z + shares[active.sum() :] @ fixed - beta).max() / np.abs(beta).max())
    residual = max(slack, float((least - margins).max()), float(np.abs(fixed @ beta).max(initial=0.0)))
    alpha = np.maximum(alpha, 0.0) / scale / lengths
    return MaxMargin(
        torch.from_numpy(beta / scale), torch.from_numpy(alpha), torch.from_numpy(margins / least), residual
    )
