"""What the page *Mean-field dynamics* defines: steps, exact symmetry, slopes, floors."""

from __future__ import annotations

from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lib.mean_field.particles import intrinsic_derivative, project, symmetrise
from lib.page.notebooks import BOOK
from lib.page.results import decode, read_results, stored
from lib.transport.particle_distances import projection_rmd2, rmd2, squared_w2
from tests.chapters import load

GROUPS = ("C2", "C3", "C2xC2", "S3")
PLAN = {n: range(6 * k, 6 * k + 6) for k, n in enumerate((10, 20, 40))}
SCHEMES = {"vanilla": "free", "DA": "augmented", "FA": "averaged", "EA": "tied"}


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("mean_field_dynamics", seed=7)


@pytest.fixture(scope="module")
def live(page: SimpleNamespace) -> pd.DataFrame:
    swap = page.unit_of("C2")
    found = {n: page.measure(swap, page.grid(swap, n, of, "cpu")) for n, of in PLAN.items()}
    return pd.concat(found, names=["particles"]).reorder_levels(["distance", "particles", "run"]).sort_index()


@pytest.fixture(scope="module")
def every(page: SimpleNamespace, live: pd.DataFrame) -> pd.DataFrame:
    large = stored("mean_field_dynamics/trained_clouds", "distances")
    large["run"] += large["seeds"] * large["seed"]
    large = large.set_index(["distance", "particles", "run"])
    return pd.concat([live, large[page.TEACHERS]]).sort_index()


# --- steps, teachers, distances ---


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_noisy_step_is_force_decay_and_noise(page: SimpleNamespace, scheme: str, group: str) -> None:
    unit = page.unit_of(group)
    d = unit.inputs.dim
    z, kick, x, y = randn(1, 7, d * d), randn(2, 7, d * d), randn(3, 9, d), randn(4, 9, d)
    risk = getattr(page, SCHEMES[scheme])
    moved = page.noisy_step(risk, unit, z, x, y, kick, rate=2.0, decay=0.3, heat=0.1)
    force = intrinsic_derivative(unit, scheme, z, x, y) + 0.3 * z
    torch.testing.assert_close(moved, z - 2 / 7 * force + (2 * 2 / 7 * 0.1) ** 0.5 * kick)


@pytest.mark.parametrize("group", GROUPS)
def test_teachers_have_their_symmetry(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    x, defect = randn(0, 50, unit.inputs.dim), []
    for particles in page.three_teachers(unit):
        moved = torch.stack([unit.network(x @ A.mT, particles) @ B
                             for A, B in zip(unit.on_inputs, unit.on_outputs, strict=True)])  # fmt: skip
        defect.append(float((moved - moved[0]).abs().max()))
    assert defect[0] > 0.1
    assert max(defect[1:]) < 1e-13
    _, orbit, fixed = page.three_teachers(unit)
    assert torch.allclose(project(fixed, unit.parameters), fixed, atol=1e-14)
    assert float(rmd2(orbit, symmetrise(orbit, unit.parameters))) < 1e-15


def test_starts_have_their_law(page: SimpleNamespace) -> None:
    z = page.starts(page.unit_of("C2"), 4000, [3, 4])
    assert z.shape == (2, 4000, 4)
    assert (z.std((1, 2)) * 4 - 1).abs().max() < 0.03
    assert torch.equal(page.starts(page.unit_of("C2"), 10, [4])[0], page.starts(page.unit_of("C2"), 10, [3, 4])[1])


def test_plain_distances_are_those_of_an_assignment(page: SimpleNamespace) -> None:
    a, b = randn(5, 8, 3), randn(6, 8, 3)
    cost = torch.cdist(a, b).square().numpy()
    best = cost[linear_sum_assignment(cost)].mean()
    assert float(squared_w2(a, b)) == pytest.approx(best, rel=1e-9)
    assert float(page.squared_w2_by_hand(a, b)) == pytest.approx(best, rel=1e-9)
    assert float(page.two_halves(torch.stack([a, b], 1).flatten(0, 1))) == pytest.approx(best**0.5, rel=1e-9)


# --- slopes, falls, floors ---


@pytest.mark.parametrize("power", [0, 1])
def test_slopes_are_weighted_least_squares(page: SimpleNamespace, power: int) -> None:
    noise = randn(3, 4, 6).numpy()
    rows = pd.concat({n: pd.Series(n**-0.4 * np.exp(0.2 * e)) for n, e in zip((10, 20, 40, 80), noise, strict=True)})
    value, low, high = page.slope(rows, power, level=0.95)
    x = np.log(np.repeat([20.0, 40, 80], 6))
    fitted, cov = np.polyfit(x, np.log(rows.loc[20:].to_numpy()), 1, w=np.exp(power * x / 2), cov=True)
    assert value == pytest.approx(fitted[0], rel=1e-9)
    assert high - low == pytest.approx(2 * 2.1199 * cov[0, 0] ** 0.5, rel=1e-4)  # Student's 0.975, 16 degrees


@pytest.mark.parametrize("power", [0, 1])
def test_intervals_hold_the_truth_as_often_as_they_say(page: SimpleNamespace, power: int) -> None:
    """Distances that fall like N^{-1/2}, their scatter like N^{-power/2}; 500 repetitions at two levels."""
    g, held = torch.Generator().manual_seed(0), np.zeros(2)
    for _ in range(500):
        scatter = (torch.randn(4, 6, generator=g, dtype=torch.float64)).numpy()
        made = {n: pd.Series(n**-0.5 * np.exp(n ** (-power / 2) * e))
                for n, e in zip((20, 40, 80, 160), scatter, strict=True)}  # fmt: skip
        for k, level in enumerate((0.8, 0.95)):
            _, low, high = page.slope(pd.concat(made), power, level=level)
            held[k] += low < -0.5 < high
    assert held == pytest.approx([400, 475], abs=36)


def test_a_curve_that_levels_off_does_not_fall(page: SimpleNamespace) -> None:
    rows = pd.concat({n: pd.Series([1 / n, 2 / n, 9 / n]) for n in (5, 20, 80)})
    assert page.fall(rows) == pytest.approx(0.25)
    assert page.fall(rows * 0 + 1) == 1
    assert page.lower_end(np.full(5, 2.0)) == pytest.approx(2.0)


def test_floors_fall(page: SimpleNamespace) -> None:
    cloud = page.starts(page.unit_of("C2"), 400, [0])[0]
    for distance in (page.two_halves, page.asymmetry):
        floor = page.floor_of(distance, cloud, [10, 160], 1)
        assert floor.shape == (2, 20)
        assert floor[1].mean() < 0.6 * floor[0].mean()


def test_errors_of_runs_and_of_their_floor_add_up(page: SimpleNamespace) -> None:
    rows = pd.concat({n: pd.Series(2 * np.exp(0.1 * randn(n, 8).numpy())) for n in (10, 20)})
    floor = [torch.exp(0.3 * randn(n, 50)) for n in (1, 2)]
    middle, reach = page.ratio_to_floor(rows, floor)
    for k, (n, ground) in enumerate(zip((10, 20), floor, strict=True)):
        one, two = np.log(rows.loc[n].to_numpy()), ground.log().numpy()
        assert np.log(middle[k]) == pytest.approx(one.mean() - two.mean(), abs=1e-12)
        errors = one.var(ddof=1) / 8 + two.var(ddof=1) / 50
        assert np.log(reach[k]) == pytest.approx(2 * errors**0.5, rel=1e-9)


def test_dealing_changes_nothing_where_units_are_independent(page: SimpleNamespace) -> None:
    """Runs of independent units are as far apart as dealt clouds; runs with a common shift are farther."""
    z = page.starts(page.unit_of("C2"), 20, range(60))
    for shift, expected in ((0.0, 1.0), (0.5, None)):
        runs = z + shift * randn(5, 60, 1, 4)
        plain = squared_w2(runs[0::2], runs[1::2]).log().mean() / 2
        ratio = float(plain.exp() / page.dealt(runs, 3).mean())
        assert ratio == pytest.approx(expected, abs=0.05) if expected else ratio > 1.2


def test_a_dealt_floor_is_blind_to_who_was_where(page: SimpleNamespace) -> None:
    """Runs that divide a set among themselves evenly are closer than dealt clouds: a deal mixes all units."""
    base = page.starts(page.unit_of("C2"), 30, [0])[0]
    runs = base + 1e-3 * randn(6, 12, 30, 4)
    near = squared_w2(runs[0::2], runs[1::2]).sqrt().mean()
    assert float(near / page.dealt(runs, 4).mean()) < 0.1
    assert torch.equal(page.dealt(runs, 4), page.dealt(runs, 4))


def test_tossed_units_are_a_sample_of_a_symmetric_law(page: SimpleNamespace) -> None:
    """Over their own floor independent units have 1, whatever their size, and runs that are unions of orbits 0."""
    swap = page.unit_of("C2")
    z = {n: n * page.starts(swap, n, range(40)) for n in (10, 20)}
    middle, reach = page.over_tossed(z, 5, 10)
    assert np.abs(np.log(middle)) == pytest.approx(0, abs=0.15)
    assert (reach < 1.25).all()
    runs = z[10]
    moved = page.tossed(runs, torch.Generator().manual_seed(1))
    cards = page.deal(runs, torch.Generator().manual_seed(1))
    kept = (moved == cards).all(-1)
    assert kept.double().mean() == pytest.approx(0.5, abs=0.1)
    torch.testing.assert_close(moved[~kept], cards[~kept] @ swap.on_parameters[1].mT)
    paired = symmetrise(runs[:, :5], swap.parameters)
    near = paired + 1e-6 * randn(2, *paired.shape)
    assert page.over_tossed({10: near}, 5, 2)[0] < 1e-6


def test_errors_over_dealt_clouds_are_those_of_repetitions(page: SimpleNamespace) -> None:
    """Runs of independent units: the ratio is 1, and the jackknife overstates how far it strays, by about 2.

    (Where only pairs of runs make the variance, a jackknife overstates it. The 30 sets of an earlier test hid that.)
    """
    sets = page.starts(page.unit_of("C2"), 15, range(960)).unflatten(0, (120, 8))
    ratios, reach = np.array([page.over_dealt(runs, k) for k, runs in enumerate(sets)]).T
    assert np.log(ratios).mean() == pytest.approx(0, abs=0.01)
    assert 1.2 < (np.log(reach) / 2).mean() / np.log(ratios).std(ddof=1) < 2.8


def test_what_a_crowd_corrects_is_seen_by_dealing(page: SimpleNamespace) -> None:
    """Nothing where units are independent; the rest, not the symmetric part, where runs are unions of orbits."""
    swap = page.unit_of("C2")
    z = page.starts(swap, 40, range(30))
    cards = page.deal(z, torch.Generator().manual_seed(0))
    assert torch.equal(cards.flatten().sort().values, z.flatten().sort().values)
    assert page.corrected(swap, z, 5) == pytest.approx(1, abs=0.25)
    paired = symmetrise(z[:, :20], swap.parameters)
    assert page.corrected(swap, paired, 5, page.rest) > 1e6
    assert page.corrected(swap, paired, 5, page.symmetric) == pytest.approx(0.5**0.5, abs=0.2)
    x = randn(6, 9, 2)
    torch.testing.assert_close(page.symmetric(swap, x, z) + page.rest(swap, x, z), swap.network(x, z))


def test_outputs_of_trained_clouds_scatter_less(page: SimpleNamespace) -> None:
    swap = page.unit_of("C2")
    cloud = page.starts(swap, 400, [0])[0]
    wide, narrow = (page.scatter(swap, cloud.unflatten(0, (-1, n)), 5) for n in (10, 40))
    assert narrow == pytest.approx(wide / 2, rel=0.35)  # independent units: N^{-1/2}


# --- M1, M5, M6, M7 ---


def test_medians_are_those_of_the_setting(live: pd.DataFrame) -> None:
    """Values found by an independent implementation with ten other seeds: .14, .028, .053 at N = 20, and .093."""
    known = {"weak/vanilla": 0.14, "weak/DA": 0.028, "weak/FA": 0.053, "strong/vanilla": 0.093}
    for key, value in known.items():
        assert 0.5 < live.loc[key, 20]["arbitrary"].median() / value < 2


def test_independent_runs_approach_each_other(page: SimpleNamespace, every: pd.DataFrame) -> None:
    keys = [f"independent/{law}/{k}" for law in ("WI", "SI") for k in SCHEMES]
    assert max(page.slope(every.loc[k][t], 1)[2] for k in keys for t in page.TEACHERS) < -0.18
    apart = every.loc["WI/vanilla-DA"]["arbitrary"]
    assert page.slope(apart, 1)[1] > -0.06
    assert page.fall(apart) > 0.6


def test_runs_of_dependent_units_do_not_follow_one_flow(page: SimpleNamespace) -> None:
    """The control of M1: parts of two runs are far apart beside parts of one; from independent starts they are not."""
    swap, of = page.unit_of("C2"), range(12)
    data = page.TeacherData(swap, page.three_teachers(swap)[:1])
    fair = page.train(swap, "EA", page.starts(swap, 40, of)[:, None], data, page.Descent(), of).end[:, 0]
    for runs, low, high in ((page.from_one_point(swap, 40, of), 2.0, 30.0), (fair, 0.8, 1.25)):
        parts = runs[:, ::2]
        ratio = squared_w2(parts, parts.roll(1, 0)).sqrt().median() / page.two_halves(runs).median()
        assert low < float(ratio) < high


@pytest.mark.parametrize("group", GROUPS)
def test_unions_of_orbits_stay_exactly(page: SimpleNamespace, group: str) -> None:
    unit, of = page.unit_of(group), [30]
    for scheme in ("DA", "FA", "EA"):
        for noise in (("images", 1e-6), ("plain", 0.0)):
            assert page.from_orbits(unit, scheme, *noise, of).max() < 1e-13
        assert page.from_orbits(unit, scheme, "plain", 1e-6, of).min() > 1e-7
    for scheme in ("DA-sampled", "vanilla"):
        assert page.from_orbits(unit, scheme, "plain", 0.0, of).min() > 1e-9


def test_weak_symmetry_in_the_limit(page: SimpleNamespace, every: pd.DataFrame) -> None:
    kept = [("DA", t) for t in page.TEACHERS] + [("FA", t) for t in page.TEACHERS] + [("vanilla", "WI")]
    assert max(page.slope(every.loc[f"weak/{k}"][t], 1)[2] for k, t in kept) < -0.3
    level = every.loc["weak/vanilla"]["arbitrary"]
    assert page.slope(level, 1)[1] > -0.06
    assert level.groupby(level=0).median().min() > 0.08


def test_schemes_meet(page: SimpleNamespace, every: pd.DataFrame) -> None:
    meet = [("WI/DA-FA", t) for t in page.TEACHERS] + [("WI/vanilla-DA", t) for t in ("WI", "SI")]
    for key, teacher in meet:
        assert page.slope(every.loc[key][teacher], 0)[2] < -0.3
        assert page.fall(every.loc[key][teacher]) < 0.02
    assert page.fall(every.loc["WI/vanilla-DA"]["arbitrary"]) > 0.5
    apart = {n: pd.Series(page.lopsided(page.unit_of("C2"), n, of)) for n, of in PLAN.items()}
    assert page.slope(pd.concat(apart), 0)[1] > -0.1


def test_why_the_schemes_differ(page: SimpleNamespace) -> None:
    """Free and augmented: batches and steps, at any number of units. Augmented and averaged: the start's asymmetry."""
    small, big = (page.two_gaps(page.unit_of("C2"), range(8), batch=b).log().mean(1).exp() for b in (20, 80))
    assert small[0] > 2 * big[0]
    assert float(small[1] / big[1]) == pytest.approx(1, rel=0.25)
    slow = page.two_gaps(page.unit_of("C2"), range(8), rate=12.5, time=80.0).log().mean(1).exp()
    wide = page.two_gaps(page.unit_of("C2"), range(8), N=80, rate=200.0, time=5.0).log().mean(1).exp()
    assert small[0] > 4 * slow[0]
    assert float(small[1] / slow[1]) == pytest.approx(1, rel=0.25)
    assert 0.4 < float(small[0] / wide[0]) < 2.5
    assert small[1] > 2 * wide[1]
    orbits = page.two_gaps(page.unit_of("C2"), range(8), orbits=True)
    assert orbits[0].min() > 1e-6
    assert orbits[1].max() < 1e-12


@pytest.mark.parametrize("group", GROUPS)
def test_strong_symmetry_is_kept_by_exact_schemes(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    ends = page.from_fixed(unit, [40], page.TRAININGS)
    assert max(page.departures(unit, ends)) < 1e-13
    for scheme in ("vanilla", "DA-sampled"):
        assert projection_rmd2(ends[scheme], unit.fixed).min() > 1e-8


def test_strong_symmetry_in_the_limit(page: SimpleNamespace, every: pd.DataFrame) -> None:
    free = every.loc["strong/vanilla"]
    assert max(page.slope(free[t], 0)[2] for t in ("WI", "SI")) < -0.3
    assert page.slope(free["arbitrary"], 0)[1] > -0.06
    assert page.lower_end(free["arbitrary"].loc[40]) > 0.02


def test_no_start_shares_a_stream_with_any_data(page: SimpleNamespace) -> None:
    """Torch keeps the lower 32 bits of a seed on the CPU: a start from 2**40 + k is drawn from the stream k."""
    swap, of = page.unit_of("C2"), [0, 1, 2, 3, 5, 8, 1000, 1_000_000_999]
    drawn = [16 * page.starts(swap, 50, of).flatten(1)]
    for k in of:
        drawn += [4 * torch.randn(1, 200, generator=g, dtype=torch.float64) for g in page.streams(k)]
    assert len(torch.cat(drawn)[:, :5].unique(dim=0)) == 4 * len(of)


# --- the stored run ---


def test_the_run_does_what_the_page_does(page: SimpleNamespace) -> None:
    recorded = read_results(nbformat.read(BOOK / "runs" / "trained_clouds.ipynb", 4))
    swap = page.unit_of("C2")
    ends = page.grid(swap, 8, [0, 1], "cpu")
    distance = decode(recorded["distances.distance"])
    for key, rows in page.measure(swap, ends).groupby(level="distance"):
        for teacher in page.TEACHERS:
            found = decode(recorded[f"distances.{teacher}"])[distance == key]
            assert np.allclose(found, rows[teacher], rtol=1e-6, atol=1e-12)
    clouds = torch.stack([end[:, 0].flatten(0, 1) for end in ends.values()])
    assert np.allclose(decode(recorded["cloud"]), clouds, rtol=1e-4, atol=1e-5)


def test_stored_results_agree_with_the_live_ones(every: pd.DataFrame) -> None:
    assert set(every.index.unique("particles")) == {*PLAN, 160, 320, 1000, 5000}
    for n in (160, 320, 1000, 5000):
        assert 0.08 < every.loc["weak/vanilla", n]["arbitrary"].median() < 0.16
        assert every.loc["weak/DA", n]["arbitrary"].median() < every.loc["weak/DA", 40]["arbitrary"].median()


# --- exercises ---


@pytest.mark.parametrize("group", GROUPS)
def test_exercises(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    assert page.mean_square(page.parts_off(unit, 50, mirrored=True)[-1]) < 1e-20
    assert page.mean_square(page.parts_off(unit, 50)[-1]) > 1e-8


@pytest.mark.parametrize("group", GROUPS)
def test_adam_keeps_orbits_where_the_group_permutes_entries(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    d = unit.parameters.dim
    turn, _ = torch.linalg.qr(randn(7, d, d))
    assert page.by_adam(unit, torch.eye(d, dtype=torch.float64), 60) < 1e-20
    assert page.by_adam(unit, turn, 60) > 1e-5


@pytest.mark.parametrize("group", GROUPS)
def test_where_forces_agree(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    z = page.starts(unit, 6, [9])[0]
    x = 4 * torch.randn(20, unit.inputs.dim, generator=torch.Generator().manual_seed(9), dtype=z.dtype)
    y = unit.network(x, page.three_teachers(unit)[1])

    def gaps(cloud: Tensor) -> tuple[float, float]:
        free, da, fa = (intrinsic_derivative(unit, k, cloud, x, y) for k in ("vanilla", "DA", "FA"))
        return float((da - fa).abs().max()), float((free - da).abs().max())

    for symmetric in (symmetrise(z, unit.parameters), project(z, unit.parameters)):
        same, other = gaps(symmetric)
        assert same < 1e-14
        assert other > 1e-6
    assert min(gaps(z)) > 1e-6


@pytest.mark.parametrize(("a", "b"), [(0.3, -0.2), (-1.0, 0.7)])
def test_one_point_moves_a_unit_off_the_line_and_its_mirror_image_keeps_it(
    page: SimpleNamespace, a: float, b: float
) -> None:
    s, t = (1 / (1 + np.exp(-v)) for v in (a, b))
    p, q = (s - 1) * s * (1 - s), t * t * (1 - t)
    one, both = (page.gradient_of_one(a, b, points).numpy() for points in ([[1, 0]], [[1, 0], [0, 1]]))
    np.testing.assert_allclose(one, [[p, 0], [q, 0]], atol=1e-14)
    np.testing.assert_allclose(both, [[p / 2, q / 2], [q / 2, p / 2]], atol=1e-14)
    assert np.abs(one - one[::-1, ::-1]).min() > 0.01  # every entry differs from its partner


def test_asymmetric_batches_push_less_when_they_are_large(page: SimpleNamespace) -> None:
    """A pull that is proportional to the rate: in proportion to rate over batch, whatever the time."""
    swap, of = page.unit_of("C2"), range(8)
    changes = ({}, {"batch": 80}, {"rate": 25.0}, {"time": 10.0})
    usual, *others = (float(page.typical(page.off_line(swap, of, **change))) for change in changes)
    for value, expected in zip(others, (1 / 4, 1 / 2, 1), strict=True):
        assert 0.6 < value / usual / expected < 1.7


def test_steps_of_few_units_are_no_small_kicks(page: SimpleNamespace) -> None:
    """At 20 units a quarter of the rate divides by far more than the four of small kicks; only the step counts."""
    swap, of = page.unit_of("C2"), range(16)
    usual, slow, wide = (
        float(page.typical(page.off_line(swap, of, N=N, rate=rate, time=time)))
        for N, rate, time in ((20, 50.0, 20.0), (20, 12.5, 80.0), (80, 200.0, 5.0))
    )
    assert usual > 7 * slow
    assert 0.4 < wide / usual < 2.5


def test_the_step_decides_how_close_a_free_crowd_stays(page: SimpleNamespace) -> None:
    """Small steps of few units stay closer than large ones of many; at one step their number changes little."""
    swap, of = page.unit_of("C2"), range(24)
    few, many, hasty = (
        float(page.typical(page.at_step(swap, N, step, of))) for N, step in ((5, 0.625), (80, 0.625), (80, 2.5))
    )
    assert 1 / 3 < few / many < 4
    assert hasty > 4 * few


def test_small_steps_hardly_help_on_one_batch(page: SimpleNamespace) -> None:
    swap, of = page.unit_of("C2"), range(12)
    data = page.OneBatch(swap, page.three_teachers(swap)[1:2])
    drawn, _, _ = page.streams(3)
    first = page.TeacherData.draw(data, page.streams(3)[0], 1, page.starts(swap, 2, [0]))
    for _ in range(2):
        assert torch.equal(data.draw(drawn, 5, first), first.expand(5, -1, -1))
    slow = {"N": 20, "rate": 12.5, "time": 80.0}
    fresh, same, slower = (
        float(page.typical(page.off_line(swap, of, **how)))
        for how in (slow, slow | {"kind": page.OneBatch}, {"N": 20, "rate": 6.25, "time": 160.0, "kind": page.OneBatch})
    )
    assert same > 10 * fresh
    assert slower / same == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("group", ["C2", "C3"])
def test_a_broken_orbit_feels_the_frozen_network(page: SimpleNamespace, group: str) -> None:
    """Pushes of an orbit whose images cancel: to first order averaging answers by the Hessian of the potential."""
    unit = page.unit_of(group)
    cloud = symmetrise(page.starts(unit, 2, [3])[0], unit.parameters)
    x = symmetrise(4 * randn(8, 15, unit.inputs.dim), unit.inputs)
    error = unit.network(x, cloud) - unit.network(x, page.three_teachers(unit)[1])
    y = unit.network(x, cloud) - error
    push = 1e-5 * randn(9, cloud.shape[-1])

    def potential(u: Tensor) -> Tensor:
        return (error * unit(x[:, None], u[None])[:, 0]).sum(-1).mean()

    moved = cloud.clone()
    moved[0] += push
    moved[2] -= unit.on_parameters[1] @ push  # the image of the first unit under the second element
    change = intrinsic_derivative(unit, "FA", moved, x, y) - intrinsic_derivative(unit, "FA", cloud, x, y)
    hessian = torch.autograd.functional.hessian(potential, cloud[0])
    torch.testing.assert_close(change[0], hessian @ push, rtol=2e-3, atol=1e-9)


def test_two_orbits_leave_their_images(page: SimpleNamespace) -> None:
    swap = page.unit_of("C2")
    way = page.two_orbits(swap, range(4))
    apart = rmd2(way.particles, symmetrise(way.particles, swap.parameters))
    assert apart[0].max() < 1e-30
    assert (apart[-1] > 1e4 * apart[5]).all()
    assert page.steepest(swap, way.end[0, 1], page.three_teachers(swap)[1], 0) < 0


@pytest.mark.parametrize("group", GROUPS)
def test_tied_training_leaves_what_is_off_the_fixed_points_alone(page: SimpleNamespace, group: str) -> None:
    unit = page.unit_of(group)
    d = unit.inputs.dim
    z, x, y = randn(1, 7, d * d), randn(3, 9, d), randn(4, 9, d)
    moved = page.noisy_step(page.tied, unit, z, x, y, torch.zeros_like(z), rate=2.0, decay=0.3)
    before, after = (v - project(v, unit.parameters) for v in (z, moved))
    torch.testing.assert_close(after, (1 - 2 / 7 * 0.3) * before)
    assert float((moved - z).abs().max()) > 0.01


def test_bad_parameters() -> None:
    for name, value, message in (("group", "E8", "group must be one of"), ("seeds", 2, "seeds must be between 8")):
        with pytest.raises(ValueError, match=message):
            load("mean_field_dynamics", **{name: value})
