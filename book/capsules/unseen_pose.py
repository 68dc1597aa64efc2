"""Other orbits do not teach yours: kernel regression at the one pose it has not seen. (N12)"""

from fractions import Fraction

m = 4  # poses of each of two images; the labels are +1 on the orbit A and −1 on B
near = [12, 4, 1, 4]  # kernel within an orbit, by the difference of poses
across = [5, 2, 0, 2]  # between the orbits
# try: across = [0, 0, 0, 0]  # B has nothing to do with A: even so, the pose is not learnt
tilt = 0
# break: tilt = 3  # one pose is louder: the kernel is not invariant
label = -1
# break: label = 2  # another label on B than the formula has
lost = 0
# break: lost = 1  # a pose of B was not seen either


def solve(A, b):
    rows = [[Fraction(v) for v in row] + [Fraction(c)] for row, c in zip(A, b)]
    for i in range(len(rows)):
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(len(rows)):
            if k != i and rows[k][i]:
                factor = rows[k][i]
                rows[k] = [u - factor * v for u, v in zip(rows[k], rows[i])]
    return [row[-1] for row in rows]


def kernel(i, j):
    parts = near if i // m == j // m else across
    return parts[(i - j) % m] + (tilt if i == j == 1 else 0)


K = [[kernel(i, j) for j in range(2 * m)] for i in range(2 * m)]
seen = range(1, 2 * m - lost)
weights = solve([[K[i][j] for j in seen] for i in seen], [1 if i < m else label for i in seen])
value = sum(w * K[0][j] for w, j in zip(weights, seen))

a, b, c = sum(near), sum(near), sum(across)
s = Fraction(a * b - c * c, b + c)
first = solve(K, [1] + [0] * (2 * m - 1))[0]  # an entry of the inverse: 1/H, for H the harmonic mean
sums = [sum(row[:m]) for row in K[:m]]
print(f"at the unseen pose: {value} = {float(value):.3f}, formula {1 - 1 / first / s}")
panel = [
    ("value at the unseen pose − (1 − H/s)", value - (1 - 1 / first / s), "==", 0),
    ("value at the unseen pose, where +1 is right", value, "<", 1),
    ("kernel sums of the poses, largest − smallest", max(sums) - min(sums), "==", 0),
]
