"""Sweeps: a notebook executed once for every point of a grid of its parameters, on one machine or on a cluster.

``python -m lib.sweep run SPEC.yml`` does it all from the command line; the chapter *Sweeps* of the book explains how.

``specification``, ``plain``, ``notebook``   what is to be run, read from YAML and the notebook's own parameters
``store``            one record per finished point, written whole or not at all
``worker``, ``driver``   one point with papermill; all points on Dask
``table``            the records as one table, and as a plot
"""

from lib.sweep.driver import run
from lib.sweep.plain import SweepError
from lib.sweep.specification import Specification, load_specification
from lib.sweep.store import Store
from lib.sweep.table import collect, plot

__all__ = ["Specification", "Store", "SweepError", "collect", "load_specification", "plot", "run"]
