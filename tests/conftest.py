"""Every signature of the mathematics is checked in tests; users do not pay for it."""

from __future__ import annotations

import jaxtyping
import pytest
from hypothesis import settings

MATHEMATICS = ["lib.checks", "lib.groups", "lib.lie", "lib.representations", "lib.actions", "lib.haar", "lib.axioms"]

jaxtyping.install_import_hook(MATHEMATICS, "beartype.beartype")
settings.register_profile("book", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("book")


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the checks of signatures off, so that a wrong argument meets the package's own message."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
