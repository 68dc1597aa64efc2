"""Distances between laws that know a group.

``quotient``, ``ring``, ``particle_distances``, ``invariance``   optimal transport between orbits and between clouds
``divergences``, ``discrete_divergences``, ``finite_spaces``   divergences and their variational values
``kernels``, ``ring``, ``two_sample``   kernels averaged over a group, MMD, permutation tests
``rates``, ``learning_curves``   how fast an empirical law approaches its own
"""
