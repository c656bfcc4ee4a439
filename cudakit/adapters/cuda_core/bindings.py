"""Stand-ins for the calls of ``cuda.bindings.driver``, ``runtime`` and ``nvrtc``, on cuda.core's stand-ins.

A handle of the driver is the handle of a stand-in: a stream of ``cuStreamCreate`` is one of cuda.core's, and a kernel
of cuda.core's can be launched by ``cuLaunchKernel``. NVRTC needs no driver. It is asked for PTX beside machine code.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cudakit.adapters import driver_calls
from cudakit.adapters.cuda_core import launching
from cudakit.adapters.cuda_core.devices import CONTEXT, Device, contexts
from cudakit.adapters.cuda_core.faults import CoreError, living
from cudakit.adapters.cuda_core.memory import array_at
from cudakit.adapters.cuda_core.programs import Kernel, ObjectCode, remember
from cudakit.adapters.cuda_core.resources import KernelAttributes, KernelOccupancy
from cudakit.adapters.cuda_core.streams import Event, Stream, stream_of_handle
from cudakit.adapters.driver_calls import INVALID_VALUE, NOT_SUPPORTED, binding
from cudakit.emulator.face import as_device, bytes_at
from cudakit.errors import CudakitError
from cudakit.jit.load.config import config
from cudakit.memory import memory

_INVALID_HANDLE, _NOT_FOUND, _INVALID_CONTEXT, _INVALID_IMAGE = 400, 500, 201, 200
_ELF = b"\x7fELF"
#: Attributes of functions, by the driver's names, and the names of `KernelAttributes`.
_FUNCTION_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": "max_threads_per_block", "SHARED_SIZE_BYTES": "shared_size_bytes",
    "CONST_SIZE_BYTES": "const_size_bytes", "LOCAL_SIZE_BYTES": "local_size_bytes", "NUM_REGS": "num_regs",
    "PTX_VERSION": "ptx_version", "BINARY_VERSION": "binary_version", "CACHE_MODE_CA": "cache_mode_ca",
    "MAX_DYNAMIC_SHARED_SIZE_BYTES": "max_dynamic_shared_size_bytes",
}  # fmt: skip


class Refusal(CoreError):
    """A call that the driver refuses: its code is the call's first result."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def host_address(value: Any) -> int:
    """Return the address that ``cuda.bindings`` takes from an argument: a number, None, or an object with a buffer."""
    if value is None:
        return 0
    if hasattr(value, "__int__") and not isinstance(value, np.ndarray):
        return int(value)
    if hasattr(value, "getPtr"):
        return int(value.getPtr())
    return int(np.frombuffer(value, np.uint8).__array_interface__["data"][0])


class Driver(driver_calls.Driver):
    """Functions of the CUDA driver for programs."""

    def __init__(self) -> None:
        super().__init__(Refusal, "the program")
        self._objects: dict[int, Any] = {}
        self._variables: dict[int, np.ndarray] = {}

    def _keep(self, value: Any, number: int | None = None) -> int:
        """Keep an object until it is destroyed, and return its handle."""
        handle = id(value) if number is None else number
        self._objects[handle] = value
        return handle

    def _object(self, handle: Any, of_class: type) -> Any:
        """Return the object with a handle."""
        value = self._objects.get(int(handle)) or living.get(int(handle))
        if not isinstance(value, of_class):
            raise Refusal(f"{int(handle):#x} is no handle of a living {of_class.__name__}", _INVALID_HANDLE)
        return value

    def _destroy(self, handle: Any) -> None:
        self._objects.pop(int(handle), None)

    cuStreamDestroy = _destroy
    cuEventDestroy = _destroy
    cuModuleUnload = _destroy
    cuLibraryUnload = _destroy

    # ── device and context ──

    def cuDeviceGet(self, number: int) -> Any:
        with _refused(101):
            Device(number)
        return binding().CUdevice(number)

    def cuDeviceGetName(self, length: int, device: Any) -> bytes:
        return str(Device().name).encode()[: length - 1].ljust(length, b"\0")

    def cuDeviceGetPCIBusId(self, length: int, device: Any) -> bytes:
        return str(Device().pci_bus_id).encode()[: length - 1].ljust(length, b"\0")

    def cuDeviceTotalMem(self, device: Any) -> int:
        return self.cuMemGetInfo()[1]

    def cuDeviceComputeCapability(self, device: Any) -> tuple[int, int]:
        major, minor = Device().compute_capability
        return major, minor

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return driver_calls.context(CONTEXT.handle)

    def cuCtxCreate(self, *arguments: Any) -> Any:
        handle = driver_calls.context(CONTEXT.handle)
        self.cuCtxPushCurrent(handle)
        return handle

    def cuCtxDestroy(self, context: Any) -> None:
        if int(context) in contexts():
            contexts().remove(int(context))

    def cuCtxSetCurrent(self, context: Any) -> None:
        contexts()[-1:] = [int(context)] if int(context) else []

    def cuCtxGetCurrent(self) -> Any:
        return driver_calls.context(contexts()[-1] if contexts() else 0)

    def cuCtxPushCurrent(self, context: Any) -> None:
        contexts().append(int(context))

    def cuCtxPopCurrent(self) -> Any:
        if not contexts():
            raise Refusal("no context is current in this thread", _INVALID_CONTEXT)
        return driver_calls.context(contexts().pop())

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        return 0, -5

    def cuGetErrorName(self, code: Any) -> bytes:
        return str(binding().CUresult(int(code)).name).encode()

    def cuGetErrorString(self, code: Any) -> bytes:
        return _LAST.get(int(code), "").encode() or self.cuGetErrorName(code)

    # ── memory ──

    def cuMemAllocHost(self, size: int) -> int:
        return self.cuMemHostAlloc(size, 0)

    def cuMemAllocAsync(self, size: int, stream: Any) -> Any:
        return self.cuMemAlloc(size)

    def cuMemFreeAsync(self, pointer: Any, stream: Any) -> None:
        self.cuMemFree(pointer)

    def _side(self, name: str, address: Any, size: int, of_host: bool | None) -> np.ndarray:
        """Return the memory of one side of a copy. `of_host` is None where the copy's name does not tell."""
        place = host_address(address)
        array = array_at(place)
        if array is None:
            array = self._variables.get(place)
        if array is not None and array.size >= size:
            return array[:size]  # type: ignore[no-any-return]
        if array is None and of_host is not False and place:
            return bytes_at(None, place, size)
        raise Refusal(f"{name}: the device has no {size} bytes of memory at {place:#x}", INVALID_VALUE)

    def _copied(self, name: str, target: Any, source: Any, size: int, stream: Any = 0) -> None:
        if not size:
            return
        sides = {"HtoD": (False, True), "DtoH": (True, False), "DtoD": (False, False)}.get(name[8:12], (None, None))
        into, out = (self._side(name, *side) for side in ((target, size, sides[0]), (source, size, sides[1])))
        memory.copy(into, out, stream_of_handle(int(stream)))
        if not name.endswith("Async"):
            self.cuCtxSynchronize()

    def _filled(self, name: str, target: Any, value: int, count: int, stream: Any = 0) -> None:
        dtype = {"D8": np.uint8, "D16": np.uint16, "D32": np.uint32}[
            name.removeprefix("cuMemset").removesuffix("Async")
        ]
        if count:
            into = self._side(name, target, count * np.dtype(dtype).itemsize, False)
            pattern = as_device(np.full(count, value, dtype).view(np.uint8))
            memory.copy(into, pattern, stream_of_handle(int(stream)))

    def function(self, name: str) -> Callable[..., Any]:
        """Return the driver's function with a name.

        Raises
        ------
        CoreError
            For a function that the emulator lacks.
        """
        plain = name.removesuffix("Async")
        if plain in ("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD"):
            return functools.partial(self._copied, name)
        if plain in ("cuMemsetD8", "cuMemsetD16", "cuMemsetD32"):
            return functools.partial(self._filled, name)
        if name.startswith(("cuMemcpy", "cuMemset")):
            raise Refusal(f"the program calls {name} of the CUDA driver, which the emulator lacks", NOT_SUPPORTED)
        return super().function(name)

    # ── streams and events ──

    def cuStreamCreate(self, flags: Any) -> Any:
        stream: Stream = Stream()
        return binding().CUstream(self._keep(stream, stream.handle))

    def cuStreamCreateWithPriority(self, flags: Any, priority: int) -> Any:
        return self.cuStreamCreate(flags)

    def cuStreamSynchronize(self, stream: Any) -> None:
        stream_of_handle(int(stream)).sync()

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: Any) -> None:
        stream_of_handle(int(stream)).wait(self._object(event, Event))

    def cuEventCreate(self, flags: Any) -> Any:
        event: Event = Event(stream_of_handle(0), None, False)
        return binding().CUevent(self._keep(event))

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        self._object(event, Event).record_on(stream_of_handle(int(stream)))

    def cuEventSynchronize(self, event: Any) -> None:
        self._object(event, Event).sync()

    def cuEventElapsedTime(self, begun: Any, ended: Any) -> float:
        if not all(self._object(event, Event).is_recorded for event in (begun, ended)):
            raise Refusal("an event has not been recorded", _INVALID_HANDLE)
        return math.nan

    # ── code and launches ──

    def cuModuleLoadData(self, image: Any) -> Any:
        return binding().CUmodule(self._keep(_code(image)))

    def cuModuleLoadDataEx(self, image: Any, *options: Any) -> Any:
        return self.cuModuleLoadData(image)

    def cuModuleLoad(self, path: Any) -> Any:
        return self.cuModuleLoadData(Path(path.decode() if isinstance(path, bytes) else path).read_bytes())

    def cuLibraryLoadData(self, image: Any, *options: Any) -> Any:
        return binding().CUlibrary(self._keep(_code(image)))

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return binding().CUfunction(self._kernel_of(module, name))

    def cuLibraryGetKernel(self, library: Any, name: bytes) -> Any:
        return binding().CUkernel(self._kernel_of(library, name))

    def _kernel_of(self, module: Any, name: bytes) -> int:
        code: ObjectCode = self._object(module, ObjectCode)
        with _refused(_NOT_FOUND):
            kernel = code.get_kernel(name)
        return self._keep(kernel, kernel.handle)

    def cuKernelGetFunction(self, kernel: Any) -> Any:
        return binding().CUfunction(int(kernel))

    def cuModuleGetGlobal(self, module: Any, name: bytes) -> tuple[Any, int]:
        code: ObjectCode = self._object(module, ObjectCode)
        entry = next(iter(code.kernels()), None)
        with _refused(_NOT_FOUND):
            if entry is None:
                raise CoreError("the module has no kernel, and so no variables that a kernel reads")
            address, size = code.get_kernel(entry).checked.globals.address(name.decode())
        self._variables[address] = as_device(bytes_at(None, address, size))
        return binding().CUdeviceptr(address), size

    cuLibraryGetGlobal = cuModuleGetGlobal

    def cuFuncGetAttribute(self, attribute: Any, function: Any) -> int:
        name = getattr(attribute, "name", "").removeprefix("CU_FUNC_ATTRIBUTE_")
        if name not in _FUNCTION_ATTRIBUTES:
            raise Refusal(f"the emulator has no attribute {name} of functions", INVALID_VALUE)
        return int(getattr(KernelAttributes(Kernel.from_handle(int(function))), _FUNCTION_ATTRIBUTES[name]))

    def cuKernelGetAttribute(self, attribute: Any, kernel: Any, device: Any) -> int:
        return self.cuFuncGetAttribute(attribute, kernel)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Any, threads: int, shared_bytes: int) -> int:
        occupancy: KernelOccupancy = KernelOccupancy(Kernel.from_handle(int(function)))
        return occupancy.max_active_blocks_per_multiprocessor(threads, shared_bytes)

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> None:
        *sides, shared_bytes, stream, values, _ = arguments
        self._launch(function, sides, shared_bytes, stream, values)

    def cuLaunchCooperativeKernel(self, function: Any, *arguments: Any) -> None:
        *sides, shared_bytes, stream, values = arguments
        self._launch(function, sides, shared_bytes, stream, values, cooperative=True)

    def cuLaunchKernelEx(self, options: Any, function: Any, values: Any, extra: Any) -> None:
        sides = [getattr(options, f"{extent}Dim{axis}") for extent in ("grid", "block") for axis in "XYZ"]
        words: dict[str, Any] = {}
        for attribute in options.attrs[: options.numAttrs] if options.numAttrs else ():
            name, value = attribute.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"), attribute.value
            if name == "COOPERATIVE":
                words["cooperative"] = bool(value.cooperative)
            elif name == "CLUSTER_DIMENSION":
                words["cluster"] = tuple(getattr(value.clusterDim, axis) for axis in "xyz")
        self._launch(function, sides, options.sharedMemBytes, options.hStream, values, **words)

    def _launch(self, function: Any, sides: Any, shared_bytes: int, stream: Any, values: Any, **words: Any) -> None:
        grid, block = tuple(map(int, sides[:3])), tuple(map(int, sides[3:]))
        with _refused(_INVALID_HANDLE):
            kernel = Kernel.from_handle(int(function))
        launch = config(grid, block, shared_bytes=int(shared_bytes), **words)
        arguments = launching.values_of(kernel, _bytes_of_arguments(kernel, values))
        kernel.checked(stream_of_handle(int(stream)), launch, *arguments)


#: Functions of the runtime whose names differ from the driver's in more than ``cuda``.
_RUNTIME_NAMES = {
    "cudaFree": "cuMemFree", "cudaMallocHost": "cuMemAllocHost", "cudaFreeHost": "cuMemFreeHost",
    "cudaFreeAsync": "cuMemFreeAsync", "cudaMemset": "cuMemsetD8", "cudaMemsetAsync": "cuMemsetD8Async",
    "cudaDeviceSynchronize": "cuCtxSynchronize", "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaGetDevice": "cuCtxGetDevice", "cudaStreamCreateWithFlags": "cuStreamCreate",
    "cudaEventCreateWithFlags": "cuEventCreate",
}  # fmt: skip


class Runtime:
    """Functions of the CUDA runtime whose arguments differ from the driver's. The others are the driver's own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def function(self, name: str) -> Callable[..., Any]:
        """Return the runtime's function with a name.

        Raises
        ------
        CoreError
            For a function that the emulator lacks.
        """
        function: Callable[..., Any] | None = getattr(self, name, None)
        return function or self._driver.function(_RUNTIME_NAMES.get(name) or name.replace("cuda", "cu", 1))

    def cudaSetDevice(self, number: int) -> None:
        self._driver.cuCtxSetCurrent(self._driver.cuDevicePrimaryCtxRetain(self._driver.cuDeviceGet(number)))

    def cudaMemcpy(self, target: Any, source: Any, size: int, direction: Any) -> None:
        self._driver.function("cuMemcpy" + _SIDES[int(direction)])(target, source, size)

    def cudaMemcpyAsync(self, target: Any, source: Any, size: int, direction: Any, stream: Any) -> None:
        self._driver.function(f"cuMemcpy{_SIDES[int(direction)]}Async")(target, source, size, stream)

    def cudaDeviceGetAttribute(self, code: Any, device: Any) -> int:
        return self._driver.cuDeviceGetAttribute(binding().CUdevice_attribute(int(code)), device)

    def cudaMalloc(self, size: int) -> int:
        return int(self._driver.cuMemAlloc(size))

    def cudaMallocAsync(self, size: int, stream: Any) -> int:
        return int(self._driver.cuMemAlloc(size))

    def cudaMallocManaged(self, size: int, flags: int) -> int:
        return int(self._driver.cuMemAllocManaged(size, flags))

    def cudaStreamCreate(self) -> Any:
        return self._driver.cuStreamCreate(0)

    def cudaEventCreate(self) -> Any:
        return self._driver.cuEventCreate(0)

    def cudaGetErrorName(self, code: Any) -> bytes:
        return str(code.name).encode()

    def cudaGetErrorString(self, code: Any) -> bytes:
        return _LAST.get(int(code), "").encode() or self.cudaGetErrorName(code)


#: Sides of the runtime's copies, by their number: its enum of directions.
_SIDES = ("", "HtoD", "DtoH", "DtoD", "")
#: Messages of the last refusals, by code: `cuGetErrorString` says them.
_LAST: dict[int, str] = {}


@contextlib.contextmanager
def _refused(code: int) -> Iterator[None]:
    """Refuse a call with a code of the driver, where the block raises."""
    try:
        yield
    except (CudakitError, ValueError, TypeError) as error:
        raise Refusal(str(error), code) from error


def _code(image: Any) -> ObjectCode:
    """Return the code of an image: bytes, an object with a buffer, or the address of machine code or of a text."""
    if hasattr(image, "__buffer__") or isinstance(image, bytes | bytearray | np.ndarray):
        data = bytes(memoryview(image))
    else:
        address = host_address(image)
        data = ctypes.string_at(address)
        if data.startswith(_ELF):
            data = ctypes.string_at(address, _size_of_elf(ctypes.string_at(address, 64)))
    if data.startswith(_ELF):
        data = data[: _size_of_elf(data)]
    with _refused(_INVALID_IMAGE):
        code = ObjectCode.from_cubin(data) if data.startswith(_ELF) else ObjectCode.from_ptx(data)
        code.kernels()  # a text that is no PTX is refused now
        return code


def _size_of_elf(header: bytes) -> int:
    """Return the bytes of an ELF file by its header: up to the end of its tables, which are last."""
    segments, sections = struct.unpack_from("<QQ", header, 32)
    sizes = struct.unpack_from("<4H", header, 54)
    return int(max(segments + sizes[0] * sizes[1], sections + sizes[2] * sizes[3]))


def _bytes_of_arguments(kernel: Kernel, values: Any) -> list[bytes]:
    """Return the bytes of a launch's arguments: of values and their ctypes, or at the addresses in a table."""
    sizes = [info.size for info in kernel.arguments_info]
    if not isinstance(values, tuple):
        table = (ctypes.c_void_p * len(sizes)).from_address(host_address(values)) if sizes else ()
        return [ctypes.string_at(address or 0, size) for address, size in zip(table, sizes, strict=True)]
    if values and not isinstance(values[0], tuple):
        values = ((values[0],), (values[1],))
    return [
        ctypes.string_at(value.getPtr(), size)
        if as_type is None
        else bytes(as_type(int(value) if as_type is ctypes.c_void_p else getattr(value, "value", value)))
        for value, as_type, size in zip(*(values or ((), ())), sizes, strict=True)
    ]


_DRIVER: Driver = Driver()
_RUNTIME = Runtime(_DRIVER)


def _result_codes(is_runtime: bool) -> Any:
    from cuda.bindings import driver, runtime

    return runtime.cudaError_t if is_runtime else driver.CUresult


def call(module: str, real: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call the stand-in for a function of ``cuda.bindings``, and return what the function would return.

    Parameters
    ----------
    module : str
        Module of the function, such as ``cuda.bindings.driver``.
    real : callable
        Function itself.
    arguments, keywords : tuple and dict
        Arguments of the call.
    """
    if module == "cuda.bindings.nvrtc":
        return _machine_code(real, *arguments)
    is_runtime = module == "cuda.bindings.runtime"
    function = (_RUNTIME if is_runtime else _DRIVER).function(real.__name__)
    if keywords:
        arguments = inspect.signature(real).bind(*arguments, **keywords).args
    codes = _result_codes(is_runtime)
    try:
        result = function(*arguments)
    except Refusal as error:
        _LAST[error.code] = str(error)
        return (codes(error.code), *[None] * _results_of(function))
    return (codes(0), *(result if isinstance(result, tuple) else () if result is None else (result,)))


def _results_of(function: Any) -> int:
    """Return how many results a function has, beside the code: its annotation says it."""
    text = str(getattr(function, "func", function).__annotations__.get("return"))
    return 0 if text == "None" else text.count(",") + 1


def _machine_code(real: Any, program: Any, code: Any) -> Any:
    """Ask NVRTC for machine code, and keep its PTX, which the emulator runs."""
    from cuda.bindings import nvrtc

    answer = real(program, code)
    status, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(int(size))
    if not int(status) and not int(nvrtc.nvrtcGetPTX(program, text)[0]):
        remember(bytes(code)[: _size_of_elf(code)], bytes(text).rstrip(b"\0").decode())
    return answer
