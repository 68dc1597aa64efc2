"""Whether model(g·x) = g·model(x); and if not, where it is lost, why, and what mends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from lib.reader.moves import Action, group_of, move, words
from lib.reader.questions import Audit, Questions, tensors

Model = Callable[..., Tensor]


def audit(
    model: Model,
    group: str | Sequence[Any],
    action_in: Action | Sequence[Action],
    action_out: Action,
    inputs: Tensor | Sequence[Tensor],
    seed: int = 0,
) -> Audit:
    """Find out whether a model commutes with a group, and what breaks it if it does not.

    The model is a module, or any function of tensors that returns one tensor, in the mode in which it is used. The
    group is a name as in :func:`lib.reader.moves.group_of`, or a list of elements for actions that are functions; of a
    large one some are drawn with the seed. How it moves each input, and the output, say the actions: see
    :mod:`lib.reader.moves`. Inputs are one tensor or several, samples first, some samples; two tapes of all that is
    computed are held in memory. A ``ValueError`` says what to do about what cannot be audited.

    >>> net = nn.Sequential(nn.AvgPool2d(3), nn.Flatten(), nn.Linear(4, 2))
    >>> found = audit(net, "C4", "pixels", "still", torch.rand(9, 1, 6, 6))
    >>> found.verdict, found.place, found.word
    ('not equivariant', '2', 'weights')
    """
    xs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    acts = [action_in] if isinstance(action_in, str) or callable(action_in) else list(action_in)
    if len(acts) != len(xs):
        raise ValueError(
            f"action_in must be one action for each of {len(xs)} inputs, got {len(acts)}; 'still' for none"
        )
    for k, x in enumerate(xs):
        if not isinstance(x, Tensor) or x.ndim < 2 or len(x) < 2:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"input {k} must be a tensor of at least two samples, samples first, got {got}")
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise ValueError(f"input {k} must be finite; drop or fill what is not")
    which = next((k for k, a in enumerate(acts) if a != "still"), None)
    if which is None:
        raise ValueError("action_in must move an input; 'still' for all of them leaves nothing to audit")
    found = group_of(group, acts[which], xs[which], seed=seed)
    words(action_out)
    with _kept(model):
        return Questions(model, found, acts, action_out, xs).report()


def averaging_gain(
    model: Model, group: str | Sequence[Any], action: Action, inputs: Tensor, labels: Tensor
) -> dict[str, float]:
    """Return what averaging a classifier's probabilities over the group changes on labelled data.

    Accuracies ``before`` and ``after``, their difference ``change`` with the half width ``half`` of its 95 % interval
    (paired), and the exact ``p`` of McNemar's test, which is binomial, of the samples whose answer becomes right or
    wrong.
    """
    found = group_of(group, action, inputs)
    with torch.no_grad():
        views = [inputs, *(move(action, g, inputs) for g in found.elements)]
        scores = [model(v).softmax(-1) for v in views]  # |G| times (n, classes)
    right, after = (s.argmax(-1) == labels for s in (scores[0], sum(scores[1:], scores[0])))
    up, down, d = int((after & ~right).sum()), int((right & ~after).sum()), after.double() - right.double()
    return {
        "before": float(right.double().mean()),
        "after": float(after.double().mean()),
        "change": float(d.mean()),
        "half": 1.96 * float(d.std()) / math.sqrt(len(d)),
        "p": float(binomtest(up, up + down).pvalue) if up + down else 1.0,
    }


@contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Put a module back into its state: parameters, buffers, precision, modes; without a copy of the module."""
    if not isinstance(model, nn.Module):
        model = nn.Module()  # nothing to keep but the default precision
    kept = {name: (t.data, t.data.clone()) for name, t in tensors(model)}
    modes, default = [(m, m.training) for m in model.modules()], torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(default)
        for m, training in modes:
            m.training = training
        for name, now in tensors(model):
            data, values = kept[name]
            now.data = data.copy_(values)
