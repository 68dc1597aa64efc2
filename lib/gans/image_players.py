"""Generators and discriminators of images that know the symmetry of the square, and plain ones of the same build.

Both players are small class-conditional residual networks (Birrell, Katsoulakis, Rey-Bellet & Zhu 2022, section 5) made
of the layers of :mod:`lib.gans.planar_convolution`. An equivariant generator needs noise on which the group acts and
whose law it leaves alone: here a Gaussian z, which is not moved, and an independent, uniformly distributed group
element σ. A dense layer turns z into a feature map F(z) on the group, σ moves it, and equivariant layers follow, so
that

    g(z, σ) = ρ(σ) g(z, 1)    and    g(z, τσ) = ρ(τ) g(z, σ).

As τσ is uniform like σ, the law of g(z, σ) is invariant, whatever F is. Leaving σ out keeps every layer equivariant and
yet gives a law without any symmetry: the *incomplete* generator. For p8 the identity is approximate: of the effect of
an eighth turn, 30 to 55 % are missed by untrained generators (least at 28 × 28), interpolation included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lib.checks import check_int, generator_of
from lib.gans.game import kinds_of, matched_size
from lib.gans.planar_convolution import (
    GROUPS,
    PlanarBatchNorm,
    PlanarConv2d,
    act_on_features,
    downsample,
    steerable_basis,
    upsample,
)

KINDS = ("plain", "equivariant", "incomplete")
JUDGES = ("plain", "invariant")
START_CHANNELS = 32  # in total, of the feature map that the latent vector becomes (more for p8)
START_SIZES = range(4, 8)


@dataclass(frozen=True)
class ImageNoise:
    """What a generator turns into images.

    The elements are drawn for every kind, so that all kinds share their random numbers, and used by the kind
    ``"equivariant"`` only.
    """

    z: Tensor  #: standard normal, shape ``(n, latent)``
    element: Tensor  #: uniform elements of the group, shape ``(n, k)``
    labels: Tensor  #: shape ``(n,)``


class Generator(nn.Module):
    """A class-conditional generator: dense layer, blocks that double the size, one convolution, tanh.

    The side ``size`` of the images is 4, 5, 6 or 7 times a power of two, at least 8: the dense layer makes a map of the
    odd or smallest size (28 = 4 · 7, 64 = 16 · 4). Images have so many ``colours``; one class (all labels 0) is the
    unconditional generator. ``channels`` is the *total* of a hidden layer, a multiple of the order of the group, which
    is a key of ``GROUPS``, ``"none"`` for the plain generator; the kind is one of ``KINDS``; ``latent`` is the length
    of z. Initial weights come from ``rng``; torch's global generator is left as it was.
    """

    def __init__(
        self,
        *,
        size: int,
        colours: int = 1,
        classes: int = 10,
        channels: int = 64,
        group: str = "p4",
        kind: str = "equivariant",
        latent: int = 64,
        rng: torch.Generator,
    ) -> None:
        width, start, doublings = _check_sizes(size, channels, group)
        super().__init__()
        self.group, self.kind = group, kind
        self.latent, self.classes = latent, classes
        with _initialised_by(rng):
            self.place = _Placement(latent + classes, group, start)
            inputs = [self.place.channels] + [width] * (doublings - 1)
            self.blocks = nn.ModuleList(_Doubling(before, width, group, classes) for before in inputs)
            self.normalise = PlanarBatchNorm(width, group, classes)
            self.image = PlanarConv2d(width, colours, group, target="plane")

    def draw(self, labels: Tensor, rng: torch.Generator) -> ImageNoise:
        """Return noise for the given labels: z and the element drawn on ``rng``'s device, moved to the labels'."""
        z = torch.randn(len(labels), self.latent, generator=rng, device=rng.device)
        element = GROUPS[self.group].sample(len(labels), rng)
        return ImageNoise(z.to(labels.device), element.to(labels.device), labels)

    def turn(self, noise: ImageNoise, g: Tensor) -> ImageNoise:
        """Return the noise moved by g, shape ``(k,)`` or ``(n, k)``: σ becomes gσ, and images are moved."""
        element = GROUPS[self.group].multiply(g.to(noise.element.device), noise.element)
        return replace(noise, element=element)

    def forward(self, noise: ImageNoise) -> Tensor:
        """Return images in [−1, 1], shape ``(n, colours, size, size)``."""
        one_hot = functional.one_hot(noise.labels, self.classes).to(noise.z.dtype)
        element = noise.element if self.kind == "equivariant" else torch.zeros_like(noise.element)
        features = self.place(torch.cat([noise.z, one_hot], -1), element)
        for block in self.blocks:
            features = block(features, noise.labels)
        return self.image(functional.relu(self.normalise(features, noise.labels))).tanh()


class Discriminator(nn.Module):
    """A class-conditional discriminator: residual blocks that halve the size, a mean over group and grid, a projection.

    The score is ``⟨w, φ(x)⟩ + b + ⟨e_label, φ(x)⟩`` (Miyato & Koyama 2018), invariant under the group like the features
    φ. There is no batch normalisation, so penalties on single images make sense. Arguments as for :class:`Generator`.
    """

    def __init__(
        self,
        *,
        size: int,
        colours: int = 1,
        classes: int = 10,
        channels: int = 64,
        group: str = "p4",
        rng: torch.Generator,
    ) -> None:
        width, _, halvings = _check_sizes(size, channels, group)
        super().__init__()
        self.group, self.classes, self.shape = group, classes, (colours, size, size)
        with _initialised_by(rng):
            self.lift = PlanarConv2d(colours, width, group, source="plane")
            self.blocks = nn.ModuleList(_Halving(width, group, k < halvings) for k in range(halvings + 1))
            self.score = nn.Linear(width, 1)
            self.embedding = nn.Embedding(classes, width)
            nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return one score per image, shape ``(n,)``."""
        features = self.lift(images)
        for block in self.blocks:
            features = block(features)
        features = functional.leaky_relu(features, 0.2).unflatten(1, (-1, GROUPS[self.group].order))
        invariants = features.mean(2).mean((-2, -1))
        return self.score(invariants)[:, 0] + (self.embedding(labels) * invariants).sum(-1)


def players(
    pairing: str,
    group: str,
    size: int,
    colours: int = 1,
    classes: int = 10,
    channels: int = 64,
    latent: int = 64,
    matched: bool = False,
    seed: int = 0,
) -> tuple[Generator, Discriminator]:
    """Return both players of a game before training; they depend on the arguments only.

    The pairing names kinds of both, one of ``KINDS`` and of ``JUDGES``, as in ``"plain/invariant"``; the group is the
    symmetry of those that have one, ``"p4"``, ``"p4m"`` or ``"p8"``. If ``matched``, these have as many channels as
    give them the parameters of a plain one of so many. The rest is as for :class:`Generator`.
    """
    kind, judge = kinds_of(pairing, KINDS, JUDGES)

    def made(player: type[nn.Module], place: int, knows: bool, **own: Any) -> nn.Module:
        own |= {"size": size, "colours": colours, "classes": classes}
        total = matched_channels(player, channels, group, **own) if matched and knows else channels
        return player(channels=total, group=group if knows else "none", rng=generator_of(seed, place), **own)

    artist = made(Generator, 0, kind != "plain", kind=kind, latent=latent)
    return artist, made(Discriminator, 1, judge != "plain")


def matched_channels(player: type[nn.Module], channels: int, group: str, **settings: Any) -> int:
    """Return the total channels at which a symmetric player has as many parameters as the plain one, or nearly.

    A convolution with C channels in total has 9 C²/|H| parameters (p8: 6 C²/|H|), hence about C ↦ C √|H|.
    """

    def count(channels: int, group: str) -> int:
        made = player(channels=channels, group=group, rng=torch.Generator(), **settings)
        return sum(p.numel() for p in made.parameters())

    return matched_size(lambda total: count(total, group), GROUPS[group].order, count(channels, "none"), channels)


class _Placement(nn.Module):
    """A vector and a group element σ ↦ ρ(σ) F(vector), with an affine map F to feature maps on the group.

    For p8, whose turns do not keep the grid, F returns coefficients over :func:`steerable_basis`; these are fewer than
    pixels, so there are more channels and F keeps its number of parameters.
    """

    def __init__(self, inputs: int, group: str, size: int) -> None:
        super().__init__()
        self.group, self.size, order = group, size, GROUPS[group].order
        basis = steerable_basis(size) if group == "p8" else None
        free = size**2 if basis is None else basis.shape[1]
        self.channels = round(START_CHANNELS * size**2 / (order * free))
        self.dense = nn.Linear(inputs, self.channels * order * free)
        self.register_buffer("basis", basis, persistent=False)

    def forward(self, vector: Tensor, element: Tensor) -> Tensor:
        maps = self.dense(vector)
        if self.basis is None:
            return act_on_features(self.group, element, maps.unflatten(-1, (-1, self.size, self.size)))
        coefficients = maps.reshape(len(vector), self.channels, 8, -1)
        source = (torch.arange(8, device=element.device) - element) % 8  # σ⁻¹a
        moved = coefficients.gather(2, source[:, None, :, None].expand_as(coefficients))
        turned = self.basis.to(maps.dtype)[element[:, 0]]
        return (moved.flatten(1, 2) @ turned).unflatten(-1, (self.size, self.size))


class _Doubling(nn.Module):
    """normalise, relu, ×2, convolve, normalise, relu, convolve, plus a 1 × 1 convolution of the enlarged input."""

    def __init__(self, inputs: int, outputs: int, group: str, classes: int) -> None:
        super().__init__()
        self.normalise = PlanarBatchNorm(inputs, group, classes)
        self.convolve = PlanarConv2d(inputs, outputs, group)
        self.normalise_again = PlanarBatchNorm(outputs, group, classes)
        self.convolve_again = PlanarConv2d(outputs, outputs, group)
        self.shortcut = PlanarConv2d(inputs, outputs, group, kernel=1)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        out = self.convolve(upsample(functional.relu(self.normalise(features, labels))))
        out = self.convolve_again(functional.relu(self.normalise_again(out, labels)))
        return out + upsample(self.shortcut(features))


class _Halving(nn.Module):
    """relu, convolve, relu, convolve, plus the input; then, if ``halve``, half the size."""

    def __init__(self, channels: int, group: str, halve: bool) -> None:
        super().__init__()
        self.halve = halve
        self.convolve, self.convolve_again = (PlanarConv2d(channels, channels, group) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        out = self.convolve(functional.leaky_relu(features, 0.2))
        out = features + self.convolve_again(functional.leaky_relu(out, 0.2))
        return downsample(out) if self.halve else out


@contextmanager
def _initialised_by(rng: torch.Generator) -> Iterator[None]:
    """Seed torch's global generator, which initialises layers on the CPU, by ``rng``; put it back at the end."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))
        yield


def _check_sizes(size: int, channels: int, group: str) -> tuple[int, int, int]:
    """Return channels per group element, the start size and how many doublings lead from there to ``size``."""
    order = GROUPS[group].order
    if channels % order:
        raise ValueError(f"channels must be a multiple of {order} for {group}, got {channels}")
    start, doublings = check_int("size", size, minimum=8, maximum=1024), 0
    while start % 2 == 0 and start not in START_SIZES:
        start, doublings = start // 2, doublings + 1
    if start not in START_SIZES:
        raise ValueError(f"size must be 4, 5, 6 or 7 times a power of two, got {size}")
    return channels // order, start, doublings
