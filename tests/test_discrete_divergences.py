"""Divergences on finite sets under a group, against closed forms, other solvers and other chapters' routes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from lib.symmetry.actions import natural, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.representations import MatrixRepresentation
from lib.transport.divergences import KINDS, regularised_batch, w1
from lib.transport.kernels import mmd_squared
from lib.transport.quotient import linear, no_group
from tests.chapters import load
from tests.oracles import feature_average, symmetrize_measure

page = load("structure_preserving_gans")
FAMILIES, FiniteSpace, divergence, invariant_divergence = (
    getattr(page, name) for name in ("FAMILIES", "FiniteSpace", "divergence", "invariant_divergence")
)
mmd, mmd_invariant, regularised, regularised_invariant = (
    getattr(page, name) for name in ("mmd", "mmd_invariant", "regularised", "regularised_invariant")
)
orbit_closure, wasserstein, wasserstein_invariant, wasserstein_potential = (
    getattr(page, name) for name in ("orbit_closure", "wasserstein", "wasserstein_invariant", "wasserstein_potential")
)
DOUBLE = torch.float64
GROUPS = {
    "C2 on the line": MatrixRepresentation(Cyclic(2), 1, lambda g: (1.0 - 2.0 * g.double())[..., None], "R^1"),
    "C4 on the plane": planar(Cyclic(4)),
    "D4 on the plane": planar(Dihedral(4)),
    "S3 on coordinates": natural(Symmetric(3)),
}


def sheared(representation, shear):
    """Return the action conjugated by a shear of the first two coordinates."""
    a = torch.eye(representation.dim, dtype=DOUBLE)
    a[0, 1] = shear
    return MatrixRepresentation(
        representation.group,
        representation.dim,
        lambda g: a @ representation.matrix(g) @ a.inverse(),
        "sheared",
        unitary=False,
    )


def space_of(representation, starts=4, seed=0, metric=None):
    generator = torch.Generator().manual_seed(seed)
    return orbit_closure(
        representation, torch.randn(starts, representation.dim, generator=generator, dtype=DOUBLE), metric
    )


def laws_on(space, seed=0, count=2, concentration=0.7):
    masses = np.random.default_rng(seed).dirichlet(np.full(space.size, concentration), count)
    return torch.from_numpy(masses)


def oblique(shear=0.8, seed=0, starts=4):
    return space_of(sheared(planar(Cyclic(4)), shear), starts, seed)


def line(*positions):
    """Return points of the line with the trivial group."""
    points = torch.tensor(positions, dtype=DOUBLE)[:, None]
    return FiniteSpace(points, torch.arange(len(points))[None], (points - points.T).abs())


# --- the space ---


@pytest.mark.parametrize("representation", GROUPS.values(), ids=GROUPS)
def test_orbit_closure_is_closed(representation):
    space = space_of(representation)
    elements = representation.group.unsqueeze(representation.group.elements())
    assert space.order == representation.group.order
    torch.testing.assert_close(space.points[space.maps], representation.apply(elements, space.points))
    assert space.orbits == 4
    assert space.size == 4 * space.order
    assert space.isometry_defect() < 1e-12
    assert space.distortion() == pytest.approx(1)


def test_images_that_coincide_count_once():
    starts = torch.tensor([[0, 0], [1, 0], [1, 1], [2, 1], [0, -1]], dtype=DOUBLE)
    space = orbit_closure(planar(Dihedral(4)), starts)  # a fixed point, two kinds of axes, a free orbit, a repetition
    assert torch.bincount(space.labels).tolist() == [1, 4, 4, 8]


@pytest.mark.parametrize("representation", GROUPS.values(), ids=GROUPS)
def test_symmetrisation_is_that_of_the_haar_module(representation):
    space = space_of(representation)
    law = laws_on(space, count=1)[0]
    images, masses = symmetrize_measure(space.points, representation, law)
    place = torch.cdist(images, space.points).argmin(-1)
    expected = torch.zeros(space.size, dtype=DOUBLE).index_add_(0, place, masses)
    torch.testing.assert_close(space.symmetrise_law(law), expected)

    def function(x):
        return (x @ torch.arange(1, x.shape[-1] + 1).to(x)).sin()

    averaged = feature_average(function, representation)(space.points)
    torch.testing.assert_close(space.symmetrise_function(function(space.points)), averaged)


@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(GROUPS)), shear=st.sampled_from([0.0, 0.7]))
@settings(max_examples=20, deadline=None)
def test_the_two_averages_are_dual_projections(seed, name, shear):
    representation = GROUPS[name] if GROUPS[name].dim == 1 else sheared(GROUPS[name], shear)
    space = space_of(representation, 3, seed)
    law, function = laws_on(space, seed)
    even, mean = space.symmetrise_law(law), space.symmetrise_function(function)
    torch.testing.assert_close(even @ function, law @ mean)
    torch.testing.assert_close(space.symmetrise_law(even), even)
    torch.testing.assert_close(mean[space.maps], mean.expand(space.order, -1))
    torch.testing.assert_close(even[space.maps], even.expand(space.order, -1))


def test_broken_yardsticks_are_seen():
    stretched = space_of(planar(Cyclic(4)), metric=torch.tensor([2.0, 1.0], dtype=DOUBLE).diag())
    assert stretched.isometry_defect() > 0.1
    assert stretched.distortion() == pytest.approx(1.5, abs=0.1)  # two of four maps at most double a distance
    assert oblique().isometry_defect() > 0.1


def test_a_half_turn_commutes_with_every_metric():
    metric = torch.tensor([[2.0, 0.3], [0.0, 1.0]], dtype=DOUBLE)
    assert space_of(planar(Cyclic(2)), metric=metric).isometry_defect() < 1e-12


# --- all discriminators ---


def test_wasserstein_on_the_line():
    space = line(-1.0, 0.0, 0.5, 2.0)
    q, p = laws_on(space)
    steps = space.points[:, 0].diff()
    expected = ((q - p).cumsum(0)[:-1].abs() * steps).sum()
    assert float(wasserstein(space, q, p)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_wasserstein_is_the_program_over_all_potentials(seed):
    space = oblique(seed=seed)
    q, p = laws_on(space, seed)
    value = page.invariant_program(space.distances[None], q - p)
    assert float(wasserstein(space, q, p)) == pytest.approx(value, rel=1e-9)


def test_the_potential_is_optimal_and_so_is_its_symmetrisation():
    space = space_of(planar(Cyclic(4)))
    q, p = (space.symmetrise_law(law) for law in laws_on(space, 3))
    gamma = wasserstein_potential(space, q, p)
    even = space.symmetrise_function(gamma)
    for one in (gamma, even):
        assert bool(((one[:, None] - one).abs() <= space.distances + 1e-12).all())
        torch.testing.assert_close((q - p) @ one, wasserstein(space, q, p), rtol=1e-10, atol=0)
    assert float((gamma - even).abs().max()) > 0.1
    raw, other = laws_on(space, 4)
    other[:5] = 0
    other = other / other.sum()
    potential = wasserstein_potential(space, raw, other)
    torch.testing.assert_close((raw - other) @ potential, wasserstein(space, raw, other))


def test_small_distances_have_a_potential_too():
    space = space_of(planar(Cyclic(4)))
    q, p = laws_on(space)
    tiny = FiniteSpace(space.points, space.maps, 1e-15 * space.distances)
    assert float((q - p) @ wasserstein_potential(tiny, q, p)) == pytest.approx(float(wasserstein(tiny, q, p)), rel=1e-9)


@pytest.mark.parametrize("representation", [planar(Cyclic(3)), planar(Dihedral(5))], ids=str)
def test_orbits_close_in_single_precision(representation):
    starts = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    space = orbit_closure(representation, starts, torch.eye(2, dtype=DOUBLE))
    assert space.points.dtype == space.distances.dtype == torch.float32
    assert (space.size, space.orbits) == (2 * representation.group.order, 2)


def test_mmd_is_reached_by_its_witness_and_by_no_other_function():
    space = oblique()
    q, p = laws_on(space)
    kernel = space.kernel(0.6)
    witness = kernel @ (q - p)
    value = mmd(space, q, p, width=0.6)
    norm = (witness @ torch.linalg.solve(kernel, witness)).sqrt()
    torch.testing.assert_close((q - p) @ witness / norm, value)
    weights = torch.randn(200, space.size, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    functions = weights @ kernel / torch.einsum("ri,ij,rj->r", weights, kernel, weights).sqrt()[:, None]
    assert bool((functions @ (q - p) < value).all())


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_on_two_points(kind):
    space, lipschitz = line(0.0, 1.0), 0.4
    q, p = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=DOUBLE)

    def compromise(mass):
        eta = np.array([mass, 1 - mass])
        ratio = eta / p.numpy()
        f = ratio * np.log(ratio) if kind == "kl" else (ratio**2 - 1) / 2
        return (p.numpy() * f).sum() + lipschitz * abs(float(q[0]) - mass)

    best = minimize_scalar(compromise, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-10}).fun
    assert float(regularised(space, q, p, kind, lipschitz)) == pytest.approx(best, rel=1e-7)
    assert float(regularised_invariant(space, q, p, kind, lipschitz)) == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", [regularised, regularised_invariant])
def test_limits_of_the_lipschitz_constant(kind, route):
    space = line(0.0, 0.7, 1.1, 2.0)
    q, p = laws_on(space, 1, concentration=3)
    exact = (q * (q / p).log()).sum() if kind == "kl" else ((q**2 / p).sum() - 1) / 2
    assert float(route(space, q, p, kind, 100.0)) == pytest.approx(float(exact), rel=1e-7)
    small = 1e-3
    assert float(route(space, q, p, kind, small)) == pytest.approx(float(small * wasserstein(space, q, p)), rel=0.01)


@pytest.mark.parametrize("lipschitz", [0.3, 1e-3, 1e-6, 1e-8, 1e-10, 1e-100])
@pytest.mark.parametrize("kind", KINDS)
def test_small_costs_keep_their_digits(kind, lipschitz):
    """Both routes agree, near L · W1 with what reweighting saves, which is of second order."""
    space = line(0.0, 0.7, 1.1, 2.0)
    q, p = laws_on(space, 1, concentration=3)
    upper, lower = (float(route(space, q, p, kind, lipschitz)) for route in (regularised, regularised_invariant))
    assert upper == pytest.approx(lower, rel=1e-8)
    straight = lipschitz * float(wasserstein(space, q, p))
    assert straight * (1 - 2 * lipschitz) - 1e-9 * straight < upper < straight * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_least_cost_and_best_discriminator_meet(kind):
    space = line(*np.random.default_rng(0).standard_normal(15))
    q, p = laws_on(space, 2, 6).unflatten(0, (2, 3))
    p[0, :7] = 0
    p = p / p.sum(-1, keepdim=True)
    upper, lower = regularised(space, q, p, kind, 0.5), regularised_invariant(space, q, p, kind, 0.5)
    torch.testing.assert_close(upper, lower, rtol=2e-8, atol=1e-9)
    assert bool((upper < 0.5 * wasserstein(space, q, p) + 1e-9).all())


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_agrees_with_the_solver_for_samples(kind):
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(n, 2, generator=generator, dtype=DOUBLE) for n in (6, 8))
    points, action = torch.cat([x, y]), linear(planar(Cyclic(4)))
    space = orbit_closure(planar(Cyclic(4)), points)
    q, p = torch.zeros(2, space.size, dtype=DOUBLE)
    q[:6], p[6:14] = 1 / 6, 1 / 8
    plain = float(regularised_batch(x[None], y[None], no_group(2), kind, 0.7))
    assert float(regularised(space, q, p, kind, 0.7)) == pytest.approx(plain, rel=1e-6)
    quotient = float(regularised_batch(x[None], y[None], action, kind, 0.7))
    assert float(regularised_invariant(space, q, p, kind, 0.7)) == pytest.approx(quotient, rel=1e-6)
    assert float(wasserstein_invariant(space, q, p)) == pytest.approx(w1(x, y, action), rel=1e-9)
    squared = float(mmd_squared(x[None], y[None], action, 0.7))
    assert float(mmd_invariant(space, q, p, 0.7)) == pytest.approx(squared**0.5, rel=1e-8)


# --- invariant discriminators ---


@pytest.mark.parametrize("case", ["isometric", "sheared"])
def test_invariant_mmd_against_the_general_formula(case):
    space = oblique(0.0 if case == "isometric" else 0.8)
    q, p = laws_on(space)
    basis = torch.nn.functional.one_hot(space.labels).double()
    gram = basis.T @ torch.linalg.solve(space.kernel(0.6), basis)
    gain = basis.T @ (q - p)
    expected = (gain @ torch.linalg.solve(gram, gain)).sqrt()
    torch.testing.assert_close(mmd_invariant(space, q, p, 0.6), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shear", [0.0, 0.8])
def test_invariant_functions_see_only_symmetrised_laws(family, shear):
    space = oblique(shear)
    q, p = laws_on(space)
    even = [space.symmetrise_law(law) for law in (q, p)]
    one, other = invariant_divergence(family, space, q, p), invariant_divergence(family, space, *even)
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
    assert float(divergence(family, space, q, p)) > float(one) + 0.01


@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(GROUPS)), family=st.sampled_from(FAMILIES))
@settings(max_examples=16, deadline=None)
def test_nothing_is_lost_on_invariant_laws(seed, name, family):
    space = space_of(GROUPS[name], 3, seed)
    q, p = (space.symmetrise_law(law) for law in laws_on(space, seed))
    torch.testing.assert_close(
        invariant_divergence(family, space, q, p, 0.5, 0.7),
        divergence(family, space, q, p, 0.5, 0.7),
        rtol=1e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_orbits_without_mass_and_fixed_points(family):
    starts = torch.tensor([[0, 0], [1, 0], [2, 1], [0.5, 1.2]], dtype=DOUBLE)
    space = orbit_closure(planar(Cyclic(4)), starts)
    q = torch.tensor([0.5, 0.25, 0, 0.25], dtype=DOUBLE)
    p = torch.tensor([0, 0.5, 0.5, 0], dtype=DOUBLE)
    sizes = torch.bincount(space.labels)
    q, p = (mass[space.labels] / sizes[space.labels] for mass in (q, p))
    value = divergence(family, space, q, p)
    torch.testing.assert_close(invariant_divergence(family, space, q, p), value, rtol=1e-6, atol=1e-9)
    assert float(value) > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_shear_costs_at_most_its_distortion(seed):
    space = oblique(seed=seed)
    q, p = (space.symmetrise_law(law) for law in laws_on(space, seed))
    most, least = (float(route(space, q, p)) for route in (wasserstein, wasserstein_invariant))
    assert most / space.distortion() <= least < 0.99 * most
    wide = regularised_invariant(space, q, p, "kl", 0.5 * space.distortion())
    narrow, full = (route(space, q, p, "kl", 0.5) for route in (regularised_invariant, regularised))
    assert float(narrow) < 0.999 * float(full) < float(wide)


@pytest.mark.parametrize("family", ["w1", *KINDS])
def test_an_invariant_metric_repairs_the_sheared_action(family):
    broken = oblique()
    every = broken.distances[broken.maps[:, :, None], broken.maps[:, None, :]]
    space = FiniteSpace(broken.points, broken.maps, every.amax(0))
    q, p = (space.symmetrise_law(law) for law in laws_on(space))
    values = [route(family, space, q, p, 0.5) for route in (divergence, invariant_divergence)]
    torch.testing.assert_close(*values, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_active_lipschitz_bound_no_action_breaks_the_equality(kind):
    space = oblique()
    q, p = (space.symmetrise_law(law) for law in laws_on(space, concentration=5))
    free, even = (route(space, q, p, kind, 50.0) for route in (regularised, regularised_invariant))
    torch.testing.assert_close(free, even, rtol=1e-6, atol=0)
    bound, less = (route(space, q, p, kind, 0.05) for route in (regularised, regularised_invariant))
    assert float(less) < 0.99 * float(bound)


# --- runs and bad input ---


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("route", [divergence, invariant_divergence])
def test_runs_are_independent(family, route):
    space = space_of(planar(Cyclic(4)), 3)
    q, p = laws_on(space, 5, 8).unflatten(0, (2, 2, 2))
    together = route(family, space, q, p)
    assert together.shape == (2, 2)
    torch.testing.assert_close(together[1, 0], route(family, space, q[1, 0], p[1, 0]), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(route(family, space, q, q), torch.zeros(2, 2, dtype=DOUBLE), rtol=0, atol=1e-8)


def test_vectors_that_are_no_laws_are_refused():
    space = space_of(planar(Cyclic(4)))
    q, p = laws_on(space)
    for bad in (q * 2, -q, q - 0.2):
        with pytest.raises(ValueError, match="q must hold nonnegative probabilities"):
            wasserstein(space, bad, p)
    with pytest.raises(ValueError, match="p must have shape"):
        mmd(space, q, p[:-1])


def test_a_kernel_that_is_none_is_refused():
    path = torch.tensor([0, 1, 2, 1], dtype=DOUBLE)  # distances of a cycle of four points embed into no Euclidean space
    distances = torch.stack([path.roll(k) for k in range(4)])
    space = FiniteSpace(torch.zeros(4, 1, dtype=DOUBLE), torch.arange(4)[None], distances)
    q, p = laws_on(space)
    with pytest.raises(ArithmeticError, match="not positive semidefinite"):
        mmd_invariant(space, q, p, 5.0)
