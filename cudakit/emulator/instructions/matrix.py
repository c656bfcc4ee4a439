"""Products of matrices by a warp or a warpgroup: PTX ISA 9.7.14.4 (wmma), 9.7.14.5 (mma) and 9.7.15 (wgmma).

The layouts of elements in registers are those of PTX ISA 9.7.14.5.1 – 9.7.14.5.13 (mma) and 9.7.15.5.1 (wgmma: a warp
has 16 of the 64 rows). They go on beyond 16 rows or 8 columns in the same way. For wmma the ISA leaves the layout open:
here it is that of mma, which is also sm_80's.

D = A · B + C of stacks of small matrices is computed in float64. The hardware and the emulator compare as follows:

- integers and single bits: both are exact. The sum of all wraps at 32 bits, or is clamped to them (``.satfinite``).
- f64: a chain of fused multiply-adds, each rounded, with k going up. The ISA leaves the order open.
- f16, bf16, tf32, fp8: products are exact in both. Order, width and rounding of the sum are open.
  Here it is a float64 sum rounded once to D's type u (2⁻²⁴ relative for f32, 2⁻¹¹ for f16).
  So |D − exact| ≤ u |D| + (k + 1) 2⁻⁵³ S, with S = |C| + Σ |A · B|.
  Hardware aligns the products of 4 to 32 terms to the largest and cuts off the bits below its 24th bit or so.
  Its sum is within (k + 1) 2⁻²³ S of the exact sum before it is rounded to D.
  For fp8 sm_90 keeps about 14 bits: its sum is within (k + 1) 2⁻¹³ S.
  Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021, measured it up to sm_80.
  Where every sum is a small integer both are exact.
- A NaN result is the canonical one (0x7fffffff, 0x7fff).

Not emulated: the sparse forms (mma.sp, wgmma.sp), and forms of later architectures (block scales, m8n16, m16n16, b8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.access import (
    CHUNK,
    WARP,
    WARPGROUP,
    aligned,
    parts,
    read_per_lane,
    space_of,
    table_reader,
    table_writer,
    uniform,
)
from cudakit.emulator.instructions.rounding import MODES, canonical, fma_f64, nan_from, to_f16
from cudakit.emulator.machine.decode import Context, Control, Reader, Step, constant_of, control
from cudakit.emulator.machine.memory import SHARED_WINDOW, AccessError, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Group, Instruction, Operand
from cudakit.errors import EmulationError

#: Bits of an element of each type.
BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16,
    "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
INTEGERS = frozenset({"s8", "u8", "s4", "u4", "b1"})
_DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "s32": np.int32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
#: The bits of a float32 that a tf32 has.
_TF32 = np.uint32(0xFFFFE000)
_LANE = np.arange(32)[:, None]
_GROUP, _MEMBER = _LANE // 4, _LANE % 4


def packed(type_name: str) -> int:
    """Return the elements in a register of 32 bits; 1 for f64, whose registers have 64."""
    return max(1, 32 // BITS[type_name])


def register_bits(type_name: str) -> int:
    """Return the bits of a register with elements of a type."""
    return max(32, BITS[type_name])


@dataclass(frozen=True)
class Fragment:
    """Places of each lane's elements in a matrix.

    Attributes
    ----------
    places : numpy.ndarray
        (32, elements of a lane): number of the element in the matrix, row by row. Several lanes may have an element.
    shape : tuple of int
        Shape of the matrix, or of a stack of matrices.
    """

    places: np.ndarray
    shape: tuple[int, ...]

    def gather(self, elements: np.ndarray) -> np.ndarray:
        """Return matrices (warps, *shape) from the lanes' elements, (warps, 32, elements)."""
        return elements.reshape(-1, self.places.size)[:, self.sources].reshape(-1, *self.shape)

    @cached_property
    def sources(self) -> np.ndarray:
        """Index of each matrix element among the elements of all lanes."""
        sources = np.empty(math.prod(self.shape), np.int64)
        sources[self.places.reshape(-1)] = np.arange(self.places.size)
        return sources

    def scatter(self, matrices: np.ndarray) -> np.ndarray:
        """Return the lanes' elements, (warps, 32, elements), from matrices (warps, *shape)."""
        return matrices.reshape(matrices.shape[0], -1)[:, self.places]

    def repeated(self, elements: int) -> Fragment:
        """Return a fragment whose lanes have `elements` elements: the places are repeated a whole number of times.

        Raises
        ------
        EmulationError
            If `elements` is no multiple of the elements of a lane here.
        """
        times, rest = divmod(elements, self.places.shape[1])
        if rest or not times:
            raise EmulationError(f"{elements} elements a thread for a matrix of {self.shape}")
        return Fragment(np.tile(self.places, (1, times)), self.shape)


def a_fragment(rows: int, depth: int, type_name: str) -> Fragment:
    """Return the fragment of A, (rows, depth): registers advance by 8 rows, then by four registers in depth."""
    per_register, tiles = packed(type_name), rows // 8
    register, part = np.divmod(np.arange(rows * depth // 32), per_register)
    row = _GROUP + 8 * (register % tiles)
    column = _MEMBER * per_register + part + 4 * per_register * (register // tiles)
    return Fragment(row * depth + column, (rows, depth))


def b_fragment(depth: int, columns: int, type_name: str) -> Fragment:
    """Return the fragment of B, (depth, columns): registers advance by four registers in depth, then by 8 columns."""
    per_register = packed(type_name)
    tiles = depth // (4 * per_register)
    register, part = np.divmod(np.arange(depth * columns // 32), per_register)
    row = _MEMBER * per_register + part + 4 * per_register * (register % tiles)
    column = _GROUP + 8 * (register // tiles)
    return Fragment(row * columns + column, (depth, columns))


def c_fragment(rows: int, columns: int) -> Fragment:
    """Return the fragment of C and D, (rows, columns): pairs in a row advance by 8 rows, then by 8 columns."""
    tiles = rows // 8
    pair, part = np.divmod(np.arange(rows * columns // 32), 2)
    row = _GROUP + 8 * (pair % tiles)
    column = 2 * _MEMBER + part + 8 * (pair // tiles)
    return Fragment(row * columns + column, (rows, columns))


def quad_pair_fragments(a_layout: str, b_layout: str) -> tuple[Fragment, Fragment, dict[str, Fragment]]:
    """Return the fragments of A, B, and C by its type, for mma.m8n8k4 with f16.

    The instruction computes four products at once, each by 4 lanes and the 4 lanes 16 further.
    """
    four, eight = np.arange(4), np.arange(8)
    stack, half = _GROUP % 4, _LANE // 16
    row_of_lane, other = _MEMBER + 4 * half, four + 4 * half
    a = row_of_lane * 4 + four if a_layout == "row" else other * 4 + _MEMBER
    b = _MEMBER * 8 + other if b_layout == "row" else four * 8 + row_of_lane
    row, column = (_LANE & 1) + (eight & 2) + 4 * half, (eight & 4) + (_LANE & 2) + (eight & 1)
    c = {"f16": row_of_lane * 8 + eight, "f32": row * 8 + column}
    return (
        Fragment(stack * 32 + a, (4, 8, 4)),
        Fragment(stack * 32 + b, (4, 4, 8)),
        {type_name: Fragment(stack * 64 + places, (4, 8, 8)) for type_name, places in c.items()},
    )


def values_of(raw: np.ndarray, type_name: str) -> np.ndarray:
    """Return float64 values of packed elements; the last axis grows by the elements in each integer of `raw`.

    The lower 13 bits of tf32 are ignored, as in hardware.
    """
    raw = np.ascontiguousarray(raw)
    if type_name == "tf32":
        return (raw.view(np.uint32) & _TF32).view(np.float32).astype(np.float64)
    if type_name == "b1":
        return np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little").astype(np.float64)
    if type_name in ("s4", "u4"):
        pairs = np.stack((raw.view(np.uint8) & 15, raw.view(np.uint8) >> 4), axis=-1)
        nibbles = pairs.reshape(*pairs.shape[:-2], -1).astype(np.float64)
        return np.where(nibbles > 7, nibbles - 16, nibbles) if type_name == "s4" else nibbles
    return np.asarray(raw.view(_DTYPES[type_name]).astype(np.float64))


def raw_of(values: np.ndarray, type_name: str) -> np.ndarray:
    """Convert float64 accumulators to the unsigned integers of their registers, rounded to a PTX type.

    Two f16 make one integer. Integer types must be in range.
    """
    if type_name == "f16":
        return np.ascontiguousarray(to_f16(values)).view(np.uint32)
    rounded = np.ascontiguousarray(values.astype(_DTYPES[type_name]))
    result: np.ndarray = (canonical(rounded) if type_name == "f32" else rounded).view(f"u{rounded.itemsize}")
    return result


# ── numerics ──

#: Types of C and D for each type of A.
RESULTS = {
    "f64": ("f64",), "bf16": ("f32",), "tf32": ("f32",),
    **dict.fromkeys(("f16", "e4m3", "e5m2"), ("f16", "f32")), **dict.fromkeys(INTEGERS, ("s32",)),
}  # fmt: skip
#: Types of A and B that may differ.
_PAIRS = ({"e4m3", "e5m2"}, {"s8", "u8"}, {"s4", "u4"})


def check_types(instr: Instruction, a: str, b: str, *results: str) -> None:
    """Raise if the element types of A, B and the results do not go together."""
    if not (a == b or {a, b} in _PAIRS) or any(type_name not in RESULTS.get(a, ()) for type_name in results):
        raise EmulationError(str(instr))


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, type_name: str, modifiers: Sequence[str]) -> np.ndarray:
    """Compute A · B + C in float64, unrounded except for integers and f64.

    Parameters
    ----------
    a, b, c : numpy.ndarray
        Values, float64, (…, m, k), (…, k, n) and (…, m, n).
    type_name : str
        PTX type of A's elements.
    modifiers : sequence of str
        Modifiers of the instruction: its rounding, ``satfinite``, ``xor``.
    """
    with np.errstate(all="ignore"):
        if type_name == "f64":
            return _chain(a, b, c, next((m for m in modifiers if m in MODES), "rn"))
        product = a @ b
        if "xor" in modifiers:
            product = a.sum(-1)[..., :, None] + b.sum(-2)[..., None, :] - 2 * product
        total = product + c
        if type_name not in INTEGERS:
            return np.asarray(total)
        # Exact so far: 256 products of 16 bits at most, and one integer of 32.
        if "satfinite" in modifiers:
            return np.asarray(np.clip(total, -(2.0**31), 2.0**31 - 1))
        return np.asarray(total.astype(np.int64).astype(np.int32))


def _chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """Compute A · B + C as a chain of fused multiply-adds with k going up."""
    for k in range(a.shape[-1]):
        x, y = a[..., :, k, None], b[..., None, k, :]
        c = np.asarray(nan_from(fma_f64(x, y, c, mode), y, c, x))
    return c


def types_of(modifiers: Sequence[str]) -> list[str]:
    """Return the element types among an instruction's modifiers, in order."""
    return [modifier for modifier in modifiers if modifier in BITS]


def shape_of(modifiers: Sequence[str]) -> tuple[int, int, int]:
    """Return m, n and k of a modifier such as ``m16n8k16``."""
    for modifier in modifiers:
        sizes = modifier.replace("n", "m").replace("k", "m").split("m")
        if len(sizes) == 4 and not sizes[0] and all(size.isdigit() for size in sizes[1:]):
            return int(sizes[1]), int(sizes[2]), int(sizes[3])
    raise EmulationError("no shape is named")


# ── 8 × 8 halves between shared memory and a warp ──
#
# Lane 4 · row + t of a warp holds the halves 2t and 2t + 1 of the row. A row is 16 bytes in shared memory, and lane
# 8 · matrix + row has its address.


def _form(instr: Instruction, registers: Operand) -> tuple[int, bool]:
    """Return the number of 8 × 8 matrices that an ``ldmatrix`` or ``stmatrix`` moves, and whether it transposes them.

    Raises
    ------
    EmulationError
        For a form that is not emulated.
    """
    count = next((int(m[1:]) for m in instr.modifiers if m in ("x1", "x2", "x4")), 1)
    if "m8n8" not in instr.modifiers or "b16" not in instr.modifiers or len(parts(registers)) != count:
        raise EmulationError(str(instr))
    return count, "trans" in instr.modifiers


def _rows(
    machine: Machine, address: Reader, frame: Frame, index: Index, instr: Instruction, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the address in shared memory of each row of `count` 8 × 8 matrices a warp, and the lane that gave it.

    Both results are flat arrays, warp after warp.
    """
    lanes = np.arange(machine.lanes) if index is None else index
    addresses = address(frame, index, machine).reshape(-1, WARP)[:, : 8 * count].reshape(-1)
    if space_of(instr) == "generic":
        if (addresses < np.uint64(SHARED_WINDOW)).any():
            bad = int(addresses[np.flatnonzero(addresses < np.uint64(SHARED_WINDOW))[0]])
            raise AccessError(f"address {bad:#x} is not in shared memory")
        addresses = addresses - np.uint64(SHARED_WINDOW)
    return addresses, lanes.reshape(-1, WARP)[:, : 8 * count].reshape(-1)


def _transposed(words: np.ndarray) -> np.ndarray:
    """Transpose 8 × 8 matrices of 16-bit elements, each in 32 words of two elements along the last axis."""
    halves = words.view(np.uint16).reshape(*words.shape[:-1], 8, 8).swapaxes(-1, -2)
    return np.ascontiguousarray(halves).view(np.uint32).reshape(words.shape)


@control("ldmatrix")
def ldmatrix(instr: Instruction, context: Context) -> Control:
    target, source = instr.operands
    count, transposes = _form(instr, target)
    address, write = context.address(source, space_of(instr)), table_writer(context, target)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses, lanes = _rows(machine, address, frame, index, instr, count)
        words = machine.memory.load("shared", addresses, CHUNK, lanes).view(np.uint32).reshape(-1, count, WARP)
        write(frame, index, (_transposed(words) if transposes else words).swapaxes(1, 2))

    return aligned(instr, step)


@control("stmatrix")
def stmatrix(instr: Instruction, context: Context) -> Control:
    target, source = instr.operands
    count, transposes = _form(instr, source)
    address, read = context.address(target, space_of(instr)), table_reader(context, source)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses, lanes = _rows(machine, address, frame, index, instr, count)
        words = np.ascontiguousarray(read(frame, index, machine).swapaxes(1, 2))
        rows = (_transposed(words) if transposes else words).view(CHUNK).reshape(-1)
        machine.memory.store("shared", addresses, rows, lanes)

    return aligned(instr, step)


@control("movmatrix")
def movmatrix(instr: Instruction, context: Context) -> Control:
    target, source = instr.operands
    if instr.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise EmulationError(str(instr))
    write, read = table_writer(context, target), table_reader(context, source)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, _transposed(read(frame, index, machine)[..., 0]))

    return aligned(instr, step)


# ── mma ──

_BYTES = {"m8n8k16", "m16n8k16", "m16n8k32"}
_NIBBLES = {"m8n8k32", "m16n8k32", "m16n8k64"}
#: Shapes that mma has up to sm_90, by the type of A.
_MMA_SHAPES = {
    "f16": {"m8n8k4", "m16n8k8", "m16n8k16"}, "bf16": {"m16n8k8", "m16n8k16"}, "tf32": {"m16n8k4", "m16n8k8"},
    "f64": {"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"}, "s8": _BYTES, "u8": _BYTES, "s4": _NIBBLES, "u4": _NIBBLES,
    "b1": {"m8n8k128", "m16n8k128", "m16n8k256"}, "e4m3": {"m16n8k16", "m16n8k32"}, "e5m2": {"m16n8k16", "m16n8k32"},
}  # fmt: skip
#: Modifiers of mma and wmma.mma besides shape and types.
_MMA_QUALIFIERS = {"mma", "sync", "aligned", "row", "col", "satfinite", "rn", "rz", "rm", "rp", "xor", "and", "popc"}


def check_form(instr: Instruction, types: Sequence[str], shapes: dict[str, set[str]]) -> None:
    """Raise for a form that does not exist; `types` are the types of D, A, B and C."""
    to, a, b, c = types
    check_types(instr, a, b, c, to)
    rest = {m for m in instr.modifiers if m not in _MMA_QUALIFIERS and m not in BITS}
    if len(rest) != 1 or not rest <= shapes[a]:
        raise EmulationError(str(instr))


@control("mma")
def mma(instr: Instruction, context: Context) -> Control:
    types = types_of(instr.modifiers)
    check_form(instr, types, _MMA_SHAPES)
    to, type_name, _, of_c = types
    m, n, k = shape_of(instr.modifiers)
    layouts = [layout for layout in instr.modifiers if layout in ("row", "col")]
    if (type_name, m) == ("f16", 8):
        a, b, by_type = quad_pair_fragments(*layouts)
        return aligned(instr, product(instr, context, types, a, b, by_type[of_c], by_type[to]))
    if layouts != ["row", "col"]:
        raise EmulationError(str(instr))
    c = c_fragment(m, n)
    return aligned(
        instr, product(instr, context, types, a_fragment(m, k, type_name), b_fragment(k, n, type_name), c, c)
    )


def product(
    instr: Instruction, context: Context, types: Sequence[str], a: Fragment, b: Fragment, c: Fragment, d: Fragment
) -> Step:
    """Return a step of D = A · B + C with the register layouts of the four fragments."""
    to, *input_types = types
    target, *sources = instr.operands
    fragments = (a, b, c)
    for operand, type_name, fragment in zip(instr.operands, types, (d, *fragments), strict=True):
        if len(parts(operand)) * packed(type_name) != fragment.places.shape[1]:
            raise EmulationError(f"{len(parts(operand))} registers for a matrix of {fragment.shape} in {type_name}")
    reads = [
        table_reader(context, source, register_bits(type_name))
        for source, type_name in zip(sources, input_types, strict=True)
    ]
    write = table_writer(context, target, register_bits(to))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            first, second, addend = (
                fragment.gather(values_of(read(frame, index, machine), type_name))
                for fragment, read, type_name in zip(fragments, reads, input_types, strict=True)
            )
            result = multiply_add(first, second, addend, input_types[0], instr.modifiers)
            write(frame, index, raw_of(d.scatter(result), to))

    return step


# ── wmma: A and B of halves are held twice or four times over ──

_SIXTEENS = {"m16n16k16", "m8n32k16", "m32n8k16"}
#: Shapes that wmma has up to sm_90, by the type of A.
_WMMA_SHAPES = {
    "f16": _SIXTEENS, "bf16": _SIXTEENS, "s8": _SIXTEENS, "u8": _SIXTEENS, "tf32": {"m16n16k8"}, "f64": {"m8n8k4"},
    "s4": {"m8n8k32"}, "u4": {"m8n8k32"}, "b1": {"m8n8k128"},
}  # fmt: skip

#: addresses(frame, index, machine) → address of each element of each lane, and its lane, both flat
Addresses: TypeAlias = Callable[[Frame, Index, Machine], tuple[np.ndarray, np.ndarray]]


@control("wmma")
def wmma(instr: Instruction, context: Context) -> Control:
    if instr.modifiers[0] == "load":
        return _load(instr, context)
    if instr.modifiers[0] == "store":
        return _store(instr, context)
    types = types_of(instr.modifiers)
    if len(types) == 2:
        # Of halves only D and C are named.
        types = [types[0], "f16", "f16", types[1]]
    check_form(instr, types, _WMMA_SHAPES)
    m, n, k = shape_of(instr.modifiers)
    held_a, held_b = (len(parts(operand)) * packed(types[1]) for operand in instr.operands[1:3])
    a, b = a_fragment(m, k, types[1]).repeated(held_a), b_fragment(k, n, types[1]).repeated(held_b)
    return aligned(instr, product(instr, context, types, a, b, c_fragment(m, n), c_fragment(m, n)))


def _load(instr: Instruction, context: Context) -> Control:
    """Make the control of ``wmma.load``."""
    target, place, *stride = instr.operands
    (type_name,) = types_of(instr.modifiers)
    bits = register_bits(type_name)
    addresses, unit = _in_memory(instr, context, type_name, len(parts(target)) * packed(type_name), place, stride)
    write = table_writer(context, target, bits)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where, lanes = addresses(frame, index, machine)
        write(frame, index, machine.memory.load(space_of(instr), where, unit, lanes).view(f"u{bits // 8}"))

    return aligned(instr, step)


def _store(instr: Instruction, context: Context) -> Control:
    """Make the control of ``wmma.store``."""
    place, source, *stride = instr.operands
    (type_name,) = types_of(instr.modifiers)
    addresses, unit = _in_memory(instr, context, type_name, len(parts(source)) * packed(type_name), place, stride)
    read = table_reader(context, source, register_bits(type_name))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where, lanes = addresses(frame, index, machine)
        machine.memory.store(space_of(instr), where, read(frame, index, machine).reshape(-1).view(unit), lanes)

    return aligned(instr, step)


def _in_memory(
    instr: Instruction, context: Context, type_name: str, elements: int, place: Operand, strides: list[Operand]
) -> tuple[Addresses, np.dtype]:
    """Return a function for the addresses of a wmma matrix's elements, and the dtype of an element in memory.

    The function returns two flat arrays: the addresses, and the lane of each address.

    Parameters
    ----------
    elements : int
        Number of elements of each lane.
    place : Operand
        Address of the matrix.
    strides : list of Operand
        Elements between rows or columns, as the only item. An empty list: the matrix is dense.
    """
    matrix, by_rows = instr.modifiers[1], "row" in instr.modifiers
    # Elements below a byte run along A's rows or B's columns: the elements of a register count as one.
    group = packed(type_name) if BITS[type_name] < 8 else 1
    if group > 1 and (matrix, by_rows) not in (("a", True), ("b", False)):
        raise EmulationError(str(instr))
    fragment = _fragment(instr, type_name, group).repeated(elements // group)
    row, column = np.divmod(fragment.places, fragment.shape[1])
    along, across = (column, row) if by_rows else (row, column)
    unit = np.dtype(f"u{BITS[type_name] * group // 8}")
    base = context.address(place, space_of(instr))
    pitch = context.read(strides[0], "u32") if strides else None
    packed_rows = fragment.shape[1 if by_rows else 0]

    def addresses(frame: Frame, index: Index, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
        start = uniform(base(frame, index, machine), "address")
        step = np.array(packed_rows)
        if pitch is not None:
            step = uniform(read_per_lane(pitch, frame, index, machine), "stride").astype(np.int64) // group
        offsets = (across * step.reshape(-1, 1, 1) + along) * unit.itemsize
        where = start[:, None, None] + offsets.astype(np.uint64)
        lanes = np.arange(machine.lanes) if index is None else index
        return np.broadcast_to(where, (start.size, WARP, along.shape[1])).reshape(-1), np.repeat(lanes, along.shape[1])

    return addresses, unit


def _fragment(instr: Instruction, type_name: str, group: int) -> Fragment:
    """Return the fragment of a matrix that wmma loads or stores.

    For elements below a byte, `group` of them count as one element of the fragment.

    Raises
    ------
    EmulationError
        For a shape that wmma does not have.
    """
    m, n, k = shape_of(instr.modifiers)
    matrix, unit = instr.modifiers[1], type_name if group == 1 else "tf32"
    factors = [type_name] if matrix in "ab" else [factor for factor, results in RESULTS.items() if type_name in results]
    if all(f"m{m}n{n}k{k}" not in _WMMA_SHAPES.get(factor, ()) for factor in factors):
        raise EmulationError(str(instr))
    if matrix == "a":
        return a_fragment(m, k // group, unit)
    return b_fragment(k // group, n, unit) if matrix == "b" else c_fragment(m, n)


# ── wgmma, of shared memory ──
#
# The product is complete when wgmma.mma_async returns, so fences and groups do nothing. A kernel that reads its
# accumulators before wgmma.wait_group gets the result here, and garbage on a GPU.

_ROWS, _DEPTH_BYTES = 64, 32
_FACTOR_TYPES = frozenset({"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"})
_WGMMA_QUALIFIERS = {"mma_async", "sync", "aligned", "satfinite", "and", "popc"}

#: Adjacent chunks of 16 bytes in a swizzle atom, and the address bits that a swizzle changes, by a descriptor's mode:
#: none, 128, 64 and 32 bytes.
_ATOM = np.array([1, 8, 4, 2])
_SWIZZLE = np.array([0, 0x70, 0x30, 0x10])

#: load(frame, index, machine) → values of a matrix, float64, (warpgroups, rows, depth)
_Load = Callable[[Frame, Index, Machine], np.ndarray]


@control("wgmma")
def wgmma(instr: Instruction, context: Context) -> Control:
    if instr.modifiers[0] in ("fence", "commit_group", "wait_group"):
        return lambda machine, frame, index, active, position: True
    to, of_a, of_b = types_of(instr.modifiers)
    _check(instr, of_a)
    check_types(instr, of_a, of_b, to)
    _, n, k = shape_of(instr.modifiers)
    target, a, b, scale_d, *rest = instr.operands
    signs = [constant_of(operand) for operand in rest[:2]] or [1, 1]
    if any(sign not in (1, -1) for sign in signs):
        raise EmulationError(f"a factor is multiplied by 1 or -1, not by {signs}")
    transposed = [bool(constant_of(operand)) for operand in rest[2:]] or [False, False]
    if isinstance(a, Group):
        load_a = _from_registers(context, a, k, of_a)
    else:
        load_a = _from_shared(context, a, _ROWS, of_a, transposed[0])
    load_b = _from_shared(context, b, n, of_b, transposed[-1])
    read, write, keeps = table_reader(context, target), table_writer(context, target), context.read(scale_d, "pred")
    fragment = c_fragment(_ROWS // 4, n)
    if len(parts(target)) * packed(to) != fragment.places.shape[1]:
        raise EmulationError(f"{len(parts(target))} registers for D of {instr}")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            before = fragment.gather(values_of(read(frame, index, machine), to)).reshape(-1, _ROWS, n)
            keeps_d = uniform(read_per_lane(keeps, frame, index, machine), "predicate scale-d", WARPGROUP)
            before = np.where(keeps_d[:, None, None], before, 0.0)
            first, second = load_a(frame, index, machine) * signs[0], load_b(frame, index, machine) * signs[1]
            result = multiply_add(first, second.swapaxes(1, 2), before, of_a, instr.modifiers)
            write(frame, index, raw_of(fragment.scatter(result.reshape(-1, _ROWS // 4, n)), to))

    return aligned(instr, step, WARPGROUP)


def _check(instr: Instruction, type_name: str) -> None:
    """Raise for a form of wgmma that does not exist."""
    m, n, k = shape_of(instr.modifiers)
    rest = [modifier for modifier in instr.modifiers if modifier not in _WGMMA_QUALIFIERS and modifier not in BITS]
    # Integers take steps of 16 columns, and 8 and 24.
    columns = 8 <= n <= 256 and n % (16 if type_name in INTEGERS and n not in (8, 24) else 8) == 0
    if (
        len(rest) != 1
        or type_name not in _FACTOR_TYPES
        or m != _ROWS
        or k * BITS[type_name] != 8 * _DEPTH_BYTES
        or not columns
    ):
        raise EmulationError(str(instr))


def _from_registers(context: Context, operand: Operand, depth: int, type_name: str) -> _Load:
    """Return a loader of A from registers, of which each warp has 16 rows."""
    read, fragment = table_reader(context, operand), a_fragment(_ROWS // 4, depth, type_name)

    def load(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        return fragment.gather(values_of(read(frame, index, machine), type_name)).reshape(-1, _ROWS, depth)

    return load


def _from_shared(context: Context, operand: Operand, rows: int, type_name: str, transposed: bool) -> _Load:
    """Return a loader of A, or of B transposed, from shared memory by a matrix descriptor: PTX ISA 9.7.15.5.1."""
    if transposed and BITS[type_name] != 16:
        raise EmulationError(f"{type_name} cannot be transposed")
    descriptor = context.read(operand, "b64")

    def load(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        descriptors = uniform(read_per_lane(descriptor, frame, index, machine), "matrix descriptor", WARPGROUP)
        chunks = _chunks(descriptors, rows, transposed)
        lanes = (np.arange(machine.lanes) if index is None else index)[::WARPGROUP]
        lane = np.broadcast_to(lanes[:, None, None], chunks.shape).reshape(-1)
        raw = machine.memory.load("shared", chunks.reshape(-1), CHUNK, lane).view(np.uint64)
        values = values_of(raw.reshape(*chunks.shape[:2], -1), type_name)
        if transposed:
            # Eight rows of a k in a chunk, the k of eight rows one after another.
            values = values.reshape(descriptors.size, rows // 8, -1, 8).swapaxes(2, 3)
        return values.reshape(descriptors.size, rows, -1)

    return load


def _chunks(descriptor: np.ndarray, rows: int, transposed: bool) -> np.ndarray:
    """Return the addresses of a matrix's 16-byte chunks, uint64.

    The shape is (warpgroups, rows, 2) where k runs along chunks. Where rows run along chunks it is
    (warpgroups, rows / 8, 16), with one k in each chunk.
    """
    bits = descriptor.astype(np.int64)[:, None, None]
    start, leading, stride = (((bits >> bit) & 0x3FFF) << 4 for bit in (0, 16, 32))
    if ((bits >> 49) & 7).any():
        raise EmulationError("a matrix descriptor with a base offset is not emulated")
    mode = (bits >> 62) & 3
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
