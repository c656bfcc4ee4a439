"""PyCUDA's exceptions, and cudakit's errors as these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cudakit import errors
from cudakit.errors import CudakitError, EmulationError, lost_context


class Error(CudakitError):
    """Base of PyCUDA's exceptions."""


class MemoryError(Error, errors.LaunchError):
    """Error for an allocation beyond the memory."""


class LogicError(Error, errors.LaunchError):
    """Error for a call that the driver refuses."""


class LaunchError(Error, errors.LaunchError):
    """Error of a kernel that failed."""


class RuntimeError(Error, errors.LaunchError):
    """Error of the driver or the machine."""


class KernelFault(LaunchError, EmulationError):
    """Error of a kernel that failed on the emulator, with its line and access."""


class CompileError(Error, errors.CompileError):
    """Error for a source that the compiler refuses.

    Attributes
    ----------
    msg, command_line, stdout, stderr
        Message, options, and output of the compiler.
    """

    def __init__(self, msg: str, command_line: Any = (), stdout: Any = None, stderr: Any = None) -> None:
        errors.CompileError.__init__(self, msg, log=stderr or "", options=tuple(command_line or ()))
        self.msg: str = msg
        self.command_line: Any = command_line
        self.stdout: Any = stdout
        self.stderr: Any = stderr

    def __str__(self) -> str:
        parts = (("command", " ".join(self.options)), ("stdout", self.stdout), ("stderr", self.stderr))
        return "\n".join([self.msg, *(f"[{name}: {text}]" for name, text in parts if text)])


def as_error(error: Exception) -> Exception:
    """Return PyCUDA's exception for an error of cudakit or of the driver; return other exceptions unchanged."""
    text = str(error)
    if isinstance(error, Error):
        return error
    if isinstance(error, errors.CompileError):
        return CompileError("compilation failed", error.options, stderr=text.partition("\noptions: ")[0]).like(error)
    if isinstance(error, EmulationError) and not isinstance(error, errors.ArgumentError):
        return KernelFault(text).like(error)
    if not isinstance(error, errors.LaunchError) and "CUDA" not in type(error).__name__:
        return error
    lost = lost_context(error) is not None or (error.__cause__ and lost_context(error.__cause__))
    return _class_of(text, LaunchError if lost else LogicError)(text).like(error)


#: Words of cudakit's messages and of the driver's names of errors, and the exception of each.
_BY_WORDS: tuple[tuple[tuple[str, ...], type[Error]], ...] = (
    (("OUT_OF_MEMORY", "memory were asked for", "more than any memory"), MemoryError),
    (("LAUNCH_FAILED", "LAUNCH_OUT_OF_RESOURCES", "LAUNCH_TIMEOUT", "LAUNCH_INCOMPATIBLE"), LaunchError),
    (("NO_DEVICE", "NO_BINARY_FOR_GPU", "FILE_NOT_FOUND", "NOT_READY", "ECC_UNCORRECTABLE"), RuntimeError),
)


def _class_of(text: str, default: type[Error]) -> type[Error]:
    return next((error_class for words, error_class in _BY_WORDS if any(word in text for word in words)), default)


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the driver, and return its result: None, a value or a tuple of values.

    Raises
    ------
    Error
        If the driver refuses the call.
    """
    from cuda.bindings import driver

    status, *results = getattr(driver, name)(*arguments)
    if int(status) != 0:
        raise _class_of(status.name, LogicError)(f"{name} failed: {status.name}")
    return results[0] if len(results) == 1 else tuple(results) or None


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of cudakit and of the driver as PyCUDA's exceptions."""
    try:
        yield
    except Exception as error:
        result = as_error(error)
        if result is error:
            raise
        raise result from None  # its text has all of the error's
