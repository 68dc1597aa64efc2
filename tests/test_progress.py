"""The bar of a long loop, for a person who waits, and nothing for anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from lib.progress import progress

LOOP = """
import time
from lib.progress import progress
def slow(n):
    time.sleep(0.6)
    return sum(progress(range(n)))
print([slow(n) for n in progress([1, 2, 3])])
"""
STOPPED = """
for n in progress({"a": 1, "b": 2}.items()):
    raise RuntimeError(n)
"""


def test_yields_the_items() -> None:
    assert list(progress({"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
    assert list(progress([])) == []


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(client: BlockingKernelClient, code: str, person: bool) -> tuple[int, list[dict[str, Any]]]:
    """How many bars there were, and all other outputs."""
    bars, others = 0, []

    def hook(message: dict[str, Any]) -> None:
        nonlocal bars
        content = message["content"]
        bars += "application/vnd.jupyter.widget-view+json" in content.get("data", {})
        if message["msg_type"] in ("stream", "error"):
            others.append(content)

    client.execute_interactive(code, allow_stdin=person, output_hook=hook, timeout=60)
    return bars, others


def test_nobody_sees_nothing(kernel: BlockingKernelClient) -> None:
    bars, others = shown(kernel, LOOP, person=False)
    assert not bars
    assert [o["text"] for o in others] == ["[0, 1, 3]\n"]


def test_a_person_sees_one_bar(kernel: BlockingKernelClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer loop's, also after a loop that broke."""
    shown(kernel, "import tqdm, os; os.environ.pop('TQDM_DISABLE', None)", person=True)
    for _ in range(2):
        bars, others = shown(kernel, LOOP, person=True)
        assert bars == 1
        assert [o["text"] for o in others] == ["[0, 1, 3]\n"]
        _, others = shown(kernel, STOPPED, person=True)
        assert [o["ename"] for o in others] == ["RuntimeError"]
