"""The exceptions that cudakit raises, and the one warning it gives."""

from __future__ import annotations


class CudakitError(Exception):
    """Base of every error that cudakit raises on purpose."""


class TemplateError(CudakitError, ValueError):
    """The source, the kernel's name or its template arguments cannot be used as given."""


class ArgumentError(CudakitError, TypeError):
    """A kernel argument does not match its parameter; the message names kernel, parameter, expected and got."""


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


class EmulationError(CudakitError, RuntimeError):
    """The emulator met an instruction or an access that it cannot execute."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used; work goes on without it."""


class EmulatorWarning(UserWarning):
    """There is no GPU; kernels run on the emulator instead."""
