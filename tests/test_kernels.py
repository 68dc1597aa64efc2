"""A kernel that is a fork is a kernel as any other: no state of another one, its folder, its end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager, start_new_kernel

from lib.page.notebooks import KERNEL_ENVIRONMENT
from tests import kernels

QUESTION = """import json, sys, os, torch
print(json.dumps({
    "parent": os.getppid(), "pid": os.getpid(), "folder": os.getcwd(), "path": sys.path,
    "spoilt": "spoilt" in globals(),
    "ours": sorted(name for name in sys.modules if name.split(".")[0] in ("lib", "tests")),
    "columns": __import__("pandas").get_option("display.max_columns"),
    "state": [torch.get_num_threads(), hash("a"), os.environ["MKL_CBWR"]],
}))
spoilt = 1
import lib.device
"""


@contextmanager
def kernel(folder: Path) -> Iterator[tuple[KernelManager, dict[str, Any]]]:
    manager, client = start_new_kernel(env=os.environ | KERNEL_ENVIRONMENT, cwd=str(folder))
    printed: list[str] = []
    client.execute_interactive(
        QUESTION, output_hook=lambda said: printed.append(said["content"].get("text", "")), timeout=120
    )
    yield manager, json.loads("".join(printed))
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    client.context.term()
    manager.context.term()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_forks_are_as_kernels_of_their_own_and_end_with_their_nursery(tmp_path: Path) -> None:
    with kernels.forked(), kernel(tmp_path) as (_, first):
        pass
    assert not runs(first["pid"])
    with kernels.forked(), kernel(tmp_path) as (_, second), kernel(tmp_path) as (_, third):
        assert first["parent"] == second["parent"] == third["parent"] != os.getpid()
    with kernel(tmp_path) as (_, own):
        assert own["parent"] == os.getpid()
    assert own["folder"] == str(tmp_path)
    assert (own["ours"], own["spoilt"]) == ([], False)
    for said in (first, second, third):
        assert said == own | {key: said[key] for key in ("parent", "pid")}
    with kernels.forked(), kernel(tmp_path) as (_, last):
        kernels.close()
        until = time.monotonic() + 30
        while runs(last["pid"]) and time.monotonic() < until:
            time.sleep(0.1)
        assert not runs(last["pid"])
