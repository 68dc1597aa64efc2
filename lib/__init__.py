"""Symmetry, Measured: the package that every chapter of the book imports.

Its rooms, from the floor up; a module imports from its own room and from those below it, never from above:

``symmetry``   groups, Lie groups, representations, actions, Haar projections, irreps, Fourier
``transport``  optimal transport under a group, divergences, kernels, two-sample tests
``training``   networks, descent and flow, margins, ensembles, particles
``images``     sets of images, the small classifier, scores
``gans``       objectives, players, games
``sweep``      papermill over grids, on Dask
``page``       what a page shows: evidence, figures, tables, movies, records; it knows no mathematics
"""

from pathlib import Path

__version__ = "0.1.0"
ROOT = Path(__file__).resolve().parent.parent
