"""CuPy's kernels: they hold CUDA C++, of which a kernel is made.

In programs under ``cudakit check`` and ``cudakit inspect`` a module stands in CuPy's place where there is no GPU:
NumPy's functions on the host, kernels on the emulator. What NumPy lacks it lacks, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cudakit.emulator.face import DeviceArray, DeviceModule, EmulatorPlace, as_device, order
from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.reduction import Reduction, reduction
from cudakit.jit.load.config import config
from cudakit.jit.source.source import from_file, from_text
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel, Module, of_source


def from_cupy(kernel: Any) -> Kernel | Module | Elementwise | Reduction:
    """A kernel of CuPy's as cudakit's.

    Parameters
    ----------
    kernel : cupy.RawKernel, cupy.RawModule, cupy.ElementwiseKernel or cupy.ReductionKernel

    Returns
    -------
    Kernel, Module, Elementwise or Reduction
        Called as cudakit's are: ``kernel(stream, ck.config(grid, block), *arguments)``.

    Raises
    ------
    ArgumentError
        For what is none of these, and for options that mean nothing here.

    Examples
    --------
    >>> scale = ck.adapters.from_cupy(cupy.RawKernel(text, "scale"))
    >>> scale(ck.emulator.stream(), ck.config(4, 256), x, np.float32(2), x.size)
    """
    kind = type(kernel).__name__ if type(kernel).__module__.partition(".")[0] == "cupy" else ""
    if kind == "RawKernel":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Kernel.from_file(kernel.file_path, kernel.name, options=options)
        return of_source(from_text(kernel.code, 2), kernel.name, options)
    if kind == "RawModule":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Module.from_file(kernel.file_path, options=options)
        return Module(kernel.code, options=options)
    if kind == "ElementwiseKernel":
        inputs, outputs = _declared(kernel.in_params), _declared(kernel.out_params)
        return elementwise(inputs, outputs, kernel.operation, kernel.name, preamble=kernel.preamble)
    if kind == "ReductionKernel":
        return reduction(
            _declared(kernel.in_params), _declared(kernel.out_params), kernel.map_expr, kernel.reduce_expr,
            kernel.identity or None, kernel.post_map_expr, kernel.name, preamble=kernel.preamble,
        )  # fmt: skip
    raise ArgumentError(
        "from_cupy takes a RawKernel, RawModule, ElementwiseKernel or ReductionKernel of CuPy, got "
        f"{type(kernel).__name__}: {shortened(kernel)}"
    )


def _declared(parameters: Iterable[Any]) -> str:
    """Parameters as they were written."""
    return ", ".join(f"{'raw ' * each.raw}{each.ctype} {each.name}" for each in parameters)


def compile_options(given: Iterable[str]) -> CompileOptions:
    """What options of a compiler's command line mean.

    Raises
    ------
    ArgumentError
        For one that is not known here.
    """
    found: dict[str, Any] = {}
    defines: list[str | tuple[str, str]] = []
    folders: list[str] = []
    for option in given:
        name, _, value = option.lstrip("-").partition("=")
        if name == "std":
            found["std"] = value
        elif option.startswith("-D"):
            name, equals, value = option.removeprefix("-D").partition("=")
            defines.append((name, value) if equals else name)
        elif option.startswith("-I"):
            folders.append(option.removeprefix("-I"))
        elif name in ("include-path", "define-macro"):
            (folders if name == "include-path" else defines).append(value)
        elif name == "use_fast_math":
            found["fast_math"] = True
        elif name in ("maxrregcount", "lineinfo", "generate-line-info"):
            found |= {"max_registers": int(value)} if name == "maxrregcount" else {"lineinfo": True}
        else:
            raise ArgumentError(f"the compiler's option {shortened(option)} has no counterpart in CompileOptions")
    return CompileOptions(defines=defines, include_paths=folders, **found)


class _OfDevice(type):
    """The type of `ndarray`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, DeviceArray)


class ndarray(metaclass=_OfDevice):
    """See ``cupy.ndarray``: arrays are instances of it, and their type is another, as they are in host memory."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return as_device(np.ndarray(*arguments, **named))


def _stream() -> Any:
    return EmulatorPlace().current()


class _Function:
    """A kernel of a `RawModule`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, **named: Any
    ) -> None:
        launch = config(tuple(map(int, grid)), tuple(map(int, block)), shared_bytes=shared_mem)
        self._kernel(_stream(), launch, *args)


class RawKernel(_Function):
    """See ``cupy.RawKernel``."""

    def __init__(self, code: str, name: str, options: Sequence[str] = (), *arguments: Any, **named: Any) -> None:
        self.code, self.name, self.options = code, name, tuple(options)
        super().__init__(of_source(from_text(code, 2), name, compile_options(options)))


class RawModule:
    """See ``cupy.RawModule``."""

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: Sequence[str] = (), **named: Any
    ) -> None:
        self._options = compile_options(options)
        if code is None and path is None:
            raise CudakitError("RawModule takes code or a path")
        self._source = from_text(code, 2) if code is not None else from_file(str(path))

    def get_function(self, name: str) -> _Function:
        """The kernel of a name."""
        return _Function(of_source(self._source, name.partition("<")[0], self._options).module[name])


class ElementwiseKernel:
    """See ``cupy.ElementwiseKernel``."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", *arguments: Any, **named: Any
    ) -> None:
        self._inputs = len([each for each in in_params.split(",") if each.strip()])
        self._call = elementwise(in_params, out_params, operation, name, preamble=named.get("preamble", ""))

    def __call__(self, *args: Any, size: int | None = None, **named: Any) -> Any:
        inputs, outputs = args[: self._inputs], args[self._inputs :]
        out = outputs[0] if len(outputs) == 1 else outputs or None
        return as_device(self._call(*inputs, out=out, size=size, stream=_stream()))


class ReductionKernel:
    """See ``cupy.ReductionKernel``."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: str,
        name: str = "kernel",
        *arguments: Any,
        **named: Any,
    ) -> None:
        self._call = reduction(
            in_params, out_params, map_expr, reduce_expr, str(identity) or None, post_map_expr, name,
            preamble=named.get("preamble", ""),
        )  # fmt: skip

    def __call__(self, *args: Any, axis: Any = None, keepdims: bool = False, **named: Any) -> Any:
        return as_device(self._call(*args, axis=axis, keepdims=keepdims, stream=_stream()))


class _Stream:
    """See ``cupy.cuda.Stream``: its work is that of the emulator's stream."""

    null: _Stream

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.ptr = 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def use(self) -> _Stream:
        """Itself."""
        return self

    def synchronize(self) -> None:
        """Wait for all streams."""
        order().finish_all()

    def record(self, event: Any = None) -> Any:
        """An event."""
        return event or _Event()

    def wait_event(self, event: Any) -> None:
        """Nothing is left to wait for."""


_Stream.null = _Stream()


class _Event:
    """See ``cupy.cuda.Event``; no time passes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Nothing is left to wait for."""

    def synchronize(self) -> None:
        """Wait for all streams."""
        order().finish_all()


class _Device(_Stream):
    """See ``cupy.cuda.Device``."""

    id = 0
    compute_capability = "90"


def cupy_stand_in() -> dict[str, ModuleType]:
    """The modules that stand for CuPy's, by their names."""
    made = DeviceModule("cupy", np)
    cuda = ModuleType("cupy.cuda")
    runtime = ModuleType("cupy.cuda.runtime")
    runtime.__dict__.update(
        deviceSynchronize=order().finish_all,
        getDeviceCount=lambda: 1,
        streamSynchronize=lambda stream: order().finish_all(),
    )
    cuda.__dict__.update(
        Stream=_Stream, Event=_Event, Device=_Device, runtime=runtime, get_current_stream=lambda: _Stream.null,
        get_elapsed_time=lambda begun, ended: 0.0, is_available=lambda: True,
    )  # fmt: skip
    made.__dict__.update(
        RawKernel=RawKernel, RawModule=RawModule, ElementwiseKernel=ElementwiseKernel,
        ReductionKernel=ReductionKernel, ndarray=ndarray, cuda=cuda, __version__=np.__version__, __path__=[],
        asnumpy=lambda array, *arguments, **named: np.array(array, subok=False),
        get_array_module=lambda *arrays: made,
    )  # fmt: skip
    return {"cupy": made, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime}
