"""Wrong implementations for the claims of section S: sample complexity."""

from __future__ import annotations

from tests.mutants import Mutant

CONSTANTS = "* (2 * spread) ** 2\n    for name, spread in spreads.items()\n}\nfound"

MUTANTS = [
    Mutant(
        "S1",
        "one element of the group missing",
        ("relative_gap",),
        page={"    group: matrices(group),": "    group: matrices(group)[:-1],"},
        parameters={"seeds": 2},
    ),
    Mutant(
        "S2",
        "half of the translations in every direction",
        ("slope_defect",),
        page={"w1_batch(x, y, lattice(k, d)).cpu()": "w1_batch(x, y, lattice(max(1, k // 2), d)).cpu()"},
        slow=True,
    ),
    Mutant(
        "S2",
        "a plane without its logarithm",
        ("slope_defect",),
        page={"2: np.log(n)}.get(q": "2: n**0.5}.get(q"},
        slow=True,
    ),
    Mutant(
        "S3",
        "groups twice as large",
        ("law_miss",),
        page={
            "groups = [*map(turns, orders), radial(2)]": "groups = [turns(L << (L > 1)) for L in orders] + [radial(2)]"
        },
        slow=True,
    ),
    Mutant(
        "S4",
        "independent points that have nothing in common",
        ("relative_error",),
        page={"law = scale * (diagonal(name, s) - mean_kernel(s))": "law = scale * diagonal(name, s)"},
        slow=True,
    ),
    Mutant(
        "S5",
        "a divergence that does not know the group",
        ("slope_difference",),
        page={"D = regularised_batch(x, y, action, kind, L)": "D = regularised_batch(x, y, lattice(1, d), kind, L)"},
        parameters={"replicates": 4, "seeds": 2},
        slow=True,
    ),
    Mutant(
        "S6",
        "leading constants 15 % too large",
        ("constant_miss",),
        page={CONSTANTS: CONSTANTS.replace("** 2", "** 2 * 1.15")},
        slow=True,
    ),
    Mutant(
        "S6",
        "leading constants 15 % too small",
        ("constant_miss",),
        page={CONSTANTS: CONSTANTS.replace("** 2", "** 2 / 1.15")},
        slow=True,
    ),
    Mutant(
        "S6",
        "the phase of a vector kept",
        ("slope_defect",),
        page={
            "quotient.phase(2), balls(4)": "flat, balls(4)",
            "spaces = {": (
                "import dataclasses\nflat = dataclasses.replace(quotient.phase(2), formula=torch.cdist)\nspaces = {"
            ),
        },
        slow=True,
    ),
    Mutant(
        "S7",
        "half turns for quarter turns",
        ("doublings_off",),
        page={
            "squares8 = {": "from lib.symmetry.derived import Restriction\nsquares8 = {",
            '"C4": pixels(Cyclic(4), 8),': '"C4": Restriction(pixels(Cyclic(4), 8), Cyclic(2), lambda h: 2 * h),',
        },
        slow=True,
    ),
]
