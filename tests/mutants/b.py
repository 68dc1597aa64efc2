"""Wrong implementations for the claims of section B: implicit bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lib.symmetry.fourier import spectrum
from tests.mutants import Mutant

_ONE = {"seeds": 1}


def _unweighted_rank(_: Any) -> Callable[..., Tensor]:
    def wrong(blocks: Any) -> Tensor:
        values = spectrum(blocks)[0]
        return torch.special.entr(values / values.sum(-1, keepdim=True)).sum(-1).exp()

    return wrong


def _unweighted_norm(_: Any) -> Callable[..., Tensor]:
    return lambda blocks, p: spectrum(blocks)[0].pow(p).sum(-1) ** (1 / p)


_RANK = {"lib.symmetry.fourier.effective_rank": _unweighted_rank}

MUTANTS: list[Mutant] = [
    Mutant(
        "B1",
        "training ends when the loss is exp(−10)",
        ("one_minus_cosine",),
        page={"FLOW = Integration(efolds=1e5, tolerance=1e-5": "FLOW = Integration(cap=10.0, efolds=0.0"},
        slow=True,
    ),
    Mutant(
        "B2",
        "training ends when the loss is exp(−10)",
        ("residual",),
        page={"FLOW = Integration(efolds=1e5, tolerance=1e-5": "FLOW = Integration(cap=10.0, efolds=0.0"},
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B3",
        "the network convolves over the dihedral group of the same order",
        ("residual",),
        page={
            '"circular": (circular_convolution, ': '"circular": (lambda n, L: group_convolution(Dihedral(n // 2), L), '
        },
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B4",
        "the network is one over the cyclic group of the same order",
        ("residual",),
        page={"network = group_convolution(H, L)": 'network = group_convolution(named(f"C{H.order}"), L)'},
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B5",
        "products stop before the subgroup is complete",
        ("coset_defect",),
        page={"products = table[members[:, None], members].flatten()": "products = table[members, members]"},
        slow=True,
    ),
    Mutant(
        "B5",
        "negative values are left out of the support",
        ("smallest_surplus",),
        page={"return (f != 0).sum(-1), torch.cat(ranks)": "return (f > 0).sum(-1), torch.cat(ranks)"},
        slow=True,
    ),
    Mutant(
        "B6",
        "no weights d_ρ in the effective rank",
        ("order_violations",),
        lib=_RANK,
        slow=True,
    ),
    Mutant(
        "B7",
        "no weights d_ρ in the Schatten norm",
        ("schatten_violations",),
        lib={"lib.symmetry.fourier.schatten_norm": _unweighted_norm},
        slow=True,
    ),
    Mutant(
        "B8",
        "no weights d_ρ in the effective rank",
        ("rank_error",),
        lib=_RANK,
        slow=True,
    ),
    Mutant(
        "B9",
        "one image is left out of the orbit averages",
        ("solver_disagreement",),
        page={
            "averaged = max_margin(projection(W)(x), y)": (
                "few = augmented(x, y, W, W.group.elements()[1:])[0].unflatten(0, (-1, len(x)))\n"
                "    averaged = max_margin(few.mean(0), y)"
            )
        },
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B10",
        "the plain network misses one image of every point",
        ("one_minus_cosine",),
        page={"known = V.group.elements() if": "known = V.group.elements()[1:] if"},
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B11",
        "the share of the group without its root",
        ("closed_form_error",),
        page={"theory = math.acos(math.sqrt(k / G.order))": "theory = math.acos(k / G.order)"},
        parameters=_ONE,
        slow=True,
    ),
    Mutant(
        "B12",
        "a quarter of the radius for twice it, and no term for the confidence",
        ("bound_violations",),
        page={"return (top + math.sqrt(math.log(1 / delta) / 2)) / np.sqrt(n)": "return top / 8 / np.sqrt(n)"},
        slow=True,
    ),
    Mutant(
        "B12",
        "no term for the confidence",
        ("bound_violations",),
        page={"return (top + math.sqrt(math.log(1 / delta) / 2)) / np.sqrt(n)": "return top / np.sqrt(n)"},
        slow=True,
    ),
    Mutant(
        "B13",
        "Plancherel's identity without its weights d_ρ",
        ("identity_residual",),
        page={"inner = sum(d / n * (a * b.conj()).sum()": "inner = sum(1 / n * (a * b.conj()).sum()"},
        slow=True,
    ),
]
