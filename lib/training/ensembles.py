"""Ensembles of small convolutional networks, drawn, trained and evaluated with all members in one grouped convolution.

One network is three 3 × 3 convolutions without biases, tanh after each, 2 × 2 average pooling after the first two, a
layer norm over all channels and pixels, and a linear head. A filter is zero off its *support*. The setting is that of
Nordenfors, Flinth (2024), *Ensembles provably learn equivariance through data augmentation*. What happens to a member
depends on the seed and its number only, not on the members it is trained with. The chapter on ensembles writes one
member and its training by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, layer_norm

from lib.checks import check_choice, check_float, check_instance, check_int, check_tensor

Members = tuple[Tensor, ...]

SUPPORTS = {
    "full": ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "plus": ((0, 1, 0), (1, 1, 1), (0, 1, 0)),
    "skewed": ((1, 1, 0), (1, 0, 1), (0, 1, 0)),
}
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
        first two are invariant under quarter turns and mirrors.
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
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the parameters of one member: three banks of filters, head, bias of the head."""
        c, side = self.channels, self.size // 4
        return [(c, 1, 3, 3), (c, c, 3, 3), (c, c, 3, 3), (self.classes, c, side, side), (self.classes,)]

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
        count = self.check_members(members)
        if check_tensor("x", x, (self.size, self.size)).dtype != members[0].dtype:
            raise TypeError(f"x must be of the members' dtype {members[0].dtype}, got {x.dtype}")
        if x.ndim != 4 or x.shape[0] not in (1, count):
            raise ValueError(f"x must have shape (1 or {count}, batch, size, size), got {tuple(x.shape)}")
        h = x.expand(count, -1, -1, -1).transpose(0, 1)  # (batch, m, size, size)
        for bank, pooled in zip(members[:3], POOLED, strict=True):
            filters = bank * self.mask.to(bank)  # (m, out, in, 3, 3)
            if pooled:
                h = conv2d(h, fuse_pooling(filters).flatten(0, 1), stride=2, padding=1, groups=count).tanh()
            else:
                h = conv2d(h, filters.flatten(0, 1), padding=1, groups=count).tanh()
        h = h.unflatten(1, (count, -1)).flatten(2)  # (batch, m, inputs of the head)
        h = layer_norm(h, h.shape[-1:])
        return torch.einsum("bmi,moi->mbo", h, members[3].flatten(2)) + members[4][:, None]

    def check_members(self, members: Members) -> int:
        """Return the number of members; raise unless their tensors have the shapes ``(m, *shape)``."""
        check_instance("members", members, (tuple, list))
        got = [tuple(check_instance("members", p, Tensor).shape) for p in members]
        if [shape[1:] for shape in got] != self.shapes or len({shape[:1] for shape in got}) != 1 or not got[0][0]:
            raise ValueError(f"members must have shapes (m, *shape) for {self.shapes}, with one m ≥ 1, got {got}")
        return got[0][0]


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
    """Return a generator that depends on these nonnegative integers only.

    It differs for two lists of one length of integers below 2³²; zeros at the end do not count, as in NumPy's seeds.
    """
    state = np.random.SeedSequence([check_int("numbers", n, minimum=0) for n in numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)


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
    """Return members with Gaussian weights; member i depends on the seed and on i only.

    Parameters
    ----------
    network
        The architecture.
    count, first
        Members ``first`` to ``first + count − 1``.
    seed
        Seed of the ensemble.
    tilt
        Means of the left, middle and right taps of every filter. Without it the law is the same for all taps of the
        support, and invariant under quarter turns and mirrors.
    head
        Standard deviation of the head: ``"unit"``, 1, as Nordenfors and Flinth have it; ``"small"``, 1/√(number of its
        inputs), so that logits start at size one. Filters have standard deviation 1.
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
    if len(check_instance("tilt", tilt, (tuple, list))) != 3:
        raise ValueError(f"tilt must have a mean for each of the three columns of a filter, got {tilt}")
    means = torch.tensor([check_float("tilt", mean) for mean in tilt], dtype=torch.float64, device="cpu")
    check_choice("head", head, HEADS)
    *weights, bias = network.shapes
    rows = []
    for i in range(check_int("first", first, minimum=0), first + count):
        generator = generator_of(seed, i, 0)
        rows.append([torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu") for shape in weights])
    stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
    if head == "small":
        stacked[3] = stacked[3] * stacked[3][0, 0].numel() ** -0.5
    mask = network.mask.to(torch.float64)
    banks = [(bank + means) * mask for bank in stacked[:3]]
    members = (*banks, stacked[3], torch.zeros(count, *bias, dtype=torch.float64, device="cpu"))
    return tuple(p.to(device, dtype) for p in members)


def loss_gradient(network: Network, members: Members, x: Tensor, y: Tensor) -> Members:
    """Return the gradient of every member's own mean cross-entropy, shapes as the members.

    Parameters
    ----------
    network, members
        The ensemble.
    x, y
        Images ``(m, batch, size, size)``, or ``(1, …)`` for all; classes ``(batch,)``.
    """
    check_instance("network", network, Network)
    if check_instance("y", y, Tensor).shape != check_instance("x", x, Tensor).shape[1:2]:
        raise ValueError(f"y must hold one class for each image of x, got shapes {tuple(y.shape)} and {tuple(x.shape)}")
    with torch.enable_grad():
        leaves = tuple(p.detach().requires_grad_() for p in members)
        logits = network.outputs(leaves, x)
        targets = y.expand(len(logits), -1)
        total = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / len(y)
        return torch.autograd.grad(total, leaves)


@torch.no_grad()
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

    Parameters
    ----------
    network, members
        The ensemble, member numbers from ``first`` on.
    table
        Training images moved by every group element, the identity first: ``(|G|, n, size, size)``.
    labels
        Classes, shape ``(n,)``, int64.
    epochs, batch, rate
        Passes over the data, images per step, and the step.
    seed, first
        In epoch e = 1, 2, … the order of images, the same for all members, is drawn from (seed, e), the moves of member
        i from (seed, i, e); ``first`` is the number of the first member.
    shared
        Whether all members see the moves of member 0 (a control).

    Examples
    --------
    >>> net, x, y = Network(4, 2, 3), torch.rand(6, 4, 4), torch.arange(6) % 3
    >>> turned = torch.stack([x.rot90(k, (-2, -1)) for k in range(4)])
    >>> members = train(net, draw_members(net, 5), turned, y, epochs=2)
    >>> net.outputs(members, x[None]).shape
    torch.Size([5, 6, 3])
    """
    check_instance("network", network, Network)
    if check_tensor("labels", labels, (None,)).dtype != torch.int64:
        raise TypeError(f"labels must be of dtype torch.int64, got {labels.dtype}")
    if labels.ndim != 1 or not len(labels) or bool(((labels < 0) | (labels >= network.classes)).any()):
        raise ValueError(f"labels must be classes from 0 to {network.classes - 1}, shape (n,) with n ≥ 1, got {labels}")
    check_tensor("table", table, (None, len(labels), network.size, network.size), inexact=True, real=True)
    if table.ndim != 4 or not len(table):
        raise ValueError(f"table must have shape (|G|, n, size, size) with |G| ≥ 1, got {tuple(table.shape)}")
    check_int("epochs", epochs, minimum=0)
    check_int("batch", batch)
    check_float("rate", rate, minimum=0.0)
    check_int("seed", seed, minimum=0)
    check_int("first", first, minimum=0)
    elements, n = table.shape[:2]
    numbers = [0] if shared else range(first, first + network.check_members(members))
    for epoch in range(1, epochs + 1):
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
    """Draw and train an ensemble, block by block.

    Parameters
    ----------
    network, table, labels
        Architecture, moved images, classes, see :func:`train`; the parameters take dtype and device of the images.
    count
        Number of members.
    tilt, head, seed
        As in :func:`draw_members`; the seed is that of the training as well.
    block
        Members trained at once, as groups of one convolution; 8 to 64 are fastest on a CPU, more on a GPU.
    **how
        ``epochs``, ``batch``, ``rate`` and ``shared`` of :func:`train`.

    Returns
    -------
    tuple of Tensor
        All members.
    """
    check_int("block", block)
    kind = {"dtype": check_instance("table", table, Tensor).dtype, "device": table.device}
    done = []
    for first in range(0, check_int("count", count), block):
        members = draw_members(network, min(block, count - first), seed, tilt, head, first, **kind)
        done.append(train(network, members, table, labels, seed=seed, first=first, **how))
    return tuple(torch.cat(column) for column in zip(*done, strict=True))
