"""Compile options, as a hashable record."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Hashable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.source.source import Source
from cudakit.types.checked import flag, is_one_of, listed, path_of, text_of, whole

#: Output of the compiler: machine code, PTX, relocatable machine code or LTO IR for linking, Tile IR.
Target: TypeAlias = Literal["cubin", "ptx", "object", "ltoir", "tileir"]
#: Fields that are paths, and what is there.
_CONTENT = {"cache": "folder", "bundle": "file"}
#: Fields of cuda.core.ProgramOptions that are set elsewhere, and where.
_NOT_EXTRA = {
    "arch": "the stream's device has it, or give arch= to compile, ptx or prepare",
    "name": "the source has it",
}


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """Options to compile a kernel. Every field that can change the code is part of the cache key.

    Attributes
    ----------
    std : str
        C++ dialect.
    fast_math : bool
        Approximate division, square root and functions; denormals are flushed to zero.
    lineinfo : bool
        Line numbers in the cubin, for profilers and the sanitizer.
    debug : bool
        Debug information, without optimisation.
    sanitize : bool
        Memory checks in tile kernels, for ``compute-sanitizer --tool memcheck``; other kernels need no option.
    max_registers : int or None
        Maximum of registers a thread.
    defines : mapping or sequence
        Macros: ``{"N": 4}``, or ``["FLAG", ("N", "4")]``.
    include_paths : sequence of path
        Folders that are searched for headers, before cudakit's and CUDA's own.
    pch : bool
        Automatic precompiled headers, for many specializations of a source with heavy headers (CUB) in one process. The
        first compile is slower, later compiles are several times faster.
    rdc : bool
        Compile to relocatable device code and link it, with CUDA's device runtime if the code calls it. Kernels that
        launch kernels in the text itself need no option; kernels that do so in a header need it.
    lto : bool
        Like `rdc`, with optimisation across all sources at link time.
    link : sequence
        Inputs that are linked to the kernel. Source is CUDA C++ text, or a kernel, whose source is compiled with these
        options. A file is a ``.cu``, ``.ptx``, ``.ltoir``, ``.cubin``, ``.fatbin``, ``.o`` or ``.a``. Compiled code is
        bytes, or the result of `Kernel.compile` for the targets ``object`` and ``ltoir``. The emulator links sources
        and PTX; `Kernel.ptx` then returns all of them, one after the other. A name that two inputs define is an error.
        In fatbins, object files and libraries such a conflict is not detected: the linker takes either definition.
    extra : mapping
        Any other field of ``cuda.core.ProgramOptions``, by its name. If a field or an option of ptxas may read a file,
        such as ``ptxas_options=["--options-file=…"]``, each process compiles the code again.
    cache : path, optional
        Cache folder of a package or a kernel, in place of the user's cache folder. Like that one, it is used only if no
        other user can write to it. ``CUDAKIT_CACHE_BYTES`` limits its size, and an empty ``CUDAKIT_CACHE_DIR`` turns it
        off too. Kernels of one source with different folders belong to different modules.
    bundle : path, optional
        Bundle of compiled kernels, whose code is used in place of compiling; see `use_bundle`. Kernels that it lacks
        are compiled, and all of them if there is no such file.
    """

    std: str = "c++17"
    fast_math: bool = False
    lineinfo: bool = False
    debug: bool = False
    sanitize: bool = False
    max_registers: int | None = None
    defines: Any = ()
    include_paths: Any = ()
    pch: bool = False
    rdc: bool = False
    lto: bool = False
    link: Any = ()
    extra: Any = ()
    cache: Any = None
    bundle: Any = None

    def __post_init__(self) -> None:
        text_of("CompileOptions: std", self.std)
        for field in dataclasses.fields(self):
            if field.default is False:
                object.__setattr__(self, field.name, flag(f"CompileOptions: {field.name}", getattr(self, field.name)))
        if self.max_registers is not None:
            whole("CompileOptions: max_registers", self.max_registers, 1)
        # Empty fields are skipped: most kernels have no options.
        for name, convert in (("defines", _defines), ("include_paths", _paths), ("link", _links), ("extra", _extra)):
            value = getattr(self, name)
            if not isinstance(value, tuple) or value:
                object.__setattr__(self, name, convert(value))
        for name in ("cache", "bundle"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _absolute(name, getattr(self, name)))

    @property
    def relocatable(self) -> bool:
        """True if the code is linked."""
        extra_names = {name for name, value in self.extra if value}
        return self.rdc or self.lto or bool(self.link) or "relocatable_device_code" in extra_names

    def replace(self, **changes: Any) -> CompileOptions:
        """Return a copy with changed fields."""
        fields = {field.name for field in dataclasses.fields(self)}
        if unknown := set(changes) - fields:
            raise TemplateError(
                f"unknown compile option {', '.join(sorted(unknown))}; the options are {', '.join(sorted(fields))}"
            )
        return dataclasses.replace(self, **changes)


def _defines(defines: Mapping[str, object] | Iterable[str | tuple[str, object]]) -> tuple[tuple[str, str], ...]:
    if isinstance(defines, str):
        defines = (defines,)
    if isinstance(defines, Iterable) and not isinstance(defines, Mapping):
        defines = [
            (define, "1") if isinstance(define, str) else define
            for define in listed("CompileOptions: defines are a mapping, or several names", defines)
        ]
    pairs = _pairs("defines", defines)
    return tuple((str(name), str(int(value) if isinstance(value, bool) else value)) for name, value in pairs)


def _links(links: Any) -> tuple[Source | Path | bytes, ...]:
    # Compiled code is a tuple of its own.
    several = isinstance(links, list | tuple) and not hasattr(links, "code")
    return tuple(map(linkable, links if several else (links,)))


def _extra(fields: Any) -> tuple[tuple[str, Any], ...]:
    extra = sorted((str(name), _hashable(str(name), value)) for name, value in _pairs("extra", fields))
    for name in dict(extra).keys() & _NOT_EXTRA:
        raise ArgumentError(f"CompileOptions: extra cannot set {name}; {_NOT_EXTRA[name]}")
    return tuple(extra)


def linkable(item: Any) -> Source | Path | bytes:
    """Return an input of the linker as a hashable record: a source, a file's path, or the bytes of code.

    A string with a brace, a semicolon or a newline is a source, any other string a path.

    Raises
    ------
    ArgumentError
        For any other object.
    """
    if isinstance(item, str):
        return Source(item, "<linked text>") if not {"{", ";", "\n"}.isdisjoint(item) else Path(item)
    if isinstance(item, Source | bytes):
        return item
    if isinstance(item, PathLike):
        return Path(item)
    for name, field_type in (("code", bytes), ("source", Source)):
        if isinstance(value := getattr(item, name, None), field_type):
            return value
    raise ArgumentError(
        f'link takes CUDA C++ text, files, kernels and compiled code, as in link=["lib.cu", kernel.compile(...)], got '
        f"{shortened(item)}"
    )


def _pairs(field: str, value: Any) -> Iterable[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else None
    if pairs is None:
        pairs = (
            listed(f"CompileOptions: {field} is a mapping, or pairs of a name and a value", value)
            if isinstance(value, Iterable)
            else [value]
        )
    if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return pairs
    raise ArgumentError(f"CompileOptions: {field} is a mapping, or pairs of a name and a value, got {shortened(value)}")


def _paths(folders: Any) -> tuple[str, ...]:
    if isinstance(folders, str | PathLike) or not isinstance(folders, Iterable):
        folders = (folders,)
    paths = listed("CompileOptions: include_paths are several folders", folders)
    return tuple(str(path_of("CompileOptions: each of include_paths", path)) for path in paths)


def _absolute(field: str, path: Any) -> str:
    """Return the absolute path in a field, which a change of the working directory does not affect."""
    text = str(path_of(f"CompileOptions: {field}", path))
    if not os.fspath(path) or "\0" in text:
        raise ArgumentError(f"CompileOptions: {field} is a {_CONTENT[field]}, got {shortened(path)}")
    try:
        return os.path.abspath(Path(text).expanduser())
    except RuntimeError as error:
        raise ArgumentError(f"CompileOptions: {field}={shortened(path)} cannot be used: {error}") from error


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(name, item) for item in value)
    if not isinstance(value, Hashable):
        raise ArgumentError(
            f"CompileOptions: extra field {name} is a number, a text, or several, got {shortened(value)}"
        )
    return value


def is_arch(arch: object) -> bool:
    """Return whether `arch` is the name of an arch, such as ``sm_90`` or ``sm_90a``."""
    if not isinstance(arch, str) or not arch.startswith("sm_"):
        return False
    number = arch[3:]
    return (number[:-1] if number.endswith(("a", "f")) else number).isdecimal()


def unknown_arch(where: str, arch: object, expected: str = "a name such as 'sm_90'") -> str:
    """Return the message for an unknown arch. `expected` describes the expected names."""
    return f"{where}: unknown arch {shortened(arch)}; expected {expected}"


def check_target(kernel: str, arch: Any, target: Any) -> None:
    """Raise for an unknown arch or an unknown target (a format of the compiled code).

    `kernel` is a name for the message.

    Raises
    ------
    TemplateError
    """
    if not is_arch(arch):
        raise TemplateError(unknown_arch(kernel, arch))
    if not is_one_of(target, get_args(Target)):
        raise TemplateError(
            f"{kernel}: a target is one of {', '.join(map(repr, get_args(Target)))}, got {shortened(target)}"
        )


def options_of(kernel: str, options: CompileOptions | None) -> CompileOptions:
    """Return a kernel's options, or the defaults for None.

    Raises
    ------
    ArgumentError
        For the formats of other libraries, such as a list of flags.
    """
    if options is None or isinstance(options, CompileOptions):
        return options or CompileOptions()
    raise ArgumentError(
        f"{kernel}: options are a ck.CompileOptions, as in ck.CompileOptions(fast_math=True), got {shortened(options)}"
    )
