"""How long the cells of a notebook took since the last time somebody asked, without the time in which nothing ran."""

from __future__ import annotations

import sys
import time


class _Clock:
    def __init__(self) -> None:
        self.total, self.started = 0.0, time.perf_counter()

    def start(self, *_: object) -> None:
        self.started = time.perf_counter()

    def stop(self, *_: object) -> None:
        self.total += time.perf_counter() - self.started
        self.started = time.perf_counter()

    def read(self) -> float:
        self.stop()
        total, self.total = self.total, 0.0
        return total


def cell_seconds() -> float | None:
    """Return the seconds that cells have run since the last call, or since this module was imported.

    ``None`` outside of notebooks.
    """
    return None if _clock is None else _clock.read()


def _begin() -> _Clock | None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "events"):
        return None
    clock = _Clock()
    shell.events.register("pre_run_cell", clock.start)
    shell.events.register("post_run_cell", clock.stop)
    return clock


_clock = _begin()
