"""Tensor maps of ops: kept by layout and address, and made anew for other memory when a call is replayed."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit.ops import matmul_warpgroups


@pytest.mark.gpu
def test_replays_read_the_memory_of_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    monkeypatch.setattr(matmul_warpgroups, "is_faster", lambda *_: True)
    arrays = [cupy.random.standard_normal((2, 256, 256), dtype=np.float32).astype(np.float16) for _ in range(4)]
    for k in range(40):
        a, b = (arrays[(k + shift) % 4][k % 2] for shift in (0, 1))
        out = None if k % 3 else cupy.empty((256, 256), np.float16)
        got = ck.ops.matmul(a, b, by="threads", out=out)
        want = a.astype(np.float32) @ b.astype(np.float32)
        assert float(abs(got - want).max()) < 0.1, k
