"""The audit of a reader's model: planted faults, sound models, other seeds, and what cannot be audited."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from lib.reader.audit import Audit, audit, averaging_gain
from lib.reader.causes import MENDS
from lib.reader.moves import group_of, move, words
from lib.symmetry.actions import pixels
from lib.symmetry.groups import Cyclic
from tests import planted
from tests.planted import Case, GroupConv, Lift, Pool

SETS = {"known": planted.known, "later": planted.later}
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def run(case: Case) -> Audit:
    return audit(case.model, case.group, case.action_in, case.action_out, case.inputs)


def found(case: Case, said: Audit) -> bool:
    return (said.place in case.places or (said.place == "forward" and "" in case.places)) and said.word in case.words


def test_planted_faults_are_found() -> None:
    """Place and cause, of at least 38 in 40, in each of the two sets; and none passes for sound."""
    for make in SETS.values():
        torch.manual_seed(5)
        cases = make()
        said = {name: run(case) for name, case in cases.items()}
        assert not [name for name, s in said.items() if s.sound]
        missed = {name: said[name].summary() for name, case in cases.items() if not found(case, said[name])}
        assert len(missed) <= len(cases) * 2 // 40, missed
        assert all(said[name].mend for name in cases)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nothing_is_found_in_sound_models(seed: int) -> None:
    for make in (planted.sound, planted.later_sound):
        torch.manual_seed(seed)
        for name, case in make().items():
            said = run(case)
            assert said.sound, f"{name}: {said.summary()}"
            assert said.error64 < 1e-8 or said.word == "float32 constants"


def test_there_are_enough_of_them() -> None:
    torch.manual_seed(0)
    known, later = planted.known(), planted.later()
    assert len(known) + len(later) >= 40
    assert len(later) >= 20
    assert len(planted.sound()) + len(planted.later_sound()) >= 10
    assert len({w for c in [*known.values(), *later.values()] for w in c.words}) >= 20


def test_the_model_is_as_it_was() -> None:
    """Parameters, buffers, precision and modes, also when the audit has cast and shaken them."""
    net = planted.planar(GroupConv(3, 3, padding=1), nn.BatchNorm2d(12)).eval()
    net[2].train()
    before = copy.deepcopy(net.state_dict())
    default = torch.get_default_dtype()
    audit(net, "C4", "pixels", "still", torch.randn(4, 1, 12, 12))
    assert all(torch.equal(v, before[k]) and v.dtype == before[k].dtype for k, v in net.state_dict().items())
    assert (net.training, net[2].training, net[3].training) == (False, True, False)
    assert torch.get_default_dtype() == default


def test_the_mend_mends() -> None:
    """What is said of a stride is true: on the next side the same weights are in order."""
    torch.manual_seed(3)
    net = planted.planar(GroupConv(3, 3, padding=1, stride=2))
    assert audit(net, "C4", "pixels", "still", torch.randn(4, 1, 12, 12)).word == "stride"
    assert audit(net, "C4", "pixels", "still", torch.randn(4, 1, 13, 13)).sound


def test_several_places_are_named() -> None:
    torch.manual_seed(4)
    parts = planted.Do(
        lambda m, x: m.parts[0](x) + m.parts[1](x),
        nn.Sequential(Lift(1, 3, padding=1), nn.MaxPool2d(2), Pool(3)),
        nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)),
    )
    said = audit(parts, "C4", "pixels", "still", torch.randn(4, 1, 13, 13))
    assert said.place == "parts.0.1"
    assert said.also == ("parts.1.0 (conv2d)",)
    assert {"module", "operation", "shape", "error", "moves as"} == set(said.layers)
    assert len(said.elements) == 3


def test_the_distance_is_that_of_the_average_and_the_dimension_that_of_characters() -> None:
    """For one flattened picture: ‖A − ΠA‖ by lib.symmetry, and the number of equivariant maps by characters."""
    torch.manual_seed(6)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    text = audit(net, "C4", "pixels", "still", torch.randn(40, 1, 4, 4)).text
    A = net[1].weight.detach().double()
    G = Cyclic(4)
    averaged = A.view(3, 4, 4)
    averaged = sum(averaged.rot90(k, (1, 2)) for k in range(4)).flatten(1) / 4
    assert f"= {float((A - averaged).norm() / A.norm()):.2f} " in text
    dim = round(float(pixels(G, 4).character(G.elements()).mean())) * 3
    assert f"{dim} of 48 dimensions" in text


@pytest.mark.parametrize(
    ("group", "action", "shape", "order"),
    [
        ("C4", "pixels", (2, 1, 5, 5), 4),
        ("D2", "pixels", (2, 3, 4, 6), 4),
        ("D4", "pixels", (2, 5, 5), 8),
        ("S4", "permute axis 1", (2, 4, 3), 24),
        ("C5", "permute 2", (2, 3, 5), 5),
        ("D5", "permute 2", (2, 3, 5), 10),
        ("A4", "permute 1", (2, 4), 12),
        ("C6", "rotate last axis", (2, 7, 2), 6),
        ("D3", "rotate -1", (2, 2), 6),
    ],
)
def test_named_groups_act(group: str, action: str, shape: tuple[int, ...], order: int) -> None:
    """Elements and the identity are closed under products, on random tensors."""
    x = torch.randn(shape, dtype=torch.float64)
    G = group_of(group, action, x)
    images = [x, *(move(action, g, x) for g in G.elements)]
    assert len(images) == order
    for g in G.elements:
        for y in images:
            assert min(float((move(action, g, y) - z).abs().max()) for z in images) < 1e-12


def test_random_elements_are_orthogonal_and_of_their_group() -> None:
    x = torch.randn(2, 5, 3)
    assert all(torch.linalg.det(g) > 0 for g in group_of("SO3", "rotate", x).elements)
    assert any(torch.linalg.det(g) < 0 for g in group_of("O3", "rotate", x).elements)
    assert len(group_of("S12", "permute 1", torch.randn(2, 12)).elements) == 3


def test_actions_are_words() -> None:
    assert words("rotate last axis") == ("rotate", (-1,))
    assert words("permute") == ("permute", (1,))
    with pytest.raises(ValueError, match="action must be like"):
        words("spin 3")


x8 = torch.randn(4, 1, 8, 8)


class Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Two(), "C4", "pixels", "still", x8), "must return one tensor, got a tuple"),
        ((nn.Linear(3, 3), "C4", "pixels", "still", x8), "does not take these inputs"),
        ((nn.Identity(), "C3", "pixels", "still", x8), "group must be one of"),
        ((nn.Identity(), "C4", "pixels", "still", torch.randn(4, 1, 8, 9)), "need square pictures"),
        ((nn.Identity(), "C4", "pixels", "pixels", x8[:1]), "at least two samples"),
        ((nn.Identity(), "C4", "pixels", "pixels", x8 / 0), "must be finite"),
        ((nn.Identity(), "C4", "still", "still", x8), "leaves nothing to audit"),
        ((nn.Identity(), "S3", "permute 1", "still", torch.randn(4, 5)), "must act on 5 entries"),
        ((nn.Identity(), "SO2", "rotate", "still", torch.randn(4, 3)), "must act on 3 coordinates"),
        ((nn.Identity(), "C4", ["pixels", "still"], "still", x8), "one action for each of 1 inputs"),
        ((nn.Identity(), "C4", lambda g, x: x, "still", x8), "list of elements"),
        ((nn.Flatten(), "C4", "pixels", "pixels", x8), "does not act on the output"),
        ((lambda x: x.sum(), "C4", "pixels", "still", x8), "an output for each sample"),
        ((lambda x: x.log(), "C4", "pixels", "pixels", -x8.abs()), "output must be finite"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        audit(*arguments)
    assert "\n" not in str(refused.value)


def test_a_constant_model_is_not_called_equivariant() -> None:
    said = audit(lambda x: torch.ones(len(x), 3), "C4", "pixels", "still", x8)
    assert (said.verdict, said.word) == ("cannot be judged", "nothing to test")


def test_averaging_gain_is_counted() -> None:
    """Against a classifier whose answers are known: it looks at one corner."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([x[:, 0, 0, 0], 0 * x[:, 0, 0, 0]], 1)

    x = torch.randn(200, 1, 4, 4)
    corners = x[:, 0, [0, 0, 3, 3], [0, 3, 0, 3]]
    labels = (corners.sum(1) < 0).long()
    gain = averaging_gain(model, "C4", "pixels", x, labels)
    before = float((((x[:, 0, 0, 0] < 0).long()) == labels).double().mean())
    after = float(((corners.sigmoid().mean(1) < 0.5).long() == labels).double().mean())
    assert gain["before"] == before
    assert gain["after"] == pytest.approx(after)
    assert gain["change"] - gain["half"] > 0
    assert gain["p"] < 0.01


def test_every_word_has_a_mend() -> None:
    assert all(text and not text.endswith(".") for text in MENDS.values())
