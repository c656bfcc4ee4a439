"""Installed packages that need another NVRTC than tile kernels do: torch's wheels pin an exact version."""

from __future__ import annotations

import importlib.metadata
import re

#: The first NVRTC that compiles tile kernels.
TILE_NVRTC = (13, 5)
_PIN = re.compile(
    r"(?P<package>(?:nvidia-cuda-nvrtc(?:-cu\d+)?|cuda-toolkit)(?:\[[^\]]*\])?)"
    r"\s*\(?==\s*(?P<version>(?P<major>\d+)\.(?P<minor>\d+)[\w.]*)"
)


def older_nvrtc_pin() -> str | None:
    """Return the requirement by which torch holds NVRTC below the version that tile kernels need, or None.

    Returns
    -------
    str or None
        Requirement, such as ``"torch 2.14.0 requires nvidia-cuda-nvrtc==13.0.88"``. None if torch is not installed, or
        requires no older NVRTC: torch's wheels for the CPU require none.
    """
    try:
        torch = importlib.metadata.distribution("torch")
        requirements = torch.requires or []
    except Exception:  # not installed, or its metadata is damaged
        return None
    for pin in filter(None, map(_PIN.match, requirements)):
        if (int(pin["major"]), int(pin["minor"])) < TILE_NVRTC:
            return f"torch {torch.version} requires {pin['package']}=={pin['version']}"
    return None


def tile_nvrtc_advice() -> str:
    """Return advice for an NVRTC that is too old for tile kernels, as a line with commands."""
    take_in = "cudakit cache import FILE"
    pin = older_nvrtc_pin()
    if pin is None:
        return f"pip install -U 'cudakit[cu13,tile]', or take in what was compiled elsewhere: {take_in}"
    return (
        f"{pin}: compile the tile kernels in an environment without torch, cudakit cache export FILE, and take them in "
        f"here: {take_in}"
    )
