"""Transport between orbits is transport between averaged clouds. Every assignment is tried. (S1)"""

xs = [(3, 1), (-1, 2)]
ys = [(0, -4), (2, 2)]
# try: ys = [(5, 0), (0, 0)]  # other points, one of them fixed by every turn
turns = [0, 1, 2, 3]
# break: turns = [0, 1, 2]  # a set of turns that is no group
stretch = 1
# break: stretch = 2  # one axis costs twice as much: the turns are no isometries
slant = 0
# break: slant = 3  # the same turns in slanted axes


def turn(g, p):  # by g quarters
    u, v = p[0] - slant * p[1], p[1]
    for _ in range(g):
        u, v = -v, u
    return (u + slant * v, v)


def distance(p, q):  # along the axes, as in a town of square blocks: quarter turns keep it
    return abs(p[0] - q[0]) + stretch * abs(p[1] - q[1])


def cheapest(cost):  # of all one-to-one assignments, built up row by row
    best = {0: 0}  # the least cost by the set of columns that are taken
    for row in cost:
        step = {}
        for taken, total in best.items():
            for j, price in enumerate(row):
                if not taken >> j & 1:
                    key = taken | 1 << j
                    step[key] = min(total + price, step.get(key, total + price))
        best = step
    return best[2 ** len(cost) - 1]


k = len(turns)
orbits = k * cheapest([[min(distance(p, turn(g, q)) for g in turns) for q in ys] for p in xs])
X, Y = [turn(g, p) for p in xs for g in turns], [turn(g, q) for q in ys for g in turns]
clouds = cheapest([[distance(p, q) for q in Y] for p in X])
plain = k * cheapest([[distance(p, q) for q in ys] for p in xs])

print(f"cost for {k} copies of each point: between orbits {orbits}, between clouds {clouds}, plain {plain}")
panel = [
    ("between orbits − between averaged clouds", orbits - clouds, "==", 0),
    ("between averaged clouds − plain", clouds - plain, "<=", 0),
]
