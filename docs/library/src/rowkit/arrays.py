"""The library of an array, its current stream, and new arrays of the same library."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

import cudakit as ck

_thread = threading.local()


def is_torch(x: Any) -> bool:
    """Return whether x is a tensor of torch. This does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def stream_for(x: Any, stream: Any = None) -> Any:
    """Return `stream`, or the current stream of the library of `x`."""
    if stream is not None:
        return stream
    if is_torch(x) and x.is_cuda:
        return sys.modules["torch"].cuda.current_stream(x.device)
    if "cupy" in sys.modules and isinstance(x, sys.modules["cupy"].ndarray):
        return sys.modules["cupy"].cuda.get_current_stream()
    # Arrays in host memory have no current stream: each thread has its own.
    if not hasattr(_thread, "stream"):
        _thread.stream = ck.stream()
    return _thread.stream


def empty_like(x: Any) -> Any:
    """Return a new array of the same library, shape, dtype and device."""
    if isinstance(x, np.ndarray):
        return np.empty_like(x)
    library = sys.modules[type(x).__module__.partition(".")[0]]
    return library.empty_like(x)


def on_host(x: Any) -> np.ndarray | None:
    """Return x as a NumPy array over the same memory, or None if x is on a device."""
    if isinstance(x, np.ndarray):
        # Device arrays of a strict emulator stream have CuPy's method `get`. Those of
        # another emulator stream are plain NumPy arrays, and are copied.
        return None if hasattr(x, "get") else x
    if is_torch(x) and not x.is_cuda:
        view: np.ndarray = x.numpy()
        return view
    return None
