"""Chapter *Implicit bias in Fourier space*, gradient flows: claims B1–B4, their controls, the stored runs."""

import pytest
import torch

from lib.experiments import implicit_bias as chapter
from lib.page.results import stored
from lib.symmetry.groups import Dihedral
from lib.training.linear_networks import Convolution, diagonal
from lib.training.optimality import Norm, coordinates, form_p, frequencies

SMALL = ["C12", "D6", "S3", "S4", "F21"]


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, int], chapter.BiasRun]:
    found = {(name, depth): chapter.group_bias(name, depth, 0) for name in SMALL for depth in (2, 3)}
    for depth in (2, 3):
        found["diagonal", depth] = chapter.diagonal_bias(depth, 0)
        found["circular", depth] = chapter.circular_bias(depth, 0)
    return found


# --- B1 ---


def test_fully_connected_networks_find_the_largest_margin() -> None:
    found = chapter.digit_margins([(0, 1)])
    assert [run.depth for run in found] == [1, 2, 3]
    for run in found:
        assert run.one_minus_cosine <= 1e-6
        assert run.diagonal > 0.01
        assert run.one_minus_cosine <= run.at_handover + 1e-9
        assert float(run.path[0]) > 0.1
        assert run.support < run.points


def test_digit_pairs_are_labelled() -> None:
    x, y = chapter.digit_pair((3, 8))
    assert x.shape == (len(y), 64)
    assert set(y.tolist()) == {-1.0, 1.0}
    with pytest.raises(ValueError, match="digit"):
        chapter.digit_pair((3, 10))
    for pair in ((3, 3), (3,)):
        with pytest.raises(ValueError, match="pair must be two different digits"):
            chapter.digit_pair(pair)
    with pytest.raises(TypeError, match="seed must be an integer"):
        chapter.digit_margins(seed=None)


# --- B2, B3, B4 ---


def check(run: chapter.BiasRun) -> None:
    assert run.residual <= 1e-4
    assert max(run.form_a, run.form_p) <= 1e-5
    assert (run.gap is None) == (run.depth != 2)
    assert min(run.random) > 0.05
    assert min(run.ratios.values()) >= 100
    assert {"wrong basis", "ℓ2 solution"} <= set(run.ratios)
    assert run.trained.converged


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", ["diagonal", "circular"])
def test_diagonal_and_circular_networks_are_stationary(
    runs: dict[tuple[str, int], chapter.BiasRun], name: str, depth: int
) -> None:
    check(runs[name, depth])
    assert "no weight" not in runs[name, depth].ratios


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_group_networks_are_stationary(runs: dict[tuple[str, int], chapter.BiasRun], name: str, depth: int) -> None:
    check(runs[name, depth])


def test_a_large_group_is_stationary() -> None:
    check(chapter.group_bias("(C5×C5)⋊Q8", 2, 0))


def test_every_control_is_asked_for_somewhere(runs: dict[tuple[str, int], chapter.BiasRun]) -> None:
    asked = {key for (name, _), run in runs.items() if name in ("D6", "S4", "F21") for key in run.ratios}
    assert asked == set(runs["D6", 2].controls)
    for depth in (2, 3):  # d_ρ = 1 throughout: the weights cannot be told apart, and the control would wrongly pass
        plain = runs["C12", depth]
        assert not plain.controls["no weight"].identifiable
        assert plain.controls["no weight"].residual < 1e-6


def test_own_multipliers_see_what_the_best_ones_miss(runs: dict[tuple[str, int], chapter.BiasRun]) -> None:
    """At a vertex, where support vectors are as many as nonzero entries, form A accepts every exponent."""
    control = runs["diagonal", 3].controls["exponent of one layer fewer"]
    assert control.form_a < 1e-9
    assert control.residual == pytest.approx(control.separation, rel=1e-3)
    assert control.residual > 0.01


def test_residual_falls_in_the_continuation_for_the_right_exponent_only(
    runs: dict[tuple[str, int], chapter.BiasRun],
) -> None:
    run = runs["S4", 2]
    end = run.trained
    for p, falls in ((1.0, True), (2.0, False), (2 / 3, False)):
        norm = Norm(run.norm.basis, p)
        first, last = (form_p(norm, end.path[k], run.features, run.labels, end.multipliers) for k in (end.handover, -1))
        assert (last < 1e-3 * first) == falls


def test_schatten_residual_agrees_with_one_without_irreducibles(
    runs: dict[tuple[str, int], chapter.BiasRun],
) -> None:
    """The matrix of h ↦ β∗h holds every block d_ρ times; the same condition for it, and the same residual."""
    group, run = Dihedral(6), runs["D6", 3]
    feasible = run.features.mT @ run.labels
    matrix = Convolution(group).forward
    for beta, alpha in ((run.trained.direction, run.trained.multipliers), (feasible, torch.ones(6).double())):
        B, G = matrix(beta), matrix((alpha * run.labels) @ run.features)
        u, s, vh = torch.linalg.svd(B)
        target = torch.cat([(u * s ** (2 / 3)) @ u.mT, (vh.mT * s ** (2 / 3)) @ vh])
        image = torch.cat([G @ B.mT, B.mT @ G])
        cosine = float((target * image).sum() / (target.norm() * image.norm()))
        residual = form_p(run.norm, beta, run.features, run.labels, alpha)
        assert max(1 - cosine**2, 0) ** 0.5 == pytest.approx(residual, abs=1e-7)


def test_settings_of_runs_are_checked() -> None:
    with pytest.raises(ValueError, match="depth"):
        chapter.diagonal_bias(1, 0)
    with pytest.raises(ValueError, match="points"):
        chapter.measure_bias("full", diagonal(6, 2), coordinates(6), frequencies(6), 6, 0)
    with pytest.raises(TypeError, match="network must be a LinearNetwork"):
        chapter.measure_bias("full", "diagonal", coordinates(6), frequencies(6), 5, 0)
    with pytest.raises(TypeError, match="other must be a Basis"):
        chapter.measure_bias("full", diagonal(6, 2), coordinates(6), None, 5, 0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        chapter.diagonal_bias(2, -1)
    with pytest.raises(ValueError, match="group must be one of"):
        chapter.group_bias("monster", 2, 0)
    with pytest.raises(ValueError, match="seeds"):
        chapter.group_biases(seeds=())


# --- stored runs ---

BOOK = "implicit_bias_in_fourier_space"


def test_stored_margins_meet_the_bound() -> None:
    rows = stored(f"{BOOK}/digit_margins", "runs")
    assert (rows["one_minus_cosine"] <= 1e-4).all()
    assert (rows["diagonal"] > 1e-4).all()


def test_stored_networks_are_stationary_for_no_other_norm() -> None:
    rows = stored(f"{BOOK}/stationary_networks", "runs")
    assert len(rows) >= 100
    assert (rows["residual"] <= 1e-3).all()
    assert set(rows["architecture"]) == {*chapter.GROUPS, "diagonal", "circular"}
    wrong = stored(f"{BOOK}/stationary_networks", "controls")
    wrong = wrong[wrong["separation"] >= chapter.IDENTIFIABLE]
    pairs = rows.merge(wrong, on=["architecture", "depth", "seed"], suffixes=("", "_wrong"))
    assert (pairs["residual_wrong"] / pairs["residual"]).min() >= 100
