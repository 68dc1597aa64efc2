"""What a reader's array must be, what of it is used, and how the group moves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from lib.checks import generator_of, unit_of
from lib.reader.moves import Action, Group, group_of, move, words
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal

FEWEST, LARGEST = 20, 4000  # samples that are used
_DRAWS = 12  # elements for each sample of an infinite or large group
_NEAR = 1e-4  # distance of near copies, relative to the spread


@dataclass(frozen=True)
class Samples:
    """Samples of which no two are copies, their targets, and all of them moved.

    ``images`` and ``moved`` hold the samples and their numbers ``(n, …)`` moved by every element of the group, the
    identity first, or by random elements of a large group: ``(K, n, …)``.
    """

    x: Tensor
    y: Tensor | None  #: numbers (n, k)
    classes: Tensor | None  #: one column each
    group: Group
    images: Tensor
    moved: Tensor | None
    given: int
    copies: int
    drawn: bool  #: whether elements are drawn for each sample

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.x)


def samples(
    data: Any,
    group: str | Any,
    action: Action,
    target: Any,
    action_target: Action,
    rng: torch.Generator,
    fewest: int = FEWEST,
) -> Samples:
    """Return what is used of a reader's data; a ``ValueError`` says in one line what to do."""
    x = check_array("data", data)
    given = len(x)
    y, classes = targets(target, x, action_target)
    if not callable(action):  # the others are linear
        x, y = x / unit_of(x), None if y is None else y / unit_of(y)
    kept = torch.randperm(given, generator=rng, device="cpu")[:LARGEST].sort().values
    first = _first_of_copies(torch.cat([t.flatten(1) for t in (x, y, classes) if t is not None], 1)[kept])
    kept, copies = kept[first], int((~first).sum())
    if len(kept) < fewest:
        raise ValueError(f"data must hold at least {fewest} different samples, got {len(kept)} and {copies} copies")
    x, y, classes = (None if t is None else t[kept] for t in (x, y, classes))
    found = group_of(group, action, x)
    if found.kind == "own":
        product_table(found, action, x[:20])
    images, moved = pools(found, [(x, action), (y, action_target)], rng)
    drawn = not (found.whole or found.kind == "own")
    return Samples(x, y, classes, found, images, moved, given, copies, drawn)


def check_array(name: str, data: Any) -> Tensor:
    """Refuse what is no array of samples."""
    array = _array(data)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype}: turn words into numbers, drop ragged rows")
    if array.ndim < 2 or not array.size:
        raise ValueError(f"{name} must be samples, each of them an array, got the shape {array.shape}")
    x = torch.from_numpy(array.astype(np.float64, order="C"))
    bad = ~x.flatten(1).isfinite().all(1)
    if bool(bad.any()):
        raise ValueError(f"{name} must be finite, but {int(bad.sum())} samples are not, first {int(bad.nonzero()[0])}")
    if bool((x == x[:1]).all()):
        raise ValueError(f"{name} must vary: all samples are the same")
    return x


def targets(target: Any, x: Tensor, action: Action) -> tuple[Tensor | None, Tensor | None]:
    """Return numbers (n, k), or classes as columns (n, classes)."""
    if target is None:
        return None, None
    array = _array(target)
    if len(array) != len(x):
        raise ValueError(f"target must have one entry for each of {len(x)} samples, got {len(array)}")
    if array.dtype.kind == "f" or action != "still":
        return check_array("target", array[:, None] if array.ndim < 2 else array), None
    names, number = np.unique(array.reshape(len(array), -1)[:, 0].astype(str), return_inverse=True)
    if not 2 <= len(names) <= max(2, len(x) // 5):
        allowed = "two classes or more, at most one in five samples"
        raise ValueError(f"target must be {allowed}, got {len(names)}; or floats")
    return None, torch.nn.functional.one_hot(torch.from_numpy(number)).double()


def _array(data: Any) -> np.ndarray:
    return data.detach().cpu().numpy() if isinstance(data, Tensor) else np.asarray(data)


def _first_of_copies(rows: Tensor) -> Tensor:
    """Return which rows are the first of their cluster of exact or near copies, (n,)."""
    rows = (rows - rows.mean(0)) / rows.std(0).clamp(min=1e-300)
    directions = torch.randn(rows.shape[1], 6, generator=generator_of(3), dtype=rows.dtype, device="cpu")
    sketch = rows @ directions / rows.shape[1] ** 0.5
    a, b = cKDTree(sketch.numpy()).query_pairs(2.5 * _NEAR, output_type="ndarray").reshape(-1, 2).T
    near = (rows[a] - rows[b]).square().mean(1).sqrt().numpy() < _NEAR
    links = coo_array((np.ones(near.sum()), (a[near], b[near])), shape=(len(rows), len(rows)))
    _, cluster = connected_components(links, directed=False)
    return torch.from_numpy(np.isin(np.arange(len(rows)), np.unique(cluster, return_index=True)[1]))


def pools(group: Group, parts: list[tuple[Tensor | None, Action]], rng: torch.Generator) -> list[Tensor | None]:
    """Return each part of the samples, and moved by all elements, or by some drawn for each sample: (K, n, …)."""
    n = len(parts[0][0])
    drawn = [] if group.whole or group.kind == "own" else [_draw(group, n, rng) for _ in range(_DRAWS)]

    def pool(x: Tensor | None, action: Action) -> Tensor | None:
        if x is None or words(action)[0] == "still":
            return None if x is None else x.expand(1 + len(drawn or group.elements), *x.shape)
        moved = (_each(group, action, g, x) for g in drawn) if drawn else (move(action, g, x) for g in group.elements)
        return torch.stack([x, *moved])

    return [pool(x, action) for x, action in parts]


def _draw(group: Group, n: int, rng: torch.Generator) -> Tensor:
    """Return a random element for every sample."""
    if group.kind == "permute":
        return torch.rand(n, group.size, generator=rng, dtype=torch.float32, device="cpu").argsort(1)
    if group.kind == "shift":
        return torch.rand(n, 2, generator=rng, device="cpu", dtype=torch.float32)
    return (SpecialOrthogonal if group.name.startswith("SO") else Orthogonal)(group.size).sample(n, rng)


def _each(group: Group, action: Action, g: Tensor, x: Tensor) -> Tensor:
    """Return every sample moved by an element of its own."""
    if group.kind == "shift":
        h, w = x.shape[-2:]
        sides = [torch.arange(side, device="cpu") for side in (h, w)]
        down, right = ((s - (g[:, [k]] * len(s)).long()) % len(s) for k, s in enumerate(sides))  # (n, h), (n, w)
        flat = x.reshape(len(x), -1, h, w)
        at = torch.arange(len(x), device="cpu")[:, None, None]
        return flat.movedim(1, -1)[at, down[:, :, None], right[:, None, :]].movedim(-1, 1).reshape(x.shape)
    for axis in words(action)[1]:
        y = x.movedim(axis, -1)
        if group.kind == "permute":
            y = y.gather(-1, g.view(len(x), *[1] * (y.ndim - 2), -1).expand(y.shape))
        else:
            y = torch.einsum("nij,n...j->n...i", g, y)
        x = y.movedim(-1, axis)
    return x


def product_table(group: Group, action: Action, some: Tensor) -> list[list[int]]:
    """Return the number of every product, found on some samples; refuse moves of a reader's own that are no group."""
    elements = group.elements

    def act(k: int, t: Tensor) -> Tensor:
        return t if k == 0 else move(action, elements[k - 1], t)

    images = torch.stack([act(k, some) for k in range(1 + len(elements))])  # (K, n, …)
    size, table = images.abs().max(), []
    allowed = float(1e-6 * (images.amax(1) - images.amin(1)).max() + 1e-14 * size)
    for a in range(len(images)):
        gaps = [(images - act(a, image)).abs().flatten(1).amax(1) for image in images]
        table.append([int(gap.argmin()) for gap in gaps])
        if max(float(gap.min()) for gap in gaps) > allowed:
            raise ValueError(f"your moves must form a group, but element {a - 1} after another one is none of them")
        if len(set(table[-1])) < len(images):
            raise ValueError(f"your moves must differ and be undone by one another; look at element {a - 1}")
    return table
