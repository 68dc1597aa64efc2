"""Chapter *Sample complexity*: its measurements, and the controls that must fail."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from lib.experiments import sample_complexity as chapter
from lib.experiments import sample_complexity_at_scale as at_scale
from lib.transport.divergences import w1_batch
from lib.transport.quotient import lattice, radial, turns
from lib.transport.rates import (
    SliceLaw,
    adjusted,
    bootstrap_slope,
    boundary_growth,
    corrected_rate,
    growth,
    slice_law,
    slope,
)


def test_three_values():
    for case, action in chapter.isometric_cases().items():
        assert chapter.three_values(case, action, seed=11).gap < 1e-8
    for case in ("sheared", "no group"):
        assert chapter.broken_values(case, seed=11).gap > 1e-2
    assert chapter.shear_defect() > 1


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_corrected_rate_finds_its_own_law_and_no_other(q):
    rng = np.random.default_rng(0)
    sizes = [16, 32, 64, 128, 256, 512]
    a, b = {1: (0.5, 1.0), 2: (0.2, 0.2)}.get(q, (0.5, -0.2))
    mean = {n: math.sqrt((a * float(growth(n, q)) + b) / n) for n in sizes}
    errors = {n: m * (1 + 1e-4 * rng.standard_normal(50)) for n, m in mean.items()}
    rate = corrected_rate(errors, q, 64, 64)
    assert abs(rate.defect) < 1e-3
    assert rate.interval[0] <= rate.defect <= rate.interval[1]
    assert rate.corrected == pytest.approx(-1 / max(q, 2), abs=1e-3)
    assert rate.predict(np.array([16, 512])) == pytest.approx([mean[16], mean[512]], rel=1e-2)
    if q > 1:
        assert abs(corrected_rate(errors, q % 4 + 2, 64, 64).defect) > 0.02


@pytest.mark.parametrize("q", [2, 3, 4])
def test_a_boundary_has_a_term_of_its_own(q):
    sizes = np.array([16, 32, 64, 128, 256, 512])
    mean = np.sqrt((0.5 * growth(sizes, q) + 0.3 * boundary_growth(sizes, q) - 0.1) / sizes)
    errors = {int(n): m * (1 + np.linspace(-1e-4, 1e-4, 20)) for n, m in zip(sizes, mean)}
    rate = corrected_rate(errors, q, 64, 64, leading=0.5)
    assert (rate.a, rate.b, rate.c) == pytest.approx((0.5, -0.1, 0.3), abs=1e-3)
    assert abs(rate.defect) < 1e-4
    assert rate.predict(sizes) == pytest.approx(mean, rel=1e-3)
    assert abs(corrected_rate(errors, q, 64, 64).defect) > 2e-3


def test_control_variates_keep_the_mean():
    """On a line the expected distance is known: the integral of E|F − G|, with binomial counts below every point."""
    action, sampler = chapter.infinite_cases()["SO(2) on the plane"]
    r, w = np.polynomial.legendre.leggauss(200)
    below = ((r + 1) / 2) ** 2
    for n, values in chapter.transport_errors(action, sampler, {16: 4000, 40: 4000}, range(3)).items():
        counts = binom.pmf(np.arange(n + 1)[:, None], n, below)
        gap = np.abs(np.arange(n + 1)[:, None] - np.arange(n + 1))
        exact = w / 2 @ np.einsum("ip,ij,jp->p", counts, gap, counts) / n
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - exact) < 4 * error
        plain = w1_batch(*chapter.sample_pairs(sampler, 4000, n, range(3), n), action).numpy()
        assert values.var() < 0.2 * plain.var()
        assert abs(plain.mean() - exact) < 4 * plain.std() / math.sqrt(len(plain))


def test_adjusted_values_are_no_surer_than_they_may_be():
    """Controls that have nothing to do with the values leave mean and standard error as they are."""
    rng = np.random.default_rng(0)
    values, controls = rng.exponential(size=(200, 80)), rng.standard_normal((200, 80, 10))
    found = np.array([adjusted(v, c) for v, c in zip(values, controls)])
    assert found.std(1, ddof=1).mean() == pytest.approx(values.std(1, ddof=1).mean(), rel=0.03)
    spread = found.mean(1).std()
    assert spread == pytest.approx(values.mean(1).std() * math.sqrt(1 + 10 / 69), rel=0.2)
    assert adjusted(values[0], np.empty((80, 0))) == pytest.approx(values[0])


def test_orbit_volumes():
    """The integrals of the quotient's density against the volumes of sampled orbits, from the action's differential."""
    generator, spread = torch.Generator().manual_seed(0), chapter.quotient_spread()
    u, v = chapter.uniform_balls(3, 2)(1, 200_000, generator)[0].unflatten(-1, (2, 3)).unbind(1)
    eye = torch.eye(3, dtype=torch.float64)
    moved = torch.cat([torch.linalg.cross(eye.expand(len(u), 3, 3), p[:, None]) for p in (u, v)], -1)
    volume = 8 * math.pi**2 * torch.linalg.det(moved @ moved.mT).sqrt()
    density = volume / (4 * math.pi / 3) ** 2
    assert spread["SO(3) on pairs"] == pytest.approx(float((density ** (-1 / 3)).mean()), rel=3e-3)
    radius = torch.linalg.vector_norm(chapter.uniform_balls(4)(1, 200_000, generator)[0], dim=-1)
    density = 2 * math.pi * radius / (math.pi**2 / 2)
    assert spread["U(1) on $C^2$"] == pytest.approx(float((density ** (-1 / 3)).mean()), rel=3e-3)


def test_seeds_reach_every_draw():
    def tiny(settings):
        seeds = settings.independent
        action, sampler = chapter.finite_cases()["d = 2"]
        yield chapter.transport_errors(action, sampler, {8: 8}, seeds)[8]
        yield chapter.lattice_errors(2, 2, 4, 6, seeds)
        yield chapter.disc_gain(settings, 8, (1, 2), 4).all_rotations
        yield chapter.different_laws(settings).plain[512]

    first, again, second = (list(tiny(chapter.Settings(seed=s, seeds=2))) for s in (0, 0, 1))
    for one, same, other in zip(first, again, second):
        assert np.array_equal(one, same)
        assert not np.intersect1d(one, other).size


def test_seeds_share_out_the_replicates():
    x, y = chapter.sample_pairs(chapter.uniform_torus(1), 10, 3, [5, 6, 7], stream=1)
    assert x.shape == y.shape == (12, 3, 1)
    alone, _ = chapter.sample_pairs(chapter.uniform_torus(1), 4, 3, [6], stream=1)
    assert torch.equal(x[4:8], alone)


def test_rates():
    settings = chapter.Settings(seeds=2)
    plan = {16: 800, 32: 600, 64: 300, 128: 120, 256: 40}
    action, sampler = chapter.finite_cases()["d = 3"]
    errors = chapter.transport_errors(action, sampler, plan, settings.independent)
    assert abs(corrected_rate(errors, 3, 64, 64).defect) < 0.02
    assert abs(corrected_rate(errors, 2, 64, 64).defect) > 0.03
    gain = chapter.lattice_gain(1, settings)
    assert gain.slope == pytest.approx(-1, abs=0.02)


def test_torus_scales_exactly():
    x, y = torch.rand(2, 4, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(w1_batch(x / 3, y / 3, lattice(3, 2)), w1_batch(x, y, lattice(1, 2)) / 3)


def test_rotations_of_the_disc_saturate():
    x, y = chapter.uniform_balls(2)(6, 40, torch.Generator().manual_seed(0)).chunk(2)
    floor = w1_batch(x, y, radial(2))
    for order in (1, 8, 64):
        value = w1_batch(x, y, turns(order))
        assert (floor <= value + 1e-12).all()
        assert (value <= floor + math.pi / order).all()
    disc = chapter.disc_gain(chapter.Settings(), orders=(1, 32, 256))
    assert disc.late_slope > -0.2


def test_slices_of_the_disc():
    """The law is found again, and, fitted to small samples, it predicts larger ones; a plain power law does not."""
    rng, orders, known = np.random.default_rng(0), np.array([1.0, 2, 4, 8, 16, 32]), SliceLaw(0.14, 0.7, 0.4)
    errors = {int(k): v * (1 + 1e-4 * rng.standard_normal(30)) for k, v in zip(orders, known.predict(64, orders))}
    found = slice_law(errors, 64)
    assert (found.a, found.b, found.c) == pytest.approx((0.14, 0.7, 0.4), rel=0.02)
    settings, orders = chapter.Settings(), (2, 4, 8, 16, 32, 64)
    small = chapter.disc_gain(settings, 32, orders, count=400)
    large = chapter.disc_gain(settings, 128, orders, count=80)
    mean = np.array([v.mean() for v in large.errors.values()])
    assert mean == pytest.approx(slice_law(small.errors, 32).predict(128, np.array(orders)), rel=0.06)
    assert mean[-1] > 1.5 * mean[0] * 32**-0.5
    with pytest.raises(ValueError, match="three numbers of rotations from 2 on, got"):
        slice_law({1: np.ones(3), 2: np.ones(3), 4: np.ones(3)}, 64)


@pytest.mark.parametrize("seeds", [3, 5])
def test_infinite_groups(seeds):
    plan = {16: 800, 32: 600, 64: 400, 128: 150, 256: 50}
    leading = chapter.leading_terms(at_scale.rates()[:4])
    settings = chapter.Settings(seed=seeds, seeds=seeds)
    for name, a in leading.items():
        action, sampler = chapter.infinite_cases()[name]
        errors = chapter.transport_errors(action, sampler, plan, settings.independent)
        result = chapter.convergence_of(name, errors, action, a)
        assert abs(result.rate.defect) < 0.02 < abs(chapter.wrong_rate(result, action.dim).defect)


def test_samplers_of_infinite_groups():
    for action, sampler in chapter.infinite_cases().values():
        x = sampler(2, 3, torch.Generator().manual_seed(0))
        assert x.shape == (2, 3, action.dim)
        assert (w1_batch(x, x, action).abs() < 1e-7).all()


def test_different_laws_have_the_stated_distance():
    # A fine grid of P against its image: the circle of length 1/k, uniform against the left half.
    u = (torch.arange(4000, dtype=torch.float64)[None, :, None] + 0.5) / 4000 / 4
    assert float(w1_batch(u, u / 2, lattice(4, 1))) == pytest.approx(1 / 32, rel=1e-3)


def test_slopes():
    keys = np.array([1.0, 2.0, 4.0])
    assert slope(keys, keys**-0.7) == pytest.approx(-0.7)
    value, low, high = bootstrap_slope({k: np.full(5, k**-0.7) for k in keys})
    assert value == pytest.approx(-0.7)
    assert low == pytest.approx(high)


@pytest.mark.parametrize("part", at_scale.PARTS)
def test_full_scale_runs_go_on_where_they_stopped(part, tmp_path, monkeypatch, capsys):
    small, computed, true_compute = at_scale.Scale(0.0005, 128), [], at_scale._compute

    def stop_after_three(path, task):
        if len(computed) == 3:
            raise KeyboardInterrupt
        computed.append(task)
        return true_compute(path, task)

    monkeypatch.setattr(at_scale, "_compute", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        at_scale.run_part(part, tmp_path, small)
    assert not (tmp_path / f"{part}.json").exists()
    monkeypatch.setattr(at_scale, "_compute", lambda path, task: computed.append(task) or true_compute(path, task))
    path = at_scale.run_part(part, tmp_path, small)
    assert [(t.case, t.size) for t in computed] == [(t.case, t.size) for t in at_scale.tasks(part, small)]
    assert min(t.replicates for t in computed) == 8
    provenance = json.loads(path.read_text())
    assert {"commit", "versions", "device", "seconds", "threads", "replicates", "summary"} <= set(provenance)
    assert provenance["scale"] == {"share": 0.0005, "largest": 128}
    assert not list(tmp_path.rglob(".*.npz.*")), "nothing half-written"
    assert "n = 64" in capsys.readouterr().out


def test_stored_pieces_are_what_the_experiments_compute(tmp_path, capsys):
    scale = at_scale.Scale(0.0005, 128)
    for part in at_scale.PARTS:
        at_scale.run_part(part, tmp_path, scale)
    capsys.readouterr()
    stored = {c.name: c for c in at_scale.rates(tmp_path)}["d = 3"]
    plan = {n: len(v) for n, v in stored.errors.items()}
    assert list(plan) == [16, 32, 64, 128]
    direct = chapter.transport_errors(*chapter.finite_cases()["d = 3"], plan)
    assert all(np.array_equal(stored.errors[n], direct[n]) for n in plan)
    assert stored.rate == corrected_rate(direct, 3, chapter.FIT_TO, chapter.TEST_FROM)
    assert [g.name for g in at_scale.gains(tmp_path)] == ["d = 1", "d = 2", "d = 3", "d = 4"]
    assert at_scale.gains(tmp_path)[0].slope == pytest.approx(-1, abs=0.1)
    (disc,) = at_scale.discs(tmp_path).values()
    assert list(disc.errors) == list(chapter.TURNS)
    assert disc.errors[256].mean() == pytest.approx(disc.floor, rel=0.05)


def test_batches_keep_averages_and_their_errors():
    values = np.random.default_rng(0).standard_normal((3, 5000))
    batches = at_scale._batched(values)
    assert batches.shape == (3, 100)
    assert batches.mean(1) == pytest.approx(values.mean(1), abs=1e-12)
    error = [v.std(axis=1, ddof=1) / math.sqrt(v.shape[1]) for v in (batches, values)]
    assert error[0] == pytest.approx(error[1], rel=0.3)
    assert at_scale._batched(values[:, :30]).shape == (3, 30)


def test_bad_input_at_scale(tmp_path):
    with pytest.raises(ValueError, match=r"no full-scale result rates\.json; make it with python -m"):
        at_scale.load("rates", tmp_path)
    with pytest.raises(ValueError, match="part must be one of"):
        at_scale.tasks("everything", at_scale.Scale())
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\], got 0"):
        at_scale.Scale(share=0.0)
    with pytest.raises(ValueError, match="largest must be at least 128"):
        at_scale.Scale(largest=16)


def test_the_stored_results_keep_to_the_bounds():
    """Those in the repository, which the chapter shows."""
    for result in at_scale.rates():
        assert max(map(abs, result.rate.interval)) < 0.01
        assert max(result.errors) >= 512
        if result.rate.c:  # without its boundary's term the law drifts
            assert chapter.wrong_rate(result, result.rate.quotient_dim).defect < -0.004
    for gain in at_scale.gains():
        assert max(abs(end - gain.theory) for end in gain.interval) < 0.02
    discs = at_scale.discs()
    law = slice_law(discs[64].errors, 64)
    for n, disc in discs.items():
        mean = np.array([v.mean() for v in disc.errors.values()])
        assert mean[1:] == pytest.approx(law.predict(n, np.array(list(disc.errors))[1:]), rel=0.04)


def test_bad_input():
    with pytest.raises(ValueError, match="scale must be one of"):
        chapter.Settings(scale="huge")
    with pytest.raises(ValueError, match="seeds must be between 2"):
        chapter.Settings(seeds=1)
    with pytest.raises(ValueError, match="two sizes each"):
        corrected_rate({16: np.ones(3), 32: np.ones(3)}, 2, 16, 16)
    errors = {n: np.linspace(1.0, 2.0, 3) / n for n in (8, 16, 32, 64)}
    for call, error, message in (
        (lambda: corrected_rate(errors, 2, 16, 32, seed=None), TypeError, "seed must be an integer"),
        (lambda: corrected_rate(errors, 2, 16, 32, resamples=0), ValueError, "resamples must be at least 1"),
        (lambda: corrected_rate(errors, 2, "16", 32), TypeError, "fit_to must be a real number"),
        (lambda: corrected_rate(errors, 2, 16, 32, leading=-1.0), ValueError, "leading must be a finite number"),
        (lambda: corrected_rate(errors, 1, 16, 32, leading=1.0), ValueError, "q must be at least 2"),
        (lambda: adjusted(np.ones(7), np.ones((7, 1))), ValueError, "at most one for eight replicates, got 1 for 7"),
        (lambda: adjusted(np.ones(8), np.ones(8)), ValueError, r"controls must have shape \(8, k\), got \(8,\)"),
        (lambda: slice_law(list(errors), 8), TypeError, "errors must be a Mapping"),
        (lambda: slice_law(errors, 8, smallest=0), ValueError, "smallest must be at least 1"),
        (lambda: chapter.uniform_torus(0), ValueError, "dim must be at least 1"),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(ValueError, match="finite replicates"):
        corrected_rate({16: np.ones(1), 32: np.ones(3)}, 2, 16, 16)
    large = chapter.Settings(scale="paper")
    assert large.replicates(3)[2048] >= 40
    assert large.factor == 10
