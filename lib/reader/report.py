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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from lib.checks import check_float, check_int, generator_of
from lib.reader.door import Samples, product_table, samples
from lib.reader.moves import Action
from lib.reader.scale import LEAST, SHARES, Score, classified, kinds, smallest, with_asymmetry

_COLUMNS = 400  # of a family of features


@dataclass(frozen=True)
class SymmetryReport:
    """What the samples say about the symmetry of their law.

    The verdict is ``"asymmetric"``, ``"nothing seen"`` or ``"too few samples"``; never "symmetric", which no sample
    shows.
    """

    verdict: str
    p_value: float  #: of the hypothesis that the law is invariant; exact
    visible: float  #: smallest share of samples in one pose, others in random ones, seen in 80 % of trials; NaN if none
    family: str  #: the features that differ most
    score: Score | None  #: how well a classifier tells the samples from moved ones; None below 60 samples
    samples: int  #: how many were tested
    copies: int  #: exact or near copies that were left out
    given: int
    level: float
    table: pd.DataFrame = field(repr=False)  #: the p-value of every family of features
    planted: pd.DataFrame = field(repr=False)  #: of each kind, the smallest asymmetry that would have been seen
    subgroups: pd.DataFrame = field(repr=False)  #: the verdict at every subgroup of a small group

    def summary(self) -> str:
        """Return the report in words."""
        lines = [f"{self.verdict.upper()}: p = {self.p_value:.3g} at level {self.level:g} ({self.samples} samples)"]
        if self.verdict == "asymmetric":
            lines.append(f"seen in: {self.family}")
        if self.score:
            low, high = self.score.interval(0.95)
            lines.append(
                f"a classifier tells samples from moved ones in {self.score.accuracy:.0%} of cases ({low:.0%} to "
                f"{high:.0%}); ½ is the least, {self.score.ceiling:.0%} the most there is"
            )
        seen = f"one sample in {1 / self.visible:.3g}" if self.visible == self.visible else "not even most samples"
        lines.append(f"an asymmetry that would have been seen: {seen} upright, all others in random poses")
        for row in self.planted.itertuples(index=False):
            size = f"{row.smallest:g}" if row.smallest == row.smallest else f"not even {row.largest:g}"
            lines.append(f"or a {row.kind}: {size} {row.unit}")
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

    The data are an array or tensor ``(n, …)`` of real numbers: pictures ``(n, h, w)`` or ``(n, c, h, w)``, columns
    ``(n, k)``, points ``(n, d)`` or clouds of points in any order ``(n, p, d)``. Group and action are as for
    :func:`lib.reader.moves.group_of`; for moves of your own, a list of all elements but the identity and a function of
    an element and a tensor. With a target, classes (integers, strings, Booleans) or numbers (floats), ``(n,)`` or
    ``(n, k)``, pairs are tested; ``action_target`` is how the group moves numbers of it.

    The verdict is "asymmetric" with at most the probability ``level`` if the law is invariant. The samples are moved in
    so many ``draws`` at random: the smallest p-value is 1/(draws + 1). For each planted asymmetry so many ``trials``
    find out what would have been seen (half as many for kinds other than a share); 0 leaves that out, and "too few"
    with it. What would give a number without a meaning is refused: a ``ValueError`` says what to do.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(300, 2)) + [0.5, 0]
    >>> symmetry_report(x, "C2", "rotate").verdict
    'asymmetric'
    """
    rng = generator_of(check_int("seed", seed, minimum=0), 23)
    check_float("level", level, 1e-6, 0.5)
    check_int("draws", draws, minimum=19)
    s = samples(data, group, action, target, action_target, rng)
    families = dict(families_of(s, rng))
    table, p = _ranked(families, draws, rng)
    visible, planted = math.nan, []
    if trials:
        fewer = min(draws, 99)

        def upright(share: float) -> bool:
            return _ranked(families, fewer, rng, _in_one_pose(families, share, rng))[1] <= level

        visible = smallest(SHARES, upright, trials)
        for kind in kinds(s, action):

            def shown(size: float, kind: Any = kind) -> bool:
                other = with_asymmetry(s, kind, size, (action, action_target), rng)
                return _ranked(dict(families_of(other, rng)), fewer, rng)[1] <= level

            found = smallest(kind.sizes, shown, -(-trials // 2))
            planted.append((kind.name, found, kind.sizes[-1], kind.unit))
    return SymmetryReport(
        verdict="asymmetric" if p <= level else "nothing seen" if visible <= 0.5 or not trials else "too few samples",
        p_value=p,
        visible=visible,
        family=str(table.loc[table["p-value"].idxmin(), "features"]),
        score=classified(s, seed) if s.n >= LEAST else None,
        samples=s.n,
        copies=s.copies,
        given=s.given,
        level=level,
        table=table,
        planted=pd.DataFrame(planted, columns=["kind", "smallest", "largest", "unit"]),
        subgroups=_subgroups(s, action, families, p, draws, level, rng) if s.group.whole else pd.DataFrame(),
    )


def families_of(s: Samples, rng: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Yield features of samples and of their images by name, (K, n, p), float32, standardised over all of them."""
    X, flat, made = s.images, s.images.flatten(2), []
    if s.group.kind in ("pixels", "shift"):
        pictures = X.reshape(*X.shape[:2], -1, *X.shape[-2:]).float()
        made.append(("pixels", _coarse(pictures, 12)))
        made.append(("gradients", _gradients(pictures)))
        flat = _coarse(pictures, 8).double()
    elif s.group.kind == "rotate":
        made.append(("moments", _moments(X if X.ndim > 3 else X[:, :, None])))
        if X.ndim > 3:  # points in any order
            flat = made[-1][1].double()
    else:
        made.append(("columns", flat))
        z = _standard(flat)[:, :, : int(_COLUMNS**0.5)]
        made.append(("products", torch.einsum("knp,knq->knpq", z, z).flatten(2)))
    made.append(("waves", _waves(_standard(flat), rng)))
    labels = None if s.classes is None else _standard(s.classes[None])[0]
    for name, features in made:
        z = _standard(features)[:, :, :_COLUMNS]
        yield name, z.float()
        if labels is not None and labels.shape[1] * z.shape[2] <= 20 * _COLUMNS:
            yield f"{name} by class", torch.einsum("knp,nc->knpc", z, labels).flatten(2).float()
        if s.moved is not None:
            t = _standard(s.moved.flatten(2))[:, :, :20]
            joined = torch.einsum("knp,knc->knpc", z, torch.cat([t, t.square()], 2)).flatten(2)
            yield f"{name} with target", _standard(joined)[:, :, :_COLUMNS].float()


def _standard(x: Tensor) -> Tensor:
    """Return columns (K, n, p) with mean 0 and spread 1 over the whole pool, cut at 4; constant ones are left out."""
    rows = x.flatten(0, 1)
    spread = rows.std(0)
    varies = spread > 1e-9 * rows.abs().amax(0).clamp(min=1e-300)
    return ((x - rows.mean(0)) / spread.clamp(min=1e-300))[:, :, varies].clamp(-4, 4)


def _coarse(x: Tensor, side: int) -> Tensor:
    """Return pictures (K, n, c, h, w) as means over at most side × side blocks, (K, n, p)."""
    size = [min(side, s) for s in x.shape[-2:]]
    return torch.nn.functional.adaptive_avg_pool2d(x.flatten(0, 1), size).flatten(1).unflatten(0, x.shape[:2])


def _gradients(x: Tensor) -> Tensor:
    """Return squared differences over 1, 2 and 4 pixels, in four directions: means, and in 3 × 3 blocks; (K, n, p)."""
    found = []
    for lag in (lag for lag in (1, 2, 4) if lag < min(x.shape[-2:]) // 2):
        down, right = x[..., lag:, :] - x[..., :-lag, :], x[..., lag:] - x[..., :-lag]
        one, two = x[..., lag:, lag:] - x[..., :-lag, :-lag], x[..., lag:, :-lag] - x[..., :-lag, lag:]
        squares = [d.square().mean(2, keepdim=True) for d in (down, right, one, two)]
        means = [s.mean((-2, -1)) for s in squares]
        total = squares[0].mean((-3, -2, -1)) + squares[1].mean((-3, -2, -1)) + 1e-12
        shape = [((a - b)[..., 0] / total)[..., None] for a, b in ((means[0], means[1]), (means[2], means[3]))]
        found += [*means, *shape, *(_coarse(s, 3) for s in squares[:2])]  # the shape is that of single textures
    return torch.cat([f.flatten(2) for f in found], 2) if found else x.flatten(2)


def _moments(x: Tensor) -> Tensor:
    """Return means over points (K, n, q, d) of monomials of degree 1 to 4, (K, n, p)."""
    z = x / x.square().mean().sqrt()
    z = z / (1 + z.square().sum(-1, keepdim=True) / 9).sqrt()  # bounded, and it turns with the points
    d = min(z.shape[-1], 5)
    terms = [c for k in range(1, 5) for c in itertools.combinations_with_replacement(range(d), k)]
    return torch.stack([z[..., list(c)].prod(-1).mean(-1) for c in terms], -1)


def _waves(z: Tensor, rng: torch.Generator, count: int = 100) -> Tensor:
    """Return cosines and sines of random directions at two wavelengths, (K, n, 2·count): in the end they see all."""
    some = z[0, : min(200, z.shape[1])]
    typical = float(torch.cdist(some, some).median().clamp(min=1e-12))
    w = torch.randn(z.shape[2], count, generator=rng, dtype=z.dtype, device="cpu") / typical
    w[:, count // 2 :] *= 3
    phase = z @ w
    return torch.cat([phase.cos(), phase.sin()], 2)


def _statistics(features: Tensor, chosen: Tensor) -> Tensor:
    """Return, for every choice of a pose for each sample (B, n), the sum and the largest of squared scores, (B, 2)."""
    K = len(features)
    centred = features - features.mean(0)  # what every orbit adds on its own
    spread = centred.square().mean(0).sum(0).sqrt().clamp(min=1e-6)  # (p,): of the sum over samples
    total = features.new_zeros(len(chosen), features.shape[2])
    for k in range(K):
        total += (chosen == k).to(features) @ centred[k]
    z = (total / spread).square()
    return torch.stack([z.sum(1), z.amax(1)], 1)


def _poses(K: int, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Return random numbers of images, the sample itself among them."""
    return torch.randint(K, shape, generator=rng, device="cpu")


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


def _in_one_pose(families: dict[str, Tensor], share: float, rng: torch.Generator) -> Tensor:
    """Return poses (n,): random ones, but for a share of the samples that are put in one.

    The pose is that of the largest first score of the first family: one that depends on the orbit alone.
    """
    f = next(iter(families.values()))
    K, n, p = f.shape
    pose = (f @ torch.randn(p, generator=rng, dtype=f.dtype, device="cpu")).argmax(0)
    return torch.where(torch.rand(n, generator=rng, device="cpu") < share, pose, _poses(K, (n,), rng))


def _subgroups(
    s: Samples, action: Action, families: dict[str, Tensor], p_whole: float, draws: int, level: float, rng: Any
) -> pd.DataFrame:
    """Test the subgroups of a group of at most 24 elements; the level is that of all of them together.

    A law that is invariant under two subgroups is so under the group that they generate: the hypotheses are closed
    under intersection. So a subgroup may be rejected when it and all that contain it are, each at the full level, and
    some true one is with at most this probability (Marcus, Peritz and Gabriel 1976, closed testing).
    """
    if len(s.group.elements) > 23:
        return pd.DataFrame()
    whole = frozenset(range(1 + len(s.group.elements)))
    some = torch.rand(2, *s.x.shape[1:], generator=generator_of(5), dtype=s.x.dtype, device="cpu")
    table = product_table(s.group, action, some)

    def generated(members: set[int]) -> frozenset[int]:
        closed: set[int] = set()
        while closed != members:
            closed, members = members, members | {table[a][b] for a in members for b in members}
        return frozenset(closed)

    found = {generated({0, *pair}) for pair in itertools.combinations_with_replacement(range(1, len(whole)), 2)}
    while more := {generated({*a, *b}) for a, b in itertools.combinations(found, 2)} - found:
        found |= more
    rows: dict[frozenset[int], tuple[float, bool]] = {}
    for members in sorted(found, key=lambda m: (-len(m), sorted(m))):
        some = {name: f[sorted(members)] for name, f in families.items()}
        p = p_whole if members == whole else _ranked(some, draws, rng)[1]
        rows[members] = p, p <= level and all(out for larger, (_, out) in rows.items() if members < larger)
    said = []
    for members, (p, out) in reversed(rows.items()):
        name = "all" if members == whole else ", ".join(s.group.names[k - 1] for k in sorted(members) if k)
        said.append((name, len(members), p, "asymmetric" if out else "nothing seen"))
    return pd.DataFrame(said, columns=["subgroup", "order", "p-value", "verdict"])
