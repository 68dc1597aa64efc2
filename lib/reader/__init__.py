"""Where a reader brings something: an array, or a model.

``audit``, ``questions``   is this model equivariant, and if not, where, why, and what mends it?
``report``   is the law of these samples symmetric?
``scale``   how far is it not, and what would have been seen?
``price``, ``ways``   what would it save on this task, and where should one begin?
``door``   what comes in
``moves``   groups by name, and how they move arrays
``tape``, ``causes``   what a model computes on its way, and why a step of it loses a symmetry
"""
