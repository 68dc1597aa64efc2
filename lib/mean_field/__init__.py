"""Wide networks as laws of particles.

``units``, ``particles``   one hidden unit, and the forces on a cloud of them
``descent``   noisy descent of many clouds at once
``free_energy``, ``finite_volumes``   the law in the limit, and its flow on a grid
``discovery``   growth of subspaces
"""
