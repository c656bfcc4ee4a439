"""A kernel with the functions that it calls put in their places, and the variables of calls made registers."""

from __future__ import annotations

import re
from dataclasses import replace

from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.instructions.control import CALLS
from cudakit.emulator.isa.facts import facts_of, result_of, touches
from cudakit.emulator.machine.decode import DTYPES, STORAGE
from cudakit.emulator.ptx.program import (
    Address,
    Function,
    Group,
    Instruction,
    Operand,
    Program,
    Register,
    Symbol,
    Variable,
)

#: Instructions that a kernel may come to.
_MOST = 50_000
_COUNT = re.compile(r"v[248]$")


class Inlined:
    """A kernel without calls, but to what the system gives.

    Attributes
    ----------
    function : Function
    origins : dict of int to Function
        The function that an instruction was taken from, by its ``id``, where that is not the kernel.

    Raises
    ------
    Refusal
        For functions that call themselves, or are called through a pointer.
    """

    function: Function

    def __init__(self, program: Program, entry: Function) -> None:
        self._program = program
        self.origins: dict[int, Function] = {}
        self._calls = 0
        variables = {name: each for name, each in entry.variables.items() if each.space != "param"}
        self.function = Function(
            entry.name, entry.is_entry, entry.parameters, entry.returns, dict(entry.registers), variables
        )
        self.function.directives = entry.directives
        self._put(entry, "", {}, (entry.name,))

    def _put(self, function: Function, prefix: str, names: dict[str, str], path: tuple[str, ...]) -> None:
        """Append a function's code; `names` are what its parameters and results are called."""
        into = self.function
        if prefix:
            into.registers |= {prefix + name: kind for name, kind in function.registers.items()}
            for name, variable in function.variables.items():
                if variable.space not in ("param", "shared"):
                    into.variables[prefix + name] = replace(variable, name=prefix + name)
        renamer = _Renamer(function, prefix, names)
        into.branch_targets |= {
            prefix + name: tuple(prefix + label for label in labels) for name, labels in function.branch_targets.items()
        }
        starts: dict[int, list[str]] = {}
        for label, code in function.labels.items():
            starts.setdefault(code, []).append(prefix + label)
        for number, given in enumerate(function.code):
            for label in starts.get(number, ()):
                into.labels[label] = len(into.code)
            if len(into.code) > _MOST:
                raise Refusal("calls of functions that make it too large")
            made = renamer.instruction(given)
            if given.opcode == "call":
                self._call(made, path)
            elif given.opcode == "ret" and prefix:
                self._append(replace(made, opcode="bra", modifiers=(), operands=(Symbol(f"{prefix}end"),)), function)
            elif _is_variable(made, self._parameters()):
                for each in _moves(made, into):
                    self._append(each, function)
            else:
                self._append(made, function)
        for label in (*starts.get(len(function.code), ()), *([f"{prefix}end"] if prefix else [])):
            into.labels[label] = len(into.code)

    def _parameters(self) -> set[str]:
        return {variable.name for variable in self.function.parameters}

    def _append(self, given: Instruction, function: Function) -> None:
        self.function.code.append(given)
        if function.name != self.function.name:
            self.origins[id(given)] = function

    def _call(self, given: Instruction, path: tuple[str, ...]) -> None:
        operands = list(given.operands)
        results: tuple[str, ...] = ()
        if isinstance(operands[0], Group) and operands[0].kind == "arguments":
            results = tuple(item.name for item in operands.pop(0).items if isinstance(item, Symbol))  # type: ignore[union-attr]
        target = operands.pop(0)
        arguments: tuple[str, ...] = ()
        if operands and isinstance(operands[0], Group):
            arguments = tuple(item.name for item in operands[0].items if isinstance(item, Symbol))
        if not isinstance(target, Symbol):
            raise Refusal("a call through a pointer")
        callee = self._program.functions.get(target.name)
        if callee is None or callee.is_declaration:
            self._system(given, target.name, arguments, results)
            return
        if target.name in path:
            raise Refusal("a function that calls itself")
        if given.guard is not None:
            raise Refusal("a call under a guard")
        self._calls += 1
        names = dict(zip((v.name for v in callee.parameters), arguments, strict=True))
        names |= dict(zip((v.name for v in callee.returns), results, strict=True))
        self._put(callee, f"{target.name}#{self._calls} ", names, (*path, target.name))

    def _system(self, given: Instruction, name: str, arguments: tuple[str, ...], results: tuple[str, ...]) -> None:
        """A call to what the system gives, of registers."""
        if name not in CALLS:
            raise Refusal(f"a call to {name}")
        registers = self.function.registers
        sources = tuple(Register(_register(argument, 0)) for argument in arguments)
        if any(source.name not in registers for source in sources):
            raise Refusal(f"a call to {name} of other arguments")
        target = Register("_")
        if results:
            target = Register(_register(results[0], 0))
            registers.setdefault(target.name, "b64" if name not in ("vprintf",) else "b32")
        self.function.code.append(
            Instruction(
                "call", (name,), (Group("arguments", (target,)), *sources), given.guard, given.line, given.source
            )
        )


def _register(variable: str, offset: int) -> str:
    """The register that stands for a part of a variable of a call."""
    return f"{variable}+{offset}"


def _is_variable(given: Instruction, parameters: set[str]) -> bool:
    """Whether an instruction moves a value to or from a variable of a call."""
    if not touches(given) or "param" not in {m.partition("::")[0] for m in given.modifiers}:
        return False
    place = given.operands[facts_of(given).memory[0].address]
    return isinstance(place, Address) and isinstance(place.base, Symbol) and place.base.name not in parameters


def _moves(given: Instruction, into: Function) -> list[Instruction]:
    """The same by registers."""
    is_store = result_of(given) is None
    place, value = given.operands if is_store else given.operands[::-1]
    assert isinstance(place, Address)
    assert isinstance(place.base, Symbol)
    kind = next(modifier for modifier in reversed(given.modifiers) if modifier in DTYPES)
    if kind == "b128":
        raise Refusal("a call with values of 128 bits")
    size = DTYPES[kind].itemsize
    items = value.items if isinstance(value, Group) and value.kind == "vector" else (value,)
    found = []
    for number, item in enumerate(items):
        name = _register(place.base.name, place.base.offset + place.offset + number * size)
        if STORAGE[into.registers.setdefault(name, f"b{8 * size}")].itemsize != size:
            raise Refusal("a call whose values are taken in other parts than they are given in")
        register = Register(name)
        operands = (register, item) if is_store else (item, register)
        found.append(Instruction("mov", (f"b{8 * size}",), operands, given.guard, given.line, given.source))
    return found


class _Renamer:
    """Gives what a function names its names in the kernel."""

    def __init__(self, function: Function, prefix: str, names: dict[str, str]) -> None:
        self._function, self._prefix, self._names = function, prefix, names
        #: What a function declares for each of its calls: variables of calls, and those in local memory. A shared
        #: variable is one for all calls.
        own = {variable.name for variable in function.variables.values() if variable.space != "shared"}
        self._own = own | function.labels.keys() | function.branch_targets.keys()

    def instruction(self, given: Instruction) -> Instruction:
        if not self._prefix:
            return given
        guard = given.guard
        if guard is not None:
            guard = (Register(self._prefix + guard[0].name), guard[1])
        operands = tuple(self._operand(operand) for operand in given.operands)
        return Instruction(given.opcode, given.modifiers, operands, guard, given.line, given.source)

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            known = operand.name in self._function.registers
            return Register(self._prefix + operand.name) if known else operand
        if isinstance(operand, Symbol):
            return replace(operand, name=self._named(operand.name))
        if isinstance(operand, Address):
            base = self._operand(operand.base)
            assert not isinstance(base, Address | Group)
            coordinates = tuple(self._operand(each) for each in operand.coordinates)
            return Address(base, operand.offset, coordinates)
        if isinstance(operand, Group):
            return Group(operand.kind, tuple(self._operand(each) for each in operand.items))
        return operand

    def _named(self, name: str) -> str:
        return self._names.get(name) or (self._prefix + name if name in self._own else name)


__all__ = ["Inlined", "Variable"]
