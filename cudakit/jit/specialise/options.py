"""Compile options, as one hashable record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from cudakit.errors import ArgumentError, TemplateError


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
        # Fields left out are not looked into: kernels are mostly made without options.
        if self.defines != ():
            object.__setattr__(self, "defines", _defines(self.defines))
        if self.include_paths != ():
            object.__setattr__(self, "include_paths", _paths(self.include_paths))
        if self.extra != ():
            extra = self.extra.items() if isinstance(self.extra, Mapping) else self.extra
            object.__setattr__(self, "extra", tuple(sorted((str(name), _hashable(value)) for name, value in extra)))

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
    pairs = given.items() if isinstance(given, Mapping) else ((d, "1") if isinstance(d, str) else d for d in given)
    return tuple((str(name), str(int(value) if isinstance(value, bool) else value)) for name, value in pairs)


def _paths(given: str | PathLike[str] | Iterable[str | PathLike[str]]) -> tuple[str, ...]:
    return (fspath(given),) if isinstance(given, str | PathLike) else tuple(fspath(path) for path in given)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list | tuple) else value


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
