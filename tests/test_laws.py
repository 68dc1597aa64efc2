"""Laws of small images: what makes them, samples to train on, scores of what is drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lib.images.laws import ImageLaw, digit_law, tissue_law
from lib.images.metrics import gaussian_frechet, moments
from lib.images.sets import darkest_side
from lib.images.turns import Turns
from lib.symmetry.groups import Cyclic, Dihedral


@pytest.fixture(scope="module")
def digits() -> ImageLaw:
    return digit_law()


def own_distances(law: ImageLaw, size: int, seeds: int = 4) -> tuple[Tensor, Tensor]:
    """Return FD of training sets as they are, and with all their moved copies, shape ``(seeds,)``."""
    sets = law.sets([size], range(seeds)).images
    clouds = sets, law.turns.all(sets).flatten(1, 2)
    plain, copied = (gaussian_frechet(moments(law.features(x)), law.truth) for x in clouds)
    return plain, copied


def test_training_sets_are_nested_and_moved_once(digits: ImageLaw) -> None:
    sets = digits.sets([10, 40], [5, 6, 7])
    assert sets.counts.tolist() == [10, 10, 10, 40, 40, 40]
    assert torch.equal(sets.images[:3, :10], sets.images[3:, :10])
    assert torch.equal(sets.labels[:3, :10], sets.labels[3:, :10])
    assert torch.equal(digits.sets([10, 40], [5, 6, 7]).images, sets.images)
    assert torch.equal(digits.sets([40], [6]).images[0], sets.images[4])
    found = (sets.images[4, :40, None, None] == digits.turns.all(digits.images)).all(-1)  # (40, 1200, 4)
    assert bool(found.any(-1).any(-1).all())
    assert len(torch.unique(found.any(1).double().argmax(-1))) == 4
    upright = digit_law("upright").sets([40], [6])
    assert bool((upright.images[0, :, None] == digits.images).all(-1).any(-1).all())


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_the_law_has_the_symmetry_it_should(group: Cyclic) -> None:
    law = digit_law("turned", group)
    few, many = (own_distances(law, size) for size in (24, 240))
    assert bool((few[1] < few[0]).all())  # moved copies bring the training set closer to an invariant law
    assert bool((many[0] < few[0]).all())
    plain, copied = own_distances(digit_law("upright", group), 240)
    assert bool((copied > 3 * plain).all())


def test_tissue_with_the_darkest_side_up_has_lost_the_symmetry() -> None:
    cut, up = tissue_law(), tissue_law("darkest side up")
    assert cut.turns.group == Dihedral(4)
    sides = [darkest_side(t.images.unflatten(-1, (3, 8, 8))).bincount(minlength=4) / len(t.images) for t in (cut, up)]
    assert float(sides[0].min()) > 0.15
    assert float(sides[1][0]) > 0.98  # the rest are ties
    (plain, copied), (up_plain, up_copied) = (own_distances(t, 400) for t in (cut, up))
    assert float(copied.mean()) < 1.5 * float(plain.mean())
    assert float(up_copied.mean()) > 3 * float(up_plain.mean())


def test_eighths() -> None:
    law, other = digit_law("eighths", Cyclic(8)), digit_law("eighths")
    assert law.turns == Turns(Cyclic(8)) == law.moves == other.moves
    assert other.turns == Turns(Cyclic(4))
    assert torch.equal(law.sets([24], [3]).images, other.sets([24], [3]).images)
    assert law.classifier.network.orientations == 8


def test_scores_of_real_broken_and_collapsed_images(digits: ImageLaw) -> None:
    x = digits.moved(digits.images[:600], torch.Generator().manual_seed(1))
    drawn = torch.stack([x, digits.images[:600], torch.full_like(x, torch.nan)])
    scores = digits.scores(drawn, 3)
    assert set(scores) == {"frechet", "turned", "coverage", "rarest_class", "rarest_orientation"}
    for values in scores.values():
        assert values.shape == (3,)
        assert torch.isnan(values).tolist() == [False, False, True]
    assert float(scores["frechet"][0]) < 0.02 < 0.5 < float(scores["frechet"][1])
    assert float(scores["turned"][1]) < 0.02
    assert float(scores["rarest_orientation"][1]) < 0.2 < float(scores["rarest_orientation"][0])
    assert torch.equal(digits.scores(drawn[:1], 3)["frechet"], scores["frechet"][:1])


def test_sizes_are_checked(digits: ImageLaw) -> None:
    for sizes in ([9, 20], [1201]):
        with pytest.raises(ValueError, match=r"sizes must be between 10 and 1200, got"):
            digits.sets(sizes, [0])
    assert tissue_law().sets([3], [0]).runs == 1  # one class
