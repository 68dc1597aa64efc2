"""Timings of the trainer of lib/augmentation/augmented_descent.py, both sides of every comparison in one run.

``python benchmarks/bench_dynamics.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick`` takes
fewer runs and images. Times are processor time. The other side is written out here: one network at a time, mini-
batches of the published sizes, dense layers.
"""

from __future__ import annotations

import argparse
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, layer_norm, leaky_relu

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.augmentation.augmented_descent import EQUIVARIANT, NOMINAL, Task, augmented, train
from lib.augmentation.networks import graph_network, mask_network
from lib.augmentation.sampling_laws import haar
from lib.augmentation.synthetic import block_graphs, simple_shapes


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def graph_task(scale: str) -> Task:
    """Return Perm at the sizes of the paper, or small."""
    if scale == "paper":
        return Task(graph_network(10, 32, 64, 32), *block_graphs(1000, 10, across=0.05), 200).to(torch.float32)
    return Task(graph_network(6, 8, 16, 8), *block_graphs(100, 6, across=0.2), 20).to(torch.float32)


class GraphFiles(torch.utils.data.Dataset):
    """Graphs and labels, one file each, permuted one by one when loaded: the published arrangement."""

    def __init__(self, folder: Path, task: Task, permuted: bool) -> None:
        self.folder, self.count, self.permuted = folder, len(task.inputs), permuted
        self.nodes = round(task.inputs.shape[-1] ** 0.5)
        for i, (x, y) in enumerate(zip(task.inputs, task.targets, strict=True)):
            np.save(folder / f"graph{i}.npy", x.reshape(self.nodes, self.nodes).double().numpy())
            np.save(folder / f"label{i}.npy", np.array(float(y)))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        graph, label = np.load(self.folder / f"graph{i}.npy"), np.load(self.folder / f"label{i}.npy")
        if self.permuted:
            order = torch.randperm(self.nodes).numpy()
            graph = graph[:, order][order]
        return torch.tensor(graph, dtype=torch.float32).reshape(1, -1), torch.tensor(label, dtype=torch.float32)


def in_memory(task: Task, permuted: bool) -> Iterator[tuple[Tensor, Tensor]]:
    nodes = round(task.inputs.shape[-1] ** 0.5)
    for x, y in zip(task.inputs.split(task.batch), task.targets.split(task.batch), strict=True):
        if permuted:
            order = torch.randperm(nodes)
            x = x.reshape(-1, 1, nodes, nodes)[..., order, :][..., order].reshape(x.shape)
        yield x, y.float()


def plain_graph_loss(layers: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    h = leaky_relu(torch.einsum("oiwv,biv->bow", layers[0], x - 0.5), 0.01)
    h = leaky_relu(torch.einsum("oiwv,biv->bow", layers[1], h), 0.01).flatten(1)
    h = leaky_relu(layer_norm(h, (h.shape[1],)) @ layers[2].T, 0.01)
    return binary_cross_entropy(torch.sigmoid(h @ layers[3].T).flatten(), y)


def plain_step(layers: list[Tensor], batches: Iterator, count: int, project: Callable | None = None) -> None:
    """Accumulate the gradient over batches and take a step, with the gradient projected if asked."""
    for x, y in batches:
        (plain_graph_loss(layers, x, y) / count).backward()
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer -= 1e-4 * (project(i, layer.grad) if project else layer.grad)
            layer.grad = None


def plain_graph_epoch(task: Task, layers: list[Tensor], batches: Callable[[bool], Iterator]) -> None:
    """Equivariant, 25 × augmented and nominal passes of one run."""
    projections = [layer.mean for layer in task.network.layers]

    def project(i: int, grad: Tensor) -> Tensor:
        if i > 1:  # the head: every map is equivariant
            return grad
        return projections[i].embed(projections[i].coordinates(grad.flatten(-2))).reshape(grad.shape)

    plain_step(layers, batches(False), task.batches, project)
    plain_step(layers, (pair for _ in range(25) for pair in batches(True)), 25 * task.batches)
    plain_step(layers, batches(False), task.batches)


def dense_layers(task: Task) -> list[Tensor]:
    maps = task.network.embed(task.network.start(1))
    shaped = [m[0].transpose(1, 2).contiguous() for m in maps]
    return [m.requires_grad_(True) for m in (*shaped[:2], *(m.reshape(m.shape[:2]).contiguous() for m in shaped[2:]))]


def graph_operations(task: Task) -> float:
    """Multiplications and additions of 27 passes of one run: forward, weights, and inputs but for the first layer."""
    first, *rest = (layer.entries for layer in task.network.layers)
    return 27 * len(task.inputs) * 2.0 * (2 * first + 3 * sum(rest))


def peak_rate() -> float:
    """Return the operations per second of one large product of matrices."""
    a, b = torch.randn(1000, 2000), torch.randn(2000, 2000)
    return 2 * 1000 * 2000 * 2000 / min(seconds(lambda: a @ b) for _ in range(5))


def loops(task: Task) -> tuple[float, float]:
    """Time one run by loops over mini-batches, from files and from memory."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {permuted: GraphFiles(Path(folder), task, permuted) for permuted in (False, True)}

        def from_files(permuted: bool) -> Iterator:
            return iter(torch.utils.data.DataLoader(sets[permuted], batch_size=task.batch))

        files = seconds(lambda: plain_graph_epoch(task, dense_layers(task), from_files))
    return files, seconds(lambda: plain_graph_epoch(task, dense_layers(task), lambda p: in_memory(task, p)))


def graphs(quick: bool) -> list[Row]:
    """Perm: an epoch of Equi + 25 × Aug + Nom, at the paper's sizes and small."""
    rows = []
    for scale, runs, epochs in (("paper", 3 if quick else 30, 1), ("small", 30, 5)):
        task = graph_task(scale)
        section = f"Perm, one epoch of Equi + 25 Aug + Nom, {scale} sizes, per run"
        files, plain = loops(task)
        start, law = task.network.start(runs), haar(task.network.architecture.group)
        plans = (EQUIVARIANT, augmented(law, 25), NOMINAL)
        times = [seconds(partial(train, task, start, how, epochs, 1e-4)) for how in plans]
        ours = sum(times) / runs / epochs
        rows += [
            Row(section, "loop over runs and mini-batches, one file per graph (published arrangement)", files, "s"),
            Row(section, "loop over runs and mini-batches, data in memory", plain, "s"),
            Row(section, f"{runs} runs batched", ours, "s"),
            Row(section, "loop from files: ratio of times", files / ours, "×", "≥ 20 ×", files / ours >= 20),
            Row(section, "loop in memory: ratio of times", plain / ours, "×"),
        ]
        rates = {"loop in memory": graph_operations(task) / plain, "batched": graph_operations(task) / ours}
        rates["one large matrix product"] = peak_rate()
        rows += [Row(section, f"arithmetic, {what}", rate / 1e9, "Gflop/s") for what, rate in rates.items()]
    return rows


def memory(quick: bool) -> list[Row]:
    """Peak memory of the process after one epoch of Perm with all runs; of Rot with as many at once as fit."""
    rows = []
    for panel in ("perm", "rot"):
        shapes = Task(mask_network(14, (32, 32, 16)), *simple_shapes(3000, 14), 25).to(torch.float32)
        task = graph_task("paper") if panel == "perm" else shapes
        part = Task(task.network, task.inputs[: 4 * task.batch], task.targets[: 4 * task.batch], task.batch)
        runs = 2 if panel == "rot" or quick else 30
        for plan in (EQUIVARIANT, augmented(haar(task.network.architecture.group), 4), NOMINAL):
            train(part, task.network.start(runs), plan, 1, 1e-5)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(Row("Peak memory of the process", f"{panel} at the paper's sizes", peak, "GiB", "< 4", peak < 4))
    return rows


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, both sides (default 1)")
    parser.add_argument("--quick", action="store_true", help="fewer runs and images")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = f"{platform.machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}"
    rows = (row for part in (memory, graphs) for row in part(arguments.quick))
    return report("Training dynamics", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
