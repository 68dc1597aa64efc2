"""Sweeps: a notebook executed once for every point of a grid of its parameters, on one machine or on a cluster.

``python -m lib.sweep run SPEC.yml`` does it all from the command line; the chapter *Sweeps* of the book explains how.

``specification``  what is to be run, read from YAML and the notebook; the code that its numbers rest on
``points``         one point with papermill, kept as its executed notebook; all points on Dask
"""

from lib.sweep.points import Store
from lib.sweep.specification import Specification, Sweep, SweepError, load_specification

__all__ = ["Specification", "Store", "Sweep", "SweepError", "load_specification"]
