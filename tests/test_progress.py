"""The bar of a long loop: for a person who waits, and nothing for anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from lib.page.progress import progress

LOOP = """
from lib.page.progress import progress
print([n + 1 for n in progress([1, 2, 3])])
"""
VIEW = "application/vnd.jupyter.widget-view+json"


def test_yields_the_items() -> None:
    assert list(progress({"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
    assert list(progress([])) == []


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(client: BlockingKernelClient, person: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The states of the widgets that a loop shows, and what it prints."""
    states: list[dict[str, Any]] = []
    printed: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"].startswith("comm_"):
            states.append(content["data"].get("state", {}))
        elif message["msg_type"] == "display_data":
            assert VIEW in content["data"]
        elif message["msg_type"] in ("stream", "error"):
            printed.append(content.get("text") or content["evalue"])

    client.execute_interactive(LOOP, allow_stdin=person, output_hook=hook, timeout=60)
    return states, printed


def test_a_person_sees_a_bar_that_goes_away(kernel: BlockingKernelClient) -> None:
    states, printed = shown(kernel, person=True)
    assert any(state.get("max") == 3 for state in states)
    assert states[-1] == {"visibility": "hidden"}
    assert printed == ["[2, 3, 4]\n"]


def test_nobody_sees_nothing(kernel: BlockingKernelClient) -> None:
    assert shown(kernel, person=False) == ([], ["[2, 3, 4]\n"])
