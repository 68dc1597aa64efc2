"""A true symmetry that costs 1/192: |t| is fitted by 1, t, t², with and without the odd power. (N6)"""

from fractions import Fraction

right = Fraction(3, 4)  # the probability that t is positive; |t| is uniform on (0, 1)
# break: right = Fraction(4, 3)  # no probability
# try: right = Fraction(1, 2)  # a symmetric law: the odd power buys nothing
powers = [0, 1, 2]
# break: powers = [0, 1, 2, 4]  # one even function more: what is the floor now?
target = 1  # the target is |t| to this power
# break: target = 3  # another even target

delta = 2 * right - 1


def moment(k, even):  # the mean of |t|^k, times the sign of t unless even
    return Fraction(1, k + 1) * (1 if even else delta)


def floor(powers):  # the least mean square error, by elimination in the matrix of moments
    rows = [[moment(a + b, (a + b) % 2 == 0) for b in powers] for a in powers]
    rows = [row + [moment(a + target, a % 2 == 0)] for row, a in zip(rows, powers)]
    rows.append([row[-1] for row in rows] + [moment(2 * target, True)])
    size = len(powers)
    for i in range(size):
        for k in range(i + 1, size + 1):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [u - factor * v for u, v in zip(rows[k], rows[i])]
    return rows[size][size]


invariant = floor([a for a in powers if a % 2 == 0])
plain = floor(powers)
formula = Fraction(1, 192) * 64 * (1 - delta**2) / (64 - 63 * delta**2)

print(f"invariant {invariant}, plain {plain} = {float(plain):.6f}, formula {formula} at δ = {delta}")
panel = [
    ("least error of the invariant fit − 1/192", invariant - Fraction(1, 192), "==", 0),
    ("least error of the plain fit − F(δ)", plain - formula, "==", 0),
    ("F(δ) − 1/192", formula - Fraction(1, 192), "<=", 0),
]
