"""The source's grid: known medians, exact symmetry, controls that fail, and large runs that can be stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lib.experiments import mean_field_dynamics as chapter
from lib.experiments import mean_field_grid as grid
from lib.experiments import mean_field_source as source
from lib.mean_field import project, symmetrise
from lib.mean_field_descent import Descent
from lib.particle_distances import rmd2

SIZES, SEEDS = (5, 20, 40), range(6)


@pytest.fixture(scope="module")
def table() -> grid.Table:
    return {n: grid.measure(grid.train_networks(n, SEEDS)) for n in SIZES}


def highs(table: grid.Table, key: str) -> list[float]:
    return [slope.high for slope in grid.slopes(table, key)]


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


def test_independent_runs_approach_each_other(table: grid.Table) -> None:
    for law in source.LAWS:
        for scheme in ("vanilla", "DA", "FA", "EA"):
            assert max(highs(table, f"independent/{law}/{scheme}")) < 0
    assert highs(grid.heavy_control(SIZES, SEEDS), "independent/WI/vanilla")[0] >= 0


def test_weak_invariance(table: grid.Table) -> None:
    assert max(highs(table, "weak/DA") + highs(table, "weak/FA") + highs(table, "weak/vanilla")[1:]) < 0
    assert highs(grid.skew_control(SIZES, SEEDS), "weak/vanilla")[0] >= 0
    level = [float(table[n]["weak/vanilla"][:, 0].median()) for n in SIZES]
    assert min(level) > 0.08


@pytest.mark.parametrize("scheme", ["DA", "FA"])
def test_unions_of_orbits_stay_exactly(scheme: str) -> None:
    for noise in (("images", 1e-6), ("plain", 0.0)):
        assert grid.exact_runs(10, SEEDS, scheme, *noise).max() < 1e-12
    assert grid.exact_runs(10, SEEDS, scheme, "plain").min() > 1e-7
    assert grid.exact_runs(10, SEEDS, "DA-sampled").min() > 1e-7
    assert grid.exact_runs(10, SEEDS, "vanilla").min() > 1e-7


def test_schemes_meet(table: grid.Table) -> None:
    assert max(highs(table, "WI/DA-FA") + highs(table, "WI/vanilla-DA")[1:]) < 0
    assert highs(grid.lopsided_control(SIZES, SEEDS), "WI/DA-FA")[0] >= 0
    assert float(table[40]["WI/vanilla-DA"][:, 0].median()) > 0.05


def test_strong_invariance(table: grid.Table) -> None:
    for row in table.values():
        assert max(float(row[f"strong/{k}"].max()) for k in ("DA", "FA", "EA")) < 1e-12
        assert max(float(row[f"SI/{k}"].max()) for k in ("DA-FA", "DA-EA")) < 1e-12
        assert min(float(row[f"strong/{k}"].min()) for k in ("vanilla", "DA-sampled")) > 1e-8
        assert grid.mean_interval(row["strong/vanilla"][:, 0])[0] > 0.03
    assert max(highs(table, "strong/vanilla")[1:]) < 0
    assert highs(grid.skew_control(SIZES, SEEDS), "strong/vanilla")[0] >= 0


def test_a_curve_that_levels_off_does_not_fall(table: grid.Table) -> None:
    """The level curve of free training meets "slope < 0" almost by itself; its fall from N = 20 on does not."""
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


def test_mean_interval_holds_the_mean() -> None:
    values = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    low, high = grid.mean_interval(values)
    assert low < float(values.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 * float(values.std()) / 200**0.5, rel=0.2)


def test_large_runs_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter, "Descent", lambda: Descent(time=1.0))
    made = []
    real = chapter.train_networks

    def counted(count: int, seeds: list[int], schemes: list[str], **rest: object) -> grid.Ends:
        made.append((seeds[0], schemes[0]))
        if len(made) == 4:
            raise KeyboardInterrupt
        return real(count, seeds, schemes, descent=Descent(time=1.0), **rest)

    monkeypatch.setattr(chapter, "train_networks", counted)
    schemes = ["DA", "FA"]
    with pytest.raises(KeyboardInterrupt):
        chapter.run_large(6, 2, tmp_path, "float64", schemes)
    assert not (tmp_path / "grid-6.json").exists()
    path = chapter.run_large(6, 2, tmp_path, "float64", schemes)
    assert len(made) == 5  # three pieces before the stop, the one that was cut off, and that one again
    record = json.loads(path.read_text())
    assert {"commit", "versions", "date", "dtype", "seconds", "descent", "seeds"} <= set(record)
    table, provenance = chapter.load_large(tmp_path)
    direct = grid.measure(real(6, [0, 1], schemes, descent=Descent(time=1.0)))
    assert set(table[6]) == set(direct)
    assert torch.allclose(table[6]["weak/FA"], direct["weak/FA"], rtol=1e-4)
    assert provenance[6]["particles"] == 6
    assert chapter.load_cloud(6, "DA", tmp_path).shape == (12, 4)
    assert not any(p.name.startswith(".grid") for p in tmp_path.iterdir())


def test_stored_results_agree_with_the_live_ones(table: grid.Table) -> None:
    large, provenance = chapter.load_large()
    assert set(large) == set(provenance)
    for n, row in large.items():
        assert 0.08 < float(row["weak/vanilla"][:, 0].median()) < 0.16
        assert float(row["weak/DA"][:, 0].median()) < float(table[40]["weak/DA"][:, 0].median())
        assert float(row["strong/vanilla"][:, 1].median()) < float(table[20]["strong/vanilla"][:, 1].median())
        assert chapter.load_cloud(n, "vanilla").shape[1] == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"largest": 10}, "largest must be at least 20"),
        ({"seeds": 2}, "seeds must be at least 4"),
        ({"time": -1.0}, "time must be a finite number"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chapter.Settings(**change)


def test_settings() -> None:
    assert chapter.Settings().sizes == [5, 10, 20, 40, 80]
    assert chapter.Settings(largest=39).sizes == [5, 10, 20]


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folder must hold results"):
        chapter.load_large(tmp_path)
    with pytest.raises(ValueError, match=r"no stored cloud cloud-7\.npz"):
        chapter.load_cloud(7, "DA", tmp_path)
    with pytest.raises(ValueError, match="dtype must be one of"):
        chapter.run_large(5, 2, tmp_path, "float16")
    with pytest.raises(ValueError, match="seeds must be at least 2"):
        chapter.run_large(5, 1, tmp_path)
    one = {5: {"x": torch.ones(3, 1).double()}}
    with pytest.raises(ValueError, match="at least two numbers of particles"):
        grid.slopes(one, "x")
    with pytest.raises(ValueError, match="key must be one of"):
        grid.slopes(one | {10: one[5]}, "y")
    with pytest.raises(ValueError, match="must have positive means"):
        grid.slopes({n: {"x": torch.zeros(3, 1).double()} for n in (5, 10)}, "x")
    with pytest.raises(ValueError, match="at least one scheme and two seeds"):
        grid.measure({"DA": torch.zeros(1, 6, 4, 4).double()})
    with pytest.raises(ValueError, match="one row of at least one number"):
        grid.mean_interval(torch.zeros(0).double())
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


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter, "run_large", lambda *given: given)
    chapter.main(["--particles", "7", "9", "--out", str(tmp_path), "--seeds", "2"])
    assert "(7, 2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        chapter.main(["--particles", "7"])
