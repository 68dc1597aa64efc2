"""What the command for the editions says when something is missing; what it makes, tests/test_book.py looks at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lib.page.editions import contents, pack
from lib.page.printing import CannotPrint

ROOT = Path(__file__).parent.parent


def editions(*words: object, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lib.page.editions", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PATH": path})


def test_without_a_built_book(tmp_path: Path) -> None:
    result = editions("--html", tmp_path / "none", "-o", tmp_path / "editions")
    missing = tmp_path / "none" / "intro.html"
    said = f"No edition was made: the book has to be built first (make book): there is no {missing}\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", said)
    assert not (tmp_path / "editions").exists()


def test_without_chromium(tmp_path: Path) -> None:
    for _, names in contents():
        for name in names:
            (tmp_path / f"{name}.html").parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.html").touch()
    result = editions("--html", tmp_path, "-o", tmp_path / "editions", path=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("No edition was made: Chromium is not installed")
    assert result.stderr.count("\n") == 1


def test_without_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(CannotPrint, match="made from a git checkout"):
        pack(tmp_path, tmp_path / "book.zip", root=tmp_path)
    assert not (tmp_path / "book.zip").exists()
