"""LLVM IR as text: values with their types, and the lines that make them."""

from __future__ import annotations

import struct
from typing import NamedTuple


class X(NamedTuple):
    """A value of the IR: its type and its name, or a constant."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def element(self) -> str:
        """The type of its elements, or its own."""
        return self.type[self.type.index("x ") + 2 : -1] if self.type[0] == "<" else self.type

    @property
    def is_vector(self) -> bool:
        return self.type[0] == "<"


class Text:
    """The lines of a function's body."""

    here: str

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self.declared: set[str] = set()
        #: The label of the block at hand.
        self.here = "entry"

    def fresh(self, stem: str = "v") -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}.{self._count}"

    def make(self, what: str, type_: str) -> X:
        """A value made by an instruction."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {what}")
        return X(type_, name)

    def do(self, what: str) -> None:
        self.lines.append(f"  {what}")

    def label(self, name: str) -> None:
        self.here = name
        self.lines.append(f"{name}:")

    # ── the usual instructions ──

    def binary(self, opcode: str, a: X, b: X) -> X:
        return self.make(f"{opcode} {a.type} {a.name}, {b.name}", a.type)

    def compare(self, how: str, a: X, b: X) -> X:
        """``icmp`` or ``fcmp`` by the types."""
        opcode = "fcmp" if a.element in ("float", "double", "half") else "icmp"
        return self.make(f"{opcode} {how} {a.type} {a.name}, {b.name}", like(a, "i1"))

    def cast(self, opcode: str, a: X, element: str) -> X:
        to = like(a, element)
        return a if to == a.type else self.make(f"{opcode} {a} to {to}", to)

    def select(self, chosen: X, a: X, b: X) -> X:
        return self.make(f"select {chosen}, {a}, {b}", a.type)

    def call(self, name: str, type_: str, *arguments: X) -> X:
        self.declare(name, type_, arguments)
        return self.make(f"call {type_} @{name}({', '.join(map(str, arguments))})", type_)

    def run(self, name: str, *arguments: X) -> None:
        self.declare(name, "void", arguments)
        self.do(f"call void @{name}({', '.join(map(str, arguments))})")

    def declare(self, name: str, type_: str, arguments: tuple[X, ...]) -> None:
        if name.startswith("llvm."):
            self.declared.add(f"declare {type_} @{name}({', '.join(argument.type for argument in arguments)})")

    def load(self, type_: str, pointer: str, more: str = "") -> X:
        return self.make(f"load {type_}, ptr {pointer}{more}", type_)

    def store(self, value: X, pointer: str, more: str = "") -> None:
        self.do(f"store {value}, ptr {pointer}{more}")

    def phi(self, type_: str, *ways: tuple[X, str]) -> X:
        """A value that depends on the block one comes from."""
        return self.make(f"phi {type_} " + ", ".join(f"[ {x.name}, %{label} ]" for x, label in ways), type_)

    def branch(self, chosen: X, then: str, otherwise: str) -> None:
        self.do(f"br {chosen}, label %{then}, label %{otherwise}")

    def jump(self, to: str) -> None:
        self.do(f"br label %{to}")

    def at(self, base: str, offset: X) -> X:
        """A pointer `offset` bytes behind another."""
        return self.make(f"getelementptr i8, ptr {base}, {offset}", "ptr")


def like(a: X, element: str) -> str:
    """The type of `element` with as many elements as `a` has."""
    return f"{a.type[: a.type.index('x ') + 2]}{element}>" if a.is_vector else element


def lanes_of(type_: str) -> int:
    """How many elements a vector type has; 1 for others."""
    return int(type_[1 : type_.index(" ")]) if type_[0] == "<" else 1


def constant(type_: str, value: int) -> X:
    """An integer, or the float whose bits it is, in a type or in all elements of a vector type."""
    element = X(type_, "").element
    if element == "i1":
        text = "true" if value else "false"
    elif element == "float":
        text = f"0x{_double_bits(value):016X}"
    elif element == "double":
        text = f"0x{value:016X}"
    elif element == "half":
        text = f"0xH{value:04X}"
    elif element == "bfloat":
        text = f"0xR{value:04X}"
    else:
        bits = int(element[1:])
        value &= (1 << bits) - 1
        text = str(value - (1 << bits) if value >> (bits - 1) else value)
    return X(type_, f"splat ({element} {text})" if type_[0] == "<" else text)


def _double_bits(single: int) -> int:
    """The bits of float64 by which LLVM writes the float32 of some bits."""
    if single & 0x7F80_0000 == 0x7F80_0000:  # infinity and NaN, whose payload is kept
        return (single >> 31) << 63 | 0x7FF0_0000_0000_0000 | (single & 0x7F_FFFF) << 29
    (value,) = struct.unpack("<f", struct.pack("<I", single))
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)
