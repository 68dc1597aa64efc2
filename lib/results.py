"""Named numbers of a notebook: recorded in its outputs, so that a sweep can collect them.

Evidence for a claim is recorded by :func:`lib.evidence.settle`; this is for every other number worth a column.
"""

from __future__ import annotations

import math
import re
from typing import Any

from lib.evidence import show

MIME_TYPE = "application/vnd.symmetry-book.result+json"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def record(name: str, value: Any) -> None:
    r"""Store a number in the output of the notebook's cell, under a name.

    ``python -m lib.sweep collect`` makes a column of it. Outside a notebook nothing happens beyond the checks.

    Parameters
    ----------
    name
        Small letters, digits and underscores, as ``"mmd_error"``.
    value
        A real number, or a tensor or array that holds one.

    Raises
    ------
    ValueError
        The name has another form, or the value is not one real number.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must be small letters, digits and underscores, got {name!r}")
    number = value.item() if hasattr(value, "item") and getattr(value, "size", None) is not None else value
    if isinstance(number, (str, complex)) or not hasattr(number, "__float__"):
        raise ValueError(f"value of {name!r} must be one real number, got {value!r}")
    number = float(number)
    content = {"name": name, "value": number if math.isfinite(number) else str(number)}
    show({"text/plain": f"recorded: {name}", MIME_TYPE: content})
