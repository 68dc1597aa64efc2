"""The law of MMD with a symmetry, on a ring of six points. Every pair of samples is enumerated. (S4)"""

from fractions import Fraction
from itertools import product

kernel = [6, 3, 1, 0, 1, 3]  # by distance along the ring, over 6
# try: kernel = [6, 1, 0, 0, 0, 1]  # a narrow kernel: more gain
shifts = [0, 2, 4]  # the group
# break: shifts = [0, 1, 2]  # shifts that are no group
law = [1, 1, 1, 1, 1, 1]
# break: law = [3, 1, 1, 1, 1, 1]  # a law that is not invariant
opposite = False
# break: opposite = True  # the second point of a sample lies opposite the first: not independent

n = 6
p = [Fraction(w, sum(law)) for w in law]
R = range(n)


def k(x, y):
    return Fraction(kernel[(x - y) % n], 6)


def averaged(x, y):
    return sum(k(x + g, y + h) for g in shifts for h in shifts) / len(shifts) ** 2


def mmd2(first, second, k):
    pairs = [(x, 1, len(first)) for x in first] + [(x, -1, len(second)) for x in second]
    return sum(Fraction(s * t, a * b) * k(x, y) for x, s, a in pairs for y, t, b in pairs)


def expected(k):  # of samples of two points and of one point from the same law
    table = [[k(x, y) for y in R] for x in R]
    total = Fraction(0)
    for x, y, z in product(R, R, R):
        weight = p[x] * p[z] * ((y == (x + 3) % n) if opposite else p[y])
        if weight:
            total += weight * mmd2([x, y], [z], lambda a, b: table[a][b])
    return total


M = sum(p[x] * p[y] * k(x, y) for x in R for y in R)
C2 = sum(k(0, g) for g in shifts) / len(shifts)
plain, symmetric = expected(k), expected(averaged)
factor = Fraction(1, 2) + 1
print(f"M = {M}, C² = {C2}; E MMD² plain {plain}, with the group {symmetric}")
panel = [
    ("plain − (1/n + 1/m)(1 − M)", plain - factor * (1 - M), "==", 0),
    ("with the group − (1/n + 1/m)(C² − M)", symmetric - factor * (C2 - M), "==", 0),
    ("with the group − plain", symmetric - plain, "<=", 0),
]
