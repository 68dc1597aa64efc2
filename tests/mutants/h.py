"""Wrong implementations for the claims of section H: groups, Haar measure, Haar projections."""

from __future__ import annotations

import torch

from tests.mutants import Mutant

SAMPLERS = {"samples": 20_000, "seeds": 1}
SPACES = "thirteen_spaces"  # the run that tries the theorems of the page on projections elsewhere

MUTANTS = [
    Mutant(
        "H1",
        "a QR factorisation without the signs of its diagonal",
        ("moments", "p_value"),
        lib={"lib.symmetry.lie.Orthogonal.sample": lambda _: _raw_qr},
        parameters=SAMPLERS,
        slow=True,
    ),
    Mutant(
        "H1",
        "quaternions from a cube and not from a ball",
        ("p_value",),
        page={
            "q = torch.randn(count, 4,": "q = 2 * torch.rand(count, 4,",
            "normalize(q, dim=-1).T": "normalize(q - 1, dim=-1).T",
        },
        parameters=SAMPLERS,
        slow=True,
    ),
    Mutant(
        "H2",
        "three angles where degree three needs four",
        ("commutes", "range"),
        of_run=SPACES,
        run={"def rotations(k=6):": "def rotations(k=3):"},
    ),
    Mutant(
        "H2",
        "the inverse of a unitary matrix without the complex conjugate",
        ("range",),
        of_run=SPACES,
        run={"w, rho_W, rho_V.conj())": "w, rho_W, rho_V)"},
    ),
    Mutant(
        "H3",
        "one generator of two, for permutations",
        ("dimension_defect",),
        lib={"lib.symmetry.groups.Symmetric.generators": lambda right: lambda self: right(self)[:1]},
        parameters={"grid": 4},
    ),
    Mutant(
        "H3",
        "the rounded count of shifts and turns",
        ("dimension_defect",),
        page={"pixels(motions(n), n), n**2 // 4 + 2": "pixels(motions(n), n), n**2 // 4"},
        parameters={"grid": 4},
    ),
    Mutant(
        "H4",
        "F A F in place of F A F⁻¹",
        ("disagreement",),
        of_run=SPACES,
        run={"hat = torch.fft.ifftn(hat, dim=columns)": "hat = torch.fft.fftn(hat, dim=columns)"},
    ),
    Mutant(
        "H4",
        "a semidirect product averaged over its normal subgroup only",
        ("disagreement",),
        lib={"lib.symmetry.haar.Composition._project": lambda _: lambda self, x: self.normal._project(x)},
        of_run=SPACES,
    ),
    Mutant(
        "H5",
        "one element missing in the average of a function",
        ("adjointness", "projection"),
        page={"for g in elements) / len(elements)": "for g in elements[1:]) / (len(elements) - 1)"},
    ),
    Mutant(
        "H6",
        "layers turned forwards and not back",
        ("layers",),
        of_run=SPACES,
        run={"back = [moved(a, p.mH, q.mH)": "back = [moved(a, p, q)"},
    ),
    Mutant(
        "H6",
        "answers that are not moved with the data",
        ("augmented_risk",),
        of_run=SPACES,
        run={"risk = (left - y @ W.mT)": "risk = (left - y)"},
    ),
    Mutant(
        "H7",
        "one element missing in the augmented data",
        ("off_diagonal_block", "projection"),
        page={
            "(x @ rho_V.mT).flatten(0, 1), (y @ rho_W.mT).flatten(0, 1)": (
                "(x @ rho_V[1:].mT).flatten(0, 1), (y @ rho_W[1:].mT).flatten(0, 1)"
            )
        },
    ),
    Mutant(
        "H8",
        "a bias that is not projected",
        ("embedding",),
        of_run=SPACES,
        run={"apart[:-1, -1] = projection(space.target)(b)": "apart[:-1, -1] = b"},
    ),
    Mutant(
        "H9",
        "outputs moved forwards and not back",
        ("residual_after",),
        page={"W.apply(V.group.inverse(g), y)": "W.apply(g, y)"},
        parameters={"seeds": 1},
        slow=True,
    ),
    Mutant(
        "H10",
        "orbits that are found from all elements",
        ("order_exponent",),
        page={
            "first_nodes(k) for k in range(2, 11)}": "first_nodes(k) for k in range(2, 7)}",
            "pairs(q) for q in two_generators(k)": (
                "pairs(torch.cat([torch.tensor(g), torch.arange(k, 10)])) for g in permutations(range(k))"
            ),
        },
        slow=True,
    ),
]


def _raw_qr(self: object, count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(count, self.n, self.n, dtype=self.dtype, generator=generator))[0]
