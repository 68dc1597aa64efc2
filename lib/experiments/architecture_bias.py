"""Chapter *Implicit bias in Fourier space*: three architectures on the dihedral group of order 64 (B6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_choice, check_int
from lib.experiments.implicit_bias import SCALE
from lib.page.parameters import independent_seeds
from lib.symmetry.fourier import GroupFourier, effective_rank
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup
from lib.training.gradient_flow import Integration, train
from lib.training.linear_networks import circular_convolution, fully_connected, group_convolution

FLOW = Integration(cap=1e4, tolerance=1e-3, accuracy=1e-4)  # enough for an effective rank
ORDERS = ("rotations first", "interleaved", "shuffled")


@dataclass(frozen=True)
class Architectures:
    """Predictors of three architectures on the same points; see :func:`compare_architectures`.

    Attributes
    ----------
    group : FiniteGroup
        The group D_n.
    predictors : dict
        Directions β/‖β‖ by name of the architecture, shape ``(seeds, 2n)``.
    places : Tensor
        Numbers of the elements in the order in which the plain convolution sees them, shape ``(seeds, 2n)``.
    """

    group: FiniteGroup
    predictors: dict[str, Tensor]
    places: Tensor

    @property
    def ranks(self) -> dict[str, Tensor]:
        """Effective Fourier rank over D_n, exp of the entropy of the singular values, shape ``(seeds,)``."""
        return self._ranks(GroupFourier(self.group), self.predictors)

    @property
    def cyclic_ranks(self) -> dict[str, Tensor]:
        """The same over the cyclic group along which the plain network convolves: the wrong group for the other."""
        moved = {key: beta.gather(-1, self.places) for key, beta in self.predictors.items()}
        return self._ranks(GroupFourier(Cyclic(self.group.order)), moved)

    @property
    def supports(self) -> dict[str, Tensor]:
        """Effective support in real space, the exponential of the entropy of |β(u)|/Σ|β|, shape ``(seeds,)``."""
        shares = {key: b.abs() / b.abs().sum(-1, keepdim=True) for key, b in self.predictors.items()}
        return {key: torch.special.entr(share).sum(-1).exp() for key, share in shares.items()}

    @staticmethod
    def _ranks(fourier: GroupFourier, predictors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: effective_rank(fourier.forward(beta)) for key, beta in predictors.items()}


def order_violations(ranks: dict[str, Tensor]) -> int:
    """Return in how many seeds the rank of the group-convolutional network is not the smallest."""
    others = torch.stack([rank for key, rank in ranks.items() if key != "group convolution"])
    return int((ranks["group convolution"] >= others.amin(0)).sum())


def compare_architectures(
    seeds: int = 10, points: int = 16, n: int = 32, depth: int = 3, order: str = ORDERS[0], seed: int = 0
) -> Architectures:
    """Train fully connected, plain convolutional and group-convolutional networks on functions on D_n (B6).

    Points are Gaussian with random labels, the same for the three networks. The plain network convolves along a list of
    the group's elements, so its result depends on their order in the list.

    Parameters
    ----------
    seeds
        Repetitions.
    points
        Number of points.
    n
        The dihedral group has 2n elements.
    depth
        Number of layers.
    order
        Order of the elements for the plain convolution: all rotations first, each rotation followed by its reflection
        (``"interleaved"``, in which all even places form the rotation subgroup), or at random.
    seed
        Number of the independent set of repetitions.
    """
    check_choice("order", order, ORDERS)
    group = Dihedral(n)
    networks = {
        "fully connected": fully_connected(2 * n, depth),
        "plain convolution": circular_convolution(2 * n, depth),
        "group convolution": group_convolution(group, depth),
    }
    found: dict[str, list[Tensor]] = {key: [] for key in networks}
    places = []
    for repetition in independent_seeds(seed, check_int("seeds", seeds)):
        generator = torch.Generator().manual_seed(repetition)
        x = torch.randn(check_int("points", points, maximum=2 * n - 1), 2 * n, generator=generator, dtype=torch.float64)
        y = torch.where(torch.rand(points, generator=generator) < 0.5, 1.0, -1.0).double()
        places.append(_places(order, n, generator))
        for key, network in networks.items():
            moved = places[-1] if key == "plain convolution" else torch.arange(2 * n)
            end = train(network, x[:, moved], y, network.start(1, generator, SCALE)[0], FLOW)
            found[key].append(torch.zeros(2 * n, dtype=torch.float64).index_copy(0, moved, end.direction))
    return Architectures(group, {key: torch.stack(rows) for key, rows in found.items()}, torch.stack(places))


def _places(order: str, n: int, generator: torch.Generator) -> Tensor:
    """Return the numbers of the elements of D_n in the order in which the plain convolution sees them."""
    if order == "shuffled":
        return torch.randperm(2 * n, generator=generator)
    pairs = torch.arange(2 * n).reshape(n, 2)  # element r^a s^b has the number 2a + b
    return pairs.flatten() if order == "interleaved" else pairs.mT.flatten()
