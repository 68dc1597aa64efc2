"""Ensembles of networks, trained as one batch.

``training``   members, and descent for all at once
``metrics``   how far the mean of an ensemble is from its symmetry
"""
