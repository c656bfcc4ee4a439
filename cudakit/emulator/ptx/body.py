"""Declarations of variables, PTX ISA 5.4 and 10.8, and bodies of functions, PTX ISA 4.2 (statements).

One regular expression reads a body statement by statement. Operands are read afterwards, when all labels are known.
Scopes in braces rename the registers, variables and labels that they declare: each name has one meaning in a function.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from cudakit.emulator.ptx.program import (
    Function,
    Group,
    Immediate,
    Instruction,
    Operand,
    Pointer,
    Register,
    Source,
    Symbol,
    Variable,
)
from cudakit.emulator.ptx.tokens import (
    Scope,
    Tokens,
    constant,
    integer,
    is_name,
    is_number,
    literal,
    offset_behind,
    read_operands,
)
from cudakit.errors import shortened

# ── variables and parameters, and their initialisers ──

TYPE_BYTES = {
    letter + str(bits): bits // 8 for letter in "busf" for bits in (8, 16, 32, 64, 128) if (letter, bits) != ("f", 8)
} | {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4, "tf32": 4, "texref": 8, "samplerref": 8, "surfref": 8}

_LARGEST = 1 << 40
_SPACES = (".global", ".const", ".shared", ".local", ".param", ".tex", ".reg")
#: Most declarations: of a number or an array without values. They are read at once.
_PLAIN = re.compile(
    r"""\.(global|const|shared|local|param)\s++(?:\.align\s++([1-9][0-9]{0,3})\s++)?
    \.([a-z][0-9]++)\s++([a-zA-Z_$][\w$]*+)(?:\[([1-9][0-9]{0,9})\])?(?=[;,)\s])(?!\s*+[=\[])""",
    re.VERBOSE,
)


def variable(tokens: Tokens, extern: bool = False, suffix: str = "") -> Variable:
    """Read a variable's declaration, from its state space up to the ``;``, which is not read.

    `suffix` is appended to the variable's name, to make it unique. `extern` goes into the record.
    """
    if tokens.token not in _SPACES or tokens.token == ".reg":
        raise tokens.error(f"expected a state space, found {tokens.token or 'the end of the text'!r}")
    plain = _PLAIN.match(tokens.text, tokens.start)
    if plain is not None and plain[3] in TYPE_BYTES:
        space, alignment, type_name, name, extent = plain.groups()
        width, align = TYPE_BYTES[type_name], int(alignment or 0)
        if align & (align - 1) == 0:
            tokens.jump(plain.end())
            return Variable(name + suffix, space, type_name, width * int(extent or 1), align or width, extern, ())
    space = tokens.take()[1:]
    align, type_name, vector, pointee = 0, "", 1, False
    while tokens.token.startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            # After .ptr it is the alignment of the memory that the parameter points to.
            alignment = integer(tokens, 1 << 32)
            if alignment == 0 or alignment & (alignment - 1):
                raise tokens.error(f"an alignment must be a power of two, got {alignment}")
            align = align if pointee else alignment
        elif word in ("v2", "v4"):
            vector = int(word[1])
        elif word in TYPE_BYTES:
            type_name = word
        elif word == "attribute":
            attribute(tokens)
        elif word == "ptr":
            pointee = True
        elif not (pointee and word in ("global", "const", "shared", "local", "param")):
            raise tokens.error(f"unknown type or attribute .{word}")
    if not type_name:
        raise tokens.error("the declaration names no type")
    name = tokens.name()
    extents = _extents(tokens)
    width = TYPE_BYTES[type_name]
    shape = [*extents, vector] if vector > 1 else extents
    row = width * prod(shape[1:]) if extents else width * vector
    data: tuple[tuple[int, bytes | Pointer], ...] = ()
    if tokens.skip("="):
        if type_name in ("texref", "samplerref", "surfref"):
            tokens.skip_past("}")
        else:
            data = tuple(_values(tokens, type_name, shape or [1], 0))
    count = extents[0] if extents else 1
    if extents and not count and data:
        last = max(offset for offset, _ in data)
        count = last // row + 1
    if row * count > _LARGEST:
        raise tokens.error(f"{name} has {row * count} bytes, over the limit {_LARGEST}")
    return Variable(name + suffix, space, type_name, row * count, align or width * vector, extern, data)


#: Whole numbers to the end of an initialiser, which are read at once: a library's tables may have 100 000 of them.
_NUMBERS = re.compile(r"(?:0|[1-9][0-9]{0,18})(?:\s*+,\s*+(?:0|[1-9][0-9]{0,18}))++\s*+(?=\})")


def attribute(tokens: Tokens) -> None:
    """Skip the brackets after ``.attribute``: ``(.managed)``, ``(.unified(1, 2))``.

    The attributes have no effect: host memory, where the emulator has variables, is managed and unified.
    """
    tokens.take("(")
    depth = 1
    while depth:
        token = tokens.take()
        depth += (token == "(") - (token == ")")


def _extents(tokens: Tokens) -> list[int]:
    """Read an array's extents, each in brackets; an open first extent is 0. Return an empty list for no array."""
    extents: list[int] = []
    while tokens.skip("["):
        if tokens.token == "]" and not extents:
            extents.append(0)
        else:
            extents.append(integer(tokens, _LARGEST))
        tokens.take("]")
    return extents


def _values(tokens: Tokens, type_name: str, extents: list[int], offset: int) -> Iterator[tuple[int, bytes | Pointer]]:
    """Yield (offset in bytes, value) of an initialiser's elements; numbers at a row's begin may come as one value.

    `extents` has the extents of the array that is read here, which begins at `offset`. Rows in braces begin as in C.
    """
    width = TYPE_BYTES[type_name]
    if tokens.token != "{":
        yield offset, _element(tokens, type_name)
        return
    tokens.take()
    row = width * prod(extents[1:])
    place, end = offset, offset + row * extents[0]
    numbers = _NUMBERS.match(tokens.text, tokens.start) if type_name[0] in "bus" else None
    if numbers is not None and width * (numbers[0].count(",") + 1) <= end - place:
        whole, most = map(int, numbers[0].split(",")), (1 << 8 * width) - 1
        yield place, b"".join((value & most).to_bytes(width, "little") for value in whole)
        tokens.jump(numbers.end())
    while tokens.token != "}":
        if tokens.token == "{":
            if len(extents) < 2:
                raise tokens.error("the initialiser has more braces than the variable has extents")
            place = offset + -(-(place - offset) // max(1, row)) * row
            yield from _values(tokens, type_name, extents[1:], place)
            place += row
        else:
            yield place, _element(tokens, type_name)
            place += width
        if extents[0] and place > end:
            raise tokens.error("the initialiser has more values than the variable has elements")
        if not tokens.skip(","):
            break
    tokens.take("}")


def _element(tokens: Tokens, type_name: str) -> bytes | Pointer:
    """Read an initialiser's element; return a number's bytes, or a pointer."""
    width = TYPE_BYTES[type_name]
    if is_name(tokens.token) and tokens.token != "WARP_SZ":
        line = tokens.line
        return Pointer(_address(tokens), width, line)
    plain = is_number(tokens.token)
    value = constant(tokens)
    if plain and tokens.skip("("):
        if value.float_bits or value.value == 0:
            raise tokens.error("the mask of an address must be a whole number above 0")
        line = tokens.line
        pointer = Pointer(_address(tokens), width, line, value.value & (2**64 - 1))
        tokens.take(")")
        return pointer
    return _bytes(tokens, value, type_name)


def _address(tokens: Tokens) -> Symbol:
    """Read ``name`` or ``generic(name)``, each with or without ``+ offset``."""
    name = tokens.name()
    if name == "generic" and tokens.skip("("):
        name = tokens.name()
        tokens.take(")")
    return Symbol(name, offset_behind(tokens))


def _bytes(tokens: Tokens, value: Immediate, type_name: str) -> bytes:
    """Return the bytes of a constant as an element of a type."""
    width = TYPE_BYTES[type_name]
    if not value.float_bits and type_name not in ("f32", "f64"):
        return int.to_bytes(value.value & ((1 << 8 * width) - 1), width, "little")
    if type_name not in ("f32", "f64"):
        raise tokens.error(f"a float cannot initialise a .{type_name}")
    raw = value.value.to_bytes(value.float_bits // 8, "little") if value.float_bits else b""
    if len(raw) == width:
        return raw
    number = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0] if raw else float(value.value)
    try:
        return struct.pack("<f" if width == 4 else "<d", number)
    except OverflowError:
        return struct.pack("<f", float("inf") if number > 0 else float("-inf"))


_STATEMENT = re.compile(
    r"""\s*+(?:
      (?P<brace>[{}])
    | (?P<empty>;)
    | (?P<directive>\.\w+)
    | (?P<label>[\w$%]++)\s*+:(?!:)
    | (?:@\s*+(?P<not>!?)\s*+(?P<guard>[\w$%.]++)\s*+)?
      (?P<name>[a-z]\w*+(?:\s*+\.\s*+[\w:]++)*+)(?P<operands>[^;]*+);
    )""",
    re.VERBOSE,
)
_LOCATION = re.compile(
    r"""\.loc\s++([0-9]{1,9}+)\s++([0-9]{1,9}+)\s++([0-9]{1,9}+)
    (?:\s*+,\s*+function_name\s++[\w$%.]++(?:\s*+\+\s*+[0-9]++)?+
       \s*+,\s*+inlined_at\s++([0-9]{1,9}+)\s++([0-9]{1,9}+)\s++([0-9]{1,9}+))?+""",
    re.VERBOSE,
)
_ENDS = ("ret", "exit", "bra", "trap")
_ACCESSES = ("ld", "ldu", "st", "atom", "red")
_MOST_REGISTERS = 1_000_000


class Sources:
    """Source lines by ``.loc`` directives, with the lines where they were inlined.

    Parameters
    ----------
    files : dict of int to str
        File names by the numbers that ``.loc`` uses.
    """

    def __init__(self, files: dict[int, str]) -> None:
        self.files = files
        self.places: dict[tuple[str, str, str], Source] = {}

    def at(self, match: re.Match[str]) -> Source | None:
        """Return the source line of a ``.loc``, from its `match`; None for line 0, which no source has.

        The line is remembered, so that later lines can be inlined at it.
        """
        number, line, column, *inlined_at = match.groups()
        caller = None
        if inlined_at[0] is not None:
            where = (inlined_at[0], inlined_at[1], inlined_at[2])
            # The line where a call was inlined may be in a function that was inlined too.
            caller = self.places.get(where) or Source(self.file(where[0]), int(where[1]))
        place = Source(self.file(number), int(line), caller)
        if place.line == 0:
            return None
        self.places[number, line, column] = place
        return place

    def file(self, number: str) -> str:
        """Return the name of a file by its number; ``?`` if it is unknown."""
        return self.files.get(int(number), "?")


class _Statement(NamedTuple):
    """An instruction whose operands are not yet read."""

    name: str
    guard: str | None
    negated: bool
    operands: str
    line: int
    source: Source | None
    scope: Scope


class Body:
    """Reader of one function's body.

    Parameters
    ----------
    tokens : Tokens
        Tokens at the body's opening brace.
    function : Function
        Function that the body is added to.
    sources : Sources
        Source lines of the module.
    shared : set of str
        Names of the program's shared variables so far; the function's are added.
    """

    tokens: Tokens
    function: Function
    sources: Sources

    def __init__(self, tokens: Tokens, function: Function, sources: Sources, shared: set[str]) -> None:
        self.tokens, self.function, self.sources = tokens, function, sources
        self.shared: set[str] = shared
        self.statements: list[_Statement] = []
        self.tables: list[tuple[str, list[str], Scope]] = []
        self.parts: dict[str, tuple[str, tuple[str, ...]]] = {}

    def read(self) -> int:
        """Read the body into the function; return the position in the text behind the closing brace."""
        end = self.scan()
        for name, targets, scope in self.tables:
            self.function.branch_targets[name] = tuple(self.target(target, scope) for target in targets)
        code = self.function.code = [self.instruction(statement) for statement in self.statements]
        if len(code) in self.function.labels.values() or not (code and code[-1].opcode in _ENDS and not code[-1].guard):
            # The end of the body is the end of the function.
            code.append(Instruction("ret", (), (), None, self.tokens.line, None))
        return end

    def target(self, name: str, scope: Scope) -> str:
        """Return the unique name of a label, or `name` itself if it is no label of the scope."""
        operand = scope.find(name)
        return operand.name if isinstance(operand, Symbol) else name

    # ── statements ──

    def scan(self) -> int:
        """Read declarations and labels, and collect the instructions; return the position behind the closing brace."""
        tokens = self.tokens
        text, position = tokens.text, tokens.end
        line, counted = tokens.line, tokens.start
        scope, scopes = Scope(None, ""), 1
        source: Source | None = None
        label = ""
        while True:
            match = _STATEMENT.match(text, position)
            if match is None:
                raise self.malformed(position)
            statement, position = match.lastgroup, match.end()
            if statement == "operands":
                start = match.start("name")
                line += text.count("\n", counted, start)
                counted = start
                name, guard, sign, operands = match.group("name", "guard", "not", "operands")
                self.statements.append(_Statement(name, guard, sign == "!", operands, line, source, scope))
            elif statement == "label":
                label = self.label(match["label"], scope, match.start("label"))
            elif statement == "directive":
                location = _LOCATION.match(text, match.start("directive")) if match["directive"] == ".loc" else None
                if location is not None:
                    source, position = self.sources.at(location), location.end()
                else:
                    tokens.jump(match.start("directive"))
                    self.directive(scope, label)
                    position = tokens.start
            elif statement == "brace":
                if match["brace"] == "{":
                    scope = Scope(scope, f"#{scopes}")
                    scopes += 1
                elif scope.outer is None:
                    return position
                else:
                    scope = scope.outer

    def malformed(self, position: int) -> Exception:
        """Return the error for a statement at a position that is no PTX."""
        self.tokens.jump(position)
        token = self.tokens.token
        if not token:
            return self.tokens.error(f"the text ends within function {self.function.name}")
        return self.tokens.error(f"the statement that begins with {shortened(token)} is no PTX, or does not end")

    def label(self, name: str, scope: Scope, start: int) -> str:
        """Enter a label in its scope, at the next instruction; return its unique name.

        `start` is the label's position in the text, for the error if the name is invalid or in use.
        """
        if not is_name(name) or name in scope.names:
            self.tokens.jump(start)
            raise self.tokens.error(
                f"{shortened(name)} cannot be a label here: it is no name, or has a meaning already"
            )
        unique = name + scope.suffix
        scope.names[name] = Symbol(unique)
        self.function.labels[unique] = len(self.statements)
        return unique

    def directive(self, scope: Scope, label: str) -> None:
        """Read a directive in the body; `label` is the label just before it."""
        tokens = self.tokens
        token = tokens.token
        if token == ".reg":
            self.registers(scope)
        elif token in (".local", ".shared", ".param", ".const", ".global", ".tex"):
            declared = variable(tokens, suffix=scope.suffix)
            name = declared.name.removesuffix(scope.suffix)
            if declared.space == "shared":
                if declared.name in self.shared:
                    # Another function's, or the program's, which a block may have beside this one.
                    declared = replace(declared, name=f"{declared.name}${self.function.name}")
                self.shared.add(declared.name)
            scope.names[name] = Symbol(declared.name)
            self.function.variables[declared.name] = declared
        elif token in (".branchtargets", ".calltargets") and label:
            tokens.take()
            targets = [tokens.name()]
            while tokens.skip(","):
                targets.append(tokens.name())
            self.tables.append((label, targets, scope))
        elif token in (".pragma", ".callprototype"):
            while tokens.token != ";":
                tokens.take()
        else:
            raise tokens.error(f"directive {token} cannot stand here")
        if tokens.token != ";":
            raise tokens.error(f"expected ';', found {tokens.token or 'the end of the text'!r}")

    # ── registers ──

    def registers(self, scope: Scope) -> None:
        """Read ``.reg .v4 .f32 %v<8>, w;``. The name of a vector means all its elements, each a register."""
        tokens = self.tokens
        tokens.take()
        length = int(tokens.take()[2]) if tokens.token in (".v2", ".v4") else 1
        type_name = tokens.token[1:]
        if type_name not in TYPE_BYTES or not tokens.token.startswith("."):
            raise tokens.error(f"{shortened(tokens.token)} is no type of a register")
        tokens.take()
        while True:
            name = tokens.name()
            if tokens.skip("<"):
                count = literal(tokens, _MOST_REGISTERS)
                tokens.take(">")
                names = [f"{name}{number}" for number in range(count)]
                if length == 1:
                    unique = [name + scope.suffix for name in names] if scope.suffix else names
                    scope.names.update(zip(names, map(Register, unique), strict=True))
                    self.function.registers.update(dict.fromkeys(unique, type_name))
                else:
                    for name in names:
                        self.declare(name, type_name, length, scope)
            else:
                self.declare(name, type_name, length, scope)
            if not tokens.skip(","):
                return

    def declare(self, name: str, type_name: str, length: int, scope: Scope) -> None:
        """Declare a register in a scope, or with `length` 2 or 4 a vector of registers.

        The elements of a vector are registers ``name.x``, ``name.y``, …, also called ``name.r``, ``name.g``, … The name
        of the vector means the group of them.
        """
        if length == 1:
            unique = name + scope.suffix
            scope.names[name] = Register(unique)
            self.function.registers[unique] = type_name
            return
        elements = []
        for letters in ("xr", "yg", "zb", "wa")[:length]:
            self.declare(f"{name}.{letters[0]}", type_name, 1, scope)
            element = scope.names[f"{name}.{letters[0]}"]
            scope.names[f"{name}.{letters[1]}"] = element
            elements.append(element)
        scope.names[name] = Group("vector", tuple(elements))

    # ── instructions ──

    def instruction(self, statement: _Statement) -> Instruction:
        """Return the instruction of a statement, with its operands read."""
        name_parts = self.parts.get(statement.name)
        if name_parts is None:
            opcode, *modifiers = (part.strip() for part in statement.name.split("."))
            name_parts = self.parts[statement.name] = (opcode, tuple(modifiers))
        guard = None
        if statement.guard is not None:
            predicate = statement.scope.find(statement.guard)
            if not isinstance(predicate, Register):
                raise self.error(statement, f"no register {statement.guard} is declared")
            if self.function.registers[predicate.name] != "pred":
                raise self.error(statement, f"register {statement.guard} is no predicate")
            guard = (predicate, statement.negated)
        operands = read_operands(statement.operands, statement.scope, statement.name, statement.line)
        if name_parts[0] in _ACCESSES and "{" in statement.operands:
            # A vector of one element, as Triton writes it, is that element.
            operands = tuple(
                operand.items[0]
                if isinstance(operand, Group) and operand.notation == "vector" and len(operand.items) == 1
                else operand
                for operand in operands
            )
        if name_parts[0] == "bra" or name_parts[0] == "brx":
            self.check_target(operands, statement)
        return Instruction(*name_parts, operands, guard, statement.line, statement.source)

    def check_target(self, operands: tuple[Operand, ...], statement: _Statement) -> None:
        """Check that a branch's target is a label of the function."""
        for operand in operands:
            if isinstance(operand, Symbol) and operand.name not in self.function.labels:
                raise self.error(statement, f"no label {operand.name} is in function {self.function.name}")

    def error(self, statement: _Statement, problem: str) -> Exception:
        """Return an error that names a statement's line and instruction."""
        return Tokens("", statement.line).error(f"{statement.name}: {problem}")
