"""Whose an array is, which stream its work goes to, and how an array like it is made."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

import cudakit as ck

_of_thread = threading.local()


def is_torch(x: Any) -> bool:
    """Whether it is a tensor of torch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def stream_for(x: Any, stream: Any = None) -> Any:
    """The stream that was given; else the current one of the library that `x` is of."""
    if stream is not None:
        return stream
    if is_torch(x) and x.is_cuda:
        return sys.modules["torch"].cuda.current_stream(x.device)
    if "cupy" in sys.modules and isinstance(x, sys.modules["cupy"].ndarray):
        return sys.modules["cupy"].cuda.get_current_stream()
    if not hasattr(_of_thread, "stream"):  # arrays in host memory have no current stream: one for each thread
        _of_thread.stream = ck.stream()
    return _of_thread.stream


def empty_like(x: Any) -> Any:
    """A new array of the same library, shape, dtype and device."""
    if isinstance(x, np.ndarray):
        return np.empty_like(x)
    library = sys.modules[type(x).__module__.partition(".")[0]]
    return library.empty_like(x)


def on_host(x: Any) -> np.ndarray | None:
    """An array in host memory as NumPy's, over the same memory; None for one on a GPU or on the emulator's device."""
    if isinstance(x, np.ndarray):
        return None if hasattr(x, "get") else x  # the emulator's device arrays have CuPy's method `get`
    if is_torch(x) and not x.is_cuda:
        view: np.ndarray = x.numpy()
        return view
    return None
