"""Norms along the training of three architectures (B7): lift, predictors, training, controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from lib.experiments import norm_trajectories as chapter
from lib.page.results import stored
from lib.symmetry.actions import motions, pixels
from lib.symmetry.fourier import GroupFourier, effective_rank, schatten_norm
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import Cyclic, Dihedral
from lib.training.margins import max_margin

SETTINGS = chapter.Settings()
NORMS = ["schatten", "euclidean"]


@pytest.fixture(scope="module")
def norms() -> chapter.Norms:
    return chapter.measure_norms(SETTINGS)


@pytest.fixture(scope="module")
def signed() -> Tensor:
    return chapter.lifted_digits(SETTINGS)


def test_lift_is_equivariant() -> None:
    size, group = 4, motions(4, Dihedral(4))
    action, g = pixels(group, size), group.elements()
    x = torch.randn(3, size * size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f = chapter.lift(x, group, size)
    assert f.shape == (3, group.order)
    assert torch.equal(f[:, group.index(group.identity())], x[:, 0])
    for k in g[::7]:
        moved = group.index(group.multiply(group.inverse(k), g))
        assert torch.equal(chapter.lift(action.apply(k, x), group, size), f[:, moved])


def test_source_lift_is_ours_read_backwards() -> None:
    """The eight turned images, stacked, are u ↦ f(τ(u)⁻¹) with the automorphism τ that reverses the translations."""
    size, H = 4, Dihedral(4)
    G, generator = motions(size, H), torch.Generator().manual_seed(0)
    x = torch.randn(size * size, generator=generator, dtype=torch.float64)
    shift, turn = G.parts(G.elements())
    turned = pixels(H, size).apply(H.elements(), x.expand(H.order, -1))
    stacked = turned[H.index(turn), shift[:, 0] * size + shift[:, 1]]
    reverse = G.join(-shift % size, turn)
    u, v = (torch.randint(G.order, (200,), generator=generator) for _ in range(2))
    product = G.index(G.multiply(G.elements()[u], G.elements()[v]))
    assert torch.equal(G.multiply(reverse[u], reverse[v]), reverse[product])
    ours = chapter.lift(x, G, size)
    assert torch.equal(stacked, ours[G.index(G.inverse(reverse))])
    assert not torch.equal(stacked, ours)
    F = GroupFourier(G)
    torch.testing.assert_close(schatten_norm(F.forward(stacked), 2 / 3), schatten_norm(F.forward(ours), 2 / 3))


def test_every_pixel_appears_as_often_as_its_stabiliser_is_large() -> None:
    group = motions(4, Dihedral(4))
    counts = chapter.lift(torch.arange(16.0), group, 4).long().bincount()
    assert torch.equal(counts, torch.full((16,), 8))


def test_lifted_images_have_blocks_of_rank_one(signed: Tensor) -> None:
    """f_x is constant on the cosets of the stabiliser of a pixel, in which the trivial representation appears once."""
    blocks = GroupFourier(SETTINGS.group).forward(signed)
    for block in blocks:
        assert float(torch.linalg.svdvals(block)[..., 1:].sum()) < 1e-10
    shuffled = signed[..., torch.randperm(signed.shape[-1], generator=torch.Generator().manual_seed(0))]
    second = torch.linalg.svdvals(GroupFourier(SETTINGS.group).forward(shuffled)[-1])[..., 1]
    assert float(second.min()) > 1e-2


def layer_by_layer(name: str, w: list[Tensor], x: Tensor, settings: chapter.Settings) -> Tensor:
    """Return the network's output for one input, computed forwards."""
    groups = {"CNN": Cyclic(settings.group.order), "G-CNN": settings.group, "wrong G-CNN": settings.wrong_group}
    for layer in w[:-1]:
        x = layer @ x if name == "FC" else GroupConvolution(groups[name])(x, layer)
    return x @ w[-1]


@pytest.mark.parametrize("layers", [2, 3, 4])
@pytest.mark.parametrize("name", chapter.NETWORKS)
def test_predictor_is_the_network(name: str, layers: int) -> None:
    settings = chapter.Settings(size=7, layers=layers, width=5)
    shapes, predictor = chapter.network(name, settings)
    assert len(shapes) == layers
    generator = torch.Generator().manual_seed(0)
    w = [torch.randn(2, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    x = torch.randn(settings.group.order, generator=generator, dtype=torch.float64)
    expected = torch.stack([layer_by_layer(name, [a[run] for a in w], x, settings) for run in range(2)])
    assert torch.allclose(predictor(w) @ x, expected, rtol=1e-10)


def test_fourier_coefficients_of_the_predictor() -> None:
    """β̂ = ŵ_3 ŵ_2* ŵ_1*."""
    shapes, predictor = chapter.network("G-CNN", SETTINGS)
    generator, fourier = torch.Generator().manual_seed(0), GroupFourier(SETTINGS.group)
    w = [torch.randn(1, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    first, second, third = (fourier.forward(a) for a in w)
    for found, a, b, c in zip(fourier.forward(predictor(w)), first, second, third, strict=True):
        assert torch.allclose(found, c @ b.mH @ a.mH, rtol=0, atol=1e-8 * float(found.abs().max()))


@pytest.mark.parametrize("name", chapter.NETWORKS)
def test_checkpoints_are_where_the_loss_says(name: str, signed: Tensor) -> None:
    beta = chapter.train(name, signed[:2], SETTINGS)
    margins = (beta[..., None, :] * signed[:2, None]).sum(-1)
    decades = -(torch.logsumexp(-margins, -1) - math.log(SETTINGS.points)) / math.log(10)
    assert bool((decades >= SETTINGS.losses).all())
    assert float((decades[:, 1:] - SETTINGS.losses[1:]).max()) < 0.5  # and not long after
    assert bool((margins > 0).all())


def test_runs_do_not_depend_on_how_many_go_together(signed: Tensor) -> None:
    beta = chapter.train("G-CNN", signed[:2], SETTINGS)
    alone = chapter.train("G-CNN", signed[1:2], SETTINGS, first_run=1)
    assert torch.allclose(alone[0], beta[1], rtol=0, atol=1e-8 * float(beta[1].abs().max()))


def test_fully_connected_network_approaches_the_maximal_margin(signed: Tensor, norms: chapter.Norms) -> None:
    lengths = norms.values["FC"]["euclidean"]
    for run in range(2):
        best = 1 / max_margin(signed[run], torch.ones(SETTINGS.points).double()).margin
        assert best < float(lengths[run, -1]) < 1.12 * best
        assert best < 0.9 * float(norms.values["G-CNN"]["euclidean"][run, -1])


def test_each_architecture_lowers_its_own_norm(norms: chapter.Norms) -> None:
    assert norms.violations("G-CNN", "schatten") == 0
    assert norms.violations("G-CNN", "schatten", chapter.NETWORKS) == 0
    assert norms.violations("FC", "euclidean", chapter.NETWORKS) == 0
    assert norms.violations("wrong G-CNN", "wrong schatten", chapter.NETWORKS) == 0
    assert norms.violations("G-CNN", "schatten", unit_length=True) == 0  # the normalisation of the source
    assert norms.violations("FC", "bridge") == 0


def test_controls_fail_in_every_run(norms: chapter.Norms) -> None:
    assert norms.violations("wrong G-CNN", "schatten", chapter.NETWORKS) == SETTINGS.runs
    assert norms.violations("G-CNN", "euclidean") == SETTINGS.runs
    assert norms.violations("FC", "schatten") == SETTINGS.runs
    assert norms.violations("G-CNN", "renamed schatten") == SETTINGS.runs


def test_norms_are_what_they_say(signed: Tensor) -> None:
    settings = chapter.Settings(runs=1, decades=4, checkpoints=2)
    norms = chapter.measure_norms(settings, ("G-CNN",))
    beta = chapter.train("G-CNN", signed[:1], settings)[0, -1]
    beta = beta / float((signed[0] @ beta).min())
    p = 2 / 3
    found = {name: float(value[0, -1]) for name, value in norms.values["G-CNN"].items()}
    blocks = GroupFourier(settings.group).forward(beta)
    by_hand = sum(b.shape[-1] * (torch.linalg.svdvals(b) ** p).sum() for b in blocks) ** (1 / p)
    assert found["schatten"] == pytest.approx(float(by_hand))
    assert found["bridge"] == pytest.approx(float((beta.abs() ** p).sum() ** (1 / p)))
    assert found["euclidean"] == pytest.approx(float(beta.norm()))
    wrong = GroupFourier(settings.wrong_group).forward(beta)
    assert found["wrong schatten"] == pytest.approx(float(schatten_norm(wrong, p)))
    assert 1 < float(effective_rank(blocks)) < settings.group.order
    assert float(norms.at_unit_length("G-CNN", "euclidean")[0, -1]) == pytest.approx(1)


def test_irreducible_representations_of_both_groups_at_full_size() -> None:
    settings = chapter.Settings(size=28)
    right, wrong = GroupFourier(settings.group), GroupFourier(settings.wrong_group)
    assert dict(zip(right.dims, right.counts, strict=True)) == {1: 8, 2: 6, 4: 78, 8: 78}
    assert dict(zip(wrong.dims, wrong.counts, strict=True)) == {1: 3136, 2: 784}


def test_stored_full_size_result() -> None:
    rows = stored("implicit_bias_in_fourier_space/norms_of_digits").set_index("network")
    values = {name: {norm: torch.tensor(rows.loc[name, norm]) for norm in NORMS} for name in rows.index}
    norms = chapter.Norms(chapter.Settings(size=28), torch.tensor(rows["losses"].iloc[0]), values, 0.0)
    assert norms.violations("G-CNN", "schatten") == norms.violations("FC", "euclidean") == 0
    assert norms.violations("wrong G-CNN", "schatten", chapter.NETWORKS) == 5


def test_bad_input() -> None:
    for change, match in (
        ({"size": 9}, "size must be one of"),
        ({"classes": (1, 1)}, "two different digits"),
        ({"classes": (1, 10)}, "two different digits"),
        ({"points": 5}, "points must be even"),
        ({"runs": 0}, "runs"),
        ({"layers": 1}, "layers"),
        ({"drop": 0.0}, "drop"),
        ({"decades": 1}, "decades"),
    ):
        with pytest.raises(ValueError, match=match):
            chapter.Settings(**change)
    with pytest.raises(ValueError, match="networks must be one of"):
        chapter.measure_norms(SETTINGS, ("RNN",))
    with pytest.raises(ValueError, match="networks must be one of"):
        chapter.measure_norms(SETTINGS, "FC")
    with pytest.raises(ValueError, match="images must have shape"):
        chapter.lift(torch.zeros(3, 10), motions(4), 4)


def test_classes_that_cannot_be_separated_are_reported(signed: Tensor) -> None:
    settings = chapter.Settings(points=2, decades=3, checkpoints=2)
    same = torch.stack([signed[0, 0], -signed[0, 0]])[None]
    with pytest.raises(RuntimeError, match="1 of 1 runs did not reach"):
        chapter.train("FC", same, settings)
    assert np.isfinite(float(signed.sum()))


def test_comparisons_need_known_networks() -> None:
    norms = chapter.Norms(SETTINGS, SETTINGS.losses, {"FC": {k: torch.ones(1, 2) for k in chapter.NORMS}}, 0.0)
    with pytest.raises(ValueError, match="among must be one of"):
        norms.violations("FC", "schatten", ["RNN"])
    with pytest.raises(ValueError, match="among must name another network"):
        norms.violations("FC", "schatten", ["FC"])
    with pytest.raises(ValueError, match="network must be one of"):
        norms.at_unit_length("RNN", "schatten")
    with pytest.raises(ValueError, match="norm must be one of"):
        norms.at_unit_length("FC", "taxicab")
