"""Games of convolutional players, played by the cell on the page of their run; against the steps of all other games."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lib.checks import generator_of
from lib.gans.game import follow, step_against
from lib.gans.image_players import JUDGES, KINDS, Discriminator, Generator, players
from lib.gans.objectives import objective
from lib.gans.planar_convolution import GROUPS, act_on_images, move_images
from lib.images.sets import image_set
from lib.page.notebooks import BOOK

HOW = {"rate": 1e-3, "ema": 0.9, "batch": 4, "seed": 0, "augmentation": "p4"}
RULE = objective("relativistic")


def bars(count: int = 16) -> tuple[Tensor, Tensor]:
    """Images with a bright upper half (class 0) or right half (class 1), with noise."""
    labels = torch.arange(count) % 2
    x = -torch.ones(count, 1, 8, 8)
    x[labels == 0, :, :4] = 0.8
    x[labels == 1, ..., 4:] = 0.8
    return (x + 0.1 * torch.randn(x.shape, generator=generator_of(5)).clamp(-1, 1)).clamp(-1, 1), labels


IMAGES, LABELS = bars()


def tiny(pairing: str = "equivariant/invariant", group: str = "p4", **others: Any) -> tuple[Generator, Discriminator]:
    return players(pairing, group, 8, **({"classes": 2, "channels": 8, "latent": 8} | others))


def game_of_the_page(**how: Any) -> Callable:
    """Return ``play`` as the run defines it, under other parameters."""
    cells = json.loads((BOOK / "runs" / "convolutional_games.ipynb").read_text(encoding="utf-8"))["cells"]
    tagged = ["".join(cell["source"]) for cell in cells if "define" in cell["metadata"].get("tags", [])]
    imports = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    page = HOW | how
    for source in (imports, *tagged):
        exec(source, page)
    return page["play"]


def same(a: nn.Module, b: nn.Module) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one if one[name].is_floating_point())


# --- the loop ---


@pytest.mark.parametrize("name", ["relativistic", "alpha"])
@pytest.mark.parametrize(
    ("pairing", "group", "augmentation"), [("plain/plain", "p4", "none"), ("equivariant/invariant", "p8", "p8")]
)
def test_the_game_on_the_page_steps_as_all_games_do(name: str, pairing: str, group: str, augmentation: str) -> None:
    """Two programs for one game: the same weights to the last bit, where no penalty draws points of its own."""
    rule = replace(objective(name), penalty="real", penalty_weight=3.0)
    (g, d), (G, D) = tiny(pairing, group), tiny(pairing, group)
    average = game_of_the_page(augmentation=augmentation)(g, d, IMAGES, LABELS, rule, 5)
    mean, rng = copy.deepcopy(G), generator_of(0, 2)
    adam = [torch.optim.Adam(p.parameters(), 1e-3, (0.0, 0.9)) for p in (G, D)]
    for step in range(5):
        for judging in (True, True, False):
            which = torch.randint(len(IMAGES), (4,), generator=rng)
            x, y = IMAGES[which], LABELS[which]
            x = move_images(augmentation, x, rng) if augmentation != "none" else x
            fake, said = G(G.draw(y, rng)), D(x, y).detach()
            loss = (
                rule.discriminator_loss(lambda z, y=y: D(z, y), x, fake)
                if judging
                else (rule.generator_loss(said, D(fake, y)))
            )
            step_against(loss, adam[judging])
        follow(*(p.state_dict().values() for p in (mean, G)), min(0.9, (2 + step) / (11 + step)))
    assert same(G, g)
    assert same(D, d)
    assert same(mean, average)
    assert not same(G, tiny(pairing, group)[0])


@pytest.mark.parametrize("change", [{"seed": 1}, {"augmentation": "none"}, {"rate": 2e-3}], ids=str)
def test_parameters_count_and_torch_s_own_chance_does_not(change: dict) -> None:
    def weights(**how: Any) -> nn.Module:
        G, D = tiny()
        game_of_the_page(**how)(G, D, IMAGES, LABELS, RULE, 2)
        return D

    torch.manual_seed(99)
    state = torch.get_rng_state()
    first = weights()
    assert torch.equal(torch.get_rng_state(), state)
    assert same(first, weights())
    assert not same(first, weights(**change))


@pytest.mark.parametrize("pairing", [f"{kind}/{judge}" for kind in KINDS for judge in JUDGES])
@pytest.mark.parametrize("group", ["p4", "p4m"])
def test_trained_players_keep_the_symmetry_and_only_those_that_should(pairing: str, group: str) -> None:
    G, D = tiny(pairing, group)
    G = game_of_the_page(augmentation="none")(G, D, IMAGES, LABELS, RULE, 5).requires_grad_(False)
    kind, judge = pairing.split("/")
    noise = G.draw(LABELS, generator_of(1))
    fake, scores = G(noise), D(IMAGES, LABELS).detach()
    gaps, shifts = [], []
    for g in GROUPS[group].elements()[1:]:
        moved = G(G.turn(noise, g)) if kind != "plain" else fake
        gaps.append(float((moved - act_on_images(group, g, fake)).abs().max()))
        shifts.append(float((D(act_on_images(group, g, IMAGES), LABELS).detach() - scores).abs().max()))
    assert max(gaps) <= 1e-5 if kind == "equivariant" else min(gaps) > 1e-3
    assert max(shifts) <= 1e-5 if judge == "invariant" else min(shifts) > 1e-3


def test_a_game_is_learnt() -> None:
    """From a hundred steps on, generated images are nearer to the data than before, and know their class."""
    G, D = tiny("plain/plain")
    start = copy.deepcopy(G).eval()
    trained = game_of_the_page(batch=16, augmentation="none")(G, D, IMAGES, LABELS, RULE, 120)
    labels = torch.arange(64) % 2
    means = torch.stack([IMAGES[c == LABELS].mean(0) for c in (0, 1)])

    def distance(player: Generator) -> float:
        x = player(player.draw(labels, generator_of(3))).detach()
        return float(torch.stack([(x[labels == c].mean(0) - means[c]).norm() for c in (0, 1)]).max())

    assert distance(trained) < distance(start) / 2


def test_a_game_that_leaves_the_numbers_does_not_stop() -> None:
    G, D = tiny()
    game_of_the_page(rate=1e30)(G, D, IMAGES, LABELS, objective("wasserstein"), 3)
    assert not all(bool(w.isfinite().all()) for p in (G, D) for w in p.parameters())


# --- its players ---


@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
def test_players_have_equal_parameters_or_equal_width(group: str) -> None:
    def sizes(pairing: str, matched: bool) -> list[int]:
        return [sum(w.numel() for w in p.parameters()) for p in tiny(pairing, group, channels=64, matched=matched)]

    plain, wide, matched = (
        sizes("plain/plain", True),
        sizes("equivariant/invariant", False),
        sizes("equivariant/invariant", True),
    )
    assert all(abs(a / b - 1) < 0.15 for a, b in zip(matched, plain, strict=True))
    assert wide[1] < 0.5 * plain[1]
    mixed = sizes("equivariant/plain", True)
    assert mixed == [matched[0], plain[1]]


def test_moved_images_are_turned_ones_and_every_turn_occurs() -> None:
    x = image_set("digits")[0].images[:40].float()
    moved = move_images("p4", x, generator_of(13))
    found = torch.stack([(torch.rot90(x, k, (-2, -1)) == moved).flatten(1).all(1) for k in range(4)])
    assert bool(found.any(0).all())
    assert bool(found.any(1).all())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pairing": "plain"}, "discriminator must be one of"),
        ({"channels": 6}, "channels must be a multiple of 4"),
    ],
)
def test_bad_input_is_named(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**wrong)
