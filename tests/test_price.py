"""What a symmetry saves: ways for any action, the price against known truth, advice, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from lib.images.bundled import digits
from lib.reader.price import OVERTURNS, price_of_symmetry
from lib.reader.ways import advice, price, ways
from tests.chapters import load


def task(seed: int, kind: str, n: int = 300) -> tuple[np.ndarray, np.ndarray, str, str]:
    rng = np.random.default_rng(seed)
    if kind == "columns":
        x = rng.normal(size=(n, 4)) * [1, 1, 1, 1]
        return x, np.sort(x, 1)[:, 1] + 0.2 * rng.normal(size=n), "S4", "permute 1"
    if kind == "plane":
        x = rng.normal(size=(n, 2))
        return x, np.where(np.hypot(*x.T) + 0.1 * rng.normal(size=n) > 1.2, "far", "near"), "C8", "rotate -1"
    data = digits(seed=seed)
    few = np.isin(data.train_y.numpy(), [0, 1, 3, 4, 7])
    x = data.train_x.view(-1, 8, 8).numpy()[few][:n]
    turned = np.stack([np.rot90(v, k) for v, k in zip(x, rng.integers(4, size=len(x)), strict=True)])
    return turned, data.train_y.numpy()[few][:n], "C4", "pixels"


@pytest.mark.parametrize("kind", ["columns", "plane", "digits"])
def test_true_symmetries_save_samples_and_are_advised(kind: str) -> None:
    x, y, group, action = task(41, kind)
    found = price_of_symmetry(x, y, group, action, splits=4, seed=1)
    assert found.factor.value > 1.3
    assert found.advice == "architecture"
    assert not found.overturned.startswith("nothing")
    assert abs(found.delta2.value) < 0.1
    assert list(found.curves.index) == sorted(found.curves.index)
    assert set(found.curves.columns) == set(ways(torch.ones(2, 2), torch.ones(2, 1), lambda v: v[:, None], 0))
    assert len(found.summary().splitlines()) >= 3


def test_a_false_symmetry_costs_and_is_not_advised() -> None:
    rng = np.random.default_rng(42)
    x = rng.normal(size=(400, 3))
    y = x[:, 0] - x[:, 1] + 0.3 * rng.normal(size=400)  # inputs are exchangeable, pairs are not
    found = price_of_symmetry(x, y, "S3", "permute 1", splits=4)
    assert found.factor.value < 0.6
    assert found.delta2.low > 0.5
    assert found.pays_until < 10
    assert found.advice in ("nothing", "the smaller group")


def test_the_price_is_near_the_truth_at_other_seeds() -> None:
    page, seed = load("your_data"), 51
    true = page.worth(page.fresh(seed, 0.0, 8)).value
    for c in (0.0, 1.0):
        x, y = page.ring(np.random.default_rng(seed), 400, c)
        found = price_of_symmetry(x, y, "C6", "permute 1", splits=5, seed=seed)
        assert abs(found.delta2.value - page.loss(c)) < 0.1
        ratio = found.factor.value / true
        assert (max(ratio, 1 / ratio) < 2) == (c == 0)


def test_units_of_columns_do_not_matter() -> None:
    rng = np.random.default_rng(43)
    x = rng.normal(size=(160, 3)) + [0, 0, 5]
    y = x[:, 0] + x[:, 1] + 0.3 * rng.normal(size=160)
    one, two = (
        price_of_symmetry(v, y, [1], lambda g, t: t[:, [1, 0, 2]], splits=3).curves for v in (x, x * [1, 1, 1e4])
    )
    assert np.allclose(one, two, rtol=1e-6)


def test_inputs_that_are_moved_later_make_the_plain_kernel_worse() -> None:
    data = digits(seed=3)
    x, y = data.train_x.view(-1, 8, 8)[:300], data.train_y[:300]
    kept, later = (price_of_symmetry(x, y, "C4", "pixels", moved_later=m, splits=3) for m in (False, True))
    assert later.curves["nothing"].iloc[-1] > 1.5 * kept.curves["nothing"].iloc[-1]
    assert (kept.advice, later.advice) == ("half of each", "architecture")


def test_every_advice_says_what_would_overturn_it() -> None:
    assert {advice(layers=k, small_group=m, many_networks=e) for k, m, e in product((False, True), repeat=3)} <= set(
        OVERTURNS
    )
    assert {advice(not_rejected=False), advice(labels_keep=False), advice(can_retrain=False)} <= set(OVERTURNS)


good = np.random.default_rng(0).normal(size=(150, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((good, None, "S4", "permute 1"), "target must be given"),
        ((good[:60], good[:60, 0], "S4", "permute 1"), "at least 100 different samples"),
        ((good, good[:, :2], "S4", "permute 1"), "one number for each sample"),
        ((good, good[:, 0], "SO4", "rotate"), "at most 64 elements"),
        ((np.c_[good, good], good[:, 0], "S8", "permute 1"), "at most 64 elements"),
    ],
)
def test_what_has_no_price_is_refused_in_one_line(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        price_of_symmetry(*arguments)
    assert "\n" not in str(refused.value)


def test_the_price_of_least_squares_is_right_for_gaussian_inputs() -> None:
    rng = torch.Generator().manual_seed(5)
    F, Z = torch.randn(2, 20_000, 6, dtype=torch.float64, generator=rng)
    w, noise = torch.arange(6.0).double()[:, None], 0.3 * torch.randn(2, 20_000, 1, dtype=torch.float64, generator=rng)
    k, variance, floor = price(F, F @ w + noise[0], Z, Z @ w + noise[1])
    assert (k, variance, floor) == (6, pytest.approx(0.09, rel=0.05), pytest.approx(0.09, rel=0.05))
