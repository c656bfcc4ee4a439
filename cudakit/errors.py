"""The exceptions that cudakit raises, and its warnings."""

from __future__ import annotations

import itertools
import re
import reprlib
import typing
from typing import Self

import numpy as np

from cudakit import records

#: Maximum length of a value in a message, and of a message without a compiler's log.
_MOST_OF_VALUE, _MOST_OF_MESSAGE = 160, 800


class _Repr(reprlib.Repr):
    """The `repr` of a value, cut short for a large value, and safe if the value's class raises."""

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
    """Return the `repr` of a value for a message, cut short for a large value."""
    try:
        shown = _repr.repr(value)
    except Exception:
        shown = f"<{type(value).__name__} whose repr fails>"
    if len(shown) <= _MOST_OF_VALUE:
        return shown
    size = f" ({len(value)} elements)" if isinstance(value, list | tuple | dict | set | frozenset) else ""
    return f"{shown[: _MOST_OF_VALUE - 1]}…{size}"


def error_text(error: BaseException) -> str:
    """Return the text of an error for another message: shortened, or the class of a broken error."""
    try:
        text = str(error)
    except Exception:
        return type(error).__name__
    return text if len(text) <= _MOST_OF_VALUE else f"{text[: _MOST_OF_VALUE - 1]}…"


def _shortened_message(message: typing.Any) -> typing.Any:
    """Cut the middle of a long str; the end stays, because it says what to do. Return anything else unchanged."""
    if not isinstance(message, str) or len(message) <= _MOST_OF_MESSAGE:
        return message
    return f"{message[: _MOST_OF_MESSAGE // 2]} … {message[-_MOST_OF_MESSAGE // 2 :]}"


_VERB: typing.Final = "^(takes|must be|is) "


class Access(records.NamedTuple):
    """An access of a thread at a line of a kernel. A field is None or empty if it is not known.

    Attributes
    ----------
    use : str
        ``reads``, ``writes``, or empty for an instruction that accesses no memory, such as a barrier.
    file : str
        File in the user's own source.
    line : int
        Line in the file.
    block : tuple of int or None
        Index (x, y, z) of the block in the grid.
    thread : tuple of int or None
        Index (x, y, z) of the thread in its block.
    """

    use: str = ""
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


class Details(records.NamedTuple):
    """The parts of an error's message, for programs. A part is empty if the error has none, or if it is not known.

    Attributes
    ----------
    kind : str
        Category of the error, as in `cudakit.reports.KINDS`. Empty: that of the error's class.
    kernel, template_arguments
        Name of the kernel, and the arguments of its specialization, such as ``float, 256``.
    parameter : str
        Parameter of the kernel or function.
    file, line, column
        Place in the user's own source; columns count from 1.
    text : str
        Message of one of several errors of a compiler.
    expected, got, advice
        What was expected, what came instead, and what to do.
    accesses : tuple of Access
        The access at fault, and for a race the other one.
    """

    kind: str = ""
    kernel: str = ""
    template_arguments: str = ""
    parameter: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    text: str = ""
    expected: str = ""
    got: str = ""
    advice: str = ""
    accesses: tuple[Access, ...] = ()

    def filled(self, parts: typing.Mapping[str, typing.Any]) -> Self:
        """Return the details with `parts` in place of those that are empty."""
        return self._replace(**{name: part for name, part in parts.items() if part and not getattr(self, name)})


def named(title: str) -> dict[str, str]:
    """Return the fields of `Details` that a kernel's name has, such as ``saxpy<float>``."""
    kernel, _, arguments = title.partition(", launched by ")[0].partition("<")
    return {"kernel": kernel, "template_arguments": arguments.removesuffix(">")}


class CudakitError(Exception):
    """Base class of every error that cudakit raises on purpose.

    Attributes
    ----------
    details : Details
        The parts of the message, for programs.
    """

    details: Details = Details()

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_shortened_message, args))

    @classmethod
    def of(cls, where: str, clause: str, got: str = "", advice: str = "", *, expected: str = "") -> Self:
        """Return an error with the message ``where clause, got …; advice``, and with these parts as details.

        `expected` is the detail, if it is not `clause` without its verb.
        """
        message = f"{where} {clause}{f', got {got}' if got else ''}{f'; {advice}' if advice else ''}"
        return cls(message).detailed(expected=expected or re.sub(_VERB, "", clause), got=got, advice=advice)

    def detailed(self, **parts: typing.Any) -> Self:
        """Add details, except those that the error has already. Return the error."""
        self.details = self.details.filled(parts)
        return self

    def like(self, other: BaseException) -> Self:
        """Take over the details of another error. Return the error."""
        for name in ("details", "diagnostics"):
            if hasattr(other, name):
                setattr(self, name, getattr(other, name))
        return self


class TemplateError(CudakitError, ValueError):
    """The source, the kernel's name or its template arguments cannot be used as given."""


class ArgumentError(CudakitError, TypeError, ValueError):
    """An argument does not fit. The message names call, parameter, expected and got.

    It is a `TypeError` and a `ValueError`: programs that catch what Python and NumPy raise for such arguments keep
    working.
    """


class AxisError(ArgumentError, np.exceptions.AxisError):
    """An axis is out of range for the array. Also a `numpy.exceptions.AxisError`, and so an `IndexError`."""

    def __init__(self, message: str) -> None:
        np.exceptions.AxisError.__init__(self, _shortened_message(message))


class BoundsError(ArgumentError, IndexError):
    """An index is out of bounds."""


class UnknownNameError(ArgumentError, KeyError):
    """A name is unknown. Also a `KeyError`."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError's own would put the message in quotes


class RangeError(ArgumentError, OverflowError):
    """A number is out of range for its dtype. Also an `OverflowError`."""


class CompileError(CudakitError, RuntimeError):
    """The CUDA C++ compiler (NVRTC) refused the source.

    Attributes
    ----------
    log : str
        NVRTC's log, unchanged.
    source : str
        Source that was compiled, generated lines included.
    options : tuple of str
        Compiler options.
    template_arguments : str
        Name of the specialization, such as ``saxpy<float>``.
    diagnostics : tuple of Details
        Each of the compiler's errors, with its file, line and column.
    """

    diagnostics: tuple[Details, ...] = ()

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
    """A launch exceeds the device's limits, or the driver refused it."""


class PipelineError(CudakitError, RuntimeError):
    """A stage of a pipeline or its source failed; ``__cause__`` is the original exception.

    Attributes
    ----------
    stage : str
        Name of the stage, ``source``, ``copy to the device`` or ``copy from the device``.
    item : int
        Index of the item in the source, from 0. All items before it were delivered.
    name : str or None
        The source's name of the item.
    """

    def __init__(self, message: str, *, stage: str = "", item: int = -1, name: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.item = item
        self.name = name


class FrameError(CudakitError, ConnectionError):
    """A connection delivered something else than a frame, or the peer closed it before the end."""


class EmulationError(CudakitError, RuntimeError):
    """The emulator cannot execute an instruction or an access."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used; compiling goes on without it."""


class CompileWarning(UserWarning):
    """Compiled code is correct, but will be slow."""


class PipelineWarning(UserWarning):
    """A run of a pipeline left out items that failed."""


class EmulatorWarning(UserWarning):
    """The machine has no GPU; kernels run on the emulator instead."""


#: Words in errors after which the driver refuses every call, in the driver's and the runtime's spelling.
_FATAL = (
    "ILLEGALADDRESS", "ILLEGALINSTRUCTION", "MISALIGNEDADDRESS", "INVALIDADDRESSSPACE", "INVALIDPC",
    "HARDWARESTACKERROR", "LAUNCHFAIL", "LAUNCHTIMEOUT", "ERRORASSERT",
)  # fmt: skip


def lost_context(error: BaseException) -> LaunchError | None:
    """Return the error to raise if `error` says that a kernel destroyed the CUDA context; else None."""
    message = str(error)[:200].replace("_", "").upper()
    if not any(word in message for word in _FATAL) or not any(
        "CUDA" in error_class.__name__ for error_class in type(error).__mro__
    ):
        return None
    return LaunchError(
        f"a kernel has failed, and this process's CUDA context is lost with it: {error}. Every later call on the GPU "
        "fails the same way; start a new process, and run it under compute-sanitizer to find the kernel and the access"
    )


def raise_launch_error(error: BaseException, kernel: str = "") -> None:
    """Raise a `LaunchError` if `error` is the driver's (or a `LaunchError`). Return for any other error.

    `kernel` is the kernel's name, for the message.
    """
    if isinstance(error, LaunchError):
        raise error
    lost = lost_context(error)
    if lost is not None:
        raise lost from error
    if any(base.__name__ in ("CUDAError", "CUDADriverError", "CUDARuntimeError") for base in type(error).__mro__):
        where = f"{kernel}: " if kernel else ""
        raise LaunchError(
            f"{where}the driver refused the launch: {error}. An error of work launched before, such as an access out "
            "of bounds, shows up here too; run under compute-sanitizer to find it"
        ) from error
