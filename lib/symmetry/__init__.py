"""Groups and what they act on.

``abstract``, ``groups``, ``lie``   what groups can do; finite and Lie groups, Haar samplers
``own_groups``   a reader's own group, by name, table, permutations or matrices
``generated``   groups that permutations generate, and some semidirect products
``representations``, ``derived``, ``actions``   matrices and index maps of a group
``haar``   projections onto what is equivariant
``irreps``, ``fourier``, ``group_convolution``   Fourier analysis on a finite group
"""
