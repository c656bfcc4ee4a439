"""Which streams of GPUs are being captured into a graph; of the emulator's, `cudakit.places.Place.capture` knows.

Nobody captures as a rule, and then the question costs a test of an empty dictionary.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np


class Capture(Protocol):
    """What a capture does for those who put work on its streams."""

    def kept_by(self, owner: object) -> dict[Any, Any]:
        """What `owner` keeps for each stream between calls: of this graph alone, which may run beside others."""

    def keep(self, thing: Any) -> None:
        """Keep `thing` as long as the graph lives."""

    def clear(self, array: Any) -> None:
        """Zero a device array once, now: no part of the graph."""

    def upload(self, array: np.ndarray) -> Any:
        """A copy of a host array in device memory, made once, now: no part of the graph."""


#: Open captures, by the driver's number.
_open: dict[int, Capture] = {}


def is_any_open() -> bool:
    """Whether cudakit captures anything now."""
    return bool(_open)


def current(stream: Any) -> Any | None:
    """The capture that `stream` is a part of now, if cudakit began it."""
    return found(stream)[0] if _open else None


def found(stream: Any) -> tuple[Any | None, int]:
    """The capture that `stream` is a part of now, and the driver's number for it: bodies of loops have their own."""
    if not _open:
        return None, 0
    from cuda.bindings import driver

    status, _, number, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(_number(stream)))
    return (_open.get(int(number)), int(number)) if int(status) == 0 else (None, 0)


def is_capturing(stream: Any) -> bool:
    """Whether what is put on `stream` goes into a graph now, whoever began that, instead of running."""
    return is_captured(_number(stream))


def is_captured(handle: int) -> bool:
    """Whether what is put on a GPU's stream, by the driver's number, goes into a graph now."""
    ask, refusal = _question()
    try:
        return bool(ask(handle))
    except refusal:
        # The legacy default stream, while another that waits for it by itself is captured.
        return False


@functools.cache
def _question() -> tuple[Any, Any]:
    """CuPy's question, a tenth of the time of the bindings' own, and how it is refused."""
    try:
        from cupy.cuda import runtime
    except ImportError:  # a program of torch's or cuda.core's own memory
        from cuda.bindings import driver

        return lambda handle: int(driver.cuStreamIsCapturing(driver.CUstream(handle))[1] or 0), ()
    return runtime.streamIsCapturing, runtime.CUDARuntimeError


def begin(capture: Capture, number: int) -> None:
    """Enter a capture under the driver's number of it."""
    _open[number] = capture


def end(capture: Capture) -> None:
    """Forget a capture."""
    for number in [number for number, known in list(_open.items()) if known is capture]:
        _open.pop(number, None)


def _number(stream: Any) -> int:
    return int(stream.__cuda_stream__()[1])
