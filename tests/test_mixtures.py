"""Mixtures with the symmetry of a group: laws against closed forms, symmetry, sectors, scores, squashing, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from scipy.stats import t as student_t

from lib.gans.mixtures import Mixture, score, squash, unsquash
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric

QUARTER = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dim", [2, 4, 12])
def test_the_plane_of_the_data_is_a_complex_line(dim: int) -> None:
    law = Mixture(dim)
    turn = law.representation.matrix(torch.tensor([1]))
    embedding = law.embedding
    assert torch.allclose(embedding.mT @ embedding, torch.eye(2, dtype=torch.float64), atol=1e-15)
    assert torch.allclose(turn @ embedding, embedding @ QUARTER, atol=1e-15)
    x = law.sample((3, 50), rng(), torch.float64)
    assert x.shape == (3, 50, dim)
    assert torch.allclose(x @ embedding @ embedding.mT, x, atol=1e-12)  # the points lie in the plane


def test_gaussian_moments() -> None:
    law = Mixture()
    x = law.sample((200_000,), rng(), torch.float64)
    expected = (law.radius**2 / 2 + law.scale**2) * torch.eye(2, dtype=torch.float64)
    assert torch.allclose(x.mT @ x / len(x), expected, atol=0.05)
    assert x.mean(0).norm() < 5 * math.sqrt(float(expected.trace()) / len(x))


def test_student_coordinates_follow_student_law() -> None:
    law = Mixture(2, radius=1e-6, scale=0.2, freedom=0.5)
    x = law.sample((20_000,), rng(), torch.float64)[:, 0] / law.scale
    assert kstest(x.numpy(), student_t(0.5).cdf).pvalue > 1e-3
    assert kstest(x.numpy(), student_t(0.7).cdf).pvalue < 1e-3


@pytest.mark.parametrize("weights", [(0.25,) * 4, (0.7, 0.1, 0.1, 0.1)])
def test_sectors_and_reference(weights: tuple[float, ...]) -> None:
    law = Mixture(4, weights=weights)
    x = law.sample((40_000,), rng(), torch.float64)
    assert torch.allclose(law.shares(x), torch.tensor(weights).double(), atol=0.01)
    turned = law.representation.apply(torch.tensor([1]), x)
    assert bool((law.sector(turned) == (law.sector(x) + 1) % 4).all())
    reference = law.reference((5, 200), rng(1), torch.float64)
    assert float((law.shares(reference) - torch.tensor(weights).double()).abs().max()) <= 0.0051
    assert not torch.equal(reference[0], reference[1])


@pytest.mark.parametrize("group", [Cyclic(2), Cyclic(5), Cyclic(8), Dihedral(2), Dihedral(4)], ids=str)
@pytest.mark.parametrize("dim", [2, 6])
def test_every_group_permutes_pieces_and_sectors(group: Cyclic | Dihedral, dim: int) -> None:
    law = Mixture(dim, group=group)
    x = law.sample((400,), rng(), torch.float64)
    moved = law.representation.apply(group.unsqueeze(group.elements()), x)  # (|G|, 400, dim)
    plane = moved @ law.embedding
    assert torch.allclose(plane @ law.embedding.mT, moved, atol=1e-12)  # the plane of the data is invariant
    sectors = law.sector(moved)
    assert bool((sectors.sort(0).values == torch.arange(group.order)[:, None]).all())  # one image in every sector
    centre = Mixture(dim, scale=1e-5, group=group).sample((50,), rng(2), torch.float64) @ law.embedding
    turned = law.sector(law.representation.apply(group.elements()[-1], centre @ law.embedding.mT))
    assert sorted(set(turned.tolist())) == list(range(group.order))
    reference = law.reference((3, 40 * group.order), rng(1), torch.float64)
    assert float((law.shares(reference) - 1 / group.order).abs().max()) < 0.02


def test_scores_of_known_samples() -> None:
    law = Mixture(scale=1e-6)
    truth = law.reference((2, 200), rng(), torch.float64)
    collapsed = truth.abs()  # everything in one sector, by reflections
    found = score(torch.stack([truth[0], collapsed[1]]), truth, law)
    assert float(found["w1"][0]) == pytest.approx(0, abs=1e-9)
    assert found["smallest_share"].tolist() == [0.25, 0]
    # a quarter of the mass stays, half crosses a side of the square, a quarter its diagonal
    assert float(found["w1"][1]) == pytest.approx(3 * (0.5 * math.sqrt(2) + 0.25 * 2), abs=1e-4)
    assert float(found["w1_invariant"][1]) < 1e-5
    lost = score(torch.full((2, 200, 2), math.nan).double(), truth, law)
    assert bool(lost["w1"].isnan().all())
    assert lost["smallest_share"].tolist() == [0, 0]


def test_heavy_tails_are_scored_by_a_bounded_kernel() -> None:
    law = Mixture(4, scale=0.2, freedom=0.5)
    truth, fresh = (draw((2, 300), rng(1), torch.float64) for draw in (law.reference, law.sample))
    near, far = score(fresh, truth, law), score(0 * fresh, truth, law)
    assert bool((near["mmd"] < 0.15).all())
    assert bool((far["mmd"] > 0.3).all())
    assert bool((far["mmd"] < 2**0.5).all())
    assert "mmd" not in score(fresh, truth, Mixture(4))


def test_sectors_of_single_points() -> None:
    points = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    assert Mixture().sector(points).tolist() == [0, 1, 2, 3]


@given(st.integers(1, 6), st.floats(1e-6, 1e6), st.integers(0, 100))
def test_squash_is_a_bijection_that_commutes_with_orthogonal_maps(dim: int, size: float, seed: int) -> None:
    x = size * torch.randn(7, dim, generator=rng(seed), dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(dim, dim, generator=rng(seed + 1), dtype=torch.float64)).Q
    assert torch.allclose(unsquash(squash(x)), x, rtol=1e-9)
    assert torch.allclose(squash(x @ q.mT), squash(x) @ q.mT, rtol=1e-9, atol=1e-12)
    assert torch.allclose(squash(x).norm(dim=-1), torch.log1p(x.norm(dim=-1)))


def test_squash_at_the_origin() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    assert torch.equal(squash(x), torch.zeros(2, 3))
    assert torch.equal(unsquash(x), torch.zeros(2, 3))


def test_squashed_tails_have_a_mean() -> None:
    x = Mixture(12, scale=0.2, freedom=0.5).sample((400_000,), rng(), torch.float64)
    tail = (squash(x).norm(dim=-1) > 12).double().mean()
    far = (squash(x).norm(dim=-1) > 14).double().mean()
    assert abs(float(tail / far) - math.e) < 0.4  # P(log(1 + r) > t) ~ e^{-t/2}


def test_all_coordinate_planes_move_alike() -> None:
    assert Mixture(6, group=Dihedral(4)).representation.group == Dihedral(4)
    action = Mixture(4).representation
    assert torch.allclose(action.matrix(torch.tensor([1])), torch.block_diag(QUARTER, QUARTER), atol=1e-15)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="even"):
        Mixture(3)
    for group in (Symmetric(3), Cyclic(1)):
        with pytest.raises(ValueError, match="group must be C_n or D_n"):
            Mixture(group=group)
    for weights in ((0.5, 0.5), (0.5, 0.5, 0.5, 0.5)):
        with pytest.raises(ValueError, match="weights"):
            Mixture(weights=weights)
    for call in (squash, unsquash):
        with pytest.raises(TypeError, match="must be of a floating-point"):
            call(torch.tensor([1, 2]))
