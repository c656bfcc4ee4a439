"""PyCUDA's compiler module: kernels from CUDA C++ source, compiled by NVRTC as nvcc would."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from cudakit.adapters.compiler_options import compile_options, usable_arch
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.contexts import get_version
from cudakit.adapters.pycuda.errors import CompileError, translated
from cudakit.adapters.pycuda.functions import Function, Module
from cudakit.adapters.pycuda.linking import Linker, compiled_here
from cudakit.adapters.pycuda.texture_references import SurfaceReference, TextureReference, rewritten
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.cache import settings
from cudakit.jit.source.source import Source, from_text
from cudakit.kernel.kernel import module_of_source
from cudakit.places import device_limits
from cudakit.streams.devices import has_gpu

#: Options of sources that name none, from the environment's ``PYCUDA_DEFAULT_NVCC_FLAGS``.
DEFAULT_NVCC_FLAGS = settings.pycuda_flags()


class CudaModule:
    """A module of kernels and variables.

    Attributes
    ----------
    module : Module
        The loaded module.
    """

    module: Module | None = None

    def _loaded(self) -> Module:
        if self.module is None:
            raise CompileError("the module is not linked: call link() first")
        return self.module

    def get_function(self, name: str) -> Function:
        """Return the kernel with this name."""
        return self._loaded().get_function(name)

    def get_global(self, name: str) -> tuple[int, int]:
        """Return the address of a variable, and its bytes."""
        return self._loaded().get_global(name)

    def get_texref(self, name: str) -> TextureReference:
        """Return a texture reference of the source."""
        return self._loaded().get_texref(name)

    def get_surfref(self, name: str) -> SurfaceReference:
        """Return a surface reference of the source."""
        return self._loaded().get_surfref(name)


def text_of(source: Any) -> Any:
    """Return the text of an object that generates code, such as cgen's; return other objects unchanged."""
    is_generator = hasattr(source, "generate") or hasattr(source, "render")
    return str(source) if is_generator else source


def _module(
    origin: Source, options: Iterable[str] | None, include_dirs: Iterable[str] | None, arch: str | None, keep: bool
) -> Module:
    """Compile a source, and return its module.

    Raises
    ------
    CompileError
        If the compiler refuses it.
    """
    flags = DEFAULT_NVCC_FLAGS if options is None else [options] if isinstance(options, str) else options
    with translated():
        try:
            converted, named = compile_options(flags, include_dirs or ())
        except ArgumentError as error:
            raise CompileError(str(error), tuple(map(str, flags))) from error
        origin, references = rewritten(origin, converted.include_paths)
        module = Module(module_of_source(origin, converted, "skip", usable_arch(arch or named)), references)
        if module.compiled.kernels:
            module.compiled.prepare()
    if keep:
        folder = Path(tempfile.mkdtemp())
        (folder / "kernel.cu").write_text(origin.text, encoding="utf-8")
        print(f"*** compiler output in {folder}")
    return module


class SourceModule(CudaModule):
    """A module of CUDA C++ source.

    Parameters
    ----------
    source : str
        CUDA C++ source.
    nvcc : str
        Accepted: NVRTC compiles.
    options : list of str, optional
        Options of nvcc.
    keep : bool
        Whether to write the source to a folder, and to print its name.
    no_extern_c : bool
        Whether the source's names are C++'s; they are found either way, mangled or not.
    arch : str, optional
        Arch to compile for. Default: the device's.
    code, cache_dir : optional
        Accepted: the code is the device's, and cudakit's cache keeps it.
    include_dirs : list of str
        Folders of headers.

    Raises
    ------
    CompileError
        If the compiler refuses the source; the message has its text.
    """

    def __init__(
        self,
        source: str,
        nvcc: str = "nvcc",
        options: Iterable[str] | None = None,
        keep: bool = False,
        no_extern_c: bool = False,
        arch: str | None = None,
        code: str | None = None,
        cache_dir: Any = None,
        include_dirs: Iterable[str] | None = None,
    ) -> None:
        self.module: Module = _module(from_text(text_of(source), 2), options, include_dirs, arch, keep)


def compile(
    source: str,
    nvcc: str = "nvcc",
    options: Iterable[str] | None = None,
    keep: bool = False,
    no_extern_c: bool = False,
    arch: str | None = None,
    code: str | None = None,
    cache_dir: Any = None,
    include_dirs: Iterable[str] | None = None,
    target: str = "cubin",
) -> bytes:
    """Compile CUDA C++ source, and return a cubin or PTX, which `pycuda.driver.module_from_buffer` loads.

    On the emulator the result is PTX.

    Raises
    ------
    CompileError
        If the compiler refuses the source.
    """
    return _compiled(from_text(text_of(source), 2), options, keep, arch, include_dirs, target)


def _compiled(
    origin: Source,
    options: Iterable[str] | None,
    keep: bool,
    arch: str | None,
    include_dirs: Iterable[str] | None,
    target: str,
) -> bytes:
    if target not in ("cubin", "ptx"):
        raise CompileError(f"target is 'cubin' or 'ptx', got {shortened(target)}: NVRTC makes no fatbin; take a cubin")
    module = _module(origin, options, include_dirs, arch, keep)
    if not module.compiled.kernels:
        raise CompileError("the source has no kernel")
    kernel = module.compiled[module.compiled.kernels[0]]
    if not has_gpu():
        target = "ptx"  # the emulator of a later process can run it, if the program keeps it in a file
    with translated():
        data: bytes = kernel.compile(arch=module.compiled.arch or device_limits().arch, target=target).code  # type: ignore[arg-type]
    compiled_here[data] = module
    return data


def compile_plain(
    source: str, options: Sequence[str], keep: bool, nvcc: str, cache_dir: Any, target: str = "cubin"
) -> bytes:
    """Compile CUDA C++ source with options of nvcc, and return a cubin or PTX."""
    return _compiled(from_text(text_of(source), 2), options, keep, None, None, target)


def get_nvcc_version(nvcc: str = "nvcc") -> str:
    """Return the name and version of the compiler: NVRTC's."""
    major, minor, _ = get_version()
    return f"NVRTC, release {major}.{minor}"


class DynamicModule(CudaModule):
    """A module of several sources and compiled files, linked together.

    Sources become one translation unit, in the order in which they are added.

    Parameters
    ----------
    nvcc, link_options, keep, no_extern_c, arch, code, cache_dir, include_dirs
        As for `SourceModule`.
    message_handler, log_verbose, cuda_libdir : optional
        Accepted: errors have the linker's text, and CUDA's device library is found by itself.
    """

    module: Module | None

    def __init__(
        self,
        nvcc: str = "nvcc",
        link_options: Any = None,
        keep: bool = False,
        no_extern_c: bool = False,
        arch: str | None = None,
        code: str | None = None,
        cache_dir: Any = None,
        include_dirs: Iterable[str] | None = None,
        message_handler: Any = None,
        log_verbose: bool = False,
        cuda_libdir: Any = None,
    ) -> None:
        self.linker: Linker | None = Linker(message_handler, link_options, log_verbose)
        self._keep, self._arch, self._include_dirs = keep, arch, list(include_dirs or ())
        self._sources: list[str] = []
        self._options: list[str] = []
        self._place: Source | None = None

    def add_source(
        self, source: str, nvcc_options: Iterable[str] | None = None, name: str = "kernel.ptx"
    ) -> DynamicModule:
        """Add CUDA C++ source."""
        self._place = self._place or from_text(text_of(source), 2)
        self._sources.append(source)
        self._options += DEFAULT_NVCC_FLAGS if nvcc_options is None else nvcc_options
        return self

    def add_data(self, data: Any, input_type: Any, name: str = "unknown") -> DynamicModule:
        """Add compiled code."""
        self._linker().add_data(data, input_type, name)
        return self

    def add_file(self, filename: str, input_type: Any) -> DynamicModule:
        """Add a file of compiled code, or a library."""
        self._linker().add_file(filename, input_type)
        return self

    def add_stdlib(self, libname: str) -> DynamicModule:
        """Do nothing: CUDA's device library is linked where kernels need it."""
        if libname != "cudadevrt":
            raise CompileError(
                f"CUDA's library {libname!r} is not known; add it by add_file(path, jit_input_type.LIBRARY)"
            )
        return self

    def _linker(self) -> Linker:
        if self.linker is None:
            raise CompileError("the module is linked already; make another")
        return self.linker

    def link(self) -> DynamicModule:
        """Compile and link all that was added."""
        linker = self._linker()
        if self._place is None:
            self.module = linker.link_module()
        else:
            text = "\n".join(self._sources)
            origin = replace(self._place, text=text)
            self.module = linker.linked(origin, self._options, self._include_dirs, self._arch, _module)
        self.linker = None
        return self


class DynamicSourceModule(DynamicModule):
    """A module of a source whose kernels launch kernels."""

    def __init__(
        self,
        source: str,
        nvcc: str = "nvcc",
        options: Iterable[str] | None = None,
        keep: bool = False,
        no_extern_c: bool = False,
        arch: str | None = None,
        code: str | None = None,
        cache_dir: Any = None,
        include_dirs: Iterable[str] | None = None,
        cuda_libdir: Any = None,
    ) -> None:
        super().__init__(nvcc, None, keep, no_extern_c, arch, code, cache_dir, include_dirs)
        self.module: Module = _module(from_text(text_of(source), 2), options, include_dirs, arch, keep)
        self.linker = None


__all__ = [
    "DEFAULT_NVCC_FLAGS", "CudaModule", "DynamicModule", "DynamicSourceModule", "SourceModule", "compile",
    "compile_plain", "get_nvcc_version",
]  # fmt: skip

#: Names of PyCUDA that are not here, and what to use.
ABSENT = {
    "preprocess_source": "SourceModule compiles by NVRTC, which has its own preprocessor",
}
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)
