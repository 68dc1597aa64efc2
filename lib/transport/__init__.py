"""Distances between laws that know a group.

``quotient``, ``particle_distances``, ``invariance``   optimal transport between orbits and between clouds
``divergences``, ``discrete_divergences``, ``finite_spaces``   divergences and their variational values
``kernels``, ``turned_kernel``, ``ring``, ``two_sample``   kernels averaged over a group, MMD, permutation tests
``symmetry_test``   a classifier that tells data from other data, moved at random
``learning_curves``   two ways of learning compared over seeds
"""
