"""Augmentation versus equivariance: gradients on E, invariance of E, stationary points (claims A1 and A2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, seeded
from lib.experiments.augmentation_tasks import Settings, digit_images, haar_law, published_law
from lib.images.datasets import block_graphs, simple_shapes
from lib.symmetry.actions import natural, trivial
from lib.symmetry.groups import Symmetric
from lib.training.augmented_descent import NOMINAL, Strategy, Task, augmented, gradient, train, views
from lib.training.networks import (
    IMAGE_GROUPS,
    Architecture,
    Network,
    Space,
    classifier_network,
    graph_network,
    image_representation,
    mask_network,
    uneven,
)

# --- A1: gradients on E ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientCheck:
    """The three gradients at one equivariant network; differences are largest entries.

    Attributes
    ----------
    name : str
        The network.
    order : int
        Number of group elements averaged over.
    difference : float
        Largest difference among ∇R^aug, ∇R^eqv and Π∇R.
    scale : float
        Largest entry of Π∇R.
    nominal_difference : float
        Largest entry of ∇R − Π∇R: what the projection removes.
    """

    name: str
    order: int
    difference: float
    scale: float
    nominal_difference: float


TOY_TASKS = ("perm", "rot", *IMAGE_GROUPS[1:])


def toy_task(name: str, seed: int, uneven_activation: bool = False, samples: int = 12, side: int = 8) -> Task:
    """Return a small task in float64 whose group is short enough to be summed over.

    Parameters
    ----------
    name
        One of ``TOY_TASKS``: 6-node graphs under S_6 (4 nodes if ``side`` < 8), shapes under quarter turns, digits
        under the other groups.
    seed
        Seed of the data.
    uneven_activation
        Replace the first nonlinearity by one that is not equivariant.
    samples, side
        Number of samples and pixels per side.
    """
    check_choice("name", name, TOY_TASKS)
    if name == "perm":
        nodes = 6 if side >= 8 else 4
        network, data = graph_network(nodes, 4, 6, 4), block_graphs(samples, nodes, across=0.3, seed=seed)
    elif name == "rot":
        network, data = mask_network(side, (4, 3)), simple_shapes(samples, side, seed)
    else:
        network = classifier_network(name, side, 3)
        data = digit_images(samples, side, seed)
    if uneven_activation:
        changed = replace(network.architecture, activations=(uneven, *network.architecture.activations[1:]))
        network = Network(changed)
    return Task(network, *data, batch=samples)


def compare_gradients(
    name: str, seed: int = 0, uneven_activation: bool = False, off_start: float = 0.0, law: str = "haar"
) -> GradientCheck:
    """Compare ∇R^aug, ∇R^eqv and Π∇R at a random network (Proposition 1).

    Parameters
    ----------
    name, seed, uneven_activation
        As in :func:`toy_task`.
    off_start
        Size of a random displacement of the layers out of E, relative to each layer; for the control.
    law
        ``"haar"``, or ``"published"`` for the executed law of the published sampler.
    """
    task = toy_task(name, seed, uneven_activation)
    network = task.network
    theta = network.start(1, seed, torch.float64)
    maps = network.embed(theta)
    if off_start:
        generator = seeded(seed)
        noise = [torch.randn(a.shape, generator=generator, dtype=a.dtype) for a in maps]
        maps = [a + off_start * a.norm() / b.norm() * b for a, b in zip(maps, noise, strict=True)]
    nu = haar_law(network) if law == "haar" else published_law(name, network)
    aug = gradient(task, maps, views(task, augmented(nu), [], 4096))[1]
    nominal = gradient(task, maps, views(task, NOMINAL, [], 4096))[1]
    projected = network.project(nominal)
    eqv = network.embed(equivariant_gradient(task, network.coordinates(maps)))
    pairs = ((aug, projected), (eqv, projected), (aug, eqv))
    return GradientCheck(
        name,
        nu.support,
        max(_gap(a, b) for a, b in pairs),
        max(float(p.abs().max()) for p in projected),
        _gap(nominal, projected),
    )


def equivariant_gradient(task: Task, theta: Sequence[Tensor]) -> list[Tensor]:
    """Return the reduced coordinates of ∇R^eqv at A(θ) ∈ E, differentiated through the reduced network itself."""
    sums = gradient(task, theta, views(task, NOMINAL, [], 4096))[1]
    return [g / layer.mean.sizes.to(g) for g, layer in zip(sums, task.network.layers, strict=True)]


def _gap(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class GradientChecks:
    """Claim A1 on every network, and what the same code gives where an assumption fails.

    Attributes
    ----------
    checks : list of GradientCheck
        One per network and seed.
    controls : dict of str to GradientCheck
        An uneven nonlinearity, a start off E, and a law that is not Haar measure.
    """

    checks: list[GradientCheck]
    controls: dict[str, GradientCheck]

    @property
    def largest(self) -> float:
        """Largest difference over networks and seeds."""
        return max(check.difference for check in self.checks)


def check_gradients(settings: Settings) -> GradientChecks:
    """Settle A1: compare the three gradients on the networks of all five groups."""
    seeds = settings.independent()
    checks = [compare_gradients(name, seed) for name in TOY_TASKS for seed in seeds]
    controls = {
        "nonlinearity not equivariant": compare_gradients("rot", seeds[0], uneven_activation=True),
        "start off E": compare_gradients("rot", seeds[0], off_start=0.1),
        "law not Haar": compare_gradients("rot", seeds[0], law="published"),
    }
    return GradientChecks(checks, controls)


# --- A2: invariance of E, stationary points --------------------------------------------------------------------------


@dataclass(frozen=True)
class DriftRun:
    """Distance from E along one long run with the whole group (or a control).

    Attributes
    ----------
    name : str
        Task and variant.
    drift : Tensor
        ‖A_{E^⊥}‖ after every step, shape ``(steps + 1, runs)``.
    moved : float
        Median final ‖A − A⁰‖.
    risk : tuple of float
        Median risk at the first and the last step.
    """

    name: str
    drift: Tensor
    moved: float
    risk: tuple[float, float]


FLOW_RATES = {"perm": 0.02, "rot": 0.005, "row shifts": 0.005, "translations": 0.01, "motions": 0.01}


def follow_flow(
    name: str,
    runs: int,
    steps: int = 200,
    rate: float | None = None,
    dtype: torch.dtype = torch.float64,
    law: str = "haar",
    uneven_activation: bool = False,
    seed: int = 0,
    put_back: bool = False,
) -> DriftRun:
    """Train from a start in E on the risk averaged exactly over a law, and record the distance from E.

    At some starts E is unstable, or so strongly curved across that much shorter steps overshoot too: rounding grows.
    What the risk itself does is seen with ``put_back``: how far the steps lead out of E, each begun exactly there.

    Parameters
    ----------
    name, uneven_activation
        As in :func:`toy_task`, on 4 × 4 images and 4-node graphs.
    runs, steps, dtype
        Independent starts, steps, floating-point type.
    rate
        Step size; by default that of ``FLOW_RATES``, small enough for the steps to follow the flow. Larger steps
        amplify rounding: directions out of E in which R^aug is strongly curved make descent unstable there.
    law
        ``"haar"``, ``"published"``, or ``"none"`` for nominal training.
    seed
        Seed of data and starts.
    put_back
        Project the layers onto E after every step, and record the sum of the distances that this took away.
    """
    check_choice("law", law, ("haar", "published", "none"))
    task = toy_task(name, seed, uneven_activation, samples=8, side=4).to(dtype)
    network = task.network
    laws = {"haar": haar_law(network), "published": published_law(name, network)}
    strategy = NOMINAL if law == "none" else augmented(laws[law])
    step = FLOW_RATES[name] if rate is None else check_float("rate", rate, minimum=0.0)
    start = network.start(runs, seed, dtype)
    if put_back:
        drift, distance, risk = _train_in_e(task, start, strategy, steps, step)
    else:
        history = train(task, start, strategy, steps, step)
        drift, distance, risk = history.drift, history.distance[-1], history.risk
    return DriftRun(name, drift, float(distance.median()), (float(risk[0].median()), float(risk[-1].median())))


def _train_in_e(
    task: Task, start: Sequence[Tensor], strategy: Strategy, steps: int, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the summed distances that the steps led out of E, the final distance from the start, and the risks."""
    network = task.network
    maps = first = network.embed(start)
    risks, pushes = [], [torch.zeros(len(maps[0]), dtype=torch.float64)]
    for _ in range(steps):
        risk, slope = gradient(task, maps, views(task, strategy, [], 4096))
        risks.append(risk)
        pushes.append(rate * network.off(slope).double().norm(dim=1))
        maps = network.project([a - rate * g for a, g in zip(maps, slope, strict=True)])
    moved = torch.stack([(a - b).flatten(1).norm(dim=1) for a, b in zip(maps, first, strict=True)])
    return torch.stack(pushes).cumsum(0), moved.norm(dim=0), torch.stack(risks)


@dataclass(frozen=True)
class StationaryPoint:
    """A point of E where one of the two gradients vanishes, examined with the other.

    Attributes
    ----------
    found_by : str
        ``"equivariant"`` or ``"augmented"``: whose descent found it.
    name : str
        The task.
    own, other, nominal : float
        Norms of the gradient that found it, of the other one, and of the nominal one (the control).
    difference : float
        Largest entry of ∇R^aug − ∇R^eqv.
    off : float
        Distance of the point from E, relative to its norm.
    """

    found_by: str
    name: str
    own: float
    other: float
    nominal: float
    difference: float
    off: float


POINT_TASKS = ("permutations", "rotations")


def point_task(name: str, seed: int, samples: int = 100) -> Task:
    """Return a task whose minima do not interpolate: Gaussian inputs, soft noisy labels in (0, 1).

    Parameters
    ----------
    name
        ``"permutations"``: S_3 on R³; ``"rotations"``: on 2 × 2 images.
    seed
        Seed of the data.
    samples
        Number of samples.
    """
    check_choice("name", name, POINT_TASKS)
    V = natural(Symmetric(3)) if name == "permutations" else image_representation(name, 2)
    one = trivial(V.group)
    spaces = (Space(1, V), Space(1, V), Space(1, one))
    network = Network(Architecture(spaces, ("tanh", "none"), (False, False), (1.0, 1.0), "binary", centre=0.0))
    generator = seeded(seed)
    x = torch.randn(samples, 1, V.dim, generator=generator, dtype=torch.float64)
    score = x[:, 0].sin().sum(-1) + 0.5 * x[:, 0, 0] + torch.randn(samples, generator=generator, dtype=torch.float64)
    return Task(network, x, torch.sigmoid(score), samples)


def find_stationary_point(name: str, found_by: str, seed: int = 0, decay: float = 0.01) -> StationaryPoint:
    """Minimise one of the two risks from a start in E to rounding; evaluate the gradient of the other (Corollary 2).

    All risks, the nominal one too, get the term κ‖A‖²/2, which ρ(g) does not change. Without it a risk need not have
    a minimum: at 6 of 68 data sets the search found no stationary point (the weights seem to grow for ever).

    Parameters
    ----------
    name, seed
        As in :func:`point_task`; the seed is that of the start too.
    found_by
        ``"equivariant"`` minimises R over E in orthonormal coordinates, ``"augmented"`` minimises R^aug over all
        layers.
    decay
        κ > 0.
    """
    check_choice("found_by", found_by, ("equivariant", "augmented"))
    task = point_task(name, seed)
    network, start = task.network, task.network.start(1, seed, torch.float64)
    average = augmented(haar_law(network))

    def risk(parameters: Sequence[Tensor], strategy: Strategy) -> Tensor:
        pieces = views(task, strategy, [], 4096)
        return sum((network.losses(parameters, v.x, v.y) * v.weights).sum() for v in pieces)

    def decayed(parameters: list[Tensor]) -> Tensor:
        return 0.5 * decay * sum(p.square().sum() for p in parameters)

    if found_by == "equivariant":
        roots = [layer.mean.sizes.double().sqrt() for layer in network.layers]
        scaled = [t * r for t, r in zip(start, roots, strict=True)]
        scaled = _minimise(lambda p: risk([a / r for a, r in zip(p, roots, strict=True)], NOMINAL) + decayed(p), scaled)
        maps = network.embed([a / r for a, r in zip(scaled, roots, strict=True)])
    else:
        maps = _minimise(lambda p: risk(p, average) + decayed(p), network.embed(start))
    inside = network.coordinates(maps)
    eqv = _plus(network.embed(equivariant_gradient(task, inside)), decay, network.embed(inside))
    aug = _plus(gradient(task, maps, views(task, average, [], 4096))[1], decay, maps)
    nominal = _plus(gradient(task, maps, views(task, NOMINAL, [], 4096))[1], decay, maps)
    own, other = (eqv, aug) if found_by == "equivariant" else (aug, eqv)
    off = float(network.off(maps).norm()) / _norm(maps)
    return StationaryPoint(found_by, name, _norm(own), _norm(other), _norm(nominal), _gap(aug, eqv), off)


def _plus(gradients: Sequence[Tensor], decay: float, parameters: Sequence[Tensor]) -> list[Tensor]:
    return [g + decay * p for g, p in zip(gradients, parameters, strict=True)]


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum()) for t in tensors))


def _minimise(f: Callable[[list[Tensor]], Tensor], start: Sequence[Tensor], steps: int = 200) -> list[Tensor]:
    """Descend f along −|H|⁻¹∇f with step halving, then take plain Newton steps down to rounding.

    H is the Hessian and |H| has the absolute values of its eigenvalues. Where ∇f lies in E and H is block diagonal,
    as for R^aug on E, every step stays in E up to rounding, also where H has negative eigenvalues on E^⊥.
    """
    shapes = [t.shape for t in start]

    def value(vector: Tensor) -> Tensor:
        parts = vector.split([s.numel() for s in shapes])
        return f([part.reshape(s) for part, s in zip(parts, shapes, strict=True)])

    slope, curvature = torch.func.grad(value), torch.func.hessian(value)
    x = torch.cat([t.flatten() for t in start])
    for _step in range(steps):
        g, (eigenvalues, vectors) = slope(x), torch.linalg.eigh(curvature(x))
        polish = float(g.norm()) < 1e-5
        scale = eigenvalues if polish else eigenvalues.abs().clamp(min=1e-4)
        inverse = torch.where(scale.abs() > 1e-8, 1 / scale, 0.0)
        direction = -vectors @ (inverse * (vectors.mT @ g))
        length = 1.0
        while (
            not polish and length > 1e-6 and value(x + length * direction) > value(x) + 1e-4 * length * (g @ direction)
        ):
            length /= 2
        x = x + length * direction
        if polish and float(g.norm()) < 1e-14:
            break
    return [part.reshape(s) for part, s in zip(x.split([s.numel() for s in shapes]), shapes, strict=True)]


@dataclass(frozen=True)
class InvarianceChecks:
    """Claim A2.

    Attributes
    ----------
    pushes : list of DriftRun
        What exact augmentation in float64 leads out of E, added up over long runs, one per task.
    flow, single_precision : DriftRun
        One of these runs without being put back onto E, in float64 and in float32.
    amplified : tuple of DriftRun
        A larger step, in float64 and float32: rounding grows by the same factor in both. An illustration at three
        fixed starts (those of seed 0): at most others nothing overshoots.
    controls : dict of str to DriftRun
        The same as ``pushes`` for nominal training, an executed law that is not Haar, and a nonlinearity that is not
        equivariant.
    points : list of StationaryPoint
        Points found by either descent.
    """

    pushes: list[DriftRun]
    flow: DriftRun
    single_precision: DriftRun
    amplified: tuple[DriftRun, DriftRun]
    controls: dict[str, DriftRun]
    points: list[StationaryPoint]

    @property
    def drift(self) -> float:
        """Largest distance that a run was led out of E, over tasks and runs."""
        return max(float(run.drift.max()) for run in self.pushes)

    @property
    def stationary_difference(self) -> float:
        """Largest entry of ∇R^aug − ∇R^eqv, and largest norm of either, over the stationary points."""
        return max(max(point.difference, point.own, point.other) for point in self.points)


def check_invariance(settings: Settings, steps: int = 150) -> InvarianceChecks:
    """Settle A2: long exact runs on every task, and stationary points of either flow examined with the other."""
    runs, seeds = settings.seeds, settings.independent()
    first = seeds[0]
    pushes = [follow_flow(name, runs, steps, seed=first, put_back=True) for name in TOY_TASKS]
    flow, single = (
        follow_flow("rot", runs, steps, None, dtype, seed=first) for dtype in (torch.float64, torch.float32)
    )
    amplified = tuple(follow_flow("translations", 3, steps, 0.02, dtype) for dtype in (torch.float64, torch.float32))
    controls = {
        "nominal training": follow_flow("rot", runs, steps, law="none", seed=first, put_back=True),
        "law not Haar": follow_flow("rot", runs, steps, law="published", seed=first, put_back=True),
        "nonlinearity not equivariant": follow_flow(
            "rot", runs, steps, uneven_activation=True, seed=first, put_back=True
        ),
    }
    points = [
        find_stationary_point(name, found_by, seed)
        for name in POINT_TASKS
        for found_by in ("equivariant", "augmented")
        for seed in seeds
    ]
    return InvarianceChecks(pushes, flow, single, amplified, controls, points)
