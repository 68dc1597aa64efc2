"""Chapter *Stability of augmentation*: its measurements, its theorems by other routes, controls that must fail."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from lib.experiments import finite_augmentation as finite
from lib.experiments import growth_near_symmetry as growth
from lib.experiments import stability_of_augmentation as chapter
from lib.symmetry.actions import natural, planar, trivial, vectors
from lib.symmetry.groups import Cyclic, Symmetric
from lib.symmetry.lie import SpecialOrthogonal
from lib.training.forms import Form, classify, exact_derivatives, violated_implications
from lib.training.risks import Risks, SmallNetwork, descend, gradient, hessian, hessian_product

CASES = chapter.hessian_cases()


@pytest.fixture(scope="module")
def minima() -> growth.Minima:
    return growth.find_minima(8, 40)


@pytest.fixture(scope="module")
def unstable(minima: growth.Minima) -> growth.Minima:
    return minima.unstable


def not_haar(network: SmallNetwork) -> Tensor:
    weights = torch.ones(network.layers.group.order, dtype=torch.float64)
    weights[0] = 2
    return weights / weights.sum()


# --- risks ---


def small_problem() -> tuple[Risks, Tensor]:
    seed, runs = 0, (2, 3)
    generator = torch.Generator().manual_seed(seed)
    network = CASES["S3 on nodes"]
    x, y = torch.randn(2, *runs, 5, 3, generator=generator, dtype=torch.float64)
    a = torch.randn(*runs, network.layers.dim, generator=generator, dtype=torch.float64)
    return Risks(network, x, y), a


def test_risks_agree_with_a_loop() -> None:
    risks, a = small_problem()
    V, group = risks.network.spaces[0], risks.group
    for i, j in itertools.product(range(2), range(3)):
        w1, w2 = a[i, j, :18].reshape(6, 3), a[i, j, 18:].reshape(3, 6)

        def loss(x: Tensor, y: Tensor, w1: Tensor = w1, w2: Tensor = w2) -> Tensor:
            return 0.5 * (w2 @ torch.tanh(w1 @ x) - y).square().sum()

        pairs = list(zip(risks.x[i, j], risks.y[i, j], strict=True))
        nominal = torch.stack([loss(x, y) for x, y in pairs]).mean()
        moved = [loss(V.apply(g, x), V.apply(g, y)) for g in group.elements() for x, y in pairs]
        assert torch.allclose(risks.nominal(a)[i, j], nominal)
        assert torch.allclose(risks.augmented(a)[i, j], torch.stack(moved).mean())
    assert torch.allclose(risks.augmented(a, torch.full((6,), 1 / 6, dtype=torch.float64)), risks.augmented(a))
    identity = torch.eye(6).double()[risks.group.index(risks.group.identity())]
    assert torch.allclose(risks.augmented(a, identity), risks.nominal(a))


def test_augmented_risk_is_the_mean_over_moved_layers() -> None:
    risks, a = small_problem()
    moved = risks.network.layers.apply(risks.group.unsqueeze(risks.group.elements(), 2), a)
    assert torch.allclose(risks.nominal(moved).mean(0), risks.augmented(a), rtol=1e-12)


def test_derivatives_treat_runs_apart() -> None:
    risks, a = small_problem()
    slope, curvature = gradient(risks.augmented, a), hessian(risks.augmented, a)
    one = Risks(risks.network, risks.x[1, 2], risks.y[1, 2])
    assert torch.allclose(slope[1, 2], torch.func.grad(one.augmented)(a[1, 2]))
    assert torch.allclose(curvature[1, 2], torch.func.hessian(one.augmented)(a[1, 2]))
    v = torch.randn_like(a)
    assert torch.allclose(hessian_product(risks.augmented, a, v), (curvature @ v[..., None])[..., 0])


def test_descent_is_gradient_descent() -> None:
    risks, a = small_problem()
    end, seen = descend(risks.nominal, a, 0.1, 3, risks.nominal)
    by_hand = a
    for _ in range(3):
        by_hand = by_hand - 0.1 * gradient(risks.nominal, by_hand)
    assert torch.equal(end, by_hand)
    assert seen.shape == (4, 2, 3)
    assert bool((seen.diff(dim=0) < 0).all())


def test_risks_refuse_what_does_not_fit() -> None:
    network = CASES["S3 on nodes"]
    x = torch.zeros(5, 3).double()
    with pytest.raises(ValueError, match="shape"):
        Risks(network, x, torch.zeros(4, 3).double())
    with pytest.raises(ValueError, match="at least input and output"):
        SmallNetwork((natural(Symmetric(3)),))
    space = vectors(SpecialOrthogonal(3))
    with pytest.raises(TypeError, match="finite group"):
        Risks(SmallNetwork((space, space)), x, x)
    with pytest.raises(ValueError, match="rate"):
        descend(lambda a: a.sum(-1), x, float("nan"), 3, lambda a: a)
    risks = Risks(network, x, torch.zeros(5, network.spaces[-1].dim).double())
    w = torch.zeros(network.layers.dim).double()
    for call, error, message in (
        (lambda: Risks("network", x, x), TypeError, "network must be a SmallNetwork"),
        (lambda: Risks(network, x.long(), x), TypeError, "x must be of a floating-point"),
        (lambda: risks.nominal(w[1:]), ValueError, "parameters must have shape"),
        (lambda: risks.project(w.float()), TypeError, "parameters must be of the data's dtype"),
        (lambda: network(w, x.float()), TypeError, "x must be of the parameters' dtype"),
        (lambda: hessian_product(risks.nominal, w, w[None]), ValueError, "direction must have the shape"),
        (lambda: gradient("risk", w), TypeError, "risk must be a function"),
    ):
        with pytest.raises(error, match=message):
            call()


# --- A3 ---


@pytest.mark.parametrize("name", CASES)
def test_hessians_are_projections(name: str) -> None:
    check = chapter.check_hessians(CASES[name], seeds=2, points=6)
    assert max(check.augmented + check.equivariant + check.coupling) < 1e-12
    assert 0 < check.equivariant_dimension < check.dimension


@pytest.mark.parametrize("name", CASES)
def test_hessians_need_every_assumption(name: str) -> None:
    network = CASES[name]
    off = chapter.check_hessians(network, seeds=2, points=6, off=0.1)
    assert min(off.augmented + off.equivariant) > 1e-5
    weighted = chapter.check_hessians(network, seeds=2, points=6, weights=not_haar(network))
    assert min(weighted.augmented) > 1e-3
    assert max(weighted.equivariant) < 1e-12  # this half is the chain rule and needs no group
    uneven = chapter.check_hessians(SmallNetwork(network.spaces, chapter.uneven_tanh), seeds=2, points=6)
    assert min(uneven.augmented) > 1e-3


def test_odd_nonlinearities_commute_with_signed_permutations_and_others_do_not() -> None:
    plane = planar(Cyclic(4))
    good = chapter.check_hessians(SmallNetwork((plane, plane, plane)), seeds=2, points=6)
    bad = chapter.check_hessians(SmallNetwork((plane, plane, plane), torch.nn.functional.softplus), seeds=2, points=6)
    assert max(good.augmented) < 1e-12 < 1e-3 < min(bad.augmented)


# --- A4 ---


def test_definiteness_of_forms() -> None:
    assert Form(2, 1, 1).is_positive
    assert not Form(1, 1, 1).is_positive
    assert not Form(-2, 0, -1).is_positive
    form = Form(Fraction(3), Fraction(1, 2), Fraction(-1))
    assert form.averaged() == Form(Fraction(1), Fraction(1, 2), Fraction(1))
    assert (form.on_equivariant, form.on_complement) == (Fraction(3, 2), Fraction(1, 2))
    assert form.averaged().on_complement == form.on_complement
    with pytest.raises(TypeError, match="Fraction"):
        Form(0.5, 0, 1)


def test_implications_hold_for_all_small_matrices() -> None:
    assert violated_implications(5) == 0
    entries = range(-3, 4)
    kinds = {classify(Form(p, q, r)) for p, q, r in itertools.product(entries, repeat=3)}
    triples = {(k.nominal, k.augmented, k.equivariant) for k in kinds}
    assert triples == {(True,) * 3, (False, True, True), (False, False, True), (False,) * 3}


def test_exact_derivatives_of_a_quartic() -> None:
    def quartic(a: tuple[Fraction, Fraction]) -> Fraction:
        x, y = a
        return x**4 - 2 * x**3 * y + 5 * x * y**2 + y**4 / 3 - x + 7

    x, y = at = (Fraction(2, 3), Fraction(-1, 5))
    slope, form = exact_derivatives(quartic, at)
    assert slope == [4 * x**3 - 6 * x**2 * y + 5 * y**2 - 1, -2 * x**3 + 10 * x * y + Fraction(4, 3) * y**3]
    assert form == Form(12 * x**2 - 12 * x * y, -6 * x**2 + 10 * y, 10 * x + 4 * y**2)


def test_dial_turns_one_minimum_off_at_a_time() -> None:
    """Strict minimum of R below label 1, of R^aug below 2, of R^eqv always; degenerate at the two thresholds."""
    for label in [Fraction(k, 7) for k in range(1, 40)]:
        point = chapter.plane_point(label)
        assert point.stationary
        assert point.augmented == point.nominal.averaged()
        assert point.minimum == chapter.StrictMinimum(label < 1, label < 2, True)
        assert point.augmented.on_complement == (8 - 4 * label) / 3
    assert chapter.wrong_signs(size=3) == 0
    assert chapter.wrong_signs(Fraction(1, 4), size=3) > 0


def test_plane_hessian_agrees_with_automatic_differentiation() -> None:
    at = torch.tensor([0.5, 0.5], dtype=torch.float64)
    for swapped in (0.0, 0.5):
        h = torch.func.hessian(lambda a, s=swapped: chapter.plane_risk((a[0], a[1]), 1.5, s))(at)
        point = chapter.plane_point(Fraction(3, 2))
        form = point.augmented if swapped else point.nominal
        exact = torch.tensor([[form.p, form.q], [form.q, form.r]], dtype=torch.float64)
        assert torch.allclose(h, exact, atol=1e-14)


@pytest.mark.parametrize(
    ("label", "swapped", "outcome"),
    [
        (0.5, 0.0, "returned"),
        (0.5, 0.5, "returned"),
        (1.5, 0.0, "escaped"),
        (1.5, 0.5, "returned"),
        (3.0, 0.5, "escaped"),
    ],
)
def test_descents_do_as_the_signs_say(label: float, swapped: float, outcome: str) -> None:
    assert set(chapter.plane_outcomes(chapter.plane_descents(label, 30, swapped))) == {outcome}


def test_escaped_plane_network_is_equivariant_for_another_hidden_action() -> None:
    end = chapter.plane_descents(3.0, 10)[-1]
    assert torch.allclose(end[:, 0], -end[:, 1], atol=1e-8)


# --- A5 ---


def test_minima_are_what_they_say(minima: growth.Minima) -> None:
    assert len(minima) >= 3
    risks, a = minima.risks, minima.parameters
    assert float(risks.outside(a).norm(dim=-1).max()) < 1e-14
    assert float(gradient(risks.augmented, a).norm(dim=-1).max()) < 1e-12
    assert float(minima.inside.min()) > 2e-3
    h = hessian(risks.augmented, a)[:, 0]
    action = torch.einsum("kij,kaj->kai", h, minima.directions)
    assert torch.allclose(action, minima.outside[..., None] * minima.directions, atol=1e-12)


def test_spectrum_shows_the_irreducible_representations(minima: growth.Minima) -> None:
    """E^⊥ is the sign once and the two-dimensional representation four times: one single eigenvalue and four pairs."""
    for values in minima.outside:
        gaps = values.sort().values.diff()
        assert int((gaps < 1e-9).sum()) == 4


def test_growth_follows_the_spectrum(minima: growth.Minima) -> None:
    result = growth.measure_growth(minima, 0.5)
    assert max(result.slope_errors) < 1e-4
    assert max(result.curve_errors) < 1e-5
    slow = growth.measure_growth(minima, 0.1)
    assert max(slow.slope_errors) < 5e-3


def test_growth_forecasts_can_fail(unstable: growth.Minima) -> None:
    nominal = growth.measure_growth(unstable, 0.5, nominal=True)
    assert min(nominal.slope_errors) > 0.1
    assert min(nominal.curve_errors) > 1
    exact = growth.measure_growth(unstable, 0.5)
    continuous = -unstable.outside[:, 0]
    assert bool(((exact.measured[:, 0] / continuous - 1).abs() > 5e-3).all())  # time steps are finite


def test_large_amplitudes_leave_the_linear_regime(unstable: growth.Minima) -> None:
    assert max(growth.measure_growth(unstable, 0.5, amplitude=1e-2).curve_errors) > 1e-3


def test_seeds_reach_every_draw(minima: growth.Minima) -> None:
    other = growth.find_minima(8, 40, seed=1000)
    assert not torch.equal(other.risks.x[0], minima.risks.x[0])
    runs = [growth.follow_training(2, 20, 0.1, steps=3, seed=seed).distances for seed in (0, 1000)]
    runs += [growth.measure_growth(minima, 0.5, seed=seed).distances for seed in (0, 1)]
    runs += [growth.rounding_escape(minima, 0.5, 5, seed=seed) for seed in (0, 1)]
    runs += [growth.escape(minima, 0.5, 3, seed=seed).parameters for seed in (0, 1)]
    runs += [finite.measure_drift(finite.Regime(problems=1, seed=seed), [2], 3).distances for seed in (0, 1)]
    runs += [chapter.plane_descents(1.5, 3, steps=2, seed=seed) for seed in (0, 1)]
    runs += [chapter.check_hessians(CASES["S3 on nodes"], seed=seed).nominal for seed in (0, 1)]
    assert not any(torch.equal(a, b) for a, b in zip(runs[::2], runs[1::2], strict=True))


def test_parts_decouple_along_training() -> None:
    result = growth.follow_training(6, 40, 0.5, steps=40)
    assert max(result.curve_errors) < 1e-5
    ratio = result.shifts[2] / result.shifts[0]  # amplitudes ten times apart
    assert float(ratio.median()) == pytest.approx(100, rel=0.1)


def test_rounding_alone_drives_training_out_of_the_symmetric_layers(unstable: growth.Minima) -> None:
    worst = unstable.select(unstable.outside[:, 0] == unstable.outside[:, 0].min())
    rate = float(-worst.outside[0, 0])
    steps = int(2 * 37 / (0.5 * rate)) + 200
    seen = growth.rounding_escape(worst, 0.5, steps)[:, 0]
    assert float(seen[0]) < 1e-15
    assert float(seen[-1]) > 0.1


def test_escape_lowers_the_risk(unstable: growth.Minima) -> None:
    end = growth.escape(unstable, 0.5, steps=1500)
    assert bool((end.risk_after < end.risk_before).all())
    assert bool((end.outside > 0.1).all())


# --- A8 ---


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.6])
def test_penalty_threshold_is_half_the_lowest_eigenvalue(unstable: growth.Minima, rate: float) -> None:
    for seed in range(10 if rate == 0.1 else 1):  # starts: one run alone misses at seven seeds of ten
        found = torch.tensor(growth.critical_penalty(unstable, rate, seed=seed), dtype=torch.float64)
        assert float((found / (-unstable.outside[:, 0] / 2) - 1).abs().max()) < 3e-4


def test_penalty_threshold_where_the_largest_penalty_tried_overshoots() -> None:
    """At some minima the curvature is so large that a penalty of ½ makes training jump across E, farther each time."""
    minima = growth.find_minima(12, 60, seed=3000).unstable
    assert float(minima.outside.max()) > 2.5
    found = torch.tensor(growth.critical_penalty(minima, 0.6, halvings=16), dtype=torch.float64)
    assert float((found / (-minima.outside[:, 0] / 2) - 1).abs().max()) < 1e-3


def test_penalty_search_refuses_what_could_hide_a_direction(unstable: growth.Minima) -> None:
    with pytest.raises(ValueError, match="starts must be"):
        growth.critical_penalty(unstable, 0.5, starts=8)
    with pytest.raises(ValueError, match="steps must be odd, got 20"):
        growth.critical_penalty(unstable, 0.5, steps=20)


def test_penalty_on_the_wrong_subspace_does_not_help(unstable: growth.Minima) -> None:
    onto = growth.subgroup_projection(unstable.risks)
    sign_first = unstable.outside[:, 1] - unstable.outside[:, 0] > 1e-9
    found = growth.critical_penalty(unstable.select(sign_first), 0.5, onto=onto, halvings=1)
    assert set(found) == {math.inf}


def test_penalty_changes_nothing_on_the_symmetric_layers(unstable: growth.Minima) -> None:
    risk = growth.penalised(unstable.risks, 0.7)
    a = unstable.parameters
    assert torch.allclose(risk(a), unstable.risks.augmented(a))
    assert float(gradient(risk, a).norm(dim=-1).max()) < 1e-12
    off = torch.eye(12) - unstable.risks.project_matrix
    assert torch.allclose(hessian(risk, a), hessian(unstable.risks.augmented, a) + 1.4 * off, atol=1e-12)


# --- A9 ---


def all_weightings(order: int, m: int, replacement: bool) -> Tensor:
    draws = itertools.product(range(order), repeat=m) if replacement else itertools.combinations(range(order), m)
    return torch.stack([torch.eye(order).double()[list(draw)].mean(0) for draw in draws])


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_one_step_law_exactly_with_replacement(m: int) -> None:
    share = finite.one_step_share(finite.Regime(problems=2, nodes=3), all_weightings(6, m, True))
    assert torch.allclose(share, torch.full_like(share, 1 / m), rtol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6])
def test_one_step_law_exactly_without_replacement(m: int) -> None:
    share = finite.one_step_share(finite.Regime(problems=2, nodes=3), all_weightings(6, m, False))
    assert torch.allclose(share, torch.full_like(share, finite.finite_population_factor(6, m) ** 2), atol=1e-13)


def test_drift_falls_like_sampling_noise() -> None:
    regime = finite.Regime(problems=3)
    drift = finite.measure_drift(regime, [1, 2, 4, 8, 16], runs=60)
    assert finite.interval_miss(drift.slope_interval()) == 0
    assert drift.slope_interval()[0] < drift.slope() < drift.slope_interval()[1]
    predicted = finite.predicted_drift(regime)[:, None] / torch.tensor(drift.sizes).sqrt()
    assert float((drift.typical / predicted - 1).abs().max()) < 0.25
    assert float((drift.typical / predicted).mean()) == pytest.approx(1, abs=0.04)


def test_whole_group_without_replacement_does_not_drift() -> None:
    regime = finite.Regime(problems=2)
    drift = finite.measure_drift(regime, [12, 24], runs=10, replacement=False)
    assert float(drift.distances[:, 1].max()) < 1e-12
    ratio = drift.typical[:, 0] / finite.predicted_drift(regime)
    assert torch.allclose(ratio, torch.full_like(ratio, finite.finite_population_factor(24, 12)), rtol=0.5)
    assert float(finite.measure_drift(regime, [24], runs=10).distances.min()) > 1e-5


@pytest.mark.parametrize("runs", [20, 120])
def test_slope_interval_covers_as_often_as_it_says(runs: int) -> None:
    """Squares of Gaussian vectors of ten dimensions over m, for which the slope is −1/2: 400 experiments, at 90 %."""
    generator, sizes = torch.Generator().manual_seed(0), [1, 2, 4, 8, 16, 32]
    shrink = torch.tensor(sizes, dtype=torch.float64).rsqrt()[:, None]
    missed = 0
    for _ in range(400):
        draws = torch.randn(4, len(sizes), runs, 10, generator=generator, dtype=torch.float64)
        interval = finite.Drift(sizes, draws.norm(dim=-1) * shrink).slope_interval(0.9)
        missed += finite.interval_miss(interval) > 0
    assert 20 <= missed <= 60  # 40 ± 3.3 deviations


def test_unfair_sampler_breaks_the_law() -> None:
    drift = finite.measure_drift(finite.Regime(problems=3), [1, 2, 4, 8, 16], runs=60, identity=3.0)
    assert finite.interval_miss(drift.slope_interval()) > 0.05


def test_nominal_drift_is_the_square_root_of_draws_larger() -> None:
    regime = finite.Regime(problems=3)
    ratio = finite.predicted_drift(regime) / finite.nominal_drift(regime)
    assert torch.allclose(ratio * math.sqrt(regime.steps), torch.ones(3).double(), rtol=0.2)


# --- settings ---


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="problems"):
        chapter.Settings(problems=1)
    with pytest.raises(ValueError, match="rate"):
        chapter.Settings(rate=0.9)
    with pytest.raises(TypeError, match="runs"):
        chapter.Settings(runs=2.5)
    with pytest.raises(ValueError, match="without replacement"):
        finite.measure_drift(finite.Regime(nodes=3), [7], runs=2, replacement=False)
    with pytest.raises(ValueError, match="nodes"):
        finite.Regime(nodes=9)
    with pytest.raises(ValueError, match="m must be"):
        finite.finite_population_factor(6, 7)


def test_a_search_without_result_says_so(minima: growth.Minima) -> None:
    with pytest.raises(ValueError, match="none of the"):
        minima.select(torch.zeros(len(minima), dtype=torch.bool))
    assert trivial(Symmetric(3)).dim == minima.risks.network.spaces[-1].dim
