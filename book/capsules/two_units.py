"""A teacher of two mirrored units: strong invariance has a price, weak invariance has none. (M4)"""

from fractions import Fraction

xs = [-2, -1, 0, 1, 2]  # the inputs, equally likely
# break: xs = [0, 1, 2]  # inputs that are not symmetric: is augmentation still averaging?
teacher = [1, -1]  # the parameters of the teacher's units
# break: teacher = [1]  # one unit alone: its network is not even
# try: teacher = [3, -3]  # another pair
shift = 0
# break: shift = 1  # a unit that does not turn with its input


def unit(x, z):  # a change of both signs changes nothing
    return Fraction((1 + z * x + shift * x) ** 2)


def mean(v):
    return sum(v) / Fraction(len(v))


def network(units):
    return [mean([unit(x, z) for z in units]) for x in xs]


def both_ways(units):  # the mean of the network at x and at −x
    return [mean([unit(s * x, z) for z in units for s in (1, -1)]) for x in xs]


def risk(outputs):
    return mean([(a - b) ** 2 for a, b in zip(outputs, network(teacher))])


student = [1, 2]  # any law of units
symmetric = student + [-z for z in student]
weak = teacher + [-z for z in teacher]
strong = [0]  # the only parameter that a change of sign keeps
mirrored = [-z for z in student]
augmented = (risk(network(student)) + risk(network(mirrored))) / 2
unmoved = max(abs(a - b) for a, b in zip(both_ways(student), network(symmetric)))
price = mean([x**4 * Fraction(max(teacher)) ** 4 for x in xs])
print(f"risks: weakly invariant {risk(network(weak))}, strongly invariant {risk(network(strong))}")
panel = [
    ("averaged network − network of the averaged law", unmoved, "==", 0),
    ("risk of the best weakly invariant law", risk(network(weak)), "==", 0),
    ("risk of the strongly invariant law − E(zx)⁴", risk(network(strong)) - price, "==", 0),
    ("risk averaged − risk augmented", risk(network(symmetric)) - augmented, "<=", 0),
    ("risk of the mirrored law − risk", risk(network(mirrored)) - risk(network(student)), "==", 0),
]
