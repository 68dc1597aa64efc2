"""Wrong implementations for the claims of section O: the frontier, second part."""

from __future__ import annotations

from tests.mutants import Mutant

_FEW = {"seeds": 4}

MUTANTS: list[Mutant] = [
    Mutant(
        "O3",
        "the penalty is on the invariant part",
        ("formula_error", "saved"),
        page={"return inside + kept * (w - inside)": "return kept * inside + (w - inside)"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O3",
        "the noise is estimated in all directions",
        ("regret",),
        page={"count = P.representation.dim - P.rank - 2": "count = 2 * P.representation.dim"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O3",
        "the classifier leaves out nothing when it chooses",
        ("digits_gain",),
        page={"left_out = alpha / inverse.diagonal()[:, None]": "left_out = alpha"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O2",
        "the trivial block is kept",
        ("at_price", "one_missing"),
        page={"norms[0] = norms[0][:, 1:]": "norms[0] = norms[0][:, :]"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O2",
        "the mean of a sample is its sum",
        ("survey_error",),
        page={"means = (images[:, None] + images) / 2": "means = images[:, None] + images"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O10",
        "fixed sets are unions of fixed places",
        ("orbit_gap",),
        page={"longer = {k + len(cycle): c for k, c in ways.items()}": "longer = {k + 1: c for k, c in ways.items()}"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "O10",
        "orbit sums are not normalised",
        ("completeness", "times_orbits"),
        page={"walsh(q)) / size.double().sqrt()": "walsh(q))"},
        parameters=_FEW,
        slow=True,
    ),
]
