"""How ensembles are seen: the logits of all members along orbits, and how far a predictor is from invariance.

The metrics take logits f(ρ(g)x) of shape ``(…, |G|, n, classes)``, the identity first, and average over the n images.
The chapter on ensembles writes them by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lib.ensembles.training import Members, Network


@torch.no_grad()
def orbit_logits(network: Network, members: Members, table: Tensor, part: int = 64) -> Tensor:
    """Return the logits of all members at images moved by all group elements, so many members at a time.

    Shapes ``(|G|, n, size, size) -> (m, |G|, n, classes)``.
    """
    return network.outputs(members, table.flatten(0, 1)[None], part).unflatten(1, table.shape[:2])


def squared_residual(logits: Tensor) -> Tensor:
    """Return the mean over images and g of ‖f(ρ(g)x) − Q_G f(x)‖², shape ``(…)``."""
    return (logits - logits.mean(-3, keepdim=True)).square().sum(-1).mean((-2, -1))


def agreement(logits: Tensor) -> Tensor:
    """Return the share of moved images, g ≠ e, that get the class that the image itself gets, shape ``(…)``."""
    best = logits.argmax(-1)
    return (best[..., 1:, :] == best[..., :1, :]).to(logits.dtype).mean((-2, -1))


def divergence(logits: Tensor) -> Tensor:
    """Return ½(KL(p‖q) + KL(q‖p)) of the predictions at x and ρ(g)x, averaged over g ≠ e and images, shape ``(…)``."""
    logp = logits.log_softmax(-1)
    difference = logp[..., 1:, :, :] - logp[..., :1, :, :]
    return 0.5 * (difference * (logp[..., 1:, :, :].exp() - logp[..., :1, :, :].exp())).sum(-1).mean((-2, -1))
