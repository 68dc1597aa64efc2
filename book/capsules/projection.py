"""The average over a group is the orthogonal projection onto what is invariant. (H2)"""

from fractions import Fraction

group = [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]
# break: group = [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 2, 1)]  # two entries of the last are swapped
# break: group = [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1)]  # the last turn is forgotten
# own permutations: group
weights = [1, 1, 1, 1]
# break: weights = [2, 2, 1, 0]  # the unfair draw of a published experiment: never three quarters
# break: weights = [2, 1, 2, 1]  # unfair, and yet as often forwards as backwards: which line survives?
# try: weights = [3, 3, 3, 3]  # only the proportions count

n = len(group[0])
R = range(n)
weights = weights[: len(group)] + [1] * (len(group) - len(weights))


def matrix(g):  # takes coordinate j to coordinate g[j]
    return [[Fraction(int(g[j] == i)) for j in R] for i in R]


def product(A, B):
    return [[sum(A[i][k] * B[k][j] for k in R) for j in R] for i in R]


def distance(A, B):
    return max(abs(A[i][j] - B[i][j]) for i in R for j in R)


rho = [matrix(g) for g in group]
P = [[sum(w * r[i][j] for w, r in zip(weights, rho)) / sum(weights) for j in R] for i in R]
transposed = [list(column) for column in zip(*P)]
print("\n".join(" ".join(f"{x!s:>5}" for x in row) for row in P))
panel = [
    ("largest entry of PP − P", distance(product(P, P), P), "==", 0),
    ("largest entry of Pᵀ − P", distance(transposed, P), "==", 0),
    ("largest entry of ρ(g)P − P", max(distance(product(r, P), P) for r in rho), "==", 0),
]
