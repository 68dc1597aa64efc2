"""Growing a subspace by the directions in which trained particles leave it (Maass, Fontbona 2024, heuristic).

A network is the mean of units σ(z x) with matrices z, σ acting on coordinates; it learns from inputs X ~ N(0, s²·1) and
the outputs of a teacher of the same form. Particles start in a subspace E_j of Z = R^{q×p}; if training takes them out
of it, a direction in which they left is added. Nothing here knows a group.

Particles are flat matrices, shape ``(seeds, N, q·p)``; seeds are a batch and never mix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import (
    check_callable,
    check_choice,
    check_float,
    check_instance,
    check_int,
    check_probabilities,
    check_tensor,
)

Velocity = Callable[[Tensor], Tensor]
RULES = ("mean", "leading")
KAPPA = math.sqrt(math.pi / 8)  # erf(κu/√2) has the slope of tanh(u/2) at zero


@dataclass(frozen=True)
class Response:
    """A function σ : R → R that acts on tensors entry by entry, and its derivative ``slope(u, σ(u))``."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]


LOGISTIC = Response(torch.sigmoid, lambda u, value: value * (1 - value))
ERF = Response(
    lambda u: torch.erf(u * (KAPPA / math.sqrt(2))),
    lambda u, value: (KAPPA * math.sqrt(2 / math.pi)) * torch.exp(-0.5 * (KAPPA * u).square()),
)


def outputs(particles: Tensor, x: Tensor, response: Response) -> Tensor:
    """Return the network Φ(x) = (1/N) Σ_i σ(z_i x), shape ``(seeds, B, q)``.

    Parameters
    ----------
    particles
        Matrices z_i, shape ``(seeds, N, q·p)``.
    x
        Inputs, shape ``(B, p)`` or ``(seeds, B, p)``.
    response
        σ.

    Raises
    ------
    TypeError, ValueError
        Kinds or shapes that do not fit together.
    """
    _check_units(particles, x)
    h = _inner(particles, x)
    return check_instance("response", response, Response).value(h).mean(1).mT


def velocity(
    particles: Tensor, x: Tensor, y: Tensor, response: Response = LOGISTIC, weights: Tensor | None = None
) -> Tensor:
    """Return −N ∂R/∂z_i for the weighted empirical risk R = Σ_b w_b ½‖Φ(x_b) − y_b‖², shape of ``particles``.

    Parameters
    ----------
    particles
        Matrices z_i, shape ``(seeds, N, q·p)``.
    x, y
        Inputs ``(B, p)`` or ``(seeds, B, p)``, and targets ``(seeds, B, q)`` or ``(1, B, q)``.
    response
        σ.
    weights
        Probabilities of the points, shape ``(B,)``; default 1/B each.

    Raises
    ------
    TypeError, ValueError
        Kinds or shapes that do not fit together.
    """
    _check_units(particles, x)
    points, own = x.shape[-2], len(check_instance("y", y, Tensor)) != 1
    _check_shape("y", y, (len(particles) if own else 1, points, particles.shape[-1] // x.shape[-1]))
    if weights is not None:
        check_probabilities("weights", weights, points)
    h = _inner(particles, x)  # (seeds, N, q, B)
    w = 1.0 / points if weights is None else weights
    value = check_instance("response", response, Response).value(h)
    residual = (y.mT - value.mean(1)) * w
    pulled = residual[:, None] * response.slope(h, value)
    return (pulled.flatten(1, 2) @ x).reshape(particles.shape)


def population_velocity(particles: Tensor, teacher: Tensor, inputs: int, scale: float) -> Tensor:
    """Return −N ∂R/∂z_i for R = E ½‖Φ(X) − f(X)‖² with σ = ``ERF`` and X ~ N(0, scale²·1), in closed form.

    Row by row, with ⟨a, b⟩ = κ² scale² a·b: E σ(a·X)σ(b·X) = (2/π) arcsin(⟨a, b⟩ / √((1 + ⟨a, a⟩)(1 + ⟨b, b⟩)))
    (Williams 1998), so that the gradient of the risk in row a is a sum over the rows b of students and teachers of

        (2/π) κ² scale² (b − a ⟨a, b⟩ / (1 + ⟨a, a⟩)) / √((1 + ⟨a, a⟩)(1 + ⟨b, b⟩) − ⟨a, b⟩²).

    Parameters
    ----------
    particles, teacher
        Flat matrices, shapes ``(seeds, N, q·p)`` and ``(seeds, M, q·p)``.
    inputs
        p, the number of columns.
    scale
        Standard deviation of the inputs.

    Raises
    ------
    TypeError, ValueError
        Kinds or shapes that do not fit together, a teacher that is not finite, a scale that is not positive.
    """
    check_int("inputs", inputs)
    _check_shape("particles", particles, (None, None, None))
    _check_shape("teacher", teacher, (len(particles), None, particles.shape[-1]))
    if particles.shape[-1] % inputs:
        raise ValueError(f"inputs must divide the length {particles.shape[-1]} of a particle, got {inputs}")
    check_tensor("teacher", teacher)
    c = (KAPPA * check_float("scale", scale, minimum=1e-12)) ** 2
    a = particles.unflatten(-1, (-1, inputs)).transpose(1, 2)  # (seeds, q, N, p)
    b = teacher.unflatten(-1, (-1, inputs)).transpose(1, 2)
    aa, bb = 1 + c * a.square().sum(-1), 1 + c * b.square().sum(-1)
    total = torch.zeros_like(a)
    for other, norms, sign in ((b, bb, 1.0), (a, aa, -1.0)):
        ab = c * a @ other.mT  # (seeds, q, N, M)
        share = (aa[..., :, None] * norms[..., None, :] - ab.square()).rsqrt() / other.shape[-2]
        total = total + sign * (share @ other - a * ((share * ab).sum(-1) / aa)[..., None])
    return (total * (2 / math.pi * c)).transpose(1, 2).reshape(particles.shape)


def hermite_nodes(dimension: int, nodes: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return points ``(nodes^dimension, dimension)`` and masses of the Gauss–Hermite rule for N(0, scale²·1).

    Exact for polynomials of degree 2·nodes − 1 in each coordinate, and invariant under permutations and sign changes of
    the coordinates whatever ``nodes`` is.
    """
    from scipy.special import roots_hermitenorm

    check_int("dimension", dimension, maximum=4)
    t, w = (torch.from_numpy(v) for v in roots_hermitenorm(check_int("nodes", nodes, maximum=200)))
    t, w = (t - t.flip(0)) / 2, (w + w.flip(0)) / 2
    grid = torch.cartesian_prod(*[t] * dimension).reshape(-1, dimension)
    mass = torch.cartesian_prod(*[w / w.sum()] * dimension).reshape(-1, dimension).prod(-1)
    return grid * check_float("scale", scale, minimum=1e-12), mass


@dataclass(frozen=True)
class Growth:
    """Settings of the heuristic.

    Attributes
    ----------
    particles : int
        N, units of the network that is trained.
    spread : float
        Standard deviation of the particles at the start of every round, in every direction of E_j.
    rate, steps : float, int
        Step of a unit, and steps per round.
    threshold : float
        Growth stops when W₂²(ν, P_#ν) ≤ threshold, where ν is the trained law and P projects onto E_j.
    rule : str
        ``"mean"``: add the mean of z − Pz over the particles (the source's rule); ``"leading"``: add the leading
        eigenvector of the mean of (z − Pz)(z − Pz)ᵀ.
    decay, temperature : float
        τ and β of noisy gradient descent with noise projected onto E_j.
    """

    particles: int = 20
    spread: float = 0.25
    rate: float = 0.2
    steps: int = 100
    threshold: float = 1e-10
    rule: str = "leading"
    decay: float = 1e-4
    temperature: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("particles", "steps"):
            check_int(name, getattr(self, name))
        for name in ("spread", "decay", "temperature"):
            check_float(name, getattr(self, name), minimum=0.0)
        check_float("rate", self.rate, minimum=1e-12)
        check_float("threshold", self.threshold, minimum=0.0)
        check_choice("rule", self.rule, RULES)


@dataclass(frozen=True)
class Discovery:
    """What the heuristic found, one subspace per seed.

    Attributes
    ----------
    basis : Tensor
        Orthonormal rows, then zero rows, shape ``(seeds, dim Z, dim Z)``.
    dimensions : Tensor
        Dimensions of the subspaces, shape ``(seeds,)``, int64.
    escapes : Tensor
        W₂²(ν, P_#ν) of every round, shape ``(rounds, seeds)``; NaN where a seed had stopped.
    """

    basis: Tensor
    dimensions: Tensor
    escapes: Tensor

    @property
    def projection(self) -> Tensor:
        """The orthogonal projections onto the found subspaces, shape ``(seeds, dim Z, dim Z)``."""
        return self.basis.mT @ self.basis

    def angles(self, target: Tensor) -> Tensor:
        """Return arcsin ‖P − Q‖ per seed, with P the projection found and Q a given one, shape ``(dim Z, dim Z)``.

        That is the largest principal angle if the dimensions agree, and π/2 if they do not.
        """
        check_tensor("target", target, self.basis.shape[-2:], inexact=True)
        return torch.linalg.matrix_norm(self.projection - target, ord=2).clamp(max=1.0).asin()

    def stopped(self, threshold: float) -> Discovery:
        """Return what the same run finds with a larger threshold, which decides where growth ends, not where it goes.

        Raises
        ------
        ValueError
            The threshold is smaller than that of the run: some seed would have gone on.
        """
        stay = self.escapes <= check_float("threshold", threshold, minimum=0.0)
        if not stay.any(0).all():
            least = float(self.escapes.nan_to_num(torch.inf).amin(0).max())
            raise ValueError(f"threshold must be at least {least:.1e}, where all seeds have stopped, got {threshold}")
        last = stay.int().argmax(0)
        dimensions = self.dimensions - (self.escapes.isfinite().sum(0) - 1) + last
        kept = torch.arange(self.basis.shape[-1], device=self.basis.device) < dimensions[:, None]
        seen = torch.arange(len(self.escapes), device=self.escapes.device)[:, None] <= last
        return Discovery(self.basis * kept[..., None], dimensions, self.escapes.where(seen, torch.nan))


def discover(velocity: Velocity, basis: Tensor, growth: Growth, generator: torch.Generator) -> Discovery:
    """Grow subspaces E_0 ⊂ E_1 ⊂ … until trained particles stay, one per seed.

    In round j, N particles are drawn from N(0, spread²·P) on E_j and trained; z ← z + rate (V(z) − τz) plus Gaussian
    noise of variance 2·rate·β on E_j. If W₂²(ν, P_#ν) = E‖z − Pz‖² exceeds the threshold, E_j gains one dimension, the
    direction that the rule names.

    Parameters
    ----------
    velocity
        V, from particles ``(seeds, N, dim Z)`` to the same shape; fresh data at every call make it stochastic.
    basis
        Orthonormal rows that span E_0, one for each seed, shape ``(seeds, k, dim Z)``; k = 0 starts from {0}.
    growth
        Settings.
    generator
        For starts and noise.

    Raises
    ------
    TypeError
        An argument is of another kind, or V returns no tensor.
    ValueError
        ``basis`` has another shape or rows that are not orthonormal, or V does not keep the shape.
    ArithmeticError
        Particles became infinite or NaN: the rate is too large.
    """
    check_callable("velocity", velocity)
    check_instance("growth", growth, Growth)
    check_instance("generator", generator, torch.Generator)
    frame, dimensions = _frame(basis)
    whole, active, escapes = frame.shape[-1], torch.ones_like(dimensions, dtype=torch.bool), []
    while active.any():
        P = frame.mT @ frame
        if (dimensions[active] == whole).all():  # nothing can leave the whole space
            escapes.append(torch.where(active, 0.0, torch.nan).to(frame))
            break
        z = train_inside(velocity, P, growth, generator)
        escape = escaped(z, P).where(dimensions < whole, 0.0)
        escapes.append(escape.where(active, torch.nan))
        active = active & (escape > growth.threshold)
        v, rows = _direction(z - z @ P, growth.rule, P), torch.arange(len(frame), device=frame.device)[active]
        frame[rows, dimensions[active]] = v[active]
        dimensions = dimensions + active.long()
    return Discovery(frame, dimensions, torch.stack(escapes))


def train_inside(velocity: Velocity, P: Tensor, growth: Growth, generator: torch.Generator) -> Tensor:
    """Return the particles at the end of one round that starts in the ranges of P, shape ``(seeds, N, dim Z)``.

    P holds the projections onto E_j, shape ``(seeds, dim Z, dim Z)``; the rest is as for :func:`discover`.

    Raises
    ------
    TypeError, ValueError
        V does not keep the shape, or P holds no orthogonal projections.
    ArithmeticError
        Particles became infinite or NaN: the rate is too large.
    """
    check_tensor("P", P, (None, None), inexact=True)
    _check_shape("P", P, (None, P.shape[-1], None))
    allowed = _rounding(P)
    if not float((P @ P - P).abs().max()) <= allowed or not torch.allclose(P, P.mT, atol=allowed):
        raise ValueError("P must hold orthogonal projections, P = P² = Pᵀ")
    shape = (len(P), growth.particles, P.shape[-1])

    def gauss(size: float) -> Tensor | float:
        if not size:
            return 0.0
        draw = torch.randn(shape, generator=generator, dtype=P.dtype, device=generator.device)
        return size * draw.to(P.device) @ P

    z = torch.zeros(shape, dtype=P.dtype, device=P.device) + gauss(growth.spread)
    noise = math.sqrt(2 * growth.rate * growth.temperature)
    for step in range(growth.steps):
        v = velocity(z)
        if step == 0:
            _check_shape("the value of velocity", v, shape)
        z = z + growth.rate * (v - growth.decay * z) + gauss(noise)
    if not torch.isfinite(z).all():
        raise ArithmeticError(f"particles became infinite or NaN; rate {growth.rate} is too large")
    return z


def escaped(z: Tensor, P: Tensor) -> Tensor:
    """Return W₂²(ν, P_#ν) = E‖z − Pz‖² for the law ν of particles, one number per seed.

    No coupling does better than z ↦ Pz, since P moves every point to the nearest one of its range.

    Shapes ``(seeds, N, dim Z)`` and ``(dim Z, dim Z)`` or ``(seeds, dim Z, dim Z)``.
    """
    _check_cloud(z, P)
    return (z - z @ P).square().sum(-1).mean(-1)


def coherence(z: Tensor, P: Tensor) -> Tensor:
    """Return ‖E(z − Pz)‖² / E‖z − Pz‖² in [0, 1], one number per seed: 1 if all particles leave alike.

    The arguments are those of :func:`escaped`; NaN where no particle left.
    """
    _check_cloud(z, P)
    left = z - z @ P
    return left.mean(1).square().sum(-1) / left.square().sum(-1).mean(-1)


def _direction(residual: Tensor, rule: str, P: Tensor) -> Tensor:
    """Return unit vectors orthogonal to the range of P, shape ``(seeds, dim Z)``."""
    v = residual.mean(1) if rule == "mean" else torch.linalg.svd(residual, full_matrices=False).Vh[:, 0]
    v = v - (v[:, None] @ P)[:, 0]
    return torch.nn.functional.normalize(v, dim=-1)


def _frame(basis: Tensor) -> tuple[Tensor, Tensor]:
    """Return the basis padded by zero rows, and its number of rows for every seed."""
    check_tensor("basis", basis, (None, None), inexact=True)
    seeds, rows, dim = basis.shape if basis.ndim == 3 else (0, 0, 0)
    if not seeds or not dim or rows > dim or basis.is_complex():
        wanted = "real, of shape (seeds, k, dim Z) with k ≤ dim Z"
        raise ValueError(f"basis must be {wanted}, got {basis.dtype} of shape {tuple(basis.shape)}")
    defect = (basis @ basis.mT - torch.eye(rows, dtype=basis.dtype, device=basis.device)).abs()
    if rows and not float(defect.max()) <= _rounding(basis):
        raise ValueError(f"basis must have orthonormal rows, the defect is {float(defect.max()):.1e}")
    frame = torch.cat([basis, basis.new_zeros(seeds, dim - rows, dim)], 1)
    return frame, torch.full((seeds,), rows, device=basis.device)


def _rounding(x: Tensor) -> float:
    """Return how far orthonormal rows may be from it: 1e-8, in single precision 4e-6."""
    return max(1e-8, 32 * torch.finfo(x.dtype).eps)


def _inner(particles: Tensor, x: Tensor) -> Tensor:
    """Return z_i x_b, shape ``(seeds, N, q, B)``."""
    p = x.shape[-1]
    rows = particles.unflatten(-1, (-1, p)).flatten(1, 2)
    return (rows @ x.mT).unflatten(1, (particles.shape[1], -1))


def _check_shape(name: str, value: Tensor, shape: tuple[int | None, ...]) -> None:
    """Check a tensor's whole shape; cheap, since it is done at every step."""
    if check_instance(name, value, Tensor).ndim != len(shape) or any(
        s not in (None, t) for s, t in zip(shape, value.shape)
    ):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(value.shape)}")


def _check_units(particles: Tensor, x: Tensor) -> None:
    """Check that matrices and inputs fit together."""
    _check_shape("particles", particles, (None, None, None))
    _check_shape("x", x, (None, None) if check_instance("x", x, Tensor).ndim == 2 else (len(particles), None, None))
    length = particles.shape[-1]
    if not x.numel() or length % x.shape[-1]:
        raise ValueError(f"x must hold points of a length that divides {length}, got shape {tuple(x.shape)}")


def _check_cloud(z: Tensor, P: Tensor) -> None:
    _check_shape("z", z, (None, None, None))
    dim = z.shape[-1]
    _check_shape("P", P, (dim, dim) if check_instance("P", P, Tensor).ndim == 2 else (len(z), dim, dim))
