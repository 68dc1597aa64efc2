"""Descent on the log-loss: closed forms, the marks, the step rule, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lib.implicit_bias.log_loss_descent import descend, log_exponential_loss

MARKS = torch.tensor([-math.inf, 0.25, 1.0, 2.5], dtype=torch.float64)


def start(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64).requires_grad_(True)


def test_log_loss_is_stable_and_bounds_the_margins() -> None:
    margins = torch.tensor([[1.0, 2.0, -0.5], [900.0, 900.0, 901.0]], dtype=torch.float64)
    value = log_exponential_loss(margins)
    assert float(value[0]) == pytest.approx(math.log(float(torch.exp(-margins[0]).mean())))
    assert float(value[1]) == pytest.approx(-900 + math.log((2 + math.exp(-1)) / 3))


def test_one_point_falls_by_what_is_aimed_at() -> None:
    """For one point log R = −⟨x, w⟩ is linear: every step falls by exactly ``drop``, along x."""
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    w = start([30.0, -20.0])
    begin = float((w @ x).detach())
    seen = descend([w], lambda: log_exponential_loss((w @ x)[:, None]), begin + MARKS, lambda: w, drop=0.1)
    assert torch.equal(seen[0, 0], torch.tensor([30.0, -20.0]).double())
    fallen = seen[0, 1:] @ x - begin
    assert torch.allclose(fallen, torch.tensor([0.3, 1.0, 2.5]).double(), atol=0.1 + 1e-9)
    assert bool((fallen >= MARKS[1:] - 1e-9).all())
    assert torch.allclose(fallen / 0.1, (fallen / 0.1).round(), atol=1e-6)
    moved = seen[0, -1] - seen[0, 0]
    assert float(moved @ x) == pytest.approx(float(moved.norm() * x.norm()))


def test_steps_are_at_most_a_twentieth_of_the_weights() -> None:
    path = []
    w = start([1e-3, 1e-3])
    x = torch.tensor([1.0, 0.5], dtype=torch.float64)

    def log_loss() -> Tensor:
        path.append(w.detach().clone())
        return log_exponential_loss((w @ x)[:, None])

    descend([w], log_loss, MARKS, lambda: w, drop=0.3)
    lengths = torch.cat(path).norm(dim=-1)
    steps = torch.cat(path).diff(dim=0).norm(dim=-1)
    assert bool((steps <= 0.05 * lengths[:-1] * (1 + 1e-12)).all())
    assert float(steps[0]) == pytest.approx(0.05 * float(lengths[0]))


def test_runs_stop_apart_and_keep_their_own_marks() -> None:
    x = torch.tensor([[1.0, 0.0], [0.1, 0.0]], dtype=torch.float64)
    w = start([0.1, 1.0], [0.1, 1.0])
    seen = descend([w], lambda: log_exponential_loss((w * x).sum(-1, keepdim=True)), MARKS, lambda: w)
    margins = (seen * x[:, None]).sum(-1)
    assert bool((margins[:, 1:] >= MARKS[1:]).all())
    assert float((margins[:, 1:] - MARKS[1:]).max()) < 0.31


def test_shrinks_steps_that_overshoot() -> None:
    """Two points of nearly opposite direction: a full step would swing from one to the other for ever."""
    x = torch.tensor([[1.0, 0.2], [-1.0, 0.2]], dtype=torch.float64)
    losses = []
    w = start([0.0, 1.0])

    def log_loss() -> Tensor:
        value = log_exponential_loss(w @ x.mT)
        losses.append(float(value.detach()))
        return value

    with torch.no_grad():
        w[0, 0] = 3.0
    end = descend([w], log_loss, MARKS, lambda: w, drop=2.0)[0, -1]
    falls = -torch.tensor(losses).diff()
    assert bool((falls[-20:] > 0).all())
    assert abs(float(end[0])) < 0.1 * float(end[1])  # the separating direction is (0, 1)


def test_refuses_and_reports() -> None:
    w = start([1.0])
    with pytest.raises(ArithmeticError, match="1 of 1 runs did not reach loss"):
        descend([w], lambda: log_exponential_loss(torch.cat([w, -w], -1)), MARKS, lambda: w)


def test_runs_that_do_not_arrive_may_be_kept_as_nan() -> None:
    """The second run has points that contradict each other; the first is what it is alone."""
    w = torch.tensor([[1.0], [1.0]], dtype=torch.float64, requires_grad=True)
    sign = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    found = descend([w], lambda: log_exponential_loss(w * sign), MARKS, lambda: w, stuck="nan")
    alone = start([1.0])
    expected = descend([alone], lambda: log_exponential_loss(alone * sign[:1]), MARKS, lambda: alone)
    assert torch.equal(found[:1], expected)
    assert bool(found[1, -1].isnan())


def test_marks_may_lie_at_the_start_or_before() -> None:
    w = start([1.0])
    for marks in ([-math.inf], [-5.0, -2.0]):
        seen = descend([w], lambda: log_exponential_loss(w), torch.tensor(marks), lambda: w)
        assert torch.equal(seen, torch.ones(1, len(marks), 1).double())


def test_runs_of_which_none_passes_a_mark_are_nan() -> None:
    w = start([1.0], [2.0])
    none = descend([w], lambda: log_exponential_loss(torch.cat([w, -w], -1)), MARKS[2:], lambda: w, stuck="nan")
    assert none.shape == (2, 2, 1)
    assert bool(none.isnan().all())


def test_patience_is_counted_in_steps_aimed_at() -> None:
    """Contradicting points: nothing falls, and the descent gives up after patience × (2.5 / 0.5 + 1) steps."""
    for patience, steps in ((1.0, 6), (10.0, 60)):
        w, looks = start([1.0]), []

        def log_loss(w: Tensor = w, looks: list = looks) -> Tensor:
            looks.append(1)
            return log_exponential_loss(torch.cat([w, -w], -1))

        descend([w], log_loss, MARKS, lambda w=w: w, drop=0.5, stuck="nan", patience=patience)
        assert len(looks) == steps
