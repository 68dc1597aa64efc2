"""How a group that a reader names moves the arrays that a reader brings.

An action is a word: ``"pixels"`` (quarter turns and mirrors of the last two axes), ``"shift"`` (cyclic shifts of the
last two axes), ``"permute k"`` (entries along axis k, 1 by default), ``"rotate k"`` (coordinates along axis k, the last
by default), ``"still"``, or a function of an element and a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lib.checks import generator_of
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic, Dihedral, PermutationGroup
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal
from lib.symmetry.own_groups import named

SQUARE = {"C2": (2, 1), "C4": (4, 1), "D1": (1, 2), "D2": (2, 2), "D4": (4, 2)}  # turns, sides
KINDS = ("pixels", "shift", "permute", "rotate", "still")
Action = str | Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Group:
    """Elements of a group other than the identity, in the form in which an action of their kind wants them.

    ``"pixels"``: pairs (quarter turns, mirrored first); ``"shift"``: pairs of shares of the two sides; ``"permute"``:
    permutations; ``"rotate"``: orthogonal matrices; ``"own"``: whatever the reader gave.
    """

    name: str
    kind: str
    elements: tuple[Any, ...]
    names: tuple[str, ...]  #: of the elements
    size: int = 0  #: how many entries are permuted, or the dimension that is rotated
    whole: bool = True  #: whether the elements and the identity are the whole group


def words(action: Action) -> tuple[str, tuple[int, ...]]:
    """Return the kind of an action and the axes that it names; ``("own", ())`` for a function."""
    if callable(action):
        return "own", ()
    kind, *rest = str(action).replace("last", "-1").split() or [""]
    if kind not in KINDS or not all(word == "axis" or re.fullmatch(r"-?\d+", word) for word in rest):
        known = f"{', '.join(KINDS)}, 'permute 2', 'rotate -1' or a function"
        raise ValueError(f"action must be like {known}, got {action!r}")
    axes = tuple(int(word) for word in rest if word != "axis")
    return kind, axes or {"permute": (1,), "rotate": (-1,)}.get(kind, ())


def move(action: Action, g: Any, x: Tensor) -> Tensor | None:
    """Return a tensor moved by an element of a group; None where a shift is no whole number of pixels."""
    kind, axes = words(action)
    if kind == "own":
        return action(g, x)
    if kind == "pixels":
        return (x.flip(-1) if g[1] else x).rot90(g[0], (-2, -1))
    if kind == "shift":
        steps = [share * side for share, side in zip(g, x.shape[-2:], strict=True)]
        whole = all(abs(s - round(s)) < 1e-9 for s in steps)
        return x.roll([round(s) for s in steps], (-2, -1)) if whole else None
    for axis in axes if kind != "still" else ():
        if kind == "permute":
            x = x.index_select(axis, g.to(x.device))
        else:
            x = (x.movedim(axis, -1) @ g.to(x).mT).movedim(-1, axis)
    return x


def group_of(group: str | Sequence[Any], action: Action, x: Tensor, count: int = 3, seed: int = 0) -> Group:
    """Return the group of a name as it acts on a tensor; of a large one ``count`` random elements.

    ``group`` may also be a list of elements (without the identity), which ``action``, a function, takes.
    """
    kind, axes = words(action)
    if kind == "own":
        if isinstance(group, str) or not len(group):
            raise ValueError(f"group must be a list of elements that your action takes, got {group!r}")
        return Group("own", kind, tuple(group), tuple(f"element {k}" for k in range(len(group))), whole=False)
    if not isinstance(group, str):
        got = type(group).__name__
        raise ValueError(f"group must be the name of a group, as the action is {action!r}; got a {got}")
    if any(not -x.ndim <= axis < x.ndim for axis in axes) or (kind in ("pixels", "shift") and x.ndim < 3):
        raise ValueError(f"the action {action!r} needs more axes than those of shape {tuple(x.shape)}")
    if kind == "pixels":
        return _square(group, x)
    if kind == "shift":
        h, w = x.shape[-2:]
        names = "1 right", "1 down", "3 down, 2 right"
        return Group(group, kind, ((0.0, 1 / w), (1 / h, 0.0), (3 / h, 2 / w)), names, whole=False)
    size, rng = x.shape[axes[0]], generator_of(seed, 17)
    return _permutations(group, size, count, rng) if kind == "permute" else _rotations(group, size, count, rng)


def _square(name: str, x: Tensor) -> Group:
    if name not in SQUARE:
        raise ValueError(f"group must be one of {list(SQUARE)} for the action pixels, got {name!r}")
    (turns, sides), (h, w) = SQUARE[name], x.shape[-2:]
    if turns == 4 and h != w:
        raise ValueError(f"quarter turns need square pictures, got {h}×{w}: pad them, or take C2, D1, D2")
    found = [(k * 4 // turns, m) for m in range(sides) for k in range(turns)][1:]
    said = [" and ".join(["mirror"] * m + [f"turn by {90 * k}°"] * (k > 0)) for k, m in found]
    return Group(name, "pixels", tuple(found), tuple(said))


def _permutations(name: str, size: int, count: int, rng: torch.Generator) -> Group:
    """Return a group of permutations of so many entries; C_n and D_n turn them in a circle."""
    if re.fullmatch(r"S\d+", name) and int(name[1:]) == size and size > 6:  # too many to number
        found = [torch.randperm(size, generator=rng, device="cpu") for _ in range(count)]
        return Group(name, "permute", tuple(found), tuple(f"permutation {k}" for k in range(count)), size, False)
    G, still = named(name), torch.arange(size, device="cpu")
    n = G.elements().shape[-1] if isinstance(G, PermutationGroup) else getattr(G, "n", 0)
    if n != size or not isinstance(G, (PermutationGroup, Cyclic, Dihedral)):
        raise ValueError(f"group must act on {size} entries, as S{size}, A{size}, C{size} or D{size} do; got {name!r}")
    if isinstance(G, PermutationGroup):
        table = G.elements()
    else:
        table = torch.stack([f.roll(s) for f in [still] + [still.flip(0)] * (G.order > n) for s in range(size)])
    table = table[(table != still).any(-1)]
    return Group(name, "permute", tuple(table), tuple(str(tuple(p.tolist())) for p in table), size)


def _rotations(name: str, size: int, count: int, rng: torch.Generator) -> Group:
    """Return C_n or D_n in the plane, or random elements of SO(n) or O(n)."""
    if lie := re.fullmatch(r"(S?O)\(?(\d+)\)?", name):
        if int(lie[2]) != size:
            raise ValueError(f"group must act on {size} coordinates, as SO{size} and O{size} do; got {name!r}")
        matrices = (SpecialOrthogonal if lie[1] == "SO" else Orthogonal)(size).sample(count, rng)
        if lie[1] == "O":  # one of them at least reflects
            matrices[0, :, 0] *= -torch.linalg.det(matrices[0]).sign()
        return Group(name, "rotate", tuple(matrices), tuple(f"rotation {k}" for k in range(count)), size, False)
    G = named(name)
    if size != 2 or not isinstance(G, (Cyclic, Dihedral)):
        known = f"SO{size}, O{size}{', C<n>, D<n>' * (size == 2)}"
        raise ValueError(f"group must act on {size} coordinates: {known}; got {name!r}")
    matrices = planar(G).matrix(G.elements())
    matrices = matrices[(matrices - torch.eye(2, dtype=matrices.dtype, device="cpu")).abs().amax((-2, -1)) > 1e-9]
    return Group(name, "rotate", tuple(matrices), tuple(f"element {k + 1}" for k in range(len(matrices))), 2)
