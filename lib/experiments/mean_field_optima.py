"""Chapter *Mean-field dynamics*: the smallest risks over all laws, weakly and strongly invariant ones (M3, M4).

A finite set of particles closed under the group is a discretisation on which the theorems hold exactly, because
symmetrising a law on the set gives a law on the set. The risk is a convex quadratic in the masses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_float, check_int, check_tensor, seeded
from lib.experiments.mean_field_theorems import LOSSES, mean_loss, randn
from lib.symmetry.actions import sign, trivial
from lib.symmetry.groups import Symmetric
from lib.training.mean_field import Layer, Unit, project, symmetrise

# --- M3: Theorem 2 and Corollary 1 ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """Weighted data and a finite set of particles on which laws live.

    The inputs are a union of orbits, laid out element by element: row ``g·k + i`` is ``ρ_X(g)`` applied to input i.
    Every input has two labels, f_*(x) ± noise.

    Attributes
    ----------
    unit : Unit
        The unit.
    x, mean, noise : Tensor
        Inputs ``(|G| k, dim X)``, f_* there, and half the difference of the labels, ``(|G| k, dim Y)``.
    weights : Tensor
        Masses of the inputs.
    grid : Tensor
        Particles, shape ``(m, dim Z)``.
    orbits : list of Tensor
        The orbits that lie in the grid completely, as row numbers.
    """

    unit: Unit
    x: Tensor
    mean: Tensor
    noise: Tensor
    weights: Tensor
    grid: Tensor
    orbits: list[Tensor]

    @property
    def features(self) -> Tensor:
        """Outputs of the particles at the inputs, shape ``(|G| k, m, dim Y)``."""
        return self.unit(self.x[:, None], self.grid)

    def on_orbits(self, values: Tensor) -> Tensor:
        """Return the means over orbits of values ``(B, m, c)`` at the particles, shape ``(B, orbits, c)``."""
        return torch.stack([values[:, rows].mean(1) for rows in self.orbits], 1)

    @property
    def averaged_mean(self) -> Tensor:
        """Q_G f_* at the inputs."""
        group, k = self.unit.group, len(self.x) // self.unit.group.order
        elements = group.elements()
        place = group.index(group.multiply(elements[:, None], elements[None, :]))  # row gh holds ρ(g)ρ(h)x
        images = self.mean.unflatten(0, (group.order, k))[place]  # (g, h, k, dim Y)
        return torch.einsum("gba,ghkb->hka", self.unit.on_outputs, images).flatten(0, 1) / group.order


def random_problem(
    unit: Unit,
    seed: int = 0,
    equivariant: bool = False,
    closed: bool = True,
    invariant: bool = True,
    twins: bool = False,
    fixed: int = 0,
    inputs: int = 6,
    particles: int = 10,
) -> Problem:
    """Draw data and a grid: orbits of Gaussian particles and their projections onto E^G.

    Parameters
    ----------
    unit
        The unit.
    seed
        Of everything drawn.
    equivariant
        Whether f_* is equivariant; else it is arbitrary.
    closed
        Whether the grid holds whole orbits; ``False`` keeps one particle of each, a control.
    invariant
        Whether all inputs have equal masses, so that their law is invariant; ``False`` is a control.
    twins
        Whether the grid has the :func:`strong_twin` of every particle, too, if outputs are permuted transitively.
    fixed
        Number of further Gaussian particles in E^G, of standard deviation 2. A grid that is poor in fixed particles
        shows a price of strong invariance that belongs to the grid.
    inputs, particles
        Number of orbits of inputs and of particles.
    """
    generator = seeded(seed)
    order, points = unit.group.order, randn(generator, check_int("particles", particles), unit.parameters.dim)
    x = symmetrise(randn(generator, check_int("inputs", inputs), unit.inputs.dim), unit.inputs)
    teacher = randn(generator, 3, unit.parameters.dim)
    arbitrary = unit.network(x, teacher) + 0.3 * randn(generator, len(x), unit.outputs.dim)
    noise = 0.2 * randn(generator, len(x), unit.outputs.dim)
    mass = torch.rand(len(x), generator=generator, dtype=torch.float64) + 0.1
    weights = torch.full_like(mass, 1 / len(x)) if invariant else mass / mass.sum()
    images = symmetrise(points, unit.parameters)
    tied = project(points, unit.parameters)
    if twins and _turns(unit) is not None:
        tied = torch.cat([tied, strong_twin(unit, images)])
    if check_int("fixed", fixed, minimum=0):
        more = 2 * randn(generator, fixed, unit.parameters.dim)
        tied = torch.cat([tied, project(more, unit.parameters)])
    grid = torch.cat([images if closed else points, tied])
    alone = [torch.tensor([len(grid) - len(tied) + i]) for i in range(len(tied))]
    whole = [torch.arange(i, order * particles, particles) for i in range(particles)] if closed else []
    problem = Problem(unit, x, arbitrary, noise, weights, grid, whole + alone)
    return replace(problem, mean=problem.averaged_mean) if equivariant else problem


@dataclass(frozen=True)
class Infima:
    """Smallest risks over laws on a grid, with the loss ‖ŷ − y‖².

    Attributes
    ----------
    free : float
        inf R over all laws.
    augmented, averaged : float
        inf R^DA and inf R^FA over all laws.
    weakly_invariant, strongly_invariant : float
        inf R over laws constant on orbits, and over laws on the points of E^G in the grid.
    irreducible : float
        R_* = E‖Y − Q_G f_*(X)‖².
    approximation : float
        inf ‖Φ_μ − Q_G f_*‖² over laws constant on orbits.
    uncertainty : float
        Largest duality gap: no infimum is lower than its value less this.
    """

    free: float
    augmented: float
    averaged: float
    weakly_invariant: float
    strongly_invariant: float
    irreducible: float
    approximation: float
    uncertainty: float

    @property
    def differences(self) -> list[float]:
        """Distances of inf R^DA, inf R^FA and R_* + approximation from the infimum over weakly invariant laws."""
        others = (self.augmented, self.averaged, self.irreducible + self.approximation)
        return [abs(v - self.weakly_invariant) for v in others]


def smallest_risks(problem: Problem) -> Infima:
    """Solve every minimisation of Theorem 2 and Corollary 1 as a quadratic program over the masses of the particles."""
    unit, x, f, w = problem.unit, problem.x, problem.mean, problem.weights
    features = problem.features
    on_orbits = problem.on_orbits(features)
    alone = [int(rows) for rows in problem.orbits if len(rows) == 1]
    rho_x, rho_y = unit.on_inputs, unit.on_outputs
    moved = unit((x @ rho_x.mT)[:, :, None], problem.grid)  # (g, B, m, dim Y)
    back = torch.einsum("gba,gnmb->gnma", rho_y, moved)  # ρ_Y(g)⁻¹ σ(ρ_X(g)x, z)
    spread, best = float((w[:, None] * problem.noise**2).sum()), problem.averaged_mean
    solved = {
        "free": least_squares(features, f, w),
        "augmented": least_squares(moved.flatten(0, 1), (f @ rho_y.mT).flatten(0, 1), w.repeat(len(back)) / len(back)),
        "averaged": least_squares(back.mean(0), f, w),
        "weakly_invariant": least_squares(on_orbits, f, w),
        "strongly_invariant": least_squares(features[:, alone], f, w),
        "approximation": least_squares(on_orbits, best, w),
    }
    values = {name: value + spread * (name != "approximation") for name, (value, _, _) in solved.items()}
    irreducible = spread + float((w[:, None] * (f - best) ** 2).sum())
    return Infima(**values, irreducible=irreducible, uncertainty=max(gap for _, _, gap in solved.values()))


def least_squares(features: Tensor, y: Tensor, weights: Tensor) -> tuple[float, Tensor, float]:
    """Minimise Σ_b w_b ‖Σ_j p_j features_bj − y_b‖² over probability vectors p.

    Parameters
    ----------
    features, y, weights
        Shapes ``(B, m, c)``, ``(B, c)``, ``(B,)``.

    Returns
    -------
    tuple
        The value at p, p, and how far the infimum may lie below it: ``max_j ⟨∇, p − e_j⟩``, by convexity.
    """
    import cvxpy as cp

    check_tensor("features", features, (len(y), None, y.shape[-1]))
    scale = weights.sqrt()[:, None]
    rows = torch.cat([features * scale[..., None], (y * scale)[:, None]], 1).movedim(1, 2).flatten(0, 1)
    rows = torch.linalg.qr(rows, mode="r").R  # same lengths, fewer rows
    A, b = rows[:, :-1], rows[:, -1]
    masses = cp.Variable(A.shape[1], nonneg=True)
    tight = {f"tol_{name}": 1e-11 for name in ("gap_abs", "gap_rel", "feas")}
    program = cp.Problem(cp.Minimize(cp.sum_squares(A.numpy() @ masses - b.numpy())), [cp.sum(masses) == 1])
    program.solve(solver=cp.CLARABEL, **tight)
    p = torch.from_numpy(np.asarray(masses.value)).clamp_min(0)
    p = p / p.sum()
    residual = A @ p - b
    slope = 2 * A.mT @ residual
    return float(residual @ residual), p, float(slope @ p - slope.min())


# --- M4: Propositions 4 and 5 ---------------------------------------------------------------------------------------


def normal_nodes(count: int) -> tuple[Tensor, Tensor]:
    """Return nodes ``(count, 1)`` and weights ``(count,)`` of the Gauss–Hermite rule for N(0, 1)."""
    x, w = np.polynomial.hermite_e.hermegauss(check_int("count", count, maximum=250))
    return torch.from_numpy(x)[:, None], torch.from_numpy(w / w.sum())


def cosine_unit(flips: bool = True) -> Unit:
    """Return cos(zx) on X = Z = R, for C2 acting on both by sign, or (the control) not at all."""
    group = Symmetric(2)
    line = sign(group) if flips else trivial(group)
    return Unit(lambda x, z: torch.cos(x * z), line, trivial(group), line, "cos(zx)")


@dataclass(frozen=True)
class Price:
    """Smallest risks E(Φ(X) − cos ωX)² of strongly and of weakly invariant laws.

    Attributes
    ----------
    strong, weak : float
        The two risks.
    formula : float
        ``(1 + exp(−2ω²))/2 − 2 exp(−ω²/2) + 1``, the risk of the constant 1.
    """

    strong: float
    weak: float
    formula: float


def price_of_strong_invariance(flips: bool = True, frequency: float = 1.0, nodes: int = 80) -> Price:
    """Return the smallest risks for units cos(zx), X ~ N(0, 1): Proposition 4.

    Only z = 0 is fixed by the change of sign, so that the only strongly invariant model is the constant 1. The law
    ½ δ_ω + ½ δ_{−ω} is weakly invariant, and no risk is lower than its.

    Parameters
    ----------
    flips
        Whether the group acts; if not, every parameter is fixed (the control).
    frequency
        ω of the target.
    nodes
        Size of the Gauss–Hermite rule.
    """
    unit, (x, w) = cosine_unit(flips), normal_nodes(nodes)
    omega = check_float("frequency", frequency, minimum=0.0, maximum=5.0)
    grid = omega * torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    fixed = grid[(grid @ unit.fixed.mT - grid).abs().amax(-1) < 1e-12]
    y = torch.cos(omega * x)
    strong, _, _ = least_squares(unit(x[:, None], fixed), y, w)
    model = unit.network(x, symmetrise(grid[3:4], unit.parameters))
    weak = float(w @ (model - y).square().sum(-1))
    formula = (1 + math.exp(-2 * omega**2)) / 2 - 2 * math.exp(-(omega**2) / 2) + 1
    return Price(strong, weak, formula)


def strong_twin(unit: Layer, particles: Tensor) -> Tensor:
    """Return a strongly invariant law that has the model of a given weakly invariant one, where there is one.

    For units σ(zx) and a group that permutes the outputs *simply transitively* (exactly one g_i takes output 0 to
    output i) the matrix with rows ``ρ_X(g_i) z_0``, z_0 the first row of z, is fixed by the group, and a weakly
    invariant law has the model of the law of these matrices. For other groups the matrix is not fixed; it is then
    projected onto E^G, and the models differ.

    Parameters
    ----------
    unit
        A layer whose outputs are permuted transitively.
    particles
        Shape ``(..., N, dim Z)``.

    Raises
    ------
    TypeError
        The unit is no layer, or the group does not permute its outputs.
    ValueError
        It does not permute them transitively.
    """
    if not isinstance(unit, Layer) or not unit.outputs.is_permutation:
        raise TypeError(f"unit must be a Layer whose outputs the group permutes, got {unit!r}")
    turns = _turns(unit)
    if turns is None:
        raise ValueError(f"unit must have outputs that {unit.group} permutes transitively, got {unit.outputs}")
    row = unit.check_particles("particles", particles)[..., : unit.inputs.dim]
    twin = torch.einsum("oij,...j->...oi", unit.on_inputs[turns], row).flatten(-2)
    return project(twin, unit.parameters)


def _turns(unit: Unit) -> Tensor | None:
    """Return for every output the number of a group element that takes output 0 there, None if there is none."""
    if not isinstance(unit, Layer) or not unit.outputs.is_permutation:
        return None
    images = unit.outputs.permutation(unit.group.elements())[:, 0]
    reached = [(images == i).nonzero()[:, 0] for i in range(unit.outputs.dim)]
    return torch.stack([r[0] for r in reached]) if all(len(r) for r in reached) else None


def twin_difference(unit: Layer, seed: int = 0, invariant: bool = True, particles: int = 8) -> float:
    """Return the largest |R(μ) − R(twin)| over four random weakly invariant laws and the best one on a grid.

    Parameters
    ----------
    unit
        A layer whose outputs are permuted.
    seed
        Of laws and data; the targets are arbitrary.
    invariant
        Whether the random laws are weakly invariant; if not, they have no twin (a control).
    particles
        Orbits in a law.
    """
    problem = random_problem(unit, seed, particles=particles)
    laws = randn(torch.Generator().manual_seed(seed + 1), 4, particles, unit.parameters.dim)
    laws = symmetrise(laws, unit.parameters) if invariant else laws
    risks = [
        mean_loss(unit, z, problem.x, problem.mean, LOSSES["half square"]) for z in (laws, strong_twin(unit, laws))
    ]
    best, p, _ = least_squares(problem.on_orbits(problem.features), problem.mean, problem.weights)
    twins = unit(problem.x[:, None], strong_twin(unit, problem.grid))
    model = torch.einsum("m,bmc->bc", p, problem.on_orbits(twins))
    at_twin = float(problem.weights @ (model - problem.mean).square().sum(-1))
    return max(float((risks[0] - risks[1]).abs().max()), abs(best - at_twin))
