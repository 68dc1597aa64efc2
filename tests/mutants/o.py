"""Wrong implementations for the claims of section O: the frontier, second part."""

from __future__ import annotations

from tests.mutants import Mutant

_FEW, _SOME = {"seeds": 2}, {"seeds": 4}


MUTANTS: list[Mutant] = [
    Mutant(
        "O3",
        "the penalty is on the invariant part",
        ("formula_error", "saved"),
        page={"return inside + kept * (w - inside)": "return kept * inside + (w - inside)"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O3",
        "the noise is estimated in all directions",
        ("regret",),
        page={"count = P.representation.dim - P.rank - 2": "count = 2 * P.representation.dim"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O3",
        "the classifier leaves out nothing when it chooses",
        ("digits_gain",),
        page={"left_out = alpha / inverse.diagonal()[:, None]": "left_out = alpha"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O2",
        "the trivial block is kept",
        ("at_price", "one_missing"),
        page={"norms[0] = norms[0][:, 1:]": "norms[0] = norms[0][:, :]"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O2",
        "the mean of a sample is its sum",
        ("survey_error",),
        page={"means = (images[:, None] + images) / 2": "means = images[:, None] + images"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O10",
        "fixed sets are unions of fixed places",
        ("orbit_gap",),
        page={"longer = {k + len(cycle): c for k, c in ways.items()}": "longer = {k + 1: c for k, c in ways.items()}"},
        parameters=_SOME,
        slow=True,
    ),
    Mutant(
        "O10",
        "orbit sums are not normalised",
        ("completeness", "times_orbits"),
        page={"walsh(q)) / size.double().sqrt()": "walsh(q))"},
        parameters=_SOME,
        slow=True,
    ),
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
