"""Commands end a user's mistake with one line that names it, exit status 2 and nothing written."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest
import torch

from lib.images.datasets import DataUnavailable
from lib.page.command_line import clear_errors, use_threads

COMMANDS = {
    "sample_complexity_at_scale": (["--share", "-1"], "share"),
}


@pytest.mark.parametrize("error", [ValueError("seeds too few"), OSError("no folder"), DataUnavailable("no data")])
def test_errors_of_the_user_become_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, clear_errors(argparse.ArgumentParser(prog="tool")):
        raise error
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"tool: error: {error}\n")


def test_our_own_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError), clear_errors(argparse.ArgumentParser()):
        print(1 / 0)


def test_threads_are_checked() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="threads must be between 1 and 4096, got 0"):
        use_threads(0)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_bad_values(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, culprit = COMMANDS[name]
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"lib.experiments.{name}").main([*arguments, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert f"error: {culprit}" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_every_command_is_tested() -> None:
    folder = Path(importlib.import_module("lib.experiments").__path__[0])
    assert {p.stem for p in folder.glob("*.py") if "ArgumentParser" in p.read_text(encoding="utf-8")} == set(COMMANDS)
