"""What the page *Haar projections* and its run define: other groups, seeds and routes, and controls that fail."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.augmentation.risks import Risks, SmallNetwork, hessian
from lib.page.results import stored
from lib.symmetry.actions import natural, pixels, regular, row_shifts, translations, trivial, vectors
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import HaarSum, NullSpace, OrbitMean, invariant_dimension, projection
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal, Torus, Unitary
from lib.symmetry.own_groups import named
from lib.symmetry.representations import Representation
from tests.chapters import load

GROUPS = ["C2", "C7", "D3", "Q8", "A4", "C7:C3"]
LIE = [SpecialOrthogonal(3), Orthogonal(3), Unitary(2), Torus(2)]
CHECKS = ("idempotent", "self_adjoint", "commutes", "range")


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("haar_projections", seed=11, group="S3")


@pytest.fixture(scope="module")
def run() -> SimpleNamespace:
    return load("runs/thirteen_spaces", seed=11)


@pytest.fixture(scope="module")
def maps(run: SimpleNamespace) -> dict[str, Hom]:
    pairs = run.pairs_under_finite_groups() | run.pairs_under_lie_groups()
    pairs |= {name: (regular(named(name)),) * 2 for name in GROUPS}
    return {name: Hom(*pair) for name, pair in pairs.items()}


def by_characters(run: SimpleNamespace, space: Hom) -> float:
    g, w = run.haar(space.group)
    return run.dimension(space.source.matrix(g), space.target.matrix(g), w)


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_acts_on_itself(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    V, rho = regular(group), page.acting_on_itself(group)
    assert torch.equal(rho, V.matrix(group.elements()))
    A = page.gaussian(group.order, group.order, like=rho, s=1)
    assert torch.allclose(page.moved(A, rho, rho), Hom(V, V).apply(group.elements(), A))
    mean = page.average(A, rho, rho, page.equal_weights(group.order))
    assert torch.allclose(mean, projection(Hom(V, V))(A))
    difference = group.cayley_table()[group.index(group.inverse(group.elements()))]  # (g, h): the number of g⁻¹h
    assert all(mean[difference == k].std() < 1e-12 for k in range(group.order))


@pytest.mark.parametrize("group", LIE, ids=str)
def test_nodes_are_elements_with_their_inverses_and_integrate_haar_measure(
    run: SimpleNamespace, group: SpecialOrthogonal
) -> None:
    g, w = run.haar(group)
    assert group.contains(g).all()
    assert w.min() > 0
    assert float(w.sum()) == pytest.approx(1, abs=1e-14)
    V = vectors(group)
    there, back = (torch.view_as_real(V.matrix(h) + 0j).flatten(1) for h in (g, group.inverse(g)))
    gap, place = torch.cdist(back, there, compute_mode="donot_use_mm_for_euclid_dist").min(1)
    assert gap.max() < 1e-7
    assert torch.allclose(w, w[place])
    for W in (V, V * V, V * V * V):  # first, second and third moments, by the Lie algebra alone
        total = torch.tensordot(w.to(W.matrix(g)), W.matrix(g), 1)
        assert torch.allclose(total, NullSpace(W).matrix(), rtol=0, atol=1e-12)


def test_averages_are_the_projection(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for seed, space in enumerate(maps.values(), start=20):
        found = run.how_far_from_projection(space, *run.haar(space.group), seed)
        assert max(found[check] for check in CHECKS) < 1e-13
        assert found["rank"] == projection(space).rank


def test_matrices_of_averages(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for name in ("graphs, S4", "pentagon, D5", "Q8"):
        space = maps[name]
        g, w = run.haar(space.group)
        matrix = run.matrix_of_average(space.source.matrix(g), space.target.matrix(g), w)
        assert torch.allclose(matrix, HaarSum(space).matrix())


@pytest.mark.parametrize("name", GROUPS)
def test_all_theorems_on_one_group(page: SimpleNamespace, run: SimpleNamespace, name: str) -> None:
    """What the page does by hand for functions on a group is what the run does for any space."""
    V = regular(named(name))
    space, rho, w = Hom(V, V), page.acting_on_itself(V.group), page.equal_weights(V.dim)
    Pi = page.matrix_of_average(rho, rho, w)
    fixed = page.solutions(space.matrix(V.group.generators()).to(Pi))
    assert page.largest(Pi - fixed @ fixed.mT) < 1e-12
    assert fixed.shape[1] == V.dim == round(page.dimension(rho, rho, w))
    for seed in (70, 71):
        routes = [HaarSum(space), OrbitMean(space), NullSpace(space)]
        assert page.disagreement(rho, routes, seed) < 1e-12
        assert page.disagreement(rho, [HaarSum(space, V.group.elements()[1:])], seed) > 1e-3
        for sigma in (torch.tanh, page.uneven):
            found = page.gaps_of_the_lemma(rho, sigma, seed)
            assert found == pytest.approx(run.gaps_of_the_lemma(space, V.group.elements(), w, sigma, seed), abs=1e-13)
        assert page.bias_gap(rho, seed) < 1e-13


def test_the_stored_table_is_that_of_the_run(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    """All spaces, at the seeds of the page and of its ten others; some numbers, computed anew."""
    table = stored("haar_projections/thirteen_spaces", "projections").set_index(["maps", "seed"])
    assert len(table.index.unique("maps")) == 13
    assert {0, 1, 2, *(1000 * k for k in range(1, 11))} <= set(table.index.unique("seed"))
    for name in ("pentagon, D5", "vectors, SO(3)", "tensors, U(2)"):
        space, row = maps[name], table.loc[(name, 2)]
        found = run.how_far_from_projection(space, *run.haar(space.group), 2)
        assert all(row[check] == pytest.approx(found[check], abs=1e-13) for check in ("rank", *CHECKS))
    sides = stored("haar_projections/thirteen_spaces", "lemma").set_index(["maps", "seed"])
    name = "vectors, SO(3)"
    fails = run.gaps_of_the_lemma(maps[name], *run.haar(maps[name].group), run.uneven, 2)
    assert sides.loc[(name, 2), ["layers_uneven", "risk_uneven"]].tolist() == pytest.approx(fails)


@pytest.mark.parametrize("seed", range(10))
def test_four_faults(run: SimpleNamespace, seed: int) -> None:
    found = {name: run.how_far_from_projection(*case, seed) for name, case in run.four_faults().items()}
    spoilt = {
        "three turns": CHECKS,
        "a subgroup": ("commutes", "range"),
        "shears": ("self_adjoint", "range"),
        "uniform angles": ("idempotent", "commutes", "range"),
    }
    for name, checks in spoilt.items():
        assert min(found[name][check] for check in checks) > 0.02
        assert max([found[name][check] for check in set(CHECKS) - set(checks)], default=0) < 1e-13


def test_dimensions(page: SimpleNamespace, run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for space in maps.values():
        assert by_characters(run, space) == pytest.approx(invariant_dimension(space), abs=1e-9)
    for grid in (4, 6, 10):
        for stated, V, W in page.stated_dimensions(grid).values():
            space = Hom(V, W)
            assert stated == invariant_dimension(space) == projection(space).rank
        assert min(page.miscounts(grid)) > 0
        assert grid**2 // 4 + 2 == (grid**2 + 2 * 2 + 4) // 4  # Burnside: turns fix 2, 4 and 2 differences


def test_orbits(page: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for space in (maps["graphs, S4"], maps["images, shifts and D4"], maps["C7:C3"], maps["five points, A5"]):
        p, q = (U.permutation(U.group.generators()) for U in (space.target, space.source))
        label, oracle = page.orbits(page.entries_moved(p, q)), OrbitMean(space)
        pairs = torch.stack([label, oracle.labels]).unique(dim=1)
        assert pairs.shape[1] == oracle.rank == label.max() + 1
        A = page.gaussian(*space.shape, like=page.equal_weights(1), s=5)
        assert torch.allclose(page.by_orbits(A, page.entries_moved(p, q)), oracle(A))


@pytest.mark.parametrize("n", [3, 5, 8])
def test_five_routes_by_hand(page: SimpleNamespace, run: SimpleNamespace, n: int) -> None:
    shifts, mirrors = page.polygon(n)
    every, generators = (shifts[:, None] @ mirrors).flatten(0, 1), torch.stack([shifts[1], mirrors[1]])
    A, p = page.gaussian(n, n, like=shifts, s=n), generators.argmax(1)
    total = page.average(A, every, every, page.equal_weights(2 * n))
    over_mirrors = page.average(A, mirrors, mirrors, page.equal_weights(2))
    for other in (
        page.by_orbits(A, page.entries_moved(p, p)),
        page.by_fourier_on_a_circle(over_mirrors),
        run.by_fourier(over_mirrors, (n,), (0,)),
        page.average(over_mirrors, shifts, shifts, page.equal_weights(n)),
        page.by_equations(A, generators),
    ):
        assert torch.allclose(other, total, rtol=0, atol=1e-12)
    assert float((run.by_fourier(A, (n,), (0,)) - total).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("V", "grid", "axes"),
    [
        (regular(Cyclic(6)), (6,), (0,)),
        (pixels(translations(4), 4), (4, 4), (0, 1)),
        (row_shifts(5), (5, 5), (1,)),
        (pixels(translations(3), 3), (3, 3), (1, 0)),
    ],
    ids=repr,
)
def test_fourier(run: SimpleNamespace, V: Representation, grid: tuple[int, ...], axes: tuple[int, ...]) -> None:
    A = run.gaussian(V.dim, V.dim, like=run.equal_weights(1), s=7)
    found = run.by_fourier(A, grid, axes)
    assert torch.allclose(found, projection(Hom(V, V))(A), rtol=0, atol=1e-12)
    if len(axes) < len(grid):
        every = tuple(range(len(grid)))
        assert float((run.by_fourier(A, grid, every) - found).abs().max()) > 1e-3


def test_routes_agree(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for (name, space), seed in itertools.product(maps.items(), (30, 31)):
        found = run.routes(name, space)
        assert run.disagreement(space, found, *run.haar(space.group), seed) < 1e-12
    assert "Fourier" in run.routes("images, shifts", maps["images, shifts"])
    assert "composition" in run.routes("pentagon", Hom(regular(Dihedral(5)), regular(Dihedral(5))))
    for seed in range(20):
        assert min(run.shortcuts(seed)) > 1e-3


def test_a_mistaken_route_is_seen(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    space = maps["images, quarter turns"]
    wrong = {"three turns": HaarSum(space, space.group.elements()[:3])}
    assert run.disagreement(space, wrong, *run.haar(space.group), 0) > 0.1


def test_orbit_work(page: SimpleNamespace) -> None:
    small, large = (OrbitMean(page.first_nodes(k)) for k in (3, 10))
    generators = [P.representation.permutation(P.representation.group.generators()) for P in (small, large)]
    assert generators[0].numel() == generators[1].numel() == 2 * 10**4
    assert large.representation.group.order == math.factorial(10)
    assert large.rank == 15 < small.rank
    A = torch.randn(25, 25, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for k in (2, 3, 5):  # of five nodes; the rest stay
        swaps = torch.stack([page.pairs(q) for q in page.two_generators(k, 5)])
        by_orbits = page.by_orbits(A, page.entries_moved(swaps, swaps))
        torch.testing.assert_close(page.loop(A, k, 5), by_orbits)
        torch.testing.assert_close(page.chain(A, k, 5), by_orbits)
    assert page.exponent([10, 100, 1000], np.array([2.0, 4.0, 8.0])) == pytest.approx(math.log10(2))
    assert page.fastest(lambda: None, 3) >= 0


def test_inputs_turned_against_layers_turned(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for (name, space), seed in itertools.product(maps.items(), (40, 41)):
        nodes = run.haar(space.group)
        sigma = torch.tanh if space.is_permutation else run.gated
        assert max(run.gaps_of_the_lemma(space, *nodes, sigma, seed)) < 1e-12, name
        assert min(run.gaps_of_the_lemma(space, *nodes, run.uneven, seed)) > 1e-6, name


def test_networks_of_projected_layers_are_equivariant(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for name in ("graphs, S4", "vectors, SO(3)", "tensors, U(2)", "pentagon, D5"):
        space = maps[name]
        V, W, group = space.source, space.target, space.group
        g = group.sample(5, torch.Generator().manual_seed(0))
        rho_V, rho_W = V.matrix(g), W.matrix(g)
        spaces = Hom(V, V), space
        layers = [projection(H)(run.gaussian(*H.shape, like=rho_W, s=k)) for k, H in enumerate(spaces)]
        sigma = torch.tanh if space.is_permutation else run.gated
        x = run.gaussian(4, V.dim, like=rho_W, s=9)
        left = run.forward(layers, sigma, x @ rho_V.mT)
        assert torch.allclose(left, run.forward(layers, sigma, x) @ rho_W.mT)


@pytest.mark.parametrize("name", ["C2", "D3", "Q8"])
def test_hessians_split(page: SimpleNamespace, name: str) -> None:
    V = regular(named(name))
    for W, seed in itertools.product((trivial(V.group), V), (50, 51)):
        found = page.splits(V, W, seed)
        assert max(found["block"], found["projection"]) < 1e-12
        assert min(found["nominal block"], found["nominal"]) > 1e-3


def test_hessians_are_those_of_the_library(page: SimpleNamespace) -> None:
    V = pixels(Dihedral(4), 2)
    W = trivial(V.group)
    rho, nominal, augmented, projected = page.hessians(V, W, 3)
    x, y = (page.gaussian(12, U.dim, like=rho, s=3000 + k) for k, U in enumerate((V, W)))
    risks = Risks(SmallNetwork((V, V, W)), x, y)
    a = risks.project(page.gaussian(len(rho[0]), like=rho, s=3002))
    assert torch.allclose(hessian(risks.nominal, a), nominal)
    assert torch.allclose(hessian(risks.augmented, a), augmented)
    layers = risks.network.layers
    assert torch.allclose(projection(layers * layers)(nominal.flatten()).reshape(nominal.shape), projected)


def test_biases(run: SimpleNamespace, maps: dict[str, Hom]) -> None:
    for space, seed in itertools.product(maps.values(), (60, 61)):
        assert run.bias_gap(space, *run.haar(space.group), seed) < 1e-13
    V = natural(Symmetric(5))
    g, w = run.haar(V.group)
    signs = torch.linalg.det(V.matrix(g))
    for seed in range(10):
        assert run.bias_gap(Hom(V, V * V), g, w, seed, signs) > 1e-3
    assert projection(vectors(SpecialOrthogonal(3))).rank == 0  # no equivariant bias under rotations of space


def test_linear_digits(page: SimpleNamespace) -> None:
    for seed in (1, 2):
        free, projected, refitted, inside = page.linear_digits(seed).values()
        assert len(set(projected)) == len(set(refitted)) == len(set(inside)) == 1
        assert free[0] > 0.9 > inside[0] > refitted[0] > projected[0] + 0.2


def test_refitted_biases_are_those_of_logistic_regression(page: SimpleNamespace) -> None:
    """At the best biases the slope of the mean log likelihood is zero; the scores of class 2 lie too high by 5."""
    y = torch.arange(300) % 3
    scores = torch.nn.functional.one_hot(y) + page.gaussian(300, 3, like=page.equal_weights(1), s=0)
    scores[:, 2] += 5
    b = page.refitted(scores, y).requires_grad_()
    (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(scores + b, y), b)
    assert page.largest(slope) < 1e-9
    assert float((b[0] - b[2]).detach()) == pytest.approx(5, abs=0.5)


def test_denoising(page: SimpleNamespace) -> None:
    """The true symmetry helps where samples are few, the false one costs where they are many."""
    free, true, false, inside = page.denoising_errors([40, 5000], 11).values()
    assert inside[0] < true[0] < 0.8 * free[0]
    assert false[1] > 1.1 * free[1]
    np.testing.assert_allclose([true[1], inside[1]], free[1], rtol=0.03)
    x = page.patches("chelsea", 50, torch.Generator().manual_seed(0))
    assert x.shape == (50, 36)
    assert x.mean(1).abs().max() < 1e-12
    map_ = page.denoiser(x.repeat(10, 1), x.repeat(10, 1), ridge=1e-12)
    torch.testing.assert_close(x @ map_.T, x, rtol=0, atol=1e-5)
    # To average both moments is to train on all images of the pairs.
    V = pixels(Dihedral(4), 6)
    noisy = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    images = (V.apply(V.group.elements()[:, None], z).flatten(0, 1) for z in (noisy, x))
    torch.testing.assert_close(page.denoiser(noisy, x, projection(Hom(V, V))), page.denoiser(*images))


@pytest.mark.parametrize("name", ["C5", "D4", "A4"])
def test_layers(page: SimpleNamespace, name: str) -> None:
    V = regular(named(name))
    W = V + trivial(V.group)
    layer = page.Layer(*(U.permutation(V.group.generators()) for U in (W, V)))
    assert len(layer.weight) == invariant_dimension(Hom(V, W))
    x, g = page.gaussian(V.dim, like=page.equal_weights(1), s=0), V.group.elements()
    assert torch.allclose(layer(V.apply(g, x)), W.apply(g, layer(x)))
    layer(x).sum().backward()
    assert layer.weight.grad is not None


def test_exercises(page: SimpleNamespace) -> None:
    for n in (2, 3, 5):
        V = natural(Symmetric(n))
        A = page.gaussian(n, n, like=page.equal_weights(1), s=n)
        own, mu, layer = page.deep_sets(A)
        assert torch.allclose(layer, projection(Hom(V, V))(A))
        assert torch.allclose(page.deep_sets(own * torch.eye(n).double() + mu)[2], layer)
        assert float((A - layer).norm()) > 0.1
    rho = page.acting_on_itself(named("D3"))
    M = page.gaussian(3, 3, like=rho, s=4)
    trace, skew, rest = page.pieces(M)
    assert torch.allclose(trace + skew + rest, M)
    assert rest.trace().abs() < 1e-12
    assert torch.equal(skew, -skew.T)


def test_translations_are_one_of_the_groups(run: SimpleNamespace) -> None:
    shifted = pixels(translations(4), 4)
    assert by_characters(run, Hom(shifted, shifted)) == pytest.approx(16)


def test_bad_parameters_stop_at_the_door() -> None:
    wrong = {"group": "C33", "seeds": 0, "seed": -1, "grid": 5, "device": "abacus"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load("haar_projections", **{name: value})
    for value in ("C1", "E8", "S5"):
        with pytest.raises(ValueError, match="must"):
            load("haar_projections", group=value)
