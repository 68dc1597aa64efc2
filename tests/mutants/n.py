"""Wrong implementations for the claims of section N: the frontier."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "N1",
        "the mean over the group leaves one element out",
        ("commutator_error",),
        page={
            "return torch.eye(to.shape[1], dtype=torch.float64)[to].mean(0)": (
                "return torch.eye(to.shape[1], dtype=torch.float64)[to[1:]].mean(0)"
            )
        },
        parameters={"members": 256, "seeds": 2},
        slow=True,
    ),
    Mutant(
        "N2",
        "the price of one feature less than there are",
        ("standard_errors",),
        page={"return variance * d / (n - d - 1)": "return variance * d / (n - d)"},
        slow=True,
    ),
    Mutant(
        "N3",
        "the equivalent sample is that of half the group",
        ("factor_error",),
        page={"goal = circle_equivalent(n, m, over)[0]": "goal = circle_equivalent(n, m, max(1, over // 2))[0]"},
        slow=True,
    ),
    Mutant(
        "N4",
        "the pose is turned by the whole angle of its second moment",
        ("formula_error",),
        page={
            "back = torch.exp(-0.5j * (z * e).sum(-1, keepdim=True).angle())": (
                "back = torch.exp(-1j * (z * e).sum(-1, keepdim=True).angle())"
            )
        },
        slow=True,
    ),
    Mutant(
        "N4",
        "steps of angles half as large as they are",
        ("tear",),
        page={"worst = max(float(e.abs().max()) for": "worst = max(float(e.abs().max()) / 2 for"},
        slow=True,
    ),
    Mutant(
        "N5",
        "the mean over elements is a sum",
        ("marginalised_gap",),
        page={'"marginalised": both.logsumexp(2) - math.log(both.shape[2]),': '"marginalised": both.logsumexp(2),'},
        slow=True,
    ),
    Mutant(
        "N6",
        "the identity is never drawn",
        ("moved_p",),
        page={
            "which = np.random.default_rng(seed).integers(len(moves), size=len(x))": (
                "which = 1 + np.random.default_rng(seed).integers(len(moves) - 1, size=len(x))"
            )
        },
        slow=True,
    ),
    Mutant(
        "N6",
        "moments of one degree more",
        ("floor_error",),
        page={
            "Fraction(delta if (p + q) % 2 else 1) / (j + k + 1)": "Fraction(delta if (p + q) % 2 else 1) / (j + k + 2)"
        },
        slow=True,
    ),
    Mutant(
        "N6",
        "noise of twice the length",
        ("ratio_error",),
        page={"y, G = t.abs() + NOISE * noise.to(place)": "y, G = t.abs() + 2 * NOISE * noise.to(place)"},
        slow=True,
    ),
    Mutant(
        "N7",
        "the law misses one image of each centre",
        ("flow_residual",),
        page={'return torch.einsum("gij,cj->gci", turns, c)': 'return torch.einsum("gij,cj->gci", turns[1:], c)'},
        slow=True,
    ),
    Mutant(
        "N8",
        "draws without replacement from one more than there are",
        ("identity_error",),
        page={"(1 if replace else (m - k) / (m - 1))": "(1 if replace else (m - k) / m)"},
        slow=True,
    ),
    Mutant(
        "N9",
        "the divergence the other way round",
        ("identity_error",),
        page={"log_mean.exp() * (log_mean - log),": "log.exp() * (log - log_mean),"},
        slow=True,
    ),
    Mutant(
        "N10",
        "the kernel is averaged with one image left out",
        ("identity",),
        page={
            "return kernel(x, orbits(z, g)).unflatten(1, (len(z), -1)).mean(-1)": (
                "return kernel(x, orbits(z, g)).unflatten(1, (len(z), -1))[..., 1:].mean(-1)"
            )
        },
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "N11",
        "units are matched as they stand, not as they are turned",
        ("renamed_share",),
        page={
            "turned = torch.cat([w[0] @ TURN.mT, w[1] @ TURN.mT], 1)": "turned = torch.cat([w[0] @ TURN.mT, w[1]], 1)"
        },
        slow=True,
    ),
    Mutant(
        "N12",
        "the inverse of a block for the block of the inverse",
        ("block_error",),
        page={"part = torch.linalg.inv(S)[:, :count, :count]": "part = torch.linalg.inv(S[:, :count, :count])"},
        parameters={"seeds": 2, "pairs": 200},
        slow=True,
    ),
]
