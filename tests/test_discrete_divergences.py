"""The run of both suprema: divergences on finite sets under a group, against closed forms and other solvers."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from lib.gans.plane_players import group_matrices
from lib.symmetry.actions import natural, planar
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.transport.divergences import KINDS, regularised_batch, w1
from lib.transport.kernels import mmd_squared
from lib.transport.quotient import linear, no_group
from tests.chapters import load

FAMILIES = ("w1", "mmd", "alpha2", "kl")
GROUPS = {
    "C2 on the line": torch.tensor([[[1.0]], [[-1.0]]], dtype=torch.float64),
    "C4 on the plane": group_matrices(planar(Cyclic(4))),
    "D4 on the plane": group_matrices(planar(Dihedral(4))),
    "S3 on coordinates": group_matrices(natural(Symmetric(3))),
}


@cache
def run(lipschitz: float = 0.5, width: float = 0.7, laws: int = 2) -> SimpleNamespace:
    return load("runs/suprema", lipschitz=lipschitz, width=width, laws=laws, seed=3)


def space_of(maps: torch.Tensor, seed: int = 0, shear: float = 0.0) -> tuple[np.ndarray, torch.Tensor]:
    """Return all distances and all points of five orbits, the action conjugated by a shear."""
    a = torch.eye(dim := maps.shape[-1], dtype=torch.float64)
    a[0, min(1, dim - 1)] += shear if dim > 1 else 0
    x = torch.randn(5, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    points = (x @ (a @ maps @ a.inverse()).mT).flatten(0, 1)
    return no_group(dim).distance(points, points).numpy(), points


def laws_on(size: int, seed: int = 0, concentration: float = 0.7) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(size, concentration), 2)


def even(laws: np.ndarray) -> np.ndarray:
    return np.tile(laws.reshape(2, -1, 5).mean(1), laws.shape[1] // 5)


def line(*positions: float) -> np.ndarray:
    """Return the distances of points of the line, under the trivial group."""
    return abs(np.subtract.outer(positions, positions))


# --- which laws ---


@pytest.mark.parametrize("group", ["C3", "D3", "signs", "pentagon", "permutations"])
def test_laws_are_drawn_symmetrised_and_on_their_way(group: str) -> None:
    cases = list(run().laws_of(group, "rigid"))
    assert {names[1] for names, *_ in cases} == {3000, 3001}
    for (how, _, t, _), d, q, p in cases:
        order = len(d) // 5
        rows = np.sort(d.reshape(order, 5, order, 5), 2)  # distances from an image to another orbit
        assert np.allclose(rows, rows[:1])
        assert q.sum() == pytest.approx(1)
        assert p.sum() == pytest.approx(1)
        if how == "way out":
            assert np.allclose(even(np.stack([q, p])), q)
            if t == 0:
                assert ((p.reshape(order, 5) > 0).sum(0) <= 1).all()
            elif t == 1:
                assert np.allclose(p, q)
        else:
            assert np.allclose(even(np.stack([q, p])), [q, p]) == bool(t)


@pytest.mark.parametrize("how", ["stretched", "sheared"])
def test_what_stays_isometric_is_no_control(how: str) -> None:
    for group in ("C2", "signs"):  # −1 commutes with every matrix
        assert not list(run().laws_of(group, how))
    assert bool(list(run().laws_of("D2", how))) == (how == "sheared")
    for (kind, *_), d, *_ in run().laws_of("C4", how):
        assert kind == how
        rows = np.sort(d.reshape(4, 5, 4, 5), 2)
        assert abs(rows - rows[:1]).max() > 0.1


# --- all discriminators ---


def test_wasserstein_on_the_line() -> None:
    d = line(-1.0, 0.0, 0.5, 2.0)
    q, p = laws_on(4)
    expected = (abs((q - p).cumsum())[:-1] * [1.0, 0.5, 1.5]).sum()
    assert run().over_all("w1", d, q, p) == pytest.approx(expected, rel=1e-12)


def test_mmd_is_reached_by_its_witness_and_by_no_other_function() -> None:
    d, _ = space_of(GROUPS["C4 on the plane"], shear=0.8)
    q, p = laws_on(20)
    kernel = np.exp(-(d**2) / (2 * 0.7**2))
    witness = kernel @ (q - p)
    value = run().over_all("mmd", d, q, p)
    assert (q - p) @ witness / np.sqrt(witness @ np.linalg.solve(kernel, witness)) == pytest.approx(value)
    weights = np.random.default_rng(0).standard_normal((200, 20))
    functions = weights @ kernel / np.sqrt(np.einsum("ri,ij,rj->r", weights, kernel, weights))[:, None]
    assert (functions @ (q - p) < value).all()


@pytest.mark.parametrize("kind", KINDS)
def test_regularised_on_two_points(kind: str) -> None:
    q, p = np.array([[0.9, 0.1], [0.3, 0.7]])

    def compromise(mass: float) -> float:
        ratio = np.array([mass, 1 - mass]) / p
        f = ratio * np.log(ratio) if kind == "kl" else (ratio**2 - 1) / 2
        return (p * f).sum() + 0.4 * abs(q[0] - mass)

    best = minimize_scalar(compromise, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-10}).fun
    assert run(0.4).over_all(kind, line(0.0, 1.0), q, p) == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ["over_all", "over_invariant"])
def test_limits_of_the_lipschitz_constant(kind: str, route: str) -> None:
    d = line(0.0, 0.7, 1.1, 2.0, 2.2)
    q, p = laws_on(5, 1, concentration=3)
    exact = (q * np.log(q / p)).sum() if kind == "kl" else ((q**2 / p).sum() - 1) / 2
    assert getattr(run(100.0), route)(kind, d, q, p) == pytest.approx(exact, rel=1e-6)
    straight = 0.01 * run().over_all("w1", d, q, p)
    assert getattr(run(0.01), route)(kind, d, q, p) == pytest.approx(straight, rel=0.05)


@pytest.mark.parametrize("family", FAMILIES)
def test_least_cost_and_best_discriminator_meet(family: str) -> None:
    """Under the trivial group both routes compute one number, also where p has no mass."""
    d = line(*np.random.default_rng(0).standard_normal(5))
    q, p = laws_on(5, 2)
    for other in (p, np.r_[0, 0, p[2:]] / p[2:].sum()):
        value = run().over_all(family, d, q, other)
        assert run().over_invariant(family, d, q, other) == pytest.approx(value, rel=1e-7)
        assert value > 0.01
    assert run().over_all(family, d, q, q) == pytest.approx(0, abs=1e-8)


# --- invariant discriminators ---


def test_both_routes_agree_with_the_library_for_samples() -> None:
    d, points = space_of(GROUPS["C4 on the plane"])
    q, p = np.r_[0.5, 0.5, np.zeros(18)], np.r_[0, 0, np.full(3, 1 / 3), np.zeros(15)]
    x, y, action = points[:2], points[2:5], linear(planar(Cyclic(4)))
    assert run().over_invariant("w1", d, q, p) == pytest.approx(w1(x, y, action), rel=1e-9)
    squared = float(mmd_squared(x[None], y[None], action, 0.7))
    assert run().over_invariant("mmd", d, q, p) == pytest.approx(squared**0.5, rel=1e-8)
    for kind in KINDS:
        for route, of in (("over_all", no_group(2)), ("over_invariant", action)):
            value = float(regularised_batch(x[None], y[None], of, kind, 0.5))
            assert getattr(run(), route)(kind, d, q, p) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("shear", [0.0, 0.8])
def test_invariant_mmd_against_the_general_formula(shear: float) -> None:
    d, _ = space_of(GROUPS["C4 on the plane"], shear=shear)
    q, p = laws_on(20)
    basis = np.tile(np.eye(5), (4, 1))
    kernel = np.exp(-(d**2) / (2 * 0.7**2))
    gain = basis.T @ (q - p)
    expected = np.sqrt(gain @ np.linalg.solve(basis.T @ np.linalg.solve(kernel, basis), gain))
    assert run().over_invariant("mmd", d, q, p) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shear", [0.0, 0.8])
def test_invariant_functions_see_only_symmetrised_laws(family: str, shear: float) -> None:
    d, _ = space_of(GROUPS["C4 on the plane"], shear=shear)
    laws = laws_on(20)
    one, other = (run().over_invariant(family, d, *pair) for pair in (laws, even(laws)))
    assert one == pytest.approx(other, rel=1e-7)
    assert run().over_all(family, d, *laws) > one + 0.01


@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(GROUPS)), family=st.sampled_from(FAMILIES))
@settings(max_examples=16, deadline=None)
def test_nothing_is_lost_on_invariant_laws(seed: int, name: str, family: str) -> None:
    d, _ = space_of(GROUPS[name], seed)
    laws = even(laws_on(len(d), seed))
    value = run().over_all(family, d, *laws)
    assert run().over_invariant(family, d, *laws) == pytest.approx(value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_orbits_without_mass(family: str) -> None:
    d, _ = space_of(GROUPS["C4 on the plane"])
    q, p = np.tile([[0.5, 0.25, 0, 0.25, 0], [0, 0.5, 0.5, 0, 0]], 4) / 4
    value = run().over_all(family, d, q, p)
    assert run().over_invariant(family, d, q, p) == pytest.approx(value, rel=1e-6)
    assert value > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_shear_costs_at_most_its_distortion(seed: int) -> None:
    maps = GROUPS["C4 on the plane"]
    d, _ = space_of(maps, seed, 0.8)
    a = torch.tensor([[1, 0.8], [0, 1]], dtype=torch.float64)
    kappa = float(torch.linalg.matrix_norm(a @ maps @ a.inverse(), 2).mean())
    laws = even(laws_on(20, seed))
    most, least = (route("w1", d, *laws) for route in (run().over_all, run().over_invariant))
    assert most / kappa <= least < 0.99 * most
    wide = run(0.5 * kappa).over_invariant("kl", d, *laws)
    narrow, full = (route("kl", d, *laws) for route in (run().over_invariant, run().over_all))
    assert narrow < 0.999 * full < wide


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_active_lipschitz_bound_no_action_breaks_the_equality(kind: str) -> None:
    d, _ = space_of(GROUPS["C4 on the plane"], shear=0.8)
    laws = even(laws_on(20, concentration=5))
    free, restricted = (route(kind, d, *laws) for route in (run(50.0).over_all, run(50.0).over_invariant))
    assert free == pytest.approx(restricted, rel=1e-6)
    bound, less = (route(kind, d, *laws) for route in (run(0.05).over_all, run(0.05).over_invariant))
    assert less < 0.99 * bound
