"""Chapter *Margins and augmentation*, third part: what a margin says about errors on new data (B12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_callable, check_float, check_int, seeded
from lib.experiments.margins_and_augmentation import augment, digit_pair
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic, FiniteGroup
from lib.symmetry.haar import projection
from lib.symmetry.representations import PermutationRepresentation, Representation
from lib.training.margins import invariant_max_margin, max_margin

CHANNELS, LENGTH = 4, 64  # of the synthetic signals


@dataclass(frozen=True)
class LabelledLaw:
    """A law of labelled points with an invariant reference classifier β_0 that has y⟨x, β_0⟩ ≥ 1 on all of it.

    Attributes
    ----------
    representation : Representation
        The (unitary) action.
    sample : callable
        ``sample(n, generator)`` returns n independent points and their labels.
    reference : Tensor
        β_0.
    radius, mean_radius : float
        R and R̄, the largest ‖x‖ and the largest ‖x̄‖.
    test_x, test_y : Tensor
        Points on which errors are measured.
    """

    representation: Representation
    sample: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    reference: Tensor
    radius: float
    mean_radius: float
    test_x: Tensor
    test_y: Tensor

    def bound(self, n: Tensor, invariant: bool, delta: float = 0.05) -> Tensor:
        """Return the error bound at sample sizes n, with R̄ for the invariant classifier and R for the other."""
        radius = self.mean_radius if invariant else self.radius
        return error_bound(radius * float(self.reference.norm()), n, delta)


def error_bound(ratio: float, n: Tensor, delta: float = 0.05) -> Tensor:
    """Return 2ρ/√n + √(log(1/δ)/2n), with ρ = radius · ‖β_0‖ (Chen, Zhu 2023; Mohri et al. 2018, corollary 5.11).

    Parameters
    ----------
    ratio
        The radius of the points times ‖β_0‖, that is, the radius over the margin of the reference classifier.
    n
        Numbers of training points.
    delta
        The probability with which the bound may fail.
    """
    check_float("ratio", ratio, minimum=0.0)
    if not 0 < check_float("delta", delta) < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}")
    return (2 * ratio + math.sqrt(math.log(1 / delta) / 2)) / n.to(torch.float64).sqrt()


def first_useful(ratio: float, delta: float = 0.05, level: float = 0.5) -> int:
    """Return the smallest n at which the bound of :func:`error_bound` is below a level, one half being a coin."""
    top = float(error_bound(ratio, torch.ones(1), delta)) / check_float("level", level, minimum=1e-9)
    return math.floor(top**2) + 1


def signals(channels: int = CHANNELS, length: int = LENGTH) -> PermutationRepresentation:
    """Return C_length shifting signals of several channels cyclically, on R^{channels · length}."""
    place = torch.arange(check_int("channels", channels))[:, None] * check_int("length", length)

    def images(g: Tensor) -> Tensor:
        return (place + (torch.arange(length) + g[..., None]) % length).flatten(-2)

    return PermutationRepresentation(Cyclic(length), channels * length, images, f"R^{channels}×{length}")


def shifted_signals(nuisance: float = 60.0, clue: float = 0.0, test_points: int = 4000, seed: int = 0) -> LabelledLaw:
    """Return the synthetic law: signals whose channel means hold the class, under a large component without mean.

    With orthonormal coordinates u of the invariants (one per channel), u_1 = y(1 + t/10) with t uniform in [0, 1], and
    the others uniform in [−1, 1]. Everything else is ``nuisance`` · v with v uniform on the unit sphere of E^⊥, whose
    law no shift changes. So β_0 is the first invariant coordinate.

    Parameters
    ----------
    nuisance
        Size of the component without mean.
    clue
        The control: add y · clue · c with c = (1, −1, 1, −1, …), normalised, to the training points. Test points get
        it shifted by a random group element, so that half of them see −c. The law of the training points is then not
        invariant, and not that of the test points.
    test_points, seed
        Number of test points, and seed of their draw.
    """
    V = signals()
    project = projection(V)
    basis = project.basis()
    check_float("clue", clue, minimum=0.0)
    hint = torch.tensor([1.0, -1.0]).double().repeat(V.dim // 2) / math.sqrt(V.dim)

    def draw(n: int, generator: torch.Generator, shift: bool = False) -> tuple[Tensor, Tensor]:
        u = 2 * torch.rand(n, len(basis), generator=generator, dtype=torch.float64) - 1
        y = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0).double()
        u[:, 0] = y * (1.05 + u[:, 0] / 20)
        v = torch.randn(n, V.dim, generator=generator, dtype=torch.float64)
        v = torch.nn.functional.normalize(v - project(v), dim=-1)
        sign = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0).double() if shift else 1.0
        return u @ basis + nuisance * v + clue * (sign * y)[:, None] * hint, y

    inner = math.sqrt(1.1**2 + len(basis) - 1)
    outer = math.hypot(inner, check_float("nuisance", nuisance, minimum=0.0) + clue)
    test = draw(check_int("test_points", test_points), seeded(seed + 10), shift=True)
    return LabelledLaw(V, draw, basis[0], outer, inner, *test)


def turned_digits(group: FiniteGroup, pair: Sequence[int] = (0, 8)) -> LabelledLaw:
    """Return the law of a random bundled image of two digits, turned by a random group element.

    β_0 is the invariant classifier of largest margin on all images, so R̄‖β_0‖ is as small as it can be. The test
    points are *all* images under all group elements: errors are exact.
    """
    V = pixels(group, 8)
    x, y = digit_pair(*pair)
    everything, labels = augment(x, y, V, group.elements())

    def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(everything), (n,), generator=generator)
        return everything[chosen], labels[chosen]

    mean = float(projection(V)(x).norm(dim=-1).max())
    reference = invariant_max_margin(x, y, V).vector
    return LabelledLaw(V, draw, reference, float(x.norm(dim=-1).max()), mean, everything, labels)


def measured_radii(law: LabelledLaw, n: int, generator: torch.Generator) -> tuple[float, float]:
    """Return the largest ‖x‖ and the largest ‖x̄‖ of n random points, at most the law's R and R̄."""
    x, _ = law.sample(check_int("n", n), generator)
    return tuple(float(points.norm(dim=-1).max()) for points in (x, projection(law.representation)(x)))


@dataclass(frozen=True)
class Errors:
    """Errors on the test points of the largest-margin classifiers; see :func:`measure_errors`.

    Attributes
    ----------
    sizes : Tensor
        Numbers n of training points.
    invariant, plain : Tensor
        Error of the invariant classifier (a steerable network) and of the unconstrained one (a fully connected
        network), shape ``(sizes, replicates)``.
    """

    sizes: Tensor
    invariant: Tensor
    plain: Tensor

    def violations(self, law: LabelledLaw, delta: float = 0.05) -> tuple[int, int]:
        """Return in how many runs the invariant and the plain classifier err more than their bounds allow."""
        pairs = ((self.invariant, True), (self.plain, False))
        return tuple(int((e > law.bound(self.sizes, inv, delta)[:, None]).sum()) for e, inv in pairs)

    def informative(self, law: LabelledLaw, delta: float = 0.05) -> tuple[int, int]:
        """Return in how many runs the bound of the invariant and of the plain classifier is below one.

        The other runs could not violate it.
        """
        replicates = self.invariant.shape[1]
        return tuple(int((law.bound(self.sizes, inv, delta) < 1).sum()) * replicates for inv in (True, False))


def measure_errors(law: LabelledLaw, sizes: Sequence[int], replicates: int, seed: int = 0) -> Errors:
    """Find the largest-margin classifiers on random training sets, and their errors.

    Training is replaced by its limit, which claims B1 and B9 establish: the largest margin on the orbit averages for
    steerable networks, on the points themselves for fully connected ones.

    Parameters
    ----------
    law
        Where points come from.
    sizes
        Numbers of training points.
    replicates
        Training sets of each size.
    seed
        Seed of all draws.
    """
    check_callable("law.sample", law.sample)
    generator = seeded(seed)
    project, z = projection(law.representation), law.test_y[:, None] * law.test_x
    errors = torch.zeros(2, len(sizes), check_int("replicates", replicates), dtype=torch.float64)
    for i, n in enumerate(sizes):
        for k in range(replicates):
            x, y = law.sample(check_int("sizes", n), generator)
            for j, points in enumerate((project(x), x)):
                errors[j, i, k] = (z @ max_margin(points, y).vector <= 0).double().mean()
    return Errors(torch.tensor(list(sizes)), *errors)
