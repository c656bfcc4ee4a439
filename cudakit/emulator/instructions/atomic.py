"""Atomic operations: PTX ISA 9.7.13.5 (atom) and 9.7.13.6 (red).

Lanes that collide on an address are applied in their order. Each lane gets the value before its own operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.access import check_vector, parts, space_of, type_of
from cudakit.emulator.instructions.retry import retry_of
from cudakit.emulator.instructions.rounding import nan_from
from cudakit.emulator.isa.facts import is_widely_strong
from cudakit.emulator.machine.decode import DTYPES, Context, Reader, Step, Writer, instruction
from cudakit.emulator.machine.memory import STRONG_WRITE, WRITE, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand, Register

#: Rounds over all lanes; remaining lanes then run one by one.
_MOST_ROUNDS = 64
_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
#: function(old value, lane's value) → new value in memory
_Function: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
_FUNCTIONS: dict[str, _Function] = {
    **_UFUNCS,
    "exch": lambda old, value: value,
    "inc": lambda old, bound: np.where(old >= bound, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, bound: np.where((old == 0) | (old > bound), bound, old - old.dtype.type(1)),
}
_OPERATIONS = (*_FUNCTIONS, "cas")
#: Types whose arithmetic uses another dtype than that of their bits.
COMPUTED = {
    "f16": np.dtype(np.float16), "f16x2": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "bf16x2": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
_QUIET = {"f16": 0x7FFF, "bf16": 0x7FFF, "f16x2": 0x7FFF, "bf16x2": 0x7FFF, "f32": 0x7FFFFFFF}


class _Segments(NamedTuple):
    """Lanes sorted by the element that they access, in lane order within an element.

    `elements` has the element of each sorted lane. For each distinct element, `starts` has the position of its first
    lane in `elements`, and `sizes` its number of lanes.
    """

    elements: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def apply_in_order(
    operation: str | _Function, view: np.ndarray, elements: np.ndarray, values: np.ndarray, compare: Any = None
) -> np.ndarray:
    """Apply each lane's operation in order: old = view[element]; view[element] = operation(old, value).

    Return the old values.

    Parameters
    ----------
    operation : str or callable
        Name of an operation of `atom`: ``add``, ``inc``, …, ``cas``; or a function of memory's value and the lane's.
    view : numpy.ndarray
        Memory.
    elements, values : numpy.ndarray
        Element of `view` and value of each lane, of one shape.
    compare : numpy.ndarray
        Expected value of each lane, for ``cas`` only.
    """
    if elements.size == 0:
        return values
    # NumPy sorts numbers of two bytes several times as quickly.
    order = np.argsort(elements.astype(np.uint16) if int(elements.max()) < 1 << 16 else elements, kind="stable")
    elements, values = elements[order], values[order]
    starts = np.flatnonzero(np.diff(elements, prepend=elements[0] - 1))
    segments = _Segments(elements, starts, np.diff(starts, append=elements.size))
    function = _FUNCTIONS.get(operation) if isinstance(operation, str) else operation
    result = np.empty(values.shape, view.dtype)
    with np.errstate(all="ignore"):
        if function is None:
            result[order] = _compare_and_swap(segments, view, compare[order], values)
        elif operation == "exch":
            result[order] = _at_once(segments, view, values)
        elif operation in ("inc", "dec") and (values == values[0]).all():
            result[order] = _at_once(segments, view, _counted(function, operation == "inc", segments, view, values))
        elif isinstance(function, np.ufunc) and starts.size < int(segments.sizes.max()):
            result[order] = _at_once(segments, view, _by_element(function, segments, view, values))
        else:
            result[order] = _by_rank(function, segments, view, values)
    return result


def _at_once(segments: _Segments, view: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Store the last value of each element; return the value that each lane found before its own operation.

    `after` has the value of memory after each lane's operation.
    """
    old, first = np.roll(after, 1), segments.elements[segments.starts]
    old[segments.starts] = view[first]
    view[first] = after[segments.starts + segments.sizes - 1]
    return old


def _counted(function: _Function, up: bool, segments: _Segments, view: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return memory's value after each lane of ``inc`` (`up`) or ``dec``, if all lanes have the same bound.

    The first lane of an element brings the count within the bound; the others wrap around. Memory is not changed.
    """
    first = function(view[segments.elements[segments.starts]], bounds[segments.starts]).astype(np.int64)
    first_values = np.repeat(first - segments.starts if up else first + segments.starts, segments.sizes)
    lanes = np.arange(bounds.size)
    return np.asarray(
        ((first_values + lanes if up else first_values - lanes) % (int(bounds[0]) + 1)).astype(bounds.dtype)
    )


def _by_element(function: np.ufunc, segments: _Segments, view: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return memory's value after each lane, accumulated from left to right: floats round as lane after lane.

    Memory is not changed.
    """
    after: np.ndarray = np.empty_like(values)
    for start, size in zip(segments.starts, segments.sizes, strict=True):
        element, lanes = segments.elements[start], slice(start, start + size)
        terms = np.concatenate((view[element : element + 1], values[lanes]))
        after[lanes] = function.accumulate(terms, dtype=values.dtype)[1:]
    return after


def _by_rank(function: _Function, segments: _Segments, view: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Apply the first lane of every element at once, then the second, and so on; return the old values."""
    old = np.empty(values.shape, view.dtype)
    for rank in range(int(segments.sizes.max())):
        lanes = segments.starts[segments.sizes > rank] + rank
        where = segments.elements[lanes]
        old[lanes] = view[where]
        view[where] = function(old[lanes], values[lanes])
    return old


def _compare_and_swap(segments: _Segments, view: np.ndarray, compare: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Run compare-and-swaps of all lanes in lane order, in rounds; return the value that each lane found in memory.

    In each round, the first lane of every element that finds its expected value swaps.
    """
    old: np.ndarray = np.empty_like(values)
    elements, left = segments.elements, np.arange(values.size)
    rounds = 0
    while left.size:
        if rounds == _MOST_ROUNDS:
            for lane in left:
                current = old[lane] = view[elements[lane]]
                if current == compare[lane]:
                    view[elements[lane]] = values[lane]
            break
        rounds += 1
        contended = elements[left]
        starts = np.flatnonzero(np.diff(contended, prepend=contended[0] - 1))
        sizes = np.diff(starts, append=left.size)
        current = view[contended]
        # To swap a value for itself changes nothing.
        swaps = (current == compare[left]) & (compare[left] != values[left])
        first = np.minimum.reduceat(np.where(swaps, np.arange(left.size), left.size), starts)
        now = np.arange(left.size) <= np.repeat(first, sizes)
        old[left[now]] = current[now]
        swapped = first[first < left.size]
        view[contended[swapped]] = values[left[swapped]]
        left = left[~now]
    return old


def _flush(values: np.ndarray) -> np.ndarray:
    """Replace subnormal float32 by zeros of their sign."""
    small = np.abs(values) < np.float32(2.0**-126)
    return np.asarray(np.where(small, np.copysign(np.float32(0), values), values))


def change(
    operation: str,
    type_name: str,
    flushes: bool,
    returns_old: bool,
    view: np.ndarray,
    elements: np.ndarray,
    values: np.ndarray,
    compare: np.ndarray | None,
) -> np.ndarray:
    """Apply the lanes' operations to elements of `view`, in lane order; return the old values if `returns_old`.

    Otherwise the result has no meaning. Parameters not listed are those of `apply_in_order`.

    Parameters
    ----------
    type_name : str
        PTX type of the elements.
    flushes : bool
        Whether an addition follows the rules of global memory, which flushes subnormal float32.
    """
    function = _function(operation, type_name, flushes, view, elements, values)
    if returns_old or function not in _UFUNCS.values():
        old = apply_in_order(function, view, elements, values, compare)
    else:
        old = values
        with np.errstate(all="ignore"):
            _UFUNCS[operation].at(view, elements, values)
    if type_name in _QUIET and operation in _UFUNCS:
        _quieten(type_name, view, elements)
    return old


def _function(
    operation: str, type_name: str, flushes: bool, view: np.ndarray, elements: np.ndarray, values: np.ndarray
) -> str | _Function:
    """Return a function for an operation on these values, or the operation's name if NumPy has no ufunc for it.

    The function is a ufunc, unless a zero, a subnormal number or a NaN among the values needs special rules.
    """
    if not (type_name in _QUIET or type_name == "f64") or operation not in ("add", "min", "max"):
        return _UFUNCS.get(operation, operation)
    if operation != "add":
        # A ufunc may return either zero: where a lane or memory has a zero, signs are compared.
        if not values.all() or not view[elements].all():
            return _EXTREMA[operation]
        return np.fmin if operation == "min" else np.fmax
    if flushes and type_name == "f32":
        # Atomics on global memory flush subnormal numbers; large terms cannot give any.
        tiny = np.float32(2.0**-100)
        if any(((np.abs(terms) < tiny) & (terms != 0)).any() for terms in (values, view[elements])):
            return lambda old, value: _flush(_flush(old) + _flush(value))
    if type_name == "f64" and not (np.isfinite(values).all() and np.isfinite(view[elements]).all()):
        return _add_in_global if flushes else _add_in_shared
    return np.add


def _add_in_global(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``old + value`` of float64 as global memory adds: a NaN is kept as it is, the lane's before memory's."""
    return np.asarray(nan_from(old + value, value, old, quiet=False))


def _add_in_shared(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``old + value`` of float64 as shared memory adds: a NaN becomes quiet, memory's before the lane's."""
    return np.asarray(nan_from(old + value, old, value))


def _least(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the smaller of two floats, ignoring NaN; -0 is below +0."""
    zero = np.where(np.signbit(old), old, value)
    return np.asarray(np.where((old == 0) & (value == 0), zero, np.fmin(old, value)))


def _greatest(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the larger of two floats, ignoring NaN; -0 is below +0."""
    return np.asarray(-_least(-old, -value))


_EXTREMA = {"min": _least, "max": _greatest}


def _quieten(type_name: str, view: np.ndarray, elements: np.ndarray) -> None:
    """Replace NaN in `view` at `elements` by the NaN that PTX specifies for the type; float64 keeps its own NaN."""
    if type_name in _QUIET:
        nan = np.isnan(view[elements])
        if nan.any():
            view.view(f"u{view.itemsize}")[elements[nan]] = _QUIET[type_name]


def _is_read(context: Context, target: Operand) -> bool:
    """Return whether any instruction reads the target register; unread results have a faster path."""
    return not isinstance(target, Register) or target.name in context.registers_read


@instruction("atom")
def atom(instr: Instruction, context: Context) -> Step:
    target, *sources = instr.operands
    is_read = any(_is_read(context, part) for part in parts(target)) and target != Register("_")
    return _atomic(instr, context, target if is_read else None, list(sources))


@instruction("red")
def red(instr: Instruction, context: Context) -> Step:
    return _atomic(instr, context, None, list(instr.operands))


def _atomic(instr: Instruction, context: Context, target: Operand | None, operands: list[Operand]) -> Step:
    """Make the step of an atomic operation; `target` is None if no instruction reads the result."""
    type_name, space = type_of(instr), space_of(instr)
    operation = next(m for m in instr.modifiers if m in _OPERATIONS)
    address = context.address(operands[0], space)
    computed = COMPUTED.get(type_name, DTYPES[type_name])
    bits = DTYPES[type_name]
    halves = bits.itemsize // computed.itemsize
    use = STRONG_WRITE if is_widely_strong(instr) else WRITE
    compare = context.read(operands[1], type_name) if operation == "cas" else None
    value_operand = operands[1] if compare is None else operands[2]
    reads: list[Reader] = [context.read(part, type_name) for part in parts(value_operand)]
    writes: list[Writer] = [context.write(part, type_name) for part in parts(target)] if target is not None else []
    retry = retry_of(instr, context, type_name) if compare is not None and writes else None

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        check_vector(addresses, bits.itemsize * len(reads))
        expected = None
        if compare is not None:
            expected = np.broadcast_to(np.asarray(compare(frame, index, machine), bits), addresses.shape)
        for number, read in enumerate(reads):
            operand_values = np.ascontiguousarray(np.broadcast_to(read(frame, index, machine), addresses.shape), bits)
            values = operand_values.view(computed).reshape(addresses.size, halves)
            old = np.empty_like(values)
            for half in range(halves):
                where = addresses + np.uint64(number * bits.itemsize + half * computed.itemsize)
                for view, elements, lanes in machine.memory.views(space, where, computed, index, use):
                    in_global = space == "global" or (space == "generic" and not _is_window(machine, view))
                    compared = expected[lanes] if expected is not None else None
                    before = change(
                        operation, type_name, in_global, bool(writes), view, elements, values[lanes, half], compared
                    )
                    if retry is not None and (lost := np.flatnonzero(before != compared)).size > 1:
                        retry.finish(frame, index, machine, view, elements, lanes, before, lost)
                    old[lanes, half] = before
            if writes:
                writes[number](frame, index, old.view(bits).reshape(-1))

    return step


def _is_window(machine: Machine, view: Any) -> bool:
    """Return whether a view is of shared memory."""
    return bool(np.may_share_memory(view, machine.memory.shared))
