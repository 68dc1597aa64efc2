"""Wide networks as laws of particles.

``units``, ``particles``   one hidden unit, and the forces on a cloud of them
``descent``   noisy descent of many clouds at once
``discovery``   growth of subspaces
"""
