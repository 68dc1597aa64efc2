"""Is a law symmetric? A classifier tells data from other data that were moved at random.

A sample of a law P, or of its average over the group, is shown with equal chances. The best classifier is right with
probability ½ + ½ TV(P, P̄), which is ½ if and only if P is invariant and at most ½ + ½(1 − 1/|G|). After Lopez-Paz and
Oquab (2017, "Revisiting classifier two-sample tests") and Lawrence et al. (2025, arXiv 2510.01349).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

from lib.checks import check_int
from lib.device import default_device

LEAST = 60  # samples
BLIND = 0.01  # share of the squared distance between samples that moves; with less the classifier sees nothing
Move = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Score:
    """How many guesses were right.

    Attributes
    ----------
    right, of : int
        Right guesses, and all: binomial, whatever the classifier.
    ceiling : float
        ½ + ½(1 − 1/|G|), the accuracy that no classifier exceeds.
    copies : int
        Samples that were left out since they equal another one: a copy on the other side gives the coin away.
    moved : float
        Mean squared distance of a sample and its moved image, relative to that of two samples.
    """

    right: int
    of: int
    ceiling: float
    copies: int = 0
    moved: float = 1.0

    @property
    def blind(self) -> bool:
        """Whether what moves carries next to none of the distance: then that nothing was found means nothing.

        Columns that stay, in large units, hide those that move. Standardise the columns, alike where one is moved to
        the other, and test again.
        """
        return self.moved < BLIND

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return self.right / self.of

    def interval(self, level: float = 0.999) -> tuple[float, float]:
        """Return Clopper and Pearson's exact confidence interval of the classifier's accuracy."""
        found = binomtest(self.right, self.of).proportion_ci(level, "exact")
        return float(found.low), float(found.high)

    def p_value(self, at: float = 0.5, side: str = "two-sided") -> float:
        """Return the exact p-value of the hypothesis that the accuracy is ``at``.

        ``side`` is what is held against it: ``"two-sided"``, ``"greater"`` or ``"less"``.
        """
        return float(binomtest(self.right, self.of, at, side).pvalue)


def symmetry_test(
    x: Any, moves: Sequence[Move], labels: Any = None, seed: int = 0, largest: int = 2000, device: str = ""
) -> Score:
    """Return how well samples are told from other samples that were moved at random.

    A coin decides for each sample by itself whether it is moved, by a uniformly random element; so no sample is on both
    sides. Kernel ridge regression learns the coins of a third of the samples and guesses those of the others.

    Parameters
    ----------
    x
        Samples, an array ``(n, …)`` of at least 60.
    moves
        The elements of the group, as functions of such arrays; the identity is one of them.
    labels
        Classes that belong to the samples and do not move, shape ``(n,)``, at most one for ten samples: then pairs
        are tested. Numbers are no classes: what is measured and stays belongs into columns of ``x``.
    seed
        Of the order, the coins and the moves.
    largest
        At most so many samples are learnt from.
    device
        As in :func:`lib.device.default_device`.

    Raises
    ------
    ValueError
        What would give a number without a meaning; the message says how to mend it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(600, 2)) + [3, 0]  # far to the right
    >>> score = symmetry_test(x, [lambda v: v, lambda v: -v])
    >>> score.ceiling, score.accuracy > 0.65
    (0.75, True)
    """
    x, moves = _samples(x), list(moves)
    if len(moves) < 2 or not all(map(callable, moves)):
        raise ValueError(f"moves must be two functions or more, got {moves!r}")
    _check_group(x[:20], moves)
    given = np.zeros((len(x), 0)) if labels is None else _columns(labels, x)
    rng = np.random.default_rng(check_int("seed", seed, minimum=0))
    single = sorted({row.tobytes(): place for place, row in reversed(list(enumerate(x + 0.0)))}.values())
    if (copies := len(x) - len(single)) and len(single) < LEAST:
        raise ValueError(f"x must hold at least {LEAST} different samples, got {len(single)} and {copies} copies")
    x, given = x[single], given[single]
    order = rng.permutation(len(x))
    x, given = x[order], given[order]
    coin, which = rng.integers([[2], [len(moves)]], size=(2, len(x)))
    images = _images(x, moves)
    piles = images[which, np.arange(len(x))]
    piles[coin == 0] = x[coin == 0]
    total = _spread(np.hstack([x.reshape(len(x), -1), given]))
    moved = np.square((images - x) / total).sum() / (2 * len(moves) * len(x))
    piles = np.hstack([piles.reshape(len(x), -1), given])
    piles = (piles - piles.mean(0)) / _spread(piles)
    part = min(len(x) // 3, check_int("largest", largest, minimum=LEAST // 3))
    guess = _classify(piles[:part], coin[:part], piles[part:], default_device(device))
    right = int((guess == coin[part:]).sum())
    return Score(right, len(x) - part, 1 - 0.5 / len(moves), copies, float(moved))


def _classify(x: np.ndarray, coin: np.ndarray, z: np.ndarray, device: torch.device) -> np.ndarray:
    """Guess the coins of z by ridge regression with a Gaussian kernel."""
    known, new = (torch.as_tensor(v, device=device) for v in (x, z))
    signs = torch.as_tensor(2.0 * coin - 1, device=device)[:, None]
    square = torch.cdist(known, known).square()  # (n, n)
    width = square.mean().clamp(min=torch.finfo(square.dtype).tiny) / 2
    eye = torch.eye(len(known), dtype=known.dtype, device=device)
    L = torch.linalg.cholesky((-square / width).exp() + 1e-3 * len(known) * eye)
    weights = torch.cholesky_solve(signs, L)
    near = (-torch.cdist(new, known).square() / width).exp()
    return ((near @ weights)[:, 0] > 0).cpu().numpy()


def _samples(x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind not in "biuf":
        raise ValueError(f"x must hold real numbers, got {x.dtype}")
    if x.ndim < 2 or len(x) < LEAST:
        raise ValueError(f"x must hold at least {LEAST} samples, each of them an array, got the shape {x.shape}")
    finite = np.isfinite(x).reshape(len(x), -1).all(1)
    if not finite.all():
        raise ValueError(f"x must be finite, but sample {finite.argmin()} is not")
    return x.astype(float)


def _columns(labels: Any, x: np.ndarray) -> np.ndarray:
    """Labels as columns, as far apart as samples are."""
    labels = np.asarray(labels)
    if labels.shape != x.shape[:1]:
        raise ValueError(f"labels must be one label for each of {len(x)} samples, got the shape {labels.shape}")
    if any(isinstance(label, (float, complex)) for label in labels.tolist()):
        raise ValueError(f"labels must be classes, integers or strings, got {labels.dtype}; numbers belong into x")
    classes, label = np.unique(labels, return_inverse=True)
    if not 2 <= len(classes) <= len(x) // 10:
        allowed = f"two classes or more, at most {len(x) // 10} for {len(x)} samples"
        raise ValueError(f"labels must be of {allowed}, got {len(classes)}")
    return _spread(x) * np.eye(len(classes))[label]


def _spread(x: np.ndarray) -> float:
    """Return the root of the mean squared distance from the mean, whatever the scale; 1 where all samples agree."""
    centred = x.reshape(len(x), -1) - x.reshape(len(x), -1).mean(0)
    unit = np.abs(centred).max() or 1.0
    return float(unit * np.sqrt(np.square(centred / unit).sum() / len(x))) or 1.0


def _images(x: np.ndarray, moves: Sequence[Move]) -> np.ndarray:
    """All images of the samples, ``(|G|, n, …)``."""
    found = []
    for k, move in enumerate(moves):
        wrong = f"moves[{k}] does not act on samples of shape {x.shape[1:]}"
        try:
            image = np.asarray(move(x.copy()), dtype=float)
        except Exception as error:  # a reader's own function raises what it likes
            raise ValueError(f"{wrong}: {error}") from None
        if image.shape != x.shape:
            raise ValueError(f"{wrong}: it makes {image.shape[1:]} of them")
        found.append(image)
    return np.stack(found)


def _check_group(x: np.ndarray, moves: Sequence[Move]) -> None:
    """Compare all products of two moves with the moves, on some samples."""
    known = _images(x, moves)
    size = 1e-6 * np.ptp(known, axis=(0, 1)).max() + 64 * np.finfo(float).eps * np.abs(known).max()

    def number(image: np.ndarray) -> int | None:
        gap = np.abs(known - image).reshape(len(moves), -1).max(1)
        return int(np.argmax(gap <= size)) if (gap <= size).any() else None

    for k, image in enumerate(known):
        if (same := number(image)) != k:
            raise ValueError(f"moves must differ, but moves[{same}] and moves[{k}] do the same to these samples")
    for j, image in enumerate(known):
        row = [number(second) for second in _images(image, moves)]
        if None in row:
            raise ValueError(f"moves must form a group: moves[{j}] and then moves[{row.index(None)}] is none of them")
        if len(set(row)) < len(row):
            raise ValueError(f"moves must form a group: moves[{j}] has no inverse")
