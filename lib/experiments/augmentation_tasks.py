"""The learning tasks and sampling laws of the chapter *Augmentation versus equivariance*.

Tasks: connectedness of permuted graphs (Perm), digits under translations (Trans), segmentation of shapes under
quarter turns (Rot), and digits under four groups on one architecture (Nordenfors, Ohlsson, Flinth 2023, Appendices D
and E).

Laws: Haar measure, and the laws that the published samplers have when they are executed (repository
``usinedepain/eq_aug_dyn``, ``datasets.py``; counted in 20 000 draws and read off the code):

* a random shift is uniform on 0 … n, and n acts as 0: identity 2/(n + 1), every other shift 1/(n + 1);
* a random rotation is uniform on 0 … 4, where 0 and 4 do nothing, 1 and 3 are both the turn by 90°, 2 the one by 180°:
  2/5, 2/5, 1/5 and never 270°. Images that come flattened (the shapes) have a row axis of length one: there 1, 2 and
  3 all reverse the pixels, which is the turn by 180°: identity 2/5, 180° 3/5;
* graphs are permuted one by one when loaded, so that every *graph* and pass has its own element, with Haar measure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int
from lib.images.bundled import digits
from lib.images.datasets import block_graphs, mnist_test, simple_shapes
from lib.page.parameters import independent_seeds
from lib.symmetry.groups import Cyclic, FiniteGroup, Group
from lib.training.augmented_descent import Task
from lib.training.networks import IMAGE_GROUPS, Network, classifier_network, graph_network, mask_network
from lib.training.sampling_laws import Law, haar

PANELS = ("perm", "trans", "rot")


@dataclass(frozen=True)
class Sizes:
    """Sizes of one experiment.

    Attributes
    ----------
    samples, batch : int
        Data, and samples that share a group element.
    side : int
        Nodes of a graph, or pixels per side.
    channels : int
        Channels of the wide hidden layers.
    runs, epochs, passes : int
        Independent starts, steps, and augmented passes per step.
    rate : float
        Step size.
    """

    samples: int
    batch: int
    side: int
    channels: int
    runs: int
    epochs: int
    passes: int
    rate: float

    def __post_init__(self) -> None:
        for name in ("samples", "batch", "side", "channels", "runs", "epochs", "passes"):
            check_int(name, getattr(self, name))


SIZES: dict[tuple[str, str], Sizes] = {
    ("perm", "paper"): Sizes(1000, 200, 10, 32, 30, 50, 25, 1e-4),
    ("trans", "paper"): Sizes(10_000, 25, 14, 32, 30, 50, 25, 1e-5),
    ("rot", "paper"): Sizes(3000, 25, 14, 32, 30, 50, 25, 1e-5),
    ("groups", "paper"): Sizes(10_000, 25, 14, 32, 30, 50, 25, 5e-5),
    ("perm", "default"): Sizes(100, 20, 6, 8, 12, 10, 25, 1e-4),
    ("trans", "default"): Sizes(100, 25, 8, 4, 12, 10, 25, 1e-6),
    ("rot", "default"): Sizes(200, 25, 8, 4, 12, 10, 25, 1e-5),
    ("groups", "default"): Sizes(100, 25, 8, 3, 40, 8, 25, 5e-6),
}


SCALES = ("default", "paper")


@dataclass(frozen=True)
class Settings:
    """Settings of the chapter.

    Attributes
    ----------
    scale : str
        ``"default"`` (seconds) or ``"paper"`` (the source's sizes).
    runs, epochs, passes : int or None
        Replace the scale's own numbers in the experiments on drift.
    seeds : int
        Independent starts and data sets in the checks of theorems; the starts of the experiments on drift grow in
        proportion, with the scale's own number at 3.
    seed : int
        First of the independent seeds: of data, starts and sampling everywhere.
    bootstraps : int
        Resamplings of the runs for intervals.
    """

    scale: str = "default"
    runs: int | None = None
    epochs: int | None = None
    passes: int | None = None
    seeds: int = 3
    seed: int = 0
    bootstraps: int = 1000

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        for name in ("runs", "epochs", "passes"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=2 if name == "runs" else 1)
        check_int("seeds", self.seeds)
        check_int("seed", self.seed, minimum=0)
        check_int("bootstraps", self.bootstraps, minimum=100)

    def sizes(self, experiment: str) -> Sizes:
        """Return the sizes of an experiment: one of ``PANELS`` or ``"groups"``."""
        sizes = SIZES[check_choice("experiment", experiment, (*PANELS, "groups")), self.scale]
        given = {name: getattr(self, name) for name in ("runs", "epochs", "passes") if getattr(self, name) is not None}
        return replace(sizes, **({"runs": max(2, sizes.runs * self.seeds // 3)} | given))

    def independent(self) -> list[int]:
        """Return the seeds of the checks of theorems; the first is that of the experiments on drift."""
        return independent_seeds(self.seed, self.seeds)


def digit_images(samples: int, side: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return digits: MNIST test images at 7, 14 or 28 pixels per side, the bundled ones at 8, 4 or 2.

    Successive seeds take successive parts of the images, and begin again at the first when none is left.
    """
    if side in (7, 14, 28):
        x, y = mnist_test(side)
    else:
        check_choice("side", side, (2, 4, 8))
        data, step = digits(), 8 // side
        images, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
        x = images.reshape(-1, 1, side, step, side, step).mean((3, 5)).flatten(2)
    if samples > len(x):
        raise ValueError(f"samples must be at most {len(x)} for digits of {side} × {side} pixels, got {samples}")
    chosen = (seed * samples + torch.arange(samples)) % len(x)
    return x[chosen], y[chosen]


def panel_task(panel: str, sizes: Sizes, seed: int = 0) -> Task:
    """Return the task of one panel of Figure 1, in float64.

    The small graphs of the default scale have edges across the blocks with probability .2, so that both labels are
    common.
    """
    check_choice("panel", panel, PANELS)
    c = sizes.channels
    if panel == "perm":
        x, y = block_graphs(sizes.samples, sizes.side, across=0.05 if sizes.side >= 10 else 0.2, seed=seed)
        return Task(graph_network(sizes.side, c, 2 * c, c), x, y, sizes.batch)
    if panel == "trans":
        return group_task("translations", sizes, seed)
    x, y = simple_shapes(sizes.samples, sizes.side, seed)
    return Task(mask_network(sizes.side, (c, c, max(1, c // 2))), x, y, sizes.batch)


def group_task(group: str, sizes: Sizes, seed: int = 0) -> Task:
    """Return digits with the classifier for one of ``IMAGE_GROUPS``, in float64."""
    x, y = digit_images(sizes.samples, sizes.side, seed)
    return Task(classifier_network(group, sizes.side, sizes.channels), x, y, sizes.batch)


def haar_law(network: Network) -> Law:
    """Return Haar measure on the network's group."""
    return haar(network.architecture.group)


def published_law(panel: str, network: Network) -> Law:
    """Return the law that the published sampler of a panel, or of one of ``IMAGE_GROUPS``, has when executed.

    For ``"perm"`` that is Haar measure (drawn for every graph: see :func:`published_task`).
    """
    check_choice("panel", panel, (*PANELS, *IMAGE_GROUPS))
    group = network.architecture.group
    if panel == "perm":
        return haar(group)
    if panel in ("rot", "rotations"):
        return rotation_law(group, flattened=panel == "rot")
    side = round(network.architecture.spaces[0].representation.dim ** 0.5)
    if panel == "row shifts":
        return Law("published", group, (_shifts(side, torch.tensor([1])),))
    if panel in ("trans", "translations"):
        return Law("published", group, (_shifts(side, torch.tensor([1, 0])), _shifts(side, torch.tensor([0, 1]))))
    turn = rotation_law(Cyclic(4), flattened=False).factors[0]
    turn = (torch.cat([torch.zeros(4, 2, dtype=torch.int64), turn[0]], 1), turn[1])
    shifts = (_shifts(side, torch.tensor([1, 0, 0])), _shifts(side, torch.tensor([0, 1, 0])))
    return Law("published", group, (turn, *shifts))


def published_task(panel: str, task: Task) -> Task:
    """Return the task with the published number of samples per group element: one for graphs."""
    return Task(task.network, task.inputs, task.targets, 1) if panel == "perm" else task


def rotation_law(group: Group, flattened: bool) -> Law:
    """Return the executed law of the published random rotation on C_4, for flattened or for square images."""
    if group != Cyclic(4):
        raise ValueError(f"group must be Cyclic(4), got {group}")
    weights = torch.tensor([0.4, 0.0, 0.6, 0.0] if flattened else [0.4, 0.4, 0.2, 0.0], dtype=torch.float64)
    return Law("published", group, ((torch.arange(4)[:, None], weights),))


def mixture_law(group: FiniteGroup, share: float) -> Law:
    """Return (1 − share) · Haar + share · identity, for which (Π_ν − Π) = share · (1 − Π) whatever the group."""
    check_float("share", share, 0.0, 1.0)
    elements, weights = haar(group).listed()
    neutral = (group.index(elements) == group.index(group.identity())).to(weights)
    return Law("mixture", group, ((elements, (1 - share) * weights + share * neutral),))


def _shifts(side: int, direction: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.full((side,), 1.0 / (side + 1), dtype=torch.float64)
    weights[0] *= 2
    return torch.arange(side)[:, None] * direction, weights
