"""Words of the NumPy interpreter: a meaning of `isa.meanings` is evaluated once, and becomes one function of arrays.

This function makes the step of an instruction that only computes each lane's result from the same lane's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import methodcaller
from typing import Any, Final

import numpy as np

from cudakit.emulator.instructions import rounding
from cudakit.emulator.instructions.rounding import canonical, flush, nan_from
from cudakit.emulator.isa import meanings  # noqa: F401 (fills the table)
from cudakit.emulator.isa.words import BITS, MEANINGS, WORD_TYPES, Form, Meaning, Word, bound, results_of, source_type
from cudakit.emulator.machine.decode import CARRY, DTYPES, INSTRUCTIONS, Context, Step, constant_of
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand
from cudakit.streams.process import make_function


def elementwise(
    instr: Instruction, context: Context, type_name: str, function: Callable[..., Any], out: str = ""
) -> Step:
    """Make a step that writes ``function(*sources)``, all of one type, to the first operand (of type `out`)."""
    target, *sources = instr.operands
    return compute(
        context, function, [(target, out or type_name)], zip(sources, [type_name] * len(sources), strict=True)
    )


#: Up to this many lanes, selecting lanes is as fast as computing for all.
_FEW = 256
#: Lanes in a piece: their float64 intermediates stay in a core's cache and below malloc's threshold for mmap.
PIECE = 16_384


def in_pieces(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of arrays with many NumPy operations so that it runs on `PIECE` lanes at a time.

    The result is the same, several times faster.
    """

    def pieces(*sources: Any) -> Any:
        count = max(np.size(source) for source in sources)
        if count <= PIECE:
            return function(*sources)
        result: Any = None
        for start in range(0, count, PIECE):
            part = slice(start, start + PIECE)
            values = function(*(source[part] if np.size(source) > 1 else source for source in sources))
            if result is None:
                result = np.empty(count, values.dtype)
            result[part] = values
        return result

    return pieces


def compute(
    context: Context,
    function: Callable[..., Any],
    targets: Sequence[tuple[Operand, str]],
    sources: Iterable[tuple[Operand, str]],
) -> Step:
    """Make a step that writes ``function(*sources)`` to a target, or each of its results to a target.

    Each source and target has a type of its own. A source with the same value in all lanes may be read as one element.
    `function` returns a source, or a new array.
    """
    writes = [context.write(target, type_name, adopts=len(targets) == 1) for target, type_name in targets]
    sources = list(sources)
    reads = [context.read(source, type_, compact=True) for source, type_ in sources]
    write = writes[0]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where = chosen = index
        if index is not None and index.size > _FEW:
            # Selecting lanes costs more than computing for a few too many. Results of exited lanes are not seen.
            if index.size == machine.alive:
                where = chosen = None
            elif 4 * index.size > machine.lanes:
                where, chosen = machine.mask(index), None
        results = function(*[read(frame, chosen, machine) for read in reads])
        if len(writes) == 1:
            write(frame, where, results)
            return
        for to, values in zip(writes, results, strict=True):
            to(frame, where, values)

    if all(operand is not CARRY for operand, _ in (*targets, *sources)):
        context.elementwise.add(step)
    return step


class Node:
    """An operation on arguments, constants and other operations."""

    __slots__ = ("arguments", "function", "work")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], work: int) -> None:
        self.function, self.arguments, self.work = function, arguments, work


class ArrayWord(Word):
    """A word that a function of arrays will compute: an argument by its name, a constant, or an operation."""

    __slots__ = ("value",)

    def __init__(self, value: str | Node | np.generic, type_name: str) -> None:
        super().__init__(type_name)
        self.value = value

    @property
    def constant_value(self) -> int | None:
        return int(self.value) if isinstance(self.value, np.integer | np.bool_) else None

    def constant(self, value: int, type_name: str) -> ArrayWord:
        return ArrayWord(constant(value, type_name), type_name)

    def do(self, name: str, type_name: str, *others: Any) -> ArrayWord:
        if name == "choose" and self.constant_value is not None:
            chosen: ArrayWord = others[0 if self.constant_value else 1]
            return chosen
        if name == "view" and DTYPES[type_name] == DTYPES[self.type_name]:
            return ArrayWord(self.value, type_name)
        if name in ("shl", "shr") and others[0].type_name != type_name:
            by = others[0]
            others = (
                by.view(type_name)
                if by.bits == self.bits
                else (by.min(self.bits) if by.bits > self.bits else by).to(type_name),
            )
        words = [other.value for other in others if isinstance(other, ArrayWord)]
        numbers = tuple(other for other in others if not isinstance(other, Word))
        arguments = (self.value, *words)
        function = _function(name, self.type_name, type_name, numbers)
        work = (4 if name in _CHAINS else 1) * (
            3 if name in ("clz", "fma") or 64 in (self.bits, BITS[type_name]) else 1
        )
        if all(isinstance(argument, np.generic) for argument in arguments):
            with np.errstate(all="ignore"):
                return ArrayWord(DTYPES[type_name].type(function(*arguments)), type_name)
        return ArrayWord(Node(function, arguments, work), type_name)


@cache
def constant(value: int, type_name: str) -> Any:
    """Return a NumPy scalar of a PTX type from its bits."""
    dtype = DTYPES[type_name]
    if dtype.kind == "b":
        return np.bool_(value)
    return np.array(value & (1 << 8 * dtype.itemsize) - 1, f"u{dtype.itemsize}").view(dtype)[()]


def compiled(results: Sequence[ArrayWord], names: Sequence[str]) -> tuple[Callable[..., Any], int]:
    """Compile results to a function of the named arguments, and estimate its work; several results give a tuple.

    The work is the number of operations. An operation of 64 bits counts as three, since its intermediates leave a
    core's cache first.
    """
    order: list[Node] = []
    uses: dict[Node, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Node):
            uses[value] = uses.get(value, 0) + 1
            if uses[value] == 1:
                for argument in value.arguments:
                    visit(argument)
                order.append(value)

    for result in results:
        visit(result.value)
    root = results[0].value
    if len(results) == 1 and isinstance(root, Node) and root.arguments == tuple(names):
        return root.function, root.work
    scope: dict[str, Any] = {}
    texts: dict[Node, str] = {}
    lines = []

    def named(value: Any) -> str:
        name = f"c{len(scope)}"
        scope[name] = value
        return name

    def text_of(value: Any) -> str:
        return texts[value] if isinstance(value, Node) else value if isinstance(value, str) else named(value)

    for number, node in enumerate(order):
        text = f"{named(node.function)}({', '.join(map(text_of, node.arguments))})"
        if uses[node] > 1:
            lines.append(f"    v{number} = {text}\n")
            text = f"v{number}"
        texts[node] = text
    result_text = ", ".join(text_of(result.value) for result in results)
    text = f"def function({', '.join(names)}):\n{''.join(lines)}    return {result_text}\n"
    return make_function(text, "what an instruction means", scope), sum(node.work for node in order)


# ── operations ──

_SAME: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert, "neg": np.negative, "abs": np.abs, "min": np.minimum, "max": np.maximum,
    "shl": np.left_shift, "shr": np.right_shift, "choose": np.where,
    "rint": np.rint, "trunc": np.trunc, "floor": np.floor, "ceil": np.ceil,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip

#: Operations that take several NumPy operations.
_CHAINS: Final = frozenset({"clz", "brev", "fshl", "fshr", "mulhi", "div", "rem", "fma", "directed"})


@cache
def _function(name: str, from_type: str, to_type: str, numbers: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a function of arrays for the operation `name`, from words of one type to another."""
    return _SAME.get(name) or _MAKERS[name](from_type, to_type, *numbers)


def _converted(from_type: str, to_type: str) -> Callable[[Any], Any]:
    """Return a conversion from one type to another."""
    if from_type == "f16":
        return _floats().take if to_type == "f32" else lambda values: _floats().take(values).astype(np.float64)
    if to_type == "f16":
        return lambda values: values.astype(np.float16).view(np.uint16)
    if from_type[0] == "f" and to_type[0] in "us":
        return _saturated(DTYPES[to_type])
    return methodcaller("astype", DTYPES[to_type])


def _saturated(dtype: np.dtype) -> Callable[[Any], Any]:
    """Return a conversion of floats to integers: truncated, clamped to the range, NaN to 0."""
    bounds = np.iinfo(dtype)
    # The largest float64 that is not above the largest integer.
    low, high = float(bounds.min), float(bounds.max) if bounds.bits < 64 else float(np.nextafter(float(bounds.max), 0))

    def convert(values: Any) -> Any:
        values = np.asarray(values, np.float64)
        result = np.clip(values, low, high).astype(dtype)
        if bounds.bits == 64:
            result = np.where(values > high, dtype.type(bounds.max), result)
        nan = np.isnan(values)
        return np.where(nan, dtype.type(0), result) if nan.any() else result

    return convert


@cache
def _floats() -> np.ndarray:
    """Return the float32 of every float16 pattern: a lookup takes two thirds of the time of NumPy's conversion."""
    with np.errstate(all="ignore"):  # some processors report a signalling NaN
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _split(from_type: str, to_type: str, count: int) -> Callable[[Any], Any]:
    """Return a function that splits each word into `count` smaller ones along a new last axis, lowest first."""
    return lambda values: np.ascontiguousarray(values)[..., None].view(DTYPES[to_type])


def _join(from_type: str, to_type: str, count: int) -> Callable[[Any], Any]:
    """Return a function that joins `count` words along the last axis to one larger word, and removes the axis."""
    return lambda values: np.ascontiguousarray(values).view(DTYPES[to_type])[..., 0]


def _pick(from_type: str, to_type: str, places: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """Return a function that picks pieces from two split words, numbered on from the first word to the second.

    Pieces are along the last axis. `places` has the numbers of the picked pieces, in order.
    """
    chosen = list(places)
    return lambda a, b: np.concatenate(np.broadcast_arrays(a, b), axis=-1)[..., chosen]


def leading_zeros(values: Any) -> Any:
    """Count the zero bits above the highest one of unsigned integers."""
    values = np.asarray(values)
    bits = 8 * values.itemsize
    for by in (1, 2, 4, 8, 16, 32):
        if by < bits:
            values = values | values >> values.dtype.type(by)
    return np.uint32(bits) - np.bitwise_count(values)


def _reverse(from_type: str, to_type: str) -> Callable[[Any], Any]:
    """Return a function that reverses the bits of a word."""
    type_, width = DTYPES[from_type].type, (1 << 8 * DTYPES[from_type].itemsize) - 1
    masks = [(1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)]
    steps = [(type_(by), type_(mask & width)) for by, mask in masks]

    def reverse(values: Any) -> Any:
        values = np.asarray(values).byteswap()
        for by, mask in steps:
            values = (values >> by & mask) | (values & mask) << by
        return values

    return reverse


def _funnel(from_type: str, to_type: str, side: str) -> Callable[[Any, Any, Any], Any]:
    """Return a function that shifts the 64 bits of (high, low) and returns 32 bits of the result.

    Side ``l`` shifts left and returns the upper half, any other side shifts right and returns the lower half. Only the
    lowest five bits of the count are used.
    """
    left, half = side == "l", np.uint64(32)

    def funnel(high: Any, low: Any, by: Any) -> Any:
        whole = np.asarray(high).astype(np.uint64) << half | low
        by = by & np.uint32(31)
        return ((whole << by) >> half if left else whole >> by).astype(np.uint32)

    return funnel


def high_product(a: Any, b: Any) -> Any:
    """Return the upper half of the product of two integers."""
    a, b = np.asarray(a), np.asarray(b)
    bits = 8 * a.dtype.itemsize
    wide = np.dtype(f"{a.dtype.kind}{bits // 4}" if bits < 64 else object)
    return np.asarray(a.astype(wide) * b.astype(wide) >> (wide.type(bits) if bits < 64 else bits)).astype(a.dtype)


def _magnitude(values: Any) -> Any:
    """Return the absolute values as unsigned integers."""
    values = np.asarray(values)
    return np.abs(values).view(f"u{values.dtype.itemsize}") if values.dtype.kind == "i" else values


def quotient(a: Any, b: Any) -> Any:
    """``a / b`` towards zero."""
    result = (_magnitude(a) // _magnitude(b)).view(a.dtype)
    return np.where((a < 0) != (b < 0), np.negative(result), result) if a.dtype.kind == "i" else result


def remainder(a: Any, b: Any) -> Any:
    """``a - b · (a / b)``, of the sign of a."""
    result = (_magnitude(a) % _magnitude(b)).view(a.dtype)
    return np.where(a < 0, np.negative(result), result) if a.dtype.kind == "i" else result


def _directed(from_type: str, to_type: str, opcode: str, mode: str) -> Callable[..., Any]:
    """Return a function for a float64 operation, by its opcode, that rounds in `mode`."""
    function = _DIRECTED[opcode]
    if opcode == "sub":
        return lambda a, b: function(a, np.negative(b), mode)
    return partial(function, mode=mode)


#: float64 in every direction of rounding.
_DIRECTED: Final[dict[str, Callable[..., Any]]] = {
    "add": rounding.add_f64, "sub": rounding.add_f64, "mul": rounding.multiply_f64, "div": rounding.divide_f64,
    "fma": rounding.fma_f64, "mad": rounding.fma_f64, "sqrt": rounding.sqrt_f64,
}  # fmt: skip

_MAKERS: Final[dict[str, Callable[..., Callable[..., Any]]]] = {
    "to": _converted,
    "view": lambda from_type, to_type: methodcaller("view", DTYPES[to_type]),
    "split": _split,
    "join": _join,
    "part": lambda from_type, to_type, number, count: lambda values: values[..., number],
    "pick": _pick,
    "repeat": lambda from_type, to_type, count: lambda values: np.asarray(values)[..., None],
    "clz": lambda from_type, to_type: leading_zeros,
    "popc": lambda from_type, to_type: lambda values: np.bitwise_count(values).astype(np.uint32),
    "brev": _reverse,
    "fshl": partial(_funnel, side="l"),
    "fshr": partial(_funnel, side="r"),
    "mulhi": lambda from_type, to_type: high_product,
    "div": lambda from_type, to_type: np.divide if from_type[0] == "f" else quotient,
    "sqrt": lambda from_type, to_type: np.sqrt,
    "fma": lambda from_type, to_type: partial(rounding.fma_f64 if from_type == "f64" else rounding.fma_f32, mode="rn"),
    "directed": _directed,
    "nan_from": lambda from_type, to_type: nan_from,
    "rem": lambda from_type, to_type: remainder,
    "flush": lambda from_type, to_type: flush,
    "canonical": lambda from_type, to_type: canonical,
}


# ── steps of meanings ──

#: Work from which a chain of operations runs in pieces, so that it stays in the cache.
_LONG = 9


@cache
def _arrays_of(
    meaning: Meaning, form: Form, constants: tuple[int | None, ...], count: int
) -> tuple[Callable[..., Any], list[str]]:
    """Return a meaning as a function of arrays with `count` results, and the results' types.

    `constants` has the values of operands that are constant, None for others.
    """
    words: list[Any] = []
    names: list[str] = []
    for source, value in zip(meaning.sources, constants, strict=False):
        type_name = WORD_TYPES.get(source_type(form, source), "")
        if source == "int":
            words.append(value)
        elif value is not None:
            words.append(ArrayWord(constant(value, type_name), type_name))
        else:
            names.append(f"a{len(names)}")
            words.append(ArrayWord(names[-1], type_name))
    answer = meaning.function(form, *words)
    results = results_of(answer, count)
    function, work = compiled(results, names)
    if work >= _LONG and len(results) == 1:
        function = in_pieces(function)
    return function, [result.type_name for result in results]


def _constant_operand(source: str, operand: Operand) -> int | None:
    """Return the value of a constant operand, or None if the meaning does not need it or the operand is no constant.

    `source` is the operand's type in the meaning: ``int``, which must be a constant, or a type that ends in ``=``.
    """
    if source != "int" and source[-1] != "=":
        return None
    return constant_of(operand) if source == "int" or isinstance(operand, Immediate) else None


def step(instr: Instruction, context: Context) -> Step:
    """Return the step of an instruction that has a meaning.

    Raises
    ------
    EmulationError, ValueError
    """
    entry = bound(instr, CARRY)
    if entry is None:
        raise ValueError(f"{instr.opcode} of no such type")
    meaning, form, targets, sources = entry
    constants = tuple([_constant_operand(source, operand) for source, operand in sources])
    function, type_names = _arrays_of(meaning, form, constants, len(targets))
    reads = [
        (operand, source_type(form, source))
        for (source, operand), value in zip(sources, constants, strict=True)
        if value is None
    ]
    return compute(context, function, list(zip(targets, type_names, strict=True)), reads)


INSTRUCTIONS.update(dict.fromkeys((opcode for opcode, _ in MEANINGS), step))
