"""Kernels as the compiled back-end takes them: calls inlined, and registers split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.instructions.control import CALLS
from cudakit.emulator.isa.facts import facts_of, result_of, sources, targets, touches
from cudakit.emulator.isa.flow import Flow
from cudakit.emulator.machine.decode import DTYPES, STORAGE, Context, decode
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.program import (
    Address,
    Function,
    Group,
    Instruction,
    Operand,
    Program,
    Register,
    Symbol,
)

# ── calls ──

#: Limit of instructions in an inlined kernel.
_MOST = 50_000


class Inlined:
    """A kernel with all calls inlined, except calls of system functions.

    Attributes
    ----------
    function : Function
        The inlined kernel.
    origins : dict of int to Function
        Function that an instruction was taken from, by the instruction's ``id``, if it is not the kernel.

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
        variables = {name: variable for name, variable in entry.variables.items() if variable.space != "param"}
        self.function = Function(
            entry.name, entry.is_entry, entry.parameters, entry.returns, dict(entry.registers), variables
        )
        self.function.directives = entry.directives
        self._put(entry, "", {}, (entry.name,))

    def _put(self, function: Function, prefix: str, names: dict[str, str], path: tuple[str, ...]) -> None:
        """Append a function's code to the kernel, with `prefix` before its names; empty for the kernel itself.

        `names` has the variables that stand for its parameters and results, and `path` the functions around the call.

        Raises
        ------
        Refusal
            If the kernel becomes too long.
        """
        into = self.function
        if prefix:
            into.registers |= {prefix + name: type_name for name, type_name in function.registers.items()}
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
        for number, instr in enumerate(function.code):
            for label in starts.get(number, ()):
                into.labels[label] = len(into.code)
            if len(into.code) > _MOST:
                raise Refusal("calls of functions that make it too large")
            renamed = renamer.instruction(instr)
            if instr.opcode == "call":
                self._call(renamed, path)
            elif instr.opcode == "ret" and prefix:
                self._append(replace(renamed, opcode="bra", modifiers=(), operands=(Symbol(f"{prefix}end"),)), function)
            elif _is_variable(renamed, self._parameters()):
                for move in _moves(renamed, into):
                    self._append(move, function)
            else:
                self._append(renamed, function)
        for label in (*starts.get(len(function.code), ()), *([f"{prefix}end"] if prefix else [])):
            into.labels[label] = len(into.code)

    def _parameters(self) -> set[str]:
        """Return the names of the kernel's parameters."""
        return {variable.name for variable in self.function.parameters}

    def _append(self, instr: Instruction, function: Function) -> None:
        """Append an instruction, and note the function that it is from."""
        self.function.code.append(instr)
        if function.name != self.function.name:
            self.origins[id(instr)] = function

    def _call(self, instr: Instruction, path: tuple[str, ...]) -> None:
        """Inline a call, or append a call of a system function; `path` has the names of the functions around it."""
        operands = list(instr.operands)
        results: tuple[str, ...] = ()
        if isinstance(operands[0], Group) and operands[0].notation == "arguments":
            results = tuple(item.name for item in operands.pop(0).items if isinstance(item, Symbol))  # type: ignore[union-attr]
        target = operands.pop(0)
        arguments: tuple[str, ...] = ()
        if operands and isinstance(operands[0], Group):
            arguments = tuple(item.name for item in operands[0].items if isinstance(item, Symbol))
        if not isinstance(target, Symbol):
            raise Refusal("a call through a pointer")
        callee = self._program.functions.get(target.name)
        if callee is None or callee.is_declaration:
            self._system(instr, target.name, arguments, results)
            return
        if target.name in path:
            raise Refusal("a function that calls itself")
        if instr.guard is not None:
            raise Refusal("a call under a guard")
        self._calls += 1
        names = dict(zip((v.name for v in callee.parameters), arguments, strict=True))
        names |= dict(zip((v.name for v in callee.returns), results, strict=True))
        self._put(callee, f"{target.name}#{self._calls} ", names, (*path, target.name))

    def _system(self, instr: Instruction, name: str, arguments: tuple[str, ...], results: tuple[str, ...]) -> None:
        """Append a call of a system function, with registers as arguments."""
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
                "call", (name,), (Group("arguments", (target,)), *sources), instr.guard, instr.line, instr.source
            )
        )


def _register(variable: str, offset: int) -> str:
    """Return the name of the register that stands for a part of a variable, `offset` bytes behind its begin.

    The variable passes arguments or results of a call.
    """
    return f"{variable}+{offset}"


def _is_variable(instr: Instruction, parameters: set[str]) -> bool:
    """Return whether an instruction loads or stores a variable that passes arguments or results of a call.

    `parameters` has the names of the kernel's own parameters, which do not count.
    """
    if not touches(instr) or space_of(instr) != "param":
        return False
    place = instr.operands[facts_of(instr).memory[0].address]
    return isinstance(place, Address) and isinstance(place.base, Symbol) and place.base.name not in parameters


def _moves(instr: Instruction, into: Function) -> list[Instruction]:
    """Return the moves between registers that replace a load or store of a variable that passes call arguments.

    Registers that stand for parts of the variable are added to the kernel `into`.
    """
    is_store = result_of(instr) is None
    place, value = instr.operands if is_store else instr.operands[::-1]
    assert isinstance(place, Address)
    assert isinstance(place.base, Symbol)
    type_name = type_of(instr)
    if type_name == "b128":
        raise Refusal("a call with values of 128 bits")
    size = DTYPES[type_name].itemsize
    moves = []
    for number, item in enumerate(parts(value)):
        name = _register(place.base.name, place.base.offset + place.offset + number * size)
        if STORAGE[into.registers.setdefault(name, f"b{8 * size}")].itemsize != size:
            raise Refusal("a call whose values are taken in other parts than they are given in")
        register = Register(name)
        operands = (register, item) if is_store else (item, register)
        moves.append(Instruction("mov", (f"b{8 * size}",), operands, instr.guard, instr.line, instr.source))
    return moves


class _Renamer:
    """Renames a function's registers, variables and labels for the kernel."""

    def __init__(self, function: Function, prefix: str, names: dict[str, str]) -> None:
        self._function, self._prefix, self._names = function, prefix, names
        #: Names that a function declares anew for each of its calls: variables of calls and in local memory. A shared
        #: variable is the same in all calls.
        own = {variable.name for variable in function.variables.values() if variable.space != "shared"}
        self._own = own | function.labels.keys() | function.branch_targets.keys()

    def instruction(self, instr: Instruction) -> Instruction:
        """Return an instruction with renamed operands and guard."""
        if not self._prefix:
            return instr
        guard = instr.guard
        if guard is not None:
            guard = (Register(self._prefix + guard[0].name), guard[1])
        operands = tuple(_mapped(operand, self._renamed) for operand in instr.operands)
        return Instruction(instr.opcode, instr.modifiers, operands, guard, instr.line, instr.source)

    def _renamed(self, operand: Register | Symbol) -> Register | Symbol:
        """Return a register or symbol with its name in the kernel."""
        name = operand.name
        if isinstance(operand, Register):
            return Register(self._prefix + name) if name in self._function.registers else operand
        return replace(operand, name=self._names.get(name) or (self._prefix + name if name in self._own else name))


def _mapped(operand: Operand, renamed: Callable[[Register | Symbol], Register | Symbol]) -> Operand:
    """Return an operand with its registers and symbols renamed."""
    if isinstance(operand, Register | Symbol):
        return renamed(operand)
    if isinstance(operand, Address):
        base = _mapped(operand.base, renamed)
        assert not isinstance(base, Address | Group)
        return Address(base, operand.offset, tuple(_mapped(item, renamed) for item in operand.coordinates))
    if isinstance(operand, Group):
        return Group(operand.notation, tuple(_mapped(item, renamed) for item in operand.items))
    return operand


# ── split registers: a value that one instruction writes and only its readers read gets a name of its own ──
# A compiler uses one register for a loop's variable and for its first value. Without a split, a result computed from
# the first value before the loop would have the shape of any value that the loop may leave there.


def split_registers(function: Function, origins: dict[int, Function]) -> None:
    """Split registers that several instructions write: each written value gets a register of its own where possible.

    Reads of only this value use the new register. If other reads exist, the value is also copied to the old register.
    The renamed instructions keep their entries in `origins`.
    """
    written: dict[str, list[int]] = defaultdict(list)
    guarded = set[str]()
    for number, instr in enumerate(function.code):
        for name in targets(instr):
            written[name].append(number)
            if instr.guard is not None:
                guarded.add(name)
    several = {
        name: numbers
        for name, numbers in written.items()
        if len(numbers) == len(set(numbers)) > 1 and name not in guarded and name in function.registers
    }
    if not several:
        return
    reading = _reached(function, several)
    names: dict[tuple[int, str], str] = {}
    copied: dict[int, list[str]] = defaultdict(list)
    for name, numbers in several.items():
        for number in numbers:
            uses = [use for use, writers in reading[name].items() if number in writers]
            exclusive_uses = [use for use in uses if reading[name][use] == {number}]
            if not exclusive_uses:
                continue
            new = f"{name}.{number}"
            function.registers[new] = function.registers[name]
            names[-1 - number, name] = new
            names.update({(use, name): new for use in exclusive_uses})
            if len(exclusive_uses) < len(uses):
                copied[number].append(name)
    _rewrite(function, origins, names, copied)


def _reached(function: Function, several: dict[str, list[int]]) -> dict[str, dict[int, set[int]]]:
    """Return, by register and reading instruction, the instructions that may have written the value; -1: none has.

    Instructions are indices in the code. `several` has the writing instructions of each register to look at.
    """
    flow = Flow(function)
    bit = {(name, number): 1 << at for at, (name, number) in enumerate(
        (name, number) for name, numbers in several.items() for number in (-1, *numbers))}  # fmt: skip
    bits_of_name = {name: sum(bit[name, number] for number in (-1, *numbers)) for name, numbers in several.items()}
    writes_at: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for name, numbers in several.items():
        for number in numbers:
            writes_at[number].append((name, bit[name, number]))

    def through(number: int, reaching: int) -> int:
        block = flow.blocks[number]
        for at in range(block.first, block.last):
            for name, bit_of_write in writes_at.get(at, ()):
                reaching = reaching & ~bits_of_name[name] | bit_of_write
        return reaching

    into = dict.fromkeys(flow.order, 0)
    into[0] = sum(bit[name, -1] for name in several)
    changed = True
    while changed:
        changed = False
        for number in flow.order:
            out = through(number, into[number])
            for after in flow.blocks[number].successors:
                if after != flow.end and out & ~into[after]:
                    into[after] |= out
                    changed = True
    result: dict[str, dict[int, set[int]]] = {name: {} for name in several}
    for number in flow.order:
        reaching = into[number]
        for at in range(flow.blocks[number].first, flow.blocks[number].last):
            for name in sources(function.code[at]):
                if name in several:
                    result[name][at] = {writer for writer in (-1, *several[name]) if reaching & bit[name, writer]}
            for name, bit_of_write in writes_at.get(at, ()):
                reaching = reaching & ~bits_of_name[name] | bit_of_write
    return result


def _rewrite(
    function: Function, origins: dict[int, Function], names: dict[tuple[int, str], str], copied: dict[int, list[str]]
) -> None:
    """Rename registers in the code, and insert copies to registers that keep their old name.

    `names` has new names, by register and an instruction's index n: n for what it reads, -1 - n for what it writes.
    `copied` has, by index, the registers to copy to behind the instruction.
    """
    code, moved = list[Instruction](), list[int]()
    for number, instr in enumerate(function.code):
        moved.append(len(code))
        renamed = _renamed(instr, number, names)
        if renamed is not instr and id(instr) in origins:
            origins[id(renamed)] = origins[id(instr)]
        code.append(renamed)
        for name in copied.get(number, ()):
            type_name = function.registers[name]
            type_name = type_name if type_name == "pred" else f"b{8 * STORAGE[type_name].itemsize}"
            operands = (Register(name), Register(names[-1 - number, name]))
            code.append(Instruction("mov", (type_name,), operands, None, instr.line, instr.source))
            if id(instr) in origins:
                origins[id(code[-1])] = origins[id(instr)]
    moved.append(len(code))
    function.labels = {label: moved[number] for label, number in function.labels.items()}
    function.code[:] = code


def _renamed(instr: Instruction, number: int, names: dict[tuple[int, str], str]) -> Instruction:
    """Return the instruction at index `number` with its registers renamed by `names`, as in `_rewrite`.

    The same object is returned if no name changes.
    """

    def name(use: int, operand: Register | Symbol) -> Register | Symbol:
        renamed = names.get((use, operand.name))
        return Register(renamed) if renamed and isinstance(operand, Register) else operand

    uses = [number] * len(instr.operands)
    if targets(instr):
        uses[0] = -1 - number
    operands = tuple(_mapped(operand, partial(name, use)) for use, operand in zip(uses, instr.operands, strict=True))
    guard = instr.guard and (name(number, instr.guard[0]), instr.guard[1])
    if operands == instr.operands and guard == instr.guard:
        return instr
    return replace(instr, operands=operands, guard=guard)  # type: ignore[arg-type]


class Source:
    """A kernel of a program, whose calls are inlined at the first use of its instructions.

    Parameters
    ----------
    module : Module
        Module of the program.
    name : str
        Name of the kernel in the program.
    """

    def __init__(self, module: Module, name: str) -> None:
        # The module itself is not kept, since it keeps the code that is compiled from it.
        self._program, self._symbols = module.program, module.symbols
        self._offsets = module.shared(name).offsets
        self._name = name

    @property
    def identity(self) -> tuple[str, ...]:
        """Digest of the PTX, name of the kernel, and offsets of its shared variables."""
        return self._program.digest, self._name, *(f"{name} {at}" for name, at in sorted(self._offsets.items()))

    @cached_property
    def _inlined(self) -> Inlined:
        inlined = Inlined(self._program, self._program.functions[self._name])
        context = Context(self._symbols, inlined.function, self._offsets)
        # A form that the interpreter lacks is refused: the interpreter raises the error when it runs the instruction.
        for instr in inlined.function.code:
            if decode(instr, context).missing:
                raise Refusal(f"instruction {instr}")
        split_registers(inlined.function, inlined.origins)
        return inlined

    @cached_property
    def context(self) -> Context:
        """Instructions and registers of the inlined kernel, and the places of its variables.

        Raises
        ------
        Refusal
        """
        return Context(self._symbols, self._inlined.function, self._offsets)

    def instruction(self, number: int) -> tuple[Instruction, Function]:
        """Return an instruction by its number, and the function that it was taken from."""
        instr = self._inlined.function.code[number]
        return instr, self._inlined.origins.get(id(instr), self._program.functions[self._name])
