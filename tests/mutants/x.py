"""Wrong implementations for the claims of section X: further statements of the sources."""

from __future__ import annotations

from tests.mutants import Mutant

_FEW = {"seeds": 2}

MUTANTS: list[Mutant] = [
    Mutant(
        "X2",
        "the smallest singular pieces are kept, not the largest",
        ("saving",),
        page={"for _, k, c, r in sorted(order, reverse=True):": "for _, k, c, r in sorted(order):"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "X3",
        "the network convolves over the cyclic group of the same order",
        ("gain_on_low_rank",),
        page={'"group convolution": group_convolution(G, 3),': '"group convolution": circular_convolution(n, 3),'},
        slow=True,
    ),
    Mutant(
        "X4",
        "every class has hidden layers of its own",
        ("residual",),
        page={
            "net = classifier(H, L, K)\n        for": (
                "from lib.symmetry.groups import DirectProduct\n"
                "        net = group_convolution(DirectProduct(Cyclic(K), H), L)\n        for"
            )
        },
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "X5",
        "the plain convolution reads the elements in the group's own order, and the group convolution in the list's",
        ("share_in_order",),
        page={
            '"plain convolution": (circular_convolution(64, 3), listed),': (
                '"plain convolution": (group_convolution(D32, 3), same),'
            ),
            '"group convolution": (group_convolution(D32, 3), same),': (
                '"group convolution": (circular_convolution(64, 3), listed),'
            ),
        },
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "X6",
        "averages leave one element out",
        ("one_minus_cosine",),
        page={"points @ action.mean(0).mT, y).direction": "points @ action[1:].mean(0).mT, y).direction"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "X1",
        "averages leave one element out",
        ("collapse_gap",),
        page={
            "mean_q, mean_p = (v[moved].mean(0) for v in (q, p))": (
                "mean_q, mean_p = (v[moved[:-1]].mean(0) for v in (q, p))"
            )
        },
        parameters=_FEW,
    ),
    Mutant(
        "X7",
        "units without a bias",
        ("universal_gap",),
        page={"torch.tanh(x @ M @ a[:, :n] + b[:n])": "torch.tanh(x @ M @ a[:, :n])"},
        parameters=_FEW,
        slow=True,
    ),
    Mutant(
        "X8",
        "mass passes between neighbours along one axis only",
        ("endpoint_distance", "free_energy_gap"),
        page={
            "i = np.r_[cell[:-1].ravel(), cell[:, :-1].ravel()]": "i = cell[:-1].ravel()",
            "j = np.r_[cell[1:].ravel(), cell[:, 1:].ravel()]": "j = cell[1:].ravel()",
        },
        slow=True,
    ),
    Mutant(
        "X8",
        "noise of half the temperature",
        ("w2_over_floor",),
        page={"size = (2 * h * heat": "size = (h * heat"},
        slow=True,
    ),
    Mutant(
        "X9",
        "squared distances are not brought back to distances",
        ("half_outside",),
        page={"slopes = np.log(again) / 2 @ x": "slopes = np.log(again) @ x"},
    ),
    Mutant(
        "X10",
        "outputs are moved by g, and not by its inverse",
        ("exact_distance",),
        page={"f = f @ A  # ρ(g)⁻¹": "f = f @ A.mT  # ρ(g)⁻¹"},
        slow=True,
    ),
    Mutant(
        "X11",
        "every scheme trains freely",
        ("fall",),
        page={"up = {k: clouds(k, begin, upright, of)": 'up = {k: clouds("vanilla", begin, upright, of)'},
        slow=True,
    ),
    Mutant(
        "X12",
        "training does not start from equivariant layers: they are not averaged over the group",
        ("drift",),
        page={"A = torch.where(free, moved(layers).mean(0), A)": "A = torch.where(free, layers, A)"},
        parameters=_FEW | {"steps": 20},
    ),
    Mutant(
        "X12",
        "members start on half of the orbit",
        ("residual",),
        page={
            "ways = [train(A, x, y, steps, free=free) for A in start]": (
                "ways = [train(A, x, y, steps, free=free) for A in start[: len(start) // 2]]"
            )
        },
        parameters=_FEW | {"steps": 20},
    ),
    Mutant(
        "X13",
        "statistics of each pixel, and not of all",
        ("lemma",),
        page={'"batch norm": partial(standardised, axes=(0, 2)),': '"batch norm": partial(standardised, axes=(0,)),'},
        parameters=_FEW | {"steps": 20},
    ),
    Mutant(
        "X15",
        "the answer to the question as it is, and not the mean of all",
        ("violations", "identity"),
        page={
            "return loss(each, y).mean(), loss(each.mean(0), y).mean()": (
                "return loss(each, y).mean(), loss(each[0], y).mean()"
            )
        },
        parameters=_FEW | {"steps": 20},
    ),
]
