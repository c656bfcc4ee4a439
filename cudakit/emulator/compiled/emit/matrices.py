"""Small matrices in the registers of a warp: loads from shared memory, and products.

Where the elements lie is what `instructions.fragments` says: an element of a row and a column comes to the lane that
needs it by a shuffle in an order that is known. Sums go on with k, those of floats in float64, rounded once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cudakit.emulator.compiled.builder import Builder, Value
from cudakit.emulator.compiled.emit.common import intrinsic
from cudakit.emulator.compiled.emit.halves import narrowed, odd_float, widened
from cudakit.emulator.compiled.emit.memory import load
from cudakit.emulator.compiled.emit.table import emits, varies
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import VARYING
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.instructions.access import parts, space_of
from cudakit.emulator.instructions.matrix import Fragment, a_fragment, b_fragment, c_fragment, shape_of, types_of
from cudakit.emulator.ptx.program import Instruction, Operand

_WARP = 32
_HALVES = ("f16", "bf16")
_BYTES = ("s8", "u8")
_FLOATS = (*_HALVES, "tf32")


def _whole_warp(b: Builder) -> None:
    """Stop where lanes of the warp are missing; go on for all of them."""
    if b.mask is not None:
        text, bits = b.text, b.bits(b.mask)
        here = text.call("llvm.ctpop.i32", "i32", bits)
        whole = text.compare("eq", bits, constant("i32", -1))
        some = text.select(b.spread(whole), constant(b.mask.type, 0), b.mask)
        b.stop_where(some, b.spread(text.cast("zext", here, "i64")))
        b.mask = None


def _shuffled(b: Builder, x: X, y: X, order: np.ndarray) -> X:
    """Lanes of two vectors, one after the other, by their numbers."""
    places = ", ".join(f"i32 {place}" for place in order)
    return b.text.make(f"shufflevector {x}, {y}, <{_WARP} x i32> <{places}>", x.type)


# ── loads ──


@emits("ldmatrix", transfer=varies)
def ldmatrix(given: Instruction, b: Builder) -> None:
    """Matrices of 8 × 8 halves, of which a lane names a row of 16 bytes and gets two halves."""
    target, source = given.operands
    items, text = parts(target), b.text
    if space_of(given) != "shared" or "m8n8" not in given.modifiers or "b16" not in given.modifiers:
        raise Refusal(f"instruction {given}")
    _whole_warp(b)
    if len(items) < 4:
        lanes = ", ".join(f"i1 {'true' if lane < 8 * len(items) else 'false'}" for lane in range(_WARP))
        b.mask = X(b.vector("i1"), f"<{lanes}>")
    words = [b.spread(word) for word in load(b, replace(given, modifiers=("shared", "b32")), source, 4, 4, 8)]
    b.mask = None
    lane = np.arange(_WARP)
    group, member = lane // 4, lane % 4

    def picked(row: np.ndarray, word: np.ndarray) -> X:
        """Words of rows."""
        low, high = (_shuffled(b, words[at], words[at + 1], row + _WARP * (word & 1)) for at in (0, 2))
        return _shuffled(b, low, high, lane + _WARP * (word >> 1))

    for number, item in enumerate(items):
        first = 8 * number
        if "trans" not in given.modifiers:
            b.write(item, "b32", Value(VARYING, picked(first + group, member)))
            continue
        shift = X(b.vector("i32"), f"<{', '.join(f'i32 {16 * (place & 1)}' for place in group)}>")
        both = []
        for part in (0, 1):
            word = text.binary("lshr", picked(first + 2 * member + part, group // 2), shift)
            both.append(text.binary("and", word, constant(word.type, 0xFFFF)))
        high = text.binary("shl", both[1], constant(both[1].type, 16))
        b.write(item, "b32", Value(VARYING, text.binary("or", both[0], high)))


# ── products ──


@emits("mma", transfer=varies)
def mma(given: Instruction, b: Builder) -> None:
    types = types_of(given.modifiers)
    to, kind, other, of_c = types
    m, n, k = shape_of(given.modifiers)
    known = {"sync", "aligned", "row", "col", f"m{m}n{n}k{k}", *types}
    layouts = [modifier for modifier in given.modifiers if modifier in ("row", "col")]
    if layouts != ["row", "col"] or (kind == "f16" and m == 8) or not known.issuperset(given.modifiers):
        raise Refusal(f"instruction {given}")
    if kind not in ("f64", *_FLOATS, *_BYTES) or other not in (kind, *(_BYTES if kind in _BYTES else ())):
        raise Refusal(f"instruction {given}")
    _whole_warp(b)
    text = b.text
    target, first, second, addend = given.operands
    rows = _Matrix(b, first, kind, a_fragment(m, k, kind))
    columns = _Matrix(b, second, other, b_fragment(k, n, other))
    fragment = c_fragment(m, n)
    start = _elements(b, addend, of_c)
    results = []
    for number, wanted in enumerate(fragment.places.T):
        row, column = wanted // n, wanted % n
        held = start[number]
        if kind in _BYTES or kind == "f64":
            total = held
        else:
            total, held = constant(b.vector("double"), 0), text.cast("fpext", held, "double")
        for step in range(k):
            x, y = rows.at(row * k + step), columns.at(step * n + column)
            if kind in _BYTES:
                total = text.binary("add", total, text.binary("mul", x, y))
            else:
                total = intrinsic(b, "fma", x, y, total)
        results.append(total if kind in _BYTES or kind == "f64" else text.binary("fadd", total, held))
    for item, value in zip(parts(target), _packed(b, results, to), strict=True):
        b.write(item, "b64" if to == "f64" else "b32", Value(VARYING, value))


class _Matrix:
    """A factor: its elements by their numbers, for each lane one, in float64 or 32 bits."""

    def __init__(self, b: Builder, operand: Operand, kind: str, fragment: Fragment) -> None:
        self._b, self._fragment = b, fragment
        self._held = _elements(b, operand, kind)
        self._found: dict[bytes, X] = {}

    def at(self, wanted: np.ndarray) -> X:
        key = wanted.tobytes()
        if key not in self._found:
            lane, element = np.divmod(self._fragment.sources[wanted], len(self._held))
            if (element != element[0]).any():
                raise Refusal("a matrix whose elements are spread over registers in another way")
            held = self._held[int(element[0])]
            moved = _shuffled(self._b, held, held, lane)
            self._found[key] = self._b.text.cast("fpext", moved, "double") if held.element == "float" else moved
        return self._found[key]


def _elements(b: Builder, operand: Operand, kind: str) -> list[X]:
    """The elements that a lane holds: float32, float64, or integers of 32 bits."""
    text, found = b.text, list[X]()
    for item in parts(operand):
        word = b.lanes(b.read(item, "b64" if kind == "f64" else "b32"))
        if kind in _HALVES:
            for shift in (0, 16):
                half = text.cast("trunc", text.binary("lshr", word, constant(word.type, shift)), "i16")
                found.append(widened(b, half, kind))
        elif kind in _BYTES:
            for byte in range(4):
                high = text.binary("shl", word, constant(word.type, 24 - 8 * byte))
                found.append(text.binary("ashr" if kind == "s8" else "lshr", high, constant(word.type, 24)))
        elif kind == "tf32":
            found.append(text.cast("bitcast", text.binary("and", word, constant(word.type, 0xFFFFE000)), "float"))
        else:
            found.append(text.cast("bitcast", word, "double" if kind == "f64" else "float") if kind != "s32" else word)
    return found


def _packed(b: Builder, results: list[X], to: str) -> list[X]:
    """Results as registers hold them."""
    text = b.text
    if to == "s32":
        return results
    if to == "f64":
        return [b.untyped(result) for result in results]
    if to == "f32":
        rounded = [text.cast("fptrunc", result, "float") for result in results]
        nan = constant(b.vector("i32"), 0x7FFF_FFFF)
        return [text.select(text.compare("uno", each, each), nan, b.untyped(each)) for each in rounded]
    halves = [text.cast("zext", narrowed(b, odd_float(b, result), to), "i32") for result in results]
    shifted = [text.binary("shl", high, constant(high.type, 16)) for high in halves[1::2]]
    return [text.binary("or", low, high) for low, high in zip(halves[::2], shifted, strict=True)]
