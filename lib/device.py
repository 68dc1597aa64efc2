"""Where the computations run: the GPU if there is one, unless ``SYMMETRY_DEVICE`` says otherwise."""

from __future__ import annotations

import os
import platform

import torch

VARIABLE = "SYMMETRY_DEVICE"


def default_device(device: str = "") -> torch.device:
    """Return the device of that name; without one that of ``SYMMETRY_DEVICE``, else CUDA if available, else the CPU.

    Single precision means 24 bits here: PyTorch's convolutions on a GPU round to 11 bits (TF32) unless they are told
    not to, and then a layer that commutes with its group misses it by 1e-3 instead of 1e-7.

    >>> str(default_device("cpu"))
    'cpu'
    """
    torch.backends.cudnn.allow_tf32 = False
    if device:
        return usable_device("device", device)
    wanted = os.environ.get(VARIABLE, "").strip()
    if not wanted:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(VARIABLE, wanted)


def usable_device(name: str, device: torch.device | str) -> torch.device:
    """Return a device after a tensor has been made on it and read back; ``name`` is the argument in the message."""
    try:
        place = torch.device(device)
        torch.empty(1, device=place).cpu()
    except (TypeError, RuntimeError, AssertionError, NotImplementedError) as error:  # it depends on PyTorch's build
        reason = str(error).splitlines()[0]
        raise ValueError(f"{name} must name a device of this machine, got {str(device)!r}: {reason}") from None
    return place


def describe_device(device: torch.device | str) -> str:
    """Return a short description of a device, as ``"cuda:0 (NVIDIA H200)"`` or ``"cpu (x86_64)"``."""
    place = usable_device("device", device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.machine()
    return f"{place} ({name})"
