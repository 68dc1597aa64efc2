"""Wrong implementations for the claims of section O: the frontier, second part."""

from __future__ import annotations

from typing import Any

from tests.mutants import Mutant

_FEW = {"seeds": 2}


def _upright(_: Any) -> Any:
    """Return the risk on the data as they are, in the place of the augmented one."""
    return lambda self, parameters, weights=None: self.nominal(parameters)


MUTANTS: list[Mutant] = [
    Mutant(
        "O6",
        "momentum is measured by its largest entry, not by its length",
        ("commutator",),
        page={"torch.linalg.matrix_norm(memory, keepdim=True)": "memory.abs().amax((-2, -1), keepdim=True)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O6",
        "training sees the data in one pose",
        ("drift", "residual"),
        lib={"lib.augmentation.risks.Risks.augmented": _upright},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O7",
        "turns by half of their angles",
        ("angle", "threshold"),
        page={"planar(Cyclic(k)).matrix(Cyclic(k).elements())": "planar(Cyclic(2 * k)).matrix(Cyclic(k).elements())"},
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
