"""The bar of a long loop: real numbers for a person who waits, nothing for anybody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from lib.page.progress import _bar, progress

LOOP = """
from lib.page.progress import progress
print([n + 1 for n in progress([1, 2, 3])])
"""
STOPPED = """
from lib.page.progress import progress
for n in progress({"a": 1, "b": 2}.items()):
    raise RuntimeError(n)
"""


def test_yields_the_items() -> None:
    assert list(progress({"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
    assert list(progress([])) == []


@pytest.mark.parametrize("items", [iter([1, 2]), 3, None])
def test_asks_for_a_length_at_once(items: Any) -> None:
    with pytest.raises(TypeError, match=r"items must have a length, .* got"):
        progress(items)


def test_says_what_is_done_and_what_is_left() -> None:
    assert "0 of 4</" not in _bar(0, 4, 0.0)
    assert _bar(0, 4, 0.0).endswith("> 0 of 4")
    assert _bar(1, 4, 10.0).endswith("> 1 of 4, about 30 s to go")
    assert _bar(4, 4, 10.0).endswith("> 4 of 4")


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(client: BlockingKernelClient, code: str, person: bool) -> tuple[list[str], list[dict[str, Any]]]:
    """What every bar said, and all other outputs."""
    bars: list[str] = []
    others: list[dict[str, Any]] = []

    def hook(message: dict[str, Any]) -> None:
        content = message["content"]
        html = content.get("data", {}).get("text/html")
        if html is not None:
            assert content["transient"]["display_id"]
            bars.append(re.sub("<.*?>", "", html).strip())
        elif message["msg_type"] in ("stream", "error"):
            others.append(content)

    client.execute_interactive(code, allow_stdin=person, output_hook=hook, timeout=60)
    return bars, others


def test_a_person_sees_a_bar_that_goes_away(kernel: BlockingKernelClient) -> None:
    bars, others = shown(kernel, LOOP, person=True)
    numbers = [re.sub(r"about \d+ s", "soon", bar) for bar in bars]
    assert numbers == ["0 of 3", "1 of 3, soon to go", "2 of 3, soon to go", "3 of 3", ""]
    assert [o["text"] for o in others] == ["[2, 3, 4]\n"]


def test_it_goes_away_when_the_loop_breaks(kernel: BlockingKernelClient) -> None:
    bars, others = shown(kernel, STOPPED, person=True)
    assert bars == ["0 of 2", ""]
    assert [o["ename"] for o in others] == ["RuntimeError"]


def test_nobody_sees_nothing(kernel: BlockingKernelClient) -> None:
    bars, others = shown(kernel, LOOP, person=False)
    assert not bars
    assert [o["text"] for o in others] == ["[2, 3, 4]\n"]
