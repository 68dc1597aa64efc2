"""Ensembles of small convolutional networks, drawn, trained and evaluated with all members in one grouped convolution.

One network is three 3 × 3 convolutions without biases, tanh after each, 2 × 2 average pooling after the first two, a
layer norm over all channels and pixels, and a linear head. A filter is zero off its *support*. The setting is that of
Nordenfors, Flinth (2024), *Ensembles provably learn equivariance through data augmentation*. What happens to a member
depends on the seed and its number only, not on the members it is trained with. The chapter on ensembles writes one
member and its training by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, layer_norm

from lib.checks import check_choice, check_int, check_tensor, generator_of
from lib.progress import progress

Members = Sequence[Tensor]  # parameters of one member, or of several along a leading axis

SUPPORTS = {
    "full": ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "plus": ((0, 1, 0), (1, 1, 1), (0, 1, 0)),
    "skewed": ((1, 1, 0), (1, 0, 1), (0, 1, 0)),
}


@dataclass(frozen=True)
class Network:
    """The architecture of one member.

    The support of the filters is ``"full"`` (9 taps), ``"plus"`` (5 taps) or ``"skewed"``, a plus with one corner
    instead of its centre. The first two are invariant under quarter turns and mirrors.
    """

    size: int = 8  #: side of the square images, a multiple of 4: quarter turns move both pooling grids to themselves
    channels: int = 16  #: of every convolution
    classes: int = 10  #: number of classes
    support: str = "plus"  #: a key of ``SUPPORTS``

    def __post_init__(self) -> None:
        if check_int("size", self.size, minimum=4) % 4:
            raise ValueError(f"size must be a multiple of 4 for two poolings of 2 × 2 pixels, got {self.size}")
        check_choice("support", self.support, SUPPORTS)

    @property
    def mask(self) -> Tensor:
        """The support as a 3 × 3 array of zeros and ones."""
        return torch.tensor(SUPPORTS[self.support], device="cpu")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the parameters of one member: three banks of filters, head, bias of the head."""
        c, side = self.channels, self.size // 4
        return [(c, 1, 3, 3), (c, c, 3, 3), (c, c, 3, 3), (self.classes, c, side, side), (self.classes,)]

    def member(self, parameters: Members, x: Tensor) -> Tensor:
        """Return the logits of one member, each convolution fused with the pooling behind it.

        Shapes ``(batch, size, size) -> (batch, classes)``; the parameters have those of :attr:`shapes`.
        """
        *banks, head, bias = parameters
        h = x[:, None]
        for bank, pooled in zip(banks, (True, True, False), strict=True):
            filters = bank * self.mask.to(bank)
            filters = fuse_pooling(filters) if pooled else filters
            h = conv2d(h, filters, stride=1 + pooled, padding=1).tanh()  # (batch, channels, size / 2, size / 2) first
        h = layer_norm(h, h.shape[1:])
        return torch.einsum("bi,oi->bo", h.flatten(1), head.flatten(1)) + bias

    def outputs(self, members: Members, x: Tensor, part: int | None = None) -> Tensor:
        """Return the logits of all members, shape ``(m, batch, classes)``, computed for so many at a time.

        Parameters have a leading axis of members, shapes ``(m, *shape)`` for :attr:`shapes`; images have the shape
        ``(m, batch, size, size)``, or ``(1, batch, size, size)`` if all members see the same.
        """
        if not len(members[0]) or not check_tensor("x", x, (self.size, self.size), inexact=True).numel():
            raise ValueError(f"members and x must not be empty, got {len(members[0])} and shape {tuple(x.shape)}")
        x = x.expand(len(members[0]), -1, -1, -1)
        return torch.func.vmap(self.member, chunk_size=part)(members, x)


def fuse_pooling(filters: Tensor) -> Tensor:
    """Return the 4 × 4 filters, for stride 2, that convolve with 3 × 3 filters and average 2 × 2 outputs.

    The mean of four shifted copies: ``k[a, b] = ¼ Σ_{i, j ∈ {0, 1}} w[a − i, b − j]``, shape ``(…, 4, 4)``.
    """
    rows = torch.cat([filters, torch.zeros_like(filters[..., :1, :])], -2)
    rows = rows + rows.roll(1, -2)
    square = torch.cat([rows, torch.zeros_like(rows[..., :1])], -1)
    return (square + square.roll(1, -1)) / 4


def draw_members(
    network: Network,
    count: int,
    seed: int = 0,
    tilt: tuple[float, float, float] = (0.0, 0.0, 0.0),
    head: str = "small",
    first: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Members:
    """Return members ``first`` to ``first + count − 1`` with Gaussian weights; member i depends on seed and i only.

    They are drawn on the CPU; the bias of the head is zero. Filters have standard deviation 1; the head has 1, if it is
    ``"unit"`` as Nordenfors and Flinth have it, or 1/√(number of its inputs), if it is ``"small"``, so that logits
    start at size one. ``tilt`` holds the means of the left, middle and right taps of every filter. Without it the law
    is the same for all taps of the support, and invariant under quarter turns and mirrors.
    """
    check_choice("head", head, ("unit", "small"))
    here = {"dtype": torch.float64, "device": "cpu"}
    *weights, bias = network.shapes
    generators = [generator_of(seed, i, 0) for i in range(first, first + count)]
    drawn = [torch.stack([torch.randn(shape, generator=g, **here) for g in generators]) for shape in weights]
    if head == "small":
        drawn[3] = drawn[3] * drawn[3][0, 0].numel() ** -0.5
    banks = [(bank + torch.tensor(tilt, **here)) * network.mask.to(bank) for bank in drawn[:3]]
    return tuple(p.to(device, dtype) for p in (*banks, drawn[3], torch.zeros(count, *bias, **here)))


def loss_gradient(network: Network, members: Members, x: Tensor, y: Tensor) -> Members:
    """Return the gradient of every member's own mean cross-entropy, shapes as the members.

    Images are ``(m, batch, size, size)``, or ``(1, …)`` for all; classes ``(batch,)``.
    """
    with torch.enable_grad():
        leaves = tuple(p.detach().requires_grad_() for p in members)
        logits = network.outputs(leaves, x)
        total = cross_entropy(logits.flatten(0, 1), y.repeat(len(logits)), reduction="sum") / len(y)
        return torch.autograd.grad(total, leaves)


def train(
    network: Network,
    members: Members,
    table: Tensor,
    labels: Tensor,
    *,
    epochs: int = 10,
    batch: int = 32,
    rate: float = 0.01,
    seed: int = 0,
    first: int = 0,
    shared: bool = False,
) -> Members:
    """Return the members after stochastic gradient descent on the cross-entropy, with moves drawn by each for itself.

    The table holds the training images moved by every group element, the identity first, ``(|G|, n, size, size)``, the
    labels are classes ``(n,)``. In epoch e = 1, 2, … the order of images, the same for all members, is drawn from
    (seed, e), the moves of member i from (seed, i, e); the first member has the number ``first``. If ``shared``, all
    see the moves of member 0 (a control).

    >>> net, x, y = Network(4, 2, 3), torch.rand(6, 4, 4), torch.arange(6) % 3
    >>> turned = torch.stack([x.rot90(k, (-2, -1)) for k in range(4)])
    >>> members = train(net, draw_members(net, 5), turned, y, epochs=2)
    >>> net.outputs(members, x[None]).shape
    torch.Size([5, 6, 3])
    """
    if not check_tensor("table", table, (None, len(labels), network.size, network.size), inexact=True).numel():
        raise ValueError(f"table must not be empty, got shape {tuple(table.shape)}")
    elements, n = table.shape[:2]
    numbers = [0] if shared else range(first, first + len(members[0]))
    for epoch in progress(range(1, epochs + 1)):
        order = torch.randperm(n, generator=generator_of(seed, epoch), device="cpu").to(table.device)
        drawn = [torch.randint(elements, (n,), generator=generator_of(seed, i, epoch), device="cpu") for i in numbers]
        moves = torch.stack(drawn).to(table.device)  # (m or 1, n)
        for which in order.split(batch):
            x = table[moves[:, which], which]  # (m or 1, batch, size, size)
            slopes = loss_gradient(network, members, x, labels[which])
            members = tuple(p - rate * s for p, s in zip(members, slopes, strict=True))
    return members


def train_ensemble(
    network: Network,
    table: Tensor,
    labels: Tensor,
    count: int,
    *,
    tilt: tuple[float, float, float] = (0.0, 0.0, 0.0),
    head: str = "small",
    seed: int = 0,
    block: int = 32,
    **how: object,
) -> Members:
    """Draw and train an ensemble, block by block, and return all members.

    The parameters take dtype and device of the images. Tilt, head and seed are those of :func:`draw_members`, the seed
    that of the training as well; ``epochs``, ``batch``, ``rate`` and ``shared`` those of :func:`train`. A block of
    members is trained at once, as groups of one convolution; 8 to 64 are fastest on a CPU, more on a GPU.
    """
    kind = {"dtype": table.dtype, "device": table.device}
    done = []
    for first in range(0, count, block):
        members = draw_members(network, min(block, count - first), seed, tilt, head, first, **kind)
        done.append(train(network, members, table, labels, seed=seed, first=first, **how))
    return tuple(torch.cat(column) for column in zip(*done, strict=True))
