"""An adapter for CuPy's kernels, which contain CUDA C++.

Without a GPU, programs under ``cudakit check`` and ``cudakit inspect`` get a module in place of CuPy. The module has
NumPy's functions on the host, and runs kernels on the emulator. A function that NumPy lacks is missing in the module
too, and an error says so.
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
    """Convert a kernel of CuPy's to cudakit's.

    Parameters
    ----------
    kernel : cupy.RawKernel, cupy.RawModule, cupy.ElementwiseKernel or cupy.ReductionKernel
        Kernel or module of CuPy.

    Returns
    -------
    Kernel, Module, Elementwise or Reduction
        The kernel, called as cudakit's are: ``kernel(stream, ck.config(grid, block), *arguments)``.

    Raises
    ------
    ArgumentError
        For another object, and for compiler options without a counterpart here.

    Examples
    --------
    >>> scale = ck.adapters.from_cupy(cupy.RawKernel(text, "scale"))
    >>> scale(ck.emulator.stream(), ck.config(4, 256), x, np.float32(2), x.size)
    """
    class_name = type(kernel).__name__ if type(kernel).__module__.partition(".")[0] == "cupy" else ""
    if class_name == "RawKernel":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Kernel.from_file(kernel.file_path, kernel.name, options=options)
        return of_source(from_text(kernel.code, 2), kernel.name, options)
    if class_name == "RawModule":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Module.from_file(kernel.file_path, options=options)
        return Module(kernel.code, options=options)
    if class_name == "ElementwiseKernel":
        inputs, outputs = _declared(kernel.in_params), _declared(kernel.out_params)
        return elementwise(inputs, outputs, kernel.operation, kernel.name, preamble=kernel.preamble)
    if class_name == "ReductionKernel":
        return reduction(
            _declared(kernel.in_params), _declared(kernel.out_params), kernel.map_expr, kernel.reduce_expr,
            kernel.identity or None, kernel.post_map_expr, kernel.name, preamble=kernel.preamble,
        )  # fmt: skip
    raise ArgumentError(
        "from_cupy takes a RawKernel, RawModule, ElementwiseKernel or ReductionKernel of CuPy, got "
        f"{type(kernel).__name__}: {shortened(kernel)}"
    )


def _declared(parameters: Iterable[Any]) -> str:
    """Return the declaration of parameters as CuPy writes it: ``raw float x, int n``."""
    return ", ".join(f"{'raw ' * parameter.raw}{parameter.ctype} {parameter.name}" for parameter in parameters)


def compile_options(flags: Iterable[str]) -> CompileOptions:
    """Convert a compiler's command-line flags to options.

    Raises
    ------
    ArgumentError
        For an unknown flag.
    """
    options: dict[str, Any] = {}
    defines: list[str | tuple[str, str]] = []
    folders: list[str] = []
    for option in flags:
        name, _, value = option.lstrip("-").partition("=")
        if name == "std":
            options["std"] = value
        elif option.startswith("-D"):
            name, equals, value = option.removeprefix("-D").partition("=")
            defines.append((name, value) if equals else name)
        elif option.startswith("-I"):
            folders.append(option.removeprefix("-I"))
        elif name in ("include-path", "define-macro"):
            (folders if name == "include-path" else defines).append(value)
        elif name == "use_fast_math":
            options["fast_math"] = True
        elif name in ("maxrregcount", "lineinfo", "generate-line-info"):
            options |= {"max_registers": int(value)} if name == "maxrregcount" else {"lineinfo": True}
        else:
            raise ArgumentError(f"the compiler's option {shortened(option)} has no counterpart in CompileOptions")
    return CompileOptions(defines=defines, include_paths=folders, **options)


class _OfDevice(type):
    """The metaclass of `ndarray`, by which device arrays are instances of it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, DeviceArray)


class ndarray(metaclass=_OfDevice):
    """A stand-in for ``cupy.ndarray``: device arrays are instances of it, although their type is another class."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        return as_device(np.ndarray(*arguments, **keywords))


def _stream() -> Any:
    return EmulatorPlace().current()


class _Function:
    """A kernel of a `RawModule`, called as CuPy's: ``kernel(grid, block, args)``. It runs on the emulator."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, **keywords: Any
    ) -> None:
        launch = config(tuple(map(int, grid)), tuple(map(int, block)), shared_bytes=shared_mem)
        self._kernel(_stream(), launch, *args)


class RawKernel(_Function):
    """A stand-in for ``cupy.RawKernel``."""

    def __init__(self, code: str, name: str, options: Sequence[str] = (), *arguments: Any, **keywords: Any) -> None:
        self.code, self.name, self.options = code, name, tuple(options)
        super().__init__(of_source(from_text(code, 2), name, compile_options(options)))


class RawModule:
    """A stand-in for ``cupy.RawModule``."""

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: Sequence[str] = (), **keywords: Any
    ) -> None:
        self._options = compile_options(options)
        if code is None and path is None:
            raise CudakitError("RawModule takes code or a path")
        self._source = from_text(code, 2) if code is not None else from_file(str(path))

    def get_function(self, name: str) -> _Function:
        """Return the kernel with this name. The name may have template arguments, as in ``scale<float>``."""
        return _Function(of_source(self._source, name.partition("<")[0], self._options).module[name])


class ElementwiseKernel:
    """A stand-in for ``cupy.ElementwiseKernel``."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", *arguments: Any, **keywords: Any
    ) -> None:
        self._inputs = len([parameter for parameter in in_params.split(",") if parameter.strip()])
        self._call = elementwise(in_params, out_params, operation, name, preamble=keywords.get("preamble", ""))

    def __call__(self, *args: Any, size: int | None = None, **keywords: Any) -> Any:
        inputs, outputs = args[: self._inputs], args[self._inputs :]
        out = outputs[0] if len(outputs) == 1 else outputs or None
        return as_device(self._call(*inputs, out=out, size=size, stream=_stream()))


class ReductionKernel:
    """A stand-in for ``cupy.ReductionKernel``."""

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
        **keywords: Any,
    ) -> None:
        self._call = reduction(
            in_params, out_params, map_expr, reduce_expr, str(identity) or None, post_map_expr, name,
            preamble=keywords.get("preamble", ""),
        )  # fmt: skip

    def __call__(self, *args: Any, axis: Any = None, keepdims: bool = False, **keywords: Any) -> Any:
        return as_device(self._call(*args, axis=axis, keepdims=keepdims, stream=_stream()))


class _Stream:
    """A stand-in for ``cupy.cuda.Stream``: it uses the emulator's stream."""

    null: _Stream

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.ptr = 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def use(self) -> _Stream:
        """Return the stream."""
        return self

    def synchronize(self) -> None:
        """Wait for all streams."""
        order().finish_all()

    def record(self, event: Any = None) -> Any:
        """Return `event`, or a new event if it is None. All work is done already."""
        return event or _Event()

    def wait_event(self, event: Any) -> None:
        """Do nothing: all work is done."""


_Stream.null = _Stream()


class _Event:
    """A stand-in for ``cupy.cuda.Event``; no time passes between two events."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Do nothing: all work is done."""

    def synchronize(self) -> None:
        """Wait for all streams."""
        order().finish_all()


class _Device(_Stream):
    """A stand-in for ``cupy.cuda.Device``."""

    id = 0
    compute_capability = "90"


def cupy_stand_in() -> dict[str, ModuleType]:
    """Return the modules that stand in for CuPy's, by module name."""
    cupy = DeviceModule("cupy", np)
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
    cupy.__dict__.update(
        RawKernel=RawKernel, RawModule=RawModule, ElementwiseKernel=ElementwiseKernel,
        ReductionKernel=ReductionKernel, ndarray=ndarray, cuda=cuda, __version__=np.__version__, __path__=[],
        asnumpy=lambda array, *arguments, **keywords: np.array(array, subok=False),
        get_array_module=lambda *arrays: cupy,
    )  # fmt: skip
    return {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": runtime}
