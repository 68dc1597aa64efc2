"""Distances between laws that know a group.

``quotient``, ``particle_distances``, ``invariance``   optimal transport between orbits and between clouds
``divergences``   Wasserstein-1 and Lipschitz-regularised divergences on the quotient
``kernels``, ``turned_kernel``, ``ring``, ``two_sample``   kernels averaged over a group, MMD, permutation tests
``learning_curves``   two ways of learning compared over seeds
"""
