"""The source's grid: known medians, exact symmetry, controls that fail, and the stored run."""

from __future__ import annotations

import nbformat
import numpy as np
import pytest
import torch

from lib.experiments import mean_field_dynamics as chapter
from lib.experiments import mean_field_grid as grid
from lib.experiments import mean_field_source as source
from lib.page.notebooks import BOOK
from lib.page.results import decode, stored
from lib.sweep.worker import read_results
from lib.training.mean_field import project, symmetrise
from lib.transport.particle_distances import rmd2

SIZES, SEEDS = (10, 20, 40), range(6)
PLAN = {n: range(6 * k, 6 * k + 6) for k, n in enumerate(SIZES)}


@pytest.fixture(scope="module")
def table() -> grid.Table:
    return {n: grid.measure(grid.train_networks(n, seeds)) for n, seeds in PLAN.items()}


@pytest.fixture(scope="module")
def every(table: grid.Table) -> grid.Table:
    rows = stored("mean_field_dynamics/trained_clouds", "distances")
    large: grid.Table = {}
    for (n, key), of in rows.groupby(["particles", "distance"]):
        large.setdefault(n, {})[key] = torch.tensor(of[list(source.TEACHERS)].to_numpy())
    return large | table


def highs(table: grid.Table, key: str) -> list[float]:
    return [slope.high for slope in grid.slopes(table, key, 1 - 1e-5)]


def test_teachers_have_their_symmetry() -> None:
    unit = source.source_unit()
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    defect = {}
    for kind in source.TEACHERS:
        particles = source.teacher(kind)
        y, swapped = unit.network(x, particles), unit.network(x.flip(-1), particles).flip(-1)
        defect[kind] = float((y - swapped).abs().max())
    assert defect["arbitrary"] > 0.1
    assert max(defect["WI"], defect["SI"]) < 1e-14
    fixed = source.teacher("SI")
    assert torch.allclose(project(fixed, unit.parameters), fixed, atol=1e-15)
    assert float(rmd2(source.teacher("WI"), symmetrise(source.teacher("WI"), unit.parameters))) < 1e-15
    assert torch.allclose(source.fixed_basis() @ source.fixed_basis().T, torch.eye(2).double(), atol=1e-15)
    assert torch.allclose(source.fixed_basis() @ unit.fixed, source.fixed_basis(), atol=1e-15)
    assert project(grid.skew_teacher(), unit.parameters).abs().max() < 1e-15
    with pytest.raises(ValueError, match="kind must be one of"):
        source.teacher("none")


def test_starts_have_their_laws() -> None:
    start = source.starts(4000, [3])
    assert start.shape == (1, 6, 4000, 4)
    assert abs(float(start[0, 0].std()) / 0.25 - 1) < 0.03
    unit = source.source_unit()
    assert torch.equal(start[:, 0], start[:, 2])
    assert torch.allclose(start[:, 3], project(start[:, 0], unit.parameters), atol=1e-15)
    orbits = source.orbit_starts(6, [0, 1])
    assert rmd2(orbits, symmetrise(orbits, unit.parameters)).max() < 1e-15
    with pytest.raises(ValueError, match="count must be even"):
        source.orbit_starts(5, [0])


def test_medians_are_those_of_the_source_setting(table: grid.Table) -> None:
    """Values found by an independent implementation with ten other seeds: .14, .028, .053 at N = 20, and .092."""
    at = {k: float(table[20][k][:, 0].median()) for k in ("weak/vanilla", "weak/DA", "weak/FA", "strong/vanilla")}
    for key, value in {"weak/vanilla": 0.14, "weak/DA": 0.028, "weak/FA": 0.053, "strong/vanilla": 0.093}.items():
        assert 0.5 < at[key] / value < 2, (key, at[key])


def test_independent_runs_approach_each_other(every: grid.Table) -> None:
    for law in source.LAWS:
        for scheme in ("vanilla", "DA", "FA", "EA"):
            assert max(highs(every, f"independent/{law}/{scheme}")) < -0.15
    heavy = grid.heavy_control(PLAN)
    assert min(float(row["independent/WI/vanilla"].median()) for row in heavy.values()) > 0.8


def test_weak_invariance(every: grid.Table) -> None:
    assert max(highs(every, "weak/DA") + highs(every, "weak/FA") + highs(every, "weak/vanilla")[1:]) < -0.15
    level = grid.slopes(every, "weak/vanilla", 1 - 1e-5)[0]
    assert level.low > -0.1
    assert min(float(row["weak/vanilla"][:, 0].median()) for row in every.values()) > 0.08


@pytest.mark.parametrize("scheme", ["DA", "FA"])
def test_unions_of_orbits_stay_exactly(scheme: str) -> None:
    for noise in (("images", 1e-6), ("plain", 0.0)):
        assert grid.exact_runs(10, SEEDS, scheme, *noise).max() < 1e-12
    assert grid.exact_runs(10, SEEDS, scheme, "plain").min() > 1e-7
    assert grid.exact_runs(10, SEEDS, "DA-sampled").min() > 1e-7
    assert grid.exact_runs(10, SEEDS, "vanilla").min() > 1e-7


def test_schemes_meet(every: grid.Table, table: grid.Table) -> None:
    assert max(highs(every, "WI/DA-FA") + highs(every, "WI/vanilla-DA")[1:]) < -0.3
    assert grid.slopes(grid.lopsided_control(PLAN), "WI/DA-FA", 1 - 1e-5)[0].low > -0.1
    assert float(table[40]["WI/vanilla-DA"][:, 0].median()) > 0.05


def test_strong_invariance(every: grid.Table, table: grid.Table) -> None:
    for row in table.values():
        assert max(float(row[f"strong/{k}"].max()) for k in ("DA", "FA", "EA")) < 1e-12
        assert max(float(row[f"SI/{k}"].max()) for k in ("DA-FA", "DA-EA")) < 1e-12
        assert min(float(row[f"strong/{k}"].min()) for k in ("vanilla", "DA-sampled")) > 1e-8
        assert grid.mean_interval(row["strong/vanilla"][:, 0])[0] > 0.03
    level, *falling = grid.slopes(every, "strong/vanilla", 1 - 1e-5)
    assert max(slope.high for slope in falling) < -0.3
    assert level.low > -0.1


def test_a_curve_that_levels_off_does_not_fall(table: grid.Table) -> None:
    assert grid.fall(table, "weak/vanilla")[0] > 0.85
    assert max(grid.fall(table, "weak/DA") + grid.fall(table, "weak/vanilla")[1:]) < 0.95
    assert max(grid.fall(table, "WI/vanilla-DA")[1:]) < 0.3
    made = {n: {"x": torch.tensor([[1.0 / n, 1.0], [1.0 / n, 1.0]]).double()} for n in (5, 20, 80)}
    assert grid.fall(made, "x") == pytest.approx([0.25, 1.0])
    with pytest.raises(ValueError, match="first must be one of"):
        grid.fall(made, "x", 40)
    with pytest.raises(ValueError, match="key must be one of"):
        grid.fall(made, "y")


def test_why_the_schemes_differ() -> None:
    """Free training and augmentation: the noise of batches. Augmentation and averaging: the sample's asymmetry."""
    mean = {key: float(values.mean()) for key, values in grid.causes(20, SEEDS).items()}
    assert mean["sample/vanilla-DA/20"] > 2 * mean["sample/vanilla-DA/80"]
    assert mean["sample/DA-FA/80"] == pytest.approx(mean["sample/DA-FA/20"], rel=0.25)
    assert mean["orbits/DA-FA/20"] < 1e-12
    assert mean["orbits/vanilla-DA/20"] > 1e-6


def test_outputs_of_trained_clouds_scatter_less() -> None:
    cloud = source.gaussian(400, torch.Generator().manual_seed(0))
    wide, narrow = (grid.output_spread(cloud.unflatten(0, (-1, n))) for n in (10, 40))
    assert narrow == pytest.approx(wide / 2, rel=0.35)  # independent units: N^{-1/2}
    end = grid.train_networks(20, SEEDS, ["vanilla"])["vanilla"][:, 0]
    picks = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    assert grid.output_spread(end) < 0.3 * grid.output_spread(end.flatten(0, 1)[picks].unflatten(0, (6, 20)))
    with pytest.raises(ValueError, match="with R ≥ 2"):
        grid.output_spread(cloud[None])


def test_floors_fall() -> None:
    own = grid.trained_symmetry_floor(source.gaussian(400, torch.Generator().manual_seed(0)), [10, 160])
    assert own[1].mean() < 0.6 * own[0].mean()
    assert float(own[0].median()) == pytest.approx(float(grid.symmetry_floor([10])[0].median()), rel=0.3)
    floor = grid.symmetry_floor([10, 160])
    assert floor[1].mean() < 0.6 * floor[0].mean()
    cloud = source.gaussian(400, torch.Generator().manual_seed(0))
    pooled = grid.pooled_floor(cloud, [10, 200])
    assert pooled[1].mean() < 0.6 * pooled[0].mean()
    with pytest.raises(ValueError, match="at least 402 particles, got 400"):
        grid.pooled_floor(cloud, [201])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_hold_the_truth_as_often_as_they_say(level: float) -> None:
    """Distances that fall like N^{-1/2}, with logarithmic scatter: slope and geometric mean, 1000 repetitions."""
    generator, held = torch.Generator().manual_seed(0), [0, 0]
    for _ in range(1000):
        scatter = (0.3 * torch.randn(4, 6, 1, generator=generator, dtype=torch.float64)).exp()
        made = {n: {"x": n**-0.5 * row} for n, row in zip((20, 40, 80, 160), scatter)}
        (slope,) = grid.slopes(made, "x", level)
        low, high = grid.mean_interval(scatter[0, :, 0], level)
        held = [held[0] + (slope.low < -0.5 < slope.high), held[1] + (low < 1 < high)]
    assert held == pytest.approx([1000 * level] * 2, abs=4 * (1000 * level * (1 - level)) ** 0.5)


def test_the_run_does_what_the_chapter_does() -> None:
    """The page of the run, as it is stored, against the chapter's own function."""
    recorded = read_results(nbformat.read(BOOK / "runs" / "trained_clouds.ipynb", 4))
    ends = grid.train_networks(8, [0, 1], dtype=torch.float32)
    for key, values in grid.measure(ends).items():
        chosen = decode(recorded["distances.distance"]) == key
        for column, kind in enumerate(source.TEACHERS):
            found = decode(recorded[f"distances.{kind}"])[chosen]
            assert np.allclose(found, values[:, column], rtol=1e-3, atol=1e-9)
    clouds = torch.stack([end[:, 0].flatten(0, 1) for end in ends.values()])
    assert np.allclose(decode(recorded["cloud"]), clouds, rtol=1e-3, atol=1e-4)


def test_stored_results_agree_with_the_live_ones(every: grid.Table, table: grid.Table) -> None:
    large = {n: row for n, row in every.items() if n not in table}
    assert set(large) == {160, 320, 1000, 5000}
    for row in large.values():
        assert 0.08 < float(row["weak/vanilla"][:, 0].median()) < 0.16
        assert float(row["weak/DA"][:, 0].median()) < float(table[40]["weak/DA"][:, 0].median())
        assert float(row["strong/vanilla"][:, 1].median()) < float(table[20]["strong/vanilla"][:, 1].median())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"largest": 10}, "largest must be at least 20"),
        ({"seeds": 2}, "seeds must be at least 4"),
        ({"time": -1.0}, "time must be a finite number"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_settings_that_make_no_sense(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chapter.Settings(**change)


def test_settings() -> None:
    assert chapter.Settings().sizes == [5, 10, 20, 40, 80]
    assert chapter.Settings(largest=39).sizes == [5, 10, 20]
    plan = chapter.Settings(largest=20, seeds=4, seed=3).plan
    assert plan == {5: [3000, 3001, 3002, 3003], 10: [3004, 3005, 3006, 3007], 20: [3008, 3009, 3010, 3011]}


def test_bad_input() -> None:
    one = {n: {"x": torch.ones(3, 1).double()} for n in (5, 20)}
    with pytest.raises(ValueError, match=r"two numbers of particles of at least 20, got \[20\]"):
        grid.slopes(one, "x")
    with pytest.raises(ValueError, match="key must be one of"):
        grid.slopes(one, "y", first=5)
    with pytest.raises(ValueError, match="must be positive, got 0"):
        grid.slopes({n: {"x": torch.zeros(3, 1).double()} for n in (20, 40)}, "x")
    with pytest.raises(ValueError, match="level must be"):
        grid.slopes(one, "x", 2.0, first=5)
    with pytest.raises(ValueError, match="at least one scheme and two seeds"):
        grid.measure({"DA": torch.zeros(1, 6, 4, 4).double()})
    with pytest.raises(ValueError, match="one row of at least two numbers"):
        grid.mean_interval(torch.zeros(1).double())
    for empty in (grid.pooled_floor, grid.trained_symmetry_floor):
        with pytest.raises(ValueError, match="sizes must hold at least one"):
            empty(torch.zeros(9, 4).double(), [])
    with pytest.raises(ValueError, match="count must be even"):
        grid.causes(5, [0])
    with pytest.raises(ValueError, match="seeds must hold at least one seed"):
        source.starts(5, [])
    with pytest.raises(ValueError, match="schemes must be one of"):
        grid.train_networks(5, [0], ["GA"])
    with pytest.raises(ValueError, match="count must be at least 1"):
        grid.train_networks(0, [0])
