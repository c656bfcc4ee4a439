"""Problem of a proof: a kernel and statements about its launches, as symbols for indices, arguments and arrays.

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
    """Reader of statements, which are parsed and never run.

    Parameters
    ----------
    kernel : str
        Name of the kernel in errors.
    names : mapping of str to Polynomial
        Names in statements, such as ``n``, ``len(x)`` and ``blockDim.x``.
    """

    kernel: str
    names: Mapping[str, Polynomial]

    def __init__(self, kernel: str, names: Mapping[str, Polynomial]) -> None:
        self.kernel, self.names = kernel, names
        #: Arguments named like Python's keywords, such as ``in`` and ``lambda``, as they are parsed.
        self._words: dict[str, str] = {}
        parts = {word for name in names for word in re.findall(r"\w+", name)}
        for word in filter(keyword.iskeyword, parts):
            self._words[word] = word + "_" * next(n for n in range(1, 99) if word + "_" * n not in parts)
        #: Implied conditions: each divisor in the statements is above 0.
        self.implied: list[Formula] = []

    def truth(self, text: str) -> Formula:
        """Return the formula of a statement such as ``0 <= n <= len(x)``.

        Raises
        ------
        ArgumentError
            For text that is no statement.
        """
        return self._truth(self._parsed(text), text)

    def number(self, text: str) -> Polynomial:
        """Return the polynomial of a size such as ``(n + 255) // 256``.

        Raises
        ------
        ArgumentError
            For text that is no size.
        """
        return self._number(self._parsed(text), text)

    def _parsed(self, text: str) -> ast.expr:
        source = re.sub(r"\w+", lambda word: self._words.get(word[0], word[0]), text.strip())
        try:
            return ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._error(text, "it is not an expression") from None

    def _error(self, text: str, reason: str) -> ArgumentError:
        names = ", ".join(self.names)
        return ArgumentError(
            f"{self.kernel}: cannot read {shortened(text.strip())}: {reason}; expected a comparison or a number of + - "
            "* // % "
            f"over whole numbers and {names}, such as 'n <= len(x)'"
        )

    def _truth(self, node: ast.expr, text: str) -> Formula:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(operand, text) for operand in node.values]
            return everything(parts) if isinstance(node.op, ast.And) else some(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negation(self._truth(node.operand, text))
        if not isinstance(node, ast.Compare):
            raise self._error(text, "it is not a comparison")
        comparisons = []
        values = [self._number(operand, text) for operand in (node.left, *node.comparators)]
        for left, operator, right in zip(values, node.ops, values[1:], strict=False):
            if type(operator) not in _COMPARED:
                raise self._error(text, "it has another comparison than < <= > >= == !=")
            comparisons.append(_COMPARED[type(operator)](left, right))
        return everything(comparisons)

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


#: Most bytes of an array, and the end of its memory.
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
        Symbol of its address.
    bytes : Polynomial
        Size in bytes.
    space : str
        ``global``, ``shared``, ``local`` or ``const``.
    align : int
        Alignment of its address, in bytes.
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
        Name of the kernel in errors.
    premises : list of Formula
        Conditions of every launch.
    arrays : dict
        Arrays by the symbols of their addresses.
    scalars, lengths, pointers : dict
        Symbols of integer arguments, of arrays' lengths, and of arrays' addresses, by name.
    elements : dict
        For each array of integers, the symbol that stands for any of its elements in statements.
    contents : dict
        Statements about the elements of arrays, by the arrays' names.
    block, grid : tuple of Polynomial
    shared_bytes : Polynomial
    """

    name: str
    ptx: program.Program
    entry: program.Function
    parameters: tuple[BoundParameter, ...]
    premises: list[Formula] = field(default_factory=list)
    arrays: dict[Symbol, Array] = field(default_factory=dict)
    scalars: dict[str, Symbol] = field(default_factory=dict)
    lengths: dict[str, Symbol] = field(default_factory=dict)
    pointers: dict[str, Symbol] = field(default_factory=dict)
    elements: dict[str, Symbol] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)
    #: Names in statements.
    names: dict[str, Polynomial] = field(default_factory=dict)
    #: Arguments that are the same array as another argument.
    same: dict[str, str] = field(default_factory=dict)
    block: tuple[Polynomial, ...] = ()
    grid: tuple[Polynomial, ...] = ()
    shared_bytes: Polynomial = field(default_factory=lambda: polynomial(0))
    threads: tuple[Polynomial, ...] = ()
    blocks: tuple[Polynomial, ...] = ()
    _bases: dict[str, Polynomial] = field(default_factory=dict)
    _parts: dict[tuple[str, int, str], Value] = field(default_factory=dict)
    #: Beginnings of the arrays in a thread's own memory, by address in their variable.
    _parts_of: dict[Polynomial, Polynomial] = field(default_factory=dict)
    #: Axes of the grid with one block: neither the kernel nor a statement uses them.
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
        """Return the problem of a kernel and statements about its launches.

        Raises
        ------
        ArgumentError
            For statements that cannot be read.
        """
        problem = cls(name, ptx, entry, parameters)
        names = problem.names = problem._arguments()
        statements = problem._united(statements, names)
        reader = Statements(name, names)
        # Statements about arguments alone come first: they narrow the bounds of the rest.
        early = [statement for statement in statements if "blockDim" not in statement and "gridDim" not in statement]
        problem._state(reader, early)
        problem._narrow()
        problem.block = problem._extent(reader, "block", block, _BLOCK, statements)
        names.update({f"blockDim.{axis}": value for axis, value in zip(_AXES, problem.block, strict=True)})
        problem.grid = problem._extent(reader, "grid", grid, _GRID, statements)
        names.update({f"gridDim.{axis}": value for axis, value in zip(_AXES, problem.grid, strict=True)})
        problem.shared_bytes = reader.number(str(shared_bytes))
        problem.premises += [at_least(problem.shared_bytes, 0), at_least(1 << 20, problem.shared_bytes)]
        problem._state(reader, [statement for statement in statements if statement not in early])
        for condition in reader.implied:
            problem._give(condition)
        problem._narrow()
        threads = problem.block[0] * problem.block[1] * problem.block[2]
        if threads.constant is not None and not 1 <= threads.constant <= _THREADS:
            raise ArgumentError(f"{name}: a block has 1 to {_THREADS} threads, got {threads.constant}")
        problem.premises.append(at_least(_THREADS, threads))
        problem._directives()
        problem.threads = tuple(problem._index("threadIdx", "thread", axis, problem.block) for axis in range(3))
        problem.blocks = tuple(problem._index("blockIdx", "block", axis, problem.grid) for axis in range(3))
        return problem

    def _state(self, reader: Statements, statements: Sequence[str]) -> None:
        """Add statements, about launches or about the elements of an array."""
        for statement in statements:
            formula = reader.truth(statement)
            arrays = self._of(formula)
            if len(arrays) > 1:
                text = f"{statement.strip()!r} is stated of the elements of two arrays, {' and '.join(arrays)}"
                raise ArgumentError(f"{self.name}: {text}; state one array's by themselves, such as '0 <= ids < n'")
            if arrays:
                self.contents.setdefault(arrays[0], []).append(statement)
            self._give(formula)

    def _give(self, formula: Formula) -> None:
        """Add a formula to the premises.

        A formula about the elements of an array is added with the condition that the array has any element.
        """
        some_elements = (at_least(self.lengths[name], 1) for name in self._of(formula))
        self.premises.append(implies(everything(some_elements), formula))

    def _of(self, formula: Formula) -> list[str]:
        """Return the names of the arrays whose elements a formula is about."""
        symbols = cone([formula])[0]
        return [name for name, symbol in self.elements.items() if symbol in symbols]

    def _narrow(self) -> None:
        """Narrow the bounds of symbols, in place, by the premises that are inequalities of one symbol alone."""
        whole = everything(self.premises)
        for condition in whole.items if isinstance(whole, All) else (whole,):
            if not isinstance(condition, Atom) or condition.is_equality or len(condition.value.symbols) != 1:
                continue
            (symbol,) = condition.value.symbols
            factor, rest = condition.value.terms.get((symbol,), 0), condition.value.terms.get((), 0)
            if (
                factor == 0
                or len(condition.value.terms) > 2
                or any(len(product) > 1 for product in condition.value.terms)
            ):
                continue
            if factor > 0:
                least = -(rest // factor)
                symbol.low = least if symbol.low is None else max(symbol.low, least)
            else:
                most = rest // -factor
                symbol.high = most if symbol.high is None else min(symbol.high, most)

    def _directives(self) -> None:
        """Add the kernel's launch bounds, without which no launch is possible."""
        for name, numbers in self.entry.directives.items():
            if name == "reqntid":
                sizes = (*numbers, 1, 1)[:3]
                self.premises += [at_least(value, size) for value, size in zip(self.block, sizes, strict=True)]
                self.premises += [at_least(size, value) for value, size in zip(self.block, sizes, strict=True)]
            elif name == "maxntid":
                self.premises.append(at_least(prod(numbers), self.block[0] * self.block[1] * self.block[2]))

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
                # The pointer of an absent or an empty array may be null.
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
        """Unite arguments that statements such as ``x is y`` declare to be one array; return the other statements.

        The second argument then stands for the first: its array is removed, and its names in `names` are changed.
        """
        left = []
        for statement in statements:
            match = _SAME.fullmatch(statement)
            if match is None:
                left.append(statement)
                continue
            first, second = match.groups()
            types = {(every.dtype, every.count) for every in self.parameters if every.name in (first, second)}
            are_arrays = {first, second} <= set(self.lengths) and first != second
            if not are_arrays or len(types) != 1 or self.same.keys() & {first, second}:
                raise ArgumentError(
                    f"{self.name}: {shortened(statement.strip())} names two things that are not arrays of one type"
                )
            (base,) = self._bases[second].symbols
            del self.arrays[base], self.lengths[second], self.pointers[second]
            # The second argument is now the first.
            for other in [second, *(name for name, same in self.same.items() if same == second)]:
                self.same[other] = first
                self._bases[other] = self._bases[first]
                names[f"len({other})"] = names[f"len({first})"]
                if self.elements.pop(other, None) is not None:
                    names[other] = names[first]
        return left

    def _extent(
        self, reader: Statements, label: str, extent: Extent, most: tuple[int, ...], statements: Sequence[str]
    ) -> tuple[Polynomial, ...]:
        if extent is None:
            # An axis in a statement is free, even if the kernel never reads it.
            stated = (
                axis
                for axis in _AXES
                if any(f"gridDim.{axis}" in statement.replace(" ", "") for statement in statements)
            )
            read: Iterable[str] = {*self._axes_read(), *stated} if label == "grid" else _AXES
            self.axes_of_1 += tuple(axis for axis in _AXES if axis not in read)
            symbols = [Symbol(f"{label}Dim.{axis}", 1, high) for axis, high in zip(_AXES, most, strict=True)]
            return tuple(polynomial(1 if symbol.name[-1] not in read else symbol) for symbol in symbols)
        parts = (
            [extent]
            if isinstance(extent, int | str)
            else listed(f"{self.name}: {label} is an extent, or several", extent)
        )
        if not 1 <= len(parts) <= 3:
            raise ArgumentError(f"{self.name}: {label} has one to three extents, got {shortened(extent)}")
        sizes = []
        for part, high in zip([*parts, 1, 1], most, strict=False):
            if isinstance(part, bool) or not isinstance(part, int | str | np.integer):
                raise ArgumentError(f"{self.name}: {label} has numbers or expressions, got {shortened(part)}")
            if not isinstance(part, str) and not 1 <= part <= high:
                raise ArgumentError(f"{self.name}: an extent of a {label} is from 1 to {high}, got {shortened(part)}")
            value = reader.number(str(part))
            if value.constant is not None and not 1 <= value.constant <= high:
                raise ArgumentError(f"{self.name}: an extent of a {label} is from 1 to {high}, got {part}")
            if value.constant is None:
                most_of_it = value.range[1]
                size_symbol = Symbol(f"{label}Dim", 1, high if most_of_it is None else max(1, min(high, most_of_it)))
                self.premises += [at_least(value, polynomial(size_symbol)), at_least(polynomial(size_symbol), value)]
                value = polynomial(size_symbol)
            sizes.append(value)
        return tuple(sizes)

    def _axes_read(self) -> set[str]:
        """Return the axes of the grid that the kernel reads. Along any other axis all blocks would do the same."""
        code = (instr for function in self.ptx.functions.values() for instr in function.code)
        names = (name.lstrip("%").partition(".") for instr in code for name in facts.sources(instr))
        return {axis for word, _, axis in names if word in ("ctaid", "nctaid")}

    def _index(self, name: str, varies: str, axis: int, extents: tuple[Polynomial, ...]) -> Polynomial:
        extent = extents[axis]
        if extent.constant == 1:
            return polynomial(0)
        high = extent.range[1]
        symbol = Symbol(f"{name}.{_AXES[axis]}", 0, None if high is None else high - 1, frozenset({varies}))
        symbol.definition = (at_least(extent - 1, polynomial(symbol)),)
        return polynomial(symbol)

    def _array(self, name: str, size: Polynomial, space: str, align: int) -> Polynomial:
        high = 1 << 20 if space == "shared" else _MOST_BYTES
        base = Symbol(f"&{name}", 1 if space == "global" else 0, high, is_base=True)
        self.arrays[base] = Array(name, base, size, space, align)
        return polynomial(base)

    # ── what the execution asks ──

    def special(self, name: str) -> Value:
        """Return the value of a special register such as ``%tid.x``.

        Registers other than thread and block indices and sizes are unknown.
        """
        word, _, axis = name.lstrip("%").partition(".")
        rows = {"tid": self.threads, "ntid": self.block, "ctaid": self.blocks, "nctaid": self.grid}
        if word in rows and axis in tuple(_AXES):
            return rows[word][_AXES.index(axis)]
        return Opaque(f"{name} is not followed")

    def base_of(self, name: str) -> Polynomial:
        """Return the address of the PTX variable `name`, as a symbol. The first call adds the variable to `arrays`.

        All ``extern`` variables in shared memory have one address.

        Raises
        ------
        Unsupported
            If no variable has this name, or it is not in global, shared, local or constant memory.
        """
        base = self._bases.get(f"variable {name}")
        if base is not None:
            return base
        variable = self.entry.variables.get(name) or self.ptx.variables.get(name)
        if variable is None or variable.space not in ("global", "shared", "local", "const"):
            raise Unsupported(f"the address of {name}")
        return self._variable(f"variable {name}", variable)

    def _variable(self, name: str, variable: program.Variable) -> Polynomial:
        if variable.space == "shared" and variable.extern:
            # All extern variables are the launch's dynamic shared memory.
            base = self._bases.get("dynamic shared memory")
            if base is None:
                variables = (*self.ptx.variables.values(), *self.entry.variables.values())
                align = max(declared.align for declared in variables if declared.space == "shared" and declared.extern)
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
        """Split a variable in a thread's local memory into separate arrays, and record their addresses.

        `base` is the address of the variable. An array begins at each offset whose address the kernel computes.
        """
        derived = {variable.name}
        starts = {0}
        for instr in self.entry.code:
            target, *operands = instr.operands or (None,)
            names = {getattr(operand, "name", "") for operand in operands}
            if isinstance(target, program.Register) and not derived.isdisjoint(names):
                if instr.opcode in ("mov", "cvta"):
                    derived.add(target.name)
                elif instr.opcode == "add":
                    starts |= {operand.value for operand in operands if isinstance(operand, program.Immediate)}
        inside = sorted(start for start in starts if 0 <= start < variable.size)
        for start, end in itertools.pairwise([*inside, variable.size]):
            shown, align = f"a thread's own array of {end - start} bytes", math.gcd(start, variable.align)
            self._parts_of[base + start] = self._array(shown, polynomial(end - start), "local", align)

    def part(self, address: Polynomial) -> Polynomial:
        """Return the symbol of the array that begins at an address in a thread's local memory.

        Any other address is returned unchanged.
        """
        return self._parts_of.get(address, address) if self._parts_of else address

    def element(self, address: Polynomial, size: int, numbers: Numbers) -> Polynomial | None:
        """Return the value of a read of `size` bytes from an array that has statements about its elements.

        The result is None for other arrays, and if `size` is not the size of an element.
        """
        (base, *others) = address.bases().symbols or (None,)
        name = next((array for array in self.contents if self.pointers[array] is base), None)
        if name is None or others or size != self.elements_bytes(name):
            return None
        return self.any_element(name, numbers)

    def any_element(self, name: str, numbers: Numbers) -> Polynomial:
        """Return a new symbol for an element of the array `name`, for which the statements about the elements hold.

        It differs between threads and iterations. If the array has no elements, nothing is known of the value.
        """
        element = numbers.unknown("", self.elements[name].low, self.elements[name].high)
        (symbol,) = element.symbols
        symbol.name = content_name(name)
        aliases = (name, *(other for other, same in self.same.items() if same == name))
        reader = Statements(self.name, {**self.names, **dict.fromkeys(aliases, element)})
        stated = [reader.truth(statement) for statement in self.contents[name]]
        some_elements = at_least(self.lengths[name], 1)
        symbol.definition = tuple(implies(some_elements, condition) for condition in (*stated, *reader.implied))
        return element

    def elements_bytes(self, name: str) -> int:
        """Return the bytes of one element of the array argument `name`."""
        return element_bytes(next(parameter for parameter in self.parameters if parameter.name == name))

    def parameter(self, name: str, offset: int, type_name: str) -> Value:
        """Return the value read as `type_name` at a byte offset in the kernel's parameter `name` of the PTX.

        Integers and pointers are exact. Parts of other parameters are unknown. A parameter that does not exist raises
        `Unsupported`.
        """
        place = next((at for at, declared in enumerate(self.entry.parameters) if declared.name == name), None)
        if place is None or place >= len(self.parameters):
            raise Unsupported(f"the parameter {name}")
        parameter = self.parameters[place]
        if offset == 0 and parameter.name in self.scalars:
            return polynomial(self.scalars[parameter.name])
        if offset == 0 and parameter.category == "pointer":
            return self._bases[parameter.name]
        key = name, offset, type_name
        if key not in self._parts:
            reason = f"it depends on a part of the parameter {parameter.name}, which is no integer and no pointer"
            if type_name in INTEGERS and parameter.category != "scalar":
                bits, signed = INTEGERS[type_name]
                self._parts[key] = polynomial(Symbol(parameter.name, *words.bounds(signed, bits), reason=reason))
            else:
                self._parts[key] = Opaque(f"it depends on the argument {parameter.name}")
        return self._parts[key]


def _limits(dtype: np.dtype) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def content_name(array: str) -> str:
    """Return the name of symbols for loaded elements of an array."""
    return f"{array}[]"


def element_bytes(parameter: BoundParameter) -> int:
    """Return the bytes of an element of a pointer parameter."""
    return max(1, parameter.dtype.itemsize * parameter.count) if parameter.dtype is not None else 1
