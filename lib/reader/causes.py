"""From the step where a symmetry is lost to its cause, and to what mends it.

Where a step has settings (a stride, a bias, a mask), they are changed one at a time, and two at a time, until the step
is in order: so the cause is not guessed, it is found by experiment. Other operations have a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from lib.reader.moves import Group
from lib.reader.tape import EXACT, Step, Tape, explain
from lib.reader.ties import distance

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


@dataclass(frozen=True)
class Cause:
    """Why a step loses the symmetry: a word of ``MENDS``, or several, and what was seen."""

    word: str
    text: str

    @property
    def mend(self) -> str:
        """What to do about it."""
        return "; ".join(MENDS[w] for w in self.word.split(" + "))


def cause(step: Step, tape: Tape, group: Group, action: Any) -> Cause:
    """Return why a step whose inputs are in order loses the symmetry."""
    op = step.op
    base = op.replace("2d", "1d").replace("3d", "1d")
    if base in _ARGUMENTS and not (op == "linear" and not step.parents):
        names = _ARGUMENTS[base].split()
        given = [dict(zip(names, s.args, strict=False)) | s.kwargs for s in (step, *_others(step, tape))]
        if found := _experiment(op, given, step, tape, group, action):
            return found
    if op in _JOINS.split():
        return _joined(step, tape, group)
    word = next((w for w, ops in _TABLE.items() if op in ops.split()), "unknown")
    if word == "weights" and not step.loose:
        return Cause("layout", f"{op} multiplies along an axis that moves")
    before = tape.steps[step.parents[-1]] if step.parents else step
    shapes = f"{tuple(step.out.shape)} of {tuple(tape.steps[step.parents[0]].out.shape)}" if step.parents else ""
    texts = {
        "nonlinearity": f"{op} acts on single coordinates, which the group mixes ({before.fit.name})",
        "order": f"{op} depends on the order in which things stand",
        "position": f"{op} picks entries by their position",
        "mask": f"{op} with a mask that does not move along",
        "resize": f"{op} takes samples that do not lie symmetrically, or between the pixels",
        "padding": f"pad adds {[*step.args, step.kwargs.get('pad', '')][1]}: not alike on all sides",
        "weights": f"{op} with a matrix of shape {[(), *step.loose][-1]} that does not commute with the group",
    }
    if op in ("reshape", "view", "flatten", "unflatten"):
        texts["layout"] = f"{op} makes {shapes}, joins what moves"
    return Cause(word, texts.get(word, f"{op} does not commute with the group"))


def _others(step: Step, tape: Tape) -> list[Step]:
    k = next(k for k, s in enumerate(tape.steps) if s is step)
    return [other.steps[k] for other in tape.others]


def _joined(step: Step, tape: Tape, group: Group) -> Cause:
    """Return why a sum, a product or a list of tensors is lost."""
    parents = [tape.steps[p] for p in step.parents]
    made = [p for p in parents if p.out.ndim and not _moves(p, tape)]
    moving = {p.fit.name for p in parents if _moves(p, tape)}
    if step.loose or (made and moving):
        shape = step.loose[0] if step.loose else tuple(made[0].out.shape)
        text = f"{step.op} joins something of shape {shape} that stays where it is: positions, coordinates, a token?"
        return Cause("constant", text)
    if len(moving) == 1 and group.kind == "rotate" and "mul" in step.op:
        return Cause("nonlinearity", "coordinates are multiplied with each other")
    return Cause("mixes", f"{step.op} combines tensors that move in different ways: {', '.join(sorted(moving))}")


def _moves(step: Step, tape: Tape) -> bool:
    return any(not torch.equal(step.out, o.out) for o in _others(step, tape))


Settings = dict[str, Any]
Change = Callable[[Settings], Settings]


def _experiment(op: str, given: list[Settings], step: Step, tape: Tape, group: Group, action: Any) -> Cause | None:
    """Return the smallest set of changed settings with which the step is in order, as a cause."""
    function = getattr(functional, op)
    parent = tape.steps[step.parents[0]] if step.parents else step
    changes = list(_changes(op, given[0], parent, group))
    for count in (1, 2, 3):
        for some in itertools.combinations(changes, count):
            try:
                outs = []
                for settings in given:
                    for _, _, change in some:
                        settings = change(settings)
                    with torch.no_grad():
                        outs.append(function(**settings).double())
            except (RuntimeError, TypeError, ValueError):  # these settings do not fit the step: no explanation
                continue
            if explain(group, action, outs[0], outs[1:]).error <= EXACT:
                texts = [text for _, text, _ in some]
                if any(word == "weights" for word, _, _ in some) and (far := distance(given[0], parent, group)):
                    texts.append(far)
                return Cause(" + ".join(dict.fromkeys(word for word, _, _ in some)), "; ".join(texts))
    return None


def _changes(op: str, s: Settings, parent: Step, group: Group) -> Iterator[tuple[str, str, Change]]:
    """Yield changes of a step's settings: a word, what is wrong if the change helps, and the change."""

    def with_new(**new: Any) -> Change:
        return lambda s: s | new

    untied = "the weights do not commute with the group"
    exchanged = f"{op} has gains or biases of their own for channels that the group exchanges or mixes"
    if s.get("bias") is not None and "norm" not in op:
        yield "bias", "the bias is not the same for all that the group exchanges or mixes", with_new(bias=None)
    if op == "linear":
        yield "weights", untied, lambda s: s | {"weight": 0 * s["weight"]}
    elif op.startswith("conv") or "pool" in op:
        yield from _grid(op, s, parent, group)
        if op.startswith("conv") and "transpose" not in op:
            yield "weights", untied, lambda s: s | {"weight": torch.ones_like(s["weight"])}
    elif "norm" in op:
        if bare := {k: None for k in ("weight", "bias") if s.get(k) is not None}:
            yield "norm", exchanged, with_new(**bare)
        if s.get("running_mean") is not None:
            own = {("training" if op == "batch_norm" else "use_input_stats"): True}
            text = f"{op} keeps statistics of their own for channels that the group exchanges"
            yield "norm", text, with_new(running_mean=None, running_var=None, **own)
    elif op == "interpolate":
        text = f"mode {s.get('mode', 'nearest')!r} takes samples that do not lie symmetrically"
        yield "resize", text, with_new(mode="nearest-exact", align_corners=None)
    elif op == "scaled_dot_product_attention":
        yield "mask", "attention with a mask that does not move along", with_new(attn_mask=None, is_causal=False)


def _grid(op: str, s: Settings, parent: Step, group: Group) -> Iterator[tuple[str, str, Change]]:
    """Yield changes of where windows lie."""
    pool, sides = "pool" in op, "×".join(map(str, parent.out.shape[2:]))
    k = s["kernel_size"] if pool else tuple(s["weight"].shape[2:])
    stride, padding = s.get("stride") or (k if pool else 1), s.get("padding", 0)
    window = f"{'window' if pool else 'kernel'} {_short(k)}, stride {_short(stride)}, padding {_short(padding)}"
    if _short(s.get("output_padding", 0)) != 0:
        yield "output padding", "output_padding adds pixels on one side only", lambda s: s | {"output_padding": 0}
    around = [0, _last(k) - 1] * (parent.out.ndim - 2)  # every cyclic window once

    def circular(s: Settings) -> Settings:
        return s | {"input": functional.pad(s["input"], around, "circular"), "padding": 0}

    cyclic, word = group.kind == "shift" and _last(k) > 1, "pooling" if pool else "stride"
    if "transpose" not in op:
        if _short(stride) != 1:
            text = f"{window} on {sides} pixels: the grid of samples does not move onto itself"
            yield word, text, lambda s: s | {"stride": 1}
            if cyclic and _short(padding) == 0:
                yield word, text, lambda s: circular(s) | {"stride": 1}
        if cyclic and (_short(padding) != 0 or _short(stride) == 1):
            yield "padding", f"{window}: what lies beyond the border does not come in at the other side", circular
        elif _short(padding) != 0:
            text = f"{window} on {sides} pixels: the border is not padded alike, or does not move along"
            yield "padding", text, lambda s: s | {"padding": 0}
    if s.get("ceil_mode"):
        text = f"{window} on {sides} pixels: ceil_mode adds a window on one side only"
        yield "pooling", text, lambda s: s | {"ceil_mode": False}


def _last(v: Any) -> int:
    return int(v[-1]) if isinstance(v, (tuple, list)) else int(v)


def _short(v: Any) -> Any:
    """Return one number for several that are equal."""
    return v[0] if isinstance(v, (tuple, list)) and len(set(v)) == 1 else v
