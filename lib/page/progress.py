"""A bar under a long cell, for the person who waits for it; nothing where nobody does."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from html import escape
from typing import Any


def progress(items: Collection[Any]) -> Iterator[Any]:
    """Yield the items; meanwhile a bar under the cell says how many are done, and about how long the others take.

    The bar goes when the loop ends. Without a frontend that a person can type into (tests, papermill, sweeps, plain
    Python) there is none, so stored outputs do not depend on it.

    Raises
    ------
    TypeError
        The items cannot be counted.

    Examples
    --------
    >>> [n**2 for n in progress([1, 2, 3])]
    [1, 4, 9]
    """
    if not isinstance(items, Collection):
        raise TypeError(f"items must have a length, as a list or a dictionary's items, got {type(items).__name__}")
    return _shown(items) if is_watched() else iter(items)


def _shown(items: Collection[Any]) -> Iterator[Any]:
    from IPython.display import HTML, display

    begin = time.perf_counter()
    handle: Any = display(HTML(_bar(0, len(items), 0.0)), display_id=True)
    try:
        for done, item in enumerate(items, start=1):
            yield item
            handle.update(HTML(_bar(done, len(items), time.perf_counter() - begin)))
    finally:
        handle.update(HTML(""))


def _bar(done: int, total: int, seconds: float) -> str:
    """Return a bar with its numbers beside it."""
    left = f", about {seconds / done * (total - done):.0f} s to go" if 0 < done < total else ""
    said = escape(f"{done} of {total}{left}")
    return f'<progress value="{done}" max="{total}" aria-label="done in this cell"></progress> {said}'


def is_watched() -> bool:
    """Whether the running cell was sent by a frontend where somebody can answer questions."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))
