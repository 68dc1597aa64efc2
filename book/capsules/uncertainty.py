"""No function is small both in space and in frequency. Try yours, against all functions of 0 and 1. (B5)"""

from itertools import product
from math import cos, pi, sin

f = [1, 0, 0, -1, 0, 0, 0]
# break: f = [1, 0, 0, 0, 1, 0, 0, 0]  # eight points: the sum rule is for primes, and {0, 4} is a subgroup
# try: f = [1, -2, 0, 3, 0]  # five points
# own signal: f
small = 1e-9  # a coefficient below this counts as zero
# break: small = 1.5  # blurred counting: is there a principle for "effective" sizes?
n = len(f)
counted = n
# break: counted = n // 2 + 1  # half of the spectrum, as a real FFT returns it

root = [complex(cos(2 * pi * k / n), sin(2 * pi * k / n)) for k in range(n)]


def support(f):
    return sum(v != 0 for v in f)


def rank(f):  # of the Fourier transform: how many coefficients are not zero
    places = [x for x in range(n) if f[x]]
    return sum(abs(sum(f[x] * root[k * x % n] for x in places)) > small for k in range(counted))


indicators = [g for g in product((0, 1), repeat=n) if any(g)] if n <= 8 else []
sizes = [(support(g), rank(g)) for g in [f] + indicators if any(g)]
equal = sum(s * r == n for s, r in sizes[1:])
cosets = sum(n // d for d in range(1, n + 1) if n % d == 0) if indicators else 0
least = min(sizes, key=lambda size: size[0] * size[1])

print(f"yours: support {sizes[0][0]}, rank {sizes[0][1]}; the least of {len(sizes)}: {least[0]} × {least[1]}")
panel = [
    ("least support × rank − n", least[0] * least[1] - n, ">=", 0),
    ("indicators with equality − cosets of subgroups", equal - cosets, "==", 0),
    ("least support + rank − (n + 1), for prime n", min(s + r for s, r in sizes) - n - 1, ">=", 0),
]
