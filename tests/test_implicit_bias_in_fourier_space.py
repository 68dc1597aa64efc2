"""What the page *Implicit bias in Fourier space* defines: other groups, other seeds and routes, what must fail."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from lib.implicit_bias.gradient_flow import Integration, train
from lib.implicit_bias.linear_networks import circular_convolution, diagonal, fully_connected, group_convolution
from lib.implicit_bias.margins import max_margin, one_minus_cosine
from lib.implicit_bias.optimality import Norm, coordinates, form_p, frequencies, irreducibles
from lib.page.results import stored
from lib.symmetry.actions import motions
from lib.symmetry.fourier import GroupFourier, effective_rank, schatten_norm
from lib.symmetry.groups import Dihedral, DirectProduct, FiniteGroup, Quaternion, SemidirectProduct
from lib.symmetry.own_groups import from_table, named
from tests.chapters import load

NAMES = ["C7", "C2xC4", "D5", "S4", "A4", "Q8", "C7:C3"]
BOOK = "implicit_bias_in_fourier_space"


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("implicit_bias_in_fourier_space", seed=11, group="A4")


def random_functions(count: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- tables, convolutions, networks ---


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_dihedral_tables(page: SimpleNamespace, n: int) -> None:
    table = page.dihedral_table(n)
    assert from_table(table, "mine").order == 2 * n
    number = torch.arange(2 * n) % n * 2 + torch.arange(2 * n) // n
    assert torch.equal(Dihedral(n).cayley_table()[number][:, number], number[table])


def test_metacyclic_tables(page: SimpleNamespace) -> None:
    for p, q, m in ((7, 3, 2), (5, 2, 4), (11, 5, 3)):
        assert torch.equal(page.metacyclic_table(p, q, m), named(f"C{p}:C{q}").cayley_table())
    with pytest.raises(ValueError, match="associative"):
        from_table(page.metacyclic_table(7, 3, 3), "3 has the order six modulo seven")


@pytest.mark.parametrize("name", NAMES)
def test_convolution_by_its_definition(page: SimpleNamespace, name: str) -> None:
    table = named(name).cayley_table()
    n = len(table)
    h, w = random_functions(2, n)
    inverse = {u: next(v for v in range(n) if table[u, v] == table[0, 0]) for u in range(n)}
    summed = [sum(h[table[u, inverse[v]]] * w[v] for v in range(n)) for u in range(n)]
    assert torch.allclose(page.matrix(table, h) @ w, torch.stack(summed))
    assert page.matrix(table, torch.stack([h, w])).shape == (2, n, n)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_group_networks_and_their_predictors(page: SimpleNamespace, name: str, depth: int) -> None:
    group = named(name)
    table, n = group.cayley_table(), group.order
    w, x = list(random_functions(depth, n)), random_functions(4, n, seed=1)
    beta = page.g_cnn(table, w, torch.eye(n).double())
    assert torch.allclose(page.g_cnn(table, w, x), x @ beta)
    assert torch.allclose(beta, group_convolution(group, depth).predictor(torch.cat(w)))
    for rho in page.irreps(table, 3):
        assert torch.allclose(page.beta_hat(rho, w), page.transform(rho, beta))
    assert float(page.soft_rank(table, beta)) == pytest.approx(float(effective_rank(GroupFourier(group).forward(beta))))


def test_soft_ranks_of_special_functions(page: SimpleNamespace) -> None:
    table = named("S4").cayley_table()
    assert page.soft_rank(table, torch.eye(24).double()).tolist() == pytest.approx([24.0] * 24)
    assert float(page.soft_rank(table, torch.ones(24).double())) == pytest.approx(1)


@pytest.mark.parametrize("name", ["D6", "C12"])
def test_descent_follows_the_flow(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    table, n = group.cayley_table(), group.order
    x, y, g = page.drawn(21, 5, n)
    w = page.filters(3, n, g)
    flow = train(group_convolution(group, 3), x, y, torch.cat(w), Integration(cap=1e4, efolds=0))
    misses = []
    for rate in (0.02, 0.002):
        path, end = page.descend(partial(page.g_cnn, table), w, x, y, steps=300, rate=rate)
        assert path.shape == (30, n)
        place = (flow.log_norm - page.size(end).log()).abs().argmin()
        misses.append(float(one_minus_cosine(flow.path[place], page.g_cnn(table, end, torch.eye(n).double()))))
    assert misses[1] < 1e-2
    one = page.descend(partial(page.g_cnn, table), w, x, y, steps=1, rate=0.02)[1]
    moved = page.size([b - a for a, b in zip(w, one)])
    assert float(moved / page.size(w)) == pytest.approx(0.02)


def test_full_matrices(page: SimpleNamespace) -> None:
    x, y, g = page.drawn(22, 6, 10)
    w = page.full_matrices([10, 3, 3, 1], g)
    beta = page.dense(w, torch.eye(10).double())
    assert torch.allclose(page.dense(w, x), x @ beta)
    flat = torch.cat([W.flatten() for W in w])
    assert torch.allclose(fully_connected(10, 3, 3).predictor(flat), beta)
    assert set(y.tolist()) <= {-1.0, 1.0}


def test_only_the_network_over_the_group_has_a_low_rank(page: SimpleNamespace) -> None:
    table = page.dihedral_table(16)
    for s in (31, 32):
        x, y, g = page.drawn(s, 8, 32)
        over, full = page.filters(3, 32, g), page.full_matrices([32, 4, 4, 1], g)
        paths = [page.descend(f, w, x, y)[0] for f, w in ((partial(page.g_cnn, table), over), (page.dense, full))]
        (start, end), (_, other) = (page.soft_rank(table, path[[0, -1]]) for path in paths)
        assert end < 0.8 * start
        assert end < 0.6 * other


# --- B1 ---


def test_fully_connected_networks_find_the_largest_margin(page: SimpleNamespace) -> None:
    x, y = (part[::4] for part in page.digit_pair(1, 7))
    best = max_margin(x, y).vector
    assert torch.allclose(page.hard_margin(x, y), best, atol=1e-3)
    end = page.follow(fully_connected(64, 2), x, y, 42)
    far = one_minus_cosine(end.path, best)
    assert float(far[-1]) < 1e-6
    assert float(far[-1]) <= float(far[end.handover]) + 1e-9
    assert float(far[0]) > 0.1
    aside = page.follow(diagonal(64, 2), x, y, 41)
    assert float(one_minus_cosine(aside.direction, best)) > 0.01


# --- B2, B3, B4 ---


def check(page: SimpleNamespace, run: SimpleNamespace, other: object) -> dict[str, tuple]:
    found = page.residual(run)
    assert found < 1e-4
    assert run.end.converged
    wrong = {name: rest for name, *rest in page.controls(run, other)}
    known = {name: value / found for name, (value, _, apart) in wrong.items() if apart >= 0.01}
    assert "ℓ2 solution" in known
    assert min(known.values()) >= 100
    return wrong


@pytest.mark.parametrize("depth", [2, 3])
def test_diagonal_and_circular_networks_are_stationary(page: SimpleNamespace, depth: int) -> None:
    for make, basis, other in (
        (diagonal, coordinates(8), frequencies(8)),
        (circular_convolution, frequencies(8), coordinates(8)),
    ):
        wrong = check(page, page.measure("", make(8, depth), basis, 5, 50), other)
        assert wrong["no weight"][2] < 1e-9  # numbers: there is no weight to get wrong


@pytest.mark.parametrize(("name", "depth"), [("C9", 3), ("A4", 2), ("Q8", 3), ("C7:C3", 2)])
def test_group_networks_are_stationary(page: SimpleNamespace, name: str, depth: int) -> None:
    group = named(name)
    wrong = check(page, page.over_group(name, group, depth, 60), page.wrong_basis(group))
    if name == "C9":  # without weights it is the same norm, and as small
        assert wrong["no weight"][2] < 1e-9
        assert wrong["no weight"][0] < 1e-4


def test_own_multipliers_see_what_the_best_ones_miss(page: SimpleNamespace) -> None:
    """At a vertex, where support vectors are as many as nonzero entries, form A accepts every exponent."""
    run = page.measure("diagonal", diagonal(16, 3), coordinates(16), 7, 0)
    wrong = {name: rest for name, *rest in page.controls(run, frequencies(16))}
    own, best, apart = wrong["exponent of one layer fewer"]
    assert best < 1e-9
    assert own == pytest.approx(apart, rel=1e-3)
    assert own > 0.01


@pytest.mark.parametrize("name", ["D6", "C8", "Q8"])
def test_residual_by_hand_and_without_irreducibles(page: SimpleNamespace, name: str) -> None:
    """By blocks, by the library, and by the matrix β(uv⁻¹), which holds every block d_ρ times."""
    group = named(name)
    table, basis = group.cayley_table(), irreducibles(group)
    beta, g = random_functions(2, group.order, seed=5)
    for p in (1.0, 2 / 3, 2.0):
        hats = [basis.transform(v) for v in (beta, g)]
        whole = [[page.matrix(table, v)[None]] for v in (beta, g)]
        found = page.optimality_sine(*hats, p)
        one = torch.ones(1).double()
        assert found == pytest.approx(form_p(Norm(basis, p), beta, (g * torch.sign(beta @ g))[None], one, one))
        assert found == pytest.approx(page.optimality_sine(*whole, p))


def test_residual_vanishes_where_the_conditions_hold(page: SimpleNamespace) -> None:
    basis = irreducibles(named("S4"))
    beta = random_functions(1, 24)[0]
    g = Norm(basis, 2 / 3).slope(beta, floor=0.0)
    hats = [basis.transform(v) for v in (beta, g)]
    assert page.optimality_sine(*hats, 2 / 3) < 1e-10
    assert page.optimality_sine(*hats, 1.0) > 0.1


def test_tables_of_runs(page: SimpleNamespace) -> None:
    group = named("S3")
    pairs = [(page.over_group("S3", group, 2, s), page.wrong_basis(group)) for s in (70, 71)]
    right, wrong = page.tables(pairs)
    assert list(right["seed"]) == [70, 71]
    assert len(wrong) == 12
    assert (wrong["right"] <= 1e-4).all()
    again = page.both(right, right.assign(residual=9.0), ["S3"])
    assert again["residual"].max() < 1
    assert page.told_apart(wrong)["separation"].min() >= 0.01


def test_the_end_does_not_depend_on_the_handover(page: SimpleNamespace) -> None:
    group = named("D5")
    run = page.over_group("D5", group, 3, 80)
    moved = [page.moved_end(run, group, cap) for cap in (1e3, 1e4)]
    assert moved[1] < moved[0] < 1e-4
    residual, turn = page.flow_alone(run)
    assert residual > page.residual(run)
    assert 0 <= turn <= 180


# --- B13 ---


def unbraided(group: SemidirectProduct) -> GroupFourier:
    """Return the transform of the direct product of the factors, whose elements have the same numbers."""
    return GroupFourier(DirectProduct(group.normal, group.complement))


@pytest.mark.parametrize("name", NAMES)
def test_irreducible_representations(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    table, fourier = group.cayley_table(), GroupFourier(group, 4)
    rhos = page.irreps(table, 5)
    assert sum(rho.shape[-1] ** 2 for rho in rhos) == group.order
    assert len(rhos) == sum(fourier.counts) == page.class_count(group)
    for rho in rhos:
        assert torch.allclose(torch.einsum("uij,vjk->uvik", rho, rho), rho[table])
        assert torch.allclose(rho @ rho.mH, torch.eye(rho.shape[-1]).to(rho))
    matrix = page.fourier_matrix(rhos)
    assert torch.allclose(matrix @ matrix.mH, torch.eye(group.order).to(matrix))
    assert max(page.identities(group, fourier, 6).values()) < 1e-10


@pytest.mark.parametrize("group", [named("C7:C3"), Dihedral(5), motions(4, Dihedral(4))], ids=str)
def test_the_direct_product_has_other_representations(page: SimpleNamespace, group: SemidirectProduct) -> None:
    """Its transform is a fine unitary transform, and no Fourier transform of the semidirect product."""
    wrong = unbraided(group)
    found = page.identities(group, wrong, 7)
    fails = {"homomorphism", "convolution"}
    assert min(found[name] for name in fails) > 0.1
    assert max(value for name, value in found.items() if name not in fails) < 1e-10
    assert max(page.identities(wrong.group, wrong, 7).values()) < 1e-10


def test_the_group_of_order_6272(page: SimpleNamespace) -> None:
    group = motions(28, Dihedral(4))
    fourier = GroupFourier(group)
    assert page.census_defect(fourier, {1: 8, 2: 6, 4: 78, 8: 78}) == 0
    assert page.class_count(group) == 170
    assert page.census_defect(unbraided(group), {1: 3136, 2: 784}) == 0
    assert max(page.identities(group, fourier, 8).values()) < 1e-10


@pytest.mark.parametrize("group", [Quaternion(8), named("C2xD3"), named("A5"), motions(3, Dihedral(4))], ids=str)
def test_class_count_by_commuting_pairs(page: SimpleNamespace, group: FiniteGroup) -> None:
    table = group.cayley_table()
    assert page.class_count(group) * group.order == int((table == table.T).sum())


def test_census(page: SimpleNamespace) -> None:
    fourier = GroupFourier(named("S3"))
    assert page.census_defect(fourier, {1: 2, 2: 1}) == 0
    assert page.census_defect(fourier, {1: 6}) == 4
    for n in (3, 4, 9, 10):
        assert page.census_defect(GroupFourier(Dihedral(n)), page.dihedral_census(n)) == 0
    for n in (3, 9):
        assert page.census_defect(GroupFourier(motions(n, Dihedral(4))), page.odd_census(n)) == 0
    assert page.census_defect(GroupFourier(motions(4, Dihedral(4))), page.odd_census(4)) > 0


@pytest.mark.parametrize("n", [3, 4, 7])
def test_orbit_sizes(page: SimpleNamespace, n: int) -> None:
    sizes = page.orbit_sizes(n)
    for k in range(n):
        for l in range(n):
            images = {(a % n, b % n) for p, q in ((k, l), (l, k)) for a in (p, -p) for b in (q, -q)}
            assert int(sizes[k, l]) == len(images)


TYPES = {"D7": {1}, "S4": {1}, "C5": {0, 1}, "C7:C3": {0, 1}, "Q8": {1, -1}}


@pytest.mark.parametrize("name", TYPES)
def test_a_real_function_keeps_complex_types_together(page: SimpleNamespace, name: str) -> None:
    table = named(name).cayley_table()
    assert set(page.indicators(table, 9)) == TYPES[name]
    assert page.shortcut_defect(table, 9) == pytest.approx({1: 0, 0: 1, -1: 3}[min(TYPES[name])], abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_norms_in_three_ways(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    table, f = group.cayley_table(), random_functions(1, group.order, seed=10)[0]
    rhos = page.irreps(table, 11)
    for depth in (2, 3, 5):
        p = 2 / depth
        value = float(schatten_norm(GroupFourier(group).forward(f), p))
        assert float(page.schatten(rhos, f, p)) == pytest.approx(value)
        assert float(page.unitary_schatten(rhos, f, depth)) == pytest.approx(value)
        of_matrix = torch.linalg.svdvals(page.matrix(table, f))
        assert float(of_matrix.pow(p).sum() ** (1 / p)) == pytest.approx(value)


# --- the whole chain, and exercises ---


@pytest.mark.parametrize("name", ["D4", "C11:C5"])
def test_the_whole_chain_on_a_table(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    found = page.chain(from_table(group.cayley_table(), name), 2, 90)
    assert found["irreps"] == page.class_count(group)
    assert found["Σ d²"] == group.order
    assert found["identities"] < 1e-10
    assert found["at the limit"] < found["rank at the start"]
    assert found["nearest wrong answer"] > 100 * found["certificate"]


def test_balanced_layers(page: SimpleNamespace) -> None:
    table = named("D4").cayley_table()
    w, x = list(random_functions(3, 8)), random_functions(1, 8, seed=1)[0]
    rhos = page.irreps(table, 12)
    drifts = [page.drift(rhos, table, w, x, h) for h in (1e-2, 1e-3, 1e-4)]
    assert drifts[0] / drifts[1] == pytest.approx(10, rel=0.05)
    assert drifts[1] / drifts[2] == pytest.approx(10, rel=0.05)
    balanced = [torch.eye(8).double()[0]] * 3
    assert float(page.imbalance(rhos, balanced).norm()) == 0


# --- stored runs ---


def test_stored_margins_meet_the_bound() -> None:
    rows = stored(f"{BOOK}/digit_margins", "runs")
    assert (rows["one_minus_cosine"] <= 1e-4).all()
    assert (rows["diagonal"] > 1e-4).all()


def test_stored_networks_are_stationary_for_no_other_norm() -> None:
    rows = stored(f"{BOOK}/stationary_networks", "runs")
    assert len(rows) >= 100
    assert (rows["residual"] <= 1e-3).all()
    assert rows["architecture"].nunique() == 9
    wrong = stored(f"{BOOK}/stationary_networks", "controls")
    wrong = wrong[wrong["separation"] >= 0.01]
    pairs = rows.merge(wrong, on=["architecture", "depth", "seed"], suffixes=("", "_wrong"))
    assert (pairs["residual_wrong"] / pairs["residual"]).min() >= 100
    assert len(pairs.groupby(["architecture", "depth", "seed"])) == len(rows)


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "E8", "depth": 1, "seeds": 0, "points": 64, "seed": -1, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(BOOK, **{name: value})
