"""Chapter *Structure-preserving GANs*: the contest of pairings, the laws of generators, and why one pairing ties."""

import math

import pytest
import torch
from scipy.stats import ttest_1samp

from lib.experiments import weak_links as chapter
from lib.experiments.weak_links import PLAIN, SMART, Contest, contest
from lib.experiments.weak_links_laws import discriminator_residual, law_test
from lib.experiments.weak_links_mechanism import gradient_gap, invisible_share
from lib.gans.mixtures import Mixture, gaussian_mixture, student_mixture
from lib.gans.plane_games import Pairing, Settings, play
from lib.transport.two_sample import outside_interval

SETTINGS = Settings(seeds=5, samples=(50,), iterations=300)


@pytest.fixture(scope="module")
def played() -> Contest:
    return contest(SETTINGS, gaussian_mixture(), points=200)


# --- G2 ---


def test_only_equivariant_generators_make_invariant_laws(played: Contest) -> None:
    smart, flawed = (played.games[name] for name in ("equivariant/averaged", "incomplete/averaged"))
    for trained in (False, True):
        good, bad = (law_test(game, trained, 400, 199) for game in (smart, flawed))
        assert float(good.residual.max()) < 1e-5
        assert outside_interval(good.rejections(), 5) == 0
        assert bad.rejections() == 5
        assert float(bad.residual.min()) > 0.1


def test_discriminators_are_invariant_where_they_should(played: Contest) -> None:
    for game in played.games.values():
        assert (float(discriminator_residual(game).max()) < 1e-5) == game.pairing.is_averaged


# --- G3 ---


def test_plain_generators_collapse_under_invariant_discriminators(played: Contest) -> None:
    scores = played.scores
    assert float(scores.collapsed("plain/averaged").double().mean()) >= 0.8
    assert float(scores.collapsed("incomplete/averaged").double().mean()) >= 0.8
    for name in ("plain/plain", "equivariant/plain", "equivariant/averaged"):
        assert not bool(scores.collapsed(name).any())


# --- G4 ---


def test_weak_links_hurt(played: Contest) -> None:
    assert played.scores.weak_link_gap() > 0
    assert not any(bool(d.any()) for d in played.scores.diverged.values())
    assert abs(played.scores.gap("equivariant/plain", 50).mean) < 0.2


def test_no_gain_where_the_law_has_no_symmetry() -> None:
    scores = contest(SETTINGS, gaussian_mixture(weights=chapter.SKEWED), (PLAIN, SMART), points=200).scores
    assert scores.gap(PLAIN, 50).high < 0
    assert scores.weak_link_gap((PLAIN,)) < 0


def test_gap_is_the_paired_interval(played: Contest) -> None:
    a, b = (played.scores.values[str(p)]["w1"][0] for p in (PLAIN, SMART))
    expected = ttest_1samp((a - b).numpy(), 0).confidence_interval()
    got = played.scores.gap(PLAIN, 50)
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high))
    assert got.mean == pytest.approx(float((a - b).mean()))
    lost = chapter.interval(torch.tensor([1.0, float("nan")]))
    assert (lost.low, lost.high) == (-math.inf, math.inf)


def test_scores_of_known_samples() -> None:
    law = Mixture(scale=1e-6)
    truth = law.reference((2, 200), torch.Generator().manual_seed(0), torch.float64)
    collapsed = truth.abs()  # everything in one sector, by reflections
    turned = chapter._score(torch.stack([truth[0], collapsed[1]]), truth, law)
    assert float(turned["w1"][0]) == pytest.approx(0, abs=1e-9)
    assert float(turned["smallest_share"][0]) == 0.25
    assert float(turned["smallest_share"][1]) == 0
    # a quarter of the mass stays, half crosses a side of the square, a quarter its diagonal
    assert float(turned["w1"][1]) == pytest.approx(3 * (0.5 * math.sqrt(2) + 0.25 * 2), abs=1e-4)
    assert float(turned["w1_invariant"][1]) < 1e-5
    lost = chapter._score(torch.full((2, 200, 2), float("nan")).double(), truth, law)
    assert bool(lost["w1"].isnan().all())


def test_heavy_tails_are_scored_by_a_bounded_kernel() -> None:
    settings = Settings(seeds=2, samples=(50,), iterations=10, squashed=True)
    scores = contest(settings, student_mixture(), (PLAIN, SMART), points=100).scores
    assert scores.distance == "mmd"
    assert all(0 <= float(v["mmd"].min()) <= float(v["mmd"].max()) < 2**0.5 for v in scores.values.values())
    assert chapter.TURNED in scores.values


# --- why one pairing ties ---


def test_an_equivariant_generator_sees_only_the_symmetric_part(played: Contest) -> None:
    smart, plain = (played.games[name] for name in ("equivariant/plain", "plain/plain"))
    assert float(gradient_gap(smart).max()) < 1e-12
    assert float(gradient_gap(plain).min()) > 0.01
    assert float(gradient_gap(smart, closed=False).min()) > 0.01


@pytest.mark.parametrize("objective", ["jsd", "kl", "wasserstein", "alpha", "relativistic"])
def test_the_identity_holds_for_every_objective(objective: str) -> None:
    settings = Settings(seeds=2, samples=(50,), iterations=3, objective=objective)
    pairings = [Pairing(g, "plain") for g in ("equivariant", "incomplete")]
    right, wrong = play(settings, pairings, gaussian_mixture())
    assert float(gradient_gap(right).max()) < 1e-12 < 1e-2 < float(gradient_gap(wrong).min())


def test_what_is_invisible(played: Contest) -> None:
    shares = {name: invisible_share(game) for name, game in played.games.items()}
    assert float(shares["equivariant/averaged"].max()) < 1e-10
    assert float(shares["equivariant/plain"].min()) > 0.1
    assert float(shares["equivariant/plain"].max()) <= 1


def test_bad_input(played: Contest) -> None:
    scores = played.scores
    for wrong, match in ((("nobody", 50), "pairing"), ((PLAIN, 51), "size")):
        with pytest.raises(ValueError, match=match):
            scores.gap(*wrong)
    with pytest.raises(ValueError, match="pairing"):
        scores.collapsed("nobody")
    with pytest.raises(ValueError, match="ratio"):
        scores.collapsed(PLAIN, ratio=0.5)
    with pytest.raises(ValueError, match="seeds"):
        chapter.interval(torch.ones(1))
    with pytest.raises(ValueError, match="points"):
        contest(SETTINGS, gaussian_mixture(), points=1)
    with pytest.raises(ValueError, match="count"):
        gradient_gap(played.games["plain/plain"], count=0)
