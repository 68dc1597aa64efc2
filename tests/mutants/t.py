"""Wrong implementations for the claims of section T: a network that turns with the picture."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "T1",
        "biases in the order of poses, and not of channels",
        ("defect",),
        page={
            "b = self.b.repeat_interleave(self.order)\n        return conv2d(x,": (
                "b = self.b.repeat(self.order)\n        return conv2d(x,"
            )
        },
        parameters={"seeds": 2},
    ),
    Mutant(
        "T1",
        "the largest value of the first row, and not of all places",
        ("defect",),
        page={"amax((-2, -1))": "amax(-1)[..., 0]"},
        parameters={"seeds": 2},
    ),
    Mutant(
        "T2",
        "the group network reads one pose",
        ("over_plain", "over_augmented"),
        page={"else poses.amax(-1)": "else poses[..., 0]"},
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "T3",
        "the largest of the poses is kept, and not all",
        ("kept",),
        page={
            "return poses.flatten(1) if keep_poses": ("return poses.amax(-1).repeat_interleave(order, 1) if keep_poses")
        },
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "T3",
        "the pooled network does not exchange its poses",
        ("pooled",),
        page={
            '"poses pooled": partial(Network, channels, 8),': (
                '"poses pooled": partial(Network, channels, 8, exchange=False),'
            )
        },
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "T4",
        "a stride that starts one place further",
        ("defect",),
        page={"F[..., ::m, ::m]": "F[..., 1::m, 1::m]"},
        slow=True,
    ),
]
