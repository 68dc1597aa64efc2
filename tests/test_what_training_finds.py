"""Chapter *What training finds*: what its page defines, at other seeds, on other groups and by other routes."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from lib.symmetry.own_groups import named
from tests.chapters import load


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("what_training_finds", group="D5", seed=60, seeds=2)


# --- section 2 ---


def test_turned_coordinates_are_the_same_problem(page: SimpleNamespace) -> None:
    """The risk of the turned start, its gradient's length, and how far it is from E, are those of the start."""
    (risks, start), (turned, other) = page.world(61), page.world(61, turned=True)
    torch.testing.assert_close(risks.augmented(start), turned.augmented(other))
    torch.testing.assert_close(risks.outside(start).norm(), turned.outside(other).norm())
    slopes = (page.gradient(r.augmented, a).norm() for r, a in ((risks, start), (turned, other)))
    torch.testing.assert_close(*slopes)


def test_momentum_is_torchs(page: SimpleNamespace) -> None:
    g, w, memory = page.generator(61, 1), torch.zeros(3, 2, dtype=torch.float64), None
    theirs, ours = torch.optim.SGD([w], lr=0.1, momentum=0.9), w.clone()
    for slope in page.normal(g, 4, 3, 2):
        memory, move = page.momentum(memory, slope)
        ours, w.grad = ours - 0.1 * move, slope
        theirs.step()
    torch.testing.assert_close(ours, w)


def test_matrix_optimisers_flatten_singular_values(page: SimpleNamespace) -> None:
    """Shampoo's first step is U Vᵀ but for ε; Muon's singular values lie in the band of its polynomial."""
    slope = 10 * page.normal(page.generator(62, 1), 5, 3)
    U, _, Vh = torch.linalg.svd(slope, full_matrices=False)
    torch.testing.assert_close(page.shampoo(None, slope)[1], U @ Vh, atol=1e-4, rtol=0)
    values = torch.linalg.svdvals(page.muon(None, slope)[1])
    assert 0.6 < values.min() < values.max() < 1.3


def test_who_commutes_keeps_the_symmetry(page: SimpleNamespace) -> None:
    """O6 over the dihedral group of order ten, at another seed."""
    for name in page.product(("gradient descent", "Adam", "Muon"), (False, True)):
        drift, residual = page.kept(name[0], 63, name[1])
        if name == ("Adam", True):
            assert drift[1] > 1e-3
            assert min(float(drift[-1]), residual) > 0.05
        else:
            assert max(float(drift[-1]), residual) < 1e-8


# --- section 3 ---


def test_images_are_turned_about_the_third_axis(page: SimpleNamespace) -> None:
    x = page.normal(page.generator(64, 1), 4, 3)
    z = page.images(x, 5)
    assert z.shape == (20, 3)
    torch.testing.assert_close(z[:4], x)
    torch.testing.assert_close(z[..., 2], x[:, 2].repeat(5))
    torch.testing.assert_close(z[:, :2].norm(dim=1), x[:, :2].norm(dim=1).repeat(5))
    torch.testing.assert_close(z[:, :2].unflatten(0, (5, 4)).sum(0), torch.zeros(4, 2).double(), atol=1e-14, rtol=0)


@pytest.mark.parametrize("degree", [3, 5])
def test_directions_freeze_one_turn_above_the_degree(page: SimpleNamespace, degree: int) -> None:
    """O7 for losses of odd degree, which the page does not try."""

    def slope(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (f - y) ** (degree - 1)

    assert page.angles(slope, degree + 1, [65, 66], steps=100).max() < 1e-8
    assert page.angles(slope, degree, [65, 66], steps=100).max() > 1e-6


def test_plain_data_turn_the_direction(page: SimpleNamespace) -> None:
    assert page.angles(page.SLOPES["degree 2"], 1, [65], steps=100) > 1e-2


# --- section 4 ---


def test_a_planted_renaming_is_found(page: SimpleNamespace) -> None:
    """Rows that were permuted and had their signs changed are matched as they were."""
    g = page.generator(67, 1)
    rows, S = page.normal(g, 6, 4), page.signed(6, g)
    torch.testing.assert_close(page.match(S @ rows, rows), S)


def _teacher(page: SimpleNamespace, kinds: tuple[str, str], s: int) -> torch.Tensor:
    spaces = {"+": page.plain, "−": page.twisted}
    network = page.SmallNetwork([page.plain, *(spaces[k] for k in kinds), page.plain])
    return page.projection(network.layers)(page.normal(page.generator(s, 2), 27))


@pytest.mark.parametrize("kinds", list(itertools.product("+−", repeat=2)), ids="".join)
def test_equivariant_functions_have_equivariant_layers(page: SimpleNamespace, kinds: tuple[str, str]) -> None:
    """O1 for networks that are equivariant by construction and whose units were renamed at random."""
    A, B, C = _teacher(page, kinds, 68).unflatten(0, (3, 3, 3))
    g = page.generator(69, 1)
    P, Q = page.signed(3, g), page.signed(3, g)
    renamed = torch.stack([P @ A, Q @ B @ P.mT, C @ Q.mT])
    assert page.asymmetry(renamed.flatten()[None], 70) < 1e-12
    T, U, miss = page.hidden_actions(renamed)
    assert miss < 1e-12
    assert page.mismatches(T) == page.mismatches(U) == 0
    assert (page.kind_of(T), page.kind_of(U)) == kinds
    assert page.hidden_actions(page.repeated(renamed))[2] > 0.1


def test_random_networks_carry_no_action(page: SimpleNamespace) -> None:
    w = page.normal(page.generator(71, 1), 27)
    T, U, miss = page.hidden_actions(w.unflatten(0, (3, 3, 3)))
    assert miss > 0.1
    assert page.asymmetry(w[None], 72) > 0.1
    assert page.mismatches(T) + page.mismatches(U) > 0


def test_students_find_a_teacher(page: SimpleNamespace) -> None:
    """Training from random starts, at another seed, with the page's own steps."""
    x, y, begin = page.lesson(73, page.TEACHERS["− +"])
    w = page.polish(page.learn(begin, x, y), x, y)
    good = page.asymmetry(w, 74) < 1e-10
    assert good.any()
    assert max(page.hidden_actions(v.unflatten(0, (3, 3, 3)))[2] for v in w[good]) < 1e-6


# --- section 5 ---


@pytest.mark.parametrize("name", ["S3", "Q8", "C7", "C7:C3", "D5"])
def test_blocks_are_orthogonal_projections(page: SimpleNamespace, name: str) -> None:
    """With the constants they are a resolution of the identity."""
    H = named(name)
    P = torch.stack([part[3] for part in page.real_parts(H)])
    torch.testing.assert_close(P @ P, P)
    torch.testing.assert_close(P, P.mT)
    constants = torch.full((H.order, H.order), 1 / H.order).double()
    torch.testing.assert_close(P.sum(0) + constants, torch.eye(H.order).double())


@pytest.mark.parametrize("name", ["S3", "Q8", "C9", "A4"])
def test_no_neuron_exceeds_its_bound(page: SimpleNamespace, name: str) -> None:
    """The largest Σ u(a)v(b)w(ab) in a block is ν; random neurons stay below, alternation arrives."""
    H = named(name)
    t, g = H.cayley_table(), page.generator(75, 1)
    for _, nu, _, P in page.real_parts(H):
        u, v, w = page.normal(g, 3, 500, H.order) @ P
        u, v, w = (part / part.norm(dim=1, keepdim=True) for part in (u, v, w))
        assert torch.einsum("ka,kb,kab->k", u, v, w[:, t]).max() < nu * (1 + 1e-12)
        assert page.best_neuron(P, t, g)[1] == pytest.approx(nu, rel=1e-10)


@pytest.mark.parametrize("name", ["D5", "C2xC4", "D6"])
def test_the_certificate_is_attained(page: SimpleNamespace, name: str) -> None:
    """O4 on groups that the page does not try."""
    H = named(name)
    margin, weights = page.certificate(H)
    assert sum(weights) == pytest.approx(1)
    theta = page.best_network(H, page.generator(76, 1))
    assert float(page.size(theta)) == pytest.approx(1)
    assert float(page.leads(theta, H.cayley_table()).min()) == pytest.approx(margin, rel=1e-11)


@pytest.mark.parametrize("name", ["C3xC3", "C9", "C15"])
def test_the_formula_holds_for_abelian_groups_of_odd_order(page: SimpleNamespace, name: str) -> None:
    n = named(name).order
    assert page.certificate(named(name))[0] == pytest.approx(math.sqrt(2 / 27 / n) / (n - 1), rel=1e-11)


def test_leads_are_differences_of_outputs(page: SimpleNamespace) -> None:
    t = named("S3").cayley_table()
    theta = page.normal(page.generator(77, 1), 4, 3, 6)
    u, v, w = theta.unbind(1)
    for a, b, c in itertools.product(range(6), repeat=3):
        f = (((u[:, a] + v[:, b]) ** 2)[:, None] * w).sum(0)
        expected = math.inf if c == t[a, b] else float(f[t[a, b]] - f[c])
        assert float(page.leads(theta, t)[a, b, c]) == pytest.approx(expected)


@pytest.mark.parametrize("m", [5, 6, 9])
def test_latin_squares_are_no_groups(page: SimpleNamespace, m: int) -> None:
    for s in range(78, 82):
        t = page.latin_square(m, s)
        assert torch.equal(t.sort(0).values, torch.arange(m)[:, None].expand(m, m))
        assert torch.equal(t.sort(1).values, torch.arange(m).expand(m, m))
        assert not all(torch.equal(t[t[a]], t[a][t]) for a in range(m))


def test_training_finds_the_blocks(page: SimpleNamespace) -> None:
    """O4 for the cyclic group of order six, at another seed."""
    H = named("C6")
    scale, weights = page.certificate(H)
    theta = page.train(H.cayley_table()[None], 48, [82], scale)[0]
    margin, purity, division = page.tell(theta, H.cayley_table(), H, scale, weights)
    assert -1e-12 < margin < 0.08
    assert purity < 0.02
    assert division < 0.025
