"""The loss of any predictor is its average's loss plus its symmetry error. (N9)"""

from fractions import Fraction

maps = [(0, 1, 2, 3, 4, 5), (1, 2, 0, 4, 5, 3), (2, 0, 1, 5, 3, 4)]  # two orbits of three inputs
# break: maps = [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), (1, 2, 0, 4, 5, 3)]  # an unfair average
law = [Fraction(1, 12)] * 3 + [Fraction(1, 4)] * 3
# break: law = [Fraction(1, 2), 0, 0, Fraction(1, 2), 0, 0]  # the inputs come in one pose
y = [2, 2, 2, -1, -1, -1]
# break: y = [2, 2, 2, -1, -1, 3]  # a label that depends on the pose
f = [3, 0, 1, -1, 4, -2]  # any predictor
# try: f = [9, -9, 2, 0, 0, 5]  # a wilder one
power = 2
# break: power = 4  # another loss than the square

X = range(len(f))
Qf = [Fraction(sum(f[g[x]] for g in maps), len(maps)) for x in X]


def mean(v):
    return sum(p * a for p, a in zip(law, v))


whole = mean([(a - b) ** power for a, b in zip(f, y)])
fit = mean([(a - b) ** power for a, b in zip(Qf, y)])
symmetry = mean([(a - b) ** power for a, b in zip(f, Qf)])
uneven = max(abs(law[g[x]] - law[x]) for g in maps for x in X)

print(f"loss {whole} = {fit} (fit) + {symmetry} (symmetry) + {whole - fit - symmetry} (unexplained)")
panel = [
    ("loss − fit − symmetry error", whole - fit - symmetry, "==", 0),
    ("loss of the average − loss", fit - whole, "<=", 0),
    ("largest change of the law under the group", uneven, "==", 0),
]
