"""Stochastic gradient descent of many networks at once, every member with rotations of its own.

What happens to a member depends on the seed and its number only, not on the block it is trained in.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.checks import check_choice, check_float, check_instance, check_int, check_tensor
from lib.training.ensembles import HEADS, LAWS, Members, Network, draw_members, generator_of, join

STREAMS = ("own", "shared")


@dataclass(frozen=True)
class Plan:
    """How an ensemble is drawn and trained.

    Attributes
    ----------
    epochs, batch : int
        Passes over the data, and images per step. All members see the same images in the same order.
    rate : float
        Step of plain stochastic gradient descent on the cross-entropy.
    seed : int
        Seed of the ensemble: starts, order of images, rotations.
    law, head : str
        Initial law and size of the head, see :func:`lib.training.ensembles.draw_members`.
    stream : str
        ``"own"``: every member draws a rotation for every image by itself; ``"shared"``: all members see the rotations
        of member 0 (a control).
    """

    epochs: int = 10
    batch: int = 32
    rate: float = 0.01
    seed: int = 0
    law: str = "symmetric"
    head: str = "small"
    stream: str = "own"

    def __post_init__(self) -> None:
        check_int("epochs", self.epochs, minimum=0)
        check_int("batch", self.batch)
        check_float("rate", self.rate, minimum=0.0)
        check_int("seed", self.seed, minimum=0)
        check_choice("law", self.law, LAWS)
        check_choice("head", self.head, HEADS)
        check_choice("stream", self.stream, STREAMS)


@dataclass(frozen=True)
class Course:
    """The data of a training.

    Attributes
    ----------
    table : Tensor
        Training images under the rotations that are used, shape ``(rotations, n, size, size)``, the identity first.
    labels : Tensor
        Classes, shape ``(n,)``, int64.
    """

    table: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        labels = check_tensor("labels", self.labels, (None,))
        if labels.ndim != 1 or not len(labels) or bool((labels < 0).any()):
            raise ValueError(f"labels must be classes from 0 on, shape (n,) with n ≥ 1, got {labels}")
        check_tensor("table", self.table, (None, len(self.labels), None, None), inexact=True, real=True)
        if self.table.ndim != 4:
            raise ValueError(f"table must have shape (rotations, n, size, size), got {tuple(self.table.shape)}")
        if self.labels.dtype != torch.int64:
            raise TypeError(f"labels must be of dtype torch.int64, got {self.labels.dtype}")


def member_bytes(network: Network, plan: Plan, dtype: torch.dtype = torch.float32) -> int:
    """Return an estimate of the memory that one member needs while it is trained.

    Parameters, their gradients and updates; activations of one batch before and after tanh, with their gradients; the
    images of the batch.
    """
    check_instance("network", network, Network)
    check_instance("plan", plan, Plan)
    check_instance("dtype", dtype, torch.dtype)
    parameters = sum(torch.Size(shape).numel() for shape in network.shapes)
    quarter, sixteenth = (network.channels * (network.size // k) ** 2 for k in (2, 4))
    values = 4 * quarter + 11 * sixteenth + 2 * network.size**2 + 4 * network.classes
    return dtype.itemsize * (4 * parameters + plan.batch * values)


def check_memory(network: Network, plan: Plan, block: int, memory: int, like: Tensor, workers: int = 1) -> int:
    """Return how many members fit into ``memory`` bytes at once; raise a ``ValueError`` if they are more.

    Parameters
    ----------
    network, plan
        The network and its training.
    block, workers
        Members in a block, and blocks at once.
    memory
        Bytes.
    like
        A tensor of the type of the parameters.
    """
    check_instance("like", like, Tensor)
    fit = check_int("memory", memory) // member_bytes(network, plan, like.dtype)
    if check_int("block", block) * check_int("workers", workers) > fit:
        raise ValueError(
            f"block must be at most {fit // workers} for {workers} block(s) at once: {fit} members fit into {memory} "
            f"bytes, got a block of {block}"
        )
    return fit


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
def train_epoch(network: Network, members: Members, course: Course, plan: Plan, epoch: int, first: int = 0) -> Members:
    """Return the members after one more pass over the data.

    Parameters
    ----------
    network, members
        The ensemble, member numbers from ``first`` on.
    course, plan
        Data and training.
    epoch
        Number of the epoch, from 1: rotations and order are drawn from (seed, member, epoch).
    first
        Number of the first member.
    """
    rotations, n = course.table.shape[:2]
    order = torch.randperm(n, generator=generator_of(plan.seed, epoch), device="cpu")
    numbers = range(first, first + len(members[0])) if plan.stream == "own" else [0]
    drawn = [torch.randint(rotations, (n,), generator=generator_of(plan.seed, i, epoch), device="cpu") for i in numbers]
    turns = torch.stack(drawn).to(course.table.device)
    for step in range(0, n, plan.batch):
        which = order[step : step + plan.batch].to(course.table.device)
        x = course.table[turns[:, which], which]  # (members or 1, batch, size, size)
        slopes = loss_gradient(network, members, x, course.labels[which])
        members = tuple(p - plan.rate * s for p, s in zip(members, slopes, strict=True))
    return members


def train_ensemble(
    network: Network,
    plan: Plan,
    course: Course,
    count: int,
    block: int = 16,
    memory: int = 2**31,
    workers: int = 1,
) -> Members:
    """Draw and train an ensemble, block by block.

    Parameters
    ----------
    network, plan, course
        Architecture, training, data; the parameters take dtype and device of the images.
    count
        Number of members.
    block
        Members trained at once, as groups of one convolution; 8 to 64 are fastest on a CPU, more on a GPU.
    memory
        Bytes that training may use.
    workers
        Blocks at a time, each in a thread.

    Returns
    -------
    tuple of Tensor
        All members.

    Raises
    ------
    ValueError
        The images do not fit the network, or a block does not fit into memory.
    """
    if course.table.shape[-1] != network.size or course.table.shape[-2] != network.size:
        raise ValueError(f"table must hold images of size {network.size}, got shape {tuple(course.table.shape)}")
    check_int("count", count)
    check_memory(network, plan, min(check_int("block", block), count), memory, course.table, workers)
    like = course.table

    def one(first: int) -> Members:
        members = draw_members(network, min(block, count - first), plan.seed, plan.law, plan.head, first, like.dtype)
        members = tuple(p.to(like.device) for p in members)
        for epoch in range(1, plan.epochs + 1):
            members = train_epoch(network, members, course, plan, epoch, first)
        return members

    starts = range(0, count, block)
    if workers == 1:
        return join([one(first) for first in starts])
    with ThreadPoolExecutor(workers) as pool:
        return join(list(pool.map(one, starts)))
