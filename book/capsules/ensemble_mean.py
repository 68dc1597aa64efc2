"""No member of the ensemble is invariant, their mean is: the law of the start decides. (E1)"""

from fractions import Fraction

starts = [[2, 0, -1], [-1, 2, 0], [0, -1, 2]]  # equally likely; a shift permutes them
# break: starts = [[2, 0, -1], [-1, 2, 0]]  # a law that is not invariant
# try: starts = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # another orbit
shown = [1, 1, 1]  # how often each shift of the data is shown
# break: shown = [1, 0, 0]  # trained without augmentation
mask = [1, 1, 1]
# break: mask = [1, 1, 0]  # a filter with a corner cut off: shifts lead out of the architecture
data = [([1, 2, 0], 3), ([0, 1, -1], 1)]
rate, steps = Fraction(1, 64), 2

R = range(3)


def shift(v, g):
    return [v[(i - g) % 3] for i in R]


def output(a, x):  # a unit that squares
    return sum(Fraction(a[i]) * x[i] for i in R) ** 2


def trained(a):
    a = [Fraction(v * m) for v, m in zip(a, mask)]
    for _ in range(steps):
        step = [Fraction(0) for i in R]
        for x, y in data:
            for g, w in enumerate(shown):
                moved = shift(x, g)
                inner = sum(a[i] * moved[i] for i in R)
                for i in R:
                    step[i] += w * mask[i] * 2 * (inner**2 - y) * inner * moved[i] / sum(shown)
        a = [u - rate * v for u, v in zip(a, step)]
    return a


members = [trained(a) for a in starts]
tests = [[1, 0, 0], [3, -1, 2], [1, 1, -2]]


def unevenness(networks):  # the largest change of their mean when a test input is shifted
    means = [[sum(output(a, shift(x, g)) for a in networks) / len(networks) for g in R] for x in tests]
    return max(max(row) - min(row) for row in means)


one, all_of_them = unevenness(members[:1]), unevenness(members)
print(f"change under shifts: one member {float(one):.3f}, their mean {float(all_of_them):.3f}")
panel = [
    ("change of the mean under shifts", all_of_them, "==", 0),
    ("change of one member under shifts", one, ">", 0),
]
