"""Chapter *Margins and augmentation*: its measurements, its theorems by other routes, controls that must fail."""

import math

import numpy as np
import pytest
import torch

from lib.experiments import margin_bounds as bounds
from lib.experiments import margin_caveats as caveats
from lib.experiments import margin_neurons as neurons
from lib.experiments import margins_and_augmentation as chapter
from lib.symmetry.actions import pixels, planar, trivial
from lib.symmetry.groups import Cyclic, Dihedral
from lib.symmetry.haar import projection
from lib.training.margins import NotSeparable, angle, max_margin, one_minus_cosine, separability
from lib.training.steerable import steerable_network

SMALL = chapter.Settings(pairs=((0, 8),), images=12, seeds=1)


CASES = [(Cyclic(4), 0), (Dihedral(4), 1)]


@pytest.fixture(scope="module", params=CASES, ids=["C4", "D4"])
def compared(request: pytest.FixtureRequest) -> chapter.Comparison:
    return chapter.compare(request.param[0], (0, 8), request.param[1], SMALL)


# --- B9 and B10 ---


def test_steerable_networks_find_the_invariant_margin(compared: chapter.Comparison) -> None:
    assert compared.disagreement < 1e-10
    assert compared.trained_error < 1e-6


def test_augmented_networks_find_it_too(compared: chapter.Comparison) -> None:
    assert compared.augmentation_error < 1e-6


@pytest.mark.parametrize(("group", "seed"), CASES, ids=["C4", "D4"])
def test_the_broken_comparison_fails(group: Cyclic | Dihedral, seed: int) -> None:
    wrong = chapter.compare(group, (0, 8), seed, SMALL, broken=True)
    assert wrong.disagreement > 0.05
    assert wrong.trained_error > 1e-3
    assert float(one_minus_cosine(wrong.augmented.direction, wrong.constrained.direction)) > 1e-3


def test_neither_flow_alone_is_there(compared: chapter.Comparison) -> None:
    """At the handover the two flows are as far from each other as from the limit; the continuation does the rest."""
    ends = [end.path[end.handover] for end in (compared.steerable, compared.augmented)]
    assert 1e-7 < float(one_minus_cosine(*ends)) < 1e-2
    assert compared.augmentation_error < compared.trained_error


def test_convergence_is_slower_in_deeper_networks() -> None:
    """1 − cos falls like T^{−2/L}, and the continuation takes it down to the smoothing 1/T."""
    for depth in (2, 3):
        scale, error, _, rest = chapter.convergence(depth, Cyclic(4), (0, 8), 0, images=12)
        late = scale > 1e4
        slope = np.polyfit(scale[late].log(), error[late].log(), 1)[0]
        assert slope == pytest.approx(-2 / depth, abs=0.05)
        assert float(rest[-1]) < 1e-10


def test_the_integrator_gets_over_a_bad_first_step() -> None:
    """From this start it fails before its first step of the continuation, a hundred times over."""
    assert float(chapter.convergence(2, Cyclic(4), (0, 8), 6, images=12)[-1][-1]) < 1e-10


def test_margins_of_the_trained_networks(compared: chapter.Comparison) -> None:
    """Both attain the margin of the orbit averages."""
    assert float(compared.steerable.margins.min()) == pytest.approx(compared.averaged.margin, rel=1e-4)
    assert float(compared.augmented.margins.min()) == pytest.approx(compared.averaged.margin, rel=1e-4)


def test_how_many_pairs_have_an_invariant_classifier() -> None:
    quarter = chapter.invariant_separability(Cyclic(4))
    square = chapter.invariant_separability(Dihedral(4))
    assert sum(s.separable for s in quarter.values()) == 28
    assert sum(s.separable for s in square.values()) == 15
    assert all(quarter[pair].separable for pair, s in square.items() if s.separable)  # D4 asks for more than C4
    assert not quarter[6, 9].separable
    assert all(torch.any(s.multipliers > 0) for s in quarter.values() if not s.separable)


def test_a_pair_without_invariant_classifier_is_refused() -> None:
    x, y = chapter.digit_pair(6, 9)
    with pytest.raises(NotSeparable) as caught:
        chapter.averaged_max_margin(x, y, pixels(Cyclic(4), 8))
    alpha = caught.value.certificate.multipliers
    mean = torch.stack([torch.rot90(x.unflatten(1, (8, 8)), k, (1, 2)) for k in range(4)]).mean(0).flatten(1)
    assert float(((alpha * y) @ mean).norm()) < 1e-10
    assert float(alpha.sum()) == pytest.approx(1)
    averages = torch.cat([mean, mean.new_ones(len(mean), 1)], 1)
    assert not separability(averages, y).separable  # a bias would not help
    plain = max_margin(x, y)  # without symmetry the two are separable
    assert plain.margin > 0.05


def test_orbit_averages_are_refused_without_unitarity() -> None:
    x, y = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match=r"must be unitary here, shear 2 has max .* = 4.0e\+00"):
        chapter.averaged_max_margin(x, y, caveats.shear(2.0))


def test_augmentation_lists_every_image() -> None:
    x, y = chapter.digit_pair(0, 1)
    moved, labels = chapter.augment(x[:3], y[:3], pixels(Dihedral(4), 8), Dihedral(4).elements())
    assert moved.shape == (24, 64)
    images = {tuple(image.tolist()) for image in moved}
    for k in range(4):
        turned = torch.rot90(x[0].reshape(8, 8), k)
        assert tuple(turned.flatten().tolist()) in images
        assert tuple(turned.flip(1).flatten().tolist()) in images
    assert torch.equal(labels, y[:3].repeat(8))


def test_refused_settings() -> None:
    with pytest.raises(ValueError, match="pairs"):
        chapter.Settings(pairs=((3, 3),))
    with pytest.raises(ValueError, match="at least one pair"):
        chapter.Settings(pairs=())
    with pytest.raises(ValueError, match="images"):
        chapter.Settings(images=1)
    with pytest.raises(ValueError, match="group"):
        chapter.compare(Cyclic(3), (0, 8), 0, SMALL)
    with pytest.raises(ValueError, match="count"):
        chapter.draw(torch.zeros(3, 2), torch.ones(3), 4, torch.Generator())


# --- B11 ---


@pytest.fixture(scope="module")
def squares() -> neurons.NeuronPair:
    return neurons.train_neurons("square", 4)


@pytest.mark.parametrize("shifts", [[0], [0, 1], [0, 2], [0, 1, 3], [3, 2, 0]])
def test_partial_augmentation(shifts: list[int]) -> None:
    gap = caveats.partial_augmentation(shifts)
    assert gap.predicted == pytest.approx(math.acos(math.sqrt(len(shifts) / 4)))
    assert gap.error < 1e-6


def test_angles_have_their_closed_forms(squares: neurons.NeuronPair) -> None:
    gaps = [
        caveats.partial_augmentation([0, 2]),
        *[caveats.not_unitary(a) for a in (0.5, 2.0)],
        caveats.weight_sharing(),
        squares.gap,
    ]
    expected = [math.pi / 4, math.atan(0.25), math.atan(1), 0.2517, math.acos(math.sqrt(2 / 3))]
    assert np.allclose([gap.predicted for gap in gaps], expected, atol=1e-4)
    assert max(gap.error for gap in gaps) < 1e-3
    assert min(gap.measured for gap in gaps) > 0.1


def test_angles_vanish_when_the_condition_holds() -> None:
    assert caveats.partial_augmentation([0, 1, 2, 3]).measured < 1e-3
    assert caveats.not_unitary(0.0).measured < 1e-3
    assert caveats.weight_sharing_on_digits(Cyclic(4)).measured < 1e-3


@pytest.mark.parametrize("hidden", [0, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_without_unitarity_training_finds_the_invariant_margin(hidden: int, seed: int) -> None:
    """Not that of the averages; the hidden spaces are unitary."""
    found = caveats.oblique(hidden, seed)
    assert float(one_minus_cosine(found.trained, found.invariant)) < 1e-8
    assert float(angle(found.trained, found.averaged)) > 0.1


def test_closed_forms_fail_for_other_data() -> None:
    assert caveats.partial_augmentation([0, 2], tilt=0.5).error > 0.05
    assert caveats.not_unitary(1.0, tilt=0.5).error > 0.05
    assert caveats.weight_sharing(tilt=1.0).error > 0.05
    assert neurons.train_neurons("square", 2, turns=2).gap.error > 0.05


@pytest.mark.parametrize("seed", [0, 1])
def test_angles_on_digits_are_those_of_two_margins(seed: int) -> None:
    for gap in (
        caveats.partial_augmentation_of_digits(Cyclic(4), torch.tensor([[0], [2]]), seed),
        caveats.weight_sharing_on_digits(Dihedral(4), seed),
    ):
        assert gap.predicted > 0.1
        assert gap.error < 0.01


def test_relu_loses_nothing_to_symmetry() -> None:
    pair = neurons.train_neurons("relu", 6)
    assert np.allclose(pair.margins, pair.best, rtol=1e-4)
    assert pair.best[0] == pair.best[1] == pytest.approx(1 / (4 * math.sqrt(2)))


@pytest.mark.parametrize("count", [2, 8])
def test_squares_find_the_best_margin_with_fewer_and_with_more_neurons(count: int) -> None:
    pair = neurons.train_neurons("square", count, seed=1)
    assert np.allclose(pair.margins, pair.best, rtol=1e-4)
    assert pair.gap.error < 1e-3


def test_squares_lose_half_the_margin_to_symmetry(squares: neurons.NeuronPair) -> None:
    assert np.allclose(squares.margins, squares.best, rtol=1e-4)
    assert squares.margins[0] == pytest.approx(2 * squares.margins[1], rel=1e-4)


def test_best_margins_by_linear_programming() -> None:
    """Over a fine grid of unit vectors the largest margin of convex combinations of neurons is a linear program."""
    from scipy.optimize import linprog

    turn = np.arange(400) * 2 * np.pi / 400
    orbit = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    values = np.maximum(orbit @ np.array([np.cos(turn), np.sin(turn)]), 0)  # (4, 400)
    cost = linprog(np.ones(400), A_ub=-values, b_ub=-np.ones(4)).fun  # Σ |a_j|‖v_j‖ = ‖w‖²/2 when balanced
    assert 1 / (2 * cost) == pytest.approx(1 / (4 * math.sqrt(2)), rel=1e-6)
    mean = values.mean(0)[None]  # the invariant network: one constraint
    assert linprog(np.ones(400), A_ub=-mean, b_ub=-np.ones(1)).fun == pytest.approx(cost, rel=1e-6)


def test_neurons_are_invariant_and_homogeneous() -> None:
    V = planar(Cyclic(4))
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for activation, degree in (("square", 3), ("relu", 2)):
        net = neurons.Neurons(activation, x, 3, V)
        w = net.start(2, torch.Generator().manual_seed(1))
        turned = V.apply(torch.tensor([1]), x)
        assert torch.allclose(net.values(w, turned), net.values(w, x))
        assert torch.allclose(net.predictor(2 * w), 2**degree * net.predictor(w))
        plain = neurons.Neurons(activation, x, 3, trivial(Cyclic(1), 2))
        v, a = plain.split(w[0])
        assert torch.allclose(plain.predictor(w[0]), plain.activation(x @ v.T) @ a)
    with pytest.raises(ValueError, match="activation"):
        neurons.Neurons("tanh", x, 3, V)


def test_refused_caveats() -> None:
    for shifts in ([1], [0, 0], [0, 4]):
        with pytest.raises(ValueError, match="shifts"):
            caveats.partial_augmentation(shifts)
    with pytest.raises(ValueError, match="a must be"):
        caveats.not_unitary(float("nan"))
    with pytest.raises(ValueError, match="unitary"):
        steerable_network([caveats.shear(1.0)])
    with pytest.raises(ValueError, match="hidden must be at least 0"):
        caveats.oblique(-1)


# --- B12 ---


def test_bounds_are_never_violated() -> None:
    for law in (
        bounds.shifted_signals(test_points=500),
        bounds.shifted_signals(nuisance=8.0, test_points=500),
        bounds.turned_digits(Cyclic(4)),
    ):
        errors = bounds.measure_errors(law, [8, 32, 128], 3)
        assert errors.violations(law) == (0, 0)
        assert float((law.bound(errors.sizes, True) - law.bound(errors.sizes, False)).max()) < 0
        assert float((errors.invariant - errors.plain).mean()) < 0


def test_runs_with_a_bound_above_one_do_not_count() -> None:
    """The plain bound of the hard law says nothing at 512 points, that of the milder one does from 315 on."""
    counts = []
    for nuisance in (60.0, 8.0):
        law = bounds.shifted_signals(nuisance=nuisance, test_points=500)
        errors = bounds.measure_errors(law, [64, 128, 512], 2)
        counts.append(errors.informative(law))
        for n, told in zip(errors.sizes, law.bound(errors.sizes, False) < 1, strict=True):
            ratio = 2 * law.radius + math.sqrt(math.log(20) / 2)  # ‖β_0‖ = 1
            assert bool(told) == (int(n) > ratio**2)
    assert counts == [(6, 0), (6, 2)]


def test_the_small_bound_is_none_for_the_plain_classifier() -> None:
    law = bounds.shifted_signals(test_points=500)
    errors = bounds.measure_errors(law, [256], 2)
    assert bool((errors.plain > law.bound(errors.sizes, True)[:, None]).all())


def test_bounds_need_the_law_of_the_training_points() -> None:
    law = bounds.shifted_signals(nuisance=0.0, clue=2.0, test_points=500)
    errors = bounds.measure_errors(law, [400], 3)
    assert errors.violations(law) == (0, 3)


@pytest.mark.parametrize("name", ["signals", "C4", "D4"])
def test_laws_are_what_they_say(name: str) -> None:
    law = (
        bounds.shifted_signals(test_points=300)
        if name == "signals"
        else bounds.turned_digits(Cyclic(4) if name == "C4" else Dihedral(4))
    )
    project = projection(law.representation)
    x, y = law.sample(200, torch.Generator().manual_seed(0))
    for points, labels in ((x, y), (law.test_x, law.test_y)):
        assert float((labels * (points @ law.reference)).min()) > 1 - 1e-9
        assert float(points.norm(dim=-1).max()) <= law.radius + 1e-9
        assert float(project(points).norm(dim=-1).max()) <= law.mean_radius + 1e-9
    assert torch.allclose(project(law.reference), law.reference)
    assert law.mean_radius < law.radius
    radius, mean_radius = bounds.measured_radii(law, 500, torch.Generator().manual_seed(1))
    assert 0.5 * law.radius < radius <= law.radius + 1e-9
    assert 0.5 * law.mean_radius < mean_radius <= law.mean_radius + 1e-9


def test_oblique_averages_can_be_longer() -> None:
    V = caveats.shear(2.0)
    x = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
    mean = torch.stack([V.apply(g, x) for g in V.group.elements()]).mean(0)
    assert float(mean.norm()) > float(x.norm())
    for group in (Cyclic(4), Dihedral(4)):
        images, _ = chapter.digit_pair(0, 8)
        assert bool((projection(pixels(group, 8))(images).norm(dim=1) <= images.norm(dim=1)).all())


def test_where_a_bound_begins() -> None:
    n = bounds.first_useful(2.0, 0.05)
    at, before = bounds.error_bound(2.0, torch.tensor([n, n - 1]))
    assert float(at) < 0.5 <= float(before)
    assert float(bounds.error_bound(1.0, torch.tensor([4]), 0.5)) == pytest.approx(1 + math.sqrt(math.log(2) / 8))
    for delta in (0.0, 1.0):
        with pytest.raises(ValueError, match="delta"):
            bounds.error_bound(1.0, torch.tensor([4]), delta)
    with pytest.raises(ValueError, match="replicates"):
        bounds.measure_errors(bounds.turned_digits(Cyclic(4)), [8], 0)


def test_classifiers_do_not_depend_on_their_scale() -> None:
    x, y = chapter.draw(*chapter.digit_pair(0, 8), 20, torch.Generator().manual_seed(0))
    assert float(angle(max_margin(x, y).vector, max_margin(7 * x, y).vector)) < 1e-10
