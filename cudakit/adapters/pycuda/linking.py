"""PyCUDA's modules of compiled code, and its linker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cudakit.adapters.pycuda.enums import jit_input_type, jit_option
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.adapters.pycuda.functions import Module
from cudakit.errors import TemplateError, shortened
from cudakit.jit.source.source import Source, from_bytes
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import module_of_source

#: Modules of code that this process has compiled, by that code: they know their kernels' parameters.
compiled_here: dict[bytes, Module] = {}


def module_from_buffer(buffer: Any, options: Iterable[tuple[Any, Any]] = (), message_handler: Any = None) -> Module:
    """Return the module of compiled code: a cubin, or PTX. The emulator runs PTX, and what this process has compiled.

    Parameters
    ----------
    buffer : bytes or str
        Code.
    options : sequence of (jit_option, value)
        Options of the driver's compiler, of which MAX_REGISTERS has an effect.
    message_handler : optional
        Accepted: errors have the driver's text.
    """
    data = buffer.encode() if isinstance(buffer, str) else bytes(buffer)
    module = compiled_here.get(data)
    if module is not None:
        return module
    return _of_code(data, _driver_options(options), ())


def module_from_file(filename: str) -> Module:
    """Return the module of a file of compiled code: a cubin, or PTX."""
    try:
        data = Path(filename).read_bytes()
    except OSError as error:
        raise LogicError(f"cuModuleLoad failed: file not found: {filename}: {error.strerror}") from error
    return module_from_buffer(data)


def _driver_options(options: Iterable[tuple[Any, Any]] | None) -> int | None:
    """Return the most registers of a thread, of the options of the driver's compiler."""
    values = {int(name): value for name, value in options or ()}
    return values.get(int(jit_option.MAX_REGISTERS))


def _of_code(data: bytes, max_registers: int | None, others: Iterable[Any]) -> Module:
    try:
        origin = from_bytes(data.rstrip(b"\0") if data[:4] != b"\x7fELF" else data)
    except TemplateError as error:
        raise LogicError(f"cuModuleLoadDataEx failed: invalid image: {error}") from error
    with translated():
        return Module(module_of_source(origin, CompileOptions(max_registers=max_registers, link=tuple(others))))


class Linker:
    """A linker of compiled code.

    Parameters
    ----------
    message_handler : optional
        Accepted: errors have the linker's text.
    options : sequence of (jit_option, value)
        Options, of which MAX_REGISTERS has an effect.
    log_verbose : bool
        Accepted.
    """

    def __init__(self, message_handler: Any = None, options: Any = None, log_verbose: bool = False) -> None:
        self._max_registers = _driver_options(options)
        self._inputs: list[bytes | Path] = []

    def add_data(self, data: Any, input_type: Any, name: str = "unknown") -> None:
        """Add compiled code."""
        jit_input_type(int(input_type))
        self._inputs.append(data.encode() if isinstance(data, str) else bytes(data))

    def add_file(self, filename: str, input_type: Any) -> None:
        """Add a file of compiled code, or a library."""
        path = Path(filename)
        if not path.exists():
            raise LogicError(f"cuLinkAddFile failed: file not found: {shortened(str(filename))}")
        if int(input_type) in (jit_input_type.PTX, jit_input_type.CUBIN):
            self.add_data(path.read_bytes(), input_type)
        elif not path.name.startswith(("libcudadevrt", "cudadevrt")):  # which is linked where it is needed
            self._inputs.append(path)

    def link_module(self) -> Module:
        """Return the module of all that was added."""
        own_modules = [compiled_here.get(data) if isinstance(data, bytes) else None for data in self._inputs]
        if own_modules and all(module is not None for module in own_modules):
            if len(own_modules) == 1 and own_modules[0] is not None:
                return own_modules[0]
            texts = [module.compiled.source.text for module in own_modules if module is not None]
            with translated():
                return Module(module_of_source(Source("\n".join(texts), "<linked sources>", None)))
        codes = [data for data in self._inputs if isinstance(data, bytes)]
        if not codes:
            raise LogicError("cuLinkComplete failed: invalid value: add code before")
        others: list[Any] = [data for data in self._inputs if data is not codes[0]]
        return _of_code(codes[0], self._max_registers, others)

    def linked(
        self,
        origin: Source,
        options: Iterable[str],
        include_dirs: Iterable[str],
        arch: str | None,
        make: Callable[..., Module],
    ) -> Module:
        """Return the module of a source, linked with what was added; `make` compiles a source."""
        module = make(origin, options, include_dirs, arch, False)
        if not self._inputs:
            return module
        changed = module.compiled.options.replace(link=tuple(self._inputs))
        with translated():
            return Module(module_of_source(module.compiled.source, changed), module.references)
