"""Chapter *Mean-field dynamics*: one training seen as a particle cloud, as an ensemble, and as augmentation (M10).

The units are c·tanh(a·x) on digits of 8 × 8 pixels, with a group that moves the pixels; a network is the mean of its
units, so its parameters are a law μ of pairs z = (a, c). Every scheme moves each unit by −h D_μ R(μ, z), that is, by
−h times (number of units) times the ordinary gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, seeded
from lib.images.bundled import digits
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.symmetry.representations import Representation
from lib.training.risks import gradient

LOSSES = ("mean", "average", "apart")
STARTS = ("free", "orbits", "incomplete")
SIZE = 8


@dataclass(frozen=True)
class Settings:
    """Data, network and training.

    Attributes
    ----------
    group : FiniteGroup
        ``Cyclic(4)`` or ``Dihedral(4)``, moving the pixels.
    pair : tuple of int
        The two digits to be told apart.
    points : int
        Training images; up to 100 others test.
    units : int
        Units m of one small network.
    rate, steps : float, int
        The step h of one unit, and the number of steps.
    seeds : int
        Independent starts, one batch.
    seed : int
        Seed of that batch.
    """

    group: FiniteGroup = field(default_factory=lambda: Cyclic(4))
    pair: tuple[int, int] = (6, 8)
    points: int = 30
    units: int = 6
    rate: float = 0.1
    steps: int = 100
    seeds: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("group", self.group, [Cyclic(4), Dihedral(4)])
        for digit in self.pair:
            check_int("pair", digit, minimum=0, maximum=9)
        if len(self.pair) != 2 or self.pair[0] == self.pair[1]:
            raise ValueError(f"pair must hold two different digits, got {self.pair}")
        for name in ("points", "units", "steps", "seeds"):
            check_int(name, getattr(self, name))
        check_int("seed", self.seed, minimum=0)
        check_float("rate", self.rate, minimum=1e-6)


@dataclass(frozen=True)
class Problem:
    """The data, moved by every group element, and the unit.

    Attributes
    ----------
    action : Representation
        ρ on images; the labels ±1 do not move.
    x, test_x : Tensor
        Moved images ρ(g)x, shapes ``(|G|, n, 64)`` and ``(|G|, n', 64)``.
    y, test_y : Tensor
        Labels −1 and 1, shapes ``(n,)`` and ``(n',)``.
    mask : Tensor
        Factors on the pixels inside the unit, c·tanh(a·(mask ∘ x)); other than constant they spoil joint equivariance.
    elements : list of int
        Numbers of the group elements used in training, all of them unless augmentation is partial.
    """

    action: Representation
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    mask: Tensor
    elements: list[int]

    def outputs(self, z: Tensor, x: Tensor) -> Tensor:
        """Return Φ_μ(x) for units z of shape ``(..., N, 65)`` and images ``(|G|, n, 64)``: ``(..., |G|, n)``."""
        a, c = z[..., :-1] * self.mask, z[..., -1:]
        hidden = torch.tanh(a @ x.flatten(0, 1).T)  # (..., N, |G|·n)
        return (c * hidden).mean(-2).unflatten(-1, x.shape[:2])

    def orbit(self, z: Tensor) -> Tensor:
        """Return M_g z = (ρ(g)a, c) for all g and units ``(..., N, 65)``: shape ``(..., |G|, N, 65)``."""
        a = self.action.apply(self.action.group.unsqueeze(self.action.group.elements(), z.ndim - 1), z[..., :-1])
        return torch.cat([a, z[..., -1:].expand(*a.shape[:-1], 1)], -1).movedim(0, -3)


def load(settings: Settings) -> Problem:
    """Return the digits of the settings with all their images under the group, and the jointly equivariant unit."""
    data, action = digits(), pixels(settings.group, SIZE)
    x, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    chosen = (y == settings.pair[0]) | (y == settings.pair[1])
    x, y = x[chosen], torch.where(y[chosen] == settings.pair[0], -1.0, 1.0).to(x)
    n = check_int("points", settings.points, maximum=len(x) - 1)
    moved = action.apply(settings.group.unsqueeze(settings.group.elements()), x)
    ones, everything = torch.ones(action.dim, dtype=torch.float64), list(range(settings.group.order))
    return Problem(action, moved[:, :n], y[:n], moved[:, n : n + 100], y[n : n + 100], ones, everything)


def skewed(problem: Problem) -> Problem:
    """Return the problem with a unit that is blind in one corner of the image: not jointly equivariant (a control)."""
    mask = torch.ones(SIZE, SIZE, dtype=torch.float64)
    mask[: SIZE // 2, : SIZE // 2] = 0.0
    return replace(problem, mask=mask.flatten())


def partial(problem: Problem) -> Problem:
    """Return the problem with half of the group elements in training, the identity among them (a control)."""
    return replace(problem, elements=problem.elements[: len(problem.elements) // 2])


def draw(settings: Settings, problem: Problem, start: str = "free") -> Tensor:
    """Return the orbit of one small network per seed, M_g θ: shape ``(seeds, |G|, m, 65)``, first the network itself.

    Parameters
    ----------
    settings, problem
        Sizes, and the action.
    start
        ``"free"``: independent Gaussian units; ``"orbits"``: units that are a union of orbits, so that their law is
        weakly invariant (m is rounded up to a multiple of |G|); ``"incomplete"``: as ``"free"``, but the last member
        is an independent draw instead of an image (a control).
    """
    check_choice("start", start, STARTS)
    generator = seeded(settings.seed)
    order, m = settings.group.order, settings.units
    count = -(-m // order) if start == "orbits" else m
    z = torch.randn(settings.seeds, count, problem.action.dim + 1, generator=generator, dtype=torch.float64)
    z[..., :-1] *= 0.5
    members = problem.orbit(problem.orbit(z).flatten(1, 2) if start == "orbits" else z)
    if start == "incomplete":
        members[:, -1, :, :-1] = 0.5 * torch.randn(members[:, -1, :, :-1].shape, generator=generator).to(members)
    return members


@dataclass(frozen=True)
class View:
    """One training.

    Attributes
    ----------
    symmetrised : Tensor
        Q_G f at the test images before the first step and after every one, shape ``(steps + 1, seeds, n')``.
    defect : Tensor
        max |f(ρ(g)x) − Q_G f(x)| over g and test images of the trained predictor f, shape ``(steps + 1, seeds)``.
    risk : Tensor
        Mean of ½(Q_G f − y)² over the *training* images, shape ``(steps + 1, seeds)``.
    test_error : Tensor
        Share of test images on the wrong side at the end, by Q_G f, shape ``(seeds,)``.
    """

    symmetrised: Tensor
    defect: Tensor
    risk: Tensor
    test_error: Tensor


def train(problem: Problem, members: Tensor, loss: str, rate: float, steps: int) -> View:
    """Train K members of N units each by gradient descent on all training images, moved by ``problem.elements``.

    Parameters
    ----------
    problem
        Data and unit.
    members
        Initial units, shape ``(seeds, K, N, 65)``. The predictor is f = the mean of the members' outputs.
    loss
        With the labels y and mean over images: ``"mean"`` ½|f(ρ(g)x) − y|², averaged over g; ``"average"``
        ½|mean over g of f(ρ(g)x) − y|²; ``"apart"`` every member's own ½|Φ(ρ(g)x) − y|², averaged over g.
    rate, steps
        Every unit moves by −rate × D_μ R(μ, z).
    """
    check_choice("loss", loss, LOSSES)
    scale = members.shape[2] * (1 if loss == "apart" else members.shape[1])
    x = problem.x[problem.elements]

    def risk(z: Tensor) -> Tensor:
        f = problem.outputs(z, x)  # (seeds, K, |G|, n)
        if loss == "apart":
            return 0.5 * (f - problem.y).square().mean((-2, -1)).sum(-1)
        f = f.mean(1)
        return 0.5 * ((f.mean(-2) if loss == "average" else f) - problem.y).square().flatten(1).mean(-1)

    seen = [_observe(problem, members)]
    for _ in range(check_int("steps", steps)):
        members = members - check_float("rate", rate) * scale * gradient(risk, members)
        seen.append(_observe(problem, members))
    symmetrised, defect, risks = (torch.stack(column) for column in zip(*seen, strict=True))
    error = (symmetrised[-1].sign() != problem.test_y).double().mean(-1)
    return View(symmetrised, defect, risks, error)


def _observe(problem: Problem, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    f = problem.outputs(members, problem.test_x).mean(1)  # (seeds, |G|, n')
    symmetrised = f.mean(1)
    fit = problem.outputs(members, problem.x).mean((1, 2))
    return symmetrised, (f - symmetrised[:, None]).abs().amax((1, 2)), 0.5 * (fit - problem.y).square().mean(-1)


def compare(
    settings: Settings, problem: Problem | None = None, start: str = "free", speed: float = 1.0
) -> dict[str, View]:
    """Train the same start in five ways.

    Parameters
    ----------
    settings
        Data, network and training.
    problem
        By default that of the settings; :func:`skewed` and :func:`partial` make controls.
    start
        See :func:`draw`.
    speed
        Factor on the rate of the *small* networks trained alone; other than 1 they run on another clock (a control).

    Returns
    -------
    dict of str to View
        ``particles``: one network of m|G| units, the union of the orbits, augmented. ``ensemble``: |G| members on an
        orbit, augmented, trained through their mean. ``averaged``: one network of m units, feature averaging in the
        loss. ``ensemble apart``: the members, each augmented by itself. ``augmented``: one network of m units,
        augmented; averaged only to be looked at.
    """
    check_float("speed", speed, minimum=0.0)
    problem = load(settings) if problem is None else problem
    members = draw(settings, problem, start)
    one, cloud = members[:, :1], members.flatten(1, 2)[:, None]
    h, steps = settings.rate, settings.steps
    return {
        "particles": train(problem, cloud, "mean", h, steps),
        "ensemble": train(problem, members, "mean", h, steps),
        "averaged": train(problem, one, "average", h * speed, steps),
        "ensemble apart": train(problem, members, "apart", h, steps),
        "augmented": train(problem, one, "apart", h * speed, steps),
    }


TOGETHER = ("particles", "ensemble", "averaged")
APART = ("ensemble apart", "augmented")


def disagreement(views: dict[str, View], names: Sequence[str]) -> Tensor:
    """Return the largest difference of symmetrised predictions among some views, shape ``(steps + 1, seeds)``."""
    for name in names:
        check_choice("names", name, views)
    predictions = torch.stack([views[name].symmetrised for name in names])
    return (predictions.amax(0) - predictions.amin(0)).amax(-1)


def gap(settings: Settings, sizes: Sequence[int]) -> Tensor:
    """Return how far training apart is from training together when one small network has m units.

    The gap is the root mean square over test images of Q_G f_apart − Q_G f_together at the end, shape
    ``(len(sizes), seeds)``; the two routes are one small network trained with augmentation and with feature averaging.
    """
    problem, rows = load(settings), []
    if not len(sizes):
        raise ValueError("sizes must hold at least one number of units, got none")
    for m in sizes:
        one = draw(replace(settings, units=m), problem)[:, :1]
        ends = [train(problem, one, k, settings.rate, settings.steps).symmetrised[-1] for k in ("apart", "average")]
        rows.append((ends[0] - ends[1]).square().mean(-1).sqrt())
    return torch.stack(rows)
