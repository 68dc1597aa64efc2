"""Sweeps: a notebook executed once for every point of a grid of its parameters, on one machine or on a cluster.

``python -m lib.sweep run SPEC.yml`` does it all from the command line; the chapter *Sweeps* of the book explains how.

- :mod:`lib.sweep.specification` reads and validates what is to be run,
- :mod:`lib.sweep.plain` and :mod:`lib.sweep.notebook` read YAML and the notebook's parameters for it,
- :mod:`lib.sweep.store` keeps one record per finished point, written whole or not at all,
- :mod:`lib.sweep.worker` executes one point with papermill,
- :mod:`lib.sweep.driver` hands the points to Dask and waits,
- :mod:`lib.sweep.table` gathers the records into one table and draws it.
"""

from lib.sweep.driver import run
from lib.sweep.plain import SweepError
from lib.sweep.specification import Specification, load_specification
from lib.sweep.store import Store
from lib.sweep.table import collect, plot

__all__ = ["Specification", "Store", "SweepError", "collect", "load_specification", "plot", "run"]
