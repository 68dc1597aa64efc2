"""Chapter *Haar projections*, second half: networks, risks and Hessians under a group (H6, H7, H8), and two demos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lib.checks import check_float, check_int, seeded
from lib.images.bundled import digits, photograph
from lib.symmetry.actions import motions, natural, pixels, row_shifts, translations, trivial, vectors
from lib.symmetry.groups import Cyclic, Dihedral, FiniteGroup, Symmetric
from lib.symmetry.haar import projection
from lib.symmetry.lie import Orthogonal, SpecialOrthogonal
from lib.symmetry.representations import Hom, Representation
from lib.training.risks import Risks, SmallNetwork, hessian


def norm_gate(x: Tensor) -> Tensor:
    """Return x·tanh|x| with the norm over the last axis, which commutes with every unitary map."""
    return x * torch.tanh(torch.linalg.vector_norm(x, dim=-1, keepdim=True))


def uneven_tanh(x: Tensor) -> Tensor:
    """Return tanh with a different slope for every coordinate: equivariant under no permutation. A control."""
    return torch.tanh(x * torch.linspace(0.5, 1.5, x.shape[-1], dtype=x.dtype))


def random_layers(network: SmallNetwork, generator: torch.Generator) -> Tensor:
    """Return layers with independent normal entries of variance 1/(input dimension), flat, shape ``(dim L,)``."""
    blocks = [torch.randn(H.dim, generator=generator, dtype=torch.float64) for H in network.layers.summands]
    return torch.cat([b / H.source.dim**0.5 for b, H in zip(blocks, network.layers.summands, strict=True)])


def example_networks() -> dict[str, SmallNetwork]:
    """Return networks of two or three layers, one for each kind of group in the chapter."""
    nodes = natural(Symmetric(4))
    turns, shifts, rows, both = pixels(Cyclic(4), 4), pixels(translations(4), 4), row_shifts(4), pixels(motions(4), 4)
    space, reflected = vectors(SpecialOrthogonal(3)), vectors(Orthogonal(3))
    return {
        "graphs, S4": SmallNetwork((nodes * nodes, nodes * nodes, nodes, trivial(nodes.group)), torch.tanh),
        "images, quarter turns": SmallNetwork((turns, turns, turns), torch.tanh),
        "images, shifts": SmallNetwork((shifts, shifts, shifts + shifts, trivial(shifts.group)), torch.tanh),
        "images, row shifts": SmallNetwork((rows, rows, trivial(rows.group, 2)), torch.tanh),
        "images, shifts and turns": SmallNetwork((both, both, both), torch.tanh),
        "vectors, SO(3)": SmallNetwork((space + space, space * space, space), norm_gate),
        "vectors, O(3)": SmallNetwork((reflected, reflected + reflected, reflected), norm_gate),
    }


@dataclass(frozen=True)
class LayerIdentity:
    """Defects of Φ_A(ρ(g)x) = ρ(g)Φ_{ρ(g)⁻¹A}(x) and of R^aug(A) = ∫R(ρ(g)A)dμ, relative to outputs and risk."""

    layers: float
    augmented_risk: float


def layer_identity(network: SmallNetwork, seed: int, points: int = 5) -> LayerIdentity:
    """Measure both sides of Lemmas 3 and 4 of Nordenfors, Ohlsson, Flinth (2023) for random layers and data.

    Finite groups are summed over; for Lie groups both integrals use the same 20 random elements and their inverses (the
    substitution g → g⁻¹ in Lemma 4 needs a set closed under inverses).

    Parameters
    ----------
    network
        The network; its layers are random and *not* equivariant.
    seed
        Seed of layers, data and elements.
    points
        Data points.
    """
    generator, L = seeded(seed), network.layers
    X, Y, group = network.spaces[0], network.spaces[-1], L.group
    A = random_layers(network, generator)
    x, y = _random_data(network, points, generator)
    if isinstance(group, FiniteGroup):
        g = group.elements()
    else:
        g = group.sample(20, generator)
        g = torch.cat([g, group.inverse(g)])
    h = group.unsqueeze(g)
    left = network(A, X.apply(h, x))
    right = Y.apply(h, network(L.apply(group.inverse(g), A), x))
    augmented = (left - Y.apply(h, y)).square().sum(-1).mean()
    averaged = (network(L.apply(g, A), x) - y).square().sum(-1).mean()
    return LayerIdentity(
        float((left - right).abs().max() / left.abs().max()), float((augmented - averaged).abs() / augmented)
    )


def _random_data(network: SmallNetwork, points: int, generator: torch.Generator) -> list[Tensor]:
    ends = (network.spaces[0], network.spaces[-1])
    return [torch.randn(points, V.dim, generator=generator, dtype=torch.float64) for V in ends]


@dataclass(frozen=True)
class HessianCheck:
    """Largest entries, relative to the Hessian's largest: the E–E^⊥ block, and Π_{L⊗L}∇²R − ∇²R^aug.

    The last two fields are controls: the same block of the nominal Hessian, and its difference from the augmented one.
    """

    off_diagonal_block: float
    projection: float
    nominal_block: float
    nominal_difference: float


def hessian_networks() -> list[SmallNetwork]:
    """Return networks small enough for explicit Hessians on the space of all layers."""
    nodes, turns, square = natural(Symmetric(3)), pixels(Cyclic(4), 2), pixels(Dihedral(4), 2)
    return [
        SmallNetwork((nodes, nodes, trivial(nodes.group))),
        SmallNetwork((turns, turns, trivial(turns.group))),
        SmallNetwork((square, square, square)),
    ]


def hessian_check(network: SmallNetwork, seed: int, points: int = 12) -> HessianCheck:
    """Compare Hessians of the nominal and the augmented risk at a random point of E (DYN Lemmas 5, 6, Proposition 2).

    Parameters
    ----------
    network
        A network over a finite group acting by permutations.
    seed
        Seed of layers and data.
    points
        Data points, drawn without symmetry.
    """
    generator, L = seeded(seed), network.layers
    risks = Risks(network, *_random_data(network, points, generator))
    A = risks.project(random_layers(network, generator))
    nominal, augmented = hessian(risks.nominal, A), hessian(risks.augmented, A)
    pi = risks.project_matrix
    projected = projection(L * L)(nominal.flatten()).reshape(nominal.shape)
    blocks = (pi @ H @ (torch.eye(len(pi)) - pi) for H in (augmented, nominal))
    differences = (projected - augmented, nominal - augmented)
    sizes = [float(d.abs().max() / nominal.abs().max()) for d in (*blocks, *differences)]
    return HessianCheck(sizes[0], sizes[2], sizes[1], sizes[3])


def affine_defect(
    source: Representation, target: Representation, seed: int, extra: Representation | None = None
) -> float:
    """Compare the projection of an affine map (A, b) with that of its linear embedding [[A, b], [0, 1]].

    The group acts on the extra coordinate trivially (DYN Appendix F). The embedded map is averaged over the group (for
    Lie groups: projected onto the null space of the equations), A and b are projected by the route that
    :func:`lib.symmetry.haar.projection` chooses. The largest difference of entries is returned.

    Parameters
    ----------
    source, target
        Representations of one group.
    seed
        Seed of the random map.
    extra
        Representation on the extra coordinate, of dimension one; another than the trivial one is a control.
    """
    generator, one = seeded(seed), extra or trivial(source.group)
    A = torch.randn(target.dim, source.dim, generator=generator, dtype=torch.float64)
    b = torch.randn(target.dim, generator=generator, dtype=torch.float64)
    embedded = torch.zeros(target.dim + 1, source.dim + 1, dtype=torch.float64)
    embedded[:-1, :-1], embedded[:-1, -1], embedded[-1, -1] = A, b, 1.0
    space = Hom(source + one, target + one)
    together = projection(space, "sum" if source.group.is_finite else "nullspace")(embedded)
    apart = torch.zeros_like(embedded)
    apart[:-1, :-1], apart[:-1, -1], apart[-1, -1] = projection(Hom(source, target))(A), projection(target)(b), 1.0
    return float((together - apart).abs().max())


def affine_examples() -> list[tuple[Representation, Representation]]:
    """Return sources and targets of affine maps: images, graphs and their nodes, vectors and tensors of space."""
    turns, both, nodes = pixels(Cyclic(4), 4), pixels(motions(4), 4), natural(Symmetric(5))
    space = vectors(SpecialOrthogonal(3))
    return [(turns, turns), (both, both + both), (nodes * nodes, nodes), (nodes, nodes * nodes), (space, space * space)]


@dataclass(frozen=True)
class LinearDigits:
    """Accuracy on test digits after 0 to 3 quarter turns of three linear classifiers."""

    free: list[float]
    projected: list[float]
    trained_inside: list[float]


def linear_digits(seed: int) -> LinearDigits:
    """Train logistic regression on upright digits: freely, projected onto C_4-invariant maps afterwards, and inside E.

    Parameters
    ----------
    seed
        Seed of the split into training and test digits.
    """
    from sklearn.linear_model import LogisticRegression

    data, turns = digits(seed=seed), pixels(Cyclic(4), 8)
    space = Hom(turns, trivial(turns.group, 10))
    orbits = projection(turns)
    free = LogisticRegression(C=1.0, max_iter=2000).fit(data.train_x.numpy(), data.train_y.numpy())
    inside = LogisticRegression(C=1.0, max_iter=2000).fit(
        orbits.coordinates(data.train_x).numpy(), data.train_y.numpy()
    )
    W, bias = torch.from_numpy(free.coef_), torch.from_numpy(free.intercept_)
    invariant = projection(space)(W)
    views = [turns.apply(torch.tensor([k]), data.test_x) for k in range(4)]

    def accuracy(predict: Callable[[Tensor], Tensor]) -> list[float]:
        return [float((predict(view) == data.test_y).double().mean()) for view in views]

    return LinearDigits(
        accuracy(lambda v: (v @ W.T + bias).argmax(-1)),
        accuracy(lambda v: (v @ invariant.T + bias).argmax(-1)),
        accuracy(lambda v: torch.from_numpy(inside.predict(orbits.coordinates(v).numpy()))),
    )


def denoising_errors(
    counts: Sequence[int], seed: int, noise: float = 0.3, size: int = 6, ridge: float = 1e-3
) -> dict[str, np.ndarray]:
    """Fit a linear denoiser on few patches of a colour photograph, project it, and test it on another photograph.

    Patches of the cat are corrupted by Gaussian noise; A minimises the squared error of A·noisy against clean patches
    with a small ridge penalty. A is then projected onto maps equivariant under D_4 (a symmetry that photographs nearly
    have) and under cyclic shifts (which patches do not have: their borders do not match). Errors are mean squared
    errors per pixel on patches of the coffee cup.

    Parameters
    ----------
    counts
        Numbers of training patches.
    seed
        Seed of patches and noise.
    noise
        Standard deviation of the noise; grey values lie in [0, 1].
    size
        Side of the patches.
    ridge
        Ridge penalty relative to the number of patches.
    """
    check_float("noise", noise, minimum=0.0)
    generator = seeded(seed)
    square, shifts = pixels(Dihedral(4), size), pixels(translations(size), size)
    maps = {"free": lambda A: A, "projected, D4": projection(Hom(square, square))}
    maps["projected, cyclic shifts"] = projection(Hom(shifts, shifts))
    train = _patches("chelsea", max(counts), size, generator)
    test = _patches("coffee", 4000, size, generator)
    noisy, noisy_test = (p + noise * torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in (train, test))
    errors: dict[str, list[float]] = {name: [] for name in maps}
    for n in counts:
        x, y = noisy[:n], train[:n]
        gram = x.T @ x + ridge * n * torch.eye(size**2, dtype=x.dtype)
        A = torch.linalg.solve(gram, x.T @ y).T
        for name, project in maps.items():
            errors[name].append(float((noisy_test @ project(A).T - test).square().mean()))
    return {name: np.array(values) for name, values in errors.items()}


def _patches(name: str, count: int, size: int, generator: torch.Generator) -> Tensor:
    """Return random patches of single colour channels, each with its mean removed, shape ``(count, size²)``."""
    check_int("count", count)
    image = photograph(name, 256)
    row, column = torch.randint(256 - size, (2, count), generator=generator)
    channel = torch.randint(3, (count,), generator=generator)
    offset = torch.arange(size)
    patch = image[row[:, None, None] + offset[:, None], column[:, None, None] + offset, channel[:, None, None]]
    return (patch - patch.mean((1, 2), keepdim=True)).flatten(1)
