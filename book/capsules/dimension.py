"""How many equivariant maps are there? By characters, by orbits of pairs, by averaging a matrix. (H3)"""

from fractions import Fraction

generators = [(1, 2, 3, 4, 0), (0, 4, 3, 2, 1)]
# break: generators = [(1, 2, 3, 4, 0), (0, 4, 3, 3, 1)]  # the second is no permutation
# try: generators = [(1, 2, 3, 4, 0)]  # turns without reflections: more maps
# own permutations: generators
forgotten = 0
# break: forgotten = 1  # one element is left out of every average
repeated = 0
# break: repeated = 1  # the neutral element counts twice

n = len(generators[0])
elements = {tuple(range(n))}
new = set(elements)
while new and len(elements) < 130:
    new = {tuple(g[i] for i in h) for g in generators for h in new} - elements
    elements |= new
elements = sorted(elements)
elements = elements[: len(elements) - forgotten] + elements[:1] * repeated
order = len(elements)

characters = Fraction(sum(sum(g[i] == i for i in range(n)) ** 2 for g in elements), order)

pairs = [(i, j) for i in range(n) for j in range(n)]
orbits = {min((g[i], g[j]) for g in elements) for i, j in pairs}

A = {(i, j): (7 * i * i + 3 * j + i * j) % 11 for i, j in pairs}  # any matrix
average = {(i, j): Fraction(sum(A[g[i], g[j]] for g in elements), order) for i, j in pairs}
defect = max(abs(average[g[i], g[j]] - average[i, j]) for g in generators for i, j in pairs)

print(f"{order} elements, <χ, χ> = {characters}, {len(orbits)} orbits of pairs")
panel = [
    ("<χ, χ> − number of orbits of pairs", characters - len(orbits), "==", 0),
    ("number of different entries of the average", len(set(average.values())), "<=", len(orbits)),
    ("change of the average under a generator", defect, "==", 0),
]
