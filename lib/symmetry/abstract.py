"""What every group can do, and what every finite group can.

An element is a tensor with ``group.element_shape`` as its last axes; every operation is vectorised over all axes in
front of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lib.checks import check_tensor, holds

ENUMERATION_LIMIT = 50_000_000  # entries of a list of elements


class Group(ABC):
    """What finite and compact Lie groups share: product, inverse, identity, generators, Haar sampling.

    Elements that a group lists (identity, generators, quadratures) are made on the CPU; operations stay on the device
    of their arguments. Groups are equal if they have one ``name`` and multiply their elements alike; an element has the
    ``dtype`` and the shape ``element_shape``.
    """

    name: str
    element_shape: tuple[int, ...]
    is_finite: bool
    dtype: torch.dtype

    def __repr__(self) -> str:
        """Return the name."""
        return self.name

    def __eq__(self, other: object) -> bool:
        """Return whether the names agree and what the groups do."""
        return self is other or (isinstance(other, Group) and self.name == other.name and self._same(other))

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return hash(self.name)

    def _same(self, other: Group) -> bool:
        """Whether a group of the same name is the same one; the names of Lie groups tell what they are."""
        return type(self) is type(other) and self.element_shape == other.element_shape

    @abstractmethod
    def identity(self) -> Tensor:
        """Return the neutral element, shape ``element_shape``."""

    @abstractmethod
    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the product ``ab``; leading axes broadcast."""

    @abstractmethod
    def inverse(self, a: Tensor) -> Tensor:
        """Return the inverse of ``a``."""

    @abstractmethod
    def generators(self) -> Tensor:
        """Return generators, shape ``(r, *element_shape)``; of the component group for a Lie group."""

    @abstractmethod
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return ``count`` independent elements distributed by the Haar measure."""

    @abstractmethod
    def contains(self, a: Tensor) -> Tensor:
        """Return which of the arrays ``a`` are elements of the group, shape of the batch axes."""

    def check(self, name: str, a: Any) -> Tensor:
        """Return the argument ``name`` if it holds elements of the group, of shape ``(..., *element_shape)``."""
        check_tensor(name, a, self.element_shape, inexact=not self.is_finite)
        if a.is_complex() != self.dtype.is_complex or (self.is_finite and a.dtype != self.dtype):
            raise TypeError(f"{name} must hold elements of {self}, of dtype {self.dtype}, got {a.dtype}")
        if not holds(self.contains(a)):
            raise ValueError(f"{name} must hold elements of {self}, got others among shape {tuple(a.shape)}")
        return a

    def unsqueeze(self, g: Tensor, axes: int = 1) -> Tensor:
        """Insert ``axes`` batch axes of size one just in front of the element axes of ``g``."""
        split = g.ndim - len(self.element_shape)
        return g.reshape(*g.shape[:split], *(1,) * axes, *g.shape[split:])


class FiniteGroup(Group):
    """A finite group with a numbering of its elements, ``0 … order − 1``."""

    order: int
    is_finite = True
    dtype = torch.int64

    def _same(self, other: Group) -> bool:
        """Whether both number the same elements and multiply them alike.

        Checked on all products of a generator with one of at most 4096 elements, spread over the group: they decide
        it if the group is not larger.
        """
        if not isinstance(other, FiniteGroup) or (self.order, self.element_shape) != (other.order, other.element_shape):
            return False
        numbers = torch.arange(0, self.order, -(-self.order // 4096), device="cpu")
        g, s = self.element(numbers), self.generators()[:, None]
        if not torch.equal(g, other.element(numbers)) or not bool(other.contains(s).all()):
            return False
        return torch.equal(self.multiply(s, g), other.multiply(s, g))

    def element(self, index: Tensor) -> Tensor:
        """Return the elements with the given numbers, shape ``(*index.shape, *element_shape)``; here ``(number,)``."""
        return index[..., None]

    def index(self, a: Tensor) -> Tensor:
        """Return the numbers of the elements ``a``, the inverse of :meth:`element`."""
        return a[..., 0]

    def contains(self, a: Tensor) -> Tensor:
        """Return which of the vectors ``a`` are elements: those that their number leads back to."""
        number = self.index(a)
        inside = (number >= 0) & (number < self.order)
        return inside & (self.element(torch.where(inside, number, 0)) == a).all(-1)

    def identity(self) -> Tensor:
        """Return the neutral element."""
        first = self.element(torch.tensor(0, device="cpu"))
        return self.multiply(first, self.inverse(first))

    def chunks(self, size: int = 65536) -> Iterator[Tensor]:
        """Return all elements in blocks of at most ``size``, so that a large group never lies in memory at once."""
        starts = range(0, self.order, size)
        return (self.element(torch.arange(start, min(start + size, self.order), device="cpu")) for start in starts)

    def elements(self) -> Tensor:
        """Return all elements, shape ``(order, *element_shape)``."""
        entries = self.order * math.prod(self.element_shape)
        if entries > ENUMERATION_LIMIT:
            raise ValueError(f"{self} is too large to list: {entries} entries, allowed are {ENUMERATION_LIMIT}")
        return self.element(torch.arange(self.order, device="cpu"))

    def class_quadrature(self, degree: int | None = None) -> tuple[Tensor, Tensor]:
        """Return elements and weights that integrate every class function over the Haar measure exactly.

        Here: all elements, weight 1/order. Groups that know their conjugacy classes return one element of each.
        ``degree`` matters for Lie groups only.
        """
        return self.elements(), torch.full((self.order,), 1.0 / self.order, dtype=torch.float64, device="cpu")

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return ``count`` uniformly random elements: on a finite group that is the Haar measure."""
        device = generator.device if generator is not None else "cpu"
        return self.element(torch.randint(self.order, (count,), generator=generator, device=device))

    def cayley_table(self) -> Tensor:
        """Return the table ``T[i, j] = index(element(i) · element(j))``; only for groups of order at most 2048."""
        if self.order > 2048:
            raise ValueError(f"cayley_table is for orders up to 2048, {self.name} has order {self.order}")
        g = self.elements()
        return self.index(self.multiply(g[:, None], g[None]))
