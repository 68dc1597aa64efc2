"""Is a law symmetric? A test with an exact level on a reader's own array, and what so many samples would have shown.

If the law is invariant, samples moved by random elements of their own, ``g_i x_i``, have the joint law of the samples
``x_i``. So any statistic of the samples may be compared with its values for moved samples, and the rank of the observed
one is uniform (Phipson and Smyth 2010 for the p-value). There is no split, no classifier, and no seed that decides.

The statistics are means of features, minus their means over the orbits, in units of their spread over the orbits: the
entries themselves, squares and products, gradients over several distances for pictures, moments for points, and random
waves that see any difference in the end. The largest counts, in units of its spread over the draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from lib.checks import check_float, check_int, generator_of
from lib.reader.features import families as families_of
from lib.reader.moves import Action, Group, group_of, move, words
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal

FEWEST, LARGEST = 20, 4000  # samples that are tested
_DRAWS = 12  # elements for each sample of an infinite or large group
_NEAR = 1e-4  # distance of near copies, relative to the spread
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
_SEEN = 0.8  # share of planted asymmetries that must be found


@dataclass(frozen=True)
class SymmetryReport:
    """What the samples say about the symmetry of their law.

    Attributes
    ----------
    verdict : str
        ``"asymmetric"``, ``"nothing seen"`` or ``"too few samples"``; never "symmetric", which no sample shows.
    p_value : float
        Of the hypothesis that the law is invariant; exact.
    visible : float
        The smallest share of samples in one pose, all others in random ones, that was seen in 80 % of trials on these
        data; NaN if none was.
    family : str
        The features that differ most.
    samples, copies : int
        Samples that were tested, and exact or near copies that were left out.
    """

    verdict: str
    p_value: float
    visible: float
    family: str
    samples: int
    copies: int
    given: int
    level: float
    table: pd.DataFrame = field(repr=False)  #: the p-value of every family of features
    subgroups: pd.DataFrame = field(repr=False)  #: the same test for every subgroup of a small group

    def summary(self) -> str:
        """Return the report in words."""
        lines = [f"{self.verdict.upper()}: p = {self.p_value:.3g} at level {self.level:g} ({self.samples} samples)"]
        if self.verdict == "asymmetric":
            lines.append(f"seen in: {self.family}")
        seen = f"one sample in {1 / self.visible:.3g}" if self.visible == self.visible else "not even most samples"
        lines.append(f"an asymmetry that would have been seen: {seen} upright, all others in random poses")
        if self.copies:
            lines.append(f"{self.copies} exact or near copies of samples were left out")
        if self.samples + self.copies < self.given:
            lines.append(f"sampled from {self.given}")
        if len(self.subgroups):
            words = [f"{n}: {v}" for n, v in zip(self.subgroups["subgroup"], self.subgroups["verdict"], strict=True)]
            lines.append("subgroups: " + "; ".join(words))
        return "\n".join(lines)


def symmetry_report(
    data: Any,
    group: str | Sequence[Any],
    action: Action,
    target: Any = None,
    action_target: Action = "still",
    *,
    level: float = 0.05,
    draws: int = 399,
    trials: int = 10,
    seed: int = 0,
) -> SymmetryReport:
    """Test whether the law of samples (with their targets) is invariant, and say what could have been seen.

    Parameters
    ----------
    data
        An array or tensor ``(n, …)`` of real numbers: pictures ``(n, h, w)`` or ``(n, c, h, w)``, columns ``(n, k)``,
        points ``(n, d)`` or clouds of points in any order ``(n, p, d)``.
    group, action
        As for :func:`lib.reader.moves.group_of`; for moves of your own, a list of all elements but the identity and a
        function of an element and a tensor.
    target
        Classes (integers, strings, Booleans) or numbers (floats), ``(n,)`` or ``(n, k)``: then pairs are tested.
    action_target
        How the group moves numbers of the target.
    level
        The verdict is "asymmetric" with at most this probability if the law is invariant.
    draws
        Of moved samples; the smallest p-value is 1/(draws + 1).
    trials
        For each planted asymmetry, to find out what would have been seen; 0 leaves that out, and "too few" with it.
    seed
        Of the draws.

    Raises
    ------
    ValueError
        What would give a number without a meaning; the message says what to do.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(300, 2)) + [0.5, 0]
    >>> symmetry_report(x, "C2", "rotate").verdict
    'asymmetric'
    """
    x = _array("data", data)
    given, rng = len(x), generator_of(check_int("seed", seed, minimum=0), 23)
    check_float("level", level, 1e-6, 0.5)
    check_int("draws", draws, minimum=19)
    y, classes = _target(target, x, action_target)
    kept = torch.randperm(given, generator=rng)[:LARGEST].sort().values
    first = _first_of_copies(torch.cat([t.flatten(1) for t in (x, y, classes) if t is not None], 1)[kept])
    kept, copies = kept[first], int((~first).sum())
    if len(kept) < FEWEST:
        raise ValueError(f"data must hold at least {FEWEST} different samples, got {len(kept)} and {copies} copies")
    x, y, classes = (None if t is None else t[kept] for t in (x, y, classes))
    found = group_of(group, action, x)
    pools = _pools(found, [(x, action), (y, action_target)], rng)
    _check_moves(found, action, x)
    families = dict(families_of(found, pools, classes, rng))
    table, p = _ranked(families, draws, rng)
    visible = _visible(families, draws, level, rng, trials) if trials else math.nan
    verdict = "asymmetric" if p <= level else "nothing seen" if visible <= 0.5 or not trials else "too few samples"
    below = _subgroups(found, action, x, families, draws, level, rng) if found.whole else pd.DataFrame()
    best = str(table.loc[table["p-value"].idxmin(), "features"])
    return SymmetryReport(verdict, p, visible, best, len(kept), copies, given, level, table, below)


def _array(name: str, data: Any) -> Tensor:
    """Refuse what is no array of samples."""
    array = data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype}: turn words into numbers, drop ragged rows")
    if array.ndim < 2:
        raise ValueError(f"{name} must be samples, each of them an array, got the shape {array.shape}")
    x = torch.as_tensor(array.astype(np.float64))
    bad = ~x.flatten(1).isfinite().all(1)
    if bool(bad.any()):
        raise ValueError(f"{name} must be finite, but {int(bad.sum())} samples are not, first {int(bad.nonzero()[0])}")
    if len(x) and float(x.flatten(1).std(0).max()) == 0:
        raise ValueError(f"{name} must vary: all samples are the same")
    return x


def _target(target: Any, x: Tensor, action: Action) -> tuple[Tensor | None, Tensor | None]:
    """Return numbers (n, k), or classes as columns (n, classes)."""
    if target is None:
        return None, None
    array = target.detach().cpu().numpy() if isinstance(target, Tensor) else np.asarray(target)
    if len(array) != len(x):
        raise ValueError(f"target must have one entry for each of {len(x)} samples, got {len(array)}")
    if array.dtype.kind == "f" or action != "still":
        return _array("target", array.reshape(len(array), -1) if array.ndim < 2 else array), None
    names, number = np.unique(array.reshape(len(array), -1)[:, 0].astype(str), return_inverse=True)
    if not 2 <= len(names) <= max(2, len(x) // 5):
        raise ValueError(
            f"target must be two classes or more, at most one in five samples, got {len(names)}; or floats"
        )
    return None, torch.nn.functional.one_hot(torch.as_tensor(number)).double()


def _first_of_copies(rows: Tensor) -> Tensor:
    """Return which rows are the first of their cluster of exact or near copies, (n,)."""
    rows = (rows - rows.mean(0)) / rows.std(0).clamp(min=1e-300)
    sketch = rows @ torch.randn(rows.shape[1], 6, generator=generator_of(3), dtype=rows.dtype) / rows.shape[1] ** 0.5
    pairs = cKDTree(sketch.numpy()).query_pairs(2.5 * _NEAR, output_type="ndarray")
    near = (rows[pairs[:, 0]] - rows[pairs[:, 1]]).square().mean(1).sqrt().numpy() < _NEAR if len(pairs) else []
    pairs = pairs[near] if len(pairs) else pairs
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(rows), len(rows)))
    _, cluster = connected_components(links, directed=False)
    first = np.zeros(len(rows), dtype=bool)
    first[np.unique(cluster, return_index=True)[1]] = True
    return torch.as_tensor(first)


def _pools(group: Group, parts: list[tuple[Tensor | None, Action]], rng: torch.Generator) -> list[Tensor | None]:
    """Return each part of the samples, and moved by all elements, or by some drawn for each sample: (K, n, …)."""
    n = len(parts[0][0])  # type: ignore[arg-type]
    drawn = [] if group.whole or group.kind == "own" else [_draw(group, n, rng) for _ in range(_DRAWS)]
    pools: list[Tensor | None] = []
    for x, action in parts:
        if x is None or words(action)[0] == "still":
            pools.append(None if x is None else x.expand(1 + len(drawn or group.elements), *x.shape))
        elif drawn:
            pools.append(torch.stack([x, *(_each(group, action, g, x) for g in drawn)]))
        else:
            pools.append(torch.stack([x, *(move(action, g, x) for g in group.elements)]))  # type: ignore[list-item]
    return pools


def _draw(group: Group, n: int, rng: torch.Generator) -> Tensor:
    """Return a random element for every sample."""
    if group.kind == "permute":
        return torch.rand(n, group.size, generator=rng).argsort(1)
    if group.kind == "shift":
        return torch.rand(n, 2, generator=rng)
    return (SpecialOrthogonal if group.name.startswith("SO") else Orthogonal)(group.size).sample(n, rng)


def _each(group: Group, action: Action, g: Tensor, x: Tensor) -> Tensor:
    """Return every sample moved by an element of its own."""
    if group.kind == "shift":
        h, w = x.shape[-2:]
        down, right = ((torch.arange(s) - (g[:, [k]] * s).long()) % s for k, s in enumerate((h, w)))  # (n, s)
        flat = x.reshape(len(x), -1, h, w)
        at = torch.arange(len(x))[:, None, None]
        return flat.movedim(1, -1)[at, down[:, :, None], right[:, None, :]].movedim(-1, 1).reshape(x.shape)
    for axis in words(action)[1]:
        y = x.movedim(axis, -1)
        if group.kind == "permute":
            at = g.view(len(x), *[1] * (y.ndim - 2), -1).expand(y.shape)
            y = y.gather(-1, at)
        else:
            y = torch.einsum("nij,n...j->n...i", g, y)
        x = y.movedim(-1, axis)
    return x


def _check_moves(group: Group, action: Action, x: Tensor) -> None:
    """Refuse moves of a reader's own that are no group: all products must be among them."""
    if group.kind != "own":
        return
    some = x[:8]
    images = [some, *(move(action, g, some) for g in group.elements)]
    for k, g in enumerate(group.elements):
        for image in images:
            moved = move(action, g, image)  # type: ignore[arg-type]
            if min(float((moved - i).abs().max()) for i in images) > 1e-6 * float(some.abs().max()):  # type: ignore
                raise ValueError(f"your moves must form a group, but element {k} after another one is none of them")


def _statistics(features: Tensor, chosen: Tensor) -> Tensor:
    """Return, for every choice of a pose for each sample (B, n), the sum and the largest of squared scores, (B, 2)."""
    K = len(features)
    centred = features - features.mean(0)  # what every orbit adds on its own
    spread = centred.square().mean(0).sum(0).sqrt().clamp(min=1e-6)  # (p,): of the sum over samples
    total = torch.zeros(len(chosen), features.shape[2])
    for k in range(K):
        total += (chosen == k).float() @ centred[k]
    z = (total / spread).square()
    return torch.stack([z.sum(1), z.amax(1)], 1)


def _poses(K: int, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Return random numbers of images, the sample itself among them."""
    return torch.randint(K, shape, generator=rng)


def _ranked(
    families: dict[str, Tensor], draws: int, rng: torch.Generator, first: Tensor | None = None
) -> tuple[pd.DataFrame, float]:
    """Return the p-values of all families, and of the smallest of them, ranked among those of the draws."""
    K, n, _ = next(iter(families.values())).shape
    chosen = _poses(K, (1 + draws, n), rng)
    chosen[0] = 0 if first is None else first
    found = torch.cat([_statistics(f, chosen) for f in families.values()], 1)  # (1 + B, 2·families)
    larger = (found >= found[0] * (1 - 1e-6)).sum(0)  # (2·families,): how many are as large
    logs = found.clamp(min=1e-12).double().log()
    score = ((logs - logs.mean(0)) / logs.std(0).clamp(min=1e-9)).amax(1)  # (1 + B,), in units of the draws' spread
    p = float((score >= score[0] - 1e-6).double().mean())
    each = (larger.view(-1, 2).amin(1).double() / (1 + draws)).tolist()
    return pd.DataFrame({"features": list(families), "p-value": each}), p


def _visible(families: dict[str, Tensor], draws: int, level: float, rng: torch.Generator, trials: int) -> float:
    """Return the smallest share of samples in one pose, the others in random ones, that is seen in most trials.

    The pose is that of the largest first score of the first family: one that depends on the orbit alone.
    """
    f = next(iter(families.values()))
    K, n, p = f.shape
    pose = (f @ torch.randn(p, generator=rng)).argmax(0)
    low, high = 0, len(_SHARES)  # the larger the share, the easier it is seen
    while low < high:
        middle, seen = (low + high) // 2, 0
        for _ in range(trials):
            upright = torch.rand(n, generator=rng) < _SHARES[middle]
            planted = torch.where(upright, pose, _poses(K, (n,), rng))
            seen += _ranked(families, min(draws, 99), rng, planted)[1] <= level
        low, high = (low, middle) if seen >= _SEEN * trials else (middle + 1, high)
    return _SHARES[low] if low < len(_SHARES) else math.nan


def _subgroups(
    group: Group, action: Action, x: Tensor, families: dict[str, Tensor], draws: int, level: float, rng: torch.Generator
) -> pd.DataFrame:
    """Test every subgroup of a group of at most 24 elements that two elements generate."""
    if len(group.elements) > 23:
        return pd.DataFrame()
    probe = torch.rand(2, *x.shape[1:], generator=generator_of(5), dtype=torch.float64)

    def act(k: int, t: Tensor) -> Tensor:
        return t if k == 0 else move(action, group.elements[k - 1], t)  # type: ignore[return-value]

    images = torch.stack([act(k, probe) for k in range(1 + len(group.elements))])
    table = [[int((images - act(a, i)).abs().flatten(1).amax(1).argmin()) for i in images] for a in range(len(images))]
    found: set[frozenset[int]] = set()
    for pair in itertools.combinations_with_replacement(range(1, len(images)), 2):
        closed, grown = {0}, {0, *pair}
        while grown != closed:
            closed, grown = grown, grown | {table[a][b] for a in grown for b in grown}
        found.add(frozenset(closed))
    rows = []
    for members in sorted(found, key=lambda m: (len(m), sorted(m))):
        some = {name: f[sorted(members)] for name, f in families.items()}
        p = _ranked(some, draws, rng)[1]
        name = "all" if len(members) == len(images) else ", ".join(group.names[k - 1] for k in sorted(members) if k)
        rows.append((name, len(members), p, "asymmetric" if p <= level else "nothing seen"))
    return pd.DataFrame(rows, columns=["subgroup", "order", "p-value", "verdict"])
