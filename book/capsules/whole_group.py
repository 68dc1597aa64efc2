"""Invariant and fully augmented classifiers agree: drop a condition, and an angle opens. (B11)"""

from fractions import Fraction
from itertools import combinations

x = [1, 0, 0, 0, 1]  # four coordinates that are shifted, and one that stays; the label is +1
# try: x = [3, 1, 0, -1, 1]  # another point
seen = [0, 1, 2, 3]  # the shifts that the plain network sees
# break: seen = [0, 1]  # half of the group
scale = [1, 1, 1, 1]
# break: scale = [1, 2, 1, 2]  # shifts in stretched axes: they do not keep lengths
size = 2  # the length of the vector (1, 1, 1, 1) in the basis of the invariants
# break: size = 1  # one number for four tied weights: a basis that is not orthonormal


def shifted(x, g):
    flat = [x[i] / Fraction(scale[i]) for i in range(4)]
    return [flat[(i - g) % 4] * scale[i] for i in range(4)] + [x[4]]


def dot(u, v):
    return sum(a * b for a, b in zip(u, v))


def solve(A):  # A a = (1, ..., 1), or nothing if A is singular
    rows = [row + [Fraction(1)] for row in A]
    for i in range(len(rows)):
        if rows[i][i] == 0:
            return None
        for k in range(len(rows)):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [u - factor * v for u, v in zip(rows[k], rows[i])]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def largest_margin(points):  # the shortest vector with <point, vector> ≥ 1 at every point
    for count in range(1, len(points) + 1):
        for some in combinations(points, count):
            a = solve([[Fraction(dot(p, q)) for q in some] for p in some])
            if a and min(a) >= 0:
                w = [sum(c * p[i] for c, p in zip(a, some)) for i in range(5)]
                if min(dot(w, p) for p in points) >= 1:
                    return w


plain = largest_margin([shifted(x, g) for g in seen])
tied = sum(x[:4]) / Fraction(size**2)  # gradient flow on the invariants finds their own largest margin
invariant = [tied] * 4 + [x[4]]
cosine2 = dot(plain, invariant) ** 2 / (dot(plain, plain) * dot(invariant, invariant))
print(f"plain {[str(v) for v in plain]}, invariant {[str(v) for v in invariant]}")
panel = [("sin² of the angle between the classifiers", 1 - cosine2, "==", 0)]
