"""Chapter *Groups and Haar measure*, first half: telling Haar samplers from flawed ones (claim H1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.stats
import torch
from scipy.special import log_ndtr, ndtri_exp
from torch import Tensor

from lib.checks import check_int, seeded
from lib.symmetry.actions import natural, planar, regular, vectors
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup, Quaternion, Symmetric
from lib.symmetry.haar import NullSpace
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.representations import Representation

Sampler = Callable[[int, torch.Generator], Tensor]


def examples() -> list[Representation]:
    """Return faithful representations of the groups whose samplers the chapter examines."""
    finite = [planar(Cyclic(5)), planar(Dihedral(4)), natural(Symmetric(4)), regular(Quaternion(8))]
    lie = [SpecialOrthogonal(2), SpecialOrthogonal(3), SpecialOrthogonal(4), Orthogonal(3), Orthogonal(4)]
    lie += [Unitary(1), Unitary(2), Unitary(3), Torus(2)]
    return finite + [vectors(group) for group in lie]


def raw_qr(group: Orthogonal | Unitary) -> Sampler:
    """Return the tempting sampler that forgets the phases of R in a QR factorisation; it is *not* Haar."""

    def sample(count: int, generator: torch.Generator) -> Tensor:
        return torch.linalg.qr(torch.randn(count, group.n, group.n, dtype=group.dtype, generator=generator))[0]

    return sample


def uniform_euler(count: int, generator: torch.Generator) -> Tensor:
    """Return rotations by three independent uniform Euler angles (z–y–z); *not* Haar: they crowd at the poles."""
    a, b, c = math.pi * torch.rand(3, count, generator=generator, dtype=torch.float64)
    return _axis_rotation(2 * a, 2) @ _axis_rotation(b, 1) @ _axis_rotation(2 * c, 2)


def uniform_axis_and_angle(count: int, generator: torch.Generator) -> Tensor:
    """Return rotations about a uniform axis by a uniform angle; *not* Haar: small rotations are too frequent."""
    axis = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=-1)
    angle = math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.linalg.matrix_exp(torch.einsum("n,nk,kij->nij", angle, axis, _cross_basis()))


def flawed_samplers() -> list[tuple[Representation, Sampler]]:
    """Return four samplers whose first or second moments are wrong, each with the group it pretends to sample."""
    space = vectors(SpecialOrthogonal(3))
    return [
        (vectors(Unitary(2)), raw_qr(Unitary(2))),
        (vectors(Orthogonal(3)), raw_qr(Orthogonal(3))),
        (space, uniform_euler),
        (space, uniform_axis_and_angle),
    ]


def subtle_samplers() -> list[tuple[Representation, Sampler]]:
    """Return three samplers of a *part* of a group, which first and second moments cannot tell from the whole.

    Even permutations in S_4; rotations in O(3); and the curve θ_2 = 3θ_1 in the torus T².
    """
    S4, rotations = Symmetric(4), SpecialOrthogonal(3)
    even = S4.elements()[torch.linalg.det(natural(S4).matrix(S4.elements())) > 0]

    def curve(count: int, generator: torch.Generator) -> Tensor:
        angle = 2 * math.pi * torch.rand(count, 1, generator=generator, dtype=torch.float64)
        return torch.remainder(torch.cat([angle, 3 * angle], -1), 2 * math.pi)

    return [
        (natural(S4), lambda count, generator: even[torch.randint(len(even), (count,), generator=generator)]),
        (vectors(Orthogonal(3)), rotations.sample),
        (vectors(Torus(2)), curve),
    ]


def rotation_angle(g: Tensor) -> Tensor:
    """Return the angle in [0, π] of rotations of space, shape ``(...)``: tr g = 1 + 2 cos θ."""
    return torch.arccos(((torch.diagonal(g, dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-1, 1))


def moment_deviation(representation: Representation, g: Tensor) -> float:
    """Return how many standard errors the sample moments of ρ(g) are away from those of the Haar measure.

    The moments are E ρ, E ρ⊗ρ and E ρ⊗ρ̄; the true ones are the orthogonal projections onto the invariants, found from
    the generators by linear algebra and without sampling. Two scores are taken for each matrix-valued moment: the error
    in the Frobenius norm over the standard error in that norm, whose tail beyond 1.3 is at most that of |z| (Székely,
    Bakirov 2003: no Gaussian quadratic form of mean 1 exceeds larger values with a larger probability than z² does),
    and the largest score of a single entry, adjusted for the number of entries. The larger of the two, adjusted for the
    number of scores, is returned, see :func:`adjust_score`: fair samplers exceed 4 with probability at most 6.4e-5.

    Parameters
    ----------
    representation
        A faithful unitary representation ρ.
    g
        Group elements, at least two along the first axis.
    """
    V, n, d = representation, len(g), representation.dim
    rho = V.matrix(g).flatten(1)
    means, squares = [rho.mean(0)], [(rho.abs() ** 2).mean(0)]
    for other in [rho, rho.conj()][: 2 if V.is_complex else 1]:
        means.append((rho.mT @ other / n).reshape(d, d, d, d).transpose(1, 2).flatten())
        square = (rho.abs() ** 2).mT @ (other.abs() ** 2) / n
        squares.append(square.reshape(d, d, d, d).transpose(1, 2).flatten())
    moments = zip(_exact_moments(V), means, squares, strict=True)
    scores = [_score(mean - exact, square - mean.abs() ** 2, n) for exact, mean, square in moments]
    return adjust_score(max(scores), 2 * len(scores))


@cache
def _exact_moments(representation: Representation) -> list[Tensor]:
    """Return the projections onto the invariants of ρ, ρ⊗ρ and, if ρ is complex, ρ⊗ρ̄, flat."""
    V = representation
    return [NullSpace(W).matrix().flatten() for W in [V, V * V, *([V * V.dual()] if V.is_complex else [])]]


def _score(error: Tensor, variance: Tensor, n: int) -> float:
    """Return the larger of the Frobenius score and the adjusted largest score of an entry of a sample mean."""
    scale = (variance.clamp(min=0) / n).sqrt()
    entry = float((error.abs() / scale.clamp(min=1e-12)).max())
    return max(float(error.norm() / scale.norm().clamp(min=1e-12)), adjust_score(entry, len(error)))


def adjust_score(score: float, tests: int) -> float:
    """Return the z ≥ 0 whose two-sided p-value is ``tests`` times that of the score (Bonferroni; at most 1).

    Examples
    --------
    >>> round(adjust_score(4.0, 16), 2)
    3.28
    """
    log_p = log_ndtr(-score) + math.log(check_int("tests", tests))
    return 0.0 - float(ndtri_exp(min(log_p, math.log(0.5))))


def eigen_angles(g: Tensor, generator: torch.Generator) -> Tensor:
    """Return the angle of one eigenvalue per matrix, drawn at random among those that are not fixed, shape ``(n,)``.

    Angles of complex matrices lie in [0, 2π). Rotations have conjugate pairs, whose angle in [0, π] is returned, and in
    odd dimension a fixed eigenvalue 1, which is left out.

    Raises
    ------
    ValueError
        A real matrix has determinant −1: it has other fixed eigenvalues.
    """
    if not g.is_complex() and bool((torch.linalg.det(g) < 0).any()):
        raise ValueError("g must have determinant 1 if it is real, got a matrix of determinant −1")
    angles = torch.remainder(torch.linalg.eigvals(g.to(torch.complex128)).angle(), 2 * math.pi)
    if not g.is_complex():
        folded = torch.minimum(angles, 2 * math.pi - angles).sort().values
        angles = folded[:, g.shape[-1] % 2 :: 2]
    which = torch.randint(angles.shape[1], (len(g), 1), generator=generator)
    return angles.gather(1, which)[:, 0]


def angle_law(group: SpecialOrthogonal | Unitary) -> Callable[[np.ndarray], np.ndarray]:
    """Return the distribution function of a random eigenvalue angle under the Haar measure.

    U(n): uniform on [0, 2π). SO(2m): ``(mθ + Σ_{k<m} sin(2kθ)/(2k)) / πm``; SO(2m + 1):
    ``(mθ − Σ_{k≤m} sin((2k−1)θ)/(2k−1)) / πm``, both on [0, π]: the one-point densities of Meckes (2019, chapter 3),
    integrated.
    """
    if isinstance(group, Unitary):
        return lambda theta: theta / (2 * math.pi)
    m, odd = divmod(group.n, 2)
    if odd:
        waves, sign = 2 * np.arange(1, m + 1) - 1, -1.0
    else:
        waves, sign = 2 * np.arange(1, m), 1.0
    return lambda theta: (m * theta + sign * (np.sin(np.outer(theta, waves)) / waves).sum(-1)) / (math.pi * m)


@dataclass(frozen=True)
class HaarCheck:
    """What the sampler of one group showed.

    Attributes
    ----------
    group : str
        Name of the group.
    deviations : list of float
        :func:`moment_deviation`, one per seed.
    p_values : dict of str to float
        p-values of the tests of :func:`law_p_values`, samples of all seeds together.
    """

    group: str
    deviations: list[float]
    p_values: dict[str, float]


def check_haar(
    representation: Representation, samples: int, seeds: Sequence[int], sampler: Sampler | None = None
) -> HaarCheck:
    """Examine a sampler by its moments and by every test of :func:`law_p_values` that fits the group.

    Parameters
    ----------
    representation
        A faithful representation of the group.
    samples, seeds
        Elements drawn per seed, and the seeds.
    sampler
        The sampler to examine; by default the group's own.
    """
    check_int("samples", samples, minimum=1000)
    if not seeds:
        raise ValueError("seeds must be one or more integers, got none")
    group, draw = representation.group, sampler or representation.group.sample
    generators = [seeded(seed) for seed in seeds]
    batches = [draw(samples, generator) for generator in generators]
    deviations = [moment_deviation(representation, g) for g in batches]
    return HaarCheck(group.name, deviations, law_p_values(representation, torch.cat(batches), generators[0]))


def false_alarms(samples: int, seeds: Sequence[int]) -> np.ndarray:
    """Examine the groups' own samplers once per seed and return the smallest p-value times the number of tests.

    Moment deviations count as tests, with the two-sided p-value of a standard score. If the tests are right, a value is
    at most t with probability at most t (Bonferroni), for every t; shape ``(seeds,)``, values at most 1.
    """
    spaces, found = examples(), []
    for seed in seeds:
        checks = [check_haar(V, samples, [seed]) for V in spaces]
        p = [p for check in checks for p in check.p_values.values()]
        p += [2 * float(scipy.stats.norm.sf(d)) for check in checks for d in check.deviations]
        found.append(min(1.0, len(p) * min(p)))
    return np.array(found)


def law_p_values(representation: Representation, g: Tensor, generator: torch.Generator) -> dict[str, float]:
    """Return p-values of tests that the elements g are independent draws from the Haar measure.

    Every group: the first half of g and translates of the second half, hg and gh for a random h, have the same law of
    Re tr(Bρ) for a random matrix B (Kolmogorov–Smirnov, two samples). Finite groups: all elements are equally frequent
    (χ²). Tori: every combination aθ_1 + bθ_2 with |a|, |b| ≤ 3 is uniform. SO(n), U(n): law of eigenvalue angles. O(n):
    the determinant is a fair coin. O(n), SO(n), U(n), n ≥ 2: SciPy's matrices have the same law of Re tr(Bg).

    Parameters
    ----------
    representation
        A faithful representation of the group.
    g
        The elements.
    generator
        Source of h, of B and of SciPy's matrices.
    """
    group = representation.group
    B = torch.randn(representation.dim, representation.dim, generator=generator, dtype=torch.float64)

    def statistic(rho: Tensor) -> np.ndarray:
        return torch.einsum("ij,nji->n", B, rho.real).numpy()

    h, half = group.sample(1, generator), len(g) // 2
    first, second = statistic(representation.matrix(g[:half])), g[half:]
    translates = {"left translates": group.multiply(h, second), "right translates": group.multiply(second, h)}
    found = {k: _two_sample(first, statistic(representation.matrix(t))) for k, t in translates.items()}
    if isinstance(group, FiniteGroup):
        counts = torch.bincount(group.index(g), minlength=group.order)
        found["frequencies"] = float(scipy.stats.chisquare(counts.numpy()).pvalue)
    elif isinstance(group, Torus):
        combinations = torch.cartesian_prod(*[torch.arange(-3, 4)] * group.k)[: 7**group.k // 2].to(g)
        turns = torch.remainder(g @ combinations.mT / (2 * math.pi), 1.0).numpy()
        p = min(float(scipy.stats.kstest(column, "uniform").pvalue) for column in turns.T)
        found["combinations"] = min(1.0, p * len(combinations))
    else:
        found |= _matrix_p_values(group, g[: max(half, 1000)], statistic, generator)
    return found


def _matrix_p_values(
    group: Orthogonal | Unitary, g: Tensor, statistic: Callable[[Tensor], np.ndarray], generator: torch.Generator
) -> dict[str, float]:
    found = {}
    if isinstance(group, (SpecialOrthogonal, Unitary)):
        if isinstance(group, Unitary) or bool((torch.linalg.det(g) > 0).all()):
            angles = eigen_angles(g, generator).numpy()
            found["eigenvalue angles"] = float(scipy.stats.kstest(angles, angle_law(group)).pvalue)
    else:
        found["determinants"] = float(scipy.stats.binomtest(int((torch.linalg.det(g) > 0).sum()), len(g)).pvalue)
    if group.n > 1:
        laws = {SpecialOrthogonal: scipy.stats.special_ortho_group, Orthogonal: scipy.stats.ortho_group}
        law = laws.get(type(group), scipy.stats.unitary_group)
        source = np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))
        other = law(group.n).rvs(size=min(len(g), 100_000), random_state=source)
        found["SciPy's sampler"] = _two_sample(statistic(g), statistic(torch.from_numpy(other)))
    return found


def _two_sample(a: np.ndarray, b: np.ndarray) -> float:
    """Return the p-value of the two-sample Kolmogorov–Smirnov test; ties by rounding are closed first."""
    return float(scipy.stats.ks_2samp(a.round(9), b.round(9), method="asymp").pvalue)


def _axis_rotation(angle: Tensor, axis: int) -> Tensor:
    return torch.linalg.matrix_exp(angle[:, None, None] * _cross_basis()[axis])


def _cross_basis() -> Tensor:
    basis = torch.zeros(3, 3, 3, dtype=torch.float64)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        basis[i, k, j], basis[i, j, k] = 1.0, -1.0
    return basis
