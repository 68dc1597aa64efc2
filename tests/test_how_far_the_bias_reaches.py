"""Chapter *How far the bias reaches*: what its page defines, at other seeds and by other routes."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from lib.implicit_bias.gradient_flow import train
from lib.implicit_bias.linear_networks import fully_connected, group_convolution
from lib.implicit_bias.margins import one_minus_cosine
from lib.symmetry.fourier import GroupFourier, fourier_rank, singular_pieces
from lib.symmetry.groups import DirectProduct
from lib.symmetry.own_groups import named
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("how_far_the_bias_reaches", seed=3, seeds=2)


# --- section 2 ---


@pytest.mark.parametrize("name", ["S3", "S4", "C2xC2", "D10"])
def test_cuts_are_the_best_of_their_ranks(page: SimpleNamespace, name: str) -> None:
    """Numbers grow to |G|, errors fall, and what is dropped is what Plancherel's identity says.

    (For real representations: a piece of a complex one alone is no real function.)
    """
    G = named(name)
    F, beta = GroupFourier(G), page.gaussian(G.order, 1, 5)[0]
    numbers, cuts = page.fourier_cuts(F, beta)
    assert numbers[-1] == G.order
    assert (numbers.diff() > 0).all()
    torch.testing.assert_close(cuts[-1], beta)
    errors = (cuts - beta).square().sum(-1)
    assert (errors.diff() < 1e-12).all()
    energies = sorted(
        (s.square() * block.shape[-1] / G.order).item()
        for block in F.forward(beta)
        for s in torch.linalg.svdvals(block).flatten()
    )
    dropped = [sum(energies[:k]) for k in reversed(range(len(energies)))]
    assert torch.allclose(errors[:-1], torch.tensor(dropped[:-1], dtype=errors.dtype), atol=1e-9)


def test_numbers_of_a_matrix_of_small_rank(page: SimpleNamespace) -> None:
    """r pieces of one d × d block cost r(2d − r) numbers: the dimension of the matrices of rank r."""
    G = named("S4")
    F = GroupFourier(G)
    blocks = [torch.zeros_like(b) for b in F.forward(torch.zeros(24, dtype=torch.float64))]
    g = torch.Generator().manual_seed(0)
    blocks[-1][0] = torch.randn(3, 3, generator=g, dtype=torch.float64).to(blocks[-1])
    numbers, _ = page.fourier_cuts(F, F.inverse(blocks).real)
    assert numbers[:3].tolist() == [r * (6 - r) for r in (1, 2, 3)]


def test_space_cuts_keep_the_largest_entries(page: SimpleNamespace) -> None:
    count, cuts = page.space_cuts(torch.tensor([0.5, -3.0, 2.0]).double())
    assert count.tolist() == [1, 2, 3]
    assert cuts.tolist() == [[0, -3, 0], [0, -3, 2], [0.5, -3, 2]]


def test_numbers_needed_look_at_the_end_of_the_curve(page: SimpleNamespace) -> None:
    """A share that is reached, lost and reached again counts from the last time on."""
    z, beta = torch.eye(2).double(), torch.ones(2).double()
    predictors = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]).double()
    assert page.numbers_needed((torch.tensor([1, 2, 3, 4]), predictors), beta, z) == 3


def test_numbers_at_the_size_of_the_source(page: SimpleNamespace) -> None:
    """The stored run counts by inner products with the pieces what the page counts with the cut predictors."""
    run, G = load("runs/storage_of_digits"), named("S4")
    F, z = GroupFourier(G), page.gaussian(G.order, 5, 7)
    beta = page.fit(group_convolution(G, 3), z[None], [7], 30.0)[0]
    for cuts, pieces in (
        (page.fourier_cuts(F, beta), singular_pieces(F, beta, z)),
        (page.space_cuts(beta), (beta**2, torch.ones(G.order, dtype=torch.int64), z * beta)),
    ):
        assert run.numbers_needed(*pieces) == page.numbers_needed(cuts, beta, z)


def test_low_rank_saves_numbers(page: SimpleNamespace) -> None:
    """X2 at another seed and on another group: the dihedral one of order 80."""
    G = named("D40")
    z = page.gaussian(80, 6, 77)[None]
    need = {}
    for kind, network in (("G-CNN", group_convolution(G, 3)), ("FC", fully_connected(80, 3))):
        beta = page.fit(network, z, [77], 200.0)[0]
        cuts = page.fourier_cuts(GroupFourier(G), beta), page.space_cuts(beta)
        need[kind] = [page.numbers_needed(c, beta, z[0]) for c in cuts]
    assert need["G-CNN"][0] < min(need["FC"])


# --- section 3 ---


def test_targets_are_what_they_say(page: SimpleNamespace) -> None:
    G = named("S4")
    F = GroupFourier(G)
    for s in (5, 6):
        assert int(fourier_rank(F.forward(page.low_rank(G, s)), 1e-9)) == 3  # one piece of a block of dimension 3
        assert int((page.sparse(G, s) != 0).sum()) == 2


def test_the_error_is_an_angle(page: SimpleNamespace) -> None:
    """The formula of the page against labels of a million points."""
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 5, generator=g, dtype=torch.float64)
    x = torch.randn(1_000_000, 5, generator=g, dtype=torch.float64)
    wrong = ((x @ a).sign() != (x @ b).sign()).double().mean()
    angle = torch.arccos(a @ b / a.norm() / b.norm()) / math.pi
    assert abs(wrong - angle) < 0.002


def test_the_ranking_turns_round(page: SimpleNamespace) -> None:
    """X3 at other seeds, over the dihedral group of order 24: in the mean of twenty problems."""
    G = named("D12")
    numbers = range(200, 220)
    space = load("how_far_the_bias_reaches", group="D12", seeds=2)
    gap = {}
    for name, target in (("low rank", space.low_rank), ("sparse", space.sparse)):
        plain, ours = (
            space.errors(net, target, 48, numbers) for net in (fully_connected(24, 3), group_convolution(G, 3))
        )
        gap[name] = float((plain - ours).mean())
    assert gap["low rank"] > 0 > gap["sparse"]


# --- section 4 ---


def test_pairs_are_differences_of_outputs(page: SimpleNamespace) -> None:
    x, y = page.gaussian(4, 3, 1), torch.tensor([2, 0, 1])
    B = page.gaussian(12, 1, 2)[0]
    outputs = x @ B.unflatten(0, (3, 4)).mT  # (points, classes)
    expected = [outputs[i, y[i]] - outputs[i, k] for i in range(3) for k in range(3) if k != y[i]]
    torch.testing.assert_close(page.pairs(x, y, 3) @ B, torch.stack(expected))


def test_shared_layers_are_one_filter_for_all_classes(page: SimpleNamespace) -> None:
    """Predictors, Jacobian and Hessian of the network with K outputs, against K networks and against autograd."""
    G, K = named("S3"), 3
    net = page.classifier(G, 3, K)
    w = page.start(net, 4)
    *hidden, last = w.split([6, 6, 18])
    single = group_convolution(G, 3)
    B = torch.stack([single.predictor(torch.cat([*hidden, part])) for part in last.split(6)])
    torch.testing.assert_close(net.predictor(w), B.flatten())
    torch.testing.assert_close(net.jacobian(w), torch.autograd.functional.jacobian(net.predictor, w))
    v = page.gaussian(18, 1, 3)[0]
    torch.testing.assert_close(net.vjp(w)[1](v), v @ net.jacobian(w))
    hessian = torch.autograd.functional.hessian(lambda u: net.predictor(u) @ v, w)
    torch.testing.assert_close(net.hessian(w, v), hessian)


def test_several_classes_are_stationary(page: SimpleNamespace) -> None:
    """X4 at another seed and with four classes, on another group; separate hidden layers are no solution."""
    G, K, depth = named("D5"), 4, 3
    net = page.classifier(G, depth, K)
    z = page.pairs(page.gaussian(10, 8, 21), torch.arange(8) % K, K)
    end = train(net, z, torch.ones(len(z)).double(), page.start(net, 21))
    wanted = [(2 / depth, 1.0), (2 / depth, 0.0), (2 / (depth + 1), 1.0)]
    (own, *wrong), apart = page.residuals(GroupFourier(G), end.direction, end.multipliers @ z, K, wanted)
    assert own < 1e-4
    assert all(w > 100 * own for w, a in zip(wrong, apart[1:], strict=True) if a > 0.01)


def test_residuals_know_wrong_answers(page: SimpleNamespace) -> None:
    """At a random vector the conditions are off, and rescaling changes nothing."""
    F = GroupFourier(named("S3"))
    B, g = page.gaussian(18, 2, 8)
    found, _ = page.residuals(F, B, g, 3, [(2 / 3, 1.0)])
    assert found[0] > 0.1
    again, _ = page.residuals(F, 1e3 * B, 1e-3 * g, 3, [(2 / 3, 1.0)])
    assert again[0] == pytest.approx(found[0])


# --- section 5 ---


def test_one_step_of_all_points_is_a_step_of_descent(page: SimpleNamespace) -> None:
    network = group_convolution(named("S3"), 3)
    z = page.gaussian(6, 4, 9)[None]
    w = page.start(network, 9).requires_grad_()
    loss = torch.nn.functional.softplus(-(z[0] @ network.predictor(w))).mean()
    (slope,) = torch.autograd.grad(loss, w)
    found = page.stochastic(network, z, [9], steps=1, batch=4, rate=0.1)[0]
    torch.testing.assert_close(found, network.predictor(w - 0.1 * slope).detach())


def test_stochastic_gradients_keep_the_order(page: SimpleNamespace) -> None:
    """X5 over the dihedral group of order 32, at other seeds: the group convolution has the smallest mean rank."""
    G, numbers = named("D16"), range(300, 305)
    z = torch.stack([page.gaussian(32, 8, s) for s in numbers])
    F, ranks = GroupFourier(G), {}
    for name, network in (("FC", fully_connected(32, 3)), ("G-CNN", group_convolution(G, 3))):
        beta = page.stochastic(network, z, numbers, steps=1500)
        ranks[name] = float(page.effective_rank(F.forward(beta)).mean())
    assert ranks["G-CNN"] < 0.7 * ranks["FC"]


# --- section 6 ---


@pytest.mark.parametrize("name", ["C5", "S3", "Q8"])
def test_the_averaged_inner_product_is_invariant(page: SimpleNamespace, name: str) -> None:
    H = named(name)
    rho = page.skewed(H, 11, 0.2)
    C = page.square_root(rho)
    better = C @ rho @ torch.linalg.inv(C)
    assert float((better.mT @ better - torch.eye(len(C))).abs().max()) < 1e-9
    assert float((rho.mT @ rho - torch.eye(len(C))).abs().max()) > 0.1
    for a, b in itertools.product(range(H.order), repeat=2):  # still a representation
        product = int(H.index(H.multiply(H.elements()[a], H.elements()[b])))
        torch.testing.assert_close(better[a] @ better[b], better[product], atol=1e-8, rtol=0)


def test_the_averaged_inner_product_repairs(page: SimpleNamespace) -> None:
    """X6 on another group at another seed."""
    H = named("D3")
    rho = page.skewed(H, 31)
    x, y = page.invariant_problem(rho, 31)
    C = page.square_root(rho)
    better = C @ rho @ torch.linalg.inv(C)
    apart = []
    for action, points, unitary in ((rho, x, False), (better, x @ C.mT, True)):
        ends = page.two_networks(H, action, points, y, 31, unitary)
        best = page.max_margin(points @ action.mean(0).mT, y).direction
        apart.append(max(float(one_minus_cosine(end, best)) for end in ends))
    assert apart[0] > 0.01
    assert apart[1] < 1e-6


def test_labels_can_be_had_by_an_invariant_functional(page: SimpleNamespace) -> None:
    rho = page.skewed(named("C4"), 12)
    x, y = page.invariant_problem(rho, 12)
    assert (y * (x @ rho.mean(0).mT @ page.max_margin(x @ rho.mean(0).mT, y).vector) > 0).all()


def test_a_product_of_the_classes_with_the_group_is_another_network(page: SimpleNamespace) -> None:
    """What the mutant of X4 trains: over C_3 × G the hidden layers mix the classes."""
    G = named("S3")
    other, ours = group_convolution(DirectProduct(named("C3"), G), 2), page.classifier(G, 2, 3)
    assert other.size == 36
    assert ours.size == 24
