"""A bar under a long cell, for the person who waits for it; nothing where nobody does."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Any

_shown = False  # whether there is a bar


def progress(items: Collection[Any]) -> Iterator[Any]:
    """Yield the items; after a second a bar under the cell says how many are done, and how long the others take.

    The bar goes when the loop ends. Without a frontend that a person can type into (tests, papermill, sweeps, plain
    Python) there is none, so stored outputs do not depend on it; nor is there one inside of another.

    >>> [n**2 for n in progress([1, 2, 3])]
    [1, 4, 9]
    """
    return _with_bar(items) if is_watched() and not _shown else iter(items)


def _with_bar(items: Collection[Any]) -> Iterator[Any]:
    global _shown
    from tqdm.auto import tqdm  # here, so that it is imported only where somebody watches

    _shown = True
    try:
        yield from tqdm(items, leave=False, delay=1)
    finally:
        _shown = False


def is_watched() -> bool:
    """Whether the running cell was sent by a frontend where somebody can answer questions."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))
