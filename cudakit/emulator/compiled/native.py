"""Machine code of kernels: compiled by LLVM, kept on disk, and loaded with the memory of its launches.

A kernel has code of two tiers: the baseline tier is fast to compile, the optimized tier fast to run. Code is found on
disk before any IR is written, by everything that decides it. An entry on disk has the facts for launches and the digest
of the object code; other kernels with the same IR share the object code.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from cudakit.emulator.compiled import kernel
from cudakit.emulator.compiled.helpers import helpers
from cudakit.emulator.compiled.kernel import Facts
from cudakit.emulator.compiled.layout import Layout, Slot
from cudakit.emulator.compiled.source import Source
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import WIDEST, Memory
from cudakit.emulator.machine.state import SHARED_UNIT, Geometry, coordinates
from cudakit.jit.cache.cache import default_cache
from cudakit.streams import process

# Each call of LLVM holds llvmlite's lock, and LLVM's state is consistent between two calls. A child that was forked
# during a call would wait for the lock for ever.
process.hold_at_fork(getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext()))


class Processor(NamedTuple):
    """CPU for which code is made."""

    name: str
    features: str
    #: Lanes of 32 bits in the widest registers.
    native: int
    #: Whether the CPU has masks for all its memory instructions.
    masks: bool
    #: Whether the CPU loads from four places at once, without such masks.
    gathers: bool


@cache
def processor() -> Processor:
    """Return this machine's CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    native = 16 if features.get("avx512f") else 8
    return Processor(
        llvm.get_host_cpu_name(), features.flatten(), native, native == 16, native == 8 and features.get("avx2", False)
    )


@cache
def _target(optimised: bool = True) -> Any:
    """Return LLVM's target for this CPU."""
    name, features, *_ = processor()
    target = llvm.Target.from_default_triple()
    opt = 2 if optimised else 0
    return target.create_target_machine(
        cpu=name, features=features, opt=opt, reloc="pic", codemodel="default", jit=True
    )


def compiled(text: str, optimised: bool) -> bytes:
    """Compile the LLVM IR of a module to object code, in the optimized tier or else the baseline tier.

    A long module is optimized less. So is a module of functions beside a kernel, where more passes change nothing. Code
    that is not optimized runs half as long again.
    """
    machine = _target(optimised)
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    if optimised and "@kernel(" in text and text.count("\n") <= _LONG:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in _BASELINE_PASSES + _EXTRA_PASSES * (optimised and "@kernel(" in text):
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


#: Lines of a module from which LLVM's loop passes cost more time than they gain.
_LONG = 10_000
#: Passes that are fast for a module of any length; and passes that save more time in code generation than they take.
_BASELINE_PASSES = ("sroa", "simplify_cfg")
_EXTRA_PASSES = ("instruction_combine", "new_gvn", "simplify_cfg", "dead_store_elimination")


def stored_code(digest: str) -> bytes | None:
    """Return the object code with a digest, if it is on disk."""
    return default_cache().stored("native", digest)


def object_code(text: str, optimised: bool) -> bytes:
    """Return the object code of a module's LLVM IR, from disk, or compiled now and stored there."""
    digest = digest_of(text, optimised)
    return default_cache().blob("native", digest, lambda: compiled(text, optimised))


@cache
def _helpers() -> bytes:
    """Return the object code of the helpers, which is the same for all kernels."""
    return object_code(helpers(), True)


class Code:
    """Object code loaded into the process, for as long as this object lives."""

    def __init__(self, code: Sequence[bytes]) -> None:
        library = llvm.JITLibraryBuilder()
        for part in (*code, _helpers()):
            library.add_object_img(part)
        library.add_current_process().export_symbol("kernel")
        self._library = library.link(_jit(), f"kernel{next(_numbers)}")
        #: run(words, first block, last block): 0, or the reason why it stopped.
        self.run: Callable[[Any, int, int], int] = _Run(self._library["kernel"])


_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_numbers = count()


def toolchain() -> tuple[str, ...]:
    """Return everything besides a module's text that decides its object code."""
    name, features, *_ = processor()
    return (
        llvmlite.__version__,
        *map(str, llvm.llvm_version_info),
        name,
        features,
        str(_LONG),
        *_BASELINE_PASSES,
        *_EXTRA_PASSES,
    )


def digest_of(text: str, optimised: bool) -> str:
    """Return the digest of everything that decides a module's object code."""
    return hashlib.sha256("\0".join((*toolchain(), str(optimised), text)).encode()).hexdigest()


@cache
def _jit() -> Any:
    """Return the process's linker of object code."""
    # JITLink places an object's sections side by side. The older linker uses any free addresses, and aborts the process
    # where two sections are more than 32 bits apart, for example beside CUDA's reservations of addresses.
    return llvm.create_lljit_compiler(_target(), use_jit_link=True)


# ── tiers ──


class Tier(NamedTuple):
    """Object code of a kernel in one tier, and the facts for its launches."""

    facts: Facts
    #: Of the kernel, and of functions that it calls, if there are any.
    object_code: tuple[bytes, ...]
    is_baseline: bool


def code_of(source: Source, layout: Layout, short: int) -> Tier:
    """Return the code of a kernel: the best on disk, else compiled now, optimized up to `short` instructions.

    Raises
    ------
    Refusal
    """
    for optimised in (True, False):
        tier = _stored(source, layout, short, optimised)
        if tier is not None:
            return tier
    return make(source, layout, short, len(source.context.function.code) <= short)


def make(source: Source, layout: Layout, short: int, optimised: bool) -> Tier:
    """Compile a kernel to machine code, store the code in the disk cache, and return it.

    Parameters
    ----------
    source : Source
        Kernel to compile.
    layout : Layout
        Properties of the thread block and of the CPU, such as the number of lanes in a vector.
    short : int
        Number of instructions up to which a kernel is optimized at its first compile. It is a part of the cache key
        only.
    optimised : bool
        Whether to compile in the optimized tier. False: in the baseline tier.

    Raises
    ------
    Refusal
    """
    ir = kernel.make(source.context, layout, not optimised)
    # Functions that many accesses call are optimized always.
    modules = [(ir.text, optimised), *([(ir.beside, True)] if ir.beside else [])]
    code = tuple(object_code(*module) for module in modules)
    entry = json.dumps(([digest_of(*module) for module in modules], ir.facts)).encode()
    default_cache().blob("machinecode", _key(source, layout, short, optimised), lambda: entry)
    return Tier(ir.facts, code, not optimised)


def _stored(source: Source, layout: Layout, short: int, optimised: bool) -> Tier | None:
    """Return a kernel's code in the optimized or baseline tier from disk; None if it is not there.

    `short` is a part of the cache key only.
    """
    entry = default_cache().stored("machinecode", _key(source, layout, short, optimised))
    if entry is None:
        return None
    digests, facts = json.loads(entry)
    code = tuple(part for part in map(stored_code, digests) if part is not None)
    return Tier(Facts.of(facts), code, not optimised) if len(code) == len(digests) else None


def _key(source: Source, layout: Layout, short: int, optimised: bool) -> str:
    """Return the digest of everything that decides a kernel's code."""
    parts = (_compiler(), *toolchain(), repr(layout), str(short), str(optimised), *source.identity)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _compiler() -> str:
    """Return the digest of the emulator's source, which decides the code for a PTX text."""
    emulator = Path(__file__).parents[1]
    files = sorted(emulator.rglob("*.py"))
    # Without installed source, versions cannot be distinguished: code of other processes is not used.
    digest = hashlib.sha256(b"" if files else os.urandom(32))
    for file in files:
        digest.update(f"{file.relative_to(emulator)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


# ── kernels, and the memory of launches ──


@dataclass(eq=False)
class Frame:
    """Memory and shared words of launches of one kernel with one geometry."""

    geometry: Geometry
    words: Any
    address: int
    keepalive: list[Any]
    table: Any
    parameters: Any

    def update_table(self, memory: Memory) -> None:
        """Write the table of allocations that the code reads."""
        flags_from = getattr(memory.watcher, "flags_from", None)
        rows = memory.table if flags_from is None else memory.flagged(flags_from)
        address, length = rows.buffer_info()
        if length > len(self.table):
            self.table = (ctypes.c_int64 * (2 * length))()
        # A copy: while code runs on one core, another core may find more memory.
        ctypes.memmove(self.table, address, 8 * length)
        self.words[Slot.TABLE] = ctypes.addressof(self.table)
        self.words[Slot.TABLE_COUNT] = length // 4


@dataclass(eq=False)
class Compiled:
    """A kernel as machine code, for one layout."""

    source: Source
    layout: Layout
    #: Limit of instructions for kernels that are optimized at once.
    short: int
    #: Seconds that baseline code runs before the kernel is optimized.
    patience: float = 0
    frames: dict[tuple[Any, ...], Frame] = field(default_factory=dict)
    facts: Facts = field(init=False)
    code: Code = field(init=False)
    #: Whether the code is of the baseline tier, which may need more stack than threads have.
    is_baseline: bool = field(init=False)

    def __post_init__(self) -> None:
        self._take(code_of(self.source, self.layout, self.short))

    def improve(self) -> None:
        """Compile the optimized tier now, and use it from then on; the frames of earlier launches are dropped."""
        self._take(make(self.source, self.layout, self.short, True))
        self.frames.clear()

    def _take(self, tier: Tier) -> None:
        """Load the code of a tier."""
        self.facts, self.code, self.is_baseline = tier.facts, Code(tier.object_code), tier.is_baseline


def frame_of(launch: Launch, compiled: Compiled) -> Frame:
    """Return a new frame for launches of a geometry."""
    geometry, module = launch.geometry, launch.module
    facts = compiled.facts
    words = (ctypes.c_int64 * int(Slot.COUNT + 1))()
    keepalive: list[Any] = []

    def room(size: int) -> int:
        array = np.zeros(size + 64, np.uint8)
        keepalive.append(array)
        address = int(array.__array_interface__["data"][0])
        return -(-address // 64) * 64

    shared = launch.shared.total_bytes(geometry.shared_bytes)
    parameter_bytes = -(-len(launch.parameters) // WIDEST) * WIDEST
    parameters = room(max(WIDEST, parameter_bytes))
    lanes = -(-geometry.threads // 64) * 64
    at = np.zeros(3 * 1088, np.uint32)
    for axis, values in enumerate(coordinates(np.arange(geometry.threads), geometry.block).values()):
        at[axis * 1088 : axis * 1088 + geometry.threads] = values
    keepalive.append(at)
    addresses = np.array([module.symbols.addresses[name] for name in facts.symbols] or [0], np.int64)
    keepalive.append(addresses)
    table = (ctypes.c_int64 * (4 * 1024))()
    words[Slot.PARAMETERS], words[Slot.PARAMETER_BYTES] = parameters, parameter_bytes
    words[Slot.SHARED], words[Slot.SHARED_BYTES] = room(shared + 64), shared
    words[Slot.LOCAL], words[Slot.LOCAL_BYTES] = room(max(16, facts.local_bytes) * lanes), facts.local_bytes
    for axis in range(3):
        words[Slot.GRID + axis], words[Slot.BLOCK + axis] = geometry.grid[axis], geometry.block[axis]
    words[Slot.THREADS] = geometry.threads
    words[Slot.THREAD_AT] = int(at.__array_interface__["data"][0])
    words[Slot.SYMBOLS] = int(addresses.__array_interface__["data"][0])
    words[Slot.VECTORS] = -(-geometry.threads // compiled.layout.width)
    words[Slot.STATE] = room(max(64, facts.state_bytes * words[Slot.VECTORS]))
    words[Slot.DYNAMIC_BYTES] = geometry.shared_bytes
    words[Slot.TOTAL_BYTES] = -(-shared // SHARED_UNIT) * SHARED_UNIT
    words[Slot.GRID_BARRIER] = module.grid_barrier_address if geometry.cooperative else 0
    return Frame(geometry, words, ctypes.addressof(words), keepalive, table, parameters)
