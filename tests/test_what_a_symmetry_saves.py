"""What the page *Symmetric GANs on tissue* defines: other seeds, other data, and controls that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from skimage.io import imsave

from lib.gans.pixel_games import Game, play
from lib.images.histology import tissue_patches
from lib.images.laws import digit_law, tissue_law
from lib.images.turns import Turns
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic, Dihedral
from lib.transport.invariance import orbit_test
from lib.transport.learning_curves import Curve, equivalent_factor
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("what_a_symmetry_saves", seed=7, seeds=3, steps=150)


# --- the test of the law ---


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_the_test_by_hand_is_that_of_the_library(page: SimpleNamespace, group: Cyclic) -> None:
    x = torch.randn(20, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for sample in (x, x + torch.arange(16) / 8):
        T, p = page.rank_of(sample, Turns(group, 4), torch.Generator().manual_seed(2))
        theirs = orbit_test(sample, pixels(group, 4), torch.Generator().manual_seed(2), 99)
        assert pytest.approx(float(theirs.statistic)) == T
        assert pytest.approx(float(theirs.p_value)) == p
    assert p < 0.05


def test_half_turns_see_what_half_turns_move(page: SimpleNamespace) -> None:
    up = page.darkest_up(tissue_patches(8, spacing=3).train)
    assert page.half_turns(up) < 0.01
    coin = torch.rand(len(up), generator=torch.Generator().manual_seed(3)) < 0.5
    both = torch.where(coin[:, None, None, None], up.rot90(2, (-2, -1)), up)
    assert page.half_turns(both) > 0.01


# --- games ---


def test_laws_that_play_together_do_not_touch_each_other(page: SimpleNamespace) -> None:
    laws = {name: digit_law(name) for name in ("turned", "upright")}
    game = Game(width=12, iterations=4)
    both = page.outcomes(laws, game, [12, 24])
    assert both["turned"]["frechet"].shape == (2, 3)
    whole = page.joined([law.sets([12, 24], page.independent) for law in laws.values()])
    again = play(game, laws["turned"].turns, replace(whole, images=-whole.images), 7)
    assert whole.runs == again.generator.network.runs == 12
    other = {"turned": laws["turned"], "upright": replace(laws["upright"], images=-laws["upright"].images)}
    changed = page.outcomes(other, game, [12, 24])
    assert torch.equal(changed["turned"]["drawn"], both["turned"]["drawn"])
    assert not torch.equal(changed["upright"]["drawn"], both["upright"]["drawn"])


def test_two_smart_players_draw_better_tissue() -> None:
    page = load("what_a_symmetry_saves", seed=7, seeds=5)
    laws = {name: tissue_law(name) for name in ("as cut", "darkest side up")}
    games = page.pairings_of(Game(iterations=120))
    found = {name: page.outcomes(laws, games[name], [400]) for name in (page.PLAIN, page.SMART)}
    gaps = {law: page.median_gap(*(found[name][law]["frechet"][0] for name in found)) for law in laws}
    assert gaps["as cut"].low > 0
    assert gaps["darkest side up"].high < 0


def test_savings(page: SimpleNamespace) -> None:
    laws = {name: digit_law(name) for name in ("turned", "upright")}
    sized = page.against_width(laws, [6, 24])
    free = [Game(width=w).parameters(laws["turned"].turns, 10) for w in (6, 24)]
    assert all(curve.amounts.tolist() == free for curve in sized.values())
    assert equivalent_factor(sized["turned", page.PLAIN], sized["turned", page.SMART]).low > 1
    games = page.pairings_of(Game(width=32, iterations=150))
    found = {name: page.outcomes(laws, games[name], [12, 60]) for name in (page.PLAIN, page.SMART)}
    curves = {(law, name): Curve(torch.tensor([12, 60]), found[name][law]["frechet"]) for law in laws for name in found}
    assert equivalent_factor(curves["turned", page.PLAIN], curves["turned", page.SMART]).low > 1
    assert equivalent_factor(curves["upright", page.PLAIN], curves["upright", page.SMART]).high < 1


def test_a_repeated_training_ends_with_the_same_bits(page: SimpleNamespace) -> None:
    assert page.repeated(digit_law(), 6e-3) == (True, [False] * 3)
    assert page.repeated(digit_law(), 1e30) == (True, [True] * 3)


# --- curves ---


def test_the_factor_by_hand(page: SimpleNamespace) -> None:
    amounts = torch.tensor([10, 40, 160, 640])
    plain = Curve(amounts, 3.0 * amounts[:, None].double() ** -0.5 * torch.ones(3, dtype=torch.float64))
    smart = Curve(amounts, plain.scores / 2)  # a quarter of the amount
    assert page.factor(plain, smart) == pytest.approx(4)
    rng = torch.Generator().manual_seed(1)
    for _ in range(5):
        rough = Curve(amounts, plain.scores * (1 + 0.2 * torch.rand(4, 3, generator=rng, dtype=torch.float64)))
        found = equivalent_factor(rough, smart)
        assert found.covered
        assert page.factor(rough, smart) == pytest.approx(found.value, rel=1e-6)


def test_stored_curves_are_what_they_say(page: SimpleNamespace) -> None:
    curve = page.stored_curve(page.PLAIN, 300)
    assert curve.amounts.tolist() == [10, 24, 60, 120, 400, 1200]
    assert curve.scores.shape == (6, 8)
    assert bool((page.stored_curve(page.SMART, 300).scores[1:].mean(1) < curve.scores[1:].mean(1)).all())
    assert page.stored_widths(page.SMART, 1500).scores.shape == (5, 8)
    with pytest.raises((ValueError, KeyError, RuntimeError)):
        page.stored_curve(page.PLAIN, 17)


# --- a folder of images ---


def test_a_folder_of_pictures_is_a_sample(page: SimpleNamespace, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    for k, picture in enumerate(pictures):
        imsave(tmp_path / f"{k}.png", picture, check_contrast=False)
    alpha = np.concatenate([pictures[0], np.full((16, 16, 1), 255, np.uint8)], -1)
    imsave(tmp_path / "5.png", alpha, check_contrast=False)
    rows = page.from_folder(tmp_path, 8)
    assert rows.shape == (6, 192)
    blocks = pictures.reshape(5, 8, 2, 8, 2, 3).mean((2, 4)).transpose(0, 3, 1, 2).reshape(5, -1) / 127.5 - 1
    np.testing.assert_allclose(rows[:5].numpy(), blocks, atol=1e-6)
    assert torch.equal(rows[5], rows[0])
    with pytest.raises(ValueError, match="PNG"):
        page.from_folder(tmp_path / "nowhere", 8)


@pytest.mark.parametrize("change", [{"group": "C8"}, {"seeds": 1}, {"steps": 10}, {"patches": 5000}])
def test_bad_input(change: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        load("what_a_symmetry_saves", **change)
