"""Operands of instructions: PTX ISA 6 (instruction operands).

Within one scope equal texts are one record, read once: a function names the same registers again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cudakit.emulator.ptx.constants import constant
from cudakit.emulator.ptx.program import Address, Group, Immediate, Operand, Register, Symbol
from cudakit.emulator.ptx.tokens import Tokens, is_name
from cudakit.errors import EmulationError, shortened

#: One operand with its brackets, and the comma behind it.
_OPERAND = re.compile(r"((?:[^\[\](){},]|\[[^\]]*+\]|\{[^}]*+\}|\([^()]*+(?:\([^()]*+\)[^()]*+)*+\))*+)(?:(,)|\Z)")
#: What stands before a register and changes its value, and the kind of group that it makes.
_BEFORE_NAMES = {"!": "not", "-": "negative"}
#: Parts of a register that a video instruction selects.
_PART = re.compile("b[0-7]{1,4}|h[0-3]{1,2}")


@dataclass(slots=True)
class Scope:
    """Names declared between two braces, and the operands that were read with them."""

    outer: Scope | None
    suffix: str
    names: dict[str, Operand] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)

    def find(self, name: str) -> Operand | None:
        """What a name means here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


def read_operands(text: str, scope: Scope, instruction: str, line: int) -> tuple[Operand, ...]:
    """The operands of an instruction, from the text behind its name.

    Raises
    ------
    EmulationError
        Naming the line and the instruction.
    """
    if not text or text.isspace():
        return ()
    bracketed = "[" in text or "{" in text or "(" in text
    parts = _split(text) if bracketed else text.split(",")
    if parts is None:
        raise EmulationError(
            f"PTX line {line}: {instruction}: the brackets in {shortened(text.strip()[:60])} do not match"
        )
    if instruction.startswith("call"):
        # Brackets here hold arguments, and elsewhere expressions.
        return tuple(_read(part, scope, instruction, line) for part in parts)
    while not scope.names and scope.outer is not None:
        scope = scope.outer
    found = []
    for part in parts:
        operand = scope.operands.get(part)
        if operand is None:
            # Most operands are declared names alone, which need no tokens.
            operand = scope.find(part.strip()) or _read(part, scope, instruction, line)
            scope.operands[part] = operand
        found.append(operand)
    return tuple(found)


def _split(text: str) -> list[str] | None:
    """The operands in `text`, at the commas outside brackets; None where brackets do not match."""
    found, position, comma = [], 0, True
    while comma:
        match = _OPERAND.match(text, position)
        if match is None:
            return None
        found.append(match[1])
        position, comma = match.end(), match[2] is not None
    return found


def _read(text: str, scope: Scope, instruction: str, line: int) -> Operand:
    tokens = Tokens(text, line)
    if not tokens.token:
        raise tokens.error(f"{instruction}: an operand is missing")
    if tokens.token == "(" and instruction.startswith("call"):
        found: Operand = Group("arguments", _listed(tokens, scope, "(", ")"))
    else:
        found = _operand(tokens, scope)
    if tokens.token:
        raise tokens.error(
            f"{instruction}: {shortened(tokens.token)} cannot follow in operand {shortened(text.strip()[:60])}"
        )
    return found


def _operand(tokens: Tokens, scope: Scope) -> Operand:
    if tokens.token == "[":
        return _address(tokens, scope)
    if tokens.token in _BEFORE_NAMES and is_name(tokens.text[tokens.end :].lstrip()[:2]):
        kind = _BEFORE_NAMES[tokens.take()]
        return Group(kind, (_named(tokens, scope),))
    first = _vector(tokens, scope) if tokens.token == "{" else _plain(tokens, scope)
    if tokens.skip("|"):
        return Group("pair", (first, _named(tokens, scope)))
    return first


def _vector(tokens: Tokens, scope: Scope) -> Operand:
    return Group("vector", _listed(tokens, scope, "{", "}"))


def _listed(tokens: Tokens, scope: Scope, start: str, end: str) -> tuple[Operand, ...]:
    tokens.take(start)
    items: list[Operand] = []
    while tokens.token != end:
        items.append(_plain(tokens, scope))
        if not tokens.skip(","):
            break
    tokens.take(end)
    return tuple(items)


def _plain(tokens: Tokens, scope: Scope) -> Operand:
    """A name, with an offset where it is a variable's, or a constant."""
    if not is_name(tokens.token) or tokens.token == "WARP_SZ":
        return constant(tokens)
    found = _named(tokens, scope)
    if isinstance(found, Symbol) and tokens.token in ("+", "-"):
        return Symbol(found.name, _offset(tokens))
    return found


def _named(tokens: Tokens, scope: Scope) -> Operand:
    name = tokens.name()
    found = scope.find(name)
    if found is not None:
        return found
    whole, _, part = name.rpartition(".")
    if _PART.fullmatch(part) and (found := scope.find(whole)) is not None:
        return Group(part, (found,))
    return Register(name) if name.startswith("%") or name == "_" else Symbol(name)


def _address(tokens: Tokens, scope: Scope) -> Address:
    tokens.take("[")
    base = _named(tokens, scope) if is_name(tokens.token) else constant(tokens)
    if not isinstance(base, Register | Symbol | Immediate):
        raise tokens.error("an address must begin with a register, a variable or a number")
    offset = _offset(tokens) if tokens.token in ("+", "-") else 0
    coordinates: list[Operand] = []
    while tokens.skip(","):
        coordinates.append(_vector(tokens, scope) if tokens.token == "{" else _plain(tokens, scope))
    tokens.take("]")
    return Address(base, offset, tuple(coordinates))


def _offset(tokens: Tokens) -> int:
    found = constant(tokens)
    if found.float_bits:
        raise tokens.error("an offset must be a whole number")
    return found.value
