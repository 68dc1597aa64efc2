"""Calls of lib.transport."""

from __future__ import annotations

import math

import torch

from lib.checks import seeded
from lib.symmetry.actions import natural, pixels, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.transport import (
    divergences,
    invariance,
    kernels,
    learning_curves,
    particle_distances,
    quotient,
    two_sample,
)
from lib.transport.turned_kernel import TurnedKernel
from tests.calls import call, law, normal

PLANE = planar(Cyclic(4))
PLANAR = {action.name: action for action in (quotient.turns(4), quotient.linear(PLANE), quotient.no_group(2))}
TURNS, RADIAL, LATTICE = quotient.turns(4), quotient.radial(2), quotient.lattice(2, 2)
ACTIONS = (
    *PLANAR.values(),
    RADIAL,
    LATTICE,
    quotient.lattice(3, 1),
    quotient.no_group(1),
    quotient.lattice(1, 2),
    quotient.linear(natural(Symmetric(3))),
    quotient.phase(2),
    quotient.moduli(1),
    quotient.moduli(2),
    quotient.pairs_in_space(),
)


@call(*(normal(2, 3, action.dim) for action in ACTIONS), *(normal(2, 4, action.dim) for action in ACTIONS))
def orbit_distances(*points):
    k = len(ACTIONS)
    pairs = list(zip(ACTIONS, points[:k], points[k:], strict=True))
    costs = [action.distance(x, y) for action, x, y in pairs]
    return costs, [w for action, x, y in pairs for w in (divergences.w1_batch(x, y[:, :3], action),)]


@call(normal(5, 2), normal(4, 2), law(5), law(4))
def wasserstein(x, y, a, b):
    return divergences.w1(x, y, TURNS), divergences.w1(x, y, RADIAL, a, b)


@call(normal(2, 4, 2), normal(2, 3, 2), samples=(0, 1))
def regularised(x, y):
    return divergences.regularised_batch(x, y, TURNS, "kl"), divergences.regularised_batch(x, y, TURNS, "alpha2", 2.0)


@call(normal(3, 2, 2), normal(5, 2))
def polar_coordinates(_, points):
    return quotient.polar(points)


@call(normal(2, 6, 2), normal(2, 5, 2))
def kernel_distances(x, y):
    actions = (TURNS, quotient.turns(64), RADIAL, LATTICE, quotient.linear(PLANE))
    many = [kernels.mmd_squared(x, y, action, 0.7) for action in actions]
    return many, [kernels.orbit_kernel(x, y, action, 0.7) for action in actions]


@call(normal(2, 40, 2), normal(40, 2))
def kernel_moments(points, sample):
    reach = kernels.kernel_reach(sample, TURNS, 1.0)
    return kernels.mmd_squared(points, points + 0.1, RADIAL, 2.0), reach.a, reach.mean


@call(normal(3, 6).abs(), normal(3, 6), law(6))
def turned_kernel(r, theta, w):
    average, r = TurnedKernel(math.inf, 1.0, 0.0, 10.0), r.clamp(max=10.0)
    return average(r, r.flip(-1), theta), list(average.harmonics(r, r)), average.quadratic_form(r, theta, w)


@call(normal(2, 8, 2), double="statistics of tests are computed in double precision")
def orbit_test(points):
    return invariance.orbit_test(points, PLANE, seeded(0), draws=19)


@call(normal(2, 8, 2), normal(2, 6, 2), double="kernels of tests are computed in double precision")
def two_samples(x, y):
    generator, move = seeded(0), two_sample.random_move(PLANE)
    first = two_sample.two_sample_test(x, y, generator, permutations=19)
    second = two_sample.invariance_test(x, move, generator, permutations=19)
    return first, second, first.rejected(), move(x, generator)


@call(normal(6), normal(6))
def intervals(a, b):
    return learning_curves.paired_interval(a, b)


@call(torch.tensor([10.0, 20.0, 40.0], dtype=torch.float64), normal(3, 4).abs(), 0.8 * normal(3, 4).abs(), joint=True)
def savings(amounts, plain, smart):
    curves = learning_curves.Curve(amounts, plain), learning_curves.Curve(amounts, smart)
    return learning_curves.equivalent_factor(*curves, resamples=50)


@call(
    normal(2, 5, 3),
    normal(2, 4, 3),
    double="values are float64, as it says",
    samples=(0, 1),
)
def particles(a, b):
    closed = particle_distances.projection_rmd2(a, torch.tensor([1.0, 1.0, 0.0], device="cpu").diag())
    return particle_distances.squared_w2(a, b), particle_distances.rmd2(a, b), closed


IMAGES = quotient.linear(pixels(Dihedral(4), 3))


@call(normal(4, 9))
def images_of_points(x):
    return IMAGES.images(x), IMAGES.plain_distance(x, x)
