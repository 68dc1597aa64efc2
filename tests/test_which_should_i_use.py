"""The page that says which to use: what it defines, on other groups and data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.chapters import load

CHAPTER = "which_should_i_use"
page = load(CHAPTER, seed=5, seeds=4)


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("group", "order"), [("C2", 2), ("C4", 4), ("D4", 8)])
def test_images_are_an_orbit(group: str, order: int) -> None:
    x = pictures(5)
    every = page.images(x, group)
    assert every.shape == (5, order, 8, 8)
    assert torch.equal(every[:, 0], x)
    again = page.images(every[:, 1], group)  # the orbit of an image is the orbit, in another order
    assert torch.allclose(again.flatten(2).sort(1).values, every.flatten(2).sort(1).values)


@pytest.mark.parametrize("group", ["C2", "C4", "D4"])
def test_exact_ways_are_invariant_and_the_others_are_not(group: str) -> None:
    x, new = pictures(20), pictures(9, 1)
    y = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    turned = page.images(new, group)[:, -1]
    for name, fit in page.ways(x, y, group, 3).items():
        f = fit(1e-3)
        gap = float((f(turned) - f(new)).abs().max())
        exact = name in ("architecture", "averaging afterwards", "canonical pose")
        assert gap < 1e-10 if exact else gap > 1e-3, name


@pytest.mark.parametrize("group", ["C4", "D4"])
def test_full_augmentation_is_the_architecture(group: str) -> None:
    x, new, y = pictures(12), pictures(7, 1), pictures(12, 2)[:, 0, :3]
    plain, averaged, _ = page.kernels(x, group)
    every = page.images(x, group)
    full = page.ridge_fit(plain, every.flatten(0, 1), y.repeat_interleave(every.shape[1], 0), 1e-2)
    assert torch.allclose(full(new), page.ridge_fit(averaged, x, y, 1e-2)(new), atol=1e-10)
    more = page.with_more(x, y, group, 3, 1e-2, 0)
    assert not torch.allclose(more(new), full(new), atol=1e-4)


def test_ridge_fits_interpolate_and_shrink() -> None:
    x, y = pictures(10), pictures(10, 1)[:, 0, :2]
    plain = page.kernels(x, "C4")[0]
    assert torch.allclose(page.ridge_fit(plain, x, y, 1e-9)(x), y, atol=1e-4)
    assert page.ridge_fit(plain, x, y, 1e6)(x).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["upright", "all poses", "tissue", "six or nine"])
def test_cases_keep_their_parts_apart(name: str) -> None:
    parts = page.case(name, 11, 40)
    assert [len(x) for x, _ in parts][:2] == [40, 20]
    assert len(parts[2][0]) >= 200
    assert all(len(x) == len(y) for x, y in parts)
    known = {tuple(p.flatten().tolist()) for x, _ in parts[:2] for p in x}
    repeated = sum(tuple(p.flatten().tolist()) in known for p in parts[2][0])
    assert repeated <= 1  # two pictures of the set may be equal


def test_the_middle_of_a_patch_is_not_shown() -> None:
    (x, y), _, (new, target) = page.tissue_case(4, 40)
    assert (x[:, 2:6, 2:6] == 0).all()
    assert (new[:, 2:6, 2:6] == 0).all()
    assert abs(float(y.mean())) < 1e-12
    assert abs(float(y.std()) - 1) < 1e-12
    assert target.shape == (500, 1)


def test_advice_covers_all_answers() -> None:
    assert page.advice(False, True, True) == "nothing"
    assert page.advice(True, True, False) == "architecture"
    assert page.advice(True, False, True) == "architecture"
    assert page.advice(True, False, False) == "nothing"
    assert page.advice(True, True, True, can_retrain=False) == "averaging afterwards"


def test_advice_is_near_the_best_at_other_seeds() -> None:
    for name, best in (("all poses", "architecture"), ("six or nine", "nothing"), ("upright", "nothing")):
        found = [page.risks(name, s, 40) for s in (101, 102, 103, 104)]
        mean = {way: np.mean([f[way] for f in found]) for way in found[0]}
        assert mean[best] - min(mean.values()) < 0.05, name
        if name == "all poses":
            assert mean["architecture"] < 0.7 * mean["nothing"]


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "D4", "seeds": 1, "seed": -1, "few": 60, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})
