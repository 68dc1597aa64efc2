"""The chapter on limited layers: what it defines on its page, at other groups, seeds and supports."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lib.training.risks import gradient
from tests.chapters import load

CHAPTER = "when_augmentation_is_the_architecture"
GROUPS = ("C4", "D2", "D4")
page = load(CHAPTER, seed=3, seeds=2, members=512)


@pytest.mark.parametrize("group", GROUPS)
def test_moves_are_a_group_of_isometries_that_fixes_the_corner(group: str) -> None:
    to = page.moves(group)
    assert len(to) == {"C4": 4, "D2": 4, "D4": 8}[group]
    assert {tuple(p.tolist()) for p in to} == {tuple(a[b].tolist()) for a in to for b in to}
    assert (to[:, 0] == 0).all()
    for p in to:  # the cell p − q goes where its difference goes
        assert torch.equal(p[page.STEP], page.STEP[p][:, p])


@pytest.mark.parametrize("group", GROUPS)
def test_networks_turn_with_their_filters(group: str) -> None:
    to, g = page.moves(group), torch.Generator().manual_seed(0)
    theta = torch.randn(3, 2, 2, 16, dtype=torch.float64, generator=g)
    x = torch.randn(1, 5, 16, dtype=torch.float64, generator=g)
    eye = torch.eye(16, dtype=torch.float64)
    for p in to:
        moved = page.network(theta[..., p], eye, x[..., p])
        assert torch.allclose(moved, page.network(theta, eye, x)[..., p])


def test_the_written_convolution_is_a_circular_one() -> None:
    g = torch.Generator().manual_seed(1)
    theta, x = (torch.randn(1, *s, dtype=torch.float64, generator=g) for s in ((2, 1, 16), (3, 16)))
    fourier = [torch.fft.fft2(v.unflatten(-1, (4, 4))) for v in (theta[0, :, 0], x[0])]
    hidden = torch.fft.ifft2(fourier[0][0] * fourier[1]).real.tanh()
    out = torch.fft.ifft2(fourier[0][1] * torch.fft.fft2(hidden)).real
    assert torch.allclose(page.network(theta, torch.eye(16, dtype=torch.float64), x)[0], out.flatten(1))


@pytest.mark.parametrize("group", GROUPS)
def test_commutators_of_all_small_supports(group: str) -> None:
    to, eye = page.moves(group), torch.eye(16, dtype=torch.float64)
    mean, rng = page.averaging(to), np.random.default_rng(0)
    assert torch.allclose(mean @ mean, mean)
    for size in range(1, 16):
        S = rng.choice(16, size, replace=False).tolist()
        assert page.commutator(eye[:, S], mean) == pytest.approx(page.closed_form(S, to), abs=1e-12)
        repaired = page.nearest_compatible(S, to)
        assert page.closed_form(repaired, to) == 0
        assert not repaired or page.commutator(eye[:, repaired], mean) < 1e-12


@pytest.mark.parametrize("group", GROUPS)
def test_three_hypotheses(group: str) -> None:
    to, bases = page.moves(group), page.architectures()
    mean, eye = page.averaging(to), torch.eye(16, dtype=torch.float64)
    scaled = bases["3 × 3"] * torch.linspace(0.5, 1.5, 9, dtype=torch.float64)
    for name, B in (*bases.items(), ("scaled", scaled)):
        compatible = page.commutator(torch.linalg.qr(B)[0], mean) < 1e-12
        assert compatible == (name not in ("skewed", "2 × 2"))
        a, found, formula, plain = page.routes(B, 21, to, mean, eye)
        assert page.filters(a, B).norm() > 0.1
        drift = page.led_out(B, 21, to, mean, steps=30)
        if compatible:
            assert found.norm() < 1e-13
        else:
            assert found.norm() > 1e-3
            assert (found - formula).norm() < 1e-10 * found.norm()
            assert (found - plain).norm() > 0.1 * found.norm()
        assert drift < 1e-13 if compatible and name != "scaled" else drift > 0.01
        if name != "scaled":
            assert (page.cross_block(B, 21, to, mean) < 1e-12) == compatible


def test_a_penalty_shrinks_the_offset_and_keeps_it() -> None:
    to, B = page.moves("C4"), page.architectures()["2 × 2"]
    mean, eye = page.averaging(to), torch.eye(16, dtype=torch.float64)
    a = page.routes(B, 22, to, mean, eye)[0]
    far = page.offsets(B, a, 22, to, eye - mean, [100.0, 1000.0])
    assert far[0] / far[1] == pytest.approx(10, rel=0.05)
    plus = page.architectures()["plus"]
    a = page.routes(plus, 22, to, mean, eye)[0]
    assert max(page.offsets(plus, a, 22, to, eye - mean, [10.0])) < 1e-12


def test_stationary_points_have_no_slope() -> None:
    x, y, *_ = page.problem(5, page.moves("C4"))
    B = page.architectures()["plus"]
    start = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f = page.on(B, x, y)
    assert gradient(f, page.stationary(f, start)).norm() < 1e-12


def test_ensembles_of_invariant_layers_become_equivariant() -> None:
    to, bases = page.moves("D4"), page.architectures()
    few, many = (page.ensemble_residual(bases["plus"], 23, to, count) for count in (64, 1024))
    assert many < 0.6 * few
    assert page.ensemble_residual(bases["one slope"], 23, to, 1024) > 3 * many


def test_bad_parameters_stop_at_the_door() -> None:
    for name, value in {"group": "C8", "seeds": 1, "seed": -1, "members": 3, "device": "abacus"}.items():
        with pytest.raises(ValueError, match=f"{name} must"):
            load(CHAPTER, **{name: value})
