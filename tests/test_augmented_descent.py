"""The batched trainer against plain loops, reduced coordinates against projection."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lib.augmentation.augmented_descent import (
    EQUIVARIANT,
    NOMINAL,
    Task,
    augmented,
    gradient,
    run_generators,
    train,
    views,
)
from lib.augmentation.networks import (
    IMAGE_GROUPS,
    classifier_network,
    graph_network,
    mask_network,
)
from lib.augmentation.sampling_laws import Law, haar
from lib.symmetry.groups import Cyclic
from lib.symmetry.haar import HaarSum


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_task(kind: str, samples: int = 12, batch: int = 4) -> Task:
    generator = torch.Generator().manual_seed(5)
    if kind == "perm":
        x = torch.rand(samples, 1, 16, generator=generator, dtype=torch.float64)
        return Task(graph_network(4, 3, 5, 4), x, torch.randint(2, (samples,), generator=generator), batch)
    x = torch.rand(samples, 1, 16, generator=generator, dtype=torch.float64)
    if kind == "rot":
        masks = torch.randint(2, (samples, 2, 16), generator=generator).double()
        return Task(mask_network(4, (3, 2)), x, masks, batch)
    return Task(classifier_network(kind, 4, 3, 4), x, torch.randint(4, (samples,), generator=generator), batch)


KINDS = ("perm", "rot", *IMAGE_GROUPS)


def plain_forward(task: Task, maps: list[Tensor], x: Tensor) -> Tensor:
    """One network, one sample at a time, written out: maps have shape (out, W, in, V), x (in, V)."""
    h, architecture = x - architecture_centre(task), task.network.architecture
    for i, a in enumerate(maps):
        rows = []
        for o in range(a.shape[0]):
            rows.append(sum(a[o, :, c, :] @ h[c] for c in range(a.shape[2])))
        h = torch.stack(rows)
        h = torch.where(h > 0, h, 0.01 * h) if architecture.activations[i] == "leaky" else h
        if architecture.normalized[i]:
            mean = h.mean(0, keepdim=True)
            h = (h - mean) / ((h - mean).square().mean(0, keepdim=True) + 1e-5).sqrt()
    return h


def architecture_centre(task: Task) -> float:
    return task.network.architecture.centre


def plain_loss(task: Task, maps: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    out = plain_forward(task, maps, x)
    if task.network.architecture.loss == "classes":
        p = out[:, 0].exp() / out[:, 0].exp().sum()
        return -p[y].log()
    p = 1 / (1 + (-out).exp())
    y = y.double()
    cross = -(y * p.log() + (1 - y) * (1 - p).log())
    return cross[0, 0] if task.network.architecture.loss == "binary" else cross[0].mean() + cross[1].mean()


def plain_epoch(task: Task, maps: list[Tensor], elements: Tensor | None, rate: float) -> list[Tensor]:
    """A full-batch step of one run by loops over passes, batches, samples; elements (passes, batches, ...) or None."""
    leaves = [m.clone().requires_grad_(True) for m in maps]
    spaces = task.network.architecture.spaces
    passes = 1 if elements is None else len(elements)
    for p in range(passes):
        for b in range(task.batches):
            total = 0.0
            for i in range(b * task.batch, (b + 1) * task.batch):
                x, y = task.inputs[i], task.targets[i]
                if elements is not None:
                    x = (spaces[0].representation.matrix(elements[p, b]) @ x.mT).mT
                    if y.ndim:
                        y = (spaces[-1].representation.matrix(elements[p, b]) @ y.mT).mT
                total = total + plain_loss(task, leaves, x, y) / task.batch
            (total / (task.batches * passes)).backward()
    return [(leaf - rate * leaf.grad).detach() for leaf in leaves]


def sampled_elements(task: Task, law: Law, passes: int, run: int, seed: int, epochs: int) -> list[Tensor]:
    generator = run_generators([run], seed)[0]
    return [law.sample(passes * task.batches, generator).unflatten(0, (passes, task.batches)) for _ in range(epochs)]


@pytest.mark.parametrize("kind", KINDS)
def test_nominal_training_is_the_plain_loop(kind):
    task, epochs, rate = make_task(kind), 2, 0.05
    start = task.network.start(2, 3, torch.float64)
    history = train(task, start, NOMINAL, epochs, rate, part=5)
    for run in range(2):
        first = [a[run] for a in task.network.embed(start)]
        maps = first
        for _ in range(epochs):
            maps = plain_epoch(task, maps, None, rate)
        moved = torch.stack([(a - b).norm() for a, b in zip(maps, first, strict=True)])
        assert torch.allclose(history.moved[-1, run], moved, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("kind", ["perm", "rot", "translations", "motions"])
@pytest.mark.parametrize("runs_at_once", [1, 2])
def test_sampled_augmentation_is_the_plain_loop(kind, runs_at_once):
    """Law larger than the number of passes: elements are drawn one by one, the same as in the loop."""
    task, passes, epochs, rate, seed = make_task(kind), 3, 2, 0.05, 9
    law, start = haar(task.network.architecture.group), task.network.start(2, 3, torch.float64)
    assert law.support > passes
    history = train(task, start, augmented(law, passes), epochs, rate, seed=seed, runs_at_once=runs_at_once, part=7)
    projection = task.network
    for run in range(2):
        first = [a[run] for a in task.network.embed(start)]
        maps = first
        for elements in sampled_elements(task, law, passes, run, seed, epochs):
            maps = plain_epoch(task, maps, elements, rate)
        delta = [a - b for a, b in zip(maps, first, strict=True)]
        moved = torch.stack([d.norm() for d in delta])
        off = torch.stack(
            [(d - p[0]).norm() for d, p in zip(delta, projection.project([d[None] for d in delta]), strict=True)]
        )
        assert torch.allclose(history.moved[-1, run], moved, rtol=1e-9, atol=1e-13)
        assert torch.allclose(history.off[-1, run], off, rtol=1e-8, atol=1e-13)


def test_counting_elements_gives_the_gradient_of_the_passes():
    """With fewer elements than passes each element is weighted; the gradient equals that of single passes."""
    task, passes = make_task("rot"), 7
    network, law = task.network, haar(Cyclic(4))
    maps = network.embed(network.start(2, 0, torch.float64))
    counted = gradient(task, maps, views(task, augmented(law, passes), run_generators(range(2), 1), 5))
    for run, generator in enumerate(run_generators(range(2), 1)):
        draws = torch.multinomial(law.listed()[1].expand(task.batches, -1), passes, True, generator=generator)
        singles = [m[run : run + 1] for m in maps]
        total = [torch.zeros_like(m) for m in singles]
        for b in range(task.batches):
            for k in draws[b].tolist():
                one = Law("one", law.group, ((torch.tensor([[k]]), torch.ones(1, dtype=torch.float64)),))
                part = slice(b * task.batch, (b + 1) * task.batch)
                sub = Task(network, task.inputs[part], task.targets[part], task.batch)
                grads = gradient(sub, singles, views(sub, augmented(one), [], 99))[1]
                total = [t + g / (passes * task.batches) for t, g in zip(total, grads, strict=True)]
        for t, g in zip(total, counted[1], strict=True):
            assert torch.allclose(t[0], g[run], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_projected_descent_is_descent_in_reduced_coordinates(kind):
    """Gradients through the coordinates of E are orbit sums; divided by orbit sizes they are projected steps."""
    task, rate = make_task(kind), 0.05
    network, start = task.network, task.network.start(2, 1, torch.float64)
    history = train(task, start, EQUIVARIANT, 3, rate)
    theta = start
    for _ in range(3):
        sums = gradient(task, theta, views(task, NOMINAL, [], 99))[1]
        steps = [g / layer.mean.sizes for g, layer in zip(sums, network.layers, strict=True)]
        theta = [t - rate * g for t, g in zip(theta, steps, strict=True)]
    moves = zip(network.layers, theta, start, strict=True)
    moved = torch.stack([layer.reduced_norm(a - b) for layer, a, b in moves], 1)
    assert torch.allclose(history.moved[-1], moved, rtol=1e-9)
    assert float(history.off.max()) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_projection_is_the_group_average(kind):
    network = make_task(kind).network
    generator = torch.Generator().manual_seed(0)
    for layer in network.layers:
        maps = torch.randn(layer.shape(2), generator=generator, dtype=torch.float64)
        blocks = HaarSum(layer.mean.representation)(maps.transpose(2, 3)).transpose(2, 3)
        assert torch.allclose(layer.embed(layer.coordinates(maps)), blocks, atol=1e-12)
        assert torch.allclose(layer.off(maps), (maps - blocks).flatten(1).norm(dim=1), atol=1e-12)
        inside = layer.embed(layer.coordinates(maps))
        assert float(layer.off(inside).max()) == 0.0
        assert torch.allclose(layer.reduced_norm(layer.coordinates(maps)), inside.flatten(1).norm(dim=1))


@pytest.mark.parametrize("kind", KINDS)
def test_equivariant_networks_are_equivariant(kind):
    task = make_task(kind)
    network, group = task.network, task.network.architecture.group
    theta = network.start(2, 0, torch.float64)
    spaces = network.architecture.spaces
    g = group.sample(1, torch.Generator().manual_seed(2))[0]
    x = task.inputs[None]
    moved = spaces[0].representation.apply(g, x)
    expected = spaces[-1].representation.apply(g, network(theta, x))
    assert torch.allclose(network(theta, moved), expected, atol=1e-10)
    assert torch.allclose(network(theta, x), network(network.embed(theta), x), atol=1e-10)


def test_exact_augmentation_stays_in_e_and_moves_as_the_equivariant_network():
    task = make_task("rot")
    start = task.network.start(3, 0, torch.float64)
    exact = train(task, start, augmented(haar(Cyclic(4))), 10, 0.02)
    equivariant = train(task, start, EQUIVARIANT, 10, 0.02)
    assert float(exact.drift.max()) < 1e-13
    assert torch.allclose(exact.moved, equivariant.moved, rtol=1e-9, atol=1e-13)
    skewed = Law(
        "skewed", Cyclic(4), ((torch.arange(4)[:, None], torch.tensor([0.4, 0.4, 0.2, 0.0], dtype=torch.float64)),)
    )
    assert float(train(task, start, augmented(skewed), 10, 0.02).drift[-1].min()) > 1e-4


def test_small_drifts_survive_single_precision():
    """Displacements are stored, not layers: a drift 1e-9 of the layers' size comes out right in float32."""
    task = make_task("rot")
    start = task.network.start(2, 0, torch.float64)
    fine = train(task, start, NOMINAL, 3, 1e-9)
    coarse = train(task.to(torch.float32), [s.float() for s in start], NOMINAL, 3, 1e-9)
    assert torch.allclose(coarse.drift[-1], fine.drift[-1], rtol=1e-3)


def test_runs_do_not_depend_on_company_or_parts():
    task = make_task("translations")
    law = augmented(haar(task.network.architecture.group), 3)
    start = task.network.start(3, 4, torch.float64)
    together = train(task, start, law, 2, 0.05, seed=2)
    alone = train(task, task.network.start(1, 4, torch.float64, first_run=2), law, 2, 0.05, seed=2, first_run=2, part=4)
    assert torch.allclose(together.moved[:, 2:], alone.moved, rtol=1e-10, atol=1e-14)


def test_start_is_a_projected_gaussian():
    """Orbit means of a Gaussian matrix of standard deviation s have variance s² / |orbit|."""
    network = graph_network(4, 2, 3, 2)
    layer, theta = network.layers[0], network.start(4000, 0, torch.float64)[0]
    measured = theta.square().mean((0, 1, 2)) * layer.mean.sizes * 16 * 2
    assert torch.allclose(measured, torch.ones(layer.rank).double(), atol=5 * (2 / 8000) ** 0.5)


def test_bad_arguments_are_refused():
    task = make_task("rot")
    with pytest.raises(ValueError, match="batch must divide"):
        Task(task.network, task.inputs, task.targets, 5)
    with pytest.raises(TypeError, match="inputs must be of a floating-point"):
        Task(task.network, task.inputs.long(), task.targets, 4)
    with pytest.raises(ValueError, match=r"targets must lie in \[0, 1\]"):
        Task(task.network, task.inputs, 2 + task.targets, 4)
    with pytest.raises(ValueError, match="batch must divide"):
        Task(task.network, task.inputs[:0], task.targets[:0], 1)
    with pytest.raises(ValueError, match="cannot be listed"):
        next(views(task, augmented(Law("Haar", Cyclic(4), ())), [], 5))
    for elements, weights, message in (
        (4, torch.ones(4), "sum 1"),
        (4, torch.full((4,), float("nan")), "weights must be finite"),
        (5, torch.full((5,), 0.2), "elements must hold elements of C4"),
    ):
        with pytest.raises(ValueError, match=message):
            Law("wrong", Cyclic(4), ((torch.arange(elements)[:, None], weights.double()),))
