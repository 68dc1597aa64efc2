"""Printed outputs of notebooks: whether two show the same numbers.

Processors and builds of PyTorch add in another order, so the last digits of a printed number are nobody's result.
Words and whole numbers are compared exactly, every other number up to one unit of its last printed digit, two percent
of its size (training amplifies rounding), and 1e-9, below which this book prints residuals that rounding made. A cell
with the tag ``rounding`` prints numbers of single trained networks, which the last bit decides on the way: of them the
words are compared, and the numbers are held by the bounds of ``settle`` and ``expect``. The page *Notation* says so to
readers.
"""

from __future__ import annotations

import re
from typing import Any

RELATIVE = 0.02
ABSOLUTE = 1e-9
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


def _last_digit(number: str) -> float:
    """Return the place value of the last printed digit, one unit for a whole number."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _same(a: str, b: str) -> bool:
    if a == b or not any(mark in a + b for mark in ".e"):
        return a == b
    x, y = float(a), float(b)
    return abs(x - y) <= 1.001 * max(min(_last_digit(a), _last_digit(b)), RELATIVE * max(abs(x), abs(y)), ABSOLUTE)


def same_print(stored: str, fresh: str, words_only: bool = False) -> bool:
    """Say whether two texts have the same words and, up to what rounding decides, the same numbers."""
    words = [" ".join(_NUMBER.sub("#", text).replace("-", " ").split()) for text in (stored, fresh)]
    numbers = [_NUMBER.findall(text) for text in (stored, fresh)]
    return words[0] == words[1] and (words_only or all(_same(a, b) for a, b in zip(*numbers, strict=True)))


def with_stored_digits(
    stored: list[dict[str, Any]], fresh: list[dict[str, Any]], words_only: bool = False
) -> list[dict[str, Any]]:
    """Return the fresh outputs with every text that shows the stored numbers replaced by the stored text."""
    if len(stored) != len(fresh):
        return fresh
    result = []
    for old, new in zip(stored, fresh, strict=True):
        merged = dict(new)
        if "text" in old and "text" in new and same_print(old["text"], new["text"], words_only):
            merged["text"] = old["text"]
        if "data" in old and "data" in new:
            texts = {k: v for k, v in old["data"].items() if k.startswith("text/") and isinstance(v, str)}
            same = {k: v for k, v in texts.items() if k in new["data"] and same_print(v, new["data"][k], words_only)}
            merged["data"] = dict(new["data"]) | same
        result.append(type(new)(merged))
    return result
