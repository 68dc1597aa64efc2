"""Chapter *Architecture discovery*: does growing a subspace find the parameters that a group leaves fixed? (M9).

Two units: the source's logistic one on R² with C_2, its population gradients by a Gauss–Hermite rule; and erf on R^d
for any group that acts by permutations or signed permutations, its population gradients in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, seeded
from lib.symmetry.actions import natural, pixels, planar, regular
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import invariant_dimension, projection
from lib.symmetry.representations import Hom, Representation
from lib.training.discovery import (
    KAPPA,
    LOGISTIC,
    Discovery,
    Growth,
    Response,
    Velocity,
    discover,
    escaped,
    hermite_nodes,
    outputs,
    population_velocity,
    train_inside,
    velocity,
)

SCALE = 4.0  # standard deviation of the inputs
KINDS = ("SI", "WI", "free")
COEFFICIENTS = 0.5 * torch.tensor([[1, 0], [0.5, 1], [-0.5, 0.3], [0, -1], [0.7, 0.7]], dtype=torch.float64)
FREE = 0.5 * torch.tensor(
    [[-1, 0, 0, 0.5], [0.5, 1, 0, 1], [-0.5, 0.3, 1, 0], [0, -1, -0.5, 1], [0.7, -0.7, 0.5, 0.7]], dtype=torch.float64
)


def actions() -> dict[str, Representation]:
    """Return the actions on R^d whose conjugation action on R^{d×d} is studied."""
    return {
        "C2 on R^2": natural(Symmetric(2)),
        "S3 on R^3": natural(Symmetric(3)),
        "C4 on R^4": pixels(Cyclic(4), 2),
        "D4 on R^4": pixels(Dihedral(4), 2),
        "C4 on the plane": planar(Cyclic(4)),
        "S3 on R^6": regular(Symmetric(3)),
        "D4 on R^8": regular(Dihedral(4)),
    }


@dataclass(frozen=True)
class Settings:
    """Sizes of the chapter's experiments.

    Attributes
    ----------
    seed : int
        First of the independent seeds.
    seeds : int
        Discoveries with exact gradients per case; every seed has its own teacher (for C_2 with logistic units: the
        source's teacher) and its own students.
    nodes : int
        Nodes per coordinate of the Gauss–Hermite rule.
    repeats : int
        Discoveries with stochastic gradients per case of the source's setting.
    """

    seed: int = 0
    seeds: int = 10
    nodes: int = 20
    repeats: int = 24

    def __post_init__(self) -> None:
        for name in ("seeds", "repeats"):
            check_int(name, getattr(self, name))
        check_int("seed", self.seed, minimum=0)
        check_int("nodes", self.nodes, minimum=4, maximum=64)


@dataclass(frozen=True)
class Run:
    """A discovery next to what it should have found.

    Attributes
    ----------
    discovery : Discovery
        What was found, per seed.
    dimension : int
        dim E^G by the character formula.
    target : Tensor
        The orthogonal projection onto E^G.
    """

    discovery: Discovery
    dimension: int
    target: Tensor

    @property
    def angles(self) -> Tensor:
        """Largest principal angle to E^G per seed, π/2 where the dimensions differ."""
        return self.discovery.angles(self.target)

    def stopped(self, threshold: float) -> Run:
        """Return the run with a larger threshold, see :meth:`lib.training.discovery.Discovery.stopped`."""
        return replace(self, discovery=self.discovery.stopped(threshold))

    @property
    def wrong(self) -> int:
        """Number of seeds with another dimension than E^G."""
        return int((self.discovery.dimensions != self.dimension).sum())

    @property
    def smallest_escape(self) -> float:
        """The smallest escape at which a subspace still grew, over all rounds and seeds (NaN if none did)."""
        escapes = self.discovery.escapes
        grew = torch.arange(len(escapes))[:, None] < escapes.isfinite().sum(0) - 1
        return float(escapes[grew].min()) if grew.any() else float("nan")

    @property
    def last_escape(self) -> float:
        """The largest escape at which growth stopped, over all seeds."""
        escapes = self.discovery.escapes
        return float(escapes.gather(0, escapes.isfinite().sum(0)[None] - 1).max())


def _run(discovery: Discovery, action: Representation) -> Run:
    hom = Hom(action, action)
    return Run(discovery, invariant_dimension(hom), projection(hom).matrix())


def draw_teachers(action: Representation, kind: str, seeds: int, units: int = 0, seed: int = 0) -> Tensor:
    """Return one random teacher per seed, shape ``(seeds, M, d²)``.

    Parameters
    ----------
    action
        The group on R^d.
    kind
        ``"SI"``: units in E^G; ``"WI"``: free units and all their images; ``"free"``: no symmetry.
    seeds
        Number of teachers.
    units
        Units before images are taken; 0 stands for max(5, dim E^G + 2).
    seed
        Seed of the generator.
    """
    check_choice("kind", kind, KINDS)
    hom, generator = Hom(action, action), seeded(seed)
    count = check_int("units", units, minimum=0) or max(5, invariant_dimension(hom) + 2)
    z = torch.randn(check_int("seeds", seeds), count, hom.dim, generator=generator, dtype=torch.float64)
    if kind == "SI":
        z = z @ projection(hom).matrix()
    length = 0.3 + 1.2 * torch.rand(seeds, count, 1, generator=generator, dtype=torch.float64)
    z = torch.nn.functional.normalize(z, dim=-1) * length
    if kind == "WI":
        z = torch.einsum("gij,snj->sgni", hom.matrix(action.group.elements()), z).flatten(1, 2)
    return z


def grow(action: Representation, teachers: Tensor, growth: Growth, start: Tensor | None = None, seed: int = 0) -> Run:
    """Run the heuristic with exact population gradients, erf units, and inputs N(0, 16·1).

    Parameters
    ----------
    action
        The group on R^d; it decides what the result is compared with, and nothing else.
    teachers
        One per seed, shape ``(seeds, M, d²)``.
    growth
        Settings.
    start
        Orthonormal basis of E_0, shape ``(k, d²)``; by default E_0 = {0}.
    seed
        Seed of the students' starts and noise.
    """
    exact = partial(population_velocity, teacher=teachers, inputs=action.dim, scale=SCALE)
    return _run(discover(exact, _start(start, teachers), growth, seeded(seed)), action)


def _start(basis: Tensor | None, teachers: Tensor) -> Tensor:
    basis = teachers.new_zeros(0, teachers.shape[-1]) if basis is None else basis
    return basis.expand(len(teachers), *basis.shape)


def identity_and_ones(d: int) -> Tensor:
    """Return an orthonormal basis of span(1, J), the matrices that commute with all permutations, shape ``(2, d²)``."""
    check_int("d", d, minimum=2)
    one, rest = torch.eye(d, dtype=torch.float64), 1 - torch.eye(d, dtype=torch.float64)
    return torch.stack([m.flatten() / m.norm() for m in (one, rest)])


def balanced_teachers(action: Representation, seeds: int, units: int = 6, seed: int = 0) -> Tensor:
    """Return strongly invariant teachers that no student at zero can feel, shape ``(seeds, units, d²)``.

    For a group that is transitive on coordinates the velocity of all units at zero is proportional to the sum over
    teacher units of b = z / √(1 + κ²s²‖z‖²/d) (rows of z ∈ E^G have equal lengths); the last unit is chosen such that
    this sum vanishes.
    """
    z = draw_teachers(action, "SI", seeds, check_int("units", units, minimum=2) - 1, seed)
    c = (KAPPA * SCALE) ** 2 / action.dim
    b = z / (1 + c * z.square().sum(-1, keepdim=True)).sqrt()
    last = -b.sum(1, keepdim=True)
    shrink = (0.9 / (c**0.5 * last.norm(dim=-1, keepdim=True))).clamp(max=1.0)  # for √c‖b‖ < 1, the range of z ↦ √c b
    b = torch.cat([b, last], 1) * shrink
    return b / (1 - c * b.square().sum(-1, keepdim=True)).sqrt()


def perturbed(action: Representation, sizes: Sequence[float], growth: Growth, seeds: int, seed: int = 0) -> list[Run]:
    """Run the heuristic for strongly invariant teachers plus ``size`` times free ones, a dial that breaks symmetry."""
    kept, free = (draw_teachers(action, kind, seeds, seed=seed) for kind in ("SI", "free"))
    free = free * kept.norm() / free.norm()
    sums = [kept + check_float("sizes", size, minimum=0.0) * free for size in sizes]
    return [grow(action, teachers, growth, seed=seed) for teachers in sums]


# --- the source's setting: logistic units, C2 on R^2 ---


def source_teacher(kind: str) -> Tensor:
    """Return the teacher of the source's experiment, shape ``(M, 4)``; kinds as in :func:`draw_teachers`."""
    check_choice("kind", kind, KINDS)
    if kind == "SI":
        basis = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]], dtype=torch.float64) / 2**0.5
        return COEFFICIENTS @ basis
    return FREE if kind == "free" else torch.cat([FREE, FREE.flip(-1)])  # conjugation by the swap reverses 2 × 2


def source_exact(kind: str, growth: Growth, seeds: int, nodes: int = 20, seed: int = 0) -> Run:
    """Run the heuristic on the source's teacher with the risk of a Gauss–Hermite rule, seeds being students' starts."""
    x, w = hermite_nodes(2, nodes, SCALE)
    return _on_points(x, source_teacher(kind), growth, seeds, seed, w)


def source_sample(kind: str, growth: Growth, seeds: int, points: int, symmetrised: bool, seed: int = 0) -> Run:
    """Run the heuristic on one finite sample of inputs, the same in all steps, as it is or together with its images."""
    x = SCALE * torch.randn(check_int("points", points), 2, generator=seeded(seed), dtype=torch.float64)
    return _on_points(torch.cat([x, x.flip(-1)]) if symmetrised else x, source_teacher(kind), growth, seeds, seed)


def _on_points(x: Tensor, teacher: Tensor, growth: Growth, seeds: int, seed: int, weights: Tensor | None = None) -> Run:
    teachers = teacher.expand(check_int("seeds", seeds), -1, -1)
    y = outputs(teacher[None], x, LOGISTIC)
    field = partial(velocity, x=x, y=y, response=LOGISTIC, weights=weights)
    found = discover(field, _start(None, teachers), growth, seeded(seed))
    return _run(found, actions()["C2 on R^2"])


def minibatches(
    teachers: Tensor,
    inputs: int,
    batch: int,
    response: Response = LOGISTIC,
    images: Tensor | None = None,
    seed: int = 0,
) -> Velocity:
    """Return the velocity field that draws ``batch`` new inputs N(0, 16·1) per call and seed.

    Parameters
    ----------
    teachers
        One per seed, shape ``(seeds, M, q·p)``.
    inputs
        p.
    batch
        Points per call.
    response
        σ of teachers and students.
    images
        Matrices ρ(g) on inputs, shape ``(|G|, p, p)``; every batch is then used together with all its images. The
        teachers label the images, which is right for equivariant ones.
    seed
        Seed of the inputs.
    """
    generator = seeded(seed)
    shape = (len(teachers), check_int("batch", batch), check_int("inputs", inputs))

    def field(z: Tensor) -> Tensor:
        x = SCALE * torch.randn(shape, generator=generator, dtype=z.dtype)
        if images is not None:
            x = torch.einsum("gij,sbj->sgbi", images, x).flatten(1, 2)
        return velocity(z, x, outputs(teachers, x, response), response)

    return field


def grow_stochastic(
    action: Representation,
    teachers: Tensor,
    growth: Growth,
    batch: int,
    response: Response = LOGISTIC,
    with_images: bool = False,
    seed: int = 0,
) -> Run:
    """Run the heuristic with minibatch gradients, of batches as drawn or completed by all images of their points.

    The other arguments are those of :func:`grow` and :func:`minibatches`.
    """
    images = action.matrix(action.group.elements()) if with_images else None
    field = minibatches(teachers, action.dim, batch, response, images, seed)
    return _run(discover(field, _start(None, teachers), growth, seeded(seed + 1)), action)


def tilted_escapes(
    action: Representation, teachers: Tensor, angles: Sequence[float], growth: Growth, seed: int = 0
) -> Tensor:
    """Return how far particles leave E^G turned by some angles, with exact gradients, shape ``(angles, seeds)``.

    Every seed has its own random rotation: an orthonormal basis b_i of E^G becomes that of span(b_i + tan(α) n_i), with
    n_i orthogonal to E^G and the norm of the matrix with rows n_i equal to one; α is the largest principal angle.
    """
    frame, generator = projection(Hom(action, action)).basis(), seeded(seed)
    n = torch.randn(len(teachers), *frame.shape, generator=generator, dtype=torch.float64)
    n = n - n @ frame.mT @ frame
    n = n / torch.linalg.matrix_norm(n, ord=2)[:, None, None]
    exact = partial(population_velocity, teacher=teachers, inputs=action.dim, scale=SCALE)
    rows = []
    for angle in angles:
        turned = torch.linalg.qr((frame + math.tan(check_float("angles", angle, 0.0, 1.5)) * n).mT)[0]
        P = turned @ turned.mT
        rows.append(escaped(train_inside(exact, P, growth, seeded(seed + 1)), P))
    return torch.stack(rows)


def success(run: Run, tolerance: float = 0.1) -> tuple[int, int, float, float]:
    """Return successes, runs, and the exact 95 % interval (Clopper, Pearson 1934) of the success rate.

    A run succeeds if the dimension is right and the largest principal angle at most ``tolerance``.
    """
    from scipy.stats import binomtest

    check_float("tolerance", tolerance, minimum=0.0)
    good = int((run.angles <= tolerance).sum())
    interval = binomtest(good, len(run.angles)).proportion_ci(0.95, method="exact")
    return good, len(run.angles), float(interval.low), float(interval.high)


def source_round(
    inside: int, growth: Growth, batch: int | None = None, seeds: int = 1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Train for one round on the source's SI teacher.

    Parameters
    ----------
    inside
        Where particles start: 0 for {0}; 1 for the line E_1 along the exact velocity at zero; 2 for E^G.
    growth
        Settings of a round.
    batch
        Points per step; ``None`` for exact gradients.
    seeds
        Number of runs.
    seed
        Seed of the starts, the noise and the batches.

    Returns
    -------
    tuple of Tensor
        The projection P onto the subspace, shape ``(4, 4)``, and the particles at the end, shape ``(seeds, N, 4)``.
    """
    check_choice("inside", inside, (0, 1, 2))
    action, teacher = actions()["C2 on R^2"], source_teacher("SI")
    x, w = hermite_nodes(2, 20, SCALE)
    field = partial(velocity, x=x, y=outputs(teacher[None], x, LOGISTIC), response=LOGISTIC, weights=w)
    P = torch.zeros(4, 4, dtype=torch.float64)
    if inside == 1:
        line = torch.nn.functional.normalize(field(P[None, :1])[0], dim=-1)
        P = line.T @ line
    elif inside == 2:
        P = projection(Hom(action, action)).matrix()
    if batch is not None:
        field = minibatches(teacher.expand(check_int("seeds", seeds), -1, -1), 2, batch, seed=seed)
    return P, train_inside(field, P.expand(seeds, 4, 4), growth, seeded(seed + 2))
