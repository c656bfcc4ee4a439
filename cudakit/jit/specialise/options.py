"""Compile options, as one hashable record."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from cudakit.errors import ArgumentError, TemplateError
from cudakit.types.checked import flag, path_of, text_of, whole


@dataclass(frozen=True)
class CompileOptions:
    """How a kernel is compiled; every field is part of the cache's key.

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
    max_registers : int or None
        Cap on registers a thread.
    defines : mapping or sequence
        Macros: ``{"N": 4}``, or ``["FLAG", ("N", "4")]``.
    include_paths : sequence of path
        Folders searched for headers, before cudakit's and CUDA's own.
    pch : bool
        Automatic precompiled headers, for many specializations of one source with heavy headers (CUB) in one
        process: the first compile is slower, later ones several times faster.
    extra : mapping
        Any other field of ``cuda.core.ProgramOptions`` by its name.
    """

    std: str = "c++17"
    fast_math: bool = False
    lineinfo: bool = False
    debug: bool = False
    max_registers: int | None = None
    defines: Any = ()
    include_paths: Any = ()
    pch: bool = False
    extra: Any = ()

    def __post_init__(self) -> None:
        text_of("CompileOptions: std", self.std)
        for name in ("fast_math", "lineinfo", "debug", "pch"):
            object.__setattr__(self, name, flag(f"CompileOptions: {name}", getattr(self, name)))
        if self.max_registers is not None:
            whole("CompileOptions: max_registers", self.max_registers, 1)
        # Fields left out are not looked into: kernels are mostly made without options.
        if self.defines != ():
            object.__setattr__(self, "defines", _defines(self.defines))
        if self.include_paths != ():
            object.__setattr__(self, "include_paths", _paths(self.include_paths))
        if self.extra != ():
            extra = sorted((str(name), _hashable(str(name), value)) for name, value in _pairs("extra", self.extra))
            object.__setattr__(self, "extra", tuple(extra))

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
        given = [(each, "1") if isinstance(each, str) else each for each in given]
    pairs = _pairs("defines", given)
    return tuple((str(name), str(int(value) if isinstance(value, bool) else value)) for name, value in pairs)


def _pairs(field: str, given: Any) -> Iterable[tuple[Any, Any]]:
    pairs = list(given.items() if isinstance(given, Mapping) else given if isinstance(given, Iterable) else [given])
    if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return pairs
    raise ArgumentError(f"CompileOptions: {field} is a mapping, or pairs of a name and a value, got {given!r}")


def _paths(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | PathLike) or not isinstance(given, Iterable):
        given = (given,)
    return tuple(str(path_of("CompileOptions: each of include_paths", path)) for path in given)


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(name, item) for item in value)
    if not isinstance(value, Hashable):
        raise ArgumentError(f"CompileOptions: extra field {name} is a number, a text, or several, got {value!r}")
    return value


def check_target(kernel: str, arch: Any, target: Any) -> None:
    """Raise where nothing is compiled for an arch, or to such code.

    Raises
    ------
    TemplateError
    """
    if not isinstance(arch, str) or re.fullmatch(r"sm_\d+[af]?", arch) is None:
        raise TemplateError(f"{kernel}: an arch is named as in 'sm_90', got {arch!r}")
    if target not in ("cubin", "ptx"):
        raise TemplateError(f"{kernel}: a target is 'cubin' or 'ptx', got {target!r}")


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
        f"{kernel}: options are a ck.CompileOptions, as in ck.CompileOptions(fast_math=True), got {given!r}"
    )
