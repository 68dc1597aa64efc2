"""From the step where a symmetry is lost to its cause, and to what mends it.

Where a step has settings (a stride, a bias, a mask), they are changed one at a time, and up to three together, until
the step is in order: so the cause is not guessed, it is found by experiment. Other operations have a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lib.reader.moves import Group, move
from lib.reader.tape import EXACT, Step, Tape, explain

_ARGUMENTS = {
    "conv1d": "input weight bias stride padding dilation groups",
    "conv_transpose1d": "input weight bias stride padding output_padding groups dilation",
    "linear": "input weight bias",
    "max_pool1d": "input kernel_size stride padding dilation ceil_mode return_indices",
    "avg_pool1d": "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "batch_norm": "input running_mean running_var weight bias training momentum eps",
    "layer_norm": "input normalized_shape weight bias eps",
    "group_norm": "input num_groups weight bias eps",
    "rms_norm": "input normalized_shape weight eps",
    "instance_norm": "input running_mean running_var weight bias use_input_stats momentum eps",
    "interpolate": "input size scale_factor mode align_corners recompute_scale_factor antialias",
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal",
}
MENDS = {
    "stride": "a side for which (side + 2·padding − kernel) is a multiple of the stride, or means over blocks",
    "pooling": "windows that tile the side, or a side for which (side − window) is a multiple of the stride",
    "padding": "pad both sides alike: an odd kernel with padding (kernel − 1)/2, or 'circular' where shifts matter",
    "output padding": "no output_padding: kernel 4, stride 2, padding 1 doubles a side symmetrically",
    "weights": "tie the weights over the group, project them onto equivariant ones, or use a group convolution",
    "bias": "bias=False, or one number for all copies that the group exchanges; none for vectors",
    "norm": "share gains, biases and statistics over what the group exchanges; divide vectors by their lengths",
    "resize": "mode='nearest-exact', or 'bilinear' without align_corners, by whole factors",
    "mask": "no mask, or one that moves with the tokens",
    "nonlinearity": "act on lengths, or multiply by a gate made of numbers that stand still",
    "constant": "leave it out, or make it a function of what moves along (distances, differences)",
    "position": "a sum, a mean or a maximum over all positions instead",
    "order": "nothing that depends on the order: sums, or all neighbours within a radius",
    "layout": "keep the axis that moves apart, and average over it at the end",
    "mixes": "combine only tensors that move alike",
    "random": "draw once and keep it, or average over draws; the same numbers for both inputs",
    "training mode": "call model.eval() before it is used",
    "float32 constants": "compute tables and bases in float64, or register them as buffers",
    "precision": "float64 or float32 there; subtract before squaring; no autocast, no TF32",
    "output action": "test with the action that holds",
    "input still": "move that input too",
    "inexact action": "test elements that move pixels onto pixels; for others allow for the interpolation",
    "other path": "no branch that depends on the values",
    "writes its input": "x = x.clone() at the beginning of forward",
    "nothing to test": "another model, or inputs that it can tell apart",
    "unknown": "look at what this step does to one moved input",
}  # fmt: skip
_TABLE = {
    "nonlinearity": "relu relu6 gelu tanh sigmoid leaky_relu elu selu silu mish softplus softmax log_softmax abs exp "
    "square pow clamp hardtanh hardswish floor round ceil sign sin cos log sqrt celu prelu threshold",
    "order": "conv1d topk argsort sort cumsum cumprod cummax argmax max min lstm gru rnn_tanh rnn_relu flip roll "
    "reversed diff unique searchsorted",
    "position": "getitem index_select gather narrow select split chunk unbind take slice tensor_split",
    "mask": "scaled_dot_product_attention multi_head_attention_forward masked_fill where tril triu",
    "layout": "reshape view flatten unflatten permute transpose get mT T swapaxes contiguous squeeze unsqueeze",
    "weights": "matmul einsum bmm mm rmatmul bilinear tensordot conv_transpose2d addmm embedding",
    "padding": "pad",
    "resize": "interpolate grid_sample affine_grid adaptive_avg_pool2d adaptive_max_pool2d pixel_shuffle upsample",
    "norm": "batch_norm layer_norm group_norm instance_norm rms_norm normalize var std local_response_norm",
    "random": "dropout rand randn bernoulli multinomial rand_like randn_like",
}
_JOINS = (
    "add sub mul div cat stack concat hstack vstack iadd isub imul radd rsub rmul truediv rtruediv rdiv setitem "
    "addcmul baddbmm lerp atan2 maximum minimum"
)


Settings = dict[str, Any]


def mend(word: str) -> str:
    """Return what to do about a cause, a word of ``MENDS`` or several, joined by " + "."""
    return "; ".join(MENDS[w] for w in word.split(" + "))


def cause(step: Step, tape: Tape, group: Group, action: Any) -> tuple[str, str]:
    """Return why a step whose inputs are in order loses the symmetry: a word of ``MENDS`` (or several), what was seen.

    The tape is one of :func:`lib.reader.tape.compare`, of actions by a group whose first that moves is ``action``.
    """
    op, parents = step.op, [tape.steps[p] for p in step.parents]
    names = _ARGUMENTS.get(op.replace("2d", "1d").replace("3d", "1d"))
    if names and not (op == "linear" and not parents):
        given = [dict(zip(names.split(), s.args, strict=False)) | s.kwargs for s in (step, *_others(step, tape))]
        if found := _experiment(op, given, [*parents, step][0], group, action):
            return found
    if op in _JOINS.split():
        return _joined(step, parents, tape, group)
    word = next((w for w, ops in _TABLE.items() if op in ops.split()), "unknown")
    if word == "weights" and not step.loose:
        return "layout", f"{op} multiplies along an axis that moves"
    texts = {
        "nonlinearity": f"{op} acts on single coordinates, which the group mixes ({[step, *parents][-1].fit.name})",
        "order": f"{op} depends on the order in which things stand",
        "position": f"{op} picks entries by their position",
        "mask": f"{op} with a mask that does not move along",
        "resize": f"{op} takes samples that do not lie symmetrically, or between the pixels",
        "padding": f"pad adds {[*step.args, step.kwargs.get('pad', '')][1]}: not alike on all sides",
        "weights": f"{op} with a matrix of shape {[(), *step.loose][-1]} that does not commute with the group",
    }
    if op in ("reshape", "view", "flatten", "unflatten"):
        shapes = f"{tuple(step.out.shape)} of {tuple(parents[0].out.shape)}" if parents else ""
        texts["layout"] = f"{op} makes {shapes}, joins what moves"
    return word, texts.get(word, f"{op} does not commute with the group")


def _others(step: Step, tape: Tape) -> list[Step]:
    k = next(k for k, s in enumerate(tape.steps) if s is step)
    return [other.steps[k] for other in tape.others]


def _joined(step: Step, parents: list[Step], tape: Tape, group: Group) -> tuple[str, str]:
    """Return why a sum, a product or a list of tensors is lost."""
    moves = [any(not torch.equal(p.out, o.out) for o in _others(p, tape)) for p in parents]
    moving = {p.fit.name for p, moved in zip(parents, moves, strict=True) if moved}
    made = [tuple(p.out.shape) for p, moved in zip(parents, moves, strict=True) if p.out.ndim and not moved]
    if step.loose or (made and moving):
        shape = [*step.loose, *made][0]
        text = f"{step.op} joins something of shape {shape} that stays where it is: positions, coordinates, a token?"
        return "constant", text
    if len(moving) == 1 and group.kind == "rotate" and "mul" in step.op:
        return "nonlinearity", "coordinates are multiplied with each other"
    return "mixes", f"{step.op} combines tensors that move in different ways: {', '.join(sorted(moving))}"


def _experiment(op: str, given: list[Settings], parent: Step, group: Group, action: Any) -> tuple[str, str] | None:
    """Return the smallest set of changed settings with which the step is in order, as a cause."""
    changes = list(_changes(op, given[0], parent, group))
    for some in itertools.chain(*(itertools.combinations(changes, count) for count in (1, 2, 3))):
        new = {name: value for *_, change in some for name, value in change.items()}
        try:
            outs = [_run(op, settings | new) for settings in given]
        except (RuntimeError, TypeError, ValueError):  # these settings do not fit the step: no explanation
            continue
        if explain(group, action, outs[0], outs[1:]).error <= EXACT:
            words, texts = (list(dict.fromkeys(part)) for part in list(zip(*some, strict=True))[:2])
            if "weights" in words and (far := _distance(given[0], parent, group)):
                texts.append(far)
            return " + ".join(words), "; ".join(texts)
    return None


@torch.no_grad()
def _run(op: str, settings: Settings) -> Tensor:
    if around := settings.pop("around", None):  # no setting of torch's: what lies beyond the border comes in again
        settings["input"] = functional.pad(settings["input"], around, "circular")
    return getattr(functional, op)(**settings).double()


def _changes(op: str, s: Settings, parent: Step, group: Group) -> Iterator[tuple[str, str, Settings]]:
    """Yield changes of a step's settings: a word, what is wrong if the change helps, and the new settings."""
    untied = "the weights do not commute with the group"
    if s.get("bias") is not None and "norm" not in op:
        yield "bias", "the bias is not the same for all that the group exchanges or mixes", {"bias": None}
    if op == "linear":
        yield "weights", untied, {"weight": 0 * s["weight"]}
    elif op.startswith("conv") or "pool" in op:
        yield from _grid(op, s, parent, group)
        if op.startswith("conv") and "transpose" not in op:
            yield "weights", untied, {"weight": torch.ones_like(s["weight"])}
    elif "norm" in op:
        exchanged = f"{op} has gains or biases of their own for channels that the group exchanges or mixes"
        if bare := {k: None for k in ("weight", "bias") if s.get(k) is not None}:
            yield "norm", exchanged, bare
        if s.get("running_mean") is not None:
            text = f"{op} keeps statistics of their own for channels that the group exchanges"
            own = "training" if op == "batch_norm" else "use_input_stats"
            yield "norm", text, {"running_mean": None, "running_var": None, own: True}
    elif op == "interpolate":
        text = f"mode {s.get('mode', 'nearest')!r} takes samples that do not lie symmetrically"
        yield "resize", text, {"mode": "nearest-exact", "align_corners": None}
    elif op == "scaled_dot_product_attention":
        yield "mask", "attention with a mask that does not move along", {"attn_mask": None, "is_causal": False}


def _grid(op: str, s: Settings, parent: Step, group: Group) -> Iterator[tuple[str, str, Settings]]:
    """Yield changes of where windows lie."""

    def short(v: Any) -> Any:
        """Return one number for several that are equal."""
        return v[0] if isinstance(v, (tuple, list)) and len(set(v)) == 1 else v

    pool, sides = "pool" in op, "×".join(map(str, parent.out.shape[2:]))
    k = s["kernel_size"] if pool else tuple(s["weight"].shape[2:])
    stride, padding = short(s.get("stride") or (k if pool else 1)), short(s.get("padding", 0))
    window = f"{'window' if pool else 'kernel'} {short(k)}, stride {stride}, padding {padding}"
    last = int(k[-1]) if isinstance(k, (tuple, list)) else int(k)
    circular = {"around": [0, last - 1] * (parent.out.ndim - 2), "padding": 0}  # every cyclic window once
    cyclic, word = group.kind == "shift" and last > 1, "pooling" if pool else "stride"
    if short(s.get("output_padding", 0)) != 0:
        yield "output padding", "output_padding adds pixels on one side only", {"output_padding": 0}
    if "transpose" not in op:
        if stride != 1:
            text = f"{window} on {sides} pixels: the grid of samples does not move onto itself"
            yield word, text, {"stride": 1}
            if cyclic and padding == 0:
                yield word, text, circular | {"stride": 1}
        if cyclic and (padding != 0 or stride == 1):
            yield "padding", f"{window}: what lies beyond the border does not come in at the other side", circular
        elif padding != 0:
            text = f"{window} on {sides} pixels: the border is not padded alike, or does not move along"
            yield "padding", text, {"padding": 0}
    if s.get("ceil_mode"):
        yield "pooling", f"{window} on {sides} pixels: ceil_mode adds a window on one side only", {"ceil_mode": False}


def _distance(s: Settings, parent: Step, group: Group) -> str:
    """Return ‖A − ΠA‖/‖A‖ in words, by chance, and the dimension of the equivariant maps, at the best output.

    By chance it is the root of 1 − dim E/dim, with dim E the mean of the products of the characters.
    """
    W = s["weight"].detach().cpu().double()
    ins = None if s.get("groups", 1) != 1 else _inputs_moved(parent, group, W.shape[1])
    if ins is None or (group.kind == "permute" and not group.whole):
        return ""
    spots = torch.arange(W[0, 0].numel(), dtype=torch.float64, device="cpu").view(1, 1, *W.shape[2:])
    still = [int((turned == spots).sum()) for turned in _spatial(group, spots)]  # of each filter, by every element
    best: tuple[float, float] | None = None
    for outs in _channels_moved(group, len(W)):
        if len(outs) == len(ins):
            every = zip(outs, _spatial(group, W), ins, strict=True)
            average = sum(torch.einsum("op,pj...,ij->oi...", b, w, a) for b, w, a in every) / len(ins)
            traces = [float(a.trace() * b.trace()) * t for a, b, t in zip(ins, outs, still, strict=True)]
            far = float((W - average).norm() / W.norm())
            if best is None or far < best[0] - 1e-9:
                best = far, sum(traces) / len(ins)
    if best is None:
        return ""
    chance = math.sqrt(max(0.0, 1 - best[1] / W.numel()))
    dims = f"{round(best[1])} of {W.numel()} dimensions are equivariant"
    return f"‖A − ΠA‖/‖A‖ = {best[0]:.2f} (by chance {chance:.2f}; {dims})"


def _inputs_moved(parent: Step, group: Group, i: int) -> list[Tensor] | None:
    """Return how the identity and the elements move the i channels of a layer's input: matrices (i, i)."""
    axes = parent.fit.name
    along_last = axes.split()[-1] == str(parent.out.ndim - 1)
    _, *others = _channels_moved(group, i)
    if parent.fit.orders:
        return [_eye(i)] + [_eye(i)[order.cpu()] for order in parent.fit.orders]
    if group.kind == "rotate" and others and (along_last or "×" in axes):
        return others["d×c" in axes]
    if group.kind == "permute" and others and along_last:
        return others[0]
    return None if "mixed" in axes else [_eye(i)] * (1 + len(group.elements))


def _channels_moved(group: Group, n: int) -> Iterator[list[Tensor]]:
    """Yield ways in which n channels may move: not at all, as vectors, as copies that change places; (n, n) each."""
    turns = _rotations(group) if group.kind == "rotate" else []
    count = len(turns) or 1 + len(group.elements)
    yield [_eye(n)] * count
    if group.kind == "rotate" and n % group.size == 0:
        yield from _copies(turns, n)
    if group.kind == "permute" and n == group.size:
        yield [_eye(n)] + [_eye(n)[g] for g in group.elements]
    if group.kind == "pixels" and n % count == 0:
        grid = torch.arange(49, dtype=torch.float64, device="cpu").view(7, 7)  # a picture that no element keeps
        whole = [(0, 0), *group.elements]
        images = [move("pixels", g, grid) for g in whole]
        products = [[move("pixels", g, image) for image in images] for g in whole]
        table = [[next(k for k, m in enumerate(images) if torch.equal(m, p)) for p in row] for row in products]
        yield from _copies([_eye(count)[row] for row in table], n)
        yield from _copies([_eye(count)[row].mT.contiguous() for row in table], n)


def _copies(matrices: list[Tensor], n: int) -> Iterator[list[Tensor]]:
    """Yield matrices (n, n) that move copies, one after the other, and interleaved."""
    one = _eye(n // len(matrices[0]))
    yield [torch.kron(one, m) for m in matrices]
    yield [torch.kron(m, one) for m in matrices]


def _rotations(group: Group) -> list[Tensor]:
    """Return the identity and elements with the same equivariant maps of numbers and vectors as the group."""
    eye = _eye(group.size)
    if group.whole:
        return [eye, *[g.double() for g in group.elements]]
    if group.size > 4:
        return [eye]
    signs = [
        torch.diag(torch.tensor(s, dtype=eye.dtype, device="cpu"))
        for s in itertools.product([1.0, -1.0], repeat=group.size)
    ]
    found = [eye[list(p)] @ d for p in itertools.permutations(range(group.size)) for d in signs]
    return found if group.name.startswith("O") else [m for m in found if torch.linalg.det(m) > 0]


def _spatial(group: Group, w: Tensor) -> list[Tensor]:
    """Return filters moved by the identity and every element: turned for pictures, else as they are."""
    if group.kind == "pixels" and w.ndim == 4 and w.shape[-1] == w.shape[-2]:
        return [w] + [move("pixels", g, w) for g in group.elements]
    return [w] * (1 + len(group.elements) if group.kind != "rotate" else len(_rotations(group)))


def _eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64, device="cpu")
