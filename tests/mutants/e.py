"""Wrong implementations for the claims of section E: ensembles."""

from __future__ import annotations

from tests.mutants import Mutant

_EXACT = {"members": 16, "epochs": 1}

MUTANTS: list[Mutant] = [
    Mutant(
        "E1",
        "the support of the filters is skewed, at half as many members",
        ("residual_slope_miss",),
        page={'count, support="plus", **how': 'count, support="skewed", **how'},
        parameters={"members": 128},
        slow=True,
    ),
    Mutant(
        "E2",
        "the skewed support is the plus",
        ("separation",),
        page={'support="skewed", seed=first + 600': 'support="plus", seed=first + 600'},
        slow=True,
    ),
    Mutant(
        "E3",
        "only sixteen members are averaged",
        ("offset_miss",),
        page={"mean, rows = logits.mean(0), {}": "mean, rows = logits[:16].mean(0), {}"},
        slow=True,
    ),
    Mutant(
        "E4",
        "the head is not moved along",
        ("mean_residual",),
        page={
            "moved = [move(p, M) for p in A[:4]]\n    return cut([*moved, A[4]], support)": (
                "moved = [move(p, M) for p in A[:3]]\n    return cut([*moved, *A[3:]], support)"
            )
        },
        parameters=_EXACT,
        slow=True,
    ),
    Mutant(
        "E5",
        "the mean over an orbit runs over seeds instead",
        ("prediction_difference",),
        page={"return logits.unflatten(1, (-1, seeds)).mean(1)": "return logits.unflatten(1, (-1, seeds)).mean(2)"},
        parameters=_EXACT,
        slow=True,
    ),
]
