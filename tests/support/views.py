"""Arrays of any shape, dtype and strides, drawn by hypothesis, the same in host memory and where kernels run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from support.places import to_host

#: One dtype of each size that is moved.
SIZES = tuple(np.dtype(code) for code in ("i1", "f2", "f4", "f8", "c16"))
#: Few examples: each may compile a kernel, and the emulator runs it. The same ones in each run, as are the kernels.
few = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class View:
    """A view of a random array: sliced, then transposed, then repeated along a new first dimension."""

    dtype: np.dtype
    shape: tuple[int, ...]
    index: tuple[slice, ...]
    order: tuple[int, ...]
    repeats: int
    seed: int

    def host(self) -> np.ndarray:
        return self._of(np, bits(self.shape, self.dtype, self.seed))

    def on(self, xp: Any) -> Any:
        return self._of(xp, xp.asarray(bits(self.shape, self.dtype, self.seed)))

    def _of(self, xp: Any, base: Any) -> Any:
        view = base[(*self.index, ...)].transpose(self.order)
        return view if self.repeats < 0 else xp.broadcast_to(view, (self.repeats, *view.shape))


@st.composite
def views(draw: st.DrawFn, dtypes: Sequence[np.dtype] = SIZES, least_dims: int = 0, most_dims: int = 4) -> View:
    """A view of at most some thousands of elements; one dimension in four is long enough for whole packs and tiles."""
    shape = tuple(
        draw(st.integers(0, 6) if draw(st.integers(0, 3)) else st.integers(20, 80))
        for _ in range(draw(st.integers(least_dims, most_dims)))
    )
    index = tuple(slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 1, 1, 2, 3]))) for _ in shape)
    index = tuple(slice(None, None, -1) if draw(st.integers(0, 4)) == 0 else each for each in index)
    order = tuple(draw(st.permutations(range(len(shape)))))
    repeats = draw(st.sampled_from([-1, -1, -1, 2]))
    return View(draw(st.sampled_from(list(dtypes))), shape, index, order, repeats, draw(st.integers(0, 99)))


def bits(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    """An array of random bits: NaN of every kind, infinities, the least and greatest integers among them."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    high = 2 if dtype.kind == "b" else 256
    return np.random.default_rng(seed).integers(0, high, count, np.uint8).view(dtype).reshape(shape)


def check_bits(got: Any, want: np.ndarray) -> None:
    """The same dtype and shape, C-contiguous, and the same bits in every element."""
    assert got.flags.c_contiguous
    host = to_host(got)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    assert host.tobytes() == np.ascontiguousarray(want).tobytes()
