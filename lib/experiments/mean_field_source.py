"""The source's setting for mean-field dynamics: a teacher and a student in the plane (Maass, Fontbona 2024, §5).

C2 swaps the coordinates of X = Y = R² and acts on Z = R^{2×2} by conjugation; units are σ_*(x, z) = sigmoid(z·x) and
inputs N(0, 16·1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lib.checks import check_choice, check_int
from lib.symmetry.actions import natural
from lib.symmetry.groups import Symmetric
from lib.training.mean_field import Layer, project, symmetrise

TEACHERS = ("arbitrary", "WI", "SI")
LAWS = ("WI", "SI")
NETWORKS = tuple((law, teacher) for law in LAWS for teacher in TEACHERS)
SPREAD = 0.25  # standard deviation of the students' parameters at the start

_PARTICLES = ((-1, 0, 0, 0.5), (0.5, 1, 0, 1), (-0.5, 0.3, 1, 0), (0, -1, -0.5, 1), (0.7, -0.7, 0.5, 0.7))
_FIXED_PARTICLES = ((1, 0), (0.5, 1), (-0.5, 0.3), (0, -1), (0.7, 0.7))


def source_unit() -> Layer:
    """Return sigmoid(z·x) on the plane under the swap of coordinates."""
    swap = natural(Symmetric(2))
    return Layer(swap, swap, "sigmoid")


def fixed_basis() -> Tensor:
    """Return an orthonormal basis of E^G = {[[a, b], [b, a]]}, shape ``(2, 4)``."""
    return torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]], dtype=torch.float64) / 2**0.5


def teacher(kind: str) -> Tensor:
    """Return a teacher's particles, shape ``(M, 4)``.

    ``arbitrary``: five particles without symmetry. ``WI``: these and their images, a weakly invariant law whose network
    is equivariant. ``SI``: five particles in E^G.
    """
    check_choice("kind", kind, TEACHERS)
    if kind == "SI":
        return torch.tensor(_FIXED_PARTICLES, dtype=torch.float64) / 2 @ fixed_basis()
    particles = torch.tensor(_PARTICLES, dtype=torch.float64) / 2
    return particles if kind == "arbitrary" else symmetrise(particles, source_unit().parameters)


def gaussian(count: int, generator: torch.Generator) -> Tensor:
    """Return independent particles N(0, 1/16), shape ``(count, 4)``: a weakly invariant law."""
    return SPREAD * torch.randn(check_int("count", count), 4, generator=generator, dtype=torch.float64)


def stream(number: int, seed: int) -> torch.Generator:
    """Return the source of the random numbers of one kind of start: 1 Gaussian, 2 unions of orbits, 3 heavy tails.

    Their seeds are far from those of data and noise, see :func:`lib.training.mean_field_descent.train`.
    """
    return torch.Generator().manual_seed(number * 2**40 + seed)


def starts(count: int, seeds: Sequence[int]) -> Tensor:
    """Return students for all networks in the order of ``NETWORKS``, shape ``(seeds, 6, count, 4)``.

    The law is N(0, 1/16) for ``WI``, and the same particles projected onto E^G for ``SI``.
    """
    parameters = source_unit().parameters
    free = torch.stack([gaussian(count, stream(1, s)) for s in _check_seeds(seeds)])
    by_law = {"WI": free, "SI": project(free, parameters)}
    return torch.stack([by_law[law] for law, _ in NETWORKS], dim=1)


def orbit_starts(count: int, seeds: Sequence[int]) -> Tensor:
    """Return weakly invariant students made of whole orbits, for every teacher, shape ``(seeds, 3, count, 4)``.

    Raises
    ------
    ValueError
        ``count`` is odd.
    """
    if check_int("count", count, minimum=2) % 2:
        raise ValueError(f"count must be even for a union of orbits of two, got {count}")
    halves = torch.stack([gaussian(count // 2, stream(2, s)) for s in _check_seeds(seeds)])
    return symmetrise(halves, source_unit().parameters)[:, None].repeat(1, len(TEACHERS), 1, 1)


def _check_seeds(seeds: Sequence[int]) -> list[int]:
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed, got none")
    return [check_int("seeds", seed, minimum=0) for seed in seeds]
