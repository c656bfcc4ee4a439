"""What `kernels.py` measures: one module a family of ops, and what they share."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from tables import card_line, own_version


@dataclass(frozen=True)
class Case:
    """One op on one array.

    Attributes
    ----------
    op, dtype : str
    size : int
        Elements.
    bytes : int
        Read once and written once.
    run : callable
        cudakit's call, its output reused where the peers reuse theirs.
    peers : mapping
        The same work by others, by name.
    aim : str
        What the op should reach.
    """

    op: str
    dtype: str
    size: int
    bytes: int
    run: Callable[[], object]
    peers: dict[str, Callable[[], object]] = field(default_factory=dict)
    aim: str = ""


def random_array(size: int, dtype: str, seed: int = 1) -> Any:
    """Random elements on the device: the whole range of small integers, floating point from 0 to 1."""
    generator = cupy.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        raw = generator.integers(0, 2**31 - 1, -(-size * kind.itemsize // 4), dtype=cupy.int32)
        return raw.view(kind)[:size]
    out = cupy.empty(size, kind)
    for start in range(0, size, 1 << 24):
        part = out[start : start + (1 << 24)]
        part[...] = generator.random(part.size, dtype=cupy.float32).astype(kind)
    return out


def device_line() -> str:
    """Card, driver and versions."""
    import cuda.core

    compiler = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    return (
        f"{card_line()}, cudakit {own_version()}, cuda-core {cuda.core.__version__}, CuPy {cupy.__version__}, "
        f"NVRTC {compiler}"
    )


@functools.cache
def torch_module() -> Any:
    """Torch, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def as_torch(array: Any) -> Any:
    """A CuPy array as a torch tensor, sharing its memory."""
    return torch_module().from_dlpack(array)


@functools.cache
def compiled(name: str) -> ctypes.CDLL | None:
    """The shared library of `cases/<name>.cu`, compiled by nvcc; None where there is none."""
    source = Path(__file__).parent / f"{name}.cu"
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        return None
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"cudakit-peers-{name}-{digest}.so"
    if not target.exists():
        command = [
            nvcc,
            "-O3",
            "-std=c++17",
            "-arch=native",
            "--shared",
            "-Xcompiler",
            "-fPIC",
            "-o",
            str(target),
            source,
        ]
        subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def cub(name: str, function: str, *arguments: Any) -> Callable[[], object] | None:
    """A call of ``int function(void* temp, size_t& temp_bytes, …, cudaStream_t)`` of `cases/<name>.cu`, or None.

    The temporary memory is asked for and made once, before; arrays are passed by address, ints as 64 bits.
    """
    library = compiled(name)
    if library is None:
        return None
    entry = getattr(library, function)
    passed = [
        ctypes.c_void_p(a.data.ptr)
        if isinstance(a, cupy.ndarray)
        else ctypes.c_longlong(a)
        if isinstance(a, int)
        else a
        for a in arguments
    ]
    needed = ctypes.c_size_t(0)
    entry(ctypes.c_void_p(0), ctypes.byref(needed), *passed, ctypes.c_void_p(0))
    temporary = cupy.empty(max(1, needed.value), cupy.uint8)

    def run() -> None:
        stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
        status = entry(ctypes.c_void_p(temporary.data.ptr), ctypes.byref(needed), *passed, stream)
        if status:
            raise RuntimeError(f"{function} returned CUDA error {status}")

    run.keeps = arguments  # type: ignore[attr-defined]
    return run
