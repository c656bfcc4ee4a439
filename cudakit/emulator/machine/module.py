"""Modules: programs with their variables in memory, kept between launches.

The variables live as long as the module. Decoded instructions are large. `PROGRAMS` drops the programs used least
recently with their decoded instructions, which are decoded again when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from cudakit.emulator.machine.decode import Context, Decoded, Linked, Symbols, decode
from cudakit.emulator.machine.kernel_memory import SharedLayout, reachable, recurses, shared_layout
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.state import LOCAL_BYTES, Geometry
from cudakit.emulator.ptx.program import Function, Program
from cudakit.errors import EmulationError


class DecodedCode(dict[int, Decoded]):
    """Decoded instructions of a function by their indices, decoded at the first use of an instruction."""

    def __init__(self, function: Function, context: Context) -> None:
        self._function, self._context = function, context

    def __missing__(self, code: int) -> Decoded:
        decoded = self[code] = decode(self._function.code[code], self._context)
        return decoded


class Module:
    """A program with its variables in memory; made once, launched many times.

    Parameters
    ----------
    program : Program
        Parsed program.
    memory : Memory
        Memory in which the variables are placed.
    read : callable, optional
        Function that parses the program again, after `release`.
    linked : Linked, optional
        Symbols shared with other programs in the same memory.
    """

    def __init__(
        self, program: Program, memory: Memory, read: Callable[[], Program] | None = None, linked: Linked | None = None
    ) -> None:
        self.program = program
        self.memory = memory
        self.symbols: Symbols = Symbols(program, memory, linked or Linked())
        self._read = read
        self._decoded: dict[str, DecodedCode] = {}
        #: By kernel: machine that ran it last, and the reason.
        self.ran: dict[str, tuple[str, str]] = {}
        self._contexts: dict[str, Context] = {}
        #: Other back-ends' code of the program, by back-end; dropped with the program.
        self.compiled: dict[object, Any] = {}
        self._recursive: dict[str, bool] = {}
        self._shared: dict[str, SharedLayout] = {}
        #: The driver's words for a grid that synchronises: size and barrier (cooperative_groups' driver_abi.h).
        self.grid_barrier: np.ndarray = np.zeros(2, np.uint32)
        self.grid_barrier_address: int = memory.add(self.grid_barrier, "the grid's barrier")

    @cached_property
    def program(self) -> Program:
        """The parsed program, which is parsed again after `release`."""
        assert self._read is not None
        return self._read()

    @cached_property
    def functions(self) -> list[Function]:
        """Functions of the program by their numbers."""
        return list(self.program.functions.values())

    def release(self) -> None:
        """Drop the program and its decoded instructions. Variables and pointers to functions stay valid."""
        if self._read is not None:
            self._decoded.clear()
            self._contexts.clear()
            self.compiled.clear()
            for name in ("program", "functions"):
                self.__dict__.pop(name, None)

    def context(self, function: Function) -> Context:
        """Return the context for decoding a function: the layout of its registers and variables."""
        if function.name not in self._contexts:
            self._contexts[function.name] = Context(self.symbols, function)
        return self._contexts[function.name]

    def decoded(self, function: Function) -> DecodedCode:
        """Return a function's instructions by their indices."""
        if function.name not in self._decoded:
            self._decoded[function.name] = DecodedCode(function, self.context(function))
        return self._decoded[function.name]

    def recurses(self, function: Function) -> bool:
        """Return whether a function may call itself, directly or not; the answer is cached."""
        if function.name not in self._recursive:
            self._recursive[function.name] = recurses(self.program, function)
        return self._recursive[function.name]

    def reachable(self, function: Function) -> list[Function]:
        """Return a function and the device functions that it may call."""
        return reachable(self.program, function)

    def shared(self, kernel: str) -> SharedLayout:
        """Return the shared-memory layout of a kernel, by its name in the program."""
        if kernel not in self._shared:
            self._shared[kernel] = shared_layout(self.program, self.program.functions[kernel])
        return self._shared[kernel]


class Programs:
    """Modules whose programs are loaded, in the order of use, the most recently used last.

    Parameters
    ----------
    most : int
        Limit of instructions in all programs together. The program of the module in use stays in any case.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._sizes: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
        self._latest: ref[Module] | None = None

    @property
    def instructions(self) -> int:
        """Number of instructions in all loaded programs together."""
        return sum(self._sizes.values())

    def use(self, module: Module) -> None:
        """Record that a module is launched, and release other modules' programs if the limit is passed."""
        if self._latest is not None and self._latest() is module:
            return
        self._latest = ref(module)
        size = self._sizes.pop(module, None)
        self._sizes[module] = size or sum(len(function.code) for function in module.functions)
        while size is None and self.instructions > self.most and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.release()


#: An instruction takes about 3 KB once it is decoded, and 0.2 ms to be decoded again.
PROGRAMS = Programs(1 << 17)


# ── blocks that run at once ──

#: Limit of lanes at once; further blocks run afterwards.
MOST_LANES = 65_536
#: Limit in bytes of registers, shared and local memory for the blocks at once; it bounds their number.
USUAL_BYTES = 1 << 30
#: Limit in bytes for one cluster, for a cooperative grid, and for the frames of nested calls.
MOST_BYTES = 4 << 30
#: Divisor of the lanes at once for a recursive kernel, which keeps the registers of each depth.
_RECURSION = 16


def blocks_at_once(module: Module, entry: Function, geometry: Geometry, title: str) -> int:
    """Return the number of blocks that run at once: whole clusters, or all blocks of a cooperative grid.

    `title` names the kernel in messages.

    Raises
    ------
    EmulationError
        If the blocks take more memory than the emulator allows.
    """
    context = module.context(entry)
    if context.local_bytes > LOCAL_BYTES:
        raise EmulationError(
            f"{title}: the variables of a thread in local memory are {context.local_bytes} bytes, over the "
            f"limit of {LOCAL_BYTES} bytes a thread"
        )
    cluster = prod(geometry.cluster)
    block_bytes = module.shared(entry.name).static_bytes + geometry.shared_bytes + geometry.threads * context.lane_bytes
    least = geometry.blocks if geometry.cooperative else cluster
    if least * block_bytes > MOST_BYTES:
        raise EmulationError(
            f"{title}: {least} blocks that must run at once take {least * block_bytes} bytes of registers, "
            f"shared and local memory, and {MOST_BYTES} are available; use smaller blocks, fewer of them or less memory"
        )
    if geometry.cooperative:
        return geometry.blocks
    lanes = MOST_LANES // _RECURSION if module.recurses(entry) else MOST_LANES
    clusters = min(lanes // (geometry.threads * cluster), USUAL_BYTES // (block_bytes * cluster))
    return max(1, clusters) * cluster
