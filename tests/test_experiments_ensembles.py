"""Chapter *Ensembles*: its exact statements, its measurements at small scale, controls that must fail."""

import pytest
import torch

from lib.experiments import ensembles as chapter
from lib.experiments import ensembles_exact as exact
from lib.page.results import stored
from lib.training import ensemble_metrics as metrics

SMALL = exact.ExactSettings(points=10, test=8, channels=4, steps=12, seeds=2)


@pytest.fixture(scope="module")
def orbit() -> exact.Trajectory:
    return exact.train_orbit(SMALL)


# --- E4, E5 ---


def test_mean_over_an_orbit_is_exactly_equivariant(orbit: exact.Trajectory) -> None:
    assert orbit.defect.shape == (13, 2)
    assert orbit.defect.max() < 1e-12
    assert bool((orbit.risk[-1] < orbit.risk[0] - 0.1).all())


@pytest.mark.parametrize(
    "broken", [{"support": "skewed"}, {"rotations": 2}, {"rotations": 1}, {"start": "incomplete"}], ids=str
)
def test_every_assumption_is_needed(broken: dict) -> None:
    with pytest.raises(ValueError, match="control"):
        exact.train_orbit(SMALL, **broken)
    run = exact.train_orbit(SMALL, **broken, control=True)
    assert run.defect.amax(0).min() > 1e-3


def test_partial_augmentation_is_exact_before_the_first_step_only() -> None:
    run = exact.train_orbit(SMALL, rotations=2, control=True)
    assert run.defect[0].max() < 1e-12
    assert run.defect[1].min() > 1e-6


def test_another_seed_draws_another_start(orbit: exact.Trajectory) -> None:
    other = exact.train_orbit(exact.ExactSettings(points=10, test=8, channels=4, steps=1, seeds=2, seed=1))
    assert other.defect.max() < 1e-12
    assert not torch.allclose(other.logits[0], orbit.logits[0])


def test_full_support_is_exact_too() -> None:
    assert exact.train_orbit(SMALL, support="full").defect.max() < 1e-12


def test_orbit_ensemble_is_the_feature_average_of_one_member(orbit: exact.Trajectory) -> None:
    one = exact.train_one(SMALL)
    assert exact.difference(orbit.logits[:, :, 0], one.averaged).max() < 1e-12
    assert torch.allclose(orbit.risk, one.risk, rtol=1e-12)
    assert one.defect[-1].min() > 0.1  # one network is not equivariant


def test_training_on_the_averaged_risk_is_something_else(orbit: exact.Trajectory) -> None:
    other = exact.train_one(SMALL, "averaged")
    apart = exact.difference(orbit.averaged, other.averaged)
    assert apart[0].max() < 1e-12
    assert apart[-1].min() > 1e-3


def test_the_cut_orbit_of_a_skewed_support_is_no_feature_average() -> None:
    run, one = exact.train_orbit(SMALL, "skewed", control=True), exact.train_one(SMALL, support="skewed")
    assert exact.difference(run.logits[:, :, 0], one.averaged).amax(0).min() > 1e-3


def test_exact_settings_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="points"):
        exact.ExactSettings(points=1300)
    with pytest.raises(ValueError, match="loss"):
        exact.train_one(SMALL, "mean")
    with pytest.raises(ValueError, match="start"):
        exact.train_orbit(SMALL, start="all", control=True)
    with pytest.raises(ValueError, match="rotations"):
        exact.train_orbit(SMALL, rotations=5)


# --- E1 to E3, small ---

QUICK = chapter.Settings(members=128, images=192, test=40, epochs=3, rate=0.05)


@pytest.fixture(scope="module")
def trained() -> dict[str, chapter.Ensemble]:
    wanted = ("plus", "plus again", "no augmentation", "asymmetric")
    return {name: chapter.train_case(QUICK, chapter.CASES[name], workers=1) for name in wanted}


def test_mean_approaches_invariance_at_the_rate_of_sampling(trained: dict[str, chapter.Ensemble]) -> None:
    slopes = chapter.measure_slopes(trained["plus"].logits["digits"], 8)
    assert slopes.sizes == [1, 2, 4, 8]
    assert slopes.residual.shape == (16, 4)
    assert slopes.misses[0] == 0
    assert abs(sum(slopes.divergence_interval) / 2 + 1) < 0.15
    assert set(slopes.small) <= {1, 2, 4, 8}
    broken = chapter.measure_slopes(trained["no augmentation"].logits["digits"], 8)
    assert min(broken.misses) > 0.1


def test_an_asymmetric_law_is_told_apart(trained: dict[str, chapter.Ensemble]) -> None:
    half = trained["plus"].logits["digits"][:64]
    assert metrics.separation(trained["asymmetric"].logits["digits"], half) > 0
    assert metrics.separation(trained["plus again"].logits["digits"], half) <= 0


def test_untrained_ensembles_with_a_skewed_support_are_not_told_apart() -> None:
    ends = [chapter.train_case(QUICK, chapter.CASES[n], 0, 1).logits["digits"] for n in ("plus again", "skewed")]
    assert metrics.separation(ends[1], ends[0]) <= 0


def test_summary_and_ratio(trained: dict[str, chapter.Ensemble]) -> None:
    table = trained["plus"].summary()
    assert table["mean residual"] < 0.3 * table["member residual"]
    assert table["mean agreement"] > table["member agreement"]
    assert set(trained["plus"].summary("noise")) == set(table) - {"member accuracy", "mean accuracy"}
    for kind in chapter.INPUTS:
        assert trained["plus"].residual_left(kind) < 0.05


def test_copies_of_one_start_do_not_average_out() -> None:
    copies = chapter.follow_one_start(chapter.Settings(members=64, images=192, test=40, epochs=4), 4)
    assert min(copies.residual_left(kind) for kind in chapter.INPUTS) > 0.6


def test_parts_of_sixteen_rotations_add_up() -> None:
    f = torch.randn(3, 16, 5, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    within, between = chapter.split_rotations(f)
    assert within.shape == (3, 4, 20, 10)
    assert between.shape == (3, 4, 5, 10)
    parts = metrics.squared_residual(within) + metrics.squared_residual(between)
    assert torch.allclose(parts, metrics.squared_residual(f))
    assert torch.equal(within[:, :, :5], f[:, ::4])  # the quarter turns of the images themselves
    with pytest.raises(ValueError, match="logits"):
        chapter.split_rotations(f[:, :8])


def test_sixteen_rotations_leave_an_offset_far_from_the_data() -> None:
    settings = chapter.Settings(members=192, images=384, test=40)
    seen = chapter.train_case(settings, chapter.CASES["sixteen"], workers=1)
    assert seen.logits["tissue"].shape == (96, 16, 40, 10)
    for kind in ("tissue", "noise"):
        low, _ = metrics.offset_interval(seen.logits[kind], 0.99)
        assert low > 0
        within, _ = chapter.split_rotations(seen.logits[kind])
        assert metrics.interval_miss(metrics.offset_interval(within, 0.999), 0.0) == 0


def test_settings_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        chapter.Settings(members=100)
    with pytest.raises(ValueError, match="members"):
        chapter.Settings(members=32)
    with pytest.raises(ValueError, match="images"):
        chapter.Settings(images=1500)
    with pytest.raises(ValueError, match="groups"):
        chapter.measure_slopes(torch.zeros(16, 4, 5, 10), 8)


def test_stored_ensembles_on_mnist() -> None:
    """Only with an invariant support and law does the residual fall like M^-1/2 down to the forecast."""
    ends = stored("ensembles/large_ensembles", "curves").query("size == members").set_index("case")
    forecast = (ends["variance_of_one_member"] / ends["members"]) ** 0.5
    ratio = ends["residual"] / forecast
    assert 0.8 < ratio["plus"] < 1.2
    assert ratio["skewed"] > 2
    assert ratio["asymmetric"] > 5
