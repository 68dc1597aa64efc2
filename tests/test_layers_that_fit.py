"""The page on layers that fit: what it defines, against direct computations and on other groups."""

from __future__ import annotations

import pytest
import torch

from tests.chapters import load

CHAPTER = "layers_that_fit"
page = load(CHAPTER, seed=5)


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
    there = load(CHAPTER, seed=5, group=group)
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
    there = load(CHAPTER, seed=5, group=group)
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


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "S4", "seeds": 0, "seed": -1, "few": 201, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})


@pytest.mark.parametrize("group", ["C2", "C4", "D1", "D2", "D4"])
@pytest.mark.parametrize(("taps", "stride", "side", "pad"), [(3, 2, 8, 1), (3, 3, 8, 1), (4, 3, 11, 2), (5, 4, 11, 1)])
def test_squared_cosines_are_shares_of_orbits(group: str, taps: int, stride: int, side: int, pad: int) -> None:
    left = (side + 2 * pad - taps) % stride
    counted = page.by_counting(taps, left, group)
    assert counted.shape == (taps**2,)
    found = page.squared_cosines(page.convolutions(taps, stride, side, pad), group)
    assert torch.allclose(found, counted, atol=1e-9)
    assert left == 0 or not torch.allclose(found, page.by_counting(taps, 0, group), atol=1e-3)


@pytest.mark.parametrize(("side", "taps", "stride", "pad"), [(8, 3, 2, 1), (9, 3, 2, 1), (8, 5, 3, 0), (10, 4, 3, 2)])
def test_a_reflected_layer_has_its_taps_reversed_and_moved_on(side: int, taps: int, stride: int, pad: int) -> None:
    left = (side + 2 * pad - taps) % stride
    # The same layer with a longer filter, whose further places see the cells beyond the window.
    padded = torch.nn.functional.pad(torch.eye(side**2).double().view(-1, 1, side, side), (pad, pad + taps) * 2)
    size, places = (side + 2 * pad - taps) // stride + 1, taps + left
    filters = torch.eye(places**2).double().view(-1, 1, places, places)
    longer = torch.nn.functional.conv2d(padded, filters, stride=stride)[..., :size, :size].permute(1, 2, 3, 0)
    own = longer.unflatten(0, (places, places))[:taps, :taps]
    assert torch.equal(own.flatten(0, 1).flatten(1, 2), page.convolutions(taps, stride, side, pad))
    layers = longer.unflatten(0, (places, places)).unflatten(-1, (side, side))
    assert torch.equal(layers.flip(3, 5), layers.flip(1))  # along the second axis: outputs and cells, and places
