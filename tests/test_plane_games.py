"""Games in the plane: pairing of runs, batching, symmetry after training, divergence, bad input."""

from dataclasses import replace

import pytest
import torch

from lib.gans import plane_games
from lib.gans.mixtures import Mixture, squash
from lib.gans.plane_games import TURNED, Game, Settings, play
from lib.gans.plane_players import GENERATORS, averaged, noise_representation
from lib.symmetry.actions import trivial
from tests.test_plane_players import broken_by

SMALL = Settings(seeds=2, samples=(60, 20), iterations=40, batch=20, width=16)
SMART = "equivariant/averaged"
PAIRINGS = [f"{g}/{d}" for g in GENERATORS for d in ("plain", "averaged")]


@pytest.fixture(scope="module")
def games() -> dict[str, Game]:
    return play(replace(SMALL, frames=3), PAIRINGS, Mixture())


def end(game: Game) -> torch.Tensor:
    return game.snapshots[-1]


def test_pairings_see_the_same_data_and_noise(games: dict[str, Game]) -> None:
    one, *others = games.values()
    assert one.data.shape == (4, 60, 2)
    assert torch.equal(
        one.data[:2], one.data[2:]
    )  # the same points for both sizes, of which the second uses the first 20
    assert all(torch.equal(one.data, other.data) for other in others)
    same = [games[f"plain/{d}"] for d in ("plain", "averaged")]
    assert torch.equal(same[0].snapshots[0], same[1].snapshots[0])  # equal generators start equal
    assert not torch.equal(end(same[0]), end(same[1]))


def test_pairings_do_not_touch_one_another(games: dict[str, Game]) -> None:
    few = replace(SMALL, iterations=5)
    together = play(few, PAIRINGS, Mixture())
    assert list(together) == PAIRINGS
    for pairing in PAIRINGS[-2:]:
        game, alone = together[pairing], play(few, [pairing], Mixture())[pairing]
        assert torch.allclose(end(alone), end(game), atol=1e-4)
        assert not torch.allclose(end(alone), alone.snapshots[0], atol=1e-2)
    assert alone.snapshots.shape == (2, 4, 150, 2)
    assert games["plain/plain"].times == [0, 20, 40]


def test_small_data_sets_are_respected() -> None:
    batches = plane_games.Batches(SMALL, ["plain/plain"] * 2, Mixture(), 8, "cpu")
    drawn = batches.real().unflatten(0, (2, 4))
    assert torch.equal(drawn[0], drawn[1])
    for run in range(4):
        allowed = batches.data[run, : (60, 60, 20, 20)[run]]
        found = (drawn[0, run][:, None] == allowed).all(-1)
        assert bool(found.any(1).all())
        assert int(found.sum()) == 20  # without repetition


def test_turned_data_are_turned() -> None:
    pairings = ["plain/plain", f"plain/plain{TURNED}"]
    batches = plane_games.Batches(replace(SMALL, seeds=40), pairings, Mixture(), 8, "cpu")
    plain, turned = batches.real().unflatten(0, (2, -1)).unbind()
    which = (Mixture().sector(turned) - Mixture().sector(plain)) % 4
    shares = torch.bincount(which.flatten()) / which.numel()
    assert torch.allclose(plain.norm(dim=-1), turned.norm(dim=-1))
    assert float((shares - 0.25).abs().max()) < 0.05


def test_symmetry_survives_training(games: dict[str, Game]) -> None:
    action = Mixture().representation
    noise = torch.randn(4, 100, 8, generator=torch.Generator().manual_seed(5))
    for pairing, game in games.items():
        assert not bool(game.diverged.any())
        is_averaged = pairing.endswith("averaged")
        judge = averaged(game.judge, action) if is_averaged else game.judge
        generator = broken_by(game.generator, noise, noise_representation(action.group), action)
        assert (generator < 3e-5) == pairing.startswith("equivariant")
        assert (broken_by(judge, game.data, action, trivial(action.group)) < 3e-5) == is_averaged
        assert not torch.equal(game.untrained.parameters[0], game.generator.parameters[0])
        assert not torch.equal(game.last.parameters[0], game.generator.parameters[0])


@pytest.mark.parametrize("name", ["jsd", "kl", "wasserstein", "alpha", "relativistic"])
def test_every_objective_moves_towards_the_law(name: str) -> None:
    settings = Settings(seeds=2, iterations=120, objective=name, average=0.9)
    (game,) = play(settings, [SMART], Mixture()).values()
    radius = game.snapshots.norm(dim=-1).mean((1, 2))
    assert abs(float(radius[-1]) - 3) < abs(float(radius[0]) - 3)


def test_squashed_games_are_played_in_squashed_coordinates() -> None:
    law = Mixture(12, scale=0.2, freedom=0.5)
    game = play(replace(SMALL, squashed=True), [SMART], law)[SMART]
    points = game.draw(50, torch.Generator().manual_seed(0))
    noise = torch.randn(4, 50, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(squash(points), game.generator(noise), rtol=1e-3, atol=1e-4)
    assert float(game.data.norm(dim=-1).max()) > 100  # heavy tails as they are


def test_divergence_is_named_and_stays_in_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(SMALL, iterations=5)
    untouched = end(play(few, [SMART], Mixture())[SMART])
    players = plane_games.players

    def broken(*arguments: object) -> tuple:
        g, d = players(*arguments)
        with torch.no_grad():
            g.parameters[0][1] = float("inf")
        return g, d

    monkeypatch.setattr(plane_games, "players", broken)
    game = play(few, [SMART], Mixture())[SMART]
    assert game.diverged.tolist() == [False, True, False, False]
    assert torch.allclose(end(game)[[0, 2, 3]], untouched[[0, 2, 3]], atol=1e-4)
    squashed = play(replace(few, squashed=True), [SMART], Mixture())[SMART]
    for points in (end(squashed), squashed.draw(3, torch.Generator())):
        assert points.isfinite().flatten(1).all(1).tolist() == [True, False, True, True]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="batch"):
        Settings(samples=(200, 20), batch=50)
    with pytest.raises(ValueError, match="generator"):
        play(SMALL, ["smart/plain"], Mixture())
    for wrong in ("plain/equivariant", "plain", "plain/plain on new data"):
        with pytest.raises(ValueError, match="discriminator"):
            play(SMALL, [wrong], Mixture())
    with pytest.raises(ValueError, match="multiple of 4"):
        play(replace(SMALL, width=18), ["equivariant/plain"], Mixture())
