"""A bar under a long cell, for the person who waits for it; nothing where nobody does."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def progress(items: Iterable[Any]) -> Iterable[Any]:
    """Return the items for a loop; meanwhile a bar under the cell says how many are done, and how long the rest takes.

    The bar goes when the loop ends. Without a frontend that a person can type into (tests, papermill, sweeps, plain
    Python) there is none, so stored outputs do not depend on it.

    Examples
    --------
    >>> [n**2 for n in progress([1, 2, 3])]
    [1, 4, 9]
    """
    if not is_watched():
        return items
    from tqdm.auto import tqdm

    return tqdm(items, leave=False)


def is_watched() -> bool:
    """Whether the running cell was sent by a frontend where somebody can answer questions."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))
