"""What `make gpu` runs, as far as a machine without a GPU can tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from lib import ROOT
from lib.sweep import load_specification
from tests.standin import PLACE, elsewhere


@pytest.mark.parametrize("engine", gpu.ENGINES, ids=lambda engine: engine.__name__)
def test_engines_stay_on_their_device(engine: gpu.Engine) -> None:
    with elsewhere():
        engine(PLACE, True)()


def test_operations_of_a_product_and_its_gradient() -> None:
    a, b = torch.ones(3, 4, requires_grad=True), torch.ones(4, 5)
    assert gpu.operations(lambda: (a @ b).sum().backward()) == 2 * 2 * 3 * 4 * 5


def test_every_run_has_its_points() -> None:
    found = {path.stem: load_specification(path) for path in (gpu.ROOT / "sweeps" / "gpu").glob("*.yml")}
    assert set(found) == set(gpu.RUNS)
    assert all(sweep.specification.limit and len(sweep.points) >= 5 for sweep in found.values())


def test_a_run_in_small_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends, its point is there, and a second call finds it done."""
    command = ["--small", "--out", str(tmp_path), "particles"]
    assert gpu.main(command) == 0
    (before,) = (tmp_path / "particles").glob("*[0-9a-f].ipynb")
    stamp = before.stat().st_mtime_ns
    assert gpu.main(command) == 0
    assert before.stat().st_mtime_ns == stamp
    (row,) = json.loads((tmp_path / "summary.json").read_text())["particles"]["rows"]
    assert row["value"] == 1
    assert "finished: particles" in capfd.readouterr().out


def test_out_of_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--small", "--out", str(tmp_path), "--minutes", "0", "tissue"]) == 0
    assert "goes on from there" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "message"), [(["chess"], "no piece chess"), ([], "the GPU is missing")])
def test_refusals(command: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not command and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        gpu.main(command)
    assert message in capsys.readouterr().err


def test_tests_of_devices_need_neither_notebooks_nor_a_browser() -> None:
    """A GPU's machine has what ``NEEDED`` names, and cannot fetch the rest."""
    lacking = """
import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("nbval", "playwright"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Lacking())
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:nbval", "-p", "no:cacheprovider", "tests/test_devices.py"]))
"""
    done = subprocess.run([sys.executable, "-c", lacking], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
