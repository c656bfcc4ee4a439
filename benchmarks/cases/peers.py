"""torch, and CUB's device-wide calls compiled by nvcc: None where they are not installed, or not wanted."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy

#: In the environment of a process that measures cudakit alone.
ALONE = "CUDAKIT_BENCHMARKS_ALONE"
_SOURCES = Path(__file__).parent / "cub"


@functools.cache
def torch_module() -> Any:
    """Torch, or None where it is not installed."""
    if ALONE in os.environ:
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch


def as_torch(array: Any) -> Any:
    """A CuPy array as a torch tensor, sharing its memory."""
    return torch_module().from_dlpack(array)


def ready(stream: Any) -> None:
    """Torch on `stream`, CUB compiled, all its files at once."""
    if torch := torch_module():
        torch.cuda.set_stream(torch.cuda.ExternalStream(int(stream.handle)))
    with ThreadPoolExecutor() as pool:
        list(pool.map(compiled, sorted(path.stem for path in _SOURCES.glob("*.cu"))))


@functools.cache
def compiled(name: str) -> ctypes.CDLL | None:
    """The shared library of `cub/<name>.cu`, compiled by nvcc; None where there is none."""
    source = _SOURCES / f"{name}.cu"
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None or ALONE in os.environ:
        return None
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"cudakit-peers-{name}-{digest}.so"
    if not target.exists():
        command = [nvcc, "-O3", "-std=c++17", "-arch=native", "--shared", "-Xcompiler", "-fPIC", "-o"]
        subprocess.run([*command, str(target), str(source)], check=True)
    return ctypes.CDLL(str(target))


def cub(name: str, function: str, *arguments: Any) -> Callable[[], object] | None:
    """A call of ``int function(void* temp, size_t& temp_bytes, …, cudaStream_t)`` of `cub/<name>.cu`, or None.

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
