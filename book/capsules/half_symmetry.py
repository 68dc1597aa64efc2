"""What half a symmetry is worth in least squares: only a subgroup H of the group G is known. (N2)"""

from fractions import Fraction

points = 40  # in the sample
# break: points = 8  # fewer points than the formula needs
# try: points = 12  # few points: the more is a symmetry worth
G = [(1, 2, 3, 4, 5, 6, 7, 0)]  # generators: eight turns
# break: G = [(1, 2, 3, 4, 5, 6, 7, 0), (0, 7, 6, 5, 4, 3, 2, 1)]  # reflections keep some points where they are
H = [(2, 3, 4, 5, 6, 7, 0, 1)]  # every second turn
# break: H = [(0, 7, 6, 5, 4, 3, 2, 1)]  # a reflection is no turn


def closure(generators):
    group = {tuple(range(len(generators[0])))}
    new = set(group)
    while new and len(group) < 130:
        new = {tuple(g[i] for i in h) for g in generators for h in new} - group
        group |= new
    return group


def dimension(group):  # of the invariant vectors: the mean number of fixed points
    return Fraction(sum(sum(g[i] == i for i in range(len(g))) for g in group), len(group))


def price(e):  # of e unknown numbers, in units of the noise
    return Fraction(e) / (points - e - 1)


group, half = closure(G), closure(H)
index = Fraction(len(group), len(half))
d, e_half, e = len(G[0]), dimension(half), dimension(group)
print(f"|G| = {len(group)}, |H| = {len(half)}; unknown numbers {d}, {e_half}, {e}")
print(f"prices: plain {price(d)}, with H {price(e_half)}, with G {price(e)}")
panel = [
    ("elements of H that are not in G", len(half - group), "==", 0),
    ("unknowns with H − index × unknowns with G (free action)", e_half - index * e, "==", 0),
    ("price of H − price without symmetry", price(e_half) - price(d), "<=", 0),
]
