"""Compile options, as one hashable record."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.source.source import Source
from cudakit.types.checked import flag, is_one_of, listed, path_of, text_of, whole

#: What a text is compiled to: machine code, PTX, what is linked (relocatable machine code, LTO IR), and Tile IR.
Target: TypeAlias = Literal["cubin", "ptx", "object", "ltoir", "tileir"]
#: Fields of cuda.core.ProgramOptions that have a place of their own, and where it is.
_NOT_EXTRA = {
    "arch": "the stream's device has it, or give arch= to compile, ptx or prepare",
    "name": "the source has it",
}


@dataclass(frozen=True)
class CompileOptions:
    """How a kernel is compiled; every field that can change the code is part of the cache's key.

    Attributes
    ----------
    std : str
        C++ dialect.
    fast_math : bool
        Approximate division, square root and functions; denormals flushed to zero.
    lineinfo : bool
        Line numbers in the cubin, for profilers and the sanitizer.
    debug : bool
        Debug information, optimisation off.
    sanitize : bool
        Tile kernels with checks of memory, for ``compute-sanitizer --tool memcheck``; kernels of threads need none.
    max_registers : int or None
        Cap on registers a thread.
    defines : mapping or sequence
        Macros: ``{"N": 4}``, or ``["FLAG", ("N", "4")]``.
    include_paths : sequence of path
        Folders searched for headers, before cudakit's and CUDA's own.
    pch : bool
        Automatic precompiled headers, for many specializations of one source with heavy headers (CUB) in one
        process: the first compile is slower, later ones several times faster.
    rdc : bool
        Compiled as relocatable device code and linked, with CUDA's device runtime where the code calls it. Kernels
        that launch kernels in the text itself need no saying so; those in a header do.
    lto : bool
        The same, optimised across all texts when they are linked.
    link : sequence
        What is linked to the kernel: CUDA C++ text, or a kernel whose source it is (compiled with these same
        options), files (``.cu``, ``.ptx``, ``.ltoir``, ``.cubin``, ``.fatbin``, ``.o``, ``.a``), and compiled code:
        bytes, or what `Kernel.compile` gives for the targets ``object`` and ``ltoir``. The emulator links texts and
        PTX; `Kernel.ptx` then is that of all, one after the other. One name that two inputs define is an error,
        except of fatbins, object files and libraries, in which it is not seen: the linker takes either.
    extra : mapping
        Any other field of ``cuda.core.ProgramOptions`` by its name. Code made with a field or an option of ptxas that
        may read a file, such as ``ptxas_options=["--options-file=…"]``, is compiled again in each process.
    cache : path, optional
        Folder in which the code is kept, of a package's or a kernel's own, in place of the user's one. It is yours
        alone, or is not used, as the user's is not. The environment has its size (``CUDAKIT_CACHE_BYTES``), and an
        empty ``CUDAKIT_CACHE_DIR`` turns it off too. Kernels of one source that name different folders are of
        different modules.
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

    def __post_init__(self) -> None:
        text_of("CompileOptions: std", self.std)
        for field in dataclasses.fields(self):
            if field.default is False:
                object.__setattr__(self, field.name, flag(f"CompileOptions: {field.name}", getattr(self, field.name)))
        if self.max_registers is not None:
            whole("CompileOptions: max_registers", self.max_registers, 1)
        # Fields left out are not looked into: kernels are mostly made without options.
        for name, made in (("defines", _defines), ("include_paths", _paths), ("link", _links), ("extra", _extra)):
            value = getattr(self, name)
            if not isinstance(value, tuple) or value:
                object.__setattr__(self, name, made(value))
        if self.cache is not None:
            object.__setattr__(self, "cache", _folder(self.cache))

    @property
    def relocatable(self) -> bool:
        """Whether the code is linked."""
        named = {name for name, value in self.extra if value}
        return self.rdc or self.lto or bool(self.link) or "relocatable_device_code" in named

    def replace(self, **changes: Any) -> CompileOptions:
        """A copy with `changes` to its fields."""
        known = {field.name for field in dataclasses.fields(self)}
        if unknown := set(changes) - known:
            raise TemplateError(
                f"unknown compile option {', '.join(sorted(unknown))}; the options are {', '.join(sorted(known))}"
            )
        return dataclasses.replace(self, **changes)


def _defines(given: Mapping[str, object] | Iterable[str | tuple[str, object]]) -> tuple[tuple[str, str], ...]:
    if isinstance(given, str):
        given = (given,)
    if isinstance(given, Iterable) and not isinstance(given, Mapping):
        given = [
            (each, "1") if isinstance(each, str) else each
            for each in listed("CompileOptions: defines are a mapping, or several names", given)
        ]
    pairs = _pairs("defines", given)
    return tuple((str(name), str(int(value) if isinstance(value, bool) else value)) for name, value in pairs)


def _links(given: Any) -> tuple[Source | Path | bytes, ...]:
    # Compiled code is a tuple of its own.
    several = isinstance(given, list | tuple) and not hasattr(given, "code")
    return tuple(map(_linkable, given if several else (given,)))


def _extra(given: Any) -> tuple[tuple[str, Any], ...]:
    extra = sorted((str(name), _hashable(str(name), value)) for name, value in _pairs("extra", given))
    for name in dict(extra).keys() & _NOT_EXTRA:
        raise ArgumentError(f"CompileOptions: extra cannot set {name}; {_NOT_EXTRA[name]}")
    return tuple(extra)


def _linkable(given: Any) -> Source | Path | bytes:
    """What is linked, as a record that has a hash: a text, a file or code."""
    if isinstance(given, str):
        return Source(given, "<linked text>") if not {"{", ";", "\n"}.isdisjoint(given) else Path(given)
    if isinstance(given, Source | bytes):
        return given
    if isinstance(given, PathLike):
        return Path(given)
    for name, kind in (("code", bytes), ("source", Source)):
        if isinstance(found := getattr(given, name, None), kind):
            return found
    raise ArgumentError(
        f'link takes CUDA C++ text, files, kernels and compiled code, as in link=["lib.cu", kernel.compile(...)], got '
        f"{shortened(given)}"
    )


def _pairs(field: str, given: Any) -> Iterable[tuple[Any, Any]]:
    pairs = list(given.items()) if isinstance(given, Mapping) else None
    if pairs is None:
        pairs = (
            listed(f"CompileOptions: {field} is a mapping, or pairs of a name and a value", given)
            if isinstance(given, Iterable)
            else [given]
        )
    if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return pairs
    raise ArgumentError(f"CompileOptions: {field} is a mapping, or pairs of a name and a value, got {shortened(given)}")


def _paths(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | PathLike) or not isinstance(given, Iterable):
        given = (given,)
    paths = listed("CompileOptions: include_paths are several folders", given)
    return tuple(str(path_of("CompileOptions: each of include_paths", path)) for path in paths)


def _folder(given: Any) -> str:
    """A folder as it is named whatever the working directory becomes."""
    text = str(path_of("CompileOptions: cache", given))
    if not os.fspath(given) or "\0" in text:
        raise ArgumentError(f"CompileOptions: cache is a folder, got {shortened(given)}")
    try:
        return os.path.abspath(Path(text).expanduser())
    except RuntimeError as error:
        raise ArgumentError(f"CompileOptions: cache={shortened(given)} cannot be used: {error}") from error


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(name, item) for item in value)
    if not isinstance(value, Hashable):
        raise ArgumentError(
            f"CompileOptions: extra field {name} is a number, a text, or several, got {shortened(value)}"
        )
    return value


def is_arch(arch: object) -> bool:
    """Whether `arch` is the name of an arch, such as ``sm_90`` or ``sm_90a``."""
    return isinstance(arch, str) and re.fullmatch(r"sm_\d+[af]?", arch) is not None


def unknown_arch(where: str, arch: object, known: str = "a name such as 'sm_90'") -> str:
    """Return the message for an arch that is not known; `known` says what is expected."""
    return f"{where}: unknown arch {shortened(arch)}; expected {known}"


def check_target(kernel: str, arch: Any, target: Any) -> None:
    """Raise where nothing is compiled for an arch, or to such code.

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


def options_of(kernel: str, given: CompileOptions | None) -> CompileOptions:
    """The options of a kernel: those that are given, else the usual ones.

    Raises
    ------
    ArgumentError
        For other libraries' forms, such as a list of flags.
    """
    if given is None or isinstance(given, CompileOptions):
        return given or CompileOptions()
    raise ArgumentError(
        f"{kernel}: options are a ck.CompileOptions, as in ck.CompileOptions(fast_math=True), got {shortened(given)}"
    )
