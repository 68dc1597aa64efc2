"""Chapter *Implicit bias in Fourier space*: the identities of B13, and what fails."""

from __future__ import annotations

import pytest

from lib.experiments import fourier_on_groups as chapter
from lib.experiments import implicit_bias
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.groups import Alternating, Cyclic, Dihedral, DirectProduct, FiniteGroup, Quaternion, Symmetric

CATALOGUE = chapter.catalogue()
PAIRS = chapter.unbraided()
NONABELIAN = [Symmetric(3), Quaternion(8), Dihedral(6), Alternating(4)]


# --- B13 ---


@pytest.mark.parametrize("name", CATALOGUE)
def test_irreducible_representations(name: str) -> None:
    group, census = CATALOGUE[name]
    fourier = GroupFourier(group)
    assert chapter.check_identities(group, fourier, seed=3).worst <= 1e-10
    assert chapter.census_defect(fourier, census) == 0
    assert sum(fourier.counts) == chapter.class_count(group)


@pytest.mark.parametrize("name", PAIRS)
def test_the_direct_product_has_other_representations(name: str) -> None:
    """Its transform is a fine unitary transform, and no Fourier transform of the semidirect product."""
    group, direct = PAIRS[name]
    wrong = GroupFourier(direct)
    seen = chapter.check_identities(group, wrong)
    assert max(seen.unitarity, seen.schur, seen.transform, seen.plancherel, seen.completeness) < 1e-10
    assert min(seen.homomorphism, seen.convolution) > 0.1
    assert chapter.check_identities(direct, wrong).worst < 1e-10


def test_incomplete_sets_are_noticed() -> None:
    fourier = GroupFourier(Symmetric(3))
    fourier.counts = (1, 1)
    assert chapter.census_defect(fourier, {1: 2, 2: 1}) == 1
    assert chapter.census_defect(fourier, {1: 1, 3: 4}) == 4


def test_shortcut_with_a_real_element() -> None:
    assert chapter.shortcut_defect(Dihedral(7)) < 1e-10
    assert chapter.shortcut_defect(Symmetric(4)) < 1e-10
    assert chapter.shortcut_defect(Cyclic(5)) == pytest.approx(1)
    assert chapter.shortcut_defect(Quaternion(8)) == pytest.approx(3)


@pytest.mark.parametrize("group", [*NONABELIAN, Cyclic(6), DirectProduct(Cyclic(2), Cyclic(4))], ids=str)
def test_class_count_by_brute_force(group: FiniteGroup) -> None:
    g = group.elements()
    images = group.index(group.multiply(group.multiply(g[:, None], g), group.inverse(g)[:, None]))
    assert chapter.class_count(group) == len(images.min(0).values.unique())


def test_every_group_of_the_chapter_is_in_the_catalogue() -> None:
    assert {make().name for make in implicit_bias.GROUPS.values()} <= set(CATALOGUE)


def test_identities_refuse_another_order() -> None:
    with pytest.raises(ValueError, match="order 6, got order 8"):
        chapter.check_identities(Symmetric(3), GroupFourier(Quaternion(8)))


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="starts must be between 1"):
        chapter.Settings(starts=0)
