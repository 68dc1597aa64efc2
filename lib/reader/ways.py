"""Ways to use a symmetry in kernel ridge regression, where to begin, and what least squares say beforehand.

An orbit is a function that gives all images of samples, ``(n, …) -> (n, |G|, …)``, the samples themselves first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib.checks import seeded

Orbit = Callable[[Tensor], Tensor]
Fit = Callable[[Tensor], Tensor]  # samples (n, …) -> values (n, outputs)
Kernel = Callable[[Tensor, Tensor], Tensor]
RIDGES = [10.0**-k for k in range(1, 7)]


def kernels(x: Tensor, orbit: Orbit) -> tuple[Kernel, Kernel, Kernel]:
    """Return the plain Gaussian kernel of the mean distance, its mean over images, and half of each."""
    width = torch.cdist(x.flatten(1), x.flatten(1)).square().mean() / 2

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return (-torch.cdist(a.flatten(1), b.flatten(1)).square() / width).exp()

    def averaged(a: Tensor, b: Tensor) -> Tensor:
        every = plain(a, orbit(b).flatten(0, 1))
        return every.unflatten(1, (len(b), -1)).mean(-1)

    return plain, averaged, lambda a, b: (plain(a, b) + averaged(a, b)) / 2


def ridge_fit(kernel: Kernel, x: Tensor, y: Tensor, ridge: float | Tensor) -> Fit:
    """Return kernel ridge regression, as a function of new samples; for r ridges its values are (r, m, outputs)."""
    K = kernel(x, x)
    added = torch.as_tensor(ridge, dtype=K.dtype, device=K.device) * len(x)
    c = torch.cholesky_solve(
        y, torch.linalg.cholesky(K + added[..., None, None] * torch.eye(len(x), dtype=K.dtype, device=K.device))
    )
    return lambda new: kernel(new, x) @ c


def upright(x: Tensor, orbit: Orbit) -> Tensor:
    """Return of each orbit the image with the largest sum of entries on a ramp, (n, …).

    Rows count seven times as much as columns: a picture's mass lies high, then to the left; numbers are sorted.
    """
    every = orbit(x)
    down, right = (torch.linspace(1, 0, side, dtype=x.dtype, device=x.device) for side in x.shape[-2:])
    ramp = 7 * down[:, None] + right if x.ndim > 2 else right
    place = (every * ramp).flatten(2).sum(-1).argmax(1)  # (n,)
    return every[torch.arange(len(x), device=x.device), place]


def members(x: Tensor, orbit: Orbit, seed: int, count: int = 4) -> list[Tensor]:
    """Return for each member of an ensemble the samples and one random image of each, (2n, …)."""
    rng, every = seeded(seed), orbit(x)
    pick = torch.randint(every.shape[1], (count, len(x)), generator=rng, device=rng.device).to(x.device)
    return [torch.cat([x, every[torch.arange(len(x), device=x.device), p]]) for p in pick]


def ways(x: Tensor, y: Tensor, orbit: Orbit, seed: int) -> dict[str, Callable[[float | Tensor], Fit]]:
    """Return seven ways; each takes a ridge, or several, and gives a function of samples.

    Full augmentation is the first again: on all images the normal equations are those of the averaged kernel.
    """
    plain, averaged, half = kernels(x, orbit)
    sets, up = members(x, orbit, seed), upright(x, orbit)

    def fits(ridge: float | Tensor, count: int) -> Fit:
        one = [ridge_fit(plain, m, y.repeat(2, 1), ridge) for m in sets[:count]]
        return lambda new: sum(f(new) for f in one) / count

    def after(ridge: float | Tensor) -> Fit:
        f = ridge_fit(plain, x, y, ridge)
        return lambda new: f(orbit(new).flatten(0, 1)).unflatten(-2, (len(new), -1)).mean(-2)

    def posed(ridge: float | Tensor) -> Fit:
        f = ridge_fit(plain, up, y, ridge)
        return lambda new: f(upright(new, orbit))

    return {
        "architecture": lambda r: ridge_fit(averaged, x, y, r),
        "sampled augmentation": lambda r: fits(r, 1),
        "ensemble of four": lambda r: fits(r, len(sets)),
        "averaging afterwards": after,
        "canonical pose": posed,
        "half of each": lambda r: ridge_fit(half, x, y, r),
        "nothing": lambda r: ridge_fit(plain, x, y, r),
    }


Part = tuple[Tensor, Tensor]  # samples and their targets, (n, outputs)


def risks(known: Part, validation: Part, new: Part, orbit: Orbit, seed: int) -> dict[str, float]:
    """Return the risk of every way at new data: a squared error, or for several outputs the share of wrong classes.

    Each way takes the ridge that does best on the validation set.
    """
    (x, y), (v, y_v), (z, y_z), found = known, validation, new, {}
    for way, fit in ways(x, y, orbit, seed).items():
        f = fit(torch.tensor(RIDGES, dtype=torch.float64, device=x.device))
        out = f(z)[(f(v) - y_v).square().mean((1, 2)).argmin()]
        wrong = out.argmax(1) != y_z.argmax(1)
        loss = (out - y_z).square() if y.shape[1] == 1 else wrong.double()
        found[way] = float(loss.mean())
    return found


def price(F: Tensor, y: Tensor, Z: Tensor, z: Tensor) -> tuple[int, float, float]:
    """Return the number of features k, σ² of the known data ``F, y``, and the risk of least squares at new ``Z, z``."""
    k = int(torch.linalg.matrix_rank(F))
    w = torch.linalg.pinv(F) @ y
    variance = (y - F @ w).square().sum() / (len(F) - k)
    return k, float(variance), float((z - Z @ w).square().sum(1).mean())


def advice(
    labels_keep: bool = True,
    not_rejected: bool = True,
    moved_later: bool = False,
    can_retrain: bool = True,
    few_samples: bool = True,
    layers: bool = True,
    small_group: bool = True,
    many_networks: bool = False,
    smaller_group: bool = False,
) -> str:
    """Return where the ladder of :doc:`which_should_i_use` leads.

    ``smaller_group`` says that one passes its test, ``layers`` that there are equivariant ones.

    >>> advice(), advice(not_rejected=False), advice(not_rejected=False, moved_later=True)
    ('architecture', 'half of each', 'architecture')
    """
    if not labels_keep:
        return "the smaller group" if smaller_group else "nothing"
    if not (not_rejected or moved_later):
        hedge = "half of each" if can_retrain else "nothing"
        return "the smaller group" if smaller_group else hedge
    if not can_retrain:
        return "averaging afterwards"
    if not (moved_later or few_samples):
        return "nothing"
    full = "full augmentation" if small_group else "sampled augmentation"
    other = "ensemble" if many_networks else full
    return "architecture" if layers else other
