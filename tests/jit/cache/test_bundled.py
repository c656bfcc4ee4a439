"""Which code of a bundle an arch takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudakit.jit.cache import bundled

TARGETS = [(target, f"sm_{arch}") for target in ("cubin", "ptx") for arch in ("80", "86", "89", "90", "90a", "100f")]


@pytest.mark.parametrize(
    ("target", "arch", "expected"),
    [
        # Machine code of the own major version, the nearest first, then PTX.
        ("cubin", "sm_89", "cubin 89, cubin 86, cubin 80, ptx 89, ptx 86, ptx 80"),
        ("cubin", "sm_87", "cubin 87, cubin 86, cubin 80, ptx 86, ptx 80"),
        ("cubin", "sm_80", "cubin 80, ptx 80"),
        ("cubin", "sm_90", "cubin 90, cubin 90a, ptx 90a, ptx 90, ptx 89, ptx 86, ptx 80"),
        ("cubin", "sm_103", "cubin 103, cubin 100f, ptx 90, ptx 89, ptx 86, ptx 80"),
        # A suffix says that the source needs its own arch.
        ("cubin", "sm_90a", "cubin 90a, ptx 90a"),
        ("ptx", "sm_89", "ptx 89, ptx 86, ptx 80"),
        ("ltoir", "sm_89", "ltoir 89"),
    ],
)
def test_the_nearest_code_comes_first(target: str, arch: str, expected: str) -> None:
    specialization: Any = SimpleNamespace(target=target, arch=arch, is_tile=False)
    candidates = bundled._candidates(specialization, TARGETS)  # type: ignore[arg-type]
    assert [f"{target} {arch.removeprefix('sm_')}" for target, arch in candidates] == expected.split(", ")
    specialization.is_tile = True
    assert list(bundled._candidates(specialization, TARGETS)) == [(target, arch)]  # type: ignore[arg-type]
