"""Wrong implementations for the claims of section U: what a reader brings."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "U1",
        "the last lost step is blamed, and not the first",
        ("found",),
        lib={"lib.reader.questions.culprits": lambda right: lambda tape: [tape.steps[tape.last]]},
        parameters={"seeds": 1},
    ),
    Mutant(
        "U1",
        "settings are not tried: the operation's name decides",
        ("found",),
        lib={"lib.reader.causes._experiment": lambda right: lambda *_: None},
        parameters={"seeds": 1},
    ),
    Mutant(
        "U2",
        "in single precision, too, an error of 1e-9 counts",
        ("alarms",),
        lib={"lib.reader.questions.SINGLE": lambda right: 1e-9},
        parameters={"seeds": 1},
        slow=True,
    ),
    Mutant(
        "U3",
        "one random element moves all samples",
        ("excess",),
        lib={
            "lib.reader.report._poses": lambda right: (
                lambda K, shape, rng: right(K, (*shape[:-1], 1), rng).expand(shape).clone()
            )
        },
        slow=True,
    ),
    Mutant(
        "U4",
        "only the pixels and columns themselves",
        ("seen",),
        lib={"lib.reader.report.families_of": lambda right: lambda *a: list(right(*a))[:1]},
    ),
    Mutant(
        "U5",
        "the architecture and nothing change places",
        ("factor",),
        lib={
            "lib.reader.price.risks": lambda right: (
                lambda *a: (f := right(*a)) | {"nothing": f["architecture"], "architecture": f["nothing"]}
            )
        },
        parameters={"seeds": 1},
        slow=True,
    ),
    Mutant(
        "U5",
        "features are not averaged over the group",
        ("loss",),
        lib={"lib.reader.price._bill": lambda right: lambda known, new, _: right(known, new, lambda x: x[:, None])},
        parameters={"seeds": 1},
        slow=True,
    ),
]
