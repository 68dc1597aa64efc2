"""Capsules in the page: what is fetched on the first click, how long Python takes to start, and each capsule to run.

``python benchmarks/live_capsules.py [--json PATH] [FOLDER]`` opens the built book (``book/_build/html``) from the disk
in headless Chromium. Bars: 500 kB, 3 s to start, 2 s for a run, of which the least of three counts.
"""

from __future__ import annotations

import argparse
import gzip
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "_ext"), str(ROOT / "benchmarks")]

from rows import Row, report  # noqa: E402

import capsules  # noqa: E402
from lib.page.printing import chromium  # noqa: E402

RUN = "source => bookCapsules.run(source, () => {})"


def timed(act: object, *arguments: str) -> float:
    begun = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - begun


def measure(folder: Path) -> Iterator[Row]:
    for what, name in {"the interpreter": "capsule-python.js", "the script of the page": "capsules.js"}.items():
        kilobytes = len(gzip.compress((folder / "_static" / name).read_bytes())) / 1000
        yield Row("Weight, compressed", what, kilobytes, "kB", "<= 500", kilobytes <= 500)
    found = capsules.read_capsules(ROOT / "book")
    with chromium() as browser:
        starts = []
        for _ in range(3):
            page = browser.new_page()
            page.goto((folder / f"{capsules.PAGE}.html").as_uri())
            starts.append(timed(page.evaluate, RUN, "panel = [('one', 1, '==', 1)]"))
            page.close()
        yield Row("Seconds", "from the click to the first panel", min(starts), "s", "<= 3", min(starts) <= 3)
        page = browser.new_page()
        page.goto((folder / f"{capsules.PAGE}.html").as_uri())
        page.evaluate(RUN, "panel = [('one', 1, '==', 1)]")
        slower = []
        for name, capsule in found.items():
            sources = [capsule.source, *(variant.source for variant in capsule.variants)]
            slowest = max(min(timed(page.evaluate, RUN, source) for _ in range(3)) for source in sources)
            here = min(timed(capsules.run, capsule.source) for _ in range(3))
            there = min(timed(page.evaluate, RUN, capsule.source) for _ in range(3))
            yield Row("Seconds", f"{name}, the slowest of its attempts", slowest, "s", "<= 2", slowest <= 2)
            slower.append(Row("Slower than CPython", name, there / here, "times"))
        yield from slower


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "book" / "_build" / "html")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sys.exit(report("Capsules", platform.platform(), measure(options.folder), options.json))
