"""Equivariant convolutions on the plane: against turned images, the definition, and all equivariant filters."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from lib.gans.planar_convolution import (
    GROUPS,
    Expansion,
    PlanarBatchNorm,
    PlanarConv2d,
    act_on_features,
    act_on_images,
    downsample,
    steerable_basis,
    upsample,
)
from lib.symmetry.actions import pixels, regular
from lib.symmetry.groups import FiniteGroup
from lib.symmetry.haar import OrbitMean

EXACT = ("p4", "p4m")
SYMMETRIC = ("p4", "p4m", "p8")
FIELD_PAIRS = (("plane", "group"), ("group", "group"), ("group", "plane"))


def turned(group: str, g: Tensor, x: Tensor) -> Tensor:
    """Turn images by torch's own rotation and reflection, without any of the package's code."""
    quarters = int(g[0]) // 2 if group == "p8" else int(g[0])
    return torch.rot90(x.flip(-2) if group == "p4m" and g[1] else x, quarters, (-2, -1))


def moved(group: str, g: Tensor, x: Tensor, field: str) -> Tensor:
    """Move every image or feature map by one element; on the group, a's values come from g⁻¹a."""
    if field == "plane":
        return turned(group, g, x)
    G: FiniteGroup = GROUPS[group]
    source = G.index(G.multiply(G.inverse(g), G.elements()))
    return turned(group, g, x.unflatten(1, (-1, G.order))[:, :, source].flatten(1, 2))


def exact_elements(group: str) -> Tensor:
    """Return the elements that keep the grid: all, or the quarter turns of p8."""
    return GROUPS[group].elements()[:: 2 if group == "p8" else 1]


def features(group: str, channels: int, size: int, field: str = "group", seed: int = 0, n: int = 2) -> Tensor:
    order = GROUPS[group].order if field == "group" else 1
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, channels * order, size, size, generator=generator, dtype=torch.float64)


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def in_disc(x: Tensor) -> Tensor:
    """Return the images inside the inscribed circle, less a pixel, where no turn meets the border."""
    ticks = torch.arange(x.shape[-1]) - (x.shape[-1] - 1) / 2
    return x * (torch.hypot(ticks[:, None], ticks) <= x.shape[-1] / 2 - 1)


def smooth_images(n: int, size: int, width: float = 3) -> Tensor:
    """Return images made of bumps of the given width, small near the border."""
    noise = torch.randn(n, 1, size, size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ticks = torch.arange(-9, 10, dtype=torch.float64)
    bump = torch.exp(-(ticks**2) / (2 * width**2))
    away = torch.exp(-(((torch.arange(size) - (size - 1) / 2) / (size / 4)) ** 4)).double()
    smooth = functional.conv2d(noise * away * away[:, None], (bump[:, None] * bump)[None, None], padding="same")
    return smooth / smooth.std()


@given(st.sampled_from(EXACT), st.integers(1, 9), st.integers(0, 99))
def test_actions_agree_with_the_representations(group: str, size: int, seed: int) -> None:
    G, x = GROUPS[group], features(group, 2, size, seed=seed, n=3)
    g = G.sample(3, torch.Generator().manual_seed(seed))
    on_pixels, on_group = pixels(G, size), regular(G)
    vectors = x.reshape(3, 2, G.order, size**2)
    spatial = on_pixels.apply(g[:, None, None], vectors)
    expected = on_group.apply(g[:, None, None], spatial.mT).mT.reshape(x.shape)
    assert torch.equal(act_on_features(group, g, x), expected)
    each = torch.cat([moved(group, a, x[[k]], "group") for k, a in enumerate(g)])
    assert torch.equal(act_on_features(group, g, x), each)
    assert torch.equal(act_on_images(group, g[0], x), turned(group, g[0], x))


def test_eighth_turns_of_images() -> None:
    x = smooth_images(4, 40)
    twice = act_on_images("p8", torch.tensor([1]), act_on_images("p8", torch.tensor([1]), x))
    exact = in_disc(torch.rot90(x, 1, (-2, -1)))
    assert (in_disc(twice) - exact).norm() < 0.06 * exact.norm()
    assert torch.equal(act_on_images("p8", torch.tensor([6]), x), torch.rot90(x, 3, (-2, -1)))
    right = torch.zeros(1, 1, 15, 15)
    right[..., 7, 12] = 1
    place = act_on_images("p8", torch.tensor([1]), right).flatten().argmax()  # from the right to the upper right
    assert divmod(int(place), 15) == (7 - 4, 7 + 4) or divmod(int(place), 15) == (7 - 3, 7 + 3)


@given(st.sampled_from(SYMMETRIC), st.integers(1, 9), st.sampled_from((1, 3, 5)), st.sampled_from(FIELD_PAIRS))
def test_layers_commute(group: str, size: int, kernel: int, fields: tuple[str, str]) -> None:
    torch.manual_seed(size)
    layer = PlanarConv2d(2, 3, group, kernel, *fields).double()
    with torch.no_grad():
        layer.bias.normal_() if fields[1] == "plane" else layer.parametrizations.bias.original.normal_()
    single = PlanarConv2d(2, 3, group, kernel, *fields)
    x = features(group, 2, size, fields[0])
    for g in exact_elements(group):
        there = moved(group, g, x, fields[0])
        assert gap(layer(there), moved(group, g, layer(x), fields[1])) <= 1e-12
        assert gap(single(there.float()), moved(group, g, single(x.float()), fields[1])) <= 1e-5


@pytest.mark.parametrize("group", EXACT)
def test_agrees_with_the_definition(group: str) -> None:
    G, generator = GROUPS[group], torch.Generator().manual_seed(0)
    layer = PlanarConv2d(2, 2, group).double()
    layer.parametrizations.bias.original.data.zero_()
    free = torch.randn(2, 2, G.order * 9, generator=generator, dtype=torch.float64)
    layer.parametrizations.weight.original.data = free
    w, f = free.unflatten(-1, (G.order, 3, 3)), features(group, 2, 4, n=1)
    out = torch.zeros_like(f).unflatten(1, (2, G.order))
    padded = functional.pad(f, (1, 1, 1, 1)).unflatten(1, (2, G.order))
    for a, element in enumerate(G.elements()):
        relative = G.index(G.multiply(G.inverse(element), G.elements()))
        filters = turned(group, element, w[:, :, relative])  # (turned w)(y) = w(a⁻¹y)
        for i in range(4):
            for j in range(4):
                out[:, :, a, i, j] = torch.einsum("oibyx,nibyx->no", filters, padded[..., i : i + 3, j : j + 3])
    assert gap(layer(f), out.flatten(1, 2)) < 1e-12


@pytest.mark.parametrize("group", EXACT)
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_expansion_reaches_every_equivariant_filter(group: str, kernel: int) -> None:
    """The expanded filters are exactly the invariants of R[H] ⊗ R[H] ⊗ R^(k×k), by orbits of index triples."""
    G = GROUPS[group]
    expansion = Expansion(group, kernel, "group", "group")
    filters = expansion(torch.eye(expansion.free, dtype=torch.float64)[:, None]).reshape(expansion.free, -1)
    projection = OrbitMean((regular(G) * regular(G)) * pixels(G, kernel))
    assert projection.rank == expansion.free == int(torch.linalg.matrix_rank(filters))
    invariant = projection(filters.reshape(expansion.free, *projection.representation.shape))
    assert gap(invariant.reshape(filters.shape), filters) < 1e-15


@pytest.mark.parametrize("group", SYMMETRIC)
def test_gradients(group: str) -> None:
    torch.manual_seed(0)
    for fields in FIELD_PAIRS:
        layer = PlanarConv2d(1, 1, group, 3, *fields).double()
        x = features(group, 1, 3, fields[0], n=1).requires_grad_(True)
        weight = layer.parametrizations.weight.original.detach().clone().requires_grad_(True)

        def convolve(x: Tensor, w: Tensor, expand: nn.Module = layer.parametrizations.weight[0]) -> Tensor:
            return functional.conv2d(x, expand(w), padding=1).tanh()

        assert torch.autograd.gradcheck(convolve, (x, weight))
        penalty = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)[0].square().sum()
        assert torch.autograd.grad(penalty, layer.parametrizations.weight.original)[0].norm() > 0


def test_trivial_group_is_an_ordinary_convolution() -> None:
    layer, x = PlanarConv2d(3, 5, "none"), features("none", 3, 6).float()
    assert set(dict(layer.named_parameters())) == {"weight", "bias"}
    assert torch.equal(layer(x), functional.conv2d(x, layer.weight, layer.bias, padding=1))
    ordinary = torch.stack([torch.rot90(layer(x), 1, (-2, -1)), layer(torch.rot90(x, 1, (-2, -1)))])
    assert gap(*ordinary) > 0.1  # the control: without the group nothing commutes


@given(st.sampled_from(SYMMETRIC), st.integers(2, 15))
def test_resizing_commutes(group: str, size: int) -> None:
    x = features(group, 1, size)
    for resize in (upsample, downsample):
        for g in exact_elements(group):
            out = resize(moved(group, g, x, "group"))
            assert gap(out, moved(group, g, resize(x), "group")) <= 1e-12
    assert upsample(x).shape[-1] == 2 * size
    assert downsample(x).shape[-1] == math.ceil(size / 2)
    ones = torch.ones_like(x)
    assert torch.equal(downsample(ones), torch.ones_like(downsample(ones)))


@pytest.mark.parametrize("size", range(5, 13))
def test_strided_convolutions_do_not_commute_on_even_grids(size: int) -> None:
    x = features("p4", 1, size, "plane")
    strided = [functional.avg_pool2d(y, 3, stride=2, padding=1) for y in (torch.rot90(x, 1, (-2, -1)), x)]
    distance = gap(strided[0], torch.rot90(strided[1], 1, (-2, -1)))
    assert distance > 0.1 if size % 2 == 0 else distance < 1e-12


@pytest.mark.parametrize("group", SYMMETRIC)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_commutes_with_an_element_per_image(group: str, training: bool) -> None:
    G, generator = GROUPS[group], torch.Generator().manual_seed(0)
    layer = PlanarBatchNorm(3, group, classes=4).double()
    for table in (layer.gain, layer.shift):
        nn.init.normal_(table.weight)
    labels, x = torch.tensor([0, 3, 1, 1, 2]), features(group, 3, 5, n=5)
    layer(2 * x + 1, labels)  # running statistics other than the initial ones
    layer.train(training)
    elements = exact_elements(group)
    g = elements[torch.randint(len(elements), (5,), generator=generator)]
    assert gap(layer(act_on_features(group, g, x), labels), act_on_features(group, g, layer(x, labels))) <= 1e-12
    plain = nn.BatchNorm2d(3 * G.order).double()
    nn.init.normal_(plain.weight)
    assert gap(plain(act_on_features(group, g, x)), act_on_features(group, g, plain(x))) > 0.1


def test_batch_norm_is_the_ordinary_one_for_one_class() -> None:
    x, labels = features("none", 3, 5), torch.zeros(2, dtype=torch.int64)
    assert torch.allclose(PlanarBatchNorm(3, "none").double()(x, labels), nn.BatchNorm2d(3).double()(x))


@pytest.mark.parametrize("group", EXACT)
def test_normalising_the_free_filter_is_no_bound(group: str) -> None:
    order = GROUPS[group].order
    expand = Expansion(group, 3, "group", "group")
    w = torch.randn(4, 4, expand.free, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    free, whole = (float(torch.linalg.matrix_norm(m.flatten(1), 2)) for m in (w, expand(w)))
    assert free <= whole <= math.sqrt(order) * free
    mean = torch.ones(1, 1, expand.free, dtype=torch.float64)
    whole = float(torch.linalg.matrix_norm(expand(mean).flatten(1), 2))
    assert whole == pytest.approx(math.sqrt(order) * float(mean.norm()))


@pytest.mark.parametrize("group", SYMMETRIC)
def test_training_keeps_the_symmetry(group: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(PlanarConv2d(1, 4, group, source="plane"), nn.ReLU(), PlanarConv2d(4, 4, group), nn.ReLU())
    optimiser, x = torch.optim.Adam(net.parameters(), 0.01), features(group, 1, 7, "plane", n=8).float()
    before = [p.detach().clone() for p in net.parameters()]
    for _ in range(20):
        optimiser.zero_grad()
        (net(x) - x.flip(-1).roll(1, -2)).square().mean().backward()  # a target that has no symmetry
        optimiser.step()
    assert all(gap(p, q) > 0.01 for p, q in zip(net.parameters(), before, strict=True))
    for g in exact_elements(group):
        assert gap(net(moved(group, g, x, "plane")), moved(group, g, net(x), "group")) <= 1e-5


@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_steerable_basis_turns(size: int) -> None:
    basis = steerable_basis(size).unflatten(-1, (size, size))
    assert gap(basis[2:], torch.rot90(basis[:-2], 1, (-2, -1))) < 1e-12
    assert gap(in_disc(act_on_images("p8", torch.tensor([1]), basis))[:-1], in_disc(basis)[1:]) < 0.3
    assert torch.linalg.matrix_rank(basis[0].flatten(1)) == basis.shape[1]


@pytest.mark.parametrize(("group", "low", "high"), [("p8", 1e-3, 0.16), ("none", 0.4, math.inf)])
def test_eighth_turns_commute_approximately(group: str, low: float, high: float) -> None:
    """Relative residual of two layers on smooth images: .1 with eight turns, .5 without, interpolation included."""
    torch.manual_seed(0)
    width = 32 // GROUPS[group].order
    net = nn.Sequential(PlanarConv2d(1, width, group, source="plane"), nn.ReLU(), PlanarConv2d(width, width, group))
    x, g = smooth_images(8, 40, width=1.5), torch.tensor([1])
    y, out = net.double()(act_on_images("p8", g, x)), net(x)
    expected = act_on_features("p8", g, out) if group == "p8" else act_on_images("p8", g, out)
    residual = float((in_disc(y - expected).norm() / in_disc(expected).norm()).detach())
    assert low < residual < high


def test_bad_input() -> None:
    x = torch.zeros(2, 4, 5, 5)
    with pytest.raises(ValueError, match="kernel must be odd"):
        PlanarConv2d(1, 1, "p4", kernel=4)
    with pytest.raises(ValueError, match="source or target must be 'group'"):
        PlanarConv2d(1, 1, "p4", source="plane", target="plane")
    with pytest.raises(ValueError, match="group must be one of"):
        act_on_images("p6", torch.tensor([1]), x)
    with pytest.raises(ValueError, match="images must be square"):
        act_on_images("p4", torch.tensor([1]), x[..., :4])
    with pytest.raises(ValueError, match="elements of C4"):
        act_on_images("p4", torch.tensor([4]), x)
