"""Chapter *Groups and Haar measure*, second half: what averaging over a group does (claims H5, H9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.checks import check_int, seeded
from lib.images.bundled import digits
from lib.symmetry.actions import pixels, planar
from lib.symmetry.axioms import equivariance_error
from lib.symmetry.groups import Cyclic, FiniteGroup
from lib.symmetry.representations import Representation
from lib.symmetry.symmetrization import symmetrize_function, symmetrize_measure


@dataclass(frozen=True)
class AveragingCheck:
    """|E_{S^Σ P} f − E_P S_Σ f| and the largest |S_Σ S_Σ f − S_Σ f|, both relative to the norm of f in L²(S^Σ P)."""

    adjointness: float
    projection: float


def check_averaging(
    f: Callable[[Tensor], Tensor], representation: Representation, points: Tensor, part: Tensor | None = None
) -> AveragingCheck:
    """Measure whether symmetrizations of functions and measures are adjoint, and whether averaging twice is once.

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
    """
    averaged = symmetrize_function(f, representation, elements=part)
    twice = symmetrize_function(averaged, representation, elements=part)
    spread, mass = symmetrize_measure(points, representation)
    norm = float(torch.sqrt((mass * f(spread) ** 2).sum()))
    adjointness = abs(float((mass * f(spread)).sum() - averaged(points).mean()))
    return AveragingCheck(adjointness / norm, float((twice(points) - averaged(points)).abs().max()) / norm)


def contraction_excess(f: Callable[[Tensor], Tensor], representation: Representation, points: Tensor) -> float:
    """Return ‖S_Σ f‖ − ‖f‖ in L² of the empirical law of the points; never positive if that law is invariant."""
    averaged = symmetrize_function(f, representation)
    return float(averaged(points).square().mean().sqrt() - f(points).square().mean().sqrt())


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
    residual, averaged_residual : float
        :func:`~lib.symmetry.axioms.equivariance_error` of both on the test images, for the trivial action on logits.
    accuracy, averaged_accuracy : list of float
        Share of test digits classified correctly after k = 0, 1, 2, 3 quarter turns.
    network : callable
        Logits of the network, ``(..., 64)`` to ``(..., 10)``.
    """

    residual: float
    averaged_residual: float
    accuracy: list[float]
    averaged_accuracy: list[float]
    network: Callable[[Tensor], Tensor]


def train_classifier(
    group: FiniteGroup,
    seed: int = 0,
    through_average: bool = False,
    steps: int = 300,
    dtype: torch.dtype = torch.float32,
) -> Classifier:
    """Train a small network on upright digits and average it over a group of symmetries of the square.

    Parameters
    ----------
    group
        ``Cyclic(4)`` or ``Dihedral(4)``.
    seed
        Seed of the initial weights and of the split into training and test digits.
    through_average
        Whether the loss is that of the averaged network instead of the plain one.
    steps
        Full-batch Adam steps at rate 0.01.
    dtype
        Floating-point type of network and data.
    """
    check_int("steps", steps)
    data, V, turns = digits(dtype, seed=seed), pixels(group, 8), pixels(Cyclic(4), 8)
    network, parameters = _perceptron(64, 10, seed, dtype)
    averaged = symmetrize_function(network, V)
    trained = averaged if through_average else network
    _descend(lambda: cross_entropy(trained(data.train_x), data.train_y), parameters, steps)
    views = [turns.apply(torch.tensor([k]), data.test_x) for k in range(4)]

    def accuracy(f: Callable[[Tensor], Tensor]) -> list[float]:
        return [float((f(view).argmax(-1) == data.test_y).double().mean()) for view in views]

    errors = [equivariance_error(f, V, None, data.test_x, group.elements()) for f in (network, averaged)]
    return Classifier(*errors, accuracy(network), accuracy(averaged), network)


def restoration_residuals(group: FiniteGroup, seed: int = 0, steps: int = 100) -> tuple[float, float]:
    """Train an image-to-image network and return its equivariance error before and after averaging, in float32.

    The network removes Gaussian noise (standard deviation 0.3) from digits; the group turns input and output alike.

    Parameters
    ----------
    group
        ``Cyclic(4)`` or ``Dihedral(4)``.
    seed
        Seed of weights, noise and split.
    steps
        Full-batch Adam steps at rate 0.01.
    """
    data, V = digits(torch.float32, seed=seed), pixels(group, 8)
    network, parameters = _perceptron(64, 64, seed, torch.float32)
    generator = seeded(seed)
    noisy = data.train_x + 0.3 * torch.randn(data.train_x.shape, generator=generator)
    _descend(lambda: (network(noisy) - data.train_x).square().mean(), parameters, steps)
    averaged = symmetrize_function(network, V, V)
    before, after = (equivariance_error(f, V, V, data.test_x, group.elements()) for f in (network, averaged))
    return before, after


def _perceptron(
    inputs: int, outputs: int, seed: int, dtype: torch.dtype, width: int = 64
) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """Return a network with one hidden layer of tanh units, and its parameters."""
    generator = seeded(seed)
    w1 = torch.randn(inputs, width, generator=generator, dtype=dtype) / math.sqrt(inputs)
    w2 = torch.randn(width, outputs, generator=generator, dtype=dtype) / math.sqrt(width)
    parameters = [w1, torch.zeros(width, dtype=dtype), w2, torch.zeros(outputs, dtype=dtype)]
    return lambda x: torch.tanh(x @ parameters[0] + parameters[1]) @ parameters[2] + parameters[3], parameters


def _descend(loss: Callable[[], Tensor], parameters: list[Tensor], steps: int) -> None:
    """Minimise a loss over the parameters in place, by Adam."""
    for p in parameters:
        p.requires_grad_(True)
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    for p in parameters:
        p.requires_grad_(False)
