"""The orbit test: exact at its level, sharper than halving the sample, misled by points that are not independent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lib.images.histology import cut_patches, tissue_image
from lib.images.sets import image_set
from lib.symmetry.actions import natural, pixels, planar, regular, trivial, vectors
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.lie import SpecialOrthogonal
from lib.symmetry.representations import DirectSum, MatrixRepresentation, Representation
from lib.transport.invariance import SCALES, orbit_test
from lib.transport.two_sample import invariance_test, outside_interval, random_move
from tests.oracles import symmetrize_measure


def gen(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def colour_images(size: int) -> Representation:
    return DirectSum(*[pixels(Dihedral(4), size)] * 3)


@pytest.mark.parametrize(
    "representation", [planar(Cyclic(5)), pixels(Dihedral(4), 4), natural(Symmetric(3)), regular(Cyclic(2))]
)
def test_exact_at_its_level(representation: Representation) -> None:
    """Heavy tails and few points: the share of rejections of an invariant law lies in the binomial interval."""
    x = torch.randn(400, 7, representation.dim, generator=gen(0), dtype=torch.float64)
    x = x / torch.rand(400, 7, 1, generator=gen(1), dtype=torch.float64)
    p = orbit_test(x, representation, gen(2), draws=59).p_value
    assert p.shape == (400,)
    for level in (0.05, 0.5):
        assert outside_interval(int((p <= level).sum()), 400, level, 0.999) == 0


def test_keeps_its_level_in_samples_of_five_points() -> None:
    """The width of the kernel must not know how the points lie: with the median of ``d(x_i, x_j)`` this is 0.184."""
    angle = 2 * math.pi * torch.rand(20_000, 5, 1, generator=gen(3), dtype=torch.float64)
    x = torch.cat([angle.cos(), angle.sin()], -1)
    p = orbit_test(x, planar(Cyclic(4)), gen(4), 19).p_value
    assert outside_interval(int((p <= 0.2).sum()), len(p), 0.2, 0.999) == 0


def test_the_statistic_is_the_mmd_to_the_symmetrised_sample() -> None:
    V = pixels(Dihedral(4), 3)
    x = torch.randn(6, 9, generator=gen(0), dtype=torch.float64)
    points, _ = symmetrize_measure(x, V)
    every = [torch.cdist(x, x @ m.mT) for m in V.matrix(V.group.elements())]
    median = torch.stack(every)[:, ~torch.eye(6, dtype=torch.bool)].median()

    def mean_kernel(a: Tensor, b: Tensor) -> Tensor:
        far = torch.cdist(a, b) / median
        return torch.stack([torch.exp(-((far / s) ** 2) / 2) for s in SCALES]).mean()

    expected = mean_kernel(x, x) - 2 * mean_kernel(x, points) + mean_kernel(points, points)
    assert float(orbit_test(x, V, gen(0), 1).statistic) == pytest.approx(float(expected), rel=1e-9)


def test_sees_what_halving_the_sample_does_not() -> None:
    """A small shift that breaks the symmetry, under a large variation that does not."""
    V, n, runs = planar(Cyclic(4)), 60, 60
    radius = torch.rand(runs, n, 1, generator=gen(0), dtype=torch.float64) * 10
    angle = 2 * math.pi * torch.rand(runs, n, 1, generator=gen(1), dtype=torch.float64)
    x = radius * torch.cat([angle.cos(), angle.sin()], -1) + torch.tensor([0.0, 2.0], dtype=torch.float64)
    orbits = orbit_test(x, V, gen(2), 99).rejected().double().mean()
    halves = invariance_test(x, random_move(V), gen(2), 99).rejected().double().mean()
    assert orbits > halves + 0.2
    assert orbits > 0.8


def test_tissue_looks_the_same_from_all_sides_and_digits_do_not() -> None:
    """Patches 24 pixels apart pass; the same patches under a faint slope of light, and digits, do not."""
    V = colour_images(8)
    patches = cut_patches(tissue_image(), 8, spacing=4).flatten(0, 1).double()
    assert len(patches) == 256
    assert float(orbit_test(patches.flatten(1), V, gen(0)).p_value) > 0.1
    slope = 0.05 * torch.linspace(-1, 1, 8, dtype=torch.float64)
    lit = (patches + slope).clamp(-1, 1).flatten(1)
    assert float(orbit_test(lit, V, gen(0)).p_value) == pytest.approx(1 / 500)
    upright = image_set("digits")[0].images[:200].double().flatten(1)
    assert float(orbit_test(upright, pixels(Dihedral(4), 8), gen(0)).p_value) == pytest.approx(1 / 500)


def test_patches_that_touch_are_not_independent() -> None:
    """Edges run from one patch into the next: with an invariant field the test rejects too often without distance."""
    noise = torch.randn(200, 1, 72, 72, generator=gen(0), dtype=torch.float64)
    kernel = torch.ones(1, 1, 9, 9, dtype=torch.float64) / 9
    field = torch.nn.functional.conv2d(noise, kernel)[:, 0]  # 64 × 64, correlated over 8 pixels, invariant law

    def patches(spacing: int) -> Tensor:
        return torch.stack([cut_patches(f[None], 4, spacing).flatten(0, 1).flatten(1) for f in field])

    V = pixels(Dihedral(4), 4)
    near = orbit_test(patches(1)[:, :64], V, gen(1), 59).rejected()
    apart = orbit_test(patches(4), V, gen(1), 59).rejected()
    assert outside_interval(int(apart.sum()), 200, 0.05, 0.999) == 0
    assert outside_interval(int(near.sum()), 200, 0.05, 0.999) > 0


@pytest.mark.usefixtures("as_user")
def test_bad_input() -> None:
    V, x = planar(Cyclic(4)), torch.zeros(5, 2)
    with pytest.raises(TypeError, match="representation must be real, of a finite group"):
        orbit_test(x, vectors(SpecialOrthogonal(2)), gen(0))
    sheared = torch.tensor([[1.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    one = torch.eye(2, dtype=torch.float64)
    mirror = MatrixRepresentation(Cyclic(2), 2, lambda g: torch.where(g[..., None] == 0, one, sheared), "m", False)
    with pytest.raises(ValueError, match="representation must act by isometries"):
        orbit_test(x.double(), mirror, gen(0))
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., any, 2\)"):
        orbit_test(torch.zeros(5, 3), V, gen(0))
    with pytest.raises(ValueError, match="points must be at least two, got 1"):
        orbit_test(x[:1], V, gen(0))
    with pytest.raises(TypeError, match="points must be real"):
        orbit_test(x + 0j, V, gen(0))
    with pytest.raises(ValueError, match="points must be finite"):
        orbit_test(x * math.nan, V, gen(0))
    with pytest.raises(ValueError, match="points are too many"):
        orbit_test(torch.zeros(1, 2).expand(20_000, 2), V, gen(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neither_scale_nor_a_constant_column_matters(dtype: torch.dtype) -> None:
    V = planar(Cyclic(4)) + trivial(Cyclic(4))
    x = torch.randn(40, 3, generator=gen(0)).to(dtype)
    x[:, 2] = 0
    wanted = float(orbit_test(x, V, gen(1), 99).p_value)
    for column, scale in ((65536.0, 1.0), (0.0, 1e20), (65536.0, 1e-24)):
        moved = x.clone()
        moved[:, 2] = column
        assert float(orbit_test(scale * moved, V, gen(1), 99).p_value) == pytest.approx(wanted, abs=1e-12)
