r"""Convolutions on the plane that commute with quarter turns, reflections or eighth turns: p4, p4m and p8.

A feature map on the group :math:`\mathbb{Z}^2 \rtimes H` has shape ``(n, channels · |H|, h, w)``; the value of channel
c at the group element a is channel ``c · |H| + index(a)`` of the tensor, in the numbering of
:mod:`lib.symmetry.groups`. An element g of H moves an image and a feature map by

    (ρ(g) f)(x) = f(g⁻¹x),    (ρ(g) f)(a, x) = f(g⁻¹a, g⁻¹x),

about the centre of the grid, and every module here satisfies ``layer(ρ(g) f) = ρ(g) layer(f)``: for p4 and p4m up to
rounding, on even and odd grids; for p8 up to rounding for its quarter turns and approximately for the rest, since a
square grid has no eighth turn (two layers: 2 to 20 %, the less the smoother the image). A filter is stored once and
*expanded* to its |H| moved copies by a gather with indices made beforehand, so that a layer is one ordinary ``conv2d``
(Cohen & Welling 2016, section 7; the filters of p8 are steerable, Weiler, Hamprecht & Storath 2018).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import register_parametrization

from lib.checks import check_choice
from lib.symmetry.actions import pixels, regular
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup

GROUPS: dict[str, FiniteGroup] = {"none": Cyclic(1), "p4": Cyclic(4), "p4m": Dihedral(4), "p8": Cyclic(8)}
RING_WIDTH = 0.8  # of the rings that carry p8's filters, in pixels
RING_FREQUENCY = 2  # the highest angular frequency on a ring


def act_on_images(group: str, g: Tensor, images: Tensor) -> Tensor:
    """Return the moved images ``(ρ(g) f)(x) = f(g⁻¹x)``, shape ``(n, c, size, size)``.

    Elements of a group of ``GROUPS`` are given once for all images or for each, shape ``(k,)`` or ``(n, k)``. Element 1
    of p4 is the quarter turn, of p8 the eighth turn, counter-clockwise as shown. The odd eighth turns of p8 interpolate
    linearly and repeat the border, so that values stay in their range.
    """
    G, g = _check_action(group, g, images)
    if G.order == 1:
        return images
    turn = g // 2 if group == "p8" else g
    point_group = Cyclic(4) if group == "p8" else G
    moved = _pixels(point_group, images.shape[-1])._apply(turn[:, None], images.flatten(2)).view_as(images)
    return torch.where(g[..., None, None] % 2 == 1, _eighth_turn(moved), moved) if group == "p8" else moved


def move_images(group: str, images: Tensor, rng: torch.Generator) -> Tensor:
    """Return every image moved by a random element of a group of ``GROUPS``."""
    return act_on_images(group, GROUPS[group].sample(len(images), rng), images)


def act_on_features(group: str, g: Tensor, features: Tensor) -> Tensor:
    """Return the moved feature maps ``(ρ(g) f)(a, x) = f(g⁻¹a, g⁻¹x)``, shape ``(n, channels · |H|, size, size)``."""
    G, g = _check_action(group, g, features)
    moved = act_on_images(group, g, features).unflatten(1, (-1, G.order)).movedim(2, -1)
    return _regular(G)._apply(g[:, None, None, None], moved).movedim(-1, 2).flatten(1, 2)


def steerable_basis(size: int) -> Tensor:
    """Return p8's functions ψ_j(a⁻¹x) on a square grid for the eight turns a, shape ``(8, J, size²)``.

    The ψ_j are exp(−(r − R)²/2s²) times 1, cos mφ or sin mφ about the centre of the grid, on rings of radius R = 0, 1,
    2, … where the size is odd and 1/2, 3/2, … where it is even, with m ≤ 2 and m ≤ 2R; their norms are 1 on average
    over the turns. Turned functions are *evaluated*, not interpolated.
    """
    ticks = torch.arange(size, dtype=torch.float64, device="cpu") - (size - 1) / 2
    down, right = torch.meshgrid(ticks, ticks, indexing="ij")
    r, angle = torch.hypot(down, right), torch.atan2(-down, right)
    turned = angle - torch.arange(8, dtype=torch.float64, device="cpu")[:, None, None] * math.pi / 4
    parts = []
    for radius in ticks[ticks >= 0].tolist():
        profile = torch.exp(-((r - radius) ** 2) / (2 * RING_WIDTH**2)).expand_as(turned)
        parts.append(profile)
        for m in range(1, int(min(RING_FREQUENCY, 2 * radius)) + 1):
            parts += [profile * (r > 0) * (m * turned).cos(), profile * (r > 0) * (m * turned).sin()]
    basis = torch.stack(parts, 1).flatten(2)
    return basis / basis.square().sum(-1).mean(0).sqrt()[:, None]


class Expansion(nn.Module):
    r"""The free filters of an equivariant convolution ↦ the filters of one ordinary convolution.

    Between fields on the group, ``W[o, a, i, b, y] = w[o, i, a⁻¹b, a⁻¹y]``; from the plane the index b is absent, and
    to the plane ``W[o, i, b, y] = w[o, i, b⁻¹y]``. For p8, w stands for coefficients over :func:`steerable_basis`.
    There are ``free`` numbers w[o, i], ``per_element`` of them at every element of the group.
    """

    def __init__(self, group: str, kernel: int, source: str, target: str) -> None:
        super().__init__()
        self.kernel, self.target = kernel, target
        G, g = GROUPS[group], GROUPS[group].elements()
        self.order = G.order
        basis = steerable_basis(kernel) if group == "p8" else None
        if basis is None:
            index = _pixels(G, kernel).permutation(G.inverse(g))
        else:
            index = torch.arange(basis.shape[1], device="cpu").expand(self.order, -1)
        self.per_element = index.shape[-1]
        if (source, target) == ("group", "group"):
            relative = G.index(G.multiply(G.inverse(g)[:, None], g))
            index = (relative[..., None] * self.per_element + index[:, None]).flatten(1)
        self.free = index.shape[-1]
        self.register_buffer("index", index.contiguous(), persistent=False)
        self.register_buffer("basis", basis, persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        """Return W for w of shape ``(outputs, inputs, free)``, of a shape for ``conv2d``."""
        rows = weight if self.target == "group" else weight.reshape(-1, 1, self.free)
        shape = len(rows), self.order, rows.shape[1], self.free
        filters = rows[:, None].expand(shape).gather(-1, self.index[:, None].expand(shape))
        if self.basis is not None:
            coefficients = filters.unflatten(-1, (-1, self.per_element))
            filters = torch.einsum("oaibj,ajy->oaiby", coefficients, self.basis.to(weight.dtype))
        outputs = len(weight) * (self.order if self.target == "group" else 1)
        return filters.reshape(outputs, -1, self.kernel, self.kernel)


class _Repetition(nn.Module):
    """One number per channel ↦ the same number at every element of the group."""

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, bias: Tensor) -> Tensor:
        return bias.repeat_interleave(self.order)


class PlanarConv2d(nn.Conv2d):
    r"""An equivariant convolution with bias and zero padding that keeps the size of the grid.

    From the group to the group, for the group element a,

        out(o; a, x) = Σ_i Σ_b Σ_y w[o, i, a⁻¹b, a⁻¹y] f(i; b, x + y) + bias[o].

    It is an ``nn.Conv2d`` whose ``weight`` and ``bias`` are torch parametrizations of fewer free numbers. Initial
    weights are normal with variance 1 / fan-in, the fan-in being that of the expanded filters.

    Inputs and outputs are channels, *not* counting the |H| values that each has on the group, a key of ``GROUPS``; with
    ``"none"`` this is an ordinary convolution. The kernel has an odd side: an even one has no centre pixel to turn
    about. Source and target are ``"plane"`` or ``"group"``; plane to group lifts an image, group to plane returns.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        group: str,
        kernel: int = 3,
        source: str = "group",
        target: str = "group",
    ) -> None:
        order = GROUPS[group].order
        if kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that it has a centre pixel to turn about, got {kernel}")
        if order > 1 and source == target == "plane":
            raise ValueError("source or target must be 'group', got 'plane' for both")
        fan_in = inputs * (order if source == "group" else 1)
        fan_out = outputs * (order if target == "group" else 1)
        super().__init__(fan_in, fan_out, kernel, padding=kernel // 2)
        if order == 1:
            nn.init.normal_(self.weight, std=(fan_in * kernel**2) ** -0.5)
            return
        expansion = Expansion(group, kernel, source, target)
        free = torch.empty(outputs, inputs, expansion.free).normal_(std=(fan_in * expansion.per_element) ** -0.5)
        self.weight = nn.Parameter(free)
        register_parametrization(self, "weight", expansion, unsafe=True)
        if target == "group":
            self.bias = nn.Parameter(self.bias.detach()[:outputs].clone())
            register_parametrization(self, "bias", _Repetition(order), unsafe=True)


class PlanarBatchNorm(nn.Module):
    """Conditional batch normalisation with statistics, gain and shift shared over the group.

    Mean and variance are taken over images, group and pixels, so moving every image by an element of its own changes
    neither; then channel c of an image with label l becomes ``(1 + gain[l, c]) · f + shift[l, c]``. Channels do not
    count the group.
    """

    def __init__(self, channels: int, group: str, classes: int = 1) -> None:
        super().__init__()
        self.order = GROUPS[group].order
        self.normalise = nn.BatchNorm2d(channels, affine=False)
        self.gain, self.shift = (nn.Embedding(classes, channels) for _ in range(2))
        nn.init.zeros_(self.gain.weight)
        nn.init.zeros_(self.shift.weight)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the normalised features, for labels of shape ``(n,)``."""
        n, _, height, width = features.shape
        out = self.normalise(features.reshape(n, -1, self.order * height, width))
        gain, shift = (table(labels)[..., None, None] for table in (self.gain, self.shift))
        return (out * (1 + gain) + shift).view_as(features)


def upsample(features: Tensor) -> Tensor:
    """Return maps ``(n, c, h, w)`` at twice the size by linear interpolation, symmetrically about the centre."""
    return functional.interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)


def downsample(features: Tensor) -> Tensor:
    """Return maps ``(n, c, h, w)`` at half the size, rounded up, by means over windows symmetric about the centre.

    The windows are blocks of 2 × 2 where the size is even and 3 × 3 with stride 2 where it is odd (at the border: what
    of it lies inside). A strided convolution would not do: with stride 2 on an even grid its windows lie off centre.
    """
    if features.shape[-1] % 2 == 0:
        return functional.avg_pool2d(features, 2)
    return functional.avg_pool2d(features, 3, stride=2, padding=1, count_include_pad=False)


_regular = lru_cache(maxsize=8)(regular)
_pixels = lru_cache(maxsize=64)(pixels)


def _check_action(group: str, g: Tensor, x: Tensor) -> tuple[FiniteGroup, Tensor]:
    """Return the group, and g with a batch axis of length 1 or n."""
    G = GROUPS[check_choice("group", group, GROUPS)]
    if x.ndim != 4 or x.shape[-1] != x.shape[-2] or not x.numel():
        raise ValueError(f"images must be square, of shape (n, c, size, size), got {tuple(x.shape)}")
    return G, G.check("g", g if g.ndim > 1 else g[None]).to(x.device)


def _eighth_turn(images: Tensor) -> Tensor:
    """Return the images turned by 45° counter-clockwise about the centre, with linear interpolation."""
    c = math.sqrt(0.5)
    backward = torch.tensor([[c, -c, 0], [c, c, 0]], dtype=images.dtype, device=images.device)
    grid = functional.affine_grid(backward.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
