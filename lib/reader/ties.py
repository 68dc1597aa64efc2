"""How far the weights of a layer are from equivariant ones, and how many of these there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lib.reader.moves import Group, move
from lib.reader.tape import Step


def _inputs_moved(parent: Step, group: Group, i: int) -> list[Tensor] | None:
    """Return how the elements and the identity move the i channels of a layer's input: matrices (i, i)."""
    eye, axes = torch.eye(i, dtype=torch.float64, device="cpu"), parent.fit.name
    last = str(parent.out.ndim - 1)
    if parent.fit.orders and parent.fit.orders[0] is not None:
        return [eye] + [eye[o.cpu()] for o in parent.fit.orders]
    if group.kind == "rotate" and i % max(group.size, 1) == 0 and (axes.split()[-1] == last or "×" in axes):
        one = torch.eye(i // group.size, dtype=torch.float64, device="cpu")
        turns = _rotations(group)
        return [torch.kron(g, one) if "d×c" in axes else torch.kron(one, g) for g in turns]
    if group.kind == "permute" and i == group.size and axes.split()[-1] == last:
        return [eye] + [eye[g] for g in group.elements]
    return None if "mixed" in axes else [eye] * (1 + len(group.elements))


def _rotations(group: Group) -> list[Tensor]:
    """Return the identity and elements with the same equivariant maps of numbers and vectors as the group."""
    eye = torch.eye(group.size, dtype=torch.float64, device="cpu")
    if group.whole:
        return [eye, *[g.double() for g in group.elements]]
    signs = [
        torch.diag(torch.tensor(s, dtype=torch.float64, device="cpu"))
        for s in itertools.product([1.0, -1.0], repeat=group.size)
    ]
    if group.size > 4:
        return [eye]
    found = [eye[list(p)] @ d for p in itertools.permutations(range(group.size)) for d in signs]
    proper = [m for m in found if torch.linalg.det(m) > 0]
    return found if group.name.startswith("O") else proper


def _spatial(group: Group, w: Tensor) -> list[Tensor]:
    """Return filters moved by the identity and every element: turned for pictures, else as they are."""
    if group.kind == "pixels" and w.ndim == 4 and w.shape[-1] == w.shape[-2]:
        return [w] + [move("pixels", g, w) for g in group.elements]
    return [w] * (1 + len(group.elements) if group.kind != "rotate" else len(_rotations(group)))


def distance(s: dict[str, Any], parent: Step, group: Group) -> str:
    """Return ‖A − ΠA‖/‖A‖ in words, by chance, and the dimension of the equivariant maps, at the best output.

    By chance it is the root of 1 − dim E/dim, with dim E the mean of the products of the characters.
    """
    W = s["weight"].detach().cpu().double()
    ins = None if s.get("groups", 1) != 1 else _inputs_moved(parent, group, W.shape[1])
    if ins is None or (group.kind == "permute" and not group.whole):
        return ""
    turned = _spatial(group, torch.arange(W[0, 0].numel(), dtype=torch.float64, device="cpu").view(1, 1, *W.shape[2:]))
    best: tuple[float, float] | None = None
    for outs in _outputs(group, len(W)):
        if len(outs) != len(ins):
            continue
        image = [
            torch.einsum("op,pj...,ij->oi...", b, w, a) for b, w, a in zip(outs, _spatial(group, W), ins, strict=False)
        ]
        far = float((W - sum(image) / len(ins)).norm() / W.norm())
        dim = sum(
            float(a.trace() * b.trace()) * int((t == turned[0]).sum())
            for a, b, t in zip(ins, outs, turned, strict=False)
        ) / len(ins)
        if best is None or far < best[0] - 1e-9:
            best = far, dim
    if best is None:
        return ""
    chance = math.sqrt(max(0.0, 1 - best[1] / W.numel()))
    dims = f"{round(best[1])} of {W.numel()} dimensions are equivariant"
    return f"‖A − ΠA‖/‖A‖ = {best[0]:.2f} (by chance {chance:.2f}; {dims})"


def _outputs(group: Group, o: int) -> Iterator[Sequence[Tensor]]:
    """Yield ways in which o outputs may move: not at all, as vectors, as copies that change places."""
    eye = torch.eye(o, dtype=torch.float64, device="cpu")
    count = len(_rotations(group)) if group.kind == "rotate" else 1 + len(group.elements)
    yield [eye] * count
    if group.kind == "rotate" and o % group.size == 0:
        one = torch.eye(o // group.size, dtype=torch.float64, device="cpu")
        yield [torch.kron(one, g) for g in _rotations(group)]
        yield [torch.kron(g, one) for g in _rotations(group)]
    if group.kind == "permute" and o == group.size:
        yield [eye] + [eye[g] for g in group.elements]
    if group.kind == "pixels" and o % count == 0:
        one = torch.eye(o // count, dtype=torch.float64, device="cpu")
        grid = torch.arange(49, dtype=torch.float64, device="cpu").view(7, 7)  # a picture that no element keeps
        whole = [(0, 0), *group.elements]
        images = [move("pixels", g, grid) for g in whole]
        table = [
            [next(k for k, m in enumerate(images) if torch.equal(m, move("pixels", g, h))) for h in images]
            for g in whole
        ]
        eye = torch.eye(count, dtype=torch.float64, device="cpu")
        for matrices in ([eye[row] for row in table], [eye[row].mT.contiguous() for row in table]):
            yield [torch.kron(one, m) for m in matrices]
            yield [torch.kron(m, one) for m in matrices]
