"""Chapter *Structure-preserving GANs*, exact part: divergences of laws on small finite sets (G1 and half of G3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int
from lib.page.parameters import independent_seeds
from lib.symmetry.actions import natural, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.representations import MatrixRepresentation, Representation
from lib.transport.discrete_divergences import FAMILIES, divergence, invariant_divergence
from lib.transport.finite_spaces import FiniteSpace, orbit_closure

SETTINGS = ("isometric", "anisotropic", "sheared")
ZERO = 1e-6  # a divergence below this is compared absolutely


@dataclass(frozen=True)
class Settings:
    """Size and shape of the games.

    Attributes
    ----------
    seeds, seed : int
        Random spaces and pairs of laws for every group, and which (:func:`~lib.page.parameters.independent_seeds`).
    starts : int
        Points whose orbits make up a space.
    concentration : float
        Parameter of the Dirichlet law of masses; below one, most mass sits on few points.
    lipschitz, bandwidth : float
        Lipschitz constant of the regularised divergences, width of the kernel.
    shear : float
        Shear of the broken action, and logarithm of the factor by which the broken metric stretches an axis.
    """

    seeds: int = 3
    starts: int = 5
    concentration: float = 0.5
    lipschitz: float = 0.5
    bandwidth: float = 0.7
    shear: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("seeds", self.seeds, maximum=100)
        check_int("seed", self.seed, minimum=0)
        check_int("starts", self.starts, minimum=2, maximum=20)
        for name in ("concentration", "lipschitz", "bandwidth"):
            check_float(name, getattr(self, name), minimum=1e-2, maximum=1e2)
        check_float("shear", self.shear, minimum=0.0, maximum=3.0)

    @property
    def each(self) -> list[int]:
        """The seeds of the repetitions."""
        return independent_seeds(self.seed, self.seeds)


@dataclass(frozen=True)
class Comparison:
    """Two values that a theorem says are equal, for one group and one family, shape ``(seeds,)`` each.

    Attributes
    ----------
    group, setting, family : str
        The group; one of ``SETTINGS``; one of ``FAMILIES``.
    everything : Tensor
        Supremum over all discriminators, for the symmetrised laws.
    invariant : Tensor
        Supremum over invariant discriminators.
    plain : Tensor
        Supremum over all discriminators for the laws as they are: the same as ``everything`` where they are invariant.
    """

    group: str
    setting: str
    family: str
    everything: Tensor
    invariant: Tensor
    plain: Tensor

    @property
    def gap(self) -> Tensor:
        """Difference of the two values, relative where they are not zero, shape ``(seeds,)``."""
        return relative_gap(self.everything, self.invariant)


def relative_gap(one: Tensor, other: Tensor) -> Tensor:
    """Return ``|one − other| / max(one, other)``, and the difference itself where both are below ``ZERO``."""
    size = torch.maximum(one, other)
    return (one - other).abs() / torch.where(size > ZERO, size, torch.ones_like(size))


def largest_gap(games: list[Comparison]) -> float:
    """Return the largest gap of all comparisons and seeds: what a theorem bounds."""
    return max(float(game.gap.max()) for game in games)


def smallest_gap(games: list[Comparison]) -> float:
    """Return the smallest gap of all comparisons and seeds: that of the control which comes closest to passing."""
    return min(float(game.gap.min()) for game in games)


def groups() -> dict[str, Representation]:
    """Return groups that act by isometries: on the line, on the plane, and by permutations of coordinates."""
    reflection = MatrixRepresentation(Cyclic(2), 1, lambda g: (1.0 - 2.0 * g.double())[..., None], "R^1")
    return {
        "C2 on the line": reflection,
        "C4 on the plane": planar(Cyclic(4)),
        "D4 on the plane": planar(Dihedral(4)),
        "S3 on coordinates": natural(Symmetric(3)),
    }


def sheared(representation: Representation, shear: float) -> Representation:
    """Return the action ``A ρ(g) A⁻¹`` with A = 1 + shear · (first row, second column): a group, but no isometries."""
    check_int("representation.dim", representation.dim, minimum=2)
    a = torch.eye(representation.dim, dtype=torch.float64)
    a[0, 1] = check_float("shear", shear)
    back = torch.linalg.inv(a)
    name = f"{representation.name}, sheared"
    return MatrixRepresentation(
        representation.group, representation.dim, lambda g: a @ representation.matrix(g) @ back, name, unitary=False
    )


def make_space(
    representation: Representation, setting: str, settings: Settings, rng: np.random.Generator
) -> FiniteSpace:
    """Return the orbits of a few Gaussian points.

    ``"isometric"``: the group acts by isometries. ``"anisotropic"``: distances, and with them the kernel, are taken
    after stretching the first axis, so that they are not invariant. ``"sheared"``: the action is conjugated by a shear,
    distances stay Euclidean.
    """
    check_choice("setting", setting, SETTINGS)
    starts = torch.from_numpy(rng.standard_normal((settings.starts, representation.dim)))
    if setting == "sheared":
        return orbit_closure(sheared(representation, settings.shear), starts)
    metric = torch.ones(representation.dim, dtype=torch.float64)
    metric[0] = torch.tensor(settings.shear if setting == "anisotropic" else 0.0).exp()
    return orbit_closure(representation, starts, metric.diag())


def random_laws(size: int, settings: Settings, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return two laws without symmetry on a set of some size, Dirichlet masses of shape ``(size,)``."""
    q, p = torch.from_numpy(rng.dirichlet(np.full(size, settings.concentration), 2))
    return q, p


def sector_law(space: FiniteSpace, settings: Settings, rng: np.random.Generator) -> Tensor:
    """Return a law that charges one point of every orbit, the one farthest along a fixed direction: one sector."""
    height = space.points @ torch.arange(space.points.shape[1], 0, -1, dtype=torch.float64)
    law = torch.zeros(space.size, dtype=torch.float64)
    for orbit, mass in enumerate(random_laws(space.orbits, settings, rng)[0]):
        law[torch.where(space.labels == orbit, height, -torch.inf).argmax()] = mass
    return law


# --- G1: invariant laws ----------------------------------------------------------------------------------------------


def check_theorem(settings: Settings, setting: str = "isometric") -> list[Comparison]:
    """Compare D^Γ and D^{Γ^inv} on invariant laws, for every group and family (Birrell et al. 2022, Theorem 1).

    Parameters
    ----------
    settings
        Size of the games.
    setting
        One of ``SETTINGS``, see :func:`make_space`; all but ``"isometric"`` break a hypothesis.
    """

    def laws(space: FiniteSpace, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        q, p = random_laws(space.size, settings, rng)
        return space.symmetrise_law(q), space.symmetrise_law(p)

    return _compare(settings, setting, laws)


# --- G3: laws without symmetry ---------------------------------------------------------------------------------------


def check_collapse(settings: Settings, setting: str = "isometric") -> list[Comparison]:
    """Compare D^{Γ^inv}(Q‖P) with D^Γ(S^Σ Q‖S^Σ P) on laws without symmetry; arguments as in :func:`check_theorem`."""
    return _compare(settings, setting, lambda space, rng: random_laws(space.size, settings, rng))


def check_sector(settings: Settings) -> list[Comparison]:
    """Do the same for a law P on one sector and Q = S^Σ P: both sides are zero, while D^Γ(Q‖P) is not."""

    def laws(space: FiniteSpace, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        p = sector_law(space, settings, rng)
        return space.symmetrise_law(p), p

    return _compare(settings, "isometric", laws)


def _compare(
    settings: Settings, setting: str, laws: Callable[[FiniteSpace, np.random.Generator], tuple[Tensor, Tensor]]
) -> list[Comparison]:
    """Return a comparison for every group and family; on the line nothing can be stretched or sheared."""
    check_choice("setting", setting, SETTINGS)
    games = []
    for number, (name, representation) in enumerate(groups().items()):
        if setting != "isometric" and representation.dim == 1:
            continue
        values = {family: [] for family in FAMILIES}
        for seed in settings.each:
            rng = np.random.default_rng([number, seed])
            space = make_space(representation, setting, settings, rng)
            q, p = laws(space, rng)
            for family in FAMILIES:
                values[family].append(_values(family, space, q, p, settings))
        games += [Comparison(name, setting, family, *torch.stack(rows).T) for family, rows in values.items()]
    return games


def _values(family: str, space: FiniteSpace, q: Tensor, p: Tensor, settings: Settings) -> Tensor:
    """Return D^Γ(S^Σ q‖S^Σ p), D^{Γ^inv}(q‖p) and D^Γ(q‖p); the last is the first where the laws are invariant."""
    widths = settings.lipschitz, settings.bandwidth
    given = torch.stack([q, p])
    even = space.symmetrise_law(given)
    pairs = even[None] if torch.allclose(even, given, rtol=1e-12, atol=0) else torch.stack([even, given])
    everything = divergence(family, space, pairs[:, 0], pairs[:, 1], *widths)
    return torch.stack([everything[0], invariant_divergence(family, space, q, p, *widths), everything[-1]])


# --- what the figures show -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CollapsePath:
    """Divergences while the generated law moves from one sector to all: shapes ``(families, seeds, times)``."""

    times: Tensor
    plain: Tensor
    invariant: Tensor


def collapse_path(settings: Settings, steps: int = 11, group: str = "C4 on the plane") -> CollapsePath:
    """Follow ``P_t = (1 − t) P + t S^Σ P`` with P on one sector, against Q = S^Σ P, for t from 0 to 1.

    The invariant discriminators see no difference at any t; the others see one until t = 1.
    """
    representation = groups()[check_choice("group", group, groups())]
    times = torch.linspace(0, 1, check_int("steps", steps, minimum=2), dtype=torch.float64)
    values = torch.zeros(2, len(FAMILIES), settings.seeds, steps, dtype=torch.float64)
    for row, seed in enumerate(settings.each):
        rng = np.random.default_rng([steps, seed])
        space = make_space(representation, "isometric", settings, rng)
        q = space.symmetrise_law(p := sector_law(space, settings, rng))
        path = torch.lerp(p, q, times[:, None])
        for side, route in enumerate((divergence, invariant_divergence)):
            for column, family in enumerate(FAMILIES):
                found = route(family, space, q.expand_as(path), path, settings.lipschitz, settings.bandwidth)
                values[side, column, row] = found
    return CollapsePath(times, *values)


@dataclass(frozen=True)
class ShearSweep:
    """How the equality of Theorem 1 is lost as the action stops being isometric.

    Attributes
    ----------
    shears : Tensor
        Shears, shape ``(shears,)``.
    ratio : Tensor
        D^{Γ^inv} over D^Γ for invariant laws, shape ``(families, seeds, shears)``.
    floor : Tensor
        One over the mean Lipschitz constant of the group's maps, shape ``(seeds, shears)``: W1 cannot fall below it.
    """

    shears: Tensor
    ratio: Tensor
    floor: Tensor


def shear_sweep(settings: Settings, shears: int = 6, group: str = "C4 on the plane") -> ShearSweep:
    """Compare D^Γ and D^{Γ^inv} while the action is sheared more and more, from none to twice ``settings.shear``.

    The starting points and the masses of their orbits stay, all other points move with the action.
    """
    representation = groups()[check_choice("group", group, groups())]
    if representation.dim < 2:
        raise ValueError(f"group must act on at least a plane to be sheared, got {group!r}")
    strengths = torch.linspace(0, 2 * settings.shear, check_int("shears", shears, minimum=2), dtype=torch.float64)
    ratio = torch.zeros(len(FAMILIES), settings.seeds, shears, dtype=torch.float64)
    floor = torch.zeros(settings.seeds, shears, dtype=torch.float64)
    widths = settings.lipschitz, settings.bandwidth
    for place, seed in enumerate(settings.each):
        rng = np.random.default_rng([shears, seed])
        starts = torch.from_numpy(rng.standard_normal((settings.starts, representation.dim)))
        masses = torch.stack(random_laws(settings.starts, settings, rng))
        for column, shear in enumerate(strengths.tolist()):
            space = orbit_closure(sheared(representation, shear), starts)
            q, p = masses[:, space.labels] / space.order
            for row, family in enumerate(FAMILIES):
                least, most = (f(family, space, q, p, *widths) for f in (invariant_divergence, divergence))
                ratio[row, place, column] = least / most
            floor[place, column] = 1 / space.distortion()
    return ShearSweep(strengths, ratio, floor)
