"""The choice of a device."""

from __future__ import annotations

import pytest
import torch

from lib.augmentation.synthetic import block_graphs, simple_shapes
from lib.checks import seeded
from lib.device import VARIABLE, default_device, describe_device, usable_device
from lib.symmetry import lie
from lib.symmetry.actions import vectors
from lib.symmetry.fourier import GroupFourier
from lib.symmetry.generated import frobenius, quaternions_on_plane
from lib.symmetry.group_convolution import GroupConvolution
from lib.transport.ring import ring


def test_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert default_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cpu")
    assert default_device() == torch.device("cpu")


def test_a_name_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "abacus")
    assert default_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="device must name a device of this machine, got 'loom'"):
        default_device("loom")


@pytest.mark.parametrize("wanted", ["abacus", "cuda:99", "meta"])
def test_unknown_devices(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv(VARIABLE, wanted)
    with pytest.raises(ValueError, match=f"{VARIABLE} must name a device.*{wanted}"):
        default_device()


@pytest.mark.usefixtures("as_user")
def test_description() -> None:
    assert describe_device("cpu").startswith("cpu (")
    for device in ("abacus", "cuda:99", None, [1]):
        with pytest.raises(ValueError, match="device must name a device of this machine"):
            describe_device(device)
        with pytest.raises(ValueError, match="device must name a device"):
            usable_device("device", device)


def test_single_precision_is_not_rounded_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    default_device("cpu")
    assert not torch.backends.cudnn.allow_tf32


def test_nothing_lands_on_another_default_device() -> None:
    with torch.device("meta"):
        for group in (lie.Orthogonal(3), lie.SpecialOrthogonal(4), lie.Unitary(2), lie.Torus(2)):
            assert all(t.device.type == "cpu" for t in group.class_quadrature(3))
        vectors(lie.Torus(2))
        for group in (frobenius(7, 3), quaternions_on_plane()):
            GroupFourier(group)
            GroupConvolution(group)
        for graphs_or_shapes in (*block_graphs(3), *simple_shapes(2), ring(1, 3, seeded(0))):
            assert graphs_or_shapes.device.type == "cpu"
