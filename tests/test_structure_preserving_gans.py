"""What the page *Structure-preserving GANs* defines: other seeds, other groups, and controls that fail."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import nn

from lib.gans.mixtures import Mixture
from lib.gans.objectives import gradient_penalty, objective
from lib.gans.plane_games import Settings
from lib.gans.plane_players import group_matrices, noise_representation
from lib.page.results import stored
from lib.symmetry.actions import natural, planar
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.own_groups import named
from lib.transport.two_sample import outside_interval, two_sample_test
from tests.chapters import load

ACTIONS = {"C3": planar(Cyclic(3)), "D4": planar(Dihedral(4)), "permutations": natural(Symmetric(3))}


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("structure_preserving_gans", seed=11, seeds=5)


@pytest.fixture(scope="module")
def contest(page: SimpleNamespace) -> tuple[dict, pd.DataFrame]:
    short = load("structure_preserving_gans", seed=12, seeds=5)
    vars(short)["contest"].__globals__["width"] = 32
    pairings = ["plain/plain", "plain/averaged", "incomplete/averaged", "equivariant/plain", "equivariant/averaged"]
    return short.contest(Mixture(), pairings, (50,), 300)


# --- the game by hand ---


def test_the_objective_and_its_penalty_are_those_of_the_library(page: SimpleNamespace) -> None:
    g = torch.Generator().manual_seed(3)
    real, fake = torch.randn(2, 40, generator=g)
    assert page.H(real, fake) == pytest.approx(float(objective("alpha").value(real, fake)), rel=1e-6)
    t = torch.linspace(-3, 3, 61, dtype=torch.float64)
    ratios = torch.linspace(0, 6, 6001, dtype=torch.float64)
    supremum = (t[:, None] * ratios - (ratios**2 - 1) / 2).amax(1)
    assert torch.allclose(page.conjugate(t), supremum, atol=1e-6)
    torch.manual_seed(0)
    D = page.perceptron(2, 8, 1)
    x, y = torch.randn(2, 30, 2, generator=g)
    ours = page.steepness(D, x, y, torch.Generator().manual_seed(5))
    theirs = gradient_penalty(lambda z: D(z)[..., 0], x, y, "one_sided", torch.Generator().manual_seed(5))[1]
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)


def test_the_relativistic_objective_is_that_of_the_games(page: SimpleNamespace) -> None:
    g = torch.Generator().manual_seed(4)
    rule = objective(Settings().objective)
    for n, m in ((40, 40), (30, 50)):
        real, fake = 2 * torch.randn(n, generator=g, dtype=torch.float64), torch.randn(m, generator=g).double() - 1
        ours = page.relativistic(real, fake)
        assert float(rule.value(real, fake)) == pytest.approx(float(ours) + math.log(4), rel=1e-9)
        loss = rule.generator_loss(real, fake)
        assert float(loss) == pytest.approx(-float(page.relativistic(fake, real)), rel=1e-9)
    assert page.relativistic(real + 3, fake + 3) == pytest.approx(float(page.relativistic(real, fake)))
    other = torch.randn(2, 50, generator=g).double()  # concave in the scores
    middle = page.relativistic((real + other[0, :30]) / 2, (fake + other[1]) / 2)
    assert 2 * middle > page.relativistic(real, fake) + page.relativistic(other[0, :30], other[1])


def test_playing_moves_the_points_to_the_data(page: SimpleNamespace) -> None:
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(1)
    data = Mixture().sample((100,), g)
    G = page.perceptron(4, 16, 2)
    z = torch.randn(200, 4, generator=g)
    before = G(z).detach().norm(dim=-1).mean()
    judge = page.perceptron(2, 16, 1)
    page.play(G, judge, lambda: data[:50], lambda: torch.randn(50, 4, generator=g), 100, g)
    after = G(z).detach().norm(dim=-1).mean()
    assert abs(after - 3) < abs(before - 3)


@pytest.mark.parametrize("name", ["C2", "C3", "C8", "D2", "D4"])
def test_tied_layers_are_all_equivariant_layers(page: SimpleNamespace, name: str) -> None:
    group = named(name)
    plane, noise, hidden = planar(group), noise_representation(group, 2), noise_representation(group, 3)
    M, Z, F = (group_matrices(r).float() for r in (plane, noise, hidden))
    torch.manual_seed(2)
    G = nn.Sequential(page.Tied(Z, 3), nn.LeakyReLU(0.1), page.Tied(F, 3), nn.LeakyReLU(0.1), page.Back(M, 3))
    D = page.Averaged(page.perceptron(2, 8, 1), M)
    z, x = torch.randn(20, Z.shape[-1]), torch.randn(20, 2)
    with torch.no_grad():
        for a, b in zip(Z, M):
            assert torch.allclose(G(z @ a.mT), G(z) @ b.mT, atol=1e-5)
            assert torch.allclose(D(x @ b.mT), D(x), atol=1e-5)
        assert not torch.allclose(D.D(x @ M[-1].mT), D.D(x), atol=1e-3)
    assert G[0].w.numel() == projection(Hom(noise, hidden)).rank
    assert G[4].w.numel() == projection(Hom(hidden, plane)).rank


# --- G1 and the exact half of G3 ---


def suprema(**parameters: object) -> pd.DataFrame:
    """What the run of both suprema records, with a column of relative differences."""
    run = load("runs/suprema", **parameters)
    rows = [
        (group, *names, family, run.over_all(family, *given), run.over_invariant(family, *given))
        for group in run.groups
        for how in run.HOW
        for names, *given in run.laws_of(group, how)
        for family in run.families
    ]
    columns = ["group", "how", "pair", "t", "slope", "family", "all", "invariant"]
    return pd.DataFrame(rows, columns=columns).set_index(["how", "t", "group", "pair", "family"]).sort_index()


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return suprema(groups=["C3", "D4", "permutations"], laws=2, seed=21)


def test_both_suprema_agree(page: SimpleNamespace, found: pd.DataFrame) -> None:
    raw, even = found.loc["rigid", 0.0], found.loc["rigid", 1.0]
    assert len(even) == 2 * 3 * 4
    assert float(even.min().min()) > 0.005
    assert float(page.gap(even["all"], even["invariant"]).max()) <= 1e-6
    assert float(page.gap(even["all"], raw["invariant"]).max()) <= 1e-6
    assert bool((raw["all"] > even["all"]).all())


@pytest.mark.parametrize("how", ["stretched", "sheared"])
def test_broken_symmetry_separates_them(page: SimpleNamespace, found: pd.DataFrame, how: str) -> None:
    raw, even = found.loc[how, 0.0], found.loc[how, 1.0]
    for invariant in (raw["invariant"], even["invariant"]):
        assert float(page.gap(even["all"], invariant).min()) > 1e-5
        assert bool((invariant < even["all"]).all())


def test_the_stored_table_is_what_the_run_computes() -> None:
    """A few of its numbers, anew: other seeds and groups, and every family."""
    table = stored("structure_preserving_gans/suprema", "suprema")
    assert set(table["seed"]) == set(range(11))
    keys = ["how", "t", "group", "pair", "family"]
    for seed, groups in ((4, ["D3"]), (9, ["signs"])):
        anew = suprema(groups=groups, laws=3, times=11, seed=seed)
        kept = table[(table["seed"] == seed) & table["group"].isin(groups)].set_index(keys)
        assert len(kept) == len(anew)
        for side in ("all", "invariant", "slope"):
            assert np.allclose(kept[side].reindex(anew.index), anew[side], rtol=1e-6, atol=1e-8)


def test_a_control_loses_something_exactly_where_the_slope_bound_binds(page: SimpleNamespace) -> None:
    """Laws whose ``f'(q/p)`` is not too steep have that as their best function, which is invariant: C3 at seed 6."""
    table = stored("structure_preserving_gans/suprema", "suprema").query("how in ['stretched', 'sheared'] and t == 1")
    bounded = table[table["family"].isin(["alpha2", "kl"])]
    loose = bounded["slope"] <= 1
    assert len(loose) == 2 * 627
    assert set(zip(bounded["seed"][loose], bounded["group"][loose], bounded["pair"][loose])) == {(6, "C3", 6002)}
    gaps = page.gap(bounded["all"], bounded["invariant"])
    assert float(gaps[loose].max()) < 1e-8
    assert float(gaps[~loose].min()) > 1e-5
    run = load("runs/suprema", seed=6, laws=3)
    for (_, pair, t, _), _, q, p in run.laws_of("C3", "stretched"):
        if (pair, t) == (6002, 1.0):  # no bound at all gives the same
            row = table.query("group == 'C3' and pair == 6002 and how == 'stretched'").set_index("family")["all"]
            assert row["alpha2"] == pytest.approx(((q - p) ** 2 / p).sum() / 2, rel=1e-6)
            assert row["kl"] == pytest.approx((q * np.log(q / p)).sum(), rel=1e-6)


def test_the_program_by_hand(page: SimpleNamespace) -> None:
    run = load("runs/suprema", seed=5)
    for _, d, q, p in run.laws_of("C3", "rigid"):
        points, orbits = np.arange(len(d)), np.tile(np.arange(5), 3)
        for route, labels in ((run.over_all, points), (run.over_invariant, orbits)):
            assert page.supremum(q, p, d, labels) == pytest.approx(route("w1", d, q, p), abs=1e-9)
        both = [run.over_all("w1", d, q, p), run.over_invariant("w1", d, q, p)]
        assert page.both_suprema(q, p, d) == pytest.approx(both, abs=1e-9)


def test_a_random_pair_lives_on_orbits_and_is_evened_there(page: SimpleNamespace) -> None:
    maps = group_matrices(ACTIONS["D4"])
    x, pair = page.random_pair(maps, np.random.default_rng(2))
    assert (x.shape, pair.shape) == ((40, 2), (2, 40))
    even = page.evened(pair)
    assert np.allclose(even.sum(1), 1)
    for a in maps:
        place = np.argmin(np.linalg.norm((x @ a.mT)[:, None] - x, axis=-1), 1)  # the index of σx
        assert np.allclose(even[:, place], even)
        assert not np.allclose(pair[:, place], pair) or torch.equal(a, torch.eye(2, dtype=a.dtype))


def test_one_point_of_every_orbit_looks_perfect_to_invariant_discriminators(found: pd.DataFrame) -> None:
    way = found.loc["way out"]
    assert float(way["invariant"].abs().max()) < 1e-7
    assert float(way.loc[0.0]["all"].min()) > 0.05
    assert float(way.loc[1.0]["all"].abs().max()) < 1e-7


def kept(page: SimpleNamespace, maps: torch.Tensor, s: int) -> tuple[float, float]:
    """W over invariant functions as a share of W over all, for a pair of invariant laws, and its floor 1/κ."""
    x, pair = page.random_pair(maps, np.random.default_rng([6, s]))
    most, least = page.both_suprema(*page.evened(pair), cdist(x, x))
    return least / most, 1 / float(torch.linalg.matrix_norm(maps, 2).mean())


def test_a_shear_loses_at_most_its_floor(page: SimpleNamespace) -> None:
    for maps in (group_matrices(ACTIONS["C3"]), group_matrices(ACTIONS["D4"])):
        whole, some, much = (kept(page, page.sheared(maps, t), 4) for t in (0.0, 0.1, 1.6))
        assert whole == pytest.approx((1, 1), abs=1e-9)
        assert 1 - 1e-6 > some[0] > much[0]
        assert some[0] >= some[1] - 1e-9
        assert much[0] >= much[1] - 1e-9
        bent = page.sheared(maps, 0.8)
        assert float((bent.mT @ bent - torch.eye(2)).abs().max()) > 0.1
        products = (bent[:, None] @ bent).flatten(0, 1)
        assert float(torch.cdist(products.flatten(1), bent.flatten(1)).amin(1).max()) < 1e-6  # a group


def test_gaps_are_relative_and_absolute_at_zero(page: SimpleNamespace) -> None:
    one, other = pd.Series([2.0, 1e-9, 0.0, 1e-3]), pd.Series([1.0, 0.0, 0.0, 0.0])
    assert page.gap(one, other).tolist() == [0.5, 1e-9, 0.0, 1.0]


# --- trained players: G2, G3, G4 ---


def test_only_equivariant_generators_make_invariant_laws(page: SimpleNamespace, contest: tuple) -> None:
    for trained in (False, True):
        good = page.test_of_law(contest[0]["equivariant/averaged"], trained, 3, 8, 400)
        bad = page.test_of_law(contest[0]["incomplete/averaged"], trained, 3, 1, 1600)
        assert good[1].shape == (5, 8)
        assert float(good[0].max()) < 1e-5
        assert float(bad[0].min()) > 0.1
        assert outside_interval(int((good[1] <= 0.05).sum()), 40, coverage=0.999) == 0
        assert int((bad[1] <= 0.05).sum()) == 5


def test_the_permutation_test_by_hand_is_that_of_the_library(page: SimpleNamespace) -> None:
    g = torch.Generator().manual_seed(8)
    x, y = torch.randn(60, 3, generator=g, dtype=torch.float64), torch.randn(41, 3, generator=g, dtype=torch.float64)
    for shift in (0.0, 0.4):
        statistic, p_value = page.permutation_test(x, y + shift, 999, g)
        theirs = two_sample_test(x, y + shift, g, 999)
        assert statistic == pytest.approx(float(theirs.statistic), rel=1e-6)
        assert p_value == pytest.approx(float(theirs.p_value), abs=0.05)
    none = [page.permutation_test(*torch.randn(2, 20, 2, generator=g), 19, g)[1] for _ in range(400)]
    assert abs(sum(p <= 0.05 for p in none) - 20) <= 15


def test_plain_generators_collapse_under_invariant_discriminators(page: SimpleNamespace, contest: tuple) -> None:
    fallen = page.collapsed(contest[1], 4).groupby("players").mean()
    assert fallen["plain/averaged"] >= 0.8
    assert fallen["incomplete/averaged"] >= 0.8
    assert fallen[["plain/plain", "equivariant/plain", "equivariant/averaged"]].max() == 0


def test_weak_links_hurt(page: SimpleNamespace, contest: tuple) -> None:
    found = page.gaps(contest[1], "w1")
    assert found.shape == (4, 3)
    for weak in ("plain/plain", "plain/averaged", "incomplete/averaged"):
        assert found.loc[(weak, 50), "low"] > 0
    assert abs(found.loc[("equivariant/plain", 50), "gap"]) < 0.2
    means = contest[1]["w1"].groupby("players").mean()
    assert means["plain/averaged"] > 1.2 * means["plain/plain"]
    assert means["equivariant/averaged"] < 1.2 * means["equivariant/plain"]


def test_no_gain_where_the_law_has_no_symmetry(page: SimpleNamespace) -> None:
    vars(page)["contest"].__globals__["width"] = 24
    unfair = Mixture(weights=(0.7, 0.15, 0.15), group=Cyclic(3))
    pairings = ["plain/plain", "equivariant/averaged"]
    _, scores = page.contest(unfair, pairings, (50,), 300)
    assert page.gaps(scores, "w1")["high"].max() < 0


def test_the_turned_generators_are_those_of_the_longer_run() -> None:
    """Played again, the games end where they ended; turned, their points fill every sector."""
    again = stored("structure_preserving_gans/turned_afterwards", "contest")
    longer = stored("structure_preserving_gans/weak_links", "contest")
    longer = longer.query("matched == 'parameters' and not skewed and squashed == (law == 'student')")
    keys = ["law", "players", "samples", "game"]
    old, new = (frame.set_index(keys).sort_index() for frame in (longer, again))
    columns = ["w1", "w1_invariant", "mmd", "smallest_share"]
    played, turned = "plain/averaged", "plain/averaged, samples turned"
    for law in ("gaussian", "student"):
        assert np.allclose(new.loc[law, played][columns], old.loc[law, played][columns], equal_nan=True)
        assert new.loc[law, played]["smallest_share"].max() < 0.05
        assert new.loc[law, turned]["smallest_share"].min() > 0.15


def test_intervals_are_paired(page: SimpleNamespace) -> None:
    weak, strong = np.array([3.0, 5.0, 8.0]), np.array([1.0, 2.0, 3.0])
    found = page.paired(weak, strong)
    half = 4.302652729749 * np.std([2, 3, 5], ddof=1) / math.sqrt(3)
    assert found == pytest.approx({"gap": 10 / 3, "low": 10 / 3 - half, "high": 10 / 3 + half})
    lost = page.paired([1.0, math.nan], [0.0, 0.0])
    assert (lost["low"], lost["high"]) == (-math.inf, math.inf)


@pytest.mark.parametrize("group", [Cyclic(3), Dihedral(4)], ids=str)
def test_an_equivariant_generator_hears_only_the_symmetrised_score(page: SimpleNamespace, group: Cyclic) -> None:
    width = 2 * group.order
    plane, noise, hidden = planar(group), noise_representation(group, 2), noise_representation(group, 3)
    M, Z, F = map(group_matrices, (plane, noise, hidden))
    z = torch.randn(30, Z.shape[-1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    closed = page.images(z, Z)
    for s in range(3):
        torch.manual_seed(s)
        leaky = nn.LeakyReLU(0.1)
        right = nn.Sequential(page.Tied(Z, 3), leaky, page.Tied(F, 3), leaky, page.Back(M, 3)).double()
        flawed = nn.Sequential(nn.Linear(len(Z[0]), len(Z[0])), right).double()
        plain = page.perceptron(len(Z[0]), width, 2).double()
        critic = page.perceptron(2, width, 1).double()
        for score in (critic, lambda x, critic=critic: critic(x).exp(), lambda x: x[..., :1] ** 4):
            mean = page.Averaged(score, M)
            assert page.difference(right, score, mean, closed) < 1e-10
            assert page.difference(right, score, mean, z) > 1e-3
            for wrong in (flawed, plain):
                assert min(page.difference(wrong, score, mean, batch) for batch in (z, closed)) > 1e-3

        mean = page.Averaged(critic, M)  # a function of the averaged score is another loss, also in expectation
        scores = (lambda x, critic=critic: critic(x).exp(), lambda x, mean=mean: mean(x).exp())
        assert page.difference(right, *scores, closed) > 1e-4


# --- exercises and parameters ---


@pytest.mark.parametrize("group", [Cyclic(3), Dihedral(4)], ids=str)
def test_a_random_turn_spreads_one_clump_over_all_sectors(page: SimpleNamespace, group: Cyclic) -> None:
    rng = torch.Generator().manual_seed(6)
    turn = page.RandomTurn(group_matrices(planar(group)).float())
    turn.forward.__globals__["fixed"] = rng
    law, n = Mixture(group=group), 4000
    clump = law.embedding[:, 0].float() * 3 + 0.1 + 0.05 * torch.rand(n, 2, generator=rng)
    assert law.shares(clump).max() == 1
    even = law.shares(turn(clump))
    chance = 1 / group.order
    assert float((even - chance).abs().max()) < 5 * math.sqrt(chance / n)
    assert torch.allclose(turn(clump).norm(dim=-1), clump.norm(dim=-1), atol=1e-5)
    assert not list(turn.parameters())
    if isinstance(group, Cyclic):
        assert torch.allclose(page.rotations(group.order), turn.M, atol=1e-6)
    assert torch.equal(page.rotations(1), torch.eye(2)[None])


def test_exercises(page: SimpleNamespace) -> None:
    for ratio in (1.5, 3.0):
        single, average = page.narrow_gain(ratio)
        assert single == pytest.approx(average)
        assert single == pytest.approx((ratio - 1) / 2, rel=1e-3)  # along an axis
    rng = np.random.default_rng(3)
    maps = page.sheared(group_matrices(ACTIONS["C3"]), 0.8)
    x = page.images(torch.from_numpy(rng.standard_normal((4, 2))), maps)
    d = page.repaired(x, maps)
    for a in maps:
        place = np.argmin(np.linalg.norm((x @ a.mT)[:, None] - x, axis=-1), 1)  # the index of σx
        assert np.allclose(d[np.ix_(place, place)], d)
    assert (d >= np.linalg.norm(x[:, None] - x, axis=-1) - 1e-9).all()
    maps = group_matrices(ACTIONS["D4"])
    x = page.images(torch.from_numpy(rng.standard_normal((5, 2))), maps)
    for s in range(5):
        q = torch.from_numpy(np.random.default_rng(s).dirichlet(np.ones(len(x))))
        low, reached, high = page.three_costs(x, maps, q)
        assert 0 < low <= reached <= high + 1e-9
    assert max(page.three_costs(x, maps, q.view(8, 5).mean(0).repeat(8))) < 1e-7


def test_no_bridge_is_thinner_than_half_spaces_allow(page: SimpleNamespace) -> None:
    g = torch.Generator().manual_seed(9)
    z = torch.randn(20_000, 6, generator=g)
    for slope, shift in ((1.0, 0.0), (4.0, 1.3)):  # a half-space: equality, for any share on one side
        x = slope * z[:, 0] + shift
        least = page.least_bridge((x <= 0).float().mean(), 0.7 / slope)
        assert float((x.abs() <= 0.7).float().mean()) == pytest.approx(float(least), abs=0.012)
    for s in range(3):  # networks, with a slope that no point exceeds
        torch.manual_seed(s)
        net = page.perceptron(6, 16, 2)
        bound = math.prod(float(torch.linalg.matrix_norm(net[k].weight.detach(), 2)) for k in (0, 2, 4))
        with torch.no_grad():
            x = net(z)[:, 0]
            x = x - x.median()
        share = float((x.abs() <= 0.3).float().mean())
        seen = float(page.steepest(net, z[:500]))
        assert 0 < seen <= bound + 1e-6
        assert share >= float(page.least_bridge(torch.tensor(0.5), 0.3 / bound)) - 0.01
    line = nn.Linear(6, 2)
    assert float(page.steepest(line, z[:5])) == pytest.approx(float(torch.linalg.matrix_norm(line.weight.detach(), 2)))


def test_parameters_are_checked() -> None:
    for change in ({"group": "S4"}, {"seeds": 2}, {"few": 5000}, {"steps": 10}, {"device": "abacus"}):
        with pytest.raises(ValueError, match=next(iter(change))):
            load("structure_preserving_gans", **change)
