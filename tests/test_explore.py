"""Sliders for a person, one print for everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ipywidgets import Checkbox, Dropdown, SelectionSlider
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from lib.page import explore as module
from lib.page.explore import explore

CODE = """
from lib.page.explore import explore
def twice(n=3):
    print(2 * n)
explore(twice, n=range(9))
"""


def power(n: int = 2, base: float = 3.0) -> None:
    print(base**n)


def test_prints_once_where_nobody_is(capsys: pytest.CaptureFixture[str]) -> None:
    explore(power, n=range(5), base=[1.0, 3.0])
    assert capsys.readouterr().out == "9.0\n"


def test_controls_by_what_can_be_chosen() -> None:
    seen: list[tuple[Any, ...]] = []

    def look(how_many: int = 1, name: str = "b", sure: bool = False) -> None:
        seen.append((how_many, name, sure))

    choices = {"how_many": [1, 2, 4], "name": ["a", "b"], "sure": [False, True]}
    number, name, box, _ = module._controls(look, choices).children
    assert [type(control) for control in (number, name, box)] == [SelectionSlider, Dropdown, Checkbox]
    assert (number.value, name.value, box.value) == (1, "b", False)
    assert (number.description, list(number.options)) == ("how many", [1, 2, 4])
    number.value, name.value, box.value = 4, "a", True
    assert seen == [(1, "b", False), (4, "b", False), (4, "a", False), (4, "a", True)]


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("person", [True, False])
def test_a_person_gets_widgets(kernel: BlockingKernelClient, person: bool) -> None:
    """Where questions can be answered, there is a slider; elsewhere the output is plain text, as it is stored."""
    messages: list[dict[str, Any]] = []
    reply = kernel.execute_interactive(CODE, allow_stdin=person, output_hook=messages.append, timeout=120)
    assert reply["content"]["status"] == "ok"
    views = [m for m in messages if "application/vnd.jupyter.widget-view+json" in m["content"].get("data", {})]
    printed = [m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == "stdout"]
    assert len(views) == person
    if not person:
        assert printed == ["6\n"]
