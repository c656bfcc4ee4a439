"""Which functions of a program a kernel may come to, by their names and through pointers."""

from __future__ import annotations

from collections.abc import Iterator

from cudakit.emulator.ptx.program import Function, Pointer, Program, Register, Symbol, symbols_in


def reached(program: Program, function: Function) -> list[Function]:
    """The function and the device functions that it may come to.

    A function counts where code calls it by its name. Where code calls through a pointer, or takes a function's
    address, every function counts whose address the program takes. ptxas counts the same ones.
    """
    reached, open_ = {function.name: function}, [function]
    taken: set[str] | None = None
    while open_:
        code = open_.pop()
        callees = _callees(code)
        if taken is None and ("" in callees or _functions(program, _addresses(program, code))):
            taken = _taken(program)
            callees += sorted(taken)
        for name in callees:
            callee = program.functions.get(name)
            if callee is not None and not callee.is_entry and callee.name not in reached:
                reached[callee.name] = callee
                open_.append(callee)
    return list(reached.values())


def names_in(function: Function) -> Iterator[str]:
    """The names of variables, functions and labels in a function's code."""
    for given in function.code:
        for operand in given.operands:
            for symbol in symbols_in(operand):
                yield symbol.name


def recurses(program: Program, entry: Function) -> bool:
    """Whether a function that `entry` reaches may call itself; one called through a pointer may."""
    open_, closed = [(entry.name, iter(_callees(entry)))], set[str]()
    path = {entry.name}
    while open_:
        name, callees = open_[-1]
        callee = next(callees, None)
        if callee is None:
            open_.pop()
            path.discard(name)
            closed.add(name)
        elif callee == "" or callee in path:
            return True
        elif callee not in closed and callee in program.functions:
            path.add(callee)
            open_.append((callee, iter(_callees(program.functions[callee]))))
    return False


def _callees(function: Function) -> list[str]:
    """Functions that `function` calls by name; an empty name where it calls through a pointer."""
    found = []
    for given in function.code:
        if given.opcode == "call":
            # Results in brackets may stand before the function.
            target = next((item for item in given.operands[:2] if isinstance(item, Symbol | Register)), None)
            found.append(target.name if isinstance(target, Symbol) else "")
    return found


def _taken(program: Program) -> set[str]:
    """Names of the device functions whose address the program takes, in code or in a variable's initialiser."""
    names = {name for variable in program.variables for name in _initialiser(program, variable)}
    for function in program.functions.values():
        names |= _addresses(program, function)
    return _functions(program, names)


def _functions(program: Program, names: set[str]) -> set[str]:
    return {name for name in names if name in program.functions and not program.functions[name].is_entry}


def _addresses(program: Program, function: Function) -> set[str]:
    """Names whose address a function takes: in its code, or in what the variables that its code names begin with."""
    # Of a function that is called by its name no address is taken.
    operands = [operand for given in function.code if given.opcode != "call" for operand in given.operands]
    open_ = [symbol.name for operand in operands for symbol in symbols_in(operand)]
    found = set[str]()
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += _initialiser(program, name)
    return found


def _initialiser(program: Program, variable: str) -> list[str]:
    """Names of the variables and functions whose addresses a variable begins with."""
    held = program.variables.get(variable)
    return [] if held is None else [item.symbol.name for _, item in held.data if isinstance(item, Pointer)]
