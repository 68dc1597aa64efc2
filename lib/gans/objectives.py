r"""One variational form for the objectives of generative adversarial networks.

Data have the law Q, generated points the law P. A discriminator γ maximises

    H(γ; Q, P) = E_Q a(γ − c E_P γ) − E_P b(γ − c E_Q γ) + constant,

with a concave, b convex, both nondecreasing, and c ∈ {0, 1}. The supremum over a family Γ is a divergence D^Γ(Q‖P).
H is concave in γ and sees Q and P only through the values that γ takes, which is all that the theorems of Birrell,
Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs") need of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from lib.checks import check_choice, check_tensor

NAMES = ("jsd", "kl", "wasserstein", "alpha", "relativistic")
PENALTIES = ("two_sided", "one_sided", "real")

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Objective:
    """What the two players of one game optimise; made by :func:`objective`.

    Scores of real and of generated points have shapes ``(..., n)`` and ``(..., m)``; leading axes are independent runs,
    and every value and loss has shape ``(...)``. The generator of a game that does not saturate minimises H with a and
    b exchanged instead of H itself; the same fixed points, but gradients that do not vanish while the discriminator is
    sure.
    """

    name: str  #: one of ``NAMES``
    real: Scores  #: a
    fake: Scores  #: b
    constant: float = 0.0  #: added so that H = 0 for Q = P at the best γ
    relative: bool = False  #: whether c = 1: scores are compared with the mean score of the other law
    non_saturating: bool = False  #: whether the generator minimises the exchanged game
    penalty: str | None = None  #: what keeps γ in Γ or smooth, see :func:`gradient_penalty`
    penalty_weight: float = 0.0  #: its weight; 0 without penalty

    def value(self, real_scores: Tensor, fake_scores: Tensor) -> Tensor:
        """Return H(γ; Q, P) with both laws replaced by samples; the discriminator maximises it."""
        real, fake = self._compared(real_scores, fake_scores)
        return self.real(real).mean(-1) - self.fake(fake).mean(-1) + self.constant

    def generator_loss(self, real_scores: Tensor | None, fake_scores: Tensor) -> Tensor:
        """Return what the generator minimises: H without the terms that no generator can change, or the exchanged game.

        Real scores are read by the relative objective only, otherwise ``None`` will do.
        """
        at_real, at_fake = (self.fake, self.real) if self.non_saturating else (self.real, self.fake)
        if not self.relative:
            return -at_fake(fake_scores).mean(-1)
        real, fake = self._compared(real_scores, fake_scores)
        return at_real(real).mean(-1) - at_fake(fake).mean(-1)

    def discriminator_loss(
        self, discriminator: Scores, real: Tensor, fake: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return −H + weight · penalty, what the discriminator minimises; arguments as in :func:`gradient_penalty`.

        No gradient reaches the generator of ``fake``.
        """
        real, fake = real.detach(), fake.detach()
        if self.penalty is None:
            return -self.value(discriminator(real), discriminator(fake))
        scores, penalty = gradient_penalty(discriminator, real, fake, self.penalty, generator)
        at_real = scores if self.penalty == "real" else discriminator(real)
        return self.penalty_weight * penalty - self.value(at_real, discriminator(fake))

    def _compared(self, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        if not self.relative:
            return real, fake
        return real - fake.mean(-1, keepdim=True), fake - real.mean(-1, keepdim=True)


def objective(name: str) -> Objective:
    """Return one of the objectives of the source, each with its usual penalty.

    ======================  ============================  =============  ==============================================
    name                    H(γ; Q, P)                    penalty        supremum without penalty
    ======================  ============================  =============  ==============================================
    ``jsd``                 E_Q log s(γ) + E_P log s(−γ)  none           2 JSD(Q, P), after adding log 4
    ``kl``                  E_Q γ − E_P exp(γ − 1)        none           KL(Q‖P)
    ``wasserstein``         E_Q γ − E_P γ                 two-sided, 10  W1(Q, P) over 1-Lipschitz γ
    ``alpha``               E_Q γ − E_P (γ₊² + 1)/2       one-sided, 10  Lipschitz-regularised (f₂, Γ)-divergence
    ``relativistic``        E_Q log s(γ − E_P γ)          real, .1       no closed form in general, after adding log 4
                            + E_P log s(E_Q γ − γ)
    ======================  ============================  =============  ==============================================

    s is the logistic function. ``jsd`` is the game of Goodfellow et al. (2014) with the non-saturating generator,
    ``kl`` is convex duality (Nowozin et al. 2016), ``wasserstein`` is due to Arjovsky et al. (2017) with the penalty of
    Gulrajani et al. (2017), ``alpha`` to Birrell et al. (2022) and ``relativistic`` to Jolicoeur-Martineau (2019).
    """
    same, square = (lambda y: y), (lambda y: y.clamp_min(0) ** 2 / 2 + 0.5)  # f* of f(t) = (t² − 1)/2 on t ≥ 0
    games = {
        "jsd": (logsigmoid, softplus, math.log(4), False, True),
        "kl": (same, lambda y: (y - 1).exp()),
        "wasserstein": (same, same, 0.0, False, False, "two_sided", 10.0),
        "alpha": (same, square, 0.0, False, False, "one_sided", 10.0),
        "relativistic": (logsigmoid, softplus, math.log(4), True, True, "real", 0.1),
    }
    return Objective(name, *games[check_choice("name", name, NAMES)])


def gradient_penalty(
    discriminator: Scores, real: Tensor, fake: Tensor, kind: str, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return the scores of the points at which a penalty looks at the slope, and the penalty, one value per run.

    ``two_sided``: E (‖∇γ‖ − 1)² (Gulrajani et al. 2017) and ``one_sided``: E max(0, ‖∇γ‖² − 1) (Birrell et al. 2022),
    both at points that the generator draws uniformly on segments between a real and a generated point; ``real``:
    E ‖∇γ‖²/2 at real points (Mescheder et al. 2018). All are differentiable in the discriminator's parameters.

    The discriminator maps points ``(..., n, *event)`` to scores ``(..., n)``, each of its own point only. Real and fake
    points have one shape ``(..., n, d)``; for ``real``, which does not look at the fake ones, also that of images.
    """
    points = check_tensor("real", real, inexact=True, real=True).detach()
    if check_choice("kind", kind, PENALTIES) != "real":
        source = real.device if generator is None else generator.device
        share = torch.rand((*real.shape[:-1], 1), generator=generator, dtype=real.dtype, device=source)
        points = points + share.to(real.device) * (fake.detach() - points)
    points = points.clone().requires_grad_(True)
    scores = discriminator(points)
    slope = torch.autograd.grad(scores.sum(), points, create_graph=True)[0].flatten(scores.ndim)
    if kind == "two_sided":
        return scores, (torch.linalg.vector_norm(slope, dim=-1) - 1).square().mean(-1)
    squares = slope.square().sum(-1)
    return scores, ((squares - 1).clamp_min(0) if kind == "one_sided" else squares / 2).mean(-1)
