"""Settings of every test run: how notebooks are executed and compared, and one thread per process."""

from __future__ import annotations

import os
from functools import partial

# Before torch is imported: several test processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from lib.page.evidence import MIME_TYPE
from lib.page.expectations import MIME_TYPE as EXPECTATION
from lib.page.notebooks import KERNEL_ENVIRONMENT, REPRODUCIBLE, STRICT
from lib.page.results import MIME_TYPE as RESULT
from tests.figures import figure_problems
from tests.kernels import forked
from tests.outputs import with_stored_digits
from tests.processors import PROCESSORS

# Kernels run with the instructions that outputs were stored with, or another processor's; the tests themselves with
# those at hand, since their tolerances bear all.
_IN_KERNELS = KERNEL_ENVIRONMENT | STRICT | PROCESSORS[os.environ.get("PROCESSOR", "")]
os.environ.update({name: value for name, value in _IN_KERNELS.items() if name not in REPRODUCIBLE})

# A panel's numbers and run time differ between machines; its text line says whether the claim holds, and is compared.
# The numbers behind a figure are compared as the figure is: by looks.
_NOT_COMPARED = ("text/html", "text/csv", MIME_TYPE, EXPECTATION, RESULT)

# Minutes each, in few tests; the chapters follow, and what is left are seconds.
_LONG = ("test_book.py", "test_lab.py", "test_sweep.py")


def pytest_configure(config: pytest.Config) -> None:
    """Let nbval compare figures too, which it passes over, and numbers as numbers, in kernels of our environment."""
    if not config.pluginmanager.hasplugin("nbval"):  # a GPU's machine has the tests of devices, and no notebooks
        return
    from nbval import kernel
    from nbval.plugin import IPyNbCell

    # An empty value lets a library choose by itself, and is none it knows.
    environment = {
        name: value for name, value in (os.environ | _IN_KERNELS).items() if value or name not in REPRODUCIBLE
    }
    kernel.start_new_kernel = forked()(partial(kernel.start_new_kernel, env=environment))

    texts = IPyNbCell.compare_outputs

    def compare_outputs(self: IPyNbCell, test: list, ref: list, skip_compare: tuple | None = None) -> bool:
        tags = self.cell.metadata.get("tags", [])
        if not texts(self, with_stored_digits(ref, test, words_only="rounding" in tags), ref, skip_compare):
            return False
        shape_only = "timing" in tags or "rounding" in tags
        self.comparison_traceback += figure_problems(stored=ref, fresh=test, shape_only=shape_only)
        return not self.comparison_traceback

    IPyNbCell.compare_outputs = compare_outputs


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Tell nbval which outputs may differ."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += _NOT_COMPARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first, so that no worker begins it when the others are done."""
    items.sort(key=lambda item: (item.path.name not in _LONG, item.path.suffix != ".ipynb"))
