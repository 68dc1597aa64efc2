"""Augmentation versus equivariance: how far each strategy drifts from E, and why (claims A6 and A7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from scipy.stats import t as student
from torch import Tensor

from lib.checks import check_choice, seeded
from lib.experiments.augmentation_tasks import (
    PANELS,
    Settings,
    Sizes,
    group_task,
    haar_law,
    mixture_law,
    panel_task,
    published_law,
    published_task,
)
from lib.training.augmented_descent import (
    EQUIVARIANT,
    NOMINAL,
    History,
    Strategy,
    Task,
    augmented,
    gradient,
    train,
    views,
)
from lib.training.networks import IMAGE_GROUPS, Network
from lib.training.sampling_laws import Law


@dataclass(frozen=True)
class Prediction:
    """What the gradients at the start say about the drift, per run (beyond the source).

    To first order in the step size, sampling from ν in P passes for T epochs gives
    ``ratio² = bias² + noise² / (P T)``, relative to nominal drift.

    Attributes
    ----------
    bias : Tensor
        ‖(Π_ν − Π)∇R‖ / ‖(1 − Π)∇R‖, shape ``(runs,)``; 0 for Haar measure.
    noise : Tensor
        Root of ``Σ_b (‖(1−Π)∇R_b‖² − ‖(Π_ν−Π)∇R_b‖²) / K²`` over ‖(1 − Π)∇R‖, for K mini-batches b.
    """

    bias: Tensor
    noise: Tensor

    def ratio(self, passes: int | None, epochs: int) -> Tensor:
        """Return the predicted ratio of augmented to nominal drift; ``passes=None`` for the exact average over ν."""
        return self.bias if passes is None else (self.bias.square() + self.noise.square() / (passes * epochs)).sqrt()


def predict_drift(task: Task, start: Sequence[Tensor], law: Law, batches: int | None = None) -> Prediction:
    """Return the first-order prediction of the drift under a sampling law.

    Parameters
    ----------
    task, start
        As for training; ``task.batch`` samples share an element.
    law
        The law ν. One that cannot be listed is Haar measure, whose bias is 0.
    batches
        Use so many evenly spaced mini-batches for the noise instead of all.
    """
    network = task.network
    maps = network.embed(start)
    grads = gradient(task, maps, views(task, NOMINAL, [], 512))[1]
    whole, total = network.off(grads).norm(dim=1), _biased(network, law, grads)
    count = task.batches if batches is None else min(batches, task.batches)
    squares = torch.zeros_like(whole)
    for b in torch.linspace(0, task.batches - 1, count).long().tolist():
        part = slice(b * task.batch, (b + 1) * task.batch)
        batch = Task(network, task.inputs[part], task.targets[part], 1)
        piece = gradient(task, maps, views(batch, NOMINAL, [], 512))[1]
        squares += network.off(piece).square().sum(1) - _biased(network, law, piece).square()
    noise = (squares / count / task.batches).clamp(min=0).sqrt()
    return Prediction((total / whole).double(), (noise / whole).double())


def _biased(network: Network, law: Law, grads: Sequence[Tensor]) -> Tensor:
    """Return ‖(Π_ν − Π) ∇‖ per run for a gradient given as dense layers."""
    if law.name == "Haar":
        return grads[0].new_zeros(len(grads[0]))
    moved = []
    for layer, g in zip(network.layers, grads, strict=True):
        blocks = law.average(layer.mean.representation, g.transpose(2, 3))
        moved.append(layer.off(blocks.transpose(2, 3).contiguous()))
    return torch.stack(moved).norm(dim=0)


@dataclass(frozen=True)
class Drifts:
    """One experiment on drift: the same starts trained by every strategy.

    Attributes
    ----------
    name : str
        Panel of Figure 1, or group.
    sizes : Sizes
        Sizes of the experiment.
    histories : dict of str to History
        ``"nominal"``, ``"equivariant"``, ``"haar"``, ``"published"``, ``"exact"`` (few runs; only where the group can
        be summed over) and, for the rate of drift, ``"haar 1"``, ``"haar 5"`` … by the number of passes.
    predictions : dict of str to Prediction
        For ``"haar"`` and ``"published"``.
    relative_dimension : float
        dim E / dim L, the source's proxy.
    """

    name: str
    sizes: Sizes
    histories: dict[str, History]
    predictions: dict[str, Prediction]
    relative_dimension: float

    def ratio(self, strategy: str, epoch: int = -1) -> Tensor:
        """Return the drift after an epoch over that of nominal training, run by run, shape ``(runs,)``."""
        drift = self.histories[strategy].drift[epoch]
        return drift / self.histories["nominal"].drift[epoch, : len(drift)]

    def predicted(self, strategy: str) -> Tensor:
        """Return the predicted final ratio, run by run."""
        return self.predictions[strategy].ratio(self.sizes.passes, self.sizes.epochs)

    def as_plotted(self, strategy: str) -> tuple[Tensor, Tensor]:
        """Return what the published evaluation script draws for a strategy, each of shape ``(epochs + 1, runs)``.

        Its horizontal axis leaves out the layers between trivial representations and, for nominal training, shows the
        distance of the *augmented* network; its vertical axis is ``sqrt(Σ_i ‖(A_i)_{E^⊥}‖⁴)``, the square of a
        distance.
        """
        history = self.histories[strategy]
        mover = self.histories["published"] if strategy == "nominal" else history
        inner = slice(0, mover.moved.shape[-1] - (0 if self.name == "rot" else 2 if self.name == "perm" else 1))
        return mover.moved[..., inner].square().sum(-1).sqrt(), history.off.pow(4).sum(-1).sqrt()


def plan(
    task: Task, published: tuple[Task, Law], sizes: Sizes, exact_up_to: int = 0, extra_passes: Sequence[int] = ()
) -> dict[str, tuple[Task, Strategy]]:
    """Return the strategies of one experiment by name, each with its task.

    Parameters
    ----------
    task, sizes
        The experiment.
    published
        Task and law of the published sampler.
    exact_up_to
        Add the exact average over the group if it has at most so many elements.
    extra_passes
        Add Haar sampling with these numbers of passes.
    """
    law = haar_law(task.network)
    strategies = {
        "nominal": (task, NOMINAL),
        "equivariant": (task, EQUIVARIANT),
        "haar": (task, augmented(law, sizes.passes)),
        "published": (published[0], augmented(published[1], sizes.passes)),
    }
    strategies |= {f"haar {p}": (task, augmented(law, p)) for p in extra_passes}
    if law.support is not None and law.support <= exact_up_to:
        strategies["exact"] = (task, augmented(law))
    return strategies


def measure_drifts(
    name: str,
    strategies: dict[str, tuple[Task, Strategy]],
    sizes: Sizes,
    runs: range | None = None,
    batches: int | None = None,
    exact_runs: int = 1,
    seed: int = 0,
) -> Drifts:
    """Train the same starts by every strategy, in float32, and predict the drifts from the gradients at the start.

    Parameters
    ----------
    name, strategies, sizes
        The experiment; strategies as from :func:`plan`.
    runs
        Which of the runs; by default all.
    batches
        Mini-batches used to predict the noise, as in :func:`predict_drift`.
    exact_runs
        Number of runs that the exact average is computed for.
    seed
        Seed of the starts; the sampling has the next one.
    """
    runs = runs or range(sizes.runs)
    network = strategies["nominal"][0].network
    start = network.start(len(runs), seed, first_run=runs.start)
    histories, predictions = {}, {}
    for key, (task, strategy) in strategies.items():
        task = task.to(torch.float32)
        chosen = [s[:exact_runs] for s in start] if key == "exact" else start
        histories[key] = train(task, chosen, strategy, sizes.epochs, sizes.rate, seed + 1, runs.start)
        if key in ("haar", "published"):
            predictions[key] = predict_drift(task, start, strategy.law, batches)
    return Drifts(name, sizes, histories, predictions, network.equivariant_dimension / network.dimension)


def run_panel(panel: str, settings: Settings, extra_passes: Sequence[int] = (1, 5)) -> Drifts:
    """Return one panel of Figure 1: all strategies, both samplers, and the exact limit where the group is small."""
    sizes, (seed, *_) = settings.sizes(panel), settings.independent()
    return measure_drifts(panel, panel_plan(panel, sizes, extra_passes, seed), sizes, seed=seed)


def run_panels(settings: Settings) -> dict[str, Drifts]:
    """Return the three panels of Figure 1 by name, two at a time (small kernels keep one core busy each)."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(PANELS, pool.map(lambda panel: run_panel(panel, settings), PANELS), strict=True))


def panel_plan(
    panel: str, sizes: Sizes, extra_passes: Sequence[int] = (), seed: int = 0
) -> dict[str, tuple[Task, Strategy]]:
    """Return the strategies of a panel of Figure 1, on the data of a seed."""
    task = panel_task(panel, sizes, seed)
    published = published_task(panel, task), published_law(panel, task.network)
    return plan(task, published, sizes, exact_up_to=1000 if sizes.samples <= 1000 else 4, extra_passes=extra_passes)


def run_group(group: str, settings: Settings) -> Drifts:
    """Return the drifts of the classifier of digits for one of ``IMAGE_GROUPS``, without equivariant training."""
    sizes, (seed, *_) = settings.sizes("groups"), settings.independent()
    strategies = group_plan(group, sizes, seed)
    del strategies["equivariant"]
    return measure_drifts(group, strategies, sizes, seed=seed)


def group_plan(group: str, sizes: Sizes, seed: int = 0) -> dict[str, tuple[Task, Strategy]]:
    """Return the strategies for the classifier of digits and one of ``IMAGE_GROUPS``, on the data of a seed."""
    task = group_task(group, sizes, seed)
    return plan(task, (task, published_law(group, task.network)), sizes)


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval over the runs."""

    value: float
    low: float
    high: float

    def miss(self, target: float) -> float:
        """Return the distance from the target to the interval, 0 inside."""
        return max(self.low - target, target - self.high, 0.0)


def bootstrap(statistic: Callable[[Tensor], Tensor], runs: int, count: int, seed: int = 0) -> Interval:
    """Return a statistic of the runs and its percentile interval of 95 %.

    Parameters
    ----------
    statistic
        Maps run numbers, with repetitions, shape ``(count, runs)``, to values, shape ``(count,)``.
    runs, count, seed
        Number of runs, resamplings, seed.
    """
    draws = torch.randint(runs, (count, runs), generator=seeded(seed))
    low, high = statistic(draws).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(float(statistic(torch.arange(runs)[None])[0]), low, high)


def median_ratio(drifts: Drifts, strategy: str, bootstraps: int = 1000) -> Interval:
    """Return the median over runs of the final drift relative to nominal training."""
    ratio = drifts.ratio(strategy)
    return bootstrap(lambda draws: ratio[draws].median(-1).values, len(ratio), bootstraps)


def rate_of_drift(drifts: Drifts, level: float = 1 - 1e-3 / len(PANELS)) -> Interval:
    """Return the exponent α in ratio ∝ (passes · epochs)^α under Haar sampling; sampling noise has α = −1/2.

    A line is fitted to the logarithm of the root mean square ratio over the runs, for every recorded number of passes
    and every epoch. Each epoch weighs as much as its logarithm is spaced, so that late ones do not dominate. The
    interval is Student's for the jackknife's pseudo-values, one per run.

    Parameters
    ----------
    drifts
        The experiment, of at least two runs.
    level
        Coverage of the interval. By default the three of the panels *all* cover their exponents in 999 of 1000 cases.
    """
    nominal, squares, work, weights = drifts.histories["nominal"], [], [], []
    for key, history in drifts.histories.items():
        if key.startswith("haar"):
            passes = int(key.split()[1]) if " " in key else drifts.sizes.passes
            epochs = torch.arange(1, len(history.drift), dtype=torch.float64)
            squares.append((history.drift[1:] / nominal.drift[1:]).square())
            work.append((passes * epochs).log())
            weights.append(1 / epochs)
    square, x, w = torch.cat(squares), torch.cat(work), torch.cat(weights)
    centred = w * (x - (w * x).sum() / w.sum())

    def slope(means: Tensor) -> Tensor:
        return (centred[:, None] * 0.5 * means.log()).sum(0) / (centred * x).sum()

    mean, runs = square.mean(1, keepdim=True), square.shape[1]
    without = slope((runs * mean - square) / (runs - 1))
    half = student.ppf((1 + level) / 2, runs - 1) * math.sqrt((runs - 1) * float(without.var(correction=0)))
    value = float(slope(mean))
    return Interval(value, value - half, value + half)


@dataclass(frozen=True)
class GroupRow:
    """One line of the table of the four groups.

    Attributes
    ----------
    group : str
        One of ``IMAGE_GROUPS``.
    relative_dimension : float
        dim E / dim L, the source's proxy.
    haar, published : Interval
        Median ratio of augmented to nominal drift under either law.
    predicted_haar, predicted_published : float
        Median predicted ratio, with the sampling noise of so many passes and epochs.
    bias : float
        Median ‖(Π_ν − Π)∇R‖ / ‖(1 − Π)∇R‖ for the published law: the limit of many passes.
    error, haar_error : float
        Relative error of the two predictions (published, Haar): median over runs of measured over predicted, minus 1.
    """

    group: str
    relative_dimension: float
    haar: Interval
    published: Interval
    predicted_haar: float
    predicted_published: float
    bias: float
    error: float
    haar_error: float


def group_row(drifts: Drifts, bootstraps: int = 1000) -> GroupRow:
    """Return the line of one group."""
    check_choice("drifts.name", drifts.name, IMAGE_GROUPS)
    errors = [float((drifts.ratio(k) / drifts.predicted(k)).median()) - 1 for k in ("published", "haar")]
    return GroupRow(
        drifts.name,
        drifts.relative_dimension,
        median_ratio(drifts, "haar", bootstraps),
        median_ratio(drifts, "published", bootstraps),
        float(drifts.predicted("haar").median()),
        float(drifts.predicted("published").median()),
        float(drifts.predictions["published"].bias.median()),
        *errors,
    )


def compare_groups(settings: Settings) -> list[GroupRow]:
    """Settle A7: the four groups on one architecture, under both laws, against prediction and proxy."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        drifts = list(pool.map(lambda group: run_group(group, settings), IMAGE_GROUPS))
    return [group_row(d, settings.bootstraps) for d in drifts]


@dataclass(frozen=True)
class MixtureRow:
    """Median ratio of augmented to nominal drift of a group under the law of :func:`equalise_laws`."""

    group: str
    relative_dimension: float
    ratio: Interval


def equalise_laws(
    settings: Settings, share: float = 0.3, groups: Sequence[str] = ("rotations", "motions")
) -> list[MixtureRow]:
    """Sample every group by (1 − share) · Haar + share · identity: the control that separates law from dimension.

    For this law (Π_ν − Π)∇R = share · (1 − Π)∇R, so that the predicted ratio is the share, up to sampling noise, for
    every group and whatever dim E / dim L.
    """
    rows, sizes, (seed, *_) = [], settings.sizes("groups"), settings.independent()
    for group in groups:
        task = group_task(group, sizes, seed)
        law = mixture_law(task.network.architecture.group, share)
        strategies = {"nominal": (task, NOMINAL), "mixture": (task, augmented(law, sizes.passes))}
        drifts = measure_drifts(group, strategies, sizes, seed=seed)
        rows.append(MixtureRow(group, drifts.relative_dimension, median_ratio(drifts, "mixture", settings.bootstraps)))
    return rows
