"""What the page *Sparse in frequency, dense in space* defines: other seeds, other groups, and controls that fail."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from sympy import Matrix
from torch import Tensor

from lib.implicit_bias.linear_networks import circular_convolution, fully_connected, group_convolution
from lib.implicit_bias.log_loss_descent import log_exponential_loss
from lib.implicit_bias.margins import max_margin
from lib.page.results import stored
from lib.symmetry.actions import motions, pixels, translations
from lib.symmetry.fourier import GroupFourier, effective_rank, fourier_rank, schatten_norm
from lib.symmetry.group_convolution import GroupConvolution
from lib.symmetry.groups import Cyclic, Dihedral, DirectProduct, FiniteGroup
from lib.symmetry.own_groups import named
from tests.chapters import load

NAMES = ["S3", "Q8", "C12", "D6", "A4", "C7:C3"]
NONABELIAN = ["S3", "Q8", "D6", "A4"]
NETWORKS = ["ReLU FC", "ReLU G-CNN", "scrambled ReLU G-CNN", "linear G-CNN"]
DEGREE = 2
STORED = "implicit_bias_in_fourier_space"


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("bias_and_uncertainty", seed=11, seeds=5, runs=2)


@pytest.fixture(scope="module")
def rotations(page: SimpleNamespace) -> SimpleNamespace:
    return page.OnRotations(DEGREE)


@pytest.fixture(scope="module")
def dihedral(page: SimpleNamespace) -> SimpleNamespace:
    return page.OnGroup(Dihedral(30))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def convolved(group: FiniteGroup, h: Tensor, w: Tensor) -> Tensor:
    """Σ_v h(uv⁻¹) w(v), term by term."""
    u, out = group.elements(), torch.zeros_like(h)
    for v in range(group.order):
        out += h[group.index(group.multiply(u, group.inverse(u[v])))] * w[v]
    return out


# --- by hand ---


@pytest.mark.parametrize("name", NAMES)
def test_convolutions_by_hand(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    x, *w = normal(5, group.order)
    assert torch.allclose(page.convolution_matrix(group, x) @ w[0], convolved(group, x, w[0]))
    h = x
    for filters in w[:-1]:
        h = convolved(group, h, filters)
    beta = page.convolutional(group, w)
    assert torch.isclose(x @ beta, h @ w[-1])
    assert torch.allclose(beta, group_convolution(group, 4).predictor(torch.cat(w)))
    batch = [torch.stack([a, -2 * a]) for a in w]
    assert torch.allclose(page.convolutional(group, batch)[1], 16 * beta)


def test_dense_networks_by_hand(page: SimpleNamespace) -> None:
    w = [normal(3, 7), normal(3, 3, seed=1), normal(3, seed=2)]
    flat = torch.cat([a.flatten() for a in w])
    assert torch.allclose(page.dense(w), fully_connected(7, 3, 3).predictor(flat))
    assert torch.allclose(page.flat(fully_connected(7, 3, 3), [a[None] for a in w])[0], page.dense(w))


def test_effective_numbers(page: SimpleNamespace) -> None:
    assert page.effective(torch.tensor([3.0, 0.0, 3.0, 3.0])) == pytest.approx(3)
    assert page.effective(torch.ones(2, 5)).tolist() == pytest.approx([5, 5])
    f = normal(4, 24)
    singular = torch.linalg.svdvals(page.convolution_matrix(named("S4"), f))
    assert torch.allclose(page.effective(singular), effective_rank(GroupFourier(named("S4")).forward(f)))


def test_descent_by_hand_finds_the_largest_margin(page: SimpleNamespace) -> None:
    """One layer is logistic regression without a penalty: its direction tends to the largest margin."""
    for s in (20, 21):
        z = page.random_points(12, 5, s)
        beta = page.descend_by_hand(page.dense, page.random_weights([(12,)], s), z)
        best = max_margin(z, torch.ones(5).double())
        assert float((z @ beta).min() / beta.norm()) == pytest.approx(best.margin, rel=0.02)
        assert float(beta @ best.direction / beta.norm()) > 0.999


def test_descent_by_hand_lowers_the_rank_over_the_group(page: SimpleNamespace) -> None:
    for name in ("S4", "C7:C3"):
        group = named(name)
        transform, n = GroupFourier(group), group.order
        z, w = page.random_points(n, 5, 22), page.random_weights([(n,)] * 3, 22)
        beta = page.descend_by_hand(partial(page.convolutional, group), w, z)
        start = page.convolutional(group, w)
        assert (z @ beta).min() > 0
        assert effective_rank(transform.forward(beta)) < 0.7 * effective_rank(transform.forward(start))


def test_data_and_starts_depend_on_their_seed_only(page: SimpleNamespace) -> None:
    assert torch.equal(page.random_points(6, 3, 5), page.random_points(6, 3, 5))
    assert not torch.equal(page.random_points(6, 3, 5), page.random_points(6, 3, 6))
    wide = page.random_weights([(400, 900)], 1)[0]
    assert float(wide.var()) == pytest.approx(1 / 900, rel=0.02)


# --- exact arithmetic ---


def test_rank_modulo_a_prime_against_sympy(page: SimpleNamespace) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(-4, 5, (20, 6, 3), generator=generator)
    right = torch.randint(-4, 5, (20, 3, 7), generator=generator)
    products = left @ right
    assert page.rank_modulo(products).tolist() == [Matrix(m.tolist()).rank() for m in products]
    full = torch.randint(-9, 10, (20, 5, 5), generator=generator)
    assert page.rank_modulo(full).tolist() == [Matrix(m.tolist()).rank() for m in full]


def test_a_small_prime_can_lower_the_rank(page: SimpleNamespace) -> None:
    matrix = torch.tensor([[[2, 0], [0, 1]]])
    assert page.rank_modulo(matrix, 2).tolist() == [1]
    assert page.rank_modulo(matrix, 3).tolist() == [2]
    assert page.rank_modulo(torch.zeros(1, 3, 3, dtype=torch.int64)).tolist() == [0]


@pytest.mark.parametrize("name", NAMES)
def test_subgroups(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    found = page.random_subgroups(group, torch.Generator().manual_seed(0), 60)
    table = group.cayley_table()
    for members in found:
        assert torch.equal(torch.unique(table[members[:, None], members]), members)
        assert group.order % len(members) == 0
    assert len({tuple(m.tolist()) for m in found}) == len(found)


def test_all_subgroups_of_s3_and_q8(page: SimpleNamespace) -> None:
    for name in ("S3", "Q8"):
        assert len(page.random_subgroups(named(name), torch.Generator().manual_seed(0), 100)) == 6


# --- B5 ---


@pytest.mark.parametrize("name", [*NAMES, "C5", "C2xC4"])
def test_meshulam(page: SimpleNamespace, name: str) -> None:
    group, g = named(name), torch.Generator().manual_seed(4)
    for draw in (page.sparse, page.low_rank, page.cosets):
        f = draw(group, 100, g)
        assert (f != 0).any(-1).all()
        support, rank, rows = page.exact(group, f)
        assert int((support * rank).min()) >= group.order
        assert torch.equal(rank, fourier_rank(GroupFourier(group).forward(f.double()), 1e-9))
        assert (rank <= rows).all()
        if draw is page.cosets:
            assert set((support * rank).tolist()) == set((support * rows).tolist()) == {group.order}
    changed = page.one_exchanged(f)
    if name not in ("C5", "Q8"):  # C5 has no proper subgroup of three elements or more
        assert len(changed)
    support, rank, _ = page.exact(group, changed)
    assert (support * rank > group.order).all()


def test_one_exchanged_is_no_coset(page: SimpleNamespace) -> None:
    """g⁻¹ times the set is a subgroup for a member g of a coset, and for no member of the changed set."""
    group = named("S4")
    f = page.cosets(group, 60, torch.Generator().manual_seed(2))
    table, u = group.cayley_table(), group.elements()
    inverse = group.index(group.inverse(u))
    for kept, sets in ((True, f), (False, page.one_exchanged(f))):
        for one in sets:
            members = one.nonzero()[:, 0]
            shifted = table[inverse[members[0]], members]
            closed = torch.isin(table[shifted[:, None], shifted], shifted).all()
            assert bool(closed) == kept
    assert (page.one_exchanged(f) != 0).sum(-1).min() >= 3


def test_a_coset_is_left_one_element_at_a_time(page: SimpleNamespace) -> None:
    f = torch.zeros(12, dtype=torch.int64)
    f[[1, 4, 7, 10]] = 1  # a coset in C12
    chain = page.exchanged_in_turn(f)
    assert chain.shape == (4, 12)
    assert (chain.sum(-1) == 4).all()
    assert ((chain != f).sum(-1) == 2 * torch.arange(4)).all()
    _, rank, _ = page.exact(Cyclic(12), chain)
    assert rank[0] == 3
    assert (rank[1:] > 3).all()
    assert page.exchanged_in_turn(f, most=2).shape == (3, 12)


@pytest.mark.parametrize("name", NONABELIAN)
def test_without_weights_the_principle_fails(page: SimpleNamespace, name: str) -> None:
    """A point mass has support 1 and Σ rank f̂(ρ) = Σ d_ρ < |G|."""
    group = named(name)
    fourier, points = GroupFourier(group), torch.eye(group.order, dtype=torch.int64)
    degrees = sum(d * n for d, n in zip(fourier.dims, fourier.counts, strict=True))
    assert page.unweighted_surplus(group, points).tolist() == [degrees - group.order] * group.order
    assert page.surplus(group, points.double()).tolist() == [0] * group.order
    assert degrees < group.order


def test_without_weights_nothing_changes_on_an_abelian_group(page: SimpleNamespace) -> None:
    f = page.sparse(Cyclic(8), 50, torch.Generator().manual_seed(0))
    support, rank, _ = page.exact(Cyclic(8), f)
    assert torch.equal(page.unweighted_surplus(Cyclic(8), f), support * rank - 8)


def test_kinds_of_functions(page: SimpleNamespace) -> None:
    group, g = named("S4"), torch.Generator().manual_seed(1)
    cosets = page.cosets(group, 200, g)
    assert bool(((cosets == 0) | (cosets == cosets.amax(-1, keepdim=True))).all())
    assert {24 % int(n) for n in (cosets != 0).sum(-1)} == {0}
    few = page.sparse(group, 200, g, 3)
    assert set((few != 0).sum(-1).tolist()) == {1, 2, 3}
    assert few.abs().max() <= 9
    _, rank, _ = page.exact(group, page.low_rank(group, 200, g))
    assert int(rank.min()) <= 2


def test_enough_functions_for_the_claim(page: SimpleNamespace) -> None:
    """The nine groups of the page, at the smallest number of functions that it allows."""
    g, total = torch.Generator().manual_seed(3), 0
    for name, count in (("S3", 560), ("Q8", 560), ("C3xC3", 560), ("D6", 560), ("A4", 560), ("S4", 280), ("A5", 37)):
        group, times = named(name), 3 if name == "S4" else 1  # three groups get half as many
        total += times * sum(len(draw(group, count, g)) for draw in (page.sparse, page.low_rank, page.cosets))
    assert total >= 10_000


# --- B6 ---


def three_predictors(page: SimpleNamespace, z: Tensor, numbers: list[int], places: Tensor) -> dict[str, Tensor]:
    n = z.shape[-1]
    networks = {
        "fully connected": (fully_connected(n, 3), [(4, n), (4, 4), (4,)], torch.arange(n)),
        "plain convolution": (circular_convolution(n, 3), [(n,)] * 3, places),
        "group convolution": (group_convolution(Dihedral(n // 2), 3), [(n,)] * 3, torch.arange(n)),
    }
    found = {}
    for name, (network, shapes, order) in networks.items():
        beta = page.follow(partial(page.flat, network), shapes, z[..., order], numbers, [200.0], 0.6)[:, 0]
        found[name] = beta[..., order.argsort()]
    return found


def test_group_rank_is_smallest(page: SimpleNamespace) -> None:
    numbers, places = [31000, 31001], page.listed(32)
    z = torch.stack([page.random_points(64, 16, s) for s in numbers])
    found = three_predictors(page, z, numbers, places)
    for beta in found.values():
        margins = (z @ beta[..., None])[..., 0]
        assert (log_exponential_loss(margins) <= -200).all()
        assert float(page.effective(beta.abs()).min()) > 32
    right, wrong = GroupFourier(Dihedral(32)), GroupFourier(Cyclic(64))
    ranks = {name: effective_rank(right.forward(beta)) for name, beta in found.items()}
    cyclic = {name: effective_rank(wrong.forward(beta[..., places])) for name, beta in found.items()}
    assert page.violations(ranks) == 0
    assert page.violations(cyclic) == 2  # over the wrong group the plain network wins


def test_rulers_are_held_to_known_values(page: SimpleNamespace) -> None:
    assert page.misses(torch.tensor([8.0, 8.0 + 1e-6, 7.0]).double(), 8) == 2
    for space in (page.OnGroup(page.Dihedral(4)), page.FunctionsOnRotations(2)):
        assert page.rank_error(space, space.point) < 1e-9
        assert page.rank_error(space, torch.ones(space.size).double()) > 0.1


def test_violations_are_counted_per_run(page: SimpleNamespace) -> None:
    ranks = {"a": torch.tensor([1.0, 2.0, 5.0]), "b": torch.tensor([3.0, 2.0, 1.0])}
    assert page.violations(ranks, "a") == 2  # a tie counts
    assert page.violations(ranks, "b") == 2


def test_lists_name_every_element_once(page: SimpleNamespace) -> None:
    group = Dihedral(5)
    for order in (page.listed(5), page.interleaved(5)):
        assert order.sort().values.tolist() == list(range(10))
    assert group.element(page.listed(5))[:, 1].tolist() == [0] * 5 + [1] * 5
    assert group.element(page.interleaved(5))[:, 1].tolist() == [0, 1] * 5


def test_a_run_does_not_depend_on_the_others(page: SimpleNamespace) -> None:
    z = torch.stack([page.random_points(12, 4, s) for s in (7, 8)])
    beta = partial(page.flat, group_convolution(named("D6"), 3))
    both = page.follow(beta, [(12,)] * 3, z, [7, 8], [2.0, 9.0])
    alone = page.follow(beta, [(12,)] * 3, z[1:], [8], [2.0, 9.0])
    assert both.shape == (2, 2, 12)
    assert torch.allclose(alone[0], both[1], rtol=0, atol=1e-8 * float(both.abs().max()))


def test_stored_ranks_say_when_the_order_matters() -> None:
    found = stored(f"{STORED}/fourier_ranks").set_index(["order", "points"])["violations"]
    assert (found["shuffled"] == 0).all()
    assert (found["rotations first"][[16, 24]] == 0).all()
    assert found["interleaved"].max() > 0


# --- B7 ---


@pytest.fixture(scope="module")
def signed(page: SimpleNamespace) -> Tensor:
    return torch.stack([page.signed_digits(motions(8, Dihedral(4)), s) for s in (41000, 41001)])


@pytest.fixture(scope="module")
def trained(page: SimpleNamespace, signed: Tensor) -> dict[str, dict[str, Tensor]]:
    group, direct = motions(8, Dihedral(4)), DirectProduct(translations(8), Dihedral(4))
    fourier = {"schatten": GroupFourier(group), "wrong schatten": GroupFourier(direct)}
    shape, marks = [(512,)] * 3, math.log(10) * torch.tensor([2.0, 12.0])
    networks = {
        "FC": (page.dense, [(64, 512), (64, 64), (64,)]),
        "CNN": (page.over(Cyclic(512)), shape),
        "G-CNN": (page.over(group), shape),
        "wrong G-CNN": (page.over(direct), shape),
    }
    found = {}
    for name, (beta, shapes) in networks.items():
        ends = page.follow(beta, shapes, signed, [41000, 41001], marks)
        assert ((ends[:, :, None] * signed[:, None]).sum(-1) > 0).all()
        found[name] = page.norms(ends, signed, fourier)
    return found


def test_lift_is_equivariant(page: SimpleNamespace) -> None:
    size, group = 4, motions(4, Dihedral(4))
    action, g = pixels(group, size), group.elements()
    x = normal(3, size * size)
    f = page.lift(x, group, size)
    assert f.shape == (3, group.order)
    assert torch.equal(f[:, group.index(group.identity())], x[:, 0])
    for k in g[::7]:
        moved = group.index(group.multiply(group.inverse(k), g))
        assert torch.equal(page.lift(action.apply(k, x), group, size), f[:, moved])
    counts = page.lift(torch.arange(16.0), group, 4).long().bincount()
    assert torch.equal(counts, torch.full((16,), 8))


def test_turned_images_in_a_stack_are_our_lift_read_backwards(page: SimpleNamespace) -> None:
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
    ours = page.lift(x, G, size)
    assert torch.equal(stacked, ours[G.index(G.inverse(reverse))])
    assert not torch.equal(stacked, ours)
    F = GroupFourier(G)
    torch.testing.assert_close(schatten_norm(F.forward(stacked), 2 / 3), schatten_norm(F.forward(ours), 2 / 3))


def test_lifted_images_have_blocks_of_rank_one(page: SimpleNamespace, signed: Tensor) -> None:
    """f_x is constant on the cosets of the stabiliser of a pixel, in which the trivial representation appears once."""
    transform = GroupFourier(motions(8, Dihedral(4)))
    for block in transform.forward(signed):
        assert float(torch.linalg.svdvals(block)[..., 1:].sum()) < 1e-10
    shuffled = signed[..., torch.randperm(512, generator=torch.Generator().manual_seed(0))]
    assert float(torch.linalg.svdvals(transform.forward(shuffled)[-1])[..., 1].min()) > 1e-2


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", ["motions", "direct", "cyclic"])
def test_fast_networks_are_the_networks(page: SimpleNamespace, name: str, layers: int) -> None:
    size, H = 3, Dihedral(4)
    groups = {"motions": motions(size, H), "direct": DirectProduct(translations(size), H), "cyclic": Cyclic(72)}
    group = groups[name]
    w, x = list(normal(layers, 2, 72)), normal(72, seed=1)
    h = x
    for filters in w[:-1]:
        h = GroupConvolution(group)(h, filters)
    found = page.over(group)(w)
    assert torch.allclose(found @ x, (h * w[-1]).sum(-1))
    assert torch.allclose(found, page.convolutional(group, w))
    fourier = GroupFourier(group)
    parts = [fourier.forward(a) for a in w]
    for block, last, *first in zip(fourier.forward(found), *parts[::-1], strict=True):
        for part in first:  # β̂ = ŵ_L ŵ_{L−1}* ⋯ ŵ_1*
            last = last @ part.mH
        assert torch.allclose(block, last, rtol=0, atol=1e-9 * float(block.abs().max()))


def test_each_architecture_lowers_its_own_norm(page: SimpleNamespace, trained: dict) -> None:
    ends = partial(page.ends, trained)
    assert page.violations(ends("schatten"), "G-CNN") == 0
    assert page.violations(ends("schatten", trained), "G-CNN") == 0
    assert page.violations(ends("euclidean", trained), "FC") == 0
    assert page.violations(ends("wrong schatten", trained), "wrong G-CNN") == 0
    assert page.violations(ends("schatten", unit_length=True), "G-CNN") == 0
    assert page.share_of_wins(trained, "schatten", "G-CNN", ["FC", "G-CNN"]) == "2 of 2"


def test_controls_fail_in_every_run(page: SimpleNamespace, trained: dict) -> None:
    assert page.violations(page.ends(trained, "schatten", trained), "wrong G-CNN") == 2
    assert page.violations(page.ends(trained, "euclidean"), "G-CNN") == 2
    assert page.violations(page.ends(trained, "schatten"), "FC") == 2


def test_fully_connected_network_approaches_the_largest_margin(signed: Tensor, trained: dict) -> None:
    for run in range(2):
        best = 1 / max_margin(signed[run], torch.ones(20).double()).margin
        assert best < float(trained["FC"]["euclidean"][run, -1]) < 1.12 * best
        assert best < 0.9 * float(trained["G-CNN"]["euclidean"][run, -1])


def test_norms_are_what_they_say(page: SimpleNamespace) -> None:
    group = motions(3, Dihedral(4))
    z, beta = normal(1, 4, 72).abs(), normal(1, 2, 72, seed=1).abs()
    found = page.norms(beta, z, {"schatten": GroupFourier(group)})
    for k in range(2):
        one = beta[0, k] / (z[0] @ beta[0, k]).min()
        assert float(found["euclidean"][0, k]) == pytest.approx(float(one.norm()))
        by_hand = page.schatten_by_hand(group, one, 2 / 3)
        assert float(found["schatten"][0, k]) == pytest.approx(float(by_hand))


def test_stored_full_size_result(page: SimpleNamespace) -> None:
    rows = stored(f"{STORED}/norms_of_digits").set_index("network")
    assert set(rows["size"]) == {28}
    norms = {"euclidean", "schatten", "wrong_schatten"}
    full = {name: {norm: torch.tensor(row[norm]) for norm in norms} for name, row in rows.iterrows()}
    assert page.violations(page.ends(full, "schatten"), "G-CNN") == 0
    assert page.violations(page.ends(full, "euclidean"), "FC") == 0
    assert page.violations(page.ends(full, "schatten", full), "wrong G-CNN") == 5
    assert page.violations(page.ends(full, "wrong_schatten", unit_length=True), "G-CNN") == 5


# --- B8: functions on SO(3) ---


def values(page: SimpleNamespace, c: Tensor, angles: Tensor) -> Tensor:
    """f(R) = Σ √(2l+1) c^l_{ij} D^l_{ij}(R)."""
    D = [page.wigner(l, angles.unbind()) for l in range(DEGREE + 1)]
    return torch.cat([math.sqrt(d.shape[-1]) * d.flatten(-2) for d in D], -1) @ c


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_wigner_functions_are_orthonormal(page: SimpleNamespace, degree: int) -> None:
    basis, weights = page.rotation_grid(degree)
    assert basis.shape[1] == sum((2 * l + 1) ** 2 for l in range(degree + 1))
    assert float(weights.sum()) == pytest.approx(1)
    assert torch.allclose((basis.mT * weights) @ basis, torch.eye(basis.shape[1]).double(), rtol=0, atol=1e-12)
    assert torch.get_default_dtype() == torch.float32


def test_convolution_on_rotations_is_the_integral(page: SimpleNamespace, rotations: SimpleNamespace) -> None:
    """(h∗w)(U) = ∫ h(UR⁻¹) w(R) dR at random U; D^l(UR⁻¹) = D^l(U) D^l(R)ᵀ, and the grid integrates exactly."""
    h, w = normal(rotations.size), normal(rotations.size, seed=1)
    at = torch.rand(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3
    w_on_grid = rotations.grid @ w
    expected, start = torch.zeros(5, dtype=torch.float64), 0
    for l in range(DEGREE + 1):
        D, d = page.wigner(l, at.unbind()), 2 * l + 1
        columns = slice(start, start + d * d)
        on_grid = (rotations.grid[:, columns] / math.sqrt(d)).unflatten(-1, (d, d))
        apart = torch.einsum("uij,rkj->urik", D, on_grid)
        h_moved = math.sqrt(d) * torch.einsum("urik,ik->ur", apart, h[columns].unflatten(-1, (d, d)))
        expected += h_moved @ (rotations.weights * w_on_grid)
        start += d * d
    found = rotations.convolve(h[None, None], w[None])[0, 0]
    assert torch.allclose(values(page, found, at), expected, rtol=0, atol=1e-11)


def test_coordinates_are_an_isometry_and_blocks_their_transform(rotations: SimpleNamespace) -> None:
    c, start = normal(rotations.size), 0
    on_grid = rotations.grid @ c
    assert float(rotations.weights @ on_grid.square()) == pytest.approx(float(c @ c))
    plancherel = sum(b.shape[-1] * float(b.square().sum()) for b in rotations.blocks(c))
    assert plancherel == pytest.approx(float(c @ c))
    for b in rotations.blocks(c):
        d = b.shape[-1]
        D = (rotations.grid[:, start : start + d * d] / math.sqrt(d)).unflatten(-1, (d, d))
        assert torch.allclose(torch.einsum("r,rij->ij", rotations.weights * on_grid, D), b[0])
        start += d * d


def test_relu_keeps_positive_functions_and_projects_others(rotations: SimpleNamespace) -> None:
    c = 0.05 * normal(rotations.size)
    c[0] = 5.0  # the constant function
    assert bool((rotations.grid @ c > 0).all())
    assert torch.allclose(rotations.relu(c), c, rtol=0, atol=1e-12)
    assert torch.allclose(rotations.relu(-c), torch.zeros_like(c), rtol=0, atol=1e-12)
    h = normal(rotations.size)
    assert torch.allclose(rotations.relu(h) - rotations.relu(-h), h, rtol=0, atol=1e-12)


def test_spherical_digits_are_bandlimited_point_masses(page: SimpleNamespace) -> None:
    harmonics = page.on_the_sphere(DEGREE)
    assert harmonics.shape == (64, (DEGREE + 1) ** 2)
    energy = harmonics.square().sum(-1)  # addition theorem: Σ_m Y_lm² = (2l+1)/4π
    assert torch.allclose(energy, torch.full((64,), (DEGREE + 1) ** 2 / (4 * math.pi)).double(), rtol=1e-6)
    image = normal(8, 8)
    for l in range(DEGREE + 1):  # a quarter turn of the image turns the sphere, which acts within each degree
        part = harmonics[:, l * l : (l + 1) ** 2]
        turned = torch.rot90(image).flatten() @ part
        assert float(turned.norm()) == pytest.approx(float((image.flatten() @ part).norm()))


def test_lifted_digits_are_no_functions_on_the_sphere(rotations: SimpleNamespace) -> None:
    x = rotations.data(0, 6)
    assert x.shape == (6, rotations.size)
    assert float(x.norm(dim=-1).mean()) == pytest.approx(1)
    second = torch.linalg.svdvals(rotations.blocks(x)[DEGREE])[..., 1]
    assert float(second.min()) > 1e-3  # without the ReLU every block would have rank one
    assert not torch.equal(rotations.data(1, 6), x)


# --- B8: networks and linearizations ---


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["rotations", "dihedral"])
def test_networks_equal_their_linearizations(
    page: SimpleNamespace, kind: str, name: str, request: pytest.FixtureRequest
) -> None:
    """Without bias terms f(x) = ⟨x, ∇f(x)⟩: the linearization is the network at that point."""
    space = request.getfixturevalue(kind)
    k, f = space.size, partial(page.output, name, space)
    shapes = [(k, k), (k, k), (k,)] if name == "ReLU FC" else [(k,)] * 3
    w = [normal(2, *shape, seed=i) for i, shape in enumerate(shapes)]
    x = normal(2, 3, k)
    beta = page.predictors_at(f, w, x)
    assert torch.allclose((beta * x).sum(-1), f(w, x), rtol=1e-9)
    assert torch.allclose(page.predictors_at(f, w, -x), beta) == (name == "linear G-CNN")
    assert torch.allclose(space.scramble @ space.scramble.mT, torch.eye(k).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["S3", "C7:C3"])
def test_relu_networks_by_hand(page: SimpleNamespace, name: str) -> None:
    group, s = named(name), 3
    w = page.random_weights([(group.order,)] * 3, s)
    f, x = partial(page.output, "ReLU G-CNN", page.OnGroup(group)), page.random_points(group.order, 5, s)
    beta = page.predictors_at(f, [a[None] for a in w], x[None])[0]
    for point, slope, value in zip(x, beta, f([a[None] for a in w], x[None])[0], strict=True):
        found, by_hand = page.relu_network(group, w, point)
        assert torch.allclose(by_hand, slope)
        assert torch.isclose(found, value)


def test_group_networks_are_equivariant_before_the_last_layer(page: SimpleNamespace, dihedral: SimpleNamespace) -> None:
    group, f = Dihedral(30), partial(page.output, "ReLU G-CNN", dihedral)
    g = group.elements()
    w = [normal(1, 60), normal(1, 60, seed=1), torch.ones(1, 60, dtype=torch.float64)]  # the last layer sums
    x = normal(1, 4, 60, seed=2)
    moved = group.index(group.multiply(group.inverse(g[17]), g))
    assert torch.allclose(f(w, x[..., moved]), f(w, x), rtol=1e-10)
    scrambled = partial(page.output, "scrambled ReLU G-CNN", dihedral)
    assert not torch.allclose(scrambled(w, x[..., moved]), scrambled(w, x), rtol=1e-3)


def test_a_dead_start_is_drawn_again(page: SimpleNamespace) -> None:
    """Outputs that vanish wherever the first weight is negative: half of all starts, none of those that are kept."""

    def dies(w: list[Tensor], x: Tensor) -> Tensor:
        return w[0][:, :1].relu().expand(-1, 2)

    x = torch.zeros(50, 2, 3, dtype=torch.float64)
    w = page.living_start(dies, [(3,), (3, 3)], x, torch.Generator().manual_seed(0))
    assert [a.shape for a in w] == [(50, 3), (50, 3, 3)]
    assert float(w[0][:, 0].min()) > 0
    assert float(w[0][:, 1].min()) < 0


def test_networks_that_do_not_learn_have_no_rank_at_the_end(page: SimpleNamespace) -> None:
    space, x = page.OnGroup(named("D6")), normal(1, 6, 12)
    x[:, 3:] = x[:, :3]  # both labels for every point
    ranks = page.ranks_along("ReLU FC", space, x)
    assert bool(ranks[:, 0].isfinite().all())
    assert bool(ranks[:, -1].isnan().all())


def test_reductions_are_shares(page: SimpleNamespace) -> None:
    start, end = torch.ones(3, 1).double(), torch.tensor([[0.9], [0.7], [0.2]]).double()
    rows = {"ReLU FC": 10.0 * start, "linear G-CNN": 2.0 * start, "ReLU G-CNN": end * 10}
    ranks = {name: torch.cat([10 * start, row], 1) for name, row in rows.items()}
    own, shared = page.reductions(ranks, "ReLU G-CNN")
    assert own.tolist() == pytest.approx([0.1, 0.3, 0.8])
    assert shared == pytest.approx(3 / 8)
    assert [page.reductions(ranks, name)[1] for name in ("ReLU FC", "linear G-CNN")] == [0, 1]


@pytest.mark.parametrize(("kind", "fall"), [("dihedral", 0.1), ("rotations", 0.4)])
def test_ranks_fall_and_scrambled_ones_do_not(
    page: SimpleNamespace, kind: str, fall: float, request: pytest.FixtureRequest
) -> None:
    space = page.OnRotations() if kind == "rotations" else request.getfixturevalue(kind)
    x = torch.stack([space.data(s) for s in range(51000, 51006)])
    ranks = {name: page.ranks_along(name, space, x) for name in NETWORKS}
    own, shared = page.reductions(ranks, "ReLU G-CNN")
    assert float(own.nanmedian()) > fall
    assert shared > 0.4
    assert float(page.reductions(ranks, "linear G-CNN")[0].nanmedian()) > 0.3
    own, shared = page.reductions(ranks, "scrambled ReLU G-CNN")
    assert float(own.nanmedian()) < 0.05
    assert shared < 0.1


# --- exercises and parameters ---


@pytest.mark.parametrize("name", ["S3", "Q8", "C12", "C7:C3"])
def test_characters_keep_the_equality(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    fourier = GroupFourier(group)
    for H in page.random_subgroups(group, torch.Generator().manual_seed(1), 20):
        for k in range(fourier.counts[0]):
            f = page.twisted(group, H, k)
            assert len(H) * int(fourier_rank(fourier.forward(f), 1e-9)) == group.order


def test_effective_sizes_obey_no_principle(page: SimpleNamespace) -> None:
    assert page.participation(torch.ones(7)) == pytest.approx(7)
    f = page.spike(400)
    coefficients = torch.fft.fft(f).abs()
    assert page.participation(f) * page.participation(coefficients) < 20


def test_an_interleaved_list_is_nearly_the_group(page: SimpleNamespace) -> None:
    numbers = list(range(61000, 61012))
    z = torch.stack([page.random_points(16, 4, s) for s in numbers])
    near, far = (page.mean_rank(8, order(8), z, numbers) for order in (page.interleaved, page.listed))
    assert 1 < near < 0.9 * far < 16


def test_a_bias_term_breaks_homogeneity(page: SimpleNamespace) -> None:
    group = named("D6")
    w = page.random_weights([(12,)] * 3, 9)
    for b, broken in ((0.0, False), (0.7, True)):
        gaps = []
        for x in page.random_points(12, 6, 9):
            value, by_x, by_b = page.with_bias(group, w, torch.tensor(b, dtype=torch.float64), x)
            assert value == pytest.approx(by_x + by_b, abs=1e-12)
            gaps.append(abs(value - by_x))
        assert (max(gaps) > 1e-6) == broken


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"seeds": 0, "seed": -1, "runs": 0, "depth": 1, "functions": 10, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load("bias_and_uncertainty", **{name: value})
    for group in ("E8", "S3xS3xS3", "C4"):
        with pytest.raises(ValueError, match="must"):
            load("bias_and_uncertainty", group=group)
