"""The page that says which to use: what it defines, on other groups and data."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from tests.chapters import load

CHAPTER = "which_should_i_use"
page = load(CHAPTER, seed=5, seeds=4)


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("group", "order"), [("C2", 2), ("C4", 4), ("D1", 2), ("D2", 4), ("D4", 8)])
def test_copies_are_an_orbit(group: str, order: int) -> None:
    x = pictures(5)
    every = page.copies(x, group)
    assert every.shape == (5, order, 8, 8)
    assert torch.equal(every[:, 0], x)
    again = page.copies(every[:, 1], group)  # the orbit of a copy is the orbit, in another order
    assert torch.allclose(again.flatten(2).sort(1).values, every.flatten(2).sort(1).values)


@pytest.mark.parametrize("group", ["C2", "C4", "D4"])
def test_exact_ways_are_invariant_and_the_others_are_not(group: str) -> None:
    x, new = pictures(20), pictures(9, 1)
    y = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    turned = page.copies(new, group)[:, -1]
    for name, fit in page.ways(x, y, partial(page.copies, group=group), 3).items():
        f = fit(1e-3)
        gap = float((f(turned) - f(new)).abs().max())
        exact = name in ("architecture", "averaging afterwards", "canonical pose")
        assert gap < 1e-10 if exact else gap > 1e-3, name


@pytest.mark.parametrize("group", ["C4", "D4"])
def test_full_augmentation_is_the_architecture(group: str) -> None:
    x, new, y = pictures(12), pictures(7, 1), pictures(12, 2)[:, 0, :3]
    plain, averaged, _ = page.kernels(x, partial(page.copies, group=group))
    every = page.copies(x, group)
    full = page.ridge_fit(plain, every.flatten(0, 1), y.repeat_interleave(every.shape[1], 0), 1e-2)
    assert torch.allclose(full(new), page.ridge_fit(averaged, x, y, 1e-2)(new), atol=1e-10)
    more = page.with_more(x, y, group, 3, 1e-2, 0)
    assert not torch.allclose(more(new), full(new), atol=1e-4)


def test_ridge_fits_interpolate_and_shrink() -> None:
    x, y = pictures(10), pictures(10, 1)[:, 0, :2]
    plain = page.kernels(x, partial(page.copies, group="C4"))[0]
    assert torch.allclose(page.ridge_fit(plain, x, y, 1e-9)(x), y, atol=1e-4)
    assert page.ridge_fit(plain, x, y, 1e6)(x).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["upright", "all poses", "any slide", "this slide", "six or nine", "half turned"])
def test_cases_keep_their_parts_apart(name: str) -> None:
    parts = page.case(name, 11, 40)
    assert [len(x) for x, _ in parts][:2] == [40, 20]
    assert len(parts[2][0]) >= 200
    assert all(len(x) == len(y) for x, y in parts)
    known = {tuple(p.flatten().tolist()) for x, _ in parts[:2] for p in x}
    repeated = sum(tuple(p.flatten().tolist()) in known for p in parts[2][0])
    assert repeated <= 1  # two pictures of the set may be equal


@pytest.mark.parametrize(("still", "later"), [("upright", "all poses"), ("this slide", "any slide")])
def test_inputs_are_moved_at_work_only(still: str, later: str) -> None:
    (x, _), (v, _), (new, y) = page.case(still, 11, 40)
    (x_too, _), (v_too, _), (moved, y_too) = page.case(later, 11, 40)
    assert torch.equal(x, x_too)
    assert torch.equal(v, v_too)
    assert torch.equal(y, y_too)
    same = (page.copies(new, page.group_of(later)) == moved[:, None]).all((2, 3))  # (n, |G|)
    assert bool(same.any(1).all())
    assert not bool(same[:, 0].all())


def test_a_six_upside_down_is_called_nine() -> None:
    """Every invariant predictor errs on one half of them, whatever it learnt."""
    x, y = page.some_digits(3, [6, 9])
    turned, named = page.all_digits("six or nine", 3)
    flipped = (turned != x).any((1, 2))
    assert torch.equal(named[flipped], y[flipped].flip(1))
    assert torch.equal(named[~flipped], y[~flipped])
    both = torch.cat([x, x.rot90(2, (1, 2))]), torch.cat([y, y.flip(1)])
    fit = page.ridge_fit(page.kernels(x, partial(page.copies, group="C2"))[1], turned[:40], named[:40], 1e-3)
    assert page.wrong_share(fit, *both) == 0.5


def test_the_middle_of_a_patch_is_not_shown() -> None:
    (x, y), _, (new, target) = page.tissue_case(4, 40)
    assert (x[:, 2:6, 2:6] == 0).all()
    assert (new[:, 2:6, 2:6] == 0).all()
    assert abs(float(y.mean())) < 1e-12
    assert abs(float(y.std()) - 1) < 1e-12
    assert target.shape == (500, 1)


def test_a_group_that_is_none_of_the_square_is_refused() -> None:
    with pytest.raises(KeyError, match="S4"):
        page.copies(pictures(2), "S4")


def test_advice_covers_all_answers() -> None:
    """Each way is somebody's advice, and the first row that fits decides."""
    for expected, change in {
        "architecture": {},
        "half of each": {"not_rejected": False},
        "nothing": {"not_rejected": False, "can_retrain": False},
        "the smaller group": {"labels_keep": False, "smaller_group": True, "can_retrain": False},
        "averaging afterwards": {"can_retrain": False, "not_rejected": False, "moved_later": True},
        "full augmentation": {"layers": False},
        "sampled augmentation": {"layers": False, "small_group": False},
        "ensemble": {"layers": False, "many_networks": True},
    }.items():
        assert page.advice(**change) == expected
    assert page.advice(labels_keep=False, moved_later=True) == "nothing"
    assert page.advice(not_rejected=False, moved_later=True) == "architecture"
    assert page.advice(not_rejected=False, smaller_group=True, can_retrain=False) == "the smaller group"
    assert page.advice(smaller_group=True) == "architecture"
    assert page.advice(few_samples=False) == "nothing"
    assert page.advice(few_samples=False, moved_later=True) == "architecture"


def test_averaging_a_fit_that_never_saw_turned_pictures_is_worse_than_nothing() -> None:
    """At other seeds: upright digits are better left to a plain fit, turned ones to its average."""
    for name, better in (("upright", "nothing"), ("all poses", "averaging afterwards")):
        found = [page.risks(name, s, 40) for s in (101, 102, 103, 104)]
        mean = {way: np.mean([f[way] for f in found]) for way in found[0]}
        worse = {"nothing": "averaging afterwards", "averaging afterwards": "nothing"}[better]
        assert mean[better] < mean[worse], name


def test_few_samples_of_two_digits_leave_some_to_be_tested() -> None:
    parts = page.case("six or nine", 3, 800)
    assert len(parts[0][0]) == 2 * len(parts[1][0]) == 180
    assert len(parts[2][0]) > 80


def test_a_report_on_what_a_model_learns_from_sees_upright_digits_and_overlooks_the_slide() -> None:
    seen = {name: [page.rejected(name, s, 40) for s in (101, 102, 103, 104)] for name in ("upright", "this slide")}
    assert all(seen["upright"])
    assert sum(seen["this slide"]) < 3


def test_advice_is_near_the_best_at_other_seeds() -> None:
    for name, best in (("all poses", "architecture"), ("six or nine", "nothing"), ("upright", "half of each")):
        found = [page.risks(name, s, 40) for s in (101, 102, 103, 104)]
        mean = {way: np.mean([f[way] for f in found]) for way in found[0]}
        assert mean[best] - min(mean.values()) < 0.02, name
        if name == "all poses":
            assert mean["architecture"] < 0.7 * mean["nothing"]


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "S4", "seeds": 1, "seed": -1, "few": 201, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})


@pytest.mark.parametrize(("group", "share"), [("C2", 0.5), ("C4", 1.0), ("D4", 0.0), ("D1", 0.25)])
def test_a_share_of_the_kernel_is_averaged(group: str, share: float) -> None:
    x, new, y = pictures(12), pictures(7, 1), pictures(12, 2)[:, 0, :3]
    plain, averaged, _ = page.kernels(x, partial(page.copies, group=group))
    mixed = page.ridge_fit(lambda a, b: share * averaged(a, b) + (1 - share) * plain(a, b), x, y, 1e-2)
    assert torch.allclose(page.by_hand(x, y, new, group, 1e-2, share), mixed(new), atol=1e-10)
    turned = page.by_hand(x, y, page.copies(new, group)[:, -1], group, 1e-2, share)
    assert torch.allclose(turned, mixed(new), atol=1e-8) == (share == 1)


def test_half_turned_pictures_have_the_half_turn_and_no_other_change() -> None:
    x, labels = pictures(400), pictures(400, 1)[:, 0, :2]
    y, kept = page.half_turned(x, labels, 3)
    assert torch.equal(kept, labels)
    same, turned = (y == x).all((1, 2)), (y == x.rot90(2, (1, 2))).all((1, 2))
    assert bool((same ^ turned).all())
    assert 150 < int(turned.sum()) < 250


def test_a_share_of_the_digits_is_turned_and_the_rest_is_not() -> None:
    upright, _ = page.some_digits(3, page.EIGHT)
    for share in (0.0, 0.3, 1.0):
        x, labels = page.partly_turned(3, share)
        moved = page.copies(upright, "C4") == x[:, None]
        found = moved.all((2, 3))  # (n, |G|): which copies it is
        assert bool(found.any(1).all())
        assert abs(float((~found[:, 0]).double().mean()) - 0.75 * share) < 0.04
        assert torch.equal(labels.sum(1), torch.ones(len(x), dtype=torch.float64))


def test_the_share_of_wrong_answers() -> None:
    labels = torch.eye(4, dtype=torch.float64)
    assert page.wrong_share(lambda z: z, labels, labels) == 0
    assert page.wrong_share(lambda z: z.roll(1, 1), labels, labels) == 1
    assert page.wrong_share(lambda z: z[[0, 2, 1, 3]], labels, labels) == 0.5
