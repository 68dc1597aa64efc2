"""An invariant discriminator sees orbits only: it cannot see a generator that has collapsed. (G3)"""

from fractions import Fraction
from itertools import product

# Six points in two orbits, 0 1 2 and 3 4 5.
maps = [(0, 1, 2, 3, 4, 5), (1, 2, 0, 4, 5, 3), (2, 0, 1, 5, 3, 4)]
# break: maps = [(0, 1, 2, 3, 4, 5), (1, 2, 0, 4, 5, 3)]  # two maps that are no group
data = [Fraction(1, 6)] * 6
collapsed = [Fraction(1, 2), 0, 0, Fraction(1, 2), 0, 0]  # one point of each orbit
# break: collapsed = [1, 0, 0, 0, 0, 0]  # one point of one orbit
# try: collapsed = [Fraction(1, 4), Fraction(1, 4), 0, 0, 0, Fraction(1, 2)]  # half a collapse
other = [Fraction(1, 2), Fraction(1, 4), 0, Fraction(1, 4), 0, 0]  # any generator
family = "all"
# break: family = "single points"  # averaging leads out of the family of discriminators

X = range(6)


def average_law(p):
    return [sum(p[x] * Fraction(1, len(maps)) for g in maps for x in X if g[x] == y) for y in X]


def average(f):
    return [Fraction(sum(f[g[x]] for g in maps), len(maps)) for x in X]


def distance(p, q, scores):  # what the best discriminator tells apart
    return max(sum((a - b) * s for a, b, s in zip(p, q, f)) for f in scores)


everything = list(product((0, 1), repeat=6))
plain = everything if family == "all" else [f for f in everything if sum(f) <= 1]
invariant = [f for f in plain if all(f[g[x]] == f[x] for g in maps for x in X)]
seen = distance(data, other, invariant)
averaged = distance(average_law(data), average_law(other), plain)
by_averages = distance(data, other, [average(f) for f in plain])
print(f"{len(plain)} discriminators, {len(invariant)} of them invariant")
print(f"of any generator: all see {distance(data, other, plain)}, the invariant ones {seen}")
panel = [
    ("seen by invariant ones − seen by all after averaging", seen - averaged, "==", 0),
    (
        "seen by invariant ones, of the collapsed generator",
        distance(data, collapsed, invariant),
        "==",
        0,
    ),
    ("seen by invariant ones − seen by averaged ones", seen - by_averages, "==", 0),
    ("seen by all, of the collapsed generator", distance(data, collapsed, plain), ">", 0),
]
