"""Products of matrices by a warpgroup, of shared memory: PTX ISA 9.7.15 (wgmma); their numerics are in `products`.

The product is complete when wgmma.mma_async returns, so that fences and groups have nothing to do: a kernel that reads
its accumulators before wgmma.wait_group gets them here, and garbage on a GPU. The sparse form is not here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudakit.emulator.instructions.access import parts
from cudakit.emulator.instructions.aligned import WARPGROUP, aligned, of_lanes, table_reader, table_writer, uniform
from cudakit.emulator.instructions.fragments import BITS, INTEGERS, a_fragment, c_fragment, packed, raw_of, values_of
from cudakit.emulator.instructions.products import check_types, multiply_add, shape_of, types_of
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Group, Immediate, Instruction, Operand
from cudakit.errors import EmulationError

_ROWS, _DEPTH_BYTES = 64, 32
_KINDS = frozenset({"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"})
_WGMMA_QUALIFIERS = {"mma_async", "sync", "aligned", "satfinite", "and", "popc"}

#: Chunks of 16 bytes that lie side by side in a swizzle atom, and the bits of an address that a swizzle changes, by the
#: mode in a descriptor: none, 128, 64 and 32 bytes.
_ATOM = np.array([1, 8, 4, 2])
_SWIZZLE = np.array([0, 0x70, 0x30, 0x10])

#: load(frame, index, machine) → values of a matrix, float64, (warpgroups, rows, depth)
_Load = Callable[[Frame, Index, Machine], np.ndarray]


@control("wgmma", "9.7.15.5.2")
def wgmma(given: Instruction, context: Context) -> Control:
    if given.modifiers[0] in ("fence", "commit_group", "wait_group"):
        return lambda machine, frame, index, active, here: True
    to, of_a, of_b = types_of(given.modifiers)
    _check(given, of_a)
    check_types(given, of_a, of_b, to)
    _, n, k = shape_of(given.modifiers)
    target, a, b, scale_d, *rest = given.operands
    signs = [_number(operand) for operand in rest[:2]] or [1, 1]
    if any(sign not in (1, -1) for sign in signs):
        raise EmulationError(f"a factor is multiplied by 1 or -1, not by {signs}")
    transposed = [bool(_number(operand)) for operand in rest[2:]] or [False, False]
    if isinstance(a, Group):
        load_a = _from_registers(context, a, k, of_a)
    else:
        load_a = _from_shared(context, a, _ROWS, of_a, transposed[0])
    load_b = _from_shared(context, b, n, of_b, transposed[-1])
    read, write, keeps = table_reader(context, target), table_writer(context, target), context.read(scale_d, "pred")
    fragment = c_fragment(_ROWS // 4, n)
    if len(parts(target)) * packed(to) != fragment.places.shape[1]:
        raise EmulationError(f"{len(parts(target))} registers for D of {given}")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            before = fragment.gather(values_of(read(frame, index, machine), to)).reshape(-1, _ROWS, n)
            kept = uniform(of_lanes(keeps, frame, index, machine), "predicate scale-d", WARPGROUP)
            before = np.where(kept[:, None, None], before, 0.0)
            first, second = load_a(frame, index, machine) * signs[0], load_b(frame, index, machine) * signs[1]
            result = multiply_add(first, second.swapaxes(1, 2), before, of_a, given.modifiers)
            write(frame, index, raw_of(fragment.scatter(result.reshape(-1, _ROWS // 4, n)), to))

    return aligned(given, step, WARPGROUP)


def _check(given: Instruction, kind: str) -> None:
    """Raise for a form that there is not."""
    m, n, k = shape_of(given.modifiers)
    rest = [modifier for modifier in given.modifiers if modifier not in _WGMMA_QUALIFIERS and modifier not in BITS]
    # Integers take steps of 16 columns, and 8 and 24.
    columns = 8 <= n <= 256 and n % (16 if kind in INTEGERS and n not in (8, 24) else 8) == 0
    if len(rest) != 1 or kind not in _KINDS or m != _ROWS or k * BITS[kind] != 8 * _DEPTH_BYTES or not columns:
        raise EmulationError(str(given))


def _number(operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise EmulationError(f"operand {operand} is no constant")
    return int(operand.value)


def _from_registers(context: Context, operand: Operand, depth: int, kind: str) -> _Load:
    """A in registers: each warp has 16 rows."""
    read, fragment = table_reader(context, operand), a_fragment(_ROWS // 4, depth, kind)

    def load(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        return fragment.gather(values_of(read(frame, index, machine), kind)).reshape(-1, _ROWS, depth)

    return load


def _from_shared(context: Context, operand: Operand, rows: int, kind: str, transposed: bool) -> _Load:
    """A, or B with its columns as rows, in shared memory where a matrix descriptor says: PTX ISA 9.7.15.5.1."""
    if transposed and BITS[kind] != 16:
        raise EmulationError(f"{kind} cannot be transposed")
    descriptor = context.read(operand, "b64")

    def load(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        given = uniform(of_lanes(descriptor, frame, index, machine), "matrix descriptor", WARPGROUP)
        chunks = _chunks(given, rows, transposed)
        lanes = (np.arange(machine.lanes) if index is None else index)[::WARPGROUP]
        lane = np.broadcast_to(lanes[:, None, None], chunks.shape).reshape(-1)
        halves = [
            machine.memory.load("shared", chunks.reshape(-1) + np.uint64(part), np.dtype("u8"), lane) for part in (0, 8)
        ]
        values = values_of(np.stack(halves, axis=-1).reshape(*chunks.shape[:2], -1), kind)
        if transposed:
            # Eight rows of a k in a chunk, the k of eight rows one after another.
            values = values.reshape(given.size, rows // 8, -1, 8).swapaxes(2, 3)
        return values.reshape(given.size, rows, -1)

    return load


def _chunks(descriptor: np.ndarray, rows: int, transposed: bool) -> np.ndarray:
    """Addresses of the chunks of 16 bytes of a matrix, uint64.

    (warpgroups, rows, 2) where k runs along chunks; (warpgroups, rows / 8, 16) with one k in each where rows do.
    """
    given = descriptor.astype(np.int64)[:, None, None]
    start, leading, stride = (((given >> bit) & 0x3FFF) << 4 for bit in (0, 16, 32))
    if ((given >> 49) & 7).any():
        raise EmulationError("a matrix descriptor with a base offset is not emulated")
    mode = (given >> 62) & 3
    atom, plain = _ATOM[mode], mode == 0
    if transposed:
        row, k = np.arange(rows // 8)[:, None], np.arange(16)
        next_atom, next_k = np.where(plain, stride, leading), np.where(plain, leading, stride)
        offsets = 16 * (row % atom + k % 8 * atom) + row // atom * next_atom + k // 8 * next_k
    else:
        row, k = np.arange(rows)[:, None], np.arange(2)
        offsets = 16 * (row % 8 * atom) + row // 8 * stride + k * np.where(plain, leading, 16)
    address = start + offsets
    # The swizzle is of whole addresses: bits 4 … 6 are changed by bits 7 … 9.
    swizzled: np.ndarray = (address ^ (address >> 3 & _SWIZZLE[mode])).astype(np.uint64)
    return swizzled
