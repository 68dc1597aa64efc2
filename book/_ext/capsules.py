"""Capsules: Python under a theorem that runs in the page, and the page on which all of them can be broken.

A capsule is a short file of ``book/capsules``. Its docstring says what it shows and ends with its claim; lines
``# break: name = value  # why`` and ``# try: …`` are its variants, ``# own table: name`` says what a reader may bring.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

LIVE = Path(__file__).parent / "live"
MODULES = ("_functools _operator _thread _weakref abc functools itertools math operator").split()
_VARIANT = re.compile(r"^# (break|try): (\w+) = (.*?)  # (.+)$", re.MULTILINE)
_FIRST = """\
Object.defineProperty(self, "indexedDB", { value: undefined });
self.__BRYTHON__ = { brython_path: "https://capsule.invalid/" }; // a blob's own address is none that Brython takes
"""


def engine() -> str:
    """Return the script that brings the interpreter: the source of the worker, as one string."""
    data = files("brython") / "data"
    text = (data / "brython_stdlib.js").read_text(encoding="utf-8")
    everything, _ = json.JSONDecoder().raw_decode(text, text.index("{", text.index("var scripts")))
    packed = {name: everything[name] for name in ("$timestamp", *MODULES)}
    for name in ("fractions", "runner"):
        packed[name] = [".py", (LIVE / f"{name}.py").read_text(encoding="utf-8"), ["math"] if name == "fractions" else []]
    modules = f"__BRYTHON__.use_VFS = true;\n__BRYTHON__.update_VFS({json.dumps(packed, ensure_ascii=False)});\n"
    core = (data / "brython.js").read_text(encoding="utf-8")
    parts = (_FIRST, core, "\n;\n", modules, (LIVE / "worker.js").read_text(encoding="utf-8"))
    notice = f"/*! Brython {version('brython')}, BSD licence: see brython-licence.txt. */\n"
    return f"{notice}window.bookPython = {json.dumps(''.join(parts), ensure_ascii=False)};\n"
