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


@pytest.mark.parametrize("group", ["C2", "C4", "D4"])
def test_compatibility_is_the_norm_of_the_commutator(group: str) -> None:
    out, into = page.matrices(4, group), page.matrices(8, group)
    whole = torch.einsum("gab,gij->gaibj", out, into).flatten(3).flatten(1, 2).mean(0)  # Π_E on all maps, 1024²
    rng = torch.Generator().manual_seed(0)
    some = torch.randn(3, 16, 64, dtype=torch.float64, generator=rng)
    for maps in (page.convolutions(3, 2), some):
        L = torch.linalg.qr(maps.flatten(1).mT)[0]
        onto = L @ L.mT
        norm = float(torch.linalg.matrix_norm(onto @ whole - whole @ onto, 2))
        squares = page.squared_cosines(maps, group)
        assert float((squares * (1 - squares)).sqrt().max()) == pytest.approx(norm, abs=1e-9)


def test_a_layer_with_stride_two_has_one_equivariant_filter() -> None:
    """Under quarter turns, whether it is compatible or not."""
    for maps, expected in (
        (page.convolutions(3, 2), [0, 0, 0, 0, 0, 0.25, 0.5, 0.5, 1]),
        (page.convolutions(2, 2), [0, 0, 0, 1]),
    ):
        assert torch.allclose(page.squared_cosines(maps, "C4"), torch.tensor(expected).double(), atol=1e-12)


@pytest.mark.parametrize(
    ("taps", "stride", "side", "compatible"),
    [(1, 1, 8, True), (5, 1, 8, True), (2, 2, 8, True), (5, 2, 8, False), (3, 2, 7, True), (7, 2, 8, False)],
)
def test_layers_that_reach_all_cells_alike_are_compatible(taps: int, stride: int, side: int, compatible: bool) -> None:
    squares = page.squared_cosines(page.convolutions(taps, stride, side), "D4")
    norm = float((squares * (1 - squares)).sqrt().max())
    assert norm < 1e-7 if compatible else norm > 0.1
    said = page.summary(taps, stride, side)
    assert (said["commutator"] == 0) == compatible
    assert sum(int(part.split(" × ")[0]) for part in said["c²"].split(", ")) == taps**2


@pytest.mark.parametrize("group", ["C2", "C4", "D4"])
def test_the_mean_over_the_group_is_equivariant_and_starts_a_layer_there(group: str) -> None:
    there = load(CHAPTER, seed=5, seeds=4, group=group)
    out, into = there.matrices(4, group), there.matrices(8, group)
    maps = there.convolutions(3, 2)
    mean = there.averaged(maps, group)
    for o, i in zip(out, into, strict=True):
        assert torch.allclose(o @ mean @ i.mT, mean, atol=1e-12)
    assert torch.allclose(there.averaged(mean, group), mean, atol=1e-12)
    w = there.initial_weights(maps, 2)[0]
    layer = torch.tensordot(w, maps, 1)
    assert torch.allclose(there.averaged(layer, group), layer, atol=1e-12)
    assert w.norm() > 0.1


@pytest.mark.parametrize("group", ["C2", "D2"])
def test_augmentation_keeps_the_layer_that_fits_and_no_other(group: str) -> None:
    there = load(CHAPTER, seed=5, seeds=4, group=group)
    for side, stays in ((8, False), (9, True), (10, False)):
        path, weights = there.trained(side, 7, steps=10, every=1)
        off = path["distance from E"]
        assert list(path.index) == list(range(11))
        assert off[0] < 1e-10
        assert (off.max() < 1e-10) == stays, side
        assert not stays or bool((path["another answer"] == 0).all())
        assert path["wrong"].between(0, 100).all()
        layer = torch.tensordot(weights[0].detach(), there.convolutions(3, 2, side), 1)
        rest = layer - there.averaged(layer, group)
        assert 100 * float(rest.norm() / layer.norm()) == pytest.approx(off[10], abs=1e-9)  # those of the last step


@pytest.mark.parametrize(("group", "share"), [("C2", 0.5), ("C4", 1.0), ("D4", 0.0), ("D1", 0.25)])
def test_a_share_of_the_kernel_is_averaged(group: str, share: float) -> None:
    x, new, y = pictures(12), pictures(7, 1), pictures(12, 2)[:, 0, :3]
    plain, averaged, _ = page.kernels(x, partial(page.copies, group=group))
    mixed = page.ridge_fit(lambda a, b: share * averaged(a, b) + (1 - share) * plain(a, b), x, y, 1e-2)
    assert torch.allclose(page.by_hand(x, y, new, group, 1e-2, share), mixed(new), atol=1e-10)
    turned = page.by_hand(x, y, page.copies(new, group)[:, -1], group, 1e-2, share)
    assert torch.allclose(turned, mixed(new), atol=1e-8) == (share == 1)


def test_a_network_sees_what_a_convolution_sees() -> None:
    x, (w, b, a) = pictures(3), (torch.rand(size, dtype=torch.float64) - 0.5 for size in ((16, 9), (16,), (16, 4)))
    seen = torch.nn.functional.conv2d(x[:, None], w.view(16, 1, 3, 3), b, stride=2, padding=1)
    assert torch.allclose(page.network(page.windows(x), w, b, a), seen.relu().mean((2, 3)) @ a, atol=1e-12)


def test_convolutions_are_torchs() -> None:
    x, w = pictures(1, 3), torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    by_maps = (w[:, None, None] * page.convolutions(3, 2)).sum(0) @ x.flatten()
    direct = torch.nn.functional.conv2d(x[None], w.view(1, 1, 3, 3), stride=2, padding=1)
    assert torch.allclose(by_maps, direct.flatten(), atol=1e-12)


@pytest.mark.parametrize("group", ["C2", "C4", "D1", "D4"])
def test_centres_move_as_pictures_do(group: str) -> None:
    at = page.centres(3, 1)
    cells = torch.zeros(len(at), 8, 8)
    cells[torch.arange(len(at)), at[:, 0].long(), at[:, 1].long()] = 1
    for k, there in enumerate(page.moved(at, group)):
        assert torch.equal(there, torch.nonzero(page.copies(cells, group)[:, k])[:, 1:].to(at))
    for taps, stride in ((3, 1), (2, 2), (3, 2), (5, 2)):
        windows = page.convolutions(taps, stride).sum(0)  # (outputs, pixels)
        inner = windows.sum(1) == taps**2
        middle = windows @ at.double() / taps**2
        assert torch.allclose(page.centres(taps, stride)[inner].double(), middle[inner])


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
