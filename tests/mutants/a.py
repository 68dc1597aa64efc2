"""Wrong implementations for the claims of section A: augmentation versus equivariance."""

from __future__ import annotations

from tests.mutants import Mutant

_FEW = {"starts": 20, "seeds": 2}

MUTANTS: list[Mutant] = [
    Mutant(
        "A1",
        "the identity is drawn one percent too often",
        ("gradient_difference",),
        page={
            "law = haar(net.architecture.group) if law is None else law": (
                "law = mixture(net.architecture.group, 0.01) if law is None else law"
            )
        },
        slow=True,
    ),
    Mutant(
        "A1",
        "weights that are tied get the sum of their gradients, and not the mean",
        ("gradient_difference",),
        page={"means = [a / b.mean.sizes.to(a) for a, b in zip(sums, net.layers)]": "means = sums"},
        slow=True,
    ),
    Mutant(
        "A2",
        "the identity is drawn one percent too often",
        ("drift",),
        page={
            "law = haar(task.network.architecture.group)\n": "law = mixture(task.network.architecture.group, 0.01)\n"
        },
        slow=True,
    ),
    Mutant(
        "A2",
        "augmentation is forgotten in one of two searches",
        ("stationary_difference",),
        page={"stationary(ridge(r.augmented), r.project(A), r.project)": "stationary(ridge(r.nominal), r.project(A))"},
        slow=True,
    ),
    Mutant(
        "A3",
        "the block off E is projected, and not averaged",
        ("hessian_difference",),
        page={
            "average = projection(layers * layers)(H.flatten(-2)).view_as(H)": (
                "off_E = torch.eye(len(pi)).to(pi) - pi; average = pi @ H @ pi + off_E @ H @ off_E"
            )
        },
        slow=True,
    ),
    Mutant(
        "A4",
        "off-diagonal entries do not count",
        ("wrong_definiteness",),
        page={"return bool(p > 0 and p * r > q * q)": "return bool(p > 0 and p * r > 0)"},
    ),
    Mutant(
        "A4",
        "a swap moves the labels' signs too",
        ("wrong_outcomes",),
        page={
            "total = total + swapped * ((a1 * v + a2 * u) ** 2 - y) ** 2": (
                "total = total + swapped * ((a1 * v + a2 * u) ** 2 + y) ** 2"
            )
        },
    ),
    Mutant(
        "A5",
        "a step of descent taken for the flow",
        ("curve_error",),
        page={"factor = 1 - h * found.outside[:, None]": "factor = torch.exp(-h * found.outside[:, None])"},
        slow=True,
    ),
    Mutant(
        "A5",
        "the rate of a finite step taken for that of the flow",
        ("slope_error",),
        page={"predicted = (1 - h * found.outside).abs().log() / h": "predicted = -found.outside"},
        slow=True,
    ),
    Mutant(
        "A6",
        "the identity is drawn five percent too often",
        ("rate_interval_miss",),
        page={
            "fair_laws = {k: haar(group) for": (
                "def mixed(H):\n"
                "    elements, w = haar(H).listed()\n"
                "    one = (H.index(elements) == H.index(H.identity())).to(w)\n"
                "    return Law('mixed', H, ((elements, 0.95 * w + 0.05 * one),))\n"
                "fair_laws = {k: mixed(group) for"
            )
        },
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "A7",
        "a forecast for one pass in place of all",
        ("prediction_error",),
        page={"foretold = bias**2 + noise**2 / (passes * epochs)": "foretold = bias**2 + noise**2 / epochs"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "A8",
        "the threshold without its factor of one half",
        ("threshold_error",),
        page={"predicted = -unstable.outside[:, 0].cpu() / 2": "predicted = -unstable.outside[:, 0].cpu()"},
        slow=True,
    ),
    Mutant(
        "A9",
        "the identity is drawn one percent too often",
        ("slope_low",),
        page={"unfair = 0.9 * haar\n": "unfair = 0.9 * haar\nhaar = 0.99 * haar\nhaar[0] += 0.01\n"},
        slow=True,
    ),
    Mutant(
        "A9",
        "one element of the group is never drawn",
        ("slope_low",),
        page={"unfair = 0.9 * haar\n": "unfair = 0.9 * haar\nhaar = haar * N / (N - 1)\nhaar[-1] = 0\n"},
        slow=True,
    ),
]
