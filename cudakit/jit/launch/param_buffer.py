"""Launches whose parameters the driver gets as bytes: those that cuda.core's launch cannot pass, and repeated ones."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cudakit.errors import LaunchError
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.load.load import Loaded
from cudakit.streams.streams import handle_of

if TYPE_CHECKING:
    from cuda.core import LaunchConfig, Stream


_TENSOR_MAP_BYTES: Final = 128


class PackedLaunch:
    """A launch with parameters that cuda.core's launch cannot pass: structs by value, tensors, long vectors.

    All parameters lie in one buffer, made once. A lock keeps two threads from writing it at once, because the driver
    reads it while the interpreter is released.
    """

    def __init__(self, loaded: Loaded, fragments: Sequence[Fragment]) -> None:
        self._loaded, self._fragments = loaded, fragments
        parts, offsets, end = [], [], 0
        for fragment, size, parameter in zip(fragments, loaded.sizes, loaded.parameters, strict=True):
            width = {"q": 8, "d": 8}.get(fragment.form, size)
            code = {"q": "q", "d": "d"}.get(fragment.form, f"{size}s")
            # The widest parameter, a tensor map, needs 64-byte alignment.
            padding = -end % (64 if size >= 64 else 16)
            parts += [f"{padding}x", code]
            inside = (0,) if parameter.layout is None else parameter.layout.offsets(parameter.count)
            offsets += [end + padding + offset for offset in inside]
            end += padding + width
        self._pack = struct.Struct("<" + "".join(parts)).pack_into
        self._buffer = ctypes.create_string_buffer(end + 64)
        base = -(-ctypes.addressof(self._buffer) // 64) * 64
        self._start = base - ctypes.addressof(self._buffer)
        self._pointers = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
        self._address = ctypes.addressof(self._pointers)
        self._native: dict[tuple[int, int], tuple[Any, LaunchConfig]] = {}
        # Stream, configuration and kernel of the last launch, and the driver's call with its own forms of these.
        self._last: tuple[Any, ...] = (None, None, None, None)
        self._lock = threading.Lock()
        self._forms = tuple(fragment.form for fragment in fragments)

    def __call__(self, stream: Stream, config: LaunchConfig, kernel: Any, *values: Any) -> None:
        last_stream, last_config, last_kernel, entry = self._last
        if stream is not last_stream or config is not last_config or kernel is not last_kernel:
            from cuda.bindings import driver

            native = self._native_config(stream, config)
            entry = functools.partial(driver.cuLaunchKernelEx, native, driver.CUfunction(int(kernel.handle)))
            self._last = stream, config, kernel, entry
        if "native" in self._forms:
            values = self._as_bytes(values)
        with self._lock:
            self._pack(self._buffer, self._start, *values)
            (status,) = entry(self._address, 0)
        if int(status) != 0:
            raise LaunchError(f"the driver refused the launch: {status.name}")

    def bound(self, stream: Stream, config: LaunchConfig, kernel: Any, values: Sequence[Any]) -> Callable[[], None]:
        """Return the launch with these values, whose bytes are written once, into a buffer of its own."""
        own = PackedLaunch(self._loaded, self._fragments)
        own._pack(own._buffer, own._start, *own._as_bytes(values))
        cupy_launch = _cupy_launch()
        if cupy_launch is not None and is_plain(config):
            place = (*config.grid, *config.block, config.shmem_size, handle_of(stream))
            plain = functools.partial(cupy_launch, int(kernel.handle), *place, own._address, 0)
            plain.__dict__["buffer"] = own
            return plain
        from cuda.bindings import driver

        launch = driver.cuLaunchKernelEx
        native, function = own._native_config(stream, config), driver.CUfunction(int(kernel.handle))

        def run() -> None:
            (status,) = launch(native, function, own._address, 0)
            if status:
                raise LaunchError(f"the driver refused the launch: {status.name}")

        return run

    def _as_bytes(self, values: Sequence[Any]) -> tuple[Any, ...]:
        pairs = zip(self._forms, values, strict=True)
        return tuple([native_bytes(value) if form == "native" else value for form, value in pairs])

    def _native_config(self, stream: Stream, config: LaunchConfig) -> Any:
        key = (id(config), handle_of(stream))
        entry = self._native.get(key)
        if entry is None:
            entry = self._native[key] = (native_config(stream, config), config)
        return entry[0]


def bound_launch(
    run: Callable[..., None],
    loaded: Loaded,
    fragments: Sequence[Fragment],
    stream: Stream,
    config: LaunchConfig,
    values: Sequence[Any],
) -> Callable[[], None]:
    """Return ``run(stream, config, kernel, *values)`` as a function without arguments.

    With CuPy, the parameters' bytes are written now, and CuPy calls the driver: in 3.5 µs, where cuda.core takes 4.0
    (NVIDIA H200, 2026-11-27).
    """
    if isinstance(run, PackedLaunch):
        return run.bound(stream, config, loaded.kernel, values)
    if _cupy_launch() is not None and is_plain(config):
        return PackedLaunch(loaded, fragments).bound(stream, config, loaded.kernel, values)
    return functools.partial(run, stream, config, loaded.kernel, *values)


def is_plain(config: LaunchConfig) -> bool:
    """Return whether a configuration has a grid, a block and shared memory only."""
    return not (config.cluster or config.is_cooperative or config.programmatic_stream_serialization)


def _cupy_launch() -> Callable[..., None] | None:
    """Return CuPy's call of ``cuLaunchKernel``, if CuPy is loaded. It costs the host less than the bindings' call."""
    driver = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "driver", None)
    launch: Callable[..., None] | None = getattr(driver, "launchKernel", None)
    return launch


def native_bytes(value: Any) -> bytes:
    """Return the bytes of a complex number, or of a tensor map."""
    return struct.pack("<2d", value.real, value.imag) if isinstance(value, complex) else tensor_map_bytes(value)


def tensor_map_bytes(descriptor: Any) -> bytes:
    """Return the 128 bytes of the ``CUtensorMap`` in a ``cuda.core.TensorMapDescriptor``.

    Up to cuda.core 1.2 there is no public way to them: only its own `launch` uses them, by the private class
    `ParamHolder`. A kernel with a struct beside its tensor map needs them here. `tests/jit/launch/test_param_buffer.py`
    fails when a cuda.core without that class comes.
    """
    from cuda.core._kernel_arg_handler import ParamHolder

    holder = ParamHolder((descriptor,))
    return ctypes.string_at(ctypes.cast(holder.ptr, ctypes.POINTER(ctypes.c_void_p))[0] or 0, _TENSOR_MAP_BYTES)


def native_config(stream: Stream, config: LaunchConfig) -> Any:
    """Return a launch configuration on a stream as the driver's ``CUlaunchConfig``."""
    from cuda.bindings import driver

    native = driver.CUlaunchConfig()
    cluster = config.cluster or (1, 1, 1)
    native.gridDimX, native.gridDimY, native.gridDimZ = (
        count * blocks for count, blocks in zip(config.grid, cluster, strict=True)
    )
    native.blockDimX, native.blockDimY, native.blockDimZ = config.block
    native.sharedMemBytes = config.shmem_size
    native.hStream = driver.CUstream(int(stream.handle))
    attributes = []

    def add(identifier: str) -> Any:
        attribute = driver.CUlaunchAttribute()
        attribute.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{identifier}")
        attributes.append(attribute)
        return attribute

    if config.cluster:
        dimension = add("CLUSTER_DIMENSION").value.clusterDim
        dimension.x, dimension.y, dimension.z = config.cluster
    if config.is_cooperative:
        add("COOPERATIVE").value.cooperative = 1
    if config.programmatic_stream_serialization:
        add("PROGRAMMATIC_STREAM_SERIALIZATION").value.programmaticStreamSerializationAllowed = 1
    native.numAttrs, native.attrs = len(attributes), attributes
    return native
