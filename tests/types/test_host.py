"""Where the memory of host arrays lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudakit.types.host import pointer_of

pytestmark = pytest.mark.emulator


class Own(np.ndarray):
    """A subclass, whose instances have attributes besides."""


@pytest.mark.parametrize("kind", ["whole", "view", "turned", "nothing", "scalar", "readonly", "mapped", "subclass"])
def test_it_is_what_numpy_says(kind: str, tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    others = {"view": x[1:, ::2], "turned": x[::-1, ::-1], "nothing": x[:0], "scalar": x[2:3, 3:4].reshape(())}
    given: np.ndarray = others.get(kind, x)
    if kind == "mapped":
        given = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 6))
    if kind == "readonly":
        given.flags.writeable = False
    if kind == "subclass":
        given = given.view(Own)
        given.more = 1  # type: ignore[attr-defined]
    assert pointer_of(given) == given.ctypes.data
