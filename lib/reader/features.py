"""Features of samples and of their images, whose means tell an asymmetric law from a symmetric one.

All have the shape (K, n, p): K images of each of n samples, the samples themselves first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from lib.reader.door import Samples

_LONGEST = 400  # columns of a family of features


def families(s: Samples, rng: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Yield features of samples and of their images by name, (K, n, p), float32, standardised over all of them."""
    X, flat, made = s.images, s.images.flatten(2), []
    if s.group.kind in ("pixels", "shift"):
        pictures = X.reshape(*X.shape[:2], -1, *X.shape[-2:]).float()
        made.append(("pixels", _coarse(pictures, 12)))
        made.append(("gradients", _gradients(pictures)))
        flat = _coarse(pictures, 8).double()
    elif s.group.kind == "rotate":
        made.append(("moments", _moments(X if X.ndim > 3 else X[:, :, None])))
        if X.ndim > 3:  # points in any order
            flat = made[-1][1].double()
    else:
        made.append(("columns", flat))
        z = _standard(flat)[:, :, : int(_LONGEST**0.5)]
        made.append(("products", torch.einsum("knp,knq->knpq", z, z).flatten(2)))
    made.append(("waves", _waves(_standard(flat), rng)))
    labels = None if s.classes is None else _standard(s.classes[None])[0]
    for name, features in made:
        z = _standard(features)[:, :, :_LONGEST]
        yield name, z.float()
        if labels is not None and labels.shape[1] * z.shape[2] <= 20 * _LONGEST:
            yield f"{name} by class", torch.einsum("knp,nc->knpc", z, labels).flatten(2).float()
        if s.moved is not None:
            t = _standard(s.moved.flatten(2))[:, :, :20]
            joined = torch.einsum("knp,knc->knpc", z, torch.cat([t, t.square()], 2)).flatten(2)
            yield f"{name} with target", _standard(joined)[:, :, :_LONGEST].float()


def _standard(x: Tensor) -> Tensor:
    """Return columns (K, n, p) with mean 0 and spread 1 over the whole pool, cut at 4; constant ones are left out."""
    rows = x.flatten(0, 1)
    spread = rows.std(0)
    varies = spread > 1e-9 * rows.abs().amax(0).clamp(min=1e-300)
    return ((x - rows.mean(0)) / spread.clamp(min=1e-300))[:, :, varies].clamp(-4, 4)


def _coarse(x: Tensor, side: int) -> Tensor:
    """Return pictures (K, n, c, h, w) as means over at most side × side blocks, (K, n, p)."""
    size = [min(side, s) for s in x.shape[-2:]]
    return torch.nn.functional.adaptive_avg_pool2d(x.flatten(0, 1), size).flatten(1).unflatten(0, x.shape[:2])


def _gradients(x: Tensor) -> Tensor:
    """Return squared differences over 1, 2 and 4 pixels, in four directions: means, and in 3 × 3 blocks; (K, n, p)."""
    found = []
    for lag in (lag for lag in (1, 2, 4) if lag < min(x.shape[-2:]) // 2):
        down, right = x[..., lag:, :] - x[..., :-lag, :], x[..., lag:] - x[..., :-lag]
        one, two = x[..., lag:, lag:] - x[..., :-lag, :-lag], x[..., lag:, :-lag] - x[..., :-lag, lag:]
        squares = [d.square().mean(2, keepdim=True) for d in (down, right, one, two)]
        means = [s.mean((-2, -1)) for s in squares]
        total = squares[0].mean((-3, -2, -1)) + squares[1].mean((-3, -2, -1)) + 1e-12
        shape = [((a - b)[..., 0] / total)[..., None] for a, b in ((means[0], means[1]), (means[2], means[3]))]
        found += [*means, *shape, *(_coarse(s, 3) for s in squares[:2])]  # the shape is that of single textures
    return torch.cat([f.flatten(2) for f in found], 2) if found else x.flatten(2)


def _moments(x: Tensor) -> Tensor:
    """Return means over points (K, n, q, d) of monomials of degree 1 to 4, (K, n, p)."""
    z = x / x.square().mean().sqrt()
    z = z / (1 + z.square().sum(-1, keepdim=True) / 9).sqrt()  # bounded, and it turns with the points
    d = min(z.shape[-1], 5)
    terms = [c for k in range(1, 5) for c in itertools.combinations_with_replacement(range(d), k)]
    return torch.stack([z[..., list(c)].prod(-1).mean(-1) for c in terms], -1)


def _waves(z: Tensor, rng: torch.Generator, count: int = 100) -> Tensor:
    """Return cosines and sines of random directions at two wavelengths, (K, n, 2·count): in the end they see all."""
    some = z[0, : min(200, z.shape[1])]
    typical = float(torch.cdist(some, some).median().clamp(min=1e-12))
    w = torch.randn(z.shape[2], count, generator=rng, dtype=z.dtype, device="cpu") / typical
    w[:, count // 2 :] *= 3
    phase = z @ w
    return torch.cat([phase.cos(), phase.sin()], 2)
