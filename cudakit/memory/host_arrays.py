"""NumPy arrays straight into a kernel call: `In`, `Out` and `InOut` copy them on the call's stream.

Each array gets device memory for the call (see `cudakit.memory.backend`). `In` and `InOut` fill it with the array,
`Out` with zeros. After the kernel, `Out` and `InOut` copy it back. On the emulator the kernel works on copies, too, so
that the same call gives the same result and the same errors.

This module also checks the arguments of copies: host arrays, outputs, captured streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, EmulationError, LaunchError
from cudakit.jit.signature.signature import Signature
from cudakit.places import is_capturing
from cudakit.types.arguments import as_numpy, is_on_device, refuse_masked
from cudakit.types.checked import flag
from cudakit.types.cpp import Pointer

Kind: TypeAlias = Literal["device", "pinned", "managed"]
KINDS = ("device", "pinned", "managed")


def refuse_captured_copy(name: str, stream: Any) -> None:
    """Raise if the stream is being captured into a graph. `name` is the call, for the error.

    The caller asks only for copies that a graph cannot contain: not pinned and C-contiguous, or waited for.

    Raises
    ------
    LaunchError
    """
    if is_capturing(stream):
        raise LaunchError(
            f"{name}: the stream is being captured into a graph, which copies from and to pinned, C-contiguous arrays "
            "only and cannot wait for the host; give an array of ck.empty(kind='pinned'), with wait=False, or copy "
            "outside of the capture"
        )


def host_array(name: str, parameter: str, value: Any) -> np.ndarray:
    """Return `value` as a NumPy array whose dtype a device can hold.

    Raises
    ------
    ArgumentError
        The value is no host array, or no device can hold its dtype.
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        result: np.ndarray | None = value
    else:
        result = as_numpy(value) if not is_on_device(value) else None
    if result is None:
        hint = "; make one with numpy.asarray" if isinstance(value, list | tuple | int | float) else ""
        raise ArgumentError(f"{name}: {parameter} must be a NumPy array, got {type(value).__name__}{hint}")
    if result.dtype.hasobject:
        raise ArgumentError(f"{name}: {parameter} has dtype {result.dtype}, which no device holds; convert it")
    return result


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return `out`, or a new host array if it is None.

    Raises
    ------
    ArgumentError
        `out` does not fit, or is read-only.
    """
    if out is None:
        return np.empty(shape, dtype)
    if type(out) is not np.ndarray or out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        check_host_output("to_host", out, shape, dtype)  # which says what is wrong
    return out


def check_host_output(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that a host array can be copied to.

    Raises
    ------
    ArgumentError
        The output is no host array, does not fit, or is read-only.
    """
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"{name}: out must be a NumPy array, got {type(out).__name__}")
    refuse_masked(out)
    check_fits(name, out, shape, dtype)
    if not out.flags.writeable:
        raise ArgumentError(f"{name}: out is read-only; give another array")


def check_fits(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that an output has the shape and dtype of the array that is copied to it.

    Raises
    ------
    ArgumentError
        Shape or dtype differ.
    """
    if out.shape != shape or out.dtype != dtype:
        raise ArgumentError(
            f"{name}: out has shape {out.shape} and dtype {out.dtype}, the array {shape} and {dtype}; "
            "give one that fits"
        )


def check_copy(target: Any, source: Any) -> None:
    """Check that a target has the shape and dtype of a source, and can be written.

    Raises
    ------
    ArgumentError
        Shape or dtype differ, or the target is read-only.
    """
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ArgumentError(
            f"copy: target has shape {target.shape} and dtype {target.dtype}, source {source.shape} and "
            f"{source.dtype}; give two that fit"
        )
    if isinstance(target, np.ndarray) and not target.flags.writeable:
        raise ArgumentError("copy: target is read-only; give another array")


#: Candidates that NumPy tries to find an element in common; where more are needed, overlapping extents count as one.
_MOST_WORK: Final[Any] = 10_000  # NumPy's stubs know two numbers only


class Callee(Protocol):
    """Interface of a kernel that the calls with host arrays use."""

    @property
    def name(self) -> str:
        """Name of the kernel, for errors."""

    @property
    def signature(self) -> Signature:
        """Parameters of the kernel."""

    def __call__(self, stream: Any, config: Any, /, *args: Any) -> None:
        """Launch with arrays of the stream's execution place."""


class HostArray:
    """A host array as a kernel argument, made as `In`, `Out` or `InOut`.

    Parameters
    ----------
    array : numpy.ndarray
        Host array of any shape and strides, and any dtype that the kernel takes, in the device's byte order. Host
        arrays of other libraries (torch on the CPU, DLPack) are accepted, too.
    const : bool
        Whether to treat a parameter ``T*`` as ``const T*``, for a kernel that does not write it. Only for `In`.
        Writes of the kernel are not copied back. The emulator reports them as an error.

    Raises
    ------
    ArgumentError
        The argument is no host array, or a read-only array that the kernel would write.
    """

    array: np.ndarray

    __slots__ = ("array",)
    copied_in = copied_out = True
    const = False
    #: What launches compare first of an argument that they know as a device array; here they find none.
    dtype = None

    def __init__(self, array: Any, const: bool = False) -> None:
        self.array = host = array if isinstance(array, np.ndarray) else _exported(self._word, array)
        refuse_masked(host)
        dtype = host.dtype
        if not dtype.isnative:
            raise ArgumentError(
                f"{self._word}: the array has dtype {dtype.str}, which is not in the device's byte order; convert it "
                f"with a.astype({str(dtype.newbyteorder('='))!r})"
            )
        if dtype.hasobject:
            raise ArgumentError(f"{self._word}: the array has dtype {dtype}, which no kernel takes; convert it")
        if self.copied_out and not host.flags.writeable:
            raise ArgumentError(f"{self._word} writes to the array, and it is read-only; give ck.In(a), or a copy")
        if flag(f"{self._word}: const", const):
            if self.copied_out:
                raise ArgumentError(f"{self._word} brings back what the kernel writes; const=True is for ck.In")
            # Another class, so that calls which compare types have nothing more to compare.
            self.__class__ = _CONST_IN

    @property
    def _word(self) -> str:
        return f"ck.{type(self).__name__}"

    def __repr__(self) -> str:
        return f"{self._word}({self.array.dtype} array of shape {self.array.shape})"


def _exported(word: str, array: Any) -> np.ndarray:
    """Return the NumPy array that shares memory with another library's host array. `word` names the call in errors.

    Raises
    ------
    ArgumentError
        The array is in device memory, or the object is no array.
    """
    on_device = is_on_device(array)
    host = None if on_device else as_numpy(array)
    if host is None:
        hint = "it is in device memory: give it to the kernel as it is" if on_device else "give a NumPy array"
        raise ArgumentError(f"{word} takes an array in host memory, got {type(array).__name__}; {hint}")
    return host


class In(HostArray):
    """A host array that a kernel reads, for a parameter ``const T*`` or ``cudakit::strided<const T, RANK>``.

    The call reads the array before it returns. Exception: a C-contiguous array in pinned memory (from
    ``ck.empty(kind="pinned")``) is read when the stream reaches the call. Do not change it until then.

    Examples
    --------
    >>> saxpy(stream, ck.cover(y.size), 2.0, ck.In(x), ck.InOut(y), y.size)
    >>> stream.sync()

    With ``const=True`` it is also for a parameter ``T*`` that the kernel does not write:

    >>> multiply(stream, ck.config(1, 400), ck.Out(c), ck.In(a, const=True), ck.In(b, const=True))
    """

    copied_out = False
    __slots__ = ()


#: `In` with ``const=True``.
_CONST_IN: Any = type("In", (In,), {"__slots__": (), "__module__": __name__, "const": True})


class Out(HostArray):
    """A host array that a kernel fills, for a parameter ``T*`` or ``cudakit::strided<T, RANK>``.

    The array has the result once the stream is done, for example after ``stream.sync()``. Do not access it before. Its
    former elements are not copied: the kernel reads zeros, and elements that it does not write become zero.

    Examples
    --------
    >>> square(stream, ck.cover(x.size), ck.In(x), ck.Out(y), x.size)
    >>> stream.sync()
    """

    copied_in = False
    __slots__ = ()


class InOut(HostArray):
    """A host array that a kernel reads and writes, for a parameter ``T*`` or ``cudakit::strided<T, RANK>``.

    The array is copied to the device as for `In`, and back as for `Out`. Do not access it until the stream is done.
    """

    __slots__ = ()


def among(arguments: Sequence[Any]) -> bool:
    """Return whether host arrays are among a call's arguments."""
    for value in arguments:  # noqa: SIM110  # quicker so, and every call that was not seen before asks
        if isinstance(value, HostArray):
            return True
    return False


def refuse_in_plan(kernel: str, arguments: Sequence[Any]) -> None:
    """Raise if `In`, `Out` or `InOut` is among the arguments of a plan, which launches a kernel but copies nothing.

    Raises
    ------
    ArgumentError
    """
    if among(arguments):
        raise ArgumentError(
            f"{kernel}: a plan launches the kernel and copies nothing, and ck.In, ck.Out and ck.InOut are copied at "
            "each call; move the array once, with ck.to_device(a, stream), or call the kernel"
        )


def refuse_captured_call(kernel: Callee, stream: Any, arguments: Sequence[Any]) -> None:
    """Raise if the stream of a call with host arrays is being captured: a graph would copy the arrays as they are now.

    Raises
    ------
    LaunchError
    """
    if is_capturing(stream):
        first = next(value for value in arguments if isinstance(value, HostArray))
        raise LaunchError(
            f"{kernel.name}: the stream is being captured into a graph, and ck.{type(first).__name__} would copy the "
            "array as it is now, not as it is when the graph runs; move the arrays with ck.to_device before the "
            "capture, and name the arrays that change"
        )


def check(kernel: Callee, arguments: Sequence[Any]) -> list[tuple[int, str, bool]]:
    """Check that the host arrays of a call fit their parameters and each other. Return their positions.

    Returns
    -------
    list of (int, str, bool)
        Position and name of the parameter, and whether the parameter is a pointer.

    Raises
    ------
    ArgumentError
        A host array does not fit its parameter, or two host arrays share memory and one of them is written.
    """
    parameters = kernel.signature.parameters or ()
    positions: list[tuple[int, str, bool]] = []
    for position, value in enumerate(arguments):
        if not isinstance(value, HostArray):
            continue
        parameter = parameters[position] if position < len(parameters) else None
        if parameter is None and parameters and parameters[-1].pack:
            parameter = parameters[-1]
        name = (parameter.name if parameter else "") or str(position)
        is_pointer = parameter is not None and isinstance(parameter.type, Pointer)
        if is_pointer:
            _check_direction(kernel, name, value, parameter.type)  # type: ignore[union-attr]  # it is there
        for other, other_name, _ in positions:
            written = value.copied_out or arguments[other].copied_out
            if written and np.may_share_memory(value.array, arguments[other].array, _MOST_WORK):
                raise ArgumentError(
                    f"{_where(kernel, name, value)} and ck.{type(arguments[other]).__name__} of {other_name} share "
                    "memory, and each gets a copy of its own; give the array once, as ck.InOut(a), or give copies"
                )
        positions.append((position, name, is_pointer))
    _check_beside(kernel, arguments, positions)
    return positions


def _check_beside(kernel: Callee, arguments: Sequence[Any], positions: Sequence[tuple[int, str, bool]]) -> None:
    """Raise if a plain array argument shares memory with a host array that is copied back, which would overwrite it."""
    for position, value in enumerate(arguments):
        if not isinstance(value, np.ndarray):
            continue
        for other, name, _ in positions:
            if arguments[other].copied_out and np.may_share_memory(value, arguments[other].array, _MOST_WORK):
                raise ArgumentError(
                    f"{_where(kernel, name, arguments[other])} shares memory with argument {position}, which is given "
                    "as it is: what the kernel writes there would be overwritten; give the array once, as ck.InOut(a)"
                )


def _check_direction(kernel: Callee, name: str, value: HostArray, cpp: Any) -> None:
    const = bool(getattr(cpp.target, "const", False))
    if const and not value.copied_in:
        raise ArgumentError(f"{_where(kernel, name, value)} is written by the kernel, which takes {cpp}; give ck.In(a)")
    if not const and not value.copied_out and not value.const:
        raise ArgumentError(
            f"{_where(kernel, name, value)} brings nothing back, and the kernel may write to {cpp}; give ck.InOut(a). "
            "If the kernel only reads the array, declare the parameter const T*, or give ck.In(a, const=True)"
        )


def refuse_written(kernel: Callee, position: int, copied: np.ndarray, before: bytes) -> None:
    """Raise if a kernel changed the copy of an array given with ``const=True``.

    Parameters
    ----------
    kernel : Callee
        Kernel that ran.
    position : int
        Index of the argument.
    copied : numpy.ndarray
        The copy, after the kernel.
    before : bytes
        Bytes of the copy before the kernel.

    Raises
    ------
    EmulationError
        The bytes differ. The error names the first element that changed.
    """
    if copied.tobytes() == before:
        return
    now, then = np.frombuffer(copied.tobytes(), np.uint8), np.frombuffer(before, np.uint8)
    element = int(np.flatnonzero(now != then)[0]) // copied.itemsize
    parameters = kernel.signature.parameters or ()
    name = (parameters[position].name if position < len(parameters) else "") or str(position)
    raise EmulationError(
        f"{kernel.name}: argument {name}: the kernel wrote to element {element}, and ck.In(a, const=True) says that it "
        "writes nothing there; give ck.InOut(a)"
    )


def _where(kernel: Callee, name: str, value: HostArray) -> str:
    return f"{kernel.name}: argument {name}: ck.{type(value).__name__}"
