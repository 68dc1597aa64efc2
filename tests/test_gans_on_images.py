"""What the page *GANs on images* defines: other seeds, the other group, and controls that fail."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.stats import ttest_rel

from lib.gans.objectives import gradient_penalty, objective
from lib.gans.pixel_games import Game, play
from lib.gans.planar_convolution import PlanarConv2d, act_on_features
from lib.images.laws import digit_law
from lib.images.metrics import coverage, gaussian_frechet, moments
from tests.chapters import load

FAST = Game(width=32, iterations=150)


@pytest.fixture(scope="module", params=["C4", "D4"])
def page(request: pytest.FixtureRequest) -> SimpleNamespace:
    return load("gans_on_images", group=request.param, seed=11, seeds=2)


@pytest.fixture(scope="module")
def four() -> SimpleNamespace:
    return load("gans_on_images", seed=12, seeds=4)


@pytest.fixture(scope="module")
def scores(four: SimpleNamespace) -> pd.DataFrame:
    games = {name: four.games_of(FAST)[name] for name in (four.PLAIN, "plain/invariant", four.SMART)}
    return four.contest(four.law, games, [24])[0]


# --- the layer ---


def test_the_layer_by_hand_is_that_of_the_library_and_commutes(page: SimpleNamespace) -> None:
    name, order = {4: "p4", 8: "p4m"}[page.G.order], page.G.order
    layer = PlanarConv2d(3, 2, name, kernel=5)
    free = layer.parametrizations.weight.original
    assert torch.equal(page.expanded(free.unflatten(-1, (order, 5, 5))), layer.weight)
    maps = torch.randn(2, 3 * order, 7, 7, generator=torch.Generator().manual_seed(1))
    for a, g in enumerate(page.G.elements()):
        assert torch.equal(page.moved_by(a, maps), act_on_features(name, g, maps))
    with torch.no_grad():
        assert page.broken_by(layer, maps) < 1e-5
        assert page.broken_by(torch.nn.Conv2d(3 * order, 2 * order, 3, padding=1), maps) > 0.1


def test_only_symmetric_ways_of_halving_commute(page: SimpleNamespace) -> None:
    for size in (6, 7, 8, 9):
        assert page.turn_gap(page.halved, size) < 1e-12
    assert page.turn_gap(lambda x: x[..., ::2, ::2], 9) < 1e-12
    assert page.turn_gap(lambda x: x[..., ::2, ::2], 8) > 0.1


# --- the game ---


def test_the_objective_and_its_penalty_are_those_of_the_library(page: SimpleNamespace) -> None:
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 30, generator=rng, dtype=torch.float64)
    rules = objective("relativistic")
    assert float(page.H(a, b)) == pytest.approx(float(rules.value(a, b)) - math.log(4))
    assert float(-page.H(b, a)) == pytest.approx(float(rules.generator_loss(a, b)))
    x, w = torch.randn(20, 64, generator=rng), torch.randn(64, generator=rng)
    judge = lambda x, _: (x @ w).sin()  # noqa: E731
    ours = page.steepness(judge, x, None).detach()
    theirs = gradient_penalty(lambda x: judge(x, None), x, x, "real")[1].detach()
    assert float(ours) / 2 == pytest.approx(float(theirs), rel=1e-5)


@pytest.mark.parametrize("pair", [("plain", "invariant"), ("equivariant", "plain"), ("equivariant", "invariant")])
def test_the_loop_on_the_page_is_the_game_of_the_library(page: SimpleNamespace, pair: tuple[str, str]) -> None:
    assert page.same_game(*pair, steps=6) < 1e-9


def test_players_by_hand_know_the_group(page: SimpleNamespace) -> None:
    rng = torch.Generator().manual_seed(1)
    n, order = 7, page.G.order
    widths = [(12, 64 + 10), (12, 12), (1, 12)]
    weights = [t for o, i in widths for t in (torch.randn(o, i, generator=rng), torch.randn(o, generator=rng))]
    x, y = torch.randn(n, 64, generator=rng), torch.arange(n)
    for invariant in (True, False):
        judge = page.Judge(weights, invariant)
        scores = torch.stack([judge(moved, y) for moved in page.every_turn(x)])
        assert (float((scores - scores[0]).abs().max() / scores.abs().max()) < 1e-5) == invariant
    weights[-2:] = torch.randn(64, 12, generator=rng), torch.randn(64, generator=rng)
    weights[0] = weights[0][:, : 16 + 10]
    artist = page.Artist(weights, True)
    z, coin = torch.randn(n, 16, generator=rng), torch.arange(n) % order
    start = artist(z, 0 * coin, y)
    assert torch.equal(artist(z, coin, y), page.every_turn(start)[coin, torch.arange(n)])


def test_the_coin_is_the_only_difference(page: SimpleNamespace) -> None:
    assert page.coin_gap("relativistic") < 1e-3 < page.coin_gap("wasserstein")


# --- the scores ---


def test_scores_by_hand(page: SimpleNamespace) -> None:
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(60, 5, generator=rng, dtype=torch.float64)
    y = 0.3 + torch.randn(50, 5, generator=rng, dtype=torch.float64) * torch.arange(1, 6)
    assert page.frechet(x, y) == pytest.approx(float(gaussian_frechet(moments(x), moments(y))), rel=1e-9)
    C, B = x.T.cov().numpy(), y.T.cov().numpy()
    apart = float((x.mean(0) - y.mean(0)).square().sum())
    expected = apart + np.trace(C + B) - 2 * np.trace(sqrtm(sqrtm(C) @ B @ sqrtm(C))).real
    assert page.frechet(x, y) == pytest.approx(expected, rel=1e-6)
    white = x @ torch.linalg.inv(torch.linalg.cholesky(x.T.cov())).T  # of covariance 1: 2d + d(d + 1)/2 over n
    d = x.shape[1]
    assert page.foretold(white, 10) == pytest.approx((2 * d + d * (d + 1) / 2) / 10)
    assert page.covered(x, y) == pytest.approx(float(coverage(x, y)))
    assert page.covered(x, x) == 1


def test_the_forecast_of_the_bias_holds(page: SimpleNamespace) -> None:
    rng = torch.Generator().manual_seed(4)
    scale = torch.tensor([1.0, 0.5, 0.2, 0.1], dtype=torch.float64)
    pairs = torch.randn(300, 2, 100, 4, generator=rng, dtype=torch.float64) * scale
    found = np.mean([page.frechet(x, y) for x, y in pairs])
    assert found == pytest.approx(page.foretold(pairs.flatten(0, 2), 100), rel=0.1)


def test_training_sets_by_hand(page: SimpleNamespace) -> None:
    for s in (0, 4_321):
        images, labels = page.training_set(30, s)
        theirs = page.law.sets([30], [s])
        assert torch.equal(images, theirs.images[0])
        assert torch.equal(labels, theirs.labels[0])


def test_the_interval_is_that_of_a_paired_t_test(page: SimpleNamespace) -> None:
    a, b = np.random.default_rng(1).standard_normal((2, 6))
    mean, low, high = page.paired(a, b)
    assert (low, high) == pytest.approx(tuple(ttest_rel(a, b).confidence_interval(0.95)))
    assert mean == pytest.approx((low + high) / 2)


# --- the contest ---


def test_games_differ_in_what_their_names_say(page: SimpleNamespace) -> None:
    games, turns, order = page.games_of(Game(width=48)), page.law.turns, page.G.order
    assert len(games) == 8
    for name in page.PAIRINGS:
        assert games[name].pairing == name
        assert games[name].width == 48
    free = {name: game.parameters(turns, 10) for name, game in games.items()}
    assert free[page.SMART] == free[page.PLAIN] == free["plain/plain, turned data"]
    assert games["plain/plain, turned data"] == replace(games[page.PLAIN], augmented=True)
    assert games["equivariant/invariant, equal width"].width == 48 // order
    assert free["equivariant/invariant, equal width"] < free[page.PLAIN] / 4
    assert free["plain/plain, equal work"] > 2 * free[page.PLAIN]


def test_two_smart_players_beat_two_plain_ones(four: SimpleNamespace, scores: pd.DataFrame) -> None:
    fd = scores["frechet"]
    assert four.paired(fd[four.PLAIN, 24], fd[four.SMART, 24])[1] > 0
    games = {name: four.games_of(FAST)[name] for name in (four.PLAIN, four.SMART)}
    wrong = four.contest(digit_law("upright"), games, [24])[0]["frechet"]
    assert four.paired(wrong[four.PLAIN, 24], wrong[four.SMART, 24])[2] < 0  # a law without the symmetry


def test_an_invariant_discriminator_alone_collapses_and_a_coin_undoes_it(
    four: SimpleNamespace, scores: pd.DataFrame
) -> None:
    collapsed, smart, plain = (scores.loc[name] for name in ("plain/invariant", four.SMART, four.PLAIN))
    assert collapsed["frechet"].min() > 5 * smart["frechet"].max()
    assert collapsed["rarest_orientation"].max() < 0.2
    assert smart["rarest_orientation"].min() > 0.6
    assert collapsed["turned"].mean() == pytest.approx(smart["frechet"].mean(), rel=0.25)
    assert (smart["turned"] / smart["frechet"] - 1).abs().mean() < 0.1
    assert (plain["turned"] / plain["frechet"]).max() < 0.8


def test_a_game_that_diverges_is_a_row_of_nan(four: SimpleNamespace) -> None:
    wild = {"wild": Game(width=8, iterations=5, rate=1e30), "tame": Game(width=8, iterations=5)}
    found = four.contest(four.law, wild, [12])[0]
    assert found.loc["wild"].isna().all().all()
    assert not found.loc["tame"].isna().any().any()


def test_symmetry_of_trained_players(four: SimpleNamespace) -> None:
    law, game = four.law, four.games_of(FAST)[four.SMART]
    played = play(replace(game, iterations=30), law.turns, law.sets([24], [1, 2]))
    labels = torch.arange(10).expand(2, -1)
    z, which = played.generator.draw(labels, torch.Generator().manual_seed(0), torch.Generator().manual_seed(1))
    image = played.generator(z, which, labels).detach()
    moved = played.generator(z, (which + 1) % 4, labels).detach()
    assert torch.equal(moved, law.turns.each(image, torch.ones_like(which)))
    scores = [played.discriminator(x, labels).detach() for x in (image, moved)]
    assert float((scores[0] - scores[1]).abs().max() / scores[0].abs().max()) < 1e-5


@pytest.mark.parametrize("change", [{"group": "C3"}, {"seeds": 1}, {"steps": 10}, {"seed": -1}, {"device": "abacus"}])
def test_bad_input(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        load("gans_on_images", **change)
