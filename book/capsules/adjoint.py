"""Averaging a function and averaging a law are adjoint. Which line needs which hypothesis? (H5)"""

from fractions import Fraction

# Where each element of the group takes the points 0, ..., 4: quarter turns of a square and its centre.
maps = [(0, 1, 2, 3, 4), (1, 2, 3, 0, 4), (2, 3, 0, 1, 4), (3, 0, 1, 2, 4)]
# break: maps = [(0, 1, 2, 3, 4), (1, 2, 3, 0, 4)]  # two elements that are no group
# break: maps = [(0, 0, 2, 3, 4), (1, 2, 2, 0, 4)]  # points that merge: no permutations at all
law = [0, Fraction(1, 2), 0, Fraction(1, 8), Fraction(3, 8)]
f = [3, -1, 4, 1, -5]
averaged_law = True
# break: averaged_law = False  # a law that is not invariant: may averaging raise the mean square?
# try: f = [0, 0, 9, 0, 2]  # another function, any function

points = range(len(f))


def average_function(f):  # (Sf)(x) is the mean of f(gx)
    return [Fraction(sum(f[g[x]] for g in maps), len(maps)) for x in points]


def average_law(p):  # the law of gx, with x drawn from p and g drawn fairly
    q = [Fraction(0) for x in points]
    for g in maps:
        for x in points:
            q[g[x]] += Fraction(1, len(maps)) * p[x]
    return q


def mean(p, f):
    return sum(a * b for a, b in zip(p, f))


Sf = average_function(f)
P = average_law(law) if averaged_law else law
print(f"E_SP f = {mean(average_law(law), f)},  E_P Sf = {mean(law, Sf)}")
print(f"Sf = {[str(v) for v in Sf]}")
excess = mean(P, [v * v for v in Sf]) - mean(P, [v * v for v in f])
panel = [
    ("E_SP f − E_P Sf", mean(average_law(law), f) - mean(law, Sf), "==", 0),
    ("largest | SSf − Sf |", max(abs(a - b) for a, b in zip(average_function(Sf), Sf)), "==", 0),
    ("E(Sf)² − Ef²", excess, "<=", 0),
]
