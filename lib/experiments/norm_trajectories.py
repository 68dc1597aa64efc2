"""Chapter *Implicit bias in Fourier space*: norms along the training of three linear architectures on digits (B7).

Fully connected, convolutional and group-convolutional linear networks of one depth classify two digits that are lifted
to functions on the motions of the torus. Every network is seen through its predictor β = β(w), at unit margin, and all
are compared at equal training loss. At full size: the run ``norms_of_digits``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import check_choice, check_float, check_int, check_tensor
from lib.device import default_device
from lib.images.bundled import digits
from lib.images.datasets import mnist_test
from lib.page.parameters import independent_seeds
from lib.symmetry.actions import motions, pixels, translations
from lib.symmetry.fourier import GroupFourier, schatten_norm
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, SemidirectProduct
from lib.training.log_loss_descent import descend, log_exponential_loss

NETWORKS = ("FC", "CNN", "G-CNN", "wrong G-CNN")
COMPARED = NETWORKS[:3]
NORMS = ("euclidean", "schatten", "wrong schatten", "renamed schatten", "bridge")
Predictor = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Settings:
    """Data, networks and training.

    Attributes
    ----------
    size : int
        Side of the images: 8 takes the bundled digits, 7, 14 and 28 the MNIST test images. The group
        (C_size × C_size) ⋊ D_4 has order 8·size².
    classes : tuple of int
        The two digits, labelled +1 and −1.
    points : int
        Images, half of each class, drawn afresh for every run.
    runs : int
        Independent repetitions, with other images and other starting weights.
    layers : int
        Depth L, the final linear layer included.
    width : int
        Hidden units of the fully connected network; |G| in the source.
    scale : float
        Weights start as independent normal numbers of variance scale²/(number of inputs).
    drop : float
        Decrease of the log-loss that a step of gradient descent aims at.
    decades : int
        Training stops at loss 10^−decades.
    checkpoints : int
        Values of the loss on the way at which the networks are looked at.
    together : int
        Runs trained at once: time against memory.
    seed : int
        Number of the independent set of repetitions.
    """

    size: int = 8
    classes: tuple[int, int] = (1, 5)
    points: int = 20
    runs: int = 5
    layers: int = 3
    width: int = 64
    scale: float = 1.0
    drop: float = 0.3
    decades: int = 12
    checkpoints: int = 10
    together: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("size", self.size, (7, 8, 14, 28))
        if (
            not isinstance(self.classes, tuple)
            or len(set(self.classes)) != 2
            or not set(self.classes) <= set(range(10))
        ):
            raise ValueError(f"classes must be two different digits, got {self.classes}")
        if check_int("points", self.points, minimum=2, maximum=100) % 2:
            raise ValueError(f"points must be even, half of each class, got {self.points}")
        for name in ("runs", "width", "together"):
            check_int(name, getattr(self, name))
        check_int("seed", self.seed, minimum=0)
        check_int("layers", self.layers, minimum=2, maximum=6)
        check_float("scale", self.scale, minimum=1e-3, maximum=10.0)
        check_float("drop", self.drop, minimum=1e-4, maximum=1.0)
        check_int("decades", self.decades, minimum=3, maximum=200)
        check_int("checkpoints", self.checkpoints, minimum=2, maximum=100)

    @property
    def group(self) -> SemidirectProduct:
        """The group (C_size × C_size) ⋊ D_4."""
        return motions(self.size, Dihedral(4))

    @property
    def wrong_group(self) -> SemidirectProduct:
        """The direct product of the same factors, with the same numbering of the elements."""
        return DirectProduct(translations(self.size), Dihedral(4))

    @property
    def losses(self) -> Tensor:
        """Decades −log₁₀ of the loss at the checkpoints; the first says that every margin is positive."""
        return torch.linspace(math.log10(self.points), self.decades, self.checkpoints, dtype=torch.float64)


@dataclass(frozen=True)
class Norms:
    """Norms of the predictors β at unit margin, min_n y_n⟨x_n, β⟩ = 1.

    Attributes
    ----------
    settings : Settings
        What was run.
    losses : Tensor
        Decades −log₁₀ of the loss at the checkpoints.
    values : dict of str to dict of str to Tensor
        Network, then norm, shape ``(runs, checkpoints)``: ``"euclidean"`` ‖β‖_2, ``"schatten"`` ‖β̂‖_{2/L} over the
        irreducible representations of the group, ``"wrong schatten"`` over those of the direct product, ``"renamed
        schatten"`` over those of the group after its elements are renamed at random, ``"bridge"`` ‖β‖_{2/L}.
    seconds : float
        Time that training and norms took.
    """

    settings: Settings
    losses: Tensor
    values: dict[str, dict[str, Tensor]]
    seconds: float

    def at_unit_length(self, network: str, norm: str) -> Tensor:
        """Return the norm of β/‖β‖_2, the normalisation of the source's figure, shape ``(runs, checkpoints)``."""
        check_choice("network", network, self.values)
        check_choice("norm", norm, NORMS)
        return self.values[network][norm] / self.values[network]["euclidean"]

    def violations(self, candidate: str, norm: str, among: Sequence[str] = COMPARED, unit_length: bool = False) -> int:
        """Return in how many runs the candidate does not end with the lowest norm among the networks.

        With ``unit_length`` they are compared at ‖β‖_2 = 1 instead of at unit margin.
        """
        check_choice("candidate", candidate, self.values)
        check_choice("norm", norm, NORMS)
        value = (lambda n: self.at_unit_length(n, norm)) if unit_length else (lambda n: self.values[n][norm])
        rivals = [check_choice("among", name, self.values) for name in among if name != candidate]
        if not rivals:
            raise ValueError(f"among must name another network than {candidate!r}, got {list(among)}")
        others = torch.stack([value(name)[:, -1] for name in rivals])
        return int((value(candidate)[:, -1] >= others.amin(0)).sum())


def lift(images: Tensor, group: SemidirectProduct, size: int) -> Tensor:
    """Return images as functions on the group: f_x(u) = x(u·p_0), the pixel to which u moves pixel p_0 = (0, 0).

    The lift is equivariant, f_{gx}(u) = f_x(g⁻¹u), for the action of :func:`lib.symmetry.actions.pixels` on the torus.

    Parameters
    ----------
    images
        Shape ``(..., size²)``; the result has shape ``(..., |G|)``.
    group
        ``motions(size, …)``.
    size
        Side of the images.
    """
    check_tensor("images", images, (size * size,), inexact=True)
    numbers = torch.arange(size * size, dtype=torch.float64)
    moved = pixels(group, size).apply(group.inverse(group.elements()), numbers)[:, 0]
    return images[..., moved.round().long().to(images.device)]


def lifted_digits(settings: Settings) -> Tensor:
    """Return y_n x_n for lifted digits x_n and labels y_n = ±1, shape ``(runs, points, |G|)``, float64.

    Grey values are standardised over all images; the lifted functions of a run are divided by their mean length.
    """
    if settings.size == 8:
        data = digits()
        x, y = data.train_x, data.train_y
    else:
        x, y = mnist_test(settings.size)
        x = x[:, 0]
    x, chosen = (x - x.mean()) / x.std(), []
    for seed in independent_seeds(settings.seed, settings.runs):
        generator = torch.Generator().manual_seed(seed)
        for label, sign in zip(settings.classes, (1.0, -1.0), strict=True):
            members = (y == label).nonzero()[:, 0]
            drawn = members[torch.randperm(len(members), generator=generator)[: settings.points // 2]]
            chosen.append(sign * lift(x[drawn], settings.group, settings.size))
    signed = torch.cat(chosen).reshape(settings.runs, settings.points, -1)
    return signed / signed.norm(dim=-1).mean(-1)[:, None, None]


def network(name: str, settings: Settings) -> tuple[list[tuple[int, ...]], Predictor]:
    """Return the shapes of a network's weights w_1 … w_L, and the map w ↦ β(w).

    β = W_1ᵀ … W_{L−1}ᵀ w_L if fully connected, and w_L ∗ w_{L−1}^∨ ∗ … ∗ w_1^∨ for convolutions: over the cyclic group
    of order |G| (``"CNN"``, on the list of values, as in the source), the group, or the direct product.

    Raises
    ------
    ValueError
        ``name`` is not one of ``NETWORKS``.
    """
    order, L, m = settings.group.order, settings.layers, settings.width
    if check_choice("name", name, NETWORKS) == "FC":

        def product(w: Sequence[Tensor]) -> Tensor:
            out = w[-1]
            for matrix in reversed(w[:-1]):
                out = (out[:, None] @ matrix)[:, 0]
            return out

        return [(m, order), *[(m, m)] * (L - 2), (m,)], product
    group = {"CNN": Cyclic(order), "G-CNN": settings.group, "wrong G-CNN": settings.wrong_group}[name]
    convolution = GroupConvolution(group)

    def correlated(w: Sequence[Tensor]) -> Tensor:
        out = w[-1]
        for filters in reversed(w[:-1]):
            out = convolution.correlate(out, filters)
        return out

    return [(order,)] * L, correlated


def train(name: str, signed: Tensor, settings: Settings, first_run: int = 0) -> Tensor:
    """Train one architecture on the exponential loss R = mean_n exp(−y_n⟨x_n, β⟩), all runs at once.

    Parameters
    ----------
    name
        One of ``NETWORKS``.
    signed
        y_n x_n, shape ``(runs, points, |G|)``.
    settings
        Networks and training.
    first_run
        Number of the first run: a run's starting weights depend on its number only.

    Returns
    -------
    Tensor
        β where the loss first falls to each of ``settings.losses``, shape ``(runs, checkpoints, |G|)``.

    Raises
    ------
    RuntimeError
        The loss does not fall so far, see :func:`lib.training.log_loss_descent.descend`.
    """
    shapes, predictor = network(name, settings)
    seeds = independent_seeds(settings.seed, first_run + len(signed))[first_run:]
    starts = [_start(shapes, settings.scale, seed) for seed in seeds]
    w = [torch.stack(layer).to(signed).requires_grad_(True) for layer in zip(*starts, strict=True)]

    def log_loss() -> Tensor:
        return log_exponential_loss((signed @ predictor(w)[..., None])[..., 0])

    marks = math.log(10) * settings.losses.to(signed.device)
    return descend(w, log_loss, marks, lambda: predictor(w), settings.drop)


def _start(shapes: Sequence[tuple[int, ...]], scale: float, seed: int) -> list[Tensor]:
    """Return random weights: normal, of variance scale²/(number of inputs)."""
    generator = torch.Generator().manual_seed(1000 + seed)  # apart from that of the images
    return [scale / math.sqrt(s[-1]) * torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def measure_norms(settings: Settings, networks: Sequence[str] = NETWORKS, device: str = "") -> Norms:
    """Train the networks and return the norms of their predictors along training.

    Parameters
    ----------
    settings
        What to run.
    networks
        Some of ``NETWORKS``.
    device
        Where to train: see :func:`lib.device.default_device`.
    """
    if isinstance(networks, str) or not set(networks) <= set(NETWORKS):
        raise ValueError(f"networks must be one of or several of {list(NETWORKS)} in a list, got {networks!r}")
    began, values = time.perf_counter(), {}
    signed, p = lifted_digits(settings).to(default_device(device)), 2 / settings.layers
    right, wrong = GroupFourier(settings.group), GroupFourier(settings.wrong_group)
    shuffle = torch.randperm(settings.group.order, generator=torch.Generator().manual_seed(0))
    for name in networks:
        parts = signed.split(settings.together)
        beta = torch.cat([train(name, part, settings, i * settings.together) for i, part in enumerate(parts)])
        beta = (beta / (beta @ signed.mT).amin(-1, keepdim=True)).cpu()
        values[name] = {
            "euclidean": beta.norm(dim=-1),
            "schatten": schatten_norm(right.forward(beta), p),
            "wrong schatten": schatten_norm(wrong.forward(beta), p),
            "renamed schatten": schatten_norm(right.forward(beta[..., shuffle]), p),
            "bridge": beta.norm(p, dim=-1),
        }
    return Norms(settings, settings.losses, values, time.perf_counter() - began)
