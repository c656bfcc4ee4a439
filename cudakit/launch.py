"""Stage 7, launch: the checks of a call shape, frozen into generated Python, and the launch itself.

A `Dispatcher` holds one generated function per kernel. The function tries the call shapes (`CallShape`) seen so far,
newest first: each is a condition over the arguments' types and dtypes, then one call of ``cuda.core.launch``. What
fits none goes to the full check, which raises or adds a shape. This is how `dataclasses` makes ``__init__``, and for
the same reason: what is known once need not be looked up on each call.
"""

from __future__ import annotations

import contextlib
import keyword
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from cudakit import devices
from cudakit.binding import Fragment
from cudakit.config import as_config, is_empty
from cudakit.errors import LaunchError
from cudakit.load import Loaded
from cudakit.streams import as_stream, current_streams, handle_of, order

if TYPE_CHECKING:
    from cuda.core import LaunchConfig, Stream

#: Call shapes tried by the generated function; the oldest is dropped from it, and checked in full when it returns.
_MOST_SHAPES = 8


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


@dataclass
class CallShape:
    """One combination of argument types, bound to a loaded specialization.

    Attributes
    ----------
    loaded : Loaded
    fragments : tuple of Fragment
        One an argument.
    families : tuple of str
        What kind of object each argument is, as `describe` names it.
    device_id : int
    run : callable
        ``run(stream, launch config, kernel, *values)``: cuda.core's launch, or a `PackedLaunch`.
    """

    loaded: Loaded
    fragments: tuple[Fragment, ...]
    families: tuple[str, ...]
    device_id: int
    run: Callable[..., None]
    serial: int = field(default_factory=count().__next__)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Libraries whose current stream decides the order."""
        return tuple(library for library in ("cupy", "torch") if library in self.families)


def make_run(loaded: Loaded, fragments: Sequence[Fragment]) -> Callable[..., None]:
    """What launches a shape: cuda.core's launch where it can pass every argument, else one that passes raw bytes."""
    from cuda.core import launch

    return PackedLaunch(loaded, fragments) if any(fragment.form == "s" for fragment in fragments) else launch


class PackedLaunch:
    """A launch with parameters that cuda.core's launch cannot pass: structs by value, strided arrays, long vectors.

    All parameters lie in one buffer, made once; a lock keeps two threads from writing it at once, since the driver
    reads it with the interpreter released.
    """

    def __init__(self, loaded: Loaded, fragments: Sequence[Fragment]) -> None:
        import ctypes

        parts, offsets, end = [], [], 0
        for fragment, size in zip(fragments, loaded.sizes, strict=True):
            width = {"q": 8, "d": 8}.get(fragment.form, size)
            code = {"q": "q", "d": "d"}.get(fragment.form, f"{size}s")
            # The widest parameter, a tensor map, wants 64 bytes.
            padding = -end % (64 if size >= 64 else 16)
            parts += [f"{padding}x", code]
            offsets.append(end + padding)
            end += padding + width
        self._pack = struct.Struct("<" + "".join(parts)).pack_into
        self._buffer = ctypes.create_string_buffer(end + 64)
        base = -(-ctypes.addressof(self._buffer) // 64) * 64
        self._start = base - ctypes.addressof(self._buffer)
        self._pointers = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
        self._address = ctypes.addressof(self._pointers)
        self._native: dict[tuple[int, int], tuple[Any, LaunchConfig]] = {}
        self._lock = threading.Lock()
        self._forms = tuple(fragment.form for fragment in fragments)

    def __call__(self, stream: Stream, config: LaunchConfig, kernel: Any, *values: Any) -> None:
        from cuda.bindings import driver

        native = self._native_config(stream, config)
        if "native" in self._forms:
            values = tuple(
                native_bytes(value) if form == "native" else value
                for form, value in zip(self._forms, values, strict=True)
            )
        with self._lock:
            self._pack(self._buffer, self._start, *values)
            (status,) = driver.cuLaunchKernelEx(native, driver.CUfunction(int(kernel.handle)), self._address, 0)
        if int(status) != 0:
            raise LaunchError(f"the driver refused the launch: {status.name}")

    def _native_config(self, stream: Stream, config: LaunchConfig) -> Any:
        key = (id(config), handle_of(stream))
        found = self._native.get(key)
        if found is None:
            found = self._native[key] = (native_config(stream, config), config)
        return found[0]


def native_bytes(value: Any) -> bytes:
    """Bytes of a complex number, or of a tensor map, which cuda.core gives to nothing but its own argument holder."""
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    import ctypes

    from cuda.core._kernel_arg_handler import ParamHolder

    holder = ParamHolder((value,))
    return ctypes.string_at(ctypes.cast(holder.ptr, ctypes.POINTER(ctypes.c_void_p))[0] or 0, 128)


def native_config(stream: Stream, config: LaunchConfig) -> Any:
    """The driver's form of a launch configuration on a stream."""
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


def launch_ordered(
    shape: CallShape, core: Stream, config: LaunchConfig, values: Sequence[Any], arguments: Sequence[Any]
) -> bool:
    """Launch after what must come first; True where nothing had to be ordered, so that the next call may skip this."""
    handle = handle_of(core)
    producers = current_streams(shape.libraries, shape.device_id)
    with on_device(shape.device_id):
        hold = order().before(core, _allocations(shape, values, arguments), producers)
        try:
            shape.run(core, config, shape.loaded.kernel, *values)
        except Exception as error:
            raise_launch_error(shape, error)
            raise
        if hold:
            order().hold(core, arguments)
    return order().single and producers <= {handle}


def order_plan(shape: CallShape, core: Stream, values: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Order what a plan will launch, once: later launches of it come after everything that was launched until now."""
    producers = current_streams(shape.libraries, shape.device_id)
    order().before(core, _allocations(shape, values, arguments), producers)


def raise_launch_error(shape: CallShape | None, error: BaseException) -> None:
    """Raise a `LaunchError` where `error` is the driver's; cuda.core's own class for it is private."""
    if isinstance(error, LaunchError):
        raise error
    if any(kind.__name__ == "CUDAError" for kind in type(error).__mro__):
        kernel = f"{shape.loaded.specialization.name_expression}: " if shape else ""
        raise LaunchError(
            f"{kernel}the driver refused the launch: {error}. An error of work launched before, such as an access out "
            "of bounds, shows up here too; run under compute-sanitizer to find it"
        ) from error


def _allocations(shape: CallShape, values: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
    """Base address of each allocation among the arguments."""
    found = []
    for family, value, argument in zip(shape.families, values, arguments, strict=True):
        if family == "cupy":
            found.append(int(argument.data.mem.ptr))
        elif family == "torch":
            found.append(int(argument.untyped_storage().data_ptr()))
        elif family in ("memory", "buffer") and isinstance(value, int):
            found.append(value)
    return found


@contextlib.contextmanager
def on_device(device_id: int) -> Iterator[None]:
    """Make a device current in this thread, where there are several; the former one comes back after."""
    if devices.device_count() < 2:
        yield
        return
    from cuda.core import Device

    former = Device()
    if former.device_id == device_id:
        yield
        return
    Device(device_id).set_current()
    try:
        yield
    finally:
        former.set_current()


def evaluate(fragment: Fragment, argument: Any) -> Any:
    """What a fragment passes on for one argument, outside the generated function."""
    names = {f"k_{key}": value for key, value in fragment.constants.items()}
    return eval(fragment.value.format(a="a", k="k_"), {**names, "a": argument})


class Dispatcher:
    """The generated function of one kernel, and the call shapes in it.

    Parameters
    ----------
    name : str
        Kernel name, for tracebacks.
    parameters : sequence of str
        Names of the kernel's parameters, which become keywords of the function.
    check : callable
        ``check(stream, config, arguments, reason)``: the full check, for calls that fit no shape.
    """

    def __init__(self, name: str, parameters: Sequence[str], check: Callable[..., None]) -> None:
        self.shapes: list[CallShape] = []
        self.parameters = _python_names(parameters)
        self._file = f"<launch of {name}>"
        self._lock = threading.Lock()
        self._namespace: dict[str, Any] = {"MISSING": MISSING, "check": check, "middle": self.middle}
        exec(compile(self._generate(), self._file, "exec"), self._namespace)
        self.function: Callable[..., None] = self._namespace["call"]
        order().watch(self)

    def add(self, shape: CallShape) -> None:
        """Try `shape` first from now on."""
        with self._lock:
            dropped = self.shapes[_MOST_SHAPES - 1 :]
            self.shapes = [shape, *self.shapes[: _MOST_SHAPES - 1]]
            names = self._namespace
            serial = shape.serial
            for index, fragment in enumerate(shape.fragments):
                names.update({f"k{serial}_{index}_{key}": value for key, value in fragment.constants.items()})
            # Names carry the shape's serial number and are never used again: a thread that is in the middle of the
            # old code cannot pick up another shape's kernel.
            names.update({f"P{serial}": shape, f"L{serial}": shape.run, f"K{serial}": shape.loaded.kernel})
            names[f"H{serial}"] = _UNSETTLED
            if "cupy" in shape.families:
                names["current"] = sys.modules["cupy"].cuda.get_current_stream
            if "torch" in shape.families:
                names["torch_current"] = sys.modules["torch"]._C._cuda_getCurrentRawStream
            made: dict[str, Any] = dict(names)
            exec(compile(self._generate(), self._file, "exec"), made)
            # The function object stays: whoever holds it runs the new code from the next call on.
            self.function.__code__ = made["call"].__code__
            for old in dropped:
                for key in (f"P{old.serial}", f"L{old.serial}", f"K{old.serial}", f"H{old.serial}"):
                    names.pop(key, None)

    def middle(
        self, shape: CallShape, stream: Any, config: Any, values: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        """Launch a known shape on another stream or configuration than the last: ordered, and with limits checked."""
        core = as_stream(stream)
        if core.device.device_id != shape.device_id:
            self._namespace["check"](stream, config, tuple(arguments), None)
            return
        wanted = as_config(config)
        if is_empty(wanted):
            return
        with on_device(shape.device_id):
            resolved = shape.loaded.launch_config(wanted, shape.device_id)
        if launch_ordered(shape, core, resolved, values, arguments):
            self._settle(shape, stream, core, config, resolved)

    def _settle(self, shape: CallShape, stream: Any, core: Stream, config: Any, resolved: LaunchConfig) -> None:
        """Let `shape` go straight to the driver on this stream and configuration, which need no ordering."""
        from cuda.core import LaunchConfig

        if devices.device_count() > 1 and not shape.libraries:
            return
        cupy_stream = sys.modules["cupy"].cuda.get_current_stream() if "cupy" in shape.families else None
        torch_stream = None
        if "torch" in shape.families:
            torch_stream = sys.modules["torch"]._C._cuda_getCurrentRawStream(shape.device_id)
        # A LaunchConfig can be changed after the call: the driver is given the user's own, never a stale copy.
        launched = config if isinstance(config, LaunchConfig) else resolved
        key = f"H{shape.serial}"
        if key in self._namespace:
            self._namespace[key] = (stream, config, core, launched, cupy_stream, torch_stream)
            if not order().single:
                self.leave_single_stream()

    def leave_single_stream(self) -> None:
        """From now on every launch is ordered, so no shape may skip it."""
        for shape in list(self.shapes):
            self._namespace[f"H{shape.serial}"] = _UNSETTLED

    def _generate(self) -> str:
        parameters = "".join(f"{name}=MISSING, " for name in self.parameters)
        lines = [f"def call(stream, config, /, {parameters}*extra):", " try:"]
        for shape in self.shapes:
            serial = shape.serial
            arguments = [f"extra[{i - len(self.parameters)}]" for i in range(len(shape.fragments))]
            arguments[: len(self.parameters)] = self.parameters[: len(shape.fragments)]
            guards, values = [], []
            for index, (fragment, argument) in enumerate(zip(shape.fragments, arguments, strict=True)):
                prefix = f"k{serial}_{index}_"
                if len(self.shapes) > 1 and shape.families[index] in ("cupy", "torch"):
                    guards.append(f"{argument}.__class__ is {prefix}class")
                guards.append(fragment.guard.format(a=argument, k=prefix))
                values.append(fragment.value.format(a=argument, k=prefix))
            extra = len(shape.fragments) - len(self.parameters)
            guards.append(f"len(extra) == {extra}" if extra > 0 else "not extra")
            straight = ["stream is _s", "config is _c"]
            if "cupy" in shape.families:
                straight.append("current() is _x")
            if "torch" in shape.families:
                straight.append(f"torch_current({shape.device_id}) == _t")
            given = "".join(f"{value}, " for value in values)
            lines += [
                f"  if {' and '.join(guards)}:",
                f"   _s, _c, _o, _r, _x, _t = H{serial}",
                f"   if {' and '.join(straight)}:",
                f"    return L{serial}(_o, _r, K{serial}, {given})",
                f"   return middle(P{serial}, stream, config, ({given}), ({''.join(f'{a}, ' for a in arguments)}))",
            ]
        lines += ["  reason = None", " except Exception as error:", "  reason = error"]
        lines.append(
            f" return check(stream, config, ({''.join(f'{name}, ' for name in self.parameters)}*extra), reason)"
        )
        return "\n".join(lines)


_UNSETTLED = (object(), None, None, None, None, None)
_GENERATED = frozenset(
    {"stream", "config", "extra", "reason", "error", "check", "call", "middle", "current", "torch_current"}
    | {"type", "len", "Exception", "MISSING", "_s", "_c", "_o", "_r", "_x", "_t"}
)


def _python_names(parameters: Sequence[str]) -> tuple[str, ...]:
    """Parameter names usable as Python's: distinct, no keywords, and none of the generated code's own."""
    result: list[str] = []
    for position, name in enumerate(parameters):
        usable = name if name.isidentifier() and not keyword.iskeyword(name) else f"parameter{position}"
        while usable in _GENERATED or usable in result:
            usable += "_"
        result.append(usable)
    return tuple(result)
