"""The requirement of torch on an NVRTC that is too old for tile kernels."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cudakit.jit.compile import pins


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose packages come before the installed ones."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install_torch(site: Path, *requirements: str) -> None:
    folder = site / "torch-2.14.0.dist-info"
    folder.mkdir()
    lines = [f"Requires-Dist: {requirement}" for requirement in ("filelock", *requirements)]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", "Name: torch", "Version: 2.14.0", *lines, ""]))
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("requirement", "pin"),
    [
        ('nvidia-cuda-nvrtc==13.0.88; platform_system == "Linux"', "nvidia-cuda-nvrtc==13.0.88"),
        ("nvidia-cuda-nvrtc-cu12 (==12.8.93)", "nvidia-cuda-nvrtc-cu12==12.8.93"),
        ("cuda-toolkit[cublas,nvrtc]==13.0.3", "cuda-toolkit[cublas,nvrtc]==13.0.3"),
    ],
)
def test_an_older_nvrtc_is_named_with_another_way(site: Path, requirement: str, pin: str) -> None:
    install_torch(site, requirement)
    assert pins.older_nvrtc_pin() == f"torch 2.14.0 requires {pin}"
    advice = pins.tile_nvrtc_advice()
    assert advice.startswith(f"{pins.older_nvrtc_pin()}: ")
    assert "cudakit cache export FILE" in advice
    assert "pip install" not in advice


@pytest.mark.parametrize(
    "requirement", ["nvidia-cuda-nvrtc==13.5.37", "nvidia-cuda-nvrtc>=13.0", "nvidia-cublas==13.0.1"]
)
def test_other_requirements_hold_nothing(site: Path, requirement: str) -> None:
    install_torch(site, requirement)
    assert pins.older_nvrtc_pin() is None
    assert "pip install -U 'cudakit[cu13,tile]'" in pins.tile_nvrtc_advice()


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins.importlib.metadata, "distribution", lambda name: 1 / 0)
    assert pins.older_nvrtc_pin() is None
