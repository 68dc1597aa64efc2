"""Training of two players on images: one game, written twice; the same bits from the same settings; divergence."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lib.gans.image_games import (
    PAIRINGS,
    Settings,
    Trained,
    build_players,
    generate,
    match_parameters,
    move_images,
    residuals,
    train,
)
from lib.gans.image_players import parameters
from lib.gans.planar_convolution import GROUPS, act_on_images
from lib.images.sets import digit_images
from lib.page.notebooks import BOOK
from lib.training.ensembles import generator_of

TINY = Settings(
    generator_channels=8,
    discriminator_channels=8,
    latent=8,
    classes=2,
    batch=4,
    iterations=12,
    generator_rate=1e-3,
    discriminator_rate=2e-3,
    ema_decay=0.9,
    augmentation="p4",
)


def bars(count: int = 16) -> tuple[Tensor, Tensor]:
    """Images with a bright upper half (class 0) or right half (class 1), with noise."""
    labels = torch.arange(count) % 2
    x = -torch.ones(count, 1, 8, 8)
    x[labels == 0, :, :4] = 0.8
    x[labels == 1, ..., 4:] = 0.8
    return x + 0.1 * torch.randn(x.shape, generator=generator_of(5)).clamp(-1, 1), labels


IMAGES, LABELS = (t if t.dtype == torch.int64 else t.clamp(-1, 1) for t in bars())


def play(settings: Settings = TINY, **others: Any) -> Trained:
    return train(settings, IMAGES, LABELS, **others)


@pytest.fixture(scope="module")
def whole() -> Trained:
    return play()


def assert_same(a: Trained, b: Trained) -> None:
    """Everything is the same to the last bit."""
    for name in ("generator", "latest", "discriminator"):
        one, two = (getattr(t, name).state_dict() for t in (a, b))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[k], two[k]) for k in one)
    assert a.diverged == b.diverged
    assert torch.equal(a.losses, b.losses)


# --- what a run is ---


def test_a_run_is_complete_and_depends_on_its_settings_only(whole: Trained) -> None:
    assert not whole.diverged
    assert whole.losses.shape == (12, 2)
    assert bool(whole.losses.isfinite().all())
    torch.manual_seed(99)  # the global generator plays no part
    state = torch.get_rng_state()
    assert_same(whole, play())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pairing": "plain/plain", "augmentation": "none", "penalty_weight": 10.0},
        {"group": "p8", "augmentation": "p8", "seed": 3},
    ],
    ids=str,
)
def test_the_game_on_the_page_of_its_run_is_this_one_to_the_last_bit(change: dict) -> None:
    """Plain lines there, checks and history here: two programs for one game."""
    settings = replace(TINY, discriminator_rate=TINY.generator_rate, **change)
    cells = json.loads((BOOK / "runs" / "convolutional_games.ipynb").read_text(encoding="utf-8"))["cells"]
    tagged = ["".join(cell["source"]) for cell in cells if "define" in cell["metadata"].get("tags", [])]
    imports = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    page = asdict(settings) | {"ema": settings.ema_decay, "rate": settings.generator_rate}
    for source in (imports, *tagged):
        exec(source, page)
    generator, discriminator = build_players(settings, 8, 1)
    average = page["play"](generator, discriminator, IMAGES, LABELS, settings.game, settings.iterations)
    run = play(settings)
    for ours, theirs in ((run.generator, average), (run.latest, generator), (run.discriminator, discriminator)):
        one, two = ours.state_dict(), theirs.state_dict()
        floats = [name for name in one if one[name].is_floating_point()]
        assert len(floats) > 5
        assert all(torch.equal(one[name], two[name]) for name in floats)


@pytest.mark.parametrize("change", [{"seed": 1}, {"augmentation": "none"}, {"penalty_weight": 1.0}], ids=str)
def test_every_setting_counts(whole: Trained, change: dict) -> None:
    other = play(replace(TINY, iterations=2, **change))
    assert not torch.equal(other.losses[:, 0], whole.losses[:2, 0])


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("group", ["p4", "p4m"])
def test_trained_players_keep_the_symmetry_and_only_those_that_should(pairing: str, group: str) -> None:
    run = play(replace(TINY, pairing=pairing, group=group, iterations=5, augmentation="none"))
    kind, judge = PAIRINGS[pairing]
    noise = run.generator.draw(LABELS, generator_of(1))
    fake, scores = run.generator(noise), run.discriminator(IMAGES, LABELS).detach()
    gaps, shifts = [], []
    for g in GROUPS[group].elements()[1:]:
        moved = run.generator(run.generator.turn(noise, g)) if kind != "plain" else fake
        gaps.append(float((moved - act_on_images(group, g, fake)).abs().max()))
        turned = run.discriminator(act_on_images(group, g, IMAGES), LABELS).detach()
        shifts.append(float((turned - scores).abs().max()))
    assert max(gaps) <= 1e-5 if kind == "equivariant" else min(gaps) > 1e-3
    assert max(shifts) <= 1e-5 if judge == "invariant" else min(shifts) > 1e-3


def test_average_is_the_recursion_in_its_docstring() -> None:
    expected = build_players(TINY, 8, 1)[0].state_dict()
    for n in range(1, 5):
        run = play(replace(TINY, iterations=n))
        latest, decay = run.latest.state_dict(), (n + 1) / (n + 10)
        expected = {k: decay * expected[k].double() + (1 - decay) * latest[k] for k in latest}
    actual = run.generator.state_dict()
    assert all(torch.allclose(actual[k].double(), expected[k], atol=1e-6) for k in actual if "num_batches" not in k)
    assert any(not torch.allclose(actual[k], latest[k], atol=1e-3) for k in actual)


def test_a_game_is_learnt() -> None:
    """From a hundred steps on, generated images are nearer to the data than before, and know their class."""
    settings = replace(TINY, iterations=120, batch=16, augmentation="none", pairing="plain/plain")
    run, start = play(settings), build_players(settings, 8, 1)[0].eval()
    labels = torch.arange(64) % 2
    means = torch.stack([IMAGES[c == LABELS].mean(0) for c in (0, 1)])

    def distance(x: Tensor) -> float:
        return float(torch.stack([(x[labels == c].mean(0) - means[c]).norm() for c in (0, 1)]).max())

    before, after = (distance(generate(g, labels, generator_of(3))) for g in (start, run.generator))
    assert after < before / 2


def test_generated_images_do_not_depend_on_how_many_are_made_at_once(whole: Trained) -> None:
    labels = torch.arange(8) % 2
    x = generate(whole.generator, labels, generator_of(3))
    assert x.shape == (8, 1, 8, 8)
    assert not x.requires_grad
    with pytest.raises(ValueError, match="batch"):
        generate(whole.generator, labels, generator_of(3), batch=0)


def test_one_class_needs_no_labels() -> None:
    run = train(replace(TINY, classes=1, iterations=1), IMAGES, None)
    assert not run.diverged
    with pytest.raises(ValueError, match="labels must be given for 2 classes"):
        train(TINY, IMAGES, None)


# --- players and images ---


@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
def test_matched_players_have_equal_parameters_or_equal_width(group: str) -> None:
    wide = replace(TINY, generator_channels=64, discriminator_channels=64, group=group)
    plain = [parameters(player) for player in build_players(replace(wide, pairing="plain/plain"), 8, 1)]
    matched = [parameters(player) for player in build_players(match_parameters(wide, 8, 1), 8, 1)]
    assert all(abs(a / b - 1) < 0.15 for a, b in zip(matched, plain, strict=True))
    assert parameters(build_players(wide, 8, 1)[1]) < 0.5 * plain[1]


def test_only_the_symmetric_player_of_a_mixed_pairing_is_matched() -> None:
    settings = match_parameters(replace(TINY, pairing="equivariant/plain"), 8, 1)
    assert settings.generator_channels > settings.discriminator_channels == 8


def test_moved_images_are_turned_ones_and_every_turn_occurs() -> None:
    x = digit_images()[0].images[:40].float()
    moved = move_images("p4", x, generator_of(13))
    found = torch.stack([(torch.rot90(x, k, (-2, -1)) == moved).flatten(1).all(1) for k in range(4)])
    assert bool(found.any(0).all())
    assert bool(found.any(1).all())


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_residuals_tell_which_player_knows_the_group(pairing: str) -> None:
    run = play(replace(TINY, pairing=pairing, iterations=2))
    gaps = residuals(run.generator, run.discriminator, "p4", IMAGES, LABELS)
    for (player, gap), kind in zip(gaps.items(), PAIRINGS[pairing], strict=True):
        assert gap <= 1e-5 if kind in ("equivariant", "invariant") else gap > 1e-3, player


def test_eighth_turns_are_kept_apart() -> None:
    run = play(replace(TINY, group="p8", iterations=2))
    gaps = residuals(run.generator, run.discriminator, "p8", IMAGES, LABELS)
    assert max(gaps["generator"], gaps["discriminator"]) <= 1e-5
    assert gaps["generator_eighths"] > 1e-3


# --- divergence ---


def test_a_run_that_leaves_the_numbers_is_marked_and_ends() -> None:
    run = play(replace(TINY, objective="wasserstein", discriminator_rate=1e25))
    assert run.diverged
    assert len(run.losses) < 12


@pytest.mark.parametrize("player", ["generator", "discriminator"])
def test_weights_that_are_not_finite_are_noticed(player: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = torch.optim.Adam.step

    def poisoned(self: torch.optim.Adam, *arguments: Any) -> Any:
        answer = step(self, *arguments)
        if self.param_groups[0]["lr"] == getattr(TINY, f"{player}_rate"):
            self.param_groups[0]["params"][0].data.view(-1)[0] = math.nan
        return answer

    monkeypatch.setattr(torch.optim.Adam, "step", poisoned)
    assert play(replace(TINY, iterations=1)).diverged


def test_no_step_leaves_the_players_as_they_were() -> None:
    run, start = play(replace(TINY, iterations=0)), build_players(TINY, 8, 1)[0]
    assert run.losses.shape == (0, 2)
    assert all(torch.equal(a, b) for a, b in zip(run.generator.parameters(), start.parameters(), strict=True))


# --- bad input ---


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("pairing", "plain", ValueError),
        ("group", "p3", ValueError),
        ("group", "none", ValueError),
        ("objective", "hinge", ValueError),
        ("penalty_weight", -1.0, ValueError),
        ("penalty_weight", "1", TypeError),
        ("augmentation", "turns", ValueError),
        ("batch", 1, ValueError),
        ("batch", 2.0, TypeError),
        ("iterations", -1, ValueError),
        ("seed", -1, ValueError),
        ("first_beta", 1.0, ValueError),
        ("ema_decay", math.nan, ValueError),
        ("generator_rate", -1e-4, ValueError),
        *((name, 0, ValueError) for name in ("latent", "classes")),
        *((f"{name}_channels", 0, ValueError) for name in ("generator", "discriminator")),
    ],
)
def test_settings_name_what_is_wrong(name: str, value: Any, error: type[Exception]) -> None:
    assert name in {f.name for f in fields(Settings)}
    with pytest.raises(error, match=name):
        replace(TINY, **{name: value})


@pytest.mark.parametrize(
    ("images", "labels", "error", "message"),
    [
        (IMAGES.numpy(), LABELS, TypeError, "images"),
        (IMAGES.long(), LABELS, TypeError, "images"),
        (IMAGES[:, :, :4], LABELS, ValueError, r"images must have shape \(n, c, h, h\)"),
        (IMAGES[:0], LABELS[:0], ValueError, r"images must have shape \(n, c, h, h\)"),
        (IMAGES[None], LABELS, ValueError, r"images must have shape \(n, c, h, h\)"),
        (3 * IMAGES, LABELS, ValueError, r"\[-1, 1\]"),
        (IMAGES * math.nan, LABELS, ValueError, "finite"),
        (IMAGES, LABELS.float(), TypeError, "labels"),
        (IMAGES, LABELS[:3], ValueError, "labels"),
        (IMAGES, LABELS + 1, ValueError, "labels"),
        (IMAGES, LABELS - 1, ValueError, "labels"),
    ],
)
def test_data_name_what_is_wrong(images: Any, labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        train(TINY, images, labels)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="device must name a device of this machine, got 'abacus'"):
        play(device="abacus")
