"""What averaging over an orbit takes out of a gradient: V = B + W. Every draw is enumerated. (N8)"""

from fractions import Fraction
from itertools import combinations, product

# One row per example: its gradient at each of its images; the first image is the one in the data.
gradients = [[3, 1, -2, 4], [0, 5, 1, 1], [-4, 2, 2, -1]]
# try: gradients = [[3, 3, 3, 3], [0, 0, 0, 0], [-4, -4, -4, -4]]  # the pose does not matter: W = 0
drawn = 2  # images of each example in a batch
# try: drawn = 3  # one more image
with_replacement = False
# break: with_replacement = True  # the formula without, the draw with
shown = "all poses"
# break: shown = "upright"  # the data show the first image only
together = False
# break: together = True  # two examples share one turn: are they independent?


def mean(v):
    return Fraction(sum(v)) / len(v)


def variance(v):
    return mean([(x - mean(v)) ** 2 for x in v])


m = len(gradients[0])
B = variance([mean(row) for row in gradients])
W = mean([variance(row) for row in gradients])
W_k = W / drawn * Fraction(m - drawn, m - 1)
data = [x for row in gradients for x in (row if shown == "all poses" else row[:1])]

draws = [product(row, repeat=drawn) if with_replacement else combinations(row, drawn) for row in gradients]
estimates = [mean(draw) for row in draws for draw in row]
if together:
    pairs = [(a[g] + b[g]) / Fraction(2) for a in gradients for b in gradients for g in range(m)]
else:
    pairs = [(a + b) / Fraction(2) for row in gradients for a in row for r in gradients for b in r]

print(f"B = {B}, W = {W}; {len(estimates)} draws of {drawn} images, of variance {variance(estimates)}")
panel = [
    ("variance of one gradient − (B + W)", variance(data) - (B + W), "==", 0),
    ("variance with some images − (B + W_k)", variance(estimates) - (B + W_k), "==", 0),
    ("variance of a batch of two − (B + W) / 2", variance(pairs) - (B + W) / 2, "==", 0),
]
