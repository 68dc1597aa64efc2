"""Chapter *Implicit bias in Fourier space*: the identities of B13, the uncertainty principle of B5, what fails."""

from __future__ import annotations

import pytest
import torch
from sympy import Matrix

from lib.experiments import fourier_on_groups as chapter
from lib.experiments import implicit_bias, norm_trajectories, uncertainty
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
    groups = [make() for make in implicit_bias.GROUPS.values()] + [group for group, _ in uncertainty.arena()]
    live = norm_trajectories.Settings()
    full = norm_trajectories.Settings(size=28)
    groups += [setting.group for setting in (live, full)] + [setting.wrong_group for setting in (live, full)]
    assert {group.name for group in groups} <= set(CATALOGUE)


def test_identities_refuse_another_order() -> None:
    with pytest.raises(ValueError, match="order 6, got order 8"):
        chapter.check_identities(Symmetric(3), GroupFourier(Quaternion(8)))


# --- exact arithmetic ---


def test_rank_modulo_a_prime_against_sympy() -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(-4, 5, (20, 6, 3), generator=generator)
    right = torch.randint(-4, 5, (20, 3, 7), generator=generator)
    products = left @ right
    assert uncertainty.rank_modulo(products).tolist() == [Matrix(m.tolist()).rank() for m in products]
    full = torch.randint(-9, 10, (20, 5, 5), generator=generator)
    assert uncertainty.rank_modulo(full).tolist() == [Matrix(m.tolist()).rank() for m in full]


def test_a_small_prime_can_lower_the_rank() -> None:
    matrix = torch.tensor([[[2, 0], [0, 1]]])
    assert uncertainty.rank_modulo(matrix, 2).tolist() == [1]
    assert uncertainty.rank_modulo(matrix, 3).tolist() == [2]
    assert uncertainty.rank_modulo(torch.zeros(1, 3, 3, dtype=torch.int64)).tolist() == [0]


@pytest.mark.parametrize("group", NONABELIAN, ids=str)
def test_subgroups(group: FiniteGroup) -> None:
    found = uncertainty.random_subgroups(group, 60, torch.Generator().manual_seed(0))
    table = group.cayley_table()
    for members in found:
        assert torch.equal(torch.unique(table[members[:, None], members]), members)
        assert group.order % len(members) == 0
    assert len({tuple(m.tolist()) for m in found}) == len(found)


def test_all_subgroups_of_s3_and_q8() -> None:
    for group, number in ((Symmetric(3), 6), (Quaternion(8), 6)):
        assert len(uncertainty.random_subgroups(group, 100, torch.Generator().manual_seed(0))) == number


# --- B5 ---


@pytest.mark.parametrize("group", [*NONABELIAN, Cyclic(12)], ids=str)
def test_meshulam(group: FiniteGroup) -> None:
    generator = torch.Generator().manual_seed(4)
    for kind in ("sparse", "low-rank", "coset"):
        seen = uncertainty.measure_uncertainty(group, uncertainty.draw_functions(group, kind, 100, generator))
        assert int(seen.surplus.min()) >= 0
        assert torch.equal(seen.rank, seen.floating_rank)
        assert bool((seen.rank <= seen.different_rows).all())
        if kind == "coset":
            assert int(seen.defect.max()) == 0
    scattered = uncertainty.measure_uncertainty(group, uncertainty.draw_functions(group, "scattered", 100, generator))
    assert int(scattered.surplus.min()) > 0


@pytest.mark.parametrize("group", NONABELIAN, ids=str)
def test_without_weights_the_principle_fails(group: FiniteGroup) -> None:
    """A point mass has support 1 and Σ rank f̂(ρ) = Σ d_ρ < |G|."""
    seen = uncertainty.measure_uncertainty(group, torch.eye(group.order, dtype=torch.int64))
    fourier = GroupFourier(group)
    degrees = sum(d * n for d, n in zip(fourier.dims, fourier.counts, strict=True))
    assert seen.surplus.tolist() == [0] * group.order
    assert seen.unweighted_surplus.tolist() == [degrees - group.order] * group.order
    assert degrees < group.order


def test_without_weights_nothing_changes_on_an_abelian_group() -> None:
    f = uncertainty.draw_functions(Cyclic(8), "sparse", 50, torch.Generator().manual_seed(0))
    seen = uncertainty.measure_uncertainty(Cyclic(8), f)
    assert torch.equal(seen.surplus, seen.unweighted_surplus)


def test_kinds_of_functions() -> None:
    group, generator = Symmetric(4), torch.Generator().manual_seed(1)
    cosets = uncertainty.draw_functions(group, "coset", 200, generator)
    values = cosets.amax(-1, keepdim=True)
    assert bool(((cosets == 0) | (cosets == values)).all())
    assert {24 % int(n) for n in (cosets != 0).sum(-1)} == {0}
    scattered = uncertainty.draw_functions(group, "scattered", 200, generator)
    assert {24 % int(n) for n in scattered.sum(-1)} == {0}
    seen = uncertainty.measure_uncertainty(group, uncertainty.draw_functions(group, "low-rank", 200, generator))
    assert int(seen.rank.min()) <= 2
    assert int(seen.rank.max()) <= 12


def test_arena_is_large_enough_for_the_claim() -> None:
    arena = uncertainty.arena(chapter.Settings().functions)
    kept = [
        len(uncertainty.draw_functions(group, kind, count, torch.Generator().manual_seed(3)))
        for group, count in arena
        for kind in ("sparse", "low-rank", "coset")
    ]
    assert sum(kept) >= 10_000
    assert len({group.name for group, _ in arena}) == len(arena)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="functions must be between 150"):
        chapter.Settings(functions=3)
    with pytest.raises(ValueError, match="runs must be between 1"):
        chapter.Settings(runs=0)
    with pytest.raises(ValueError, match="functions must be at least 150"):
        uncertainty.arena(1)


def test_bad_functions() -> None:
    with pytest.raises(TypeError, match="int64 for an exact rank"):
        uncertainty.measure_uncertainty(Cyclic(3), torch.ones(1, 3))
    with pytest.raises(ValueError, match="nonzero functions"):
        uncertainty.measure_uncertainty(Cyclic(3), torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"f must have shape \(..., 3\)"):
        uncertainty.measure_uncertainty(Cyclic(3), torch.ones(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="kind must be one of"):
        uncertainty.draw_functions(Cyclic(3), "dense", 5, torch.Generator())
    for prime in (1, 6):
        with pytest.raises(ValueError, match="prime must be"):
            uncertainty.rank_modulo(torch.ones(1, 2, 2, dtype=torch.int64), prime)
    with pytest.raises(TypeError, match="matrices must be int64"):
        uncertainty.rank_modulo(torch.ones(1, 2, 2))
    with pytest.raises(ValueError, match="proper nontrivial subgroup"):
        uncertainty.draw_functions(Cyclic(5), "scattered", 5, torch.Generator())
    with pytest.raises(ValueError, match="chunk"):
        uncertainty.measure_uncertainty(Cyclic(3), torch.ones(1, 3, dtype=torch.int64), chunk=0)
