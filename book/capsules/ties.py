"""An equivariant network cannot choose between k places that look the same: it pays log k. (N5)"""

from fractions import Fraction

necklace = [2, 0, 1, 2, 0, 1]  # a pattern that a shift by three does not change
# try: necklace = [1, 0, 1, 0, 1, 0]  # three places that look the same
jitter = 0
# break: jitter = 1  # one bead is a little larger, and the network can see it
position = 0
# break: position = 2  # the network knows where it is: it is not equivariant
closed = True
# break: closed = False  # zeros around the necklace instead of a ring

n = len(necklace)
R = range(n)
weights = [-1, 3, 1]


def scores(beads):  # one for each place, from the bead and its two neighbours
    ring = [beads[-1] if closed else 0] + beads + [beads[0] if closed else 0]
    return [sum(w * ring[i + d] for d, w in enumerate(weights)) + position * (i == 0) for i in R]


def chances(beads):
    powers = [Fraction(2) ** s for s in scores(beads)]
    return [p / sum(powers) for p in powers]


def shifted(v, g):
    return [v[(i - g) % n] for i in R]


beads = [b + (jitter if i == 0 else 0) for i, b in enumerate(necklace)]
stabiliser = [g for g in R if shifted(necklace, g) == necklace]
k = len(stabiliser)
chance = chances(beads)
moved = max(abs(a - b) for g in R for a, b in zip(chances(shifted(beads, g)), shifted(chance, g)))
pair = max(chance[g] * chance[(g + 1) % n] for g in stabiliser)
print(f"{k} places look the same; the answer, place 0, has the probability {chance[0]}")
panel = [
    ("largest | f(gx) − gf(x) |", moved, "==", 0),
    ("k × probability of the answer: the cost is log k or more", k * chance[0], "<=", 1),
    ("k² × probability of two answers, predicted separately", k**2 * pair, "<=", 1),
]
