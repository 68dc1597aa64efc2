"""Symmetry, Measured: the package that every chapter of the book imports."""

__version__ = "0.1.0"
