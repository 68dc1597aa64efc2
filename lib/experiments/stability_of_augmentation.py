"""Chapter *Stability of augmentation*: Hessians, strict minima, growth rates, penalty, finite augmentation (A3–A5, A8, A9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import torch
from torch import Tensor

from lib.actions import natural, pixels, planar, translations, trivial
from lib.checks import check_choice, check_float, check_int
from lib.groups import Cyclic, Dihedral, Symmetric
from lib.haar import projection
from lib.risks import Network, Risk, Risks, descend, gradient, hessian, hessian_product


@dataclass(frozen=True)
class Settings:
    """Settings of the chapter.

    Attributes
    ----------
    problems : int
        Random data sets that are searched for strict minima on E, at least 5.
    points : int
        Points per data set.
    rate : float
        Step h of gradient descent in the study of growth, at most 0.6.
    runs : int
        Descents per label in the plane, and independent repetitions of every scheme of finite augmentation.
    """

    problems: int = 12
    points: int = 60
    rate: float = 0.5
    runs: int = 60

    def __post_init__(self) -> None:
        check_int("problems", self.problems, minimum=5)
        check_int("points", self.points, minimum=10)
        check_float("rate", self.rate, minimum=0.01, maximum=0.6)
        check_int("runs", self.runs, minimum=10)


# --- Hessians (A3) ---------------------------------------------------------------------------------------------------


def hessian_cases() -> dict[str, Network]:
    """Return the small networks whose Hessians are examined, by the name of the group and what it acts on."""
    nodes, turns, square, shifts = natural(Symmetric(3)), pixels(Cyclic(4), 3), pixels(Dihedral(4), 3), None
    shifts, plane = pixels(translations(3), 3), planar(Dihedral(4))
    return {
        "S3 on nodes": Network((nodes, nodes + nodes, nodes)),
        "C4 on images": Network((turns, turns, trivial(turns.group))),
        "D4 on images": Network((square, square, trivial(square.group))),
        "shifts of images": Network((shifts, shifts, trivial(shifts.group))),
        "D4 on the plane": Network((plane, plane + plane, plane + plane, plane)),
    }


@dataclass(frozen=True)
class HessianCheck:
    """Hessians of one network against their projection formulas; see :func:`check_hessians`.

    Attributes
    ----------
    dimension, equivariant_dimension : int
        Dimensions of L and of E.
    augmented, equivariant : list of float
        Largest entry of ∇²R^aug − Π_{L⊗L} ∇²R and of ∇²R^eqv − Π ∇²R Π, one per seed.
    coupling : list of float
        Largest entry of Π ∇²R^aug (1 − Π), the block between E and E^⊥.
    nominal, averaged, compressed : Tensor
        The three Hessians of the first seed, shape ``(dim L, dim L)``.
    """

    dimension: int
    equivariant_dimension: int
    augmented: list[float]
    equivariant: list[float]
    coupling: list[float]
    nominal: Tensor
    averaged: Tensor
    compressed: Tensor


def check_hessians(
    network: Network, seeds: int = 3, points: int = 10, off: float = 0.0, weights: Tensor | None = None
) -> HessianCheck:
    """Compare the Hessians of the three risks with the projections of ∇²R, at random points of E.

    R^aug is computed from augmented *data* and differentiated twice automatically; Π_{L⊗L} acts on matrices by its own
    route (orbits of index pairs, or a sum over the group), so the two sides share only the network.

    Parameters
    ----------
    network
        The network; inputs, targets and layers are Gaussian, one data set per seed.
    seeds
        Data sets and parameters.
    points
        Points per data set.
    off
        Distance by which the parameters are moved out of E: the control.
    weights
        Weights of the group elements in R^aug, shape ``(|G|,)``, default Haar; others are a control.
    """
    generator = torch.Generator().manual_seed(check_int("seeds", seeds))

    def draw(*shape: int) -> Tensor:
        return torch.randn(seeds, *shape, generator=generator, dtype=torch.float64)

    layers, (source, *_, target) = network.layers, network.spaces
    risks = Risks(network, draw(points, source.dim), draw(points, target.dim))
    a = draw(layers.dim) / math.sqrt(source.dim)
    outside = torch.nn.functional.normalize(risks.outside(a), dim=-1)
    a = risks.project(a) + off * outside
    nominal, compressed = hessian(risks.nominal, a), hessian(risks.equivariant, a)
    averaged = hessian(lambda b: risks.augmented(b, weights), a)
    pi = risks.project_matrix
    formula = projection(layers * layers)(nominal.flatten(-2)).unflatten(-1, (layers.dim, layers.dim))
    defects = averaged - formula, compressed - pi @ nominal @ pi, pi @ averaged @ (averaged.new_ones(()) * _complement(pi))
    largest = [d.abs().amax((-2, -1)).tolist() for d in defects]
    return HessianCheck(layers.dim, round(float(pi.trace())), *largest, nominal[0], averaged[0], compressed[0])


def _complement(pi: Tensor) -> Tensor:
    return torch.eye(len(pi), dtype=pi.dtype) - pi


# --- Strict minima (A4) ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The symmetric matrix [[p, q], [q, r]] with exact entries, on the plane on which S_2 swaps the coordinates.

    E is the diagonal, spanned by (1, 1).
    """

    p: Fraction
    q: Fraction
    r: Fraction

    @property
    def is_positive(self) -> bool:
        """Whether the matrix is positive definite (Sylvester's criterion)."""
        return self.p > 0 and self.p * self.r - self.q**2 > 0

    @property
    def on_equivariant(self) -> Fraction:
        """The value at (1, 1), which has the sign of the matrix compressed to E."""
        return self.p + 2 * self.q + self.r

    def averaged(self) -> Form:
        """Return the mean of the matrix and its image under the swap: the projection onto invariant forms."""
        half = Fraction(self.p + self.r) / 2
        return Form(half, Fraction(self.q), half)


@dataclass(frozen=True)
class StrictMinimum:
    """Whether a point of E is a strict minimum, by exact second derivatives, of R, of R^aug, and of R^eqv on E."""

    nominal: bool
    augmented: bool
    equivariant: bool


def classify(form: Form) -> StrictMinimum:
    """Return the definiteness of a form, of its average over S_2 and of its compression to E."""
    return StrictMinimum(form.is_positive, form.averaged().is_positive, form.on_equivariant > 0)


def violated_implications(size: int) -> int:
    """Return how many integer matrices with entries up to ``size`` break an implication of the proposition.

    All (2·size + 1)³ symmetric matrices are tried, in exact arithmetic.
    """
    entries = range(-check_int("size", size), size + 1)
    kinds = (classify(Form(Fraction(p), Fraction(q), Fraction(r))) for p, q, r in product(entries, repeat=3))
    return sum((k.nominal and not k.augmented) or (k.augmented and not k.equivariant) for k in kinds)


PLANE_POINTS = ((1, 1), (2, 0), (1, -1))


def plane_risk(a: tuple, label: object, swapped: float | Fraction = Fraction(1, 2)) -> object:
    """Return the augmented risk of the one-neuron network x ↦ (a·x)² on three points of the plane.

    The targets are 1 at (1, 1) and (2, 0), and ``label`` at (1, −1); the group S_2 swaps the coordinates of x. The
    arithmetic is that of the arguments: fractions give exact values, tensors batches.

    Parameters
    ----------
    a
        The two weights.
    label
        Target at (1, −1).
    swapped
        Weight of the swapped data: 1/2 is the Haar measure, 0 the nominal risk.
    """
    total = 0
    for (x1, x2), y in zip(PLANE_POINTS, (1, 1, label), strict=True):
        plain, moved = (a[0] * x1 + a[1] * x2) ** 2 - y, (a[0] * x2 + a[1] * x1) ** 2 - y
        total = total + (1 - swapped) * plain**2 + swapped * moved**2
    return total / (2 * len(PLANE_POINTS))


def exact_derivatives(risk: Callable[[tuple], Fraction], at: tuple) -> tuple[list[Fraction], Form]:
    """Return gradient and Hessian of a polynomial of degree at most four in two variables, exactly.

    Five-point differences are exact for such polynomials at any step; the mixed derivative is half of
    D²_{(1,1)} − D²_{(1,0)} − D²_{(0,1)}.
    """

    def line(u: int, v: int) -> list[Fraction]:
        return [risk((at[0] + k * u, at[1] + k * v)) for k in range(-2, 3)]

    def second(f: list[Fraction]) -> Fraction:
        return (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / 12

    along = line(1, 0), line(0, 1), line(1, 1)
    slope = [(f[0] - 8 * f[1] + 8 * f[3] - f[4]) / 12 for f in along[:2]]
    p, r, mixed = (second(f) for f in along)
    return slope, Form(p, (mixed - p - r) / 2, r)


@dataclass(frozen=True)
class PlanePoint:
    """Exact facts about the equivariant weights a = (1/2, 1/2) for one label.

    Attributes
    ----------
    stationary : bool
        Whether the gradients of R and R^aug vanish.
    nominal, augmented : Form
        Hessians of the two risks.
    minimum : StrictMinimum
        Signs read off the Hessians of R, of R^aug, and of the risk restricted to E.
    """

    stationary: bool
    nominal: Form
    augmented: Form
    minimum: StrictMinimum


def plane_point(label: Fraction, swapped: Fraction = Fraction(1, 2)) -> PlanePoint:
    """Return the exact derivatives at a = (1/2, 1/2); ``swapped`` other than 1/2 is augmentation that is not Haar."""
    at = (Fraction(1, 2), Fraction(1, 2))
    slope, nominal = exact_derivatives(lambda a: plane_risk(a, label, Fraction(0)), at)
    slope_aug, augmented = exact_derivatives(lambda a: plane_risk(a, label, swapped), at)
    minimum = StrictMinimum(nominal.is_positive, augmented.is_positive, augmented.on_equivariant > 0)
    return PlanePoint(not any(slope + slope_aug), nominal, augmented, minimum)


def plane_descents(label: float, runs: int, swapped: float = 0.5, steps: int = 1500) -> Tensor:
    """Descend from random points at distance 0.01 of a = (1/2, 1/2), and return the paths, shape (steps + 1, runs, 2).

    Parameters
    ----------
    label
        Target at (1, −1).
    runs
        Number of starting points, in random directions.
    swapped
        Weight of the swapped data, as in :func:`plane_risk`.
    steps
        Steps of gradient descent at rate 0.05.
    """
    angle = 2 * math.pi * torch.rand(check_int("runs", runs), generator=torch.Generator().manual_seed(0)).double()
    start = 0.5 + 0.01 * torch.stack([angle.cos(), angle.sin()], -1)
    return descend(lambda a: plane_risk(a.unbind(-1), label, swapped), start, 0.05, steps, lambda a: a)[1]


def plane_outcomes(paths: Tensor) -> list[str]:
    """Return for every path whether its end "returned" to E (within 1e-6), "escaped" (beyond 0.1), or is "undecided"."""
    distance = (paths[-1, :, 0] - paths[-1, :, 1]).abs() / math.sqrt(2)
    return ["returned" if d < 1e-6 else "escaped" if d > 0.1 else "undecided" for d in distance.tolist()]


# --- Growth near E (A5) ----------------------------------------------------------------------------------------------


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
        generator = torch.Generator().manual_seed(seed)
        x.append(torch.randn(points, nodes, generator=generator, dtype=torch.float64))
        noise = 0.3 * torch.randn(points, generator=generator, dtype=torch.float64)
        y.append(0.7 * torch.sin(2 * x[-1]).sum(-1) + x[-1].amax(-1) + noise)
    return Risks(Network((V, V, trivial(V.group))), torch.stack(x)[:, None], torch.stack(y)[:, None, :, None])


@dataclass(frozen=True)
class Minima:
    """Strict minima of R^eqv on E, k of them, each with its data set.

    Attributes
    ----------
    risks : Risks
        The risks of the k data sets.
    problem : list of int
        Seeds of the data sets.
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
        """Return the minima at which the boolean tensor ``keep`` is true."""
        old = self.risks
        problem = [p for p, kept in zip(self.problem, keep.tolist(), strict=True) if kept]
        parts = (self.parameters, self.inside, self.outside, self.directions)
        return Minima(Risks(old.network, old.x[keep], old.y[keep]), problem, *(part[keep] for part in parts))

    @property
    def unstable(self) -> Minima:
        """Those with an eigenvalue below −0.03 on E^⊥."""
        return self.select(self.outside[:, 0] < -0.03)


def find_minima(settings: Settings, restarts: int = 4) -> Minima:
    """Search E for strict minima of R^eqv: gradient descent from random starts, then Newton's method.

    Kept are points whose gradient on E is below 1e-13, whose Hessian on E exceeds 2e-3, and whose eigenvalues on E^⊥
    are all at least 1e-3 in size; repeated finds (equal risk to 1e-6) count once.

    Parameters
    ----------
    settings
        Number of problems and points.
    restarts
        Random starts per problem.
    """
    risks = regression(settings.problems, settings.points)
    basis = projection(risks.network.layers).basis()

    def risk(c: Tensor) -> Tensor:
        return risks.nominal(c @ basis)

    start = torch.randn(settings.problems, restarts, len(basis), generator=torch.Generator().manual_seed(0)).double()
    c = descend(risk, start, 0.3, 500, lambda c: c[..., 0])[0]
    for _ in range(12):
        c = c - torch.linalg.lstsq(hessian(risk, c), gradient(risk, c)[..., None]).solution[..., 0]
    slope = gradient(risk, c).norm(dim=-1)
    curvature = torch.linalg.eigvalsh(torch.nan_to_num(hessian(risk, c)))[..., 0]
    strict = (slope < 1e-13) & (curvature > 2e-3)
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
