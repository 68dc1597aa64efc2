"""What would a symmetry save on this task? Learning curves with the reader's own targets, and advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.checks import check_int, generator_of
from lib.reader.door import Samples, samples
from lib.reader.moves import Action, move
from lib.reader.report import symmetry_report
from lib.reader.ways import Orbit, Part, advice, price, risks
from lib.transport.learning_curves import Curve, Interval, Saving, equivalent_factor, paired_interval

FEWEST = 100  # samples
_TOP, _NEW = 256, 500  # most samples that are learnt from, and that are predicted
_LARGEST = 64  # elements
_FLAT = 0.1  # share of the risk: samples are enough where doubling them is shown to save less
# The curve that an advice is held against; a smaller group has none, and what the whole one saves speaks against it.
_WAY = {"full augmentation": "architecture", "ensemble": "ensemble of four", "the smaller group": "nothing"}
OVERTURNS = {
    "the smaller group": "the whole group, or half of each, better than nothing on a validation set",
    "half of each": "inputs that are moved after all; the whole group better on a validation set",
    "nothing": "inputs that are moved after all, or another way that does better on a validation set",
    "averaging afterwards": "averaging worse than the model alone on a validation set, moved as inputs will be",
    "architecture": "equivariant layers that are too few to fit; symmetric inputs with less symmetric answers",
    "full augmentation": "layers that are not compatible with the group; a negative eigenvalue of the Hessian off the "
    "equivariant weights",
    "sampled augmentation": "layers that are not compatible with the group; a sampler that is not uniform; a longer "
    "training than you can pay for",
    "ensemble": "a law of starts, or a space of layers, that is not invariant",
}


@dataclass(frozen=True)
class Price:
    """What a symmetry saves on a task.

    ``factor`` says how many times as many samples the plain kernel needs to do as well as the averaged one, with a 95 %
    interval over splits of these data. ``delta2`` is what linear features lose when they are averaged over the group,
    and ``sigma2`` the variance that they leave, in units of the target's variance; NaN where there are too many
    features for so few samples.
    """

    factor: Saving
    delta2: Interval
    sigma2: float
    pays_until: float  #: σ²(k − e)/δ², samples up to which averaging k features to e pays; infinite without a loss
    advice: str  #: where to begin
    overturned: str  #: what here speaks against it, if anything does
    curves: pd.DataFrame = field(repr=False)  #: mean risk of every way at every number of samples
    runs: pd.DataFrame = field(repr=False)  #: the risk of every way, by samples and split

    def summary(self) -> str:
        """Return the answer in words."""
        f, d = self.factor, self.delta2
        bound = "" if f.covered else "at least " if f.value > 1 else "at most "  # the curves do not overlap
        worth = f"{bound}{f.value:.2g} times the samples ({f.low:.2g} to {f.high:.2g})"
        lines = [f"averaging over the group is worth {worth}"]
        if d.value == d.value:
            until = f"up to {self.pays_until:.0f} samples" if self.pays_until < math.inf else "at any number of samples"
            lines.append(
                f"linear features lose δ² = {d.value:.3f} ({d.low:.3f} to {d.high:.3f}) of the target's variance, "
                f"σ² = {self.sigma2:.2f}: averaging them pays {until}"
            )
        lines.append(f"start with: {self.advice}; what would overturn it: {OVERTURNS[self.advice]}")
        return "\n".join(lines + [f"overturned here: {self.overturned}"] * bool(self.overturned))


def price_of_symmetry(
    data: Any,
    target: Any,
    group: str | Sequence[Any],
    action: Action,
    *,
    moved_later: bool = False,
    splits: int = 8,
    seed: int = 0,
    **known: bool,
) -> Price:
    """Return what an invariance saves on a task, by kernel ridge regression on the reader's samples and targets.

    Data, target, group and action are as for :func:`lib.reader.report.symmetry_report`; the target keeps still, and the
    group has at most 64 elements. ``moved_later`` says whether inputs are moved at random where the model will be used;
    then they are so in the tests. The samples are split at random, so many times, into known, validation and new ones.
    Further answers, ``layers``, ``can_retrain`` …, are those of :func:`lib.reader.ways.advice`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 3))
    >>> found = price_of_symmetry(x, x.sum(1) + 0.5 * rng.normal(size=200), "S3", "permute 1", splits=4)
    >>> found.advice, found.factor.value > 1
    ('architecture', True)
    """
    rng = generator_of(check_int("seed", seed, minimum=0), 29)
    check_int("splits", splits, minimum=3)
    if target is None:
        raise ValueError("target must be given: what a symmetry saves depends on the task")
    s = samples(data, group, action, target, "still", rng, FEWEST)
    if s.drawn or len(s.images) > _LARGEST:
        raise ValueError(f"group must have at most {_LARGEST} elements, as C8 for SO2 or C{s.group.size} for {group!r}")
    images, y = _in_one_unit(s), s.classes
    if y is None:
        y = (s.y - s.y.mean(0)) / s.y.std(0).clamp(min=1e-300)
        if y.shape[1] > 1:
            raise ValueError(f"target must be classes or one number for each sample, got {y.shape[1]}")

    def orbit(x: Tensor) -> Tensor:
        return torch.stack([x, *(move(action, g, x) for g in s.group.elements)], 1)

    top = min(s.n // 2, _TOP)
    sizes = [n for n in (top // 8, top // 4, top // 2, top) if n >= 8]
    rows, bills = {}, []
    for k in range(splits):
        order = torch.randperm(s.n, generator=rng, device="cpu")
        at = order.split([top, top // 2, s.n - top - top // 2])
        later = images[0]
        if moved_later:
            pose = torch.randint(len(images), (s.n,), generator=rng, device="cpu")
            later = images[pose, torch.arange(s.n, device="cpu")]
        new = later[at[2][:_NEW]], y[at[2][:_NEW]]
        for n in sizes:
            some, check = at[0][:n], at[1][: n // 2]
            rows[n, k] = risks((images[0, some], y[some]), (later[check], y[check]), new, orbit, seed + k)
        all_known = torch.cat(at[:2])
        bills.append(_bill((images[0, all_known], y[all_known]), new, orbit))
    runs = pd.DataFrame(rows).T.rename_axis(["samples", "split"])
    told, against = _advised(s, runs, known | {"moved_later": moved_later}, (data, group, action, target), seed)
    risk = [torch.tensor(runs[way].unstack().to_numpy(), device="cpu") for way in ("nothing", "architecture")]
    at, loss = (torch.from_numpy(np.array(part, float)) for part in (sizes, [bill[0] for bill in bills]))
    return Price(
        factor=equivalent_factor(*(Curve(at, r.clamp(min=1e-6)) for r in risk)),
        delta2=paired_interval(loss, torch.zeros_like(loss)),
        sigma2=sum(bill[1] for bill in bills) / splits,
        pays_until=sorted(bill[2] for bill in bills)[splits // 2],
        advice=told,
        overturned=against,
        curves=runs.groupby("samples").mean(),
        runs=runs,
    )


def _in_one_unit(s: Samples) -> Tensor:
    """Return all images (K, n, …): of columns, each in its spread over all images, which the group does not change."""
    if s.x.ndim > 2 or s.group.kind == "rotate":
        return s.images
    return (s.images - s.images.mean((0, 1))) / s.images.flatten(0, 1).std(0).clamp(min=1e-300)


def _bill(known: Part, new: Part, orbit: Orbit) -> tuple[float, float, float]:
    """Return δ², σ² and the number of samples up to which averaged linear features pay.

    A risk of k features from n samples is the floor and σ²k/(n − k − 1), which is taken off.
    """

    def features(x: Tensor, averaged: bool) -> Tensor:
        every = orbit(x) if averaged else x[:, None]
        if x.ndim > 2 and min(x.shape[-2:]) >= 4:
            small = torch.nn.functional.adaptive_avg_pool2d(every.flatten(0, -3)[:, None], 4)
            every = small.view(*every.shape[:-2], 4, 4)
        rows = every.flatten(2).mean(1)
        return torch.cat([torch.ones_like(rows[:, :1]), rows], 1)

    found = []
    for averaged in (False, True):
        F, Z = (features(x, averaged) for x in (known[0], new[0]))
        k, variance, risk = price(F, known[1], Z, new[1])
        if 3 * k > len(F):
            return math.nan, math.nan, math.nan
        found.append((k, variance, risk - variance * k / (len(F) - k - 1)))
    (k, variance, floor), (e, _, higher) = found
    loss = higher - floor
    return loss, variance, variance * (k - e) / loss if loss > 0 else math.inf


def _advised(s: Samples, runs: pd.DataFrame, known: dict[str, bool], given: Any, seed: int) -> tuple[str, str]:
    """Return the advice for what was measured and what is known, and what the learning curves hold against it."""
    data, group, action, target = given
    inputs, pairs = (symmetry_report(data, group, action, t, trials=0, seed=seed) for t in (None, target))
    sizes = sorted({n for n, _ in runs.index})
    plain = [torch.tensor(runs["nothing"].xs(n).to_numpy(), device="cpu") for n in sizes[-2:]]
    labels_move = inputs.verdict != "asymmetric" and pairs.verdict == "asymmetric"
    smaller = (pairs if labels_move else inputs).subgroups
    measured = {
        "not_rejected": inputs.verdict != "asymmetric",
        "labels_keep": not labels_move,
        "smaller_group": bool(len(smaller) and (smaller["verdict"] != "asymmetric").any()),
        "few_samples": paired_interval(plain[0], plain[1]).high > _FLAT * float(plain[0].mean()),
        "small_group": len(s.images) <= 24,
    }
    told = advice(**(measured | known))
    way, last = _WAY.get(told, told), runs.xs(sizes[-1])
    best = last.mean().idxmin()
    if way in last and best != way:
        gap = paired_interval(*(torch.tensor(last[w].to_numpy(), device="cpu") for w in (way, best)))
        if gap.low > 0:
            return told, f"{best} has a smaller risk than {way}, by {gap.value:.3g} ({gap.low:.3g} to {gap.high:.3g})"
    return told, ""
