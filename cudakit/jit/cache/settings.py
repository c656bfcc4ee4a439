"""Settings from the environment. Only this module of cudakit reads it, again at each compile.

=======================  ========================================================================  ================
variable                 meaning                                                                   default
=======================  ========================================================================  ================
``CUDAKIT_CACHE_DIR``    folder of the kernel cache; empty for no cache on disk                    the user's cache
``CUDAKIT_CACHE_BYTES``  largest size in bytes, such as ``500M`` (K, M and G are 1024-fold)        ``1G``
``CUDAKIT_QUIET``        1: long compiles are not reported on a terminal                           reported
``CUDAKIT_TRACEBACK``    ``full``: tracebacks of errors show cudakit's own frames too              left out
``CUDAKIT_MACHINE``      back-end of the emulator: ``auto``, ``compiled`` or ``numpy``             ``auto``
``CUDAKIT_TUNE``         ``kept``: no searches; ``off``: first points, and ``ck.ops``' defaults  ``search``
``CUDA_DEVICE``          number of the device that programs of PyCUDA take                         ``0``
``PYCUDA_…_FLAGS``       ``PYCUDA_DEFAULT_NVCC_FLAGS``: options of PyCUDA's ``SourceModule``       none
=======================  ========================================================================  ================
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cudakit import system
from cudakit.errors import CudakitError, shortened
from cudakit.records import NamedTuple

_DEFAULT_CACHE_BYTES: Final = 1 << 30
_UNIT_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Settings(NamedTuple):
    """Settings from the environment.

    Attributes
    ----------
    cache_folder : pathlib.Path or None
        Absolute path of the folder of compiled kernels; None for memory only.
    cache_bytes : int
        Limit on the folder's size in bytes.
    """

    cache_folder: Path | None
    cache_bytes: int


def environment_values() -> tuple[str | None, str | None]:
    """Return the values of ``CUDAKIT_CACHE_DIR`` and ``CUDAKIT_CACHE_BYTES``; None for a variable that is not set."""
    return os.environ.get("CUDAKIT_CACHE_DIR"), os.environ.get("CUDAKIT_CACHE_BYTES")


def quiet() -> bool:
    """Return whether compiles are not to be reported."""
    return os.environ.get("CUDAKIT_QUIET", "").strip() not in ("", "0")


def full_tracebacks() -> bool:
    """Return whether tracebacks of errors keep the frames of cudakit."""
    return os.environ.get("CUDAKIT_TRACEBACK", "").strip() == "full"


def machine() -> str:
    """Return the emulator's default back-end, as ``CUDAKIT_MACHINE`` names it; ``auto`` if it is not set."""
    return os.environ.get("CUDAKIT_MACHINE", "").strip() or "auto"


def tuning() -> str:
    """Return what tuned kernels may do, as ``CUDAKIT_TUNE`` says: ``search`` if it is not set.

    Raises
    ------
    CudakitError
        If the variable has another value.
    """
    value = os.environ.get("CUDAKIT_TUNE", "").strip() or "search"
    if value not in ("off", "kept", "search"):
        raise CudakitError(f"CUDAKIT_TUNE is one of off, kept, search; got {shortened(value)}")
    return value


def cuda_device() -> int:
    """Return the number of the device that programs of PyCUDA take by default.

    Raises
    ------
    CudakitError
        If the variable holds no number.
    """
    text = os.environ.get("CUDA_DEVICE", "").strip() or "0"
    if not text.isdigit():
        raise CudakitError(f"CUDA_DEVICE is the number of a device, got {shortened(text)}")
    return int(text)


def pycuda_flags() -> list[str]:
    """Return the options that programs of PyCUDA compile with by default."""
    return os.environ.get("PYCUDA_DEFAULT_NVCC_FLAGS", "").split()


def read() -> Settings:
    """Read the settings from the current environment.

    Raises
    ------
    CudakitError
        If the value of a variable cannot be used; the message names it.
    """
    folder, size = environment_values()
    return Settings(_cache_folder(folder), _cache_bytes(size))


def _cache_folder(value: str | None) -> Path | None:
    if value is None:
        return system.user_cache_folder(os.environ.get("XDG_CACHE_HOME", ""))
    if not value.strip():
        return None
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise CudakitError(
            f"CUDAKIT_CACHE_DIR={shortened(value)} cannot be used: {error}. Give the folder's full path."
        ) from error


def _cache_bytes(value: str | None) -> int:
    if value is None or not value.strip():
        return _DEFAULT_CACHE_BYTES
    match = re.fullmatch(r"\s*([0-9]+)\s*([KMG]?)\s*", value, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise CudakitError(
            f"CUDAKIT_CACHE_BYTES={shortened(value)} is not a size: expected a whole number above 0, with K, M or G "
            "after it if "
            'you like, such as 500M. For no cache on disk set CUDAKIT_CACHE_DIR="".'
        )
    return int(match[1]) * _UNIT_BYTES[match[2].upper()]


AFTER_S: Final = 1.0
_MOST_CHARACTERS: Final = 100


@contextlib.contextmanager
def noticed(subject: str) -> Iterator[None]:
    """Report a compile of `subject` on the terminal, once the block has taken a second; at the end report its time.

    Nothing is printed for a shorter block, or without a terminal.
    """
    if not _writes_to_terminal():
        yield
        return
    shown = "".join(letter if letter.isprintable() else "?" for letter in subject)
    shown = shown if len(shown) <= _MOST_CHARACTERS else f"{shown[: _MOST_CHARACTERS - 1]}…"
    is_reported = threading.Event()

    def tell() -> None:
        is_reported.set()
        print(f"cudakit: compiling {shown} …", file=sys.stderr, flush=True)

    timer = threading.Timer(AFTER_S, tell)
    timer.daemon = True
    start = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if is_reported.is_set():
        print(f"cudakit: compiled {shown} in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)


def _writes_to_terminal() -> bool:
    """Return whether this process writes to a terminal, which a notebook is not, and is no multiprocessing worker."""
    try:
        if not sys.stderr.isatty() or quiet():
            return False
    except (AttributeError, ValueError):  # stderr is missing or closed
        return False
    processes = sys.modules.get("multiprocessing.process")
    return processes is None or processes.parent_process() is None
