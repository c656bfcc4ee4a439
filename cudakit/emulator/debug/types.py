"""C++ types of variables as NumPy's: from debug information, and of shared arrays from the text that declares them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np

from cudakit.emulator.debug.dwarf import Entry
from cudakit.emulator.debug.expressions import Value, evaluate
from cudakit.errors import ArgumentError
from cudakit.types.cpp import parse_type, scalar_dtype

_KINDS: Final = {2: "u", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u"}
_SPECIAL: Final = {"__half": np.dtype("f2"), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SHARED = re.compile(r"__shared__\s+([^;=()]+(?:\([^;=]*?\)[^;=()]*)*)\s*[;=]")
_DECLARED = re.compile(r"\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)$")
_ALIGNED = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)|\b(?:const|volatile|static|extern|struct)\b")


class Type(NamedTuple):
    """What the bytes of a variable are, and of a pointer what it points to."""

    dtype: np.dtype
    target: Entry | None = None


def of_entry(entry: Entry | None) -> Type | None:
    """The type that an entry of debug information stands for; None where NumPy has none."""
    while entry is not None and entry.kind == "same":
        entry = entry.given.get("type")
    if entry is None:
        return None
    given = entry.given
    if entry.kind == "pointer":
        return Type(np.dtype("u8"), given.get("type"))
    if entry.kind == "base":
        if given.get("encoding") == 2:
            return Type(np.dtype("?"))
        kind, size = _KINDS.get(given.get("encoding", 0)), given.get("size", 0)
        return Type(np.dtype(f"{kind}{size}")) if kind and size in (1, 2, 4, 8) else None
    if entry.kind == "enum":
        return Type(np.dtype(f"i{given.get('size', 4)}"))
    if entry.kind == "array":
        element = of_entry(given.get("type"))
        extents = tuple(_extent(each) for each in entry.children if each.kind == "extent")
        return None if element is None else Type(np.dtype((element.dtype, extents)), element.target)
    if entry.kind == "struct":
        if given.get("name") in _SPECIAL:
            return Type(_SPECIAL[given["name"]])
        return _struct(entry)
    return None


def _extent(entry: Entry) -> int:
    count: int = entry.given.get("count", entry.given.get("last", -1) + 1)
    return count


def _struct(entry: Entry) -> Type | None:
    names, formats, offsets = list[str](), list[np.dtype](), list[int]()
    for member in entry.children:
        found = of_entry(member.given.get("type")) if member.kind == "member" else None
        if found is not None and isinstance(member.given.get("offset", 0), int):
            # A base class has no name.
            names.append(member.given.get("name") or f"base{len(names)}")
            formats.append(found.dtype)
            offsets.append(member.given.get("offset", 0))
    if not names:
        return None
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": entry.given.get("size", 0)}
    try:
        return Type(np.dtype(fields))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


def of_shared(text: str, name: str, size: int, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype:
    """Type and shape of a shared variable of `size` bytes, as the text declares it; bytes where that is not clear.

    Parameters
    ----------
    text : str
        CUDA C++.
    name : str
    size : int
    meant : mapping of str to str
        What template parameters are.
    structs : mapping of str to Entry
        Structs by their names.
    """
    for match in _SHARED.finditer(_COMMENT.sub(" ", text)):
        base, declared = _split(_ALIGNED.sub(" ", match[1]))
        for each in declared:
            found = _DECLARED.match(each)
            if found is None or found[1] != name:
                continue
            element = _element(base, meant, structs)
            if element is None or not element.itemsize or size % element.itemsize:
                break
            extents = [_whole(extent, meant) for extent in re.findall(r"\[([^\]]*)\]", found[2])]
            shape = _completed(extents, size // element.itemsize)
            return np.dtype((element, shape)) if shape is not None else element
    return np.dtype(("u1", (size,)))


def _split(declaration: str) -> tuple[str, list[str]]:
    """The type in front, and the names with their extents."""
    first, *more = re.split(r",(?![^<\[]*[>\]])", declaration)
    match = re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", first)
    if match is None:
        return "", []
    return first[: match.start()].strip(), [match[0], *more]


def _element(base: str, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype | None:
    name = meant.get(base, base).strip()
    if name in structs:
        found = of_entry(structs[name])
        return None if found is None else found.dtype
    try:
        return scalar_dtype(parse_type(name))
    except (KeyError, TypeError, ValueError):
        return None


def _whole(text: str, meant: Mapping[str, str]) -> int | None:
    """A constant expression of numbers and template parameters."""
    try:
        return int(evaluate(text, _Constants(meant)).data[0])
    except (ArgumentError, OverflowError, TypeError, ValueError):
        return None


class _Constants:
    """Template parameters as variables."""

    def __init__(self, meant: Mapping[str, str]) -> None:
        self._meant = meant

    def variable(self, name: str) -> Value:
        if name not in self._meant:
            raise ArgumentError(f"{name} is not known")
        return evaluate(self._meant[name], _Constants({}))

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        raise ArgumentError("no constant is a pointer")


def _completed(extents: list[int | None], count: int) -> tuple[int, ...] | None:
    """Extents of `count` elements, of which one may be unknown; else a row of them."""
    if not extents:
        return () if count == 1 else (count,)
    known = prod(extent for extent in extents if extent)
    missing = [place for place, extent in enumerate(extents) if not extent]
    if len(missing) == 1 and known and count % known == 0:
        extents[missing[0]] = count // known
    elif missing or known != count:
        return (count,)
    return tuple(extent or 0 for extent in extents)
