"""The functions that a chapter defines on its page, without running the chapter."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from lib.page.notebooks import BOOK


def load(name: str, **parameters: Any) -> SimpleNamespace:
    """Return what a chapter imports and what its cells tagged ``define`` define, for some values of its parameters.

    Executed are the cells up to the one after the parameters, which checks them, and those tagged ``define``.

    Parameters
    ----------
    name
        The chapter, as ``"kernels_and_divergences"``.
    **parameters
        Values instead of those in the cell tagged ``parameters``.
    """
    cells = json.loads((BOOK / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    cells = [(set(c["metadata"].get("tags", ())), "".join(c["source"])) for c in cells if c["cell_type"] == "code"]
    space: dict[str, Any] = {"__name__": name}
    place = next(number for number, (tags, _) in enumerate(cells) if "parameters" in tags)
    for number, (tags, source) in enumerate(cells):
        if number <= place + 1 or "define" in tags:
            exec(compile(source, f"{name}, code cell {number + 1}", "exec", dont_inherit=True), space)
        if number == place:
            space |= parameters
    return SimpleNamespace(**space)
