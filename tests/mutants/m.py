"""Wrong implementations for the claims of section M: mean-field dynamics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tests.mutants import Mutant

_SMALL = {"seeds": 8, "largest": 20}


def _orbit_by_orbit(kicks: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(unit: Any, descent: Any, noise: str, *args: Any) -> tuple[Tensor, ...]:
        found = kicks(unit, descent, noise, *args)
        if noise != "images":
            return found
        order = unit.group.order
        return tuple(xi.unflatten(2, (order, -1)).transpose(2, 3).flatten(2, 3) for xi in found)

    return wrong


MUTANTS: list[Mutant] = [
    Mutant(
        "M1",
        "the root is forgotten: squared distances of the live runs beside distances of the stored ones",
        ("fall",),
        page={"two = squared_w2(c[0::2], c[1::2]).sqrt()": "two = squared_w2(c[0::2], c[1::2])"},
        parameters=_SMALL,
        slow=True,
    ),
    Mutant(
        "M2",
        "outputs are moved by g, and not by its inverse",
        ("identity_error",),
        page={"Q = sum(network(unit, z, x @ A.mT) @ B for": "Q = sum(network(unit, z, x @ A.mT) @ B.mT for"},
    ),
    Mutant(
        "M3",
        "fixed units are no weakly invariant laws",
        ("infimum_difference",),
        page={"weak = torch.cat([weak, strong], 1) if q.whole": "weak = weak if q.whole"},
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "M4",
        "weights of the Hermite rule for exp(−x²)",
        ("closed_form_error",),
        page={"w, y = w / w.sum(), torch.cos(omega * x)": "w, y = w / math.pi**0.5, torch.cos(omega * x)"},
    ),
    Mutant(
        "M4",
        "rows of the twin by the inverse elements",
        ("equality_error",),
        page={"first = unit.on_outputs[:, :, 0].argmax(0)": "first = unit.on_outputs[:, 0, :].argmax(0)"},
    ),
    Mutant(
        "M5",
        "noise laid out orbit by orbit, particles element by element",
        ("exact_distance",),
        lib={"lib.mean_field.descent._kicks": _orbit_by_orbit},
        parameters=_SMALL,
        slow=True,
    ),
    Mutant(
        "M6",
        "feature averaging is forgotten",
        ("slope_upper", "fall"),
        page={
            "k: train(unit, k, **how).end.cpu() for k in TRAININGS": (
                'k: train(unit, "vanilla" if k == "FA" else k, **how).end.cpu() for k in TRAININGS'
            )
        },
        parameters={"seeds": 8, "largest": 40},
        slow=True,
    ),
    Mutant(
        "M7",
        "the free scheme is tied, and only its noise is free",
        ("vanilla_escape",),
        page={
            "k: train(unit, k, **how).end.cpu() for k in TRAININGS": (
                'k: train(unit, k, **how).end.cpu() if k != "vanilla"\n'
                '        else train(unit, "EA", **how | {"projected": [False] * 6}).end.cpu() for k in TRAININGS'
            )
        },
        parameters=_SMALL,
        slow=True,
    ),
    Mutant(
        "M8",
        "noise of half the temperature",
        ("floor_interval_miss", "flow_excess"),
        page={"h_noise = (2 * h * heat": "h_noise = (h * heat"},
        slow=True,
    ),
    Mutant(
        "M9",
        "one image of every unit is missing in the invariant teachers",
        ("angle", "wrong_dimensions"),
        page={'z = torch.einsum("gij,snj->sgni", maps, z)': 'z = torch.einsum("gij,snj->sgni", maps[1:], z)'},
        parameters={"seeds": 2},
        slow=True,
    ),
    Mutant(
        "M10",
        "the steps of an ensemble do not count its members",
        ("view_disagreement",),
        page={'units = z.shape[2] * (z.shape[1] if kind == "together" else 1)': "units = z.shape[2]"},
        parameters={"seeds": 2, "steps": 20},
        slow=True,
    ),
    Mutant(
        "M10",
        "one element is left out of the averages",
        ("view_disagreement",),
        page={"f = f.mean(2, keepdim=True)": "f = f[:, :, 1:].mean(2, keepdim=True)"},
        parameters={"seeds": 2, "steps": 20},
        slow=True,
    ),
]
