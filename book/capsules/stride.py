"""A stride turns with the picture only where it divides the side less one. (T4)"""

side = 9
# break: side = 8  # the commonest mistake: an even side
# try: side = 17  # a larger picture
stride = 2
# break: stride = 3  # three does not divide eight
first = 0
# break: first = 1  # another place to begin: which side would it need?
times = 3  # how often: nine, five, three, two
# break: times = 4  # once too often: two less one is one


def picture(side):
    return [[(7 * i * i + 3 * j + i * j * j) % 101 for j in range(side)] for i in range(side)]


def turned(p):
    return [list(row) for row in zip(*p)][::-1]


def mirrored(p):
    return [row[::-1] for row in p]


def thinned(p):
    return [row[first::stride] for row in p[first::stride]]


def wrong(p, move):  # places where moving first and thinning first differ
    one, other = thinned(move(p)), move(thinned(p))
    return sum(a != b for u, v in zip(one, other) for a, b in zip(u, v))


sides, turns, mirrors = [], 0, 0
p = picture(side)
for _ in range(times):
    sides.append(len(p))
    turns += wrong(p, turned)
    mirrors += wrong(p, mirrored)
    p = thinned(p)
print(f"sides {sides}, then {len(p)}; side − 1 by the stride leaves {[(s - 1) % stride for s in sides]}")
panel = [
    ("values that differ under a quarter turn", turns, "==", 0),
    ("values that differ under a reflection", mirrors, "==", 0),
]
