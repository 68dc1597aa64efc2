"""Chapter *The small print of augmentation*: what its page defines, at other groups and by other routes."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from lib.augmentation.risks import Risks, SmallNetwork
from lib.symmetry.actions import regular
from lib.symmetry.own_groups import named
from tests.chapters import load

GROUPS = ["C4", "S3", "Q8"]


@pytest.fixture(scope="module", params=GROUPS)
def page(request: pytest.FixtureRequest) -> SimpleNamespace:
    return load("small_print_of_augmentation", group=request.param, seed=4, seeds=2, steps=100)


@pytest.fixture(scope="module")
def images() -> SimpleNamespace:
    return load("small_print_of_augmentation", seed=4, seeds=2, steps=100)


# --- section 2 ---


def test_averaging_gains_the_variance(page: SimpleNamespace) -> None:
    """The identity of X15, with both risks from lib and by loops over elements."""
    layers, x, y = page.problem(31)
    V = regular(named(page.group))
    risks = Risks(SmallNetwork([V, V, V]), x, y)
    aug, averaged = page.two_risks(page.LOSSES["square"], layers, x, y)
    assert aug == pytest.approx(float(risks.augmented(layers.flatten())))
    mean = torch.stack([page.phi(layers, x @ g.mT) @ g for g in page.rho]).mean(0)
    assert averaged == pytest.approx(float(0.5 * (mean - y).square().sum(-1).mean()))
    variance = sum(0.5 * (page.phi(layers, x @ g.mT) @ g - mean).square().sum(-1).mean() for g in page.rho) / len(
        page.rho
    )
    assert float(aug - averaged) == pytest.approx(float(variance))


@pytest.mark.parametrize("name", ["square", "distance", "cross-entropy", "levels off"])
def test_losses_are_invariant(page: SimpleNamespace, name: str) -> None:
    _, z, y = page.problem(32)
    loss = page.LOSSES[name]
    for g in page.rho:
        torch.testing.assert_close(loss(z @ g.mT, y @ g.mT), loss(z, y))


@pytest.mark.parametrize("name", ["square", "distance", "cross-entropy"])
def test_convex_losses_never_lose(page: SimpleNamespace, name: str) -> None:
    for s in range(40, 60):
        layers, x, y = page.problem(s)
        aug, averaged = page.two_risks(page.LOSSES[name], 2 * layers, x, y)
        assert averaged <= aug * (1 + 1e-12)


def test_equivariant_layers_gain_nothing(page: SimpleNamespace) -> None:
    layers, x, y = page.problem(33)
    equivariant = page.moved(layers).mean(0)
    aug, averaged = page.two_risks(page.LOSSES["square"], equivariant, x, y)
    assert aug == pytest.approx(float(averaged), rel=1e-12)


# --- section 3 ---


def test_an_invariant_offset_keeps_the_mean_equivariant(page: SimpleNamespace) -> None:
    """X12 at another seed and offset: any multiple of the identity will do; one changed entry will not."""
    d = page.d
    members, x = page.offset_ensemble(torch.full((d,), -0.4, dtype=torch.float64), 34, 60)
    assert float(page.defect(members[-1], x).max()) < 1e-12
    assert (members[-1][0] - members[0][0]).norm() > 0.01  # they have been trained
    diagonal = torch.full((d,), -0.4, dtype=torch.float64)
    diagonal[0] = 1.0
    members, x = page.offset_ensemble(diagonal, 34, 60)
    assert float(page.defect(members[-1], x).max()) > 1e-3


def test_members_stay_in_their_space_and_on_an_orbit(page: SimpleNamespace) -> None:
    d = page.d
    members, _ = page.offset_ensemble(torch.ones(d, dtype=torch.float64), 35, 40)
    end = members[-1]  # (|G|, 2, d, d)
    assert torch.equal(end.diagonal(dim1=-2, dim2=-1), torch.ones(len(end), 2, d, dtype=torch.float64))
    first = int(page.G.index(page.G.identity()))
    torch.testing.assert_close(page.moved(end[first]), end)


def test_steps_descend_on_the_augmented_risk(page: SimpleNamespace) -> None:
    layers, x, y = page.problem(36)
    way = page.train(layers, x, y, 30, rate=0.05)
    risk = [float(page.two_risks(page.LOSSES["square"], A, x, y)[0]) for A in way]
    assert all(b < a for a, b in itertools.pairwise(risk))


def test_compatible_spaces_keep_equivariant_layers(page: SimpleNamespace) -> None:
    free = ~torch.eye(page.d, dtype=torch.bool).repeat(2, 1, 1)
    assert page.outside(free, 37, 50) < 1e-10
    assert page.outside(free & (torch.arange(page.d) > 0), 37, 50) > 1e-3


# --- section 4 ---


def test_batches_that_share_an_element(images: SimpleNamespace) -> None:
    """X13 in another batch, of eight, and with more channels."""
    g = torch.Generator().manual_seed(38)
    x = torch.randn(8, 1, 36, generator=g, dtype=torch.float64)
    free = [torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((5, 36, 1, 36), (2, 36, 5, 36))]
    alike, apart = torch.full((8,), 3), torch.tensor([0, 1, 2, 3, 0, 0, 1, 1])
    for name, norm in images.NORMS.items():
        assert images.lemma(free, x, alike, norm) < 1e-10, name
    assert images.lemma(free, x, apart, images.NORMS["layer norm"]) < 1e-10
    assert images.lemma(free, x, apart, images.NORMS["batch norm"]) > 1e-2
    tied = [sum(parts) / 4 for parts in zip(*(images.turned(free, k) for k in range(4)), strict=True)]
    assert images.lemma(tied, x, apart, images.NORMS["batch norm"]) < 1e-10
    assert images.lemma(tied, x, apart, images.NORMS["batch norm per pixel"]) > 1e-2


def test_norms_are_those_of_torch(images: SimpleNamespace) -> None:
    h = torch.randn(6, 3, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    batch = torch.nn.BatchNorm1d(3, affine=False).double()
    torch.testing.assert_close(images.NORMS["batch norm"](h), batch(h))
    layer = torch.nn.functional.layer_norm(h.transpose(1, 2), (3,)).transpose(1, 2)
    torch.testing.assert_close(images.NORMS["layer norm"](h), layer)


def test_turned_layers_are_an_action(images: SimpleNamespace) -> None:
    layers = [torch.randn(2, 36, 1, 36, generator=torch.Generator().manual_seed(2), dtype=torch.float64)]
    twice = images.turned(images.turned(layers, 1), 1)
    torch.testing.assert_close(twice[0], images.turned(layers, 2)[0])
    torch.testing.assert_close(images.turned(images.turned(layers, 3), 1)[0], layers[0])


def test_a_step_with_the_whole_group_does_not_leave_the_equivariant_layers(images: SimpleNamespace) -> None:
    """The drift is noise of sampling: of the order of one over the root of passes and epochs, not of one."""
    drift = images.drift_of(images.NORMS["layer norm"], torch.full((4,), 0.25), 39, epochs=2, passes=40)
    assert drift < 3 / math.sqrt(2 * 40)


# --- section 5 ---


def test_drawings_say_what_the_networks_are(images: SimpleNamespace) -> None:
    import matplotlib.pyplot as plt

    for title, network in images.ARCHITECTURES.items():
        fig, ax = plt.subplots()
        images.draw_network(ax, title, network)
        texts = {text.get_text() for text in ax.texts}
        assert {images.short(layer.entries) for layer in network.layers} <= texts
        assert {images.short(layer.dim) for layer in network.layers} <= texts
        plt.close(fig)
