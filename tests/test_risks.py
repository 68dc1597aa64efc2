"""Networks whose three risks are explicit functions of all layers: against loops, and what they refuse."""

import itertools

import pytest
import torch
from torch import Tensor

from lib.augmentation.risks import Risks, SmallNetwork, gradient, hessian, hessian_product
from lib.symmetry.actions import natural
from lib.symmetry.groups import Symmetric
from tests.chapters import load

NODES = natural(Symmetric(3))
NETWORK = SmallNetwork((NODES, NODES + NODES, NODES))


def small_problem() -> tuple[Risks, Tensor]:
    seed, runs = 0, (2, 3)
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, *runs, 5, 3, generator=generator, dtype=torch.float64)
    a = torch.randn(*runs, NETWORK.layers.dim, generator=generator, dtype=torch.float64)
    return Risks(NETWORK, x, y), a


def test_risks_agree_with_a_loop() -> None:
    risks, a = small_problem()
    group = risks.group
    for i, j in itertools.product(range(2), range(3)):
        w1, w2 = a[i, j, :18].reshape(6, 3), a[i, j, 18:].reshape(3, 6)

        def loss(x: Tensor, y: Tensor, w1: Tensor = w1, w2: Tensor = w2) -> Tensor:
            return 0.5 * (w2 @ torch.tanh(w1 @ x) - y).square().sum()

        pairs = list(zip(risks.x[i, j], risks.y[i, j], strict=True))
        nominal = torch.stack([loss(x, y) for x, y in pairs]).mean()
        moved = [loss(NODES.apply(g, x), NODES.apply(g, y)) for g in group.elements() for x, y in pairs]
        assert torch.allclose(risks.nominal(a)[i, j], nominal)
        assert torch.allclose(risks.augmented(a)[i, j], torch.stack(moved).mean())
    assert torch.allclose(risks.augmented(a, torch.full((6,), 1 / 6, dtype=torch.float64)), risks.augmented(a))
    identity = torch.eye(6).double()[group.index(group.identity())]
    assert torch.allclose(risks.augmented(a, identity), risks.nominal(a))


def test_augmented_risk_is_the_mean_over_moved_layers() -> None:
    risks, a = small_problem()
    moved = NETWORK.layers.apply(risks.group.unsqueeze(risks.group.elements(), 2), a)
    assert torch.allclose(risks.nominal(moved).mean(0), risks.augmented(a), rtol=1e-12)


def test_inputs_may_serve_all_runs() -> None:
    risks, a = small_problem()
    x, y = risks.x[0, 0], risks.y.repeat(3, 2, 1, 1)  # (5, 3) and (6, 6, 5, 3): as many runs as elements
    a = a.repeat(3, 2, 1)
    assert torch.allclose(Risks(NETWORK, x, y).augmented(a), Risks(NETWORK, x.expand_as(y), y).augmented(a))
    assert torch.allclose(Risks(NETWORK, y, x).augmented(a), Risks(NETWORK, y, x.expand_as(y)).augmented(a))


def test_derivatives_treat_runs_apart() -> None:
    risks, a = small_problem()
    slope, curvature = gradient(risks.augmented, a), hessian(risks.augmented, a)
    one = Risks(NETWORK, risks.x[1, 2], risks.y[1, 2])
    assert torch.allclose(slope[1, 2], torch.func.grad(one.augmented)(a[1, 2]))
    assert torch.allclose(curvature[1, 2], torch.func.hessian(one.augmented)(a[1, 2]))
    v = torch.randn_like(a)
    assert torch.allclose(hessian_product(risks.augmented, a, v), (curvature @ v[..., None])[..., 0])


def test_descent_is_gradient_descent() -> None:
    risks, a = small_problem()
    end, seen = load("stability_of_augmentation").descend(risks.nominal, a, 0.1, 3, risks.nominal)
    by_hand = a
    for _ in range(3):
        by_hand = by_hand - 0.1 * gradient(risks.nominal, by_hand)
    assert torch.equal(end, by_hand)
    assert seen.shape == (4, 2, 3)
    assert bool((seen.diff(dim=0) < 0).all())


def test_risks_refuse_what_does_not_fit() -> None:
    x = torch.zeros(5, 3).double()
    with pytest.raises(ValueError, match="y must have shape"):
        Risks(NETWORK, x, x[1:])
    for wrong, message in ((x.long(), "x must be of a floating-point"), (x + 0j, "x must be real")):
        with pytest.raises(TypeError, match=message):
            Risks(NETWORK, wrong, x)
