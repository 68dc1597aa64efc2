"""Chapter *Generators of images*: tasks, pairings and their controls, savings."""

import math
from dataclasses import replace

import pytest
import torch

from lib.experiments import gans_on_images as chapter
from lib.experiments.gans_on_images import PLAIN, SMART, Plan, Scores, Task
from lib.gans.pixel_games import Game, play
from lib.gans.pixel_players import Turns
from lib.images.sets import darkest_side
from lib.symmetry.groups import Cyclic, Dihedral
from lib.transport.learning_curves import equivalent_factor

FAST = Game(width=32, iterations=150)
PLAN = Plan(sizes=(24,), seeds=4, game=FAST, fakes=200, shown=4)


@pytest.fixture(scope="module")
def digits() -> Task:
    return chapter.digit_task()


@pytest.fixture(scope="module")
def table(digits: Task) -> dict[str, Scores]:
    return chapter.contest(digits, replace(PLAN, workers=2), (PLAIN, "plain/invariant", SMART))


@pytest.fixture(scope="module")
def upright() -> dict[str, Scores]:
    return chapter.contest(chapter.digit_task("upright"), PLAN, (PLAIN, SMART))


# --- the tasks ---


def test_training_sets_are_nested_and_moved_once(digits: Task) -> None:
    plan = replace(PLAN, sizes=(5, 40), seeds=3)
    sets = chapter.training_sets(digits, plan)
    assert sets.counts.tolist() == [5, 5, 5, 40, 40, 40]
    assert torch.equal(sets.images[:3, :5], sets.images[3:, :5])
    assert torch.equal(sets.labels[:3, :5], sets.labels[3:, :5])
    again = chapter.training_sets(digits, plan)
    assert torch.equal(again.images, sets.images)
    orbits = digits.turns.all(digits.images)
    found = (sets.images[4, :40, None, None] == orbits).all(-1)  # (40, 1200, 4)
    assert bool(found.any(-1).any(-1).all())
    elements = found.any(1).double().argmax(-1)
    assert len(torch.unique(elements)) == 4
    upright = chapter.training_sets(chapter.digit_task("upright"), plan)
    assert bool((upright.images[4, :40, None] == digits.images).all(-1).any(-1).all())


def test_law_has_the_symmetry_it_should(digits: Task) -> None:
    turned = chapter.data_distances(digits, replace(PLAN, sizes=(24, 240)))
    assert bool((turned[1] < turned[0]).all())  # moved copies bring the training set closer to an invariant law
    assert bool((turned[0][1] < turned[0][0]).all())
    plain, spread_out = chapter.data_distances(chapter.digit_task("upright"), PLAN)
    assert bool((spread_out > 3 * plain).all())


def test_tissue_with_the_darkest_side_up_has_lost_the_symmetry() -> None:
    cut, up = chapter.tissue_task(), chapter.tissue_task("darkest side up")
    assert cut.turns.group == Dihedral(4)
    sides = [darkest_side(t.images.unflatten(-1, (3, 8, 8))).bincount(minlength=4) / len(t.images) for t in (cut, up)]
    assert float(sides[0].min()) > 0.15
    assert float(sides[1][0]) > 0.98  # the rest are ties
    plan = replace(PLAN, sizes=(400,))
    distances = [chapter.data_distances(t, plan) for t in (cut, up)]
    assert float(distances[0][1].mean()) < 1.5 * float(distances[0][0].mean())
    assert float(distances[1][1].mean()) > 3 * float(distances[1][0].mean())


def test_eighths() -> None:
    task = chapter.digit_task("eighths", Cyclic(8))
    assert task.turns == Turns(Cyclic(8)) == task.moves
    other = chapter.digit_task("eighths")
    assert other.turns == Turns(Cyclic(4))
    a, b = (chapter.training_sets(t, PLAN) for t in (task, other))
    assert torch.equal(a.images, b.images)
    assert task.classifier.orientations == 8


# --- the pairings ---


def test_double_smart_pair_beats_plain_pair(table: dict[str, Scores], upright: dict[str, Scores]) -> None:
    gap = chapter.ordering_gap(table)
    assert gap.low > 0
    assert gap.low < gap.value < gap.high
    assert chapter.ordering_gap(upright).high < 0  # a law without the symmetry


def test_plain_generator_with_invariant_discriminator_collapses(table: dict[str, Scores]) -> None:
    collapsed, smart = table["plain/invariant"], table[SMART]
    assert float(collapsed.frechet.min()) > 5 * float(smart.frechet.max())
    assert float(collapsed.rarest_orientation.max()) < 0.2
    assert float(smart.rarest_orientation.min()) > 0.6
    # the same players, but for a coin: turned afterwards, the collapsed samples are as good
    assert math.isclose(float(collapsed.turned.mean()), float(smart.frechet.mean()), rel_tol=0.25)


def test_turning_samples_changes_equivariant_generators_little(table: dict[str, Scores]) -> None:
    smart, plain = table[SMART], table[PLAIN]
    assert float((smart.turned / smart.frechet - 1).abs().mean()) < 0.1
    assert float((plain.turned / plain.frechet).max()) < 0.8


def test_scores_have_their_shapes(table: dict[str, Scores]) -> None:
    for scores in table.values():
        assert scores.samples.shape == (1, 4, 4, 64)
        for name in ("frechet", "turned", "coverage", "rarest_class", "rarest_orientation"):
            values = getattr(scores, name)
            assert values.shape == (1, 4)
            assert bool(((values >= 0) & torch.isfinite(values)).all())
        assert float(scores.coverage.max()) <= 1
        assert scores.parameters == table[PLAIN].parameters


def test_controls_change_what_they_say(digits: Task) -> None:
    base = Game(width=48)
    width = chapter.game_of(chapter.EQUAL_WIDTH, base, 4)
    assert (width.generator, width.discriminator, width.width) == ("equivariant", "invariant", 12)
    work = chapter.game_of(chapter.EQUAL_WORK, base, 4)
    assert (work.generator, work.discriminator, work.width) == ("plain", "plain", 96)
    assert chapter.game_of(chapter.TURNED_DATA, base, 4) == replace(base, augmented=True)
    for name in chapter.PAIRINGS:
        game = chapter.game_of(name, base, 4)
        assert f"{game.generator}/{game.discriminator}" == name
        assert game.width == 48
        assert not game.augmented
    smart, plain = (chapter.game_of(n, base, 4).parameters(digits.turns, 10) for n in (SMART, PLAIN))
    assert smart == plain
    assert width.parameters(digits.turns, 10) < plain / 4
    assert work.parameters(digits.turns, 10) > 2 * plain


def test_double_smart_pair_draws_better_tissue() -> None:
    plan = Plan(sizes=(400,), seeds=5, game=Game(iterations=120), fakes=300)
    gap = chapter.tissue_gap(chapter.contest(chapter.tissue_task(), plan, (PLAIN, SMART)))
    assert gap.low > 0
    lost = chapter.tissue_gap(chapter.contest(chapter.tissue_task("darkest side up"), plan, (PLAIN, SMART)))
    assert lost.low < 0


def test_savings(digits: Task) -> None:
    plan = replace(PLAN, sizes=(12, 60), seeds=3)
    curves = chapter.parameter_curves(digits, replace(plan, workers=2), (6, 24))
    parameters = [Game(width=w).parameters(digits.turns, 10) for w in (6, 24)]
    assert all(curve.amounts.tolist() == parameters for curve in curves.values())
    assert equivalent_factor(curves[PLAIN], curves[SMART]).low > 1
    table = chapter.contest(digits, plan, (PLAIN, SMART))
    samples = {name: chapter.sample_curve(plan, scores) for name, scores in table.items()}
    assert equivalent_factor(samples[PLAIN], samples[SMART]).low > 1
    lost = chapter.contest(chapter.digit_task("upright"), plan, (PLAIN, SMART))
    assert equivalent_factor(*(chapter.sample_curve(plan, lost[name]) for name in (PLAIN, SMART))).high < 1


def test_symmetry_of_trained_players(digits: Task) -> None:
    game = chapter.game_of(SMART, FAST, 4)
    played = play(game, digits.turns, chapter.training_sets(digits, PLAN))
    labels = torch.arange(10).expand(4, -1)
    z, which = played.generator.draw(labels, torch.Generator().manual_seed(0), torch.Generator().manual_seed(1))
    image = played.generator(z, which, labels).detach()
    moved = played.generator(z, (which + 1) % 4, labels).detach()
    assert torch.equal(moved, digits.turns.each(image, torch.ones_like(which)))
    scores = [played.discriminator(x, labels).detach() for x in (image, moved)]
    assert float((scores[0] - scores[1]).abs().max() / scores[0].abs().max()) < 1e-5


# --- bad input ---


def test_bad_input(digits: Task) -> None:
    for settings in ({"sizes": ()}, {"sizes": (5, 3)}, {"sizes": (0,)}, {"seeds": 1}, {"fakes": 3}, {"workers": 0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Plan(**settings)
    with pytest.raises(ValueError, match="shown"):
        Plan(fakes=60, shown=61)
    with pytest.raises(ValueError, match="at most 1200"):
        chapter.training_sets(digits, replace(PLAN, sizes=(1201,)))
    with pytest.raises(ValueError, match="law"):
        chapter.digit_task("sideways")
    with pytest.raises(ValueError, match="law"):
        chapter.tissue_task("turned")
    with pytest.raises(ValueError, match="group"):
        chapter.digit_task("turned", Cyclic(8))
    with pytest.raises(ValueError, match="name"):
        chapter.game_of("clever/plain", FAST, 4)
