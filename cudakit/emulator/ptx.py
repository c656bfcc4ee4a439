"""PTX text to a program: functions of instructions with resolved labels, and the variables around them.

The grammar is that of the PTX ISA, sections 4 (syntax), 5 (state spaces and types) and 10 (directives). Scopes in
braces rename the registers, labels and parameters declared in them, so that each name means one thing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cudakit.errors import EmulationError


@dataclass(frozen=True, slots=True)
class Register:
    """A register, named uniquely within its function."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an int, or the bits of a float with its width in bits (32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, function or label, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, in bytes; for tensor copies the coordinates follow."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Several operands as one: ``{a, b}`` (vector), ``(a, b)`` (call arguments) or ``d|p`` (a pair)."""

    kind: str
    items: tuple[Operand, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Address | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode : str
        First part of the name, such as ``add``.
    modifiers : tuple of str
        The other parts, such as ``("rn", "ftz", "f32")``.
    operands : tuple
    guard : (Register, bool) or None
        Predicate, and whether it is negated.
    line : int
        Line in the PTX text.
    source : (str, int) or None
        File and line in the CUDA C++ source, where line information was compiled in.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    line: int
    source: tuple[str, int] | None

    def __str__(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter: its state space, element type (``b32``), size and alignment in bytes, and content."""

    name: str
    space: str
    type: str
    size: int
    align: int
    extern: bool = False
    data: tuple[tuple[int, bytes | Symbol], ...] = ()


@dataclass(slots=True)
class Function:
    """An entry or a device function."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_declaration: bool = False


@dataclass(slots=True)
class Program:
    """A PTX module."""

    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]


TYPE_BYTES = {
    kind + str(bits): bits // 8 for kind in "busf" for bits in (8, 16, 32, 64, 128) if (kind, bits) != ("f", 8)
} | {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4, "tf32": 4, "texref": 8, "samplerref": 8, "surfref": 8}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:\\.|[^"\\])*")
    | (?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][+-]?\d+)?)
    | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    | (?P<name>[.%$_a-zA-Z][\w$.:]*)
    | (?P<punctuation>[-+@!,;:(){}\[\]|=<>~*/&^])
    )""",
    re.VERBOSE,
)


def parse(text: str) -> Program:
    """The program in PTX `text`.

    Raises
    ------
    EmulationError
        Naming the line that is no PTX.
    """
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.position = 0
        self.files: dict[int, str] = {}
        self.target = ""
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.source: tuple[str, int] | None = None

    # ── tokens ──

    def peek(self, ahead: int = 0) -> str:
        place = self.position + ahead
        return self.tokens[place][0] if place < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if expected is not None and token != expected:
            raise self.error(f"expected {expected!r}, found {token!r}")
        if not token:
            raise self.error("the text ends in the middle of a statement")
        self.position += 1
        return token

    def line(self) -> int:
        return self.tokens[min(self.position, len(self.tokens) - 1)][1] if self.tokens else 0

    def error(self, what: str) -> EmulationError:
        return EmulationError(f"PTX line {self.line()}: {what}")

    def skip_past(self, end: str) -> None:
        while self.peek() and self.take() != end:
            pass

    def integer(self) -> int:
        sign = -1 if self.peek() == "-" and self.take() else 1
        token = self.take()
        try:
            return sign * int(token.rstrip("U"), 0)
        except ValueError:
            raise self.error(f"expected a number, found {token!r}") from None

    # ── module ──

    def module(self) -> Program:
        while token := self.peek():
            if token in (".version", ".address_size"):
                self.position += 2
            elif token == ".target":
                self.take()
                self.target = self.take()
                while self.peek() == ",":
                    self.position += 2
            elif token == ".file":
                self.file()
            elif token == ".section":
                self.skip_past("{")
                self.skip_past("}")
            elif token in (".visible", ".weak", ".common", ".extern", ".entry", ".func"):
                self.linked()
            elif token in (".global", ".const", ".shared", ".tex"):
                variable = self.variable(extern=False)
                self.variables[variable.name] = variable
            elif token == ".alias" or token == ".pragma":
                self.skip_past(";")
            else:
                raise self.error(f"unknown directive {token!r}")
        for function in self.functions.values():
            function.code = [self.placed(instruction) for instruction in function.code]
        return Program(self.target, self.variables, self.functions)

    def placed(self, instruction: Instruction) -> Instruction:
        """`instruction` with the name of its source file, which PTX gives at the end of the text."""
        if instruction.source is None:
            return instruction
        file, line = instruction.source
        return replace(instruction, source=(self.files.get(int(file), "?"), line) if line else None)

    def file(self) -> None:
        self.take()
        number = self.integer()
        self.files[number] = self.take().strip('"')
        while self.peek() == ",":
            self.position += 2

    def linked(self) -> None:
        extern = False
        while self.peek() in (".visible", ".weak", ".common", ".extern"):
            extern = self.take() == ".extern" or extern
        if self.peek() in (".entry", ".func"):
            self.function()
        else:
            variable = self.variable(extern)
            self.variables[variable.name] = variable

    def variable(self, extern: bool, rename: str = "") -> Variable:
        space = self.take()[1:]
        align, kind, vector = 0, "b8", 1
        while self.peek().startswith("."):
            token = self.take()[1:]
            if token == "align":
                align = self.integer()
            elif token in ("v2", "v4"):
                vector = int(token[1])
            elif token in TYPE_BYTES:
                kind = token
            elif token not in ("attribute", "ptr", "global", "const", "shared", "local", "noalias"):
                raise self.error(f"unknown type or attribute .{token}")
            if token == "attribute":
                self.skip_past(")")
        name = self.take() + rename
        count, unsized = 1, False
        while self.peek() == "[":
            self.take()
            if self.peek() == "]":
                unsized = True
            else:
                count *= self.integer()
            self.take("]")
        element = TYPE_BYTES[kind]
        data: tuple[tuple[int, bytes | Symbol], ...] = ()
        if self.peek() == "=":
            self.take()
            data = tuple(self.initialiser(kind))
            if unsized:
                count = len(data)
        if self.peek() == ";":
            self.take()
        size = 0 if unsized and not data else element * vector * count
        return Variable(name, space, kind, size, align or element * vector, extern, data)

    def initialiser(self, kind: str) -> Iterator[tuple[int, bytes | Symbol]]:
        """(offset, bytes or address) of each element in an initialiser."""
        width, offset, depth = TYPE_BYTES[kind], 0, 0
        while True:
            token = self.peek()
            if token == "{":
                depth += 1
                self.take()
            elif token == "}":
                depth -= 1
                self.take()
            elif token == "," and depth:
                self.take()
            else:
                item = self.operand({})
                if isinstance(item, Immediate):
                    yield offset, (item.value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
                elif isinstance(item, Symbol):
                    yield offset, item
                offset += width
            if depth == 0 and self.peek() != ",":
                return

    # ── functions ──

    def function(self) -> None:
        is_entry = self.take() == ".entry"
        returns: tuple[Variable, ...] = ()
        if self.peek() == "(":
            returns = self.parameters()
        name = self.take()
        function = Function(name, is_entry, returns=returns)
        if self.peek() == "(":
            function.parameters = self.parameters()
        while self.peek() not in ("{", ";"):
            self.performance_directive(function)
        self.source = None
        if self.take() == ";":
            function.is_declaration = True
            self.functions.setdefault(name, function)
            return
        _Body(self, function).block({})
        self.functions[name] = function

    def parameters(self) -> tuple[Variable, ...]:
        self.take("(")
        found = []
        while self.peek() != ")":
            if self.peek() == ",":
                self.take()
            found.append(self.variable(extern=False))
        self.take(")")
        return tuple(found)

    def performance_directive(self, function: Function) -> None:
        token = self.take()
        numbers = []
        while re.match(r"\d", self.peek()) or self.peek() == ",":
            if self.peek() == ",":
                self.take()
            numbers.append(self.integer())
        if token.startswith("."):
            function.directives[token[1:]] = tuple(numbers)

    def operand(self, names: dict[str, str]) -> Operand:
        token = self.peek()
        if token == "{" or token == "(":
            self.take()
            close = "}" if token == "{" else ")"
            items = []
            while self.peek() != close:
                if self.peek() == ",":
                    self.take()
                items.append(self.operand(names))
            self.take(close)
            return Group("vector" if token == "{" else "arguments", tuple(items))
        if token == "[":
            return self.address(names)
        if token == "!":
            self.take()
            inner = self.operand(names)
            return Group("not", (inner,))
        if token in "+-" or token[0].isdigit():
            return self.constant()
        name = self.take()
        name = names.get(name, name)
        first: Operand = Register(name) if name.startswith("%") or name == "_" else Symbol(name)
        if self.peek() == "|":
            self.take()
            return Group("pair", (first, self.operand(names)))
        if isinstance(first, Symbol) and self.peek() in ("+", "-"):
            return Symbol(name, self.signed())
        return first

    def constant(self) -> Immediate:
        sign = -1 if self.peek() in "+-" and self.take() == "-" else 1
        token = self.take()
        if token[:2] in ("0f", "0F"):
            return Immediate(int(token[2:], 16), 32)
        if token[:2] in ("0d", "0D"):
            return Immediate(int(token[2:], 16), 64)
        if "." in token:
            return Immediate(struct.unpack("<Q", struct.pack("<d", sign * float(token)))[0], 64)
        return Immediate(sign * int(token.rstrip("U"), 0))

    def signed(self) -> int:
        sign = -1 if self.take() == "-" else 1
        return sign * self.integer()

    def address(self, names: dict[str, str]) -> Address:
        self.take("[")
        base = self.operand(names)
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), base.offset
        else:
            offset = self.signed() if self.peek() in ("+", "-") else 0
        coordinates: list[Operand] = []
        while self.peek() == ",":
            self.take()
            coordinates.append(self.operand(names))
        self.take("]")
        if not isinstance(base, Register | Symbol | Immediate):
            raise self.error("an address must begin with a register, a variable or a number")
        return Address(base, offset, tuple(coordinates))


class _Body:
    """Statements of one function; nested braces rename what is declared in them."""

    def __init__(self, parser: _Parser, function: Function) -> None:
        self.parser = parser
        self.function = function
        self.scopes = 0

    def block(self, outer: dict[str, str]) -> None:
        parser = self.parser
        names = dict(outer)
        suffix = f"#{self.scopes}" if self.scopes else ""
        self.scopes += 1
        self.find_labels(names, suffix)
        while (token := parser.peek()) != "}":
            if token == "{":
                parser.take()
                self.block(names)
            elif not token:
                raise parser.error("the function does not end")
            elif token.startswith("."):
                self.directive(token, names, suffix)
            elif token == ";":
                parser.take()
            elif parser.peek(1) == ":" or token.endswith(":"):
                name = parser.take().rstrip(":")
                if parser.peek() == ":":
                    parser.take()
                self.label(names.get(name, name))
            else:
                self.instruction(names)
        parser.take("}")

    def find_labels(self, names: dict[str, str], suffix: str) -> None:
        """Labels of this block are known before they are met, so that a forward branch finds the renamed one."""
        if not suffix:
            return
        depth, place = 0, self.parser.position
        while place < len(self.parser.tokens):
            token = self.parser.tokens[place][0]
            if token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
                if depth < 0:
                    return
            elif depth == 0 and place + 1 < len(self.parser.tokens) and self.parser.tokens[place + 1][0] == ":":
                names[token] = token + suffix
            elif depth == 0 and token.endswith(":"):
                names[token[:-1]] = token[:-1] + suffix
            place += 1

    def label(self, name: str) -> None:
        self.function.labels[name] = len(self.function.code)
        if self.parser.peek() in (".branchtargets", ".calltargets"):
            self.parser.take()
            targets = []
            while self.parser.peek() != ";":
                if self.parser.peek() == ",":
                    self.parser.take()
                targets.append(self.parser.take())
            self.function.branch_targets[name] = tuple(targets)
        elif self.parser.peek() == ".callprototype":
            self.parser.skip_past(";")

    def directive(self, token: str, names: dict[str, str], suffix: str) -> None:
        parser, function = self.parser, self.function
        if token == ".reg" or token.startswith(".reg."):
            parser.take()
            # The headers of half precision write both as one word.
            kind = token[5:] or parser.take()[1:]
            if kind in ("v2", "v4"):
                kind = parser.take()[1:]
            while True:
                name = parser.take()
                if parser.peek() == "<":
                    parser.take()
                    for number in range(parser.integer()):
                        self.declare(f"{name}{number}", kind, names, suffix)
                    parser.take(">")
                else:
                    self.declare(name, kind, names, suffix)
                if parser.take() == ";":
                    return
        elif token in (".local", ".shared", ".param", ".const", ".global"):
            variable = parser.variable(extern=False, rename=suffix)
            names[variable.name.removesuffix(suffix)] = variable.name
            function.variables[variable.name] = variable
        elif token == ".loc":
            parser.take()
            number, line = parser.integer(), parser.integer()
            parser.integer()
            while parser.peek() == ",":
                parser.take()
                parser.take()
                while parser.peek() not in (",",) and not _starts_statement(parser.peek(), parser.peek(1)):
                    parser.take()
            # Files are named at the end of the text, so the number is kept until then.
            parser.source = (str(number), line)
        else:
            parser.skip_past(";")

    def declare(self, name: str, kind: str, names: dict[str, str], suffix: str) -> None:
        unique = name + suffix
        if not unique.startswith("%"):
            # Inline assembly names registers as it likes; a leading % tells them from variables.
            unique = f"%{unique}"
        if unique != name:
            names[name] = unique
        self.function.registers[unique] = kind

    def instruction(self, names: dict[str, str]) -> None:
        parser = self.parser
        line, guard = parser.line(), None
        if parser.peek() == "@":
            parser.take()
            negated = parser.peek() == "!" and bool(parser.take())
            register = parser.take()
            guard = (Register(names.get(register, register)), negated)
        opcode, *modifiers = parser.take().split(".")
        operands = []
        while parser.peek() != ";":
            if parser.peek() == ",":
                parser.take()
                continue
            if not parser.peek():
                raise parser.error("the instruction does not end")
            operands.append(parser.operand(names))
        parser.take(";")
        self.function.code.append(Instruction(opcode, tuple(modifiers), tuple(operands), guard, line, parser.source))


def _starts_statement(token: str, following: str) -> bool:
    """Whether a statement begins with `token`, where the numbers of a ``.loc`` may go on instead."""
    if token in ("ret", "exit", "trap", "brkpt") or following == ":" or token.endswith(":"):
        return True
    return "." in token or token[:1] in ("@", "}", "{")


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """(token, line) of each token in `text`."""
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    position, line, counted = 0, 1, 0
    text = text.rstrip("\0 \n\t\r")
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line += text.count("\n", counted, position)
            raise EmulationError(f"PTX line {line}: {text[position : position + 20]!r} is no PTX")
        start = match.start(match.lastgroup or 0)
        line += text.count("\n", counted, start)
        counted = start
        yield match[match.lastgroup or 0], line
        position = match.end()
