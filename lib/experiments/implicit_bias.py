"""Chapter *Implicit bias in Fourier space*: what linear networks of depth L converge to (B1–B4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_instance, check_int, seeded
from lib.images.bundled import digits
from lib.symmetry.generated import frobenius, quaternions_on_plane
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, FiniteGroup, Symmetric
from lib.training.gradient_flow import Integration, Trained, train
from lib.training.linear_networks import (
    LinearNetwork,
    circular_convolution,
    diagonal,
    fully_connected,
    group_convolution,
)
from lib.training.margins import max_margin, one_minus_cosine
from lib.training.optimality import (
    Basis,
    Norm,
    coordinates,
    duality_gap,
    form_a,
    form_p,
    frequencies,
    irreducibles,
    random_feasible,
    separation,
)

GROUPS: dict[str, Callable[[], FiniteGroup]] = {
    "C12": lambda: Cyclic(12),
    "D6": lambda: Dihedral(6),
    "S3": lambda: Symmetric(3),
    "S4": lambda: Symmetric(4),
    "A5": lambda: Alternating(5),
    "F21": lambda: frobenius(7, 3),
    "(C5×C5)⋊Q8": quaternions_on_plane,
}
LARGE = "(C5×C5)⋊Q8"  # order 200: seconds per run
WATCHED = ("D6", "S4", "F21")  # run again with earlier handovers
IDENTIFIABLE = 0.01  # separation of two norms from which a run is asked to tell them apart
SCALE = 1.0  # size of the initial parameters
FLOW = Integration(efolds=1e5, tolerance=1e-5, accuracy=1e-5)  # the slowest of 300 runs took 1e4 e-folds


# --- B1 --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarginRun:
    """A fully connected network on two digits against the max-margin direction; see :func:`digit_margins`.

    Attributes
    ----------
    pair : tuple of int
        The digits.
    depth, seed : int
        Number of layers; seed of the start.
    points, support : int
        Number of images, and of those with the smallest margin.
    one_minus_cosine, at_handover : float
        1 − cos of the angle to the max-margin direction, after the continuation and before it.
    diagonal : float
        1 − cos for a trained *diagonal* network of two layers on the same images: the control.
    trained : lib.training.gradient_flow.Trained
        The flow.
    path : Tensor
        1 − cos along the flow, shape ``(steps,)``.
    """

    pair: tuple[int, int]
    depth: int
    seed: int
    points: int
    support: int
    one_minus_cosine: float
    at_handover: float
    diagonal: float
    trained: Trained
    path: Tensor


def digit_pair(pair: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the training images of two of scikit-learn's digits, shape ``(n, 64)``, and labels 1 and −1."""
    for digit in check_instance("pair", pair, Sequence):
        check_int("digit", digit, minimum=0, maximum=9)
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(f"pair must be two different digits, got {pair}")
    data = digits()
    chosen = (data.train_y == pair[0]) | (data.train_y == pair[1])
    return data.train_x[chosen], torch.where(data.train_y[chosen] == pair[0], 1.0, -1.0).double()


def digit_margins(
    pairs: Sequence[tuple[int, int]] = ((0, 1), (3, 8)), depths: Sequence[int] = (1, 2, 3), seed: int = 0
) -> list[MarginRun]:
    """Train fully connected networks on pairs of real digits and compare with the max-margin direction (B1).

    Parameters
    ----------
    pairs
        Pairs of digits.
    depths
        Numbers of layers.
    seed
        Seed of the start.

    Raises
    ------
    NotSeparable
        A pair cannot be separated by a hyperplane through the origin.
    """
    check_int("seed", seed, minimum=0)
    runs = []
    for pair in pairs:
        x, y = digit_pair(pair)
        best = max_margin(x, y)

        def misses(network: LinearNetwork, x: Tensor = x, y: Tensor = y, best: Tensor = best.vector) -> tuple:
            end = train(network, x, y, network.start(1, torch.Generator().manual_seed(seed), SCALE)[0], FLOW)
            return end, one_minus_cosine(end.path, best)

        _, other = misses(diagonal(x.shape[1], 2))
        for depth in depths:
            end, path = misses(fully_connected(x.shape[1], depth))
            distances = float(path[-1]), float(path[end.handover]), float(other[-1])
            runs.append(MarginRun((pair[0], pair[1]), depth, seed, len(x), len(best.support), *distances, end, path))
    return runs


# --- B2, B3, B4 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Control:
    """The optimality residual for a wrong norm, or of a wrong predictor.

    Attributes
    ----------
    residual : float
        Form P; for the ℓ2 solution the smaller of the two forms.
    form_a : float
        The same with the best multipliers; it can vanish when there are as many support vectors as unknowns.
    separation : float
        How different the two norms are at this predictor, computed without the data.
    """

    residual: float
    form_a: float
    separation: float

    @property
    def identifiable(self) -> bool:
        """Whether the run can tell the norms apart."""
        return self.separation >= IDENTIFIABLE


@dataclass(frozen=True)
class BiasRun:
    """A trained network and the first-order residuals for the norm it should minimise; see :func:`measure_bias`.

    Attributes
    ----------
    name : str
        Architecture or group.
    depth, seed, points : int
        Number of layers, seed, number of data points.
    norm : Norm
        The norm in which the predictor should be stationary.
    features, labels : Tensor
        The data, shapes ``(points, inputs)`` and ``(points,)``.
    trained : lib.training.gradient_flow.Trained
        The flow.
    form_a, form_p : float
        Residuals with the best multipliers and with the flow's own.
    at_handover : float
        Form P, with the final multipliers, of the direction at the end of the flow, before the continuation.
    gap : float or None
        Duality gap, for two layers.
    random : list of float
        Smallest form-A residuals of random feasible directions, any point allowed as a support vector.
    controls : dict
        Residuals for wrong norms, and of the ℓ2 solution, by name.
    seconds : float
        Processor time of training.
    """

    name: str
    depth: int
    seed: int
    points: int
    norm: Norm
    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    trained: Trained = field(repr=False)
    form_a: float
    form_p: float
    at_handover: float
    gap: float | None
    random: list[float]
    controls: dict[str, Control] = field(repr=False)
    seconds: float

    @property
    def residual(self) -> float:
        """The largest of form A, form P, the slackness of the flow's multipliers, and the gap if there is one."""
        return max(self.form_a, self.form_p, self.trained.slackness, self.gap or 0.0)

    @property
    def ratios(self) -> dict[str, float]:
        """Residuals of the identifiable controls over the residual of the right norm."""
        return {key: c.residual / self.residual for key, c in self.controls.items() if c.identifiable}


def measure_bias(
    name: str, network: LinearNetwork, basis: Basis, other: Basis, points: int, seed: int, how: Integration = FLOW
) -> BiasRun:
    """Train a network on Gaussian points with random labels and test first-order optimality.

    Parameters
    ----------
    name
        Name of the run.
    network
        A network with at least two layers.
    basis
        The basis in whose norm with p = 2/L the predictor should be stationary.
    other
        A wrong basis of the same length: a control.
    points
        Number of points, less than the number of inputs, so that they are separable almost surely.
    seed
        Seed of points, labels and start.
    how
        Loss, cap and accuracy of the flow.
    """
    depth = check_int("depth", check_instance("network", network, LinearNetwork).depth, minimum=2)
    check_instance("basis", basis, Basis)
    check_instance("other", other, Basis)
    check_instance("how", how, Integration)
    check_int("points", points, maximum=network.inputs - 1)
    generator = seeded(seed)
    x = torch.randn(points, network.inputs, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(points, generator=generator) < 0.5, 1.0, -1.0).double()
    began = time.process_time()
    end = train(network, x, y, network.start(1, generator, SCALE)[0], how)
    seconds = time.process_time() - began
    norm, beta, alpha = Norm(basis, 2 / depth), end.direction, end.multipliers
    return BiasRun(
        name=name,
        depth=depth,
        seed=seed,
        points=points,
        norm=norm,
        features=x,
        labels=y,
        trained=end,
        form_a=form_a(norm, beta, x, y)[0],
        form_p=form_p(norm, beta, x, y, alpha),
        at_handover=form_p(norm, end.path[end.handover], x, y, alpha),
        gap=duality_gap(norm, beta, x, y, alpha) if depth == 2 else None,
        random=[form_a(norm, b, x, y, tolerance=1e9)[0] for b in random_feasible(x, y, 10, generator)],
        controls=_controls(norm, other, end, x, y),
        seconds=seconds,
    )


def _controls(norm: Norm, other: Basis, end: Trained, x: Tensor, y: Tensor) -> dict[str, Control]:
    """Return the residuals for wrong exponents, wrong weights, a wrong basis, and of the ℓ2 solution."""
    depth, beta, alpha = round(2 / norm.p), end.direction, end.multipliers
    wrong = {
        "exponent of one layer fewer": Norm(norm.basis, 2 / (depth - 1)),
        "exponent of one layer more": Norm(norm.basis, 2 / (depth + 1)),
        "no weight": Norm(norm.basis, norm.p, 0.0),
        "weight for a unitary transform": Norm(norm.basis, norm.p, 1 - 1 / depth),
        "wrong basis": Norm(other, norm.p),
    }
    result = {
        key: Control(form_p(n, beta, x, y, alpha), form_a(n, beta, x, y)[0], separation(norm, n, beta))
        for key, n in wrong.items()
    }
    svm = max_margin(x, y)
    best, own = form_a(norm, svm.vector, x, y)[0], form_p(norm, svm.vector, x, y, svm.multipliers)
    result["ℓ2 solution"] = Control(min(best, own), best, separation(norm, Norm(norm.basis, 2.0), svm.vector))
    return result


def diagonal_bias(depth: int, seed: int, inputs: int = 16, points: int = 7) -> BiasRun:
    """Test a diagonal network for the ℓ_{2/L} norm (B2); the wrong basis is that of frequencies."""
    return measure_bias("diagonal", diagonal(inputs, depth), coordinates(inputs), frequencies(inputs), points, seed)


def circular_bias(depth: int, seed: int, inputs: int = 16, points: int = 7) -> BiasRun:
    """Test a full-width circular network for the Fourier ℓ_{2/L} norm (B3); the wrong basis is that of coordinates."""
    network = circular_convolution(inputs, depth)
    return measure_bias("circular", network, frequencies(inputs), coordinates(inputs), points, seed)


def group_bias(group: str, depth: int, seed: int) -> BiasRun:
    """Test a group-convolutional network for the weighted Schatten-2/L norm (B4).

    The wrong basis is that of another group of the same order: the cyclic one, or the dihedral one for C12.

    Parameters
    ----------
    group
        One of ``GROUPS``.
    depth, seed
        Number of layers; seed of points, labels and start. There are |G|/3 + 2 points, at most 20.
    """
    G = GROUPS[check_choice("group", group, GROUPS)]()
    other = Dihedral(G.order // 2) if isinstance(G, Cyclic) else Cyclic(G.order)
    points = min(G.order // 3 + 2, 20)
    return measure_bias(group, group_convolution(G, depth), irreducibles(G), irreducibles(other), points, seed)


def flow_alone(run: BiasRun) -> tuple[float, float]:
    """Return what the flow alone reaches: form P with its own multipliers, and by how many degrees β turns after it."""
    end, slack = run.trained, run.labels * (run.features @ run.trained.path[run.trained.handover])
    own = torch.softmax(-FLOW.cap * slack / slack.min(), 0)
    beta = end.path[end.handover]
    angle = torch.rad2deg(torch.arccos((beta @ end.direction).clamp(max=1)))
    return form_p(run.norm, beta, run.features, run.labels, own), float(angle)


def handover_difference(run: BiasRun, cap: float) -> float:
    """Return 1 − cos of the angle between a group network's end and the one with a handover at the loss e^−cap."""
    network = group_convolution(GROUPS[check_choice("run.name", run.name, GROUPS)](), run.depth)
    basis = run.norm.basis
    other = measure_bias(run.name, network, basis, basis, run.points, run.seed, replace(FLOW, cap=cap))
    return 1 - float(other.trained.direction @ run.trained.direction)


def group_biases(depths: Sequence[int] = (2, 3), seeds: Sequence[int] = (0,), deepest: int = 2) -> list[BiasRun]:
    """Run :func:`group_bias` for all ``GROUPS``, depths and seeds; the largest group up to depth ``deepest`` only."""
    if not len(check_instance("seeds", seeds, Sequence)):
        raise ValueError("seeds must hold at least one seed, got none")
    return [
        group_bias(name, depth, seed)
        for name in GROUPS
        for depth in depths
        for seed in seeds
        if name != LARGE or depth <= deepest
    ]
