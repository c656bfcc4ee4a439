"""Atomic operations: PTX ISA 9.7.13.5 (atom) and 9.7.13.6 (red).

Lanes that collide are applied in their order, and each gets the value before its own. `apply_in_order` does that
without a loop over lanes where the operation allows: by scans over the lanes sorted by address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.access import check_vector, parts, space_of, type_of
from cudakit.emulator.instructions.retry import retry_of
from cudakit.emulator.isa.facts import is_widely_strong
from cudakit.emulator.machine.decode import DTYPES, Context, Reader, Step, Writer, instruction
from cudakit.emulator.machine.memory import STRONG_WRITE, WRITE, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand, Register

#: Rounds over all lanes after which what is left is done lane by lane.
_MOST_ROUNDS = 64
_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_OPERATIONS = (*_UFUNCS, "inc", "dec", "exch", "cas")
#: Types whose arithmetic is done in a dtype other than their bits'.
COMPUTED = {
    "f16": np.dtype(np.float16), "f16x2": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "bf16x2": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
_QUIET = {"f16": 0x7FFF, "bf16": 0x7FFF, "f16x2": 0x7FFF, "bf16x2": 0x7FFF, "f32": 0x7FFFFFFF}


@dataclass(frozen=True, slots=True)
class _Segments:
    """Lanes sorted by element, in their own order within one: where each element's lanes start, and how many."""

    elements: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @property
    def rank(self) -> np.ndarray:
        """Lanes of the same element before each."""
        return np.asarray(np.arange(self.elements.size) - np.repeat(self.starts, self.sizes))

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A value for each segment, given to its lanes."""
        return np.asarray(np.repeat(values, self.sizes))


def apply_in_order(
    operation: str, view: np.ndarray, elements: np.ndarray, values: np.ndarray, compare: np.ndarray | None = None
) -> np.ndarray:
    """Each lane in its order: old = view[element]; view[element] = operation(old, value); the old values.

    Parameters
    ----------
    operation : str
        Of `atom`: ``add``, ``inc``, …, ``cas``.
    view : numpy.ndarray
        Memory.
    elements, values, compare : numpy.ndarray
        One a lane, of one shape; `compare` for ``cas`` only.
    """
    if elements.size == 0:
        return values
    order: np.ndarray | None = None
    if int(elements.min()) != int(elements.max()):
        if (elements[1:] < elements[:-1]).any():
            order = np.argsort(elements, kind="stable")
            elements, values = elements[order], values[order]
            compare = compare[order] if compare is not None else None
        starts = np.flatnonzero(np.diff(elements, prepend=elements[0] - 1))
    else:
        starts = np.zeros(1, np.int64)
    segments = _Segments(elements, starts, np.diff(starts, append=elements.size))
    with np.errstate(all="ignore"):
        if compare is not None:
            old = _compare_and_swap(segments, view, compare, values)
        elif operation == "exch":
            old = np.empty_like(values)
            old[1:] = values[:-1]
            old[starts] = view[elements[starts]]
            view[elements[starts]] = values[starts + segments.sizes - 1]
        elif operation in ("inc", "dec"):
            old = _count(segments, view, values, operation == "inc")
        else:
            old = _scan(_UFUNCS[operation], segments, view, values)
    if order is None:
        return old
    result: np.ndarray = np.empty_like(old)
    result[order] = old
    return result


def _scan(function: np.ufunc, segments: _Segments, view: np.ndarray, values: np.ndarray) -> np.ndarray:
    starts, sizes = segments.starts, segments.sizes
    first = segments.elements[starts]
    memory = view[first]
    most = int(sizes.max())
    if most == 1:
        view[first] = function(memory, values)
        return np.asarray(memory)
    inexact = values.dtype.kind not in "iu"
    if starts.size == 1 or (inexact and starts.size < most):
        old = np.empty_like(values)
        for number, start in enumerate(starts):
            # Accumulation goes from left to right, so that floats round as one lane after the other would.
            piece = values[start : start + sizes[number]]
            running = function.accumulate(np.concatenate((memory[number : number + 1], piece)), dtype=values.dtype)
            old[start : start + sizes[number]] = running[:-1]
            view[first[number]] = running[-1]
        return old
    if inexact:
        return _by_rank(lambda held, value: function(held, value), segments, view, values)
    if function in (np.add, np.bitwise_xor):
        # Both have an inverse, modulo 2ⁿ: a scan over all lanes less what came before the segment.
        inverse = np.subtract if function is np.add else np.bitwise_xor
        after = function.accumulate(values, dtype=values.dtype)
        before = inverse(after, values)
        old = np.asarray(function(inverse(before, segments.spread(before[starts])), segments.spread(memory)))
    else:
        after, rank, distance = values.copy(), segments.rank, 1
        while distance < most:
            lanes = np.flatnonzero(rank >= distance)
            after[lanes] = function(after[lanes], after[lanes - distance])
            distance *= 2
        old = np.empty_like(values)
        old[1:] = after[:-1]
        old = np.asarray(function(old, segments.spread(memory)))
        old[starts] = memory
    last = starts + sizes - 1
    view[first] = function(old[last], values[last])
    return old


def _by_rank(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], segments: _Segments, view: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """The first lane of every element at once, then the second, and so on."""
    old: np.ndarray = np.empty_like(values)
    order = np.argsort(segments.rank, kind="stable")
    ends = np.cumsum(np.bincount(segments.rank))
    begin = 0
    for end in ends:
        lanes = order[begin:end]
        where = segments.elements[lanes]
        old[lanes] = view[where]
        view[where] = function(old[lanes], values[lanes])
        begin = int(end)
    return old


def _count(segments: _Segments, view: np.ndarray, bounds: np.ndarray, up: bool) -> np.ndarray:
    """``inc`` (to 0 past the bound) and ``dec`` (to the bound past 0)."""
    bound = bounds[segments.starts]

    def one(held: np.ndarray, limit: np.ndarray) -> np.ndarray:
        unit, zero = held.dtype.type(1), held.dtype.type(0)
        if up:
            return np.asarray(np.where(held >= limit, zero, held + unit))
        return np.asarray(np.where((held == zero) | (held > limit), limit, held - unit))

    if not (bounds == segments.spread(bound)).all():
        return _by_rank(one, segments, view, bounds)
    first = segments.elements[segments.starts]
    memory = view[first]
    # After one step the value is within the bound, and goes round modulo bound + 1.
    begin = segments.spread(one(memory, bound)).astype(np.int64)
    around = segments.spread(bound).astype(np.int64) + 1
    steps = segments.rank - 1
    old = ((begin + steps if up else begin - steps) % around).astype(bounds.dtype)
    old[segments.starts] = memory
    view[first] = one(old[segments.starts + segments.sizes - 1], bound)
    return np.asarray(old)


def _compare_and_swap(segments: _Segments, view: np.ndarray, compare: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Rounds: in each, the first lane of every element that finds what it expects swaps."""
    old: np.ndarray = np.empty_like(values)
    elements, left = segments.elements, np.arange(values.size)
    rounds = 0
    while left.size:
        if rounds == _MOST_ROUNDS:
            for lane in left:
                held = old[lane] = view[elements[lane]]
                if held == compare[lane]:
                    view[elements[lane]] = values[lane]
            break
        rounds += 1
        here = elements[left]
        starts = np.flatnonzero(np.diff(here, prepend=here[0] - 1))
        sizes = np.diff(starts, append=left.size)
        held = view[here]
        # To swap a value for itself changes nothing that others see.
        swaps = (held == compare[left]) & (compare[left] != values[left])
        first = np.minimum.reduceat(np.where(swaps, np.arange(left.size), left.size), starts)
        now = np.arange(left.size) <= np.repeat(first, sizes)
        old[left[now]] = held[now]
        swapped = first[first < left.size]
        view[here[swapped]] = values[left[swapped]]
        left = left[~now]
    return old


def _flush(values: np.ndarray) -> np.ndarray:
    """Subnormal float32 numbers made zeros of their sign."""
    small = np.abs(values) < np.float32(2.0**-126)
    return np.asarray(np.where(small, np.copysign(np.float32(0), values), values))


def change(
    operation: str,
    kind: str,
    flushes: bool,
    wanted: bool,
    view: np.ndarray,
    elements: np.ndarray,
    values: np.ndarray,
    compare: np.ndarray | None,
) -> np.ndarray:
    """One piece of memory changed by the lanes in it."""
    floating = kind in _QUIET or kind == "f64"
    if not floating or operation != "add":
        if floating and operation in ("min", "max"):
            # A ufunc of NumPy takes either zero: where a lane or memory has one, the sign of zeros is looked at.
            if not values.all() or not view[elements].all():
                return _one_by_one(_EXTREMA[operation], kind, view, elements, values)
            return _floating(np.fmin if operation == "min" else np.fmax, kind, view, elements, values)
        if not wanted and operation in _UFUNCS:
            _UFUNCS[operation].at(view, elements, values)
            return values
        return apply_in_order(operation, view, elements, values, compare)
    if flushes and kind == "f32":
        # Atomics on global memory flush subnormal numbers; where none can arise, nothing has to be looked at.
        tiny = np.float32(2.0**-100)
        held = view[elements]
        if ((np.abs(values) < tiny) & (values != 0)).any() or ((np.abs(held) < tiny) & (held != 0)).any():
            return _one_by_one(lambda a, b: _flush(_flush(a) + _flush(b)), kind, view, elements, values)
    if flushes and kind == "f64" and (np.isnan(values).any() or np.isnan(view[elements]).any()):
        return _one_by_one(_add_keeping_nan, kind, view, elements, values)
    if not wanted:
        with np.errstate(all="ignore"):
            np.add.at(view, elements, values)
        _quieten(kind, view, elements)
        return values
    return _floating(np.add, kind, view, elements, values)


def _sorted(elements: np.ndarray) -> tuple[np.ndarray, _Segments]:
    order = np.argsort(elements, kind="stable")
    chosen = elements[order]
    starts = np.flatnonzero(np.diff(chosen, prepend=chosen[0] - 1))
    return order, _Segments(chosen, starts, np.diff(starts, append=chosen.size))


def _one_by_one(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    kind: str,
    view: np.ndarray,
    elements: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Lanes of an element one after the other; the old values."""
    order, segments = _sorted(elements)
    result: np.ndarray = np.empty_like(values)
    with np.errstate(all="ignore"):
        result[order] = _by_rank(function, segments, view, values[order])
    _quieten(kind, view, elements)
    return result


def _add_keeping_nan(held: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``held + value`` of float64 as global memory adds: a NaN comes through as it is, the lane's before memory's."""
    kept = np.where(np.isnan(value), value, held)
    return np.asarray(np.where(np.isnan(kept), kept, held + value))


def _least(held: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The least of floats that are no NaN, -0 below +0."""
    zero = np.where(np.signbit(held), held, value)
    return np.asarray(np.where((held == 0) & (value == 0), zero, np.fmin(held, value)))


def _greatest(held: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.asarray(-_least(-held, -value))


_EXTREMA = {"min": _least, "max": _greatest}


def _floating(function: np.ufunc, kind: str, view: np.ndarray, elements: np.ndarray, values: np.ndarray) -> np.ndarray:
    order, segments = _sorted(elements)
    result: np.ndarray = np.empty_like(values)
    with np.errstate(all="ignore"):
        result[order] = _scan(function, segments, view, values[order])
    _quieten(kind, view, elements)
    return result


def _quieten(kind: str, view: np.ndarray, elements: np.ndarray) -> None:
    """Results that are no number have the one bit pattern that the ISA gives them; float64 keeps its own."""
    if kind in _QUIET:
        nan = np.isnan(view[elements])
        if nan.any():
            view.view(f"u{view.itemsize}")[elements[nan]] = _QUIET[kind]


def _is_read(context: Context, target: Operand) -> bool:
    """Whether any instruction reads the register; for results that nobody wants there is a faster way."""
    return not isinstance(target, Register) or target.name in context.registers_read


@instruction("atom")
def atom(given: Instruction, context: Context) -> Step:
    target, *sources = given.operands
    wanted = any(_is_read(context, part) for part in parts(target)) and target != Register("_")
    return _atomic(given, context, target if wanted else None, list(sources))


@instruction("red")
def red(given: Instruction, context: Context) -> Step:
    return _atomic(given, context, None, list(given.operands))


def _atomic(given: Instruction, context: Context, target: Operand | None, operands: list[Operand]) -> Step:
    kind, space = type_of(given), space_of(given)
    operation = next(m for m in given.modifiers if m in _OPERATIONS)
    address = context.address(operands[0], space)
    computed = COMPUTED.get(kind, DTYPES[kind])
    bits = DTYPES[kind]
    halves = bits.itemsize // computed.itemsize
    use = STRONG_WRITE if is_widely_strong(given) else WRITE
    compare = context.read(operands[1], kind) if operation == "cas" else None
    given_by = operands[1] if compare is None else operands[2]
    reads: list[Reader] = [context.read(part, kind) for part in parts(given_by)]
    writes: list[Writer] = [context.write(part, kind) for part in parts(target)] if target is not None else []
    retry = retry_of(given, context, kind) if compare is not None and writes else None

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        check_vector(addresses, bits.itemsize * len(reads))
        expected = None
        if compare is not None:
            expected = np.broadcast_to(np.asarray(compare(frame, index, machine), bits), addresses.shape)
        for number, read in enumerate(reads):
            given_values = np.ascontiguousarray(np.broadcast_to(read(frame, index, machine), addresses.shape), bits)
            values = given_values.view(computed).reshape(addresses.size, halves)
            old = np.empty_like(values)
            for half in range(halves):
                where = addresses + np.uint64(number * bits.itemsize + half * computed.itemsize)
                for view, elements, lanes in machine.memory.views(space, where, computed, index, use):
                    in_global = space == "global" or (space == "generic" and not _is_window(machine, view))
                    held = expected[lanes] if expected is not None else None
                    found = change(operation, kind, in_global, bool(writes), view, elements, values[lanes, half], held)
                    if retry is not None and (lost := np.flatnonzero(found != held)).size > 1:
                        retry.finish(frame, index, machine, view, elements, lanes, found, lost)
                    old[lanes, half] = found
            if writes:
                writes[number](frame, index, old.view(bits).reshape(-1))

    return step


def _is_window(machine: Machine, view: Any) -> bool:
    """Whether a view is of shared memory."""
    return bool(np.may_share_memory(view, machine.memory.shared))
