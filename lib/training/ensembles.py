"""Ensembles of small convolutional networks: all members in one grouped convolution, rotated images, quarter turns.

One network is three 3 × 3 convolutions without biases, tanh after each, 2 × 2 average pooling after the first two, a
layer norm over all channels and pixels, and a linear head. A filter is zero off its *support*. The setting is that of
Nordenfors, Flinth (2024), *Ensembles provably learn equivariance through data augmentation*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, conv2d, grid_sample, layer_norm

from lib.checks import check_choice, check_instance, check_int, check_tensor

Members = tuple[Tensor, ...]

SUPPORTS = {
    "full": ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "plus": ((0, 1, 0), (1, 1, 1), (0, 1, 0)),
    "skewed": ((1, 1, 0), (1, 0, 1), (0, 1, 0)),
}
LAWS = ("symmetric", "asymmetric")
HEADS = ("unit", "small")
POOLED = (True, True, False)  # which convolutions are followed by 2 × 2 average pooling


@dataclass(frozen=True)
class Network:
    """The architecture of one member.

    Attributes
    ----------
    size : int
        Side of the square images, a multiple of 4, so that both pooling grids are moved to themselves by quarter turns.
    channels, classes : int
        Channels of every convolution, and number of classes.
    support : str
        ``"full"`` (9 taps), ``"plus"`` (5 taps) or ``"skewed"``, a plus with one corner instead of its centre. The
        first two are invariant under quarter turns.
    """

    size: int = 8
    channels: int = 16
    classes: int = 10
    support: str = "plus"

    def __post_init__(self) -> None:
        if check_int("size", self.size, minimum=4, maximum=256) % 4:
            raise ValueError(
                f"size must be a multiple of 4, got {self.size}: two poolings of 2 × 2 pixels would leave a border, "
                "and quarter turns would not fit the coarse grids"
            )
        check_int("channels", self.channels)
        check_int("classes", self.classes, minimum=2)
        check_choice("support", self.support, SUPPORTS)

    @property
    def mask(self) -> Tensor:
        """The support as a 3 × 3 array of zeros and ones."""
        return torch.tensor(SUPPORTS[self.support], device="cpu")

    @property
    def invariant(self) -> bool:
        """Whether the space of layers is mapped to itself by quarter turns."""
        return bool(torch.equal(self.mask.rot90(), self.mask))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the parameters of one member: three banks of filters, head, bias of the head."""
        c, side = self.channels, self.size // 4
        return [(c, 1, 3, 3), (c, c, 3, 3), (c, c, 3, 3), (self.classes, c, side, side), (self.classes,)]

    def require_invariant(self) -> None:
        """Raise a ``ValueError`` if the support is not invariant, for statements that need it."""
        if not self.invariant:
            raise ValueError(
                f"support must be invariant under quarter turns here ('full' or 'plus'), got {self.support!r}: "
                "it is allowed only as a named control"
            )

    def outputs(self, members: Members, x: Tensor) -> Tensor:
        """Return the logits of all members, each convolution fused with the pooling behind it.

        Parameters
        ----------
        members
            Parameters with a leading axis of members, shapes ``(m, *shape)`` for :attr:`shapes`.
        x
            Images, shape ``(m, batch, size, size)``, or ``(1, batch, size, size)`` if all members see the same.

        Returns
        -------
        Tensor
            Shape ``(m, batch, classes)``.
        """
        return self._run(members, x, fused=True)

    def unfused_outputs(self, members: Members, x: Tensor) -> Tensor:
        """Return what :meth:`outputs` returns by convolving first and pooling afterwards (the definition)."""
        return self._run(members, x, fused=False)

    def _run(self, members: Members, x: Tensor, fused: bool) -> Tensor:
        count = self.check_members(members)
        if check_tensor("x", x, (self.size, self.size)).dtype != members[0].dtype:
            raise TypeError(f"x must be of the members' dtype {members[0].dtype}, got {x.dtype}")
        if x.ndim != 4 or x.shape[0] not in (1, count):
            raise ValueError(f"x must have shape (1 or {count}, batch, size, size), got {tuple(x.shape)}")
        h = x.expand(count, -1, -1, -1).transpose(0, 1)
        for bank, pooled in zip(members[:3], POOLED, strict=True):
            filters = bank * self.mask.to(bank)
            if pooled and fused:
                h = conv2d(h, fuse_pooling(filters).flatten(0, 1), stride=2, padding=1, groups=count)
            else:
                h = conv2d(h, filters.flatten(0, 1), padding=1, groups=count)
                h = avg_pool2d(h, 2) if pooled else h
            h = h.tanh()
        h = h.unflatten(1, (count, -1)).flatten(2)
        h = layer_norm(h, h.shape[-1:])
        return torch.einsum("bmi,moi->mbo", h, members[3].flatten(2)) + members[4][:, None]

    def check_members(self, members: Members) -> int:
        """Return the number of members; raise unless their tensors have the shapes ``(m, *shape)``."""
        check_instance("members", members, (tuple, list))
        got = [tuple(check_instance("members", p, Tensor).shape) for p in members]
        if [shape[1:] for shape in got] != self.shapes or len({shape[:1] for shape in got}) != 1 or not got[0][0]:
            raise ValueError(f"members must have shapes (m, *shape) for {self.shapes}, with one m ≥ 1, got {got}")
        return got[0][0]

    def turn(self, members: Members, k: int) -> Members:
        """Return ρ(r^k) of the members: filters and head turned by k quarter turns, then cut to the support.

        For an invariant support, ``outputs(turn(members, k), rot90(x, k)) == outputs(members, x)``.
        """
        self.check_members(members)
        check_int("k", k, minimum=-(2**31))
        banks = tuple(bank.rot90(k, (-2, -1)) * self.mask.to(bank) for bank in members[:3])
        return (*banks, members[3].rot90(k, (-2, -1)), members[4])

    def orbit(self, members: Members) -> Members:
        """Return the four quarter turns of every member, turns first: ``(4·m, …)``."""
        return join([self.turn(members, k) for k in range(4)])


def fuse_pooling(filters: Tensor) -> Tensor:
    """Return the 4 × 4 filters, for stride 2, that convolve with 3 × 3 filters and average 2 × 2 outputs.

    The mean of four shifted copies: ``k[a, b] = ¼ Σ_{i, j ∈ {0, 1}} w[a − i, b − j]``, shape ``(…, 4, 4)``.
    """
    check_tensor("filters", filters, (3, 3))
    rows = torch.cat([filters, torch.zeros_like(filters[..., :1, :])], -2)
    rows = rows + rows.roll(1, -2)
    square = torch.cat([rows, torch.zeros_like(rows[..., :1])], -1)
    return (square + square.roll(1, -1)) / 4


def generator_of(*numbers: int) -> torch.Generator:
    """Return a generator that depends on these nonnegative integers only, and differs for any two of them."""
    state = np.random.SeedSequence([check_int("numbers", n, minimum=0) for n in numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)


def draw_members(
    network: Network,
    count: int,
    seed: int = 0,
    law: str = "symmetric",
    head: str = "small",
    first: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Members:
    r"""Return members with Gaussian weights; member i depends on the seed and on i only.

    Parameters
    ----------
    network
        The architecture.
    count, first
        Members ``first`` to ``first + count − 1``.
    seed
        Seed of the ensemble.
    law
        ``"symmetric"``: centred, the same for all taps, so invariant under quarter turns; ``"asymmetric"``: filters are
        shifted by one standard deviation, up in the right column and down in the left one.
    head
        Standard deviation of the head: ``"unit"``, 1, the source's choice; ``"small"``, 1/√(number of its inputs), so
        that logits start at size one. Filters have standard deviation 1.
    dtype, device
        Type of the parameters, and where they are; they are drawn on the CPU.

    Returns
    -------
    tuple of Tensor
        Shapes ``(count, *shape)`` for the shapes of the network; the bias of the head is zero.
    """
    check_instance("network", network, Network)
    check_int("count", count)
    check_int("seed", seed, minimum=0)
    if not check_instance("dtype", dtype, torch.dtype).is_floating_point:
        raise ValueError(f"dtype must be a real floating-point type, got {dtype}")
    check_choice("law", law, LAWS)
    check_choice("head", head, HEADS)
    *weights, bias = network.shapes
    rows = []
    for i in range(check_int("first", first, minimum=0), first + count):
        generator = generator_of(seed, i, 0)
        rows.append([torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") for shape in weights])
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    if law == "asymmetric":
        stacked[:3] = [bank + torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, device="cpu") for bank in stacked[:3]]
    if head == "small":
        stacked[3] = stacked[3] * stacked[3][0, 0].numel() ** -0.5
    mask = network.mask.to(torch.float64)
    banks = [bank * mask for bank in stacked[:3]]
    members = (*banks, stacked[3], torch.zeros(count, *bias, dtype=torch.float64, device="cpu"))
    return tuple(p.to(device, dtype) for p in members)


def rotate_images(images: Tensor, order: int) -> Tensor:
    """Return images turned counter-clockwise by all multiples of 2π/order: shape ``(order, …, size, size)``.

    Quarter turns permute pixels exactly. Other angles interpolate linearly, with zeros outside; turn k is then a turn
    by less than 90° followed by quarter turns, so that ``C_4`` inside ``C_order`` still acts exactly.

    Parameters
    ----------
    images
        Shape ``(…, size, size)``.
    order
        Number of rotations, a multiple of 4 (1 and 2 are allowed as well).
    """
    check_int("order", order, maximum=360)
    if order not in (1, 2) and order % 4:
        raise ValueError(f"order must be 1, 2 or a multiple of 4, got {order}: images have square pixels")
    check_tensor("images", images, (None, None), inexact=True)
    if images.ndim < 2 or images.shape[-1] != images.shape[-2]:
        raise ValueError(f"images must be square, got shape {tuple(images.shape)}")
    if order <= 2:
        return torch.stack([images.rot90(2 * k, (-2, -1)) for k in range(order)])
    within = [images] + [_rotate(images, 2 * torch.pi * k / order) for k in range(1, order // 4)]
    return torch.stack([turned.rot90(k, (-2, -1)) for k in range(4) for turned in within])


def _rotate(images: Tensor, angle: float) -> Tensor:
    a = images.new_tensor(angle)
    theta = torch.stack([torch.stack([a.cos(), -a.sin(), 0 * a]), torch.stack([a.sin(), a.cos(), 0 * a])])
    flat = images.reshape(-1, 1, *images.shape[-2:])
    grid = affine_grid(theta.expand(len(flat), 2, 3), list(flat.shape), align_corners=False)
    return grid_sample(flat, grid, align_corners=False).reshape(images.shape)


def join(parts: list[Members]) -> Members:
    """Return one ensemble with the members of several."""
    if not check_instance("parts", parts, (list, tuple)):
        raise ValueError("parts must hold at least one ensemble, got none")
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def choose(members: Members, which: int | slice | Tensor) -> Members:
    """Return some of the members, or one of them (an integer) without the axis of members."""
    return tuple(p[which] for p in members)


@torch.no_grad()
def orbit_logits(network: Network, members: Members, table: Tensor, part: int = 64) -> Tensor:
    """Return the logits of all members at images moved by all group elements.

    Parameters
    ----------
    network, members
        The ensemble.
    table
        Moved images, shape ``(|G|, n, size, size)``, the identity first.
    part
        Members at a time.

    Returns
    -------
    Tensor
        Shape ``(m, |G|, n, classes)``.
    """
    check_instance("network", network, Network)
    check_int("part", part)
    if check_tensor("table", table, (None, None, network.size, network.size), inexact=True, real=True).ndim != 4:
        raise ValueError(f"table must have shape (|G|, n, size, size), got {tuple(table.shape)}")
    x = table.flatten(0, 1)[None]
    blocks = [choose(members, slice(i, i + part)) for i in range(0, network.check_members(members), part)]
    logits = torch.cat([network.outputs(block, x) for block in blocks])
    return logits.unflatten(1, table.shape[:2])
