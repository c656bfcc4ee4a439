"""Moves, and addresses in other state spaces."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import (
    type_of,
)
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from cudakit.emulator.ptx.program import Group, Instruction, Register

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


# ── moves ──


def _moved(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    target, source = given.operands
    if isinstance(target, Group) or isinstance(source, Group) or type_of(given) == "pred":
        return by_sources(given, shape)
    return shape(source, type_of(given))


@emits("mov", transfer=_moved, makes_nan=True)
def mov(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source = given.operands
    text = b.text
    if kind == "b128":
        raise Refusal(f"instruction {given}")
    if isinstance(target, Group):
        whole = bits_of(kind)
        part = whole // len(target.items)
        value = b.read(source, f"b{whole}")
        x = value.x if value.shape == UNIFORM else b.lanes(value)
        for number, item in enumerate(target.items):
            piece = text.binary("lshr", x, constant(x.type, number * part))
            b.write(
                item, f"b{part}", Value(UNIFORM if not x.is_vector else VARYING, text.cast("trunc", piece, f"i{part}"))
            )
        return
    if isinstance(source, Group):
        whole = bits_of(kind)
        part = whole // len(source.items)

        def pack(*pieces: X) -> X:
            found = None
            for number, piece in enumerate(pieces):
                wide = text.cast("zext", piece, f"i{whole}")
                moved = text.binary("shl", wide, constant(wide.type, number * part))
                found = moved if found is None else text.binary("or", found, moved)
            assert found is not None
            return found

        b.apply(target, f"b{whole}", [(item, f"b{part}") for item in source.items], pack)
        return
    raw = isinstance(target, Register) and target.name in b.raw
    b.write(target, kind, b.read(source, kind, raw=raw))


def _address_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    return shape(given.operands[1], type_of(given))


def _space(given: Instruction) -> str:
    return next(
        (m.partition("::")[0] for m in given.modifiers if m.partition("::")[0] in ("shared", "local", "param")), ""
    )


@emits("cvta", transfer=_address_shape)
def cvta(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind != "u64" and _space(given):
        raise Refusal(f"instruction {given}")
    value = b.read(given.operands[1], kind)
    shift = _WINDOWS.get(_space(given), 0)
    if shift:
        opcode = "sub" if "to" in given.modifiers else "add"
        moved = constant(value.x.type, shift)
        value = Value(value.shape, b.text.binary(opcode, value.x, moved), value.narrow)
    b.write(given.operands[0], kind, value)
