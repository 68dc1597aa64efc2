"""Chapter *Groups and Haar measure*: is a sampler Haar, what does averaging over a group do (claims H1, H5, H9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from lib.actions import natural, pixels, planar, regular, vectors
from lib.checks import check_int
from lib.data import Digits, digits
from lib.groups import Cyclic, Dihedral, FiniteGroup, Quaternion, Symmetric
from lib.haar import NullSpace, symmetrize_function, symmetrize_measure
from lib.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.representations import Representation

Sampler = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Settings:
    """Settings of the chapter.

    Attributes
    ----------
    samples : int
        Group elements drawn per group and seed, at least 1000.
    seeds : int
        Independent repetitions.
    """

    samples: int = 100_000
    seeds: int = 3

    def __post_init__(self) -> None:
        check_int("samples", self.samples, minimum=1000)
        check_int("seeds", self.seeds)


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
    a, c = 2 * a, 2 * c
    return _axis_rotation(a, 2) @ _axis_rotation(b, 1) @ _axis_rotation(c, 2)


def uniform_axis_and_angle(count: int, generator: torch.Generator) -> Tensor:
    """Return rotations about a uniform axis by a uniform angle; *not* Haar: small rotations are too frequent."""
    axis = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=-1)
    angle = math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.linalg.matrix_exp(torch.einsum("n,nk,kij->nij", angle, axis, _cross_basis()))


def moment_deviation(representation: Representation, g: Tensor) -> float:
    """Return how many standard errors the sample moments of ρ(g) are away from those of the Haar measure.

    The moments are E ρ, E ρ⊗ρ and E ρ⊗ρ̄; the true ones are the orthogonal projections onto the invariants, found from
    the generators by linear algebra and without sampling. Each matrix-valued moment is compared in the Frobenius norm
    with its standard error in the same norm; the largest ratio is returned.

    Parameters
    ----------
    representation
        A faithful unitary representation ρ.
    g
        Group elements, at least two along the first axis.
    """
    V, n, d = representation, len(g), representation.dim
    rho = V.matrix(g).flatten(1)
    moments = [(rho.mean(0), (rho.abs() ** 2).mean(0), NullSpace(V).matrix())]
    for other, W in [(rho, V), (rho.conj(), V.dual())][: 2 if V.is_complex else 1]:
        mean = (rho.mT @ other / n).reshape(d, d, d, d).transpose(1, 2)
        square = ((rho.abs() ** 2).mT @ (other.abs() ** 2) / n).reshape(d, d, d, d).transpose(1, 2)
        moments.append((mean.flatten(), square.flatten(), NullSpace(V * W).matrix()))
    ratios = []
    for mean, square, exact in moments:
        error = float(torch.linalg.vector_norm(mean - exact.flatten()))
        scale = math.sqrt(max(float((square - mean.abs() ** 2).sum()), 0.0) / n)
        ratios.append(error / max(scale, 1e-12))
    return max(ratios)


def eigen_angles(g: Tensor, seed: int = 0) -> Tensor:
    """Return the angle of one eigenvalue per matrix, drawn at random among those that are not fixed, shape ``(n,)``.

    Angles of complex matrices lie in [0, 2π); real matrices have conjugate pairs, whose angle in [0, π] is returned,
    and in odd dimension a fixed eigenvalue 1, which is left out.
    """
    angles = torch.remainder(torch.linalg.eigvals(g.to(torch.complex128)).angle(), 2 * math.pi)
    if not g.is_complex():
        folded = torch.minimum(angles, 2 * math.pi - angles).sort().values
        angles = folded[:, g.shape[-1] % 2 :: 2]
    which = torch.randint(angles.shape[1], (len(g), 1), generator=torch.Generator().manual_seed(seed))
    return angles.gather(1, which)[:, 0]


def angle_law(group: SpecialOrthogonal | Unitary) -> Callable[[np.ndarray], np.ndarray]:
    """Return the distribution function of a random eigenvalue angle under the Haar measure.

    U(n): uniform on [0, 2π). SO(2m): ``(mθ + Σ_{k<m} sin(2kθ)/(2k)) / πm``; SO(2m + 1):
    ``(mθ − Σ_{k≤m} sin((2k−1)θ)/(2k−1)) / πm``, both on [0, π] (Meckes 2019, Proposition 3.9, integrated).
    """
    if isinstance(group, Unitary):
        return lambda theta: theta / (2 * math.pi)
    m, odd = divmod(group.n, 2)
    if odd:
        waves, sign = 2 * np.arange(1, m + 1) - 1, -1.0
    else:
        waves, sign = 2 * np.arange(1, m), 1.0
    return lambda theta: (m * theta + sign * (np.sin(np.outer(theta, waves)) / waves).sum(-1)) / (math.pi * m)


def angle_p_value(group: SpecialOrthogonal | Unitary, g: Tensor) -> float:
    """Return the Kolmogorov–Smirnov p-value of the eigen-angles of g against their law under the Haar measure."""
    return float(scipy.stats.kstest(eigen_angles(g).numpy(), angle_law(group)).pvalue)


def scipy_p_value(group: Orthogonal | Unitary, g: Tensor, seed: int) -> float:
    """Return the two-sample Kolmogorov–Smirnov p-value of Re g_11 + Re tr g against as many of SciPy's matrices."""
    if isinstance(group, Unitary):
        law = scipy.stats.unitary_group
    else:
        law = scipy.stats.special_ortho_group if isinstance(group, SpecialOrthogonal) else scipy.stats.ortho_group
    other = torch.from_numpy(law(group.n).rvs(size=len(g), random_state=np.random.default_rng(seed)))

    def statistic(h: Tensor) -> np.ndarray:
        return (h[:, 0, 0] + torch.einsum("nii->n", h)).real.numpy()

    return float(scipy.stats.ks_2samp(statistic(g), statistic(other)).pvalue)


@dataclass(frozen=True)
class HaarCheck:
    """What the sampler of one group showed.

    Attributes
    ----------
    group : str
        Name of the group.
    deviations : list of float
        Largest :func:`moment_deviation` of the sample and of its left and right translates, one per seed.
    p_values : dict of str to float
        Kolmogorov–Smirnov p-values, by the law compared with.
    """

    group: str
    deviations: list[float]
    p_values: dict[str, float]


def check_haar(representation: Representation, settings: Settings, sampler: Sampler | None = None) -> HaarCheck:
    """Examine a sampler: moments of g, hg and gh for a random fixed h, laws of eigen-angles, SciPy's samples.

    Parameters
    ----------
    representation
        A faithful representation of the group.
    settings
        Sample size and number of seeds.
    sampler
        The sampler to examine; by default the group's own.
    """
    group, draw = representation.group, sampler or representation.group.sample
    deviations, batches = [], []
    for seed in range(settings.seeds):
        generator = torch.Generator().manual_seed(1000 + seed)
        g = draw(settings.samples, generator)
        h = group.sample(1, generator)
        translates = (g, group.multiply(h, g), group.multiply(g, h))
        deviations.append(max(moment_deviation(representation, t) for t in translates))
        batches.append(g)
    p_values = {}
    if isinstance(group, (SpecialOrthogonal, Unitary)):
        p_values["eigen-angles"] = angle_p_value(group, batches[0])
    if isinstance(group, (Orthogonal, Unitary)) and group.n > 1:
        p_values["SciPy"] = scipy_p_value(group, batches[0], seed=0)
    if isinstance(group, Torus):
        p_values["uniform"] = min(_uniform_p_value(column) for column in (*batches[0].T, batches[0].sum(-1)))
    return HaarCheck(group.name, deviations, p_values)


def _uniform_p_value(angles: Tensor) -> float:
    turns = torch.remainder(angles / (2 * math.pi), 1.0)
    return float(scipy.stats.kstest(turns.numpy(), "uniform").pvalue)


@dataclass(frozen=True)
class AveragingCheck:
    """Numbers about S_Σ on functions and S^Σ on measures; see :func:`check_averaging`."""

    adjointness: float
    projection: float
    contraction_excess: float


def check_averaging(
    f: Callable[[Tensor], Tensor], representation: Representation, points: Tensor, part: Tensor | None = None
) -> AveragingCheck:
    """Measure the three properties of symmetrization for one function and one empirical measure P.

    ``adjointness`` is |E_{S^Σ P} f − E_P S_Σ f|, ``projection`` is max |S_Σ S_Σ f − S_Σ f| over the points, and
    ``contraction_excess`` is ‖S_Σ f‖ − ‖f‖ in L² of S^Σ P; the first two are relative to the norm of f.

    Parameters
    ----------
    f
        Maps ``(..., dim)`` to ``(...)``.
    representation
        How the finite group acts on the points.
    points
        Support of P, shape ``(n, dim)``, all masses equal.
    part
        Group elements to average the function over instead of all of them: a broken symmetrization, for controls.
        The contraction is then measured in L²(P), which is not invariant.
    """
    averaged = symmetrize_function(f, representation, elements=part)
    twice = symmetrize_function(averaged, representation, elements=part)
    spread, mass = symmetrize_measure(points, representation)
    norm = float(torch.sqrt((mass * f(spread) ** 2).sum()))
    adjointness = abs(float((mass * f(spread)).sum() - averaged(points).mean())) / norm
    projection = float((twice(points) - averaged(points)).abs().max()) / norm
    if part is None:
        after, before = torch.sqrt((mass * averaged(spread) ** 2).sum()), norm
    else:
        after, before = averaged(points).square().mean().sqrt(), f(points).square().mean().sqrt()
    return AveragingCheck(adjointness, projection, float(after) - float(before))


def gaussian_adjointness(group_order: int, nodes: int = 241) -> float:
    """Return |E_{S^Σ p} γ − E_p S_Σ γ| for a Gaussian density p in the plane and Σ = C_n, by quadrature.

    Left: the integral of γ against the density (1/n) Σ_k p(R_k⁻¹ x). Right: the integral of the averaged γ against p.
    The two integrands differ; the trapezoidal rule is exact to rounding for both, since they decay like Gaussians.

    Parameters
    ----------
    group_order
        The order n.
    nodes
        Grid points in each direction on [−12, 12]².
    """
    representation = planar(Cyclic(group_order))
    line = torch.linspace(-12, 12, nodes, dtype=torch.float64)
    x = torch.cartesian_prod(line, line)
    cell = float(line[1] - line[0]) ** 2
    centre, precision = torch.tensor([1.3, -0.4]).double(), torch.tensor([[2.0, 0.3], [0.3, 0.8]]).double()

    def density(y: Tensor) -> Tensor:
        z = y - centre
        return torch.exp(-0.5 * ((z @ precision) * z).sum(-1)) * precision.det().sqrt() / (2 * math.pi)

    def gamma(y: Tensor) -> Tensor:
        return torch.cos(1.7 * y[..., 0] + 0.2) + 0.3 * y[..., 1] ** 3 - y[..., 0] * y[..., 1]

    left = (symmetrize_function(density, representation)(x) * gamma(x)).sum() * cell
    right = (density(x) * symmetrize_function(gamma, representation)(x)).sum() * cell
    return abs(float(left - right))


def blind_functional(points: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a linear functional x ↦ w·x that vanishes on the given points, shape ``(n, dim)`` with n < dim.

    Its norm in L² of the points is zero, and its average over a group need not vanish there: averaging contracts only
    in L² of an *invariant* measure.
    """
    null = torch.linalg.svd(points, full_matrices=True)[2][len(points) :]
    if not len(null):
        raise ValueError(f"points must be fewer than their dimension {points.shape[1]}, got {len(points)}")
    w = null[0]
    return lambda x: x @ w


@dataclass(frozen=True)
class Classifier:
    """A network with one hidden layer trained on digits, and its average over a group.

    Attributes
    ----------
    network, averaged : callable
        Logits of the network and of its feature average, ``(..., 64)`` to ``(..., 10)``.
    residual, averaged_residual : float
        :func:`invariance_residual` of both on the test images.
    accuracy, averaged_accuracy : list of float
        Share of test digits classified correctly after k = 0, 1, 2, 3 quarter turns.
    """

    network: Callable[[Tensor], Tensor]
    averaged: Callable[[Tensor], Tensor]
    residual: float
    averaged_residual: float
    accuracy: list[float]
    averaged_accuracy: list[float]


def train_classifier(
    group: FiniteGroup,
    seed: int = 0,
    through_average: bool = False,
    width: int = 64,
    steps: int = 100,
    dtype: torch.dtype = torch.float32,
) -> Classifier:
    """Train a small network on upright digits and average it over a group of symmetries of the square.

    Parameters
    ----------
    group
        ``Cyclic(4)`` or ``Dihedral(4)``.
    seed
        Seed of the initial weights.
    through_average
        Whether the loss is that of the averaged network instead of the plain one.
    width
        Hidden units.
    steps
        Full-batch Adam steps at rate 0.01.
    dtype
        Floating-point type of network and data.
    """
    check_int("width", width)
    check_int("steps", steps)
    data, representation, turns = digits(dtype), pixels(group, 8), pixels(Cyclic(4), 8)
    generator = torch.Generator().manual_seed(seed)
    w1 = torch.randn(64, width, generator=generator, dtype=dtype) / 8
    w2 = torch.randn(width, 10, generator=generator, dtype=dtype) / math.sqrt(width)
    parameters = [w1, torch.zeros(width, dtype=dtype), w2, torch.zeros(10, dtype=dtype)]

    def network(x: Tensor) -> Tensor:
        return torch.tanh(x @ parameters[0] + parameters[1]) @ parameters[2] + parameters[3]

    averaged = symmetrize_function(network, representation)
    _descend(averaged if through_average else network, parameters, data, steps)
    views = [turns.apply(torch.tensor([k]), data.test_x) for k in range(4)]

    def accuracy(f: Callable[[Tensor], Tensor]) -> list[float]:
        return [float((f(view).argmax(-1) == data.test_y).double().mean()) for view in views]

    residuals = [invariance_residual(f, representation, data.test_x) for f in (network, averaged)]
    return Classifier(network, averaged, *residuals, accuracy(network), accuracy(averaged))


def _descend(f: Callable[[Tensor], Tensor], parameters: list[Tensor], data: Digits, steps: int) -> None:
    """Fit the parameters of f in place, by full-batch Adam on the cross-entropy."""
    for p in parameters:
        p.requires_grad_(True)
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(f(data.train_x), data.train_y).backward()
        optimiser.step()
    for p in parameters:
        p.requires_grad_(False)


def invariance_residual(f: Callable[[Tensor], Tensor], representation: Representation, x: Tensor) -> float:
    """Return the largest |f(gx) − f(x)| over the elements g of a finite group and the points x, over the RMS of f."""
    group = representation.group
    values = f(x)
    moved = f(representation.apply(group.unsqueeze(group.elements()), x))
    return float((moved - values).abs().max() / values.square().mean().sqrt())


def _axis_rotation(angle: Tensor, axis: int) -> Tensor:
    return torch.linalg.matrix_exp(angle[:, None, None] * _cross_basis()[axis])


def _cross_basis() -> Tensor:
    basis = torch.zeros(3, 3, 3, dtype=torch.float64)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        basis[i, k, j], basis[i, j, k] = 1.0, -1.0
    return basis
