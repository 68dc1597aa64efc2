"""Stored results: whole or not at all, and with their circumstances."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from lib.page.stored import circumstances, open_folder, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_folder_is_opened_before_the_work(tmp_path: Path) -> None:
    assert open_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not list((tmp_path / "a" / "b").iterdir())
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        open_folder(tmp_path / "file")


def test_circumstances_are_json_and_name_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    told = circumstances("cpu")
    assert json.loads(json.dumps(told)) == told
    assert told["device"].startswith("cpu")
    assert told["versions"]["torch"] == torch.__version__
    monkeypatch.setenv("PATH", "")
    assert circumstances()["commit"] == "unknown"
