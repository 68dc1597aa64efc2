"""Timings of the trainer of lib/ensembles/training.py against a loop over networks, both sides in one run.

``python benchmarks/bench_ensembles.py`` prints a table; ``--json PATH`` also writes the numbers, ``--quick`` takes
fewer images and members. Times are processor time. The other side is written out here: one network after another,
ordinary layers, a DataLoader with batches of 32 that turns the images one by one.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import Row, report

from lib.ensembles.training import Network, draw_members, loss_gradient, train_ensemble

BAR = 6.0


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class TurnedImages(torch.utils.data.Dataset):
    """Images and classes; every image is turned by a random multiple of 90° when it is loaded."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        k = int(torch.randint(4, ()))
        return self.images[i].rot90(k, (-2, -1))[None], self.labels[i]


class MaskedConvolution(nn.Conv2d):
    """A 3 × 3 convolution whose filters are multiplied by their support."""

    def __init__(self, inputs: int, outputs: int, mask: Tensor) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight * self.mask, padding=1)


def plain_network(network: Network) -> nn.Module:
    """One member by ordinary layers."""
    c, side, mask = network.channels, network.size // 4, network.mask.float()
    return nn.Sequential(
        *(MaskedConvolution(1, c, mask), nn.AvgPool2d(2), nn.Tanh()),
        *(MaskedConvolution(c, c, mask), nn.AvgPool2d(2), nn.Tanh()),
        *(MaskedConvolution(c, c, mask), nn.Tanh()),
        *(nn.LayerNorm((c, side, side), elementwise_affine=False), nn.Flatten()),
        nn.Linear(c * side * side, network.classes),
    )


def train_plain(network: Network, images: Tensor, labels: Tensor) -> None:
    """One epoch of one member."""
    model = plain_network(network)
    descent = torch.optim.SGD(model.parameters(), 0.01)
    loader = torch.utils.data.DataLoader(TurnedImages(images, labels), batch_size=32, shuffle=True)
    for x, y in loader:
        descent.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        descent.step()


def gradient_difference(network: Network, images: Tensor, labels: Tensor) -> float:
    """Return the largest relative difference of the two sides' gradients, over members and parameters."""
    members, x, y = draw_members(network, 4), images[:32], labels[:32]
    ours, worst = loss_gradient(network, members, x[None], y), 0.0
    for i in range(4):
        model = plain_network(network)
        for parameter, value in zip(model.parameters(), members, strict=True):
            parameter.data.copy_(value[i].reshape(parameter.shape))
        nn.functional.cross_entropy(model(x[:, None]), y).backward()
        for parameter, slope in zip(model.parameters(), ours, strict=True):
            gap = (parameter.grad - slope[i].reshape(parameter.shape)).norm() / parameter.grad.norm()
            worst = max(worst, float(gap))
    return worst


def ensembles(size: int, count: int, members: tuple[int, int]) -> list[Row]:
    """One architecture, members one after the other and together."""
    generator = torch.Generator().manual_seed(0)
    network = Network(size=size)
    images = torch.rand(count, size, size, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    section = f"{count} images of {size} × {size}, plus support, 16 channels, batch 32"
    quarters = torch.stack([images.rot90(k, (-2, -1)) for k in range(4)])
    block, (few, many) = 8 if size > 16 else 32, members

    def loop() -> None:
        for _ in range(few):
            train_plain(network, images, labels)

    plain = seconds(loop) / few
    ours = seconds(lambda: train_ensemble(network, quarters, labels, many, block=block, epochs=1)) / many
    gap = gradient_difference(network, images, labels)
    return [
        Row(section, "loop over members, DataLoader: one epoch of one member", plain, "s"),
        Row(section, "members as groups, convolution and pooling fused: the same", ours, "s"),
        Row(section, "ratio of times", plain / ours, "×", f"≥ {BAR:g} ×", plain / ours >= BAR),
        Row(section, "relative difference of the gradients", gap, "", "≤ 1e-5", gap <= 1e-5),
    ]


def main() -> int:
    """Run everything; the exit status says whether all bars were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer images and members")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{platform.machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}"
    part = 4 if arguments.quick else 1
    sizes = ((8, 1200, (4, 64 // part)), (28, 2000 // part, (2, 8)))
    rows = (row for size in sizes for row in ensembles(*size))
    return report("Ensembles", machine, rows, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
