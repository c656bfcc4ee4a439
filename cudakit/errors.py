"""The exceptions that cudakit raises, and the warnings it gives."""

from __future__ import annotations

import numpy as np


class CudakitError(Exception):
    """Base of every error that cudakit raises on purpose."""


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
        np.exceptions.AxisError.__init__(self, message)


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
        super().__init__(message)
        self.log = log
        self.source = source
        self.options = options
        self.template_arguments = template_arguments

    def __reduce__(self) -> tuple[object, ...]:
        state = {
            "log": self.log,
            "source": self.source,
            "options": self.options,
            "template_arguments": self.template_arguments,
        }
        return _restore_compile_error, (str(self), state)


def _restore_compile_error(message: str, state: dict[str, object]) -> CompileError:
    error = CompileError(message)
    error.__dict__.update(state)
    return error


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
    "ILLEGALADDRESS",
    "ILLEGALINSTRUCTION",
    "MISALIGNEDADDRESS",
    "INVALIDADDRESSSPACE",
    "INVALIDPC",
    "HARDWARESTACKERROR",
    "LAUNCHFAIL",
    "LAUNCHTIMEOUT",
    "ERRORASSERT",
)


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
