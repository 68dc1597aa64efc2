"""Nonlinear networks, linearised around the data (B8): the two domains, linearizations, ranks, controls."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from lib.experiments import nonlinear_bias as chapter
from lib.symmetry.fourier import effective_rank
from lib.symmetry.groups import Dihedral

DEGREE = 2


@pytest.fixture(scope="module")
def rotations() -> chapter.OnRotations:
    return chapter.OnRotations(DEGREE)


@pytest.fixture(scope="module")
def dihedral() -> chapter.OnFiniteGroup:
    return chapter.OnFiniteGroup(Dihedral(30))


@pytest.fixture(scope="module")
def dihedral_ranks(dihedral: chapter.OnFiniteGroup) -> chapter.Ranks:
    return chapter.measure_ranks(dihedral)


def wigner(angles: Tensor, degree: int = DEGREE) -> list[Tensor]:
    """Return D^l of e3nn in double precision."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from e3nn import o3
    torch.set_default_dtype(torch.float64)
    try:
        return [o3.wigner_D(l, *angles) for l in range(degree + 1)]
    finally:
        torch.set_default_dtype(torch.float32)


def values(c: Tensor, angles: Tensor) -> Tensor:
    """Return f(R) = Σ √(2l+1) c^l_{ij} D^l_{ij}(R)."""
    basis = torch.cat([math.sqrt(d.shape[-1]) * d.flatten(-2) for d in wigner(angles)], -1)
    return basis @ c


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- functions on SO(3) ---


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_wigner_functions_are_orthonormal(degree: int) -> None:
    basis, weights = chapter.wigner_basis(degree)
    assert basis.shape[1] == sum((2 * l + 1) ** 2 for l in range(degree + 1))
    assert float(weights.sum()) == pytest.approx(1)
    assert torch.allclose((basis.mT * weights) @ basis, torch.eye(basis.shape[1]).double(), rtol=0, atol=1e-12)
    assert torch.get_default_dtype() == torch.float32


def test_convolution_on_rotations_is_the_integral(rotations: chapter.OnRotations) -> None:
    """(h∗w)(U) = ∫ h(UR⁻¹) w(R) dR at random U; D^l(UR⁻¹) = D^l(U) D^l(R)ᵀ, and the grid integrates exactly."""
    h, w = random(rotations.dimension), random(rotations.dimension, seed=1)
    at = torch.rand(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3
    w_on_grid = rotations.basis @ w
    expected, start = torch.zeros(5, dtype=torch.float64), 0
    for l, D in enumerate(wigner(at)):
        d = 2 * l + 1
        columns = slice(start, start + d * d)
        on_grid = (rotations.basis[:, columns] / math.sqrt(d)).unflatten(-1, (d, d))
        apart = torch.einsum("uij,rkj->urik", D, on_grid)
        h_moved = math.sqrt(d) * torch.einsum("urik,ik->ur", apart, h[columns].unflatten(-1, (d, d)))
        expected += h_moved @ (rotations.weights * w_on_grid)
        start += d * d
    assert torch.allclose(values(rotations.convolve(h, w), at), expected, rtol=0, atol=1e-11)


def test_coordinates_are_an_isometry_and_blocks_their_transform(rotations: chapter.OnRotations) -> None:
    c = random(rotations.dimension)
    on_grid = rotations.basis @ c
    assert float(rotations.weights @ on_grid.square()) == pytest.approx(float(c @ c))
    plancherel = sum(b.shape[-1] * float(b.square().sum()) for b in rotations.blocks(c))
    assert plancherel == pytest.approx(float(c @ c))
    start = 0
    for b in rotations.blocks(c):
        d = b.shape[-1]
        D = (rotations.basis[:, start : start + d * d] / math.sqrt(d)).unflatten(-1, (d, d))
        assert torch.allclose(torch.einsum("r,rij->ij", rotations.weights * on_grid, D), b[0])
        start += d * d


def test_relu_keeps_positive_functions_and_projects_others(rotations: chapter.OnRotations) -> None:
    c = 0.05 * random(rotations.dimension)
    c[0] = 5.0  # the constant function
    assert bool((rotations.basis @ c > 0).all())
    assert torch.allclose(rotations.relu(c), c, rtol=0, atol=1e-12)
    assert torch.allclose(rotations.relu(-c), torch.zeros_like(c), rtol=0, atol=1e-12)
    h = random(rotations.dimension)
    assert torch.allclose(rotations.relu(h) - rotations.relu(-h), h, rtol=0, atol=1e-12)


def test_spherical_digits_are_bandlimited_point_masses() -> None:
    harmonics = chapter.sphere_harmonics(DEGREE)
    assert harmonics.shape == (64, (DEGREE + 1) ** 2)
    energy = harmonics.square().sum(-1)  # addition theorem: Σ_m Y_lm² = (2l+1)/4π
    assert torch.allclose(energy, torch.full((64,), (DEGREE + 1) ** 2 / (4 * math.pi)).double(), rtol=1e-6)
    image = random(8, 8)
    for l in range(DEGREE + 1):  # a quarter turn of the image turns the sphere, which acts within each degree
        part = harmonics[:, l * l : (l + 1) ** 2]
        turned = torch.rot90(image).flatten() @ part
        assert float(turned.norm()) == pytest.approx(float((image.flatten() @ part).norm()))


def test_lifted_digits_are_no_functions_on_the_sphere(rotations: chapter.OnRotations) -> None:
    x = rotations.inputs(6, 0)
    assert x.shape == (6, rotations.dimension)
    assert float(x.norm(dim=-1).mean()) == pytest.approx(1)
    second = torch.linalg.svdvals(rotations.blocks(x)[DEGREE])[..., 1]
    assert float(second.min()) > 1e-3  # without the ReLU every block would have rank one
    assert not torch.equal(rotations.inputs(6, 1), x)


@pytest.mark.parametrize("name", ["rotations", "dihedral"])
def test_scrambling_is_orthogonal(name: str, request: pytest.FixtureRequest) -> None:
    domain = request.getfixturevalue(name)
    Q = domain.scrambling()
    assert torch.allclose(Q @ Q.mT, torch.eye(domain.dimension).double(), rtol=0, atol=1e-12)


# --- networks and linearizations ---


@pytest.mark.parametrize("name", chapter.NETWORKS)
@pytest.mark.parametrize("domain", ["rotations", "dihedral"])
def test_networks_equal_their_linearizations(domain: str, name: str, request: pytest.FixtureRequest) -> None:
    """Without bias terms f(x) = ⟨x, ∇f(x)⟩: the linearization is the network at that point."""
    space = request.getfixturevalue(domain)
    shapes, f = chapter.network(name, space)
    w = [random(2, *shape, seed=i) for i, shape in enumerate(shapes)]
    x = random(2, 3, space.dimension)
    beta = chapter.linearize(f, w, x)
    assert torch.allclose((beta * x).sum(-1), f(w, x), rtol=1e-9)
    everywhere = chapter.linearize(f, w, -x)
    assert torch.allclose(everywhere, beta) == (name == "linear G-CNN")


def test_group_networks_are_equivariant_before_the_last_layer(dihedral: chapter.OnFiniteGroup) -> None:
    _, f = chapter.network("ReLU G-CNN", dihedral)
    group = Dihedral(30)
    g = group.elements()
    w = [random(1, 60), random(1, 60, seed=1), torch.ones(1, 60, dtype=torch.float64)]  # the last layer sums
    x = random(1, 4, 60, seed=2)
    moved = group.index(group.multiply(group.inverse(g[17]), g))
    assert torch.allclose(f(w, x[..., moved]), f(w, x), rtol=1e-10)
    _, scrambled = chapter.network("scrambled ReLU G-CNN", dihedral)
    assert not torch.allclose(scrambled(w, x[..., moved]), scrambled(w, x), rtol=1e-3)


def test_ranks_are_those_of_the_linearizations(dihedral: chapter.OnFiniteGroup) -> None:
    settings = chapter.Settings(seeds=2, decades=3, checkpoints=2)
    x = torch.stack([dihedral.inputs(settings.points, seed) for seed in range(2)])
    beta = chapter.train("ReLU G-CNN", dihedral, x, settings)
    y = torch.ones(settings.points).double()
    y[settings.points // 2 :] = -1
    margins = y * (beta * x[:, None]).sum(-1)  # f(x) = ⟨x, β(x)⟩
    decades = -(torch.logsumexp(-margins, -1) - math.log(settings.points)) / math.log(10)
    assert bool((decades >= settings.losses).all())
    ranks = chapter.measure_ranks(dihedral, settings, ("ReLU G-CNN",))
    expected = effective_rank(dihedral.blocks(beta)).nanmean(-1)
    assert torch.allclose(ranks.values["ReLU G-CNN"], expected)


def test_ranks_on_the_dihedral_group(dihedral_ranks: chapter.Ranks) -> None:
    assert dihedral_ranks.training_reduction() > 0.1
    assert dihedral_ranks.training_reduction("linear G-CNN") > 0.3
    assert dihedral_ranks.shared_reduction() > 0.4
    dense = dihedral_ranks.values["ReLU FC"]
    assert float((dense[:, -1] / dense[:, 0] - 1).abs().max()) < 0.1


def test_another_group_of_the_same_kind_does_not_help(dihedral_ranks: chapter.Ranks) -> None:
    assert dihedral_ranks.training_reduction("scrambled ReLU G-CNN") < 0.05
    assert dihedral_ranks.shared_reduction("scrambled ReLU G-CNN") < 0.1


def test_reductions_are_shares() -> None:
    start, end = torch.ones(3, 1).double(), torch.tensor([[0.9], [0.7], [0.2]]).double()
    rows = {"ReLU FC": 10.0 * start, "linear G-CNN": 2.0 * start, "ReLU G-CNN": end * 10}
    values = {name: torch.cat([10 * start, row], 1) for name, row in rows.items()}
    ranks = chapter.Ranks(torch.tensor([-1.0, 1.0]), values, 0.0)
    assert ranks.training_reduction() == pytest.approx(0.3)
    assert ranks.shared_reduction() == pytest.approx(3 / 8)
    assert [ranks.shared_reduction(name) for name in ("ReLU FC", "linear G-CNN")] == [0, 1]
    with pytest.raises(ValueError, match="network must be one of"):
        ranks.training_reduction("none")


def test_a_dead_start_is_drawn_again() -> None:
    """Outputs that vanish wherever the first weight is negative: half of all starts, none of those that are kept."""
    settings, x = chapter.Settings(seeds=50, points=2), torch.zeros(50, 2, 3).double()

    def dies(w: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return w[0][:, :1].relu().expand(-1, 2)

    w = chapter._living_start([(3,), (3, 3)], dies, x, settings)
    assert [a.shape for a in w] == [(50, 3), (50, 3, 3)]
    assert float(w[0][:, 0].min()) > 0
    assert float(w[0][:, 1].min()) < 0


def test_ranks_on_rotations() -> None:
    domain = chapter.OnRotations(3)
    ranks = chapter.measure_ranks(domain, chapter.Settings(seeds=3, decades=3, checkpoints=2))
    assert ranks.training_reduction() > 0.4
    assert ranks.shared_reduction() > 0.8
    assert ranks.shared_reduction("scrambled ReLU G-CNN") < 0.1


def test_bad_input(dihedral: chapter.OnFiniteGroup) -> None:
    for change, match in (
        ({"seeds": 0}, "seeds"),
        ({"points": 3}, "points must be even"),
        ({"scale": 0.0}, "scale"),
        ({"drop": 2.0}, "drop"),
        ({"decades": 2}, "decades"),
        ({"checkpoints": 1}, "checkpoints"),
    ):
        with pytest.raises(ValueError, match=match):
            chapter.Settings(**change)
    with pytest.raises(ValueError, match="name must be one of"):
        chapter.network("CNN", dihedral)
    with pytest.raises(ValueError, match="networks must be one of"):
        chapter.measure_ranks(dihedral, networks="ReLU FC")
    with pytest.raises(ValueError, match="x must have shape"):
        chapter.train("ReLU FC", dihedral, torch.zeros(1, 20, 59).double(), chapter.Settings(seeds=1))
    with pytest.raises(ValueError, match="degree"):
        chapter.OnRotations(9)
    with pytest.raises(TypeError, match="degree"):
        chapter.OnRotations(2.5)
    with pytest.raises(ValueError, match="two different digits"):
        chapter.OnRotations(2, (3, 3))


def test_networks_that_do_not_learn_have_no_rank_at_the_end(dihedral: chapter.OnFiniteGroup) -> None:
    x = random(1, 20, 60)
    x[:, 10:] = x[:, :10]  # both labels for every point
    slopes = chapter.train("ReLU FC", dihedral, x, chapter.Settings(seeds=1, decades=3))
    assert bool(slopes[:, 0].isfinite().all())
    assert bool(slopes[:, -1].isnan().all())
