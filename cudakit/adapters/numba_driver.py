"""A stand-in for the CUDA driver beneath Numba-CUDA: all of Numba's own code runs as it is, kernels on the emulator.

Numba calls the driver by functions named ``cuMemAlloc``, ``cuEventRecord`` and so on. `Driver` has those functions.
`replace` puts them in the driver's place, and has kernels launched on the emulator. Device arrays, streams, reductions
and universal functions are Numba's.

Device memory is memory of the emulator, at its host address. All work is done when a call returns.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from cudakit.adapters import driver_calls, numba_kernels
from cudakit.adapters.driver_calls import binding
from cudakit.adapters.emulated_device import NAME, resident_blocks, resources_of
from cudakit.adapters.pycuda.allocations import memory
from cudakit.adapters.pycuda.array_layout import ArrayFlags
from cudakit.emulator.face import DeviceArray, EmulatorPlace, as_device, bytes_at, order
from cudakit.errors import ArgumentError, EmulationError, LaunchError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.memory.memory import empty


class Driver(driver_calls.Driver):
    """Functions of the CUDA driver for Numba. All work is done when a call returns, so streams are numbers.

    Parameters
    ----------
    api_error : type
        Numba's ``CudaAPIError``.
    """

    def __init__(self, api_error: type[Exception]) -> None:
        super().__init__(error_class(api_error), "Numba")
        self._numbers = itertools.count(1)
        self._recorded: set[int] = set()

    # ── streams and events ──

    def cuStreamCreate(self, flags: Any) -> Any:
        return binding().CUstream(next(self._numbers) << 8)

    def cuStreamSynchronize(self, stream: Any) -> None:
        order().finish_all()

    def cuEventCreate(self, flags: Any) -> Any:
        return binding().CUevent(next(self._numbers) << 8)

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        self._recorded.add(int(event))

    def cuEventElapsedTime(self, begun: Any, ended: Any) -> float:
        if not {int(begun), int(ended)} <= self._recorded:
            raise self.error("an event has not been recorded: call event.record() first", 400)
        return math.nan

    # ── launches ──

    def refuse_counts(self) -> NoReturn:
        """Raise the error for Numba's counts of the allocations in kernels, which the driver's modules hold."""
        raise self.error("counts of allocations in kernels (rtsys, NUMBA_CUDA_NRT_STATS) need a GPU", 801)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Any, threads: int, shared_bytes: int) -> int:
        return resident_blocks(threads, 0, shared_bytes)


def error_class(api_error: type[Exception]) -> type[Any]:
    """Return a class of errors that ``except CudaAPIError`` and ``except cudakit.LaunchError`` catch.

    Parameters
    ----------
    api_error : type
        Numba's ``CudaAPIError``.
    """

    class CudaAPIError(LaunchError, api_error):  # type: ignore[misc,valid-type]
        """An error of the driver, as Numba raises it, with cudakit's message."""

        def __init__(self, msg: str, code: int = 1) -> None:
            Exception.__init__(self, msg)
            self.code, self.msg = code, msg

        def __str__(self) -> str:
            return f"[{self.code}] {self.msg}"

    return CudaAPIError


def view_of(array: Any) -> np.ndarray:
    """Return the memory of an array as an array of the emulator, for a kernel.

    The view begins at the array's first element. If the array is contiguous, it has the array's shape and dtype, else
    it has the bytes up to the array's end.

    Parameters
    ----------
    array : numba.cuda.devicearray.DeviceNDArray or DeviceArray
        Device array of Numba's, or of the emulator.
    """
    view: np.ndarray | None = array.__dict__.get("_cudakit_view")
    if view is None:
        view = array.__dict__["_cudakit_view"] = _new_view(array)
    return view


def _new_view(array: Any) -> np.ndarray:
    if isinstance(array, DeviceArray):
        address = array.__array_interface__["data"][0]
    else:
        pointer = array.device_ctypes_pointer
        address = int(getattr(pointer, "value", pointer) or 0)
    dtype, shape, strides = np.dtype(array.dtype), tuple(array.shape), tuple(array.strides)
    if 0 in shape or not dtype.itemsize or not address:
        return as_device(np.empty(0, np.uint8))  # type: ignore[no-any-return]
    if dtype.kind not in "iufcb" or not ArrayFlags(shape, strides, dtype.itemsize).c_contiguous:
        span = sum(max(0, (extent - 1) * step) for extent, step in zip(shape, strides, strict=True))
        shape, dtype = (dtype.itemsize + span,), np.dtype(np.uint8)
    allocation = memory.at(address)
    if allocation is not None and allocation.array is not None:
        base = allocation.array.view(np.ndarray)
        return as_device(np.ndarray(shape, dtype, base, address - allocation.address))  # type: ignore[no-any-return]
    # Memory of another library, whose owner the array holds.
    size = dtype.itemsize * math.prod(shape)
    return as_device(bytes_at(None, address, size).view(dtype).reshape(shape))  # type: ignore[no-any-return]


def copied(host: np.ndarray, is_filled: bool) -> np.ndarray:
    """Return new device memory with the layout of a host array, and with its elements if `is_filled`."""
    strides = host.strides
    if not (host.flags.c_contiguous or host.flags.f_contiguous):
        strides = np.empty_like(host).strides
    data = empty(host.nbytes, np.uint8, stream=EmulatorPlace().current())
    device = np.ndarray(host.shape, host.dtype, data.view(np.ndarray), 0, strides)
    if is_filled:
        device[...] = host
    return as_device(device)  # type: ignore[no-any-return]


def _write_back(host: Any, device: np.ndarray) -> None:
    """Copy the elements of device memory back into a host array or record."""
    elements = device.view(np.ndarray)
    if isinstance(host, np.void):
        for name in host.dtype.names or ():
            host[name] = elements[name][()]
    elif host.flags.writeable:
        host[...] = elements


class Function:
    """A kernel of Numba's for types of arguments, compiled for the emulator.

    Attributes
    ----------
    name : str
        Name of the kernel.
    kernel : Kernel
        The kernel of cudakit's.
    """

    def __init__(self, library: Any, name: str, signature: str) -> None:
        text = library.get_asm_str(cc=EmulatorPlace().limits().compute_capability)
        links = [_linked(item) for item in vars(library)["_linking_files"]]
        self.name: str = name
        self.handle: int = 0
        self.kernel: Any = numba_kernels.from_ptx(text, signature, links)

    @functools.cached_property
    def attrs(self) -> Any:
        """Resources of the kernel's machine code, as Numba's functions have them."""
        used = resources_of(self.kernel)
        return SimpleNamespace(
            regs=used["num_regs"], shared=used["shared_size_bytes"], local=used["local_size_bytes"],
            const=used["const_size_bytes"], maxthreads=used["max_threads_per_block"],
        )  # fmt: skip


def _linked(item: Any) -> Any:
    """Return an input of the linker that Numba was given, as cudakit takes it.

    Headers in folders of numba-cuda's setting are included by their whole paths.
    """
    data = getattr(item, "data", None)
    if data is not None and type(item).__name__ != "CUSource":
        return data.encode() if isinstance(data, str) else data
    setting = getattr(sys.modules.get("numba.cuda.core.config"), "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "")
    folders = [
        *filter(None, setting.split(os.pathsep)),
        Path(sys.modules["numba.cuda"].__file__ or "").parent / "memory_management",
    ]
    if data is None and not str(item).endswith(".cu"):
        return Path(item) if isinstance(item, str) else item

    def whole(match: re.Match[str]) -> str:
        path = next(filter(Path.is_file, (Path(folder, match[1]) for folder in folders)), None)
        return match[0] if path is None else f'#include "{path}"'

    text = Path(item).read_text(encoding="utf-8") if data is None else data
    text = text.decode() if isinstance(text, bytes) else text
    return re.sub(r'#\s*include\s*[<"]([^>"]+)[>"]', whole, text)


def _name_of(library: Any) -> str:
    """Return the name of the Python function of which Numba compiled a library."""
    return re.sub(r"\W", "_", str(library.name).rpartition(".")[2].removesuffix("_kernel_"))


def _declare(kernel: Any) -> None:
    """Keep the signature of a kernel with its library, which knows no types."""
    library = kernel.library
    if "_cudakit_signature" not in library.__dict__:
        code = getattr(getattr(kernel, "py_func", None), "__code__", None)
        names = () if code is None else code.co_varnames[: code.co_argcount]
        signature = numba_kernels.signature_of(_name_of(library), kernel.argument_types, names)
        library.__dict__["_cudakit_signature"] = signature


def _function(library: Any) -> Function:
    """Return the function of a library, in place of Numba's own."""
    function: Function | None = library.__dict__.get("_cudakit")
    if function is None:
        function = Function(library, _name_of(library), vars(library)["_cudakit_signature"])
        library.__dict__["_cudakit"] = function
    return function


@functools.lru_cache(1024)
def _config(griddim: Any, blockdim: Any, sharedmem: int, is_cooperative: bool) -> Config:
    return config(griddim, blockdim, shared_bytes=sharedmem, cooperative=is_cooperative)


class Launcher:
    """Launches of Numba's compiled kernels on the emulator.

    Parameters
    ----------
    driver : Driver
        Driver that makes the errors.
    hint : type
        Base class of Numba's ``In``, ``Out`` and ``InOut``.
    as_cuda_array : callable
        Numba's function of that name.
    """

    def __init__(self, driver: Driver, hint: type, as_cuda_array: Callable[[Any], Any]) -> None:
        self._driver, self._hint, self._as_cuda_array = driver, hint, as_cuda_array

    def launch(
        self, kernel: Any, args: Sequence[Any], griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
    ) -> None:
        """Launch a kernel of Numba's.

        Parameters
        ----------
        kernel : numba.cuda.dispatcher._Kernel
            Compiled kernel.
        args : sequence
            Arguments of the call.
        griddim, blockdim : tuple of int
            Extents of grid and block.
        stream : stream
            Ignored: all work is done when the call returns.
        sharedmem : int
            Dynamic shared memory in bytes.
        """
        _declare(kernel)
        function = _function(kernel.library)
        if len(args) != len(kernel.argument_types):
            names = ", ".join(map(str, kernel.argument_types))
            raise ArgumentError(
                f"{function.name} is compiled for {len(kernel.argument_types)} arguments ({names}), got {len(args)}"
            )
        writebacks: list[Callable[[], None]] = []
        values: list[Any] = []
        for of_type, value in zip(kernel.argument_types, args, strict=True):
            for extension in reversed(kernel.extensions):
                of_type, value = extension.prepare_args(of_type, value, stream=stream, retr=writebacks)
            numba_kernels.append_parameters(values, of_type, value, functools.partial(self._view, writebacks))
        with self._errors():
            launch = _config(tuple(griddim), tuple(blockdim), sharedmem, kernel.cooperative)
            function.kernel(EmulatorPlace().current(), launch, *values)
        if kernel.debug:
            self._raise_from(kernel, function.kernel)
        for write_back in writebacks:
            write_back()

    def launch_mlir(self, kernel: numba_kernels.MlirKernel, config: Config, arguments: Sequence[Any]) -> None:
        """Launch a kernel of numba-cuda-mlir's on the emulator."""
        writebacks: list[Callable[[], None]] = []
        view = functools.partial(self._view, writebacks)
        types_of = tuple(map(kernel.type_of, arguments))
        with self._errors():
            kernel.launch(EmulatorPlace().current(), config, types_of, arguments, view)
        for write_back in writebacks:
            write_back()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of launches in the block as Numba's too."""
        try:
            yield
        except (LaunchError, EmulationError) as error:
            code = 700 if isinstance(error, EmulationError) else 1
            raise self._driver.error(str(error), code).with_traceback(error.__traceback__) from None

    def _view(self, writebacks: list[Callable[[], None]], value: Any) -> tuple[Any, np.ndarray]:
        """Return an argument in device memory, and the view of it that the kernel gets.

        Arrays of the host are copied there, and copied back after the launch.
        """
        use, value = (
            (type(value).__name__, value.__dict__["value"]) if isinstance(value, self._hint) else ("InOut", value)
        )
        if not hasattr(value, "__cuda_memory__") and not isinstance(value, DeviceArray):
            if not isinstance(value, np.ndarray) and hasattr(value, "__cuda_array_interface__"):
                value = self._as_cuda_array(value)
            else:
                host, value = value, copied(np.asarray(value), use != "Out")
                if use != "In":
                    writebacks.append(functools.partial(_write_back, host, value))
        return value, view_of(value)

    def _raise_from(self, kernel: Any, compiled: Kernel) -> None:
        """Raise the Python exception that a kernel compiled with ``debug=True`` has raised, if any."""
        name, stream = _name_of(kernel.library), EmulatorPlace().current()

        def number(suffix: str) -> int:
            return int(compiled.globals.read(f"{name}__{suffix}__", stream))

        code = number("errcode")
        if not code:
            return
        compiled.globals.write(f"{name}__errcode__", 0, stream)
        thread, block = ([number(f"{place}{axis}") for axis in "zyx"] for place in ("tid", "ctaid"))
        cls, arguments, place = kernel.call_helper.get_exception(code)
        where = "" if place is None else "In function {!r}, file {}, line {}, ".format(*place)
        head = f"{where}tid={thread} ctaid={block}"
        raise cls(*([f"{head}: {arguments[0]}", *arguments[1:]] if arguments else [head]))


def _device(self: Any, number: int) -> None:
    """Initialise a device of Numba's as the emulator's."""
    self.id, self.attributes, self.primary_context = number, {}, None
    self.compute_capability = EmulatorPlace().limits().compute_capability
    self.name, self.uuid = NAME, "GPU-00000000-0000-0000-0000-000000000000"
    context = SimpleNamespace(handle=driver_calls.context(1), _handle=driver_calls.context(1))
    self._dev = SimpleNamespace(set_current=lambda: None, context=context)


def _with_lines(make: Callable[..., None]) -> Callable[..., None]:
    """Wrap the initialiser of Numba's kernels so that the code has lines of Python, for errors and counters."""

    @functools.wraps(make)
    def make_with_lines(self: Any, *arguments: Any, **options: Any) -> None:
        with warnings.catch_warnings():
            # Numba has no source of functions that it has generated itself.
            warnings.filterwarnings("ignore", "Could not find source for function")
            if options.get("debug"):
                make(self, *arguments, **options)
            else:
                numba_kernels.with_lines(lambda lines: make(self, *arguments, **{**options, **lines}))
        with contextlib.suppress(NotImplementedError):  # a type that no launch can pass
            _declare(self)

    return make_with_lines


def _by_position(call: Callable[..., None]) -> Callable[..., None]:
    """Wrap the call of a configured kernel so that the error for an argument by name says what to write.

    Numba's kernels take arguments by position only.
    """

    @functools.wraps(call)
    def launch(self: Any, *arguments: Any, **named: Any) -> None:
        if named:
            raise _named(self.dispatcher.py_func, named)
        call(self, *arguments)

    return launch


def _named(function: Any, named: dict[str, Any]) -> TypeError:
    """Return the error for arguments by name in a call of Numba's kernel."""
    names = ", ".join(inspect.signature(function).parameters)
    return TypeError(
        f"{function.__name__} got an unexpected keyword argument {next(iter(named))!r}: kernels of Numba take arguments"
        f" by position, {function.__name__}[grid, block]({names}); those of ck.adapters.from_numba take names too"
    )


def put_driver(root: str, put: Callable[[Any, str, Any], None]) -> tuple[Any, Driver]:
    """Put the stand-in for the driver beneath a package with the modules of ``numba.cuda``.

    Return the package's module of the driver, and the stand-in.
    """
    from cuda.bindings import driver as binding

    numbas: Any = importlib.import_module(f"{root}.cudadrv.driver")
    devices = importlib.import_module(f"{root}.cudadrv.devices")
    driver = Driver(numbas.CudaAPIError)
    # These stay: by them Numba's arrays free their memory, up to the end of the process.
    for owner, name, value in (
        *((numbas, "USE_NV_BINDING", True), (devices, "USE_NV_BINDING", True)),
        *((numbas, "binding", binding), (numbas, "CU_STREAM_DEFAULT", 0)),
        *((numbas.driver, "is_initialized", False), (numbas.driver, "initialization_error", None)),
        (numbas.Driver, "_cuda_python_wrap_fn", lambda self, name: driver.function(name)),
    ):
        setattr(owner, name, value)
    put(numbas.Device, "__init__", _device)
    put(numbas.Context, "get_max_potential_block_size", lambda self, **options: (0, 128))
    put(numbas.Stream, "add_callback", lambda self, callback, arg=None: callback(self, 0, arg))
    return numbas, driver


def replace_mlir(module: Any, put: Callable[[Any, str, Any], None]) -> None:
    """Put the stand-in for the driver beneath ``numba_cuda_mlir.cuda``, and launch its kernels on the emulator.

    `module` and `put` are those of `replace`.
    """
    _, driver = put_driver("numba_cuda_mlir.numba_cuda", put)
    hint = importlib.import_module("numba_cuda_mlir.numba_cuda.args").ArgHint
    launcher = Launcher(driver, hint, module.as_cuda_array)

    def configured(
        self: Any, griddim: Any, blockdim: Any, stream: Any = None, sharedmem: Any = None, cluster: Any = None
    ) -> Callable[..., None]:
        kernel: numba_kernels.MlirKernel = self.__dict__.setdefault("_cudakit", numba_kernels.MlirKernel(self))
        configuration = config(griddim, blockdim, shared_bytes=sharedmem or 0, cluster=cluster)

        def launch(*arguments: Any, **named: Any) -> None:
            if named:
                raise _named(self.py_func, named)
            launcher.launch_mlir(kernel, configuration, arguments)

        return launch

    dispatcher = type(module.jit(lambda: None))
    put(dispatcher, "configure", configured)
    put(dispatcher, "__getitem__", lambda self, launch: configured(self, *launch))
    put(
        dispatcher,
        "forall",
        lambda self, ntasks, tpb=0, stream=None, sharedmem=0: configured(
            self, -(-ntasks // (tpb or 128)), tpb or 128, stream, sharedmem
        ),
    )


def replace(module: Any, put: Callable[[Any, str, Any], None]) -> None:
    """Put the stand-in for the driver beneath ``numba.cuda``. Numba's own simulator is left alone.

    Parameters
    ----------
    module : module
        ``numba.cuda``, of Numba or of numba-cuda.
    put : callable
        Function that is called as ``put(owner, name, value)`` for each part that is replaced.
    """
    root = module.__name__
    if ".simulator." in module.jit.__module__:
        return
    parts: dict[str, Any] = {
        name: importlib.import_module(f"{root}.{name}") for name in ("dispatcher", "codegen", "args")
    }
    numbas, driver = put_driver(root, put)
    launcher = Launcher(driver, parts["args"].ArgHint, module.as_cuda_array)
    if hasattr(numbas, "_to_core_stream"):
        put(parts["dispatcher"].driver, "_to_core_stream", lambda stream: stream)
    kernel = vars(parts["dispatcher"])["_Kernel"]
    for owner in (parts["dispatcher"].ForAll, vars(parts["dispatcher"])["_LaunchConfiguration"]):
        put(owner, "__call__", _by_position(owner.__call__))
    if (runtime := vars(parts["dispatcher"]).get("rtsys")) is not None:
        put(type(runtime), "_compile_memsys_module", lambda self: driver.refuse_counts())
    put(kernel, "__init__", _with_lines(kernel.__init__))
    put(kernel, "bind", lambda self: None)
    put(kernel, "launch", lambda self, *arguments, **options: launcher.launch(self, *arguments, **options))
    put(parts["codegen"].CUDACodeLibrary, "get_cufunc", _function)
