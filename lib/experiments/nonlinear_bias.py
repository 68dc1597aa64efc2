"""Chapter *Implicit bias in Fourier space*: nonlinear networks, linearised around the data (B8).

A network without bias terms whose nonlinearity is a ReLU is piecewise linear: f(x) = ⟨x, β(x)⟩ with β(x) = ∇f(x). The
linear theory says that β has Fourier coefficients of low rank; here their effective rank is measured around every data
point, for networks with the group structure and without. Lawrence, Georgiev, Dienes, Kiani 2022, section 5.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, check_tensor, seeded
from lib.images.bundled import digits
from lib.page.parameters import independent_seeds
from lib.symmetry.fourier import GroupFourier, effective_rank
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import FiniteGroup
from lib.training.log_loss_descent import descend, log_exponential_loss

NETWORKS = ("ReLU FC", "ReLU G-CNN", "scrambled ReLU G-CNN", "linear G-CNN")


class Domain(ABC):
    """A space of functions on a group, in orthonormal coordinates, with what a G-CNN needs.

    Attributes
    ----------
    dimension : int
        Number of coordinates, which is Σ d_ρ² over the irreducible representations that occur.
    """

    dimension: int

    @abstractmethod
    def convolve(self, h: Tensor, w: Tensor) -> Tensor:
        """Return h∗w; leading axes broadcast."""

    @abstractmethod
    def relu(self, h: Tensor) -> Tensor:
        """Return the function max(h, 0), projected to the space."""

    @abstractmethod
    def blocks(self, f: Tensor) -> tuple[Tensor, ...]:
        """Return the Fourier coefficients: ``(..., n_d, d, d)`` per dimension d, see :mod:`lib.symmetry.fourier`."""

    @abstractmethod
    def inputs(self, points: int, seed: int) -> Tensor:
        """Return data, the first half of one class and the second of the other, shape ``(points, dimension)``."""

    @abstractmethod
    def scrambling(self) -> Tensor:
        """Return an orthogonal matrix that keeps lengths and forgets the group."""


class OnFiniteGroup(Domain):
    """All functions on a group, as in :class:`~lib.symmetry.group_convolution.GroupConvolution`; Gaussian data."""

    def __init__(self, group: FiniteGroup) -> None:
        self.convolution, self.fourier, self.dimension = GroupConvolution(group), GroupFourier(group), group.order

    def convolve(self, h: Tensor, w: Tensor) -> Tensor:
        """Return h∗w by the fast route."""
        return self.convolution(h, w)

    def relu(self, h: Tensor) -> Tensor:
        """Return max(h, 0)."""
        return h.relu()

    def blocks(self, f: Tensor) -> tuple[Tensor, ...]:
        """Return the group Fourier transform."""
        return self.fourier.forward(f)

    def inputs(self, points: int, seed: int) -> Tensor:
        """Return standard normal functions, divided by √|G|: the classes are random, as in the source."""
        generator = seeded(seed)
        return torch.randn(points, self.dimension, generator=generator, dtype=torch.float64) / math.sqrt(self.dimension)

    def scrambling(self) -> Tensor:
        """Return a random renaming of the group's elements, a permutation matrix."""
        order = torch.randperm(self.dimension, generator=torch.Generator().manual_seed(0))
        return torch.eye(self.dimension, dtype=torch.float64)[order]


class OnRotations(Domain):
    """Functions on SO(3) of degree at most ℓ, f(R) = Σ_l √(2l+1) Σ_{ij} c^l_{ij} D^l_{ij}(R), normalised Haar measure.

    The coordinates c are orthonormal by Schur's relations, and the unnormalised Fourier coefficients are
    f̂(l) = ∫ f(R) D^l(R) dR = c^l/√(2l+1), so that (h∗w)^(l) = ĥ(l)ŵ(l). The real Wigner matrices D^l are those of e3nn.
    The ReLU is taken on a grid of rotations whose quadrature is exact for products of two functions of the space.
    Data are digits on the sphere, lifted by one fixed random spherical filter and a ReLU, as in the source.

    Parameters
    ----------
    degree
        Largest degree ℓ.
    classes
        The two digits.
    """

    def __init__(self, degree: int = 3, classes: tuple[int, int] = (0, 5)) -> None:
        self.degree, self.classes = check_int("degree", degree, maximum=8), classes
        if len(set(classes)) != 2 or not set(classes) <= set(range(10)):
            raise ValueError(f"classes must be two different digits, got {classes}")
        self.sizes = [(2 * l + 1) ** 2 for l in range(degree + 1)]
        self.dimension = sum(self.sizes)
        self.basis, self.weights = wigner_basis(degree)  # (nodes, dimension), (nodes,)

    def blocks(self, f: Tensor) -> tuple[Tensor, ...]:
        """Return f̂(l) for l = 0 … ℓ, one representation of each odd dimension."""
        parts = f.split(self.sizes, dim=-1)
        dims = [2 * l + 1 for l in range(self.degree + 1)]
        return tuple(c.unflatten(-1, (1, d, d)) / math.sqrt(d) for c, d in zip(parts, dims, strict=True))

    def convolve(self, h: Tensor, w: Tensor) -> Tensor:
        """Return h∗w, degree by degree."""
        products = [a @ b * math.sqrt(a.shape[-1]) for a, b in zip(self.blocks(h), self.blocks(w), strict=True)]
        return torch.cat([p.flatten(-3) for p in products], -1)

    def relu(self, h: Tensor) -> Tensor:
        """Return the projection of max(h, 0) to degree at most ℓ, by quadrature."""
        return ((h @ self.basis.mT).relu() * self.weights) @ self.basis

    def inputs(self, points: int, seed: int) -> Tensor:
        """Return lifted digits of unit mean length."""
        data, generator = digits(), seeded(seed)
        members = [(data.train_y == label).nonzero()[:, 0] for label in self.classes]
        drawn = [m[torch.randperm(len(m), generator=generator)[: points // 2]] for m in members]
        x = (data.train_x[torch.cat(drawn)] - data.train_x.mean()) @ sphere_harmonics(self.degree)
        generator = torch.Generator().manual_seed(0)
        parts = x.split([2 * l + 1 for l in range(self.degree + 1)], -1)
        kernel = [torch.randn(p.shape[-1], generator=generator, dtype=torch.float64) for p in parts]
        lifted = [(p[:, :, None] * k).flatten(1) for p, k in zip(parts, kernel, strict=True)]
        out = self.relu(torch.cat(lifted, -1))
        return out / out.norm(dim=-1).mean()

    def scrambling(self) -> Tensor:
        """Return a random orthogonal change of coordinates."""
        generator = torch.Generator().manual_seed(0)
        return torch.linalg.qr(torch.randn(self.dimension, self.dimension, generator=generator).double())[0]


def wigner_basis(degree: int) -> tuple[Tensor, Tensor]:
    """Return the orthonormal functions √(2l+1) D^l_{ij} on a grid of SO(3), and the weights of the grid.

    Rotations are R_y(α)R_x(β)R_y(γ) with 2ℓ+2 equally spaced angles α and γ and as many Gauss–Legendre nodes cos β.

    Returns
    -------
    tuple of Tensor
        Shapes ``(nodes, Σ_l (2l+1)²)`` and ``(nodes,)``; the weights sum to one.
    """
    o3 = _e3nn()
    count = 2 * degree + 2
    cosines, shares = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(count))
    turns = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    angles = torch.cartesian_prod(turns, cosines.arccos(), turns).unbind(-1)
    weights = (shares / 2).repeat_interleave(count).repeat(count) / count**2
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # e3nn computes its generators in the default type
    try:
        matrices = [math.sqrt(2 * l + 1) * o3.wigner_D(l, *angles) for l in range(degree + 1)]
    finally:
        torch.set_default_dtype(default)
    return torch.cat([m.flatten(1) for m in matrices], -1), weights


def sphere_harmonics(degree: int, size: int = 8, opening: float = math.pi / 2) -> Tensor:
    """Return the map from an image on a cap of the sphere to its coefficients up to a degree, ``(size², (ℓ+1)²)``.

    The centre of the image lies at the pole, and distances from it become polar angles; the middle of an edge has the
    polar angle ``opening``. Each pixel is a point mass, seen through real spherical harmonics.
    """
    o3 = _e3nn()
    line = (torch.arange(size, dtype=torch.float64) + 0.5) * 2 / size - 1
    rows, columns = torch.meshgrid(-line, line, indexing="ij")
    polar, azimuth = opening * torch.hypot(rows, columns), torch.atan2(rows, columns)
    places = torch.stack([polar.sin() * azimuth.cos(), polar.cos(), polar.sin() * azimuth.sin()], -1)
    return o3.spherical_harmonics(list(range(degree + 1)), places.flatten(0, 1), normalize=True)


def _e3nn() -> object:
    with warnings.catch_warnings():  # e3nn uses torch.jit.script, which torch calls outdated
        warnings.simplefilter("ignore")
        from e3nn import o3
    return o3


@dataclass(frozen=True)
class Settings:
    """Networks of three layers and their training.

    Attributes
    ----------
    seeds : int
        Independent data sets and starting weights, one batch.
    seed : int
        Number of the independent set of them.
    points : int
        Data points, half of each class.
    scale : float
        Weights start as independent normal numbers of variance scale²/(number of inputs).
    drop : float
        Decrease of the log-loss that a step aims at.
    decades, checkpoints : int
        Training stops at loss 10^−decades; looked at before training and at so many values of the loss.
    """

    seeds: int = 10
    seed: int = 0
    points: int = 20
    scale: float = 1.0
    drop: float = 0.3
    decades: int = 6
    checkpoints: int = 5

    def __post_init__(self) -> None:
        check_int("seeds", self.seeds)
        check_int("seed", self.seed, minimum=0)
        if check_int("points", self.points, minimum=2, maximum=100) % 2:
            raise ValueError(f"points must be even, half of each class, got {self.points}")
        check_float("scale", self.scale, minimum=1e-3, maximum=10.0)
        check_float("drop", self.drop, minimum=1e-4, maximum=1.0)
        check_int("decades", self.decades, minimum=3, maximum=200)
        check_int("checkpoints", self.checkpoints, minimum=2, maximum=100)

    @property
    def losses(self) -> Tensor:
        """Decades −log₁₀ of the loss at the checkpoints, the first one before training."""
        later = torch.linspace(math.log10(self.points), self.decades, self.checkpoints, dtype=torch.float64)
        return torch.cat([torch.tensor([-math.inf], dtype=torch.float64), later])


@dataclass(frozen=True)
class Ranks:
    """Effective ranks of the linearizations, averaged over the data points.

    Attributes
    ----------
    losses : Tensor
        Decades −log₁₀ of the loss; −∞ stands for the start.
    values : dict of str to Tensor
        Network to ranks, shape ``(seeds, checkpoints + 1)``; largest possible: the dimension of the domain.
    seconds : float
        Time of training and ranks.
    """

    losses: Tensor
    values: dict[str, Tensor]
    seconds: float

    def training_reduction(self, network: str = "ReLU G-CNN") -> float:
        """Return by what share training lowers the rank of a network: 1 − end/start, the median of runs that arrive."""
        values = self.values[check_choice("network", network, self.values)]
        return float((1 - values[:, -1] / values[:, 0]).nanmedian())

    def shared_reduction(self, network: str = "ReLU G-CNN") -> float:
        """Return which share of the linear network's reduction a network has at the end.

        That is (r_FC − r) / (r_FC − r_linear), with medians over the seeds: 0 for the rank of the fully connected one,
        1 for that of the linear G-CNN.
        """
        names = (check_choice("network", network, self.values), "ReLU FC", "linear G-CNN")
        own, dense, linear = (float(self.values[name][:, -1].nanmedian()) for name in names)
        return (dense - own) / (dense - linear)


Network = Callable[[Sequence[Tensor], Tensor], Tensor]


def network(name: str, domain: Domain) -> tuple[list[tuple[int, ...]], Network]:
    """Return the shapes of the weights of a network of three layers, and the network ``(w, x) -> (seeds, points)``.

    G-CNNs are ⟨σ(σ(x∗w_1)∗w_2), w_3⟩ with σ the ReLU or, for the linear one, nothing. The scrambled G-CNN sees its
    inputs through :meth:`Domain.scrambling`: the same architecture for another group on the same set. Fully connected
    networks have hidden layers as wide as the domain.
    """
    n = domain.dimension
    if check_choice("name", name, NETWORKS) == "ReLU FC":

        def dense(w: Sequence[Tensor], x: Tensor) -> Tensor:
            h = (x @ w[0].mT).relu() @ w[1].mT
            return (h.relu() @ w[2][..., None])[..., 0]

        return [(n, n), (n, n), (n,)], dense
    sigma = (lambda h: h) if name == "linear G-CNN" else domain.relu
    seen_through = domain.scrambling() if name == "scrambled ReLU G-CNN" else None

    def convolutional(w: Sequence[Tensor], x: Tensor) -> Tensor:
        h = x if seen_through is None else x @ seen_through.mT
        for filters in w[:2]:
            h = sigma(domain.convolve(h, filters[:, None]))
        return (h @ w[2][..., None])[..., 0]

    return [(n,)] * 3, convolutional


def linearize(f: Network, w: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return ∇_x f around every data point, shape of ``x``."""
    at = x.detach().requires_grad_(True)
    (slope,) = torch.autograd.grad(f([a.detach() for a in w], at).sum(), at)
    return slope


def train(name: str, domain: Domain, x: Tensor, settings: Settings) -> Tensor:
    """Train a network on the exponential loss, all seeds at once, and return its linearizations.

    A filter of negative mean can switch all units of a ReLU network off, at all points: such a start is drawn again.

    Parameters
    ----------
    name
        One of ``NETWORKS``.
    domain
        The functions.
    x
        Data, shape ``(seeds, points, dimension)``; the first half of the points has label +1.

    Returns
    -------
    Tensor
        Linearizations around the data, shape ``(seeds, checkpoints + 1, points, dimension)``; NaN where a network does
        not get so far: all units of a class of points may die on the way.
    """
    check_tensor("x", x, (settings.points, domain.dimension), inexact=True)
    shapes, f = network(name, domain)
    w = [a.requires_grad_(True) for a in _living_start(shapes, f, x, settings)]
    y = torch.ones(settings.points, dtype=x.dtype)
    y[settings.points // 2 :] = -1
    marks = math.log(10) * settings.losses
    return descend(
        w, lambda: log_exponential_loss(y * f(w, x)), marks, lambda: linearize(f, w, x), settings.drop, "nan"
    )


def _living_start(shapes: Sequence[tuple[int, ...]], f: Network, x: Tensor, settings: Settings) -> list[Tensor]:
    """Return starting weights; where all outputs of a network are zero, its gradient is, and it is drawn again."""
    generator = torch.Generator().manual_seed(1000 * settings.seed + 999)  # apart from those of the data

    def draw() -> list[Tensor]:
        numbers = [torch.randn(len(x), *s, generator=generator, dtype=x.dtype) for s in shapes]
        return [settings.scale / math.sqrt(a.shape[-1]) * a for a in numbers]

    w = draw()
    while bool((dead := (f(w, x) == 0).all(-1)).any()):
        w = [torch.where(dead.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(w, draw(), strict=True)]
    return w


def measure_ranks(domain: Domain, settings: Settings | None = None, networks: Sequence[str] = NETWORKS) -> Ranks:
    """Train the networks on the domain's data and return the effective ranks of their linearizations.

    A point at which the network is dead, β(x) = 0, has no rank and is left out of the mean.
    """
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {domain!r} of type {type(domain).__name__}")
    if isinstance(networks, str) or not set(networks) <= set(NETWORKS):
        raise ValueError(f"networks must be one of or several of {list(NETWORKS)} in a list, got {networks!r}")
    settings, began = settings or Settings(), time.perf_counter()
    x = torch.stack([domain.inputs(settings.points, s) for s in independent_seeds(settings.seed, settings.seeds)])
    ranks = {}
    for name in networks:
        slopes = train(name, domain, x, settings).nan_to_num()  # a run that did not arrive counts as dead
        ranks[name] = effective_rank(domain.blocks(slopes)).nanmean(-1)
    return Ranks(settings.losses, ranks, time.perf_counter() - began)
