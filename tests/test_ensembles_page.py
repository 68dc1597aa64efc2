"""Chapter *Ensembles*: what its page defines, its claims at small scale and with other groups, controls that fail."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import t as student
from torch import Tensor

from lib.ensembles.metrics import agreement, divergence, squared_residual
from lib.ensembles.training import Network, draw_members, generator_of, train, train_ensemble
from lib.images.bundled import digits
from lib.page.results import stored
from lib.symmetry.own_groups import named
from tests.chapters import load

GROUPS = ["C2", "C4", "D2", "D4"]


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    return load("ensembles", seed=11)


def picture_table(page: SimpleNamespace, group: str, n: int = 16) -> tuple[Tensor, Tensor]:
    data = digits()
    return page.views(data.train_x[:n].unflatten(1, (8, 8)), page.elements(group)), data.train_y[:n]


def one(network: Network, seed: int) -> list[Tensor]:
    return [p[0] for p in draw_members(network, 1, seed, dtype=torch.float64)]


def logits(m: int = 24, drift: float = 0.0, seed: int = 0) -> Tensor:
    """Simulated members: independent noise, and a common part that does not average out."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(m, 4, 6, 5, generator=generator, dtype=torch.float64)
    return noise + drift * torch.randn(4, 6, 5, generator=generator, dtype=torch.float64)


# --- the group, a member, its training


@pytest.mark.parametrize("group", GROUPS)
def test_views_are_an_action(page: SimpleNamespace, group: str) -> None:
    """Moving by h, then by g, is moving by gh; turns and mirrors are those of torch."""
    matrices, product = page.elements(group), named(group).cayley_table()
    for size in (2, 3, 8):
        x = torch.rand(2, size, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
        table = page.views(x, matrices)
        assert torch.equal(table[0], x)
        for g, M in enumerate(matrices):
            assert torch.equal(page.move(table, M), table[product[g]])
        half_turn = torch.tensor([[-1.0, 0.0], [0.0, -1.0]])
        assert torch.equal(page.move(x, half_turn), x.rot90(2, (-2, -1)))
        assert torch.equal(page.move(x, torch.diag(torch.tensor([1.0, -1.0]))), x.flip(-2))


@pytest.mark.parametrize("support", ["full", "plus", "skewed"])
def test_members_by_hand_are_those_of_the_library(page: SimpleNamespace, support: str) -> None:
    network, (table, y) = Network(8, 5, 10, support), picture_table(page, "D2")
    fast = train_ensemble(network, table, y, 3, epochs=2, rate=0.1, seed=4)
    start = draw_members(network, 3, 4, dtype=torch.float64)
    for i in range(3):
        A = [p[i] for p in start]
        assert torch.allclose(page.network(A, table[1]), network.outputs(start, table[1:2])[i], atol=1e-12)
        slow = page.train_one(A, table, y, network.mask.double(), 0.1, 2, 4, i)
        for p, q in zip(slow, fast, strict=True):
            assert (p - q[i]).abs().max() < 1e-12


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("support", ["full", "plus", "skewed"])
def test_training_is_an_equivariant_map_of_weights(page: SimpleNamespace, group: str, support: str) -> None:
    matrices, product = page.elements(group), named(group).cayley_table()
    network, (table, y) = Network(8, 4, 10, support), picture_table(page, group)
    mask, run = network.mask.double(), {"rate": 0.1, "epochs": 2, "s": 5, "number": 3}
    gap = page.training_gap(one(network, 5), table, y, mask, matrices, product, **run)
    hard = page.hard_gap(one(network, 5), table, y, mask, matrices, 0.1)
    if support == "skewed":
        assert min(gap, hard) > 1e-3
    else:
        assert max(gap, hard) < 1e-12
        wrong = product.roll(1, 0)  # rows of other elements
        assert page.training_gap(one(network, 5), table, y, mask, matrices, wrong, **run) > 1e-3


# --- measures, slopes, offsets


def test_metrics_by_hand(page: SimpleNamespace) -> None:
    f = logits(1)[0]
    assert page.by_hand(f) == pytest.approx([float(m(f)) for m in (squared_residual, agreement, divergence)])


def test_squared_residual_is_unbiased_in_the_number_of_members(page: SimpleNamespace) -> None:
    """E squared_residual = B² + V/M, against the law the logits are drawn from."""
    f = logits(40_000, 0.3)
    drift = float(squared_residual(f.mean(0)))
    curve = page.curve(f, squared_residual, np.array([1, 4, 16]), 5).mean(0)
    single = 5 * 3 / 4  # five classes, three of four directions leave the invariants
    for value, size in zip(curve, (1, 4, 16), strict=True):
        assert abs(value - drift - single / size) < 0.02
    squared, variance = page.square_and_variance(f[:2000])
    assert abs(squared - drift) < 0.02
    assert abs(variance - single) < 0.1
    assert page.forecast(f[:2000], 100) == pytest.approx(math.sqrt(drift + single / 100), rel=0.1)


def test_curves_use_whole_blocks_only(page: SimpleNamespace) -> None:
    f = logits(7)
    found = page.curve(f, squared_residual, np.array([1, 3]))
    blocks = [squared_residual(f[i : i + 3].mean(0)) for i in (0, 3)]
    assert found[0, 1] == pytest.approx(float(torch.stack(blocks).mean()))


def test_slopes_of_known_curves(page: SimpleNamespace) -> None:
    sizes = np.array([1, 2, 4, 8])
    assert page.slope(3.0 * sizes**-0.7, sizes) == pytest.approx(-0.7)
    ends = {"low": -0.8, "high": -0.6}
    assert page.outside(ends | {"theory": -0.5}) == pytest.approx(0.1)
    assert page.outside(ends | {"theory": -0.9}) == pytest.approx(0.1)
    assert page.outside(ends | {"theory": -0.65}) == pytest.approx(-0.05)


def test_intervals_of_slopes_cover_the_truth_as_often_as_they_say(page: SimpleNamespace) -> None:
    hits = {"free": 0, "drifted": 0}
    for seed in range(200):
        for name, drift in (("free", 0.0), ("drifted", 1.0)):
            row = page.slopes(logits(12 * 16, drift, seed), 0.95)["residual"]
            assert row["low"] < row["slope"] < row["high"]
            hits[name] += page.outside(row) <= 0
    assert 180 <= hits["free"] <= 199
    assert hits["drifted"] == 0


def test_small_logits_have_the_slope_of_the_divergence(page: SimpleNamespace) -> None:
    row = page.slopes(0.3 * logits(320), 0.999)["KL"]
    assert row["theory"] == -1
    assert page.outside(row) <= 0


def test_separation_tells_a_drift_from_none(page: SimpleNamespace) -> None:
    whole, again, drifted = logits(64, seed=1), logits(64, seed=2), logits(64, 0.5, seed=3)
    assert page.separation(drifted, whole, 0.999, 0) > 0
    assert page.separation(again, whole, 0.95, 0) <= 0
    squares = page.resampled(whole, 0, 400) ** 2
    expected = float(squared_residual(whole.mean(0))) + 5 * 3 / 4 / 64
    assert float(squares.mean()) == pytest.approx(expected, rel=0.15)


def test_separation_finds_nothing_more_often_than_it_says(page: SimpleNamespace) -> None:
    """One-sided error 2.5 %; the bootstrap exaggerates the spread of a residual without offset, so rather less."""
    pairs = ((logits(32, seed=2 * s), logits(32, seed=2 * s + 1)) for s in range(200))
    assert sum(page.separation(*pair, 0.95, 0) > 0 for pair in pairs) <= 10


def test_offset_is_that_of_unbiased_estimates(page: SimpleNamespace) -> None:
    f = logits(40, 0.4)
    squared, variance = page.square_and_variance(f)
    row = page.offset(f, 0.95)
    assert row["B²/V"] == pytest.approx(squared / variance)
    assert row["low"] == pytest.approx(page.offset(7 * f, 0.95)["low"])
    without = [page.square_and_variance(torch.cat([f[:i], f[i + 1 :]])) for i in range(40)]
    error = np.std([b / v for b, v in without]) * math.sqrt(39)  # the definition of the jackknife
    assert (row["high"] - row["low"]) / 2 == pytest.approx(error * student.ppf(0.975, 39))


def test_intervals_of_offsets_contain_them_as_often_as_they_say(page: SimpleNamespace) -> None:
    """Also where there is none: then the jackknife exaggerates the error (of a degenerate statistic) by about √2."""
    missed = {0.0: 0, 0.3: 0}
    for drift in missed:
        for seed in range(200):
            noise = torch.Generator().manual_seed(500 + seed)
            shift = drift * torch.randn(4, 6, 5, generator=noise, dtype=torch.float64)
            truth = float(squared_residual(shift)) / (5 * 3 / 4)
            row = page.offset(logits(32, seed=seed) + shift, 0.95)
            missed[drift] += not row["low"] <= truth <= row["high"]
    assert missed[0.0] <= 10
    assert 1 <= missed[0.3] <= 22


def test_lending_orientations_cures_any_offset(page: SimpleNamespace) -> None:
    product = named("C4").cayley_table()
    f = logits(400, 1.0, seed=6)
    lent = page.lend(f, product, 7)
    assert torch.allclose(squared_residual(lent), squared_residual(f))  # each member looks at the same orbit
    assert page.offset(f, 0.999)["low"] > 0.1
    assert page.outside(page.offset(lent, 0.999) | {"theory": 0}) <= 0


# --- E1 to E3, small


@pytest.fixture(scope="module")
def trained(page: SimpleNamespace) -> dict[str, Tensor]:
    table, y = picture_table(page, "C4", 192)
    table, data = table.float(), digits()
    test = page.views(data.test_x[:40].unflatten(1, (8, 8)), page.elements("C4"))
    how = {"epochs": 3, "rate": 0.05}
    cases = {
        "plus": page.trained(table, y, 128, seed=20, **how),
        "plus again": page.trained(table, y, 64, seed=21, **how),
        "no augmentation": page.trained(table[:1], y, 128, seed=22, **how),
        "asymmetric": page.trained(table, y, 64, tilt=(0.0, 0.0, 2.0), seed=23, **how),
        "plus, before": page.trained(table, y, 64, seed=24, epochs=0),
        "skewed, before": page.trained(table, y, 64, "skewed", seed=25, epochs=0),
    }
    return {name: page.seen(ensemble, test) for name, ensemble in cases.items()}


def test_mean_approaches_invariance_at_the_rate_of_sampling(page: SimpleNamespace, trained: dict[str, Tensor]) -> None:
    for row in page.slopes(trained["plus"], 0.999).values():
        assert page.outside(row) <= 0
        assert row["high"] - row["low"] < 0.5
    for row in page.slopes(trained["no augmentation"], 0.99).values():
        assert page.outside(row) > 0.1


def test_an_asymmetric_law_is_told_apart(page: SimpleNamespace, trained: dict[str, Tensor]) -> None:
    assert page.separation(trained["asymmetric"], trained["plus"], 0.999, 0) > 0
    assert page.separation(trained["plus again"], trained["plus"], 0.95, 0) <= 0
    assert page.separation(trained["skewed, before"], trained["plus, before"], 0.95, 0) <= 0


def test_own_starts_cancel_and_one_start_does_not(page: SimpleNamespace, trained: dict[str, Tensor]) -> None:
    left = page.share_left(trained["plus"])
    assert left["squared residual"] < 0.05
    assert left["KL"] < 0.05
    assert left["disagreement"] < 0.8
    same = trained["plus"][:1].expand(4, -1, -1, -1)
    assert list(page.share_left(same).values()) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("group", GROUPS)
def test_parts_of_finer_rotations_add_up(page: SimpleNamespace, group: str) -> None:
    matrices = page.elements(group)
    x = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    fine, order = page.finer(x, matrices), len(matrices)
    assert fine.shape == (4 * order, 3, 8, 8)
    assert torch.equal(fine[:order], page.views(x, matrices))
    for k in range(4):
        assert torch.equal(fine[k * order : (k + 1) * order], page.views(fine[k * order], matrices))
    f = torch.randn(2, 4 * order, 5, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    within, between = page.within_orbits(f), f.unflatten(1, (4, order)).mean(2)
    assert within.shape == (2, order, 20, 10)
    assert torch.allclose(squared_residual(within) + squared_residual(between), squared_residual(f))
    assert torch.equal(within[:, :, 0], f[:, :order, 0])


def test_foreign_inputs(page: SimpleNamespace) -> None:
    some, again, other = page.foreign_inputs(3, 40), page.foreign_inputs(3, 40), page.foreign_inputs(4, 40)
    for kind, x in some.items():
        assert x.shape == (40, 8, 8)
        assert torch.equal(x, again[kind])
        assert 0 <= x.min() < x.max() <= 1
    assert not torch.equal(some["noise"], other["noise"])


def test_sixteen_rotations_leave_an_offset_far_from_the_data(page: SimpleNamespace) -> None:
    data, matrices = digits(), page.elements("C4")
    table = page.finer(data.train_x[:384].unflatten(1, (8, 8)), matrices).float()
    y, how = data.train_y[:384], {"epochs": 5, "rate": 0.05, "seed": 31}
    ensemble = page.trained(table, y, 96, **how)
    start = draw_members(ensemble[0], 1, 31)
    copies = train(ensemble[0], tuple(p.expand(8, *p.shape[1:]) for p in start), table, y, **how)
    for x in page.foreign_inputs(31, 40).values():
        f = page.seen(ensemble, page.finer(x, matrices))
        assert f.shape == (96, 16, 40, 10)
        assert page.offset(f, 0.99)["low"] > 0
        assert page.outside(page.offset(page.within_orbits(f), 0.999) | {"theory": 0}) <= 0
        kept = page.share_left(page.seen((ensemble[0], copies), page.finer(x, matrices)))
        assert page.share_left(f)["squared residual"] < 0.3 < 0.6 < kept["squared residual"]
        assert page.share_left(f)["KL"] < 0.4 < 0.6 < kept["KL"]


# --- E4, E5


class Orbits:
    """Four-member ensembles and single members, two seeds, trained as one batch."""

    def __init__(self, page: SimpleNamespace, group: str, support: str = "plus") -> None:
        self.page, self.matrices = page, page.elements(group)
        self.net = Network(8, 4, 10, support)
        self.A = draw_members(self.net, 2, 40, dtype=torch.float64)
        self.members = page.orbit(self.A, self.matrices, self.net.mask.double())
        self.table, self.y = picture_table(page, group, 10)
        self.test = page.views(digits().test_x[:8].unflatten(1, (8, 8)), self.matrices)

    def descend(self, members: list[Tensor], table: Tensor | None = None, averaged: bool = False) -> Tensor:
        table = self.table if table is None else table
        f = self.page.descend(self.net, members, table, self.y, self.test, averaged, steps=12)
        return self.page.mean_of_orbits(f, 2)  # (13, 2, |G|, 8, 10)


@pytest.mark.parametrize("group", GROUPS)
def test_mean_over_an_orbit_is_exactly_equivariant(page: SimpleNamespace, group: str) -> None:
    for support in ("plus", "full"):
        case = Orbits(page, group, support)
        defect = page.defect(case.descend(case.members))
        assert defect.shape == (13, 2)
        assert defect.max() < 1e-12
    half = page.defect(case.descend(case.members, case.table[: len(case.matrices) // 2]))
    assert half[0].max() < 1e-12  # exact before the first step, by construction
    assert half[1].min() > 1e-6
    assert half[-1].min() > 1e-3
    stranger = draw_members(case.net, 2, 41, dtype=torch.float64)
    incomplete = [torch.cat([p[:-2], q]) for p, q in zip(case.members, stranger, strict=True)]
    assert page.defect(case.descend(incomplete)).amax(0).min() > 1e-3
    skewed = Orbits(page, group, "skewed")
    assert page.defect(skewed.descend(skewed.members)).amax(0).min() > 1e-3


@pytest.mark.parametrize("group", GROUPS)
def test_orbit_ensemble_is_the_feature_average_of_one_member(page: SimpleNamespace, group: str) -> None:
    case = Orbits(page, group)
    ensemble, alone = case.descend(case.members), case.descend(case.A)
    assert page.distance(ensemble, alone.mean(2, True)).max() < 1e-12
    assert page.defect(alone)[-1].min() > 0.1  # one network is not equivariant
    averaged = case.descend(case.A, averaged=True)
    apart = page.distance(ensemble, averaged.mean(2, True))
    assert apart[0].max() < 1e-12
    assert apart[-1].min() > 1e-3
    skewed = Orbits(page, group, "skewed")
    cut = page.distance(skewed.descend(skewed.members), skewed.descend(skewed.A).mean(2, True))
    assert cut.amax(0).min() > 1e-3


def test_gradient_of_the_averaged_risk(page: SimpleNamespace) -> None:
    """Against finite differences of the mean cross-entropy of the feature average, member by member."""
    case, size = Orbits(page, "C4"), 1e-6
    slopes = page.averaged_gradient(case.net, case.A, case.table, case.y)

    def risk(A: list[Tensor]) -> Tensor:
        f = case.net.outputs(A, case.table.flatten(0, 1)[None]).unflatten(1, (4, -1)).mean(1)  # (2, n, 10)
        return -f.log_softmax(-1)[:, torch.arange(10), case.y].mean(1)

    generator = torch.Generator().manual_seed(0)
    along = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in case.A]
    along[:3] = [v * case.net.mask for v in along[:3]]
    ends = [risk([p + sign * size * v for p, v in zip(case.A, along, strict=True)]) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * size)
    found = torch.stack([(s * v).flatten(1).sum(1) for s, v in zip(slopes, along, strict=True)]).sum(0)
    assert torch.allclose(found, expected, rtol=1e-6)


def test_signs_of_a_network_cancel(page: SimpleNamespace) -> None:
    """The half-turn of a law tilted oddly is that law with other signs, and training takes no notice of them."""
    network, (table, y) = Network(8, 4), picture_table(page, "C2")
    A, mask = one(network, 8), network.mask.double()
    assert torch.allclose(page.network(page.negate(A), table[1]), page.network(A, table[1]), atol=1e-13)
    run = (table, y, mask, 0.1, 2, 5, 0)
    for p, q in zip(page.train_one(page.negate(A), *run), page.negate(page.train_one(A, *run)), strict=True):
        assert torch.allclose(p, q, atol=1e-13)
    tilted = [p[0] for p in draw_members(network, 1, 8, (-1.0, 0.0, 1.0), dtype=torch.float64)]
    centred = [p - torch.tensor([-1.0, 0.0, 1.0]) * mask for p in tilted[:3]]
    for p, q in zip(page.negate(page.turn(tilted, page.elements("C2")[1], mask)), centred):
        shift = p + q.rot90(2, (-2, -1))
        assert torch.allclose(shift, torch.tensor([-1.0, 0.0, 1.0]).double() * mask)


def test_before_training_any_law_of_filters_will_do(page: SimpleNamespace) -> None:
    net = Network(support="full")
    members = page.lopsided(net, 200, 50)
    assert all(bool((bank >= 0).all()) and bool((bank[..., 0] == 0).all()) for bank in members[:3])
    x = page.views(digits().test_x[:20].unflatten(1, (8, 8)), page.elements("D4"))
    assert page.outside(page.offset(page.seen((net, members), x), 0.999) | {"theory": 0}) <= 0


# --- stored results, bad input


def test_stored_ensembles_on_mnist() -> None:
    """Only with an invariant support and law does the residual fall like M^-1/2 down to the forecast."""
    ends = stored("ensembles/large_ensembles", "curves").query("size == members").set_index("case")
    forecast = (ends["variance_of_one_member"] / ends["members"]) ** 0.5
    ratio = ends["residual"] / forecast
    assert 0.8 < ratio["plus"] < 1.2
    assert ratio["skewed"] > 2
    assert ratio["asymmetric"] > 5


def test_draws_of_a_member_are_its_own() -> None:
    assert generator_of(3, 1).initial_seed() != generator_of(3, 1, 1).initial_seed()


def test_bad_parameters_stop_at_the_door() -> None:
    wrong = {"group": "C3", "members": 100, "images": 10, "epochs": 0, "rate": 1.0, "seed": -1, "seeds": 0}
    for name, value in (wrong | {"device": "abacus"}).items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load("ensembles", **{name: value})
