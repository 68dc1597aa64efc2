"""Wrong implementations for the claims of section O: the frontier, second part."""

from __future__ import annotations

from tests.mutants import Mutant

_FEW = {"seeds": 2}


MUTANTS: list[Mutant] = [
    Mutant(
        "O6",
        "momentum is measured by the sum of its entries, not by its length",
        ("commutator",),
        page={"torch.linalg.matrix_norm(memory, keepdim=True)": "memory.abs().sum((-2, -1), keepdim=True)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O6",
        "training sees the data in one pose",
        ("drift", "residual"),
        page={"slopes = gradient(risks.augmented, A)": "slopes = gradient(risks.nominal, A)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O7",
        "the weights see the points in one pose, their factor in all",
        ("angle", "threshold"),
        page={"by_u = v * (by_f[..., None] * z).mean(1)": "by_u = v * (by_f[..., None] * z)[:, :6].mean(1)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O1",
        "units are matched without their signs",
        ("layers",),
        page={"cost = torch.minimum(plus, minus).square()": "cost = plus.square()"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O4",
        "all representations have the same weight",
        ("certificate",),
        page={"(max(share, 0) / m**3)": "(1 / len(weights) / m**3)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O4",
        "the size of a network adds the squares of its neurons",
        ("shortfall", "division"),
        page={'2 if "w" in kind else 3': "2"},
        parameters=_FEW,
        slow=True,
    ),
]
