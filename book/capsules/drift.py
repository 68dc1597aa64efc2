"""Augmented training stays among the equivariant layers, if every turn counts the same. (A2)"""

from fractions import Fraction

n, steps, rate = 3, 2, Fraction(1, 8)
data = [([2, 0, -1], [1, 0, 1]), ([0, 1, 1], [0, 2, -1])]  # input and target
# try: data = [([2, 0, -1], [1, 0, 1]), ([0, 1, 1], [0, 2, 9])]  # another target, any target
weights = [1, 1, 1]  # how often each turn is shown
# break: weights = [2, 2, 1]  # an unfair draw
# break: weights = [1, 0, 0]  # no augmentation
start = 0  # added to one weight
# break: start = 1  # a start that is not equivariant
bias = 0  # added to one neuron, and not to its images
# break: bias = 1  # a neuron that is treated otherwise

R = range(n)


def turn(v, g):
    return [v[(i - g) % n] for i in R]


def gradient(A, B, x, y):  # of |B (Ax)² − y|² / 2, the square taken coordinate by coordinate
    a = [sum(A[i][j] * x[j] for j in R) + (bias if i == 0 else 0) for i in R]
    e = [sum(B[i][j] * a[j] * a[j] for j in R) - y[i] for i in R]
    back = [2 * a[j] * sum(B[i][j] * e[i] for i in R) for j in R]
    return [[back[i] * x[j] for j in R] for i in R], [[e[i] * a[j] * a[j] for j in R] for i in R]


def distance(M):  # squared, from the circulant matrices
    mean = [sum(M[(i + d) % n][i] for i in R) / Fraction(n) for d in R]
    return sum((M[i][j] - mean[(i - j) % n]) ** 2 for i in R for j in R)


layers = [[[Fraction(c[(i - j) % n], 4) for j in R] for i in R] for c in ([2, 0, -1], [1, 1, 0])]
layers[0][0][0] += start
for _ in range(steps):
    moved = [(w, turn(x, g), turn(y, g)) for x, y in data for g, w in enumerate(weights)]
    parts = [(w, gradient(*layers, x, y)) for w, x, y in moved]
    for k in (0, 1):
        change = [[sum(w * p[k][i][j] for w, p in parts) / sum(weights) for j in R] for i in R]
        layers[k] = [[layers[k][i][j] - rate * change[i][j] for j in R] for i in R]
print(f"first row of the first layer after {steps} steps: {[round(float(v), 4) for v in layers[0][0]]}")
panel = [
    ("squared distance of the first layer from E", distance(layers[0]), "==", 0),
    ("squared distance of the second layer from E", distance(layers[1]), "==", 0),
]
