"""Kernels as functions of JAX on XLA's arrays, by XLA's foreign function interface; on the CPU, by the emulator."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from cudakit.bridges.derivative import derivatives
from cudakit.bridges.work import (
    Work,
    check_gradients,
    gradient_kernel,
    gradients_in_order,
    library,
    names_of,
    of_elementwise,
    of_function,
    of_kernel,
    pick,
    places_of,
    refuse_options,
    roles,
    taking,
)
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.kernel.kernel import Kernel
from cudakit.places import emulator
from cudakit.streams.streams import cupy_stream, device_stream, of_handle
from cudakit.types.checked import is_one_of

# XLA's C interface of custom calls (``xla/ffi/api/c_api.h``), read by ctypes.

#: Type of the frame's extension that asks for the handler's metadata and calls nothing.
_METADATA = 1
#: absl's error code for an invalid argument.
_INVALID_ARGUMENT = 3
#: Dtypes by XLA's type numbers.
_DTYPES = {
    number: np.dtype(dtype)
    for numbers, dtypes in (
        ((1, 2, 3, 4, 5), ("?", "i1", "i2", "i4", "i8")),
        ((6, 7, 8, 9), ("u1", "u2", "u4", "u8")),
        ((10, 11, 12, 15, 18), ("f2", "f4", "f8", "c8", "c16")),
        ((16, 19, 20), (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)),
    )
    for number, dtype in zip(numbers, dtypes, strict=True)
}


class _Extension(ctypes.Structure):
    pass


_HEAD: list[tuple[str, Any]] = [("struct_size", ctypes.c_size_t), ("extension", ctypes.POINTER(_Extension))]
_Extension._fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(_Extension)),
]


class _Version(ctypes.Structure):
    _fields_ = [*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class _StreamArguments(ctypes.Structure):
    _fields_ = [*_HEAD, ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


_STREAM_SIZE = ctypes.sizeof(_StreamArguments)


class _Api(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("error_create", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorArguments))),
        ("error_message", ctypes.c_void_p),
        ("error_destroy", ctypes.c_void_p),
        ("handler_register", ctypes.c_void_p),
        ("stream_get", ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_StreamArguments))),
    ]


#: Records as words, which are read faster than fields. An array: size of the record, extension, type (32 bits),
#: address, rank, address of the extents.
_ARRAY = struct.Struct("6Q")
#: A `_Frame`: size, extension, api, context, stage. Then size, extension, count, types and addresses of the arguments,
#: and the same of the results. Then size, extension, count, types, names and values of the attributes.
_FRAME = struct.Struct("21Q")
#: Shape, dtype and size of arrays, by type number and extents (as bytes).
_layouts: dict[tuple[int, bytes], tuple[tuple[int, ...], np.dtype, int]] = {}
_MOST_LAYOUTS = 4096


@functools.cache
def _bytes(size: int) -> Callable[[int], Any]:
    """Return a function that takes an address and returns the `size` bytes there as a ctypes array, without a copy."""
    return (ctypes.c_char * size).from_address


_frame_at, _array_at = _bytes(_FRAME.size), _bytes(_ARRAY.size)
_word, _number = ctypes.c_uint64.from_address, ctypes.c_int64.from_address


class _Buffers(ctypes.Structure):
    """XLA's structure of a call's arguments, and also of its results."""

    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
    ]


class _Scalar(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("value", ctypes.POINTER(ctypes.c_int64))]


class _Attributes(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.POINTER(_Scalar))),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Buffer(NamedTuple):
    """A row-major array in XLA's memory: address, shape, dtype and size in bytes."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int


class Call(NamedTuple):
    """A custom call of XLA's.

    Attributes
    ----------
    number : int
        Number that names the registered call: the only attribute of the custom call.
    arguments, results : list of Buffer
        Arrays that the call reads, and arrays for its results.
    stream : int or None
        Driver's handle of the stream; None on the host.
    """

    number: int
    arguments: list[Buffer]
    results: list[Buffer]
    stream: int | None


def handler(work: Callable[[Call], None], on_gpu: bool) -> Any:
    """Return a function that XLA can call for custom calls with one attribute, a 64-bit int.

    The function calls `work` with each custom call. An exception of `work` becomes an error of XLA's. Keep the function
    for as long as XLA may call it.
    """
    streams = _Streams() if on_gpu else None

    def handle(frame: int) -> int | None:
        try:
            words = _FRAME.unpack(_frame_at(frame))
            if words[1] and _is_metadata_request(_Frame.from_address(frame)):
                return None
            work(_read(words, streams))
        except BaseException as error:  # XLA's thread has no other handler
            text = f"{type(error).__name__}: {error}".encode()
            error_arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, text, _INVALID_ARGUMENT)
            error_address: int | None = _Frame.from_address(frame).api.contents.error_create(
                ctypes.byref(error_arguments)
            )
            return error_address
        return None

    return _HANDLER(handle)


def _is_metadata_request(frame: _Frame) -> bool:
    """Return whether XLA asks for the handler's interface version; also write the version into the frame then."""
    extension = frame.extension
    if not extension or extension.contents.type != _METADATA:
        return False
    metadata = ctypes.cast(extension, ctypes.POINTER(_MetadataExtension)).contents.metadata.contents
    own = frame.api.contents.version
    metadata.version.major, metadata.version.minor, metadata.traits = own.major, own.minor, 0
    return True


class _Streams:
    """XLA's function that gives a call's stream, as the driver's handle (int), for XLA's API and the call's context."""

    def __init__(self) -> None:
        self._asks: dict[int, Any] = {}

    def of(self, api: int, context: int) -> int:
        ask = self._asks.get(api)
        if ask is None:
            ask = self._asks[api] = _Api.from_address(api).stream_get
        stream_arguments = _StreamArguments(_STREAM_SIZE, None, context, None)
        if ask(ctypes.byref(stream_arguments)):
            raise RuntimeError("XLA gives no stream for the call")
        return int(stream_arguments.stream or 0)


def _read(words: Sequence[int], streams: _Streams | None) -> Call:
    scalar = _word(words[20]).value  # its type, then after 8 bytes its address
    number = _number(_word(scalar + 8).value).value
    stream = None if streams is None else streams.of(words[2], words[3])
    return Call(number, _buffers(words[7], words[9]), _buffers(words[12], words[14]), stream)


def _buffers(count: int, addresses: int) -> list[Buffer]:
    buffers = []
    for place in range(addresses, addresses + 8 * count, 8):
        _, _, type_number, data, rank, dims = _ARRAY.unpack(_array_at(_word(place).value))
        key = type_number & 0xFFFFFFFF, _bytes(8 * rank)(dims).raw if rank else b""
        layout = _layouts.get(key)
        if layout is None:
            layout = _layout(key, rank)
        buffers.append(Buffer(data, *layout))
    return buffers


def _layout(key: tuple[int, bytes], rank: int) -> tuple[tuple[int, ...], np.dtype, int]:
    dtype = _DTYPES.get(key[0])
    if dtype is None:
        raise TypeError(f"a type of XLA's (number {key[0]}) has no C++ equivalent here")
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    shape = struct.unpack(f"{rank}q", key[1])
    layout = _layouts[key] = shape, dtype, math.prod(shape) * dtype.itemsize
    return layout


#: Name of the handler for XLA.
_TARGET = "cudakit"
#: Methods for a batch; see `jax.ffi.ffi_call`.
_VMAP = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", None)


def call(
    function: Kernel | Elementwise | Callable[..., Any],
    out: Any = None,
    config: Any = None,
    *,
    values: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
    numbers: Sequence[str] = (),
    vmap_method: str | None = None,
    backward: Any = None,
) -> Callable[..., Any]:
    """Make a function of JAX's arrays of a kernel, an elementwise function or any function of arrays.

    It works with ``jax.jit``, on a GPU on XLA's stream, and on the CPU by the emulator. Arrays are XLA's own; only JAX
    copies.

    Parameters
    ----------
    function : Kernel, Elementwise, or callable
        A kernel's parameters are the arguments, by their names. ``const T*`` are arrays; ``T*`` are results, which are
        not passed, except `aliases`. Another function takes and returns CuPy's arrays, or NumPy's on the CPU; it may
        have parameters ``out`` and ``stream``. Its arguments with a default keep it, unless they are in `numbers`.
    out : jax.ShapeDtypeStruct, several, or callable, optional
        Shapes and dtypes of the results that are not in `aliases`, or a function of some arguments, by their names,
        that returns them: ``lambda x: x`` for results like x. An elementwise function determines them.
    config : Config, Cover or callable, optional
        A kernel's configuration, or a function of some arguments and results, by their names. Default: a thread for
        each element of the first result.
    values : mapping, optional
        Values of kernel parameters that are no arguments: constants, or functions of arguments and results. An integer
        called n or size that `out` does not name is the number of elements of the first result.
    aliases : sequence of str
        Parameters ``T*`` that are arguments and results. JAX copies the argument if it is needed again.
    numbers : sequence of str
        Arguments of a function, which is no kernel, that are numbers in place of arrays.
    vmap_method : str, optional
        Method for `jax.vmap`, as for `jax.ffi.ffi_call`: ``"broadcast_all"`` for functions that work on any shape,
        element by element, ``"sequential"`` for all others. Default: `jax.vmap` is refused; elementwise functions need
        no method.
    backward : Kernel, Elementwise or callable, optional
        Gradients. Its parameters are, by their names, arguments and results of the function, and ``dz``, the gradient
        of the result z (of a function ``dout``, or ``dout0`` …). A kernel or an elementwise function writes ``dx``, the
        gradient of the argument x. Another function returns a gradient for each array, or None. Default for an
        elementwise function: derived by SymPy.

    Returns
    -------
    callable
        ``f(*arguments)``, which returns an array, or a tuple of several results. Numbers are Python's, which a trace of
        JAX treats as constants.

    Raises
    ------
    ArgumentError
        For options that do not fit the function.
    CudakitError
        If JAX is not installed.

    Examples
    --------
    >>> axpy = ck.jax.call(kernel, lambda a, x, y: x)
    >>> z = jax.jit(lambda x, y: axpy(2.0, x, y))(x, y)
    """
    jax = library("jax", "ck.jax.call", "pip install jax, or jax[cuda13] for a GPU")
    if not is_one_of(vmap_method, _VMAP):
        raise ArgumentError(
            f"ck.jax.call: vmap_method is one of {', '.join(map(repr, _VMAP))}, got {shortened(vmap_method)}"
        )
    if isinstance(function, Kernel):
        name = function.name
        out_names = names_of(name, "out", out) if callable(out) else ()
        written = [role.name for role in roles(name, function) if role.category == "written"]
        if isinstance(aliases, str) or set(aliases) - set(written):
            raise ArgumentError(f"{name}: aliases names parameters T*, {', '.join(written)}; got {shortened(aliases)}")
        if aliases and isinstance(backward, Kernel | Elementwise):
            raise ArgumentError(
                f"{name}: with aliases d{aliases[0]} is the gradient of an argument and of a result: backward= is a "
                "function, which returns the argument's"
            )
        new_outputs = [output for output in written if output not in (*aliases, *(values or {}))]
        work = of_kernel(name, function, new_outputs, config, values, out_names)
        extra: dict[str, Any] = {"numbers": numbers}
    elif isinstance(function, Elementwise):
        name = function.recipe.name
        work = of_elementwise(name, function, numbers, _itself, _layout_of)
        extra = {"config": config, "values": values, "aliases": aliases}
    else:
        name = getattr(function, "__name__", "the function")
        several = not callable(out) and isinstance(out, Sequence) and len(out) > 1
        outputs = [f"out{k}" for k in range(len(out))] if several else ["out"]
        work = of_function(name, function, outputs, numbers, (), _itself)
        extra = {"config": config, "values": values, "aliases": aliases}
    refuse_options(name, function, extra)
    if out is None and work.outputs and not isinstance(function, Elementwise):
        raise ArgumentError(f"{name}: shapes and dtypes of {', '.join(work.outputs)} are not known; give out=")
    specs: Callable[..., Any] = functools.partial(_constant, () if out is None else out)
    if callable(out):
        specs = taking(pick(name, "out", out, [role.name for role in work.takes]), len(work.takes))
    elif out is None and isinstance(function, Elementwise):
        specs = functools.partial(_broadcast, jax, function)
    return _Function(jax, name, function, work, specs, vmap_method, backward)


def _constant(out: Any, *arguments: Any) -> Any:
    return out


def _broadcast(jax: Any, function: Elementwise, *arguments: Any) -> list[Any]:
    """Return shapes and dtypes of an elementwise function's results, as `jax.ShapeDtypeStruct`."""
    types = [np.dtype(value.dtype) if hasattr(value, "dtype") else type(value) for value in arguments]
    shape = np.broadcast_shapes(*(value.shape for value in arguments if hasattr(value, "shape")))
    return [jax.ShapeDtypeStruct(shape, dtype) for dtype in function.result_dtypes(*types)]


def _itself(value: Any) -> Any:
    return value


def _layout_of(value: Any) -> Any:
    """Return (dtype, shape) of an array, which is in row-major order; return the class of a number."""
    return (value.dtype, value.shape) if hasattr(value, "shape") else type(value)


class _Function:
    """A function of JAX's arrays that runs a `Work`; `call` makes it."""

    def __init__(
        self,
        jax: Any,
        name: str,
        function: Any,
        work: Work,
        specs: Callable[..., Any],
        vmap_method: str | None,
        backward: Any = None,
    ) -> None:
        self._jax, self._name, self._function, self._work = jax, name, function, work
        self._specs, self._vmap, self._backward = specs, vmap_method, backward
        self._functions: dict[Any, Callable[..., Any]] = {}
        _register(jax)

    def __repr__(self) -> str:
        return f"<cudakit.jax.call {self._name}({', '.join(role.name for role in self._work.takes)})>"

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's results."""
        takes = self._work.takes
        if len(arguments) != len(takes):
            names = ", ".join(role.name for role in takes)
            raise ArgumentError(f"{self._name} takes {len(takes)} arguments: {names}; got {len(arguments)}")
        numbers = {
            k: self._number(role.name, value)
            for k, (role, value) in enumerate(zip(takes, arguments, strict=True))
            if role.category == "number"
        }
        arrays = [arguments[k] for k in self._work.arrays]
        key = tuple((type(value), repr(value)) for value in numbers.values())
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._differentiable(_record(self._work, numbers), numbers)
        return function(*map(self._jax.numpy.asarray, arrays))

    def _number(self, name: str, value: Any) -> Any:
        if isinstance(value, self._jax.core.Tracer):
            raise ArgumentError(
                f"{self._name}: {name} is a number that goes by value, and is not known while JAX traces; give a "
                f"Python number, as a static argument (static_argnames={shortened(name)}) or a constant of the "
                "function is"
            )
        if isinstance(value, self._jax.Array):
            value = value.item()
        if not isinstance(value, bool | int | float | complex | np.generic):
            raise ArgumentError(f"{self._name}: {name} is a number, got {type(value).__name__}")
        return value

    def _operands(self, arrays: Sequence[Any], numbers: Mapping[int, Any]) -> list[Any]:
        """Return all arguments in order; `numbers` has the numbers by argument index, `arrays` are the others."""
        remaining = iter(arrays)
        return [numbers[k] if k in numbers else next(remaining) for k in range(len(self._work.takes))]

    def _results(self, arrays: Sequence[Any], numbers: Mapping[int, Any]) -> list[Any]:
        """Return shapes and dtypes of the results: first of the arguments that are changed, then of the outputs."""
        struct, work = self._jax.ShapeDtypeStruct, self._work
        operands = self._operands(arrays, numbers)
        changed = [value for role, value in zip(work.takes, operands, strict=True) if role.category == "written"]
        out = self._specs(*operands)
        specs = list(out) if isinstance(out, tuple | list) else [out]
        if len(specs) != len(work.outputs) or not all(
            hasattr(spec, "shape") and hasattr(spec, "dtype") for spec in specs
        ):
            raise ArgumentError(
                f"{self._name}: out is a jax.ShapeDtypeStruct for each of {', '.join(work.outputs) or 'no results'}, "
                f"got {specs}"
            )
        return [struct(spec.shape, spec.dtype) for spec in (*changed, *specs)]

    def _plain(self, number: int, numbers: Mapping[int, Any]) -> Callable[..., Any]:
        """Return a function of JAX's arrays that makes the registered call `number`, without gradients.

        `numbers` has the call's numbers by argument index. The function returns one array or a tuple.
        """
        written = [k for k, role in enumerate(self._work.takes) if role.category == "written"]
        aliases = {self._work.arrays.index(k): place for place, k in enumerate(written)}

        def plain(*arrays: Any) -> Any:
            method = self._vmap or ("broadcast_all" if isinstance(self._function, Elementwise) else None)
            if method == "broadcast_all" and isinstance(self._function, Elementwise):
                # The batch becomes the first dimension; without this, arrays of different ranks would not broadcast.
                rank = max(array.ndim for array in arrays)
                shaped = [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in arrays]
            else:
                shaped = list(arrays)
            results = self._results(arrays, numbers)
            ffi = self._jax.ffi.ffi_call(_TARGET, results, vmap_method=method, input_output_aliases=aliases)
            outputs = ffi(*shaped, call=np.int64(number))
            return outputs[0] if len(outputs) == 1 else tuple(outputs)

        return plain

    def _differentiable(self, number: int, numbers: Mapping[int, Any]) -> Callable[..., Any]:
        """Return the function of arrays that makes the registered call `number`, with gradients if there are any."""
        plain = self._plain(number, numbers)
        backward = self._backward
        if backward is None and not isinstance(self._function, Elementwise):
            return plain
        differentiable = self._jax.custom_vjp(plain)
        gradient = functools.cache(lambda: self._gradient(numbers))
        differentiable.defvjp(
            lambda *arrays: ((results := plain(*arrays)), (arrays, results)),
            lambda saved, gradients: gradient()(saved[0], saved[1], gradients),
        )
        return differentiable  # type: ignore[no-any-return]

    def _gradient(self, numbers: Mapping[int, Any]) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
        """Return a function of the call's arrays, its results, and the results' gradients.

        It returns a tuple with a gradient for each array. `numbers` has the call's numbers by argument index.
        """
        work, jax = self._work, self._jax
        results = (*(role.name for role in work.takes if role.category == "written"), *work.outputs)
        names = (*(role.name for role in work.takes), *results, *(f"d{result}" for result in results))
        backward, inputs = self._backward, work.inputs
        if backward is None:
            return self._derived(numbers)
        if isinstance(backward, Kernel):
            name = backward.name
            own, sources = gradient_kernel(name, backward)
            parameters, outputs = [role.name for role in own.takes], own.outputs
            apply: Callable[..., Any] = _Function(
                jax, name, backward, own, lambda *operands: [operands[k] for k in sources], self._vmap
            )
        elif isinstance(backward, Elementwise):
            recipe = backward.recipe
            parameters, outputs = [p.name for p in recipe.inputs], tuple(p.name for p in recipe.outputs)
            apply = call(backward, numbers=[parameter for parameter in parameters if parameter in self._number_names()])
        else:
            parameters, outputs = list(names_of(self._name, "backward", backward)), ()
            apply = backward
        check_gradients(self._name, outputs, inputs)
        places = places_of(self._name, "backward", parameters, names)

        def of(arrays: Any, results: Any, gradients: Any) -> tuple[Any, ...]:
            results, gradients = (
                value if isinstance(value, tuple | list) else (value,) for value in (results, gradients)
            )
            operands = [*self._operands(arrays, numbers), *results, *gradients]
            needed = [jax.numpy.issubdtype(array.dtype, np.inexact) for array in arrays]
            several = gradients_in_order(
                self._name, apply(*[operands[place] for place in places]), inputs, outputs, needed
            )
            return tuple(_summed_to(jax, gradient, array) for gradient, array in zip(several, arrays, strict=True))

        return of

    def _number_names(self) -> set[str]:
        return {role.name for role in self._work.takes if role.category == "number"}

    def _derived(self, numbers: Mapping[int, Any]) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
        work, jax = self._work, self._jax
        names = [role.name for role in work.takes]

        @functools.cache
        def derived(real: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[..., Any]]:
            gradient = derivatives(self._function, real)
            return gradient.uses, call(gradient.function(real), numbers=[*self._number_names() & {*gradient.uses}])

        def of(arrays: Any, results: Any, result_gradients: Any) -> tuple[Any, ...]:
            operands = dict(zip(names, self._operands(arrays, numbers), strict=True))
            real = tuple(name for name in work.inputs if jax.numpy.issubdtype(operands[name].dtype, np.inexact))
            if any(np.issubdtype(array.dtype, np.complexfloating) for array in arrays):
                raise ArgumentError(f"{self._name}: gradients of complex numbers are not derived; give backward=")
            uses, function = derived(real)
            gradients = result_gradients if isinstance(result_gradients, tuple | list) else (result_gradients,)
            outputs = function(*[operands[name] for name in uses], *gradients)
            by_name = dict(zip(real, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
            return tuple(
                _summed_to(jax, by_name.get(name), array) for name, array in zip(work.inputs, arrays, strict=True)
            )

        return of


def _summed_to(jax: Any, gradient: Any, array: Any) -> Any:
    """Sum the gradient of a broadcast array over the broadcast axes, to the array's shape."""
    if gradient is None:
        return None
    if gradient.shape != array.shape:
        ahead = gradient.ndim - array.ndim
        axes = [k for k in range(gradient.ndim) if k < ahead or array.shape[k - ahead] != gradient.shape[k]]
        gradient = gradient.sum(axes, keepdims=True).reshape(array.shape)
    return gradient.astype(array.dtype)


# ── what XLA calls ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Record(NamedTuple):
    """A registered call.

    Attributes
    ----------
    run : callable
        Function that runs the call.
    constants : tuple
        All arguments, with None for each array.
    arrays, written : tuple of int
        Indices of the arguments that are arrays, and of those that are written.
    """

    run: Callable[..., None]
    constants: tuple[Any, ...]
    arrays: tuple[int, ...]
    written: tuple[int, ...]


#: Calls by number, kept as long as the process lives: a compiled program of XLA's has only the number.
_records: dict[int, _Record] = {}
#: The first number is random, so that a program that another process stored cannot match a call of this one.
_numbers = itertools.count(secrets.randbits(62))


def _record(work: Work, numbers: Mapping[int, Any]) -> int:
    number = next(_numbers)
    written = tuple(k for k, role in enumerate(work.takes) if role.category == "written")
    constants = tuple(numbers.get(k) for k in range(len(work.takes)))
    _records[number] = _Record(work.run, constants, work.arrays, written)
    return number


@functools.cache
def _register(jax: Any) -> list[Any]:
    """Register the handlers with XLA, once; they live as long as the process."""
    handlers = []
    for platform in ("cpu", "CUDA"):
        function = handler(_on_gpu if platform == "CUDA" else _on_host, platform == "CUDA")
        handlers.append(function)
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(function), platform=platform, api_version=1)
    return handlers


def _run(called: Call, array_of: Callable[[Buffer, bool], Any], stream: Any) -> None:
    record = _records.get(called.number)
    if record is None:
        raise ArgumentError(
            "this process has no such call of cudakit: a program that was exported, or kept by another process, lacks "
            "the kernel; make ck.jax.call and trace it here"
        )
    run, constants, arrays, written = record
    results = [array_of(buffer, True) for buffer in called.results]
    arguments = list(constants)
    for k, buffer in zip(arrays, called.arguments, strict=True):
        if k not in written:
            arguments[k] = array_of(buffer, False)
            continue
        place = written.index(k)  # the argument and the result are one
        arguments[k] = results[place]
        if buffer.address != called.results[place].address:
            results[place][...] = array_of(buffer, False)
    run(stream, *arguments, *results[len(written) :])


def _on_host(called: Call) -> None:
    stream = emulator().current()
    _run(called, _numpy_array, stream)
    stream.sync()


def _numpy_array(buffer: Buffer, is_result: bool) -> np.ndarray:
    size = buffer.nbytes
    memory: Any = (ctypes.c_byte * size).from_address(buffer.address) if size else b""
    array = np.frombuffer(memory, np.uint8).view(buffer.dtype).reshape(buffer.shape)
    if size and not is_result:
        array.flags.writeable = False
    return array


#: cuda.core's and CuPy's stream, and a function that makes arrays, by XLA's stream.
_streams: dict[int, tuple[Any, Any, Callable[[Buffer, bool], Any]]] = {}


def _on_gpu(called: Call) -> None:
    assert called.stream is not None
    entry = _streams.get(called.stream)
    if entry is None:
        core = of_handle(called.stream)
        entry = _streams[called.stream] = core, cupy_stream(core), _cupy_arrays(device_stream(core).device_id)
    stream, current, array_of = entry
    # With it as CuPy's current stream, launches repeat directly and need no waits.
    with current:
        _run(called, array_of, stream)


def _cupy_arrays(device: int) -> Callable[[Buffer, bool], Any]:
    """Return a function ``f(buffer, is_result)`` that makes a CuPy array of a buffer's memory, without a copy.

    `device` is the number of the GPU. The function ignores `is_result`.
    """
    import cupy

    array, memory, pointer = cupy.ndarray, cupy.cuda.UnownedMemory, cupy.cuda.MemoryPointer

    def array_of(buffer: Buffer, is_result: bool) -> Any:
        address, shape, dtype, nbytes = buffer
        return array(shape, dtype, pointer(memory(address, nbytes, None, device), 0))

    return array_of
