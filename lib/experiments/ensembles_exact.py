"""Chapter *Ensembles*: what is exact for an ensemble of |G| members that starts on one orbit of parameters (E4, E5).

Full-batch gradient descent in float64 on digits and all their quarter turns. The shallow version of these statements is
in :mod:`lib.experiments.three_views`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.checks import check_choice, check_float, check_int
from lib.images.bundled import digits
from lib.training.ensemble_training import loss_gradient
from lib.training.ensembles import Members, Network, draw_members, join, rotate_images

STARTS = ("orbit", "incomplete")
LOSSES = ("augmented", "averaged")


@dataclass(frozen=True)
class ExactSettings:
    """Data, network and training.

    Attributes
    ----------
    points, test : int
        Training images, all in one batch, and test images.
    channels : int
        Channels of every convolution.
    rate, steps : float, int
        Step and number of steps.
    seeds, seed : int
        Independent starts, one batch, and the seed that they are drawn with.
    """

    points: int = 20
    test: int = 20
    channels: int = 6
    rate: float = 0.1
    steps: int = 40
    seeds: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("points", self.points, maximum=1200)
        check_int("test", self.test, maximum=597)
        for name in ("channels", "steps", "seeds"):
            check_int(name, getattr(self, name))
        check_float("rate", self.rate, minimum=0.0)
        check_int("seed", self.seed, minimum=0)

    def images(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return training images under C_4 ``(4, n, 8, 8)``, their classes, and test images under C_4."""
        data = digits()
        x, seen = data.train_x[: self.points].unflatten(1, (8, 8)), data.test_x[: self.test].unflatten(1, (8, 8))
        return rotate_images(x, 4), data.train_y[: self.points], rotate_images(seen, 4)


@dataclass(frozen=True)
class Trajectory:
    """Mean logits of an ensemble along training.

    Attributes
    ----------
    logits : Tensor
        f̄(ρ(g)x) at test images before the first step and after every one, shape ``(steps + 1, seeds, 4, n', 10)``.
    risk : Tensor
        Mean cross-entropy of one member over the training data that it sees, shape ``(steps + 1, seeds)``.
    """

    logits: Tensor
    risk: Tensor

    @property
    def averaged(self) -> Tensor:
        """The feature average Q_G f̄ at the test images, shape ``(steps + 1, seeds, n', 10)``."""
        return self.logits.mean(2)

    @property
    def defect(self) -> Tensor:
        """Largest |f̄(ρ(g)x) − Q_G f̄(x)| over g, images and classes, shape ``(steps + 1, seeds)``."""
        return (self.logits - self.averaged[:, :, None]).abs().amax((2, 3, 4))


def draw_orbit(settings: ExactSettings, network: Network, start: str = "orbit") -> Members:
    """Return four members per seed, turns first, shape ``(4·seeds, …)``.

    Parameters
    ----------
    settings, network
        Sizes.
    start
        ``"orbit"``: ρ(g)A for all g; ``"incomplete"``: the last one is an independent draw (a control).
    """
    check_choice("start", start, STARTS)
    one = draw_members(network, settings.seeds, settings.seed, dtype=torch.float64)
    members = network.orbit(one)
    if start == "orbit":
        return members
    other = draw_members(network, settings.seeds, settings.seed, first=settings.seeds, dtype=torch.float64)
    return join([tuple(p[: 3 * settings.seeds] for p in members), other])


def train_orbit(
    settings: ExactSettings, support: str = "plus", rotations: int = 4, start: str = "orbit", control: bool = False
) -> Trajectory:
    """Train four members on an orbit of parameters, each on its own augmented risk, and observe their mean.

    Parameters
    ----------
    settings
        Data, network and training.
    support
        Support of the filters; one that is not invariant only with ``control``.
    rotations
        Rotations in the training data: all 4, or fewer (a control).
    start
        See :func:`draw_orbit`.
    control
        Whether the assumptions of the theorem may be broken.

    Raises
    ------
    ValueError
        The assumptions of the theorem do not hold, and this is not called a control.
    """
    network = Network(8, settings.channels, 10, support)
    if not control:
        network.require_invariant()
        if check_int("rotations", rotations, maximum=4) < 4 or start != "orbit":
            raise ValueError("rotations must be 4 and start 'orbit' for the theorem; anything else needs control=True")
    members = draw_orbit(settings, network, start)
    return _descend(settings, network, members, check_int("rotations", rotations, maximum=4), "augmented")


def train_one(settings: ExactSettings, loss: str = "augmented", support: str = "plus") -> Trajectory:
    """Train the first member of every orbit alone.

    Parameters
    ----------
    settings
        Data, network and training.
    loss
        ``"augmented"``: R^aug, the cross-entropy of Φ(ρ(g)x) averaged over g; ``"averaged"``: R^FA, the cross-entropy
        of the feature average Q_G Φ(x).
    support
        Support of the filters.
    """
    network = Network(8, settings.channels, 10, support)
    members = draw_members(network, settings.seeds, settings.seed, dtype=torch.float64)
    return _descend(settings, network, members, 4, check_choice("loss", loss, LOSSES))


def _descend(settings: ExactSettings, network: Network, members: Members, rotations: int, loss: str) -> Trajectory:
    table, labels, test = settings.images()
    x, y = table[:rotations].flatten(0, 1)[None], labels.repeat(rotations)
    rows = [_observe(settings, network, members, (x, y), test)]
    for _ in range(settings.steps):
        if loss == "augmented":
            slopes = loss_gradient(network, members, x, y)
        else:
            slopes = _averaged_gradient(network, members, table, labels)
        members = tuple(p - settings.rate * s for p, s in zip(members, slopes, strict=True))
        rows.append(_observe(settings, network, members, (x, y), test))
    logits, risk = (torch.stack(column) for column in zip(*rows, strict=True))
    return Trajectory(logits, risk)


def _averaged_gradient(network: Network, members: Members, table: Tensor, labels: Tensor) -> Members:
    leaves = tuple(p.detach().requires_grad_() for p in members)
    mean = network.outputs(leaves, table.flatten(0, 1)[None]).unflatten(1, table.shape[:2]).mean(1)
    targets = labels.expand(len(mean), -1).flatten()
    total = cross_entropy(mean.flatten(0, 1), targets, reduction="sum") / len(labels)
    return torch.autograd.grad(total, leaves)


@torch.no_grad()
def _observe(
    settings: ExactSettings, network: Network, members: Members, data: tuple[Tensor, Tensor], test: Tensor
) -> tuple[Tensor, Tensor]:
    logits = network.outputs(members, test.flatten(0, 1)[None]).unflatten(1, test.shape[:2])
    mean = logits.unflatten(0, (-1, settings.seeds)).mean(0)
    x, y = data
    fit = network.outputs(members, x)[: settings.seeds].log_softmax(-1)
    return mean, -fit.gather(-1, y.expand(len(fit), -1)[..., None]).mean((1, 2))


def difference(one: Tensor, other: Tensor) -> Tensor:
    """Return the largest difference of predictions ``(steps + 1, seeds, n', 10)``, shape ``(steps + 1, seeds)``."""
    return (one - other).abs().amax((2, 3))
