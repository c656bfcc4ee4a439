"""A kernel and what is stated of its launches, as symbols: its indices, its arguments, the arrays that it reaches.

Statements are expressions in Python's syntax, over integer arguments and the lengths of arrays.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

import numpy as np

from cudakit.emulator.face import facts, plain, program, words
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.proof.instructions import INTEGERS, Numbers, Opaque, Unsupported, Value
from cudakit.proof.terms import (
    All,
    Atom,
    Formula,
    Polynomial,
    Symbol,
    at_least,
    cone,
    divided,
    equal,
    everything,
    implies,
    negation,
    polynomial,
    some,
)
from cudakit.types.checked import listed

_COMPARED: Final[dict[type[ast.cmpop], Callable[[Polynomial, Polynomial], Formula]]] = {
    ast.Lt: lambda a, b: at_least(b, a + 1), ast.LtE: lambda a, b: at_least(b, a), ast.GtE: at_least,
    ast.Gt: lambda a, b: at_least(a, b + 1), ast.Eq: equal, ast.NotEq: lambda a, b: negation(equal(a, b)),
}  # fmt: skip


class Statements:
    """Reads statements; they are parsed, and never run.

    Parameters
    ----------
    kernel : str
        What errors call it.
    names : mapping of str to Polynomial
        What can be named, such as ``n``, ``len(x)`` and ``blockDim.x``.
    """

    kernel: str
    names: Mapping[str, Polynomial]

    def __init__(self, kernel: str, names: Mapping[str, Polynomial]) -> None:
        self.kernel, self.names = kernel, names
        #: Arguments that are words of Python, such as ``in`` and ``lambda``, as they are parsed.
        self._words: dict[str, str] = {}
        parts = {word for name in names for word in re.findall(r"\w+", name)}
        for word in filter(keyword.iskeyword, parts):
            self._words[word] = word + "_" * next(n for n in range(1, 99) if word + "_" * n not in parts)
        #: What holds beside the statements: that each divisor in them is above 0.
        self.implied: list[Formula] = []

    def truth(self, text: str) -> Formula:
        """A statement such as ``0 <= n <= len(x)``.

        Raises
        ------
        ArgumentError
        """
        return self._truth(self._parsed(text), text)

    def number(self, text: str) -> Polynomial:
        """A size such as ``(n + 255) // 256``.

        Raises
        ------
        ArgumentError
        """
        return self._number(self._parsed(text), text)

    def _parsed(self, text: str) -> ast.expr:
        given = re.sub(r"\w+", lambda word: self._words.get(word[0], word[0]), text.strip())
        try:
            return ast.parse(given, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._error(text, "it is not an expression") from None

    def _error(self, text: str, what: str) -> ArgumentError:
        names = ", ".join(self.names)
        return ArgumentError(
            f"{self.kernel}: cannot read {shortened(text.strip())}: {what}; expected a comparison or a number of + - "
            "* // % "
            f"over whole numbers and {names}, such as 'n <= len(x)'"
        )

    def _truth(self, node: ast.expr, text: str) -> Formula:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(each, text) for each in node.values]
            return everything(parts) if isinstance(node.op, ast.And) else some(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negation(self._truth(node.operand, text))
        if not isinstance(node, ast.Compare):
            raise self._error(text, "it is not a comparison")
        found = []
        values = [self._number(each, text) for each in (node.left, *node.comparators)]
        for left, operator, right in zip(values, node.ops, values[1:], strict=False):
            if type(operator) not in _COMPARED:
                raise self._error(text, "it has another comparison than < <= > >= == !=")
            found.append(_COMPARED[type(operator)](left, right))
        return everything(found)

    def _number(self, node: ast.expr, text: str) -> Polynomial:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return polynomial(node.value)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            name = ast.unparse(node)
            for word, parsed in self._words.items():
                name = re.sub(rf"\b{parsed}\b", word, name)
            if name not in self.names:
                raise self._error(text, f"{name} is not known")
            return self.names[name]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand, text)
        if not isinstance(node, ast.BinOp):
            raise self._error(text, f"{ast.unparse(node)} is not a number")
        left, right = self._number(node.left, text), self._number(node.right, text)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.LShift | ast.Pow) and left.constant is not None and right.constant is not None:
            if not 0 <= right.constant <= 64:
                raise self._error(text, "a shift or a power is from 0 to 64")
            return polynomial(
                left.constant << right.constant if isinstance(node.op, ast.LShift) else left.constant**right.constant
            )
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            if right.constant is not None and right.constant < 1:
                raise self._error(text, "a divisor must be above 0")
            self.implied.append(at_least(right, 1))
            return divided(left, right)[isinstance(node.op, ast.Mod)]
        raise self._error(text, "it has another operator than + - * // %")


#: Bytes that an array has at most, and where its memory ends.
_MOST_BYTES: Final = 1 << 47
_GRID: Final = (2**31 - 1, 65_535, 65_535)
_BLOCK: Final = (1024, 1024, 64)
_THREADS: Final = 1024
_AXES: Final = "xyz"
_SAME: Final = re.compile(r"\s*(\w+)\s+is\s+(\w+)\s*")

#: A number, or an expression of sizes, for one axis or for up to three; None: any.
Extent: TypeAlias = int | str | Sequence[int | str] | None


@dataclass(frozen=True)
class Array:
    """Memory that the kernel reaches by one name.

    Attributes
    ----------
    name : str
    base : Symbol
    bytes : Polynomial
    space : str
        ``global``, ``shared``, ``local`` or ``const``.
    align : int
        Bytes that its address is a multiple of.
    """

    name: str
    base: Symbol
    bytes: Polynomial
    space: str
    align: int


@dataclass
class Problem:
    """A kernel, its launches and its arrays.

    Attributes
    ----------
    name : str
        What errors call the kernel.
    given : list of Formula
        What every launch meets.
    arrays : dict
        By where they begin.
    scalars, lengths, pointers : dict
        Symbols of integer arguments, of arrays' lengths, and of where these begin, by names.
    elements : dict
        For each array of integers a symbol that stands for any of its elements in statements.
    contents : dict
        What is stated of the elements of arrays, by the arrays' names.
    block, grid : tuple of Polynomial
    shared_bytes : Polynomial
    """

    name: str
    ptx: program.Program
    entry: program.Function
    parameters: tuple[BoundParameter, ...]
    given: list[Formula] = field(default_factory=list)
    arrays: dict[Symbol, Array] = field(default_factory=dict)
    scalars: dict[str, Symbol] = field(default_factory=dict)
    lengths: dict[str, Symbol] = field(default_factory=dict)
    pointers: dict[str, Symbol] = field(default_factory=dict)
    elements: dict[str, Symbol] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)
    #: What can be named in statements.
    names: dict[str, Polynomial] = field(default_factory=dict)
    #: Arguments that are the same array as another.
    same: dict[str, str] = field(default_factory=dict)
    block: tuple[Polynomial, ...] = ()
    grid: tuple[Polynomial, ...] = ()
    shared_bytes: Polynomial = field(default_factory=lambda: polynomial(0))
    threads: tuple[Polynomial, ...] = ()
    blocks: tuple[Polynomial, ...] = ()
    _bases: dict[str, Polynomial] = field(default_factory=dict)
    _parts: dict[tuple[str, int, str], Value] = field(default_factory=dict)
    #: The beginnings of the arrays in a thread's own memory, by their addresses in the variable that holds them.
    _parts_of: dict[Polynomial, Polynomial] = field(default_factory=dict)
    #: Axes of the grid that have one block because the kernel never reads them and nothing is stated of them.
    axes_of_1: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        ptx: program.Program,
        entry: program.Function,
        parameters: tuple[BoundParameter, ...],
        statements: Sequence[str],
        block: Extent,
        grid: Extent,
        shared_bytes: int | str,
    ) -> Problem:
        """The problem that statements make of a kernel.

        Raises
        ------
        ArgumentError
            For statements that cannot be read.
        """
        made = cls(name, ptx, entry, parameters)
        names = made.names = made._arguments()
        statements = made._united(statements, names)
        reader = Statements(name, names)
        # What is stated of arguments alone comes first: it narrows what follows.
        early = [each for each in statements if "blockDim" not in each and "gridDim" not in each]
        made._state(reader, early)
        made._narrow()
        made.block = made._extent(reader, "block", block, _BLOCK, statements)
        names.update({f"blockDim.{axis}": value for axis, value in zip(_AXES, made.block, strict=True)})
        made.grid = made._extent(reader, "grid", grid, _GRID, statements)
        names.update({f"gridDim.{axis}": value for axis, value in zip(_AXES, made.grid, strict=True)})
        made.shared_bytes = reader.number(str(shared_bytes))
        made.given += [at_least(made.shared_bytes, 0), at_least(1 << 20, made.shared_bytes)]
        made._state(reader, [each for each in statements if each not in early])
        for each in reader.implied:
            made._give(each)
        made._narrow()
        threads = made.block[0] * made.block[1] * made.block[2]
        if threads.constant is not None and not 1 <= threads.constant <= _THREADS:
            raise ArgumentError(f"{name}: a block has 1 to {_THREADS} threads, got {threads.constant}")
        made.given.append(at_least(_THREADS, threads))
        made._directives()
        made.threads = tuple(made._index("threadIdx", "thread", axis, made.block) for axis in range(3))
        made.blocks = tuple(made._index("blockIdx", "block", axis, made.grid) for axis in range(3))
        return made

    def _state(self, reader: Statements, statements: Sequence[str]) -> None:
        """Take statements: of launches, or of the elements of an array."""
        for each in statements:
            formula = reader.truth(each)
            arrays = self._of(formula)
            if len(arrays) > 1:
                text = f"{each.strip()!r} is stated of the elements of two arrays, {' and '.join(arrays)}"
                raise ArgumentError(f"{self.name}: {text}; state one array's by themselves, such as '0 <= ids < n'")
            if arrays:
                self.contents.setdefault(arrays[0], []).append(each)
            self._give(formula)

    def _give(self, formula: Formula) -> None:
        """Take what holds of every launch; what is of elements, only of one whose array has any."""
        some_elements = (at_least(self.lengths[name], 1) for name in self._of(formula))
        self.given.append(implies(everything(some_elements), formula))

    def _of(self, formula: Formula) -> list[str]:
        """The arrays whose elements a formula is about."""
        symbols = cone([formula])[0]
        return [name for name, symbol in self.elements.items() if symbol in symbols]

    def _narrow(self) -> None:
        """Give symbols the bounds that are stated of them alone."""
        whole = everything(self.given)
        for each in whole.items if isinstance(whole, All) else (whole,):
            if not isinstance(each, Atom) or each.is_equality or len(each.value.symbols) != 1:
                continue
            (symbol,) = each.value.symbols
            factor, rest = each.value.terms.get((symbol,), 0), each.value.terms.get((), 0)
            if factor == 0 or len(each.value.terms) > 2 or any(len(product) > 1 for product in each.value.terms):
                continue
            if factor > 0:
                least = -(rest // factor)
                symbol.low = least if symbol.low is None else max(symbol.low, least)
            else:
                most = rest // -factor
                symbol.high = most if symbol.high is None else min(symbol.high, most)

    def _directives(self) -> None:
        """What the compiler was told of the block, without which nothing is launched."""
        for name, numbers in self.entry.directives.items():
            if name == "reqntid":
                sizes = (*numbers, 1, 1)[:3]
                self.given += [at_least(value, size) for value, size in zip(self.block, sizes, strict=True)]
                self.given += [at_least(size, value) for value, size in zip(self.block, sizes, strict=True)]
            elif name == "maxntid":
                self.given.append(at_least(prod(numbers), self.block[0] * self.block[1] * self.block[2]))

    def _arguments(self) -> dict[str, Polynomial]:
        names: dict[str, Polynomial] = {}
        for parameter in self.parameters:
            if parameter.category == "pointer":
                size = element_bytes(parameter)
                length = Symbol(f"len({parameter.name})", 0, _MOST_BYTES // size)
                self.lengths[parameter.name] = length
                names[length.name] = polynomial(length)
                self._bases[parameter.name] = base = self._array(
                    parameter.name, polynomial(length) * size, "global", 256
                )
                # The pointer of no array, or of one without elements, may be null.
                (symbol,) = base.symbols
                symbol.low = 0
                symbol.definition = (some((at_least(symbol, 1), equal(length, 0))),)
                self.pointers[parameter.name] = symbol
                if parameter.dtype is not None and parameter.dtype.kind in "iu" and parameter.count == 1:
                    element = Symbol(parameter.name, *_limits(parameter.dtype))
                    self.elements[parameter.name] = element
                    names[parameter.name] = polynomial(element)
            elif parameter.category == "scalar" and parameter.dtype is not None and parameter.dtype.kind in "iub":
                low, high = (0, 1) if parameter.dtype.kind == "b" else _limits(parameter.dtype)
                self.scalars[parameter.name] = symbol = Symbol(parameter.name, low, high)
                names[parameter.name] = polynomial(symbol)
        return names

    def _united(self, statements: Sequence[str], names: dict[str, Polynomial]) -> list[str]:
        """The statements but those such as ``x is y``, which say that two arguments are one array."""
        left = []
        for each in statements:
            match = _SAME.fullmatch(each)
            if match is None:
                left.append(each)
                continue
            first, second = match.groups()
            types = {(every.dtype, every.count) for every in self.parameters if every.name in (first, second)}
            known = {first, second} <= set(self.lengths) and first != second
            if not known or len(types) != 1 or self.same.keys() & {first, second}:
                raise ArgumentError(
                    f"{self.name}: {shortened(each.strip())} names two things that are not arrays of one type"
                )
            (base,) = self._bases[second].symbols
            del self.arrays[base], self.lengths[second], self.pointers[second]
            # What was the second is the first now.
            for other in [second, *(name for name, same in self.same.items() if same == second)]:
                self.same[other] = first
                self._bases[other] = self._bases[first]
                names[f"len({other})"] = names[f"len({first})"]
                if self.elements.pop(other, None) is not None:
                    names[other] = names[first]
        return left

    def _extent(
        self, reader: Statements, what: str, given: Extent, most: tuple[int, ...], statements: Sequence[str]
    ) -> tuple[Polynomial, ...]:
        if given is None:
            # An axis of which something is stated is as stated, also where the kernel never reads it.
            stated = (axis for axis in _AXES if any(f"gridDim.{axis}" in each.replace(" ", "") for each in statements))
            read: Iterable[str] = {*self._axes_read(), *stated} if what == "grid" else _AXES
            self.axes_of_1 += tuple(axis for axis in _AXES if axis not in read)
            found = [Symbol(f"{what}Dim.{axis}", 1, high) for axis, high in zip(_AXES, most, strict=True)]
            return tuple(polynomial(1 if each.name[-1] not in read else each) for each in found)
        parts = (
            [given] if isinstance(given, int | str) else listed(f"{self.name}: {what} is an extent, or several", given)
        )
        if not 1 <= len(parts) <= 3:
            raise ArgumentError(f"{self.name}: {what} has one to three extents, got {shortened(given)}")
        sizes = []
        for part, high in zip([*parts, 1, 1], most, strict=False):
            if isinstance(part, bool) or not isinstance(part, int | str | np.integer):
                raise ArgumentError(f"{self.name}: {what} has numbers or expressions, got {shortened(part)}")
            if not isinstance(part, str) and not 1 <= part <= high:
                raise ArgumentError(f"{self.name}: an extent of a {what} is from 1 to {high}, got {shortened(part)}")
            value = reader.number(str(part))
            if value.constant is not None and not 1 <= value.constant <= high:
                raise ArgumentError(f"{self.name}: an extent of a {what} is from 1 to {high}, got {part}")
            if value.constant is None:
                most_of_it = value.range[1]
                named = Symbol(f"{what}Dim", 1, high if most_of_it is None else max(1, min(high, most_of_it)))
                self.given += [at_least(value, polynomial(named)), at_least(polynomial(named), value)]
                value = polynomial(named)
            sizes.append(value)
        return tuple(sizes)

    def _axes_read(self) -> set[str]:
        """Axes of the grid that the kernel reads: along another one, all blocks would do the same."""
        code = (given for function in self.ptx.functions.values() for given in function.code)
        names = (name.lstrip("%").partition(".") for given in code for name in facts.sources(given))
        return {axis for word, _, axis in names if word in ("ctaid", "nctaid")}

    def _index(self, name: str, varies: str, axis: int, extents: tuple[Polynomial, ...]) -> Polynomial:
        extent = extents[axis]
        if extent.constant == 1:
            return polynomial(0)
        high = extent.range[1]
        found = Symbol(f"{name}.{_AXES[axis]}", 0, None if high is None else high - 1, frozenset({varies}))
        found.definition = (at_least(extent - 1, polynomial(found)),)
        return polynomial(found)

    def _array(self, name: str, size: Polynomial, space: str, align: int) -> Polynomial:
        high = 1 << 20 if space == "shared" else _MOST_BYTES
        base = Symbol(f"&{name}", 1 if space == "global" else 0, high, is_base=True)
        self.arrays[base] = Array(name, base, size, space, align)
        return polynomial(base)

    # ── what the execution asks ──

    def special(self, name: str) -> Value:
        """The value of a special register."""
        word, _, axis = name.lstrip("%").partition(".")
        rows = {"tid": self.threads, "ntid": self.block, "ctaid": self.blocks, "nctaid": self.grid}
        if word in rows and axis in tuple(_AXES):
            return rows[word][_AXES.index(axis)]
        return Opaque(f"{name} is not followed")

    def base_of(self, name: str) -> Polynomial:
        """Where a variable begins.

        Raises
        ------
        Unsupported
        """
        found = self._bases.get(f"variable {name}")
        if found is not None:
            return found
        variable = self.entry.variables.get(name) or self.ptx.variables.get(name)
        if variable is None or variable.space not in ("global", "shared", "local", "const"):
            raise Unsupported(f"the address of {name}")
        return self._variable(f"variable {name}", variable)

    def _variable(self, name: str, variable: program.Variable) -> Polynomial:
        if variable.space == "shared" and variable.extern:
            # All of them are the memory that the launch gives.
            base = self._bases.get("dynamic shared memory")
            if base is None:
                known = (*self.ptx.variables.values(), *self.entry.variables.values())
                align = max(each.align for each in known if each.space == "shared" and each.extern)
                base = self._array("dynamic shared memory", self.shared_bytes, "shared", align)
                self._bases["dynamic shared memory"] = base
            self._bases[name] = base
            return base
        shown = "a thread's own memory" if variable.space == "local" else plain(variable.name)
        self._bases[name] = self._array(shown, polynomial(variable.size), variable.space, variable.align)
        if variable.space == "local":
            self._part(self._bases[name], variable)
        return self._bases[name]

    def _part(self, base: Polynomial, variable: program.Variable) -> None:
        """Tell arrays of a thread apart, which lie in one variable: each begins where an address is taken."""
        held = {variable.name}
        starts = {0}
        for each in self.entry.code:
            target, *operands = each.operands or (None,)
            names = {getattr(operand, "name", "") for operand in operands}
            if isinstance(target, program.Register) and not held.isdisjoint(names):
                if each.opcode in ("mov", "cvta"):
                    held.add(target.name)
                elif each.opcode == "add":
                    starts |= {operand.value for operand in operands if isinstance(operand, program.Immediate)}
        inside = sorted(each for each in starts if 0 <= each < variable.size)
        for start, end in itertools.pairwise([*inside, variable.size]):
            shown, align = f"a thread's own array of {end - start} bytes", math.gcd(start, variable.align)
            self._parts_of[base + start] = self._array(shown, polynomial(end - start), "local", align)

    def part(self, address: Polynomial) -> Polynomial:
        """The address of a variable, plus a number, as the beginning of one of the arrays in it, where it is one."""
        return self._parts_of.get(address, address) if self._parts_of else address

    def element(self, address: Polynomial, size: int, numbers: Numbers) -> Polynomial | None:
        """What is read from an array of whose elements something is stated; None for others."""
        (base, *others) = address.bases().symbols or (None,)
        name = next((each for each in self.contents if self.pointers[each] is base), None)
        if name is None or others or size != self.elements_bytes(name):
            return None
        return self.any_element(name, numbers)

    def any_element(self, name: str, numbers: Numbers) -> Polynomial:
        """An element of an array of which something is stated: another one in each thread and iteration.

        Where the array has no elements, nothing is known of it.
        """
        made = numbers.unknown("", self.elements[name].low, self.elements[name].high)
        (symbol,) = made.symbols
        symbol.name = content_name(name)
        aliases = (name, *(other for other, same in self.same.items() if same == name))
        reader = Statements(self.name, {**self.names, **dict.fromkeys(aliases, made)})
        stated = [reader.truth(each) for each in self.contents[name]]
        some_elements = at_least(self.lengths[name], 1)
        symbol.definition = tuple(implies(some_elements, each) for each in (*stated, *reader.implied))
        return made

    def elements_bytes(self, name: str) -> int:
        """Bytes of an element of an array that is an argument."""
        return element_bytes(next(each for each in self.parameters if each.name == name))

    def parameter(self, name: str, offset: int, kind: str) -> Value:
        """What is read from a parameter of the kernel."""
        place = next((at for at, each in enumerate(self.entry.parameters) if each.name == name), None)
        if place is None or place >= len(self.parameters):
            raise Unsupported(f"the parameter {name}")
        parameter = self.parameters[place]
        if offset == 0 and parameter.name in self.scalars:
            return polynomial(self.scalars[parameter.name])
        if offset == 0 and parameter.category == "pointer":
            return self._bases[parameter.name]
        key = name, offset, kind
        if key not in self._parts:
            reason = f"it depends on a part of the parameter {parameter.name}, which is no integer and no pointer"
            if kind in INTEGERS and parameter.category != "scalar":
                bits, signed = INTEGERS[kind]
                self._parts[key] = polynomial(Symbol(parameter.name, *words.bounds(signed, bits), reason=reason))
            else:
                self._parts[key] = Opaque(f"it depends on the argument {parameter.name}")
        return self._parts[key]


def _limits(dtype: np.dtype) -> tuple[int, int]:
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def content_name(array: str) -> str:
    """The name of symbols for elements of an array that are read."""
    return f"{array}[]"


def element_bytes(parameter: BoundParameter) -> int:
    """Bytes of an element of what a parameter points to."""
    return max(1, parameter.dtype.itemsize * parameter.count) if parameter.dtype is not None else 1
