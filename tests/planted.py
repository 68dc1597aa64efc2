"""Networks with one fault each, and sound ones: what an audit has to find, and what it must leave alone.

``KNOWN`` were there when the rules were written; ``LATER`` were written after the rules were fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Case(NamedTuple):
    """A model, the question, and the answer: places that are right, and causes that are right."""

    model: Any
    group: Any
    action_in: Any
    action_out: Any
    inputs: Any
    places: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class Lift(nn.Module):
    """Every filter in four poses: (n, i, s, s) -> (n, 4o, s, s)."""

    def __init__(self, i: int, o: int, size: int = 3, **settings: Any) -> None:
        super().__init__()
        self.w, self.settings = nn.Parameter(torch.randn(o, i, size, size) / size), settings

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(
            x, torch.stack([self.w.rot90(k, (2, 3)) for k in range(4)], 1).flatten(0, 1), **self.settings
        )


class GroupConv(nn.Module):
    """Maps of four poses to maps of four poses; ``wrong`` leaves the poses of the filters in place."""

    def __init__(
        self, i: int, o: int, size: int = 3, wrong: bool = False, transposed: bool = False, **settings: Any
    ) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(o, i, 4, size, size) / (2 * size))
        self.wrong, self.transposed, self.settings = wrong, transposed, settings

    def forward(self, x: Tensor) -> Tensor:
        poses = [(self.w if self.wrong else self.w.roll(k, 2)).rot90(k, (3, 4)) for k in range(4)]
        w = torch.stack(poses, 1).flatten(2, 3).flatten(0, 1)
        if self.transposed:
            return functional.conv_transpose2d(x, w.transpose(0, 1), **self.settings)
        return functional.conv2d(x, w, **self.settings)


class Pool(nn.Module):
    """The mean over poses and places, then a linear layer."""

    def __init__(self, channels: int, classes: int = 5) -> None:
        super().__init__()
        self.out = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.unflatten(1, (-1, 4)).mean((2, 3, 4)))


class Do(nn.Module):
    """A module made of a function of its parts and inputs."""

    def __init__(self, function: Callable, *parts: Any) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList([p for p in parts if isinstance(p, nn.Module)])
        self.numbers = nn.ParameterList([nn.Parameter(p) for p in parts if isinstance(p, Tensor)])

    def forward(self, *x: Tensor) -> Any:
        return self.function(self, *x)


def planar(*middle: nn.Module, channels: int = 3) -> nn.Module:
    return nn.Sequential(Lift(1, 3, padding=1), nn.ReLU(), *middle, nn.ReLU(), Pool(channels))


def mlp(i: int, o: int, hidden: int = 12) -> nn.Module:
    return nn.Sequential(nn.Linear(i, hidden), nn.SiLU(), nn.Linear(hidden, o))


def spread(module: nn.Module) -> nn.Module:
    """A norm as training leaves it: gains, biases and statistics of many sizes."""
    for name, t in [*module.named_parameters(), *module.named_buffers()]:
        if t.is_floating_point():
            t.data.uniform_(0.5, 2) if "var" in name or "weight" in name else t.data.normal_()
    return module


class Attention(nn.Module):
    """Self-attention without positions, with a residual."""

    def __init__(self, dim: int, **settings: Any) -> None:
        super().__init__()
        self.qkv, self.settings = nn.Linear(dim, 3 * dim), settings

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + functional.scaled_dot_product_attention(q, k, v, **self.settings)


class Vectors(nn.Module):
    """Vectors of several channels, (n, p, 3, 4) -> (n, 3): mix channels, act, add up."""

    def __init__(self, bias: bool = False, act: str = "gate", norm: nn.Module | None = None) -> None:
        super().__init__()
        self.mix, self.last = nn.Linear(4, 6, bias=bias), nn.Linear(6, 1, bias=False)
        self.act, self.norm = act, norm or nn.Identity()
        if bias:
            nn.init.normal_(self.mix.bias)

    def forward(self, v: Tensor) -> Tensor:
        v = self.norm(self.mix(v))
        if self.act == "gate":
            v = v * torch.sigmoid(v.square().sum(2, keepdim=True))
        elif self.act == "product":
            v = v * v.roll(1, -1)
        else:
            v = getattr(torch, self.act)(v)
        return self.last(v)[..., 0].mean(1)


class Message(nn.Module):
    """One step of an equivariant graph network on all pairs: x + Σ (x_i − x_j) φ(|x_i − x_j|²), (n, p, 3)."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.phi, self.kind = mlp(1, 1), kind

    def forward(self, x: Tensor) -> Tensor:
        apart = x[:, :, None] - x[:, None]
        size = apart.square().sum(-1, keepdim=True)
        if self.kind == "absolute":
            size = apart.abs().sum(-1, keepdim=True)
        weight = self.phi(size)
        return x + (apart * weight).sum(2)


def patches(side: int = 4) -> nn.Module:
    """Patches of a picture as tokens, by filters that are the same in all four poses."""

    def cut(m: Any, x: Tensor) -> Tensor:
        w = torch.stack([m.numbers[0].rot90(k, (2, 3)) for k in range(4)]).mean(0)
        return functional.conv2d(x, w, stride=side).flatten(2).mT

    return Do(cut, torch.randn(8, 1, side, side))


def squares(x: Tensor) -> Tensor:
    """Squared distances by the formula that cancels."""
    n = x.square().sum(-1)
    return n[:, :, None] + n[:, None] - 2 * x @ x.mT


def turn45(k: int, x: Tensor) -> Tensor:
    a = torch.tensor(k * torch.pi / 4, dtype=x.dtype)
    zero = torch.zeros_like(a)
    A = torch.stack([torch.stack([a.cos(), -a.sin(), zero]), torch.stack([a.sin(), a.cos(), zero])])
    grid = functional.affine_grid(A.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def known() -> dict[str, Case]:
    """The faults for which the rules were written; call ``torch.manual_seed`` first."""
    x12, x13 = torch.randn(5, 1, 12, 12), torch.randn(5, 1, 13, 13)
    sets, cloud, fields = torch.randn(6, 5, 4), torch.randn(6, 5, 3), torch.randn(6, 4, 3, 4)
    picture = ("C4", "pixels", "still", x12)
    odd = ("C4", "pixels", "still", x13)
    bag = ("S5", "permute 1", "still", sets)
    space = ("SO3", "rotate -1", "still", cloud)
    vector = ("SO3", "rotate 2", "rotate -1", fields)
    bias = torch.randn(12)

    def biased(m: Any, x: Tensor) -> Tensor:
        return m.parts[0](x) + m.numbers[0].view(1, -1, 1, 1)

    return {
        "stride, even side": Case(planar(GroupConv(3, 3, padding=1, stride=2)), *picture, ("2",), ("stride",)),
        "stride, no padding": Case(planar(GroupConv(3, 3, stride=2)), *picture, ("2",), ("stride",)),
        "even kernel, 'same'": Case(planar(GroupConv(3, 3, 4, padding="same")), *picture, ("2",), ("padding",)),
        "maximum over windows, odd side": Case(
            planar(nn.MaxPool2d(2), GroupConv(3, 3, padding=1)), *odd, ("2",), ("pooling",)
        ),
        "means over windows, ceil": Case(
            planar(nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)), *odd, ("2",), ("pooling",)
        ),
        "output_padding": Case(
            planar(GroupConv(3, 3, transposed=True, stride=2, padding=1, output_padding=1)),
            *picture,
            ("2",),
            ("output padding",),
        ),
        "nearest, odd factor": Case(planar(nn.Upsample(size=17)), *picture, ("2",), ("resize",)),
        "one plain convolution": Case(planar(nn.Conv2d(12, 12, 3, padding=1)), *picture, ("2",), ("weights",)),
        "filters that only turn": Case(planar(GroupConv(3, 3, wrong=True, padding=1)), *picture, ("2",), ("weights",)),
        "bias per copy": Case(
            planar(Do(biased, GroupConv(3, 3, padding=1), bias)), *picture, ("2",), ("constant", "bias")
        ),
        "batch norm, trained": Case(
            planar(GroupConv(3, 3, padding=1), spread(nn.BatchNorm2d(12))).eval(), *picture, ("3",), ("norm",)
        ),
        "batch norm, new": Case(
            planar(GroupConv(3, 3, padding=1), nn.BatchNorm2d(12)).eval(), *picture, ("3",), ("norm",)
        ),
        "dropout, training": Case(planar(nn.Dropout(0.3)).train(), *picture, ("2",), ("training mode",)),
        "flatten and dense": Case(
            nn.Sequential(Lift(1, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(108, 5)),
            *picture,
            ("4",),
            ("weights",),
        ),
        "positions of patches": Case(
            Do(lambda m, x: (m.parts[0](x) + m.numbers[0]).sin().mean(1), patches(), torch.randn(9, 8)),
            *picture,
            ("", "forward"),
            ("constant",),
        ),
        "coordinates as a channel": Case(
            Do(
                lambda m, x: m.parts[0](torch.cat([x, torch.linspace(-1, 1, 12).expand(5, 1, 12, 12)], 1)),
                nn.Sequential(Lift(2, 3), nn.ReLU(), Pool(3)),
            ),
            *picture,
            ("", "forward"),
            ("constant",),
        ),
        "first token read": Case(
            Do(lambda m, x: m.parts[1](x)[:, 0], mlp(4, 2), Attention(4)), *bag, ("", "forward"), ("position",)
        ),
        "causal mask": Case(
            Do(lambda m, x: m.parts[0](x).mean(1), Attention(4, is_causal=True)), *bag, ("parts.0",), ("mask",)
        ),
        "recurrent reader": Case(
            Do(lambda m, x: m.parts[0](x)[0].mean(1), nn.LSTM(4, 3, batch_first=True)), *bag, ("parts.0",), ("order",)
        ),
        "bias on vectors": Case(Vectors(bias=True), *vector, ("mix",), ("bias",)),
        "ReLU on vectors": Case(Vectors(act="relu"), *vector, ("", "forward"), ("nonlinearity",)),
        "layer norm on vectors": Case(Vectors(norm=spread(nn.LayerNorm([3, 6]))), *vector, ("norm",), ("norm",)),
        "coordinates as features": Case(
            Do(lambda m, x: m.parts[0](x).sum(1), mlp(3, 2)), *space, ("parts.0.0",), ("weights",)
        ),
        "output said to be invariant": Case(
            Vectors(), "SO3", "rotate 2", "still", fields, ("output",), ("output action",)
        ),
        "transpose in the test": Case(
            Message(), "SO3", "rotate -1", lambda g, y: y @ g.to(y), cloud, ("output",), ("output action",)
        ),
        "distances that cancel": Case(
            Do(lambda m, x: m.parts[0](squares(x + 1000)[..., None]).sum((1, 2)), mlp(1, 2)),
            "SO3",
            "rotate -1",
            "still",
            cloud,
            ("", "forward"),
            ("precision",),
        ),
        "random frame": Case(
            Do(lambda m, x: m.parts[0](x @ torch.linalg.qr(torch.randn(3, 3))[0].to(x)).sum(1), mlp(3, 2)),
            *space,
            ("", "forward"),
            ("random",),
        ),
        "turns between pixels": Case(planar(), [1, 3, 5], turn45, "still", x12, ("action",), ("inexact action",)),
        "zero padding under shifts": Case(
            nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            "Z",
            "shift",
            "still",
            x12,
            ("0",),
            ("padding",),
        ),
        "window of two under shifts": Case(
            nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            ),
            "Z",
            "shift",
            "still",
            x12,
            ("2",),
            ("pooling", "stride"),
        ),
    }


def sound() -> dict[str, Case]:
    """Models that are equivariant: of the book, of e3nn, of torch, by hand."""
    from e3nn import o3

    from lib.gans.planar_convolution import PlanarConv2d

    x12, sets, cloud = torch.randn(5, 1, 12, 12), torch.randn(6, 5, 4), torch.randn(6, 5, 3)
    irreps = o3.Irreps("4x0e+4x1o+2x2e")

    def spherical(m: Any, x: Tensor) -> Tensor:
        """Numbers from distances and harmonics: a tensor product, a gate of numbers, its vectors."""
        far = x - x.mean(1, keepdim=True)
        sh = o3.spherical_harmonics([0, 1, 2], far, normalize=False)
        return m.parts[1](m.parts[0](sh, sh)).mean(1)

    product = o3.FullyConnectedTensorProduct("0e+1o+2e", "0e+1o+2e", irreps)
    lift, second = PlanarConv2d(1, 2, "p4m", source="plane"), PlanarConv2d(2, 2, "p4m")
    book = nn.Sequential(
        lift, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Unflatten(1, (2, 8))
    )
    book = Do(lambda m, x: m.parts[0](x).mean(-1), book)
    return {
        "group convolutions by hand": Case(planar(GroupConv(3, 3, padding=1)), "C4", "pixels", "still", x12),
        "blocks of means": Case(planar(nn.AvgPool2d(2), GroupConv(3, 3, padding=1)), "C4", "pixels", "still", x12),
        "the book's layers": Case(book, "D4", "pixels", "still", x12),
        "deep set": Case(
            Do(lambda m, x: m.parts[1](m.parts[0](x).sum(1)), mlp(4, 8), mlp(8, 3)), "S5", "permute 1", "still", sets
        ),
        "attention, torch.nn": Case(
            Do(lambda m, x: m.parts[0](x), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)).eval(),
            "S5",
            "permute 1",
            "permute 1",
            sets,
        ),
        "gated vectors": Case(Vectors(), "O3", "rotate 2", "rotate -1", torch.randn(6, 4, 3, 4)),
        "messages between points": Case(Message(), "O3", "rotate -1", "rotate -1", cloud),
        "e3nn, tensor product": Case(
            Do(spherical, product, o3.Linear(irreps, "1x1o")), "O3", "rotate -1", "rotate -1", cloud
        ),
        "circular convolutions": Case(
            nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
                nn.ReLU(),
                nn.Conv2d(4, 2, 5, padding=2, padding_mode="circular"),
            ),
            "Z",
            "shift",
            "shift",
            x12,
        ),
        "cyclic 1-D convolution": Case(
            nn.Sequential(nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), nn.GELU()),
            "C7",
            "permute 2",
            "permute 2",
            torch.randn(5, 4, 7),
        ),
        "patches and attention": Case(
            Do(lambda m, x: m.parts[1](m.parts[0](x)).mean(1), patches(), Attention(8)), "C4", "pixels", "still", x12
        ),
    }


class Encoder(nn.Module):
    """A small transformer on tokens, with whatever is done before and after it."""

    def __init__(self, before: Callable, after: Callable, **settings: Any) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
        self.before, self.after, self.settings = before, after, settings
        self.table = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.body(self.before(self, x), **self.settings))


def later() -> dict[str, Case]:
    """Faults that were written when the rules were fixed, and not looked at before."""
    x12, x14, x9 = torch.randn(5, 1, 12, 12), torch.randn(5, 1, 14, 14), torch.randn(5, 1, 9, 9)
    sets, cloud, fields = torch.randn(6, 5, 4), torch.randn(6, 5, 3), torch.randn(6, 4, 3, 4)
    picture, bag = ("C4", "pixels", "still", x12), ("S5", "permute 1", "still", sets)
    mask = torch.full((5, 5), -torch.inf).triu(1)

    def corner(m: Any, x: Tensor) -> Tensor:
        return m.parts[1](m.parts[0](x)[:, :, :6, :6])

    def padded(m: Any, x: Tensor) -> Tensor:
        return m.parts[0](functional.pad(x, (0, 1, 0, 1)))

    def near(m: Any, x: Tensor) -> Tensor:
        """The sum over the first two neighbours in the list that are near enough."""
        inside = ((x[:, :, None] - x[:, None]).square().sum(-1) < 4).to(x)
        first = inside * (inside.cumsum(-1) <= 2)
        return m.parts[0]((first * squares(x))[..., None]).sum((1, 2))

    def crossed(m: Any, x: Tensor) -> Tensor:
        v = x - x.mean(1, keepdim=True)
        return (torch.linalg.cross(v, v.roll(1, -1)) * m.numbers[0]).sum(1)

    wide = nn.MultiheadAttention(4, 2, batch_first=True)

    def autocast(m: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.parts[0](x).float()

    def noisy(m: Any, x: Tensor) -> Tensor:
        return m.parts[0](x + 0.1 * torch.randn_like(x))

    def shifted(m: Any, x: Tensor) -> Tensor:
        x -= x.mean()
        return m.parts[0](x)

    def branch(m: Any, x: Tensor) -> Tensor:
        return m.parts[0](x) if float(x[0, 0, 0, 0]) > float(x[0, 0, -1, 0]) else m.parts[0](x).relu()

    def cell(m: Any, x: Tensor, c: Tensor) -> Tensor:
        return m.parts[0]((x[:, :, None] - x[:, None] + c[:, None, None, 0]).square().sum(-1, keepdim=True)).sum((1, 2))

    return {
        "dilated kernel and stride": Case(
            planar(GroupConv(3, 3, padding=2, stride=3, dilation=2)), *picture, ("2",), ("stride",)
        ),
        "window of three on fourteen": Case(
            planar(nn.AvgPool2d(3), GroupConv(3, 3, padding=1)), "C4", "pixels", "still", x14, ("2",), ("pooling",)
        ),
        "a stride under mirrors": Case(
            nn.Sequential(nn.Conv2d(1, 1, 1, stride=2), nn.Flatten(2), nn.Linear(36, 1)).requires_grad_(False),
            "D1",
            "pixels",
            "still",
            x12,
            ("0",),
            ("stride",),
        ),
        "one corner cut out": Case(
            Do(corner, Lift(1, 3, padding=1), Pool(3)), *picture, ("", "forward"), ("position",)
        ),
        "a border on one side": Case(Do(padded, planar()), *picture, ("", "forward"), ("padding",)),
        "depthwise, plain": Case(
            planar(nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)), *picture, ("2",), ("weights",)
        ),
        "plain first layer": Case(
            nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), GroupConv(3, 3, padding=1), Pool(3)),
            *picture,
            ("0",),
            ("weights",),
        ),
        "group norm, gains": Case(
            planar(GroupConv(3, 3, padding=1), spread(nn.GroupNorm(1, 12))), *picture, ("3",), ("norm",)
        ),
        "instance norm, gains": Case(
            planar(GroupConv(3, 3, padding=1), spread(nn.InstanceNorm2d(12, affine=True))), *picture, ("3",), ("norm",)
        ),
        "batch norm, training": Case(
            planar(GroupConv(3, 3, padding=1), nn.BatchNorm2d(12)).train(), *picture, ("3",), ("training mode",)
        ),
        "bilinear with corners": Case(
            planar(nn.Upsample(scale_factor=1.5, mode="nearest")), "C4", "pixels", "still", x9, ("2",), ("resize",)
        ),
        "poses mixed by a dense layer": Case(
            nn.Sequential(Lift(1, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)),
            *picture,
            ("4",),
            ("weights",),
        ),
        "a position for each token": Case(
            Encoder(lambda m, x: x + m.table, lambda x: x.mean(1)).eval(), *bag, ("", "forward"), ("constant",)
        ),
        "the last token read": Case(
            Encoder(lambda m, x: x, lambda x: x[:, -1]).eval(), *bag, ("", "forward"), ("position",)
        ),
        "causal, torch.nn": Case(
            Do(lambda m, x: m.parts[0](x, x, x, attn_mask=mask.to(x))[0].mean(1), wide), *bag, ("parts.0",), ("mask",)
        ),
        "convolution along a set": Case(
            Do(lambda m, x: m.parts[0](x.mT).mean(-1), nn.Conv1d(4, 3, 3, padding=1)), *bag, ("parts.0",), ("order",)
        ),
        "running sum": Case(
            Do(lambda m, x: m.parts[0](x.cumsum(1)).sum(1), mlp(4, 3)), *bag, ("", "forward"), ("order",)
        ),
        "first neighbours in the list": Case(
            Do(near, mlp(1, 2)), "S5", "permute 1", "still", cloud, ("", "forward"), ("order",)
        ),
        "a set as one long vector": Case(nn.Sequential(nn.Flatten(), nn.Linear(20, 3)), *bag, ("1",), ("weights",)),
        "tanh on vectors": Case(
            Vectors(act="tanh"), "SO3", "rotate 2", "rotate -1", fields, ("", "forward"), ("nonlinearity",)
        ),
        "vectors multiplied": Case(
            Vectors(act="product"), "SO3", "rotate 2", "rotate -1", fields, ("", "forward"), ("nonlinearity",)
        ),
        "sum of absolute values": Case(
            Message("absolute"), "SO3", "rotate -1", "rotate -1", cloud, ("", "forward"), ("nonlinearity",)
        ),
        "half precision": Case(
            Do(autocast, Vectors()), "SO3", "rotate 2", "rotate -1", fields, ("parts.0.mix",), ("precision",)
        ),
        "noise in forward": Case(Do(noisy, planar()), *picture, ("", "forward"), ("random",)),
        "writes into its input": Case(Do(shifted, planar()), *picture, ("", "forward"), ("writes its input",)),
        "another path": Case(
            Do(branch, planar()), *picture, ("", "forward", "parts.0", "parts.0.3", "parts.0.3.out"), ("other path",)
        ),
        "the cell forgotten": Case(
            Do(cell, mlp(1, 2)),
            "SO3",
            ["rotate -1", "still"],
            "still",
            (cloud, torch.randn(6, 3, 3)),
            ("input 1",),
            ("input still",),
        ),
        "a stride under shifts": Case(
            nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1, stride=2, padding_mode="circular"),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            ),
            "Z",
            "shift",
            "still",
            x12,
            ("0",),
            ("stride",),
        ),
    }


def later_sound() -> dict[str, Case]:
    """Sound models that were written when the rules were fixed."""
    from e3nn import o3

    from lib.gans.planar_convolution import PlanarConv2d

    sets, cloud = torch.randn(6, 5, 4), torch.randn(6, 5, 3)
    p4 = nn.Sequential(
        PlanarConv2d(1, 2, "p4", source="plane"), nn.LeakyReLU(), PlanarConv2d(2, 1, "p4", target="plane")
    )

    def norms(m: Any, x: Tensor) -> Tensor:
        return m.parts[0]((x - x.mean(1, keepdim=True)).norm(dim=-1, keepdim=True)).sum(1)

    return {
        "the book's, to the plane": Case(p4, "C4", "pixels", "pixels", torch.randn(5, 1, 11, 11)),
        "maximum over odd windows": Case(
            planar(nn.MaxPool2d(3, 3), GroupConv(3, 3, padding=1)), "C4", "pixels", "still", torch.randn(5, 1, 12, 12)
        ),
        "stride on an odd side": Case(
            planar(GroupConv(3, 3, padding=1, stride=2)), "C4", "pixels", "still", torch.randn(5, 1, 13, 13)
        ),
        "multi-head attention": Case(
            Do(lambda m, x: m.parts[0](x, x, x)[0], nn.MultiheadAttention(4, 2, batch_first=True)),
            "S5",
            "permute 1",
            "permute 1",
            sets,
        ),
        "sorted": Case(
            Do(lambda m, x: m.parts[0](x.sort(1).values.flatten(1)), mlp(20, 2)), "S5", "permute 1", "still", sets
        ),
        "distances from the middle": Case(Do(norms, mlp(1, 3)), "O3", "rotate -1", "still", cloud),
        "e3nn, harmonics": Case(
            Do(
                lambda m, x: m.parts[0](o3.spherical_harmonics([1, 2], x, normalize=True)).sum(1),
                o3.Linear("1o+2e", "2x1o"),
            ),
            "O3",
            "rotate -1",
            lambda g, y: torch.cat([y[:, :3] @ g.to(y).mT, y[:, 3:] @ g.to(y).mT], 1),
            cloud[..., [1, 2, 0]],
        ),
        "turns in the plane": Case(
            Do(lambda m, x: x * m.parts[0](x.square().sum(-1, keepdim=True)), mlp(1, 1)),
            "C8",
            "rotate -1",
            "rotate -1",
            torch.randn(6, 5, 2),
        ),
    }
