"""Results kept in files: written whole or not at all, with what a reader needs to judge and repeat the run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from lib import __version__
from lib.device import describe_device

_PACKAGES = ("torch", "numpy", "scipy", "cvxpy")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name in the same folder, then renamed; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def open_folder(folder: str | Path) -> Path:
    """Return a folder for results, made where it is missing; raise ``OSError`` if nothing can be written there.

    Meant for the beginning of a long run, whose result would be lost at its end.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder


def circumstances(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return where, when and with what a run was made: device, threads, commit, date and versions.

    The commit is followed by "with changes" when the package differs from it, and "unknown" outside a repository.
    """
    packages = {name: sys.modules[name].__version__ for name in _PACKAGES if name in sys.modules}
    return {
        "device": describe_device(device),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {"symmetry-measured": __version__, "python": platform.python_version()} | packages,
    }


def _commit() -> str:
    try:
        here = Path(__file__).parent
        call = {"cwd": here, "capture_output": True, "text": True, "check": True}
        commit = subprocess.run(["git", "rev-parse", "HEAD"], **call).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--", here], **call).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}{' with changes' if changed else ''}"
