"""Declarations of variables and parameters, and their initialisers: PTX ISA 5.4 and 10.8 (linking)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from math import prod

from cudakit.emulator.ptx.constants import constant, integer
from cudakit.emulator.ptx.program import Immediate, Pointer, Symbol, Variable
from cudakit.emulator.ptx.tokens import Tokens, is_name, is_number

TYPE_BYTES = {
    kind + str(bits): bits // 8 for kind in "busf" for bits in (8, 16, 32, 64, 128) if (kind, bits) != ("f", 8)
} | {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4, "tf32": 4, "texref": 8, "samplerref": 8, "surfref": 8}

_LARGEST = 1 << 40
_SPACES = (".global", ".const", ".shared", ".local", ".param", ".tex", ".reg")


def variable(tokens: Tokens, extern: bool = False, suffix: str = "") -> Variable:
    """The declaration at hand, from its state space to before the ``;``; `suffix` makes its name unique."""
    if tokens.token not in _SPACES or tokens.token == ".reg":
        raise tokens.error(f"expected a state space, found {tokens.token or 'the end of the text'!r}")
    space = tokens.take()[1:]
    align, kind, vector, pointee = 0, "", 1, False
    while tokens.token.startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            # After .ptr it is the alignment of what the parameter points to.
            given = integer(tokens, 1 << 32)
            if given == 0 or given & (given - 1):
                raise tokens.error(f"an alignment must be a power of two, got {given}")
            align = align if pointee else given
        elif word in ("v2", "v4"):
            vector = int(word[1])
        elif word in TYPE_BYTES:
            kind = word
        elif word == "attribute":
            attribute(tokens)
        elif word == "ptr":
            pointee = True
        elif not (pointee and word in ("global", "const", "shared", "local", "param")):
            raise tokens.error(f"unknown type or attribute .{word}")
    if not kind:
        raise tokens.error("the declaration names no type")
    name = tokens.name()
    extents = _extents(tokens)
    width = TYPE_BYTES[kind]
    shape = [*extents, vector] if vector > 1 else extents
    row = width * prod(shape[1:]) if extents else width * vector
    data: tuple[tuple[int, bytes | Pointer], ...] = ()
    if tokens.skip("="):
        if kind in ("texref", "samplerref", "surfref"):
            tokens.skip_past("}")
        else:
            data = tuple(_values(tokens, kind, shape or [1], 0))
    count = extents[0] if extents else 1
    if extents and not count and data:
        last = max(offset for offset, _ in data)
        count = last // row + 1
    if row * count > _LARGEST:
        raise tokens.error(f"{name} has {row * count} bytes, over the limit {_LARGEST}")
    return Variable(name + suffix, space, kind, row * count, align or width * vector, extern, data)


#: Whole numbers to the end of an initialiser, which are read at once: a library's tables may have 100 000 of them.
_NUMBERS = re.compile(r"(?:0|[1-9][0-9]{0,18})(?:\s*+,\s*+(?:0|[1-9][0-9]{0,18}))++\s*+(?=\})")


def attribute(tokens: Tokens) -> None:
    """Pass over what follows ``.attribute``: ``(.managed)``, ``(.unified(1, 2))``; the host's memory is both."""
    tokens.take("(")
    depth = 1
    while depth:
        token = tokens.take()
        depth += (token == "(") - (token == ")")


def _extents(tokens: Tokens) -> list[int]:
    """Sizes in brackets; 0 for a first one left open."""
    extents: list[int] = []
    while tokens.skip("["):
        if tokens.token == "]" and not extents:
            extents.append(0)
        else:
            extents.append(integer(tokens, _LARGEST))
        tokens.take("]")
    return extents


def _values(tokens: Tokens, kind: str, extents: list[int], offset: int) -> Iterator[tuple[int, bytes | Pointer]]:
    """(offset, value) of the elements in an initialiser, some together; rows in braces begin where C has them begin."""
    width = TYPE_BYTES[kind]
    if tokens.token != "{":
        yield offset, _element(tokens, kind)
        return
    tokens.take()
    row = width * prod(extents[1:])
    place, end = offset, offset + row * extents[0]
    numbers = _NUMBERS.match(tokens.text, tokens.start) if kind[0] in "bus" else None
    if numbers is not None and width * (numbers[0].count(",") + 1) <= end - place:
        whole, most = map(int, numbers[0].split(",")), (1 << 8 * width) - 1
        yield place, b"".join((value & most).to_bytes(width, "little") for value in whole)
        tokens.jump(numbers.end())
    while tokens.token != "}":
        if tokens.token == "{":
            if len(extents) < 2:
                raise tokens.error("the initialiser has more braces than the variable has extents")
            place = offset + -(-(place - offset) // max(1, row)) * row
            yield from _values(tokens, kind, extents[1:], place)
            place += row
        else:
            yield place, _element(tokens, kind)
            place += width
        if extents[0] and place > end:
            raise tokens.error("the initialiser has more values than the variable has elements")
        if not tokens.skip(","):
            break
    tokens.take("}")


def _element(tokens: Tokens, kind: str) -> bytes | Pointer:
    width = TYPE_BYTES[kind]
    if is_name(tokens.token) and tokens.token != "WARP_SZ":
        line = tokens.line
        return Pointer(_address(tokens), width, line)
    plain = is_number(tokens.token)
    found = constant(tokens)
    if plain and tokens.skip("("):
        if found.float_bits or found.value == 0:
            raise tokens.error("the mask of an address must be a whole number above 0")
        line = tokens.line
        pointer = Pointer(_address(tokens), width, line, found.value & (2**64 - 1))
        tokens.take(")")
        return pointer
    return _bytes(tokens, found, kind)


def _address(tokens: Tokens) -> Symbol:
    """``name``, ``generic(name)``, either with ``+ offset``."""
    name = tokens.name()
    if name == "generic" and tokens.skip("("):
        name = tokens.name()
        tokens.take(")")
    offset = constant(tokens) if tokens.token in ("+", "-") else Immediate(0)
    if offset.float_bits:
        raise tokens.error("an offset must be a whole number")
    return Symbol(name, offset.value)


def _bytes(tokens: Tokens, found: Immediate, kind: str) -> bytes:
    width = TYPE_BYTES[kind]
    if not found.float_bits and kind not in ("f32", "f64"):
        return int.to_bytes(found.value & ((1 << 8 * width) - 1), width, "little")
    if kind not in ("f32", "f64"):
        raise tokens.error(f"a float cannot initialise a .{kind}")
    raw = found.value.to_bytes(found.float_bits // 8, "little") if found.float_bits else b""
    if len(raw) == width:
        return raw
    number = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0] if raw else float(found.value)
    try:
        return struct.pack("<f" if width == 4 else "<d", number)
    except OverflowError:
        return struct.pack("<f", float("inf") if number > 0 else float("-inf"))
