"""Every signature of ``lib`` is checked in tests; users do not pay for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype
from hypothesis import settings

if TYPE_CHECKING:  # a GPU's machine has no browser, and runs the tests of devices
    from playwright.sync_api import Browser

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an integer is a number
jaxtyping.install_import_hook("lib", f"{__name__}.checked")
settings.register_profile("book", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("book")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a process: Playwright cannot be started twice in one."""
    from lib.page.printing import chromium
    from tests.browser import need_chromium

    need_chromium()
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True)
def _the_environment_stays() -> Iterator[None]:
    """A point of a sweep that runs in the test's own process sets what its kernel needs, lenient claims among it.

    So does one in a module's fixture, which comes before this one: hence the environment of the start, not of now.
    """
    _restore()
    yield
    _restore()


def _restore() -> None:
    for name in os.environ.keys() - ENVIRONMENT.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(ENVIRONMENT)


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the checks of signatures off, so that a wrong argument meets the package's own message."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
