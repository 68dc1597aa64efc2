"""Symmetry, Measured: the package that every chapter of the book imports.

Its rooms: a core of four, each standing on those before it; one for each topic, which stands on the core and on no
other topic; and two that know no mathematics.

``symmetry``   groups, Lie groups, representations, actions, Haar projections, irreps, Fourier
``transport``  optimal transport under a group, divergences, kernels, two-sample tests
``images``     sets of images, the small classifier, scores
``reader``     what a reader brings: the audit of a model
``augmentation``   risks over a group, descent with turned data
``ensembles``  many networks at once
``implicit_bias``   linear networks, their flow, margins
``gans``       objectives, players, games
``mean_field`` wide networks as particles
``sweep``      papermill over grids, on Dask
``page``       what a page shows: evidence, figures, tables, movies, records; it knows no mathematics
"""

from pathlib import Path

__version__ = "0.1.0"
ROOT = Path(__file__).resolve().parent.parent
