"""Is this table a group, and is the fair draw from it invariant? (H1)"""

from fractions import Fraction

# Row a, column b holds the product ab; the first row names the elements.
table = "e r s a b c / r s e c a b / s e r b c a / a b c e r s / b c a s e r / c a b r s e"
# break: table = "e a b c d / a e c d b / b d e a c / c b d e a / d c a b e"  # a Latin square: enough?
# break: table = "e a b / a e e / b e e"  # two inverses for one element
# break: table = "a b / a b"  # a neutral element from the left only
# break: table = "e a / a x"  # a product that is no element
# try: table = "e a b c / a e c b / b c e a / c b a e"  # Klein's group of four
weights = [1, 1, 1, 1, 1, 1]
# break: weights = [2, 1, 1, 1, 1, 1]  # the neutral element is drawn twice as often
# own table: table

rows = [row.split() for row in table.split("/")]
names = rows[0]
place = {name: i for i, name in enumerate(names)}
stray = [x for row in rows for x in row if x not in place]
times = [[place.get(x, 0) for x in row] for row in rows]
G = range(len(names))

wrong = [(a, b, c) for a in G for b in G for c in G if times[times[a][b]][c] != times[a][times[b][c]]]
neutral = [e for e in G if all(times[e][a] == a == times[a][e] for a in G)]
lonely = [a for a in G if not any(times[a][b] in neutral and times[b][a] in neutral for b in G)]
weights = weights[: len(names)] + [1] * (len(names) - len(weights))
law = [Fraction(w, sum(weights)) for w in weights]
moved = [[sum(law[h] for h in G if times[g][h] == k) for k in G] for g in G]
uneven = max(abs(moved[g][k] - law[k]) for g in G for k in G)

if wrong:
    a, b, c = (names[i] for i in wrong[0])
    print(f"({a}{b}){c} is not {a}({b}{c}): {len(wrong)} of {len(names) ** 3} triples disagree")
print(f"{len(names)} elements, neutral {[names[e] for e in neutral]}, no inverse {[names[a] for a in lonely]}")
panel = [
    ("entries that are no elements", len(stray), "==", 0),
    ("triples with (ab)c ≠ a(bc)", len(wrong), "==", 0),
    ("neutral elements", len(neutral), "==", 1),
    ("elements without an inverse", len(lonely), "==", 0),
    ("largest change of the law under a translation", uneven, "==", 0),
]
