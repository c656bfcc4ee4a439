"""The exceptions that cudakit raises, and the warnings it gives."""

from __future__ import annotations

import itertools
import reprlib
import typing

import numpy as np

#: Characters of a value in a message, and of a message without a compiler's log.
_MOST_OF_VALUE, _MOST_OF_MESSAGE = 160, 800


class _Repr(reprlib.Repr):
    """The `repr` of a value, without most of a large one, and whatever its class raises."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 8
        self.maxstring = self.maxlong = self.maxother = _MOST_OF_VALUE - 2

    def repr_str(self, value: str, level: int) -> str:
        return repr(value) if len(value) <= self.maxstring else f"{value[:100]!r}… ({len(value)} characters)"

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value) if len(value) <= self.maxstring else f"{bytes(value[:40])!r}… ({len(value)} bytes)"

    repr_bytearray = repr_bytes

    def repr_int(self, value: int, level: int) -> str:
        return repr(value) if value.bit_length() < 400 else f"an int of {value.bit_length()} bits"

    def repr_ndarray(self, value: np.ndarray, level: int) -> str:
        is_small = value.size <= 16 and not value.dtype.hasobject
        return self.repr_instance(value, level) if is_small else f"array of {value.dtype} with shape {value.shape}"

    def repr_dict(self, value: dict[typing.Any, typing.Any], level: int) -> str:
        if level <= 0:
            return "{…}"
        items = itertools.islice(value.items(), self.maxdict)
        shown = [f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}" for key, item in items]
        return f"{{{', '.join([*shown, *['…'] * (len(value) > self.maxdict)])}}}"

    def repr_set(self, value: set[typing.Any], level: int) -> str:
        return repr(value) if len(value) <= self.maxset else f"a set of {len(value)}"

    def repr_instance(self, value: typing.Any, level: int) -> str:
        try:
            return repr(value)
        except Exception:
            return f"<{type(value).__name__} whose repr fails>"


_repr = _Repr()


def shortened(value: object) -> str:
    """The `repr` of a value for a message: of a large one its beginning and its size, of a broken one its class."""
    try:
        shown = _repr.repr(value)
    except Exception:
        shown = f"<{type(value).__name__} whose repr fails>"
    if len(shown) <= _MOST_OF_VALUE:
        return shown
    size = f" ({len(value)} elements)" if isinstance(value, list | tuple | dict | set | frozenset) else ""
    return f"{shown[: _MOST_OF_VALUE - 1]}…{size}"


def told(error: BaseException) -> str:
    """What an error says, for the message of another: of a broken one its class."""
    try:
        text = str(error)
    except Exception:
        return type(error).__name__
    return text if len(text) <= _MOST_OF_VALUE else f"{text[: _MOST_OF_VALUE - 1]}…"


def _shortened_message(message: typing.Any) -> typing.Any:
    """A message of no more than some hundred characters; its end, which says what to do, stays."""
    if not isinstance(message, str) or len(message) <= _MOST_OF_MESSAGE:
        return message
    return f"{message[: _MOST_OF_MESSAGE // 2]} … {message[-_MOST_OF_MESSAGE // 2 :]}"


class CudakitError(Exception):
    """Base of every error that cudakit raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_shortened_message, args))


class TemplateError(CudakitError, ValueError):
    """The source, the kernel's name or its template arguments cannot be used as given."""


class ArgumentError(CudakitError, TypeError, ValueError):
    """An argument does not fit: the message names the call, the parameter, what was expected and what was got.

    It is both what Python and NumPy raise for an object of a wrong kind and for one of a wrong value or shape, so that
    programs that catch either go on to.
    """


class AxisError(ArgumentError, np.exceptions.AxisError):
    """An axis is none of the array's; NumPy's class too, and so an `IndexError`."""

    def __init__(self, message: str) -> None:
        np.exceptions.AxisError.__init__(self, _shortened_message(message))


class BoundsError(ArgumentError, IndexError):
    """An index lies outside of what it is an index of."""


class UnknownNameError(ArgumentError, KeyError):
    """Nothing has the name that was given."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class RangeError(ArgumentError, OverflowError):
    """A number lies outside of what the dtype that it goes to can hold."""


class CompileError(CudakitError, RuntimeError):
    """NVRTC refused the source.

    Attributes
    ----------
    log : str
        NVRTC's own log, unchanged.
    source : str
        The text that was compiled, generated lines included.
    options : tuple of str
        The compiler options.
    template_arguments : str
        The specialization's name, such as ``saxpy<float>``.
    """

    def __init__(
        self,
        message: str,
        *,
        log: str = "",
        source: str = "",
        options: tuple[str, ...] = (),
        template_arguments: str = "",
    ) -> None:
        Exception.__init__(self, message)  # with the compiler's log, which is not shortened
        self.log = log
        self.source = source
        self.options = options
        self.template_arguments = template_arguments


class LaunchError(CudakitError, RuntimeError):
    """A launch is outside the device's limits, or the driver refused it."""


class PipelineError(CudakitError, RuntimeError):
    """A stage of a pipeline, or its source, failed; ``__cause__`` is what it raised.

    Attributes
    ----------
    stage : str
        The stage's name, ``source``, ``copy to the device`` or ``copy from the device``.
    item : int
        Which item of the source it failed on, counted from 0; all before it were delivered.
    name : str or None
        What the source calls that item.
    """

    def __init__(self, message: str, *, stage: str = "", item: int = -1, name: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.item = item
        self.name = name


class FrameError(CudakitError, ConnectionError):
    """What came over a connection is no frame, or the peer has gone before the end."""


class EmulationError(CudakitError, RuntimeError):
    """The emulator met an instruction or an access that it cannot execute."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used; work goes on without it."""


class CompileWarning(UserWarning):
    """What was compiled is right, and will be slow."""


class EmulatorWarning(UserWarning):
    """There is no GPU; kernels run on the emulator instead."""


#: Words of the errors after which the driver refuses everything, as it and the runtime spell them.
_FATAL = (
    "ILLEGALADDRESS", "ILLEGALINSTRUCTION", "MISALIGNEDADDRESS", "INVALIDADDRESSSPACE", "INVALIDPC",
    "HARDWARESTACKERROR", "LAUNCHFAIL", "LAUNCHTIMEOUT", "ERRORASSERT",
)  # fmt: skip


def lost_context(error: BaseException) -> LaunchError | None:
    """What to raise where `error`, the driver's or CuPy's, says that a kernel has destroyed the context; else None."""
    named = str(error)[:200].replace("_", "").upper()
    if not any(word in named for word in _FATAL) or not any("CUDA" in kind.__name__ for kind in type(error).__mro__):
        return None
    return LaunchError(
        f"a kernel has failed, and this process's CUDA context is lost with it: {error}. Every later call on the GPU "
        "fails the same way; start a new process, and run it under compute-sanitizer to find the kernel and the access"
    )


def raise_launch_error(error: BaseException, kernel: str = "") -> None:
    """Raise a `LaunchError` where `error` is the driver's; cuda.core's own class for it is private."""
    if isinstance(error, LaunchError):
        raise error
    lost = lost_context(error)
    if lost is not None:
        raise lost from error
    if any(kind.__name__ == "CUDAError" for kind in type(error).__mro__):
        where = f"{kernel}: " if kernel else ""
        raise LaunchError(
            f"{where}the driver refused the launch: {error}. An error of work launched before, such as an access out "
            "of bounds, shows up here too; run under compute-sanitizer to find it"
        ) from error
