"""Symmetrized functions S_Σ f (Birrell, Katsoulakis, Rey-Bellet, Zhu 2022, section 3)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import check_callable, check_instance, check_tensor
from lib.symmetry.haar import check_nodes, wide
from lib.symmetry.representations import Representation


def symmetrize_function(
    f: Callable[[Tensor], Tensor],
    source: Representation,
    target: Representation | None = None,
    elements: Tensor | None = None,
    weights: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """Return S_Σ f, the function x ↦ ∫ ρ_target(g)⁻¹ f(ρ_source(g) x) dμ(g) (Birrell et al. 2022, §3).

    Also known as feature averaging.

    Parameters
    ----------
    f
        Maps ``(..., dim source)`` to ``(..., dim target)``, or to ``(...)`` when ``target`` is ``None``.
    source, target
        How the group acts on inputs and outputs; ``None`` leaves the output alone.
    elements, weights
        Nodes and probabilities for the Haar measure; by default all elements of a finite group, with equal weights.
    """
    check_callable("f", f)
    group = check_instance("source", source, Representation).group
    if target is not None and check_instance("target", target, Representation).group != group:
        raise ValueError(f"source and target must be representations of one group, got {group} and {target.group}")
    if elements is None and group.is_finite:
        elements = group.elements()
    g, w = check_nodes(group, elements, weights)

    def averaged(x: Tensor) -> Tensor:
        source.check_vectors("x", x)
        h = group.unsqueeze(g.to(x.device), x.ndim - len(source.shape))
        values = check_tensor("f(x)", f(source.apply(h, x)), inexact=True)
        if target is not None:
            values = target.apply(group.inverse(h), values)
        terms = values.to(wide(values))
        return torch.tensordot(w.to(terms), terms, dims=1).to(values)

    return averaged
